package guest

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// sedCommand is one command of a sed script: an optional pattern, and s, p, d or q.
type sedCommand struct {
	match   *regexp.Regexp
	line    int
	verb    byte
	re      *regexp.Regexp
	replace string
	global  bool
	print   bool
}

// until reads up to the delimiter, which a backslash takes its meaning from.
func until(s string, delim byte) (part, rest string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\' && i+1 < len(s):
			if s[i+1] != delim {
				b.WriteByte(s[i])
			}
			i++
			b.WriteByte(s[i])
		case s[i] == delim:
			return b.String(), s[i+1:], true
		default:
			b.WriteByte(s[i])
		}
	}
	return "", "", false
}

func compileSed(re string, extended bool) (*regexp.Regexp, error) {
	if !extended {
		re = basic(re)
	}
	return regexp.Compile(re)
}

func parseSed(script string, extended bool) ([]sedCommand, error) {
	var out []sedCommand
	for rest := strings.TrimLeft(script, " ;\n\t"); rest != ""; rest = strings.TrimLeft(rest, " ;\n\t") {
		var sc sedCommand
		if rest[0] == '/' {
			pattern, tail, ok := until(rest[1:], '/')
			if !ok {
				return nil, fmt.Errorf("unterminated address regex")
			}
			re, err := compileSed(pattern, extended)
			if err != nil {
				return nil, err
			}
			sc.match, rest = re, strings.TrimLeft(tail, " ")
		} else if i := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' }); i > 0 {
			sc.line, _ = strconv.Atoi(rest[:i])
			rest = rest[i:]
		}
		if rest == "" {
			return nil, fmt.Errorf("missing command")
		}
		sc.verb, rest = rest[0], rest[1:]
		switch sc.verb {
		case 'p', 'd', 'q':
		case 's':
			var err error
			if rest, err = sc.substitution(rest, extended); err != nil {
				return nil, err
			}
		default:
			return nil, fmt.Errorf("unknown command: `%c'", sc.verb)
		}
		out = append(out, sc)
	}
	return out, nil
}

// substitution reads what follows an s, and answers what is left of the script.
func (sc *sedCommand) substitution(text string, extended bool) (rest string, err error) {
	if text == "" {
		return "", fmt.Errorf("unterminated `s' command")
	}
	pattern, tail, ok := until(text[1:], text[0])
	if !ok {
		return "", fmt.Errorf("unterminated `s' command")
	}
	repl, tail, ok := until(tail, text[0])
	if !ok {
		return "", fmt.Errorf("unterminated `s' command")
	}
	for ; tail != "" && strings.IndexByte("gpIi", tail[0]) >= 0; tail = tail[1:] {
		switch tail[0] {
		case 'g':
			sc.global = true
		case 'p':
			sc.print = true
		default:
			pattern = "(?i)" + pattern
		}
	}
	sc.replace = sedReplacement(repl)
	sc.re, err = compileSed(pattern, extended)
	return tail, err
}

// sedReplacement turns \1 and & into Go's ${1} and ${0}.
func sedReplacement(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '$':
			b.WriteString("$$")
		case s[i] == '&':
			b.WriteString("${0}")
		case s[i] == '\\' && i+1 < len(s):
			i++
			if s[i] >= '0' && s[i] <= '9' {
				b.WriteString("${" + string(s[i]) + "}")
			} else if s[i] == 'n' {
				b.WriteByte('\n')
			} else {
				b.WriteByte(s[i])
			}
		default:
			b.WriteByte(s[i])
		}
	}
	return b.String()
}

func sed(c *command) int {
	var scripts, files []string
	quiet, extended, inPlace := false, false, false
	args := c.args[1:]
	for i := 0; i < len(args); i++ {
		switch a := args[i]; {
		case a == "-n":
			quiet = true
		case a == "-E" || a == "-r":
			extended = true
		case strings.HasPrefix(a, "-i"):
			inPlace = true
		case a == "-e" && i+1 < len(args):
			i++
			scripts = append(scripts, args[i])
		case scripts == nil && !strings.HasPrefix(a, "-"):
			scripts = []string{a}
		default:
			files = append(files, a)
		}
	}
	cmds, err := parseSed(strings.Join(scripts, "\n"), extended)
	if err != nil {
		return c.fail(1, "sed: %v", err)
	}
	edit := func(text string) string { return runSed(cmds, text, quiet) }
	if inPlace {
		code := 0
		for _, f := range files {
			text, bad := c.input([]string{f})
			if code = max(code, bad); bad == 0 {
				c.locked(func(m *Machine) int { m.write(c.path(f), edit(text), 0o644); return 0 })
			}
		}
		return code
	}
	text, code := c.input(files)
	c.print("%s", edit(text))
	return code
}

// runSed edits text line by line.
func runSed(cmds []sedCommand, text string, quiet bool) string {
	var out strings.Builder
next:
	for n, l := range lines(text) {
		for _, sc := range cmds {
			if sc.match != nil && !sc.match.MatchString(l) || sc.line > 0 && sc.line != n+1 {
				continue
			}
			switch sc.verb {
			case 'd':
				continue next
			case 'p':
				out.WriteString(l + "\n")
			case 'q':
				out.WriteString(l + "\n")
				return out.String()
			case 's':
				if !sc.re.MatchString(l) {
					continue
				}
				if sc.global {
					l = sc.re.ReplaceAllString(l, sc.replace)
				} else {
					at := sc.re.FindStringSubmatchIndex(l)
					l = l[:at[0]] + string(sc.re.ExpandString(nil, sc.replace, l, at)) + l[at[1]:]
				}
				if sc.print {
					out.WriteString(l + "\n")
				}
			}
		}
		if !quiet {
			out.WriteString(l + "\n")
		}
	}
	return out.String()
}
