package databases

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// mysqlEngine makes databases and users on MySQL, from 8.0 on, and MariaDB. MySQL's databases have no
// owner: a database is the user's that has the owner's rights in it, which are given before it is
// made.
type mysqlEngine struct {
	*link
	literally *bool // names in GRANT are no patterns; nil: not asked yet
}

// waitForCloud is how soon it is looked again for what a control plane is making.
const waitForCloud = 3 * time.Second

// ownerPrivileges are all that there is in a database but GRANT OPTION.
var ownerPrivileges = []string{
	"ALTER", "ALTER ROUTINE", "CREATE", "CREATE ROUTINE", "CREATE TEMPORARY TABLES", "CREATE VIEW", "DELETE", "DROP", "EVENT", "EXECUTE",
	"INDEX", "INSERT", "LOCK TABLES", "REFERENCES", "SELECT", "SHOW VIEW", "TRIGGER", "UPDATE",
}

var myPrivileges = map[job.AccessMode][]string{
	job.OwnerMode: ownerPrivileges,
	job.ReadWrite: {"DELETE", "INSERT", "SELECT", "SHOW VIEW", "UPDATE"},
	job.ReadOnly:  {"SELECT", "SHOW VIEW"},
}

// ask is read outside of any database.
func (m *mysqlEngine) ask(ctx context.Context, op, statement string) ([][]string, error) {
	return m.read(ctx, op, "", statement)
}

// each runs statements one by one: MySQL commits each of these by itself.
func (m *mysqlEngine) each(ctx context.Context, op string, statements ...string) error {
	for _, statement := range statements {
		if err := m.change(ctx, op, "", statement); err != nil {
			return err
		}
	}
	return nil
}

func (m *mysqlEngine) exists(ctx context.Context, op, name string) (bool, error) {
	rows, err := m.ask(ctx, op, "SELECT 1 FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = "+myLiteral(name))
	return len(rows) > 0, err
}

// pattern is a database's name as GRANT takes it on this server.
// https://dev.mysql.com/doc/refman/8.4/en/partial-revokes.html
func (m *mysqlEngine) pattern(ctx context.Context, op, name string) (string, error) {
	if m.literally == nil {
		rows, err := m.ask(ctx, op, "SHOW VARIABLES LIKE 'partial_revokes'")
		if err != nil {
			return "", err
		}
		on := len(rows) > 0 && len(rows[0]) > 1 && strings.EqualFold(rows[0][1], "ON")
		m.literally = &on
	}
	if *m.literally {
		return name, nil
	}
	return myPattern(name), nil
}

// held are an account's privileges in a database.
func (m *mysqlEngine) held(ctx context.Context, op, account, pattern string) (privileges []string, grantable bool, err error) {
	rows, err := m.ask(ctx, op, "SELECT PRIVILEGE_TYPE, IS_GRANTABLE FROM information_schema.SCHEMA_PRIVILEGES WHERE GRANTEE = "+
		myLiteral(account)+" AND TABLE_SCHEMA = "+myLiteral(pattern)+" AND PRIVILEGE_TYPE <> 'USAGE' ORDER BY 1")
	for _, row := range rows {
		privileges = append(privileges, row[0])
		grantable = grantable || row[1] == "YES"
	}
	return privileges, grantable, err
}

func (m *mysqlEngine) database(ctx context.Context, name, owner string) (exists, ours bool, err error) {
	const op = "Database"
	if exists, err = m.exists(ctx, op, name); err != nil || !exists {
		return exists, false, err
	}
	pattern, err := m.pattern(ctx, op, name)
	if err != nil {
		return exists, false, err
	}
	privileges, _, err := m.held(ctx, op, myAccount(owner), pattern)
	return exists, slices.Contains(privileges, "CREATE") && slices.Contains(privileges, "DROP"), err
}

