package bootstrap

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// What the script makes on a VM, and where.
const (
	SentinelPath  = "/var/lib/zopday/bootstrap-complete"
	FailedPath    = "/var/lib/zopday/bootstrap-failed"
	LogPath       = "/var/log/zopday-bootstrap.log"
	NetworkName   = "nginx-on-zop-net"
	ContainerName = "zop-nginx"
	// NginxConfigDir holds conf.d (whole server blocks) and routes.d (locations of the default
	// server) on the VM; both are mounted into the container.
	NginxConfigDir = "/etc/zopday/nginx"
)

// The guest attributes by which a VM of Compute Engine tells how far it is. The value of the first
// begins with one of the Reported words; the second is the end of the log of a failed bootstrap.
const (
	AttributeNamespace = "zopday"
	AttributeState     = "bootstrap"
	AttributeLog       = "bootstrap-log"

	ReportedRunning  = "running"
	ReportedFailed   = "failed"
	ReportedComplete = "complete"
)

// Values of Options.
const (
	OSUbuntu = "ubuntu"
	OSDebian = "debian"
	OSAL2023 = "al2023"

	ModeDockerNginx = "docker_nginx"
	ModeBareMetal   = "bare_metal"

	CloudAWS   = "aws"
	CloudGCP   = "gcp"
	CloudAzure = "azure"
)

const (
	// DefaultNginxImage is pinned by tag. Name an image with its digest, or one in a registry of
	// your own, through Options.NginxImage.
	DefaultNginxImage = "docker.io/library/nginx:1.30.4"
	// DefaultDockerRepo is where Debian and Ubuntu images get Docker's packages and key.
	DefaultDockerRepo = "https://download.docker.com/linux"
	// MaxBytes is what EC2 takes as user data before its base64 encoding ("Run commands when you
	// launch an EC2 instance with user data input"). The other clouds take more; the same limit
	// holds for all three, so that a job does not fit one cloud and fail on another.
	MaxBytes = 16384
)

const (
	scriptPath = "/usr/local/sbin/zopday-bootstrap"
	confPath   = "/etc/zopday/bootstrap.conf"
	extraPath  = "/usr/local/lib/zopday/extra"
	reportPath = "/usr/local/lib/zopday/report"
	perBoot    = "/var/lib/cloud/scripts/per-boot/zopday-bootstrap"
)

//go:embed bootstrap.sh
var script string

//go:embed report_google.sh
var reportGoogle string

//go:embed nginx.conf
var nginxConf string

// Options say what the VM is and what it shall run.
type Options struct {
	Cloud      string // aws, gcp or azure
	OS         string // ubuntu, debian or al2023
	Mode       string // docker_nginx or bare_metal; empty means docker_nginx
	NginxImage string // empty means DefaultNginxImage
	DockerRepo string // a mirror of DefaultDockerRepo; empty means that itself
	// Extra is the user's own script, run once, as root, before the sentinel is written; the
	// sentinel waits for its success. Without a #! line it runs under sh with set -e.
	Extra string
}

// AdminUser is the user that Azure wants a VM to have.
const AdminUser = "zopday"

// AuthorizedKeys are where Azure puts that user's key, and what is removed on the first boot.
var AuthorizedKeys = []string{"/home/" + AdminUser + "/.ssh/authorized_keys", "/root/.ssh/authorized_keys"}

// ErrInvalid is wrapped by every refusal of an option's value.
var ErrInvalid = errors.New("invalid bootstrap option")

// A SizeError says that user data is over MaxBytes even when compressed.
type SizeError struct {
	Raw, Gzipped, Limit int
}

func (e *SizeError) Error() string {
	return fmt.Sprintf("user data is %d bytes, %d with gzip; the limit is %d: make the extra script shorter, or let it fetch the rest",
		e.Raw, e.Gzipped, e.Limit)
}

var (
	// A registry host, a path of lower-case names, then a tag, a digest or both.
	imagePattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]{1,5})?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?$`)
	tagPattern   = regexp.MustCompile(`(:[A-Za-z0-9_][A-Za-z0-9_.-]*)?(@sha256:[0-9a-f]{64})?$`)
	repoPattern  = regexp.MustCompile(`^https://[A-Za-z0-9.-]+(:[0-9]{1,5})?(/[A-Za-z0-9._~-]+)*$`)
)

