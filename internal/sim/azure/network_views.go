package azure

import (
	"net/http"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v10"
)

const watcherType = "Microsoft.Network/networkWatchers"

// addNetworkViews adds what can be asked about a location, and network watchers, which Azure makes by itself.
func (c *Cloud) addNetworkViews() {
	c.addKind(c.networkKind(&kind{
		typ: watcherType, model: func() any { return &armnetwork.Watcher{} },
		put: func(_ *request, now, old *Resource) (outcome, error) {
			return outcome{}, c.withinQuota(now, old, "NetworkWatchers", "NetworkWatcherCountLimitReached", "Cannot create more than %d network watchers for this subscription in this region.")
		},
		remove: func(_ *request, res *Resource) (outcome, error) {
			return c.leaving(res, 10, time.Second, 3*time.Second)
		},
	}))
	const place = "/subscriptions/{subscription}/providers/Microsoft.Network/locations/{location}/"
	c.handle(
		route{method: "GET", pattern: place + "usages", service: "network", operation: "Usages_List", versions: networkVersions, serve: c.networkUsages},
		route{method: "GET", pattern: place + "CheckDnsNameAvailability", service: "network", operation: "CheckDnsNameAvailability", versions: networkVersions, serve: c.checkDNSName},
	)
}

// watch makes the network watcher of a region, in a group of its own: Azure does so when the first virtual network is made
// there ("Enable or disable Azure Network Watcher").
func (c *Cloud) watch(vnet *Resource) {
	sub := subscriptionOf(vnet.ID)
	if c.count(watcherType, sub, vnet.Location) > 0 {
		return
	}
	group := groupID(sub, "NetworkWatcherRG")
	if c.find(group) == nil {
		c.keep(&Resource{ID: group, Type: groupType, Name: "NetworkWatcherRG", Location: vnet.Location, Properties: doc{}, Top: doc{}, State: stateSucceeded, Default: true})
	}
	name := "NetworkWatcher_" + vnet.Location
	c.keep(&Resource{ID: group + "/providers/" + watcherType + "/" + name, Type: watcherType, Name: name, Location: vnet.Location, Properties: doc{}, Top: doc{},
		State: stateSucceeded, Etag: c.newEtag(), Default: true})
}

// networkUsages lists the limits of a location with what is used of them.
func (c *Cloud) networkUsages(r *request) (answer, error) {
	location := normalLocation(r.vars["location"])
	if !isLocation(location) {
		return answer{}, refuseARM(http.StatusBadRequest, "InvalidLocation", "The location '%s' is not valid.", r.vars["location"])
	}
	var all []any
	for _, q := range networkQuotas {
		limit, _ := c.World.QuotaValue("azure", "network", q.code, r.subscription, location)
		used := 0
		switch {
		case q.code == "StandardSkuPublicIpAddresses":
			used = c.countSKU("Standard", r.subscription, location) + c.countSKU("StandardV2", r.subscription, location)
		case q.typ != "":
			used = c.count(q.typ, r.subscription, location)
		}
		all = append(all, map[string]any{"id": "/subscriptions/" + r.subscription + "/providers/Microsoft.Network/locations/" + location + "/usages/" + q.code,
			"currentValue": used, "limit": limit, "unit": "Count", "name": map[string]any{"value": q.code, "localizedValue": q.title}})
	}
	return r.page(all, "$skiptoken")
}

func (c *Cloud) checkDNSName(r *request) (answer, error) {
	fqdn := strings.ToLower(r.query.Get("domainNameLabel")) + "." + normalLocation(r.vars["location"]) + ".cloudapp.azure.com"
	for _, res := range c.shelves["network"].sorted() {
		if res.Type == publicIPType && res.Properties.str("dnsSettings.fqdn") == fqdn {
			return plain(map[string]any{"available": false}), nil
		}
	}
	return plain(map[string]any{"available": true}), nil
}
