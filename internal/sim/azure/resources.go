package azure

import (
	"fmt"
	"net/http"
	"strings"
)

// The api-versions of Microsoft.Resources that are accepted: those of the SDK and those of recorded traffic.
var resourcesVersions = []string{"2018-05-01", "2019-05-01", "2019-10-01", "2020-06-01", "2020-10-01", "2021-01-01", "2021-04-01", "2022-09-01", "2022-12-01", "2024-03-01", "2025-03-01", "2025-04-01"}

func (c *Cloud) addResources() {
	c.newShelf("resources")
	c.addGroups()
	c.handle(
		route{method: "GET", pattern: "/subscriptions", service: "resources", operation: "Subscriptions_List", serve: c.listSubscriptions},
		route{method: "GET", pattern: "/subscriptions/{subscription}", service: "resources", operation: "Subscriptions_Get",
			serve: func(r *request) (answer, error) { return plain(c.subscription(r.subscription)), nil }},
		route{method: "GET", pattern: "/subscriptions/{subscription}/locations", service: "resources", operation: "Subscriptions_ListLocations", serve: c.listLocations},
		route{method: "GET", pattern: "/tenants", service: "resources", operation: "Tenants_List", serve: c.listTenants},
		route{method: "GET", pattern: "/subscriptions/{subscription}/resources", service: "resources", operation: "Resources_List", versions: resourcesVersions, serve: c.listResources},
		route{method: "GET", pattern: "/subscriptions/{subscription}/resourceGroups/{group}/resources", service: "resources", operation: "Resources_ListByResourceGroup",
			versions: resourcesVersions, serve: c.listResources},
	)
	c.addProviders()
}

func (c *Cloud) subscription(id string) map[string]any {
	name := "Simulated subscription"
	for i, s := range c.subscriptions() {
		if strings.EqualFold(s, id) {
			id = s
			if i > 0 {
				name = fmt.Sprintf("Simulated subscription %d", i+1)
			}
		}
	}
	return map[string]any{"id": "/subscriptions/" + id, "subscriptionId": id, "tenantId": c.opt.Tenant, "displayName": name, "state": "Enabled",
		"authorizationSource": "RoleBased", "managedByTenants": []any{},
		"subscriptionPolicies": map[string]any{"locationPlacementId": "Public_2014-09-01", "quotaId": "PayAsYouGo_2014-09-01", "spendingLimit": "Off"}}
}

func (c *Cloud) listSubscriptions(r *request) (answer, error) {
	all := []any{}
	for _, s := range r.who.Subscriptions {
		all = append(all, c.subscription(s))
	}
	return r.page(all, "$skiptoken")
}

func (c *Cloud) listTenants(r *request) (answer, error) {
	t := map[string]any{"id": "/tenants/" + c.opt.Tenant, "tenantId": c.opt.Tenant, "displayName": "Simulated directory", "tenantCategory": "Home",
		"tenantType": "AAD", "domains": []any{"simulated.example.com"}, "defaultDomain": "simulated.example.com", "countryCode": "US"}
	return r.page([]any{t}, "$skiptoken")
}

// listLocations shows which physical zone stands behind each zone number: the mapping differs between subscriptions ("What are
// availability zones?").
func (c *Cloud) listLocations(r *request) (answer, error) {
	all := []any{}
	for _, l := range locations {
		meta := map[string]any{"regionType": "Physical", "regionCategory": "Recommended", "geographyGroup": l.geography, "pairedRegion": []any{}}
		if l.paired != "" {
			meta["pairedRegion"] = []any{map[string]any{"name": l.paired, "id": "/subscriptions/" + r.subscription + "/locations/" + l.paired}}
		}
		loc := map[string]any{"id": "/subscriptions/" + r.subscription + "/locations/" + l.name, "name": l.name, "type": "Region",
			"displayName": l.display, "regionalDisplayName": "(" + l.geography + ") " + l.display, "metadata": meta}
		if l.zones > 0 {
			shift := int(c.World.Fraction("zones", r.subscription, l.name) * 3)
			zones := []any{}
			for z := range l.zones {
				zones = append(zones, map[string]any{"logicalZone": fmt.Sprint(z + 1), "physicalZone": fmt.Sprintf("%s-az%d", l.name, (z+shift)%3+1)})
			}
			loc["availabilityZoneMappings"] = zones
		}
		all = append(all, loc)
	}
	return plain(map[string]any{"value": all}), nil
}

