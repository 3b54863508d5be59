package gcp

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/zopday/provisioner/internal/sim"
)

// sqlName is what names of instances are made of; with the project's ID they have 98 characters at most ("Instance settings", Cloud SQL).
var sqlName = regexp.MustCompile(`^[a-z](?:[-a-z0-9]*[a-z0-9])?$`)

func (s *cloudSQL) insert(r *request) (any, error) {
	name := str(r.Body, "name")
	path := "projects/" + r.Project.ID + "/instances/" + name
	switch {
	case name == "":
		return nil, sqlInvalid("Missing parameter: instance.")
	case !sqlName.MatchString(name) || len(r.Project.ID)+1+len(name) > 98:
		return nil, sqlInvalid("instance name (%s). Instance names must be lowercase, begin with a letter, end with a letter or digit, and with the project ID and a colon have at most 98 characters.", name)
	}
	r.Touch(path)
	if err := s.nameFree(r, path); err != nil {
		return nil, err
	}
	doc := clone(r.Body)
	doc["project"] = r.Project.ID
	setDefault(doc, "region", "us-central1")
	r.Region = str(doc, "region")
	in := &sqlInstance{Path: path, Doc: doc, Created: s.cloud.World.Now(), Root: str(doc, "rootPassword")}
	delete(doc, "rootPassword")
	if err := s.checkNew(r, in); err != nil {
		return nil, err
	}
	s.fill(in)
	s.st.Seq++
	in.Seq, in.Serial = s.st.Seq, s.st.Seq
	in.Doc["state"] = sqlCreating
	s.st.Instances[path] = in
	delete(s.st.Released, path)
	takes := sqlCreateTakes
	if str(in.settings(), "availabilityType") == "REGIONAL" {
		takes += sqlRegionalMore
	}
	if m := str(doc, "masterInstanceName"); m != "" {
		return s.shownOperation(s.start(r, in, "CREATE_REPLICA", path, takes, Doc{"primary": m})), nil
	}
	return s.shownOperation(s.start(r, in, "CREATE", path, takes, nil)), nil
}

// nameFree refuses a name that is taken. That of a deleted instance can be used at once ("Delete instances", Cloud SQL); the fault
// name_held brings back the time when it could not for a week, in both forms that were seen (hashicorp/terraform-provider-google#6066
// and #5179).
func (s *cloudSQL) nameFree(r *request, path string) error {
	exists := refuse(409, "instanceAlreadyExists", "The Cloud SQL instance already exists.")
	if s.st.Instances[path] != nil {
		return exists
	}
	f := s.held(r, path)
	switch {
	case f == nil:
		return nil
	case f.Code == "invalidState":
		return refuse(409, "invalidState", "The instance or operation is not in an appropriate state to handle the request.")
	}
	exists.Message += " When you delete an instance, you can't reuse the name of the deleted instance until one week from the deletion date."
	return exists
}

func (s *cloudSQL) checkNew(r *request, in *sqlInstance) error {
	if m := str(in.Doc, "masterInstanceName"); m != "" {
		if err := s.settleReplica(r, in, m); err != nil {
			return err
		}
	}
	if err := s.check(in, nil); err != nil {
		return err
	}
	if err := s.checkNetwork(r, in); err != nil {
		return err
	}
	have := len(s.inOrder(r.Project.ID))
	if float64(have) >= s.cloud.quota("sqladmin", "instances", r.Project.ID, "") {
		return refuse(403, "quotaExceeded", "Failed to create instance because the project or creator has reached the max instance per project/creator limit.")
	}
	return nil
}

// settleReplica makes an instance the read replica of another one: what it does not say is as there.
func (s *cloudSQL) settleReplica(r *request, in *sqlInstance, primary string) error {
	name := primary[strings.LastIndex(primary, ":")+1:]
	p := s.st.Instances["projects/"+r.Project.ID+"/instances/"+name]
	switch {
	case p == nil:
		return refuse(404, "instanceDoesNotExist", "The Cloud SQL instance does not exist.")
	case p.state() != sqlRunnable:
		return sqlInvalid("Invalid request since instance is not running.")
	case !truth(sub(p.settings(), "backupConfiguration"), "enabled"):
		return sqlInvalid("Replication requires that automated backups of the primary instance %s are enabled.", name)
	}
	r.Touch(p.Path)
	in.Doc["masterInstanceName"], in.Doc["instanceType"] = r.Project.ID+":"+name, "READ_REPLICA_INSTANCE"
	setDefault(in.Doc, "databaseVersion", p.version())
	settings := sub(in.Doc, "settings")
	if settings == nil {
		settings = Doc{}
		in.Doc["settings"] = settings
	}
	setDefault(settings, "tier", str(p.settings(), "tier"))
	setDefault(settings, "edition", str(p.settings(), "edition"))
	setDefault(settings, "ipConfiguration", clone(p.ip()))
	return nil
}

