package aws

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// The kinds of datastore and cache jobs as the ledger names them.
const (
	kindDBInstance       = "rds:db-instance"
	kindDBSubnetGroup    = "rds:subnet-group"
	kindDBParameterGroup = "rds:parameter-group"
	kindDBSnapshot       = "rds:snapshot"
	kindCacheGroup       = "elasticache:replication-group"
	kindCacheSubnetGroup = "elasticache:subnet-group"
	kindCacheUserGroup   = "elasticache:user-group"
	kindCacheUser        = "elasticache:user"
	kindCacheSnapshot    = "elasticache:snapshot"
)

// The keys of a datastore's or cache's objects.
const (
	datastoreKey      = "datastore"
	subnetGroupKey    = "subnet-group"
	parameterGroupKey = "parameter-group"
	userGroupKey      = "user-group"
	defaultUserKey    = "default-user"
	datastoreLogPref  = "log-"
)

// The longest identifiers that RDS and ElastiCache take ("CreateDBInstance",
// "CreateReplicationGroup").
const (
	longestInstance = 63
	longestCache    = 40
)

// mostNameTries is how often another name is tried for one that is held.
const mostNameTries = 3

func isDatastore(j *job.Job) bool {
	return j.ResourceType == job.Datastore || j.ResourceType == job.Cache
}

func isCache(j *job.Job) bool { return j.ResourceType == job.Cache }

// datastoreName is the identifier of a job's datastore or cache. It has a hash of the
// job's ID in it, so that what carries it is this job's.
func datastoreName(j *job.Job, tries int) string {
	most := longestInstance
	if isCache(j) {
		most = longestCache
	}
	if tries == 0 {
		return j.ResourceName("", most)
	}
	return fmt.Sprintf("%s-%d", j.ResourceName("", most-2), tries)
}

// arnName is the name at the end of an ARN of RDS or ElastiCache, or the name itself.
func arnName(id string) string { return id[strings.LastIndexByte(id, ':')+1:] }

// A dataBuild is a datastore or cache as it is put together.
type dataBuild struct {
	*Provider
	r    *pipeline.Run
	ic   *job.InfraConfig
	info *job.DatastoreInfo
	spec job.DatastoreSpec
}

func (p *Provider) newDataBuild(r *pipeline.Run) (*dataBuild, error) {
	spec, err := r.Job.DatastoreSpec()
	return &dataBuild{Provider: p, r: r, ic: &r.Job.Config.InfraConfig, info: &r.Job.Config.InfraConfig.Datastore, spec: spec}, err
}

func (b *dataBuild) cached() bool { return isCache(b.r.Job) }

func (b *dataBuild) name() string { return datastoreName(b.r.Job, b.info.NameTries) }

// subnets are where the datastore sits: in the database tier of a network that the
// job made, or in the private subnets that it names.
func (b *dataBuild) subnets() []string {
	if b.r.Job.Mode == job.ModeCreate {
		return b.ic.DatabaseSubnetIDs
	}
	return b.ic.PrivateSubnetIDs
}

// EnsureSubnetGroup makes the subnet group, the security group and, for RDS, the
// parameter group with its parameters, so that they hold at the first start already.
func (p *Provider) EnsureSubnetGroup(ctx context.Context, r *pipeline.Run) error {
	if r.Job.Mode == job.ModeAdopt {
		return nil
	}
	ctx = lookup.With(ctx, r)
	b, err := p.newDataBuild(r)
	if err != nil {
		return err
	}
	parts := []func(context.Context) error{
		func(ctx context.Context) error {
			id, err := r.Ensure(ctx, b.accessGroup())
			learn(r, &b.info.SecurityGroupID, id)
			return visible(r, "the network", err)
		},
		func(ctx context.Context) error {
			x := b.subnetGroup()
			_, err := r.Ensure(ctx, x)
			learn(r, &b.info.SubnetGroup, x.Name)
			return visible(r, "the subnets", err)
		},
	}
	if !b.cached() {
		parts = append(parts, func(ctx context.Context) error {
			x := b.parameterGroup()
			_, err := r.Ensure(ctx, x)
			learn(r, &b.info.ParameterGroup, x.Name)
			return err
		})
	}
	if err := pipeline.All(ctx, parts...); err != nil {
		return err
	}
	if b.cached() || madeID(r, kindDBInstance, datastoreKey) != "" {
		return nil
	}
	return confirm(ctx, r, b.parameterGroup())
}

// RemoveSubnetGroup removes what EnsureSubnetGroup made, once the datastore is gone.
func (p *Provider) RemoveSubnetGroup(ctx context.Context, r *pipeline.Run) error {
	if r.Mode != pipeline.Apply || !r.Job.Owns() {
		return nil
	}
	ctx = lookup.With(ctx, r)
	b, err := p.newDataBuild(r)
	if err != nil {
		return err
	}
	parts := []func(context.Context) error{
		func(ctx context.Context) error { return r.Remove(ctx, b.subnetGroup()) },
		func(ctx context.Context) error { return r.Remove(ctx, b.accessGroup()) },
	}
	if !b.cached() {
		parts = append(parts, func(ctx context.Context) error { return r.Remove(ctx, b.parameterGroup()) })
	}
	return pipeline.All(ctx, parts...)
}

func (b *dataBuild) subnetGroup() pipeline.Resource {
	if b.cached() {
		return b.cacheSubnetGroup()
	}
	return b.dbSubnetGroup()
}

