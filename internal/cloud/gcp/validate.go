package gcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	cloudresourcemanager "google.golang.org/api/cloudresourcemanager/v3"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// A checker asks the cloud what a job's later steps depend on. What an earlier
// run has resolved, and a step has used since, is kept and not asked again.
type checker struct {
	p    *Provider
	r    *pipeline.Run
	ic   *job.InfraConfig
	spec job.NetworkSpec
	job  job.NetworkJobSpec // of a network job; empty for others
	bits map[string][]int   // sizes to propose for secondary ranges, by their names

	mu     sync.Mutex
	checks []cloud.Check
}

// Check asks Google Cloud everything that the job's later steps depend on.
func (p *Provider) Check(ctx context.Context, r *pipeline.Run) ([]cloud.Check, error) {
	ctx = view(ctx, r)
	c := &checker{p: p, r: r, ic: &r.Job.Config.InfraConfig}
	var err error
	if c.spec, err = r.Job.Network(); err == nil && r.Job.ResourceType == job.Network {
		c.job, err = r.Job.NetworkJob()
	}
	if err != nil {
		c.fails("request", "config.spec", err.Error(), "Put the request right.")
		return c.checks, nil
	}
	if ok, err := c.account(ctx); err != nil || !ok {
		return c.checks, err
	}
	switch r.Job.ResourceType {
	case job.VM:
		err = c.forVMs(ctx)
	case job.Cluster:
		err = c.forCluster(ctx)
	case job.Datastore, job.Cache:
		err = c.forDatastore(ctx)
	default:
		err = c.forNetwork(ctx)
	}
	// What was asked side by side comes in no order of its own, and a plan that is
	// made again has to read the same.
	slices.SortStableFunc(c.checks, func(a, b cloud.Check) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Message, b.Message))
	})
	return c.checks, err
}

func (c *checker) forNetwork(ctx context.Context) error {
	if c.r.Job.Mode == job.ModeAdopt {
		return c.adoptedNetwork(ctx)
	}
	c.labels()
	c.names("", "private", "router", "nat", "nat-address", "firewall-deny", keyServicesRange, "peering-1-back", "zone-1")
	if err := c.place(ctx); err != nil {
		return err
	}
	return c.side(ctx, c.apis, c.permissions, c.network, c.quotas, c.zones)
}

// forVMs checks a VM job's network, and has the rest checked with it.
func (c *checker) forVMs(ctx context.Context) error {
	if c.r.Job.Mode == job.ModeAdopt {
		return c.vm(ctx)
	}
	c.labels()
	c.names("", "private", "router", "nat", "nat-address", "firewall-deny")
	if err := c.place(ctx); err != nil {
		return err
	}
	parts := []func(context.Context) error{c.vm}
	if c.r.Job.Mode == job.ModeCreate {
		parts = append(parts, c.network, c.quotas)
	} else {
		parts = append(parts, c.namedSubnets)
	}
	return c.side(ctx, parts...)
}

// side runs parts side by side.
func (c *checker) side(ctx context.Context, parts ...func(context.Context) error) error {
	return pipeline.All(ctx, parts...)
}

func (c *checker) add(x cloud.Check) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.checks = append(c.checks, x)
}

func (c *checker) ok(name, format string, args ...any) {
	c.add(cloud.Check{Name: name, Status: cloud.CheckOK, Message: fmt.Sprintf(format, args...)})
}

func (c *checker) fails(name, field, message, fix string) {
	c.add(cloud.Check{Name: name, Status: cloud.CheckFails, Field: field, Message: message, Fix: fix})
}

func (c *checker) warn(name, field, message, fix string) {
	c.add(cloud.Check{Name: name, Status: cloud.CheckWarning, Field: field, Message: message, Fix: fix})
}

// unchecked is what a check becomes when its read is denied, or when the endpoint
// does not know the call. An error that stops everything is returned.
func (c *checker) unchecked(ctx context.Context, name, field string, err error) error {
	if ctx.Err() != nil || pipeline.Is(err, pipeline.Expired, pipeline.Refused, pipeline.Unavailable, pipeline.Throttled) {
		return err
	}
	c.add(cloud.Check{Name: name, Status: cloud.CheckUnchecked, Field: field, Message: plain(err).Error(),
		Fix: "Allow the call for these credentials to have it checked; the step that depends on it says so if it fails."})
	return nil
}

// account compares where the credentials are used with where the job's objects
// are (failure kind F5); false if nothing more is worth asking.
func (c *checker) account(ctx context.Context) (bool, error) {
	const name = "project"
	got, err := c.p.Caller(ctx)
	var fatal *pipeline.FatalError
	switch want := c.ic.Account; {
	case errors.As(err, &fatal):
		c.fails(name, "cloudAccountId", fatal.Problem.Message, fatal.Problem.Hint)
		return false, nil
	case err != nil:
		return false, err
	case want != "" && want != got:
		c.fails(name, "cloudAccountId", fmt.Sprintf("the credentials are used in project %s now, and this job is in %s", got, want), "Restore the project "+want+".")
		return false, nil
	}
	c.ok(name, "project %s", got)
	return true, nil
}

