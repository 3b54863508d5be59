package gcp

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/api/compute/v1"
	"google.golang.org/api/dns/v1"
	"google.golang.org/api/googleapi"
	"google.golang.org/api/iam/v1"

	"github.com/zopday/provisioner/internal/sim"
)

func (g *rig) fault(f sim.Fault) {
	g.t.Helper()
	if _, err := g.world.AddFault(f); err != nil {
		g.t.Fatal(err)
	}
}

func newNetwork(name string) *compute.Network {
	return &compute.Network{Name: name, ForceSendFields: []string{"AutoCreateSubnetworks"}}
}

func TestLostReplyIsMadeGoodByTheRequestID(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	s := g.compute()
	const id = "6f1c2e9a-0000-4000-8000-00000000000a"
	g.fault(sim.Fault{Kind: sim.FaultLostReply, Operation: "networks.insert"})
	if _, err := s.Networks.Insert(testProject, newNetwork("shop")).RequestId(id).Do(); err == nil {
		t.Fatal("the reply arrived")
	}
	g.fine(s.Networks.Insert(testProject, newNetwork("shop")).RequestId(id).Do())
	list, err := s.Networks.List(testProject).Filter("name = shop").Do()
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("networks: %+v, %v", list, err)
	}
	for _, bad := range []string{"x", "00000000-0000-0000-0000-000000000000"} {
		_, err = s.Networks.Insert(testProject, newNetwork("other")).RequestId(bad).Do()
		refused(t, err, 400, "invalid")
	}
}

func TestFaultKinds(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	s := g.compute()
	insert := func(name string) (*compute.Operation, error) {
		return s.Networks.Insert(testProject, newNetwork(name)).Do()
	}

	g.fault(sim.Fault{Kind: sim.FaultError, Operation: "networks.insert", Code: "backendError", Status: 503, Message: "try again"})
	_, err := insert("a")
	refused(t, err, 503, "backendError")
	g.fault(sim.Fault{Kind: sim.FaultThrottle, Service: "compute", RetryAfter: "3"})
	_, err = insert("a")
	e := refused(t, err, 403, "rateLimitExceeded")
	if e.Header.Get("Retry-After") != "3" {
		t.Error(e.Header)
	}
	g.fault(sim.Fault{Kind: sim.FaultThrottle, Service: "dns"})
	_, err = client(g, dns.NewService).ManagedZones.List(testProject).Do()
	refused(t, err, 429, "rateLimitExceeded")

	// Accepted, and the operation fails: nothing is left of it.
	g.fault(sim.Fault{Kind: sim.FaultOpFailed, Operation: "networks.insert", Code: "QUOTA_EXCEEDED", Message: "Quota 'NETWORKS' exceeded."})
	op, err := insert("a")
	if message := g.failed(op, err, "QUOTA_EXCEEDED"); message != "Quota 'NETWORKS' exceeded." {
		t.Error(message)
	}
	_, err = s.Networks.Get(testProject, "a").Do()
	refused(t, err, 404, "notFound")

	// An error without text.
	g.fault(sim.Fault{Kind: sim.FaultOpFailed, Operation: "networks.insert", Code: "INTERNAL_ERROR"})
	op, err = insert("a")
	if message := g.failed(op, err, "INTERNAL_ERROR"); message != "" {
		t.Error(message)
	}

	// An operation that never ends by itself.
	g.fault(sim.Fault{Kind: sim.FaultTransition, Operation: "networks.insert", State: "RUNNING"})
	if op, err = insert("held"); err != nil {
		t.Fatal(err)
	}
	g.world.Step(time.Hour)
	if op, err = s.GlobalOperations.Get(testProject, op.Name).Do(); err != nil || op.Status != "RUNNING" {
		t.Fatalf("held operation: %+v, %v", op, err)
	}
	if _, err := g.world.SetObjectState("projects/example-project/global/operations/"+op.Name, "DONE", "", ""); err != nil {
		t.Fatal(err)
	}
	g.fine(op, nil)

	g.fault(sim.Fault{Kind: sim.FaultSwallow, Operation: "networks.insert"})
	if _, err = insert("swallowed"); err != nil {
		t.Fatal(err)
	}
	_, err = s.Networks.Get(testProject, "swallowed").Do()
	refused(t, err, 404, "notFound")

	g.fault(sim.Fault{Kind: sim.FaultHidden, Match: "held", Seconds: 60})
	_, err = s.Networks.Get(testProject, "held").Do()
	refused(t, err, 404, "notFound")
	g.world.Step(2 * time.Minute)
	if _, err = s.Networks.Get(testProject, "held").Do(); err != nil {
		t.Fatal(err)
	}

	g.fault(sim.Fault{Kind: sim.FaultPage, Mode: "empty", Operation: "networks.list", Count: 2})
	pages, found := 0, 0
	err = s.Networks.List(testProject).Pages(t.Context(), func(l *compute.NetworkList) error {
		pages++
		found += len(l.Items)
		return nil
	})
	if err != nil || pages != 3 || found != 2 {
		t.Errorf("%d pages with %d networks, %v", pages, found, err)
	}

	g.fault(sim.Fault{Kind: sim.FaultRaw, Service: "oauth2", Status: 503, Body: "upstream connect error"})
	r, err := http.NewRequest(http.MethodPost, g.url+"/token", strings.NewReader("grant_type=x"))
	if err != nil {
		t.Fatal(err)
	}
	if status, body := do(t, r); status != 503 || body != "upstream connect error" {
		t.Errorf("%d %s", status, body)
	}

	g.fault(sim.Fault{Kind: sim.FaultRaw, Operation: "networks.list", Status: 502, Body: "<html>bad gateway</html>", ContentType: "text/html"})
	_, err = s.Networks.List(testProject).Do()
	var ge *googleapi.Error
	if !errors.As(err, &ge) || ge.Code != 502 {
		t.Error(err)
	}
}

