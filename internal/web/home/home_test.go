package home_test

import (
	"os"
	"strings"
	"testing"

	"github.com/zopday/provisioner/internal/web/webtest"
)

func TestMain(m *testing.M) { os.Exit(webtest.Main(m)) }

func TestSignInAndOut(t *testing.T) {
	b := webtest.Open(t, "")
	b.Go("/zopday/")
	if at := b.Path(); !strings.HasPrefix(at, "/zopday/sign-in?next=") {
		t.Fatalf("somebody who is not signed in is at %s", at)
	}
	b.Axe()
	b.Narrow()
	if text := b.Text("main"); !strings.Contains(text, "zopday tokens create") || strings.Contains(text, "under Tokens") {
		t.Errorf("the page says %q", text)
	}
	b.Expect("401")
	b.Type("#f-token", "zop_wrong")
	b.Send("main form")
	if text := b.Text(".error"); !strings.Contains(text, "not a token that works") {
		t.Errorf("a wrong token: %q", text)
	}
	b.SignIn(webtest.Admin)
	if at := b.Path(); at != "/zopday/" {
		t.Errorf("signed in at %s", at)
	}
	if who := b.Text(".who"); who != "token:bootstrap" {
		t.Errorf("signed in as %q", who)
	}
	// It says where jobs are, and nothing of whether there are any.
	if text := b.Text("main"); !strings.Contains(text, "Signed in as token:bootstrap") || !strings.Contains(text, "zopday jobs list") || strings.Contains(text, "Nothing") {
		t.Errorf("the page says %q", text)
	}
	b.Axe()
	b.Narrow()
	b.Shot("home")
	b.Send("header form")
	b.Go("/zopday/")
	if at := b.Path(); !strings.HasPrefix(at, "/zopday/sign-in") {
		t.Errorf("signed out, at %s", at)
	}
}
