package aws

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/rds"
	rdstypes "github.com/aws/aws-sdk-go-v2/service/rds/types"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// A dataChecker asks what a datastore or cache job's later steps depend on.
type dataChecker struct {
	*checker
	data job.DatastoreSpec
	info *job.DatastoreInfo
}

// datastoreJob checks a datastore or cache job: the version first, then the class
// that it can be had in, and the zones of both; then the network, side by side.
func (c *checker) datastoreJob(ctx context.Context) ([]cloud.Check, error) {
	spec, err := c.r.Job.DatastoreSpec()
	if err != nil {
		return []cloud.Check{fails("request", "config.spec", err.Error(), "Put the request right.")}, nil
	}
	if c.r.Job.Mode == job.ModeAdopt {
		return c.adoptedDatastore(ctx)
	}
	c.spec.Network, c.spec.Existing = spec.Network, spec.Existing
	d := &dataChecker{checker: c, data: spec, info: &c.ic.Datastore}
	zones, out, err := c.usableZones(ctx)
	if err != nil || len(out) > 0 {
		return out, err
	}
	place := d.placeInstance
	if isCache(c.r.Job) {
		place = d.placeCache
	}
	if out, err = place(ctx, zones); err != nil {
		return nil, err
	}
	parts := []func(context.Context) ([]cloud.Check, error){d.networks, d.dataQuotas, d.sources}
	answers := make([][]cloud.Check, len(parts))
	var calls []func(context.Context) error
	for i, part := range parts {
		calls = append(calls, func(ctx context.Context) (err error) {
			answers[i], err = part(ctx)
			return err
		})
	}
	if err := pipeline.All(ctx, calls...); err != nil {
		return nil, err
	}
	return append(append(out, slices.Concat(answers...)...), d.dataNames()), nil
}

// built reports whether there is a datastore already, or nothing is to be changed.
func (d *dataChecker) built() bool {
	kind := kindDBInstance
	if isCache(d.r.Job) {
		kind = kindCacheGroup
	}
	return d.r.Mode == pipeline.Verify || d.made(kind, datastoreKey)
}

// placeInstance resolves version, class and zones together.
func (d *dataChecker) placeInstance(ctx context.Context, zones []string) ([]cloud.Check, error) {
	if d.built() {
		return []cloud.Check{passes("version and class", "%s %s on %s", d.data.Engine.Title(), d.info.Version, d.info.Class)}, nil
	}
	d.info.Engine = d.data.Engine
	offered, err := d.databaseVersions(ctx, d.data.Engine, d.r.Now().UTC().Format("2006-01-02"))
	out, err := d.chooseVersion(ctx, offered, err)
	if err != nil || d.info.Version == "" {
		return out, err
	}
	more, err := d.chooseClass(ctx, zones)
	return append(out, more...), err
}

// chooseVersion takes the newest version of what is asked for that is in standard
// support. What is not offered, or is billed as extended support, is refused with what
// could be had instead (failure kind O7).
func (d *dataChecker) chooseVersion(ctx context.Context, offered []engineVersion, err error) ([]cloud.Check, error) {
	const check, field = "version", "config.spec.version"
	asked, title := d.data.Version, d.data.Engine.Title()
	if d.made(kindDBParameterGroup, parameterGroupKey) && d.info.Version != "" && (asked == "" || withinVersion(asked, d.info.Version)) {
		return []cloud.Check{passes(check, "%s %s", title, d.info.Version)}, nil // its parameter group is there
	}
	d.info.Version = ""
	switch {
	case err != nil && (d.stops(ctx, err) || asked == "" && d.r.Mode == pipeline.Apply): // nothing to choose from
		return nil, err
	case err != nil:
		d.info.Version = asked
		return []cloud.Check{unchecked(check, field, err)}, nil
	}
	var standard, known []string
	var chosen *engineVersion
	for i, v := range offered {
		known = append(known, v.version)
		if v.standard {
			standard = append(standard, v.version)
		}
		if asked == "" && v.standard || asked != "" && withinVersion(asked, v.version) {
			chosen = &offered[i]
		}
	}
	switch {
	case chosen == nil:
		return []cloud.Check{fails(check, field, fmt.Sprintf("%s %s is not offered in %s now", title, or(asked, "in standard support"), d.region),
			"Name one of "+or(nearest(asked, standard), "those that the region offers: "+nearest(asked, known))+", or leave it out for the newest.")}, nil
	case !chosen.standard:
		return []cloud.Check{fails(check, field, fmt.Sprintf("standard support of %s %s ended on %s, and the datastore is not to run under extended support, which is billed extra", title, chosen.version, chosen.until),
			"Name one of "+nearest(asked, standard)+", or leave it out for the newest.")}, nil
	}
	d.info.Version = chosen.version
	if soon := d.r.Now().AddDate(0, 0, 90).UTC().Format("2006-01-02"); chosen.until != "" && chosen.until < soon {
		return []cloud.Check{warns(check, field, fmt.Sprintf("standard support of %s %s ends on %s", title, chosen.version, chosen.until), "Name a newer major version, unless an application needs this one.")}, nil
	}
	return []cloud.Check{passes(check, "%s %s, in standard support until %s", title, chosen.version, or(chosen.until, "a day that AWS does not say"))}, nil
}

