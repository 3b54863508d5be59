package aws

import (
	"encoding/base64"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
	simaws "github.com/zopday/provisioner/internal/sim/aws"
)

// servers stands for the API servers of the simulated clusters, and asks their
// authenticators.
type servers struct {
	mu   sync.Mutex
	open map[string]sim.KubeCluster
}

func (s *servers) Open(c sim.KubeCluster) sim.KubeEndpoint {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[c.ID] = c
	return sim.KubeEndpoint{Address: "127.0.0.1:6443", CA: s.CA()}
}

func (s *servers) SetNodes(string, []sim.KubeNode) {}

func (s *servers) Close(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, id)
}

func (s *servers) CA() []byte {
	return []byte("-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n")
}

func (s *servers) cluster(id string) sim.KubeCluster {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open[id]
}

// The provisioner gets into its own cluster by a token of EKS's own kind, which is good
// for that cluster alone; a grant lets others in at their level, and can be taken back.
func TestKubeAccess(t *testing.T) {
	t.Parallel()
	s := &servers{open: map[string]sim.KubeCluster{}}
	g := newClusterAt(t, sim.Options{}, simaws.Options{Kubernetes: s}, job.ModeCreate, clusterSpec)
	ctx := anything(t.Context())
	ref := job.ClusterRef{Region: "us-east-1", Name: clusterNameOf(g.job)}
	if _, err := g.p.KubeAccess(ctx, ref); !pipeline.Is(err, pipeline.NotFound) {
		t.Errorf("without a cluster: %v", err)
	}
	g.create()
	access, err := g.p.KubeAccess(ctx, ref)
	if err != nil {
		t.Fatal(err)
	}
	if access.Server != "https://127.0.0.1:6443" || string(access.CA) != string(s.CA()) || g.info().Endpoint != access.Server {
		t.Errorf("the API server is at %s, and the job has %s", access.Server, g.info().Endpoint)
	}
	since := g.mark()
	token, err := access.Token(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if reads, changes := g.calls(since); sum(reads)+sum(changes) > 0 {
		t.Errorf("a token took %v %v", reads, changes)
	}
	raw, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(token, "k8s-aws-v1."))
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(string(raw))
	if err != nil || u.Query().Get("X-Amz-Expires") != "60" || u.Query().Get("X-Amz-SignedHeaders") != "host;x-k8s-aws-id" || u.Query().Get("Action") != "GetCallerIdentity" {
		t.Errorf("the token is %s", raw)
	}
	kube := s.cluster(g.info().ID)
	user, ok := kube.Authenticate(token)
	if !ok || !slices.Contains(user.Groups, "system:masters") && user.Name == "" {
		t.Errorf("the provisioner is %+v, %v", user, ok)
	}
	for from, want := range map[string]bool{"203.0.113.7": true, "198.51.100.7": false} {
		if got := kube.Admits(sim.KubeCaller{IP: netip.MustParseAddr(from)}); got != want {
			t.Errorf("a caller from %s gets in: %v", from, got)
		}
	}
	g.oncall(ref.Name, kube)
	if _, err := g.p.KubeAccess(ctx, job.ClusterRef{Region: "eu-west-1", Name: ref.Name}); !pipeline.Is(err, pipeline.Invalid) {
		t.Errorf("a cluster of another region: %v", err)
	}
}

// oncall lets a role in and comes by one of its sessions: the simulation knows the
// secret of those, and so proves their signatures.
func (g clusterRig) oncall(cluster string, kube sim.KubeCluster) {
	g.Helper()
	ctx := anything(g.Context())
	g.place("iam", "CreateRole", map[string]any{"RoleName": "oncall", "AssumeRolePolicyDocument": `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":"123456789012"},"Action":"sts:AssumeRole"}]}`})
	g.world.Step(time.Minute)
	const role = "arn:aws:iam::123456789012:role/oncall"
	if err := g.p.GrantAccess(ctx, job.ClusterRef{Region: "us-east-1", Name: cluster}, cloud.AccessGrant{Principal: role, Level: cloud.AccessAdmin}); err != nil {
		g.Fatal(err)
	}
	g.world.Step(time.Minute)
	out, err := g.p.sts.AssumeRole(ctx, &sts.AssumeRoleInput{RoleArn: aws.String(role), RoleSessionName: aws.String("tonight")})
	if err != nil {
		g.Fatal(err)
	}
	c := out.Credentials
	session := new(Provider)
	session.init(aws.Config{Region: "us-east-1", BaseEndpoint: aws.String(g.url), Credentials: credentials.NewStaticCredentialsProvider(*c.AccessKeyId, *c.SecretAccessKey, *c.SessionToken)}, Options{}, "us-east-1")
	for name, want := range map[string]bool{cluster: true, "another": false} {
		token, err := session.kubeToken(ctx, name)
		if err != nil {
			g.Fatal(err)
		}
		if user, ok := kube.Authenticate(token); ok != want {
			g.Errorf("a token for %s: %v, as %+v", name, ok, user)
		}
	}
}

