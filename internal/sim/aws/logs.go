package aws

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	logs "github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs/types"

	"github.com/zopday/provisioner/internal/sim"
)

// LogsState is what CloudWatch Logs keeps, by account and region.
type LogsState struct {
	Scopes map[string]map[string]*LogGroup // by name
}

// LogGroup holds the log streams of one source; the streams themselves are not simulated.
type LogGroup struct {
	Account, Region, Name, Class string
	Created                      time.Time
	Retention                    int32 // days; 0 keeps them for ever
	KmsKeyID                     string
	Tags                         map[string]string
}

func (g *LogGroup) arn() string { return arn("logs", g.Region, g.Account, "log-group:"+g.Name) }

// logsService is Amazon CloudWatch Logs.
type logsService struct {
	cloud *Cloud
	state *LogsState
}

func newLogs(c *Cloud) *logsService {
	s := &logsService{cloud: c, state: &LogsState{}}
	c.World.Register(s)
	c.add(&api{
		service: "logs", sdkPrefix: "Logs_20140328", protocol: jsonProtocol, version: "2014-03-28",
		ops: overJSON(map[string]typedOp{
			"CreateLogGroup": op(s.createGroup), "DeleteLogGroup": op(s.deleteGroup), "DescribeLogGroups": op(s.describeGroups),
			"PutRetentionPolicy": op(s.putRetention), "DeleteRetentionPolicy": op(s.deleteRetention), "DescribeLogStreams": op(s.describeStreams),
			"AssociateKmsKey": op(s.associateKey), "DisassociateKmsKey": op(s.disassociateKey),
			"ListTagsForResource": op(s.listTags), "TagResource": op(s.tag), "UntagResource": op(s.untag),
		}),
		encode: encodeJSONCamel, hollow: true,
	})
	return s
}

// Cloud implements sim.Service.
func (s *logsService) Cloud() string { return "aws" }

// Name implements sim.Service.
func (s *logsService) Name() string { return "logs" }

// State implements sim.Service.
func (s *logsService) State() any { return s.state }

// Reset implements sim.Service.
func (s *logsService) Reset() { s.state.Scopes = map[string]map[string]*LogGroup{} }

// Event implements sim.Service.
func (s *logsService) Event(string, string) {}

// Objects implements sim.Service.
func (s *logsService) Objects() []sim.Object {
	var out []sim.Object
	for _, where := range sortedKeys(s.state.Scopes) {
		for _, name := range sortedKeys(s.state.Scopes[where]) {
			g := s.state.Scopes[where][name]
			out = append(out, sim.Object{Account: g.Account, Region: g.Region, Kind: "log-group", ID: g.Name, ARN: g.arn(), Name: g.Name, Tags: g.Tags, Data: g})
		}
	}
	return out
}

// SetState implements sim.Service.
func (s *logsService) SetState(id, _, _, _ string) error {
	return fmt.Errorf("%s: log groups have no states", id)
}

// Remove implements sim.Service.
func (s *logsService) Remove(id string) error {
	for _, groups := range s.state.Scopes {
		if groups[id] != nil {
			delete(groups, id)
			return nil
		}
	}
	return fmt.Errorf("%s: no such log group", id)
}

func (s *logsService) groups(c *reqCtx) map[string]*LogGroup {
	key := c.scope().key()
	if s.state.Scopes[key] == nil {
		s.state.Scopes[key] = map[string]*LogGroup{}
	}
	return s.state.Scopes[key]
}

func (s *logsService) group(c *reqCtx, name *string) (*LogGroup, error) {
	g := s.groups(c)[deref(name)]
	if g == nil {
		return nil, refuse("ResourceNotFoundException", "The specified log group does not exist.")
	}
	c.Touch(g.Name)
	return g, nil
}

// logGroupName: "Log group names can be between 1 and 512 characters long" and consist of these (CreateLogGroup).
var logGroupName = regexp.MustCompile(`^[.\-_/#A-Za-z0-9]{1,512}$`)

