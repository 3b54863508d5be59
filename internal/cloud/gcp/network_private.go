package gcp

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"google.golang.org/api/compute/v1"
	"google.golang.org/api/servicenetworking/v1"

	"github.com/zopday/provisioner/internal/pipeline"
)

// producer is the service producer behind Google's managed databases and caches.
const producer = "services/servicenetworking.googleapis.com"

// The keys of private services access.
const (
	keyServicesRange = "services-range"
	keyConnection    = "services-connection"
)

// ensurePrivateServices makes private services access: a range of the network
// that managed services take addresses from, and the connection to them
// ("Configure private services access").
func (p *Provider) ensurePrivateServices(ctx context.Context, r *pipeline.Run, network, cidr string) error {
	id, err := p.ensure(ctx, r, p.servicesRange(r, network, cidr))
	if err != nil {
		return err
	}
	_, err = r.Ensure(ctx, p.connection(r, network, base(id)))
	return explained(err)
}

// servicesRange is the range that is set aside for managed services.
func (p *Provider) servicesRange(r *pipeline.Run, network, cidr string) pipeline.Resource {
	id := p.global("addresses", name(r, keyServicesRange))
	want := &compute.Address{
		Name: base(id), Description: r.Job.MarkText(keyServicesRange), Network: network, AddressType: "INTERNAL", Purpose: "VPC_PEERING",
	}
	if prefix, err := netip.ParsePrefix(cidr); err == nil {
		want.Address, want.PrefixLength = prefix.Addr().String(), int64(prefix.Bits())
	}
	return object[*compute.Address]{
		kind: p.globalAddresses(), key: keyServicesRange, id: id, want: want,
		see: func(_ context.Context, x *compute.Address) (pipeline.Seen, error) {
			seen := addressSeen(x)
			if network != "" {
				seen.Aspects = []pipeline.Aspect{
					{Name: "range", Wanted: cidr, Seen: fmt.Sprintf("%s/%d", x.Address, x.PrefixLength)},
					{Name: "network", Wanted: rel(network), Seen: rel(x.Network)},
				}
			}
			return seen, nil
		},
	}.resource(p, r)
}

// connection is the network's connection to the producer. It takes no mark: it
// is the job's if it holds the job's range. A network has one connection to a
// producer, so none is made where somebody else's is.
func (p *Provider) connection(r *pipeline.Run, network, reserved string) pipeline.Resource {
	x := pipeline.Resource{Kind: kindConnection, Key: keyConnection, Name: "servicenetworking.googleapis.com", Args: reserved, Slow: true}
	see := func(ctx context.Context) ([]pipeline.Seen, error) {
		all, err := p.connections(ctx, network)
		if err != nil {
			return nil, err
		}
		var out []pipeline.Seen
		for _, c := range all {
			s := pipeline.Seen{ID: connectionID(network)}
			if slices.Contains(c.ReservedPeeringRanges, reserved) {
				s.Owner = r.Job.ID
			}
			out = append(out, s)
		}
		return out, nil
	}
	x.Find = see
	x.Get = func(ctx context.Context, id string) (pipeline.Seen, error) {
		if s, running, err := p.connectionUnderWay(ctx, r, id); running || err != nil {
			return s, err
		}
		all, err := see(ctx)
		if err == nil && len(all) == 0 {
			err = absent(serviceNetworking, "connections.list", "the connection of "+base(network))
		}
		if err != nil {
			return pipeline.Seen{}, err
		}
		if all[0].Owner == "" {
			all[0].Owner = "nobody known: the job's range " + reserved + " is not in it"
		}
		return all[0], nil
	}
	x.Create = func(ctx context.Context, _ string) (pipeline.Seen, error) {
		op, err := p.patchConnection(ctx, network, reserved)
		if err != nil {
			return pipeline.Seen{}, err
		}
		id := connectionID(network)
		r.Remember(underwayKey(id), underway{link: op.Name, verb: "patch"})
		return pipeline.Seen{ID: id, Status: pipeline.Pending}, nil
	}
	x.Delete = func(ctx context.Context, id string) error { return p.deleteConnection(ctx, r, id, network) }
	x.Blockers = func(context.Context, string) (string, error) {
		return "managed services of this network (Cloud SQL, Memorystore, …) still hold addresses of the range " + reserved +
			"; delete them; the range is given back up to some days after the last one", nil
	}
	return x
}

func connectionID(network string) string {
	return rel(network) + "/connections/servicenetworking-googleapis-com"
}

