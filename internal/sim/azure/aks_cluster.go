package azure

import (
	"maps"
	"net/http"
	"regexp"
	"strings"
	"time"
)

// How long the parts of an operation on a cluster take, in simulated time.
const (
	groupAfter = 20 * time.Second // until the node resource group and the network are there
	poolsAfter = 60 * time.Second // until the machines of the pools are asked for
	// clusterLimit is when an operation that does not get on is given up.
	clusterLimit = 40 * time.Minute
)

// computedByCluster are the properties that a cluster computes; bodies that were read before carry them, and they change nothing.
var computedByCluster = []string{"provisioningState", "powerState", "currentKubernetesVersion", "fqdn", "privateFQDN", "azurePortalFQDN", "maxAgentPools", "resourceUID", "status",
	"agentPoolProfiles", "eTag"}

var dnsPrefix = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9-]{0,52}[a-zA-Z0-9])?$`)

// putCluster makes a managed cluster, or changes one.
func (c *Cloud) putCluster(r *request, now, old *Resource) (outcome, error) {
	dropNulls(map[string]any(now.Properties))
	dropNulls(map[string]any(now.Top))
	given := now.Properties.docs("agentPoolProfiles")
	delete(now.Top, "eTag")
	for _, name := range computedByCluster {
		delete(now.Properties, name)
	}
	if old != nil {
		inheritCluster(now, old)
	} else if e := c.newCluster(r, now, given); e != nil {
		return outcome{}, e
	}
	if e := c.assigned(now, old); e != nil {
		return outcome{}, e
	}
	if e := c.checkCluster(now, old); e != nil {
		return outcome{}, e
	}
	asked, full, e := clusterVersion(now, old)
	if e != nil {
		return outcome{}, e
	}
	upgraded := old != nil && full != old.Properties.str("currentKubernetesVersion")
	now.Properties["kubernetesVersion"], now.Properties["currentKubernetesVersion"] = asked, full
	c.fillCluster(r, now)
	now.State = stateCreating
	if old != nil {
		now.State = stateUpdating
	}
	c.keep(now) // its pools look it up
	scaled, err := c.putProfiles(r, now, old, given)
	if err != nil {
		return outcome{}, err
	}
	if e := c.checkClusterNetwork(now, old); e != nil {
		return outcome{}, e
	}
	takes := c.pace(270*time.Second, 330*time.Second, now.ID)
	out := outcome{state: now.State, takes: clusterLimit, style: asyncHeader}
	if old != nil {
		takes = c.pace(35*time.Second, 70*time.Second, "update "+now.ID)
		switch {
		case upgraded:
			takes, out.state = 2*takes+3*time.Minute, "Upgrading"
		case scaled:
			out.state = "Scaling"
		}
	}
	c.clusterAfter(5*time.Second, now, takes)
	return out, nil
}

// dropNulls takes out the members that are null, which are as good as left out.
func dropNulls(v any) {
	switch m := v.(type) {
	case []any:
		for _, e := range m {
			dropNulls(e)
		}
	case map[string]any:
		for k, e := range m {
			if e == nil {
				delete(m, k)
				continue
			}
			dropNulls(e)
		}
	}
}

// inheritCluster takes over what a later PUT leaves out.
func inheritCluster(now, old *Resource) {
	p, was := now.Properties, old.Properties.clone()
	inheritDoc(p.sub("networkProfile"), was.sub("networkProfile"))
	if lb := p.sub("networkProfile.loadBalancerProfile"); lb != nil && was.has("networkProfile.loadBalancerProfile.effectiveOutboundIPs") {
		lb.def("effectiveOutboundIPs", was.get("networkProfile.loadBalancerProfile.effectiveOutboundIPs"))
	}
	inheritDoc(p, was)
	for name, v := range old.clone().Top {
		now.Top.def(name, v)
	}
}

// newCluster judges what only a new cluster is asked.
func (c *Cloud) newCluster(r *request, now *Resource, given []doc) *Error {
	p := now.Properties
	limit, _ := c.World.QuotaValue("azure", clusterService, "ManagedClusters", r.subscription, now.Location)
	n := 0
	for _, res := range c.shelves[clusterService].state.Resources {
		if res.Type == clusterType && res.Location == now.Location && strings.EqualFold(subscriptionOf(res.ID), r.subscription) {
			n++
		}
	}
	if float64(n) >= limit {
		return refuseCluster(http.StatusConflict, "QuotaExceeded", "", "Limit of %d for managed cluster(AKS) has been reached for subscription %s in location %s. Please try deleting one or more managed cluster resources in this location before trying to create a new cluster or try a different Azure location.", int(limit), r.subscription, now.Location)
	}
	if len(given) == 0 {
		return badParameter("agentPoolProfiles", "Required parameter agentPoolProfiles is missing (null).")
	}
	if !now.Top.has("identity") && !p.has("servicePrincipalProfile.clientId") {
		return badParameter("servicePrincipalProfile", "Required parameter servicePrincipalProfile is missing (null): a cluster needs an identity or a service principal.")
	}
	prefix := p.str("dnsPrefix")
	if prefix == "" && p.str("fqdnSubdomain") == "" {
		return badParameter("dnsPrefix", "Required parameter dnsPrefix is missing (null).")
	}
	if prefix != "" && !dnsPrefix.MatchString(prefix) {
		return badParameter("dnsPrefix", "The value of parameter dnsPrefix is invalid. Please see https://aka.ms/aks-naming-rules for more details.")
	}
	p.def("nodeResourceGroup", "MC_"+groupOf(now.ID)+"_"+now.Name+"_"+now.Location)
	group := p.str("nodeResourceGroup")
	if len(group) > 80 {
		return badParameter("nodeResourceGroup", "The length of the node resource group name is too long. The maximum length is 80 and the length of the value provided is %d. Please see https://aka.ms/aks-naming-rules for more details.", len(group))
	}
	if c.find(nodeGroup(now)) != nil {
		return refuseCluster(http.StatusBadRequest, "NodeResourceGroupAlreadyExists", "nodeResourceGroup", "The node resource group %s already exists. A cluster makes a resource group of its own.", group)
	}
	return nil
}

// putProfiles makes the pools that a cluster's body names, or changes those that there are. A pool that the body leaves out stays;
// one can be added only by itself. It says whether a pool is to have another number of nodes.
func (c *Cloud) putProfiles(r *request, cluster, old *Resource, given []doc) (scaled bool, err error) {
	system, seen := false, map[string]bool{}
	for i, profile := range given {
		name := profile.str("name")
		if !poolName.pattern.MatchString(name) {
			return false, badParameter("agentPoolProfile.name", "%s", poolName.text)
		}
		if seen[name] {
			return false, badParameter("agentPoolProfile.name", "Agent pool name %s is used more than once.", name)
		}
		seen[name] = true
		id := cluster.ID + "/agentPools/" + name
		was := c.find(id)
		if was == nil && old != nil {
			return false, refuseCluster(http.StatusBadRequest, "BadRequest", "agentPoolProfiles", "A new agent pool was introduced. Adding agent pools to an existing cluster is not allowed through managed cluster operations. For agent pool specific change, please use per agent pool operations: https://aka.ms/agent-pool-rest-api")
		}
		pool := &Resource{ID: id, Type: poolType, Name: name, Top: doc{}, Properties: profile.clone(), State: cluster.State, Etag: plainEtag(c),
			Created: c.World.Now().Add(time.Duration(i) * time.Millisecond), Changed: c.World.Now()} // listed in the order of the body
		delete(pool.Properties, "name")
		if was != nil {
			pool.ID, pool.Name, pool.Created = was.ID, was.Name, was.Created
			scaled = scaled || profile.has("count") && profile.num("count") != was.Properties.num("count")
		}
		r.nesting = true
		e := c.judgePool(r, pool, was, cluster)
		r.nesting = false
		if e != nil {
			return false, e
		}
		c.keep(pool)
	}
	for _, p := range c.poolsOf(cluster) {
		system = system || p.Properties.str("mode") == "System"
		if !seen[p.Name] { // the cluster's operation is at work on all of its pools
			same := p.clone()
			same.State = cluster.State
			c.keep(same)
		}
	}
	if !system {
		return false, refuseCluster(http.StatusBadRequest, "MustDefineAtLeastOneSystemPool", "", "Must define at least one system pool.")
	}
	return scaled, nil
}

// patchCluster changes the tags, which the node resource group and what is in it follow.
func (c *Cloud) patchCluster(r *request, cluster *Resource, body doc) (answer, error) {
	if err := c.clusterIdle(r, cluster.ID); err != nil {
		return answer{}, err
	}
	tags, err := tagsOf(body.sub("tags"))
	if err != nil {
		return answer{}, err
	}
	cluster.Tags, cluster.State = tags, stateUpdating
	c.touch(cluster)
	c.passTags(cluster)
	r.Make(cluster.ID)
	h := c.begin(r, cluster, "put", outcome{takes: clusterLimit, style: asyncHeader})
	c.clusterAfter(5*time.Second, cluster, c.pace(10*time.Second, 20*time.Second, "tags "+cluster.ID))
	return answer{status: http.StatusOK, header: h, body: c.render(r, cluster)}, nil
}

// passTags gives the tags of a cluster to its node resource group and to what AKS keeps in it, machines apart ("Use Azure tags in
// AKS").
func (c *Cloud) passTags(cluster *Resource) {
	group := c.find(nodeGroup(cluster))
	if group == nil {
		return
	}
	group.Tags = maps.Clone(cluster.Tags)
	c.touch(group)
	for _, in := range c.inside(group.ID) {
		if !c.kindOf(in.Type).tracked || c.kindOf(in.Type).service == computeService {
			continue
		}
		tags := maps.Clone(cluster.Tags)
		for k, v := range in.Tags {
			if strings.HasPrefix(k, "k8s-azure-") || strings.HasPrefix(k, "kubernetes.io-") {
				if tags == nil {
					tags = map[string]string{}
				}
				tags[k] = v
			}
		}
		in.Tags = tags
		c.touch(in)
	}
}

// removeCluster begins to delete a cluster, whatever is under way; deleting again goes on with the delete that there is.
func (c *Cloud) removeCluster(_ *request, cluster *Resource) (outcome, error) {
	out := outcome{status: http.StatusAccepted, state: stateDeleting, takes: c.pace(210*time.Second, 270*time.Second, "delete "+cluster.ID), style: asyncLocation, empty: true}
	s := c.shelves[clusterService]
	for _, res := range append(c.poolsOf(cluster), cluster) {
		op := s.state.Operations[res.Operation]
		if op == nil {
			continue
		}
		if op.Verb == "delete" && res == cluster {
			out.takes = max(time.Second, op.Ends.Sub(c.World.Now()))
		}
		preempt(op)
		res.Operation = ""
	}
	for _, p := range c.poolsOf(cluster) {
		p.State = stateDeleting
	}
	return out, nil
}

// preempt ends an operation that another one takes over from: it ends well, and says that it was not the last one.
func preempt(op *Operation) {
	op.Status = statusSucceeded
	op.Error = refuse(0, "NotLatestOperation", "The operation has been preempted by another one. Please wait for the other operation to complete and try again..")
}

// clusterGoes keeps a cluster whose node resource group is locked: its delete fails then.
func (c *Cloud) clusterGoes(op *Operation, cluster *Resource) bool {
	group := nodeGroup(cluster)
	for _, l := range c.shelves["locks"].sorted() {
		if at := key(scopeOf(l.ID)); at == key(group) || strings.HasPrefix(at, key(group)+"/") {
			op.Status, cluster.State = statusFailed, stateFailed
			op.Error = refuse(http.StatusConflict, "DeleteResourceGroupError", "The scope '%s' cannot perform delete operation because following scope(s) are locked: '%s'. Please remove the lock and try again.", group, scopeOf(l.ID))
			c.touch(cluster)
			return false
		}
	}
	return true
}

// clusterRemoved takes the node resource group along, with everything that is in it.
func (c *Cloud) clusterRemoved(cluster *Resource) {
	if group := c.find(nodeGroup(cluster)); group != nil && strings.EqualFold(group.Top.str("managedBy"), cluster.ID) {
		c.drop(group)
	}
}

// clusterSettled ends what was at work on the pools together with the cluster, and says how its power is.
func (c *Cloud) clusterSettled(op *Operation, cluster *Resource) {
	power := "Running"
	if op.Verb == "stop" {
		power = "Stopped"
	}
	cluster.Properties["powerState"] = map[string]any{"code": power}
	for _, p := range c.poolsOf(cluster) {
		p.State = stateSucceeded
		p.Properties["powerState"] = map[string]any{"code": power}
		c.touch(p)
	}
	if op.Verb == "put" {
		c.complete(cluster)
	}
}

// complete makes what a cluster whose operation was ended from outside has not got yet; its machines come up by themselves. What cannot be
// made is found out by the next operation.
func (c *Cloud) complete(cluster *Resource) {
	if c.everStarted(cluster) || c.ensureNodeGroup(cluster) != nil {
		return
	}
	for _, p := range c.poolsOf(cluster) {
		if _, e := c.ensureSet(cluster, p); e != nil {
			p.State = stateFailed
		}
	}
}

// poolSettled is complete for a pool.
func (c *Cloud) poolSettled(op *Operation, pool *Resource) {
	cluster := c.clusterOf(pool)
	if op.Verb != "put" || c.find(c.setID(cluster, pool)) != nil {
		return
	}
	if _, e := c.ensureSet(cluster, pool); e != nil {
		pool.State = stateFailed
	}
}

// driveCluster lets pools fail together with their cluster; the rest is left to the core.
func (c *Cloud) driveCluster(res *Resource, state, _, _ string) (bool, error) {
	if res.Type != clusterType {
		return false, nil
	}
	switch state {
	case "Stopped", "Running":
		res.Properties["powerState"] = map[string]any{"code": state}
		c.touch(res)
		return true, nil
	case "", stateFailed, "Canceled":
		for _, p := range c.poolsOf(res) {
			if p.State != stateSucceeded && !p.busy() {
				p.State = stateFailed
				c.touch(p)
			}
		}
	}
	return false, nil
}

// showCluster writes a cluster as the provider does: group and type in a spelling of its own, with its pools in it.
func (c *Cloud) showCluster(r *request, cluster *Resource, body doc) {
	body["id"], body["type"] = lowerGroup(cluster.ID), "Microsoft.ContainerService/ManagedClusters"
	if r.version >= etagSince && cluster.State != stateCreating {
		body["eTag"] = cluster.Etag
	}
	profiles := []any{}
	for _, p := range c.poolsOf(cluster) {
		one := p.Properties.clone()
		one["name"], one["provisioningState"] = p.Name, p.State
		c.trimPool(r, p, one)
		profiles = append(profiles, map[string]any(one))
	}
	props := body.sub("properties")
	props["agentPoolProfiles"] = profiles
	if len(props.sub("addonProfiles")) == 0 {
		delete(props, "addonProfiles")
	}
	if r.version < etagSince {
		for _, name := range []string{"metricsProfile", "nodeProvisioningProfile", "bootstrapProfile"} {
			delete(props, name)
		}
	}
}
