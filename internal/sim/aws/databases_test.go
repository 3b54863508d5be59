package aws

import (
	"context"
	"fmt"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/rds"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"

	"github.com/zopday/provisioner/internal/sim"
)

// notedDatabases stands for the servers: it notes what is asked of them.
type notedDatabases struct {
	mu    sync.Mutex
	open  map[string]sim.DatabaseServer
	users map[string]sim.DatabaseUser // by server and name
	log   []string
}

func newNoted() *notedDatabases {
	return &notedDatabases{open: map[string]sim.DatabaseServer{}, users: map[string]sim.DatabaseUser{}}
}

func (n *notedDatabases) note(format string, args ...any) {
	n.log = append(n.log, fmt.Sprintf(format, args...))
}

func (n *notedDatabases) Open(d sim.DatabaseServer) sim.DatabaseEndpoint {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.open[d.ID] = d
	n.note("open")
	return sim.DatabaseEndpoint{Host: "127.0.0.1", Port: 40000 + len(n.open)}
}

func (n *notedDatabases) Close(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.open, id)
	n.note("close")
}

func (n *notedDatabases) Stop(string)  { n.mu.Lock(); defer n.mu.Unlock(); n.note("stop") }
func (n *notedDatabases) Start(string) { n.mu.Lock(); defer n.mu.Unlock(); n.note("start") }

func (n *notedDatabases) CreateDatabase(string, string) {}
func (n *notedDatabases) DropDatabase(string, string)   {}

func (n *notedDatabases) SetUser(id string, u sim.DatabaseUser) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.users[id+" "+u.Name] = u
	n.note("user %s %s", u.Name, strings.Join(u.Roles, " "))
}

func (n *notedDatabases) DropUser(id, name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.users, id+" "+name)
	n.note("drop %s", name)
}

func (n *notedDatabases) Query(context.Context, string, string, string, string, string) ([]string, [][]string, error) {
	return nil, nil, sim.ErrNoServer
}
func (n *notedDatabases) Names(string) (databases, users []string, ok bool) { return nil, nil, false }
func (n *notedDatabases) Ready(string) (bool, error)                        { return true, nil }
func (n *notedDatabases) CA() []byte                                        { return nil }

// only is the one server that is open.
func (n *notedDatabases) only(t *testing.T) sim.DatabaseServer {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.open) != 1 {
		t.Fatalf("%d servers are open, want one", len(n.open))
	}
	for _, d := range n.open {
		return d
	}
	return sim.DatabaseServer{}
}

func (n *notedDatabases) took() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := n.log
	n.log = nil
	return out
}

// stock is an account with a network that datastores can stand in.
type stock struct {
	*rig
	rds   *rds.Client
	ec2   *ec2.Client
	sec   *secretsmanager.Client
	noted *notedDatabases
	vpc   string
	nets  []string // in the zones a and b
	group string
}

func newStock(t *testing.T, opt sim.Options) *stock {
	t.Helper()
	k := &stock{noted: newNoted()}
	k.rig = newRigWith(t, opt, Options{Databases: k.noted})
	k.rds, k.ec2, k.sec = rds.NewFromConfig(k.cfg), ec2.NewFromConfig(k.cfg), secretsmanager.NewFromConfig(k.cfg)
	k.vpc = *must(k.ec2.CreateVpc(k.ctx(), &ec2.CreateVpcInput{CidrBlock: awssdk.String("10.20.0.0/16")}))(t).Vpc.VpcId
	for i, z := range []string{"a", "b"} {
		s := must(k.ec2.CreateSubnet(k.ctx(), &ec2.CreateSubnetInput{VpcId: &k.vpc, CidrBlock: awssdk.String(fmt.Sprintf("10.20.%d.0/24", i)), AvailabilityZone: awssdk.String("us-east-1" + z)}))(t)
		k.nets = append(k.nets, *s.Subnet.SubnetId)
	}
	k.group = *must(k.ec2.CreateSecurityGroup(k.ctx(), &ec2.CreateSecurityGroupInput{VpcId: &k.vpc, GroupName: awssdk.String("db"), Description: awssdk.String("db")}))(t).GroupId
	return k
}

