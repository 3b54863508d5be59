package sim

import (
	"context"
	"net/netip"
)

// Kubernetes gives simulated clusters an API server that is real: one process a
// cluster, or one for all of them. The package sim/kube implements it; a cloud
// that has none serves its own API all the same, and its clusters' endpoints
// answer every request with 503 and how to get a real one.
//
// None of its methods is called with the world locked.
type Kubernetes interface {
	// Open makes a cluster's endpoint answer, and returns at once: the API
	// server behind it may take seconds to be ready. Opening one that is open
	// changes what it lets in and how it authenticates.
	Open(c KubeCluster) KubeEndpoint

	// SetNodes makes the cluster's Node objects just these.
	SetNodes(clusterID string, nodes []KubeNode)

	// Close ends a cluster: its endpoint refuses connections, and what was in
	// it is gone.
	Close(clusterID string)

	// CA signs every endpoint's certificate, PEM.
	CA() []byte
}

// A KubeCluster is what a cloud says of one of its clusters.
type KubeCluster struct {
	ID      string // unique in the world: ARN, self link, resource ID
	Version string // such as 1.36; what /version answers is the real server's own

	// Admits reports whether a connection from a caller gets through: a private
	// endpoint lets in those inside the network alone, a public one those in its
	// authorised ranges. One that is not admitted is closed without a word.
	Admits func(from KubeCaller) bool

	// Authenticate says who the bearer of a token is; ok false is 401. The real
	// server's RBAC decides what that user may do.
	Authenticate func(token string) (user KubeUser, ok bool)

	// The cloud controller: what the cluster makes outside itself, in the cloud
	// account. Nil: none.
	Cloud KubeCloud

	// Objects are what the cloud itself puts into its clusters, such as their
	// storage classes. What is there already stays as it is.
	Objects []KubeObject
}

// A KubeObject is an object to be created.
type KubeObject struct {
	Path string // of its collection: /apis/storage.k8s.io/v1/storageclasses
	JSON []byte // the object, apiVersion and kind with it
}

// A KubeUser is an authenticated caller.
type KubeUser struct {
	Name   string
	Groups []string // system:masters is the cluster's administrator
}

// A KubeCaller is where a connection comes from, as the simulated internet sees it.
type KubeCaller struct {
	IP     netip.Addr // the caller's public address; 203.0.113.7 by default
	Inside bool       // it stands in the cluster's own network
}

// A KubeEndpoint is where a cluster answers.
type KubeEndpoint struct {
	Address string // host:port on loopback, TLS
	CA      []byte // PEM
}

// A KubeNode is one node of a cluster.
type KubeNode struct {
	Name   string // as kubelet registers it
	Zone   string
	Arch   string // amd64 or arm64
	Type   string // the cloud's machine type
	Region string
	Labels map[string]string
	Taints []KubeTaint
	// ProviderID is the cloud's ID of the machine, as Node.spec.providerID has it.
	ProviderID string

	CPUs      int    // 4 if none are given
	MemoryMiB int    // 16384 if none are given
	Pods      int    // how many it may hold; 110 if it is not said
	Kubelet   string // its version, such as v1.36.3-eks-3f8a2c1; the server's own if it is not said
	IP        string // its internal address; one is made up if it is not said
	NotReady  bool   // its kubelet says that it is not ready
}

// A KubeTaint is a taint of a node.
type KubeTaint struct{ Key, Value, Effect string }

// KubeCloud is the part of a cluster's cloud controllers that makes billable
// things: load balancers of Services and disks of PersistentVolumeClaims. Its
// methods are called without the world's lock, and more than once for one object.
type KubeCloud interface {
	// EnsureLoadBalancer makes the load balancer of a Service of type
	// LoadBalancer, and says where it answers; both empty: not yet.
	EnsureLoadBalancer(ctx context.Context, s KubeService) (hostname, ip string, err error)
	// DeleteLoadBalancer removes it; done false: it goes on, ask again. The
	// Service keeps its finalizer until then.
	DeleteLoadBalancer(ctx context.Context, s KubeService) (done bool, err error)
	// EnsureDisk makes the disk of a claim, and says its handle.
	EnsureDisk(ctx context.Context, v KubeVolume) (handle string, err error)
	// DeleteDisk removes it.
	DeleteDisk(ctx context.Context, v KubeVolume) (done bool, err error)
}

// A KubeService is a Service of type LoadBalancer.
type KubeService struct {
	Namespace, Name, UID string
	Class                string // its spec.loadBalancerClass; a controller leaves other controllers' classes alone
	Annotations          map[string]string
	Ports                []int
}

// A KubeVolume is a PersistentVolumeClaim that wants a disk.
type KubeVolume struct {
	Namespace, Name, UID string // of the claim
	Handle               string // of its disk, once it has one
	GiB                  int
	Zone                 string            // of the node that is to use it; empty if none was chosen
	Provisioner          string            // such as ebs.csi.aws.com
	StorageClass         map[string]string // the class's parameters
}
