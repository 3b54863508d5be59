package azure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// A checker asks the cloud what a job's later steps depend on. What an earlier
// run has resolved, and a step has used since, is kept and not asked again.
type checker struct {
	*Provider
	r   *pipeline.Run
	ic  *job.InfraConfig
	net job.NetworkSpec

	store job.DatastoreSpec // of datastore and cache jobs
}

// storeSpec decodes what only datastore and cache jobs have.
func (c *checker) storeSpec() (err error) {
	if c.r.Job.ResourceType == job.Datastore || c.r.Job.ResourceType == job.Cache {
		c.store, err = c.r.Job.DatastoreSpec()
	}
	return err
}

// Check asks Azure everything that the job's later steps depend on.
func (p *Provider) Check(ctx context.Context, r *pipeline.Run) ([]cloud.Check, error) {
	ctx = view(ctx, r)
	spec, err := r.Job.Network()
	if err != nil {
		return []cloud.Check{fails("request", "config.spec", err.Error(), "Put the request right.")}, nil
	}
	c := &checker{Provider: p, r: r, ic: &r.Job.Config.InfraConfig, net: spec}
	out, err := c.account(ctx)
	if err != nil || out[0].Status == cloud.CheckFails {
		return out, err
	}
	if r.Job.Mode == job.ModeAdopt {
		more, err := c.adopt(ctx)
		return append(out, more...), err
	}
	place, err := c.place(ctx)
	if err != nil {
		return nil, err
	}
	out = append(out, place...)
	for _, x := range place {
		if x.Status == cloud.CheckFails {
			return out, nil // a region that is none answers nothing else
		}
	}
	network := c.network
	if r.Job.ResourceType == job.Cluster {
		network = c.clusterNetwork
	}
	if err := c.storeSpec(); err != nil {
		return nil, err
	}
	parts := []func(context.Context) ([]cloud.Check, error){c.providers, c.groups, network, c.permissions}
	parts = append(parts, c.family()...)
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
	for _, a := range answers {
		out = append(out, a...)
	}
	return append(out, c.names()...), nil
}

// family is what only one family asks.
func (c *checker) family() []func(context.Context) ([]cloud.Check, error) {
	switch c.r.Job.ResourceType {
	case job.VM:
		return []func(context.Context) ([]cloud.Check, error){c.machines, c.loadBalancer, c.quotas}
	case job.Cluster:
		return c.clusterParts()
	case job.Datastore:
		return []func(context.Context) ([]cloud.Check, error){c.server, c.vaultName, c.quotas}
	case job.Cache:
		return []func(context.Context) ([]cloud.Check, error){c.cache, c.quotas}
	}
	return []func(context.Context) ([]cloud.Check, error){c.peers, c.zones, c.quotas}
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
	return cloud.Check{Name: name, Status: cloud.CheckUnchecked, Field: field, Message: err.Error(),
		Fix: "Allow the call for these credentials to have it checked; the step that depends on it says so if it fails."}
}

// stops reports whether an error says that nothing can be asked now: the
// credentials, or the caller's own end.
func stops(ctx context.Context, err error) bool {
	return ctx.Err() != nil || pipeline.Is(err, pipeline.Expired, pipeline.Refused, pipeline.Unavailable, pipeline.Throttled)
}

// or is a check that a read which failed becomes, unless nothing can be asked now.
func (c *checker) or(ctx context.Context, name, field string, err error) ([]cloud.Check, error) {
	if stops(ctx, err) {
		return nil, err
	}
	return []cloud.Check{unchecked(name, field, err)}, nil
}

// need is what a read becomes that later steps do not go without: one that is
// denied is better refused now, with what to grant, than met by a step.
func (c *checker) need(ctx context.Context, name, field string, err error) ([]cloud.Check, error) {
	var denied *pipeline.FatalError
	if c.r.Mode != pipeline.Verify && pipeline.Is(err, pipeline.Denied) && errors.As(err, &denied) {
		return []cloud.Check{fails(name, cmp.Or(field, "cloudAccountId"), denied.Problem.Message, strings.TrimSuffix(denied.Problem.Hint, ", then retry."))}, nil
	}
	return c.or(ctx, name, field, err)
}

