package aws

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"regexp"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/eks/types"

	"github.com/zopday/provisioner/internal/sim"
)

// The limits of EKS, as Service Quotas lists them ("View and manage Amazon EKS quotas").
const (
	quotaClusters      = "L-1194D53C"
	quotaNodegroups    = "L-6D54EA21"
	quotaNodesPerGroup = "L-BD136A63"
	quotaAccessCIDRs   = "L-4A92D3B4"
)

func newEKS(c *Cloud) *eksService {
	s := &eksService{cloud: c, state: &EKSState{}}
	s.kube.service = s
	for _, q := range []sim.Quota{
		{Code: quotaClusters, Name: "Clusters", Default: 100},
		{Code: quotaNodegroups, Name: "Managed node groups per cluster", Default: 30},
		{Code: quotaNodesPerGroup, Name: "Nodes per managed node group", Default: 450},
		{Code: quotaAccessCIDRs, Name: "Public endpoint access CIDR ranges per cluster", Default: 40},
	} {
		q.Cloud, q.Service, q.Unit, q.Adjustable = "aws", "eks", "None", true
		c.World.DefineQuota(q)
	}
	c.World.Register(s)
	c.hooks.logGroupDeleted = append(c.hooks.logGroupDeleted, s.logGroupDeleted)
	c.hooks.instanceGone = append(c.hooks.instanceGone, s.instanceGone)
	c.add(&api{
		service: "eks", protocol: restJSONProtocol, version: "2017-11-01", route: eksRoutes.route,
		ops: overRESTJSON(eksRoutes, s.operations()), encode: encodeJSONCamel,
		throttle: Error{Code: "ThrottlingException", Message: "Rate exceeded", Status: 429},
		around:   s.kube.sync,
	})
	return s
}

// operations is the API of EKS.
func (s *eksService) operations() map[string]typedOp {
	return map[string]typedOp{
		"CreateCluster": op(s.createCluster), "DescribeCluster": op(s.describeCluster), "ListClusters": op(s.listClusters), "DeleteCluster": op(s.deleteCluster),
		"UpdateClusterConfig": op(s.updateClusterConfig), "UpdateClusterVersion": op(s.updateClusterVersion), "AssociateEncryptionConfig": op(s.associateEncryption),
		"DescribeUpdate": op(s.describeUpdate), "ListUpdates": op(s.listUpdates), "DescribeClusterVersions": op(s.describeVersions),
		"CreateNodegroup": op(s.createNodegroup), "DescribeNodegroup": op(s.describeNodegroup), "ListNodegroups": op(s.listNodegroups), "DeleteNodegroup": op(s.deleteNodegroup),
		"UpdateNodegroupConfig": op(s.updateNodegroupConfig), "UpdateNodegroupVersion": op(s.updateNodegroupVersion),
		"CreateAddon": op(s.createAddon), "DescribeAddon": op(s.describeAddon), "ListAddons": op(s.listAddons), "UpdateAddon": op(s.updateAddon), "DeleteAddon": op(s.deleteAddon),
		"DescribeAddonVersions": op(s.describeAddonVersions), "DescribeAddonConfiguration": op(s.describeAddonConfiguration),
		"CreateAccessEntry": op(s.createAccessEntry), "DescribeAccessEntry": op(s.describeAccessEntry), "ListAccessEntries": op(s.listAccessEntries),
		"UpdateAccessEntry": op(s.updateAccessEntry), "DeleteAccessEntry": op(s.deleteAccessEntry), "AssociateAccessPolicy": op(s.associatePolicy),
		"DisassociateAccessPolicy": op(s.disassociatePolicy), "ListAssociatedAccessPolicies": op(s.listAssociatedPolicies), "ListAccessPolicies": op(s.listAccessPolicies),
		"CreatePodIdentityAssociation": op(s.createPodIdentity), "DescribePodIdentityAssociation": op(s.describePodIdentity), "ListPodIdentityAssociations": op(s.listPodIdentities),
		"UpdatePodIdentityAssociation": op(s.updatePodIdentity), "DeletePodIdentityAssociation": op(s.deletePodIdentity),
		"TagResource": op(s.tagResource), "UntagResource": op(s.untagResource), "ListTagsForResource": op(s.listTags),
		"ListFargateProfiles": op(s.listFargateProfiles), "DescribeFargateProfile": op(s.describeFargateProfile),
		"ListIdentityProviderConfigs": op(s.listIdentityProviders), "ListInsights": op(s.listInsights),
	}
}

