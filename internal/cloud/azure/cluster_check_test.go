package azure

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	aks "github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/containerservice/armcontainerservice/v9"
	"pgregory.net/rapid"

	"github.com/zopday/provisioner/internal/cidr"
	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	simazure "github.com/zopday/provisioner/internal/sim/azure"
)

// checks are what stepValidate would say.
func (g *rig) checks() []cloud.Check {
	g.Helper()
	out, err := g.p.Check(pipeline.WithGate(g.Context(), pipeline.ReadOnly), g.run(pipeline.Apply))
	if err != nil {
		g.Fatal(err)
	}
	return out
}

const hubSpec = `"existing":{"networkId":"` + theirs + "/providers/" + typeVNet + `/hub"}`

func withoutHostEncryption(g *rig) { g.quota("features", "Microsoft.Compute/EncryptionAtHost", 0) }

// clusterChecks are jobs with what stepValidate has to say of them.
var clusterChecks = map[string]struct {
	spec    string
	mode    job.Mode // create if not said
	reach   *job.Reach
	furnish func(g *rig)

	status cloud.CheckStatus
	field  string
	says   string
}{
	"all is well":                   {spec: clusterSpec, status: cloud.CheckOK, says: "in standard support until 2027-03-31"},
	"a version of one's own":        {spec: `{"version":"1.36"}`, status: cloud.CheckOK, says: "1.36, in standard support"},
	"a version that is none":        {spec: `{"version":"1.99"}`, status: cloud.CheckFails, field: "config.spec.version", says: "does not offer Kubernetes 1.99"},
	"past its support":              {spec: `{"version":"1.33"}`, status: cloud.CheckFails, field: "config.spec.version", says: "past its standard support"},
	"past its support, asked":       {spec: `{"version":"1.33","extendedSupport":true}`, status: cloud.CheckWarning, field: "config.spec.version", says: "long-term support"},
	"reach of nobody":               {spec: `{}`, reach: &job.Reach{}, status: cloud.CheckFails, field: "config.spec.endpoint", says: "would not reach"},
	"public without ranges":         {spec: `{"endpoint":{"publicCidrs":["198.51.100.0/24"]}}`, reach: &job.Reach{Mode: job.ReachPublic}, status: cloud.CheckFails, field: "config.spec.endpoint", says: "would not reach"},
	"through a tunnel":              {spec: `{}`, reach: &job.Reach{Mode: job.ReachTunnel}, status: cloud.CheckFails, field: "config.spec.endpoint", says: "no tunnel"},
	"directly":                      {spec: `{}`, reach: &job.Reach{Mode: job.ReachDirect}, status: cloud.CheckOK, says: "private, reached directly"},
	"directly, with ranges":         {spec: `{"endpoint":{"publicCidrs":["198.51.100.0/24"]}}`, reach: &job.Reach{Mode: job.ReachDirect}, status: cloud.CheckWarning, field: "config.spec.endpoint.publicCidrs", says: "private or public"},
	"a private range":               {spec: `{"endpoint":{"publicCidrs":["10.1.0.0/16"]}}`, status: cloud.CheckFails, field: "config.spec.endpoint.publicCidrs", says: "no public IPv4 range"},
	"ranges beside one's own":       {spec: `{"endpoint":{"publicCidrs":["198.51.100.0/24"]}}`, status: cloud.CheckOK, says: "public, for 198.51.100.0/24, 203.0.113.7/32 alone"},
	"a size that is none":           {spec: `{"nodePools":[{"name":"workers","instanceType":"Standard_D2s_v9"}]}`, status: cloud.CheckFails, field: "config.spec.nodePools[0].instanceType", says: "not a size"},
	"a size that is too small":      {spec: `{"nodePools":[{"name":"workers","instanceType":"Standard_B2ts_v2"}]}`, status: cloud.CheckFails, field: "config.spec.nodePools[0].instanceType", says: "AKS takes nodes of 2 and 4"},
	"a size that nobody has":        {spec: `{"nodePools":[{"name":"workers","size":{"vcpus":190,"memoryGiB":8}}]}`, status: cloud.CheckFails, field: "config.spec.nodePools[0].size", says: "no current size"},
	"spot that is none":             {spec: `{"nodePools":[{"name":"workers"},{"name":"spare","instanceType":"Standard_B2s_v2","spot":true}]}`, status: cloud.CheckFails, field: "config.spec.nodePools[1].spot", says: "spot capacity"},
	"no encryption":                 {spec: `{}`, furnish: withoutHostEncryption, status: cloud.CheckFails, field: "config.spec.waive", says: "EncryptionAtHost"},
	"no encryption, waived":         {spec: `{"waive":[{"control":"AKS-14","reason":"a trial"}]}`, furnish: withoutHostEncryption, status: cloud.CheckWarning, field: "config.spec.waive", says: "EncryptionAtHost"},
	"no encryption of the size":     {spec: `{"nodePools":[{"name":"workers","instanceType":"Standard_A2_v2"}]}`, status: cloud.CheckFails, field: "config.spec.waive", says: "Standard_A2_v2 cannot"},
	"a quota":                       {spec: clusterSpec, furnish: func(g *rig) { g.quota("compute", "cores", 9) }, status: cloud.CheckFails, field: "config.spec.nodePools", says: "start with 10"},
	"a quota of growing":            {spec: clusterSpec, furnish: func(g *rig) { g.quota("compute", "cores", 12) }, status: cloud.CheckWarning, field: "config.spec.nodePools", says: "may grow to"},
	"pods in the network":           {spec: `{"podCidr":"10.77.0.0/17","network":{"secondaryCidrs":["10.77.0.0/16"]}}`, status: cloud.CheckFails, field: "config.spec.podCidr", says: "overlaps"},
	"services in AKS' own":          {spec: `{"serviceCidr":"172.31.0.0/20"}`, status: cloud.CheckFails, field: "config.spec.serviceCidr", says: "AKS itself"},
	"a network in AKS' own":         {spec: `{"network":{"cidr":"172.30.0.0/16"}}`, status: cloud.CheckFails, field: "config.spec.network.cidr", says: "AKS keeps"},
	"all of 10.0.0.0/8 in use (J8)": {spec: `{"network":{"cidr":"192.168.0.0/16"}}`, furnish: func(g *rig) { g.theirVNet("hub", "10.0.0.0/8", "10.90.1.0/24") }, status: cloud.CheckOK, says: "pods 100.64.0.0/16, Services 172.16.0.0/20"},
	"pods in a network of ours":     {spec: `{"podCidr":"10.90.0.0/16"}`, furnish: func(g *rig) { g.theirVNet("hub", "10.90.0.0/16", "10.90.1.0/24") }, status: cloud.CheckWarning, field: "config.spec.podCidr", says: "pods will not reach"},
	"room for the nodes":            {spec: `{"network":{"cidr":"10.41.0.0/24"},"nodePools":[{"name":"workers","desired":1,"max":100}]}`, status: cloud.CheckOK, says: "nodes at most"},
	"no room for the nodes":         {spec: `{"network":{"cidr":"10.41.0.0/24"},"nodePools":[{"name":"workers","desired":1,"max":100},{"name":"more","desired":1,"max":100}]}`, status: cloud.CheckFails, field: "config.spec.network.cidr", says: "addresses left"},

	"services in a network of others (J8)": {mode: job.ModeCreateInExisting, spec: `{"serviceCidr":"10.90.32.0/20",` + hubSpec + `}`, furnish: func(g *rig) { g.routed("0.0.0.0/0", "VirtualAppliance") }, status: cloud.CheckFails, field: "config.spec.serviceCidr", says: "the network hub"},
	"a firewall's address":                 {mode: job.ModeCreateInExisting, spec: `{` + hubSpec + `}`, furnish: func(g *rig) { g.routed("0.0.0.0/0", "VirtualAppliance") }, status: cloud.CheckWarning, field: "config.spec.endpoint.publicCidrs", says: "only if their public address"},
	"a route that leads nowhere (J11)":     {mode: job.ModeCreateInExisting, spec: `{` + hubSpec + `}`, furnish: func(g *rig) { g.routed("10.0.0.0/8", "VirtualAppliance") }, status: cloud.CheckFails, field: "config.spec.existing.subnetIds", says: "no route for 0.0.0.0/0"},
	"no way out (J11)":                     {mode: job.ModeCreateInExisting, spec: `{` + hubSpec + `}`, furnish: func(g *rig) { g.theirVNet("hub", "10.90.0.0/16", "10.90.1.0/24") }, status: cloud.CheckFails, field: "config.spec.existing.subnetIds", says: "would not get out"},
	"no way out of the one named":          {mode: job.ModeCreateInExisting, spec: `{"existing":{"networkId":"` + theirs + "/providers/" + typeVNet + `/hub","subnetIds":["apps"]}}`, furnish: func(g *rig) { g.theirVNet("hub", "10.90.0.0/16", "10.90.1.0/24") }, status: cloud.CheckFails, field: "config.spec.existing.subnetIds", says: "neither a NAT gateway"},
	"no group, waived":                     {mode: job.ModeCreateInExisting, spec: `{"waive":[{"control":"AKS-41","reason":"a firewall is in front"}],"existing":{"networkId":"` + theirs + "/providers/" + typeVNet + `/hub","subnetIds":["apps"]}}`, furnish: func(g *rig) { g.theirVNet("hub", "10.90.0.0/16", "10.90.1.0/24") }, status: cloud.CheckWarning, field: "config.spec.existing.subnetIds", says: "no network security group"},
}

