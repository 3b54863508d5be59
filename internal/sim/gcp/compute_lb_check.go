package gcp

import (
	"fmt"
	"strings"
	"time"
)

// lbKinds are the kinds of objects that load balancers are made of.
func (e *Compute) lbKinds() []*kind {
	kinds := []*kind{e.healthCheckKind(), e.legacyCheckKind(), e.backendKind(), e.urlMapKind(), e.certificateKind(), e.tlsPolicyKind(), e.ruleKind()}
	return append(kinds, e.proxyKinds()...)
}

// lbMethods adds the methods of load balancers that go beyond those of every kind.
func (e *Compute) lbMethods(a *api) {
	for _, add := range []func(*api){e.checkMethods, e.backendMethods, e.urlMapMethods, e.certificateMethods, e.proxyMethods, e.ruleMethods} {
		add(a)
	}
}

// lbTakes is how long changes of load balancers run.
var lbTakes = map[string]time.Duration{"insert": setTakes, "delete": setTakes, "patch": setTakes, "update": setTakes}

// globally counts an object towards a limit of the project if it is global; regional ones have limits that are not simulated.
func globally(metric string) func(*Resource) map[string]float64 {
	return func(res *Resource) map[string]float64 {
		if res.region() != "" {
			return nil
		}
		return map[string]float64{metric: 1}
	}
}

// rewrite is patch and update of a kind: the document is merged with, or replaced by, the body, checked as for an insert, and
// holds when the operation is done.
func (e *Compute) rewrite(k *kind, verb string) operation {
	return func(r *request) (any, error) {
		if err := e.checkScope(r); err != nil {
			return nil, err
		}
		res, err := e.change(r, k)
		if err != nil {
			return nil, err
		}
		if had := str(res.Doc, "fingerprint"); had != "" {
			given := str(r.Body, "fingerprint")
			if given != had && (given != "" || verb == "update") {
				return nil, refuse(412, "conditionNotMet", "Invalid fingerprint.")
			}
		}
		doc := clone(res.Doc)
		if verb == "update" {
			doc = Doc{}
			for _, f := range []string{"kind", "id", "selfLink", "creationTimestamp", "name", "region", "description", "fingerprint"} {
				if v, ok := res.Doc[f]; ok {
					doc[f] = v
				}
			}
		}
		patch := clone(r.Body)
		delete(patch, "name")
		merge(doc, patch)
		for f, v := range doc {
			if l, ok := v.([]any); ok && len(l) == 0 {
				delete(doc, f) // an empty list is not shown
			}
		}
		if k.prepare != nil {
			if err := k.prepare(r, res.Path, doc); err != nil {
				return nil, err
			}
		}
		if err := e.checkReferences(k, res.Path, doc); err != nil {
			return nil, err
		}
		return e.start(r, change{Type: verb, Target: res, Takes: k.duration(verb), Action: "lb-replace", Doc: doc}), nil
	}
}

// print gives a document a new fingerprint.
func (e *Compute) print(doc Doc) {
	e.st.Seq++
	doc["fingerprint"] = fingerprint([]any{doc["name"], e.st.Seq})
}

func (e *Compute) healthCheckKind() *kind {
	return &kind{collection: "healthChecks", noun: "health_check", schema: "HealthCheck", resources: map[string]string{"": "healthChecks", "regions": "regionHealthChecks"},
		takes: lbTakes, prepare: prepareCheck, refuseDelete: e.refuseCheckDelete, quota: globally("HEALTH_CHECKS")}
}

// legacyCheckKind is the health checks of old, which only know HTTP.
func (e *Compute) legacyCheckKind() *kind {
	return &kind{collection: "httpHealthChecks", noun: "http_health_check", schema: "HttpHealthCheck", resources: map[string]string{"": "httpHealthChecks"},
		takes: lbTakes, quota: globally("HEALTH_CHECKS"),
		prepare: func(_ *request, _ string, doc Doc) error {
			for k, v := range map[string]any{"port": 80.0, "requestPath": "/"} {
				setDefault(doc, k, v)
			}
			return fillCheck(doc)
		}}
}

func (e *Compute) checkMethods(a *api) {
	for _, resource := range []string{"healthChecks", "regionHealthChecks"} {
		for _, verb := range []string{"patch", "update"} {
			a.ops[resource+"."+verb] = e.rewrite(e.kinds["healthChecks"], verb)
		}
	}
	e.actions["lb-replace"] = func(op *Operation, res *Resource) error {
		res.Doc = op.Doc
		e.watch(res)
		return nil
	}
}

