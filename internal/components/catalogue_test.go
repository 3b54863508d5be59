package components

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zopday/provisioner/internal/job"
)

func load(t *testing.T) *Catalogue {
	t.Helper()
	c, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Everything that platform teams are promised is there, pinned and complete.
func TestCatalogue(t *testing.T) {
	c := load(t)
	want := strings.Fields(`argo-cd aws-load-balancer-controller cert-manager cloudnative-pg cluster-autoscaler crossplane
		envoy-gateway external-dns external-secrets fluent-bit grafana ingress-nginx karpenter keda kube-prometheus-stack
		kyverno loki metrics-server nginx-gateway-fabric opentelemetry-collector redis-operator reloader
		secrets-store-csi-driver tempo traefik trivy-operator valkey velero`)
	var have []string
	for _, e := range c.List(Query{}) {
		have = append(have, e.Name)
		if e.Description == "" {
			t.Errorf("%s has no description", e.Name)
		}
		if slices.Contains([]string{"default", "kube-system", "kube-public"}, e.Namespace) {
			t.Errorf("%s goes into %s, the cluster's own", e.Name, e.Namespace)
		}
		if strings.Contains(e.Chart.Repository, "bitnami") {
			t.Errorf("%s builds on images that are no longer published", e.Name)
		}
	}
	if d := cmp.Diff(want, have); d != "" {
		t.Error(d)
	}
	if e, _ := c.Get("ingress-nginx"); !e.AdoptOnly || !strings.Contains(e.Reason, "archived") {
		t.Errorf("ingress-nginx is retired: %+v", e)
	}
	if !slices.Contains(c.Categories(), "observability") {
		t.Error(c.Categories())
	}
}

func TestList(t *testing.T) {
	c := load(t)
	names := func(q Query) (out []string) {
		for _, e := range c.List(q) {
			out = append(out, e.Name)
		}
		return out
	}
	for _, tc := range []struct {
		q    Query
		want string
	}{
		{Query{Search: "TLS certificates"}, "cert-manager"},
		{Query{Search: "gateway", Category: "ingress", Provider: job.GCP}, "envoy-gateway nginx-gateway-fabric traefik"},
		{Query{Category: "scaling", Provider: job.Azure}, "keda"},
		{Query{Category: "scaling", Provider: job.AWS}, "cluster-autoscaler karpenter keda"},
		{Query{Search: "policies", KubeVersion: "1.32"}, ""},
		{Query{Search: "policies", KubeVersion: "v1.35.2-eks-1a2b3c4"}, "kyverno"},
		{Query{Search: "policies", KubeVersion: "nonsense"}, ""},
		{Query{Search: "no such thing"}, ""},
	} {
		if got := strings.Join(names(tc.q), " "); got != tc.want {
			t.Errorf("%+v: %q, want %q", tc.q, got, tc.want)
		}
	}
}

const own = `
components:
  - name: internal-portal
    title: Portal
    category: delivery
    chart: {repository: oci://charts.example.com/platform, name: portal, digest: sha256:` + "0123456789012345678901234567890123456789012345678901234567890123" + `}
    version: 1.2.3
    license: Proprietary
    source: https://example.com/portal
    namespace: portal
    dependsOn: [cert-manager]
`

func TestWithOwnEntries(t *testing.T) {
	c := load(t)
	with, err := c.With([]byte(own))
	if err != nil {
		t.Fatal(err)
	}
	if e, ok := with.Get("internal-portal"); !ok || e.Release != "internal-portal" || e.Namespace != "portal" {
		t.Errorf("%+v", e)
	}
	if _, ok := c.Get("internal-portal"); ok {
		t.Error("the built-in catalogue was changed")
	}
}

func TestWithNamesEveryFault(t *testing.T) {
	_, err := load(t).With([]byte(`
components:
  - {name: cert-manager, title: Mine, category: security, chart: {repository: "https://example.com", name: x}, version: 1.0.0, license: MIT, source: "https://example.com", namespace: x}
  - {name: Bad Name, title: "", category: "Two words", chart: {repository: "ftp://x", name: "a/b", digest: md5:1}, version: newest, license: "", source: here, namespace: kube_x, kubeVersion: "about 1.30", providers: [oracle], adoptOnly: true, fromCluster: {a: colour}}
  - {name: loop, title: Loop, category: x, chart: {repository: "https://u:p@example.com", name: x}, version: 1.0.0, license: MIT, source: "https://example.com", namespace: x}
`))
	if err == nil {
		t.Fatal("taken")
	}
	for _, want := range []string{
		"components[0] (cert-manager): name: the catalogue has a component cert-manager already",
		`components[1] (Bad Name): name: "Bad Name"`, "components[1] (Bad Name): title: is missing", "category:", "license: is missing",
		`source: "here"`, `version: "newest"`, `kubeVersion: "about 1.30"`, `providers[0]: "oracle"`, "reason:", `fromCluster.a: "colour"`,
		"chart.repository:", "chart.name:", "chart.digest:", `namespace: "kube_x"`,
		"components[2] (loop): chart.repository: holds more than an address",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q:\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "u:p") {
		t.Error("a password is in the error")
	}
	for _, bad := range []string{"components: [{nam: x}]", "components: {", "[]"} {
		if _, err := load(t).With([]byte(bad)); err == nil {
			t.Errorf("%s: taken", bad)
		}
	}
	circle := strings.ReplaceAll(own, "dependsOn: [cert-manager]", "dependsOn: [internal-portal]")
	if _, err := load(t).With([]byte(circle)); err == nil || !strings.Contains(err.Error(), "internal-portal → internal-portal") {
		t.Errorf("circle: %v", err)
	}
	dangling := strings.ReplaceAll(own, "dependsOn: [cert-manager]", "dependsOn: [nothing]")
	if _, err := load(t).With([]byte(dangling)); err == nil || !strings.Contains(err.Error(), "no component nothing") {
		t.Errorf("dangling: %v", err)
	}
}

func TestOrder(t *testing.T) {
	c := load(t)
	order := func(names ...string) string {
		var specs []job.ComponentSpec
		for _, n := range names {
			name, release, _ := strings.Cut(n, "@")
			specs = append(specs, job.ComponentSpec{Name: name, Release: release}.WithDefaults())
		}
		out, err := Order(specs, c)
		if err != nil {
			return err.Error()
		}
		var text []string
		for _, level := range out {
			var of []string
			for _, s := range level {
				of = append(of, s.Release)
			}
			text = append(text, strings.Join(of, " "))
		}
		return strings.Join(text, " | ")
	}
	for _, tc := range []struct{ names, want string }{
		{"grafana keda kube-prometheus-stack", "keda kube-prometheus-stack | grafana"},
		{"redis-operator reloader", "redis-operator reloader"}, // cert-manager is taken to be there
		{"redis-operator redis-operator@second cert-manager", "cert-manager | redis-operator second"},
		{"keda keda", "[1].release: [0] has a release keda already; give it a release name of its own"},
		{"certmanager", `[0].name: the catalogue has no component "certmanager"; use a name from GET /catalog/components`},
		{"cert", `[0].name: the catalogue has no component "cert"; use a name from GET /catalog/components, such as cert-manager`},
		{"", ""},
	} {
		if got := order(strings.Fields(tc.names)...); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.names, got, tc.want)
		}
	}
}

func TestAt(t *testing.T) {
	inv := &job.Invalid{Fields: []job.FieldError{{Field: "values.replicas", Message: "m", Fix: "f"}, {Field: "[1].name"}}}
	got := asInvalid(At("config.spec.components[2]", inv))
	if got.Fields[0].Field != "config.spec.components[2].values.replicas" || got.Fields[1].Field != "config.spec.components[2][1].name" {
		t.Errorf("%+v", got)
	}
	if inv.Fields[0].Field != "values.replicas" {
		t.Error("the original was changed")
	}
}
