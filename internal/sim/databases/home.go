package databases

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/zopday/provisioner/internal/sim"
)

// A home is where a server lives.
type home struct {
	data   string // its data; its parent exists
	run    string // its socket and certificate
	binary string
	ca     *authority
	keep   bool
	ours   []string // folders above it that may be opened to its user
	names  []string // that its certificate is for
}

// The names of a server's files in its run folder. A socket's path must be short.
const (
	certFile = "server.pem"
	keyFile  = "server-key.pem"
)

// superuser is what this package is to the servers.
const superuser = "simulator"

// prepare makes the run folder, with a certificate.
func (h *home) prepare(who *syscall.Credential) error {
	if err := h.ways(who); err != nil {
		return err
	}
	if err := os.MkdirAll(h.run, 0o700); err != nil {
		return err
	}
	return errors.Join(giveTo(who, h.run), h.certify(who, h.names))
}

// certify gives the server a certificate for names.
func (h *home) certify(who *syscall.Credential, names []string) error {
	cert, key, err := h.ca.issue(names)
	if err != nil {
		return err
	}
	h.names = slices.Clone(names)
	return errors.Join(
		writeFor(who, filepath.Join(h.run, keyFile), key), writeFor(who, filepath.Join(h.run, certFile), cert),
		writeFor(who, filepath.Join(h.run, "ca.pem"), h.ca.pem),
	)
}

func (h *home) socket() string { return filepath.Join(h.run, "s") }

// newEngine is a server's own part.
func newEngine(name string, h home) engine {
	switch name {
	case "postgres":
		return &postgres{home: h}
	case "mysql":
		return &mariadb{home: h}
	default:
		return &redis{home: h}
	}
}

// PostgresVariable names the environment variable with the path of the PostgreSQL server to run,
// initdb beside it, instead of the newest that this machine has.
const PostgresVariable = "ZOPDAY_POSTGRES_BINARY"

// binaryOf finds a server's binary; Debian keeps PostgreSQL's and MariaDB's off the PATH.
func binaryOf(engine string) (string, error) {
	var places []string
	var install string
	switch engine {
	case "postgres":
		if path := os.Getenv(PostgresVariable); path != "" {
			return exec.LookPath(path)
		}
		found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres") // the pattern is good
		slices.SortFunc(found, func(a, b string) int { return majorOf(b) - majorOf(a) })
		places, install = append(found, "postgres"), "postgresql"
	case "mysql":
		places, install = []string{"mariadbd", "/usr/sbin/mariadbd", "/usr/libexec/mariadbd"}, "mariadb-server"
	case "redis", "valkey":
		places, install = []string{"redis-server", "/usr/bin/redis-server", "valkey-server"}, "redis-server"
	default:
		return "", fmt.Errorf("%w: engine %q", sim.ErrNoServer, engine)
	}
	for _, place := range places {
		if path, err := exec.LookPath(place); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%w: %s; install %s (make deps does)", sim.ErrNoServer, engine, install)
}

func majorOf(path string) int {
	n, err := strconv.Atoi(strings.Split(path, "/")[4])
	if err != nil {
		return 0
	}
	return n
}

// account is the user that a server runs as when we are root, which PostgreSQL and MariaDB refuse
// to run as: the first of the names that this machine has. nil is ourselves.
func account(names ...string) (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	var failed error
	for _, name := range append(names, "nobody") {
		u, err := user.Lookup(name)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			return nil, err
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			return nil, err
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, fmt.Errorf("a user to run the server as: %w", failed)
}

// randomWord is a password of this package's own.
func randomWord() (string, error) {
	raw := make([]byte, 24)
	_, err := rand.Read(raw)
	return hex.EncodeToString(raw), err
}

// ways lets the server's user get through the folders above its own: those that are ours are
// opened for it, and one that is not ours, and is closed, is an error that says so.
func (h *home) ways(who *syscall.Credential) error {
	if who == nil {
		return nil
	}
	for at := filepath.Dir(h.data); at != "/" && at != "."; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		if err != nil {
			return err
		}
		switch {
		case info.Mode()&0o001 != 0:
		case slices.Contains(h.ours, at), strings.HasPrefix(at, filepath.Clean(os.TempDir())+"/"):
			if err := os.Chmod(at, info.Mode().Perm()|0o011); err != nil {
				return err
			}
		default:
			return fmt.Errorf("user %d, which the server runs as, does not get through %s: keep the simulation's state elsewhere, or chmod o+x %s", who.Uid, at, at)
		}
	}
	return nil
}

const dirPrefix = "zopday-databases-"

// tempDir is a folder whose name tells whose it is.
func tempDir() (string, error) {
	dir, err := os.MkdirTemp("", fmt.Sprintf("%s%d-", dirPrefix, os.Getpid()))
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o711) //nolint:gosec // the servers' users have to get through
}

