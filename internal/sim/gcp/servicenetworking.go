package gcp

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

// serviceNetworking is the simulated Service Networking: private connections between a network and Google's services.
type serviceNetworking struct {
	cloud *Cloud
	st    serviceNetworkingState
}

type serviceNetworkingState struct {
	Connections map[string]*connection // by the path of the network
	Operations  map[string]*longOperation
}

// A connection joins a network with the network in which Google's services put what they make for it.
type connection struct {
	Network string // path with the project's ID
	Created time.Time
	Ranges  []string
	Tenant  string // project of the other network
	Domains []Doc  // peered DNS domains
	Busy    bool
}

const (
	producerService = "services/servicenetworking.googleapis.com"
	// producerPeering is the name of the peering that a connection is.
	producerPeering = "servicenetworking-googleapis-com"
)

// How long the changes of a connection take.
const (
	connectTakes    = 40 * time.Second
	disconnectTakes = 30 * time.Second
)

func newServiceNetworking(c *Cloud) *serviceNetworking {
	s := &serviceNetworking{cloud: c}
	c.World.Register(s)
	c.hooks.rangeUsers = s.rangeUser
	ops := map[string]operation{
		"services.connections.list": s.list, "services.connections.create": s.create, "services.connections.patch": s.patch,
		"services.connections.deleteConnection": s.delete, "operations.get": s.getOperation,
	}
	s.peeredMethods(ops)
	c.add("servicenetworking/v1", &api{service: "servicenetworking", listErrors: true, ops: ops, claims: func(path string) bool {
		return !strings.Contains(path, "/operations/") || strings.Contains(path, "/operations/pssn.")
	}})
	return s
}

func (s *serviceNetworking) Cloud() string { return cloudName }
func (s *serviceNetworking) Name() string  { return "servicenetworking" }
func (s *serviceNetworking) State() any    { return &s.st }

// Reset starts afresh.
func (s *serviceNetworking) Reset() {
	s.st = serviceNetworkingState{Connections: map[string]*connection{}, Operations: map[string]*longOperation{}}
}

// Event ends an operation.
func (s *serviceNetworking) Event(kind, key string) {
	if op := s.st.Operations[key]; kind == "done" && op != nil && !op.done() && !op.Held {
		s.carryOut(op)
	}
}

func connectionID(network string) string { return network + "/connections/" + producerPeering }

// Objects lists the connections that exist.
func (s *serviceNetworking) Objects() []sim.Object {
	var out []sim.Object
	for _, network := range keysOf(s.st.Connections) {
		c := s.st.Connections[network]
		if s.alive(c) {
			out = append(out, sim.Object{Account: segmentAfter(network, "projects"), Kind: "connection", ID: connectionID(network), Name: producerPeering,
				Parents: []string{network}, Data: c})
		}
	}
	return out
}

// SetState drives an operation.
func (s *serviceNetworking) SetState(id, state, code, message string) error {
	op := s.st.Operations[id]
	if op == nil {
		return fmt.Errorf("%s has no states; operations have", id)
	}
	carryOut := op.drive(state, code, message)
	if carryOut {
		s.carryOut(op)
	}
	if c := s.st.Connections[op.Target]; c != nil && op.done() {
		c.Busy = false
	}
	return nil
}

// Remove takes a connection away.
func (s *serviceNetworking) Remove(id string) error {
	network, ok := strings.CutSuffix(id, "/connections/"+producerPeering)
	if !ok || s.st.Connections[network] == nil {
		return fmt.Errorf("no object %s", id)
	}
	s.drop(network)
	return nil
}

func (s *serviceNetworking) drop(network string) {
	delete(s.st.Connections, network)
	if res := s.cloud.compute.at(network); res != nil {
		s.cloud.compute.setPeering(res, producerPeering, nil, true)
	}
}

// alive says whether a connection exists: its peering may have been removed, or the whole network.
func (s *serviceNetworking) alive(c *connection) bool {
	res := s.cloud.compute.at(c.Network)
	return res != nil && peeringOf(res, producerPeering) != nil
}

