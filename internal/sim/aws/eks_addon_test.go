package aws

import (
	"slices"
	"strings"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/eks/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"

	"github.com/zopday/provisioner/internal/sim"
)

func (y *yard) addon(t *testing.T, name string) *types.Addon {
	t.Helper()
	return must(y.eks.DescribeAddon(y.ctx(), &eks.DescribeAddonInput{ClusterName: awssdk.String("prod"), AddonName: &name}))(t).Addon
}

func TestAddonLife(t *testing.T) {
	y := newYard(t, immediate)
	y.cluster(t, "prod")
	y.addons(t, "prod")
	create := func(name string) error {
		_, err := y.eks.CreateAddon(y.ctx(), &eks.CreateAddonInput{ClusterName: awssdk.String("prod"), AddonName: &name, Tags: map[string]string{"owner": "job-1"}})
		return err
	}
	for _, name := range []string{"coredns", "kube-proxy", "aws-ebs-csi-driver"} {
		if err := create(name); err != nil {
			t.Fatal(err)
		}
	}
	refusalText(t, "twice", create("coredns"), "ResourceInUseException", "Addon already exists")
	y.w.Step(5 * time.Minute)
	for name, want := range map[string]types.AddonStatus{"vpc-cni": "ACTIVE", "kube-proxy": "ACTIVE", "eks-pod-identity-agent": "ACTIVE", "coredns": "DEGRADED", "aws-ebs-csi-driver": "DEGRADED"} {
		if a := y.addon(t, name); a.Status != want {
			t.Errorf("without nodes %s is %s, want %s", name, a.Status, want)
		}
	}
	if a := y.addon(t, "coredns"); len(a.Health.Issues) != 1 || a.Health.Issues[0].Code != types.AddonIssueCodeInsufficientNumberOfReplicas {
		t.Errorf("health of coredns %+v", a.Health)
	}
	y.pool(t, "prod", "workers")
	y.w.Step(time.Minute)
	if a := y.addon(t, "coredns"); a.Status != types.AddonStatusActive || len(a.Health.Issues) != 0 {
		t.Errorf("with nodes coredns is %s", a.Status)
	}
	if a := y.addon(t, "aws-ebs-csi-driver"); a.Status != types.AddonStatusDegraded {
		t.Errorf("without a role the storage driver is %s", a.Status)
	}
	u := must(y.eks.UpdateAddon(y.ctx(), &eks.UpdateAddonInput{ClusterName: awssdk.String("prod"), AddonName: awssdk.String("aws-ebs-csi-driver"), ResolveConflicts: types.ResolveConflictsOverwrite,
		PodIdentityAssociations: []types.AddonPodIdentityAssociations{{ServiceAccount: awssdk.String("ebs-csi-controller-sa"), RoleArn: &y.podRole}}}))(t).Update
	y.w.Step(2 * time.Minute)
	got := must(y.eks.DescribeUpdate(y.ctx(), &eks.DescribeUpdateInput{Name: awssdk.String("prod"), AddonName: awssdk.String("aws-ebs-csi-driver"), UpdateId: u.Id}))(t).Update
	if a := y.addon(t, "aws-ebs-csi-driver"); a.Status != types.AddonStatusActive || len(a.PodIdentityAssociations) != 1 || got.Status != types.UpdateStatusSuccessful {
		t.Errorf("with a role the storage driver is %s, update %+v", a.Status, got)
	}
	must(y.eks.DeleteAddon(y.ctx(), &eks.DeleteAddonInput{ClusterName: awssdk.String("prod"), AddonName: awssdk.String("aws-ebs-csi-driver")}))(t)
	if a := y.addon(t, "aws-ebs-csi-driver"); a.Status != types.AddonStatusDeleting {
		t.Errorf("status %s", a.Status)
	}
	y.w.Step(time.Minute)
	_, err := y.eks.DescribeAddon(y.ctx(), &eks.DescribeAddonInput{ClusterName: awssdk.String("prod"), AddonName: awssdk.String("aws-ebs-csi-driver")})
	refusalText(t, "gone", err, "ResourceNotFoundException", "No addon: aws-ebs-csi-driver found in cluster: prod")
	if out := must(y.eks.ListPodIdentityAssociations(y.ctx(), &eks.ListPodIdentityAssociationsInput{ClusterName: awssdk.String("prod")}))(t); len(out.Associations) != 1 {
		t.Errorf("associations %+v", out.Associations)
	}
}

