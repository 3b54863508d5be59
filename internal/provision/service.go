package provision

import (
	"context"
	"errors"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/accounts"
	"github.com/zopday/provisioner/internal/audit"
	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/ledger"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/remediation"
	"github.com/zopday/provisioner/internal/steps"
)

// Config is what the use cases stand on.
type Config struct {
	Ledger     *ledger.Ledger
	Clouds     cloud.Opener          // nil: plan, verify and the scan of a receipt are refused
	Spaces     Spaces                // plan and verify never register anything
	Components Components            // nil: there are none
	Logical    Logical               // nil: the secret store is closed, so there are no logical databases and connections
	SQL        steps.OpenSQL         // how verify looks into a datastore; nil: it does not
	Pausers    *remediation.Registry // what may be paused; nil: nothing
	Pace       pipeline.Pace         // simulated clouds: how much faster than real time they run
	Accounts   *accounts.Store       // the cloud accounts that jobs work in; nil: default alone, the process's own identity
	TokenDir   string                // where token files of cloud accounts may be; "": nowhere
	Gates      job.Gates             // the feature gates that are on

	// CloudPolicies are the least that jobs need at a cloud; nil: not known here.
	CloudPolicies func(job.Provider) []cloud.Policy

	Webhooks Webhooks // what messages to webhooks stand on

	Keeper Keeper // the installation's keys and database; nil: not to be had here

	SignIn bool // people can sign in, so users and groups count among the admins
	Log    *slog.Logger
	Now    func() time.Time // nil: the wall clock; only for words, never for what is stored

	Clock func(context.Context, db.Q) (time.Time, error) // by which schedules are due; nil: the database's
}

// A Service carries the use cases out.
type Service struct {
	Config
	walks turns // one walk through the audit log of an organisation at a time
}

// New prepares the use cases.
func New(c Config) *Service {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Clock == nil && c.Ledger != nil {
		c.Clock = c.Ledger.Clock
	}
	return &Service{Config: c}
}

type requestKey struct{}

// WithRequestID names the request that the context belongs to, for the audit log.
func WithRequestID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, requestKey{}, id)
}

// RequestID is the request's name; "" outside of a request.
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(requestKey{}).(string)
	return id
}

// Permit refuses a caller that has none of the policies, and writes a refused
// mutation into the audit log. It is asked before a request is even read.
func (s *Service) Permit(ctx context.Context, resource string, anyOf ...access.Policy) error {
	var refused error
	for _, p := range anyOf {
		_, err := access.Require(ctx, p)
		if err == nil {
			return nil
		}
		refused = errors.Join(refused, err)
	}
	if len(anyOf) == 0 {
		return forbidden(&access.DeniedError{Policy: "(none declared)"})
	}
	return s.refused(ctx, anyOf[0], resource, refused)
}

// viewer is the caller of something that changes nothing.
func (s *Service) viewer(ctx context.Context, policy access.Policy) (access.Principal, error) {
	p, err := access.Require(ctx, policy)
	if err != nil {
		return p, refusalOf(err)
	}
	return p, nil
}

// mutate runs a change in one transaction with its audit entry. The change's
// policy is checked first. A change that is refused, by the policy or by what it
// finds, is rolled back and written to the audit log as refused.
func (s *Service) mutate(ctx context.Context, policy access.Policy, resource string, fn func(ctx context.Context, tx db.Q, p access.Principal) (audit.Entry, error)) error {
	p, err := access.Require(ctx, policy)
	if err != nil {
		return s.refused(ctx, policy, resource, err)
	}
	err = s.Ledger.DB().InTx(ctx, func(ctx context.Context, tx db.Q) error {
		e, err := fn(ctx, tx, p)
		if err != nil {
			return err
		}
		if e.ResourceID == "" {
			e.ResourceID = resource
		}
		return audit.Append(ctx, tx, s.entry(ctx, p, e, policy, audit.Allowed))
	})
	if err != nil && !errors.Is(err, errReplayed) {
		return s.refused(ctx, policy, resource, err)
	}
	return err
}