// EnsureDatastore makes the datastore or cache and records where it answers. What the
// cloud shows of it later is reported and never put back: it holds a customer's data.
func (p *Provider) EnsureDatastore(ctx context.Context, r *pipeline.Run) error {
	if r.Job.Mode == job.ModeAdopt {
		return nil
	}
	ctx = lookup.With(ctx, r)
	b, err := p.newDataBuild(r)
	if err != nil {
		return err
	}
	if err := b.choose(ctx); err != nil {
		return err
	}
	x := b.instance()
	if b.cached() {
		x = b.replicationGroup()
	} else if err := b.ensureLogs(ctx); err != nil {
		return err
	}
	id, err := r.Ensure(ctx, x)
	learn(r, &b.info.ID, id)
	if err != nil {
		return b.nameHeld(ctx, visible(r, "what the datastore depends on", err))
	}
	if r.Mode != pipeline.Apply {
		return nil
	}
	if b.cached() {
		return b.recordCache(ctx, x.Name)
	}
	return b.recordInstance(ctx, x.Name)
}

// choose commits the names of the datastore and of its final snapshot before it is
// made: what a teardown needs is decided by then (failure kinds O1, O2).
func (b *dataBuild) choose(ctx context.Context) error {
	before := *b.info
	learn(b.r, &b.info.Name, b.name())
	if b.r.Mode != pipeline.Verify {
		b.info.Engine = b.spec.Engine
		b.info.FinalSnapshot, b.info.SnapshotAskedAt = "", nil // no teardown has begun
		if !b.spec.SkipFinalSnapshot {
			b.info.FinalSnapshot = b.r.Job.ResourceName("final", 200)
		}
	}
	if b.info.Name == before.Name && b.info.FinalSnapshot == before.FinalSnapshot && before.SnapshotAskedAt == b.info.SnapshotAskedAt && b.info.Engine == before.Engine {
		return nil
	}
	return b.r.Save(ctx)
}

// nameHeld tries another name when the cloud calls the one taken and shows nothing of
// that name (failure kinds B1, B2).
func (b *dataBuild) nameHeld(ctx context.Context, err error) error {
	if !pipeline.Is(err, pipeline.Exists) || asFatal(err) != nil {
		return err
	}
	held := b.name()
	if b.info.NameTries >= mostNameTries {
		return pipeline.Fatal("name-held", fmt.Sprintf("the cloud holds the name %s, though nothing of that name is there, as it did %d others before: %v", held, mostNameTries, plain(err)),
			"Give the job another name, or retry when the cloud has let go of it: a name can be held for days after a deletion.").On("name").From(err)
	}
	b.info.NameTries++
	b.info.Name = b.name()
	if err := b.r.Save(ctx); err != nil {
		return err
	}
	if err := b.r.Event(ctx, "name.held", "the cloud holds the name %s, though nothing of that name is there; %s is tried", held, b.info.Name); err != nil {
		return err
	}
	return pipeline.Wait(time.Second, "another name for the datastore: %s is held", held)
}

// accessGroup lets in who may connect, and nothing out: a datastore only answers.
func (b *dataBuild) accessGroup() pipeline.Resource {
	in := b.accessLines()
	return b.securityGroup(b.r, datastoreKey, b.spec.Engine.Title()+" of "+b.r.Job.Name+": private subnets and named sources alone", groupLines(b.Provider, b.r, in))
}

// accessLines are who may connect, each with its reason.
func (b *dataBuild) accessLines() []line {
	port := int32(b.spec.Engine.Port())
	var out []line
	add := func(peer, about string) {
		if !slices.ContainsFunc(out, func(l line) bool { return l.peer == peer }) {
			out = append(out, line{proto: "tcp", from: port, to: port, peer: peer, about: about})
		}
	}
	if b.r.Job.Mode == job.ModeCreate {
		if plan, err := networkPlan(b.r, b.spec.Network); err == nil {
			for _, s := range plan.Tier(job.TierPrivate) {
				add(s.CIDR, "private subnet "+s.Key)
			}
		}
	}
	for _, a := range b.spec.Access {
		add(or(a.CIDR, a.SecurityGroupID), or(a.Description, "named in the request"))
	}
	return out
}

// tagMarks is tags of a service's own type as a map.
func tagMarks[T any](all []T, one func(T) (k, v *string)) map[string]string {
	m := map[string]string{}
	for _, t := range all {
		k, v := one(t)
		m[aws.ToString(k)] = aws.ToString(v)
	}
	return m
}

// window is an hour from the time that the spec names, as RDS and ElastiCache take
// it, and backupWindow the hour that ends an hour before: the two never meet.
func window(at string) (maintenance, backup string) {
	day, clock, _ := strings.Cut(at, ":")
	days := []string{"mon", "tue", "wed", "thu", "fri", "sat", "sun"}
	t, err := time.Parse("15:04", clock)
	if err != nil {
		return at, ""
	}
	end := t.Add(time.Hour)
	next := day
	if end.Day() != t.Day() {
		next = days[(slices.Index(days, day)+1)%len(days)]
	}
	return fmt.Sprintf("%s:%s-%s:%s", day, clock, next, end.Format("15:04")),
		t.Add(-2*time.Hour).Format("15:04") + "-" + t.Add(-time.Hour).Format("15:04")
}