// replicas are the read replicas of an instance.
func (s *cloudSQL) replicas(in *sqlInstance) []*sqlInstance {
	var out []*sqlInstance
	for _, o := range s.inOrder(in.project()) {
		if str(o.Doc, "masterInstanceName") == in.project()+":"+in.name() {
			out = append(out, o)
		}
	}
	return out
}

func (s *cloudSQL) get(r *request) (any, error) {
	in, err := s.instance(r)
	if err != nil {
		return nil, err
	}
	return s.shown(in), nil
}

// shown is an instance as Cloud SQL shows it.
func (s *cloudSQL) shown(in *sqlInstance) Doc {
	d := clone(in.Doc)
	if in.state() == sqlCreating {
		for _, f := range []string{"ipAddresses", "serverCaCert", "databaseInstalledVersion", "maintenanceVersion"} {
			delete(d, f)
		}
	}
	var names []any
	for _, o := range s.replicas(in) {
		names = append(names, o.name())
	}
	if len(names) > 0 {
		d["replicaNames"] = names
	}
	return d
}

// list lists the instances of a project, whose filter is as "Filter expressions" has it.
func (s *cloudSQL) list(r *request) (any, error) {
	f, err := parseFilter(r.Query.Get("filter"))
	if err != nil {
		return nil, sqlInvalid("Invalid filter expression.")
	}
	var items []Doc
	for _, in := range s.inOrder(r.Project.ID) {
		if d := s.shown(in); f(d) && (r.HTTP == nil || s.cloud.World.Visible(r.Call, in.Path, in.Created, sim.ByList, "sql-instance "+in.name())) {
			items = append(items, d)
		}
	}
	return s.page(r, items, "sql#instancesList")
}

// patch changes the settings that a request names.
func (s *cloudSQL) patch(r *request) (any, error) {
	in, err := s.free(r)
	if err != nil {
		return nil, err
	}
	next := clone(in.Doc)
	merge(next, r.Body)
	return s.change(r, in, next)
}

// update puts other settings in the place of those that there are.
func (s *cloudSQL) update(r *request) (any, error) {
	in, err := s.free(r)
	if err != nil {
		return nil, err
	}
	next := clone(in.Doc)
	maps.Copy(next, r.Body)
	return s.change(r, in, next)
}

// change begins an operation after which the document of an instance is another one.
func (s *cloudSQL) change(r *request, in *sqlInstance, next Doc) (any, error) {
	for _, f := range []string{"region", "name", "project", "masterInstanceName"} {
		if old := str(in.Doc, f); old != "" && str(next, f) != old {
			return nil, sqlInvalid("The %s of an instance cannot be changed.", f)
		}
	}
	delete(next, "rootPassword")
	if in.state() != sqlRunnable && in.state() != sqlStopped && !(in.state() == sqlFailed && onlyProtection(r.Body)) {
		return nil, refuse(409, "invalidState", "The instance or operation is not in an appropriate state to handle the request.")
	}
	if v := str(sub(r.Body, "settings"), "settingsVersion"); v != "" && v != str(in.settings(), "settingsVersion") && r.method.HTTP == "PUT" {
		return nil, refuse(412, "staleData", "The settings version %s is out of date: it is %s.", v, str(in.settings(), "settingsVersion"))
	}
	changed := &sqlInstance{Path: in.Path, Doc: next}
	if err := s.check(changed, in); err != nil {
		return nil, err
	}
	if str(changed.ip(), "privateNetwork") != str(in.ip(), "privateNetwork") {
		if err := s.checkNetwork(r, changed); err != nil {
			return nil, err
		}
	}
	s.fill(changed)
	takes := sqlUpdateTakes
	if str(changed.settings(), "tier") != str(in.settings(), "tier") || needsRestart(in, changed) {
		takes = sqlRestartTakes
	}
	return s.shownOperation(s.start(r, in, "UPDATE", in.Path, takes, Doc{"doc": changed.Doc})), nil
}

// onlyProtection says whether a change is about deletion protection alone, which one that failed has to have lifted to be deleted.
func onlyProtection(body Doc) bool {
	settings := sub(body, "settings")
	_, has := settings["deletionProtectionEnabled"]
	return has && len(settings) == 1 && len(body) == 1
}

