package provision

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/spaces/configv1"
)

func TestInstallComponent(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	cluster, space := b.cluster("platform", job.AWS, "us-east-1", "eks-1")
	for i, ref := range []string{space, "platform"} {
		r := InstallRequest{SpaceID: ref, Component: []string{"traefik", "keda"}[i], Values: json.RawMessage(`{"replicas": 2}`), Labels: map[string]string{"team": "edge"}}
		v, created, err := b.InstallComponent(b.ctx, r, "")
		if err != nil || !created {
			t.Fatalf("%s: %v, %v", ref, created, err)
		}
		if v.Status != job.Queued || v.Kind != job.Provisioning || v.ResourceType != job.Component || v.Mode != job.ModeCreate || v.Provider != job.AWS || v.Region != "us-east-1" ||
			v.CloudAccountID != "default" || v.Name != r.Component+"-on-platform" || v.SubjectType != "component_release" || v.Labels["team"] != "edge" || len(v.Steps) != 3 {
			t.Errorf("%s: %+v", ref, v.Job)
		}
		spec, err := v.ComponentJob()
		if err != nil || spec.SpaceID != space || spec.Component.Name != r.Component || string(spec.Component.Values) != `{"replicas":2}` {
			t.Errorf("%s: spec %s, %v", ref, v.Config.Spec, err)
		}
		if infra := v.Config.InfraConfig; infra.Cluster.Name != "eks-1" || infra.SpaceID != space || infra.NetworkID != cluster.Config.InfraConfig.NetworkID {
			t.Errorf("%s: %+v", ref, infra)
		}
		b.audits("ana component:install allowed "+v.ID, `"resourceType":"component"`)
	}
	if strings.Contains(strings.Join(b.audited(), "\n"), "replicas") {
		t.Error("values are in the audit log")
	}
	// A name of one's own, and a release that no job could be called by.
	v, _, err := b.InstallComponent(b.ctx, InstallRequest{SpaceID: space, Component: "valkey", Release: "3-shop", Namespace: "shop", Name: "shop-cache"}, "")
	if err != nil || v.Name != "shop-cache" {
		t.Fatalf("%+v, %v", v, err)
	}
	if v, _, err = b.InstallComponent(b.ctx, InstallRequest{SpaceID: space, Component: "valkey", Release: "3-shop", Namespace: "shop2"}, ""); err != nil || v.Name != "release-on-platform" {
		t.Errorf("%v, %v", v, err)
	}
}

// TestInstallIsCreate: the short request and the whole job are the same, down to
// what an idempotency key stands for.
func TestInstallIsCreate(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, space := b.cluster("platform", job.AWS, "us-east-1", "eks-1")
	short := InstallRequest{SpaceID: "platform", Component: "traefik", Version: "41.3.0", Values: json.RawMessage(`{"b":{"z":1,"a":2},"a":[1.50,null]}`)}
	var whole CreateRequest
	if err := Decode([]byte(`{"submit":true,"resourceType":"component","config":{"spec":{"component":{"values":{"a":[1.50,null],"b":{"a":2,"z":1}},"version":"41.3.0","name":"traefik"},"spaceId":"platform"}}}`), &whole); err != nil {
		t.Fatal(err)
	}
	one, created, err := b.InstallComponent(b.ctx, short, "key-1")
	if err != nil || !created {
		t.Fatal(created, err)
	}
	two, created, err := b.Create(b.ctx, whole, "key-1")
	if err != nil || created || two.ID != one.ID {
		t.Fatalf("the whole job under the same key: %v, %v", created, err)
	}
	b.refusedAfter(func() error { _, _, err := b.Create(b.ctx, whole, ""); return err }, NameTaken, "name")
	whole.Name = "traefik-2"
	three, _, err := b.Create(b.ctx, whole, "")
	if err != nil {
		t.Fatal(err)
	}
	if string(three.Config.Spec) != string(one.Config.Spec) || three.Region != one.Region || three.Provider != one.Provider || three.Config.InfraConfig.SpaceID != space || three.Status != one.Status {
		t.Errorf("the whole job is %s, the short one %s", three.Config.Spec, one.Config.Spec)
	}
	// Places that agree with the space may be named; others are refused.
	whole.Name, whole.Provider, whole.Region, whole.CloudAccountID = "traefik-3", job.AWS, "us-east-1", "default"
	if _, _, err := b.Create(b.ctx, whole, ""); err != nil {
		t.Error(err)
	}
	whole.Name, whole.Provider, whole.Region, whole.CloudAccountID = "traefik-4", job.GCP, "europe-west1", "other"
	b.refusedAfter(func() error { _, _, err := b.Create(b.ctx, whole, ""); return err }, Invalid, "provider", "region", "cloudAccountId")
}

