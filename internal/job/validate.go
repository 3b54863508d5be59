package job

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// A FieldError is one thing wrong with a request, and how to put it right.
type FieldError struct {
	Field   string `json:"field"`   // JSON path, such as config.spec.pool.count
	Message string `json:"message"` // what is wrong
	Fix     string `json:"fix"`     // what to do
}

// Invalid is a request that is refused: everything wrong with it at once.
type Invalid struct{ Fields []FieldError }

func (e *Invalid) Error() string {
	var parts []string
	for _, f := range e.Fields {
		parts = append(parts, fmt.Sprintf("%s: %s; %s", f.Field, f.Message, f.Fix))
	}
	return strings.Join(parts, "\n")
}

func (e *Invalid) add(field, message, fix string) {
	e.Fields = append(e.Fields, FieldError{field, message, fix})
}

func (e *Invalid) orNil() error {
	if len(e.Fields) == 0 {
		return nil
	}
	return e
}

var (
	nameRE   = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`)
	regionRE = regexp.MustCompile(`^[a-z][a-z0-9-]{1,40}$`)
	recordRE = regexp.MustCompile(`^(@|(\*\.)?[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9])?)*)$`)
	typeRE   = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,62}$`)
	amiRE    = regexp.MustCompile(`^ami-[0-9a-f]{8,17}$`)
)

// VMSpec decodes the spec of a VM job, with defaults filled in. A field that
// the schema does not have is an *Invalid that names it.
func (j *Job) VMSpec() (VMSpec, error) {
	var s VMSpec
	if len(j.Config.Spec) == 0 {
		return s.WithDefaults(), nil
	}
	d := json.NewDecoder(bytes.NewReader(j.Config.Spec))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return s, decodeError(err)
	}
	if err := explicitZeros(j.Config.Spec); err != nil {
		return s, err
	}
	return s.WithDefaults(), nil
}

// explicitZeros refuses a 0 that was written out where leaving the field out
// means a default: nobody who asks for no VMs wants two.
func explicitZeros(raw json.RawMessage) error {
	type number struct {
		field string
		value *int
	}
	var z struct {
		Pool         struct{ Count, DiskGiB *int }
		Network      struct{ Zones *int }
		LoadBalancer struct {
			Port        *int
			HealthCheck struct{ Port *int }
		}
	}
	if err := json.Unmarshal(raw, &z); err != nil {
		return decodeError(err)
	}
	var inv Invalid
	for _, n := range []number{
		{"pool.count", z.Pool.Count}, {"pool.diskGiB", z.Pool.DiskGiB}, {"network.zones", z.Network.Zones},
		{"loadBalancer.port", z.LoadBalancer.Port}, {"loadBalancer.healthCheck.port", z.LoadBalancer.HealthCheck.Port},
	} {
		if n.value != nil && *n.value == 0 {
			inv.add("config.spec."+n.field, "is 0", "use 1 or more, or leave it out for the default")
		}
	}
	return inv.orNil()
}

func decodeError(err error) error {
	var inv Invalid
	var te *json.UnmarshalTypeError
	switch {
	case errors.As(err, &te):
		field, want := "config.spec", "JSON object"
		if te.Field != "" {
			field, want = field+"."+te.Field, te.Type.String()
		}
		if te.Type.Kind() == reflect.Struct {
			want = "JSON object"
		}
		inv.add(field, "is of type "+te.Value, "give a "+want)
	case strings.HasPrefix(err.Error(), "json: unknown field "):
		name := strings.Trim(strings.TrimPrefix(err.Error(), "json: unknown field "), `"`)
		inv.add("config.spec."+name, "is not a field of this resource type's spec", "leave it out, or see the schema at /docs")
	default:
		inv.add("config.spec", "is not a JSON object", "send an object")
	}
	return &inv
}

