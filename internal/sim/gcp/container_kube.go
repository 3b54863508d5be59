package gcp

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"maps"
	"math/big"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

// kubeSide is what is known of the API servers behind clusters. It is not part of the state: they live and die with the process.
type kubeSide struct {
	mu             sync.Mutex
	running, again bool
	syncing        sync.Mutex              // held while sim.Kubernetes is being talked to
	open           map[string]*openCluster // by kubeID
}

// An openCluster is a cluster whose endpoint answers.
type openCluster struct {
	endpoint sim.KubeEndpoint
	nodes    string // fingerprint of those that it was told of
}

// kubeID is the identity of a cluster among all API servers: another cluster of the same name is another one.
func kubeID(c *cluster) string { return containerLink(c.Path) + "#" + clipped(str(c.Doc, "id"), 12) }

// up says whether a cluster has a control plane.
func (c *cluster) up() bool { return str(c.Doc, "currentMasterVersion") != "" }

// syncKube makes the API servers fit the clusters, in the background: nothing of sim.Kubernetes may be called with the world locked.
func (s *container) syncKube() {
	if s.cloud.opt.Kubernetes == nil {
		return
	}
	s.kube.mu.Lock()
	defer s.kube.mu.Unlock()
	if s.kube.running {
		s.kube.again = true
		return
	}
	s.kube.running = true
	go s.syncLoop()
}

func (s *container) syncLoop() {
	for {
		s.syncOnce()
		s.kube.mu.Lock()
		if !s.kube.again {
			s.kube.running = false
			s.kube.mu.Unlock()
			return
		}
		s.kube.again = false
		s.kube.mu.Unlock()
	}
}

// wantedCluster is a cluster as its API server should be.
type wantedCluster struct {
	cluster sim.KubeCluster
	nodes   []sim.KubeNode
}

func (s *container) syncOnce() {
	s.kube.syncing.Lock()
	defer s.kube.syncing.Unlock()
	k := s.cloud.opt.Kubernetes
	want := map[string]wantedCluster{}
	s.cloud.World.Lock()
	for _, c := range s.inOrder("", "") {
		if c.up() {
			want[kubeID(c)] = wantedCluster{s.kubeCluster(c), s.kubeNodes(c)}
		}
	}
	s.cloud.World.Unlock()
	for _, id := range s.openIDs() {
		if _, ok := want[id]; !ok {
			k.Close(id)
			s.kube.mu.Lock()
			delete(s.kube.open, id)
			s.kube.mu.Unlock()
		}
	}
	for _, id := range keysOf(want) {
		w := want[id]
		open := s.opened(id)
		if open == nil {
			open = &openCluster{endpoint: k.Open(w.cluster)}
		}
		if now := fingerprint(w.nodes); now != open.nodes {
			k.SetNodes(id, w.nodes)
			open = &openCluster{endpoint: open.endpoint, nodes: now}
		}
		s.kube.mu.Lock()
		if s.kube.open == nil {
			s.kube.open = map[string]*openCluster{}
		}
		s.kube.open[id] = open
		s.kube.mu.Unlock()
	}
}

func (s *container) openIDs() []string {
	s.kube.mu.Lock()
	defer s.kube.mu.Unlock()
	return keysOf(s.kube.open)
}

func (s *container) opened(id string) *openCluster {
	s.kube.mu.Lock()
	defer s.kube.mu.Unlock()
	return s.kube.open[id]
}

// endpointKnown says whether it is known where a cluster answers; if not, it is being found out.
func (s *container) endpointKnown(c *cluster) bool {
	if s.cloud.opt.Kubernetes == nil || s.opened(kubeID(c)) != nil {
		return true
	}
	s.syncKube()
	return false
}

// awaitEndpoints opens, outside of the world's lock, what is not open yet of clusters that somebody wants to see: those of a world
// that was kept have an address only once they are opened again.
func (s *container) awaitEndpoints(r *request, of ...*cluster) {
	if s.cloud.opt.Kubernetes == nil || r.HTTP == nil || !slices.ContainsFunc(of, func(c *cluster) bool { return c.up() && s.opened(kubeID(c)) == nil }) {
		return
	}
	s.cloud.World.Unlock()
	defer s.cloud.World.Lock()
	s.syncOnce()
}

