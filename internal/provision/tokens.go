package provision

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/audit"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
)

const (
	tokenLife    = 90 * 24 * time.Hour  // if nothing is said
	tokenLifeMax = 366 * 24 * time.Hour // but for those that never expire, which has to be said
	tokenLifeMin = time.Minute
	maxGrants    = 50 // roles that one request gives a token
)

// A GrantRequest asks for a role at a scope.
type GrantRequest struct {
	Role  string        `json:"role" doc:"A role's name or ID"`
	Scope *access.Scope `json:"scope"`
}

// A TokenRequest asks for a token.
type TokenRequest struct {
	Name      string         `json:"name" doc:"1 to 63 of A-Z, a-z, 0-9, hyphen and underscore; the audit log shows it, so no other token ever gets it again"`
	Role      string         `json:"role,omitempty" doc:"What it may do: a role's name or ID. Or give grants"`
	Scope     *access.Scope  `json:"scope,omitempty" doc:"Where it may do it"`
	Grants    []GrantRequest `json:"grants,omitempty" doc:"Several roles, each at its scope"`
	ExpiresIn string         `json:"expiresIn,omitempty" doc:"Such as 12h, 90d (default) or 52w, a year at most; never has to be said" example:"90d"`
	ExpiresAt string         `json:"expiresAt,omitempty" format:"date-time" doc:"Instead: when it ends"`
}

func (r TokenRequest) grants() []GrantRequest {
	if r.Role != "" || r.Scope != nil {
		return append([]GrantRequest{{Role: r.Role, Scope: r.Scope}}, r.Grants...)
	}
	return r.Grants
}

// A TokenRotation asks for another text of a token.
type TokenRotation struct {
	ExpiresIn string `json:"expiresIn,omitempty" doc:"As when a token is made; as long again as the token's text was made for if left out, and never for a token that never expires"`
	ExpiresAt string `json:"expiresAt,omitempty" format:"date-time" doc:"Instead: when it ends"`
}

// A TokenView is a token as it is shown.
type TokenView struct {
	access.Token
	Grants []HeldRole `json:"grants" doc:"What it may do"`
}

// A HeldRole is a role that a token holds.
type HeldRole struct {
	Assignment string       `json:"assignment" doc:"The ID of the assignment that gives it"`
	Role       string       `json:"role"`
	Scope      access.Scope `json:"scope"`
}

// A NewToken is a token that has just been made, with its text.
type NewToken struct {
	TokenView
	Secret string `json:"token" doc:"The token itself. It is shown this once; only a hash of it is kept"`
}

var lifeRE = regexp.MustCompile(`^([1-9][0-9]{0,6})(m|h|d|w)$`)

// expiry is when a token ends that is made now; nil: never.
func expiry(now time.Time, in, at string, otherwise *time.Duration) (*time.Time, error) {
	wrong := func(field, message string) error {
		return invalid(job.FieldError{Field: field, Message: message, Fix: "give 1m to 366d, such as 12h, 90d or 52w; or say never"})
	}
	field, end := "expiresIn", now
	switch {
	case in != "" && at != "":
		return nil, wrong("expiresAt", "is given beside expiresIn")
	case in == "never":
		return nil, nil
	case at != "":
		t, err := time.Parse(time.RFC3339, at)
		if err != nil {
			return nil, invalid(job.FieldError{Field: "expiresAt", Message: fmt.Sprintf("%.40q is no time", at), Fix: "write it as 2027-01-31T12:00:00Z"})
		}
		field, end = "expiresAt", t.UTC()
	case in == "":
		if otherwise == nil {
			return nil, nil
		}
		end = now.Add(*otherwise)
	default:
		m := lifeRE.FindStringSubmatch(in)
		if m == nil {
			return nil, wrong(field, fmt.Sprintf("%.40q is no length of time", in))
		}
		n, err := strconv.Atoi(m[1])
		if err != nil {
			return nil, wrong(field, fmt.Sprintf("%.40q is no length of time", in))
		}
		end = now.Add(time.Duration(n) * map[string]time.Duration{"m": time.Minute, "h": time.Hour, "d": 24 * time.Hour, "w": 7 * 24 * time.Hour}[m[2]])
		if n > 1_000_000 {
			end = now.Add(2 * tokenLifeMax) // a duration of Go's ends at 292 years
		}
	}
	switch life := end.Sub(now); {
	case life < tokenLifeMin:
		return nil, wrong(field, "is over in less than a minute, or already")
	case life > tokenLifeMax:
		return nil, wrong(field, "is more than a year away")
	}
	return &end, nil
}

// lifeOf is how long a token lasts that is made now; 0: for ever.
func lifeOf(now time.Time, end *time.Time) time.Duration {
	if end == nil {
		return 0
	}
	return end.Sub(now)
}

// asBefore is how long a token lasts after a rotation that does not say: as long as
// its text was made for, within the bounds of today.
func asBefore(t *access.Token) *time.Duration {
	if t.ExpiresAt == nil {
		return nil
	}
	life := min(max(t.Life, tokenLifeMin), tokenLifeMax)
	return &life
}

