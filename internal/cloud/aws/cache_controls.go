package aws

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	ectypes "github.com/aws/aws-sdk-go-v2/service/elasticache/types"

	"github.com/zopday/provisioner/internal/job"
)

// cacheRows are the controls that a cache of ours holds by default, and failover where
// high availability is asked for.
var cacheRows = []dataRow{
	{"EC-01", "data at rest is encrypted", "AWS-0045, ElastiCache.4, CKV_AWS_29", (*dataReport).cacheEncrypted},
	{"EC-02", "TLS", "AWS-0051, ElastiCache.5, CKV_AWS_30", (*dataReport).cacheTLS},
	{"EC-03", "clients authenticate", "CKV_AWS_31, ElastiCache.6", (*dataReport).cacheAuth},
	{"EC-04", "what the default user may do", "EC-03 is empty without it", (*dataReport).cacheDefaultUser},
	{"EC-05", "automatic failover", "ElastiCache.3, CKV2_AWS_50", (*dataReport).cacheFailover},
	{"EC-06", "nodes in more than one zone", "CKV2_AWS_50, elasticache_redis_cluster_multi_az_enabled", (*dataReport).cacheMultiAZ},
	{"EC-07", "snapshots", "AWS-0050, ElastiCache.1, CKV_AWS_134", (*dataReport).cacheSnapshots},
	{"EC-08", "minor upgrades by themselves", "ElastiCache.2, CKV_AWS_322", (*dataReport).cacheUpgrades},
	{"EC-09", "subnet group is the job's own", "ElastiCache.7, CKV_AWS_323", (*dataReport).cacheSubnets},
	{"EC-10", "subnets lead to the internet", "elasticache_cluster_uses_public_subnet", (*dataReport).cacheInside},
	{"EC-11", "who may connect", "EC2.19, elasticache security group rules", (*dataReport).cacheClients},
	{"EC-13", "security group and its rules have descriptions", "AWS-0124, CKV_AWS_23", (*dataReport).described},
	{"EC-14", "version with users of its own, in support", "ElastiCache.6", (*dataReport).cacheVersionCurrent},
	{"EC-15", "final snapshot at deletion", "mirrors RDS.1", (*dataReport).cacheFinal},
}

func (d *dataReport) group(ctx context.Context) (ectypes.ReplicationGroup, error) {
	return d.readCacheGroup(ctx, d.name())
}

// ofCache reads one thing of the cache that has to be as wanted.
func (d *dataReport) ofCache(ctx context.Context, wanted string, seen func(ectypes.ReplicationGroup) string) (finding, error) {
	g, err := d.group(ctx)
	if err != nil {
		return finding{wanted: wanted}, err
	}
	return equal(wanted, seen(g))
}

func (d *dataReport) cacheEncrypted(ctx context.Context) (finding, error) {
	return d.ofCache(ctx, "on", func(g ectypes.ReplicationGroup) string { return onOff(aws.ToBool(g.AtRestEncryptionEnabled)) })
}

func (d *dataReport) cacheTLS(ctx context.Context) (finding, error) {
	return d.ofCache(ctx, "required", tlsOf)
}

func (d *dataReport) cacheAuth(ctx context.Context) (finding, error) {
	f := finding{wanted: "by a user group, or a token"}
	g, err := d.group(ctx)
	if err != nil {
		return f, err
	}
	f.met = len(g.UserGroupIds) > 0 || aws.ToBool(g.AuthTokenEnabled)
	f.seen = "user groups: " + or(sortedList(g.UserGroupIds), "none") + "; token: " + onOff(aws.ToBool(g.AuthTokenEnabled))
	return f, nil
}

// cacheDefaultUser reads the users of every group of the cache: one whose name is
// default lets in whoever gives no name.
func (d *dataReport) cacheDefaultUser(ctx context.Context) (finding, error) {
	f := finding{wanted: "none"}
	g, err := d.group(ctx)
	if err != nil {
		return f, err
	}
	if len(g.UserGroupIds) == 0 {
		f.seen = "everything: there is no user group"
		return f, nil
	}
	var open []string
	for _, group := range g.UserGroupIds {
		ug, err := d.readUserGroup(ctx, group)
		if err != nil {
			return f, err
		}
		for _, id := range ug.UserIds {
			u, err := d.readCacheUser(ctx, id)
			if err != nil {
				return f, err
			}
			if power := powerOf(u); aws.ToString(u.UserName) == "default" && power != "none" {
				open = append(open, fmt.Sprintf("%s in %s: %s", id, group, power))
			}
		}
	}
	return equal("none", or(sortedList(open), "none"))
}

func (d *dataReport) cacheFailover(ctx context.Context) (finding, error) {
	if !d.spec.HA() {
		return finding{}, nil
	}
	return d.ofCache(ctx, "enabled", func(g ectypes.ReplicationGroup) string { return string(g.AutomaticFailover) })
}