// names proves that every name derived from the job's fits where it goes: 1 to 63
// characters by RFC 1035 (failure kinds C5, C7).
func (c *checker) names(uses ...string) {
	const check = "derived names"
	longest := ""
	for _, use := range uses {
		got := name(c.r, use)
		if len(got) > 63 || got == "" || got[0] < 'a' || got[0] > 'z' || strings.HasSuffix(got, "-") {
			c.fails(check, "name", fmt.Sprintf("the name %q for the job's %s is not one that Google Cloud takes", got, use), "Give the job a shorter name of letters, digits and hyphens.")
			return
		}
		if len(got) > len(longest) {
			longest = got
		}
	}
	c.ok(check, "all fit, such as %s", longest)
}

// labels says how the user's labels are written where Google Cloud does not take
// them as they are (failure kind R1).
func (c *checker) labels() {
	var changed []string
	for k, v := range c.r.Job.Labels {
		for key, value := range userLabels(map[string]string{k: v}) {
			if key != k || value != v {
				changed = append(changed, fmt.Sprintf("%s=%s as %s=%s", k, v, key, value))
			}
		}
	}
	if len(changed) > 0 {
		c.warn("labels", "labels", "labels are written as Google Cloud takes them: "+sorted(changed), "Use lower-case letters, digits, hyphens and underscores to have them as they are.")
	}
}

// apis proves that the services are switched on: an API that never was answers as
// one that was a moment ago (failure kind D10).
func (c *checker) apis(ctx context.Context) error { return c.enabled(ctx, c.needed()) }

// enabled is the check of the services by their names.
func (c *checker) enabled(ctx context.Context, apis []string) error {
	const check = "APIs"
	var names []string
	for _, api := range apis {
		names = append(names, "projects/"+c.p.project+"/services/"+api)
	}
	out, err := send(ctx, c.p.services.Services.BatchGet("projects/"+c.p.project).Names(names...))
	if err != nil {
		return c.unchecked(ctx, check, "", err)
	}
	var off []string
	for _, s := range out.Services {
		if s.State == "DISABLED" {
			off = append(off, base(s.Name))
		}
	}
	if len(off) > 0 {
		c.fails(check, "cloudAccountId", fmt.Sprintf("not enabled in project %s: %s", c.p.project, sorted(off)),
			fmt.Sprintf("Run gcloud services enable %s --project=%s.", strings.Join(off, " "), c.p.project))
		return nil
	}
	c.ok(check, "%d enabled", len(out.Services))
	return nil
}

func (c *checker) needed() []string {
	apis := []string{"compute.googleapis.com"}
	if len(c.job.DNSZones) > 0 {
		apis = append(apis, "dns.googleapis.com")
	}
	if c.spec.PrivateServices != nil {
		apis = append(apis, "servicenetworking.googleapis.com", "cloudresourcemanager.googleapis.com")
	}
	return apis
}

// permissions asks which of the permissions that the job needs are missing.
func (c *checker) permissions(ctx context.Context) error {
	const check = "permissions"
	var want []string
	each := func(collection string, verbs ...string) {
		for _, v := range verbs {
			want = append(want, collection+"."+v)
		}
	}
	each("compute.networks", "get", "updatePolicy")
	if c.r.Job.Mode == job.ModeCreate {
		each("compute.networks", "create", "delete")
		each("compute.firewalls", "create", "delete", "get", "list")
	}
	each("compute.subnetworks", "create", "delete", "get", "list")
	if c.spec.NAT != job.NATNone {
		each("compute.routers", "create", "delete", "get", "list")
		each("compute.addresses", "create", "delete", "get", "list", "use")
	}
	if c.spec.PrivateServices != nil {
		each("compute.globalAddresses", "createInternal", "deleteInternal", "get", "list")
		each("servicenetworking.services", "addPeering", "get")
	}
	if len(c.job.Peerings) > 0 {
		each("compute.networks", "addPeering", "removePeering")
	}
	if len(c.job.DNSZones) > 0 {
		each("dns.managedZones", "create", "delete", "get", "list")
	}
	if slices.ContainsFunc(c.job.DNSZones, func(z job.DNSZone) bool { return z.Visibility == job.ZonePrivate }) {
		each("dns.networks", "bindPrivateDNSZone")
	}
	return c.permitted(ctx, check, want)
}

// permitted is a check of its own for permissions on the project.
func (c *checker) permitted(ctx context.Context, check string, want []string) error {
	out, err := send(ctx, c.p.crm.Projects.TestIamPermissions("projects/"+c.p.project, &cloudresourcemanager.TestIamPermissionsRequest{Permissions: want}))
	if err != nil {
		return c.unchecked(ctx, check, "", err)
	}
	missing := slices.DeleteFunc(slices.Clone(want), func(w string) bool { return slices.Contains(out.Permissions, w) })
	if c.p.account.ReadOnly {
		c.warn(check, "cloudAccountId", fmt.Sprintf("cloud account %s is read-only: it is good for looking, and nothing can be made with it", c.p.account.ID),
			"Name an account with permission level read_write in a job that makes something.")
		return nil
	}
	if len(missing) > 0 {
		c.fails(check, "cloudAccountId", fmt.Sprintf("the credentials lack, in project %s: %s", c.p.project, strings.Join(missing, ", ")),
			"Grant a role that holds them, such as Compute Network Admin with Compute Security Admin and DNS Administrator.")
		return nil
	}
	c.ok(check, "all %d granted", len(want))
	return nil
}