func (s *cloudSQL) restart(r *request) (any, error) {
	in, err := s.free(r)
	if err != nil {
		return nil, err
	}
	if in.state() != sqlRunnable {
		return nil, sqlInvalid("Invalid request since instance is not running.")
	}
	return s.shownOperation(s.start(r, in, "RESTART", in.Path, sqlRestartTakes, nil)), nil
}

// delete begins the deletion of an instance. One whose deletion protection is on, or that has read replicas, is refused.
func (s *cloudSQL) delete(r *request) (any, error) {
	in, err := s.free(r)
	if err != nil {
		return nil, err
	}
	switch {
	case truth(in.settings(), "deletionProtectionEnabled"):
		return nil, refuse(400, "deletionProtectionEnabled", "The instance is protected. Please disable the deletion protection and try again. To disable deletion protection, update the instance settings with deletionProtectionEnabled set to false.")
	case len(s.replicas(in)) > 0:
		return nil, sqlInvalid("The instance has read replicas (%s). Delete them before the primary instance.", s.replicas(in)[0].name())
	}
	args, err := finalBackupArgs(r, in)
	if err != nil {
		return nil, err
	}
	args["was"] = in.state()
	takes := sqlDeleteTakes
	if truth(args, "final") {
		takes += sqlBackupTakes
	}
	in.Doc["state"] = sqlDeleting
	return s.shownOperation(s.start(r, in, "DELETE", in.Path, takes, args)), nil
}

// created is an instance that is there.
func (s *cloudSQL) created(in *sqlInstance) {
	in.Doc["state"] = sqlRunnable
	if str(in.settings(), "activationPolicy") == "NEVER" {
		in.Doc["state"] = sqlStopped
	}
	s.firstContents(in)
	s.serve(in)
	if truth(sub(in.settings(), "backupConfiguration"), "enabled") {
		s.backUp(in, "AUTOMATED", "")
	}
	s.cloud.after(backupEvery, "sqladmin", "backup", in.Path)
}

// updated is an instance whose settings have changed, or that was restarted.
func (s *cloudSQL) updated(in *sqlInstance, op *sqlOperation) {
	if next := sub(op.Args, "doc"); next != nil {
		in.Doc = next
		bumpSettings(in)
	}
	if in.state() == sqlRunnable || in.state() == sqlStopped {
		in.Doc["state"] = sqlRunnable
		if str(in.settings(), "activationPolicy") == "NEVER" {
			in.Doc["state"] = sqlStopped
		}
	}
	s.serve(in)
}

// drop takes an instance away. What is left of it keeps its private connection busy for a while.
func (s *cloudSQL) drop(in *sqlInstance) {
	delete(s.st.Instances, in.Path)
	s.st.Released[in.Path] = s.cloud.World.Now()
	s.closeServer(in)
	if n := str(in.ip(), "privateNetwork"); n != "" && in.Address != "" {
		wait := s.cloud.lingers(in.Path)
		s.st.Lingering = append(s.st.Lingering, lingering{Network: n, What: "what is left of " + in.Path, Block: in.Block, Until: s.cloud.World.Now().Add(wait)})
		s.cloud.after(wait, "sqladmin", "linger", n)
	}
	s.releaseBackups(in)
}

// listServerCas lists the authorities that sign the certificate of an instance's server.
func (s *cloudSQL) listServerCas(r *request) (any, error) {
	in, err := s.instance(r)
	if err != nil {
		return nil, err
	}
	out := Doc{"kind": "sql#instancesListServerCas"}
	if cert := sub(in.Doc, "serverCaCert"); cert != nil && in.state() != sqlCreating {
		out["certs"], out["activeVersion"] = []any{cert}, str(cert, "sha1Fingerprint")
	}
	return out, nil
}

// connectSettings is what a client needs to know to connect.
func (s *cloudSQL) connectSettings(r *request) (any, error) {
	in, err := s.instance(r)
	if err != nil {
		return nil, err
	}
	shown := s.shown(in)
	out := Doc{"kind": "sql#connectSettings", "backendType": "SECOND_GEN", "databaseVersion": in.version(), "region": in.region()}
	for _, f := range []string{"ipAddresses", "serverCaCert", "dnsName", "connectionName"} {
		if v, ok := shown[f]; ok {
			out[f] = v
		}
	}
	out["serverCaMode"] = orText(str(in.ip(), "serverCaMode"), "GOOGLE_MANAGED_INTERNAL_CA")
	return out, nil
}

// has says whether the caller's address is in one of an instance's authorised networks.
func (in *sqlInstance) authorized(match func(cidr string) bool) bool {
	return slices.ContainsFunc(docs(in.ip(), "authorizedNetworks"), func(n Doc) bool { return match(str(n, "value")) })
}
