package provision

import (
	"errors"
	"strings"
	"testing"
)

// FuzzDecode: whatever a body is, it is read or refused as the caller's mistake, with
// at most so many words; and what was read can be stored.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		`{"resourceType":"vm","provider":"aws","name":"a","region":"us-east-1","config":{"spec":{"pool":{"count":1}}}}`,
		`{"name":"a","name":"b"}`, `{"name":"\ud800"}`, `[[[[`, `{"labels":{"a":1}}`, `{"submit":1e400}`, "\xff", `{"kind":"remediation","config":{"spec":{"action":"pause"}}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var create CreateRequest
		for _, into := range []any{&create, &SchedulePatch{}, &WebhookRequest{}, &WebhookPatch{}, &TeamRequest{}} {
			err := Decode(body, into)
			var r *Refusal
			if err != nil && (!errors.As(err, &r) || r.Kind != Invalid && r.Kind != Malformed && r.Kind != CustomerDatabase || len(r.Fields) > 2*maxFieldErrors) {
				t.Errorf("%q into %T: %v", body, into, err)
			}
		}
		if strings.ContainsRune(create.Name+create.Region, 0) {
			t.Errorf("%q has a name that no database keeps", body)
		}
	})
}
