package gcp

import (
	"slices"
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
	return protocol, sub(check, strings.ToLower(protocol)+"HealthCheck")
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

// rulesTo are the forwarding rules that lead to a backend service, through proxies and URL maps or directly.
func (e *Compute) rulesTo(service *Resource) []*Resource {
	reaches := map[string]bool{service.Path: true}
	for _, collection := range []string{"urlMaps", "targetTcpProxies", "targetSslProxies", "targetHttpProxies", "targetHttpsProxies"} {
		for _, res := range e.ofKind(service.project(), collection) {
			if slices.ContainsFunc(e.usedBy(res), func(p string) bool { return reaches[p] }) {
				reaches[res.Path] = true
			}
		}
	}
	var rules []*Resource
	for _, rule := range e.ofKind(service.project(), "forwardingRules") {
		to := e.cloud.pathOfLink(rule.project(), orText(str(rule.Doc, "target"), str(rule.Doc, "backendService")))
		if !rule.Making && reaches[to] {
			rules = append(rules, rule)
		}
	}
	return rules
}

// watch lets the health checks of backend services begin that a change may concern. Nobody probes a backend service to which no
// forwarding rule leads.
func (e *Compute) watch(res *Resource) {
	for _, service := range e.ofKind(res.project(), "backendServices") {
		if service.Inner["checking"] == "" && len(docs(service.Doc, "backends")) > 0 && len(e.rulesTo(service)) > 0 {
			service.inner("checking", "yes")
			e.later(2*time.Second, "lb-check", service.Path+"|"+service.ID)
		}
	}
}

// checkEvent is one round of the health checks of a backend service.
func (e *Compute) checkEvent(key string) {
	path, id, _ := strings.Cut(key, "|")
	service := e.st.Resources[path]
	if service == nil || service.ID != id {
		return
	}
	check := e.checkFor(service)
	if check == nil || len(docs(service.Doc, "backends")) == 0 || len(e.rulesTo(service)) == 0 {
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
	rules := e.rulesTo(service)
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
