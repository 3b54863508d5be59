package kube

import (
	"errors"
	"slices"
	"testing"
)

func testBalancer(t *testing.T, admin *client, cloud *fakeCloud) {
	const path = "/api/v1/namespaces/default/services"
	cloud.fail(errors.New("TooManyLoadBalancers: quota exceeded"))
	post(t, admin, path, `{"metadata": {"name": "front", "annotations": {"a": "b"}}, "spec": {"type": "LoadBalancer", "ports": [{"port": 443}], "selector": {"app": "web"}}}`)
	type event struct{ Reason, Message string }
	eventually(t, "an event says what the cloud said", func() bool {
		return slices.Contains(get[list[event]](t, admin, "/api/v1/namespaces/default/events").Items, event{"SyncLoadBalancerFailed", "TooManyLoadBalancers: quota exceeded"})
	})
	cloud.fail(nil)
	eventually(t, "the service has an address", func() bool {
		s := get[service](t, admin, path+"/front")
		return slices.Equal(s.Status.LoadBalancer.Ingress, []ingress{{Hostname: "front.elb.example.test"}}) && slices.Contains(s.Metadata.Finalizers, balancerFinalizer)
	})
	if err := admin.patch(t.Context(), path+"/front", map[string]any{"spec": map[string]any{"type": "ClusterIP"}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "no load balancer without the type", func() bool {
		s := get[service](t, admin, path+"/front")
		n, _ := cloud.count()
		return n == 0 && len(s.Status.LoadBalancer.Ingress) == 0 && len(s.Metadata.Finalizers) == 0
	})
	remove(t, admin, path+"/front")

	post(t, admin, path, `{"metadata": {"name": "second"}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}}`)
	eventually(t, "the second has an address", func() bool { return len(get[service](t, admin, path+"/second").Status.LoadBalancer.Ingress) == 1 })
	if n, _ := cloud.count(); n != 1 {
		t.Errorf("%d load balancers", n)
	}
	remove(t, admin, path+"/second")
	eventually(t, "the service is gone", func() bool { return gone(admin, path+"/second") })
	if n, _ := cloud.count(); n != 0 {
		t.Errorf("the service is gone before its load balancer: %d left", n)
	}
}

func testDisk(t *testing.T, admin *client, cloud *fakeCloud) {
	const claims, pods = "/api/v1/namespaces/default/persistentvolumeclaims", "/api/v1/namespaces/default/pods"
	post(t, admin, claims, `{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "8500Mi"}}}}`)
	post(t, admin, pods, pod("db", "", "Always", `{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}`))
	type phased struct {
		Spec   struct{ NodeName string }
		Status struct{ Phase string }
	}
	eventually(t, "the claim is bound and its pod runs", func() bool {
		return get[phased](t, admin, claims+"/data").Status.Phase == "Bound" && get[phased](t, admin, pods+"/db").Status.Phase == "Running"
	}, func() any { return get[any](t, admin, claims+"/data") }, func() any { return get[any](t, admin, pods+"/db") })
	zone := get[node](t, admin, nodesPath+"/"+get[phased](t, admin, pods+"/db").Spec.NodeName).Metadata.Labels[zoneLabel]
	if d := cloud.disk(); d.GiB != 9 || d.Zone != zone || d.Provisioner != "ebs.csi.aws.com" || d.StorageClass["type"] != "gp3" || d.Name != "data" {
		t.Errorf("disk %+v, of a pod in %s", d, zone)
	}
	remove(t, admin, pods+"/db")
	remove(t, admin, claims+"/data")
	eventually(t, "the volume and its disk are gone", func() bool {
		_, disks := cloud.count()
		return disks == 0 && len(get[list[volume]](t, admin, volumesPath).Items) == 0
	}, func() any { return get[any](t, admin, volumesPath) })
}
