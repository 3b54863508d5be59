package gcp

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// engine is what the job makes, as stepValidate settled it.
func engine(r *pipeline.Run, spec job.DatastoreSpec) job.Engine {
	if e := r.Job.Config.InfraConfig.Datastore.Engine; e != "" {
		return e
	}
	return spec.Engine
}

// A server is how one of the services behind datastore and cache jobs makes and
// removes what they are.
type server struct {
	object   func(p *Provider, r *pipeline.Run, spec job.DatastoreSpec) pipeline.Resource // as it is made
	handle   func(p *Provider, r *pipeline.Run) pipeline.Resource                         // as it is removed
	finish   func(p *Provider, ctx context.Context, r *pipeline.Run, spec job.DatastoreSpec) error
	guard    func(p *Provider, ctx context.Context, r *pipeline.Run, spec job.DatastoreSpec) error
	cleanup  func(p *Provider, ctx context.Context, r *pipeline.Run, spec job.DatastoreSpec) error
	controls func(p *Provider, ctx context.Context, r *pipeline.Run, spec job.DatastoreSpec) ([]job.Control, error)
}

// serverFor is the service of an engine.
func serverFor(e job.Engine) server {
	switch e {
	case job.Redis:
		return redisServer()
	case job.Valkey:
		return valkeyServer()
	}
	return sqlServer()
}

// longestName is how long the name of what the job makes may be ("Instance ID").
func longestName(e job.Engine) int {
	if e == job.Redis {
		return 40
	}
	return 63
}

// datastoreName is the name of what the job makes, within what its service allows.
// A try more is told by a number: the cloud may hold the name of what was deleted
// (failure kind B1).
func datastoreName(j *job.Job, e job.Engine) string {
	most, tries := longestName(e), j.Config.InfraConfig.Datastore.NameTries
	if tries == 0 {
		return j.ResourceName("", most)
	}
	return fmt.Sprintf("%s-%d", j.ResourceName("", most-2), tries)
}

// settleName fills in the names that follow from the job's.
func settleName(r *pipeline.Run, spec job.DatastoreSpec) {
	d := &r.Job.Config.InfraConfig.Datastore
	d.Engine = engine(r, spec)
	d.Name = datastoreName(r.Job, d.Engine)
	d.FinalSnapshot = ""
	if !d.Engine.Cache() && !spec.SkipFinalSnapshot {
		d.FinalSnapshot = finalName(*d)
	}
}

// finalName is what the final backup of an instance is called.
func finalName(d job.DatastoreInfo) string { return d.Name + "-final" }

// settledDatastore is the spec, and the names where stepValidate has not come to them.
func settledDatastore(r *pipeline.Run) (job.DatastoreSpec, error) {
	spec, err := r.Job.DatastoreSpec()
	if err == nil && r.Job.Config.InfraConfig.Datastore.Name == "" {
		settleName(r, spec)
	}
	return spec, err
}

// EnsureSubnetGroup makes what the datastore is reached by: private services access,
// or for Valkey the policy by which the service may make its endpoints. In a
// network of somebody else what is there is used, and nothing is changed.
func (p *Provider) EnsureSubnetGroup(ctx context.Context, r *pipeline.Run) error {
	ctx = view(ctx, r)
	spec, err := settledDatastore(r)
	if err != nil {
		return err
	}
	infra := &r.Job.Config.InfraConfig
	if engine(r, spec) == job.Valkey {
		return p.ensureValkeyPolicy(ctx, r)
	}
	if r.Job.Mode != job.ModeCreate {
		return p.useConnection(ctx, r)
	}
	_, plan, err := p.planned(r)
	if err != nil {
		return err
	}
	if err := p.ensurePrivateServices(ctx, r, infra.NetworkID, plan.PrivateServices); err != nil {
		return err
	}
	learn(r, &infra.Datastore.SubnetGroup, name(r, keyServicesRange))
	return r.Save(ctx)
}

// useConnection finds the range that the named network gives to managed services.
func (p *Provider) useConnection(ctx context.Context, r *pipeline.Run) error {
	if r.Mode == pipeline.Plan {
		return nil
	}
	infra := &r.Job.Config.InfraConfig
	all, err := p.connections(ctx, infra.NetworkID)
	if err != nil {
		return err
	}
	var given []string
	for _, c := range all {
		given = append(given, c.ReservedPeeringRanges...)
	}
	switch {
	case len(given) > 0:
	case r.Mode == pipeline.Verify:
		r.AddDrift(pipeline.Drift{Kind: kindConnection, Key: "existing", ID: connectionID(infra.NetworkID), Attr: "exists", Wanted: "yes", Seen: "no"})
		return nil
	default:
		return pipeline.Fatal("no-private-services", fmt.Sprintf("network %s has no private services access, which %s needs", base(infra.NetworkID), infra.Datastore.Engine.Title()),
			connectCommands(infra.NetworkID)+"; then retry.").On("config.spec.existing.networkId")
	}
	learn(r, &infra.Datastore.SubnetGroup, given[0])
	return r.Save(ctx)
}