// faults are what is wrong with a request by itself.
func (r TokenRequest) faults() []job.FieldError {
	fields := checkName(r.Name)
	grants := r.grants()
	switch {
	case len(grants) == 0:
		fields = append(fields, job.FieldError{Field: "role", Message: "is missing", Fix: "give role and scope, or grants: a token without a role may do nothing"})
	case len(grants) > maxGrants:
		fields = append(fields, job.FieldError{Field: "grants", Message: fmt.Sprintf("has more than %d", maxGrants), Fix: "make a role of what the token needs"})
	}
	return fields
}

// CreateToken makes a token; its text is in the answer and nowhere else.
func (s *Service) CreateToken(ctx context.Context, r TokenRequest) (*NewToken, error) {
	if fields := r.faults(); len(fields) > 0 {
		return nil, s.refused(ctx, access.TokenManage, "", invalid(fields...))
	}
	var scopes []access.Scope
	for _, g := range r.grants() {
		if g.Scope != nil {
			scopes = append(scopes, *g.Scope)
		}
	}
	spaces, err := s.spaceJobs(ctx, scopes...)
	if err != nil {
		return nil, s.refused(ctx, access.TokenManage, "", err)
	}
	secret, life := access.NewSecret(), tokenLife
	made := &NewToken{Secret: secret}
	err = s.changeAccess(ctx, access.TokenManage, "", func(ctx context.Context, tx db.Q, p access.Principal) (audit.Entry, error) {
		now, err := s.Clock(ctx, tx)
		if err != nil {
			return audit.Entry{}, err
		}
		end, err := expiry(now, r.ExpiresIn, r.ExpiresAt, &life)
		if err != nil {
			return audit.Entry{}, err
		}
		t := access.Token{ID: job.NewID("tok"), OrgID: p.OrgID, Name: r.Name, CreatedBy: p.Actor, ExpiresAt: end, Life: lifeOf(now, end)}
		give, err := s.toGive(ctx, tx, p, r, spaces)
		if err != nil {
			return audit.Entry{}, err
		}
		if err := access.AddToken(ctx, tx, &t, secret); err != nil {
			if errors.Is(err, access.ErrTaken) {
				err = nameInUse("a token of your organisation has the name, or had it")
			}
			return audit.Entry{}, err
		}
		given := []string{}
		for _, a := range give {
			a.Subject.ID, a.CreatedBy = t.ID, p.Actor
			got, _, err := access.AddAssignment(ctx, tx, a)
			if err != nil {
				return audit.Entry{}, err
			}
			made.Grants = append(made.Grants, HeldRole{got.ID, got.Role, got.Scope})
			given = append(given, got.Role+" for "+got.Scope.String())
		}
		made.Token = t
		return audit.Entry{Action: "token:create", ResourceType: "token", ResourceID: t.ID, Detail: map[string]any{"name": t.Name, "grants": given, "expires": endText(t.ExpiresAt)}}, nil
	})
	if err != nil {
		return nil, err
	}
	return made, nil
}

func endText(t *time.Time) string {
	if t == nil {
		return "never"
	}
	return t.Format(time.RFC3339)
}

// toGive are the assignments of a new token, each of which the caller may give.
func (s *Service) toGive(ctx context.Context, tx db.Q, p access.Principal, r TokenRequest, spaces map[string]string) ([]access.Assignment, error) {
	var out []access.Assignment
	for i, g := range r.grants() {
		at := fmt.Sprintf("grants[%d].", i)
		if r.Role != "" || r.Scope != nil {
			if at = fmt.Sprintf("grants[%d].", i-1); i == 0 {
				at = ""
			}
		}
		role, err := roleNamed(ctx, tx, p.OrgID, at+"role", g.Role)
		if err != nil {
			return nil, err
		}
		pl, err := where(ctx, tx, p, access.TokenManage, at+"scope", g.Scope, spaces)
		if err != nil {
			return nil, err
		}
		if err := mayGive(p, role, pl); err != nil {
			return nil, err
		}
		out = append(out, access.Assignment{OrgID: p.OrgID, Subject: access.Subject{Kind: access.SubjectToken}, RoleID: role.ID, Scope: pl.Scope})
	}
	return out, nil
}

// tokenOf finds a token for a caller with what it holds. One that reaches beyond
// what the caller manages is not there for that caller.
// policy is that which the caller looks for it by.
func (s *Service) tokenOf(ctx context.Context, q db.Q, p access.Principal, policy access.Policy, ref string) (*access.Token, []access.Assignment, error) {
	none := missing("token", "/tokens")
	if !refRE.MatchString(ref) {
		return nil, nil, none
	}
	t, err := access.FindToken(ctx, q, p.OrgID, ref)
	if errors.Is(err, access.ErrMissing) {
		return nil, nil, none
	}
	if err != nil {
		return nil, nil, err
	}
	holds, err := access.AssignmentsOf(ctx, q, p.OrgID, []access.Subject{{Kind: access.SubjectToken, ID: t.ID}})
	if err != nil {
		return nil, nil, err
	}
	ok, err := managed(ctx, q, p, policy, holds, nil)
	if err == nil && !ok {
		err = none
	}
	return t, holds, err
}

