package databases

import (
	"context"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// hostile are names and strings that want out of their quotes.
var hostile = []string{
	"a", "A b", `"`, `""`, `a"b`, "`", "``", "a`b", "'", "''", `a'b`, `\`, `\\`, `\'`, `'; DROP TABLE x; --`, `"; DROP TABLE x; --`, "`; DROP TABLE x; -- ",
	"/*", "*/", "--", "#", "%", "_", "a_b%", "$$", "$1", ":x", "?", "пароль", "日本", "\u202e", "a\nb", "a\tb", "select", "E'x'", `\0`, `\n`, "${jndi:x}", "a.b", "@'%'",
}

// unquote reads what was quoted, as the servers' own documents say: a quote is doubled, and with
// escapes a backslash stands before what it is for.
func unquote(t *testing.T, s string, quote byte, escapes bool) string {
	t.Helper()
	if len(s) < 2 || s[0] != quote || s[len(s)-1] != quote {
		t.Fatalf("%q has no quotes", s)
	}
	s = s[1 : len(s)-1]
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == quote:
			if i+1 >= len(s) || s[i+1] != quote {
				t.Fatalf("%q ends before its end", s)
			}
			i++
			b.WriteByte(quote)
		case escapes && s[i] == '\\':
			if i++; i >= len(s) {
				t.Fatalf("%q ends in an escape", s)
			}
			if s[i] == '0' {
				b.WriteByte(0)
			} else {
				b.WriteByte(s[i])
			}
		default:
			b.WriteByte(s[i])
		}
	}
	return b.String()
}

func seeds(f *testing.F) {
	for _, s := range append(hostile, "", "\x00", "a\x00b", "\xff'") {
		f.Add(s)
	}
}

func FuzzIdentifierPostgres(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, s string) {
		if got, want := unquote(t, pgIdent(s), '"', false), strings.ReplaceAll(s, "\x00", ""); got != want {
			t.Errorf("%q became %q", s, got)
		}
	})
}

func FuzzIdentifierMySQL(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, s string) {
		if got, want := unquote(t, myIdent(s), '`', false), strings.ReplaceAll(s, "\x00", ""); got != want {
			t.Errorf("%q became %q", s, got)
		}
	})
}

