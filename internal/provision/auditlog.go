package provision

import (
	"context"

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
