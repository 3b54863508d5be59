package azure

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/zopday/provisioner/internal/bootstrap"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// ours are the images by our own names ("Find Azure Marketplace image
// information"; Ubuntu on Azure: its offers hold one for each architecture).
var ours = map[string]map[string]string{
	"ubuntu-24.04": {"amd64": "Canonical:ubuntu-24_04-lts:server:latest", "arm64": "Canonical:ubuntu-24_04-lts:server-arm64:latest"},
}

// An imageName is a marketplace image: publisher, offer, SKU and version.
type imageName struct{ publisher, offer, sku, version string }

func parseImage(urn string) (imageName, bool) {
	parts := strings.Split(urn, ":")
	if len(parts) != 4 {
		return imageName{}, false
	}
	return imageName{parts[0], parts[1], parts[2], parts[3]}, true
}

func (i imageName) String() string {
	return strings.Join([]string{i.publisher, i.offer, i.sku, i.version}, ":")
}

// reference is how a VM names its image: one of the marketplace, or one by ID.
func reference(image string) *armcompute.ImageReference {
	if i, ok := parseImage(image); ok {
		return &armcompute.ImageReference{Publisher: &i.publisher, Offer: &i.offer, SKU: &i.sku, Version: &i.version}
	}
	return &armcompute.ImageReference{ID: &image}
}

// osOf is what the bootstrap takes an image for.
func osOf(image string) string {
	if strings.Contains(strings.ToLower(image), "debian") {
		return bootstrap.OSDebian
	}
	return bootstrap.OSUbuntu
}

// customData is the bootstrap as a VM is given it.
func customData(spec job.VMSpec, image string) (string, error) {
	data, _, err := bootstrap.UserData(bootstrap.Options{
		Cloud: bootstrap.CloudAzure, OS: osOf(image), Mode: spec.Bootstrap, Extra: spec.StartupScript,
	})
	if err != nil {
		return "", pipeline.Fatal("bootstrap-script", err.Error(), "Shorten or correct the startup script, then retry.").On("config.spec.startupScript")
	}
	return base64.StdEncoding.EncodeToString(data), nil
}

// throwAwayKey is the public half of a key whose other half nobody has. Azure
// makes no Linux VM without a key or a password ("OSProfile"); the bootstrap
// takes it out again.
func throwAwayKey() (string, error) {
	public, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return "", fmt.Errorf("throw-away SSH key: %w", err)
	}
	const name = "ssh-ed25519"
	var wire []byte
	for _, field := range [][]byte{[]byte(name), public} {
		wire = binary.BigEndian.AppendUint32(wire, uint32(len(field)))
		wire = append(wire, field...)
	}
	return name + " " + base64.StdEncoding.EncodeToString(wire) + " nobody", nil
}

// traits are what the image, the size and the subscription allow a VM.
type traits struct {
	trusted     bool // trusted launch: secure boot and a virtual TPM
	encrypted   bool // encryption at host
	accelerated bool
	premium     bool
}

// A shape is everything that the VMs of a pool have in common.
type shape struct {
	p      *Provider
	r      *pipeline.Run
	spec   job.VMSpec
	traits traits
	data   string // custom data
	key    string
}

// shape is looked up only when a VM is to be made.
func (p *Provider) shape(ctx context.Context, r *pipeline.Run, spec job.VMSpec) (shape, error) {
	s := shape{p: p, r: r, spec: spec}
	if r.Mode != pipeline.Apply {
		return s, nil
	}
	var err error
	if s.data, err = customData(spec, r.Job.Config.InfraConfig.ImageID); err != nil {
		return s, err
	}
	if s.key, err = throwAwayKey(); err != nil {
		return s, err
	}
	s.traits, err = p.traits(ctx, r)
	return s, err
}

// linux lets nobody in by password, and by no key but the throw-away one, which
// stands where Azure puts it.
func (s shape) linux() *armcompute.LinuxConfiguration {
	return &armcompute.LinuxConfiguration{
		DisablePasswordAuthentication: new(true), ProvisionVMAgent: new(true),
		SSH: &armcompute.SSHConfiguration{PublicKeys: []*armcompute.SSHPublicKey{{Path: new(bootstrap.AuthorizedKeys[0]), KeyData: &s.key}}},
	}
}

