package gcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/zopday/provisioner/internal/sim"
)

// kubeCloud is the part of a cluster's controllers that makes things in the project: load balancers of Services and disks of
// claims. They are not the cluster's: if it is deleted with Services and claims in it, they stay.
type kubeCloud struct {
	s    *container
	path string // of the cluster
}

var errClusterGone = errors.New("the cluster is gone")

// locked carries something out for the cluster, with the world locked.
func (k *kubeCloud) locked(f func(c *cluster) error) error {
	k.s.cloud.World.Lock()
	defer k.s.cloud.World.Unlock()
	c := k.s.st.Clusters[k.path]
	if c == nil {
		return errClusterGone
	}
	return f(c)
}

// balancerName is the name of a Service's load balancer: an a and its UID, 32 characters at most (DefaultLoadBalancerName of
// Kubernetes' cloud provider interface).
func balancerName(uid string) string { return clipped("a"+strings.ReplaceAll(uid, "-", ""), 32) }

// storageClasses are those that GKE puts into a cluster whose driver of persistent disks is on ("About persistent volumes and dynamic
// provisioning": the default StorageClass).
func storageClasses(c *cluster) []sim.KubeObject {
	if !truth(sub(sub(c.Doc, "addonsConfig"), "gcePersistentDiskCsiDriverConfig"), "enabled") {
		return nil
	}
	var out []sim.KubeObject
	const driver = "pd.csi.storage.gke.io"
	for _, class := range []struct{ name, disk, mode, isDefault, provisioner string }{
		{"standard-rwo", "pd-balanced", "WaitForFirstConsumer", "true", driver}, {"premium-rwo", "pd-ssd", "WaitForFirstConsumer", "false", driver},
		{"standard", "pd-standard", "Immediate", "false", "kubernetes.io/gce-pd"}} {
		b, err := json.Marshal(Doc{"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": class.provisioner, "parameters": Doc{"type": class.disk},
			"metadata": Doc{"name": class.name, "annotations": Doc{"storageclass.kubernetes.io/is-default-class": class.isDefault},
				"labels": Doc{"addonmanager.kubernetes.io/mode": "EnsureExists", "k8s-app": "gcp-compute-persistent-disk-csi-driver"}},
			"reclaimPolicy": "Delete", "volumeBindingMode": class.mode, "allowVolumeExpansion": true})
		if err != nil {
			panic(err) // texts
		}
		out = append(out, sim.KubeObject{Path: "/apis/storage.k8s.io/v1/storageclasses", JSON: b})
	}
	return out
}

// A part is one object of a load balancer.
type part struct {
	path, op string
	params   map[string]any
}

// balancer lists the objects of a Service's load balancer, in the order in which they are made.
func (k *kubeCloud) balancer(c *cluster, svc sim.KubeService) []part {
	name, base := balancerName(svc.UID), "projects/"+c.project()+"/"
	description, _ := json.Marshal(map[string]string{"kubernetes.io/service-name": svc.Namespace + "/" + svc.Name}) // texts
	ports := make([]any, 0, len(svc.Ports))
	for _, p := range svc.Ports {
		ports = append(ports, strconv.Itoa(p))
	}
	scheme := "EXTERNAL"
	if strings.EqualFold(svc.Annotations["networking.gke.io/load-balancer-type"], "Internal") || strings.EqualFold(svc.Annotations["cloud.google.com/load-balancer-type"], "Internal") {
		scheme = "INTERNAL"
	}
	regional := base + "regions/" + c.region() + "/"
	rule := Doc{"name": name, "description": string(description), "loadBalancingScheme": scheme, "IPProtocol": "TCP", "ports": ports,
		"backendService": selfLink(regional + "backendServices/" + name)}
	if scheme == "INTERNAL" {
		rule["subnetwork"], rule["network"] = selfLink(k.s.subnetPath(c)), selfLink(k.s.networkPath(c))
	}
	if len(ports) > 5 {
		delete(rule, "ports")
		rule["allPorts"] = true
	}
	firewall := func(name string, allowed []any, sources ...any) Doc {
		return Doc{"name": name, "description": string(description), "network": selfLink(k.s.networkPath(c)), "sourceRanges": sources, "targetTags": []any{c.nodeTag()},
			"allowed": []any{Doc{"IPProtocol": "tcp", "ports": allowed}}}
	}
	return []part{
		{base + "global/firewalls/k8s-fw-" + name, "firewalls.insert", map[string]any{"body": firewall("k8s-fw-"+name, ports, "0.0.0.0/0")}},
		{base + "global/firewalls/k8s-" + name + "-http-hc", "firewalls.insert", map[string]any{"body": firewall("k8s-"+name+"-http-hc", []any{"10256"},
			"130.211.0.0/22", "209.85.152.0/22", "209.85.204.0/22", "35.191.0.0/16")}},
		{regional + "healthChecks/" + name, "regionHealthChecks.insert", map[string]any{"region": c.region(), "body": Doc{"name": name, "description": string(description), "type": "HTTP",
			"httpHealthCheck": Doc{"port": 10256.0, "requestPath": "/healthz"}}}},
		{regional + "backendServices/" + name, "regionBackendServices.insert", map[string]any{"region": c.region(), "body": Doc{"name": name, "description": string(description),
			"loadBalancingScheme": scheme, "protocol": "TCP", "healthChecks": []any{selfLink(regional + "healthChecks/" + name)}}}},
		{regional + "forwardingRules/" + name, "forwardingRules.insert", map[string]any{"region": c.region(), "body": rule}},
	}
}

