package azure

import (
	"slices"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

// The tenant, subscriptions and client of a world without configuration.
const (
	DefaultTenant       = "72f988bf-0000-4000-8000-000000000001"
	DefaultSubscription = "5c0b1f4e-0000-4000-8000-0000000000a1"
	// OtherSubscription belongs to the same tenant; the default client may not touch it.
	OtherSubscription = "5c0b1f4e-0000-4000-8000-0000000000b2"
	DefaultClientID   = "c1ae0000-0000-4000-8000-0000000000c1"
	// DefaultClientSecret is accepted by the simulation alone.
	DefaultClientSecret = "simulated-secret"
	OtherClientID       = "c1ae0000-0000-4000-8000-0000000000c2"
)

// A Client is a service principal of the simulated tenant, with the subscriptions in which it is Owner.
type Client struct {
	ID, Secret, ObjectID, Name string
	Subscriptions              []string
	// Groups are the object IDs of the directory's groups that it is a member of.
	Groups []string
	// Federated are whose tokens stand for the secret; an empty secret is none.
	Federated []Federation
	// TokenLife is how long its tokens are good, in simulated time, whatever they say of themselves: a client only learns of the end by
	// a refusal. Zero: an hour of real time, as they say.
	TokenLife time.Duration
}

// Options set up the simulated Azure.
type Options struct {
	// Tenant is the directory's ID; empty means DefaultTenant.
	Tenant string
	// Clients are the service principals; empty means those of DefaultClients.
	Clients []Client
	// Kubernetes gives managed clusters their API servers; nil: their endpoints answer nobody.
	Kubernetes sim.Kubernetes
	// Databases gives flexible servers and caches servers that are real; nil: their endpoints answer nobody.
	Databases sim.Databases
	// BootTime is how long a machine takes from running to the end of its cloud-init; zero means 40 s.
	BootTime time.Duration
}

// DefaultClients are the service principals of a world without configuration: one for each of two subscriptions.
func DefaultClients() []Client {
	return []Client{
		{ID: DefaultClientID, Secret: DefaultClientSecret, ObjectID: "0b1ec700-0000-4000-8000-0000000000c1", Name: "provisioner", Subscriptions: []string{DefaultSubscription}},
		{ID: OtherClientID, Secret: DefaultClientSecret, ObjectID: "0b1ec700-0000-4000-8000-0000000000c2", Name: "somebody-else", Subscriptions: []string{OtherSubscription}},
	}
}

// Cloud is the simulated Azure: Azure Resource Manager and the authority that hands out its tokens, as one http.Handler. It
// has to be served over TLS, see [Certificate].
type Cloud struct {
	World *sim.World
	opt   Options

	shelves   map[string]*shelf
	kinds     map[string]*kind
	routes    []route
	index     index
	guests    *guests
	servers   *apiServers
	databases *databaseServers
	signing   []byte
	directory directory
}

// New adds a simulated Azure to a world.
func New(w *sim.World, opt Options) *Cloud {
	if opt.Tenant == "" {
		opt.Tenant = DefaultTenant
	}
	if len(opt.Clients) == 0 {
		opt.Clients = DefaultClients()
	}
	if opt.BootTime == 0 {
		opt.BootTime = 40 * time.Second
	}
	c := &Cloud{World: w, opt: opt, shelves: map[string]*shelf{}, kinds: map[string]*kind{}}
	c.index.cloud = c
	c.signing = signingKey(opt)
	c.servers = newAPIServers(c)
	c.databases = newDatabaseServers(c)
	c.addServices()
	for _, name := range c.shelfNames() {
		c.shelves[name].Reset() // what fresh accounts have is known only now
	}
	w.RegisterFront("azure", c)
	c.servers.ready.Store(true)
	return c
}

// subscriptions lists the configured subscriptions.
func (c *Cloud) subscriptions() []string {
	var out []string
	for _, cl := range c.clients() {
		for _, s := range cl.Subscriptions {
			if !slices.Contains(out, s) {
				out = append(out, s)
			}
		}
	}
	return out
}

// after schedules an event of a service; newShelf's on says who carries it out.
func (c *Cloud) after(d time.Duration, service, kind, key string) {
	c.World.After(d, "azure", service, kind, key)
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

// An azureLocation is a region.
type azureLocation struct {
	name, display, paired, geography string
	// zones is the number of availability zones, 0 or 3.
	zones int
}

// locations are the regions with their pairs ("Azure regions list").
var locations = []azureLocation{
	{"centralus", "Central US", "eastus2", "US", 3}, {"eastasia", "East Asia", "southeastasia", "Asia Pacific", 3},
	{"southeastasia", "Southeast Asia", "eastasia", "Asia Pacific", 3}, {"eastus", "East US", "westus", "US", 3},
	{"eastus2", "East US 2", "centralus", "US", 3}, {"westus", "West US", "eastus", "US", 0}, {"westus2", "West US 2", "westcentralus", "US", 3},
	{"northcentralus", "North Central US", "southcentralus", "US", 0}, {"southcentralus", "South Central US", "northcentralus", "US", 3},
	{"westcentralus", "West Central US", "westus2", "US", 0}, {"northeurope", "North Europe", "westeurope", "Europe", 3},
	{"westeurope", "West Europe", "northeurope", "Europe", 3}, {"japaneast", "Japan East", "japanwest", "Asia Pacific", 3},
	{"japanwest", "Japan West", "japaneast", "Asia Pacific", 3}, {"brazilsouth", "Brazil South", "southcentralus", "South America", 3},
	{"australiaeast", "Australia East", "australiasoutheast", "Asia Pacific", 3}, {"australiasoutheast", "Australia Southeast", "australiaeast", "Asia Pacific", 0},
	{"southindia", "South India", "centralindia", "Asia Pacific", 0}, {"centralindia", "Central India", "southindia", "Asia Pacific", 3},
	{"canadacentral", "Canada Central", "canadaeast", "Canada", 3}, {"canadaeast", "Canada East", "canadacentral", "Canada", 0},
	{"uksouth", "UK South", "ukwest", "UK", 3}, {"ukwest", "UK West", "uksouth", "UK", 0}, {"koreacentral", "Korea Central", "koreasouth", "Asia Pacific", 3},
	{"francecentral", "France Central", "francesouth", "Europe", 3}, {"southafricanorth", "South Africa North", "southafricawest", "Africa", 3},
	{"uaenorth", "UAE North", "uaecentral", "Middle East", 3}, {"switzerlandnorth", "Switzerland North", "switzerlandwest", "Europe", 3},
	{"germanywestcentral", "Germany West Central", "germanynorth", "Europe", 3}, {"norwayeast", "Norway East", "norwaywest", "Europe", 3},
	{"swedencentral", "Sweden Central", "swedensouth", "Europe", 3}, {"westus3", "West US 3", "eastus", "US", 3},
	{"polandcentral", "Poland Central", "", "Europe", 3}, {"italynorth", "Italy North", "", "Europe", 3}, {"israelcentral", "Israel Central", "", "Middle East", 3},
}

func findLocation(name string) (azureLocation, bool) {
	i := slices.IndexFunc(locations, func(l azureLocation) bool { return l.name == normalLocation(name) })
	if i < 0 {
		return azureLocation{}, false
	}
	return locations[i], true
}

func isLocation(name string) bool { _, ok := findLocation(name); return ok }

func locationNames() []string {
	out := make([]string, len(locations))
	for i, l := range locations {
		out[i] = l.name
	}
	return out
}
