package aws

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/eks/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/zopday/provisioner/internal/sim/kube"
)

// apiServer is the client of a cluster's API server.
type apiServer struct {
	t     *testing.T
	y     *yard
	url   string
	token string
	http  *http.Client
}

func (a *apiServer) ask(method, path string, body any) (int, map[string]any, error) {
	var payload []byte
	if body != nil {
		payload, _ = json.Marshal(body) // texts and numbers
	}
	req, err := http.NewRequestWithContext(a.t.Context(), method, a.url+path, bytes.NewReader(payload))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+a.token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := a.http.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	var doc map[string]any
	_ = json.Unmarshal(raw, &doc) // what is no JSON has no fields
	return resp.StatusCode, doc, err
}

// until asks until the answer is as it should be; meanwhile simulated time goes on.
func (a *apiServer) until(what, path string, good func(status int, doc map[string]any) bool) map[string]any {
	a.t.Helper()
	var status int
	var doc map[string]any
	var err error
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if status, doc, err = a.ask(http.MethodGet, path, nil); err == nil && good(status, doc) {
			return doc
		}
		a.y.w.Step(2 * time.Second)
	}
	a.t.Fatalf("%s: %d %v, %v", what, status, doc, err)
	return nil
}

func (a *apiServer) must(method, path string, body any) {
	a.t.Helper()
	if status, doc, err := a.ask(method, path, body); err != nil || status >= http.StatusBadRequest {
		a.t.Fatalf("%s %s: %d %v, %v", method, path, status, doc, err)
	}
}

func items(doc map[string]any) int {
	list, _ := doc["items"].([]any)
	return len(list)
}

// TestRealAPIServer: a cluster's endpoint leads to a real API server, where one is built. It lets in whom an access entry
// lets in, has the cluster's nodes, and what its controllers make appears in the account.
func TestRealAPIServer(t *testing.T) {
	binary, err := kube.Binary()
	if err != nil {
		t.Fatal(err) // make kube builds it
	}
	servers, err := kube.New(kube.Options{Binary: binary})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(servers.Shutdown)
	y := newYardWith(t, immediate, Options{Kubernetes: servers})
	k := y.cluster(t, "prod", func(in *eks.CreateClusterInput) {
		in.ResourcesVpcConfig.EndpointPublicAccess, in.ResourcesVpcConfig.PublicAccessCidrs = awssdk.Bool(true), []string{"203.0.113.0/24"}
	})
	y.addons(t, "prod")
	must(y.eks.CreateAddon(y.ctx(), &eks.CreateAddonInput{ClusterName: awssdk.String("prod"), AddonName: awssdk.String("aws-ebs-csi-driver"),
		PodIdentityAssociations: []types.AddonPodIdentityAssociations{{ServiceAccount: awssdk.String("ebs-csi-controller-sa"), RoleArn: &y.podRole}}}))(t)
	y.pool(t, "prod", "workers", func(in *eks.CreateNodegroupInput) { in.Taints = nil })
	pem, err := base64.StdEncoding.DecodeString(*k.CertificateAuthority.Data)
	roots := x509.NewCertPool()
	if err != nil || !roots.AppendCertsFromPEM(pem) {
		t.Fatal("no certificate", err)
	}
	a := &apiServer{t: t, y: y, url: *k.Endpoint, token: token(t, y.cfg, "prod"),
		http: &http.Client{Timeout: 2 * time.Minute, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}}}
	t.Cleanup(a.http.CloseIdleConnections)
	a.until("a caller without an entry", "/api/v1/nodes", func(status int, _ map[string]any) bool { return status == http.StatusUnauthorized })

	me := *must(sts.NewFromConfig(y.cfg).GetCallerIdentity(y.ctx(), &sts.GetCallerIdentityInput{}))(t).Arn
	must(y.eks.CreateAccessEntry(y.ctx(), &eks.CreateAccessEntryInput{ClusterName: awssdk.String("prod"), PrincipalArn: &me}))(t)
	policy := func(name string) {
		t.Helper()
		must(y.eks.AssociateAccessPolicy(y.ctx(), &eks.AssociateAccessPolicyInput{ClusterName: awssdk.String("prod"), PrincipalArn: &me, AccessScope: &types.AccessScope{Type: types.AccessScopeTypeCluster},
			PolicyArn: awssdk.String("arn:aws:eks::aws:cluster-access-policy/" + name)}))(t)
	}
	policy("AmazonEKSViewPolicy")
	a.until("a viewer", "/api/v1/services", func(status int, _ map[string]any) bool { return status == http.StatusOK })
	if status, _, err := a.ask(http.MethodGet, "/api/v1/secrets", nil); err != nil || status != http.StatusForbidden {
		t.Errorf("a viewer asks for secrets: %d, %v", status, err)
	}
	policy("AmazonEKSClusterAdminPolicy")
	nodes := a.until("nodes", "/api/v1/nodes", func(_ int, doc map[string]any) bool { return items(doc) == 2 })
	if text, _ := json.Marshal(nodes); !strings.Contains(string(text), `"eks.amazonaws.com/nodegroup":"workers"`) || !strings.Contains(string(text), "ec2.internal") {
		t.Errorf("nodes %s", text)
	}
	a.tryService()
	a.tryClaim()
	must(y.eks.DeleteNodegroup(y.ctx(), &eks.DeleteNodegroupInput{ClusterName: awssdk.String("prod"), NodegroupName: awssdk.String("workers")}))(t)
	y.w.Step(5 * time.Minute)
	a.until("no nodes", "/api/v1/nodes", func(_ int, doc map[string]any) bool { return items(doc) == 0 })
	must(y.eks.DeleteCluster(y.ctx(), &eks.DeleteClusterInput{Name: awssdk.String("prod")}))(t)
	eventually(t, "the endpoint of a deleted cluster is shut", func() bool {
		a.http.CloseIdleConnections()
		_, _, err := a.ask(http.MethodGet, "/version", nil)
		return err != nil
	})
}

