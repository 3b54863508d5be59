package databases

import (
	"context"
	"slices"
	"strings"

	"github.com/zopday/provisioner/internal/job"
)

// privileges are what a mode gives on tables and sequences, and what it takes.
var privileges = map[job.AccessMode]struct{ tables, notTables, sequences, notSequences string }{
	job.ReadWrite: {"SELECT, INSERT, UPDATE, DELETE", "TRUNCATE, REFERENCES, TRIGGER", "USAGE, SELECT", "UPDATE"},
	job.ReadOnly:  {"SELECT", "INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER", "SELECT", "USAGE, UPDATE"},
}

// grantChunk is how many objects one statement names.
const grantChunk = 200

func (p *postgres) grant(ctx context.Context, role, database, owner string, mode job.AccessMode) error {
	const op = "Grant"
	if err := p.join(ctx, op, owner); err != nil {
		return err
	}
	d, r, o := pgIdent(database), pgIdent(role), pgIdent(owner)
	if err := p.change(ctx, op, maintenance, "GRANT CONNECT ON DATABASE "+d+" TO "+r); err != nil {
		return err
	}
	if mode == job.OwnerMode {
		with := ""
		if major, err := p.major(ctx, op); err != nil {
			return err
		} else if major >= 16 {
			with = " WITH INHERIT TRUE, SET TRUE"
		}
		// What it makes is the owner's at once.
		return p.change(ctx, op, maintenance, "GRANT "+o+" TO "+r+with, "ALTER ROLE "+r+" IN DATABASE "+d+" SET role = "+pgLiteral(owner))
	}
	rows, err := p.ask(ctx, op, "SELECT 1 FROM pg_catalog.pg_auth_members m JOIN pg_catalog.pg_roles g ON g.oid = m.roleid JOIN pg_catalog.pg_roles r ON r.oid = m.member "+
		"WHERE g.rolname = "+pgLiteral(owner)+" AND r.rolname = "+pgLiteral(role))
	if err != nil {
		return err
	}
	if len(rows) > 0 {
		if err := p.change(ctx, op, maintenance, "REVOKE "+o+" FROM "+r, "ALTER ROLE "+r+" IN DATABASE "+d+" RESET role"); err != nil {
			return err
		}
	}
	// First for what comes, then for what is there: nothing falls between.
	w := privileges[mode]
	forOwner := "ALTER DEFAULT PRIVILEGES FOR ROLE " + o
	if err := p.change(ctx, op, database,
		forOwner+" REVOKE "+w.notTables+" ON TABLES FROM "+r, forOwner+" REVOKE "+w.notSequences+" ON SEQUENCES FROM "+r,
		forOwner+" GRANT USAGE ON SCHEMAS TO "+r, forOwner+" GRANT "+w.tables+" ON TABLES TO "+r, forOwner+" GRANT "+w.sequences+" ON SEQUENCES TO "+r,
	); err != nil {
		return err
	}
	return p.grantExisting(ctx, op, role, database, owner, mode)
}

// grantExisting gives rights on what the owner has made so far: only that, since extensions leave
// tables that are the cloud's.
func (p *postgres) grantExisting(ctx context.Context, op, role, database, owner string, mode job.AccessMode) error {
	rows, err := p.read(ctx, op, database, "SELECT 'schema', nspname, '' FROM pg_catalog.pg_namespace WHERE pg_catalog.pg_has_role("+pgLiteral(owner)+", nspowner, 'USAGE') "+
		"AND nspname !~ '^pg_' AND nspname <> 'information_schema' UNION ALL "+
		"SELECT CASE WHEN c.relkind = 'S' THEN 'sequence' ELSE 'table' END, n.nspname, c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "+
		"JOIN pg_catalog.pg_roles r ON r.oid = c.relowner WHERE r.rolname = "+pgLiteral(owner)+" AND c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S') "+
		"AND n.nspname !~ '^pg_' ORDER BY 1, 2, 3")
	if err != nil {
		return err
	}
	objects := map[string][]string{}
	for _, row := range rows {
		name := pgIdent(row[1])
		if row[2] != "" {
			name += "." + pgIdent(row[2])
		}
		objects[row[0]] = append(objects[row[0]], name)
	}
	w, to := privileges[mode], " TO "+pgIdent(role)
	from := " FROM " + pgIdent(role)
	for _, kind := range []struct{ of, on, give, take string }{
		{"schema", "SCHEMA", "USAGE", "CREATE"}, {"table", "TABLE", w.tables, w.notTables}, {"sequence", "SEQUENCE", w.sequences, w.notSequences},
	} {
		for chunk := range slices.Chunk(objects[kind.of], grantChunk) {
			names := strings.Join(chunk, ", ")
			if err := p.change(ctx, op, database, "REVOKE "+kind.take+" ON "+kind.on+" "+names+from, "GRANT "+kind.give+" ON "+kind.on+" "+names+to); err != nil {
				return err
			}
		}
	}
	return nil
}