func FuzzLiteralPostgres(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, s string) {
		quoted, want := pgLiteral(s), strings.ReplaceAll(s, "\x00", "")
		rest, escapes := strings.CutPrefix(quoted, "E")
		if got := unquote(t, rest, '\'', escapes); got != want {
			t.Errorf("%q became %q", s, got)
		}
		if !escapes && strings.Contains(s, `\`) {
			t.Errorf("%q depends on a setting", quoted)
		}
	})
}

func FuzzLiteralMySQL(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, s string) {
		if got := unquote(t, myLiteral(s), '\'', true); got != s {
			t.Errorf("%q became %q", s, got)
		}
	})
}

// TestQuotesRoundTrip asks the servers themselves what they read.
func TestQuotesRoundTrip(t *testing.T) {
	t.Parallel()
	for _, e := range engines {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			l := asUser(t, direct(t, e), admin, adminPassword)
			ident, literal := pgIdent, pgLiteral
			if e == job.MySQL {
				ident, literal = myIdent, myLiteral
			}
			for _, s := range hostile {
				if !utf8.ValidString(s) {
					continue
				}
				rows, err := l.read(t.Context(), "Test", maintenanceOf(e), "SELECT "+literal(s)+", 1 AS "+ident(s))
				if err != nil || len(rows) != 1 || rows[0][0] != s {
					t.Errorf("%q came back as %q, %v", s, rows, err)
				}
			}
			if e == job.Postgres {
				must(t, l.change(allowed(t.Context()), "Test", maintenance, "SET standard_conforming_strings TO off"))
				for _, s := range hostile {
					if rows, err := l.read(t.Context(), "Test", maintenance, "SELECT "+literal(s)); err != nil || rows[0][0] != s {
						t.Errorf("%q came back as %q, %v", s, rows, err)
					}
				}
			}
			hostileObjects(t, l, e, ident, literal)
		})
	}
}

// hostileObjects makes databases and users of hostile names, below the checks that refuse them.
func hostileObjects(t *testing.T, l *link, e job.Engine, ident, literal func(string) string) {
	ctx := allowed(t.Context())
	for _, s := range hostile {
		if strings.TrimSpace(s) != s || strings.ContainsAny(s, "\n\t") || s == "" {
			continue
		}
		role, find := ident("z"+s), "SELECT count(*) FROM pg_catalog.pg_roles WHERE rolname = "+literal("z"+s)
		create, drop := "CREATE ROLE "+role, "DROP ROLE "+role
		if e == job.MySQL {
			name := ident("z" + s)
			create, drop = "CREATE DATABASE "+name, "DROP DATABASE "+name
			find = "SELECT COUNT(*) FROM information_schema.SCHEMATA WHERE BINARY SCHEMA_NAME = " + literal("z"+s)
		}
		must(t, l.change(ctx, "Test", maintenanceOf(e), create))
		if rows, err := l.read(ctx, "Test", maintenanceOf(e), find); err != nil || rows[0][0] != "1" {
			t.Errorf("%q is not there: %v, %v", s, rows, err)
		}
		must(t, l.change(ctx, "Test", maintenanceOf(e), drop))
	}
}

// TestPatternIsNobodyElses: a grant on a_b is none on axb.
func TestPatternIsNobodyElses(t *testing.T) {
	t.Parallel()
	access := direct(t, job.MySQL)
	ctx, s := allowed(t.Context()), open(t, access)
	password := job.NewPassword()
	must(t, s.SetRole(ctx, "pattern_own", password))
	must(t, s.CreateDatabase(ctx, "pat_tern", "pattern_own"))
	must(t, s.SetRole(ctx, "pattern_other", job.NewPassword()))
	must(t, s.CreateDatabase(ctx, "patxtern", "pattern_other"))
	if _, ours, err := s.Database(ctx, "patxtern", "pattern_own"); ours || err != nil {
		t.Errorf("%t, %v", ours, err)
	}
	user := asUser(t, access, "pattern_own", password)
	must(t, user.runs(ctx, "pat_tern", "SELECT 1"))
	refusedAccess(t, user, "patxtern")
}

// TestGrantsEndWithTheirDatabase: who could read a database that was dropped cannot read the next one of
// its name.
func TestGrantsEndWithTheirDatabase(t *testing.T) {
	t.Parallel()
	for _, e := range engines {
		access := direct(t, e)
		ctx, s := allowed(t.Context()), open(t, access)
		password := job.NewPassword()
		for _, role := range []string{"ends_first", "ends_second", "ends_reader"} {
			must(t, s.SetRole(ctx, role, password))
		}
		must(t, s.CreateDatabase(ctx, "ends", "ends_first"))
		must(t, s.Grant(ctx, "ends_reader", "ends", "ends_first", job.ReadOnly))
		must(t, asUser(t, access, "ends_reader", password).runs(ctx, "ends", "SELECT 1"))
		must(t, s.DropDatabase(ctx, "ends"))
		must(t, s.CreateDatabase(ctx, "ends", "ends_second"))
		refusedAccess(t, asUser(t, access, "ends_reader", password), "ends")
		refusedAccess(t, asUser(t, access, "ends_first", password), "ends")
		if _, ours, err := s.Database(ctx, "ends", "ends_first"); ours || err != nil {
			t.Errorf("%s: the first owner's: %t, %v", e, ours, err)
		}
	}
}

// TestNamesAreRefused: nothing but names that rows of ours can have goes any further.
func TestNamesAreRefused(t *testing.T) {
	t.Parallel()
	for _, e := range engines {
		s := open(t, direct(t, e))
		ctx := allowed(t.Context())
		good := job.NewPassword()
		bad := append([]string{}, hostile[1:]...)
		for _, name := range append(bad, job.SystemDatabases(e)...) {
			if fault, _ := job.DatabaseNameFault(e, name); fault == "" {
				continue
			}
			for what, err := range map[string]error{
				"CreateDatabase": s.CreateDatabase(ctx, name, "app"), "DropDatabase": s.DropDatabase(ctx, name),
				"Grant": s.Grant(ctx, "app", name, "own", job.ReadOnly),
			} {
				if !pipeline.Is(err, pipeline.Invalid) {
					t.Errorf("%s, %s %q: %v", e, what, name, err)
				}
			}
		}
		for _, role := range []string{"", admin, "postgres", "root", "rdsadmin", "rds_superuser", "cloudsqlsuperuser", "azure_pg_admin", "pg_monitor", "mysql", "public", `a"b`, "a'b", "a b", strings.Repeat("a", 64), "Ä"} {
			for what, err := range map[string]error{
				"SetRole": s.SetRole(ctx, role, good), "DropRole": s.DropRole(ctx, role, "", ""), "Grant": s.Grant(ctx, role, "app", "own", job.ReadOnly),
				"CreateDatabase": s.CreateDatabase(ctx, "app", role),
			} {
				if !pipeline.Is(err, pipeline.Invalid) {
					t.Errorf("%s, %s as %q: %v", e, what, role, err)
				}
			}
		}
		for _, password := range []string{"", "short", "has 'quotes' in it", `back\slash`, "with space in it", "пароль-пароль", "zero\x00zero"} {
			err := s.SetRole(ctx, "app", password)
			if !pipeline.Is(err, pipeline.Invalid) {
				t.Errorf("%s: password %q: %v", e, password, err)
			}
			if len(password) > 5 {
				noSecret(t, []string{password}, chain(err))
			}
		}
		if err := s.Grant(ctx, "app", "app", "own", "everything"); !pipeline.Is(err, pipeline.Invalid) {
			t.Error(err)
		}
	}
}

