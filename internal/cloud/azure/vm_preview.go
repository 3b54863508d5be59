package azure

import (
	"context"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// errPreview is the answer to everything that only a VM job asks.
var errPreview = pipeline.Fatal("not-offered", "VMs at Azure are not offered by this version", "Make them at another cloud.").On("provider")

func refuseVM(context.Context, *pipeline.Run) error { return errPreview }

// The parts of a VM job.
func (p *Provider) EnsureIdentity(ctx context.Context, r *pipeline.Run) error {
	return refuseVM(ctx, r)
}
func (p *Provider) RemoveIdentity(ctx context.Context, r *pipeline.Run) error {
	return refuseVM(ctx, r)
}
func (p *Provider) EnsureLaunchTemplate(ctx context.Context, r *pipeline.Run) error {
	return refuseVM(ctx, r)
}
func (p *Provider) RemoveLaunchTemplate(ctx context.Context, r *pipeline.Run) error {
	return refuseVM(ctx, r)
}
func (p *Provider) EnsureVMs(ctx context.Context, r *pipeline.Run) error { return refuseVM(ctx, r) }
func (p *Provider) RemoveVMs(ctx context.Context, r *pipeline.Run) error { return refuseVM(ctx, r) }
func (p *Provider) AdoptVMs(ctx context.Context, r *pipeline.Run) error  { return refuseVM(ctx, r) }
func (p *Provider) RefreshVMs(context.Context, *job.Job) error           { return errPreview }
func (p *Provider) Probe(context.Context, *pipeline.Run, []job.VMInfo) (map[string]cloud.Probe, error) {
	return nil, errPreview
}
func (p *Provider) ExecCommand(*job.Job, job.VMInfo) string { return "" }
func (p *Provider) EnsureLoadBalancer(ctx context.Context, r *pipeline.Run) error {
	return refuseVM(ctx, r)
}
func (p *Provider) RemoveLoadBalancer(ctx context.Context, r *pipeline.Run) error {
	return refuseVM(ctx, r)
}
func (p *Provider) EnsureTargetGroup(ctx context.Context, r *pipeline.Run) error {
	return refuseVM(ctx, r)
}
func (p *Provider) RemoveTargetGroup(ctx context.Context, r *pipeline.Run) error {
	return refuseVM(ctx, r)
}
func (p *Provider) EnsureListener(ctx context.Context, r *pipeline.Run) error {
	return refuseVM(ctx, r)
}
func (p *Provider) RemoveListener(ctx context.Context, r *pipeline.Run) error {
	return refuseVM(ctx, r)
}
func (p *Provider) TargetHealth(context.Context, *job.Job) ([]job.TargetInfo, error) {
	return nil, errPreview
}
func (p *Provider) EnsureRecord(ctx context.Context, r *pipeline.Run) error { return refuseVM(ctx, r) }
func (p *Provider) RemoveRecord(ctx context.Context, r *pipeline.Run) error { return refuseVM(ctx, r) }

var (
	_ cloud.Provider      = (*Provider)(nil)
	_ cloud.NetworkFamily = (*Provider)(nil)
)
