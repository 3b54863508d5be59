package azure

import (
	"fmt"
	"regexp"
	"slices"
	"sort"
	"strings"
)

// An imageSKU is one line of a marketplace offer.
type imageSKU struct {
	Publisher, Offer, SKU string
	Arch, Gen             string
	Distro, Release       string // what the guest is
	Versions              []string
	SizeGB                int
}

// imageSKUs is a choice of the marketplace's Linux images ("Find Ubuntu images on Azure", Ubuntu on public clouds).
var imageSKUs = []*imageSKU{
	{"Canonical", "ubuntu-24_04-lts", "server", "x64", "V2", "ubuntu", "24.04", []string{"24.04.202610080", "24.04.202611120"}, 30},
	{"Canonical", "ubuntu-24_04-lts", "server-gen1", "x64", "V1", "ubuntu", "24.04", []string{"24.04.202610080", "24.04.202611120"}, 30},
	{"Canonical", "ubuntu-24_04-lts", "server-arm64", "Arm64", "V2", "ubuntu", "24.04", []string{"24.04.202610080", "24.04.202611120"}, 30},
	{"Canonical", "ubuntu-24_04-lts", "minimal", "x64", "V2", "ubuntu", "24.04", []string{"24.04.202611120"}, 30},
	{"Canonical", "ubuntu-24_04-lts", "minimal-arm64", "Arm64", "V2", "ubuntu", "24.04", []string{"24.04.202611120"}, 30},
	{"Canonical", "ubuntu-26_04-lts", "server", "x64", "V2", "ubuntu", "26.04", []string{"26.04.202610130", "26.04.202611170"}, 30},
	{"Canonical", "ubuntu-26_04-lts", "server-arm64", "Arm64", "V2", "ubuntu", "26.04", []string{"26.04.202610130", "26.04.202611170"}, 30},
	{"Canonical", "0001-com-ubuntu-server-jammy", "22_04-lts", "x64", "V1", "ubuntu", "22.04", []string{"22.04.202611050"}, 30},
	{"Canonical", "0001-com-ubuntu-server-jammy", "22_04-lts-gen2", "x64", "V2", "ubuntu", "22.04", []string{"22.04.202611050"}, 30},
	{"Canonical", "0001-com-ubuntu-server-jammy", "22_04-lts-arm64", "Arm64", "V2", "ubuntu", "22.04", []string{"22.04.202611050"}, 30},
	{"Canonical", "UbuntuServer", "18.04-LTS", "x64", "V1", "ubuntu", "18.04", []string{"18.04.202401161"}, 30},
	{"Canonical", "UbuntuServer", "16.04.0-LTS", "x64", "V1", "ubuntu", "16.04", []string{"16.04.202009220"}, 30},
	{"Debian", "debian-12", "12", "x64", "V1", "debian", "12", []string{"0.20261109.2290"}, 30},
	{"Debian", "debian-12", "12-gen2", "x64", "V2", "debian", "12", []string{"0.20261109.2290"}, 30},
	{"Debian", "debian-12", "12-arm64", "Arm64", "V2", "debian", "12", []string{"0.20261109.2290"}, 30},
}

var imagePart = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)

// findImage resolves an imageReference of the marketplace to an image and a version of it.
func findImage(ref doc) (*imageSKU, string, *Error) {
	if ref.str("id") != "" {
		return nil, "", invalidParameter("imageReference.id", "Id %s is not a valid resource reference.", ref.str("id"))
	}
	for _, part := range []string{"publisher", "offer", "sku", "version"} {
		v := ref.str(part)
		if v == "" {
			return nil, "", missingParameter("imageReference." + part)
		}
		if !imagePart.MatchString(v) {
			return nil, "", invalidParameter("imageReference."+part, "The value of parameter imageReference.%s is invalid.", part)
		}
	}
	version := ref.str("version")
	for _, i := range imageSKUs {
		if !strings.EqualFold(i.Publisher, ref.str("publisher")) || !strings.EqualFold(i.Offer, ref.str("offer")) || !strings.EqualFold(i.SKU, ref.str("sku")) {
			continue
		}
		if version == "latest" {
			return i, i.Versions[len(i.Versions)-1], nil
		}
		if slices.Contains(i.Versions, version) {
			return i, version, nil
		}
	}
	e := refuse(404, "PlatformImageNotFound", "The platform image '%s:%s:%s:%s' is not available. Verify that all fields in the storage profile are correct. For more details about storage profile information, please refer to https://aka.ms/storageprofile",
		ref.str("publisher"), ref.str("offer"), ref.str("sku"), version)
	e.Target = "imageReference"
	return nil, "", e
}

