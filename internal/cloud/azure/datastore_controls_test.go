package azure

import (
	"slices"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// The rows that every report of a flexible server, and of a cache, has.
var (
	postgresRows = []string{"AZDB-01", "AZDB-02", "AZDB-03", "AZDB-04", "AZDB-05", "AZDB-06", "AZDB-08", "AZDB-10", "AZDB-13", "AZDB-17", "AZDB-18", "AZDB-19", "AZDB-21", "AZDB-22", "AZDB-27", "AZDB-28", "AZDB-29", "AZDB-31"}
	mysqlRows    = []string{"AZDB-01", "AZDB-02", "AZDB-03", "AZDB-04", "AZDB-05", "AZDB-07", "AZDB-09", "AZDB-13", "AZDB-23", "AZDB-24", "AZDB-27", "AZDB-28", "AZDB-29", "AZDB-30", "AZDB-31"}
	cacheRows    = []string{"AMR-01", "AMR-02", "AMR-03", "AMR-04", "AMR-05", "AMR-06", "AMR-07", "AMR-08", "AMR-10", "AMR-11", "AMR-12", "AMR-15", "AMR-16"}
)

// A storeFlip is one control turned over on the server, the cache, or what belongs to
// it: a property, or a server parameter.
type storeFlip struct {
	id, on    string // on is below the server's or cluster's ID
	change    func(properties, top map[string]any)
	parameter string
	value     string
	with      string // a row that falls with it
}

func parameterIs(id, name, v string) storeFlip { return storeFlip{id: id, parameter: name, value: v} }

// turn sets a parameter as somebody with the portal does, and returns how to undo it.
func (g *rig) turn(name, v string) (undo func()) {
	g.Helper()
	at := g.job.Config.InfraConfig.Datastore.ID + "/configurations/" + name
	was := g.read(at)["properties"].(map[string]any)["value"]
	set := func(v any) {
		g.put(at, map[string]any{"properties": map[string]any{"value": v, "source": "user-override"}})
		g.world.Step(3 * time.Minute)
	}
	g.world.Step(time.Minute) // a server is busy for some seconds after a change
	set(v)
	return func() { set(was) }
}

func (g *rig) expectRows(rows []job.Control, want []string) {
	g.Helper()
	for _, id := range want {
		i := slices.IndexFunc(rows, func(c job.Control) bool { return c.ID == id })
		if i < 0 {
			g.Errorf("there is no row %s", id)
		} else if c := rows[i]; c.Name == "" || c.Wanted == "" || c.Seen == "" || c.Source == "" || c.Unchecked {
			g.Errorf("row %+v", c)
		}
	}
	if bad := unmet(rows); len(bad) > 0 {
		g.Fatalf("not met: %v\n%v", bad, rows)
	}
}

// storeReports are jobs with the rows of their reports, and what makes each fall.
var storeReports = map[string]struct {
	family job.ResourceType
	spec   string
	rows   []string
	flips  []storeFlip
}{
	"postgres": {job.Datastore, `{"engine":"postgres","preset":"production"}`, append(slices.Clone(postgresRows), "AZDB-15"), []storeFlip{
		{id: "AZDB-01", change: at("network.publicNetworkAccess", "Enabled")},
		{id: "AZDB-02", change: at("network.delegatedSubnetResourceId", nil)},
		{id: "AZDB-10", change: at("authConfig.activeDirectoryAuth", "Disabled")},
		{id: "AZDB-13", change: at("backup.backupRetentionDays", 3)},
		{id: "AZDB-15", change: at("highAvailability.mode", "Disabled")},
		{id: "AZDB-27", change: at("maintenanceWindow.customWindow", "Disabled")},
		parameterIs("AZDB-06", "require_secure_transport", "off"),
		parameterIs("AZDB-17", "log_checkpoints", "off"),
		parameterIs("AZDB-18", "log_connections", "off"),
		parameterIs("AZDB-19", "log_disconnections", "off"),
		parameterIs("AZDB-21", "logfiles.retention_days", "3"),
		parameterIs("AZDB-22", "shared_preload_libraries", "pg_cron"),
		parameterIs("AZDB-22", "pgaudit.log", "read"),
	}},
	"postgres 15": {job.Datastore, `{"engine":"postgres","version":"15"}`, append(slices.Clone(postgresRows), "AZDB-20"), []storeFlip{
		parameterIs("AZDB-20", "connection_throttle.enable", "off"),
	}},
	"mysql": {job.Datastore, `{"engine":"mysql"}`, mysqlRows, []storeFlip{
		{id: "AZDB-01", change: at("network.publicNetworkAccess", "Enabled")},
		{id: "AZDB-13", change: at("backup.backupRetentionDays", 1)},
		{id: "AZDB-27", change: at("maintenanceWindow.customWindow", "Disabled")},
		parameterIs("AZDB-07", "require_secure_transport", "OFF"),
		parameterIs("AZDB-23", "audit_log_enabled", "OFF"),
		parameterIs("AZDB-24", "audit_log_events", "DDL"),
		parameterIs("AZDB-30", "local_infile", "ON"),
	}},
	"redis": {job.Cache, `{"engine":"redis","principals":["` + theirAdmins + `"]}`, cacheRows, []storeFlip{
		{id: "AMR-01", change: at("publicNetworkAccess", "Enabled")},
		{id: "AMR-03", on: "/databases/default", change: at("clientProtocol", "Plaintext")},
		{id: "AMR-04", change: at("minimumTlsVersion", "1.0")},
		{id: "AMR-05", on: "/databases/default", change: at("accessKeysAuthentication", "Enabled")},
		{id: "AMR-07", change: at("highAvailability", "Disabled"), with: "AMR-08"},
		{id: "AMR-10", on: "/databases/default", change: at("deferUpgrade", "Deferred")},
		{id: "AMR-11", change: func(_, top map[string]any) { setAt(top, "sku.name", "Enterprise_E10") }},
	}},
}

// The report is complete and all of it holds; and each control that somebody turns
// over in the cloud makes its row fall, and no other.
func TestDatastoreControls(t *testing.T) {
	for name, c := range storeReports {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := datastores(t, c.family, c.spec)
			g.up()
			g.expectRows(g.report(), c.rows)
			lock := g.p.managementLock(g.run(pipeline.Verify), g.job.Config.InfraConfig.Datastore.ID).id
			row := map[job.ResourceType]string{job.Datastore: "AZDB-29", job.Cache: "AMR-15"}[c.family]
			g.expectUnmet("without its lock", []string{row}, g.without(lock))
			for _, f := range c.flips { // those that take a restart come last: they are not undone without one
				var undo func()
				if f.parameter != "" {
					undo = g.turn(f.parameter, f.value)
				} else {
					undo = g.tamper(g.job.Config.InfraConfig.Datastore.ID+f.on, f.change)
				}
				want := []string{f.id}
				if f.with != "" {
					want = append(want, f.with)
				}
				g.expectUnmet(f.id+" "+f.on+f.parameter, want, undo)
			}
		})
	}
}

