package components

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// An archive is a chart as it was fetched.
type archive struct {
	bytes  []byte
	digest string // sha256: and hexadecimal digits
}

func newArchive(b []byte) *archive {
	sum := sha256.Sum256(b)
	return &archive{bytes: b, digest: "sha256:" + hex.EncodeToString(sum[:])}
}

// A chartCache keeps fetched charts. What a version of a chart is does not
// change, so a reference is looked up once and then read by digest.
type chartCache struct {
	dir string

	mu   sync.Mutex
	refs map[string]*archive    // by reference; archives are shared between references
	keys map[string]*sync.Mutex // one fetch at a time of each reference
	size int
}

// mostCached bounds the memory that charts take, in bytes. The whole catalogue
// is a tenth of it.
const mostCached = 64 << 20

func newChartCache(dir string) (*chartCache, error) {
	if dir != "" {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("cache of charts: %w", err)
		}
	}
	return &chartCache{dir: dir, refs: map[string]*archive{}, keys: map[string]*sync.Mutex{}}, nil
}

// get answers from memory, else from the folder, else by fetching.
func (c *chartCache) get(ref string, fetch func() (*archive, error)) (*archive, error) {
	c.mu.Lock()
	key, ok := c.keys[ref]
	if !ok {
		key = &sync.Mutex{}
		c.keys[ref] = key
	}
	c.mu.Unlock()
	key.Lock()
	defer key.Unlock()

	c.mu.Lock()
	a := c.refs[ref]
	c.mu.Unlock()
	if a != nil {
		return a, nil
	}
	if a = c.read(ref); a == nil {
		var err error
		if a, err = fetch(); err != nil {
			return nil, err
		}
		c.write(ref, a)
	}
	c.keep(ref, a)
	return a, nil
}

func (c *chartCache) keep(ref string, a *archive) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.size += len(a.bytes); c.size > mostCached {
		clear(c.refs)
		c.size = len(a.bytes)
	}
	c.refs[ref] = a
}

func (c *chartCache) refFile(ref string) string {
	sum := sha256.Sum256([]byte(ref))
	return filepath.Join(c.dir, "ref-"+hex.EncodeToString(sum[:16]))
}

func (c *chartCache) chartFile(digest string) string {
	return filepath.Join(c.dir, strings.Replace(digest, ":", "-", 1)+".tgz")
}

// read looks in the folder; what does not have the digest it should is not there.
func (c *chartCache) read(ref string) *archive {
	if c.dir == "" {
		return nil
	}
	digest, err := os.ReadFile(c.refFile(ref))
	if err != nil || !digestRE.Match(digest) {
		return nil
	}
	b, err := os.ReadFile(c.chartFile(string(digest)))
	if err != nil {
		return nil
	}
	if a := newArchive(b); a.digest == string(digest) {
		return a
	}
	return nil
}

// write keeps a chart in the folder, each file whole or not at all. A folder
// that cannot be written costs another fetch later, and no job.
func (c *chartCache) write(ref string, a *archive) {
	if c.dir == "" {
		return
	}
	if writeWhole(c.chartFile(a.digest), a.bytes) == nil {
		_ = writeWhole(c.refFile(ref), []byte(a.digest))
	}
}

func writeWhole(name string, b []byte) error {
	if _, err := os.Stat(name); !errors.Is(err, fs.ErrNotExist) && !strings.HasPrefix(filepath.Base(name), "ref-") {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(name), "new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(f.Name()))
	}
	return err
}
