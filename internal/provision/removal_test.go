package provision

import (
	"slices"
	"strings"
	"testing"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/job"
)

func (b *bench) state(id string) job.State { return b.get(id).State() }

func TestDeleteComponentIsAPolicyOfItsOwn(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, space := b.cluster("platform", job.AWS, "us-east-1", "eks-1")
	v := b.install(InstallRequest{SpaceID: space, Component: "traefik"})
	for _, ref := range []string{v.ID, v.Name} {
		_, _, err := b.Delete(b.as("org1", access.Viewer), ref, "", nil)
		if r := b.refused(err, Forbidden); !strings.Contains(r.Error(), string(access.ComponentUninstall)) {
			t.Errorf("%s", r.Error())
		}
		b.audits("component:uninstall refused", "forbidden")
	}
	_, _, err := b.Delete(b.as("org2", access.Admin), v.ID, "", nil)
	b.refused(err, NotFound)
	if _, done, err := b.Delete(b.as("org1", access.Editor), v.ID, "", nil); err != nil || done {
		t.Fatal(done, err)
	}
	if got := b.state(v.ID); got != (job.State{Status: job.Queued, Phase: job.PhaseTeardown}) {
		t.Errorf("%s", got)
	}
	b.audits("component:uninstall allowed "+v.ID, "teardown")
	b.set(v.ID, func(j *job.Job) { j.Status, j.Config.InfraConfig.Components[0].Status = job.Cancelled, "removed" })
	receipt, err := b.Receipt(b.ctx, v.ID)
	if err != nil || receipt.RequestedBy != "ana" || receipt.AuditID == "" || receipt.Scan != nil || !receipt.Final {
		t.Errorf("%+v, %v", receipt, err)
	}
	if s := b.get(v.ID).Verdict; s.Word != "Uninstalled" || strings.Contains(s.Sentence, "owner mark") {
		t.Errorf("%+v", s)
	}
	_, _, err = b.Delete(b.ctx, v.ID, "", nil)
	b.refused(err, WrongState)
}

