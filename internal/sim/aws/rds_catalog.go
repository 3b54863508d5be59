package aws

import (
	"slices"
	"strings"
	"time"
)

// dbVersion is a version of an engine that RDS offers.
type dbVersion struct {
	Engine, Version, Major string
	Deprecated             bool // existing instances keep it, new ones do not get it
}

// dbVersions are the versions that RDS offers, oldest first ("Amazon RDS for PostgreSQL updates", "Amazon RDS for MySQL
// versions", the release notes of both).
var dbVersions = func() []dbVersion {
	var out []dbVersion
	add := func(engine, major string, deprecated bool, minors ...string) {
		for _, m := range minors {
			out = append(out, dbVersion{engine, m, major, deprecated})
		}
	}
	add("mysql", "5.7", false, "5.7.44-rds.20250818")
	add("mysql", "8.0", true, "8.0.36")
	add("mysql", "8.0", false, "8.0.42", "8.0.44", "8.0.45")
	add("mysql", "8.4", true, "8.4.3")
	add("mysql", "8.4", false, "8.4.6", "8.4.7", "8.4.8")
	add("postgres", "13", false, "13.23")
	add("postgres", "14", true, "14.12")
	add("postgres", "14", false, "14.20", "14.22", "14.23")
	add("postgres", "15", true, "15.3")
	add("postgres", "15", false, "15.15", "15.17", "15.18")
	add("postgres", "16", true, "16.3")
	add("postgres", "16", false, "16.11", "16.13", "16.14")
	add("postgres", "17", true, "17.2")
	add("postgres", "17", false, "17.7", "17.9", "17.10")
	add("postgres", "18", false, "18.1", "18.3", "18.4")
	return out
}()

// dbDefaults are the versions that an instance gets when none is asked for.
var dbDefaults = map[string]string{"mysql": "8.4.8", "postgres": "17.10"}

// dbSupport is when standard support of a major version began and ends, and when extended support ends ("Release calendar
// for Amazon RDS for PostgreSQL", "… for MySQL").
var dbSupport = map[string][3]string{
	"mysql 5.7": {"2016-02-22", "2024-02-29", "2027-02-28"}, "mysql 8.0": {"2018-10-23", "2026-07-31", "2029-07-31"}, "mysql 8.4": {"2024-11-21", "2029-07-31", "2032-07-31"},
	"postgres 13": {"2021-02-24", "2026-02-28", "2029-02-28"}, "postgres 14": {"2022-02-03", "2027-02-28", "2030-02-28"}, "postgres 15": {"2023-02-27", "2028-02-29", "2031-02-28"},
	"postgres 16": {"2024-01-26", "2029-02-28", "2032-02-28"}, "postgres 17": {"2024-12-03", "2030-02-28", "2033-02-28"}, "postgres 18": {"2025-11-14", "2031-02-28", "2034-02-28"},
}

func supportDate(text string) time.Time {
	t, err := time.Parse("2006-01-02", text)
	if err != nil {
		panic(err) // a table of this file
	}
	return t
}

// extended says whether a version gets extended support only, which is billed.
func (v dbVersion) extended(now time.Time) bool {
	return now.After(supportDate(dbSupport[v.Engine+" "+v.Major][1]).AddDate(0, 0, 1))
}

// family is the parameter group family of a version.
func (v dbVersion) family() string { return v.Engine + v.Major }

// dbEngineNames are how RDS calls its engines.
var dbEngineNames = map[string]string{"mysql": "MySQL Community Edition", "postgres": "PostgreSQL"}

var dbLicenses = map[string]string{"mysql": "general-public-license", "postgres": "postgresql-license"}

var dbPorts = map[string]int32{"mysql": 3306, "postgres": 5432}

// dbLogTypes are the logs that an engine can export ("Publishing database logs to Amazon CloudWatch Logs").
func (v dbVersion) logTypes() []string {
	if v.Engine == "mysql" {
		return []string{"audit", "error", "general", "iam-db-auth-error", "slowquery"}
	}
	return []string{"iam-db-auth-error", "postgresql", "upgrade"}
}

// findDBVersion finds what a request means: an exact version, or a major one, which stands for its newest minor.
func findDBVersion(engine, version string) (dbVersion, bool) {
	if version == "" {
		version = dbDefaults[engine]
	}
	var found dbVersion
	for _, v := range dbVersions {
		if v.Engine == engine && !v.Deprecated && (v.Version == version || v.Major == version) {
			found = v
		}
	}
	return found, found.Version != ""
}