// eksRoutes are the operations that are served, by method and path ("Amazon EKS API reference").
var eksRoutes = restRoutes{
	"POST /clusters": "CreateCluster", "GET /clusters": "ListClusters", "GET /clusters/{name}": "DescribeCluster", "DELETE /clusters/{name}": "DeleteCluster",
	"POST /clusters/{name}/update-config": "UpdateClusterConfig", "POST /clusters/{name}/updates": "UpdateClusterVersion", "GET /clusters/{name}/updates": "ListUpdates",
	"GET /clusters/{name}/updates/{updateId}": "DescribeUpdate", "POST /clusters/{clusterName}/encryption-config/associate": "AssociateEncryptionConfig",
	"GET /cluster-versions":                    "DescribeClusterVersions",
	"POST /clusters/{clusterName}/node-groups": "CreateNodegroup", "GET /clusters/{clusterName}/node-groups": "ListNodegroups",
	"GET /clusters/{clusterName}/node-groups/{nodegroupName}": "DescribeNodegroup", "DELETE /clusters/{clusterName}/node-groups/{nodegroupName}": "DeleteNodegroup",
	"POST /clusters/{clusterName}/node-groups/{nodegroupName}/update-config":  "UpdateNodegroupConfig",
	"POST /clusters/{clusterName}/node-groups/{nodegroupName}/update-version": "UpdateNodegroupVersion",
	"POST /clusters/{clusterName}/addons":                                     "CreateAddon", "GET /clusters/{clusterName}/addons": "ListAddons",
	"GET /clusters/{clusterName}/addons/{addonName}": "DescribeAddon", "DELETE /clusters/{clusterName}/addons/{addonName}": "DeleteAddon",
	"POST /clusters/{clusterName}/addons/{addonName}/update": "UpdateAddon", "GET /addons/supported-versions": "DescribeAddonVersions",
	"GET /addons/configuration-schemas":           "DescribeAddonConfiguration",
	"POST /clusters/{clusterName}/access-entries": "CreateAccessEntry", "GET /clusters/{clusterName}/access-entries": "ListAccessEntries",
	"GET /clusters/{clusterName}/access-entries/{principalArn}": "DescribeAccessEntry", "POST /clusters/{clusterName}/access-entries/{principalArn}": "UpdateAccessEntry",
	"DELETE /clusters/{clusterName}/access-entries/{principalArn}":                             "DeleteAccessEntry",
	"POST /clusters/{clusterName}/access-entries/{principalArn}/access-policies":               "AssociateAccessPolicy",
	"GET /clusters/{clusterName}/access-entries/{principalArn}/access-policies":                "ListAssociatedAccessPolicies",
	"DELETE /clusters/{clusterName}/access-entries/{principalArn}/access-policies/{policyArn}": "DisassociateAccessPolicy",
	"GET /access-policies": "ListAccessPolicies",
	"POST /clusters/{clusterName}/pod-identity-associations": "CreatePodIdentityAssociation", "GET /clusters/{clusterName}/pod-identity-associations": "ListPodIdentityAssociations",
	"GET /clusters/{clusterName}/pod-identity-associations/{associationId}":    "DescribePodIdentityAssociation",
	"POST /clusters/{clusterName}/pod-identity-associations/{associationId}":   "UpdatePodIdentityAssociation",
	"DELETE /clusters/{clusterName}/pod-identity-associations/{associationId}": "DeletePodIdentityAssociation",
	"POST /tags/{resourceArn}": "TagResource", "DELETE /tags/{resourceArn}": "UntagResource", "GET /tags/{resourceArn}": "ListTagsForResource",
	"GET /clusters/{clusterName}/fargate-profiles":                      "ListFargateProfiles",
	"GET /clusters/{clusterName}/fargate-profiles/{fargateProfileName}": "DescribeFargateProfile",
	"GET /clusters/{clusterName}/identity-provider-configs":             "ListIdentityProviderConfigs", "POST /clusters/{clusterName}/insights": "ListInsights",
}

// Refusals of EKS. Their shapes carry the cluster's name beside the message.

func invalidParameter(cluster, format string, args ...any) error {
	return eksRefusal(400, "InvalidParameterException", cluster, format, args...)
}

func invalidRequest(cluster, format string, args ...any) error {
	return eksRefusal(400, "InvalidRequestException", cluster, format, args...)
}

func inUse(cluster, format string, args ...any) error {
	return eksRefusal(409, "ResourceInUseException", cluster, format, args...)
}

func noResource(cluster, format string, args ...any) error {
	return eksRefusal(404, "ResourceNotFoundException", cluster, format, args...)
}

func limitExceeded(cluster, format string, args ...any) error {
	return eksRefusal(400, "ResourceLimitExceededException", cluster, format, args...)
}

func eksRefusal(status int, code, cluster, format string, args ...any) error {
	e := refuseStatus(status, code, format, args...)
	if cluster != "" {
		e.Members = map[string]any{"clusterName": cluster}
	}
	return e
}

// cluster finds a cluster by name.
func (s *eksService) cluster(c *reqCtx, name *string) (*EKSCluster, error) {
	k := s.in(c.scope()).Clusters[deref(name)]
	if k == nil || !c.visible(k.ARN, k.Created, false, "cluster", k.Name, mapValues(k.Tags)) {
		return nil, noResource(deref(name), "No cluster found for name: %s.", deref(name))
	}
	c.Touch(k.ARN)
	return k, nil
}

