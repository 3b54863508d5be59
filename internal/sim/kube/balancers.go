package kube

import (
	"context"
	"net/http"
	"slices"

	"github.com/zopday/provisioner/internal/sim"
)

// balancerFinalizer keeps a Service until its load balancer is gone (Kubernetes documentation,
// "Create an External Load Balancer", Garbage collecting load balancers).
const balancerFinalizer = "service.kubernetes.io/load-balancer-cleanup"

const loadBalancer = "LoadBalancer"

// service is what we read of a Service.
type service struct {
	Metadata metadata `json:"metadata"`
	Spec     struct {
		Type              string `json:"type"`
		LoadBalancerClass string `json:"loadBalancerClass"`
		Ports             []struct {
			Port int `json:"port"`
		} `json:"ports"`
	} `json:"spec"`
	Status struct {
		LoadBalancer struct {
			Ingress []ingress `json:"ingress"`
		} `json:"loadBalancer"`
	} `json:"status"`
}

type ingress struct {
	Hostname string `json:"hostname,omitempty"`
	IP       string `json:"ip,omitempty"`
}

func (s *service) path() string {
	return namespacesPath + "/" + s.Metadata.Namespace + "/services/" + s.Metadata.Name
}

func (s *service) subject() subject {
	return subject{APIVersion: "v1", Kind: "Service", Namespace: s.Metadata.Namespace, Name: s.Metadata.Name, UID: s.Metadata.UID}
}

func (s *service) asked() sim.KubeService {
	k := sim.KubeService{
		Namespace: s.Metadata.Namespace, Name: s.Metadata.Name, UID: s.Metadata.UID,
		Class: s.Spec.LoadBalancerClass, Annotations: s.Metadata.Annotations,
	}
	for _, p := range s.Spec.Ports {
		k.Ports = append(k.Ports, p.Port)
	}
	return k
}

// balancers is a cloud's service controller: it makes the load balancers of Services.
type balancers struct {
	controller
	services *store[service]
	// made are the Services, by UID, whose load balancers are what they ask for: what they asked.
	made map[string]string
}

func newBalancers(b *backend) *balancers {
	l := &balancers{controller: newController(b), made: map[string]string{}}
	l.services = newStore("/api/v1/services", l.changed, func(s *service) *metadata { return &s.Metadata })
	return l
}

func (l *balancers) run(ctx context.Context, api *client) {
	go l.services.follow(ctx, api)
	go l.loop(ctx, func(ctx context.Context) bool {
		left := false
		for _, s := range l.services.all() {
			again, err := l.sync(ctx, api, s)
			if l.complain(ctx, api, s.subject(), "SyncLoadBalancerFailed", err) || again {
				left = true
			}
		}
		return left
	})
}

// sync brings one Service a step further, and reports whether there is more to do that no change
// of it will tell.
func (l *balancers) sync(ctx context.Context, api *client, s service) (again bool, err error) {
	held := slices.Contains(s.Metadata.Finalizers, balancerFinalizer)
	wanted := s.Spec.Type == loadBalancer && s.Metadata.DeletionTimestamp == ""
	if !wanted && !held {
		delete(l.made, s.Metadata.UID)
		return false, nil
	}
	cloud, ours := l.backend.cloudOf(s.Metadata.Namespace)
	switch {
	case !wanted:
		return l.unmake(ctx, api, s, cloud)
	case cloud == nil || !ours:
		return false, nil
	case !held:
		return false, setFinalizer(ctx, api, s.path(), s.Metadata, balancerFinalizer, true)
	}
	key := lines(s.asked())
	if l.made[s.Metadata.UID] == key && len(s.Status.LoadBalancer.Ingress) > 0 {
		return false, nil
	}
	hostname, ip, err := cloud.EnsureLoadBalancer(ctx, s.asked())
	if err != nil || hostname == "" && ip == "" {
		return true, err
	}
	l.made[s.Metadata.UID] = key
	at := []ingress{{hostname, ip}}
	if slices.Equal(s.Status.LoadBalancer.Ingress, at) {
		return false, nil
	}
	return false, api.patch(ctx, s.path()+"/status", map[string]any{"status": map[string]any{"loadBalancer": map[string]any{"ingress": at}}})
}

// unmake deletes the load balancer of a Service that is to go, or is to have none any more.
func (l *balancers) unmake(ctx context.Context, api *client, s service, cloud sim.KubeCloud) (again bool, err error) {
	if cloud != nil {
		done, err := cloud.DeleteLoadBalancer(ctx, s.asked())
		if err != nil || !done {
			return true, err
		}
	}
	delete(l.made, s.Metadata.UID)
	if s.Metadata.DeletionTimestamp == "" {
		err := api.patch(ctx, s.path()+"/status", map[string]any{"status": map[string]any{"loadBalancer": map[string]any{"ingress": nil}}})
		if err != nil {
			return true, err
		}
		// That was another version of it.
		if err := api.call(ctx, http.MethodGet, s.path(), nil, &s); err != nil {
			return true, err
		}
	}
	return false, setFinalizer(ctx, api, s.path(), s.Metadata, balancerFinalizer, false)
}
