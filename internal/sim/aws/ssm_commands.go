package aws

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/ssm/types"
)

// How much of a command's output Run Command keeps ("GetCommandInvocation", "ListCommandInvocations", AWS Systems Manager
// API reference).
const (
	maxStdout       = 24000
	maxStderr       = 8000
	maxPluginOutput = 2500
	truncationMark  = "--output truncated--"
)

const shellDocument = "AWS-RunShellScript"

// operations is the API of Systems Manager.
func (s *ssmService) operations() map[string]typedOp {
	return map[string]typedOp{
		"SendCommand": op(s.sendCommand), "GetCommandInvocation": op(s.getCommandInvocation), "ListCommands": op(s.listCommands),
		"ListCommandInvocations": op(s.listCommandInvocations), "CancelCommand": op(s.cancelCommand),
		"DescribeInstanceInformation": op(s.describeInstanceInformation), "DescribeSessions": op(s.describeSessions),
		"GetConnectionStatus": op(s.getConnectionStatus), "GetDocument": op(s.getDocument), "ListDocuments": op(s.listDocuments),
		"GetParameter": op(s.getParameter), "GetParameters": op(s.getParameters), "GetParametersByPath": op(s.getParametersByPath),
		"PutParameter": op(s.putParameter), "DeleteParameter": op(s.deleteParameter), "DeleteParameters": op(s.deleteParameters),
		"DescribeParameters": op(s.describeParameters),
	}
}

func invalidParam(format string, args ...any) error {
	return fail(400, "ValidationException", format, args...)
}

// commandTargets resolves the instances that a command is for. Unlike instance IDs, targets that are not ready are left
// out silently ("Using targets and rate controls to send commands to a fleet").
func (s *ssmService) commandTargets(c *reqCtx, in *ssm.SendCommandInput) ([]string, error) {
	if len(in.InstanceIds) > 0 {
		seen := map[string]bool{}
		var bad []string
		for _, id := range in.InstanceIds {
			if seen[id] {
				return nil, fail(400, "DuplicateInstanceId", "")
			}
			seen[id] = true
			if m, ok := s.cloud.machine(c.scope(), id); !ok || !m.agentOnline() {
				bad = append(bad, id)
			}
		}
		if len(bad) > 0 {
			// An instance whose agent has not registered is as good as unknown.
			return nil, fail(400, "InvalidInstanceId", "Instances [[%s]] not in a valid state for account %s", strings.Join(bad, ", "), c.account)
		}
		return in.InstanceIds, nil
	}
	if len(in.Targets) == 0 {
		return nil, fail(400, "InvalidInstanceId", "Either InstanceIds or Targets must be provided.")
	}
	var ids []string
	for _, m := range s.cloud.machines(c.scope()) {
		match := m.agentOnline()
		for _, t := range in.Targets {
			match = match && m.targeted(deref(t.Key), t.Values)
		}
		if match {
			ids = append(ids, m.ID)
		}
	}
	return ids, nil
}

func checkCommand(in *ssm.SendCommandInput) error {
	if in.DocumentName == nil {
		return invalidParam("1 validation error detected: Value null at 'documentName' failed to satisfy constraint: Member must not be null")
	}
	if len(in.InstanceIds) > 50 {
		return invalidParam("1 validation error detected: Value at 'instanceIds' failed to satisfy constraint: Member must have length less than or equal to 50")
	}
	if n := len(deref(in.Comment)); n > 100 {
		return invalidParam("1 validation error detected: Value '%s' at 'comment' failed to satisfy constraint: Member must have length less than or equal to 100", *in.Comment)
	}
	if t := orDefault(in.TimeoutSeconds, 3600); t < 30 || t > 2592000 {
		return invalidParam("1 validation error detected: Value '%d' at 'timeoutSeconds' failed to satisfy constraint: Member must have value between 30 and 2592000", t)
	}
	if name := *in.DocumentName; name != shellDocument && !strings.HasSuffix(name, ":document/"+shellDocument) {
		return fail(400, "InvalidDocument", "Document with name %s does not exist.", name)
	}
	for name := range in.Parameters {
		if !slices.Contains([]string{"commands", "workingDirectory", "executionTimeout"}, name) {
			return fail(400, "InvalidParameters", "Parameter \"%s\" is not defined in the document.", name)
		}
	}
	if len(in.Parameters["commands"]) == 0 {
		return fail(400, "InvalidParameters", "Parameter \"commands\" requires a value.")
	}
	if t := in.Parameters["executionTimeout"]; len(t) > 0 {
		if n, err := strconv.Atoi(t[0]); err != nil || n < 1 || n > 172800 {
			return fail(400, "InvalidParameters", "Parameter \"executionTimeout\" does not match the allowed pattern.")
		}
	}
	return nil
}

