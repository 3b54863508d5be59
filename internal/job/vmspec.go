package job

import "fmt"

// VMSpec is what a user asks for in a VM job.
type VMSpec struct {
	Pool          Pool          `json:"pool" doc:"How many VMs, of which size and image"`
	Bootstrap     string        `json:"bootstrap,omitempty" enum:"docker_nginx,bare_metal" doc:"docker_nginx (default): Docker, the bridge network and NGINX; bare_metal: without NGINX"`
	StartupScript string        `json:"startupScript,omitempty" doc:"A shell script of your own, run as root after the bootstrap and before the VM counts as ready"`
	Network       NetworkSpec   `json:"network,omitzero" doc:"The network to make (mode create)"`
	LoadBalancer  *LoadBalancer `json:"loadBalancer,omitempty" doc:"Leave out for no load balancer"`
	Existing      *Existing     `json:"existing,omitempty" doc:"What to build in (mode create_in_existing)"`
	Adopt         *Adopt        `json:"adopt,omitempty" doc:"What to adopt (mode adopt)"`
}

// The bootstrap variants.
const (
	BootstrapNginx = "docker_nginx"
	BootstrapBare  = "bare_metal"
)

// Pool says how many VMs of what kind.
type Pool struct {
	Mode         PoolMode `json:"mode,omitempty" enum:"fixed,asg" doc:"fixed: VMs by name; asg: a scaling group"`
	Count        int      `json:"count,omitempty" doc:"VMs in a fixed pool, 1 to 100"`
	Min          *int     `json:"min,omitempty" doc:"Least VMs in a scaling group"`
	Desired      *int     `json:"desired,omitempty" doc:"VMs that a scaling group starts with"`
	Max          *int     `json:"max,omitempty" doc:"Most VMs in a scaling group"`
	Size         *Size    `json:"size,omitempty" doc:"Resolved to the cloud's smallest current type that has it"`
	InstanceType string   `json:"instanceType,omitempty" doc:"The cloud's own type, instead of size"`
	Image        string   `json:"image,omitempty" doc:"ubuntu-24.04 (default), al2023, or an image ID of the cloud"`
	DiskGiB      int      `json:"diskGiB,omitempty" doc:"Encrypted root disk, 8 to 16384 GiB; 30 by default"`
}

// PoolMode is fixed or asg.
type PoolMode string

// The pool modes.
const (
	PoolFixed PoolMode = "fixed"
	PoolASG   PoolMode = "asg"
)

// Size asks for a machine by what it has.
type Size struct {
	VCPUs     int    `json:"vcpus" doc:"Virtual CPUs"`
	MemoryGiB int    `json:"memoryGiB" doc:"Memory in GiB"`
	Arch      string `json:"arch,omitempty" enum:"amd64,arm64" doc:"amd64 (default) or arm64"`
}

// LoadBalancer asks for a load balancer in front of the VMs.
type LoadBalancer struct {
	Type        string      `json:"type,omitempty" enum:"http,tcp" doc:"http (default): application load balancer; tcp: network load balancer"`
	Scheme      string      `json:"scheme,omitempty" enum:"public,internal" doc:"public (default) or internal"`
	PlainHTTP   bool        `json:"plainHTTP,omitempty" doc:"Serve HTTP without TLS; has to be asked for when no certificate is named"`
	Certificate string      `json:"certificate,omitempty" doc:"The cloud's ID of a certificate (AWS: ACM ARN; GCP: name of an sslCertificate): 443, and a redirect from 80"`
	Port        int         `json:"port,omitempty" doc:"Port on the VMs, 80 by default; for tcp also the listener's port"`
	HealthCheck HealthCheck `json:"healthCheck,omitzero" doc:"How the load balancer asks whether a VM is well"`
	DNS         *DNS        `json:"dns,omitempty" doc:"A record for the load balancer in a zone that you have"`
}

// The load balancer types and schemes.
const (
	LBHTTP         = "http"
	LBTCP          = "tcp"
	SchemePublic   = "public"
	SchemeInternal = "internal"
)

// HealthCheck is how a load balancer asks whether a VM is well.
type HealthCheck struct {
	Path string `json:"path,omitempty" doc:"/healthz by default"`
	Port int    `json:"port,omitempty" doc:"80 by default"`
}

