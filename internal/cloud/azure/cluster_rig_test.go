package azure

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/sim"
	simazure "github.com/zopday/provisioner/internal/sim/azure"
)

// clusterSpec is a cluster of two pools and the system pool: on demand and spot,
// of both architectures.
const clusterSpec = `{"network":{"zones":3},"nodePools":[
	{"name":"workers","min":2,"desired":3,"max":6,"size":{"vcpus":2,"memoryGiB":8}},
	{"name":"arm","min":1,"desired":1,"max":3,"size":{"vcpus":2,"memoryGiB":8,"arch":"arm64"},"spot":true,"labels":{"tier":"batch"},"taints":[{"key":"batch","value":"yes","effect":"NoSchedule"}]}]}`

// smallCluster has the least that there is: the system pool and one more.
const smallCluster = `{"network":{"zones":3},"nodePools":[{"name":"workers","min":1,"desired":1,"max":2}]}`

// theirAdmins is an Entra group.
const theirAdmins = "8f14e45f-ceea-467f-a0e6-1c0ffee00001"

// fromHere is where the simulated provisioner's connections come from.
var fromHere = job.Reach{Mode: job.ReachPublic, EgressCIDRs: []string{"203.0.113.7/32"}}

// clusters is a rig for a cluster job.
func clusters(t testing.TB, spec string) *rig {
	t.Helper()
	return clustersIn(t, job.ModeCreate, spec)
}

func clustersIn(t testing.TB, mode job.Mode, spec string) *rig {
	t.Helper()
	g := newRig(t, sim.Options{TimeScale: 2 * quick}, job.Cluster, mode, spec)
	g.p.reach = fromHere
	return g
}

// clusterSteps are the steps of a cluster job, in both directions.
func (g *rig) clusterSteps() (up, down []step) {
	return []step{g.check, g.p.EnsureNetwork, g.p.EnsureIdentity, g.p.EnsureCluster}, []step{g.p.RemoveCluster, g.p.RemoveIdentity, g.p.RemoveNetwork}
}

// kubes keeps what the simulated cloud says of its clusters, so that a test can act
// as what runs in one.
type kubes struct {
	mu   sync.Mutex
	open map[string]sim.KubeCluster
}

func (k *kubes) Open(c sim.KubeCluster) sim.KubeEndpoint {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.open[strings.ToLower(c.ID)] = c
	return sim.KubeEndpoint{Address: "127.0.0.1:6443", CA: []byte("-----BEGIN CERTIFICATE-----\n")}
}

func (k *kubes) SetNodes(string, []sim.KubeNode) {}

func (k *kubes) Close(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.open, strings.ToLower(id))
}

func (k *kubes) CA() []byte { return nil }

// of is the cluster that was opened under an ID.
func (k *kubes) of(t testing.TB, id string) sim.KubeCluster {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	c, ok := k.open[strings.ToLower(id)]
	if !ok {
		t.Fatalf("no API server of %s is open", id)
	}
	return c
}

// kubeClusters is a rig whose clusters have somebody inside.
func kubeClusters(t testing.TB, spec string) (*rig, *kubes) {
	t.Helper()
	k := &kubes{open: map[string]sim.KubeCluster{}}
	g := newRigWith(t, sim.Options{TimeScale: 2 * quick}, simazure.Options{Kubernetes: k}, job.Cluster, job.ModeCreate, spec)
	g.p.reach = fromHere
	return g, k
}

// refusing are credentials that give no token.
type refusing struct{}

func (refusing) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{}, errors.New("the client secret has expired")
}
