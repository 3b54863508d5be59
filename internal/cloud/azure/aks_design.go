package azure

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	aks "github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/containerservice/armcontainerservice/v9"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v10"

	"github.com/zopday/provisioner/internal/cidr"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// The kinds of object of a cluster job beyond its network and identities.
const (
	kindCluster     = "aks:cluster"
	kindNodePool    = "aks:node-pool"
	kindMaintenance = "aks:maintenance-configuration"
	kindRole        = "authorization:role-assignment"
	kindWorkspace   = "insights:workspace"
	kindDiagnostic  = "insights:diagnostic-setting"
)

// The resource types of a cluster job, with their longest names ("Naming rules
// and restrictions for Azure resources").
const (
	typeCluster      = "Microsoft.ContainerService/managedClusters"
	typeWorkspace    = "Microsoft.OperationalInsights/workspaces"
	typeRole         = "Microsoft.Authorization/roleAssignments"
	typeDiagnostic   = "Microsoft.Insights/diagnosticSettings"
	longestCluster   = 63
	longestDNSPrefix = 54
	longestNodeGroup = 80
	longestWorkspace = 63
	longestSetting   = 80
)

// systemTaint keeps everything but the cluster's own pods off the system pool
// ("Use system node pools in AKS").
const systemTaint = "CriticalAddonsOnly=true:NoSchedule"

// maxPods is how many pods a node takes: pods of an overlay take no addresses of
// the VNet, and each node has a /24 of the pods' range.
const maxPods = 110

// A design is what a cluster is made by: the spec, with what stepValidate has
// resolved and what the steps before have made.
type design struct {
	spec     job.ClusterSpec
	info     job.ClusterInfo
	subnets  []string // of the nodes, one or more: each spans all zones
	outbound aks.OutboundType
	ranges   []string // that reach a public API server; none if it is private
}

// design puts together what the cluster is made by.
func (p *Provider) design(ctx context.Context, r *pipeline.Run) (design, error) {
	spec, err := r.Job.ClusterSpec()
	if err != nil {
		return design{}, err
	}
	ic := &r.Job.Config.InfraConfig
	d := design{spec: spec, info: ic.Cluster, subnets: ic.PrivateSubnetIDs, outbound: aks.OutboundTypeUserAssignedNATGateway}
	if d.info.Public {
		d.ranges = reaching(ic)
	}
	if len(d.subnets) == 0 && r.Mode != pipeline.Plan && !r.Down {
		return d, pipeline.Fatal("no-subnets", "the network has no subnet for the nodes", "Retry; if this comes again, name subnets in config.spec.existing.subnetIds.")
	}
	if r.Job.Mode == job.ModeCreateInExisting && r.Mode != pipeline.Plan && !r.Down {
		d.outbound, err = p.outboundOf(ctx, d.subnets[0])
	}
	return d, err
}

// reaching are the ranges that may reach a public API server: those that were
// asked for, the provisioner's own, and where the nodes themselves come from,
// which is not let in by itself when they go out through a NAT gateway of ours
// ("Secure access to the API server using authorized IP address ranges").
func reaching(ic *job.InfraConfig) []string {
	all := slices.Clone(ic.Cluster.PublicCIDRs)
	for _, ip := range ic.EgressIPs {
		if a, err := netip.ParseAddr(ip); err == nil {
			all = append(all, netip.PrefixFrom(a, a.BitLen()).String())
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// outboundOf is how nodes in somebody's subnet get out: by the NAT gateway that
// the subnet has, or by its route table ("Customize cluster egress with outbound
// types in AKS").
func (p *Provider) outboundOf(ctx context.Context, subnet string) (aks.OutboundType, error) {
	x, err := read[armnetwork.Subnet](ctx, p, subnet)
	if err != nil {
		return "", err
	}
	if value(x.is.Properties).NatGateway != nil {
		return aks.OutboundTypeUserAssignedNATGateway, nil
	}
	return aks.OutboundTypeUserDefinedRouting, nil
}

// subnetOf is the subnet of the i-th pool: they take turns.
func (d design) subnetOf(i int) string {
	if len(d.subnets) == 0 {
		return ""
	}
	return d.subnets[i%len(d.subnets)]
}

// clusterName is the cluster's name at the cloud.
func clusterName(j *job.Job) string { return j.ResourceName("", longestCluster) }

func (p *Provider) clusterID(r *pipeline.Run) string {
	return p.idIn(r, typeCluster, clusterName(r.Job))
}

// nodeGroup is the resource group that AKS makes for what a cluster consists of.
func nodeGroup(j *job.Job) string { return j.ResourceName("nodes", longestNodeGroup) }

// dnsService is the address of the cluster's DNS in the range of its Services:
// the tenth, as is the custom.
func dnsService(services string) string {
	p, err := netip.ParsePrefix(services)
	if err != nil {
		return ""
	}
	return cidr.Part(p, 32-p.Bits(), 10).Addr().String()
}

// taintText is a taint as AKS writes it.
func taintText(t job.Taint) string { return t.Key + "=" + t.Value + ":" + t.Effect }

// taintsOf are a pool's taints, in AKS' words.
func taintsOf(n job.NodePool) []string {
	var out []string
	if n.System(job.Azure) {
		out = append(out, systemTaint)
	}
	for _, t := range n.Taints {
		if text := taintText(t); !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return out
}

// ownMark reports whether a label or taint is one that AKS puts on nodes itself,
// such as that of spot capacity.
func ownMark(key string) bool { return strings.HasPrefix(key, "kubernetes.azure.com/") }
