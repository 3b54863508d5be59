package gcp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/api/compute/v1"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// machine resolves the machine type and the zones together: a zone counts only if
// it offers the type, and a type only if enough zones offer it (failure kinds J1,
// J2). False if nothing more is worth asking.
func (v *vmChecker) machine(ctx context.Context) (bool, error) {
	const check = "machine type"
	if v.ic.InstanceType != "" && (made(v.r, kindInstanceTemplate, templateKey) || v.r.Mode == pipeline.Verify) {
		v.know(v.ic.InstanceType)
		v.ok(check, "%s in %s", v.ic.InstanceType, strings.Join(v.ic.Zones, ", "))
		return true, nil
	}
	if len(v.ic.Zones) == 0 {
		return false, nil // the check of the region says why
	}
	field := "config.spec.pool.size"
	var wanted []string
	if t := v.spec.Pool.InstanceType; t != "" {
		field, wanted = "config.spec.pool.instanceType", []string{t}
	} else {
		for _, m := range candidates(*v.spec.Pool.Size) {
			wanted = append(wanted, m.name)
		}
	}
	if len(wanted) == 0 {
		s := *v.spec.Pool.Size
		v.fails(check, field, fmt.Sprintf("no current machine type has %d vCPUs and %d GiB on %s", s.VCPUs, s.MemoryGiB, s.Arch), "Ask for less, or name an instanceType.")
		return false, nil
	}
	var err error
	if v.down, err = v.zonesDown(ctx); err != nil {
		return false, err
	}
	offers, err := v.offers(ctx, wanted)
	if err != nil {
		v.know(wanted[0])
		return true, v.unchecked(ctx, check, field, err)
	}
	for _, name := range wanted {
		in := v.zonesOf(offers[name])
		if len(in) >= len(v.ic.Zones) {
			v.ic.Zones = in[:len(v.ic.Zones)]
			v.know(name)
			v.describe(offers[name])
			v.ok(check, "%s (%d vCPUs, %d GiB, %s), offered in %s", name, v.size.vcpus, v.size.memoryGiB, v.arch, strings.Join(in, ", "))
			return v.autoscales(), nil
		}
	}
	var where []string
	for _, name := range wanted {
		where = append(where, name+" in "+or(strings.Join(v.zonesOf(offers[name]), ", "), "no zone"))
	}
	v.fails(check, field, fmt.Sprintf("%d zones of %s have to offer it; there is %s", len(v.ic.Zones), v.p.region, strings.Join(where, "; ")),
		"Name another instanceType, fewer zones or another region.")
	return false, nil
}

// know takes in what the table has of a machine type.
func (v *vmChecker) know(name string) {
	v.ic.InstanceType = name
	v.size = machine{name: name}
	if s, ok := seriesOf(name); ok {
		v.arch = s.arch
		if i := slices.IndexFunc(s.types, func(m machine) bool { return m.name == name }); i >= 0 {
			v.size = s.types[i]
		}
	}
}

// describe takes in what the cloud says of a machine type.
func (v *vmChecker) describe(offered []*compute.MachineType) {
	t := offered[0]
	if t.GuestCpus > 0 {
		v.size.vcpus, v.size.memoryGiB = int(t.GuestCpus), int(t.MemoryMb/1024)
	}
	switch t.Architecture {
	case "X86_64":
		v.arch = "amd64"
	case "ARM64":
		v.arch = "arm64"
	}
}

// offers says of each machine type in which zones of the region it is offered.
func (c *checker) offers(ctx context.Context, names []string) (map[string][]*compute.MachineType, error) {
	region, err := c.p.regionInfo(ctx)
	if err != nil {
		return nil, err
	}
	var terms []string
	for _, n := range names {
		terms = append(terms, fmt.Sprintf("(name = %q)", n))
	}
	filter := strings.Join(terms, " OR ")
	inZone := make([][]*compute.MachineType, len(region.Zones))
	var parts []func(context.Context) error
	for i, zone := range region.Zones {
		parts = append(parts, func(ctx context.Context) (err error) {
			inZone[i], err = lookup.Pages(ctx, func(ctx context.Context, token *string) ([]*compute.MachineType, *string, error) {
				out, err := send(ctx, c.p.compute.MachineTypes.List(c.p.project, base(zone)).Filter(filter).PageToken(text(token)))
				if err != nil {
					return nil, nil, err
				}
				return out.Items, &out.NextPageToken, nil
			})
			return err
		})
	}
	if err := pipeline.All(ctx, parts...); err != nil {
		return nil, err
	}
	offers := map[string][]*compute.MachineType{}
	for _, t := range slices.Concat(inZone...) {
		offers[t.Name] = append(offers[t.Name], t)
	}
	return offers, nil
}

// zonesOf are the zones of some offers: those that are chosen already first, so
// that nothing moves without need, then the others of the region that are up.
func (v *vmChecker) zonesOf(offered []*compute.MachineType) []string {
	var in []string
	for _, t := range offered {
		if t.Deprecated == nil || t.Deprecated.State == "" || t.Deprecated.State == "ACTIVE" || t.Deprecated.State == "DEPRECATED" {
			in = append(in, base(t.Zone))
		}
	}
	slices.Sort(in)
	var out []string
	for _, z := range v.ic.Zones {
		if slices.Contains(in, z) {
			out = append(out, z)
		}
	}
	for _, z := range in {
		if !slices.Contains(out, z) && !v.down[z] {
			out = append(out, z)
		}
	}
	return out
}

// autoscales refuses a group that may go to no VMs: the load of none is nothing,
// so that the autoscaler never makes the first one again ("Autoscaling groups of
// instances": scaling in to zero).
func (v *vmChecker) autoscales() bool {
	if v.spec.Pool.Mode == job.PoolASG && size(v.spec.Pool.Min) == 0 {
		v.fails("group's size", "config.spec.pool.min", "an autoscaler that goes by the CPU's load never starts the first VM of an empty group", "Use min 1 or more.")
		return false
	}
	return true
}

// adopt checks that what the job points at is there.
func (v *vmChecker) adopt(ctx context.Context) error {
	const check, field = "adopted VMs", "config.spec.adopt"
	if v.spec.Adopt == nil {
		v.fails(check, field, "the request does not say what to adopt", "Name VMs in ids, or a managed instance group in name.")
		return nil
	}
	ids, group, err := v.p.adopted(ctx, v.r, *v.spec.Adopt)
	var fatal *pipeline.FatalError
	switch {
	case errors.As(err, &fatal):
		v.fails(check, or(fatal.Problem.Field, field), fatal.Problem.Message, fatal.Problem.Hint)
		return nil
	case pipeline.Is(err, pipeline.Denied):
		v.fails(check, field, err.Error(), "Allow these credentials to read it.")
		return nil
	case err != nil:
		return err
	case len(ids) == 0:
		v.warn(check, field, "managed group "+base(group)+" has no VM now", "")
		return nil
	}
	v.ok(check, "%d found", len(ids))
	return nil
}
