package databases

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/go-sql-driver/mysql"

	"github.com/zopday/provisioner/internal/sim"
)

// mariadb is a MariaDB server, which speaks MySQL.
type mariadb struct {
	home

	who      *syscall.Credential
	port     int
	password string // of this package
	process  *process
}

// masterGrants are what RDS gives its master user: all that there is but SUPER and its like.
// https://docs.aws.amazon.com/AmazonRDS/latest/UserGuide/UsingWithRDS.MasterAccounts.html
const masterGrants = "SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, RELOAD, PROCESS, REFERENCES, INDEX, ALTER, SHOW DATABASES, " +
	"CREATE TEMPORARY TABLES, LOCK TABLES, EXECUTE, CREATE VIEW, SHOW VIEW, CREATE ROUTINE, ALTER ROUTINE, CREATE USER, EVENT, TRIGGER"

// killProcedures are how AWS and Azure let their administrators end others' sessions.
// https://docs.aws.amazon.com/AmazonRDS/latest/UserGuide/mysql-stored-proc-ending.html
var killProcedures = []string{"rds_kill", "az_kill"}

func (m *mariadb) speaksFirst() bool { return true }

func (m *mariadb) address(bool, byte) (string, string) {
	return "tcp", "127.0.0.1:" + strconv.Itoa(m.port)
}

func (m *mariadb) start(ctx context.Context, _ sim.DatabaseServer) (*process, error) {
	var err error
	if m.who, err = account("mysql"); err != nil {
		return nil, err
	}
	if err := m.prepare(m.who); err != nil {
		return nil, err
	}
	if err := fromTemplate(ctx, "mysql", m.who, m.data, m.initialise); err != nil {
		return nil, err
	}
	if m.password, err = randomWord(); err != nil {
		return nil, err
	}
	// Nobody has an account without a password; this package's is one of this start.
	init := fmt.Sprintf("DELETE FROM mysql.global_priv WHERE User IN ('root', '');\nFLUSH PRIVILEGES;\n"+
		"CREATE USER IF NOT EXISTS %[1]s@localhost;\nALTER USER %[1]s@localhost IDENTIFIED BY %[2]s;\nGRANT ALL ON *.* TO %[1]s@localhost WITH GRANT OPTION;\n", superuser, quoted(m.password))
	if err := writeFor(m.who, filepath.Join(m.home.run, "init.sql"), []byte(init)); err != nil {
		return nil, err
	}
	for range 3 { // somebody else may take the free port before the server does
		if m.process, err = m.launch(ctx); err == nil || ctx.Err() != nil {
			break
		}
	}
	return m.process, err
}

func (m *mariadb) initialise(ctx context.Context, dir string) error {
	install := filepath.Join(filepath.Dir(filepath.Dir(m.binary)), "bin", "mariadb-install-db")
	if _, err := os.Stat(install); err != nil {
		install = "mariadb-install-db"
	}
	cmd := command(ctx, m.who, filepath.Dir(dir), install, "--no-defaults", "--datadir="+dir, "--auth-root-authentication-method=socket",
		"--skip-test-db", "--tmpdir="+filepath.Dir(dir), "--innodb-log-file-size=4M", "--innodb-buffer-pool-size=16M")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("mariadb-install-db: %w: %s", err, out)
	}
	return nil
}

