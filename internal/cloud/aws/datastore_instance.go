package aws

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/rds"
	rdstypes "github.com/aws/aws-sdk-go-v2/service/rds/types"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// authority is the certificate authority of new instances ("Using SSL/TLS to encrypt
// a connection to a DB instance or cluster"): of the current generation, g1.
const authority = "rds-ca-rsa2048-g1"

// What RDS says of an instance ("Viewing Amazon RDS DB instance status").
const (
	dbAvailable = "available"
	dbDeleting  = "deleting"
	dbCreating  = "creating"
)

// dbServing are the states in which an instance answers while RDS is at work on it.
var dbServing = []string{
	dbAvailable, "backing-up", "configuring-enhanced-monitoring", "configuring-iam-database-auth", "configuring-log-exports",
	"maintenance", "modifying", "renaming", "resetting-master-credentials", "storage-config-upgrade", "storage-initialization", "storage-optimization",
}

// dbBroken reports whether a state is one that an instance does not leave by itself.
func dbBroken(status string) bool {
	return status == "failed" || strings.HasPrefix(status, "incompatible-") || strings.HasPrefix(status, "inaccessible-encryption-credentials") || status == "insufficient-capacity"
}

// allInstances are all instances of the region, each with its tags.
func (p *Provider) allInstances(ctx context.Context) ([]rdstypes.DBInstance, error) {
	return lookup.Once(ctx, "all "+kindDBInstance, func(ctx context.Context) ([]rdstypes.DBInstance, error) {
		return lookup.Pages(ctx, func(ctx context.Context, token *string) ([]rdstypes.DBInstance, *string, error) {
			out, err := p.rds.DescribeDBInstances(ctx, &rds.DescribeDBInstancesInput{Marker: token})
			if err != nil {
				return nil, nil, err
			}
			return out.DBInstances, out.Marker, nil
		})
	})
}

// readInstance reads an instance by its identifier, once a pass.
func (p *Provider) readInstance(ctx context.Context, id string) (rdstypes.DBInstance, error) {
	return lookup.Once(ctx, kindDBInstance+" "+id, func(ctx context.Context) (rdstypes.DBInstance, error) {
		out, err := p.rds.DescribeDBInstances(ctx, &rds.DescribeDBInstancesInput{DBInstanceIdentifier: aws.String(id)})
		if err != nil {
			return rdstypes.DBInstance{}, err
		}
		if len(out.DBInstances) == 0 {
			return rdstypes.DBInstance{}, absent("RDS", "DescribeDBInstances", "instance "+id)
		}
		return out.DBInstances[0], nil
	})
}

// instance is the RDS instance. CreateDBInstance takes no token: one whose answer was
// lost is found by its name and its mark.
func (b *dataBuild) instance() pipeline.Resource {
	x := pipeline.Resource{Kind: kindDBInstance, Key: datastoreKey, Name: b.name(), Slow: true, Precious: true, Patience: time.Hour}
	x.Get = func(ctx context.Context, id string) (pipeline.Seen, error) {
		i, err := b.readInstance(ctx, or(arnName(id), x.Name))
		if err != nil {
			return pipeline.Seen{}, err
		}
		return b.seeInstance(i), nil
	}
	x.Find = b.findInstance(x)
	x.Create = func(ctx context.Context, _ string) (pipeline.Seen, error) {
		in, err := b.instanceInput(ctx, x.Name)
		if err != nil {
			return pipeline.Seen{}, err
		}
		out, err := b.rds.CreateDBInstance(ctx, in)
		if err != nil || out.DBInstance == nil {
			return pipeline.Seen{}, err
		}
		return pipeline.Seen{ID: aws.ToString(out.DBInstance.DBInstanceArn), Owner: b.r.Job.ID, Status: pipeline.Pending, Reason: aws.ToString(out.DBInstance.DBInstanceStatus)}, nil
	}
	x.Delete = func(ctx context.Context, id string) error { return b.deleteInstance(ctx, or(arnName(id), x.Name)) }
	x.Blockers = func(ctx context.Context, id string) (string, error) {
		i, err := b.readInstance(ctx, or(arnName(id), x.Name))
		if err != nil {
			return "", pipeline.Unless(err, pipeline.NotFound)
		}
		return replicaBlockers(i), nil
	}
	return tidy(x)
}

