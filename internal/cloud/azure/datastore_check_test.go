package azure

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v10"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// theirSubnet makes somebody's network with one subnet, with or without a delegation.
func theirSubnet(prefix, service string) func(g *rig) {
	return func(g *rig) {
		g.theirVNet("hub", "10.90.0.0/16", "10.90.1.0/24")
		group := theirs + "/providers/" + typeGroupRules + "/data"
		g.put(group, map[string]any{"location": "eastus2"})
		f := map[string]any{"addressPrefix": prefix, "defaultOutboundAccess": false, "networkSecurityGroup": map[string]any{"id": group}, "privateEndpointNetworkPolicies": "NetworkSecurityGroupEnabled"}
		if service != "" {
			f["delegations"] = []any{map[string]any{"name": "data", "properties": map[string]any{"serviceName": service}}}
		}
		g.put(theirs+"/providers/"+typeVNet+"/hub/subnets/data", map[string]any{"properties": f})
	}
}

const inData = `"existing":{"networkId":"` + theirs + "/providers/" + typeVNet + `/hub","subnetIds":["data"]}`

// storeChecks are jobs with what stepValidate has to say of them.
var storeChecks = map[string]struct {
	family  job.ResourceType // datastore if not said
	mode    job.Mode         // create if not said
	spec    string
	region  string
	furnish func(g *rig)

	status cloud.CheckStatus
	field  string
	says   string
}{
	"the newest version":        {spec: `{"engine":"postgres"}`, status: cloud.CheckOK, says: "PostgreSQL 18, in standard support"},
	"the newest MySQL":          {spec: `{"engine":"mysql"}`, status: cloud.CheckOK, says: "MySQL 8.4, in standard support"},
	"MySQL 8.0":                 {spec: `{"engine":"mysql","version":"8.0"}`, status: cloud.CheckOK, says: "MySQL 8.0, in standard support until 2026-12-31"},
	"a minor version":           {spec: `{"engine":"postgres","version":"17.4"}`, status: cloud.CheckWarning, field: "config.spec.version", says: "chooses the minor version itself"},
	"a version that is none":    {spec: `{"engine":"postgres","version":"99"}`, status: cloud.CheckFails, field: "config.spec.version", says: "PostgreSQL 99 is not offered"},
	"a version past its time":   {spec: `{"engine":"mysql","version":"5.6"}`, status: cloud.CheckFails, field: "config.spec.version", says: "MySQL 5.6 is not offered"},
	"a class that is none":      {spec: `{"engine":"postgres","instanceType":"db.t4g.medium"}`, status: cloud.CheckFails, field: "config.spec.instanceType", says: "not a class"},
	"a size that nobody has":    {spec: `{"engine":"postgres","size":{"vcpus":128,"memoryGiB":4096}}`, status: cloud.CheckFails, field: "config.spec.size", says: "no class"},
	"a standby that is none":    {spec: `{"engine":"postgres","instanceType":"Standard_B2s","highAvailability":true}`, status: cloud.CheckFails, field: "config.spec.instanceType", says: "no standby"},
	"no zones for a standby":    {spec: `{"engine":"postgres","preset":"production"}`, region: "westus", status: cloud.CheckFails, field: "config.spec.size", says: "takes a standby"},
	"storage in steps":          {spec: `{"engine":"postgres","storageGiB":50}`, status: cloud.CheckOK, says: "64 GiB, the next that is offered"},
	"storage as asked":          {spec: `{"engine":"mysql","storageGiB":50}`, status: cloud.CheckOK, says: "50 GiB"},
	"zones of a standby":        {spec: `{"engine":"postgres","preset":"production"}`, status: cloud.CheckOK, says: "zones 1 and 2"},
	"no provider":               {spec: `{"engine":"postgres"}`, furnish: func(g *rig) { g.unregister("Microsoft.DBforPostgreSQL") }, status: cloud.CheckFails, field: "cloudAccountId", says: "Microsoft.DBforPostgreSQL"},
	"no quota":                  {spec: `{"engine":"postgres","instanceType":"Standard_D4ds_v5"}`, furnish: func(g *rig) { g.quota("postgresql", "vCores", 3) }, status: cloud.CheckFails, field: "config.spec.size", says: "the server takes 4"},
	"a name that is free":       {spec: `{"engine":"postgres"}`, status: cloud.CheckOK, says: "is free"},
	"a delegated subnet":        {mode: job.ModeCreateInExisting, spec: `{"engine":"postgres",` + inData + `}`, furnish: theirSubnet("10.90.2.0/28", typePostgres), status: cloud.CheckOK, says: "subnet data of hub"},
	"another delegation":        {mode: job.ModeCreateInExisting, spec: `{"engine":"mysql",` + inData + `}`, furnish: theirSubnet("10.90.2.0/28", typePostgres), status: cloud.CheckFails, field: "config.spec.existing.subnetIds", says: "is delegated to " + typePostgres},
	"no delegation":             {mode: job.ModeCreateInExisting, spec: `{"engine":"postgres",` + inData + `}`, furnish: theirSubnet("10.90.2.0/28", ""), status: cloud.CheckFails, field: "config.spec.existing.subnetIds", says: "is not delegated"},
	"a subnet that is small":    {mode: job.ModeCreateInExisting, spec: `{"engine":"postgres",` + inData + `}`, furnish: theirSubnet("10.90.2.0/29", typePostgres), status: cloud.CheckFails, field: "config.spec.existing.subnetIds", says: "/28"},
	"a small one for MySQL":     {mode: job.ModeCreateInExisting, spec: `{"engine":"mysql",` + inData + `}`, furnish: theirSubnet("10.90.2.0/29", typeMySQL), status: cloud.CheckOK, says: "subnet data of hub"},
	"access in others' network": {mode: job.ModeCreateInExisting, spec: `{"engine":"mysql","access":[{"cidr":"10.9.0.0/16"}],` + inData + `}`, furnish: theirSubnet("10.90.2.0/29", typeMySQL), status: cloud.CheckWarning, field: "config.spec.access", says: "its own security group"},
	"a subnet that is none":     {mode: job.ModeCreateInExisting, spec: strings.Replace(`{"engine":"postgres",`+inData+`}`, `"data"`, `"nowhere"`, 1), furnish: theirSubnet("10.90.2.0/28", typePostgres), status: cloud.CheckFails, field: "config.spec.existing.subnetIds", says: "no subnet nowhere"},
	"the size of a cache":       {family: job.Cache, spec: `{"size":{"memoryGiB":5},"accessKeys":true}`, status: cloud.CheckOK, says: "Balanced_B5: 6 GiB"},
	"a cache that is too large": {family: job.Cache, spec: `{"size":{"memoryGiB":2000},"accessKeys":true}`, status: cloud.CheckFails, field: "config.spec.size.memoryGiB", says: "no SKU has 2000 GiB"},
	"a cache of the old kind":   {family: job.Cache, spec: `{"instanceType":"Standard_C1","accessKeys":true}`, status: cloud.CheckFails, field: "config.spec.instanceType", says: "not a SKU of Managed Redis"},
	"nobody may use the cache":  {family: job.Cache, spec: `{}`, status: cloud.CheckWarning, field: "config.spec.principals", says: "nobody can use"},
	"no snapshot of a cache":    {family: job.Cache, spec: `{"accessKeys":true}`, status: cloud.CheckWarning, field: "config.spec.skipFinalSnapshot", says: "no snapshot"},
	"an endpoint's subnet":      {family: job.Cache, mode: job.ModeCreateInExisting, spec: `{"accessKeys":true,` + inData + `}`, furnish: theirSubnet("10.90.2.0/28", ""), status: cloud.CheckOK, says: "subnet data of hub"},
	"an endpoint in a given":    {family: job.Cache, mode: job.ModeCreateInExisting, spec: `{"accessKeys":true,` + inData + `}`, furnish: theirSubnet("10.90.2.0/28", typeMySQL), status: cloud.CheckFails, field: "config.spec.existing.subnetIds", says: "takes no private endpoint"},
}

