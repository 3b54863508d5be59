package gcp

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

// connectionPolicies are the service connection policies of the simulated Network Connectivity API: by them managed services make
// endpoints of Private Service Connect in a network ("About service connection policies").
type connectionPolicies struct {
	cloud *Cloud
	st    policiesState
}

type policiesState struct {
	Policies   map[string]*connectionPolicy // by name: projects/p/locations/l/serviceConnectionPolicies/x
	Operations map[string]*longOperation
}

// A connectionPolicy lets the services of a class into a network.
type connectionPolicy struct {
	Name    string
	Doc     Doc
	Created time.Time
	Made    bool
}

const (
	memorystoreClass = "gcp-memorystore"
	policyTakes      = 25 * time.Second
	// policyOperations is the mark of this service's operations.
	policyOperations = "63"
)

func newConnectionPolicies(c *Cloud) *connectionPolicies {
	s := &connectionPolicies{cloud: c}
	c.World.Register(s)
	const p = "projects.locations.serviceConnectionPolicies."
	c.add("networkconnectivity/v1", &api{service: "networkconnectivity", ops: map[string]operation{
		p + "create": s.create, p + "get": s.get, p + "list": s.list, p + "patch": s.patch, p + "delete": s.delete, "projects.locations.operations.get": s.getOperation,
	}, claims: func(path string) bool {
		return !strings.Contains(path, "/operations/") || operationMark(path) == policyOperations
	}})
	return s
}

func (s *connectionPolicies) Cloud() string { return cloudName }
func (s *connectionPolicies) Name() string  { return "networkconnectivity" }
func (s *connectionPolicies) State() any    { return &s.st }

// Reset starts afresh.
func (s *connectionPolicies) Reset() {
	s.st = policiesState{Policies: map[string]*connectionPolicy{}, Operations: map[string]*longOperation{}}
}

// Event ends an operation.
func (s *connectionPolicies) Event(kind, key string) {
	if op := s.st.Operations[key]; kind == "done" && op != nil && !op.done() && !op.Held {
		s.carryOut(op)
	}
}

// Objects lists the policies.
func (s *connectionPolicies) Objects() []sim.Object {
	var out []sim.Object
	for _, name := range keysOf(s.st.Policies) {
		p := s.st.Policies[name]
		out = append(out, sim.Object{Account: segmentAfter(name, "projects"), Region: segmentAfter(name, "locations"), Kind: "service-connection-policy", ID: name, Name: lastPart(name),
			Tags: labelsOf(p.Doc), Parents: []string{str(p.Doc, "network")}, Data: &p.Doc})
	}
	return out
}

// SetState drives an operation.
func (s *connectionPolicies) SetState(id, state, code, message string) error {
	op := s.st.Operations[id]
	if op == nil {
		return fmt.Errorf("%s has no states; operations have", id)
	}
	if op.drive(state, code, message) {
		s.carryOut(op)
	} else if p := s.st.Policies[op.Target]; op.done() && op.Kind == "create" && p != nil && !p.Made {
		delete(s.st.Policies, op.Target)
	}
	return nil
}

// Remove takes a policy away.
func (s *connectionPolicies) Remove(id string) error {
	if s.st.Policies[id] == nil {
		return fmt.Errorf("no object %s", id)
	}
	delete(s.st.Policies, id)
	return nil
}

// in is the policy of a network for a class in a region, if there is one.
func (s *connectionPolicies) in(network, region, class string) *connectionPolicy {
	for _, name := range keysOf(s.st.Policies) {
		p := s.st.Policies[name]
		if p.Made && str(p.Doc, "network") == network && str(p.Doc, "serviceClass") == class && segmentAfter(name, "locations") == region {
			return p
		}
	}
	return nil
}

var policyID = regexp.MustCompile(`^[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?$`)