// connections are the network's connections to the producer. The service knows
// networks by the project's number.
func (p *Provider) connections(ctx context.Context, network string) ([]*servicenetworking.Connection, error) {
	numbered, err := p.numbered(ctx, network)
	if err != nil {
		return nil, err
	}
	out, err := send(ctx, p.peering.Services.Connections.List(producer).Network(numbered))
	if err != nil {
		return nil, pipeline.Unless(err, pipeline.NotFound)
	}
	return out.Connections, nil
}

// patchConnection makes the connection or sets its ranges: connections/- with
// force does both, where a create fails if there ever was one.
func (p *Provider) patchConnection(ctx context.Context, network, reserved string) (*servicenetworking.Operation, error) {
	numbered, err := p.numbered(ctx, network)
	if err != nil {
		return nil, err
	}
	return send(ctx, p.peering.Services.Connections.Patch(producer+"/connections/-", &servicenetworking.Connection{
		Network: numbered, ReservedPeeringRanges: []string{reserved},
	}).Force(true))
}

func (p *Provider) deleteConnection(ctx context.Context, r *pipeline.Run, id, network string) error {
	if u, ok := begun(r, id); ok && u.verb == "delete" {
		if done, err := p.connectionOutcome(ctx, r, id, u); err != nil || !done {
			return err
		}
	}
	numbered, err := p.numbered(ctx, network)
	if err != nil {
		return err
	}
	op, err := send(ctx, p.peering.Services.Connections.DeleteConnection(producer+"/connections/servicenetworking-googleapis-com",
		&servicenetworking.DeleteConnectionRequest{ConsumerNetwork: numbered}))
	if err != nil {
		return err
	}
	r.Remember(underwayKey(id), underway{link: op.Name, verb: "delete"})
	return nil
}

// connectionUnderWay is the connection while its operation runs.
func (p *Provider) connectionUnderWay(ctx context.Context, r *pipeline.Run, id string) (pipeline.Seen, bool, error) {
	u, ok := begun(r, id)
	if !ok || r.Mode != pipeline.Apply || u.verb == "delete" {
		return pipeline.Seen{}, false, nil
	}
	done, err := p.connectionOutcome(ctx, r, id, u)
	if err != nil || done {
		return pipeline.Seen{}, false, err
	}
	return pipeline.Seen{ID: id, Owner: r.Job.ID, Status: pipeline.Pending, Reason: "being connected"}, true, nil
}

func (p *Provider) connectionOutcome(ctx context.Context, r *pipeline.Run, id string, u underway) (done bool, err error) {
	op, err := send(ctx, p.peering.Operations.Get(u.link))
	switch {
	case pipeline.Is(err, pipeline.NotFound):
		forget(r, id)
		return true, nil
	case err != nil:
		return false, err
	case !op.Done:
		return false, nil
	}
	forget(r, id)
	if op.Error == nil {
		return true, nil
	}
	ce := &pipeline.CloudError{Service: serviceNetworking, Op: "connections." + u.verb, Message: op.Error.Message, RequestID: op.Name, Sent: true}
	ce.Class, ce.Code = classOf(ce.Op, 0, ce.Message, []string{rpcCode(op.Error.Code)})
	return true, ce
}

// rpcCode is the name of a status code of google.rpc ("google.rpc.Code").
func rpcCode(code int64) string {
	names := []string{
		"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED",
		"RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
	}
	if code < 0 || int(code) >= len(names) {
		return "UNKNOWN"
	}
	return names[code]
}

// numbered is a network's name with the number of its project in place of the ID.
func (p *Provider) numbered(ctx context.Context, network string) (string, error) {
	number, err := p.projectNumber(ctx, projectOf(network))
	if err != nil {
		return "", err
	}
	return strings.Replace(rel(network), "projects/"+projectOf(network)+"/", "projects/"+number+"/", 1), nil
}

// projectNumber is the number of a project.
func (p *Provider) projectNumber(ctx context.Context, project string) (string, error) {
	p.mu.Lock()
	known := p.numbers[project]
	p.mu.Unlock()
	if known != "" {
		return known, nil
	}
	out, err := send(ctx, p.crm.Projects.Get("projects/"+project))
	if err != nil {
		return "", err
	}
	number := base(out.Name)
	if number == "" {
		return "", &pipeline.CloudError{Class: pipeline.Unknown, Service: serviceCRM, Op: "projects.get", Message: "the answer names no project number", Sent: true}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.numbers[project] = number
	return number, nil
}

// removePrivateServices removes the connection and then its range. A producer
// keeps the connection for a while after its last instance is gone.
func (p *Provider) removePrivateServices(ctx context.Context, r *pipeline.Run, network string) error {
	reserved := name(r, keyServicesRange)
	if network != "" {
		if err := r.Remove(ctx, p.connection(r, network, reserved)); err != nil {
			return err
		}
	}
	return r.Remove(ctx, p.servicesRange(r, "", ""))
}
