package gcp

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

func (e *Compute) backendKind() *kind {
	return &kind{collection: "backendServices", noun: "backend_service", schema: "BackendService",
		resources: map[string]string{"": "backendServices", "regions": "regionBackendServices"}, takes: lbTakes, prepare: e.prepareBackend,
		loose: []string{"usedBy"}, show: e.showBackend, ready: e.watch, quota: globally("BACKEND_SERVICES"),
		dropped: func(res *Resource) { e.forgetHealth(func(service, _ string) bool { return service == res.Path }) },
	}
}

func (e *Compute) backendMethods(a *api) {
	for _, resource := range []string{"backendServices", "regionBackendServices"} {
		for _, verb := range []string{"patch", "update"} {
			a.ops[resource+"."+verb] = e.rewrite(e.kinds["backendServices"], verb)
		}
		a.ops[resource+".getHealth"] = e.getHealth
	}
	e.events["lb-check"] = e.checkEvent
}

// schemes are the load balancing schemes of backend services, by whether they are regional.
var schemes = map[bool][]string{
	false: {"EXTERNAL", "EXTERNAL_MANAGED", "INTERNAL_MANAGED", "INTERNAL_SELF_MANAGED"},
	true:  {"INTERNAL", "EXTERNAL", "INTERNAL_MANAGED", "EXTERNAL_MANAGED"},
}

// prepareBackend checks a backend service and fills it up ("Method: backendServices.insert").
func (e *Compute) prepareBackend(r *request, path string, doc Doc) error {
	regional := segmentAfter(path, "regions") != ""
	setDefault(doc, "loadBalancingScheme", "EXTERNAL")
	scheme := str(doc, "loadBalancingScheme")
	if !slices.Contains(schemes[regional], scheme) {
		return invalidField("resource.loadBalancingScheme", scheme, "The load balancing scheme is not supported for this backend service.")
	}
	passthrough := regional && (scheme == "INTERNAL" || scheme == "EXTERNAL")
	protocol := "HTTP"
	if passthrough {
		protocol = "TCP"
	}
	for k, v := range map[string]any{"protocol": protocol, "timeoutSec": 30.0, "sessionAffinity": "NONE", "affinityCookieTtlSec": 0.0, "description": "",
		"connectionDraining": Doc{"drainingTimeoutSec": 0.0}} {
		setDefault(doc, k, v)
	}
	if !passthrough {
		setDefault(doc, "port", 80.0)
		setDefault(doc, "portName", strings.ToLower(str(doc, "protocol")))
		if p := str(doc, "protocol"); p == "TCP" || p == "SSL" || p == "HTTP2" || p == "GRPC" || p == "H2C" {
			if _, said := r.Body["portName"]; !said {
				doc["portName"] = "http"
			}
		}
	}
	if !regional {
		setDefault(doc, "enableCDN", false)
	}
	secret := subOf(doc, "iap")
	sum := sha256.Sum256([]byte(str(secret, "oauth2ClientSecret")))
	delete(secret, "oauth2ClientSecret")
	setDefault(secret, "enabled", false)
	setDefault(secret, "oauth2ClientId", "")
	secret["oauth2ClientSecretSha256"] = hex.EncodeToString(sum[:])
	if err := e.prepareBackends(r.Project.ID, path, scheme, doc); err != nil {
		return err
	}
	if err := e.prepareChecks(r.Project.ID, path, doc); err != nil {
		return err
	}
	e.print(doc)
	return nil
}

// prepareBackends checks the groups behind a backend service: their place, and how they share the traffic.
func (e *Compute) prepareBackends(project, path, scheme string, doc Doc) error {
	region := segmentAfter(path, "regions")
	seen := map[string]bool{}
	for n, b := range docs(doc, "backends") {
		field := fmt.Sprintf("resource.backends[%d]", n)
		link := str(b, "group")
		if link == "" {
			return refuse(400, "required", "Required field '%s.group' not specified", field)
		}
		group, err := e.link(project, field+".group", link, "instanceGroups")
		if err != nil {
			return err
		}
		mode, passthrough := str(b, "balancingMode"), scheme == "INTERNAL" || scheme == "EXTERNAL" && region != ""
		switch {
		case region != "" && group.region() != region:
			return invalidField(field+".group", link, "The instance group must be in the region of the backend service.")
		case seen[group.Path]:
			return invalidField(field+".group", link, "Duplicate instance groups in the backend service.")
		case passthrough && mode != "" && mode != "CONNECTION":
			return invalidField(field+".balancingMode", mode, "Balancing mode must be CONNECTION for an "+scheme+" backend service.")
		case mode == "RATE" && num(b, "maxRate") == 0 && num(b, "maxRatePerInstance") == 0:
			return invalidField(field+".maxRate", "", "maxRate or maxRatePerInstance must be given with balancing mode RATE.")
		case mode == "CONNECTION" && !passthrough && num(b, "maxConnections") == 0 && num(b, "maxConnectionsPerInstance") == 0:
			return invalidField(field+".maxConnections", "", "maxConnections or maxConnectionsPerInstance must be given with balancing mode CONNECTION.")
		}
		seen[group.Path] = true
		b["group"] = selfLink(group.Path)
		if passthrough {
			b["balancingMode"] = "CONNECTION"
			continue
		}
		setDefault(b, "balancingMode", "UTILIZATION")
		setDefault(b, "capacityScaler", 1.0)
		if str(b, "balancingMode") == "UTILIZATION" {
			setDefault(b, "maxUtilization", 0.8)
		}
	}
	return nil
}

// prepareChecks checks the health check of a backend service: one, and of its own region if that has one.
func (e *Compute) prepareChecks(project, path string, doc Doc) error {
	links := texts(doc, "healthChecks")
	if len(links) > 1 || len(links) == 0 && len(docs(doc, "backends")) > 0 {
		return invalidField("resource.healthChecks", len(links), "A backend service with instance groups must have exactly one health check.")
	}
	for n, link := range links {
		field := fmt.Sprintf("resource.healthChecks[%d]", n)
		check, err := e.link(project, field, link, collectionOr(e.cloud.pathOfLink(project, link), "httpHealthChecks", "healthChecks"))
		if err != nil {
			return err
		}
		if check.region() != "" && check.region() != segmentAfter(path, "regions") {
			return invalidField(field, link, "The health check must be global or in the region of the backend service.")
		}
		doc["healthChecks"] = []any{selfLink(check.Path)}
	}
	return nil
}

// collectionOr is the collection of a path if it is the given one, else another.
func collectionOr(path, this, otherwise string) string {
	if path != "" && collectionOf(path) == this {
		return this
	}
	return otherwise
}

// showBackend adds what uses a backend service.
func (e *Compute) showBackend(res *Resource, doc Doc) {
	var users []any
	for _, other := range e.inOrder(func(o *Resource) bool {
		return slices.Contains([]string{"urlMaps", "targetTcpProxies", "targetSslProxies", "forwardingRules"}, o.Collection)
	}) {
		if !other.Making && slices.Contains(e.usedBy(other), res.Path) {
			users = append(users, Doc{"reference": selfLink(other.Path)})
		}
	}
	if len(users) > 0 {
		doc["usedBy"] = users
	}
}
