package components

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	rcommon "helm.sh/helm/v4/pkg/release/common"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/kube"
	"github.com/zopday/provisioner/internal/pipeline"
)

// The kinds of objects that components are in the inventory.
const (
	KindRelease   = "helm:release"
	KindNamespace = "k8s:namespace"
)

// readyPatience is how long a release may take to be ready before the job stops
// with a reason, in cloud time. What becomes ready later is taken as it is by a
// retry: nothing is rolled back or installed anew for being slow (failure N10).
const readyPatience = 30 * time.Minute

// A keeper keeps one release of a job so, in one pass.
type keeper struct {
	e      *Engine
	r      *pipeline.Run
	access cloud.KubeAccess
	x      *Resolved
	id     string
}

// Release is a component's release as an object of the pipeline, to be used with
// the run's Ensure. Its ID is namespace and name. The namespace has to be there.
//
// What is wrong with a release that is there is an aspect of it: its state (an
// operation that a crash cut off is recovered), its chart, its values, objects
// that are missing, and whether all of them are ready.
func (e *Engine) Release(r *pipeline.Run, access cloud.KubeAccess, x *Resolved) pipeline.Resource {
	k := &keeper{e: e, r: r, access: access, x: x, id: x.Place.ID()}
	return pipeline.Resource{
		Kind: KindRelease, Key: x.Place.Release, Name: k.id,
		Args: map[string]string{"chart": x.Entry.Chart.Name, "version": x.Version, "values": x.Values},
		Get: func(ctx context.Context, _ string) (pipeline.Seen, error) {
			return k.look(ctx)
		},
		Find: func(ctx context.Context) ([]pipeline.Seen, error) {
			s, err := k.look(ctx)
			if pipeline.Is(err, pipeline.NotFound) {
				return nil, nil
			}
			return []pipeline.Seen{s}, err
		},
		Create: k.create,
		// The API server shows what it has made at once, and Create looks before
		// it makes anything: one whose reply was lost is simply repeated.
		Tokened: true,
		Delete:  func(ctx context.Context, _ string) error { return e.delete(ctx, r, access, x.Place) },
		Blockers: func(ctx context.Context, _ string) (string, error) {
			return e.blockers(ctx, access, x.Place)
		},
	}
}

// A standing is where a release is, compared with what it should be.
type standing struct {
	rec     *record
	state   string // what is wrong with its record; "" if nothing
	version string // chart it is of
	values  string // digest of its values, and where they differ
	same    bool   // chart and values are as asked
	survey  *survey
}

// stand reads a release of ours and its objects; the record is nil if there is none.
func (k *keeper) stand(ctx context.Context, c *cluster) (*standing, error) {
	rec, err := c.record(ctx, k.x.Place)
	if err != nil || rec == nil || rec.owner != k.r.Job.ID {
		return &standing{rec: rec}, err
	}
	out := &standing{rec: rec, version: rec.last.Chart.Metadata.Version, values: valuesDigest(rec.last.Config)}
	if paths := differing(rec.last.Config, k.x.values); len(paths) > 0 {
		out.values += fmt.Sprintf(", differs at %s", paths)
	} else {
		out.values = k.x.Values
	}
	out.same = rec.last.Chart.Name() == k.x.Entry.Chart.Name && sameVersion(out.version, k.x.Version) && out.values == k.x.Values
	switch {
	case rec.last.Info.Status != rcommon.StatusDeployed:
		out.state = string(rec.last.Info.Status)
		if d := rec.last.Info.Description; d != "" {
			out.state += ": " + shorten(hide(hide(d, k.x.values), rec.last.Config))
		}
		return out, nil
	case len(rec.deployed()) > 1:
		out.state = fmt.Sprintf("revisions %v are all called deployed", rec.deployed())
		return out, nil
	}
	objects, err := parseManifest(rec.last.Manifest, k.x.Place.Namespace)
	if err != nil {
		return nil, pipeline.Fatal("release-unreadable", fmt.Sprintf("the manifest of the release %s cannot be read: %v", k.id, err), "Uninstall the release, then retry.")
	}
	out.survey, err = c.survey(ctx, objects)
	return out, err
}