func TestPagesAreSmallAndSomeAreEmpty(t *testing.T) {
	t.Parallel()
	g := newRig(t, func(o *sim.Options) { o.PageSize, o.EmptyPages = 2, 0.5 })
	s := g.compute()
	for i := range 7 {
		g.network(fmt.Sprintf("n%d", i))
	}
	names, empty, pages := map[string]int{}, 0, 0
	err := s.Networks.List(testProject).Pages(t.Context(), func(l *compute.NetworkList) error {
		if pages++; len(l.Items) == 0 {
			empty++
		}
		for _, n := range l.Items {
			names[n.Name]++
		}
		return nil
	})
	if err != nil || len(names) != 8 || pages < 5 || empty == 0 {
		t.Errorf("%d pages, %d empty, %v, %v", pages, empty, names, err)
	}
	for n, times := range names {
		if times != 1 {
			t.Errorf("%s was listed %d times", n, times)
		}
	}
	_, err = s.Networks.List(testProject).PageToken("nonsense").Do()
	refused(t, err, 400, "invalid")
	_, err = s.Networks.List(testProject).MaxResults(501).Do()
	refused(t, err, 400, "invalid")
}

func TestFreshObjectsAreSeenLate(t *testing.T) {
	t.Parallel()
	g := newRig(t, func(o *sim.Options) { o.ConsistencyByID, o.ConsistencyByList = time.Minute, time.Hour })
	s := g.compute()
	op, err := s.Networks.Insert(testProject, newNetwork("shop")).Do()
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Networks.Get(testProject, "shop").Do()
	refused(t, err, 404, "notFound")
	_, err = s.Networks.Insert(testProject, newNetwork("shop")).Do()
	refused(t, err, 409, "alreadyExists")
	g.fine(op, nil)
	g.world.Step(time.Minute)
	if _, err = s.Networks.Get(testProject, "shop").Do(); err != nil {
		t.Fatal(err)
	}
	g.world.Step(time.Hour)
	if list, err := s.Networks.List(testProject).Filter(`name eq "sh.*"`).Do(); err != nil || len(list.Items) != 1 {
		t.Fatalf("list: %+v, %v", list, err)
	}
}

