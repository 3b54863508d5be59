package gcp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/api/compute/v1"

	"github.com/zopday/provisioner/internal/bootstrap"
	"github.com/zopday/provisioner/internal/cloud/vmpool"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// A vmChecker asks what a VM job's own steps depend on, beside its network.
type vmChecker struct {
	*checker
	spec job.VMSpec

	size machine // of the machine type, once it is known
	arch string
	down map[string]bool // zones that are not up
}

// vm checks a VM job but for its network.
func (c *checker) vm(ctx context.Context) error {
	spec, err := c.r.Job.VMSpec()
	if err != nil {
		c.fails("request", "config.spec", err.Error(), "Put the request right.")
		return nil
	}
	v := &vmChecker{checker: c, spec: spec}
	if c.r.Job.Mode == job.ModeAdopt {
		return v.adopt(ctx)
	}
	v.shortName()
	v.names("vm", "vm-100", "vm-closed", "vm-iap", groupKey, lbChecksKey, lbClientsKey, healthCheckKey, backendKey, urlMapKey, redirectKey, tlsPolicyKey, groupPrefix+c.p.region+"-a")
	v.labels()
	v.userData()
	if fine, err := v.machine(ctx); err != nil || !fine {
		return err
	}
	return v.side(ctx, v.image, v.limits, v.access, v.loadBalancer)
}

// shortName proves that the account's name, the shortest of all, is one.
func (c *checker) shortName() {
	if id := accountID(c.r.Job); len(id) < 6 || len(id) > 30 || strings.HasSuffix(id, "-") {
		c.fails("account name", "name", fmt.Sprintf("the name %q for the machines' service account is not one that Google Cloud takes", id), "Give the job another name.")
	}
}

// userData renders the bootstrap as the template will carry it.
func (v *vmChecker) userData() {
	const check, field = "bootstrap script", "config.spec.startupScript"
	metadata, err := userMetadata(v.r.Job, v.spec)
	var size *bootstrap.SizeError
	switch {
	case errors.As(err, &size):
		v.fails(check, field, err.Error(), "Shorten the script, or let it fetch the rest from a bucket.")
		return
	case err != nil:
		v.fails(check, field, err.Error(), "Put the script right.")
		return
	}
	if n := len(metadataOf(metadata)[userDataKey]); n > maxMetadataValue {
		v.fails(check, field, fmt.Sprintf("the user data has %d bytes, and a metadata value holds %d", n, maxMetadataValue), "Shorten the script.")
		return
	}
	v.ok(check, "%d of %d bytes", len(metadataOf(metadata)[userDataKey]), maxMetadataValue)
}

// access asks whether the services are on and the credentials allowed what the
// VMs' steps do.
func (v *vmChecker) access(ctx context.Context) error {
	apis := []string{"compute.googleapis.com", "iam.googleapis.com", "cloudresourcemanager.googleapis.com"}
	want := []string{
		"iam.serviceAccounts.create", "iam.serviceAccounts.delete", "iam.serviceAccounts.get", "iam.serviceAccounts.actAs",
		"resourcemanager.projects.getIamPolicy", "resourcemanager.projects.setIamPolicy",
		"compute.instances.create", "compute.instances.delete", "compute.instances.get", "compute.instances.list", "compute.instances.setMetadata",
		"compute.instances.setLabels", "compute.instances.setDeletionProtection", "compute.instances.getGuestAttributes", "compute.instances.getSerialPortOutput",
		"compute.instanceTemplates.create", "compute.instanceTemplates.delete", "compute.disks.create", "compute.subnetworks.use",
		"compute.firewalls.create", "compute.firewalls.delete",
	}
	if v.spec.Pool.Mode == job.PoolASG {
		want = append(want, "compute.instanceGroupManagers.create", "compute.instanceGroupManagers.delete", "compute.instanceGroupManagers.update",
			"compute.autoscalers.create", "compute.autoscalers.delete")
	}
	if lb := v.spec.LoadBalancer; lb != nil {
		want = append(want, "compute.healthChecks.create", "compute.instanceGroups.create", "compute.instanceGroups.use")
		if lb.DNS != nil {
			apis = append(apis, "dns.googleapis.com")
			want = append(want, "dns.changes.create", "dns.resourceRecordSets.create", "dns.resourceRecordSets.delete", "dns.resourceRecordSets.list", "dns.managedZones.list")
		}
	}
	return v.side(ctx,
		func(ctx context.Context) error { return v.enabled(ctx, apis) },
		func(ctx context.Context) error { return v.permitted(ctx, "permissions for VMs", want) })
}

