package aws

import (
	"strconv"
	"strings"
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
	Operator operator `ec2:"operator"`
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
		"metadata-options.http-tokens": i.Metadata.Tokens, "tenancy": i.Placement.Tenancy, "state-reason-code": why, "requester-id": i.RequesterID,
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

type instancesIn struct {
	InstanceID []string `q:"InstanceId"`
	Force      bool
}

type stateChange struct {
	InstanceID string    `ec2:"instanceId"`
	Current    stateCode `ec2:"currentState"`
	Previous   stateCode `ec2:"previousState"`
}

type stateChanges struct {
	Changes []stateChange `ec2:"instancesSet"`
}

// instances finds the instances of a request; one that is missing fails the whole request.
func (sc *ec2Scope) instances(ids []string) ([]*Instance, error) {
	if len(ids) == 0 {
		return nil, missing("InstanceId")
	}
	if err := malformed(ids); err != nil {
		return nil, err
	}
	var out []*Instance
	var lacking []string
	for _, id := range ids {
		if i := sc.Instances[id]; i != nil {
			out = append(out, i)
		} else {
			lacking = append(lacking, id)
		}
	}
	if len(lacking) == 1 {
		return nil, noInstance(lacking[0])
	}
	if len(lacking) > 1 {
		return nil, refuse("InvalidInstanceID.NotFound", "The instance IDs '%s' do not exist", strings.Join(lacking, ", "))
	}
	return out, nil
}

// How long instances take to change state, as a rule.
const (
	startTime    = 6 * time.Second
	stopTime     = 20 * time.Second
	shutdownTime = 25 * time.Second
	checksTime   = 90 * time.Second // until the status checks have passed
)

func (e *EC2) terminateInstances(r *request, in instancesIn) (any, error) {
	sc := e.in(r.scope())
	found, err := sc.instances(in.InstanceID)
	if err != nil {
		return nil, err
	}
	for _, i := range found {
		if i.DisableApiTermination {
			return nil, refuse("OperationNotPermitted", "The instance '%s' may not be terminated. Modify its 'disableApiTermination' instance attribute and try again.", i.InstanceID)
		}
	}
	var out stateChanges
	for _, i := range found {
		before := i.Status
		e.terminate(sc, i, "Client.UserInitiatedShutdown", "Client.UserInitiatedShutdown: User initiated shutdown")
		r.Make(i.InstanceID)
		out.Changes = append(out.Changes, stateChange{i.InstanceID, i.Status, before})
	}
	return out, nil
}

// terminate begins to take an instance down.
func (e *EC2) terminate(sc *ec2Scope, i *Instance, code, message string) {
	if i.Status.Name == "terminated" || i.Status.Name == "shutting-down" {
		return
	}
	i.Status = codeOf("shutting-down")
	i.StateReason = &reason{code, message}
	i.TransitionReason = "User initiated (" + e.cloud.World.Now().UTC().Format("2006-01-02 15:04:05") + " GMT)"
	e.left(sc, i)
	e.later(sc, shutdownTime, i.InstanceID, "terminated")
}

// left tells the services that watch instances that one no longer runs.
func (e *EC2) left(sc *ec2Scope, i *Instance) {
	sc.stopGuest(i)
	for _, f := range e.cloud.hooks.instanceGone {
		f(sc.scope(), i.InstanceID)
	}
}

// terminated ends an instance: its interfaces and volumes go, and its network attributes with them.
func (e *EC2) terminated(sc *ec2Scope, i *Instance) {
	i.Status = codeOf("terminated")
	for _, n := range inOrder(sc.Interfaces) {
		if n.Attachment == nil || n.Attachment.InstanceID != i.InstanceID {
			continue
		}
		if n.Attachment.DeleteOnTermination {
			e.dropInterface(sc, n.InterfaceID)
		} else {
			n.Attachment, n.Status, n.Holder = nil, "available", ""
		}
	}
	for _, d := range i.Devices {
		v := sc.Volumes[d.Ebs.VolumeID]
		if v == nil {
			continue
		}
		v.Attachments = nil
		if d.Ebs.Delete {
			delete(sc.Volumes, v.VolumeID)
		} else {
			v.Status = "available"
		}
	}
	i.Devices, i.Groups = nil, nil
	i.SubnetID, i.VpcID, i.PrivateIP, i.PublicIP, i.PrivateDNSName, i.SourceDestCheck = "", "", "", "", "", nil
	delete(sc.Guests, i.InstanceID)
	// "A terminated instance remains visible for a short while", about an hour (Amazon EC2 user guide).
	e.after(sc, goneVisible, "forget", i.InstanceID)
}

func (e *EC2) removeInstance(sc *ec2Scope, i *Instance) {
	if i.Status.Name != "terminated" && i.Status.Name != "shutting-down" {
		e.left(sc, i)
	}
	e.terminated(sc, i)
	delete(sc.Instances, i.InstanceID)
}

// instanceAdvance carries out a state change that was begun, unless another one came in between.
func (e *EC2) instanceAdvance(sc *ec2Scope, i *Instance, state string) {
	switch {
	case state == "running" && i.Status.Name == "pending":
		e.running(sc, i)
	case state == "stopped" && i.Status.Name == "stopping":
		i.Status = codeOf("stopped")
	case state == "terminated" && i.Status.Name == "shutting-down":
		e.terminated(sc, i)
	}
}

func (e *EC2) running(sc *ec2Scope, i *Instance) {
	i.Status = codeOf("running")
	i.StateReason = nil
	e.boot(sc, i)
}

// instanceForce puts an instance into a state at once, as faults and the control API ask.
func (e *EC2) instanceForce(sc *ec2Scope, i *Instance, state, code, message string) error {
	if _, ok := stateCodes[state]; !ok {
		return refuse("state", "an instance has no state %q", state)
	}
	gone := i.Status.Name == "terminated"
	if gone && state != "terminated" {
		return refuse("state", "a terminated instance stays terminated")
	}
	if code != "" || state == "terminated" {
		i.StateReason = &reason{textOr(code, "Server.InternalError"), textOr(message, textOr(code, "Server.InternalError")+": Internal error on launch")}
	}
	switch state {
	case "running":
		if i.Status.Name != "running" {
			e.running(sc, i)
		}
	case "terminated":
		if !gone {
			e.left(sc, i)
			e.terminated(sc, i)
		}
	default:
		if state != "pending" {
			e.left(sc, i)
		}
		i.Status = codeOf(state)
	}
	return nil
}

func (e *EC2) stopInstances(r *request, in instancesIn) (any, error) {
	sc := e.in(r.scope())
	found, err := sc.instances(in.InstanceID)
	if err != nil {
		return nil, err
	}
	for _, i := range found {
		if i.Status.Name == "terminated" || i.Status.Name == "shutting-down" || i.Status.Name == "pending" {
			return nil, refuse("IncorrectInstanceState", "The instance '%s' is not in a state from which it can be stopped.", i.InstanceID)
		}
		if i.DisableApiStop {
			return nil, refuse("OperationNotPermitted", "The instance '%s' may not be stopped. Modify its 'disableApiStop' instance attribute and try again.", i.InstanceID)
		}
	}
	var out stateChanges
	for _, i := range found {
		before := i.Status
		if before.Name == "running" {
			i.Status = codeOf("stopping")
			i.StateReason = &reason{"Client.UserInitiatedShutdown", "Client.UserInitiatedShutdown: User initiated shutdown"}
			i.TransitionReason = "User initiated (" + e.cloud.World.Now().UTC().Format("2006-01-02 15:04:05") + " GMT)"
			e.left(sc, i)
			e.later(sc, stopTime, i.InstanceID, "stopped")
			r.Make(i.InstanceID)
		}
		out.Changes = append(out.Changes, stateChange{i.InstanceID, i.Status, before})
	}
	return out, nil
}

func (e *EC2) startInstances(r *request, in instancesIn) (any, error) {
	sc := e.in(r.scope())
	found, err := sc.instances(in.InstanceID)
	if err != nil {
		return nil, err
	}
	for _, i := range found {
		if i.Status.Name != "stopped" && i.Status.Name != "running" && i.Status.Name != "pending" {
			return nil, refuse("IncorrectInstanceState", "The instance '%s' is not in a state from which it can be started.", i.InstanceID)
		}
	}
	var out stateChanges
	for _, i := range found {
		before := i.Status
		if before.Name == "stopped" {
			i.Status = codeOf("pending")
			i.StateReason, i.TransitionReason = nil, ""
			i.LaunchTime = e.cloud.World.Now().Truncate(time.Second)
			e.later(sc, startTime, i.InstanceID, "running")
			r.Make(i.InstanceID)
		}
		out.Changes = append(out.Changes, stateChange{i.InstanceID, i.Status, before})
	}
	return out, nil
}

func (e *EC2) rebootInstances(r *request, in instancesIn) (any, error) {
	sc := e.in(r.scope())
	found, err := sc.instances(in.InstanceID)
	if err != nil {
		return nil, err
	}
	for _, i := range found {
		if i.Status.Name != "running" {
			return nil, refuse("IncorrectState", "The instance '%s' is not in the 'running' state.", i.InstanceID)
		}
		e.boot(sc, i)
	}
	return returned{true}, nil
}