// patched has the platform patch a VM (control VMZ-13). Uniform scale sets do not
// take it: theirs come with new images ("Automatic Guest Patching for Azure
// Virtual Machines").
func patched(linux *armcompute.LinuxConfiguration) *armcompute.LinuxConfiguration {
	linux.PatchSettings = &armcompute.LinuxPatchSettings{
		PatchMode: new(armcompute.LinuxVMGuestPatchModeAutomaticByPlatform), AssessmentMode: new(armcompute.LinuxPatchAssessmentModeAutomaticByPlatform),
	}
	return linux
}

func (s shape) security() *armcompute.SecurityProfile {
	f := &armcompute.SecurityProfile{}
	if s.traits.encrypted {
		f.EncryptionAtHost = new(true)
	}
	if s.traits.trusted {
		f.SecurityType = new(armcompute.SecurityTypesTrustedLaunch)
		f.UefiSettings = &armcompute.UefiSettings{SecureBootEnabled: new(true), VTpmEnabled: new(true)}
	}
	return f
}

func (s shape) account() *armcompute.StorageAccountTypes {
	if s.traits.premium {
		return new(armcompute.StorageAccountTypesPremiumLRS)
	}
	return new(armcompute.StorageAccountTypesStandardSSDLRS)
}

func (s shape) identities() map[string]*armcompute.UserAssignedIdentitiesValue {
	return map[string]*armcompute.UserAssignedIdentitiesValue{s.r.Job.Config.InfraConfig.ServiceAccount: {}}
}

// subnet is where the i-th VM stands.
func (s shape) subnet(i int) string {
	ids := s.r.Job.Config.InfraConfig.PrivateSubnetIDs
	if len(ids) == 0 {
		return ""
	}
	return ids[i%len(ids)]
}

// networkAPI is the version by which Compute makes the interfaces of VMs: it
// takes the one value alone.
var networkAPI = armcompute.NetworkAPIVersionTwoThousandTwenty1101

// vmBody is one VM of a fixed pool.
func (s shape) vmBody(key, name, set, zone string, i int) armcompute.VirtualMachine {
	ic := s.r.Job.Config.InfraConfig
	nic := &armcompute.VirtualMachineNetworkInterfaceConfiguration{
		Name: new(name + "-nic"), Tags: tagsFor(s.r.Job, key),
		Properties: &armcompute.VirtualMachineNetworkInterfaceConfigurationProperties{
			Primary: new(true), DeleteOption: new(armcompute.DeleteOptionsDelete), EnableIPForwarding: new(false),
			EnableAcceleratedNetworking: new(s.traits.accelerated), NetworkSecurityGroup: &armcompute.SubResource{ID: &ic.VMSecurityGroupID},
			IPConfigurations: []*armcompute.VirtualMachineNetworkInterfaceIPConfiguration{{Name: new("primary"), Properties: &armcompute.VirtualMachineNetworkInterfaceIPConfigurationProperties{
				Primary: new(true), Subnet: &armcompute.SubResource{ID: new(s.subnet(i))},
			}}},
		},
	}
	return armcompute.VirtualMachine{
		Location: &s.p.region, Tags: tagsFor(s.r.Job, key), Zones: one(zone),
		Identity: &armcompute.VirtualMachineIdentity{Type: new(armcompute.ResourceIdentityTypeUserAssigned), UserAssignedIdentities: s.identities()},
		Properties: &armcompute.VirtualMachineProperties{
			VirtualMachineScaleSet: &armcompute.SubResource{ID: &set},
			HardwareProfile:        &armcompute.HardwareProfile{VMSize: new(armcompute.VirtualMachineSizeTypes(ic.InstanceType))},
			OSProfile: &armcompute.OSProfile{ComputerName: &name, AdminUsername: new(bootstrap.AdminUser), CustomData: &s.data,
				AllowExtensionOperations: new(true), LinuxConfiguration: patched(s.linux())},
			StorageProfile: &armcompute.StorageProfile{ImageReference: reference(ic.ImageID), OSDisk: &armcompute.OSDisk{
				Name: new(diskName(name)), CreateOption: new(armcompute.DiskCreateOptionTypesFromImage), DeleteOption: new(armcompute.DiskDeleteOptionTypesDelete),
				DiskSizeGB: new(int32(s.spec.Pool.DiskGiB)), ManagedDisk: &armcompute.ManagedDiskParameters{StorageAccountType: s.account()},
			}},
			SecurityProfile: s.security(),
			NetworkProfile: &armcompute.NetworkProfile{NetworkAPIVersion: &networkAPI,
				NetworkInterfaceConfigurations: []*armcompute.VirtualMachineNetworkInterfaceConfiguration{nic}},
		},
	}
}

