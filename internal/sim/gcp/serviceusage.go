package gcp

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

// serviceUsage is the simulated Service Usage: which APIs are enabled in which project.
type serviceUsage struct {
	cloud *Cloud
	st    serviceUsageState
}

type serviceUsageState struct {
	// Enabled says since when an API is enabled, by project and host; the zero time means from the start.
	Enabled    map[string]map[string]time.Time
	Operations map[string]*longOperation
}

// enabledTakes is how long after it was enabled an API is still refused ("Enabling and disabling services": a few minutes at
// most).
const enabledTakes = 30 * time.Second

// simulatedHosts are the APIs that are enabled in a fresh project when the options do not say otherwise.
func simulatedHosts() []string { return keysOf(titles) }

func newServiceUsage(c *Cloud) *serviceUsage {
	s := &serviceUsage{cloud: c}
	c.World.Register(s)
	c.hooks.enabled = s.enabled
	c.add("serviceusage/v1", &api{service: "serviceusage", listErrors: true, always: true, ops: map[string]operation{
		"services.get": s.get, "services.list": s.list, "services.batchGet": s.batchGet, "services.enable": s.enable, "services.batchEnable": s.batchEnable,
		"services.disable": s.disable, "operations.get": s.getOperation,
	}, claims: func(path string) bool {
		return !strings.Contains(path, "/operations/") || strings.Contains(path, "/operations/acat.") || strings.Contains(path, "/operations/noop.")
	}})
	return s
}

func (s *serviceUsage) Cloud() string { return cloudName }
func (s *serviceUsage) Name() string  { return "serviceusage" }
func (s *serviceUsage) State() any    { return &s.st }

// Reset starts afresh.
func (s *serviceUsage) Reset() {
	s.st = serviceUsageState{Enabled: map[string]map[string]time.Time{}, Operations: map[string]*longOperation{}}
	for _, p := range s.cloud.opt.Projects {
		s.st.Enabled[p.ID] = map[string]time.Time{}
		for _, host := range s.first() {
			s.st.Enabled[p.ID][host] = time.Time{}
		}
	}
}

// first are the APIs that are enabled from the start.
func (s *serviceUsage) first() []string {
	if s.cloud.opt.Services != nil {
		return s.cloud.opt.Services
	}
	return simulatedHosts()
}

// enabled says whether an API answers in a project.
func (s *serviceUsage) enabled(project, host string) bool {
	since, ok := s.st.Enabled[project][host]
	return ok && (since.IsZero() || !s.cloud.World.Now().Before(since.Add(enabledTakes)))
}

// hooksEnabled is hooks.enabled for callers that hold the world's lock.
func (c *Cloud) hooksEnabled(project, host string) bool {
	return c.hooks.enabled == nil || c.hooks.enabled(project, host)
}

// Event ends an operation.
func (s *serviceUsage) Event(kind, key string) {
	if op := s.st.Operations[key]; kind == "done" && op != nil && !op.done() && !op.Held {
		s.carryOut(op)
	}
}

// Objects lists the APIs that are enabled.
func (s *serviceUsage) Objects() []sim.Object {
	var out []sim.Object
	for _, project := range keysOf(s.st.Enabled) {
		for _, host := range keysOf(s.st.Enabled[project]) {
			out = append(out, sim.Object{Account: project, Kind: "service", ID: "projects/" + project + "/services/" + host, Name: host, State: "ENABLED",
				Default: true, Pristine: slices.Contains(s.first(), host), Data: Doc{"enabled": true}})
		}
	}
	return out
}

// SetState enables or disables an API, at once, or drives an operation.
func (s *serviceUsage) SetState(id, state, code, message string) error {
	if op := s.st.Operations[id]; op != nil {
		if op.drive(state, code, message) {
			s.carryOut(op)
		}
		return nil
	}
	project, host := segmentAfter(id, "projects"), segmentAfter(id, "services")
	if s.st.Enabled[project] == nil || host == "" {
		return fmt.Errorf("no object %s", id)
	}
	switch state {
	case "ENABLED":
		s.st.Enabled[project][host] = time.Time{}
	case "DISABLED":
		delete(s.st.Enabled[project], host)
	default:
		return fmt.Errorf("an API is ENABLED or DISABLED, not %q", state)
	}
	return nil
}

// Remove disables an API.
func (s *serviceUsage) Remove(id string) error { return s.SetState(id, "DISABLED", "", "") }

func (s *serviceUsage) shown(p Project, host string) Doc {
	d := Doc{"name": "projects/" + p.Number + "/services/" + host, "parent": "projects/" + p.Number, "state": "DISABLED",
		"config": Doc{"name": host, "title": serviceTitle(host)}}
	if _, on := s.st.Enabled[p.ID][host]; on {
		d["state"] = "ENABLED"
	}
	return d
}

// hostOf is the API that a name ends in; what is no API of Google's is refused.
func hostOf(name string) (string, error) {
	host := segmentAfter(name+"/", "services")
	if !strings.HasSuffix(host, ".googleapis.com") {
		return "", &Error{HTTP: 404, Reason: "notFound", Message: fmt.Sprintf("Service %s not found or permission denied.", host)}
	}
	return host, nil
}

