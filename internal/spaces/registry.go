// Package spaces makes what was built known as a place to deploy to. The
// provisioner talks to it over gRPC only, so that an external config service
// can be named instead; the built-in one keeps its registry in the ledger's
// database and is served by the same binary.
package spaces

import (
	"context"
	"errors"
	"fmt"

	"connectrpc.com/connect"

	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
	configv1 "github.com/zopday/provisioner/internal/spaces/configv1"
)

// A Registry is the built-in config and discovery service.
type Registry struct{ d *db.DB }

// NewRegistry keeps the spaces in a migrated database.
func NewRegistry(d *db.DB) *Registry { return &Registry{d} }

// RegisterSpace makes a space known; the same subject again gives the same space.
func (g *Registry) RegisterSpace(ctx context.Context, req *connect.Request[configv1.RegisterSpaceRequest]) (*connect.Response[configv1.RegisterSpaceResponse], error) {
	s := req.Msg.GetSpace()
	for field, v := range map[string]string{"org_id": s.GetOrgId(), "name": s.GetName(), "subject_type": s.GetSubjectType(), "subject_id": s.GetSubjectId()} {
		if v == "" {
			return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("space.%s is empty; a space needs it", field))
		}
	}
	var id string
	err := g.d.InTx(ctx, func(ctx context.Context, tx db.Q) error {
		return tx.QueryRow(ctx, `INSERT INTO spaces (id, org_id, name, job_id, subject_type, subject_id, provider, region, exec_mode, created_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, `+g.d.Now()+`)
			ON CONFLICT (org_id, subject_type, subject_id) DO UPDATE SET name = excluded.name, job_id = excluded.job_id,
				provider = excluded.provider, region = excluded.region, exec_mode = excluded.exec_mode
			RETURNING id`,
			job.NewID("spc"), s.GetOrgId(), s.GetName(), s.GetJobId(), s.GetSubjectType(), s.GetSubjectId(), s.GetProvider(), s.GetRegion(), s.GetExecMode(),
		).Scan(&id)
	})
	if err != nil {
		return nil, connect.NewError(connect.CodeUnavailable, err)
	}
	return connect.NewResponse(&configv1.RegisterSpaceResponse{Id: id}), nil
}

// DeregisterSpace forgets a space; one that is not known is no error.
func (g *Registry) DeregisterSpace(ctx context.Context, req *connect.Request[configv1.DeregisterSpaceRequest]) (*connect.Response[configv1.DeregisterSpaceResponse], error) {
	if _, err := g.d.Writer().Exec(ctx, `DELETE FROM spaces WHERE org_id = $1 AND id = $2`, req.Msg.GetOrgId(), req.Msg.GetId()); err != nil {
		return nil, connect.NewError(connect.CodeUnavailable, err)
	}
	return connect.NewResponse(&configv1.DeregisterSpaceResponse{}), nil
}

// Sync notes that a space is to be looked at.
func (g *Registry) Sync(ctx context.Context, req *connect.Request[configv1.SyncRequest]) (*connect.Response[configv1.SyncResponse], error) {
	n, err := g.d.Writer().Exec(ctx, `UPDATE spaces SET sync_asked_at = `+g.d.Now()+` WHERE org_id = $1 AND id = $2`, req.Msg.GetOrgId(), req.Msg.GetSpaceId())
	switch {
	case err != nil:
		return nil, connect.NewError(connect.CodeUnavailable, err)
	case n == 0:
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("there is no space %s", req.Msg.GetSpaceId()))
	}
	return connect.NewResponse(&configv1.SyncResponse{}), nil
}

// Get reads one space of an organisation; db.ErrNoRows if there is none.
func (g *Registry) Get(ctx context.Context, org, id string) (*configv1.Space, error) {
	s := &configv1.Space{}
	err := g.d.QueryRow(ctx, `SELECT id, org_id, name, job_id, subject_type, subject_id, provider, region, exec_mode FROM spaces WHERE org_id = $1 AND id = $2`, org, id).
		Scan(&s.Id, &s.OrgId, &s.Name, &s.JobId, &s.SubjectType, &s.SubjectId, &s.Provider, &s.Region, &s.ExecMode)
	if errors.Is(err, db.ErrNoRows) {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("space %s: %w", id, err)
	}
	return s, nil
}