func (s *ssmService) sendCommand(c *reqCtx, in *ssm.SendCommandInput) (*ssm.SendCommandOutput, error) {
	if err := checkCommand(in); err != nil {
		return nil, err
	}
	ids, err := s.commandTargets(c, in)
	if err != nil {
		return nil, err
	}
	cmd := &SSMCommand{
		ID: c.w.UUID(), Document: shellDocument, Version: deref(in.DocumentVersion), Comment: deref(in.Comment), Parameters: in.Parameters,
		InstanceIDs: in.InstanceIds, Targets: map[string][]string{}, MaxConcurrency: orDefault(in.MaxConcurrency, "50"),
		MaxErrors: orDefault(in.MaxErrors, "0"), Requested: c.now, Timeout: orDefault(in.TimeoutSeconds, 3600),
		Invocations: map[string]*SSMInvocation{}, Order: ids,
	}
	for _, t := range in.Targets {
		cmd.Targets[deref(t.Key)] = t.Values
	}
	sc := s.state.in(c.scope())
	sc.Commands[cmd.ID] = cmd
	sc.Order = append(sc.Order, cmd.ID)
	sc.forget(c.now)
	c.Make(cmd.ID)
	c.Touch(ids...)
	for _, id := range ids {
		cmd.Invocations[id] = &SSMInvocation{InstanceID: id, Status: "Pending", Details: "Pending", Code: -1}
		key := strings.Join([]string{c.scope().key(), cmd.ID, id}, "|")
		s.cloud.after(time.Duration((0.3+c.w.Fraction("deliver", key))*float64(time.Second)), "ssm", "deliver", key)
		s.cloud.after(time.Duration(cmd.Timeout)*time.Second, "ssm", "expire", key)
	}
	out := cmd.sdk()
	return &ssm.SendCommandOutput{Command: &out}, nil
}

// deliver starts a command on an instance, or waits on while its agent is away.
func (s *ssmService) deliver(sc scope, cmd *SSMCommand, iv *SSMInvocation, key string) {
	m, ok := s.cloud.machine(sc, iv.InstanceID)
	if !ok || !m.agentOnline() {
		s.cloud.after(5*time.Second, "ssm", "deliver", key)
		return
	}
	iv.Status, iv.Details, iv.Started = "InProgress", "InProgress", s.cloud.World.Now()
	s.carryOut(sc, cmd, iv, key)
}

// forget drops commands after 30 days ("Understanding command statuses": the history is kept for so long).
func (sc *SSMScope) forget(now time.Time) {
	sc.Order = slices.DeleteFunc(sc.Order, func(id string) bool {
		old := now.Sub(sc.Commands[id].Requested) > 30*24*time.Hour
		if old {
			delete(sc.Commands, id)
		}
		return old
	})
}

func (cmd *SSMCommand) script() string { return strings.Join(cmd.Parameters["commands"], "\n") }

// limit is how long a command may run.
func (cmd *SSMCommand) limit() time.Duration {
	if t := cmd.Parameters["executionTimeout"]; len(t) > 0 {
		n, _ := strconv.Atoi(t[0]) // checked when the command was sent
		return time.Duration(n) * time.Second
	}
	return time.Hour
}