// removeLeftovers deletes the folders of processes that ended without Shutdown.
func removeLeftovers() {
	dirs, err := filepath.Glob(filepath.Join(os.TempDir(), dirPrefix+"*"))
	if err != nil {
		return
	}
	for _, dir := range dirs {
		pid, err := strconv.Atoi(strings.Split(strings.TrimPrefix(filepath.Base(dir), dirPrefix), "-")[0])
		if err == nil && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			_ = os.RemoveAll(dir) // another process may be at it too
		}
	}
}

// templates are data folders that were initialised once for all servers of this process.
var templates struct {
	sync.Mutex
	users int
	dir   string
	made  map[string]string // folder by engine
}

func holdTemplates() {
	templates.Lock()
	defer templates.Unlock()
	templates.users++
}

// releaseTemplates removes them with the last instance.
func releaseTemplates() {
	templates.Lock()
	defer templates.Unlock()
	if templates.users--; templates.users == 0 && templates.dir != "" {
		_ = os.RemoveAll(templates.dir) // the next process removes what is left
		templates.dir, templates.made = "", nil
	}
}

// fromTemplate copies an engine's template to a data folder that is not there yet; initialise
// makes the template.
func fromTemplate(ctx context.Context, engine string, who *syscall.Credential, data string, initialise func(ctx context.Context, dir string) error) error {
	if _, err := os.Stat(data); err == nil {
		return nil
	}
	template, err := template(ctx, engine, who, initialise)
	if err != nil {
		return err
	}
	// What was begun and cut off is no data.
	part := data + ".part"
	if err := os.RemoveAll(part); err != nil {
		return err
	}
	if err := copyTree(template, part, who); err != nil {
		return err
	}
	return os.Rename(part, data)
}

func template(ctx context.Context, engine string, who *syscall.Credential, initialise func(ctx context.Context, dir string) error) (string, error) {
	templates.Lock()
	defer templates.Unlock()
	if dir := templates.made[engine]; dir != "" {
		return dir, nil
	}
	if templates.dir == "" {
		var err error
		if templates.dir, err = tempDir(); err != nil {
			return "", err
		}
		templates.made = map[string]string{}
	}
	parent := filepath.Join(templates.dir, engine)
	if err := os.RemoveAll(parent); err != nil {
		return "", err
	}
	if err := errors.Join(os.Mkdir(parent, 0o700), giveTo(who, parent)); err != nil {
		return "", err
	}
	dir := filepath.Join(parent, "data")
	if err := initialise(ctx, dir); err != nil {
		return "", err
	}
	templates.made[engine] = dir
	return dir, nil
}

// copyTree copies a folder, as the server's own.
func copyTree(from, to string, who *syscall.Credential) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		at := filepath.Join(to, strings.TrimPrefix(path, from))
		switch {
		case d.IsDir():
			err = os.Mkdir(at, info.Mode().Perm())
		case info.Mode().IsRegular():
			err = copyFile(path, at, info.Mode().Perm())
		default:
			return nil // a socket of a server that is gone
		}
		return errors.Join(err, giveTo(who, at))
	})
}

func copyFile(from, to string, mode fs.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
