package aws

import (
	"context"
	"fmt"
	"slices"

	"github.com/zopday/provisioner/internal/sim"
)

// eksCloud is the cloud controllers of a cluster: what they make in the account stays there when the cluster is deleted.
type eksCloud struct {
	service *eksService
	arn, id string
}

var _ sim.KubeCloud = (*eksCloud)(nil)

// The tags by which the controllers know their own, and people what a cluster has left behind.
const (
	tagService  = "kubernetes.io/service-name"
	tagClaim    = "kubernetes.io/created-for/pvc/name"
	tagClaimSpc = "kubernetes.io/created-for/pvc/namespace"
)

// locked runs f with the world locked and the cluster found.
func (e *eksCloud) locked(f func(k *EKSCluster) error) error {
	w := e.service.cloud.World
	w.Lock()
	defer w.Unlock()
	k := e.service.byID(e.arn, e.id)
	if k == nil || k.Status == "DELETING" {
		return fmt.Errorf("the cluster %s is gone", e.arn)
	}
	return f(k)
}

func (k *EKSCluster) ownerTag() Tag { return Tag{"kubernetes.io/cluster/" + k.Name, "owned"} }

// EnsureDisk implements sim.KubeCloud: a volume of EBS, by the add-on's driver, which must be there and be permitted to.
func (e *eksCloud) EnsureDisk(_ context.Context, v sim.KubeVolume) (handle string, err error) {
	err = e.locked(func(k *EKSCluster) error {
		if p := v.Provisioner; p != "" && p != "ebs.csi.aws.com" && p != "kubernetes.io/aws-ebs" {
			return nil // another driver's
		}
		if err := e.driver(k, "ec2:CreateVolume"); err != nil {
			return err
		}
		if old := e.disk(k, v); old != nil {
			handle = old.VolumeID
			return nil
		}
		ec2 := e.service.cloud.ec2
		sc := ec2.in(k.scope())
		name := v.Zone
		if name == "" {
			name = e.someZone(k)
		}
		z, err := ec2.zoneFor(k.Region, name, "", k.ARN+v.UID)
		if err != nil {
			return err
		}
		size, encrypted := max(v.GiB, 1), v.StorageClass["encrypted"] == "true"
		made := ec2.newVolume(sc, &launchEbs{Size: &size, Type: orText(v.StorageClass["type"], "gp3"), Encrypted: &encrypted, KmsKeyID: v.StorageClass["kmsKeyId"]},
			&Subnet{Zone: z.Name, ZoneID: z.ID}, []Tag{k.ownerTag(), {tagClaim, v.Name}, {tagClaimSpc, v.Namespace}, {"kubernetes.io/created-for/pv/name", "pvc-" + v.UID},
				{"CSIVolumeName", "pvc-" + v.UID}, {"ebs.csi.aws.com/cluster", "true"}, {"KubernetesCluster", k.Name}, {"Name", k.Name + "-dynamic-pvc-" + v.UID}})
		made.Status = "available"
		handle = made.VolumeID
		return nil
	})
	return handle, err
}

// driver refuses work for which the storage driver or its permission is missing.
func (e *eksCloud) driver(k *EKSCluster, action string) error {
	a := k.Addons["aws-ebs-csi-driver"]
	switch {
	case a == nil || a.Status == "DELETING" || a.Status == "CREATE_FAILED":
		return fmt.Errorf("waiting for a volume to be created either by the external provisioner 'ebs.csi.aws.com' or manually by the system administrator")
	case !e.service.addonPermits(k, a, action) && !e.service.nodesPermit(k, action):
		return fmt.Errorf("UnauthorizedOperation: the role of ebs-csi-controller-sa may not perform %s", action)
	}
	return nil
}

// disk finds the volume of a claim.
func (e *eksCloud) disk(k *EKSCluster, v sim.KubeVolume) *Volume {
	for _, d := range inOrder(e.service.cloud.ec2.in(k.scope()).Volumes) {
		if tags := tagMap(d.Tags); d.VolumeID == v.Handle || v.Handle == "" && tags["CSIVolumeName"] == "pvc-"+v.UID {
			return d
		}
	}
	return nil
}

// someZone is the zone of the first node, else that of the first subnet.
func (e *eksCloud) someZone(k *EKSCluster) string {
	if nodes := e.service.kubeNodes(k); len(nodes) > 0 {
		return nodes[0].Zone
	}
	i := slices.IndexFunc(k.Subnets, func(id string) bool { return e.service.cloud.ec2.in(k.scope()).Subnets[id] != nil })
	if i < 0 {
		return ""
	}
	return e.service.cloud.ec2.in(k.scope()).Subnets[k.Subnets[i]].Zone
}

// DeleteDisk implements sim.KubeCloud.
func (e *eksCloud) DeleteDisk(_ context.Context, v sim.KubeVolume) (done bool, err error) {
	err = e.locked(func(k *EKSCluster) error {
		d := e.disk(k, v)
		if d == nil {
			done = true
			return nil
		}
		if err := e.driver(k, "ec2:DeleteVolume"); err != nil {
			return err
		}
		delete(e.service.cloud.ec2.in(k.scope()).Volumes, d.VolumeID)
		done = true
		return nil
	})
	return done, err
}