// mapValues is the values of tags as text.
func mapValues(tags map[string]string) string {
	var b strings.Builder
	for _, k := range sortedKeys(tags) {
		b.WriteString(tags[k])
		b.WriteByte(' ')
	}
	return b.String()
}

// tokenLifeEKS is how long a client request token is remembered.
const tokenLifeEKS = 24 * time.Hour

// repeated looks a client request token up: the ID of what it made before, if any. The same token with other arguments is
// refused.
func (s *eksService) repeated(c *reqCtx, cluster string, token *string, in any) (string, error) {
	if deref(token) == "" {
		return "", nil
	}
	t := s.in(c.scope()).Tokens[c.Operation+"|"+cluster+"|"+*token]
	if t == nil || c.now.Sub(t.Used) > tokenLifeEKS {
		return "", nil
	}
	if t.Args != inputHash(in) {
		return "", invalidParameter(cluster, "The clientRequestToken %s was used before with other parameters.", *token)
	}
	return t.ID, nil
}

func (s *eksService) remember(c *reqCtx, cluster string, token *string, in any, id string) {
	if deref(token) != "" {
		s.in(c.scope()).Tokens[c.Operation+"|"+cluster+"|"+*token] = &EKSToken{Args: inputHash(in), ID: id, Used: c.now}
	}
}

func inputHash(in any) string {
	b, err := json.Marshal(in)
	if err != nil {
		panic(err) // an input of the SDK is plain data
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// eksPage cuts a page of at most 100 items ("ListClusters").
func eksPage[T any](c *reqCtx, all []T, token *string, size *int32) ([]T, *string, error) {
	n := int(orDefault(size, 100))
	if n < 1 || n > 100 {
		return nil, nil, invalidParameter("", "maxResults needs to be 1-100")
	}
	page, next, err := pageOf(c, all, token, n)
	if err != nil {
		return nil, nil, invalidParameter("", "The nextToken is invalid.")
	}
	return page, next, nil
}

var eksTagPattern = regexp.MustCompile(`^[\p{L}\p{Z}\p{N}_.:/=+\-@]*$`)

// checkEKSTags refuses tags that break the rules ("Organize Amazon EKS resources with tags").
func checkEKSTags(cluster string, tags map[string]string) error {
	if len(tags) > 50 {
		return invalidParameter(cluster, "Too many tags: a resource can have up to 50 tags")
	}
	for k, v := range tags {
		switch {
		case k == "" || len([]rune(k)) > 128 || len([]rune(v)) > 256 || !eksTagPattern.MatchString(k) || !eksTagPattern.MatchString(v):
			return invalidParameter(cluster, "The tag key or value is invalid: %s", k)
		case strings.HasPrefix(strings.ToLower(k), "aws:"):
			return invalidParameter(cluster, "Tag keys that start with aws: are reserved for system use")
		}
	}
	return nil
}

func copyTags(tags map[string]string) map[string]string {
	out := make(map[string]string, len(tags))
	maps.Copy(out, tags)
	return out
}

func clusterIssues(issues []EKSIssue) *types.ClusterHealth {
	out := &types.ClusterHealth{Issues: []types.ClusterIssue{}}
	for _, i := range issues {
		out.Issues = append(out.Issues, types.ClusterIssue{Code: types.ClusterIssueCode(i.Code), Message: new(i.Message), ResourceIds: i.Resources})
	}
	return out
}

// The lists of what is not simulated are empty.

func (s *eksService) listFargateProfiles(c *reqCtx, in *eks.ListFargateProfilesInput) (*eks.ListFargateProfilesOutput, error) {
	if _, err := s.cluster(c, in.ClusterName); err != nil {
		return nil, err
	}
	return &eks.ListFargateProfilesOutput{FargateProfileNames: []string{}}, nil
}

func (s *eksService) describeFargateProfile(c *reqCtx, in *eks.DescribeFargateProfileInput) (*eks.DescribeFargateProfileOutput, error) {
	if _, err := s.cluster(c, in.ClusterName); err != nil {
		return nil, err
	}
	return nil, noResource(deref(in.ClusterName), "No Fargate Profile found with name: %s.", deref(in.FargateProfileName))
}

func (s *eksService) listIdentityProviders(c *reqCtx, in *eks.ListIdentityProviderConfigsInput) (*eks.ListIdentityProviderConfigsOutput, error) {
	if _, err := s.cluster(c, in.ClusterName); err != nil {
		return nil, err
	}
	return &eks.ListIdentityProviderConfigsOutput{IdentityProviderConfigs: []types.IdentityProviderConfig{}}, nil
}

func (s *eksService) listInsights(c *reqCtx, in *eks.ListInsightsInput) (*eks.ListInsightsOutput, error) {
	if _, err := s.cluster(c, in.ClusterName); err != nil {
		return nil, err
	}
	return &eks.ListInsightsOutput{Insights: []types.InsightSummary{}}, nil
}