func diskName(vm string) string { return vm + "-os" }

func one(zone string) []*string {
	if zone == "" {
		return nil
	}
	return []*string{&zone}
}

// setBody is a uniform set: all its VMs come from one model.
func (s shape) setBody(name string) armcompute.VirtualMachineScaleSet {
	ic := s.r.Job.Config.InfraConfig
	pool := s.spec.Pool
	return armcompute.VirtualMachineScaleSet{
		Location: &s.p.region, Tags: tagsFor(s.r.Job, setKey), Zones: to.SliceOfPtrs(ic.Zones...),
		SKU:      &armcompute.SKU{Name: &ic.InstanceType, Tier: new("Standard"), Capacity: new(int64(pool.VMCount()))},
		Identity: &armcompute.VirtualMachineScaleSetIdentity{Type: new(armcompute.ResourceIdentityTypeUserAssigned), UserAssignedIdentities: s.identities()},
		Properties: &armcompute.VirtualMachineScaleSetProperties{
			OrchestrationMode: new(armcompute.OrchestrationModeUniform), Overprovision: new(false), SinglePlacementGroup: new(false),
			UpgradePolicy: &armcompute.UpgradePolicy{Mode: new(armcompute.UpgradeModeManual)}, // nothing is rolled by itself
			ZoneBalance:   new(false),
			VirtualMachineProfile: &armcompute.VirtualMachineScaleSetVMProfile{
				OSProfile: &armcompute.VirtualMachineScaleSetOSProfile{ComputerNamePrefix: &name, AdminUsername: new(bootstrap.AdminUser), CustomData: &s.data,
					AllowExtensionOperations: new(true), LinuxConfiguration: s.linux()},
				StorageProfile: &armcompute.VirtualMachineScaleSetStorageProfile{ImageReference: reference(ic.ImageID), OSDisk: &armcompute.VirtualMachineScaleSetOSDisk{
					CreateOption: new(armcompute.DiskCreateOptionTypesFromImage), DiskSizeGB: new(int32(pool.DiskGiB)),
					ManagedDisk: &armcompute.VirtualMachineScaleSetManagedDiskParameters{StorageAccountType: s.account()},
				}},
				SecurityProfile: s.security(),
				NetworkProfile: &armcompute.VirtualMachineScaleSetNetworkProfile{NetworkInterfaceConfigurations: []*armcompute.VirtualMachineScaleSetNetworkConfiguration{{
					Name: new("primary"), Properties: &armcompute.VirtualMachineScaleSetNetworkConfigurationProperties{
						Primary: new(true), EnableIPForwarding: new(false), EnableAcceleratedNetworking: new(s.traits.accelerated),
						NetworkSecurityGroup: &armcompute.SubResource{ID: &ic.VMSecurityGroupID},
						IPConfigurations: []*armcompute.VirtualMachineScaleSetIPConfiguration{{Name: new("primary"), Properties: &armcompute.VirtualMachineScaleSetIPConfigurationProperties{
							Primary: new(true), Subnet: &armcompute.APIEntityReference{ID: new(s.subnet(0))},
						}}},
					},
				}}},
			},
		},
	}
}

// vmName is the name of a VM and of its host.
func vmName(r *pipeline.Run, key string) string { return r.Job.ResourceName(key, 63) }
