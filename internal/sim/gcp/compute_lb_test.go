package gcp

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/api/compute/v1"

	"github.com/zopday/provisioner/internal/sim"
)

// webGroup makes an unmanaged group with one instance in it.
func (g *rig) webGroup() {
	g.t.Helper()
	s := g.compute()
	g.fine(s.Instances.Insert(testProject, testZone, vm("web-1")).Do())
	g.fine(s.InstanceGroups.Insert(testProject, testZone, &compute.InstanceGroup{Name: "web", NamedPorts: []*compute.NamedPort{{Name: "http", Port: 80}}}).Do())
	g.fine(s.InstanceGroups.AddInstances(testProject, testZone, "web", &compute.InstanceGroupsAddInstancesRequest{
		Instances: []*compute.InstanceReference{{Instance: "zones/" + testZone + "/instances/web-1"}}}).Do())
}

const webGroupLink = "zones/" + testZone + "/instanceGroups/web"

// balancer makes a global external load balancer before a group, without its forwarding rule.
func (g *rig) balancer(group string) {
	g.t.Helper()
	s := g.compute()
	g.fine(s.HealthChecks.Insert(testProject, &compute.HealthCheck{Name: "web", Type: "HTTP", CheckIntervalSec: 10, HttpHealthCheck: &compute.HTTPHealthCheck{Port: 80, RequestPath: "/healthz"}}).Do())
	g.fine(s.BackendServices.Insert(testProject, &compute.BackendService{Name: "web", LoadBalancingScheme: "EXTERNAL_MANAGED", HealthChecks: []string{"global/healthChecks/web"},
		Backends: []*compute.Backend{{Group: group}}, LogConfig: &compute.BackendServiceLogConfig{Enable: true, SampleRate: 1}}).Do())
	g.fine(s.UrlMaps.Insert(testProject, &compute.UrlMap{Name: "web", DefaultService: "global/backendServices/web"}).Do())
	g.fine(s.TargetHttpProxies.Insert(testProject, &compute.TargetHttpProxy{Name: "web", UrlMap: "global/urlMaps/web"}).Do())
	g.fine(s.GlobalAddresses.Insert(testProject, &compute.Address{Name: "web"}).Do())
}

func (g *rig) frontEnd() {
	g.t.Helper()
	g.fine(g.compute().GlobalForwardingRules.Insert(testProject, &compute.ForwardingRule{Name: "web", LoadBalancingScheme: "EXTERNAL_MANAGED", PortRange: "80",
		Target: "global/targetHttpProxies/web", IPAddress: "global/addresses/web"}).Do())
}

// health is the health of the instances of a group, as its backend service sees it.
func (g *rig) health(group string) []string {
	g.t.Helper()
	h, err := g.compute().BackendServices.GetHealth(testProject, "web", &compute.ResourceGroupReference{Group: group}).Do()
	if err != nil {
		g.t.Fatal(err)
	}
	var out []string
	for _, s := range h.HealthStatus {
		out = append(out, s.HealthState)
	}
	return out
}

func TestHealthBehindBalancer(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.vpc("10.40.0.0/24", true)
	g.webGroup()
	g.balancer(webGroupLink)
	if got := g.health(webGroupLink); len(got) != 0 {
		t.Errorf("without a forwarding rule: %v", got)
	}
	g.frontEnd()
	g.world.Step(10 * time.Minute)
	if got := g.health(webGroupLink); !slices.Equal(got, []string{"UNHEALTHY"}) {
		t.Errorf("without a firewall rule for the probers: %v", got)
	}
	g.admitProbes()
	g.world.Step(time.Minute)
	if got := g.health(webGroupLink); !slices.Equal(got, []string{"HEALTHY"}) {
		t.Errorf("with a firewall rule: %v", got)
	}
	g.fine(g.compute().Instances.Stop(testProject, testZone, "web-1").Do())
	if got := g.health(webGroupLink); !slices.Equal(got, []string{"UNHEALTHY"}) {
		t.Errorf("stopped: %v", got)
	}
}

// A machine whose boot did not get as far as the web server is never healthy.
func TestHealthOfFailedBoot(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"boot", "cloud_init", "no_egress", "health", "sentinel"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			g := newRig(t)
			g.vpc("10.40.0.0/24", true)
			if _, err := g.world.AddFault(sim.Fault{Kind: sim.FaultGuest, Mode: mode, Match: "web-1"}); err != nil {
				t.Fatal(err)
			}
			g.webGroup()
			g.admitProbes()
			g.balancer(webGroupLink)
			g.frontEnd()
			g.world.Step(30 * time.Minute)
			if got := g.health(webGroupLink); !slices.Equal(got, []string{"UNHEALTHY"}) {
				t.Errorf("health %v", got)
			}
			_, err := g.compute().Instances.GetGuestAttributes(testProject, testZone, "web-1").QueryPath("app/").Do()
			if mode == "health" {
				if err != nil {
					t.Errorf("the boot went well, but: %v", err)
				}
				return
			}
			refused(t, err, 404, "notFound")
		})
	}
}