// instanceChanged looks whether the instance is a node.
func (s *container) instanceChanged(path string) {
	if strings.HasPrefix(lastPart(path), "gke-") {
		s.syncKube()
	}
}

func (s *container) kubeCluster(c *cluster) sim.KubeCluster {
	path, id := c.Path, kubeID(c)
	locked := func(f func(c *cluster) bool) bool {
		s.cloud.World.Lock()
		defer s.cloud.World.Unlock()
		now := s.st.Clusters[path]
		return now != nil && kubeID(now) == id && f(now)
	}
	return sim.KubeCluster{
		ID: id, Version: minor(str(c.Doc, "currentMasterVersion")),
		Admits: func(from sim.KubeCaller) bool { return locked(func(c *cluster) bool { return admits(c, from) }) },
		Authenticate: func(token string) (user sim.KubeUser, ok bool) {
			locked(func(c *cluster) bool {
				user, ok = s.kubeUser(c, token)
				return ok
			})
			return user, ok
		},
		Cloud: &kubeCloud{s, path}, Objects: storageClasses(c),
	}
}

// kubeNodes are the nodes that have joined a cluster.
func (s *container) kubeNodes(c *cluster) []sim.KubeNode {
	var out []sim.KubeNode
	for _, p := range c.Pools {
		config := sub(p.Doc, "config")
		t := machineTypes[str(config, "machineType")]
		labels := map[string]string{"cloud.google.com/gke-nodepool": p.Name, "cloud.google.com/gke-os-distribution": "cos", "cloud.google.com/machine-family": t.family.name,
			"cloud.google.com/gke-boot-disk": str(config, "diskType"), "cloud.google.com/gke-container-runtime": "containerd"}
		if truth(config, "spot") {
			labels["cloud.google.com/gke-spot"] = "true"
		}
		if str(sub(config, "workloadMetadataConfig"), "mode") == "GKE_METADATA" {
			labels["iam.gke.io/gke-metadata-server-enabled"] = "true"
		}
		maps.Copy(labels, labelsOf(config))
		arch := "amd64"
		var taints []sim.KubeTaint
		for _, taint := range docs(config, "taints") {
			taints = append(taints, sim.KubeTaint{Key: str(taint, "key"), Value: str(taint, "value"), Effect: taintEffects[str(taint, "effect")]})
		}
		if t.family.arm {
			arch = "arm64"
			if str(sub(config, "taintConfig"), "architectureTaintBehavior") != "NONE" { // "Arm workloads on GKE": nodes are tainted
				taints = append(taints, sim.KubeTaint{Key: "kubernetes.io/arch", Value: "arm64", Effect: "NoSchedule"})
			}
		}
		for _, vm := range s.nodesOf(p) {
			zone := segmentAfter(vm.Path, "zones")
			ip := ""
			if nics := docs(vm.Doc, "networkInterfaces"); len(nics) > 0 {
				ip = str(nics[0], "networkIP")
			}
			out = append(out, sim.KubeNode{Name: vm.name(), Zone: zone, Region: c.region(), Arch: arch, Type: t.name, Labels: labels, Taints: taints, CPUs: t.cpus, MemoryMiB: t.memory,
				Pods: atoi(str(sub(p.Doc, "maxPodsConstraint"), "maxPodsPerNode")), Kubelet: "v" + str(p.Doc, "version"), IP: ip,
				ProviderID: "gce://" + c.project() + "/" + zone + "/" + vm.name()})
		}
	}
	slices.SortFunc(out, func(a, b sim.KubeNode) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// admits says whether a connection gets through to a cluster. Its DNS endpoint and its IP endpoints share one address here, so
// that what one of them lets in gets in ("About network isolation in GKE").
func admits(c *cluster, from sim.KubeCaller) bool {
	config := sub(c.Doc, "controlPlaneEndpointsConfig")
	dns, ip := sub(config, "dnsEndpointConfig"), sub(config, "ipEndpointsConfig")
	if from.Inside || truth(dns, "allowExternalTraffic") {
		return true
	}
	if !truth(ip, "enabled") || !truth(ip, "enablePublicEndpoint") {
		return false
	}
	authorized := sub(ip, "authorizedNetworksConfig")
	if !truth(authorized, "enabled") {
		return true
	}
	return slices.ContainsFunc(docs(authorized, "cidrBlocks"), func(b Doc) bool {
		p, err := netip.ParsePrefix(str(b, "cidrBlock"))
		return err == nil && p.Contains(from.IP)
	})
}

// administrators are the roles whose holders may do everything in a cluster. That a developer may not touch its RBAC is not told
// apart ("Kubernetes Engine Developer").
var administrators = []string{"roles/owner", "roles/editor", "roles/container.admin", "roles/container.developer"}

// kubeUser is who the bearer of an access token is to a cluster. Whoever has a role in the project has what it gives; a caller
// without any is treated as everywhere in this simulation: whoever may use the project may do everything in it. A service account
// needs a role.
func (s *container) kubeUser(c *cluster, token string) (sim.KubeUser, bool) {
	who, ok := s.cloud.opt.Tokens[token]
	static := ok
	if !ok {
		if who, ok = s.cloud.hooks.token(token); !ok {
			return sim.KubeUser{}, false
		}
	}
	if !who.may(c.project()) {
		return sim.KubeUser{}, false
	}
	user := sim.KubeUser{Name: who.Email, Groups: []string{"system:authenticated"}}
	member := "user:"
	if strings.HasSuffix(who.Email, ".gserviceaccount.com") {
		member = "serviceAccount:"
	}
	roles := s.cloud.rolesOf(c.project(), member+who.Email)
	if slices.ContainsFunc(roles, func(r string) bool { return slices.Contains(administrators, r) }) || static && len(roles) == 0 {
		user.Groups = append(user.Groups, "system:masters")
	}
	return user, true
}

// showEndpoints adds where a cluster answers, and the certificate that it shows.
func (s *container) showEndpoints(c *cluster, d Doc) {
	config := sub(d, "controlPlaneEndpointsConfig")
	ip, dns := sub(config, "ipEndpointsConfig"), sub(config, "dnsEndpointConfig")
	authorized := clone(sub(ip, "authorizedNetworksConfig"))
	d["masterAuthorizedNetworksConfig"] = authorized
	private := Doc{}
	if truth(sub(d, "networkConfig"), "defaultEnablePrivateNodes") {
		private["enablePrivateNodes"] = true
	}
	if !truth(ip, "enablePublicEndpoint") {
		private["enablePrivateEndpoint"] = true
	}
	d["privateClusterConfig"] = private
	if !c.up() {
		return
	}
	name := "gke-" + clipped(str(d, "id"), 36) + "-" + s.cloud.number(c.project()) + "." + c.location() + ".gke.goog"
	publicIP, privateIP, ca := "34.118.1.1", "", s.authority()
	for _, path := range c.Made {
		if collectionOf(path) == "addresses" {
			privateIP = str(s.cloud.compute.at(path).doc(), "address")
			publicIP = publicOf(privateIP)
		}
	}
	if s.cloud.opt.Kubernetes != nil {
		open := s.opened(kubeID(c))
		if open == nil {
			s.syncKube()
			return
		}
		name, publicIP, privateIP, ca = open.endpoint.Address, open.endpoint.Address, open.endpoint.Address, open.endpoint.CA
	}
	dns["endpoint"] = name
	endpoint := ""
	if truth(ip, "enabled") {
		ip["privateEndpoint"], private["privateEndpoint"], endpoint = privateIP, privateIP, privateIP
		private["publicEndpoint"] = publicIP // it has one even if nobody is let in there
		if truth(ip, "enablePublicEndpoint") {
			ip["publicEndpoint"], endpoint = publicIP, publicIP
		}
	}
	if endpoint != "" {
		d["endpoint"] = endpoint
	}
	subOf(d, "masterAuth")["clusterCaCertificate"] = base64.StdEncoding.EncodeToString(ca)
}

// doc is an object's document, nil for none.
func (res *Resource) doc() Doc {
	if res == nil {
		return nil
	}
	return res.Doc
}

// publicOf makes up the public address that goes with a private one.
func publicOf(private string) string {
	a, err := netip.ParseAddr(private)
	if err != nil || !a.Is4() {
		return "203.0.113.10"
	}
	b := a.As4()
	return netip.AddrFrom4([4]byte{35, 240 | b[1]&15, b[2], b[3]}).String()
}

// newAuthority makes the certificate that clusters show who have no API server.
func newAuthority() []byte {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err) // the system has no randomness
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "simulated GKE"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().AddDate(5, 0, 0), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		panic(err) // a template that is always the same
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
