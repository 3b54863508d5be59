package azure

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v10"
)

func numText(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }

// lbMade are the sub-resources that can be made and deleted by themselves, with the models of their bodies.
var lbMade = map[string]func() any{
	lbPools:    func() any { return &armnetwork.BackendAddressPool{} },
	lbNATRules: func() any { return &armnetwork.InboundNatRule{} },
}

// lbOperations are the names under which the operations on sub-resources are booked.
var lbOperations = map[string]string{lbFrontends: "LoadBalancerFrontendIPConfigurations", lbPools: "LoadBalancerBackendAddressPools", lbRules: "LoadBalancerLoadBalancingRules",
	lbProbes: "LoadBalancerProbes", lbNATRules: "InboundNatRules", lbOutboundRules: "LoadBalancerOutboundRules"}

// addBalancerParts registers the paths of a load balancer's sub-resources. They are parts of one document: whoever changes one
// changes the load balancer.
func (c *Cloud) addBalancerParts() {
	const lb = "/subscriptions/{subscription}/resourceGroups/{group}/providers/" + loadBalancerType + "/{lb}/"
	add := func(method, pattern, operation string, serve func(*request) (answer, error)) {
		c.handle(route{method: method, pattern: pattern, service: "network", operation: operation, kind: loadBalancerType, versions: networkVersions, serve: serve})
	}
	for _, list := range lbLists {
		if lbOperations[list] == "" {
			continue
		}
		add("GET", lb+list, lbOperations[list]+"_List", func(r *request) (answer, error) { return c.listParts(r, list) })
		add("GET", lb+list+"/{part}", lbOperations[list]+"_Get", func(r *request) (answer, error) { return c.getPart(r, list) })
		if model := lbMade[list]; model != nil {
			add("PUT", lb+list+"/{part}", lbOperations[list]+"_CreateOrUpdate", func(r *request) (answer, error) { return c.putPart(r, list, model) })
			add("DELETE", lb+list+"/{part}", lbOperations[list]+"_Delete", func(r *request) (answer, error) { return c.deletePart(r, list) })
		}
	}
	c.handle(route{method: "POST", pattern: lb + lbRules + "/{part}/health", service: "network", operation: "LoadBalancerLoadBalancingRules_Health", kind: loadBalancerType,
		versions: networkVersions, serve: c.ruleHealth, read: true})
}

// balancer finds the load balancer that the path of a sub-resource names.
func (c *Cloud) balancer(r *request) (*Resource, error) {
	id, _ := parseID(strings.Join(strings.Split(r.path, "/")[:9], "/"))
	if c.find(groupID(id.Subscription, id.Group)) == nil {
		return nil, groupNotFound(id.Group)
	}
	r.id = id
	lb := c.find(id.String())
	if lb == nil {
		return nil, notFoundARM(id)
	}
	r.Touch(lb.ID)
	return lb, nil
}

func partNotFound(r *request) *Error {
	return refuseNetwork(http.StatusNotFound, "NotFound", "Resource %s not found.", r.path)
}

// shownPart is a sub-resource as its load balancer shows it.
func (c *Cloud) shownPart(r *request, lb *Resource, list, name string) doc {
	for _, d := range c.render(r, lb).docs("properties." + list) {
		if strings.EqualFold(d.str("name"), name) {
			return d
		}
	}
	return nil
}

func (c *Cloud) listParts(r *request, list string) (answer, error) {
	lb, err := c.balancer(r)
	if err != nil {
		return answer{}, err
	}
	return r.page(c.render(r, lb).list("properties."+list), "$skiptoken")
}

func (c *Cloud) getPart(r *request, list string) (answer, error) {
	lb, err := c.balancer(r)
	if err != nil {
		return answer{}, err
	}
	d := c.shownPart(r, lb, list, r.vars["part"])
	if d == nil {
		return answer{}, partNotFound(r)
	}
	a := plain(map[string]any(d))
	a.header = http.Header{"Etag": {lb.Etag}}
	return a, nil
}

