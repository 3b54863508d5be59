package guest

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

// The programs that work on files. None of them writes while the machine is locked: its output may be a file of the
// machine.

func fileTools() map[string]func(*command) int {
	return map[string]func(*command) int{
		"cat": func(c *command) int {
			_, files := c.options("")
			text, code := c.input(files)
			c.print("%s", text)
			return code
		},
		"mkdir":    makeDirs,
		"touch":    touch,
		"rm":       removeFiles,
		"rmdir":    removeFiles,
		"mv":       moveFiles,
		"cp":       copyFiles,
		"ln":       link,
		"install":  installFile,
		"chmod":    changeMode,
		"chown":    succeed,
		"chgrp":    succeed,
		"sync":     succeed,
		"ls":       listFiles,
		"stat":     statFile,
		"tee":      tee,
		"mktemp":   makeTemp,
		"readlink": readLink,
		"realpath": readLink,
		"basename": func(c *command) int {
			_, a := c.options("")
			if len(a) == 0 {
				return c.fail(1, "basename: missing operand")
			}
			base := path.Base(a[0])
			if len(a) > 1 && base != a[1] {
				base = strings.TrimSuffix(base, a[1])
			}
			c.print("%s\n", base)
			return 0
		},
		"dirname": func(c *command) int {
			_, a := c.options("")
			if len(a) == 0 {
				return c.fail(1, "dirname: missing operand")
			}
			c.print("%s\n", path.Dir(a[0]))
			return 0
		},
	}
}

func succeed(*command) int { return 0 }

func parseMode(text string, old uint32) uint32 {
	if n, err := strconv.ParseUint(text, 8, 32); err == nil {
		return uint32(n)
	}
	who, perm, ok := strings.Cut(text, "+")
	if !ok {
		return old
	}
	bits := uint32(0)
	for _, p := range perm {
		bits |= map[rune]uint32{'r': 4, 'w': 2, 'x': 1}[p]
	}
	if who == "" || strings.Contains(who, "a") {
		return old | bits | bits<<3 | bits<<6
	}
	for _, w := range who {
		old |= bits << map[rune]uint32{'u': 6, 'g': 3, 'o': 0}[w]
	}
	return old
}

func makeDirs(c *command) int {
	flags, dirs := c.options("-m --mode")
	code, message := 0, ""
	c.locked(func(m *Machine) int {
		for _, d := range dirs {
			p := c.path(d)
			f, parent := m.lookup(p), m.lookup(path.Dir(p))
			switch {
			case f != nil && (!has(flags, "-p", "--parents") || !f.Dir):
				code, message = 1, fmt.Sprintf("mkdir: cannot create directory '%s': File exists", d)
			case parent == nil && !has(flags, "-p", "--parents"):
				code, message = 1, fmt.Sprintf("mkdir: cannot create directory '%s': No such file or directory", d)
			default:
				m.mkdir(p, parseMode(flags["-m"], 0o755))
			}
		}
		return 0
	})
	if message != "" {
		return c.fail(code, "%s", message)
	}
	return code
}

func touch(c *command) int {
	_, files := c.options("-d -t -r")
	bad := ""
	c.locked(func(m *Machine) int {
		for _, f := range files {
			p := c.path(f)
			if m.lookup(p) != nil {
				continue
			}
			if dir := m.lookup(path.Dir(m.resolve(p))); dir == nil || !dir.Dir {
				bad = f
				continue
			}
			m.write(p, "", 0o644)
		}
		return 0
	})
	if bad != "" {
		return c.fail(1, "touch: cannot touch '%s': No such file or directory", bad)
	}
	return 0
}

func removeFiles(c *command) int {
	flags, files := c.options("")
	force, code := has(flags, "-f", "--force"), 0
	for _, f := range files {
		gone := false
		dir := false
		c.locked(func(m *Machine) int {
			x := m.Files[path.Clean(c.path(f))]
			dir = x != nil && x.Dir && !has(flags, "-r", "-R", "--recursive") && c.args[0] == "rm"
			if !dir {
				gone = m.remove(c.path(f))
			}
			return 0
		})
		if dir {
			code = c.fail(1, "rm: cannot remove '%s': Is a directory", f)
		} else if !gone && !force {
			code = c.fail(1, "%s: cannot remove '%s': No such file or directory", c.args[0], f)
		}
	}
	return code
}

func moveFiles(c *command) int {
	_, files := c.options("-t")
	if len(files) < 2 {
		return c.fail(1, "mv: missing destination file operand")
	}
	to, code := files[len(files)-1], 0
	for _, f := range files[:len(files)-1] {
		if c.locked(func(m *Machine) int {
			if m.rename(c.path(f), c.path(to)) {
				return 0
			}
			return 1
		}) != 0 {
			code = c.fail(1, "mv: cannot stat '%s': No such file or directory", f)
		}
	}
	return code
}

func copyFiles(c *command) int {
	_, files := c.options("-t")
	if len(files) < 2 {
		return c.fail(1, "cp: missing destination file operand")
	}
	to, code := files[len(files)-1], 0
	for _, f := range files[:len(files)-1] {
		if c.copyOne(f, to, 0) != 0 {
			code = c.fail(1, "cp: cannot stat '%s': No such file or directory", f)
		}
	}
	return code
}

