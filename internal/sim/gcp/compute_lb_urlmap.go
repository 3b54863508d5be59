package gcp

import (
	"fmt"
	"slices"
)

func (e *Compute) urlMapKind() *kind {
	return &kind{collection: "urlMaps", noun: "url_map", schema: "UrlMap", resources: map[string]string{"": "urlMaps", "regions": "regionUrlMaps"},
		takes: lbTakes, prepare: e.prepareURLMap, loose: []string{"status"}, ready: e.watch, quota: globally("URL_MAPS"),
		show: func(res *Resource, doc Doc) {
			rules := 0
			for _, proxy := range e.inOrder(func(o *Resource) bool {
				return slices.Contains(targets, o.Collection) && slices.Contains(e.usedBy(o), res.Path)
			}) {
				for _, rule := range e.ofKind(res.project(), "forwardingRules") {
					if e.cloud.pathOfLink(rule.project(), str(rule.Doc, "target")) == proxy.Path {
						rules++
					}
				}
			}
			units := 60 + len(docs(doc, "pathMatchers"))
			doc["status"] = Doc{"quotaUsage": Doc{"forwardingRules": float64(rules), "units": fmt.Sprint(units)}}
		}}
}

func (e *Compute) urlMapMethods(a *api) {
	for _, resource := range []string{"urlMaps", "regionUrlMaps"} {
		for _, verb := range []string{"patch", "update"} {
			a.ops[resource+"."+verb] = e.rewrite(e.kinds["urlMaps"], verb)
		}
	}
	a.ops["urlMaps.validate"] = func(r *request) (any, error) {
		if _, err := e.change(r, e.kinds["urlMaps"]); err != nil {
			return nil, err
		}
		doc := clone(sub(r.Body, "resource"))
		if err := e.prepareURLMap(r, e.pathOf(r, e.kinds["urlMaps"]), doc); err != nil {
			refused, ok := asRefusal(err)
			if !ok {
				return nil, err
			}
			return Doc{"result": Doc{"loadSucceeded": false, "loadErrors": []any{refused.Message}}}, nil
		}
		return Doc{"result": Doc{"loadSucceeded": true, "testPassed": true}}, nil
	}
	a.ops["urlMaps.invalidateCache"] = func(r *request) (any, error) {
		res, err := e.change(r, e.kinds["urlMaps"])
		if err != nil {
			return nil, err
		}
		return e.start(r, change{Type: "invalidateCache", Target: res, Action: actNothing}), nil
	}
}

// prepareURLMap checks a URL map and fills it up ("Method: urlMaps.insert"): it leads somewhere, its host rules name path matchers
// that exist, and its backend services are of its own scope.
func (e *Compute) prepareURLMap(r *request, path string, doc Doc) error {
	if !leads(doc, "default") {
		return invalidField("resource.defaultService", "", "A URL map must have one of defaultService, defaultUrlRedirect or defaultRouteAction.")
	}
	matchers := map[string]bool{}
	for n, m := range docs(doc, "pathMatchers") {
		field := fmt.Sprintf("resource.pathMatchers[%d]", n)
		if !leads(m, "default") {
			return invalidField(field+".defaultService", "", "A path matcher must have one of defaultService, defaultUrlRedirect or defaultRouteAction.")
		}
		if matchers[str(m, "name")] {
			return invalidField(field+".name", str(m, "name"), "Duplicate path matcher name.")
		}
		matchers[str(m, "name")] = true
	}
	named := map[string]bool{}
	for n, h := range docs(doc, "hostRules") {
		if !matchers[str(h, "pathMatcher")] {
			return invalidField(fmt.Sprintf("resource.hostRules[%d].pathMatcher", n), str(h, "pathMatcher"), "The path matcher does not exist.")
		}
		named[str(h, "pathMatcher")] = true
	}
	for n, m := range docs(doc, "pathMatchers") {
		if !named[str(m, "name")] {
			return invalidField(fmt.Sprintf("resource.pathMatchers[%d].name", n), str(m, "name"), "The path matcher is not used by any host rule.")
		}
	}
	if err := e.sameScope(r, path, doc); err != nil {
		return err
	}
	e.fullLinks(r.Project.ID, doc)
	e.print(doc)
	return nil
}

// leads says whether a part of a URL map says where to go.
func leads(d Doc, prefix string) bool {
	return str(d, prefix+"Service") != "" || sub(d, prefix+"UrlRedirect") != nil || sub(d, prefix+"RouteAction") != nil
}

// sameScope refuses backend services of another region.
func (e *Compute) sameScope(r *request, path string, doc Doc) error {
	for _, p := range e.linksIn(r.Project.ID, doc, []string{"status"}) {
		if collectionOf(p) == "backendServices" && scopeOf(p) != scopeOf(path) && e.st.Resources[p] != nil {
			return invalidField("resource.defaultService", p, "The backend service must be in the same scope as the URL map.")
		}
	}
	return nil
}

// serviceFields are the fields that hold links to backend services or buckets.
var serviceFields = []string{"defaultService", "service", "backendService", "errorService"}

// fullLinks writes the partial links in those fields in full, as Compute Engine does.
func (e *Compute) fullLinks(project string, v any) {
	switch x := v.(type) {
	case map[string]any:
		for k, inner := range x {
			if s, ok := inner.(string); ok && slices.Contains(serviceFields, k) {
				if p := e.cloud.pathOfLink(project, s); p != "" {
					x[k] = selfLink(p)
				}
				continue
			}
			if k != "tests" { // those stay as they came
				e.fullLinks(project, inner)
			}
		}
	case []any:
		for _, item := range x {
			e.fullLinks(project, item)
		}
	}
}
