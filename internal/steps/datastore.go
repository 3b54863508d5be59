package steps

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// datastore is the pipeline of both families, datastores and caches.
func (s Set) datastore() pipeline.Pipeline {
	return pipeline.Pipeline{
		{Name: Validate, Title: "Check account, versions, classes, names and reach", Ensure: s.validate, Remove: s.proveGone},
		{Name: CreateNetwork, Title: "Network", Ensure: owned(s.on(cloud.Provider.EnsureNetwork)), Remove: owned(s.on(cloud.Provider.RemoveNetwork))},
		{Name: CreateIAM, Title: "Identity and the administrator's secret", Ensure: owned(s.on(cloud.Provider.EnsureIdentity)), Remove: owned(s.on(cloud.Provider.RemoveIdentity))},
		{Name: CreateSubnetGroup, Title: "Where it sits, and who may connect", Ensure: owned(s.onDatastores(cloud.DatastoreFamily.EnsureSubnetGroup)), Remove: owned(s.onDatastores(cloud.DatastoreFamily.RemoveSubnetGroup))},
		{Name: CreateDatastore, Title: "Datastore", Ensure: s.ensureDatastore, Remove: owned(s.onDatastores(cloud.DatastoreFamily.RemoveDatastore))},
		{Name: CreateDatabases, Title: "Databases and connections", Ensure: owned(s.syncDatabases), Remove: owned(s.removeConnections)},
		{Name: Finalize, Title: "Read back and report", Ensure: s.finalize},
	}
}

// databaseSteps are what the operation on logical databases runs, on a datastore
// that is finished.
func (s Set) databaseSteps() pipeline.Pipeline {
	return pipeline.Pipeline{{Name: CreateDatabases, Title: "Databases and connections", Ensure: owned(s.syncDatabases)}}
}

// datastores is the part of the job's cloud that makes datastores.
func (s Set) datastores(p job.Provider) (cloud.DatastoreFamily, error) {
	c, ok := s.Cloud.(cloud.DatastoreFamily)
	if !ok {
		return nil, pipeline.Fatal("not-offered", fmt.Sprintf("datastores are not offered at %s", p), "Make the datastore at another cloud.").On("provider")
	}
	return c, nil
}

// onDatastores is a step that is all the cloud's own, as on.
func (s Set) onDatastores(method func(cloud.DatastoreFamily, context.Context, *pipeline.Run) error) pipeline.Func {
	return func(ctx context.Context, r *pipeline.Run) error {
		c, err := s.datastores(r.Job.Provider)
		if err != nil {
			return err
		}
		return method(c, ctx, r)
	}
}

// ensureDatastore makes the datastore, or reads the one that is adopted and, where
// it is asked for, says which size would do.
func (s Set) ensureDatastore(ctx context.Context, r *pipeline.Run) error {
	if r.Job.Owns() {
		return s.onDatastores(cloud.DatastoreFamily.EnsureDatastore)(ctx, r)
	}
	if r.Mode == pipeline.Plan {
		return nil
	}
	c, err := s.datastores(r.Job.Provider)
	if err != nil {
		return err
	}
	if err := c.AdoptDatastore(ctx, r); err != nil {
		return err
	}
	infra := &r.Job.Config.InfraConfig
	for _, note := range infra.Datastore.RiskNotes {
		if !slices.Contains(infra.Warnings, note) {
			infra.Warnings = append(infra.Warnings, note)
		}
	}
	spec, err := r.Job.DatastoreSpec()
	if err != nil {
		return err
	}
	if spec.MonitorOnly {
		if infra.Datastore.Recommendations, err = c.Recommend(ctx, r); err != nil {
			return err
		}
	}
	return r.Save(ctx)
}

// datastoreOutputs is what a finished datastore or cache job tells its user. It
// says where the administrator's password is, never what it is.
func datastoreOutputs(j *job.Job, set func(k, v string)) {
	d := j.Config.InfraConfig.Datastore
	set("datastore", d.Name)
	set("engine", strings.TrimSpace(string(d.Engine)+" "+d.Version))
	set("class", d.Class)
	if d.Host != "" {
		set("endpoint", net.JoinHostPort(d.Host, strconv.Itoa(d.Port)))
	}
	if d.ReaderHost != "" {
		set("readerEndpoint", net.JoinHostPort(d.ReaderHost, strconv.Itoa(d.Port)))
	}
	set("adminUser", d.AdminUser)
	set("adminSecret", d.SecretID)
	set("finalSnapshot", d.FinalSnapshot)
	for _, r := range d.Recommendations {
		if r.Advice != "keep" {
			set("recommendation."+r.What, r.From+" to "+r.To+": "+r.Reason)
		}
	}
}
