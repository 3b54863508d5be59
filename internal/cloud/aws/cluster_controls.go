package aws

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// A clusterRow is one hardening control of a cluster, as it is read back.
type clusterRow struct {
	id, name, source string
	read             func(*clusterReport, context.Context) (finding, error)
}

// A finding is what a row is found to be.
type finding struct {
	wanted, seen string
	met          bool
}

func equal(wanted, seen string) (finding, error) { return finding{wanted, seen, wanted == seen}, nil }

// A clusterReport reads the controls of one cluster back.
type clusterReport struct {
	p    *Provider
	r    *pipeline.Run
	spec job.ClusterSpec
	name string
}

// clusterRows are the controls that a cluster of ours holds by default and that AWS
// can answer; what only the Kubernetes API knows is read there. A row that asks for
// nothing here has an empty finding.
var clusterRows = []clusterRow{
	{"EKS-01", "API server open to the whole internet", "AWS-0041, CKV_AWS_38, CIS EKS 5.4.1", (*clusterReport).openEndpoint},
	{"EKS-02", "API server on the internet", "AWS-0040, EKS.1, CIS EKS 5.4.2", (*clusterReport).publicEndpoint},
	{"EKS-03", "API server inside of the network", "eks_cluster_private_nodes_enabled, CIS EKS 5.4.2", (*clusterReport).privateEndpoint},
	{"EKS-04", "logs of who did what and who came in", "EKS.8, CIS EKS 2.1.1", (*clusterReport).auditLogs},
	{"EKS-05", "logs of the control plane", "AWS-0038, CKV_AWS_37", (*clusterReport).logs},
	{"EKS-06", "retention of the control plane's logs", "CKV_AWS_66, CIS EKS 2.1.2", (*clusterReport).retention},
	{"EKS-08", "secrets encrypted with a customer's key", "AWS-0039, EKS.3, CIS EKS 5.3.1", (*clusterReport).secrets},
	{"EKS-09", "rotation of the secrets' key", "AWS-0065, KMS.4, CKV_AWS_7", (*clusterReport).keyRotation},
	{"EKS-10", "Kubernetes version in standard support", "EKS.2, CKV_AWS_339", (*clusterReport).supported},
	{"EKS-11", "what happens at the end of standard support", "keeps EKS.2 true", (*clusterReport).support},
	{"EKS-12", "nodes run the control plane's version", "EKS.9", (*clusterReport).nodeVersions},
	{"EKS-13", "deletion protection", "eks_cluster_deletion_protection_enabled", (*clusterReport).protection},
	{"EKS-14", "authentication by access entries alone", "CIS EKS 4.1.7, CIS EKS 5.5.1", (*clusterReport).authentication},
	{"EKS-15", "administrators whom neither the job nor a grant let in, such as the cluster's maker", "CIS EKS 4.1.1", (*clusterReport).administrators},
	{"EKS-16", "subnets of the nodes lead to the internet or give public addresses", "AWS-0164, EC2.15, CIS EKS 5.4.3", (*clusterReport).nodeSubnets},
	{"EKS-17", "nodes require metadata tokens (IMDSv2)", "AWS-0130, EC2.8, EC2.170, CIS AWS 6.7", (*clusterReport).metadataTokens},
	{"EKS-18", "nodes' metadata hop limit", "CKV_AWS_341", (*clusterReport).metadataHops},
	{"EKS-19", "nodes' disks are encrypted", "AWS-0131, EC2.3, EC2.181", (*clusterReport).nodeDisks},
	{"EKS-20", "nodes get public addresses", "EC2.25, CKV_AWS_88", (*clusterReport).nodeAddresses},
	{"EKS-21", "remote access to nodes", "CKV_AWS_100", (*clusterReport).remoteAccess},
	{"EKS-22", "identities for workloads", "CIS EKS 5.2.1", (*clusterReport).workloadIdentity},
	{"EKS-23", "what nodes may do", "CIS EKS 5.1.3, CIS EKS 5.2.1", (*clusterReport).nodePolicies},
	{"EKS-24", "network policies are enforced", "CIS EKS 4.3.1, eks_cluster_network_policy_enabled", (*clusterReport).networkPolicy},
	{"EKS-28", "node images", "CIS EKS 3.1.1, ec2_instance_with_outdated_ami", (*clusterReport).images},
	{"EKS-30", "ingress from the world to control plane and nodes", "AWS-0107, EC2.18, EC2.19, CIS AWS 6.3", (*clusterReport).worldIngress},
	{"EKS-31", "zones of control plane and nodes", "AutoScaling.2", (*clusterReport).zones},
	{"EKS-32", "the network is the region's default VPC", "AWS-0101, CKV_AWS_148", (*clusterReport).defaultNetwork},
	{"EKS-37", "tags", "EKS.6", (*clusterReport).tagged},
}

