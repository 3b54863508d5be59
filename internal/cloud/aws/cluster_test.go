package aws

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/sim"
)

var errNotAsked = errors.New("a plan asks the cloud nothing")

// A cluster is made as asked, found as it was made, and taken down to what was there.
func TestClusterLife(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]string{"one pool": clusterSpec, "two pools": mixedSpec} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newCluster(t, sim.Options{}, job.ModeCreate, spec)
			before := g.world.Snapshot()
			start := time.Now()
			g.create()
			reads, changes := g.calls(0)
			t.Logf("create: %d reads %v, %d changes %v, %s", sum(reads), reads, sum(changes), changes, time.Since(start))
			c := g.info()
			if c.Name == "" || c.ID == "" || c.Endpoint == "" || c.OIDCIssuer == "" || c.SecurityGroupID == "" || c.Version == "" || c.SupportUntil == "" || c.ServiceCIDR == "" {
				t.Errorf("the cluster is %+v", c)
			}
			for _, n := range c.NodePools {
				if n.State != "ACTIVE" || n.ID == "" || n.InstanceType == "" || n.Arch == "" {
					t.Errorf("pool %+v", n)
				}
			}
			for _, d := range g.verify() {
				t.Errorf("drift: %+v", d)
			}
			g.another()
			since := g.mark()
			g.create()
			if _, changes := g.calls(since); sum(changes) > 0 {
				t.Errorf("a second run changed %v", changes)
			}
			g.teardown()
			g.equal(before)
			if key := c.KMSKeyID; !g.exists(key[len(key)-36:]) {
				t.Logf("the key %s is no longer listed", key)
			}
		})
	}
}

// A plan lists what a create makes, and asks nothing.
func TestClusterPlan(t *testing.T) {
	t.Parallel()
	g := newCluster(t, sim.Options{}, job.ModeCreate, mixedSpec)
	var planned []string
	for _, p := range g.plan() {
		planned = append(planned, p.Kind+" "+p.Key)
	}
	g.create()
	var made []string
	for _, o := range g.objects {
		made = append(made, o.Kind+" "+o.Key)
	}
	slices.Sort(planned)
	slices.Sort(made)
	if !slices.Equal(planned, made) {
		t.Errorf("planned %v\nmade    %v", planned, made)
	}
}
