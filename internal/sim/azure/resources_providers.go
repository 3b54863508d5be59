package azure

import (
	"net/http"
	"slices"
	"sort"
	"strings"
	"time"
)

// namespaces are the resource providers that exist here, simulated or not.
var namespaces = []string{"Microsoft.Authorization", "Microsoft.Compute", "Microsoft.ContainerService", "Microsoft.DBforMySQL", "Microsoft.DBforPostgreSQL",
	"Microsoft.Cache", "Microsoft.Insights", "Microsoft.KeyVault", "Microsoft.ManagedIdentity", "Microsoft.Network", "Microsoft.OperationalInsights", "Microsoft.PolicyInsights", "Microsoft.Resources", "Microsoft.Storage"}

// alwaysRegistered are part of ARM itself.
var alwaysRegistered = []string{"Microsoft.Authorization", "Microsoft.Resources"}

// registerTakes is how long a registration lasts, in simulated time.
const registerTakes = 20 * time.Second

const providerType = "Microsoft.Resources/providers"

// A registration is kept as a resource without a public ID of its own: its state is the registrationState.
func (c *Cloud) addProviders() {
	s := c.shelves["resources"]
	c.addKind(&kind{typ: providerType, service: "resources", versions: resourcesVersions})
	s.fresh = c.registerAll
	s.on["registered"] = func(id string) {
		if res := s.state.Resources[id]; res != nil {
			switch res.State {
			case "Registering":
				res.State = "Registered"
			case "Unregistering":
				res.State = "NotRegistered"
			}
		}
	}
	const path = "/subscriptions/{subscription}/providers"
	c.handle(
		route{method: "GET", pattern: path, service: "resources", operation: "Providers_List", serve: c.listProviders},
		route{method: "GET", pattern: path + "/{namespace}", service: "resources", operation: "Providers_Get", serve: c.getProvider},
		route{method: "POST", pattern: path + "/{namespace}/register", service: "resources", operation: "Providers_Register",
			serve: func(r *request) (answer, error) { return c.setRegistration(r, "Registered", "Registering") }},
		route{method: "POST", pattern: path + "/{namespace}/unregister", service: "resources", operation: "Providers_Unregister",
			serve: func(r *request) (answer, error) { return c.setRegistration(r, "NotRegistered", "Unregistering") }},
	)
}

// registerAll gives every subscription that is new its providers.
func (c *Cloud) registerAll() {
	s := c.shelves["resources"]
	for _, sub := range c.subscriptions() {
		for _, ns := range namespaces {
			if id := providerID(sub, ns); s.state.Resources[key(id)] == nil {
				s.state.Resources[key(id)] = &Resource{ID: id, Type: providerType, Name: ns, State: "Registered", Properties: doc{}, Default: true}
			}
		}
	}
}

func providerID(subscription, namespace string) string {
	return "/subscriptions/" + subscription + "/providers/" + namespace
}

// registered says whether a subscription may use a provider.
func (c *Cloud) registered(subscription, namespace string) bool {
	if slices.Contains(alwaysRegistered, namespace) {
		return true
	}
	res := c.shelves["resources"].state.Resources[key(providerID(subscription, namespace))]
	return res != nil && (res.State == "Registered" || res.State == "Registering")
}

func (c *Cloud) provider(r *request) (*Resource, error) {
	res := c.shelves["resources"].state.Resources[key(providerID(r.subscription, r.vars["namespace"]))]
	if res == nil {
		return nil, refuseARM(http.StatusNotFound, "InvalidResourceNamespace", "The resource namespace '%s' is invalid.", r.vars["namespace"])
	}
	return res, nil
}

func (c *Cloud) renderProvider(res *Resource) doc {
	types := []any{}
	for _, typ := range sortedKeys(c.kinds) {
		k := c.kinds[typ]
		if k.namespace() != res.Name {
			continue
		}
		places := []any{}
		for _, l := range locations {
			if !k.global {
				places = append(places, l.display)
			}
		}
		if k.global {
			places = append(places, "global")
		}
		versions := slices.Clone(k.versions)
		sort.Sort(sort.Reverse(sort.StringSlice(versions)))
		entry := map[string]any{"resourceType": k.shortType(), "locations": places, "apiVersions": versions, "capabilities": "None"}
		if k.zonal {
			var zones []any
			for _, l := range locations {
				if l.zones > 0 {
					zones = append(zones, map[string]any{"location": l.display, "zones": []string{"1", "2", "3"}})
				}
			}
			entry["zoneMappings"] = zones
		}
		types = append(types, entry)
	}
	return doc{"id": res.ID, "namespace": res.Name, "registrationState": res.State, "registrationPolicy": "RegistrationRequired", "resourceTypes": types}
}

func (c *Cloud) listProviders(r *request) (answer, error) {
	var all []any
	for _, res := range c.shelves["resources"].sorted() {
		if res.Type == providerType && strings.EqualFold(subscriptionOf(res.ID), r.subscription) {
			all = append(all, c.renderProvider(res))
		}
	}
	return r.page(all, "$skiptoken")
}

func (c *Cloud) getProvider(r *request) (answer, error) {
	res, err := c.provider(r)
	if err != nil {
		return answer{}, err
	}
	return plain(c.renderProvider(res)), nil
}

func (c *Cloud) setRegistration(r *request, end, meanwhile string) (answer, error) {
	res, err := c.provider(r)
	if err != nil {
		return answer{}, err
	}
	if end == "NotRegistered" && c.usesNamespace(r.subscription, res.Name) {
		return answer{}, refuseARM(http.StatusConflict, "CannotUnregisterProvider",
			"Cannot unregister resource provider '%s' because it still has resources in subscription '%s'.", res.Name, r.subscription)
	}
	if res.State != end {
		res.State = meanwhile
		c.after(registerTakes, "resources", "registered", key(res.ID))
	}
	r.Touch(res.ID)
	return plain(c.renderProvider(res)), nil
}

func (c *Cloud) usesNamespace(subscription, namespace string) bool {
	used := false
	c.each(func(res *Resource) {
		used = used || (strings.EqualFold(subscriptionOf(res.ID), subscription) && strings.HasPrefix(res.Type, namespace+"/"))
	})
	return used
}
