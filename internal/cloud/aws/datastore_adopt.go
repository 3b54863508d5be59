package aws

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	rdstypes "github.com/aws/aws-sdk-go-v2/service/rds/types"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

const adoptField = "config.spec.adopt"

// An adopted is a datastore or cache that somebody else runs: its record, where it is,
// and what it falls short of.
type adopted struct {
	info    job.DatastoreInfo
	network string
	subnets []string
	groups  []string
	status  string
	usable  bool
	nodes   []string // caches: the clusters that have metrics
}

// findAdopted finds what an adopt job points at: by ARN, name or endpoint.
func (p *Provider) findAdopted(ctx context.Context, j *job.Job) (adopted, error) {
	spec, err := j.DatastoreSpec()
	if err != nil {
		return adopted{}, err
	}
	if spec.Adopt == nil {
		return adopted{}, pipeline.Fatal("nothing-to-adopt", "the request does not say what to adopt", "Give one of ids, name and endpoint.").On(adoptField)
	}
	name, field := spec.Adopt.Name, adoptField+".name"
	if len(spec.Adopt.IDs) > 0 {
		name, field = spec.Adopt.IDs[0], adoptField+".ids"
	}
	if region := arnRegion(name); region != "" && region != p.region {
		return adopted{}, pipeline.Fatal("other-region", fmt.Sprintf("%s is in %s, and this job is in %s", name, region, p.region), "Make the job in "+region+".").On(field)
	}
	if spec.Adopt.Endpoint != "" {
		name, field = "", adoptField+".endpoint"
	}
	look := p.adoptedInstance
	if isCache(j) {
		look = p.adoptedCache
	}
	a, err := look(ctx, arnName(name), spec.Adopt.Endpoint)
	if pipeline.Is(err, pipeline.NotFound) {
		what := or(name, spec.Adopt.Endpoint)
		return a, pipeline.Fatal("datastore-not-found", fmt.Sprintf("there is no %s %s in %s: %v", strings.ToLower(string(j.ResourceType)), what, p.region, plain(err)), "Name one of this account and region.").On(field).From(err)
	}
	if err != nil {
		return a, err
	}
	if spec.Engine != "" && a.info.Engine != spec.Engine && declared(j) {
		return a, pipeline.Fatal("other-engine", fmt.Sprintf("%s runs %s, and the request says %s", a.info.Name, a.info.Engine.Title(), spec.Engine.Title()), "Give the engine that it has, or leave it out.").On("config.spec.engine")
	}
	return a, nil
}

// declared reports whether the request itself names an engine: a cache's has a default.
func declared(j *job.Job) bool { return strings.Contains(string(j.Config.Spec), `"engine"`) }

// arnRegion is the region in an ARN; "" for what is none.
func arnRegion(id string) string {
	if part := strings.SplitN(id, ":", 6); len(part) == 6 && part[0] == "arn" {
		return part[3]
	}
	return ""
}

// answersAt reports whether an endpoint is the one that is asked for, which may leave
// the port out.
func answersAt(asked string, host *string, port *int32) bool {
	h, p, err := net.SplitHostPort(asked)
	if err != nil {
		h, p = asked, ""
	}
	return strings.EqualFold(strings.TrimSuffix(h, "."), aws.ToString(host)) && (p == "" || p == strconv.Itoa(int(aws.ToInt32(port))))
}

// severalAt refuses an endpoint that more than one answers at.
func severalAt(endpoint string, names []string) error {
	return pipeline.Fatal("endpoint-ambiguous", fmt.Sprintf("%d have the endpoint %s: %s", len(names), endpoint, sortedList(names)), "Add the port, or give the name.").On(adoptField + ".endpoint")
}

func (p *Provider) adoptedInstance(ctx context.Context, id, endpoint string) (adopted, error) {
	var a adopted
	if endpoint == "" {
		i, err := p.readInstance(ctx, id)
		if err != nil {
			return a, err
		}
		return p.asAdopted(ctx, i)
	}
	all, err := p.allInstances(ctx)
	if err != nil {
		return a, err
	}
	var found []rdstypes.DBInstance
	var names []string
	for _, i := range all {
		if i.Endpoint != nil && answersAt(endpoint, i.Endpoint.Address, i.Endpoint.Port) {
			found, names = append(found, i), append(names, aws.ToString(i.DBInstanceIdentifier))
		}
	}
	switch len(found) {
	case 0:
		return a, absent("RDS", "DescribeDBInstances", "an instance with the endpoint "+endpoint)
	case 1:
		return p.asAdopted(ctx, found[0])
	}
	return a, severalAt(endpoint, names)
}

