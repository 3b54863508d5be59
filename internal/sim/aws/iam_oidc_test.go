package aws

import (
	"testing"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/iam/types"

	"github.com/zopday/provisioner/internal/sim"
)

func TestOIDCProviders(t *testing.T) {
	r := newRig(t, immediate)
	c := iam.NewFromConfig(r.cfg)
	in := &iam.CreateOpenIDConnectProviderInput{Url: awssdk.String("https://oidc.eks.us-east-1.amazonaws.com/id/ABC"), ClientIDList: []string{"sts.amazonaws.com"},
		Tags: []types.Tag{{Key: awssdk.String("owner"), Value: awssdk.String("job-1")}}}
	arn := must(c.CreateOpenIDConnectProvider(r.ctx(), in))(t).OpenIDConnectProviderArn
	if *arn != "arn:aws:iam::"+testAccount+":oidc-provider/oidc.eks.us-east-1.amazonaws.com/id/ABC" {
		t.Fatalf("ARN %s", *arn)
	}
	_, err := c.CreateOpenIDConnectProvider(r.ctx(), in)
	refusalText(t, "twice", err, "EntityAlreadyExists", "already exists")
	_, err = c.CreateOpenIDConnectProvider(r.ctx(), &iam.CreateOpenIDConnectProviderInput{Url: awssdk.String("http://oidc.example.com")})
	wantCode(t, err, "ValidationError")
	got := must(c.GetOpenIDConnectProvider(r.ctx(), &iam.GetOpenIDConnectProviderInput{OpenIDConnectProviderArn: arn}))(t)
	if *got.Url != "oidc.eks.us-east-1.amazonaws.com/id/ABC" || len(got.ClientIDList) != 1 || len(got.ThumbprintList) != 1 || len(got.Tags) != 1 {
		t.Errorf("provider %+v", got)
	}
	must(c.TagOpenIDConnectProvider(r.ctx(), &iam.TagOpenIDConnectProviderInput{OpenIDConnectProviderArn: arn, Tags: []types.Tag{{Key: awssdk.String("a"), Value: awssdk.String("b")}}}))(t)
	if tags := must(c.ListOpenIDConnectProviderTags(r.ctx(), &iam.ListOpenIDConnectProviderTagsInput{OpenIDConnectProviderArn: arn}))(t).Tags; len(tags) != 2 {
		t.Errorf("tags %+v", tags)
	}
	must(c.AddClientIDToOpenIDConnectProvider(r.ctx(), &iam.AddClientIDToOpenIDConnectProviderInput{OpenIDConnectProviderArn: arn, ClientID: awssdk.String("other")}))(t)
	must(c.RemoveClientIDFromOpenIDConnectProvider(r.ctx(), &iam.RemoveClientIDFromOpenIDConnectProviderInput{OpenIDConnectProviderArn: arn, ClientID: awssdk.String("sts.amazonaws.com")}))(t)
	if got = must(c.GetOpenIDConnectProvider(r.ctx(), &iam.GetOpenIDConnectProviderInput{OpenIDConnectProviderArn: arn}))(t); len(got.ClientIDList) != 1 || got.ClientIDList[0] != "other" {
		t.Errorf("client IDs %v", got.ClientIDList)
	}
	if all := must(c.ListOpenIDConnectProviders(r.ctx(), &iam.ListOpenIDConnectProvidersInput{}))(t).OpenIDConnectProviderList; len(all) != 1 {
		t.Errorf("providers %+v", all)
	}
	if left := r.w.Residue("job-1"); len(left) != 1 {
		t.Errorf("residue %+v", left)
	}
	if e := r.w.Books(sim.BookFilter{Operation: "CreateOpenIDConnectProvider"}); len(e) != 3 || !e[0].Mutating || !e[0].Done || e[1].Done {
		t.Errorf("books %+v", e)
	}
	must(c.DeleteOpenIDConnectProvider(r.ctx(), &iam.DeleteOpenIDConnectProviderInput{OpenIDConnectProviderArn: arn}))(t)
	_, err = c.GetOpenIDConnectProvider(r.ctx(), &iam.GetOpenIDConnectProviderInput{OpenIDConnectProviderArn: arn})
	refusalText(t, "gone", err, "NoSuchEntity", "OpenIDConnect Provider not found for arn "+*arn)
}