func (m *mariadb) launch(ctx context.Context) (*process, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	m.port = port
	in := func(file string) string { return filepath.Join(m.home.run, file) }
	// A server that starts sweeps its tmpdir: of a common one it would take what others are using.
	conf := fmt.Sprintf(`[mariadbd]
datadir = %s
socket = %s
pid-file = %s
tmpdir = %s
bind-address = 127.0.0.1
port = %d
init-file = %s
ssl-cert = %s
ssl-key = %s
ssl-ca = %s
require-secure-transport = ON
skip-name-resolve
local-infile = OFF
innodb-buffer-pool-size = 16M
innodb-log-file-size = 4M
innodb-flush-log-at-trx-commit = 2
innodb-flush-method = nosync
innodb-read-io-threads = 1
innodb-write-io-threads = 1
innodb-purge-threads = 1
key-buffer-size = 64K
aria-pagecache-buffer-size = 4M
performance-schema = OFF
max-connections = 100
table-open-cache = 200
skip-log-bin
character-set-server = utf8mb4
`, m.data, m.socket(), in("pid"), m.home.run, port, in("init.sql"), in(certFile), in(keyFile), in("ca.pem"))
	if err := writeFor(m.who, in("my.cnf"), []byte(conf)); err != nil {
		return nil, err
	}
	process, err := startProcess(command(context.Background(), m.who, m.data, m.binary, "--defaults-file="+in("my.cnf")), syscall.SIGTERM, syscall.SIGKILL)
	if err != nil {
		return nil, err
	}
	return process, process.until(ctx, func(ctx context.Context) error { return m.exec(ctx, "SELECT 1") })
}

func (m *mariadb) apply(ctx context.Context, spec sim.DatabaseServer) error {
	if !slices.Equal(m.home.names, spec.Names) {
		if err := errors.Join(m.certify(m.who, spec.Names), m.exec(ctx, "FLUSH SSL")); err != nil {
			return err
		}
	}
	statements := make([]string, 0, 8)
	for _, name := range killProcedures {
		if strings.HasPrefix(spec.AdminRole, "cloudsql") {
			break // it has the privilege instead, below
		}
		statements = append(statements, fmt.Sprintf("CREATE OR REPLACE DEFINER=%s@localhost PROCEDURE mysql.%s(IN thread BIGINT) SQL SECURITY DEFINER KILL thread", superuser, name))
	}
	if spec.AdminRole != "" {
		statements = append(statements, "CREATE ROLE IF NOT EXISTS "+backticks(spec.AdminRole),
			"GRANT "+masterGrants+" ON *.* TO "+backticks(spec.AdminRole)+" WITH GRANT OPTION")
	}
	if err := m.exec(ctx, statements...); err != nil {
		return err
	}
	if spec.Admin != "" {
		if err := m.setUser(ctx, spec, sim.DatabaseUser{Name: spec.Admin, Password: spec.Password}); err != nil {
			return err
		}
		grants := masterGrants
		if strings.HasPrefix(spec.AdminRole, "cloudsql") {
			grants += ", CONNECTION ADMIN"
		}
		if err := m.exec(ctx, "GRANT "+grants+" ON *.* TO "+at(spec.Admin)+" WITH GRANT OPTION"); err != nil {
			return err
		}
	}
	secure := "OFF"
	if spec.RequireTLS {
		secure = "ON"
	}
	return m.exec(ctx, "SET GLOBAL require_secure_transport = "+secure)
}

func (m *mariadb) setUser(ctx context.Context, spec sim.DatabaseServer, u sim.DatabaseUser) error {
	statements := []string{"CREATE USER IF NOT EXISTS " + at(u.Name) + " ACCOUNT LOCK"}
	if u.Password != "" {
		statements = append(statements, "ALTER USER "+at(u.Name)+" IDENTIFIED BY "+quoted(u.Password)+" ACCOUNT UNLOCK")
	}
	for _, role := range u.Roles {
		if role == "" || role == u.Name {
			continue
		}
		statements = append(statements, "CREATE ROLE IF NOT EXISTS "+backticks(role), "GRANT "+backticks(role)+" TO "+at(u.Name),
			"SET DEFAULT ROLE "+backticks(role)+" FOR "+at(u.Name))
		if spec.Admin != "" && spec.Admin != u.Name { // ROLE_ADMIN, which MariaDB has not, is for every role
			statements = append(statements, "GRANT "+backticks(role)+" TO "+at(spec.Admin)+" WITH ADMIN OPTION")
		}
	}
	return m.exec(ctx, statements...)
}

func (m *mariadb) createDatabase(ctx context.Context, _ sim.DatabaseServer, name string) error {
	return m.exec(ctx, "CREATE DATABASE IF NOT EXISTS "+backticks(name))
}

