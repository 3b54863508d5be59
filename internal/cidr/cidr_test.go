package cidr

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/zopday/provisioner/internal/job"
)

var allTiers = []string{job.TierPublic, job.TierPrivate, job.TierDatabase}

func used(cidr, by string, hard bool) Used {
	return Used{Prefix: netip.MustParsePrefix(cidr), By: by, Hard: hard}
}

func TestLayout(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cloud job.Provider
		req   Request
		want  []string
	}{
		"aws": {job.AWS, Request{CIDR: "10.40.0.0/16", Zones: []string{"z1", "z2", "z3"}, Tiers: allTiers}, []string{
			"public-a z1 10.40.192.0/20", "public-b z2 10.40.208.0/20", "public-c z3 10.40.224.0/20",
			"private-a z1 10.40.0.0/18", "private-b z2 10.40.64.0/18", "private-c z3 10.40.128.0/18",
			"database-a z1 10.40.240.0/22", "database-b z2 10.40.244.0/22", "database-c z3 10.40.248.0/22",
		}},
		"gcp": {job.GCP, Request{CIDR: "10.40.0.0/16", Tiers: allTiers}, []string{
			"public  10.40.192.0/19", "private  10.40.0.0/17", "database  10.40.128.0/18",
		}},
		"aws, the smallest with a database tier": {job.AWS, Request{CIDR: "10.40.0.0/22", Zones: []string{"z1"}, Tiers: []string{job.TierDatabase}}, []string{"database-a z1 10.40.3.192/28"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plan, bad := Plan(For(c.cloud), c.req)
			if bad != nil {
				t.Fatal(bad)
			}
			var got []string
			for _, s := range plan.Subnets {
				got = append(got, fmt.Sprintf("%s %s %s", s.Key, s.Zone, s.CIDR))
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	two := []string{"z1", "z2"}
	for name, c := range map[string]struct {
		cloud job.Provider
		req   Request
		field string
		says  string
	}{
		"host bits":                  {job.AWS, Request{CIDR: "10.40.1.0/16"}, "cidr", "10.40.0.0/16"},
		"no range":                   {job.AWS, Request{CIDR: "ten"}, "cidr", "not an IPv4 range"},
		"IPv6":                       {job.AWS, Request{CIDR: "fd00::/48"}, "cidr", "not an IPv4 range"},
		"larger than AWS takes":      {job.AWS, Request{CIDR: "10.0.0.0/12"}, "cidr", "AWS takes /16"},
		"link-local":                 {job.AWS, Request{CIDR: "169.254.0.0/17"}, "cidr", "reserves"},
		"Azure's own address":        {job.Azure, Request{CIDR: "168.63.0.0/16"}, "cidr", "168.63.129.16/32"},
		"Google's restricted range":  {job.GCP, Request{CIDR: "199.36.153.0/24"}, "cidr", "199.36.153.4/30"},
		"overlaps a peer":            {job.AWS, Request{CIDR: "10.40.0.0/16", InUse: []Used{used("10.40.128.0/20", "peer office", true)}}, "cidr", "peer office"},
		"too small for its tiers":    {job.AWS, Request{CIDR: "10.40.0.0/24", Zones: two, Tiers: allTiers}, "cidr", "database subnets would be /30"},
		"outside of the network":     {job.AWS, Request{CIDR: "10.41.0.0/20", Within: prefixes("10.40.0.0/16")}, "cidr", "not within"},
		"secondary in the first":     {job.AWS, Request{CIDR: "10.40.0.0/16", Secondary: []string{"10.40.4.0/22"}}, "secondaryCidrs[0]", "own range"},
		"secondary twice":            {job.AWS, Request{CIDR: "10.40.0.0/16", Secondary: []string{"10.41.0.0/16", "10.41.8.0/21"}}, "secondaryCidrs[1]", "secondary range 10.41.0.0/16"},
		"pods in the network":        {job.GCP, Request{CIDR: "10.40.0.0/16", Ranges: []job.NamedRange{{Name: "pods", CIDR: "10.40.4.0/22"}}}, "secondaryRanges[0].cidr", "own range"},
		"pods and services":          {job.GCP, Request{CIDR: "10.40.0.0/16", Ranges: []job.NamedRange{{Name: "pods", CIDR: "10.60.0.0/16"}, {Name: "services", CIDR: "10.60.4.0/22"}}}, "secondaryRanges[1].cidr", "secondary range pods"},
		"a range's name twice":       {job.GCP, Request{CIDR: "10.40.0.0/16", Ranges: []job.NamedRange{{Name: "pods"}, {Name: "pods"}}}, "secondaryRanges[1].name", "twice"},
		"private services in a peer": {job.GCP, Request{CIDR: "10.40.0.0/16", PrivateServices: &job.PrivateServices{CIDR: "10.9.0.0/20"}, InUse: []Used{used("10.9.0.0/16", "peer", true)}}, "privateServices.cidr", "used by peer"},
		"nothing is free":            {job.AWS, Request{Within: prefixes("10.40.0.0/16"), InUse: []Used{used("10.40.0.0/17", "a", true), used("10.40.128.0/17", "b", true)}, Zones: two, Tiers: allTiers}, "cidr", "is free"},
		"four zones":                 {job.AWS, Request{CIDR: "10.40.0.0/16", Zones: []string{"a", "b", "c", "d"}, Tiers: allTiers}, "zones", "4 zones"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plan, bad := Plan(For(c.cloud), c.req)
			if bad == nil {
				t.Fatalf("it was not refused: %+v", plan)
			}
			if bad.Field != at+c.field || !strings.Contains(bad.Message+bad.Fix, c.says) || bad.Fix == "" {
				t.Errorf("refused with %+v; wanted field %s and %q", bad, c.field, c.says)
			}
		})
	}
}

// A proposal keeps clear of everything, and says of what.
func TestProposals(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		req  Request
		want string
	}{
		"nothing in use":       {Request{}, "10.40.0.0/16"},
		"the first in use":     {Request{InUse: []Used{used("10.40.3.0/24", "vpc-1", false)}}, "10.41.0.0/16"},
		"all of 10/8 in use":   {Request{InUse: []Used{used("10.0.0.0/8", "vpn", true)}}, "172.16.0.0/16"},
		"Docker's is left out": {Request{InUse: []Used{used("10.0.0.0/8", "vpn", true), used("172.16.0.0/16", "vpc-1", false)}}, "172.18.0.0/16"},
		"within a network":     {Request{Within: prefixes("10.9.0.0/16"), InUse: []Used{used("10.9.0.0/18", "subnet-1", true)}}, "10.9.64.0/18"},
		"between subnets":      {Request{Within: prefixes("10.9.0.0/16"), InUse: []Used{used("10.9.0.0/18", "subnet-1", true), used("10.9.70.0/24", "subnet-2", true)}}, "10.9.128.0/18"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.req.Zones, c.req.Tiers = []string{"z1", "z2"}, allTiers
			plan, bad := Plan(For(job.AWS), c.req)
			if bad != nil {
				t.Fatal(bad)
			}
			if plan.CIDR != c.want {
				t.Errorf("proposed %s, wanted %s", plan.CIDR, c.want)
			}
			for _, u := range c.req.InUse {
				if !strings.Contains(strings.Join(plan.Notes, " "), u.By) {
					t.Errorf("the notes do not name %s: %v", u.By, plan.Notes)
				}
			}
		})
	}
}

