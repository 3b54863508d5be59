package job

import (
	"cmp"
	"encoding/json"
	"slices"
)

// ClusterSpec is what a user asks for in a cluster job.
type ClusterSpec struct {
	Version         string          `json:"version,omitempty" doc:"Kubernetes version, such as 1.35; the cloud's current default if left out"`
	ExtendedSupport bool            `json:"extendedSupport,omitempty" doc:"Take a version that is past its standard support, which is billed extra where it can be had at all"`
	Endpoint        ClusterEndpoint `json:"endpoint,omitzero" doc:"Who reaches the API server"`
	NodePools       []NodePool      `json:"nodePools,omitempty" doc:"One pool named workers by default. Azure: a small pool named system is added unless one is named so"`
	Admins          []string        `json:"admins,omitempty" doc:"Who administers the cluster besides the provisioner. AWS: ARNs of IAM roles or users; GCP: user:, group: or serviceAccount: members; Azure: object IDs of Entra groups"`
	PodCIDR         string          `json:"podCidr,omitempty" doc:"GCP and Azure: range of the pods; one that is free is chosen by default"`
	ServiceCIDR     string          `json:"serviceCidr,omitempty" doc:"Range of the Services; one that is free is chosen by default"`
	Components      []ComponentSpec `json:"components,omitempty" doc:"What to install once the cluster is up; names from GET /catalog/components"`
	Waive           []Waiver        `json:"waive,omitempty" doc:"Hardening controls that need not hold, by name"`
	Network         NetworkSpec     `json:"network,omitzero" doc:"The network to make (mode create)"`
	Existing        *Existing       `json:"existing,omitempty" doc:"What to build in (mode create_in_existing)"`
	Adopt           *Adopt          `json:"adopt,omitempty" doc:"What to adopt (mode adopt): the cluster's name"`
}

// ClusterEndpoint says who reaches the API server. Without it the endpoint is
// private where the cloud account's reach gets there, and otherwise open to the
// provisioner's own addresses alone.
type ClusterEndpoint struct {
	PublicCIDRs []string `json:"publicCidrs,omitempty" doc:"Ranges that may reach the API server over the internet, besides the provisioner's own"`
}

// A NodePool asks for nodes of one kind.
type NodePool struct {
	Name         string            `json:"name" doc:"1 to 12 of a-z and 0-9, starting with a letter"`
	Size         *Size             `json:"size,omitempty" doc:"Resolved to the cloud's smallest current type that has it; 2 vCPUs and 8 GiB by default"`
	InstanceType string            `json:"instanceType,omitempty" doc:"The cloud's own type, instead of size"`
	Spot         bool              `json:"spot,omitempty" doc:"Spare capacity: cheaper, and taken away at any time"`
	Min          *int              `json:"min,omitempty" doc:"Least nodes, 0 to 100; 1 by default"`
	Desired      *int              `json:"desired,omitempty" doc:"Nodes to start with; 2 by default"`
	Max          *int              `json:"max,omitempty" doc:"Most nodes; twice desired by default"`
	DiskGiB      int               `json:"diskGiB,omitempty" doc:"Encrypted node disk, 30 to 16384 GiB; 50 by default"`
	OS           string            `json:"os,omitempty" enum:"al2023,bottlerocket" doc:"AWS: the node image; al2023 by default"`
	Labels       map[string]string `json:"labels,omitempty" doc:"Kubernetes labels of the nodes"`
	Taints       []Taint           `json:"taints,omitempty" doc:"Kubernetes taints of the nodes"`
}

// A Taint keeps pods off nodes that do not tolerate it.
type Taint struct {
	Key    string `json:"key"`
	Value  string `json:"value,omitempty"`
	Effect string `json:"effect" enum:"NoSchedule,PreferNoSchedule,NoExecute"`
}

// A Waiver lets a hardening control not hold.
type Waiver struct {
	Control string `json:"control" doc:"Its name in the hardening report, such as EKS-05"`
	Reason  string `json:"reason" doc:"Why; it stands in the report"`
}

// The pools that are there without being asked for, and the node images.
const (
	DefaultPool = "workers"
	SystemPool  = "system" // Azure: what the cluster itself runs on

	OSAL2023       = "al2023"
	OSBottlerocket = "bottlerocket"
)

// ClusterSpec decodes the spec of a cluster job, with defaults filled in. A
// field that the schema does not have is an *Invalid that names it.
func (j *Job) ClusterSpec() (ClusterSpec, error) {
	var s ClusterSpec
	if err := strictly(j.Config.Spec, &s); err != nil {
		return s, err
	}
	if err := explicitZeros(j.Config.Spec); err != nil {
		return s, err
	}
	return s.WithDefaults(j.Provider), nil
}

