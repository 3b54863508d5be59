package gcp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/api/sqladmin/v1"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// sqlServer is Cloud SQL.
func sqlServer() server {
	return server{
		object: func(p *Provider, r *pipeline.Run, spec job.DatastoreSpec) pipeline.Resource {
			return p.sqlInstance(r, p.sqlWant(r, spec))
		},
		handle: func(p *Provider, r *pipeline.Run) pipeline.Resource { return p.sqlInstance(r, nil) },
		finish: (*Provider).finishInstance, guard: (*Provider).guardInstance, cleanup: (*Provider).cleanupInstance, controls: (*Provider).sqlControls,
	}
}

// finishInstance makes the administrator and closes the account that comes with
// MySQL, then records what the instance is.
func (p *Provider) finishInstance(ctx context.Context, r *pipeline.Run, spec job.DatastoreSpec) error {
	d := &r.Job.Config.InfraConfig.Datastore
	if r.Mode == pipeline.Apply && d.Engine == job.MySQL && !made(r, kindSQLUser, adminKey) {
		if err := p.closeRoot(ctx, r); err != nil {
			return err
		}
	}
	if _, err := p.ensure(ctx, r, p.adminUser(r, spec.AdminUser)); err != nil {
		return err
	}
	if r.Mode != pipeline.Apply {
		return nil
	}
	x, err := p.readInstance(ctx, p.instanceID(r))
	if err != nil {
		return err
	}
	p.learnInstance(d, x)
	d.AdminUser = spec.AdminUser
	if len(spec.Access) > 0 {
		r.Note("Cloud SQL is reached from the whole network that it is connected to: the ranges of access add nothing to that")
	}
	return r.Save(ctx)
}

// adminUser is the administrator, with the password of the secret. Users take no
// marks: what is in the job's instance is the job's.
func (p *Provider) adminUser(r *pipeline.Run, user string) pipeline.Resource {
	instance := base(p.instanceID(r))
	id := p.instanceID(r) + "/users/" + user
	return managedObject{
		kind: kindSQLUser, key: adminKey, id: id, name: user, service: serviceSQL,
		read: func(ctx context.Context) (pipeline.Seen, error) {
			all, err := p.sqlUsers(ctx, instance)
			if err != nil {
				return pipeline.Seen{}, err
			}
			if !slices.ContainsFunc(all, func(u *sqladmin.User) bool { return u.Name == user }) {
				return pipeline.Seen{}, absent(serviceSQL, "users.list", "user "+user)
			}
			return pipeline.Seen{ID: id, Owner: r.Job.ID}, nil
		},
		create: func(ctx context.Context) (string, error) {
			version := r.Job.Config.InfraConfig.Datastore.SecretID
			if version == "" {
				return "", pipeline.Fatal("no-secret", "there is no secret with the administrator's password", "Retry: it is made again.")
			}
			password, err := p.readSecret(ctx, version)
			if err != nil {
				return "", fmt.Errorf("the administrator's password in %s: %w", version, err)
			}
			op, err := send(ctx, p.data.sql.Users.Insert(p.project, instance, &sqladmin.User{Name: user, Password: password, Host: anyHost(r), Type: "BUILT_IN"}))
			return p.sqlOperationName(op), err
		},
		remove: func(ctx context.Context) (string, error) {
			op, err := send(ctx, p.data.sql.Users.Delete(p.project, instance).Name(user).Host(anyHost(r)))
			return p.sqlOperationName(op), err
		},
	}.resource(p, r)
}

// anyHost is the host part of users: MySQL has one, PostgreSQL none.
func anyHost(r *pipeline.Run) string {
	if r.Job.Config.InfraConfig.Datastore.Engine == job.MySQL {
		return "%"
	}
	return ""
}

// sqlUsers are the users of an instance, read once a pass.
func (p *Provider) sqlUsers(ctx context.Context, instance string) ([]*sqladmin.User, error) {
	return lookup.Once(ctx, kindSQLUser+" of "+instance, func(ctx context.Context) ([]*sqladmin.User, error) {
		out, err := send(ctx, p.data.sql.Users.List(p.project, instance))
		if err != nil {
			return nil, err
		}
		return out.Items, nil
	})
}

// closeRoot removes the account that MySQL comes with, before the administrator is
// made: it lets in from everywhere. Its password is one that nobody knows, so where
// it cannot be removed it stays closed ("Error 1396").
func (p *Provider) closeRoot(ctx context.Context, r *pipeline.Run) error {
	instance := base(p.instanceID(r))
	key := p.instanceID(r) + "/users/root"
	if err := p.pending(ctx, r, key); err != nil && !pipeline.Is(err, pipeline.Invalid, pipeline.NotFound) {
		return err
	}
	all, err := p.sqlUsers(ctx, instance)
	if err != nil {
		return err
	}
	for _, u := range all {
		if u.Name != "root" || r.Recall("root of "+instance) == true {
			continue
		}
		op, err := send(ctx, p.data.sql.Users.Delete(p.project, instance).Name(u.Name).Host(anyHost(r)))
		switch {
		case pipeline.Is(err, pipeline.Busy):
			return inTurn(r, key, err)
		case pipeline.Is(err, pipeline.Invalid, pipeline.NotFound):
			r.Remember("root of "+instance, true)
			r.Note("MySQL's own root stays, with a password that nobody knows: Cloud SQL does not remove it (%v)", err)
			continue
		case err != nil:
			return err
		}
		awaitManaged(r, key, serviceSQL, p.sqlOperationName(op), verbDelete)
		if err := p.pending(ctx, r, key); err != nil {
			return err
		}
	}
	return nil
}

