package bootstrap

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"mvdan.cc/sh/v3/syntax"
)

// requireTool fails the test, as a check that is left out silently is worth nothing.
func requireTool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("%s is not installed: apt-get install %s (make test does this)", name, name)
	}
	return path
}

func TestCloudInitSchema(t *testing.T) {
	t.Parallel()
	tool := requireTool(t, "cloud-init")
	check := func(t *testing.T, data []byte) (string, error) {
		path := filepath.Join(t.TempDir(), "user-data")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(tool, "schema", "--config-file", path).CombinedOutput()
		return string(out), err
	}
	for name, o := range shapes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data, _, err := UserData(o)
			if err != nil {
				t.Fatal(err)
			}
			if out, err := check(t, data); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	t.Run("the check can fail", func(t *testing.T) {
		t.Parallel()
		if out, err := check(t, []byte("#cloud-config\nwrite_files: 7\n")); err == nil {
			t.Errorf("nonsense passed: %s", out)
		}
	})
}

func TestShellcheck(t *testing.T) {
	t.Parallel()
	tool := requireTool(t, "shellcheck")
	scripts := map[string]string{"probe": ProbeScript(30 * time.Second)}
	data, _, err := UserData(shapes["ubuntu aws extra"])
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range parse(t, data).WriteFiles {
		if strings.HasPrefix(f.Content, "#!/bin/sh") {
			scripts[f.Path] = f.Content
		}
	}
	if len(scripts) != 4 {
		t.Fatalf("%d scripts, want the bootstrap, the extra script, the report and the probe", len(scripts))
	}
	for name, text := range scripts {
		cmd := exec.Command(tool, "--shell=sh", "-")
		cmd.Stdin = strings.NewReader(text)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
		for _, variant := range []syntax.LangVariant{syntax.LangPOSIX, syntax.LangBash} {
			if _, err := syntax.NewParser(syntax.Variant(variant)).Parse(strings.NewReader(text), name); err != nil {
				t.Errorf("%s as %s: %v", name, variant, err)
			}
		}
	}
}

func TestUserDataShape(t *testing.T) {
	t.Parallel()
	for name, o := range shapes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data, gzipped, err := UserData(o)
			if err != nil {
				t.Fatal(err)
			}
			if gzipped || len(data) > MaxBytes {
				t.Errorf("%d bytes, gzipped %t; it must fit as it is", len(data), gzipped)
			}
			if i := bytes.IndexFunc(data, func(r rune) bool { return r != '\n' && r != '\t' && (r < ' ' || r > '~') }); i >= 0 {
				t.Errorf("byte %d is not printable ASCII", i)
			}
			again, _, err := UserData(o)
			if err != nil || !bytes.Equal(data, again) {
				t.Errorf("the same options gave other bytes (%v)", err)
			}
			files := map[string]string{}
			c := parse(t, data)
			for _, f := range c.WriteFiles {
				files[f.Path] = f.Content
			}
			if diff := cmp.Diff(script, files[scriptPath]); diff != "" {
				t.Errorf("the script did not survive the YAML:\n%s", diff)
			}
			if _, has := files[NginxConfigDir+"/conf.d/default.conf"]; has != (o.Mode != ModeBareMetal) {
				t.Errorf("NGINX configuration present: %t", has)
			}
			if last := c.RunCmd[len(c.RunCmd)-1]; !cmp.Equal(last, []string{scriptPath}) {
				t.Errorf("the last command is %q; its code is the one that cloud-init reports", last)
			}
		})
	}
	for _, path := range []string{SentinelPath, FailedPath, LogPath} {
		if !strings.Contains(script, "="+path+"\n") || !strings.Contains(probe, path) {
			t.Errorf("script and probe do not both name %s", path)
		}
	}
	for _, setting := range []string{
		"NETWORK=" + NetworkName, "CONTAINER=" + ContainerName, "NGINX_DIR=" + NginxConfigDir, "CONF=" + confPath, "EXTRA=" + extraPath,
	} {
		if !strings.Contains(script, "\n"+setting+"\n") {
			t.Errorf("the script does not say %s", setting)
		}
	}
}

