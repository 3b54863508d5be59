package gcp

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

// memorystoreRedis is the simulated Memorystore for Redis. The servers behind are those of [sim.Databases].
type memorystoreRedis struct {
	cloud *Cloud
	st    redisState
	open  map[string]bool // serverIDs that were opened in this process
}

type redisState struct {
	Seq        int
	Instances  map[string]*redisInstance // by name: projects/p/locations/l/instances/i
	Operations map[string]*longOperation
	Lingering  []lingering
}

// A redisInstance is an instance.
type redisInstance struct {
	Name    string
	Doc     Doc
	Created time.Time
	Seq     int
	Busy    string // operation that runs
	Auth    string // AUTH string
	// Block is its part of the network's address space.
	Block string
	Open  bool // it has a server
}

func newMemorystoreRedis(c *Cloud) *memorystoreRedis {
	s := &memorystoreRedis{cloud: c, open: map[string]bool{}}
	c.World.DefineQuota(sim.Quota{Cloud: cloudName, Service: "redis", Code: "capacity-gb-per-region", Name: "Total capacity (GB) per region", Default: 1000, Unit: "GB", Adjustable: true})
	c.World.Register(s)
	const in = "projects.locations.instances."
	c.add("redis/v1", &api{service: "redis", denied: redisDenied, ops: map[string]operation{
		in + "create": s.create, in + "get": s.get, in + "list": s.list, in + "delete": s.delete, in + "patch": s.patch, in + "getAuthString": s.authString, in + "upgrade": s.upgrade,
		"projects.locations.operations.get": s.getOperation, "projects.locations.operations.list": s.listOperations, "projects.locations.list": s.listLocations, "projects.locations.get": s.getLocation,
	}, claims: func(path string) bool {
		return !strings.Contains(path, "/operations/") || operationMark(path) == redisOperations
	}})
	c.hooks.producers = append(c.hooks.producers, s.producers)
	c.hooks.producerBlocks = append(c.hooks.producerBlocks, s.blocks)
	c.hooks.monitored = append(c.hooks.monitored, s.monitored)
	return s
}

// redisOperations is the mark at the beginning of the second part of this service's operations, so that its paths are told from those of others.
const redisOperations = "65"

// redisDenied names the permission that is missing ("Access control with IAM", Memorystore for Redis).
func redisDenied(r *request, _ string) *Error {
	parts := strings.Split(r.method.ID, ".")
	return refuse(403, "forbidden", "Permission 'redis.%s.%s' denied on '%s'.", parts[len(parts)-2], parts[len(parts)-1], r.Path["name"]+r.Path["parent"])
}

func (s *memorystoreRedis) Cloud() string { return cloudName }
func (s *memorystoreRedis) Name() string  { return "redis" }
func (s *memorystoreRedis) State() any    { return &s.st }

// Reset starts afresh.
func (s *memorystoreRedis) Reset() {
	for id := range s.open {
		s.cloud.opt.Databases.Close(id)
	}
	s.open = map[string]bool{}
	s.st = redisState{Instances: map[string]*redisInstance{}, Operations: map[string]*longOperation{}}
}

// Event carries on with an operation, or ends what lingers of an instance.
func (s *memorystoreRedis) Event(kind, key string) {
	switch kind {
	case "done":
		if op := s.st.Operations[key]; op != nil && !op.done() && !op.Held {
			s.complete(op)
		}
	case "forget":
		delete(s.st.Operations, key)
	case "linger":
		now := s.cloud.World.Now()
		s.st.Lingering = slices.DeleteFunc(s.st.Lingering, func(l lingering) bool { return !now.Before(l.Until) })
	}
}

// Objects lists the instances.
func (s *memorystoreRedis) Objects() []sim.Object {
	var out []sim.Object
	for _, in := range s.inOrder("") {
		out = append(out, sim.Object{Account: segmentAfter(in.Name, "projects"), Region: segmentAfter(in.Name, "locations"), Kind: "redis-instance", ID: in.Name, Name: lastPart(in.Name),
			State: in.state(), Tags: labelsOf(in.Doc), Parents: []string{str(in.Doc, "authorizedNetwork")}, Data: &in.Doc})
	}
	return out
}

// redisStates are those of an instance.
var redisStates = []string{"CREATING", "READY", "UPDATING", "DELETING", "REPAIRING", "MAINTENANCE", "IMPORTING", "FAILING_OVER"}

// SetState drives an operation, or puts an instance into a state.
func (s *memorystoreRedis) SetState(id, state, code, message string) error {
	if op := s.st.Operations[id]; op != nil {
		if slices.Contains(redisStates, state) {
			return s.SetState(op.Target, state, code, message)
		}
		if op.drive(state, code, message) {
			s.carryOut(op)
		} else if op.done() {
			s.failed(op)
		}
		return nil
	}
	in := s.st.Instances[id]
	if in == nil {
		return fmt.Errorf("%s has no states; instances and operations have", id)
	}
	if state == "" {
		state = "REPAIRING"
	}
	if !slices.Contains(redisStates, state) {
		return fmt.Errorf("an instance is %s, not %q", strings.Join(redisStates, ", "), state)
	}
	in.Doc["state"] = state
	return nil
}

