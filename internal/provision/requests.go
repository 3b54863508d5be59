package provision

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/zopday/provisioner/internal/job"
)

// A CreateRequest is a job as a person asks for it: the body of a POST, a job
// file, the wizard's file view.
type CreateRequest struct {
	Kind           job.Kind          `json:"kind,omitempty" enum:"provisioning,remediation" doc:"provisioning (default), or remediation: acts on the pools of a VM or cluster job, which says cloud, region and account"`
	ResourceType   job.ResourceType  `json:"resourceType" enum:"cache,cluster,component,datastore,network,vm" doc:"The resource family"`
	Provider       job.Provider      `json:"provider" enum:"aws,gcp,azure" doc:"The cloud"`
	Mode           job.Mode          `json:"mode,omitempty" enum:"create,create_in_existing,adopt" doc:"create (default): everything is made, and all of it is deleted again; create_in_existing: inside a network that you name; adopt: nothing is made"`
	Name           string            `json:"name" doc:"1 to 63 of a-z, 0-9 and hyphen; unique per resource type among live jobs"`
	Team           string            `json:"team,omitempty" doc:"The team that the job belongs to, by its name or its ID; the organisation alone, or your only team, if left out. A component job belongs to its space's team, a remediation job to its subject's"`
	CloudAccountID string            `json:"cloudAccountId,omitempty" doc:"By its ID or its name; default, if left out"`
	Region         string            `json:"region" doc:"The cloud's own name, such as us-east-1"`
	Labels         map[string]string `json:"labels,omitempty" doc:"Become tags or labels of everything that the job makes"`
	Config         ConfigRequest     `json:"config,omitempty" doc:"What is asked for"`
	Submit         bool              `json:"submit,omitempty" doc:"true: queue the job at once; otherwise it stays a draft until PATCH {\"status\":\"queued\"}"`
}

// parts checks the spec by the schema of its resource type, so that everything
// wrong with a document is said at once.
func (r *CreateRequest) parts() []job.FieldError {
	if len(r.Config.Spec) == 0 {
		return nil
	}
	return readSpecOf(r.Kind, r.ResourceType, r.Config.Spec)
}

// readSpecOf checks a spec by the schema of its kind and resource type.
func readSpecOf(kind job.Kind, t job.ResourceType, raw json.RawMessage) []job.FieldError {
	if kind == job.Remediation {
		return decodeSpec(raw, &job.RemediationSpec{})
	}
	return readSpec(t, raw)
}

// readSpec checks a spec by the schema of its resource type.
func readSpec(t job.ResourceType, raw json.RawMessage) []job.FieldError {
	switch t {
	case job.VM:
		return decodeSpec(raw, &job.VMSpec{})
	case job.Network:
		return decodeSpec(raw, &job.NetworkJobSpec{})
	case job.Cluster:
		return decodeSpec(raw, &job.ClusterSpec{})
	case job.Component:
		return decodeSpec(raw, &job.ComponentJobSpec{})
	}
	return nil // refused for its resource type
}

// ConfigRequest holds the spec, whose schema depends on the resource type.
type ConfigRequest struct {
	Spec json.RawMessage `json:"spec,omitempty" doc:"The spec of the resource type"`
}

// A PatchRequest is one change of a job. It does one thing at a time: submit, a
// vmOp, or an edit.
type PatchRequest struct {
	Status         *job.Status       `json:"status,omitempty" enum:"queued" doc:"queued: submit a draft"`
	VMOp           *job.VMOp         `json:"vmOp,omitempty" enum:"attach_lb,detach_lb" doc:"Attach or detach a load balancer on a finished VM job; attach_lb may bring config.spec.loadBalancer"`
	ComponentOp    *job.VMOp         `json:"componentOp,omitempty" enum:"upgrade,rollback" doc:"Upgrade a finished component job's release, to the version and values that config.spec.component brings, or roll it back to an earlier revision"`
	Revision       *int              `json:"revision,omitempty" doc:"rollback: the revision to go back to; the one before by default"`
	Name           *string           `json:"name,omitempty" doc:"Drafts only"`
	Mode           *job.Mode         `json:"mode,omitempty" doc:"Drafts only"`
	CloudAccountID *string           `json:"cloudAccountId,omitempty" doc:"Drafts only"`
	Region         *string           `json:"region,omitempty" doc:"Drafts only"`
	Labels         map[string]string `json:"labels,omitempty" doc:"Drafts only; replaces all labels"`
	Config         *ConfigRequest    `json:"config,omitempty" doc:"A JSON Merge Patch (RFC 7396) of the spec. Drafts: any field. Failed jobs: fields that no finished step used. Finished jobs: the load balancer's health check"`
}

