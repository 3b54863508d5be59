package gcp

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

// container is the simulated Google Kubernetes Engine: clusters and their node pools. What GKE makes of them in the project,
// groups of instances, firewall rules, an address of the control plane, is made in the simulated Compute Engine; the API server
// behind a cluster is that of [sim.Kubernetes].
type container struct {
	cloud   *Cloud
	st      containerState
	actions map[string]clusterAction

	kube kubeSide
	// authority is the certificate of clusters without an API server.
	authority func() []byte
}

type containerState struct {
	Seq        int
	Clusters   map[string]*cluster          // by path: projects/p/locations/l/clusters/c
	Operations map[string]*clusterOperation // by path
}

// A cluster is one of GKE's.
type cluster struct {
	Path    string
	Created time.Time
	Seq     int
	// Doc is the cluster as GET answers it, but for what follows from something else: node pools, endpoints, conditions.
	Doc   Doc
	Pools []*nodePool // as they were made
	// Busy is the path of the operation that changes the cluster or one of its pools.
	Busy string
	// Hash is in the names of all that is made for the cluster.
	Hash string
	// PodRange is the secondary range of the subnetwork that was made for the cluster; empty: it was there before.
	PodRange string
	// Made are the paths of what was made for the cluster as a whole, in Compute Engine.
	Made []string
	// Fault is why the cluster is in ERROR or DEGRADED: code and message of a condition.
	Fault, FaultText string
}

// A nodePool is a group of nodes of a cluster.
type nodePool struct {
	Name    string
	Created time.Time
	Doc     Doc
	Hash    string
	Size    int // nodes a zone
	// Groups are the paths of its managed instance groups, one a zone; Templates those of their templates.
	Groups, Templates []string
	Fault, FaultText  string
}

func (c *cluster) project() string  { return segmentAfter(c.Path, "projects") }
func (c *cluster) location() string { return segmentAfter(c.Path, "locations") }
func (c *cluster) name() string     { return lastPart(c.Path) }

func (c *cluster) region() string { return regionOfLocation(c.location()) }

// regionOfLocation is the region of a location, which is a region or a zone.
func regionOfLocation(location string) string {
	if zoneExists(location) {
		return regionOf(location)
	}
	return location
}

func (c *cluster) pool(name string) *nodePool {
	for _, p := range c.Pools {
		if p.Name == name {
			return p
		}
	}
	return nil
}

func (c *cluster) status() string { return str(c.Doc, "status") }

// Quotas of GKE ("Quotas and limits", GKE).
const (
	maxClusters  = 100 // a zone or region
	maxNodePools = 200 // a cluster
)

func newContainer(c *Cloud) *container {
	s := &container{cloud: c, authority: sync.OnceValue(newAuthority)}
	c.World.DefineQuota(sim.Quota{Cloud: cloudName, Service: "container", Code: "clusters-per-location", Name: "Clusters per location", Default: maxClusters, Unit: "Count", Adjustable: true})
	s.addActions()
	c.World.Register(s)
	const clusters, pools, operations = "projects.locations.clusters.", "projects.locations.clusters.nodePools.", "projects.locations.operations."
	ops := map[string]operation{
		"projects.locations.getServerConfig": s.serverConfig,
		clusters + "create":                  s.createCluster, clusters + "get": s.getCluster, clusters + "list": s.listClusters, clusters + "delete": s.deleteCluster,
		pools + "create": s.createPool, pools + "get": s.getPool, pools + "list": s.listPools, pools + "delete": s.deletePool,
		operations + "get": s.getOperation, operations + "list": s.listOperations, operations + "cancel": s.cancelOperation,
	}
	s.updateMethods(ops)
	c.add("container/v1", &api{service: "container", listErrors: true, denied: containerDenied, ops: ops, claims: func(path string) bool {
		return !strings.Contains(path, "/operations/") || strings.Contains(path, "/operations/operation-") && operationMark(path) == ""
	}})
	c.hooks.subnetRangeUser = s.subnetRangeUser
	c.hooks.instanceChanged = append(c.hooks.instanceChanged, s.instanceChanged)
	return s
}

// containerDenied names the permission that is missing ("GKE IAM policies: permissions").
func containerDenied(r *request, project string) *Error {
	parts := strings.Split(r.method.ID, ".")
	verb := parts[len(parts)-1]
	if strings.HasPrefix(verb, "set") {
		verb = "update"
	}
	return refuse(403, "forbidden", "Required \"container.%s.%s\" permission(s) for \"projects/%s\".", parts[min(2, len(parts)-2)], verb, project)
}

func (s *container) Cloud() string { return cloudName }
func (s *container) Name() string  { return "container" }
func (s *container) State() any    { return &s.st }

// Reset starts afresh.
func (s *container) Reset() {
	s.st = containerState{Clusters: map[string]*cluster{}, Operations: map[string]*clusterOperation{}}
	s.syncKube()
}