// clusterControls reads the hardening controls of a cluster back. What could not be
// read is told as such, and counts neither way.
func (p *Provider) clusterControls(ctx context.Context, r *pipeline.Run) ([]job.Control, error) {
	spec, err := r.Job.ClusterSpec()
	if err != nil {
		return nil, err
	}
	report := &clusterReport{p: p, r: r, spec: spec, name: clusterNameOf(r.Job)}
	rows := make([]job.Control, len(clusterRows))
	var reads []func(context.Context) error
	for i, row := range clusterRows {
		reads = append(reads, func(ctx context.Context) error {
			got, err := row.read(report, ctx)
			err = plain(err)
			rows[i] = job.Control{ID: row.id, Name: row.name, Wanted: got.wanted, Seen: or(got.seen, "nothing"), Met: got.met, Source: row.source}
			switch {
			case pipeline.Is(err, pipeline.Invalid, pipeline.Denied, pipeline.NotFound):
				rows[i].Wanted, rows[i].Seen, rows[i].Met, rows[i].Unchecked = or(got.wanted, "read back"), "not read: "+err.Error(), false, true
			case err != nil:
				return fmt.Errorf("read back %s: %w", row.id, err)
			case got == finding{}:
				rows[i].ID = "" // it asks for nothing here
			}
			return nil
		})
	}
	err = pipeline.All(ctx, reads...)
	return slices.DeleteFunc(rows, func(c job.Control) bool { return c.ID == "" }), err
}

func (c *clusterReport) cluster(ctx context.Context) (ekstypes.Cluster, error) {
	return c.p.readCluster(ctx, c.name)
}

// of reads one thing of the cluster that has to be as wanted.
func (c *clusterReport) of(ctx context.Context, wanted string, seen func(ekstypes.Cluster) string) (finding, error) {
	k, err := c.cluster(ctx)
	if err != nil {
		return finding{wanted: wanted}, err
	}
	return equal(wanted, seen(k))
}

func (c *clusterReport) openEndpoint(ctx context.Context) (finding, error) {
	k, err := c.cluster(ctx)
	f := finding{wanted: "no " + anywhere + ", no ::/0"}
	if err != nil {
		return f, err
	}
	f.seen = seenEndpoint(k)
	v := k.ResourcesVpcConfig
	f.met = v != nil && (!v.EndpointPublicAccess || len(v.PublicAccessCidrs) > 0 && !slices.Contains(v.PublicAccessCidrs, anywhere) && !slices.Contains(v.PublicAccessCidrs, "::/0"))
	return f, nil
}

// publicEndpoint is asked for where the provisioner gets to a private one.
func (c *clusterReport) publicEndpoint(ctx context.Context) (finding, error) {
	if c.r.Job.Config.InfraConfig.Cluster.Public {
		return finding{}, nil
	}
	return c.of(ctx, "off", func(k ekstypes.Cluster) string {
		return onOff(k.ResourcesVpcConfig == nil || k.ResourcesVpcConfig.EndpointPublicAccess)
	})
}

