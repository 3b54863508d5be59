package aws

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

// EKSState is everything that Elastic Kubernetes Service keeps, by account and region.
type EKSState struct {
	Scopes map[string]*EKSScope
}

// EKSScope is EKS in one account and region.
type EKSScope struct {
	Clusters map[string]*EKSCluster // by name
	Tokens   map[string]*EKSToken   // by operation, cluster and client request token
	Looks    map[string]int         // how often a node group or add-on was looked at
}

// EKSToken remembers what a client request token made.
type EKSToken struct {
	Args, ID string
	Used     time.Time
}

// EKSIssue is a health issue of a cluster, node group or add-on.
type EKSIssue struct {
	Code, Message string
	Resources     []string
}

// EKSCluster is a cluster, and what only exists in it.
type EKSCluster struct {
	Account, Region, Name, ARN, ID string
	Created, Deleted               time.Time // deleted: when that was asked for
	Status                         string
	Version, Platform              string
	RoleARN                        string
	VpcID                          string
	Subnets, Groups                []string
	ClusterGroup                   string // the security group that EKS makes
	Private, Public                bool
	PublicCIDRs                    []string
	Interfaces                     []string // of the control plane, in the cluster's subnets
	Logging                        []string // the types that are on
	KeyARN                         string
	AuthMode                       string
	BootstrapAdmin                 *bool
	Creator                        string // ARN of the identity that made it
	IPFamily, ServiceCIDR          string
	SupportType                    string
	Protected                      bool
	SelfManaged                    bool // the default networking add-ons were installed unmanaged
	ZonalShift                     bool
	Token                          string
	Tags                           map[string]string
	Issues                         []EKSIssue
	Endpoint                       string // with its scheme; empty until the cluster is nearly there
	CA                             string // base64 of PEM

	Nodegroups   map[string]*EKSNodegroup
	Addons       map[string]*EKSAddon
	Entries      map[string]*EKSAccessEntry // by principal
	Associations map[string]*EKSPodIdentity // by ID
	Updates      map[string]*EKSUpdate      // by ID
}

func (k *EKSCluster) scope() scope { return scope{k.Account, k.Region} }

// key names the cluster in events, and what of it they are about: by its ID, since another cluster may get its name.
func (k *EKSCluster) key(rest ...string) string {
	return strings.Join(append([]string{k.scope().key(), k.ID}, rest...), "|")
}

// issuer is the URL of the cluster's OpenID Connect issuer.
func (k *EKSCluster) issuer() string {
	return "https://oidc.eks." + k.Region + ".amazonaws.com/id/" + k.ID
}

// running says whether the control plane answers.
func (k *EKSCluster) running() bool { return k.Status == "ACTIVE" || k.Status == "UPDATING" }

// EKSUpdate is a change of a cluster, node group or add-on that takes time.
type EKSUpdate struct {
	ID, Type, Status string
	Seq              int
	Nodegroup, Addon string // empty: of the cluster itself
	Created          time.Time
	Params           []EKSParam
	Errors           []EKSIssue
	// Next is what the object will be when the update has succeeded, as JSON merged into it.
	Next string
}

// EKSParam is one parameter of an update.
type EKSParam struct{ Type, Value string }

// eksService is Amazon Elastic Kubernetes Service.
type eksService struct {
	cloud *Cloud
	state *EKSState
	kube  kubeBridge
}

// Cloud implements sim.Service.
func (s *eksService) Cloud() string { return "aws" }

// Name implements sim.Service.
func (s *eksService) Name() string { return "eks" }

// State implements sim.Service.
func (s *eksService) State() any { return s.state }

// Reset implements sim.Service.
func (s *eksService) Reset() {
	s.state.Scopes = map[string]*EKSScope{}
	s.kube.kick()
}

