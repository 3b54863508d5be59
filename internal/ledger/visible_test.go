package ledger_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/ledger"
)

// A caller finds and lists the jobs of its teams, and those named to it, alone.
func TestVisible(t *testing.T) {
	conform(t, func(t *testing.T, e *env) {
		shop := e.insert(t, func(j *job.Job) { j.Name, j.TeamID = "shop", "team_a" })
		core := e.insert(t, func(j *job.Job) { j.Name, j.TeamID = "core", "team_b" })
		free := e.insert(t, func(j *job.Job) { j.Name = "free" })
		for name, tc := range map[string]struct {
			see  job.Visible
			want []string
		}{
			"everything":       {job.Everything, []string{"core", "free", "shop"}},
			"nothing":          {job.Visible{}, nil},
			"a team":           {job.Visible{Teams: []string{"team_a"}}, []string{"shop"}},
			"two teams":        {job.Visible{Teams: []string{"team_a", "team_b"}}, []string{"core", "shop"}},
			"a job":            {job.Visible{IDs: []string{free.ID}}, []string{"free"}},
			"a team and a job": {job.Visible{Teams: []string{"team_b"}, IDs: []string{free.ID, "job_none"}}, []string{"core", "free"}},
			"the empty team":   {job.Visible{Teams: []string{""}, IDs: []string{""}}, nil},
		} {
			jobs, _, err := e.List(e.ctx, org, tc.see, ledger.Filter{Sort: ledger.SortName})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, j := range jobs {
				got = append(got, j.Name)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
			for _, j := range []*job.Job{shop, core, free} {
				wanted := slices.Contains(tc.want, j.Name)
				if covers := tc.see.Covers(j.TeamID, j.ID); covers != wanted {
					t.Errorf("%s covers %s: %v", name, j.Name, covers)
				}
				for _, ref := range []string{j.ID, j.Name} {
					found, err := e.Resolve(e.ctx, org, tc.see, ref)
					if wanted != (err == nil && len(found) == 1) || !wanted && !errors.Is(err, ledger.ErrNotFound) {
						t.Errorf("%s: Resolve %s: %d jobs, %v", name, ref, len(found), err)
					}
				}
			}
		}
		if got, err := e.Get(e.ctx, org, shop.ID); err != nil || got.TeamID != "team_a" {
			t.Errorf("team %q, %v", got.TeamID, err)
		}
	})
}