// Validate checks everything about a request that needs no cloud: one error a
// mistake, all of them at once. What only the cloud can say, stepValidate asks.
func (j *Job) Validate() error {
	var inv Invalid
	if !nameRE.MatchString(j.Name) {
		inv.add("name", fmt.Sprintf("%q is not a name", j.Name), "use 1 to 63 of a-z, 0-9 and hyphen, starting with a letter and not ending with a hyphen")
	}
	if j.Kind != Provisioning {
		inv.add("kind", fmt.Sprintf("%q cannot be created here", j.Kind), `use "provisioning"`)
	}
	if !slices.Contains([]Mode{ModeCreate, ModeCreateInExisting, ModeAdopt}, j.Mode) {
		inv.add("mode", fmt.Sprintf("%q is not a mode", j.Mode), "use create, create_in_existing or adopt")
	}
	if !regionRE.MatchString(j.Region) {
		inv.add("region", fmt.Sprintf("%q is not a region's name", j.Region), "give the cloud's own name, such as us-east-1")
	}
	if j.Provider == AWS && regionRE.MatchString(j.Region) {
		if message, fix := awsRegionFault(j.Region); message != "" {
			inv.add("region", message, fix)
		}
	}
	j.validateLabels(&inv)
	if j.ResourceType != VM {
		inv.add("resourceType", fmt.Sprintf("%q is not a resource type that this version provisions", j.ResourceType), `use "vm"`)
		return &inv
	}
	if j.Provider != AWS {
		inv.add("provider", fmt.Sprintf("%q does not provision VMs in this version", j.Provider), `use "aws"`)
		return &inv
	}
	spec, err := j.VMSpec()
	var bad *Invalid
	if errors.As(err, &bad) {
		inv.Fields = append(inv.Fields, bad.Fields...)
		return &inv
	}
	j.validateVM(spec, &inv)
	return inv.orNil()
}

func (j *Job) validateLabels(inv *Invalid) {
	if len(j.Labels) > 40 {
		inv.add("labels", fmt.Sprintf("there are %d", len(j.Labels)), "use 40 at most: clouds take 50 a resource, and the rest are ours")
	}
	for k, v := range j.Labels {
		field := "labels." + k
		switch {
		case k == "" || len(k) > 63:
			inv.add(field, "the key has "+fmt.Sprint(len(k))+" characters", "use 1 to 63")
		// Only the prefix "aws:" is reserved, in any case; aws_team and awsx are fine.
		case strings.HasPrefix(strings.ToLower(k), "aws:"):
			inv.add(field, "the prefix aws: belongs to the cloud", "choose another key")
		case strings.HasPrefix(strings.ToLower(k), MarkPrefix) || k == "Name":
			inv.add(field, "is reserved for the provisioner's own marks", "choose another key")
		case len(v) > 255:
			inv.add(field, fmt.Sprintf("the value has %d characters", len(v)), "use 255 at most")
		case !printable(k) || !printable(v):
			inv.add(field, "has characters that not every cloud takes in a tag", "use letters, digits, spaces and _ . : / = + - @")
		}
	}
}

