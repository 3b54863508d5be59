package databases

import (
	"context"
	"crypto/tls"
	"database/sql"
	"errors"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

const (
	connectLimit   = 10 * time.Second
	statementLimit = time.Minute // making a database copies files
	lockLimit      = 10 * time.Second
	sqlMode        = "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION"
	clientName     = "zopday-provisioner"
)

// A conn is one connection to one database. Statements are one message; the rows of the last come
// back as text.
type conn interface {
	run(ctx context.Context, statements string) ([][]string, error)
	alive() bool
	close(ctx context.Context) error
}

// A link is the way to a datastore: connections by database, or the control plane.
type link struct {
	access  cloud.SQLAccess
	conns   map[string]conn
	secrets []string // that no error may hold
}

// close ends every connection. Nothing hangs on how: each statement was answered, or its error was
// returned.
func (l *link) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	for database := range l.conns {
		l.forget(ctx, database)
	}
}

// forget ends the connection to a database, which would keep it from being dropped.
func (l *link) forget(ctx context.Context, database string) {
	if c := l.conns[database]; c != nil {
		delete(l.conns, database)
		_ = c.close(ctx) // the server ends it otherwise
	}
}

// read asks for rows.
func (l *link) read(ctx context.Context, op, database, statement string) ([][]string, error) {
	if l.access.Query != nil && l.access.Engine == job.Postgres {
		// As on a connection of our own: what an owner made in its database is not what is meant here.
		statement = "SET search_path TO pg_catalog; " + statement
	}
	return l.run(ctx, pipeline.Call{Service: "sql", Op: op}, database, statement)
}

// change runs statements that change something, as one message, after asking the gates.
func (l *link) change(ctx context.Context, op, database string, statements ...string) error {
	_, err := l.run(ctx, pipeline.Call{Service: "sql", Op: op, Mutating: true}, database, strings.Join(statements, "; "))
	return err
}

func (l *link) run(ctx context.Context, call pipeline.Call, database, statements string) ([][]string, error) {
	if err := pipeline.Allow(ctx, call); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, statementLimit)
	defer cancel()
	if l.access.Query != nil {
		rows, err := l.access.Query(ctx, database, statements)
		return rows, l.scrub(byWords(err))
	}
	c := l.conns[database]
	if c != nil && !c.alive() {
		l.forget(ctx, database)
		c = nil
	}
	if c == nil {
		var err error
		if c, err = l.connect(ctx, database); err != nil {
			return nil, l.classify(call.Op, err, false)
		}
		l.conns[database] = c
		// The connection may have taken long enough for the lease to go.
		if err := pipeline.Allow(ctx, call); err != nil {
			return nil, err
		}
	}
	rows, err := c.run(ctx, statements)
	if err != nil && !c.alive() {
		l.forget(context.WithoutCancel(ctx), database)
	}
	return rows, l.classify(call.Op, err, true)
}

func (l *link) connect(ctx context.Context, database string) (conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	s := l.access.Server
	password, err := s.Password(ctx)
	if err != nil {
		return nil, err
	}
	l.secrets = append(l.secrets, password)
	secure := s.TLS.Clone()
	// Without verification of its own, a configuration cannot do without the usual one.
	secure.InsecureSkipVerify = secure.InsecureSkipVerify && (secure.VerifyConnection != nil || secure.VerifyPeerCertificate != nil)
	if secure.ServerName == "" {
		secure.ServerName = s.Host
	}
	if secure.MinVersion < tls.VersionTLS12 {
		secure.MinVersion = tls.VersionTLS12
	}
	if l.access.Engine == job.MySQL {
		return connectMySQL(ctx, s, secure, l.access.Admin, password, database)
	}
	return connectPostgres(ctx, s, secure, l.access.Admin, password, database)
}

// pgConn is a connection to PostgreSQL.
type pgConn struct{ *pgx.Conn }

func connectPostgres(ctx context.Context, s *cloud.SQLServer, secure *tls.Config, user, password, database string) (conn, error) {
	c, err := pgx.ParseConfig("sslmode=disable")
	if err != nil {
		return nil, err
	}
	// Nothing of PGHOST and its like counts here.
	c.Host, c.Port, c.User, c.Password, c.Database = s.Host, uint16(s.Port), user, password, database
	c.TLSConfig, c.Fallbacks, c.ValidateConnect, c.ConnectTimeout = secure, nil, nil, connectLimit
	c.RuntimeParams = map[string]string{
		"application_name": clientName, "client_encoding": "UTF8", "standard_conforming_strings": "on", "search_path": "pg_catalog",
		"statement_timeout": milliseconds(statementLimit), "lock_timeout": milliseconds(lockLimit),
	}
	c.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	conn, err := pgx.ConnectConfig(ctx, c)
	if err != nil {
		return nil, err
	}
	return pgConn{conn}, nil
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

func (c pgConn) alive() bool                     { return !c.IsClosed() }
func (c pgConn) close(ctx context.Context) error { return c.Close(ctx) }

func (c pgConn) run(ctx context.Context, statements string) ([][]string, error) {
	results, err := c.PgConn().Exec(ctx, statements).ReadAll()
	if err != nil || len(results) == 0 {
		return nil, err
	}
	var rows [][]string
	for _, values := range results[len(results)-1].Rows {
		row := make([]string, len(values))
		for i, v := range values {
			row[i] = string(v)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// myConn is a connection to MySQL.
type myConn struct {
	db   *sql.DB
	conn *sql.Conn
	dead bool
}

func connectMySQL(ctx context.Context, s *cloud.SQLServer, secure *tls.Config, user, password, database string) (conn, error) {
	c := mysql.NewConfig()
	c.Net, c.Addr, c.User, c.Passwd, c.DBName = "tcp", net.JoinHostPort(s.Host, strconv.Itoa(s.Port)), user, password, database
	c.TLS, c.Timeout, c.ReadTimeout, c.WriteTimeout, c.Logger = secure, connectLimit, statementLimit, connectLimit, &mysql.NopLogger{}
	c.Params = map[string]string{"sql_mode": "'" + sqlMode + "'", "lock_wait_timeout": strconv.Itoa(int(lockLimit.Seconds()))}
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &myConn{db: db, conn: conn}, nil
}

func (c *myConn) alive() bool { return !c.dead }

func (c *myConn) close(context.Context) error {
	err := c.conn.Close()
	if errors.Is(err, sql.ErrConnDone) {
		err = nil
	}
	return errors.Join(err, c.db.Close())
}

func (c *myConn) run(ctx context.Context, statements string) (rows [][]string, err error) {
	defer func() {
		var my *mysql.MySQLError
		if err != nil && !errors.As(err, &my) {
			c.dead = true // lost, or left in the middle of an answer
		}
	}()
	set, err := c.conn.QueryContext(ctx, statements)
	if err != nil {
		return nil, err
	}
	defer set.Close()
	columns, err := set.Columns()
	if err != nil {
		return nil, err
	}
	for set.Next() {
		values, into := make([]sql.NullString, len(columns)), make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		if err := set.Scan(into...); err != nil {
			return nil, err
		}
		row := make([]string, len(columns))
		for i, v := range values {
			row[i] = v.String
		}
		rows = append(rows, row)
	}
	return rows, set.Err()
}
