package kube

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/zopday/provisioner/internal/sim"
)

// The words of the protocol between a cluster's volume controller, which lives in the control
// plane, and a driver's external provisioner, which is here (Kubernetes documentation,
// "Persistent Volumes" and "Dynamic Volume Provisioning"; kubernetes-csi/external-provisioner).
const (
	provisionerAnnotation = "volume.kubernetes.io/storage-provisioner" // on a claim: who is to make its volume
	selectedAnnotation    = "volume.kubernetes.io/selected-node"       // on a claim: where its pod is to run
	provisionedAnnotation = "pv.kubernetes.io/provisioned-by"          // on a volume: who made it
	volumeFinalizer       = "external-provisioner.volume.kubernetes.io/finalizer"

	volumesPath = "/api/v1/persistentvolumes"
	classesPath = "/apis/storage.k8s.io/v1/storageclasses"
	zoneLabel   = "topology.kubernetes.io/zone"
)

// provisions reports whether a driver of the clouds' disks goes by this name.
func provisions(name string) bool {
	switch name {
	case "ebs.csi.aws.com", "pd.csi.storage.gke.io", "disk.csi.azure.com":
		return true
	case "kubernetes.io/no-provisioner":
		return false
	}
	return strings.HasPrefix(name, "kubernetes.io/")
}

// claim is what we read of a PersistentVolumeClaim.
type claim struct {
	Metadata metadata `json:"metadata"`
	Spec     struct {
		AccessModes      []string `json:"accessModes"`
		StorageClassName string   `json:"storageClassName"`
		VolumeMode       string   `json:"volumeMode"`
		VolumeName       string   `json:"volumeName"`
		Resources        struct {
			Requests struct {
				Storage string `json:"storage"`
			} `json:"requests"`
		} `json:"resources"`
	} `json:"spec"`
}

func (c *claim) subject() subject {
	return subject{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: c.Metadata.Namespace, Name: c.Metadata.Name, UID: c.Metadata.UID}
}

// class is what we read of a StorageClass.
type class struct {
	Provisioner       string            `json:"provisioner"`
	Parameters        map[string]string `json:"parameters"`
	ReclaimPolicy     string            `json:"reclaimPolicy"`
	VolumeBindingMode string            `json:"volumeBindingMode"`
	MountOptions      []string          `json:"mountOptions"`
}

// volume is what we read of a PersistentVolume.
type volume struct {
	Metadata metadata `json:"metadata"`
	Spec     struct {
		ClaimRef                      subject `json:"claimRef"`
		PersistentVolumeReclaimPolicy string  `json:"persistentVolumeReclaimPolicy"`
		CSI                           struct {
			Driver       string `json:"driver"`
			VolumeHandle string `json:"volumeHandle"`
		} `json:"csi"`
	} `json:"spec"`
	Status struct {
		Phase string `json:"phase"`
	} `json:"status"`
}

func (v *volume) subject() subject {
	return subject{APIVersion: "v1", Kind: "PersistentVolume", Name: v.Metadata.Name, UID: v.Metadata.UID}
}

func (v *volume) path() string { return volumesPath + "/" + v.Metadata.Name }

func (v *volume) asked() sim.KubeVolume {
	ref := v.Spec.ClaimRef
	return sim.KubeVolume{
		Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID,
		Handle: v.Spec.CSI.VolumeHandle, Provisioner: v.Spec.CSI.Driver,
	}
}

// volumes makes and deletes the disks of claims.
type volumes struct {
	controller
	claims  *store[claim]
	volumes *store[volume]
	// begun are disks that were asked for and have no volume yet, by the claim's UID.
	begun map[string]sim.KubeVolume
}

func newVolumes(b *backend) *volumes {
	v := &volumes{controller: newController(b), begun: map[string]sim.KubeVolume{}}
	v.claims = newStore("/api/v1/persistentvolumeclaims", v.changed, func(c *claim) *metadata { return &c.Metadata })
	v.volumes = newStore(volumesPath, v.changed, func(p *volume) *metadata { return &p.Metadata })
	return v
}

