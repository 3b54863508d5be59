package aws

import (
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

type runIn struct {
	launchData
	MinCount       *int
	MaxCount       *int
	SubnetID       string `q:"SubnetId"`
	PrivateIP      string `q:"PrivateIpAddress"`
	ClientToken    string
	LaunchTemplate *struct {
		templateRef
		Version string
	}
}

func (e *EC2) runInstances(r *request, in runIn) (any, error) {
	sc := e.in(r.scope())
	if in.MinCount == nil {
		return nil, missing("MinCount")
	}
	if in.MaxCount == nil {
		return nil, missing("MaxCount")
	}
	if *in.MinCount < 1 || *in.MaxCount < *in.MinCount {
		return nil, refuse("InvalidParameterValue", "Value (%d) for parameter minCount is invalid. The minimum count must be at least 1 and no more than the maximum count.", *in.MinCount)
	}
	id, again, err := e.token(r, in.ClientToken)
	if err != nil {
		return nil, err
	}
	if again {
		return sc.sameReservation(r, id), nil
	}
	data := in.launchData
	if in.LaunchTemplate != nil {
		t, err := sc.template(in.LaunchTemplate.templateRef)
		if err != nil {
			return nil, err
		}
		v, err := t.version(in.LaunchTemplate.Version)
		if err != nil {
			return nil, err
		}
		data = data.over(v.Data)
	}
	if len(data.Interfaces) > 0 && (in.SubnetID != "" || len(in.GroupIDs) > 0) {
		return nil, refuse("InvalidParameterCombination", "Network interfaces and an instance-level %s may not be specified on the same request", map[bool]string{true: "subnet ID", false: "security groups"}[in.SubnetID != ""])
	}
	res, err := e.launch(r.Call, launchRequest{scope: r.scope(), data: data, subnetID: in.SubnetID, min: *in.MinCount, max: *in.MaxCount, token: in.ClientToken})
	if err != nil {
		return nil, err
	}
	e.remember(r, in.ClientToken, res.ReservationID)
	for _, i := range res.Instances {
		r.Make(i.InstanceID)
	}
	return *res, nil
}

// sameReservation repeats the answer of a launch, with the instances as they are now.
func (sc *ec2Scope) sameReservation(r *request, id string) reservation {
	res := reservation{ReservationID: id, OwnerID: sc.Account}
	for _, i := range inOrder(sc.Instances) {
		if i.ReservationID == id {
			r.Touch(i.InstanceID)
			res.Instances = append(res.Instances, sc.showInstance(i))
		}
	}
	return res
}

// launchRequest is what a launch needs to know, whoever asks for it.
type launchRequest struct {
	scope
	data      launchData
	subnetID  string
	min, max  int
	token     string
	requester string // a service that launches on behalf of the account
	tags      []Tag  // tags that only a service may set (aws:…)
}

// plan is a launch that was found possible.
type plan struct {
	image    *Image
	kind     instanceType
	subnet   *Subnet
	groups   []groupRef
	profile  *InstanceProfile
	public   bool
	delete   bool
	data     launchData
	metadata metadataOptions
}

// launch starts instances. It serves RunInstances and the services that launch for others.
func (e *EC2) launch(call *sim.Call, req launchRequest) (*reservation, error) {
	sc := e.in(req.scope)
	p, err := e.prepare(sc, req)
	if err != nil {
		return nil, err
	}
	count, err := e.affordable(sc, p, req.min, req.max)
	if err != nil {
		return nil, err
	}
	if f := e.cloud.World.Take(call, sim.FaultCapacity, p.subnet.Zone+" "+p.kind.name+" "+p.subnet.SubnetID); f != nil {
		return nil, noCapacity(f, p)
	}
	res := &reservation{ReservationID: e.cloud.hex17("r-"), OwnerID: sc.Account, RequesterID: req.requester}
	if sc.freeAddresses(p.subnet) < req.min {
		return nil, refuse("InsufficientFreeAddressesInSubnet", "There are not enough free addresses in subnet '%s' to satisfy the requested number of instances.", p.subnet.SubnetID)
	}
	for n := range min(count, sc.freeAddresses(p.subnet)) {
		i, err := e.newInstance(sc, p, req, res.ReservationID, n)
		if err != nil {
			return nil, err
		}
		res.Instances = append(res.Instances, sc.showInstance(i))
	}
	return res, nil
}

func noCapacity(f *sim.Fault, p *plan) error {
	var others []string
	for _, z := range zonesOf(p.subnet.Zone[:len(p.subnet.Zone)-1]) {
		if z.Name != p.subnet.Zone && offered(p.kind, z.Name) {
			others = append(others, z.Name)
		}
	}
	e := refuseStatus(500, "InsufficientInstanceCapacity", "We currently do not have sufficient %s capacity in the Availability Zone you requested (%s). Our system will be working on provisioning additional capacity. You can currently get %[1]s capacity by not specifying an Availability Zone in your request or choosing %[3]s.",
		p.kind.name, p.subnet.Zone, strings.Join(others, ", "))
	overlay(e, f)
	return e
}

// prepare checks a launch and resolves what it names.
func (e *EC2) prepare(sc *ec2Scope, req launchRequest) (*plan, error) {
	d := req.data
	p := &plan{data: d, delete: true}
	if d.ImageID == "" {
		return nil, missing("ImageId")
	}
	if p.image = e.publicImages(sc.Region)[d.ImageID]; p.image == nil {
		return nil, noImage(d.ImageID)
	}
	if d.InstanceType == "" {
		d.InstanceType = "m1.small" // the API's default, which the newer images cannot run on
	}
	var ok bool
	if p.kind, ok = instanceTypes[d.InstanceType]; !ok {
		return nil, refuse("InvalidParameterValue", "Invalid value '%s' for InstanceType.", d.InstanceType)
	}
	if p.kind.arch != p.image.Architecture {
		return nil, refuse("InvalidParameterValue", "The architecture '%s' of the specified instance type does not match the architecture '%s' of the specified AMI. Specify an instance type and an AMI that have matching architectures, and try again. You can use 'describe-instance-types' or 'describe-images' to discover the architecture of the instance type or AMI.",
			p.kind.arch, p.image.Architecture)
	}
	if err := d.check(); err != nil {
		return nil, err
	}
	if err := e.place(sc, req, p); err != nil {
		return nil, err
	}
	if d.KeyName != "" && sc.keyPair(d.KeyName) == nil {
		return nil, noKeyPair(d.KeyName)
	}
	p.metadata = sc.metadataFrom(d.Metadata, p.image)
	if err := sc.refuseUnenforced(p.metadata); err != nil {
		return nil, err
	}
	var err error
	if p.profile, err = e.profile(sc, d.Profile); err != nil {
		return nil, err
	}
	return p, p.checkRoot()
}

// checkRoot refuses a root volume that is smaller than its snapshot.
func (p *plan) checkRoot() error {
	root := p.image.Devices[0]
	for _, b := range p.data.BlockDevices {
		if b.DeviceName == root.Name && b.Ebs != nil && b.Ebs.Size != nil && *b.Ebs.Size < root.Ebs.Size {
			return refuse("InvalidBlockDeviceMapping", "Volume of size %dGB is smaller than snapshot '%s', expect size>= %dGB", *b.Ebs.Size, root.Ebs.SnapshotID, root.Ebs.Size)
		}
	}
	return nil
}

// place finds the subnet and the security groups of a launch.
func (e *EC2) place(sc *ec2Scope, req launchRequest, p *plan) error {
	subnetID, groupIDs := req.subnetID, req.data.GroupIDs
	var public *bool
	if len(req.data.Interfaces) > 0 {
		n := req.data.Interfaces[0]
		if subnetID == "" {
			subnetID = n.SubnetID
		}
		if len(n.GroupIDs) > 0 {
			groupIDs = n.GroupIDs
		}
		public = n.PublicIP
		if n.Delete != nil {
			p.delete = *n.Delete
		}
	}
	if subnetID == "" {
		zoneName := ""
		if req.data.Placement != nil {
			zoneName = req.data.Placement.Zone
		}
		for _, s := range inOrder(sc.Subnets) {
			if s.DefaultForAz && offered(p.kind, s.Zone) && (zoneName == "" || zoneName == s.Zone) {
				subnetID = s.SubnetID
				break
			}
		}
		if subnetID == "" {
			return refuse("VPCIdNotSpecified", "No default VPC for this user. GroupName is only supported for EC2-Classic and default VPC.")
		}
	}
	s := sc.Subnets[subnetID]
	if s == nil {
		return noSubnet(subnetID)
	}
	p.subnet = s
	var err error
	if p.groups, err = sc.groupRefs(s.VpcID, groupIDs); err != nil {
		return err
	}
	if !offered(p.kind, s.Zone) {
		var others []string
		for _, z := range zonesOf(sc.Region) {
			if offered(p.kind, z.Name) {
				others = append(others, z.Name)
			}
		}
		return refuse("Unsupported", "Your requested instance type (%s) is not supported in your requested Availability Zone (%s). Please retry your request by not specifying an Availability Zone or choosing %s.",
			p.kind.name, s.Zone, strings.Join(others, ", "))
	}
	p.public = s.MapPublicIP
	if public != nil {
		p.public = *public
	}
	return nil
}

// profile resolves an instance profile, as far as the rest of AWS knows it yet.
func (e *EC2) profile(sc *ec2Scope, ref *launchProfile) (*InstanceProfile, error) {
	if ref == nil || (ref.Name == "" && ref.Arn == "") {
		return nil, nil
	}
	if ref.Name != "" && ref.Arn != "" {
		return nil, refuse("InvalidParameterCombination", "The parameter 'iamInstanceProfile.name' may not be used in combination with 'iamInstanceProfile.arn'")
	}
	if f := e.cloud.hooks.instanceProfile; f != nil {
		if p, ok := f(sc.Account, ref.Name+ref.Arn); ok {
			return &p, nil
		}
	}
	if ref.Arn != "" {
		return nil, refuse("InvalidParameterValue", "Value (%s) for parameter iamInstanceProfile.arn is invalid. Invalid IAM Instance Profile ARN", ref.Arn)
	}
	return nil, refuse("InvalidParameterValue", "Value (%s) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name", ref.Name)
}

// affordable is how many instances the vCPU quota allows: there is one for instances on demand and one for Spot Instances.
func (e *EC2) affordable(sc *ec2Scope, p *plan, low, high int) (int, error) {
	spot, code := p.data.spot(), quotaVcpus
	if spot {
		code = quotaSpot
	}
	limit := int(e.cloud.quota(sc.scope(), "ec2", code))
	used := 0
	for _, i := range sc.Instances {
		if n := i.Status.Name; (i.Lifecycle == "spot") == spot && (n == "pending" || n == "running" || n == "stopping") {
			used += instanceTypes[i.InstanceType].vcpus
		}
	}
	fit := (limit - used) / p.kind.vcpus
	if fit < low && spot {
		return 0, refuse("MaxSpotInstanceCountExceeded", "Max spot instance count exceeded")
	}
	if fit < low {
		return 0, refuse("VcpuLimitExceeded", "You have requested more vCPU capacity than your current vCPU limit of %d allows for the instance bucket that the specified instance type belongs to. Please visit http://aws.amazon.com/contact-us/ec2-request to request an adjustment to this limit.", limit)
	}
	return min(high, fit), nil
}

func (e *EC2) newInstance(sc *ec2Scope, p *plan, req launchRequest, reservationID string, index int) (*Instance, error) {
	d := p.data
	n, err := e.newInterface(sc, p.subnet, p.groups, "", "interface")
	if err != nil {
		return nil, err
	}
	checked := true
	i := &Instance{InstanceID: e.cloud.hex17("i-"), ImageID: p.image.ImageID, Status: codeOf("pending"), PrivateDNSName: n.PrivateDNSName, KeyName: d.KeyName,
		LaunchIndex: index, InstanceType: p.kind.name, SubnetID: p.subnet.SubnetID, VpcID: p.subnet.VpcID, PrivateIP: n.PrivateIP, SourceDestCheck: &checked,
		Groups: p.groups, StateReason: &reason{"pending", "pending"}, Architecture: p.image.Architecture, RootType: "ebs", RootName: p.image.RootName,
		Virtualization: "hvm", ClientToken: req.token, Hypervisor: "xen", EbsOptimized: d.EbsOptimized != nil && *d.EbsOptimized, Ena: true, BootMode: p.image.BootMode,
		CurrentBoot: "uefi", Platform: p.image.Platform, Usage: p.image.Usage, PrivateDNS: p.subnet.PrivateDNS, ReservationID: reservationID, RequesterID: req.requester,
		UserData: d.UserData, ShutdownBehavior: textOr(d.ShutdownBehavior, "stop"), meta: e.fresh(mergeTags(req.tags, d.tagsOf("instance")))}
	i.LaunchTime = i.Created.Truncate(time.Second)
	i.UsageTime = i.LaunchTime
	i.Placement = instancePlacement{Zone: p.subnet.Zone, ZoneID: p.subnet.ZoneID, Tenancy: "default"}
	i.Monitoring.State = "disabled"
	if d.Monitoring != nil && d.Monitoring.Enabled {
		i.Monitoring.State = "enabled"
	}
	info := p.kind.info()
	i.CPU.Cores, i.CPU.Threads = info.VCPU.Cores, info.VCPU.Threads
	i.Capacity.Preference, i.Maintenance.AutoRecovery = "open", "default"
	i.DisableApiTermination = d.DisableApiTermination != nil && *d.DisableApiTermination
	i.DisableApiStop = d.DisableApiStop != nil && *d.DisableApiStop
	i.Metadata = p.metadata
	if d.spot() {
		i.Lifecycle = "spot"
	}
	if p.profile != nil {
		i.setProfile(e, p.profile)
	}
	n.Attachment = &attachment{ID: e.cloud.hex17("eni-attach-"), InstanceID: i.InstanceID, InstanceOwnerID: sc.Account, Status: "attached", AttachTime: i.LaunchTime, DeleteOnTermination: p.delete}
	n.Status, n.Holder, n.Tags = "in-use", i.InstanceID, append([]Tag{}, d.tagsOf("network-interface")...)
	if p.public {
		n.Association = &association{PublicIP: e.publicIP(), IPOwnerID: "amazon"}
		n.Association.PublicDNSName = "ec2-" + strings.ReplaceAll(n.Association.PublicIP, ".", "-") + ".compute-1.amazonaws.com"
	}
	e.newVolumes(sc, p, i)
	sc.Instances[i.InstanceID] = i
	e.later(sc, startTime, i.InstanceID, "running")
	return i, nil
}

func (i *Instance) setProfile(e *EC2, p *InstanceProfile) {
	i.Profile = &shownProfile{p.ARN, p.ID}
	i.ProfileName = p.Name
	i.ProfileAssociation = e.cloud.hex17("iip-assoc-")
}

// metadataFrom is what holds for a new instance: what the launch says, else the account's default, else the image's.
func (sc *ec2Scope) metadataFrom(m *launchMetadata, image *Image) metadataOptions {
	out := metadataOptions{State: "applied", Tokens: "optional", HopLimit: 1, Endpoint: "enabled", Ipv6: "disabled", Tags: "disabled"}
	if image.Imds == "v2.0" {
		out.Tokens, out.HopLimit = "required", 2
	}
	for _, m := range []*launchMetadata{&sc.Defaults.Metadata, m} {
		if m == nil {
			continue
		}
		out.Tokens, out.Endpoint = textOr(m.Tokens, out.Tokens), textOr(m.Endpoint, out.Endpoint)
		out.Ipv6, out.Tags = textOr(m.Ipv6, out.Ipv6), textOr(m.Tags, out.Tags)
		if m.HopLimit != nil {
			out.HopLimit = *m.HopLimit
		}
	}
	return out
}

// newVolumes makes the root volume of an instance and the further ones that the launch asks for.
func (e *EC2) newVolumes(sc *ec2Scope, p *plan, i *Instance) {
	root := p.image.Devices[0]
	want := []launchDevice{{DeviceName: root.Name, Ebs: &launchEbs{Size: &root.Ebs.Size, Type: root.Ebs.Type, SnapshotID: root.Ebs.SnapshotID}}}
	for _, b := range p.data.BlockDevices {
		if b.Ebs == nil {
			continue
		}
		if b.DeviceName != root.Name {
			want = append(want, b)
			continue
		}
		merged, ebs := *want[0].Ebs, *b.Ebs
		if ebs.Size == nil {
			ebs.Size = merged.Size
		}
		ebs.Type, ebs.SnapshotID = textOr(ebs.Type, merged.Type), merged.SnapshotID
		want[0].Ebs = &ebs
	}
	for _, b := range want {
		v := e.newVolume(sc, b.Ebs, p.subnet, p.data.tagsOf("volume"))
		remove := b.Ebs.Delete == nil || *b.Ebs.Delete
		v.Status = "in-use"
		v.Attachments = []volumeAttachment{{VolumeID: v.VolumeID, InstanceID: i.InstanceID, Device: b.DeviceName, State: "attached", AttachTime: i.LaunchTime, Delete: remove}}
		a := attachedVolume{DeviceName: b.DeviceName}
		a.Ebs.VolumeID, a.Ebs.Status, a.Ebs.AttachTime, a.Ebs.Delete = v.VolumeID, "attached", i.LaunchTime, remove
		i.Devices = append(i.Devices, a)
	}
}
