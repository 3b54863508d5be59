package gcp

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/sim"
)

// office is a network of somebody's with a subnet for nodes: its NAT, and ranges for
// pods and Services. What is named is left out or changed.
func (g clusterRig) office(secondary ...any) {
	g.Helper()
	const network = "projects/" + testProject + "/global/networks/office"
	g.invoke(testProject, "compute", "networks.insert", map[string]any{"name": "office", "autoCreateSubnetworks": false})
	g.invoke(testProject, "compute", "subnetworks.insert", map[string]any{"region": testRegion, "name": "nodes", "network": network, "ipCidrRange": "10.60.0.0/20",
		"privateIpGoogleAccess": true, "logConfig": map[string]any{"enable": true}, "secondaryIpRanges": secondary})
	g.invoke(testProject, "compute", "routers.insert", map[string]any{"region": testRegion, "name": "theirs", "network": network,
		"nats": []any{map[string]any{"name": "all", "natIpAllocateOption": "AUTO_ONLY", "sourceSubnetworkIpRangesToNat": "ALL_SUBNETWORKS_ALL_IP_RANGES"}}})
	g.world.Step(3 * time.Minute)
}

func ranged(name, cidr string) any {
	return map[string]any{"rangeName": name, "ipCidrRange": cidr}
}

var theirPods, theirServices = ranged("pods", "10.64.0.0/16"), ranged("services", "10.65.0.0/20")

const existingClusterSpec = `{"nodePools":[{"name":"workers","min":1,"desired":2,"max":4}],"network":{"zones":2},"existing":{"networkId":"office","subnetIds":["nodes"]}}`

