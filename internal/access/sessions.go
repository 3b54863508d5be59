package access

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
)

// How long people stay signed in.
const (
	SessionIdle     = 8 * time.Hour      // without a request
	SessionAbsolute = 7 * 24 * time.Hour // in all
	SignInWithin    = 10 * time.Minute   // at the issuer

	seenEvery  = time.Minute // how often a request is written down
	maxSignIns = 50_000      // begun at the same time; each is a row that anybody can cause
)

// ErrDisabled is a person who may not sign in any more.
var ErrDisabled = errors.New("the user is disabled")

// ErrTooMany is more sign-ins begun than there is room for.
var ErrTooMany = errors.New("too many sign-ins have begun at the same time")

// A User is a person that an issuer vouches for.
type User struct {
	ID      string
	OrgID   string
	Issuer  string // its URL
	Subject string // the issuer's name for the person, which never changes
	Name    string // for show alone
	Email   string // verified, in lower case, and nobody else's in the organisation; "" if there is none
	Groups  []string
}

// Actor is the person as the audit log writes it. A name is never part of it, since
// anybody can have any: it is an address that the issuer has verified, or the ID.
func (u User) Actor() string {
	if u.Email != "" {
		return "user:" + u.Email
	}
	return "user:" + u.ID
}

// Subjects are whose assignments a person has.
func (u User) Subjects() []Subject {
	s := []Subject{{SubjectUser, u.ID}}
	if u.Email != "" {
		s = append(s, Subject{SubjectUser, u.Email})
	}
	for _, g := range u.Groups {
		s = append(s, Subject{SubjectGroup, g})
	}
	return s
}

// A Session is a person who is signed in.
type Session struct {
	Hash      string    // of its secret, as the database has it
	User      User      // empty for a session of a token
	SeenAt    time.Time // the last request, to the minute
	ExpiresAt time.Time // whatever happens
}

// IdleAt is when the session ends without another request.
func (s Session) IdleAt() time.Time { return s.SeenAt.Add(SessionIdle) }

// A SignIn is one that has begun.
type SignIn struct {
	OrgID, Issuer, Next string
}

// Sessions keeps who is signed in, and who is about to be. Of what a browser holds
// it keeps the hash alone.
type Sessions struct {
	// Ahead is by how much its clock runs before the database's; nil: not at all.
	// Tests set it.
	Ahead func() time.Duration

	d *db.DB
}

// NewSessions keeps them in the given database.
func NewSessions(d *db.DB) *Sessions { return &Sessions{d: d} }

// clock is the time in SQL, and its argument is the last one.
func (s *Sessions) clock(q db.Q, arg int) string {
	return fmt.Sprintf("(SELECT %s + $%d)", db.Now(q.Dialect()), arg)
}

func (s *Sessions) ahead() int64 {
	if s.Ahead == nil {
		return 0
	}
	return s.Ahead().Microseconds()
}

// NewCookie is what a browser is given to hold: 256 random bits in 43 characters.
func NewCookie() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // it never fails: the program would end
	return base64.RawURLEncoding.EncodeToString(b[:])
}

var cookieRE = regexp.MustCompile(`^[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]$`)

// GoodCookie reports whether a text has the form of one that NewCookie makes.
func GoodCookie(s string) bool { return cookieRE.MatchString(s) }

// Begin keeps a sign-in that begins. secret is what the browser holds meanwhile.
func (s *Sessions) Begin(ctx context.Context, secret string, in SignIn) error {
	ctx = system(ctx)
	var n int
	if err := s.d.QueryRow(ctx, `SELECT count(*) FROM (SELECT hash FROM sign_ins LIMIT $1) AS begun`, int64(maxSignIns)).Scan(&n); err != nil {
		return fmt.Errorf("sign-in: %w", err)
	}
	if n >= maxSignIns {
		return ErrTooMany
	}
	_, err := s.d.Exec(ctx, `INSERT INTO sign_ins (hash, org_id, issuer, next, expires_at) VALUES ($1, $2, $3, $4, `+s.clock(s.d, 5)+` + $6)`,
		hash(secret), in.OrgID, in.Issuer, in.Next, s.ahead(), SignInWithin.Microseconds())
	if err != nil {
		return fmt.Errorf("sign-in: %w", err)
	}
	return nil
}

// Take gives a sign-in back, once. The error is ErrUnauthenticated for one that never
// began, has been taken or took too long.
func (s *Sessions) Take(ctx context.Context, secret string) (SignIn, error) {
	var in SignIn
	if !GoodCookie(secret) {
		return in, ErrUnauthenticated
	}
	var live bool
	err := s.d.Writer().QueryRow(system(ctx), `DELETE FROM sign_ins WHERE hash = $1 RETURNING org_id, issuer, next, expires_at > `+s.clock(s.d, 2),
		hash(secret), s.ahead()).Scan(&in.OrgID, &in.Issuer, &in.Next, &live)
	if errors.Is(err, db.ErrNoRows) || err == nil && !live {
		return SignIn{}, ErrUnauthenticated
	}
	if err != nil {
		return SignIn{}, fmt.Errorf("sign-in: %w", err)
	}
	return in, nil
}