// carryOut runs a command on an instance. A script that waits for something while the system is still starting up goes
// on waiting until it is up, and then sees what the start has brought.
func (s *ssmService) carryOut(sc scope, cmd *SSMCommand, iv *SSMInvocation, key string) {
	now := s.cloud.World.Now()
	spent := now.Sub(iv.Started)
	if s.cloud.booting(sc, iv.InstanceID) {
		if iv.Patience.IsZero() {
			iv.Patience = now.Add(min(s.cloud.rehearse(sc, iv.InstanceID, cmd.script()), cmd.limit()))
		}
		if iv.Patience.Sub(now) > time.Second {
			s.cloud.after(time.Second, "ssm", "again", key)
			return
		}
	}
	run := s.cloud.runScript(sc, iv.InstanceID, cmd.script())
	iv.ResultStatus, iv.ResultDetails, iv.ResultCode = "Success", "Success", int32(run.exit)
	iv.ResultStdout, iv.ResultStderr = truncate(run.stdout, maxStdout), run.stderr
	left := cmd.limit() - spent
	switch {
	case run.took > left:
		run.took = left
		iv.ResultStatus, iv.ResultDetails, iv.ResultCode = "TimedOut", "ExecutionTimedOut", -1
	case run.exit != 0:
		iv.ResultStatus, iv.ResultDetails = "Failed", "Failed"
		iv.ResultStderr += fmt.Sprintf("failed to run commands: exit status %d", run.exit)
	}
	iv.ResultStderr = truncate(iv.ResultStderr, maxStderr)
	if spent > 0 {
		// What it has waited already it need not wait again.
		run.took = max(run.took-spent, 0)
	}
	s.cloud.after(run.took, "ssm", "finish", key)
}

func truncate(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return s[:limit-len(truncationMark)] + truncationMark
}

// status sums up the invocations ("Understanding command statuses").
func (cmd *SSMCommand) status() (status, details string) {
	n := map[string]int{}
	for _, iv := range cmd.Invocations {
		n[iv.Status]++
	}
	switch {
	case len(cmd.Invocations) == 0:
		return "Success", "NoInstancesInTag"
	case n["InProgress"] > 0 || n["Pending"] > 0 && n["Pending"] < len(cmd.Invocations):
		return "InProgress", "InProgress"
	case n["Pending"] > 0:
		return "Pending", "Pending"
	case cmd.Cancelled:
		return "Cancelled", "Cancelled"
	case n["Failed"] > 0:
		return "Failed", "Failed"
	case n["TimedOut"] > 0:
		for _, iv := range cmd.Invocations {
			if iv.Status == "TimedOut" {
				details = iv.Details
			}
		}
		return "TimedOut", details
	}
	return "Success", "Success"
}

func (cmd *SSMCommand) sdk() types.Command {
	status, details := cmd.status()
	var completed, errs, undelivered int32
	for _, iv := range cmd.Invocations {
		if iv.final() {
			completed++
		}
		if iv.Status == "Failed" || iv.Details == "ExecutionTimedOut" {
			errs++
		}
		if iv.Details == "DeliveryTimedOut" {
			undelivered++
		}
	}
	out := types.Command{
		CommandId: &cmd.ID, DocumentName: &cmd.Document, DocumentVersion: new(cmd.Version), Comment: new(cmd.Comment),
		ExpiresAfter: new(cmd.Requested.Add(time.Duration(cmd.Timeout)*time.Second + cmd.limit())), Parameters: cmd.Parameters,
		InstanceIds: append([]string{}, cmd.InstanceIDs...), Targets: []types.Target{}, RequestedDateTime: &cmd.Requested,
		Status: types.CommandStatus(status), StatusDetails: new(details), OutputS3BucketName: new(""), OutputS3KeyPrefix: new(""),
		MaxConcurrency: &cmd.MaxConcurrency, MaxErrors: &cmd.MaxErrors, TargetCount: int32(len(cmd.Invocations)), CompletedCount: completed,
		ErrorCount: errs, DeliveryTimedOutCount: undelivered, ServiceRole: new(""), TimeoutSeconds: &cmd.Timeout,
		NotificationConfig:     &types.NotificationConfig{NotificationArn: new(""), NotificationEvents: []types.NotificationEvent{}},
		CloudWatchOutputConfig: noCloudWatch(), AlarmConfiguration: nil, TriggeredAlarms: []types.AlarmStateInformation{},
	}
	for _, k := range sortedKeys(cmd.Targets) {
		out.Targets = append(out.Targets, types.Target{Key: new(k), Values: cmd.Targets[k]})
	}
	return out
}

