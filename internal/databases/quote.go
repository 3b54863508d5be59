package databases

import "strings"

// pgIdent is a name as PostgreSQL reads it whatever is in it, but for a zero byte, which it never
// has. https://www.postgresql.org/docs/current/sql-syntax-lexical.html
func pgIdent(name string) string {
	return `"` + strings.ReplaceAll(strings.ReplaceAll(name, "\x00", ""), `"`, `""`) + `"`
}

// pgLiteral is a string as PostgreSQL reads it, with standard_conforming_strings on or off: one
// with backslashes is an escape string, where they are doubled.
func pgLiteral(s string) string {
	s = strings.ReplaceAll(strings.ReplaceAll(s, "\x00", ""), "'", "''")
	if strings.Contains(s, `\`) {
		return `E'` + strings.ReplaceAll(s, `\`, `\\`) + `'`
	}
	return "'" + s + "'"
}

// myIdent is a name as MySQL reads it. https://dev.mysql.com/doc/refman/8.4/en/identifiers.html
func myIdent(name string) string {
	return "`" + strings.ReplaceAll(strings.ReplaceAll(name, "\x00", ""), "`", "``") + "`"
}

// myLiteral is a string as MySQL reads it where backslashes escape, which every connection of ours
// says (sqlMode).
func myLiteral(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, "'", "''", "\x00", `\0`).Replace(s) + "'"
}

// myPattern is a database's name where GRANT takes a pattern: % and _ would stand for others' too.
// https://dev.mysql.com/doc/refman/8.4/en/grant.html#grant-quoting
func myPattern(name string) string {
	return strings.NewReplacer(`_`, `\_`, `%`, `\%`).Replace(name)
}

// myAccount is a user that may come from anywhere; the network says from where.
func myAccount(user string) string { return myLiteral(user) + "@'%'" }
