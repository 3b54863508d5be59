package gcp

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

// memorystoreValkey is the simulated Memorystore for Valkey. Its instances are reached through endpoints that Private Service Connect
// makes in the customer's network, where a service connection policy lets it. The servers behind are those of [sim.Databases].
type memorystoreValkey struct {
	cloud *Cloud
	st    valkeyState
	open  map[string]bool // serverIDs that were opened in this process
}

type valkeyState struct {
	Seq        int
	Instances  map[string]*valkeyInstance // by name: projects/p/locations/l/instances/i
	Operations map[string]*longOperation
}

// A valkeyInstance is an instance.
type valkeyInstance struct {
	Name    string
	Doc     Doc
	Created time.Time
	Seq     int
	Busy    string
	// Endpoints are the paths of the addresses and forwarding rules that were made for it.
	Endpoints []string
	Host      string
	Port      int
}

const (
	// valkeyPrefix is where its paths are, which are else those of Memorystore for Redis.
	valkeyPrefix = "/memorystore"
	// valkeyOperations is the mark of this service's operations.
	valkeyOperations = "64"
)

func newMemorystoreValkey(c *Cloud) *memorystoreValkey {
	s := &memorystoreValkey{cloud: c, open: map[string]bool{}}
	c.World.Register(s)
	const in = "projects.locations.instances."
	c.add("memorystore/v1", &api{service: "memorystore", denied: valkeyDenied, ops: map[string]operation{
		in + "create": s.create, in + "get": s.get, in + "list": s.list, in + "patch": s.patch, in + "delete": s.delete, in + "getCertificateAuthority": s.authority,
		"projects.locations.operations.get": s.getOperation, "projects.locations.list": s.listLocations, "projects.locations.get": s.getLocation,
	}})
	c.hooks.monitored = append(c.hooks.monitored, s.monitored)
	return s
}

func valkeyDenied(r *request, _ string) *Error {
	parts := strings.Split(r.method.ID, ".")
	return refuse(403, "forbidden", "Permission 'memorystore.%s.%s' denied on '%s'.", parts[len(parts)-2], parts[len(parts)-1], r.Path["name"]+r.Path["parent"])
}

func (s *memorystoreValkey) Cloud() string { return cloudName }
func (s *memorystoreValkey) Name() string  { return "memorystore" }
func (s *memorystoreValkey) State() any    { return &s.st }

// Reset starts afresh.
func (s *memorystoreValkey) Reset() {
	for id := range s.open {
		s.cloud.opt.Databases.Close(id)
	}
	s.open = map[string]bool{}
	s.st = valkeyState{Instances: map[string]*valkeyInstance{}, Operations: map[string]*longOperation{}}
}

// Event carries on with an operation, or takes away what is left of an instance in the customer's network.
func (s *memorystoreValkey) Event(kind, key string) {
	switch kind {
	case "done":
		if op := s.st.Operations[key]; op != nil && !op.done() && !op.Held {
			s.complete(op)
		}
	case "forget":
		delete(s.st.Operations, key)
	case "endpoint":
		s.cloud.removeEndpoint(key)
	}
}

// Objects lists the instances.
func (s *memorystoreValkey) Objects() []sim.Object {
	var out []sim.Object
	for _, in := range s.inOrder("") {
		out = append(out, sim.Object{Account: segmentAfter(in.Name, "projects"), Region: segmentAfter(in.Name, "locations"), Kind: "valkey-instance", ID: in.Name, Name: lastPart(in.Name),
			State: in.state(), Tags: labelsOf(in.Doc), Parents: in.networks(), Data: &in.Doc})
	}
	return out
}

var valkeyStates = []string{"CREATING", "ACTIVE", "UPDATING", "DELETING", "MIGRATING"}

