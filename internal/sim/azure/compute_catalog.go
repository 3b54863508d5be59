package azure

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// addComputeCatalog registers what a location offers: sizes, usages, images.
func (c *Cloud) addComputeCatalog() {
	const sub, place = "/subscriptions/{subscription}/providers/Microsoft.Compute/", "/subscriptions/{subscription}/providers/Microsoft.Compute/locations/{location}/"
	const offers = place + "publishers/{publisher}/artifacttypes/vmimage/offers"
	get := func(pattern, operation string, versions []string, serve func(*request) (answer, error)) {
		c.handle(route{method: "GET", pattern: pattern, service: computeService, operation: operation, versions: versions, serve: serve})
	}
	get(sub+"skus", "ResourceSkus_List", skuVersions, c.listSKUs)
	get(place+"usages", "Usage_List", computeVersions, c.computeUsages)
	get(place+"vmSizes", "VirtualMachineSizes_List", computeVersions, c.listSizes)
	get(place+"publishers", "VirtualMachineImages_ListPublishers", computeVersions, func(r *request) (answer, error) { return c.listImages(r) })
	get(offers, "VirtualMachineImages_ListOffers", computeVersions, func(r *request) (answer, error) { return c.listImages(r, "publisher") })
	get(offers+"/{offer}/skus", "VirtualMachineImages_ListSkus", computeVersions, func(r *request) (answer, error) { return c.listImages(r, "publisher", "offer") })
	get(offers+"/{offer}/skus/{sku}/versions", "VirtualMachineImages_List", computeVersions, func(r *request) (answer, error) { return c.listImages(r, "publisher", "offer", "sku") })
	get(offers+"/{offer}/skus/{sku}/versions/{version}", "VirtualMachineImages_Get", computeVersions, c.getImage)
}

// listSKUs lists the sizes of machines, of one location if the filter names it.
func (c *Cloud) listSKUs(r *request) (answer, error) {
	filter := r.query.Get("$filter")
	wanted := normalLocation(between(filter, "location eq '", "'"))
	if filter != "" && wanted == "" {
		return answer{}, refuse(http.StatusBadRequest, "InvalidFilterInQueryString", "The filter '%s' is not supported: only location filter is supported currently.", filter)
	}
	all := []any{}
	for _, l := range locations {
		if wanted != "" && l.name != wanted {
			continue
		}
		for _, name := range vmSizeNames {
			all = append(all, skuDoc(findSize(name), l))
		}
	}
	size := len(all)
	if n := r.cloud.World.Options().PageSize; n > 0 {
		size = n
	}
	if r.query.Get("$top") == "" { // the catalogue comes in one page
		r.query.Set("$top", strconv.Itoa(max(size, 1)))
	}
	return r.page(all, "$skiptoken")
}

// skuDoc is one line of the catalogue.
func skuDoc(s *vmSize, l azureLocation) map[string]any {
	zones, restrictions := []any{}, []any{}
	for z := range l.zones {
		zones = append(zones, strconv.Itoa(z+1))
	}
	if s.Series.Restricted {
		restrictions = append(restrictions, map[string]any{"type": "Location", "values": []any{l.name}, "reasonCode": "NotAvailableForSubscription",
			"restrictionInfo": map[string]any{"locations": []any{l.name}}})
		if len(zones) > 0 {
			restrictions = append(restrictions, map[string]any{"type": "Zone", "values": []any{l.name}, "reasonCode": "NotAvailableForSubscription",
				"restrictionInfo": map[string]any{"locations": []any{l.name}, "zones": zones}})
		}
	}
	return map[string]any{
		"resourceType": "virtualMachines", "name": s.Name, "tier": "Standard", "size": strings.TrimPrefix(s.Name, "Standard_"), "family": s.Series.Family,
		"locations":    []any{l.name},
		"locationInfo": []any{map[string]any{"location": l.name, "zones": zones, "zoneDetails": []any{}}},
		"capabilities": s.capabilities(), "restrictions": restrictions,
	}
}

