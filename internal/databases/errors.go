package databases

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/zopday/provisioner/internal/pipeline"
)

const (
	service       = "SQL"
	notUnderstood = "the server does not understand a statement"
)

func invalid(op, message string) error {
	return &pipeline.CloudError{Class: pipeline.Invalid, Service: service, Op: op, Message: message}
}

// classify says what an error means. asked is false for an error of the connection, before any
// statement left.
func (l *link) classify(op string, err error, asked bool) error {
	if err == nil {
		return nil
	}
	var classified *pipeline.CloudError
	var fatal *pipeline.FatalError
	if errors.As(err, &classified) || errors.As(err, &fatal) {
		return l.scrub(err) // of the secret store, which has words of its own
	}
	out := &pipeline.CloudError{Class: pipeline.Unavailable, Service: service, Op: op, Sent: asked}
	var pg *pgconn.PgError
	var my *mysql.MySQLError
	switch {
	case errors.As(err, &pg):
		out.Class, out.Code, out.Message = postgresClass(pg), pg.Code, postgresWords(pg)
	case errors.As(err, &my):
		out.Class, out.Code, out.Message = mysqlClass(my), fmt.Sprint(my.Number), my.Message
		if my.Number == mySyntax { // it quotes the statement
			out.Message = notUnderstood
		}
	case errors.Is(err, context.Canceled):
		out.Message, out.Err = "cut off before the server's answer", context.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		out.Message, out.Err = "the server did not answer in time", context.DeadlineExceeded
	case untrusted(err):
		out.Class, out.Message = pipeline.Invalid, "the server's certificate is not to be trusted: "+untrustedWords(err)
	case errors.Is(err, mysql.ErrNoTLS):
		out.Class, out.Message = pipeline.Invalid, "the server does not speak TLS, and nothing goes to it without"
	case asked:
		out.Message = "the connection was lost before the server's answer"
	default:
		out.Message = "the server does not take connections: " + innermost(err)
	}
	if asked && out.Class == pipeline.Expired {
		out.Class = pipeline.Denied // it is connected: this is about what the statement wants
	}
	out.Message = l.without(out.Message)
	return out
}

func untrusted(err error) bool {
	var verification *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	var cert x509.CertificateInvalidError
	return errors.As(err, &verification) || errors.As(err, &authority) || errors.As(err, &host) || errors.As(err, &cert)
}

func untrustedWords(err error) string {
	var verification *tls.CertificateVerificationError
	if errors.As(err, &verification) {
		return verification.Err.Error()
	}
	return innermost(err)
}

// innermost is the words of the first error that led here: outer ones name users and addresses in
// as many ways as there are drivers.
func innermost(err error) string {
	for {
		switch e := err.(type) { //nolint:errorlint // it walks the chain itself
		case interface{ Unwrap() error }:
			inner := e.Unwrap()
			if inner == nil {
				return err.Error()
			}
			err = inner
		case interface{ Unwrap() []error }:
			all := e.Unwrap()
			if len(all) == 0 {
				return err.Error()
			}
			err = all[len(all)-1]
		default:
			return err.Error()
		}
	}
}

// postgresWords are what the server said, with the names of what it speaks of, and nothing of the
// statement.
func postgresWords(pg *pgconn.PgError) string {
	if pg.Code == stateSyntax { // it quotes the statement
		return notUnderstood
	}
	if pg.Code == stateDependents && pg.Detail != "" {
		return pg.Message + ": " + strings.ReplaceAll(pg.Detail, "\n", "; ")
	}
	return pg.Message
}

// The codes of PostgreSQL that mean something here.
// https://www.postgresql.org/docs/current/errcodes-appendix.html
const (
	stateDuplicateDatabase = "42P04"
	stateDuplicateObject   = "42710"
	stateUniqueViolation   = "23505"
	stateUndefinedObject   = "42704"
	stateUndefinedDatabase = "3D000"
	stateDependents        = "2BP01"
	stateInUse             = "55006"
	stateDenied            = "42501"
	stateSyntax            = "42601"
	stateInternal          = "XX000"
)

func postgresClass(pg *pgconn.PgError) pipeline.Class {
	switch code := pg.Code; {
	case code == stateDenied:
		return pipeline.Denied
	case strings.HasPrefix(code, "28"):
		return pipeline.Expired
	case code == stateInUse, code == "55P03", strings.HasPrefix(code, "40"),
		code == stateInternal && strings.Contains(pg.Message, "concurrently"):
		return pipeline.Busy
	case code == stateUndefinedDatabase, code == stateUndefinedObject:
		return pipeline.NotFound
	case code == stateDuplicateDatabase, code == stateDuplicateObject, code == stateUniqueViolation:
		return pipeline.Exists
	case code == "25006", code == "57014", code == "53300", strings.HasPrefix(code, "57P"), strings.HasPrefix(code, "08"), strings.HasPrefix(code, "53"), strings.HasPrefix(code, "58"):
		return pipeline.Unavailable // read only, too slow, full, starting, stopping
	case strings.HasPrefix(code, "42"), strings.HasPrefix(code, "22"), strings.HasPrefix(code, "0A"), code == stateDependents:
		return pipeline.Invalid
	}
	return pipeline.Unknown
}