// Nothing that something else uses can be deleted: a load balancer goes from its front to its back.
func TestBalancerOrder(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.vpc("10.40.0.0/24", true)
	g.webGroup()
	g.balancer(webGroupLink)
	g.frontEnd()
	s := g.compute()
	type step struct {
		what, user string
		delete     func() (*compute.Operation, error)
	}
	steps := []step{
		{"forwarding rule", "", func() (*compute.Operation, error) { return s.GlobalForwardingRules.Delete(testProject, "web").Do() }},
		{"address", "global/forwardingRules/web", func() (*compute.Operation, error) { return s.GlobalAddresses.Delete(testProject, "web").Do() }},
		{"proxy", "global/forwardingRules/web", func() (*compute.Operation, error) { return s.TargetHttpProxies.Delete(testProject, "web").Do() }},
		{"URL map", "global/targetHttpProxies/web", func() (*compute.Operation, error) { return s.UrlMaps.Delete(testProject, "web").Do() }},
		{"backend service", "global/urlMaps/web", func() (*compute.Operation, error) { return s.BackendServices.Delete(testProject, "web").Do() }},
		{"health check", "BACKEND_SERVICE:web", func() (*compute.Operation, error) { return s.HealthChecks.Delete(testProject, "web").Do() }},
		{"group", "global/backendServices/web", func() (*compute.Operation, error) { return s.InstanceGroups.Delete(testProject, testZone, "web").Do() }},
	}
	for _, st := range steps[1:] {
		_, err := st.delete()
		if e := refused(t, err, 400, "resourceInUseByAnotherResource"); !strings.Contains(e.Message, "is already being used by '") || !strings.HasSuffix(e.Message, st.user+"'") {
			t.Errorf("%s: %q, want %q named", st.what, e.Message, st.user)
		}
	}
	for _, st := range steps {
		g.fine(st.delete())
	}
	_, err := s.TargetHttpProxies.Get(testProject, "web").Do()
	if e := refused(t, err, 404, "notFound"); e.Message != `targetHttpProxy "projects/example-project/global/targetHttpProxies/web" not found` {
		t.Errorf("message %q", e.Message)
	}
}

