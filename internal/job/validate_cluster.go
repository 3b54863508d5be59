package job

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

var (
	kubeVersionRE   = regexp.MustCompile(`^1\.[0-9]{2}$`)
	poolNameRE      = regexp.MustCompile(`^[a-z][a-z0-9]{0,11}$`)
	componentNameRE = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,51}[a-z0-9])?$`)
	labelKeyRE      = regexp.MustCompile(`^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)
	labelValueRE    = regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$`)
	controlRE       = regexp.MustCompile(`^(EKS|GKE|AKS|NETA|NETG|NETZ)-[0-9]{2}$`)

	adminREs = map[Provider]*regexp.Regexp{
		AWS:   regexp.MustCompile(`^arn:aws[a-z-]*:iam::[0-9]{12}:(role|user)/[A-Za-z0-9+=,.@_/-]+$`),
		GCP:   regexp.MustCompile(`^(user|group|serviceAccount):[^@ ]+@[^@ ]+$`),
		Azure: regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`),
	}
	adminExamples = map[Provider]string{
		AWS: "arn:aws:iam::123456789012:role/platform", GCP: "group:platform@example.com", Azure: "the object ID of an Entra group",
	}
)

// validateCluster checks what of a cluster job's spec needs no cloud.
func (j *Job) validateCluster(s ClusterSpec, inv *Invalid) {
	const at = "config.spec."
	if j.Mode != ModeAdopt && s.Adopt != nil {
		inv.add(at+"adopt", "is only for mode adopt", "change the mode or leave it out")
	}
	if j.Mode == ModeCreate && s.Existing != nil {
		inv.add(at+"existing", "is only for mode create_in_existing", "change the mode or leave it out")
	}
	switch j.Mode {
	case ModeAdopt:
		j.validateClusterAdopt(s, inv)
		return
	case ModeCreateInExisting:
		if s.Existing == nil || s.Existing.NetworkID == "" {
			inv.add(at+"existing.networkId", "is missing", "name the network to build in")
		}
		if (s.Existing == nil || len(s.Existing.SubnetIDs) == 0) && j.Provider == AWS {
			inv.add(at+"existing.subnetIds", "is missing", "name private subnets in two zones or more")
		}
	default:
		j.validateNetwork(s.Network, inv)
		if s.Network.NAT == NATNone {
			inv.add(at+"network.nat", "private nodes without egress cannot join the cluster", "use single or per_zone")
		}
		if !slices.Equal(s.Network.Subnets, []string{TierPublic, TierPrivate}) {
			inv.add(at+"network.subnets", "the tiers of a cluster's network are public and private", "leave it out, or make the network by a job of its own and name it")
		}
	}
	if s.Version != "" && !kubeVersionRE.MatchString(s.Version) {
		inv.add(at+"version", fmt.Sprintf("%.40q is not a Kubernetes version", s.Version), "use major and minor, such as 1.35: the cloud chooses the patch")
	}
	j.validateRanges(s, inv)
	j.validateNodePools(s.NodePools, inv)
	for i, a := range s.Admins {
		if !adminREs[j.Provider].MatchString(a) {
			inv.add(fmt.Sprintf("%sadmins[%d]", at, i), fmt.Sprintf("%.80q does not name an administrator at this cloud", a), "use one such as "+adminExamples[j.Provider])
		}
	}
	j.validateComponents(s.Components, inv)
	for i, w := range s.Waive {
		field := fmt.Sprintf("%swaive[%d].", at, i)
		if !controlRE.MatchString(w.Control) {
			inv.add(field+"control", fmt.Sprintf("%.40q is not a hardening control", w.Control), "use its name in the hardening report, such as EKS-05")
		}
		if strings.TrimSpace(w.Reason) == "" {
			inv.add(field+"reason", "is missing", "say why the control need not hold: it stands in the report")
		}
	}
}

// validateClusterAdopt checks what an adopt job names: account, name and region suffice.
func (j *Job) validateClusterAdopt(s ClusterSpec, inv *Invalid) {
	const at = "config.spec."
	a := s.Adopt
	switch {
	case a == nil || a.Name == "" && len(a.IDs) == 0:
		inv.add(at+"adopt.name", "is missing", "give the cluster's name")
		return
	case len(a.IDs) > 1 || len(a.IDs) == 1 && a.Name != "":
		inv.add(at+"adopt", "names more than one cluster", "give its name alone; one job adopts one cluster")
	case len(a.IDs) == 1:
		j.validateARNRegion(a.IDs[0], at+"adopt.ids[0]", inv)
	}
	if len(s.Components) > 0 {
		inv.add(at+"components", "an adopt job makes nothing", "adopt the cluster, then install each one onto its space: POST /provisioning-jobs/install-component")
	}
}