// TestVerifier is that of RFC 7677 and of pg_authid for the same password.
func TestVerifier(t *testing.T) {
	t.Parallel()
	salt := []byte{0x5b, 0x6d, 0x99, 0x68, 0x9d, 0x12, 0x35, 0x8e, 0xec, 0xa0, 0x4b, 0x14, 0x12, 0x36, 0xfa, 0x81} // W22ZaJ0SNY7soEsUEjb6gQ==
	got, err := scramWith("pencil", salt, 4096)
	if want := "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="; err != nil || got != want {
		t.Errorf("%s, %v", got, err)
	}
	one, err := scramVerifier("pencil")
	must(t, err)
	two, err := scramVerifier("pencil")
	must(t, err)
	if one == two || strings.Contains(one, "pencil") {
		t.Errorf("%s %s", one, two)
	}
}

// TestGates: a context without a gate changes nothing, and every change asks.
func TestGates(t *testing.T) {
	t.Parallel()
	for _, e := range engines {
		s := open(t, direct(t, e))
		if err := s.SetRole(context.Background(), "gates", job.NewPassword()); !errors.Is(err, pipeline.ErrReadOnly) {
			t.Errorf("%s: %v", e, err)
		}
		var ops []string
		ctx := pipeline.WithGate(t.Context(), func(_ context.Context, c pipeline.Call) error {
			if c.Mutating {
				ops = append(ops, c.Service+" "+c.Op)
			}
			return nil
		})
		must(t, s.SetRole(ctx, "gates", job.NewPassword()))
		must(t, s.DropRole(ctx, "gates", "", ""))
		if text := strings.Join(ops, ", "); !strings.Contains(text, "sql SetRole") || !strings.Contains(text, "sql DropRole") {
			t.Errorf("%s: %s", e, text)
		}
	}
}
