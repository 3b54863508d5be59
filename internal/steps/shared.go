package steps

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/kube"
	"github.com/zopday/provisioner/internal/pipeline"
	configv1 "github.com/zopday/provisioner/internal/spaces/configv1"
)

// validate asks the cloud everything that later steps depend on, before
// anything is made. It runs again whenever a worker begins on the job.
func (s Set) validate(ctx context.Context, r *pipeline.Run) error {
	if err := s.SameCaller(ctx, r.Job); err != nil {
		return err
	}
	checks, err := s.Cloud.Check(ctx, r)
	if err != nil {
		return err
	}
	var open error
	if r.Job.ResourceType == job.Cluster && r.Mode == pipeline.Apply {
		var more []cloud.Check
		more, open = s.componentChecks(ctx, r)
		checks = append(checks, more...)
	}
	checks = append(checks, s.reachChecks(r)...)
	var messages, fixes []string
	field := ""
	r.Job.Config.InfraConfig.Warnings = nil
	for _, c := range checks {
		switch c.Status {
		case cloud.CheckFails:
			text := c.Message
			if c.Field != "" {
				text = c.Field + ": " + text
			}
			messages = append(messages, text)
			if fix := sentence(c.Fix); !slices.Contains(fixes, fix) {
				fixes = append(fixes, fix)
			}
			if field == "" {
				field = c.Field
			}
		case cloud.CheckWarning:
			r.Job.Config.InfraConfig.Warnings = append(r.Job.Config.InfraConfig.Warnings, c.Message)
		case cloud.CheckUnchecked:
			r.Note("%s not checked: %s", c.Name, c.Message)
		}
	}
	if len(messages) == 0 {
		return errors.Join(r.Save(ctx), open)
	}
	if r.Mode == pipeline.Verify {
		for _, m := range messages {
			r.AddDrift(pipeline.Drift{Kind: "check", Key: Validate, Attr: "precondition", Wanted: "holds", Seen: m})
		}
		return nil
	}
	if err := r.Save(ctx); err != nil {
		return err
	}
	return pipeline.Fatal("invalid", strings.Join(messages, "; "), strings.Join(append(fixes, "Then retry."), " ")).On(field)
}

// sentence makes one of a fix, which may be a fragment or end in the retry that
// is named after all of them.
func sentence(fix string) string {
	fix = strings.TrimSuffix(strings.TrimSuffix(fix, "."), ", then retry")
	if fix == "" {
		return ""
	}
	return strings.ToUpper(fix[:1]) + fix[1:] + "."
}

// SameCaller refuses credentials that belong to another account than the one
// in which the job began (failure F5), and records the account the first time.
func (s Set) SameCaller(ctx context.Context, j *job.Job) error {
	account, err := s.Cloud.Caller(ctx)
	if err != nil {
		return err
	}
	switch recorded := j.Config.InfraConfig.Account; recorded {
	case "":
		j.Config.InfraConfig.Account = account
	case account:
	default:
		return pipeline.Fatal("wrong-account",
			fmt.Sprintf("the credentials of cloud account %q now belong to %s; this job began in %s, and nothing was sent to the other", j.CloudAccountID, account, recorded),
			"Restore the credentials of "+recorded+", then retry.")
	}
	return nil
}

// proveGone is the last act of a teardown: the account is scanned for
// everything that carries the job's mark, whatever the ledger says.
func (s Set) proveGone(ctx context.Context, r *pipeline.Run) error {
	if !r.Job.Owns() || r.Mode != pipeline.Apply {
		return nil
	}
	left, unlisted, err := s.Cloud.Scan(ctx, r.Job.ID)
	if err != nil {
		return err
	}
	r.Job.Config.InfraConfig.NotScanned = unlisted
	had, never := job.Unproved(r.Objects(), unlisted)
	left = slices.DeleteFunc(left, func(l cloud.Leftover) bool { return KeptOnPurpose(r.Objects(), l) })
	if len(left) == 0 {
		if len(had) > 0 {
			return notScanned(had)
		}
		r.Note("a scan by owner mark found nothing left")
		if len(never) > 0 {
			r.Note("not scanned: %s; this job never had any of them", job.NameUnlisted(never))
		}
		return nil
	}
	var names []string
	for _, l := range left {
		names = append(names, l.Kind+" "+l.ID)
	}
	// What was deleted a moment ago may still be listed.
	first, _ := r.Recall("leftSince").(time.Time)
	if first.IsZero() {
		first = r.Now()
		r.Remember("leftSince", first)
	}
	if r.Pace.Cloud(r.Now().Sub(first)) < 5*time.Minute {
		return pipeline.Wait(5*time.Second, "%s to disappear from the cloud's lists", strings.Join(names, ", "))
	}
	message := fmt.Sprintf("%d objects still carry this job's mark: %s", len(left), strings.Join(names, ", "))
	if len(unlisted) > 0 {
		message += "; not scanned: " + job.NameUnlisted(unlisted)
	}
	return pipeline.Fatal("left-over", message,
		"Look at what holds them, remove them, then retry; the job ends only when the scan finds nothing.")
}

