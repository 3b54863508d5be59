package azure

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	aks "github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/containerservice/armcontainerservice/v9"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// A poolDesign is what one pool is made by.
type poolDesign struct {
	spec    job.NodePool
	info    job.NodePoolInfo
	subnet  string
	version string

	ephemeral, encrypted bool // what the size and the subscription allow
}

// nodePools are the designs of the job's pools, in the spec's order.
func (p *Provider) nodePools(ctx context.Context, r *pipeline.Run, d design) ([]poolDesign, error) {
	var out []poolDesign
	for i, n := range d.spec.NodePools {
		x := poolDesign{spec: n, info: job.NodePoolInfo{Name: n.Name, InstanceType: n.InstanceType}, subnet: d.subnetOf(i), version: d.info.Version}
		if have := d.info.Pool(n.Name); have != nil {
			x.info = *have
		}
		if r.Mode == pipeline.Apply && !r.Down {
			t, err := p.nodeTraits(ctx, r, x.info.InstanceType, n.DiskGiB)
			if err != nil {
				return nil, err
			}
			x.ephemeral, x.encrypted = t.ephemeral, t.encrypted
		}
		out = append(out, x)
	}
	return out, nil
}

// nodeTraits are what nodes of a size can have.
type nodeTraits struct{ ephemeral, encrypted bool }

func (p *Provider) nodeTraits(ctx context.Context, r *pipeline.Run, instanceType string, diskGiB int) (nodeTraits, error) {
	key := fmt.Sprintf("traits of nodes of %s with %d GiB", instanceType, diskGiB)
	if t, ok := r.Recall(key).(nodeTraits); ok {
		return t, nil
	}
	s, ok, err := p.sizeNamed(ctx, instanceType)
	if err != nil || !ok {
		return nodeTraits{}, unlessDenied(r, "what nodes of size "+instanceType+" can have", err)
	}
	t := nodeTraits{ephemeral: s.holds(diskGiB)}
	if s.traits.encrypted {
		t.encrypted, err = p.hostEncryption(ctx)
		if err := unlessDenied(r, "encryption at host", err); err != nil {
			return t, err
		}
	}
	r.Remember(key, t)
	return t, nil
}

func (p *Provider) poolID(r *pipeline.Run, name string) string {
	return p.clusterID(r) + "/agentPools/" + name
}

// properties are what a pool is made with.
func (n poolDesign) properties(j *job.Job) aks.ManagedClusterAgentPoolProfileProperties {
	f := aks.ManagedClusterAgentPoolProfileProperties{
		Mode: new(aks.AgentPoolModeUser), Type: new(aks.AgentPoolTypeVirtualMachineScaleSets), VMSize: &n.info.InstanceType, OSType: new(aks.OSTypeLinux), OSSKU: new(aks.OSSKUUbuntu),
		VnetSubnetID: &n.subnet, AvailabilityZones: to.SliceOfPtrs(n.info.Zones...), OrchestratorVersion: &n.version,
		Count: new(int32(n.info.Desired)), MaxPods: new(int32(maxPods)),
		OSDiskSizeGB: new(int32(n.spec.DiskGiB)), OSDiskType: new(aks.OSDiskTypeManaged),
		EnableNodePublicIP: new(false), EnableEncryptionAtHost: &n.encrypted,
		SecurityProfile: &aks.AgentPoolSecurityProfile{SSHAccess: new(aks.AgentPoolSSHAccessDisabled)},
		Tags:            tagsFor(j, "pool-"+n.spec.Name),
	}
	if n.ephemeral {
		f.OSDiskType = new(aks.OSDiskTypeEphemeral)
	}
	if n.spec.System(job.Azure) {
		f.Mode = new(aks.AgentPoolModeSystem)
	}
	if n.spec.Spot {
		f.ScaleSetPriority, f.ScaleSetEvictionPolicy = new(aks.ScaleSetPrioritySpot), new(aks.ScaleSetEvictionPolicyDelete)
		f.SpotMaxPrice = new(float32(-1)) // the on-demand price at most
	}
	n.change(&f)
	return f
}

// change sets what of a pool can be changed while it lives.
func (n poolDesign) change(f *aks.ManagedClusterAgentPoolProfileProperties) {
	f.EnableAutoScaling, f.MinCount, f.MaxCount = new(true), new(int32(n.info.Min)), new(int32(n.info.Max))
	if c := value(f.Count); int(c) < n.info.Min || int(c) > n.info.Max {
		f.Count = new(int32(min(max(int(c), n.info.Min), n.info.Max)))
	}
	labels := map[string]*string{}
	for k, v := range f.NodeLabels {
		if ownMark(k) {
			labels[k] = v
		}
	}
	for k, v := range n.spec.Labels {
		labels[k] = &v
	}
	f.NodeLabels = labels
	taints := slices.DeleteFunc(values(f.NodeTaints), func(t string) bool { return !ownMark(t) })
	f.NodeTaints = to.SliceOfPtrs(append(taints, taintsOf(n.spec)...)...)
}

