package aws

import (
	"strconv"
	"time"
)

type stateCode struct {
	Code int    `ec2:"code"`
	Name string `ec2:"name"`
}

var stateCodes = map[string]int{"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48, "stopping": 64, "stopped": 80}

func codeOf(name string) stateCode { return stateCode{stateCodes[name], name} }

type reason struct {
	Code    string `ec2:"code"`
	Message string `ec2:"message"`
}

type instancePlacement struct {
	Zone    string `ec2:"availabilityZone"`
	ZoneID  string `ec2:"availabilityZoneId"`
	Group   string `ec2:"groupName"`
	Tenancy string `ec2:"tenancy"`
}

type attachedVolume struct {
	DeviceName string `ec2:"deviceName"`
	Ebs        struct {
		VolumeID   string    `ec2:"volumeId"`
		Status     string    `ec2:"status"`
		AttachTime time.Time `ec2:"attachTime"`
		Delete     bool      `ec2:"deleteOnTermination"`
	} `ec2:"ebs"`
}

type shownProfile struct {
	Arn string `ec2:"arn"`
	ID  string `ec2:"id"`
}

type metadataOptions struct {
	State    string `ec2:"state"`
	Tokens   string `ec2:"httpTokens"`
	HopLimit int    `ec2:"httpPutResponseHopLimit"`
	Endpoint string `ec2:"httpEndpoint"`
	Ipv6     string `ec2:"httpProtocolIpv6"`
	Tags     string `ec2:"instanceMetadataTags"`
}

// Instance is a virtual machine.
type Instance struct {
	InstanceID       string            `ec2:"instanceId"`
	ImageID          string            `ec2:"imageId"`
	Status           stateCode         `ec2:"instanceState"`
	PrivateDNSName   string            `ec2:"privateDnsName"`
	PublicDNSName    string            `ec2:"dnsName"`
	TransitionReason string            `ec2:"reason"`
	KeyName          string            `ec2:"keyName,omitempty"`
	LaunchIndex      int               `ec2:"amiLaunchIndex"`
	ProductCodes     []struct{}        `ec2:"productCodes"`
	InstanceType     string            `ec2:"instanceType"`
	LaunchTime       time.Time         `ec2:"launchTime"`
	Placement        instancePlacement `ec2:"placement"`
	Monitoring       struct {
		State string `ec2:"state"`
	} `ec2:"monitoring"`
	SubnetID        string           `ec2:"subnetId,omitempty"`
	VpcID           string           `ec2:"vpcId,omitempty"`
	PrivateIP       string           `ec2:"privateIpAddress,omitempty"`
	PublicIP        string           `ec2:"ipAddress,omitempty"`
	SourceDestCheck *bool            `ec2:"sourceDestCheck"`
	Groups          []groupRef       `ec2:"groupSet"`
	StateReason     *reason          `ec2:"stateReason"`
	Architecture    string           `ec2:"architecture"`
	RootType        string           `ec2:"rootDeviceType"`
	RootName        string           `ec2:"rootDeviceName"`
	Devices         []attachedVolume `ec2:"blockDeviceMapping"`
	Virtualization  string           `ec2:"virtualizationType"`
	ClientToken     string           `ec2:"clientToken"`
	Hypervisor      string           `ec2:"hypervisor"`
	Profile         *shownProfile    `ec2:"iamInstanceProfile"`
	EbsOptimized    bool             `ec2:"ebsOptimized"`
	Ena             bool             `ec2:"enaSupport"`
	CPU             struct {
		Cores   int `ec2:"coreCount"`
		Threads int `ec2:"threadsPerCore"`
	} `ec2:"cpuOptions"`
	Capacity struct {
		Preference string `ec2:"capacityReservationPreference"`
	} `ec2:"capacityReservationSpecification"`
	Hibernation struct {
		Configured bool `ec2:"configured"`
	} `ec2:"hibernationOptions"`
	Metadata metadataOptions `ec2:"metadataOptions"`
	Enclave  struct {
		Enabled bool `ec2:"enabled"`
	} `ec2:"enclaveOptions"`
	BootMode    string     `ec2:"bootMode,omitempty"`
	CurrentBoot string     `ec2:"currentInstanceBootMode,omitempty"`
	Platform    string     `ec2:"platformDetails"`
	Usage       string     `ec2:"usageOperation"`
	UsageTime   time.Time  `ec2:"usageOperationUpdateTime"`
	PrivateDNS  privateDNS `ec2:"privateDnsNameOptions"`
	Maintenance struct {
		AutoRecovery string `ec2:"autoRecovery"`
	} `ec2:"maintenanceOptions"`
	Lifecycle string   `ec2:"instanceLifecycle,omitempty"`
	Operator  operator `ec2:"operator"`
	meta

	ReservationID         string
	RequesterID           string
	UserData              string
	DisableApiTermination bool
	DisableApiStop        bool
	ShutdownBehavior      string
	ProfileAssociation    string
	ProfileName           string
	RunningSince          time.Time
}

func (i *Instance) ident() string { return i.InstanceID }
func (i *Instance) kind() string  { return "instance" }
func (i *Instance) placed() place {
	return place{i.Status.Name, []string{i.VpcID, i.SubnetID}, i.Status.Name == "terminated"}
}

func (i *Instance) attr(name string) ([]string, bool) {
	var ids, names, volumes []string
	for _, g := range i.Groups {
		ids, names = append(ids, g.GroupID), append(names, g.GroupName)
	}
	for _, d := range i.Devices {
		volumes = append(volumes, d.Ebs.VolumeID)
	}
	switch name {
	case "instance.group-id", "group-id", "network-interface.group-id":
		return ids, true
	case "instance.group-name", "group-name":
		return names, true
	case "block-device-mapping.volume-id":
		return volumes, true
	}
	profile, profileID := "", ""
	if i.Profile != nil {
		profile, profileID = i.Profile.Arn, i.Profile.ID
	}
	why := ""
	if i.StateReason != nil {
		why = i.StateReason.Code
	}
	v := map[string]string{"instance-id": i.InstanceID, "instance-state-name": i.Status.Name, "instance-state-code": strconv.Itoa(i.Status.Code),
		"image-id": i.ImageID, "instance-type": i.InstanceType, "subnet-id": i.SubnetID, "vpc-id": i.VpcID, "availability-zone": i.Placement.Zone,
		"private-ip-address": i.PrivateIP, "ip-address": i.PublicIP, "private-dns-name": i.PrivateDNSName, "dns-name": i.PublicDNSName, "key-name": i.KeyName,
		"client-token": i.ClientToken, "reservation-id": i.ReservationID, "architecture": i.Architecture, "iam-instance-profile.arn": profile,
		"iam-instance-profile.id": profileID, "owner-id": "", "root-device-type": i.RootType, "root-device-name": i.RootName, "launch-index": strconv.Itoa(i.LaunchIndex),
		"metadata-options.http-tokens": i.Metadata.Tokens, "tenancy": i.Placement.Tenancy, "instance-lifecycle": i.Lifecycle, "state-reason-code": why, "requester-id": i.RequesterID,
		"network-interface.subnet-id": i.SubnetID, "network-interface.vpc-id": i.VpcID, "virtualization-type": i.Virtualization, "monitoring-state": i.Monitoring.State,
		"launch-time": stamp(i.LaunchTime)}
	s, ok := v[name]
	return []string{s}, ok
}

// primary is the interface at index 0.
func (sc *ec2Scope) primary(i *Instance) *NetworkInterface {
	for _, n := range sc.Interfaces {
		if n.Attachment != nil && n.Attachment.InstanceID == i.InstanceID && n.Attachment.DeviceIndex == 0 {
			return n
		}
	}
	return nil
}

// shownInstance adds the interfaces.
type shownInstance struct {
	Instance
	Interfaces []instanceInterface `ec2:"networkInterfaceSet"`
}

type instanceInterface struct {
	InterfaceID     string             `ec2:"networkInterfaceId"`
	SubnetID        string             `ec2:"subnetId"`
	VpcID           string             `ec2:"vpcId"`
	Description     string             `ec2:"description"`
	OwnerID         string             `ec2:"ownerId"`
	Status          string             `ec2:"status"`
	MacAddress      string             `ec2:"macAddress"`
	PrivateIP       string             `ec2:"privateIpAddress"`
	PrivateDNSName  string             `ec2:"privateDnsName"`
	SourceDestCheck bool               `ec2:"sourceDestCheck"`
	Groups          []groupRef         `ec2:"groupSet"`
	Attachment      *attachment        `ec2:"attachment"`
	Association     *association       `ec2:"association"`
	Addresses       []interfaceAddress `ec2:"privateIpAddressesSet"`
	Ipv6            []struct{}         `ec2:"ipv6AddressesSet"`
	Type            string             `ec2:"interfaceType"`
	Operator        operator           `ec2:"operator"`
}

func (sc *ec2Scope) showInstance(i *Instance) shownInstance {
	s := shownInstance{Instance: *i}
	for _, n := range inOrder(sc.Interfaces) {
		if n.Attachment == nil || n.Attachment.InstanceID != i.InstanceID {
			continue
		}
		a := *n.Attachment
		a.InstanceID, a.InstanceOwnerID = "", ""
		s.Interfaces = append(s.Interfaces, instanceInterface{n.InterfaceID, n.SubnetID, n.VpcID, n.Description, n.OwnerID, n.Status, n.MacAddress, n.PrivateIP,
			n.PrivateDNSName, n.SourceDestCheck, n.Groups, &a, n.Association, n.addresses(), nil, n.Type, n.Operator})
		if a.DeviceIndex == 0 && n.Association != nil {
			s.PublicIP, s.PublicDNSName = n.Association.PublicIP, n.Association.PublicDNSName
		}
	}
	return s
}

type reservation struct {
	ReservationID string          `ec2:"reservationId"`
	OwnerID       string          `ec2:"ownerId"`
	RequesterID   string          `ec2:"requesterId,omitempty"`
	Groups        []groupRef      `ec2:"groupSet"`
	Instances     []shownInstance `ec2:"instancesSet"`
}

type describeInstancesIn struct {
	InstanceID []string `q:"InstanceId"`
	page
}

func (e *EC2) describeInstances(r *request, in describeInstancesIn) (any, error) {
	sc := e.in(r.scope())
	for k, f := range in.Filter {
		if f.Name == "owner-id" { // every instance of the account is the account's
			in.Filter[k].Name, in.Filter[k].Value = "instance-id", []string{"*"}
			if !anyMatch(f.Value, []string{r.Account}) {
				in.Filter[k].Value = nil
			}
		}
	}
	if err := malformed(in.InstanceID); err != nil {
		return nil, err
	}
	if err := notBoth(in.InstanceID, in.page); err != nil {
		return nil, err
	}
	found, err := find(e, r, sc.Instances, in.InstanceID, in.Filter, noInstance)
	if err != nil {
		return nil, err
	}
	items, next, err := paginate(e.cloud, r, found, in.page, 5, 1000)
	if err != nil {
		return nil, err
	}
	var out []*reservation
	index := map[string]*reservation{}
	for _, i := range items {
		res := index[i.ReservationID]
		if res == nil {
			res = &reservation{ReservationID: i.ReservationID, OwnerID: sc.Account, RequesterID: i.RequesterID}
			index[i.ReservationID] = res
			out = append(out, res)
		}
		res.Instances = append(res.Instances, sc.showInstance(i))
	}
	return struct {
		Reservations []*reservation `ec2:"reservationSet"`
		Next         string         `ec2:"nextToken,omitempty"`
	}{out, next}, nil
}

// notBoth refuses a page size together with a list of instances ("DescribeInstances", Amazon EC2 API reference).
func notBoth(ids []string, p page) error {
	if len(ids) > 0 && p.MaxResults != nil {
		return refuse("InvalidParameterCombination", "The parameter instancesSet cannot be used with the parameter maxResults")
	}
	return nil
}

func malformed(ids []string) error {
	for _, id := range ids {
		if !wellFormed(id, "i-") {
			return refuse("InvalidInstanceID.Malformed", "Invalid id: \"%s\"", id)
		}
	}
	return nil
}
