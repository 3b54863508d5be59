package gcp

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// probed is what a health check knows of an instance.
type probed struct {
	State     string // HEALTHY, UNHEALTHY, TIMEOUT; empty: not known yet
	Good, Bad int
	At        time.Time
}

// note takes the outcome of a probe in: the state changes when so many of the same kind have followed one another ("Health
// checks overview", health state). The first one to be known is bad until enough good ones have come.
func (p *probed) note(check Doc, now time.Time, outcome string) {
	p.At = now
	if outcome == "HEALTHY" {
		p.Good, p.Bad = p.Good+1, 0
		if float64(p.Good) >= num(check, "healthyThreshold") {
			p.State = outcome
		}
		return
	}
	p.Good, p.Bad = 0, p.Bad+1
	if float64(p.Bad) >= num(check, "unhealthyThreshold") || p.State != "HEALTHY" && p.State != "" {
		p.State = outcome
	}
}

// checkOf is how a health check asks: protocol, port, path.
func checkOf(check Doc) (protocol string, p Doc) {
	if str(check, "kind") == "compute#httpHealthCheck" {
		return "HTTP", check
	}
	protocol = str(check, "type")
	return protocol, sub(check, checkFields[protocol])
}

// namedPort is the port that a name has in a group.
func namedPort(group *Resource, name string) (port int, ok bool) {
	if group == nil {
		return 0, false
	}
	for _, p := range docs(group.Doc, "namedPorts") {
		if str(p, "name") == name {
			return int(num(p, "port")), true
		}
	}
	return 0, false
}

// servingPort is the port to which a backend service sends traffic in a group.
func servingPort(backend Doc, group *Resource) int {
	if p, ok := namedPort(group, str(backend, "portName")); ok {
		return p
	}
	return int(num(backend, "port"))
}

// probe asks an instance as a health check does, from where Google's probers stand. Backend is the backend service, if one asks.
func (e *Compute) probe(check Doc, vm *Resource, backend *backendGroup) string {
	protocol, p := checkOf(check)
	port := int(num(p, "port"))
	if backend != nil && str(p, "portSpecification") == "USE_SERVING_PORT" {
		port = servingPort(backend.service, backend.group)
	}
	if name := str(p, "portName"); name != "" && backend != nil {
		if n, ok := namedPort(backend.group, name); ok {
			port = n
		}
	}
	if !e.admitted(vm, probeRanges, port) {
		return "TIMEOUT"
	}
	status, listening := e.listens(vm, port, str(p, "requestPath"))
	switch {
	case !listening:
		return "UNHEALTHY"
	case strings.HasPrefix(protocol, "HTTP") && status != 200:
		return "UNHEALTHY"
	}
	return "HEALTHY"
}

// backendGroup is one group behind a backend service.
type backendGroup struct {
	service Doc
	group   *Resource
}

// fronts are the forwarding rules that lead to each backend service of a project, through proxies and URL maps or directly.
func (e *Compute) fronts(project string) map[string][]*Resource {
	out := map[string][]*Resource{}
	for _, rule := range e.ofKind(project, "forwardingRules") {
		if rule.Making {
			continue
		}
		// From the rule over at most a proxy and a URL map.
		reached := []string{e.cloud.pathOfLink(project, orText(str(rule.Doc, "target"), str(rule.Doc, "backendService")))}
		for range 3 {
			var next []string
			for _, path := range reached {
				res := e.st.Resources[path]
				switch {
				case res == nil:
				case res.Collection == "backendServices":
					if !slices.Contains(out[path], rule) {
						out[path] = append(out[path], rule)
					}
				case res.Collection == "urlMaps" || slices.Contains(targets, res.Collection):
					next = append(next, e.usedBy(res)...)
				}
			}
			reached = next
		}
	}
	return out
}

