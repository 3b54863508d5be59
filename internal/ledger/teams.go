package ledger

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// TeamsOf says which team each of an organisation's jobs belongs to, by job ID. A
// job of no team, or of another organisation, is left out.
func (l *Ledger) TeamsOf(ctx context.Context, org string, jobs []string) (map[string]string, error) {
	out := map[string]string{}
	for ids := range slices.Chunk(jobs, 200) {
		args := []any{org}
		for _, id := range ids {
			args = append(args, id)
		}
		marks := make([]string, len(ids))
		for i := range marks {
			marks[i] = fmt.Sprintf("$%d", i+2)
		}
		rows, err := l.d.Query(ctx, `SELECT id, team_id FROM provisioning_jobs WHERE org_id = $1 AND team_id <> '' AND id IN (`+strings.Join(marks, ", ")+`)`, args...)
		if err != nil {
			return nil, fmt.Errorf("teams of jobs: %w", err)
		}
		for rows.Next() {
			var id, team string
			if err := rows.Scan(&id, &team); err != nil {
				_ = rows.Close() // the error that matters is the one above
				return nil, fmt.Errorf("teams of jobs: %w", err)
			}
			out[id] = team
		}
		if err := rows.Close(); err != nil {
			return nil, fmt.Errorf("teams of jobs: %w", err)
		}
	}
	return out, nil
}
