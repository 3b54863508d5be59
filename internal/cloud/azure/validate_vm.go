package azure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/zopday/provisioner/internal/bootstrap"
	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// machines resolves the size and the image, and checks the quota of cores and the
// bootstrap. What an earlier run has resolved, and a step has used since, is kept.
func (c *checker) machines(ctx context.Context) ([]cloud.Check, error) {
	spec, err := c.r.Job.VMSpec()
	if err != nil {
		return nil, err
	}
	all, err := c.sizes(ctx)
	if err != nil {
		return c.need(ctx, "VM size", "config.spec.pool", err)
	}
	s, out := c.size(spec.Pool, all)
	if len(out) > 0 && out[0].Status == cloud.CheckFails {
		return out, nil
	}
	image, err := c.resolveImage(ctx, spec.Pool, s)
	if err != nil {
		return nil, err
	}
	out = append(out, image...)
	cores, err := c.cores(ctx, spec.Pool, s)
	if err != nil {
		return nil, err
	}
	out = append(out, cores...)
	hidden, err := c.hostEncryption(ctx)
	if err != nil {
		more, err := c.or(ctx, "encryption at host", "cloudAccountId", err)
		return append(append(out, more...), c.userData(spec)), err
	}
	if !hidden && c.r.Mode != pipeline.Verify {
		out = append(out, warns("encryption at host", "cloudAccountId", "the subscription does not have the feature EncryptionAtHost, so the VMs' caches and temporary disks are not encrypted on the host",
			"Register it (az feature register --namespace Microsoft.Compute --name EncryptionAtHost)."))
	}
	return append(out, c.userData(spec)), nil
}

// size resolves the pool's size, or checks the one that is named.
func (c *checker) size(pool job.Pool, all []size) (size, []cloud.Check) {
	const check = "VM size"
	field := "config.spec.pool.size"
	name := c.ic.InstanceType
	if name == "" || !c.vmsBegun() {
		name = pool.InstanceType
	}
	if name == "" {
		s, ok := smallest(all, *pool.Size, c.ic.Zones)
		if !ok {
			return s, []cloud.Check{fails(check, field, fmt.Sprintf("no current size with %d vCPUs and %d GiB (%s) is offered to this subscription in %s in zones %s", pool.Size.VCPUs, pool.Size.MemoryGiB, pool.Size.Arch, c.region, strings.Join(c.ic.Zones, ", ")),
				"Ask for another size or region.")}
		}
		c.ic.InstanceType = s.name
		return s, []cloud.Check{passes(check, "%s: %d vCPUs, %g GiB, %s", s.name, s.vcpus, s.memoryGiB, s.arch)}
	}
	if pool.InstanceType != "" {
		field = "config.spec.pool.instanceType"
	}
	i := slices.IndexFunc(all, func(s size) bool { return strings.EqualFold(s.name, name) })
	switch {
	case i < 0:
		return size{}, []cloud.Check{fails(check, field, fmt.Sprintf("%s is not a size of %s", name, c.region), "Use one of the region's (az vm list-skus --location "+regionName(c.region)+").")}
	case all[i].refused != "":
		return size{}, []cloud.Check{fails(check, field, fmt.Sprintf("%s is not offered to this subscription in %s (%s)", name, c.region, all[i].refused), "Use another size or region, or ask Azure to offer it.")}
	}
	s := all[i]
	for _, z := range c.ic.Zones {
		if !slices.Contains(s.zones, z) {
			return s, []cloud.Check{fails(check, field, fmt.Sprintf("%s is not offered in zone %s of %s", s.name, z, c.region), "Use another size or fewer zones.")}
		}
	}
	c.ic.InstanceType = s.name
	return s, []cloud.Check{passes(check, "%s: %d vCPUs, %g GiB, %s", s.name, s.vcpus, s.memoryGiB, s.arch)}
}

// vmsBegun reports whether a VM was made with what was resolved.
func (c *checker) vmsBegun() bool {
	return slices.ContainsFunc(c.r.Objects(), func(o job.Object) bool {
		return (o.Kind == kindVM || o.Kind == kindScaleSet) && (o.State == job.ObjectCreated || o.State == job.ObjectIntended)
	})
}

// resolveImage fixes the image by its exact version, and compares its architecture
// with the size's.
func (c *checker) resolveImage(ctx context.Context, pool job.Pool, s size) ([]cloud.Check, error) {
	const check, field = "image", "config.spec.pool.image"
	if c.ic.ImageID != "" && c.vmsBegun() {
		return nil, nil
	}
	urn := pool.Image
	if by, ok := ours[urn]; ok {
		urn = by[s.arch]
	}
	name, ok := parseImage(urn)
	if !ok {
		c.ic.ImageID, c.ic.ImageName = urn, lastName(urn)
		return []cloud.Check{{Name: check, Status: cloud.CheckUnchecked, Field: field, Message: "an image of one's own is not looked into", Fix: "Make sure that it is a generalized Linux with cloud-init and the VM agent."}}, nil
	}
	if name.version == "latest" {
		version, err := c.latest(ctx, name)
		if pipeline.Is(err, pipeline.NotFound, pipeline.Invalid) {
			return []cloud.Check{fails(check, field, "there is no image "+urn+" in "+c.region, "Name one that exists (az vm image list).")}, nil
		}
		if err != nil {
			return c.need(ctx, check, field, err)
		}
		name.version = version
	}
	i, err := c.image(ctx, name)
	switch {
	case pipeline.Is(err, pipeline.NotFound, pipeline.Invalid):
		return []cloud.Check{fails(check, field, "there is no image "+name.String()+" in "+c.region, "Name one that exists (az vm image list).")}, nil
	case err != nil:
		return c.need(ctx, check, field, err)
	}
	c.ic.ImageID, c.ic.ImageName = name.String(), name.offer+" "+name.version
	f := value(i.Properties)
	if arch := value(f.Architecture); arch != "" && (arch == armcompute.ArchitectureTypesArm64) != (s.arch == "arm64") {
		return []cloud.Check{fails(check, field, fmt.Sprintf("image %s is for %s, and %s is %s", name, arch, s.name, s.arch), "Use an image and a size of one architecture.")}, nil
	}
	if d := f.ImageDeprecationStatus; d != nil && value(d.ImageState) != armcompute.ImageStateActive && value(d.ImageState) != "" {
		return []cloud.Check{warns(check, field, fmt.Sprintf("image %s is %s", name, value(d.ImageState)), "Use a newer one.")}, nil
	}
	return []cloud.Check{passes(check, "%s", name)}, nil
}

