package aws

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"maps"
	"math/big"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

// kubeBridge keeps the API servers behind the clusters as the clusters are. A sim.Kubernetes must not be called with the
// world locked, so the bridge looks at the clusters, acts unlocked, and notes the outcome.
type kubeBridge struct {
	service *eksService

	mu      sync.Mutex // one pass at a time; taken before the world's lock, never after it
	open    map[string]*openCluster
	pending atomic.Bool // a pass is about to begin
}

// openCluster is a cluster as its API server knows it.
type openCluster struct{ id, version, address, objects, nodes string }

// wantedCluster is a cluster that should have an API server.
type wantedCluster struct {
	arn, id, version, address string
	objects                   []sim.KubeObject
	nodes                     []sim.KubeNode
}

// kick brings the API servers in line in the background: something has changed without a request to EKS, such as nodes that
// came or went. It may be called with the world locked.
func (b *kubeBridge) kick() {
	if b.service.cloud.opt.Kubernetes != nil && b.pending.CompareAndSwap(false, true) {
		go func() {
			b.pending.Store(false)
			b.sync()
		}()
	}
}

// sync brings the API servers in line with the clusters. The world must not be locked.
func (b *kubeBridge) sync() {
	kube := b.service.cloud.opt.Kubernetes
	if kube == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open == nil {
		b.open = map[string]*openCluster{}
	}
	want := map[string]bool{}
	for _, w := range b.wanted() {
		want[w.arn] = true
		b.adjust(kube, w)
	}
	for arn := range b.open {
		if !want[arn] {
			kube.Close(arn)
			delete(b.open, arn)
		}
	}
}

// wanted lists the clusters that should have an API server, with their nodes.
func (b *kubeBridge) wanted() []wantedCluster {
	s := b.service
	s.cloud.World.Lock()
	defer s.cloud.World.Unlock()
	var out []wantedCluster
	for _, k := range s.clusters() {
		if k.Status == "FAILED" {
			continue
		}
		out = append(out, wantedCluster{k.ARN, k.ID, k.Version, k.Endpoint, k.kubeObjects(), s.kubeNodes(k)})
	}
	return out
}

// adjust opens one cluster, if it is not, and tells it its nodes.
func (b *kubeBridge) adjust(kube sim.Kubernetes, w wantedCluster) {
	o := b.open[w.arn]
	if o != nil && o.id != w.id { // another cluster by the same name
		kube.Close(w.arn)
		o = nil
	}
	if objects := asText(w.objects); o == nil || o.version != w.version || o.objects != objects {
		c := b.service.kubeCluster(w.arn, w.id, w.version)
		c.Objects = w.objects
		end := kube.Open(c)
		if o == nil {
			o = &openCluster{id: w.id}
			b.open[w.arn] = o
		}
		o.version, o.address, o.objects = w.version, end.Address, objects
		b.note(w, end)
	} else if w.address != "https://"+o.address {
		b.note(w, sim.KubeEndpoint{Address: o.address, CA: kube.CA()}) // a swallowed or restored state has lost it
	}
	if nodes := asText(w.nodes); o.nodes != nodes {
		o.nodes = nodes
		kube.SetNodes(w.arn, w.nodes)
	}
}

// asText is data in a form that can be compared.
func asText(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // plain data of this package
	}
	return string(b)
}

// note writes down where a cluster answers.
func (b *kubeBridge) note(w wantedCluster, end sim.KubeEndpoint) {
	s := b.service
	s.cloud.World.Lock()
	defer s.cloud.World.Unlock()
	if k := s.byID(w.arn, w.id); k != nil {
		s.announce(k, end.Address, end.CA)
	}
}

// byID finds a cluster by its ARN, as long as it is the same one.
func (s *eksService) byID(arn, id string) *EKSCluster {
	for _, k := range s.clusters() {
		if k.ARN == arn && k.ID == id {
			return k
		}
	}
	return nil
}

// kubeCluster is what the API server of a cluster is told. Its functions look at the cluster as it is when they are called.
func (s *eksService) kubeCluster(arn, id, version string) sim.KubeCluster {
	world := s.cloud.World
	return sim.KubeCluster{ID: arn, Version: version, Cloud: &eksCloud{service: s, arn: arn, id: id},
		Admits: func(from sim.KubeCaller) bool {
			world.Lock()
			defer world.Unlock()
			k := s.byID(arn, id)
			return k != nil && k.running() && (k.Private && from.Inside || k.publicAdmits(from.IP))
		},
		Authenticate: func(token string) (sim.KubeUser, bool) { return s.authenticate(arn, id, token, time.Now()) },
	}
}

// kubeNodes are the nodes of a cluster: the instances of its node groups that have joined.
func (s *eksService) kubeNodes(k *EKSCluster) []sim.KubeNode {
	out := []sim.KubeNode{}
	sc := s.cloud.ec2.in(k.scope())
	for _, name := range sortedKeys(k.Nodegroups) {
		n := k.Nodegroups[name]
		for _, id := range sortedKeys(n.Nodes) {
			i := sc.Instances[id]
			if i == nil || n.Nodes[id].Registered.IsZero() || i.Status.Name != "running" {
				continue
			}
			node := n.kubeNode(k, i)
			node.NotReady = !n.Nodes[id].Ready
			out = append(out, node)
		}
	}
	return out
}

func (n *EKSNodegroup) kubeNode(k *EKSCluster, i *Instance) sim.KubeNode {
	arch := "amd64"
	if i.Architecture == "arm64" {
		arch = "arm64"
	}
	kind := instanceTypes[i.InstanceType]
	version, _ := findVersion(n.Version)
	node := sim.KubeNode{Name: i.PrivateDNSName, IP: i.PrivateIP, CPUs: kind.vcpus, MemoryMiB: kind.memory, Pods: maxPods(kind), Kubelet: "v" + version.Patch + "-eks-" + strings.ToLower(k.ID[:7]), Zone: i.Placement.Zone, Region: k.Region, Arch: arch, Type: i.InstanceType, ProviderID: "aws:///" + i.Placement.Zone + "/" + i.InstanceID,
		Labels: map[string]string{"eks.amazonaws.com/nodegroup": n.Name, "eks.amazonaws.com/capacityType": n.Capacity, "eks.amazonaws.com/nodegroup-image": i.ImageID,
			"topology.k8s.aws/zone-id": i.Placement.ZoneID, "k8s.io/cloud-provider-aws": strings.ToLower(k.ID)}}
	maps.Copy(node.Labels, n.Labels)
	for _, t := range n.Taints {
		effect := map[string]string{"NO_SCHEDULE": "NoSchedule", "NO_EXECUTE": "NoExecute", "PREFER_NO_SCHEDULE": "PreferNoSchedule"}[t.Effect]
		node.Taints = append(node.Taints, sim.KubeTaint{Key: t.Key, Value: t.Value, Effect: effect})
	}
	return node
}

// maxPods is how many pods an instance has addresses for ("Choose an optimal Amazon EC2 node instance type").
func maxPods(t instanceType) int {
	net := t.info().Network
	return min(net.Interfaces*(net.IPv4-1)+2, 110)
}

// placeholderCA is the certificate authority of clusters without an API server: well-formed, and of nobody.
var placeholderCA = sync.OnceValue(func() []byte {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err) // the system has no randomness
	}
	t := &x509.Certificate{SerialNumber: big.NewInt(0), Subject: pkix.Name{CommonName: "kubernetes"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(10, 0, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment}
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	if err != nil {
		panic(err) // a template of this file
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
})
