package gcp

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// A sqlDatabase is a database in an instance.
type sqlDatabase struct {
	Doc     Doc
	Created time.Time
	// Seen: it has been in the server. One that was and is no more was dropped there.
	Seen bool
}

// builtInDatabases are those that an instance has from the start.
var builtInDatabases = []string{"postgres", "mysql", "information_schema", "performance_schema", "sys"}

// firstContents are the databases and the user of a new instance.
func (s *cloudSQL) firstContents(in *sqlInstance) {
	names, charset, collation := builtInDatabases[1:], "utf8mb3", "utf8mb3_general_ci"
	if in.postgres() {
		names, charset, collation = builtInDatabases[:1], "UTF8", "en_US.UTF8"
	}
	for _, name := range names {
		in.Databases = append(in.Databases, &sqlDatabase{Doc: in.databaseDoc(name, charset, collation), Created: s.cloud.World.Now()})
	}
	in.Users = append(in.Users, &sqlUser{Doc: in.userDoc(in.admin(), ""), Created: s.cloud.World.Now(), First: true})
}

func (in *sqlInstance) databaseDoc(name, charset, collation string) Doc {
	return Doc{"kind": "sql#database", "name": name, "charset": charset, "collation": collation, "instance": in.name(), "project": in.project(),
		"selfLink": sqlRoot + in.Path + "/databases/" + name, "etag": fingerprint(Doc{"name": name, "charset": charset, "collation": collation})}
}

func (in *sqlInstance) database(name string) *sqlDatabase {
	for _, d := range in.Databases {
		if str(d.Doc, "name") == name {
			return d
		}
	}
	return nil
}

// lookInto takes up what was made and dropped in the server itself.
func (s *cloudSQL) lookInto(in *sqlInstance) {
	if !s.answers(in) {
		return
	}
	databases, users, ok := s.cloud.opt.Databases.Names(in.serverID())
	if !ok {
		return
	}
	in.Databases = slices.DeleteFunc(in.Databases, func(d *sqlDatabase) bool {
		here := slices.Contains(databases, str(d.Doc, "name"))
		gone := d.Seen && !here && !slices.Contains(builtInDatabases, str(d.Doc, "name"))
		d.Seen = d.Seen || here
		return gone
	})
	for _, name := range databases {
		if in.database(name) == nil && !strings.HasPrefix(name, "template") && !strings.HasPrefix(name, "cloudsql") && !(in.postgres() && name != "postgres" && slices.Contains(builtInDatabases, name)) &&
			s.cloud.World.Now().Sub(in.Dropped[name]) > 2*time.Second {
			charset, collation := in.defaultCharset()
			in.Databases = append(in.Databases, &sqlDatabase{Doc: in.databaseDoc(name, charset, collation), Created: s.cloud.World.Now(), Seen: true})
		}
	}
	s.lookAtUsers(in, users)
}

func (in *sqlInstance) defaultCharset() (charset, collation string) {
	switch {
	case in.postgres():
		return "UTF8", "en_US.UTF8"
	case in.version() == "MYSQL_5_7":
		return "utf8", "utf8_general_ci"
	}
	return "utf8mb4", "utf8mb4_0900_ai_ci"
}

func (s *cloudSQL) insertDatabase(r *request) (any, error) {
	in, err := s.running(r)
	if err != nil {
		return nil, err
	}
	if err := s.idle(in); err != nil {
		return nil, err
	}
	name := str(r.Body, "name")
	s.lookInto(in)
	switch {
	case name == "":
		return nil, sqlInvalid("Missing parameter: database name.")
	case len(name) > 63 || strings.ContainsAny(name, "/\\\x00"):
		return nil, sqlInvalid("Invalid database name %s.", name)
	case in.database(name) != nil && in.postgres():
		return nil, sqlInvalid("failed to create database %s. Detail: pq: database %q already exists.", name, name)
	case in.database(name) != nil:
		return nil, sqlInvalid("failed to create database %s. Detail: database exists.", name)
	}
	charset, collation := in.defaultCharset()
	charset = orText(str(r.Body, "charset"), charset)
	if str(r.Body, "charset") == "utf8" {
		collation = "utf8_general_ci"
	}
	in.Databases = append(in.Databases, &sqlDatabase{Doc: in.databaseDoc(name, charset, orText(str(r.Body, "collation"), collation)), Created: s.cloud.World.Now()})
	delete(in.Dropped, name)
	if db := s.cloud.opt.Databases; db != nil {
		db.CreateDatabase(in.serverID(), name)
	}
	r.Touch(in.Path + "/databases/" + name)
	return s.instantly(r, in, "CREATE_DATABASE", in.Path+"/databases/"+name), nil
}

