package databases

import (
	"context"
	"fmt"
	"strconv"

	"github.com/zopday/provisioner/internal/pipeline"
)

// postgres makes databases and roles on PostgreSQL.
type postgres struct {
	*link
	version int // server_version_num; 0: not asked yet
}

// maintenance is the database to connect to for what is not inside one.
const maintenance = "postgres"

// ask is read in the maintenance database.
func (p *postgres) ask(ctx context.Context, op, statement string) ([][]string, error) {
	return p.read(ctx, op, maintenance, statement)
}

// ownerOf is the owner of a database; "" if there is none of that name.
func (p *postgres) ownerOf(ctx context.Context, op, name string) (string, error) {
	rows, err := p.ask(ctx, op, "SELECT pg_catalog.pg_get_userbyid(datdba) FROM pg_catalog.pg_database WHERE datname = "+pgLiteral(name))
	if err != nil || len(rows) == 0 {
		return "", err
	}
	return rows[0][0], nil
}

func (p *postgres) database(ctx context.Context, name, owner string) (exists, ours bool, err error) {
	is, err := p.ownerOf(ctx, "Database", name)
	return is != "", is == owner, err
}

func (p *postgres) createDatabase(ctx context.Context, name, owner string) error {
	const op = "CreateDatabase"
	is, err := p.ownerOf(ctx, op, name)
	if err != nil {
		return err
	}
	if err := p.join(ctx, op, owner); err != nil {
		return err
	}
	switch {
	case is == owner:
	case is != "" && p.access.CreateDatabase == nil:
		return taken(op, name, is)
	case p.access.CreateDatabase != nil:
		if err := p.createByHook(ctx, op, name, owner, is); err != nil {
			return err
		}
	default:
		err := p.change(ctx, op, maintenance, "CREATE DATABASE "+pgIdent(name)+" OWNER "+pgIdent(owner))
		if pipeline.Is(err, pipeline.Exists) {
			// Made in between: by an earlier try that was cut off, or by somebody else.
			if is, err = p.ownerOf(ctx, op, name); err == nil && is != owner {
				err = taken(op, name, is)
			}
		}
		if err != nil {
			return err
		}
	}
	return p.closeToOthers(ctx, op, name, owner)
}

func taken(op, name, by string) error {
	return &pipeline.CloudError{Class: pipeline.Exists, Service: service, Op: op, Message: fmt.Sprintf("the database %s exists and belongs to %s", name, by)}
}

// createByHook makes a database over the control plane, which makes it its own, and hands it over.
// is is who has it now, if it exists: only what the control plane's roles have is taken.
func (p *postgres) createByHook(ctx context.Context, op, name, owner, is string) error {
	if is == "" {
		if err := p.access.CreateDatabase(ctx, name); err != nil && !pipeline.Is(err, pipeline.Exists) {
			return p.scrub(err)
		}
		var err error
		if is, err = p.ownerOf(ctx, op, name); err != nil {
			return err
		}
		if is == "" {
			return pipeline.Wait(waitForCloud, "database %s to be made by the cloud", name)
		}
	}
	if is == owner {
		return nil
	}
	if is != p.access.Admin && !reserved(is) {
		return taken(op, name, is)
	}
	return p.change(ctx, op, maintenance, "ALTER DATABASE "+pgIdent(name)+" OWNER TO "+pgIdent(owner))
}

// closeToOthers takes from everybody what PostgreSQL gives to everybody in a fresh database.
func (p *postgres) closeToOthers(ctx context.Context, op, name, owner string) error {
	if err := p.change(ctx, op, maintenance, "REVOKE ALL ON DATABASE "+pgIdent(name)+" FROM PUBLIC"); err != nil {
		return err
	}
	rows, err := p.read(ctx, op, name, "SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = 'public'")
	if err != nil || len(rows) == 0 {
		return err
	}
	return p.change(ctx, op, name, "REVOKE ALL ON SCHEMA public FROM PUBLIC", "GRANT ALL ON SCHEMA public TO "+pgIdent(owner))
}

// major is the server's major version.
func (p *postgres) major(ctx context.Context, op string) (int, error) {
	if p.version == 0 {
		rows, err := p.ask(ctx, op, "SELECT pg_catalog.current_setting('server_version_num')")
		if err != nil {
			return 0, err
		}
		if len(rows) == 0 {
			return 0, &pipeline.CloudError{Class: pipeline.Unknown, Service: service, Op: op, Message: "the server does not say its version", Sent: true}
		}
		if p.version, err = strconv.Atoi(rows[0][0]); err != nil {
			return 0, &pipeline.CloudError{Class: pipeline.Unknown, Service: service, Op: op, Message: "the server's version is no number", Sent: true}
		}
	}
	return p.version / 10000, nil
}