// rangeUser names the connection of a network if it uses a range and something is in it.
func (s *serviceNetworking) rangeUser(network, name string) string {
	c := s.st.Connections[network]
	if c == nil || !s.alive(c) || !slices.Contains(c.Ranges, name) || len(s.producers(network)) == 0 {
		return ""
	}
	return network
}

// producers are what Google's services have in a network.
func (s *serviceNetworking) producers(network string) []string {
	var out []string
	for _, f := range s.cloud.hooks.producers {
		out = append(out, f(network)...)
	}
	return out
}

// network reads the path of a network in a request: with the project's number.
func (s *serviceNetworking) network(r *request, text string) (string, error) {
	path := s.cloud.pathOfLink("", text)
	if path == "" || collectionOf(path) != "networks" {
		return "", badArgument("Invalid network: '%s'. It must be in the form projects/{project number}/global/networks/{network}.", text)
	}
	p, known := s.cloud.project(segmentAfter(path, "projects"))
	if !known || !r.Who.may(p.ID) {
		return "", &Error{HTTP: 403, Reason: "forbidden", Message: "Permission denied on network '" + text + "' (or it may not exist)."}
	}
	r.Project, r.Account = p, p.ID
	if !s.cloud.hooksEnabled(p.ID, r.host()) {
		return "", disabledService(r.api, p)
	}
	if s.cloud.compute.at(path) == nil {
		return "", refuse(404, "notFound", "Network '%s' not found.", text)
	}
	r.Touch(path)
	return path, nil
}

func (s *serviceNetworking) shown(c *connection) Doc {
	project := segmentAfter(c.Network, "projects")
	d := Doc{"network": "projects/" + s.cloud.number(project) + "/global/networks/" + lastPart(c.Network), "peering": producerPeering, "service": producerService}
	if len(c.Ranges) > 0 {
		d["reservedPeeringRanges"] = anys(c.Ranges)
	}
	return d
}

// list answers the connections of a network. One without is an empty document.
func (s *serviceNetworking) list(r *request) (any, error) {
	if r.Query.Get("network") == "" {
		return nil, badArgument("The network must be specified.")
	}
	network, err := s.network(r, r.Query.Get("network"))
	if err != nil {
		return nil, err
	}
	c := s.st.Connections[network]
	if c == nil || !s.alive(c) || (r.HTTP != nil && !s.cloud.World.Visible(r.Call, connectionID(network), c.Created, sim.ByList, "connection")) {
		return Doc{}, nil
	}
	return Doc{"connections": []any{s.shown(c)}}, nil
}

// start begins an operation on the connection of a network.
func (s *serviceNetworking) start(r *request, network, kind string, args Doc, takes time.Duration) Doc {
	name := "operations/pssn.p24-" + r.Project.Number + "-" + s.cloud.World.UUID()
	op := &longOperation{Name: name, Project: r.Project.ID, Target: network, Kind: kind, Args: args, Begun: s.cloud.World.Now(), Doc: Doc{"name": name}}
	s.st.Operations[name] = op
	s.cloud.after(takes, "servicenetworking", "done", name)
	if c := s.st.Connections[network]; c != nil {
		c.Busy = true
	}
	r.Make(name)
	if r.HTTP == nil {
		s.carryOut(op)
	}
	return op.Doc
}

// ready refuses a change while another one runs.
func (s *serviceNetworking) ready(network string) error {
	if c := s.st.Connections[network]; c != nil && c.Busy {
		return &Error{HTTP: 400, Reason: "failedPrecondition", Status: "FAILED_PRECONDITION", Message: "Another operation is in progress on the connection of this network. Please try again later."}
	}
	return nil
}

func (s *serviceNetworking) create(r *request) (any, error) {
	network, err := s.network(r, str(r.Body, "network"))
	if err != nil {
		return nil, err
	}
	if err := s.ready(network); err != nil {
		return nil, err
	}
	return s.start(r, network, "create", Doc{"ranges": list(r.Body, "reservedPeeringRanges")}, connectTakes), nil
}

// patch changes the ranges of a connection; with force it makes one that is not there.
func (s *serviceNetworking) patch(r *request) (any, error) {
	network, err := s.network(r, str(r.Body, "network"))
	if err != nil {
		return nil, err
	}
	if err := s.ready(network); err != nil {
		return nil, err
	}
	return s.start(r, network, "patch", Doc{"ranges": list(r.Body, "reservedPeeringRanges"), "force": r.Query.Get("force") == "true"}, connectTakes), nil
}