// validateRanges checks the ranges that clients, pods and Services come from
// (failure kinds J7, J8).
func (j *Job) validateRanges(s ClusterSpec, inv *Invalid) {
	const at = "config.spec."
	for i, c := range s.Endpoint.PublicCIDRs {
		field := fmt.Sprintf("%sendpoint.publicCidrs[%d]", at, i)
		if fault := rangeFault(c); fault != "" {
			inv.add(field, fault, "use one such as 203.0.113.7/32")
		} else if p := netip.MustParsePrefix(c); p.Bits() < 8 {
			inv.add(field, c+" is most of the internet", "name the ranges that need the API server")
		}
	}
	if s.PodCIDR != "" && j.Provider == AWS {
		inv.add(at+"podCidr", "pods take addresses of the VPC at AWS", "leave it out")
	}
	ranges := map[string]netip.Prefix{}
	for _, r := range []struct{ field, cidr string }{{"podCidr", s.PodCIDR}, {"serviceCidr", s.ServiceCIDR}, {"network.cidr", s.Network.CIDR}} {
		if r.cidr == "" || r.field == "network.cidr" && j.Mode != ModeCreate {
			continue
		}
		if fault := rangeFault(r.cidr); fault != "" {
			if r.field != "network.cidr" {
				inv.add(at+r.field, fault, "use one such as 10.96.0.0/16, or leave it out")
			}
			continue
		}
		p := netip.MustParsePrefix(r.cidr)
		for _, other := range []string{"podCidr", "serviceCidr"} {
			if o, ok := ranges[other]; ok && o.Overlaps(p) {
				inv.add(at+other, fmt.Sprintf("%s overlaps %s %s", o, r.field, p), "use ranges that do not meet, or leave it out")
			}
		}
		ranges[r.field] = p
	}
	// Amazon EKS takes a service range of /24 to /12, AKS none larger than /12; GKE /27 to /13.
	if p, ok := ranges["serviceCidr"]; ok && (p.Bits() < 13 || p.Bits() > 24 || !privateRange(p)) {
		inv.add(at+"serviceCidr", p.String()+" cannot be the range of Services", "use a /13 to /24 of a private range")
	}
	if p, ok := ranges["podCidr"]; ok {
		nodes := 0
		for _, n := range s.NodePools {
			nodes += *n.Max
		}
		// Each node takes a /24 for its pods at both clouds.
		if room := 1 << max(24-p.Bits(), 0); p.Bits() > 24 || room < nodes {
			inv.add(at+"podCidr", fmt.Sprintf("%s has room for the pods of %d nodes, and the pools may have %d", p, max(room, 0), nodes), "use a larger range, or lower max")
		}
	}
}

func (j *Job) validateNodePools(all []NodePool, inv *Invalid) {
	if len(all) > 20 {
		inv.add("config.spec.nodePools", fmt.Sprintf("there are %d", len(all)), "use 20 at most")
	}
	seen := map[string]bool{}
	for i, n := range all {
		at := fmt.Sprintf("config.spec.nodePools[%d].", i)
		if !poolNameRE.MatchString(n.Name) {
			inv.add(at+"name", fmt.Sprintf("%.40q is not a pool's name", n.Name), "use 1 to 12 of a-z and 0-9, starting with a letter")
		}
		if seen[n.Name] {
			inv.add(at+"name", n.Name+" is there twice", "leave one out")
		}
		seen[n.Name] = true
		if *n.Min < 0 || *n.Desired < *n.Min || *n.Max < *n.Desired || *n.Max < 1 || *n.Max > 100 {
			inv.add(at+"desired", fmt.Sprintf("min %d, desired %d, max %d are not in order", *n.Min, *n.Desired, *n.Max), "use 0 <= min <= desired <= max <= 100 and max of 1 or more")
		}
		if n.System(j.Provider) && (*n.Min < 1 || n.Spot) {
			inv.add(at+"min", "the cluster itself runs on the system pool", "use min of 1 or more, and no spot capacity")
		}
		if n.InstanceType != "" && n.Size != nil {
			inv.add(at+"size", "size and instanceType are both given", "give one of them")
		}
		if form := forms[j.Provider]; n.InstanceType != "" && !form.instanceType.MatchString(n.InstanceType) {
			inv.add(at+"instanceType", fmt.Sprintf("%q is not an instance type's name", n.InstanceType), "use one such as "+form.typeExample)
		}
		if n.Size != nil {
			validateSize(*n.Size, at, inv)
		}
		if n.DiskGiB < 30 || n.DiskGiB > 16384 {
			inv.add(at+"diskGiB", fmt.Sprintf("is %d", n.DiskGiB), "use 30 to 16384")
		}
		if n.OS != "" && (j.Provider != AWS || n.OS != OSAL2023 && n.OS != OSBottlerocket) {
			inv.add(at+"os", fmt.Sprintf("%q is not a node image here", n.OS), "AWS: use al2023 or bottlerocket; elsewhere leave it out")
		}
		validateNodeMarks(n, at, inv)
	}
	// Something has to be there for what is not tied to a pool of its own.
	if !slices.ContainsFunc(all, func(n NodePool) bool {
		return *n.Desired > 0 && !n.System(j.Provider) && !slices.ContainsFunc(n.Taints, func(t Taint) bool { return t.Effect != "PreferNoSchedule" })
	}) {
		inv.add("config.spec.nodePools", "no pool has nodes without a taint, so nothing that does not tolerate one would run", "give one pool no taints and desired of 1 or more")
	}
}

