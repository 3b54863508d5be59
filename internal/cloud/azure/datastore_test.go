package azure

import (
	"testing"

	"github.com/zopday/provisioner/internal/job"
)

// The jobs that are made here, each from the least that a person says.
var stores = map[string]struct {
	family job.ResourceType
	spec   string
}{
	"postgres":    {job.Datastore, `{"engine":"postgres"}`},
	"postgres ha": {job.Datastore, `{"engine":"postgres","preset":"production","entraAdmin":"` + theirAdmins + `","access":[{"cidr":"10.9.0.0/16","description":"office"}]}`},
	"mysql":       {job.Datastore, `{"engine":"mysql"}`},
	"mysql ha":    {job.Datastore, `{"engine":"mysql","preset":"production"}`},
	"redis":       {job.Cache, `{"engine":"redis","principals":["` + theirAdmins + `"]}`},
	"redis keys":  {job.Cache, `{"engine":"redis","preset":"dev","accessKeys":true}`},
}

// A datastore is made, is as it should be, is not changed by a second run, and goes
// away without a rest.
func TestDatastore(t *testing.T) {
	for name, c := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := datastores(t, c.family, c.spec)
			before := g.world.Snapshot()
			g.up()
			reads, changes := g.calls(0)
			t.Logf("create: %d changes %v, %d reads", sum(changes), changes, sum(reads))
			info := g.job.Config.InfraConfig.Datastore
			if info.Host == "" || info.Port == 0 || info.ID == "" || info.Version == "" && c.family == job.Datastore || info.Class == "" || !info.TLSRequired || info.Public || !info.DeletionProtection {
				t.Errorf("learned %+v", info)
			}
			if c.family == job.Datastore && (info.SecretID == "" || info.VaultID == "" || info.FinalSnapshot == "" || info.PrivateZoneID == "" || info.SecurityGroupID == "") {
				t.Errorf("learned %+v", info)
			}
			if d := g.drift(); len(d) > 0 {
				t.Errorf("drift at once: %v", d)
			}
			g.allControlsMet()
			since := g.mark()
			g.another()
			g.up()
			if _, changes = g.calls(since); sum(changes) > 0 {
				t.Errorf("a second run changed %v", changes)
			}
			since = g.mark()
			g.down()
			reads, changes = g.calls(since)
			t.Logf("down: %d changes %v, %d reads", sum(changes), changes, sum(reads))
			g.equal(before)
		})
	}
}
