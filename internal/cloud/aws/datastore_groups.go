package aws

import (
	"context"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/rds"
	rdstypes "github.com/aws/aws-sdk-go-v2/service/rds/types"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// groupLines wants lines into a group, and none out of it.
func groupLines(p *Provider, r *pipeline.Run, in []line) func(context.Context, ec2types.SecurityGroup) (pipeline.Seen, error) {
	return func(_ context.Context, g ec2types.SecurityGroup) (pipeline.Seen, error) {
		s := pipeline.Seen{Status: pipeline.Ready}
		if r.Down {
			return s, nil
		}
		id := aws.ToString(g.GroupId)
		s.Aspects = []pipeline.Aspect{
			p.lineAspect(r.Mode, ingress, id, ingress, in, linesOf(g.IpPermissions)),
			p.lineAspect(r.Mode, egress, id, egress, nil, linesOf(g.IpPermissionsEgress)),
		}
		return s, nil
	}
}

func rdsTags(marks map[string]string) []rdstypes.Tag {
	return tagList(marks, func(k, v *string) rdstypes.Tag { return rdstypes.Tag{Key: k, Value: v} })
}

func rdsMarks(all []rdstypes.Tag) map[string]string {
	return tagMarks(all, func(t rdstypes.Tag) (*string, *string) { return t.Key, t.Value })
}

// rdsMark is whose mark an object of RDS carries whose description holds no tags.
func (p *Provider) rdsMark(ctx context.Context, arn string) (string, error) {
	return lookup.Once(ctx, "tags of "+arn, func(ctx context.Context) (string, error) {
		out, err := p.rds.ListTagsForResource(ctx, &rds.ListTagsForResourceInput{ResourceName: aws.String(arn)})
		if err != nil {
			return "", err
		}
		return eksMark(rdsMarks(out.TagList)), nil
	})
}

func (p *Provider) readDBSubnetGroup(ctx context.Context, group string) (rdstypes.DBSubnetGroup, error) {
	return lookup.Once(ctx, kindDBSubnetGroup+" "+group, func(ctx context.Context) (rdstypes.DBSubnetGroup, error) {
		out, err := p.rds.DescribeDBSubnetGroups(ctx, &rds.DescribeDBSubnetGroupsInput{DBSubnetGroupName: aws.String(group)})
		if err != nil {
			return rdstypes.DBSubnetGroup{}, err
		}
		if len(out.DBSubnetGroups) == 0 {
			return rdstypes.DBSubnetGroup{}, absent("RDS", "DescribeDBSubnetGroups", "subnet group "+group)
		}
		return out.DBSubnetGroups[0], nil
	})
}

// dbSubnetGroup is the subnets that RDS may place the instance in ("Working with a DB
// instance in a VPC"): two zones at least.
func (b *dataBuild) dbSubnetGroup() pipeline.Resource {
	subnets := b.subnets()
	x := pipeline.Resource{Kind: kindDBSubnetGroup, Key: subnetGroupKey, Name: name(b.r, "subnets", 200), Args: subnets}
	x.Get = func(ctx context.Context, _ string) (pipeline.Seen, error) {
		g, err := b.readDBSubnetGroup(ctx, x.Name)
		if err != nil {
			return pipeline.Seen{}, err
		}
		s := pipeline.Seen{ID: aws.ToString(g.DBSubnetGroupArn), Status: pipeline.Ready, Reason: aws.ToString(g.SubnetGroupStatus)}
		if s.Owner, err = b.rdsMark(ctx, s.ID); err != nil || b.r.Mode != pipeline.Verify {
			return s, err
		}
		var in []string
		for _, sub := range g.Subnets {
			in = append(in, aws.ToString(sub.SubnetIdentifier))
		}
		s.Aspects = []pipeline.Aspect{{Name: "subnets", Wanted: sortedList(subnets), Seen: sortedList(in)}}
		return s, nil
	}
	x.Find = eksNamed(b.r, x)
	x.Create = func(ctx context.Context, _ string) (pipeline.Seen, error) {
		out, err := b.rds.CreateDBSubnetGroup(ctx, &rds.CreateDBSubnetGroupInput{
			DBSubnetGroupName: aws.String(x.Name), DBSubnetGroupDescription: aws.String("Subnets of " + b.r.Job.Name), SubnetIds: subnets,
			Tags: rdsTags(tags(b.r, x.Key, x.Name)),
		})
		if err != nil || out.DBSubnetGroup == nil {
			return pipeline.Seen{}, err
		}
		return pipeline.Seen{ID: aws.ToString(out.DBSubnetGroup.DBSubnetGroupArn), Owner: b.r.Job.ID, Status: pipeline.Ready}, nil
	}
	x.Delete = func(ctx context.Context, _ string) error {
		_, err := b.rds.DeleteDBSubnetGroup(ctx, &rds.DeleteDBSubnetGroupInput{DBSubnetGroupName: aws.String(x.Name)})
		return err
	}
	x.Blockers = func(ctx context.Context, _ string) (string, error) {
		return b.instancesWith(ctx, "the subnet group", func(i rdstypes.DBInstance) bool {
			return i.DBSubnetGroup != nil && aws.ToString(i.DBSubnetGroup.DBSubnetGroupName) == x.Name
		})
	}
	return tidy(x)
}

// instancesWith names the instances of others that use an object of the job.
func (b *dataBuild) instancesWith(ctx context.Context, what string, uses func(rdstypes.DBInstance) bool) (string, error) {
	all, err := b.allInstances(ctx)
	if err != nil {
		return "", err
	}
	var names []string
	for _, i := range all {
		if uses(i) && eksMark(rdsMarks(i.TagList)) != b.r.Job.ID {
			names = append(names, aws.ToString(i.DBInstanceIdentifier))
		}
	}
	if len(names) == 0 {
		return "", nil
	}
	return what + " is in use by " + sortedList(names) + ", which this job did not make; move or remove it", nil
}

// A parameter is one setting of an engine that its default group does not have.
type parameter struct{ name, value string }

// parametersOf are the parameters of an engine: TLS required, no files of clients,
// and what is logged of changes and slow statements (controls RDS-15, 16, 21, 31).
// MySQL writes its slow log to a file, or none is exported ("Publishing MySQL logs to
// Amazon CloudWatch Logs").
func parametersOf(e job.Engine) []parameter {
	if e == job.MySQL {
		return []parameter{{"local_infile", "0"}, {"log_output", "FILE"}, {"long_query_time", "1"}, {"require_secure_transport", "1"}, {"slow_query_log", "1"}}
	}
	return []parameter{{"log_min_duration_statement", "1000"}, {"log_statement", "ddl"}, {"rds.force_ssl", "1"}}
}

func parameterText(ps []parameter) string {
	var out []string
	for _, p := range ps {
		out = append(out, p.name+"="+p.value)
	}
	return or(sortedList(out), "none")
}

// parameterFamily is the family of a version's parameter groups: the major version,
// which for MySQL has two parts ("DescribeDBEngineVersions").
func parameterFamily(e job.Engine, version string) string { return string(e) + majorOf(e, version) }

func majorOf(e job.Engine, version string) string {
	part := strings.Split(version, ".")
	if e == job.MySQL && len(part) > 1 {
		return part[0] + "." + part[1]
	}
	return part[0]
}

func (p *Provider) readParameterGroup(ctx context.Context, group string) (rdstypes.DBParameterGroup, error) {
	return lookup.Once(ctx, kindDBParameterGroup+" "+group, func(ctx context.Context) (rdstypes.DBParameterGroup, error) {
		out, err := p.rds.DescribeDBParameterGroups(ctx, &rds.DescribeDBParameterGroupsInput{DBParameterGroupName: aws.String(group)})
		if err != nil {
			return rdstypes.DBParameterGroup{}, err
		}
		if len(out.DBParameterGroups) == 0 {
			return rdstypes.DBParameterGroup{}, absent("RDS", "DescribeDBParameterGroups", "parameter group "+group)
		}
		return out.DBParameterGroups[0], nil
	})
}

// parameters are the values in a group: those that somebody set, or all.
func (p *Provider) parameters(ctx context.Context, group, source string) (map[string]string, error) {
	return lookup.Once(ctx, "parameters "+group+" "+source, func(ctx context.Context) (map[string]string, error) {
		all, err := lookup.Pages(ctx, func(ctx context.Context, token *string) ([]rdstypes.Parameter, *string, error) {
			in := &rds.DescribeDBParametersInput{DBParameterGroupName: aws.String(group), Marker: token}
			if source != "" {
				in.Source = aws.String(source)
			}
			out, err := p.rds.DescribeDBParameters(ctx, in)
			if err != nil {
				return nil, nil, err
			}
			return out.Parameters, out.Marker, nil
		})
		m := map[string]string{}
		for _, x := range all {
			m[aws.ToString(x.ParameterName)] = aws.ToString(x.ParameterValue)
		}
		return m, err
	})
}

// pick is what a map of values has of wanted parameters.
func pick(want []parameter, have map[string]string) []parameter {
	var out []parameter
	for _, p := range want {
		if v, ok := have[p.name]; ok {
			out = append(out, parameter{p.name, v})
		}
	}
	return out
}

// parameterGroup holds the engine's parameters. They are set while no instance uses
// the group; what somebody changes in it later is told and not put back.
func (b *dataBuild) parameterGroup() pipeline.Resource {
	want := parametersOf(b.spec.Engine)
	family := parameterFamily(b.spec.Engine, b.info.Version)
	x := pipeline.Resource{Kind: kindDBParameterGroup, Key: parameterGroupKey, Name: name(b.r, "params", 200), Args: []any{family, parameterText(want)}}
	aspect := func(have map[string]string) pipeline.Aspect {
		return pipeline.Aspect{Name: "parameters", Wanted: parameterText(want), Seen: parameterText(pick(want, have)), Set: func(ctx context.Context) error {
			return b.setParameters(ctx, x.Name, want)
		}}
	}
	x.Get = func(ctx context.Context, _ string) (pipeline.Seen, error) {
		g, err := b.readParameterGroup(ctx, x.Name)
		if err != nil {
			return pipeline.Seen{}, err
		}
		s := pipeline.Seen{ID: aws.ToString(g.DBParameterGroupArn), Status: pipeline.Ready}
		if s.Owner, err = b.rdsMark(ctx, s.ID); err != nil || b.r.Down || b.r.Mode == pipeline.Apply && madeID(b.r, kindDBInstance, datastoreKey) != "" {
			return s, err
		}
		have, err := b.parameters(ctx, x.Name, "user")
		s.Aspects = []pipeline.Aspect{aspect(have)}
		return s, err
	}
	x.Find = eksNamed(b.r, x)
	x.Create = func(ctx context.Context, _ string) (pipeline.Seen, error) {
		out, err := b.rds.CreateDBParameterGroup(ctx, &rds.CreateDBParameterGroupInput{
			DBParameterGroupName: aws.String(x.Name), DBParameterGroupFamily: aws.String(family),
			Description: aws.String("Parameters of " + b.r.Job.Name), Tags: rdsTags(tags(b.r, x.Key, x.Name)),
		})
		if err != nil || out.DBParameterGroup == nil {
			return pipeline.Seen{}, err
		}
		return pipeline.Seen{ID: aws.ToString(out.DBParameterGroup.DBParameterGroupArn), Owner: b.r.Job.ID, Status: pipeline.Ready, Aspects: []pipeline.Aspect{aspect(nil)}}, nil
	}
	x.Delete = func(ctx context.Context, _ string) error {
		_, err := b.rds.DeleteDBParameterGroup(ctx, &rds.DeleteDBParameterGroupInput{DBParameterGroupName: aws.String(x.Name)})
		return err
	}
	x.Blockers = func(ctx context.Context, _ string) (string, error) {
		return b.instancesWith(ctx, "the parameter group", func(i rdstypes.DBInstance) bool {
			return slices.ContainsFunc(i.DBParameterGroups, func(g rdstypes.DBParameterGroupStatus) bool { return aws.ToString(g.DBParameterGroupName) == x.Name })
		})
	}
	return tidy(x)
}

// setParameters writes parameters into a group that nothing uses yet: an instance that
// starts with it has them from its first second, static ones too.
func (b *dataBuild) setParameters(ctx context.Context, group string, want []parameter) error {
	var ps []rdstypes.Parameter
	for _, p := range want {
		ps = append(ps, rdstypes.Parameter{ParameterName: aws.String(p.name), ParameterValue: aws.String(p.value), ApplyMethod: rdstypes.ApplyMethodPendingReboot})
	}
	_, err := b.rds.ModifyDBParameterGroup(ctx, &rds.ModifyDBParameterGroupInput{DBParameterGroupName: aws.String(group), Parameters: ps})
	return err
}