// watch lets the health checks of backend services begin or end, after a change of something that may lead to them. Nobody probes
// a backend service to which no forwarding rule leads.
func (e *Compute) watch(res *Resource) {
	fronts := e.fronts(res.project())
	for _, service := range e.ofKind(res.project(), "backendServices") {
		wanted := len(docs(service.Doc, "backends")) > 0 && len(fronts[service.Path]) > 0
		switch running := service.Inner["checking"] != ""; {
		case wanted && !running:
			e.st.Seq++
			service.inner("checking", strconv.Itoa(e.st.Seq))
			e.forgetHealth(func(of, _ string) bool { return of == service.Path })
			e.later(2*time.Second, "lb-check", service.Path+"|"+service.Inner["checking"])
		case !wanted && running:
			delete(service.Inner, "checking")
		}
	}
}

// forgetHealth forgets what health checks of some backend services know of some instances.
func (e *Compute) forgetHealth(which func(service, instance string) bool) {
	for key := range e.st.VM.Health {
		if service, instance, _ := strings.Cut(key, "|"); which(service, instance) {
			delete(e.st.VM.Health, key)
		}
	}
}

// checkEvent is one round of the health checks of a backend service.
func (e *Compute) checkEvent(key string) {
	path, round, _ := strings.Cut(key, "|")
	service := e.st.Resources[path]
	if service == nil || service.Inner["checking"] != round {
		return
	}
	check := e.checkFor(service)
	if check == nil {
		delete(service.Inner, "checking")
		return
	}
	now := e.cloud.World.Now()
	for _, b := range e.groupsOf(service) {
		for _, vm := range e.members(b.group) {
			key := service.Path + "|" + vm
			known := e.st.VM.Health[key]
			if known == nil {
				known = &probed{}
				e.st.VM.Health[key] = known
			}
			if res := e.st.Resources[vm]; res != nil {
				known.note(check.Doc, now, e.probe(check.Doc, res, &b))
			}
		}
	}
	e.later(time.Duration(num(check.Doc, "checkIntervalSec"))*time.Second, "lb-check", key)
}

func (e *Compute) checkFor(service *Resource) *Resource {
	for _, link := range texts(service.Doc, "healthChecks") {
		return e.st.Resources[e.cloud.pathOfLink(service.project(), link)]
	}
	return nil
}

func (e *Compute) groupsOf(service *Resource) []backendGroup {
	var out []backendGroup
	for _, b := range docs(service.Doc, "backends") {
		if group := e.st.Resources[e.cloud.pathOfLink(service.project(), str(b, "group"))]; group != nil {
			out = append(out, backendGroup{service.Doc, group})
		}
	}
	return out
}

// getHealth answers what the health checks know of a group's instances. Without a forwarding rule nobody probes, and the answer
// is empty.
func (e *Compute) getHealth(r *request) (any, error) {
	service, err := e.find(r, e.kinds["backendServices"])
	if err != nil {
		return nil, err
	}
	link := str(r.Body, "group")
	path := e.cloud.pathOfLink(r.Project.ID, link)
	answer := Doc{"kind": "compute#backendServiceGroupHealth"}
	at := slices.IndexFunc(e.groupsOf(service), func(b backendGroup) bool { return b.group.Path == path })
	if at < 0 {
		return nil, invalidField("resource.group", link, "The instance group is not a backend of the backend service.")
	}
	rules := e.fronts(r.Project.ID)[service.Path]
	if len(rules) == 0 {
		return answer, nil
	}
	b := e.groupsOf(service)[at]
	var items []any
	for _, member := range e.members(b.group) {
		vm := e.st.Resources[member]
		if vm == nil {
			continue
		}
		state := "UNHEALTHY"
		if known := e.st.VM.Health[service.Path+"|"+member]; known != nil && known.State == "HEALTHY" && str(vm.Doc, "status") == "RUNNING" {
			state = "HEALTHY"
		}
		d := Doc{"healthState": state, "instance": selfLink(member), "ipAddress": str(docs(vm.Doc, "networkInterfaces")[0], "networkIP"),
			"port": float64(servingPort(service.Doc, b.group))}
		if scheme := str(service.Doc, "loadBalancingScheme"); scheme == "INTERNAL" {
			d["forwardingRule"], d["forwardingRuleIp"] = selfLink(rules[0].Path), str(rules[0].Doc, "IPAddress")
			delete(d, "port")
		}
		items = append(items, d)
	}
	if len(items) > 0 {
		answer["healthStatus"] = items
	}
	return answer, nil
}
