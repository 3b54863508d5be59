package gcp

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/api/sqladmin/v1"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

const (
	kindSQL     = "sqladmin:instance"
	kindSQLUser = "sqladmin:user"
	kindBackup  = "sqladmin:backup"

	datastoreKey = "datastore"

	// sqlPatience is how long an instance may take to come up: with a standby,
	// pgaudit and a fresh private connection half an hour is common.
	sqlPatience = time.Hour

	// finalBackupDays is for how long the final backup is kept: the longest that
	// Cloud SQL does ("Final backups").
	finalBackupDays = 365
)

// instanceID is the relative resource name of the job's instance.
func (p *Provider) instanceID(r *pipeline.Run) string {
	return "projects/" + p.project + "/instances/" + r.Job.Config.InfraConfig.Datastore.Name
}

// readInstance is an instance, read once a pass.
func (p *Provider) readInstance(ctx context.Context, id string) (*sqladmin.DatabaseInstance, error) {
	return lookup.Once(ctx, kindSQL+" "+id, func(ctx context.Context) (*sqladmin.DatabaseInstance, error) {
		return send(ctx, p.data.sql.Instances.Get(projectOf(id), base(id)))
	})
}

// sqlInstances are the instances of the project, in every region.
func (p *Provider) sqlInstances(ctx context.Context, filter string) ([]*sqladmin.DatabaseInstance, error) {
	return lookup.Pages(ctx, func(ctx context.Context, token *string) ([]*sqladmin.DatabaseInstance, *string, error) {
		out, err := send(ctx, p.data.sql.Instances.List(p.project).Filter(filter).PageToken(text(token)))
		if err != nil {
			return nil, nil, err
		}
		return out.Items, &out.NextPageToken, nil
	})
}

// ownInstances is the kind for a scan.
func (p *Provider) ownInstances() lookup.Kind[*sqladmin.DatabaseInstance] {
	mark := func(x *sqladmin.DatabaseInstance) (string, string) { return labelMark(settings(x).UserLabels) }
	return lookup.Kind[*sqladmin.DatabaseInstance]{
		Name: kindSQL, Mark: mark,
		ID:  func(x *sqladmin.DatabaseInstance) string { return "projects/" + p.project + "/instances/" + x.Name },
		One: p.readInstance,
		List: func(ctx context.Context, owner string) ([]*sqladmin.DatabaseInstance, error) {
			all, err := p.sqlInstances(ctx, "settings.userLabels."+labelOwner+":"+owner)
			return slices.DeleteFunc(all, func(x *sqladmin.DatabaseInstance) bool {
				who, _ := mark(x)
				return who != owner || x.State == "PENDING_DELETE" || x.Region != p.region
			}), err
		},
	}
}

// sqlInstance is the job's instance. want is nil for a removal, which knows only its
// name.
func (p *Provider) sqlInstance(r *pipeline.Run, want *sqladmin.DatabaseInstance) pipeline.Resource {
	id := p.instanceID(r)
	return managedObject{
		kind: kindSQL, key: datastoreKey, id: id, name: base(id), args: want, patience: sqlPatience, service: serviceSQL,
		read: func(ctx context.Context) (pipeline.Seen, error) {
			got, err := p.readInstance(ctx, id)
			if err != nil {
				return pipeline.Seen{}, err
			}
			owner, _ := labelMark(settings(got).UserLabels)
			s := sqlSeen(got)
			if s.Status == pipeline.Broken && wasUp(r) {
				s.Status = pipeline.Pending // there is data in it: it is for a person to look at, and never replaced
			}
			s.ID, s.Owner = id, cmp.Or(owner, pipeline.Unmarked)
			if want != nil && r.Mode == pipeline.Verify {
				s.Aspects = sqlAspects(r, want, got)
			}
			return s, nil
		},
		create: func(ctx context.Context) (string, error) {
			sent := *want
			if r.Job.Config.InfraConfig.Datastore.Engine == job.MySQL {
				sent.RootPassword = job.NewPassword() // root is there at once, and nobody ever knows it
			}
			op, err := send(ctx, p.data.sql.Instances.Insert(p.project, &sent))
			return p.sqlOperationName(op), err
		},
		remove: func(ctx context.Context) (string, error) { return p.deleteInstance(ctx, r, id) },
	}.resource(p, r)
}

