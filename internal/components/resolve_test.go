package components

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/sim/charts"
)

// small is a chart with a schema, a chart in it, and a template that can fail.
func small(version string) charts.Chart {
	return charts.Chart{
		Name: "small", Version: version, AppVersion: "7", Description: "for tests", KubeVersion: ">= 1.30.0-0",
		Files: map[string]string{
			"values.yaml": "replicas: 1\nbig: 1000000\npassword: unset\nsub: {on: true}\n",
			"values.schema.json": `{"type": "object", "required": ["replicas"], "additionalProperties": false, "properties": {
				"replicas": {"type": "integer", "minimum": 0, "maximum": 9}, "big": {"type": "integer"},
				"password": {"type": "string", "pattern": "^[a-z]+$"}, "mode": {"enum": ["a", "b"]}, "text": {"type": "string"},
				"list": {"type": "array", "items": {"type": "object", "required": ["name"]}}, "sub": {"type": "object"},
				"far": {"$ref": "https://schemas.example.invalid/x.json"}, "fail": {"type": "boolean"},
				"either": {"anyOf": [{"type": "string"}, {"type": "integer"}]}, "global": {}}}`,
			"templates/map.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}}\n" +
				"data: {big: {{ .Values.big | quote }}, text: {{ .Values.text | default \"\" | quote }}}\n" +
				"{{ if .Values.fail }}{{ fail (printf \"bad password %s\" .Values.password) }}{{ end }}\n",
			"charts/sub/Chart.yaml":            "apiVersion: v2\nname: sub\nversion: 1.0.0\n",
			"charts/sub/values.schema.json":    `{"properties": {"on": {"type": "boolean"}}}`,
			"charts/sub/templates/secret.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: {{ .Release.Name }}-sub}\n",
		},
	}
}

const smallEntry = `
components:
  - {name: small, title: Small, category: test, chart: {repository: "REPO", name: small}, version: 1.0.0, license: MIT, source: "https://example.com", namespace: small, defaults: {replicas: 2}}
`

// engineAt is an engine whose catalogue has the component small at a source.
func engineAt(t *testing.T, repository string, o Options) *Engine {
	t.Helper()
	c, err := load(t).With([]byte(strings.ReplaceAll(smallEntry, "REPO", repository)))
	if err != nil {
		t.Fatal(err)
	}
	o.Catalogue, o.PlainHTTP = c, true
	e, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func serve(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv
}

func oci(srv *httptest.Server) string {
	return "oci://" + strings.TrimPrefix(srv.URL, "http://") + "/some/path"
}

func want(t *testing.T, err error, fields ...string) {
	t.Helper()
	inv := asInvalid(err)
	if inv == nil {
		t.Fatalf("not refused as invalid: %v", err)
	}
	var got []string
	for _, f := range inv.Fields {
		got = append(got, f.Field)
		if f.Message == "" || f.Fix == "" {
			t.Errorf("%+v says too little", f)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, fields) {
		t.Errorf("faults at %q, want %q: %v", got, fields, err)
	}
}

func TestResolveFromRepositoryAndRegistry(t *testing.T) {
	var gets atomic.Int32
	s := charts.New(small("1.0.0"), small("1.1.0"), small("2.0.0-rc.1"))
	srv := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { gets.Add(1); s.ServeHTTP(w, r) }))
	for name, repository := range map[string]string{"HTTP": srv.URL + "/charts", "OCI": oci(srv)} {
		t.Run(name, func(t *testing.T) {
			e := engineAt(t, repository, Options{})
			x, err := e.Resolve(t.Context(), job.ComponentSpec{Name: "small"}, "1.35", job.GCP)
			if err != nil {
				t.Fatal(err)
			}
			if x.Version != "1.0.0" || x.AppVersion != "7" || x.Place.ID() != "small/small" || x.Digest != newArchive(small("1.0.0").Archive()).digest {
				t.Errorf("%+v", x)
			}
			if d := strings.Join(x.Objects, ", "); d != "Secret small/small-sub, ConfigMap small/small" {
				t.Errorf("objects: %s", d)
			}
			if x.values["replicas"] == nil || x.Size < 500 || x.Size > 5000 {
				t.Errorf("values %v, size %d", x.values, x.Size)
			}
			before := gets.Load()
			if again, err := e.Resolve(t.Context(), job.ComponentSpec{Name: "small"}, "1.35", job.GCP); err != nil || again != x {
				t.Errorf("not remembered: %v", err)
			}
			if _, err := e.Resolve(t.Context(), job.ComponentSpec{Name: "small", Release: "other"}, "", ""); err != nil {
				t.Error(err)
			}
			if gets.Load() != before {
				t.Error("the chart was fetched again")
			}
			_, err = e.Resolve(t.Context(), job.ComponentSpec{Name: "small", Version: "9.9.9"}, "", "")
			want(t, err, "version")
			if name == "HTTP" && !strings.Contains(err.Error(), "its newest is 1.1.0") {
				t.Error(err)
			}
			other, err := e.Resolve(t.Context(), job.ComponentSpec{Name: "small", Version: "1.1.0", Release: "r", Namespace: "n"}, "", "")
			if err != nil || other.Version != "1.1.0" || other.Place.ID() != "n/r" {
				t.Errorf("%+v, %v", other, err)
			}
		})
	}
}

