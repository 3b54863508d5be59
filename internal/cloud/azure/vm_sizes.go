package azure

import (
	"cmp"
	"context"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// current are the series that a size resolves to, in order of preference where
// two are equally large: burstable, then general purpose, then the ones with more
// or less memory; the newest that regions widely have ("Sizes for virtual
// machines in Azure", November 2026). Which of them a region really offers the
// subscription is asked of the region.
var current = []*regexp.Regexp{
	regexp.MustCompile(`^Standard_B\d+(ts|ls|s|pts|pls|ps)_v2$`),
	regexp.MustCompile(`^Standard_B\d+(als|as|ats)_v2$`),
	regexp.MustCompile(`^Standard_D\d+(s|ls|ps|pls)_v6$`),
	regexp.MustCompile(`^Standard_D\d+(s|ls|as|als|ps|pls)_v5$`),
	regexp.MustCompile(`^Standard_[EF]\d+(s|as|ps)_v[256]$`),
}

// A size is a VM size as the subscription is offered it in the region.
type size struct {
	name, family, arch string
	vcpus              int
	memoryGiB          float64
	zones              []string // in which it is offered and not restricted
	refused            string   // why the subscription may not have it here; "" if it may
	traits             traits
	generations        string
	spot               bool
	ephemeralGiB       float64 // the largest OS disk that its cache or its own disk holds; 0: none
}

// holds reports whether an OS disk fits on the size itself ("Ephemeral OS disks").
func (s size) holds(gib int) bool { return float64(gib) <= s.ephemeralGiB }

// sizes are the VM sizes of the region ("Resource SKUs - List"), read once a pass.
func (p *Provider) sizes(ctx context.Context) ([]size, error) {
	return lookup.Once(ctx, "sizes", func(ctx context.Context) ([]size, error) {
		filter := strings.ReplaceAll(url.QueryEscape("location eq '"+regionName(p.region)+"'"), "+", "%20")
		all, err := list[armcompute.ResourceSKU](ctx, p, managementPrefix+p.subscription+"/providers/Microsoft.Compute/skus?$filter="+filter)
		var out []size
		for _, s := range all {
			if value(s.ResourceType) == "virtualMachines" {
				out = append(out, sizeFrom(s))
			}
		}
		return out, err
	})
}

func sizeFrom(s armcompute.ResourceSKU) size {
	has := map[string]string{}
	for _, c := range s.Capabilities {
		has[value(c.Name)] = value(c.Value)
	}
	out := size{name: value(s.Name), family: value(s.Family), generations: has["HyperVGenerations"]}
	out.vcpus, _ = strconv.Atoi(has["vCPUs"])
	out.memoryGiB, _ = strconv.ParseFloat(has["MemoryGB"], 64)
	out.arch = "amd64"
	if strings.EqualFold(has["CpuArchitectureType"], "Arm64") {
		out.arch = "arm64"
	}
	yes := func(name string) bool { return strings.EqualFold(has[name], "True") }
	out.traits = traits{
		trusted:   strings.Contains(out.generations, "V2") && !yes("TrustedLaunchDisabled"),
		encrypted: yes("EncryptionAtHostSupported"), accelerated: yes("AcceleratedNetworkingEnabled"), premium: yes("PremiumIO"),
	}
	out.spot = yes("LowPriorityCapable")
	if yes("EphemeralOSDiskSupported") {
		out.ephemeralGiB = ephemeralRoom(has)
	}
	for _, l := range s.LocationInfo {
		out.zones = append(out.zones, values(l.Zones)...)
	}
	for _, b := range s.Restrictions {
		switch value(b.Type) {
		case armcompute.ResourceSKURestrictionsTypeLocation:
			out.refused = string(value(b.ReasonCode))
		case armcompute.ResourceSKURestrictionsTypeZone:
			if b.RestrictionInfo != nil {
				closed := values(b.RestrictionInfo.Zones)
				out.zones = slices.DeleteFunc(out.zones, func(z string) bool { return slices.Contains(closed, z) })
			}
		}
	}
	slices.Sort(out.zones)
	return out
}

// ephemeralRoom is the room for an OS disk on the size itself: its cache, or its
// own disk. AKS chooses among the two; disks on NVMe are left out, since not every
// node image starts from them.
func ephemeralRoom(has map[string]string) float64 {
	var most float64
	for at, field := range map[string]string{"CacheDisk": "CachedDiskBytes", "ResourceDisk": "MaxResourceVolumeMB"} {
		if places := has["SupportedEphemeralOSDiskPlacements"]; places != "" && !strings.Contains(places, at) {
			continue
		}
		n, _ := strconv.ParseFloat(has[field], 64)
		if at == "CacheDisk" {
			n /= 1 << 20
		}
		most = max(most, n/1024)
	}
	return most
}

// sizeNamed is a size by its name; false if the region does not have it.
func (p *Provider) sizeNamed(ctx context.Context, name string) (size, bool, error) {
	all, err := p.sizes(ctx)
	i := slices.IndexFunc(all, func(s size) bool { return strings.EqualFold(s.name, name) })
	if err != nil || i < 0 {
		return size{}, false, err
	}
	return all[i], true, nil
}

// smallest is the smallest current size that has what is asked for and is to be
// had in every one of the zones; false if there is none.
func smallest(all []size, want job.Size, zones []string) (size, bool) {
	rank := func(s size) int {
		return slices.IndexFunc(current, func(re *regexp.Regexp) bool { return re.MatchString(s.name) })
	}
	fit := slices.DeleteFunc(slices.Clone(all), func(s size) bool {
		missing := slices.ContainsFunc(zones, func(z string) bool { return !slices.Contains(s.zones, z) })
		return rank(s) < 0 || s.refused != "" || missing || s.arch != want.Arch || s.vcpus < want.VCPUs || s.memoryGiB < float64(want.MemoryGiB)
	})
	if len(fit) == 0 {
		return size{}, false
	}
	return slices.MinFunc(fit, func(a, b size) int {
		return cmp.Or(cmp.Compare(a.vcpus, b.vcpus), cmp.Compare(a.memoryGiB, b.memoryGiB), cmp.Compare(rank(a), rank(b)), cmp.Compare(a.name, b.name))
	}), true
}

// traits are what the VMs can have, by size, image and subscription.
func (p *Provider) traits(ctx context.Context, r *pipeline.Run) (traits, error) {
	const key = "traits of the VMs"
	if t, ok := r.Recall(key).(traits); ok {
		return t, nil
	}
	ic := r.Job.Config.InfraConfig
	s, ok, err := p.sizeNamed(ctx, ic.InstanceType)
	if err != nil || !ok {
		return traits{}, unlessDenied(r, "what VMs of size "+ic.InstanceType+" can have", err)
	}
	t := s.traits
	if t.trusted {
		t.trusted, err = p.trustedImage(ctx, ic.ImageID)
		if err := unlessDenied(r, "whether image "+ic.ImageID+" boots by trusted launch", err); err != nil {
			return t, err
		}
	}
	if t.encrypted {
		t.encrypted, err = p.hostEncryption(ctx)
		if err := unlessDenied(r, "encryption at host", err); err != nil {
			return t, err
		}
	}
	r.Remember(key, t)
	return t, nil
}

// trustedImage reports whether an image boots by trusted launch: those of
// generation 2 do.
func (p *Provider) trustedImage(ctx context.Context, urn string) (bool, error) {
	name, ok := parseImage(urn)
	if !ok {
		return false, nil
	}
	i, err := p.image(ctx, name)
	if err != nil {
		return false, pipeline.Unless(err, pipeline.NotFound, pipeline.Invalid)
	}
	return i.Properties != nil && value(i.Properties.HyperVGeneration) == armcompute.HyperVGenerationTypesV2, nil
}

// hostEncryption reports whether the subscription has the feature of encryption at
// host ("Features - Get").
func (p *Provider) hostEncryption(ctx context.Context) (bool, error) {
	var x struct {
		Properties struct {
			State string `json:"state"`
		} `json:"properties"`
	}
	err := p.get(ctx, managementPrefix+p.subscription+"/providers/Microsoft.Features/providers/Microsoft.Compute/features/EncryptionAtHost?api-version=2021-07-01", &x)
	return x.Properties.State == "Registered", pipeline.Unless(err, pipeline.NotFound, pipeline.Invalid)
}

// image reads one version of a marketplace image.
func (p *Provider) image(ctx context.Context, i imageName) (armcompute.VirtualMachineImage, error) {
	var out armcompute.VirtualMachineImage
	err := p.get(ctx, p.versionsPath(i)+"/"+i.version, &out)
	return out, err
}

// latest is the newest version of a marketplace image. Unlike other lists this
// one is a bare array ("Virtual Machine Images - List").
func (p *Provider) latest(ctx context.Context, i imageName) (string, error) {
	var all []struct {
		Name string `json:"name"`
	}
	if err := p.get(ctx, p.versionsPath(i)+"?$orderby=name%20desc&$top=1", &all); err != nil {
		return "", err
	}
	if len(all) == 0 {
		return "", absent("Microsoft.Compute", "images/read", "a version of image "+i.String())
	}
	return all[0].Name, nil
}

func (p *Provider) versionsPath(i imageName) string {
	return managementPrefix + p.subscription + "/providers/Microsoft.Compute/locations/" + regionName(p.region) + "/publishers/" + i.publisher +
		"/artifacttypes/vmimage/offers/" + i.offer + "/skus/" + i.sku + "/versions"
}