// What cannot work is refused before anything is made, by the field at fault, with
// what to do; what may go wrong is a warning (failure kinds F, G, J).
func TestClusterChecks(t *testing.T) {
	t.Parallel()
	for name, c := range clusterChecks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mode := c.mode
			if mode == "" {
				mode = job.ModeCreate
			}
			g := clustersIn(t, mode, c.spec)
			if c.reach != nil {
				g.p.reach = *c.reach
			}
			if c.furnish != nil {
				c.furnish(g)
			}
			got := g.checks()
			if !slices.ContainsFunc(got, func(x cloud.Check) bool {
				return x.Status == c.status && (c.field == "" || x.Field == c.field) && strings.Contains(x.Message, c.says) && (x.Status != cloud.CheckFails || x.Fix != "")
			}) {
				t.Errorf("it says %+v", got)
			}
			if failed := slices.ContainsFunc(got, func(x cloud.Check) bool { return x.Status == cloud.CheckFails }); failed && c.status == cloud.CheckOK {
				t.Errorf("it fails: %+v", got)
			}
			if _, changes := g.calls(0); sum(changes) > 0 {
				t.Errorf("it changed %v", changes)
			}
		})
	}
}

// quota sets a limit of the subscription in the rig's region.
func (g *rig) quota(service, code string, n float64) {
	g.Helper()
	region := g.job.Region
	if service == "features" {
		region = ""
	}
	if !g.world.SetQuota("azure", service, code, simazure.DefaultSubscription, region, n) {
		g.Fatalf("there is no quota %s", code)
	}
}

