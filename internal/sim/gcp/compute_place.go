package gcp

import "strings"

// placesCreated is when regions and zones claim to have been made.
const placesCreated = "1969-12-31T16:00:00.000-08:00"

// placeMethods adds regions, zones and the project itself.
func (e *Compute) placeMethods(a *api) {
	a.ops["projects.get"] = func(r *request) (any, error) { return e.projectDoc(r.Project), nil }
	a.ops["regions.get"] = func(r *request) (any, error) {
		if !regionExists(r.Path["region"]) {
			return nil, refuse(404, "notFound", "The resource 'projects/%s/regions/%s' was not found", r.Project.ID, r.Path["region"])
		}
		return e.regionDoc(r.Project, r.Path["region"]), nil
	}
	a.ops["regions.list"] = func(r *request) (any, error) {
		return r.listPlaces("region", regionNames(), func(name string) Doc { return e.regionDoc(r.Project, name) })
	}
	a.ops["zones.get"] = func(r *request) (any, error) {
		if !zoneExists(r.Path["zone"]) {
			return nil, refuse(404, "notFound", "The resource 'projects/%s/zones/%s' was not found", r.Project.ID, r.Path["zone"])
		}
		return zoneDoc(r.Project, r.Path["zone"]), nil
	}
	a.ops["zones.list"] = func(r *request) (any, error) {
		return r.listPlaces("zone", zoneNames(), func(name string) Doc { return zoneDoc(r.Project, name) })
	}
}

// listPlaces lists regions or zones.
func (r *request) listPlaces(what string, names []string, doc func(string) Doc) (any, error) {
	match, err := parseFilter(r.Query.Get("filter"))
	if err != nil {
		return nil, err
	}
	var items []Doc
	for _, n := range names {
		if d := normal(doc(n)).(map[string]any); match(d) {
			items = append(items, d)
		}
	}
	return r.listAnswer(items, "compute#"+what+"List", "projects/"+r.Project.ID+"/"+what+"s")
}

// placeID is the number of a region or zone; it is always the same.
func placeID(name string) string {
	n := uint64(1000)
	for _, c := range name {
		n = (n*31 + uint64(c)) % 9000
	}
	return strings.TrimLeft("1"+string([]byte{byte('0' + n/1000%10), byte('0' + n/100%10), byte('0' + n/10%10), byte('0' + n%10)}), "0")
}

func (e *Compute) regionDoc(p Project, name string) Doc {
	zones := []any{}
	for _, z := range zoneNames(name) {
		zones = append(zones, selfLink("projects/"+p.ID+"/zones/"+z))
	}
	return Doc{"kind": "compute#region", "id": placeID(name), "creationTimestamp": placesCreated, "name": name, "description": name, "status": "UP",
		"zones": zones, "quotas": e.quotas(p.ID, name), "selfLink": selfLink("projects/" + p.ID + "/regions/" + name), "supportsPzs": false}
}

func zoneDoc(p Project, name string) Doc {
	return Doc{"kind": "compute#zone", "id": placeID(name), "creationTimestamp": placesCreated, "name": name, "description": name, "status": "UP",
		"region": selfLink("projects/" + p.ID + "/regions/" + regionOf(name)), "selfLink": selfLink("projects/" + p.ID + "/zones/" + name),
		"availableCpuPlatforms": []any{"Intel Ice Lake", "Intel Cascade Lake", "Intel Skylake", "Intel Broadwell", "AMD Rome", "AMD Milan", "Ampere Altra"}, "supportsPzs": false}
}

func (e *Compute) projectDoc(p Project) Doc {
	return Doc{"kind": "compute#project", "id": p.Number, "name": p.ID, "creationTimestamp": "2024-01-15T08:00:00.000-08:00", "selfLink": selfLink("projects/" + p.ID),
		"commonInstanceMetadata": Doc{"kind": "compute#metadata", "fingerprint": fingerprint("metadata of " + p.ID)},
		"quotas":                 e.quotas(p.ID, ""), "defaultServiceAccount": p.Number + "-compute@developer.gserviceaccount.com",
		"xpnProjectStatus": "UNSPECIFIED_XPN_PROJECT_STATUS", "defaultNetworkTier": "PREMIUM", "vmDnsSetting": "ZONAL_ONLY", "cloudArmorTier": "CA_STANDARD"}
}