// refusedAfter checks a refusal, that it made nothing, and that it was audited as
// one without what the caller wrote.
func (b *bench) refusedAfter(do func() error, kind Kind, fields ...string) *Refusal {
	b.t.Helper()
	jobs, entries := b.jobs(), len(b.audited())
	r := b.refused(do(), kind, fields...)
	if n := b.jobs(); n != jobs {
		b.t.Errorf("%s: %d jobs, %d before", r.Error(), n, jobs)
	}
	if all := b.audited(); len(all) != entries+1 || !strings.Contains(all[len(all)-1], " refused ") {
		b.t.Errorf("%s: not audited as refused, or more than once: %q", r.Error(), all[entries:])
	}
	return r
}

func TestInstallRefusals(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, space := b.cluster("platform", job.AWS, "us-east-1", "eks-1")
	b.addSpace("org1", "platform", job.SpaceVM, job.AWS, "us-east-1", "", "") // of another type: no clash
	b.addSpace("org1", "vms", job.SpaceVM, job.AWS, "us-east-1", "", "")
	b.addSpace("org1", "azure", job.SpaceKubernetes, job.Azure, "westeurope", "aks-1", "")
	b.addSpace("org1", "twin", job.SpaceKubernetes, job.AWS, "us-east-1", "eks-1", "")
	b.addSpace("org1", "twin", job.SpaceKubernetes, job.AWS, "us-east-1", "eks-2", "")
	b.addSpace("org1", "nowhere", job.SpaceKubernetes, job.AWS, "us-east-1", "", "")
	theirs := b.addSpace("org2", "theirs", job.SpaceKubernetes, job.AWS, "us-east-1", "eks-1", "")
	b.install(InstallRequest{SpaceID: space, Component: "keda"})
	const canary = "canary-value-0123"
	values := json.RawMessage(`{"password":"` + canary + `"}`)
	for _, tc := range []struct {
		name   string
		r      InstallRequest
		kind   Kind
		fields []string
	}{
		{"nothing", InstallRequest{}, Invalid, []string{"spaceId"}},
		{"no space", InstallRequest{Component: "traefik"}, Invalid, []string{"spaceId"}},
		{"no such space", InstallRequest{SpaceID: "nothing-here", Component: "traefik"}, NotFound, []string{"spaceId"}},
		{"no such ID", InstallRequest{SpaceID: job.NewID("spc"), Component: "traefik"}, NotFound, []string{"spaceId"}},
		{"no reference at all", InstallRequest{SpaceID: "../../x", Component: "traefik"}, NotFound, []string{"spaceId"}},
		{"another organisation's, by ID", InstallRequest{SpaceID: theirs, Component: "traefik"}, NotFound, []string{"spaceId"}},
		{"another organisation's, by name", InstallRequest{SpaceID: "theirs", Component: "traefik"}, NotFound, []string{"spaceId"}},
		{"of VMs", InstallRequest{SpaceID: "vms", Component: "traefik"}, Invalid, []string{"spaceId"}},
		{"two of one name", InstallRequest{SpaceID: "twin", Component: "traefik"}, Ambiguous, []string{"spaceId"}},
		{"that names no cluster", InstallRequest{SpaceID: "nowhere", Component: "traefik"}, Invalid, []string{"spaceId"}},
		{"no component", InstallRequest{SpaceID: space}, Invalid, []string{"component"}},
		{"unknown component", InstallRequest{SpaceID: space, Component: "treafik"}, Invalid, []string{"component"}},
		{"not a component's name", InstallRequest{SpaceID: space, Component: "Träfik!"}, Invalid, []string{"component"}},
		{"retired", InstallRequest{SpaceID: space, Component: "ingress-nginx"}, Invalid, []string{"component"}},
		{"for another cloud", InstallRequest{SpaceID: "azure", Component: "karpenter"}, Invalid, []string{"component"}},
		{"no version", InstallRequest{SpaceID: space, Component: "traefik", Version: "latest"}, Invalid, []string{"version"}},
		{"the cluster's namespace", InstallRequest{SpaceID: space, Component: "traefik", Namespace: "kube-system"}, Invalid, []string{"namespace"}},
		{"no namespace", InstallRequest{SpaceID: space, Component: "traefik", Namespace: "a/b"}, Invalid, []string{"namespace"}},
		{"no release", InstallRequest{SpaceID: space, Component: "traefik", Release: strings.Repeat("a", 54)}, Invalid, []string{"release"}},
		{"no name", InstallRequest{SpaceID: space, Component: "traefik", Name: "Shop!"}, Invalid, []string{"name"}},
		{"a taken name", InstallRequest{SpaceID: space, Component: "traefik", Name: "keda-on-platform"}, NameTaken, []string{"name"}},
		{"the default name, taken", InstallRequest{SpaceID: space, Component: "keda"}, NameTaken, []string{"name"}},
		{"no label", InstallRequest{SpaceID: space, Component: "traefik", Labels: map[string]string{"": "x"}}, Invalid, nil},
		{"values that are none", InstallRequest{SpaceID: space, Component: "traefik", Values: json.RawMessage(`[1]`)}, Invalid, []string{"values"}},
		{"values that are no JSON", InstallRequest{SpaceID: space, Component: "traefik", Values: json.RawMessage(`{"a`)}, Invalid, []string{"values"}},
		{"two things at once", InstallRequest{SpaceID: space, Component: "traefik", Namespace: "default", Release: "A", Values: values}, Invalid, []string{"release", "namespace"}},
	} {
		r := b.refusedAfter(func() error { _, _, err := b.InstallComponent(b.ctx, tc.r, ""); return err }, tc.kind, tc.fields...)
		if strings.Contains(r.Error()+r.Hint, "config.spec") {
			t.Errorf("%s: names a field that the request does not have: %s", tc.name, r.Error())
		}
	}
	if strings.Contains(strings.Join(b.audited(), "\n")+b.log.String(), canary) {
		t.Error("a value is in the audit log or in the log")
	}
	// Among those of one name, the one of type kubernetes is meant.
	if v, _, err := b.InstallComponent(b.ctx, InstallRequest{SpaceID: "platform", Component: "traefik"}, ""); err != nil || v.Config.InfraConfig.SpaceID != space {
		t.Errorf("%+v, %v", v, err)
	}
	for name, ctx := range map[string]func() error{
		"a viewer": func() error {
			_, _, err := b.InstallComponent(b.as("org1", access.Viewer), InstallRequest{SpaceID: space, Component: "loki"}, "")
			return err
		},
		"a nobody": func() error {
			_, _, err := b.InstallComponent(b.as("org1"), InstallRequest{SpaceID: space, Component: "loki"}, "")
			return err
		},
		"a stranger, who looks for it": func() error {
			_, _, err := b.InstallComponent(b.as("org2", access.Admin), InstallRequest{SpaceID: space, Component: "loki"}, "")
			return err
		},
	} {
		jobs := b.jobs()
		if err := ctx(); err == nil || b.jobs() != jobs {
			t.Errorf("%s installs", name)
		}
	}
}