// Enter notes a person as the issuer now describes them, and returns them with
// their ID. The error is ErrDisabled. An e-mail address that another person of the
// organisation has stays theirs: whoever is given a colleague's old address does not
// get the colleague's rights with it. It runs in the transaction of the sign-in.
func (s *Sessions) Enter(ctx context.Context, tx db.Q, u User) (User, error) {
	groups, err := json.Marshal(append([]string{}, u.Groups...))
	if err != nil {
		return u, fmt.Errorf("user: %w", err)
	}
	if err := LockOrg(ctx, tx, u.OrgID); err != nil { // two with one address at once
		return u, fmt.Errorf("user: %w", err)
	}
	if u.Email != "" {
		var holder string
		err := tx.QueryRow(ctx, `SELECT id FROM users WHERE org_id = $1 AND email = $2 AND NOT (issuer = $3 AND subject = $4)`,
			u.OrgID, u.Email, u.Issuer, u.Subject).Scan(&holder)
		switch {
		case err == nil:
			u.Email = ""
		case !errors.Is(err, db.ErrNoRows):
			return u, fmt.Errorf("user: %w", err)
		}
	}
	var disabled bool
	err = tx.QueryRow(ctx, `INSERT INTO users (id, org_id, issuer, subject, name, email, groups, created_at, seen_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, `+s.clock(tx, 8)+`, `+s.clock(tx, 8)+`)
		ON CONFLICT (org_id, issuer, subject) DO UPDATE SET name = excluded.name, email = excluded.email, groups = excluded.groups, seen_at = excluded.seen_at
		RETURNING id, disabled`, job.NewID("usr"), u.OrgID, u.Issuer, u.Subject, u.Name, u.Email, string(groups), s.ahead()).Scan(&u.ID, &disabled)
	if err != nil {
		return u, fmt.Errorf("user: %w", err)
	}
	if disabled {
		return u, ErrDisabled
	}
	return u, nil
}

// Start opens a session of a person, under an ID that nobody has seen before.
func (s *Sessions) Start(ctx context.Context, tx db.Q, u User) (secret string, err error) {
	groups, err := json.Marshal(append([]string{}, u.Groups...))
	if err != nil {
		return "", fmt.Errorf("session: %w", err)
	}
	secret = NewCookie()
	_, err = tx.Exec(ctx, `INSERT INTO sessions (hash, org_id, user_id, groups, created_at, seen_at, expires_at)
		VALUES ($1, $2, $3, $4, `+s.clock(tx, 5)+`, `+s.clock(tx, 5)+`, `+s.clock(tx, 5)+` + $6)`,
		hash(secret), u.OrgID, u.ID, string(groups), s.ahead(), SessionAbsolute.Microseconds())
	if err != nil {
		return "", fmt.Errorf("session: %w", err)
	}
	return secret, nil
}

// Find is the session that a browser holds the secret of, and notes that it was used.
// The error is ErrUnauthenticated if there is none, it has expired, or its person was
// disabled. The groups are those of the person's last sign-in, wherever that was.
func (s *Sessions) Find(ctx context.Context, secret string) (Session, error) {
	if !GoodCookie(secret) {
		return Session{}, ErrUnauthenticated
	}
	ctx = system(ctx)
	var (
		got                Session
		groups             string
		now, seen, expires int64
		disabled           bool
	)
	u := &got.User
	err := s.d.QueryRow(ctx, `SELECT s.org_id, s.seen_at, s.expires_at, u.id, u.issuer, u.subject, u.name, u.email, u.groups, u.disabled, `+s.clock(s.d, 2)+`
		FROM sessions s JOIN users u ON u.org_id = s.org_id AND u.id = s.user_id WHERE s.hash = $1`, hash(secret), s.ahead()).
		Scan(&u.OrgID, &seen, &expires, &u.ID, &u.Issuer, &u.Subject, &u.Name, &u.Email, &groups, &disabled, &now)
	if errors.Is(err, db.ErrNoRows) || err == nil && (disabled || now >= expires || now >= seen+SessionIdle.Microseconds()) {
		return Session{}, ErrUnauthenticated
	}
	if err == nil {
		err = json.Unmarshal([]byte(groups), &u.Groups)
	}
	if err == nil && now-seen >= seenEvery.Microseconds() {
		seen = now
		_, err = s.d.Exec(ctx, `UPDATE sessions SET seen_at = $3 WHERE org_id = $1 AND hash = $2 AND seen_at < $3`, u.OrgID, hash(secret), now)
	}
	if err != nil {
		return Session{}, fmt.Errorf("session: %w", err)
	}
	got.Hash, got.SeenAt, got.ExpiresAt = hash(secret), fromMicros(seen), fromMicros(expires)
	return got, nil
}

// End closes an organisation's session; one that is not there is no error.
func (s *Sessions) End(ctx context.Context, tx db.Q, org, secret string) error {
	if _, err := tx.Exec(ctx, `DELETE FROM sessions WHERE org_id = $1 AND hash = $2`, org, hash(secret)); err != nil {
		return fmt.Errorf("session: %w", err)
	}
	return nil
}

// Sweep removes the sessions and the sign-ins that are over, and says how many.
func (s *Sessions) Sweep(ctx context.Context) (int64, error) {
	ctx = system(ctx)
	n, err := s.d.Exec(ctx, `DELETE FROM sessions WHERE expires_at <= `+s.clock(s.d, 1)+` OR seen_at <= `+s.clock(s.d, 1)+` - $2`,
		s.ahead(), SessionIdle.Microseconds())
	if err != nil {
		return n, fmt.Errorf("sessions: %w", err)
	}
	m, err := s.d.Exec(ctx, `DELETE FROM sign_ins WHERE expires_at <= `+s.clock(s.d, 1), s.ahead())
	if err != nil {
		return n, fmt.Errorf("sign-ins: %w", err)
	}
	return n + m, nil
}