// What cannot work is told before anything is made, with the field and what to do.
func TestClusterRefusals(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, spec string
		mode       job.Mode
		place      func(clusterRig)
		field      string
		says       string
	}{
		{"a version that is not there", `{"version":"1.20"}`, job.ModeCreate, nil, "config.spec.version", "does not offer Kubernetes 1.20"},
		{"a version past its support", `{"version":"1.33"}`, job.ModeCreate, nil, "config.spec.version", "past its standard support"},
		{"a version whose day is over", `{"version":"1.34"}`, job.ModeCreate, nil, "config.spec.version", "ended on 2026-10-01"},
		{"a type that no zone has", `{"nodePools":[{"name":"w","instanceType":"e9-standard-2"}]}`, job.ModeCreate, nil, "config.spec.nodePools[0].instanceType", "none of the zones"},
		{"a type that is too small", `{"nodePools":[{"name":"w","instanceType":"e2-small"}]}`, job.ModeCreate, nil, "config.spec.nodePools[0].instanceType", "a node needs 4 GiB"},
		{"more than the quota", `{"nodePools":[{"name":"w","desired":90,"max":100,"size":{"vcpus":32,"memoryGiB":128}}]}`, job.ModeCreate, nil, "config.spec.nodePools", "quota CPUS of region us-central1"},
		{"a subnet that is too small", `{"network":{"cidr":"10.40.0.0/24"},"nodePools":[{"name":"w","desired":2,"max":100},{"name":"v","desired":2,"max":100}]}`, job.ModeCreate, nil, "config.spec.network.cidr", "addresses for nodes"},
		{"a range that is taken", `{"podCidr":"10.80.0.0/16"}`, job.ModeCreate, func(g clusterRig) { g.hub(testProject, "10.80.0.0/16") }, "", "can never be peered"},
		{"no such network", existingClusterSpec, job.ModeCreateInExisting, nil, "config.spec.existing.networkId", "office does not exist"},
		{"no such subnet", `{"existing":{"networkId":"office","subnetIds":["elsewhere"]}}`, job.ModeCreateInExisting, func(g clusterRig) { g.office(theirPods, theirServices) },
			"config.spec.existing.subnetIds", "elsewhere is not in network office"},
		{"a subnet without ranges", existingClusterSpec, job.ModeCreateInExisting, func(g clusterRig) { g.office() }, "config.spec.existing.subnetIds", "has no secondary ranges"},
		{"no subnet that fits", `{"existing":{"networkId":"office"}}`, job.ModeCreateInExisting, func(g clusterRig) { g.office(theirPods) }, "config.spec.existing.subnetIds", "0 are named or fit"},
		{"pods without room", existingClusterSpec, job.ModeCreateInExisting, func(g clusterRig) { g.office(ranged("pods", "10.64.0.0/22"), theirServices) },
			"config.spec.existing.subnetIds", "room for 4 nodes"},
		{"ranges of another cluster", existingClusterSpec, job.ModeCreateInExisting, func(g clusterRig) {
			g.office(theirPods, theirServices)
			g.place("container", clusterCreate, map[string]any{"parent": "projects/" + testProject + "/locations/" + testRegion, "body": map[string]any{"cluster": map[string]any{
				"name": "theirs", "network": "office", "subnetwork": "nodes", "initialNodeCount": 1, "ipAllocationPolicy": map[string]any{
					"useIpAliases": true, "clusterSecondaryRangeName": "pods", "servicesSecondaryRangeName": "services"}}}})
		}, "config.spec.existing.subnetIds", "cluster theirs has its addresses from the same ranges"},
		{"no default route", existingClusterSpec, job.ModeCreateInExisting, func(g clusterRig) {
			g.office(theirPods, theirServices)
			for _, o := range g.world.Objects(sim.ObjectFilter{Kind: "route", All: true}) {
				if strings.HasPrefix(base(o.ID), "default-route-") {
					if _, err := g.world.RemoveObject(o.ID); err != nil {
						g.Fatal(err)
					}
				}
			}
		}, "config.spec.existing.networkId", "has no default route"},
		{"nothing to adopt", `{"adopt":{"name":"nowhere"}}`, job.ModeAdopt, nil, "config.spec.adopt", "there is no cluster"},
		{"a cluster of another region", `{"adopt":{"ids":["projects/example-project/locations/us-east1-b/clusters/theirs"]}}`, job.ModeAdopt, nil, "config.spec.adopt", "is in us-east1-b"},
		{"an API that is off", `{}`, job.ModeCreate, func(g clusterRig) {
			g.invoke(testProject, "serviceusage", "services.disable", map[string]any{"name": "projects/example-project/services/container.googleapis.com"})
		}, "", "container.googleapis.com"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := newCluster(t, sim.Options{}, c.mode, c.spec)
			if c.place != nil {
				c.place(g)
			}
			since := g.mark()
			bad := g.findings()
			if _, changes := g.calls(since); sum(changes) > 0 {
				t.Errorf("a check changed %v", changes)
			}
			for _, b := range bad {
				if strings.Contains(b.Message, c.says) && (c.field == "" || b.Field == c.field && b.Status == cloud.CheckFails && b.Fix != "") {
					return
				}
			}
			t.Errorf("checks: %+v", bad)
		})
	}
}

// A network's ranges keep clear of each other and of what is in use, and are as large
// as the pools need (J5, J7).
func TestClusterRanges(t *testing.T) {
	t.Parallel()
	g := newCluster(t, sim.Options{}, job.ModeCreate, `{"nodePools":[{"name":"a","desired":2,"max":100},{"name":"b","desired":1,"max":100},{"name":"c","desired":1,"max":100}]}`)
	g.hub(testProject, "10.41.0.0/16")
	for _, f := range g.findings() {
		if f.Status == cloud.CheckFails {
			t.Errorf("%+v", f)
		}
	}
	// 303 nodes: a /15; 10.42.0.0/15 is the first that is clear of 10.40/16 and the hub.
	if got := g.cluster(); got.PodCIDR != "10.42.0.0/15" || got.ServiceCIDR != "10.44.0.0/20" {
		t.Errorf("pods %s, Services %s", got.PodCIDR, got.ServiceCIDR)
	}
	again := *g.cluster()
	g.findings()
	if d := cmp.Diff(again, *g.cluster()); d != "" {
		t.Errorf("a second check resolves otherwise:\n%s", d)
	}
}

