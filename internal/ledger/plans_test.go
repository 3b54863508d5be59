package ledger_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/ledger"
	"github.com/zopday/provisioner/internal/pgtest"
)

// The most rows that a plan may read or throw away on its way to a page of 50.
const fewRows = 2000

var (
	sequential = regexp.MustCompile(`Seq Scan on (provisioning_jobs|job_steps|job_events|inventory|audit_log)`)
	readRows   = regexp.MustCompile(`(?:rows=|Rows Removed by (?:Filter|Index Recheck): )(\d+) ?(?:loops=|\n)`)
)

// Row-level security takes no index from the statements that are run most, and they
// read no more than they need, among a hundred thousand jobs of some organisations:
// every plan is taken from the server as it was carried out for the service role.
func TestPlansUnderRowSecurity(t *testing.T) {
	t.Parallel()
	s := pgtest.Start(t, pgtest.Options{Settings: map[string]string{
		"session_preload_libraries": "auto_explain", "auto_explain.log_min_duration": "0", "auto_explain.log_analyze": "on", "auto_explain.log_timing": "off",
	}})
	dsn := s.ServiceDatabase(t)
	e := open(t, dsn)
	e.register(t, "w")
	mine := e.insert(t, func(j *job.Job) { j.Labels = map[string]string{"team": "shop"} })
	super, err := pgx.Connect(t.Context(), pgtest.Superuser(t, dsn))
	must(t, err)
	defer super.Close(e.ctx)
	for _, statement := range []string{
		`INSERT INTO provisioning_jobs (id, org_id, kind, resource_type, provider, mode, name, cloud_account_id, region, labels, subject_type, subject_id,
			status, phase, run, spec, created_by, created_at, updated_at, next_run_at)
			SELECT 'job_x' || n, CASE WHEN n <= 100 THEN 'org_few' ELSE 'org_' || n % 3 END, kind, resource_type, provider, mode, 'x' || n, cloud_account_id, region, '{"team":"other"}', subject_type, 'vmp_x' || n,
			CASE WHEN n % 10 = 0 THEN 'running' ELSE 'completed' END, phase, run, spec, created_by, created_at - n, updated_at,
			CASE WHEN n % 10 = 0 THEN created_at + 3600000000 + n END
			FROM provisioning_jobs, generate_series(1, 100000) AS n WHERE id = $1`,
		`INSERT INTO job_events (job_id, seq, org_id, time, type) SELECT j.id, n, j.org_id, 0, 'x' FROM provisioning_jobs AS j, generate_series(1, 2) AS n WHERE j.id <> $1`,
		`INSERT INTO job_steps (job_id, org_id, run, step, direction, status) SELECT id, org_id, 1, 'x', 'up', 'done' FROM provisioning_jobs WHERE id <> $1`,
		`INSERT INTO inventory (job_id, kind, key, org_id, cloud, account, region, state) SELECT id, 'x', 'x', org_id, 'aws', '1', 'r', 'created' FROM provisioning_jobs WHERE id <> $1`,
	} {
		_, err := super.Exec(t.Context(), statement, mine.ID)
		must(t, err)
	}
	_, err = super.Exec(t.Context(), `ANALYZE`)
	must(t, err)

	org1 := db.WithOrg(e.ctx, org)
	other := e.job()
	var lease ledger.Lease
	for _, op := range []struct {
		name string
		run  func() error
	}{
		{"claim", func() error { lease = e.claim(t, "w").Lease; return nil }},
		{"renew", func() error { _, err := e.Renew(e.ctx, lease, time.Minute); return err }},
		{"checkpoint", func() error {
			_, err := e.Checkpoint(e.ctx, lease, full(mine, 1))
			return err
		}},
		{"release", func() error { return e.ReleaseAll(e.ctx, "w", lease) }},
		{"get", func() error { _, err := e.Get(org1, org, mine.ID); return err }},
		{"list", func() error { _, _, err := e.List(org1, org, job.Everything, ledger.Filter{}); return err }},
		{"list by state", func() error {
			_, _, err := e.List(db.WithOrg(e.ctx, "org_2"), "org_2", job.Everything, ledger.Filter{Status: []job.Status{job.Completed}})
			return err
		}},
		{"resolve by ID", func() error { _, err := e.Resolve(org1, org, job.Everything, mine.ID); return err }},
		{"steps", func() error { _, err := e.Steps(org1, org, mine.ID); return err }},
		{"events", func() error { _, err := e.Events(org1, org, mine.ID, 0, 50); return err }},
		{"objects", func() error { _, err := e.Objects(org1, org, mine.ID); return err }},
		{"insert", func() error { return e.Insert(org1, e.d, other) }},
		{"change", func() error {
			_, err := e.Change(org1, nil, org, other.ID, func(j *job.Job, _ ledger.Standing) error { j.Name = "renamed"; return nil })
			return err
		}},
	} {
		plans := plansOf(t, s, op.run)
		if len(plans) == 0 {
			t.Errorf("%s: no plan is in the server's log", op.name)
		}
		for _, plan := range plans {
			if sequential.MatchString(plan) {
				t.Errorf("%s reads a whole table:\n%s", op.name, plan)
			}
			for _, m := range readRows.FindAllStringSubmatch(plan, -1) {
				if n, err := strconv.Atoi(m[1]); err != nil || n > fewRows {
					t.Errorf("%s reads %s rows on its way:\n%s", op.name, m[1], plan)
				}
			}
		}
	}
	// The filter on labels has no index of its own: row-level security takes none from
	// it, and the organisation's is used still.
	plans := plansOf(t, s, func() error {
		got, _, err := e.List(db.WithOrg(e.ctx, "org_few"), "org_few", job.Everything, ledger.Filter{Labels: map[string]string{"team": "other"}})
		if err == nil && len(got) != 50 {
			err = fmt.Errorf("%d jobs", len(got))
		}
		return err
	})
	if len(plans) != 1 || !strings.Contains(plans[0], "Index Cond: (org_id = ") {
		t.Errorf("the label filter:\n%s", strings.Join(plans, "\n"))
	}
}

// plansOf are the plans of the statements that fn has the server carry out.
func plansOf(t *testing.T, s *pgtest.Server, fn func() error) []string {
	t.Helper()
	mark := fmt.Sprintf("mark_%d", time.Now().UnixNano())
	before := len(s.Log(t))
	if err := fn(); err != nil {
		t.Fatal(err)
	}
	asSuperuser(t, s.Port(), `SELECT 1 AS `+mark)
	var text string
	for deadline := time.Now().Add(20 * time.Second); !strings.Contains(text, mark); time.Sleep(20 * time.Millisecond) {
		if text = s.Log(t)[before:]; time.Now().After(deadline) {
			t.Fatal("the server logs no plans")
		}
	}
	text, _, _ = strings.Cut(text, mark)
	var plans []string
	for part := range strings.SplitSeq(text, "Query Text: ") {
		if strings.Contains(part, "set_config") || !strings.Contains(part, "rows=") {
			continue
		}
		plans = append(plans, part)
	}
	return plans
}