func TestAddonRefusals(t *testing.T) {
	y := newYard(t, immediate)
	y.cluster(t, "prod")
	for _, c := range []struct {
		what, code, text string
		in               eks.CreateAddonInput
	}{
		{"name", "InvalidParameterException", "not supported", eks.CreateAddonInput{AddonName: awssdk.String("no-such")}},
		{"version", "InvalidParameterException", "Addon version specified is not supported", eks.CreateAddonInput{AddonName: awssdk.String("coredns"), AddonVersion: awssdk.String("v0.0.1-eksbuild.1")}},
		{"broken configuration", "InvalidParameterException", "ConfigurationValue", eks.CreateAddonInput{AddonName: awssdk.String("coredns"), ConfigurationValues: awssdk.String(`{"replicaCount"`)}},
		{"unknown configuration", "InvalidParameterException", "$.replicas: is not defined in the schema", eks.CreateAddonInput{AddonName: awssdk.String("coredns"), ConfigurationValues: awssdk.String(`{"replicas":3}`)}},
		{"role of another service", "InvalidParameterException", "pods.eks.amazonaws.com", eks.CreateAddonInput{AddonName: awssdk.String("vpc-cni"),
			PodIdentityAssociations: []types.AddonPodIdentityAssociations{{ServiceAccount: awssdk.String("aws-node"), RoleArn: &y.nodeRole}}}},
		{"service account", "InvalidParameterException", "service account", eks.CreateAddonInput{AddonName: awssdk.String("vpc-cni"),
			PodIdentityAssociations: []types.AddonPodIdentityAssociations{{ServiceAccount: awssdk.String("default"), RoleArn: &y.podRole}}}},
	} {
		c.in.ClusterName = awssdk.String("prod")
		_, err := y.eks.CreateAddon(y.ctx(), &c.in)
		refusalText(t, c.what, err, c.code, c.text)
	}
}

func TestAddonVersions(t *testing.T) {
	y := newYard(t, immediate)
	out := must(y.eks.DescribeAddonVersions(y.ctx(), &eks.DescribeAddonVersionsInput{AddonName: awssdk.String("kube-proxy"), KubernetesVersion: awssdk.String("1.35")}))(t)
	if len(out.Addons) != 1 || len(out.Addons[0].AddonVersions) != 3 || !strings.HasPrefix(*out.Addons[0].AddonVersions[0].AddonVersion, "v1.35.") {
		t.Fatalf("versions %+v", out.Addons)
	}
	def := ""
	for _, v := range out.Addons[0].AddonVersions {
		if v.Compatibilities[0].DefaultVersion {
			def += *v.AddonVersion
		}
	}
	y.cluster(t, "prod")
	must(y.eks.CreateAddon(y.ctx(), &eks.CreateAddonInput{ClusterName: awssdk.String("prod"), AddonName: awssdk.String("kube-proxy")}))(t)
	if a := y.addon(t, "kube-proxy"); *a.AddonVersion != def {
		t.Errorf("version %s, the default is %s", *a.AddonVersion, def)
	}
	schema := must(y.eks.DescribeAddonConfiguration(y.ctx(), &eks.DescribeAddonConfigurationInput{AddonName: awssdk.String("kube-proxy"), AddonVersion: &def}))(t)
	if !strings.Contains(*schema.ConfigurationSchema, `"additionalProperties":false`) {
		t.Errorf("schema %s", *schema.ConfigurationSchema)
	}
}

// TestAddonWithAnOIDCRole: a role by the cluster's OpenID Connect provider works only when the provider is there.
func TestAddonWithAnOIDCRole(t *testing.T) {
	y := newYard(t, immediate)
	k := y.cluster(t, "prod")
	host := strings.TrimPrefix(*k.Identity.Oidc.Issuer, "https://")
	provider := "arn:aws:iam::" + testAccount + ":oidc-provider/" + host
	trust := `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Federated":"` + provider + `"},"Action":"sts:AssumeRoleWithWebIdentity"}]}`
	role := *must(y.iam.CreateRole(y.ctx(), &iam.CreateRoleInput{RoleName: awssdk.String("cni"), AssumeRolePolicyDocument: &trust}))(t).Role.Arn
	must(y.iam.AttachRolePolicy(y.ctx(), &iam.AttachRolePolicyInput{RoleName: awssdk.String("cni"), PolicyArn: awssdk.String("arn:aws:iam::aws:policy/AmazonEKS_CNI_Policy")}))(t)
	must(y.eks.CreateAddon(y.ctx(), &eks.CreateAddonInput{ClusterName: awssdk.String("prod"), AddonName: awssdk.String("vpc-cni"), ServiceAccountRoleArn: &role}))(t)
	must(y.eks.CreateNodegroup(y.ctx(), y.groupInput("prod", "workers")))(t)
	y.w.Step(5 * time.Minute)
	if n := y.nodegroup(t, "prod", "workers"); n.Status != types.NodegroupStatusCreating {
		t.Fatalf("without the provider the node group is %s", n.Status)
	}
	must(y.iam.CreateOpenIDConnectProvider(y.ctx(), &iam.CreateOpenIDConnectProviderInput{Url: k.Identity.Oidc.Issuer, ClientIDList: []string{"sts.amazonaws.com"}}))(t)
	y.w.Step(time.Minute)
	if n := y.nodegroup(t, "prod", "workers"); n.Status != types.NodegroupStatusActive {
		t.Errorf("with the provider the node group is %s", n.Status)
	}
}

