package guest

import (
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
	"time"
)

// resolve follows symbolic links in the last element.
func (m *Machine) resolve(name string) string {
	name = path.Clean("/" + name)
	for range 8 {
		f := m.Files[name]
		if f == nil || f.Link == "" {
			return name
		}
		if strings.HasPrefix(f.Link, "/") {
			name = path.Clean(f.Link)
		} else {
			name = path.Join(path.Dir(name), f.Link)
		}
	}
	return name
}

func (m *Machine) lookup(name string) *File {
	name = m.resolve(name)
	if name == "/" {
		return &File{Dir: true, Mode: 0o755}
	}
	return m.Files[name]
}

// mkdir makes a directory and its parents.
func (m *Machine) mkdir(name string, mode uint32) {
	name = path.Clean("/" + name)
	for name != "/" {
		if m.Files[name] == nil {
			m.Files[name] = &File{Dir: true, Mode: mode}
		}
		name = path.Dir(name)
	}
}

// write replaces a file, making its directory.
func (m *Machine) write(name, content string, mode uint32) {
	name = m.resolve(name)
	m.mkdir(path.Dir(name), 0o755)
	if f := m.Files[name]; f != nil && !f.Dir {
		f.Content = content
		return
	}
	m.Files[name] = &File{Content: content, Mode: mode}
}

func (m *Machine) append(name, content string) {
	if f := m.lookup(name); f != nil && !f.Dir {
		f.Content += content
		return
	}
	m.write(name, content, 0o644)
}

// remove deletes a path and what lies below it.
func (m *Machine) remove(name string) bool {
	name = path.Clean("/" + name)
	_, ok := m.Files[name]
	delete(m.Files, name)
	for p := range m.Files {
		if strings.HasPrefix(p, name+"/") {
			delete(m.Files, p)
		}
	}
	return ok
}

// rename moves a path and what lies below it.
func (m *Machine) rename(from, to string) bool {
	from, to = path.Clean("/"+from), path.Clean("/"+to)
	f, ok := m.Files[from]
	if !ok {
		return false
	}
	if t := m.Files[to]; t != nil && t.Dir {
		to = path.Join(to, path.Base(from))
	}
	if from == to {
		return true
	}
	for p, x := range m.Files {
		if strings.HasPrefix(p, from+"/") {
			m.Files[to+strings.TrimPrefix(p, from)] = x
			delete(m.Files, p)
		}
	}
	delete(m.Files, from)
	m.Files[to] = f
	return true
}

// list names the entries of a directory, in no order.
func (m *Machine) list(dir string) []string {
	dir = m.resolve(dir)
	prefix := strings.TrimSuffix(dir, "/") + "/"
	var out []string
	for p := range m.Files {
		if rest, ok := strings.CutPrefix(p, prefix); ok && rest != "" && !strings.Contains(rest, "/") {
			out = append(out, rest)
		}
	}
	return out
}

func noEntry(op, name string, err error) error {
	return &os.PathError{Op: op, Path: name, Err: err}
}

// open is the shell's way to files.
func (s *session) open(name string, flag int) (io.ReadWriteCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch name {
	case "/dev/null":
		return &handle{}, nil
	case "/dev/stdout", "/dev/stderr", "/dev/console", "/dev/tty":
		return &handle{session: s, name: outputLog, appending: true}, nil
	}
	m := s.machine
	f := m.lookup(name)
	writing := flag&(os.O_WRONLY|os.O_RDWR) != 0
	switch {
	case f == nil && !writing:
		return nil, noEntry("open", name, fs.ErrNotExist)
	case f != nil && f.Dir && writing:
		return nil, noEntry("open", name, syscall.EISDIR)
	case f == nil:
		if dir := m.lookup(path.Dir(m.resolve(name))); dir == nil || !dir.Dir {
			return nil, noEntry("open", name, fs.ErrNotExist)
		}
		m.write(name, "", 0o644)
	case flag&os.O_TRUNC != 0:
		f.Content = ""
	}
	h := &handle{session: s, name: m.resolve(name), appending: writing}
	if !writing {
		h.reader = strings.NewReader(m.lookup(name).Content)
	}
	return h, nil
}

// A handle is an open file.
type handle struct {
	session   *session
	name      string
	appending bool
	reader    *strings.Reader
}

func (h *handle) Read(p []byte) (int, error) {
	if h.reader == nil {
		return 0, io.EOF
	}
	return h.reader.Read(p)
}

func (h *handle) Write(p []byte) (int, error) {
	if h.session == nil {
		return len(p), nil
	}
	if !h.appending {
		return 0, noEntry("write", h.name, syscall.EBADF)
	}
	h.session.mu.Lock()
	defer h.session.mu.Unlock()
	h.session.machine.append(h.name, string(p))
	return len(p), nil
}

func (h *handle) Close() error { return nil }

// info describes a file to the shell's tests.
type info struct {
	name string
	file *File
}

func (i info) Name() string       { return path.Base(i.name) }
func (i info) Size() int64        { return int64(len(i.file.Content)) }
func (i info) ModTime() time.Time { return time.Time{} }
func (i info) IsDir() bool        { return i.file.Dir }
func (i info) Sys() any           { return nil }
func (i info) Mode() fs.FileMode {
	mode := fs.FileMode(i.file.Mode)
	if i.file.Dir {
		mode |= fs.ModeDir
	}
	if i.file.Link != "" {
		mode |= fs.ModeSymlink
	}
	return mode
}

func (i info) Type() fs.FileMode          { return i.Mode().Type() }
func (i info) Info() (fs.FileInfo, error) { return i, nil }

func (s *session) stat(name string, follow bool) (fs.FileInfo, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if name == "/dev/null" {
		return info{name, &File{Mode: 0o666}}, nil
	}
	f := s.machine.Files[path.Clean("/"+name)]
	if follow || path.Clean("/"+name) == "/" {
		f = s.machine.lookup(name)
	}
	if f == nil {
		return nil, noEntry("stat", name, fs.ErrNotExist)
	}
	return info{name, f}, nil
}
