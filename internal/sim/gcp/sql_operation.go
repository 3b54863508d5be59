package gcp

import (
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

// A sqlOperation is a change that Cloud SQL carries out.
type sqlOperation struct {
	Path, Project  string
	Type           string // CREATE, UPDATE, DELETE, …
	Instance       string // path
	Link           string // path of the target
	User           string
	Args           Doc
	Begun, Started time.Time
	Ended          time.Time
	Takes          time.Duration
	Status         string
	Held           bool
	Code, Message  string // of the error
	Polls          int
}

// How long operations run, as a rule. Cloud SQL says 5 to 10 minutes for a new instance ("Create instances").
const (
	sqlCreateTakes   = 5 * time.Minute
	sqlRegionalMore  = 3 * time.Minute
	sqlUpdateTakes   = 50 * time.Second
	sqlRestartTakes  = 90 * time.Second
	sqlDeleteTakes   = 80 * time.Second
	sqlBackupTakes   = 100 * time.Second
	sqlDatabaseTakes = 3 * time.Second
	sqlStartsAfter   = 2 * time.Second
	sqlServerWaits   = 3 * time.Second // until it is looked again whether the server behind is ready
)

// creates says whether an operation makes an instance.
func (op *sqlOperation) creates() bool { return op.Type == "CREATE" || op.Type == "CREATE_REPLICA" }

// start begins an operation on an instance.
func (s *cloudSQL) start(r *request, in *sqlInstance, opType, link string, takes time.Duration, args Doc) *sqlOperation {
	w := s.cloud.World
	op := &sqlOperation{Path: "projects/" + in.project() + "/operations/" + w.UUID(), Project: in.project(), Type: opType, Instance: in.Path, Link: link, User: r.Who.Email,
		Args: args, Begun: w.Now(), Takes: takes, Status: opPending}
	s.st.Operations[op.Path] = op
	in.Busy = op.Path
	s.cloud.after(sqlStartsAfter, "sqladmin", "run", op.Path)
	s.cloud.after(takes, "sqladmin", "done", op.Path)
	r.Touch(in.Path)
	r.Make(op.Path)
	if r.HTTP == nil { // the control API does not wait
		s.finish(op)
	}
	return op
}

// instantly is an operation that is done when the call is answered, as those on databases and users are.
func (s *cloudSQL) instantly(r *request, in *sqlInstance, opType, link string) Doc {
	w := s.cloud.World
	op := &sqlOperation{Path: "projects/" + in.project() + "/operations/" + w.UUID(), Project: in.project(), Type: opType, Instance: in.Path, Link: link, User: r.Who.Email,
		Begun: w.Now(), Started: w.Now(), Ended: w.Now(), Status: opDone}
	s.st.Operations[op.Path] = op
	s.cloud.after(operationKept, "sqladmin", "forget", op.Path)
	r.Touch(in.Path)
	return s.shownOperation(op)
}

// advance carries on with an operation when its time has come. One that needs the server behind the instance waits until it is ready.
func (s *cloudSQL) advance(op *sqlOperation, kind string) {
	if kind == "run" {
		op.Status, op.Started = "RUNNING", s.cloud.World.Now()
		s.begin(op)
		return
	}
	if in := s.st.Instances[op.Instance]; in != nil && op.creates() && !s.serverReady(in) {
		s.cloud.after(sqlServerWaits, "sqladmin", "done", op.Path)
		return
	}
	s.finish(op)
}

// begin is what an operation does first: a new instance gets its place in the network, and its server is started.
func (s *cloudSQL) begin(op *sqlOperation) {
	in := s.st.Instances[op.Instance]
	if in == nil || !op.creates() || op.Status == opDone {
		return
	}
	call := &sim.Call{Cloud: cloudName, Service: "sqladmin", Operation: "instances.insert", Account: in.project(), Region: in.region(), Mutating: true}
	if f := s.cloud.World.Take(call, sim.FaultCapacity, in.Path+" "+str(in.Doc, "gceZone")+" "+str(in.settings(), "tier")); f != nil {
		s.fail(op, orText(f.Code, "ZONE_RESOURCE_POOL_EXHAUSTED"), orText(f.Message, noCapacity(str(in.Doc, "gceZone"))))
		return
	}
	if message := s.place(in); message != "" {
		s.fail(op, "INTERNAL_ERROR", message)
		return
	}
	s.serve(in)
}

// noCapacity is how Compute Engine says that a zone has no room, which services pass on.
func noCapacity(zone string) string {
	return "The zone '" + zone + "' does not have enough resources available to fulfill the request. Try a different zone, or try again later."
}

// finish carries an operation out.
func (s *cloudSQL) finish(op *sqlOperation) {
	if op.Status == opDone {
		return
	}
	if op.Started.IsZero() {
		op.Started = s.cloud.World.Now()
		s.begin(op)
		if op.Status == opDone {
			return
		}
	}
	in := s.st.Instances[op.Instance]
	s.end(op, in)
	if in == nil {
		return
	}
	switch op.Type {
	case "CREATE", "CREATE_REPLICA":
		s.created(in)
	case "UPDATE", "RESTART":
		s.updated(in, op)
	case "DELETE":
		s.finalBackup(in, op)
		s.drop(in)
	case "BACKUP_VOLUME":
		s.backedUp(op)
	case "DELETE_DATABASE":
		s.dropDatabase(in, lastPart(op.Link))
	}
}

// fail ends an operation with an error. What was to be created stays, failed; it has to be deleted.
func (s *cloudSQL) fail(op *sqlOperation, code, message string) {
	if op.Status == opDone {
		return
	}
	in := s.st.Instances[op.Instance]
	op.Code, op.Message = code, message
	s.end(op, in)
	switch {
	case in == nil:
	case op.creates():
		in.Doc["state"] = sqlFailed
		s.serve(in)
	case op.Type == "DELETE":
		in.Doc["state"] = orText(str(op.Args, "was"), sqlRunnable)
		s.serve(in)
	case op.Type == "BACKUP_VOLUME":
		if b := s.st.Backups[str(op.Args, "backup")]; b != nil {
			b.Doc["state"] = sqlFailed
		}
	}
}

func (s *cloudSQL) end(op *sqlOperation, in *sqlInstance) {
	now := s.cloud.World.Now()
	if op.Started.IsZero() {
		op.Started = now
	}
	op.Status, op.Ended, op.Held = opDone, now, false
	if in != nil && in.Busy == op.Path {
		in.Busy = ""
	}
	s.cloud.after(operationKept, "sqladmin", "forget", op.Path)
}

// drive does to an operation what a transition or op_failed asks.
func (s *cloudSQL) drive(op *sqlOperation, state, code, message string) error {
	switch state {
	case "":
		s.fail(op, orText(code, "INTERNAL_ERROR"), orText(message, "An internal error occurred."))
	case opDone:
		s.finish(op)
	case opPending, opRunning:
		op.Status, op.Held = state, true
	default: // a state of the instance
		return s.SetState(op.Instance, state, code, message)
	}
	return nil
}

// shownOperation is an operation as Cloud SQL shows it.
func (s *cloudSQL) shownOperation(op *sqlOperation) Doc {
	instance := "projects/" + op.Project + "/instances/" + lastPart(op.Instance)
	d := Doc{"kind": "sql#operation", "name": lastPart(op.Path), "operationType": op.Type, "status": op.Status, "user": op.User, "insertTime": sqlTime(op.Begun),
		"selfLink": sqlRoot + op.Path, "targetProject": op.Project, "targetId": lastPart(op.Instance), "targetLink": sqlRoot + orText(op.Link, instance)}
	if m := str(op.Args, "primary"); m != "" { // the target of the creation of a replica is its primary
		d["targetId"], d["targetLink"] = m, sqlRoot+"projects/"+op.Project+"/instances/"+m
	}
	if !op.Started.IsZero() {
		d["startTime"] = sqlTime(op.Started)
	}
	if !op.Ended.IsZero() {
		d["endTime"] = sqlTime(op.Ended)
	}
	if op.Code != "" {
		d["error"] = Doc{"kind": "sql#operationErrors", "errors": []any{Doc{"kind": "sql#operationError", "code": op.Code, "message": op.Message}}}
	}
	if b := str(op.Args, "backup"); b != "" {
		d["backupContext"] = Doc{"kind": "sql#backupContext", "backupId": text(op.Args["run"]), "name": b}
	}
	return d
}

// sqlTime writes a time as Cloud SQL does: to the millisecond.
func sqlTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

func (s *cloudSQL) getOperation(r *request) (any, error) {
	op := s.st.Operations["projects/"+r.Project.ID+"/operations/"+r.Path["operation"]]
	if op == nil {
		return nil, refuse(404, "operationDoesNotExist", "The Cloud SQL instance operation does not exist.")
	}
	r.Touch(op.Path, op.Instance)
	return s.shownOperation(op), nil
}

// listOperations lists the operations on an instance, or all of a project, the newest first.
func (s *cloudSQL) listOperations(r *request) (any, error) {
	var ops []*sqlOperation
	instance := lastPart(r.Query.Get("instance"))
	for _, path := range keysOf(s.st.Operations) {
		op := s.st.Operations[path]
		if op.Project == r.Project.ID && (instance == "" || lastPart(op.Instance) == instance) {
			ops = append(ops, op)
		}
	}
	items := []Doc{}
	for _, op := range newestFirst(ops, func(op *sqlOperation) time.Time { return op.Begun }) {
		items = append(items, s.shownOperation(op))
	}
	return s.page(r, items, "sql#operationsList")
}

// page is one page of a list, as Cloud SQL answers it.
func (s *cloudSQL) page(r *request, items []Doc, kindName string) (any, error) {
	page, next, err := pageOf(r, items, "maxResults", 500)
	if err != nil {
		return nil, err
	}
	out := Doc{"kind": kindName}
	if len(page) > 0 {
		out["items"] = page
	}
	if next != "" {
		out["nextPageToken"] = next
	}
	return out, nil
}

// held says whether a fault keeps the names of deleted instances taken, which Cloud SQL did for a week until 2025.
func (s *cloudSQL) held(r *request, path string) *sim.Fault {
	released, ok := s.st.Released[path]
	if !ok || s.cloud.World.Now().Sub(released) > 7*24*time.Hour {
		return nil
	}
	return s.cloud.World.Take(r.Call, sim.FaultNameHeld, lastPart(path))
}