func (s *Service) entry(ctx context.Context, p access.Principal, e audit.Entry, policy access.Policy, outcome audit.Outcome) audit.Entry {
	e.Org, e.Actor, e.Outcome, e.RequestID = p.OrgID, p.Actor, outcome, RequestID(ctx)
	if e.Scope == "" {
		e.Scope = string(access.OrgScope)
		if scope, ok := widest(p, policy); ok {
			e.Scope = scope.String()
		}
	}
	if e.Action == "" {
		e.Action = string(policy)
	}
	if e.ResourceType == "" {
		e.ResourceType, _, _ = strings.Cut(string(policy), ":")
	}
	return e
}

// refused turns an error into a Refusal and notes it in the audit log, for every
// caller that is known. A caller without a token is only logged: otherwise
// anybody could fill the ledger.
func (s *Service) refused(ctx context.Context, policy access.Policy, resource string, err error) error {
	err = refusalOf(err)
	p, known := access.From(ctx)
	if !known || ctx.Err() != nil {
		return err
	}
	var r *Refusal
	e := audit.Entry{ResourceID: access.Redact(clip(resource)), Detail: map[string]any{"reason": "internal error"}}
	outcome := audit.Failed
	if errors.As(err, &r) {
		outcome = audit.Refused
		e.Detail = r.forTheLog()
	}
	_, action, _ := strings.Cut(string(policy), ":")
	if action == "view" && (r == nil || r.Kind != Forbidden) {
		return err // a look at something that is not there is no mutation
	}
	aerr := s.Ledger.DB().InTx(ctx, func(ctx context.Context, tx db.Q) error {
		return audit.Append(ctx, tx, s.entry(ctx, p, e, policy, outcome))
	})
	if aerr != nil {
		return errors.Join(err, aerr) // a refusal that cannot be recorded is a failure of ours
	}
	return err
}

// forTheLog is what the audit log keeps of a refusal: what was wrong where, but
// not what a caller wrote into a field, which may be a secret in the wrong place.
func (e *Refusal) forTheLog() map[string]any {
	d := map[string]any{"reason": string(e.Kind)}
	if len(e.Fields) == 0 {
		d["message"] = e.Message
		return d
	}
	fields := make([]string, len(e.Fields))
	for i, f := range e.Fields {
		fields[i] = f.Field
	}
	d["fields"] = fields
	return d
}

// Refuse records a mutation that was refused before it reached a use case, such
// as one whose body makes no sense, and returns the refusal.
func (s *Service) Refuse(ctx context.Context, policy access.Policy, resource string, err error) error {
	return s.refused(ctx, policy, resource, err)
}

// refusalOf puts the errors of the packages below into words for the caller.
func refusalOf(err error) error {
	var (
		denied *access.DeniedError
		bad    *job.Invalid
		trans  *job.TransitionError
		name   *ledger.NameTakenError
		busy   *ledger.SubjectBusyError
		r      *Refusal
	)
	switch {
	case errors.As(err, &r):
		return err
	case errors.Is(err, access.ErrUnauthenticated):
		return &Refusal{Kind: Unauthenticated, Message: err.Error(), Hint: "Send the header Authorization: Bearer with a valid token."}
	case errors.As(err, &denied):
		return forbidden(denied)
	case errors.As(err, &bad):
		return invalid(bad.Fields...)
	case errors.As(err, &trans):
		return &Refusal{Kind: WrongState, Message: trans.Error(), Hint: stateHint(trans)}
	case errors.As(err, &name):
		return &Refusal{Kind: NameTaken, Job: name.HolderID, Message: nameTaken(name), Hint: "Choose another name, or tear that job down first.",
			Fields: []job.FieldError{{Field: "name", Message: nameTaken(name), Fix: "choose another name"}}}
	case errors.As(err, &busy):
		return &Refusal{Kind: WrongState, Job: busy.HolderID, Message: busy.Error(), Hint: "Wait until it is done, then ask again."}
	case errors.Is(err, ledger.ErrLeased):
		return &Refusal{Kind: WrongState, Message: "a worker is at work on the job", Hint: "Wait until it is done, then ask again.", Cause: err}
	case errors.Is(err, ledger.ErrNotFound):
		return notFound(err)
	case errors.Is(err, ledger.ErrBadCursor):
		return invalid(job.FieldError{Field: "cursor", Message: "is not a cursor of this list", Fix: "use nextCursor of the page before, with the same sorting and filters, or leave it out"})
	}
	return err
}