func (v *volumes) run(ctx context.Context, api *client) {
	go v.claims.follow(ctx, api)
	go v.volumes.follow(ctx, api)
	go v.loop(ctx, func(ctx context.Context) bool {
		there, claims, left := v.volumes.all(), v.claims.all(), false
		for _, c := range claims {
			again, err := v.provision(ctx, api, c, there)
			if v.complain(ctx, api, c.subject(), "ProvisioningFailed", err) || again {
				left = true
			}
		}
		for _, p := range there {
			again, err := v.reclaim(ctx, api, p)
			if v.complain(ctx, api, p.subject(), "VolumeFailedDelete", err) || again {
				left = true
			}
		}
		return v.abandon(ctx, claims) || left
	})
}

// provision makes the disk and the volume of a claim that wants one.
func (v *volumes) provision(ctx context.Context, api *client, c claim, there []volume) (again bool, err error) {
	by := c.Metadata.Annotations[provisionerAnnotation]
	if c.Spec.VolumeName != "" || c.Metadata.DeletionTimestamp != "" || !provisions(by) {
		return false, nil
	}
	name := "pvc-" + c.Metadata.UID
	if slices.ContainsFunc(there, func(p volume) bool { return p.Metadata.Name == name }) {
		return false, nil
	}
	cloud, ours := v.backend.cloudOf(c.Metadata.Namespace)
	if cloud == nil || !ours {
		return false, nil
	}
	var k class
	if err := api.call(ctx, http.MethodGet, classesPath+"/"+c.Spec.StorageClassName, nil, &k); err != nil {
		return true, err
	}
	selected := c.Metadata.Annotations[selectedAnnotation]
	if k.VolumeBindingMode == "WaitForFirstConsumer" && selected == "" {
		return false, nil
	}
	gib, err := gibibytes(c.Spec.Resources.Requests.Storage)
	if err != nil {
		return false, err
	}
	zone, err := zoneFor(ctx, api, selected)
	if err != nil {
		return true, err
	}
	asked := sim.KubeVolume{
		Namespace: c.Metadata.Namespace, Name: c.Metadata.Name, UID: c.Metadata.UID,
		GiB: gib, Zone: zone, Provisioner: by, StorageClass: k.Parameters,
	}
	v.begun[c.Metadata.UID] = asked
	handle, err := cloud.EnsureDisk(ctx, asked)
	if err != nil || handle == "" {
		return true, err
	}
	asked.Handle = handle
	v.begun[c.Metadata.UID] = asked
	err = api.call(ctx, http.MethodPost, volumesPath, newVolume(name, c, k, asked), nil)
	if err != nil && !isCode(err, http.StatusConflict) {
		return true, err
	}
	delete(v.begun, c.Metadata.UID)
	return false, nil
}

// reclaim deletes the disk of a volume that nobody claims any more, if its policy says so.
func (v *volumes) reclaim(ctx context.Context, api *client, p volume) (again bool, err error) {
	if !provisions(p.Metadata.Annotations[provisionedAnnotation]) {
		return false, nil
	}
	removing := p.Metadata.DeletionTimestamp != ""
	if p.Spec.PersistentVolumeReclaimPolicy != "Delete" {
		if removing {
			// The disk stays: that is what the policy is for.
			return false, setFinalizer(ctx, api, p.path(), p.Metadata, volumeFinalizer, false)
		}
		return false, nil
	}
	if p.Status.Phase != "Released" && p.Status.Phase != "Failed" || !slices.Contains(p.Metadata.Finalizers, volumeFinalizer) {
		return false, nil
	}
	if cloud, ours := v.backend.cloudOf(p.Spec.ClaimRef.Namespace); ours && cloud != nil {
		done, err := cloud.DeleteDisk(ctx, p.asked())
		if err != nil || !done {
			return true, err
		}
	}
	if !removing {
		err := api.call(ctx, http.MethodDelete, p.path(), nil, nil)
		if err != nil && !isCode(err, http.StatusNotFound) {
			return true, err
		}
		// It has a time of deletion now, and with it comes back here.
		return false, nil
	}
	return false, setFinalizer(ctx, api, p.path(), p.Metadata, volumeFinalizer, false)
}

// abandon deletes the disks whose claims went while they were made.
func (v *volumes) abandon(ctx context.Context, claims []claim) (left bool) {
	for uid, disk := range v.begun {
		if slices.ContainsFunc(claims, func(c claim) bool { return c.Metadata.UID == uid }) {
			continue
		}
		if cloud, ours := v.backend.cloudOf(disk.Namespace); ours && cloud != nil {
			done, err := cloud.DeleteDisk(ctx, disk)
			if err != nil || !done {
				left = true
				continue
			}
		}
		delete(v.begun, uid)
	}
	return left
}
