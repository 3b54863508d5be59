package azure

import (
	"context"
	"errors"
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
		return pipeline.Unless(unlessDenied(r, "read replicas of server "+lastName(id), err), pipeline.NotFound, pipeline.Invalid)
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

// finalBackup takes a backup on demand, if the spec asks for one by now, and records
// what is kept, for how long and how it is restored. A server that was never handed
// over has nothing to keep.
func (p *Provider) finalBackup(ctx context.Context, r *pipeline.Run, d serverDesign, id string) error {
	if d.spec.SkipFinalSnapshot || r.Mode != pipeline.Apply || r.Kept(d.backup, finalKey) {
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
	ready, err := p.backedUp(ctx, r, d, x)
	if err != nil || !ready {
		return err
	}
	name, err := finalName(ctx, r)
	if err != nil {
		return err
	}
	o := object[backup]{
		p: p, r: r, kind: d.backup, key: finalKey, id: id + "/backups/" + name,
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
	if _, err = r.Ensure(ctx, o); err != nil {
		return p.noBackup(ctx, r, d, x, err)
	}
	return r.Keep(ctx, d.backup, finalKey, p.restoring(d, id))
}

// finalKey is the final backup in the inventory.
const finalKey = "final"

// finalName is what the final backup is called. It is saved before one is taken: the
// server may have been made without the wish for one.
func finalName(ctx context.Context, r *pipeline.Run) (string, error) {
	info := &r.Job.Config.InfraConfig.Datastore
	if info.FinalSnapshot != "" {
		return info.FinalSnapshot, nil
	}
	info.FinalSnapshot = r.Job.ResourceName("final", longestBackup)
	return info.FinalSnapshot, r.Save(ctx)
}

// passing are the states that a server leaves by itself.
var passing = []string{"", "Provisioning", "Updating", "Starting", "Restarting", "Stopping"}

// backedUp waits for a server that is about to settle, and reports whether a backup
// can be taken of it. Of one that is stopped or that cannot reach its key the service
// takes none: its automatic backups hold everything up to there.
func (p *Provider) backedUp(ctx context.Context, r *pipeline.Run, d serverDesign, x resource[flexible]) (bool, error) {
	const settle = "the server to settle before its final backup"
	state := x.is.Properties.State
	switch {
	case state == "Ready":
		r.WaitOver(settle)
		return true, nil
	case !slices.Contains(passing, state):
		return false, p.keepAutomatic(ctx, r, d, x.ID, "no final backup could be taken, since the server is "+state)
	case r.WaitedFor(settle) <= serverPatience:
		return false, pipeline.Wait(settling*2, "server %s to settle (%s), so that its final backup can be taken", x.Name, state)
	}
	r.WaitOver(settle)
	return false, pipeline.Fatal("timed-out", fmt.Sprintf("nothing was deleted: no final backup can be taken of server %s, which has been %s for %s", x.Name, state, serverPatience),
		"Look at it in the portal, then retry: that goes on waiting. "+goWithout).On(skipField)
}

const (
	skipField = "config.spec.skipFinalSnapshot"
	goWithout = "If its data may go, PATCH config.spec.skipFinalSnapshot to true, then retry."
)

// noBackup is what a refused final backup means: only where the service has none on
// demand, as for the Burstable tier ("Backup and restore"), are the automatic ones
// what is kept. Otherwise the server stays until somebody decides.
func (p *Provider) noBackup(ctx context.Context, r *pipeline.Run, d serverDesign, x resource[flexible], err error) error {
	stays := fmt.Sprintf("nothing was deleted, since the final backup of server %s was refused: %v", x.Name, err)
	switch {
	case pipeline.Is(err, pipeline.Denied):
		right := d.typ + "/backups/write"
		return pipeline.Fatal("permission-denied", stays, fmt.Sprintf("Grant the provisioner %s on %s (Contributor has it), then retry. %s", right, x.ID, goWithout)).On(skipField).From(err)
	case pipeline.Is(err, pipeline.Quota):
		return pipeline.Fatal("too-many-backups", stays, fmt.Sprintf("Delete a backup that was taken by hand (az %s flexible-server backup list), then retry. %s", d.az, goWithout)).On(skipField).From(err)
	case noneOnDemand(x, err):
		return p.keepAutomatic(ctx, r, d, x.ID, "the cloud takes no final backup of it: "+err.Error())
	case pipeline.Is(err, pipeline.Invalid):
		return pipeline.Fatal("backup-refused", stays, "Put right what it names, then retry. "+goWithout).On(skipField).From(err)
	}
	return err
}

// noneOnDemand reports whether a refusal means that the service has no backup on
// demand for servers of this kind.
func noneOnDemand(x resource[flexible], err error) bool {
	var refused *pipeline.CloudError
	if !errors.As(err, &refused) || refused.Class != pipeline.Invalid && refused.Class != pipeline.Unknown {
		return false
	}
	return x.is.SKU.Tier == "Burstable" || strings.Contains(strings.ToLower(refused.Message), "not supported")
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
