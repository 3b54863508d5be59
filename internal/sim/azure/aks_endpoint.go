package azure

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/zopday/provisioner/internal/sim"
)

// apiServers keeps the API servers of clusters as the clusters are: it opens, feeds and closes them outside of the world's lock, after
// whatever changed a cluster.
type apiServers struct {
	cloud *Cloud
	dirty atomic.Bool
	ready atomic.Bool // the cloud is set up

	mu   sync.Mutex // held while API servers are brought up to date
	open map[string]*apiServer

	endpoints sync.Map // of cluster ID to sim.KubeEndpoint; read with the world locked
}

// An apiServer is what has been said of a cluster's API server.
type apiServer struct {
	id, uid, version string
	nodes            []sim.KubeNode
}

func newAPIServers(c *Cloud) *apiServers {
	s := &apiServers{cloud: c, open: map[string]*apiServer{}}
	s.dirty.Store(true) // a world that is taken up again may have clusters
	return s
}

// changed notes that something that clusters consist of is not what it was. The world is locked.
func (s *apiServers) changed(typ string) {
	switch typ {
	case clusterType, poolType, setType, instanceType:
		s.dirty.Store(true)
	}
}

// forget lets the API servers of a world that has been emptied be closed. The world is locked.
func (s *apiServers) forget() {
	s.dirty.Store(true)
	if s.ready.Load() {
		s.soon()
	}
}

// endpoint is where the API server of a cluster answers.
func (s *apiServers) endpoint(id string) (sim.KubeEndpoint, bool) {
	v, ok := s.endpoints.Load(key(id))
	e, is := v.(sim.KubeEndpoint)
	return e, ok && is
}

// sync brings the API servers up to date. The world must not be locked.
func (s *apiServers) sync() {
	if s.cloud.opt.Kubernetes == nil || !s.dirty.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.dirty.Swap(false) {
		s.update(s.wanted())
	}
}

// soon is sync in the background, for callers in the middle of something.
func (s *apiServers) soon() {
	if s.dirty.Load() {
		go s.sync()
	}
}

// A wantedServer is what the API server of a cluster is to be.
type wantedServer struct {
	id, uid, version string // uid differs between clusters of one ID
	nodes            []sim.KubeNode
}

// wanted lists the clusters that there are.
func (s *apiServers) wanted() map[string]wantedServer {
	c := s.cloud
	c.World.Lock()
	defer c.World.Unlock()
	out := map[string]wantedServer{}
	for _, res := range c.shelves[clusterService].sorted() {
		if res.Type == clusterType {
			out[key(res.ID)] = wantedServer{id: res.ID, uid: res.Properties.str("resourceUID"), version: res.Properties.str("currentKubernetesVersion"), nodes: c.kubeNodes(res)}
		}
	}
	return out
}

func (s *apiServers) update(want map[string]wantedServer) {
	k := s.cloud.opt.Kubernetes
	for _, at := range slices.Sorted(maps.Keys(s.open)) {
		if w, ok := want[at]; !ok || w.uid != s.open[at].uid {
			k.Close(s.open[at].id)
			delete(s.open, at)
			s.endpoints.Delete(at)
		}
	}
	for _, at := range slices.Sorted(maps.Keys(want)) {
		w, has := want[at], s.open[at]
		if has == nil {
			has = &apiServer{id: w.id, uid: w.uid}
			s.open[at] = has
		}
		if has.version != w.version {
			has.version = w.version
			s.endpoints.Store(at, k.Open(s.describe(w)))
		}
		if !sameNodes(has.nodes, w.nodes) {
			k.SetNodes(has.id, w.nodes)
			has.nodes = w.nodes
		}
	}
}

func (s *apiServers) describe(w wantedServer) sim.KubeCluster {
	c := s.cloud
	return sim.KubeCluster{ID: w.id, Version: w.version, Cloud: &clusterCloud{cloud: c, id: w.id}, Objects: ownObjects(),
		Admits: func(from sim.KubeCaller) bool {
			defer s.soon()
			return c.letsIn(w.id, from)
		},
		Authenticate: func(token string) (sim.KubeUser, bool) {
			defer s.soon()
			return c.identifyAt(w.id, token)
		}}
}

func sameNodes(a, b []sim.KubeNode) bool {
	return slices.EqualFunc(a, b, func(x, y sim.KubeNode) bool {
		return x.Name == y.Name && x.ProviderID == y.ProviderID && x.Type == y.Type && x.IP == y.IP && x.Kubelet == y.Kubelet && x.Zone == y.Zone && maps.Equal(x.Labels, y.Labels) && slices.Equal(x.Taints, y.Taints)
	})
}

// clusterCloud is the cloud controller of a cluster: load balancers of Services and disks of claims, in the node resource group.
type clusterCloud struct {
	cloud *Cloud
	id    string
}

// within calls f with the world locked and the cluster at hand; it answers errGone if there is none.
func (k *clusterCloud) within(ctx context.Context, f func(cluster *Resource) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	defer k.cloud.servers.soon()
	k.cloud.World.Lock()
	defer k.cloud.World.Unlock()
	cluster := k.cloud.find(k.id)
	if cluster == nil {
		return errGone
	}
	return f(cluster)
}
