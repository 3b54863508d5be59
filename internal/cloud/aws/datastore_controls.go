package aws

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/rds"
	rdstypes "github.com/aws/aws-sdk-go-v2/service/rds/types"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// A dataRow is one hardening control of a datastore or cache, as it is read back.
type dataRow struct {
	id, name, source string
	read             func(*dataReport, context.Context) (finding, error)
}

// A dataReport reads the controls of one datastore or cache back.
type dataReport struct{ *dataBuild }

// rdsRows are the controls that an instance of ours holds by default, and the standby
// where one is asked for. A row that asks for nothing here has an empty finding.
var rdsRows = []dataRow{
	{"RDS-01", "address on the internet", "AWS-0180, RDS.2, CKV_AWS_17, CIS AWS 3.2.3", (*dataReport).public},
	{"RDS-02", "subnets lead to the internet", "RDS.18, RDS.46, rds_instance_inside_vpc", (*dataReport).subnetsInside},
	{"RDS-03", "who may connect", "EC2.18, EC2.19, AWS-0107", (*dataReport).clients},
	{"RDS-04", "storage is encrypted", "AWS-0080, RDS.3, CKV_AWS_16, CIS AWS 3.2.1", (*dataReport).encrypted},
	{"RDS-06", "automated backups", "AWS-0077, RDS.11, CKV_AWS_133", (*dataReport).backups},
	{"RDS-07", "deletion protection", "AWS-0177, RDS.8, CKV_AWS_293", (*dataReport).protection},
	{"RDS-08", "tags reach snapshots", "RDS.17, CKV2_AWS_60", (*dataReport).snapshotTags},
	{"RDS-09", "final snapshot, and snapshots encrypted and not public", "RDS.1, RDS.4, CKV_AWS_302", (*dataReport).snapshots},
	{"RDS-10", "standby in another zone", "RDS.5, CKV_AWS_157, CIS AWS 3.2.4", (*dataReport).standby},
	{"RDS-11", "authentication by IAM", "AWS-0176, RDS.10, CKV_AWS_161", (*dataReport).iamAuth},
	{"RDS-12", "minor upgrades by themselves", "RDS.13, CKV_AWS_226, CIS AWS 3.2.2", (*dataReport).minorUpgrades},
	{"RDS-13", "version is offered still", "rds_instance_deprecated_engine_version", (*dataReport).offered},
	{"RDS-14", "extended support, which is billed", "rds_instance_extended_support", (*dataReport).extendedSupport},
	{"RDS-15", "TLS required (rds.force_ssl)", "RDS.38, CKV2_AWS_69", forEngine(job.Postgres, effective("rds.force_ssl"))},
	{"RDS-16", "TLS required (require_secure_transport)", "RDS.39, CKV2_AWS_69", forEngine(job.MySQL, effective("require_secure_transport"))},
	{"RDS-17", "certificate of a current authority", "CKV_AWS_211, rds_instance_certificate_expiration", (*dataReport).certificate},
	{"RDS-18", "logs exported (PostgreSQL)", "RDS.9, RDS.36, CKV_AWS_129", forEngine(job.Postgres, (*dataReport).exports)},
	{"RDS-19", "logs exported (MySQL)", "RDS.9, CKV_AWS_129", forEngine(job.MySQL, (*dataReport).exports)},
	{"RDS-21", "changes and slow statements are logged", "CKV2_AWS_30", forEngine(job.Postgres, effective("log_min_duration_statement", "log_statement"))},
	{"RDS-22", "Performance Insights, kept for 7 days", "AWS-0133, CKV_AWS_353", (*dataReport).insights},
	{"RDS-25", "administrator's name", "RDS.25, rds_instance_default_admin", (*dataReport).administrator},
	{"RDS-26", "administrator's password is kept and rotated by Secrets Manager", "SecretsManager.1, SecretsManager.4", (*dataReport).managedSecret},
	{"RDS-30", "PostgreSQL is newer than the faults in log_fdw and file reads", "CKV_AWS_250, CKV_AWS_388", forEngine(job.Postgres, (*dataReport).versionFloor)},
	{"RDS-31", "files of clients (local_infile)", "mirrors GCP-0026", forEngine(job.MySQL, effective("local_infile"))},
}

