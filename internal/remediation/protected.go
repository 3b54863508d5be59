package remediation

import (
	"strings"
	"unicode"
)

// protected is what can never be paused: databases and caches hold somebody's data,
// and whoever depends on them is not asked. Each stands for itself and for
// everything that begins with it, written in any case and with any separators.
var protected = []string{
	"rds", "aurora", "cloudsql", "elasticache", "azuresql", "postgres", "mysql", "memorystore", "redis",
}

// Protected reports whether a name names a customer's database or cache, and by
// which pattern. Separators do not count, wherever they stand: rds-prod, RDS_prod,
// cloud.sql and Azure--SQL:orders are all found. A pattern may begin at any part of
// the name, so that aws-rds and shop.redis are found too, and dashboards is not.
func Protected(name string) (pattern string, found bool) {
	var whole []rune // the letters and digits, in lower case
	var starts []int // where in whole a part begins
	apart, upper := true, false
	for _, r := range name {
		r = plainRune(r)
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			apart = apart || !invisible(r) // what cannot be seen parts nothing
			continue
		}
		isUpper := unicode.IsUpper(r)
		if apart || isUpper && !upper { // myRedis
			starts = append(starts, len(whole))
		}
		apart, upper = false, isUpper
		whole = append(whole, unicode.ToLower(r))
	}
	text := whole
	for _, at := range starts {
		rest := string(text[at:])
		for _, p := range protected {
			if strings.HasPrefix(rest, p) {
				return p, true
			}
		}
	}
	return "", false
}

// invisible reports whether a character takes no room: one within a word is there
// to hide it.
func invisible(r rune) bool { return unicode.In(r, unicode.Cf, unicode.Mn, unicode.Me, unicode.Cc) }

// plainRune is the ASCII letter or digit that a full-width one stands for.
func plainRune(r rune) rune {
	if r >= 0xFF01 && r <= 0xFF5E {
		return r - 0xFF01 + '!'
	}
	return r
}

// holds reports whether a name has a protected pattern anywhere in it, once
// everything but letters and digits is left out. It is the rule for what is
// registered, where a name too many that is refused costs nothing.
func holds(name string) (pattern string, found bool) {
	var b strings.Builder
	for _, r := range name {
		if r = plainRune(r); unicode.IsLetter(r) || unicode.IsDigit(r) {
			b.WriteRune(unicode.ToLower(r))
		}
	}
	for _, p := range protected {
		if strings.Contains(b.String(), p) {
			return p, true
		}
	}
	return "", false
}