// unregister takes a resource provider off the subscription.
func (g *rig) unregister(name string) {
	g.Helper()
	g.invokeAs("resources", "POST", managementPrefix+g.p.subscription+"/providers/"+name+"/unregister", nil)
}

// What can be known beforehand is said before anything is made.
func TestDatastoreChecks(t *testing.T) {
	for name, c := range storeChecks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			family, mode := c.family, c.mode
			if family == "" {
				family = job.Datastore
			}
			if mode == "" {
				mode = job.ModeCreate
			}
			g := datastoresIn(t, family, mode, c.spec)
			if c.region != "" {
				g.job.Region, g.p.region = c.region, c.region
			}
			if c.furnish != nil {
				c.furnish(g)
			}
			before := g.world.Snapshot()
			got := g.checks()
			if !slices.ContainsFunc(got, func(k cloud.Check) bool {
				return k.Status == c.status && (c.field == "" || k.Field == c.field) && strings.Contains(k.Message, c.says)
			}) {
				t.Errorf("there is no %s on %q that says %q:", c.status, c.field, c.says)
				for _, k := range got {
					t.Logf("%s %s %q %s", k.Name, k.Status, k.Field, k.Message)
				}
			}
			for _, k := range got {
				if k.Status == cloud.CheckFails && c.status != cloud.CheckFails {
					t.Errorf("fails too: %+v", k)
				}
				if k.Status == cloud.CheckUnchecked {
					t.Errorf("not checked: %+v", k)
				}
			}
			g.equal(before)
		})
	}
}