func TestBalancerRefusals(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.vpc("10.40.0.0/24", true)
	g.webGroup()
	g.balancer(webGroupLink)
	g.frontEnd()
	s := g.compute()
	rule := func(change func(*compute.ForwardingRule)) error {
		f := &compute.ForwardingRule{Name: "second", LoadBalancingScheme: "EXTERNAL_MANAGED", PortRange: "80", Target: "global/targetHttpProxies/web"}
		change(f)
		_, err := s.GlobalForwardingRules.Insert(testProject, f).Do()
		return err
	}
	regional := func(change func(*compute.BackendService)) error {
		b := &compute.BackendService{Name: "inner", LoadBalancingScheme: "INTERNAL", Protocol: "TCP", HealthChecks: []string{"global/healthChecks/web"},
			Backends: []*compute.Backend{{Group: webGroupLink, BalancingMode: "CONNECTION"}}}
		change(b)
		_, err := s.RegionBackendServices.Insert(testProject, testRegion, b).Do()
		return err
	}
	current, err := s.BackendServices.Get(testProject, "web").Do()
	if err != nil || current.Fingerprint == "" || current.PortName != "http" || len(current.UsedBy) != 1 {
		t.Fatalf("backend service %+v, %v", current, err)
	}
	for _, tc := range []struct {
		name   string
		err    error
		status int
		reason string
		text   string
	}{
		{"an address and port that are taken", rule(func(f *compute.ForwardingRule) { f.IPAddress = "global/addresses/web" }), 400, "invalid", "in-use and would result in a conflict"},
		{"another scheme than the backend service", rule(func(f *compute.ForwardingRule) { f.LoadBalancingScheme = "EXTERNAL" }), 400, "invalid", "EXTERNAL_MANAGED"},
		{"no target", rule(func(f *compute.ForwardingRule) { f.Target = "" }), 400, "invalid", "target"},
		{"a target that is not there", rule(func(f *compute.ForwardingRule) { f.Target = "global/targetHttpProxies/none" }), 404, "notFound", "not found"},
		{"two ports before an HTTP proxy", rule(func(f *compute.ForwardingRule) { f.PortRange = "80-81" }), 400, "invalid", "exactly one port"},
		{"utilization before a passthrough balancer", regional(func(b *compute.BackendService) { b.Backends[0].BalancingMode = "UTILIZATION" }), 400, "invalid",
			"Balancing mode must be CONNECTION for an INTERNAL backend service."},
		{"a group of another region", func() error {
			_, err := s.RegionBackendServices.Insert(testProject, "us-east1", &compute.BackendService{Name: "inner", LoadBalancingScheme: "INTERNAL", Protocol: "TCP",
				HealthChecks: []string{"global/healthChecks/web"}, Backends: []*compute.Backend{{Group: webGroupLink, BalancingMode: "CONNECTION"}}}).Do()
			return err
		}(), 400, "invalid", "region"},
		{"no health check", regional(func(b *compute.BackendService) { b.HealthChecks = nil }), 400, "invalid", "health check"},
		{"an old fingerprint", func() error {
			_, err := s.BackendServices.Patch(testProject, "web", &compute.BackendService{TimeoutSec: 5, Fingerprint: "AAAA"}).Do()
			return err
		}(), 412, "conditionNotMet", "fingerprint"},
		{"a URL map that leads nowhere", func() error {
			_, err := s.UrlMaps.Insert(testProject, &compute.UrlMap{Name: "none"}).Do()
			return err
		}(), 400, "invalid", "defaultService"},
		{"a certificate that is none", func() error {
			_, err := s.SslCertificates.Insert(testProject, &compute.SslCertificate{Name: "none", Certificate: "x", PrivateKey: "y"}).Do()
			return err
		}(), 400, "invalid", "could not be parsed"},
		{"an instance that is a member already", func() error {
			_, err := s.InstanceGroups.AddInstances(testProject, testZone, "web", &compute.InstanceGroupsAddInstancesRequest{
				Instances: []*compute.InstanceReference{{Instance: "zones/" + testZone + "/instances/web-1"}}}).Do()
			return err
		}(), 400, "memberAlreadyExists", "already a member"},
	} {
		if e := refused(t, tc.err, tc.status, tc.reason); !strings.Contains(e.Message, tc.text) {
			t.Errorf("%s: message %q, want %q in it", tc.name, e.Message, tc.text)
		}
	}
	g.fine(s.BackendServices.Patch(testProject, "web", &compute.BackendService{TimeoutSec: 7, Fingerprint: current.Fingerprint}).Do())
	now, err := s.BackendServices.Get(testProject, "web").Do()
	if err != nil || now.TimeoutSec != 7 || now.Fingerprint == current.Fingerprint || len(now.Backends) != 1 || now.LogConfig == nil {
		t.Errorf("after the patch: %+v, %v", now, err)
	}
}

// An internal HTTP load balancer needs a subnetwork for its proxies, which then is in use.
func TestInternalManaged(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.vpc("10.40.0.0/24", true)
	g.webGroup()
	s := g.compute()
	g.fine(s.RegionHealthChecks.Insert(testProject, testRegion, &compute.HealthCheck{Name: "in", Type: "HTTP", HttpHealthCheck: &compute.HTTPHealthCheck{Port: 80, RequestPath: "/healthz"}}).Do())
	g.fine(s.RegionBackendServices.Insert(testProject, testRegion, &compute.BackendService{Name: "in", LoadBalancingScheme: "INTERNAL_MANAGED", Protocol: "HTTP",
		HealthChecks: []string{"regions/us-central1/healthChecks/in"}, Backends: []*compute.Backend{{Group: webGroupLink}}}).Do())
	g.fine(s.RegionUrlMaps.Insert(testProject, testRegion, &compute.UrlMap{Name: "in", DefaultService: "regions/us-central1/backendServices/in"}).Do())
	g.fine(s.RegionTargetHttpProxies.Insert(testProject, testRegion, &compute.TargetHttpProxy{Name: "in", UrlMap: "regions/us-central1/urlMaps/in"}).Do())
	rule := &compute.ForwardingRule{Name: "in", LoadBalancingScheme: "INTERNAL_MANAGED", PortRange: "80", Target: "regions/us-central1/targetHttpProxies/in",
		Network: "global/networks/shop", Subnetwork: "regions/us-central1/subnetworks/shop"}
	_, err := s.ForwardingRules.Insert(testProject, testRegion, rule).Do()
	if e := refused(t, err, 400, "invalid"); !strings.Contains(e.Message, "An active proxy-only subnetwork is required in the same region and VPC as the forwarding rule.") {
		t.Errorf("message %q", e.Message)
	}
	g.fine(s.Subnetworks.Insert(testProject, testRegion, &compute.Subnetwork{Name: "proxies", Network: "global/networks/shop", IpCidrRange: "10.41.0.0/26",
		Purpose: "REGIONAL_MANAGED_PROXY", Role: "ACTIVE"}).Do())
	g.fine(s.ForwardingRules.Insert(testProject, testRegion, rule).Do())
	f, err := s.ForwardingRules.Get(testProject, testRegion, "in").Do()
	if err != nil || f.IPAddress != "10.40.0.3" || f.PortRange != "80-80" {
		t.Errorf("rule %+v, %v", f, err)
	}
	g.admitProbes()
	g.world.Step(10 * time.Minute)
	h, err := s.RegionBackendServices.GetHealth(testProject, testRegion, "in", &compute.ResourceGroupReference{Group: webGroupLink}).Do()
	if err != nil || len(h.HealthStatus) != 1 || h.HealthStatus[0].HealthState != "HEALTHY" {
		t.Errorf("health %+v, %v", h, err)
	}
	_, err = s.Subnetworks.Delete(testProject, testRegion, "proxies").Do()
	refused(t, err, 400, "resourceInUseByAnotherResource")
	g.fine(s.ForwardingRules.Delete(testProject, testRegion, "in").Do())
	g.fine(s.Subnetworks.Delete(testProject, testRegion, "proxies").Do())
}

