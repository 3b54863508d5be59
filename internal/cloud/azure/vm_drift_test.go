package azure

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v10"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
)

// What a person changes at the cloud is named, attribute by attribute, and not
// rewritten by a verify.
func TestVMDrift(t *testing.T) {
	for _, c := range []struct {
		name, spec, attr string
		change           func(g *rig)
	}{
		{"a VM deleted", fixedSpec, "exists", func(g *rig) { g.invoke("DELETE", g.job.Config.InfraConfig.VMs[0].InstanceID, nil) }},
		{"a disk opened", fixedSpec, "network access", func(g *rig) {
			g.invoke("PATCH", g.p.idIn(g.run(pipeline.Verify), typeDisk, diskName(vmName(g.run(0), "vm-1"))), map[string]any{"properties": map[string]any{"networkAccessPolicy": "AllowAll"}})
		}},
		{"another health check", fixedLB, "health check", func(g *rig) {
			ctx := anything(g.Context())
			lb, err := read[armnetwork.LoadBalancer](ctx, g.p, g.job.Config.InfraConfig.LoadBalancerID)
			if err != nil {
				g.Fatal(err)
			}
			lb.is.Properties.Probes[0].Properties.RequestPath = new("/")
			if _, _, err := put[struct{}](ctx, g.p, lb.ID, lb.is, nil); err != nil {
				g.Fatal(err)
			}
		}},
		{"out of the pool", fixedLB, "member " + "", func(g *rig) {
			nic := g.nicOf(0)
			n := g.read(nic)
			delete(n["properties"].(map[string]any)["ipConfigurations"].([]any)[0].(map[string]any)["properties"].(map[string]any), "loadBalancerBackendAddressPools")
			g.put(nic, n)
		}},
		{"more VMs allowed", setSpec, "least and most VMs", func(g *rig) {
			id := g.p.autoscale(g.run(pipeline.Verify), first(g.pools())).id
			a := g.read(id)
			a["properties"].(map[string]any)["profiles"].([]any)[0].(map[string]any)["capacity"].(map[string]any)["maximum"] = "9"
			g.put(id, a)
		}},
		{"a rule that opens SSH", fixedSpec, "other rules", func(g *rig) {
			g.put(g.job.Config.InfraConfig.VMSecurityGroupID+"/securityRules/ssh", map[string]any{"properties": map[string]any{"priority": 100, "access": "Allow", "direction": "Inbound", "protocol": "Tcp",
				"sourceAddressPrefix": "*", "sourcePortRange": "*", "destinationAddressPrefix": "*", "destinationPortRange": "22"}})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := vms(t, c.spec)
			g.up()
			c.change(g)
			since := g.mark()
			drift := g.drift()
			if !slices.ContainsFunc(drift, func(d pipeline.Drift) bool {
				return d.Attr == c.attr || c.attr == "member " && len(d.Attr) > 7 && d.Attr[:7] == c.attr
			}) {
				t.Errorf("%q is not among %v", c.attr, drift)
			}
			if _, changes := g.calls(since); sum(changes) > 0 {
				t.Errorf("a verify changed %v", changes)
			}
		})
	}
}

// The disk that a VM left behind is deleted in the end, though the first deletion
// is refused, or accepted and never carried out.
func TestDiskLeftBehind(t *testing.T) {
	for _, kind := range []sim.FaultKind{sim.FaultError, sim.FaultSwallow} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			g := vms(t, fixedSpec)
			if err := g.try(false, g.check, g.p.EnsureNetwork); err != nil {
				t.Fatal(err)
			}
			id := g.p.idIn(g.run(pipeline.Apply), typeDisk, diskName("lost"))
			g.put(id, map[string]any{"location": g.job.Region, "properties": map[string]any{"creationData": map[string]any{"createOption": "Empty"}, "diskSizeGB": 30}})
			g.fault(sim.Fault{Kind: kind, Operation: "Disks_Delete", Code: "InternalServerError", Status: 500})
			g.world.Step(time.Minute)
			err := g.try(true, func(ctx context.Context, r *pipeline.Run) error { return g.p.removeDisk(view(ctx, r), r, "lost") })
			if err != nil {
				t.Error(err)
			}
			g.hit()
			if _, err := read[armcompute.Disk](g.Context(), g.p, id); !pipeline.Is(err, pipeline.NotFound) {
				t.Errorf("the disk is still there: %v", err)
			}
		})
	}
}

// A rule that somebody adds is not taken for the load balancer's.
func TestOpenRuleIsNotTheLoadBalancers(t *testing.T) {
	t.Parallel()
	g := vms(t, fixedLB)
	if err := g.try(false, g.check, g.p.EnsureNetwork, g.p.EnsureIdentity, g.p.EnsureLaunchTemplate, g.p.EnsureLoadBalancer); err != nil {
		t.Fatal(err)
	}
	seen := func() (met bool, seen string) {
		g.another()
		rows, err := g.p.Controls(pipeline.WithGate(g.Context(), pipeline.ReadOnly), g.run(pipeline.Apply))
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(rows, func(c job.Control) bool { return c.ID == "NETZ-06" })
		if i < 0 {
			t.Fatalf("no row in %v", rows)
		}
		return rows[i].Met, rows[i].Seen
	}
	if met, what := seen(); !met {
		t.Errorf("at once: %s", what)
	}
	g.put(g.job.Config.InfraConfig.VMSecurityGroupID+"/securityRules/open", map[string]any{"properties": map[string]any{
		"access": "Allow", "direction": "Inbound", "priority": 300, "protocol": "Tcp", "sourceAddressPrefix": "Internet", "sourcePortRange": "*", "destinationAddressPrefix": "*", "destinationPortRange": "443",
	}})
	g.world.Step(time.Minute)
	if met, what := seen(); met || !strings.Contains(what, "open") {
		t.Errorf("met: %v, %s", met, what)
	}
}
