package job

import (
	"fmt"
	"slices"
)

// NetworkJobSpec is what a user asks for in a network job.
type NetworkJobSpec struct {
	Network  NetworkSpec `json:"network,omitzero" doc:"The network to make, or what to add to the one that is named"`
	Peerings []Peering   `json:"peerings,omitempty" doc:"Networks to peer with"`
	DNSZones []DNSZone   `json:"dnsZones,omitempty" doc:"DNS zones to make"`
	Existing *Existing   `json:"existing,omitempty" doc:"What to build in (mode create_in_existing)"`
	Adopt    *Adopt      `json:"adopt,omitempty" doc:"What to adopt (mode adopt): the one network in ids"`
}

// NetworkSpec asks for a network, or for parts of one.
type NetworkSpec struct {
	CIDR           string   `json:"cidr,omitempty" doc:"IPv4 range, /16 to /24. VM jobs: 10.40.0.0/16 by default. Network jobs: a free range is proposed by default. In a network that exists: the part of its range to use"`
	SecondaryCIDRs []string `json:"secondaryCidrs,omitempty" doc:"Further ranges of the network (aws, azure)"`
	Zones          int      `json:"zones,omitempty" doc:"Zones to spread over, 2 or 3; 2 by default"`
	Subnets        []string `json:"subnets,omitempty" doc:"Network jobs: the tiers to make, of public, private and database; public and private by default"`
	NAT            string   `json:"nat,omitempty" enum:"none,single,per_zone" doc:"single (default): one NAT gateway; per_zone: one in each zone, where the cloud's NAT belongs to a zone; none: no way out (network jobs only)"`

	FlowLogs           string           `json:"flowLogs,omitempty" enum:"rejected,all,none" doc:"rejected (default): the cheap form, refused or sampled traffic; all: every flow, billed by volume; none. Azure: none"`
	InterfaceEndpoints []string         `json:"interfaceEndpoints,omitempty" doc:"AWS: services to reach without the internet, billed by the hour: ssm"`
	SecondaryRanges    []NamedRange     `json:"secondaryRanges,omitempty" doc:"GCP: secondary ranges of the private subnet, such as for pods and services"`
	PrivateServices    *PrivateServices `json:"privateServices,omitempty" doc:"GCP: private services access, which managed databases need"`
}

// The NAT shapes.
const (
	NATNone    = "none"
	NATSingle  = "single"
	NATPerZone = "per_zone"
)

// The tiers of subnets. Public ones reach the internet directly and hold load
// balancers and NAT; private ones reach it through NAT; database ones not at all.
const (
	TierPublic   = "public"
	TierPrivate  = "private"
	TierDatabase = "database"
)

// How much of the traffic is logged.
const (
	FlowLogsRejected = "rejected"
	FlowLogsAll      = "all"
	FlowLogsNone     = "none"
)

// NamedRange is a range that a cloud refers to by name.
type NamedRange struct {
	Name string `json:"name" doc:"1 to 63 of a-z, 0-9 and hyphen, starting with a letter"`
	CIDR string `json:"cidr,omitempty" doc:"IPv4 range; one is proposed by default"`
}

// PrivateServices asks for private services access: a range of the network
// that the cloud's managed services take their addresses from.
type PrivateServices struct {
	CIDR string `json:"cidr,omitempty" doc:"IPv4 range, /24 or larger; a /20 is proposed by default"`
}

// Peering asks for a peering with another network.
type Peering struct {
	NetworkID      string   `json:"networkId" doc:"The peer's ID or name at the cloud. AWS: VPC ID or Name tag; GCP: name, or projects/P/global/networks/N; Azure: VNet name or resource ID"`
	CloudAccountID string   `json:"cloudAccountId,omitempty" doc:"The cloud account that holds the peer, if it is another one; its credentials accept, or make the other side"`
	AccountID      string   `json:"accountId,omitempty" doc:"AWS: the account that holds the peer, when there are no credentials for it here; the job then waits until its owner accepts"`
	Region         string   `json:"region,omitempty" doc:"The peer's region; the job's own by default"`
	ResourceGroup  string   `json:"resourceGroup,omitempty" doc:"Azure: the peer's resource group"`
	CIDRs          []string `json:"cidrs,omitempty" doc:"AWS: the peer's ranges to route to; all of them by default"`
}

// DNSZone asks for a DNS zone.
type DNSZone struct {
	Name       string `json:"name" doc:"Such as shop.example.com"`
	Visibility string `json:"visibility,omitempty" enum:"private,public" doc:"private (default): answered inside the network alone; public: on the internet, once the parent zone delegates to it"`
}

// The visibilities of a zone.
const (
	ZonePrivate = "private"
	ZonePublic  = "public"
)

