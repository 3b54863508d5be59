package azure

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/sim"
	simazure "github.com/zopday/provisioner/internal/sim/azure"
	"github.com/zopday/provisioner/internal/sim/kube"
)

// A real API server is reached from the authorised ranges alone, with a token of the
// directory, and lets the provisioner administer it.
func TestAPIServerOfACluster(t *testing.T) {
	t.Parallel()
	binary, err := kube.Binary()
	if err != nil {
		t.Fatal(err)
	}
	k, err := kube.New(kube.Options{Binary: binary})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Shutdown)
	g := newRigWith(t, sim.Options{TimeScale: quick}, simazure.Options{Kubernetes: k}, job.Cluster, job.ModeCreate, smallCluster)
	g.p.reach = fromHere
	g.up()
	access, err := g.p.KubeAccess(t.Context(), g.clusterRef())
	if err != nil {
		t.Fatal(err)
	}
	const secrets = "/api/v1/namespaces/kube-system/secrets"
	token, err := access.Token(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return statusOfCall(t, access, secrets, token) == http.StatusOK })
	if got := statusOfCall(t, access, secrets, "nobody"); got != http.StatusUnauthorized {
		t.Errorf("without a token it answers %d", got)
	}
	k.SetCaller(sim.KubeCaller{IP: netip.MustParseAddr("198.51.100.9")})
	if got := statusOfCall(t, access, secrets, token); got != 0 {
		t.Errorf("from elsewhere it answers %d", got)
	}
	k.SetCaller(sim.KubeCaller{IP: netip.MustParseAddr("198.51.100.9"), Inside: true})
	if got := statusOfCall(t, access, secrets, token); got != http.StatusOK {
		t.Errorf("from inside it answers %d", got)
	}
}

func eventually(t *testing.T, so func() bool) {
	t.Helper()
	for range 600 {
		if so() {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatal("it never came to that")
}

// statusOfCall is what an API server answers to a read; 0 if it does not answer.
func statusOfCall(t *testing.T, access cloud.KubeAccess, path, token string) int {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(access.CA) {
		t.Fatal("the CA is not PEM")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, access.Server+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true}}
	resp, err := c.Do(req)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	return resp.StatusCode
}
