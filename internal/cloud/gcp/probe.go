package gcp

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/bootstrap"
	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// silence is how long a VM may go without a report before its console is read.
const silence = 4 * time.Minute

// ExecCommand is what a person types to get a shell on a VM: SSH by OS Login
// through Identity-Aware Proxy, so that IAM decides who may, and the VM needs no
// address.
func (p *Provider) ExecCommand(_ *job.Job, vm job.VMInfo) string {
	return fmt.Sprintf("gcloud compute ssh %s --zone %s --tunnel-through-iap --project %s", base(vm.InstanceID), or(zoneOf(vm.InstanceID), vm.Zone), projectOf(vm.InstanceID))
}

// looked is a VM's last answer, and when it was asked for.
type looked struct {
	at    time.Time
	probe cloud.Probe
}

// Probe says how far each VM's bootstrap is, by the guest attributes that the
// bootstrap itself publishes. A VM that stays silent is looked at through its
// serial console.
func (p *Provider) Probe(ctx context.Context, r *pipeline.Run, vms []job.VMInfo) (map[string]cloud.Probe, error) {
	out := map[string]cloud.Probe{}
	if r.Mode == pipeline.Plan {
		return out, nil
	}
	ctx = view(ctx, r)
	probes := make([]cloud.Probe, len(vms))
	var parts []func(context.Context) error
	for i, vm := range vms {
		parts = append(parts, func(ctx context.Context) (err error) {
			probes[i], err = p.probeOnce(ctx, r, vm)
			return err
		})
	}
	err := pipeline.All(ctx, parts...)
	for i, vm := range vms {
		out[vm.InstanceID] = probes[i]
	}
	return out, err
}

// probeOnce asks a VM less often the longer it takes (failure kind H4).
func (p *Provider) probeOnce(ctx context.Context, r *pipeline.Run, vm job.VMInfo) (cloud.Probe, error) {
	key := "probe of " + vm.InstanceID
	last, again := r.Recall(key).(looked)
	age := sinceLaunch(r, vm)
	if again && r.Pace.Cloud(r.Now().Sub(last.at)) < min(age/8, 30*time.Second) {
		return last.probe, nil
	}
	got, err := p.probe(ctx, r, vm, age)
	if err == nil {
		r.Remember(key, looked{r.Now(), got})
	}
	return got, err
}

func sinceLaunch(r *pipeline.Run, vm job.VMInfo) time.Duration {
	if vm.LaunchedAt == nil {
		return 0
	}
	return r.Pace.Cloud(r.Now().Sub(*vm.LaunchedAt))
}

func (p *Provider) probe(ctx context.Context, r *pipeline.Run, vm job.VMInfo, age time.Duration) (cloud.Probe, error) {
	attributes, err := p.guestAttributes(ctx, vm.InstanceID)
	switch {
	case err == nil && attributes[bootstrap.AttributeState] != "":
		return reported(attributes), nil
	case pipeline.Is(err, pipeline.Denied, pipeline.Invalid):
		// Not for these credentials, or not allowed in this project: the console may tell.
		return p.probeConsole(ctx, vm, "its guest attributes cannot be read: "+err.Error())
	case err != nil && !pipeline.Is(err, pipeline.NotFound):
		return cloud.Probe{}, err
	case age < silence && r.Mode == pipeline.Apply:
		return cloud.Probe{State: cloud.ProbeNoAgent, Detail: "it boots and has not reported yet"}, nil
	}
	return p.probeConsole(ctx, vm, "it has published no guest attribute")
}

// guestAttributes is what the bootstrap has published. A VM that has published
// nothing answers with not found.
func (p *Provider) guestAttributes(ctx context.Context, id string) (map[string]string, error) {
	call := p.compute.Instances.GetGuestAttributes(projectOf(id), zoneOf(id), base(id)).QueryPath(bootstrap.AttributeNamespace + "/")
	got, err := send(ctx, call)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	if got.QueryValue != nil {
		for _, i := range got.QueryValue.Items {
			if i.Namespace == bootstrap.AttributeNamespace {
				out[i.Key] = strings.TrimSpace(i.Value)
			}
		}
	}
	return out, nil
}