// alone has a piece of work done by one of us at a time: a worker that has lost its lease may not
// know it yet. The server lets go of the lock with the connection. Statements of a control plane have
// no connection to hold it with. https://dev.mysql.com/doc/refman/8.4/en/locking-functions.html
func (m *mysqlEngine) alone(ctx context.Context, op, name string, do func() error) error {
	if m.access.Query != nil {
		return do()
	}
	lock := myLiteral("zopday:" + name)
	rows, err := m.ask(ctx, op, fmt.Sprintf("SELECT GET_LOCK(%s, %d)", lock, int(lockLimit.Seconds())))
	if err != nil {
		return err
	}
	if len(rows) == 0 || rows[0][0] != "1" {
		return &pipeline.CloudError{Class: pipeline.Busy, Service: service, Op: op, Message: "somebody else works on database " + name, Sent: true}
	}
	err = do()
	if _, released := m.ask(context.WithoutCancel(ctx), op, "SELECT RELEASE_LOCK("+lock+")"); err == nil {
		err = released
	}
	return err
}

func (m *mysqlEngine) createDatabase(ctx context.Context, name, owner string) error {
	return m.alone(ctx, "CreateDatabase", name, func() error { return m.createAlone(ctx, name, owner) })
}

func (m *mysqlEngine) createAlone(ctx context.Context, name, owner string) error {
	const op = "CreateDatabase"
	exists, ours, err := m.database(ctx, name, owner)
	if err != nil {
		return err
	}
	if exists && !ours {
		return &pipeline.CloudError{Class: pipeline.Exists, Service: service, Op: op, Sent: true, Message: fmt.Sprintf("the database %s exists, and %s has no rights in it", name, owner)}
	}
	pattern, err := m.pattern(ctx, op, name)
	if err != nil {
		return err
	}
	if !exists {
		// Rights outlive a database of that name that was dropped.
		if err := m.revokeOthers(ctx, op, pattern, owner); err != nil {
			return err
		}
	}
	if err := m.setPrivileges(ctx, op, myAccount(owner), pattern, ownerPrivileges); err != nil || exists {
		return err
	}
	if m.access.CreateDatabase != nil {
		if err = m.scrub(m.access.CreateDatabase(ctx, name)); err == nil {
			err = m.shown(ctx, name, owner)
		}
	} else {
		err = m.each(ctx, op, "CREATE DATABASE "+myIdent(name)+" CHARACTER SET utf8mb4")
	}
	if pipeline.Is(err, pipeline.Exists) {
		// Made in between, and not by us: it is given back before anybody takes it for ours.
		if revoked := m.setPrivileges(ctx, op, myAccount(owner), pattern, nil); revoked != nil {
			return revoked
		}
	}
	return err
}

// shown reads back what a control plane has accepted: it is in the server a moment
// later at times.
func (m *mysqlEngine) shown(ctx context.Context, name, owner string) error {
	for range showTries {
		exists, _, err := m.database(ctx, name, owner)
		if exists || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(showPause):
		}
	}
	return pipeline.Wait(waitForCloud, "database %s to be made by the cloud", name)
}

// How often, and how far apart, it is looked for what a control plane has accepted.
const (
	showTries = 40
	showPause = 250 * time.Millisecond
)

// revokeOthers takes from all but the owner what they have in a database that does not exist.
func (m *mysqlEngine) revokeOthers(ctx context.Context, op, pattern, owner string) error {
	rows, err := m.ask(ctx, op, "SELECT DISTINCT GRANTEE FROM information_schema.SCHEMA_PRIVILEGES WHERE TABLE_SCHEMA = "+myLiteral(pattern)+" AND GRANTEE <> "+myLiteral(myAccount(owner)))
	if err != nil {
		return err
	}
	for _, row := range rows {
		if !accountRE.MatchString(row[0]) {
			return invalid(op, fmt.Sprintf("the account %q has rights in a database of that name, from before it is made; take them from it first", row[0]))
		}
		if err := m.setPrivileges(ctx, op, row[0], pattern, nil); err != nil && !is(err, fmt.Sprint(myNoGrant)) {
			return err
		}
	}
	return nil
}

// accountRE is an account as information_schema writes it, which escapes nothing.
var accountRE = regexp.MustCompile(`^'[^'\\]*'@'[^'\\]*'$`)