func (c *clusterReport) privateEndpoint(ctx context.Context) (finding, error) {
	return c.of(ctx, "on", func(k ekstypes.Cluster) string {
		return onOff(k.ResourcesVpcConfig != nil && k.ResourcesVpcConfig.EndpointPrivateAccess)
	})
}

func (c *clusterReport) auditLogs(ctx context.Context) (finding, error) {
	want := []ekstypes.LogType{ekstypes.LogTypeAudit, ekstypes.LogTypeAuthenticator}
	return c.of(ctx, logText(want), func(k ekstypes.Cluster) string {
		return logText(slices.DeleteFunc(loggedBy(k), func(t ekstypes.LogType) bool { return !slices.Contains(want, t) }))
	})
}

func (c *clusterReport) logs(ctx context.Context) (finding, error) {
	return c.of(ctx, logText(allLogs), func(k ekstypes.Cluster) string { return logText(loggedBy(k)) })
}

func (c *clusterReport) retention(ctx context.Context) (finding, error) {
	f := finding{wanted: retentionText(retentionDays)}
	g, err := c.p.readLogGroup(ctx, clusterLogName(c.name))
	if err != nil {
		return f, err
	}
	days := aws.ToInt32(g.RetentionInDays)
	f.seen, f.met = retentionText(days), days >= retentionDays
	return f, nil
}

func (c *clusterReport) secrets(ctx context.Context) (finding, error) {
	f := finding{wanted: "with a customer managed key"}
	k, err := c.cluster(ctx)
	if err != nil {
		return f, err
	}
	if f.seen = secretsKey(k); f.seen == "none" {
		return f, nil
	}
	key, err := c.p.readKey(ctx, f.seen)
	if err != nil {
		return f, err
	}
	f.seen += fmt.Sprintf(" (%s, %s)", strings.ToLower(string(key.KeyManager)), key.KeyState)
	f.met = key.KeyManager == "CUSTOMER" && key.KeyState == "Enabled"
	return f, nil
}

func (c *clusterReport) keyRotation(ctx context.Context) (finding, error) {
	k, err := c.cluster(ctx)
	if err != nil {
		return finding{wanted: "on"}, err
	}
	key := secretsKey(k)
	if key == "none" {
		return finding{wanted: "on", seen: "there is no key"}, nil
	}
	on, err := c.p.rotates(ctx, key)
	if err != nil {
		return finding{wanted: "on"}, err
	}
	return equal("on", onOff(on))
}

func (c *clusterReport) supported(ctx context.Context) (finding, error) {
	f := finding{wanted: "in standard support"}
	if c.spec.ExtendedSupport {
		f.wanted = "in support, extended as the spec allows"
	}
	k, err := c.cluster(ctx)
	if err != nil {
		return f, err
	}
	versions, err := c.p.clusterVersions(ctx)
	if err != nil {
		return f, err
	}
	f.seen = aws.ToString(k.Version) + ", no longer offered"
	for _, v := range versions {
		if v.version == aws.ToString(k.Version) {
			f.seen = fmt.Sprintf("%s, standard support until %s", v.version, or(v.until, "a day that is not said"))
			f.met = v.standard || c.spec.ExtendedSupport
		}
	}
	return f, nil
}

func (c *clusterReport) support(ctx context.Context) (finding, error) {
	return c.of(ctx, string(supportType(c.spec, c.r.Job.Config.InfraConfig.Cluster)), supportOf)
}

func (c *clusterReport) protection(ctx context.Context) (finding, error) {
	return c.of(ctx, "on", func(k ekstypes.Cluster) string { return onOff(aws.ToBool(k.DeletionProtection)) })
}

func (c *clusterReport) authentication(ctx context.Context) (finding, error) {
	return c.of(ctx, string(ekstypes.AuthenticationModeApi), authMode)
}