// computeUsages lists the limits of a location with what is used of them.
func (c *Cloud) computeUsages(r *request) (answer, error) {
	location := normalLocation(r.vars["location"])
	if !isLocation(location) {
		return answer{}, noRegistered(r, "locations/usages")
	}
	total, families, machines, sets := c.coresUsed(r.subscription, location)
	var all []any
	add := func(code, name string, used int) {
		limit, _ := c.World.QuotaValue("azure", computeService, code, r.subscription, location)
		all = append(all, map[string]any{"unit": "Count", "currentValue": used, "limit": int(limit), "name": map[string]any{"value": code, "localizedValue": name}})
	}
	add(quotaCode, "Total Regional vCPUs", total)
	add("virtualMachines", "Virtual Machines", machines)
	add("virtualMachineScaleSets", "Virtual Machine Scale Sets", sets)
	add("lowPriorityCores", "Total Regional Low-priority vCPUs", 0)
	for _, s := range vmFamilies() {
		add(s.Family, s.FamilyName, families[s.Family])
	}
	return r.page(all, "$skiptoken")
}

func noRegistered(r *request, typ string) *Error {
	return refuseARM(http.StatusBadRequest, "NoRegisteredProviderFound", "No registered resource provider found for location '%s' and API version '%s' for type '%s'. The supported api-versions are '%s'. The supported locations are '%s'.",
		r.vars["location"], r.version, typ, strings.Join(computeVersions, ", "), strings.Join(locationNames(), ", "))
}

func (c *Cloud) listSizes(r *request) (answer, error) {
	if !isLocation(r.vars["location"]) {
		return answer{}, noRegistered(r, "locations/vmSizes")
	}
	all := []any{}
	for _, name := range vmSizeNames {
		if s := findSize(name); !s.Series.Restricted {
			all = append(all, map[string]any{"name": s.Name, "numberOfCores": s.CPUs, "osDiskSizeInMB": 1047552, "resourceDiskSizeInMB": 0,
				"memoryInMB": int(s.Memory * 1024), "maxDataDiskCount": min(4+2*s.CPUs, 32)})
		}
	}
	return plain(map[string]any{"value": all}), nil
}

// listImages lists the names on one level of the marketplace. Unlike other lists it is a bare array.
func (c *Cloud) listImages(r *request, levels ...string) (answer, error) {
	if !isLocation(r.vars["location"]) {
		return answer{}, noRegistered(r, "locations/publishers")
	}
	var path []string
	for _, l := range levels {
		path = append(path, r.vars[l])
	}
	names, ok := imagesUnder(path...)
	if !ok {
		return answer{}, refuse(http.StatusNotFound, "NotFound", "Artifact: VMImage was not found.")
	}
	if strings.Contains(strings.ToLower(r.query.Get("$orderby")), "desc") {
		slices.Reverse(names)
	}
	if n, err := strconv.Atoi(r.query.Get("$top")); err == nil && n > 0 && len(levels) == 3 {
		names = names[:min(n, len(names))]
	}
	out := []any{}
	base := "/Subscriptions/" + r.subscription + "/Providers/Microsoft.Compute/Locations/" + normalLocation(r.vars["location"]) + "/Publishers"
	below := []string{"/ArtifactTypes/VMImage/Offers", "/Skus", "/Versions"}
	base += strings.Join(slices.Concat(zip(path, below)...), "")
	for _, n := range names {
		out = append(out, map[string]any{"location": normalLocation(r.vars["location"]), "name": n, "id": base + "/" + n})
	}
	return plain(out), nil
}

// zip puts each of the names before what follows it in an ID.
func zip(names, follow []string) [][]string {
	out := make([][]string, len(names))
	for i, n := range names {
		out[i] = []string{"/", n, follow[i]}
	}
	return out
}

func (c *Cloud) getImage(r *request) (answer, error) {
	ref := doc{"publisher": r.vars["publisher"], "offer": r.vars["offer"], "sku": r.vars["sku"], "version": r.vars["version"]}
	image, version, e := findImage(ref)
	if e != nil {
		return answer{}, refuse(http.StatusNotFound, "NotFound", "Artifact: VMImage was not found.")
	}
	location := normalLocation(r.vars["location"])
	return plain(imageDoc(image, imageID(r.subscription, location, image, version), location, version)), nil
}
