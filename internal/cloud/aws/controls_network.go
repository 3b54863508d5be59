package aws

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"

	"github.com/zopday/provisioner/internal/job"
)

// network reads back what the job made; a network that it only builds in is its
// owner's.
func (c *controls) network(ctx context.Context) error {
	own := c.r.Job.Mode == job.ModeCreate
	if !c.builds() {
		return nil
	}
	if own {
		v, err := c.p.vpcs().Get(ctx, c.infra.NetworkID)
		if err != nil {
			return err
		}
		c.same("NETA-09", "the network is the region's default VPC", "no", yesNo(aws.ToBool(v.IsDefault)), "CKV_AWS_148, AWS-0101")
		a, err := c.p.defaultGroupAspect(ctx, c.r, c.infra.NetworkID)
		if err != nil {
			return err
		}
		c.same("NETA-01", "rules of the VPC's default security group", a.Wanted, a.Seen, "EC2.2, CIS AWS 6.5")
	}
	subnets, err := made(ctx, c.r, c.p.subnets())
	if err != nil {
		return err
	}
	var public []string
	zones := map[string]string{}
	for _, s := range subnets {
		public = append(public, yesNo(aws.ToBool(s.MapPublicIpOnLaunch)))
		zones[aws.ToString(s.SubnetId)] = aws.ToString(s.AvailabilityZone)
	}
	c.same("NETA-03", "subnets give public addresses", "no", agreed(public), "EC2.15, CKV_AWS_130")
	tables, err := made(ctx, c.r, c.p.routeTables())
	if err != nil {
		return err
	}
	c.apart(zones, tables)
	return nil
}

// builds reports whether the job makes subnets.
func (c *controls) builds() bool {
	return c.infra.NetworkID != "" && (c.r.Job.Mode == job.ModeCreate || c.r.Job.Mode == job.ModeCreateInExisting && c.r.Job.ResourceType == job.Network)
}

// apart wants the tiers apart, each over two zones, and no way from the internet
// to any but the public one.
func (c *controls) apart(zones map[string]string, tables []ec2types.RouteTable) {
	wanted := "2 zones or more, by NAT"
	if c.net.NAT == job.NATNone {
		wanted = "2 zones or more, no way out"
	}
	met := true
	var seen []string
	for _, tier := range [][]string{c.infra.PublicSubnetIDs, c.infra.PrivateSubnetIDs, c.infra.DatabaseSubnetIDs} {
		met = met && (len(tier) == 0 || len(c.zonesOf(tier, zones)) >= 2)
	}
	for _, id := range c.infra.PrivateSubnetIDs {
		target := defaultTarget(tableOf(id, tables))
		met = met && !slices.Contains(c.infra.PublicSubnetIDs, id) && (strings.HasPrefix(target, "nat-") || c.net.NAT == job.NATNone && target == "none")
		seen = append(seen, fmt.Sprintf("%s (%s) by %s", id, zones[id], or(target, "no route")))
	}
	for _, id := range c.infra.DatabaseSubnetIDs {
		target := defaultTarget(tableOf(id, tables))
		met = met && target == "none"
		seen = append(seen, fmt.Sprintf("%s (%s) by %s", id, zones[id], target))
	}
	c.add("NETA-10", "public and private subnets apart, in 2 zones, private ones out by NAT at most", wanted, sortedList(seen), met, "CKV2_AWS_35, vpc_subnet_different_az")
}

func (c *controls) zonesOf(subnets []string, zones map[string]string) []string {
	var out []string
	for _, id := range subnets {
		if z := zones[id]; z != "" && !slices.Contains(out, z) {
			out = append(out, z)
		}
	}
	return out
}

func (c *controls) groups(ctx context.Context) error {
	all, err := made(ctx, c.r, c.p.securityGroups())
	if err != nil || len(all) == 0 {
		return err
	}
	allowed := map[int32]bool{}
	if lb, err := c.r.Job.LoadBalancer(); err == nil && lb != nil && lb.Scheme == job.SchemePublic {
		for _, l := range listenersOf(*lb) {
			allowed[l.port] = true
		}
	}
	var admin, wide, silent []string
	for _, g := range all {
		id := aws.ToString(g.GroupId)
		for _, l := range slices.Concat(linesOf(g.IpPermissions), linesOf(g.IpPermissionsEgress)) {
			if l.about == "" && l.String() != everything.String() { // the rule that EC2 itself gives every group
				silent = append(silent, id+": "+l.String())
			}
		}
		for _, l := range linesOf(g.IpPermissions) {
			if l.opens(22) || l.opens(3389) {
				admin = append(admin, id+": "+l.String())
			}
			world := l.peer == "0.0.0.0/0" || l.peer == "::/0"
			if world && (id != c.infra.LoadBalancerSecurityGroupID || l.proto == "-1" || l.from != l.to || !allowed[l.from]) {
				wide = append(wide, id+": "+l.String())
			}
		}
	}
	c.same("NETA-08", "rules that the job made without a description", "none", or(agreed(silent), "none"), "CKV_AWS_23")
	c.same("NETA-04", "groups that open 22 or 3389 to the world", "none", or(agreed(admin), "none"), "EC2.13, CIS AWS 6.3")
	c.same("NETA-05", "ingress from the world other than to the load balancer's listeners", "none", or(agreed(wide), "none"), "EC2.18, EC2.19")
	return nil
}