func (s *serviceUsage) get(r *request) (any, error) {
	host, err := hostOf(r.Path["name"])
	if err != nil {
		return nil, err
	}
	return s.shown(r.Project, host), nil
}

func (s *serviceUsage) list(r *request) (any, error) {
	match, err := parseFilter(r.Query.Get("filter"))
	if err != nil {
		return nil, err
	}
	hosts := simulatedHosts()
	for _, h := range keysOf(s.st.Enabled[r.Project.ID]) {
		if !slices.Contains(hosts, h) {
			hosts = append(hosts, h)
		}
	}
	var items []Doc
	for _, h := range hosts {
		if d := s.shown(r.Project, h); match(d) {
			items = append(items, d)
		}
	}
	return r.page(items, "services", 200)
}

func (s *serviceUsage) batchGet(r *request) (any, error) {
	var items []Doc
	for _, name := range r.Query["names"] {
		host, err := hostOf(name)
		if err != nil {
			return nil, err
		}
		items = append(items, s.shown(r.Project, host))
	}
	return Doc{"services": items}, nil
}

// noop is the operation of a change that is none.
func noop(typeName string, response Doc) Doc {
	op := &longOperation{Doc: Doc{"name": "operations/noop.DONE_OPERATION"}}
	op.finish(typeName, response)
	return op.Doc
}

const usageTypes = "google.api.serviceusage.v1."

func (s *serviceUsage) start(r *request, kind string, hosts []string) Doc {
	name := "operations/acat.p2-" + r.Project.Number + "-" + s.cloud.World.UUID()
	op := &longOperation{Name: name, Project: r.Project.ID, Kind: kind, Args: Doc{"hosts": anys(hosts)}, Begun: s.cloud.World.Now(), Doc: Doc{"name": name}}
	s.st.Operations[name] = op
	s.cloud.after(6*time.Second, "serviceusage", "done", name)
	for _, h := range hosts {
		r.Touch("projects/" + r.Project.ID + "/services/" + h)
	}
	r.Make(name)
	if r.HTTP == nil {
		s.carryOut(op)
	}
	return op.Doc
}

func (s *serviceUsage) enable(r *request) (any, error) {
	host, err := hostOf(r.Path["name"])
	if err != nil {
		return nil, err
	}
	if _, on := s.st.Enabled[r.Project.ID][host]; on {
		return noop(usageTypes+"EnableServiceResponse", Doc{"service": s.shown(r.Project, host)}), nil
	}
	return s.start(r, "enable", []string{host}), nil
}

func (s *serviceUsage) batchEnable(r *request) (any, error) {
	var hosts []string
	for _, h := range texts(r.Body, "serviceIds") {
		host, err := hostOf("services/" + h)
		if err != nil {
			return nil, err
		}
		hosts = append(hosts, host)
	}
	if len(hosts) == 0 || len(hosts) > 20 {
		return nil, badArgument("Between 1 and 20 services must be specified.")
	}
	return s.start(r, "batchEnable", hosts), nil
}

// disable refuses an API that others need, unless they are to be disabled too.
func (s *serviceUsage) disable(r *request) (any, error) {
	host, err := hostOf(r.Path["name"])
	if err != nil {
		return nil, err
	}
	if _, on := s.st.Enabled[r.Project.ID][host]; !on {
		return nil, &Error{HTTP: 400, Reason: "failedPrecondition", Status: "FAILED_PRECONDITION", Message: fmt.Sprintf("Service %s is not enabled.", host)}
	}
	return s.start(r, "disable", []string{host}), nil
}

func (s *serviceUsage) carryOut(op *longOperation) {
	p, _ := s.cloud.project(op.Project)
	var shown []any
	for _, host := range texts(op.Args, "hosts") {
		if op.Kind == "disable" {
			delete(s.st.Enabled[op.Project], host)
		} else if _, on := s.st.Enabled[op.Project][host]; !on {
			s.st.Enabled[op.Project][host] = s.cloud.World.Now()
		}
		shown = append(shown, s.shown(p, host))
	}
	switch op.Kind {
	case "disable":
		op.finish(usageTypes+"DisableServiceResponse", Doc{"service": shown[0]})
	case "enable":
		op.finish(usageTypes+"EnableServiceResponse", Doc{"service": shown[0]})
	default:
		op.finish(usageTypes+"BatchEnableServicesResponse", Doc{"services": shown})
	}
}

func (s *serviceUsage) getOperation(r *request) (any, error) {
	if op := s.st.Operations[r.Path["name"]]; op != nil {
		r.Account = op.Project
		return op.Doc, nil
	}
	if r.Path["name"] == "operations/noop.DONE_OPERATION" {
		return noop("google.protobuf.Empty", nil), nil
	}
	return nil, refuse(404, "notFound", "Operation not found: %s", r.Path["name"])
}
