package gcp

import (
	"crypto/sha1" //nolint:gosec // Cloud SQL names certificates by it
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"
)

// fill gives a document what Cloud SQL adds to it, as the recordings have it.
func (s *cloudSQL) fill(in *sqlInstance) {
	d, project, name := in.Doc, in.project(), in.name()
	at, _ := sqlVersion(in.version()) // checked before
	v := sqlVersions[at]
	d["kind"], d["name"], d["project"], d["selfLink"] = "sql#instance", name, project, sqlRoot+in.Path
	d["connectionName"] = project + ":" + in.region() + ":" + name
	d["backendType"], d["sqlNetworkArchitecture"], d["satisfiesPzi"] = "SECOND_GEN", "NEW_NETWORK_ARCHITECTURE", true
	setDefault(d, "instanceType", "CLOUD_SQL_INSTANCE")
	d["databaseInstalledVersion"], d["maintenanceVersion"] = v.installed, v.installed+"."+v.maintenance
	setDefault(d, "createTime", zuluTime(s.cloud.World.Now()))
	setDefault(d, "serviceAccountEmailAddress", "p"+s.cloud.number(project)+"-"+s.cloud.World.ID("", 6, "abcdefghijklmnopqrstuvwxyz0123456789")+"@gcp-sa-cloud-sql.iam.gserviceaccount.com")
	d["upgradableDatabaseVersions"] = upgradable(at)
	gemini := Doc{"activeQueryEnabled": false, "entitled": false, "indexAdvisorEnabled": false}
	if in.postgres() {
		gemini["googleVacuumMgmtEnabled"], gemini["oomSessionCancelEnabled"] = false, true
		d["includeReplicasForMajorVersionUpgrade"] = false
	} else {
		gemini["flagRecommenderEnabled"] = true
	}
	setDefault(d, "geminiConfig", gemini)
	s.fillSettings(in)
	s.fillZones(in)
	if d["serverCaCert"] == nil {
		d["serverCaCert"] = s.authority(in)
	}
	if truth(sub(in.settings(), "ipConfiguration"), "pscEnabled") || str(in.ip(), "serverCaMode") == "GOOGLE_MANAGED_CAS_CA" {
		setDefault(d, "dnsName", s.cloud.World.Hex("", 12)+"."+s.cloud.World.Hex("", 12)+"."+in.region()+".sql.goog.")
	}
	delete(d, "etag")
	d["etag"] = fingerprint(d)
}

// upgradable are the major versions above one.
func upgradable(at int) []any {
	engine, _, _ := strings.Cut(sqlVersions[at].version, "_")
	out := []any{}
	for _, v := range sqlVersions[at+1:] {
		if strings.HasPrefix(v.version, engine+"_") {
			out = append(out, Doc{"displayName": v.title, "majorVersion": v.version, "name": v.version})
		}
	}
	return out
}

func (s *cloudSQL) fillSettings(in *sqlInstance) {
	st := in.settings()
	plus := str(st, "edition") == enterprisePlus
	st["kind"] = "sql#settings"
	if strings.HasPrefix(str(st, "tier"), "db-c4a-") {
		setDefault(st, "dataDiskSizeGb", "20")
	}
	for k, v := range (Doc{"activationPolicy": "ALWAYS", "authorizedGaeApplications": []any{}, "availabilityType": "ZONAL", "connectorEnforcement": "NOT_REQUIRED",
		"dataDiskSizeGb": "10", "dataDiskType": "PD_SSD", "deletionProtectionEnabled": false, "pricingPlan": "PER_USE", "replicationType": "SYNCHRONOUS", "settingsVersion": "1",
		"storageAutoResize": true, "storageAutoResizeLimit": "0"}) {
		setDefault(st, k, v)
	}
	if in.postgres() {
		setDefault(st, "replicationLagMaxSeconds", float64(31536000))
	}
	s.fillBackups(in, plus)
	ip := in.ip()
	if ip == nil {
		ip = Doc{}
		st["ipConfiguration"] = ip
	}
	setDefault(ip, "ipv4Enabled", true)
	setDefault(ip, "authorizedNetworks", []any{})
	for _, n := range docs(ip, "authorizedNetworks") {
		n["kind"] = "sql#aclEntry"
	}
	if truth(ip, "requireSsl") {
		setDefault(ip, "sslMode", "TRUSTED_CLIENT_CERTIFICATE_REQUIRED")
	}
	setDefault(ip, "sslMode", "ALLOW_UNENCRYPTED_AND_ENCRYPTED")
	ip["requireSsl"] = str(ip, "sslMode") == "TRUSTED_CLIENT_CERTIFICATE_REQUIRED"
	if n := str(ip, "privateNetwork"); n != "" {
		ip["privateNetwork"] = orText(s.cloud.pathOfLink(in.project(), n), n)
	}
	if w := sub(st, "maintenanceWindow"); w != nil {
		w["kind"] = "sql#maintenanceWindow"
		setDefault(w, "updateTrack", "canary")
	}
}