// What the cloud no longer takes is still told apart in what an older server says, and
// what is put in place keeps what was there.
func TestParameters(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		engine      job.Engine
		version     string
		name, value string
		met         bool
		set         string
	}{
		{job.Postgres, "17", "ssl_min_protocol_version", "TLSv1.1", false, "TLSv1.2"},
		{job.Postgres, "17", "ssl_min_protocol_version", "TLSv1.3", true, ""},
		{job.Postgres, "18", "log_connections", "receipt,authentication", true, ""},
		{job.Postgres, "18", "log_connections", "", false, "on"},
		{job.Postgres, "17", "shared_preload_libraries", "pg_cron,pg_stat_statements", false, "pg_cron,pg_stat_statements,pgaudit"},
		{job.Postgres, "17", "shared_preload_libraries", "pgauditlogtofile", false, "pgauditlogtofile,pgaudit"},
		{job.Postgres, "17", "pgaudit.log", "none", false, "ddl,role"},
		{job.Postgres, "17", "pgaudit.log", "WRITE, DDL", false, "WRITE,DDL,role"},
		{job.Postgres, "17", "pgaudit.log", "ALL", true, ""},
		{job.Postgres, "17", "logfiles.retention_days", "8", false, "7"},
		{job.MySQL, "8.4", "tls_version", "TLSv1.1,TLSv1.2", false, "TLSv1.2,TLSv1.3"},
		{job.MySQL, "8.4", "tls_version", "", false, "TLSv1.2,TLSv1.3"},
		{job.MySQL, "8.4", "audit_log_events", "DDL", false, "DDL,CONNECTION"},
	} {
		all := parameters(c.engine, c.version)
		i := slices.IndexFunc(all, func(x parameter) bool { return x.name == c.name })
		if i < 0 {
			t.Errorf("%s %s has no %s", c.engine, c.version, c.name)
			continue
		}
		if got := all[i].met(c.value); got != c.met {
			t.Errorf("%s = %q is met: %v", c.name, c.value, got)
		}
		if got := all[i].set(c.value); !c.met && (got != c.set || !all[i].met(got)) {
			t.Errorf("%s = %q becomes %q, want %q", c.name, c.value, got, c.set)
		}
	}
	for version, want := range map[string]bool{"15": true, "16": false, "18": false} {
		if got := slices.ContainsFunc(parameters(job.Postgres, version), func(x parameter) bool { return x.control == "AZDB-20" }); got != want {
			t.Errorf("AZDB-20 applies to PostgreSQL %s: %v", version, got)
		}
	}
	for _, c := range []struct {
		from, to string
		wide     bool
	}{{"0.0.0.0", "255.255.255.255", true}, {"1.0.0.0", "223.255.255.255", true}, {"203.0.113.7", "203.0.113.7", false}, {"10.0.0.0", "10.0.255.255", false}, {"x", "y", false}} {
		if got := wide(c.from, c.to); got != c.wide {
			t.Errorf("%s to %s is wide: %v", c.from, c.to, got)
		}
	}
}
