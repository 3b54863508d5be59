package azure

import (
	"context"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/msi/armmsi"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// The kinds of object of a VM job beyond its network.
const (
	kindIdentity  = "msi:identity"
	kindScaleSet  = "compute:scale-set"
	kindVM        = "compute:vm"
	kindAutoscale = "insights:autoscale"
	kindBalancer  = "network:load-balancer"
	kindPool      = "network:lb-pool"
	kindProbe     = "network:lb-probe"
	kindLBRule    = "network:lb-rule"
	kindRecord    = "dns:record"
)

// EnsureIdentity makes the managed identity that the VMs have, those of a cluster,
// or the vault with the password of a datastore's administrator. That of VMs has no role: Run Command goes through the VM's agent and
// needs none ("Run scripts in your Linux VM by using managed Run Commands").
func (p *Provider) EnsureIdentity(ctx context.Context, r *pipeline.Run) error {
	if r.Job.Mode == job.ModeAdopt {
		return nil
	}
	ctx = view(ctx, r)
	switch r.Job.ResourceType {
	case job.Cluster:
		return p.ensureClusterIdentity(ctx, r)
	case job.Datastore:
		return p.ensureVault(ctx, r)
	case job.Cache:
		return nil // who may use a cache is the cache's own business
	}
	x := p.identity(r)
	if _, err := r.Ensure(ctx, x.resource()); err != nil {
		return err
	}
	ic := &r.Job.Config.InfraConfig
	learn(r, &ic.ServiceAccount, x.id)
	learn(r, &ic.RoleName, lastName(x.id))
	return nil
}

// RemoveIdentity takes the identities away.
func (p *Provider) RemoveIdentity(ctx context.Context, r *pipeline.Run) error {
	ctx = view(ctx, r)
	if err := p.unlocked(ctx, r); err != nil {
		return err
	}
	switch r.Job.ResourceType {
	case job.Cluster:
		return p.removeClusterIdentity(ctx, r)
	case job.Datastore:
		return p.removeVault(ctx, r)
	case job.Cache:
		return nil
	}
	return r.Remove(ctx, p.identity(r).resource())
}

func (p *Provider) identity(r *pipeline.Run) object[armmsi.Identity] {
	return p.identityNamed(r, "identity")
}

func (p *Provider) identityNamed(r *pipeline.Run, key string) object[armmsi.Identity] {
	return object[armmsi.Identity]{
		p: p, r: r, kind: kindIdentity, key: key, id: p.idIn(r, typeIdentity, r.Job.ResourceName(key, longestIdentity)),
		body: func() any { return armmsi.Identity{Location: &p.region, Tags: tagsFor(r.Job, key)} },
	}
}

// EnsureLaunchTemplate makes what every VM refers to: Azure has no template apart
// from a scale set, so this is the security group of the VMs alone.
func (p *Provider) EnsureLaunchTemplate(ctx context.Context, r *pipeline.Run) error {
	if r.Job.Mode == job.ModeAdopt {
		return nil
	}
	ctx = view(ctx, r)
	x := p.vmGroup(r)
	if _, err := r.Ensure(ctx, x.resource()); err != nil {
		return err
	}
	learn(r, &r.Job.Config.InfraConfig.VMSecurityGroupID, x.id)
	return nil
}

// RemoveLaunchTemplate takes the VMs' security group away.
func (p *Provider) RemoveLaunchTemplate(ctx context.Context, r *pipeline.Run) error {
	ctx = view(ctx, r)
	if err := p.unlocked(ctx, r); err != nil {
		return err
	}
	return r.Remove(ctx, p.vmGroup(r).resource())
}
