package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/cli"
	"github.com/zopday/provisioner/internal/sim"
)

// TestSimulatedPlace: where callers stand is said at the start and can be changed, and datastores
// let in or cut off accordingly; what clients are to trust is in the files that the environment names.
func TestSimulatedPlace(t *testing.T) {
	t.Parallel()
	got, err := simulate(t.Context(), cli.SimOptions{Control: "0", AWS: "0", GCP: "0", Azure: "0", Charts: "0", TimeScale: 1, Inside: true})
	if err != nil {
		t.Fatal(err)
	}
	s := got.(*simulation)
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	for _, c := range s.Clouds() {
		for _, v := range c.Env {
			if !strings.HasSuffix(v.Name, "_CA_FILE") {
				continue
			}
			content, err := os.ReadFile(v.Value)
			if err != nil || !strings.Contains(string(content), "BEGIN CERTIFICATE") {
				t.Errorf("%s: %v", v.Name, err)
			}
			if has := bytes.Contains(content, s.databases.CA()); has != (c.Provider != "gcp") {
				t.Errorf("%s has the datastores' authority: %t", v.Name, has)
			}
		}
	}
	e := s.databases.Open(sim.DatabaseServer{ID: "cache", Engine: "redis", Admits: func(from sim.KubeCaller) bool { return from.Inside }, OpenDefault: true})
	ping := func() bool {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", net.JoinHostPort(e.Host, strconv.Itoa(e.Port)))
		if err != nil {
			return false
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		_, _ = conn.Write([]byte("PING\r\n"))
		answer := make([]byte, 5)
		n, _ := conn.Read(answer)
		return string(answer[:n]) == "+PONG"
	}
	if !ping() || s.Reach() != "direct" {
		t.Errorf("inside: %s", s.Reach())
	}
	for _, step := range []struct {
		body   string
		status int
		inside bool
	}{
		{`{"inside":false}`, http.StatusOK, false}, {`{"inside":true}`, http.StatusOK, true}, {`{}`, http.StatusBadRequest, true}, {`{"outside":true}`, http.StatusBadRequest, true},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.ControlURL()+"/_sim/caller", strings.NewReader(step.body))
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		var answer struct{ Inside bool }
		err = json.NewDecoder(res.Body).Decode(&answer)
		res.Body.Close()
		if res.StatusCode != step.status || err != nil || step.status == http.StatusOK && answer.Inside != step.inside {
			t.Errorf("%s: %d, %t, %v", step.body, res.StatusCode, answer.Inside, err)
		}
		if ping() != step.inside {
			t.Errorf("%s: let in: %t", step.body, !step.inside)
		}
	}
}
