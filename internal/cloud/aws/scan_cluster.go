package aws

import (
	"context"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// clusterKinds are the kinds of the cluster family.
func (s *scan) clusterKinds() []func(context.Context) error {
	return []func(context.Context) error{s.clusters, s.keys, s.aliases, s.issuers, s.clusterLogs}
}

// clusters goes through what is named like the job's. Node groups, add-ons and
// access entries are in a cluster and go with it.
func (s *scan) clusters(ctx context.Context) error {
	names, err := s.p.clusterNames(ctx)
	if err != nil {
		return s.readable(ctx, kindCluster, err)
	}
	for _, n := range names {
		if !strings.HasSuffix(n, s.suffix()) {
			continue
		}
		c, err := s.p.readCluster(ctx, n)
		if pipeline.Is(err, pipeline.NotFound) {
			continue
		}
		if err != nil {
			return s.readable(ctx, kindCluster, err)
		}
		if c.Tags[job.MarkOwner] == s.owner {
			s.found(kindCluster, aws.ToString(c.Arn), n)
		}
	}
	return nil
}

// keys looks for the owner's keys, but for those whose deletion is scheduled.
func (s *scan) keys(ctx context.Context) error {
	keys, err := s.p.ownedKeys(ctx, s.owner)
	if err != nil {
		return s.readable(ctx, kindKey, err)
	}
	for _, k := range keys {
		s.found(kindKey, aws.ToString(k.Arn), aws.ToString(k.Description))
	}
	return nil
}

// aliases looks for aliases of keys that are named like the job's.
func (s *scan) aliases(ctx context.Context) error {
	aliases, err := s.p.aliases(ctx)
	if err != nil {
		return s.readable(ctx, kindAlias, err)
	}
	for _, a := range aliases {
		if n := aws.ToString(a.AliasName); strings.HasPrefix(n, aliasPrefix) && strings.HasSuffix(n, s.suffix()) {
			s.found(kindAlias, n, n)
		}
	}
	return nil
}

// issuers goes through the OpenID Connect providers of clusters.
func (s *scan) issuers(ctx context.Context) error {
	out, err := s.p.iam.ListOpenIDConnectProviders(ctx, &iam.ListOpenIDConnectProvidersInput{})
	if err != nil {
		return s.readable(ctx, kindOIDC, err)
	}
	for _, o := range out.OpenIDConnectProviderList {
		arn := aws.ToString(o.Arn)
		if !strings.Contains(arn, ":oidc-provider/oidc.eks.") {
			continue
		}
		got, err := s.p.readOIDC(ctx, arn)
		if pipeline.Is(err, pipeline.NotFound) {
			continue
		}
		if err != nil {
			return s.readable(ctx, kindOIDC, err)
		}
		if iamMark(got.Tags) == s.owner {
			s.found(kindOIDC, arn, aws.ToString(got.Url))
		}
	}
	return nil
}

// clusterLogs goes through the log groups of control planes. One that EKS has made
// again carries no mark: its name, which ends in a hash of the job's ID, tells.
func (s *scan) clusterLogs(ctx context.Context) error {
	all, err := s.p.logGroupsNamed(ctx, clusterLogs)
	if err != nil {
		return s.readable(ctx, kindLogGroup, err)
	}
	for _, g := range all {
		groupName := aws.ToString(g.LogGroupName)
		if !strings.HasSuffix(groupName, s.suffix()+"/cluster") {
			continue
		}
		owner, err := s.p.logGroupOwner(ctx, g)
		if pipeline.Is(err, pipeline.NotFound) {
			continue
		}
		if err != nil {
			return s.readable(ctx, kindLogGroup, err)
		}
		if owner == s.owner || owner == "" {
			s.found(kindLogGroup, groupName, groupName)
		}
	}
	return nil
}
