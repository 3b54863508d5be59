package azure

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// A flexSKU is a size of flexible servers.
type flexSKU struct {
	name, tier string
	vCores     int
	memoryMB   int // a vCore
	iops       int
	// current says that capabilities list it; older ones can still be asked for.
	current bool
}

// The sizes of a family: Standard_D2ds_v5 and so on ("Compute options in Azure Database for PostgreSQL", "Service tiers of Azure
// Database for MySQL").
func sizesOf(pattern, tier string, memoryMB int, current bool, vCores ...int) []flexSKU {
	var out []flexSKU
	for _, n := range vCores {
		out = append(out, flexSKU{fmt.Sprintf(pattern, n), tier, n, memoryMB, min(80000, 1600*n), current})
	}
	return out
}

var flexSKUs = slices.Concat(
	[]flexSKU{{"Standard_B1ms", "Burstable", 1, 2048, 640, true}, {"Standard_B2s", "Burstable", 2, 2048, 1280, true}, {"Standard_B2ms", "Burstable", 2, 4096, 1700, true},
		{"Standard_B4ms", "Burstable", 4, 4096, 2400, true}, {"Standard_B8ms", "Burstable", 8, 4096, 3100, true}, {"Standard_B12ms", "Burstable", 12, 4096, 3800, true},
		{"Standard_B16ms", "Burstable", 16, 4096, 4300, true}, {"Standard_B20ms", "Burstable", 20, 4096, 5000, true}},
	sizesOf("Standard_D%dds_v5", "GeneralPurpose", 4096, true, 2, 4, 8, 16, 32, 48, 64, 96),
	sizesOf("Standard_D%dads_v5", "GeneralPurpose", 4096, true, 2, 4, 8, 16, 32, 48, 64, 96),
	sizesOf("Standard_D%dds_v4", "GeneralPurpose", 4096, false, 2, 4, 8, 16, 32, 48, 64),
	sizesOf("Standard_D%ds_v3", "GeneralPurpose", 4096, false, 2, 4, 8, 16, 32, 48, 64),
	sizesOf("Standard_E%dds_v5", "MemoryOptimized", 8192, true, 2, 4, 8, 16, 20, 32, 48, 64, 96),
	sizesOf("Standard_E%dds_v4", "MemoryOptimized", 8192, false, 2, 4, 8, 16, 20, 32, 48, 64),
)

// sku finds a size; MySQL calls the tier MemoryOptimized as well, and has no v3.
func (e *flexEngine) sku(name string) (flexSKU, bool) {
	i := slices.IndexFunc(flexSKUs, func(s flexSKU) bool { return strings.EqualFold(s.name, name) })
	if i < 0 {
		return flexSKU{}, false
	}
	return flexSKUs[i], true
}

// A flexVersion is a version that servers are made of. Status is as capabilities have it: those that the community supports no more
// can be seen only.
type flexVersion struct{ name, status string }

var flexVersionsOf = map[string][]flexVersion{
	"postgres": {{"11", "Visible"}, {"12", "Visible"}, {"13", "Visible"}, {"14", "Visible"}, {"15", "Available"}, {"16", "Available"}, {"17", "Default"}, {"18", "Available"}},
	"mysql":    {{"5.7", "Visible"}, {"8.0.21", "Default"}, {"8.4", "Available"}},
}

// rank is a version's place in the list, or -1.
func (e *flexEngine) rank(version string) int {
	return slices.IndexFunc(flexVersionsOf[e.engine], func(v flexVersion) bool { return v.name == version })
}

func (e *flexEngine) versionNames() []string {
	var out []string
	for _, v := range flexVersionsOf[e.engine] {
		out = append(out, v.name)
	}
	return out
}

// A postgresDisk is a size of PostgreSQL's Premium SSDs.
type postgresDisk struct {
	gb, iops int
	tier     string
}

var postgresDisks = []postgresDisk{{32, 120, "P4"}, {64, 240, "P6"}, {128, 500, "P10"}, {256, 1100, "P15"}, {512, 2300, "P20"}, {1024, 5000, "P30"}, {2048, 7500, "P40"},
	{4096, 7500, "P50"}, {8192, 16000, "P60"}, {16384, 18000, "P70"}, {32767, 20000, "P80"}}

