// Package steps is the table of contents of the provisioner: which steps each
// resource family goes through, over the clouds' narrow interfaces.
//
// Shared steps (stepValidate, stepCreateNetwork, stepCreateIAM,
// stepRegisterSpace, stepFinalize) have one implementation each, which branches
// on the job's resource type and mode.
package steps

import (
	"context"
	"fmt"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/remediation"
	configv1 "github.com/zopday/provisioner/internal/spaces/configv1"
)

// The step names. They are stored in the ledger: never renamed, never reused.
const (
	Validate             = "stepValidate"
	CreateNetwork        = "stepCreateNetwork"
	CreateIAM            = "stepCreateIAM"
	CreateLaunchTemplate = "stepCreateLaunchTemplate"
	CreateVMs            = "stepCreateVMs"
	CreateLoadBalancer   = "stepCreateLoadBalancer"
	CreateTargetGroup    = "stepCreateTargetGroup"
	CreateListener       = "stepCreateListener"
	CreateDNSRecord      = "stepCreateDNSRecord"
	CreateCluster        = "stepCreateCluster"
	BootstrapComponents  = "stepBootstrapComponents"
	InstallRelease       = "stepInstallRelease"
	CreateSubnetGroup    = "stepCreateSubnetGroup"
	CreateDatastore      = "stepCreateDatastore"
	CreateDatabases      = "stepCreateDatabases"
	CreatePeering        = "stepCreatePeering"
	CreateDNSZone        = "stepCreateDNSZone"
	RegisterSpace        = "stepRegisterSpace"
	ApplyRemediation     = "stepApplyRemediation"
	VerifyRemediation    = "stepVerify"
	Finalize             = "stepFinalize"
)

// A Registrar knows the spaces: where something can be deployed. Registering
// the same subject twice gives the same space.
type Registrar interface {
	Register(ctx context.Context, s *configv1.Space) (id string, err error)
	Deregister(ctx context.Context, orgID, id string) error
}

// A Set is the steps over one cloud account.
type Set struct {
	Cloud      cloud.Provider
	Spaces     Registrar
	Components Components            // nil: none can be installed
	Logical    Logical               // nil: no logical databases and connections
	SQL        OpenSQL               // likewise
	Places     Places                // where spaces are; nil: no connection is brought into one
	Clouds     cloud.Opener          // the other clouds, for spaces that are there; nil: likewise
	Pausers    *remediation.Registry // what may be paused; nil: nothing
	Past       Past                  // what was done to a subject before; nil: likewise
}

// Pipeline is every step that the job's family can go through.
func (s Set) Pipeline(j *job.Job) (pipeline.Pipeline, error) {
	switch {
	case j.Kind == job.Remediation:
		return s.remediation(), nil
	case j.Kind == job.Provisioning && j.ResourceType == job.VM:
		return s.vm(), nil
	case j.Kind == job.Provisioning && j.ResourceType == job.Network:
		return s.network(), nil
	case j.Kind == job.Provisioning && j.ResourceType == job.Cluster:
		return s.cluster(), nil
	case j.Kind == job.Provisioning && j.ResourceType == job.Component:
		return s.component(), nil
	case j.Kind == job.Provisioning && (j.ResourceType == job.Datastore || j.ResourceType == job.Cache):
		return s.datastore(), nil
	}
	return nil, fmt.Errorf("there is no pipeline for kind %s, resource type %s", j.Kind, j.ResourceType)
}

