package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/sim"
	simaws "github.com/zopday/provisioner/internal/sim/aws"
)

// A caller sends requests to a server with a token.
type caller struct {
	t          *testing.T
	url, token string
}

// do sends a request and reads data of the answer; it returns the status and the text.
func (c caller) do(method, path, body string, into any) (int, string) {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), method, c.url+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	if into != nil {
		if err := json.Unmarshal(text, &struct{ Data any }{into}); err != nil || resp.StatusCode >= 300 {
			c.t.Fatalf("%s %s: %d %s (%v)", method, path, resp.StatusCode, text, err)
		}
	}
	return resp.StatusCode, string(text)
}

// TestJobsOfCloudAccounts: each job works with the credentials of its account and no
// others, a role is assumed with the account's external ID, a read_only account changes
// nothing, and no key is said anywhere.
func TestJobsOfCloudAccounts(t *testing.T) {
	w := sim.New(sim.Options{Seed: 7, TimeScale: 300})
	cloud := httptest.NewServer(simaws.New(w, simaws.Options{}))
	t.Cleanup(cloud.Close)
	control := httptest.NewServer(w.Control())
	t.Cleanup(control.Close)
	log := &logBuffer{}
	s := start(t, func(c *Config) {
		c.AWS = &AWS{Endpoint: cloud.URL, AccessKey: "AKIAIOSFODNN7EXAMPLE", SecretKey: "secret"}
		c.TimeScale, c.Workers = 300, 4
		c.Log = slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	ana := caller{t, s.URL(), token}

	var keys, role, look struct {
		ID       string
		Settings map[string]string
	}
	const secret = "canary/of/a/secret/access/key/0123456789"
	partner := simKeyOf("111122223333")
	ana.do("POST", "/cloud-accounts", fmt.Sprintf(`{"name":"keys","provider":"aws","method":"static_keys","permissionLevel":"read_write","credentials":{"accessKeyId":%q,"secretAccessKey":%q}}`, partner, secret), &keys)
	ana.do("POST", "/cloud-accounts", `{"name":"role","provider":"aws","method":"assume_role","permissionLevel":"read_write","settings":{"roleArn":"arn:aws:iam::123456789012:role/zopday"}}`, &role)
	ana.do("POST", "/cloud-accounts", `{"name":"look","provider":"aws","method":"ambient","permissionLevel":"read_only"}`, &look)

	verify := func(account string) (ok bool, code, holder, principal string) {
		var v struct {
			OK       bool
			Code     string
			Identity struct{ Holder, Principal string }
		}
		ana.do("POST", "/cloud-accounts/"+account+"/verify", `{"families":["network"]}`, &v)
		return v.OK, v.Code, v.Identity.Holder, v.Identity.Principal
	}
	if ok, code, holder, _ := verify("keys"); !ok || holder != "111122223333" {
		t.Errorf("keys: %v %s, of %s", ok, code, holder)
	}
	if ok, code, _, _ := verify("role"); ok || code == "" {
		t.Errorf("a role that is not there: %v %s", ok, code)
	}
	makeRole(t, control.URL, "somebody-else's")
	if ok, code, _, _ := verify("role"); ok || code == "" {
		t.Errorf("a role that asks for another external ID: %v %s", ok, code)
	}
	makeRole(t, control.URL, role.Settings["externalId"])
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if ok, _, _, _ := verify("role"); ok {
			break // a changed trust policy counts after a while
		}
	}
	if ok, code, holder, who := verify("role"); !ok || holder != "123456789012" || !strings.Contains(who, "assumed-role/zopday/") {
		t.Errorf("role: %v %s, %s of %s", ok, code, who, holder)
	}

	for account, id := range map[string]string{"keys": keys.ID, "role": role.ID} {
		since := len(w.Books(sim.BookFilter{}))
		var j struct{ ID, Status, CloudAccountID string }
		ana.do("POST", "/provisioning-jobs", fmt.Sprintf(`{"resourceType":"network","provider":"aws","name":"net-%s","region":"us-east-1","cloudAccountId":%q,"submit":true,"config":{"spec":{"network":{"cidr":"10.60.0.0/16"}}}}`, account, account), &j)
		if j.CloudAccountID != id {
			t.Errorf("the job's account is %s, want %s", j.CloudAccountID, id)
		}
		for end := time.Now().Add(90 * time.Second); j.Status != "completed" && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			if ana.do("GET", "/provisioning-jobs/"+j.ID, "", &j); j.Status == "failed" {
				break
			}
		}
		if j.Status != "completed" {
			_, text := ana.do("GET", "/provisioning-jobs/"+j.ID, "", nil)
			t.Fatalf("%s: %s", account, text)
		}
		yes, n := true, 0
		for _, e := range w.Books(sim.BookFilter{Since: since, Mutating: &yes}) {
			if mine := e.Caller == partner; e.Service != "sts" && (mine != (account == "keys") || account == "role" && !strings.Contains(e.Caller, "role/zopday")) {
				t.Fatalf("the job of %s calls %s %s as %s", account, e.Service, e.Operation, e.Caller)
			}
			n++
		}
		if n < 10 {
			t.Errorf("the job of %s made %d changes", account, n)
		}
		if status, text := ana.do("DELETE", "/cloud-accounts/"+account, "", nil); status != http.StatusConflict || !strings.Contains(text, j.ID) {
			t.Errorf("an account that a job stands on: %d %s", status, text)
		}
	}
	if status, text := ana.do("POST", "/provisioning-jobs", `{"resourceType":"network","provider":"aws","name":"net-look","region":"us-east-1","cloudAccountId":"look","submit":true,"config":{"spec":{"network":{}}}}`, nil); status != 422 || !strings.Contains(text, "read_only") {
		t.Errorf("a read_only account: %d %s", status, text)
	}
	for _, path := range []string{"/cloud-accounts", "/cloud-accounts/keys", "/audit-logs", "/provisioning-jobs"} {
		if _, text := ana.do("GET", path, "", nil); strings.Contains(text, secret) {
			t.Errorf("%s says the key", path)
		}
	}
	if strings.Contains(log.String(), secret) {
		t.Error("the log says the key")
	}
}

// simKeyOf is an access key of the simulation's account.
func simKeyOf(account string) string {
	for key, a := range simaws.DefaultKeys() {
		if a == account {
			return key
		}
	}
	panic("the simulation has no key of " + account)
}

// makeRole makes the role zopday, as somebody else would, or lets it ask for another external ID.
func makeRole(t *testing.T, control, external string) {
	t.Helper()
	trust := fmt.Sprintf(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":"arn:aws:iam::123456789012:root"},"Action":"sts:AssumeRole","Condition":{"StringEquals":{"sts:ExternalId":%q}}}]}`, external)
	for _, call := range []struct {
		operation string
		params    map[string]any
	}{
		{"CreateRole", map[string]any{"RoleName": "zopday", "AssumeRolePolicyDocument": trust}},
		{"UpdateAssumeRolePolicy", map[string]any{"RoleName": "zopday", "PolicyDocument": trust}},
	} {
		body, err := json.Marshal(map[string]any{"action": "call", "cloud": "aws", "service": "iam", "operation": call.operation, "params": call.params})
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.Post(control+"/_sim/objects", "application/json", bytes.NewReader(body)) //nolint:noctx // on this machine
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK && call.operation == "UpdateAssumeRolePolicy" {
			t.Fatalf("%s: %d %s", call.operation, resp.StatusCode, text)
		}
	}
}