// limits compares what the VMs will take with what the project has left. What the
// job has made already is in the usage, and not wanted again.
func (v *vmChecker) limits(ctx context.Context) error {
	const check = "quotas for VMs"
	if v.r.Mode == pipeline.Verify {
		return nil
	}
	project, err := send(ctx, v.p.compute.Projects.Get(v.p.project))
	if err != nil {
		return v.unchecked(ctx, check, "", err)
	}
	region, err := v.p.regionInfo(ctx)
	if err != nil {
		return v.unchecked(ctx, check, "", err)
	}
	global, regional := v.wants()
	short := slices.Concat(lacking(project.Quotas, global, "project "+v.p.project), lacking(region.Quotas, regional, "region "+v.p.region))
	for _, s := range short {
		v.fails(check, s.field, s.metric, "Ask for a higher quota in the console (IAM & Admin, Quotas), or use fewer or smaller VMs.")
	}
	if len(short) == 0 {
		v.ok(check, "enough of %s", strings.Join(metrics(slices.Concat(global, regional)), ", "))
	}
	return nil
}

// wants is what the VMs and the load balancer have yet to take of what is limited.
func (v *vmChecker) wants() (global, regional []need) {
	const pool, lb = "config.spec.pool", "config.spec.loadBalancer"
	yet := func(kind, key string) float64 {
		if made(v.r, kind, key) {
			return 0
		}
		return 1
	}
	vms := 0.0
	if v.spec.Pool.Mode == job.PoolASG {
		vms = yet(kindManagedGroup, groupKey) * float64(v.spec.Pool.VMCount())
		regional = append(regional, need{"REGIONAL_INSTANCE_GROUP_MANAGERS", yet(kindManagedGroup, groupKey), pool}, need{"REGIONAL_AUTOSCALERS", yet(kindAutoscaler, autoscalerKey), pool})
	} else {
		for i := range v.spec.Pool.Count {
			vms += yet(kindInstance, vmpool.Key(i))
		}
	}
	cpus := vms * float64(v.size.vcpus)
	regional = append(regional, need{"INSTANCES", vms, pool}, need{or(quotaOf(v.ic.InstanceType), "CPUS"), cpus, pool})
	disk := "SSD_TOTAL_GB"
	if bootDiskOf(v.ic.InstanceType) == hyperdisk {
		disk = "HDB_TOTAL_GB"
	}
	regional = append(regional, need{disk, vms * float64(v.spec.Pool.DiskGiB), pool + ".diskGiB"})
	global = append(global, need{"CPUS_ALL_REGIONS", cpus, pool}, need{"INSTANCE_TEMPLATES", yet(kindInstanceTemplate, templateKey), pool},
		need{"FIREWALLS", yet(kindFirewall, "vm-closed") + yet(kindFirewall, "vm-iap"), pool})
	if v.spec.LoadBalancer == nil {
		return global, regional
	}
	b := v.p.balancer(*v.spec.LoadBalancer)
	scope, address := &global, kindGlobalAddress
	if b.region != "" {
		scope, address = &regional, kindAddress
	}
	*scope = append(*scope, need{"HEALTH_CHECKS", yet(kindHealthCheck, healthCheckKey), lb}, need{"BACKEND_SERVICES", yet(kindBackendService, backendKey), lb})
	if b.region == "" {
		global = append(global, need{"STATIC_ADDRESSES", yet(address, lbKey), lb})
		for _, f := range b.fronts() {
			global = append(global, need{"FORWARDING_RULES", yet(kindForwardingRule, f.key), lb})
		}
	} else {
		regional = append(regional, need{"INTERNAL_ADDRESSES", yet(address, lbKey), lb})
	}
	return global, regional
}

