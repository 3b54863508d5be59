package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/zopday/provisioner/internal/cli"
)

// output is a stream that a command and a test share.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

func zopday(ctx context.Context, t *testing.T, env map[string]string, args ...string) (code int, out, errs string) {
	t.Helper()
	var o, e output
	home := t.TempDir()
	code = cli.Main(ctx, args, cli.Streams{In: strings.NewReader(""), Out: &o, Err: &e}, func(k string) string {
		if k == "HOME" {
			return home
		}
		return env[k]
	}, backends())
	return code, o.String(), e.String()
}

func lastLine(s string) string {
	s = strings.TrimRight(s, "\n")
	return s[strings.LastIndexByte(s, '\n')+1:]
}

// TestDemo takes every example through its whole life, against the real server
// and the simulated cloud, over HTTP.
func TestDemo(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a minute")
	}
	// What each example makes, so that one that quietly makes less shows.
	want := map[string]string{
		"vm-aws-fixed-lb.yaml":     "RECEIPT created=28 removed=28 kept=0 left=0",
		"vm-aws-fixed.yaml":        "RECEIPT created=21 removed=21 kept=0 left=0",
		"vm-aws-asg-lb.yaml":       "RECEIPT created=28 removed=28 kept=0 left=0",
		"vm-aws-asg-nlb.yaml":      "RECEIPT created=25 removed=25 kept=0 left=0",
		"vm-aws-arm64-al2023.yaml": "RECEIPT created=22 removed=22 kept=0 left=0",
		"vm-aws-bare-metal.yaml":   "RECEIPT created=21 removed=21 kept=0 left=0",
		"vm-aws-existing.yaml":     "RECEIPT created=6 removed=6 kept=0 left=0",
		"vm-aws-per-zone-nat.yaml": "RECEIPT created=29 removed=29 kept=0 left=0",
		"vm-aws-internal-lb.yaml":  "RECEIPT created=27 removed=27 kept=0 left=0",
		"vm-aws-adopt.yaml":        "RECEIPT created=0 removed=0 kept=0 left=0",
		"vm-aws-adopt-asg.yaml":    "RECEIPT created=0 removed=0 kept=0 left=0",

		"network-aws.yaml":            "RECEIPT created=24 removed=24 kept=0 left=0",
		"network-aws-existing.yaml":   "RECEIPT created=12 removed=12 kept=0 left=0",
		"network-aws-peering.yaml":    "RECEIPT created=11 removed=11 kept=0 left=0",
		"network-gcp.yaml":            "RECEIPT created=9 removed=9 kept=0 left=0",
		"network-gcp-existing.yaml":   "RECEIPT created=5 removed=5 kept=0 left=0",
		"network-gcp-peering.yaml":    "RECEIPT created=5 removed=5 kept=0 left=0",
		"network-azure.yaml":          "RECEIPT created=13 removed=13 kept=0 left=0",
		"network-azure-existing.yaml": "RECEIPT created=9 removed=9 kept=0 left=0",
		"network-azure-peering.yaml":  "RECEIPT created=6 removed=6 kept=0 left=0",
		"vm-gcp-fixed-lb.yaml":        "RECEIPT created=23 removed=23 kept=0 left=0",
		"vm-gcp-mig-lb.yaml":          "RECEIPT created=20 removed=20 kept=0 left=0",
		"vm-azure-fixed-lb.yaml":      "RECEIPT created=21 removed=21 kept=0 left=0",
		"vm-azure-asg-lb.yaml":        "RECEIPT created=19 removed=19 kept=0 left=0",

		"cluster-aws.yaml":            "RECEIPT created=49 removed=49 kept=0 left=0",
		"cluster-aws-existing.yaml":   "RECEIPT created=17 removed=17 kept=0 left=0",
		"cluster-aws-adopt.yaml":      "RECEIPT created=0 removed=0 kept=0 left=0",
		"cluster-gcp.yaml":            "RECEIPT created=26 removed=26 kept=0 left=0",
		"cluster-gcp-existing.yaml":   "RECEIPT created=7 removed=7 kept=0 left=0",
		"cluster-gcp-adopt.yaml":      "RECEIPT created=0 removed=0 kept=0 left=0",
		"cluster-azure.yaml":          "RECEIPT created=33 removed=33 kept=0 left=0",
		"cluster-azure-existing.yaml": "RECEIPT created=13 removed=13 kept=0 left=0",
		"cluster-azure-adopt.yaml":    "RECEIPT created=0 removed=0 kept=0 left=0",

		"cache-aws-adopt.yaml":                   "RECEIPT created=0 removed=0 kept=0 left=0",
		"cache-aws-existing.yaml":                "RECEIPT created=6 removed=5 kept=1 left=0",
		"cache-aws.yaml":                         "RECEIPT created=19 removed=18 kept=1 left=0",
		"cache-azure-adopt.yaml":                 "RECEIPT created=0 removed=0 kept=0 left=0",
		"cache-azure-existing.yaml":              "RECEIPT created=8 removed=8 kept=0 left=0",
		"cache-azure.yaml":                       "RECEIPT created=14 removed=14 kept=0 left=0",
		"cache-gcp-adopt.yaml":                   "RECEIPT created=0 removed=0 kept=0 left=0",
		"cache-gcp-existing.yaml":                "RECEIPT created=1 removed=1 kept=0 left=0",
		"cache-gcp.yaml":                         "RECEIPT created=7 removed=7 kept=0 left=0",
		"datastore-mysql-aws-adopt.yaml":         "RECEIPT created=0 removed=0 kept=0 left=0",
		"datastore-mysql-gcp-adopt.yaml":         "RECEIPT created=0 removed=0 kept=0 left=0",
		"datastore-mysql-azure-adopt.yaml":       "RECEIPT created=0 removed=0 kept=0 left=0",
		"datastore-mysql-aws.yaml":               "RECEIPT created=20 removed=19 kept=1 left=0",
		"datastore-mysql-azure.yaml":             "RECEIPT created=15 removed=14 kept=1 left=0",
		"datastore-mysql-gcp.yaml":               "RECEIPT created=11 removed=10 kept=1 left=0",
		"datastore-postgres-aws-adopt.yaml":      "RECEIPT created=0 removed=0 kept=0 left=0",
		"datastore-postgres-aws-existing.yaml":   "RECEIPT created=7 removed=6 kept=1 left=0",
		"datastore-postgres-aws.yaml":            "RECEIPT created=20 removed=19 kept=1 left=0",
		"datastore-postgres-azure-adopt.yaml":    "RECEIPT created=0 removed=0 kept=0 left=0",
		"datastore-postgres-azure-existing.yaml": "RECEIPT created=11 removed=10 kept=1 left=0",
		"datastore-postgres-azure.yaml":          "RECEIPT created=16 removed=15 kept=1 left=0",
		"datastore-postgres-gcp-adopt.yaml":      "RECEIPT created=0 removed=0 kept=0 left=0",
		"datastore-postgres-gcp-existing.yaml":   "RECEIPT created=5 removed=4 kept=1 left=0",
		"datastore-postgres-gcp.yaml":            "RECEIPT created=11 removed=10 kept=1 left=0",

		"component-cert-manager-aws.yaml": "RECEIPT created=2 removed=2 kept=0 left=0",
		"component-traefik-gcp.yaml":      "RECEIPT created=2 removed=2 kept=0 left=0",
		"component-valkey-azure.yaml":     "RECEIPT created=2 removed=2 kept=0 left=0",
	}
	files, err := filepath.Glob("../../examples/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		name := filepath.Base(f)
		if strings.HasSuffix(name, ".sandbox.yaml") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, out, errs := zopday(t.Context(), t, nil, "demo", "-f", f, "--time-scale", "120")
			if code != 0 || lastLine(out) != want[name] {
				t.Errorf("exit code %d, last line %q, want %q\n%s\n%s", code, lastLine(out), want[name], out, errs)
			}
			for _, says := range []string{" is as asked.", "0 calls that change something", "A second job of that name is refused", "no difference that was not asked for"} {
				if !strings.Contains(out, says) {
					t.Errorf("the demo does not say %q", says)
				}
			}
		})
	}
}