// cores compares the pool with the quota of cores, of the region and of the
// size's family.
func (c *checker) cores(ctx context.Context, pool job.Pool, s size) ([]cloud.Check, error) {
	const check = "quota of vCPUs"
	if c.r.Mode == pipeline.Verify || c.vmsBegun() {
		return nil, nil
	}
	usages, err := list[armcompute.Usage](ctx, c.Provider, managementPrefix+c.subscription+"/providers/Microsoft.Compute/locations/"+regionName(c.region)+"/usages")
	if err != nil {
		return c.or(ctx, check, "region", err)
	}
	need := int64(s.vcpus * pool.VMCount())
	var out []cloud.Check
	var fine []string
	for _, u := range usages {
		code := ""
		if u.Name != nil {
			code = value(u.Name.Value)
		}
		if code != "cores" && !strings.EqualFold(code, s.family) {
			continue
		}
		used, limit := int64(value(u.CurrentValue)), value(u.Limit)
		title := value(u.Name.LocalizedValue)
		if used+need > limit {
			out = append(out, fails(check, "config.spec.pool", fmt.Sprintf("%s in %s: %d of %d are used, and the pool needs %d", title, c.region, used, limit, need), "Ask for a higher limit in the portal (Quotas), use fewer or smaller VMs, or another region."))
			continue
		}
		fine = append(fine, fmt.Sprintf("%s %d of %d", title, used, limit))
	}
	if len(out) == 0 {
		out = append(out, passes(check, "%s", strings.Join(fine, ", ")))
	}
	return out, nil
}

// userData renders the bootstrap as the VMs will carry it.
func (c *checker) userData(spec job.VMSpec) cloud.Check {
	const check, field = "bootstrap script", "config.spec.startupScript"
	data, zipped, err := bootstrap.UserData(bootstrap.Options{Cloud: bootstrap.CloudAzure, OS: osOf(c.ic.ImageID), Mode: spec.Bootstrap, Extra: spec.StartupScript})
	var size *bootstrap.SizeError
	switch {
	case errors.As(err, &size):
		return fails(check, field, err.Error(), "Shorten the script, or let it fetch the rest from a storage account.")
	case err != nil:
		return fails(check, field, err.Error(), "Put the script right.")
	case zipped:
		return passes(check, "%d of %d bytes, compressed", len(data), bootstrap.MaxBytes)
	}
	return passes(check, "%d of %d bytes", len(data), bootstrap.MaxBytes)
}

// loadBalancer checks what only Azure knows of the load balancer asked for.
func (c *checker) loadBalancer(ctx context.Context) ([]cloud.Check, error) {
	const check = "load balancer"
	lb, err := c.r.Job.LoadBalancer()
	if err != nil || lb == nil || c.made(kindRecord, "record") {
		return nil, err
	}
	if lb.Certificate != "" {
		return []cloud.Check{fails(check, "config.spec.loadBalancer.certificate", "Azure Load Balancer passes packets on and has no certificates", "Set plainHTTP: true, or type: tcp with TLS in the VMs.")}, nil
	}
	if lb.DNS == nil {
		return []cloud.Check{passes(check, "%s, %s", lb.Type, lb.Scheme)}, nil
	}
	fault, fix, err := c.recordCheck(ctx, *lb.DNS)
	if err != nil {
		return c.or(ctx, check, "config.spec.loadBalancer.dns", err)
	}
	if fault != "" {
		return []cloud.Check{fails(check, "config.spec.loadBalancer.dns", fault, fix)}, nil
	}
	return []cloud.Check{passes(check, "%s, %s, %s in %s", lb.Type, lb.Scheme, lb.DNS.Record, lb.DNS.Zone)}, nil
}

// adoptedVMs names the VMs or the scale set that an adopt job points at.
func (c *checker) adoptedVMs(ctx context.Context) (string, error) {
	spec, err := c.r.Job.VMSpec()
	if err != nil {
		return "", err
	}
	if spec.Adopt == nil {
		return "", pipeline.Fatal("nothing-to-adopt", "the request does not say what to adopt", "Name VMs in ids, or a scale set in name.").On("config.spec.adopt")
	}
	if spec.Adopt.Name != "" {
		id, err := c.find(ctx, typeScaleSet, spec.Adopt.Name)
		if err == nil {
			_, err = read[struct{}](ctx, c.Provider, id)
		}
		return "scale set " + lastName(id), notThere(err, "scale set "+spec.Adopt.Name, "config.spec.adopt.name")
	}
	var names []string
	for _, named := range spec.Adopt.IDs {
		x, err := c.vmNamed(ctx, named)
		if err != nil {
			return "", err
		}
		names = append(names, x.Name)
	}
	return strings.Join(names, ", "), nil
}
