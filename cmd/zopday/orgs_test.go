package main

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zopday/provisioner/internal/cli"
	"github.com/zopday/provisioner/internal/client"
)

// whoIs starts a server on a database, asks it who a token belongs to, and ends it.
func whoIs(t *testing.T, file string, tokens ...string) (out []client.WhoAmI, fresh string) {
	t.Helper()
	srv, err := backends().Serve(t.Context(), cli.ServeOptions{Listen: "127.0.0.1:0", DB: file, LogLevel: "error", Log: &output{}, TimeScale: 1, DeadAfter: 1e9})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := srv.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}()
	if len(tokens) == 0 {
		tokens = []string{srv.FreshToken()}
	}
	for _, token := range tokens {
		c, err := client.New(client.Options{Server: srv.URL(), Token: strings.TrimSpace(token)})
		if err != nil {
			t.Fatal(err)
		}
		_, who, err := c.WhoAmI(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, who)
	}
	return out, srv.FreshToken()
}

// TestOrganisations: made and recovered on the database itself, and used over REST.
func TestOrganisations(t *testing.T) {
	file := filepath.Join(t.TempDir(), "zopday.db")
	who, bootstrap := whoIs(t, file)
	if who[0].Organisation.ID != "default" || who[0].Actor != "token:bootstrap" || len(who[0].Permissions) == 0 {
		t.Errorf("%+v", who)
	}
	code, made, errs := zopday(t.Context(), t, nil, "orgs", "create", "acme", "--db", file)
	if code != 0 || !strings.HasPrefix(made, "zop_") || strings.Count(made, "\n") != 1 || strings.Contains(errs, strings.TrimSpace(made)) {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	if code, out, _ := zopday(t.Context(), t, nil, "orgs", "create", "acme", "--db", file); code == 0 || out != "" {
		t.Errorf("the name again: exit code %d", code)
	}
	if code, out, errs := zopday(t.Context(), t, nil, "orgs", "list", "--db", file); code != 0 || !strings.Contains(out, "default") || !strings.Contains(out, "acme") {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
	code, again, errs := zopday(t.Context(), t, nil, "tokens", "recover", "--db", file, "--org", "acme")
	if code != 0 || !strings.HasPrefix(again, "zop_") {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	if code, _, errs := zopday(t.Context(), t, nil, "tokens", "recover", "--db", file, "--org", "nobody"); code == 0 || !strings.Contains(errs, "no such organisation") {
		t.Errorf("exit code %d: %s", code, errs)
	}
	who, fresh := whoIs(t, file, made, again, bootstrap)
	if fresh != "" {
		t.Error("a token is shown at the second start too")
	}
	for i, want := range []string{"acme token:admin", "acme token:recovery-", "default token:bootstrap"} {
		if got := who[i].Organisation.Name + " " + who[i].Actor; !strings.HasPrefix(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