// Whatever is in use, no range of a plan overlaps another nor what is hard in
// use, a proposal overlaps nothing at all, and the same gives the same.
func TestPlansNeverOverlap(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		cloud := rapid.SampledFrom([]job.Provider{job.AWS, job.GCP, job.Azure}).Draw(t, "cloud")
		prefix := rapid.Custom(func(t *rapid.T) netip.Prefix {
			a := netip.AddrFrom4([4]byte{rapid.SampledFrom([]byte{10, 172, 192}).Draw(t, "a"), rapid.Byte().Draw(t, "b"), rapid.Byte().Draw(t, "c"), 0})
			return netip.PrefixFrom(a, rapid.IntRange(9, 24).Draw(t, "bits")).Masked()
		})
		req := Request{Zones: []string{"z1", "z2", "z3"}[:rapid.IntRange(2, 3).Draw(t, "zones")], Tiers: allTiers}
		for range rapid.IntRange(0, 12).Draw(t, "in use") {
			req.InUse = append(req.InUse, Used{Prefix: prefix.Draw(t, "used"), By: "x", Hard: rapid.Bool().Draw(t, "hard")})
		}
		if rapid.Bool().Draw(t, "asked") {
			req.CIDR = prefix.Draw(t, "cidr").String()
		}
		if cloud == job.GCP {
			req.Ranges = []job.NamedRange{{Name: "pods"}, {Name: "services"}}
			req.PrivateServices = &job.PrivateServices{}
		}
		plan, bad := Plan(For(cloud), req)
		if bad != nil {
			if bad.Field == "" || bad.Message == "" || bad.Fix == "" {
				t.Fatalf("a refusal without words: %+v", bad)
			}
			return
		}
		if again, _ := Plan(For(cloud), req); !cmp.Equal(plan, again) {
			t.Fatal("asked again, it plans otherwise")
		}
		whole := netip.MustParsePrefix(plan.CIDR)
		var all []netip.Prefix
		for _, s := range plan.Subnets {
			c := netip.MustParsePrefix(s.CIDR)
			if !holds(whole, c) {
				t.Fatalf("%s is outside of %s", c, whole)
			}
			all = append(all, c)
		}
		outside := []netip.Prefix{whole}
		for _, r := range plan.SecondaryRanges {
			outside = append(outside, netip.MustParsePrefix(r.CIDR))
		}
		if plan.PrivateServices != "" {
			outside = append(outside, netip.MustParsePrefix(plan.PrivateServices))
		}
		for _, group := range [][]netip.Prefix{all, outside} {
			for i, a := range group {
				for _, b := range group[:i] {
					if a.Overlaps(b) {
						t.Fatalf("%s overlaps %s", a, b)
					}
				}
			}
		}
		for i, c := range outside {
			for _, u := range req.InUse {
				proposed := i > 0 || req.CIDR == ""
				if c.Overlaps(u.Prefix) && (u.Hard || proposed) {
					t.Fatalf("%s overlaps %s (hard: %v, proposed: %v)", c, u.Prefix, u.Hard, proposed)
				}
			}
		}
	})
}

func TestFree(t *testing.T) {
	t.Parallel()
	spaces := prefixes("10.244.0.0/16", "10.0.0.0/8")
	for _, c := range []struct {
		bits  int
		inUse []Used
		want  string
	}{
		{16, nil, "10.244.0.0/16"},
		{14, nil, "10.0.0.0/14"}, // the first space is too small
		{16, []Used{used("10.244.9.0/24", "x", false)}, "10.0.0.0/16"},
		{20, []Used{used("10.244.0.0/17", "x", true)}, "10.244.128.0/20"},
		{16, []Used{used("10.0.0.0/8", "x", false)}, ""},
	} {
		got, ok := Free(For(job.Azure), spaces, c.bits, c.inUse)
		if ok != (c.want != "") || ok && got.String() != c.want {
			t.Errorf("/%d beside %v: %v, %v, want %q", c.bits, c.inUse, got, ok, c.want)
		}
	}
}
