package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/ledger"
)

func TestClaimIsExclusive(t *testing.T) {
	conform(t, func(t *testing.T, e *env) {
		const jobs, workers = 150, 8
		for range jobs {
			e.insert(t)
		}
		var (
			mu    sync.Mutex
			wg    sync.WaitGroup
			taken = make(map[string][]string)
			token = make(map[string]bool)
		)
		for w := range workers {
			name := fmt.Sprintf("w%d", w)
			e.register(t, name)
			wg.Go(func() {
				for {
					cs, err := e.Claim(e.ctx, name, 1+w%3, ledger.ClaimOptions{})
					if err != nil {
						t.Error(err)
						return
					}
					if len(cs) == 0 {
						return
					}
					mu.Lock()
					for _, c := range cs {
						taken[c.Job.ID] = append(taken[c.Job.ID], name)
						token[c.Lease.Token] = true
						if c.Job.Status != job.Running || c.Lease.Worker != name || c.TakenFrom != "" || c.Lease.OrgID != org {
							t.Errorf("claimed %+v under %+v, from %q", c.Job, c.Lease, c.TakenFrom)
						}
					}
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		if len(taken) != jobs || len(token) != jobs {
			t.Errorf("%d jobs claimed under %d tokens, want %d", len(taken), len(token), jobs)
		}
		for id, by := range taken {
			if len(by) != 1 {
				t.Errorf("%s was claimed by %v", id, by)
			}
		}
	})
}

func TestClaimTakesWhatIsDue(t *testing.T) {
	conform(t, func(t *testing.T, e *env) {
		e.register(t, "w")
		e.insert(t, func(j *job.Job) { j.Status = job.Draft })
		old := e.insert(t)
		young := e.insert(t)
		other := e.insert(t, func(j *job.Job) { j.OrgID = "org_2" })
		e.sql(t, `UPDATE provisioning_jobs SET next_run_at = next_run_at - 1000 WHERE id = $1`, old.ID)
		e.sql(t, `UPDATE provisioning_jobs SET next_run_at = next_run_at + 60000000 WHERE id = $1`, other.ID)
		o := ledger.ClaimOptions{DefaultTTL: time.Hour, TTL: map[job.ResourceType]time.Duration{job.VM: time.Minute, job.Cluster: 2 * time.Hour}}
		cs, err := e.Claim(e.ctx, "w", 10, o)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, c := range cs {
			got = append(got, c.Job.ID)
			if d := c.Lease.TTL - time.Minute; d < -time.Second || d > time.Second {
				t.Errorf("the lease lasts %s, want the family's minute", c.Lease.TTL)
			}
		}
		if len(got) != 2 || !(got[0] == old.ID && got[1] == young.ID || got[0] == young.ID && got[1] == old.ID) {
			t.Errorf("claimed %v, want %v", got, []string{old.ID, young.ID})
		}
		// One at a time, the one that has been due longest is first.
		for _, c := range cs {
			if err := e.ReleaseAll(e.ctx, "w", c.Lease); err != nil {
				t.Fatal(err)
			}
		}
		if c := e.claim(t, "w"); c.Job.ID != old.ID {
			t.Errorf("claimed %s first, want %s", c.Job.ID, old.ID)
		}
	})
}

func TestTakeOver(t *testing.T) {
	const dead = 10 * time.Minute // long, so that a slow machine tips no scale
	o := ledger.ClaimOptions{DefaultTTL: time.Hour, DeadAfter: dead}
	for name, tc := range map[string]struct {
		happen func(t *testing.T, e *env, c ledger.Claimed)
		taken  bool
	}{
		"beating":                {func(t *testing.T, e *env, c ledger.Claimed) {}, false},
		"one beat of four lost":  {func(t *testing.T, e *env, c ledger.Claimed) { e.silent(t, "a", dead/2) }, false},
		"three beats lost":       {func(t *testing.T, e *env, c ledger.Claimed) { e.silent(t, "a", dead-time.Minute) }, false},
		"silent":                 {func(t *testing.T, e *env, c ledger.Claimed) { e.silent(t, "a", dead+100*time.Millisecond) }, true},
		"came back in time":      {func(t *testing.T, e *env, c ledger.Claimed) { e.silent(t, "a", 2*dead); e.register(t, "a") }, false},
		"gone":                   {func(t *testing.T, e *env, c ledger.Claimed) { must(t, e.Deregister(e.ctx, "a")) }, true},
		"TTL over while beating": {func(t *testing.T, e *env, c ledger.Claimed) { e.expire(t, c.Job.ID) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conform(t, func(t *testing.T, e *env) {
				e.register(t, "a", "b")
				e.insert(t)
				c := e.claim(t, "a", o)
				tc.happen(t, e, c)
				cs := e.tryClaim(t, "b", o)
				if (len(cs) == 1) != tc.taken {
					t.Fatalf("b claimed %d jobs, want taken=%t", len(cs), tc.taken)
				}
				_, err := e.Checkpoint(e.ctx, c.Lease, full(c.Job, 1))
				if tc.taken {
					if cs[0].TakenFrom != "a" || cs[0].Lease.Token == c.Lease.Token {
						t.Errorf("taken from %q under token %s, before %s", cs[0].TakenFrom, cs[0].Lease.Token, c.Lease.Token)
					}
					if !errors.Is(err, ledger.ErrLeaseLost) {
						t.Errorf("a's checkpoint after the take-over: %v", err)
					}
				} else if err != nil {
					t.Errorf("a's checkpoint: %v", err)
				}
			})
		})
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A worker that was stopped and wakes after its lease is gone writes nothing,
// whatever it tries (P7, P10).
func TestStaleTokenIsRefused(t *testing.T) {
	for name, lose := range map[string]func(t *testing.T, e *env, c ledger.Claimed){
		"taken over": func(t *testing.T, e *env, c ledger.Claimed) {
			e.silent(t, "a", time.Minute)
			e.claim(t, "b")
		},
		"expired and free": func(t *testing.T, e *env, c ledger.Claimed) { e.expire(t, c.Job.ID) },
		"given back":       func(t *testing.T, e *env, c ledger.Claimed) { must(t, e.ReleaseAll(e.ctx, "a")) },
		"released by parking": func(t *testing.T, e *env, c ledger.Claimed) {
			e.checkpoint(t, c.Lease, ledger.Checkpoint{Job: c.Job, Release: true, NextIn: time.Hour})
		},
		"changed by a person after it ran out": func(t *testing.T, e *env, c ledger.Claimed) {
			e.expire(t, c.Job.ID)
			_, err := e.Change(e.ctx, nil, org, c.Job.ID, func(j *job.Job, s ledger.Standing) error {
				j.Status, j.Phase, j.Run = job.Queued, job.PhaseTeardown, 2
				return nil
			})
			must(t, err)
			// Not even with the clock of the database set back.
			e.sql(t, `UPDATE provisioning_jobs SET lease_expires_at = `+e.d.Now()+` + 1000000000 WHERE id = $1`, c.Job.ID)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conform(t, func(t *testing.T, e *env) {
				e.register(t, "a", "b")
				e.insert(t)
				c := e.claim(t, "a")
				e.checkpoint(t, c.Lease, full(c.Job, 1))
				lose(t, e, c)
				before := e.record(t, c.Job.ID)

				late := full(c.Job, 2)
				late.Objects[0].ID = "vpc-late"
				if _, err := e.Checkpoint(e.ctx, c.Lease, late); !errors.Is(err, ledger.ErrLeaseLost) {
					t.Errorf("Checkpoint: %v", err)
				}
				c.Job.Status = job.Completed
				if _, err := e.Checkpoint(e.ctx, c.Lease, late); !errors.Is(err, ledger.ErrLeaseLost) {
					t.Errorf("final Checkpoint: %v", err)
				}
				if _, err := e.Renew(e.ctx, c.Lease, time.Hour); !errors.Is(err, ledger.ErrLeaseLost) {
					t.Errorf("Renew: %v", err)
				}
				if err := e.PutObjects(e.ctx, c.Lease, late.Objects...); !errors.Is(err, ledger.ErrLeaseLost) {
					t.Errorf("PutObjects: %v", err)
				}
				must(t, e.ReleaseAll(e.ctx, "a", c.Lease))
				got := e.record(t, c.Job.ID)
				if name == "expired and free" {
					// Giving back what nobody took is no harm, and is a write.
					before.Job.Version, before.Job.UpdatedAt = got.Job.Version, got.Job.UpdatedAt
				}
				if diff := cmp.Diff(before, got); diff != "" {
					t.Errorf("the late worker changed the ledger (-before +after):\n%s", diff)
				}
			})
		})
	}
}

// A claim passes over rows that somebody holds locked, and takes the others.
func TestClaimWaitsForNobody(t *testing.T) {
	e := open(t, dialects[db.Postgres](t))
	e.register(t, "a")
	locked, free := e.insert(t), e.insert(t)
	err := e.d.InTx(e.ctx, func(ctx context.Context, tx db.Q) error {
		_, err := e.Change(ctx, tx, org, locked.ID, func(j *job.Job, _ ledger.Standing) error { j.Labels = map[string]string{"a": "b"}; return nil })
		must(t, err)
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		cs, err := e.Claim(ctx, "a", 10, ledger.ClaimOptions{})
		if err != nil || len(cs) != 1 || cs[0].Job.ID != free.ID {
			t.Errorf("claimed %v, %v; want only %s", cs, err, free.ID)
		}
		return nil
	})
	must(t, err)
	if c := e.claim(t, "a"); c.Job.ID != locked.ID || c.Job.Labels["a"] != "b" {
		t.Errorf("after the commit: %s, labels %v", c.Job.ID, c.Job.Labels)
	}
}

// A holder that finishes at the moment in which it is taken for dead: either it
// finished, or the job was taken over, never both (P1).
func TestFinishAgainstTakeOver(t *testing.T) {
	conform(t, func(t *testing.T, e *env) {
		finished, taken := 0, 0
		for i := range 60 {
			e.register(t, "a", "b")
			e.insert(t)
			c := e.claim(t, "a")
			e.silent(t, "a", time.Minute)
			c.Job.Status = job.Completed
			var (
				wg  sync.WaitGroup
				err error
				cs  []ledger.Claimed
			)
			wg.Go(func() {
				time.Sleep(time.Duration(i%6) * 100 * time.Microsecond)
				_, err = e.Checkpoint(e.ctx, c.Lease, ledger.Checkpoint{Job: c.Job})
			})
			wg.Go(func() {
				time.Sleep(time.Duration(i/6%6) * 100 * time.Microsecond)
				cs = e.tryClaim(t, "b")
			})
			wg.Wait()
			now := e.get(t, c.Job.ID)
			switch {
			case err == nil && len(cs) == 0 && now.Status == job.Completed:
				finished++
			case errors.Is(err, ledger.ErrLeaseLost) && len(cs) == 1 && now.Status == job.Running:
				taken++
				now.Status = job.Completed
				e.checkpoint(t, cs[0].Lease, ledger.Checkpoint{Job: now})
			default:
				t.Fatalf("round %d: finish %v, %d claims, and the job is %s", i, err, len(cs), now.Status)
			}
		}
		t.Logf("finished %d, taken over %d", finished, taken)
	})
}

func TestReleaseIsFree(t *testing.T) {
	conform(t, func(t *testing.T, e *env) {
		e.register(t, "a", "b")
		e.insert(t)
		e.insert(t)
		c := e.claim(t, "a")
		second := e.claim(t, "a")
		c.Job.Attempts = 2
		e.checkpoint(t, c.Lease, ledger.Checkpoint{Job: c.Job})
		must(t, e.ReleaseAll(e.ctx, "a"))
		cs, err := e.Claim(e.ctx, "b", 10, ledger.ClaimOptions{})
		must(t, err)
		if len(cs) != 2 {
			t.Fatalf("b claimed %d jobs at once, want 2", len(cs))
		}
		for _, got := range cs {
			if got.TakenFrom != "" {
				t.Errorf("a job that was given back was taken from %q", got.TakenFrom)
			}
			if got.Job.ID == c.Job.ID && got.Job.Attempts != 2 || got.Job.ID == second.Job.ID && got.Job.Attempts != 0 {
				t.Errorf("%s has %d attempts after it was given back", got.Job.ID, got.Job.Attempts)
			}
		}
	})
}

func TestRenew(t *testing.T) {
	conform(t, func(t *testing.T, e *env) {
		e.register(t, "a")
		e.insert(t)
		c := e.claim(t, "a", ledger.ClaimOptions{DefaultTTL: time.Minute})
		cancel, err := e.Renew(e.ctx, c.Lease, time.Hour)
		if err != nil || cancel {
			t.Fatalf("Renew: %t, %v", cancel, err)
		}
		s, err := e.Standing(e.ctx, org, c.Job.ID)
		must(t, err)
		if d := s.Expires.Sub(c.Lease.Expires); d < 58*time.Minute || !s.Leased || s.Worker != "a" {
			t.Errorf("after a renewal the job stands %+v; it was to expire at %s", s, c.Lease.Expires)
		}
		_, err = e.Change(e.ctx, nil, org, c.Job.ID, func(j *job.Job, s ledger.Standing) error { j.Cancelling = true; return nil })
		must(t, err)
		if cancel, err = e.Renew(e.ctx, c.Lease, time.Hour); err != nil || !cancel {
			t.Errorf("Renew after a deletion was asked for: %t, %v", cancel, err)
		}
	})
}

func TestParkedJobWaitsItsTime(t *testing.T) {
	conform(t, func(t *testing.T, e *env) {
		e.register(t, "a")
		e.insert(t)
		c := e.claim(t, "a")
		c.Job.WaitingFor = "NAT gateway pending"
		e.checkpoint(t, c.Lease, ledger.Checkpoint{Job: c.Job, Release: true, NextIn: time.Hour})
		if n := len(e.tryClaim(t, "a")); n != 0 {
			t.Fatal("a parked job was claimed before its time")
		}
		j := e.get(t, c.Job.ID)
		if j.Status != job.Running || j.WaitingFor != "NAT gateway pending" || j.NextRunAt == nil {
			t.Errorf("parked as %s, waiting for %q until %v", j.Status, j.WaitingFor, j.NextRunAt)
		}
		e.sql(t, `UPDATE provisioning_jobs SET next_run_at = next_run_at - $1`, time.Hour.Microseconds())
		e.claim(t, "a")
	})
}

// A checkpoint in the midst of a pass touches no index.
func TestCheckpointIsHeapOnly(t *testing.T) {
	e := open(t, dialects[db.Postgres](t))
	e.register(t, "a")
	e.insert(t)
	c := e.claim(t, "a")
	stats := func() (hot, all int) {
		// Sessions hand their counts over at most once a second, at the end of a transaction.
		deadline := time.Now().Add(20 * time.Second)
		for time.Now().Before(deadline) {
			must(t, e.d.QueryRow(e.ctx, `SELECT n_tup_hot_upd, n_tup_upd FROM pg_stat_user_tables WHERE relname = 'provisioning_jobs'`).Scan(&hot, &all))
			if all >= 201 {
				break
			}
			time.Sleep(200 * time.Millisecond)
		}
		return hot, all
	}
	for i := range 200 {
		e.checkpoint(t, c.Lease, full(c.Job, i))
	}
	hot, all := stats()
	// The claim, and what does not find room in its page, are the rest.
	if all < 200 || hot < all*9/10 {
		t.Errorf("%d of %d updates were heap-only", hot, all)
	}
}
