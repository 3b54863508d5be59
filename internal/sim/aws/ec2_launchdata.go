package aws

import (
	"encoding/base64"
	"reflect"
)

// launchData says what an instance is to be: the parameters that RunInstances and launch templates share. The `q` names are
// those of requests, the `ec2` names those of DescribeLaunchTemplateVersions.
type launchData struct {
	ImageID               string             `q:"ImageId" ec2:"imageId,omitempty"`
	InstanceType          string             `ec2:"instanceType,omitempty"`
	KeyName               string             `ec2:"keyName,omitempty"`
	UserData              string             `ec2:"userData,omitempty"`
	EbsOptimized          *bool              `ec2:"ebsOptimized"`
	Profile               *launchProfile     `q:"IamInstanceProfile" ec2:"iamInstanceProfile"`
	BlockDevices          []launchDevice     `q:"BlockDeviceMapping" ec2:"blockDeviceMappingSet,omitempty"`
	Interfaces            []launchInterface  `q:"NetworkInterface" ec2:"networkInterfaceSet,omitempty"`
	GroupIDs              []string           `q:"SecurityGroupId" ec2:"securityGroupIdSet,omitempty"`
	GroupNames            []string           `q:"SecurityGroup" ec2:"securityGroupSet,omitempty"`
	Metadata              *launchMetadata    `q:"MetadataOptions" ec2:"metadataOptions"`
	Placement             *launchPlacement   `ec2:"placement"`
	Monitoring            *launchMonitoring  `ec2:"monitoring"`
	DisableApiTermination *bool              `ec2:"disableApiTermination"`
	DisableApiStop        *bool              `ec2:"disableApiStop"`
	ShutdownBehavior      string             `q:"InstanceInitiatedShutdownBehavior" ec2:"instanceInitiatedShutdownBehavior,omitempty"`
	Credit                *launchCredit      `q:"CreditSpecification" ec2:"creditSpecification"`
	Maintenance           *launchMaintenance `q:"MaintenanceOptions" ec2:"maintenanceOptions"`
	PrivateDNS            *launchDNS         `q:"PrivateDnsNameOptions" ec2:"privateDnsNameOptions"`
	Market                *launchMarket      `q:"InstanceMarketOptions" ec2:"instanceMarketOptions"`
	Tags                  []launchTags       `q:"TagSpecification" ec2:"tagSpecificationSet,omitempty"`
}

type launchProfile struct {
	Arn  string `ec2:"arn,omitempty"`
	Name string `ec2:"name,omitempty"`
}

type launchDevice struct {
	DeviceName string     `ec2:"deviceName,omitempty"`
	Ebs        *launchEbs `ec2:"ebs"`
}

type launchEbs struct {
	Encrypted  *bool  `ec2:"encrypted"`
	Delete     *bool  `q:"DeleteOnTermination" ec2:"deleteOnTermination"`
	Iops       *int   `ec2:"iops"`
	KmsKeyID   string `q:"KmsKeyId" ec2:"kmsKeyId,omitempty"`
	SnapshotID string `q:"SnapshotId" ec2:"snapshotId,omitempty"`
	Size       *int   `q:"VolumeSize" ec2:"volumeSize"`
	Type       string `q:"VolumeType" ec2:"volumeType,omitempty"`
	Throughput *int   `ec2:"throughput"`
}

type launchInterface struct {
	DeviceIndex *int     `ec2:"deviceIndex"`
	SubnetID    string   `q:"SubnetId" ec2:"subnetId,omitempty"`
	GroupIDs    []string `q:"SecurityGroupId|Groups" ec2:"groupSet>groupId,omitempty"`
	PublicIP    *bool    `q:"AssociatePublicIpAddress" ec2:"associatePublicIpAddress"`
	Delete      *bool    `q:"DeleteOnTermination" ec2:"deleteOnTermination"`
	Description string   `ec2:"description,omitempty"`
	PrivateIP   string   `q:"PrivateIpAddress" ec2:"privateIpAddress,omitempty"`
}

type launchMetadata struct {
	State    string `ec2:"state,omitempty"`
	Tokens   string `q:"HttpTokens" ec2:"httpTokens,omitempty"`
	HopLimit *int   `q:"HttpPutResponseHopLimit" ec2:"httpPutResponseHopLimit"`
	Endpoint string `q:"HttpEndpoint" ec2:"httpEndpoint,omitempty"`
	Ipv6     string `q:"HttpProtocolIpv6" ec2:"httpProtocolIpv6,omitempty"`
	Tags     string `q:"InstanceMetadataTags" ec2:"instanceMetadataTags,omitempty"`
}

