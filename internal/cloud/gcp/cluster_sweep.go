package gcp

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/api/compute/v1"

	"github.com/zopday/provisioner/internal/pipeline"
)

// sweepCluster removes what the controllers of a cluster made in the project and
// left behind when it was deleted with Services and claims in it: load balancers
// with their firewall rules, and disks (failure kinds E2, E4, E17). Only what
// carries this cluster's own mark goes, and each removal is an event.
func (p *Provider) sweepCluster(ctx context.Context, r *pipeline.Run, id string) error {
	s := remains{p: p, r: r, cluster: base(id)}
	return pipeline.All(ctx, s.firewalls, s.disks)
}

// remains is one pass over what a cluster left behind.
type remains struct {
	p       *Provider
	r       *pipeline.Run
	cluster string // its name, which holds a hash of the job
}

// The marks of what Kubernetes makes at Compute Engine: the beginning of the
// names, and what is in the descriptions ("LoadBalancer Service concepts").
const (
	kindDisk        = "compute:disk" // of a claim; in the inventory only when it is kept
	serviceFirewall = "k8s-fw-"
	serviceMark     = "/service-name"
)

// marked reports whether a firewall rule is for the cluster's nodes alone: GKE
// gives them a network tag of their own.
func (s remains) marked(f *compute.Firewall) bool {
	return strings.HasPrefix(f.Name, s.prefix()) || slices.ContainsFunc(f.TargetTags, func(tag string) bool {
		return strings.HasPrefix(tag, s.prefix()) && strings.HasSuffix(tag, "-node")
	})
}

// prefix is how the names begin that GKE gives to what it makes for the cluster.
func (s remains) prefix() string { return "gke-" + s.cluster + "-" }

// firewalls removes the rules that the cluster left, and before them the load
// balancers that they are for: the rules' names lead to those.
func (s remains) firewalls(ctx context.Context) error {
	network := s.r.Job.Config.InfraConfig.NetworkID
	all, err := s.p.firewalls().all(ctx, "")
	if err != nil {
		return err
	}
	var rules []*compute.Firewall
	balancers := map[string]bool{}
	for _, f := range all {
		if rel(f.Network) != network || !s.marked(f) {
			continue
		}
		rules = append(rules, f)
		if name, ok := strings.CutPrefix(f.Name, serviceFirewall); ok {
			balancers[name] = true
		}
	}
	var parts []func(context.Context) error
	for _, name := range slices.Sorted(maps.Keys(balancers)) {
		parts = append(parts, func(ctx context.Context) error { return s.balancer(ctx, name) })
	}
	parts = append(parts, func(ctx context.Context) error { return s.newer(ctx, rules) })
	if err := pipeline.All(ctx, parts...); err != nil {
		return err
	}
	var verdicts []error
	for _, f := range rules {
		verdicts = append(verdicts, s.remove(ctx, "firewall rule", rel(f.SelfLink), func(ctx context.Context) (*compute.Operation, error) {
			return send(ctx, s.p.compute.Firewalls.Delete(s.p.project, f.Name))
		}))
	}
	return pipeline.Gravest(verdicts...)
}

// A piece is one object of a load balancer that a Service has.
type piece struct {
	what, collection string
	// read answers with its description.
	read   func(ctx context.Context, name string) (description string, err error)
	delete func(ctx context.Context, name string) (*compute.Operation, error)
	// plain: the kind carries no mark of Kubernetes; its name tells.
	plain bool
}

// balancer removes a Service's load balancer, what leads to it first.
func (s remains) balancer(ctx context.Context, name string) error {
	for _, x := range s.pieces() {
		about, err := x.read(ctx, name)
		switch {
		case pipeline.Is(err, pipeline.NotFound, pipeline.Invalid): // not there, or a kind that the endpoint does not have
			continue
		case err != nil:
			return err
		case !x.plain && !strings.Contains(about, serviceMark):
			continue // somebody's, of the same name
		}
		id := s.p.regional(x.collection, name)
		if x.collection == "httpHealthChecks" {
			id = s.p.global(x.collection, name)
		}
		if err := s.remove(ctx, x.what, id, func(ctx context.Context) (*compute.Operation, error) { return x.delete(ctx, name) }); err != nil {
			return err
		}
	}
	return nil
}