func (c *controls) loadBalancer(ctx context.Context) error {
	lb, err := c.r.Job.LoadBalancer()
	if err != nil || lb == nil || c.infra.LoadBalancerID == "" {
		return err
	}
	l, err := c.p.readLoadBalancer(ctx, c.infra.LoadBalancerID)
	if err != nil {
		return err
	}
	scheme := map[elbtypes.LoadBalancerSchemeEnum]string{elbtypes.LoadBalancerSchemeEnumInternal: job.SchemeInternal, elbtypes.LoadBalancerSchemeEnumInternetFacing: job.SchemePublic}[l.Scheme]
	c.same("LBA-01", "load balancer's scheme is the one asked for", lb.Scheme, scheme, "AWS-0053")
	var zones []string
	for _, z := range l.AvailabilityZones {
		zones = append(zones, aws.ToString(z.ZoneName))
	}
	c.add("LBA-10", "load balancer stands in zones", "2 or more", sortedList(zones), len(zones) >= 2, "ELB.13")
	attrs, err := c.p.lbAttributes(ctx, c.infra.LoadBalancerID)
	if err != nil {
		return err
	}
	for _, a := range []struct{ id, key, name, source string }{
		{"LBA-06", dropInvalidHeaders, "load balancer drops invalid header fields", "ELB.4, CKV_AWS_131"},
		{"LBA-07", desyncMitigation, "load balancer's desync mitigation", "ELB.12, CKV_AWS_328"},
		{"LBA-09", accessLogsOn, "load balancer writes access logs", "ELB.5, CKV_AWS_91"},
		{"LBA-08", deletionProtection, "load balancer is protected from deletion", "ELB.6, CKV_AWS_150"},
	} {
		seen, listed := attrs[a.key]
		want, asked := wantedAttributes(l.Type, madeID(c.r, kindBucket, logBucketKey))[a.key]
		if listed && asked {
			c.add(a.id, a.name, want, seen, seen == want || a.key == desyncMitigation && seen == "strictest", a.source)
		}
	}
	return nil
}

func (c *controls) listeners(ctx context.Context) error {
	lb, err := c.r.Job.LoadBalancer()
	if err != nil || lb == nil || c.infra.LoadBalancerID == "" {
		return err
	}
	all, err := c.p.listenersAt(ctx, c.infra.LoadBalancerID)
	if err != nil {
		return err
	}
	// What was made a moment ago may not be listed yet.
	missing := slices.DeleteFunc(slices.Clone(c.infra.ListenerIDs), func(id string) bool {
		return slices.ContainsFunc(all, func(l elbtypes.Listener) bool { return aws.ToString(l.ListenerArn) == id })
	})
	if len(missing) > 0 {
		named, err := c.p.listenersAt(ctx, "", missing...)
		if err != nil {
			return err
		}
		all = append(all, named...)
	}
	var open, redirects, policies []string
	for _, l := range all {
		text := fmt.Sprintf("%s %d", l.Protocol, aws.ToInt32(l.Port))
		redirect := len(l.DefaultActions) > 0 && l.DefaultActions[0].RedirectConfig != nil
		switch l.Protocol {
		case elbtypes.ProtocolEnumHttps, elbtypes.ProtocolEnumTls:
			policies = append(policies, aws.ToString(l.SslPolicy))
			continue
		case elbtypes.ProtocolEnumHttp:
			redirects = append(redirects, yesNo(redirect))
		}
		if !redirect {
			open = append(open, text)
		}
	}
	// Plain HTTP and TCP are only there on an explicit word in the request.
	if lb.Certificate == "" {
		var asked []string
		for _, l := range listenersOf(*lb) {
			asked = append(asked, fmt.Sprintf("%s %d", l.protocol, l.port))
		}
		c.same("LBA-02", "listeners without TLS are those asked for by name", agreed(asked), agreed(open), "ELB.18, CKV_AWS_2")
		return nil
	}
	c.same("LBA-02", "listeners that serve without TLS", "none", or(agreed(open), "none"), "ELB.18, CKV_AWS_2")
	if lb.Type == job.LBHTTP {
		c.same("LBA-03", "HTTP listeners redirect to HTTPS", "yes", agreed(redirects), "ELB.1, CKV2_AWS_20")
	}
	c.same("LBA-04", "listeners' TLS policy has forward secrecy", tlsPolicy, agreed(policies), "ELB.17, CKV_AWS_103")
	return nil
}

func (c *controls) targetGroup(ctx context.Context) error {
	if c.infra.TargetGroupID == "" {
		return nil
	}
	g, err := c.p.readTargetGroup(ctx, c.infra.TargetGroupID)
	if err != nil {
		return err
	}
	path := aws.ToString(g.HealthCheckPath)
	c.add("LBA-14", "target group has a health check with a path", "a path", path, path != "", "CKV_AWS_261")
	return nil
}
