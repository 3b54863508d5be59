package aws

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
)

// Image is a machine image. Only public images of Canonical and Amazon exist here.
type Image struct {
	ImageID        string        `ec2:"imageId"`
	Location       string        `ec2:"imageLocation"`
	State          string        `ec2:"imageState"`
	OwnerID        string        `ec2:"imageOwnerId"`
	CreationDate   string        `ec2:"creationDate"`
	Deprecation    string        `ec2:"deprecationTime"`
	Public         bool          `ec2:"isPublic"`
	Architecture   string        `ec2:"architecture"`
	Type           string        `ec2:"imageType"`
	SriovNet       string        `ec2:"sriovNetSupport"`
	OwnerAlias     string        `ec2:"imageOwnerAlias,omitempty"`
	ImageName      string        `ec2:"name"`
	Description    string        `ec2:"description"`
	RootType       string        `ec2:"rootDeviceType"`
	RootName       string        `ec2:"rootDeviceName"`
	Devices        []imageDevice `ec2:"blockDeviceMapping"`
	Virtualization string        `ec2:"virtualizationType"`
	Hypervisor     string        `ec2:"hypervisor"`
	Ena            bool          `ec2:"enaSupport"`
	Platform       string        `ec2:"platformDetails"`
	Usage          string        `ec2:"usageOperation"`
	BootMode       string        `ec2:"bootMode"`
	Imds           string        `ec2:"imdsSupport,omitempty"`
	meta

	Distro, Release string
}

type imageDevice struct {
	Name string `ec2:"deviceName"`
	Ebs  struct {
		SnapshotID string `ec2:"snapshotId"`
		Size       int    `ec2:"volumeSize"`
		Delete     bool   `ec2:"deleteOnTermination"`
		Type       string `ec2:"volumeType"`
		Encrypted  bool   `ec2:"encrypted"`
	} `ec2:"ebs"`
}

func (i *Image) ident() string { return i.ImageID }
func (i *Image) kind() string  { return "image" }
func (i *Image) placed() place {
	return place{i.State, nil, false}
}

func (i *Image) attr(name string) ([]string, bool) {
	v := map[string]string{"image-id": i.ImageID, "name": i.ImageName, "architecture": i.Architecture, "state": i.State, "owner-id": i.OwnerID,
		"owner-alias": i.OwnerAlias, "is-public": strconv.FormatBool(i.Public), "root-device-type": i.RootType, "root-device-name": i.RootName,
		"virtualization-type": i.Virtualization, "hypervisor": i.Hypervisor, "image-type": i.Type, "description": i.Description, "ena-support": "true",
		"creation-date": i.CreationDate, "platform-details": i.Platform, "block-device-mapping.volume-type": "gp3"}
	s, ok := v[name]
	return []string{s}, ok
}

const (
	canonical = "099720109477"
	amazon    = "137112412989"
)

// publicImages are the machine images that everybody sees in a region.
func (e *EC2) publicImages(region string) map[string]*Image {
	if e.images[region] == nil {
		e.images[region] = e.makeImages(region)
	}
	return e.images[region]
}

func (e *EC2) makeImages(region string) map[string]*Image {
	out := map[string]*Image{}
	seq := 0
	add := func(distro, release, arch, owner, alias, name, description, root string) {
		seq--
		id := func(prefix, salt string) string {
			return prefix + fmt.Sprintf("0%016x", uint64(e.cloud.World.Fraction(salt, region, name)*(1<<53)))
		}
		i := &Image{ImageID: id("ami-", "ami"), Location: owner + "/" + name, State: "available", OwnerID: owner, OwnerAlias: alias,
			CreationDate: "2026-11-04T07:12:31.000Z", Deprecation: "2028-11-04T07:12:31.000Z", Public: true, Architecture: arch, Type: "machine",
			SriovNet: "simple", ImageName: name, Description: description, RootType: "ebs", RootName: root, Virtualization: "hvm", Hypervisor: "xen", Ena: true,
			Platform: "Linux/UNIX", Usage: "RunInstances", BootMode: "uefi-preferred", Imds: "v2.0", Distro: distro, Release: release}
		if arch == "arm64" {
			i.BootMode = "uefi"
		}
		i.meta = meta{Seq: seq, Created: time.Date(2026, 11, 4, 7, 12, 31, 0, time.UTC)}
		d := imageDevice{Name: root}
		d.Ebs.SnapshotID, d.Ebs.Size, d.Ebs.Delete, d.Ebs.Type = id("snap-", "snap"), 8, true, "gp3"
		i.Devices = []imageDevice{d}
		out[i.ImageID] = i
	}
	for _, u := range []struct{ release, code string }{{"22.04", "jammy"}, {"24.04", "noble"}, {"26.04", "resolute"}} {
		for _, a := range []string{"amd64", "arm64"} {
			arch, store := a, "hvm-ssd-gp3"
			if a == "amd64" {
				arch = "x86_64"
			}
			if u.release == "22.04" {
				store = "hvm-ssd"
			}
			add("ubuntu", u.release, arch, canonical, "", fmt.Sprintf("ubuntu/images/%s/ubuntu-%s-%s-%s-server-20261104", store, u.code, u.release, a),
				fmt.Sprintf("Canonical, Ubuntu, %s, %s %s image", u.release, a, u.code), "/dev/sda1")
		}
	}
	for _, arch := range []string{"x86_64", "arm64"} {
		add("al2023", "2023", arch, amazon, "amazon", "al2023-ami-2023.9.20261103.0-kernel-6.12-"+arch, "Amazon Linux 2023 AMI 2023.9.20261103.0 "+arch+" HVM kernel-6.12", "/dev/xvda")
	}
	return out
}

// publicImage is the newest image of a distribution ("ubuntu", "al2023") and release, for Systems Manager's public
// parameters. arch is "x86_64" or "arm64".
func (e *EC2) publicImage(region, distro, release, arch string) (string, bool) {
	for id, i := range e.publicImages(region) {
		if i.Distro == distro && i.Release == release && i.Architecture == arch {
			return id, true
		}
	}
	return "", false
}

type describeImagesIn struct {
	ImageID []string `q:"ImageId"`
	Owner   []string
	page
}

func (e *EC2) describeImages(r *request, in describeImagesIn) (any, error) {
	images := maps.Clone(e.publicImages(r.Region))
	if len(in.Owner) > 0 {
		for id, i := range images {
			if !slices.Contains(in.Owner, i.OwnerID) && (i.OwnerAlias == "" || !slices.Contains(in.Owner, i.OwnerAlias)) {
				delete(images, id)
			}
		}
	}
	found, err := find(e, r, images, in.ImageID, in.Filter, noImage)
	if err != nil {
		return nil, err
	}
	items, next, err := paginate(e.cloud, r, found, in.page, 1, 1000)
	return struct {
		Images []*Image `ec2:"imagesSet"`
		Next   string   `ec2:"nextToken,omitempty"`
	}{items, next}, err
}