// made reports whether the job has an object already.
func (c *checker) made(kind, key string) bool {
	rec, ok := c.r.Object(kind, key)
	return ok && rec.State == job.ObjectCreated
}

// account compares whose credentials these are with whose the job's objects are
// (failure kind F5).
func (c *checker) account(ctx context.Context) ([]cloud.Check, error) {
	const name = "account"
	got, err := c.Caller(ctx)
	var fatal *pipeline.FatalError
	switch {
	case errors.As(err, &fatal):
		return []cloud.Check{fails(name, "cloudAccountId", fatal.Problem.Message, fatal.Problem.Hint)}, nil
	case err != nil:
		return nil, err
	}
	if want := c.ic.Account; want != "" && !same(want, got) {
		return []cloud.Check{fails(name, "cloudAccountId",
			fmt.Sprintf("the credentials are for Azure subscription %s now, and this job is in %s", got, want), "Restore the credentials of "+want+".")}, nil
	}
	return []cloud.Check{passes(name, "Azure subscription %s", got)}, nil
}

// names proves that every name derived from the job's fits where it goes, and
// that the tags do.
func (c *checker) names() []cloud.Check {
	const check = "derived names"
	var longest string
	uses := map[string]int{"": longestGroup, "vnet": longestVNet, "nat": longestName, "nat-ip": longestName, "nsg-database": longestName,
		"peer-10-back": longestName, "link": longestName, "vm": longestComputer, "vms": longestScaleSet, "lb-ip": longestName, "identity": longestIdentity}
	if c.r.Job.ResourceType == job.Cluster {
		maps.Copy(uses, map[string]int{"": longestDNSPrefix, "nodes": longestNodeGroup, "logs": longestWorkspace, "audit": longestSetting, controlPlane: longestIdentity, kubelet: longestIdentity})
	}
	maps.Copy(uses, c.storeNames())
	for use, most := range uses {
		got := c.r.Job.ResourceName(use, most)
		if len(got) > most || !validName.MatchString(got) {
			return []cloud.Check{fails(check, "name", fmt.Sprintf("the name %q for the job's %s is not one that Azure takes", got, use), "Give the job a shorter name of letters, digits and hyphens.")}
		}
		if len(got) > len(longest) {
			longest = got
		}
	}
	most := mostTags
	if spec, err := c.r.Job.NetworkJob(); c.r.Job.ResourceType == job.Network && err == nil && len(spec.DNSZones) > 0 {
		most = mostTagsOfZone
	}
	if n := len(tagsFor(c.r.Job, "x")); n > most {
		return []cloud.Check{fails(check, "labels", fmt.Sprintf("with the job's own there are %d tags, and Azure takes %d here", n, most), fmt.Sprintf("Use %d labels at most.", most-3))}
	}
	for k, v := range c.r.Job.Labels {
		if len(v) > longestTagValue || badInTag.MatchString(k) {
			return []cloud.Check{fails(check, "labels."+k, "is not a tag that Azure takes", "Use a key without < > % & \\ ? / and a value of 256 characters at most.")}
		}
	}
	return []cloud.Check{passes(check, "all fit, such as %s", longest)}
}

// adopt checks that what the job points at is there.
func (c *checker) adopt(ctx context.Context) ([]cloud.Check, error) {
	check := "adopted network"
	var found string
	var err error
	switch c.r.Job.ResourceType {
	case job.VM:
		check = "adopted VMs"
		found, err = c.adoptedVMs(ctx)
	case job.Cluster:
		check = "adopted cluster"
		found, err = c.adoptedClusterName(ctx)
	case job.Datastore, job.Cache:
		check = "adopted " + string(c.r.Job.ResourceType)
		found, err = c.adoptedStoreName(ctx)
	default:
		var x vnetResource
		x, err = c.adopted(ctx, c.r)
		found = fmt.Sprintf("%s (%s)", x.Name, sorted(addressSpace(x.is)))
	}
	var fatal *pipeline.FatalError
	switch {
	case errors.As(err, &fatal):
		return []cloud.Check{fails(check, fatal.Problem.Field, fatal.Problem.Message, fatal.Problem.Hint)}, nil
	case err != nil:
		return nil, err
	}
	return []cloud.Check{passes(check, "%s", found)}, nil
}