func (s *eksService) in(sc scope) *EKSScope {
	in := s.state.Scopes[sc.key()]
	if in == nil {
		in = &EKSScope{Clusters: map[string]*EKSCluster{}, Tokens: map[string]*EKSToken{}}
		s.state.Scopes[sc.key()] = in
	}
	return in
}

// clusters lists all clusters, in a stable order.
func (s *eksService) clusters() []*EKSCluster {
	var out []*EKSCluster
	for _, where := range sortedKeys(s.state.Scopes) {
		for _, name := range sortedKeys(s.state.Scopes[where].Clusters) {
			out = append(out, s.state.Scopes[where].Clusters[name])
		}
	}
	return out
}

// byKey finds the cluster that an event is about, and the rest of its key.
func (s *eksService) byKey(key string) (*EKSCluster, string) {
	parts := strings.SplitN(key, "|", 3)
	if len(parts) < 2 || s.state.Scopes[parts[0]] == nil {
		return nil, ""
	}
	rest := ""
	if len(parts) == 3 {
		rest = parts[2]
	}
	for _, k := range s.state.Scopes[parts[0]].Clusters {
		if k.ID == parts[1] {
			return k, rest
		}
	}
	return nil, ""
}

// Objects implements sim.Service.
func (s *eksService) Objects() []sim.Object {
	var out []sim.Object
	for _, k := range s.clusters() {
		add := func(o sim.Object) {
			o.Account, o.Region, o.ARN = k.Account, k.Region, o.ID
			if o.Kind != "cluster" {
				o.Parents = append(o.Parents, k.ARN)
			}
			out = append(out, o)
		}
		add(sim.Object{Kind: "cluster", ID: k.ARN, Name: k.Name, State: k.Status, Tags: k.Tags, Parents: append([]string{k.VpcID}, k.Subnets...), Data: k})
		for _, name := range sortedKeys(k.Nodegroups) {
			n := k.Nodegroups[name]
			add(sim.Object{Kind: "nodegroup", ID: n.ARN, Name: n.Name, State: n.Status, Tags: n.Tags, Parents: n.Subnets, Data: n})
		}
		for _, name := range sortedKeys(k.Addons) {
			a := k.Addons[name]
			add(sim.Object{Kind: "addon", ID: a.ARN, Name: a.Name, State: a.Status, Tags: a.Tags, Data: a})
		}
		for _, name := range sortedKeys(k.Entries) {
			e := k.Entries[name]
			add(sim.Object{Kind: "access-entry", ID: e.ARN, Name: e.Principal, Tags: e.Tags, Default: e.Service, Data: e})
		}
		for _, id := range sortedKeys(k.Associations) {
			p := k.Associations[id]
			add(sim.Object{Kind: "pod-identity-association", ID: p.ARN, Name: p.Namespace + "/" + p.Account, Tags: p.Tags, Data: p})
		}
	}
	return out
}

// SetState implements sim.Service. A cluster fails as FAILED, a node group or an add-on as CREATE_FAILED while it is being
// made and DEGRADED later; the code and the message become a health issue. LEAK_INTERFACES makes a node group leave network
// interfaces of its nodes behind when it is deleted. An update in progress ends as Failed.
func (s *eksService) SetState(id, state, code, message string) error {
	s.kube.kick()
	var issues []EKSIssue
	if code != "" || message != "" {
		issues = []EKSIssue{{Code: orText(code, "InternalFailure"), Message: orText(message, "An internal error has occurred"), Resources: []string{id}}}
	}
	for _, k := range s.clusters() {
		if k.ARN == id {
			if state == "ACTIVE" && k.Status == "CREATING" {
				s.clusterNetwork(k) // it has what an active one has
				s.clusterReady(k)
			}
			k.Status, k.Issues = orText(state, "FAILED"), issues
			return nil
		}
		if u := k.Updates[id]; u != nil {
			s.failUpdate(k, u, orText(state, "Failed"), code, message)
			return nil
		}
		for _, n := range k.Nodegroups {
			if n.ARN != id {
				continue
			}
			if state == leakInterfaces {
				n.Leaks = leakedInterfaces
				return nil
			}
			n.Status, n.Issues, n.Held = orText(state, failedState(n.Status)), issues, true
			return nil
		}
		for _, a := range k.Addons {
			if a.ARN == id {
				a.Status, a.Issues, a.Held = orText(state, failedState(a.Status)), issues, true
				return nil
			}
		}
	}
	return fmt.Errorf("%s: no such cluster, node group or add-on", id)
}