// findInstance finds the instance by its name, and any other with the job's mark: a
// name that was given up as held may show late.
func (b *dataBuild) findInstance(x pipeline.Resource) func(context.Context) ([]pipeline.Seen, error) {
	named := eksNamed(b.r, x)
	return func(ctx context.Context) ([]pipeline.Seen, error) {
		out, err := named(ctx)
		if err != nil || b.info.NameTries == 0 {
			return out, err
		}
		all, err := b.allInstances(ctx)
		for _, i := range all {
			if eksMark(rdsMarks(i.TagList)) == b.r.Job.ID && aws.ToString(i.DBInstanceIdentifier) != x.Name {
				out = append(out, b.seeInstance(i))
			}
		}
		return out, err
	}
}

// seeInstance is where the instance stands. A verify compares it with what was asked
// for; no aspect of it is ever set.
func (b *dataBuild) seeInstance(i rdstypes.DBInstance) pipeline.Seen {
	status := aws.ToString(i.DBInstanceStatus)
	s := pipeline.Seen{ID: aws.ToString(i.DBInstanceArn), Owner: eksMark(rdsMarks(i.TagList)), Status: pipeline.Pending, Reason: status}
	secret := "none"
	if i.MasterUserSecret != nil {
		secret = aws.ToString(i.MasterUserSecret.SecretStatus)
	}
	switch {
	case dbBroken(status):
		// One that has worked is never taken for a failed create, which a retry
		// replaces: there is data in it.
		if s.Reason = instanceReason(i); b.info.Host == "" || b.r.Down {
			s.Status = pipeline.Broken
		}
	case status == dbAvailable && secret == "creating" && b.info.Host == "":
		s.Reason = "the administrator's secret is being made"
	case status == dbAvailable, b.info.Host != "" && slices.Contains(dbServing, status):
		s.Status = pipeline.Ready
	}
	if b.r.Mode == pipeline.Verify {
		s.Aspects = b.instanceAspects(i)
	}
	return s
}

// instanceReason is a state with what RDS says about it; never empty (failure I11).
func instanceReason(i rdstypes.DBInstance) string {
	var all []string
	for _, x := range i.StatusInfos {
		all = append(all, aws.ToString(x.StatusType)+": "+aws.ToString(x.Message))
	}
	return issueText(aws.ToString(i.DBInstanceStatus), all...)
}

// exportsOf are the logs that go to CloudWatch (controls RDS-18, RDS-19).
func exportsOf(e job.Engine) []string {
	if e == job.MySQL {
		return []string{"error", "slowquery"}
	}
	return []string{"postgresql", "upgrade"}
}

