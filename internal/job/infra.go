package job

import "time"

// InfraConfig is what the steps of a job learned: it rides in the job's config
// document, so a new family adds fields here and no table.
type InfraConfig struct {
	// Who and where, recorded by the first stepValidate and compared before
	// every later step: a credential that now belongs to another account is refused.
	Account string   `json:"account,omitempty"` // AWS account ID, GCP project ID, Azure subscription ID
	Zones   []string `json:"zones,omitempty"`   // in the order in which subnets and VMs are spread

	// Network.
	NetworkID             string   `json:"networkId,omitempty"`
	NetworkCIDR           string   `json:"networkCidr,omitempty"`
	PublicSubnetIDs       []string `json:"publicSubnetIds,omitempty"`  // one a zone, in Zones' order
	PrivateSubnetIDs      []string `json:"privateSubnetIds,omitempty"` // one a zone, in Zones' order
	NATGatewayIDs         []string `json:"natGatewayIds,omitempty"`
	EgressIPs             []string `json:"egressIps,omitempty"`
	ExistingResourceGroup string   `json:"existingResourceGroup,omitempty"`

	NetworkName       string        `json:"networkName,omitempty"`
	NetworkPlan       *NetworkPlan  `json:"networkPlan,omitempty"`       // how the ranges are laid out, before anything is made
	DatabaseSubnetIDs []string      `json:"databaseSubnetIds,omitempty"` // in Zones' order, or one where subnets are regional
	Subnets           []SubnetInfo  `json:"subnets,omitempty"`           // network jobs: every subnet made or adopted
	ResourceGroup     string        `json:"resourceGroup,omitempty"`     // Azure: made or named
	Peerings          []PeeringInfo `json:"peerings,omitempty"`
	DNSZones          []DNSZoneInfo `json:"dnsZones,omitempty"`
	FlowLogID         string        `json:"flowLogId,omitempty"`
	EndpointIDs       []string      `json:"endpointIds,omitempty"` // AWS: VPC endpoints

	// Identity.
	RoleName            string `json:"roleName,omitempty"`
	InstanceProfileName string `json:"instanceProfileName,omitempty"`
	InstanceProfileARN  string `json:"instanceProfileArn,omitempty"`
	ServiceAccount      string `json:"serviceAccount,omitempty"` // GCP: e-mail address; Azure: ID of the managed identity

	// VMs.
	ImageID             string   `json:"imageId,omitempty"`
	ImageName           string   `json:"imageName,omitempty"`
	RootDevice          string   `json:"rootDevice,omitempty"`
	InstanceType        string   `json:"instanceType,omitempty"`
	VMSecurityGroupID   string   `json:"vmSecurityGroupId,omitempty"`
	LaunchTemplateID    string   `json:"launchTemplateId,omitempty"`
	LaunchTemplateName  string   `json:"launchTemplateName,omitempty"`
	ScalingGroupID      string   `json:"scalingGroupId,omitempty"`
	VMs                 []VMInfo `json:"vms,omitempty"`
	BootstrapNginxReady bool     `json:"bootstrapNginxReady"`
	ExecMode            ExecMode `json:"execMode,omitempty"`
	BootstrapCommandID  string   `json:"bootstrapCommandId,omitempty"` // the Run Command that looks at the sentinels now

	// Load balancer.
	LoadBalancerDetached        bool         `json:"loadBalancerDetached,omitempty"` // a detach_lb took off what the spec asks for
	LoadBalancerID              string       `json:"loadBalancerId,omitempty"`       // AWS: ARN
	LoadBalancerHost            string       `json:"loadBalancerHost,omitempty"`
	LoadBalancerZoneID          string       `json:"loadBalancerZoneId,omitempty"` // the hosted zone an alias record points to
	LoadBalancerSecurityGroupID string       `json:"loadBalancerSecurityGroupId,omitempty"`
	TargetGroupID               string       `json:"targetGroupId,omitempty"` // AWS: ARN
	ListenerIDs                 []string     `json:"listenerIds,omitempty"`
	DNSZoneID                   string       `json:"dnsZoneId,omitempty"`
	DNSRecord                   string       `json:"dnsRecord,omitempty"` // fully qualified, without the last dot
	DNSSkipped                  string       `json:"dnsSkipped,omitempty"`
	Targets                     []TargetInfo `json:"targets,omitempty"`

	// Clusters and components.
	Cluster    ClusterInfo     `json:"cluster,omitzero"`
	Components []ComponentInfo `json:"components,omitempty"`

	// Datastores and caches.
	Datastore DatastoreInfo `json:"datastore,omitzero"`

	// Remediation jobs.
	Remediation *RemediationInfo `json:"remediation,omitempty"`

	SpaceID    string     `json:"spaceId,omitempty"`
	ObservedAt *time.Time `json:"observedAt,omitempty"` // when the observer last refreshed VMs and Targets
	Warnings   []string   `json:"warnings,omitempty"`
	Report     []Control  `json:"report,omitempty"` // hardening controls read back at the end

	NotScanned []Unlisted `json:"notScanned,omitempty"` // what the last scan of a teardown could not list
}

