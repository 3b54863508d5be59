package azure

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// keptDays is how long the backups of a deleted server stay ("Restore a dropped
// Azure Database for PostgreSQL flexible server").
const keptDays = 5

// removeFlexible takes the final backup, lifts the lock and deletes the server,
// which takes everything in it along.
func (p *Provider) removeFlexible(ctx context.Context, r *pipeline.Run, spec job.DatastoreSpec) error {
	d := p.serverDesign(r, spec)
	id := p.serverID(r, d.flavour)
	if err := p.noReplicas(ctx, r, id); err != nil {
		return err
	}
	if err := p.finalBackup(ctx, r, d, id); err != nil {
		return err
	}
	if err := p.unprotect(ctx, r, id); err != nil {
		return err
	}
	if err := r.Remove(ctx, p.server(r, d)); err != nil {
		return err
	}
	return r.Forget(ctx, kindEntraAdmin, "administrator", "went with its server")
}

// noReplicas names the read replicas that somebody added: they have to go before
// what they replicate (failure kind O4).
func (p *Provider) noReplicas(ctx context.Context, r *pipeline.Run, id string) error {
	const asked = "no replica in the way"
	if r.Mode == pipeline.Plan || r.Recall(asked) != nil {
		return nil
	}
	all, err := list[meta](ctx, p, id+"/replicas")
	if err != nil {
		return pipeline.Unless(err, pipeline.NotFound, pipeline.Denied, pipeline.Invalid)
	}
	var names []string
	for _, x := range all {
		if !same(x.ID, id) {
			names = append(names, x.ID)
		}
	}
	if len(names) > 0 {
		slices.Sort(names)
		return pipeline.Fatal("blocked", fmt.Sprintf("nothing was deleted, since server %s has read replicas that this job did not make: %s", lastName(id), strings.Join(names, ", ")),
			"Promote or delete them, then retry.")
	}
	r.Remember(asked, true)
	return nil
}

// A backup is one of a flexible server.
type backup struct {
	Properties struct {
		Completed *time.Time `json:"completedTime"`
	} `json:"properties"`
}

// finalBackup takes a backup on demand and records what is kept, for how long and
// how it is restored. A server that was never handed over has nothing to keep.
func (p *Provider) finalBackup(ctx context.Context, r *pipeline.Run, d serverDesign, id string) error {
	const key = "final"
	name := r.Job.Config.InfraConfig.Datastore.FinalSnapshot
	if name == "" || d.spec.SkipFinalSnapshot || r.Mode != pipeline.Apply || r.Kept(d.backup, key) {
		return nil
	}
	x, err := read[flexible](ctx, p, id)
	switch {
	case pipeline.Is(err, pipeline.NotFound):
		return nil
	case err != nil:
		return err
	case !served(r.Job):
		r.Note("no final backup: the server never came up")
		return nil
	}
	if state := x.is.Properties.State; state != "Ready" {
		return p.keepAutomatic(ctx, r, d, id, "no final backup could be taken, since the server is "+state)
	}
	o := object[backup]{
		p: p, r: r, kind: d.backup, key: key, id: id + "/backups/" + name,
		body:  func() any { return map[string]any{} },
		owner: func(ctx context.Context, _ resource[backup]) (string, error) { return p.ownerOf(ctx, r, id) },
		state: func(x resource[backup]) (pipeline.Status, string) {
			if x.is.Properties.Completed == nil {
				return pipeline.Pending, "being taken"
			}
			return pipeline.Ready, "completed"
		},
	}.resource()
	o.Patience = serverPatience
	_, err = r.Ensure(ctx, o)
	switch {
	case pipeline.Is(err, pipeline.Invalid, pipeline.Denied, pipeline.Quota):
		return p.keepAutomatic(ctx, r, d, id, "the cloud takes no final backup of it: "+err.Error())
	case err != nil:
		return err
	}
	return r.Keep(ctx, d.backup, key, p.restoring(d, id))
}

// keepAutomatic records that the automatic backups are all that is kept.
func (p *Provider) keepAutomatic(ctx context.Context, r *pipeline.Run, d serverDesign, id, why string) error {
	return r.KeepOther(ctx, d.backup, id+"/backups", "automatic backups of "+lastName(id), why+"; "+p.restoring(d, id))
}

// restoring says how long backups outlive their server, and how to restore one.
func (p *Provider) restoring(d serverDesign, id string) string {
	group, name := segment(id, "resourceGroups"), lastName(id)
	how := fmt.Sprintf("az postgres flexible-server revive-dropped --resource-group %s --location %s --name NEW-NAME --source-server %s", group, regionName(p.region), id)
	if d.engine == job.MySQL {
		how = fmt.Sprintf("az mysql flexible-server restore --resource-group %s --name NEW-NAME --source-server %s --restore-time A-TIME-BEFORE-THE-DELETION", group, id)
	}
	return fmt.Sprintf("Azure keeps the backups of a deleted server for %d days and no longer; until then %s can be restored with: %s", keptDays, name, how)
}
