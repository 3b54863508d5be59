package kube

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/zopday/provisioner/internal/sim"
)

// newVolume is the PersistentVolume of a claim's disk, as a driver's external provisioner writes it.
func newVolume(name string, c claim, k class, disk sim.KubeVolume) map[string]any {
	policy := k.ReclaimPolicy
	if policy == "" {
		policy = "Delete"
	}
	spec := map[string]any{
		"capacity":                      map[string]string{"storage": fmt.Sprintf("%dGi", disk.GiB)},
		"accessModes":                   c.Spec.AccessModes,
		"persistentVolumeReclaimPolicy": policy,
		"storageClassName":              c.Spec.StorageClassName,
		"mountOptions":                  k.MountOptions,
		"claimRef":                      c.subject(),
		"csi":                           map[string]any{"driver": disk.Provisioner, "volumeHandle": disk.Handle, "fsType": "ext4"},
	}
	if c.Spec.VolumeMode != "" {
		spec["volumeMode"] = c.Spec.VolumeMode
	}
	if disk.Zone != "" {
		spec["nodeAffinity"] = map[string]any{"required": map[string]any{"nodeSelectorTerms": []any{
			map[string]any{"matchExpressions": []any{map[string]any{"key": zoneLabel, "operator": "In", "values": []string{disk.Zone}}}},
		}}}
	}
	return map[string]any{
		"apiVersion": "v1", "kind": "PersistentVolume",
		"metadata": map[string]any{
			"name": name, "finalizers": []string{volumeFinalizer},
			"annotations": map[string]string{provisionedAnnotation: disk.Provisioner},
		},
		"spec": spec,
	}
}

// zoneFor is the zone of the node that is to use a disk; of none in particular, the first there is.
func zoneFor(ctx context.Context, api *client, nodeName string) (string, error) {
	if nodeName != "" {
		var n node
		err := api.call(ctx, http.MethodGet, nodesPath+"/"+nodeName, nil, &n)
		return n.Metadata.Labels[zoneLabel], err
	}
	var nodes list[node]
	if err := api.call(ctx, http.MethodGet, nodesPath, nil, &nodes); err != nil {
		return "", err
	}
	for _, n := range nodes.Items {
		if zone := n.Metadata.Labels[zoneLabel]; zone != "" {
			return zone, nil
		}
	}
	return "", nil
}

// suffixes of a quantity of storage (k8s.io/apimachinery/pkg/api/resource).
var suffixes = []struct {
	text   string
	factor float64
}{
	{"Ki", 1 << 10}, {"Mi", 1 << 20}, {"Gi", 1 << 30}, {"Ti", 1 << 40}, {"Pi", 1 << 50}, {"Ei", 1 << 60},
	{"m", 1e-3}, {"k", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12}, {"P", 1e15}, {"E", 1e18},
}

// gibibytes is a quantity of storage in full GiB, rounded up as the drivers do.
func gibibytes(quantity string) (int, error) {
	number, factor := quantity, 1.0
	for _, s := range suffixes {
		if rest, ok := strings.CutSuffix(quantity, s.text); ok {
			number, factor = rest, s.factor
			break
		}
	}
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || n <= 0 {
		return 0, fmt.Errorf("storage of %q", quantity)
	}
	return int(math.Ceil(n * factor / (1 << 30))), nil
}