// pgDisk is the disk of a size, or the smallest that has it.
func pgDisk(gb int) postgresDisk {
	for _, d := range postgresDisks {
		if d.gb >= gb {
			return d
		}
	}
	return postgresDisks[len(postgresDisks)-1]
}

// zonesOf are the zones of a location, as capabilities list them.
func zonesOf(location string) []any {
	if l, _ := findLocation(location); l.zones == 0 {
		return []any{}
	}
	return []any{"1", "2", "3"}
}

// haModes are the kinds of standbys that a tier can have in a location.
func haModes(tier, location string) []any {
	switch l, _ := findLocation(location); {
	case tier == "Burstable":
		return []any{}
	case l.zones == 0:
		return []any{"SameZone"}
	}
	return []any{"SameZone", "ZoneRedundant"}
}

func badServerLocation(e *flexEngine, r *request) *Error {
	return refuseARM(http.StatusBadRequest, "LocationNotAvailableForResourceType", "The provided location '%s' is not available for resource type '%s'. List of available regions for the resource type is '%s'.",
		r.vars["location"], e.typ, strings.Join(locationNames(), ","))
}

// listCapabilities answers what can be made in a location ("Capabilities By Location - List").
func (c *Cloud) listCapabilities(e *flexEngine, r *request) (answer, error) {
	if !isLocation(r.Region) {
		return answer{}, badServerLocation(e, r)
	}
	if e == flexPostgres {
		return r.page([]any{c.postgresCapability(r)}, "$skiptoken")
	}
	if strings.HasSuffix(r.path, "capabilities") {
		var all []any
		for _, zone := range append([]any{"none"}, zonesOf(r.Region)...) {
			all = append(all, mysqlOldCapability(r.Region, zone))
		}
		return r.page(all, "$skiptoken")
	}
	return r.page([]any{mysqlCapability(r)}, "$skiptoken")
}

func (c *Cloud) getCapabilities(e *flexEngine, r *request) (answer, error) {
	if !isLocation(r.Region) {
		return answer{}, badServerLocation(e, r)
	}
	return plain(mysqlCapability(r)), nil
}

func (c *Cloud) postgresCapability(r *request) map[string]any {
	status := "Available"
	restricted := "Disabled"
	if limit, _ := c.World.QuotaValue("azure", flexPostgres.service, "vCores", r.subscription, r.Region); limit == 0 {
		status, restricted = "Disabled", "Enabled"
	}
	var editions, versions []any
	for _, tier := range []string{"Burstable", "GeneralPurpose", "MemoryOptimized"} {
		editions = append(editions, map[string]any{"name": tier, "defaultSkuName": map[string]string{"Burstable": "Standard_B1ms", "GeneralPurpose": "Standard_D4ds_v5", "MemoryOptimized": "Standard_E4ds_v5"}[tier],
			"supportedStorageEditions": []any{postgresStorage()}, "supportedServerSkus": skuList(flexPostgres, r, tier), "status": "Available"})
	}
	names := flexPostgres.versionNames()
	for i, v := range flexVersionsOf["postgres"] {
		versions = append(versions, map[string]any{"name": v.name, "supportedVersionsToUpgrade": names[i+1:], "supportedFeatures": []any{}, "status": v.status})
	}
	ha := "Disabled"
	if len(zonesOf(r.Region)) > 0 {
		ha = "Enabled"
	}
	return map[string]any{"name": "FlexibleServerCapabilities", "supportedServerEditions": editions, "supportedServerVersions": versions, "supportedFeatures": []any{},
		"fastProvisioningSupported": "Disabled", "supportedFastProvisioningEditions": []any{}, "geoBackupSupported": "Enabled", "zoneRedundantHaSupported": ha,
		"zoneRedundantHaAndGeoBackupSupported": ha, "storageAutoGrowthSupported": "Enabled", "onlineResizeSupported": "Enabled", "restricted": restricted, "status": status}
}