func (s *cloudSQL) findDatabase(r *request) (*sqlInstance, *sqlDatabase, error) {
	in, err := s.running(r)
	if err != nil {
		return nil, nil, err
	}
	s.lookInto(in)
	d := in.database(r.Path["database"])
	if d == nil {
		return nil, nil, &Error{HTTP: 404, Reason: "notFound", Status: "NOT_FOUND", Message: "Not Found"}
	}
	r.Touch(in.Path + "/databases/" + r.Path["database"])
	return in, d, nil
}

func (s *cloudSQL) getDatabase(r *request) (any, error) {
	_, d, err := s.findDatabase(r)
	if err != nil {
		return nil, err
	}
	return d.Doc, nil
}

func (s *cloudSQL) listDatabases(r *request) (any, error) {
	in, err := s.running(r)
	if err != nil {
		return nil, err
	}
	s.lookInto(in)
	var items []any
	for _, d := range in.Databases {
		items = append(items, d.Doc)
	}
	return Doc{"kind": "sql#databasesList", "items": items}, nil
}

// changeDatabase changes the character set and collation that new tables have.
func (s *cloudSQL) changeDatabase(r *request) (any, error) {
	in, d, err := s.findDatabase(r)
	if err != nil {
		return nil, err
	}
	if err := s.idle(in); err != nil {
		return nil, err
	}
	if in.postgres() {
		return nil, sqlInvalid("The character set of a database cannot be changed.")
	}
	for _, f := range []string{"charset", "collation"} {
		if v := str(r.Body, f); v != "" {
			d.Doc[f] = v
		}
	}
	return s.shownOperation(s.start(r, in, "UPDATE_DATABASE", in.Path+"/databases/"+r.Path["database"], sqlDatabaseTakes, nil)), nil
}

// deleteDatabase drops a database, which PostgreSQL refuses while somebody is connected to it.
func (s *cloudSQL) deleteDatabase(r *request) (any, error) {
	in, _, err := s.findDatabase(r)
	if err != nil {
		return nil, err
	}
	if err := s.idle(in); err != nil {
		return nil, err
	}
	name := r.Path["database"]
	if slices.Contains(builtInDatabases, name) {
		return nil, sqlInvalid("failed to delete database %q. Detail: it is a system database.", name)
	}
	if in.postgres() && s.answers(in) {
		_, rows, err := s.query(in, "postgres", in.admin(), in.Root, fmt.Sprintf("SELECT count(*) FROM pg_stat_activity WHERE datname = %s", sqlText(name)))
		if err == nil && len(rows) == 1 && rows[0][0] != "0" {
			return nil, sqlInvalid("failed to delete database %q. Detail: pq: database %q is being accessed by other users. (Please use psql client to delete database that is not owned by \"cloudsqlsuperuser\").", name, name)
		}
	}
	return s.shownOperation(s.start(r, in, "DELETE_DATABASE", in.Path+"/databases/"+name, sqlDatabaseTakes, nil)), nil
}

func (s *cloudSQL) dropDatabase(in *sqlInstance, name string) {
	in.Databases = slices.DeleteFunc(in.Databases, func(d *sqlDatabase) bool { return str(d.Doc, "name") == name })
	in.dropped(name, s.cloud.World.Now())
	if db := s.cloud.opt.Databases; db != nil {
		db.DropDatabase(in.serverID(), name)
	}
}

// dropped notes when something was dropped: the view of the server may be older.
func (in *sqlInstance) dropped(name string, at time.Time) {
	if in.Dropped == nil {
		in.Dropped = map[string]time.Time{}
	}
	in.Dropped[name] = at
}

// sqlText is a text as SQL has it.
func sqlText(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
