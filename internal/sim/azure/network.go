package azure

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v10"

	"github.com/zopday/provisioner/internal/sim"
)

// networkVersions are the api-versions of Microsoft.Network that are accepted: those that SDKs and tools have sent in the last
// years. The newest is that of the SDK in use.
var networkVersions = []string{"2015-06-15", "2016-12-01", "2018-10-01", "2018-11-01", "2019-04-01", "2019-11-01", "2020-05-01", "2020-06-01", "2020-11-01", "2021-02-01",
	"2021-08-01", "2022-01-01", "2022-05-01", "2022-07-01", "2022-11-01", "2023-02-01", "2023-04-01", "2023-05-01", "2023-09-01", "2023-11-01", "2024-01-01",
	"2024-03-01", "2024-05-01", "2024-07-01", "2024-10-01", "2025-01-01", "2025-03-01", "2025-05-01", privateByDefault}

// privateByDefault is the api-version from which on new subnets have no outbound access of their own ("Default outbound access in
// Azure").
const privateByDefault = "2025-07-01"

// networkName is what names look like in Microsoft.Network.
var networkName = &nameRule{regexp.MustCompile(`^[A-Za-z0-9]([\w.-]{0,78}[A-Za-z0-9_])?$`),
	"The name can be up to 80 characters long. It must begin with a word character, and it must end with a word character or with '_'. The name may contain word characters or '.', '-', '_'."}

// networkDialect words refusals as Microsoft.Network does: details are always there.
var networkDialect = &dialect{
	absent: func(r *request) *Error {
		return refuseNetwork(http.StatusNotFound, "NotFound", "Resource %s not found.", r.id)
	},
	orphan: func(_ *request, parent armID) *Error { return notFoundARM(parent) },
	mismatch: func(res *Resource, given string) *Error {
		return refuseNetwork(http.StatusPreconditionFailed, "PreconditionFailed",
			"Precondition failed. Etag provided in if-match header %s did not match etag %s of resource %s in NRP data store.", given, res.Etag, res.ID)
	},
	taken: func(res *Resource) *Error {
		return refuseNetwork(http.StatusPreconditionFailed, "PreconditionFailed", "Precondition failed. Resource %s exists already.", res.ID)
	},
	badBody: func(p bodyProblem) *Error {
		return refuse(http.StatusBadRequest, "InvalidRequestFormat", "Cannot parse the request.").with(refuse(0, "InvalidJson", "%s", p.text))
	},
	badName: func(r *request, rule *nameRule) *Error {
		return refuseNetwork(http.StatusBadRequest, "InvalidResourceName", "Resource name %s is invalid. %s", r.id.name(), rule.text)
	},
}

// refuseNetwork is a refusal with the list of details that Microsoft.Network always sends.
func refuseNetwork(status int, code, format string, args ...any) *Error {
	e := refuse(status, code, format, args...)
	e.List = true
	return e
}

// retryable is Microsoft.Network's refusal for the moment: 429, with what is the matter in the details.
func retryable(code, format string, args ...any) *Error {
	return refuse(http.StatusTooManyRequests, "RetryableError", "A retryable error occurred.").with(refuse(0, code, format, args...))
}

// networkQuotas are the limits of a subscription in a region, by the names of the usages API.
var networkQuotas = []struct {
	code, title, typ string
	limit            float64
}{
	{"VirtualNetworks", "Virtual Networks", "Microsoft.Network/virtualNetworks", 1000},
	{"NetworkSecurityGroups", "Network Security Groups", "Microsoft.Network/networkSecurityGroups", 5000},
	{"RouteTables", "Route Tables", "Microsoft.Network/routeTables", 200},
	{"PublicIPAddresses", "Public IP Addresses", "Microsoft.Network/publicIPAddresses", 1000},
	{"StandardSkuPublicIpAddresses", "Public IP Addresses - Standard", "Microsoft.Network/publicIPAddresses", 1000},
	{"NatGateways", "Nat Gateways", "Microsoft.Network/natGateways", 1000},
	{"NetworkInterfaces", "Network Interfaces", "Microsoft.Network/networkInterfaces", 65536},
	{"LoadBalancers", "Load Balancers", "Microsoft.Network/loadBalancers", 1000},
	{"NetworkWatchers", "Network Watchers", "Microsoft.Network/networkWatchers", 1},
	{"SubnetsPerVirtualNetwork", "Subnets per Virtual Network", "", 3000},
	{"SecurityRulesPerNetworkSecurityGroup", "Security rules per Network Security Group", "", 1000},
	{"PeeringsPerVirtualNetwork", "Peerings per Virtual Network", "", 500},
}

func (c *Cloud) addNetwork() {
	c.newShelf("network")
	for _, q := range networkQuotas {
		c.World.DefineQuota(sim.Quota{Cloud: "azure", Service: "network", Code: q.code, Name: q.title, Default: q.limit, Unit: "Count", Adjustable: true})
	}
	allow(armnetwork.PossibleSecurityRuleAccessValues())
	allow(armnetwork.PossibleSecurityRuleDirectionValues())
	allow(armnetwork.PossibleSecurityRuleProtocolValues())
	allow(armnetwork.PossiblePublicIPAddressSKUNameValues())
	allow(armnetwork.PossiblePublicIPAddressSKUTierValues())
	allow(armnetwork.PossibleIPAllocationMethodValues())
	allow(armnetwork.PossibleIPVersionValues())
	allow(armnetwork.PossibleNatGatewaySKUNameValues())
	allow(armnetwork.PossibleRouteNextHopTypeValues())
	allow(armnetwork.PossibleVirtualNetworkPrivateEndpointNetworkPoliciesValues())
	c.addVirtualNetworks()
	c.addSubnets()
	c.addServiceLinks()
	c.addPeerings()
	c.addSecurityGroups()
	c.addRouteTables()
	c.addPublicAddresses()
	c.addPublicPrefixes()
	c.addNATGateways()
	c.addInterfaces()
	c.addPrivateEndpoints()
	c.addNetworkViews()
}

