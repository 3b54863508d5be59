package aws

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	ssmtypes "github.com/aws/aws-sdk-go-v2/service/ssm/types"

	"github.com/zopday/provisioner/internal/bootstrap"
	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/pipeline"
)

// collect takes in a command's answers, and says who has not answered yet. A
// VM that needs another command is in neither.
func (p *Provider) collect(ctx context.Context, r *pipeline.Run, c *command, out map[string]cloud.Probe) (busy []string, err error) {
	if !c.due(r) {
		for id, probe := range c.Last {
			if _, wanted := out[id]; wanted {
				out[id] = probe
				busy = append(busy, id)
			}
		}
		return busy, nil
	}
	c.Looked, c.Last = r.Now(), map[string]cloud.Probe{}
	var all []ssmtypes.CommandInvocation
	for id := range strings.SplitSeq(c.ID, ",") {
		found, err := p.invocations(ctx, id, c.Instances)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	old := r.Pace.Cloud(r.Now().Sub(c.Sent)) > commandPatience
	answered := map[string]bool{}
	for _, inv := range all {
		id := aws.ToString(inv.InstanceId)
		answered[id] = true
		if _, wanted := out[id]; !wanted {
			continue
		}
		probe, ended := outcome(inv)
		out[id] = probe
		if !ended && !old {
			busy = append(busy, id)
			c.Last[id] = probe
		}
	}
	// A fresh command's answers take a moment to be listed at all.
	for _, id := range c.Instances {
		if _, wanted := out[id]; wanted && !answered[id] && r.Pace.Cloud(r.Now().Sub(c.Sent)) < deliveryTimeout {
			out[id] = cloud.Probe{State: cloud.ProbeUnknown}
			busy = append(busy, id)
			c.Last[id] = out[id]
		}
	}
	return busy, nil
}

// invocations is a command's answer from each VM.
func (p *Provider) invocations(ctx context.Context, id string, instances []string) ([]ssmtypes.CommandInvocation, error) {
	all, err := lookup.Pages(ctx, func(ctx context.Context, token *string) ([]ssmtypes.CommandInvocation, *string, error) {
		out, err := p.ssm.ListCommandInvocations(ctx, &ssm.ListCommandInvocationsInput{CommandId: aws.String(id), Details: true, NextToken: token})
		if err != nil {
			return nil, nil, err
		}
		return out.CommandInvocations, out.NextToken, nil
	})
	switch {
	case err == nil:
		return all, nil
	case isUnknownCommand(err):
		return nil, nil // forgotten, or not listed yet
	case !pipeline.Is(err, pipeline.Invalid, pipeline.Unknown, pipeline.Unavailable) || len(instances) == 0:
		return nil, plain(err)
	}
	// A cloud without the list: one by one.
	for _, i := range instances {
		out, err := p.ssm.GetCommandInvocation(ctx, &ssm.GetCommandInvocationInput{CommandId: aws.String(id), InstanceId: aws.String(i)})
		if pipeline.Is(err, pipeline.NotFound) || isUnknownCommand(err) {
			continue
		}
		if err != nil {
			return nil, plain(err)
		}
		all = append(all, ssmtypes.CommandInvocation{
			InstanceId: aws.String(i), Status: out.Status, StatusDetails: out.StatusDetails,
			CommandPlugins: []ssmtypes.CommandPlugin{{ResponseCode: out.ResponseCode, Output: out.StandardOutputContent}},
		})
	}
	return all, nil
}

func isUnknownCommand(err error) bool {
	var ce *pipeline.CloudError
	return errors.As(err, &ce) && (strings.HasPrefix(ce.Code, "InvalidCommandId") || ce.Class == pipeline.NotFound)
}

// outcome is what one VM's answer means, and whether it is the last word of
// its command.
func outcome(inv ssmtypes.CommandInvocation) (p cloud.Probe, ended bool) {
	code, text := int32(0), ""
	for _, plugin := range inv.CommandPlugins {
		if plugin.ResponseCode != 0 {
			code = plugin.ResponseCode
		}
		if o := strings.TrimSpace(aws.ToString(plugin.Output)); o != "" {
			text = o
		}
	}
	text = tail(text, bootstrap.ProbeOutputLimit)
	switch inv.Status {
	case ssmtypes.CommandInvocationStatusSuccess:
		if code != bootstrap.ProbeComplete {
			return cloud.Probe{State: cloud.ProbeRunning, Detail: fmt.Sprintf("the probe answered %d", code)}, true
		}
		return cloud.Probe{State: cloud.ProbeReady, Detail: text}, true
	case ssmtypes.CommandInvocationStatusPending, ssmtypes.CommandInvocationStatusInProgress, ssmtypes.CommandInvocationStatusDelayed, ssmtypes.CommandInvocationStatusCancelling, "":
		return cloud.Probe{State: cloud.ProbeRunning, Detail: lastLine(text)}, false
	case ssmtypes.CommandInvocationStatusFailed:
		switch code {
		case bootstrap.ProbeFailed:
			return cloud.Probe{State: cloud.ProbeFailed, Detail: text}, true
		case bootstrap.ProbeRunning:
			return cloud.Probe{State: cloud.ProbeRunning, Detail: lastLine(text)}, true
		}
		return cloud.Probe{State: cloud.ProbeRunning, Detail: fmt.Sprintf("the probe could not run: exit code %d, %s", code, or(aws.ToString(inv.StatusDetails), "no details"))}, true
	}
	// Timed out, undeliverable or cancelled: the VM has not said anything.
	return cloud.Probe{State: cloud.ProbeUnknown, Detail: "the last command ended as " + or(aws.ToString(inv.StatusDetails), string(inv.Status))}, true
}

// tail is the end of a text, cut at a line where possible.
func tail(s string, most int) string {
	if len(s) <= most {
		return s
	}
	s = s[len(s)-most:]
	if _, rest, ok := strings.Cut(s, "\n"); ok {
		s = rest
	}
	return "… " + s
}

func lastLine(s string) string {
	return strings.TrimSpace(s[strings.LastIndexByte(s, '\n')+1:])
}

func or(s, alt string) string {
	if s == "" {
		return alt
	}
	return s
}
