package provision

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

func aksSpace(name string) SpaceRequest {
	return SpaceRequest{Name: name, Provider: job.Azure, Config: SpaceConfig{Region: "westeurope", Cluster: "aks-1"}}
}

func (b *bench) spaceNames() (names []string) {
	b.t.Helper()
	for cursor := ""; ; {
		page, next, err := b.ListSpaces(b.ctx, 2, cursor)
		if err != nil {
			b.t.Fatal(err)
		}
		for _, s := range page {
			names = append(names, s.Name)
		}
		if cursor = next; next == "" {
			return names
		}
	}
}

func TestRegisterSpace(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v, created, err := b.RegisterSpace(b.ctx, aksSpace("ours"))
	if err != nil || !created {
		t.Fatal(created, err)
	}
	if v.Name != "ours" || v.Provider != job.Azure || v.SpaceType != job.SpaceKubernetes || v.CloudAccountID != "default" || v.Status != "synced" || v.JobID != "" || v.CreatedAt.IsZero() ||
		v.Config["region"] != "westeurope" || v.Config["cluster"] != "aks-1" {
		t.Errorf("%+v", v)
	}
	b.audits("ana space:manage allowed "+v.ID, `"cluster":"aks-1"`, `"created":true`)
	// The same cluster again is the same space, however well it is described.
	for _, r := range []SpaceRequest{aksSpace("ours"), aksSpace("renamed"), {Name: "renamed", Provider: job.Azure, SpaceType: job.SpaceKubernetes, CloudAccountID: "default",
		Config: SpaceConfig{Region: "westeurope", Cluster: "aks-1", ResourceGroup: "rg-1"}}, aksSpace("renamed")} {
		again, created, err := b.RegisterSpace(b.ctx, r)
		if err != nil || created || again.ID != v.ID || again.Name != r.Name {
			t.Errorf("%+v: %+v, %v, %v", r, again, created, err)
		}
		v = again
	}
	if v.Config["resourceGroup"] != "rg-1" {
		t.Errorf("what was known of it is lost: %v", v.Config)
	}
	// Of two groups, two clusters.
	r := aksSpace("second")
	r.Config.ResourceGroup = "rg-2"
	if second, created, err := b.RegisterSpace(b.ctx, r); err != nil || !created || second.ID == v.ID {
		t.Errorf("%+v, %v, %v", second, created, err)
	}
	// A cluster that a job made has its space already, and keeps its name.
	_, made := b.cluster("platform", job.AWS, "us-east-1", "eks-1")
	got, created, err := b.RegisterSpace(b.ctx, SpaceRequest{Name: "mine", Provider: job.AWS, Config: SpaceConfig{Region: "us-east-1", Cluster: "eks-1"}})
	if err != nil || created || got.ID != made || got.Name != "platform" {
		t.Errorf("%+v, %v, %v", got, created, err)
	}
	if names := b.spaceNames(); !slices.Equal(names, []string{"platform", "second", "renamed"}) {
		t.Errorf("%q", names)
	}
	for _, ref := range []string{v.ID, "renamed"} {
		if got, err := b.GetSpace(b.as("org1", access.Viewer), ref); err != nil || got.ID != v.ID {
			t.Errorf("%s: %+v, %v", ref, got, err)
		}
		_, err := b.GetSpace(b.as("org2", access.Admin), ref)
		b.refused(err, NotFound)
	}
	if all, _, err := b.ListSpaces(b.as("org2", access.Admin), 100, ""); err != nil || len(all) != 0 || all == nil {
		t.Errorf("another organisation sees %v, %v", all, err)
	}
}

