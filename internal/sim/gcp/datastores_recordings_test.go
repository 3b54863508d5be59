package gcp

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// datastoresMeant are the differences from the recordings of Cloud SQL and Memorystore that are meant to be: file and a pattern for the
// difference, with the reason.
var datastoresMeant = []struct{ file, pattern, why string }{
	{"*", `serverCaCert\.(cert|commonName|expirationTime|sha1Fingerprint): |serviceAccountEmailAddress: |settings.settingsVersion: `, "made up, by both"},
	{"*", `ipAddresses\[\]\.ipAddress: |(response\.| )(host|port): `, "the address of a server of this machine, or of none"},
	{"*", `(maintenanceVersion|databaseInstalledVersion): |upgradableDatabaseVersions(\[\]\.(majorVersion|displayName|name): |: not recorded)`, "newer versions have come; the minor ones of MySQL 8.0 are left out"},
	{"*", `([gG]ceZone|locationPreference\.zone|locationId|currentLocationId|LocationId|nodes\[\]\.zone): `, "another zone of the region"},
	{"*-2024", `includeReplicasForMajorVersionUpgrade: not recorded|replicationLagMaxSeconds: not recorded|backupTier: not recorded|oomSessionCancelEnabled: true|flagRecommenderEnabled: true|iamStatus: not recorded|satisfiesPzi: true`,
		"newer than the recording: those of 2025 have it"},
	{"sql-instance-gcloud-invalid-tier", `(authorizedGaeApplications|authorizedNetworks): not recorded`, "the recordings proven to be real have it"},
	{"*", `PATCH \S+ error.errors: not recorded`, "cut: users report the reason with this refusal (hashicorp/terraform-provider-google#20498)"},
	{"sql-database", `charset: utf8mb4, recorded utf8`, "the change of a character set that was asked for"},
	{"sql-user*", `users items\[\].host: 10.1.2.3`, "the host that was asked for"},
	{"redis-instance", `reservedIpRange: |([mM]aintenanceVersion|availableMaintenanceVersions): not recorded`, "other ranges; the flights of 2026 have the versions"},
	{"errors-redis-errors", `clusters/dependency-cluster-u1 error.errors: not recorded`, "Redis Cluster is not simulated"},
	{"sql-private-network-2024", `(subnetworks\[\]|ipCidrRange|subnetworks/\S+ network): `, "two networks and subnetworks have one placeholder"},
}

// enumNames are the values of Memorystore's enums by number, which the recorded client asked for.
var enumNames = map[string]map[float64]string{
	"tier": {1: "BASIC", 3: "STANDARD_HA"}, "connectMode": {1: "DIRECT_PEERING", 2: "PRIVATE_SERVICE_ACCESS"}, "persistenceMode": {1: "DISABLED", 2: "RDB"},
	"readReplicasMode": {1: "READ_REPLICAS_DISABLED", 2: "READ_REPLICAS_ENABLED"}, "state": {1: "CREATING", 2: "READY"}, "transitEncryptionMode": {1: "SERVER_AUTHENTICATION", 2: "DISABLED"},
}

// asRead is a recorded document with the names of enums and links of v1.
func asRead(v any, key string) any {
	switch x := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, item := range x {
			out[k] = asRead(item, k)
		}
		return out
	case []any:
		out := []any{}
		for _, item := range x {
			if m, ok := item.(map[string]any); ok && m["__trimmed_items__"] != nil {
				continue
			}
			out = append(out, asRead(item, key))
		}
		return out
	case string:
		return strings.Replace(x, "sqladmin.googleapis.com/sql/v1beta4/", "sqladmin.googleapis.com/v1/", 1)
	case float64:
		if name := enumNames[key][x]; name != "" {
			return name
		}
	}
	return v
}

// newestOperation is the operation of Cloud SQL or Memorystore that was begun last.
func (p *player) newestOperation() string {
	p.world.Lock()
	defer p.world.Unlock()
	name, begun := "", time.Time{}
	for _, op := range p.cloud.sql.st.Operations {
		if op.Begun.After(begun) {
			name, begun = lastPart(op.Path), op.Begun
		}
	}
	for _, op := range p.cloud.redis.st.Operations {
		if op.Begun.After(begun) {
			name, begun = lastPart(op.Name), op.Begun
		}
	}
	return name
}

// TestDatastoreRecordings plays the recordings of Cloud SQL and Memorystore, as TestRecordings does those of networks.
func TestDatastoreRecordings(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/datastores/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal("no recordings", err)
	}
	exchanges, fields, differences := 0, 0, 0
	unused := map[int]bool{}
	for i := range datastoresMeant {
		unused[i] = true
	}
	for _, file := range files {
		p := &player{rig: newRig(t), file: strings.TrimSuffix(filepath.Base(file), ".json"), names: map[string][]string{}, made: map[string]int{}}
		all := amended(t, file)
		p.begin(all)
		for _, e := range all {
			ours := regexp.MustCompile(`//(sqladmin|redis)\.googleapis\.com/`).MatchString(e.Request.URL)
			if ours {
				p.world.Step(15 * time.Minute) // recorded operations are done
				if name := p.newestOperation(); name != "" {
					p.operation = name
				}
			}
			e.Request.URL = strings.Replace(e.Request.URL, "/sql/v1beta4/", "/v1/", 1)
			if e.Request.Body != nil {
				e.Request.Body, _ = asRead(e.Request.Body, "").(map[string]any)
			}
			e.Response.Body = asRead(e.Response.Body, "")
			if settings, ok := e.Request.Body["settings"].(map[string]any); ok && settings["settingsVersion"] != nil {
				if _, now := p.send("GET", e.Request.URL, nil); now != nil {
					settings["settingsVersion"] = str(sub(now.(map[string]any), "settings"), "settingsVersion")
				}
			}
			p.prime(e)
			p.play(e)
			exchanges++
		}
		fields += p.fields
		differences += len(p.differences)
		for _, d := range p.differences {
			expected := false
			for i, k := range datastoresMeant {
				if ok, _ := filepath.Match(k.file, p.file); ok && regexp.MustCompile(k.pattern).MatchString(d) {
					expected = true
					delete(unused, i)
				}
			}
			if !expected {
				t.Errorf("%s %s", p.file, d)
			}
		}
		t.Logf("%s: %d exchanges, %d fields, %d differences", p.file, len(all), p.fields, len(p.differences))
	}
	for i := range unused {
		t.Errorf("a known difference that is none any more: %s %s", datastoresMeant[i].file, datastoresMeant[i].pattern)
	}
	t.Logf("%d exchanges of %d files, %d fields compared, %d differences of %d known kinds", exchanges, len(files), fields, differences, len(datastoresMeant))
}
