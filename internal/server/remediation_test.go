package server

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/remediation"
)

// TestNoServerPausesDatabases: a server that would register a database or a cache as
// something to pause does not start.
func TestNoServerPausesDatabases(t *testing.T) {
	for _, kind := range []string{"rds-instance", "Aurora", "cloud_sql", "ElastiCache:group", "azure-sql", "postgres", "mysql.flexible", "memorystore", "redis"} {
		c := Config{Listen: "127.0.0.1:0", DB: filepath.Join(t.TempDir(), "zopday.db"), Workers: 1, DeadAfter: time.Second, Token: token,
			Pausers: func(r *remediation.Registry) error {
				return r.Register(kind, func(cloud.Provider) (remediation.Pauser, error) { return nil, nil })
			}}
		s, err := Start(t.Context(), c)
		var protected *remediation.ProtectedError
		if !errors.As(err, &protected) {
			t.Errorf("%s: the server started: %v", kind, err)
		}
		if s != nil && err == nil {
			_ = s.Close(t.Context())
		}
	}
}
