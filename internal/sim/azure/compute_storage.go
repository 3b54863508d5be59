package azure

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

func (c *Cloud) addDisk() {
	c.addKind(&kind{typ: diskType, service: computeService, versions: diskVersions, tracked: true, zonal: true, noEtag: true, says: computeDialect,
		name:  &nameRule{regexp.MustCompile(`^[A-Za-z0-9_.-]{1,80}$`), `^[^_\W][\w-._]{0,79}(?<![-.])$`},
		model: func() any { return &armcompute.Disk{} }, patchModel: func() any { return &armcompute.DiskUpdate{} },
		put: c.putDisk, mergePatch: true, remove: c.removeDisk, polling: computePolling, stamped: true, retryPoll: 2,
		missing: func(r *request) *Error {
			return refuse(http.StatusNotFound, "NotFound", "Disk %s is not found.", r.id.name())
		}})
}

// putDisk makes an empty disk, or changes one.
func (c *Cloud) putDisk(_ *request, now, old *Resource) (outcome, error) {
	p := now.Properties
	if old != nil {
		inheritDoc(p, old.Properties)
		for name, v := range old.Top {
			now.Top.def(name, v)
		}
		if p.num("diskSizeGB") < old.Properties.num("diskSizeGB") {
			return outcome{}, invalidParameter("diskSizeGB", "Disks or snapshot cannot be resized down.")
		}
	} else {
		if p.str("creationData.createOption") == "" {
			return outcome{}, missingParameter("disk.creationData")
		}
		if strings.EqualFold(p.str("creationData.createOption"), "Empty") && p.num("diskSizeGB") == 0 {
			return outcome{}, missingParameter("disk.diskSizeGB")
		}
		if e := checkZones(now.ID, diskType, now.Location, now.Top.strs("zones")); e != nil {
			return outcome{}, e
		}
		now.Top.def("sku", map[string]any{"name": "Standard_LRS"})
		c.fillDisk(now, "Unattached")
	}
	return outcome{status: http.StatusAccepted, state: stateUpdating, takes: 3 * time.Second, style: asyncLocation}, nil
}

// fillDisk adds what every disk shows.
func (c *Cloud) fillDisk(disk *Resource, state string) {
	sku := disk.Top.sub("sku")
	sku.def("tier", strings.SplitN(sku.str("name"), "_", 2)[0])
	p := disk.Properties
	p.def("diskSizeBytes", p.num("diskSizeGB")*(1<<30))
	p.def("diskIOPSReadWrite", 500)
	p.def("diskMBpsReadWrite", 60)
	p.def("encryption", map[string]any{"type": "EncryptionAtRestWithPlatformKey"})
	p.def("networkAccessPolicy", "AllowAll")
	p.def("publicNetworkAccess", "Enabled")
	p.def("timeCreated", stamp(c.World.Now()))
	p.def("uniqueId", c.World.UUID())
	p["diskState"] = state
}

func (c *Cloud) removeDisk(_ *request, disk *Resource) (outcome, error) {
	if by := disk.Top.str("managedBy"); by != "" {
		return outcome{}, refuse(http.StatusConflict, "OperationNotAllowed", "Disk %s is attached to VM %s.", disk.Name, by)
	}
	return outcome{status: http.StatusAccepted, takes: 3 * time.Second, style: asyncLocation, empty: true}, nil
}

// freeDisk detaches a disk from a machine that is gone.
func freeDisk(disk *Resource) {
	delete(disk.Top, "managedBy")
	disk.Properties["diskState"] = "Unattached"
}

// checkStorage judges the storageProfile of a new machine; the members say vmName for a scale set's as well.
func (c *Cloud) checkStorage(now *Resource, size *vmSize, image *imageSKU) *Error {
	sp := now.Properties.sub("storageProfile")
	if e := checkOSDisk(sp.sub("osDisk"), size, image); e != nil {
		return e
	}
	luns := map[float64]bool{}
	for i, d := range sp.docs("dataDisks") {
		target := fmt.Sprintf("dataDisks[%d]", i)
		if !d.has("lun") {
			return missingParameter(target + ".lun")
		}
		if luns[d.num("lun")] {
			return invalidParameter(target+".lun", "Cannot attach data disk '%s' to VM '%s' because the lun %v is used by another disk.", d.str("name"), now.Name, d.num("lun"))
		}
		luns[d.num("lun")] = true
		if !strings.EqualFold(d.str("createOption"), "Attach") {
			continue
		}
		disk := c.find(d.str("managedDisk.id"))
		if disk == nil || disk.Type != diskType {
			return refuse(http.StatusNotFound, "NotFound", "Disk %s is not found.", lastOf(d.str("managedDisk.id")))
		}
		if by := disk.Top.str("managedBy"); by != "" && !strings.EqualFold(by, now.ID) {
			return refuse(http.StatusConflict, "ConflictingUserInput", "Disk '%s' cannot be attached as the disk is already owned by VM '%s'.", disk.Name, by)
		}
	}
	return nil
}

