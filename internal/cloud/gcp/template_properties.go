package gcp

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/api/compute/v1"

	"github.com/zopday/provisioner/internal/bootstrap"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// The metadata that every VM is given beside its user data ("Predefined metadata
// keys"): log-in by IAM alone, no keys of the project, guest attributes for the
// bootstrap's report, the OS Config agent, and no interactive serial port even
// where the project allows it.
var vmMetadata = map[string]string{
	"enable-oslogin":          "TRUE",
	"block-project-ssh-keys":  "TRUE",
	"enable-guest-attributes": "TRUE",
	"enable-osconfig":         "TRUE",
	"serial-port-enable":      "FALSE",
}

const (
	userDataKey      = "user-data"
	userDataEncoding = "user-data-encoding"

	// maxMetadataValue is how long one value may be ("Limitations on custom metadata").
	maxMetadataValue = 256 << 10
)

// scopeAll leaves it to IAM what the VM's account may do ("Scopes best practice").
const scopeAll = "https://www.googleapis.com/auth/cloud-platform"

// osOf is the bootstrap's name for the image's system.
func osOf(image, imageName string) string {
	for _, s := range []string{image, imageName} {
		if strings.Contains(base(s), "debian") {
			return bootstrap.OSDebian
		}
	}
	return bootstrap.OSUbuntu
}

// userMetadata is a VM's metadata. A value is text: user data that had to be
// compressed is encoded, which cloud-init is told.
func userMetadata(j *job.Job, spec job.VMSpec) (*compute.Metadata, error) {
	data, zipped, err := bootstrap.UserData(bootstrap.Options{
		Cloud: bootstrap.CloudGCP, OS: osOf(spec.Pool.Image, j.Config.InfraConfig.ImageName), Mode: spec.Bootstrap, Extra: spec.StartupScript,
	})
	if err != nil {
		return nil, err
	}
	values := maps.Clone(vmMetadata)
	values[userDataKey] = string(data)
	if zipped {
		values[userDataKey], values[userDataEncoding] = base64.StdEncoding.EncodeToString(data), "base64"
	}
	m := &compute.Metadata{}
	for _, k := range slices.Sorted(maps.Keys(values)) {
		m.Items = append(m.Items, &compute.MetadataItems{Key: k, Value: new(values[k])})
	}
	return m, nil
}

// vmProperties is everything that a VM is started with: a shielded machine with
// the job's own account, one interface without an external address in the
// private subnet, a disk that goes with it, and the bootstrap. Disks are always
// encrypted ("Default encryption at rest").
func vmProperties(j *job.Job, spec job.VMSpec) (*compute.InstanceProperties, error) {
	infra := j.Config.InfraConfig
	metadata, err := userMetadata(j, spec)
	if err != nil {
		return nil, err
	}
	labels := labelsFor(j, "vm")
	network := &compute.NetworkInterface{Network: infra.NetworkID, StackType: "IPV4_ONLY"}
	if len(infra.PrivateSubnetIDs) > 0 {
		network.Subnetwork = infra.PrivateSubnetIDs[0]
	}
	return &compute.InstanceProperties{
		MachineType:  infra.InstanceType,
		CanIpForward: false,
		Labels:       labels,
		Metadata:     metadata,
		Disks: []*compute.AttachedDisk{{
			Boot: true, AutoDelete: true, Type: "PERSISTENT", Mode: "READ_WRITE",
			InitializeParams: &compute.AttachedDiskInitializeParams{
				SourceImage: infra.ImageID, DiskSizeGb: int64(spec.Pool.DiskGiB), DiskType: bootDiskOf(infra.InstanceType), Labels: labels,
			},
		}},
		NetworkInterfaces: []*compute.NetworkInterface{network},
		ServiceAccounts:   []*compute.ServiceAccount{{Email: infra.ServiceAccount, Scopes: []string{scopeAll}}},
		Scheduling: &compute.Scheduling{
			AutomaticRestart: new(true), OnHostMaintenance: maintenanceOf(infra.InstanceType), ProvisioningModel: "STANDARD",
			ForceSendFields: []string{"Preemptible"},
		},
		ShieldedInstanceConfig: &compute.ShieldedInstanceConfig{EnableSecureBoot: true, EnableVtpm: true, EnableIntegrityMonitoring: true},
		ForceSendFields:        []string{"CanIpForward"},
	}, nil
}