// The body of the request is read as every other is.
func TestInstallRequestIsReadStrictly(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for body, field := range map[string]string{
		`{"values":[1]}`:             "values",
		`{"values":"a: b"}`:          "values",
		`{"values":null}`:            "values",
		`{"spaceID":"x"}`:            "spaceID",
		`{"component":{"name":"x"}}`: "component",
		`{"spec":{}}`:                "spec",
	} {
		var r InstallRequest
		if got := b.refused(Decode([]byte(body), &r), Invalid, field); !strings.HasPrefix(got.Error(), field) {
			t.Errorf("%s: %s", body, got.Error())
		}
	}
}

func TestInstallWithoutCatalogueOrRegistry(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, space := b.cluster("platform", job.AWS, "us-east-1", "eks-1")
	bare := New(Config{Ledger: b.Ledger, Clouds: b.cloud, Spaces: b.registry})
	_, _, err := bare.InstallComponent(b.ctx, InstallRequest{SpaceID: space, Component: "traefik"}, "")
	b.refused(err, Invalid, "component")
	none := New(Config{Ledger: b.Ledger, Clouds: b.cloud, Components: b.engine})
	_, _, err = none.InstallComponent(b.ctx, InstallRequest{SpaceID: space, Component: "traefik"}, "")
	b.refused(err, CloudNotAvailable)
	_, _, err = none.RegisterSpace(b.ctx, SpaceRequest{Name: "x", Provider: job.AWS, Config: SpaceConfig{Region: "us-east-1", Cluster: "eks-1"}})
	b.refused(err, CloudNotAvailable)
	if all, err := bare.Catalogue(b.ctx, query("")); err != nil || len(all) != 0 || all == nil {
		t.Errorf("%v, %v", all, err)
	}
}