// join makes the administrator a member of a role, with its rights: without being a superuser it
// works on what is a role's only as one of its members. From 16 on, making a role gives ADMIN on
// it alone, and a member has a role's rights, or may become it, as the grant says.
// https://www.postgresql.org/docs/16/role-attributes.html
func (p *postgres) join(ctx context.Context, op, role string) error {
	major, err := p.major(ctx, op)
	if err != nil {
		return err
	}
	member, with := "pg_catalog.pg_has_role(rolname, 'USAGE')", ""
	if major >= 16 {
		member, with = member+" AND pg_catalog.pg_has_role(rolname, 'SET')", " WITH INHERIT TRUE, SET TRUE"
	}
	rows, err := p.ask(ctx, op, "SELECT "+member+" FROM pg_catalog.pg_roles WHERE rolname = "+pgLiteral(role))
	switch {
	case err != nil:
		return err
	case len(rows) == 0:
		return &pipeline.CloudError{Class: pipeline.NotFound, Service: service, Op: op, Message: "the role " + role + " does not exist", Sent: true}
	case rows[0][0] == "t" || rows[0][0] == "true":
		return nil
	}
	return p.change(ctx, op, maintenance, "GRANT "+pgIdent(role)+" TO CURRENT_USER"+with)
}

func (p *postgres) dropDatabase(ctx context.Context, name string) error {
	err := p.dropDatabaseNow(ctx, name)
	if pipeline.Is(err, pipeline.Denied, pipeline.NotFound) {
		// Refused because another worker has dropped it meanwhile?
		if is, asked := p.ownerOf(ctx, "DropDatabase", name); asked == nil && is == "" {
			return nil
		}
	}
	return err
}

func (p *postgres) dropDatabaseNow(ctx context.Context, name string) error {
	const op = "DropDatabase"
	is, err := p.ownerOf(ctx, op, name)
	if err != nil || is == "" {
		return err
	}
	p.forget(ctx, name)
	if p.access.DropDatabase != nil {
		if err := p.endSessions(ctx, op, "datname = "+pgLiteral(name)); err != nil {
			return err
		}
		if err := p.access.DropDatabase(ctx, name); err != nil && !pipeline.Is(err, pipeline.NotFound) {
			return p.scrub(err)
		}
		return nil
	}
	if err := p.join(ctx, op, is); err != nil {
		return err
	}
	err = p.change(ctx, op, maintenance, "DROP DATABASE IF EXISTS "+pgIdent(name)+" WITH (FORCE)")
	if is := pipeline.Is(err, pipeline.Denied); !is {
		return err
	}
	// A session of the cloud itself is not ours to end: without it, or when it is gone.
	if err := p.endSessions(ctx, op, "datname = "+pgLiteral(name)); err != nil {
		return err
	}
	return p.change(ctx, op, maintenance, "DROP DATABASE IF EXISTS "+pgIdent(name))
}

// endSessions ends those that the administrator may end.
func (p *postgres) endSessions(ctx context.Context, op, which string) error {
	return p.change(ctx, op, maintenance, "SELECT pg_catalog.pg_terminate_backend(a.pid) FROM pg_catalog.pg_stat_activity a JOIN pg_catalog.pg_roles r ON r.oid = a.usesysid "+
		"WHERE NOT r.rolsuper AND a.pid <> pg_catalog.pg_backend_pid() AND a."+which)
}

func (p *postgres) setRole(ctx context.Context, role, password string) error {
	const op = "SetRole"
	if p.access.SetUser != nil {
		if err := p.access.SetUser(ctx, role, password); err != nil {
			return p.scrub(err)
		}
		return p.strip(ctx, op, role)
	}
	verifier, err := scramVerifier(password)
	if err != nil {
		return err
	}
	p.secrets = append(p.secrets, verifier)
	there, err := p.hasRole(ctx, op, role)
	if err != nil {
		return err
	}
	if !there {
		err := p.change(ctx, op, maintenance, "CREATE ROLE "+pgIdent(role)+" LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS PASSWORD "+pgLiteral(verifier))
		if !pipeline.Is(err, pipeline.Exists) { // made in between, by a try whose answer was lost
			return err
		}
	}
	if err := p.strip(ctx, op, role); err != nil {
		return err
	}
	return p.change(ctx, op, maintenance, "ALTER ROLE "+pgIdent(role)+" LOGIN PASSWORD "+pgLiteral(verifier))
}

