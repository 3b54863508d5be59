package azure

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v10"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// RemoveNetwork takes away what the job made, and last its resource group, if
// nothing else is in it.
func (p *Provider) RemoveNetwork(ctx context.Context, r *pipeline.Run) error {
	ctx = view(ctx, r)
	if err := p.unlocked(ctx, r); err != nil {
		return err
	}
	if r.Job.Mode == job.ModeCreate || r.Job.ResourceType == job.Network {
		if err := p.removeParts(ctx, r); err != nil {
			return err
		}
	}
	if !ownsGroup(r.Job) {
		return nil
	}
	return r.Remove(ctx, p.group(r).resource())
}

// removeParts removes in the order of who holds whom: a subnet holds its group
// and the NAT gateway, which holds its address. A VNet takes one write at a time.
func (p *Provider) removeParts(ctx context.Context, r *pipeline.Run) error {
	plan, err := planned(r)
	if err != nil {
		return err
	}
	at := layout{plan: plan, nat: true, foreign: r.Job.Mode != job.ModeCreate}
	if at.foreign {
		at.vnet, err = p.namedVNet(ctx, r)
		if err := pipeline.Unless(err, pipeline.NotFound); err != nil {
			return err
		}
	} else {
		at.vnet = p.vnetID(r)
	}
	if at.vnet != "" {
		for _, s := range slices.Backward(plan.Subnets) {
			if err := r.Remove(ctx, p.subnet(r, at, s).resource()); err != nil {
				return err
			}
		}
	}
	parts := []func(context.Context) error{func(ctx context.Context) error {
		if err := r.Remove(ctx, p.natGateway(r).resource()); err != nil {
			return err
		}
		return r.Remove(ctx, p.publicIP(r, "nat-ip").resource())
	}}
	for _, s := range plan.Subnets {
		parts = append(parts, func(ctx context.Context) error { return r.Remove(ctx, p.securityGroup(r, s).resource()) })
	}
	if !at.foreign {
		parts = append(parts, func(ctx context.Context) error { return r.Remove(ctx, p.vnet(r, plan).resource()) })
	}
	return pipeline.All(ctx, parts...)
}

// A listed is what the list of resources says of one ("Resources - List").
type listed struct {
	ID   string            `json:"id"`
	Type string            `json:"type"`
	Name string            `json:"name"`
	Tags map[string]string `json:"tags"`
}

// inGroup names what is in a resource group: deleting the group would take all of
// it along. The list lags behind, so what is on it is looked at by itself.
func (p *Provider) inGroup(ctx context.Context, id string) ([]string, error) {
	all, err := list[listed](ctx, p, id+"/resources")
	if err != nil {
		return nil, err
	}
	const asked = 20 // more than this many are no matter of a list that lags
	var names []string
	for i, x := range all {
		if i < asked {
			_, err := read[struct{}](ctx, p, x.ID)
			if pipeline.Is(err, pipeline.NotFound) {
				continue
			}
		}
		name := x.Type + " " + x.Name
		if x.Tags[job.MarkOwner] == "" {
			name += " (not this job's)"
		}
		names = append(names, name)
	}
	return names, nil
}

// inVNet names the subnets and peerings in a VNet: deleting it would take along
// those that nothing uses.
func (p *Provider) inVNet(ctx context.Context, r *pipeline.Run, id string) ([]string, error) {
	x, err := read[armnetwork.VirtualNetwork](ctx, p, id)
	if err != nil || x.is.Properties == nil {
		return nil, err
	}
	ours := func(id string) bool { // a network that came up broken is replaced with what the job put into it
		return !r.Down && slices.ContainsFunc(r.Objects(), func(o job.Object) bool { return o.State == job.ObjectCreated && same(o.ID, id) })
	}
	var names []string
	for _, s := range x.is.Properties.Subnets {
		if !ours(value(s.ID)) {
			names = append(names, "subnet "+value(s.Name))
		}
	}
	for _, c := range x.is.Properties.VirtualNetworkPeerings {
		if !ours(value(c.ID)) {
			names = append(names, "peering "+value(c.Name))
		}
	}
	return names, nil
}