// traits are the properties of a VM, or of a template, that can drift, in words.
type traits map[string]string

// traitNames is the order in which they are told.
var traitNames = []string{
	"machine type", "image", "boot disk", "user data", "metadata", "service account", "subnet", "external address", "IP forwarding", "shielded VM", "scheduling",
}

// compare is one aspect for each trait that is wanted. None is changed in place.
func (want traits) compare(have traits) []pipeline.Aspect {
	var out []pipeline.Aspect
	for _, name := range traitNames {
		if w, asked := want[name]; asked {
			out = append(out, pipeline.Aspect{Name: name, Wanted: w, Seen: have[name]})
		}
	}
	return out
}

func traitsOf(x *compute.InstanceProperties) traits {
	t := traits{
		"machine type": base(x.MachineType), "image": "none", "boot disk": "none",
		"IP forwarding": yesNo(x.CanIpForward), "shielded VM": shieldedText(x.ShieldedInstanceConfig), "scheduling": schedulingText(x.Scheduling),
	}
	t.addMetadata(x.Metadata)
	t.addAccount(x.ServiceAccounts)
	t.addNetwork(x.NetworkInterfaces)
	for _, d := range x.Disks {
		if p := d.InitializeParams; d.Boot && p != nil {
			t["image"] = rel(p.SourceImage)
			t["boot disk"] = diskText(p.DiskType, p.DiskSizeGb, d.AutoDelete)
		}
	}
	return t
}

func (t traits) addMetadata(m *compute.Metadata) {
	values := metadataOf(m)
	t["user data"] = digest(values[userDataKey])
	var settings []string
	for _, k := range slices.Sorted(maps.Keys(vmMetadata)) {
		settings = append(settings, k+"="+strings.ToUpper(or(values[k], "unset")))
	}
	t["metadata"] = strings.Join(settings, ", ")
}

func (t traits) addAccount(all []*compute.ServiceAccount) {
	var emails []string
	for _, a := range all {
		emails = append(emails, a.Email)
	}
	t["service account"] = or(strings.Join(emails, ", "), "none")
}

func (t traits) addNetwork(all []*compute.NetworkInterface) {
	var subnets, addresses []string
	for _, n := range all {
		subnets = append(subnets, rel(n.Subnetwork))
		for _, c := range n.AccessConfigs {
			addresses = append(addresses, or(c.NatIP, "one of its own"))
		}
	}
	t["subnet"] = strings.Join(subnets, ", ")
	t["external address"] = or(strings.Join(addresses, ", "), "none")
}

func metadataOf(m *compute.Metadata) map[string]string {
	values := map[string]string{}
	if m == nil {
		return values
	}
	for _, i := range m.Items {
		if i.Value != nil {
			values[i.Key] = *i.Value
		}
	}
	return values
}

func diskText(kind string, gb int64, gone bool) string {
	text := fmt.Sprintf("%s %d GB", base(kind), gb)
	if gone {
		text += ", deleted with the VM"
	}
	return text
}

func shieldedText(c *compute.ShieldedInstanceConfig) string {
	if c == nil {
		return "no"
	}
	return fmt.Sprintf("secure boot %s, vTPM %s, integrity monitoring %s", yesNo(c.EnableSecureBoot), yesNo(c.EnableVtpm), yesNo(c.EnableIntegrityMonitoring))
}

func schedulingText(s *compute.Scheduling) string {
	if s == nil {
		s = &compute.Scheduling{}
	}
	// Both are the default for a machine that is not preemptible.
	restart := s.AutomaticRestart == nil || *s.AutomaticRestart
	return fmt.Sprintf("%s on maintenance, automatic restart %s, preemptible %s", or(s.OnHostMaintenance, "MIGRATE"), yesNo(restart), yesNo(s.Preemptible))
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func or(s, alt string) string {
	if s == "" {
		return alt
	}
	return s
}

// digest tells two user data apart without showing them.
func digest(text string) string {
	if text == "" {
		return "none"
	}
	sum := sha256.Sum256([]byte(text))
	return "sha256 " + hex.EncodeToString(sum[:6])
}