// setPrivileges gives an account just these in a database.
func (m *mysqlEngine) setPrivileges(ctx context.Context, op, account, pattern string, want []string) error {
	have, grantable, err := m.held(ctx, op, account, pattern)
	if err != nil {
		return err
	}
	on := " ON " + myIdent(pattern) + ".*"
	less := func(a, b []string) (out []string) {
		for _, p := range a {
			if !slices.Contains(b, p) {
				out = append(out, p)
			}
		}
		return out
	}
	var statements []string
	if grantable {
		statements = append(statements, "REVOKE GRANT OPTION"+on+" FROM "+account)
	}
	if extra := less(have, want); len(extra) > 0 {
		statements = append(statements, "REVOKE "+strings.Join(extra, ", ")+on+" FROM "+account)
	}
	if missing := less(want, have); len(missing) > 0 {
		statements = append(statements, "GRANT "+strings.Join(missing, ", ")+on+" TO "+account)
	}
	return m.each(ctx, op, statements...)
}

func (m *mysqlEngine) dropDatabase(ctx context.Context, name string) error {
	const op = "DropDatabase"
	exists, err := m.exists(ctx, op, name)
	if err != nil || !exists {
		return err
	}
	if err := m.endSessions(ctx, op, "DB = "+myLiteral(name)); err != nil {
		return err
	}
	if m.access.DropDatabase != nil {
		if err := m.access.DropDatabase(ctx, name); err != nil && !pipeline.Is(err, pipeline.NotFound) {
			return m.scrub(err)
		}
		return nil
	}
	return m.each(ctx, op, "DROP DATABASE IF EXISTS "+myIdent(name))
}

// killers end a session: MySQL's own statement where the administrator may, and the clouds'
// procedures. https://docs.aws.amazon.com/AmazonRDS/latest/UserGuide/mysql-stored-proc-ending.html,
// https://learn.microsoft.com/azure/mysql/flexible-server/how-to-troubleshoot-common-errors
var killers = []string{"KILL %s", "CALL mysql.rds_kill(%s)", "CALL mysql.az_kill(%s)"}