// asAdopted records an instance that somebody else runs.
func (p *Provider) asAdopted(ctx context.Context, i rdstypes.DBInstance) (adopted, error) {
	a := adopted{status: aws.ToString(i.DBInstanceStatus)}
	describeInstance(&a.info, i)
	if a.info.Engine == "" {
		return a, pipeline.Fatal("engine-not-offered", fmt.Sprintf("%s runs %s, which is neither PostgreSQL nor MySQL", a.info.Name, aws.ToString(i.Engine)), "Adopt an instance of one of the two.").On(adoptField)
	}
	a.usable = a.status != dbDeleting && !dbBroken(a.status)
	if g := i.DBSubnetGroup; g != nil {
		a.network = aws.ToString(g.VpcId)
		for _, s := range g.Subnets {
			a.subnets = append(a.subnets, aws.ToString(s.SubnetIdentifier))
		}
	}
	for _, g := range i.VpcSecurityGroups {
		a.groups = append(a.groups, aws.ToString(g.VpcSecurityGroupId))
	}
	tls, known, err := p.requiresTLS(ctx, i)
	if err != nil {
		return a, err
	}
	a.info.TLSRequired = tls
	a.info.RiskNotes = instanceRisks(i, tls, known)
	if cluster := aws.ToString(i.DBClusterIdentifier); cluster != "" {
		a.info.RiskNotes = append(a.info.RiskNotes, "it is a member of the cluster "+cluster+": backups, protection and users belong to the cluster")
	}
	return a, nil
}

// requiresTLS reads from the instance's own parameters whether clients have to use TLS.
func (p *Provider) requiresTLS(ctx context.Context, i rdstypes.DBInstance) (on, known bool, err error) {
	if len(i.DBParameterGroups) == 0 {
		return false, false, nil
	}
	have, err := p.parameters(ctx, aws.ToString(i.DBParameterGroups[0].DBParameterGroupName), "")
	if err != nil {
		return false, false, pipeline.Unless(plain(err), pipeline.Denied, pipeline.Invalid, pipeline.NotFound)
	}
	return tlsParameter(engineOf(aws.ToString(i.Engine)), have), true, nil
}

// tlsParameter reports whether parameters of an engine require TLS.
func tlsParameter(e job.Engine, have map[string]string) bool {
	name := map[job.Engine]string{job.Postgres: "rds.force_ssl", job.MySQL: "require_secure_transport"}[e]
	v := strings.ToUpper(have[name])
	return v == "1" || v == "ON"
}

