package provision

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"

	"github.com/zopday/provisioner/internal/job"
)

//go:embed prices.json
var pricesJSON []byte

// prices is the dated price table. What it does not have is not priced.
type prices struct {
	AsOf     string                  `json:"asOf"`
	Currency string                  `json:"currency"`
	Source   string                  `json:"source"`
	Note     string                  `json:"note"`
	Regions  map[string]regionPrices `json:"regions"`
}

type regionPrices struct {
	GP3GiBMonth  *float64           `json:"gp3GiBMonth"`
	NATHour      *float64           `json:"natHour"`
	NATGB        *float64           `json:"natGB"`
	ALBHour      *float64           `json:"albHour"`
	LCUHour      *float64           `json:"lcuHour"`
	NLBHour      *float64           `json:"nlbHour"`
	NLCUHour     *float64           `json:"nlcuHour"`
	EndpointHour *float64           `json:"endpointHour"` // interface endpoint, in one zone
	ClusterHour  *float64           `json:"clusterHour"`  // control plane of a cluster
	ExtendedHour *float64           `json:"extendedHour"` // what extended support of its version adds
	ZoneMonth    *float64           `json:"zoneMonth"`    // hosted zone
	IPv4Hour     *float64           `json:"publicIPv4Hour"`
	InstanceHour map[string]float64 `json:"instanceHour"`
}

var awsPrices = sync.OnceValue(func() prices {
	var p prices
	if err := json.Unmarshal(pricesJSON, &p); err != nil {
		panic("prices.json: " + err.Error()) // embedded, and read by a test
	}
	return p
})

// The assumptions of an estimate.
const (
	hoursAMonth = 730 // as the clouds' own calculators count
	natGBAMonth = 100 // for the upper end of the range
	lcuAMonth   = 1   // likewise: load balancer capacity units, all month
)

// A Cost is what a job's objects cost a month at list price: from what they cost
// by existing, to what they cost with a modest use.
type Cost struct {
	Currency    string     `json:"currency"`
	From        float64    `json:"monthlyFrom" doc:"Sum of the priced items at their least, a month"`
	To          float64    `json:"monthlyTo" doc:"Sum of the priced items at their most, a month"`
	Items       []CostItem `json:"items"`
	Priced      int        `json:"priced" doc:"How many items have a price"`
	Total       int        `json:"total" doc:"How many items there are"`
	Summary     string     `json:"summary" doc:"The range in words, and how much of it is known"`
	AsOf        string     `json:"asOf" doc:"Date of the price table"`
	Source      string     `json:"source"`
	Assumptions []string   `json:"assumptions"`
	NotPriced   []string   `json:"notPriced" doc:"Items without a price, and what is left out on purpose"`
}

// A CostItem is one line of an estimate, with its arithmetic.
type CostItem struct {
	Name       string   `json:"name"`
	UnitPrice  *float64 `json:"unitPrice" doc:"null: not priced"`
	Unit       string   `json:"unit" doc:"What the unit price is for"`
	From       *float64 `json:"monthlyFrom" doc:"null: not priced"`
	To         *float64 `json:"monthlyTo" doc:"null: not priced"`
	Arithmetic string   `json:"arithmetic" doc:"How the figures come about, or \"not priced\" and why"`
}

// an estimate collects items.
type estimate struct {
	cost   Cost
	region string
}

// add prices least to most units of something by the hour, GiB or GB; per is how
// many such units a month has.
func (e *estimate) add(name, unit string, price *float64, least, most, per float64, perName string) {
	item := CostItem{Name: name, Unit: unit, UnitPrice: price}
	e.cost.Total++
	if price == nil {
		item.Arithmetic = "not priced: the table of " + e.cost.AsOf + " has no price for it in " + e.region
		e.cost.NotPriced = append(e.cost.NotPriced, name)
	} else {
		from, to := cents(*price*least*per), cents(*price*most*per)
		item.From, item.To = &from, &to
		e.cost.Priced++
		e.cost.From, e.cost.To = cents(e.cost.From+from), cents(e.cost.To+to)
		item.Arithmetic = sum(*price, unit, least, per, perName, from)
		if most > least {
			item.Arithmetic += " to " + sum(*price, unit, most, per, perName, to)
		}
	}
	e.cost.Items = append(e.cost.Items, item)
}

func sum(price float64, unit string, n, per float64, perName string, total float64) string {
	article := "a"
	if unit == "hour" {
		article = "an"
	}
	s := fmt.Sprintf("$%s %s %s × %s", number(price), article, unit, number(n))
	if perName != "" {
		s += fmt.Sprintf(" × %s %s", number(per), perName)
	}
	return fmt.Sprintf("%s = $%.2f", s, total)
}

func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

func cents(f float64) float64 { return math.Round(f*100) / 100 }