func TestInstallReplay(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id, err := b.registry.Register(t.Context(), &configv1.Space{OrgId: "org1", Name: "ours", SubjectType: "cluster", SubjectId: "ext_1", Provider: "aws", Region: "us-east-1",
		SpaceType: job.SpaceKubernetes, Config: map[string]string{"region": "us-east-1", "cluster": "eks-1"}})
	if err != nil {
		t.Fatal(err)
	}
	r := InstallRequest{SpaceID: "ours", Component: "traefik"}
	one, _, err := b.InstallComponent(b.ctx, r, "key-1")
	if err != nil {
		t.Fatal(err)
	}
	entries := len(b.audited())
	if again, created, err := b.InstallComponent(b.ctx, r, "key-1"); err != nil || created || again.ID != one.ID {
		t.Errorf("%v, %v", created, err)
	}
	if n := len(b.audited()); n != entries {
		t.Errorf("a replay is audited as %d changes", n-entries)
	}
	other := r
	other.Version = "41.2.0"
	if got := b.refusedAfter(func() error { _, _, err := b.InstallComponent(b.ctx, other, "key-1"); return err }, KeyReused, "Idempotency-Key"); got.Job != one.ID {
		t.Errorf("the refusal names %q", got.Job)
	}
	b.refusedAfter(func() error { _, _, err := b.InstallComponent(b.ctx, r, "a key with spaces"); return err }, Invalid, "Idempotency-Key")
	// The job is gone and its space forgotten: what was carried out is still told.
	if _, done, err := b.Delete(b.ctx, one.ID, "", nil); err != nil || !done {
		t.Fatal(done, err)
	}
	if err := b.DeleteSpace(b.ctx, id); err != nil {
		t.Fatal(err)
	}
	if again, created, err := b.InstallComponent(b.ctx, r, "key-1"); err != nil || created || again.ID != one.ID || again.Status != job.Cancelled {
		t.Errorf("after everything is gone: %v, %v", created, err)
	}
	if _, _, err := b.InstallComponent(b.as("org1", access.Viewer), r, "key-1"); err == nil {
		t.Error("a viewer sees a replay")
	}
}

// TestInstallOntoAClusterThatGoes: what is being deleted takes nothing more.
func TestInstallOntoAClusterThatGoes(t *testing.T) {
	t.Parallel()
	for name, going := range map[string]func(*job.Job){
		"cancelling": func(j *job.Job) { j.Cancelling = true },
		"teardown":   func(j *job.Job) { j.Status, j.Phase = job.Running, job.PhaseTeardown },
		"stopped":    func(j *job.Job) { j.Status, j.Phase = job.Failed, job.PhaseTeardown },
	} {
		b := newBench(t)
		cluster, space := b.cluster("platform", job.AWS, "us-east-1", "eks-1")
		b.set(cluster.ID, going)
		got := b.refusedAfter(func() error {
			_, _, err := b.InstallComponent(b.ctx, InstallRequest{SpaceID: space, Component: "traefik"}, "")
			return err
		}, WrongState)
		if got.Job != cluster.ID {
			t.Errorf("%s: names %q", name, got.Job)
		}
	}
}

