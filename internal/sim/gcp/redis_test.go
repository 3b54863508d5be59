package gcp

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/api/redis/v1"
	"google.golang.org/api/servicenetworking/v1"

	"github.com/zopday/provisioner/internal/sim"
)

type redisRig struct {
	*rig
	db *fakeDatabases
	*redis.ProjectsLocationsService
}

const redisParent = "projects/" + testProject + "/locations/europe-west1"

func newRedis(t *testing.T) *redisRig {
	t.Helper()
	db := &fakeDatabases{servers: map[string]sim.DatabaseServer{}, stopped: map[string]bool{}}
	g := &redisRig{rig: newRigWith(t, Options{Databases: db}), db: db}
	g.ProjectsLocationsService = client(g.rig, redis.NewService).Projects.Locations
	return g
}

// ends steps the clock until an operation is done, and answers it.
func (g *redisRig) ends(op *redis.Operation, err error) *redis.Operation {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
	for range 100 {
		if op.Done {
			return op
		}
		g.world.Step(10 * time.Second)
		if op, err = g.Operations.Get(op.Name).Do(); err != nil {
			g.t.Fatal(err)
		}
	}
	g.t.Fatalf("operation %s never ends", op.Name)
	return nil
}

func (g *redisRig) well(op *redis.Operation, err error) {
	g.t.Helper()
	if op = g.ends(op, err); op.Error != nil {
		g.t.Fatalf("operation: %+v", op.Error)
	}
}

func cache(network string) *redis.Instance {
	return &redis.Instance{Tier: "STANDARD_HA", MemorySizeGb: 5, AuthorizedNetwork: network, ConnectMode: "PRIVATE_SERVICE_ACCESS", AuthEnabled: true, RedisVersion: "REDIS_7_2",
		TransitEncryptionMode: "SERVER_AUTHENTICATION", Labels: map[string]string{"zopday-job": "j2"}, PersistenceConfig: &redis.PersistenceConfig{PersistenceMode: "RDB", RdbSnapshotPeriod: "SIX_HOURS"},
		MaintenancePolicy: &redis.MaintenancePolicy{WeeklyMaintenanceWindow: []*redis.WeeklyMaintenanceWindow{{Day: "SUNDAY", StartTime: &redis.TimeOfDay{Hours: 3}}}}}
}

func TestRedisInstance(t *testing.T) {
	t.Parallel()
	g := newRedis(t)
	network := g.peered("shop", 24)
	name := redisParent + "/instances/sessions"
	op, err := g.Instances.Create(redisParent, cache(network)).InstanceId("sessions").Do()
	if err != nil || op.Done {
		t.Fatalf("create: %+v, %v", op, err)
	}
	_, err = g.Instances.Delete(name).Do()
	refused(t, err, 409, "")
	if in, err := g.Instances.Get(name).Do(); err != nil || in.State != "CREATING" || in.Host != "" {
		t.Fatalf("instance: %+v, %v", in, err)
	}
	g.well(op, nil)
	in, err := g.Instances.Get(name).Do()
	if err != nil || in.State != "READY" || in.Host != "127.0.0.1" || in.Port != 20001 || len(in.ServerCaCerts) != 1 || in.ServerCaCerts[0].Cert != "the authority" || len(in.Nodes) != 2 {
		t.Fatalf("instance: %+v, %v", in, err)
	}
	auth, err := g.Instances.GetAuthString(name).Do()
	server := g.db.only(t)
	if err != nil || auth.AuthString == "" || server.Password != auth.AuthString || server.OpenDefault || !server.RequireTLS || server.Engine != "redis" {
		t.Errorf("AUTH string %q, %v; server %+v", auth.AuthString, err, server)
	}
	if !server.Admits(sim.KubeCaller{Inside: true}) || server.Admits(sim.KubeCaller{}) {
		t.Error("an instance lets in those that are inside, and nobody else")
	}
	g.well(g.Instances.Patch(name, &redis.Instance{MemorySizeGb: 8}).UpdateMask("memorySizeGb").Do())
	if list, err := g.Instances.List("projects/" + testProject + "/locations/-").Do(); err != nil || len(list.Instances) != 1 || list.Instances[0].MemorySizeGb != 8 {
		t.Errorf("instances: %+v, %v", list, err)
	}
	g.well(g.Instances.Delete(name).Do())
	_, err = g.Instances.Get(name).Do()
	refused(t, err, 404, "")
	if len(g.db.servers) != 0 {
		t.Error("the server of a deleted instance is still open")
	}
	// What is left of it keeps the private connection busy for a while.
	sn := client(g.rig, servicenetworking.NewService)
	remove := func() *servicenetworking.Operation {
		op, err := sn.Services.Connections.DeleteConnection("services/servicenetworking.googleapis.com/connections/servicenetworking-googleapis-com",
			&servicenetworking.DeleteConnectionRequest{ConsumerNetwork: g.byNumber(network)}).Do()
		if err != nil {
			t.Fatal(err)
		}
		return g.connected(sn, op)
	}
	if op := remove(); op.Error == nil || op.Error.Code != 9 || !strings.Contains(op.Error.Message, "still using this connection") {
		t.Errorf("deletion of a connection in use: %+v", op)
	}
	g.world.Step(30 * time.Minute)
	if op := remove(); op.Error != nil {
		t.Errorf("deletion of a connection that is free: %+v", op.Error)
	}
}