// copyOne copies a file, or a directory with what is in it; mode 0 keeps the source's.
func (c *command) copyOne(from, to string, mode uint32) int {
	return c.locked(func(m *Machine) int {
		src, dst := m.resolve(c.path(from)), m.resolve(c.path(to))
		f := m.lookup(src)
		if f == nil {
			return 1
		}
		if d := m.lookup(dst); d != nil && d.Dir {
			dst = path.Join(dst, path.Base(src))
		}
		dup := *f
		if mode != 0 {
			dup.Mode = mode
		}
		m.mkdir(path.Dir(dst), 0o755)
		for p, x := range maps.Clone(m.Files) {
			if strings.HasPrefix(p, src+"/") {
				y := *x
				m.Files[dst+strings.TrimPrefix(p, src)] = &y
			}
		}
		m.Files[dst] = &dup
		return 0
	})
}

func link(c *command) int {
	flags, files := c.options("")
	if len(files) < 2 {
		return c.fail(1, "ln: missing destination")
	}
	target, name := files[0], files[1]
	if c.locked(func(m *Machine) int {
		p := path.Clean(c.path(name))
		if f := m.Files[p]; f != nil && f.Dir {
			p = path.Join(p, path.Base(target))
		}
		if m.Files[p] != nil && !has(flags, "-f", "--force") {
			return 1
		}
		m.mkdir(path.Dir(p), 0o755)
		m.Files[p] = &File{Link: target, Mode: 0o777}
		return 0
	}) != 0 {
		return c.fail(1, "ln: failed to create symbolic link '%s': File exists", name)
	}
	return 0
}

func installFile(c *command) int {
	flags, files := c.options("-m -o -g -t --mode --owner --group")
	mode := parseMode(flags["-m"]+flags["--mode"], 0o755)
	if has(flags, "-d", "--directory") {
		for _, d := range files {
			c.locked(func(m *Machine) int { m.mkdir(c.path(d), mode); return 0 })
		}
		return 0
	}
	if len(files) < 2 {
		return c.fail(1, "install: missing destination file operand")
	}
	if files[0] == "/dev/null" {
		c.locked(func(m *Machine) int { m.write(c.path(files[1]), "", mode); return 0 })
		return 0
	}
	if c.copyOne(files[0], files[len(files)-1], mode) != 0 {
		return c.fail(1, "install: cannot stat '%s': No such file or directory", files[0])
	}
	return 0
}

func changeMode(c *command) int {
	_, args := c.options("")
	if len(args) < 2 {
		return c.fail(1, "chmod: missing operand")
	}
	code := 0
	for _, f := range args[1:] {
		if c.locked(func(m *Machine) int {
			x := m.lookup(c.path(f))
			if x == nil {
				return 1
			}
			x.Mode = parseMode(args[0], x.Mode)
			return 0
		}) != 0 {
			code = c.fail(1, "chmod: cannot access '%s': No such file or directory", f)
		}
	}
	return code
}

func listFiles(c *command) int {
	_, files := c.options("")
	if len(files) == 0 {
		files = []string{c.dir}
	}
	code := 0
	for _, f := range files {
		var names []string
		found := c.locked(func(m *Machine) int {
			x := m.lookup(c.path(f))
			if x == nil {
				return 0
			}
			if names = []string{f}; x.Dir {
				names = m.list(c.path(f))
			}
			return 1
		})
		if found == 0 {
			code = c.fail(2, "ls: cannot access '%s': No such file or directory", f)
		}
		slices.Sort(names)
		for _, n := range names {
			c.print("%s\n", n)
		}
	}
	return code
}

func statFile(c *command) int {
	flags, files := c.options("-c --format")
	code := 0
	for _, f := range files {
		size, mode := -1, uint32(0)
		c.locked(func(m *Machine) int {
			if x := m.lookup(c.path(f)); x != nil {
				size, mode = len(x.Content), x.Mode
			}
			return 0
		})
		if size < 0 {
			code = c.fail(1, "stat: cannot statx '%s': No such file or directory", f)
			continue
		}
		format := flags["-c"] + flags["--format"]
		if format == "" {
			format = "%n"
		}
		c.print("%s\n", strings.NewReplacer("%s", strconv.Itoa(size), "%a", strconv.FormatUint(uint64(mode), 8), "%n", f, "%U", "root", "%G", "root", "%u", "0",
			"%g", "0", "%Y", strconv.FormatInt(c.session.now().Unix(), 10)).Replace(format))
	}
	return code
}

func tee(c *command) int {
	flags, files := c.options("")
	text, _ := c.input(nil)
	for _, f := range files {
		c.locked(func(m *Machine) int {
			if has(flags, "-a", "--append") {
				m.append(c.path(f), text)
			} else {
				m.write(c.path(f), text, 0o644)
			}
			return 0
		})
	}
	c.print("%s", text)
	return 0
}

func makeTemp(c *command) int {
	flags, _ := c.options("-p -t")
	name := ""
	c.locked(func(m *Machine) int {
		for n := 0; ; n++ {
			name = fmt.Sprintf("/tmp/tmp.%010d", n)
			if m.lookup(name) == nil {
				break
			}
		}
		if has(flags, "-d", "--directory") {
			m.mkdir(name, 0o700)
		} else {
			m.write(name, "", 0o600)
		}
		return 0
	})
	c.print("%s\n", name)
	return 0
}

func readLink(c *command) int {
	flags, files := c.options("")
	if len(files) == 0 {
		return c.fail(1, "%s: missing operand", c.args[0])
	}
	out := ""
	c.locked(func(m *Machine) int {
		f := m.Files[path.Clean(c.path(files[0]))]
		switch {
		case c.args[0] == "realpath" || has(flags, "-f", "-e", "-m"):
			out = m.resolve(c.path(files[0]))
		case f != nil:
			out = f.Link
		}
		return 0
	})
	if out == "" {
		return 1
	}
	c.print("%s\n", out)
	return 0
}