func (s *logsService) createGroup(c *reqCtx, in *logs.CreateLogGroupInput) (*logs.CreateLogGroupOutput, error) {
	name := deref(in.LogGroupName)
	switch {
	case !logGroupName.MatchString(name):
		return nil, refuse("InvalidParameterException", `1 validation error detected: Value '%s' at 'logGroupName' failed to satisfy constraint: Member must satisfy regular expression pattern: [\.\-_/#A-Za-z0-9]+`, name)
	case strings.HasPrefix(name, "aws/"):
		return nil, refuse("InvalidParameterException", "Log groups starting with AWS/ are reserved for AWS.")
	case s.groups(c)[name] != nil:
		return nil, refuse("ResourceAlreadyExistsException", "The specified log group already exists")
	case in.KmsKeyId != nil && s.checkKey(c, name, in.KmsKeyId) != nil:
		return nil, s.checkKey(c, name, in.KmsKeyId)
	case len(in.Tags) > 50:
		return nil, refuse("InvalidParameterException", "1 validation error detected: Value at 'tags' failed to satisfy constraint: Map value must satisfy constraint: [Member must have length less than or equal to 50]")
	}
	tags := map[string]string{}
	maps.Copy(tags, in.Tags)
	s.groups(c)[name] = &LogGroup{Account: c.account, Region: c.region, Name: name, Class: orText(string(in.LogGroupClass), "STANDARD"), Created: c.now, KmsKeyID: deref(in.KmsKeyId), Tags: tags}
	c.Make(name)
	return &logs.CreateLogGroupOutput{}, nil
}

func (s *logsService) deleteGroup(c *reqCtx, in *logs.DeleteLogGroupInput) (*logs.DeleteLogGroupOutput, error) {
	g, err := s.group(c, in.LogGroupName)
	if err != nil {
		return nil, err
	}
	delete(s.groups(c), g.Name)
	for _, gone := range s.cloud.hooks.logGroupDeleted {
		gone(c.scope(), g.Name)
	}
	return &logs.DeleteLogGroupOutput{}, nil
}

func (s *logsService) describeGroups(c *reqCtx, in *logs.DescribeLogGroupsInput) (*logs.DescribeLogGroupsOutput, error) {
	limit := int(orDefault(in.Limit, 50))
	if limit < 1 || limit > 50 {
		return nil, refuse("InvalidParameterException", "1 validation error detected: Value '%d' at 'limit' failed to satisfy constraint: Member must have value less than or equal to 50", limit)
	}
	var all []types.LogGroup
	for _, name := range sortedKeys(s.groups(c)) {
		g := s.groups(c)[name]
		if !strings.HasPrefix(name, deref(in.LogGroupNamePrefix)) || in.LogGroupNamePattern != nil && !strings.Contains(name, *in.LogGroupNamePattern) ||
			!c.visible(name, g.Created, true, "log-group", name) {
			continue
		}
		out := types.LogGroup{LogGroupName: &g.Name, Arn: new(g.arn() + ":*"), LogGroupArn: new(g.arn()), CreationTime: new(g.Created.UnixMilli()),
			MetricFilterCount: new(int32(0)), StoredBytes: new(int64(0)), LogGroupClass: types.LogGroupClass(g.Class)}
		if g.Retention > 0 {
			out.RetentionInDays = &g.Retention
		}
		if g.KmsKeyID != "" {
			out.KmsKeyId = &g.KmsKeyID
		}
		all = append(all, out)
	}
	page, next, err := pageOf(c, all, in.NextToken, limit)
	if err != nil {
		return nil, refuse("InvalidParameterException", "The specified nextToken is invalid.")
	}
	return &logs.DescribeLogGroupsOutput{LogGroups: page, NextToken: next}, nil
}

// retentions are the days that a group can keep its events for ("PutRetentionPolicy").
var retentions = []int32{1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653}

func (s *logsService) putRetention(c *reqCtx, in *logs.PutRetentionPolicyInput) (*logs.PutRetentionPolicyOutput, error) {
	g, err := s.group(c, in.LogGroupName)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(retentions, deref(in.RetentionInDays)) {
		return nil, refuse("InvalidParameterException", "1 validation error detected: Value '%d' at 'retentionInDays' failed to satisfy constraint: Member must satisfy enum value set: %v", deref(in.RetentionInDays), retentions)
	}
	g.Retention = *in.RetentionInDays
	return &logs.PutRetentionPolicyOutput{}, nil
}

func (s *logsService) deleteRetention(c *reqCtx, in *logs.DeleteRetentionPolicyInput) (*logs.DeleteRetentionPolicyOutput, error) {
	g, err := s.group(c, in.LogGroupName)
	if err != nil {
		return nil, err
	}
	g.Retention = 0
	return &logs.DeleteRetentionPolicyOutput{}, nil
}