// tryService makes a Service with a load balancer and takes it away.
func (a *apiServer) tryService() {
	a.t.Helper()
	const path = "/api/v1/namespaces/default/services"
	a.must(http.MethodPost, path, map[string]any{"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": "front"},
		"spec": map[string]any{"type": "LoadBalancer", "selector": map[string]any{"app": "front"}, "ports": []any{map[string]any{"port": 80}}}})
	a.until("load balancer", path+"/front", func(_ int, doc map[string]any) bool {
		text, _ := json.Marshal(doc["status"])
		return strings.Contains(string(text), ".elb.us-east-1.amazonaws.com")
	})
	if made := a.y.marked("kubernetes.io/service-name"); len(made) != 4 {
		a.t.Errorf("made for the Service: %v", made)
	}
	a.must(http.MethodDelete, path+"/front", nil)
	a.until("the Service is gone", path+"/front", func(status int, _ map[string]any) bool { return status == http.StatusNotFound })
	if left := a.y.marked("kubernetes.io/service-name"); len(left) != 0 {
		a.t.Errorf("left of the Service: %v", left)
	}
}

// tryClaim makes a claim with a disk and takes it away.
func (a *apiServer) tryClaim() {
	a.t.Helper()
	a.must(http.MethodPost, classesPath, map[string]any{"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": map[string]any{"name": "safe"}, "provisioner": "ebs.csi.aws.com",
		"parameters": map[string]string{"type": "gp3", "encrypted": "true"}})
	const path = "/api/v1/namespaces/default/persistentvolumeclaims"
	a.must(http.MethodPost, path, map[string]any{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": map[string]any{"name": "data"},
		"spec": map[string]any{"storageClassName": "safe", "accessModes": []string{"ReadWriteOnce"}, "resources": map[string]any{"requests": map[string]string{"storage": "12Gi"}}}})
	a.until("the claim is bound", path+"/data", func(_ int, doc map[string]any) bool {
		status, _ := doc["status"].(map[string]any)
		return status["phase"] == "Bound"
	})
	if made := a.y.marked("kubernetes.io/created-for"); len(made) != 1 {
		a.t.Errorf("made for the claim: %v", made)
	}
	a.must(http.MethodDelete, path+"/data", nil)
	eventually(a.t, "the disk goes", func() bool { a.y.w.Step(time.Second); return len(a.y.marked("kubernetes.io/created-for")) == 0 })
}
