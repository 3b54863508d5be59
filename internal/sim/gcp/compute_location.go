package gcp

import (
	"slices"
	"sort"
	"strings"

	"github.com/zopday/provisioner/internal/sim"
)

// regions are those of Compute Engine that a project sees, with their zones and the range of their subnetwork in networks in
// auto mode ("Auto mode IPv4 ranges", VPC).
var regions = map[string]struct {
	zones string
	auto  string
}{
	"africa-south1":           {"abc", "10.218.0.0/20"},
	"asia-east1":              {"abc", "10.140.0.0/20"},
	"asia-east2":              {"abc", "10.170.0.0/20"},
	"asia-northeast1":         {"abc", "10.146.0.0/20"},
	"asia-northeast2":         {"abc", "10.174.0.0/20"},
	"asia-northeast3":         {"abc", "10.178.0.0/20"},
	"asia-south1":             {"abc", "10.160.0.0/20"},
	"asia-south2":             {"abc", "10.190.0.0/20"},
	"asia-southeast1":         {"abc", "10.148.0.0/20"},
	"asia-southeast2":         {"abc", "10.184.0.0/20"},
	"australia-southeast1":    {"abc", "10.152.0.0/20"},
	"australia-southeast2":    {"abc", "10.192.0.0/20"},
	"europe-central2":         {"abc", "10.186.0.0/20"},
	"europe-north1":           {"abc", "10.166.0.0/20"},
	"europe-north2":           {"abc", "10.226.0.0/20"},
	"europe-southwest1":       {"abc", "10.204.0.0/20"},
	"europe-west1":            {"bcd", "10.132.0.0/20"},
	"europe-west2":            {"abc", "10.154.0.0/20"},
	"europe-west3":            {"abc", "10.156.0.0/20"},
	"europe-west4":            {"abc", "10.164.0.0/20"},
	"europe-west6":            {"abc", "10.172.0.0/20"},
	"europe-west8":            {"abc", "10.198.0.0/20"},
	"europe-west9":            {"abc", "10.200.0.0/20"},
	"europe-west10":           {"abc", "10.214.0.0/20"},
	"europe-west12":           {"abc", "10.210.0.0/20"},
	"me-central1":             {"abc", "10.212.0.0/20"},
	"me-central2":             {"abc", "10.216.0.0/20"},
	"me-west1":                {"abc", "10.208.0.0/20"},
	"northamerica-northeast1": {"abc", "10.162.0.0/20"},
	"northamerica-northeast2": {"abc", "10.188.0.0/20"},
	"northamerica-south1":     {"abc", "10.224.0.0/20"},
	"southamerica-east1":      {"abc", "10.158.0.0/20"},
	"southamerica-west1":      {"abc", "10.194.0.0/20"},
	"us-central1":             {"abcf", "10.128.0.0/20"},
	"us-east1":                {"bcd", "10.142.0.0/20"},
	"us-east4":                {"abc", "10.150.0.0/20"},
	"us-east5":                {"abc", "10.202.0.0/20"},
	"us-south1":               {"abc", "10.206.0.0/20"},
	"us-west1":                {"abc", "10.138.0.0/20"},
	"us-west2":                {"abc", "10.168.0.0/20"},
	"us-west3":                {"abc", "10.180.0.0/20"},
	"us-west4":                {"abc", "10.182.0.0/20"},
}

func regionNames() []string { return keysOf(regions) }

// zoneNames are the zones of all regions, or of those given.
func zoneNames(of ...string) []string {
	if len(of) == 0 {
		of = regionNames()
	}
	var out []string
	for _, r := range of {
		for _, z := range regions[r].zones {
			out = append(out, r+"-"+string(z))
		}
	}
	sort.Strings(out)
	return out
}

func regionExists(r string) bool { _, ok := regions[r]; return ok }

func zoneExists(z string) bool {
	r := regionOf(z)
	return regionExists(r) && len(z) == len(r)+2 && strings.Contains(regions[r].zones, z[len(z)-1:])
}

// regionOf is the region of a zone.
func regionOf(zone string) string {
	if i := strings.LastIndex(zone, "-"); i > 0 {
		return zone[:i]
	}
	return zone
}

// A computeQuota is a limit of Compute Engine: of the project or of each region.
type computeQuota struct {
	metric string
	limit  float64
	global bool
}