// The numbers of MySQL that mean something here.
// https://dev.mysql.com/doc/mysql-errors/8.4/en/server-error-reference.html
const (
	myExists      = 1007
	myNoDatabase  = 1008
	mySyntax      = 1064
	myNoThread    = 1094
	myKillDenied  = 1095
	myNoGrant     = 1141
	myNeeds       = 1227
	myNoProcedure = 1305
	myNoRoutine   = 1370
	myUserFailed  = 1396
)

func mysqlClass(my *mysql.MySQLError) pipeline.Class {
	switch my.Number {
	case 1045, 1698, 1862:
		return pipeline.Expired
	case 1044, 1142, 1143, myNeeds, myKillDenied, myNoRoutine, 1410, 3619:
		return pipeline.Denied
	case 1049, myNoDatabase, myNoGrant, myNoThread, myNoProcedure:
		return pipeline.NotFound
	case myExists:
		return pipeline.Exists
	case 1205, 1213, 3572, myUserFailed: // locks, deadlock, and a user that somebody else works on
		return pipeline.Busy
	case 1040, 1053, 1129, 1203, 1290, 1317, 1836, 1927, 3024, 3100:
		return pipeline.Unavailable
	case mySyntax, 1470, 1819, 3159, 4006:
		return pipeline.Invalid
	}
	return pipeline.Unknown
}

// words are what the engines say, where a control plane passes on their words and not their codes.
var words = []struct {
	say, code string
	class     pipeline.Class
}{
	{"not owner of thread", fmt.Sprint(myKillDenied), pipeline.Denied},
	{"unknown thread id", fmt.Sprint(myNoThread), pipeline.NotFound},
	{"no such grant", fmt.Sprint(myNoGrant), pipeline.NotFound},
	{"procedure mysql.", fmt.Sprint(myNoProcedure), pipeline.NotFound},
	{"error in your sql syntax", fmt.Sprint(mySyntax), pipeline.Invalid},
	{"syntax error", stateSyntax, pipeline.Invalid},
	{"permission denied", stateDenied, pipeline.Denied},
	{"must be owner of", stateDenied, pipeline.Denied},
	{"access denied", fmt.Sprint(myNeeds), pipeline.Denied},
	{"objects depend on it", stateDependents, pipeline.Invalid},
	{"being accessed by other users", stateInUse, pipeline.Busy},
	{"concurrently updated", stateInternal, pipeline.Busy},
	{"concurrently deleted", stateInternal, pipeline.Busy},
	{"deadlock", "40P01", pipeline.Busy},
	{"lock timeout", "55P03", pipeline.Busy},
	{"lock wait timeout", "1205", pipeline.Busy},
	{"already exists", stateDuplicateObject, pipeline.Exists},
	{"duplicate key", stateUniqueViolation, pipeline.Exists},
	{"database exists", fmt.Sprint(myExists), pipeline.Exists},
	{"does not exist", stateUndefinedObject, pipeline.NotFound},
	{"read-only", "25006", pipeline.Unavailable},
}

// byWords gives an error of a control plane the class that its words have, and the code, unless the
// cloud knows a class itself that stands: nothing reached the engine, or it is ours to wait.
func byWords(err error) error {
	var ce *pipeline.CloudError
	if !errors.As(err, &ce) || pipeline.Is(err, pipeline.Throttled, pipeline.Expired, pipeline.Unavailable, pipeline.Refused, pipeline.Quota) {
		return err
	}
	message := strings.ToLower(ce.Message)
	for _, w := range words {
		if strings.Contains(message, w.say) {
			said := *ce
			said.Class, said.Code = w.class, w.code
			if w.class == pipeline.Invalid && w.code != stateDependents {
				said.Message, said.Err = notUnderstood, nil // it quotes the statement
			}
			return &said
		}
	}
	return err
}

// is reports whether an error has one of the codes of its engine.
func is(err error, codes ...string) bool {
	var ce *pipeline.CloudError
	return errors.As(err, &ce) && slices.Contains(codes, ce.Code)
}

// scrub takes secrets out of an error that came from elsewhere.
func (l *link) scrub(err error) error {
	var ce *pipeline.CloudError
	if errors.As(err, &ce) && l.without(ce.Message) != ce.Message {
		clean := *ce
		clean.Message, clean.Err = l.without(ce.Message), nil
		return &clean
	}
	return err
}

func (l *link) without(message string) string {
	for _, secret := range l.secrets {
		if secret != "" {
			message = strings.ReplaceAll(message, secret, "…")
		}
	}
	return message
}
