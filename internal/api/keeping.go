package api

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/provision"
)

const forOperators = " For admins of the organisation that the installation began with."

// keepingRoutes are what concerns the whole installation.
func (s *server) keepingRoutes() {
	policies := []access.Policy{access.TokenManage}
	tags := []string{"Installation"}
	type status struct{ Body Data[provision.SecretsStatus] }
	route(s, huma.Operation{
		OperationID: "get-secrets", Method: http.MethodGet, Path: "/secrets", Tags: tags, Summary: "How secrets are kept",
		Description: "Which keys the secrets at rest are encrypted with, by their IDs." + forOperators,
	}, policies, func(ctx context.Context, _ *struct{}) (*status, error) {
		st, err := s.Service.SecretsStatus(ctx)
		if err != nil {
			return nil, err
		}
		return &status{Data[provision.SecretsStatus]{Data: st}}, nil
	})
	type rotation struct{ Body Data[provision.Rotation] }
	route(s, huma.Operation{
		OperationID: "rotate-secrets", Method: http.MethodPost, Path: "/secrets/rotate", Tags: tags, Summary: "Rotate the key of the secrets", Errors: []int{409},
		Description: "Makes a new data key and writes every secret anew with it. Every secret can be read meanwhile; one that is cut off is brought to its end by the next." + forOperators,
	}, policies, func(ctx context.Context, _ *struct{}) (*rotation, error) {
		r, err := s.Service.RotateSecrets(ctx)
		if err != nil {
			return nil, err
		}
		return &rotation{Data[provision.Rotation]{Data: r}}, nil
	})
	s.backupRoute(policies, tags)
}

// backupStall is for how long whoever reads a backup may take nothing.
const backupStall = 30 * time.Second

func (s *server) backupRoute(policies []access.Policy, tags []string) {
	type out struct{ Body func(huma.Context) }
	route(s, huma.Operation{
		OperationID: "create-backup", Method: http.MethodPost, Path: "/backup", Tags: tags, Summary: "Back the database up", Errors: []int{409},
		Description: "The database as it is at this moment, as an SQLite file. It holds every organisation; secrets are in it encrypted, and the key is not. A PostgreSQL database is backed up with pg_dump." + forOperators,
		Responses:   map[string]*huma.Response{"200": {Description: "An SQLite file", Content: map[string]*huma.MediaType{"application/vnd.sqlite3": {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}}}}},
	}, policies, func(ctx context.Context, _ *struct{}) (*out, error) {
		file, size, err := s.Service.Backup(ctx)
		if err != nil {
			return nil, err
		}
		return &out{func(hc huma.Context) {
			defer file.Close()
			_, w := humago.Unwrap(hc)
			w.Header().Set("Content-Type", "application/vnd.sqlite3")
			w.Header().Set("Content-Disposition", `attachment; filename="zopday.db"`)
			w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
			rc := http.NewResponseController(w)
			for {
				// Not every writer has deadlines (a test's recorder has none).
				_ = rc.SetWriteDeadline(time.Now().Add(backupStall))
				if _, err := io.CopyN(w, file, 1<<20); errors.Is(err, io.EOF) {
					return
				} else if err != nil {
					s.Log.WarnContext(hc.Context(), "a backup was cut off", "error", err)
					panic(http.ErrAbortHandler)
				}
			}
		}}, nil
	})
}
