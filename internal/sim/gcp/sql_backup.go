package gcp

import (
	"slices"
	"strconv"
	"time"
)

// A sqlBackup is a backup of an instance. No data is kept: it is what the account has of it.
type sqlBackup struct {
	Doc      Doc // as the Backups API has it
	Run      string
	Instance string // path; the instance may be gone
	Region   string
	Labels   map[string]string
	Created  time.Time
	Expires  time.Time // zero: never by itself
}

const (
	backupEvery = 24 * time.Hour
	finalKept   = 30 * 24 * time.Hour // when nothing else is said ("About final backups")
)

// backUp makes a backup of an instance that is there at once.
func (s *cloudSQL) backUp(in *sqlInstance, kind, description string) *sqlBackup {
	w := s.cloud.World
	now := w.Now()
	name := "projects/" + in.project() + "/backups/" + w.UUID()
	settings := clone(in.Doc)
	delete(settings, "ipAddresses")
	b := &sqlBackup{Run: strconv.FormatInt(now.UnixMilli(), 10), Instance: in.Path, Region: in.region(), Labels: in.labels(), Created: now,
		Doc: Doc{"kind": "sql#backup", "name": name, "selfLink": sqlRoot + name, "type": kind, "state": "SUCCESSFUL", "instance": in.name(), "databaseVersion": in.version(),
			"location": orText(str(sub(in.settings(), "backupConfiguration"), "location"), multiRegionOf(in.region())), "backupKind": "SNAPSHOT", "instanceSettings": settings,
			"backupInterval": Doc{"startTime": sqlTime(now), "endTime": sqlTime(now)}, "maxChargeableBytes": "42000000"}}
	if description != "" {
		b.Doc["description"] = description
	}
	s.st.Backups[name] = b
	return b
}

// multiRegionOf is where backups of a region are kept when nothing else is said.
func multiRegionOf(region string) string {
	switch {
	case len(region) > 2 && region[:2] == "eu":
		return "eu"
	case len(region) > 4 && region[:4] == "asia":
		return "asia"
	}
	return "us"
}

func (s *cloudSQL) expire(b *sqlBackup, at time.Time) {
	b.Expires = at
	b.Doc["expiryTime"] = sqlTime(at)
	s.cloud.after(at.Sub(s.cloud.World.Now()), "sqladmin", "expire", str(b.Doc, "name"))
}

// dailyBackup makes the automated backup of a day, and drops those that are too many.
func (s *cloudSQL) dailyBackup(path string) {
	in := s.st.Instances[path]
	if in == nil {
		return
	}
	s.cloud.after(backupEvery, "sqladmin", "backup", path)
	conf := sub(in.settings(), "backupConfiguration")
	if !truth(conf, "enabled") || in.state() != sqlRunnable {
		return
	}
	s.backUp(in, "AUTOMATED", "")
	automated := slices.DeleteFunc(s.backupsOf(path), func(b *sqlBackup) bool { return str(b.Doc, "type") != "AUTOMATED" })
	keep := int(num(sub(conf, "backupRetentionSettings"), "retainedBackups"))
	for _, b := range automated[min(keep, len(automated)):] {
		delete(s.st.Backups, str(b.Doc, "name"))
	}
}

// backupsOf are the backups of an instance, the newest first.
func (s *cloudSQL) backupsOf(path string) []*sqlBackup {
	var out []*sqlBackup
	for _, name := range keysOf(s.st.Backups) {
		if b := s.st.Backups[name]; b.Instance == path {
			out = append(out, b)
		}
	}
	return newestFirst(out, func(b *sqlBackup) time.Time { return b.Created })
}

func newestFirst[T any](all []T, at func(T) time.Time) []T {
	slices.SortStableFunc(all, func(a, b T) int { return at(b).Compare(at(a)) })
	return all
}