func TestRegisterSpaceRefusals(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if _, _, err := b.RegisterSpace(b.ctx, aksSpace("taken")); err != nil {
		t.Fatal(err)
	}
	with := func(edit func(*SpaceRequest)) SpaceRequest {
		r := SpaceRequest{Name: "fresh", Provider: job.AWS, Config: SpaceConfig{Region: "us-east-1", Cluster: "eks-1"}}
		edit(&r)
		return r
	}
	for _, tc := range []struct {
		name   string
		r      SpaceRequest
		kind   Kind
		fields []string
	}{
		{"nothing", SpaceRequest{}, Invalid, []string{"name", "provider", "config.region", "config.cluster"}},
		{"no name", with(func(r *SpaceRequest) { r.Name = "My space" }), Invalid, []string{"name"}},
		{"no cloud", with(func(r *SpaceRequest) { r.Provider = "oracle" }), Invalid, []string{"provider"}},
		{"of VMs", with(func(r *SpaceRequest) { r.SpaceType = "vm" }), Invalid, []string{"spaceType"}},
		{"no account", with(func(r *SpaceRequest) { r.CloudAccountID = "other" }), Invalid, []string{"cloudAccountId"}},
		{"no region", with(func(r *SpaceRequest) { r.Config.Region = "us east" }), Invalid, []string{"config.region"}},
		{"no cluster", with(func(r *SpaceRequest) { r.Config.Cluster = "a/b" }), Invalid, []string{"config.cluster"}},
		{"a group at another cloud", with(func(r *SpaceRequest) { r.Config.ResourceGroup = "rg" }), Invalid, []string{"config.resourceGroup"}},
		{"no group", with(func(r *SpaceRequest) { r.Provider, r.Config.ResourceGroup = job.Azure, "a/../b" }), Invalid, []string{"config.resourceGroup"}},
		{"no such cluster", with(func(r *SpaceRequest) { r.Config.Cluster = "eks-9" }), NotFound, nil},
		{"not in this region", with(func(r *SpaceRequest) { r.Config.Region = "eu-west-1" }), NotFound, nil},
		{"a taken name", with(func(r *SpaceRequest) { r.Name = "taken" }), NameTaken, []string{"name"}},
	} {
		b.refusedAfter(func() error { _, _, err := b.RegisterSpace(b.ctx, tc.r); return err }, tc.kind, tc.fields...)
		if names := b.spaceNames(); !slices.Equal(names, []string{"taken"}) {
			t.Fatalf("%s: %q", tc.name, names)
		}
	}
	b.cloud.fail = &pipeline.CloudError{Class: pipeline.Unavailable, Service: "Fake", Op: "GetCluster", Message: "out of order", Sent: true}
	b.refusedAfter(func() error { _, _, err := b.RegisterSpace(b.ctx, with(func(*SpaceRequest) {})); return err }, CloudNotAvailable)
	_, _, err := b.RegisterSpace(b.as("org1", access.Viewer), aksSpace("x"))
	b.refused(err, Forbidden)
}

func TestForgetSpace(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v, _, err := b.RegisterSpace(b.ctx, aksSpace("ours"))
	if err != nil {
		t.Fatal(err)
	}
	c := b.install(InstallRequest{SpaceID: v.ID, Component: "traefik"})
	for _, state := range []job.State{{Status: job.Draft, Phase: job.PhaseProvision}, {Status: job.Completed, Phase: job.PhaseProvision}, {Status: job.Failed, Phase: job.PhaseTeardown}} {
		b.set(c.ID, func(j *job.Job) { j.Status, j.Phase = state.Status, state.Phase })
		if r := b.refusedAfter(func() error { return b.DeleteSpace(b.ctx, "ours") }, WrongState); !strings.Contains(r.Error(), c.Name) {
			t.Errorf("%s", r.Error())
		}
	}
	b.refused(b.DeleteSpace(b.as("org2", access.Admin), v.ID), NotFound)
	b.refused(b.DeleteSpace(b.as("org1", access.Viewer), v.ID), Forbidden)
	b.set(c.ID, func(j *job.Job) { j.Status, j.Phase = job.Cancelled, job.PhaseTeardown })
	if err := b.DeleteSpace(b.ctx, "ours"); err != nil {
		t.Fatal(err)
	}
	b.audits("space:manage allowed "+v.ID, "forgotten")
	b.refusedAfter(func() error { return b.DeleteSpace(b.ctx, v.ID) }, NotFound)
	if len(b.spaceNames()) != 0 || len(b.cloud.grants) != 0 {
		t.Error("more or less than the pointer was removed")
	}
	// Two of one name are told apart by their IDs.
	b.addSpace("org1", "twin", job.SpaceKubernetes, job.AWS, "us-east-1", "eks-1", "")
	b.addSpace("org1", "twin", job.SpaceVM, job.AWS, "us-east-1", "", "")
	if r := b.refusedAfter(func() error { return b.DeleteSpace(b.ctx, "twin") }, Ambiguous); strings.Count(r.Error(), "spc_") != 2 {
		t.Errorf("%s", r.Error())
	}
}

func TestListSpaces(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var want []string
	for i := range 5 {
		name := fmt.Sprintf("space-%d", i)
		b.addSpace("org1", name, job.SpaceVM, job.AWS, "us-east-1", "", "")
		want = append([]string{name}, want...)
	}
	if got := b.spaceNames(); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	for _, bad := range []string{"x", "~", "spc_'", strings.Repeat("a", 150)} {
		_, _, err := b.ListSpaces(b.ctx, 10, bad)
		b.refused(err, Invalid, "cursor")
	}
	_, _, err := b.ListSpaces(b.as("org1"), 10, "")
	b.refused(err, Forbidden)
}