func TestSpread(t *testing.T) {
	t.Parallel()
	zones := []string{"a", "b", "c"}
	for _, c := range []struct{ desired, most, zones, nodes int }{
		{0, 5, 3, 0}, {1, 4, 1, 1}, {2, 4, 2, 2}, {3, 6, 3, 3}, {4, 8, 3, 6}, {4, 4, 2, 4}, {5, 5, 1, 5}, {5, 6, 3, 6}, {7, 100, 3, 9},
	} {
		if in, n := spread(c.desired, c.most, zones); len(in) != c.zones || n != c.nodes {
			t.Errorf("%d of %d at most: %d nodes in %v, want %d in %d zones", c.desired, c.most, n, in, c.nodes, c.zones)
		}
	}
}

// Zones for AI alone are no place for nodes (J1).
func TestOrdinaryZones(t *testing.T) {
	t.Parallel()
	for zone, want := range map[string]bool{"us-central1-a": true, "europe-west12-c": true, "us-south1-ai1b": false, "us-central1-ai1a": false} {
		if got := ordinary(zone); got != want {
			t.Errorf("%s is ordinary: %v", zone, got)
		}
	}
}

// A version past its standard support is taken when it was asked for, and told.
func TestExtendedSupport(t *testing.T) {
	t.Parallel()
	g := newCluster(t, sim.Options{}, job.ModeCreate, `{"version":"1.33","extendedSupport":true,"network":{"zones":2}}`)
	told := false
	for _, f := range g.findings() {
		told = told || f.Status == cloud.CheckWarning && strings.Contains(f.Message, "bills extra")
	}
	if !told {
		t.Error("nobody is told what it costs")
	}
	g.up()
	if info := g.cluster(); info.Version != "1.33" || !info.Extended {
		t.Errorf("%+v", info)
	}
	if row := g.report()["GKE-18"]; !row.Met || row.Seen != channelExtended {
		t.Errorf("%+v", row)
	}
	g.down()
}

