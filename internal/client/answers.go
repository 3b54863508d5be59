package client

import (
	"context"
	"net/http"
	"time"

	"github.com/zopday/provisioner/internal/job"
)

// A Plan is what a job would do.
type Plan struct {
	JobID   string `json:"jobId"`
	Name    string `json:"name"`
	Summary string `json:"summary"`
	Steps   []struct {
		Name  string `json:"name"`
		Title string `json:"title"`
	} `json:"steps"`
	Objects []struct {
		Step  string           `json:"step"`
		Kind  string           `json:"kind"`
		Name  string           `json:"name"`
		State job.ObjectStatus `json:"state"`
		ID    string           `json:"id"`
	} `json:"objects"`
	Changes   int              `json:"changes"` // objects that do not exist yet
	Checks    []Check          `json:"checks"`
	Network   *job.NetworkPlan `json:"network"` // nil: the job makes none, or it could not be laid out
	LeftAlone []LeftAlone      `json:"leftAlone"`
	Teardown  []string         `json:"teardown"`
	Cost      struct {
		Summary string `json:"summary"`
		Items   []struct {
			Name       string `json:"name"`
			Arithmetic string `json:"arithmetic"`
		} `json:"items"`
		Assumptions []string `json:"assumptions"`
		NotPriced   []string `json:"notPriced"`
	} `json:"cost"`
}

// A Check is the answer to one question asked before anything is made.
type Check struct {
	Name    string `json:"name"`
	Status  string `json:"status"` // ok, fails, warning, not checked
	Field   string `json:"field"`
	Message string `json:"message"`
	Fix     string `json:"fix"`
}

// LeftAlone is something that a job uses and leaves as it is.
type LeftAlone struct {
	What string `json:"what"`
	Why  string `json:"why"`
}

// PlanOf plans a job that exists.
func (c *Client) PlanOf(ctx context.Context, id string) (*Response, Plan, error) {
	return ask[Plan](ctx, c, http.MethodGet, jobPath(id, "plan"), nil)
}

// PlanDocument plans a job that does not exist; nothing is saved.
func (c *Client) PlanDocument(ctx context.Context, doc []byte) (*Response, Plan, error) {
	return ask[Plan](ctx, c, http.MethodPost, "/provisioning-jobs/plan", doc)
}

// A Verification is what a comparison with the cloud found.
type Verification struct {
	AsAsked  bool    `json:"asAsked"`
	Sentence string  `json:"sentence"`
	Drift    []Drift `json:"drift"`
}

// A Drift is one attribute that is not as asked.
type Drift struct {
	Kind   string `json:"kind"`
	Key    string `json:"key"`
	ID     string `json:"id"`
	Attr   string `json:"attribute"`
	Wanted string `json:"wanted"`
	Seen   string `json:"seen"`
}

// Verify compares a finished job with the cloud; nothing is changed.
func (c *Client) Verify(ctx context.Context, id string) (*Response, Verification, error) {
	return ask[Verification](ctx, c, http.MethodPost, jobPath(id, "verify"), nil)
}

// A Receipt says what a job made and what became of it.
type Receipt struct {
	JobID       string       `json:"jobId"`
	Name        string       `json:"name"`
	Final       bool         `json:"final"`
	Created     int          `json:"created"`
	Removed     int          `json:"removed"`
	Kept        int          `json:"kept"`
	Left        *int         `json:"left"` // nil: the cloud could not be asked, or not for every kind
	RequestedBy string       `json:"requestedBy"`
	RequestedAt *time.Time   `json:"requestedAt"`
	AuditID     string       `json:"auditId"`
	FinishedAt  *time.Time   `json:"finishedAt"`
	Objects     []job.Object `json:"objects"`
	LeftAlone   []LeftAlone  `json:"leftAlone"`
	Summary     string       `json:"summary"`
	Scan        *struct {
		At    time.Time `json:"at"`
		Found int       `json:"found"`
		Note  string    `json:"note"`

		NotScanned []job.Unlisted `json:"notScanned"` // kinds that the credentials may not list
	} `json:"scan"`
	Leftovers []struct {
		Kind string `json:"kind"`
		ID   string `json:"id"`
		Name string `json:"name"`
	} `json:"leftovers"`
}

// Receipt is a job's receipt, as far as it has come.
func (c *Client) Receipt(ctx context.Context, id string) (*Response, Receipt, error) {
	return ask[Receipt](ctx, c, http.MethodGet, jobPath(id, "receipt"), nil)
}

// An Explanation says why a job is where it is.
type Explanation struct {
	JobID    string          `json:"jobId"`
	Name     string          `json:"name"`
	Verdict  Verdict         `json:"verdict"`
	Error    *job.Error      `json:"error"`
	Step     *Step           `json:"step"`
	Steps    []Step          `json:"steps"`
	Attempts []job.StepState `json:"attempts"`
	Events   []job.Event     `json:"events"`
	Objects  []job.Object    `json:"objects"`
	Worker   *struct {
		ID        string     `json:"id"`
		Until     time.Time  `json:"until"`
		LastSign  *time.Time `json:"lastSign"`
		TakenFrom string     `json:"takenFrom"`
	} `json:"worker"`
	Warnings []string `json:"warnings"`
	Next     []struct {
		What    string `json:"what"`
		Command string `json:"command"`
		Call    string `json:"call"`
	} `json:"next"`
}

// Explain asks why a job is where it is.
func (c *Client) Explain(ctx context.Context, id string) (*Response, Explanation, error) {
	return ask[Explanation](ctx, c, http.MethodGet, jobPath(id, "explain"), nil)
}

func ask[T any](ctx context.Context, c *Client, method, path string, body []byte) (*Response, T, error) {
	var v T
	r, err := c.Do(ctx, method, path, nil, body, nil)
	if err != nil {
		return r, v, err
	}
	return r, v, r.Data(&v)
}

// An AuditCheck is the outcome of a walk through the whole audit log.
type AuditCheck struct {
	Whole           bool    `json:"whole"`
	Seq             int64   `json:"seq"`
	Hash            string  `json:"hash"`
	Reason          string  `json:"reason"`
	Unsealed        int64   `json:"unsealed"`        // entries that no hash holds yet
	UnsealedSeconds float64 `json:"unsealedSeconds"` // how long the oldest of them has waited
	Warning         string  `json:"warning"`
}

// VerifyAudit has the server walk its audit log.
func (c *Client) VerifyAudit(ctx context.Context) (*Response, AuditCheck, error) {
	return ask[AuditCheck](ctx, c, http.MethodGet, "/audit-logs/verify", nil)
}

// Version is the server's version.
func (c *Client) Version(ctx context.Context) (string, error) {
	_, v, err := ask[struct{ Version string }](ctx, c, http.MethodGet, "/version", nil)
	return v.Version, err
}
