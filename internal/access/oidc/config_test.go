package oidc

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const whole = `# issuers of the company
issuers:
  - issuer: https://login.example.com
    name: company
    organisation: acme
    clientId: zopday
    clientSecretEnv: COMPANY_SECRET
    scopes: [openid, email, groups]
    groupsClaim: roles
    groupsPrefix: "company:"
    nameClaim: preferred_username
    allowedDomains: [Example.com]
    audiences: [https://zopday.example.com]
    rolesByGroup: {"company:platform": Admin}
  - issuer: https://token.actions.example.com
    audiences: [zopday]
`

func TestParse(t *testing.T) {
	t.Parallel()
	got, err := Parse("issuers.yaml", []byte(whole), func(name string) string { return map[string]string{"COMPANY_SECRET": " canary \n"}[name] })
	if err != nil {
		t.Fatal(err)
	}
	want := &Config{Issuers: []Issuer{
		{
			URL: "https://login.example.com", Name: "company", Organisation: "acme", ClientID: "zopday", ClientSecretEnv: "COMPANY_SECRET", Scopes: []string{"openid", "email", "groups"},
			GroupsClaim: "roles", GroupsPrefix: "company:", NameClaim: "preferred_username", AllowedDomains: []string{"example.com"}, Audiences: []string{"https://zopday.example.com"},
			RolesByGroup: map[string]string{"company:platform": "Admin"},
		},
		{
			URL: "https://token.actions.example.com", Name: "token.actions.example.com", Organisation: "default", Scopes: []string{"openid", "profile", "email"},
			GroupsClaim: "groups", NameClaim: "name", Audiences: []string{"zopday"},
		},
	}}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(Issuer{}, "Secret")); diff != "" {
		t.Error(diff)
	}
	if got.Issuers[0].Secret != "canary" {
		t.Error("the secret was not read")
	}
	// It shows itself nowhere.
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("config", "config", got, "secret", got.Issuers[0].Secret)
	text, err := json.Marshal(map[string]any{"c": got, "s": got.Issuers[0].Secret})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{fmt.Sprintf("%v %+v %#v %v %q", got, *got, *got, got.Issuers[0], got.Issuers[0].Secret), log.String(), string(text)} {
		if strings.Contains(s, "canary") {
			t.Errorf("the secret is in %s", s)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	open, empty := write("open", "s", 0o644), write("empty", "\n", 0o600)
	one := func(lines ...string) string {
		return "issuers:\n- issuer: https://login.example.com\n  " + strings.Join(lines, "\n  ") + "\n"
	}
	for name, tc := range map[string]struct {
		file string
		want string // of the first fault: line, field
		says string
	}{
		"nothing":                {"", "0 the file", "no mapping"},
		"no YAML":                {"issuers: [", "0 the file", "YAML"},
		"a list":                 {"- a", "0 the file", "no mapping"},
		"two documents":          {whole + "---\nissuers: []\n", "0 the file", "more than one document"},
		"another field":          {"issuer: x\n", "1 issuer", "issuers alone"},
		"no issuer":              {"issuers: []\n", "1 issuers", "names none"},
		"not a list":             {"issuers: {a: b}\n", "1 issuers", "no list"},
		"an issuer is a text":    {"issuers: [a]\n", "1 issuers[0]", "no mapping"},
		"an unknown field":       {one("clientID: x"), "3 issuers[0].clientID", "clientId"},
		"a number for a list":    {one("clientId: x", "scopes: {a: b}"), "2 issuers[0]", "cannot unmarshal"},
		"for nobody":             {one("name: x"), "2 issuers[0].clientId", "audiences"},
		"without an issuer":      {"issuers:\n- clientId: x\n", "2 issuers[0].issuer", "missing"},
		"plain HTTP":             {"issuers:\n- issuer: http://login.example.com\n  clientId: x\n", "2 issuers[0].issuer", "https://"},
		"a query":                {"issuers:\n- issuer: https://login.example.com/?x\n  clientId: x\n", "2 issuers[0].issuer", "without a query"},
		"a password":             {"issuers:\n- issuer: https://a:b@login.example.com\n  clientId: x\n", "2 issuers[0].issuer", "not one to trust"},
		"a name with blanks":     {one("clientId: x", "name: My Login"), "4 issuers[0].name", "short name"},
		"without openid":         {one("clientId: x", "scopes: [email]"), "4 issuers[0].scopes", "openid"},
		"the client as audience": {one("clientId: x", "audiences: [x]"), "4 issuers[0].audiences", "of their own"},
		"an empty audience":      {one("audiences: ['']"), "3 issuers[0].audiences", "empty"},
		"a domain with @":        {one("clientId: x", "allowedDomains: ['@example.com']"), "4 issuers[0].allowedDomains", "without @"},
		"domains without e-mail": {one("clientId: x", "scopes: [openid]", "allowedDomains: [example.com]"), "4 issuers[0].scopes", "email"},
		"a custom role":          {one("clientId: x", "rolesByGroup: {a: Deployer}"), "4 issuers[0].rolesByGroup", "assignments"},
		"two secrets":            {one("clientId: x", "clientSecretFile: a", "clientSecretEnv: b"), "4 issuers[0].clientSecretFile", "leave one"},
		"a secret for nobody":    {one("audiences: [x]", "clientSecretEnv: b"), "2 issuers[0].clientId", "no client"},
		"an empty variable":      {one("clientId: x", "clientSecretEnv: NOT_SET"), "4 issuers[0].clientSecretEnv", "NOT_SET"},
		"no such file":           {one("clientId: x", "clientSecretFile: "+dir+"/none"), "4 issuers[0].clientSecretFile", "no such file"},
		"a file for everybody":   {one("clientId: x", "clientSecretFile: "+open), "4 issuers[0].clientSecretFile", "chmod 0600"},
		"an empty file":          {one("clientId: x", "clientSecretFile: "+empty), "4 issuers[0].clientSecretFile", "empty"},
		"twice":                  {one("clientId: x") + "- issuer: https://login.example.com\n  clientId: y\n  name: y\n", "4 issuers[1].issuer", "twice"},
		"a name twice":           {one("clientId: x", "name: y") + "- issuer: https://other.example.com\n  clientId: y\n  name: y\n", "5 issuers[1].name", "of its own"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Parse("issuers.yaml", []byte(tc.file), func(string) string { return "" })
			var f *Fault
			if !errors.As(err, &f) || fmt.Sprint(f.Line, " ", f.Field) != tc.want || f.What == "" || f.Fix == "" || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%v (%+v)", err, f)
			}
			if f != nil && !strings.HasPrefix(f.Error(), "issuers.yaml") {
				t.Errorf("%v does not begin with the file", f)
			}
		})
	}
	// All faults are said at once.
	_, err := Parse("f", []byte(one("name: My Login", "scopes: [email]")), func(string) string { return "" })
	if err == nil || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("%v", err)
	}
}

func TestLoad(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("canary\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "issuers.yaml")
	if err := os.WriteFile(file, []byte("issuers: [{issuer: 'https://login.example.com', clientId: x, clientSecretFile: '"+secret+"'}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(file, os.Getenv)
	if err != nil || c.Issuers[0].Secret != "canary" {
		t.Errorf("%v", err)
	}
	if _, err := Load(file+".none", os.Getenv); err == nil || !strings.Contains(err.Error(), "--oidc-config") {
		t.Errorf("%v", err)
	}
}
