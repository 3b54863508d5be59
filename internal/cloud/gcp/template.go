package gcp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/api/compute/v1"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

const templateKey = "vm"

// The firewall rules of a job's VMs stand before those of the network, which
// commonly have priority 1000: a network that lets SSH in everywhere does not
// open these VMs.
const (
	allowPriority = 800
	denyPriority  = 900
)

// EnsureLaunchTemplate makes the VMs' firewall rules and the instance template.
func (p *Provider) EnsureLaunchTemplate(ctx context.Context, r *pipeline.Run) error {
	ctx = view(ctx, r)
	infra := &r.Job.Config.InfraConfig
	spec, err := r.Job.VMSpec()
	if err != nil {
		return err
	}
	x, err := p.template(r, spec)
	if err != nil {
		return pipeline.Fatal("invalid-bootstrap", err.Error(), "Change the start-up script (PATCH the job), then retry.").On("config.spec.startupScript").From(err)
	}
	if err := p.renewTemplate(ctx, r, x); err != nil {
		return err
	}
	ids := make([]string, 3)
	var parts []func(context.Context) error
	for i, x := range []pipeline.Resource{p.closed(r), p.tunnel(r), x.resource(p, r)} {
		parts = append(parts, func(ctx context.Context) (err error) {
			ids[i], err = p.ensure(ctx, r, x)
			return err
		})
	}
	err = pipeline.All(ctx, parts...)
	learn(r, &infra.VMSecurityGroupID, ids[0])
	learn(r, &infra.LaunchTemplateID, ids[2])
	learn(r, &infra.LaunchTemplateName, base(x.id))
	return visible(r, "the launch template", err)
}

// RemoveLaunchTemplate removes the template, then the firewall rules.
func (p *Provider) RemoveLaunchTemplate(ctx context.Context, r *pipeline.Run) error {
	ctx = view(ctx, r)
	x, err := p.template(r, job.VMSpec{})
	if err != nil {
		return err
	}
	if err := r.Remove(ctx, x.resource(p, r)); err != nil {
		return err
	}
	return pipeline.All(ctx,
		func(ctx context.Context) error { return r.Remove(ctx, p.tunnel(r)) },
		func(ctx context.Context) error { return r.Remove(ctx, p.closed(r)) })
}

// closed lets nothing in, as far as no rule of the job says otherwise.
func (p *Provider) closed(r *pipeline.Run) pipeline.Resource {
	s := p.vmRule(r, "vm-closed", denyPriority, []string{"0.0.0.0/0"})
	s.deny, s.about = true, "Nothing comes in but by rules of this job."
	return p.firewall(r, s)
}

// tunnel lets SSH in through Identity-Aware Proxy: the way of the exec channel.
func (p *Provider) tunnel(r *pipeline.Run) pipeline.Resource {
	s := p.vmRule(r, "vm-iap", allowPriority, []string{iapRange}, 22)
	s.about = "SSH by OS Login through Identity-Aware Proxy."
	return p.firewall(r, s)
}

// vmRule is a firewall rule for the job's VMs. It holds for what runs as their
// account: a network tag can be given to any VM by whoever may edit it.
func (p *Provider) vmRule(r *pipeline.Run, key string, priority int64, sources []string, ports ...int) firewallSpec {
	infra := r.Job.Config.InfraConfig
	s := firewallSpec{key: key, priority: priority, sources: sources, ports: portList(ports), accounts: []string{or(infra.ServiceAccount, p.accountEmail(r))}}
	if !r.Down {
		s.network = infra.NetworkID
	}
	return s
}

func portList(ports []int) []string {
	var out []string
	for _, n := range slices.Compact(slices.Sorted(slices.Values(ports))) {
		out = append(out, strconv.Itoa(n))
	}
	return out
}

func labelsText(labels map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, k+"="+labels[k])
	}
	return strings.Join(out, ", ")
}

// template is the job's instance template. Without a pool in the spec it is only
// good for being removed.
func (p *Provider) template(r *pipeline.Run, spec job.VMSpec) (object[*compute.InstanceTemplate], error) {
	o := object[*compute.InstanceTemplate]{kind: p.instanceTemplates(), key: templateKey, id: p.global("instanceTemplates", name(r, templateKey))}
	if r.Down {
		return o, nil
	}
	properties, err := vmProperties(r.Job, spec)
	if err != nil {
		return o, err
	}
	o.want = &compute.InstanceTemplate{Name: base(o.id), Description: r.Job.MarkText(templateKey) + " " + propertiesDigest(properties), Properties: properties}
	o.see = func(_ context.Context, have *compute.InstanceTemplate) (pipeline.Seen, error) {
		if r.Mode != pipeline.Verify || have.Properties == nil {
			return pipeline.Seen{}, nil
		}
		return pipeline.Seen{Aspects: traitsOf(properties).compare(traitsOf(have.Properties))}, nil
	}
	return o, nil
}

// renewTemplate puts a template that no longer is what the spec asks for, since
// the spec was changed, on the list of what is made anew: templates never change,
// and by the time a VM was started from one its spec does not either. The digest
// in its description tells, whatever form the cloud repeats its fields in.
func (p *Provider) renewTemplate(ctx context.Context, r *pipeline.Run, o object[*compute.InstanceTemplate]) error {
	rec, ok := r.Object(o.kind.name, o.key)
	const compared = "template compared"
	if !ok || rec.State != job.ObjectCreated || rec.Reason != "" || r.Mode != pipeline.Apply || r.Recall(compared) == rec.ID {
		return nil
	}
	have, err := o.kind.lookup().Get(ctx, rec.ID)
	if pipeline.Is(err, pipeline.NotFound) {
		return nil // the pipeline decides what that means
	}
	if err != nil {
		return err
	}
	if was := digestIn(have.Description); was != "" && was != digestIn(o.want.Description) {
		_, err := r.Condemn(ctx, rec.ID, "the spec was changed since")
		return err
	}
	r.Remember(compared, rec.ID)
	return nil
}

const digestWord = "sha256="

// propertiesDigest is a word that tells one set of properties from another.
func propertiesDigest(x *compute.InstanceProperties) string {
	text, err := json.Marshal(x)
	if err != nil {
		panic("instance properties are no JSON: " + err.Error()) // a programming error: they are plain data
	}
	sum := sha256.Sum256(text)
	return digestWord + hex.EncodeToString(sum[:16])
}

func digestIn(description string) string {
	for word := range strings.FieldsSeq(description) {
		if strings.HasPrefix(word, digestWord) {
			return word
		}
	}
	return ""
}