func (m *mariadb) dropDatabase(ctx context.Context, name string) error {
	if err := m.kill(ctx, "DB = "+quoted(name)); err != nil {
		return err
	}
	return m.exec(ctx, "DROP DATABASE IF EXISTS "+backticks(name))
}

func (m *mariadb) dropUser(ctx context.Context, _ sim.DatabaseServer, name string) error {
	if err := m.exec(ctx, "DROP USER IF EXISTS "+at(name)); err != nil {
		return err
	}
	return m.kill(ctx, "USER = "+quoted(name))
}

// kill ends sessions.
func (m *mariadb) kill(ctx context.Context, which string) error {
	_, rows, err := m.rows(ctx, "SELECT ID FROM information_schema.PROCESSLIST WHERE "+which)
	for _, row := range rows {
		var my *mysql.MySQLError
		if killed := m.exec(ctx, "KILL "+row[0]); killed != nil && (!errors.As(killed, &my) || my.Number != 1094) { // no such thread: it is gone
			err = errors.Join(err, killed)
		}
	}
	return err
}

func (m *mariadb) names(ctx context.Context) (databases, users []string, err error) {
	_, rows, err := m.rows(ctx, "SELECT 'd', SCHEMA_NAME FROM information_schema.SCHEMATA WHERE SCHEMA_NAME NOT IN ('information_schema', 'mysql', 'performance_schema', 'sys') UNION ALL "+
		"SELECT DISTINCT 'u', User FROM mysql.user WHERE is_role = 'N' AND User NOT IN ('mariadb.sys', "+quoted(superuser)+") ORDER BY 1, 2")
	for _, row := range rows {
		if row[0] == "d" {
			databases = append(databases, row[1])
		} else {
			users = append(users, row[1])
		}
	}
	return databases, users, err
}

func (m *mariadb) exec(ctx context.Context, statements ...string) error {
	_, _, err := m.rows(ctx, statements...)
	return err
}

// rows runs statements by the socket, as this package, and returns those of the last.
func (m *mariadb) rows(ctx context.Context, statements ...string) ([]string, [][]string, error) {
	c := mysql.NewConfig()
	c.Net, c.Addr, c.User, c.Passwd = "unix", m.socket(), superuser, m.password
	return m.run(ctx, c, statements...)
}

func (m *mariadb) query(ctx context.Context, database, user, password, statements string) ([]string, [][]string, error) {
	c := mysql.NewConfig()
	c.Net, c.Addr, c.User, c.Passwd, c.DBName = "tcp", "127.0.0.1:"+strconv.Itoa(m.port), user, password, database
	c.MultiStatements, c.TLS = true, m.ca.client()
	return m.run(ctx, c, statements)
}

func (m *mariadb) run(ctx context.Context, c *mysql.Config, statements ...string) (columns []string, rows [][]string, err error) {
	c.Logger = &mysql.NopLogger{}
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, nil, err
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer conn.Close()
	for _, statement := range statements {
		if columns, rows, err = lastSet(ctx, conn, statement); err != nil {
			return nil, nil, err
		}
	}
	return columns, rows, nil
}

// lastSet runs statements in one message, and returns the last set of rows as text.
func lastSet(ctx context.Context, conn *sql.Conn, statements string) (columns []string, rows [][]string, err error) {
	set, err := conn.QueryContext(ctx, statements)
	if err != nil {
		return nil, nil, err
	}
	defer set.Close()
	for {
		if columns, err = set.Columns(); err != nil {
			return nil, nil, err
		}
		rows = nil
		for set.Next() {
			values, into := make([]sql.NullString, len(columns)), make([]any, len(columns))
			for i := range values {
				into[i] = &values[i]
			}
			if err := set.Scan(into...); err != nil {
				return nil, nil, err
			}
			row := make([]string, len(columns))
			for i, v := range values {
				row[i] = v.String
			}
			rows = append(rows, row)
		}
		if !set.NextResultSet() {
			return columns, rows, set.Err()
		}
	}
}

func backticks(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

// quoted is a string where backslashes escape, which is the server's default.
func quoted(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, "'", "''").Replace(s) + "'"
}

// at is a user that may come from anywhere.
func at(user string) string { return quoted(user) + "@'%'" }
