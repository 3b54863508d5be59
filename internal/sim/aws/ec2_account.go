package aws

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"slices"
	"strings"
	"time"
)

// accountDefaults are the settings of an account in a region that change what launches and disks look like.
type accountDefaults struct {
	Encrypt  bool   // new volumes are encrypted
	KmsKeyID string // with this key; empty means the account's own
	Metadata launchMetadata
	Enforced string // of HttpTokens
}

type ebsDefault struct {
	On bool `ec2:"ebsEncryptionByDefault"`
}

func (e *EC2) ebsDefault(change *bool) func(r *request, in struct{}) (any, error) {
	return func(r *request, _ struct{}) (any, error) {
		d := &e.in(r.scope()).Defaults
		if change != nil {
			d.Encrypt = *change
		}
		return ebsDefault{d.Encrypt}, nil
	}
}

type kmsIn struct {
	KmsKeyID string `q:"KmsKeyId"`
}

func (e *EC2) ebsKey(set, reset bool) func(r *request, in kmsIn) (any, error) {
	return func(r *request, in kmsIn) (any, error) {
		sc := e.in(r.scope())
		switch {
		case set && in.KmsKeyID == "":
			return nil, missing("kmsKeyId")
		case set:
			sc.Defaults.KmsKeyID = in.KmsKeyID
		case reset:
			sc.Defaults.KmsKeyID = ""
		}
		return struct {
			Key string `ec2:"kmsKeyId"`
		}{e.diskKey(sc, "")}, nil
	}
}

// diskKey is the ARN of the key that encrypts a disk.
func (e *EC2) diskKey(sc *ec2Scope, id string) string {
	id = textOr(id, sc.Defaults.KmsKeyID)
	if id == "" {
		id = uuidFrom(e.cloud.World, sc.scope().key())
	}
	if strings.HasPrefix(id, "arn:") {
		return id
	}
	return arn("kms", sc.Region, sc.Account, "key/"+strings.TrimPrefix(id, "key/"))
}

type metadataDefaultsIn struct {
	launchMetadata
	Enforced string `q:"HttpTokensEnforced"`
}

func (e *EC2) modifyMetadataDefaults(r *request, in metadataDefaultsIn) (any, error) {
	d := &e.in(r.scope()).Defaults
	set := func(dst *string, v string) {
		switch v {
		case "":
		case "no-preference":
			*dst = ""
		default:
			*dst = v
		}
	}
	set(&d.Metadata.Tokens, in.Tokens)
	set(&d.Metadata.Endpoint, in.Endpoint)
	set(&d.Metadata.Tags, in.launchMetadata.Tags)
	set(&d.Enforced, in.Enforced)
	if in.HopLimit != nil {
		d.Metadata.HopLimit = in.HopLimit
		if *in.HopLimit < 0 { // -1 means no preference
			d.Metadata.HopLimit = nil
		}
	}
	return returned{true}, nil
}

type metadataDefaults struct {
	Tokens   string `ec2:"httpTokens,omitempty"`
	HopLimit *int   `ec2:"httpPutResponseHopLimit"`
	Endpoint string `ec2:"httpEndpoint,omitempty"`
	Tags     string `ec2:"instanceMetadataTags,omitempty"`
	Enforced string `ec2:"httpTokensEnforced,omitempty"`
	Managed  string `ec2:"managedBy"`
}

func (e *EC2) getMetadataDefaults(r *request, _ struct{}) (any, error) {
	d := e.in(r.scope()).Defaults
	return struct {
		Level metadataDefaults `ec2:"accountLevel"`
	}{metadataDefaults{d.Metadata.Tokens, d.Metadata.HopLimit, d.Metadata.Endpoint, d.Metadata.Tags, d.Enforced, "account"}}, nil
}

// refuseUnenforced refuses a launch without IMDSv2 where the account demands it ("Enforce the use of IMDSv2 at account
// level", Amazon EC2 user guide).
func (sc *ec2Scope) refuseUnenforced(m metadataOptions) error {
	if sc.Defaults.Enforced == "enabled" && m.Tokens != "required" {
		return refuse("HttpTokensEnforced", "You can't launch instances with IMDSv1 because httpTokensEnforced is enabled for this account. Either launch the instance with httpTokens=required or contact your account owner to disable httpTokensEnforced")
	}
	return nil
}

type accountAttribute struct {
	Name   string `ec2:"attributeName"`
	Values []struct {
		Value string `ec2:"attributeValue"`
	} `ec2:"attributeValueSet"`
}

type accountAttributesIn struct {
	Name []string `q:"AttributeName"`
}

