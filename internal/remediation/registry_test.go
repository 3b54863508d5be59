package remediation

import (
	"errors"
	"strings"
	"testing"

	"github.com/zopday/provisioner/internal/cloud"
)

func some(cloud.Provider) (Pauser, error) { return nil, nil }

// TestRegisterProtectsDatabases: every family of databases and caches, as every
// cloud and everybody writes it, is refused for what it is.
func TestRegisterProtectsDatabases(t *testing.T) {
	families := []string{"rds", "aurora", "cloudsql", "elasticache", "azure-sql", "postgres", "mysql", "memorystore", "redis",
		"rds-instance", "rds-cluster", "aurora-postgresql", "cloudsql-instance", "elasticache-replication-group", "azure-sql-database",
		"postgresql-flexible-server", "mysql-flexible-server", "memorystore-redis", "redis-enterprise", "azure-managed-redis"}
	clouds := []string{"", "aws", "gcp", "google", "azure", "amazon"}
	separators := []string{"-", "_", ".", ":", "::", "/", " ", ""}
	for _, cloud := range clouds {
		for _, family := range families {
			for _, sep := range separators {
				name := strings.ReplaceAll(family, "-", sep)
				if cloud != "" {
					name = cloud + sep + name
				}
				for _, spelt := range []string{name, strings.ToUpper(name), capital(name), " " + name + " ", name + "-1", wide(name), strings.Join(strings.Split(name, ""), "-"), strings.Join(strings.Split(name, ""), "\u200b")} {
					var protected *ProtectedError
					if err := NewRegistry().Register(spelt, some); !errors.As(err, &protected) {
						t.Errorf("Register(%q) = %v, want a refusal of a customer's database", spelt, err)
					}
				}
			}
		}
	}
}

func capital(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// wide is a name in full-width letters.
func wide(s string) string {
	return strings.Map(func(r rune) rune {
		if r > ' ' && r < 0x7f {
			return r - '!' + 0xFF01
		}
		return r
	}, s)
}

func TestRegisterAllowsThePoolsAlone(t *testing.T) {
	r, err := Default()
	if err != nil {
		t.Fatal(err)
	}
	if n := len(r.open); n != 8 {
		t.Errorf("%d kinds are registered, want 8: %v", n, Kinds())
	}
	if err := r.Register("asg", some); err == nil {
		t.Error("a kind was registered twice")
	}
	for _, name := range []string{"", "ASG", "ec2", "lambda", "dynamodb", "spanner", "s3-bucket", "mongodb", "asg ", "а" + "sg" /* Cyrillic */} {
		if err := NewRegistry().Register(name, some); err == nil {
			t.Errorf("%q was registered", name)
		}
	}
	if err := NewRegistry().Register("asg", nil); err == nil {
		t.Error("a kind without a Pauser was registered")
	}
}

// TestProtectedNames: what a person calls a pool is read part by part.
func TestProtectedNames(t *testing.T) {
	for _, name := range []string{"rds-prod", "shop-redis", "RDS", "my.cloud.sql", "Azure_SQL:orders", "mysqlbox", "team/postgres-1", "aurora2", "myRedis", "c-l-o-u-d-s-q-l", "r\u00adds"} {
		if _, found := Protected(name); !found {
			t.Errorf("%q is not found to be a database", name)
		}
	}
	for _, name := range []string{"", "shop", "dashboards", "hundreds", "records-api", "workers", "web-2", "boards", "predispose", "asg", "system"} {
		if p, found := Protected(name); found {
			t.Errorf("%q is taken for %s", name, p)
		}
	}
}

// FuzzRegister: only the kinds on the list are ever registered, spelt as there, and
// no spelling of a database's name is.
func FuzzRegister(f *testing.F) {
	for _, seed := range append(Kinds(), "rds", "Aurora-PostgreSQL", "cloud_sql", "elasti.cache", "azure:sql", "redis/1", "ec2-instance-rds", "ＲＤＳ", "") {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		err := NewRegistry().Register(name, some)
		listed := strings.Contains("\n"+strings.Join(Kinds(), "\n")+"\n", "\n"+name+"\n") && name != ""
		if listed != (err == nil) {
			t.Fatalf("Register(%q) = %v, on the list: %v", name, err, listed)
		}
		// An oracle of its own: letters and digits of ASCII alone.
		bare := strings.Map(func(r rune) rune {
			switch {
			case r >= 'A' && r <= 'Z':
				return r + 'a' - 'A'
			case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
				return r
			}
			return -1
		}, name)
		for _, p := range protected {
			var refused *ProtectedError
			if strings.HasPrefix(bare, p) && isASCII(name) && !errors.As(err, &refused) {
				t.Fatalf("Register(%q) = %v, and it begins with %s", name, err, p)
			}
		}
	})
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r > 0x7f })
}
