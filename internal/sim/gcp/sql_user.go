package gcp

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

// A sqlUser is a user of an instance.
type sqlUser struct {
	Doc      Doc
	Password string
	Roles    []string
	Created  time.Time
	First    bool // the administrator, whose password is the instance's
	Seen     bool // as of a database
}

func (in *sqlInstance) userDoc(name, host string) Doc {
	d := Doc{"kind": "sql#user", "name": name, "host": host, "instance": in.name(), "project": in.project(), "etag": fingerprint(Doc{"user": name, "host": host})}
	if !in.postgres() {
		d["iamStatus"], d["passwordPolicy"] = "IAM_STATUS_UNSPECIFIED", Doc{"status": Doc{}}
	}
	return d
}

// user finds a user: of that host if there is one, else by its name.
func (in *sqlInstance) user(name, host string) *sqlUser {
	var found *sqlUser
	for _, u := range in.Users {
		if str(u.Doc, "name") == name {
			if str(u.Doc, "host") == host {
				return u
			}
			found = u
		}
	}
	return found
}

// inside are users that a server has for itself.
var inside = regexp.MustCompile(`^(cloudsql|pg_|mysql\.|mariadb\.|PUBLIC$)`)

// lookAtUsers takes up the users that were made and dropped in the server itself.
func (s *cloudSQL) lookAtUsers(in *sqlInstance, users []string) {
	in.Users = slices.DeleteFunc(in.Users, func(u *sqlUser) bool {
		here := slices.Contains(users, str(u.Doc, "name"))
		gone := u.Seen && !here && !u.First
		u.Seen = u.Seen || here
		return gone
	})
	for _, name := range users {
		if in.user(name, "") == nil && !inside.MatchString(name) && name != in.admin() && s.cloud.World.Now().Sub(in.Dropped["user "+name]) > 2*time.Second {
			in.Users = append(in.Users, &sqlUser{Doc: in.userDoc(name, ""), Created: s.cloud.World.Now(), Seen: true})
		}
	}
}

// setUser makes a user in the server, or gives it another password.
func (s *cloudSQL) setUser(in *sqlInstance, u *sqlUser) {
	db := s.cloud.opt.Databases
	if db == nil || u.First || (u.Password == "" && u.Seen) {
		return
	}
	db.SetUser(in.serverID(), sim.DatabaseUser{Name: str(u.Doc, "name"), Password: u.Password, Roles: u.Roles})
}

func (s *cloudSQL) insertUser(r *request) (any, error) {
	in, err := s.running(r)
	if err != nil {
		return nil, err
	}
	if err := s.idle(in); err != nil {
		return nil, err
	}
	s.lookInto(in)
	name := str(r.Body, "name")
	if name == "" {
		return nil, sqlInvalid("Missing parameter: user name.")
	}
	u := &sqlUser{Doc: in.userDoc(name, str(r.Body, "host")), Password: str(r.Body, "password"), Roles: texts(r.Body, "databaseRoles"), Created: s.cloud.World.Now()}
	if err := s.settleUser(in, u, str(r.Body, "type")); err != nil {
		return nil, err
	}
	name = str(u.Doc, "name")
	if have := in.user(name, str(u.Doc, "host")); have != nil && (in.postgres() || str(have.Doc, "host") == str(u.Doc, "host")) {
		if in.postgres() {
			return nil, sqlInvalid("failed to create user %s: . role %q already exists.", name, name)
		}
		return nil, refuse(409, "alreadyExists", "The user %s already exists.", name)
	}
	if err := s.checkRoles(in, name, u.Roles); err != nil {
		return nil, err
	}
	if len(u.Roles) == 0 && str(r.Body, "type") != iamUser && !iamAccount(str(r.Body, "type")) {
		u.Roles = []string{"cloudsqlsuperuser"} // "About PostgreSQL users and roles": those that the API makes are members of it
	} else if len(u.Roles) > 0 {
		u.Doc["databaseRoles"] = anys(u.Roles)
	}
	in.Users = append(in.Users, u)
	delete(in.Dropped, "user "+name)
	s.setUser(in, u)
	r.Touch(in.Path + "/users/" + name)
	return s.instantly(r, in, "CREATE_USER", ""), nil
}