func (s *logsService) describeStreams(c *reqCtx, in *logs.DescribeLogStreamsInput) (*logs.DescribeLogStreamsOutput, error) {
	if _, err := s.group(c, in.LogGroupName); err != nil {
		return nil, err
	}
	return &logs.DescribeLogStreamsOutput{LogStreams: []types.LogStream{}}, nil
}

// checkKey refuses a key that log groups cannot be encrypted with: one that is not there, not enabled, or whose policy does
// not let CloudWatch Logs of the region use it ("Encrypt log data in CloudWatch Logs using AWS KMS").
func (s *logsService) checkKey(c *reqCtx, group string, ref *string) error {
	key := s.cloud.platform.kms.lookup(c.scope(), deref(ref))
	if key != nil && key.State == keyEnabled && strings.Contains(key.Policy, "logs."+c.region+".amazonaws.com") {
		return nil
	}
	return refuse("InvalidParameterException", "The specified KMS key does not exist or is not allowed to be used with Arn '%s'", c.regionalARN("logs", "log-group:"+group))
}

func (s *logsService) associateKey(c *reqCtx, in *logs.AssociateKmsKeyInput) (*logs.AssociateKmsKeyOutput, error) {
	g, err := s.group(c, in.LogGroupName)
	if err != nil {
		return nil, err
	}
	if err := s.checkKey(c, g.Name, in.KmsKeyId); err != nil {
		return nil, err
	}
	g.KmsKeyID = *in.KmsKeyId
	return &logs.AssociateKmsKeyOutput{}, nil
}

func (s *logsService) disassociateKey(c *reqCtx, in *logs.DisassociateKmsKeyInput) (*logs.DisassociateKmsKeyOutput, error) {
	g, err := s.group(c, in.LogGroupName)
	if err != nil {
		return nil, err
	}
	g.KmsKeyID = ""
	return &logs.DisassociateKmsKeyOutput{}, nil
}

// tagged finds a group by its ARN.
func (s *logsService) tagged(c *reqCtx, resource *string) (*LogGroup, error) {
	name, ok := strings.CutPrefix(deref(resource), c.regionalARN("logs", "log-group:"))
	if !ok || strings.HasSuffix(name, ":*") {
		return nil, refuse("InvalidParameterException", "The specified resource ARN is invalid.")
	}
	g := s.groups(c)[name]
	if g == nil {
		return nil, refuse("ResourceNotFoundException", "The specified resource does not exist.")
	}
	c.Touch(g.Name)
	return g, nil
}

func (s *logsService) listTags(c *reqCtx, in *logs.ListTagsForResourceInput) (*logs.ListTagsForResourceOutput, error) {
	g, err := s.tagged(c, in.ResourceArn)
	if err != nil {
		return nil, err
	}
	return &logs.ListTagsForResourceOutput{Tags: g.Tags}, nil
}

func (s *logsService) tag(c *reqCtx, in *logs.TagResourceInput) (*logs.TagResourceOutput, error) {
	g, err := s.tagged(c, in.ResourceArn)
	if err != nil {
		return nil, err
	}
	maps.Copy(g.Tags, in.Tags)
	if len(g.Tags) > 50 {
		return nil, refuse("TooManyTagsException", "The resource has more than 50 tags.")
	}
	return &logs.TagResourceOutput{}, nil
}

func (s *logsService) untag(c *reqCtx, in *logs.UntagResourceInput) (*logs.UntagResourceOutput, error) {
	g, err := s.tagged(c, in.ResourceArn)
	if err != nil {
		return nil, err
	}
	for _, k := range in.TagKeys {
		delete(g.Tags, k)
	}
	return &logs.UntagResourceOutput{}, nil
}

// ensure makes a log group for a service that has something to log; it has neither tags nor a retention.
func (s *logsService) ensure(in scope, name string) {
	if s.state.Scopes[in.key()] == nil {
		s.state.Scopes[in.key()] = map[string]*LogGroup{}
	}
	if groups := s.state.Scopes[in.key()]; groups[name] == nil {
		groups[name] = &LogGroup{Account: in.Account, Region: in.Region, Name: name, Class: "STANDARD", Created: s.cloud.World.Now(), Tags: map[string]string{}}
	}
}
