package provision

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/zopday/provisioner/internal/cloud"
)

// A fakeAPIServer is as much of a Kubernetes API server as namespaces need.
type fakeAPIServer struct {
	server *httptest.Server
	mu     sync.Mutex
	names  map[string]map[string]string // labels by name
	deny   bool
	tokens []string
}

const clusterToken = "token-of-the-cluster-canary"

func newFakeAPIServer(t *testing.T) *fakeAPIServer {
	a := &fakeAPIServer{names: map[string]map[string]string{"default": nil, "kube-system": nil}}
	a.server = httptest.NewTLSServer(a)
	t.Cleanup(a.server.Close)
	return a
}

func (a *fakeAPIServer) access() cloud.KubeAccess {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.server.Certificate().Raw})
	return cloud.KubeAccess{Server: a.server.URL, CA: ca, Token: func(context.Context) (string, error) { return clusterToken, nil }}
}

func (a *fakeAPIServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tokens = append(a.tokens, r.Header.Get("Authorization"))
	answer := func(status int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(v)
	}
	fault := func(status int, reason, message string) {
		answer(status, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": message, "code": status})
	}
	object := func(name string) map[string]any {
		return map[string]any{"metadata": map[string]any{"name": name, "labels": a.names[name], "creationTimestamp": "2026-11-30T10:00:00Z"}, "status": map[string]any{"phase": "Active"}}
	}
	switch {
	case a.deny:
		fault(http.StatusForbidden, "Forbidden", "namespaces is forbidden")
	case r.URL.Path == "/version":
		answer(200, map[string]string{"gitVersion": "v1.36.2", "major": "1", "minor": "36"})
	case r.URL.Path == "/api/v1/namespaces" && r.Method == http.MethodGet:
		items := []any{}
		for _, name := range sortedKeys(anyMap(a.names)) {
			items = append(items, object(name))
		}
		answer(200, map[string]any{"kind": "NamespaceList", "apiVersion": "v1", "metadata": map[string]any{}, "items": items})
	case r.URL.Path == "/api/v1/namespaces":
		name, labels := namespaceOf(r)
		if _, there := a.names[name]; there {
			fault(http.StatusConflict, "AlreadyExists", "namespaces already exists")
			return
		}
		for k := range labels {
			if strings.Contains(k, " ") {
				fault(http.StatusUnprocessableEntity, "Invalid", "metadata.labels: Invalid value: "+k)
				return
			}
		}
		a.names[name] = labels
		answer(201, object(name))
	default:
		fault(http.StatusNotFound, "NotFound", "nothing here: "+r.URL.Path)
	}
}

// namespaceOf reads a namespace as typed clients send one: in protocol buffers,
// with four bytes before, inside of an envelope.
func namespaceOf(r *http.Request) (name string, labels map[string]string) {
	body, _ := io.ReadAll(r.Body)
	meta := field(field(body[min(4, len(body)):], 2)[0], 1)[0]
	labels = map[string]string{}
	for _, entry := range field(meta, 11) {
		labels[string(field(entry, 1)[0])] = string(field(entry, 2)[0])
	}
	return string(field(meta, 1)[0]), labels
}

// field is what a message has in a field of bytes; one empty value if nothing.
func field(message []byte, number protowire.Number) (out [][]byte) {
	for len(message) > 0 {
		n, typ, size := protowire.ConsumeTag(message)
		if size < 0 {
			break
		}
		message = message[size:]
		size = protowire.ConsumeFieldValue(n, typ, message)
		if size < 0 {
			break
		}
		if n == number && typ == protowire.BytesType {
			v, _ := protowire.ConsumeBytes(message)
			out = append(out, v)
		}
		message = message[size:]
	}
	if out == nil && number != 11 {
		return [][]byte{nil}
	}
	return out
}

func anyMap[V any](m map[string]V) map[string]any {
	out := map[string]any{}
	for k, v := range m {
		out[k] = v
	}
	return out
}
