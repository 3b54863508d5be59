package kube

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync"

	"github.com/zopday/provisioner/internal/sim"
)

// Options set up an instance.
type Options struct {
	// Binary is the path of the control plane's binary, see Binary. Without it there is no
	// Kubernetes, and every endpoint answers 503.
	Binary string
	// Shared runs one control plane for all clusters instead of one for each: less memory, but
	// what is not in a namespace, and namespaces of one name, the clusters have in common.
	Shared bool
	// Bare runs etcd and the API servers alone: what is created stays as it is, no pod runs and
	// nothing is collected.
	Bare bool
	// StateDir keeps what is in the clusters, and the certificate authority, beyond the life of
	// the instance; a cluster that is opened under the same ID finds it there. Empty: nothing is
	// kept.
	StateDir string
	// Caller is where connections come from until SetCaller says otherwise. The zero value
	// means 203.0.113.7, outside.
	Caller sim.KubeCaller
	// Log takes what went wrong; nil discards it.
	Log *slog.Logger
}

// Kube is an instance of [sim.Kubernetes]. It has to be ended with Shutdown.
type Kube struct {
	opt   Options
	ca    *authority
	books books

	mu       sync.Mutex
	clusters map[string]*cluster
	shared   *backend // of all clusters, with Options.Shared
	caller   sim.KubeCaller
	down     bool
	ending   sync.WaitGroup
}

var _ sim.Kubernetes = (*Kube)(nil)

// New makes an instance. It starts nothing before a cluster is opened.
func New(o Options) (*Kube, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if !o.Caller.IP.IsValid() {
		o.Caller.IP = netip.MustParseAddr("203.0.113.7")
	}
	ca, err := newAuthority(o.StateDir)
	if err != nil {
		return nil, fmt.Errorf("simulated Kubernetes: %w", err)
	}
	return &Kube{opt: o, ca: ca, clusters: map[string]*cluster{}, caller: o.Caller}, nil
}

// CA signs every endpoint's certificate.
func (k *Kube) CA() []byte { return k.ca.pem }

// Open makes a cluster's endpoint answer. The requests that come before its API server is ready
// wait for it.
func (k *Kube) Open(spec sim.KubeCluster) sim.KubeEndpoint {
	k.mu.Lock()
	defer k.mu.Unlock()
	if c := k.clusters[spec.ID]; c != nil {
		c.reopen(spec)
		return sim.KubeEndpoint{Address: c.front.address(), CA: k.ca.pem}
	}
	// An address where nobody listens: what a cluster has whose endpoint could not be made.
	dead := sim.KubeEndpoint{Address: "127.0.0.1:0", CA: k.ca.pem}
	if k.down {
		return dead
	}
	c, err := k.open(spec)
	if err != nil {
		k.opt.Log.Error("simulated Kubernetes: open", "cluster", spec.ID, "error", err)
		return dead
	}
	k.clusters[spec.ID] = c
	return sim.KubeEndpoint{Address: c.front.address(), CA: k.ca.pem}
}

func (k *Kube) open(spec sim.KubeCluster) (*cluster, error) {
	c := newCluster(k, spec)
	switch {
	case k.opt.Binary == "":
	case !k.opt.Shared:
		c.backend = newBackend(k, c.key)
	default:
		if k.shared == nil {
			k.shared = newBackend(k, "shared")
		}
		c.backend = k.shared
	}
	if c.backend != nil {
		c.backend.join(c)
	}
	var err error
	if c.front, err = newFront(c); err != nil {
		c.leave()
		return nil, err
	}
	go c.furnish()
	return c, nil
}

// SetNodes makes the cluster's Node objects just these, soon.
func (k *Kube) SetNodes(clusterID string, nodes []sim.KubeNode) {
	if c := k.cluster(clusterID); c != nil {
		c.setNodes(nodes)
	}
}

// Close ends a cluster. Its endpoint refuses connections at once; its control plane ends in the
// background. The load balancers and disks that were made for it stay with the cloud, as they do
// at the real ones.
func (k *Kube) Close(clusterID string) {
	k.mu.Lock()
	c := k.clusters[clusterID]
	delete(k.clusters, clusterID)
	k.mu.Unlock()
	if c == nil {
		return
	}
	c.front.close()
	k.ending.Go(c.leave)
}

// Reset closes every cluster, and waits until what was in them is gone.
func (k *Kube) Reset() {
	k.mu.Lock()
	clusters := k.clusters
	k.clusters = map[string]*cluster{}
	k.mu.Unlock()
	var all sync.WaitGroup
	for _, c := range clusters {
		c.front.close()
		all.Go(c.leave)
	}
	all.Wait()
}

// Shutdown closes every endpoint and ends every process, and waits for their ends. What Options.StateDir
// keeps is kept.
func (k *Kube) Shutdown() {
	k.mu.Lock()
	clusters, shared := k.clusters, k.shared
	k.clusters, k.shared, k.down = map[string]*cluster{}, nil, true
	k.mu.Unlock()
	for _, c := range clusters {
		c.front.close()
		c.end()
		if c.backend != nil && c.backend != shared {
			k.ending.Go(c.backend.end)
		}
	}
	if shared != nil {
		k.ending.Go(shared.end)
	}
	k.ending.Wait()
}

// SetCaller says where every connection comes from, open ones too: those that are not let in from
// there are closed.
func (k *Kube) SetCaller(caller sim.KubeCaller) {
	k.mu.Lock()
	k.caller = caller
	clusters := make([]*cluster, 0, len(k.clusters))
	for _, c := range k.clusters {
		clusters = append(clusters, c)
	}
	k.mu.Unlock()
	for _, c := range clusters {
		c.front.recheck()
	}
}

func (k *Kube) from() sim.KubeCaller {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.caller
}

func (k *Kube) cluster(id string) *cluster {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.clusters[id]
}

// Hold makes a cluster's endpoint take requests and not answer them, until it is let go on.
func (k *Kube) Hold(clusterID string, held bool) {
	if c := k.cluster(clusterID); c != nil {
		c.hold(held)
	}
}

// Stop kills a cluster's control plane. Connections to its endpoint are closed without an answer
// until Start. With Options.Shared it is every cluster's.
func (k *Kube) Stop(clusterID string) {
	if c := k.cluster(clusterID); c != nil && c.backend != nil {
		c.backend.stop()
		c.front.closeConns(func(sim.KubeCaller) bool { return false })
	}
}

// Start starts a stopped control plane again, with what was in it.
func (k *Kube) Start(clusterID string) {
	if c := k.cluster(clusterID); c != nil && c.backend != nil {
		c.backend.start()
	}
}

// dirOf is the folder of a control plane, and whether it is kept.
func (k *Kube) dirOf(name string) (dir string, keep bool, err error) {
	if k.opt.StateDir != "" {
		dir = filepath.Join(k.opt.StateDir, name)
		return dir, true, os.MkdirAll(dir, 0o700)
	}
	dir, err = os.MkdirTemp("", "kube-sandbox-")
	return dir, false, err
}

// keyOf is a cluster's ID as a label's value and a folder's name.
func keyOf(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:])[:12]
}

var errStopped = errors.New("the API server is stopped")
