package aws

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/pipeline"
)

// A bundle is fetched once for all who ask meanwhile; one that does not come holds up
// neither another one nor a caller who gives up, and a failure is tried again by the next.
func TestDatabaseRootsAreFetchedApart(t *testing.T) {
	t.Parallel()
	bundle := testRoot(t)
	var asked, broken atomic.Int32
	held := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/held", func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		<-held
		w.Write(bundle)
	})
	mux.HandleFunc("/other", func(w http.ResponseWriter, _ *http.Request) { w.Write(bundle) })
	mux.HandleFunc("/broken", func(w http.ResponseWriter, _ *http.Request) {
		if broken.Add(1) == 1 {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		w.Write(bundle)
	})
	s := httptest.NewServer(mux)
	defer s.Close()
	var store rootStore
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if pool, err := store.get(t.Context(), s.URL+"/held"); err != nil || pool == nil {
				t.Errorf("of one who waited: %v", err)
			}
		})
	}
	for asked.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	hurried, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if _, err := store.get(hurried, s.URL+"/other"); err != nil {
		t.Errorf("another bundle, while one does not come: %v", err)
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	if _, err := store.get(gone, s.URL+"/held"); err == nil {
		t.Error("a caller who gave up was answered")
	}
	close(held)
	all.Wait()
	if n := asked.Load(); n != 1 {
		t.Errorf("it was fetched %d times", n)
	}
	if _, err := store.get(t.Context(), s.URL+"/broken"); !pipeline.Is(err, pipeline.Unavailable) {
		t.Errorf("a failure: %v", err)
	}
	if _, err := store.get(t.Context(), s.URL+"/broken"); err != nil {
		t.Errorf("after a failure: %v", err)
	}
}