// notScanned stops a teardown whose scan could not list kinds that the job had objects
// of: that they are gone is what each deletion's answer says, and is not proved.
func notScanned(had []job.Unlisted) error {
	var lacking []string
	for _, u := range had {
		if !slices.Contains(lacking, u.Permission) {
			lacking = append(lacking, u.Permission)
		}
	}
	return pipeline.Fatal("not-scanned",
		fmt.Sprintf("the scan by owner mark found nothing left, but may not list %s, of which this job had objects: that they are all gone is not proved", job.NameUnlisted(had)),
		"Allow "+strings.Join(lacking, ", ")+" for the credentials of this cloud account, then retry; the job ends only when everything that it had is looked at.")
}

// KeptOnPurpose reports whether what carries a job's mark stays on purpose, such as
// a final snapshot.
func KeptOnPurpose(objects []job.Object, l cloud.Leftover) bool {
	return slices.ContainsFunc(objects, func(o job.Object) bool {
		return o.State == job.ObjectKept && (strings.EqualFold(o.ID, l.ID) || o.Name != "" && o.Kind == l.Kind && o.Name == l.Name)
	})
}

// registerSpace makes what was built known as a place to deploy to.
func (s Set) registerSpace(ctx context.Context, r *pipeline.Run) error {
	infra := &r.Job.Config.InfraConfig
	switch r.Mode {
	case pipeline.Plan:
		return nil
	case pipeline.Verify:
		if infra.SpaceID == "" {
			r.AddDrift(pipeline.Drift{Kind: "space", Key: r.Job.Name, Attr: "exists", Wanted: "yes", Seen: "no"})
		}
		return nil
	}
	id, err := s.Spaces.Register(ctx, &configv1.Space{
		OrgId: r.Job.OrgID, JobId: r.Job.ID, Name: r.Job.Name, SubjectType: r.Job.SubjectType, SubjectId: r.Job.SubjectID,
		Provider: string(r.Job.Provider), Region: r.Job.Region, ExecMode: string(infra.ExecMode),
		SpaceType: spaceType(r.Job), CloudAccountId: r.Job.CloudAccountID, Config: spaceConfig(r.Job),
	})
	if err != nil {
		return registry(err)
	}
	infra.SpaceID = id
	return r.Save(ctx)
}

// registry stops the job where the config service understands and refuses: no
// other try changes that. One that does not answer, or fails, is asked again.
func registry(err error) error {
	if pipeline.Is(err, pipeline.Registry, pipeline.Unknown) {
		return err
	}
	return pipeline.Fatal("config-service-refused", err.Error(),
		"Put right at the config service what the message names, or name another one (zopday serve --config-service), then retry.").From(err)
}

func spaceType(j *job.Job) string {
	if j.ResourceType == job.Cluster {
		return job.SpaceKubernetes
	}
	return job.SpaceVM
}

// spaceConfig is where a space is.
func spaceConfig(j *job.Job) map[string]string {
	config := map[string]string{"region": j.Region}
	if ref := j.ClusterRef(); ref.Name != "" {
		config["cluster"] = ref.Name
	}
	if group := j.ClusterRef().ResourceGroup; group != "" && j.Provider == job.Azure {
		config["resourceGroup"] = group
	}
	return config
}

func (s Set) deregisterSpace(ctx context.Context, r *pipeline.Run) error {
	id := r.Job.Config.InfraConfig.SpaceID
	if id == "" || r.Mode != pipeline.Apply {
		return nil
	}
	if err := s.Spaces.Deregister(ctx, r.Job.OrgID, id); err != nil {
		return registry(err)
	}
	r.Job.Config.InfraConfig.SpaceID = ""
	return r.Save(ctx)
}

