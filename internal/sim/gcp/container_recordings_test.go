package gcp

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/sim/gcp/schema"
)

// clustersMeant are the differences from the recordings of clusters that are meant to be: file and a pattern for the difference, with
// the reason.
var clustersMeant = []struct{ file, pattern, why string }{
	{"*", `([vV]ersion|clusterIpv4Cidr|clusterIpv4CidrBlock|podIpv4CidrBlock|servicesIpv4Cidr|servicesIpv4CidrBlock): `, "other versions and ranges"},
	{"*", `(endpoint|Endpoint|instanceGroupUrls\[\]|clusterCaCertificate|clusterSecondaryRangeName|podRange|generateTime|destroyTime): `, "made up, by both"},
	{"*", `locations\[\]: `, "the zones in another order"},
	{"*", `locations: not recorded|nodePools\[\].(etag|selfLink): not recorded|clusters/\S+/nodePools/\S+ etag: not recorded|clusterSecondaryRangeName: not recorded`,
		"cut by a normalisation: cluster-minimal and cluster-addons-real, which are not normalised, have them"},
	{"*", `networkConfig.defaultSnatStatus: not recorded`, "as above"},
	{"*", `(controlPlaneEgress|nodeCreationConfig|networkTierConfig|nodeReadinessConfig|nodeImageConfig|defaultPodIpv4RangeUtilization|podIpv4RangeUtilization|enableK8sCertsViaDns|` +
		`enableK8sTokensViaDns|autoprovisioningNodePoolDefaults): not recorded`, "newer than the recording: cluster-addons-real has them"},
	{"cluster-minimal", `podAutoscaling.hpaProfile`, "as above"},
	{"*", `dnsEndpointConfig.enableK8s\w+: not recorded`, "as above"},
	{"*", `ipEndpointsConfig.globalAccess: missing`, "normalised: those that are not do not show it"},
	{"cluster-addons-real", `enableComponents\[\]: `, "the components in another order"},
	{"cluster-addons-real", `cloudRunConfig.loadBalancerType: missing`, "Cloud Run for Anthos is gone"},
	{"*", `progress.metrics|RangeUtilization: \d|nodeImageConfig.image: `, "other numbers"},
	{"*", `autoscaling.autoprovisioningNodePoolDefaults`, "node auto-provisioning is kept as it was asked for"},
	{"cluster-full", `primary: missing`, "only symmetric keys have a primary version (CryptoKey.primary in the reference)"},
	{"cluster-full", `operationType: UPDATE_CLUSTER, recorded SET_LABELS|(operations/\S+|:setResourceLabels) targetLink`, "the flights of 2023 have UPDATE_CLUSTER"},
	{"nodepool*", `operationType: not recorded|nodePools/\S+ targetLink|currentNodeCount`, "normalised"},
	{"*", `subnetworks/\$\{subnetworkID\} (state: missing|(enableFlowLogs|allowSubnetCidrRoutesOverlap): not recorded)`, "as in the other recordings"},
	{"*", `networks/\$\{networkID\} routingConfig: not recorded`, "as in the other recordings"},
}

// inV1 is a recorded document of v1beta1 without what v1 does not have.
func inV1(t *schema.Type, v any) any {
	a := schema.APIs()["container/v1"]
	if t = a.Resolve(t); t == nil {
		return v
	}
	switch x := v.(type) {
	case map[string]any:
		if t.Values != nil || len(t.Fields) == 0 {
			return v
		}
		out := map[string]any{}
		for k, item := range x {
			if f := t.Fields[k]; f != nil {
				out[k] = inV1(f, item)
			}
		}
		return out
	case []any:
		out := []any{}
		for _, item := range x {
			out = append(out, inV1(t.Items, item))
		}
		return out
	case string:
		return strings.Replace(x, "container.googleapis.com/v1beta1/", "container.googleapis.com/v1/", 1)
	}
	return v
}

// asV1 is an exchange of v1beta1 as one of v1.
func asV1(t *testing.T, e exchange) exchange {
	t.Helper()
	if !strings.Contains(e.Request.URL, "container.googleapis.com/") {
		return e
	}
	e.Request.URL = strings.Replace(e.Request.URL, "/v1beta1/", "/v1/", 1)
	e.Request.URL = strings.ReplaceAll(e.Request.URL, "${operationID}", "operation-1")
	found := schema.Find(e.Request.Method, path(e.Request.URL))
	if len(found) == 0 {
		t.Fatalf("no method for %s %s", e.Request.Method, e.Request.URL)
	}
	a := schema.APIs()["container/v1"]
	if e.Request.Body != nil {
		e.Request.Body, _ = inV1(a.Schemas[found[0].Request], e.Request.Body).(map[string]any)
	}
	if e.Response.Status == 200 {
		e.Response.Body = inV1(a.Schemas[found[0].Response], e.Response.Body)
	}
	return e
}

// running is the operation of GKE that was begun last.
func (p *player) runningOperation() string {
	p.world.Lock()
	defer p.world.Unlock()
	name, begun := "", time.Time{}
	for _, op := range p.cloud.container.st.Operations {
		if op.Begun.After(begun) {
			name, begun = op.Name, op.Begun
		}
	}
	return name
}

// TestClusterRecordings plays the recordings of clusters, as TestRecordings does those of networks.
func TestClusterRecordings(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/clusters/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal("no recordings", err)
	}
	exchanges, fields, differences := 0, 0, 0
	unused := map[int]bool{}
	for i := range clustersMeant {
		unused[i] = true
	}
	for _, file := range files {
		p := &player{rig: newRig(t), file: strings.TrimSuffix(filepath.Base(file), ".json"), names: map[string][]string{}, made: map[string]int{}}
		all := amended(t, file)
		p.begin(all)
		for _, e := range all {
			ours := strings.Contains(e.Request.URL, "container.googleapis.com/")
			if ours {
				p.world.Step(15 * time.Minute) // recorded operations are done
			}
			e = asV1(t, e)
			if ours {
				e.Request.URL = strings.Replace(e.Request.URL, "operation-1", p.runningOperation(), 1)
			}
			p.prime(e)
			p.play(e)
			exchanges++
		}
		fields += p.fields
		differences += len(p.differences)
		for _, d := range p.differences {
			expected := false
			for i, k := range clustersMeant {
				if ok, _ := filepath.Match(k.file, p.file); ok && regexp.MustCompile(k.pattern).MatchString(d) {
					expected = true
					delete(unused, i)
				}
			}
			if !expected {
				t.Errorf("%s %s", p.file, d)
			}
		}
		t.Logf("%s: %d exchanges, %d fields, %d differences", p.file, len(all), p.fields, len(p.differences))
	}
	for i := range unused {
		t.Errorf("a known difference that is none any more: %s %s", clustersMeant[i].file, clustersMeant[i].pattern)
	}
	t.Logf("%d exchanges of %d files, %d fields compared, %d differences of %d known kinds", exchanges, len(files), fields, differences, len(clustersMeant))
}