// Whoever is named gets to the datastore's port, and nobody else of the network.
func TestDatastoreRules(t *testing.T) {
	t.Parallel()
	g := datastores(t, job.Datastore, `{"engine":"postgres","preset":"dev","access":[{"cidr":"10.9.0.0/16","description":"office"}]}`)
	g.up()
	x, err := read[armnetwork.SecurityGroup](anything(t.Context()), g.p, g.job.Config.InfraConfig.Datastore.SecurityGroupID)
	if err != nil {
		t.Fatal(err)
	}
	var allowed []string
	denied, storage := false, false
	for _, r := range x.is.Properties.SecurityRules {
		f := value(r.Properties)
		switch {
		case value(f.Direction) == armnetwork.SecurityRuleDirectionOutbound:
			storage = storage || value(f.DestinationAddressPrefix) == "Storage" && value(f.Access) == armnetwork.SecurityRuleAccessAllow
		case value(f.Access) == armnetwork.SecurityRuleAccessAllow && value(f.DestinationPortRange) == "5432":
			allowed = append(allowed, value(f.SourceAddressPrefix))
		case value(f.SourceAddressPrefix) == "*" && value(f.DestinationPortRange) == "5432":
			denied = value(f.Priority) > 1200
		}
	}
	plan := g.job.Config.InfraConfig.NetworkPlan
	want := []string{plan.Tier(job.TierDatabase)[0].CIDR, plan.Tier(job.TierPrivate)[0].CIDR, "10.9.0.0/16"}
	if sorted(allowed) != sorted(want) || !denied || !storage {
		t.Errorf("let in are %v, want %v; others are refused: %v; storage is reached: %v", allowed, want, denied, storage)
	}
}

