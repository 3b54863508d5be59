package gcp

import (
	"net/netip"
	"slices"
	"strings"
)

// settleNetwork finds the network and the subnetwork of a cluster.
func (s *container) settleNetwork(r *request, c *cluster) error {
	if !s.cloud.hooksEnabled(c.project(), "compute.googleapis.com") {
		return disabledService(&api{host: "compute.googleapis.com"}, r.Project)
	}
	config := subOf(c.Doc, "networkConfig")
	asked := orText(str(c.Doc, "network"), "default")
	path := s.pathOf(c, asked, "global/networks/")
	network := s.cloud.compute.at(path)
	if network == nil || network.Dropping || network.Making {
		return s.containerInvalid("Network %q does not exist.", asked)
	}
	name := str(c.Doc, "subnetwork")
	if name == "" {
		if !truth(network.Doc, "autoCreateSubnetworks") {
			return s.containerInvalid("Network %q requires a subnetwork to be specified: it is in custom subnet mode.", network.name())
		}
		name = network.name()
	}
	subnet := s.cloud.compute.at(s.pathOf(c, name, "regions/"+c.region()+"/subnetworks/"))
	switch {
	case subnet == nil || subnet.Dropping || subnet.Making:
		return s.containerInvalid("Subnetwork %q does not exist.", s.pathOf(c, name, "regions/"+c.region()+"/subnetworks/"))
	case subnet.region() != c.region():
		return s.containerInvalid("Subnetwork %q is not in the region %q.", subnet.Path, c.region())
	case s.cloud.compute.networkOf(subnet) != path:
		return s.containerInvalid("Subnetwork %q is not valid for Network %q.", subnet.Path, network.name())
	case slices.Contains(proxyOnly, str(subnet.Doc, "purpose")):
		return s.containerInvalid("Subnetwork %q cannot hold nodes: its purpose is %s.", subnet.Path, str(subnet.Doc, "purpose"))
	}
	config["network"], config["subnetwork"] = path, subnet.Path
	c.Doc["network"], c.Doc["subnetwork"] = network.name(), subnet.name()
	return nil
}

// pathOf reads a name, a path or a link of an object of Compute Engine; place is where a name alone is.
func (s *container) pathOf(c *cluster, text, place string) string {
	if p := s.cloud.pathOfLink(c.project(), text); p != "" {
		return p
	}
	return "projects/" + c.project() + "/" + place + text
}

func (s *container) networkPath(c *cluster) string {
	return str(sub(c.Doc, "networkConfig"), "network")
}
func (s *container) subnetPath(c *cluster) string {
	return str(sub(c.Doc, "networkConfig"), "subnetwork")
}

// servicesManaged is the range that GKE gives to Services when none is asked for ("GKE-managed Services range"); it is the same in
// every cluster.
const servicesManaged = "34.118.224.0/20"

// The sizes of ranges ("Plan IP addresses for GKE").
const (
	podBits     = 14 // when nothing is said
	maxPodBits  = 21 // the smallest range of pods
	minPodBits  = 9
	maxServices = 27 // the smallest range of services
)

// settleRanges finds the ranges of pods and services: secondary ranges of the subnetwork by name, or new ones.
func (s *container) settleRanges(c *cluster) error {
	policy := subOf(c.Doc, "ipAllocationPolicy")
	if truth(policy, "useRoutes") {
		return s.containerInvalid("Routes-based clusters are not simulated: use IP aliases.")
	}
	policy["useIpAliases"] = true
	setDefault(policy, "stackType", "IPV4")
	pods, services := str(policy, "clusterSecondaryRangeName"), str(policy, "servicesSecondaryRangeName")
	if pods != "" && pods == services {
		return s.containerInvalid("Pod secondary range name (%s) should not be the same as service secondary range name.", pods)
	}
	podRange, err := s.settlePods(c, policy, pods)
	if err != nil {
		return err
	}
	serviceRange := netip.MustParsePrefix(servicesManaged)
	if services != "" {
		if serviceRange, err = s.namedRange(c, "Services", services, maxServices); err != nil {
			return err
		}
	} else if asked := str(policy, "servicesIpv4CidrBlock"); strings.Contains(asked, ".") {
		if serviceRange, err = netip.ParsePrefix(asked); err != nil || serviceRange.Bits() > maxServices {
			return s.containerInvalid("IPAllocationPolicy.services_ipv4_cidr_block %q is invalid.", asked)
		}
	}
	for _, k := range []string{"clusterIpv4Cidr", "clusterIpv4CidrBlock"} {
		policy[k] = podRange.String()
	}
	for _, k := range []string{"servicesIpv4Cidr", "servicesIpv4CidrBlock"} {
		policy[k] = serviceRange.String()
	}
	c.Doc["clusterIpv4Cidr"], c.Doc["servicesIpv4Cidr"] = podRange.String(), serviceRange.String()
	return nil
}