// finalBackupArgs says whether a deletion takes a last backup, and until when that is kept: by the request or by the settings.
func finalBackupArgs(r *request, in *sqlInstance) (Doc, error) {
	conf := sub(in.settings(), "finalBackupConfig")
	args := Doc{"final": truth(conf, "enabled"), "description": r.Query.Get("finalBackupDescription"), "days": num(conf, "retentionDays")}
	if v := r.Query.Get("enableFinalBackup"); v != "" {
		args["final"] = v == "true"
	}
	if v := r.Query.Get("finalBackupTtlDays"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 || n > 365 {
			return nil, sqlInvalid("The retention of the final backup must be between 1 and 365 days.")
		}
		args["days"] = float64(n)
	}
	if v := r.Query.Get("finalBackupExpiryTime"); v != "" {
		if _, err := time.Parse(time.RFC3339, v); err != nil {
			return nil, sqlInvalid("Invalid expiry time of the final backup: %s.", v)
		}
		args["expires"] = v
	}
	if truth(args, "final") && in.state() != sqlRunnable {
		return nil, sqlInvalid("A final backup cannot be taken of an instance that is not running.")
	}
	return args, nil
}

// finalBackup takes the last backup of an instance that is being deleted.
func (s *cloudSQL) finalBackup(in *sqlInstance, op *sqlOperation) {
	if !truth(op.Args, "final") {
		return
	}
	b := s.backUp(in, "FINAL", str(op.Args, "description"))
	at := s.cloud.World.Now().Add(finalKept)
	if days := num(op.Args, "days"); days > 0 {
		at = s.cloud.World.Now().Add(time.Duration(days) * 24 * time.Hour)
	}
	if t, err := time.Parse(time.RFC3339, str(op.Args, "expires")); err == nil {
		at = t
	}
	s.expire(b, at)
}

// releaseBackups decides what becomes of the backups of a deleted instance: the final one stays, the others only if the instance was so
// set ("About retained backups").
func (s *cloudSQL) releaseBackups(in *sqlInstance) {
	for _, b := range s.backupsOf(in.Path) {
		if str(b.Doc, "type") != "FINAL" && !truth(in.settings(), "retainBackupsOnDelete") {
			delete(s.st.Backups, str(b.Doc, "name"))
			continue
		}
		if str(b.Doc, "instanceDeletionTime") == "" {
			b.Doc["instanceDeletionTime"] = sqlTime(s.cloud.World.Now())
		}
		b.Instance = "" // another instance of the name has its own
	}
}

// startBackup begins a backup on demand.
func (s *cloudSQL) startBackup(r *request, in *sqlInstance) (any, error) {
	if err := s.idle(in); err != nil {
		return nil, err
	}
	if in.state() != sqlRunnable {
		return nil, sqlInvalid("Invalid request since instance is not running.")
	}
	b := s.backUp(in, "ON_DEMAND", str(r.Body, "description"))
	b.Doc["state"] = opRunning
	if days, err := strconv.Atoi(str(r.Body, "ttlDays")); err == nil && days > 0 {
		s.expire(b, s.cloud.World.Now().Add(time.Duration(days)*24*time.Hour))
	}
	name := str(b.Doc, "name")
	r.Touch(name)
	return s.shownOperation(s.start(r, in, "BACKUP_VOLUME", in.Path, sqlBackupTakes, Doc{"backup": name, "run": b.Run})), nil
}

func (s *cloudSQL) backedUp(op *sqlOperation) {
	if b := s.st.Backups[str(op.Args, "backup")]; b != nil {
		b.Doc["state"] = "SUCCESSFUL"
	}
}

func (s *cloudSQL) createBackup(r *request) (any, error) {
	r.Path["instance"] = lastPart(str(r.Body, "instance"))
	in, err := s.instance(r)
	if err != nil {
		return nil, err
	}
	return s.startBackup(r, in)
}

func (s *cloudSQL) backup(r *request) (*sqlBackup, error) {
	b := s.st.Backups["projects/"+r.Project.ID+"/backups/"+lastPart(r.Path["name"])]
	if b == nil {
		return nil, refuse(404, "backupDoesNotExist", "The backup does not exist.")
	}
	r.Touch(str(b.Doc, "name"))
	return b, nil
}

func (s *cloudSQL) getBackup(r *request) (any, error) {
	b, err := s.backup(r)
	if err != nil {
		return nil, err
	}
	return b.Doc, nil
}

