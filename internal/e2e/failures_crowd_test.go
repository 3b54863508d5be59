package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/sim"
)

// many queues jobs and waits until each has come to the status.
func (r *rig) many(n int, spec string) []string {
	r.t.Helper()
	var ids []string
	for i := range n {
		ids = append(ids, r.vm(fmt.Sprintf("crowd-%d", i), spec).ID)
	}
	return ids
}

func (r *rig) allAre(ids []string, want job.Status, within time.Duration) {
	r.t.Helper()
	deadline := time.Now().Add(within)
	for _, id := range ids {
		r.jobID = id
		for {
			j := r.get()
			if j.Status == want && !j.State().Active() {
				break
			}
			if !j.State().Active() || time.Now().After(deadline) {
				r.t.Fatalf("%s is %s in %s, waiting for %q: %+v", j.Name, j.State(), j.CurrentStep, j.WaitingFor, j.Error)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// roomy raises the quotas that a crowd meets.
func (r *rig) roomy() {
	for code, service := range map[string]string{"L-F678F1CE": "vpc", "L-A4707A72": "vpc", "L-FE5A380F": "vpc", "L-1B52E74A": "vpc", "L-0263D0A3": "ec2", "L-1216C47A": "ec2"} {
		r.quota(service, code, 1000)
	}
}

// H1: thirty jobs at once in an account that refuses eight of ten calls for five
// minutes. All come through, each object once, and all of it goes again.
func TestCrowdIsThrottled(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{Seed: 61})
	r.roomy()
	before := r.world.Snapshot()
	r.start()
	ids := r.many(30, `{"pool":{"mode":"fixed","count":1},"bootstrap":"bare_metal"}`)
	r.fault(`{"kind":"throttle","percent":80,"seconds":300}`) // when they are at work, or it may be over on a slow machine
	r.allAre(ids, job.Completed, 2*time.Minute)
	for _, id := range ids {
		r.jobID = id
		r.checkBooks(t)
		if n := r.live("instance"); n != 1 {
			t.Errorf("%s has %d VMs", id, n)
		}
	}
	r.allMet(false)
	for _, id := range ids {
		r.jobID = id
		r.move(job.Delete, "")
	}
	r.allAre(ids, job.Cancelled, 2*time.Minute)
	r.checkGone(t, before)
}

// H4: fifty jobs that wait for half an hour ask less and less often, and with
// one list a look, not one for each of their objects.
func TestCrowdWaits(t *testing.T) {
	t.Parallel()
	// This cloud is sixty times slower than the engine takes it to be: a NAT
	// gateway takes longer than a job's half hour of patience.
	r := newRig(t, sim.Options{Seed: 62, TimeScale: 5, ConsistencyByID: -1, ConsistencyByList: -1})
	r.roomy()
	r.start()
	const patience = 30 // minutes
	ids := r.many(50, `{"pool":{"mode":"fixed","count":1}}`)
	r.allAre(ids, job.Failed, time.Minute)
	for _, id := range ids {
		r.jobID = id
		if e := r.get().Error; e.Code != "timed-out" || !strings.Contains(e.Message, "nat-") || !strings.Contains(e.Message, "pending") {
			t.Errorf("%s ended with %+v", id, e)
		}
	}
	looks := r.operations("DescribeNatGateways")
	rate := float64(looks) / patience
	t.Logf("%d looks at NAT gateways by %d jobs: %.0f a minute", looks, len(ids), rate)
	if rate > 200 {
		t.Errorf("%.0f looks a minute by %d waiting jobs", rate, len(ids))
	}
}

// C1, C4: two jobs at once whose names are equal but for the end have different
// objects, and the end of one leaves the other's.
func TestNearlyEqualNames(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{Seed: 63})
	before := r.world.Snapshot()
	r.start()
	long := "svc-" + strings.Repeat("a", 54)
	one := r.vm(long+"-one", fixedLB)
	two := r.vm(long+"-two", fixedLB)
	r.allAre([]string{one.ID, two.ID}, job.Completed, time.Minute)
	names := map[string]string{}
	for _, j := range []*job.Job{one, two} {
		r.jobID = j.ID
		r.asAsked(t)
		for _, o := range r.objects() {
			if other := names[o.Kind+" "+o.ID]; other != "" {
				t.Errorf("%s %s belongs to %s and %s", o.Kind, o.ID, other, j.Name)
			}
			names[o.Kind+" "+o.ID] = j.Name
			if limit := map[string]int{"elbv2:target-group": 32, "elbv2:load-balancer": 32, "iam:role": 64}[o.Kind]; limit > 0 && len(o.Name) > limit {
				t.Errorf("%s %s has %d characters", o.Kind, o.Name, len(o.Name))
			}
		}
	}
	r.jobID = one.ID
	r.move(job.Delete, "")
	r.await(job.Cancelled)
	r.jobID = two.ID
	r.asAsked(t)
	r.move(job.Delete, "")
	r.await(job.Cancelled)
	r.checkGone(t, before)
}

// C1, C2: names of every awkward shape come through to the cloud.
func TestAwkwardNames(t *testing.T) {
	for _, name := range []string{"a", "internal-api", strings.Repeat("a", 25), strings.Repeat("b", 32), strings.Repeat("c", 33), strings.Repeat("d", 63),
		strings.Repeat("e", 19) + "-" + strings.Repeat("f", 20), "internal-" + strings.Repeat("g", 40)} {
		t.Run("C2 "+name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, sim.Options{Seed: 64})
			before := r.world.Snapshot()
			r.start()
			r.vm(name, `{"pool":{"mode":"fixed","count":1},"bootstrap":"bare_metal","loadBalancer":{"type":"tcp"}}`)
			r.ends(t, before)
		})
	}
}