func TestAccessEntries(t *testing.T) {
	y := newYard(t, immediate)
	y.cluster(t, "prod")
	name, admin := awssdk.String("prod"), awssdk.String("arn:aws:eks::aws:cluster-access-policy/AmazonEKSAdminPolicy")
	in := &eks.CreateAccessEntryInput{ClusterName: name, PrincipalArn: &y.podRole, ClientRequestToken: awssdk.String("t"), Tags: map[string]string{"owner": "job-1"}}
	e := must(y.eks.CreateAccessEntry(y.ctx(), in))(t).AccessEntry
	if *e.Type != "STANDARD" || *e.Username != "arn:aws:sts::"+testAccount+":assumed-role/pods/{{SessionName}}" {
		t.Errorf("entry %+v", e)
	}
	must(y.eks.CreateAccessEntry(y.ctx(), in))(t)
	in.ClientRequestToken = nil
	_, err := y.eks.CreateAccessEntry(y.ctx(), in)
	refusalText(t, "twice", err, "ResourceInUseException", "already in use on this cluster")
	_, err = y.eks.CreateAccessEntry(y.ctx(), &eks.CreateAccessEntryInput{ClusterName: name, PrincipalArn: awssdk.String("arn:aws:iam::" + testAccount + ":role/nobody")})
	refusalText(t, "nobody", err, "InvalidParameterException", "invalid principal")
	_, err = y.eks.CreateAccessEntry(y.ctx(), &eks.CreateAccessEntryInput{ClusterName: name, PrincipalArn: &y.clusterRole, KubernetesGroups: []string{"system:masters"}})
	refusalText(t, "masters", err, "InvalidParameterException", "system:")
	_, err = y.eks.AssociateAccessPolicy(y.ctx(), &eks.AssociateAccessPolicyInput{ClusterName: name, PrincipalArn: &y.podRole, PolicyArn: awssdk.String("arn:aws:iam::aws:policy/AdministratorAccess"),
		AccessScope: &types.AccessScope{Type: types.AccessScopeTypeCluster}})
	refusalText(t, "policy of IAM", err, "InvalidParameterException", "policyArn")
	must(y.eks.AssociateAccessPolicy(y.ctx(), &eks.AssociateAccessPolicyInput{ClusterName: name, PrincipalArn: &y.podRole, PolicyArn: admin,
		AccessScope: &types.AccessScope{Type: types.AccessScopeTypeNamespace, Namespaces: []string{"shop"}}}))(t)
	got := must(y.eks.ListAssociatedAccessPolicies(y.ctx(), &eks.ListAssociatedAccessPoliciesInput{ClusterName: name, PrincipalArn: &y.podRole}))(t).AssociatedAccessPolicies
	if len(got) != 1 || *got[0].PolicyArn != *admin || !slices.Equal(got[0].AccessScope.Namespaces, []string{"shop"}) {
		t.Errorf("policies %+v", got)
	}
	if by := must(y.eks.ListAccessEntries(y.ctx(), &eks.ListAccessEntriesInput{ClusterName: name, AssociatedPolicyArn: admin}))(t).AccessEntries; !slices.Equal(by, []string{y.podRole}) {
		t.Errorf("entries with the policy: %v", by)
	}
	must(y.eks.DisassociateAccessPolicy(y.ctx(), &eks.DisassociateAccessPolicyInput{ClusterName: name, PrincipalArn: &y.podRole, PolicyArn: admin}))(t)
	must(y.eks.DeleteAccessEntry(y.ctx(), &eks.DeleteAccessEntryInput{ClusterName: name, PrincipalArn: &y.podRole}))(t)
	_, err = y.eks.DescribeAccessEntry(y.ctx(), &eks.DescribeAccessEntryInput{ClusterName: name, PrincipalArn: &y.podRole})
	refusalText(t, "gone", err, "ResourceNotFoundException", "principalArn could not be found")
	y.addons(t, "prod")
	y.pool(t, "prod", "workers")
	if entry := must(y.eks.DescribeAccessEntry(y.ctx(), &eks.DescribeAccessEntryInput{ClusterName: name, PrincipalArn: &y.nodeRole}))(t).AccessEntry; *entry.Type != "EC2_LINUX" {
		t.Errorf("the nodes' entry: %+v", entry)
	}
	if all := must(y.eks.ListAccessPolicies(y.ctx(), &eks.ListAccessPoliciesInput{}))(t).AccessPolicies; len(all) < 6 {
		t.Errorf("%d access policies", len(all))
	}
}

