package gcp

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/api/sqladmin/v1"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// datastoreControls reads the hardening controls of a datastore or cache back.
func (p *Provider) datastoreControls(ctx context.Context, r *pipeline.Run) ([]job.Control, error) {
	spec, err := settledDatastore(r)
	if err != nil || !r.Job.Owns() {
		return nil, err
	}
	return serverFor(engine(r, spec)).controls(p, ctx, r, spec)
}

// sqlControls is the report on an instance: every row that is on by default, or
// that the spec asks for.
func (p *Provider) sqlControls(ctx context.Context, r *pipeline.Run, spec job.DatastoreSpec) ([]job.Control, error) {
	e := engine(r, spec)
	rows := settingsFor(e)
	x, err := p.readInstance(ctx, p.instanceID(r))
	if pipeline.Is(err, pipeline.Invalid, pipeline.Denied, pipeline.NotFound) {
		var out []job.Control
		for _, s := range rows {
			if s.id != "" && (!s.asked || spec.HA()) {
				out = append(out, unread(s.id, s.name, err))
			}
		}
		return out, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read back the instance: %w", err)
	}
	c := controls{p: p, r: r, infra: &r.Job.Config.InfraConfig}
	want := p.sqlWant(r, spec)
	// Protection that the spec leaves off is still a control: it is waived by name.
	want.Settings.DeletionProtectionEnabled = true
	for _, s := range rows {
		if s.id == "" || s.asked && !spec.HA() {
			continue
		}
		wanted, seen := s.text(want), s.text(x)
		if s.id == "SQL-05" {
			c.add(s.id, s.name, "7 kept or more", seen, keptBackups(seen) >= 7, s.source)
			continue
		}
		c.add(s.id, s.name, wanted, seen, seen == wanted || s.fine != nil && s.fine(wanted, seen), s.source)
	}
	if e == job.MySQL {
		c.rows = append(c.rows, p.rootControl(ctx, x))
	}
	return c.rows, nil
}

// rootControl says whether MySQL's own account is closed.
func (p *Provider) rootControl(ctx context.Context, x *sqladmin.DatabaseInstance) job.Control {
	const id, title = "SQL-12", "administrator that comes with MySQL"
	users, err := p.sqlUsers(ctx, x.Name)
	if err != nil {
		return unread(id, title, err)
	}
	row := job.Control{ID: id, Name: title, Wanted: "none", Seen: "none", Met: true, Source: "CKV2_GCP_7, CIS GCP 6.1.1"}
	if slices.ContainsFunc(users, func(u *sqladmin.User) bool { return u.Name == "root" }) {
		row.Seen, row.Met, row.Unchecked = "root is there: whether somebody gave it a password that is known cannot be read", false, true
	}
	return row
}

func unread(id, title string, err error) job.Control {
	return job.Control{ID: id, Name: title, Wanted: "read back", Seen: "not read: " + err.Error(), Unchecked: true}
}