// administrators are read from the access entries: whether the maker of a cluster
// became its administrator by that alone is said in the answer to the create, and by
// no later one; but then the maker has an entry, which no one marked.
func (c *clusterReport) administrators(ctx context.Context) (finding, error) {
	all, err := lookup.Pages(ctx, func(ctx context.Context, token *string) ([]string, *string, error) {
		out, err := c.p.eks.ListAccessEntries(ctx, &eks.ListAccessEntriesInput{
			ClusterName: aws.String(c.name), AssociatedPolicyArn: aws.String(accessPolicy(c.p.region, cloud.AccessAdmin)), NextToken: token,
		})
		if err != nil {
			return nil, nil, err
		}
		return out.AccessEntries, out.NextToken, nil
	})
	if err != nil {
		return finding{wanted: "none"}, err
	}
	var others []string
	for _, principal := range all {
		e, err := c.p.readEntry(ctx, c.name, principal)
		if pipeline.Is(plain(err), pipeline.NotFound) {
			continue
		}
		if err != nil {
			return finding{wanted: "none"}, err
		}
		if eksMark(e.Tags) != c.r.Job.ID && e.Tags[grantMark] == "" {
			others = append(others, principal)
		}
	}
	return equal("none", or(sortedList(others), "none"))
}

func (c *clusterReport) tagged(ctx context.Context) (finding, error) {
	f := finding{wanted: "the job's"}
	k, err := c.cluster(ctx)
	if err != nil {
		return f, err
	}
	f.seen, f.met = sortedPairs(k.Tags), k.Tags[job.MarkOwner] == c.r.Job.ID
	return f, nil
}

func (c *clusterReport) workloadIdentity(ctx context.Context) (finding, error) {
	f := finding{wanted: "the Pod Identity agent active, or an OpenID Connect provider"}
	agent := "no agent"
	a, err := c.p.readAddon(ctx, c.name, "eks-pod-identity-agent")
	if err := pipeline.Unless(plain(err), pipeline.NotFound); err != nil {
		return f, err
	}
	if err == nil {
		agent = "agent " + string(a.Status)
		f.met = a.Status == ekstypes.AddonStatusActive
	}
	k, err := c.cluster(ctx)
	if err != nil {
		return f, err
	}
	info := job.ClusterInfo{}
	recordCluster(&info, k)
	issuer := "no provider"
	if info.OIDCIssuer != "" {
		_, err := c.p.readOIDC(ctx, c.p.oidcARN(c.r, info.OIDCIssuer))
		if err := pipeline.Unless(plain(err), pipeline.NotFound); err != nil {
			return f, err
		}
		if err == nil {
			issuer, f.met = "provider for "+info.OIDCIssuer, true
		}
	}
	f.seen = agent + ", " + issuer
	return f, nil
}

func (c *clusterReport) networkPolicy(ctx context.Context) (finding, error) {
	cni := addons[0]
	f := finding{wanted: "vpc-cni active, " + cni.configText(cni.config)}
	a, err := c.p.readAddon(ctx, c.name, cni.name)
	if pipeline.Is(err, pipeline.NotFound) {
		f.seen = "no add-on " + cni.name
		return f, nil
	}
	if err != nil {
		return f, err
	}
	f.seen = fmt.Sprintf("%s %s, %s", cni.name, strings.ToLower(string(a.Status)), cni.configText(aws.ToString(a.ConfigurationValues)))
	f.met = f.seen == f.wanted
	return f, nil
}

func (c *clusterReport) defaultNetwork(ctx context.Context) (finding, error) {
	k, err := c.cluster(ctx)
	if err != nil || k.ResourcesVpcConfig == nil {
		return finding{wanted: "no"}, err
	}
	v, err := c.p.namedVPC(ctx, aws.ToString(k.ResourcesVpcConfig.VpcId))
	if err != nil {
		return finding{wanted: "no"}, err
	}
	return equal("no", yesNo(aws.ToBool(v.IsDefault)))
}