// Remove takes an instance away.
func (s *memorystoreRedis) Remove(id string) error {
	in := s.st.Instances[id]
	if in == nil {
		return fmt.Errorf("no object %s", id)
	}
	s.drop(in)
	return nil
}

func (in *redisInstance) state() string { return str(in.Doc, "state") }
func (in *redisInstance) private() bool {
	return str(in.Doc, "connectMode") == "PRIVATE_SERVICE_ACCESS"
}

func (s *memorystoreRedis) inOrder(prefix string) []*redisInstance {
	var out []*redisInstance
	for _, name := range keysOf(s.st.Instances) {
		if strings.HasPrefix(name, prefix) {
			out = append(out, s.st.Instances[name])
		}
	}
	slices.SortStableFunc(out, func(a, b *redisInstance) int { return a.Seq - b.Seq })
	return out
}

// producers are the instances that use the private connection of a network, and what is left of those that did.
func (s *memorystoreRedis) producers(network string) []string {
	var out []string
	for _, in := range s.inOrder("") {
		if in.private() && str(in.Doc, "authorizedNetwork") == network {
			out = append(out, in.Name)
		}
	}
	for _, l := range s.st.Lingering {
		if l.Network == network && s.cloud.World.Now().Before(l.Until) {
			out = append(out, l.What)
		}
	}
	return out
}

func (s *memorystoreRedis) blocks(network string) []string {
	var out []string
	for _, in := range s.inOrder("") {
		if in.Block != "" && str(in.Doc, "authorizedNetwork") == network {
			out = append(out, in.Block)
		}
	}
	for _, l := range s.st.Lingering {
		if l.Block != "" && l.Network == network && s.cloud.World.Now().Before(l.Until) {
			out = append(out, l.Block)
		}
	}
	return out
}

// byID is a name with the project's ID in it.
func byID(r *request, name string) string {
	return "projects/" + r.Project.ID + strings.TrimPrefix(name, "projects/"+segmentAfter(name, "projects"))
}

func (s *memorystoreRedis) instance(r *request) (*redisInstance, error) {
	name := strings.TrimSuffix(byID(r, r.Path["name"]), "/authString")
	in := s.st.Instances[name]
	if in == nil || (!r.Mutating && r.HTTP != nil && !s.cloud.World.Visible(r.Call, name, in.Created, sim.ByID, "redis-instance "+lastPart(name))) {
		return nil, refuse(404, "notFound", "Resource '%s' was not found", name)
	}
	r.Touch(name)
	return in, nil
}

// free is instance, for changes: one at a time, of one that is ready.
func (s *memorystoreRedis) free(r *request) (*redisInstance, error) {
	in, err := s.instance(r)
	if err != nil {
		return nil, err
	}
	if op := s.st.Operations[in.Busy]; op != nil && !op.done() {
		return nil, &Error{HTTP: 409, Reason: "aborted", Status: "ABORTED", Message: "Another operation (" + op.Name + ") is in progress on resource '" + in.Name + "'."}
	}
	return in, nil
}

var redisID = regexp.MustCompile(`^[a-z](?:[a-z0-9-]{0,38}[a-z0-9])?$`)

func redisInvalid(field, format string, args ...any) *Error {
	e := refuse(400, "badRequest", format, args...)
	e.Details = []any{Doc{"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": []any{Doc{"field": field, "description": e.Message}}}}
	return e
}

func (s *memorystoreRedis) create(r *request) (any, error) {
	id := r.Query.Get("instanceId")
	location := segmentAfter(r.Path["parent"], "locations")
	name := byID(r, r.Path["parent"]) + "/instances/" + id
	switch {
	case !regionExists(location):
		return nil, redisInvalid("parent", "Location '%s' is not a valid location.", location)
	case !redisID.MatchString(id):
		return nil, redisInvalid("instance_id", "Invalid instance ID '%s': it must begin with a lowercase letter, have lowercase letters, digits and hyphens, and 40 characters at most.", id)
	case s.st.Instances[name] != nil:
		return nil, refuse(409, "alreadyExists", "Resource '%s' already exists", name)
	}
	in := &redisInstance{Name: name, Doc: clone(r.Body), Created: s.cloud.World.Now()}
	if err := s.check(r, in, location); err != nil {
		return nil, err
	}
	if err := s.settle(r, in, location); err != nil {
		return nil, err
	}
	s.st.Seq++
	in.Seq = s.st.Seq
	s.st.Instances[name] = in
	takes := redisCreateTakes
	if str(in.Doc, "tier") == "STANDARD_HA" {
		takes += 2 * time.Minute
	}
	return s.start(r, in, "create", takes, nil), nil
}

func (s *memorystoreRedis) get(r *request) (any, error) {
	in, err := s.instance(r)
	if err != nil {
		return nil, err
	}
	return in.shown(), nil
}