func (c *Cloud) putPart(r *request, list string, model func() any) (answer, error) {
	lb, err := c.balancer(r)
	if err != nil {
		return answer{}, err
	}
	if err := c.writable(r, c.kindOf(loadBalancerType)); err != nil {
		return answer{}, err
	}
	body, err := r.input(networkDialect, model)
	if err != nil {
		return answer{}, err
	}
	now, status := lb.clone(), http.StatusCreated
	item := map[string]any{"name": r.vars["part"], "properties": map[string]any(body.sub("properties"))}
	parts := []any{}
	for _, d := range now.Properties.docs(list) {
		if strings.EqualFold(d.str("name"), r.vars["part"]) {
			item["name"], status = d.str("name"), http.StatusOK
			continue
		}
		parts = append(parts, map[string]any(d))
	}
	now.Properties[list] = append(parts, item)
	h, err := c.replaceBalancer(r, now, lb)
	if err != nil {
		return answer{}, err
	}
	return answer{status: status, header: h, body: map[string]any(c.shownPart(r, now, list, r.vars["part"]))}, nil
}

func (c *Cloud) deletePart(r *request, list string) (answer, error) {
	lb, err := c.balancer(r)
	if err != nil {
		return answer{}, err
	}
	if err := c.writable(r, c.kindOf(loadBalancerType)); err != nil {
		return answer{}, err
	}
	now, parts := lb.clone(), []any{}
	for _, d := range now.Properties.docs(list) {
		if !strings.EqualFold(d.str("name"), r.vars["part"]) {
			parts = append(parts, map[string]any(d))
		}
	}
	if len(parts) == len(now.Properties.docs(list)) {
		return answer{status: http.StatusNoContent, header: http.Header{}}, nil
	}
	now.Properties[list] = parts
	if _, err := c.replaceBalancer(r, now, lb); err != nil {
		return answer{}, err
	}
	return answer{status: http.StatusAccepted, header: c.begin(r, now, "delete part", outcome{style: asyncLocation, retryAfter: 10})}, nil
}

// replaceBalancer keeps a changed load balancer.
func (c *Cloud) replaceBalancer(r *request, now, old *Resource) (http.Header, error) {
	k := c.kindOf(loadBalancerType)
	if _, err := k.put(r, now, old); err != nil {
		return nil, err
	}
	now.State, now.Changed, now.Etag = stateSucceeded, c.World.Now(), k.newEtag(c)
	c.keep(now)
	r.Make(now.ID)
	return c.begin(r, now, "put", outcome{style: asyncHeader}), nil
}

// showBalancer adds what the sub-resources know of one another and of the interfaces in their pools.
func (c *Cloud) showBalancer(_ *request, lb *Resource, body doc) {
	p := body.sub("properties")
	back := map[string]map[string][]any{}
	note := func(id, list, by string) {
		if id == "" {
			return
		}
		if back[key(id)] == nil {
			back[key(id)] = map[string][]any{}
		}
		back[key(id)][list] = append(back[key(id)][list], map[string]any{"id": by})
	}
	for _, list := range []string{lbRules, lbNATRules, lbNATPools, lbOutboundRules} {
		for _, d := range p.docs(list) {
			seen := []string{}
			for _, ref := range partRefs(d) {
				if !containsText(seen, ref) {
					seen = append(seen, ref)
					note(ref, list, d.str("id"))
				}
			}
		}
	}
	for _, list := range lbLists {
		for _, d := range p.docs(list) {
			d["etag"] = lb.Etag
			for name, refs := range back[key(d.str("id"))] {
				d.sub("properties")[name] = refs
			}
		}
	}
	for _, d := range p.docs(lbPools) {
		c.showPool(d)
	}
}

// showPool lists the interfaces in a pool.
func (c *Cloud) showPool(pool doc) {
	var configs, addresses []any
	for _, m := range c.poolMembers(pool.str("id")) {
		configs = append(configs, map[string]any{"id": m.cfg.str("id")})
		addresses = append(addresses, map[string]any{"name": lastOf(m.nic.ID) + m.cfg.str("name"), "properties": map[string]any{
			"networkInterfaceIPConfiguration": map[string]any{"id": m.cfg.str("id")}}})
	}
	p := pool.sub("properties")
	if len(configs) > 0 {
		p["backendIPConfigurations"] = configs
		p["loadBalancerBackendAddresses"] = append(addresses, p.list("loadBalancerBackendAddresses")...)
	}
}

