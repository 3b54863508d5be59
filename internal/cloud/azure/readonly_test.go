package azure

import (
	"strings"
	"testing"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
	simazure "github.com/zopday/provisioner/internal/sim/azure"
)

// readOnlySends sends every call that changed something in a life through the
// clients of a read-only account: each is refused before it leaves, and the lives
// of those accounts sent none.
func readOnlySends(t *testing.T, cases []*policyCase) {
	t.Helper()
	calls := map[string]bool{}
	for _, c := range cases {
		for call := range c.sent {
			if c.readOnly {
				t.Errorf("%s: %s was sent", c, call)
			}
			calls[call] = true
		}
	}
	g := readOnlyRig(t)
	seen := map[string]bool{}
	ctx := anything(t.Context())
	for call := range calls {
		method, path, _ := strings.Cut(call, " ")
		service, op := action(method, path)
		if seen[service+op] {
			continue
		}
		seen[service+op] = true
		var err error
		if at, isVault := strings.CutPrefix(path, "/keyvault/"); isVault {
			err = g.p.askVault(ctx, method, g.p.vaultsAt+"/keyvault/"+at, map[string]any{}, nil)
		} else {
			_, err = g.p.request(ctx, method, path, map[string]any{}, nil)
		}
		if f := fatal(err); f == nil || f.Problem.Code != codeReadOnly || !strings.Contains(f.Problem.Message, "watcher") || !pipeline.Is(err, pipeline.Refused) {
			t.Errorf("%s: %v", call, err)
		}
	}
	if len(seen) < 60 {
		t.Errorf("only %d kinds of calls were tried", len(seen))
	}
	for _, e := range g.world.Books(sim.BookFilter{Limit: 100000}) {
		if e.Service != "login" {
			t.Errorf("%s arrived", e.Operation)
		}
	}
}

func readOnlyRig(t testing.TB) *rig {
	t.Helper()
	g := network(t, `{"network":{"subnets":["private"]}}`)
	g.clouds.opts.Accounts = &book{rows: []cloud.Account{{
		ID: g.job.CloudAccountID, OrgID: g.job.OrgID, Name: "watcher", Provider: job.Azure, Method: cloud.MethodAmbient, ReadOnly: true, Revision: 1,
	}}}
	if err := g.reopened(); err != nil {
		t.Fatal(err)
	}
	return g
}

// A job that would make something in a read-only account stops at the first call
// that changes anything; reads and POSTs that only look go through.
func TestReadOnlyAccount(t *testing.T) {
	t.Parallel()
	g := readOnlyRig(t)
	err := g.try(false, g.steps(false)...)
	if f := fatal(err); f == nil || f.Problem.Code != codeReadOnly || f.Problem.Hint == "" {
		t.Errorf("it ends with %v", err)
	}
	yes := true
	if changed := g.world.Books(sim.BookFilter{Mutating: &yes}); len(changed) > 0 {
		t.Errorf("arrived: %+v", changed)
	}
	var out struct {
		Available bool `json:"nameAvailable"`
	}
	answer, err := g.p.request(t.Context(), "POST", managementPrefix+simazure.DefaultSubscription+"/providers/"+vaultProvider+"/checkNameAvailability", map[string]string{"name": "shop-kv", "type": typeVault}, nil)
	if err != nil || answer.into(&out) != nil || !out.Available {
		t.Errorf("a POST that only looks: %v, %+v", err, out)
	}
}

// What is not known to read is taken to change something.
func TestOnlyKnownReads(t *testing.T) {
	t.Parallel()
	for call, want := range map[string]bool{
		"GET x/y/read": true, "HEAD x/y/read": true, "PUT x/y/write": false, "PATCH x/y/write": false, "DELETE x/y/delete": false, "QUERY x/y/read": false,
		"POST Microsoft.Compute/virtualMachines/health/action":                              false,
		"POST Microsoft.Cache/redis/listKeys/action":                                        false,
		"POST microsoft.network/LOADBALANCERS/loadBalancingRules/health/action":             true,
		"POST Microsoft.ContainerService/managedClusters/stop/action":                       false,
		"POST Microsoft.ContainerService/managedClusters/listClusterAdminCredential/action": false,
	} {
		method, name, _ := strings.Cut(call, " ")
		service, op, _ := strings.Cut(name, "/")
		if reads(method, service, op) != want {
			t.Errorf("%s: %v", call, !want)
		}
	}
}
