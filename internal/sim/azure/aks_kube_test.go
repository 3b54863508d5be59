package azure

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/zopday/provisioner/internal/sim/kube"
)

// TestRealAPIServer: what a cluster hands out leads to a real API server, where one is built, which lets in whom Azure lets in.
func TestRealAPIServer(t *testing.T) {
	t.Parallel()
	binary, err := kube.Binary()
	if err != nil {
		t.Fatal(err) // make kube builds it
	}
	servers, err := kube.New(kube.Options{Binary: binary})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(servers.Shutdown)
	g := newRig(t)
	g.cloud.opt.Kubernetes = servers
	g.group("rg")
	g.vnet("net", "10.20.0.0/16", "10.20.0.0/20", "10.20.16.0/20")
	id := *g.cluster(clusterModel()).ID
	clusters := g.containers().NewManagedClustersClient()
	api := g.apiServer(must(clusters.ListClusterUserCredentials(g.ctx, "rg", "shop", nil))(t).Kubeconfigs[0].Value)
	token := g.clusterToken()
	const name = "55555555-5555-4555-8555-555555555555"
	api.expect("/api/v1/nodes", "nobody", http.StatusUnauthorized)
	api.expect("/api/v1/nodes", token, http.StatusForbidden)
	g.assign(name, id, role("7f6c6a51-bcf8-42ba-9220-52d62157d7db"), DefaultClients()[0].ObjectID)
	api.expect("/api/v1/namespaces/default/services", token, http.StatusOK)
	api.expect("/api/v1/namespaces/default/secrets", token, http.StatusForbidden)
	must(g.assignments().Delete(g.ctx, id, name, nil))(t)
	g.assign(name, id, clusterAdminRole, DefaultClients()[0].ObjectID)
	var nodes []doc
	// They register one by one, slowly on a busy machine.
	for deadline := time.Now().Add(30 * time.Second); len(nodes) < 3 && time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		nodes = api.expect("/api/v1/nodes", token, http.StatusOK).docs("items")
	}
	if len(nodes) != 3 || nodes[0].sub("metadata.labels")["kubernetes.azure.com/agentpool"] != "system" {
		t.Errorf("nodes %.600s", text(nodes))
	}
	if classes := api.expect("/apis/storage.k8s.io/v1/storageclasses", token, http.StatusOK).docs("items"); len(classes) != len(diskClasses) {
		t.Errorf("%d storage classes", len(classes))
	}
	p, err := clusters.BeginDelete(g.ctx, "rg", "shop", nil)
	done(g, p, err)
	if status, _, err := api.ask("/version", token); err == nil {
		t.Errorf("the API server of a deleted cluster answers %d", status)
	}
}

// An apiServerClient talks to the API server that a configuration names.
type apiServerClient struct {
	t      *testing.T
	server string
	http   *http.Client
}

func (g *rig) apiServer(kubeconfig []byte) *apiServerClient {
	g.t.Helper()
	var config struct {
		Clusters []struct {
			Cluster struct {
				Server string `json:"server"`
				CA     string `json:"certificate-authority-data"`
			} `json:"cluster"`
		} `json:"clusters"`
	}
	if err := yaml.Unmarshal(kubeconfig, &config); err != nil {
		g.t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(must(base64.StdEncoding.DecodeString(config.Clusters[0].Cluster.CA))(g.t)) {
		g.t.Fatal("no CA")
	}
	return &apiServerClient{t: g.t, server: config.Clusters[0].Cluster.Server,
		http: &http.Client{Timeout: 2 * time.Minute, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}}}
}

func (a *apiServerClient) ask(path, token string) (int, doc, error) {
	a.t.Helper()
	req := must(http.NewRequestWithContext(a.t.Context(), http.MethodGet, a.server+path, nil))(a.t)
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := a.http.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body := doc{}
	if err := json.Unmarshal(must(io.ReadAll(resp.Body))(a.t), &body); err != nil && resp.StatusCode == http.StatusOK {
		return 0, nil, err
	}
	return resp.StatusCode, body, nil
}

// expect asks until the answer is as expected, and a list has something in it: controllers take a while to sum roles up, and the cloud to
// bring its nodes.
func (a *apiServerClient) expect(path, token string, want int) doc {
	a.t.Helper()
	for n := 0; ; n++ {
		got, body, err := a.ask(path, token)
		if err != nil {
			a.t.Fatal(err)
		}
		if got == want && (want != http.StatusOK || len(body.docs("items")) > 0) {
			return body
		}
		if n == 300 {
			a.t.Errorf("%s: %d, want %d: %.300s", path, got, want, text(body))
			return body
		}
		time.Sleep(100 * time.Millisecond)
	}
}
