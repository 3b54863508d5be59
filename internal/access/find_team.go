package access

import (
	"context"
	"errors"
	"fmt"

	"github.com/zopday/provisioner/internal/db"
)

// ErrNoTeam is a team that does not exist, or not in this organisation.
var ErrNoTeam = errors.New("there is no such team in your organisation")

// FindTeam is the ID of an organisation's team, by its ID or its name.
func FindTeam(ctx context.Context, q db.Q, org, ref string) (id string, err error) {
	err = q.QueryRow(ctx, `SELECT id FROM teams WHERE org_id = $1 AND (id = $2 OR name = $2)`, org, ref).Scan(&id)
	if errors.Is(err, db.ErrNoRows) {
		return "", ErrNoTeam
	}
	if err != nil {
		return "", fmt.Errorf("team: %w", err)
	}
	return id, nil
}