func TestNamespaces(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v, _, err := b.RegisterSpace(b.ctx, aksSpace("ours"))
	if err != nil {
		t.Fatal(err)
	}
	list := func() (names []string) {
		all, err := b.Namespaces(b.as("org1", access.Viewer), "ours")
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range all {
			names = append(names, n.Name)
		}
		return names
	}
	if got := list(); !slices.Equal(got, []string{"default", "kube-system"}) {
		t.Errorf("%q", got)
	}
	ns, err := b.CreateNamespace(b.ctx, v.ID, NamespaceRequest{Name: "shop", Labels: map[string]string{"team": "shop"}})
	if err != nil || ns.Name != "shop" || ns.Labels["team"] != "shop" || ns.PodSecurity != "baseline" || ns.Status != "Active" {
		t.Fatalf("%+v, %v", ns, err)
	}
	b.audits("space:manage allowed "+v.ID, `"namespace":"shop"`)
	vms := b.addSpace("org1", "vms", job.SpaceVM, job.AWS, "us-east-1", "", "")
	gone := b.addSpace("org1", "gone", job.SpaceKubernetes, job.AWS, "us-east-1", "eks-9", "")
	for _, tc := range []struct {
		name, space string
		r           NamespaceRequest
		kind        Kind
		fields      []string
	}{
		{"no name", v.ID, NamespaceRequest{}, Invalid, []string{"name"}},
		{"not a name", v.ID, NamespaceRequest{Name: "Shop"}, Invalid, []string{"name"}},
		{"the cluster's own", v.ID, NamespaceRequest{Name: "kube-shop"}, Invalid, []string{"name"}},
		{"too long", v.ID, NamespaceRequest{Name: strings.Repeat("a", 64)}, Invalid, []string{"name"}},
		{"there already", v.ID, NamespaceRequest{Name: "shop"}, NameTaken, nil},
		{"no label", v.ID, NamespaceRequest{Name: "shop2", Labels: map[string]string{"a b": "c"}}, Invalid, []string{"labels"}},
		{"of VMs", vms, NamespaceRequest{Name: "shop2"}, WrongState, nil},
		{"no such space", "nothing", NamespaceRequest{Name: "shop2"}, NotFound, nil},
		{"the cluster is gone", gone, NamespaceRequest{Name: "shop2"}, NotFound, nil},
	} {
		b.refusedAfter(func() error { _, err := b.CreateNamespace(b.ctx, tc.space, tc.r); return err }, tc.kind, tc.fields...)
		if tc.kind == WrongState || tc.kind == NotFound {
			_, err := b.Namespaces(b.ctx, tc.space)
			b.refused(err, tc.kind)
		}
	}
	if got := list(); !slices.Equal(got, []string{"default", "kube-system", "shop"}) {
		t.Errorf("%q", got)
	}
	_, err = b.CreateNamespace(b.as("org1", access.Viewer), v.ID, NamespaceRequest{Name: "x"})
	b.refused(err, Forbidden)
	_, err = b.CreateNamespace(b.as("org2", access.Admin), v.ID, NamespaceRequest{Name: "x"})
	b.refused(err, NotFound)
	_, err = b.Namespaces(b.as("org2", access.Admin), v.ID)
	b.refused(err, NotFound)
	b.cloud.api.deny = true
	r := b.refusedAfter(func() error { _, err := b.CreateNamespace(b.ctx, v.ID, NamespaceRequest{Name: "x"}); return err }, CloudNotAvailable)
	if !strings.Contains(r.Error(), "the cluster could not be asked") || !strings.Contains(r.Error(), "forbidden") {
		t.Errorf("%s", r.Error())
	}
	if text := strings.Join(b.audited(), "\n") + b.log.String() + r.Error(); strings.Contains(text, clusterToken) || !slices.Contains(b.cloud.api.tokens, "Bearer "+clusterToken) {
		t.Error("the cluster's token is told, or was not used")
	}
}

