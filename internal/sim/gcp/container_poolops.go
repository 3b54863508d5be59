package gcp

import (
	"strings"
)

func (s *container) poolOf(op *clusterOperation, c *cluster) *nodePool {
	return c.pool(str(op.Args, "pool"))
}

// beginPool makes the groups of a new pool.
func (s *container) beginPool(op *clusterOperation, c *cluster) *opFailure {
	p := s.poolOf(op, c)
	if p == nil {
		return nil
	}
	return s.makePoolParts(op, c, p)
}

func (s *container) poolReady(op *clusterOperation, c *cluster) (bool, *opFailure) {
	p := s.poolOf(op, c)
	if p == nil {
		return true, nil
	}
	return s.poolUp(op, p)
}

func (s *container) poolDone(op *clusterOperation, c *cluster) {
	if p := s.poolOf(op, c); p != nil {
		p.Doc["status"], p.Fault, p.FaultText = "RUNNING", "", ""
	}
}

// poolFailed leaves a pool that could not be made in ERROR, and one that could not be changed running with an error.
func (s *container) poolFailed(op *clusterOperation, c *cluster) {
	p := s.poolOf(op, c)
	if p == nil {
		return
	}
	p.Doc["status"] = "RUNNING_WITH_ERROR"
	if op.Action == "createPool" || op.Action == "deletePool" {
		p.Doc["status"] = "ERROR"
	}
	p.Fault, p.FaultText = op.Condition, str(op.Error, "message")
}

func (s *container) beginPoolDeletion(op *clusterOperation, c *cluster) *opFailure {
	if p := s.poolOf(op, c); p != nil {
		s.stopPool(p)
	}
	return nil
}

func (s *container) poolGone(op *clusterOperation, c *cluster) {
	if p := s.poolOf(op, c); p != nil {
		s.dropPool(c, p)
	}
}

// poolChange finds the pool that a request is to change.
func (s *container) poolChange(r *request) (*cluster, *nodePool, error) {
	c, err := s.changing(r)
	if err != nil {
		return nil, nil, err
	}
	p, err := s.findPool(r, c)
	return c, p, err
}

func (s *container) poolOperation(r *request, c *cluster, p *nodePool, opType, action string, args Doc) Doc {
	if args == nil {
		args = Doc{}
	}
	args["pool"] = p.Name
	p.Doc["status"] = "RECONCILING"
	return s.start(r, opType, action, c, c.Path+"/nodePools/"+p.Name, args)
}

// setSize sets the number of nodes a zone.
func (s *container) setSize(r *request) (any, error) {
	c, p, err := s.poolChange(r)
	if err != nil {
		return nil, err
	}
	n := int(num(r.Body, "nodeCount"))
	if err := s.poolCount(float64(n)); err != nil {
		return nil, err
	}
	if more := n - p.Size; more > 0 {
		probe := &nodePool{Name: p.Name, Doc: p.Doc, Size: more}
		if err := s.checkCapacity(c, []*nodePool{probe}); err != nil {
			return nil, err
		}
	}
	return s.poolOperation(r, c, p, "SET_NODE_POOL_SIZE", "resize", Doc{"size": float64(n)}), nil
}

func (s *container) beginResize(op *clusterOperation, c *cluster) *opFailure {
	p := s.poolOf(op, c)
	if p == nil {
		return nil
	}
	if err := s.resize(c, p, int(num(op.Args, "size"))); err != nil {
		return computeFailure(err)
	}
	return nil
}

// resize gives the groups of a pool another size.
func (s *container) resize(c *cluster, p *nodePool, size int) error {
	if size == p.Size {
		return nil
	}
	p.Size = size
	if p.Doc["initialNodeCount"] = float64(size); size == 0 {
		delete(p.Doc, "initialNodeCount")
	}
	for _, path := range p.Groups {
		if err := s.invoke("instanceGroupManagers.resize", c, "", map[string]any{"zone": segmentAfter(path, "zones"), "instanceGroupManager": lastPart(path), "size": size}); err != nil {
			return err
		}
	}
	return nil
}

func (s *container) setAutoscaling(r *request) (any, error) {
	c, p, err := s.poolChange(r)
	if err != nil {
		return nil, err
	}
	return s.scale(r, c, p, c.Path+"/nodePools/"+p.Name, sub(r.Body, "autoscaling"))
}

// scalePool is setAutoscaling by an update of the cluster.
func (s *container) scalePool(r *request, c *cluster, name string, autoscaling Doc) (any, error) {
	p := c.pool(name)
	if p == nil && name == "" && len(c.Pools) == 1 {
		p = c.Pools[0]
	}
	if p == nil {
		return nil, refuse(404, "notFound", "Not found: node pool %q not found.", name)
	}
	return s.scale(r, c, p, c.Path, autoscaling)
}