// nearest are the versions next to the one asked for: of the same major version the
// newest ones, or else the newest of every major version.
func nearest(asked string, versions []string) string {
	major, _, _ := strings.Cut(asked, ".")
	var same, newest []string
	for i, v := range versions {
		if asked != "" && withinVersion(major, v) {
			same = append(same, v)
		}
		this, _, _ := strings.Cut(v, ".")
		if i+1 == len(versions) || !withinVersion(this, versions[i+1]) {
			newest = append(newest, v)
		}
	}
	if len(same) > 0 {
		return strings.Join(same[max(0, len(same)-5):], ", ")
	}
	return strings.Join(newest, ", ")
}

// chooseClass takes the smallest class that has what is asked for and that can be had
// for the version, with a standby if one is asked for, in enough zones.
func (d *dataChecker) chooseClass(ctx context.Context, zones []string) ([]cloud.Check, error) {
	const check = "class"
	field := "config.spec.size"
	options, err := d.orderable(ctx, d.data.Engine, d.info.Version, d.data.InstanceType)
	switch {
	case err != nil && d.stops(ctx, err):
		return nil, err
	case err != nil:
		d.info.Class = or(d.data.InstanceType, "db.t4g.large")
		d.settleZones(zones)
		return []cloud.Check{unchecked(check, field, err)}, nil
	}
	var fits []classOffer
	if d.data.InstanceType != "" {
		field = "config.spec.instanceType"
		fits = offers(options, d.data.HA(), false, map[string]typeSize{})
	} else {
		for _, o := range offers(options, d.data.HA(), d.data.Preset == job.PresetProduction, d.classSizes(ctx, options)) {
			if o.vcpus >= max(d.data.Size.VCPUs, 1) && o.memoryGiB >= d.data.Size.MemoryGiB {
				fits = append(fits, o)
			}
		}
	}
	need := d.zonesNeeded()
	for _, o := range fits {
		in := slices.DeleteFunc(slices.Clone(zones), func(z string) bool { return !slices.Contains(o.zones, z) })
		if len(in) < need {
			continue
		}
		d.info.Class = o.name
		d.settleZones(in)
		if d.data.StorageGiB < o.min || o.max > 0 && d.data.StorageGiB > o.max {
			return []cloud.Check{fails("disk", "config.spec.storageGiB", fmt.Sprintf("%s takes a gp3 disk of %d to %d GiB, and %d are asked for", o.name, o.min, o.max, d.data.StorageGiB), "Ask for a size within that.")}, nil
		}
		out := []cloud.Check{passes(check, "%s, which can be had for %s %s in %s", o.name, d.data.Engine.Title(), d.info.Version, strings.Join(in, ", "))}
		if d.data.StorageMax > d.data.StorageGiB && d.data.StorageMax*10 < d.data.StorageGiB*11 {
			out = append(out, warns("disk", "config.spec.storageMaxGiB", "the disk does not grow by itself: RDS takes a limit that is a tenth larger than the disk at least", "Use 1.1 times storageGiB or more."))
		}
		return out, nil
	}
	return []cloud.Check{d.noClass(check, field, options, fits, need)}, nil
}