// strip takes from a role what it should not have: attributes, and memberships in roles of the
// cloud or the engine, which some control planes give to each user that they make.
func (p *postgres) strip(ctx context.Context, op, role string) error {
	rows, err := p.ask(ctx, op, "SELECT rolsuper OR rolreplication OR rolbypassrls, rolcreatedb OR rolcreaterole FROM pg_catalog.pg_roles WHERE rolname = "+pgLiteral(role))
	if err != nil {
		return err
	}
	if len(rows) == 0 {
		return pipeline.Wait(waitForCloud, "role %s to be made by the cloud", role)
	}
	yes := func(s string) bool { return s == "t" || s == "true" }
	if yes(rows[0][0]) {
		return &pipeline.CloudError{Class: pipeline.Exists, Service: service, Op: op, Message: "the role " + role + " is a superuser, replicates or bypasses row security, so it is not one of ours", Sent: true}
	}
	var statements []string
	if yes(rows[0][1]) {
		statements = append(statements, "ALTER ROLE "+pgIdent(role)+" NOCREATEDB NOCREATEROLE")
	}
	rows, err = p.ask(ctx, op, "SELECT g.rolname, g.rolsuper OR g.rolcreatedb OR g.rolcreaterole FROM pg_catalog.pg_auth_members m JOIN pg_catalog.pg_roles g ON g.oid = m.roleid "+
		"JOIN pg_catalog.pg_roles r ON r.oid = m.member WHERE r.rolname = "+pgLiteral(role))
	if err != nil {
		return err
	}
	for _, row := range rows {
		if reserved(row[0]) || yes(row[1]) {
			statements = append(statements, "REVOKE "+pgIdent(row[0])+" FROM "+pgIdent(role))
		}
	}
	if len(statements) == 0 {
		return nil
	}
	return p.change(ctx, op, maintenance, statements...)
}

func (p *postgres) hasRole(ctx context.Context, op, role string) (bool, error) {
	rows, err := p.ask(ctx, op, "SELECT 1 FROM pg_catalog.pg_roles WHERE rolname = "+pgLiteral(role))
	return len(rows) > 0, err
}

func (p *postgres) dropRole(ctx context.Context, role, database, owner string) error {
	err := p.dropRoleNow(ctx, role, database, owner)
	if pipeline.Is(err, pipeline.Denied, pipeline.NotFound) {
		// As with databases: what is gone needs no rights.
		if there, asked := p.hasRole(ctx, "DropRole", role); asked == nil && !there {
			return nil
		}
	}
	return err
}

func (p *postgres) dropRoleNow(ctx context.Context, role, database, owner string) error {
	const op = "DropRole"
	if there, err := p.hasRole(ctx, op, role); err != nil || !there {
		return err
	}
	if err := p.join(ctx, op, role); err != nil {
		return err
	}
	if err := p.change(ctx, op, maintenance, "ALTER ROLE "+pgIdent(role)+" NOLOGIN"); err != nil {
		return err
	}
	if err := p.endSessions(ctx, op, "usename = "+pgLiteral(role)); err != nil {
		return err
	}
	if owner != "" && database != "" {
		if err := p.bequeath(ctx, op, role, database, owner); err != nil {
			return err
		}
	}
	if p.access.DropUser != nil {
		if err := p.access.DropUser(ctx, role); err != nil && !pipeline.Is(err, pipeline.NotFound) {
			return p.scrub(err)
		}
		return nil
	}
	return p.change(ctx, op, maintenance, "DROP ROLE IF EXISTS "+pgIdent(role))
}

// bequeath gives what a role made in a database to the owner, and takes its rights there.
func (p *postgres) bequeath(ctx context.Context, op, role, database, owner string) error {
	is, err := p.ownerOf(ctx, op, database)
	if err != nil || is == "" {
		return err
	}
	if err := p.join(ctx, op, owner); err != nil {
		return err
	}
	return p.change(ctx, op, database, "REASSIGN OWNED BY "+pgIdent(role)+" TO "+pgIdent(owner), "DROP OWNED BY "+pgIdent(role))
}

var _ engine = (*postgres)(nil)