type launchPlacement struct {
	Zone    string `q:"AvailabilityZone" ec2:"availabilityZone,omitempty"`
	Group   string `q:"GroupName" ec2:"groupName,omitempty"`
	Tenancy string `ec2:"tenancy,omitempty"`
}

type launchMonitoring struct {
	Enabled bool `ec2:"enabled"`
}

type launchCredit struct {
	CpuCredits string `ec2:"cpuCredits"`
}

type launchMaintenance struct {
	AutoRecovery string `ec2:"autoRecovery"`
}

type launchDNS struct {
	HostnameType string `ec2:"hostnameType,omitempty"`
	ARecord      *bool  `q:"EnableResourceNameDnsARecord" ec2:"enableResourceNameDnsARecord"`
	AAAARecord   *bool  `q:"EnableResourceNameDnsAAAARecord" ec2:"enableResourceNameDnsAAAARecord"`
}

// launchMarket says how an instance is paid for; empty means on demand.
type launchMarket struct {
	Type string `q:"MarketType" ec2:"marketType,omitempty"`
}

func (d launchData) spot() bool { return d.Market != nil && d.Market.Type == "spot" }

type launchTags struct {
	ResourceType string `ec2:"resourceType"`
	Tag          []Tag  `ec2:"tagSet"`
}

// over puts what a request says over what its template says: a field that is set replaces the template's; tags of the
// same kind are merged ("Launch instances from a launch template", Amazon EC2 user guide).
func (d launchData) over(base launchData) launchData {
	out := base
	v, b := reflect.ValueOf(d), reflect.ValueOf(&out).Elem()
	for i := range v.NumField() {
		if v.Type().Field(i).Name == "Tags" {
			continue
		}
		if f := v.Field(i); !f.IsZero() {
			b.Field(i).Set(f)
		}
	}
	out.Tags = nil
	index := map[string]int{}
	for _, set := range [][]launchTags{base.Tags, d.Tags} {
		for _, t := range set {
			i, ok := index[t.ResourceType]
			if !ok {
				i = len(out.Tags)
				index[t.ResourceType] = i
				out.Tags = append(out.Tags, launchTags{ResourceType: t.ResourceType})
			}
			out.Tags[i].Tag = mergeTags(out.Tags[i].Tag, t.Tag)
		}
	}
	return out
}

// tagsOf are the tags for one resource type.
func (d launchData) tagsOf(kind string) []Tag {
	for _, t := range d.Tags {
		if t.ResourceType == kind {
			return t.Tag
		}
	}
	return nil
}

// maxUserData is the limit of user data, before it is encoded ("Instance user data", Amazon EC2 user guide).
const maxUserData = 16384

func (d launchData) checkUserData() error {
	raw, err := base64.StdEncoding.DecodeString(d.UserData)
	if err != nil {
		return refuse("InvalidUserData.Malformed", "Invalid BASE64 encoding of user data.")
	}
	if len(raw) > maxUserData {
		return refuse("InvalidParameterValue", "User data is limited to 16384 bytes")
	}
	return nil
}

// check looks at everything that can be judged without a subnet.
func (d launchData) check() error {
	if err := d.checkUserData(); err != nil {
		return err
	}
	for _, t := range d.Tags {
		switch t.ResourceType {
		case "instance", "volume", "network-interface", "spot-instances-request", "elastic-gpu":
		default:
			return refuse("InvalidParameterValue", "'%s' is not a valid taggable resource type for this operation.", t.ResourceType)
		}
		if err := checkTags(t.Tag); err != nil {
			return err
		}
	}
	if m := d.Metadata; m != nil {
		if m.Tokens != "" && m.Tokens != "required" && m.Tokens != "optional" {
			return refuse("InvalidParameterValue", "Value (%s) for parameter HttpTokens is invalid.", m.Tokens)
		}
		if m.HopLimit != nil && (*m.HopLimit < 1 || *m.HopLimit > 64) {
			return refuse("InvalidParameterValue", "A value for http-put-response-hop-limit must be between 1 and 64")
		}
	}
	for _, b := range d.BlockDevices {
		if b.Ebs == nil {
			continue
		}
		switch b.Ebs.Type {
		case "", "gp2", "gp3", "io1", "io2", "st1", "sc1", "standard":
		default:
			return refuse("InvalidParameterValue", "Value (%s) for parameter volumeType is invalid. Volume type '%[1]s' is not supported", b.Ebs.Type)
		}
		if b.Ebs.Size != nil && (*b.Ebs.Size < 1 || *b.Ebs.Size > 65536) {
			return refuse("InvalidParameterValue", "Volume size %d is invalid.", *b.Ebs.Size)
		}
	}
	return nil
}
