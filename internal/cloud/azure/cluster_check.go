package azure

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	aks "github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/containerservice/armcontainerservice/v9"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
)

// supportEnds is when AKS' standard support of a version ends: the API says
// whether it has ended, and not when it will ("Supported Kubernetes versions in
// AKS", AKS Kubernetes release calendar).
var supportEnds = map[string]string{
	"1.33": "2026-06-30", "1.34": "2026-11-30", "1.35": "2027-03-31", "1.36": "2027-06-30",
}

// clusterBegun reports whether a cluster was made with what was resolved.
func (c *checker) clusterBegun() bool {
	rec, ok := c.r.Object(kindCluster, "cluster")
	return ok && (rec.State == job.ObjectCreated || rec.State == job.ObjectIntended)
}

// clusterParts are what only cluster jobs ask.
func (c *checker) clusterParts() []func(context.Context) ([]cloud.Check, error) {
	return []func(context.Context) ([]cloud.Check, error){c.version, c.nodePools, c.reachable, c.quotas}
}

// version resolves the Kubernetes version: the cloud's current default, or the one
// that is asked for, if it is still supported.
func (c *checker) version(ctx context.Context) ([]cloud.Check, error) {
	const check, field = "Kubernetes version", "config.spec.version"
	if c.clusterBegun() && c.ic.Cluster.Version != "" {
		return nil, nil // it is resolved for good; upgrades are the channel's business
	}
	spec, err := c.r.Job.ClusterSpec()
	if err != nil {
		return nil, err
	}
	all, err := c.versions(ctx)
	if err != nil {
		return c.or(ctx, check, field, err)
	}
	want := spec.Version
	if want == "" {
		want = defaultVersion(all)
	}
	i := slices.IndexFunc(all, func(v aks.KubernetesVersion) bool { return value(v.Version) == want })
	if i < 0 || value(all[i].IsPreview) {
		return []cloud.Check{fails(check, field, fmt.Sprintf("AKS does not offer Kubernetes %s in %s", want, c.region), "Use one of "+offered(all)+", or leave it out.")}, nil
	}
	extended := !supports(all[i], aks.KubernetesSupportPlanKubernetesOfficial)
	if extended && !spec.ExtendedSupport {
		return []cloud.Check{fails(check, field, fmt.Sprintf("Kubernetes %s is past its standard support; AKS has it under long-term support alone, which takes the Premium tier and is billed extra", want),
			"Use one of "+offered(all)+", or set extendedSupport: true.")}, nil
	}
	info := &c.ic.Cluster
	info.Version, info.Extended, info.SupportUntil = want, extended, supportEnds[want]
	until := info.SupportUntil
	switch {
	case extended:
		return []cloud.Check{warns(check, field, fmt.Sprintf("Kubernetes %s under long-term support, which is billed extra", want), "")}, nil
	case until == "":
		return []cloud.Check{passes(check, "%s, in standard support", want)}, nil
	case until < c.r.Now().UTC().Format("2006-01-02"):
		return []cloud.Check{warns(check, field, fmt.Sprintf("the standard support of Kubernetes %s was to end on %s", want, until), "Use one of "+offered(all)+".")}, nil
	}
	return []cloud.Check{passes(check, "%s, in standard support until %s", want, until)}, nil
}

// versions are what AKS offers in the region ("Managed Clusters - List Kubernetes
// Versions").
func (p *Provider) versions(ctx context.Context) ([]aks.KubernetesVersion, error) {
	var out aks.KubernetesVersionListResult
	err := p.get(ctx, managementPrefix+p.subscription+"/providers/Microsoft.ContainerService/locations/"+regionName(p.region)+"/kubernetesVersions", &out)
	return values(out.Values), err
}

func supports(v aks.KubernetesVersion, plan aks.KubernetesSupportPlan) bool {
	return v.Capabilities != nil && slices.Contains(values(v.Capabilities.SupportPlan), plan)
}

// standard are the versions in standard support, the newest first.
func standard(all []aks.KubernetesVersion) []string {
	var out []string
	for _, v := range all {
		if !value(v.IsPreview) && supports(v, aks.KubernetesSupportPlanKubernetesOfficial) {
			out = append(out, value(v.Version))
		}
	}
	slices.SortFunc(out, func(a, b string) int { return strings.Compare(padded(b), padded(a)) })
	return out
}

// padded is a version that sorts by its numbers.
func padded(version string) string {
	parts := strings.Split(version, ".")
	for i, n := range parts {
		parts[i] = fmt.Sprintf("%4s", n)
	}
	return strings.Join(parts, ".")
}

