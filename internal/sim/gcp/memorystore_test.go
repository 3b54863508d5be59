package gcp

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	memorystore "cloud.google.com/go/memorystore/apiv1"
	"cloud.google.com/go/memorystore/apiv1/memorystorepb"
	"google.golang.org/api/compute/v1"
	"google.golang.org/api/iterator"
	"google.golang.org/api/networkconnectivity/v1"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/zopday/provisioner/internal/sim"
)

// valkeyRig is a rig with clients of Memorystore for Valkey, and a network with a service connection policy.
type valkeyRig struct {
	*rig
	db       *fakeDatabases
	client   *memorystore.Client
	policies *networkconnectivity.ProjectsLocationsService
	network  string
	subnet   string
}

func newValkey(t *testing.T) *valkeyRig {
	t.Helper()
	db := &fakeDatabases{servers: map[string]sim.DatabaseServer{}, stopped: map[string]bool{}}
	g := &valkeyRig{rig: newRigWith(t, Options{Databases: db}), db: db}
	var err error
	if g.client, err = memorystore.NewRESTClient(context.Background(), g.options("/memorystore")...); err != nil {
		t.Fatal(err)
	}
	g.policies = client(g.rig, networkconnectivity.NewService).Projects.Locations
	c := g.compute()
	g.network, g.subnet = "projects/"+testProject+"/global/networks/shop", "projects/"+testProject+"/regions/europe-west1/subnetworks/database"
	g.fine(c.Networks.Insert(testProject, &compute.Network{Name: "shop", ForceSendFields: []string{"AutoCreateSubnetworks"}}).Do())
	g.fine(c.Subnetworks.Insert(testProject, "europe-west1", &compute.Subnetwork{Name: "database", Network: g.network, IpCidrRange: "10.4.0.0/24"}).Do())
	return g
}

// settled steps the clock until an operation on a policy is done.
func (g *valkeyRig) settled(op *networkconnectivity.GoogleLongrunningOperation, err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
	for !op.Done {
		g.world.Step(10 * time.Second)
		if op, err = g.policies.Operations.Get(op.Name).Do(); err != nil {
			g.t.Fatal(err)
		}
	}
	if op.Error != nil {
		g.t.Fatalf("operation: %+v", op.Error)
	}
}

func (g *valkeyRig) allow() string {
	g.t.Helper()
	g.settled(g.policies.ServiceConnectionPolicies.Create(redisParent, &networkconnectivity.ServiceConnectionPolicy{Network: g.network, ServiceClass: "gcp-memorystore",
		PscConfig: &networkconnectivity.PscConfig{Subnetworks: []string{g.subnet}}}).ServiceConnectionPolicyId("valkey").Do())
	return redisParent + "/serviceConnectionPolicies/valkey"
}

func (g *valkeyRig) request() *memorystorepb.CreateInstanceRequest {
	replicas, protected := int32(1), true
	return &memorystorepb.CreateInstanceRequest{Parent: redisParent, InstanceId: "sessions", Instance: &memorystorepb.Instance{
		Mode: memorystorepb.Instance_CLUSTER_DISABLED, ShardCount: 1, ReplicaCount: &replicas, NodeType: memorystorepb.Instance_STANDARD_SMALL, EngineVersion: "VALKEY_8_0",
		TransitEncryptionMode: memorystorepb.Instance_SERVER_AUTHENTICATION, DeletionProtectionEnabled: &protected, Labels: map[string]string{"zopday-job": "j3"},
		Endpoints: []*memorystorepb.Instance_InstanceEndpoint{{Connections: []*memorystorepb.Instance_ConnectionDetail{{Connection: &memorystorepb.Instance_ConnectionDetail_PscAutoConnection{
			PscAutoConnection: &memorystorepb.PscAutoConnection{Network: g.network, ProjectId: testProject}}}}}}}}
}

// ended steps the clock until an operation is done.
func (g *valkeyRig) ended(poll func() (bool, error)) {
	g.t.Helper()
	for range 100 {
		g.world.Step(10 * time.Second)
		if done, err := poll(); err != nil {
			g.t.Fatal(err)
		} else if done {
			return
		}
	}
	g.t.Fatal("the operation never ends")
}

// endpointsKeep: the endpoints of an instance keep subnetwork and policy from being deleted.
func (g *valkeyRig) endpointsKeep(policy string) {
	g.t.Helper()
	fails := func(op *compute.Operation, err error) {
		g.t.Helper()
		if err != nil {
			refused(g.t, err, 400, "resourceInUseByAnotherResource")
		} else if op = g.done(op, nil); op.Error == nil {
			g.t.Error("a subnetwork with endpoints was deleted")
		}
	}
	fails(g.compute().Subnetworks.Delete(testProject, "europe-west1", "database").Do())
	_, err := g.policies.ServiceConnectionPolicies.Delete(policy).Do()
	refused(g.t, err, 400, "")
}