// fillBackups gives the settings of backups their defaults: Enterprise Plus has backups and point-in-time recovery on, Enterprise has
// neither when the API is not asked for them.
func (s *cloudSQL) fillBackups(in *sqlInstance, plus bool) {
	st := in.settings()
	b := sub(st, "backupConfiguration")
	if b == nil {
		b = Doc{}
		st["backupConfiguration"] = b
	}
	replica := str(in.Doc, "masterInstanceName") != ""
	b["kind"] = "sql#backupConfiguration"
	regional := str(st, "availabilityType") == "REGIONAL"
	setDefault(b, "enabled", (plus || regional) && !replica)
	retained, days, pitr := 7.0, 7.0, "binaryLogEnabled"
	if plus {
		retained, days = 15, 14
	}
	if in.postgres() {
		pitr = "pointInTimeRecoveryEnabled"
	}
	if (plus || regional) && truth(b, "enabled") {
		setDefault(b, pitr, true)
	}
	setDefault(b, "startTime", "12:00")
	keep := sub(b, "backupRetentionSettings")
	if keep == nil {
		keep = Doc{}
		b["backupRetentionSettings"] = keep
	}
	setDefault(keep, "retainedBackups", retained)
	setDefault(keep, "retentionUnit", "COUNT")
	setDefault(b, "transactionLogRetentionDays", days)
	b["transactionalLogStorageState"] = "TRANSACTIONAL_LOG_STORAGE_STATE_UNSPECIFIED"
	if plus || in.postgres() {
		b["backupTier"] = "STANDARD"
	}
	if truth(b, pitr) {
		b["transactionalLogStorageState"] = "CLOUD_STORAGE"
	}
	if v, said := b["pointInTimeRecoveryEnabled"]; said && in.postgres() {
		b["replicationLogArchivingEnabled"] = v
		delete(b, "binaryLogEnabled")
	} else {
		delete(b, "replicationLogArchivingEnabled")
		delete(b, "pointInTimeRecoveryEnabled")
	}
}

// fillZones puts an instance into the zone that it prefers, or one of the region's, and its standby into another one.
func (s *cloudSQL) fillZones(in *sqlInstance) {
	st := in.settings()
	zones := zoneNames(in.region())
	where := sub(st, "locationPreference")
	if where == nil {
		where = Doc{}
		st["locationPreference"] = where
	}
	where["kind"] = "sql#locationPreference"
	if str(where, "zone") == "" {
		i := int(s.cloud.World.Fraction("sql zone", in.Path) * float64(len(zones)))
		where["zone"] = zones[i]
	}
	in.Doc["gceZone"] = str(where, "zone")
	delete(in.Doc, "secondaryGceZone")
	delete(in.Doc, "failoverReplica")
	if str(st, "availabilityType") == "REGIONAL" {
		second := str(where, "secondaryZone")
		if second == "" {
			i := slices.Index(zones, str(where, "zone"))
			second = zones[(i+1)%len(zones)]
		}
		in.Doc["secondaryGceZone"], in.Doc["failoverReplica"] = second, Doc{"available": true}
	}
}