func (e *EC2) describeAccountAttributes(r *request, in accountAttributesIn) (any, error) {
	sc := e.in(r.scope())
	home := "none"
	for _, v := range sc.Vpcs {
		if v.IsDefault {
			home = v.VpcID
		}
	}
	var out []accountAttribute
	for _, kv := range [][2]string{{"supported-platforms", "VPC"}, {"vpc-max-security-groups-per-interface", "5"}, {"max-elastic-ips", "5"}, {"max-instances", "20"},
		{"vpc-max-elastic-ips", "5"}, {"default-vpc", home}} {
		if len(in.Name) > 0 && !slices.Contains(in.Name, kv[0]) {
			continue
		}
		a := accountAttribute{Name: kv[0]}
		a.Values = append(a.Values, struct {
			Value string `ec2:"attributeValue"`
		}{kv[1]})
		out = append(out, a)
	}
	return struct {
		Attributes []accountAttribute `ec2:"accountAttributeSet"`
	}{out}, nil
}

type dhcpOption struct {
	Key    string `ec2:"key"`
	Values []struct {
		Value string `ec2:"value"`
	} `ec2:"valueSet"`
}

type dhcpOptions struct {
	ID      string       `ec2:"dhcpOptionsId"`
	OwnerID string       `ec2:"ownerId"`
	Options []dhcpOption `ec2:"dhcpConfigurationSet"`
	Tags    []Tag        `ec2:"tagSet"`
}

type describeDhcpIn struct {
	ID []string `q:"DhcpOptionsId"`
	page
}

func (e *EC2) describeDhcp(r *request, in describeDhcpIn) (any, error) {
	sc := e.in(r.scope())
	for _, id := range in.ID {
		if id != sc.DhcpOptionsID {
			return nil, refuse("InvalidDhcpOptionID.NotFound", "The dhcpOption ID '%s' does not exist", id)
		}
	}
	domain := r.Region + ".compute.internal"
	if r.Region == "us-east-1" {
		domain = "ec2.internal"
	}
	d := dhcpOptions{ID: sc.DhcpOptionsID, OwnerID: sc.Account}
	for _, kv := range [][2]string{{"domain-name", domain}, {"domain-name-servers", "AmazonProvidedDNS"}} {
		o := dhcpOption{Key: kv[0]}
		o.Values = append(o.Values, struct {
			Value string `ec2:"value"`
		}{kv[1]})
		d.Options = append(d.Options, o)
	}
	keep, err := filterMap(map[string]string{"dhcp-options-id": d.ID, "owner-id": d.OwnerID}, in.Filter)
	out := []dhcpOptions{}
	if keep {
		out = append(out, d)
	}
	return struct {
		Options []dhcpOptions `ec2:"dhcpOptionsSet"`
	}{out}, err
}

type prefixList struct {
	ID    string   `ec2:"prefixListId"`
	Name  string   `ec2:"prefixListName"`
	Cidrs []string `ec2:"cidrSet"`
}

type describePrefixIn struct {
	ID []string `q:"PrefixListId"`
	page
}

func (e *EC2) describePrefixLists(r *request, in describePrefixIn) (any, error) {
	var out []prefixList
	for _, p := range []prefixList{
		{"pl-63a5400a", "com.amazonaws." + r.Region + ".s3", []string{"54.231.0.0/16", "52.216.0.0/15"}},
		{"pl-02cd2c6b", "com.amazonaws." + r.Region + ".dynamodb", []string{"52.94.0.0/22", "52.119.224.0/20"}},
	} {
		keep, err := filterMap(map[string]string{"prefix-list-id": p.ID, "prefix-list-name": p.Name}, in.Filter)
		if err != nil {
			return nil, err
		}
		if keep && (len(in.ID) == 0 || slices.Contains(in.ID, p.ID)) {
			out = append(out, p)
		}
	}
	items, next, err := paginate(e.cloud, r, out, in.page, 1, 1000)
	return struct {
		Lists []prefixList `ec2:"prefixListSet"`
		Next  string       `ec2:"nextToken,omitempty"`
	}{items, next}, err
}

type endpointService struct {
	Name  string `ec2:"serviceName"`
	ID    string `ec2:"serviceId"`
	Types []struct {
		Type string `ec2:"serviceType"`
	} `ec2:"serviceType"`
	Region     string   `ec2:"serviceRegion"`
	Zones      []string `ec2:"availabilityZoneSet"`
	Owner      string   `ec2:"owner"`
	BaseNames  []string `ec2:"baseEndpointDnsNameSet"`
	Policy     bool     `ec2:"vpcEndpointPolicySupported"`
	Acceptance bool     `ec2:"acceptanceRequired"`
	Manages    bool     `ec2:"managesVpcEndpoints"`
	Tags       []Tag    `ec2:"tagSet"`
}

