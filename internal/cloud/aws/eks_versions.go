package aws

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"

	"github.com/zopday/provisioner/internal/cloud/lookup"
)

// A kubeVersion is one that EKS offers.
type kubeVersion struct {
	version  string // major and minor
	standard bool   // in standard support
	preset   bool   // EKS's default
	until    string // end of standard support, a date; "" if it is not said
}

// clusterVersions are the Kubernetes versions that EKS offers now, the newest first.
func (p *Provider) clusterVersions(ctx context.Context) ([]kubeVersion, error) {
	return lookup.Once(ctx, "cluster versions", func(ctx context.Context) ([]kubeVersion, error) {
		all, err := lookup.Pages(ctx, func(ctx context.Context, token *string) ([]ekstypes.ClusterVersionInformation, *string, error) {
			out, err := p.eks.DescribeClusterVersions(ctx, &eks.DescribeClusterVersionsInput{NextToken: token})
			if err != nil {
				return nil, nil, err
			}
			return out.ClusterVersions, out.NextToken, nil
		})
		if err != nil {
			return nil, err
		}
		var out []kubeVersion
		for _, v := range all {
			k := kubeVersion{version: aws.ToString(v.ClusterVersion), preset: v.DefaultVersion}
			switch {
			case v.VersionStatus == ekstypes.VersionStatusUnsupported, v.VersionStatus == "" && v.Status == ekstypes.ClusterVersionStatusUnsupported:
				continue
			case v.VersionStatus == ekstypes.VersionStatusStandardSupport, v.VersionStatus == "" && v.Status == ekstypes.ClusterVersionStatusStandardSupport:
				k.standard = true
			}
			if v.EndOfStandardSupportDate != nil {
				k.until = v.EndOfStandardSupportDate.UTC().Format(time.DateOnly)
			}
			out = append(out, k)
		}
		slices.SortFunc(out, func(a, b kubeVersion) int { return cmp.Compare(minorOf(b.version), minorOf(a.version)) })
		return out, nil
	})
}

// minorOf is the second number of a version; 0 if it has none.
func minorOf(version string) int {
	_, minor, _ := strings.Cut(version, ".")
	minor, _, _ = strings.Cut(minor, ".")
	n, err := strconv.Atoi(minor)
	if err != nil {
		return 0
	}
	return n
}
