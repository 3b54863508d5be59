package provision

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/audit"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
)

// auditor is the caller of something about the audit log, which is the whole
// organisation's: it speaks of every team's things, tokens and accounts.
func (s *Service) auditor(ctx context.Context) (access.Principal, error) {
	p, err := s.viewer(ctx, access.AuditView)
	if err == nil {
		err = refusalOf(overAll(p, access.AuditView, "the organisation's audit log"))
	}
	return p, err
}

// AuditLog returns entries of the caller's organisation, newest first, and the
// cursor of the next page; "" at the end.
func (s *Service) AuditLog(ctx context.Context, f audit.Filter) (entries []audit.Entry, next string, err error) {
	p, err := s.auditor(ctx)
	if err != nil {
		return nil, "", err
	}
	entries, next, err = audit.List(ctx, s.Ledger.DB(), p.OrgID, f)
	if errors.Is(err, audit.ErrBadCursor) {
		err = invalid(job.FieldError{Field: "cursor", Message: "is not a cursor of this list", Fix: "use nextCursor of the page before, or leave it out"})
	}
	return entries, next, err
}

// An AuditCheck is the outcome of a walk through the whole audit log.
type AuditCheck struct {
	Whole           bool    `json:"whole" doc:"Every sealed entry is there and is as it was written"`
	Seq             int64   `json:"seq" doc:"The last sealed entry, or the first one that does not fit"`
	Hash            string  `json:"hash,omitempty" doc:"The hash of the last sealed entry; kept elsewhere, it shows later that the log was not rewritten as a whole"`
	Reason          string  `json:"reason,omitempty" doc:"What does not fit"`
	Unsealed        int64   `json:"unsealed" doc:"Entries that are not sealed yet: nothing shows whether they are as they were written"`
	UnsealedSeconds float64 `json:"unsealedSeconds" doc:"How long the oldest of them has been waiting"`
	Warning         string  `json:"warning,omitempty" doc:"Entries wait for so long that nothing can be sealing them"`
}

// VerifyAudit walks the caller's organisation's audit log from its first entry
// to its last. It reads only; one walk of an organisation at a time, since it reads
// everything. Who waits for another's can leave: the error is then the context's.
func (s *Service) VerifyAudit(ctx context.Context) (*AuditCheck, error) {
	p, err := s.auditor(ctx)
	if err != nil {
		return nil, err
	}
	done, err := s.walks.take(ctx, p.OrgID)
	if err != nil {
		return nil, err
	}
	defer done()
	return CheckAudit(ctx, s.Ledger.DB(), p.OrgID)
}

// turns lets one at a time in, by name; the zero value is ready.
type turns struct {
	mu sync.Mutex
	of map[string]*turn
}

type turn struct {
	in  chan struct{} // holds one while somebody is in
	has int           // how many are in or wait
}

// take waits for the name's turn, or until the context ends; done ends the turn.
func (t *turns) take(ctx context.Context, name string) (done func(), err error) {
	t.mu.Lock()
	if t.of == nil {
		t.of = map[string]*turn{}
	}
	mine := t.of[name]
	if mine == nil {
		mine = &turn{in: make(chan struct{}, 1)}
		t.of[name] = mine
	}
	mine.has++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if mine.has--; mine.has == 0 {
			delete(t.of, name)
		}
	}
	select {
	case mine.in <- struct{}{}:
		return func() { <-mine.in; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}

// CheckAudit walks an organisation's audit log from its first entry to its last.
func CheckAudit(ctx context.Context, d *db.DB, org string) (*AuditCheck, error) {
	r, err := audit.Check(ctx, d, org)
	var broken *audit.BrokenError
	if errors.As(err, &broken) {
		return &AuditCheck{Seq: broken.Seq, Reason: broken.Error()}, nil
	}
	if err != nil {
		return nil, err
	}
	check := &AuditCheck{Whole: true, Seq: r.Seq, Hash: r.Hash, Unsealed: r.Unsealed, UnsealedSeconds: r.Oldest.Seconds()}
	if r.Stalled() {
		check.Warning = fmt.Sprintf("%d entries are not sealed, the oldest for %s: no server is sealing the log; start one, or look into its log for the reason",
			r.Unsealed, r.Oldest.Round(time.Second))
	}
	return check, nil
}

// ExportAudit hands every entry of the caller's organisation that the filter
// chooses to fn, newest first, until fn returns an error.
func (s *Service) ExportAudit(ctx context.Context, f audit.Filter, fn func(audit.Entry) error) error {
	p, err := s.auditor(ctx)
	if err != nil {
		return err
	}
	return audit.Each(ctx, s.Ledger.DB(), p.OrgID, f, fn)
}