func TestClusterAccess(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	arn := "arn:aws:iam::123456789012:role/platform"
	for range 2 { // may be repeated
		if err := b.ClusterAccess(b.ctx, "default", "us-east-1", "eks-1", AccessRequest{Provider: job.AWS, Principal: arn, Level: cloud.AccessView}, false); err != nil {
			t.Fatal(err)
		}
		b.audits("cloud-account:manage allowed default/us-east-1/eks-1", arn, "access granted", `"level":"view"`)
	}
	if err := b.ClusterAccess(b.ctx, "default", "westeurope", "aks-1", AccessRequest{Provider: job.Azure, ResourceGroup: "rg-1"}, false); err != nil {
		t.Fatal(err)
	}
	if err := b.ClusterAccess(b.ctx, "default", "us-east-1", "eks-1", AccessRequest{Provider: job.AWS, Principal: arn}, true); err != nil {
		t.Fatal(err)
	}
	b.audits("access revoked")
	want := []string{`grant view "` + arn + `" on us-east-1/eks-1 `, `grant view "` + arn + `" on us-east-1/eks-1 `, `grant admin "" on westeurope/aks-1 rg-1`, `revoke "` + arn + `" on us-east-1/eks-1 `}
	if !slices.Equal(b.cloud.grants, want) {
		t.Errorf("%q", b.cloud.grants)
	}
	for _, tc := range []struct {
		name, account, region, cluster string
		r                              AccessRequest
		kind                           Kind
		fields                         []string
	}{
		{"no cloud", "default", "us-east-1", "eks-1", AccessRequest{}, Invalid, []string{"provider"}},
		{"no account", "other", "us-east-1", "eks-1", AccessRequest{Provider: job.AWS}, NotFound, nil},
		{"no level", "default", "us-east-1", "eks-1", AccessRequest{Provider: job.AWS, Level: "root"}, Invalid, []string{"level"}},
		{"no names", "default", "..", "a b", AccessRequest{Provider: job.AWS}, Invalid, []string{"region", "cluster"}},
		{"no group", "default", "westeurope", "aks-1", AccessRequest{Provider: job.Azure, ResourceGroup: "a/b"}, Invalid, []string{"resourceGroup"}},
		{"a group at another cloud", "default", "us-east-1", "eks-1", AccessRequest{Provider: job.AWS, ResourceGroup: "rg"}, Invalid, []string{"resourceGroup"}},
		{"no such cluster", "default", "us-east-1", "eks-9", AccessRequest{Provider: job.AWS}, NotFound, nil},
		{"nobody", "default", "us-east-1", "eks-1", AccessRequest{Provider: job.AWS, Principal: "nobody"}, Invalid, []string{"principal"}},
	} {
		for _, revoke := range []bool{false, true} {
			b.refusedAfter(func() error { return b.ClusterAccess(b.ctx, tc.account, tc.region, tc.cluster, tc.r, revoke) }, tc.kind, tc.fields...)
		}
	}
	b.cloud.fail = pipeline.Fatal("no-azure-rbac", "the cluster does not go by Azure's roles", "Turn Azure RBAC on for it.")
	b.refusedAfter(func() error {
		return b.ClusterAccess(b.ctx, "default", "westeurope", "aks-1", AccessRequest{Provider: job.Azure}, false)
	}, WrongState)
	b.cloud.fail = &pipeline.CloudError{Class: pipeline.Denied, Service: "Fake", Op: "PutAccess", Code: "AccessDenied", Message: "may not", Sent: true}
	b.refusedAfter(func() error {
		return b.ClusterAccess(b.ctx, "default", "westeurope", "aks-1", AccessRequest{Provider: job.Azure}, false)
	}, CloudNotAvailable)
	b.refused(b.ClusterAccess(b.as("org1", access.Editor), "default", "us-east-1", "eks-1", AccessRequest{Provider: job.AWS}, false), Forbidden)
	if len(b.cloud.grants) != len(want) {
		t.Errorf("a refused request changed something: %q", b.cloud.grants[len(want):])
	}
}

// TestConfigServiceAway: nothing is guessed while the config service does not answer.
func TestConfigServiceAway(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, space := b.cluster("platform", job.AWS, "us-east-1", "eks-1")
	if err := b.Ledger.DB().Close(); err != nil { // what the built-in one stands on
		t.Fatal(err)
	}
	_, err := b.space(b.ctx, access.Of("org1", "ana", access.Admin), space)
	if r := b.refused(err, CloudNotAvailable); !strings.Contains(r.Hint, "--config-service") {
		t.Errorf("%s", r.Hint)
	}
	_, _, err = b.ListSpaces(b.ctx, 10, "")
	b.refused(err, CloudNotAvailable)
	r := aksSpace("x")
	r.SpaceType, r.CloudAccountID = job.SpaceKubernetes, "default"
	_, _, err = b.register(b.ctx, "org1", r)
	b.refused(err, CloudNotAvailable)
}
