package gcp

import (
	"context"

	"google.golang.org/api/compute/v1"
)

// The kinds of network object as the ledger names them: service and type.
const (
	kindNetwork       = "compute:network"
	kindSubnet        = "compute:subnet"
	kindRouter        = "compute:router"
	kindFirewall      = "compute:firewall"
	kindAddress       = "compute:address"
	kindGlobalAddress = "compute:global-address"
	kindPeering       = "compute:peering"
	kindConnection    = "servicenetworking:connection"
	kindZone          = "dns:zone"
)

func (p *Provider) networks() kind[*compute.Network] {
	s := p.compute.Networks
	return kind[*compute.Network]{
		name: kindNetwork,
		list: func(ctx context.Context, filter, token string) ([]*compute.Network, string, error) {
			out, err := send(ctx, s.List(p.project).Filter(filter).PageToken(token))
			if err != nil {
				return nil, "", err
			}
			return out.Items, out.NextPageToken, nil
		},
		get: func(ctx context.Context, id string) (*compute.Network, error) {
			return send(ctx, s.Get(projectOf(id), base(id)))
		},
		insert: func(ctx context.Context, requestID string, x *compute.Network) (*compute.Operation, error) {
			return send(ctx, s.Insert(p.project, x).RequestId(requestID))
		},
		remove: func(ctx context.Context, id string) (*compute.Operation, error) {
			return send(ctx, s.Delete(projectOf(id), base(id)))
		},
		link: func(x *compute.Network) string { return x.SelfLink },
		mark: func(x *compute.Network) (string, string) { return textMark(x.Description) },
		by:   byText,
	}
}

func (p *Provider) subnets() kind[*compute.Subnetwork] {
	s := p.compute.Subnetworks
	return kind[*compute.Subnetwork]{
		name: kindSubnet,
		list: func(ctx context.Context, filter, token string) ([]*compute.Subnetwork, string, error) {
			out, err := send(ctx, s.List(p.project, p.region).Filter(filter).PageToken(token))
			if err != nil {
				return nil, "", err
			}
			return out.Items, out.NextPageToken, nil
		},
		get: func(ctx context.Context, id string) (*compute.Subnetwork, error) {
			return send(ctx, s.Get(projectOf(id), regionOf(id), base(id)))
		},
		insert: func(ctx context.Context, requestID string, x *compute.Subnetwork) (*compute.Operation, error) {
			return send(ctx, s.Insert(p.project, p.region, x).RequestId(requestID))
		},
		remove: func(ctx context.Context, id string) (*compute.Operation, error) {
			return send(ctx, s.Delete(projectOf(id), regionOf(id), base(id)))
		},
		link: func(x *compute.Subnetwork) string { return x.SelfLink },
		mark: func(x *compute.Subnetwork) (string, string) { return textMark(x.Description) },
		by:   byText,
	}
}

func (p *Provider) routers() kind[*compute.Router] {
	s := p.compute.Routers
	return kind[*compute.Router]{
		name: kindRouter,
		list: func(ctx context.Context, filter, token string) ([]*compute.Router, string, error) {
			out, err := send(ctx, s.List(p.project, p.region).Filter(filter).PageToken(token))
			if err != nil {
				return nil, "", err
			}
			return out.Items, out.NextPageToken, nil
		},
		get: func(ctx context.Context, id string) (*compute.Router, error) {
			return send(ctx, s.Get(projectOf(id), regionOf(id), base(id)))
		},
		insert: func(ctx context.Context, requestID string, x *compute.Router) (*compute.Operation, error) {
			return send(ctx, s.Insert(p.project, p.region, x).RequestId(requestID))
		},
		remove: func(ctx context.Context, id string) (*compute.Operation, error) {
			return send(ctx, s.Delete(projectOf(id), regionOf(id), base(id)))
		},
		link: func(x *compute.Router) string { return x.SelfLink },
		mark: func(x *compute.Router) (string, string) { return textMark(x.Description) },
		by:   byText,
	}
}

func (p *Provider) firewalls() kind[*compute.Firewall] {
	s := p.compute.Firewalls
	return kind[*compute.Firewall]{
		name: kindFirewall,
		list: func(ctx context.Context, filter, token string) ([]*compute.Firewall, string, error) {
			out, err := send(ctx, s.List(p.project).Filter(filter).PageToken(token))
			if err != nil {
				return nil, "", err
			}
			return out.Items, out.NextPageToken, nil
		},
		get: func(ctx context.Context, id string) (*compute.Firewall, error) {
			return send(ctx, s.Get(projectOf(id), base(id)))
		},
		insert: func(ctx context.Context, requestID string, x *compute.Firewall) (*compute.Operation, error) {
			return send(ctx, s.Insert(p.project, x).RequestId(requestID))
		},
		remove: func(ctx context.Context, id string) (*compute.Operation, error) {
			return send(ctx, s.Delete(projectOf(id), base(id)))
		},
		link: func(x *compute.Firewall) string { return x.SelfLink },
		mark: func(x *compute.Firewall) (string, string) { return textMark(x.Description) },
		by:   byText,
	}
}

// addresses are the regional static addresses.
func (p *Provider) addresses() kind[*compute.Address] {
	s := p.compute.Addresses
	return kind[*compute.Address]{
		name: kindAddress,
		list: func(ctx context.Context, filter, token string) ([]*compute.Address, string, error) {
			out, err := send(ctx, s.List(p.project, p.region).Filter(filter).PageToken(token))
			if err != nil {
				return nil, "", err
			}
			return out.Items, out.NextPageToken, nil
		},
		get: func(ctx context.Context, id string) (*compute.Address, error) {
			return send(ctx, s.Get(projectOf(id), regionOf(id), base(id)))
		},
		insert: func(ctx context.Context, requestID string, x *compute.Address) (*compute.Operation, error) {
			return send(ctx, s.Insert(p.project, p.region, x).RequestId(requestID))
		},
		remove: func(ctx context.Context, id string) (*compute.Operation, error) {
			return send(ctx, s.Delete(projectOf(id), regionOf(id), base(id)))
		},
		link: func(x *compute.Address) string { return x.SelfLink },
		mark: func(x *compute.Address) (string, string) { return textMark(x.Description) },
		by:   byText,
	}
}

func (p *Provider) globalAddresses() kind[*compute.Address] {
	s := p.compute.GlobalAddresses
	return kind[*compute.Address]{
		name: kindGlobalAddress,
		list: func(ctx context.Context, filter, token string) ([]*compute.Address, string, error) {
			out, err := send(ctx, s.List(p.project).Filter(filter).PageToken(token))
			if err != nil {
				return nil, "", err
			}
			return out.Items, out.NextPageToken, nil
		},
		get: func(ctx context.Context, id string) (*compute.Address, error) {
			return send(ctx, s.Get(projectOf(id), base(id)))
		},
		insert: func(ctx context.Context, requestID string, x *compute.Address) (*compute.Operation, error) {
			return send(ctx, s.Insert(p.project, x).RequestId(requestID))
		},
		remove: func(ctx context.Context, id string) (*compute.Operation, error) {
			return send(ctx, s.Delete(projectOf(id), base(id)))
		},
		link: func(x *compute.Address) string { return x.SelfLink },
		mark: func(x *compute.Address) (string, string) { return textMark(x.Description) },
		by:   byText,
	}
}