func (s *connectionPolicies) create(r *request) (any, error) {
	parent := byID(r, r.Path["parent"])
	region := segmentAfter(parent, "locations")
	id := r.Query.Get("serviceConnectionPolicyId")
	name := parent + "/serviceConnectionPolicies/" + id
	d := clone(r.Body)
	network := s.cloud.pathOfLink(r.Project.ID, str(d, "network"))
	switch {
	case !regionExists(region):
		return nil, redisInvalid("parent", "Location '%s' is not a valid location.", region)
	case !policyID.MatchString(id):
		return nil, redisInvalid("service_connection_policy_id", "Invalid ID '%s'.", id)
	case s.st.Policies[name] != nil:
		return nil, refuse(409, "alreadyExists", "Resource '%s' already exists", name)
	case network == "" || s.cloud.compute.at(network) == nil:
		return nil, redisInvalid("service_connection_policy.network", "Network '%s' was not found.", str(d, "network"))
	case str(d, "serviceClass") == "":
		return nil, redisInvalid("service_connection_policy.service_class", "The service class must be given.")
	}
	for _, other := range s.st.Policies {
		if str(other.Doc, "network") == network && str(other.Doc, "serviceClass") == str(d, "serviceClass") && segmentAfter(other.Name, "locations") == region {
			return nil, refuse(409, "alreadyExists", "A service connection policy for network '%s', region '%s' and service class '%s' already exists: '%s'.", network, region, str(d, "serviceClass"), other.Name)
		}
	}
	if err := s.checkSubnets(r, d, network, region); err != nil {
		return nil, err
	}
	now := s.cloud.World.Now()
	d["name"], d["network"], d["infrastructure"], d["createTime"], d["updateTime"] = name, network, "PSC", zuluTime(now), zuluTime(now)
	d["etag"] = fingerprint(d)
	s.st.Policies[name] = &connectionPolicy{Name: name, Doc: d, Created: now}
	r.Touch(network)
	return s.start(r, name, "create", nil), nil
}

// checkSubnets refuses subnetworks that are not the network's in that region.
func (s *connectionPolicies) checkSubnets(r *request, d Doc, network, region string) error {
	psc := sub(d, "pscConfig")
	subnets := texts(psc, "subnetworks")
	if len(subnets) == 0 {
		return redisInvalid("service_connection_policy.psc_config.subnetworks", "At least one subnetwork must be given.")
	}
	var paths []string
	for _, text := range subnets {
		path := s.cloud.pathOfLink(r.Project.ID, text)
		res := s.cloud.compute.at(path)
		if path == "" || res == nil || s.cloud.compute.networkOf(res) != network || res.region() != region {
			return redisInvalid("service_connection_policy.psc_config.subnetworks", "Subnetwork '%s' was not found in network '%s' and region '%s'.", text, network, region)
		}
		paths = append(paths, path)
	}
	psc["subnetworks"] = anys(paths)
	return nil
}

func (s *connectionPolicies) policy(r *request) (*connectionPolicy, error) {
	name := byID(r, r.Path["name"])
	p := s.st.Policies[name]
	if p == nil || (!r.Mutating && r.HTTP != nil && !s.cloud.World.Visible(r.Call, name, p.Created, sim.ByID, "service-connection-policy "+lastPart(name))) {
		return nil, refuse(404, "notFound", "Resource '%s' was not found", name)
	}
	r.Touch(name)
	return p, nil
}

// shown is a policy with the endpoints that were made by it.
func (s *connectionPolicies) shown(p *connectionPolicy) Doc {
	d := clone(p.Doc)
	var all []any
	for _, path := range s.endpoints(p) {
		a := s.cloud.compute.at(path)
		all = append(all, Doc{"state": "ACTIVE", "consumerAddress": path, "consumerForwardingRule": ruleOf(path), "consumerTargetProject": segmentAfter(path, "projects"), "producerInstanceId": a.Inner["producer"]})
	}
	if len(all) > 0 {
		d["pscConnections"] = all
	}
	return d
}

// endpoints are the addresses that were taken by a policy.
func (s *connectionPolicies) endpoints(p *connectionPolicy) []string {
	var out []string
	for _, a := range s.cloud.compute.inOrder(func(o *Resource) bool { return o.Collection == "addresses" && o.Inner["policy"] == p.Name }) {
		out = append(out, a.Path)
	}
	return out
}

