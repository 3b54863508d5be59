package cli

import "testing"

// What the API says in requests, the command line says in commands.
func TestHintsSpeakInCommands(t *testing.T) {
	for hint, want := range map[string]string{
		"GET …/plan lists what the teardown takes. Repeat the request with ?confirm=shop": "zopday jobs plan JOB lists what the teardown takes. Repeat the command with --confirm shop",
		"GET /provisioning-jobs lists what there is.":                                     "zopday jobs list shows what there is.",
		"Retry it, or tear it down with DELETE.":                                          "Retry it, or tear it down with zopday jobs delete JOB.",
		"Change what the message names (PATCH the job), then retry.":                      "Change what the message names (zopday jobs update JOB), then retry.",
		"GET /spaces lists what there is.":                                                "zopday spaces list shows what there is.",
		"use the ID of one from GET /spaces":                                              "use the ID of one from zopday spaces list",
		"name one of type kubernetes: GET /spaces":                                        "name one of type kubernetes: zopday spaces list",
		"register the cluster as a space: POST /spaces":                                   "register the cluster as a space: zopday spaces register",
		"GET /catalog/components lists what there is.":                                    "zopday components list shows what there is.",
		"use a name from GET /catalog/components":                                         "use a name from zopday components list",
		`Send it with {"componentOp":"upgrade"}.`:                                         "Send it with zopday components upgrade JOB.",
		"Use the whole ID.":                                                               "Use the whole ID.",
	} {
		if got := asCommands.Replace(hint); got != want {
			t.Errorf("%q became %q", hint, got)
		}
	}
}
