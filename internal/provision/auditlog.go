package provision

import (
	"context"
	"errors"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/audit"
)

// AuditLog returns entries of the caller's organisation, newest first, and the
// sequence number before which the next page begins; 0 at the end.
func (s *Service) AuditLog(ctx context.Context, f audit.Filter) (entries []audit.Entry, next int64, err error) {
	p, err := s.viewer(ctx, access.AuditView)
	if err != nil {
		return nil, 0, err
	}
	return audit.List(ctx, s.Ledger.DB(), p.OrgID, f)
}

// An AuditCheck is the outcome of a walk through the whole audit log.
type AuditCheck struct {
	Whole  bool   `json:"whole" doc:"Every entry is there and is as it was written"`
	Seq    int64  `json:"seq" doc:"The last entry, or the first one that does not fit"`
	Hash   string `json:"hash,omitempty" doc:"The hash of the last entry; kept elsewhere, it shows later that the log was not rewritten as a whole"`
	Reason string `json:"reason,omitempty" doc:"What does not fit"`
}

// VerifyAudit walks the caller's organisation's audit log from its first entry
// to its last. One walk at a time: it holds the head of the log while it lasts.
func (s *Service) VerifyAudit(ctx context.Context) (*AuditCheck, error) {
	p, err := s.viewer(ctx, access.AuditView)
	if err != nil {
		return nil, err
	}
	s.walk.Lock()
	defer s.walk.Unlock()
	head, err := audit.Verify(ctx, s.Ledger.DB(), p.OrgID)
	var broken *audit.BrokenError
	if errors.As(err, &broken) {
		return &AuditCheck{Seq: broken.Seq, Reason: broken.Error()}, nil
	}
	if err != nil {
		return nil, err
	}
	return &AuditCheck{Whole: true, Seq: head.Seq, Hash: head.Hash}, nil
}
