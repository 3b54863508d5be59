package aws

import (
	"net/netip"

	"github.com/zopday/provisioner/internal/cidr"
)

// zoneKeys are the keys of the zones of a network, part of the objects' keys.
var zoneKeys = cidr.ZoneKeys

// hosts is how many addresses of a subnet can be given to machines: AWS keeps
// the first four and the last one ("Subnet CIDR blocks").
func hosts(p netip.Prefix) int { return 1<<(32-p.Bits()) - cidr.For("aws").Kept }