// DNS names a record in an existing zone.
type DNS struct {
	Zone   string `json:"zone" doc:"The zone's name or its ID"`
	Record string `json:"record" doc:"The record's name, relative to the zone; @ for the zone itself"`
}

// Existing names what a create_in_existing job builds in, and never touches.
type Existing struct {
	NetworkID     string   `json:"networkId,omitempty" doc:"The network's ID or name at the cloud. AWS: VPC ID or Name tag; GCP: name; Azure: VNet name or resource ID"`
	SubnetIDs     []string `json:"subnetIds,omitempty" doc:"Private subnets for the VMs and, for a public load balancer, public ones"`
	ResourceGroup string   `json:"resourceGroup,omitempty" doc:"Azure: the resource group to build in"`
}

// Adopt names what an adopt job points at.
type Adopt struct {
	IDs      []string `json:"ids,omitempty" doc:"IDs at the cloud: of instances, or of one network"`
	Name     string   `json:"name,omitempty" doc:"Name of a scaling group"`
	Endpoint string   `json:"endpoint,omitempty" doc:"Not for VMs"`
}

// WithDefaults fills in what the user left out.
func (s VMSpec) WithDefaults(p Provider) VMSpec {
	if s.Bootstrap == "" {
		s.Bootstrap = BootstrapNginx
	}
	s.Pool = s.Pool.withDefaults()
	s.Network = s.Network.withDefaults(p)
	if s.Network.CIDR == "" {
		s.Network.CIDR = "10.40.0.0/16"
	}
	if len(s.Network.Subnets) == 0 {
		s.Network.Subnets = []string{TierPublic, TierPrivate}
	}
	if s.LoadBalancer != nil {
		lb := s.LoadBalancer.WithDefaults()
		s.LoadBalancer = &lb
	}
	return s
}

func (p Pool) withDefaults() Pool {
	if p.Mode == "" {
		p.Mode = PoolFixed
	}
	if p.Mode == PoolFixed && p.Count == 0 {
		p.Count = 2
	}
	if p.Mode == PoolASG {
		one, two := 1, 2
		if p.Min == nil {
			p.Min = &one
		}
		if p.Desired == nil {
			d := max(two, *p.Min)
			if p.Max != nil {
				d = min(d, *p.Max)
			}
			p.Desired = &d
		}
		if p.Max == nil {
			m := max(2**p.Desired, 1)
			p.Max = &m
		}
	}
	if p.InstanceType == "" && p.Size == nil {
		p.Size = &Size{VCPUs: 2, MemoryGiB: 4}
	}
	if p.Size != nil && p.Size.Arch == "" {
		s := *p.Size
		s.Arch = "amd64"
		p.Size = &s
	}
	if p.Image == "" {
		p.Image = "ubuntu-24.04"
	}
	if p.DiskGiB == 0 {
		p.DiskGiB = 30
	}
	return p
}

// WithDefaults fills in what the user left out.
func (l LoadBalancer) WithDefaults() LoadBalancer {
	if l.Type == "" {
		l.Type = LBHTTP
	}
	if l.Scheme == "" {
		l.Scheme = SchemePublic
	}
	if l.Port == 0 {
		l.Port = 80
	}
	if l.HealthCheck.Path == "" {
		l.HealthCheck.Path = "/healthz"
	}
	if l.HealthCheck.Port == 0 {
		l.HealthCheck.Port = 80
	}
	return l
}

// VMCount is how many VMs the pool starts with.
func (p Pool) VMCount() int {
	if p.Mode == PoolASG && p.Desired != nil {
		return *p.Desired
	}
	return p.Count
}

// LoadBalancer is the load balancer that the job should have now: what the spec
// asks for, unless a detach_lb took it off since. Nil: none.
func (j *Job) LoadBalancer() (*LoadBalancer, error) {
	spec, err := j.VMSpec()
	if err != nil || j.Config.InfraConfig.LoadBalancerDetached {
		return nil, err
	}
	return spec.LoadBalancer, nil
}

// URL is where the load balancer answers under a host name.
func (l LoadBalancer) URL(host string) string {
	switch {
	case l.Type == LBTCP:
		return fmt.Sprintf("tcp://%s:%d", host, l.Port)
	case l.Certificate != "":
		return "https://" + host + "/"
	}
	return "http://" + host + "/"
}