func (d *dataReport) cacheMultiAZ(ctx context.Context) (finding, error) {
	if !d.spec.HA() {
		return finding{}, nil
	}
	return d.ofCache(ctx, "enabled", func(g ectypes.ReplicationGroup) string { return string(g.MultiAZ) })
}

func (d *dataReport) cacheSnapshots(ctx context.Context) (finding, error) {
	f := finding{wanted: "kept for 7 days or more"}
	g, err := d.group(ctx)
	if err != nil {
		return f, err
	}
	days := aws.ToInt32(g.SnapshotRetentionLimit)
	f.seen, f.met = daysText(days), days >= 7
	return f, nil
}

func (d *dataReport) cacheUpgrades(ctx context.Context) (finding, error) {
	return d.ofCache(ctx, "on", func(g ectypes.ReplicationGroup) string { return onOff(aws.ToBool(g.AutoMinorVersionUpgrade)) })
}

// members are the nodes of the cache; none is as good as not read.
func (d *dataReport) members(ctx context.Context) ([]ectypes.CacheCluster, error) {
	nodes, err := d.nodesOf(ctx, d.name())
	if err == nil && len(nodes) == 0 {
		err = absent("ElastiCache", "DescribeCacheClusters", "a node of "+d.name())
	}
	return nodes, err
}

func (d *dataReport) cacheSubnets(ctx context.Context) (finding, error) {
	f := finding{wanted: "not default"}
	nodes, err := d.members(ctx)
	if err != nil {
		return f, err
	}
	var groups []string
	for _, n := range nodes {
		groups = append(groups, or(aws.ToString(n.CacheSubnetGroupName), "none"))
	}
	f.seen = agreed(groups)
	f.met = !slices.Contains(groups, "default") && !slices.Contains(groups, "none")
	return f, nil
}

func (d *dataReport) cacheInside(ctx context.Context) (finding, error) {
	nodes, err := d.members(ctx)
	if err != nil {
		return finding{wanted: "none"}, err
	}
	g, err := d.readCacheSubnetGroup(ctx, aws.ToString(nodes[0].CacheSubnetGroupName))
	if err != nil {
		return finding{wanted: "none"}, err
	}
	var in []string
	for _, s := range g.Subnets {
		in = append(in, aws.ToString(s.SubnetIdentifier))
	}
	return d.wayOut(ctx, aws.ToString(g.VpcId), in)
}

func (d *dataReport) cacheGroups(ctx context.Context) ([]string, error) {
	nodes, err := d.members(ctx)
	var groups []string
	for _, n := range nodes {
		for _, s := range n.SecurityGroups {
			if id := aws.ToString(s.SecurityGroupId); !slices.Contains(groups, id) {
				groups = append(groups, id)
			}
		}
	}
	return groups, err
}

func (d *dataReport) cacheClients(ctx context.Context) (finding, error) {
	groups, err := d.cacheGroups(ctx)
	if err != nil {
		return finding{wanted: privateClients}, err
	}
	return d.admits(ctx, groups)
}

// described wants a word for every rule of the group.
func (d *dataReport) described(ctx context.Context) (finding, error) {
	groups, err := d.cacheGroups(ctx)
	if err != nil {
		return finding{wanted: "all"}, err
	}
	var silent []string
	for _, id := range groups {
		g, err := d.securityGroups().Get(ctx, id)
		if err != nil {
			return finding{wanted: "all"}, err
		}
		if aws.ToString(g.Description) == "" {
			silent = append(silent, id)
		}
		for _, l := range linesOf(g.IpPermissions) {
			if l.about == "" {
				silent = append(silent, id+": "+l.String())
			}
		}
	}
	if len(silent) > 0 {
		return finding{wanted: "all", seen: "not " + agreed(silent)}, nil
	}
	return finding{wanted: "all", seen: "all", met: true}, nil
}

func (d *dataReport) cacheVersionCurrent(ctx context.Context) (finding, error) {
	f := finding{wanted: "Valkey, or Redis OSS 7"}
	nodes, err := d.members(ctx)
	if err != nil {
		return f, err
	}
	f.met = true
	var seen []string
	for _, n := range nodes {
		e := job.Engine(or(aws.ToString(n.Engine), string(d.spec.Engine)))
		seen = append(seen, e.Title()+" "+aws.ToString(n.EngineVersion))
		f.met = f.met && currentCache(e, aws.ToString(n.EngineVersion))
	}
	f.seen = agreed(seen)
	return f, nil
}

// cacheFinal is decided when the cache is made, and read back from the ledger.
func (d *dataReport) cacheFinal(context.Context) (finding, error) {
	return equal("on", onOff(d.finalSnapshot() != ""))
}

// private reports whether a line lets in a group, a prefix list, or ranges inside.
func (l line) private(inside []netip.Prefix) bool {
	if strings.HasPrefix(l.peer, "sg-") || strings.HasPrefix(l.peer, "pl-") {
		return true
	}
	p, err := netip.ParsePrefix(l.peer)
	return err == nil && slices.ContainsFunc(inside, func(in netip.Prefix) bool { return in.Bits() <= p.Bits() && in.Contains(p.Addr()) })
}