// computeQuotas are the default limits of a project ("Allocation quotas", Compute Engine); real ones differ with a project's age.
var computeQuotas = []computeQuota{
	{"NETWORKS", 15, true}, {"SUBNETWORKS", 275, true}, {"FIREWALLS", 200, true}, {"ROUTES", 250, true}, {"ROUTERS", 20, true},
	{"STATIC_ADDRESSES", 21, true}, {"GLOBAL_INTERNAL_ADDRESSES", 5000, true}, {"IN_USE_ADDRESSES", 69, true}, {"FORWARDING_RULES", 150, true},
	{"BACKEND_SERVICES", 75, true}, {"HEALTH_CHECKS", 150, true}, {"URL_MAPS", 60, true}, {"TARGET_HTTP_PROXIES", 60, true},
	{"TARGET_HTTPS_PROXIES", 60, true}, {"SSL_CERTIFICATES", 60, true}, {"INSTANCE_TEMPLATES", 100, true}, {"SNAPSHOTS", 5000, true}, {"IMAGES", 2000, true},
	{"CPUS_ALL_REGIONS", 200, true}, {"TARGET_TCP_PROXIES", 60, true},
	{"CPUS", 72, false}, {"DISKS_TOTAL_GB", 20480, false}, {"SSD_TOTAL_GB", 2048, false}, {"STATIC_ADDRESSES", 21, false}, {"IN_USE_ADDRESSES", 69, false},
	{"INSTANCES", 720, false}, {"INSTANCE_GROUPS", 700, false}, {"INSTANCE_GROUP_MANAGERS", 500, false}, {"REGIONAL_INSTANCE_GROUP_MANAGERS", 500, false},
	{"AUTOSCALERS", 500, false}, {"REGIONAL_AUTOSCALERS", 500, false}, {"INTERNAL_ADDRESSES", 600, false}, {"E2_CPUS", 72, false}, {"N2_CPUS", 72, false},
	{"N2D_CPUS", 72, false}, {"C2_CPUS", 72, false}, {"T2D_CPUS", 72, false}, {"T2A_CPUS", 8, false}, {"EXTERNAL_VPN_GATEWAYS", 15, false},
}

// quotaCode is how the world's quota book calls a limit: the same metric may exist for the project and for a region.
func quotaCode(metric string, global bool) string {
	if global {
		return metric + "-per-project"
	}
	return metric + "-per-project-region"
}

func (e *Compute) declareQuotas() {
	for _, q := range computeQuotas {
		e.cloud.World.DefineQuota(sim.Quota{Cloud: cloudName, Service: "compute", Code: quotaCode(q.metric, q.global), Name: q.metric, Default: q.limit,
			Unit: "Count", Adjustable: true, Global: q.global})
	}
}

// limit is the limit that holds; region is empty for those of the project.
func (e *Compute) limit(metric, project, region string) float64 {
	return e.cloud.quota("compute", quotaCode(metric, region == ""), project, region)
}

// usage adds up what counts towards a limit.
func (e *Compute) usage(metric, project, region string) float64 {
	sum := 0.0
	for _, res := range e.st.Resources {
		k := e.kinds[res.Collection]
		if k.quota == nil || res.project() != project || quotaRegion(res) != region {
			continue
		}
		for m, amount := range k.quota(res) {
			if m == metric {
				sum += amount
			}
		}
	}
	return sum
}

// perProject are the kinds whose objects lie in a region and yet count for the project.
var perProject = []string{"subnetworks", "routers"}

// quotaRegion is the region whose limits an object counts towards; empty for the project's.
func quotaRegion(res *Resource) string {
	if slices.Contains(perProject, res.Collection) {
		return ""
	}
	return res.region()
}

// checkQuota refuses an object that has just been placed and goes beyond a limit.
func (e *Compute) checkQuota(k *kind, res *Resource) error {
	if k.quota == nil {
		return nil
	}
	region := quotaRegion(res)
	for metric := range k.quota(res) {
		limit := e.limit(metric, res.project(), region)
		if e.usage(metric, res.project(), region) > limit {
			return e.quotaExceeded(metric, limit, region)
		}
	}
	return nil
}

// quotaExceeded is the refusal of what goes beyond a limit ("Allocation quotas: exceeding", Compute Engine).
func (e *Compute) quotaExceeded(metric string, limit float64, region string) *Error {
	where := "globally."
	if region != "" {
		where = "in region " + region + "."
	}
	return refuse(403, "quotaExceeded", "Quota '%s' exceeded.  Limit: %.1f %s", metric, limit, where)
}

// quotas lists limits and usage, of the project or of a region.
func (e *Compute) quotas(project, region string) []any {
	out := []any{}
	for _, q := range computeQuotas {
		if q.global == (region == "") {
			out = append(out, Doc{"metric": q.metric, "limit": e.limit(q.metric, project, region), "usage": e.usage(q.metric, project, region)})
		}
	}
	return out
}
