package kube

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/zopday/provisioner/internal/sim"
)

// TestShared has two clusters in one control plane, each with nodes, namespaces and a cloud of its own.
func TestShared(t *testing.T) {
	t.Parallel()
	k := instance(t, Options{Binary: mustBinary(t), Shared: true})
	clouds := map[string]*fakeCloud{"one": newFakeCloud(), "two": newFakeCloud()}
	admin := map[string]*client{}
	for id, cloud := range clouds {
		e := k.Open(sim.KubeCluster{ID: id, Authenticate: authenticate, Cloud: cloud, Objects: []sim.KubeObject{classObject}})
		admin[id] = started(t, e)
		k.SetNodes(id, []sim.KubeNode{{Name: "node-of-" + id, Zone: "z-" + id}})
	}
	if one, two := k.cluster("one").backend, k.cluster("two").backend; one != two {
		t.Fatal("two control planes")
	}
	for id, c := range admin {
		eventually(t, "a cluster sees its own node alone", func() bool {
			nodes := get[list[nodeSeen]](t, c, nodesPath+"?labelSelector=kubernetes.io%2Fos%3Dlinux").Items
			return len(nodes) == 1 && nodes[0].Metadata.Name == "node-of-"+id && nodes[0].ready()
		})
		post(t, c, namespacesPath, `{"metadata": {"name": "space-`+id+`"}}`)
		post(t, c, namespacesPath+"/space-"+id+"/services", `{"metadata": {"name": "front"}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}}`)
		post(t, c, namespacesPath+"/space-"+id+"/persistentvolumeclaims", `{"metadata": {"name": "data"},
			"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}`)
		post(t, c, "/apis/rbac.authorization.k8s.io/v1/clusterroles", `{"metadata": {"name": "role-`+id+`"}}`)
		post(t, c, namespacesPath+"/default/configmaps", `{"metadata": {"name": "map-`+id+`"}}`)
		post(t, c, namespacesPath+"/space-"+id+"/pods", pod("db", "", "Always", `{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}`))
	}
	for id, c := range admin {
		eventually(t, "each cloud has its own cluster's things", func() bool {
			balancers, disks := clouds[id].count()
			return balancers == 1 && disks == 1 && get[struct{ Status struct{ Phase string } }](t, c, namespacesPath+"/space-"+id+"/pods/db").Status.Phase == "Running"
		})
	}

	k.Close("one")
	again := as(t, k.Open(sim.KubeCluster{ID: "one again", Authenticate: authenticate}), adminToken)
	// Whoever takes the name next finds the namespace gone, not going.
	post(t, again, namespacesPath, `{"metadata": {"name": "space-one"}}`)
	for _, path := range []string{"/apis/rbac.authorization.k8s.io/v1/clusterroles/role-", namespacesPath + "/default/configmaps/map-"} {
		eventually(t, "what was outside of namespaces is gone too", func() bool { return gone(again, path+"one") })
		if gone(again, path+"two") {
			t.Errorf("%stwo went with the other cluster", path)
		}
	}
	if services := get[list[service]](t, again, namespacesPath+"/space-one/services").Items; len(services) != 0 {
		t.Errorf("the closed cluster's services: %+v", services)
	}
	if nodes := get[list[nodeSeen]](t, k.shared.run.process.client, nodesPath).Items; len(nodes) != 1 || nodes[0].Metadata.Name != "node-of-two" {
		t.Errorf("nodes of all clusters: %+v", nodes)
	}
	if balancers, disks := clouds["one"].count(); balancers != 1 || disks != 1 {
		t.Errorf("the cloud was told to delete what the closed cluster had: %d load balancers, %d disks left", balancers, disks)
	}
	if balancers, disks := clouds["two"].count(); balancers != 1 || disks != 1 {
		t.Errorf("the other cluster has %d load balancers and %d disks", balancers, disks)
	}
	if got := get[list[service]](t, admin["two"], namespacesPath+"/space-two/services").Items; len(got) != 1 {
		t.Errorf("the other cluster's services: %+v", got)
	}

	behind := k.shared.run.process.client
	k.Reset()
	if volumes := get[list[volume]](t, behind, volumesPath).Items; len(volumes) != 0 || !gone(behind, namespacesPath+"/space-two") {
		t.Errorf("after the reset: %d volumes", len(volumes))
	}
	if balancers, disks := clouds["two"].count(); balancers != 1 || disks != 1 {
		t.Errorf("a reset deleted at the cloud: %d load balancers and %d disks left", balancers, disks)
	}
}

// TestKept opens a bare cluster again in a later instance.
func TestKept(t *testing.T) {
	t.Parallel()
	binary, dir := mustBinary(t), t.TempDir()
	open := func() (*Kube, *client) {
		k := instance(t, Options{Binary: binary, StateDir: dir, Bare: true})
		return k, started(t, k.Open(sim.KubeCluster{ID: "one", Authenticate: authenticate}))
	}
	k, admin := open()
	const path = "/api/v1/namespaces/default/configmaps"
	eventually(t, "the namespace is there", func() bool { return !gone(admin, "/api/v1/namespaces/default") })
	post(t, admin, path, `{"metadata": {"name": "kept"}, "data": {"a": "b"}}`)
	post(t, admin, "/apis/apps/v1/namespaces/default/deployments", `{"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": {"app": "web"}},
		"template": `+pod("", `"app": "web"`, "Always", "")+`}}`)
	k.Shutdown()

	k, admin = open()
	if got := get[struct{ Data map[string]string }](t, admin, path+"/kept"); got.Data["a"] != "b" {
		t.Errorf("kept: %v", got)
	}
	// Nobody is there to make pods of it.
	if pods := get[list[metadata]](t, admin, "/api/v1/pods").Items; len(pods) != 0 {
		t.Errorf("pods in a bare cluster: %v", pods)
	}
	if !slices.ContainsFunc(k.Requests(), func(r Request) bool { return r.Method == http.MethodGet && r.Path == path+"/kept" && r.Count == 1 }) {
		t.Errorf("books: %+v", k.Requests())
	}
	k.Close("one")
	k.Shutdown()
	if _, err := os.Stat(filepath.Join(dir, keyOf("one"))); !os.IsNotExist(err) {
		t.Errorf("folder of a closed cluster: %v", err)
	}
}