// SetState drives an operation, or puts an instance into a state.
func (s *memorystoreValkey) SetState(id, state, code, message string) error {
	if op := s.st.Operations[id]; op != nil {
		if slices.Contains(valkeyStates, state) {
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
		state = "UPDATING"
	}
	if !slices.Contains(valkeyStates, state) {
		return fmt.Errorf("an instance is %s, not %q", strings.Join(valkeyStates, ", "), state)
	}
	in.Doc["state"] = state
	return nil
}

// Remove takes an instance away.
func (s *memorystoreValkey) Remove(id string) error {
	in := s.st.Instances[id]
	if in == nil {
		return fmt.Errorf("no object %s", id)
	}
	s.drop(in)
	return nil
}

func (in *valkeyInstance) state() string { return str(in.Doc, "state") }

// networks are those that an instance is to have endpoints in.
func (in *valkeyInstance) networks() []string {
	var out []string
	add := func(auto Doc) {
		if n := str(auto, "network"); n != "" && !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	for _, e := range docs(in.Doc, "endpoints") {
		for _, c := range docs(e, "connections") {
			add(sub(c, "pscAutoConnection"))
		}
	}
	for _, auto := range docs(in.Doc, "pscAutoConnections") {
		add(auto)
	}
	return out
}

func (s *memorystoreValkey) inOrder(prefix string) []*valkeyInstance {
	var out []*valkeyInstance
	for _, name := range keysOf(s.st.Instances) {
		if strings.HasPrefix(name, prefix) {
			out = append(out, s.st.Instances[name])
		}
	}
	slices.SortStableFunc(out, func(a, b *valkeyInstance) int { return a.Seq - b.Seq })
	return out
}

func (s *memorystoreValkey) instance(r *request) (*valkeyInstance, error) {
	name := byID(r, r.Path["name"])
	in := s.st.Instances[name]
	if in == nil || (!r.Mutating && r.HTTP != nil && !s.cloud.World.Visible(r.Call, name, in.Created, sim.ByID, "valkey-instance "+lastPart(name))) {
		return nil, refuse(404, "notFound", "Resource '%s' was not found", name)
	}
	r.Touch(name)
	return in, nil
}

func (s *memorystoreValkey) free(r *request) (*valkeyInstance, error) {
	in, err := s.instance(r)
	if err != nil {
		return nil, err
	}
	if op := s.st.Operations[in.Busy]; op != nil && !op.done() {
		return nil, &Error{HTTP: 409, Reason: "aborted", Status: "ABORTED", Message: "Another operation (" + op.Name + ") is in progress on resource '" + in.Name + "'."}
	}
	return in, nil
}

// Shapes that instances can have ("Instance and node specification", "Supported versions", Memorystore for Valkey).
var (
	valkeyVersions  = []string{"VALKEY_7_2", "VALKEY_8_0", "VALKEY_9_0"}
	valkeyNodeTypes = map[string]float64{"SHARED_CORE_NANO": 1.4, "STANDARD_SMALL": 6.5, "HIGHMEM_MEDIUM": 13, "HIGHMEM_XLARGE": 58, "HIGHCPU_MEDIUM": 6.5, "STANDARD_LARGE": 26, "HIGHMEM_2XLARGE": 116,
		"CUSTOM_PICO": 0.5, "CUSTOM_MICRO": 1, "CUSTOM_MINI": 2}
)

func (s *memorystoreValkey) create(r *request) (any, error) {
	id := r.Query.Get("instanceId")
	location := segmentAfter(r.Path["parent"], "locations")
	name := byID(r, r.Path["parent"]) + "/instances/" + id
	switch {
	case !regionExists(location):
		return nil, redisInvalid("parent", "Location '%s' is not a valid location.", location)
	case !redisID.MatchString(id) || len(id) < 4:
		return nil, redisInvalid("instance_id", "Invalid instance ID '%s': it must begin with a lowercase letter, have lowercase letters, digits and hyphens, and 4 to 63 characters.", id)
	case s.st.Instances[name] != nil:
		return nil, refuse(409, "alreadyExists", "Resource '%s' already exists", name)
	}
	in := &valkeyInstance{Name: name, Doc: clone(r.Body), Created: s.cloud.World.Now()}
	if err := s.fill(r, in, location); err != nil {
		return nil, err
	}
	if err := checkValkey(in); err != nil {
		return nil, err
	}
	s.st.Seq++
	in.Seq = s.st.Seq
	s.st.Instances[name] = in
	return s.start(r, in, "create", valkeyCreateTakes, nil), nil
}

// fill gives a new instance what the service adds.
func (s *memorystoreValkey) fill(r *request, in *valkeyInstance, location string) error {
	d := in.Doc
	for k, v := range (Doc{"mode": "CLUSTER", "nodeType": "HIGHMEM_MEDIUM", "engineVersion": "VALKEY_9_0", "authorizationMode": "AUTH_DISABLED", "transitEncryptionMode": "TRANSIT_ENCRYPTION_DISABLED",
		"replicaCount": 0.0, "deletionProtectionEnabled": false, "persistenceConfig": Doc{"mode": "DISABLED"}, "zoneDistributionConfig": Doc{"mode": "MULTI_ZONE"}}) {
		setDefault(d, k, v)
	}
	if str(d, "mode") == "CLUSTER_DISABLED" {
		setDefault(d, "shardCount", 1.0)
	}
	if len(in.networks()) == 0 {
		return redisInvalid("instance.endpoints", "At least one network must be given for the endpoints of the instance.")
	}
	for _, n := range in.networks() {
		path := s.cloud.pathOfLink(r.Project.ID, n)
		if path == "" || s.cloud.compute.at(path) == nil {
			return redisInvalid("instance.endpoints", "Network '%s' was not found.", n)
		}
		r.Touch(path)
	}
	now := s.cloud.World.Now()
	d["name"], d["state"], d["createTime"], d["updateTime"], d["uid"] = in.Name, "CREATING", zuluTime(now), zuluTime(now), s.cloud.World.UUID()
	size := valkeyNodeTypes[str(d, "nodeType")]
	d["nodeConfig"] = Doc{"sizeGb": size}
	zone := str(sub(d, "zoneDistributionConfig"), "zone")
	if zone != "" && (!zoneExists(zone) || regionOf(zone) != location) {
		return redisInvalid("instance.zone_distribution_config.zone", "Zone '%s' is not in region '%s'.", zone, location)
	}
	return nil
}

func checkValkey(in *valkeyInstance) error {
	d := in.Doc
	shards, replicas := num(d, "shardCount"), num(d, "replicaCount")
	switch {
	case valkeyNodeTypes[str(d, "nodeType")] == 0:
		return redisInvalid("instance.node_type", "Node type '%s' is not supported.", str(d, "nodeType"))
	case !slices.Contains(valkeyVersions, str(d, "engineVersion")):
		return redisInvalid("instance.engine_version", "Engine version '%s' is not supported.", str(d, "engineVersion"))
	case !slices.Contains([]string{"CLUSTER", "CLUSTER_DISABLED"}, str(d, "mode")):
		return redisInvalid("instance.mode", "Mode '%s' is not supported.", str(d, "mode"))
	case shards < 1 || shards > 250 || (str(d, "mode") == "CLUSTER_DISABLED" && shards != 1):
		return redisInvalid("instance.shard_count", "shard_count %v is not valid for mode %s.", shards, str(d, "mode"))
	case replicas < 0 || replicas > 5:
		return redisInvalid("instance.replica_count", "replica_count must be between 0 and 5, not %v.", replicas)
	case str(sub(d, "zoneDistributionConfig"), "mode") == "SINGLE_ZONE" && str(sub(d, "zoneDistributionConfig"), "zone") == "":
		return redisInvalid("instance.zone_distribution_config.zone", "A zone must be given for the mode SINGLE_ZONE.")
	}
	for k, v := range labelsOf(d) {
		if !labelKey.MatchString(k) || !labelValue.MatchString(v) {
			return redisInvalid("instance.labels", "Invalid label %s=%s.", k, v)
		}
	}
	return nil
}

func (s *memorystoreValkey) get(r *request) (any, error) {
	in, err := s.instance(r)
	if err != nil {
		return nil, err
	}
	return in.Doc, nil
}

func (s *memorystoreValkey) list(r *request) (any, error) {
	prefix := byID(r, r.Path["parent"]) + "/instances/"
	if segmentAfter(r.Path["parent"], "locations") == "-" {
		prefix = "projects/" + r.Project.ID + "/locations/"
	}
	var items []Doc
	for _, in := range s.inOrder(prefix) {
		if r.HTTP == nil || s.cloud.World.Visible(r.Call, in.Name, in.Created, sim.ByList, "valkey-instance "+lastPart(in.Name)) {
			items = append(items, in.Doc)
		}
	}
	return r.page(items, "instances", 1000)
}

// patch changes the fields that the mask names.
func (s *memorystoreValkey) patch(r *request) (any, error) {
	in, err := s.free(r)
	if err != nil {
		return nil, err
	}
	if in.state() != "ACTIVE" {
		return nil, &Error{HTTP: 400, Reason: "failedPrecondition", Status: "FAILED_PRECONDITION", Message: "Instance '" + in.Name + "' is in state " + in.state() + ", it must be ACTIVE."}
	}
	mask := r.Query.Get("updateMask")
	if mask == "" {
		return nil, redisInvalid("update_mask", "The update mask must not be empty.")
	}
	next := clone(in.Doc)
	for field := range strings.SplitSeq(mask, ",") {
		field, _, _ = strings.Cut(camel(field), ".")
		if slices.Contains([]string{"name", "mode", "transitEncryptionMode", "authorizationMode", "zoneDistributionConfig"}, field) {
			return nil, redisInvalid("update_mask", "Field '%s' cannot be updated.", field)
		}
		if v, ok := r.Body[field]; ok && v != nil {
			next[field] = v
		} else {
			delete(next, field)
		}
	}
	if err := checkValkey(&valkeyInstance{Doc: next}); err != nil {
		return nil, err
	}
	return s.start(r, in, "update", valkeyUpdateTakes, Doc{"doc": next}), nil
}

func (s *memorystoreValkey) delete(r *request) (any, error) {
	in, err := s.free(r)
	if err != nil {
		return nil, err
	}
	if truth(in.Doc, "deletionProtectionEnabled") {
		return nil, &Error{HTTP: 400, Reason: "failedPrecondition", Status: "FAILED_PRECONDITION", Message: "The instance is deletion protected. Please disable deletion protection to delete the instance."}
	}
	was := in.state()
	in.Doc["state"] = "DELETING"
	return s.start(r, in, "delete", valkeyDeleteTakes, Doc{"was": was}), nil
}
