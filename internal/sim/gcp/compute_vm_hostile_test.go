package gcp

import (
	"bytes"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"google.golang.org/api/compute/v1"

	"github.com/zopday/provisioner/internal/sim/gcp/schema"
)

// words are texts that mean something somewhere.
var words = []string{"", "x", "web", "web-1", "pool", "default", "8.8.8.8", "10.40.0.9", "80", "80-90", "TRUE", "e2-medium", "pd-ssd", "n4-standard-2", "global/networks/shop",
	"global/networks/default", "zones/us-central1-a/instances/web-1", "zones/us-central1-a/disks/web-1", "zones/us-central1-a/instanceGroups/web",
	"regions/us-central1/instanceGroups/pool", "regions/us-central1/instanceGroupManagers/pool", "global/instanceTemplates/t1", "global/healthChecks/web",
	"global/backendServices/web", "global/urlMaps/web", "global/targetHttpProxies/web", "global/addresses/web", "regions/us-central1/subnetworks/shop",
	"zones/us-central1-a/machineTypes/e2-small", ubuntu, "projects/other-project/global/networks/default", "https://www.googleapis.com/compute/v1/projects", "global", "a/b/c"}

type chaos struct {
	*rand.Rand
	api *schema.API
}

// value makes something of a schema: what is allowed, or nearly.
func (c chaos) value(t *schema.Type, depth int) any {
	t = c.api.Resolve(t)
	switch {
	case t == nil || depth > 5:
		return nil
	case t.Type == "object":
		d := Doc{}
		for _, k := range keysOf(t.Fields) {
			if c.Float64() < 0.3 {
				d[k] = c.value(t.Fields[k], depth+1)
			}
		}
		if t.Values != nil {
			d[words[c.IntN(len(words))]] = c.value(t.Values, depth+1)
		}
		return d
	case t.Type == "array":
		out := []any{}
		for range c.IntN(3) {
			out = append(out, c.value(t.Items, depth+1))
		}
		return out
	case t.Type == "boolean":
		return c.IntN(2) == 0
	case t.Type == "integer":
		return []int{-1, 0, 1, 3, 80, 70000}[c.IntN(6)]
	case t.Type == "number":
		return []float64{-1, 0, 0.5, 1e9}[c.IntN(4)]
	case t.Format == "int64" || t.Format == "uint64":
		return []string{"0", "1", "10", "9999999"}[c.IntN(4)]
	case len(t.Enum) > 0:
		return t.Enum[c.IntN(len(t.Enum))]
	}
	return words[c.IntN(len(words))]
}

// place fills a method's path in.
func (c chaos) place(m *schema.Method) string {
	known := map[string]string{"project": testProject, "zone": testZone, "region": testRegion, "instance": "web-1", "disk": "web-1", "instanceTemplate": "t1",
		"instanceGroupManager": "pool", "autoscaler": "pool"}
	at := m.API.Base + m.Path
	for _, n := range keysOf(m.Params) {
		if m.Params[n].Path {
			v := known[n]
			if v == "" {
				v = []string{"web", "web-1", "none"}[c.IntN(3)]
			}
			at = strings.ReplaceAll(at, "{"+n+"}", v)
		}
	}
	query := url.Values{}
	for _, n := range keysOf(m.Params) {
		if p := m.Params[n]; !p.Path && (p.Required || c.Float64() < 0.3) && n != "requestId" && n != "pageToken" && n != "filter" {
			query.Set(n, words[c.IntN(len(words))])
			if p.Type == "integer" {
				query.Set(n, []string{"0", "1", "100"}[c.IntN(3)])
			}
			if p.Type == "boolean" {
				query.Set(n, "true")
			}
		}
	}
	return at + "?" + query.Encode()
}

// Whatever is sent to the methods of machines and load balancers is carried out or refused: nothing breaks, and every answer fits
// its schema.
func TestHostileMachineRequests(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.vpc("10.40.0.0/24", true)
	g.webGroup()
	g.balancer(webGroupLink)
	g.frontEnd()
	g.template("t1", "e2-medium")
	g.pool(1)
	g.fine(g.compute().RegionAutoscalers.Insert(testProject, testRegion, &compute.Autoscaler{Name: "pool", Target: "regions/us-central1/instanceGroupManagers/pool",
		AutoscalingPolicy: &compute.AutoscalingPolicy{MaxNumReplicas: 3}}).Do())
	api := g.cloud.apis["compute/v1"]
	c := chaos{rand.New(rand.NewPCG(7, 11)), api.schema}
	requests, accepted := 0, 0
	for range 4 {
		for _, id := range keysOf(api.ops) {
			if strings.HasSuffix(id, ".wait") || (strings.Contains(id, "delete") || strings.Contains(id, "Types.")) && c.IntN(20) > 0 {
				continue
			}
			m := api.schema.Methods[id]
			var body []byte
			if m.Request != "" {
				b, err := json.Marshal(c.value(api.schema.Schemas[m.Request], 0))
				if err != nil {
					t.Fatal(err)
				}
				body = b
			}
			status, text := hostile(g, m.HTTP, c.place(m), body)
			requests++
			if status < 300 {
				accepted++
			}
			if status >= 500 || status == 0 {
				t.Errorf("%s: status %d\n%s\nanswer %s", id, status, body, text)
			}
		}
		g.world.Step(time.Minute)
	}
	if accepted < requests/10 {
		t.Errorf("only %d of %d requests were accepted: that tests the refusals alone", accepted, requests)
	}
	t.Logf("%d requests, %d accepted", requests, accepted)
}

func hostile(g *rig, method, at string, body []byte) (int, string) {
	g.t.Helper()
	r, err := http.NewRequestWithContext(g.t.Context(), method, g.url+at, bytes.NewReader(body))
	if err != nil {
		g.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+g.token)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err.Error()
	}
	return res.StatusCode, string(text)
}