func TestPeering(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	s := g.compute()
	left, right := g.network("left"), g.network("right")
	g.subnet(left, "a", "10.0.0.0/24")
	g.subnet(right, "b", "10.1.0.0/24")
	add := func(on, name, to string) (*compute.Operation, error) {
		return s.Networks.AddPeering(testProject, on, &compute.NetworksAddPeeringRequest{NetworkPeering: &compute.NetworkPeering{Name: name, Network: to, ExchangeSubnetRoutes: true}}).Do()
	}
	state := func(on string) string {
		n, err := s.Networks.Get(testProject, on).Do()
		if err != nil || len(n.Peerings) != 1 {
			t.Fatalf("%s: %+v, %v", on, n, err)
		}
		return n.Peerings[0].State
	}
	op, err := add("left", "to-right", right)
	if err != nil {
		t.Fatal(err)
	}
	_, err = add("right", "to-left", left)
	if e := refused(t, err, 400, "badRequest"); e.Message != peeringBusy {
		t.Error(e.Message)
	}
	g.fine(op, nil)
	if got := state("left"); got != "INACTIVE" {
		t.Errorf("one side alone is %s", got)
	}
	_, err = add("left", "again", right)
	refused(t, err, 409, "alreadyExists")
	g.fine(add("right", "to-left", left))
	if state("left") != "ACTIVE" || state("right") != "ACTIVE" {
		t.Errorf("both sides: %s, %s", state("left"), state("right"))
	}
	routes, err := s.Networks.ListPeeringRoutes(testProject, "left").PeeringName("to-right").Direction("INCOMING").Region(netRegion).Do()
	if err != nil || len(routes.Items) != 1 || routes.Items[0].DestRange != "10.1.0.0/24" {
		t.Errorf("routes: %+v, %v", routes, err)
	}
	_, err = s.Subnetworks.Insert(testProject, netRegion, &compute.Subnetwork{Name: "c", Network: left, IpCidrRange: "10.1.0.0/25"}).Do()
	refused(t, err, 400, "invalid")
	g.failed2(s.Networks.Delete(testProject, "left").Do())
	g.fine(s.Networks.RemovePeering(testProject, "left", &compute.NetworksRemovePeeringRequest{Name: "to-right"}).Do())
	if state("right") != "INACTIVE" {
		t.Errorf("what is left is %s", state("right"))
	}
	_, err = s.Networks.RemovePeering(testProject, "left", &compute.NetworksRemovePeeringRequest{Name: "to-right"}).Do()
	refused(t, err, 400, "invalid")

	third := g.network("third")
	g.subnet(third, "d", "10.1.0.0/26")
	g.fine(add("third", "to-right", right))
	g.fine(s.Networks.RemovePeering(testProject, "right", &compute.NetworksRemovePeeringRequest{Name: "to-left"}).Do())
	op, err = add("right", "to-third", third)
	if message := g.failed(op, err, "INVALID_USAGE"); !strings.Contains(message, "overlaps with an IP range in the local network (10.1.0.0/24)") {
		t.Error(message)
	}
}

// control sends a request to the control API.
func (g *rig) control(method, path, body string) map[string]any {
	g.t.Helper()
	srv := httptest.NewServer(g.world.Control())
	defer srv.Close()
	r, err := http.NewRequest(method, srv.URL+path, strings.NewReader(body))
	if err != nil {
		g.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		g.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		g.t.Fatalf("%s %s: %d %s, %v", method, path, resp.StatusCode, b, err)
	}
	var out map[string]any
	if err := json.Unmarshal(b, &out); err != nil {
		g.t.Fatal(err)
	}
	return out
}

func TestStatesFromOutside(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	subnet := g.subnet(g.network("shop"), "a", "10.0.0.0/24")
	if _, err := g.world.SetObjectState(subnet, "DRAINING", "", ""); err != nil {
		t.Fatal(err)
	}
	if s, err := g.compute().Subnetworks.Get(testProject, netRegion, "a").Do(); err != nil || s.State != "DRAINING" {
		t.Errorf("%+v, %v", s, err)
	}
	for _, id := range []string{subnet, "projects/example-project/global/networks/shop", "projects/example-project/global/networks/none"} {
		if _, err := g.world.SetObjectState(id, "BROKEN", "", ""); err == nil {
			t.Errorf("%s can be BROKEN", id)
		}
	}
}