// A datastore or cache in somebody's network: nothing of it is written, and all of it
// is there afterwards (failure kinds F1, F2).
func TestDatastoreInANetworkOfOthers(t *testing.T) {
	for name, c := range map[string]struct {
		family  job.ResourceType
		spec    string
		service string
	}{
		"postgres": {job.Datastore, `{"engine":"postgres","preset":"dev",` + inData + `}`, typePostgres},
		"mysql":    {job.Datastore, `{"engine":"mysql","preset":"dev",` + inData + `}`, typeMySQL},
		"redis":    {job.Cache, `{"preset":"dev","accessKeys":true,` + inData + `}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := datastoresIn(t, c.family, job.ModeCreateInExisting, c.spec)
			theirSubnet("10.90.2.0/28", c.service)(g)
			before, since := g.world.Snapshot(), g.mark()
			g.up()
			g.foreignUntouched(since)
			if d := g.drift(); len(d) > 0 {
				t.Errorf("drift at once: %v", d)
			}
			if bad := unmet(g.report()); len(bad) > 0 {
				t.Errorf("not met: %v", bad)
			}
			since = g.mark()
			g.down()
			g.foreignUntouched(since)
			g.equal(before)
		})
	}
}

// A network that finds caches in a zone of its own goes on doing so: the address is put
// there, and taken away again.
func TestCacheInALinkedZone(t *testing.T) {
	t.Parallel()
	g := datastoresIn(t, job.Cache, job.ModeCreateInExisting, `{"preset":"dev","accessKeys":true,`+inData+`}`)
	theirSubnet("10.90.2.0/28", "")(g)
	zone := theirs + "/providers/" + typePrivateZone + "/" + cacheZone
	g.invokeAs("privatedns", "PUT", zone, map[string]any{"location": "global"})
	g.invokeAs("privatedns", "PUT", zone+"/virtualNetworkLinks/hub", map[string]any{"location": "global", "properties": map[string]any{"registrationEnabled": false, "virtualNetwork": map[string]any{"id": theirs + "/providers/" + typeVNet + "/hub"}}})
	g.world.Step(5 * time.Minute)
	before := g.world.Snapshot()
	g.up()
	if got := g.job.Config.InfraConfig.Datastore.PrivateZoneID; !same(got, zone) {
		t.Errorf("the address is in %s", got)
	}
	for _, o := range g.objects {
		if o.Kind == kindPrivateZone || o.Kind == kindZoneLink {
			t.Errorf("made %+v", o)
		}
	}
	if d := g.drift(); len(d) > 0 {
		t.Errorf("drift at once: %v", d)
	}
	g.down()
	g.equal(before)
}

// The example jobs run as they stand.
func TestDatastoreExamples(t *testing.T) {
	for _, name := range []string{"datastore-postgres-azure", "datastore-mysql-azure", "cache-azure", "datastore-postgres-azure-existing", "cache-azure-existing", "datastore-postgres-azure-adopt", "cache-azure-adopt"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var example struct {
				Mode         job.Mode         `json:"mode"`
				ResourceType job.ResourceType `json:"resourceType"`
				Region       string           `json:"region"`
				Config       job.Config       `json:"config"`
			}
			fromYAML(t, name+".yaml", &example)
			g := datastoresIn(t, example.ResourceType, example.Mode, string(example.Config.Spec))
			g.job.Region, g.p.region = example.Region, example.Region
			g.furnish(name + ".sandbox.yaml")
			before := g.world.Snapshot()
			if example.Mode == job.ModeAdopt {
				if err := g.try(false, g.check, g.p.AdoptDatastore); err != nil {
					t.Fatal(err)
				}
				got, err := g.p.Recommend(pipeline.WithGate(t.Context(), pipeline.ReadOnly), g.run(pipeline.Apply))
				if err != nil || len(got) == 0 || got[0].Reason == "" {
					t.Errorf("advice %+v, %v", got, err)
				}
				g.equal(before)
				return
			}
			g.up()
			if bad := unmet(g.report()); len(bad) > 0 {
				t.Errorf("not met: %v", bad)
			}
			g.down()
			g.equal(before)
		})
	}
}

// What an offer says is told by numbers: the newest first, the cheapest that will do,
// and the quota that it counts against.
func TestOffers(t *testing.T) {
	t.Parallel()
	o := offers{versions: []string{"9.1", "8.4", "10", "8.0"}, classes: []dataClass{
		{name: "Standard_E2ds_v5", tier: "MemoryOptimized", vcpus: 2, memoryGiB: 16, standby: true}, {name: "Standard_D2s_v3", tier: "GeneralPurpose", vcpus: 2, memoryGiB: 8, standby: true},
		{name: "Standard_D2ds_v5", tier: "GeneralPurpose", vcpus: 2, memoryGiB: 8, standby: true}, {name: "Standard_B2ms", tier: "Burstable", vcpus: 2, memoryGiB: 8}, {name: "Standard_B2s", tier: "Burstable", vcpus: 2, memoryGiB: 4},
	}, storage: map[string][]int{"GeneralPurpose": {64, 32, 128}}, steps: true}.inOrder()
	if o.versions[0] != "10" {
		t.Errorf("versions %v", o.versions)
	}
	if got := o.newest(job.MySQL, "2026-11-30"); got != "8.4" {
		t.Errorf("the newest MySQL to keep data in is %s", got)
	}
	for _, c := range []struct {
		size    job.Size
		standby bool
		want    string
	}{{job.Size{VCPUs: 2, MemoryGiB: 4}, false, "Standard_B2s"}, {job.Size{VCPUs: 2, MemoryGiB: 8}, false, "Standard_B2ms"}, {job.Size{VCPUs: 2, MemoryGiB: 8}, true, "Standard_D2ds_v5"}, {job.Size{VCPUs: 1, MemoryGiB: 9}, true, "Standard_E2ds_v5"}, {job.Size{VCPUs: 4}, false, ""}} {
		if got, _ := o.smallest(c.size, c.standby); got.name != c.want {
			t.Errorf("%+v, standby %v: %q, want %q", c.size, c.standby, got.name, c.want)
		}
	}
	for gib, want := range map[int]int{20: 32, 32: 32, 33: 64, 128: 128, 129: 0} {
		if got, _ := o.room("GeneralPurpose", gib); got != want {
			t.Errorf("%d GiB become %d, want %d", gib, got, want)
		}
	}
	for class, want := range map[string]string{"Standard_B1ms": "standardBSFamily", "Standard_D2ds_v4": "standardDDSv4Family", "Standard_E4s_v3": "standardESv3Family", "db.t4g": ""} {
		if got := familyOf(class); got != want {
			t.Errorf("%s counts against %q, want %q", class, got, want)
		}
	}
	for version, want := range map[string]bool{"14": false, "15": true, "99": true} {
		if got, _ := supported(job.Postgres, version, "2026-11-30"); got != want {
			t.Errorf("PostgreSQL %s is supported: %v", version, got)
		}
	}
	if in, _ := supported(job.MySQL, "9.1", "2026-11-30"); in {
		t.Error("a release of innovation counts as supported")
	}
}