// TestDemoTellsTheTruth: a job that cannot be made is no success, whatever is
// cleaned up afterwards.
func TestDemoTellsTheTruth(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "vm-aws-zoneless.yaml")
	doc, err := os.ReadFile("../../examples/vm-aws-fixed-lb.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, doc, 0o600); err != nil {
		t.Fatal(err)
	}
	// Without its .sandbox.yaml the zone does not exist: stepValidate refuses.
	code, out, errs := zopday(t.Context(), t, nil, "demo", "-f", file, "--time-scale", "120")
	if code != 3 {
		t.Errorf("exit code %d, want 3\n%s%s", code, out, errs)
	}
	if !strings.Contains(out, "example.test") || lastLine(out) != "RECEIPT created=0 removed=0 kept=0 left=0" {
		t.Errorf("the demo does not name the zone, or ends with %q\n%s", lastLine(out), out)
	}
	// A request that is refused is not carried out at all.
	code, out, _ = zopday(t.Context(), t, nil, "demo", "-f", file, "--set", "pool.count=0.5")
	if code != 2 || lastLine(out) != "RECEIPT created=0 removed=0 kept=0 left=0" {
		t.Errorf("exit code %d, want 2\n%s", code, out)
	}
}

var address = regexp.MustCompile(`http://127\.0\.0\.1:[0-9]+`)

