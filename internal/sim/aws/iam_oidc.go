package aws

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/iam/types"
)

// IAMOIDCProvider is an OpenID Connect identity provider.
type IAMOIDCProvider struct {
	ARN, URL    string // the URL without its scheme
	Clients     []string
	Thumbprints []string
	Created     time.Time
	Tags        []Tag
}

var thumbprint = regexp.MustCompile(`^[0-9a-fA-F]{40}$`)

func noSuchProvider(arn string) error {
	return fail(404, "NoSuchEntity", "OpenIDConnect Provider not found for arn %s", arn)
}

// provider finds an OpenID Connect provider by its ARN.
func (s *iamService) provider(c *reqCtx, ref *string) (*IAMOIDCProvider, error) {
	if ref == nil {
		return nil, failMissing("openIDConnectProviderArn")
	}
	if !arnPattern.MatchString(*ref) || !strings.Contains(*ref, ":oidc-provider/") {
		return nil, fail(400, "InvalidInput", "Invalid ARN: %s", *ref)
	}
	p := s.state.account(c.account).providers()[*ref]
	if p == nil || !c.visible(p.ARN, p.Created, false, "oidc-provider", p.URL, tagValues(p.Tags)) {
		return nil, noSuchProvider(*ref)
	}
	c.Touch(p.ARN)
	return p, nil
}

// providers are the OpenID Connect providers of the account, by ARN.
func (a *IAMAccount) providers() map[string]*IAMOIDCProvider {
	if a.Providers == nil { // a state kept by an earlier version
		a.Providers = map[string]*IAMOIDCProvider{}
	}
	return a.Providers
}

// createProvider: there is one provider for a URL in an account; a second one is refused whatever its other settings are
// ("CreateOpenIDConnectProvider", IAM API reference). Thumbprints are optional.
func (s *iamService) createProvider(c *reqCtx, in *iam.CreateOpenIDConnectProviderInput) (*iam.CreateOpenIDConnectProviderOutput, error) {
	u, err := url.Parse(deref(in.Url))
	switch {
	case in.Url == nil:
		return nil, failMissing("url")
	case err != nil || u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || len(*in.Url) > 255:
		return nil, failValidation("Invalid Open ID Connect Provider URL")
	case len(in.ClientIDList) > 100:
		return nil, fail(409, "LimitExceeded", "Cannot exceed quota for ClientIdsPerOpenIdConnectProvider: 100")
	case len(in.ThumbprintList) > 5:
		return nil, fail(400, "InvalidInput", "Thumbprint list must contain fewer than 5 entries.")
	}
	for _, t := range in.ThumbprintList {
		if !thumbprint.MatchString(t) {
			return nil, failValidation("1 validation error detected: Value '[%s]' at 'thumbprintList' failed to satisfy constraint: Member must satisfy constraint: [Member must have length less than or equal to 40, Member must have length greater than or equal to 40]", t)
		}
	}
	tags, err := checkIAMTags(nil, in.Tags)
	if err != nil {
		return nil, err
	}
	host := strings.TrimSuffix(strings.TrimPrefix(*in.Url, "https://"), "/")
	ref, all := c.iamARN("oidc-provider/"+host), s.state.account(c.account).providers()
	if all[ref] != nil {
		return nil, fail(409, "EntityAlreadyExists", "Provider with url https://%s already exists.", host)
	}
	if err := s.checkQuota(c, quotaProviders, len(all), "OpenIdConnectProvidersPerAccount"); err != nil {
		return nil, err
	}
	p := &IAMOIDCProvider{ARN: ref, URL: host, Clients: append([]string{}, in.ClientIDList...), Thumbprints: append([]string{}, in.ThumbprintList...), Created: c.second(), Tags: tags}
	if len(p.Thumbprints) == 0 {
		p.Thumbprints = []string{strings.ToLower(c.w.Hex("", 40))} // IAM fetches that of the top certificate by itself
	}
	all[ref] = p
	c.Make(ref)
	return &iam.CreateOpenIDConnectProviderOutput{OpenIDConnectProviderArn: new(ref), Tags: iamTags(tags)}, nil
}

func (s *iamService) getProvider(c *reqCtx, in *iam.GetOpenIDConnectProviderInput) (*iam.GetOpenIDConnectProviderOutput, error) {
	p, err := s.provider(c, in.OpenIDConnectProviderArn)
	if err != nil {
		return nil, err
	}
	return &iam.GetOpenIDConnectProviderOutput{Url: new(p.URL), ClientIDList: slices.Clone(p.Clients), ThumbprintList: slices.Clone(p.Thumbprints), CreateDate: new(p.Created), Tags: iamTagList(p.Tags)}, nil
}