// interfaces lists those of a requester in the network.
func (k *stock) interfaces(t *testing.T, requester string) []ec2types.NetworkInterface {
	t.Helper()
	out := must(k.ec2.DescribeNetworkInterfaces(k.ctx(), &ec2.DescribeNetworkInterfacesInput{Filters: []ec2types.Filter{
		{Name: awssdk.String("vpc-id"), Values: []string{k.vpc}}, {Name: awssdk.String("requester-id"), Values: []string{requester}}}}))(t)
	return out.NetworkInterfaces
}

func TestSecretsOfRequestsAreBlanked(t *testing.T) {
	k := newStock(t, immediate)
	var params []string
	k.w.OnCall(func(p sim.Phase, c *sim.Call) error {
		if p == sim.Before {
			params = append(params, c.Params)
		}
		return nil
	})
	in := dbInput("a")
	in.MasterUserPassword, in.ManageMasterUserPassword = awssdk.String("very-secret-1"), nil
	k.subnetGroup(t, "nets")
	must(k.rds.CreateDBInstance(k.ctx(), in))(t)
	must(k.sec.CreateSecret(k.ctx(), &secretsmanager.CreateSecretInput{Name: awssdk.String("s"), SecretString: awssdk.String("very-secret-2")}))(t)
	all := strings.Join(params, "\n")
	if strings.Contains(all, "very-secret") || strings.Count(all, blanked) < 2 {
		t.Errorf("the parameters of the calls hold a secret, or are not blanked: %s", all)
	}
	for _, o := range k.w.Objects(sim.ObjectFilter{}) {
		if strings.Contains(asText(o), "very-secret") {
			t.Errorf("the object %s shows a secret", o.ID)
		}
	}
}

func mustAddr(t *testing.T, text string) netip.Addr {
	t.Helper()
	a, err := netip.ParseAddr(text)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestDatabasesAfterRestart: a world that was taken up again has its servers, with the endpoints of this process.
func TestDatabasesAfterRestart(t *testing.T) {
	dir, opt := t.TempDir(), immediate
	start := func() (*sim.World, *notedDatabases, *rds.Client, func()) {
		w, noted := sim.New(opt), newNoted()
		w.Clock.Stop()
		cloud := New(w, Options{Databases: noted})
		stop, err := w.Persist(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		srv := httptest.NewServer(cloud)
		cfg := awssdk.Config{Region: "us-east-1", BaseEndpoint: &srv.URL, Credentials: credentials.NewStaticCredentialsProvider("AKIAIOSFODNN7EXAMPLE", "secret", "")}
		return w, noted, rds.NewFromConfig(cfg), func() {
			srv.Close()
			if err := stop(); err != nil {
				t.Error(err)
			}
		}
	}
	w, noted, c, stop := start()
	in := dbInput("shop")
	in.DBSubnetGroupName = nil // the default VPC
	must(c.CreateDBInstance(t.Context(), in))(t)
	w.Step(15 * time.Minute)
	must(c.StopDBInstance(t.Context(), &rds.StopDBInstanceInput{DBInstanceIdentifier: in.DBInstanceIdentifier}))(t)
	w.Step(15 * time.Minute)
	must(c.DescribeDBInstances(t.Context(), &rds.DescribeDBInstancesInput{}))(t)
	password := noted.only(t).Password
	stop()
	_, noted, c, stop = start()
	defer stop()
	if got := noted.took(); !slices.Equal(got, []string{"open", "stop"}) {
		t.Errorf("after the restart the server was told %v", got)
	}
	if noted.only(t).Password != password || password == "" {
		t.Error("the password was lost")
	}
	db := must(c.DescribeDBInstances(t.Context(), &rds.DescribeDBInstancesInput{DBInstanceIdentifier: in.DBInstanceIdentifier}))(t).DBInstances[0]
	if *db.DBInstanceStatus != "stopped" || *db.Endpoint.Port != 40001 || *db.EngineVersion != "17.10" {
		t.Errorf("taken up again: %s %+v", *db.DBInstanceStatus, db.Endpoint)
	}
}
