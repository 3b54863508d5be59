package gcp

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/api/compute/v1"
	"google.golang.org/api/googleapi"
	"google.golang.org/api/option"

	"github.com/zopday/provisioner/internal/sim"
)

// rig is a simulated GCP behind a real HTTP server, with a stopped clock.
type rig struct {
	t     *testing.T
	world *sim.World
	cloud *Cloud
	url   string
	token string
}

func newRig(t *testing.T, opt ...func(*sim.Options)) *rig {
	t.Helper()
	o := sim.Options{Seed: 1, ConsistencyByID: -1, ConsistencyByList: -1, EmptyPages: -1}
	for _, f := range opt {
		f(&o)
	}
	w := sim.New(o)
	w.Clock.Stop()
	cloud := New(w, Options{})
	srv := httptest.NewServer(cloud)
	t.Cleanup(srv.Close)
	return &rig{t: t, world: w, cloud: cloud, url: srv.URL, token: "ya29.example"}
}

type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

// options point a client of google.golang.org/api at the simulation.
func (g *rig) options(base string) []option.ClientOption {
	return []option.ClientOption{option.WithEndpoint(g.url + base), option.WithHTTPClient(&http.Client{Transport: bearer(g.token)})}
}

func (g *rig) compute() *compute.Service {
	g.t.Helper()
	s, err := compute.NewService(context.Background(), g.options("/compute/v1/")...)
	if err != nil {
		g.t.Fatal(err)
	}
	return s
}

// done steps the clock until an operation is done, and answers it.
func (g *rig) done(op *compute.Operation, err error) *compute.Operation {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
	s := g.compute()
	for range 50 {
		var now *compute.Operation
		switch {
		case op.Zone != "":
			now, err = s.ZoneOperations.Get(testProject, lastSegment(op.Zone), op.Name).Do()
		case op.Region != "":
			now, err = s.RegionOperations.Get(testProject, lastSegment(op.Region), op.Name).Do()
		default:
			now, err = s.GlobalOperations.Get(testProject, op.Name).Do()
		}
		if err != nil {
			g.t.Fatal(err)
		}
		if now.Status == "DONE" {
			return now
		}
		g.world.Step(5 * time.Second)
	}
	g.t.Fatalf("%s of %s does not end", op.OperationType, op.TargetLink)
	return nil
}

// fine is done for an operation that must not fail.
func (g *rig) fine(op *compute.Operation, err error) *compute.Operation {
	g.t.Helper()
	op = g.done(op, err)
	if op.Error != nil {
		g.t.Fatalf("%s of %s: %s: %s", op.OperationType, op.TargetLink, op.Error.Errors[0].Code, op.Error.Errors[0].Message)
	}
	return op
}

const testProject = "example-project"

func lastSegment(link string) string {
	res := Resource{Path: link}
	return res.name()
}

// refused fails the test unless an error has the status and the reason.
func refused(t *testing.T, err error, status int, reason string) *googleapi.Error {
	t.Helper()
	var e *googleapi.Error
	if !errors.As(err, &e) {
		t.Fatalf("want %d %s, got %v", status, reason, err)
	}
	if e.Code != status || (reason != "" && (len(e.Errors) == 0 || e.Errors[0].Reason != reason)) {
		t.Fatalf("want %d %s, got %d %v: %s", status, reason, e.Code, e.Errors, e.Message)
	}
	return e
}

func TestNetworkLife(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	s := g.compute()
	in := &compute.Network{Name: "shop", AutoCreateSubnetworks: false, ForceSendFields: []string{"AutoCreateSubnetworks"}}
	op, err := s.Networks.Insert(testProject, in).RequestId("6f1c2e9a-0000-4000-8000-000000000001").Do()
	if err != nil {
		t.Fatal(err)
	}
	if op.Status != "RUNNING" || op.Kind != "compute#operation" || op.TargetLink != apiRoot+"projects/example-project/global/networks/shop" {
		t.Errorf("operation: %+v", op)
	}
	again, err := s.Networks.Insert(testProject, in).RequestId("6f1c2e9a-0000-4000-8000-000000000001").Do()
	if err != nil || again.Name != op.Name {
		t.Errorf("the same request ID: %v, %v", again, err)
	}
	other := *in
	other.Name = "other"
	_, err = s.Networks.Insert(testProject, &other).RequestId("6f1c2e9a-0000-4000-8000-000000000001").Do()
	refused(t, err, 400, "invalid")
	_, err = s.Networks.Insert(testProject, in).Do()
	refused(t, err, 409, "alreadyExists")
	_, err = s.Networks.Delete(testProject, "shop").Do()
	refused(t, err, 400, "resourceNotReady")
	g.fine(op, nil)
	n, err := s.Networks.Get(testProject, "shop").Do()
	if err != nil || n.SelfLink != op.TargetLink || n.Id == 0 {
		t.Fatalf("network: %+v, %v", n, err)
	}
	g.fine(s.Networks.Delete(testProject, "shop").Do())
	_, err = s.Networks.Get(testProject, "shop").Do()
	refused(t, err, 404, "notFound")
}

func TestFrontRefusals(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	post := func(body, token string) (int, string) {
		r, err := http.NewRequest(http.MethodPost, g.url+"/compute/v1/projects/example-project/global/networks", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		return do(t, r)
	}
	for _, c := range []struct {
		name, body, token string
		status            int
		want              string
	}{
		{"no token", `{}`, "", 401, `"status": "UNAUTHENTICATED"`},
		{"unknown token", `{}`, "ya29.stale", 401, `"reason": "authError"`},
		{"foreign project", `{}`, "ya29.other", 403, `Required 'compute.networks.create' permission for 'projects/example-project'`},
		{"unknown field", `{"name":"a","colour":"red"}`, "ya29.example", 400, `Unknown name \"colour\" at 'network_resource': Cannot find field.`},
		{"wrong type", `{"name":"a","mtu":"wide"}`, "ya29.example", 400, `Invalid value at 'network_resource.mtu' (TYPE_INT32), \"wide\"`},
		{"wrong enum", `{"name":"a","autoCreateSubnetworks":false,"routingConfig":{"routingMode":"LOCAL"}}`, "ya29.example", 400, `Invalid value for field 'resource.routingConfig.routingMode': 'LOCAL'`},
		{"no name", `{"autoCreateSubnetworks":false}`, "ya29.example", 400, `Required field 'resource.name' not specified`},
		{"bad name", `{"name":"Shop","autoCreateSubnetworks":false}`, "ya29.example", 400, `Must be a match of regex`},
		{"no JSON", `{`, "ya29.example", 400, `Invalid JSON payload received.`},
		{"legacy network", `{"name":"a"}`, "ya29.example", 400, `Legacy networks`},
	} {
		status, body := post(c.body, c.token)
		if status != c.status || !strings.Contains(body, c.want) {
			t.Errorf("%s: %d %s; want %d and %q", c.name, status, body, c.status, c.want)
		}
	}
}

// do sends a request and answers status and body.
func do(t *testing.T, r *http.Request) (int, string) {
	t.Helper()
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}
