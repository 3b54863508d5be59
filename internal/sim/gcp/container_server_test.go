package gcp

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

	"google.golang.org/api/compute/v1"

	"github.com/zopday/provisioner/internal/sim"
	"github.com/zopday/provisioner/internal/sim/kube"
)

// TestRealAPIServer: a cluster's endpoint leads to a real API server, where one is built. It lets in whom Google Cloud lets in, has
// the cluster's nodes, and what its controllers make appears in the project.
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
	g := newGKEOn(t, servers)
	g.shop()
	c, err := g.clusters.Get(shopCluster).Do()
	if err != nil {
		t.Fatal(err)
	}
	pem, err := base64.StdEncoding.DecodeString(c.MasterAuth.ClusterCaCertificate)
	roots := x509.NewCertPool()
	if err != nil || !roots.AppendCertsFromPEM(pem) {
		t.Fatal("no certificate", err)
	}
	client := &http.Client{Timeout: 2 * time.Minute, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}}
	t.Cleanup(client.CloseIdleConnections)
	ask := func(method, path, token string, body Doc) (int, Doc, error) {
		var payload []byte
		if body != nil {
			payload, _ = json.Marshal(body) // texts and numbers
		}
		req, err := http.NewRequestWithContext(t.Context(), method, "https://"+c.ControlPlaneEndpointsConfig.DnsEndpointConfig.Endpoint+path, bytes.NewReader(payload))
		if err != nil {
			return 0, nil, err
		}
		req.Header.Set("Authorization", "Bearer "+token)
		req.Header.Set("Content-Type", "application/json")
		resp, err := client.Do(req)
		if err != nil {
			return 0, nil, err
		}
		defer func() { _ = resp.Body.Close() }()
		raw, err := io.ReadAll(resp.Body)
		var doc Doc
		_ = json.Unmarshal(raw, &doc) // what is no JSON has no fields
		return resp.StatusCode, doc, err
	}
	// until asks until the answer is as it should be, since controllers take their time.
	until := func(what, path string, good func(status int, doc Doc) bool) Doc {
		t.Helper()
		var status int
		var doc Doc
		var err error
		for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
			if status, doc, err = ask(http.MethodGet, path, g.token, nil); err == nil && good(status, doc) {
				return doc
			}
		}
		t.Fatalf("%s: %d %v, %v", what, status, doc, err)
		return nil
	}
	nodes := until("nodes", "/api/v1/nodes", func(_ int, doc Doc) bool { return len(docs(doc, "items")) == 3 })
	if labels := labelsOf(sub(docs(nodes, "items")[0], "metadata")); labels["cloud.google.com/gke-nodepool"] != "first" || labels["topology.kubernetes.io/region"] != gkeRegion {
		t.Errorf("labels of a node: %v", labels)
	}
	if status, _, err := ask(http.MethodGet, "/api/v1/nodes", "ya29.nobody", nil); err != nil || status != http.StatusUnauthorized {
		t.Errorf("a stranger: %d, %v", status, err)
	}
	until("storage classes", "/apis/storage.k8s.io/v1/storageclasses", func(_ int, doc Doc) bool { return len(docs(doc, "items")) == 3 })

	create := func(path string, body Doc) {
		t.Helper()
		if status, doc, err := ask(http.MethodPost, path, g.token, body); err != nil || status != http.StatusCreated {
			t.Fatalf("%s: %d %v, %v", path, status, doc, err)
		}
	}
	create("/api/v1/namespaces/default/services", Doc{"apiVersion": "v1", "kind": "Service", "metadata": Doc{"name": "front"},
		"spec": Doc{"type": "LoadBalancer", "selector": Doc{"app": "front"}, "ports": []any{Doc{"port": 80}}}})
	create("/api/v1/namespaces/default/persistentvolumeclaims", Doc{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": Doc{"name": "data"},
		"spec": Doc{"storageClassName": "standard", "accessModes": []any{"ReadWriteOnce"}, "resources": Doc{"requests": Doc{"storage": "12Gi"}}}})
	svc := until("load balancer", "/api/v1/namespaces/default/services/front", func(_ int, doc Doc) bool {
		return len(docs(sub(sub(doc, "status"), "loadBalancer"), "ingress")) == 1
	})
	until("claim", "/api/v1/namespaces/default/persistentvolumeclaims/data", func(_ int, doc Doc) bool { return str(sub(doc, "status"), "phase") == "Bound" })
	ip := str(docs(sub(sub(svc, "status"), "loadBalancer"), "ingress")[0], "ip")
	rules, err := g.compute().ForwardingRules.List(testProject, gkeRegion).Do()
	if err != nil || len(rules.Items) != 1 || rules.Items[0].IPAddress != ip || !strings.Contains(rules.Items[0].Description, "default/front") {
		t.Errorf("forwarding rules: %+v, %v; the Service has %s", rules, err, ip)
	}
	if disks := g.claimDisks(); len(disks) != 1 || disks[0].SizeGb != 12 {
		t.Errorf("disks: %+v", disks)
	}
	for _, path := range []string{"/api/v1/namespaces/default/services/front", "/api/v1/namespaces/default/persistentvolumeclaims/data"} {
		if status, doc, err := ask(http.MethodDelete, path, g.token, nil); err != nil || status >= http.StatusBadRequest {
			t.Fatalf("%s: %d %v, %v", path, status, doc, err)
		}
		until("deletion", path, func(status int, _ Doc) bool { return status == http.StatusNotFound })
	}
	for deadline := time.Now().Add(time.Minute); len(g.claimDisks()) > 0; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the disk of a deleted claim stays")
		}
	}
	if left := g.world.Objects(sim.ObjectFilter{Cloud: "gcp", Service: "compute", Kind: "forwarding_rule"}); len(left) != 0 {
		t.Errorf("rules of a deleted Service: %+v", left)
	}
	g.ok(g.clusters.Delete(shopCluster).Do())
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		client.CloseIdleConnections()
		if _, _, err := ask(http.MethodGet, "/version", g.token, nil); err != nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the API server of a deleted cluster answers")
		}
	}
}

// claimDisks are the disks that were made for claims.
func (g *gkeRig) claimDisks() []*compute.Disk {
	g.t.Helper()
	list, err := g.compute().Disks.AggregatedList(testProject).Do()
	if err != nil {
		g.t.Fatal(err)
	}
	var out []*compute.Disk
	for _, scope := range list.Items {
		for _, d := range scope.Disks {
			if strings.HasPrefix(d.Name, "pvc-") {
				out = append(out, d)
			}
		}
	}
	return out
}
