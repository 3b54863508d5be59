package cli

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"github.com/zopday/provisioner/internal/client"
)

const (
	roleAccount = `{"data":{"id":"ca_1","name":"prod","provider":"aws","method":"assume_role","permissionLevel":"read_write","settings":{"roleArn":"arn:aws:iam::123456789012:role/z","externalId":"zopday-abc"}}}`
	fitAnswer   = `{"data":{"at":"2026-11-30T10:00:00Z","ok":true,"identity":{"principal":"arn:x","holder":"123456789012","regions":["us-east-1"]},"permissions":[{"family":"vm"}]}}`
	unfitAnswer = `{"data":{"at":"2026-11-30T10:00:00Z","ok":false,"permissions":[{"family":"vm","unknown":"nobody says"}],"code":"permissions-unknown","message":"what they may do is not known","hint":"Grant it x; GET /catalog/policies has the whole of what jobs need."}}`
)

func withCloudAccounts(t *testing.T) *fakeAPI {
	f := newFake(t)
	maps.Copy(f.answers, map[string]string{
		"POST /cloud-accounts": roleAccount, "PATCH /cloud-accounts/prod": roleAccount, "GET /cloud-accounts/prod": roleAccount,
		"POST /cloud-accounts/prod/verify": fitAnswer, "POST /cloud-accounts/default/verify": fitAnswer, "GET /cloud-accounts": `{"data":[],"meta":{"nextCursor":null}}`,
		"GET /catalog/policies": `{"data":[{"family":"vm","readOnly":false,"document":{"Version":"2012-10-17","Statement":[]}}]}`,
	})
	return f
}

var addProd = strings.Fields("accounts add --name prod --provider aws --method assume_role --role arn:aws:iam::123456789012:role/z --level read_write")

// TestAccountsThatDoNotVerify: what was made or changed is kept, and it is said how to
// go on, by the account's name.
func TestAccountsThatDoNotVerify(t *testing.T) {
	f := withCloudAccounts(t)
	for _, args := range [][]string{addProd, strings.Fields("accounts change prod --role arn:aws:iam::123456789012:role/z")} {
		f.answers["POST /cloud-accounts/prod/verify"] = unfitAnswer
		got := run(t, f).do(args...)
		if got.code != exitUnexpected || !strings.Contains(got.out, "not known: nobody says") || !strings.Contains(got.out, "zopday accounts policy") {
			t.Errorf("%q: exit code %d\n%s", args, got.code, got.out)
		}
		for _, want := range []string{"[permissions-unknown]", "prod (ca_1) is there all the same", "Grant it x", "zopday accounts verify prod", `"sts:ExternalId": "zopday-abc"`} {
			if !strings.Contains(got.err, want) {
				t.Errorf("%q: no %q in\n%s", args, want, got.err)
			}
		}
		// To a program it is one document, which says what was made.
		got = run(t, f).do(append(args, "-o", "json")...)
		var doc struct{ Code, Hint, AccountID string }
		if err := json.Unmarshal([]byte(got.err), &doc); err != nil || doc.Code != "permissions-unknown" || doc.AccountID != "ca_1" || doc.Hint == "" {
			t.Errorf("%q: %v: %s", args, err, got.err)
		}
		// The server does not get as far as to ask.
		f.refuse["POST /cloud-accounts/prod/verify"] = client.Problem{Status: 503, Code: "cloud-not-available", Title: "No cloud", Detail: "this server has no access to any cloud"}
		if got = run(t, f).do(args...); got.code != exitUnreachable || !strings.Contains(got.err, "prod is kept, and is not verified: zopday accounts verify prod") {
			t.Errorf("%q: exit code %d\n%s", args, got.code, got.err)
		}
		delete(f.refuse, "POST /cloud-accounts/prod/verify")
		f.answers["POST /cloud-accounts/prod/verify"] = fitAnswer
		if got = run(t, f).do(args...); got.code != exitDone || !strings.Contains(got.out, "123456789012") || got.err != "" {
			t.Errorf("%q: exit code %d\n%s%s", args, got.code, got.out, got.err)
		}
	}
}

// TestAccountsNotVerified: the trust policy of a role can be pasted before anything is
// asked.
func TestAccountsNotVerified(t *testing.T) {
	f := withCloudAccounts(t)
	got := run(t, f).do(append(addProd, "--no-verify")...)
	_, policy, ok := strings.Cut(got.out, "\n\n{")
	if got.code != exitDone || !ok {
		t.Fatalf("exit code %d\n%s%s", got.code, got.out, got.err)
	}
	var doc struct {
		Statement []struct {
			Action    string
			Condition map[string]map[string]string
		}
	}
	if err := json.Unmarshal([]byte("{"+policy), &doc); err != nil || doc.Statement[0].Condition["StringEquals"]["sts:ExternalId"] != "zopday-abc" || doc.Statement[0].Action != "sts:AssumeRole" {
		t.Errorf("%v: %s", err, policy)
	}
	if got := run(t, f).do("accounts", "change", "prod", "--level", "read_only", "--no-verify"); got.code != exitDone || !strings.Contains(got.out, "ca_1") {
		t.Errorf("exit code %d\n%s%s", got.code, got.out, got.err)
	}
	if n := f.sent("POST /cloud-accounts/prod/verify"); n != 0 {
		t.Errorf("%d verifications", n)
	}
}

// TestAccountsUsage: what cannot be asked is not sent.
func TestAccountsUsage(t *testing.T) {
	f := withCloudAccounts(t)
	for args, want := range map[string]string{
		"accounts verify default":                             "accounts verify default --provider aws",
		"accounts verify prod --provider ibm":                 "use aws, gcp or azure",
		"accounts verify prod --family vm,disks":              "use cache, cluster, datastore, network or vm",
		"accounts policy aws disks":                           "use cache, cluster, datastore, network or vm",
		"accounts policy ibm vm":                              "use aws, gcp or azure",
		"accounts verify default --provider aws --family=vms": `"vms" is not known`,
	} {
		if got := run(t, f).do(strings.Fields(args)...); got.code != exitUsage || !strings.Contains(got.err, want) {
			t.Errorf("%s: exit code %d: %s", args, got.code, got.err)
		}
	}
	if len(f.requests) > 0 {
		t.Errorf("sent: %q", f.requests)
	}
	if got := run(t, f).do("accounts", "verify", "default", "--provider", "aws", "--family", "vm"); got.code != exitDone {
		t.Errorf("exit code %d: %s", got.code, got.err)
	}
	if got := run(t, f).do("accounts", "policy", "aws", "vm"); got.out != "{\n  \"Version\": \"2012-10-17\",\n  \"Statement\": []\n}\n" {
		t.Errorf("%q", got.out)
	}
	if got := run(t, f).do("accounts", "list"); got.code != exitDone || got.out != "" || !strings.Contains(got.err, "zopday accounts add") {
		t.Errorf("exit code %d: %q %q", got.code, got.out, got.err)
	}
}