type describeServicesIn struct {
	ServiceName []string
	page
}

func (e *EC2) describeEndpointServices(r *request, in describeServicesIn) (any, error) {
	var all []endpointService
	offer := func(short, kind string) {
		s := endpointService{Name: "com.amazonaws." + r.Region + "." + short, ID: "vpce-svc-0" + hexOf(r.Region+short+kind, 16), Region: r.Region,
			Owner: "amazon", BaseNames: []string{short + "." + r.Region + ".amazonaws.com"}, Policy: true}
		s.Types = append(s.Types, struct {
			Type string `ec2:"serviceType"`
		}{kind})
		for _, z := range zonesOf(r.Region) {
			s.Zones = append(s.Zones, z.Name)
		}
		all = append(all, s)
	}
	offer("dynamodb", "Gateway")
	offer("s3", "Gateway")
	for _, short := range interfaceServices {
		offer(short, "Interface")
	}
	for _, n := range in.ServiceName {
		if !slices.ContainsFunc(all, func(s endpointService) bool { return s.Name == n }) {
			return nil, refuse("InvalidServiceName", "The Vpc Endpoint Service '%s' does not exist", n)
		}
	}
	var err error
	all = slices.DeleteFunc(all, func(s endpointService) bool {
		keep, ferr := filterMap(map[string]string{"service-name": s.Name, "service-type": s.Types[0].Type, "owner": "amazon", "service-region": r.Region}, in.Filter)
		if ferr != nil {
			err = ferr
		}
		return !keep || len(in.ServiceName) > 0 && !slices.Contains(in.ServiceName, s.Name)
	})
	var names []string
	for _, s := range all {
		if !slices.Contains(names, s.Name) {
			names = append(names, s.Name)
		}
	}
	return struct {
		Names   []string          `ec2:"serviceNameSet"`
		Details []endpointService `ec2:"serviceDetailSet"`
	}{names, all}, err
}

// hexOf is an identifier that follows from a text.
func hexOf(text string, n int) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])[:n]
}

type groupForVpc struct {
	Description string `ec2:"description"`
	GroupID     string `ec2:"groupId"`
	GroupName   string `ec2:"groupName"`
	OwnerID     string `ec2:"ownerId"`
	VpcID       string `ec2:"primaryVpcId"`
	Tags        []Tag  `ec2:"tagSet"`
}

type groupsForVpcIn struct {
	VpcID string `q:"VpcId"`
	page
}

func (e *EC2) groupsForVpc(r *request, in groupsForVpcIn) (any, error) {
	sc := e.in(r.scope())
	v, err := sc.vpc(in.VpcID)
	if err != nil {
		return nil, err
	}
	own := map[string]*SecurityGroup{}
	for id, g := range sc.Groups {
		if g.VpcID == v.VpcID {
			own[id] = g
		}
	}
	found, err := find(e, r, own, nil, in.Filter, noGroup)
	if err != nil {
		return nil, err
	}
	items, next, err := paginate(e.cloud, r, found, in.page, 5, 1000)
	out := []groupForVpc{}
	for _, g := range items {
		out = append(out, groupForVpc{g.Description, g.GroupID, g.GroupName, g.OwnerID, g.VpcID, g.Tags})
	}
	return struct {
		Groups []groupForVpc `ec2:"securityGroupForVpcSet"`
		Next   string        `ec2:"nextToken,omitempty"`
	}{out, next}, err
}

type consoleIn struct {
	InstanceID string `q:"InstanceId"`
	Latest     bool
}

// consoleOutput is what the machine has printed: here, the end of cloud-init's output.
func (e *EC2) consoleOutput(r *request, in consoleIn) (any, error) {
	sc := e.in(r.scope())
	found, err := sc.instances([]string{in.InstanceID})
	if err != nil {
		return nil, err
	}
	text := ""
	if g := sc.Guests[found[0].InstanceID]; g != nil && !g.Dead {
		text = g.Machine.Tail("/var/log/cloud-init-output.log", 200)
	}
	return struct {
		InstanceID string    `ec2:"instanceId"`
		Output     string    `ec2:"output"`
		Timestamp  time.Time `ec2:"timestamp"`
	}{in.InstanceID, base64.StdEncoding.EncodeToString([]byte(text)), e.cloud.World.Now().Truncate(time.Second)}, nil
}