func TestObjectsFromOutside(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	s := g.compute()
	before := g.world.Snapshot()
	g.control("POST", "/_sim/objects", `{"action":"call","cloud":"gcp","service":"compute","operation":"networks.insert","account":"example-project",
		"params":{"name":"theirs","autoCreateSubnetworks":false,"description":"made by hand for [owner=job_1]"}}`)
	g.control("POST", "/_sim/objects", `{"action":"call","cloud":"gcp","service":"compute","operation":"subnetworks.insert","region":"us-central1",
		"params":{"name":"theirs","network":"global/networks/theirs","ipCidrRange":"10.9.0.0/24"}}`)
	g.control("POST", "/_sim/objects", `{"action":"call","cloud":"gcp","service":"dns","operation":"managedZones.create","params":{"name":"theirs","dnsName":"theirs.example.","labels":{"owner":"job_1"}}}`)
	g.control("POST", "/_sim/objects", `{"action":"call","cloud":"gcp","service":"iam","operation":"projects.serviceAccounts.create","params":{"accountId":"their-account"}}`)
	if _, err := s.Subnetworks.Get(testProject, "us-central1", "theirs").Do(); err != nil {
		t.Fatal(err)
	}
	if got := g.control("GET", "/_sim/objects?owner=job_1", ""); got["total"] != 2.0 {
		t.Errorf("objects of the owner: %v", got)
	}
	var kinds []string
	for _, o := range g.world.Residue("job_1") {
		if !o.Default {
			kinds = append(kinds, o.Kind)
		}
	}
	if diff := cmp.Diff([]string{"network", "subnetwork", "managed-zone"}, kinds); diff != "" {
		t.Errorf("residue: %s", diff)
	}
	if got := g.world.Residue("job_"); len(got) != 0 {
		t.Errorf("a part of an owner finds %v", got)
	}
	g.control("POST", "/_sim/objects", `{"action":"set","id":"projects/example-project/regions/us-central1/subnetworks/theirs","set":{"privateIpGoogleAccess":true}}`)
	if sub, err := s.Subnetworks.Get(testProject, "us-central1", "theirs").Do(); err != nil || !sub.PrivateIpGoogleAccess {
		t.Errorf("after set: %+v, %v", sub, err)
	}
	for _, id := range []string{"projects/example-project/regions/us-central1/subnetworks/theirs", "projects/example-project/global/networks/theirs",
		"projects/example-project/managedZones/theirs", "projects/example-project/serviceAccounts/their-account@example-project.iam.gserviceaccount.com"} {
		g.control("POST", "/_sim/objects", `{"action":"delete","id":"`+id+`"}`)
	}
	if diff := cmp.Diff(before, g.world.Snapshot()); diff != "" {
		t.Error(diff)
	}
	if n := g.control("GET", "/_sim/requests?cloud=gcp&mutating=true", "")["total"]; n != 0.0 {
		t.Errorf("%v changes from outside are in the books", n)
	}
}

func TestBooks(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.network("shop")
	b := g.world.Books(sim.BookFilter{Operation: "networks.insert"})
	if len(b) != 1 || !b[0].Mutating || !b[0].Done || b[0].Account != testProject || b[0].Caller != "user@example.com" || b[0].Status != 200 ||
		b[0].Resources[0] != "projects/example-project/global/networks/shop" {
		t.Errorf("%+v", b)
	}
	if _, err := client(g, iam.NewService).Projects.ServiceAccounts.GetIamPolicy("projects/-/serviceAccounts/admin@example-project.iam.gserviceaccount.com").Do(); err != nil {
		t.Fatal(err)
	}
	if b = g.world.Books(sim.BookFilter{Service: "iam"}); len(b) != 1 || b[0].Mutating {
		t.Errorf("%+v", b)
	}
}

func TestStateSurvivesARestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	begin := func() (*rig, func() error) {
		w := sim.New(sim.Options{Seed: 1, ConsistencyByID: -1, ConsistencyByList: -1})
		w.Clock.Stop()
		cloud := New(w, Options{})
		stop, err := w.Persist(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		srv := httptest.NewServer(cloud)
		t.Cleanup(srv.Close)
		return &rig{t: t, world: w, cloud: cloud, url: srv.URL, token: "ya29.example"}, stop
	}
	g, stop := begin()
	g.network("shop")
	op, err := g.compute().Networks.Insert(testProject, newNetwork("half")).Do()
	if err != nil {
		t.Fatal(err)
	}
	before := g.world.Snapshot()
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	g, stop = begin()
	if diff := cmp.Diff(before, g.world.Snapshot()); diff != "" {
		t.Error(diff)
	}
	g.fine(op, nil)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}