func (s *container) settlePods(c *cluster, policy Doc, name string) (netip.Prefix, error) {
	if name != "" {
		if str(policy, "clusterIpv4CidrBlock") != "" {
			return netip.Prefix{}, s.containerInvalid("IPAllocationPolicy.cluster_ipv4_cidr_block and cluster_secondary_range_name may not be specified together.")
		}
		return s.namedRange(c, "Pod", name, maxPodBits)
	}
	asked, bits := orText(str(policy, "clusterIpv4CidrBlock"), str(c.Doc, "clusterIpv4Cidr")), podBits
	network := s.cloud.compute.at(s.networkPath(c))
	if strings.HasPrefix(asked, "/") {
		if bits = atoi(asked[1:]); bits < minPodBits || bits > maxPodBits {
			return netip.Prefix{}, s.containerInvalid("IPAllocationPolicy.cluster_ipv4_cidr_block %q is invalid: it must be between /%d and /%d.", asked, minPodBits, maxPodBits)
		}
	} else if asked != "" {
		p, err := netip.ParsePrefix(asked)
		if err != nil || p.Masked() != p || p.Bits() < minPodBits || p.Bits() > maxPodBits {
			return p, s.containerInvalid("IPAllocationPolicy.cluster_ipv4_cidr_block %q is invalid.", asked)
		}
		for _, u := range s.cloud.compute.rangesIn(network.Path) {
			if u.prefix.Overlaps(p) {
				return p, s.containerInvalid("The CIDR block %q conflicts with %s.", asked, u.what)
			}
		}
		return p, nil
	}
	p, ok := s.cloud.compute.freeRange(network, bits)
	if !ok {
		return p, s.containerInvalid("Failed to find a free /%d in the network %q for the pods.", bits, network.name())
	}
	return p, nil
}

// namedRange finds a secondary range of the cluster's subnetwork. Each belongs to one cluster: those of pods and those of services
// of other clusters are refused.
func (s *container) namedRange(c *cluster, what, name string, smallest int) (netip.Prefix, error) {
	subnet := s.cloud.compute.at(s.subnetPath(c))
	for _, second := range docs(subnet.Doc, "secondaryIpRanges") {
		if str(second, "rangeName") != name {
			continue
		}
		p := netip.MustParsePrefix(str(second, "ipCidrRange")) // checked when it was made
		if p.Bits() > smallest {
			return p, s.containerInvalid("%s secondary range %q is too small: %s; it must be a /%d or larger.", what, name, p, smallest)
		}
		for _, other := range s.st.Clusters {
			if user := s.rangeUse(other, subnet.Path, name); user != "" && (user != what || what == "Services") {
				return p, s.containerInvalid("%s secondary range %q in subnetwork %q is already in use by cluster %q.", what, name, subnet.name(), other.name())
			}
		}
		return p, nil
	}
	return netip.Prefix{}, s.containerInvalid("%s secondary range %q not found in network %q, subnetwork %q.", what, name, selfLink(s.networkPath(c)), subnet.name())
}

// rangeUse is what a cluster uses a secondary range for: Pod, Services or nothing.
func (s *container) rangeUse(c *cluster, subnet, name string) string {
	policy := sub(c.Doc, "ipAllocationPolicy")
	switch {
	case s.subnetPath(c) != subnet:
	case str(policy, "clusterSecondaryRangeName") == name || slices.ContainsFunc(c.Pools, func(p *nodePool) bool { return str(sub(p.Doc, "networkConfig"), "podRange") == name }):
		return "Pod"
	case str(policy, "servicesSecondaryRangeName") == name:
		return "Services"
	}
	return ""
}

// subnetRangeUser is the cluster that uses a secondary range.
func (s *container) subnetRangeUser(subnet, name string) string {
	for _, c := range s.inOrder("", "") {
		if s.rangeUse(c, subnet, name) != "" {
			return c.Path
		}
	}
	return ""
}

// placePodRange gives the subnetwork the secondary range of a cluster that brought none.
func (s *container) placePodRange(c *cluster) {
	policy := sub(c.Doc, "ipAllocationPolicy")
	if str(policy, "clusterSecondaryRangeName") == "" {
		c.PodRange = "gke-" + c.name() + "-pods-" + c.Hash
		policy["clusterSecondaryRangeName"] = c.PodRange
		s.changeRanges(c, append(list(s.cloud.compute.at(s.subnetPath(c)).Doc, "secondaryIpRanges"), Doc{"rangeName": c.PodRange, "ipCidrRange": str(c.Doc, "clusterIpv4Cidr")}))
	}
	for _, p := range c.Pools {
		s.fillPoolNetwork(c, p)
	}
}

// changeRanges replaces the secondary ranges of the cluster's subnetwork.
func (s *container) changeRanges(c *cluster, ranges []any) {
	subnet := s.cloud.compute.at(s.subnetPath(c))
	if subnet == nil {
		return
	}
	if subnet.Doc["secondaryIpRanges"] = ranges; len(ranges) == 0 {
		delete(subnet.Doc, "secondaryIpRanges")
	}
	delete(subnet.Doc, "fingerprint")
	subnet.Doc["fingerprint"] = fingerprint(subnet.Doc)
	s.cloud.compute.subnetChanged(subnet)
}

// dropPodRange takes it away again.
func (s *container) dropPodRange(c *cluster) {
	subnet := s.cloud.compute.at(s.subnetPath(c))
	if c.PodRange == "" || subnet == nil {
		return
	}
	s.changeRanges(c, slices.DeleteFunc(list(subnet.Doc, "secondaryIpRanges"), func(v any) bool {
		d, _ := v.(map[string]any)
		return str(d, "rangeName") == c.PodRange
	}))
}
