package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/zopday/provisioner/internal/sim"
	simazure "github.com/zopday/provisioner/internal/sim/azure"
)

// rootFiles are the certificates that clients of the simulation trust.
type rootFiles struct{ clusters, databases, azure string }

// roots leaves the certificates in a directory. What is Azure's own and what its
// datastores have is one file there, since a client of Azure is given one.
func (s *simulation) roots(dir string) (rootFiles, error) {
	r := rootFiles{filepath.Join(dir, "kubernetes-ca.pem"), filepath.Join(dir, "database-roots.pem"), filepath.Join(dir, "azure-roots.pem")}
	azure, err := os.ReadFile(filepath.Join(dir, simazure.CAFile))
	if err != nil {
		return r, fmt.Errorf("certificate of the simulated Azure: %w", err)
	}
	for path, content := range map[string][]byte{
		r.clusters: s.kube.CA(), r.databases: s.databases.CA(), r.azure: append(azure, s.databases.CA()...),
	} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return r, fmt.Errorf("certificates of the simulation: %w", err)
		}
	}
	return r, nil
}

// callerAddress is the product's public address, as the simulated internet sees it.
var callerAddress = netip.MustParseAddr("203.0.113.7")

// caller is where connections to clusters and datastores come from.
func (s *simulation) caller() sim.KubeCaller {
	s.mu.Lock()
	defer s.mu.Unlock()
	return sim.KubeCaller{IP: callerAddress, Inside: s.inside}
}

// controls is the world's control API, and where callers stand.
func (s *simulation) controls() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", s.world.Control())
	mux.HandleFunc("/_sim/caller", s.controlCaller)
	return mux
}

func (s *simulation) controlCaller(w http.ResponseWriter, r *http.Request) {
	answer := func(status int, body any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(body) // the client has gone away if this fails
	}
	switch r.Method {
	case http.MethodGet:
	case http.MethodPost:
		var to struct {
			Inside *bool `json:"inside"`
		}
		in := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<10))
		in.DisallowUnknownFields()
		if err := in.Decode(&to); err != nil || to.Inside == nil {
			answer(http.StatusBadRequest, map[string]string{"error": `body: want {"inside": true} or {"inside": false}`})
			return
		}
		s.mu.Lock()
		s.inside = *to.Inside
		s.mu.Unlock()
		s.kube.SetCaller(s.caller())
		s.databases.SetCaller(s.caller())
	default:
		w.Header().Set("Allow", "GET, POST")
		answer(http.StatusMethodNotAllowed, map[string]string{"error": "/_sim/caller takes GET or POST"})
		return
	}
	answer(http.StatusOK, map[string]bool{"inside": s.caller().Inside})
}
