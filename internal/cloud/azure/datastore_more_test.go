package azure

import (
	"slices"
	"strings"
	"testing"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
)

// A plan lists what will be made, and asks the cloud to change nothing.
func TestPlanOfADatastore(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		family job.ResourceType
		spec   string
		kinds  []string
	}{
		{job.Datastore, smallPostgres, []string{kindGroup, kindVNet, kindSubnet, kindNSG, kindVault, kindRole, kindSecret, kindPrivateZone, kindZoneLink, flexPostgres.server, kindEntraAdmin, kindLock}},
		{job.Cache, `{"principals":["` + theirAdmins + `"]}`, []string{kindVNet, kindPrivateZone, kindZoneLink, kindCache, kindCacheDB, kindCachePolicy, kindEndpoint, kindZoneGroup, kindLock}},
	} {
		g := datastores(t, c.family, c.spec)
		r := g.run(pipeline.Plan)
		since := g.mark()
		for _, f := range g.steps(false)[1:] {
			if err := f(pipeline.WithGate(t.Context(), pipeline.ReadOnly), r); err != nil {
				t.Fatal(err)
			}
		}
		planned := map[string]bool{}
		for _, p := range r.Planned() {
			planned[p.Kind] = true
		}
		for _, k := range c.kinds {
			if !planned[k] {
				t.Errorf("%s: no %s is planned: %v", c.family, k, planned)
			}
		}
		if _, changes := g.calls(since); sum(changes) > 0 {
			t.Errorf("a plan changed %v", changes)
		}
	}
}

// A scan finds everything of a datastore or cache that could be left.
func TestScanOfADatastore(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		family job.ResourceType
		spec   string
		want   map[string]int
	}{
		{job.Datastore, smallPostgres, map[string]int{flexPostgres.server: 1, kindVault: 1, kindRole: 1, kindPrivateZone: 1, kindVNet: 1, kindNSG: 2, kindGroup: 1}},
		{job.Cache, `{"accessKeys":true}`, map[string]int{kindCache: 1, kindEndpoint: 1, kindPrivateZone: 1, kindVNet: 1, kindGroup: 1}},
	} {
		g := datastores(t, c.family, c.spec)
		g.up()
		g.world.Step(5 * 60e9) // the list of resources lags behind
		left, _, err := g.p.Scan(pipeline.WithGate(t.Context(), pipeline.ReadOnly), g.job.ID)
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]int{}
		for _, l := range left {
			found[l.Kind]++
		}
		for kind, n := range c.want {
			if found[kind] != n {
				t.Errorf("%d of %s are found, want %d: %v", found[kind], kind, n, found)
			}
		}
		if other, _, err := g.p.Scan(t.Context(), job.NewID("job")); err != nil || len(other) > 0 {
			t.Errorf("of another job: %v, %v", other, err)
		}
	}
}

// A server of the job's name that somebody else has made is theirs: the job stops and
// nothing of it is written, read for its data or removed (failure kind B5).
func TestTheirNamesake(t *testing.T) {
	t.Parallel()
	g := datastoresIn(t, job.Datastore, job.ModeCreateInExisting, strings.Replace(`{"engine":"postgres","preset":"dev",`+inData+`}`, `"existing":{`, `"existing":{"resourceGroup":"theirs",`, 1))
	theirSubnet("10.90.2.0/28", typePostgres)(g)
	id := g.theirServer(typePostgres, g.job.ResourceName("", longestServer))
	was := g.read(id)
	err := g.try(false, g.steps(false)...)
	if f := fatal(err); f == nil || !strings.Contains(f.Problem.Message, lastName(id)) || !strings.Contains(f.Problem.Message, "somebody else's") {
		t.Errorf("the job says %v", err)
	}
	g.another()
	g.down()
	if now := g.read(id); now["properties"].(map[string]any)["administratorLogin"] != was["properties"].(map[string]any)["administratorLogin"] {
		t.Errorf("it was %v and is %v", was, now)
	}
	for _, e := range g.world.Books(sim.BookFilter{Limit: 100000}) {
		if e.Mutating && strings.HasPrefix(e.Operation, "Servers_") && slices.ContainsFunc(e.Resources, func(r string) bool { return same(r, id) }) && e.Seq > 0 && e.Status < 300 && !strings.Contains(e.Operation, "Create") {
			t.Errorf("%s on it", e.Operation)
		}
	}
}

