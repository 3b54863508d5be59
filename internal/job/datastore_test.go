package job

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
)

func datastoreJob(t ResourceType, p Provider, m Mode, spec string) *Job {
	return &Job{ID: "job_1", Kind: Provisioning, ResourceType: t, Provider: p, Mode: m, Name: "shop-db", Region: map[Provider]string{AWS: "us-east-1", GCP: "europe-west1", Azure: "westeurope"}[p], Config: Config{Spec: json.RawMessage(spec)}}
}

// TestDatastoreSpecs checks what is said about specs before any cloud is asked: which
// fields are named, and that everything wrong is named at once.
func TestDatastoreSpecs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		family ResourceType
		cloud  Provider
		mode   Mode
		spec   string
		fields string // at fault, sorted; "" is none
	}{
		{"preset alone", Datastore, AWS, ModeCreate, `{"engine":"postgres"}`, ""},
		{"a cache needs nothing", Cache, GCP, ModeCreate, `{}`, ""},
		{"no engine", Datastore, AWS, ModeCreate, `{}`, "config.spec.engine"},
		{"a cache's engine", Datastore, AWS, ModeCreate, `{"engine":"redis"}`, "config.spec.engine"},
		{"a datastore's engine", Cache, AWS, ModeCreate, `{"engine":"mysql"}`, "config.spec.engine"},
		{"valkey at azure", Cache, Azure, ModeCreate, `{"engine":"valkey"}`, "config.spec.engine"},
		{"a version whose schema public is open", Datastore, AWS, ModeCreate, `{"engine":"postgres","version":"14.9"}`, "config.spec.version"},
		{"hyphen in the administrator (C16)", Datastore, AWS, ModeCreate, `{"engine":"mysql","adminUser":"rds-admin"}`, "config.spec.adminUser"},
		{"17 characters (C16)", Datastore, AWS, ModeCreate, `{"engine":"mysql","adminUser":"abcdefghijklmnopq"}`, "config.spec.adminUser"},
		{"admin on postgres (C17)", Datastore, AWS, ModeCreate, `{"engine":"postgres","adminUser":"admin"}`, "config.spec.adminUser"},
		{"admin on mysql (C17)", Datastore, AWS, ModeCreate, `{"engine":"mysql","adminUser":"admin"}`, ""},
		{"rdsadmin anywhere (C17)", Datastore, AWS, ModeCreate, `{"engine":"mysql","adminUser":"rdsadmin"}`, "config.spec.adminUser"},
		{"system database", Datastore, AWS, ModeCreate, `{"engine":"postgres","databases":[{"name":"postgres"},{"name":"ok"},{"name":"ok"}]}`, "config.spec.databases[0].name config.spec.databases[2].name"},
		{"hostile database", Datastore, AWS, ModeCreate, `{"engine":"mysql","databases":[{"name":"a;drop"},{"name":"select"},{"name":"A"}]}`, "config.spec.databases[0].name config.spec.databases[1].name config.spec.databases[2].name"},
		{"databases in a cache", Cache, AWS, ModeCreate, `{"databases":[{"name":"app"}]}`, "config.spec.databases"},
		{"open to the internet", Datastore, AWS, ModeCreate, `{"engine":"postgres","access":[{"cidr":"0.0.0.0/0"},{"cidr":"8.8.8.0/24"},{"cidr":"10.0.0.1/16"},{}]}`, "config.spec.access[0].cidr config.spec.access[1].cidr config.spec.access[2].cidr config.spec.access[3]"},
		{"a group at gcp", Datastore, GCP, ModeCreate, `{"engine":"postgres","access":[{"securityGroupId":"sg-0123456789abcdef0"}]}`, "config.spec.access[0].securityGroupId"},
		{"not ASCII (C11)", Datastore, AWS, ModeCreate, `{"engine":"postgres","access":[{"cidr":"10.9.0.0/16","description":"ключ"}]}`, "config.spec.access[0].description"},
		{"sizes", Datastore, AWS, ModeCreate, `{"engine":"postgres","size":{"vcpus":0,"memoryGiB":0},"storageGiB":10,"backupRetentionDays":40,"maintenanceWindow":"daily"}`, "config.spec.backupRetentionDays config.spec.maintenanceWindow config.spec.size.memoryGiB config.spec.size.vcpus config.spec.storageGiB"},
		{"replicas of a datastore", Datastore, AWS, ModeCreate, `{"engine":"postgres","replicas":1}`, "config.spec.replicas"},
		{"no replica to fail over to", Cache, AWS, ModeCreate, `{"replicas":0,"highAvailability":true}`, "config.spec.replicas"},
		{"two ways to adopt", Datastore, AWS, ModeAdopt, `{"engine":"postgres","adopt":{"name":"a","ids":["b"]}}`, "config.spec.adopt"},
		{"credentials in an endpoint", Datastore, AWS, ModeAdopt, `{"engine":"postgres","adopt":{"endpoint":"postgres://u:p@h/db"}}`, "config.spec.adopt.endpoint"},
		{"adopt and make", Datastore, AWS, ModeAdopt, `{"engine":"postgres","adopt":{"name":"a"},"databases":[{"name":"app"}]}`, "config.spec.databases"},
		{"adopt without an engine", Cache, Azure, ModeAdopt, `{"adopt":{"name":"a"}}`, ""},
		{"monitor what is made", Datastore, AWS, ModeCreate, `{"engine":"postgres","monitorOnly":true}`, "config.spec.monitorOnly"},
		{"keys elsewhere", Cache, AWS, ModeCreate, `{"accessKeys":true}`, "config.spec.accessKeys"},
		{"a waiver without a reason", Datastore, AWS, ModeCreate, `{"engine":"postgres","waive":[{"control":"RDS-10","reason":" "},{"control":"EKS-05","reason":"x"}]}`, "config.spec.waive[0].reason config.spec.waive[1].control"},
		{"existing without a network", Datastore, AWS, ModeCreateInExisting, `{"engine":"postgres"}`, "config.spec.existing.networkId config.spec.existing.subnetIds"},
		{"unknown field", Datastore, AWS, ModeCreate, `{"engine":"postgres","password":"p@ss"}`, "config.spec.password"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			err := datastoreJob(c.family, c.cloud, c.mode, c.spec).Validate()
			var inv *Invalid
			var got []string
			if errors.As(err, &inv) {
				for _, f := range inv.Fields {
					got = append(got, f.Field)
					if f.Message == "" || f.Fix == "" {
						t.Errorf("%s has no message or no fix", f.Field)
					}
				}
			}
			slices.Sort(got)
			if strings.Join(got, " ") != c.fields {
				t.Errorf("at fault: %q, wanted %q (%v)", strings.Join(got, " "), c.fields, err)
			}
		})
	}
}

