package aws

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/zopday/provisioner/internal/bootstrap"
	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// A checker asks the cloud what a job's later steps depend on. What an earlier
// run has resolved, and a step has used since, is kept and not asked again: an
// image that is newer today is no reason to change a launch template.
type checker struct {
	*Provider
	r    *pipeline.Run
	ic   *job.InfraConfig
	spec job.VMSpec

	size typeSize // of the instance type, once it is known
	arch string

	existingZones []string // of the private subnets that the job names
}

// Check asks AWS everything that the job's later steps depend on.
func (p *Provider) Check(ctx context.Context, r *pipeline.Run) ([]cloud.Check, error) {
	ctx = lookup.With(ctx, r)
	c := &checker{Provider: p, r: r, ic: &r.Job.Config.InfraConfig}
	if r.Job.ResourceType == job.VM {
		var err error
		if c.spec, err = r.Job.VMSpec(); err != nil {
			return []cloud.Check{fails("request", "config.spec", err.Error(), "Put the request right.")}, nil
		}
	}
	account, err := c.account(ctx)
	if err != nil {
		return nil, plain(err)
	}
	if account.Status == cloud.CheckFails {
		return []cloud.Check{account}, nil
	}
	out := []cloud.Check{account}
	if isCluster(r.Job) {
		more, err := c.clusterJob(ctx)
		return append(out, more...), plain(err)
	}
	if isDatastore(r.Job) {
		more, err := c.datastoreJob(ctx)
		return append(out, more...), plain(err)
	}
	if r.Job.ResourceType == job.Network {
		ask := c.networkJob
		if r.Job.Mode == job.ModeAdopt {
			ask = c.adoptNetwork
		}
		more, err := ask(ctx)
		return append(out, more...), plain(err)
	}
	if r.Job.Mode == job.ModeAdopt {
		more, err := c.adopt(ctx)
		return append(out, more...), plain(err)
	}
	place, err := c.place(ctx)
	if err != nil {
		return nil, plain(err)
	}
	out = append(out, place...)
	parts := []func(context.Context) ([]cloud.Check, error){c.image, c.network, c.quotas, c.loadBalancer}
	answers := make([][]cloud.Check, len(parts))
	var calls []func(context.Context) error
	for i, part := range parts {
		calls = append(calls, func(ctx context.Context) (err error) {
			answers[i], err = part(ctx)
			return err
		})
	}
	if err := pipeline.All(ctx, calls...); err != nil {
		return nil, plain(err)
	}
	for _, a := range answers {
		out = append(out, a...)
	}
	return append(out, c.names(), c.userData()), nil
}

func passes(name, format string, args ...any) cloud.Check {
	return cloud.Check{Name: name, Status: cloud.CheckOK, Message: fmt.Sprintf(format, args...)}
}

func fails(name, field, message, fix string) cloud.Check {
	return cloud.Check{Name: name, Status: cloud.CheckFails, Field: field, Message: message, Fix: fix}
}

func warns(name, field, message, fix string) cloud.Check {
	return cloud.Check{Name: name, Status: cloud.CheckWarning, Field: field, Message: message, Fix: fix}
}

// unchecked is what a check becomes when its read is denied, or when the
// endpoint does not know the call.
func unchecked(name, field string, err error) cloud.Check {
	return cloud.Check{Name: name, Status: cloud.CheckUnchecked, Field: field, Message: plain(err).Error(),
		Fix: "Allow the call for these credentials to have it checked; the step that depends on it says so if it fails."}
}

// stops reports whether an error says that nothing can be asked now: the
// credentials, or the caller's own end.
func stops(ctx context.Context, err error) bool {
	return ctx.Err() != nil || pipeline.Is(err, pipeline.Expired, pipeline.Refused)
}

// made reports whether the job has an object already.
func (c *checker) made(kind, key string) bool {
	rec, ok := c.r.Object(kind, key)
	return ok && rec.State == job.ObjectCreated
}

// account compares whose credentials these are with whose the job's objects are
// (failure kind F5).
func (c *checker) account(ctx context.Context) (cloud.Check, error) {
	const name = "account"
	got, err := c.Caller(ctx)
	if err != nil {
		return cloud.Check{}, err
	}
	if want := c.ic.Account; want != "" && want != got {
		return fails(name, "cloudAccountId",
			fmt.Sprintf("the credentials belong to AWS account %s now, and this job is in %s", got, want),
			"Restore the credentials of "+want+"."), nil
	}
	return passes(name, "AWS account %s", got), nil
}

