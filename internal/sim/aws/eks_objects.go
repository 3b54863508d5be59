package aws

import (
	"encoding/json"

	"sigs.k8s.io/yaml"

	"github.com/zopday/provisioner/internal/sim"
)

const (
	classesPath  = "/apis/storage.k8s.io/v1/storageclasses"
	bindingsPath = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
)

// policyRoles are the cluster roles of Kubernetes that stand for access policies of EKS; that of the administrator is a
// group of its own, which the API server lets do everything.
var policyRoles = map[string]string{"AmazonEKSAdminPolicy": "admin", "AmazonEKSEditPolicy": "edit", "AmazonEKSViewPolicy": "view", "AmazonEKSAdminViewPolicy": "view"}

// kubeObjects are what EKS puts into a cluster: the class gp2, which has not been the default one since 1.30 ("Kubernetes
// 1.30", Amazon EKS user guide), that of the storage add-on if it was asked for, and what access policies allow.
func (k *EKSCluster) kubeObjects() []sim.KubeObject {
	out := []sim.KubeObject{{Path: classesPath, JSON: objectJSON(map[string]any{"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": map[string]any{"name": "gp2"},
		"provisioner": "kubernetes.io/aws-ebs", "parameters": map[string]string{"type": "gp2", "fsType": "ext4"}, "reclaimPolicy": "Delete", "volumeBindingMode": "WaitForFirstConsumer"})}}
	if a := k.Addons["aws-ebs-csi-driver"]; a != nil && a.wantsDefaultClass() {
		out = append(out, sim.KubeObject{Path: classesPath, JSON: objectJSON(map[string]any{"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
			"metadata":    map[string]any{"name": "ebs-csi-default-sc", "annotations": map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}},
			"provisioner": "ebs.csi.aws.com", "reclaimPolicy": "Delete", "volumeBindingMode": "WaitForFirstConsumer", "allowVolumeExpansion": true})})
	}
	for _, policy := range sortedKeys(policyRoles) {
		group := "eks:access-policy:" + policy
		out = append(out, sim.KubeObject{Path: bindingsPath, JSON: objectJSON(map[string]any{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": map[string]any{"name": group},
			"roleRef":  map[string]string{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": policyRoles[policy]},
			"subjects": []map[string]string{{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}}})})
	}
	return out
}

// wantsDefaultClass says whether the storage add-on was asked for its default class.
func (a *EKSAddon) wantsDefaultClass() bool {
	var config struct {
		DefaultStorageClass struct{ Enabled bool } `json:"defaultStorageClass"`
	}
	return yaml.Unmarshal([]byte(a.Config), &config) == nil && config.DefaultStorageClass.Enabled
}

func objectJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // plain data of this file
	}
	return b
}
