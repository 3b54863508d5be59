package provision

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/job"
)

func TestPriceTable(t *testing.T) {
	t.Parallel()
	p := awsPrices()
	if _, err := time.Parse(time.DateOnly, p.AsOf); err != nil || p.Currency != "USD" || p.Source == "" {
		t.Errorf("the table is not dated: %+v", p.AsOf)
	}
	if len(p.Regions) < 3 {
		t.Fatalf("%d regions", len(p.Regions))
	}
	for name, r := range p.Regions {
		for what, v := range map[string]*float64{"gp3": r.GP3GiBMonth, "NAT hour": r.NATHour, "NAT GB": r.NATGB, "ALB": r.ALBHour, "LCU": r.LCUHour, "NLB": r.NLBHour, "NLCU": r.NLCUHour, "IPv4": r.IPv4Hour} {
			if v == nil || *v <= 0 || *v > 1 {
				t.Errorf("%s: %s is not a price", name, what)
			}
		}
		for typ, v := range r.InstanceHour {
			if v <= 0 || v > 50 {
				t.Errorf("%s: %s costs %v", name, typ, v)
			}
		}
		// The type that the default size resolves to has to be priced everywhere.
		if r.InstanceHour["t3.medium"] == 0 {
			t.Errorf("%s: no price for t3.medium", name)
		}
	}
}

func costOfSpec(t *testing.T, region, mode, spec, instanceType string) Cost {
	t.Helper()
	j := &job.Job{ResourceType: job.VM, Provider: job.AWS, Mode: job.Mode(mode), Region: region, Config: job.Config{Spec: []byte(spec)}}
	c, err := costOf(j, job.InfraConfig{InstanceType: instanceType})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCost(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, region, mode, spec, instanceType string
		from, to                               float64
		priced, total                          int
		says                                   string
	}{
		{"two VMs with a load balancer", "us-east-1", "create", `{"loadBalancer":{"plainHTTP":true}}`, "t3.medium",
			// 2 × 0.0416 × 730 + 2 × 30 × 0.08 + 0.045 × 730 + 3 × 0.005 × 730 + 0.0225 × 730, and 100 GB and one LCU on top
			60.74 + 4.80 + 32.85 + 10.95 + 16.43, 60.74 + 4.80 + 32.85 + 4.50 + 10.95 + 16.43 + 5.84, 7, 7, ""},
		{"without one", "us-east-1", "create", `{}`, "t3.medium", 60.74 + 4.80 + 32.85 + 3.65, 60.74 + 4.80 + 32.85 + 4.50 + 3.65, 5, 5, ""},
		{"a NAT in each zone", "us-east-1", "create", `{"network":{"zones":3,"nat":"per_zone"}}`, "t3.medium", 60.74 + 4.80 + 98.55 + 10.95, 60.74 + 4.80 + 98.55 + 4.50 + 10.95, 5, 5, ""},
		{"a group from its least to its most", "us-west-2", "create", `{"pool":{"mode":"asg","min":1,"desired":2,"max":4}}`, "t4g.medium",
			24.53 + 2.40 + 32.85 + 3.65, 98.11 + 9.60 + 32.85 + 4.50 + 3.65, 5, 5, "min of 1 VMs to its max of 4"},
		{"inside a network that exists", "us-east-1", "create_in_existing", `{"existing":{"networkId":"vpc-1","subnetIds":["a"]}}`, "t3.medium", 60.74 + 4.80, 60.74 + 4.80, 2, 2, ""},
		{"a type without a price", "us-east-1", "create", `{}`, "x9.mega", 4.80 + 32.85 + 3.65, 4.80 + 32.85 + 4.50 + 3.65, 4, 5, "The rest comes on top"},
		{"a type that is not known", "us-east-1", "create", `{}`, "", 4.80 + 32.85 + 3.65, 4.80 + 32.85 + 4.50 + 3.65, 4, 5, "not priced"},
		{"a region without prices", "sa-east-1", "create", `{}`, "t3.medium", 0, 0, 0, 5, "Not priced"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := costOfSpec(t, tc.region, tc.mode, tc.spec, tc.instanceType)
			if math.Abs(c.From-tc.from) > .005 || math.Abs(c.To-tc.to) > .005 {
				t.Errorf("%.2f to %.2f, want %.2f to %.2f: %+v", c.From, c.To, tc.from, tc.to, c.Items)
			}
			if c.Priced != tc.priced || c.Total != tc.total {
				t.Errorf("%d of %d priced", c.Priced, c.Total)
			}
			said := c.Summary + strings.Join(c.Assumptions, "")
			for _, i := range c.Items {
				said += i.Arithmetic
				// Never a bare zero: what has no price says so, and what has one shows it.
				if (i.UnitPrice == nil) != strings.HasPrefix(i.Arithmetic, "not priced") || (i.UnitPrice == nil) != (i.From == nil) {
					t.Errorf("%s: %+v", i.Name, i)
				}
			}
			if !strings.Contains(said, tc.says) {
				t.Errorf("it does not say %q: %s", tc.says, said)
			}
		})
	}
	adopt := costOfSpec(t, "us-east-1", "adopt", `{"adopt":{"name":"x"}}`, "")
	if adopt.Total != 0 || !strings.Contains(adopt.Summary, "adds nothing") {
		t.Errorf("adopt: %+v", adopt)
	}
}

func TestCostArithmeticIsShown(t *testing.T) {
	t.Parallel()
	c := costOfSpec(t, "us-east-1", "create", `{"pool":{"mode":"asg","min":1,"desired":2,"max":4}}`, "t3.medium")
	if got, want := c.Items[0].Arithmetic, "$0.0416 an hour × 1 × 730 hours = $30.37 to $0.0416 an hour × 4 × 730 hours = $121.47"; got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}