func (d *dataChecker) noClass(check, field string, options []rdstypes.OrderableDBInstanceOption, fits []classOffer, need int) cloud.Check {
	what := d.data.InstanceType
	if what == "" {
		what = fmt.Sprintf("a class with %d vCPUs and %d GiB", d.data.Size.VCPUs, d.data.Size.MemoryGiB)
	}
	ha := ""
	if d.data.HA() {
		ha = " with a standby"
	}
	switch {
	case len(options) == 0:
		return fails(check, field, fmt.Sprintf("RDS does not offer %s for %s %s in %s", what, d.data.Engine.Title(), d.info.Version, d.region), "Name another instanceType, give a size instead, or use another version.")
	case len(fits) == 0:
		return fails(check, field, fmt.Sprintf("RDS does not offer %s, encrypted on gp3%s, for %s %s in %s", what, ha, d.data.Engine.Title(), d.info.Version, d.region), "Ask for another size, or name an instanceType.")
	}
	var where []string
	for _, o := range fits[:min(len(fits), 3)] {
		where = append(where, o.name+" in "+or(strings.Join(o.zones, ", "), "no zone"))
	}
	return fails(check, field, fmt.Sprintf("%d zones have to offer %s; there is %s", need, what, strings.Join(where, "; ")), "Ask for another size or another region.")
}

// settleZones records the zones of the network to make.
func (d *dataChecker) settleZones(zones []string) {
	if d.r.Job.Mode == job.ModeCreate && !d.zonesKept() {
		d.ic.Zones = slices.Clone(zones[:min(len(zones), d.data.Network.Zones)])
	}
}

// networks checks the network to make, or the one that is named: private subnets in
// two zones (failure kind J2).
func (d *dataChecker) networks(ctx context.Context) ([]cloud.Check, error) {
	const check, field = "existing network", "config.spec.existing.subnetIds"
	if d.r.Job.Mode != job.ModeCreateInExisting {
		return d.network(ctx)
	}
	net, out, err := d.named(ctx)
	if err != nil || len(out) > 0 {
		return out, err
	}
	zones, private, public := net.spread()
	if len(zones) < 2 {
		return []cloud.Check{fails(check, field, fmt.Sprintf("a datastore's subnets have to stand in two zones, and the private ones that are named stand in %s alone", strings.Join(zones, ", ")), "Name a private subnet in another zone too.")}, nil
	}
	if len(public) > 0 {
		out = append(out, warns(check, field, "the public subnets "+strings.Join(public, ", ")+" are left out: a datastore does not belong into them", "Leave them out of the request."))
	}
	for _, s := range net.subnets {
		if want := d.addresses(); slices.Contains(private, s.id) && s.free < want && !d.built() {
			out = append(out, fails(check, field, fmt.Sprintf("subnet %s has %d free addresses, and the datastore may want %d", s.id, s.free, want), "Name a subnet with room, or free some addresses."))
		}
	}
	return append(out, passes(check, "%s with private subnets in %s", d.data.Existing.NetworkID, strings.Join(zones, ", "))), nil
}

// addresses is how many addresses a subnet has to have: those of the instance or the
// nodes, and one more for a replacement while a failed one goes.
func (d *dataChecker) addresses() int {
	if isCache(d.r.Job) {
		return d.data.ReplicaCount() + 2
	}
	return 2
}

// sources looks whether the security groups that may connect are there.
func (d *dataChecker) sources(ctx context.Context) ([]cloud.Check, error) {
	const check = "who may connect"
	var out []cloud.Check
	for i, a := range d.data.Access {
		field := fmt.Sprintf("config.spec.access[%d].securityGroupId", i)
		if a.SecurityGroupID == "" {
			continue
		}
		g, err := d.securityGroups().One(ctx, a.SecurityGroupID)
		switch {
		case err != nil && d.stops(ctx, err):
			return nil, err
		case pipeline.Is(err, pipeline.NotFound):
			out = append(out, fails(check, field, "there is no security group "+a.SecurityGroupID+" in "+d.region, "Name one that exists."))
		case err != nil:
			out = append(out, unchecked(check, field, err))
		case d.r.Job.Mode == job.ModeCreate && !d.made(kindVPC, "vpc"):
			out = append(out, fails(check, field, fmt.Sprintf("%s belongs to %s, and a rule of the network that is to be made cannot name it", a.SecurityGroupID, aws.ToString(g.VpcId)), "Give a cidr, or build in that network (mode create_in_existing)."))
		}
	}
	if len(d.data.Access) == 0 && d.r.Job.Mode == job.ModeCreateInExisting {
		out = append(out, warns(check, "config.spec.access", "nobody may connect: the request names no source", "Name the security groups or ranges of those who shall."))
	}
	return out, nil
}