func TestPodIdentity(t *testing.T) {
	y := newYard(t, immediate)
	y.cluster(t, "prod")
	in := &eks.CreatePodIdentityAssociationInput{ClusterName: awssdk.String("prod"), Namespace: awssdk.String("shop"), ServiceAccount: awssdk.String("web"), RoleArn: &y.podRole, ClientRequestToken: awssdk.String("t")}
	a := must(y.eks.CreatePodIdentityAssociation(y.ctx(), in))(t).Association
	if again := must(y.eks.CreatePodIdentityAssociation(y.ctx(), in))(t).Association; *again.AssociationId != *a.AssociationId {
		t.Error("the same token made another association")
	}
	in.ClientRequestToken = nil
	_, err := y.eks.CreatePodIdentityAssociation(y.ctx(), in)
	refusalText(t, "twice", err, "ResourceInUseException", "Association already exists: "+*a.AssociationId)
	in.RoleArn, in.ServiceAccount = &y.clusterRole, awssdk.String("other")
	_, err = y.eks.CreatePodIdentityAssociation(y.ctx(), in)
	refusalText(t, "trust", err, "InvalidParameterException", "pods.eks.amazonaws.com")
	must(y.eks.TagResource(y.ctx(), &eks.TagResourceInput{ResourceArn: a.AssociationArn, Tags: map[string]string{"a": "b", "c": "d"}}))(t)
	must(y.eks.UntagResource(y.ctx(), &eks.UntagResourceInput{ResourceArn: a.AssociationArn, TagKeys: []string{"a"}}))(t)
	tags := must(y.eks.ListTagsForResource(y.ctx(), &eks.ListTagsForResourceInput{ResourceArn: a.AssociationArn}))(t).Tags
	if len(tags) != 1 || tags["c"] != "d" {
		t.Errorf("tags %v", tags)
	}
	must(y.eks.DeletePodIdentityAssociation(y.ctx(), &eks.DeletePodIdentityAssociationInput{ClusterName: awssdk.String("prod"), AssociationId: a.AssociationId}))(t)
	_, err = y.eks.DescribePodIdentityAssociation(y.ctx(), &eks.DescribePodIdentityAssociationInput{ClusterName: awssdk.String("prod"), AssociationId: a.AssociationId})
	refusalText(t, "gone", err, "ResourceNotFoundException", *a.AssociationId)
	_, err = y.eks.TagResource(y.ctx(), &eks.TagResourceInput{ResourceArn: a.AssociationArn, Tags: map[string]string{"a": "b"}})
	refusalText(t, "tags of what is gone", err, "NotFoundException", "")
}

func TestListsHavePages(t *testing.T) {
	y := newYard(t, sim.Options{ConsistencyByID: -1, ConsistencyByList: -1, PageSize: 2})
	y.cluster(t, "prod")
	for _, name := range []string{"vpc-cni", "coredns", "kube-proxy", "eks-pod-identity-agent", "metrics-server"} {
		must(y.eks.CreateAddon(y.ctx(), &eks.CreateAddonInput{ClusterName: awssdk.String("prod"), AddonName: &name}))(t)
	}
	var all []string
	p := eks.NewListAddonsPaginator(y.eks, &eks.ListAddonsInput{ClusterName: awssdk.String("prod")})
	for pages := 0; p.HasMorePages(); pages++ {
		page := must(p.NextPage(y.ctx()))(t)
		if len(page.Addons) > 2 || pages > 9 {
			t.Fatalf("page %d: %v", pages, page.Addons)
		}
		all = append(all, page.Addons...)
	}
	if len(all) != 5 {
		t.Errorf("add-ons %v", all)
	}
	_, err := y.eks.ListAddons(y.ctx(), &eks.ListAddonsInput{ClusterName: awssdk.String("prod"), NextToken: awssdk.String("nonsense")})
	refusalText(t, "a wrong token", err, "InvalidParameterException", "nextToken")
}