// ExecMode is how a person gets a shell or runs a command on a VM.
type ExecMode string

// The exec channels, all gated by the cloud's IAM.
const (
	ExecSSM         ExecMode = "SSM"
	ExecOSConfig    ExecMode = "OSConfig"
	ExecAzureRunCmd ExecMode = "AzureRunCmd"
)

// VMState is where one VM stands.
type VMState string

// The VM states.
const (
	VMPending       VMState = "pending"
	VMBootstrapping VMState = "bootstrapping"
	VMReady         VMState = "ready"
	VMStopped       VMState = "stopped"
	VMFailed        VMState = "failed"
	VMTerminating   VMState = "terminating"
	VMTerminated    VMState = "terminated"
)

// VMInfo is the state of one VM.
type VMInfo struct {
	Name                string     `json:"name"`
	InstanceID          string     `json:"instanceId,omitempty"`
	Zone                string     `json:"zone,omitempty"`
	PrivateIP           string     `json:"privateIp,omitempty"`
	State               VMState    `json:"state"`
	BootstrapNginxReady bool       `json:"bootstrapNginxReady"`
	SentinelSeenAt      *time.Time `json:"sentinelSeenAt,omitempty"`
	ExecMode            ExecMode   `json:"execMode,omitempty"`
	LastError           string     `json:"lastError,omitempty"`
	LaunchedAt          *time.Time `json:"launchedAt,omitempty"`
}

// TargetInfo is what the load balancer says of one VM.
type TargetInfo struct {
	InstanceID string `json:"instanceId"`
	Health     string `json:"health"` // the cloud's own word
	Reason     string `json:"reason,omitempty"`
}

// Control is one row of the hardening report: what was wanted and what the
// cloud says.
type Control struct {
	ID     string `json:"id"` // such as VMA-01
	Name   string `json:"name"`
	Wanted string `json:"wanted"`
	Seen   string `json:"seen"`
	Met    bool   `json:"met"`
	Source string `json:"source,omitempty"` // the public rule that asks for it
	Waived string `json:"waived,omitempty"` // why the spec lets it not hold
	// Unchecked: it could not be read, and Seen says why. It counts neither as
	// met nor as a fault.
	Unchecked bool `json:"unchecked,omitempty"`
}

// VM finds a VM by its name; nil if there is none.
func (c *InfraConfig) VM(name string) *VMInfo {
	for i := range c.VMs {
		if c.VMs[i].Name == name {
			return &c.VMs[i]
		}
	}
	return nil
}

// ForgetLoadBalancer clears what the load balancer steps learned, once the
// load balancer is gone.
func (c *InfraConfig) ForgetLoadBalancer() {
	c.LoadBalancerID, c.LoadBalancerHost, c.LoadBalancerZoneID = "", "", ""
	c.LoadBalancerSecurityGroupID, c.TargetGroupID, c.ListenerIDs = "", "", nil
	c.DNSZoneID, c.DNSRecord, c.DNSSkipped, c.Targets = "", "", "", nil
}
