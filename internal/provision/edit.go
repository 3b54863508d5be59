package provision

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/steps"
)

// usedBy says which step first turns a part of a spec into something at the
// cloud. stepValidate is left out: it looks at everything and runs every time.
var usedBy = map[job.ResourceType]map[string]string{job.VM: usedByVM, job.Network: {
	"network":  steps.CreateNetwork,
	"existing": steps.CreateNetwork,
	"adopt":    steps.CreateNetwork,
	"peerings": steps.CreatePeering,
	"dnsZones": steps.CreateDNSZone,
}, job.Cluster: {
	"network":         steps.CreateNetwork,
	"existing":        steps.CreateNetwork,
	"podCidr":         steps.CreateNetwork,
	"serviceCidr":     steps.CreateNetwork,
	"version":         steps.CreateCluster,
	"extendedSupport": steps.CreateCluster,
	"endpoint":        steps.CreateCluster,
	"nodePools":       steps.CreateCluster,
	"admins":          steps.CreateCluster,
	"adopt":           steps.CreateCluster,
	"components":      steps.BootstrapComponents,
}, job.Datastore: usedByDatastore, job.Cache: usedByDatastore, job.Component: {
	"spaceId":             steps.Validate,
	"component.name":      steps.InstallRelease,
	"component.release":   steps.InstallRelease,
	"component.namespace": steps.InstallRelease,
	"component.version":   steps.InstallRelease,
	"component.values":    steps.InstallRelease,
}}

var usedByDatastore = map[string]string{
	"network":             steps.CreateNetwork,
	"existing":            steps.CreateNetwork,
	"access":              steps.CreateSubnetGroup,
	"version":             steps.CreateSubnetGroup,
	"engine":              steps.CreateSubnetGroup,
	"preset":              steps.CreateDatastore,
	"size":                steps.CreateDatastore,
	"instanceType":        steps.CreateDatastore,
	"storageGiB":          steps.CreateDatastore,
	"storageMaxGiB":       steps.CreateDatastore,
	"replicas":            steps.CreateDatastore,
	"highAvailability":    steps.CreateDatastore,
	"backupRetentionDays": steps.CreateDatastore,
	"deletionProtection":  steps.CreateDatastore,
	"maintenanceWindow":   steps.CreateDatastore,
	"adminUser":           steps.CreateIAM,
	"entraAdmin":          steps.CreateDatastore,
	"accessKeys":          steps.CreateDatastore,
	"principals":          steps.CreateDatastore,
	"adopt":               steps.CreateDatastore,
	"monitorOnly":         steps.CreateDatastore,
	"databases":           steps.CreateDatabases,
}

var usedByVM = map[string]string{
	"network":                  steps.CreateNetwork,
	"existing":                 steps.CreateNetwork,
	"bootstrap":                steps.CreateLaunchTemplate,
	"startupScript":            steps.CreateLaunchTemplate,
	"pool.size":                steps.CreateLaunchTemplate,
	"pool.instanceType":        steps.CreateLaunchTemplate,
	"pool.image":               steps.CreateLaunchTemplate,
	"pool.diskGiB":             steps.CreateLaunchTemplate,
	"pool.mode":                steps.CreateVMs,
	"pool.count":               steps.CreateVMs,
	"pool.min":                 steps.CreateVMs,
	"pool.desired":             steps.CreateVMs,
	"pool.max":                 steps.CreateVMs,
	"adopt":                    steps.CreateVMs,
	"loadBalancer.type":        steps.CreateLoadBalancer,
	"loadBalancer.scheme":      steps.CreateLoadBalancer,
	"loadBalancer.port":        steps.CreateLoadBalancer,
	"loadBalancer.healthCheck": steps.CreateTargetGroup,
	"loadBalancer.plainHTTP":   steps.CreateListener,
	"loadBalancer.certificate": steps.CreateListener,
	"loadBalancer.dns":         steps.CreateDNSRecord,
}

