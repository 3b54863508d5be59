package kube

import (
	"context"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
)

// Kubelets as their configuration reads at the clouds: nodes of EKS identify
// themselves by IAM and rotate the certificate that they serve with, those of AKS
// that of the client.
const (
	kubeletEKS = `"authentication":{"x509":{"clientCAFile":"/etc/kubernetes/pki/ca.crt"},"webhook":{"enabled":true},"anonymous":{"enabled":false}},
		"authorization":{"mode":"Webhook"},"serverTLSBootstrap":true,"featureGates":{"RotateKubeletServerCertificate":true}`
	kubeletAKS = `"authentication":{"x509":{"clientCAFile":"/etc/kubernetes/certs/ca.crt"},"webhook":{"enabled":true},"anonymous":{"enabled":false}},
		"authorization":{"mode":"Webhook"},"rotateCertificates":true`
)

// TestKubeletControl reads a kubelet's configuration back, each part of it switched
// in turn.
func TestKubeletControl(t *testing.T) {
	swap := func(of, with string) string {
		if !strings.Contains(kubeletEKS, of) {
			t.Fatalf("%s is not there", of)
		}
		return strings.Replace(kubeletEKS, of, with, 1)
	}
	for _, tc := range []struct{ name, config, seen string }{
		{"EKS", kubeletEKS, ""},
		{"AKS", kubeletAKS, ""},
		{"anonymous", swap(`"anonymous":{"enabled":false}`, `"anonymous":{"enabled":true}`), "anonymous auth on"},
		{"anonymous by default", swap(`,"anonymous":{"enabled":false}`, ``), "anonymous auth on"},
		{"authorization", swap(`"Webhook"`, `"AlwaysAllow"`), "authorization not by webhook"},
		{"port", swap(`"serverTLSBootstrap"`, `"readOnlyPort":10255,"serverTLSBootstrap"`), "read-only port open"},
		{"client CA", swap(`"clientCAFile":"/etc/kubernetes/pki/ca.crt"`, ``), "no client CA"},
		{"rotation", swap(`"serverTLSBootstrap":true`, `"serverTLSBootstrap":false`), "certificate rotation off"},
		{"several", `"readOnlyPort":10255`, "anonymous auth on, authorization not by webhook, read-only port open, no client CA, certificate rotation off"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := readKubelet(t, http.StatusOK, `{"kubeletconfig":{`+tc.config+`}}`)
			if got.Unchecked || got.Met != (tc.seen == "") || tc.seen != "" && got.Seen != tc.seen {
				t.Errorf("%+v", got)
			}
		})
	}
	// What cannot be read is neither met nor a fault.
	for _, status := range []int{http.StatusForbidden, http.StatusServiceUnavailable} {
		if got := readKubelet(t, status, `{"kind":"Status","status":"Failure"}`); got.Met || !got.Unchecked || !strings.HasPrefix(got.Seen, "not read: ") {
			t.Errorf("%d: %+v", status, got)
		}
	}
}

func readKubelet(t *testing.T, status int, answer string) job.Control {
	t.Helper()
	api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/api/v1/nodes/node-1/proxy/configz" {
			w.WriteHeader(status)
			_, _ = fmt.Fprint(w, answer)
			return
		}
		_, _ = fmt.Fprint(w, `{"kind":"NodeList","apiVersion":"v1","items":[{"metadata":{"name":"node-1"}}]}`)
	}))
	defer api.Close()
	c, err := Client(t.Context(), cloud.KubeAccess{
		Server: api.URL, CA: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw}),
		Token: func(context.Context) (string, error) { return "token", nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := kubeletControl(t.Context(), c, "EKS-27", "CIS")
	if err != nil {
		t.Fatal(err)
	}
	return got
}