// costOf estimates a job. VMs: instance hourly × count × hours + disk + load
// balancer hourly + NAT, and the public addresses that come with them; networks:
// NAT and endpoints; clusters: control plane and nodes between the pools' bounds.
// resolved is what the checks found, such as the instance types of sizes.
func costOf(j *job.Job, resolved job.InfraConfig) (Cost, error) {
	table := awsPrices()
	var p regionPrices // the table has AWS alone: elsewhere nothing is priced
	if j.Provider == job.AWS {
		p = table.Regions[j.Region]
	}
	e := &estimate{region: j.Region, cost: Cost{
		Currency: table.Currency, AsOf: table.AsOf, Source: table.Source, Items: []CostItem{}, NotPriced: []string{}, Assumptions: []string{},
	}}
	if !j.Owns() {
		e.cost.Summary = "This job makes nothing, so it adds nothing to the bill; what it adopts goes on to cost what it costs."
		return e.cost, nil
	}
	if j.Kind == job.Remediation {
		e.cost.Summary = "A remediation job makes nothing; what stopping a pool saves is estimated by its schedule."
		return e.cost, nil
	}
	if j.ResourceType == job.Component {
		e.cost.Summary = "A component runs on the nodes of its cluster: what it adds to the bill is the load balancers and volumes that it asks for, and the nodes that it fills."
		return e.cost, nil
	}
	e.assume(fmt.Sprintf("%d hours a month, list prices, Linux on demand", hoursAMonth))
	network, err := j.Network()
	if err != nil {
		return Cost{}, err
	}
	left := []string{"data transfer to the internet and between zones", "taxes and discounts"}
	switch j.ResourceType {
	case job.Network:
		spec, err := j.NetworkJob()
		if err != nil {
			return Cost{}, err
		}
		e.network(j, network, nil, p)
		e.networkParts(spec, p)
	case job.Cluster:
		spec, err := j.ClusterSpec()
		if err != nil {
			return Cost{}, err
		}
		e.cluster(spec, resolved.Cluster, p)
		if j.Mode == job.ModeCreate {
			e.network(j, network, nil, p)
		}
		left = append(left, "load balancers and volumes that workloads ask for", "logs and metrics, which are billed by volume")
	case job.Datastore, job.Cache:
		spec, err := j.DatastoreSpec()
		if err != nil {
			return Cost{}, err
		}
		e.datastore(j.ResourceType, spec, resolved.Datastore)
		left = append(left, "backups beyond the size of the disk, and the final snapshot for as long as it is kept", "logs, which are billed by volume")
	default:
		spec, err := j.VMSpec()
		if err != nil {
			return Cost{}, err
		}
		lb, err := j.LoadBalancer()
		if err != nil {
			return Cost{}, err
		}
		e.vms(spec, cmp.Or(resolved.InstanceType, spec.Pool.InstanceType), p)
		if j.Mode == job.ModeCreate || lb != nil {
			e.network(j, network, lb, p)
		}
		if lb != nil {
			e.loadBalancer(*lb, p)
		}
		if lb != nil && lb.DNS != nil {
			left = append(left, "the DNS zone, which you have already")
		}
	}
	if network.FlowLogs != job.FlowLogsNone && j.Mode == job.ModeCreate {
		left = append(left, "flow logs, which are billed by volume")
	}
	e.cost.NotPriced = append(e.cost.NotPriced, left...)
	e.cost.Summary = summary(e.cost)
	return e.cost, nil
}

func (e *estimate) assume(what string) {
	e.cost.Assumptions = append(e.cost.Assumptions, what)
}

func (e *estimate) vms(spec job.VMSpec, instanceType string, p regionPrices) {
	least, most := float64(spec.Pool.VMCount()), float64(spec.Pool.VMCount())
	if spec.Pool.Mode == job.PoolASG && spec.Pool.Min != nil && spec.Pool.Max != nil {
		least, most = float64(*spec.Pool.Min), float64(*spec.Pool.Max)
		e.cost.Assumptions = append(e.cost.Assumptions, fmt.Sprintf("from the group's min of %d VMs to its max of %d", *spec.Pool.Min, *spec.Pool.Max))
	}
	name := "VMs"
	if instanceType != "" {
		name = "VMs, " + instanceType
	}
	var hour *float64
	if v, ok := p.InstanceHour[instanceType]; ok {
		hour = &v
	}
	e.add(name, "hour", hour, least, most, hoursAMonth, "hours")
	disk := float64(spec.Pool.DiskGiB)
	e.add(fmt.Sprintf("disks, %d GiB each", spec.Pool.DiskGiB), "GiB-month", p.GP3GiBMonth, least, most, disk, "GiB")
}