// listBackups lists the backups of a project: those of instances that are gone as well.
func (s *cloudSQL) listBackups(r *request) (any, error) {
	f, err := parseFilter(r.Query.Get("filter"))
	if err != nil {
		return nil, sqlInvalid("Invalid filter expression.")
	}
	var all []*sqlBackup
	for _, name := range keysOf(s.st.Backups) {
		if b := s.st.Backups[name]; segmentAfter(name, "projects") == r.Project.ID && f(b.Doc) {
			all = append(all, b)
		}
	}
	var items []Doc
	for _, b := range newestFirst(all, func(b *sqlBackup) time.Time { return b.Created }) {
		items = append(items, b.Doc)
	}
	return r.page(items, "backups", 500)
}

// updateBackup changes the description of a backup, or when it expires.
func (s *cloudSQL) updateBackup(r *request) (any, error) {
	b, err := s.backup(r)
	if err != nil {
		return nil, err
	}
	if d, ok := r.Body["description"].(string); ok {
		b.Doc["description"] = d
	}
	if at, err := time.Parse(time.RFC3339, str(r.Body, "expiryTime")); err == nil {
		s.expire(b, at)
	}
	if days, err := strconv.Atoi(str(r.Body, "ttlDays")); err == nil && days > 0 {
		s.expire(b, s.cloud.World.Now().Add(time.Duration(days)*24*time.Hour))
	}
	return s.onBackup(r, b, "UPDATE_BACKUP"), nil
}

func (s *cloudSQL) deleteBackup(r *request) (any, error) {
	b, err := s.backup(r)
	if err != nil {
		return nil, err
	}
	if str(b.Doc, "state") == opRunning {
		return nil, refuse(409, "operationInProgress", "Operation failed because another operation was already in progress.")
	}
	delete(s.st.Backups, str(b.Doc, "name"))
	return s.onBackup(r, b, "DELETE_BACKUP"), nil
}

// onBackup is the operation of a change of a backup, which is done at once.
func (s *cloudSQL) onBackup(r *request, b *sqlBackup, opType string) Doc {
	in := &sqlInstance{Path: "projects/" + r.Project.ID + "/instances/" + str(b.Doc, "instance"), Doc: Doc{}}
	return s.instantly(r, in, opType, str(b.Doc, "name"))
}

// Backup runs are the same backups as the older part of the API has them: those of an instance that is there.

func (b *sqlBackup) run() Doc {
	kind := str(b.Doc, "type")
	at := sub(b.Doc, "backupInterval")
	d := Doc{"kind": "sql#backupRun", "id": b.Run, "instance": str(b.Doc, "instance"), "status": str(b.Doc, "state"), "type": kind, "location": str(b.Doc, "location"),
		"backupKind": "SNAPSHOT", "databaseVersion": str(b.Doc, "databaseVersion"), "enqueuedTime": str(at, "startTime"), "startTime": str(at, "startTime"), "endTime": str(at, "endTime"),
		"windowStartTime": str(at, "startTime"), "selfLink": sqlRoot + b.Instance + "/backupRuns/" + b.Run}
	if v := str(b.Doc, "description"); v != "" {
		d["description"] = v
	}
	return d
}

func (s *cloudSQL) insertRun(r *request) (any, error) {
	in, err := s.instance(r)
	if err != nil {
		return nil, err
	}
	return s.startBackup(r, in)
}

func (s *cloudSQL) findRun(r *request) (*sqlBackup, error) {
	in, err := s.instance(r)
	if err != nil {
		return nil, err
	}
	for _, b := range s.backupsOf(in.Path) {
		if b.Run == r.Path["id"] {
			return b, nil
		}
	}
	return nil, refuse(404, "backupRunDoesNotExist", "The backup run does not exist.")
}

func (s *cloudSQL) getRun(r *request) (any, error) {
	b, err := s.findRun(r)
	if err != nil {
		return nil, err
	}
	return b.run(), nil
}

func (s *cloudSQL) listRuns(r *request) (any, error) {
	in, err := s.instance(r)
	if err != nil {
		return nil, err
	}
	var items []Doc
	for _, b := range s.backupsOf(in.Path) {
		items = append(items, b.run())
	}
	return s.page(r, items, "sql#backupRunsList")
}

func (s *cloudSQL) deleteRun(r *request) (any, error) {
	b, err := s.findRun(r)
	if err != nil {
		return nil, err
	}
	delete(s.st.Backups, str(b.Doc, "name"))
	return s.onBackup(r, b, "DELETE_BACKUP"), nil
}