func TestInternalPassthrough(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.vpc("10.40.0.0/24", true)
	g.webGroup()
	g.admitProbes()
	s := g.compute()
	g.fine(s.RegionHealthChecks.Insert(testProject, testRegion, &compute.HealthCheck{Name: "in", Type: "TCP", TcpHealthCheck: &compute.TCPHealthCheck{Port: 80}}).Do())
	g.fine(s.RegionBackendServices.Insert(testProject, testRegion, &compute.BackendService{Name: "in", LoadBalancingScheme: "INTERNAL", Protocol: "TCP",
		HealthChecks: []string{"regions/us-central1/healthChecks/in"}, Backends: []*compute.Backend{{Group: webGroupLink, BalancingMode: "CONNECTION"}}}).Do())
	g.fine(s.ForwardingRules.Insert(testProject, testRegion, &compute.ForwardingRule{Name: "in", LoadBalancingScheme: "INTERNAL", Ports: []string{"80"},
		BackendService: "regions/us-central1/backendServices/in", Subnetwork: "regions/us-central1/subnetworks/shop"}).Do())
	g.world.Step(10 * time.Minute)
	h, err := s.RegionBackendServices.GetHealth(testProject, testRegion, "in", &compute.ResourceGroupReference{Group: webGroupLink}).Do()
	if err != nil || len(h.HealthStatus) != 1 || h.HealthStatus[0].HealthState != "HEALTHY" || h.HealthStatus[0].ForwardingRuleIp != "10.40.0.3" {
		t.Errorf("health %+v, %v", h, err)
	}
}

// A managed certificate becomes active some time after a load balancer has it.
func TestManagedCertificate(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.vpc("10.40.0.0/24", true)
	g.webGroup()
	g.balancer(webGroupLink)
	s := g.compute()
	g.fine(s.SslCertificates.Insert(testProject, &compute.SslCertificate{Name: "web", Type: "MANAGED", Managed: &compute.SslCertificateManagedSslCertificate{Domains: []string{"shop.example.test"}}}).Do())
	g.fine(s.SslPolicies.Insert(testProject, &compute.SslPolicy{Name: "web", Profile: "MODERN", MinTlsVersion: "TLS_1_2"}).Do())
	g.fine(s.TargetHttpsProxies.Insert(testProject, &compute.TargetHttpsProxy{Name: "web", UrlMap: "global/urlMaps/web", SslCertificates: []string{"global/sslCertificates/web"},
		SslPolicy: "global/sslPolicies/web"}).Do())
	status := func() string {
		c, err := s.SslCertificates.Get(testProject, "web").Do()
		if err != nil {
			t.Fatal(err)
		}
		return c.Managed.Status
	}
	g.world.Step(2 * time.Hour)
	if got := status(); got != "PROVISIONING" {
		t.Errorf("without a forwarding rule: %s", got)
	}
	g.fine(s.GlobalForwardingRules.Insert(testProject, &compute.ForwardingRule{Name: "web", LoadBalancingScheme: "EXTERNAL_MANAGED", PortRange: "443",
		Target: "global/targetHttpsProxies/web", IPAddress: "global/addresses/web"}).Do())
	g.world.Step(30 * time.Minute)
	if got := status(); got != "ACTIVE" {
		t.Errorf("served for half an hour: %s", got)
	}
	for what, del := range map[string]func() (*compute.Operation, error){
		"certificate": func() (*compute.Operation, error) { return s.SslCertificates.Delete(testProject, "web").Do() },
		"policy":      func() (*compute.Operation, error) { return s.SslPolicies.Delete(testProject, "web").Do() },
	} {
		_, err := del()
		if e := refused(t, err, 400, "resourceInUseByAnotherResource"); !strings.Contains(e.Message, "targetHttpsProxies/web") {
			t.Errorf("%s: %q", what, e.Message)
		}
	}
}