// look is the release as the pipeline sees it.
func (k *keeper) look(ctx context.Context) (pipeline.Seen, error) {
	c, err := k.e.open(ctx, k.access, k.x.Place.Namespace)
	if err != nil {
		return pipeline.Seen{}, err
	}
	s, err := k.stand(ctx, c)
	if err != nil {
		return pipeline.Seen{}, err
	}
	if s.rec == nil {
		return pipeline.Seen{}, noRelease(k.x.Place)
	}
	seen := pipeline.Seen{ID: k.id, Owner: s.rec.owner, Status: pipeline.Ready}
	if s.rec.owner != k.r.Job.ID {
		return seen, nil
	}
	k.r.Remember(revisionOf(k.x.Place), s.rec.last.Version)
	// One after another, and whichever differs first does all of it.
	once := k.converge
	add := func(name, wanted, seenAs string) {
		seen.Aspects = append(seen.Aspects, pipeline.Aspect{Name: name, Wanted: wanted, Seen: seenAs, Set: func(ctx context.Context) error {
			if once == nil {
				return nil
			}
			err := once(ctx)
			once = nil
			return err
		}})
	}
	add("state", "deployed", cmp.Or(s.state, "deployed"))
	add("chart", k.x.Entry.Chart.Name+" "+k.x.Version, s.rec.last.Chart.Name()+" "+s.version)
	add("values", k.x.Values, s.values)
	if s.survey != nil {
		missing := "all there"
		if len(s.survey.missing) > 0 {
			missing = fmt.Sprintf("missing: %s", firstFew(s.survey.missing))
		}
		add("objects", "all there", missing)
		add("ready", "yes", cmp.Or(s.survey.failed, s.survey.waiting, "yes"))
	}
	return seen, nil
}

func revisionOf(p Place) string { return "revision of " + p.ID() }

func noRelease(p Place) error {
	return &pipeline.CloudError{Class: pipeline.NotFound, Service: "Helm", Op: "get the release " + p.ID(), Message: "there is none", Sent: true}
}

func firstFew(names []string) string {
	const few = 3
	out := ""
	for i, n := range names {
		if i == few {
			return out + fmt.Sprintf(" and %d more", len(names)-few)
		}
		if i > 0 {
			out += ", "
		}
		out += n
	}
	return out
}

// create installs the release, unless it is there already.
func (k *keeper) create(ctx context.Context, _ string) (pipeline.Seen, error) {
	seen := pipeline.Seen{ID: k.id, Owner: k.r.Job.ID, Status: pipeline.Pending}
	leave, err := k.e.enter(ctx)
	if err != nil {
		return seen, err
	}
	defer leave()
	o, end, err := k.e.begin(ctx, k.access, k.x.Place, k.x.values)
	if err != nil {
		return seen, err
	}
	defer end()
	// Storage that answers differently from one moment to the next is asked once
	// more (failure N5).
	for try := range 2 {
		rec, err := o.cluster.record(o.ctx, k.x.Place)
		if err != nil {
			return seen, err
		}
		if rec != nil && rec.owner == k.r.Job.ID {
			return seen, nil
		}
		if rec != nil {
			return seen, &pipeline.CloudError{Class: pipeline.Exists, Service: "Helm", Op: "install the release " + k.id, Message: "there is a release of this name", Sent: true}
		}
		err = o.install(k.r.Job.ID, k.x, nil)
		var runs *hookRuns
		switch {
		case err == nil, errors.As(err, &runs):
			return seen, nil // what is not ready yet, and a hook that still works, is seen by the next look
		case pipeline.Is(err, pipeline.Exists) && try == 0:
			continue
		}
		return seen, err
	}
	return seen, nil
}

// converge does one thing after another until the release is as it should be.
// It waits for nothing: what takes its time parks the job.
func (k *keeper) converge(ctx context.Context) error {
	const rounds = 5 // the most that one pass does: recover, roll back, upgrade, look
	for range rounds {
		done, err := k.advance(ctx)
		var runs *hookRuns
		if errors.As(err, &runs) {
			return k.await("hook", runs.what)
		}
		if done || err != nil {
			return err
		}
	}
	return pipeline.Wait(kube.Pause(k.e.pace, 5*time.Second), "%s %s to settle", KindRelease, k.id)
}