// dbClass is an instance class.
type dbClass struct {
	Name, Family, Size string
	VCPUs, MemoryMiB   int
}

var dbSizes = map[string]int{"large": 2, "xlarge": 4, "2xlarge": 8, "4xlarge": 16, "8xlarge": 32, "12xlarge": 48, "16xlarge": 64}

// dbClasses are the classes that RDS offers for PostgreSQL and MySQL, by name ("DB instance class types").
var dbClasses = func() map[string]dbClass {
	out := map[string]dbClass{}
	add := func(family, size string, vcpus, memory int) {
		name := "db." + family + "." + size
		out[name] = dbClass{name, family, size, vcpus, memory}
	}
	for _, family := range []string{"t3", "t4g"} {
		for size, mem := range map[string]int{"micro": 1024, "small": 2048, "medium": 4096, "large": 8192} {
			add(family, size, 2, mem)
		}
		add(family, "xlarge", 4, 16384)
		add(family, "2xlarge", 8, 32768)
	}
	for size, vcpus := range dbSizes {
		for _, family := range []string{"m6i", "m6g", "m7i", "m7g", "m8g"} {
			add(family, size, vcpus, vcpus*4096)
		}
		for _, family := range []string{"r6i", "r6g", "r7i", "r7g", "r8g"} {
			add(family, size, vcpus, vcpus*8192)
		}
	}
	return out
}()

// offeredIn says whether a class can be ordered for a version in a region. Graviton4 classes are not in every region, and
// engines in extended support do not get the newest ones ("Supported DB engines for DB instance classes").
func (k dbClass) offeredIn(region string, v dbVersion) bool {
	old := v.Major == "5.7" || v.Major == "13"
	switch {
	case strings.HasSuffix(k.Family, "8g"):
		return !old && region != "sa-east-1" && region != "ap-northeast-3"
	case strings.HasPrefix(k.Family, "m7") || strings.HasPrefix(k.Family, "r7"):
		return v.Major != "5.7"
	}
	return true
}

// insights says whether Performance Insights runs on a class ("Amazon RDS DB engine, Region, and instance class support").
func (k dbClass) insights(engine string) bool {
	return !(engine == "mysql" && (k.Size == "micro" || k.Size == "small"))
}

// dbStorage is a storage type with its limits for PostgreSQL and MySQL ("Amazon RDS DB instance storage").
type dbStorage struct {
	Type                         string
	Min, Max                     int32
	MinIops, MaxIops             int32
	MinThroughput, MaxThroughput int32
}

var dbStorages = []dbStorage{
	{Type: "gp2", Min: 20, Max: 65536}, {Type: "gp3", Min: 20, Max: 65536, MinIops: 12000, MaxIops: 64000, MinThroughput: 500, MaxThroughput: 4000},
	{Type: "io1", Min: 100, Max: 65536, MinIops: 1000, MaxIops: 256000}, {Type: "io2", Min: 100, Max: 65536, MinIops: 1000, MaxIops: 256000},
	{Type: "standard", Min: 10, Max: 3072},
}

func findDBStorage(name string) (dbStorage, bool) {
	i := slices.IndexFunc(dbStorages, func(s dbStorage) bool { return s.Type == name })
	if i < 0 {
		return dbStorage{}, false
	}
	return dbStorages[i], true
}

// classNames lists the classes in a stable order: by family, then by size.
func classNames() []string {
	names := sortedKeys(dbClasses)
	slices.SortStableFunc(names, func(a, b string) int {
		x, y := dbClasses[a], dbClasses[b]
		if x.Family != y.Family {
			return strings.Compare(x.Family, y.Family)
		}
		return x.MemoryMiB - y.MemoryMiB
	})
	return names
}

// dbCAs are the certificate authorities of a region ("Using SSL/TLS to encrypt a connection to a DB instance").
var dbCAs = map[string]time.Time{
	"rds-ca-rsa2048-g1": time.Date(2061, 5, 25, 22, 0, 0, 0, time.UTC), "rds-ca-rsa4096-g1": time.Date(2121, 5, 25, 22, 0, 0, 0, time.UTC),
	"rds-ca-ecc384-g1": time.Date(2121, 5, 25, 22, 0, 0, 0, time.UTC),
}

const defaultCA = "rds-ca-rsa2048-g1"
