package gcp

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// noFreeBlocks is why one of Google's services cannot put something into a network whose allocated ranges are used up.
const noFreeBlocks = "Failed to create subnetwork. Couldn't find free blocks in allocated IP ranges. Please allocate new ranges for this service provider."

// connection is the private connection of a network, if there is one.
func (s *serviceNetworking) connection(network string) *connection {
	c := s.st.Connections[network]
	if c == nil || !s.alive(c) {
		return nil
	}
	return c
}

// allocate finds a free block of a size in the allocated ranges of a network, or in one of them alone.
func (s *serviceNetworking) allocate(network, only string, bits int) (netip.Prefix, bool) {
	var taken []netip.Prefix
	for _, f := range s.cloud.hooks.producerBlocks {
		for _, b := range f(network) {
			if p, err := netip.ParsePrefix(b); err == nil {
				taken = append(taken, p)
			}
		}
	}
	c := s.connection(network)
	if c == nil {
		return netip.Prefix{}, false
	}
	for _, name := range c.Ranges {
		if only != "" && name != lastPart(only) {
			continue
		}
		a := s.cloud.compute.at("projects/" + segmentAfter(network, "projects") + "/global/addresses/" + name)
		if a == nil {
			continue
		}
		r, err := netip.ParsePrefix(fmt.Sprintf("%s/%.0f", str(a.Doc, "address"), num(a.Doc, "prefixLength")))
		if err != nil {
			continue
		}
		if p, ok := freeBlock(r, bits, taken); ok {
			return p, true
		}
	}
	return netip.Prefix{}, false
}

// freeBlock is the first block of a size in a range that overlaps nothing.
func freeBlock(r netip.Prefix, bits int, taken []netip.Prefix) (netip.Prefix, bool) {
	if bits < r.Bits() || !r.Addr().Is4() {
		return netip.Prefix{}, false
	}
	first := r.Addr().As4()
	base := binary.BigEndian.Uint32(first[:])
next:
	for i := range uint32(1) << (bits - r.Bits()) {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], base+i<<(32-bits))
		p := netip.PrefixFrom(netip.AddrFrom4(b), bits)
		for _, t := range taken {
			if t.Overlaps(p) {
				continue next
			}
		}
		return p, true
	}
	return netip.Prefix{}, false
}