// In a network of somebody's the job makes the cluster and what it runs as, and
// leaves the network as it is, also when it goes (F1, F2).
func TestClusterInExistingNetwork(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]string{
		"a named subnet":       existingClusterSpec,
		"the only one to fit":  `{"nodePools":[{"name":"workers","min":1,"desired":2,"max":4}],"network":{"zones":2},"existing":{"networkId":"office"}}`,
		"ranges by their CIDR": `{"nodePools":[{"name":"workers","min":1,"desired":2,"max":4}],"podCidr":"10.64.0.0/16","serviceCidr":"10.65.0.0/20","network":{"zones":2},"existing":{"networkId":"office","subnetIds":["nodes"]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newCluster(t, sim.Options{}, job.ModeCreateInExisting, spec)
			g.office(theirPods, theirServices)
			before := g.world.Snapshot()
			for _, f := range g.findings() {
				t.Errorf("check: %+v", f)
			}
			since := g.mark()
			g.up()
			_, changes := g.calls(since)
			for op := range changes {
				if strings.HasPrefix(op, "networks.") || strings.HasPrefix(op, "subnetworks.") || strings.HasPrefix(op, "firewalls.") || strings.HasPrefix(op, "routers.") {
					t.Errorf("the job called %s", op)
				}
			}
			if got := g.cluster(); got.PodCIDR != "10.64.0.0/16" || got.ServiceCIDR != "10.65.0.0/20" {
				t.Errorf("%+v", got)
			}
			if d := g.differs(); len(d) > 0 {
				t.Errorf("drift: %v", d)
			}
			for id, row := range g.report() {
				if !row.Met {
					t.Errorf("%s: %+v", id, row)
				}
			}
			g.down()
			g.equal(before)
		})
	}
}

// Ranges that were taken out of the named subnet after the check stop the job with
// the reason.
func TestRangesThatAreGone(t *testing.T) {
	t.Parallel()
	g := newCluster(t, sim.Options{}, job.ModeCreateInExisting, existingClusterSpec)
	g.office(theirPods, theirServices)
	if err := g.try(false, g.ups()[:3]...); err != nil {
		t.Fatal(err)
	}
	g.put("projects/"+testProject+"/regions/"+testRegion+"/subnetworks/nodes", map[string]any{"secondaryIpRanges": []any{}})
	g.another()
	if err := g.try(false, g.p.EnsureCluster); fatalCode(err) != "ranges-gone" {
		t.Errorf("the verdict is %v", err)
	}
}

// What somebody changed of a cluster is told, and put right by a run.
func TestClusterDrift(t *testing.T) {
	t.Parallel()
	g := newCluster(t, sim.Options{}, job.ModeCreate, twoPoolsSpec)
	g.up()
	cluster := g.cluster().ID
	pool := cluster + "/nodePools/arm"
	for name, c := range map[string]struct{ id, change, attr string }{
		"an open endpoint":       {cluster, `{"controlPlaneEndpointsConfig":{"ipEndpointsConfig":{"enablePublicEndpoint":true}}}`, "control plane on the internet by IP address"},
		"a closed DNS endpoint":  {cluster, `{"controlPlaneEndpointsConfig":{"dnsEndpointConfig":{"allowExternalTraffic":false}}}`, "DNS endpoint of the control plane"},
		"attribute-based access": {cluster, `{"legacyAbac":{"enabled":true}}`, "attribute-based access"},
		"no window":              {cluster, `{"maintenancePolicy":{"window":{"recurringWindow":{"recurrence":"FREQ=DAILY"}}}}`, "maintenance window"},
		"a lost label":           {cluster, `{"resourceLabels":{"zopday-org":"other"}}`, "labels"},
		"other bounds":           {pool, `{"autoscaling":{"totalMaxNodeCount":9}}`, "autoscaling"},
		"another label":          {pool, `{"config":{"labels":{"tier":"web"}}}`, "labels of nodes"},
		"another taint":          {pool, `{"config":{"taints":[{"key":"batch","value":"no","effect":"NO_SCHEDULE"}]}}`, "taints of nodes"},
		"open metadata":          {pool, `{"config":{"workloadMetadataConfig":{"mode":"GCE_METADATA"}}}`, "GKE metadata server"},
		"no metrics":             {cluster, `{"monitoringConfig":{"managedPrometheusConfig":{"enabled":false}}}`, "managed Prometheus"},
	} {
		g.patch(c.id, c.change)
		var attrs []string
		for _, d := range g.differs() {
			attrs = append(attrs, d.Attr)
		}
		if len(attrs) != 1 || attrs[0] != c.attr {
			t.Errorf("%s is told as %v", name, attrs)
		}
		g.another()
		g.up()
		if d := g.differs(); len(d) > 0 {
			t.Errorf("%s is not put right: %v", name, d)
		}
	}
	g.patch(cluster, `{"networkConfig":{"datapathProvider":"LEGACY_DATAPATH"}}`)
	g.another()
	if err := g.try(false, g.p.EnsureCluster); fatalCode(err) != "not-as-asked" || !strings.Contains(err.Error(), "Dataplane V2") {
		t.Errorf("what cannot be changed in place: %v", err)
	}
}

// Rows that cannot be read are told as such, and count as no fault.
func TestUnreadControls(t *testing.T) {
	t.Parallel()
	g := newCluster(t, sim.Options{}, job.ModeCreate, oneClusterSpec)
	g.up()
	g.fault(sim.Fault{Kind: sim.FaultError, Operation: "projects.locations.clusters.get", Count: -1, Code: "forbidden", Status: 403})
	unread := 0
	for id, row := range g.report() {
		if !row.Met && !row.Unchecked {
			t.Errorf("%s: %+v", id, row)
		}
		if row.Unchecked {
			unread++
		}
	}
	if unread != len(clusterRows()) {
		t.Errorf("%d rows are not read, want %d", unread, len(clusterRows()))
	}
}