func TestGrantAccess(t *testing.T) {
	t.Parallel()
	g := newCluster(t, sim.Options{}, job.ModeCreate, mixedSpec)
	g.create()
	g.place("iam", "CreateRole", map[string]any{"RoleName": "dev", "AssumeRolePolicyDocument": trustPolicy})
	g.world.Step(time.Minute)
	ctx := anything(t.Context())
	ref := job.ClusterRef{Region: "us-east-1", Name: g.info().Name}
	const dev, platform = "arn:aws:iam::123456789012:role/dev", "arn:aws:iam::123456789012:role/platform"
	have := func(principal string) string {
		t.Helper()
		g.world.Step(time.Minute)
		arns, err := g.p.entryPolicies(t.Context(), ref.Name, principal)
		if pipeline.Is(err, pipeline.NotFound) {
			return "no entry"
		}
		if err != nil {
			t.Fatal(err)
		}
		for i, arn := range arns {
			arns[i] = arn[strings.LastIndexByte(arn, '/')+1:]
		}
		return sortedList(arns)
	}
	for _, c := range []struct {
		level cloud.AccessLevel
		want  string
	}{{cloud.AccessView, "AmazonEKSViewPolicy"}, {cloud.AccessEdit, "AmazonEKSEditPolicy"}, {cloud.AccessEdit, "AmazonEKSEditPolicy"}, {cloud.AccessAdmin, "AmazonEKSClusterAdminPolicy"}} {
		if err := g.p.GrantAccess(ctx, ref, cloud.AccessGrant{Principal: dev, Level: c.level}); err != nil {
			t.Fatal(err)
		}
		if got := have(dev); got != c.want {
			t.Errorf("%s has %s, want %s", c.level, got, c.want)
		}
	}
	if err := g.p.GrantAccess(ctx, ref, cloud.AccessGrant{Principal: dev, Level: "owner"}); !pipeline.Is(err, pipeline.Invalid) {
		t.Errorf("an unknown level: %v", err)
	}
	for range 2 {
		if err := g.p.RevokeAccess(ctx, ref, dev); err != nil {
			t.Fatal(err)
		}
		if got := have(dev); got != "no entry" {
			t.Errorf("after it was revoked: %s", got)
		}
	}
	// An entry that a grant did not make stays, without what a grant gives.
	if err := g.p.RevokeAccess(ctx, ref, platform); err != nil {
		t.Fatal(err)
	}
	if got := have(platform); got != "" {
		t.Errorf("the administrator has %s", got)
	}
	if _, err := g.p.eks.DescribeAccessEntry(ctx, &eks.DescribeAccessEntryInput{ClusterName: aws.String(ref.Name), PrincipalArn: aws.String(platform)}); err != nil {
		t.Error(err)
	}
	// Nobody named is the provisioner itself.
	self, err := g.p.principal(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if got := have(self); got != "AmazonEKSClusterAdminPolicy" {
		t.Errorf("the provisioner has %s", got)
	}
	if err := g.p.RevokeAccess(ctx, ref, ""); err != nil {
		t.Fatal(err)
	}
	if got := have(self); got != "" {
		t.Errorf("the provisioner has %s after its access was taken back", got)
	}
	if err := g.p.GrantAccess(ctx, job.ClusterRef{Region: "us-east-1", Name: "nobody"}, cloud.AccessGrant{Principal: dev, Level: cloud.AccessView}); !pipeline.Is(err, pipeline.NotFound) {
		t.Errorf("a cluster that is not there: %v", err)
	}
}

// A session of a role stands for the role, with the path that its ARN leaves out.
func TestPrincipalOfASession(t *testing.T) {
	t.Parallel()
	g := newCluster(t, sim.Options{}, job.ModeCreate, clusterSpec)
	g.place("iam", "CreateRole", map[string]any{"RoleName": "deployer", "Path": "/ci/", "AssumeRolePolicyDocument": trustPolicy})
	g.world.Step(time.Minute)
	for arn, want := range map[string]string{
		"arn:aws:sts::123456789012:assumed-role/deployer/run-17": "arn:aws:iam::123456789012:role/ci/deployer",
		"arn:aws:sts::123456789012:assumed-role/elsewhere/x":     "arn:aws:iam::123456789012:role/elsewhere",
		"arn:aws:iam::123456789012:user/operator":                "arn:aws:iam::123456789012:user/operator",
	} {
		if got, err := g.p.principalOf(t.Context(), arn); err != nil || got != want {
			t.Errorf("%s stands for %s (%v), want %s", arn, got, err, want)
		}
	}
	if _, err := g.p.principalOf(t.Context(), "arn:aws:sts::123456789012:federated-user/bob"); fatalCode(err) != "principal-not-supported" {
		t.Errorf("a federated user: %v", err)
	}
}
