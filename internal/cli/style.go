package cli

import (
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
)

// A terminal says what a stream can show.
type terminal struct {
	tty     bool // a person looks at it, and the cursor can be moved
	colour  bool
	unicode bool
	size    func() (cols, rows int)
}

// probe looks at a stream and the environment.
func probe(w io.Writer, mode string, getenv func(string) string) terminal {
	t := terminal{size: func() (int, int) { return 80, 24 }}
	f, isFile := w.(*os.File)
	isTerm := isFile && term.IsTerminal(int(f.Fd()))
	dumb := getenv("TERM") == "dumb"
	t.tty = isTerm && !dumb
	if isTerm {
		t.size = func() (int, int) {
			c, r, err := term.GetSize(int(f.Fd()))
			if err != nil || c <= 0 || r <= 0 {
				return 80, 24
			}
			return c, r
		}
	}
	switch mode {
	case "always":
		t.colour = true
	case "never":
	default:
		t.colour = t.tty && getenv("NO_COLOR") == ""
	}
	t.unicode = utf8Locale(getenv)
	return t
}

// utf8Locale goes by the first of LC_ALL, LC_CTYPE and LANG that is set, as
// setlocale(3) does.
func utf8Locale(getenv func(string) string) bool {
	for _, k := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := getenv(k); v != "" {
			v = strings.ToLower(v)
			return strings.Contains(v, "utf-8") || strings.Contains(v, "utf8")
		}
	}
	return false
}

// A paint is one of the few colours that are used; colour is never the only
// signal.
type paint string

const (
	plain  paint = ""
	bold   paint = "1"
	dim    paint = "2"
	red    paint = "31"
	green  paint = "32"
	yellow paint = "33"
	blue   paint = "36"
)

func (t terminal) paint(p paint, s string) string {
	if !t.colour || p == plain || s == "" {
		return s
	}
	return "\x1b[" + string(p) + "m" + s + "\x1b[0m"
}

// A glyph is a sign with its stand-in for terminals without Unicode.
type glyph struct{ wide, narrow string }

var (
	glyphDone    = glyph{"✓", "+"}
	glyphRunning = glyph{"◐", "*"}
	glyphPending = glyph{"○", "."}
	glyphFailed  = glyph{"✗", "x"}
	glyphDraft   = glyph{"◌", "-"}
	glyphGone    = glyph{"⊘", "-"}
	glyphDown    = glyph{"⊖", "-"}
	glyphRetry   = glyph{"↻", "r"}
	glyphNow     = glyph{"→", ">"}
	glyphMore    = glyph{"…", "..."}
	glyphDot     = glyph{"·", "-"}
)

func (t terminal) glyph(g glyph) string {
	if t.unicode {
		return g.wide
	}
	return g.narrow
}

// spinner is one frame of the turning sign.
func (t terminal) spinner(frame int) string {
	if t.unicode {
		frames := []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")
		return string(frames[frame%len(frames)])
	}
	return string(`|/-\`[frame%4])
}

// ascii replaces what a terminal without UTF-8 would show as rubbish.
func (t terminal) text(s string) string {
	if t.unicode {
		return s
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r < utf8.RuneSelf:
			return r
		case r == '…' || r == '·' || r == '–' || r == '—':
			return '-'
		case r == '’' || r == '‘':
			return '\''
		}
		return '?'
	}, s)
}

// clean takes control characters out of what came from elsewhere, so that a
// name or a cloud's message cannot move the cursor or change colours.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case unicode.IsControl(r), r == '\u2028', r == '\u2029', r >= '\u202a' && r <= '\u202e', r >= '\u2066' && r <= '\u2069':
			return -1
		}
		return r
	}, s)
}

// width is how many columns a text takes.
func width(s string) int {
	n := 0
	for _, r := range s {
		n += runeWidth(r)
	}
	return n
}

func runeWidth(r rune) int {
	switch {
	case unicode.Is(unicode.Mn, r), unicode.Is(unicode.Me, r), r == '\u200d', r == '\ufe0f':
		return 0
	case r >= 0x1100 && (r <= 0x115f || r >= 0x2e80 && r <= 0xa4cf || r >= 0xac00 && r <= 0xd7a3 ||
		r >= 0xf900 && r <= 0xfaff || r >= 0xfe30 && r <= 0xfe6f || r >= 0xff00 && r <= 0xff60 ||
		r >= 0xffe0 && r <= 0xffe6 || r >= 0x1f300 && r <= 0x1f64f || r >= 0x1f900 && r <= 0x1f9ff ||
		r >= 0x20000 && r <= 0x3fffd):
		return 2
	}
	return 1
}

// cut shortens a text to so many columns.
func (t terminal) cut(s string, cols int) string {
	if width(s) <= cols {
		return s
	}
	more := t.glyph(glyphMore)
	room := cols - width(more)
	if room < 0 {
		return strings.Repeat(".", max(cols, 0))
	}
	var b strings.Builder
	for _, r := range s {
		w := runeWidth(r)
		if room < w {
			break
		}
		room -= w
		b.WriteRune(r)
	}
	return b.String() + more
}

// pad fills a text up to so many columns.
func pad(s string, cols int) string {
	if n := cols - width(s); n > 0 {
		return s + strings.Repeat(" ", n)
	}
	return s
}

// wrap breaks a text into lines of at most cols columns, between words.
func wrap(s string, cols int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(s) {
		if line != "" && width(line)+1+width(word) > cols {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}