func offered(all []aks.KubernetesVersion) string { return strings.Join(standard(all), ", ") }

// defaultVersion is the cloud's own default, or else the second newest that it
// supports: the newest is a few days old at times.
func defaultVersion(all []aks.KubernetesVersion) string {
	for _, v := range all {
		if value(v.IsDefault) && !value(v.IsPreview) {
			return value(v.Version)
		}
	}
	if s := standard(all); len(s) > 0 {
		return s[min(1, len(s)-1)]
	}
	return ""
}

// mostRanges is how many ranges a cluster lets in at most.
const mostRanges = 200

// reachable settles who reaches the API server: it is private where the
// provisioner gets there all the same, and otherwise open to its own addresses and
// to those that the spec names.
func (c *checker) reachable(context.Context) ([]cloud.Check, error) {
	const check, field = "reach of the API server", "config.spec.endpoint"
	spec, err := c.r.Job.ClusterSpec()
	if err != nil {
		return nil, err
	}
	info := &c.ic.Cluster
	asked := spec.Endpoint.PublicCIDRs
	const choices = "Start the server with --reach direct if it runs in the network or has a VPN into it, or with --reach public:YOUR-RANGE, the range that its own connections come from."
	reach := c.reach
	switch {
	case reach.Mode == job.ReachTunnel:
		return []cloud.Check{fails(check, field, "AKS has no tunnel to its API servers that the provisioner could install through", choices)}, nil
	case reach.Mode != job.ReachDirect && len(reach.EgressCIDRs) == 0:
		return []cloud.Check{fails(check, field, "the provisioner would not reach the API server: it is private unless ranges are named, and the server does not say from which addresses it comes", choices)}, nil
	}
	public := reach.Mode != job.ReachDirect || len(asked) > 0
	if c.clusterBegun() && public != info.Public {
		now := map[bool]string{true: "public", false: "private"}
		return []cloud.Check{fails(check, field, fmt.Sprintf("the API server is %s, and an AKS cluster cannot be made %s afterwards", now[info.Public], now[public]), "Restore the reach and the ranges that it was made with.")}, nil
	}
	info.Public, info.PublicCIDRs = public, nil
	if !public {
		return []cloud.Check{passes(check, "private, reached directly")}, nil
	}
	info.PublicCIDRs = slices.Concat(asked, reach.EgressCIDRs)
	slices.Sort(info.PublicCIDRs)
	info.PublicCIDRs = slices.Compact(info.PublicCIDRs)
	for _, text := range info.PublicCIDRs {
		if !publicRange(text) {
			return []cloud.Check{fails(check, field+".publicCidrs", text+" is no public IPv4 range, and AKS lets in no others", "Name the public addresses that connections come from.")}, nil
		}
	}
	switch n := len(info.PublicCIDRs); {
	case n > mostRanges-1:
		return []cloud.Check{fails(check, field+".publicCidrs", fmt.Sprintf("with the provisioner's own there are %d ranges, and AKS takes %d", n, mostRanges), "Name fewer, larger ranges.")}, nil
	case reach.Mode == job.ReachDirect:
		return []cloud.Check{warns(check, field+".publicCidrs", "an AKS API server is private or public, and with ranges it is public: the provisioner gets in only from "+strings.Join(info.PublicCIDRs, ", ")+" or through the cluster's own NAT gateway",
			"See that the provisioner's own address is among the ranges, or leave them out.")}, nil
	}
	return []cloud.Check{passes(check, "public, for %s alone", strings.Join(info.PublicCIDRs, ", "))}, nil
}

// publicRange reports whether a text is a range of public IPv4 addresses.
func publicRange(text string) bool {
	p, err := netip.ParsePrefix(text)
	return err == nil && p.Addr().Is4() && !p.Addr().IsPrivate() && !p.Addr().IsLoopback() && !p.Addr().IsLinkLocalUnicast()
}

// waived reports whether the spec lets a control not hold.
func waived(spec job.ClusterSpec, control string) bool {
	return slices.ContainsFunc(spec.Waive, func(w job.Waiver) bool { return w.Control == control })
}

// adoptedClusterName names the cluster that an adopt job points at.
func (c *checker) adoptedClusterName(ctx context.Context) (string, error) {
	x, err := c.adoptedCluster(ctx, c.r)
	return fmt.Sprintf("%s in %s", x.Name, segment(x.ID, "resourceGroups")), err
}