// datastoreControls reads the hardening controls of a datastore or cache back. What
// could not be read is told as such, and counts neither way.
func (p *Provider) datastoreControls(ctx context.Context, r *pipeline.Run) ([]job.Control, error) {
	b, err := p.newDataBuild(r)
	if err != nil || !r.Job.Owns() {
		return nil, err
	}
	table := rdsRows
	if b.cached() {
		table = cacheRows
	}
	report := &dataReport{b}
	rows := make([]job.Control, len(table))
	var reads []func(context.Context) error
	for i, row := range table {
		reads = append(reads, func(ctx context.Context) error {
			got, err := row.read(report, ctx)
			err = plain(err)
			rows[i] = job.Control{ID: row.id, Name: row.name, Wanted: got.wanted, Seen: or(got.seen, "nothing"), Met: got.met, Source: row.source}
			switch {
			case pipeline.Is(err, pipeline.Invalid, pipeline.Denied, pipeline.NotFound):
				rows[i].Wanted, rows[i].Seen, rows[i].Met, rows[i].Unchecked = or(got.wanted, "read back"), "not read: "+err.Error(), false, true
			case err != nil:
				return fmt.Errorf("read back %s: %w", row.id, err)
			case got == finding{}:
				rows[i].ID = "" // it asks for nothing here
			}
			return nil
		})
	}
	err = pipeline.All(ctx, reads...)
	return slices.DeleteFunc(rows, func(c job.Control) bool { return c.ID == "" }), err
}

// forEngine is a row for one engine alone.
func forEngine(e job.Engine, read func(*dataReport, context.Context) (finding, error)) func(*dataReport, context.Context) (finding, error) {
	return func(d *dataReport, ctx context.Context) (finding, error) {
		if d.spec.Engine != e {
			return finding{}, nil
		}
		return read(d, ctx)
	}
}

func (d *dataReport) database(ctx context.Context) (rdstypes.DBInstance, error) {
	return d.readInstance(ctx, d.name())
}

// of reads one thing of the instance that has to be as wanted.
func (d *dataReport) of(ctx context.Context, wanted string, seen func(rdstypes.DBInstance) string) (finding, error) {
	i, err := d.database(ctx)
	if err != nil {
		return finding{wanted: wanted}, err
	}
	return equal(wanted, seen(i))
}

func (d *dataReport) public(ctx context.Context) (finding, error) {
	return d.of(ctx, "off", func(i rdstypes.DBInstance) string { return onOff(aws.ToBool(i.PubliclyAccessible)) })
}

func (d *dataReport) encrypted(ctx context.Context) (finding, error) {
	return d.of(ctx, "on", func(i rdstypes.DBInstance) string { return onOff(aws.ToBool(i.StorageEncrypted)) })
}

func (d *dataReport) snapshotTags(ctx context.Context) (finding, error) {
	return d.of(ctx, "on", func(i rdstypes.DBInstance) string { return onOff(aws.ToBool(i.CopyTagsToSnapshot)) })
}

func (d *dataReport) minorUpgrades(ctx context.Context) (finding, error) {
	return d.of(ctx, "on", func(i rdstypes.DBInstance) string { return onOff(aws.ToBool(i.AutoMinorVersionUpgrade)) })
}

// protection is asked for unless the spec asks for none: that is a choice which the
// report shows as a control that does not hold, and that has to be waived.
func (d *dataReport) protection(ctx context.Context) (finding, error) {
	return d.of(ctx, "on", func(i rdstypes.DBInstance) string { return onOff(aws.ToBool(i.DeletionProtection)) })
}