func noCloudWatch() *types.CloudWatchOutputConfig {
	return &types.CloudWatchOutputConfig{CloudWatchLogGroupName: new(""), CloudWatchOutputEnabled: false}
}

// command finds a command by ID. A fresh one is not visible for a moment, which is why the SDK's waiter retries
// InvocationDoesNotExist.
func (s *ssmService) command(c *reqCtx, id *string) *SSMCommand {
	cmd := s.state.in(c.scope()).Commands[deref(id)]
	if cmd == nil || !c.visible(cmd.ID, cmd.Requested, false, "command", cmd.Comment) {
		return nil
	}
	return cmd
}

func (s *ssmService) getCommandInvocation(c *reqCtx, in *ssm.GetCommandInvocationInput) (*ssm.GetCommandInvocationOutput, error) {
	if len(deref(in.CommandId)) != 36 {
		return nil, invalidParam("1 validation error detected: Value '%s' at 'commandId' failed to satisfy constraint: Member must have length greater than or equal to 36", deref(in.CommandId))
	}
	cmd := s.command(c, in.CommandId)
	if cmd == nil || cmd.Invocations[deref(in.InstanceId)] == nil {
		return nil, fail(400, "InvocationDoesNotExist", "")
	}
	if p := deref(in.PluginName); p != "" && p != "aws:runShellScript" {
		return nil, fail(400, "InvalidPluginName", "")
	}
	iv := cmd.Invocations[*in.InstanceId]
	out := &ssm.GetCommandInvocationOutput{
		CommandId: &cmd.ID, InstanceId: &iv.InstanceID, Comment: new(cmd.Comment), DocumentName: &cmd.Document, DocumentVersion: new(cmd.Version),
		PluginName: new("aws:runShellScript"), ResponseCode: iv.Code, Status: types.CommandInvocationStatus(iv.Status), StatusDetails: &iv.Details,
		StandardOutputContent: &iv.Stdout, StandardErrorContent: &iv.Stderr, StandardOutputUrl: new(""), StandardErrorUrl: new(""),
		ExecutionStartDateTime: new(""), ExecutionEndDateTime: new(""), ExecutionElapsedTime: new(""), CloudWatchOutputConfig: noCloudWatch(),
	}
	if !iv.Started.IsZero() {
		out.ExecutionStartDateTime = new(stamp(iv.Started))
	}
	if !iv.Started.IsZero() && !iv.Ended.IsZero() {
		out.ExecutionEndDateTime = new(stamp(iv.Ended))
		out.ExecutionElapsedTime = new("PT" + strconv.FormatFloat(iv.Ended.Sub(iv.Started).Seconds(), 'f', -1, 64) + "S")
	}
	return out, nil
}

func (s *ssmService) listCommands(c *reqCtx, in *ssm.ListCommandsInput) (*ssm.ListCommandsOutput, error) {
	sc, all := s.state.in(c.scope()), []types.Command{}
	for _, id := range slices.Backward(sc.Order) { // newest first
		cmd := sc.Commands[id]
		if in.CommandId != nil && *in.CommandId != cmd.ID || in.InstanceId != nil && cmd.Invocations[*in.InstanceId] == nil {
			continue
		}
		if c.visible(cmd.ID, cmd.Requested, true, "command", cmd.Comment) {
			all = append(all, cmd.sdk())
		}
	}
	if in.CommandId != nil && len(all) == 0 && sc.Commands[*in.CommandId] == nil {
		return nil, fail(400, "InvalidCommandId", "")
	}
	page, next, err := ssmPage(c, all, in.NextToken, in.MaxResults)
	return &ssm.ListCommandsOutput{Commands: page, NextToken: next}, err
}