func printable(s string) bool {
	for _, r := range s {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(" _.:/=+-@", r)) {
			return false
		}
	}
	return true
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
		if s.Existing == nil || len(s.Existing.SubnetIDs) == 0 {
			inv.add(at+"existing.subnetIds", "is missing", "name the subnets to build in, the VMs' private ones first")
		}
	default:
		if s.Existing != nil {
			inv.add(at+"existing", "is only for mode create_in_existing", "change the mode or leave it out")
		}
		validateNetwork(s.Network, inv)
	}
	if s.Adopt != nil {
		inv.add(at+"adopt", "is only for mode adopt", "change the mode or leave it out")
	}
	if s.Bootstrap != BootstrapNginx && s.Bootstrap != BootstrapBare {
		inv.add(at+"bootstrap", fmt.Sprintf("%q is not a bootstrap", s.Bootstrap), "use docker_nginx or bare_metal")
	}
	validatePool(s.Pool, inv)
	if s.LoadBalancer != nil {
		for _, f := range s.LoadBalancer.Validate() {
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

func validatePool(p Pool, inv *Invalid) {
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
	if p.InstanceType != "" && !typeRE.MatchString(p.InstanceType) {
		inv.add(at+"instanceType", fmt.Sprintf("%q is not an instance type's name", p.InstanceType), "use one such as t3.medium")
	}
	if s := p.Size; s != nil {
		if s.VCPUs < 1 || s.VCPUs > 192 || s.MemoryGiB < 1 || s.MemoryGiB > 1536 {
			inv.add(at+"size", fmt.Sprintf("%d vCPUs with %d GiB is outside what can be asked for", s.VCPUs, s.MemoryGiB), "use 1 to 192 vCPUs and 1 to 1536 GiB, or an instanceType")
		}
		if s.Arch != "amd64" && s.Arch != "arm64" {
			inv.add(at+"size.arch", fmt.Sprintf("%q is not an architecture", s.Arch), "use amd64 or arm64")
		}
	}
	if p.DiskGiB < 8 || p.DiskGiB > 16384 {
		inv.add(at+"diskGiB", fmt.Sprintf("is %d", p.DiskGiB), "use 8 to 16384")
	}
	if p.Image != "ubuntu-24.04" && p.Image != "al2023" && !amiRE.MatchString(p.Image) {
		inv.add(at+"image", fmt.Sprintf("%q is not an image", p.Image), "use ubuntu-24.04, al2023 or an image ID such as ami-0123456789abcdef0")
	}
}

func validateNetwork(n NetworkSpec, inv *Invalid) {
	const at = "config.spec.network."
	p, err := netip.ParsePrefix(n.CIDR)
	switch {
	case err != nil || !p.Addr().Is4():
		inv.add(at+"cidr", fmt.Sprintf("%q is not an IPv4 range", n.CIDR), "use one such as 10.40.0.0/16")
	case p.Masked() != p:
		inv.add(at+"cidr", fmt.Sprintf("%s has host bits set", n.CIDR), "use "+p.Masked().String())
	// A VPC takes /16 to /28; below /24 the subnets of three zones no longer
	// hold a load balancer (8 free addresses each) beside the VMs.
	case p.Bits() < 16 || p.Bits() > 24:
		inv.add(at+"cidr", fmt.Sprintf("%s is a /%d", n.CIDR, p.Bits()), "use a /16 to /24, so that the subnets of every zone fit")
	case !privateRange(p):
		inv.add(at+"cidr", n.CIDR+" is not a private range", "use a part of 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16 or 100.64.0.0/10")
	case p.Overlaps(netip.MustParsePrefix("172.17.0.0/16")):
		inv.add(at+"cidr", n.CIDR+" overlaps 172.17.0.0/16, which Docker uses inside the VMs", "use another range")
	}
	if n.Zones < 2 || n.Zones > 3 {
		inv.add(at+"zones", fmt.Sprintf("is %d", n.Zones), "use 2 or 3")
	}
	if n.NAT != NATSingle && n.NAT != NATPerZone {
		inv.add(at+"nat", fmt.Sprintf("%q is not a NAT shape; VMs without egress cannot install anything", n.NAT), "use single or per_zone")
	}
}

func privateRange(p netip.Prefix) bool {
	for _, r := range []string{"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10"} {
		pr := netip.MustParsePrefix(r)
		if pr.Contains(p.Addr()) && p.Bits() >= pr.Bits() {
			return true
		}
	}
	return false
}

// Validate checks a load balancer's fields, with paths relative to the spec.
// Defaults have to be filled in before.
func (l LoadBalancer) Validate() []FieldError {
	var inv Invalid
	const at = "loadBalancer."
	if l.Type != LBHTTP && l.Type != LBTCP {
		inv.add(at+"type", fmt.Sprintf("%q is not a load balancer type", l.Type), "use http or tcp")
	}
	if l.Scheme != SchemePublic && l.Scheme != SchemeInternal {
		inv.add(at+"scheme", fmt.Sprintf("%q is not a scheme", l.Scheme), "use public or internal")
	}
	if l.Type == LBHTTP && l.Certificate == "" && !l.PlainHTTP {
		inv.add(at+"certificate", "is missing, and HTTP without TLS has to be asked for by name", "name a certificate, or set plainHTTP: true")
	}
	if l.Certificate != "" && l.PlainHTTP {
		inv.add(at+"plainHTTP", "a certificate is named too", "leave one of them out: with a certificate, port 80 redirects to 443")
	}
	if l.Certificate != "" && !strings.HasPrefix(l.Certificate, "arn:") {
		inv.add(at+"certificate", fmt.Sprintf("%q is not an ARN", l.Certificate), "give the certificate's ARN from ACM")
	}
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
