package aws

import (
	"context"
	"encoding/base64"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/eks/types"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/zopday/provisioner/internal/sim"
)

// noteKube is a sim.Kubernetes that only notes what it is told.
type noteKube struct {
	mu      sync.Mutex
	open    map[string]sim.KubeCluster
	nodes   map[string][]sim.KubeNode
	address string
}

func newNoteKube() *noteKube {
	return &noteKube{address: "127.0.0.1:6443", open: map[string]sim.KubeCluster{}, nodes: map[string][]sim.KubeNode{}}
}

func (k *noteKube) Open(c sim.KubeCluster) sim.KubeEndpoint {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.open[c.ID] = c
	return sim.KubeEndpoint{Address: k.address, CA: k.CA()}
}

func (k *noteKube) SetNodes(id string, nodes []sim.KubeNode) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.nodes[id] = nodes
}

func (k *noteKube) Close(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.open, id)
	delete(k.nodes, id)
}

func (k *noteKube) CA() []byte {
	return []byte("-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n")
}

func (k *noteKube) cluster(t *testing.T, arn string) sim.KubeCluster {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	c, ok := k.open[arn]
	if !ok {
		t.Fatalf("no open cluster %s", arn)
	}
	return c
}

func (k *noteKube) nodesOf(arn string) []sim.KubeNode {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.nodes[arn])
}

// eventually waits, in real time, for what the bridge does by itself.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 200 {
		if ok() {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("not in time: %s", what)
}

// token makes a token as EKS's clients do.
func token(t *testing.T, cfg awssdk.Config, cluster string) string {
	t.Helper()
	signed, err := sts.NewPresignClient(sts.NewFromConfig(cfg)).PresignGetCallerIdentity(t.Context(), &sts.GetCallerIdentityInput{}, func(o *sts.PresignOptions) {
		o.ClientOptions = append(o.ClientOptions, sts.WithAPIOptions(smithyhttp.SetHeaderValue("x-k8s-aws-id", cluster), smithyhttp.SetHeaderValue("X-Amz-Expires", "60")))
	})
	if err != nil {
		t.Fatal(err)
	}
	return "k8s-aws-v1." + base64.RawURLEncoding.EncodeToString([]byte(signed.URL))
}

func TestEndpointAndNodes(t *testing.T) {
	kube := newNoteKube()
	y := newYardWith(t, immediate, Options{Kubernetes: kube})
	k := y.cluster(t, "prod", func(in *eks.CreateClusterInput) {
		in.ResourcesVpcConfig.EndpointPublicAccess, in.ResourcesVpcConfig.PublicAccessCidrs = awssdk.Bool(true), []string{"203.0.113.0/24"}
	})
	ca, err := base64.StdEncoding.DecodeString(*k.CertificateAuthority.Data)
	if err != nil || *k.Endpoint != "https://127.0.0.1:6443" || string(ca) != string(kube.CA()) {
		t.Fatalf("endpoint %s, CA %q", *k.Endpoint, ca)
	}
	c := kube.cluster(t, *k.Arn)
	for from, want := range map[sim.KubeCaller]bool{
		{IP: netip.MustParseAddr("203.0.113.7")}: true, {IP: netip.MustParseAddr("198.51.100.1")}: false, {IP: netip.MustParseAddr("198.51.100.1"), Inside: true}: true,
	} {
		if got := c.Admits(from); got != want {
			t.Errorf("from %+v: %v, want %v", from, got, want)
		}
	}
	must(y.eks.UpdateClusterConfig(y.ctx(), &eks.UpdateClusterConfigInput{Name: awssdk.String("prod"), ResourcesVpcConfig: &types.VpcConfigRequest{EndpointPublicAccess: awssdk.Bool(false)}}))(t)
	y.w.Step(4 * time.Minute)
	if c.Admits(sim.KubeCaller{IP: netip.MustParseAddr("203.0.113.7")}) {
		t.Error("the public endpoint is still open")
	}
	y.addons(t, "prod")
	y.pool(t, "prod", "workers")
	nodes := kube.nodesOf(*k.Arn)
	if len(nodes) != 2 {
		t.Fatalf("%d nodes", len(nodes))
	}
	n := nodes[0]
	if !strings.HasPrefix(n.Name, "ip-10-20-") || !strings.HasSuffix(n.Name, ".ec2.internal") || n.Arch != "amd64" || n.Pods != 29 || n.CPUs != 2 || n.NotReady || !strings.HasPrefix(n.Kubelet, "v1.35.5-eks-") || n.Type != "m6i.large" || n.Labels["eks.amazonaws.com/nodegroup"] != "workers" ||
		n.Labels["eks.amazonaws.com/capacityType"] != "ON_DEMAND" || n.Labels["pool"] != "workers" || len(n.Taints) != 1 || n.Taints[0].Effect != "NoSchedule" || !strings.HasPrefix(n.ProviderID, "aws:///us-east-1") {
		t.Errorf("node %+v", n)
	}
	if objects := kube.cluster(t, *k.Arn).Objects; len(objects) != 5 || !strings.Contains(string(objects[0].JSON), `"name":"gp2"`) {
		t.Errorf("%d objects", len(objects))
	}
	ids := y.instanceIDs(t, "workers")
	must(y.ec2.TerminateInstances(y.ctx(), &ec2.TerminateInstancesInput{InstanceIds: ids[:1]}))(t)
	eventually(t, "the node of a terminated instance goes", func() bool { return len(kube.nodesOf(*k.Arn)) == 1 })
	y.w.Step(3 * time.Minute)
	eventually(t, "its replacement comes", func() bool { return len(kube.nodesOf(*k.Arn)) == 2 })
	if _, err := y.w.RemoveObject(*k.Arn); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the endpoint closes", func() bool { kube.mu.Lock(); defer kube.mu.Unlock(); return len(kube.open) == 0 })
}