func TestDeleteClusterTakesItsComponents(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	cluster, space := b.cluster("platform", job.AWS, "us-east-1", "eks-1")
	_, otherSpace := b.cluster("other", job.AWS, "us-east-1", "eks-2")
	// Somebody registered the same cluster beside its job.
	again := b.addSpace("org1", "again", job.SpaceKubernetes, job.AWS, "us-east-1", "eks-1", "")
	installed := b.install(InstallRequest{SpaceID: space, Component: "traefik"})
	elsewhere := b.install(InstallRequest{SpaceID: again, Component: "keda"})
	running, _, err := b.InstallComponent(b.ctx, InstallRequest{SpaceID: space, Component: "loki"}, "")
	if err != nil {
		t.Fatal(err)
	}
	b.set(running.ID, func(j *job.Job) { j.Status = job.Running })
	failing := b.install(InstallRequest{SpaceID: space, Component: "tempo"})
	b.set(failing.ID, func(j *job.Job) { j.Status, j.Phase = job.Failed, job.PhaseTeardown })
	going := b.install(InstallRequest{SpaceID: space, Component: "velero"})
	b.set(going.ID, func(j *job.Job) { j.Status, j.Phase = job.Running, job.PhaseTeardown })
	gone := b.install(InstallRequest{SpaceID: space, Component: "reloader"})
	b.set(gone.ID, func(j *job.Job) { j.Status, j.Phase = job.Cancelled, job.PhaseTeardown })
	draft, _, err := b.Create(b.ctx, CreateRequest{ResourceType: job.Component, Config: ConfigRequest{Spec: []byte(`{"spaceId":"platform","component":{"name":"grafana"}}`)}}, "")
	if err != nil {
		t.Fatal(err)
	}
	stays := b.install(InstallRequest{SpaceID: otherSpace, Component: "traefik"})

	r := b.refusedAfter(func() error { _, _, err := b.Delete(b.ctx, cluster.ID, "", nil); return err }, ConfirmationNeeded, "confirm")
	for _, name := range []string{installed.Name, elsewhere.Name, running.Name, draft.Name} {
		if !strings.Contains(r.Error(), name) {
			t.Errorf("the confirmation does not name %s: %s", name, r.Error())
		}
	}
	if strings.Contains(r.Error(), gone.Name) || strings.Contains(r.Error(), stays.Name) {
		t.Errorf("the confirmation names what does not go: %s", r.Error())
	}
	b.refusedAfter(func() error { _, _, err := b.Delete(b.ctx, cluster.ID, "other", nil); return err }, ConfirmationNeeded, "confirm")
	stale := int64(9)
	b.refusedAfter(func() error { _, _, err := b.Delete(b.ctx, cluster.ID, "platform", &stale); return err }, PreconditionFailed)
	if s := b.state(installed.ID); s.Status != job.Completed {
		t.Fatalf("unconfirmed, and a component is %s", s)
	}
	if _, done, err := b.Delete(b.ctx, "platform", "platform", nil); err != nil || done {
		t.Fatal(done, err)
	}
	teardown := job.State{Status: job.Queued, Phase: job.PhaseTeardown}
	for id, want := range map[string]job.State{
		cluster.ID: teardown, installed.ID: teardown, elsewhere.ID: teardown, running.ID: teardown, failing.ID: teardown,
		going.ID: {Status: job.Running, Phase: job.PhaseTeardown}, gone.ID: {Status: job.Cancelled, Phase: job.PhaseTeardown},
		draft.ID: {Status: job.Cancelled, Phase: job.PhaseProvision}, stays.ID: {Status: job.Completed, Phase: job.PhaseProvision},
	} {
		if got := b.state(id); got != want {
			t.Errorf("%s is %s, want %s", b.get(id).Name, got, want)
		}
	}
	all := strings.Join(b.audited(), "\n")
	for _, want := range []string{"provisioning-job:delete allowed " + cluster.ID, "component:uninstall allowed " + installed.ID, "component:uninstall allowed " + draft.ID} {
		if !strings.Contains(all, want) {
			t.Errorf("not audited: %s", want)
		}
	}
	// Asked again on its way, also when its space has been forgotten by then.
	b.set(cluster.ID, func(j *job.Job) { j.Config.InfraConfig.SpaceID = "" })
	late := b.install(InstallRequest{SpaceID: again, Component: "crossplane"})
	if _, _, err := b.Delete(b.ctx, cluster.ID, "", nil); err != nil {
		t.Fatal(err)
	}
	if got := b.state(late.ID); got != teardown {
		t.Errorf("what came meanwhile is %s", got)
	}
}

// A cluster that is only disconnected runs on: nothing is uninstalled from it.
func TestDisconnectedClusterKeepsItsComponents(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v, _, err := b.Create(b.ctx, CreateRequest{ResourceType: job.Cluster, Provider: job.AWS, Mode: job.ModeAdopt, Name: "theirs", Region: "us-east-1", Submit: true,
		Config: ConfigRequest{Spec: []byte(`{"adopt":{"name":"eks-1"}}`)}}, "")
	if err != nil {
		t.Fatal(err)
	}
	space := b.addSpace("org1", "theirs", job.SpaceKubernetes, job.AWS, "us-east-1", "eks-1", v.ID)
	b.set(v.ID, func(j *job.Job) {
		j.Status, j.Config.InfraConfig.Cluster.Name, j.Config.InfraConfig.SpaceID = job.Completed, "eks-1", space
	})
	c := b.install(InstallRequest{SpaceID: space, Component: "traefik"})
	if r := b.refusedAfter(func() error { _, _, err := b.Delete(b.ctx, v.ID, "", nil); return err }, WrongState); !strings.Contains(r.Error(), c.Name) {
		t.Errorf("%s", r.Error())
	}
	_, _, err = b.Delete(b.as("org1", access.Viewer), v.ID, "", nil)
	b.refused(err, Forbidden)
	if s := []job.Status{b.state(c.ID).Status, b.state(v.ID).Status}; !slices.Equal(s, []job.Status{job.Completed, job.Completed}) {
		t.Errorf("%s", s)
	}
	b.set(c.ID, func(j *job.Job) { j.Status, j.Phase = job.Cancelled, job.PhaseTeardown })
	if _, _, err := b.Delete(b.ctx, v.ID, "", nil); err != nil {
		t.Error(err)
	}
}