// usersOfSubnet names who keeps a subnet from being deleted ("Troubleshoot:
// failed to delete a virtual network in Azure").
func (p *Provider) usersOfSubnet(ctx context.Context, id string) ([]string, error) {
	x, err := read[armnetwork.Subnet](ctx, p, id)
	if err != nil || x.is.Properties == nil {
		return nil, err
	}
	f := x.is.Properties
	var names []string
	for _, c := range f.IPConfigurations {
		names = append(names, holderOf(value(c.ID)))
	}
	for _, c := range f.IPConfigurationProfiles {
		names = append(names, holderOf(value(c.ID)))
	}
	for _, e := range f.PrivateEndpoints {
		names = append(names, "private endpoint "+lastName(value(e.ID)))
	}
	for _, l := range f.ServiceAssociationLinks {
		if l.Properties != nil {
			names = append(names, fmt.Sprintf("a service of type %s (association link %s)", value(l.Properties.LinkedResourceType), value(l.Name)))
		}
	}
	for _, l := range f.ResourceNavigationLinks {
		if l.Properties != nil {
			names = append(names, fmt.Sprintf("%s (navigation link %s)", value(l.Properties.LinkedResourceType), value(l.Name)))
		}
	}
	for _, d := range f.Delegations {
		if d.Properties != nil && value(d.Name) != "datastore" { // that of the job's own is no hindrance
			names = append(names, "its delegation to "+value(d.Properties.ServiceName))
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// holderOf names the resource that an IP configuration belongs to.
func holderOf(id string) string {
	i := strings.LastIndex(strings.ToLower(id), "/providers/")
	if i < 0 {
		return id
	}
	parts := strings.Split(id[i+len("/providers/"):], "/")
	if len(parts) < 3 {
		return id
	}
	return fmt.Sprintf("%s %s in resource group %s", parts[1], parts[2], segment(id, "resourceGroups"))
}

// A lock is a management lock ("Lock your Azure resources to protect your
// infrastructure").
type lock struct {
	ID         string `json:"id"`
	Name       string `json:"name"`
	Properties struct {
		Level string `json:"level"`
		Notes string `json:"notes"`
	} `json:"properties"`
}

const locksPath = "/providers/Microsoft.Authorization/locks"

// unlocked stops a teardown before its first delete if a lock would stop it in
// the middle (failure kind E19). Locks that may not be read show when they
// refuse.
func (p *Provider) unlocked(ctx context.Context, r *pipeline.Run) error {
	const asked = "no lock in the way"
	if r.Mode == pipeline.Plan || r.Recall(asked) != nil {
		return nil
	}
	all, err := p.locks(ctx)
	if err != nil {
		if pipeline.Is(err, pipeline.Denied) {
			r.Remember(asked, true)
		}
		return pipeline.Unless(unlessDenied(r, "locks that would stop the teardown", err), pipeline.NotFound, pipeline.Invalid)
	}
	var names []string
	for _, l := range all {
		scope := beforeFold(l.ID, locksPath)
		if job.ParseMarks(l.Properties.Notes)[job.MarkOwner] == r.Job.ID {
			continue // the job's own, which it lifts itself
		}
		if p.touches(r, scope) {
			names = append(names, fmt.Sprintf("%s (%s) on %s", l.Name, l.Properties.Level, scope))
		}
	}
	if len(names) == 0 {
		r.Remember(asked, true)
		return nil
	}
	return pipeline.Fatal("locked", "nothing was deleted, since a lock would stop the teardown in the middle: "+strings.Join(names, ", "),
		"Remove the lock, or have its owner do so, then retry; a lock that this job did not set is never touched.")
}

func (p *Provider) locks(ctx context.Context) ([]lock, error) {
	return lookup.Once(ctx, "locks", func(ctx context.Context) ([]lock, error) {
		return list[lock](ctx, p, managementPrefix+p.subscription+locksPath)
	})
}

// touches reports whether a scope holds something of the job, or lies in something
// of it: in its own resource group, or in the one that its cluster made.
func (p *Provider) touches(r *pipeline.Run, scope string) bool {
	within := func(id, scope string) bool {
		return same(id, scope) || len(id) > len(scope) && same(id[:len(scope)], scope) && id[len(scope)] == '/'
	}
	for _, o := range r.Objects() {
		if o.State == job.ObjectCreated && (within(o.ID, scope) || within(scope, o.ID)) {
			return true
		}
	}
	if nodes := r.Job.Config.InfraConfig.Cluster.NodeGroup; nodes != "" && (within(scope, p.groupID(nodes)) || within(p.groupID(nodes), scope)) {
		return true
	}
	return ownsGroup(r.Job) && len(r.Objects()) > 0 && within(scope, p.groupID(groupOf(r.Job)))
}

// beforeFold is what stands before a separator in any case; all of s without one.
func beforeFold(s, sep string) string {
	i := strings.Index(strings.ToLower(s), strings.ToLower(sep))
	if i < 0 {
		return s
	}
	return s[:i]
}
