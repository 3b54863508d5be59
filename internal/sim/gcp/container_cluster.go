package gcp

import (
	"regexp"
	"slices"
	"strings"

	"github.com/zopday/provisioner/internal/sim"
)

// clusterName is what a cluster may be called ("REST Resource: projects.locations.clusters": name, up to 40 characters); node
// pools likewise.
var clusterName = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$`)

// containerInvalid is how GKE refuses a value; each refusal names the request.
func (s *container) containerInvalid(format string, args ...any) *Error {
	e := refuse(400, "badRequest", format, args...)
	e.Details = []any{s.requestInfo()}
	return e
}

func (s *container) requestInfo() Doc {
	return Doc{"@type": "type.googleapis.com/google.rpc.RequestInfo", "requestId": "0x" + s.cloud.World.Hex("", 16)}
}

// path is a path with the project's ID, and with locations whatever the caller calls them.
func (s *container) path(r *request, path string) string {
	given := segmentAfter(path, "projects")
	return "projects/" + r.Project.ID + strings.TrimPrefix(path, "projects/"+given)
}

// createCluster begins a cluster. What of the request can be seen to be wrong is refused at once; everything else shows when the
// operation ends, and leaves the cluster in ERROR.
func (s *container) createCluster(r *request) (any, error) {
	parent, in := s.path(r, r.Path["parent"]), sub(r.Body, "cluster")
	if in == nil {
		return nil, s.containerInvalid("Cluster must be specified.")
	}
	location, name := segmentAfter(parent, "locations"), str(in, "name")
	if !regionExists(location) && !zoneExists(location) {
		return nil, s.containerInvalid("Location %q does not exist.", location)
	}
	if !clusterName.MatchString(name) {
		return nil, s.containerInvalid("Invalid value for field \"cluster.name\": %q. Must be a match of regex '(?:[a-z](?:[-a-z0-9]{0,38}[a-z0-9])?)'.", name)
	}
	path := parent + "/clusters/" + name
	if s.st.Clusters[path] != nil {
		return nil, refuse(409, "alreadyExists", "Already exists: %s.", zonal(path))
	}
	if limit := s.cloud.quota("container", "clusters-per-location", r.Project.ID, regionOfLocation(location)); float64(len(s.inOrder(r.Project.ID, location))) >= limit {
		return nil, refuse(403, "quotaExceeded", "Quota exceeded: the project has reached its limit of %.0f clusters in the location %q.", limit, location)
	}
	c := &cluster{Path: path, Created: s.cloud.World.Now(), Doc: clone(in)}
	if err := s.prepareCluster(r, c); err != nil {
		return nil, err
	}
	s.st.Seq++
	c.Seq, c.Hash = s.st.Seq, s.cloud.World.Hex("", 8)
	s.st.Clusters[path] = c
	s.placePodRange(c)
	r.Touch(s.networkPath(c), s.subnetPath(c))
	return s.start(r, "CREATE_CLUSTER", "createCluster", c, c.Path, nil), nil
}

// prepareCluster checks a cluster and fills up what the caller left out.
func (s *container) prepareCluster(r *request, c *cluster) error {
	pools, err := s.poolsAsked(c)
	if err != nil {
		return err
	}
	for _, check := range []func(*request, *cluster) error{s.checkFeatures, s.settleNetwork, s.settleEndpoints, s.settleVersion, s.settleLocations, s.checkEncryption} {
		if err := check(r, c); err != nil {
			return err
		}
	}
	s.fillCluster(c)
	// Whatever a create says of the driver of persistent disks, it is on; only an update turns it off.
	sub(sub(c.Doc, "addonsConfig"), "gcePersistentDiskCsiDriverConfig")["enabled"] = true
	if err := s.settleRanges(c); err != nil {
		return err
	}
	for _, doc := range pools {
		p, err := s.preparePool(c, doc)
		if err != nil {
			return err
		}
		c.Pools = append(c.Pools, p)
	}
	return s.checkCapacity(c, c.Pools)
}

// poolsAsked are the node pools of a create: those that it lists, or the default pool.
func (s *container) poolsAsked(c *cluster) ([]Doc, error) {
	pools, count, config := docs(c.Doc, "nodePools"), num(c.Doc, "initialNodeCount"), c.Doc["nodeConfig"]
	for _, f := range []string{"nodePools", "nodeConfig", "initialNodeCount"} {
		delete(c.Doc, f)
	}
	if len(pools) > 0 {
		if count > 0 || config != nil {
			return nil, s.containerInvalid("Cluster.node_pools and Cluster.initial_node_count, Cluster.node_config may not be specified together.")
		}
		return pools, nil
	}
	if count <= 0 {
		return nil, s.containerInvalid("Cluster.initial_node_count must be greater than zero.")
	}
	c.Doc["initialNodeCount"] = count
	pool := Doc{"name": "default-pool", "initialNodeCount": count}
	if config != nil {
		pool["config"] = config
	}
	return []Doc{pool}, nil
}

// find finds the cluster that the request's path names.
func (s *container) find(r *request) (*cluster, error) {
	path, _, _ := strings.Cut(s.path(r, r.Path["name"]+r.Path["parent"]), "/nodePools")
	c := s.st.Clusters[path]
	if c == nil || (!r.Mutating && !s.visible(r, c, sim.ByID)) {
		return nil, refuse(404, "notFound", "Not found: %s.", zonal(path))
	}
	r.Touch(c.Path)
	return c, nil
}

func (s *container) visible(r *request, c *cluster, by sim.Lookup) bool {
	text := []string{"cluster", c.name()}
	for _, v := range resourceLabels(c.Doc) {
		text = append(text, v)
	}
	return r.HTTP == nil || s.cloud.World.Visible(r.Call, c.Path, c.Created, by, strings.Join(text, " "))
}

// change finds the cluster that the request is to change, unless something else changes it now: GKE carries out one change of a
// cluster at a time.
func (s *container) change(r *request) (*cluster, error) {
	c, err := s.find(r)
	if err != nil {
		return nil, err
	}
	if op := s.st.Operations[c.Busy]; op != nil {
		e := preconditionFailed("Cluster is running incompatible operation %s.", op.Name)
		e.Details = []any{s.requestInfo(), Doc{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "CLUSTER_ALREADY_HAS_OPERATION", "domain": "container.googleapis.com"}}
		return nil, e
	}
	return c, nil
}

// running refuses changes of a cluster that is not up.
func (s *container) running(c *cluster) error {
	if st := c.status(); st != "RUNNING" && st != "DEGRADED" && st != "RECONCILING" {
		e := preconditionFailed("The cluster %q is in the state %s: only clusters that run can be changed.", c.name(), st)
		e.Details = []any{s.requestInfo()}
		return e
	}
	return nil
}

func (s *container) getCluster(r *request) (any, error) {
	c, err := s.find(r)
	if err != nil {
		return nil, err
	}
	s.awaitEndpoints(r, c)
	return s.shown(c), nil
}

// listClusters lists the clusters of a location, or with a dash of all; GKE has no pages here.
func (s *container) listClusters(r *request) (any, error) {
	parent := s.path(r, r.Path["parent"])
	location := segmentAfter(parent, "locations")
	if location != "-" && !regionExists(location) && !zoneExists(location) {
		return nil, s.containerInvalid("Location %q does not exist.", location)
	}
	s.awaitEndpoints(r, s.inOrder(r.Project.ID, location)...)
	var items []any
	for _, c := range s.inOrder(r.Project.ID, location) {
		if s.visible(r, c, sim.ByList) {
			items = append(items, s.shown(c))
		}
	}
	out := Doc{}
	if len(items) > 0 {
		out["clusters"] = items
	}
	return out, nil
}

// deleteCluster begins the end of a cluster and of its nodes. What its controllers made for Services and claims stays.
func (s *container) deleteCluster(r *request) (any, error) {
	c, err := s.change(r)
	if err != nil {
		return nil, err
	}
	c.Doc["status"] = "STOPPING"
	for _, p := range c.Pools {
		p.Doc["status"] = "STOPPING"
	}
	return s.start(r, "DELETE_CLUSTER", "deleteCluster", c, c.Path, nil), nil
}

// addActions says what operations do.
func (s *container) addActions() {
	s.actions = map[string]clusterAction{
		"createCluster": {takes: clusterCreateTakes, begins: beginsAfter, begin: s.beginCluster, ready: s.clusterReady, done: s.clusterDone, failed: s.clusterFailed},
		"deleteCluster": {takes: clusterDeleteTakes, begins: beginsAfter, begin: s.beginDeletion, done: func(_ *clusterOperation, c *cluster) { s.dropCluster(c) }, failed: s.deletionFailed},
		"createPool":    {takes: poolCreateTakes, begins: labelsTake, begin: s.beginPool, ready: s.poolReady, done: s.poolDone, failed: s.poolFailed},
		"deletePool":    {takes: poolDeleteTakes, begins: labelsTake, begin: s.beginPoolDeletion, done: s.poolGone, failed: s.poolFailed},
		"update":        {takes: updateTakes, done: s.updated, failed: s.updateFailed},
		"labels":        {takes: labelsTake, done: s.updated},
		"resize":        {takes: updateTakes, begins: lookAgain, begin: s.beginResize, ready: s.poolReady, done: s.poolDone, failed: s.poolFailed},
		"updatePool":    {takes: poolCreateTakes, done: s.poolUpdated, failed: s.poolFailed},
		"upgrade":       {takes: upgradeTakes, done: s.upgraded},
	}
}

// beginCluster makes what a cluster needs in the project, and its node pools.
func (s *container) beginCluster(op *clusterOperation, c *cluster) *opFailure {
	if err := s.makeClusterParts(c); err != nil {
		return computeFailure(err)
	}
	c.Doc["currentMasterVersion"] = c.Doc["initialClusterVersion"]
	s.syncKube()
	for _, p := range c.Pools {
		if failure := s.makePoolParts(op, c, p); failure != nil {
			return failure
		}
	}
	return nil
}

func (s *container) clusterReady(op *clusterOperation, c *cluster) (bool, *opFailure) {
	if !s.endpointKnown(c) {
		return false, nil
	}
	for _, p := range c.Pools {
		if ready, failure := s.poolUp(op, p); failure != nil || !ready {
			return ready, failure
		}
	}
	return true, nil
}

func (s *container) clusterDone(_ *clusterOperation, c *cluster) {
	c.Doc["status"] = "RUNNING"
	for _, p := range c.Pools {
		p.Doc["status"] = "RUNNING"
	}
}

// clusterFailed leaves a cluster in ERROR; somebody has to delete it ("Operations", GKE: a failed create).
func (s *container) clusterFailed(op *clusterOperation, c *cluster) {
	c.Doc["status"], c.Fault, c.FaultText = "ERROR", op.Condition, str(op.Error, "message")
	for _, p := range c.Pools {
		p.Doc["status"] = "ERROR"
		if p.Fault == "" {
			p.Fault, p.FaultText = op.Condition, c.FaultText
		}
	}
}

func (s *container) beginDeletion(_ *clusterOperation, c *cluster) *opFailure {
	for _, p := range c.Pools {
		s.stopPool(p)
	}
	return nil
}

func (s *container) deletionFailed(op *clusterOperation, c *cluster) {
	c.Doc["status"], c.Fault, c.FaultText = "ERROR", op.Condition, str(op.Error, "message")
}

// dropCluster takes a cluster away with all that GKE made for it.
func (s *container) dropCluster(c *cluster) {
	for _, p := range slices.Clone(c.Pools) {
		s.dropPool(c, p)
	}
	s.dropClusterParts(c)
	delete(s.st.Clusters, c.Path)
	s.syncKube()
}