// finalize reads the hardening controls back from the cloud, and from a
// cluster's API server. A failed read is never taken for a control that does not
// hold. A cluster whose controls do not hold fails, unless its spec waives them
// by name; what did not hold when another job ended is in its report. A verify
// tells what has changed since.
func (s Set) finalize(ctx context.Context, r *pipeline.Run) error {
	if r.Mode == pipeline.Plan || !r.Job.Owns() {
		return nil
	}
	report, err := s.controls(ctx, r)
	if err != nil {
		return err
	}
	var unmet, texts []string
	before := r.Job.Config.InfraConfig.Report
	for _, c := range report {
		if c.Met || c.Unchecked {
			continue
		}
		if c.Waived == "" {
			unmet = append(unmet, c.ID)
			texts = append(texts, fmt.Sprintf("%s %s: wanted %s, seen %s", c.ID, c.Name, c.Wanted, c.Seen))
		}
		if r.Mode == pipeline.Verify && !slices.Contains(before, c) {
			r.AddDrift(pipeline.Drift{Kind: "control", Key: c.ID, Attr: c.Name, Wanted: c.Wanted, Seen: c.Seen})
		}
	}
	r.Job.Config.InfraConfig.Report = report
	if err := r.Save(ctx); err != nil || len(unmet) == 0 {
		return err
	}
	r.Note("hardening not as wanted: %s", strings.Join(unmet, ", "))
	if !strict(r.Job.ResourceType) || r.Mode == pipeline.Verify {
		return nil
	}
	return pipeline.Fatal("hardening", strings.Join(texts, "\n"),
		"Put right what differs (somebody may have changed it after it was made) and retry, or waive the control by name: PATCH config.spec.waive with its name and the reason, then retry.").On("config.spec.waive")
}

// strict reports whether a job of the family fails on a control that does not hold.
func strict(t job.ResourceType) bool {
	return t == job.Cluster || t == job.Datastore || t == job.Cache
}

// controls is the whole hardening report, with the waivers of the spec in it.
func (s Set) controls(ctx context.Context, r *pipeline.Run) ([]job.Control, error) {
	report, err := s.Cloud.Controls(ctx, r)
	if err != nil || !strict(r.Job.ResourceType) {
		return report, err
	}
	var waived []job.Waiver
	if r.Job.ResourceType == job.Cluster {
		inside, err := s.controlsInside(ctx, r)
		if err != nil {
			return nil, err
		}
		report = append(report, inside...)
		spec, err := r.Job.ClusterSpec()
		if err != nil {
			return nil, err
		}
		waived = spec.Waive
	} else {
		spec, err := r.Job.DatastoreSpec()
		if err != nil {
			return nil, err
		}
		waived = append(asked(spec), spec.Waive...)
	}
	waive(r, report, waived)
	slices.SortStableFunc(report, func(a, b job.Control) int { return strings.Compare(a.ID, b.ID) })
	return report, nil
}

// asked are the controls that a datastore's spec does without by a field of its own.
func asked(spec job.DatastoreSpec) []job.Waiver {
	var out []job.Waiver
	add := func(why string, controls ...string) {
		for _, c := range controls {
			out = append(out, job.Waiver{Control: c, Reason: why})
		}
	}
	if spec.SkipFinalSnapshot {
		add("the spec says skipFinalSnapshot", "RDS-09", "SQL-08", "EC-15")
	}
	if !spec.Protected() {
		add("the spec says deletionProtection: false", "RDS-07", "SQL-07", "MS-12", "AZDB-29")
	}
	return out
}

// controlsInside is the part of a cluster's report that its API server answers.
func (s Set) controlsInside(ctx context.Context, r *pipeline.Run) ([]job.Control, error) {
	access, err := s.access(ctx, r)
	if err != nil {
		return nil, err
	}
	client, err := kube.Client(ctx, access)
	if err != nil {
		return nil, err
	}
	return kube.Controls(ctx, client, r.Job.Provider)
}

// waive writes the spec's waivers into the rows that do not hold.
func waive(r *pipeline.Run, report []job.Control, waivers []job.Waiver) {
	for _, w := range waivers {
		known := false
		for i, c := range report {
			if w.Control != c.ID {
				continue
			}
			known = true
			if !c.Met {
				report[i].Waived = w.Reason
			}
		}
		if !known && !strings.HasPrefix(w.Reason, "the spec says ") {
			r.Note("the waiver of %s does nothing: this job's report has no such control", w.Control)
		}
	}
}
