package db

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Rights are what the role that this process connects as may do to the schema.
// On SQLite there are no roles: the process owns its file.
type Rights struct {
	Role        string
	Superuser   bool
	BypassRLS   bool     // row-level security does not hold it
	Owner       bool     // owns a table of ours, or is a member of who does
	Creates     bool     // may make tables in the schema
	Migrated    bool     // there is a schema, of whatever age
	Unprotected []string // tables without row-level security
}

// MayMigrate reports whether the role can bring the schema up to date.
func (r Rights) MayMigrate() bool {
	return r.Superuser || r.Migrated && r.Owner || !r.Migrated && r.Creates
}

// Loose says in words by what the role stands above row-level security; nil for a
// service role.
func (r Rights) Loose() (why []string) {
	for _, w := range []struct {
		is   bool
		text string
	}{
		{r.Superuser, "it is a superuser"}, {r.BypassRLS && !r.Superuser, "it has BYPASSRLS"},
		{r.Owner && !r.Superuser, "it owns the tables"}, {r.Creates && !r.Owner && !r.Superuser, "it may create tables in the schema"},
	} {
		if w.is {
			why = append(why, w.text)
		}
	}
	return why
}

// unprotected are the tables of the schema that row-level security does not hold.
const unprotected = `SELECT c.relname FROM pg_class AS c
	WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p')
		AND (NOT c.relrowsecurity OR NOT c.relforcerowsecurity OR NOT EXISTS (SELECT FROM pg_policy AS p WHERE p.polrelid = c.oid AND p.polname = 'zopday_org'))
	ORDER BY c.relname`

// Rights asks what the role of this process may do.
func (d *DB) Rights(ctx context.Context) (Rights, error) {
	if d.dialect != Postgres {
		return Rights{Owner: true, Creates: true, Migrated: true}, nil
	}
	ctx = System(ctx)
	var r Rights
	err := d.QueryRow(ctx, `SELECT r.rolname, r.rolsuper, r.rolbypassrls,
			EXISTS (SELECT FROM pg_class AS c WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p') AND pg_has_role(c.relowner, 'MEMBER')),
			coalesce(has_schema_privilege(current_schema(), 'CREATE'), false), to_regclass('schema_migrations') IS NOT NULL
		FROM pg_roles AS r WHERE r.rolname = current_user`).Scan(&r.Role, &r.Superuser, &r.BypassRLS, &r.Owner, &r.Creates, &r.Migrated)
	if err != nil {
		return r, fmt.Errorf("rights of the database's role: %w", err)
	}
	if r.Unprotected, err = texts(ctx, d, unprotected); err != nil {
		return r, fmt.Errorf("row-level security: %w", err)
	}
	return r, nil
}

// texts are the rows of a query for one text column.
func texts(ctx context.Context, q Q, query string, args ...any) (out []string, err error) {
	rows, err := q.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, rows.Err()
}

// protect puts row-level security on the tables that have none yet.
func (d *DB) protect(ctx context.Context) error {
	if d.dialect != Postgres {
		return nil
	}
	open, err := texts(ctx, d, unprotected)
	if err != nil || len(open) == 0 {
		return err
	}
	if _, err := d.Exec(ctx, `SELECT zopday_protect()`); err != nil {
		return fmt.Errorf("row-level security of %s: %w", strings.Join(open, ", "), err)
	}
	return nil
}

// rightsSetting names the service roles, a line each, so that a later migration
// gives them their rights on new tables too.
const rightsSetting = "database.service-roles"

// limited are the tables on which a service role may do less than read and write:
// entries of the audit log are only added and sealed, no organisation is taken
// away, and the schema's own record is not its to write.
var limited = map[string]string{
	"audit_log":         "SELECT, INSERT, UPDATE (seq, prev_hash, hash)",
	"audit_heads":       "SELECT, INSERT, UPDATE (seq, hash)",
	"organisations":     "SELECT, INSERT, UPDATE",
	"schema_migrations": "SELECT",
}