// dataQuotas compares what the job will draw with what RDS says is left.
func (d *dataChecker) dataQuotas(ctx context.Context) ([]cloud.Check, error) {
	if d.r.Mode == pipeline.Verify {
		return nil, nil
	}
	limits := d.networkLimits()
	if isCache(d.r.Job) && !d.built() {
		limits = append(limits, limit{
			name: "cache node quota", field: "config.spec.replicas", service: "elasticache", code: "L-DFE45DF3", want: d.data.ReplicaCount() + 1, used: d.usedCacheNodes,
			fix: "Ask AWS for more ElastiCache nodes in the region, or remove some.",
		})
	}
	out, err := d.compareAll(ctx, limits)
	if err != nil || isCache(d.r.Job) || d.built() {
		return out, err
	}
	const check = "RDS quotas"
	answer, err := d.rds.DescribeAccountAttributes(ctx, &rds.DescribeAccountAttributesInput{})
	switch {
	case err != nil && d.stops(ctx, err):
		return nil, err
	case err != nil:
		return append(out, unchecked(check, "region", err)), nil
	}
	want := map[string]int64{"DBInstances": 1, "AllocatedStorage": int64(d.data.StorageGiB), "ManualSnapshots": 0}
	if !d.made(kindDBSubnetGroup, subnetGroupKey) {
		want["DBSubnetGroups"] = 1
	}
	if !d.made(kindDBParameterGroup, parameterGroupKey) {
		want["DBParameterGroups"] = 1
	}
	if !d.data.SkipFinalSnapshot {
		want["ManualSnapshots"] = 1
	}
	var room []string
	for _, q := range answer.AccountQuotas {
		quota := aws.ToString(q.AccountQuotaName)
		n := want[quota]
		if n == 0 {
			continue
		}
		used, most := aws.ToInt64(q.Used), aws.ToInt64(q.Max)
		text := fmt.Sprintf("%s: %d of %d in use, %d wanted", quota, used, most, n)
		switch {
		case used+n <= most:
			room = append(room, text)
		case quota == "ManualSnapshots": // taken at the teardown, which may be far away
			out = append(out, warns(check, "config.spec.skipFinalSnapshot", text+" by the final snapshot", "Delete old snapshots, or ask AWS for more."))
		default:
			out = append(out, fails(check, "region", text, "Ask AWS for more, remove what is not needed, or use another region."))
		}
	}
	if len(room) > 0 {
		out = append(out, passes(check, "%s", sortedList(room)))
	}
	return out, nil
}

// identifierRE is what RDS and ElastiCache take as a name: it starts with a letter,
// and no two hyphens stand together, nor one at the end.
var identifierRE = regexp.MustCompile(`^[a-z]([a-z0-9]|-[a-z0-9])*$`)

// dataNames proves that every name derived from the job's is one that AWS takes: the
// final snapshot's too, which is needed at the very end (failure kinds C1, O2).
func (d *dataChecker) dataNames() cloud.Check {
	const check = "derived names"
	j := d.r.Job
	most := longestInstance
	if isCache(j) {
		most = longestCache
	}
	names := map[string]int{
		datastoreName(j, 0): most, datastoreName(j, mostNameTries): most, j.ResourceName("final", 200): 200, j.ResourceName("subnets", 200): 200,
		j.ResourceName("params", 200): 200, j.ResourceName("users", longestCache): longestCache, cacheUserID(j, "default"): longestCache, name(d.r, datastoreKey, 255): 255,
	}
	for n, most := range names {
		if len(n) > most || !identifierRE.MatchString(n) {
			return fails(check, "name", fmt.Sprintf("%q, derived from the job's name, is not one that AWS takes", n), "Give the job a shorter name of letters, digits and hyphens.")
		}
	}
	return passes(check, "all fit, such as %s", datastoreName(j, 0))
}

// stops reports whether an error says that nothing can be asked now. What a
// datastore is cannot be changed later, so that nothing is made of a guess because
// of an answer that comes a little later.
func (d *dataChecker) stops(ctx context.Context, err error) bool {
	return stops(ctx, err) || d.r.Mode == pipeline.Apply && pipeline.Is(err, pipeline.Throttled, pipeline.Unavailable)
}
