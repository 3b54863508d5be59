package aws

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	ssmtypes "github.com/aws/aws-sdk-go-v2/service/ssm/types"

	"github.com/zopday/provisioner/internal/bootstrap"
	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

const (
	// probeWait is how long one command watches for the sentinel inside the VM.
	probeWait = 8 * time.Minute
	// probeTimeout is how long the agent lets the command run.
	probeTimeout = probeWait + 2*time.Minute
	// deliveryTimeout is how long Systems Manager tries to hand it to the agent.
	deliveryTimeout = 2 * time.Minute
	// commandPatience is how long a command may go unanswered before another is
	// sent: delivery, the wait in the VM, and some slack.
	commandPatience = deliveryTimeout + probeTimeout + time.Minute
	// together is how long VMs whose agent is there wait for the others, so that
	// one command does for all.
	together = 30 * time.Second
	// agentDoubt is after how long a list of agents that shows nobody is no
	// longer believed, and a command is tried all the same.
	agentDoubt = time.Minute
)

// ExecCommand is what a person types to get a shell on a VM. It goes through
// Session Manager, so IAM decides who may.
func (p *Provider) ExecCommand(j *job.Job, vm job.VMInfo) string {
	return fmt.Sprintf("aws ssm start-session --target %s --region %s", vm.InstanceID, j.Region)
}

// A command is a Run Command that looks at sentinels.
type command struct {
	ID        string
	Instances []string // empty after a restart: the answers say whom it was sent to
	Sent      time.Time
	Looked    time.Time
	Last      map[string]cloud.Probe // the answers so far
}

// due reports whether a command is looked at again: less often the longer it
// takes (failure kind H4).
func (c command) due(r *pipeline.Run) bool {
	if c.Looked.IsZero() {
		return true
	}
	age := r.Pace.Cloud(r.Now().Sub(c.Sent))
	return r.Pace.Cloud(r.Now().Sub(c.Looked)) >= min(max(age/4, 5*time.Second), 20*time.Second)
}

// Probe says how far each VM's bootstrap is. One command is sent to all VMs
// whose agent is there, and waits inside them for the sentinel; later passes
// collect it with one list. The outcome is the command's exit code alone: what
// it prints is for people (failure kinds M4, M5, M10).
func (p *Provider) Probe(ctx context.Context, r *pipeline.Run, vms []job.VMInfo) (map[string]cloud.Probe, error) {
	out := map[string]cloud.Probe{}
	for _, vm := range vms {
		out[vm.InstanceID] = cloud.Probe{State: cloud.ProbeUnknown}
	}
	if r.Mode == pipeline.Plan || len(vms) == 0 {
		return out, nil
	}
	ctx = view(ctx, r)
	if r.Mode == pipeline.Verify {
		return out, p.probeAgents(ctx, vms, out)
	}
	commands := recallCommands(r)
	var live []command
	pending := map[string]bool{}
	for _, c := range commands {
		busy, err := p.collect(ctx, r, &c, out)
		if err != nil {
			return nil, err
		}
		if len(busy) > 0 {
			live = append(live, c)
		}
		for _, id := range busy {
			pending[id] = true
		}
	}
	var idle []string
	for id, probe := range out {
		if id != "" && !pending[id] && probe.State != cloud.ProbeReady && probe.State != cloud.ProbeFailed {
			idle = append(idle, id)
		}
	}
	slices.Sort(idle)
	sent, err := p.ask(ctx, r, idle, out)
	if kerr := keepCommands(ctx, r, append(live, sent...)); err == nil {
		err = kerr
	}
	return out, err
}

// probeAgents is a verify's answer: it sends no command, so that it can only
// say that a VM which was ready still has its agent.
func (p *Provider) probeAgents(ctx context.Context, vms []job.VMInfo, out map[string]cloud.Probe) error {
	var ids []string
	for _, vm := range vms {
		ids = append(ids, vm.InstanceID)
	}
	online, err := p.agents(ctx, ids)
	if err != nil {
		return err
	}
	for _, vm := range vms {
		switch {
		case !online[vm.InstanceID]:
			out[vm.InstanceID] = cloud.Probe{State: cloud.ProbeNoAgent}
		case vm.SentinelSeenAt != nil:
			out[vm.InstanceID] = cloud.Probe{State: cloud.ProbeReady}
		}
	}
	return nil
}

// recallCommands are the commands under way: remembered, or after a restart
// from the ledger.
func recallCommands(r *pipeline.Run) []command {
	if c, ok := r.Recall("probe commands").([]command); ok {
		return c
	}
	var out []command
	for _, id := range strings.FieldsFunc(r.Job.Config.InfraConfig.BootstrapCommandID, func(c rune) bool { return c == ',' }) {
		out = append(out, command{ID: id, Sent: r.Now()})
	}
	return out
}

func keepCommands(ctx context.Context, r *pipeline.Run, commands []command) error {
	var ids []string
	for _, c := range commands {
		ids = append(ids, c.ID)
	}
	r.Remember("probe commands", commands)
	joined := strings.Join(ids, ",")
	if joined == r.Job.Config.InfraConfig.BootstrapCommandID {
		return nil
	}
	r.Job.Config.InfraConfig.BootstrapCommandID = joined
	return r.Save(ctx)
}