// osIDs maps an OS to the ID in the image's /etc/os-release.
var osIDs = map[string]string{OSUbuntu: "ubuntu", OSDebian: "debian", OSAL2023: "amzn"}

// UserData returns the user data for one VM, not base64-encoded. It is plain #cloud-config while
// that fits MaxBytes and gzip, which cloud-init unpacks, when only that fits. The bytes depend on
// nothing but the options. The error is a *CredentialError, a *SizeError or wraps ErrInvalid.
func UserData(o Options) (data []byte, gzipped bool, err error) {
	o, err = o.withDefaults()
	if err != nil {
		return nil, false, err
	}
	raw := render(o)
	if len(raw) <= MaxBytes {
		return raw, false, nil
	}
	packed, err := pack(raw)
	if err != nil {
		return nil, false, err
	}
	if len(packed) > MaxBytes {
		return nil, false, &SizeError{Raw: len(raw), Gzipped: len(packed), Limit: MaxBytes}
	}
	return packed, true, nil
}

func (o Options) withDefaults() (Options, error) {
	if o.Mode == "" {
		o.Mode = ModeDockerNginx
	}
	if o.NginxImage == "" {
		o.NginxImage = DefaultNginxImage
	}
	if o.DockerRepo == "" {
		o.DockerRepo = DefaultDockerRepo
	}
	// Before anything that would quote a value in its message.
	for _, text := range []string{o.NginxImage, o.DockerRepo, o.Extra} {
		if err := CheckCredentials(text); err != nil {
			return o, err
		}
	}
	switch o.Cloud {
	case CloudAWS, CloudGCP, CloudAzure:
	default:
		return o, fmt.Errorf("%w: cloud %q: want aws, gcp or azure", ErrInvalid, o.Cloud)
	}
	switch {
	case osIDs[o.OS] == "":
		return o, fmt.Errorf("%w: os %q: want ubuntu, debian or al2023", ErrInvalid, o.OS)
	case o.OS == OSAL2023 && o.Cloud != CloudAWS:
		return o, fmt.Errorf("%w: os al2023 is an AWS image, not one of %s", ErrInvalid, o.Cloud)
	case o.OS == OSDebian && o.Cloud == CloudAWS:
		return o, fmt.Errorf("%w: os debian has no packaged SSM agent on AWS: use ubuntu or al2023", ErrInvalid)
	}
	if o.Mode != ModeDockerNginx && o.Mode != ModeBareMetal {
		return o, fmt.Errorf("%w: mode %q: want docker_nginx or bare_metal", ErrInvalid, o.Mode)
	}
	if !imagePattern.MatchString(o.NginxImage) {
		return o, fmt.Errorf("%w: nginx image %q is no image reference", ErrInvalid, o.NginxImage)
	}
	if m := tagPattern.FindStringSubmatch(o.NginxImage); m[2] == "" && (m[1] == "" || m[1] == ":latest") {
		return o, fmt.Errorf("%w: nginx image %q: name a tag other than latest, or a digest", ErrInvalid, o.NginxImage)
	}
	if !repoPattern.MatchString(o.DockerRepo) {
		return o, fmt.Errorf("%w: docker repository %q is no https URL", ErrInvalid, o.DockerRepo)
	}
	extra, err := normalExtra(o.Extra)
	o.Extra = extra
	return o, err
}

// normalExtra gives the user's script a #! line and line ends that a kernel accepts, and checks
// the syntax if it is shell: better refused now than found on a VM an hour later.
func normalExtra(extra string) (string, error) {
	if strings.TrimSpace(extra) == "" {
		return "", nil
	}
	extra = strings.ReplaceAll(extra, "\r\n", "\n")
	if strings.ContainsRune(extra, 0) {
		return "", fmt.Errorf("%w: the extra script holds a NUL byte", ErrInvalid)
	}
	if !strings.HasPrefix(extra, "#!") {
		extra = "#!/bin/sh\nset -e\n" + extra
	}
	if !strings.HasSuffix(extra, "\n") {
		extra += "\n"
	}
	line, _, _ := strings.Cut(extra, "\n")
	variant := syntax.LangPOSIX
	switch interpreter(line) {
	case "sh", "dash":
	case "bash":
		variant = syntax.LangBash
	default:
		return extra, nil
	}
	_, err := syntax.NewParser(syntax.Variant(variant)).Parse(strings.NewReader(extra), "extra")
	if at, ok := errors.AsType[syntax.ParseError](err); ok {
		return "", fmt.Errorf("%w: the extra script, line %d: %s", ErrInvalid, at.Pos.Line(), at.Text)
	}
	if err != nil {
		return "", fmt.Errorf("%w: the extra script is not valid %s", ErrInvalid, interpreter(line))
	}
	return extra, nil
}

