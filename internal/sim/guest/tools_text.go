package guest

import (
	"crypto/md5" //nolint:gosec // a tool of the simulated machine, not a protection
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The programs that work on text.

func textTools() map[string]func(*command) int {
	return map[string]func(*command) int{
		"grep":   grep,
		"egrep":  grep,
		"fgrep":  grep,
		"sed":    sed,
		"tr":     translate,
		"head":   func(c *command) int { return ends(c, true) },
		"tail":   func(c *command) int { return ends(c, false) },
		"wc":     count,
		"cut":    cut,
		"sort":   sortLines,
		"uniq":   uniq,
		"awk":    awk,
		"base64": base64Tool,
		"sha256sum": func(c *command) int {
			return sum(c, func(b []byte) string { s := sha256.Sum256(b); return hex.EncodeToString(s[:]) })
		},
		"md5sum": func(c *command) int {
			return sum(c, func(b []byte) string { s := md5.Sum(b); return hex.EncodeToString(s[:]) }) //nolint:gosec // as above
		},
		"seq": func(c *command) int {
			_, a := c.options("")
			from, to := 1, 0
			if len(a) == 1 {
				to, _ = strconv.Atoi(a[0])
			} else if len(a) > 1 {
				from, _ = strconv.Atoi(a[0])
				to, _ = strconv.Atoi(a[len(a)-1])
			}
			for i := from; i <= to && i-from < 10000; i++ {
				c.print("%d\n", i)
			}
			return 0
		},
	}
}

// lines splits text into lines without their ends.
func lines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// basic turns a basic regular expression into one of Go's: there, groups, alternatives and counts are written with a
// backslash, and their plain characters mean themselves.
func basic(re string) string {
	var b strings.Builder
	for i := 0; i < len(re); i++ {
		switch ch := re[i]; {
		case ch == '\\' && i+1 < len(re) && strings.IndexByte("(){}|+?", re[i+1]) >= 0:
			i++
			b.WriteByte(re[i])
		case ch == '\\' && i+1 < len(re):
			b.WriteByte(ch)
			i++
			b.WriteByte(re[i])
		case strings.IndexByte("(){}|+?", ch) >= 0:
			b.WriteString(`\` + string(ch))
		default:
			b.WriteByte(ch)
		}
	}
	return b.String()
}

func grep(c *command) int {
	flags, args := c.options("-e -m -A -B -C")
	pattern, given := flags["-e"]
	if !given {
		if len(args) == 0 {
			return c.fail(2, "grep: missing pattern")
		}
		pattern, args = args[0], args[1:]
	}
	switch {
	case has(flags, "-F") || c.args[0] == "fgrep":
		pattern = regexp.QuoteMeta(pattern)
	case !has(flags, "-E", "-P") && c.args[0] != "egrep":
		pattern = basic(pattern)
	}
	if has(flags, "-w") {
		pattern = `\b(?:` + pattern + `)\b`
	}
	if has(flags, "-x") {
		pattern = `^(?:` + pattern + `)$`
	}
	if has(flags, "-i") {
		pattern = "(?i)" + pattern
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return c.fail(2, "grep: %v", err)
	}
	text, code := c.input(args)
	if code != 0 && !has(flags, "-s") {
		code = 2
	}
	n := 0
	for _, l := range lines(text) {
		if re.MatchString(l) == has(flags, "-v") {
			continue
		}
		n++
		switch {
		case has(flags, "-q", "-c", "-l"):
		case has(flags, "-o"):
			for _, m := range re.FindAllString(l, -1) {
				c.print("%s\n", m)
			}
		default:
			c.print("%s\n", l)
		}
	}
	if has(flags, "-c") {
		c.print("%d\n", n)
	}
	if n > 0 {
		return 0
	}
	return max(code, 1)
}

// set expands a character set of tr: ranges, octal and other escapes, and a few classes.
func set(s string) []byte {
	var out []byte
	one := func(i int) (byte, int) {
		if s[i] != '\\' || i+1 >= len(s) {
			return s[i], i + 1
		}
		i++
		switch s[i] {
		case 'n':
			return '\n', i + 1
		case 't':
			return '\t', i + 1
		case 'r':
			return '\r', i + 1
		}
		j, n := i, 0
		for j < len(s) && j < i+3 && s[j] >= '0' && s[j] <= '7' {
			n = n*8 + int(s[j]-'0')
			j++
		}
		if j > i {
			return byte(n), j
		}
		return s[i], i + 1
	}
	classes := map[string][2]string{"[:upper:]": {"A", "Z"}, "[:lower:]": {"a", "z"}, "[:digit:]": {"0", "9"}}
	for i := 0; i < len(s); {
		found := false
		for name, r := range classes {
			if strings.HasPrefix(s[i:], name) {
				for b := r[0][0]; b <= r[1][0]; b++ {
					out = append(out, b)
				}
				i, found = i+len(name), true
			}
		}
		if found {
			continue
		}
		b, j := one(i)
		if j < len(s)-1 && s[j] == '-' {
			high, k := one(j + 1)
			for x := int(b); x <= int(high); x++ {
				out = append(out, byte(x))
			}
			i = k
			continue
		}
		out = append(out, b)
		i = j
	}
	return out
}

func translate(c *command) int {
	flags, args := c.options("")
	if len(args) == 0 {
		return c.fail(1, "tr: missing operand")
	}
	from := set(args[0])
	text, _ := c.input(nil)
	in := func(b byte) bool { return slices.Contains(from, b) != has(flags, "-c", "-C") }
	var to []byte
	if len(args) > 1 {
		to = set(args[1])
	}
	var out []byte
	for i := range len(text) {
		b := text[i]
		switch {
		case !in(b):
		case has(flags, "-d"):
			continue
		case len(to) > 0:
			k := max(slices.Index(from, b), 0)
			if has(flags, "-c", "-C") {
				k = len(to) - 1
			}
			b = to[min(k, len(to)-1)]
			fallthrough
		default:
			if has(flags, "-s") && len(out) > 0 && out[len(out)-1] == b {
				continue
			}
		}
		out = append(out, b)
	}
	c.print("%s", out)
	return 0
}

func ends(c *command, first bool) int {
	// -5 is short for -n 5.
	for i, a := range c.args {
		if len(a) > 1 && a[0] == '-' && a[1] >= '0' && a[1] <= '9' {
			c.args[i] = "-n" + a[1:]
		}
	}
	flags, files := c.options("-n -c --lines --bytes")
	text, code := c.input(files)
	pick := func(n, spec int, from bool) (int, int) {
		if first {
			return 0, min(spec, n)
		}
		if from {
			return min(spec-1, n), n
		}
		return max(0, n-spec), n
	}
	spec := flags["-n"] + flags["--lines"]
	bytes := flags["-c"] + flags["--bytes"]
	from := strings.HasPrefix(spec+bytes, "+")
	n := 10
	if v, err := strconv.Atoi(strings.TrimPrefix(spec+bytes, "+")); err == nil {
		n = v
	}
	if bytes != "" {
		a, b := pick(len(text), n, from)
		c.print("%s", text[a:b])
		return code
	}
	all := strings.SplitAfter(text, "\n")
	if len(all) > 0 && all[len(all)-1] == "" {
		all = all[:len(all)-1]
	}
	a, b := pick(len(all), n, from)
	c.print("%s", strings.Join(all[a:b], ""))
	return code
}

func count(c *command) int {
	flags, files := c.options("")
	text, code := c.input(files)
	var out []string
	if has(flags, "-l") || len(flags) == 0 {
		out = append(out, strconv.Itoa(strings.Count(text, "\n")))
	}
	if has(flags, "-w") || len(flags) == 0 {
		out = append(out, strconv.Itoa(len(strings.Fields(text))))
	}
	if has(flags, "-c", "-m") || len(flags) == 0 {
		out = append(out, strconv.Itoa(len(text)))
	}
	c.print("%s\n", strings.Join(out, " "))
	return code
}

func cut(c *command) int {
	flags, files := c.options("-d -f -c")
	delim := flags["-d"]
	if delim == "" {
		delim = "\t"
	}
	text, code := c.input(files)
	for _, l := range lines(text) {
		parts := strings.Split(l, delim)
		if has(flags, "-c") {
			parts, delim = strings.Split(l, ""), ""
		}
		var out []string
		for spec := range strings.SplitSeq(flags["-f"]+flags["-c"], ",") {
			lowText, highText, isRange := strings.Cut(spec, "-")
			low, _ := strconv.Atoi(lowText)
			high, _ := strconv.Atoi(highText)
			if low = max(low, 1); !isRange {
				high = low
			} else if high == 0 {
				high = len(parts)
			}
			if low <= len(parts) {
				out = append(out, parts[low-1:min(high, len(parts))]...)
			}
		}
		c.print("%s\n", strings.Join(out, delim))
	}
	return code
}

func sortLines(c *command) int {
	flags, files := c.options("-k -t")
	text, code := c.input(files)
	all := lines(text)
	slices.SortStableFunc(all, func(a, b string) int {
		if has(flags, "-n") {
			x, _ := strconv.Atoi(strings.TrimSpace(a))
			y, _ := strconv.Atoi(strings.TrimSpace(b))
			return x - y
		}
		return strings.Compare(a, b)
	})
	if has(flags, "-r") {
		slices.Reverse(all)
	}
	if has(flags, "-u") {
		all = slices.Compact(all)
	}
	for _, l := range all {
		c.print("%s\n", l)
	}
	return code
}

func uniq(c *command) int {
	_, files := c.options("")
	text, code := c.input(files)
	for _, l := range slices.Compact(lines(text)) {
		c.print("%s\n", l)
	}
	return code
}

var awkPrint = regexp.MustCompile(`^\s*(?:/(.*)/)?\s*\{\s*print\s*(?:\$(\d+|NF))?\s*;?\s*\}\s*$`)

// awk knows the one program that shell scripts mostly use it for: printing a field, of lines that match.
func awk(c *command) int {
	flags, args := c.options("-F -v")
	if len(args) == 0 {
		return c.fail(2, "awk: missing program")
	}
	p := awkPrint.FindStringSubmatch(args[0])
	if p == nil {
		return c.fail(2, "awk: this program is more than the simulated awk understands")
	}
	re, err := regexp.Compile(p[1])
	if err != nil {
		return c.fail(2, "awk: %v", err)
	}
	text, code := c.input(args[1:])
	for _, l := range lines(text) {
		if !re.MatchString(l) {
			continue
		}
		fields := strings.Fields(l)
		if sep := flags["-F"]; sep != "" {
			fields = strings.Split(l, sep)
		}
		n, _ := strconv.Atoi(p[2])
		switch {
		case p[2] == "NF":
			n = len(fields)
		case n == 0:
			c.print("%s\n", l)
			continue
		}
		if n >= 1 && n <= len(fields) {
			c.print("%s\n", fields[n-1])
		} else {
			c.print("\n")
		}
	}
	return code
}

func base64Tool(c *command) int {
	flags, files := c.options("-w")
	text, code := c.input(files)
	if !has(flags, "-d", "--decode") {
		c.print("%s\n", base64.StdEncoding.EncodeToString([]byte(text)))
		return code
	}
	data, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		return c.fail(1, "base64: invalid input")
	}
	c.print("%s", data)
	return code
}

func sum(c *command, hash func([]byte) string) int {
	_, files := c.options("")
	text, code := c.input(files)
	name := "-"
	if len(files) > 0 {
		name = files[0]
	}
	if code == 0 {
		c.print("%s  %s\n", hash([]byte(text)), name)
	}
	return code
}
