package house

import (
	"regexp"
	"slices"
	"strings"
)

// A token of SQL is a word or sign, or what stands in parentheses.
type sqlToken struct {
	word   string
	within []sqlToken
}

var sqlWord = regexp.MustCompile(`'[^']*'|\$\?|\$\d+|[A-Za-z_][A-Za-z_0-9.]*|::|<>|[<>!]=|\S`)

// parseSQL splits a statement into tokens, as deep as its parentheses go.
func parseSQL(text string) []sqlToken {
	stack := [][]sqlToken{nil}
	for _, w := range sqlWord.FindAllString(text, -1) {
		top := len(stack) - 1
		switch {
		case w == "(":
			stack = append(stack, nil)
		case w == ")" && top > 0:
			stack[top-1] = append(stack[top-1], sqlToken{word: "()", within: stack[top]})
			stack = stack[:top]
		default:
			stack[top] = append(stack[top], sqlToken{word: w})
		}
	}
	for len(stack) > 1 { // a part of a statement
		top := len(stack) - 1
		stack[top-1] = append(stack[top-1], sqlToken{word: "()", within: stack[top]})
		stack = stack[:top]
	}
	return stack[0]
}

// unscopedTables are the tenants' tables that a statement, or a part of one, reads or
// writes without naming the organisation.
func unscopedTables(text string, tables map[string]bool) []string {
	out := unscopedIn(parseSQL(text), tables)
	slices.Sort(out)
	return slices.Compact(out)
}

func unscopedIn(tokens []sqlToken, tables map[string]bool) (out []string) {
	begin := 0
	for i := 0; i <= len(tokens); i++ {
		if i < len(tokens) {
			out = append(out, unscopedIn(tokens[i].within, tables)...)
			if w := strings.ToUpper(tokens[i].word); w != "UNION" && w != "EXCEPT" && w != "INTERSECT" {
				continue
			}
		}
		out = append(out, unscopedQuery(tokens[begin:i], tables)...)
		begin = min(i+1, len(tokens))
	}
	return out
}

// clauseOf is which clause a keyword begins.
var clauseOf = map[string]string{
	"FROM": "tables", "JOIN": "tables", "USING": "tables", "UPDATE": "tables", "WHERE": "where", "ON": "where",
	"SELECT": "other", "SET": "other", "GROUP": "other", "ORDER": "other", "HAVING": "other", "LIMIT": "other", "RETURNING": "other", "INSERT": "other", "VALUES": "other",
	"LEFT": "other", "INNER": "other", "CROSS": "other", "FOR": "other", "CONFLICT": "other", "OFFSET": "other", "DELETE": "other", "WITH": "other",
}

// unscopedQuery looks at one query without what stands in its parentheses.
func unscopedQuery(tokens []sqlToken, tables map[string]bool) (out []string) {
	alias := map[string]string{} // what a table is called, and its name
	var conditions [][]sqlToken
	clause, next := "", false
	for i, t := range tokens {
		if c := clauseOf[strings.ToUpper(t.word)]; c != "" {
			clause, next = c, c == "tables"
			if c == "where" {
				conditions = append(conditions, nil)
			}
			continue
		}
		switch {
		case clause == "tables" && t.word == ",":
			next = true
		case clause == "tables" && next:
			next = false
			if tables[t.word] {
				alias[aliasAt(tokens, i, t.word)] = t.word
			}
		case clause == "where":
			last := len(conditions) - 1
			conditions[last] = append(conditions[last], t)
		}
	}
	scoped := scopedAliases(alias, conditions)
	for as, table := range alias {
		if !scoped[as] {
			out = append(out, table)
		}
	}
	return out
}

// aliasAt is what the table at i is called in its query.
func aliasAt(tokens []sqlToken, i int, name string) string {
	rest := tokens[i+1:]
	if len(rest) > 0 && strings.EqualFold(rest[0].word, "AS") {
		rest = rest[1:]
	}
	if len(rest) > 0 && regexp.MustCompile(`^[A-Za-z_]\w*$`).MatchString(rest[0].word) && clauseOf[strings.ToUpper(rest[0].word)] == "" {
		return rest[0].word
	}
	return name
}

// scopedAliases are the tables of a query whose organisation is named: compared with
// a value, or with that of a table whose own is.
func scopedAliases(alias map[string]string, conditions [][]sqlToken) map[string]bool {
	scoped, joined := map[string]bool{}, [][2]string{}
	for _, cond := range conditions {
		if slices.ContainsFunc(cond, func(t sqlToken) bool { return strings.EqualFold(t.word, "OR") }) {
			continue
		}
		for i := 1; i+1 < len(cond); i++ {
			if cond[i].word != "=" || i+2 < len(cond) && !strings.EqualFold(cond[i+2].word, "AND") || i > 1 && !strings.EqualFold(cond[i-2].word, "AND") {
				continue
			}
			left, right := orgColumn(cond[i-1].word, alias), orgColumn(cond[i+1].word, alias)
			switch value := cond[i+1].word; {
			case left == "":
			case strings.HasPrefix(value, "$") || value == "?" || strings.HasPrefix(value, "'"):
				scoped[left] = true
			case right != "" && right != left:
				joined = append(joined, [2]string{left, right})
			}
		}
	}
	for range len(joined) + 1 {
		for _, j := range joined {
			for _, side := range [][2]string{j, {j[1], j[0]}} {
				// What is not of this query is of the one around it, which is looked at too.
				if _, here := alias[side[1]]; scoped[side[1]] || !here {
					scoped[side[0]] = true
				}
			}
		}
	}
	return scoped
}

// orgColumn is the table whose organisation a column holds, "" if it holds none.
func orgColumn(column string, alias map[string]string) string {
	table, name, qualified := strings.Cut(column, ".")
	if !qualified {
		name = table
		if len(alias) != 1 {
			return ""
		}
		for as := range alias {
			table = as
		}
	}
	if name == "org_id" || name == "id" && alias[table] == "organisations" {
		return table
	}
	return ""
}
