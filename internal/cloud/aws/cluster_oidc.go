package aws

import (
	"context"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/pipeline"
)

// oidcAudience is whom the tokens of service accounts are for.
const oidcAudience = "sts.amazonaws.com"

func (p *Provider) readOIDC(ctx context.Context, arn string) (*iam.GetOpenIDConnectProviderOutput, error) {
	return lookup.Once(ctx, kindOIDC+" "+arn, func(ctx context.Context) (*iam.GetOpenIDConnectProviderOutput, error) {
		return p.iam.GetOpenIDConnectProvider(ctx, &iam.GetOpenIDConnectProviderInput{OpenIDConnectProviderArn: aws.String(arn)})
	})
}

// oidcARN is the ARN of the provider for an issuer: IAM makes it from the URL.
func (p *Provider) oidcARN(r *pipeline.Run, issuer string) string {
	return "arn:" + partition(p.region) + ":iam::" + r.Job.Config.InfraConfig.Account + ":oidc-provider/" + strings.TrimPrefix(issuer, "https://")
}

// oidcProvider lets IAM trust the tokens of the cluster's service accounts, for
// workloads that do not use Pod Identity ("IAM roles for service accounts"). IAM
// makes its ARN from the issuer, so that there is one at most.
func (p *Provider) oidcProvider(r *pipeline.Run) pipeline.Resource {
	ic := r.Job.Config.InfraConfig
	host := strings.TrimPrefix(ic.Cluster.OIDCIssuer, "https://")
	arn := p.oidcARN(r, ic.Cluster.OIDCIssuer)
	x := pipeline.Resource{Kind: kindOIDC, Key: oidcKey, Name: or(host, clusterNameOf(r.Job))}
	x.Get = func(ctx context.Context, id string) (pipeline.Seen, error) {
		got, err := p.readOIDC(ctx, id)
		if err != nil {
			return pipeline.Seen{}, err
		}
		s := pipeline.Seen{ID: id, Owner: iamMark(got.Tags), Status: pipeline.Ready}
		if r.Down {
			return s, nil
		}
		audience := pipeline.Aspect{Name: "audience", Wanted: "accepted", Seen: "accepted", Set: func(ctx context.Context) error {
			_, err := p.iam.AddClientIDToOpenIDConnectProvider(ctx, &iam.AddClientIDToOpenIDConnectProviderInput{OpenIDConnectProviderArn: aws.String(id), ClientID: aws.String(oidcAudience)})
			return err
		}}
		if !slices.Contains(got.ClientIDList, oidcAudience) {
			audience.Seen = "refused"
		}
		s.Aspects = []pipeline.Aspect{audience}
		return s, nil
	}
	x.Find = func(ctx context.Context) ([]pipeline.Seen, error) {
		if host == "" {
			return nil, nil // the cluster never had an issuer
		}
		s, err := x.Get(ctx, arn)
		if err != nil {
			return nil, pipeline.Unless(plain(err), pipeline.NotFound)
		}
		return []pipeline.Seen{s}, intendedTagsLate(r, kindOIDC, oidcKey, s.Owner)
	}
	x.Create = func(ctx context.Context, _ string) (pipeline.Seen, error) {
		out, err := p.iam.CreateOpenIDConnectProvider(ctx, &iam.CreateOpenIDConnectProviderInput{
			Url: aws.String(ic.Cluster.OIDCIssuer), ClientIDList: []string{oidcAudience}, Tags: iamTags(tags(r, x.Key, clusterNameOf(r.Job))),
		})
		if err != nil {
			return pipeline.Seen{}, err
		}
		return pipeline.Seen{ID: aws.ToString(out.OpenIDConnectProviderArn), Status: pipeline.Ready}, nil
	}
	x.Delete = func(ctx context.Context, id string) error {
		_, err := p.iam.DeleteOpenIDConnectProvider(ctx, &iam.DeleteOpenIDConnectProviderInput{OpenIDConnectProviderArn: aws.String(id)})
		return err
	}
	return tidy(x)
}
