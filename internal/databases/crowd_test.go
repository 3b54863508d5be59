package databases

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// TestCrowd has 20 workers make databases and roles at once: half of them each its own, half of them
// the same one, as two workers do of whom one has lost its lease without knowing.
func TestCrowd(t *testing.T) {
	t.Parallel()
	const crowd = 20
	for _, e := range engines {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			access := direct(t, e)
			name := names(t)
			secrets := make([]string, crowd)
			var all sync.WaitGroup
			var mu sync.Mutex
			var said []string
			for i := range crowd {
				secrets[i] = job.NewPassword()
				all.Go(func() {
					which := fmt.Sprint(i)
					if i%2 == 0 {
						which = "same"
					}
					err := patiently(t, access, func(s *Server) error {
						return makeOne(t, s, name("c"+which), name("o"+which), name("r"+which), secrets[i])
					})
					if err != nil {
						t.Errorf("%s: %v", which, err)
					}
					mu.Lock()
					said = append(said, chain(err))
					mu.Unlock()
				})
			}
			all.Wait()
			s, ctx := open(t, access), allowed(t.Context())
			for i := range crowd {
				which := fmt.Sprint(i)
				if i%2 == 0 {
					which = "same"
				}
				if exists, ours, err := s.Database(ctx, name("c"+which), name("o"+which)); !exists || !ours || err != nil {
					t.Errorf("%s: %t %t %v", which, exists, ours, err)
				}
				if i%2 == 1 {
					must(t, asUser(t, access, name("r"+which), secrets[i]).runs(ctx, name("c"+which), "SELECT 1"))
				}
			}
			// Everything goes again, at once.
			for i := range crowd {
				all.Go(func() {
					which := fmt.Sprint(i)
					if i%2 == 0 {
						which = "same"
					}
					if err := patiently(t, access, func(s *Server) error { return dropOne(t, s, name("c"+which), name("o"+which), name("r"+which)) }); err != nil {
						t.Errorf("%s: %v", which, err)
					}
				})
			}
			all.Wait()
			noSecret(t, secrets, said...)
			noSecret(t, secrets, serverTexts(t)...)
		})
	}
}

// dropOne takes it away again.
func dropOne(t *testing.T, s *Server, db, owner, reader string) error {
	ctx := allowed(t.Context())
	if err := s.DropRole(ctx, reader, db, owner); err != nil {
		return err
	}
	if err := s.DropDatabase(ctx, db); err != nil {
		return err
	}
	return s.DropRole(ctx, owner, "", "")
}

// makeOne is what a job does for a database and its connection.
func makeOne(t *testing.T, s *Server, db, owner, reader, password string) error {
	ctx := allowed(t.Context())
	if err := s.SetRole(ctx, owner, password); err != nil {
		return err
	}
	if err := s.CreateDatabase(ctx, db, owner); err != nil {
		return err
	}
	if err := s.SetRole(ctx, reader, password); err != nil {
		return err
	}
	return s.Grant(ctx, reader, db, owner, job.ReadOnly)
}

// patiently tries what may pass again, as the pipeline does.
func patiently(t *testing.T, access cloud.SQLAccess, do func(s *Server) error) error {
	var err error
	for range 30 {
		s := open(t, access)
		err = do(s)
		_ = s.Close(t.Context())
		// Two who work on the same thing take it from under each other: it is there again, or gone, at the next look.
		if !pipeline.Is(err, pipeline.Busy, pipeline.Unavailable, pipeline.Unknown, pipeline.Exists, pipeline.NotFound) {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
	return err
}

// serverTexts are what the servers wrote beside their data: settings and starting scripts.
func serverTexts(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, pattern := range []string{"*-run/*", "*/data/*.conf", "*/data/*.err", "*/data/*.acl"} {
		found, err := filepath.Glob(filepath.Join(os.TempDir(), fmt.Sprintf("zopday-databases-%d-*", os.Getpid()), pattern))
		must(t, err)
		for _, path := range found {
			if text, err := os.ReadFile(path); err == nil {
				out = append(out, path+": "+strings.ToValidUTF8(string(text), "?"))
			}
		}
	}
	if len(out) == 0 {
		t.Error("no file of a server was found")
	}
	return out
}