const iamUser = "CLOUD_IAM_USER"

func iamAccount(kind string) bool { return kind == "CLOUD_IAM_SERVICE_ACCOUNT" }

// settleUser is what the type of a user means: users of IAM have no password, and service accounts a shorter name ("Manage users with IAM
// database authentication").
func (s *cloudSQL) settleUser(in *sqlInstance, u *sqlUser, kind string) error {
	name := str(u.Doc, "name")
	switch {
	case kind == "" || kind == "BUILT_IN":
		if u.Password == "" && in.postgres() {
			return sqlInvalid("Missing parameter: password of user %s.", name)
		}
		if len(name) > 63 || (!in.postgres() && len(name) > 32) {
			return sqlInvalid("Invalid user name %s: it is too long.", name)
		}
		return nil
	case kind != iamUser && !iamAccount(kind):
		return sqlInvalid("User type %s is not supported.", kind)
	case u.Password != "":
		return sqlInvalid("A password cannot be set for IAM user %s.", name)
	}
	flag := "cloudsql.iam_authentication"
	if !in.postgres() {
		flag = "cloudsql_iam_authentication"
	}
	if !in.flagOn(flag) {
		return sqlInvalid("IAM authentication is not enabled on the instance: set the flag %s.", flag)
	}
	u.Doc["type"] = kind
	switch {
	case in.postgres() && iamAccount(kind) && strings.HasSuffix(name, ".gserviceaccount.com"):
		return sqlInvalid("Database username for Cloud IAM service account should be created without \".gserviceaccount.com\" suffix: %s.", name)
	case !in.postgres():
		u.Doc["iamEmail"] = name
		u.Doc["name"], _, _ = strings.Cut(name, "@")
	}
	u.Password = s.cloud.World.Hex("", 32) // stands for the tokens of IAM
	return nil
}

// checkRoles refuses roles that the server does not have.
func (s *cloudSQL) checkRoles(in *sqlInstance, user string, roles []string) error {
	if !in.postgres() || !s.answers(in) {
		return nil
	}
	for _, role := range roles {
		_, rows, err := s.query(in, "postgres", in.admin(), in.Root, "SELECT 1 FROM pg_roles WHERE rolname = "+sqlText(role))
		if err == nil && len(rows) == 0 {
			return sqlInvalid("failed to create user %s: . role %q does not exist.", user, role)
		}
	}
	return nil
}

// findUser finds the user that the query names.
func (s *cloudSQL) findUser(r *request, name string) (*sqlInstance, *sqlUser, error) {
	in, err := s.running(r)
	if err != nil {
		return nil, nil, err
	}
	s.lookInto(in)
	u := in.user(name, r.Query.Get("host"))
	if u == nil {
		return nil, nil, &Error{HTTP: 404, Reason: "notFound", Status: "NOT_FOUND", Message: "Not Found"}
	}
	r.Touch(in.Path + "/users/" + name)
	return in, u, nil
}

func (s *cloudSQL) getUser(r *request) (any, error) {
	_, u, err := s.findUser(r, r.Path["name"])
	if err != nil {
		return nil, err
	}
	return u.Doc, nil
}

func (s *cloudSQL) listUsers(r *request) (any, error) {
	in, err := s.running(r)
	if err != nil {
		return nil, err
	}
	s.lookInto(in)
	out := Doc{"kind": "sql#usersList"}
	var items []any
	for _, u := range in.Users {
		items = append(items, u.Doc)
	}
	if len(items) > 0 {
		out["items"] = items
	}
	return out, nil
}