func (s Set) vm() pipeline.Pipeline {
	p := pipeline.Pipeline{
		{Name: Validate, Title: "Check account, quotas and names", Ensure: s.validate, Remove: s.proveGone},
		{Name: CreateNetwork, Title: "Network", Ensure: owned(s.on(cloud.Provider.EnsureNetwork)), Remove: owned(s.on(cloud.Provider.RemoveNetwork))},
		{Name: CreateIAM, Title: "Identity", Ensure: owned(s.on(cloud.Provider.EnsureIdentity)), Remove: owned(s.on(cloud.Provider.RemoveIdentity))},
		{Name: CreateLaunchTemplate, Title: "Launch template", Ensure: owned(s.on(cloud.Provider.EnsureLaunchTemplate)), Remove: owned(s.on(cloud.Provider.RemoveLaunchTemplate))},
		{Name: CreateVMs, Title: "VMs", Ensure: s.vms, Remove: owned(s.removeVMs)},
	}
	p = append(p, s.loadBalancer()...)
	return append(p,
		pipeline.Step{Name: RegisterSpace, Title: "Register space", Ensure: s.registerSpace, Remove: s.deregisterSpace},
		pipeline.Step{Name: Finalize, Title: "Read back and report", Ensure: s.finalize},
	)
}

// loadBalancer is the four sub-steps that a vmOp runs alone.
func (s Set) loadBalancer() pipeline.Pipeline {
	return pipeline.Pipeline{
		{Name: CreateLoadBalancer, Title: "Load balancer", When: hasLoadBalancer, Ensure: s.ensureLoadBalancer, Remove: s.removeLoadBalancer},
		{Name: CreateTargetGroup, Title: "Target group", When: hasLoadBalancer, Ensure: s.on(cloud.Provider.EnsureTargetGroup), Remove: s.on(cloud.Provider.RemoveTargetGroup)},
		{Name: CreateListener, Title: "Listener and healthy targets", When: hasLoadBalancer, Ensure: s.on(cloud.Provider.EnsureListener), Remove: s.on(cloud.Provider.RemoveListener)},
		{Name: CreateDNSRecord, Title: "DNS record", When: hasLoadBalancer, Ensure: s.on(cloud.Provider.EnsureRecord), Remove: s.on(cloud.Provider.RemoveRecord)},
	}
}

// hasLoadBalancer reports whether the job has a load balancer, or in a teardown
// may still have one. A run must not lose steps while it goes on, so a teardown
// asks only for what no step of it changes.
func hasLoadBalancer(j *job.Job) bool {
	if j.Phase == job.PhaseTeardown {
		spec, err := j.VMSpec()
		return err == nil && spec.LoadBalancer != nil || j.VMOp != ""
	}
	lb, err := j.LoadBalancer()
	return err == nil && lb != nil
}

// Current is what the job's phase runs: the steps in order, and the direction.
func (s Set) Current(j *job.Job) (pipeline.Pipeline, job.Direction, error) {
	p, err := s.Pipeline(j)
	if err != nil {
		return nil, "", err
	}
	switch j.Phase {
	case job.PhaseProvision:
		return p.For(j), job.Up, nil
	case job.PhaseTeardown:
		return p.For(j).Reversed(), job.Down, nil
	case job.PhaseUpdate:
		switch j.VMOp {
		case job.UpgradeComponent, job.RollBackComponent:
			return s.component(), job.Up, nil
		case job.SyncDatabases:
			return s.databaseSteps(), job.Up, nil
		case job.AttachLB:
			return unconditional(s.loadBalancer()), job.Up, nil
		case job.DetachLB:
			return unconditional(s.loadBalancer()).Reversed(), job.Down, nil
		}
		return nil, "", fmt.Errorf("there is no vmOp %q", j.VMOp)
	}
	return nil, "", fmt.Errorf("there is no phase %q", j.Phase)
}

func unconditional(p pipeline.Pipeline) pipeline.Pipeline {
	for i := range p {
		p[i].When = nil
	}
	return p
}

// on is a step that is all the cloud's own. The cloud is asked for only when the
// step runs: a pipeline that is merely listed has none.
func (s Set) on(method func(cloud.Provider, context.Context, *pipeline.Run) error) pipeline.Func {
	return func(ctx context.Context, r *pipeline.Run) error { return method(s.Cloud, ctx, r) }
}

// owned is a step that an adopt job passes over: it makes nothing, so it
// removes nothing.
func owned(f pipeline.Func) pipeline.Func {
	return func(ctx context.Context, r *pipeline.Run) error {
		if !r.Job.Owns() {
			r.Note("nothing to do: adopted")
			return nil
		}
		return f(ctx, r)
	}
}
