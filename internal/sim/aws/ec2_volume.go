package aws

import (
	"fmt"
	"slices"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

type attachVolumeIn struct {
	VolumeID   string `q:"VolumeId"`
	InstanceID string `q:"InstanceId"`
	Device     string
}

type attachedOut struct {
	VolumeID   string    `ec2:"volumeId"`
	InstanceID string    `ec2:"instanceId"`
	Device     string    `ec2:"device"`
	State      string    `ec2:"status"`
	AttachTime time.Time `ec2:"attachTime"`
}

func (e *EC2) attachVolume(r *request, in attachVolumeIn) (any, error) {
	sc := e.in(r.scope())
	v := sc.Volumes[in.VolumeID]
	if v == nil {
		return nil, noVolume(in.VolumeID)
	}
	found, err := sc.instances([]string{in.InstanceID})
	if err != nil {
		return nil, err
	}
	i := found[0]
	switch {
	case in.Device == "":
		return nil, missing("device")
	case v.Status != "available":
		return nil, refuse("VolumeInUse", "%s is already attached to an instance", v.VolumeID)
	case v.Zone != i.Placement.Zone:
		return nil, refuse("InvalidVolume.ZoneMismatch", "The volume '%s' is not in the same availability zone as instance '%s'", v.VolumeID, i.InstanceID)
	case i.Status.Name != "running" && i.Status.Name != "stopped":
		return nil, refuse("IncorrectState", "Instance '%s' is not 'running'.", i.InstanceID)
	case slices.ContainsFunc(i.Devices, func(d attachedVolume) bool { return d.DeviceName == in.Device }):
		return nil, refuse("InvalidParameterValue", "Invalid value '%s' for unixDevice. Attachment point %[1]s is already in use", in.Device)
	}
	now := e.cloud.World.Now().Truncate(time.Second)
	v.Status = "in-use"
	v.Attachments = []volumeAttachment{{VolumeID: v.VolumeID, InstanceID: i.InstanceID, Device: in.Device, State: "attached", AttachTime: now}}
	a := attachedVolume{DeviceName: in.Device}
	a.Ebs.VolumeID, a.Ebs.Status, a.Ebs.AttachTime = v.VolumeID, "attached", now
	i.Devices = append(i.Devices, a)
	return attachedOut{v.VolumeID, i.InstanceID, in.Device, "attaching", now}, nil
}

func (e *EC2) detachVolume(r *request, in attachVolumeIn) (any, error) {
	sc := e.in(r.scope())
	v := sc.Volumes[in.VolumeID]
	if v == nil {
		return nil, noVolume(in.VolumeID)
	}
	if len(v.Attachments) == 0 {
		return nil, refuse("IncorrectState", "Volume '%s' is in the 'available' state.", v.VolumeID)
	}
	a := v.Attachments[0]
	if i := sc.Instances[a.InstanceID]; i != nil {
		if a.Device == i.RootName && i.Status.Name != "stopped" {
			return nil, refuse("OperationNotPermitted", "Unable to detach root volume '%s' from instance '%s'", v.VolumeID, i.InstanceID)
		}
		i.Devices = slices.DeleteFunc(i.Devices, func(d attachedVolume) bool { return d.Ebs.VolumeID == v.VolumeID })
	}
	v.Attachments, v.Status = nil, "available"
	return attachedOut{v.VolumeID, a.InstanceID, a.Device, "detaching", a.AttachTime}, nil
}

type modifyVolumeIn struct {
	VolumeID   string `q:"VolumeId"`
	Size       *int
	VolumeType string
	Iops       *int
	Throughput *int
}

type volumeModification struct {
	VolumeID     string    `ec2:"volumeId"`
	State        string    `ec2:"modificationState"`
	Message      string    `ec2:"statusMessage,omitempty"`
	TargetSize   int       `ec2:"targetSize"`
	TargetIops   int       `ec2:"targetIops"`
	TargetType   string    `ec2:"targetVolumeType"`
	TargetTput   int       `ec2:"targetThroughput"`
	TargetMulti  bool      `ec2:"targetMultiAttachEnabled"`
	OldSize      int       `ec2:"originalSize"`
	OldIops      int       `ec2:"originalIops"`
	OldType      string    `ec2:"originalVolumeType"`
	OldTput      int       `ec2:"originalThroughput"`
	OldMulti     bool      `ec2:"originalMultiAttachEnabled"`
	ProgressDone int       `ec2:"progress"`
	StartTime    time.Time `ec2:"startTime"`
}

func (e *EC2) modifyVolume(r *request, in modifyVolumeIn) (any, error) {
	v := e.in(r.scope()).Volumes[in.VolumeID]
	if v == nil {
		return nil, noVolume(in.VolumeID)
	}
	if in.Size != nil && *in.Size < v.Size {
		return nil, refuse("InvalidParameterValue", "New size cannot be smaller than existing size")
	}
	m := volumeModification{VolumeID: v.VolumeID, State: "modifying", OldSize: v.Size, OldIops: v.Iops, OldType: v.Type, OldTput: v.Throughput,
		StartTime: e.cloud.World.Now().Truncate(time.Second)}
	set := func(dst *int, p *int) {
		if p != nil {
			*dst = *p
		}
	}
	v.Type = textOr(in.VolumeType, v.Type)
	set(&v.Size, in.Size)
	set(&v.Iops, in.Iops)
	set(&v.Throughput, in.Throughput)
	m.TargetSize, m.TargetIops, m.TargetType, m.TargetTput = v.Size, v.Iops, v.Type, v.Throughput
	r.Touch(v.VolumeID)
	return struct {
		Modification volumeModification `ec2:"volumeModification"`
	}{m}, nil
}

// Snapshot is a copy of a volume at a time.
type Snapshot struct {
	SnapshotID  string    `ec2:"snapshotId"`
	VolumeID    string    `ec2:"volumeId"`
	Status      string    `ec2:"status"`
	StartTime   time.Time `ec2:"startTime"`
	Progress    string    `ec2:"progress"`
	OwnerID     string    `ec2:"ownerId"`
	Size        int       `ec2:"volumeSize"`
	Description string    `ec2:"description"`
	Encrypted   bool      `ec2:"encrypted"`
	KmsKeyID    string    `ec2:"kmsKeyId,omitempty"`
	StorageTier string    `ec2:"storageTier"`
	meta
}

func (s *Snapshot) ident() string { return s.SnapshotID }
func (s *Snapshot) kind() string  { return "snapshot" }
func (s *Snapshot) placed() place {
	return place{s.Status, nil, false}
}

func (s *Snapshot) attr(name string) ([]string, bool) {
	v := map[string]string{"snapshot-id": s.SnapshotID, "volume-id": s.VolumeID, "status": s.Status, "owner-id": s.OwnerID, "description": s.Description,
		"volume-size": fmt.Sprint(s.Size), "encrypted": fmt.Sprint(s.Encrypted), "progress": s.Progress, "storage-tier": s.StorageTier}
	val, ok := v[name]
	return []string{val}, ok
}

func (*Snapshot) taglessWhenEmpty() {}

func noSnapshot(id string) *Error {
	return refuse("InvalidSnapshot.NotFound", "The snapshot '%s' does not exist.", id)
}

type createSnapshotIn struct {
	VolumeID         string `q:"VolumeId"`
	Description      string
	TagSpecification []tagSpec
}

func (e *EC2) createSnapshot(r *request, in createSnapshotIn) (any, error) {
	sc := e.in(r.scope())
	v := sc.Volumes[in.VolumeID]
	if v == nil {
		return nil, noVolume(in.VolumeID)
	}
	tags, err := tagsFor(in.TagSpecification, "snapshot")
	if err != nil {
		return nil, err
	}
	s := &Snapshot{SnapshotID: e.cloud.hex17("snap-"), VolumeID: v.VolumeID, Status: "pending", OwnerID: r.Account, Size: v.Size, Description: in.Description,
		Encrypted: v.Encrypted, KmsKeyID: v.KmsKeyID, StorageTier: "standard", meta: e.fresh(tags)}
	s.StartTime = s.Created
	sc.Snapshots[s.SnapshotID] = s
	r.Make(s.SnapshotID)
	e.later(sc, 30*time.Second, s.SnapshotID, "completed")
	return *s, nil
}

type describeSnapshotsIn struct {
	SnapshotID []string `q:"SnapshotId"`
	Owner      []string
	page
}

func (e *EC2) describeSnapshots(r *request, in describeSnapshotsIn) (any, error) {
	found, err := find(e, r, e.in(r.scope()).Snapshots, in.SnapshotID, in.Filter, noSnapshot)
	if err != nil {
		return nil, err
	}
	if len(in.Owner) > 0 && !slices.Contains(in.Owner, "self") && !slices.Contains(in.Owner, r.Account) {
		found = nil
	}
	items, next, err := paginate(e.cloud, r, found, in.page, 5, 1000)
	return struct {
		Snapshots []*Snapshot `ec2:"snapshotSet"`
		Next      string      `ec2:"nextToken,omitempty"`
	}{items, next}, err
}

type snapshotIn struct {
	SnapshotID string `q:"SnapshotId"`
}

func (e *EC2) deleteSnapshot(r *request, in snapshotIn) (any, error) {
	sc := e.in(r.scope())
	if sc.Snapshots[in.SnapshotID] == nil {
		return nil, noSnapshot(in.SnapshotID)
	}
	delete(sc.Snapshots, in.SnapshotID)
	return returned{true}, nil
}

type volumeAttachment struct {
	VolumeID   string    `ec2:"volumeId"`
	InstanceID string    `ec2:"instanceId"`
	Device     string    `ec2:"device"`
	State      string    `ec2:"status"`
	AttachTime time.Time `ec2:"attachTime"`
	Delete     bool      `ec2:"deleteOnTermination"`
}

// Volume is a disk.
type Volume struct {
	VolumeID    string             `ec2:"volumeId"`
	Size        int                `ec2:"size"`
	SnapshotID  string             `ec2:"snapshotId"`
	Zone        string             `ec2:"availabilityZone"`
	ZoneID      string             `ec2:"availabilityZoneId"`
	Status      string             `ec2:"status"`
	CreateTime  time.Time          `ec2:"createTime"`
	Attachments []volumeAttachment `ec2:"attachmentSet"`
	Type        string             `ec2:"volumeType"`
	Iops        int                `ec2:"iops,omitempty"`
	Throughput  int                `ec2:"throughput,omitempty"`
	Encrypted   bool               `ec2:"encrypted"`
	KmsKeyID    string             `ec2:"kmsKeyId,omitempty"`
	MultiAttach bool               `ec2:"multiAttachEnabled"`
	Operator    operator           `ec2:"operator"`
	meta
}

func (v *Volume) ident() string { return v.VolumeID }
func (v *Volume) kind() string  { return "volume" }
func (v *Volume) placed() place {
	var parents []string
	for _, a := range v.Attachments {
		parents = append(parents, a.InstanceID)
	}
	return place{v.Status, parents, false}
}

func (v *Volume) attr(name string) ([]string, bool) {
	var a volumeAttachment
	if len(v.Attachments) > 0 {
		a = v.Attachments[0]
	}
	m := map[string]string{"volume-id": v.VolumeID, "status": v.Status, "size": fmt.Sprint(v.Size), "snapshot-id": v.SnapshotID, "availability-zone": v.Zone,
		"volume-type": v.Type, "encrypted": fmt.Sprint(v.Encrypted), "attachment.instance-id": a.InstanceID, "attachment.device": a.Device,
		"attachment.status": a.State, "attachment.delete-on-termination": fmt.Sprint(a.Delete), "multi-attach-enabled": fmt.Sprint(v.MultiAttach)}
	s, ok := m[name]
	return []string{s}, ok
}

func (e *EC2) newVolume(sc *ec2Scope, ebs *launchEbs, s *Subnet, tags []Tag) *Volume {
	v := &Volume{VolumeID: e.cloud.hex17("vol-"), SnapshotID: ebs.SnapshotID, Zone: s.Zone, ZoneID: s.ZoneID, Status: "creating", Type: textOr(ebs.Type, "gp2"),
		Encrypted: ebs.Encrypted != nil && *ebs.Encrypted || ebs.KmsKeyID != "" || sc.Defaults.Encrypt, Size: 8, meta: e.fresh(tags)}
	v.CreateTime = v.Created
	if ebs.Size != nil {
		v.Size = *ebs.Size
	}
	switch v.Type {
	case "gp3":
		v.Iops, v.Throughput = 3000, 125
	case "gp2":
		v.Iops = max(100, 3*v.Size)
	}
	if ebs.Iops != nil {
		v.Iops = *ebs.Iops
	}
	if ebs.Throughput != nil {
		v.Throughput = *ebs.Throughput
	}
	if v.Encrypted {
		v.KmsKeyID = e.diskKey(sc, ebs.KmsKeyID)
	}
	sc.Volumes[v.VolumeID] = v
	return v
}

// uuidFrom makes a UUID that is always the same for the same text: the account's default key for disks.
func uuidFrom(w *sim.World, text string) string {
	h := fmt.Sprintf("%014x%014x%04x", int64(w.Fraction("a", text)*(1<<52)), int64(w.Fraction("b", text)*(1<<52)), int64(w.Fraction("c", text)*(1<<16)))
	return h[:8] + "-" + h[8:12] + "-4" + h[13:16] + "-a" + h[17:20] + "-" + h[20:32]
}

type describeVolumesIn struct {
	VolumeID []string `q:"VolumeId"`
	page
}

func (e *EC2) describeVolumes(r *request, in describeVolumesIn) (any, error) {
	found, err := find(e, r, e.in(r.scope()).Volumes, in.VolumeID, in.Filter, noVolume)
	if err != nil {
		return nil, err
	}
	items, next, err := paginate(e.cloud, r, found, in.page, 5, 1000)
	return struct {
		Volumes []*Volume `ec2:"volumeSet"`
		Next    string    `ec2:"nextToken,omitempty"`
	}{items, next}, err
}

type createVolumeIn struct {
	launchEbs
	AvailabilityZone string
	Size             *int
	TagSpecification []tagSpec
	ClientToken      string
}

func (e *EC2) createVolume(r *request, in createVolumeIn) (any, error) {
	sc := e.in(r.scope())
	tags, err := tagsFor(in.TagSpecification, "volume")
	if err != nil {
		return nil, err
	}
	if in.AvailabilityZone == "" {
		return nil, missing("AvailabilityZone")
	}
	z, err := e.zoneFor(sc.Region, in.AvailabilityZone, "", "")
	if err != nil {
		return nil, err
	}
	if in.Size != nil {
		in.launchEbs.Size = in.Size
	}
	v := e.newVolume(sc, &in.launchEbs, &Subnet{Zone: z.Name, ZoneID: z.ID}, tags)
	e.later(sc, 2*time.Second, v.VolumeID, "available")
	r.Make(v.VolumeID)
	return *v, nil
}

type volumeIn struct {
	VolumeID string `q:"VolumeId"`
}

func (e *EC2) deleteVolume(r *request, in volumeIn) (any, error) {
	sc := e.in(r.scope())
	v := sc.Volumes[in.VolumeID]
	if v == nil {
		return nil, noVolume(in.VolumeID)
	}
	if i := slices.IndexFunc(v.Attachments, func(volumeAttachment) bool { return true }); i >= 0 {
		return nil, refuse("VolumeInUse", "Volume %s is currently attached to %s", v.VolumeID, v.Attachments[i].InstanceID)
	}
	delete(sc.Volumes, v.VolumeID)
	return returned{true}, nil
}