// guardInstance looks at what stands in the way of a removal, and lifts the
// protection that this job has set (failure kinds O4, O5, K7).
func (p *Provider) guardInstance(ctx context.Context, r *pipeline.Run, spec job.DatastoreSpec) error {
	id := p.instanceID(r)
	if err := p.pending(ctx, r, id+"#protection"); err != nil {
		return inTurn(r, id, err)
	}
	x, err := p.readInstance(ctx, id)
	if err != nil {
		return pipeline.Unless(err, pipeline.NotFound)
	}
	if owner, _ := labelMark(settings(x).UserLabels); owner != r.Job.ID || x.State == "PENDING_DELETE" {
		return nil // the removal says so
	}
	if err := heldBack(x, spec); err != nil {
		return err
	}
	if !settings(x).DeletionProtectionEnabled || x.State == "FAILED" { // of what failed, the removal says
		return nil
	}
	if x.State == "PENDING_CREATE" {
		return pipeline.Wait(15*time.Second, "instance %s to come up, so that it can be deleted", x.Name)
	}
	return p.liftProtection(ctx, r, id)
}

// heldBack names what somebody else has put in the way of an instance's removal.
func heldBack(x *sqladmin.DatabaseInstance, spec job.DatastoreSpec) error {
	switch {
	case len(x.ReplicaNames) > 0:
		return pipeline.Fatal("blocked", fmt.Sprintf("Cloud SQL instance %s has read replicas that somebody added: %s; nothing was deleted", x.Name, sorted(x.ReplicaNames)),
			fmt.Sprintf("Delete or promote them (gcloud sql instances promote-replica %s), then retry.", x.ReplicaNames[0]))
	case settings(x).DeletionProtectionEnabled && x.State != "FAILED" && !spec.Protected():
		return protected("Cloud SQL instance "+x.Name, fmt.Sprintf("run gcloud sql instances patch %s --no-deletion-protection", x.Name))
	}
	return nil
}

// instanceRemovable names what stands in the way of a datastore's teardown, before
// the first part of it, such as the secrets of its connections, is taken away.
func (p *Provider) instanceRemovable(ctx context.Context, r *pipeline.Run) error {
	spec, err := settledDatastore(r)
	if err != nil {
		return err
	}
	x, err := p.readInstance(ctx, p.instanceID(r))
	if err != nil {
		return pipeline.Unless(err, pipeline.NotFound)
	}
	if owner, _ := labelMark(settings(x).UserLabels); owner != r.Job.ID || x.State == "PENDING_DELETE" {
		return nil
	}
	return heldBack(x, spec)
}

// liftProtection is the one change of an instance that this package makes.
func (p *Provider) liftProtection(ctx context.Context, r *pipeline.Run, id string) error {
	op, err := send(ctx, p.data.sql.Instances.Patch(projectOf(id), base(id), &sqladmin.DatabaseInstance{
		Settings: &sqladmin.Settings{ForceSendFields: []string{"DeletionProtectionEnabled"}},
	}))
	if err != nil {
		return inTurn(r, id, err)
	}
	awaitManaged(r, id+"#protection", serviceSQL, p.sqlOperationName(op), "patch")
	if err := r.Event(ctx, "protection.lifted", "the deletion protection of Cloud SQL instance %s, which this job had set, is lifted", base(id)); err != nil {
		return err
	}
	return pipeline.Wait(2*time.Second, "the deletion protection of %s to be lifted", base(id))
}

// finalBackup reports whether a deletion is to take the final backup, as the spec
// says it now: that may have changed since the instance was made. The name that the
// backup is known again by is saved before it is asked for.
func finalBackup(ctx context.Context, r *pipeline.Run) (bool, error) {
	spec, err := r.Job.DatastoreSpec()
	if err != nil || spec.SkipFinalSnapshot || !r.Down {
		return false, err
	}
	d := &r.Job.Config.InfraConfig.Datastore
	if d.FinalSnapshot != "" {
		return true, nil
	}
	d.FinalSnapshot = finalName(*d)
	return true, r.Save(ctx)
}

