package gcp

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/api/compute/v1"
	"google.golang.org/api/dns/v1"
	"google.golang.org/api/servicenetworking/v1"
	"google.golang.org/api/serviceusage/v1"
)

func TestPrivateConnections(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	s, c := client(g, servicenetworking.NewService), g.compute()
	network := g.network("shop")
	byNumber := strings.Replace(network, testProject, "123456789012", 1)
	const service = "services/servicenetworking.googleapis.com"
	list, err := s.Services.Connections.List(service).Network(byNumber).Do()
	if err != nil || len(list.Connections) != 0 {
		t.Fatalf("no connection: %+v, %v", list, err)
	}
	g.fine(c.GlobalAddresses.Insert(testProject, &compute.Address{Name: "range", AddressType: "INTERNAL", Purpose: "VPC_PEERING", PrefixLength: 20, Network: network}).Do())
	wait := func(op *servicenetworking.Operation, err error) *servicenetworking.Operation {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		if op.Done || !strings.HasPrefix(op.Name, "operations/pssn.") {
			t.Fatalf("operation: %+v", op)
		}
		g.world.Step(time.Minute)
		op, err = s.Operations.Get(op.Name).Do()
		if err != nil || !op.Done {
			t.Fatalf("operation: %+v, %v", op, err)
		}
		return op
	}
	in := &servicenetworking.Connection{Network: byNumber, ReservedPeeringRanges: []string{"range"}}
	if op := wait(s.Services.Connections.Patch(service+"/connections/-", in).Do()); op.Error == nil || op.Error.Code != rpcNotFound {
		t.Errorf("a patch without force makes a connection: %+v", op)
	}
	if op := wait(s.Services.Connections.Patch(service+"/connections/-", in).Force(true).UpdateMask("reservedPeeringRanges").Do()); op.Error != nil {
		t.Fatalf("patch: %+v", op.Error)
	}
	if op := wait(s.Services.Connections.Create(service, in).Do()); op.Error == nil || op.Error.Code != rpcFailedPrecondition {
		t.Errorf("a second connection: %+v", op)
	}
	list, err = s.Services.Connections.List(service).Network(byNumber).Do()
	if err != nil || len(list.Connections) != 1 || list.Connections[0].Peering != "servicenetworking-googleapis-com" || list.Connections[0].Network != byNumber {
		t.Fatalf("connection: %+v, %v", list, err)
	}
	n, err := c.Networks.Get(testProject, "shop").Do()
	if err != nil || len(n.Peerings) != 1 || n.Peerings[0].State != "ACTIVE" {
		t.Fatalf("peering: %+v, %v", n, err)
	}
	used := true
	g.cloud.hooks.producers = append(g.cloud.hooks.producers, func(at string) []string {
		if used && at == network {
			return []string{"a database"}
		}
		return nil
	})
	_, err = c.GlobalAddresses.Delete(testProject, "range").Do()
	refused(t, err, 400, "resourceInUseByAnotherResource")
	gone := &servicenetworking.DeleteConnectionRequest{ConsumerNetwork: byNumber}
	if op := wait(s.Services.Connections.DeleteConnection(service+"/connections/servicenetworking-googleapis-com", gone).Do()); op.Error == nil || op.Error.Code != rpcFailedPrecondition ||
		!strings.Contains(op.Error.Message, "Producer services (e.g. CloudSQL, Cloud Memstore, etc.) are still using this connection.") {
		t.Errorf("deletion of a used connection: %+v", op)
	}
	g.failed2(c.Networks.Delete(testProject, "shop").Do())
	used = false
	if op := wait(s.Services.Connections.DeleteConnection(service+"/connections/servicenetworking-googleapis-com", gone).Do()); op.Error != nil {
		t.Errorf("deletion: %+v", op.Error)
	}
	g.fine(c.GlobalAddresses.Delete(testProject, "range").Do())
	g.fine(c.Networks.Delete(testProject, "shop").Do())
}

// failed2 is failed for a network that is in use.
func (g *rig) failed2(op *compute.Operation, err error) string {
	g.t.Helper()
	return g.failed(op, err, "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE")
}

func TestDisabledAPIs(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	s, d := client(g, serviceusage.NewService), client(g, dns.NewService)
	name := "projects/" + testProject + "/services/dns.googleapis.com"
	op, err := s.Services.Disable(name, &serviceusage.DisableServiceRequest{}).Do()
	if err != nil || op.Done {
		t.Fatalf("disable: %+v, %v", op, err)
	}
	g.world.Step(time.Minute)
	_, err = d.ManagedZones.List(testProject).Do()
	e := refused(t, err, 403, "accessNotConfigured")
	if !strings.Contains(e.Body, "SERVICE_DISABLED") || !strings.Contains(e.Message, "Cloud DNS API has not been used in project 123456789012 before or it is disabled.") {
		t.Error(e.Body)
	}
	if op, err = s.Services.Enable(name, &serviceusage.EnableServiceRequest{}).Do(); err != nil {
		t.Fatal(err)
	}
	g.world.Step(10 * time.Second)
	if op, err = s.Operations.Get(op.Name).Do(); err != nil || !op.Done {
		t.Fatalf("enable: %+v, %v", op, err)
	}
	_, err = d.ManagedZones.List(testProject).Do()
	refused(t, err, 403, "accessNotConfigured")
	g.world.Step(time.Minute)
	if _, err = d.ManagedZones.List(testProject).Do(); err != nil {
		t.Fatal(err)
	}
	got, err := s.Services.BatchGet("projects/" + testProject).Names(name).Do()
	if err != nil || got.Services[0].State != "ENABLED" {
		t.Fatalf("batchGet: %+v, %v", got, err)
	}
	if op, err = s.Services.Enable(name, &serviceusage.EnableServiceRequest{}).Do(); err != nil || !op.Done {
		t.Fatalf("enable again: %+v, %v", op, err)
	}
}
