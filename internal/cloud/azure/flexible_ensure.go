package azure

import (
	"context"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/postgresql/armpostgresqlflexibleservers/v5"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// serverDesign puts together what the server is made with, as stepValidate has
// resolved it.
func (p *Provider) serverDesign(r *pipeline.Run, spec job.DatastoreSpec) serverDesign {
	info := r.Job.Config.InfraConfig.Datastore
	f := flavourOf(spec.Engine)
	d := serverDesign{flavour: f, spec: spec, info: info, subnet: dataSubnet(r.Job), zone: info.PrivateZoneID}
	if d.zone == "" {
		d.zone = p.idIn(r, typePrivateZone, datastoreZone(r.Job, spec.Engine))
	}
	if d.info.StorageGiB == 0 {
		d.info.StorageGiB = spec.StorageGiB
	}
	return d
}

// ensureFlexible makes the server, who administers it, its parameters and the lock.
func (p *Provider) ensureFlexible(ctx context.Context, r *pipeline.Run, spec job.DatastoreSpec) error {
	d := p.serverDesign(r, spec)
	me := principal{}
	if r.Mode != pipeline.Plan {
		var err error
		if me, err = p.whoami(ctx); err != nil {
			return err
		}
	}
	d.tenant = me.tenant
	if err := p.prepareServer(ctx, r, spec, d.flavour); err != nil {
		return err
	}
	id, err := p.ensureNamed(ctx, r, func() pipeline.Resource { return p.server(r, d) })
	if err != nil {
		return err
	}
	if r.Mode == pipeline.Plan {
		id = p.serverID(r, d.flavour)
	}
	if err := p.ensureAdministrator(ctx, r, d, id, me); err != nil {
		return err
	}
	if err := p.protect(ctx, r, spec, id); err != nil {
		return err
	}
	switch {
	case r.Mode == pipeline.Plan:
		return nil
	case r.Mode == pipeline.Verify:
		return p.parameterDrift(ctx, r, d, id)
	case !served(r.Job):
		if err := p.configure(ctx, r, d, id); err != nil {
			return err
		}
	}
	return p.learnServer(ctx, r, d, id)
}

// prepareServer commits the name of the final backup before a server is made.
func (p *Provider) prepareServer(ctx context.Context, r *pipeline.Run, spec job.DatastoreSpec, f flavour) error {
	rec, known := r.Object(f.server, "server")
	if r.Mode != pipeline.Apply || known && rec.State == job.ObjectCreated {
		return nil
	}
	info := &r.Job.Config.InfraConfig.Datastore
	info.Host = "" // of one that is gone
	info.FinalSnapshot = ""
	if !spec.SkipFinalSnapshot {
		info.FinalSnapshot = r.Job.ResourceName("final", longestBackup)
	}
	return r.Save(ctx)
}

// ensureAdministrator lets a principal of the directory administer a PostgreSQL
// server ("Use Microsoft Entra ID for authentication with Azure Database for
// PostgreSQL"). MySQL takes one only with an identity that may read the directory.
func (p *Provider) ensureAdministrator(ctx context.Context, r *pipeline.Run, d serverDesign, server string, me principal) error {
	if d.engine != job.Postgres || served(r.Job) && r.Mode == pipeline.Apply {
		return nil
	}
	kinds := []armpostgresqlflexibleservers.PrincipalType{armpostgresqlflexibleservers.PrincipalType(me.kind)}
	if d.spec.EntraAdmin != "" && !same(d.spec.EntraAdmin, me.id) {
		// An object ID does not say whose it is; the service does, by refusing what it is not.
		kinds = []armpostgresqlflexibleservers.PrincipalType{armpostgresqlflexibleservers.PrincipalTypeGroup, armpostgresqlflexibleservers.PrincipalTypeUser, armpostgresqlflexibleservers.PrincipalTypeServicePrincipal}
	}
	var err error
	for _, kind := range kinds {
		if _, err = r.Ensure(ctx, p.administrator(r, d, server, me, kind).resource()); !pipeline.Is(err, pipeline.Invalid) {
			return err
		}
	}
	return err
}

func (p *Provider) administrator(r *pipeline.Run, d serverDesign, server string, me principal, kind armpostgresqlflexibleservers.PrincipalType) object[armpostgresqlflexibleservers.AdministratorMicrosoftEntra] {
	who, name := strings.ToLower(d.spec.EntraAdmin), d.spec.EntraAdmin
	if who == "" || who == me.id {
		who, name = me.id, me.name
	}
	return object[armpostgresqlflexibleservers.AdministratorMicrosoftEntra]{
		p: p, r: r, kind: kindEntraAdmin, key: "administrator", id: server + "/administrators/" + who,
		body: func() any {
			return armpostgresqlflexibleservers.AdministratorMicrosoftEntraAdd{Properties: &armpostgresqlflexibleservers.AdministratorMicrosoftEntraPropertiesForAdd{
				PrincipalName: &name, PrincipalType: &kind, TenantID: &me.tenant,
			}}
		},
		owner: func(ctx context.Context, _ resource[armpostgresqlflexibleservers.AdministratorMicrosoftEntra]) (string, error) {
			return p.ownerOf(ctx, r, server)
		},
		state: func(resource[armpostgresqlflexibleservers.AdministratorMicrosoftEntra]) (pipeline.Status, string) {
			return pipeline.Ready, ""
		},
	}
}

// ownerOf is the owner of what lies in a resource of the job and takes no tags:
// whoever owns that.
func (p *Provider) ownerOf(ctx context.Context, r *pipeline.Run, id string) (string, error) {
	x, err := read[struct{}](ctx, p, id)
	switch {
	case pipeline.Is(err, pipeline.NotFound):
		return r.Job.ID, nil // it is gone, and its name is the job's alone
	case err != nil:
		return "", err
	case x.Tags[job.MarkOwner] == "":
		return pipeline.Unmarked, nil
	}
	return x.Tags[job.MarkOwner], nil
}

// learnServer records what is known of a server once it takes connections. Its host
// comes last: with it the server counts as served.
func (p *Provider) learnServer(ctx context.Context, r *pipeline.Run, d serverDesign, id string) error {
	const learned = "the server is known"
	if served(r.Job) && r.Recall(learned) != nil {
		return nil
	}
	x, err := read[flexible](ctx, p, id)
	if err != nil {
		return pipeline.Unseen(err, "the server")
	}
	f := x.is.Properties
	if f.FQDN == "" {
		return pipeline.Wait(settling, "server %s to have a name", x.Name)
	}
	info := &r.Job.Config.InfraConfig.Datastore
	protected := info.DeletionProtection
	kept := *info
	*info = serverInfo(d.flavour, x)
	info.NameTries, info.SecretID, info.VaultID, info.SubnetGroup, info.SecurityGroupID = kept.NameTries, kept.SecretID, kept.VaultID, kept.SubnetGroup, kept.SecurityGroupID
	info.PrivateZoneID, info.FinalSnapshot, info.DeletionProtection, info.TLSRequired = kept.PrivateZoneID, kept.FinalSnapshot, protected, true
	info.MemoryGiB, info.VCPUs, info.Zones = kept.MemoryGiB, kept.VCPUs, kept.Zones
	r.Remember(learned, true)
	return r.Save(ctx)
}

// serverInfo is what a server says of itself.
func serverInfo(f flavour, x resource[flexible]) job.DatastoreInfo {
	s := x.is.Properties
	info := job.DatastoreInfo{
		Engine: f.engine, Name: x.Name, ID: x.ID, Version: shortVersion(f.engine, s.Version), Class: x.is.SKU.Name,
		StorageGiB: s.Storage.GiB, HighAvailability: s.HighAvailability.Mode != "" && s.HighAvailability.Mode != "Disabled",
		Public:              strings.EqualFold(s.Network.Public, "Enabled"),
		Encrypted:           true, // storage always is ("Data encryption in Azure Database for PostgreSQL")
		BackupRetentionDays: s.Backup.Days, AdminUser: s.AdministratorLogin, SubnetGroup: s.Network.Subnet,
	}
	info.Host, info.Port = hostPort(s.FQDN, f.engine.Port())
	for _, z := range []string{s.AvailabilityZone, s.HighAvailability.Standby} {
		if z != "" {
			info.Zones = append(info.Zones, z)
		}
	}
	return info
}