func (s remains) pieces() []piece {
	api, project, region := s.p.compute, s.p.project, s.p.region
	return []piece{
		{what: "forwarding rule", collection: "forwardingRules",
			read: func(ctx context.Context, name string) (string, error) {
				x, err := send(ctx, api.ForwardingRules.Get(project, region, name))
				return describes(x, err, func() string { return x.Description })
			},
			delete: func(ctx context.Context, name string) (*compute.Operation, error) {
				return send(ctx, api.ForwardingRules.Delete(project, region, name))
			}},
		{what: "backend service", collection: "backendServices",
			read: func(ctx context.Context, name string) (string, error) {
				x, err := send(ctx, api.RegionBackendServices.Get(project, region, name))
				return describes(x, err, func() string { return x.Description })
			},
			delete: func(ctx context.Context, name string) (*compute.Operation, error) {
				return send(ctx, api.RegionBackendServices.Delete(project, region, name))
			}},
		{what: "target pool", collection: "targetPools",
			read: func(ctx context.Context, name string) (string, error) {
				x, err := send(ctx, api.TargetPools.Get(project, region, name))
				return describes(x, err, func() string { return x.Description })
			},
			delete: func(ctx context.Context, name string) (*compute.Operation, error) {
				return send(ctx, api.TargetPools.Delete(project, region, name))
			}},
		{what: "health check", collection: "healthChecks", plain: true,
			read: func(ctx context.Context, name string) (string, error) {
				x, err := send(ctx, api.RegionHealthChecks.Get(project, region, name))
				return describes(x, err, func() string { return x.Description })
			},
			delete: func(ctx context.Context, name string) (*compute.Operation, error) {
				return send(ctx, api.RegionHealthChecks.Delete(project, region, name))
			}},
		{what: "health check", collection: "httpHealthChecks", plain: true,
			read: func(ctx context.Context, name string) (string, error) {
				x, err := send(ctx, api.HttpHealthChecks.Get(project, name))
				return describes(x, err, func() string { return x.Description })
			},
			delete: func(ctx context.Context, name string) (*compute.Operation, error) {
				return send(ctx, api.HttpHealthChecks.Delete(project, name))
			}},
		{what: "address", collection: "addresses",
			read: func(ctx context.Context, name string) (string, error) {
				x, err := send(ctx, api.Addresses.Get(project, region, name))
				return describes(x, err, func() string { return x.Description })
			},
			delete: func(ctx context.Context, name string) (*compute.Operation, error) {
				return send(ctx, api.Addresses.Delete(project, region, name))
			}},
	}
}

func describes[T any](_ T, err error, of func() string) (string, error) {
	if err != nil {
		return "", err
	}
	return of(), nil
}

// disks removes the disks that the cluster's claims had.
func (s remains) disks(ctx context.Context) error {
	all, err := aggregated(ctx, func(ctx context.Context, token string) (map[string][]*compute.Disk, string, error) {
		out, err := send(ctx, s.p.compute.Disks.AggregatedList(s.p.project).Filter(fmt.Sprintf("labels.%s = %q", labelClusterName, s.cluster)).PageToken(token))
		if err != nil {
			return nil, "", err
		}
		found := map[string][]*compute.Disk{}
		for place, d := range out.Items {
			found[place] = d.Disks
		}
		return found, out.NextPageToken, nil
	})
	if err != nil {
		return err
	}
	var verdicts []error
	for _, d := range all {
		id := rel(d.SelfLink)
		switch {
		case d.Labels[labelClusterName] != s.cluster || d.Labels[labelClusterLocation] != s.p.region:
			continue
		case s.r.Kept(kindDisk, id), s.r.Kept(kindDisk, d.Name): // of a volume that knows its disk by name alone
			continue
		case s.r.Job.Config.InfraConfig.Cluster.Undrained:
			verdicts = append(verdicts, s.r.KeepOther(ctx, kindDisk, id, d.Name, "the cluster could not be asked whether its data was to be retained"))
			continue
		case len(d.Users) > 0:
			verdicts = append(verdicts, s.freed(id, d))
			continue
		}
		verdicts = append(verdicts, s.remove(ctx, "disk", id, func(ctx context.Context) (*compute.Operation, error) {
			if zone := zoneOf(id); zone != "" {
				return send(ctx, s.p.compute.Disks.Delete(projectOf(id), zone, d.Name))
			}
			return send(ctx, s.p.compute.RegionDisks.Delete(projectOf(id), regionOf(id), d.Name))
		}))
	}
	return pipeline.Gravest(verdicts...)
}

// freed waits until the last node lets go of a disk; somebody else's machine is
// named as what holds it.
func (s remains) freed(id string, d *compute.Disk) error {
	if s.r.WaitedFor("use of "+id) < 10*time.Minute {
		return pipeline.Wait(10*time.Second, "disk %s to be let go by %s", d.Name, relText(d.Users))
	}
	return &pipeline.BlockedError{What: "disk " + id + " of cluster " + s.cluster, By: "it is attached to " + relText(d.Users) + "; detach it, then retry"}
}

// remove asks for the deletion of something and waits until it no longer shows.
func (s remains) remove(ctx context.Context, what, id string, call func(context.Context) (*compute.Operation, error)) error {
	if u, ok := begun(s.r, id); ok && u.verb == verbDelete {
		done, err := s.p.outcome(ctx, s.r, id, u)
		if err != nil {
			return err
		}
		if !done {
			return pipeline.Wait(3*time.Second, "%s %s to be deleted", what, base(id))
		}
	}
	op, err := call(ctx)
	switch {
	case pipeline.Is(err, pipeline.NotFound):
		return nil
	case err != nil:
		return explained(err)
	}
	s.p.await(s.r, id, op)
	if err := s.r.Event(ctx, "leftover.removed", "%s %s, which cluster %s left behind, is removed", what, id, s.cluster); err != nil {
		return err
	}
	return pipeline.Wait(3*time.Second, "%s %s to be deleted", what, base(id))
}