// instanceInput is everything that the instance is made with.
func (b *dataBuild) instanceInput(ctx context.Context, identifier string) (*rds.CreateDBInstanceInput, error) {
	maintenance, backup := window(b.spec.MaintenanceWindow)
	in := &rds.CreateDBInstanceInput{
		DBInstanceIdentifier: aws.String(identifier), Engine: aws.String(string(b.spec.Engine)), EngineVersion: aws.String(b.info.Version), DBInstanceClass: aws.String(b.info.Class),
		EngineLifecycleSupport: aws.String("open-source-rds-extended-support-disabled"), AutoMinorVersionUpgrade: aws.Bool(true),
		MasterUsername: aws.String(b.spec.AdminUser), ManageMasterUserPassword: aws.Bool(true), EnableIAMDatabaseAuthentication: aws.Bool(true),
		StorageType: aws.String("gp3"), AllocatedStorage: aws.Int32(int32(b.spec.StorageGiB)), StorageEncrypted: aws.Bool(true),
		DBSubnetGroupName: aws.String(b.info.SubnetGroup), VpcSecurityGroupIds: []string{b.info.SecurityGroupID}, DBParameterGroupName: aws.String(b.info.ParameterGroup),
		PubliclyAccessible: aws.Bool(false), MultiAZ: aws.Bool(b.spec.HA()), CACertificateIdentifier: aws.String(authority), Port: aws.Int32(int32(b.spec.Engine.Port())),
		BackupRetentionPeriod: aws.Int32(int32(b.spec.BackupRetentionDays)), PreferredBackupWindow: aws.String(backup), PreferredMaintenanceWindow: aws.String(maintenance),
		DeletionProtection: aws.Bool(b.spec.Protected()), CopyTagsToSnapshot: aws.Bool(true),
		EnableCloudwatchLogsExports: exportsOf(b.spec.Engine), Tags: rdsTags(tags(b.r, datastoreKey, identifier)),
	}
	able, err := b.orderable(ctx, b.spec.Engine, b.info.Version, b.info.Class)
	if err := pipeline.Unless(plain(err), pipeline.Denied, pipeline.Invalid); err != nil {
		return nil, err
	}
	at := slices.IndexFunc(able, func(o rdstypes.OrderableDBInstanceOption) bool { return aws.ToString(o.StorageType) == "gp3" })
	if at < 0 {
		return in, nil // nothing is known of the class: what it may lack is left out
	}
	// A smaller limit than a tenth above the disk is refused ("Managing capacity
	// automatically with Amazon RDS storage autoscaling").
	if aws.ToBool(able[at].SupportsStorageAutoscaling) && b.spec.StorageMax*10 >= b.spec.StorageGiB*11 {
		in.MaxAllocatedStorage = aws.Int32(int32(b.spec.StorageMax))
	}
	if aws.ToBool(able[at].SupportsPerformanceInsights) {
		in.DatabaseInsightsMode, in.EnablePerformanceInsights, in.PerformanceInsightsRetentionPeriod = rdstypes.DatabaseInsightsModeStandard, aws.Bool(true), aws.Int32(7)
	}
	if able[at].SupportsIAMDatabaseAuthentication != nil && !*able[at].SupportsIAMDatabaseAuthentication {
		in.EnableIAMDatabaseAuthentication = nil
	}
	return in, nil
}

// instanceAspects is what of an instance can differ from what was asked for. A minor
// upgrade, which RDS makes in the window, and a disk that has grown are as they should be.
func (b *dataBuild) instanceAspects(i rdstypes.DBInstance) []pipeline.Aspect {
	e := b.spec.Engine
	groups, params := []string{}, []string{}
	for _, g := range i.VpcSecurityGroups {
		groups = append(groups, aws.ToString(g.VpcSecurityGroupId))
	}
	for _, g := range i.DBParameterGroups {
		params = append(params, aws.ToString(g.DBParameterGroupName))
	}
	subnets := "none"
	if i.DBSubnetGroup != nil {
		subnets = aws.ToString(i.DBSubnetGroup.DBSubnetGroupName)
	}
	out := []pipeline.Aspect{
		{Name: "engine", Wanted: string(e), Seen: aws.ToString(i.Engine)},
		{Name: "version", Wanted: majorOf(e, b.info.Version), Seen: majorOf(e, aws.ToString(i.EngineVersion))},
		{Name: "class", Wanted: b.info.Class, Seen: aws.ToString(i.DBInstanceClass)},
		{Name: "Multi-AZ", Wanted: onOff(b.spec.HA()), Seen: onOff(aws.ToBool(i.MultiAZ))},
		{Name: "public address", Wanted: "off", Seen: onOff(aws.ToBool(i.PubliclyAccessible))},
		{Name: "encryption", Wanted: "on", Seen: onOff(aws.ToBool(i.StorageEncrypted))},
		{Name: "deletion protection", Wanted: onOff(b.spec.Protected()), Seen: onOff(aws.ToBool(i.DeletionProtection))},
		{Name: "backup retention", Wanted: retentionText(int32(b.spec.BackupRetentionDays)), Seen: daysText(aws.ToInt32(i.BackupRetentionPeriod))},
		{Name: "subnet group", Wanted: b.info.SubnetGroup, Seen: subnets},
		{Name: "security groups", Wanted: b.info.SecurityGroupID, Seen: or(sortedList(groups), "none")},
		{Name: "parameter group", Wanted: b.info.ParameterGroup, Seen: or(sortedList(params), "none")},
		{Name: "minor upgrades", Wanted: "on", Seen: onOff(aws.ToBool(i.AutoMinorVersionUpgrade))},
		{Name: "exported logs", Wanted: sortedList(exportsOf(e)), Seen: or(sortedList(i.EnabledCloudwatchLogsExports), "none")},
	}
	return out
}

