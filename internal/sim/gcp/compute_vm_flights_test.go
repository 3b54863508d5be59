package gcp

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"testing"

	"google.golang.org/api/compute/v1"
)

// notShown are fields of recorded objects that the simulation has not, with the reason.
var notShown = []struct{ pattern, why string }{
	{`^compute#instance (resourceStatus|satisfiesPzi|confidentialInstanceConfig|shieldedInstanceIntegrityPolicy)`, "of the host, or only of confidential machines"},
	{`shieldedInstanceInitialState`, "the firmware's keys"},
	{`^compute#instance (lastStopTimestamp|lastSuspendedTimestamp|labels)`, "of instances that were stopped, suspended or labelled"},
	{`networkTier|reservationAffinity|accessConfigs|serviceAccounts|canIpForward|description|initializeParams.diskType`, "depends on what was asked for"},
	{`^compute#operation (startTime|endTime|region|zone)`, "depends on the operation and its state"},
	{`^compute#backendService backends\[\]\.(maxRatePerInstance|description)`, "of the balancing mode RATE"},
	{`^compute#forwardingRule (region|labels)`, "of regional rules, and of rules with labels"},
}

// The flights are answers of the real Google Cloud of 2018 to 2026. Whatever fields their objects have, the simulation's have too,
// with the same types.
func TestFlights(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("testdata/flights/compute.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Scenarios []struct {
			Calls []struct{ Body any }
		}
	}
	if err := json.Unmarshal(b, &file); err != nil {
		t.Fatal(err)
	}
	ours := oursOfEachKind(t)
	objects, fields := 0, 0
	var missing []string
	for _, s := range file.Scenarios {
		for _, c := range s.Calls {
			for _, recorded := range objectsIn(c.Body) {
				mine, known := ours[str(recorded, "kind")]
				if !known {
					continue
				}
				objects++
				fields += lacking(str(recorded, "kind")+" ", "", recorded, mine, &missing)
			}
		}
	}
	slices.Sort(missing)
	used := map[int]bool{}
	for _, m := range slices.Compact(missing) {
		at := slices.IndexFunc(notShown, func(n struct{ pattern, why string }) bool { return regexp.MustCompile(n.pattern).MatchString(m) })
		if at < 0 {
			t.Error(m)
		}
		used[at] = true
	}
	for i, n := range notShown {
		if !used[i] {
			t.Errorf("shown by now: %s", n.pattern)
		}
	}
	t.Logf("%d recorded objects, %d fields compared, %d kinds of fields not shown", objects, fields, len(notShown))
}

// oursOfEachKind is one object of each kind as the simulation shows it.
func oursOfEachKind(t *testing.T) map[string]Doc {
	t.Helper()
	g := newRig(t)
	g.vpc("10.40.0.0/24", true)
	g.webGroup()
	g.balancer(webGroupLink)
	g.frontEnd()
	g.template("t1", "e2-medium")
	s := g.compute()
	g.fine(s.InstanceGroupManagers.Insert(testProject, testZone, &compute.InstanceGroupManager{Name: "pool", BaseInstanceName: "pool", InstanceTemplate: "global/instanceTemplates/t1", TargetSize: 1}).Do())
	g.fine(s.Autoscalers.Insert(testProject, testZone, &compute.Autoscaler{Name: "pool", Target: "zones/us-central1-a/instanceGroupManagers/pool",
		AutoscalingPolicy: &compute.AutoscalingPolicy{MaxNumReplicas: 3}}).Do())
	p := &player{rig: g}
	out := map[string]Doc{}
	for _, at := range []string{"zones/us-central1-a/instances/web-1", "global/forwardingRules/web", "global/backendServices/web", "global/instanceTemplates/t1",
		"zones/us-central1-a/autoscalers/pool"} {
		_, got := p.send(http.MethodGet, "https://compute.googleapis.com/compute/v1/projects/"+testProject+"/"+at, nil)
		doc, ok := got.(map[string]any)
		if !ok {
			t.Fatalf("%s: %v", at, got)
		}
		out[str(doc, "kind")] = doc
	}
	_, op := p.send(http.MethodPost, "https://compute.googleapis.com/compute/v1/projects/"+testProject+"/zones/us-central1-a/instances/web-1/reset", map[string]any{})
	out["compute#operation"] = op.(map[string]any)
	return out
}

// objectsIn are the objects in an answer that say what they are.
func objectsIn(v any) []Doc {
	var out []Doc
	switch x := v.(type) {
	case map[string]any:
		if str(x, "kind") != "" {
			out = append(out, x)
		}
		for _, k := range keysOf(x) {
			out = append(out, objectsIn(x[k])...)
		}
	case []any:
		for _, item := range x {
			out = append(out, objectsIn(item)...)
		}
	}
	return out
}

// lacking notes the fields that a recorded object has and ours has not, or has with another type; it answers how many it looked
// at.
func lacking(kind, field string, recorded, mine any, missing *[]string) int {
	n := 1
	switch r := recorded.(type) {
	case map[string]any:
		m, ok := mine.(map[string]any)
		if !ok {
			*missing = append(*missing, kind+field+": no object")
			return n
		}
		for _, k := range keysOf(r) {
			at := k
			if field != "" {
				at = field + "." + k
			}
			if _, have := m[k]; !have && k != "__trimmed_items__" && field != "labels" {
				*missing = append(*missing, kind+at+": not shown")
				continue
			}
			n += lacking(kind, at, r[k], m[k], missing)
		}
	case []any:
		m, ok := mine.([]any)
		if !ok {
			*missing = append(*missing, kind+field+": no list")
			return n
		}
		if len(r) > 0 && len(m) > 0 {
			n += lacking(kind, field+"[]", r[0], m[0], missing)
		}
	default:
		if fmt.Sprintf("%T", recorded) != fmt.Sprintf("%T", mine) && recorded != nil {
			*missing = append(*missing, fmt.Sprintf("%s%s: %T, recorded %T", kind, field, mine, recorded))
		}
	}
	return n
}