func (s *connectionPolicies) get(r *request) (any, error) {
	p, err := s.policy(r)
	if err != nil {
		return nil, err
	}
	return s.shown(p), nil
}

func (s *connectionPolicies) list(r *request) (any, error) {
	var items []Doc
	for _, name := range keysOf(s.st.Policies) {
		p := s.st.Policies[name]
		if strings.HasPrefix(name, byID(r, r.Path["parent"])+"/") && (r.HTTP == nil || s.cloud.World.Visible(r.Call, name, p.Created, sim.ByList, "service-connection-policy "+lastPart(name))) {
			items = append(items, s.shown(p))
		}
	}
	return r.page(items, "serviceConnectionPolicies", 500)
}

// patch changes subnetworks, labels and description.
func (s *connectionPolicies) patch(r *request) (any, error) {
	p, err := s.policy(r)
	if err != nil {
		return nil, err
	}
	next := clone(p.Doc)
	for field := range strings.SplitSeq(r.Query.Get("updateMask"), ",") {
		field, _, _ = strings.Cut(camel(field), ".")
		if !slices.Contains([]string{"pscConfig", "labels", "description"}, field) {
			return nil, redisInvalid("update_mask", "Field '%s' cannot be updated.", field)
		}
		next[field] = r.Body[field]
	}
	if err := s.checkSubnets(r, next, str(p.Doc, "network"), segmentAfter(p.Name, "locations")); err != nil {
		return nil, err
	}
	return s.start(r, p.Name, "update", Doc{"doc": next}), nil
}

// delete refuses while endpoints are there that were made by the policy.
func (s *connectionPolicies) delete(r *request) (any, error) {
	p, err := s.policy(r)
	if err != nil {
		return nil, err
	}
	if n := len(s.endpoints(p)); n > 0 {
		return nil, &Error{HTTP: 400, Reason: "failedPrecondition", Status: "FAILED_PRECONDITION",
			Message: fmt.Sprintf("The service connection policy '%s' cannot be deleted: %d Private Service Connect connections still use it.", p.Name, n)}
	}
	return s.start(r, p.Name, "delete", nil), nil
}

func (s *connectionPolicies) start(r *request, target, verb string, args Doc) Doc {
	now := s.cloud.World.Now()
	name := s.cloud.operationName("projects/"+r.Project.ID+"/locations/"+segmentAfter(target, "locations"), policyOperations)
	op := &longOperation{Name: name, Project: r.Project.ID, Target: target, Kind: verb, Args: args, Begun: now, Doc: Doc{"name": name, "done": false,
		"metadata": Doc{"@type": "type.googleapis.com/google.cloud.networkconnectivity.v1.OperationMetadata", "createTime": zuluTime(now), "target": target, "verb": verb, "apiVersion": "v1"}}}
	s.st.Operations[name] = op
	s.cloud.after(policyTakes, "networkconnectivity", "done", name)
	r.Touch(target)
	r.Make(name)
	if r.HTTP == nil { // the control API does not wait
		s.carryOut(op)
	}
	return op.Doc
}

// carryOut does what an operation is for.
func (s *connectionPolicies) carryOut(op *longOperation) {
	p := s.st.Policies[op.Target]
	if op.done() || p == nil {
		return
	}
	sub(op.Doc, "metadata")["endTime"] = zuluTime(s.cloud.World.Now())
	switch op.Kind {
	case "delete":
		delete(s.st.Policies, op.Target)
		op.finish("google.protobuf.Empty", nil)
		return
	case "update":
		p.Doc = sub(op.Args, "doc")
	}
	p.Made = true
	op.finish("google.cloud.networkconnectivity.v1.ServiceConnectionPolicy", s.shown(p))
}

func (s *connectionPolicies) getOperation(r *request) (any, error) {
	op := s.st.Operations[byID(r, r.Path["name"])]
	if op == nil {
		return nil, refuse(404, "notFound", "Operation '%s' was not found", r.Path["name"])
	}
	r.Touch(op.Name, op.Target)
	return op.Doc, nil
}