// updateUser gives a user another password or other roles.
func (s *cloudSQL) updateUser(r *request) (any, error) {
	name := orText(r.Query.Get("name"), str(r.Body, "name"))
	in, u, err := s.findUser(r, name)
	if err != nil {
		return nil, err
	}
	if err := s.idle(in); err != nil {
		return nil, err
	}
	if err := s.checkRoles(in, name, r.Query["databaseRoles"]); err != nil {
		return nil, err
	}
	if p := str(r.Body, "password"); p != "" {
		if str(u.Doc, "type") != "" {
			return nil, sqlInvalid("A password cannot be set for IAM user %s.", name)
		}
		u.Password = p
		if u.First {
			in.Root = p
			s.serve(in)
		}
	}
	s.changeRoles(r, in, u)
	s.setUser(in, u)
	return s.instantly(r, in, "UPDATE_USER", ""), nil
}

func (s *cloudSQL) changeRoles(r *request, in *sqlInstance, u *sqlUser) {
	want, revoke := r.Query["databaseRoles"], r.Query.Get("revokeExistingRoles") == "true"
	if len(want) == 0 && !revoke {
		return
	}
	for _, role := range without(u.Roles, want) {
		if !revoke {
			want = append(want, role)
		} else if s.answers(in) {
			// A role that the user does not have is no reason to stop.
			_, _, _ = s.query(in, in.firstDatabase(), in.admin(), in.Root, fmt.Sprintf("REVOKE %s FROM %s", in.identifier(role), in.identifier(str(u.Doc, "name"))))
		}
	}
	u.Roles = want
	u.Doc["databaseRoles"] = anys(want)
}

func (in *sqlInstance) firstDatabase() string {
	if in.postgres() {
		return "postgres"
	}
	return "mysql"
}

// identifier is a name as the engine's SQL has it.
func (in *sqlInstance) identifier(name string) string {
	q := "`"
	if in.postgres() {
		q = `"`
	}
	return q + strings.ReplaceAll(name, q, q+q) + q
}

// deleteUser drops a user, which PostgreSQL refuses while something depends on it (kernelci/kcidb#407 has the words).
func (s *cloudSQL) deleteUser(r *request) (any, error) {
	name := r.Query.Get("name")
	in, u, err := s.findUser(r, name)
	if err != nil {
		return nil, err
	}
	if err := s.idle(in); err != nil {
		return nil, err
	}
	if !in.postgres() && u.First && r.Query.Get("host") != "%" {
		return nil, sqlInvalid("Error 1396: Operation DROP USER failed for '%s'@'%s'.", name, r.Query.Get("host"))
	}
	if in.postgres() && s.answers(in) {
		_, rows, err := s.query(in, "postgres", in.admin(), in.Root, "SELECT coalesce(b.datname, ''), count(*) FROM pg_shdepend d JOIN pg_roles r ON r.oid = d.refobjid LEFT JOIN pg_database b ON b.oid = d.dbid "+
			"WHERE d.refclassid = 'pg_authid'::regclass AND d.deptype IN ('o', 'a') AND r.rolname = "+sqlText(name)+" GROUP BY 1 ORDER BY 1")
		if err == nil && len(rows) > 0 {
			return nil, sqlInvalid("failed to delete user %s: . role %q cannot be dropped because some objects depend on it Details: %s.", name, name, dependencies(rows))
		}
	}
	s.dropUser(in, u)
	return s.instantly(r, in, "DELETE_USER", ""), nil
}

func dependencies(rows [][]string) string {
	var out []string
	for _, row := range rows {
		objects := row[1] + " objects"
		if row[1] == "1" {
			objects = "1 object"
		}
		if row[0] == "" {
			out = append(out, objects+" of the instance")
		} else {
			out = append(out, objects+" in database "+row[0])
		}
	}
	return strings.Join(out, "\n")
}

func (s *cloudSQL) dropUser(in *sqlInstance, u *sqlUser) {
	in.Users = slices.DeleteFunc(in.Users, func(o *sqlUser) bool { return o == u })
	name := str(u.Doc, "name")
	in.dropped("user "+name, s.cloud.World.Now())
	if db := s.cloud.opt.Databases; db != nil && !u.First {
		db.DropUser(in.serverID(), name)
	}
}
