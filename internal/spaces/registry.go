// Package spaces makes what was built known as a place to deploy to. The
// provisioner talks to it over gRPC only, so that an external config service
// can be named instead; the built-in one keeps its registry in the ledger's
// database and is served by the same binary.
package spaces

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"connectrpc.com/connect"

	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
	configv1 "github.com/zopday/provisioner/internal/spaces/configv1"
)

// spaceTypes are what can be deployed to a space.
var spaceTypes = []string{job.SpaceKubernetes, job.SpaceVM}

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
	if !slices.Contains(spaceTypes, s.GetSpaceType()) {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("space.space_type %q: use %s", s.GetSpaceType(), strings.Join(spaceTypes, " or ")))
	}
	config, err := json.Marshal(s.GetConfig())
	if err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("space.config: %w", err))
	}
	var id string
	ctx = db.WithOrg(ctx, s.GetOrgId())
	err = g.d.InTx(ctx, func(ctx context.Context, tx db.Q) error {
		return tx.QueryRow(ctx, `INSERT INTO spaces (id, org_id, name, job_id, subject_type, subject_id, provider, region, exec_mode, space_type, cloud_account_id, config, created_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, `+g.d.Now()+`)
			ON CONFLICT (org_id, subject_type, subject_id) DO UPDATE SET name = excluded.name, job_id = excluded.job_id,
				provider = excluded.provider, region = excluded.region, exec_mode = excluded.exec_mode,
				space_type = excluded.space_type, cloud_account_id = excluded.cloud_account_id, config = excluded.config
			RETURNING id`,
			job.NewID("spc"), s.GetOrgId(), s.GetName(), s.GetJobId(), s.GetSubjectType(), s.GetSubjectId(), s.GetProvider(), s.GetRegion(), s.GetExecMode(),
			s.GetSpaceType(), cmp.Or(s.GetCloudAccountId(), "default"), string(config),
		).Scan(&id)
	})
	if err != nil {
		return nil, connect.NewError(connect.CodeUnavailable, err)
	}
	return connect.NewResponse(&configv1.RegisterSpaceResponse{Id: id}), nil
}

// DeregisterSpace forgets a space; one that is not known is no error.
func (g *Registry) DeregisterSpace(ctx context.Context, req *connect.Request[configv1.DeregisterSpaceRequest]) (*connect.Response[configv1.DeregisterSpaceResponse], error) {
	if _, err := g.d.Writer().Exec(db.WithOrg(ctx, req.Msg.GetOrgId()), `DELETE FROM spaces WHERE org_id = $1 AND id = $2`, req.Msg.GetOrgId(), req.Msg.GetId()); err != nil {
		return nil, connect.NewError(connect.CodeUnavailable, err)
	}
	return connect.NewResponse(&configv1.DeregisterSpaceResponse{}), nil
}

// The pages of a list.
const (
	pageDefault = 100
	pageMost    = 500
)

// tokenRE is what a page token can be: the ID that a page ended with.
var tokenRE = regexp.MustCompile(`^spc_[0-9a-z]{1,60}$`)

// ListSpaces lists an organisation's spaces, the newest first: an ID grows with time.
func (g *Registry) ListSpaces(ctx context.Context, req *connect.Request[configv1.ListSpacesRequest]) (*connect.Response[configv1.ListSpacesResponse], error) {
	size := int(req.Msg.GetPageSize())
	if size <= 0 {
		size = pageDefault
	}
	size = min(size, pageMost)
	before := req.Msg.GetPageToken()
	switch {
	case before == "":
		before = "~" // behind every ID
	case !tokenRE.MatchString(before):
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("page_token is not one of this list"))
	}
	rows, err := g.d.Query(db.WithOrg(ctx, req.Msg.GetOrgId()), `SELECT `+columns+` FROM spaces WHERE org_id = $1 AND id < $2 ORDER BY id DESC LIMIT $3`, req.Msg.GetOrgId(), before, size+1)
	if err != nil {
		return nil, connect.NewError(connect.CodeUnavailable, err)
	}
	defer rows.Close()
	out := &configv1.ListSpacesResponse{}
	for rows.Next() {
		s, err := scan(rows)
		if err != nil {
			return nil, connect.NewError(connect.CodeInternal, err)
		}
		if len(out.Spaces) == size {
			out.NextPageToken = out.Spaces[size-1].GetId()
			break
		}
		out.Spaces = append(out.Spaces, s)
	}
	if err := rows.Err(); err != nil {
		return nil, connect.NewError(connect.CodeUnavailable, err)
	}
	return connect.NewResponse(out), nil
}

// GetSpace reads one space of an organisation.
func (g *Registry) GetSpace(ctx context.Context, req *connect.Request[configv1.GetSpaceRequest]) (*connect.Response[configv1.GetSpaceResponse], error) {
	s, err := scan(g.d.QueryRow(db.WithOrg(ctx, req.Msg.GetOrgId()), `SELECT `+columns+` FROM spaces WHERE org_id = $1 AND id = $2`, req.Msg.GetOrgId(), req.Msg.GetId()))
	switch {
	case errors.Is(err, db.ErrNoRows):
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("there is no space %s", req.Msg.GetId()))
	case err != nil:
		return nil, connect.NewError(connect.CodeUnavailable, err)
	}
	return connect.NewResponse(&configv1.GetSpaceResponse{Space: s}), nil
}

// Sync notes that a space is to be looked at.
func (g *Registry) Sync(ctx context.Context, req *connect.Request[configv1.SyncRequest]) (*connect.Response[configv1.SyncResponse], error) {
	n, err := g.d.Writer().Exec(db.WithOrg(ctx, req.Msg.GetOrgId()), `UPDATE spaces SET status = 'synced', sync_asked_at = `+g.d.Now()+` WHERE org_id = $1 AND id = $2`, req.Msg.GetOrgId(), req.Msg.GetSpaceId())
	switch {
	case err != nil:
		return nil, connect.NewError(connect.CodeUnavailable, err)
	case n == 0:
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("there is no space %s", req.Msg.GetSpaceId()))
	}
	return connect.NewResponse(&configv1.SyncResponse{}), nil
}

const columns = `id, org_id, name, job_id, subject_type, subject_id, provider, region, exec_mode, space_type, cloud_account_id, status, config, created_at`

// scan reads one row of columns.
func scan(row interface{ Scan(into ...any) error }) (*configv1.Space, error) {
	s := &configv1.Space{}
	var config string
	if err := row.Scan(&s.Id, &s.OrgId, &s.Name, &s.JobId, &s.SubjectType, &s.SubjectId, &s.Provider, &s.Region, &s.ExecMode,
		&s.SpaceType, &s.CloudAccountId, &s.Status, &config, &s.CreatedAt); err != nil {
		return nil, err
	}
	if err := json.Unmarshal([]byte(config), &s.Config); err != nil {
		return nil, fmt.Errorf("config of space %s: %w", s.Id, err)
	}
	return s, nil
}
