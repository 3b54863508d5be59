package gcp

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	cloudresourcemanager "google.golang.org/api/cloudresourcemanager/v3"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/sim"
)

// patch changes an object behind the job's back: what the text names is replaced,
// at any depth. What it returns changes it back.
func (g clusterRig) patch(id, text string) (undo func()) {
	g.Helper()
	found := g.world.Objects(sim.ObjectFilter{ID: id})
	if len(found) != 1 {
		g.Fatalf("%d objects are %s", len(found), id)
	}
	var doc, change map[string]any
	now, err := json.Marshal(found[0].Data)
	if err == nil {
		err = errors.Join(json.Unmarshal(now, &doc), json.Unmarshal([]byte(text), &change))
	}
	if err != nil {
		g.Fatal(err)
	}
	back := merged(doc, change)
	g.put(id, doc)
	return func() {
		merged(doc, back)
		g.put(id, doc)
	}
}

func (g clusterRig) put(id string, doc map[string]any) {
	g.Helper()
	whole, err := json.Marshal(doc)
	if err == nil {
		_, err = g.world.PatchObject(id, whole)
	}
	if err != nil {
		g.Fatal(err)
	}
}

// merged puts a change into a document, and returns the change that undoes it.
func merged(doc, change map[string]any) (undo map[string]any) {
	undo = map[string]any{}
	for k, v := range change {
		inner, ok := v.(map[string]any)
		had, both := doc[k].(map[string]any)
		if ok && both {
			undo[k] = merged(had, inner)
			continue
		}
		if undo[k] = doc[k]; doc[k] == nil { // what was not there is shown as its zero
			undo[k] = map[string]any{"bool": false, "string": "", "float64": 0.0, "[]interface {}": []any{}}[fmt.Sprintf("%T", v)]
		}
		doc[k] = v
	}
	return undo
}