// listResources is ARM's list of everything in a subscription or group, by $filter.
func (c *Cloud) listResources(r *request) (answer, error) {
	prefix := "/subscriptions/" + r.subscription
	if g := r.vars["group"]; g != "" {
		prefix = groupID(r.subscription, g)
		if c.find(prefix) == nil {
			return answer{}, groupNotFound(g)
		}
	}
	match, err := parseFilter(r.query.Get("$filter"))
	if err != nil {
		return answer{}, err
	}
	var all []any
	for _, e := range c.index.shown(r, prefix) {
		if !match(e) {
			continue
		}
		item := doc{"id": e.ID, "name": lastOf(e.ID), "type": e.Type, "location": e.Location}
		for _, k := range []string{"sku", "kind", "zones", "identity", "plan", "managedBy"} {
			if v := e.Top[k]; v != nil {
				item[k] = v
			}
		}
		if len(e.Tags) > 0 {
			item["tags"] = e.Tags
		}
		if strings.Contains(r.query.Get("$expand"), "provisioningState") {
			item["provisioningState"] = e.State
		}
		if strings.Contains(r.query.Get("$expand"), "createdTime") {
			item["createdTime"] = stamp(e.Created)
		}
		all = append(all, item)
	}
	return r.page(all, "$skiptoken")
}

// parseFilter reads the filters that the list of resources knows: tagName and tagValue (which stand alone), resourceType,
// resourceGroup, name, location, joined by and ("Resources - List", $filter).
func parseFilter(text string) (func(*indexEntry) bool, error) {
	if strings.TrimSpace(text) == "" {
		return func(*indexEntry) bool { return true }, nil
	}
	bad := refuseARM(http.StatusBadRequest, "InvalidFilterInQueryString", "Invalid $filter '%s' specified in the query string.", text)
	want := map[string]string{}
	for term := range strings.SplitSeq(text, " and ") {
		field, value, ok := strings.Cut(strings.TrimSpace(term), " eq ")
		value = strings.TrimSpace(value)
		if !ok || len(value) < 2 || value[0] != '\'' || value[len(value)-1] != '\'' {
			return nil, bad
		}
		want[strings.TrimSpace(field)] = strings.ReplaceAll(value[1:len(value)-1], "''", "'")
	}
	_, byTag := want["tagName"]
	for f := range want {
		switch f {
		case "tagName", "tagValue":
			if !byTag {
				return nil, bad
			}
		case "resourceType", "resourceGroup", "name", "location":
			// The API's page says it: a tag filter cannot be combined with other fields.
			if byTag {
				return nil, refuseARM(http.StatusBadRequest, "InvalidFilterInQueryString",
					"Invalid $filter '%s' specified in the query string: a filter by tag can not be combined with other fields.", text)
			}
		default:
			return nil, bad
		}
	}
	return func(e *indexEntry) bool {
		for f, v := range want {
			if !matches(e, f, v, want) {
				return false
			}
		}
		return true
	}, nil
}

func matches(e *indexEntry, field, value string, all map[string]string) bool {
	switch field {
	case "resourceType":
		return strings.EqualFold(e.Type, value)
	case "resourceGroup":
		return strings.EqualFold(groupOf(e.ID), value)
	case "name":
		return strings.EqualFold(lastOf(e.ID), value)
	case "location":
		return e.Location == normalLocation(value)
	case "tagName":
		tagValue, byValue := all["tagValue"]
		for k, v := range e.Tags {
			if strings.EqualFold(k, value) && (!byValue || v == tagValue) {
				return true
			}
		}
		return false
	}
	return true // tagValue is looked at together with tagName
}