func reported(attributes map[string]string) cloud.Probe {
	word, rest, _ := strings.Cut(attributes[bootstrap.AttributeState], " ")
	switch word {
	case bootstrap.ReportedComplete:
		return cloud.Probe{State: cloud.ProbeReady, Detail: rest}
	case bootstrap.ReportedFailed:
		return cloud.Probe{State: cloud.ProbeFailed, Detail: withLog(rest, attributes[bootstrap.AttributeLog])}
	}
	return cloud.Probe{State: cloud.ProbeRunning, Detail: "step " + rest}
}

func withLog(text, log string) string {
	if log == "" {
		return text
	}
	return text + "\n--- end of " + bootstrap.LogPath + "\n" + log
}

// What the console shows at the end of a bootstrap and of cloud-init.
var (
	consoleFailed   = regexp.MustCompile(`zopday bootstrap failed: ([^\r\n]*)`)
	consoleComplete = "zopday bootstrap complete"
	consoleDone     = regexp.MustCompile(`Cloud-init v\.[^\r\n]* finished at|\[ *FAILED *\] Failed to start cloud-final`)
)

// probeConsole reads the serial console, which shows what cloud-init prints. Its
// last word counts: the bootstrap runs at every boot.
func (p *Provider) probeConsole(ctx context.Context, vm job.VMInfo, why string) (cloud.Probe, error) {
	got, err := send(ctx, p.compute.Instances.GetSerialPortOutput(projectOf(vm.InstanceID), zoneOf(vm.InstanceID), base(vm.InstanceID)).Port(1))
	switch {
	case pipeline.Is(err, pipeline.Denied, pipeline.Invalid, pipeline.NotFound):
		return cloud.Probe{State: cloud.ProbeUnknown, Detail: fmt.Sprintf("%s, and neither can its console: %v", why, err)}, nil
	case err != nil:
		return cloud.Probe{}, err
	}
	return judgeConsole(got.Contents, why), nil
}

// judgeConsole is what a console's text says of the bootstrap; why is the reason
// for which it is read.
func judgeConsole(text, why string) cloud.Probe {
	text = printable(text)
	failed := consoleFailed.FindAllStringSubmatchIndex(text, -1)
	complete := strings.LastIndex(text, consoleComplete)
	end := "\n--- end of the console\n" + tail(text, bootstrap.ProbeOutputLimit)
	switch {
	case len(failed) > 0 && failed[len(failed)-1][0] > complete:
		m := failed[len(failed)-1]
		return cloud.Probe{State: cloud.ProbeFailed, Detail: text[m[2]:m[3]] + end}
	case complete >= 0:
		return cloud.Probe{State: cloud.ProbeReady}
	case consoleDone.MatchString(text):
		return cloud.Probe{State: cloud.ProbeFailed, Detail: "cloud-init is done, but the bootstrap left no result" + end}
	}
	return cloud.Probe{State: cloud.ProbeRunning, Detail: fmt.Sprintf("%s; the last line of its console: %.200s", why, or(lastLine(text), "none"))}
}

var (
	unprintable = regexp.MustCompile(`\x1b\[[0-9;?]*[A-Za-z]|[^\n\t -~]`)
	secretURL   = regexp.MustCompile(`(://[^/:@ ]*:)[^@ ]+@`)
	secretValue = regexp.MustCompile(`(?i)((?:password|secret|token)[a-z_]*[=:] *)[^ \n]+`)
)

// printable is a console's text without control characters, and with what looks
// like a secret masked.
func printable(s string) string {
	s = unprintable.ReplaceAllString(s, "")
	s = secretURL.ReplaceAllString(s, "${1}***@")
	return secretValue.ReplaceAllString(s, "${1}***")
}

// tail is the end of a text, cut at a line where possible.
func tail(s string, most int) string {
	s = strings.TrimRight(s, "\n")
	if len(s) <= most {
		return s
	}
	s = s[len(s)-most:]
	if _, rest, ok := strings.Cut(s, "\n"); ok {
		s = rest
	}
	return "… " + s
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return strings.TrimSpace(s[strings.LastIndexByte(s, '\n')+1:])
}