// names proves that every name derived from the job's fits where it goes.
func (c *checker) names() cloud.Check {
	const check = "derived names"
	var longest string
	for _, n := range []struct {
		use string
		max int
	}{{"vm", 64}, {"", 32}, {"lb", 32}, {"tg", 32}, {"lt", 128}, {"asg", 255}, {"sg", 255}, {"flow", 64}, {"logs", 63}, {"", 63}, {"eks", 64}, {"node", 64}, {"cni", 64}, {"ebs", 64}} {
		got := c.r.Job.ResourceName(n.use, n.max)
		if len(got) > n.max || got == "" || strings.HasPrefix(got, "-") || strings.HasSuffix(got, "-") || strings.HasPrefix(got, "internal-") {
			return fails(check, "name", fmt.Sprintf("the name %q for the job's %s is not one that AWS takes", got, n.use), "Give the job a shorter name of letters, digits and hyphens.")
		}
		if len(got) > len(longest) {
			longest = got
		}
	}
	return passes(check, "all fit, such as %s", longest)
}

// userData renders the bootstrap as the launch template will carry it.
func (c *checker) userData() cloud.Check {
	const check, field = "bootstrap script", "config.spec.startupScript"
	data, zipped, err := bootstrap.UserData(bootstrap.Options{
		Cloud: bootstrap.CloudAWS, OS: osOf(c.spec.Pool.Image, c.ic.ImageName), Mode: c.spec.Bootstrap, Extra: c.spec.StartupScript,
	})
	var size *bootstrap.SizeError
	switch {
	case errors.As(err, &size):
		return fails(check, field, err.Error(), "Shorten the script, or let it fetch the rest from a bucket.")
	case err != nil:
		return fails(check, field, err.Error(), "Put the script right.")
	case zipped:
		return passes(check, "%d of %d bytes, compressed", len(data), bootstrap.MaxBytes)
	}
	return passes(check, "%d of %d bytes", len(data), bootstrap.MaxBytes)
}

// adopt checks that what the job points at is there.
func (c *checker) adopt(ctx context.Context) ([]cloud.Check, error) {
	const check, field = "adopted VMs", "config.spec.adopt"
	if c.spec.Adopt == nil {
		return []cloud.Check{fails(check, field, "the request does not say what to adopt", "Name instances in ids, or a scaling group in name.")}, nil
	}
	ids, group, err := c.adopted(ctx, c.r, *c.spec.Adopt)
	var fatal *pipeline.FatalError
	switch {
	case errors.As(err, &fatal):
		return []cloud.Check{fails(check, fatal.Problem.Field, fatal.Problem.Message, fatal.Problem.Hint)}, nil
	case err != nil && (stops(ctx, err) || pipeline.Is(err, pipeline.Unavailable, pipeline.Throttled)):
		return nil, err
	case err != nil:
		return []cloud.Check{fails(check, field, plain(err).Error(), "Allow these credentials to describe it.")}, nil
	case len(ids) == 0 && group != "":
		return []cloud.Check{warns(check, field, "scaling group "+group+" has no VM now", "")}, nil
	}
	found, err := ec2Page[instance](c.instancePage).all(ctx, filter("instance-id", ids...))
	if err != nil {
		return nil, err
	}
	there := map[string]bool{}
	var out []cloud.Check
	for _, i := range found {
		there[deref(i.InstanceId)] = true
		if state := stateOf(i); state == "terminated" || state == "shutting-down" {
			out = append(out, fails(check, field+".ids", fmt.Sprintf("instance %s is %s", deref(i.InstanceId), state), "Name an instance that lives."))
		}
	}
	for _, id := range ids {
		if !there[id] {
			out = append(out, fails(check, field+".ids", fmt.Sprintf("instance %s does not exist in %s", id, c.region), "Give the ID of an instance of this account and region."))
		}
	}
	if len(out) == 0 {
		out = append(out, passes(check, "%d found", len(ids)))
	}
	return out, nil
}
