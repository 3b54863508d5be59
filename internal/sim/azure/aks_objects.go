package azure

import (
	"encoding/json"

	"github.com/zopday/provisioner/internal/sim"
)

const diskProvisioner = "disk.csi.azure.com"

// diskClasses are the storage classes of disks that every cluster has ("Storage options for applications in AKS"). Those of file shares are
// left out: file shares are not simulated.
var diskClasses = []struct {
	name, sku string
	byDefault bool
}{{"default", "StandardSSD_LRS", true}, {"managed", "StandardSSD_LRS", false}, {"managed-csi", "StandardSSD_LRS", false}, {"managed-premium", "Premium_LRS", false}, {"managed-csi-premium", "Premium_LRS", false}}

// ownObjects are what AKS puts into its clusters: storage classes, and what Azure's roles come to.
func ownObjects() []sim.KubeObject {
	var out []sim.KubeObject
	add := func(path string, object map[string]any) {
		b, err := json.Marshal(object)
		if err != nil {
			panic(err) // plain data
		}
		out = append(out, sim.KubeObject{Path: path, JSON: b})
	}
	for _, c := range diskClasses {
		meta := map[string]any{"name": c.name, "labels": map[string]any{"addonmanager.kubernetes.io/mode": "EnsureExists", "kubernetes.io/cluster-service": "true"}}
		if c.byDefault {
			meta["annotations"] = map[string]any{"storageclass.kubernetes.io/is-default-class": "true"}
		}
		add("/apis/storage.k8s.io/v1/storageclasses", map[string]any{"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": meta, "provisioner": diskProvisioner, "parameters": map[string]any{"skuname": c.sku},
			"reclaimPolicy": "Delete", "allowVolumeExpansion": true, "volumeBindingMode": "WaitForFirstConsumer"})
	}
	for _, l := range clusterLevels {
		if l.role == "" {
			continue
		}
		add("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", map[string]any{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": map[string]any{"name": l.group},
			"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": l.role},
			"subjects": []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": l.group}}})
	}
	return out
}