func (m *mysqlEngine) endSessions(ctx context.Context, op, which string) error {
	rows, err := m.ask(ctx, op, "SELECT ID FROM information_schema.PROCESSLIST WHERE ID <> CONNECTION_ID() AND "+which)
	if err != nil {
		return err
	}
	for _, row := range rows {
		var denied error
		for _, killer := range killers {
			err = m.each(ctx, op, fmt.Sprintf(killer, row[0]))
			if is(err, fmt.Sprint(myNoThread)) {
				err = nil // it has ended by itself
			}
			if pipeline.Is(err, pipeline.Denied) && denied == nil {
				denied = err
			}
			if !pipeline.Is(err, pipeline.Denied, pipeline.NotFound) {
				break
			}
		}
		if pipeline.Is(err, pipeline.Denied, pipeline.NotFound) && denied != nil {
			return denied // no way is left; the first refusal says what is missing
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (m *mysqlEngine) setRole(ctx context.Context, role, password string) error {
	const op = "SetRole"
	account := myAccount(role)
	if m.access.SetUser != nil {
		if err := m.access.SetUser(ctx, role, password); err != nil {
			return m.scrub(err)
		}
		if err := m.strip(ctx, op, role); err != nil {
			return err
		}
		return m.each(ctx, op, "ALTER USER "+account+" REQUIRE SSL ACCOUNT UNLOCK")
	}
	if m.access.Query != nil {
		return invalid(op, "this cloud's control plane makes no users, and a password does not go through its statements")
	}
	with := " IDENTIFIED BY " + myLiteral(password) + " REQUIRE SSL"
	return m.each(ctx, op, "CREATE USER IF NOT EXISTS "+account+with, "ALTER USER "+account+with+" ACCOUNT UNLOCK")
}

// strip takes from a user what some control planes give to each that they make: privileges
// everywhere, and roles.
func (m *mysqlEngine) strip(ctx context.Context, op, role string) error {
	account := myAccount(role)
	rows, err := m.ask(ctx, op, "SELECT PRIVILEGE_TYPE, IS_GRANTABLE FROM information_schema.USER_PRIVILEGES WHERE GRANTEE = "+myLiteral(account)+" AND PRIVILEGE_TYPE <> 'USAGE'")
	if err != nil {
		return err
	}
	var names, statements []string
	for _, row := range rows {
		names = append(names, row[0])
		if row[1] == "YES" && len(statements) == 0 {
			statements = append(statements, "REVOKE GRANT OPTION ON *.* FROM "+account)
		}
	}
	if len(names) > 0 {
		statements = append(statements, "REVOKE "+strings.Join(names, ", ")+" ON *.* FROM "+account)
	}
	rows, err = m.ask(ctx, op, "SELECT VERSION()")
	if err != nil {
		return err
	}
	roles := "SELECT FROM_USER, FROM_HOST FROM mysql.role_edges WHERE TO_USER = " + myLiteral(role)
	maria := len(rows) > 0 && strings.Contains(rows[0][0], "MariaDB")
	if maria {
		roles = "SELECT Role, '' FROM mysql.roles_mapping WHERE User = " + myLiteral(role)
	}
	if rows, err = m.ask(ctx, op, roles); err != nil {
		return err
	}
	for _, row := range rows {
		granted := myIdent(row[0])
		if !maria {
			granted = myLiteral(row[0]) + "@" + myLiteral(row[1])
		}
		statements = append(statements, "REVOKE "+granted+" FROM "+account)
	}
	return m.each(ctx, op, statements...)
}

func (m *mysqlEngine) grant(ctx context.Context, role, database, _ string, mode job.AccessMode) error {
	const op = "Grant"
	pattern, err := m.pattern(ctx, op, database)
	if err != nil {
		return err
	}
	return m.setPrivileges(ctx, op, myAccount(role), pattern, myPrivileges[mode])
}

func (m *mysqlEngine) dropRole(ctx context.Context, role, database, _ string) error {
	const op = "DropRole"
	account := myAccount(role)
	rows, err := m.ask(ctx, op, "SELECT 1 FROM information_schema.USER_PRIVILEGES WHERE GRANTEE = "+myLiteral(account)+" LIMIT 1")
	if err != nil {
		return err
	}
	if len(rows) > 0 {
		if err := m.each(ctx, op, "ALTER USER IF EXISTS "+account+" ACCOUNT LOCK"); err != nil {
			return err
		}
	}
	// Sessions outlive their user: also those of one that was dropped just before a crash.
	if err := m.endSessions(ctx, op, "USER = "+myLiteral(role)); err != nil || len(rows) == 0 {
		return err
	}
	if err := m.definer(ctx, op, role, database); err != nil {
		return err
	}
	if m.access.DropUser != nil {
		if err := m.access.DropUser(ctx, role); err != nil && !pipeline.Is(err, pipeline.NotFound) {
			return m.scrub(err)
		}
		return nil
	}
	return m.each(ctx, op, "DROP USER IF EXISTS "+account)
}

// definer refuses to drop a user in whose name views and routines of a database run: they would
// stop working, and only a person can say in whose name they are to run. The user is locked by then.
func (m *mysqlEngine) definer(ctx context.Context, op, role, database string) error {
	if database == "" {
		return nil
	}
	by, in := " WHERE DEFINER = "+myLiteral(role+"@%")+" AND ", " = "+myLiteral(database)
	rows, err := m.ask(ctx, op, "SELECT 'view', TABLE_NAME FROM information_schema.VIEWS"+by+"TABLE_SCHEMA"+in+
		" UNION ALL SELECT LOWER(ROUTINE_TYPE), ROUTINE_NAME FROM information_schema.ROUTINES"+by+"ROUTINE_SCHEMA"+in+
		" UNION ALL SELECT 'trigger', TRIGGER_NAME FROM information_schema.TRIGGERS"+by+"TRIGGER_SCHEMA"+in+
		" UNION ALL SELECT 'event', EVENT_NAME FROM information_schema.EVENTS"+by+"EVENT_SCHEMA"+in+" ORDER BY 1, 2")
	if err != nil || len(rows) == 0 {
		return err
	}
	var names []string
	for _, row := range rows[:min(len(rows), 10)] {
		names = append(names, row[0]+" "+row[1])
	}
	return invalid(op, fmt.Sprintf("%d objects of database %s run in the name of %s (%s), which is locked now but stays: make them anew with DEFINER = the owner, or drop them, then delete the connection again",
		len(rows), database, role, strings.Join(names, ", ")))
}

var _ engine = (*mysqlEngine)(nil)