func (d *dataReport) extendedSupport(ctx context.Context) (finding, error) {
	return d.of(ctx, "open-source-rds-extended-support-disabled", func(i rdstypes.DBInstance) string { return aws.ToString(i.EngineLifecycleSupport) })
}

func (d *dataReport) exports(ctx context.Context) (finding, error) {
	want := exportsOf(d.spec.Engine)
	return d.of(ctx, sortedList(want), func(i rdstypes.DBInstance) string {
		return sortedList(slices.DeleteFunc(slices.Clone(i.EnabledCloudwatchLogsExports), func(l string) bool { return !slices.Contains(want, l) }))
	})
}

// standby is asked for where the preset or the spec has it.
func (d *dataReport) standby(ctx context.Context) (finding, error) {
	if !d.spec.HA() {
		return finding{}, nil
	}
	return d.of(ctx, "on", func(i rdstypes.DBInstance) string { return onOff(aws.ToBool(i.MultiAZ)) })
}

func (d *dataReport) backups(ctx context.Context) (finding, error) {
	i, err := d.database(ctx)
	f := finding{wanted: "kept for 7 days or more"}
	if err != nil {
		return f, err
	}
	days := aws.ToInt32(i.BackupRetentionPeriod)
	f.seen, f.met = daysText(days), days >= 7
	return f, nil
}

// iamAuth is not asked for where the class or version does not have it.
func (d *dataReport) iamAuth(ctx context.Context) (finding, error) {
	i, err := d.database(ctx)
	if err != nil {
		return finding{wanted: "on"}, err
	}
	if on := aws.ToBool(i.IAMDatabaseAuthenticationEnabled); !on {
		able, err := d.able(ctx, i, func(o rdstypes.OrderableDBInstanceOption) bool {
			return o.SupportsIAMDatabaseAuthentication == nil || *o.SupportsIAMDatabaseAuthentication
		})
		if err != nil || !able {
			return finding{}, err
		}
	}
	return equal("on", onOff(aws.ToBool(i.IAMDatabaseAuthenticationEnabled)))
}

// able reports whether an instance's class can have something.
func (d *dataReport) able(ctx context.Context, i rdstypes.DBInstance, has func(rdstypes.OrderableDBInstanceOption) bool) (bool, error) {
	options, err := d.orderable(ctx, d.spec.Engine, aws.ToString(i.EngineVersion), aws.ToString(i.DBInstanceClass))
	return slices.ContainsFunc(options, has), err
}

// insights are not asked for where the class does not have them.
func (d *dataReport) insights(ctx context.Context) (finding, error) {
	f := finding{wanted: "on, 7 days or more"}
	i, err := d.database(ctx)
	if err != nil {
		return f, err
	}
	days := aws.ToInt32(i.PerformanceInsightsRetentionPeriod)
	f.seen = onOff(aws.ToBool(i.PerformanceInsightsEnabled))
	if f.met = aws.ToBool(i.PerformanceInsightsEnabled) && days >= 7; aws.ToBool(i.PerformanceInsightsEnabled) {
		f.seen = fmt.Sprintf("on, %d days", days)
		return f, nil
	}
	able, err := d.able(ctx, i, func(o rdstypes.OrderableDBInstanceOption) bool { return aws.ToBool(o.SupportsPerformanceInsights) })
	if err == nil && !able {
		return finding{}, nil
	}
	return f, err
}

func (d *dataReport) administrator(ctx context.Context) (finding, error) {
	f := finding{wanted: "not admin, postgres or root"}
	i, err := d.database(ctx)
	if err != nil {
		return f, err
	}
	f.seen = aws.ToString(i.MasterUsername)
	f.met = f.seen != "" && !slices.Contains([]string{"admin", "postgres", "root"}, strings.ToLower(f.seen))
	return f, nil
}