// delete removes a connection, unless one of Google's services still has something in it, which shows when the operation ends.
func (s *serviceNetworking) delete(r *request) (any, error) {
	network, err := s.network(r, str(r.Body, "consumerNetwork"))
	if err != nil {
		return nil, err
	}
	c := s.st.Connections[network]
	if c == nil || !s.alive(c) {
		return nil, refuse(404, "notFound", "Connection not found for network '%s'.", str(r.Body, "consumerNetwork"))
	}
	if err := s.ready(network); err != nil {
		return nil, err
	}
	return s.start(r, network, "delete", nil, disconnectTakes), nil
}

func (s *serviceNetworking) getOperation(r *request) (any, error) {
	op := s.st.Operations[r.Path["name"]]
	if op == nil {
		return nil, refuse(404, "notFound", "Operation not found: %s", r.Path["name"])
	}
	r.Account = op.Project
	return op.Doc, nil
}

// carryOut does what an operation is for.
func (s *serviceNetworking) carryOut(op *longOperation) {
	if op.done() {
		return
	}
	c := s.st.Connections[op.Target]
	if c != nil {
		c.Busy = false
		if !s.alive(c) {
			c = nil
		}
	}
	res := s.cloud.compute.at(op.Target)
	switch {
	case res == nil:
		op.fail(rpcNotFound, "Network "+op.Target+" not found.")
	case strings.HasSuffix(op.Kind, "-domain"):
		s.carryOutDomain(op, c)
	case op.Kind == "delete":
		if users := s.producers(op.Target); len(users) > 0 {
			op.fail(rpcFailedPrecondition, "Failed to delete connection; Producer services (e.g. CloudSQL, Cloud Memstore, etc.) are still using this connection.")
			return
		}
		s.drop(op.Target)
		op.finish("google.protobuf.Empty", nil)
	case op.Kind == "create" && c != nil && len(c.Ranges) > 0:
		op.fail(rpcFailedPrecondition, fmt.Sprintf("Cannot modify allocated ranges in CreateConnection. Please use UpdateConnection.\nExisting allocated IP ranges: [%s].", strings.Join(c.Ranges, ", ")))
	case op.Kind == "patch" && c == nil && !truth(op.Args, "force"):
		op.fail(rpcNotFound, "Connection not found for network '"+op.Target+"'.")
	default:
		s.connect(op, res, c)
	}
}

// connect gives the connection its ranges.
func (s *serviceNetworking) connect(op *longOperation, res *Resource, c *connection) {
	ranges := texts(op.Args, "ranges")
	for _, name := range ranges {
		a := s.cloud.compute.at("projects/" + op.Project + "/global/addresses/" + name)
		if a == nil || str(a.Doc, "purpose") != "VPC_PEERING" || s.cloud.compute.networkOf(a) != op.Target {
			op.fail(rpcInvalidArgument, fmt.Sprintf("Cannot find allocated IP range '%s' in network '%s'.", name, op.Target))
			return
		}
	}
	if c == nil {
		c = &connection{Network: op.Target, Created: s.cloud.World.Now(), Tenant: s.cloud.World.Hex("u", 16) + "p-tp"}
		s.st.Connections[op.Target] = c
	}
	if lost := without(c.Ranges, ranges); len(lost) > 0 && len(s.producers(op.Target)) > 0 && !truth(op.Args, "force") {
		op.fail(rpcFailedPrecondition, fmt.Sprintf("Cannot remove the allocated ranges [%s]: they are in use.", strings.Join(lost, ", ")))
		return
	}
	c.Ranges = ranges
	p := Doc{"name": producerPeering}
	p["exportSubnetRoutesWithPublicIp"] = false
	fillPeering(p, "projects/"+c.Tenant+"/global/networks/servicenetworking")
	s.cloud.compute.setPeering(res, producerPeering, p, false)
	answer := s.shown(c)
	delete(answer, "service") // the operation's answer does not have it, the list does
	op.finish("google.cloud.servicenetworking.v1.Connection", answer)
}