func validateNodeMarks(n NodePool, at string, inv *Invalid) {
	for k, v := range n.Labels {
		switch {
		case !labelKeyRE.MatchString(k) || !labelValueRE.MatchString(v):
			inv.add(at+"labels."+k, fmt.Sprintf("%.80q is not a Kubernetes label", k+"="+v), "use at most 63 of letters, digits, - _ . for each, with an optional DNS prefix before the key")
		case reservedLabel(k):
			inv.add(at+"labels."+k, "the prefix belongs to Kubernetes or the cloud", "choose another key")
		}
	}
	for i, t := range n.Taints {
		field := fmt.Sprintf("%staints[%d].", at, i)
		if !labelKeyRE.MatchString(t.Key) || !labelValueRE.MatchString(t.Value) || reservedLabel(t.Key) {
			inv.add(field+"key", fmt.Sprintf("%.80q is not a taint that can be set", t.Key+"="+t.Value), "use a key and value as for labels, outside of kubernetes.io and the cloud's prefixes")
		}
		if !slices.Contains([]string{"NoSchedule", "PreferNoSchedule", "NoExecute"}, t.Effect) {
			inv.add(field+"effect", fmt.Sprintf("%q is not an effect", t.Effect), "use NoSchedule, PreferNoSchedule or NoExecute")
		}
	}
}

// reservedLabel reports whether only Kubernetes or the cloud may set a key.
func reservedLabel(k string) bool {
	prefix, _, ok := strings.Cut(k, "/")
	if !ok {
		return false
	}
	for _, p := range []string{"kubernetes.io", "k8s.io", "eks.amazonaws.com", "cloud.google.com", "gke.io", "azure.com"} {
		if prefix == p || strings.HasSuffix(prefix, "."+p) {
			return true
		}
	}
	return false
}

func (j *Job) validateComponents(all []ComponentSpec, inv *Invalid) {
	seen := map[string]bool{}
	for i, c := range all {
		at := fmt.Sprintf("config.spec.components[%d].", i)
		c.validate(at, inv)
		if key := c.Namespace + "/" + c.Release; seen[key] {
			inv.add(at+"release", c.Release+" is there twice", "leave one out, or give it a release name of its own")
		} else {
			seen[key] = true
		}
	}
}

// validate checks what of a component needs no catalogue.
func (c ComponentSpec) validate(at string, inv *Invalid) {
	if !componentNameRE.MatchString(c.Name) {
		inv.add(at+"name", fmt.Sprintf("%.60q is not a component's name", c.Name), "use a name from GET /catalog/components")
	}
	if c.Release != "" && c.Release != c.Name && !componentNameRE.MatchString(c.Release) {
		inv.add(at+"release", fmt.Sprintf("%.60q is not a release's name", c.Release), "use 1 to 53 of a-z, 0-9 and hyphen")
	}
	if c.Namespace != "" && !nameRE.MatchString(c.Namespace) {
		inv.add(at+"namespace", fmt.Sprintf("%.60q is not a namespace", c.Namespace), "use 1 to 63 of a-z, 0-9 and hyphen, starting with a letter")
	}
	if slices.Contains([]string{"kube-system", "kube-public", "kube-node-lease", "default"}, c.Namespace) {
		inv.add(at+"namespace", c.Namespace+" is the cluster's own", "choose another one")
	}
	if v := bytes.TrimSpace(c.Values); len(v) > 0 && (v[0] != '{' || !json.Valid(v)) {
		inv.add(at+"values", "is not an object", "give Helm values as an object")
	}
}

// validateComponentJob checks what of a component job's spec needs neither
// catalogue nor cloud.
func (j *Job) validateComponentJob(s ComponentJobSpec, inv *Invalid) {
	if j.Mode != ModeCreate {
		inv.add("mode", fmt.Sprintf("%q is not a mode of components", j.Mode), "leave it out")
	}
	if s.SpaceID == "" {
		inv.add("config.spec.spaceId", "is missing", "name a space of type kubernetes: GET /spaces")
	}
	s.Component.validate("config.spec.component.", inv)
}
