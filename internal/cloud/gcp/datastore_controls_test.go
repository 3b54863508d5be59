package gcp

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/zopday/provisioner/internal/job"
)

// Each hardening control of a datastore, switched off at the cloud one by one: its
// row says so, no other does, and once it is back all is met again.
func TestDatastoreControlsFlipped(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, spec string
		family     job.ResourceType
		prefix     string
		flips      map[string]string
	}{
		{"postgres", productionSpec, job.Datastore, "SQL-", postgresFlips()},
		{"mysql", mysqlSpec, job.Datastore, "SQL-", map[string]string{
			"SQL-01": `{"settings":{"ipConfiguration":{"ipv4Enabled":true}}}`,
			"SQL-02": `{"settings":{"ipConfiguration":{"authorizedNetworks":[{"value":"0.0.0.0/0"}]}}}`,
			"SQL-03": `{"settings":{"ipConfiguration":{"sslMode":"ALLOW_UNENCRYPTED_AND_ENCRYPTED"}}}`,
			"SQL-05": `{"settings":{"backupConfiguration":{"enabled":false}}}`,
			"SQL-06": `{"settings":{"backupConfiguration":{"binaryLogEnabled":false}}}`,
			"SQL-07": `{"settings":{"deletionProtectionEnabled":false}}`,
			"SQL-08": `{"settings":{"finalBackupConfig":{"enabled":false}}}`,
			"SQL-11": `{"settings":{"databaseFlags":[{"name":"local_infile","value":"off"}]}}`,
			"SQL-12": "", // a user, no field
			"SQL-13": `{"settings":{"databaseFlags":[{"name":"cloudsql_iam_authentication","value":"on"},{"name":"local_infile","value":"on"}]}}`,
			"SQL-29": `{"databaseVersion":"MYSQL_5_7"}`,
		}},
		{"redis", redisThreeSpec, job.Cache, "MS-", map[string]string{
			"MS-01": `{"authEnabled":false}`,
			"MS-02": `{"transitEncryptionMode":"DISABLED"}`,
			"MS-05": `{"connectMode":"DIRECT_PEERING"}`,
			"MS-07": `{"authorizedNetwork":"projects/example-project/global/networks/default"}`,
			"MS-08": `{"tier":"BASIC"}`,
			"MS-10": `{"persistenceConfig":{"persistenceMode":"DISABLED"}}`,
			"MS-11": `{"maintenancePolicy":{"weeklyMaintenanceWindow":[]}}`,
			"MS-13": `{"redisVersion":"REDIS_6_X"}`,
		}},
		{"valkey", `{"engine":"valkey","preset":"production"}`, job.Cache, "MS-", map[string]string{
			"MS-03": `{"transitEncryptionMode":"TRANSIT_ENCRYPTION_DISABLED"}`,
			"MS-04": "", // opt-in: told, and no fault
			"MS-06": `{"endpoints":[]}`,
			"MS-08": `{"replicaCount":0}`,
			"MS-11": `{"maintenancePolicy":{"weeklyMaintenanceWindow":[]}}`,
			"MS-12": `{"deletionProtectionEnabled":false}`,
			"MS-13": `{"engineVersion":"VALKEY_7_2"}`,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := newData(t, c.family, job.ModeCreate, c.spec)
			g.up()
			id := g.store().ID
			rows := slices.DeleteFunc(slices.Sorted(maps.Keys(g.report())), func(id string) bool { return !strings.HasPrefix(id, c.prefix) })
			if want := slices.Sorted(maps.Keys(c.flips)); !slices.Equal(rows, want) {
				t.Errorf("the report has the rows\n%v, and\n%v are tried", rows, want)
			}
			for _, row := range rows {
				if c.flips[row] == "" {
					continue
				}
				undo := g.patch(id, c.flips[row])
				if unmet := g.unmet(); !slices.Equal(unmet, []string{row}) {
					t.Errorf("%s: not met are %v", row, unmet)
				}
				if len(g.differs()) == 0 && row != "SQL-12" {
					t.Errorf("%s: a verify finds nothing", row)
				}
				undo()
				if unmet := g.unmet(); len(unmet) > 0 {
					t.Errorf("%s: put back, and not met are %v", row, unmet)
				}
			}
			since := g.mark()
			g.another()
			g.up()
			if _, changes := g.calls(since); sum(changes) > 0 {
				t.Errorf("a second run changed %v", changes)
			}
		})
	}
}

func (g dataRig) unmet() []string {
	g.Helper()
	var out []string
	for id, row := range g.report() {
		if !row.Met && !row.Unchecked {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}

// postgresFlips is each row of PostgreSQL with what breaks it.
func postgresFlips() map[string]string {
	out := map[string]string{
		"SQL-01": `{"settings":{"ipConfiguration":{"ipv4Enabled":true}}}`,
		"SQL-02": `{"settings":{"ipConfiguration":{"authorizedNetworks":[{"value":"0.0.0.0/0"}]}}}`,
		"SQL-03": `{"settings":{"ipConfiguration":{"sslMode":"ALLOW_UNENCRYPTED_AND_ENCRYPTED"}}}`,
		"SQL-05": `{"settings":{"backupConfiguration":{"backupRetentionSettings":{"retainedBackups":3}}}}`,
		"SQL-06": `{"settings":{"backupConfiguration":{"pointInTimeRecoveryEnabled":false}}}`,
		"SQL-07": `{"settings":{"deletionProtectionEnabled":false}}`,
		"SQL-08": `{"settings":{"finalBackupConfig":{"enabled":false}}}`,
		"SQL-09": `{"settings":{"availabilityType":"ZONAL"}}`,
		"SQL-29": `{"databaseVersion":"POSTGRES_12"}`,
	}
	rows := map[string]string{}
	for _, s := range flagSettings {
		if s.only == job.Postgres {
			rows[s.id] = s.name
		}
	}
	for id, name := range rows {
		var flags []string
		for _, f := range sqlFlags(job.Postgres) {
			value := f.Value
			if f.Name == name {
				value = "other"
			}
			flags = append(flags, `{"name":"`+f.Name+`","value":"`+value+`"}`)
		}
		if id == "SQL-26" {
			flags = append(flags, `{"name":"log_parser_stats","value":"on"}`)
		}
		out[id] = `{"settings":{"databaseFlags":[` + strings.Join(flags, ",") + `]}}`
	}
	return out
}