func (e *estimate) network(j *job.Job, network job.NetworkSpec, lb *job.LoadBalancer, p regionPrices) {
	addresses := 0
	if (j.Mode == job.ModeCreate || j.ResourceType == job.Network) && network.NAT != job.NATNone {
		gateways := 1
		if network.NAT == job.NATPerZone && j.Provider == job.AWS {
			gateways = network.Zones
		}
		addresses += gateways
		e.add("NAT gateways", "hour", p.NATHour, float64(gateways), float64(gateways), hoursAMonth, "hours")
		e.add("data through NAT", "GB", p.NATGB, 0, natGBAMonth, 1, "")
		e.assume(fmt.Sprintf("upper end: %d GB a month through NAT", natGBAMonth))
	}
	// A public load balancer has an address in each of its zones.
	if lb != nil && lb.Scheme == job.SchemePublic {
		zones := max(network.Zones, 2)
		if n := len(j.Config.InfraConfig.Zones); n > 0 {
			zones = n
		}
		addresses += zones
	}
	if addresses > 0 {
		e.add("public IPv4 addresses", "hour", p.IPv4Hour, float64(addresses), float64(addresses), hoursAMonth, "hours")
	}
}

// cluster prices a control plane and the nodes of every pool, from its least to
// its most.
func (e *estimate) cluster(spec job.ClusterSpec, resolved job.ClusterInfo, p regionPrices) {
	e.add("control plane", "hour", p.ClusterHour, 1, 1, hoursAMonth, "hours")
	if resolved.Extended {
		e.add("extended support of the version", "hour", p.ExtendedHour, 1, 1, hoursAMonth, "hours")
	}
	for _, n := range spec.NodePools {
		instanceType := n.InstanceType
		if pool := resolved.Pool(n.Name); pool != nil {
			instanceType = cmp.Or(pool.InstanceType, instanceType)
		}
		var hour *float64
		if v, ok := p.InstanceHour[instanceType]; ok && !n.Spot {
			hour = &v
		}
		name := "nodes of pool " + n.Name
		if instanceType != "" {
			name += ", " + instanceType
		}
		if n.Spot {
			name += ", spot" // its price moves by the hour: none is in the table
		}
		least, most := float64(*n.Min), float64(*n.Max)
		e.add(name, "hour", hour, least, most, hoursAMonth, "hours")
		e.add(fmt.Sprintf("disks of pool %s, %d GiB each", n.Name, n.DiskGiB), "GiB-month", p.GP3GiBMonth, least, most, float64(n.DiskGiB), "GiB")
	}
	e.assume("from the pools' min to their max")
}

// datastore lists what a datastore or cache is billed for. The table has no prices
// of managed databases.
func (e *estimate) datastore(t job.ResourceType, spec job.DatastoreSpec, resolved job.DatastoreInfo) {
	class := cmp.Or(resolved.Class, spec.InstanceType)
	name := strings.TrimSuffix(spec.Engine.Title()+", "+class, ", ")
	nodes := 1.0
	switch {
	case t == job.Cache:
		nodes = float64(1 + spec.ReplicaCount())
	case spec.HA():
		nodes = 2
	}
	e.add(name, "hour", nil, nodes, nodes, hoursAMonth, "hours")
	if t == job.Datastore {
		e.add(fmt.Sprintf("disks, %d GiB each", spec.StorageGiB), "GiB-month", nil, nodes, nodes, float64(spec.StorageGiB), "GiB")
	}
}

// networkParts are what only a network job makes.
func (e *estimate) networkParts(spec job.NetworkJobSpec, p regionPrices) {
	if n := len(spec.Network.InterfaceEndpoints); n > 0 {
		// Systems Manager takes three endpoints, each with an interface in every zone.
		interfaces := float64(n * 3 * spec.Network.Zones)
		e.add("interface endpoints", "hour", p.EndpointHour, interfaces, interfaces, hoursAMonth, "hours")
	}
	if n := len(spec.DNSZones); n > 0 {
		e.add("DNS zones", "month", p.ZoneMonth, float64(n), float64(n), 1, "")
	}
}

func (e *estimate) loadBalancer(lb job.LoadBalancer, p regionPrices) {
	name, hour, unit := "application load balancer", p.ALBHour, p.LCUHour
	if lb.Type == job.LBTCP {
		name, hour, unit = "network load balancer", p.NLBHour, p.NLCUHour
	}
	e.add(name, "hour", hour, 1, 1, hoursAMonth, "hours")
	e.add("its capacity units", "hour", unit, 0, lcuAMonth, hoursAMonth, "hours")
	e.assume(fmt.Sprintf("upper end: %d load balancer capacity unit all month", lcuAMonth))
}

func summary(c Cost) string {
	if c.Priced == 0 {
		return fmt.Sprintf("Not priced: the table of %s has no prices for this region.", c.AsOf)
	}
	s := fmt.Sprintf("About $%.2f to $%.2f a month; %d of %d items priced, list prices of %s.", c.From, c.To, c.Priced, c.Total, c.AsOf)
	if c.Priced < c.Total {
		s += " The rest comes on top."
	}
	return s
}