// networkKind completes a kind of Microsoft.Network.
func (c *Cloud) networkKind(k *kind) *kind {
	k.service, k.versions, k.says, k.retryPoll = "network", networkVersions, networkDialect, 10
	k.spread = c.spreadEtag
	if k.name == nil {
		k.name = networkName
	}
	if k.patchModel == nil {
		k.patchModel = func() any { return &armnetwork.TagsObject{} }
	}
	k.tracked = k.tracked || strings.Count(k.typ, "/") == 1
	return k
}

// leastWork is more than an op_failed waits that does not say how long: it finds the operation still under way.
const leastWork = 5 * time.Second

// writing is how Microsoft.Network answers a PUT: at once, with an Azure-AsyncOperation.
func (c *Cloud) writing(now *Resource, retryAfter int, from, to time.Duration) (outcome, error) {
	return outcome{state: stateUpdating, takes: leastWork + c.pace(from, to, now.ID), style: asyncHeader, retryAfter: retryAfter}, nil
}

// leaving is how it answers a DELETE.
func (c *Cloud) leaving(res *Resource, retryAfter int, from, to time.Duration) (outcome, error) {
	return outcome{status: http.StatusAccepted, state: stateDeleting, takes: leastWork + c.pace(from, to, "delete "+res.ID), style: asyncLocation, retryAfter: retryAfter, empty: true}, nil
}

// nothingToDo answers a PUT that asks for what is there already, but perhaps for its tags.
var nothingToDo = outcome{style: asyncHeader, idle: true}

// unchanged says whether a PUT asks for what is there already, but perhaps for its tags.
func unchanged(now, old *Resource) bool {
	return old != nil && old.State == stateSucceeded && sameJSON(now.Properties, old.Properties) && sameJSON(now.Top, old.Top)
}

// identify gives a new resource its GUID, and keeps that of an old one.
func (c *Cloud) identify(now, old *Resource) {
	if old != nil && old.Properties.has("resourceGuid") {
		now.Properties["resourceGuid"] = old.Properties["resourceGuid"]
		return
	}
	now.Properties["resourceGuid"] = c.World.UUID()
}

// withinQuota refuses one more of a kind where the limit is reached.
func (c *Cloud) withinQuota(now, old *Resource, code, refusal, text string) error {
	if old != nil {
		return nil
	}
	limit, _ := c.World.QuotaValue("azure", "network", code, subscriptionOf(now.ID), now.Location)
	if float64(c.count(now.Type, subscriptionOf(now.ID), now.Location)) >= limit {
		return refuseNetwork(http.StatusBadRequest, refusal, text, int(limit))
	}
	return nil
}

func (c *Cloud) count(typ, subscription, location string) int {
	n := 0
	for _, res := range c.shelves["network"].state.Resources {
		if res.Type == typ && strings.EqualFold(subscriptionOf(res.ID), subscription) && res.Location == location {
			n++
		}
	}
	return n
}

// settleTree ends Updating in everything below the root of a resource, which all share one etag.
func (c *Cloud) settleTree(res *Resource) {
	root := c.rootOf(res)
	for _, in := range append(c.inside(root.ID), root) {
		if in.Operation == "" && in.State == stateUpdating {
			in.State = stateSucceeded
		}
	}
	c.spreadEtag(res)
}

// spreadEtag gives the etag of a resource to everything else below its root.
func (c *Cloud) spreadEtag(res *Resource) {
	root := c.rootOf(res)
	for _, in := range append(c.inside(root.ID), root) {
		if c.kindOf(in.Type).service == "network" {
			in.Etag = res.Etag
		}
	}
}

// rootOf is the top-level resource that a resource lies in.
func (c *Cloud) rootOf(res *Resource) *Resource {
	id, ok := parseID(res.ID)
	for ok {
		p, inner := id.parent()
		if !inner {
			break
		}
		id = p
	}
	if root := c.find(id.String()); root != nil {
		return root
	}
	return res
}

// refList renders IDs as references.
func refList(ids []string) []any {
	out := make([]any, len(ids))
	for i, id := range ids {
		out[i] = map[string]any{"id": id}
	}
	return out
}

// usersAt lists the IDs of the sub-resources that refer to an ID, of the given types only if any are given.
func (c *Cloud) usersAt(id string, types ...string) []string {
	var out []string
	for _, u := range c.usesOf(id) {
		// A record set that follows a resource does not hold it ("Azure DNS alias records overview").
		if strings.HasPrefix(u.by.Type, zoneType+"/") {
			continue
		}
		if (len(types) == 0 || slices.Contains(types, u.by.Type)) && !slices.Contains(out, u.at) {
			out = append(out, u.at)
		}
	}
	return out
}

func sameJSON(a, b any) bool { return fmt.Sprint(normal(a)) == fmt.Sprint(normal(b)) }

func normal(v any) any {
	d, _ := asDoc(v)
	return map[string]any(d.clone())
}
