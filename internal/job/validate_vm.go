package job

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

var recordRE = regexp.MustCompile(`^(@|(\*\.)?[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9])?)*)$`)

// forms are the shapes of what a VM spec names at each cloud.
var forms = map[Provider]struct {
	instanceType, image       *regexp.Regexp
	images                    []string // by our own names
	typeExample, imageExample string
}{
	AWS: {
		instanceType: regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,62}$`), typeExample: "t3.medium",
		images: []string{"ubuntu-24.04", "al2023"}, image: regexp.MustCompile(`^ami-[0-9a-f]{8,17}$`), imageExample: "an image ID such as ami-0123456789abcdef0",
	},
	GCP: {
		instanceType: regexp.MustCompile(`^[a-z][a-z0-9-]{1,62}$`), typeExample: "e2-medium",
		images: []string{"ubuntu-24.04"}, image: regexp.MustCompile(`^(projects/[a-z][a-z0-9:.-]*/global/images/(family/)?)?[a-z][a-z0-9-]{0,62}$`),
		imageExample: "an image such as projects/debian-cloud/global/images/family/debian-13",
	},
	Azure: {
		instanceType: regexp.MustCompile(`^(Standard|Basic)_[A-Za-z0-9_-]{1,60}$`), typeExample: "Standard_D2s_v5",
		images: []string{"ubuntu-24.04"}, image: regexp.MustCompile(`^([A-Za-z0-9._-]+:){3}[A-Za-z0-9._-]+$|^/subscriptions/[^ ]+$`),
		imageExample: "publisher:offer:sku:version",
	},
}

func (j *Job) validateVM(s VMSpec, inv *Invalid) {
	const at = "config.spec."
	switch j.Mode {
	case ModeAdopt:
		if s.Adopt == nil || (len(s.Adopt.IDs) == 0) == (s.Adopt.Name == "") {
			inv.add(at+"adopt", "does not say what to adopt", "give either ids (instances) or name (a scaling group)")
		} else if s.Adopt.Endpoint != "" {
			inv.add(at+"adopt.endpoint", "is not a way to name VMs", "give ids or name")
		} else {
			for i, id := range s.Adopt.IDs {
				j.validateARNRegion(id, fmt.Sprintf("%sadopt.ids[%d]", at, i), inv)
			}
			j.validateARNRegion(s.Adopt.Name, at+"adopt.name", inv)
		}
		if s.LoadBalancer != nil {
			inv.add(at+"loadBalancer", "an adopt job makes nothing", "leave it out")
		}
		return
	case ModeCreateInExisting:
		if s.Existing == nil || s.Existing.NetworkID == "" {
			inv.add(at+"existing.networkId", "is missing", "name the network to build in")
		}
		if (s.Existing == nil || len(s.Existing.SubnetIDs) == 0) && j.Provider == AWS {
			inv.add(at+"existing.subnetIds", "is missing", "name the subnets to build in, the VMs' private ones first")
		}
	default:
		if s.Existing != nil {
			inv.add(at+"existing", "is only for mode create_in_existing", "change the mode or leave it out")
		}
		j.validateVMNetwork(s.Network, inv)
	}
	if s.Adopt != nil {
		inv.add(at+"adopt", "is only for mode adopt", "change the mode or leave it out")
	}
	if s.Bootstrap != BootstrapNginx && s.Bootstrap != BootstrapBare {
		inv.add(at+"bootstrap", fmt.Sprintf("%q is not a bootstrap", s.Bootstrap), "use docker_nginx or bare_metal")
	}
	j.validatePool(s.Pool, inv)
	if s.LoadBalancer != nil {
		for _, f := range s.LoadBalancer.Validate(j.Provider) {
			f.Field = at + f.Field
			inv.Fields = append(inv.Fields, f)
		}
	}
}

// validateARNRegion refuses an ARN of another region than the job's: an adopt
// that reads one region and later acts in another is how things get lost.
func (j *Job) validateARNRegion(id, field string, inv *Invalid) {
	parts := strings.SplitN(id, ":", 6)
	if len(parts) == 6 && parts[0] == "arn" && parts[3] != "" && parts[3] != j.Region {
		inv.add(field, fmt.Sprintf("is in %s, and the job is in %s", parts[3], j.Region), "make the job in the region of what it adopts")
	}
}

func (j *Job) validatePool(p Pool, inv *Invalid) {
	const at = "config.spec.pool."
	switch p.Mode {
	case PoolFixed:
		if p.Count < 1 || p.Count > 100 {
			inv.add(at+"count", fmt.Sprintf("is %d", p.Count), "use 1 to 100")
		}
		if p.Min != nil || p.Max != nil || p.Desired != nil {
			inv.add(at+"min", "min, desired and max are for pool mode asg", "use count, or mode asg")
		}
	case PoolASG:
		if p.Count != 0 {
			inv.add(at+"count", "is for pool mode fixed", "use min, desired and max")
		}
		if *p.Min < 0 || *p.Desired < *p.Min || *p.Max < *p.Desired || *p.Max < 1 || *p.Max > 1000 {
			inv.add(at+"desired", fmt.Sprintf("min %d, desired %d, max %d are not in order", *p.Min, *p.Desired, *p.Max), "use 0 <= min <= desired <= max <= 1000 and max of 1 or more")
		}
	default:
		inv.add(at+"mode", fmt.Sprintf("%q is not a pool mode", p.Mode), "use fixed or asg")
	}
	if p.InstanceType != "" && p.Size != nil {
		inv.add(at+"size", "size and instanceType are both given", "give one of them")
	}
	form := forms[j.Provider]
	if p.InstanceType != "" && !form.instanceType.MatchString(p.InstanceType) {
		inv.add(at+"instanceType", fmt.Sprintf("%q is not an instance type's name", p.InstanceType), "use one such as "+form.typeExample)
	}
	if p.Size != nil {
		validateSize(*p.Size, at, inv)
	}
	if p.DiskGiB < 8 || p.DiskGiB > 16384 {
		inv.add(at+"diskGiB", fmt.Sprintf("is %d", p.DiskGiB), "use 8 to 16384")
	}
	if p.Image == "al2023" && j.Provider != AWS {
		inv.add(at+"image", "Amazon Linux is an image of AWS", "use "+strings.Join(form.images, ", ")+" or "+form.imageExample)
	} else if !slices.Contains(form.images, p.Image) && !form.image.MatchString(p.Image) {
		inv.add(at+"image", fmt.Sprintf("%q is not an image", p.Image), "use "+strings.Join(form.images, ", ")+" or "+form.imageExample)
	}
}

func validateSize(s Size, at string, inv *Invalid) {
	if s.VCPUs < 1 || s.VCPUs > 192 || s.MemoryGiB < 1 || s.MemoryGiB > 1536 {
		inv.add(at+"size", fmt.Sprintf("%d vCPUs with %d GiB is outside what can be asked for", s.VCPUs, s.MemoryGiB), "use 1 to 192 vCPUs and 1 to 1536 GiB, or an instanceType")
	}
	if s.Arch != "amd64" && s.Arch != "arm64" {
		inv.add(at+"size.arch", fmt.Sprintf("%q is not an architecture", s.Arch), "use amd64 or arm64")
	}
}

// Validate checks a load balancer's fields, with paths relative to the spec.
// Defaults have to be filled in before.
func (l LoadBalancer) Validate(p Provider) []FieldError {
	var inv Invalid
	const at = "loadBalancer."
	if l.Type != LBHTTP && l.Type != LBTCP {
		inv.add(at+"type", fmt.Sprintf("%q is not a load balancer type", l.Type), "use http or tcp")
	}
	if l.Scheme != SchemePublic && l.Scheme != SchemeInternal {
		inv.add(at+"scheme", fmt.Sprintf("%q is not a scheme", l.Scheme), "use public or internal")
	}
	if l.Type == LBHTTP && l.Certificate == "" && !l.PlainHTTP {
		fix := "name a certificate, or set plainHTTP: true"
		if p == Azure { // its load balancer holds no certificate
			fix = "set plainHTTP: true, or serve TLS on the VMs with type tcp and port 443"
		}
		inv.add(at+"certificate", "is missing, and HTTP without TLS has to be asked for by name", fix)
	}
	if l.Certificate != "" && l.PlainHTTP {
		inv.add(at+"plainHTTP", "a certificate is named too", "leave one of them out: with a certificate, port 80 redirects to 443")
	}
	certificateFault(p, l.Certificate, &inv)
	for _, p := range []struct {
		field string
		port  int
	}{{"port", l.Port}, {"healthCheck.port", l.HealthCheck.Port}} {
		if p.port < 1 || p.port > 65535 {
			inv.add(at+p.field, fmt.Sprintf("is %d", p.port), "use 1 to 65535")
		} else if p.port == 22 {
			inv.add(at+p.field, "is 22, and port 22 is never opened", "use the port that your service listens on")
		}
	}
	if !strings.HasPrefix(l.HealthCheck.Path, "/") || len(l.HealthCheck.Path) > 1024 || strings.ContainsAny(l.HealthCheck.Path, " \t\n#") {
		inv.add(at+"healthCheck.path", fmt.Sprintf("%.60q is not a path", l.HealthCheck.Path), "use one such as /healthz")
	}
	if d := l.DNS; d != nil {
		if d.Zone == "" {
			inv.add(at+"dns.zone", "is missing", "give the zone's name or ID, or leave dns out")
		}
		if !recordRE.MatchString(strings.ToLower(d.Record)) {
			inv.add(at+"dns.record", fmt.Sprintf("%q is not a record name", d.Record), "use a name relative to the zone such as shop, or @ for the zone itself")
		}
	}
	return inv.Fields
}

// certificateFault says what is wrong with how a certificate is named.
func certificateFault(p Provider, certificate string, inv *Invalid) {
	const field = "loadBalancer.certificate"
	switch {
	case certificate == "":
	case p == AWS && !strings.HasPrefix(certificate, "arn:"):
		inv.add(field, fmt.Sprintf("%q is not an ARN", certificate), "give the certificate's ARN from ACM")
	case p == GCP && !gcpCertificateRE.MatchString(certificate):
		inv.add(field, fmt.Sprintf("%q is not a certificate's name", certificate), "give the name of an SSL certificate of the project, or projects/P/global/sslCertificates/N")
	case p == Azure:
		inv.add(field, "Azure's Standard load balancer passes TCP on and holds no certificate", "serve TLS on the VMs with type tcp and port 443, or set plainHTTP: true instead")
	}
}

var gcpCertificateRE = regexp.MustCompile(`^([a-z][a-z0-9-]{0,62}|(https://[a-z.]+/compute/v1/)?projects/[a-z][a-z0-9:.-]*/(global|regions/[a-z0-9-]+)/sslCertificates/[a-z][a-z0-9-]{0,62})$`)
