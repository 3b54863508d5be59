package azure

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// theirServer is a flexible server that somebody has made, open to the internet.
func (g *rig) theirServer(typ, name string) string {
	g.Helper()
	if !g.exists(theirs) {
		g.put(theirs, map[string]any{"location": "eastus2"})
	}
	version := map[string]string{typePostgres: "16", typeMySQL: "8.4"}[typ]
	id := theirs + "/providers/" + typ + "/" + name
	g.put(id, map[string]any{
		"location": "eastus2", "sku": map[string]any{"name": "Standard_D4ds_v5", "tier": "GeneralPurpose"},
		"properties": map[string]any{
			"version": version, "administratorLogin": "dba", "administratorLoginPassword": "Somebody-Elses-1",
			"storage": map[string]any{"storageSizeGB": 128}, "backup": map[string]any{"backupRetentionDays": 7}, "network": map[string]any{"publicNetworkAccess": "Enabled"},
		},
	})
	g.world.Step(40 * time.Minute)
	return id
}

func (g *rig) adoptAs(spec string) error {
	g.Helper()
	g.job.Config.Spec = []byte(spec)
	return g.try(false, g.check, g.p.AdoptDatastore)
}

// A server is adopted by its ID, its name and its address, and nothing is changed.
func TestAdoptDatastore(t *testing.T) {
	t.Parallel()
	g := datastoresIn(t, job.Datastore, job.ModeAdopt, `{"adopt":{"name":"legacy"}}`)
	id := g.theirServer(typePostgres, "legacy")
	since := g.mark()
	address := g.read(id)["properties"].(map[string]any)["fullyQualifiedDomainName"].(string)
	for how, spec := range map[string]string{"id": `{"adopt":{"ids":["` + id + `"]}}`, "name": `{"adopt":{"name":"legacy"}}`, "endpoint": `{"adopt":{"endpoint":"` + address + `"}}`} {
		g.job.Config.InfraConfig.Datastore = job.DatastoreInfo{}
		if err := g.adoptAs(spec); err != nil {
			t.Fatalf("by %s: %v", how, err)
		}
		info := g.job.Config.InfraConfig.Datastore
		if !same(info.ID, id) || info.Engine != job.Postgres || info.Version != "16" || info.Class != "Standard_D4ds_v5" || info.VCPUs != 4 || info.MemoryGiB != 16 || info.StorageGiB != 128 || !info.Public || info.Host == "" || info.AdminUser != "dba" {
			t.Errorf("by %s: %+v", how, info)
		}
		notes := strings.Join(info.RiskNotes, "\n")
		for _, want := range []string{"internet", "no lock", "no standby"} {
			if !strings.Contains(notes, want) {
				t.Errorf("by %s: the notes do not say %q:\n%s", how, want, notes)
			}
		}
	}
	if err := g.adoptAs(`{"engine":"mysql","adopt":{"name":"legacy"}}`); fatal(err) == nil || !strings.Contains(err.Error(), "PostgreSQL") || !strings.Contains(err.Error(), "MySQL") {
		t.Errorf("another engine: %v", err)
	}
	if err := g.adoptAs(`{"adopt":{"name":"nobody"}}`); fatal(err) == nil || !strings.Contains(err.Error(), "nobody") {
		t.Errorf("nothing of that name: %v", err)
	}
	if _, changes := g.calls(since); sum(changes) > 0 {
		t.Errorf("an adoption changed %v", changes)
	}
}

// Caches of both products are adopted.
func TestAdoptCache(t *testing.T) {
	t.Parallel()
	g := datastoresIn(t, job.Cache, job.ModeAdopt, `{"adopt":{"name":"legacy"}}`)
	g.put(theirs, map[string]any{"location": "eastus2"})
	id := theirs + "/providers/" + typeCache + "/legacy"
	g.put(id, map[string]any{"location": "eastus2", "sku": map[string]any{"name": "Balanced_B5"}, "properties": map[string]any{"minimumTlsVersion": "1.2", "publicNetworkAccess": "Enabled"}})
	g.world.Step(40 * time.Minute)
	g.put(id+"/databases/default", map[string]any{"properties": map[string]any{"clientProtocol": "Encrypted", "port": 10000, "accessKeysAuthentication": "Enabled"}})
	old := theirs + "/providers/" + typeOldCache + "/older"
	g.put(old, map[string]any{"location": "eastus2", "properties": map[string]any{"sku": map[string]any{"name": "Standard", "family": "C", "capacity": 1}, "enableNonSslPort": true, "minimumTlsVersion": "1.2"}})
	g.world.Step(40 * time.Minute)
	for name, want := range map[string][]string{"legacy": {"internet", "access keys"}, "older": {"2028-09-30", "port without TLS"}} {
		g.job.Config.InfraConfig.Datastore = job.DatastoreInfo{}
		if err := g.adoptAs(`{"adopt":{"name":"` + name + `"}}`); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		info := g.job.Config.InfraConfig.Datastore
		if info.Name != name || info.Engine != job.Redis || info.Class == "" || info.MemoryGiB == 0 || info.Host == "" || info.Port == 0 {
			t.Errorf("%s: %+v", name, info)
		}
		for _, w := range want {
			if notes := strings.Join(info.RiskNotes, "\n"); !strings.Contains(notes, w) {
				t.Errorf("%s: the notes do not say %q:\n%s", name, w, notes)
			}
		}
	}
}

// The metrics of two weeks say which class would do, and the command is the cloud's.
func TestRecommend(t *testing.T) {
	t.Parallel()
	g := datastoresIn(t, job.Datastore, job.ModeAdopt, `{"adopt":{"name":"legacy"},"monitorOnly":true}`)
	id := g.theirServer(typePostgres, "legacy")
	if err := g.adoptAs(`{"adopt":{"name":"legacy"},"monitorOnly":true}`); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		cpu, memory float64
		advice, to  string
	}{{95, 60, "larger", "Standard_D8ds_v5"}, {10, 20, "smaller", "Standard_D2ds_v5"}, {50, 60, "keep", "Standard_D4ds_v5"}} {
		g.steady(id, map[string]float64{"cpu_percent": c.cpu, "memory_percent": c.memory, "storage_percent": 92, "active_connections": 12})
		got, err := g.p.Recommend(pipeline.WithGate(t.Context(), pipeline.ReadOnly), g.run(pipeline.Apply))
		if err != nil || len(got) != 2 {
			t.Fatalf("%v, %v", got, err)
		}
		class, disk := got[0], got[1]
		if class.Advice != c.advice || class.To != c.to || (class.Command == "") != (c.advice == "keep") || !strings.Contains(class.Reason, fmt.Sprintf("%.0f", c.cpu)) {
			t.Errorf("at %v percent of CPU: %+v", c.cpu, class)
		}
		if disk.Advice != "larger" || !strings.Contains(disk.Command, "az postgres flexible-server update") {
			t.Errorf("storage: %+v", disk)
		}
	}
}