// checkPorts are the ports of health checks that say none, by the field that describes them.
var checkPorts = map[string]float64{"httpHealthCheck": 80, "httpsHealthCheck": 443, "http2HealthCheck": 443, "tcpHealthCheck": 80, "sslHealthCheck": 443,
	"grpcHealthCheck": 0, "grpcTlsHealthCheck": 0}

// checkFields are the fields that describe health checks, by type.
var checkFields = map[string]string{"HTTP": "httpHealthCheck", "HTTPS": "httpsHealthCheck", "HTTP2": "http2HealthCheck", "TCP": "tcpHealthCheck", "SSL": "sslHealthCheck",
	"GRPC": "grpcHealthCheck", "GRPC_WITH_TLS": "grpcTlsHealthCheck"}

// prepareCheck checks a health check and fills it up ("Method: healthChecks.insert").
func prepareCheck(_ *request, _ string, doc Doc) error {
	field := ""
	for f := range checkPorts {
		if sub(doc, f) != nil {
			if field != "" {
				return invalidField("resource", "", "Exactly one of the protocols of a health check must be described.")
			}
			field = f
		}
	}
	if field == "" {
		if field = checkFields[str(doc, "type")]; field == "" {
			return invalidField("resource.type", str(doc, "type"), "The type of the health check is required.")
		}
		doc[field] = Doc{}
	}
	if str(doc, "type") == "" {
		for t, f := range checkFields {
			if f == field {
				doc["type"] = t
			}
		}
	}
	if checkFields[str(doc, "type")] != field {
		return invalidField("resource.type", str(doc, "type"), "The type does not match '"+field+"'.")
	}
	p := sub(doc, field)
	switch spec := str(p, "portSpecification"); {
	case spec == "USE_SERVING_PORT" && (num(p, "port") != 0 || str(p, "portName") != ""):
		return invalidField("resource."+field+".port", num(p, "port"), "The port cannot be given with USE_SERVING_PORT.")
	case spec == "" && str(p, "portName") == "":
		setDefault(p, "port", checkPorts[field])
	}
	if !strings.HasPrefix(field, "grpc") {
		setDefault(p, "proxyHeader", "NONE")
	}
	if strings.HasPrefix(field, "http") {
		setDefault(p, "requestPath", "/")
		if path := str(p, "requestPath"); !strings.HasPrefix(path, "/") {
			return invalidField("resource."+field+".requestPath", path, "The path must begin with '/'.")
		}
	}
	return fillCheck(doc)
}

func fillCheck(doc Doc) error {
	for k, v := range map[string]any{"checkIntervalSec": 5.0, "timeoutSec": 5.0, "healthyThreshold": 2.0, "unhealthyThreshold": 2.0} {
		setDefault(doc, k, v)
	}
	for k, most := range map[string]float64{"checkIntervalSec": 300, "timeoutSec": 300, "healthyThreshold": 10, "unhealthyThreshold": 10} {
		if v := num(doc, k); v < 1 || v > most {
			return invalidField("resource."+k, v, fmt.Sprintf("Must be greater than or equal to 1 and less than or equal to %g.", most))
		}
	}
	if num(doc, "timeoutSec") > num(doc, "checkIntervalSec") {
		return invalidField("resource.timeoutSec", num(doc, "timeoutSec"), "Must be less than or equal to checkIntervalSec.")
	}
	return nil
}

// refuseCheckDelete names object and user as only health checks do.
func (e *Compute) refuseCheckDelete(_ *request, res *Resource) error {
	user := e.st.Resources[e.userOf(res)]
	if user == nil || user.Collection != "backendServices" {
		return nil
	}
	name := func(o *Resource, what string) string {
		place := "GLOBAL:global"
		if o.region() != "" {
			place = "REGION:" + o.region()
		}
		return place + "/PROJECT:" + e.cloud.number(o.project()) + "/" + what + ":" + o.name()
	}
	return refuse(400, "resourceInUseByAnotherResource", "The health_check resource '%s' is already being used by '%s'", name(res, "HEALTH_CHECK"), name(user, "BACKEND_SERVICE"))
}