// NetworkJob decodes the spec of a network job, with defaults filled in. A
// field that the schema does not have is an *Invalid that names it.
func (j *Job) NetworkJob() (NetworkJobSpec, error) {
	var s NetworkJobSpec
	if err := strictly(j.Config.Spec, &s); err != nil {
		return s, err
	}
	if err := explicitZeros(j.Config.Spec); err != nil {
		return s, err
	}
	return s.WithDefaults(j.Provider), nil
}

// WithDefaults fills in what the user left out.
func (s NetworkJobSpec) WithDefaults(p Provider) NetworkJobSpec {
	s.Network = s.Network.withDefaults(p)
	if len(s.Network.Subnets) == 0 {
		s.Network.Subnets = []string{TierPublic, TierPrivate}
	}
	s.Peerings, s.DNSZones = slices.Clone(s.Peerings), slices.Clone(s.DNSZones)
	for i := range s.DNSZones {
		if s.DNSZones[i].Visibility == "" {
			s.DNSZones[i].Visibility = ZonePrivate
		}
	}
	return s
}

func (n NetworkSpec) withDefaults(p Provider) NetworkSpec {
	if n.Zones == 0 {
		n.Zones = 2
	}
	if n.NAT == "" {
		n.NAT = NATSingle
	}
	if n.FlowLogs == "" {
		n.FlowLogs = FlowLogsRejected
		if p == Azure { // needs a storage account and is billed: asked for by name
			n.FlowLogs = FlowLogsNone
		}
	}
	return n
}

// Network is the network part of the job's spec, whichever family it has.
func (j *Job) Network() (NetworkSpec, error) {
	switch j.ResourceType {
	case Network:
		s, err := j.NetworkJob()
		return s.Network, err
	case Cluster:
		s, err := j.ClusterSpec()
		return s.Network, err
	case Datastore, Cache:
		s, err := j.DatastoreSpec()
		return s.Network, err
	}
	s, err := j.VMSpec()
	return s.Network, err
}

// Existing is what a create_in_existing job builds in; nil for other modes.
func (j *Job) Existing() (*Existing, error) {
	switch j.ResourceType {
	case Network:
		s, err := j.NetworkJob()
		return s.Existing, err
	case Cluster:
		s, err := j.ClusterSpec()
		return s.Existing, err
	case Datastore, Cache:
		s, err := j.DatastoreSpec()
		return s.Existing, err
	}
	s, err := j.VMSpec()
	return s.Existing, err
}

// NetworkPlan is how the ranges of a network are laid out. It is made before
// anything else is, and stands in the job from then on.
type NetworkPlan struct {
	CIDR            string       `json:"cidr"` // the network's range; in a network that exists: the part that is used
	SecondaryCIDRs  []string     `json:"secondaryCidrs,omitempty"`
	Subnets         []SubnetPlan `json:"subnets"`
	SecondaryRanges []NamedRange `json:"secondaryRanges,omitempty"` // of the private subnet
	PrivateServices string       `json:"privateServices,omitempty"`
	Notes           []string     `json:"notes,omitempty"` // why the ranges are these, such as which ones are in use
}

// SubnetPlan is the place of one subnet.
type SubnetPlan struct {
	Key  string `json:"key"`            // such as private-a; its object's key
	Tier string `json:"tier"`           // public, private or database
	Zone string `json:"zone,omitempty"` // "" where subnets belong to a region
	CIDR string `json:"cidr"`
}

// Tier is the plan's subnets of one tier, in the zones' order.
func (p *NetworkPlan) Tier(tier string) []SubnetPlan {
	var out []SubnetPlan
	for _, s := range p.Subnets {
		if s.Tier == tier {
			out = append(out, s)
		}
	}
	return out
}

// SubnetInfo is a subnet that is there.
type SubnetInfo struct {
	Key  string `json:"key,omitempty"`
	Tier string `json:"tier,omitempty"`
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
	CIDR string `json:"cidr"`
	Zone string `json:"zone,omitempty"`
}

// PeeringInfo is where one peering stands.
type PeeringInfo struct {
	NetworkID string   `json:"networkId"` // the peer
	ID        string   `json:"id,omitempty"`
	State     string   `json:"state"` // the cloud's own word
	CIDRs     []string `json:"cidrs,omitempty"`
	Waiting   string   `json:"waiting,omitempty"` // who has to do what
}

// DNSZoneInfo is where one zone stands.
type DNSZoneInfo struct {
	Name        string   `json:"name"`
	ID          string   `json:"id,omitempty"`
	Visibility  string   `json:"visibility"`
	NameServers []string `json:"nameServers,omitempty"`
	Delegation  string   `json:"delegation,omitempty"` // public zones: delegated; not delegated: what to do; not checked: why
}

func (p Peering) String() string { return fmt.Sprintf("peering with %s", p.NetworkID) }
