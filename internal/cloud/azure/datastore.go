package azure

import (
	"context"
	"fmt"
	"strings"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

var (
	_ cloud.DatastoreFamily = (*Provider)(nil)
	_ cloud.CacheUsers      = (*Provider)(nil)
)

// EnsureSubnetGroup makes the private zone in which the datastore's name is found,
// and its link to the network. The subnet and its security group came with the
// network, or are somebody else's.
func (p *Provider) EnsureSubnetGroup(ctx context.Context, r *pipeline.Run) error {
	if r.Job.Mode == job.ModeAdopt {
		return nil
	}
	ctx = view(ctx, r)
	spec, err := r.Job.DatastoreSpec()
	if err != nil {
		return err
	}
	info := &r.Job.Config.InfraConfig.Datastore
	learn(r, &info.SubnetGroup, dataSubnet(r.Job))
	if r.Job.Mode == job.ModeCreate {
		learn(r, &info.SecurityGroupID, p.idIn(r, typeGroupRules, r.Job.ResourceName("nsg-"+job.TierDatabase, longestName)))
	}
	if spec.Engine.Cache() && info.PrivateZoneID != "" && !p.ownZone(r, info.PrivateZoneID) {
		return nil // the network finds such names in a zone that is there already
	}
	zone := p.privateZone(r, datastoreZone(r.Job, spec.Engine))
	if _, err := r.Ensure(ctx, zone.resource()); err != nil {
		return err
	}
	if _, err := r.Ensure(ctx, p.zoneLink(r, lastName(zone.id)).resource()); err != nil {
		return err
	}
	learn(r, &info.PrivateZoneID, zone.id)
	return nil
}

// ownZone reports whether a private zone is where the job's own would be.
func (p *Provider) ownZone(r *pipeline.Run, id string) bool {
	return same(id, p.idIn(r, typePrivateZone, lastName(id)))
}

// RemoveSubnetGroup takes the zone and its link away.
func (p *Provider) RemoveSubnetGroup(ctx context.Context, r *pipeline.Run) error {
	ctx = view(ctx, r)
	if err := p.unlocked(ctx, r); err != nil {
		return err
	}
	spec, err := r.Job.DatastoreSpec()
	if err != nil || r.Job.Mode == job.ModeAdopt {
		return err
	}
	name := datastoreZone(r.Job, spec.Engine)
	if err := r.Remove(ctx, p.zoneLink(r, name).resource()); err != nil {
		return err
	}
	return r.Remove(ctx, p.privateZone(r, name).resource())
}

// served reports whether the job has seen its datastore take connections: from then
// on nothing of it is changed any more, and drift is shown only.
func served(j *job.Job) bool { return j.Config.InfraConfig.Datastore.Host != "" }

// EnsureDatastore makes the server, or the cache, and what belongs to it.
func (p *Provider) EnsureDatastore(ctx context.Context, r *pipeline.Run) error {
	if r.Job.Mode == job.ModeAdopt {
		return nil
	}
	ctx = view(ctx, r)
	spec, err := r.Job.DatastoreSpec()
	if err != nil {
		return err
	}
	if spec.Engine.Cache() {
		return p.ensureCache(ctx, r, spec)
	}
	return p.ensureFlexible(ctx, r, spec)
}

// RemoveDatastore takes the final backup, lifts the job's own lock and deletes the
// server, or the cache. Whatever stands in the way is named before the first change.
func (p *Provider) RemoveDatastore(ctx context.Context, r *pipeline.Run) error {
	if r.Job.Mode == job.ModeAdopt {
		return nil
	}
	ctx = view(ctx, r)
	if err := p.unlocked(ctx, r); err != nil {
		return err
	}
	spec, err := r.Job.DatastoreSpec()
	if err != nil {
		return err
	}
	if spec.Engine.Cache() {
		return p.removeCache(ctx, r, spec)
	}
	return p.removeFlexible(ctx, r, spec)
}

// managementLock keeps a datastore from being deleted by anybody ("Lock your Azure
// resources to protect your infrastructure"): no field of its own does.
func (p *Provider) managementLock(r *pipeline.Run, on string) object[lock] {
	id := on + "/providers/" + typeLock + "/" + r.Job.ResourceName("keep", longestLock)
	return object[lock]{
		p: p, r: r, kind: kindLock, key: "datastore", id: id,
		body: func() any {
			return map[string]any{"properties": map[string]any{"level": lockLevel, "notes": r.Job.MarkText("datastore")}}
		},
		owner: func(_ context.Context, x resource[lock]) (string, error) {
			if by := job.ParseMarks(x.is.Properties.Notes)[job.MarkOwner]; by != "" {
				return by, nil
			}
			return pipeline.Unmarked, nil
		},
		state: func(resource[lock]) (pipeline.Status, string) { return pipeline.Ready, "" },
		see: func(_ context.Context, x resource[lock]) ([]pipeline.Aspect, error) {
			return watched(r, pipeline.Aspect{Name: "level", Wanted: lockLevel, Seen: x.is.Properties.Level}), nil
		},
	}
}

const lockLevel = "CanNotDelete"

// protect makes the lock, if it is asked for and the credentials may.
func (p *Provider) protect(ctx context.Context, r *pipeline.Run, spec job.DatastoreSpec, on string) error {
	if !spec.Protected() {
		return nil
	}
	info := &r.Job.Config.InfraConfig
	_, err := r.Ensure(ctx, p.managementLock(r, on).resource())
	if pipeline.Is(err, pipeline.Denied) {
		warning := fmt.Sprintf("%s has no lock against deletion: these credentials may not make one (Owner and User Access Administrator may): %v", lastName(on), err)
		if !hasPrefixed(info.Warnings, lastName(on)+" has no lock") {
			info.Warnings = append(info.Warnings, warning)
		}
		return r.Save(ctx)
	}
	if err != nil {
		return err
	}
	if r.Mode == pipeline.Apply {
		info.Datastore.DeletionProtection = true
	}
	return nil
}

func hasPrefixed(all []string, prefix string) bool {
	for _, s := range all {
		if strings.HasPrefix(s, prefix) {
			return true
		}
	}
	return false
}

// unprotect lifts the job's own lock, in a step of its own that the log shows.
func (p *Provider) unprotect(ctx context.Context, r *pipeline.Run, on string) error {
	info := &r.Job.Config.InfraConfig.Datastore
	if err := r.Remove(ctx, p.managementLock(r, on).resource()); err != nil {
		return err
	}
	if !info.DeletionProtection {
		return nil
	}
	info.DeletionProtection = false
	if err := r.Save(ctx); err != nil {
		return err
	}
	return r.Event(ctx, "note", "the lock that kept %s from being deleted was lifted, as the confirmed deletion of the job asks", lastName(on))
}

// CheckReach says whether the provisioner gets to a private datastore: nothing at
// Azure carries statements there but the network itself.
func (p *Provider) CheckReach(j *job.Job) cloud.Check {
	const check, field = "reach of the datastore", "config.spec.databases"
	spec, err := j.DatastoreSpec()
	switch {
	case err != nil:
		return fails(check, "config.spec", err.Error(), "Put the request right.")
	case j.ResourceType != job.Datastore:
		return fails(check, "resourceType", "a cache has no logical databases", "Ask for a connection instead.")
	case p.reach.Mode == job.ReachDirect:
		return passes(check, "%s, reached directly", spec.Engine.Title())
	}
	return fails(check, field, "the datastore is private and its roles are made by SQL, which only gets there from inside the network; the provisioner stands outside of it, and Azure has no way through its control plane",
		"Start the server with --reach direct where it runs in the network or has a VPN or peering into it; or leave databases out, and make them yourself from inside with the password in the vault.")
}
