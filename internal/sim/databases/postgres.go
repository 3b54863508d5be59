package databases

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/zopday/provisioner/internal/sim"
)

// postgres is a PostgreSQL server.
type postgres struct {
	home

	who     *syscall.Credential
	port    int
	process *process

	requireTLS bool // as the server has it
}

// postgresConf keeps a server small. Its data need not survive the machine's end.
const postgresConf = `
listen_addresses = '127.0.0.1'
fsync = off
full_page_writes = off
synchronous_commit = off
shared_buffers = 16MB
max_connections = 100
max_worker_processes = 2
max_parallel_workers = 0
max_wal_senders = 0
wal_level = minimal
max_wal_size = 32MB
min_wal_size = 2MB
autovacuum = off
jit = off
password_encryption = 'scram-sha-256'
ssl = on
`

func (p *postgres) speaksFirst() bool { return false }

func (p *postgres) address(bool, byte) (string, string) {
	return "tcp", "127.0.0.1:" + strconv.Itoa(p.port)
}

func (p *postgres) start(ctx context.Context, spec sim.DatabaseServer) (*process, error) {
	var err error
	if p.who, err = account("postgres"); err != nil {
		return nil, err
	}
	if err := p.prepare(p.who); err != nil {
		return nil, err
	}
	if err := fromTemplate(ctx, "postgres", p.who, p.data, p.initialise); err != nil {
		return nil, err
	}
	// A server that was killed leaves it, and its number may be somebody else's by now.
	if err := os.Remove(filepath.Join(p.data, "postmaster.pid")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if err := p.writeAccess(spec.RequireTLS); err != nil {
		return nil, err
	}
	for range 3 { // somebody else may take the free port before the server does
		if p.process, err = p.launch(ctx); err == nil || ctx.Err() != nil {
			break
		}
	}
	return p.process, err
}

func (p *postgres) initialise(ctx context.Context, dir string) error {
	bin := filepath.Join(filepath.Dir(p.binary), "initdb")
	cmd := command(ctx, p.who, filepath.Dir(dir), bin, "-D", dir, "-U", superuser, "-A", "reject", "-E", "UTF8", "--locale=C", "--no-sync", "--wal-segsize=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	return nil
}

func (p *postgres) launch(ctx context.Context) (*process, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	p.port = port
	conf := postgresConf + fmt.Sprintf("port = %d\nunix_socket_directories = '%s'\nssl_cert_file = '%s'\nssl_key_file = '%s'\n", port, p.home.run, filepath.Join(p.home.run, certFile), filepath.Join(p.home.run, keyFile))
	if err := writeFor(p.who, filepath.Join(p.data, "postgresql.conf"), []byte(conf)); err != nil {
		return nil, err
	}
	process, err := startProcess(command(context.Background(), p.who, p.data, p.binary, "-D", p.data), syscall.SIGINT, syscall.SIGQUIT)
	if err != nil {
		return nil, err
	}
	return process, process.until(ctx, func(ctx context.Context) error { return p.exec(ctx, "", "SELECT 1") })
}

// writeAccess says who may connect how: this package by the socket, users with their passwords.
func (p *postgres) writeAccess(requireTLS bool) error {
	p.requireTLS = requireTLS
	var b strings.Builder
	fmt.Fprintf(&b, "local all %s trust\nlocal all all reject\nhost all %s all reject\n", superuser, superuser)
	b.WriteString("hostssl all all 127.0.0.1/32 scram-sha-256\n")
	if !requireTLS {
		b.WriteString("hostnossl all all 127.0.0.1/32 scram-sha-256\n")
	}
	return writeFor(p.who, filepath.Join(p.data, "pg_hba.conf"), []byte(b.String()))
}

func (p *postgres) apply(ctx context.Context, spec sim.DatabaseServer) error {
	reload := p.requireTLS != spec.RequireTLS
	if !slices.Equal(p.home.names, spec.Names) {
		reload = true
		if err := p.certify(p.who, spec.Names); err != nil {
			return err
		}
	}
	if spec.AdminRole != "" {
		// What the clouds' own administrators' role may: look, and end other sessions.
		if err := p.ensureRole(ctx, spec.AdminRole, "NOLOGIN CREATEDB CREATEROLE"); err != nil {
			return err
		}
		if err := p.exec(ctx, "", "GRANT pg_monitor, pg_signal_backend TO "+ident(spec.AdminRole)+" WITH ADMIN OPTION"); err != nil {
			return err
		}
	}
	if spec.Admin != "" {
		if err := p.setUser(ctx, spec, sim.DatabaseUser{Name: spec.Admin, Password: spec.Password, Roles: adminRoles(spec)}); err != nil {
			return err
		}
		if spec.AdminRole != "" {
			if err := p.exec(ctx, "", "GRANT "+ident(spec.AdminRole)+" TO "+ident(spec.Admin)+" WITH ADMIN OPTION"); err != nil {
				return err
			}
		}
		// The database that everybody has is the administrator's, as at the clouds.
		if err := p.exec(ctx, "", "ALTER ROLE "+ident(spec.Admin)+" CREATEDB CREATEROLE; ALTER DATABASE postgres OWNER TO "+ident(cmp.Or(spec.AdminRole, spec.Admin))); err != nil {
			return err
		}
	}
	if !reload {
		return nil
	}
	if err := p.writeAccess(spec.RequireTLS); err != nil {
		return err
	}
	return p.reload(ctx)
}

// reload has the server read its files again, and waits until it has.
func (p *postgres) reload(ctx context.Context) error {
	const loaded = "SELECT pg_conf_load_time()"
	before, err := p.rows(ctx, "", loaded)
	if err != nil {
		return err
	}
	if err := p.exec(ctx, "", "SELECT pg_reload_conf()"); err != nil {
		return err
	}
	for {
		after, err := p.rows(ctx, "", loaded)
		if err != nil || after[0][0] != before[0][0] {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func adminRoles(spec sim.DatabaseServer) []string {
	if spec.AdminRole == "" {
		return nil
	}
	return []string{spec.AdminRole}
}

func (p *postgres) ensureRole(ctx context.Context, name, options string) error {
	err := p.exec(ctx, "", "CREATE ROLE "+ident(name)+" "+options)
	if isState(err, "42710") { // duplicate_object
		err = p.exec(ctx, "", "ALTER ROLE "+ident(name)+" "+options)
	}
	return err
}

func (p *postgres) setUser(ctx context.Context, spec sim.DatabaseServer, u sim.DatabaseUser) error {
	if u.Name == superuser {
		return fmt.Errorf("the name %s is taken", superuser)
	}
	options := "LOGIN"
	if u.Password != "" {
		options += " PASSWORD " + literal(u.Password)
	}
	if err := p.ensureRole(ctx, u.Name, options); err != nil {
		return err
	}
	if spec.Admin != "" && spec.Admin != u.Name {
		// From 16 on CREATEROLE alone is for roles that one has made oneself.
		if err := p.exec(ctx, "", "DO $$ BEGIN IF current_setting('server_version_num')::int >= 160000 THEN EXECUTE "+
			literal("GRANT "+ident(u.Name)+" TO "+ident(spec.Admin)+" WITH ADMIN TRUE, INHERIT FALSE, SET FALSE")+"; END IF; END $$"); err != nil {
			return err
		}
	}
	for _, role := range u.Roles {
		if role == "" || role == u.Name {
			continue
		}
		if err := p.exec(ctx, "", "CREATE ROLE "+ident(role)); err != nil && !isState(err, "42710") {
			return err
		}
		if err := p.exec(ctx, "", "GRANT "+ident(role)+" TO "+ident(u.Name)); err != nil {
			return err
		}
		if role == spec.AdminRole && role != "" {
			if err := p.exec(ctx, "", "ALTER ROLE "+ident(u.Name)+" CREATEDB CREATEROLE"); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *postgres) createDatabase(ctx context.Context, spec sim.DatabaseServer, name string) error {
	statement := "CREATE DATABASE " + ident(name)
	if owner := cmp.Or(spec.AdminRole, spec.Admin); owner != "" {
		statement += " OWNER " + ident(owner)
	}
	if err := p.exec(ctx, "", statement); err != nil && !isState(err, "42P04") { // duplicate_database
		return err
	}
	return nil
}

func (p *postgres) dropDatabase(ctx context.Context, name string) error {
	return p.exec(ctx, "", "DROP DATABASE IF EXISTS "+ident(name)+" WITH (FORCE)")
}

func (p *postgres) dropUser(ctx context.Context, spec sim.DatabaseServer, name string) error {
	if name == superuser || !p.has(ctx, name) {
		return nil
	}
	if err := p.exec(ctx, "", "ALTER ROLE "+ident(name)+" NOLOGIN; SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = "+literal(name)); err != nil {
		return err
	}
	heir := cmp.Or(spec.AdminRole, superuser)
	if name != spec.Admin {
		heir = cmp.Or(spec.Admin, heir)
	}
	databases, _, err := p.names(ctx)
	if err != nil {
		return err
	}
	for _, database := range databases {
		if err := p.exec(ctx, database, "REASSIGN OWNED BY "+ident(name)+" TO "+ident(heir)+"; DROP OWNED BY "+ident(name)); err != nil && !isState(err, "3D000") { // dropped in between
			return err
		}
	}
	return p.exec(ctx, "", "DROP ROLE IF EXISTS "+ident(name))
}

func (p *postgres) has(ctx context.Context, role string) bool {
	rows, err := p.rows(ctx, "", "SELECT 1 FROM pg_roles WHERE rolname = "+literal(role))
	return err == nil && len(rows) == 1
}

func (p *postgres) names(ctx context.Context) (databases, users []string, err error) {
	rows, err := p.rows(ctx, "", "SELECT 'd', datname FROM pg_database WHERE NOT datistemplate UNION ALL "+
		"SELECT 'u', rolname FROM pg_roles WHERE rolcanlogin AND rolname <> "+literal(superuser)+" ORDER BY 1, 2")
	for _, row := range rows {
		if row[0] == "d" {
			databases = append(databases, row[1])
		} else {
			users = append(users, row[1])
		}
	}
	return databases, users, err
}

// connect opens a connection by the socket, as this package.
func (p *postgres) connect(ctx context.Context, database string) (*pgx.Conn, error) {
	c, err := pgx.ParseConfig("sslmode=disable")
	if err != nil {
		return nil, err
	}
	c.Host, c.Port, c.User, c.Database = p.home.run, uint16(p.port), superuser, cmp.Or(database, "postgres")
	return dial(ctx, c)
}

func dial(ctx context.Context, c *pgx.ConnConfig) (*pgx.Conn, error) {
	c.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	c.Fallbacks = nil
	return pgx.ConnectConfig(ctx, c)
}

func (p *postgres) exec(ctx context.Context, database, statements string) error {
	_, err := p.rows(ctx, database, statements)
	return err
}

func (p *postgres) rows(ctx context.Context, database, statements string) ([][]string, error) {
	conn, err := p.connect(ctx, database)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, rows, err := lastRows(ctx, conn, statements)
	return rows, err
}

func (p *postgres) query(ctx context.Context, database, user, password, statements string) ([]string, [][]string, error) {
	c, err := pgx.ParseConfig("sslmode=require")
	if err != nil {
		return nil, nil, err
	}
	c.Host, c.Port, c.User, c.Password, c.Database = "127.0.0.1", uint16(p.port), user, password, cmp.Or(database, "postgres")
	c.TLSConfig = p.ca.client()
	conn, err := dial(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return lastRows(ctx, conn, statements)
}

// lastRows runs statements in one message, and returns what the last one did as text.
func lastRows(ctx context.Context, conn *pgx.Conn, statements string) (columns []string, rows [][]string, err error) {
	results, err := conn.PgConn().Exec(ctx, statements).ReadAll()
	if err != nil || len(results) == 0 {
		return nil, nil, err
	}
	last := results[len(results)-1]
	for _, f := range last.FieldDescriptions {
		columns = append(columns, f.Name)
	}
	for _, values := range last.Rows {
		row := make([]string, len(values))
		for i, v := range values {
			row[i] = string(v)
		}
		rows = append(rows, row)
	}
	return columns, rows, nil
}

func ident(name string) string { return pgx.Identifier{name}.Sanitize() }

// literal is a string of standard_conforming_strings, which is the server's default.
func literal(s string) string {
	return "'" + strings.ReplaceAll(strings.ReplaceAll(s, "\x00", ""), "'", "''") + "'"
}

func isState(err error, code string) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == code
}