// C11, R1 to R7, J2, J10: what no cloud takes is refused before anything is
// asked of one, by the field that is wrong; what one takes comes through.
func TestRefusedAtOnce(t *testing.T) {
	for _, c := range []struct {
		id    string
		do    func(*job.Job)
		field string // "" is taken
	}{
		{"C2 a hyphen first", func(j *job.Job) { j.Name = "-a" }, "name"},
		{"C2 a hyphen last", func(j *job.Job) { j.Name = "a-" }, "name"},
		{"C5 a digit first", func(j *job.Job) { j.Name = "1web" }, "name"},
		{"C5 upper case and underscore", func(j *job.Job) { j.Name = "Web_App" }, "name"},
		{"C1 64 characters", func(j *job.Job) { j.Name = strings.Repeat("a", 64) }, "name"},
		{"C11 an arrow", func(j *job.Job) { j.Labels = map[string]string{"about": "Lambda → Aurora – ключ 🦊"} }, "labels.about"},
		{"C11 in the name", func(j *job.Job) { j.Name = "ключ" }, "name"},
		{"R2 a value of 200", func(j *job.Job) { j.Labels = map[string]string{"v": strings.Repeat("a", 200)} }, ""},
		{"R2 a value of 300", func(j *job.Job) { j.Labels = map[string]string{"v": strings.Repeat("a", 300)} }, "labels.v"},
		{"R4 a key without characters", func(j *job.Job) { j.Labels = map[string]string{"": "x"} }, "labels."},
		{"R5 a reserved key", func(j *job.Job) { j.Labels = map[string]string{"aws:cloudformation:stack-name": "x"} }, "labels.aws:cloudformation:stack-name"},
		{"R7 a reserved key in capitals", func(j *job.Job) { j.Labels = map[string]string{"AWS:x": "x"} }, "labels.AWS:x"},
		{"R our own mark", func(j *job.Job) { j.Labels = map[string]string{job.MarkOwner: "job_other"} }, "labels." + job.MarkOwner},
		{"R7 keys that only look reserved", func(j *job.Job) { j.Labels = map[string]string{"aws_team": "a", "awsx": "b", "Env": "Prod"} }, ""},
		{"J10 a /28", network("10.0.0.0/28"), "config.spec.network.cidr"},
		{"J10 a /25", network("10.0.0.0/25"), "config.spec.network.cidr"},
		{"J10 a /15", network("10.0.0.0/15"), "config.spec.network.cidr"},
		{"J10 a /8", network("10.0.0.0/8"), "config.spec.network.cidr"},
		{"J10 host bits", network("10.0.0.1/16"), "config.spec.network.cidr"},
		{"J10 IPv6", network("fd00::/56"), "config.spec.network.cidr"},
		{"J10 a /24", network("10.7.7.0/24"), ""},
	} {
		t.Run(c.id, func(t *testing.T) {
			t.Parallel()
			if c.field != "" {
				j := &job.Job{ID: job.NewID("job"), OrgID: org, Kind: job.Provisioning, ResourceType: job.VM, Provider: job.AWS, Mode: job.ModeCreate,
					Name: "shop-prod", CloudAccountID: "default", Region: region, Config: job.Config{Spec: json.RawMessage(plain)}}
				c.do(j)
				err := j.Validate()
				if err == nil || !strings.Contains(err.Error(), c.field+":") {
					t.Errorf("%s is not refused: %v", c.field, err)
				}
				return
			}
			r := newRig(t, sim.Options{Seed: 65})
			before := r.world.Snapshot()
			r.start()
			j := r.vm("shop-prod", plain, c.do)
			r.await(job.Completed)
			for _, o := range r.world.Objects(sim.ObjectFilter{Owner: j.ID, Kind: "instance"}) {
				for k, v := range j.Labels {
					if o.Tags[k] != v {
						t.Errorf("%s carries %s=%q, not %q", o.ID, k, o.Tags[k], v)
					}
				}
			}
			r.ends(t, before)
		})
	}
}

func network(cidr string) func(*job.Job) {
	return func(j *job.Job) {
		j.Config.Spec = json.RawMessage(`{"pool":{"mode":"fixed","count":2},"network":{"cidr":"` + cidr + `"}}`)
	}
}
