package aws

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/sim"
)

// everythingSpec has every kind of object that a network job makes.
const everythingSpec = `{"network":{"cidr":"10.50.0.0/16","subnets":["public","private","database"],"secondaryCidrs":["100.64.0.0/20"],"interfaceEndpoints":["ssm"]},` +
	`"peerings":[{"networkId":"data","cloudAccountId":"partner","region":"eu-west-1"}],"dnsZones":[{"name":"hub.example.com","visibility":"public"},{"name":"hub.internal"}]}`

func newEverything(t testing.TB) (g vmRig, before sim.Snapshot) {
	t.Helper()
	g = newNet(t, sim.Options{}, job.ModeCreate, everythingSpec)
	g.peerNet(partnerAccount, "eu-west-1", "10.90.0.0/16", "data")
	return g, g.world.Snapshot()
}

// Every change that a network job makes, taken in turn: it fails before anything
// happened, or it happens and the answer is lost. Another worker goes on. The end
// is the same objects, each once and all in the ledger, a re-run that changes
// nothing, and after teardown both accounts as they were.
func TestNetworkCrashMatrix(t *testing.T) {
	t.Parallel()
	clean, before := newEverything(t)
	since := clean.mark()
	clean.all(false, clean.netSteps()...)
	_, changes := clean.calls(since)
	objects := len(clean.ledger())
	since = clean.mark()
	clean.all(true, clean.netGone()...)
	_, removals := clean.calls(since)
	clean.equal(before)
	t.Logf("%d changes up, %d down, %d objects", sum(changes), sum(removals), objects)

	yes := true
	for _, kind := range []sim.FaultKind{sim.FaultError, sim.FaultLostReply} {
		fault := func(n int) sim.Fault {
			return sim.Fault{Kind: kind, Mutating: &yes, After: n, Code: "InternalError", Status: 500}
		}
		step, stepDown := 1, 2 // what fails before anything happened is the milder case
		if kind == sim.FaultError {
			step, stepDown = 5, 5
		}
		for n := 0; n < sum(changes); n += step {
			t.Run(fmt.Sprintf("create %s %d", kind, n+1), func(t *testing.T) {
				t.Parallel()
				g, before := newEverything(t)
				g.fault(fault(n))
				g.until(false, g.netSteps()...)
				g.hit()
				g.all(false, g.netSteps()...)
				if got := len(g.ledger()); got != objects {
					t.Errorf("the ledger has %d objects, want %d\n%s", got, objects, g.books(40))
				}
				g.markedOnce()
				since := g.mark()
				g.all(false, g.netSteps()...)
				if _, changes := g.calls(since); sum(changes) > 0 {
					t.Errorf("a run of what is there changed %v", changes)
				}
				g.all(true, g.netGone()...)
				g.equal(before)
			})
		}
		for n := 0; n < sum(removals); n += stepDown {
			t.Run(fmt.Sprintf("teardown %s %d", kind, n+1), func(t *testing.T) {
				t.Parallel()
				g, before := newEverything(t)
				g.all(false, g.netSteps()...)
				g.fault(fault(n))
				g.until(true, g.netGone()...)
				g.hit()
				g.all(true, g.netGone()...)
				g.equal(before)
			})
		}
	}
}

// markedOnce wants no object key twice at the cloud, and nothing that the ledger
// does not have.
func (g vmRig) markedOnce() {
	g.Helper()
	left, _, err := g.p.Scan(g.Context(), g.job.ID)
	if err != nil {
		g.Fatal(err)
	}
	var found []string
	for _, l := range left {
		found = append(found, l.ID)
	}
	slices.Sort(found)
	var missing []string
	for _, id := range found {
		if !slices.Contains(g.ledger(), id) {
			missing = append(missing, id)
		}
	}
	if d := cmp.Diff([]string(nil), missing); d != "" {
		g.Errorf("the ledger does not have:\n%s", d)
	}
}

// A teardown that begins before the create ended finds what was made, recorded or
// not.
func TestTeardownOfAnInterruptedNetwork(t *testing.T) {
	t.Parallel()
	yes := true
	for n := 0; n < 48; n += 3 {
		t.Run(fmt.Sprint(n+1), func(t *testing.T) {
			t.Parallel()
			g, before := newEverything(t)
			g.fault(sim.Fault{Kind: sim.FaultLostReply, Mutating: &yes, After: n})
			g.until(false, g.netSteps()...)
			g.hit()
			g.all(true, g.netGone()...)
			g.equal(before)
		})
	}
}

// The faults that real clouds show while a network job works; each ends by itself.
func TestNetworkFaultsThatPass(t *testing.T) {
	t.Parallel()
	no := false
	for _, c := range []struct {
		name   string
		fault  sim.Fault
		world  func(*sim.Options)
		inDown bool
	}{
		{name: "J11 an association is acknowledged and lost", fault: sim.Fault{Kind: sim.FaultSwallow, Operation: "AssociateRouteTable"}},
		{name: "D4 the role's policy is acknowledged and lost", fault: sim.Fault{Kind: sim.FaultSwallow, Operation: "PutRolePolicy"}},
		{name: "D5 the role cannot be assumed for a while", fault: sim.Fault{Kind: sim.FaultError, Operation: "CreateFlowLogs", Code: "InvalidParameter", Status: 400, Message: "Unable to assume given IAM role: 'arn:aws:iam::123456789012:role/x'", Count: 6}},
		{name: "D1 objects show late", world: func(o *sim.Options) { o.ConsistencyByID, o.ConsistencyByList = 20e9, 40e9 }},
		{name: "H1 throttled", fault: sim.Fault{Kind: sim.FaultThrottle, Count: 40}},
		{name: "H5 reads fail", fault: sim.Fault{Kind: sim.FaultError, Mutating: &no, Count: 30, Code: "InternalError", Status: 503}, inDown: true},
		{name: "F8 empty answers", fault: sim.Fault{Kind: sim.FaultRaw, Status: 200, Body: "", Count: 20, Mutating: &no}},
		{name: "I1 expired credentials", fault: sim.Fault{Kind: sim.FaultError, Code: "ExpiredToken", Status: 403, Count: 3, After: 5}},
		{name: "Q2 empty pages", world: func(o *sim.Options) { o.EmptyPages, o.PageSize = 0.5, 2 }},
		{name: "E5 the endpoints' interfaces linger", fault: sim.Fault{Kind: sim.FaultError, Operation: "DeleteSubnet", Code: "DependencyViolation", Status: 400, Count: 8}, inDown: true},
		{name: "H10 the zone's tags are refused once", fault: sim.Fault{Kind: sim.FaultError, Operation: "ChangeTagsForResource", Code: "PriorRequestNotComplete", Status: 400, Count: 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g, before := newEverything(t)
			if c.world != nil {
				g.world.SetOptions(c.world)
			}
			place := func() {
				if c.fault.Kind != "" {
					g.fault(c.fault)
				}
			}
			if !c.inDown {
				place()
			}
			g.all(false, g.netSteps()...)
			if c.inDown {
				place()
			}
			g.all(true, g.netGone()...)
			g.hit()
			g.equal(before)
		})
	}
}
