package access

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
)

// A Team is a part of an organisation to which jobs and cloud accounts can belong.
type Team struct {
	ID        string    `json:"id"`
	OrgID     string    `json:"-"`
	Name      string    `json:"name"`
	CreatedBy string    `json:"createdBy"`
	CreatedAt time.Time `json:"createdAt"`
}

// TeamUse is what belongs to a team.
type TeamUse struct {
	Jobs     int64 `json:"jobs"`     // those that are not over
	Accounts int64 `json:"accounts"` // cloud accounts
}

const teamColumns = `id, org_id, name, created_by, created_at`

func scanTeam(row scanner) (Team, error) {
	var t Team
	var created int64
	err := row.Scan(&t.ID, &t.OrgID, &t.Name, &t.CreatedBy, &created)
	t.CreatedAt = fromMicros(created)
	return t, err
}

// ErrNoTeam is a team that does not exist, or not in this organisation.
var ErrNoTeam = errors.New("there is no such team in your organisation")

// GetTeam reads an organisation's team by its ID or its name; [ErrNoTeam].
func GetTeam(ctx context.Context, q db.Q, org, ref string) (*Team, error) {
	t, err := scanTeam(q.QueryRow(ctx, `SELECT `+teamColumns+` FROM teams WHERE org_id = $1 AND (id = $2 OR name = $2) ORDER BY CASE WHEN id = $2 THEN 0 ELSE 1 END LIMIT 1`, org, ref))
	if errors.Is(err, db.ErrNoRows) {
		return nil, ErrNoTeam
	}
	if err != nil {
		return nil, fmt.Errorf("team: %w", err)
	}
	return &t, nil
}

// ListTeams lists those of an organisation's teams that are seen, by name, from
// after the one that is named.
func ListTeams(ctx context.Context, q db.Q, org string, see job.Visible, after string, limit int) ([]Team, error) {
	c := &clause{}
	where := "org_id = " + c.arg(org) + " AND name > " + c.arg(after)
	if !see.All {
		if len(see.Teams) == 0 {
			return nil, nil
		}
		where += " AND id IN " + c.list(see.Teams)
	}
	return gather(ctx, q, "teams", scanTeam, `SELECT `+teamColumns+` FROM teams WHERE `+where+` ORDER BY name LIMIT `+c.arg(int64(limit)), c.args...)
}

// AddTeam stores a team; [ErrTaken].
func AddTeam(ctx context.Context, tx db.Q, t *Team) error {
	t.ID = job.NewID("team")
	var created int64
	err := tx.QueryRow(ctx, `INSERT INTO teams (id, org_id, name, created_by, created_at) VALUES ($1, $2, $3, $4, (SELECT `+db.Now(tx.Dialect())+`)) ON CONFLICT DO NOTHING RETURNING created_at`,
		t.ID, t.OrgID, t.Name, t.CreatedBy).Scan(&created)
	if errors.Is(err, db.ErrNoRows) {
		return fmt.Errorf("team %s: %w", t.Name, ErrTaken)
	}
	if err != nil {
		return fmt.Errorf("team %s: %w", t.Name, err)
	}
	t.CreatedAt = fromMicros(created)
	return nil
}

// RenameTeam gives a team another name; [ErrTaken].
func RenameTeam(ctx context.Context, tx db.Q, org, id, name string) error {
	var other string
	err := tx.QueryRow(ctx, `SELECT id FROM teams WHERE org_id = $1 AND name = $2 AND id <> $3`, org, name, id).Scan(&other)
	if err == nil {
		return fmt.Errorf("team %s: %w", name, ErrTaken)
	}
	if !errors.Is(err, db.ErrNoRows) {
		return fmt.Errorf("team %s: %w", name, err)
	}
	if _, err := tx.Exec(ctx, `UPDATE teams SET name = $3 WHERE org_id = $1 AND id = $2`, org, id, name); err != nil {
		return fmt.Errorf("team %s: %w", id, err)
	}
	return nil
}

// UseOf counts what belongs to a team and is not over.
func UseOf(ctx context.Context, q db.Q, org, id string) (TeamUse, error) {
	var u TeamUse
	err := q.QueryRow(ctx, `SELECT (SELECT count(*) FROM provisioning_jobs WHERE org_id = $1 AND team_id = $2 AND status <> 'cancelled'),
		(SELECT count(*) FROM cloud_accounts WHERE org_id = $1 AND team_id = $2)`, org, id).Scan(&u.Jobs, &u.Accounts)
	if err != nil {
		return u, fmt.Errorf("team %s: %w", id, err)
	}
	return u, nil
}

// DeleteTeam removes a team with the assignments at it, and says how many those
// were. What belongs to it is looked at before.
func DeleteTeam(ctx context.Context, tx db.Q, org, id string) (assignments int64, err error) {
	if assignments, err = tx.Exec(ctx, `DELETE FROM assignments WHERE org_id = $1 AND scope_kind = 'team' AND scope_id = $2`, org, id); err != nil {
		return 0, fmt.Errorf("assignments at team %s: %w", id, err)
	}
	if _, err := tx.Exec(ctx, `DELETE FROM teams WHERE org_id = $1 AND id = $2`, org, id); err != nil {
		return 0, fmt.Errorf("team %s: %w", id, err)
	}
	return assignments, nil
}

// ResourceTeam says which team a job or a cloud account belongs to, "" for none;
// [ErrMissing] if the organisation has none with the ID.
func ResourceTeam(ctx context.Context, q db.Q, org, id string) (team string, err error) {
	err = q.QueryRow(ctx, `SELECT team_id FROM provisioning_jobs WHERE org_id = $1 AND id = $2
		UNION ALL SELECT team_id FROM cloud_accounts WHERE org_id = $1 AND id = $2 LIMIT 1`, org, id).Scan(&team)
	if errors.Is(err, db.ErrNoRows) {
		return "", ErrMissing
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", id, err)
	}
	return team, nil
}