func postgresStorage() map[string]any {
	var sizes []any
	for i, d := range postgresDisks {
		var tiers []any
		for _, t := range postgresDisks[i:] {
			tiers = append(tiers, map[string]any{"name": t.tier, "iops": t.iops, "status": "Available"})
		}
		sizes = append(sizes, map[string]any{"storageSizeMb": d.gb * 1024, "supportedIops": d.iops, "defaultIopsTier": d.tier, "supportedIopsTiers": tiers, "status": "Available"})
	}
	return map[string]any{"name": "ManagedDisk", "defaultStorageSizeMb": 131072, "supportedStorageMb": sizes, "status": "Available"}
}

// skuList are the sizes of a tier.
func skuList(e *flexEngine, r *request, tier string) []any {
	var out []any
	for _, s := range flexSKUs {
		if s.tier != tier || !s.current {
			continue
		}
		entry := map[string]any{"name": s.name, "vCores": s.vCores, "supportedIops": s.iops, "supportedZones": zonesOf(r.Region)}
		if e == flexPostgres {
			entry["supportedMemoryPerVcoreMb"], entry["supportedHaMode"], entry["supportedFeatures"], entry["status"] = s.memoryMB, haModes(tier, r.Region), []any{}, "Available"
		} else {
			entry["supportedMemoryPerVCoreMB"], entry["supportedHAMode"] = s.memoryMB, haModes(tier, r.Region)
		}
		out = append(out, entry)
	}
	return out
}

// mysqlStorage is what disks of MySQL there are.
func mysqlStorage() map[string]any {
	return map[string]any{"name": "Premium", "minStorageSize": 20480, "maxStorageSize": 16777216, "minBackupRetentionDays": 1, "maxBackupRetentionDays": 35, "minBackupIntervalHours": 24, "maxBackupIntervalHours": 24}
}

func mysqlCapability(r *request) map[string]any {
	var editions, versions []any
	for _, tier := range []string{"Burstable", "GeneralPurpose", "MemoryOptimized"} {
		editions = append(editions, map[string]any{"name": tier, "defaultSku": map[string]string{"Burstable": "Standard_B1ms", "GeneralPurpose": "Standard_D2ads_v5", "MemoryOptimized": "Standard_E2ds_v5"}[tier],
			"defaultStorageSize": 65536, "supportedStorageEditions": []any{mysqlStorage()}, "supportedSkus": skuList(flexMySQL, r, tier)})
	}
	for _, v := range flexVersionsOf["mysql"] {
		versions = append(versions, map[string]any{"name": v.name})
	}
	l, _ := findLocation(r.Region)
	return map[string]any{"id": "/subscriptions/" + r.subscription + "/providers/" + flexMySQL.namespace() + "/locations/" + r.Region + "/capabilitySets/default", "name": "default",
		"type": "Microsoft.DBforMySQL/locations/capabilitySets", "properties": map[string]any{"supportedGeoBackupRegions": []any{l.paired}, "supportedFlexibleServerEditions": editions,
			"supportedServerVersions": versions, "supportedFeatures": []any{}}}
}

// mysqlOldCapability is the shape of before, an entry for each zone.
func mysqlOldCapability(location string, zone any) map[string]any {
	var editions []any
	for _, tier := range []string{"Burstable", "GeneralPurpose", "MemoryOptimized"} {
		var versions, skus []any
		for _, s := range flexSKUs {
			if s.tier == tier && s.current {
				skus = append(skus, map[string]any{"name": s.name, "vCores": s.vCores, "supportedIops": s.iops, "supportedMemoryPerVCoreMB": s.memoryMB})
			}
		}
		for _, v := range flexVersionsOf["mysql"] {
			versions = append(versions, map[string]any{"name": v.name, "supportedSkus": skus})
		}
		editions = append(editions, map[string]any{"name": tier, "supportedStorageEditions": []any{mysqlStorage()}, "supportedServerVersions": versions})
	}
	l, _ := findLocation(location)
	return map[string]any{"zone": zone, "supportedHAMode": haModes("GeneralPurpose", location), "supportedGeoBackupRegions": []any{l.paired}, "supportedFlexibleServerEditions": editions}
}