func (s *container) scale(r *request, c *cluster, p *nodePool, target string, autoscaling Doc) (any, error) {
	probe := Doc{"autoscaling": clone(autoscaling), "initialNodeCount": p.Doc["initialNodeCount"]}
	if truth(autoscaling, "enabled") {
		delete(probe, "initialNodeCount") // the nodes that are there need not be within the limits
		least := num(autoscaling, "minNodeCount")
		probe["initialNodeCount"] = least
	}
	dropFalse(sub(probe, "autoscaling"))
	if err := s.poolScaling(c, probe); err != nil {
		return nil, err
	}
	p.Doc["status"] = "RECONCILING"
	return s.start(r, "UPDATE_CLUSTER", "updatePool", c, target, Doc{"pool": p.Name, "set": Doc{"autoscaling": probe["autoscaling"]}}), nil
}

func (s *container) setManagement(r *request) (any, error) {
	c, p, err := s.poolChange(r)
	if err != nil {
		return nil, err
	}
	d := Doc{"management": clone(sub(r.Body, "management"))}
	if err := s.poolManagement(c, d); err != nil {
		return nil, err
	}
	return s.poolOperation(r, c, p, "SET_NODE_POOL_MANAGEMENT", "updatePool", Doc{"set": d}), nil
}

// upgradePool changes the version of a pool's nodes.
func (s *container) upgradePool(r *request, c *cluster, name, version string) (any, error) {
	p := c.pool(name)
	if p == nil {
		return nil, refuse(404, "notFound", "Not found: node pool %q not found.", name)
	}
	d := Doc{"version": version}
	if err := s.poolVersion(c, d); err != nil {
		return nil, err
	}
	return s.poolOperation(r, c, p, "UPGRADE_NODES", "updatePool", Doc{"set": d}), nil
}

// wrapped are fields of an update of a pool that hold their values one level deeper.
var wrapped = map[string]string{"labels": "labels", "taints": "taints", "tags": "tags", "resourceLabels": "labels"}

// poolFields are the fields of an update that belong to the pool and not to its nodes' configuration.
var poolFields = map[string]string{"locations": "locations", "upgradeSettings": "upgradeSettings", "nodeVersion": "version", "nodeNetworkConfig": "networkConfig",
	"nodeDrainConfig": "nodeDrainConfig", "queuedProvisioning": "queuedProvisioning", "maintenancePolicy": "maintenancePolicy"}

// updatePool changes a pool's configuration ("Method: projects.locations.clusters.nodePools.update").
func (s *container) updatePool(r *request) (any, error) {
	c, p, err := s.poolChange(r)
	if err != nil {
		return nil, err
	}
	next := clone(p.Doc)
	config := subOf(next, "config")
	changed := false
	for _, k := range keysOf(r.Body) {
		v := r.Body[k]
		switch inner := wrapped[k]; {
		case strings.HasSuffix(k, "Id") || k == "name" || k == "zone" || k == "etag" || k == "image" || k == "imageProject":
			continue
		case inner != "":
			m, _ := v.(map[string]any)
			config[k] = m[inner]
		case poolFields[k] == "networkConfig":
			m, _ := v.(map[string]any)
			merge(subOf(next, "networkConfig"), m)
		case poolFields[k] != "":
			next[poolFields[k]] = v
		case k == "diskSizeGb":
			config[k] = float64(atoi(text(v)))
			delete(config, "bootDisk")
		default:
			config[k] = v
		}
		changed = true
	}
	if !changed {
		return nil, s.containerInvalid("Must specify a field to update.")
	}
	dropFalse(next)
	probe := &nodePool{Name: p.Name, Doc: next, Size: p.Size}
	for _, check := range []func(*cluster, Doc) error{s.poolVersion, s.poolPlace, s.fillPool} {
		if err := check(c, next); err != nil {
			return nil, err
		}
	}
	if err := s.poolConfig(c, probe, config); err != nil {
		return nil, err
	}
	return s.poolOperation(r, c, p, "UPGRADE_NODES", "updatePool", Doc{"set": next}), nil
}

// poolUpdated puts changed fields in place, and makes the groups fit the zones.
func (s *container) poolUpdated(op *clusterOperation, c *cluster) {
	p := s.poolOf(op, c)
	if p == nil {
		return
	}
	for k, v := range sub(op.Args, "set") {
		if p.Doc[k] = v; v == nil {
			delete(p.Doc, k)
		}
	}
	p.Doc["status"], p.Fault, p.FaultText = "RUNNING", "", ""
	if a := sub(p.Doc, "autoscaling"); truth(a, "enabled") && num(a, "maxNodeCount") > 0 {
		if err := s.resize(c, p, max(int(num(a, "minNodeCount")), min(p.Size, int(num(a, "maxNodeCount"))))); err != nil {
			p.Doc["status"], p.Fault, p.FaultText = "RUNNING_WITH_ERROR", "UNKNOWN", err.Error()
		}
	}
	have := map[string]bool{}
	for _, g := range p.Groups {
		have[segmentAfter(g, "zones")] = true
	}
	for _, z := range texts(p.Doc, "locations") {
		if !have[z] {
			if err := s.makeGroup(c, p, z); err != nil {
				p.Doc["status"], p.Fault, p.FaultText = "RUNNING_WITH_ERROR", "UNKNOWN", err.Error()
				return
			}
		}
	}
}
