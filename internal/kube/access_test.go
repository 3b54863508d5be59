package kube

import (
	"context"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/pipeline"
)

// TestTokenStaysWithTheServer follows no redirect with a token: what answers behind
// an API server, such as a kubelet, may not have the cloud account's credential.
func TestTokenStaysWithTheServer(t *testing.T) {
	var stolen atomic.Int32
	thief := func(w http.ResponseWriter, r *http.Request) {
		stolen.Add(1)
		w.WriteHeader(http.StatusOK)
	}
	secure, plain := httptest.NewTLSServer(http.HandlerFunc(thief)), httptest.NewServer(http.HandlerFunc(thief))
	defer secure.Close()
	defer plain.Close()
	for _, to := range []string{secure.URL, plain.URL} {
		api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer secret" {
				t.Errorf("the API server itself gets %q", r.Header.Get("Authorization"))
			}
			http.Redirect(w, r, to+r.URL.Path, http.StatusTemporaryRedirect)
		}))
		access := cloud.KubeAccess{
			Server: api.URL,
			// The authority of the cluster signs certificates of its nodes too.
			CA:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw}),
			Token: func(context.Context) (string, error) { return "secret", nil },
		}
		c, err := Client(t.Context(), access)
		if err != nil {
			t.Fatal(err)
		}
		_, err = Version(c)
		if !pipeline.Is(err, pipeline.Unavailable) || !strings.Contains(err.Error(), "redirects") || strings.Contains(err.Error(), "secret") {
			t.Errorf("redirected to %s: %v", to, err)
		}
		api.Close()
	}
	if n := stolen.Load(); n != 0 {
		t.Errorf("%d requests went elsewhere", n)
	}
}

func TestServerIsHTTPS(t *testing.T) {
	for _, server := range []string{"", "http://10.0.0.1", "10.0.0.1:443", "https://"} {
		if _, err := RESTConfig(t.Context(), cloud.KubeAccess{Server: server}); err == nil {
			t.Errorf("%q is taken for an API server", server)
		}
	}
}