const healthCheck = "loadBalancer.healthCheck"

// stepsUsing lists the steps that use a part of the spec, or parts within it.
func stepsUsing(t job.ResourceType, path string) []string {
	found := map[string]bool{}
	for p, step := range usedBy[t] {
		if p == path || strings.HasPrefix(path, p+".") || strings.HasPrefix(p, path+".") {
			found[step] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// edit changes what was asked for, as far as the job's state allows. It returns
// the paths that changed.
func (s *Service) edit(j *job.Job, r PatchRequest, past *history) (note string, paths []string, err error) {
	if j.Kind == job.Remediation {
		return "", nil, refuse(WrongState, "Make another one, and delete this one if it has not begun.", "a remediation job is not edited")
	}
	if err := customerDatabase(j, r); err != nil {
		return "", nil, err
	}
	spec := j.Config.Spec
	if r.Config != nil && len(r.Config.Spec) > 0 {
		if spec, err = merge(j.Config.Spec, r.Config.Spec); err != nil {
			return "", nil, err
		}
	}
	if paths, err = changedPaths(j.Config.Spec, spec); err != nil {
		return "", nil, err
	}
	if err := fixedPlace(j, r, paths); err != nil {
		return "", nil, err
	}
	before := *j
	switch {
	case j.Status == job.Draft:
		editDraft(j, r)
	case r.Name != nil || r.Mode != nil || r.CloudAccountID != nil || r.Region != nil || r.Labels != nil:
		return "", nil, refuse(WrongState, "Duplicate the job with the new values, then tear this one down.",
			"the job is %s; its name, mode, account, region and labels can be changed only while it is a draft", j.Status)
	case j.ResourceType == job.Component && j.Status == job.Failed && j.Phase == job.PhaseUpdate:
		return "", nil, refuse(WrongState, `Send it with {"componentOp":"upgrade"}, or go back with {"componentOp":"rollback"}.`,
			"the component is installed, and its last %s failed; its version and values are changed by an upgrade", j.VMOp)
	case j.Status == job.Failed && commandsFor(j) && !slices.ContainsFunc(paths, func(p string) bool { return p != "skipFinalSnapshot" }):
		// How a teardown ends may be decided anew at any time before it ends.
	case j.Status == job.Failed && j.Phase != job.PhaseTeardown:
		if err := editFailed(j, spec, paths, past); err != nil {
			return "", nil, err
		}
	case j.Status == job.Completed:
		if err := editFinished(j, paths); err != nil {
			return "", nil, err
		}
	case j.State().Active():
		return "", nil, refuse(WrongState, "Wait until it has come to rest, or cancel it with DELETE.", "the job is %s", j.Status)
	default:
		return "", nil, refuse(WrongState, "Create a new job.", "the job is %s (phase %s) and is not built up again", j.Status, j.Phase)
	}
	j.Config.Spec = spec
	if err := s.check(j); err != nil {
		return "", nil, err
	}
	for i := range paths {
		paths[i] = "config.spec." + paths[i]
	}
	paths = append(paths, changedFields(&before, j)...)
	if len(paths) == 0 {
		return "", nil, nil
	}
	j.SpecRevision++
	if j.Status == job.Queued {
		return "health check changed, update asked for", paths, nil
	}
	return "edited", paths, nil
}

// fixedPlace refuses to move a component job: where it installs was taken from
// its space when it was made.
func fixedPlace(j *job.Job, r PatchRequest, paths []string) error {
	if j.ResourceType != job.Component {
		return nil
	}
	var fields []job.FieldError
	for _, f := range []struct {
		name    string
		changes bool
	}{
		{"region", r.Region != nil && *r.Region != j.Region}, {"cloudAccountId", r.CloudAccountID != nil && *r.CloudAccountID != j.CloudAccountID},
		{"config.spec.spaceId", slices.Contains(paths, "spaceId")},
	} {
		if f.changes {
			fields = append(fields, job.FieldError{Field: f.name, Message: "of a component job cannot be changed", Fix: "make a job for the other space, and delete this one"})
		}
	}
	if len(fields) > 0 {
		return invalid(fields...)
	}
	return nil
}

func editDraft(j *job.Job, r PatchRequest) {
	if r.Name != nil {
		j.Name = *r.Name
	}
	if r.Mode != nil {
		j.Mode = *r.Mode
	}
	if r.CloudAccountID != nil {
		j.CloudAccountID = *r.CloudAccountID
	}
	if r.Region != nil {
		j.Region = *r.Region
	}
	if r.Labels != nil {
		j.Labels = r.Labels
	}
}

func changedFields(a, b *job.Job) []string {
	var out []string
	for _, f := range []struct {
		name string
		same bool
	}{
		{"name", a.Name == b.Name}, {"mode", a.Mode == b.Mode}, {"cloudAccountId", a.CloudAccountID == b.CloudAccountID},
		{"region", a.Region == b.Region}, {"labels", maps.Equal(a.Labels, b.Labels)},
	} {
		if !f.same {
			out = append(out, f.name)
		}
	}
	return out
}

// A history is what a job's steps did and made, as of one version of it.
type history struct {
	version int64
	job     *job.Job // as it was then
	rows    []job.StepState
	objects []job.Object
}

// history reads what an edit has to respect, outside of its transaction.
func (s *Service) history(ctx context.Context, policy access.Policy, ref string) (*history, error) {
	p, err := access.Require(ctx, policy)
	if err != nil {
		return nil, s.refused(ctx, policy, ref, err)
	}
	j, err := s.find(ctx, p, policy, ref, false)
	if err != nil {
		return nil, s.refused(ctx, policy, ref, err)
	}
	h := &history{version: j.Version, job: j}
	if h.rows, err = s.Ledger.Steps(ctx, p.OrgID, j.ID); err != nil {
		return nil, err
	}
	h.objects, err = s.Ledger.Objects(ctx, p.OrgID, j.ID)
	return h, err
}

// editFailed lets a failed job's spec change where no finished step used it.
func editFailed(j *job.Job, spec json.RawMessage, paths []string, past *history) error {
	if past.version != j.Version {
		return refuse(WrongState, "Send the request again.", "the job was changed at the same moment")
	}
	done, made := map[string]bool{}, map[string]int{}
	for _, row := range past.rows {
		// A later run downwards undoes what an earlier one did.
		if row.Status == job.StepDone {
			done[row.Name] = row.Direction == job.Up
		}
	}
	for _, o := range past.objects {
		if o.State == job.ObjectCreated || o.State == job.ObjectIntended {
			made[o.Step]++
		}
	}
	var fields []job.FieldError
	for _, path := range paths {
		if within(path, healthCheck) {
			if done[steps.CreateTargetGroup] {
				j.Run++ // the next run goes through every step again; only this differs
				done[steps.CreateTargetGroup] = false
			}
			continue
		}
		for _, step := range stepsUsing(j.ResourceType, path) {
			if done[step] || made[step] > 0 && !convergent(path) {
				fields = append(fields, job.FieldError{Field: "config.spec." + path, Message: step + " has used it already", Fix: otherWay(j, path)})
				break
			}
		}
		if path == "pool.count" && wantedVMs(j, spec) < made[steps.CreateVMs] {
			fields = append(fields, job.FieldError{Field: "config.spec.pool.count", Message: fmt.Sprintf("%d VMs exist already, and an edit removes none", made[steps.CreateVMs]),
				Fix: fmt.Sprintf("use %d or more, or tear the job down", made[steps.CreateVMs])})
		}
		forget(&j.Config.InfraConfig, path)
	}
	if len(fields) > 0 {
		return invalid(fields...)
	}
	return nil
}

// otherWay is how a part of a spec is changed that an edit cannot change any more.
func otherWay(j *job.Job, path string) string {
	if j.ResourceType == job.Component && convergent(path) {
		return `use {"componentOp":"upgrade"} with the component in config.spec, which changes what is installed`
	}
	return "leave it as it is; to change it, tear the job down and create another"
}

// wantedVMs is how many VMs a spec asks for; what cannot be read asks for none
// and is refused where the whole spec is checked.
func wantedVMs(j *job.Job, spec json.RawMessage) int {
	c := *j
	c.Config.Spec = spec
	s, err := c.VMSpec()
	if err != nil {
		return 0
	}
	return s.Pool.VMCount()
}

// convergent reports whether a step brings what exists of a part of the spec into
// line with a changed one: a number of VMs grows, a release is upgraded.
func convergent(path string) bool {
	return path == "pool.count" || path == "pool.min" || path == "pool.desired" || path == "pool.max" ||
		within(path, "components") || within(path, "component.version") || within(path, "component.values")
}

func within(path, of string) bool { return path == of || strings.HasPrefix(path, of+".") }

// forget drops what stepValidate resolved from a part of the spec that changed.
func forget(c *job.InfraConfig, path string) {
	switch {
	case within(path, "pool.size"), within(path, "pool.instanceType"), within(path, "pool.image"), path == "pool":
		c.InstanceType, c.ImageID, c.ImageName, c.RootDevice = "", "", "", ""
	case within(path, "network"), within(path, "existing"):
		c.Zones, c.NetworkPlan = nil, nil
	case within(path, "size"), path == "instanceType", path == "preset", path == "engine":
		c.Datastore.Class, c.Datastore.Version = "", ""
	case path == "version", path == "nodePools", path == "podCidr", path == "serviceCidr", within(path, "endpoint"):
		// Nothing is made of these yet, or the edit would have been refused.
		c.Cluster.Version, c.Cluster.SupportUntil, c.Cluster.NodePools = "", "", nil
		c.Datastore.Version, c.Datastore.Class = "", ""
		c.Cluster.PodCIDR, c.Cluster.ServiceCIDR, c.Cluster.PublicCIDRs, c.Cluster.Public = "", "", nil, false
	}
}

// editFinished lets the health check of a finished job's load balancer change,
// and nothing else: it begins an update that brings the target group into line.
func editFinished(j *job.Job, paths []string) error {
	if len(paths) == 0 {
		return nil
	}
	if j.ResourceType == job.Datastore || j.ResourceType == job.Cache {
		return editDatastore(j, paths)
	}
	if j.ResourceType == job.Component {
		return refuse(WrongState, `Send it with {"componentOp":"upgrade"}.`, "the component is installed; its version and values are changed by an upgrade")
	}
	if j.ResourceType != job.VM {
		return refuse(WrongState, "Create another job with the new values, and tear this one down.",
			"the job is completed; its spec can be changed only while it is a draft or has failed")
	}
	lb, err := j.LoadBalancer()
	if err != nil {
		return err
	}
	var fields []job.FieldError
	for _, path := range paths {
		switch {
		case within(path, healthCheck) && lb != nil && j.Owns():
		case within(path, "loadBalancer") && j.Owns():
			fields = append(fields, job.FieldError{Field: "config.spec." + path, Message: "a finished job's load balancer is not rebuilt by an edit",
				Fix: `detach it with {"vmOp":"detach_lb"}, then attach the new one with {"vmOp":"attach_lb"}`})
		default:
			fields = append(fields, job.FieldError{Field: "config.spec." + path, Message: "cannot be changed on a finished job: VMs are not resized or rebuilt in place",
				Fix: "create another job and tear this one down"})
		}
	}
	if len(fields) > 0 {
		return invalid(fields...)
	}
	if err := move(j, job.Operate); err != nil {
		return err
	}
	j.VMOp, j.Run, j.CurrentStep = job.AttachLB, j.Run+1, ""
	return nil
}