// sqlSeen is an instance's status ("SqlInstanceState"). One is suspended for want of
// payment or of its key, and comes back.
func sqlSeen(x *sqladmin.DatabaseInstance) pipeline.Seen {
	s := pipeline.Seen{Reason: strings.Join(append([]string{x.State}, x.SuspensionReason...), ", ")}
	switch x.State {
	case "RUNNABLE":
	case "FAILED":
		s.Status = pipeline.Broken
	default: // PENDING_CREATE, PENDING_DELETE, MAINTENANCE, SUSPENDED
		s.Status = pipeline.Pending
	}
	return s
}

// wasUp reports whether the job's instance has been in use: what fails after that
// holds data.
func wasUp(r *pipeline.Run) bool { return r.Job.Config.InfraConfig.Datastore.Host != "" }

// sqlAspects are what a verify compares. None of them is ever put back: an instance
// is its customer's, and what differs may be on purpose.
func sqlAspects(r *pipeline.Run, want, got *sqladmin.DatabaseInstance) []pipeline.Aspect {
	var out []pipeline.Aspect
	for _, s := range settingsFor(r.Job.Config.InfraConfig.Datastore.Engine) {
		a := pipeline.Aspect{Name: s.name, Wanted: s.text(want), Seen: s.text(got)}
		if s.id == "SQL-29" && s.fine(a.Wanted, a.Seen) {
			a.Seen = a.Wanted // a minor version of its own
		}
		out = append(out, a)
	}
	if disk := settings(got).DataDiskSizeGb; disk < settings(want).DataDiskSizeGb {
		out = append(out, pipeline.Aspect{Name: "storage", Wanted: fmt.Sprintf("%d GiB", settings(want).DataDiskSizeGb), Seen: fmt.Sprintf("%d GiB", disk)})
	}
	return out
}

// sqlWant is the instance as the create says it: private, encrypted in transit,
// backed up and protected, with every flag from the start. The edition is always
// said: left out, newer PostgreSQL means Enterprise Plus, which takes other classes.
func (p *Provider) sqlWant(r *pipeline.Run, spec job.DatastoreSpec) *sqladmin.DatabaseInstance {
	infra := &r.Job.Config.InfraConfig
	d := infra.Datastore
	grow := true
	day, hour := window(spec.MaintenanceWindow)
	s := &sqladmin.Settings{
		Tier: d.Class, Edition: "ENTERPRISE", ActivationPolicy: "ALWAYS", AvailabilityType: "ZONAL",
		DataDiskType: "PD_SSD", DataDiskSizeGb: int64(d.StorageGiB), StorageAutoResize: &grow, StorageAutoResizeLimit: int64(spec.StorageMax),
		DeletionProtectionEnabled: spec.Protected(), DataApiAccess: "ALLOW_DATA_API",
		IpConfiguration: &sqladmin.IpConfiguration{
			PrivateNetwork: rel(infra.NetworkID), AllocatedIpRange: d.SubnetGroup, SslMode: "ENCRYPTED_ONLY", ServerCaMode: "GOOGLE_MANAGED_INTERNAL_CA",
			ForceSendFields: []string{"Ipv4Enabled"},
		},
		BackupConfiguration: &sqladmin.BackupConfiguration{
			Enabled: true, StartTime: fmt.Sprintf("%02d:00", (hour+20)%24),
			BackupRetentionSettings:     &sqladmin.BackupRetentionSettings{RetainedBackups: int64(spec.BackupRetentionDays), RetentionUnit: "COUNT"},
			TransactionLogRetentionDays: int64(min(spec.BackupRetentionDays, 7)), // the most that the edition keeps
		},
		FinalBackupConfig: &sqladmin.FinalBackupConfig{Enabled: true, RetentionDays: finalBackupDays},
		MaintenanceWindow: &sqladmin.MaintenanceWindow{Day: int64(day), Hour: int64(hour), UpdateTrack: "stable", ForceSendFields: []string{"Hour"}},
		InsightsConfig:    &sqladmin.InsightsConfig{QueryInsightsEnabled: true},
		UserLabels:        labelsFor(r.Job, datastoreKey), DatabaseFlags: sqlFlags(d.Engine),
		ForceSendFields: []string{"DeletionProtectionEnabled"},
	}
	if spec.HA() {
		s.AvailabilityType = "REGIONAL"
	}
	if d.Engine == job.MySQL {
		s.BackupConfiguration.BinaryLogEnabled = true
	} else {
		s.BackupConfiguration.PointInTimeRecoveryEnabled = true
	}
	return &sqladmin.DatabaseInstance{
		Name: d.Name, Region: p.region, DatabaseVersion: databaseVersion(d.Engine, d.Version), InstanceType: "CLOUD_SQL_INSTANCE", Settings: s,
	}
}

