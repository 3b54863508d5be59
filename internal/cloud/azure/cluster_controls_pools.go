package azure

import (
	"context"
	"fmt"
	"slices"
	"strings"

	aks "github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/containerservice/armcontainerservice/v9"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v10"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// nodePools reads the hardening of every pool that the cluster has, also of those
// that the job did not make.
func (c *controls) nodePools(ctx context.Context, x resource[aks.ManagedCluster], pools []resource[aks.AgentPool]) error {
	c.poolFlags(pools)
	if err := c.poolDisks(ctx, pools); err != nil {
		return err
	}
	return c.poolSubnets(ctx, x, pools)
}

// those names the pools of which something is so.
func those(pools []resource[aks.AgentPool], so func(aks.ManagedClusterAgentPoolProfileProperties) bool) string {
	var out []string
	for _, n := range pools {
		if so(value(n.is.Properties)) {
			out = append(out, n.Name)
		}
	}
	return agreed(out)
}

func (c *controls) poolFlags(pools []resource[aks.AgentPool]) {
	type f = aks.ManagedClusterAgentPoolProfileProperties
	c.same("AKS-13", "pools whose nodes have public addresses", "none", those(pools, func(n f) bool { return value(n.EnableNodePublicIP) || n.NodePublicIPPrefixID != nil }), "CKV_AZURE_143, CIS AKS 5.4.3")
	c.same("AKS-30", "pools that are no scale sets", "none", those(pools, func(n f) bool { return value(n.Type) != aks.AgentPoolTypeVirtualMachineScaleSets }), "CKV_AZURE_169")
	zones := c.infra.Zones
	c.same("AKS-31", "pools that are not in the zones "+sorted(zones), "none", those(pools, func(n f) bool {
		return slices.ContainsFunc(zones, func(z string) bool { return !slices.Contains(values(n.AvailabilityZones), z) })
	}), "Azure.AKS.AvailabilityZone")
	c.same("AKS-33", "pools without autoscaling", "none", those(pools, func(n f) bool { return !value(n.EnableAutoScaling) }), "Azure.AKS.AutoScaling")
	c.same("AKS-34", "system pools without the taint "+systemTaint, "none", those(pools, func(n f) bool {
		return value(n.Mode) == aks.AgentPoolModeSystem && !slices.Contains(values(n.NodeTaints), systemTaint)
	}), "CKV_AZURE_232")
	c.same("AKS-35", "pools with fewer than 50 pods a node", "none", those(pools, func(n f) bool { return value(n.MaxPods) < 50 }), "CKV_AZURE_168")
	c.same("AKS-39", "pools with SSH", "none", those(pools, func(n f) bool { return value(value(n.SecurityProfile).SSHAccess) != aks.AgentPoolSSHAccessDisabled }), "Azure Policy: disable SSH")
}

// poolDisks reads that disks are encrypted on the host, and that OS disks are on
// the size itself where they fit.
func (c *controls) poolDisks(ctx context.Context, pools []resource[aks.AgentPool]) error {
	var plain, managed, why []string
	sizes, err := c.p.sizes(ctx)
	if err := pipeline.Unless(err, pipeline.Denied); err != nil {
		return err
	}
	for _, n := range pools {
		f := value(n.is.Properties)
		at := slices.IndexFunc(sizes, func(s size) bool { return same(s.name, value(f.VMSize)) })
		if !value(f.EnableEncryptionAtHost) {
			plain = append(plain, n.Name)
			if at >= 0 && !sizes[at].traits.encrypted {
				why = append(why, sizes[at].name+" cannot")
			}
		}
		if value(f.OSDiskType) != aks.OSDiskTypeEphemeral && at >= 0 && sizes[at].holds(int(value(f.OSDiskSizeGB))) {
			managed = append(managed, n.Name)
		}
	}
	if len(plain) > 0 {
		on, err := c.p.hostEncryption(ctx)
		if err != nil {
			return err
		}
		if !on {
			why = append(why, "the subscription does not have the feature EncryptionAtHost")
		}
	}
	seen := agreed(plain)
	if len(why) > 0 {
		seen += " (" + agreed(why) + ")"
	}
	c.same("AKS-14", "pools not encrypted on the host", "none", seen, "CKV_AZURE_227")
	c.same("AKS-15", "pools with OS disks elsewhere although the size holds them", "none", agreed(managed), "CKV_AZURE_226, Azure.AKS.EphemeralOSDisk")
	return nil
}

// leastSubnet is how large a subnet has to be in which pods have addresses.
const leastSubnet = 23

// poolSubnets reads the size of the nodes' subnets where pods take addresses of
// theirs.
func (c *controls) poolSubnets(ctx context.Context, x resource[aks.ManagedCluster], pools []resource[aks.AgentPool]) error {
	const name, source = "room of the nodes' subnets", "Azure.AKS.CNISubnetSize"
	wanted := fmt.Sprintf("pods in an overlay, or /%d or larger", leastSubnet)
	if value(value(value(x.is.Properties).NetworkProfile).NetworkPluginMode) == aks.NetworkPluginModeOverlay {
		c.add("AKS-36", name, wanted, "pods in an overlay", true, source)
		return nil
	}
	small, seen := false, []string{}
	for _, n := range pools {
		id := value(value(n.is.Properties).VnetSubnetID)
		if id == "" {
			continue
		}
		s, err := read[armnetwork.Subnet](ctx, c.p, id)
		if pipeline.Is(err, pipeline.Denied, pipeline.NotFound) {
			c.rows = append(c.rows, job.Control{ID: "AKS-36", Name: name, Wanted: wanted, Seen: "not read: " + err.Error(), Unchecked: true})
			return nil
		}
		if err != nil {
			return err
		}
		f := value(s.is.Properties)
		for _, p := range ranges(both(f.AddressPrefix, f.AddressPrefixes)) {
			small = small || p.Bits() > leastSubnet
			seen = append(seen, s.Name+" "+p.String())
		}
	}
	c.add("AKS-36", name, wanted, strings.Join(seen, ", "), !small, source)
	return nil
}
