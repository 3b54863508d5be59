package gcp

import (
	"context"

	"google.golang.org/api/compute/v1"
)

// The kinds of object that VMs are made of.
const (
	kindInstance         = "compute:instance"
	kindInstanceTemplate = "compute:instance-template"
	kindInstanceGroup    = "compute:instance-group"
	kindManagedGroup     = "compute:instance-group-manager"
	kindAutoscaler       = "compute:autoscaler"
)

// instanceTemplates are what VMs are started from. They never change.
func (p *Provider) instanceTemplates() kind[*compute.InstanceTemplate] {
	k := described(kindInstanceTemplate, func(x *compute.InstanceTemplate) (link, description string) { return x.SelfLink, x.Description })
	api := p.compute.InstanceTemplates
	k.list = func(ctx context.Context, filter, token string) ([]*compute.InstanceTemplate, string, error) {
		out, err := send(ctx, api.List(p.project).Filter(filter).PageToken(token))
		if err != nil {
			return nil, "", err
		}
		return out.Items, out.NextPageToken, nil
	}
	k.get = func(ctx context.Context, id string) (*compute.InstanceTemplate, error) {
		return send(ctx, api.Get(projectOf(id), base(id)))
	}
	k.insert = func(ctx context.Context, request string, x *compute.InstanceTemplate) (*compute.Operation, error) {
		return send(ctx, api.Insert(p.project, x).RequestId(request))
	}
	k.remove = func(ctx context.Context, id string) (*compute.Operation, error) {
		return send(ctx, api.Delete(projectOf(id), base(id)))
	}
	return k
}

// managedGroups keep VMs of one template running, spread over the zones of the region.
func (p *Provider) managedGroups() kind[*compute.InstanceGroupManager] {
	region := p.region
	k := described(kindManagedGroup, func(x *compute.InstanceGroupManager) (link, description string) { return x.SelfLink, x.Description })
	api := p.compute.RegionInstanceGroupManagers
	k.list = func(ctx context.Context, filter, token string) ([]*compute.InstanceGroupManager, string, error) {
		out, err := send(ctx, api.List(p.project, region).Filter(filter).PageToken(token))
		if err != nil {
			return nil, "", err
		}
		return out.Items, out.NextPageToken, nil
	}
	k.get = func(ctx context.Context, id string) (*compute.InstanceGroupManager, error) {
		return send(ctx, api.Get(projectOf(id), regionOf(id), base(id)))
	}
	k.insert = func(ctx context.Context, request string, x *compute.InstanceGroupManager) (*compute.Operation, error) {
		return send(ctx, api.Insert(p.project, region, x).RequestId(request))
	}
	k.remove = func(ctx context.Context, id string) (*compute.Operation, error) {
		return send(ctx, api.Delete(projectOf(id), regionOf(id), base(id)))
	}
	return k
}

// autoscalers set the size of a managed group.
func (p *Provider) autoscalers() kind[*compute.Autoscaler] {
	region := p.region
	k := described(kindAutoscaler, func(x *compute.Autoscaler) (link, description string) { return x.SelfLink, x.Description })
	api := p.compute.RegionAutoscalers
	k.list = func(ctx context.Context, filter, token string) ([]*compute.Autoscaler, string, error) {
		out, err := send(ctx, api.List(p.project, region).Filter(filter).PageToken(token))
		if err != nil {
			return nil, "", err
		}
		return out.Items, out.NextPageToken, nil
	}
	k.get = func(ctx context.Context, id string) (*compute.Autoscaler, error) {
		return send(ctx, api.Get(projectOf(id), regionOf(id), base(id)))
	}
	k.insert = func(ctx context.Context, request string, x *compute.Autoscaler) (*compute.Operation, error) {
		return send(ctx, api.Insert(p.project, region, x).RequestId(request))
	}
	k.remove = func(ctx context.Context, id string) (*compute.Operation, error) {
		return send(ctx, api.Delete(projectOf(id), regionOf(id), base(id)))
	}
	return k
}

// instances are VMs: listed in every zone, made in one.
func (p *Provider) instances(zone string) kind[*compute.Instance] {
	api := p.compute.Instances
	return kind[*compute.Instance]{
		name: kindInstance,
		list: func(ctx context.Context, filter, token string) ([]*compute.Instance, string, error) {
			out, err := send(ctx, api.AggregatedList(p.project).Filter(filter).PageToken(token))
			if err != nil {
				return nil, "", err
			}
			var all []*compute.Instance
			for _, scope := range out.Items {
				all = append(all, scope.Instances...)
			}
			return all, out.NextPageToken, nil
		},
		get: func(ctx context.Context, id string) (*compute.Instance, error) {
			return send(ctx, api.Get(projectOf(id), zoneOf(id), base(id)))
		},
		insert: func(ctx context.Context, request string, x *compute.Instance) (*compute.Operation, error) {
			return send(ctx, api.Insert(p.project, zone, x).RequestId(request))
		},
		remove: func(ctx context.Context, id string) (*compute.Operation, error) {
			return send(ctx, api.Delete(projectOf(id), zoneOf(id), base(id)))
		},
		link: func(x *compute.Instance) string { return x.SelfLink },
		mark: func(x *compute.Instance) (string, string) { return labelMark(x.Labels) },
		by:   byLabel,
	}
}

// instanceGroups are the unmanaged groups: listed in every zone, made in one.
func (p *Provider) instanceGroups(zone string) kind[*compute.InstanceGroup] {
	api := p.compute.InstanceGroups
	k := described(kindInstanceGroup, func(x *compute.InstanceGroup) (link, description string) { return x.SelfLink, x.Description })
	k.list = func(ctx context.Context, filter, token string) ([]*compute.InstanceGroup, string, error) {
		out, err := send(ctx, api.AggregatedList(p.project).Filter(filter).PageToken(token))
		if err != nil {
			return nil, "", err
		}
		var all []*compute.InstanceGroup
		for _, scope := range out.Items {
			all = append(all, scope.InstanceGroups...)
		}
		return all, out.NextPageToken, nil
	}
	k.get = func(ctx context.Context, id string) (*compute.InstanceGroup, error) {
		return send(ctx, api.Get(projectOf(id), zoneOf(id), base(id)))
	}
	k.insert = func(ctx context.Context, request string, x *compute.InstanceGroup) (*compute.Operation, error) {
		return send(ctx, api.Insert(p.project, zone, x).RequestId(request))
	}
	k.remove = func(ctx context.Context, id string) (*compute.Operation, error) {
		return send(ctx, api.Delete(projectOf(id), zoneOf(id), base(id)))
	}
	return k
}
