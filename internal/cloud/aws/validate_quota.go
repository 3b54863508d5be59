package aws

import (
	"context"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/servicequotas"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/cloud/vmpool"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// A limit is one quota that a job draws on: how much it wants, and how much of
// it others use. What the job has already is left out of both.
type limit struct {
	name, field   string
	service, code string
	want          int
	most          int // what it may come to want later; 0: no more
	used          func(context.Context) (int, error)
	fix           string
}

// quotas compares what the job will draw with what is left. A quota that cannot
// be read is not checked, and never a reason to stop.
func (c *checker) quotas(ctx context.Context) ([]cloud.Check, error) {
	if c.r.Mode == pipeline.Verify {
		return nil, nil
	}
	limits := c.networkLimits()
	if !c.vmsMade() {
		limits = append(limits, c.vcpuLimit())
	}
	return c.compareAll(ctx, limits)
}

// networkLimits are the quotas that the job's own network draws on.
func (c *checker) networkLimits() []limit {
	var limits []limit
	if c.r.Job.Mode == job.ModeCreate && !c.made(kindVPC, "vpc") {
		limits = append(limits, limit{
			name: "VPC quota", field: "region", service: "vpc", code: "L-F678F1CE", want: 1, used: c.usedVPCs,
			fix: "Ask AWS for more VPCs in the region, remove one, or build in an existing network.",
		})
	}
	if c.spec.Network.NAT == job.NATNone {
		return limits
	}
	nats := 1
	if c.spec.Network.NAT == job.NATPerZone {
		nats = c.spec.Network.Zones
	}
	if c.r.Job.Mode == job.ModeCreate && !c.made(kindNATGateway, "nat-"+zoneKeys[nats-1]) {
		limits = append(limits, limit{
			name: "elastic IP quota", field: "config.spec.network.nat", service: "ec2", code: "L-0263D0A3", want: nats, used: c.usedAddresses,
			fix: "Ask AWS for more elastic IPs, release one, or use nat: single.",
		})
	}
	return limits
}

func (c *checker) compareAll(ctx context.Context, limits []limit) ([]cloud.Check, error) {
	out := make([]cloud.Check, len(limits))
	var parts []func(context.Context) error
	for i, l := range limits {
		parts = append(parts, func(ctx context.Context) (err error) {
			out[i], err = c.compare(ctx, l)
			return err
		})
	}
	return out, pipeline.All(ctx, parts...)
}

func (c *checker) vmsMade() bool {
	if c.spec.Pool.Mode == job.PoolASG {
		return c.ic.ScalingGroupID != ""
	}
	return c.made(kindInstance, vmpool.Key(c.spec.Pool.Count-1))
}

func (c *checker) vcpuLimit() limit {
	l := limit{
		name: "vCPU quota", field: "config.spec.pool", want: c.spec.Pool.VMCount() * c.size.vcpus, used: c.usedVCPUs,
		fix: "Ask AWS for more vCPUs of on-demand standard instances, or use fewer or smaller VMs.",
	}
	if standard(c.ic.InstanceType) {
		l.service, l.code = "ec2", "L-1216C47A"
	}
	return l
}

// standard reports whether a type counts towards the quota of on-demand
// standard instances (A, C, D, H, I, M, R, T, Z): "Amazon EC2 On-Demand Instance
// quotas". Types such as inf and trn have quotas of their own.
func standard(instanceType string) bool {
	fam, _, _ := strings.Cut(instanceType, ".")
	i := strings.IndexAny(fam, "0123456789")
	if i < 0 {
		return false
	}
	switch fam[:i] {
	case "a", "c", "d", "h", "i", "im", "is", "m", "r", "t", "z":
		return true
	}
	return false
}

func (c *checker) compare(ctx context.Context, l limit) (cloud.Check, error) {
	if l.code == "" || l.want+l.most == 0 {
		return cloud.Check{Name: l.name, Status: cloud.CheckUnchecked, Field: l.field, Message: fmt.Sprintf("it is not known which quota %s draws on", c.ic.InstanceType)}, nil
	}
	quota, err := c.quota(ctx, l.service, l.code)
	if err == nil {
		var used int
		if used, err = l.used(ctx); err == nil {
			if used+l.want > quota {
				return fails(l.name, l.field, fmt.Sprintf("the %s in %s is %d, %d are in use, and the job wants %d more (%s %s)", l.name, c.region, quota, used, l.want, l.service, l.code), l.fix), nil
			}
			if used+l.most > quota {
				return warns(l.name, l.field, fmt.Sprintf("the %s in %s is %d, %d are in use, and the job may come to want %d (%s %s)", l.name, c.region, quota, used, l.most, l.service, l.code), l.fix), nil
			}
			return passes(l.name, "%d of %d in use, %d wanted", used, quota, l.want), nil
		}
	}
	if stops(ctx, err) {
		return cloud.Check{}, err
	}
	return unchecked(l.name, l.field, err), nil
}

// quota is what the account may have: its own value, or the default if it
// never asked for another.
func (c *checker) quota(ctx context.Context, service, code string) (int, error) {
	own, err := c.Provider.quotas.GetServiceQuota(ctx, &servicequotas.GetServiceQuotaInput{ServiceCode: aws.String(service), QuotaCode: aws.String(code)})
	if err == nil && own.Quota != nil && own.Quota.Value != nil {
		return int(*own.Quota.Value), nil
	}
	// Only an account that never asked has the default. One whose value could
	// not be read may have been given more.
	if err != nil && !pipeline.Is(err, pipeline.NotFound) {
		return 0, err
	}
	def, err := c.Provider.quotas.GetAWSDefaultServiceQuota(ctx, &servicequotas.GetAWSDefaultServiceQuotaInput{ServiceCode: aws.String(service), QuotaCode: aws.String(code)})
	if err != nil {
		return 0, err
	}
	if def.Quota == nil || def.Quota.Value == nil {
		return 0, absent("Service Quotas", "GetAWSDefaultServiceQuota", "a value of "+code)
	}
	return int(*def.Quota.Value), nil
}

func (c *checker) usedVPCs(ctx context.Context) (int, error) {
	all, err := c.allVPCs(ctx)
	return others(c.r.Job.ID, all, func(v ec2types.Vpc) []ec2types.Tag { return v.Tags }), err
}

func (c *checker) usedAddresses(ctx context.Context) (int, error) {
	all, err := ec2Page[ec2types.Address](c.addressPage).all(ctx)
	return others(c.r.Job.ID, all, func(a ec2types.Address) []ec2types.Tag { return a.Tags }), err
}

// usedVCPUs counts what runs on demand in the standard families.
func (c *checker) usedVCPUs(ctx context.Context) (int, error) { return c.runningVCPUs(ctx, false) }

// usedSpotVCPUs counts what runs as spot capacity in the standard families.
func (c *checker) usedSpotVCPUs(ctx context.Context) (int, error) { return c.runningVCPUs(ctx, true) }

func (c *checker) runningVCPUs(ctx context.Context, spot bool) (int, error) {
	all, err := ec2Page[instance](c.instancePage).all(ctx, filter("instance-state-name", "pending", "running"))
	n := 0
	for _, i := range all {
		owner, _ := ec2Mark(i.Tags)
		if owner == c.r.Job.ID || (i.InstanceLifecycle == ec2types.InstanceLifecycleTypeSpot) != spot || !standard(string(i.InstanceType)) {
			continue
		}
		switch size, _, known := typeOf(string(i.InstanceType)); {
		case i.CpuOptions != nil && aws.ToInt32(i.CpuOptions.CoreCount) > 0:
			n += int(aws.ToInt32(i.CpuOptions.CoreCount) * max(aws.ToInt32(i.CpuOptions.ThreadsPerCore), 1))
		case known:
			n += size.vcpus
		default:
			n += 2
		}
	}
	return n, err
}

func others[T any](owner string, all []T, tags func(T) []ec2types.Tag) int {
	n := 0
	for _, x := range all {
		if o, _ := ec2Mark(tags(x)); o != owner {
			n++
		}
	}
	return n
}