func (s *ssmService) listCommandInvocations(c *reqCtx, in *ssm.ListCommandInvocationsInput) (*ssm.ListCommandInvocationsOutput, error) {
	sc, all := s.state.in(c.scope()), []types.CommandInvocation{}
	for _, id := range slices.Backward(sc.Order) {
		cmd := sc.Commands[id]
		if in.CommandId != nil && *in.CommandId != cmd.ID || !c.visible(cmd.ID, cmd.Requested, true, "command", cmd.Comment) {
			continue
		}
		for _, id := range cmd.Order {
			if in.InstanceId == nil || *in.InstanceId == id {
				all = append(all, s.sdkInvocation(c, cmd, cmd.Invocations[id], in.Details))
			}
		}
	}
	page, next, err := ssmPage(c, all, in.NextToken, in.MaxResults)
	return &ssm.ListCommandInvocationsOutput{CommandInvocations: page, NextToken: next}, err
}

func (s *ssmService) sdkInvocation(c *reqCtx, cmd *SSMCommand, iv *SSMInvocation, details bool) types.CommandInvocation {
	m, _ := s.cloud.machine(c.scope(), iv.InstanceID)
	out := types.CommandInvocation{
		CommandId: &cmd.ID, InstanceId: &iv.InstanceID, InstanceName: new(m.Name), Comment: new(cmd.Comment), DocumentName: &cmd.Document,
		DocumentVersion: new(cmd.Version), RequestedDateTime: &cmd.Requested, Status: types.CommandInvocationStatus(iv.Status),
		StatusDetails: &iv.Details, StandardOutputUrl: new(""), StandardErrorUrl: new(""), CommandPlugins: []types.CommandPlugin{},
		ServiceRole: new(""), CloudWatchOutputConfig: noCloudWatch(),
		NotificationConfig: &types.NotificationConfig{NotificationArn: new(""), NotificationEvents: []types.NotificationEvent{}},
	}
	if details && !iv.Started.IsZero() {
		p := types.CommandPlugin{
			Name: new("aws:runShellScript"), Status: types.CommandPluginStatus(iv.Status), StatusDetails: &iv.Details, ResponseCode: iv.Code,
			ResponseStartDateTime: &iv.Started, Output: new(truncate(iv.Stdout+iv.Stderr, maxPluginOutput)),
			StandardOutputUrl: new(""), StandardErrorUrl: new(""), OutputS3Region: new(c.region), OutputS3BucketName: new(""), OutputS3KeyPrefix: new(""),
		}
		if !iv.Ended.IsZero() {
			p.ResponseFinishDateTime = &iv.Ended
		}
		out.CommandPlugins = append(out.CommandPlugins, p)
	}
	return out
}

func (s *ssmService) cancelCommand(c *reqCtx, in *ssm.CancelCommandInput) (*ssm.CancelCommandOutput, error) {
	cmd := s.command(c, in.CommandId)
	if cmd == nil {
		return nil, fail(400, "InvalidCommandId", "")
	}
	cmd.Cancelled = true
	for _, id := range cmd.Order {
		iv := cmd.Invocations[id]
		if iv.final() || len(in.InstanceIds) > 0 && !slices.Contains(in.InstanceIds, id) {
			continue
		}
		iv.Status, iv.Details, iv.Ended = "Cancelled", "Cancelled", c.now
	}
	return &ssm.CancelCommandOutput{}, nil
}

// ssmPage cuts a page; pages have 50 items at most.
func ssmPage[T any](c *reqCtx, all []T, token *string, maxResults *int32) ([]T, *string, error) {
	limit := int(orDefault(maxResults, 50))
	if limit < 1 || limit > 50 {
		return nil, nil, invalidParam("1 validation error detected: Value '%d' at 'maxResults' failed to satisfy constraint: Member must have value less than or equal to 50", limit)
	}
	page, next, err := pageOf(c, all, token, limit)
	if err != nil {
		return nil, nil, fail(400, "InvalidNextToken", "The specified token is not valid.")
	}
	return page, next, nil
}