func nameTaken(e *ledger.NameTakenError) string {
	if e.HolderID == "" {
		return "another live job has just taken the name"
	}
	return "the live job " + e.HolderID + " has the name"
}

func notFound(cause error) *Refusal {
	return &Refusal{Kind: NotFound, Message: "there is no such job in your organisation", Hint: "GET /provisioning-jobs lists what there is.", Cause: cause}
}

func forbidden(e *access.DeniedError) *Refusal {
	hint := "No built-in role grants it."
	if roles := access.RolesWith(e.Policy); len(roles) > 0 {
		hint = "The roles that have it: " + strings.Join(roles, ", ") + "."
	}
	return &Refusal{Kind: Forbidden, Message: e.Error(), Hint: hint}
}

func stateHint(e *job.TransitionError) string {
	switch {
	case e.From.Status == job.Cancelled:
		return "A cancelled job is over; create a new one."
	case e.From.Active():
		return "Wait until the job has come to rest, or cancel it with DELETE."
	case e.From.Status == job.Draft:
		return `Submit it with PATCH {"status":"queued"}.`
	case e.From.Phase == job.PhaseTeardown:
		return "Retry the teardown; nothing else is left to do with this job."
	case e.From.Status == job.Failed:
		return "Retry it, or tear it down with DELETE."
	}
	return "GET the job to see where it stands."
}

// refRE is what can be an ID, the beginning of one, or a name. Anything else
// never reaches the database.
var refRE = regexp.MustCompile(`^[A-Za-z0-9_-]{1,80}$`)

// find resolves what a caller wrote for a job: its ID, its name, or, for a look,
// the beginning of its ID. A job that the caller may not see is not there; over
// one that it may see and lacks the policy for, the caller is refused.
func (s *Service) find(ctx context.Context, p access.Principal, policy access.Policy, ref string, look bool) (*job.Job, error) {
	j, err := s.resolve(ctx, p, policy, ref, look)
	if err != nil {
		return nil, err
	}
	return j, overJob(p, policy, j)
}

func (s *Service) resolve(ctx context.Context, p access.Principal, policy access.Policy, ref string, look bool) (*job.Job, error) {
	if !refRE.MatchString(ref) {
		return nil, notFound(nil)
	}
	jobs, err := s.Ledger.Resolve(ctx, p.OrgID, p.Over(access.JobView, policy), ref)
	if err != nil {
		return nil, err
	}
	if !look {
		// A change needs the thing named whole: the beginning of an ID that fits
		// one job today may fit another one tomorrow.
		jobs = slices.DeleteFunc(jobs, func(j job.Job) bool { return j.ID != ref && j.Name != ref })
	}
	switch len(jobs) {
	case 0:
		return nil, notFound(nil)
	case 1:
		return &jobs[0], nil
	}
	// Of jobs that are over, a name means the last one: its receipt is what is looked for.
	if look && !slices.ContainsFunc(jobs, func(j job.Job) bool { return j.Name != ref || j.Status != job.Cancelled }) {
		return &jobs[0], nil
	}
	var names []string
	for _, j := range jobs[:min(len(jobs), 10)] {
		names = append(names, j.ID+" ("+string(j.ResourceType)+" "+j.Name+", "+string(j.Status)+")")
	}
	return nil, &Refusal{Kind: Ambiguous, Message: "several jobs fit " + ref + ": " + strings.Join(names, ", "), Hint: "Use the whole ID."}
}