// edits reports whether the patch changes what was asked for.
func (p PatchRequest) edits() bool {
	return p.Name != nil || p.Mode != nil || p.CloudAccountID != nil || p.Region != nil || p.Labels != nil || p.Config != nil
}

// newJob makes a job of a request: a draft that was checked, with everything
// that the user left out as it stands by default.
func (s *Service) newJob(r CreateRequest) (*job.Job, error) {
	j := &job.Job{
		TeamID: r.Team, Kind: r.Kind, ResourceType: r.ResourceType, Provider: r.Provider, Mode: r.Mode, Name: r.Name,
		CloudAccountID: cmp.Or(r.CloudAccountID, "default"), Region: r.Region, Labels: r.Labels,
		Status: job.Draft, Phase: job.PhaseProvision, Run: 1,
		Config: job.Config{Spec: r.Config.Spec},
	}
	if j.Kind == "" {
		j.Kind = job.Provisioning
	}
	if j.Mode == "" {
		j.Mode = job.ModeCreate
	}
	if len(j.Config.Spec) == 0 {
		j.Config.Spec = json.RawMessage("{}")
	}
	if err := s.check(j); err != nil {
		return nil, err
	}
	return j, nil
}

// previewAzure is what an Azure VM job is told while the feature gate is off.
var previewAzure = job.FieldError{
	Field:   "provider",
	Message: "VMs on Azure (VM scale sets, VMSS) are in preview and off by default, behind the feature gate AzureVMSS; nothing was created",
	Fix:     "use aws or gcp, or start the server with --feature-gates AzureVMSS=true; the preview is followed in the release notes at https://github.com/zopday/provisioner/releases, under AzureVMSS",
}

// check validates everything about a job that needs no cloud.
func (s *Service) check(j *job.Job) error {
	if j.ResourceType == job.VM && j.Provider == job.Azure && !s.Gates[job.AzureVMSS] {
		return invalid(previewAzure)
	}
	// Found here with the whole path of each, and all of them at once.
	fields := readSpecOf(j.Kind, j.ResourceType, j.Config.Spec)
	misread := len(fields) > 0
	var bad *job.Invalid
	switch err := j.Validate(); {
	case errors.As(err, &bad):
		for _, f := range bad.Fields {
			if !misread || !strings.HasPrefix(f.Field, "config.spec") {
				fields = append(fields, f)
			}
		}
	case err != nil:
		return err
	}
	if len(fields) == 0 {
		fields = s.checkComponents(j)
	}
	if len(fields) > 0 {
		return invalid(fields...)
	}
	return nil
}

// merge applies a JSON Merge Patch (RFC 7396) to a spec.
func merge(spec, patch json.RawMessage) (json.RawMessage, error) {
	if len(spec) == 0 {
		spec = json.RawMessage("{}")
	}
	base, err := parse(spec)
	if err != nil {
		return nil, err
	}
	change, err := parse(patch)
	if err != nil {
		return nil, err
	}
	out, err := json.Marshal(mergeValue(base, change))
	if err != nil {
		return nil, fmt.Errorf("merged spec: %w", err)
	}
	return out, nil
}

func mergeValue(base, change any) any {
	c, ok := change.(map[string]any)
	if !ok {
		return change
	}
	b, ok := base.(map[string]any)
	if !ok {
		b = map[string]any{}
	}
	out := maps.Clone(b)
	for k, v := range c {
		if v == nil {
			delete(out, k)
		} else {
			out[k] = mergeValue(out[k], v)
		}
	}
	return out
}

// changedPaths lists the leaves in which two specs differ, by their paths.
func changedPaths(before, after json.RawMessage) ([]string, error) {
	a, err := parse(before)
	if err != nil {
		return nil, err
	}
	b, err := parse(after)
	if err != nil {
		return nil, err
	}
	var paths []string
	diff("", a, b, &paths)
	return paths, nil
}

// presence are the parts of a spec that mean something by being there at all;
// any other object that is missing is the same as an empty one.
var presence = []string{"loadBalancer", "loadBalancer.dns", "existing", "adopt", "network.privateServices"}

func diff(path string, a, b any, paths *[]string) {
	am, aok := a.(map[string]any)
	bm, bok := b.(map[string]any)
	if aok && b == nil || bok && a == nil {
		if slices.Contains(presence, path) {
			*paths = append(*paths, path)
			return
		}
		aok, bok = true, true
	}
	if !aok || !bok {
		x, xerr := json.Marshal(a)
		y, yerr := json.Marshal(b)
		if xerr != nil || yerr != nil || !bytes.Equal(x, y) {
			*paths = append(*paths, path)
		}
		return
	}
	keys := sortedKeys(am)
	for k := range bm {
		if _, both := am[k]; !both {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	for _, k := range keys {
		diff(join(path, k), am[k], bm[k], paths)
	}
}