// interpreter is the program's base name in a #! line, looking through env.
func interpreter(line string) string {
	for f := range strings.FieldsSeq(strings.TrimPrefix(line, "#!")) {
		base := f[strings.LastIndexByte(f, '/')+1:]
		if base != "env" && !strings.HasPrefix(base, "-") {
			return base
		}
	}
	return ""
}

type file struct {
	path, mode, content string
}

// render writes the document by hand: a person who looks at a VM's user data shall see the script
// itself, not one quoted line.
func render(o Options) []byte {
	files := []file{
		{confPath, "0644", conf(o)},
		{scriptPath, "0755", script},
		{reportPath, "0755", reportGoogle},
	}
	if o.Mode == ModeDockerNginx {
		files = append(files,
			file{NginxConfigDir + "/conf.d/default.conf", "0644", nginxConf},
			file{NginxConfigDir + "/routes.d/README", "0644", routesReadme})
	}
	if o.Extra != "" {
		files = append(files, file{extraPath, "0700", o.Extra})
	}
	var b bytes.Buffer
	b.WriteString("#cloud-config\nwrite_files:\n")
	for _, f := range files {
		fmt.Fprintf(&b, "- path: %s\n  permissions: '%s'\n", f.path, f.mode)
		if literal(f.content) {
			b.WriteString("  content: |\n")
			for line := range strings.Lines(f.content) {
				if line != "\n" {
					b.WriteString("    ")
				}
				b.WriteString(line)
			}
			continue
		}
		fmt.Fprintf(&b, "  encoding: b64\n  content: %s\n", base64.StdEncoding.EncodeToString([]byte(f.content)))
	}
	b.WriteString("runcmd:\n")
	fmt.Fprintf(&b, "- [mkdir, -p, %s]\n- [ln, -sf, %s, %s]\n- [%s]\n",
		perBoot[:strings.LastIndexByte(perBoot, '/')], scriptPath, perBoot, scriptPath)
	return b.Bytes()
}

const routesReadme = "Put the services of this VM here, one NAME.conf each, holding location blocks of the\n" +
	"default server; whole server blocks go to ../conf.d. Containers on the network\n" +
	NetworkName + " are reached by their name. Then: docker exec " + ContainerName + " nginx -s reload\n"

func conf(o Options) string {
	return fmt.Sprintf("CLOUD=%s\nOS_ID=%s\nMODE=%s\nNGINX_IMAGE=%s\nDOCKER_REPO=%s\n",
		o.Cloud, osIDs[o.OS], o.Mode, o.NginxImage, o.DockerRepo)
}

// literal reports whether a YAML literal block gives the text back byte for byte: it must be
// printable ASCII, start without white space and end with exactly one line end.
func literal(s string) bool {
	if s == "" || s[0] == ' ' || s[0] == '\t' || s[0] == '\n' || !strings.HasSuffix(s, "\n") || strings.HasSuffix(s, "\n\n") {
		return false
	}
	for line := range strings.Lines(s) {
		// A line of blanks alone counts as indentation, not as text.
		if line != "\n" && strings.TrimRight(line, " \t\n") == "" {
			return false
		}
	}
	for i := range len(s) {
		if c := s[i]; c != '\n' && c != '\t' && (c < ' ' || c > '~') {
			return false
		}
	}
	return true
}

// pack compresses without a time stamp or name in the header, so that the same document gives the
// same bytes and a launch template does not differ from itself.
func pack(raw []byte) ([]byte, error) {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(raw); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