// WithDefaults fills in what the user left out.
func (s ClusterSpec) WithDefaults(p Provider) ClusterSpec {
	s.Network = s.Network.withDefaults(p)
	s.Network.CIDR = cmp.Or(s.Network.CIDR, "10.40.0.0/16")
	if len(s.Network.Subnets) == 0 {
		s.Network.Subnets = []string{TierPublic, TierPrivate}
	}
	if p == GCP {
		s.Network.SecondaryRanges = s.secondaryRanges()
	}
	s.NodePools = slices.Clone(s.NodePools)
	if len(s.NodePools) == 0 {
		s.NodePools = []NodePool{{Name: DefaultPool}}
	}
	if p == Azure && !slices.ContainsFunc(s.NodePools, func(n NodePool) bool { return n.Name == SystemPool }) {
		s.NodePools = append(s.NodePools, NodePool{Name: SystemPool}) // behind the spec's own, which errors name by their place
	}
	for i := range s.NodePools {
		s.NodePools[i] = s.NodePools[i].withDefaults(p)
	}
	s.Components = slices.Clone(s.Components)
	for i := range s.Components {
		s.Components[i] = s.Components[i].WithDefaults()
	}
	return s
}

// The secondary ranges of a GKE cluster's subnet.
const (
	PodRange     = "pods"
	ServiceRange = "services"
)

// secondaryRanges are the named ranges of a GKE cluster's subnet: always ours,
// never chosen by GKE, which does not see the peers of peers (failure J5).
func (s ClusterSpec) secondaryRanges() []NamedRange {
	out := slices.Clone(s.Network.SecondaryRanges)
	for _, want := range []NamedRange{{PodRange, s.PodCIDR}, {ServiceRange, s.ServiceCIDR}} {
		if !slices.ContainsFunc(out, func(r NamedRange) bool { return r.Name == want.Name }) {
			out = append(out, want)
		}
	}
	return out
}

func (n NodePool) withDefaults(p Provider) NodePool {
	if n.Desired == nil {
		d := max(2, value(n.Min))
		if n.Max != nil {
			d = min(d, *n.Max)
		}
		n.Desired = &d
	}
	if n.Min == nil {
		m := min(1, *n.Desired)
		n.Min = &m
	}
	if n.Max == nil {
		m := max(2**n.Desired, 1)
		n.Max = &m
	}
	if n.InstanceType == "" && n.Size == nil {
		n.Size = &Size{VCPUs: 2, MemoryGiB: 8}
	}
	if n.Size != nil && n.Size.Arch == "" {
		s := *n.Size
		s.Arch = "amd64"
		n.Size = &s
	}
	n.DiskGiB = cmp.Or(n.DiskGiB, 50)
	if p == AWS {
		n.OS = cmp.Or(n.OS, OSAL2023)
	}
	return n
}

func value(n *int) int {
	if n == nil {
		return 0
	}
	return *n
}

// System reports whether the pool is the one that the cluster itself runs on,
// kept free of other pods by a taint.
func (n NodePool) System(p Provider) bool { return p == Azure && n.Name == SystemPool }

// ComponentSpec asks for one component of the catalogue, as a Helm release.
type ComponentSpec struct {
	Name      string          `json:"name" doc:"Its name in the catalogue"`
	Version   string          `json:"version,omitempty" doc:"Chart version; the catalogue's pinned one by default"`
	Namespace string          `json:"namespace,omitempty" doc:"The catalogue's by default; made if it is not there"`
	Release   string          `json:"release,omitempty" doc:"The Helm release's name; the component's by default"`
	Values    json.RawMessage `json:"values,omitempty" doc:"Helm values, an object; checked against the chart's schema before anything happens"`
}

// WithDefaults fills in what does not depend on the catalogue.
func (c ComponentSpec) WithDefaults() ComponentSpec {
	c.Release = cmp.Or(c.Release, c.Name)
	return c
}

// ComponentJobSpec is what a user asks for in a component job.
type ComponentJobSpec struct {
	SpaceID   string        `json:"spaceId" doc:"The space to install onto"`
	Component ComponentSpec `json:"component" doc:"What to install"`
}

// ComponentJob decodes the spec of a component job, with defaults filled in. A
// field that the schema does not have is an *Invalid that names it.
func (j *Job) ComponentJob() (ComponentJobSpec, error) {
	var s ComponentJobSpec
	if err := strictly(j.Config.Spec, &s); err != nil {
		return s, err
	}
	s.Component = s.Component.WithDefaults()
	return s, nil
}

// A ClusterRef names a cluster at a cloud, as much as its API server's address
// and a credential for it need.
type ClusterRef struct {
	Region        string `json:"region"`
	Name          string `json:"name"`
	ResourceGroup string `json:"resourceGroup,omitempty"` // Azure
}

// ClusterRef names the cluster of a cluster job, or the one that a component job
// installs onto.
func (j *Job) ClusterRef() ClusterRef {
	infra := j.Config.InfraConfig
	return ClusterRef{Region: j.Region, Name: infra.Cluster.Name, ResourceGroup: cmp.Or(infra.ResourceGroup, infra.ExistingResourceGroup)}
}