func tokenView(t access.Token, holds []access.Assignment) TokenView {
	v := TokenView{Token: t, Grants: []HeldRole{}}
	for _, a := range holds {
		if a.Subject.ID == t.ID {
			v.Grants = append(v.Grants, HeldRole{a.ID, a.Role, a.Scope})
		}
	}
	return v
}

// ListTokens lists the tokens that the caller manages, the newest first, also those
// that do not work any more.
func (s *Service) ListTokens(ctx context.Context, limit int, cursor string) (items []TokenView, next string, err error) {
	p, err := s.viewer(ctx, access.TokenManage)
	if err == nil {
		err = cursorOK(cursor)
	}
	if err != nil {
		return nil, "", err
	}
	tokens, err := access.ListTokens(ctx, s.Ledger.DB(), p.OrgID, p.Over(access.TokenManage), cursor, limit+1)
	if err != nil {
		return nil, "", err
	}
	tokens, next = nextPage(tokens, limit, func(t access.Token) string { return t.ID })
	subjects := make([]access.Subject, len(tokens))
	for i, t := range tokens {
		subjects[i] = access.Subject{Kind: access.SubjectToken, ID: t.ID}
	}
	holds, err := access.AssignmentsOf(ctx, s.Ledger.DB(), p.OrgID, subjects)
	if err != nil {
		return nil, "", err
	}
	for _, t := range tokens {
		items = append(items, tokenView(t, holds))
	}
	return items, next, nil
}

// GetToken reads a token, by its ID or its name.
func (s *Service) GetToken(ctx context.Context, ref string) (*TokenView, error) {
	p, err := s.viewer(ctx, access.TokenManage)
	if err != nil {
		return nil, err
	}
	t, holds, err := s.tokenOf(ctx, s.Ledger.DB(), p, access.TokenManage, ref)
	if err != nil {
		return nil, err
	}
	v := tokenView(*t, holds)
	return &v, nil
}

// RevokeToken ends a token at once and for good. Its row stays, for the audit log.
func (s *Service) RevokeToken(ctx context.Context, ref string) error {
	return s.changeAccess(ctx, access.TokenManage, ref, func(ctx context.Context, tx db.Q, p access.Principal) (audit.Entry, error) {
		t, holds, err := s.tokenOf(ctx, tx, p, access.TokenManage, ref)
		if err != nil {
			return audit.Entry{}, err
		}
		if err := access.RevokeToken(ctx, tx, p.OrgID, t.ID, p.Actor); err != nil {
			return audit.Entry{}, err
		}
		if t.State == access.TokenLive && slices.ContainsFunc(holds, access.Assignment.MakesAdmin) {
			if err := access.KeepAdmin(ctx, tx, p.OrgID, s.SignIn); err != nil {
				return audit.Entry{}, err
			}
		}
		return audit.Entry{Action: "token:revoke", ResourceType: "token", ResourceID: t.ID, Detail: map[string]any{"name": t.Name}}, nil
	})
}

// RotateToken gives a token another text, which is in the answer and nowhere else;
// the old one works no more. Who asks has to hold all that the token holds, for the
// answer gives it away.
func (s *Service) RotateToken(ctx context.Context, ref string, r TokenRotation) (*NewToken, error) {
	made := &NewToken{Secret: access.NewSecret()}
	err := s.changeAccess(ctx, access.TokenManage, ref, func(ctx context.Context, tx db.Q, p access.Principal) (audit.Entry, error) {
		t, holds, err := s.tokenOf(ctx, tx, p, access.TokenManage, ref)
		if err != nil {
			return audit.Entry{}, err
		}
		if t.State == access.TokenRevoked {
			return audit.Entry{}, refuse(WrongState, "Make a new one with POST /tokens.", "the token %s was revoked, and stays so", t.Name)
		}
		for _, a := range holds {
			pl := place{Scope: a.Scope}
			if a.Scope.Kind == access.ResourceScope {
				if pl.team, _, err = resourceTeam(ctx, tx, p.OrgID, a.Scope.ID, nil); err != nil {
					return audit.Entry{}, err
				}
			}
			if err := mayGive(p, &access.Role{Name: a.Role, Policies: a.Policies}, pl); err != nil {
				return audit.Entry{}, err
			}
		}
		now, err := s.Clock(ctx, tx)
		if err != nil {
			return audit.Entry{}, err
		}
		if t.ExpiresAt, err = expiry(now, r.ExpiresIn, r.ExpiresAt, asBefore(t)); err != nil {
			return audit.Entry{}, err
		}
		t.Life = lifeOf(now, t.ExpiresAt)
		if err := access.RotateToken(ctx, tx, t, made.Secret); err != nil {
			return audit.Entry{}, err
		}
		made.TokenView = tokenView(*t, holds)
		return audit.Entry{Action: "token:rotate", ResourceType: "token", ResourceID: t.ID, Detail: map[string]any{"name": t.Name, "expires": endText(t.ExpiresAt)}}, nil
	})
	if err != nil {
		return nil, err
	}
	return made, nil
}