func TestComponentDraftStaysWhereItIs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, space := b.cluster("platform", job.AWS, "us-east-1", "eks-1")
	_, other := b.cluster("other", job.AWS, "us-east-1", "eks-2")
	var r CreateRequest
	if err := Decode([]byte(`{"resourceType":"component","name":"edge","config":{"spec":{"spaceId":"platform","component":{"name":"traefik"}}}}`), &r); err != nil {
		t.Fatal(err)
	}
	v, _, err := b.Create(b.ctx, r, "")
	if err != nil || v.Status != job.Draft {
		t.Fatal(v, err)
	}
	patch := func(body string) error {
		var p PatchRequest
		if err := Decode([]byte(body), &p); err != nil {
			return err
		}
		_, _, err := b.Patch(b.ctx, v.ID, p, nil)
		return err
	}
	b.refusedAfter(func() error { return patch(`{"config":{"spec":{"spaceId":"` + other + `"}}}`) }, Invalid, "config.spec.spaceId")
	b.refusedAfter(func() error { return patch(`{"region":"eu-west-1"}`) }, Invalid, "region")
	b.refusedAfter(func() error { return patch(`{"mode":"adopt"}`) }, Invalid, "mode")
	b.refusedAfter(func() error { return patch(`{"config":{"spec":{"component":{"name":"nothing"}}}}`) }, Invalid, "config.spec.component.name")
	b.refusedAfter(func() error {
		return patch(`{"componentOp":"upgrade","config":{"spec":{"component":{"version":"1.0.0"}}}}`)
	}, WrongState)
	if err := patch(`{"name":"edge-2","region":"us-east-1","config":{"spec":{"spaceId":"` + space + `","component":{"name":"loki","values":{"a":1}}}}}`); err != nil {
		t.Error(err)
	}
	if err := patch(`{"status":"queued"}`); err != nil {
		t.Error(err)
	}
	if got := b.get(v.ID); got.Status != job.Queued || got.Config.InfraConfig.SpaceID != space || got.Name != "edge-2" || !strings.Contains(string(got.Config.Spec), "loki") {
		t.Errorf("%s %s", got.Status, got.Config.Spec)
	}
	if err := b.DeleteSpace(b.ctx, space); err == nil {
		t.Error("the space is forgotten under a queued job")
	}
}

func TestPlanOfAComponent(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, space := b.cluster("platform", job.AWS, "us-east-1", "eks-1")
	var r CreateRequest
	if err := Decode([]byte(`{"resourceType":"component","config":{"spec":{"spaceId":"platform","component":{"name":"aws-load-balancer-controller"}}}}`), &r); err != nil {
		t.Fatal(err)
	}
	jobs := b.jobs()
	p, err := b.PlanRequest(b.ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range p.Checks {
		names = append(names, c.Name+" "+string(c.Status))
	}
	if !slices.Equal(names, []string{"cluster ok", "component aws-load-balancer-controller ok"}) || len(p.Objects) != 2 || p.Cost.Summary == "" || !slices.ContainsFunc(p.LeftAlone, func(l LeftAlone) bool { return l.What == "cluster eks-1" }) {
		t.Errorf("checks %q, objects %+v, left alone %+v", names, p.Objects, p.LeftAlone)
	}
	if err := Decode([]byte(`{"resourceType":"component","config":{"spec":{"spaceId":"`+space+`","component":{"name":"traefik","values":{"deployment":{"replicas":"many"}}}}}}`), &r); err != nil {
		t.Fatal(err)
	}
	if p, err = b.PlanRequest(b.ctx, r); err != nil {
		t.Fatal(err)
	}
	if c := p.Checks[1]; c.Status != "fails" || c.Field != "config.spec.component.values.deployment.replicas" || c.Message == "" || c.Fix == "" || strings.Contains(c.Message, "many") || !strings.Contains(p.Summary, "1 thing to fix") {
		t.Errorf("%s: %+v", p.Summary, c)
	}
	b.cloud.clusters = nil
	if p, err = b.PlanRequest(b.ctx, r); err != nil || p.Checks[0].Status != "fails" {
		t.Errorf("the cluster is gone: %+v, %v", p, err)
	}
	_, err = b.PlanRequest(b.as("org2", access.Admin), r)
	b.refused(err, NotFound, "config.spec.spaceId")
	if n := b.jobs(); n != jobs {
		t.Errorf("planning made %d jobs", n-jobs)
	}
}
