package gcp

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// A filter says whether a document is selected.
type filter func(Doc) bool

// parseFilter reads a list filter: comparisons with =, !=, :, <, <=, > and >= or with eq and ne, where the value is a regular
// expression that has to match as a whole; joined by AND, OR, NOT and parentheses; side by side means AND ("Filter
// expressions", Compute Engine).
func parseFilter(text string) (filter, error) {
	if strings.TrimSpace(text) == "" {
		return func(Doc) bool { return true }, nil
	}
	p := &filterParser{words: filterWords(text)}
	f, err := p.any()
	if err == nil && p.pos < len(p.words) {
		err = fmt.Errorf("unexpected %q", p.words[p.pos])
	}
	if err != nil {
		return nil, invalidField("filter", text, "Invalid list filter expression.")
	}
	return f, nil
}

// filterWords cuts a filter into words. A value may hold colons and slashes, as links do, so everything up to the next blank
// or parenthesis after an operator is one word.
func filterWords(text string) []string {
	var words []string
	for rest := strings.TrimSpace(text); rest != ""; rest = strings.TrimSpace(rest) {
		var w string
		switch last := len(words) - 1; {
		case last >= 0 && comparison(words[last]) && rest[0] != '"' && rest[0] != '\'' && rest[0] != '(':
			if i := strings.IndexAny(rest, " \t\n)"); i >= 0 {
				w = rest[:i]
			} else {
				w = rest
			}
		case strings.ContainsRune("()", rune(rest[0])):
			w = rest[:1]
		default:
			w = fieldWord(rest)
		}
		words = append(words, w)
		rest = rest[len(w):]
	}
	return words
}

// fieldWord is the first word of a text, outside of values: a field, an operator or a quoted text.
func fieldWord(rest string) string {
	if len(rest) > 1 && rest[1] == '=' && strings.ContainsRune("!<>", rune(rest[0])) {
		return rest[:2]
	}
	if q := rest[0]; q == '"' || q == '\'' {
		for i := 1; i < len(rest); i++ {
			if rest[i] == q && rest[i-1] != '\\' {
				return rest[:i+1]
			}
		}
	}
	if i := strings.IndexAny(rest, " \t\n()=:<>!"); i >= 0 {
		return rest[:max(i, 1)]
	}
	return rest
}

func comparison(w string) bool {
	switch w {
	case "=", "!=", ":", "<", "<=", ">", ">=", "eq", "ne":
		return true
	}
	return false
}

type filterParser struct {
	words []string
	pos   int
}

func (p *filterParser) peek() string {
	if p.pos < len(p.words) {
		return p.words[p.pos]
	}
	return ""
}

func (p *filterParser) next() string {
	w := p.peek()
	p.pos++
	return w
}

func (p *filterParser) any() (filter, error) {
	left, err := p.all()
	for err == nil && p.peek() == "OR" {
		p.pos++
		var right filter
		a := left
		right, err = p.all()
		left = func(d Doc) bool { return a(d) || right(d) }
	}
	return left, err
}

func (p *filterParser) all() (filter, error) {
	left, err := p.one()
	for err == nil && p.peek() != "" && p.peek() != "OR" && p.peek() != ")" {
		if p.peek() == "AND" {
			p.pos++
		}
		var right filter
		a := left
		right, err = p.one()
		left = func(d Doc) bool { return a(d) && right(d) }
	}
	return left, err
}

func (p *filterParser) one() (filter, error) {
	w := p.next()
	switch w {
	case "":
		return nil, fmt.Errorf("ends too early")
	case "NOT":
		f, err := p.one()
		return func(d Doc) bool { return !f(d) }, err
	case "(":
		f, err := p.any()
		if err == nil && p.next() != ")" {
			err = fmt.Errorf("a parenthesis is not closed")
		}
		return f, err
	}
	op := p.next()
	if !comparison(op) || p.pos >= len(p.words) {
		return nil, fmt.Errorf("%q is no comparison", op)
	}
	return compare(w, op, unquote(p.next()))
}

func unquote(s string) string {
	if len(s) >= 2 && (s[0] == '"' || s[0] == '\'') && s[len(s)-1] == s[0] {
		return regexp.MustCompile(`\\(.)`).ReplaceAllString(s[1:len(s)-1], "$1")
	}
	return s
}

func compare(field, op, value string) (filter, error) {
	test := func(got string) bool { return got == value }
	switch op {
	case "eq", "ne":
		re, err := regexp.Compile("^(?:" + value + ")$")
		if err != nil {
			return nil, err
		}
		test = re.MatchString
	case ":":
		low := strings.ToLower(value)
		test = func(got string) bool { return value == "*" || strings.Contains(strings.ToLower(got), low) }
	case "<", "<=", ">", ">=":
		test = func(got string) bool { return ordered(got, op, value) }
	case "=", "!=":
		if strings.Contains(value, "*") {
			re := regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(value), `\*`, ".*") + "$")
			test = re.MatchString
		}
	}
	path := strings.Split(strings.NewReplacer(`"`, "", "'", "").Replace(field), ".")
	return func(d Doc) bool {
		found := false
		for _, got := range valuesAt(d, path) {
			found = found || test(got)
		}
		if op == "!=" || op == "ne" {
			return !found
		}
		return found
	}, nil
}

func ordered(got, op, value string) bool {
	less, equal := got < value, got == value
	a, errA := strconv.ParseFloat(got, 64)
	b, errB := strconv.ParseFloat(value, 64)
	if errA == nil && errB == nil {
		less, equal = a < b, a == b
	}
	switch op {
	case "<":
		return less
	case "<=":
		return less || equal
	case ">":
		return !less && !equal
	}
	return !less
}

// valuesAt are the texts that a path of fields leads to; lists are entered.
func valuesAt(v any, path []string) []string {
	switch x := v.(type) {
	case map[string]any:
		if len(path) == 0 {
			return keysOf(x)
		}
		next, ok := x[path[0]]
		if !ok {
			return nil
		}
		return valuesAt(next, path[1:])
	case []any:
		var out []string
		for _, item := range x {
			out = append(out, valuesAt(item, path)...)
		}
		return out
	case nil:
		return nil
	}
	if len(path) > 0 {
		return nil
	}
	switch x := v.(type) {
	case float64:
		return []string{strconv.FormatFloat(x, 'f', -1, 64)}
	default:
		return []string{fmt.Sprint(x)}
	}
}
