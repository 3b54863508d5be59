package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/audit"
	"github.com/zopday/provisioner/internal/provision"
)

// AuditFilter is the query of everything that reads the audit log.
type AuditFilter struct {
	Scope        string    `query:"scope" maxLength:"200" doc:"What the actor's role was bound to"`
	Action       string    `query:"action" maxLength:"200" doc:"As the policies spell it, such as provisioning-job:create"`
	Actor        string    `query:"actor" maxLength:"200"`
	ResourceType string    `query:"resourceType" maxLength:"200"`
	ResourceID   string    `query:"resourceId" maxLength:"200"`
	RequestID    string    `query:"requestId" maxLength:"200"`
	Outcome      string    `query:"outcome" enum:"allowed,refused,failed"`
	From         time.Time `query:"from" doc:"RFC 3339; included"`
	To           time.Time `query:"to" doc:"RFC 3339; not included"`
}

func (in *AuditFilter) filter() (audit.Filter, error) {
	if err := plainText(in.Scope, in.Action, in.Actor, in.ResourceType, in.ResourceID, in.RequestID); err != nil {
		return audit.Filter{}, err
	}
	return audit.Filter{
		Scope: in.Scope, Action: in.Action, Actor: in.Actor, ResourceType: in.ResourceType, ResourceID: in.ResourceID, RequestID: in.RequestID,
		Outcome: audit.Outcome(in.Outcome), From: in.From, To: in.To,
	}, nil
}

// auditIn asks for one page of the audit log.
type auditIn struct {
	AuditFilter
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
	Cursor string `query:"cursor" maxLength:"300" doc:"nextCursor of the page before"`
}

func (s *server) auditRoutes() {
	type out struct{ Body List[audit.Entry] }
	route(s, huma.Operation{
		OperationID: "list-audit-logs", Method: http.MethodGet, Path: "/audit-logs", Tags: []string{"Audit"},
		Summary: "Read the audit log", Errors: []int{422},
		Description: "Every mutation, allowed or refused, newest first. About a second after it was written an entry is sealed: it has its number, and its hash over the one before it.",
	}, []access.Policy{access.AuditView}, func(ctx context.Context, in *auditIn) (*out, error) {
		f, err := in.filter()
		if err != nil {
			return nil, err
		}
		f.Limit, f.Cursor = in.Limit, in.Cursor
		entries, next, err := s.Service.AuditLog(ctx, f)
		if err != nil {
			return nil, err
		}
		return &out{listOf(entries, next)}, nil
	})
	s.auditVerifyRoute()
	s.auditExportRoute()
}

func (s *server) auditVerifyRoute() {
	type out struct{ Body Data[*provision.AuditCheck] }
	route(s, huma.Operation{
		OperationID: "verify-audit-logs", Method: http.MethodGet, Path: "/audit-logs/verify", Tags: []string{"Audit"},
		Summary: "Check the audit log", Description: "Walks the whole chain: a missing, changed, moved or added entry shows. What is not sealed yet is counted.",
	}, []access.Policy{access.AuditView}, func(ctx context.Context, _ *struct{}) (*out, error) {
		check, err := s.Service.VerifyAudit(ctx)
		if err != nil {
			return nil, err
		}
		return &out{Data[*provision.AuditCheck]{Data: check}}, nil
	})
}