func failedState(status string) string {
	if status == "CREATING" {
		return "CREATE_FAILED"
	}
	return "DEGRADED"
}

// Remove implements sim.Service.
func (s *eksService) Remove(id string) error {
	s.kube.kick()
	for _, k := range s.clusters() {
		if k.ARN == id {
			for _, n := range k.Nodegroups {
				s.dropGroup(k, n)
			}
			s.dropCluster(k)
			return nil
		}
		for _, n := range k.Nodegroups {
			if n.ARN == id {
				s.dropGroup(k, n)
				return nil
			}
		}
		for name, a := range k.Addons {
			if a.ARN == id {
				delete(k.Addons, name)
				return nil
			}
		}
		for name, e := range k.Entries {
			if e.ARN == id {
				delete(k.Entries, name)
				return nil
			}
		}
		for name, p := range k.Associations {
			if p.ARN == id {
				delete(k.Associations, name)
				return nil
			}
		}
	}
	return fmt.Errorf("%s: no such cluster or part of one", id)
}

// Event implements sim.Service.
func (s *eksService) Event(kind, key string) {
	k, rest := s.byKey(key)
	if k == nil {
		return
	}
	switch kind {
	case "network":
		s.clusterNetwork(k)
	case "ready":
		s.clusterReady(k)
	case "gone":
		s.clusterGone(k)
	case "update":
		if u := k.Updates[rest]; u != nil && u.Status == "InProgress" {
			s.finishUpdate(k, u)
		}
	case "nodegroup":
		for _, n := range k.Nodegroups {
			if s.tick(k, n.UID) == rest {
				s.tickGroup(k, n)
			}
		}
	case "addon":
		for _, a := range k.Addons {
			if s.tick(k, a.ARN) == rest {
				s.tickAddon(k, a)
			}
		}
	case "log":
		s.deliverLogs(k)
	}
}

// A node group and an add-on look after themselves every now and then: they have one look in the queue, and one that is
// scheduled earlier or later replaces it. Looks are counted beside the objects, which stay as they are while nothing happens.

// tick names the next look at an object.
func (s *eksService) tick(k *EKSCluster, ref string) string {
	return ref + "#" + strconv.Itoa(s.in(k.scope()).Looks[ref])
}

// look schedules the next look at a node group or add-on.
func (s *eksService) look(k *EKSCluster, kind, ref string, in time.Duration) {
	sc := s.in(k.scope())
	if sc.Looks == nil {
		sc.Looks = map[string]int{}
	}
	sc.Looks[ref]++
	s.cloud.after(in, "eks", kind, k.key(s.tick(k, ref)))
}

// updating is the update of the cluster that is under way, if any.
func (k *EKSCluster) updating(nodegroup, addon string) *EKSUpdate {
	for _, id := range sortedKeys(k.Updates) {
		if u := k.Updates[id]; u.Status == "InProgress" && u.Nodegroup == nodegroup && u.Addon == addon {
			return u
		}
	}
	return nil
}

// admits says whether groups of an interface include the cluster's own security group, or may reach it on a port.
func (k *EKSCluster) admits(sc *ec2Scope, groups []string, addresses []string) bool {
	if slices.Contains(groups, k.ClusterGroup) {
		return true
	}
	return sc.admits(append([]string{k.ClusterGroup}, k.Groups...), false, groups, addresses, 443)
}
