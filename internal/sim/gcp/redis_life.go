package gcp

import (
	"crypto/sha1" //nolint:gosec // the API names certificates by it
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

// How long operations on instances run, as a rule.
const (
	redisCreateTakes = 4 * time.Minute
	redisUpdateTakes = time.Minute
	redisDeleteTakes = 70 * time.Second
)

// markedOperation is the shape of names of operations that several services share; the simulation tells them apart by a mark.
var markedOperation = regexp.MustCompile(`^(?:/\w+)?/v1/projects/[^/]+/locations/[^/]+/operations/operation-\d+-([0-9a-f]{2})[0-9a-f]{11}-[0-9a-f]{8}-[0-9a-f]{8}(?::\w+)?$`)

func operationMark(path string) string {
	if m := markedOperation.FindStringSubmatch(path); m != nil {
		return m[1]
	}
	return ""
}

// operationName is a name of that shape.
func (c *Cloud) operationName(location, mark string) string {
	w := c.World
	return location + "/operations/operation-" + strconv.FormatInt(w.Now().UnixMilli(), 10) + "-" + mark + w.Hex("", 13-len(mark)) + "-" + w.Hex("", 8) + "-" + w.Hex("", 8)
}

// start begins an operation on an instance.
func (s *memorystoreRedis) start(r *request, in *redisInstance, verb string, takes time.Duration, args Doc) Doc {
	now := s.cloud.World.Now()
	location := "projects/" + r.Project.ID + "/locations/" + segmentAfter(in.Name, "locations")
	name := s.cloud.operationName(location, redisOperations)
	op := &longOperation{Name: name, Project: r.Project.ID, Target: in.Name, Kind: verb, Args: args, Begun: now, Doc: Doc{"name": name, "done": false,
		"metadata": Doc{"@type": "type.googleapis.com/google.cloud.redis.v1.OperationMetadata", "createTime": zuluTime(now), "target": in.Name, "verb": verb, "apiVersion": "v1"}}}
	s.st.Operations[name] = op
	in.Busy = name
	if verb == "update" || verb == "upgrade" {
		in.Doc["state"] = "UPDATING"
	}
	if verb == "create" {
		s.serve(in)
	}
	s.cloud.after(takes, "redis", "done", name)
	r.Touch(in.Name)
	r.Make(name)
	if r.HTTP == nil { // the control API does not wait
		s.carryOut(op)
	}
	return op.Doc
}

// complete ends an operation, if the server behind a new instance is ready.
func (s *memorystoreRedis) complete(op *longOperation) {
	if in := s.st.Instances[op.Target]; in != nil && op.Kind == "create" && s.cloud.opt.Databases != nil {
		if ready, err := s.cloud.opt.Databases.Ready(in.serverID()); !ready && err == nil {
			s.cloud.after(sqlServerWaits, "redis", "done", op.Name)
			return
		}
	}
	s.carryOut(op)
}

// carryOut does what an operation is for.
func (s *memorystoreRedis) carryOut(op *longOperation) {
	in := s.st.Instances[op.Target]
	if op.done() || in == nil {
		return
	}
	if op.Kind == "create" {
		call := &sim.Call{Cloud: cloudName, Service: "redis", Operation: "projects.locations.instances.create", Account: op.Project, Region: segmentAfter(in.Name, "locations"), Mutating: true}
		if f := s.cloud.World.Take(call, sim.FaultCapacity, in.Name+" "+str(in.Doc, "locationId")); f != nil {
			op.fail(rpcCodes["RESOURCE_EXHAUSTED"], orText(f.Message, noCapacity(str(in.Doc, "locationId"))))
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
	case "update", "upgrade":
		in.Doc = sub(op.Args, "doc")
	}
	in.Doc["state"] = "READY"
	s.serve(in)
	op.finish("google.cloud.redis.v1.Instance", in.shown())
}

// failed is an operation that ended with an error. An instance that could not be made is not there.
func (s *memorystoreRedis) failed(op *longOperation) {
	in := s.st.Instances[op.Target]
	if in == nil {
		return
	}
	s.ended(op, in)
	switch op.Kind {
	case "create":
		s.drop(in)
	case "delete":
		in.Doc["state"] = orText(str(op.Args, "was"), "READY")
	default:
		in.Doc["state"] = "READY"
	}
}

func (s *memorystoreRedis) ended(op *longOperation, in *redisInstance) {
	if in.Busy == op.Name {
		in.Busy = ""
	}
	sub(op.Doc, "metadata")["endTime"] = zuluTime(s.cloud.World.Now())
	s.cloud.after(operationKept, "redis", "forget", op.Name)
}

// drop takes an instance away. What is left of it keeps its private connection busy for a while.
func (s *memorystoreRedis) drop(in *redisInstance) {
	delete(s.st.Instances, in.Name)
	if db := s.cloud.opt.Databases; db != nil {
		db.Close(in.serverID())
	}
	delete(s.open, in.serverID())
	if in.private() {
		wait, network := s.cloud.lingers(in.Name), str(in.Doc, "authorizedNetwork")
		s.st.Lingering = append(s.st.Lingering, lingering{Network: network, What: "what is left of " + in.Name, Block: in.Block, Until: s.cloud.World.Now().Add(wait)})
		s.cloud.after(wait, "redis", "linger", network)
	}
}

func (s *memorystoreRedis) getOperation(r *request) (any, error) {
	op := s.st.Operations[byID(r, r.Path["name"])]
	if op == nil {
		return nil, refuse(404, "notFound", "Operation '%s' was not found", r.Path["name"])
	}
	r.Touch(op.Name, op.Target)
	return op.Doc, nil
}

// listOperations lists the operations in a region, the newest first. It is reached at an endpoint that names the service alone, since GKE
// has the same path.
func (s *memorystoreRedis) listOperations(r *request) (any, error) {
	var all []*longOperation
	for _, name := range keysOf(s.st.Operations) {
		if op := s.st.Operations[name]; strings.HasPrefix(name, byID(r, r.Path["name"])+"/operations/") {
			all = append(all, op)
		}
	}
	var items []Doc
	for _, op := range newestFirst(all, func(op *longOperation) time.Time { return op.Begun }) {
		items = append(items, op.Doc)
	}
	return r.page(items, "operations", 1000)
}

// The servers behind.

func (in *redisInstance) serverID() string {
	return "https://redis.googleapis.com/v1/" + in.Name + "#" + strconv.Itoa(in.Seq)
}

// Restored opens the servers of the instances of a state that was taken up again.
func (s *memorystoreRedis) Restored() {
	s.open = map[string]bool{}
	for _, in := range s.inOrder("") {
		s.serve(in)
	}
}

// serve makes the server behind an instance fit it.
func (s *memorystoreRedis) serve(in *redisInstance) {
	d, db := in.Doc, s.cloud.opt.Databases
	d["host"], d["port"] = "127.0.0.1", 1.0 // nobody answers there
	tls := str(d, "transitEncryptionMode") == "SERVER_AUTHENTICATION"
	if db != nil {
		name, seq := in.Name, in.Seq
		spec := sim.DatabaseServer{ID: in.serverID(), Engine: "redis", Admin: "default", RequireTLS: tls, OpenDefault: !truth(d, "authEnabled"), Admits: func(from sim.KubeCaller) bool {
			s.cloud.World.Lock()
			defer s.cloud.World.Unlock()
			in := s.st.Instances[name]
			return from.Inside && in != nil && in.Seq == seq
		}}
		if truth(d, "authEnabled") {
			spec.Password = in.Auth
		}
		at := db.Open(spec)
		s.open[spec.ID] = true
		d["host"], d["port"] = at.Host, float64(at.Port)
	}
	if str(d, "readReplicasMode") == "READ_REPLICAS_ENABLED" {
		d["readEndpoint"], d["readEndpointPort"] = d["host"], d["port"]
	}
	delete(d, "serverCaCerts")
	if tls {
		d["serverCaCerts"] = []any{s.authority()}
	}
}

// authority is the certificate that signs the server's.
func (s *memorystoreRedis) authority() Doc {
	if s.cloud.opt.Databases == nil {
		return Doc{"serialNumber": "0", "cert": "", "sha1Fingerprint": ""}
	}
	ca := s.cloud.opt.Databases.CA()
	d := Doc{"serialNumber": "0", "cert": string(ca)}
	block, _ := pem.Decode(ca)
	if block == nil {
		return d
	}
	if c, err := x509.ParseCertificate(block.Bytes); err == nil {
		sum := sha1.Sum(c.Raw) //nolint:gosec // as above
		d["serialNumber"], d["sha1Fingerprint"] = c.SerialNumber.String(), hex.EncodeToString(sum[:])
		d["createTime"], d["expireTime"] = c.NotBefore.UTC().Format(time.RFC3339), c.NotAfter.UTC().Format(time.RFC3339)
	}
	return d
}