func TestValkeyInstance(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	g := newValkey(t)
	policy := g.allow()
	op, err := g.client.CreateInstance(ctx, g.request())
	if err != nil {
		t.Fatal(err)
	}
	g.ended(func() (bool, error) { _, err := op.Poll(ctx); return op.Done(), err })
	name := redisParent + "/instances/sessions"
	in, err := g.client.GetInstance(ctx, &memorystorepb.GetInstanceRequest{Name: name})
	if err != nil || in.State != memorystorepb.Instance_ACTIVE || in.Mode != memorystorepb.Instance_CLUSTER_DISABLED || in.NodeType != memorystorepb.Instance_STANDARD_SMALL || len(in.Endpoints) != 1 {
		t.Fatalf("instance: %v, %v", in, err)
	}
	auto := in.Endpoints[0].Connections[0].GetPscAutoConnection()
	if auto.IpAddress != "127.0.0.1" || auto.GetPort() != 20001 || auto.ConnectionType != memorystorepb.ConnectionType_CONNECTION_TYPE_PRIMARY {
		t.Errorf("endpoint: %v", auto)
	}
	if server := g.db.only(t); !server.RequireTLS || !server.OpenDefault || server.Engine != "redis" {
		t.Errorf("server: %+v", server)
	}
	if ca, err := g.client.GetCertificateAuthority(ctx, &memorystorepb.GetCertificateAuthorityRequest{Name: name}); err != nil || ca.GetManagedServerCa().GetCaCerts()[0].Certificates[0] != "the authority" {
		t.Errorf("authority: %v, %v", ca, err)
	}
	it := g.client.ListInstances(ctx, &memorystorepb.ListInstancesRequest{Parent: redisParent})
	if first, err := it.Next(); err != nil || first.Name != name {
		t.Errorf("list: %v, %v", first, err)
	}
	if _, err := it.Next(); !errors.Is(err, iterator.Done) {
		t.Errorf("list: %v", err)
	}
	g.endpointsKeep(policy)
	if _, err := g.client.DeleteInstance(ctx, &memorystorepb.DeleteInstanceRequest{Name: name}); err == nil || !strings.Contains(err.Error(), "deletion protected") {
		t.Errorf("deletion of a protected instance: %v", err)
	}
	off := false
	up, err := g.client.UpdateInstance(ctx, &memorystorepb.UpdateInstanceRequest{Instance: &memorystorepb.Instance{Name: name, DeletionProtectionEnabled: &off}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"deletion_protection_enabled"}}})
	if err != nil {
		t.Fatal(err)
	}
	g.ended(func() (bool, error) { _, err := up.Poll(ctx); return up.Done(), err })
	del, err := g.client.DeleteInstance(ctx, &memorystorepb.DeleteInstanceRequest{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	g.ended(func() (bool, error) { err := del.Poll(ctx); return del.Done(), err })
	g.world.Step(5 * time.Minute)
	g.settled(g.policies.ServiceConnectionPolicies.Delete(policy).Do())
	g.fine(g.compute().Subnetworks.Delete(testProject, "europe-west1", "database").Do())
	if len(g.db.servers) != 0 {
		t.Error("the server of a deleted instance is still open")
	}
}

func TestValkeyRefusals(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	g := newValkey(t)
	for want, change := range map[string]func(*memorystorepb.CreateInstanceRequest){
		"is not supported":                   func(r *memorystorepb.CreateInstanceRequest) { r.Instance.EngineVersion = "VALKEY_6_0" },
		"shard_count 3 is not valid":         func(r *memorystorepb.CreateInstanceRequest) { r.Instance.ShardCount = 3 },
		"At least one network must be given": func(r *memorystorepb.CreateInstanceRequest) { r.Instance.Endpoints = nil },
		"Invalid instance ID":                func(r *memorystorepb.CreateInstanceRequest) { r.InstanceId = "S" },
		"not a valid location":               func(r *memorystorepb.CreateInstanceRequest) { r.Parent = "projects/" + testProject + "/locations/mars" },
	} {
		r := g.request()
		change(r)
		if _, err := g.client.CreateInstance(ctx, r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	op, err := g.client.CreateInstance(ctx, g.request())
	if err != nil {
		t.Fatal(err)
	}
	g.world.Step(10 * time.Minute)
	if _, err := op.Poll(ctx); err == nil || !strings.Contains(err.Error(), "service connection policy") {
		t.Errorf("an instance in a network without policy: %v", err)
	}
	if _, err := g.client.GetInstance(ctx, &memorystorepb.GetInstanceRequest{Name: redisParent + "/instances/sessions"}); err == nil {
		t.Error("an instance that could not be made is there")
	}
}
