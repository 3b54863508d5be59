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
		t.Skip(err) // make kube builds it
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
	var config struct {
		Clusters []struct {
			Cluster struct {
				Server string `json:"server"`
				CA     string `json:"certificate-authority-data"`
			} `json:"cluster"`
		} `json:"clusters"`
	}
	raw := must(clusters.ListClusterUserCredentials(g.ctx, "rg", "shop", nil))(t).Kubeconfigs[0].Value
	if err := yaml.Unmarshal(raw, &config); err != nil {
		t.Fatal(err)
	}
	at := config.Clusters[0].Cluster
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(must(base64.StdEncoding.DecodeString(at.CA))(t)) {
		t.Fatal("no CA")
	}
	client := &http.Client{Timeout: 2 * time.Minute, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}}
	token := g.clusterToken()
	ask := func(path, token string) (int, doc) {
		t.Helper()
		req := must(http.NewRequestWithContext(t.Context(), http.MethodGet, at.Server+path, nil))(t)
		req.Header.Set("Authorization", "Bearer "+token)
		resp := must(client.Do(req))(t)
		defer func() { _ = resp.Body.Close() }()
		body := doc{}
		if err := json.Unmarshal(must(io.ReadAll(resp.Body))(t), &body); err != nil && resp.StatusCode == http.StatusOK {
			t.Fatal(err)
		}
		return resp.StatusCode, body
	}
	expect := func(path, token string, status int) doc {
		t.Helper()
		// Controllers take a while to sum roles up, and the cloud to bring its nodes.
		got, body := ask(path, token)
		for range 300 {
			if got == status && (status != http.StatusOK || len(body.docs("items")) > 0) {
				return body
			}
			time.Sleep(100 * time.Millisecond)
			got, body = ask(path, token)
		}
		t.Errorf("%s: %d, want %d: %.300s", path, got, status, text(body))
		return body
	}
	const name = "55555555-5555-4555-8555-555555555555"
	expect("/api/v1/nodes", "nobody", http.StatusUnauthorized)
	expect("/api/v1/nodes", token, http.StatusForbidden)
	g.assign(name, id, role("7f6c6a51-bcf8-42ba-9220-52d62157d7db"), DefaultClients()[0].ObjectID)
	expect("/api/v1/namespaces/default/services", token, http.StatusOK)
	expect("/api/v1/namespaces/default/secrets", token, http.StatusForbidden)
	must(g.assignments().Delete(g.ctx, id, name, nil))(t)
	g.assign(name, id, clusterAdminRole, DefaultClients()[0].ObjectID)
	nodes := expect("/api/v1/nodes", token, http.StatusOK).docs("items")
	if len(nodes) != 3 || nodes[0].sub("metadata.labels")["kubernetes.azure.com/agentpool"] != "system" {
		t.Errorf("nodes %.600s", text(nodes))
	}
	if classes := expect("/apis/storage.k8s.io/v1/storageclasses", token, http.StatusOK).docs("items"); len(classes) != len(diskClasses) {
		t.Errorf("%d storage classes", len(classes))
	}
	p, err := clusters.BeginDelete(g.ctx, "rg", "shop", nil)
	done(g, p, err)
	req := must(http.NewRequestWithContext(t.Context(), http.MethodGet, at.Server+"/version", nil))(t)
	if resp, err := client.Do(req); err == nil {
		_ = resp.Body.Close()
		t.Error("the API server of a deleted cluster answers")
	}
}