// TestServeOnOneDatabase: an SQLite file belongs to one process, and the second
// one is told so.
func TestServeOnOneDatabase(t *testing.T) {
	file := filepath.Join(t.TempDir(), "zopday.db")
	ctx, stop := context.WithCancel(t.Context())
	first, err := backends().Serve(ctx, cli.ServeOptions{Listen: "127.0.0.1:0", DB: file, LogLevel: "error", Log: &output{}, TimeScale: 1, DeadAfter: 1e9})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if !strings.HasPrefix(first.FreshToken(), "zop_") || !address.MatchString(first.URL()) {
		t.Errorf("token %q, address %q", first.FreshToken(), first.URL())
	}
	code, _, errs := zopday(ctx, t, nil, "serve", "--listen", "127.0.0.1:0", "--db", file)
	if code == 0 || !strings.Contains(errs, file) {
		t.Errorf("a second server on the file: exit code %d: %s", code, errs)
	}
	code, _, errs = zopday(ctx, t, nil, "serve", "--listen", strings.TrimPrefix(first.URL(), "http://"), "--db", file+"2")
	if code == 0 || !strings.Contains(errs, "address already in use") {
		t.Errorf("a second server on the address: exit code %d: %s", code, errs)
	}
	if err := first.Close(ctx); err != nil {
		t.Error(err)
	}
	chains, err := backends().VerifyAudit(ctx, file)
	if err != nil {
		t.Error(err)
	}
	for _, c := range chains {
		// A server seals what it wrote before it ends.
		if !c.Whole || c.Unsealed != 0 {
			t.Errorf("audit log of %s after the server ended: %+v", c.Org, c)
		}
	}
	again, err := backends().Serve(ctx, cli.ServeOptions{Listen: "127.0.0.1:0", DB: file, LogLevel: "error", Log: &output{}, TimeScale: 1, DeadAfter: 1e9})
	if err != nil {
		t.Fatal(err)
	}
	if again.FreshToken() != "" {
		t.Error("a token is shown at the second start too")
	}
	if err := again.Close(ctx); err != nil {
		t.Error(err)
	}
}