func checkOSDisk(d doc, size *vmSize, image *imageSKU) *Error {
	if n := d.num("diskSizeGB"); n != 0 && int(n) < image.SizeGB {
		e := refuse(http.StatusConflict, "OperationNotAllowed", "The specified disk size %d GB is smaller than the size of the corresponding disk in the VM image: %d GB. This is not allowed. Please choose equal or greater size or do not specify an explicit size.", int(n), image.SizeGB)
		e.Target = "osDisk.diskSizeGB"
		return e
	}
	if strings.HasPrefix(d.str("managedDisk.storageAccountType"), "Premium") && size.Series.NoHostCrypt {
		return invalidParameter("osDisk.managedDisk.storageAccountType", "Requested operation cannot be performed because the VM size %s does not support the storage account type %s of disk 'osDisk'. Consider updating the VM to a size that supports Premium storage.", size.Name, d.str("managedDisk.storageAccountType"))
	}
	return nil
}

// fillStorage completes the storageProfile of a new machine.
func (c *Cloud) fillStorage(r *request, now *Resource, size *vmSize, image *imageSKU) {
	sp := now.Properties.sub("storageProfile")
	_, version, _ := findImage(sp.sub("imageReference")) // was found when it was checked
	sp.sub("imageReference")["exactVersion"] = version
	if sp.sub("osDisk") == nil {
		sp["osDisk"] = map[string]any{}
	}
	fillOSDisk(sp.sub("osDisk"), size, image, "ReadWrite")
	if r.version >= "2021-03-01" {
		sp.sub("osDisk").def("deleteOption", "Detach")
	}
	sp.def("dataDisks", []any{})
	for _, d := range sp.docs("dataDisks") {
		d.def("caching", "None")
		if r.version >= "2021-03-01" {
			d.def("deleteOption", "Detach")
		}
	}
}

// fillOSDisk completes the description of a disk that comes from an image.
func fillOSDisk(d doc, size *vmSize, image *imageSKU, caching string) {
	d.def("osType", "Linux")
	d.def("createOption", "FromImage")
	d.def("caching", caching)
	d.def("diskSizeGB", float64(image.SizeGB))
	if d.sub("managedDisk") == nil {
		d["managedDisk"] = map[string]any{}
	}
	account := "Premium_LRS"
	if size.Series.NoHostCrypt {
		account = "Standard_LRS"
	}
	d.sub("managedDisk").def("storageAccountType", account)
}

// attachDisks makes the disks of a machine that has just got a host, and shows them in it.
func (c *Cloud) attachDisks(vm *Resource, prefix string) {
	sp := vm.Properties.sub("storageProfile")
	os := sp.sub("osDisk")
	if os.str("managedDisk.id") == "" {
		os.def("name", fmt.Sprintf("%s_OsDisk_1_%s", prefix, c.World.Hex("", 32)))
		disk := c.makeDisk(vm, os, "FromImage")
		disk.Properties["osType"] = "Linux"
		disk.Properties["creationData"] = map[string]any{"createOption": "FromImage", "imageReference": map[string]any{"id": c.imageOf(vm)}}
	}
	for i, d := range sp.docs("dataDisks") {
		if id := d.str("managedDisk.id"); id != "" {
			if disk := c.find(id); disk != nil {
				disk.Top["managedBy"], disk.Properties["diskState"] = vm.ID, "Attached"
				d.def("name", disk.Name)
				d["diskSizeGB"] = disk.Properties.num("diskSizeGB")
			}
			continue
		}
		d.def("name", fmt.Sprintf("%s_disk%d_%s", prefix, i+2, c.World.Hex("", 32)))
		c.makeDisk(vm, d, "Empty")
	}
}

func (c *Cloud) imageOf(vm *Resource) string {
	image, version, e := findImage(vm.Properties.sub("storageProfile.imageReference"))
	if e != nil {
		return ""
	}
	return imageID(subscriptionOf(vm.ID), vm.Location, image, version)
}

// makeDisk makes a managed disk that a machine's profile describes; implicit disks get the machine's tags.
func (c *Cloud) makeDisk(vm *Resource, d doc, create string) *Resource {
	if d.sub("managedDisk") == nil {
		d["managedDisk"] = map[string]any{}
	}
	account := d.str("managedDisk.storageAccountType")
	if account == "" {
		account = "Premium_LRS"
		d.sub("managedDisk")["storageAccountType"] = account
	}
	disk := &Resource{ID: groupID(subscriptionOf(vm.ID), groupOf(vm.ID)) + "/providers/" + diskType + "/" + d.str("name"), Type: diskType, Name: d.str("name"),
		Location: vm.Location, Tags: maps.Clone(vm.Tags), State: stateSucceeded, Created: c.World.Now(), Changed: c.World.Now(),
		Top:        doc{"sku": map[string]any{"name": account}, "managedBy": vm.ID},
		Properties: doc{"diskSizeGB": d.num("diskSizeGB"), "creationData": map[string]any{"createOption": create}}}
	if z := vm.Top["zones"]; z != nil {
		disk.Top["zones"] = z
	}
	c.fillDisk(disk, "Attached")
	c.keep(disk)
	c.index.put(disk)
	d.sub("managedDisk")["id"] = disk.ID
	return disk
}
