package gcp

import (
	"strconv"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

// How long operations on instances run, as a rule, and their endpoints after them.
const (
	valkeyCreateTakes = 8 * time.Minute
	valkeyUpdateTakes = 90 * time.Second
	valkeyDeleteTakes = 4 * time.Minute
	endpointsLinger   = 3 * time.Minute
)

// start begins an operation on an instance.
func (s *memorystoreValkey) start(r *request, in *valkeyInstance, verb string, takes time.Duration, args Doc) Doc {
	now := s.cloud.World.Now()
	name := s.cloud.operationName("projects/"+r.Project.ID+"/locations/"+segmentAfter(in.Name, "locations"), valkeyOperations)
	op := &longOperation{Name: name, Project: r.Project.ID, Target: in.Name, Kind: verb, Args: args, Begun: now, Doc: Doc{"name": name, "done": false,
		"metadata": Doc{"@type": "type.googleapis.com/google.cloud.memorystore.v1.OperationMetadata", "createTime": zuluTime(now), "target": in.Name, "verb": verb, "apiVersion": "v1"}}}
	s.st.Operations[name] = op
	in.Busy = name
	if verb == "update" {
		in.Doc["state"] = "UPDATING"
	}
	if verb == "create" {
		s.serve(in)
	}
	s.cloud.after(takes, "memorystore", "done", name)
	r.Touch(in.Name)
	r.Make(name)
	if r.HTTP == nil { // the control API does not wait
		s.carryOut(op)
	}
	return op.Doc
}

// complete ends an operation, if the server behind a new instance is ready.
func (s *memorystoreValkey) complete(op *longOperation) {
	if in := s.st.Instances[op.Target]; in != nil && op.Kind == "create" && s.cloud.opt.Databases != nil {
		if ready, err := s.cloud.opt.Databases.Ready(in.serverID()); !ready && err == nil {
			s.cloud.after(sqlServerWaits, "memorystore", "done", op.Name)
			return
		}
	}
	s.carryOut(op)
}

// carryOut does what an operation is for.
func (s *memorystoreValkey) carryOut(op *longOperation) {
	in := s.st.Instances[op.Target]
	if op.done() || in == nil {
		return
	}
	if op.Kind == "create" {
		if trouble := s.connect(in); trouble != "" {
			op.fail(rpcFailedPrecondition, trouble)
			s.failed(op)
			return
		}
	}
	s.ended(op, in)
	switch op.Kind {
	case "delete":
		s.drop(in)
		op.finish("google.protobuf.Empty", nil)
		return
	case "update":
		in.Doc = sub(op.Args, "doc")
	}
	in.Doc["state"], in.Doc["updateTime"] = "ACTIVE", zuluTime(s.cloud.World.Now())
	s.serve(in)
	s.show(in)
	op.finish("google.cloud.memorystore.v1.Instance", clone(in.Doc))
}

// failed is an operation that ended with an error. An instance that could not be made is not there.
func (s *memorystoreValkey) failed(op *longOperation) {
	in := s.st.Instances[op.Target]
	if in == nil {
		return
	}
	s.ended(op, in)
	switch op.Kind {
	case "create":
		s.drop(in)
	case "delete":
		in.Doc["state"] = orText(str(op.Args, "was"), "ACTIVE")
	default:
		in.Doc["state"] = "ACTIVE"
	}
}

func (s *memorystoreValkey) ended(op *longOperation, in *valkeyInstance) {
	if in.Busy == op.Name {
		in.Busy = ""
	}
	sub(op.Doc, "metadata")["endTime"] = zuluTime(s.cloud.World.Now())
	s.cloud.after(operationKept, "memorystore", "forget", op.Name)
}

// connect makes the endpoints of an instance in the networks that want them, by the service connection policies there.
func (s *memorystoreValkey) connect(in *valkeyInstance) (trouble string) {
	region := segmentAfter(in.Name, "locations")
	call := &sim.Call{Cloud: cloudName, Service: "memorystore", Operation: "projects.locations.instances.create", Account: segmentAfter(in.Name, "projects"), Region: region, Mutating: true}
	if f := s.cloud.World.Take(call, sim.FaultCapacity, in.Name+" "+str(in.Doc, "nodeType")); f != nil {
		return orText(f.Message, noCapacity(region+"-b"))
	}
	for _, n := range in.networks() {
		network := s.cloud.pathOfLink(segmentAfter(in.Name, "projects"), n)
		p := s.cloud.policies.in(network, region, memorystoreClass)
		if p == nil {
			return "The service connection policy for network '" + network + "', region '" + region + "' and service class '" + memorystoreClass + "' was not found. Create one and try again."
		}
		for range 2 { // one each for the primary and the readers, or for discovery and the shards
			path, err := s.cloud.makeEndpoint(p, in.Name)
			if err != nil {
				return err.Error()
			}
			in.Endpoints = append(in.Endpoints, path)
		}
	}
	return ""
}

// show puts the endpoints into the document.
func (s *memorystoreValkey) show(in *valkeyInstance) {
	kinds := []string{"CONNECTION_TYPE_PRIMARY", "CONNECTION_TYPE_READER"}
	if str(in.Doc, "mode") == "CLUSTER" {
		kinds = []string{"CONNECTION_TYPE_DISCOVERY", "CONNECTION_TYPE_UNSPECIFIED"}
	}
	var endpoints, discovery, autos []any
	networks := in.networks()
	for i, network := range networks {
		var connections []any
		for j, kind := range kinds {
			auto := Doc{"network": network, "projectId": segmentAfter(network, "projects"), "ipAddress": in.Host, "port": float64(in.Port), "pscConnectionId": s.cloud.numericID(), "pscConnectionStatus": "ACTIVE",
				"serviceAttachment": "projects/" + s.cloud.number(segmentAfter(in.Name, "projects")) + "/regions/" + segmentAfter(in.Name, "locations") + "/serviceAttachments/gcp-memorystore-auto-" + lastPart(in.Name) + "-" + strconv.Itoa(j)}
			if at := 2*i + j; at < len(in.Endpoints) {
				auto["forwardingRule"] = selfLink(ruleOf(in.Endpoints[at]))
			}
			if kind != "CONNECTION_TYPE_UNSPECIFIED" {
				auto["connectionType"] = kind
			}
			connections, autos = append(connections, Doc{"pscAutoConnection": auto}), append(autos, auto)
		}
		endpoints = append(endpoints, Doc{"connections": connections})
		if str(in.Doc, "mode") == "CLUSTER" {
			discovery = append(discovery, Doc{"address": in.Host, "port": float64(in.Port), "network": network})
		}
	}
	in.Doc["endpoints"], in.Doc["pscAutoConnections"] = endpoints, autos
	if len(discovery) > 0 {
		in.Doc["discoveryEndpoints"] = discovery
	}
}

// drop takes an instance away. Its endpoints go a while later.
func (s *memorystoreValkey) drop(in *valkeyInstance) {
	delete(s.st.Instances, in.Name)
	if db := s.cloud.opt.Databases; db != nil {
		db.Close(in.serverID())
	}
	delete(s.open, in.serverID())
	for _, path := range in.Endpoints {
		s.cloud.after(endpointsLinger, "memorystore", "endpoint", path)
	}
}

func (in *valkeyInstance) serverID() string {
	return "https://memorystore.googleapis.com/v1/" + in.Name + "#" + strconv.Itoa(in.Seq)
}

// Restored opens the servers of the instances of a state that was taken up again.
func (s *memorystoreValkey) Restored() {
	s.open = map[string]bool{}
	for _, in := range s.inOrder("") {
		s.serve(in)
		if in.state() != "CREATING" {
			s.show(in)
		}
	}
}

// serve makes the server behind an instance fit it. Nobody gets in where IAM is asked for: its tokens are not simulated.
func (s *memorystoreValkey) serve(in *valkeyInstance) {
	in.Host, in.Port = "127.0.0.1", 1 // nobody answers there
	db := s.cloud.opt.Databases
	if db == nil {
		return
	}
	name, seq := in.Name, in.Seq
	at := db.Open(sim.DatabaseServer{ID: in.serverID(), Engine: "redis", Admin: "default", OpenDefault: str(in.Doc, "authorizationMode") == "AUTH_DISABLED",
		RequireTLS: str(in.Doc, "transitEncryptionMode") == "SERVER_AUTHENTICATION", Admits: func(from sim.KubeCaller) bool {
			s.cloud.World.Lock()
			defer s.cloud.World.Unlock()
			in := s.st.Instances[name]
			return from.Inside && in != nil && in.Seq == seq
		}})
	s.open[in.serverID()] = true
	in.Host, in.Port = at.Host, at.Port
}

// authority is the certificate that signs the server's.
func (s *memorystoreValkey) authority(r *request) (any, error) {
	r.Path["name"] = strings.TrimSuffix(r.Path["name"], "/certificateAuthority")
	in, err := s.instance(r)
	if err != nil {
		return nil, err
	}
	out := Doc{"name": in.Name + "/certificateAuthority", "managedServerCa": Doc{"caCerts": []any{}}}
	if db := s.cloud.opt.Databases; db != nil && str(in.Doc, "transitEncryptionMode") == "SERVER_AUTHENTICATION" {
		out["managedServerCa"] = Doc{"caCerts": []any{Doc{"certificates": []any{string(db.CA())}}}}
	}
	return out, nil
}

func (s *memorystoreValkey) getOperation(r *request) (any, error) {
	op := s.st.Operations[byID(r, r.Path["name"])]
	if op == nil {
		return nil, refuse(404, "notFound", "Operation '%s' was not found", r.Path["name"])
	}
	r.Touch(op.Name, op.Target)
	return op.Doc, nil
}

func (s *memorystoreValkey) listLocations(r *request) (any, error) {
	var items []Doc
	for _, region := range regionNames() {
		items = append(items, Doc{"name": "projects/" + r.Project.ID + "/locations/" + region, "locationId": region})
	}
	return r.page(items, "locations", 500)
}

func (s *memorystoreValkey) getLocation(r *request) (any, error) {
	region := segmentAfter(r.Path["name"], "locations")
	if !regionExists(region) {
		return nil, refuse(404, "notFound", "Location '%s' was not found", region)
	}
	return Doc{"name": "projects/" + r.Project.ID + "/locations/" + region, "locationId": region}, nil
}

func (s *memorystoreValkey) monitored(project string) []monitoredObject {
	var out []monitoredObject
	for _, in := range s.inOrder("projects/" + project + "/") {
		if in.state() != "CREATING" {
			out = append(out, monitoredObject{Type: "memorystore.googleapis.com/Instance", Created: in.Created, IDs: []string{in.Name, lastPart(in.Name)},
				Labels: Doc{"resource_container": "projects/" + project, "location": segmentAfter(in.Name, "locations"), "instance_id": lastPart(in.Name)}})
		}
	}
	return out
}
