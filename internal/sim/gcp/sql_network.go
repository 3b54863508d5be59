package gcp

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/zopday/provisioner/internal/sim"
)

// checkNetwork refuses a private network that is not there or has no private connection ("Configure private IP";
// terraform-google-modules/terraform-google-sql-db#281 has the words).
func (s *cloudSQL) checkNetwork(r *request, in *sqlInstance) error {
	ip := in.ip()
	text := str(ip, "privateNetwork")
	if text == "" {
		return nil
	}
	path := s.cloud.pathOfLink(in.project(), text)
	if path == "" || collectionOf(path) != "networks" {
		return sqlInvalid("Invalid private network: %s. It must be in the form projects/{project}/global/networks/{network}.", text)
	}
	if s.cloud.compute.at(path) == nil {
		return sqlInvalid("The network %s does not exist.", path)
	}
	r.Touch(path)
	ip["privateNetwork"] = path
	wrong := func(why string) error {
		return sqlInvalid("Incorrect Service Networking config for instance: %s:%s:%s.", in.project(), in.name(), why)
	}
	c := s.cloud.peering.connection(path)
	if c == nil {
		if s.cloud.peering.st.Connections[path] != nil {
			return wrong("NETWORK_PEERING_DELETED")
		}
		return wrong("NETWORK_NOT_PEERED")
	}
	if name := str(ip, "allocatedIpRange"); name != "" && !slices.Contains(c.Ranges, lastPart(name)) {
		return sqlInvalid("The allocated IP range %s is not part of the private connection of network %s.", name, path)
	}
	return nil
}

// place gives an instance its place in the network of Google's services: one /24 for all instances of a region. It answers why there is
// none.
func (s *cloudSQL) place(in *sqlInstance) (trouble string) {
	network := str(in.ip(), "privateNetwork")
	if network == "" {
		return ""
	}
	c := s.cloud.peering.connection(network)
	if c == nil {
		return "Failed to create subnetwork. Please create Service Networking connection with service 'servicenetworking.googleapis.com' from consumer project '" +
			s.cloud.number(segmentAfter(network, "projects")) + "' network '" + lastPart(network) + "' again."
	}
	for _, other := range s.inOrder("") {
		if other != in && other.Block != "" && str(other.ip(), "privateNetwork") == network && other.region() == in.region() {
			in.Block = other.Block
			return ""
		}
	}
	block, ok := s.cloud.peering.allocate(network, str(in.ip(), "allocatedIpRange"), 24)
	if !ok {
		return noFreeBlocks
	}
	in.Block = block.String()
	return ""
}

// blocks are the parts of the allocated ranges of a network that instances are in.
func (s *cloudSQL) blocks(network string) []string {
	var out []string
	for _, in := range s.inOrder("") {
		if in.Block != "" && str(in.ip(), "privateNetwork") == network {
			out = append(out, in.Block)
		}
	}
	for _, l := range s.st.Lingering {
		if l.Block != "" && l.Network == network && s.cloud.World.Now().Before(l.Until) {
			out = append(out, l.Block)
		}
	}
	return out
}

// admits says whether a connection gets through to an instance: through its private address from inside the network, through its public
// one from the authorised networks.
func (s *cloudSQL) admits(path string, serial int, from sim.KubeCaller) bool {
	s.cloud.World.Lock()
	defer s.cloud.World.Unlock()
	in := s.st.Instances[path]
	if in == nil || in.Serial != serial {
		return false
	}
	if from.Inside && str(in.ip(), "privateNetwork") != "" {
		return true
	}
	return truth(in.ip(), "ipv4Enabled") && in.authorized(func(cidr string) bool {
		if p, err := netip.ParsePrefix(cidr); err == nil {
			return p.Contains(from.IP)
		}
		a, err := netip.ParseAddr(strings.TrimSpace(cidr))
		return err == nil && a == from.IP
	})
}
