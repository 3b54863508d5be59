package db

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// orgSetting is the setting of a PostgreSQL session that the policies of the
// tables read: the ID of the organisation whose rows the session sees and writes,
// everyOrg for the system, and empty for neither.
const (
	orgSetting = "zopday.org"
	everyOrg   = "*"
)

type orgKey struct{}

// WithOrg is a context whose statements see and write the rows of one organisation
// alone, and read those of the installation. PostgreSQL holds to it by row-level
// security, whatever a statement says; on SQLite the statement itself has to name
// the organisation. An org that is empty, or no ID of one, sees nothing.
func WithOrg(ctx context.Context, org string) context.Context {
	if org == everyOrg {
		org = "" // never what a caller's request gets
	}
	return context.WithValue(ctx, orgKey{}, org)
}

// System is a context whose statements see and write the rows of all
// organisations: that of the workers, the sealer, the schedules, and of looking up
// who a token belongs to. A request never gets one.
func System(ctx context.Context) context.Context {
	return context.WithValue(ctx, orgKey{}, everyOrg)
}

// orgOf is what the session of a context's statements is set to. A context that
// says nothing sees nothing.
func orgOf(ctx context.Context) string {
	org, _ := ctx.Value(orgKey{}).(string)
	return org
}

// errOrgOfTx is a statement of another organisation than its transaction's: the
// session is the transaction's, so the statement would see other rows than its
// context says.
var errOrgOfTx = errors.New("a statement within a transaction has to be of the transaction's own organisation")

// setOrg makes a connection that leaves the pool one of its context's organisation.
// What a connection is set to is remembered with it, so that it costs a round trip
// only where that changes. A connection that could not be set is thrown away.
func setOrg(ctx context.Context, conn *pgx.Conn) (ok bool, err error) {
	known := conn.PgConn().CustomData()
	want := orgOf(ctx)
	if have, set := known[orgSetting]; set && have == want {
		return true, nil
	}
	delete(known, orgSetting)
	if _, err := conn.Exec(ctx, `SELECT set_config($1, $2, false)`, orgSetting, want); err != nil {
		if conn.IsClosed() && ctx.Err() == nil {
			return false, nil // it was dead already: the pool tries the next one
		}
		return false, fmt.Errorf("organisation of the session: %w", err)
	}
	known[orgSetting] = want
	return true, nil
}