// EnsureLoadBalancer makes what is missing of a Service's load balancer: firewall rules, health check, backend service and
// forwarding rule ("LoadBalancer Service concepts", GKE).
func (k *kubeCloud) EnsureLoadBalancer(_ context.Context, svc sim.KubeService) (hostname, ip string, err error) {
	if svc.Class != "" && !strings.HasPrefix(svc.Class, "networking.gke.io/") {
		return "", "", nil // another controller's
	}
	err = k.locked(func(c *cluster) error {
		for _, p := range k.balancer(c, svc) {
			if k.s.cloud.compute.at(p.path) == nil {
				if err := k.s.invoke(p.op, c, "", p.params); err != nil {
					return err
				}
			}
		}
		rule := k.s.cloud.compute.at("projects/" + c.project() + "/regions/" + c.region() + "/forwardingRules/" + balancerName(svc.UID))
		ip = str(rule.doc(), "IPAddress")
		return nil
	})
	return "", ip, err
}

// DeleteLoadBalancer removes it, the last part first.
func (k *kubeCloud) DeleteLoadBalancer(_ context.Context, svc sim.KubeService) (bool, error) {
	err := k.locked(func(c *cluster) error {
		for _, p := range slices.Backward(k.balancer(c, svc)) {
			if res := k.s.cloud.compute.at(p.path); res != nil {
				k.s.cloud.compute.drop(res)
			}
		}
		return nil
	})
	return err == nil, err
}

// EnsureDisk makes the disk of a claim, as the Persistent Disk CSI driver does, and answers its volume handle.
func (k *kubeCloud) EnsureDisk(_ context.Context, v sim.KubeVolume) (handle string, err error) {
	err = k.locked(func(c *cluster) error {
		zone := v.Zone
		if !zoneExists(zone) {
			zone = texts(c.Doc, "locations")[0]
		}
		name := "pvc-" + v.UID
		path := "projects/" + c.project() + "/zones/" + zone + "/disks/" + name
		handle = path
		if k.s.cloud.compute.at(path) != nil {
			return nil
		}
		kind := orText(v.StorageClass["type"], "pd-balanced")
		description, _ := json.Marshal(map[string]string{"kubernetes.io/created-for/pv/name": name, "kubernetes.io/created-for/pvc/name": v.Name,
			"kubernetes.io/created-for/pvc/namespace": v.Namespace, "storage.gke.io/created-by": "pd.csi.storage.gke.io"}) // texts
		labels := Doc{"goog-k8s-cluster-name": c.name(), "goog-k8s-cluster-location": c.location(), "goog-gke-volume": ""}
		for k, v := range resourceLabels(c.Doc) {
			labels[k] = v
		}
		t, known := diskTypes[kind]
		if !known {
			return fmt.Errorf("the storage class asks for a disk of the type %q, which is none", kind)
		}
		return k.s.invoke("disks.insert", c, "", map[string]any{"zone": zone, "body": Doc{"name": name, "sizeGb": strconv.Itoa(max(v.GiB, t.least)), "description": string(description), "labels": labels,
			"type": "projects/" + c.project() + "/zones/" + zone + "/diskTypes/" + kind}})
	})
	return handle, err
}

// DeleteDisk removes the disk of a claim.
func (k *kubeCloud) DeleteDisk(_ context.Context, v sim.KubeVolume) (bool, error) {
	err := k.locked(func(*cluster) error {
		if res := k.s.cloud.compute.at(v.Handle); res != nil {
			k.s.cloud.compute.drop(res)
		}
		return nil
	})
	return err == nil, err
}