// A server is busy for a while after every change: what it refuses, at once or after it
// was accepted, is asked for again (failure kinds H8, H10).
func TestBusyServer(t *testing.T) {
	for name, f := range map[string]sim.Fault{
		"refused":            {Kind: sim.FaultError, Service: "postgresql", Operation: "Configurations_CreateOrUpdate", Code: "ServerIsBusy", Status: 409, Count: 3, Message: "Cannot complete operation while server is busy"},
		"refused afterwards": {Kind: sim.FaultOpFailed, Service: "postgresql", Operation: "Configurations_CreateOrUpdate", Seconds: 5, Code: "ProvisioningServerBusy", Count: 2, Message: "Server is busy with other operations"},
		"restart refused":    {Kind: sim.FaultError, Service: "postgresql", Operation: "Servers_Restart", Code: "ServerIsBusy", Status: 409, Count: 3, Message: "Cannot complete operation while server is busy"},
		"deletion refused":   {Kind: sim.FaultError, Service: "postgresql", Operation: "Servers_Delete", Code: "ServerIsBusy", Status: 409, Count: 3, Message: "Cannot complete operation while server is busy"},
		"create throttled":   {Kind: sim.FaultThrottle, Service: "postgresql", Operation: "Servers_CreateOrUpdate", Count: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := datastores(t, job.Datastore, smallPostgres)
			before := g.world.Snapshot()
			g.fault(f)
			g.up()
			g.allControlsMet()
			g.down()
			g.hit()
			g.equal(before)
		})
	}
}

// A region that has no server for the subscription stops the job with what to do.
func TestNoServersHere(t *testing.T) {
	t.Parallel()
	g := datastores(t, job.Datastore, smallPostgres)
	before := g.world.Snapshot()
	g.fault(sim.Fault{Kind: sim.FaultCapacity, Service: "postgresql", Operation: "Servers_CreateOrUpdate", Count: -1})
	err := g.try(false, g.steps(false)...)
	if f := fatal(err); f == nil || f.Problem.Code != "no-capacity" || !strings.Contains(f.Problem.Hint, "another region") {
		t.Errorf("the job says %v", err)
	}
	g.hit()
	g.another()
	g.down()
	g.equal(before)
}

// A cache that found no room stops the job; a retry replaces it.
func TestNoRoomForACache(t *testing.T) {
	t.Parallel()
	g := datastores(t, job.Cache, `{"preset":"dev","accessKeys":true}`)
	before := g.world.Snapshot()
	g.fault(sim.Fault{Kind: sim.FaultCapacity, Service: "cache", Operation: "RedisEnterprise_CreateOrUpdate"})
	err := g.try(false, g.steps(false)...)
	if f := fatal(err); f == nil || f.Problem.Code != "object-failed" {
		t.Errorf("the job says %v", err)
	}
	g.hit()
	g.another()
	g.up()
	g.allControlsMet()
	g.down()
	g.equal(before)
}

// An object ID does not say whether it is a group's or a person's: what the cloud takes
// it for counts.
func TestEntraAdministrator(t *testing.T) {
	t.Parallel()
	for kind, refusals := range map[string]int{"Group": 0, "User": 1, "ServicePrincipal": 2} {
		g := datastores(t, job.Datastore, `{"engine":"postgres","preset":"dev","entraAdmin":"`+theirAdmins+`"}`)
		if refusals > 0 {
			g.fault(sim.Fault{Kind: sim.FaultError, Operation: "Administrators_CreateOrUpdate", Code: "InvalidParameterValue", Status: 400, Count: refusals, Message: "The principal is of another type"})
		}
		g.up()
		g.hit()
		f := g.read(g.job.Config.InfraConfig.Datastore.ID + "/administrators/" + theirAdmins)["properties"].(map[string]any)
		if f["principalType"] != kind || f["objectId"] != theirAdmins {
			t.Errorf("after %d refusals it is %v", refusals, f)
		}
	}
}