// imagesUnder lists the distinct names on the next level below a path of names through the catalogue; deeper levels that
// do not exist answer false.
func imagesUnder(path ...string) ([]string, bool) {
	seen, found := map[string]bool{}, len(path) == 0
	for _, i := range imageSKUs {
		parts := append([]string{i.Publisher, i.Offer, i.SKU}, "")
		match := true
		for n, p := range path {
			match = match && strings.EqualFold(parts[n], p)
		}
		if !match {
			continue
		}
		found = true
		if len(path) == 3 {
			for _, v := range i.Versions {
				seen[v] = true
			}
			continue
		}
		seen[parts[len(path)]] = true
	}
	var names []string
	for n := range seen {
		names = append(names, n)
	}
	sort.Strings(names)
	return names, found
}

// imageDoc is what the API shows of a version of an image.
func imageDoc(i *imageSKU, id, location, version string) map[string]any {
	features := []any{map[string]any{"name": "IsAcceleratedNetworkSupported", "value": "True"}, map[string]any{"name": "IsHibernateSupported", "value": "True"}}
	if i.Gen == "V2" {
		features = append(features, map[string]any{"name": "SecurityType", "value": "TrustedLaunchSupported"})
	}
	return map[string]any{
		"location": location, "name": version, "id": id,
		"properties": map[string]any{
			"hyperVGeneration": i.Gen, "architecture": i.Arch, "replicaType": "Managed", "replicaCount": 10,
			"disallowed":                   map[string]any{"vmDiskType": "None"},
			"automaticOSUpgradeProperties": map[string]any{"automaticOSUpgradeSupported": true},
			"imageDeprecationStatus":       map[string]any{"imageState": "Active"},
			"features":                     features,
			"osDiskImage":                  map[string]any{"operatingSystem": "Linux", "sizeInGb": i.SizeGB, "sizeInBytes": int64(i.SizeGB)<<30 + 512},
			"dataDiskImages":               []any{},
		},
	}
}

// checkBoots says whether a size can run an image ("Generation 2 VMs on Azure").
func checkBoots(size *vmSize, i *imageSKU) *Error {
	if size.Series.Arch != i.Arch {
		return refuse(400, "BadRequest", "The VM size '%s' cannot boot with OS image or disk. Please check that disk CPU architectures supported by the VM size ('%s') is compatible with the CPU architectures supported by OS image or disk ('%s').", size.Name, size.Series.Arch, i.Arch)
	}
	if !size.runs(i.Arch, i.Gen) {
		n := strings.TrimPrefix(i.Gen, "V")
		return refuse(400, "BadRequest", "The selected VM size '%s' cannot boot Hypervisor Generation '%s'. If this was a Create operation please check that the Hypervisor Generation of the Image matches the Hypervisor Generation of the selected VM Size. If this was an Update operation please select a Hypervisor Generation '%s' VM Size. For more information, see https://aka.ms/azuregen2vm", size.Name, n, n)
	}
	return nil
}

// checkSecurity judges a securityProfile.
func (c *Cloud) checkSecurity(r *request, sec doc, size *vmSize, i *imageSKU) *Error {
	if strings.EqualFold(sec.str("securityType"), "TrustedLaunch") {
		if i != nil && i.Gen != "V2" {
			return refuse(400, "BadRequest", "Use of TrustedLaunch setting is not supported for the provided image. Please select Trusted Launch Supported Gen2 OS Image. For more information, see https://aka.ms/TrustedLaunch-FAQ.")
		}
		if !strings.Contains(size.Series.Gens, "V2") {
			return refuse(400, "BadRequest", "The VM size '%s' is not supported for Trusted Launch. For more information, see https://aka.ms/TrustedLaunch-FAQ.", size.Name)
		}
	} else if sec.has("uefiSettings") {
		return invalidParameter("securityProfile.uefiSettings", "UefiSettings in securityProfile is only supported for securityType 'TrustedLaunch' or 'ConfidentialVM'.")
	}
	if sec.flag("encryptionAtHost") && c.feature(r.subscription) != "Registered" {
		return invalidParameter("securityProfile.encryptionAtHost", "The property 'securityProfile.encryptionAtHost' is not valid because the '%s' feature is not enabled for this subscription.", hostEncryption)
	}
	if sec.flag("encryptionAtHost") && size.Series.NoHostCrypt {
		return invalidParameter("securityProfile.encryptionAtHost", "The VM size '%s' is not supported for Encryption at Host.", size.Name)
	}
	return nil
}

// imageID is the resource ID of a version, in the capitals that the service writes it with.
func imageID(subscription, location string, i *imageSKU, version string) string {
	return fmt.Sprintf("/Subscriptions/%s/Providers/Microsoft.Compute/Locations/%s/Publishers/%s/ArtifactTypes/VMImage/Offers/%s/Skus/%s/Versions/%s",
		subscription, location, i.Publisher, i.Offer, i.SKU, version)
}
