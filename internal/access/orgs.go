package access

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/zopday/provisioner/internal/audit"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
)

// An Org is an organisation.
type Org struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	CreatedAt time.Time `json:"createdAt"`
}

var (
	// ErrNoOrg is an organisation that does not exist.
	ErrNoOrg = errors.New("there is no such organisation")

	// ErrTaken is a name that something of the same kind has already.
	ErrTaken = errors.New("the name is taken")

	// ErrMissing is a token, role, assignment or team that does not exist, or not in
	// this organisation.
	ErrMissing = errors.New("there is no such thing in your organisation")
)

// nameRE is what an organisation, a team, a token or a role may be called: it can
// stand in a path, and in the audit log nobody can make it look like another.
var nameRE = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$`)

// GoodName reports whether a token, role or team may be called so. A token's text
// may not: it would be kept and shown, and has come into the wrong field. What looks
// like an ID may not either: where both are taken, it would stand for another thing.
func GoodName(name string) bool {
	return nameRE.MatchString(name) && Redact(name) == name && !job.LooksLikeID(name)
}

// NameRule says in words what GoodName takes.
const NameRule = "use 1 to 63 of A-Z, a-z, 0-9, hyphen and underscore, the first a letter or digit, and nothing that looks like an ID"

// system is the context of what looks across organisations: who a token belongs
// to, and what an operator does on the database itself.
func system(ctx context.Context) context.Context { return db.System(ctx) }

// LockOrg keeps everybody else from changing the rights within an organisation
// until the transaction ends. All changes of tokens, roles, assignments and teams
// begin with it, so that what they check still holds when they are committed. The
// error is [ErrNoOrg] if there is no such organisation.
func LockOrg(ctx context.Context, tx db.Q, org string) error {
	var id string
	err := tx.QueryRow(ctx, `SELECT id FROM organisations WHERE id = $1`+db.ForUpdate(tx.Dialect()), org).Scan(&id)
	if errors.Is(err, db.ErrNoRows) {
		return ErrNoOrg
	}
	if err != nil {
		return fmt.Errorf("organisation %s: %w", org, err)
	}
	return nil
}

// ListOrgs lists the installation's organisations, the oldest first.
func ListOrgs(ctx context.Context, q db.Q) ([]Org, error) {
	return gather(system(ctx), q, "organisations", func(row scanner) (Org, error) {
		var o Org
		var created int64
		err := row.Scan(&o.ID, &o.Name, &created)
		o.CreatedAt = fromMicros(created)
		return o, err
	}, `SELECT id, name, created_at FROM organisations ORDER BY created_at, id`)
}

// CreateOrg makes an organisation with its first admin token, whose text is
// returned and cannot be had again. The error is [ErrTaken] for a name that is.
func CreateOrg(ctx context.Context, d *db.DB, name, actor string) (o Org, secret string, err error) {
	if !GoodName(name) {
		return o, "", fmt.Errorf("%.80q is not a name for an organisation; %s", name, NameRule)
	}
	o = Org{ID: job.NewID("org"), Name: name}
	err = d.InTx(system(ctx), func(ctx context.Context, tx db.Q) error {
		var created int64
		err := tx.QueryRow(ctx, `INSERT INTO organisations (id, name, created_at) VALUES ($1, $2, (SELECT `+db.Now(tx.Dialect())+`)) ON CONFLICT DO NOTHING RETURNING created_at`, o.ID, name).Scan(&created)
		if errors.Is(err, db.ErrNoRows) {
			return fmt.Errorf("organisation %s: %w", name, ErrTaken)
		}
		if err != nil {
			return fmt.Errorf("organisation %s: %w", name, err)
		}
		o.CreatedAt = fromMicros(created)
		secret, err = addAdmin(ctx, tx, o.ID, "admin", actor)
		if err != nil {
			return err
		}
		return note(ctx, tx, o.ID, actor, "organisation:create", "organisation", o.ID, map[string]any{"name": name})
	})
	return o, secret, err
}

// FirstEntries writes the first entry into the audit log of each organisation that was
// made by a migration and has none: from then on one without any shows that its log was
// taken away (see [audit.Check]). One that has tokens was in use, so what it lacks is
// not made up here.
func FirstEntries(ctx context.Context, d *db.DB) error {
	return d.InTx(system(ctx), func(ctx context.Context, tx db.Q) error {
		fresh, err := gather(ctx, tx, "organisations", func(row scanner) (o Org, err error) {
			err = row.Scan(&o.ID, &o.Name)
			return o, err
		}, `SELECT o.id, o.name FROM organisations AS o WHERE NOT EXISTS (SELECT 1 FROM audit_heads AS h WHERE h.org_id = o.id)
			AND NOT EXISTS (SELECT 1 FROM audit_log AS a WHERE a.org_id = o.id) AND NOT EXISTS (SELECT 1 FROM tokens AS t WHERE t.org_id = o.id) ORDER BY o.id`)
		if err != nil {
			return err
		}
		for _, o := range fresh {
			// Of processes that start at once, one writes it.
			if err := LockOrg(ctx, tx, o.ID); err != nil {
				return err
			}
			var n int64
			if err := tx.QueryRow(ctx, `SELECT count(*) FROM audit_log WHERE org_id = $1`, o.ID).Scan(&n); err != nil {
				return fmt.Errorf("organisation %s: %w", o.ID, err)
			}
			if n > 0 {
				continue
			}
			if err := note(ctx, tx, o.ID, bootstrapActor, "organisation:create", "organisation", o.ID, map[string]any{"name": o.Name}); err != nil {
				return err
			}
		}
		return nil
	})
}

// Recover makes an admin token for an organisation that has lost its own, by the
// organisation's ID or name; the text is returned and cannot be had again. It is
// for whoever can write to the database anyway.
func Recover(ctx context.Context, d *db.DB, ref, actor string) (t Token, secret string, err error) {
	err = d.InTx(system(ctx), func(ctx context.Context, tx db.Q) error {
		var org string
		err := tx.QueryRow(ctx, `SELECT id FROM organisations WHERE id = $1 OR name = $1 ORDER BY CASE WHEN id = $1 THEN 0 ELSE 1 END LIMIT 1`, ref).Scan(&org)
		if errors.Is(err, db.ErrNoRows) {
			return fmt.Errorf("%.80q: %w", ref, ErrNoOrg)
		}
		if err != nil {
			return fmt.Errorf("organisation: %w", err)
		}
		if err := LockOrg(ctx, tx, org); err != nil {
			return err
		}
		name := "recovery-" + job.NewID("r")[2:]
		if secret, err = addAdmin(ctx, tx, org, name, actor); err != nil {
			return err
		}
		got, err := FindToken(ctx, tx, org, name)
		if err == nil {
			t = *got
		}
		return err
	})
	return t, secret, err
}

// addAdmin makes a token with the role Admin over its organisation, which does not
// expire: it is the way in when all others are closed.
func addAdmin(ctx context.Context, tx db.Q, org, name, actor string) (secret string, err error) {
	secret = NewSecret()
	t := Token{ID: job.NewID("tok"), OrgID: org, Name: name, CreatedBy: actor}
	if err := AddToken(ctx, tx, &t, secret); err != nil {
		return "", err
	}
	if err := makeAdmin(ctx, tx, org, t.ID, actor); err != nil {
		return "", err
	}
	return secret, note(ctx, tx, org, actor, "token:create", "token", t.ID, map[string]any{"name": name, "role": Admin, "scope": string(OrgScope)})
}

func makeAdmin(ctx context.Context, tx db.Q, org, token, actor string) error {
	_, _, err := AddAssignment(ctx, tx, Assignment{
		OrgID: org, Subject: Subject{Kind: SubjectToken, ID: token}, RoleID: Admin, Scope: Scope{Kind: OrgScope}, CreatedBy: actor,
	})
	return err
}

// note writes what an operator or the system itself did into the audit log.
func note(ctx context.Context, tx db.Q, org, actor, action, resourceType, id string, detail map[string]any) error {
	return audit.Append(ctx, tx, audit.Entry{
		Org: org, Actor: actor, Action: action, ResourceType: resourceType, ResourceID: id, Outcome: audit.Allowed, Scope: string(OrgScope), Detail: detail,
	})
}

type scanner interface{ Scan(dest ...any) error }

// gather reads all rows of a query; what names them in an error.
func gather[T any](ctx context.Context, q db.Q, what string, scan func(scanner) (T, error), query string, args ...any) ([]T, error) {
	rows, err := q.Query(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	defer rows.Close()
	var out []T
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
		out = append(out, v)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return out, nil
}

func fromMicros(us int64) time.Time { return time.UnixMicro(us).UTC() }

func timePtr(us *int64) *time.Time {
	if us == nil {
		return nil
	}
	t := fromMicros(*us)
	return &t
}

func micros(t *time.Time) *int64 {
	if t == nil {
		return nil
	}
	us := t.UnixMicro()
	return &us
}