// connectCommands are how private services access is made by hand.
func connectCommands(network string) string {
	n, project := base(network), projectOf(network)
	return fmt.Sprintf("Run gcloud compute addresses create %[1]s-services --global --purpose=VPC_PEERING --prefix-length=20 --network=%[1]s --project=%[2]s, "+
		"and gcloud services vpc-peerings connect --service=servicenetworking.googleapis.com --ranges=%[1]s-services --network=%[1]s --project=%[2]s", n, project)
}

// producerPatience is how long a private services connection is waited for after
// its last instance is gone: the service keeps what was behind it for a while, at
// worst for four days ("Delete a private connection"; failure kind E16).
const producerPatience = 3 * time.Hour

// RemoveSubnetGroup removes private services access, or Valkey's policy.
func (p *Provider) RemoveSubnetGroup(ctx context.Context, r *pipeline.Run) error {
	if r.Mode == pipeline.Plan || !r.Job.Owns() {
		return nil
	}
	ctx = view(ctx, r)
	spec, err := settledDatastore(r)
	if err != nil {
		return err
	}
	if engine(r, spec) == job.Valkey {
		return p.removeValkeyPolicy(ctx, r)
	}
	if r.Job.Mode != job.ModeCreate {
		return nil
	}
	network := r.Job.Config.InfraConfig.NetworkID
	if rec, ok := r.Object(kindNetwork, "network"); ok && rec.ID != "" {
		network = rec.ID
	}
	err = p.removePrivateServices(ctx, r, network)
	var blocked *pipeline.BlockedError
	if !errors.As(err, &blocked) && !pipeline.Is(err, pipeline.Busy) {
		return err
	}
	if r.WaitedFor("the producer to let go") <= producerPatience {
		return pipeline.Wait(time.Minute, "Google's services to let go of network %s: they keep the connection for a while after the last instance is gone", base(network))
	}
	r.WaitOver("the producer to let go")
	return pipeline.Fatal("connection-in-use", fmt.Sprintf("Google's services still hold the private connection of network %s, %s after the datastore was deleted: %v", base(network), producerPatience, err),
		"It can take them up to four days. Retry then: the connection, its range and the network are all that is left, and nothing of it is billed.").From(err)
}

// EnsureDatastore makes the datastore or cache, and what belongs to it alone.
func (p *Provider) EnsureDatastore(ctx context.Context, r *pipeline.Run) error {
	ctx = view(ctx, r)
	spec, err := settledDatastore(r)
	if err != nil {
		return err
	}
	s := serverFor(engine(r, spec))
	id, err := p.ensure(ctx, r, s.object(p, r, spec))
	if pipeline.Is(err, pipeline.Exists) && r.Mode == pipeline.Apply {
		return p.nameHeld(ctx, r, spec, s, err)
	}
	if err != nil {
		return visible(r, "what the datastore is built on", err)
	}
	if r.Mode == pipeline.Apply {
		r.Job.Config.InfraConfig.Datastore.ID = id
	}
	return s.finish(p, ctx, r, spec)
}

// nameTries is how many other names are tried when the cloud holds one.
const nameTries = 3

// nameHeld goes on under another name when the cloud refuses one that nothing
// visible has (failure kind B1). What is visible and bears no mark was refused by
// the pipeline already.
func (p *Provider) nameHeld(ctx context.Context, r *pipeline.Run, spec job.DatastoreSpec, s server, refused error) error {
	d := &r.Job.Config.InfraConfig.Datastore
	if there, err := s.handle(p, r).Find(ctx); err != nil || len(there) > 0 {
		return errors.Join(err, refused)
	}
	if d.NameTries >= nameTries {
		return pipeline.Fatal("name-held", fmt.Sprintf("the cloud holds the name %s, and %d others before it, of something that was deleted: %v", d.Name, nameTries, refused),
			"Wait until it gives them back (a week at most), or give the job another name, then retry.").On("name").From(refused)
	}
	held := d.Name
	d.NameTries++
	settleName(r, spec)
	if err := r.Event(ctx, "name.held", "the cloud holds the name %s of something that was deleted; %s is tried instead", held, d.Name); err != nil {
		return err
	}
	if err := r.Save(ctx); err != nil {
		return err
	}
	return pipeline.Wait(time.Second, "another name, since the cloud holds %s", held)
}

// RemoveDatastore takes the final backup and deletes the datastore. What stands in
// the way is named before anything is deleted.
func (p *Provider) RemoveDatastore(ctx context.Context, r *pipeline.Run) error {
	if r.Mode == pipeline.Plan || !r.Job.Owns() {
		return nil
	}
	ctx = view(ctx, r)
	spec, err := settledDatastore(r)
	if err != nil {
		return err
	}
	s := serverFor(engine(r, spec))
	if err := s.guard(p, ctx, r, spec); err != nil {
		return err
	}
	if err := r.Remove(ctx, s.handle(p, r)); err != nil {
		return inTurn(r, r.Job.Config.InfraConfig.Datastore.ID, err)
	}
	return s.cleanup(p, ctx, r, spec)
}

// protected is a hold that somebody else has put on a datastore of the job.
func protected(what, how string) error {
	return pipeline.Fatal("blocked", what+" has deletion protection that this job did not set, so nothing was deleted",
		"Have whoever set it agree, then "+how+" and retry.")
}