// The types of spaces.
const (
	SpaceKubernetes = "kubernetes"
	SpaceVM         = "vm"
)

// ClusterInfo is what the steps know of a cluster. Version, ServiceCIDR, PodCIDR
// and the pools' types are resolved by stepValidate, before anything is made.
type ClusterInfo struct {
	Name         string `json:"name,omitempty"`
	ID           string `json:"id,omitempty"`       // ARN, self link or resource ID
	Endpoint     string `json:"endpoint,omitempty"` // https URL of the API server
	Public       bool   `json:"public,omitempty"`   // the endpoint answers on the internet, to PublicCIDRs alone
	Version      string `json:"version,omitempty"`
	SupportUntil string `json:"supportUntil,omitempty"` // end of standard support, a date
	Extended     bool   `json:"extended,omitempty"`     // the version is past it

	PublicCIDRs []string `json:"publicCidrs,omitempty"` // the spec's and the provisioner's own
	PodCIDR     string   `json:"podCidr,omitempty"`
	ServiceCIDR string   `json:"serviceCidr,omitempty"`

	RoleID          string `json:"roleId,omitempty"`     // what the control plane runs as. AWS: role ARN; Azure: ID of the managed identity
	NodeRoleID      string `json:"nodeRoleId,omitempty"` // what the nodes run as. AWS: role ARN; GCP: e-mail address of the service account
	KMSKeyID        string `json:"kmsKeyId,omitempty"`   // what encrypts the secrets. AWS: key ARN; GCP: resource name
	OIDCIssuer      string `json:"oidcIssuer,omitempty"`
	SecurityGroupID string `json:"securityGroupId,omitempty"` // AWS: the one that EKS made
	LogGroup        string `json:"logGroup,omitempty"`        // AWS: log group; Azure: workspace ID
	NodeGroup       string `json:"nodeGroup,omitempty"`       // Azure: the group that AKS made for the nodes

	// Undrained: the teardown could not ask the cluster, so nobody knows which of
	// its disks were to outlive it: they stay, and are named.
	Undrained bool `json:"undrained,omitempty"`

	NodePools []NodePoolInfo `json:"nodePools,omitempty"`
	RiskNotes []string       `json:"riskNotes,omitempty"` // adopted clusters: what does not meet the defaults
}

// NodePoolInfo is what the steps know of a node pool.
type NodePoolInfo struct {
	Name         string   `json:"name"`
	ID           string   `json:"id,omitempty"`
	InstanceType string   `json:"instanceType"`
	Arch         string   `json:"arch,omitempty"`
	Spot         bool     `json:"spot,omitempty"`
	Zones        []string `json:"zones,omitempty"` // in which its type is offered
	Min          int      `json:"min"`
	Max          int      `json:"max"`
	Desired      int      `json:"desired"`             // per pool, all zones together
	NodeLabel    string   `json:"nodeLabel,omitempty"` // what its nodes are labelled with as their pool, where that is not Name
	Ready        int      `json:"ready,omitempty"`     // nodes that joined and are Ready
	Joined       bool     `json:"joined,omitempty"`    // Desired were Ready once: from then on the autoscaler decides, down to Min
	State        string   `json:"state,omitempty"`     // the cloud's own word
}

// Pool finds a node pool by its name; nil if there is none.
func (c *ClusterInfo) Pool(name string) *NodePoolInfo {
	for i := range c.NodePools {
		if c.NodePools[i].Name == name {
			return &c.NodePools[i]
		}
	}
	return nil
}

// ComponentInfo is where one component stands.
type ComponentInfo struct {
	Name       string `json:"name"`
	Release    string `json:"release"`
	Namespace  string `json:"namespace"`
	Version    string `json:"version"` // of the chart
	AppVersion string `json:"appVersion,omitempty"`
	Revision   int    `json:"revision,omitempty"`
	Status     string `json:"status"` // waiting, installing, ready, failed, removed
	Waiting    string `json:"waiting,omitempty"`
	LastError  string `json:"lastError,omitempty"`

	// History is the revisions that this job made, the oldest first: what a
	// rollback goes back to.
	History []ComponentRevision `json:"history,omitempty"`
}

// A ComponentRevision is one revision of a release.
type ComponentRevision struct {
	Revision int             `json:"revision"`
	Version  string          `json:"version"` // of the chart
	Values   json.RawMessage `json:"values,omitempty"`
}

// Remember adds the present revision to the history, which keeps the last ten.
func (c *ComponentInfo) Remember(values json.RawMessage) {
	if n := len(c.History); n > 0 && c.History[n-1].Revision == c.Revision {
		return
	}
	c.History = append(c.History, ComponentRevision{Revision: c.Revision, Version: c.Version, Values: values})
	c.History = c.History[max(len(c.History)-10, 0):]
}

// Component finds a component by its release's name; nil if there is none.
func (c *InfraConfig) Component(release string) *ComponentInfo {
	for i := range c.Components {
		if c.Components[i].Release == release {
			return &c.Components[i]
		}
	}
	return nil
}