// A poolMember is an ipConfiguration in a backend pool.
type poolMember struct {
	nic *Resource
	cfg doc
}

// poolMembers lists the ipConfigurations in a pool, in the order of their interfaces' IDs.
func (c *Cloud) poolMembers(pool string) []poolMember {
	var out []poolMember
	for _, nic := range c.shelves["network"].sorted() {
		if nic.Type != nicType && nic.Type != instanceNICType {
			continue
		}
		for _, cfg := range nic.Properties.docs("ipConfigurations") {
			for _, ref := range cfg.docs("properties.loadBalancerBackendAddressPools") {
				if strings.EqualFold(ref.str("id"), pool) {
					out = append(out, poolMember{nic, cfg})
				}
			}
		}
	}
	return out
}

// ruleHealth answers what the probe of a rule says of every member of its pool ("Manage Azure Load Balancer health status").
func (c *Cloud) ruleHealth(r *request) (answer, error) {
	lb, err := c.balancer(r)
	if err != nil {
		return answer{}, err
	}
	var rule doc
	for _, d := range lb.Properties.docs(lbRules) {
		if strings.EqualFold(d.str("name"), r.vars["part"]) {
			rule = d.sub("properties")
		}
	}
	if rule == nil {
		return answer{}, partNotFound(r)
	}
	probe := c.partOf(rule.ref("probe"))
	if probe == nil {
		return answer{}, refuseNetwork(http.StatusBadRequest, "LoadBalancingRuleHasNoProbe", "Health status is not supported for load balancing rule %s, which has no probe.", r.vars["part"])
	}
	up, down, addresses := 0, 0, []any{}
	for _, m := range c.poolMembers(rule.ref("backendAddressPool")) {
		state, reason := c.probeState(probe, m.nic, m.cfg)
		switch state {
		case "Up":
			up++
		case "Down":
			down++
		default:
			continue // a machine that is off has no health
		}
		addresses = append(addresses, map[string]any{"ipAddress": m.cfg.str("properties.privateIPAddress"), "networkInterfaceIPConfigurationId": m.cfg.str("id"), "state": state, "reason": reason})
	}
	result := map[string]any{"up": up, "down": down, "loadBalancerBackendAddresses": addresses}
	op := &Operation{ID: c.World.UUID(), Verb: "health", Target: lb.ID, Type: lb.Type, Name: "LoadBalancingRuleHealth", Status: statusInProgress, Started: c.World.Now(),
		Ends: c.World.Now().Add(2 * time.Second), Version: r.version, Location: lb.Location, RetryAfter: 2, Style: locationOnly, Result: result}
	c.shelves["network"].state.Operations[op.ID] = op
	c.after(2*time.Second, "network", "operation", op.ID)
	c.after(24*time.Hour, "network", "forget", op.ID)
	h := http.Header{}
	r.announce(h, op)
	return answer{status: http.StatusAccepted, header: h}, nil
}

// probeState is what a probe finds at an ipConfiguration: Up or Down and why, or nothing for a machine that is off. A probe comes
// from the platform, and gets through only where the security groups let the tag AzureLoadBalancer in.
func (c *Cloud) probeState(probe doc, nic *Resource, cfg doc) (state, reason string) {
	vm := c.machineOf(nic)
	if vm == nil {
		return "", ""
	}
	m := c.guests.of(vm.ID)
	if m == nil || m.Power != "running" {
		return "", ""
	}
	tcp, port := strings.EqualFold(probe.str("protocol"), "Tcp"), int(probe.num("port"))
	in := packet{direction: "Inbound", protocol: "Tcp", source: "AzureLoadBalancer", dest: cfg.str("properties.privateIPAddress"), port: port}
	listening, code := c.guests.answers(m, port, probe.str("requestPath"))
	switch {
	case !c.passes(nic, cfg, in) || !listening:
		if tcp {
			return "Down", "Down_Probe_TcpProbeTimeout"
		}
		return "Down", "Down_Probe_HttpEndpointUnreachable"
	case !tcp && code != 200:
		return "Down", "Down_Probe_HttpStatusCodeError"
	}
	return "Up", "Up_Probe_Success"
}
