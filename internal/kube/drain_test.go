package kube

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestDiskOf reads the cloud's ID of a disk from every form that a volume has it in.
func TestDiskOf(t *testing.T) {
	for want, s := range map[string]corev1.PersistentVolumeSource{
		"vol-1": {CSI: &corev1.CSIPersistentVolumeSource{VolumeHandle: "vol-1"}},
		"vol-2": {AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "aws://us-east-1a/vol-2"}},
		"vol-3": {AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-3"}},
		"pd":    {GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: "pd"}},
		"/d":    {AzureDisk: &corev1.AzureDiskVolumeSource{DataDiskURI: "/d"}},
		"":      {HostPath: &corev1.HostPathVolumeSource{Path: "/data"}},
	} {
		if got := diskOf(s); got != want {
			t.Errorf("%q instead of %q", got, want)
		}
	}
}