// ask sends the probe to those of the idle VMs whose agent is there.
func (p *Provider) ask(ctx context.Context, r *pipeline.Run, idle []string, out map[string]cloud.Probe) ([]command, error) {
	if len(idle) == 0 {
		return nil, nil
	}
	there, sure, err := p.reachable(ctx, r, idle, out)
	if err != nil || len(there) == 0 {
		return nil, err
	}
	c, err := p.send(ctx, r, there)
	switch {
	case err == nil:
		mark(out, there)
		return []command{c}, nil
	case lacksCall(err) && p.foreignEndpoint():
		for _, id := range there {
			out[id] = cloud.Probe{State: cloud.ProbeNone, Detail: err.Error()}
		}
		return nil, nil
	case !pipeline.Is(err, pipeline.NotFound):
		return nil, err
	case !sure || len(there) == 1:
		return nil, nil
	}
	// One whose agent is not there makes Systems Manager refuse all of them.
	var sent []command
	for _, id := range there {
		c, err := p.send(ctx, r, []string{id})
		switch {
		case pipeline.Is(err, pipeline.NotFound):
			out[id] = noAgent
		case err != nil:
			return sent, err
		default:
			sent = append(sent, c)
			mark(out, []string{id})
		}
	}
	return sent, nil
}

// reachable says to whom a command is sent now. A list that shows nobody is not
// believed for ever, and one that the cloud does not have says nothing at all;
// sure is false for a try against the list's word.
func (p *Provider) reachable(ctx context.Context, r *pipeline.Run, idle []string, out map[string]cloud.Probe) (there []string, sure bool, err error) {
	online, err := p.agents(ctx, idle)
	switch {
	case lacksCall(err) || p.foreignEndpoint() && speechless(err):
		return idle, true, nil
	case pipeline.Is(err, pipeline.Invalid, pipeline.Unknown, pipeline.Unavailable):
		// A list that falters shows nobody.
	case err != nil:
		return nil, false, err
	}
	for _, id := range idle {
		if online[id] {
			there = append(there, id)
		} else if out[id].State == cloud.ProbeUnknown {
			out[id] = noAgent
		}
	}
	switch n := len(there); {
	case n == 0 && r.WaitedFor("agents") < agentDoubt:
		return nil, false, nil
	case n == 0:
		r.WaitOver("agents")
		return idle, false, nil
	case n < len(idle) && r.WaitedFor("all agents") < together:
		for _, id := range there {
			out[id] = cloud.Probe{State: cloud.ProbeUnknown, Detail: "its agent is there; the other VMs' are on their way"}
		}
		return nil, false, nil
	}
	return there, true, nil
}

var noAgent = cloud.Probe{State: cloud.ProbeNoAgent,
	Detail: "the Systems Manager agent has not registered; it needs the instance role and outbound HTTPS to the ssm, ssmmessages and ec2messages endpoints"}

func mark(out map[string]cloud.Probe, ids []string) {
	for _, id := range ids {
		if out[id].State != cloud.ProbeRunning {
			out[id] = cloud.Probe{State: cloud.ProbeRunning, Detail: "asked a moment ago"}
		}
	}
}

func (p *Provider) send(ctx context.Context, r *pipeline.Run, ids []string) (command, error) {
	c := command{Instances: ids, Sent: r.Now()}
	for part := range slices.Chunk(ids, 50) { // SendCommand takes 50 IDs
		res, err := p.ssm.SendCommand(ctx, &ssm.SendCommandInput{
			DocumentName: aws.String("AWS-RunShellScript"), InstanceIds: part,
			Comment:        aws.String("Waits for the bootstrap of " + r.Job.Name),
			TimeoutSeconds: aws.Int32(int32(deliveryTimeout.Seconds())),
			Parameters: map[string][]string{
				"commands":         {bootstrap.ProbeScript(probeWait)},
				"executionTimeout": {strconv.Itoa(int(probeTimeout.Seconds()))},
			},
		})
		if err != nil {
			return c, plain(err)
		}
		if res.Command == nil || aws.ToString(res.Command.CommandId) == "" {
			return c, &pipeline.CloudError{Class: pipeline.Unknown, Service: "SSM", Op: "SendCommand", Message: "the answer names no command", Sent: true}
		}
		if c.ID != "" {
			c.ID += ","
		}
		c.ID += *res.Command.CommandId
	}
	return c, nil
}

// agents says whose agent is online. A VM whose agent never registered is not
// in the list at all.
func (p *Provider) agents(ctx context.Context, ids []string) (map[string]bool, error) {
	online := map[string]bool{}
	for part := range slices.Chunk(ids, 50) {
		all, err := lookup.Pages(ctx, func(ctx context.Context, token *string) ([]ssmtypes.InstanceInformation, *string, error) {
			out, err := p.ssm.DescribeInstanceInformation(ctx, &ssm.DescribeInstanceInformationInput{
				Filters: []ssmtypes.InstanceInformationStringFilter{{Key: aws.String("InstanceIds"), Values: part}}, NextToken: token,
			})
			if err != nil {
				return nil, nil, err
			}
			return out.InstanceInformationList, out.NextToken, nil
		})
		if err != nil {
			return nil, plain(err)
		}
		for _, i := range all {
			if i.PingStatus == ssmtypes.PingStatusOnline {
				online[aws.ToString(i.InstanceId)] = true
			}
		}
	}
	return online, nil
}
