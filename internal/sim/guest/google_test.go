package guest

import "testing"

func google(attributes bool) Env {
	e := world(true)
	e.Google = &Google{Project: "example-project", ProjectNumber: "123456789012", Zone: "us-central1-a", Name: "web-1", ID: "1234567890123456789", Type: "e2-medium",
		ServiceAccount: "vm@example-project.iam.gserviceaccount.com", Scopes: []string{"https://www.googleapis.com/auth/cloud-platform"},
		Attributes: map[string]string{"role": "web"}, GuestAttributes: attributes}
	return e
}

func TestGoogleMetadata(t *testing.T) {
	t.Parallel()
	const at, flavor = "http://metadata.google.internal/computeMetadata/v1/", " -H 'Metadata-Flavor: Google' "
	for _, tc := range []struct {
		name, script, out string
		env               Env
		exit              int
		want              string // guest attribute app/state
	}{
		{"without the header", "curl -s -f " + at + "instance/name", "", google(true), 22, ""},
		{"a value", "curl -s" + flavor + at + "instance/zone", "projects/123456789012/zones/us-central1-a", google(true), 0, ""},
		{"bundled flags and two headers", "curl -sfH 'Accept: text/plain' -H 'Metadata-Flavor: Google' " + at + "instance/attributes/role", "web", google(true), 0, ""},
		{"an attribute that is not there", "curl -sf" + flavor + at + "instance/attributes/none", "", google(true), 22, ""},
		{"a directory", "curl -s --header='Metadata-Flavor: Google' " + at + "instance/attributes/", "role\n", google(true), 0, ""},
		{"write and read", "curl -sf -X PUT --data done" + flavor + at + "instance/guest-attributes/app/state && curl -sf" + flavor + at + "instance/guest-attributes/app/state", "done",
			google(true), 0, "done"},
		{"from standard input", "echo done | curl -sf -X PUT -d @-" + flavor + at + "instance/guest-attributes/app/state", "", google(true), 0, "done"},
		{"from a file", "printf 'a\\nb' >/tmp/x; curl -sf -T /tmp/x" + flavor + at + "instance/guest-attributes/app/state", "", google(true), 0, "a\nb"},
		{"taken back", "curl -sf -X PUT -d 1" + flavor + at + "instance/guest-attributes/app/state; curl -sf -X DELETE" + flavor + at + "instance/guest-attributes/app/state", "",
			google(true), 0, ""},
		{"not enabled", "curl -sf -X PUT -d 1" + flavor + at + "instance/guest-attributes/app/state", "", google(false), 22, ""},
		{"no namespace", "curl -sf -X PUT -d 1" + flavor + at + "instance/guest-attributes/state", "", google(true), 22, ""},
		{"not on this cloud", "curl -s" + flavor + at + "instance/name", "", world(true), 6, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			m := New("ubuntu", "24.04", "x86_64", "web-1")
			r := m.Run(tc.script, tc.env)
			if r.Exit != tc.exit || r.Stdout != tc.out {
				t.Errorf("exit %d, stdout %q, stderr %q; want exit %d, stdout %q", r.Exit, r.Stdout, r.Stderr, tc.exit, tc.out)
			}
			if got := m.GuestAttributes["app/state"]; got != tc.want {
				t.Errorf("guest attribute app/state is %q, want %q", got, tc.want)
			}
		})
	}
}

// Nobody but the log learns how a start-up script ended.
func TestStartupScript(t *testing.T) {
	t.Parallel()
	m := New("debian", "13", "x86_64", "web-1")
	m.RunStartup("echo hello; exit 99", google(true))
	const want = "google_metadata_script_runner: startup-script found in metadata.\ngoogle_metadata_script_runner: startup-script: hello\ngoogle_metadata_script_runner: startup-script exit status 99\n"
	if got := m.Tail(StartupLog, 10); got != want {
		t.Errorf("log %q, want %q", got, want)
	}
}