func TestResolveRefusesValues(t *testing.T) {
	e := engineAt(t, serve(t, charts.New(small("1.0.0"))).URL, Options{})
	resolve := func(values string) error {
		_, err := e.Resolve(t.Context(), job.ComponentSpec{Name: "small", Values: json.RawMessage(values)}, "1.35", job.AWS)
		return err
	}
	for _, good := range []string{``, `{}`, `null`, `{"replicas": 3, "mode": "a", "far": {"anything": 1}, "list": [{"name": "x"}]}`, `{"replicas": 0}`} {
		if err := resolve(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, tc := range []struct {
		values string
		fields []string
	}{
		{`[1]`, []string{"values"}},
		{`{"replicas": "three"}`, []string{"values.replicas"}},
		{`{"replicas": null}`, []string{"values.replicas"}},
		{`{"replicas": 10, "mode": "c", "extra": 1, "either": true}`, []string{"values.either", "values.extra", "values.mode", "values.replicas"}},
		{`{"list": [{"name": "x"}, {}]}`, []string{"values.list[1].name"}},
		{`{"sub": {"on": "yes"}}`, []string{"values.sub.on"}},
		{`{"password": "S3cretWord"}`, []string{"values.password"}},
		{`{"fail": true, "password": "secretword"}`, []string{"values"}},
	} {
		err := resolve(tc.values)
		want(t, err, tc.fields...)
		if strings.Contains(strings.ToLower(err.Error()), "secretword") {
			t.Errorf("a secret is told: %v", err)
		}
	}
	if err := resolve(`{"fail": true, "password": "secretword"}`); !strings.Contains(err.Error(), "bad password [hidden]") {
		t.Error(err)
	}
}

// Release size, failure N11: refused before anything happens.
func TestResolveRefusesWhatHelmCannotStore(t *testing.T) {
	e := engineAt(t, serve(t, charts.New(small("1.0.0"))).URL, Options{})
	noise := make([]byte, 3<<20)
	for i := range noise {
		noise[i] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/"[rand.IntN(64)]
	}
	_, err := e.Resolve(t.Context(), job.ComponentSpec{Name: "small", Values: fmt.Appendf(nil, `{"text": %q}`, noise)}, "", "")
	want(t, err, "values")
	if !strings.Contains(err.Error(), "KiB, and Helm can store 1008 KiB") {
		t.Errorf("%.300v", err)
	}
}

func TestResolveRefusesByCatalogue(t *testing.T) {
	e := engineAt(t, serve(t, charts.New(small("1.0.0"))).URL, Options{})
	for _, tc := range []struct {
		spec     job.ComponentSpec
		kube     string
		provider job.Provider
		fields   []string
		says     string
	}{
		{job.ComponentSpec{Name: "smal"}, "", "", []string{"name"}, "such as small"},
		{job.ComponentSpec{Name: "ingress-nginx"}, "", "", []string{"name"}, "archived"},
		{job.ComponentSpec{Name: "karpenter"}, "1.35", job.Azure, []string{"name"}, "is for aws, and the cluster is at azure"},
		{job.ComponentSpec{Name: "kyverno", Version: "newest"}, "1.31", job.AWS, []string{"name", "version"}, "the cluster has 1.31"},
		{job.ComponentSpec{Name: "small"}, "1.29", "", []string{"version"}, "wants >= 1.30.0-0"},
	} {
		_, err := e.Resolve(t.Context(), tc.spec, tc.kube, tc.provider)
		want(t, err, tc.fields...)
		if !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%v does not say %q", err, tc.says)
		}
	}
}

// The stand-ins have the names and versions of the catalogue, and take its
// default values.
func TestStandInsAreTheCatalogue(t *testing.T) {
	srv := serve(t, charts.New(charts.StandIns()...))
	for _, mirror := range []string{srv.URL, oci(srv)} {
		e, err := New(Options{Mirror: mirror, PlainHTTP: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range e.Catalogue().List(Query{}) {
			if entry.AdoptOnly {
				continue
			}
			spec, err := e.Catalogue().Fill(job.ComponentSpec{Name: entry.Name}, Facts{Name: "c", Region: "r", Network: "n", Account: "a"})
			if err != nil {
				t.Error(err)
			}
			var provider job.Provider
			if len(entry.Providers) > 0 {
				provider = entry.Providers[0]
			}
			x, err := e.Resolve(t.Context(), spec, "1.35", provider)
			if err != nil {
				t.Errorf("%s: %v", entry.Name, err)
				continue
			}
			ch, err := x.chart()
			if err != nil {
				t.Error(err)
				continue
			}
			brings := len(ch.CRDObjects()) > 0 || slices.ContainsFunc(x.Objects, func(o string) bool { return strings.HasPrefix(o, "CustomResourceDefinition") })
			if brings != entry.CRDs {
				t.Errorf("%s: crds is %v in the catalogue", entry.Name, entry.CRDs)
			}
		}
	}
}

func TestFill(t *testing.T) {
	c := load(t)
	facts := Facts{Name: "prod", Region: "eu-west-1", Network: "vpc-1"}
	got, err := c.Fill(job.ComponentSpec{Name: "aws-load-balancer-controller", Values: json.RawMessage(`{"region": "mine", "x": 1}`)}, facts)
	if err != nil || string(got.Values) != `{"clusterName":"prod","region":"mine","vpcId":"vpc-1","x":1}` {
		t.Errorf("%s, %v", got.Values, err)
	}
	got, err = c.Fill(job.ComponentSpec{Name: "cluster-autoscaler"}, facts)
	if err != nil || string(got.Values) != `{"autoDiscovery":{"clusterName":"prod"},"awsRegion":"eu-west-1"}` {
		t.Errorf("%s, %v", got.Values, err)
	}
	if got, err := c.Fill(job.ComponentSpec{Name: "keda"}, facts); err != nil || got.Values != nil {
		t.Errorf("%s, %v", got.Values, err)
	}
}

func TestSchema(t *testing.T) {
	e := engineAt(t, serve(t, charts.New(small("1.0.0"))).URL, Options{})
	raw, err := e.ValuesSchema(t.Context(), "small", "")
	var doc struct{ Required []string }
	if err != nil || json.Unmarshal(raw, &doc) != nil || !slices.Equal(doc.Required, []string{"replicas"}) {
		t.Errorf("%s, %v", raw, err)
	}
	_, err = e.ValuesSchema(t.Context(), "nothing", "")
	want(t, err, "name")
}

func TestHideAndDiffering(t *testing.T) {
	values := map[string]any{"dbPassword": "hunter22", "auth": map[string]any{"list": []any{"abcd", "ab", 12345}}, "image": "nginx"}
	if got := hide("x hunter22 abcd ab nginx 12345", values); got != "x [hidden] [hidden] ab nginx [hidden]" {
		t.Error(got)
	}
	a := map[string]any{"n": json.Number("1.0"), "m": map[string]any{"x": 1, "y": "s"}}
	b := map[string]any{"n": float64(1), "m": map[string]any{"x": 2, "z": nil}}
	if got := strings.Join(differing(a, b), " "); got != "m.x m.y" {
		t.Error(got)
	}
	if valuesDigest(a) == valuesDigest(b) || valuesDigest(a) != valuesDigest(clone(a)) || len(valuesDigest(a)) != 12 {
		t.Error("digests")
	}
}
