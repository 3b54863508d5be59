package azure

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/zopday/provisioner/internal/sim"
)

// errGone is what the cloud controller of a cluster says when the cluster is no more.
var errGone = errors.New("the cluster is gone")

const internalBalancer = "service.beta.kubernetes.io/azure-load-balancer-internal"

// balancerName is the name of what a Service has at the cloud: "a" and its UID without dashes ("Use a public standard load balancer in
// AKS").
func balancerName(s sim.KubeService) string {
	name := "a" + strings.ReplaceAll(s.UID, "-", "")
	return name[:min(len(name), 32)]
}

// EnsureLoadBalancer implements sim.KubeCloud: a frontend and rules on the cluster's load balancer, with a public address of its own
// unless the Service is internal.
func (k *clusterCloud) EnsureLoadBalancer(ctx context.Context, s sim.KubeService) (hostname, ip string, err error) {
	if s.Class != "" {
		return "", "", nil // another controller's
	}
	err = k.within(ctx, func(cluster *Resource) error {
		var e *Error
		if ip, e = k.cloud.exposeService(cluster, s); e != nil {
			return fmt.Errorf("load balancer of %s/%s: %w", s.Namespace, s.Name, e)
		}
		return nil
	})
	return "", ip, err
}

// exposeService makes or completes the part of a load balancer that a Service has, and answers its address.
func (c *Cloud) exposeService(cluster *Resource, s sim.KubeService) (string, *Error) {
	name, internal := balancerName(s), s.Annotations[internalBalancer] == "true"
	front, e := c.serviceFront(cluster, s, internal)
	if e != nil {
		return "", e
	}
	id := inNodeGroup(cluster, loadBalancerType, "kubernetes")
	if internal {
		id += "-internal"
	}
	props := doc{lbPools: []any{map[string]any{"name": nodesPool}}}
	if lb := c.find(id); lb != nil {
		props = lb.Properties.clone()
	}
	withoutService(props, name)
	props[lbFrontends] = append(props.list(lbFrontends), map[string]any{"name": name, "properties": map[string]any(front)})
	for _, port := range s.Ports {
		part := fmt.Sprintf("%s-TCP-%d", name, port)
		props[lbProbes] = append(props.list(lbProbes), map[string]any{"name": part, "properties": map[string]any{"protocol": "Tcp", "port": float64(30000 + port%2768), "intervalInSeconds": 5.0, "numberOfProbes": 2.0}})
		props[lbRules] = append(props.list(lbRules), map[string]any{"name": part, "properties": map[string]any{"protocol": "Tcp", "frontendPort": float64(port), "backendPort": float64(port), "enableFloatingIP": true,
			"enableTcpReset": true, "disableOutboundSnat": !internal, "frontendIPConfiguration": map[string]any{"id": id + "/" + lbFrontends + "/" + name},
			"backendAddressPool": map[string]any{"id": id + "/" + lbPools + "/" + nodesPool}, "probe": map[string]any{"id": id + "/" + lbProbes + "/" + part}}})
	}
	lb, e := c.provide(id, loadBalancerType, cluster, cluster.Tags, doc{"sku": map[string]any{"name": "Standard"}}, props, false)
	if e != nil {
		return "", e
	}
	for _, f := range lb.Properties.docs(lbFrontends) {
		if f.str("name") != name {
			continue
		}
		if public := c.find(f.ref("properties.publicIPAddress")); public != nil {
			return public.Properties.str("ipAddress"), nil
		}
		return f.str("properties.privateIPAddress"), nil
	}
	return "", nil
}

// serviceFront is where a Service answers: a public address that is tagged with its name, or a subnet that the cluster's identity has to be
// allowed to join.
func (c *Cloud) serviceFront(cluster *Resource, s sim.KubeService, internal bool) (doc, *Error) {
	if !internal {
		ip, e := c.ensurePublicIP(cluster, "kubernetes-"+balancerName(s), map[string]string{"k8s-azure-service": s.Namespace + "/" + s.Name, "k8s-azure-cluster-name": "kubernetes"})
		if e != nil {
			return nil, e
		}
		return doc{"publicIPAddress": map[string]any{"id": ip.ID}}, nil
	}
	pools := c.poolsOf(cluster)
	if len(pools) == 0 {
		return nil, refuse(400, "NoNodes", "The cluster has no nodes.")
	}
	subnet := c.nodeSubnet(cluster, pools[0])
	if name := s.Annotations[internalBalancer+"-subnet"]; name != "" {
		subnet = parentOf(subnet) + "/subnets/" + name
	}
	if !strings.EqualFold(groupOf(subnet), cluster.Properties.str("nodeResourceGroup")) {
		const action = "Microsoft.Network/virtualNetworks/subnets/join/action"
		if !slices.ContainsFunc(clusterPrincipals(cluster), func(who string) bool { return c.permitted(who, subnet, action, false) }) {
			who := first(clusterPrincipals(cluster))
			return nil, refuseARM(403, "LinkedAuthorizationFailed", "The client '%s' with object id '%s' has permission to perform action '%s/write' on scope '%s'; however, it does not have permission to perform action(s) '%s' on the linked scope(s) '%s' (respectively) or the linked scope(s) are invalid.",
				who, who, loadBalancerType, inNodeGroup(cluster, loadBalancerType, "kubernetes-internal"), action, subnet)
		}
	}
	return doc{"subnet": map[string]any{"id": subnet}}, nil
}

