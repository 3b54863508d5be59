package guest

import (
	"strings"
	"testing"
	"time"
)

func world(egress bool) Env {
	return Env{Now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC), Egress: egress, InstanceID: "i-0123456789abcdef0", Region: "us-east-1"}
}

func TestRun(t *testing.T) {
	for _, tc := range []struct {
		name, script, out string
		exit              int
	}{
		{"a file that is there", "echo hello >/tmp/x; test -f /tmp/x && cat /tmp/x", "hello\n", 0},
		{"a file that is not", "test -f /tmp/y", "", 1},
		{"exit code", "exit 7", "", 7},
		{"loop", "for i in 1 2 3; do echo $i; done | tail -n 1", "3\n", 0},
		{"set -e stops", "set -e; false; echo no", "", 1},
		{"here document", "cat >/tmp/h <<-END\n\tone\n\ttwo\n\tEND\ngrep -c o /tmp/h", "2\n", 0},
		{"sed prints a field", "printf 'status: done\\nx\\n' | sed -n 's/^status: *//p' | head -n 1", "done\n", 0},
		{"sed with groups", "echo http://u:pw@h/ | sed -E -e 's#(://[^/:@ ]*:)[^@ ]+@#\\1***@#g'", "http://u:***@h/\n", 0},
		{"tr keeps printable", "printf 'a\\001b\\n' | tr -cd '\\11\\12\\40-\\176'", "ab\n", 0},
		{"unknown command", "no-such-command", "", 127},
		{"syntax error", "if true; then", "", 2},
		{"timeout lets pass", "timeout 5 true", "", 0},
		{"timeout ends", "timeout 5 sleep 60", "", 124},
		{"virtual clock", "a=$(date +%s); sleep 90; echo $(($(date +%s) - a))", "90\n", 0},
		{"high descriptors", "exec 3>&1 9>/tmp/lock; echo to-three >&3", "to-three\n", 0},
		{"signal traps are ignored", "trap 'exit 9' HUP INT TERM; trap 'echo bye' EXIT; true", "bye\n", 0},
		{"nothing of the host", "cat /etc/passwd", "", 1},
		{"an endless loop ends", "while :; do sleep 600; done", "", 1},
		{"command -v", "command -v docker || echo none", "none\n", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := New("ubuntu", "24.04", "x86_64", "ip-10-0-0-4")
			r := m.Run(tc.script, world(true))
			if r.Exit != tc.exit || r.Stdout != tc.out {
				t.Errorf("exit %d, stdout %q, stderr %q; want exit %d, stdout %q", r.Exit, r.Stdout, r.Stderr, tc.exit, tc.out)
			}
		})
	}
}

const nginxScript = `#!/bin/bash
set -euo pipefail
apt-get update && apt-get install -y docker.io
docker network create web
mkdir -p /etc/web
cat >/etc/web/default.conf <<'END'
server { listen 80; location = /healthz { return 200 "ok\n"; } }
END
docker run -d --name web --network web -p 80:80 -v /etc/web:/etc/nginx/conf.d:ro nginx:1.30
install -d /var/lib/done && touch /var/lib/done/flag
`

func TestBoot(t *testing.T) {
	for _, tc := range []struct {
		name, data string
		egress     bool
		state      string
		flag       bool
	}{
		{"a sound script", nginxScript, true, "done", true},
		{"no way out", nginxScript, false, "error", false},
		{"broken syntax", strings.Replace(nginxScript, "set -euo", "if then set -euo", 1), true, "error", false},
		{"an unknown package stops it", strings.Replace(nginxScript, "docker.io", "no-such-package", 1), true, "error", false},
		{"cloud-config", "#cloud-config\nwrite_files:\n- path: /usr/local/bin/x\n  permissions: '0755'\n  content: |\n    #!/bin/sh\n    mkdir -p /var/lib/done\n    touch /var/lib/done/flag\nruncmd:\n- [/usr/local/bin/x]\n", false, "done", true},
		{"cloud-config that is no YAML", "#cloud-config\nruncmd: [\n", true, "error", false},
		{"neither script nor configuration", "hello", true, "error", false},
		{"nothing", "", false, "done", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := New("ubuntu", "24.04", "x86_64", "ip-10-0-0-4")
			took := m.Boot([]byte(tc.data), world(tc.egress))
			if m.CloudInit != tc.state || m.Exists("/var/lib/done/flag") != tc.flag {
				t.Errorf("cloud-init %s (%s), flag %v, log:\n%s", m.CloudInit, m.CloudInitError, m.Exists("/var/lib/done/flag"), m.Tail(outputLog, 30))
			}
			if tc.name == "no way out" && took < time.Minute {
				t.Errorf("gave up after %v: without a way out, downloads hang", took)
			}
			status, ok := m.Get(80, "/healthz")
			if want := tc.flag && strings.Contains(tc.data, "docker run"); ok != want || (ok && status != 200) {
				t.Errorf("GET /healthz: %d %v, want an answer: %v", status, ok, want)
			}
		})
	}
}

// The machine must survive being copied as JSON, and a second boot runs only what belongs to every boot.
func TestSecondBoot(t *testing.T) {
	m := New("al2023", "2023", "arm64", "ip-10-0-0-5")
	m.Boot([]byte("#!/bin/sh\necho once >>/tmp/runs\nmkdir -p /var/lib/cloud/scripts/per-boot\n"+
		"printf '#!/bin/sh\\necho boot >>/tmp/runs\\n' >/var/lib/cloud/scripts/per-boot/a\nchmod +x /var/lib/cloud/scripts/per-boot/a\n"), world(true))
	m = m.Clone()
	m.Boot(nil, world(true))
	if got := m.Run("cat /tmp/runs", world(true)).Stdout; got != "once\nboot\n" {
		t.Errorf("runs %q (log %s)", got, m.Tail(outputLog, 20))
	}
}
