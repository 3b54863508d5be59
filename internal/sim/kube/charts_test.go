package kube

import (
	"net/http"
	"strings"
	"testing"
)

// testCharts creates the kinds of object that charts hold besides workloads, and finds the rules of
// a managed cluster that they run into.
func testCharts(t *testing.T, admin *client) {
	const space = namespacesPath + "/charts"
	post(t, admin, namespacesPath, `{"metadata": {"name": "charts", "labels": {"pod-security.kubernetes.io/enforce": "baseline"}}}`)
	for path, object := range map[string]string{
		"/apis/networking.k8s.io/v1/ingressclasses":                    `{"metadata": {"name": "nginx"}, "spec": {"controller": "k8s.io/ingress-nginx"}}`,
		"/apis/networking.k8s.io/v1/namespaces/charts/ingresses":       `{"metadata": {"name": "i"}, "spec": {"ingressClassName": "nginx", "rules": [{"host": "a.example.test"}]}}`,
		"/apis/networking.k8s.io/v1/namespaces/charts/networkpolicies": `{"metadata": {"name": "n"}, "spec": {"podSelector": {}}}`,
		"/apis/policy/v1/namespaces/charts/poddisruptionbudgets":       `{"metadata": {"name": "p"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}}`,
		"/apis/autoscaling/v2/namespaces/charts/horizontalpodautoscalers": `{"metadata": {"name": "h"},
			"spec": {"maxReplicas": 2, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}}`,
		"/apis/rbac.authorization.k8s.io/v1/clusterroles":       `{"metadata": {"name": "c"}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}`,
		"/apis/scheduling.k8s.io/v1/priorityclasses":            `{"metadata": {"name": "high"}, "value": 1000}`,
		"/apis/coordination.k8s.io/v1/namespaces/charts/leases": `{"metadata": {"name": "l"}}`,
		"/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations": `{"metadata": {"name": "w"}, "webhooks": [{"name": "w.example.test",
			"failurePolicy": "Ignore", "sideEffects": "None", "admissionReviewVersions": ["v1"], "clientConfig": {"service": {"namespace": "charts", "name": "w"}},
			"rules": [{"apiGroups": ["example.test"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["*"]}]}]}`,
		"/apis/apiextensions.k8s.io/v1/customresourcedefinitions": `{"metadata": {"name": "things.example.test"}, "spec": {"group": "example.test", "scope": "Namespaced",
			"names": {"plural": "things", "kind": "Thing"}, "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
			"type": "object", "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}}}}}]}}`,
		space + "/resourcequotas": `{"metadata": {"name": "q"}, "spec": {"hard": {"configmaps": "3"}}}`,
	} {
		post(t, admin, path, object)
	}
	const things = "/apis/example.test/v1/namespaces/charts/things"
	thing := `{"apiVersion": "example.test/v1", "kind": "Thing", "metadata": {"name": "t"}, "spec": {"size": SIZE}}`
	eventually(t, "the new kind is served", func() bool {
		return admin.call(t.Context(), http.MethodPost, things, []byte(strings.Replace(thing, "SIZE", "3", 1)), nil) == nil
	})

	refused := func(path, object string, code int, says string) {
		t.Helper()
		err := admin.call(t.Context(), http.MethodPost, path, []byte(object), nil)
		if !isCode(err, code) || !strings.Contains(err.Error(), says) {
			t.Errorf("POST %s: %v; want %d: %s", path, err, code, says)
		}
	}
	refused(things, strings.Replace(thing, "SIZE", `"large"`, 1), http.StatusUnprocessableEntity, "spec.size")
	privileged := strings.Replace(pod("p", "", "Always", ""), `"name": "main"`, `"name": "main", "securityContext": {"privileged": true}`, 1)
	refused(space+"/pods", privileged, http.StatusForbidden, `violates PodSecurity "baseline`)
	post(t, admin, namespacesPath+"/kube-system/pods", privileged)
	eventually(t, "the quota is counted", func() bool {
		q := get[struct {
			Status struct{ Hard map[string]string }
		}](t, admin, space+"/resourcequotas/q")
		return q.Status.Hard["configmaps"] == "3"
	})
	post(t, admin, space+"/configmaps", `{"metadata": {"name": "a"}}`)
	eventually(t, "the quota is used up", func() bool {
		err := admin.call(t.Context(), http.MethodPost, space+"/configmaps", []byte(`{"metadata": {"generateName": "b"}}`), nil)
		return isCode(err, http.StatusForbidden) && strings.Contains(err.Error(), "exceeded quota: q")
	})
	remove(t, admin, space)
	eventually(t, "the namespace is gone, with all that is in it", func() bool { return gone(admin, space) })
	if err := admin.call(t.Context(), http.MethodGet, things+"/t", nil, nil); !isCode(err, http.StatusNotFound) {
		t.Errorf("what was in it: %v", err)
	}
}