// daysText is a retention of backups in words: 0 is none at all.
func daysText(days int32) string {
	if days == 0 {
		return "none"
	}
	return retentionText(days)
}

// recordInstance keeps what RDS says of the instance that was made.
func (b *dataBuild) recordInstance(ctx context.Context, identifier string) error {
	const recorded = "datastore recorded"
	if b.r.Recall(recorded) != nil {
		return nil
	}
	i, err := b.readInstance(ctx, identifier)
	if err != nil {
		return pipeline.Unseen(plain(err), "instance "+identifier)
	}
	if i.Endpoint == nil || aws.ToString(i.Endpoint.Address) == "" {
		return pipeline.Wait(5*time.Second, "the endpoint of %s to be known", identifier)
	}
	describeInstance(b.info, i)
	have, err := b.parameters(ctx, b.info.ParameterGroup, "user")
	if err := pipeline.Unless(plain(err), pipeline.Denied, pipeline.NotFound); err != nil {
		return err
	}
	b.info.TLSRequired = tlsParameter(b.spec.Engine, have)
	b.r.Remember(recorded, true)
	return b.r.Save(ctx)
}

// describeInstance records an instance, of the job or adopted.
func describeInstance(into *job.DatastoreInfo, i rdstypes.DBInstance) {
	into.Name, into.ID, into.Engine = aws.ToString(i.DBInstanceIdentifier), aws.ToString(i.DBInstanceArn), engineOf(aws.ToString(i.Engine))
	into.Version, into.Class, into.AdminUser = aws.ToString(i.EngineVersion), aws.ToString(i.DBInstanceClass), aws.ToString(i.MasterUsername)
	if i.Endpoint != nil {
		into.Host, into.Port = aws.ToString(i.Endpoint.Address), int(aws.ToInt32(i.Endpoint.Port))
	}
	into.StorageGiB, into.HighAvailability, into.Public = int(aws.ToInt32(i.AllocatedStorage)), aws.ToBool(i.MultiAZ), aws.ToBool(i.PubliclyAccessible)
	into.Encrypted, into.DeletionProtection = aws.ToBool(i.StorageEncrypted), aws.ToBool(i.DeletionProtection)
	into.BackupRetentionDays, into.Zones = int(aws.ToInt32(i.BackupRetentionPeriod)), nil
	for _, z := range []string{aws.ToString(i.AvailabilityZone), aws.ToString(i.SecondaryAvailabilityZone)} {
		if z != "" {
			into.Zones = append(into.Zones, z)
		}
	}
	if i.MasterUserSecret != nil {
		into.SecretID = aws.ToString(i.MasterUserSecret.SecretArn)
	}
	if size, ok := classSize(into.Class); ok {
		into.VCPUs, into.MemoryGiB = size.vcpus, float64(size.memoryGiB)
	}
	if i.DBSubnetGroup != nil {
		into.SubnetGroup = aws.ToString(i.DBSubnetGroup.DBSubnetGroupName)
	}
	if len(i.DBParameterGroups) > 0 {
		into.ParameterGroup = aws.ToString(i.DBParameterGroups[0].DBParameterGroupName)
	}
	if len(i.VpcSecurityGroups) > 0 {
		into.SecurityGroupID = aws.ToString(i.VpcSecurityGroups[0].VpcSecurityGroupId)
	}
}

// engineOf is the engine behind RDS's own name for it; "" for one that is not offered.
func engineOf(name string) job.Engine {
	switch name {
	case "mysql", "aurora-mysql":
		return job.MySQL
	case "postgres", "aurora-postgresql":
		return job.Postgres
	}
	return ""
}

// replicaBlockers names the read replicas that somebody has added: deleting their
// source would cut them off (failure kind O4).
func replicaBlockers(i rdstypes.DBInstance) string {
	all := slices.Concat(i.ReadReplicaDBInstanceIdentifiers, i.ReadReplicaDBClusterIdentifiers)
	if len(all) == 0 {
		return ""
	}
	return fmt.Sprintf("it has the read replicas %s, which this job did not make; promote or delete them", sortedList(all))
}
