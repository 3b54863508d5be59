package provision

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/components"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

func query(search string) components.Query { return components.Query{Search: search} }

func TestCatalogue(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	names := func(q components.Query) (out []string) {
		all, err := b.Catalogue(b.as("org1", access.Viewer), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range all {
			out = append(out, c.Name)
		}
		return out
	}
	all := names(components.Query{})
	if len(all) < 24 || !slices.IsSorted(all) {
		t.Errorf("%d components: %q", len(all), all)
	}
	for _, tc := range []struct {
		q    components.Query
		with []string
		not  []string
	}{
		{query("INGRESS"), []string{"traefik", "ingress-nginx"}, []string{"loki"}},
		{query("gateway  envoy"), []string{"envoy-gateway"}, []string{"traefik"}},
		{components.Query{Category: "ingress"}, []string{"traefik"}, []string{"loki"}},
		{components.Query{Provider: job.Azure}, []string{"traefik"}, []string{"karpenter", "aws-load-balancer-controller"}},
		{components.Query{Provider: job.AWS}, []string{"karpenter"}, nil},
		{components.Query{KubeVersion: "1.21"}, nil, []string{"cert-manager"}},
		{components.Query{KubeVersion: "v1.36.2-eks-1a2b3c4"}, []string{"cert-manager"}, nil},
		{query("nothing of this name"), nil, []string{"traefik"}},
		{components.Query{Category: "Ingress"}, nil, []string{"traefik"}},
	} {
		got := names(tc.q)
		for _, n := range tc.with {
			if !slices.Contains(got, n) {
				t.Errorf("%+v: no %s in %q", tc.q, n, got)
			}
		}
		for _, n := range tc.not {
			if slices.Contains(got, n) {
				t.Errorf("%+v: %s is in %q", tc.q, n, got)
			}
		}
	}
	for _, bad := range []string{"newest", "1", "1.x", "1.36 or so", "'"} {
		_, err := b.Catalogue(b.ctx, components.Query{KubeVersion: bad})
		b.refused(err, Invalid, "kubeVersion")
	}
	if none, err := b.Catalogue(b.ctx, query("nothing of this name")); err != nil || none == nil {
		t.Errorf("an empty list is %v, %v", none, err)
	}
	_, err := b.Catalogue(b.as("org1"), components.Query{})
	b.refused(err, Forbidden)
}

func TestCatalogueEntry(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v, err := b.CatalogueEntry(b.as("org1", access.Viewer), "traefik")
	if err != nil || v.Name != "traefik" || v.License == "" || v.Source == "" || v.SchemaNote != "" {
		t.Fatalf("%+v, %v", v, err)
	}
	var schema struct {
		Properties map[string]any `json:"properties"`
	}
	if err := json.Unmarshal(v.ValuesSchema, &schema); err != nil || schema.Properties["deployment"] == nil {
		t.Errorf("schema %s, %v", v.ValuesSchema, err)
	}
	// A component that is not installed any more, and has no stand-in, is shown all the same.
	if v, err := b.CatalogueEntry(b.ctx, "ingress-nginx"); err != nil || v.ValuesSchema != nil || v.SchemaNote == "" || !v.AdoptOnly || v.Reason == "" {
		t.Errorf("%+v, %v", v, err)
	}
	for _, bad := range []string{"nothing", "", "../traefik", "Traefik"} {
		_, err := b.CatalogueEntry(b.ctx, bad)
		b.refused(err, NotFound)
	}
	_, err = b.CatalogueEntry(b.as("org1"), "traefik")
	b.refused(err, Forbidden)
}

func TestDiff(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	cluster, space := b.cluster("platform", job.AWS, "us-east-1", "eks-1")
	v := b.install(InstallRequest{SpaceID: space, Component: "aws-load-balancer-controller", Values: json.RawMessage(`{"replicas":1}`)})
	entries := len(b.audited())
	diff := func(body string) ([]components.Change, error) {
		var r ConfigRequest
		if err := Decode([]byte(body), &r); err != nil {
			return nil, err
		}
		return b.Diff(b.as("org1", access.Viewer), v.ID, r)
	}
	if got, err := diff(`{}`); err != nil || got == nil || len(got) != 0 {
		t.Fatalf("%v, %v", got, err)
	}
	// What it takes from its cluster is compared as it is installed.
	asked := b.engine.asked[0]
	if want := `{"clusterName":"eks-1","region":"us-east-1","replicas":1,"vpcId":"net-of-eks-1"}`; string(asked.Values) != want {
		t.Errorf("compared with %s, want %s", asked.Values, want)
	}
	b.engine.diff = []components.Change{{Kind: "Deployment", Name: "x", Action: "update", Diff: "@@"}}
	if got, err := diff(`{"spec":{"component":{"version":"3.6.0","values":{"replicas":3}}}}`); err != nil || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	}
	if asked = b.engine.asked[1]; asked.Version != "3.6.0" || !strings.Contains(string(asked.Values), `"replicas":3`) {
		t.Errorf("%+v", asked)
	}
	if got, err := diff(`{"spec":{"component":{"values":{"replicas":1}}}}`); err != nil || len(got) != 1 {
		t.Errorf("what changes nothing in the spec may be asked: %v, %v", got, err)
	}
	if got := b.get(v.ID); got.Version != v.Version || got.SpecRevision != v.SpecRevision || len(b.audited()) != entries {
		t.Error("looking changed something")
	}
	for body, field := range map[string]string{
		`{"spec":{"component":{"name":"keda"}}}`:         "config.spec.component.name",
		`{"spec":{"spaceId":"x"}}`:                       "config.spec.spaceId",
		`{"spec":{"component":{"version":"new"}}}`:       "config.spec.component.version",
		`{"spec":{"component":{"namespace":"default"}}}`: "config.spec.component.namespace",
		`{"spec":[]}`:  "spec",
		`{"specs":{}}`: "specs",
	} {
		_, err := diff(body)
		b.refused(err, Invalid, field)
	}
	b.engine.err = &job.Invalid{Fields: []job.FieldError{{Field: "values.replicas", Message: "is of type string", Fix: "give a integer"}}}
	_, err := diff(`{}`)
	b.refused(err, Invalid, "config.spec.component.values.replicas")
	b.engine.err = &pipeline.CloudError{Class: pipeline.Unavailable, Service: "Charts", Op: "get https://charts", Message: "cannot be reached"}
	_, err = diff(`{}`)
	if r := b.refused(err, CloudNotAvailable); !strings.Contains(r.Hint, "--chart-mirror") {
		t.Errorf("%s", r.Hint)
	}
	b.engine.err = pipeline.Fatal("chart-altered", "the chart has another digest", "Find out who changed it.")
	_, err = diff(`{}`)
	b.refused(err, WrongState)
	b.engine.err = nil

	_, err = b.Diff(b.ctx, cluster.ID, ConfigRequest{})
	b.refused(err, WrongState)
	_, err = b.Diff(b.as("org2", access.Admin), v.ID, ConfigRequest{})
	b.refused(err, NotFound)
	_, err = b.Diff(b.as("org1"), v.ID, ConfigRequest{})
	b.refused(err, Forbidden)
	b.cloud.clusters = nil
	_, err = diff(`{}`)
	b.refused(err, NotFound)
	b.set(v.ID, func(j *job.Job) { j.Status, j.Phase = job.Cancelled, job.PhaseTeardown })
	_, err = diff(`{}`)
	b.refused(err, WrongState)
}