// window is the day, Monday 1 to Sunday 7, and the hour of a window such as sun:03:00.
func window(text string) (day, hour int) {
	name, at, _ := strings.Cut(text, ":")
	day = slices.Index([]string{"mon", "tue", "wed", "thu", "fri", "sat", "sun"}, name) + 1
	hour, err := strconv.Atoi(at[:min(2, len(at))])
	if err != nil || day == 0 {
		return 7, 3
	}
	return day, hour
}

// databaseVersion is an engine's version as Cloud SQL writes it, such as MYSQL_8_4.
func databaseVersion(e job.Engine, version string) string {
	return strings.ToUpper(string(e)) + "_" + strings.ReplaceAll(version, ".", "_")
}

// engineOf is what Cloud SQL's name of a version means; "" for SQL Server.
func engineOf(databaseVersion string) (job.Engine, string) {
	name, version, _ := strings.Cut(databaseVersion, "_")
	switch e := job.Engine(strings.ToLower(name)); e {
	case job.Postgres, job.MySQL:
		return e, strings.ReplaceAll(version, "_", ".")
	}
	return "", databaseVersion
}

// learnInstance records what the instance is.
func (p *Provider) learnInstance(d *job.DatastoreInfo, x *sqladmin.DatabaseInstance) {
	s := settings(x)
	d.Engine, d.Version = engineOf(x.DatabaseVersion)
	d.Name, d.ID, d.Class = x.Name, "projects/"+p.project+"/instances/"+x.Name, s.Tier
	d.Host, d.Port = "", d.Engine.Port()
	for _, a := range x.IpAddresses {
		if a.Type == "PRIVATE" || d.Host == "" && a.Type == "PRIMARY" {
			d.Host = a.IpAddress
		}
	}
	if host, port, err := net.SplitHostPort(d.Host); err == nil {
		if n, err := strconv.Atoi(port); err == nil {
			d.Host, d.Port = host, n
		}
	}
	d.ServerName = or(x.DnsName, p.project+":"+x.Name)
	if x.ServerCaCert != nil {
		d.CACert = x.ServerCaCert.Cert
	}
	if vcpus, memory := tierSize(s.Tier, nil); vcpus > 0 {
		d.VCPUs, d.MemoryGiB = vcpus, memory
	}
	d.StorageGiB = int(s.DataDiskSizeGb)
	d.Zones = slices.DeleteFunc([]string{x.GceZone, x.SecondaryGceZone}, func(z string) bool { return z == "" })
	d.HighAvailability = s.AvailabilityType == "REGIONAL"
	d.Public, d.Encrypted = ipConfig(x).Ipv4Enabled, true // Cloud SQL encrypts every disk
	d.TLSRequired = slices.Contains([]string{"ENCRYPTED_ONLY", "TRUSTED_CLIENT_CERTIFICATE_REQUIRED"}, ipConfig(x).SslMode)
	d.BackupRetentionDays = 0
	if b := backups(x); b.Enabled {
		d.BackupRetentionDays = 7
		if b.BackupRetentionSettings != nil && b.BackupRetentionSettings.RetainedBackups > 0 {
			d.BackupRetentionDays = int(b.BackupRetentionSettings.RetainedBackups)
		}
	}
	d.DeletionProtection = s.DeletionProtectionEnabled
}