// TestRestart: after a restart the clusters that there are get API servers again, at other addresses.
func TestRestart(t *testing.T) {
	dir := t.TempDir()
	y := newYardWith(t, immediate, Options{Kubernetes: newNoteKube()})
	stop, err := y.w.Persist(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	k := y.cluster(t, "prod")
	y.addons(t, "prod")
	y.pool(t, "prod", "workers")
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	kube := newNoteKube()
	kube.address = "127.0.0.1:7443"
	r := newRigWith(t, immediate, Options{Kubernetes: kube})
	if stop, err = r.w.Persist(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	again := must(eks.NewFromConfig(r.cfg).DescribeCluster(r.ctx(), &eks.DescribeClusterInput{Name: awssdk.String("prod")}))(t).Cluster
	if *again.Endpoint != "https://127.0.0.1:7443" || again.Status != types.ClusterStatusActive {
		t.Errorf("endpoint %s, status %s", *again.Endpoint, again.Status)
	}
	if nodes := kube.nodesOf(*k.Arn); len(nodes) != 2 {
		t.Errorf("%d nodes", len(nodes))
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}

func TestTokens(t *testing.T) {
	kube := newNoteKube()
	y := newYardWith(t, immediate, Options{Kubernetes: kube})
	k := y.cluster(t, "prod")
	c := kube.cluster(t, *k.Arn)
	good := token(t, y.cfg, "prod")
	if _, ok := c.Authenticate(good); ok {
		t.Fatal("somebody without an access entry got in")
	}
	me := *must(sts.NewFromConfig(y.cfg).GetCallerIdentity(y.ctx(), &sts.GetCallerIdentityInput{}))(t).Arn
	must(y.eks.CreateAccessEntry(y.ctx(), &eks.CreateAccessEntryInput{ClusterName: awssdk.String("prod"), PrincipalArn: &me, KubernetesGroups: []string{"viewers"}}))(t)
	user, ok := c.Authenticate(good)
	if !ok || user.Name != me || !slices.Equal(user.Groups, []string{"viewers"}) {
		t.Fatalf("user %+v %v", user, ok)
	}
	must(y.eks.AssociateAccessPolicy(y.ctx(), &eks.AssociateAccessPolicyInput{ClusterName: awssdk.String("prod"), PrincipalArn: &me, AccessScope: &types.AccessScope{Type: types.AccessScopeTypeCluster},
		PolicyArn: awssdk.String("arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy")}))(t)
	if user, _ = c.Authenticate(good); !slices.Contains(user.Groups, "system:masters") {
		t.Errorf("groups %v", user.Groups)
	}
	raw, _ := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(good, "k8s-aws-v1."))
	spoil := func(old, new string) string {
		return "k8s-aws-v1." + base64.RawURLEncoding.EncodeToString([]byte(strings.Replace(string(raw), old, new, 1)))
	}
	for what, bad := range map[string]string{
		"no mark": strings.TrimPrefix(good, "k8s-aws-v1."), "other action": spoil("GetCallerIdentity", "GetSessionToken"), "long life": spoil("X-Amz-Expires=60", "X-Amz-Expires=901"),
		"unsigned cluster": spoil("x-k8s-aws-id", "x-something"), "other host": spoil("http://127.0.0.1", "http://sts.example.com"), "other key": spoil("AKIAIOSFODNN7EXAMPLE", "AKIAUNKNOWN"),
		"more parameters": spoil("Action=", "Extra=1&Action="), "no token": "",
	} {
		if _, ok := c.Authenticate(bad); ok {
			t.Errorf("%s: let in", what)
		}
	}
	s := y.cloud.platform.eks
	for what, now := range map[string]time.Time{"old": time.Now().Add(16 * time.Minute), "from the future": time.Now().Add(-10 * time.Minute)} {
		if _, ok := s.authenticate(*k.Arn, c0(s, "prod").ID, good, now); ok {
			t.Errorf("%s: let in", what)
		}
	}
}

func c0(s *eksService, name string) *EKSCluster {
	return s.in(scope{testAccount, "us-east-1"}).Clusters[name]
}

func TestTokenOfASession(t *testing.T) {
	kube := newNoteKube()
	y := newYardWith(t, immediate, Options{Kubernetes: kube})
	k := y.cluster(t, "prod")
	trust := `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":"arn:aws:iam::` + testAccount + `:root"},"Action":"sts:AssumeRole"}]}`
	role := *must(y.iam.CreateRole(y.ctx(), &iam.CreateRoleInput{RoleName: awssdk.String("operator"), Path: awssdk.String("/team/"), AssumeRolePolicyDocument: &trust}))(t).Role.Arn
	must(y.eks.CreateAccessEntry(y.ctx(), &eks.CreateAccessEntryInput{ClusterName: awssdk.String("prod"), PrincipalArn: &role}))(t)
	got := must(sts.NewFromConfig(y.cfg).AssumeRole(y.ctx(), &sts.AssumeRoleInput{RoleArn: &role, RoleSessionName: awssdk.String("anna")}))(t).Credentials
	session := y.cfg.Copy()
	session.Credentials = credentials.NewStaticCredentialsProvider(*got.AccessKeyId, *got.SecretAccessKey, *got.SessionToken)
	c := kube.cluster(t, *k.Arn)
	user, ok := c.Authenticate(token(t, session, "prod"))
	if !ok || user.Name != "arn:aws:sts::"+testAccount+":assumed-role/operator/anna" {
		t.Fatalf("user %+v %v", user, ok)
	}
	if _, ok := c.Authenticate(token(t, session, "stage")); ok {
		t.Error("a token for another cluster was taken")
	}
	session.Credentials = credentials.NewStaticCredentialsProvider(*got.AccessKeyId, "forged", *got.SessionToken)
	if _, ok := c.Authenticate(token(t, session, "prod")); ok {
		t.Error("a forged signature was taken")
	}
}

func TestCreatorIsAdministrator(t *testing.T) {
	kube := newNoteKube()
	y := newYardWith(t, immediate, Options{Kubernetes: kube})
	for name, mode := range map[string]types.AuthenticationMode{"api": types.AuthenticationModeApi, "map": types.AuthenticationModeConfigMap} {
		k := y.cluster(t, name, func(in *eks.CreateClusterInput) {
			in.AccessConfig = &types.CreateAccessConfigRequest{AuthenticationMode: mode}
		})
		user, ok := kube.cluster(t, *k.Arn).Authenticate(token(t, y.cfg, name))
		if !ok || !slices.Contains(user.Groups, "system:masters") {
			t.Errorf("%s: user %+v %v", name, user, ok)
		}
	}
	_, err := y.eks.ListAccessEntries(y.ctx(), &eks.ListAccessEntriesInput{ClusterName: awssdk.String("map")})
	refusalText(t, "entries without the mode", err, "InvalidRequestException", "authentication mode")
}

func TestClusterMakesThingsInTheAccount(t *testing.T) {
	kube := newNoteKube()
	y := newYardWith(t, immediate, Options{Kubernetes: kube})
	k := y.cluster(t, "prod")
	y.addons(t, "prod")
	y.pool(t, "prod", "workers")
	cloud, ctx := kube.cluster(t, *k.Arn).Cloud, context.Background()
	claim := sim.KubeVolume{Namespace: "shop", Name: "data", UID: "11111111-2222-4333-8444-555555555555", GiB: 20, StorageClass: map[string]string{"encrypted": "true", "type": "gp3"}}
	if _, err := cloud.EnsureDisk(ctx, claim); err == nil || !strings.Contains(err.Error(), "ebs.csi.aws.com") {
		t.Fatalf("a disk without a driver: %v", err)
	}
	must(y.eks.CreateAddon(y.ctx(), &eks.CreateAddonInput{ClusterName: awssdk.String("prod"), AddonName: awssdk.String("aws-ebs-csi-driver"),
		PodIdentityAssociations: []types.AddonPodIdentityAssociations{{ServiceAccount: awssdk.String("ebs-csi-controller-sa"), RoleArn: &y.podRole}}}))(t)
	y.w.Step(time.Minute)
	handle := must(cloud.EnsureDisk(ctx, claim))(t)
	if again := must(cloud.EnsureDisk(ctx, claim))(t); again != handle {
		t.Error("the claim got another disk")
	}
	v := must(y.ec2.DescribeVolumes(y.ctx(), &ec2.DescribeVolumesInput{Filters: []ec2types.Filter{{Name: awssdk.String("tag:kubernetes.io/cluster/prod"), Values: []string{"owned"}}}}))(t).Volumes
	if len(v) != 1 || !*v[0].Encrypted || *v[0].Size != 20 {
		t.Fatalf("volumes %+v", v)
	}
	service := sim.KubeService{Namespace: "shop", Name: "web", UID: "99999999-2222-4333-8444-555555555555", Ports: []int{80, 443}}
	host, _, err := cloud.EnsureLoadBalancer(ctx, service)
	if err != nil || !strings.Contains(host, ".elb.us-east-1.amazonaws.com") {
		t.Fatalf("host %q, %v", host, err)
	}
	y.w.Step(3 * time.Minute)
	balancers := elb.NewFromConfig(y.cfg)
	all := must(balancers.DescribeLoadBalancers(y.ctx(), &elb.DescribeLoadBalancersInput{}))(t).LoadBalancers
	if len(all) != 1 || all[0].Type != "network" || len(all[0].AvailabilityZones) != 2 {
		t.Fatalf("balancers %+v", all)
	}
	groups := must(balancers.DescribeTargetGroups(y.ctx(), &elb.DescribeTargetGroupsInput{}))(t).TargetGroups
	if len(groups) != 2 {
		t.Errorf("%d target groups", len(groups))
	}
	done := must(cloud.DeleteLoadBalancer(ctx, service))(t)
	if done {
		t.Error("the load balancer is gone at once, with its interfaces still there")
	}
	y.w.Step(time.Minute)
	if done = must(cloud.DeleteLoadBalancer(ctx, service))(t); !done {
		t.Error("the load balancer does not go")
	}
	if done = must(cloud.DeleteDisk(ctx, claim))(t); !done {
		t.Error("the disk does not go")
	}
	if left := y.marked("kubernetes.io/created-for", "kubernetes.io/service-name"); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// marked lists what has a tag whose key begins with one of these.
func (y *yard) marked(keys ...string) (out []string) {
	for _, o := range y.w.Objects(sim.ObjectFilter{Cloud: "aws"}) {
		for key := range o.Tags {
			if slices.ContainsFunc(keys, func(k string) bool { return strings.HasPrefix(key, k) }) {
				out = append(out, o.Kind+" "+o.ID)
				break
			}
		}
	}
	return out
}

func TestOrphansOfADeletedCluster(t *testing.T) {
	kube := newNoteKube()
	y := newYardWith(t, immediate, Options{Kubernetes: kube})
	k := y.cluster(t, "prod")
	cloud := kube.cluster(t, *k.Arn).Cloud
	service := sim.KubeService{Namespace: "shop", Name: "web", UID: "99999999-2222-4333-8444-555555555555", Ports: []int{80}}
	if _, _, err := cloud.EnsureLoadBalancer(context.Background(), service); err != nil {
		t.Fatal(err)
	}
	must(y.eks.DeleteCluster(y.ctx(), &eks.DeleteClusterInput{Name: awssdk.String("prod")}))(t)
	y.w.Step(5 * time.Minute)
	if _, err := cloud.DeleteLoadBalancer(context.Background(), service); err == nil {
		t.Error("the controllers of a deleted cluster still work")
	}
	if left := y.marked("kubernetes.io/service-name"); len(left) != 4 { // balancer, listener, target group, security group
		t.Errorf("left: %v", left)
	}
	_, err := y.ec2.DeleteVpc(y.ctx(), &ec2.DeleteVpcInput{VpcId: &y.vpc})
	wantCode(t, err, "DependencyViolation")
}