// shown is an instance as the API has it: one that is being made has no address yet.
func (in *redisInstance) shown() Doc {
	d := clone(in.Doc)
	if in.state() == "CREATING" {
		for _, f := range []string{"host", "port", "readEndpoint", "readEndpointPort", "serverCaCerts", "currentLocationId", "nodes"} {
			delete(d, f)
		}
	}
	return d
}

// list lists the instances of a region, or of all: locations/-.
func (s *memorystoreRedis) list(r *request) (any, error) {
	prefix := byID(r, r.Path["parent"]) + "/instances/"
	if segmentAfter(r.Path["parent"], "locations") == "-" {
		prefix = "projects/" + r.Project.ID + "/locations/"
	}
	var items []Doc
	for _, in := range s.inOrder(prefix) {
		if r.HTTP == nil || s.cloud.World.Visible(r.Call, in.Name, in.Created, sim.ByList, "redis-instance "+lastPart(in.Name)) {
			items = append(items, in.shown())
		}
	}
	return r.page(items, "instances", 1000)
}

// patch changes the fields that the mask names.
func (s *memorystoreRedis) patch(r *request) (any, error) {
	in, err := s.free(r)
	if err != nil {
		return nil, err
	}
	if in.state() != "READY" {
		return nil, redisNotReady(in)
	}
	mask := r.Query.Get("updateMask")
	if mask == "" {
		return nil, redisInvalid("update_mask", "The update mask must not be empty.")
	}
	allowed := []string{"displayName", "labels", "memorySizeGb", "redisConfigs", "replicaCount", "readReplicasMode", "maintenancePolicy", "persistenceConfig", "authEnabled", "transitEncryptionMode", "maintenanceVersion"}
	next := clone(in.Doc)
	for field := range strings.SplitSeq(mask, ",") {
		field, _, _ = strings.Cut(camel(field), ".")
		if !slices.Contains(allowed, field) {
			return nil, redisInvalid("update_mask", "Field '%s' cannot be updated.", field)
		}
		if v, ok := r.Body[field]; ok {
			next[field] = v
		} else {
			delete(next, field)
		}
	}
	if err := checkRedis(&redisInstance{Doc: next}); err != nil {
		return nil, err
	}
	return s.start(r, in, "update", redisUpdateTakes, Doc{"doc": next}), nil
}

func redisNotReady(in *redisInstance) *Error {
	return &Error{HTTP: 400, Reason: "failedPrecondition", Status: "FAILED_PRECONDITION", Message: "Instance '" + in.Name + "' is in state " + in.state() + ", it must be READY."}
}

// upgrade takes an instance to a newer version.
func (s *memorystoreRedis) upgrade(r *request) (any, error) {
	in, err := s.free(r)
	if err != nil {
		return nil, err
	}
	to := str(r.Body, "redisVersion")
	switch {
	case in.state() != "READY":
		return nil, redisNotReady(in)
	case slices.Index(redisVersions, to) <= slices.Index(redisVersions, str(in.Doc, "redisVersion")):
		return nil, redisInvalid("redis_version", "Cannot upgrade from %s to %s.", str(in.Doc, "redisVersion"), to)
	}
	next := clone(in.Doc)
	next["redisVersion"] = to
	return s.start(r, in, "upgrade", 3*redisUpdateTakes, Doc{"doc": next}), nil
}

func (s *memorystoreRedis) delete(r *request) (any, error) {
	in, err := s.free(r)
	if err != nil {
		return nil, err
	}
	args := Doc{"was": in.state()}
	in.Doc["state"] = "DELETING"
	return s.start(r, in, "delete", redisDeleteTakes, args), nil
}

// authString is what clients authenticate with.
func (s *memorystoreRedis) authString(r *request) (any, error) {
	in, err := s.instance(r)
	if err != nil {
		return nil, err
	}
	if !truth(in.Doc, "authEnabled") {
		return Doc{}, nil
	}
	return Doc{"authString": in.Auth}, nil
}

// The places where instances can be.

func redisLocation(p Project, region string) Doc {
	zones := Doc{}
	for _, z := range zoneNames(region) {
		zones[z] = Doc{}
	}
	return Doc{"name": "projects/" + p.ID + "/locations/" + region, "locationId": region,
		"metadata": Doc{"@type": "type.googleapis.com/google.cloud.redis.v1.LocationMetadata", "availableZones": zones}}
}

func (s *memorystoreRedis) listLocations(r *request) (any, error) {
	var items []Doc
	for _, region := range regionNames() {
		items = append(items, redisLocation(r.Project, region))
	}
	return r.page(items, "locations", 500)
}

func (s *memorystoreRedis) getLocation(r *request) (any, error) {
	region := segmentAfter(r.Path["name"], "locations")
	if !regionExists(region) {
		return nil, refuse(404, "notFound", "Location '%s' was not found", region)
	}
	return redisLocation(r.Project, region), nil
}
