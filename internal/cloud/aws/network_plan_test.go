package aws

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPlanSubnets(t *testing.T) {
	got, err := planSubnets("10.40.0.0/16", []string{"us-east-1a", "us-east-1b", "us-east-1c"})
	if err != nil {
		t.Fatal(err)
	}
	var text []string
	for _, z := range got {
		text = append(text, fmt.Sprint(z.Key, " ", z.Zone, " ", z.Private, " ", z.Public))
	}
	want := []string{
		"a us-east-1a 10.40.0.0/18 10.40.192.0/20",
		"b us-east-1b 10.40.64.0/18 10.40.208.0/20",
		"c us-east-1c 10.40.128.0/18 10.40.224.0/20",
	}
	if d := cmp.Diff(want, text); d != "" {
		t.Error(d)
	}
}

// Every range that a request may ask for holds subnets that AWS takes, inside
// the range, apart from each other, and with room for a load balancer.
func TestPlanSubnetsOfEverySize(t *testing.T) {
	for bits := 16; bits <= 24; bits++ {
		for zones := 1; zones <= 3; zones++ {
			p := netip.PrefixFrom(netip.MustParseAddr("172.20.240.0"), bits).Masked()
			plan, err := planSubnets(p.String(), []string{"a", "b", "c"}[:zones])
			if err != nil {
				t.Fatalf("%s in %d zones: %v", p, zones, err)
			}
			var all []netip.Prefix
			for _, z := range plan {
				all = append(all, z.Public, z.Private)
				if hosts(z.Public) < 9 {
					t.Errorf("%s: public subnet %s has %d addresses, too few for a load balancer and a NAT gateway", p, z.Public, hosts(z.Public))
				}
			}
			for i, a := range all {
				if !p.Contains(a.Addr()) || a.Bits() < 16 || a.Bits() > 28 || a != a.Masked() {
					t.Errorf("%s: subnet %s is not one that AWS takes there", p, a)
				}
				for _, b := range all[i+1:] {
					if a.Overlaps(b) {
						t.Errorf("%s: %s overlaps %s", p, a, b)
					}
				}
			}
		}
	}
}

// Failure kind J10: what cannot be laid out is refused, with the reason.
func TestPlanSubnetsRefuses(t *testing.T) {
	two := []string{"a", "b"}
	for _, c := range []struct {
		cidr  string
		zones []string
	}{
		{"10.0.0.0/28", two}, {"10.0.0.0/27", two}, {"10.0.0.0/25", two}, {"10.0.0.0/15", two}, {"10.0.0.0/8", two},
		{"fd00::/56", two}, {"10.0.0.1/16", two}, {"", two}, {"10.0.0.0/16", nil}, {"10.0.0.0/16", []string{"a", "b", "c", "d"}},
	} {
		if got, err := planSubnets(c.cidr, c.zones); err == nil {
			t.Errorf("planSubnets(%q, %d zones) = %v", c.cidr, len(c.zones), got)
		}
	}
}