// deleteInstance deletes the instance with its final backup; one that never came up
// has nothing to back up.
func (p *Provider) deleteInstance(ctx context.Context, r *pipeline.Run, id string) (string, error) {
	x, err := p.readInstance(ctx, id)
	if err != nil {
		return "", err
	}
	snapshot, err := finalBackup(ctx, r)
	if err != nil {
		return "", err
	}
	d := r.Job.Config.InfraConfig.Datastore
	call := p.data.sql.Instances.Delete(projectOf(id), base(id))
	switch {
	case snapshot && (x.State == "RUNNABLE" || wasUp(r)):
		call = call.EnableFinalBackup(true).FinalBackupDescription(d.FinalSnapshot).FinalBackupTtlDays(finalBackupDays)
	case snapshot:
		if err := r.Event(ctx, "snapshot.skipped", "no final backup of %s: it is %s and was never up", x.Name, x.State); err != nil {
			return "", err
		}
		call = call.EnableFinalBackup(false)
	default:
		call = call.EnableFinalBackup(false)
	}
	op, err := send(ctx, call)
	var refused *pipeline.CloudError
	if errors.As(err, &refused) && refused.Code == "deletionProtectionEnabled" && (x.State == "FAILED" || ownProtection(r)) {
		return "", p.liftProtection(ctx, r, id) // the job's own: it came up failed with it, or the look before was stale
	}
	return p.sqlOperationName(op), err
}

// cleanupInstance records the final backup as kept, and removes what was not to
// outlive the instance.
func (p *Provider) cleanupInstance(ctx context.Context, r *pipeline.Run, _ job.DatastoreSpec) error {
	d := r.Job.Config.InfraConfig.Datastore
	if err := r.Forget(ctx, kindSQLUser, adminKey, "went with its instance"); err != nil {
		return err
	}
	all, err := p.backupsOf(ctx, d.Name)
	if pipeline.Is(err, pipeline.Denied, pipeline.Invalid) {
		r.Note("backups were not looked at: %v", err)
		return nil
	}
	if err != nil {
		return err
	}
	for _, b := range all {
		if d.FinalSnapshot != "" && b.Description == d.FinalSnapshot {
			why := fmt.Sprintf("the final backup of %s, kept for %d days; restore it with gcloud sql backups restore %s --restore-instance=NEW_INSTANCE", d.Name, finalBackupDays, b.Name)
			if err := r.KeepOther(ctx, kindBackup, b.Name, d.FinalSnapshot, why); err != nil {
				return err
			}
			continue
		}
		if r.Kept(kindBackup, b.Name) || b.State == "DELETING" {
			continue
		}
		if b.Type == "ON_DEMAND" {
			if err := r.KeepOther(ctx, kindBackup, b.Name, base(b.Name), "a backup of "+d.Name+" that somebody took by hand"); err != nil {
				return err
			}
			continue
		}
		if _, err := send(ctx, p.data.sql.Backups.DeleteBackup(b.Name)); pipeline.Unless(err, pipeline.NotFound) != nil {
			return err
		}
		if err := r.Event(ctx, "backup.removed", "%s backup %s of %s is removed: it was not to outlive the instance", strings.ToLower(b.Type), base(b.Name), d.Name); err != nil {
			return err
		}
	}
	return nil
}

// backups are those that fit a filter, of instances that are there or gone.
func (p *Provider) backups(ctx context.Context, filter string) ([]*sqladmin.Backup, error) {
	return lookup.Pages(ctx, func(ctx context.Context, token *string) ([]*sqladmin.Backup, *string, error) {
		out, err := send(ctx, p.data.sql.Backups.ListBackups("projects/"+p.project).Filter(filter).PageToken(text(token)))
		if err != nil {
			return nil, nil, err
		}
		return out.Backups, &out.NextPageToken, nil
	})
}

// backupsOf are the backups of an instance by its name, which no other ever had: it
// ends in a hash of the job.
func (p *Provider) backupsOf(ctx context.Context, instance string) ([]*sqladmin.Backup, error) {
	all, err := p.backups(ctx, "instance:"+instance)
	return slices.DeleteFunc(all, func(b *sqladmin.Backup) bool { return base(b.Instance) != instance }), err
}

// ownBackups is the kind for a scan: a backup keeps the labels of its instance.
func (p *Provider) ownBackups() lookup.Kind[*sqladmin.Backup] {
	mark := func(b *sqladmin.Backup) (string, string) {
		if b.InstanceSettings == nil {
			return "", ""
		}
		return labelMark(settings(b.InstanceSettings).UserLabels)
	}
	return lookup.Kind[*sqladmin.Backup]{
		Name: kindBackup, Mark: mark, ID: func(b *sqladmin.Backup) string { return b.Name },
		List: func(ctx context.Context, owner string) ([]*sqladmin.Backup, error) {
			all, err := p.backups(ctx, "")
			return slices.DeleteFunc(all, func(b *sqladmin.Backup) bool {
				who, _ := mark(b)
				return who != owner || b.State == "DELETING" || b.InstanceDeletionTime == "" // else it goes with its instance
			}), err
		},
	}
}

// ownProtection reports whether the job has asked for deletion protection itself.
func ownProtection(r *pipeline.Run) bool {
	spec, err := r.Job.DatastoreSpec()
	return err == nil && spec.Protected()
}