// The clouds get the same but for the one setting that names them.
func TestSameOnEveryCloud(t *testing.T) {
	t.Parallel()
	var seen []string
	for _, cloud := range []string{CloudAWS, CloudGCP, CloudAzure} {
		data, _, err := UserData(Options{Cloud: cloud, OS: OSUbuntu})
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, strings.Replace(string(data), "CLOUD="+cloud+"\n", "", 1))
	}
	for _, other := range seen[1:] {
		if diff := cmp.Diff(seen[0], other); diff != "" {
			t.Error(diff)
		}
	}
}

// extraFor returns an extra script that makes the plain user data exactly total bytes long.
func extraFor(t *testing.T, total int, fill func(n int) string) string {
	t.Helper()
	const head = "#!/bin/sh\n"
	fixed := len(render(mustDefaults(t, Options{Cloud: CloudAWS, OS: OSUbuntu, Extra: head + "# \n"})))
	extra := head + "# " + fill(total-fixed) + "\n"
	if got := len(render(mustDefaults(t, Options{Cloud: CloudAWS, OS: OSUbuntu, Extra: extra}))); got != total {
		t.Fatalf("built %d bytes, want %d", got, total)
	}
	return extra
}

func mustDefaults(t *testing.T, o Options) Options {
	t.Helper()
	o, err := o.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestSizeLimit(t *testing.T) {
	t.Parallel()
	repeated := func(n int) string { return strings.Repeat("z", n) }
	random := func(n int) string {
		// Letters from a fixed seed: close to six bits a byte, which gzip cannot bring far down.
		const alphabet = "ghijklmnopqrstuvwxyzGHIJKLMNOPQRSTUVWXYZ+-.,;!?_~^%*"
		r := rand.New(rand.NewPCG(1, 2))
		b := make([]byte, n)
		for i := range b {
			b[i] = alphabet[r.IntN(len(alphabet))]
		}
		return string(b)
	}
	for _, tc := range []struct {
		name    string
		size    int
		fill    func(int) string
		gzipped bool
		refused bool
	}{
		{"one under", 16383, repeated, false, false},
		{"exactly", 16384, repeated, false, false},
		{"one over", 16385, repeated, true, false},
		{"one over, random", 16385, random, true, false},
		{"40000 repeated", 40000, repeated, true, false},
		{"40000 random", 40000, random, false, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			o := Options{Cloud: CloudAWS, OS: OSUbuntu, Extra: extraFor(t, tc.size, tc.fill)}
			data, gzipped, err := UserData(o)
			if tc.refused {
				var size *SizeError
				if !errors.As(err, &size) || size.Raw != tc.size || size.Gzipped <= MaxBytes || size.Limit != MaxBytes {
					t.Fatalf("err = %v", err)
				}
				for _, number := range []int{size.Raw, size.Gzipped, size.Limit} {
					if !strings.Contains(err.Error(), fmt.Sprint(number)) {
						t.Errorf("%q does not name %d", err, number)
					}
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if gzipped != tc.gzipped || len(data) > MaxBytes {
				t.Fatalf("%d bytes, gzipped %t", len(data), gzipped)
			}
			if !gzipped {
				if len(data) != tc.size {
					t.Errorf("%d bytes, want %d", len(data), tc.size)
				}
				return
			}
			again, _, err := UserData(o)
			if err != nil || !bytes.Equal(data, again) {
				t.Errorf("gzip gave other bytes the second time (%v)", err)
			}
			r, err := gzip.NewReader(bytes.NewReader(data))
			if err != nil {
				t.Fatal(err)
			}
			plain, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			parse(t, plain)
			if len(plain) != tc.size {
				t.Errorf("unpacks to %d bytes, want %d", len(plain), tc.size)
			}
		})
	}
}

func TestInvalidOptions(t *testing.T) {
	t.Parallel()
	good := Options{Cloud: CloudAWS, OS: OSUbuntu}
	for _, tc := range []struct {
		name   string
		change func(*Options)
		word   string
	}{
		{"cloud", func(o *Options) { o.Cloud = "oracle" }, "cloud"},
		{"os", func(o *Options) { o.OS = "windows" }, "os"},
		{"no os", func(o *Options) { o.OS = "" }, "os"},
		{"Amazon Linux elsewhere", func(o *Options) { o.Cloud, o.OS = CloudGCP, OSAL2023 }, "al2023"},
		{"Debian on AWS", func(o *Options) { o.OS = OSDebian }, "debian"},
		{"mode", func(o *Options) { o.Mode = "podman" }, "mode"},
		{"image without a tag", func(o *Options) { o.NginxImage = "docker.io/library/nginx" }, "tag"},
		{"image with a port but no tag", func(o *Options) { o.NginxImage = "mirror:5000/nginx" }, "tag"},
		{"image at latest", func(o *Options) { o.NginxImage = "nginx:latest" }, "tag"},
		{"image that is shell", func(o *Options) { o.NginxImage = "nginx:1; reboot" }, "image"},
		{"image on two lines", func(o *Options) { o.NginxImage = "nginx:1\nCLOUD=x" }, "image"},
		{"plain http repository", func(o *Options) { o.DockerRepo = "http://mirror.example.test" }, "https"},
		{"repository that is shell", func(o *Options) { o.DockerRepo = "https://x/$(reboot)" }, "https"},
		{"extra with broken shell", func(o *Options) { o.Extra = "echo one\nif true; then\n" }, "line"},
		{"extra with a NUL", func(o *Options) { o.Extra = "echo \x00\n" }, "NUL"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			o := good
			tc.change(&o)
			data, _, err := UserData(o)
			if !errors.Is(err, ErrInvalid) || data != nil {
				t.Fatalf("err = %v, %d bytes", err, len(data))
			}
			if !strings.Contains(err.Error(), tc.word) {
				t.Errorf("%q does not say %q", err, tc.word)
			}
		})
	}
}

func TestValidOptions(t *testing.T) {
	t.Parallel()
	digest := "@sha256:" + strings.Repeat("0f", 32)
	for name, o := range map[string]Options{
		"tag and digest":    {NginxImage: "docker.io/library/nginx:1.30.4" + digest},
		"digest":            {NginxImage: "nginx" + digest},
		"own registry":      {NginxImage: "registry.example.test:5000/team/web-server/nginx:1.30.4-alpine"},
		"mirror":            {DockerRepo: "https://mirror.example.test:8443/docker/linux"},
		"bash":              {Extra: "#!/bin/bash\na=(1 2)\n"},
		"bash by env":       {Extra: "#!/usr/bin/env -S bash -e\n[[ -n ${a[0]} ]]\n"},
		"python":            {Extra: "#!/usr/bin/python3\nif True:\n  print('(')\n"},
		"line ends of DOS":  {Extra: "#!/bin/sh\r\necho one\r\n"},
		"blank extra":       {Extra: " \n\n"},
		"without a newline": {Extra: "true"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o.Cloud, o.OS = CloudAWS, OSUbuntu
			data, _, err := UserData(o)
			if err != nil {
				t.Fatal(err)
			}
			if bytes.ContainsRune(data, '\r') {
				t.Error("a carriage return is left")
			}
			if blank := strings.TrimSpace(o.Extra) == ""; blank == bytes.Contains(data, []byte("path: "+extraPath)) {
				t.Errorf("extra script written: %t", !blank)
			}
		})
	}
}

// The script removes every file that the probe looks for afterwards.
func TestScriptRemovesAzuresKey(t *testing.T) {
	t.Parallel()
	data, _, err := UserData(Options{Cloud: CloudAzure, OS: OSUbuntu})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(data), "rm -f "+strings.Join(AuthorizedKeys, " ")+"\n") {
		t.Errorf("the script does not remove %v", AuthorizedKeys)
	}
}