// advance does the next thing; done says that there is none.
func (k *keeper) advance(ctx context.Context) (done bool, err error) {
	leave, err := k.e.enter(ctx)
	if err != nil {
		return false, err
	}
	defer leave()
	o, end, err := k.e.begin(ctx, k.access, k.x.Place, k.x.values)
	if err != nil {
		return false, err
	}
	defer end()
	s, err := k.stand(o.ctx, o.cluster)
	if err != nil {
		return false, err
	}
	switch {
	case s.rec == nil:
		return false, o.install(k.r.Job.ID, k.x, nil)
	case s.rec.owner != k.r.Job.ID:
		return false, pipeline.Fatal("not-ours", fmt.Sprintf("the release %s now carries the mark of %s, so it was not touched", k.id, s.rec.owner),
			"Remove or rename it if it is not to stay, then retry.")
	case s.state != "":
		return false, k.recover(o, s)
	case !s.same || len(s.survey.missing) > 0:
		if err := k.countRepairs(s); err != nil {
			return false, err
		}
		err := o.upgrade(k.r.Job.ID, k.x, nil)
		if err == nil {
			err = k.r.Event(ctx, "release.upgraded", "%s is %s %s now, revision %d", k.id, k.x.Entry.Chart.Name, k.x.Version, s.rec.last.Version+1)
		}
		return false, err
	case s.survey.failed != "":
		return false, pipeline.Fatal("component-failed", fmt.Sprintf("the release %s: %s", k.id, s.survey.failed), "Put right what the message names: delete the object if its values are right, or change the values (PATCH the job), then retry.")
	case s.survey.waiting != "":
		return false, k.await("ready", s.survey.waiting)
	}
	k.r.Remember(revisionOf(k.x.Place), s.rec.last.Version)
	k.r.WaitOver("ready " + k.id)
	return true, nil
}

// countRepairs stops a fight: objects that are made again and again, and each
// time somebody takes them away.
func (k *keeper) countRepairs(s *standing) error {
	if !s.same {
		return nil
	}
	key := "repairs of " + k.id
	n, _ := k.r.Recall(key).(int)
	const most = 3
	if n >= most {
		return pipeline.Fatal("object-lost", fmt.Sprintf("the release %s was repaired %d times in this run, and still lacks %s", k.id, n, firstFew(s.survey.missing)),
			"Find out who or what deletes it (the cluster's audit log says), then retry.")
	}
	k.r.Remember(key, n+1)
	return k.r.Event(context.Background(), "release.repaired", "%s lacks %s; it is applied again", k.id, firstFew(s.survey.missing))
}

// await parks the job until something is so, and stops it when that takes too long.
func (k *keeper) await(what, why string) error {
	clock := what + " " + k.id
	waited := k.r.WaitedFor(clock)
	if kube.Overdue(k.r, clock, readyPatience) {
		k.r.WaitOver(clock)
		return pipeline.Fatal("timed-out", fmt.Sprintf("the release %s is not ready after %s: %s", k.id, readyPatience, why),
			"Put right what the message names, then retry: it goes on waiting, and nothing is installed anew.")
	}
	// Often at first, and less the longer it takes.
	after := min(max(waited/4, 3*time.Second), 30*time.Second)
	return pipeline.Wait(kube.Pause(k.e.pace, after), "%s %s to become ready (%s)", KindRelease, k.id, why)
}

// Ensure makes a component so in its namespace: the namespace if it is not
// there, then the release, then everything of it ready. It says where the
// component stands, also beside an error.
func (e *Engine) Ensure(ctx context.Context, r *pipeline.Run, access cloud.KubeAccess, x *Resolved) (job.ComponentInfo, error) {
	info := x.Info()
	info.Status = "installing"
	// What was seen to be right was so for what was asked for then.
	asked := x.Version + " " + x.Digest + " " + x.Values
	if had, ok := r.Recall("asked of " + x.Place.ID()).(string); ok && had != asked {
		r.Unsettle()
	}
	r.Remember("asked of "+x.Place.ID(), asked)
	err := e.ensureNamespace(ctx, r, access, x.Place.Namespace)
	if err == nil {
		_, err = r.Ensure(ctx, e.Release(r, access, x))
	}
	info.Revision, _ = r.Recall(revisionOf(x.Place)).(int)
	switch {
	case err == nil:
		info.Status = "ready"
	case pipeline.IsWait(err):
		info.Waiting = err.Error()
	default:
		info.Status, info.LastError = "failed", err.Error()
	}
	for _, n := range x.Notes {
		r.Note("%s: %s", x.Entry.Name, n)
	}
	return info, err
}

// objectsOf are the objects of the newest revision of a release.
func objectsOf(rec *record, at Place) ([]*unstructured.Unstructured, error) {
	objects, err := parseManifest(rec.last.Manifest, at.Namespace)
	if err != nil {
		return nil, pipeline.Fatal("release-unreadable", fmt.Sprintf("the manifest of the release %s cannot be read: %v", at.ID(), err),
			"Remove its objects and the Secrets with the label name="+at.Release+" by hand, then retry.")
	}
	return objects, nil
}
