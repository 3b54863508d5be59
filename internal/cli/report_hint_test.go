package cli

import "testing"

// What the API says in requests, the command line says in commands.
func TestHintsSpeakInCommands(t *testing.T) {
	for hint, want := range map[string]string{
		"GET …/plan lists what the teardown takes. Repeat the request with ?confirm=shop": "zopday jobs plan JOB lists what the teardown takes. Repeat the command with --confirm shop",
		"GET /provisioning-jobs lists what there is.":                                     "zopday jobs list shows what there is.",
		"Retry it, or tear it down with DELETE.":                                          "Retry it, or tear it down with zopday jobs delete JOB.",
		"Change what the message names (PATCH the job), then retry.":                      "Change what the message names (zopday jobs update JOB), then retry.",
		"Use the whole ID.": "Use the whole ID.",
	} {
		if got := asCommands.Replace(hint); got != want {
			t.Errorf("%q became %q", hint, got)
		}
	}
}
