package azure

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v10"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// A want is how many of one thing a job will make.
type want struct {
	quotas []string // the names under which usage counts it
	kind   string
	keys   []string // what of it is there already is not counted again
}

// quotas compares what the job will make with what the subscription has left in
// the region ("Usages - List").
func (c *checker) quotas(ctx context.Context) ([]cloud.Check, error) {
	if c.r.Mode == pipeline.Verify {
		return nil, nil
	}
	usages, err := list[armnetwork.Usage](ctx, c.Provider, managementPrefix+c.subscription+"/providers/Microsoft.Network/locations/"+regionName(c.region)+"/usages")
	if err != nil {
		return c.or(ctx, "network quotas", "", err)
	}
	var out []cloud.Check
	var fine []string
	for _, w := range c.wants() {
		n := 0
		for _, key := range w.keys {
			if !c.made(w.kind, key) {
				n++
			}
		}
		for _, u := range usages {
			if n == 0 || u.Name == nil || !slices.Contains(w.quotas, value(u.Name.Value)) {
				continue
			}
			used, limit := value(u.CurrentValue), value(u.Limit)
			name := value(u.Name.LocalizedValue)
			if used+int64(n) > limit {
				out = append(out, fails("quota", "region", fmt.Sprintf("%s in %s: %d of %d are used, and the job makes %d", name, c.region, used, limit, n), "Ask for a higher limit in the portal (Quotas), or free some."))
				continue
			}
			fine = append(fine, fmt.Sprintf("%s %d of %d", name, used, limit))
		}
	}
	if len(out) == 0 {
		out = append(out, passes("quota", "%s", strings.Join(fine, ", ")))
	}
	return out, nil
}

func (c *checker) wants() []want {
	var out []want
	var groups []string
	if c.r.Job.Mode == job.ModeCreate {
		out = append(out, want{[]string{"VirtualNetworks"}, kindVNet, []string{"vnet"}})
	}
	nat := false
	if c.r.Job.Mode == job.ModeCreate || c.r.Job.ResourceType == job.Network {
		for _, tier := range tiers(c.net) {
			groups = append(groups, "nsg-"+tier)
		}
		nat = c.net.NAT != job.NATNone && slices.Contains(tiers(c.net), job.TierPrivate)
	}
	var addresses []string
	if nat {
		addresses = append(addresses, "nat-ip")
		out = append(out, want{[]string{"NatGateways"}, kindNAT, []string{"nat"}})
	}
	return append(out,
		want{[]string{"NetworkSecurityGroups"}, kindNSG, groups},
		want{[]string{"PublicIPAddresses", "StaticPublicIPAddresses", "StandardSkuPublicIpAddresses"}, kindPublicIP, addresses})
}