// image resolves the image once, so that every VM of the job starts from the same.
func (v *vmChecker) image(ctx context.Context) error {
	const check, field = "image", "config.spec.pool.image"
	if v.r.Mode == pipeline.Verify || v.ic.ImageID != "" && made(v.r, kindInstanceTemplate, templateKey) {
		v.ok(check, "%s", v.ic.ImageID)
		return nil
	}
	img, err := v.findImage(ctx)
	var fatal *pipeline.FatalError
	switch {
	case errors.As(err, &fatal):
		v.fails(check, field, fatal.Problem.Message, fatal.Problem.Hint)
		return nil
	case pipeline.Is(err, pipeline.NotFound, pipeline.Invalid, pipeline.Denied):
		v.fails(check, field, fmt.Sprintf("image %s cannot be used: %v", v.spec.Pool.Image, err), "Name an image that these credentials may use, such as projects/PROJECT/global/images/NAME.")
		return nil
	case err != nil:
		return err
	}
	if img.Status != "" && img.Status != "READY" {
		v.fails(check, field, fmt.Sprintf("image %s is %s", img.Name, img.Status), "Name an image that is ready.")
		return nil
	}
	if img.DiskSizeGb > int64(v.spec.Pool.DiskGiB) {
		v.fails(check, "config.spec.pool.diskGiB", fmt.Sprintf("image %s needs a disk of %d GB, and the job asks for %d", img.Name, img.DiskSizeGb, v.spec.Pool.DiskGiB), "Ask for a larger disk.")
		return nil
	}
	if got := archOf(img); got != "" && v.arch != "" && got != v.arch {
		v.fails(check, field, fmt.Sprintf("image %s is for %s, and machine type %s is %s", img.Name, got, v.ic.InstanceType, v.arch), "Name an image of the same architecture.")
		return nil
	}
	if len(img.GuestOsFeatures) > 0 && !slices.ContainsFunc(img.GuestOsFeatures, func(f *compute.GuestOsFeature) bool { return f.Type == "UEFI_COMPATIBLE" }) {
		v.fails(check, field, fmt.Sprintf("image %s cannot start by UEFI, which secure boot needs", img.Name), "Name an image for shielded VMs.")
		return nil
	}
	if d := img.Deprecated; d != nil && d.State != "" && d.State != "ACTIVE" {
		v.warn(check, field, fmt.Sprintf("image %s is %s", img.Name, strings.ToLower(d.State)), "Name a newer one.")
	}
	v.ic.ImageID, v.ic.ImageName = rel(img.SelfLink), img.Name
	v.ok(check, "%s", img.Name)
	return nil
}

// imageFamilies are the systems that a job can name, from "Operating system
// details": the project and the family of each architecture.
var imageFamilies = map[string]struct{ project, amd64, arm64 string }{
	"ubuntu-24.04": {"ubuntu-os-cloud", "ubuntu-2404-lts-amd64", "ubuntu-2404-lts-arm64"},
}

// findImage is the newest image of the system that the job names, or the image
// or family that it names by its link or its name.
func (v *vmChecker) findImage(ctx context.Context) (*compute.Image, error) {
	image := v.spec.Pool.Image
	if f, ok := imageFamilies[image]; ok {
		family := f.amd64
		if v.arch == "arm64" {
			family = f.arm64
		}
		return send(ctx, v.p.compute.Images.GetFromFamily(f.project, family))
	}
	if image == "al2023" {
		return nil, pipeline.Fatal("no-image", "al2023 is an image of AWS, and Google Cloud does not have it", "Use ubuntu-24.04, or name an image.")
	}
	link := rel(image)
	switch {
	case !strings.Contains(link, "/"):
		return send(ctx, v.p.compute.Images.Get(v.p.project, link))
	case strings.Contains(link, "/family/"):
		return send(ctx, v.p.compute.Images.GetFromFamily(or(projectOf(link), v.p.project), base(link)))
	}
	return send(ctx, v.p.compute.Images.Get(or(projectOf(link), v.p.project), base(link)))
}

// archOf is an image's architecture in the job's words; "" if it does not say.
func archOf(img *compute.Image) string {
	switch img.Architecture {
	case "X86_64":
		return "amd64"
	case "ARM64":
		return "arm64"
	}
	return ""
}
