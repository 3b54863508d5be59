package gcp

import (
	"strconv"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

// A clusterOperation is a change that GKE carries out.
type clusterOperation struct {
	Path, Name, Project, Location string
	Type                          string
	Cluster                       string // path
	Target                        string // path of the cluster or node pool
	Action                        string
	Args                          Doc
	User                          string
	Begun, Ended                  time.Time
	Status                        string
	Held                          bool
	// Method is what the caller called, for faults to look at.
	Method string
	// Error is a google.rpc.Status; Condition the code of the condition that goes with it.
	Error     Doc
	Condition string
}

// A clusterAction is what an operation does, in steps. Those left nil do nothing.
type clusterAction struct {
	// takes is how long the operation runs, in simulated time; begins after how much of it begin is called.
	takes, begins time.Duration
	begin         func(op *clusterOperation, c *cluster) *opFailure
	// ready says whether the operation can end: it is asked again and again until it has waited too long.
	ready func(op *clusterOperation, c *cluster) (bool, *opFailure)
	done  func(op *clusterOperation, c *cluster)
	// failed is called when the operation ends with an error.
	failed func(op *clusterOperation, c *cluster)
}

// An opFailure is why an operation ends with an error.
type opFailure struct {
	rpc       int    // google.rpc.Code
	condition string // code of a StatusCondition: GCE_STOCKOUT
	message   string
}

// How long operations run, as a rule.
const (
	clusterCreateTakes = 6 * time.Minute
	clusterDeleteTakes = 4 * time.Minute
	poolCreateTakes    = 2 * time.Minute
	poolDeleteTakes    = 2 * time.Minute
	updateTakes        = time.Minute
	upgradeTakes       = 6 * time.Minute
	labelsTake         = 10 * time.Second
	// beginsAfter is when the parts of a cluster begin to appear and to go.
	beginsAfter = 90 * time.Second
	// readyWithin is how long GKE waits for the instances of a group; failures are reported after 15 seconds as well as after 35 minutes.
	readyWithin   = 10 * time.Minute
	lookAgain     = 10 * time.Second
	operationKept = 14 * 24 * time.Hour
)

// An operationStart describes an operation to begin.
type operationStart struct {
	Type, Action, Target string
	Cluster              *cluster
	Args                 Doc
	User, Method         string
	Begun                time.Time
}

func (s *container) startOperation(st operationStart) *clusterOperation {
	w, c := s.cloud.World, st.Cluster
	name := "operation-" + strconv.FormatInt(st.Begun.UnixMilli(), 10) + "-" + w.UUID()
	op := &clusterOperation{Name: name, Project: c.project(), Location: c.location(), Type: st.Type, Cluster: c.Path, Target: st.Target, Action: st.Action, Args: st.Args, User: st.User, Method: st.Method,
		Begun: st.Begun, Status: opRunning}
	op.Path = "projects/" + op.Project + "/locations/" + op.Location + "/operations/" + name
	s.st.Operations[op.Path] = op
	c.Busy = op.Path
	a := s.actions[st.Action]
	if a.begin != nil {
		s.cloud.after(a.begins, "container", "begin", op.Path)
	}
	s.cloud.after(a.takes, "container", "done", op.Path)
	return op
}

// start begins an operation for a caller, and answers it.
func (s *container) start(r *request, opType, action string, c *cluster, target string, args Doc) Doc {
	op := s.startOperation(operationStart{Type: opType, Action: action, Target: target, Cluster: c, Args: args, User: r.Who.Email, Method: r.method.ID, Begun: s.cloud.World.Now()})
	r.Touch(target)
	r.Make(op.Path)
	if r.HTTP == nil { // the control API does not wait
		s.begin(op)
		s.finishOperation(op)
	}
	return s.shownOperation(op)
}

// begin does what an operation does first.
func (s *container) begin(op *clusterOperation) {
	c, a := s.st.Clusters[op.Cluster], s.actions[op.Action]
	if c == nil || a.begin == nil || op.Status == opDone {
		return
	}
	if failure := a.begin(op, c); failure != nil {
		s.failOperation(op, failure)
	}
}

// complete ends an operation if what it is for is there.
func (s *container) complete(op *clusterOperation) {
	c, a := s.st.Clusters[op.Cluster], s.actions[op.Action]
	if c != nil && a.ready != nil {
		ready, failure := a.ready(op, c)
		if failure != nil {
			s.failOperation(op, failure)
			return
		}
		if !ready {
			s.cloud.after(lookAgain, "container", "done", op.Path)
			return
		}
	}
	s.finishOperation(op)
}

func (s *container) finishOperation(op *clusterOperation) {
	if op.Status == opDone {
		return
	}
	c := s.st.Clusters[op.Cluster]
	s.endOperation(op, c)
	if a := s.actions[op.Action]; c != nil && a.done != nil {
		a.done(op, c)
	}
	s.syncKube()
}

// failOperation ends an operation with an error.
func (s *container) failOperation(op *clusterOperation, failure *opFailure) {
	if op.Status == opDone {
		return
	}
	op.Error = Doc{"code": float64(failure.rpc), "message": failure.message}
	op.Condition = failure.condition
	c := s.st.Clusters[op.Cluster]
	s.endOperation(op, c)
	if a := s.actions[op.Action]; c != nil && a.failed != nil {
		a.failed(op, c)
	}
	s.syncKube()
}

func (s *container) endOperation(op *clusterOperation, c *cluster) {
	op.Status, op.Ended, op.Held = opDone, s.cloud.World.Now(), false
	if c != nil && c.Busy == op.Path {
		c.Busy = ""
	}
	s.cloud.after(operationKept, "container", "forget", op.Path)
}

// drive does to an operation what a transition or op_failed asks.
func (s *container) drive(op *clusterOperation, state, code, message string) error {
	switch state {
	case "":
		rpc := rpcCodes[code]
		if rpc == 0 {
			rpc = rpcInternal
		}
		condition := "UNKNOWN"
		if rpcCodes[code] == 0 && code != "" {
			condition = code
		}
		s.failOperation(op, &opFailure{rpc, condition, orText(message, "Internal error.")})
	case opDone:
		s.begin(op)
		s.finishOperation(op)
	case opPending, opRunning, "ABORTING":
		op.Status, op.Held = state, true
	default: // a state of what it works on
		return s.SetState(op.Target, state, code, message)
	}
	return nil
}

// containerLink is how GKE writes links to its objects.
func containerLink(path string) string {
	location := segmentAfter(path, "locations")
	if zoneExists(location) {
		path = strings.Replace(path, "/locations/", "/zones/", 1)
	}
	return "https://container.googleapis.com/v1/" + path
}

// byNumber is a path with the project's number, as links in operations have it.
func (s *container) byNumber(path string) string {
	project := segmentAfter(path, "projects")
	return strings.Replace(path, "projects/"+project+"/", "projects/"+s.cloud.number(project)+"/", 1)
}

func (s *container) shownOperation(op *clusterOperation) Doc {
	target := containerLink(s.byNumber(op.Target))
	if i := strings.Index(target, "/nodePools/"); i >= 0 {
		target = strings.Replace(target, "/zones/", "/locations/", 1)
		if zoneExists(op.Location) {
			target = strings.Replace(target, "/locations/", "/zones/", 1)
		}
	}
	d := Doc{"name": op.Name, "operationType": op.Type, "status": op.Status, "zone": op.Location, "selfLink": containerLink(s.byNumber(op.Path)), "targetLink": target,
		"startTime": zuluTime(op.Begun)}
	if op.Type == "CREATE_CLUSTER" && (op.Status == opDone || s.cloud.World.Now().Sub(op.Begun) >= beginsAfter) {
		d["progress"] = op.progress(s.cloud.World.Now())
	}
	if op.Status != opDone {
		return d
	}
	d["endTime"] = zuluTime(op.Ended)
	if op.Error != nil {
		d["error"], d["statusMessage"], d["detail"] = op.Error, op.Error["message"], op.Error["message"]
		condition := []any{Doc{"code": op.Condition, "message": op.Error["message"]}}
		if strings.Contains(op.Target, "/nodePools/") {
			d["nodepoolConditions"] = condition
		} else {
			d["clusterConditions"] = condition
		}
	}
	return d
}

// progress says how far the creation of a cluster has come.
func (op *clusterOperation) progress(now time.Time) Doc {
	part := min(1, float64(now.Sub(op.Begun))/float64(clusterCreateTakes))
	if op.Status == opDone && op.Error == nil {
		part = 1
	}
	var metrics []any
	for _, m := range []struct {
		name string
		of   float64
	}{{"CLUSTER_CONFIGURING", 8}, {"CLUSTER_DEPLOYING", 12}, {"CLUSTER_HEALTHCHECKING", 2}} {
		metrics = append(metrics, Doc{"name": m.name, "intValue": strconv.Itoa(int(m.of * part))}, Doc{"name": m.name + "_TOTAL", "intValue": strconv.Itoa(int(m.of))})
	}
	return Doc{"metrics": metrics}
}

func (s *container) findOperation(r *request) (*clusterOperation, error) {
	path := s.path(r, r.Path["name"])
	op := s.st.Operations[path]
	if op == nil || (r.HTTP != nil && !s.cloud.World.Visible(r.Call, op.Path, op.Begun.Add(-time.Hour), sim.ByID, "operation")) {
		return nil, refuse(404, "notFound", "Not found: %s.", zonal(path))
	}
	r.Touch(op.Target)
	return op, nil
}

// zonal is a path as refusals have it: of a zone with zones in it.
func zonal(path string) string {
	if zoneExists(segmentAfter(path, "locations")) {
		return strings.Replace(path, "/locations/", "/zones/", 1)
	}
	return path
}

func (s *container) getOperation(r *request) (any, error) {
	op, err := s.findOperation(r)
	if err != nil {
		return nil, err
	}
	return s.shownOperation(op), nil
}

func (s *container) listOperations(r *request) (any, error) {
	parent := s.path(r, r.Path["parent"])
	var items []any
	for _, path := range keysOf(s.st.Operations) {
		if strings.HasPrefix(path, parent+"/") || segmentAfter(parent, "locations") == "-" && s.st.Operations[path].Project == r.Project.ID {
			items = append(items, s.shownOperation(s.st.Operations[path]))
		}
	}
	out := Doc{}
	if len(items) > 0 {
		out["operations"] = items
	}
	return out, nil
}

// cancellable are the operations that can be cancelled: those of node pools ("Method: projects.locations.operations.cancel").
var cancellable = []string{"CREATE_NODE_POOL", "UPGRADE_NODES", "CREATE_CLUSTER"}

func (s *container) cancelOperation(r *request) (any, error) {
	op, err := s.findOperation(r)
	if err != nil {
		return nil, err
	}
	known := false
	for _, t := range cancellable {
		known = known || t == op.Type
	}
	if !known || op.Status == opDone {
		return nil, preconditionFailed("Operation %s cannot be cancelled: it is %s and of the type %s.", op.Name, op.Status, op.Type)
	}
	s.failOperation(op, &opFailure{rpcCodes["CANCELLED"], "UNKNOWN", "Operation was cancelled by the user."})
	return Doc{}, nil
}

// preconditionFailed is the refusal of what the state of things does not allow.
func preconditionFailed(format string, args ...any) *Error {
	e := refuse(400, "failedPrecondition", format, args...)
	e.Status = "FAILED_PRECONDITION"
	return e
}