// nodePool is one pool of nodes.
func (p *Provider) nodePool(r *pipeline.Run, n poolDesign) object[aks.AgentPool] {
	return object[aks.AgentPool]{
		p: p, r: r, kind: kindNodePool, key: "pool-" + n.spec.Name, id: p.poolID(r, n.spec.Name), onlyIfNew: true,
		body: func() any {
			if info := r.Job.Config.InfraConfig.Cluster.Pool(n.spec.Name); info != nil {
				info.ID, info.State = "", "" // of one that is gone
			}
			f := n.properties(r.Job)
			return aks.AgentPool{Properties: &f}
		},
		owner: func(_ context.Context, x resource[aks.AgentPool]) (string, error) {
			return cmp.Or(value(value(x.is.Properties).Tags[job.MarkOwner]), pipeline.Unmarked), nil
		},
		see: func(_ context.Context, x resource[aks.AgentPool]) ([]pipeline.Aspect, error) {
			return p.poolAspects(r, n, x), nil
		},
	}
}

func (p *Provider) poolAspects(r *pipeline.Run, n poolDesign, x resource[aks.AgentPool]) []pipeline.Aspect {
	f := value(x.is.Properties)
	var want aks.ManagedClusterAgentPoolProfileProperties
	n.change(&want)
	set := func(ctx context.Context) error {
		fixed := f
		fixed.ProvisioningState, fixed.CurrentOrchestratorVersion, fixed.ETag, fixed.Status, fixed.PowerState = nil, nil, nil, nil, nil
		n.change(&fixed)
		at := x.meta
		at.ID, at.Etag = p.poolID(r, n.spec.Name), value(f.ETag)
		return p.update(ctx, r, at, aks.AgentPool{Properties: &fixed})
	}
	out := []pipeline.Aspect{
		{Name: "instance type", Wanted: strings.ToLower(n.info.InstanceType), Seen: strings.ToLower(value(f.VMSize))},
		{Name: "autoscaling", Wanted: scaling(want), Seen: scaling(f), Set: set},
		{Name: "labels", Wanted: labelText(want.NodeLabels), Seen: labelText(f.NodeLabels), Set: set},
		{Name: "taints", Wanted: taintsText(want.NodeTaints), Seen: taintsText(f.NodeTaints), Set: set},
	}
	return append(out, watched(r,
		pipeline.Aspect{Name: "zones", Wanted: sorted(n.info.Zones), Seen: sorted(values(f.AvailabilityZones))},
		pipeline.Aspect{Name: "version", Wanted: n.version, Seen: minorOf(value(f.OrchestratorVersion))})...)
}

func scaling(f aks.ManagedClusterAgentPoolProfileProperties) string {
	if !value(f.EnableAutoScaling) {
		return "off"
	}
	return fmt.Sprintf("%d to %d", value(f.MinCount), value(f.MaxCount))
}

// labelText are the labels that the job asked for: AKS adds its own.
func labelText(labels map[string]*string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		if !ownMark(k) {
			out = append(out, k+"="+value(labels[k]))
		}
	}
	return strings.Join(out, ", ")
}

func taintsText(taints []*string) string {
	return sorted(slices.DeleteFunc(values(taints), ownMark))
}

// minorOf is a version without its patch.
func minorOf(version string) string {
	parts := strings.SplitN(version, ".", 3)
	return strings.Join(parts[:min(len(parts), 2)], ".")
}

// poolUp is the state of a pool that has its nodes.
const poolUp = "Succeeded"

// learnPool records where a pool stands.
func (p *Provider) learnPool(ctx context.Context, r *pipeline.Run, n poolDesign) error {
	if r.Mode != pipeline.Apply {
		return nil
	}
	info := r.Job.Config.InfraConfig.Cluster.Pool(n.spec.Name)
	if info == nil || info.State == poolUp && info.ID != "" {
		return nil
	}
	x, err := read[aks.AgentPool](ctx, p, p.poolID(r, n.spec.Name))
	if err != nil {
		return pipeline.Unseen(err, "pool "+n.spec.Name)
	}
	info.ID, info.State = p.poolID(r, n.spec.Name), x.Properties.ProvisioningState
	return nil
}
