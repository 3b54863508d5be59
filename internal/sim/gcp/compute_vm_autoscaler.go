package gcp

import (
	"fmt"
	"time"
)

func (e *Compute) autoscalerKind() *kind {
	return &kind{collection: "autoscalers", noun: "autoscaler", schema: "Autoscaler", resources: map[string]string{"zones": "autoscalers", "regions": "regionAutoscalers"},
		takes:   map[string]time.Duration{"insert": setTakes, "delete": setTakes},
		prepare: e.prepareAutoscaler, show: e.showAutoscaler,
		ready:   func(res *Resource) { res.Doc["status"] = "ACTIVE"; e.scale(res) },
		dropped: func(res *Resource) { e.poke(e.cloud.pathOfLink(res.project(), str(res.Doc, "target"))) },
		parents: func(res *Resource) []string {
			return []string{e.cloud.pathOfLink(res.project(), str(res.Doc, "target"))}
		},
		quota: func(res *Resource) map[string]float64 {
			if segmentAfter(res.Path, "regions") != "" {
				return map[string]float64{"REGIONAL_AUTOSCALERS": 1}
			}
			return map[string]float64{"AUTOSCALERS": 1}
		},
	}
}

func (e *Compute) autoscalerMethods(a *api) {
	e.actions["autoscaler-replace"] = func(op *Operation, res *Resource) error {
		res.Doc = op.Doc
		e.scale(res)
		return nil
	}
	for _, resource := range []string{"autoscalers", "regionAutoscalers"} {
		a.ops[resource+".update"], a.ops[resource+".patch"] = e.changeAutoscaler("update"), e.changeAutoscaler("patch")
	}
}

// autoscalerOf is the autoscaler of a managed group, if it has one.
func (e *Compute) autoscalerOf(manager string) *Resource {
	for _, a := range e.ofKind(segmentAfter(manager, "projects"), "autoscalers") {
		if e.cloud.pathOfLink(a.project(), str(a.Doc, "target")) == manager {
			return a
		}
	}
	return nil
}

// prepareAutoscaler checks an autoscaler ("Method: regionAutoscalers.insert"): its group lies where it lies, and has no other.
func (e *Compute) prepareAutoscaler(r *request, path string, doc Doc) error {
	manager, err := e.link(r.Project.ID, "resource.target", str(doc, "target"), "instanceGroupManagers")
	if err != nil {
		return err
	}
	if manager.scope() != scopeOf(path) {
		return invalidField("resource.target", str(doc, "target"), "The target must be in the same zone or region as the autoscaler.")
	}
	if other := e.autoscalerOf(manager.Path); other != nil && other.Path != path {
		return refuse(400, "invalid", "Invalid value for field 'resource.target': '%s'. The managed instance group already has the autoscaler '%s'.", str(doc, "target"), other.Path)
	}
	doc["target"], doc["status"] = selfLink(manager.Path), "PENDING"
	return checkScaling(subOf(doc, "autoscalingPolicy"))
}

func checkScaling(p Doc) error {
	setDefault(p, "mode", "ON")
	setDefault(p, "coolDownPeriodSec", 60.0)
	setDefault(p, "minNumReplicas", 2.0)
	const field = "resource.autoscalingPolicy"
	most, said := p["maxNumReplicas"].(float64)
	if !said {
		return refuse(400, "required", "Required field '%s.maxNumReplicas' not specified", field)
	}
	if least := num(p, "minNumReplicas"); least < 0 || least > most {
		return invalidField(field+".minNumReplicas", least, fmt.Sprintf("Must be less than or equal to maxNumReplicas (%g).", most))
	}
	if cpu := sub(p, "cpuUtilization"); cpu != nil {
		setDefault(cpu, "predictiveMethod", "NONE")
		if u, ok := cpu["utilizationTarget"].(float64); ok && (u <= 0 || u > 1) {
			return invalidField(field+".cpuUtilization.utilizationTarget", u, "Must be greater than 0 and at most 1.")
		}
	} else if p["customMetricUtilizations"] == nil && p["loadBalancingUtilization"] == nil && p["scalingSchedules"] == nil {
		p["cpuUtilization"] = Doc{"utilizationTarget": 0.6, "predictiveMethod": "NONE"}
	}
	return nil
}

// showAutoscaler adds the size that it thinks right.
func (e *Compute) showAutoscaler(res *Resource, doc Doc) {
	manager := e.st.Resources[e.cloud.pathOfLink(res.project(), str(doc, "target"))]
	if manager == nil {
		doc["status"] = "ERROR"
		doc["statusDetails"] = []any{Doc{"type": "SCALING_TARGET_DOES_NOT_EXIST", "message": "The scaling target does not exist."}}
		return
	}
	if str(doc, "status") == "ACTIVE" {
		doc["recommendedSize"] = num(manager.Doc, "targetSize")
	}
	p := sub(doc, "autoscalingPolicy")
	if num(p, "minNumReplicas") == num(p, "maxNumReplicas") {
		doc["statusDetails"] = []any{Doc{"type": "MIN_EQUALS_MAX", "message": "The autoscaling min and max number of replicas are equal."}}
	}
}

// scale brings the size of a group between the autoscaler's bounds. There is no load here, so that nothing else moves it.
func (e *Compute) scale(res *Resource) {
	manager := e.st.Resources[e.cloud.pathOfLink(res.project(), str(res.Doc, "target"))]
	p := sub(res.Doc, "autoscalingPolicy")
	if manager == nil || str(p, "mode") == "OFF" {
		return
	}
	size := max(num(manager.Doc, "targetSize"), num(p, "minNumReplicas"))
	if str(p, "mode") == "ON" {
		size = min(size, num(p, "maxNumReplicas"))
	}
	manager.Doc["targetSize"] = size
	e.poke(manager.Path)
}

// changeAutoscaler changes an autoscaler, which is named by a parameter of the query.
func (e *Compute) changeAutoscaler(verb string) operation {
	return func(r *request) (any, error) {
		if err := e.checkScope(r); err != nil {
			return nil, err
		}
		name := orText(r.Query.Get("autoscaler"), str(r.Body, "name"))
		r.Path["autoscaler"] = name
		res, err := e.change(r, e.kinds["autoscalers"])
		if err != nil {
			return nil, err
		}
		doc := clone(res.Doc)
		if verb == "update" {
			for k, v := range r.Body {
				if k != "name" {
					doc[k] = v
				}
			}
		} else {
			merge(doc, r.Body)
		}
		doc["name"] = res.name()
		if err := e.prepareAutoscaler(r, res.Path, doc); err != nil {
			return nil, err
		}
		doc["status"] = str(res.Doc, "status")
		return e.start(r, change{Type: verb, Target: res, Takes: setTakes, Action: "autoscaler-replace", Doc: doc}), nil
	}
}