// Grant gives a service role the rights on the tables that the program needs, and
// takes from it all others. The role has to exist, and must not stand above
// row-level security. It is carried out by the tables' owner.
func (d *DB) Grant(ctx context.Context, role string) error {
	if d.dialect != Postgres {
		return errors.New("a service role is for PostgreSQL; an SQLite file has its owner alone")
	}
	ctx = System(ctx)
	mine, err := d.Rights(ctx)
	if err != nil {
		return err
	}
	if !mine.Owner && !mine.Superuser {
		return fmt.Errorf("the role %s does not own the tables, so it cannot give rights on them: connect as their owner", mine.Role)
	}
	if err := d.fitsService(ctx, role); err != nil {
		return err
	}
	err = d.InTx(ctx, func(ctx context.Context, tx Q) error {
		if err := grant(ctx, tx, role); err != nil {
			return err
		}
		known, _, err := Setting(ctx, tx, rightsSetting)
		if roles := strings.Fields(known); err == nil && !slices.Contains(roles, role) {
			err = PutSetting(ctx, tx, rightsSetting, strings.Join(append(roles, role), "\n"))
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("rights of the role %s: %w", role, err)
	}
	return nil
}

// ServiceRoles are the roles that Grant was called for and that are still there.
func (d *DB) ServiceRoles(ctx context.Context) ([]string, error) {
	if d.dialect != Postgres {
		return nil, nil
	}
	return texts(System(ctx), d, `SELECT rolname FROM pg_roles AS r, settings AS s
		WHERE s.org_id = '' AND s.key = $1 AND r.rolname = ANY (string_to_array(s.value, E'\n')) ORDER BY rolname`, rightsSetting)
}

// fitsService refuses a role that is none, or that would not be held.
func (d *DB) fitsService(ctx context.Context, role string) error {
	var super, bypass, owner bool
	err := d.QueryRow(ctx, `SELECT r.rolsuper, r.rolbypassrls,
			EXISTS (SELECT FROM pg_class AS c WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p') AND pg_has_role(r.oid, c.relowner, 'MEMBER'))
		FROM pg_roles AS r WHERE r.rolname = $1`, role).Scan(&super, &bypass, &owner)
	name := pgx.Identifier{role}.Sanitize()
	switch {
	case errors.Is(err, ErrNoRows):
		return fmt.Errorf("there is no role %s: make it as a superuser with: CREATE ROLE %s LOGIN PASSWORD '…'; then run this again", role, name)
	case err != nil:
		return fmt.Errorf("role %s: %w", role, err)
	case super || bypass:
		return fmt.Errorf("row-level security would not hold the role %s: as a superuser, ALTER ROLE %s NOSUPERUSER NOBYPASSRLS; or name another", role, name)
	case owner:
		return fmt.Errorf("the role %s owns the tables, or is a member of the role that does: name another one as the service role", role)
	}
	return nil
}

func grant(ctx context.Context, tx Q, role string) error {
	var schema string
	if err := tx.QueryRow(ctx, `SELECT current_schema()`).Scan(&schema); err != nil {
		return err
	}
	in, to := pgx.Identifier{schema}.Sanitize(), pgx.Identifier{role}.Sanitize()
	tables, err := texts(ctx, tx, `SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p') ORDER BY relname`)
	if err != nil {
		return err
	}
	statements := []string{"GRANT USAGE ON SCHEMA " + in + " TO " + to, "REVOKE ALL ON ALL TABLES IN SCHEMA " + in + " FROM " + to}
	for _, t := range tables {
		may, ok := limited[t]
		if !ok {
			may = "SELECT, INSERT, UPDATE, DELETE"
		}
		statements = append(statements, "GRANT "+may+" ON "+in+"."+pgx.Identifier{t}.Sanitize()+" TO "+to)
	}
	for _, s := range statements {
		if _, err := tx.Exec(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// ErrNoRights is a role that may not read the tables.
var ErrNoRights = errors.New("the database's role has no rights on the tables")

// notGranted reports whether a statement was refused for want of a right.
func notGranted(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "42501"
}

// noTable reports whether a statement named a table that does not exist.
func noTable(err error) bool {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code == "42P01"
	}
	return err != nil && strings.Contains(err.Error(), "no such table")
}