// withoutService takes what a Service has out of a load balancer.
func withoutService(props doc, name string) {
	for _, list := range []string{lbRules, lbProbes, lbFrontends} {
		kept := []any{}
		for _, d := range props.docs(list) {
			if n := d.str("name"); n != name && !strings.HasPrefix(n, name+"-") {
				kept = append(kept, map[string]any(d))
			}
		}
		props[list] = kept
	}
}

// DeleteLoadBalancer implements sim.KubeCloud.
func (k *clusterCloud) DeleteLoadBalancer(ctx context.Context, s sim.KubeService) (done bool, err error) {
	err = k.within(ctx, func(cluster *Resource) error {
		c, name := k.cloud, balancerName(s)
		for _, kind := range []string{"kubernetes", "kubernetes-internal"} {
			lb := c.find(inNodeGroup(cluster, loadBalancerType, kind))
			if lb == nil {
				continue
			}
			props := lb.Properties.clone()
			withoutService(props, name)
			if len(props.docs(lbFrontends)) == 0 {
				c.leaveBalancer(lb)
				c.drop(lb)
				continue
			}
			if _, e := c.provide(lb.ID, loadBalancerType, cluster, lb.Tags, doc{"sku": map[string]any{"name": "Standard"}}, props, false); e != nil {
				return fmt.Errorf("load balancer of %s/%s: %w", s.Namespace, s.Name, e)
			}
		}
		if ip := c.find(inNodeGroup(cluster, publicIPType, "kubernetes-"+name)); ip != nil {
			c.drop(ip)
		}
		return nil
	})
	if errors.Is(err, errGone) {
		return true, nil
	}
	return err == nil, err
}

// leaveBalancer takes machines out of the pools of a load balancer that goes.
func (c *Cloud) leaveBalancer(lb *Resource) {
	for _, name := range c.shelfNames() {
		for _, res := range c.shelves[name].sorted() {
			if res.Type != setType && res.Type != instanceNICType {
				continue
			}
			configs := res.Properties.docs("ipConfigurations")
			for _, n := range res.Properties.docs("virtualMachineProfile.networkProfile.networkInterfaceConfigurations") {
				configs = append(configs, n.docs("properties.ipConfigurations")...)
			}
			for _, cfg := range configs {
				if first(refsOf(cfg.docs("properties.loadBalancerBackendAddressPools"))) == lb.ID+"/"+lbPools+"/"+nodesPool {
					delete(cfg.sub("properties"), "loadBalancerBackendAddressPools")
				}
			}
		}
	}
}

func refsOf(list []doc) []string {
	var out []string
	for _, d := range list {
		out = append(out, d.str("id"))
	}
	return out
}

// EnsureDisk implements sim.KubeCloud: a managed disk in the node resource group, as the Azure Disk CSI driver makes it.
func (k *clusterCloud) EnsureDisk(ctx context.Context, v sim.KubeVolume) (handle string, err error) {
	err = k.within(ctx, func(cluster *Resource) error {
		c := k.cloud
		if v.Provisioner != "" && v.Provisioner != diskProvisioner {
			return fmt.Errorf("claim %s/%s: only disks of %s are simulated, not %s", v.Namespace, v.Name, diskProvisioner, v.Provisioner)
		}
		id := inNodeGroup(cluster, diskType, "pvc-"+v.UID)
		if disk := c.find(id); disk != nil {
			handle = disk.ID
			return nil
		}
		sku := "StandardSSD_LRS"
		for name, value := range v.StorageClass {
			if strings.EqualFold(name, "skuname") || strings.EqualFold(name, "storageaccounttype") {
				sku = value
			}
		}
		top := doc{"sku": map[string]any{"name": sku}}
		if _, z, ok := strings.Cut(v.Zone, cluster.Location+"-"); ok && !strings.HasSuffix(sku, "ZRS") {
			top["zones"] = []any{z}
		}
		tags := map[string]string{"k8s-azure-created-by": "kubernetes-azure-dd", "kubernetes.io-created-for-pv-name": "pvc-" + v.UID,
			"kubernetes.io-created-for-pvc-name": v.Name, "kubernetes.io-created-for-pvc-namespace": v.Namespace}
		maps.Copy(tags, tagsInClass(v.StorageClass))
		disk, e := c.provide(id, diskType, cluster, tags, top, doc{"creationData": map[string]any{"createOption": "Empty"}, "diskSizeGB": float64(v.GiB)}, false)
		if e != nil {
			return fmt.Errorf("disk of %s/%s: %w", v.Namespace, v.Name, e)
		}
		handle = disk.ID
		return nil
	})
	return handle, err
}

// tagsInClass are the tags that a storage class asks for: k=v, separated by commas.
func tagsInClass(class map[string]string) map[string]string {
	tags := map[string]string{}
	for part := range strings.SplitSeq(class["tags"], ",") {
		if k, v, ok := strings.Cut(part, "="); ok {
			tags[strings.TrimSpace(k)] = strings.TrimSpace(v)
		}
	}
	return tags
}

// DeleteDisk implements sim.KubeCloud.
func (k *clusterCloud) DeleteDisk(ctx context.Context, v sim.KubeVolume) (done bool, err error) {
	err = k.within(ctx, func(cluster *Resource) error {
		id := v.Handle
		if id == "" {
			id = inNodeGroup(cluster, diskType, "pvc-"+v.UID)
		}
		if disk := k.cloud.find(id); disk != nil {
			k.cloud.drop(disk)
		}
		return nil
	})
	if errors.Is(err, errGone) {
		return true, nil
	}
	return err == nil, err
}