// instanceRisks is what of an instance falls short of what one of our own has.
func instanceRisks(i rdstypes.DBInstance, tls, known bool) []string {
	var out []string
	note := func(short bool, format string, args ...any) {
		if short {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	note(aws.ToBool(i.PubliclyAccessible), "it has an address on the internet (RDS-01)")
	note(!aws.ToBool(i.StorageEncrypted), "its storage is not encrypted, and cannot be encrypted in place (RDS-04)")
	note(known && !tls, "clients need not use TLS (RDS-15, RDS-16)")
	days := aws.ToInt32(i.BackupRetentionPeriod)
	note(days == 0, "there are no automated backups, and so no way back to a point in time (RDS-06)")
	note(days > 0 && days < 7, "automated backups are kept for %d days alone (RDS-06)", days)
	note(!aws.ToBool(i.DeletionProtection), "it is not protected from deletion (RDS-07)")
	note(!aws.ToBool(i.MultiAZ), "it has no standby in another zone (RDS-10)")
	note(!aws.ToBool(i.AutoMinorVersionUpgrade), "minor upgrades do not happen by themselves (RDS-12)")
	note(aws.ToString(i.EngineLifecycleSupport) == "open-source-rds-extended-support", "it goes into extended support by itself, which is billed extra (RDS-14)")
	note(i.MasterUserSecret == nil, "nobody rotates the administrator's password: Secrets Manager does not manage it (RDS-26)")
	note(slices.Contains([]string{"admin", "postgres", "root"}, aws.ToString(i.MasterUsername)), "the administrator is called %s, which is the first name that attackers try (RDS-25)", aws.ToString(i.MasterUsername))
	note(len(i.EnabledCloudwatchLogsExports) == 0, "no log is exported (RDS-18, RDS-19)")
	return out
}

// openNotes adds what the network around an adopted datastore lets in.
func (p *Provider) openNotes(ctx context.Context, a *adopted) error {
	port := int32(a.info.Port)
	for _, id := range a.groups {
		g, err := p.securityGroups().One(ctx, id)
		if err != nil {
			if err := pipeline.Unless(plain(err), pipeline.Denied, pipeline.NotFound, pipeline.Invalid); err != nil {
				return err
			}
			continue
		}
		for _, l := range linesOf(g.IpPermissions) {
			if (l.peer == anywhere || l.peer == "::/0") && l.opens(port) {
				a.info.RiskNotes = append(a.info.RiskNotes, fmt.Sprintf("security group %s opens port %d to %s (RDS-03, EC-11)", id, port, l.peer))
			}
		}
	}
	return nil
}

// supportNote adds that the version is past its standard support.
func (p *Provider) supportNote(ctx context.Context, r *pipeline.Run, a *adopted) error {
	if a.info.Engine.Cache() {
		if a.info.Version != "" && !currentCache(a.info.Engine, a.info.Version) {
			a.info.RiskNotes = append(a.info.RiskNotes, a.info.Engine.Title()+" "+a.info.Version+" is at its end (EC-14)")
		}
		return nil
	}
	ends, err := p.standardSupport(ctx, a.info.Engine)
	if err := pipeline.Unless(plain(err), pipeline.Denied, pipeline.Invalid); err != nil {
		return err
	}
	if until := ends[majorOf(a.info.Engine, a.info.Version)]; until != "" && until < r.Now().UTC().Format("2006-01-02") {
		a.info.RiskNotes = append(a.info.RiskNotes, fmt.Sprintf("standard support of %s %s ended on %s (RDS-13)", a.info.Engine.Title(), a.info.Version, until))
	}
	return nil
}

// AdoptDatastore reads the datastore or cache that the job points at, and notes where
// it falls short of what one of our own has. It changes nothing.
func (p *Provider) AdoptDatastore(ctx context.Context, r *pipeline.Run) error {
	if r.Mode == pipeline.Plan {
		return nil
	}
	ctx = lookup.With(ctx, r)
	ic := &r.Job.Config.InfraConfig
	kind := kindDBInstance
	if isCache(r.Job) {
		kind = kindCacheGroup
	}
	a, err := p.findAdopted(ctx, r.Job)
	if f := asFatal(err); f != nil && f.Problem.Code == "datastore-not-found" && r.Mode == pipeline.Verify {
		r.AddDrift(pipeline.Drift{Kind: kind, Key: "adopted", ID: ic.Datastore.ID, Attr: "exists", Wanted: "yes", Seen: "no"})
		return nil
	}
	if err != nil {
		return plain(err)
	}
	if r.Mode == pipeline.Verify {
		if !a.usable {
			r.AddDrift(pipeline.Drift{Kind: kind, Key: "adopted", ID: a.info.ID, Attr: "state", Wanted: "ready", Seen: a.status})
		}
		return nil
	}
	if !a.usable {
		return pipeline.Fatal("datastore-not-usable", fmt.Sprintf("%s is %s", a.info.Name, a.status), "Adopt one that is available.").On(adoptField)
	}
	for _, more := range []func() error{
		func() error { return p.openNotes(ctx, &a) },
		func() error { return p.supportNote(ctx, r, &a) },
	} {
		if err := more(); err != nil {
			return plain(err)
		}
	}
	slices.Sort(a.subnets)
	recommendations := ic.Datastore.Recommendations
	ic.Datastore = a.info
	ic.Datastore.Recommendations = recommendations
	ic.NetworkID, ic.DatabaseSubnetIDs, ic.Zones = a.network, a.subnets, a.info.Zones
	return r.Save(ctx)
}

// adoptedDatastore checks that what the job points at is there, and is what the
// request says.
func (c *checker) adoptedDatastore(ctx context.Context) ([]cloud.Check, error) {
	const check = "adopted datastore"
	a, err := c.findAdopted(ctx, c.r.Job)
	var fatal *pipeline.FatalError
	switch {
	case errors.As(err, &fatal):
		return []cloud.Check{fails(check, or(fatal.Problem.Field, adoptField), fatal.Problem.Message, fatal.Problem.Hint)}, nil
	case err != nil:
		return nil, err
	case !a.usable:
		return []cloud.Check{fails(check, adoptField, a.info.Name+" is "+a.status, "Adopt one that is available.")}, nil
	}
	return []cloud.Check{passes(check, "%s, %s %s on %s, %s", a.info.Name, a.info.Engine.Title(), a.info.Version, a.info.Class, a.status)}, nil
}