// Event carries on with an operation.
func (s *container) Event(kind, key string) {
	op := s.st.Operations[key]
	switch {
	case kind == "forget":
		delete(s.st.Operations, key)
	case op == nil || op.Held || op.Status == opDone:
	case kind == "begin":
		s.begin(op)
	case kind == "done":
		s.complete(op)
	}
}

// inOrder lists clusters as they were made; project and location may be empty or, of the location, a dash.
func (s *container) inOrder(project, location string) []*cluster {
	var out []*cluster
	for _, c := range s.st.Clusters {
		if (project == "" || c.project() == project) && (location == "" || location == "-" || c.location() == location) {
			out = append(out, c)
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Seq < out[j].Seq })
	return out
}

// Objects lists clusters, their node pools, and operations that run.
func (s *container) Objects() []sim.Object {
	var out []sim.Object
	for _, c := range s.inOrder("", "") {
		parents := []string{s.networkPath(c), s.subnetPath(c)}
		out = append(out, sim.Object{Account: c.project(), Region: c.region(), Kind: "cluster", ID: c.Path, ARN: containerLink(c.Path), Name: c.name(), State: c.status(),
			Tags: resourceLabels(c.Doc), Description: str(c.Doc, "description"), Parents: parents, Data: &c.Doc})
		for _, p := range c.Pools {
			path := c.Path + "/nodePools/" + p.Name
			out = append(out, sim.Object{Account: c.project(), Region: c.region(), Kind: "node-pool", ID: path, ARN: containerLink(path), Name: p.Name, State: str(p.Doc, "status"),
				Tags: resourceLabels(sub(p.Doc, "config")), Parents: []string{c.Path}, Data: &p.Doc})
		}
	}
	for _, path := range keysOf(s.st.Operations) {
		op := s.st.Operations[path]
		out = append(out, sim.Object{Account: op.Project, Region: regionOfLocation(op.Location), Kind: "operation", ID: path, Name: op.Name, State: op.Status, Parents: []string{op.Target},
			Default: true, Gone: op.Status == opDone, Data: op})
	}
	return out
}

// resourceLabels are the labels of a cluster or of a node pool's configuration.
func resourceLabels(d Doc) map[string]string {
	return labelsOf(Doc{"labels": d["resourceLabels"]})
}

// clusterStates and poolStates are those that an object can be driven to from outside.
var (
	clusterStates = []string{"PROVISIONING", "RUNNING", "RECONCILING", "STOPPING", "ERROR", "DEGRADED"}
	poolStates    = []string{"PROVISIONING", "RUNNING", "RUNNING_WITH_ERROR", "RECONCILING", "STOPPING", "ERROR"}
)

// SetState drives an operation, a cluster or a node pool. A cluster that is driven to RECONCILING is being upgraded by GKE: until
// it is driven to RUNNING, or the upgrade ends, other changes are refused.
func (s *container) SetState(id, state, code, message string) error {
	if op := s.st.Operations[id]; op != nil {
		return s.drive(op, state, code, message)
	}
	path, pool, isPool := strings.Cut(id, "/nodePools/")
	c := s.st.Clusters[path]
	if c == nil || isPool && c.pool(pool) == nil {
		return fmt.Errorf("no object %s", id)
	}
	if state == "" {
		state = "ERROR"
	}
	if isPool {
		if !slices.Contains(poolStates, state) {
			return fmt.Errorf("a node pool is one of %s, not %q", strings.Join(poolStates, ", "), state)
		}
		p := c.pool(pool)
		p.Doc["status"], p.Fault, p.FaultText = state, "", ""
		if strings.Contains(state, "ERROR") {
			p.Fault, p.FaultText = orText(code, "UNKNOWN"), message
		}
		return nil
	}
	if !slices.Contains(clusterStates, state) {
		return fmt.Errorf("a cluster is one of %s, not %q", strings.Join(clusterStates, ", "), state)
	}
	return s.driveCluster(c, state, code, message)
}

func (s *container) driveCluster(c *cluster, state, code, message string) error {
	op := s.st.Operations[c.Busy]
	switch {
	case state == "RECONCILING" && op == nil:
		s.startOperation(operationStart{Type: "UPGRADE_MASTER", Action: "upgrade", Cluster: c, Target: c.Path, Begun: s.cloud.World.Now()})
	case state == "RUNNING" && op != nil && op.Action == "upgrade":
		s.complete(op)
	}
	c.Doc["status"], c.Fault, c.FaultText = state, "", ""
	if state == "ERROR" || state == "DEGRADED" {
		c.Fault, c.FaultText = orText(code, "UNKNOWN"), message
	}
	return nil
}

// Remove takes a cluster or a node pool away, with all that GKE made for it.
func (s *container) Remove(id string) error {
	path, pool, isPool := strings.Cut(id, "/nodePools/")
	c := s.st.Clusters[path]
	switch {
	case s.st.Operations[id] != nil:
		delete(s.st.Operations, id)
	case c == nil || isPool && c.pool(pool) == nil:
		return fmt.Errorf("no object %s", id)
	case isPool:
		s.dropPool(c, c.pool(pool))
	default:
		s.dropCluster(c)
	}
	return nil
}