// TestPresets says what a preset stands for, and that a user's word goes before it.
func TestPresets(t *testing.T) {
	t.Parallel()
	s, err := datastoreJob(Datastore, AWS, ModeCreate, `{"engine":"postgres","preset":"production","storageGiB":40}`).DatastoreSpec()
	if err != nil {
		t.Fatal(err)
	}
	if !s.HA() || !s.Protected() || s.BackupRetentionDays != 14 || s.StorageGiB != 40 || s.StorageMax != 120 || s.Size.VCPUs != 4 || s.AdminUser != DefaultAdmin {
		t.Errorf("production is %+v", s)
	}
	for _, family := range []ResourceType{Datastore, Cache} {
		for _, p := range Presets(family) {
			if p.BackupRetentionDays < 7 || p.MemoryGiB == 0 || !strings.Contains(p.Always, "deletion protection") || p.What == "" {
				t.Errorf("%s %s: %+v", family, p.Name, p)
			}
		}
	}
}

// FuzzDatabaseName lets no name through that would have to be quoted, is an
// engine's own, or is longer than an engine takes.
func FuzzDatabaseName(f *testing.F) {
	for _, seed := range []string{"app", "postgres", "a b", `a"b`, "a`b", "select", "pg_x", "A", "ä", "a;--", strings.Repeat("a", 64), ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		for _, e := range []Engine{Postgres, MySQL} {
			message, fix := DatabaseNameFault(e, name)
			if (message == "") != (fix == "") {
				t.Errorf("%q: message %q, fix %q", name, message, fix)
			}
			if message != "" {
				continue
			}
			if len(name) == 0 || len(name) > 48 || name[0] < 'a' || name[0] > 'z' || slices.Contains(SystemDatabases(e), name) {
				t.Errorf("%q is taken as a database of %s", name, e)
			}
			for _, r := range name {
				if !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '_') {
					t.Errorf("%q is taken as a database of %s", name, e)
				}
			}
		}
	})
}

// FuzzRoleName makes names that every engine takes, and two rows never share one.
func FuzzRoleName(f *testing.F) {
	f.Add("checkout", "con_1", "con_2")
	f.Add("9-lives", "a", "b")
	f.Add("pg", "a", "b")
	f.Add("rdsadmin", "a", "b")
	f.Add("azure-pg-admin", "a", "b")
	f.Add(strings.Repeat("x", 80), "a", "b")
	f.Add("привет", "a", "b")
	f.Fuzz(func(t *testing.T, use, a, b string) {
		x, y := RoleName(use, a), RoleName(use, b)
		if keptName(x) {
			t.Errorf("%q is a name that an engine or a cloud keeps", x)
		}
		if len(x) > 32 || x == "" || !isLetter(x[0]) || strings.Trim(x, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
			t.Errorf("%q is no role name", x)
		}
		if (a == b) != (x == y) {
			t.Errorf("IDs %q and %q give %q and %q", a, b, x, y)
		}
	})
}