// managedSecret is active, or being rotated, which is what it is for.
func (d *dataReport) managedSecret(ctx context.Context) (finding, error) {
	f := finding{wanted: "managed by RDS, active"}
	i, err := d.database(ctx)
	if err != nil {
		return f, err
	}
	f.seen = "none"
	if s := i.MasterUserSecret; s != nil {
		f.seen = "managed by RDS, " + aws.ToString(s.SecretStatus)
		f.met = slices.Contains([]string{"active", "rotating"}, aws.ToString(s.SecretStatus))
	}
	return f, nil
}

func (d *dataReport) certificate(ctx context.Context) (finding, error) {
	f := finding{wanted: "of a …-g1 authority, good for 3 months or more"}
	i, err := d.database(ctx)
	if err != nil {
		return f, err
	}
	f.seen = or(aws.ToString(i.CACertificateIdentifier), "none")
	f.met = strings.HasSuffix(f.seen, "-g1")
	if c := i.CertificateDetails; c != nil && c.ValidTill != nil {
		f.seen += ", until " + c.ValidTill.UTC().Format("2006-01-02")
		f.met = f.met && c.ValidTill.After(d.r.Now().AddDate(0, 3, 0))
	}
	return f, nil
}

func (d *dataReport) offered(ctx context.Context) (finding, error) {
	f := finding{wanted: "available"}
	i, err := d.database(ctx)
	if err != nil {
		return f, err
	}
	out, err := d.rds.DescribeDBEngineVersions(ctx, &rds.DescribeDBEngineVersionsInput{Engine: i.Engine, EngineVersion: i.EngineVersion, IncludeAll: aws.Bool(true)})
	if err != nil {
		return f, err
	}
	f.seen = aws.ToString(i.EngineVersion) + ", no longer listed"
	for _, v := range out.DBEngineVersions {
		if aws.ToString(v.EngineVersion) == aws.ToString(i.EngineVersion) {
			status := or(aws.ToString(v.Status), "available")
			f.seen, f.met = aws.ToString(i.EngineVersion)+", "+status, status == "available"
		}
	}
	return f, nil
}

// fixedVersions are the minor versions from which a major one is free of the faults in
// log_fdw and in reading local files (security bulletin AWS-2022-004, CKV_AWS_250); the
// majors after them never had these.
var fixedVersions = map[string]string{"9": "9.6.20", "10": "10.15", "11": "11.10", "12": "12.5", "13": "13.3"}

func (d *dataReport) versionFloor(ctx context.Context) (finding, error) {
	f := finding{wanted: "13.3 or newer"}
	i, err := d.database(ctx)
	if err != nil {
		return f, err
	}
	f.seen = aws.ToString(i.EngineVersion)
	floor, old := fixedVersions[majorOf(job.Postgres, f.seen)]
	if old {
		f.wanted = floor + " or newer"
	}
	f.met = f.seen != "" && (!old || compareVersions(f.seen, floor) >= 0)
	return f, nil
}

// effective reads parameters from the group that the instance has, whichever that is,
// with the engine's own values for what nobody set; one that waits for a restart is not
// in force.
func effective(names ...string) func(*dataReport, context.Context) (finding, error) {
	return func(d *dataReport, ctx context.Context) (finding, error) {
		var want []parameter
		for _, p := range parametersOf(d.spec.Engine) {
			if slices.Contains(names, p.name) {
				want = append(want, p)
			}
		}
		f := finding{wanted: parameterText(want)}
		i, err := d.database(ctx)
		if err != nil {
			return f, err
		}
		if len(i.DBParameterGroups) == 0 {
			f.seen = "no parameter group"
			return f, nil
		}
		g := i.DBParameterGroups[0]
		have, err := d.parameters(ctx, aws.ToString(g.DBParameterGroupName), "")
		if err != nil {
			return f, err
		}
		f.seen = parameterText(pick(want, have))
		f.met = f.seen == f.wanted
		if s := aws.ToString(g.ParameterApplyStatus); s != "" && s != "in-sync" {
			f.seen, f.met = f.seen+" ("+s+")", false
		}
		return f, nil
	}
}