// A pool's size is the smallest that has what is asked for; burstable sizes are not
// among them, one that holds the OS disk goes before one that does not, and one that
// is no spot capacity is none for a pool of it.
func TestSmallestNode(t *testing.T) {
	t.Parallel()
	zones := []string{"1", "2", "3"}
	of := func(name string, vcpus int, memory, inside float64, zones ...string) size {
		return size{name: name, arch: "amd64", vcpus: vcpus, memoryGiB: memory, ephemeralGiB: inside, zones: zones, spot: true}
	}
	all := []size{
		of("Standard_B2s_v2", 2, 8, 0, zones...), of("Standard_D2s_v6", 2, 8, 0, zones...), of("Standard_D2ds_v5", 2, 8, 75, zones...), of("Standard_D2s_v5", 2, 8, 0, zones...),
		of("Standard_D2ds_v4", 2, 8, 75, zones...), of("Standard_D4ds_v5", 4, 16, 150, zones...), of("Standard_D2lds_v5", 2, 4, 75, "1", "2"),
		{name: "Standard_D2ps_v6", arch: "arm64", vcpus: 2, memoryGiB: 8, zones: zones},
	}
	for _, c := range []struct {
		pool job.NodePool
		want string
	}{
		{job.NodePool{Size: &job.Size{VCPUs: 2, MemoryGiB: 8, Arch: "amd64"}, DiskGiB: 50}, "Standard_D2ds_v5"},
		{job.NodePool{Size: &job.Size{VCPUs: 2, MemoryGiB: 8, Arch: "amd64"}, DiskGiB: 100}, "Standard_D2s_v6"},
		{job.NodePool{Size: &job.Size{VCPUs: 1, MemoryGiB: 1, Arch: "amd64"}, DiskGiB: 50}, "Standard_D2ds_v5"},
		{job.NodePool{Size: &job.Size{VCPUs: 3, MemoryGiB: 8, Arch: "amd64"}, DiskGiB: 50}, "Standard_D4ds_v5"},
		{job.NodePool{Size: &job.Size{VCPUs: 2, MemoryGiB: 8, Arch: "arm64"}, DiskGiB: 50}, "Standard_D2ps_v6"},
		{job.NodePool{Size: &job.Size{VCPUs: 2, MemoryGiB: 8, Arch: "arm64"}, DiskGiB: 50, Spot: true}, ""},
		{job.NodePool{Size: &job.Size{VCPUs: 2, MemoryGiB: 64, Arch: "amd64"}, DiskGiB: 50}, ""},
	} {
		if s, ok := smallestNode(all, c.pool, zones); ok != (c.want != "") || s.name != c.want {
			t.Errorf("%+v with %d GiB: %q, want %q", *c.pool.Size, c.pool.DiskGiB, s.name, c.want)
		}
	}
}