// listProviders answers all of them at once: this list has no pages.
func (s *iamService) listProviders(c *reqCtx, _ *iam.ListOpenIDConnectProvidersInput) (*iam.ListOpenIDConnectProvidersOutput, error) {
	all, out := s.state.account(c.account).providers(), &iam.ListOpenIDConnectProvidersOutput{OpenIDConnectProviderList: []types.OpenIDConnectProviderListEntry{}}
	for _, ref := range sortedKeys(all) {
		if p := all[ref]; c.visible(p.ARN, p.Created, true, "oidc-provider", p.URL, tagValues(p.Tags)) {
			out.OpenIDConnectProviderList = append(out.OpenIDConnectProviderList, types.OpenIDConnectProviderListEntry{Arn: new(ref)})
		}
	}
	return out, nil
}

// deleteProvider: roles that trust the provider do not keep it from being deleted.
func (s *iamService) deleteProvider(c *reqCtx, in *iam.DeleteOpenIDConnectProviderInput) (*iam.DeleteOpenIDConnectProviderOutput, error) {
	p, err := s.provider(c, in.OpenIDConnectProviderArn)
	if err != nil {
		return nil, err
	}
	delete(s.state.account(c.account).providers(), p.ARN)
	return &iam.DeleteOpenIDConnectProviderOutput{}, nil
}

func (s *iamService) updateThumbprint(c *reqCtx, in *iam.UpdateOpenIDConnectProviderThumbprintInput) (*iam.UpdateOpenIDConnectProviderThumbprintOutput, error) {
	p, err := s.provider(c, in.OpenIDConnectProviderArn)
	if err != nil {
		return nil, err
	}
	p.Thumbprints = slices.Clone(in.ThumbprintList)
	return &iam.UpdateOpenIDConnectProviderThumbprintOutput{}, nil
}

func (s *iamService) addClientID(c *reqCtx, in *iam.AddClientIDToOpenIDConnectProviderInput) (*iam.AddClientIDToOpenIDConnectProviderOutput, error) {
	p, err := s.provider(c, in.OpenIDConnectProviderArn)
	if err != nil {
		return nil, err
	}
	if id := deref(in.ClientID); !slices.Contains(p.Clients, id) {
		p.Clients = append(p.Clients, id)
	}
	return &iam.AddClientIDToOpenIDConnectProviderOutput{}, nil
}

func (s *iamService) removeClientID(c *reqCtx, in *iam.RemoveClientIDFromOpenIDConnectProviderInput) (*iam.RemoveClientIDFromOpenIDConnectProviderOutput, error) {
	p, err := s.provider(c, in.OpenIDConnectProviderArn)
	if err != nil {
		return nil, err
	}
	p.Clients = slices.DeleteFunc(p.Clients, func(id string) bool { return id == deref(in.ClientID) })
	return &iam.RemoveClientIDFromOpenIDConnectProviderOutput{}, nil
}

func (s *iamService) tagProvider(c *reqCtx, in *iam.TagOpenIDConnectProviderInput) (*iam.TagOpenIDConnectProviderOutput, error) {
	p, err := s.provider(c, in.OpenIDConnectProviderArn)
	if err != nil {
		return nil, err
	}
	tags, err := checkIAMTags(p.Tags, in.Tags)
	if err != nil {
		return nil, err
	}
	p.Tags = tags
	return &iam.TagOpenIDConnectProviderOutput{}, nil
}

func (s *iamService) untagProvider(c *reqCtx, in *iam.UntagOpenIDConnectProviderInput) (*iam.UntagOpenIDConnectProviderOutput, error) {
	p, err := s.provider(c, in.OpenIDConnectProviderArn)
	if err != nil {
		return nil, err
	}
	p.Tags = dropTags(p.Tags, in.TagKeys)
	return &iam.UntagOpenIDConnectProviderOutput{}, nil
}

func (s *iamService) listProviderTags(c *reqCtx, in *iam.ListOpenIDConnectProviderTagsInput) (*iam.ListOpenIDConnectProviderTagsOutput, error) {
	p, err := s.provider(c, in.OpenIDConnectProviderArn)
	if err != nil {
		return nil, err
	}
	page, marker, err := iamPage(c, iamTagList(p.Tags), in.Marker, in.MaxItems)
	return &iam.ListOpenIDConnectProviderTagsOutput{Tags: page, IsTruncated: marker != nil, Marker: marker}, err
}

// providerOperations is the part of IAM's API about OpenID Connect providers.
func (s *iamService) providerOperations() map[string]typedOp {
	return map[string]typedOp{
		"CreateOpenIDConnectProvider": op(s.createProvider), "GetOpenIDConnectProvider": op(s.getProvider), "ListOpenIDConnectProviders": op(s.listProviders),
		"DeleteOpenIDConnectProvider": op(s.deleteProvider), "UpdateOpenIDConnectProviderThumbprint": op(s.updateThumbprint),
		"AddClientIDToOpenIDConnectProvider": op(s.addClientID), "RemoveClientIDFromOpenIDConnectProvider": op(s.removeClientID),
		"TagOpenIDConnectProvider": op(s.tagProvider), "UntagOpenIDConnectProvider": op(s.untagProvider), "ListOpenIDConnectProviderTags": op(s.listProviderTags),
	}
}
