package provision

import (
	"context"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/audit"
	"github.com/zopday/provisioner/internal/db"
)

// SignedIn notes that the caller has come in with a token, in a browser.
func (s *Service) SignedIn(ctx context.Context) error { return s.sessionNoted(ctx, "session:create") }

// SignedOut notes that the caller has signed out.
func (s *Service) SignedOut(ctx context.Context) error { return s.sessionNoted(ctx, "session:delete") }

func (s *Service) sessionNoted(ctx context.Context, action string) error {
	p, ok := access.From(ctx)
	if !ok {
		return refusalOf(access.ErrUnauthenticated)
	}
	return s.Ledger.DB().InTx(ctx, func(ctx context.Context, tx db.Q) error {
		return audit.Append(ctx, tx, audit.Entry{Org: p.OrgID, Actor: p.Actor, Action: action, ResourceType: "session", Outcome: audit.Allowed, Scope: string(access.OrgScope), RequestID: RequestID(ctx)})
	})
}