func TestDefaultVersion(t *testing.T) {
	t.Parallel()
	of := func(version string, preview, def bool, plans ...aks.KubernetesSupportPlan) aks.KubernetesVersion {
		v := aks.KubernetesVersion{Version: &version, IsPreview: &preview, IsDefault: &def, Capabilities: &aks.KubernetesVersionCapabilities{}}
		for _, p := range plans {
			v.Capabilities.SupportPlan = append(v.Capabilities.SupportPlan, &p)
		}
		return v
	}
	const official, longTerm = aks.KubernetesSupportPlanKubernetesOfficial, aks.KubernetesSupportPlanAKSLongTermSupport
	all := []aks.KubernetesVersion{of("1.9", false, false, official), of("1.10", false, false, official), of("1.11", true, false, official), of("1.8", false, false, longTerm)}
	if got := defaultVersion(all); got != "1.9" {
		t.Errorf("without a default: %s", got)
	}
	if got := offered(all); got != "1.10, 1.9" {
		t.Errorf("offered are %s", got)
	}
	if got := defaultVersion(append(all, of("1.12", false, true, official))); got != "1.12" {
		t.Errorf("with a default: %s", got)
	}
	if got := defaultVersion(nil); got != "" {
		t.Errorf("of nothing: %s", got)
	}
}

// Whatever is in use, the ranges of pods and Services that are proposed meet nothing
// of it, nothing of AKS' own and not each other, and hold the nodes that there may be.
func TestProposedRanges(t *testing.T) {
	t.Parallel()
	g := clusters(t, `{}`)
	c := &checker{Provider: g.p, r: g.run(pipeline.Apply), ic: &g.job.Config.InfraConfig}
	rapid.Check(t, func(t *rapid.T) {
		nodes := rapid.IntRange(1, 2000).Draw(t, "nodes")
		used := []cidr.Used{}
		for range rapid.IntRange(0, 6).Draw(t, "networks") {
			bits := rapid.IntRange(10, 24).Draw(t, "bits")
			a := netip.AddrFrom4([4]byte{10, byte(rapid.IntRange(0, 255).Draw(t, "b")), byte(rapid.IntRange(0, 255).Draw(t, "c")), 0})
			used = append(used, cidr.Used{Prefix: netip.PrefixFrom(a, bits).Masked(), Hard: true, By: "somebody"})
		}
		for _, kept := range keptByAKS {
			used = append(used, cidr.Used{Prefix: kept, Hard: true, By: "AKS itself"})
		}
		one := job.NodePool{Max: &nodes}
		bits := podSize([]job.NodePool{one})
		if 1<<(nodeBits-bits) < nodes+surge(nodes) {
			t.Fatalf("/%d for %d nodes", bits, nodes)
		}
		for _, ask := range []struct {
			spaces []netip.Prefix
			bits   int
		}{{podSpaces, bits}, {serviceSpaces, serviceBits}} {
			p, bad := c.placeRange("ranges", "config.spec.podCidr", "", ask.spaces, ask.bits, used)
			if bad != nil {
				continue
			}
			for _, u := range used {
				if p.Overlaps(u.Prefix) {
					t.Fatalf("%s meets %s", p, u.Prefix)
				}
			}
			used = append(used, cidr.Used{Prefix: p, Hard: true, By: "pods"})
		}
	})
}
