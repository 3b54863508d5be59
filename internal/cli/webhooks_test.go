package cli

import (
	"maps"
	"strings"
	"testing"
)

// TestWebhooksByName: a name goes wherever an ID does, also when it is on a later page.
func TestWebhooksByName(t *testing.T) {
	const id = "whk_0123456789abcdefghijklmnop"
	hook := `{"id":"` + id + `","name":"chat","url":"https://example.com/","enabled":true}`
	f := newFake(t)
	maps.Copy(f.answers, map[string]string{
		"GET /webhooks": `{"data":[{"id":"whk_1","name":"other"},` + hook + `],"meta":{"nextCursor":null}}`, "PATCH /webhooks/" + id: `{"data":` + hook + `}`,
		"POST /webhooks/" + id + "/rotate-secret": `{"data":` + hook + `}`, "POST /webhooks/" + id + "/test": `{"data":{"id":"whd_1"}}`, "DELETE /webhooks/" + id: "",
		"GET /webhooks/" + id + "/deliveries":                  `{"data":[],"meta":{"nextCursor":null}}`,
		"POST /webhooks/" + id + "/deliveries/whd_1/redeliver": `{"data":{"id":"whd_1"}}`,
	})
	for _, ref := range []string{"chat", id} {
		for _, what := range []string{"enable", "disable", "rotate", "test", "deliveries", "redeliver", "delete"} {
			args := []string{"webhooks", what, ref}
			if what == "redeliver" {
				args = append(args, "whd_1")
			}
			if got := run(t, f).do(args...); got.code != exitDone {
				t.Errorf("%q: exit code %d: %s\n%q", args, got.code, got.err, f.requests[len(f.requests)-1])
			}
		}
	}
	if got := run(t, f).do("webhooks", "deliveries", "chat"); !strings.Contains(got.err, "No messages yet") || got.out != "" {
		t.Errorf("%q %q", got.out, got.err)
	}
	if got := run(t, f).do("webhooks", "test", "nobody"); got.code != exitNotFound || f.sent("POST /webhooks/nobody/test") != 1 {
		t.Errorf("exit code %d: %s", got.code, got.err)
	}
	f.answers["GET /webhooks"] = `{"data":[],"meta":{"nextCursor":null}}`
	if got := run(t, f).do("webhooks", "list"); got.code != exitDone || got.out != "" || !strings.Contains(got.err, "No webhooks yet") {
		t.Errorf("exit code %d: %q %q", got.code, got.out, got.err)
	}
}