// authority is the certificate that signs the server's, as serverCaCert shows it.
func (s *cloudSQL) authority(in *sqlInstance) Doc {
	now := s.cloud.World.Now()
	d := Doc{"kind": "sql#sslCert", "instance": in.name(), "certSerialNumber": "0", "commonName": "C=US,O=Google\\, Inc,CN=Google Cloud SQL Server CA,dnQualifier=" + s.cloud.World.UUID(),
		"createTime": zuluTime(now), "expirationTime": zuluTime(now.AddDate(10, 0, 0)), "sha1Fingerprint": s.cloud.World.Hex("", 40), "cert": ""}
	if s.cloud.opt.Databases == nil {
		return d
	}
	ca := s.cloud.opt.Databases.CA()
	d["cert"] = string(ca)
	block, _ := pem.Decode(ca)
	if block == nil {
		return d
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return d
	}
	sum := sha1.Sum(c.Raw) //nolint:gosec // as above
	d["sha1Fingerprint"], d["certSerialNumber"], d["commonName"] = hex.EncodeToString(sum[:]), new(big.Int).Set(c.SerialNumber).String(), c.Subject.String()
	d["createTime"], d["expirationTime"] = c.NotBefore.UTC().Format(time.RFC3339), c.NotAfter.UTC().Format(time.RFC3339)
	return d
}

// bumpSettings counts a change of the settings.
func bumpSettings(in *sqlInstance) {
	n, _ := strconv.Atoi(str(in.settings(), "settingsVersion"))
	in.settings()["settingsVersion"] = strconv.Itoa(n + 1)
	delete(in.Doc, "etag")
	in.Doc["etag"] = fingerprint(in.Doc)
}

// A sqlTier is a machine type that tiers.list has. Custom ones are not listed.
type sqlTier struct {
	name, edition string
	ram           float64 // GiB
}

// sqlTiers are the predefined machine types ("Instance settings", "About performance: machine series").
var sqlTiers = func() []sqlTier {
	out := []sqlTier{{"db-f1-micro", enterprise, 0.6}, {"db-g1-small", enterprise, 1.7}}
	for _, n := range []int{1, 2, 4, 8, 16, 32, 64, 96} {
		out = append(out, sqlTier{"db-n1-standard-" + strconv.Itoa(n), enterprise, 3.75 * float64(n)})
	}
	for _, n := range []int{2, 4, 8, 16, 32, 64, 96} {
		out = append(out, sqlTier{"db-n1-highmem-" + strconv.Itoa(n), enterprise, 6.5 * float64(n)})
	}
	for _, n := range []int{2, 4, 8, 16, 32, 48, 64, 80, 96, 128} {
		out = append(out, sqlTier{"db-perf-optimized-N-" + strconv.Itoa(n), enterprisePlus, min(8*float64(n), 864)})
	}
	for _, n := range []int{1, 2, 4, 8, 16, 32, 48, 64, 72} {
		out = append(out, sqlTier{"db-c4a-highmem-" + strconv.Itoa(n), enterprisePlus, 8 * float64(n)})
	}
	return out
}()

func fixedTier(name string) *sqlTier {
	for i := range sqlTiers {
		if strings.EqualFold(sqlTiers[i].name, name) {
			return &sqlTiers[i]
		}
	}
	return nil
}

// listTiers lists the predefined machine types, with the regions that have them.
func (s *cloudSQL) listTiers(*request) (any, error) {
	var items []any
	for _, t := range sqlTiers {
		items = append(items, Doc{"kind": "sql#tier", "tier": t.name, "RAM": strconv.FormatInt(int64(t.ram*(1<<30)), 10), "DiskQuota": strconv.FormatInt(65536<<30, 10),
			"region": anys(regionNames())})
	}
	return Doc{"kind": "sql#tiersList", "items": items}, nil
}
