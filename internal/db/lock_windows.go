package db

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/windows"
)

// lockFile takes the lock that lets one process have an SQLite file. The system
// gives it free when the process ends, however it ends.
func lockFile(path string) (io.Closer, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY,
		0, 1, 0, new(windows.Overlapped))
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("in use by another process: an SQLite file takes one process; stop it, or use PostgreSQL (%w)", err)
	}
	return f, nil
}