// Each hardening control of a cluster, switched off at the cloud one by one: its row
// says so, no other does, and once it is back all is met again.
func TestClusterControlsFlipped(t *testing.T) {
	t.Parallel()
	g := newCluster(t, sim.Options{}, job.ModeCreate, twoPoolsSpec)
	g.up()
	cluster := g.cluster().ID
	pool := cluster + "/nodePools/workers"
	on := func(id, text string) func() func() { return func() func() { return g.patch(id, text) } }
	flips := map[string]func() (undo func()){
		"GKE-01": on(cluster, `{"controlPlaneEndpointsConfig":{"ipEndpointsConfig":{"enablePublicEndpoint":true}}}`),
		"GKE-02": on(cluster, `{"controlPlaneEndpointsConfig":{"ipEndpointsConfig":{"authorizedNetworksConfig":{"cidrBlocks":[{"cidrBlock":"0.0.0.0/0"}]}}}}`),
		"GKE-03": on(pool, `{"networkConfig":{"enablePrivateNodes":false}}`),
		"GKE-04": on(cluster, `{"masterAuth":{"clientCertificateConfig":{"issueClientCertificate":true}}}`),
		"GKE-05": on(cluster, `{"legacyAbac":{"enabled":true}}`),
		"GKE-06": on(cluster, `{"workloadIdentityConfig":{"workloadPool":""}}`),
		"GKE-07": on(pool, `{"config":{"workloadMetadataConfig":{"mode":"GCE_METADATA"}}}`),
		"GKE-08": on(pool, `{"config":{"serviceAccount":"default"}}`),
		"GKE-09": func() func() { return g.grantRole("roles/editor", "serviceAccount:"+g.cluster().NodeRoleID) },
		"GKE-10": on(cluster, `{"shieldedNodes":{"enabled":false}}`),
		"GKE-11": on(pool, `{"config":{"shieldedInstanceConfig":{"enableIntegrityMonitoring":false}}}`),
		"GKE-12": on(pool, `{"config":{"shieldedInstanceConfig":{"enableSecureBoot":false}}}`),
		"GKE-13": on(cluster, `{"databaseEncryption":{"state":"DECRYPTED"}}`),
		"GKE-14": on(cluster, `{"networkConfig":{"datapathProvider":"LEGACY_DATAPATH"}}`),
		"GKE-15": on(cluster, `{"networkConfig":{"enableIntraNodeVisibility":false}}`),
		"GKE-16": on(g.infra().PrivateSubnetIDs[0], `{"logConfig":{"enable":false}}`),
		"GKE-17": on(cluster, `{"ipAllocationPolicy":{"useIpAliases":false}}`),
		"GKE-18": on(cluster, `{"releaseChannel":{"channel":"UNSPECIFIED"}}`),
		"GKE-19": on(pool, `{"management":{"autoUpgrade":false}}`),
		"GKE-20": on(pool, `{"management":{"autoRepair":false}}`),
		"GKE-21": on(pool, `{"config":{"imageType":"UBUNTU_CONTAINERD"}}`),
		"GKE-22": on(cluster, `{"loggingConfig":{"componentConfig":{"enableComponents":["SYSTEM_COMPONENTS"]}}}`),
		"GKE-23": on(cluster, `{"monitoringConfig":{"componentConfig":{"enableComponents":[]}}}`),
		"GKE-27": on(cluster, `{"securityPostureConfig":{"mode":"DISABLED"}}`),
		"GKE-28": on(pool, `{"config":{"kubeletConfig":{"insecureKubeletReadonlyPortEnabled":true}}}`),
		"GKE-29": on(cluster, `{"anonymousAuthenticationConfig":{"mode":"ENABLED"}}`),
		"GKE-30": on(cluster, `{"rbacBindingConfig":{"enableInsecureBindingSystemAuthenticated":true}}`),
		"GKE-31": on(pool, `{"config":{"metadata":{"disable-legacy-endpoints":"false"}}}`),
		"GKE-32": on(cluster, `{"addonsConfig":{"kubernetesDashboard":{"disabled":false}}}`),
		"GKE-33": on(cluster, `{"enableKubernetesAlpha":true}`),
		"GKE-34": nil, // below: a pool is no field
		"GKE-35": nil, // below: the labels hold the guard too
		"GKE-36": on(g.infra().NetworkID, `{"IPv4Range":"10.0.0.0/8"}`),
		"GKE-37": func() func() { return g.opened("30080") },
		"GKE-45": on(cluster, `{"resourceLabels":{"zopday-delete-guard":""}}`),
		"GKE-46": on(cluster, `{"monitoringConfig":{"managedPrometheusConfig":{"enabled":false}}}`),
		"GKE-47": on(cluster, `{"costManagementConfig":{"enabled":false}}`),
		"GKE-48": on(cluster, `{"maintenancePolicy":{"window":{"recurringWindow":{"recurrence":""}}}}`),
	}
	rows := slices.DeleteFunc(slices.Sorted(maps.Keys(g.report())), func(id string) bool { return !strings.HasPrefix(id, "GKE-") })
	if want := slices.Sorted(maps.Keys(flips)); !slices.Equal(rows, want) {
		t.Errorf("the report has the rows\n%v, and\n%v are tried", rows, want)
	}
	// Rows of the network that are about the same thing.
	along := map[string][]string{"GKE-16": {"NETG-05"}, "GKE-36": {"NETG-01", "NETG-02"}, "GKE-37": {"NETG-09"}}
	for _, id := range rows {
		flip := flips[id]
		if flip == nil {
			continue
		}
		undo := flip()
		var unmet []string
		for row, c := range g.report() {
			if !c.Met {
				unmet = append(unmet, row)
			}
		}
		slices.Sort(unmet)
		if want := append([]string{id}, along[id]...); !slices.Equal(unmet, want) {
			t.Errorf("%s: not met are %v, want %v", id, unmet, want)
		}
		undo()
	}
	for id, row := range g.report() {
		if !row.Met {
			t.Errorf("%s is not met again: %+v", id, row)
		}
	}
	// What the spec asks for itself is no reason to call a control met.
	subnet, spec := g.infra().PrivateSubnetIDs[0], g.job.Config.Spec
	undo := g.patch(subnet, `{"logConfig":{"enable":false}}`)
	g.job.Config.Spec = []byte(strings.Replace(string(spec), `"zones":3`, `"zones":3,"flowLogs":"none"`, 1))
	if row := g.report()["GKE-16"]; row.Met {
		t.Errorf("flow logs that the spec turns off: %+v", row)
	}
	g.job.Config.Spec = spec
	undo()
	g.invoke(testProject, "container", "projects.locations.clusters.nodePools.create", map[string]any{"parent": cluster, "body": map[string]any{
		"nodePool": map[string]any{"name": "default-pool", "initialNodeCount": 1}}})
	if row := g.report()["GKE-34"]; row.Met {
		t.Errorf("an initial pool goes unseen: %+v", row)
	}
	g.put(cluster, map[string]any{"resourceLabels": map[string]any{}})
	if row := g.report()["GKE-35"]; row.Met {
		t.Errorf("a cluster without labels goes unseen: %+v", row)
	}
}

// grantRole gives a member a role of the project, behind the job's back.
func (g clusterRig) grantRole(role, member string) (undo func()) {
	g.Helper()
	ctx := anything(g.Context())
	change := func(edit func(*cloudresourcemanager.Policy, projectGrant) bool) {
		if err := g.p.changePolicy(ctx, func(p *cloudresourcemanager.Policy) bool { return edit(p, projectGrant{role: role, member: member}) }); err != nil {
			g.Fatal(err)
		}
	}
	change(grant)
	return func() { change(revoke) }
}

// opened is a firewall rule of somebody's that opens a port of the job's network to
// the internet.
func (g clusterRig) opened(port string) (undo func()) {
	g.Helper()
	g.place("compute", "firewalls.insert", map[string]any{"name": "theirs", "network": g.infra().NetworkID, "sourceRanges": []any{"0.0.0.0/0"},
		"allowed": []any{map[string]any{"IPProtocol": "tcp", "ports": []any{port}}}})
	return func() {
		if _, err := g.world.RemoveObject("projects/" + testProject + "/global/firewalls/theirs"); err != nil {
			g.Fatal(err)
		}
	}
}