func TestRedisRefusals(t *testing.T) {
	t.Parallel()
	g := newRedis(t)
	network := g.peered("shop", 24)
	for _, c := range []struct {
		want string
		in   *redis.Instance
	}{
		{"Tier must be specified", &redis.Instance{MemorySizeGb: 1}},
		{"between 1 and 300", &redis.Instance{Tier: "BASIC", MemorySizeGb: 400}},
		{"is not supported", &redis.Instance{Tier: "BASIC", MemorySizeGb: 1, RedisVersion: "REDIS_3_2"}},
		{"is not in region", &redis.Instance{Tier: "BASIC", MemorySizeGb: 1, LocationId: "us-central1-a"}},
		{"authorized_network must exist", &redis.Instance{Tier: "BASIC", MemorySizeGb: 1, AuthorizedNetwork: "projects/" + testProject + "/global/networks/other"}},
		{"Google private service access", &redis.Instance{Tier: "BASIC", MemorySizeGb: 1, ConnectMode: "PRIVATE_SERVICE_ACCESS"}},
		{"is not part of the private connection", &redis.Instance{Tier: "BASIC", MemorySizeGb: 1, ConnectMode: "PRIVATE_SERVICE_ACCESS", AuthorizedNetwork: network, ReservedIpRange: "other"}},
		{"Read replicas need the tier STANDARD_HA", &redis.Instance{Tier: "BASIC", MemorySizeGb: 5, ReadReplicasMode: "READ_REPLICAS_ENABLED"}},
		{"Redis configuration 'save' is not", &redis.Instance{Tier: "BASIC", MemorySizeGb: 1, RedisConfigs: map[string]string{"save": "60"}}},
		{"Invalid label", &redis.Instance{Tier: "BASIC", MemorySizeGb: 1, Labels: map[string]string{"A": "b"}}},
		{"TotalCapacityGbPerRegion", &redis.Instance{Tier: "BASIC", MemorySizeGb: 300}},
	} {
		want, in := c.want, c.in
		if strings.HasPrefix(want, "Total") {
			if !g.world.SetQuota("gcp", "redis", "capacity-gb-per-region", testProject, "europe-west1", 200) {
				t.Fatal("no such quota")
			}
		}
		_, err := g.Instances.Create(redisParent, in).InstanceId("a").Do()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", in, err, want)
		}
	}
	_, err := g.Instances.Create(redisParent, &redis.Instance{Tier: "BASIC", MemorySizeGb: 1}).InstanceId("Sessions").Do()
	refused(t, err, 400, "")
	if _, err := g.world.AddFault(sim.Fault{Kind: sim.FaultOpFailed, Cloud: "gcp", Service: "redis", Message: "out of order"}); err != nil {
		t.Fatal(err)
	}
	op := g.ends(g.Instances.Create(redisParent, &redis.Instance{Tier: "BASIC", MemorySizeGb: 1}).InstanceId("a").Do())
	if op.Error == nil || op.Error.Message != "out of order" || len(g.db.servers) != 0 {
		t.Errorf("operation that fails: %+v", op)
	}
}
