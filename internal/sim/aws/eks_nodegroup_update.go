package aws

import (
	"fmt"
	"strconv"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	asgtypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/eks/types"
)

const (
	configTime  = 30 * time.Second // a change of size, labels or taints
	rolloutTick = 15 * time.Second
	// rolloutLimit is how long a rollout may take.
	rolloutLimit = 40 * time.Minute
)

// changeable refuses a change of a node group that is not up, or being changed already.
func (s *eksService) changeable(k *EKSCluster, n *EKSNodegroup) error {
	if running := k.updating(n.Name, ""); running != nil {
		return inUse(k.Name, "Nodegroup %s currently has update %s in progress", n.Name, running.ID)
	}
	if n.Status != "ACTIVE" && n.Status != "DEGRADED" {
		return inUse(k.Name, "Nodegroup %s cannot be updated while it is in the status %s", n.Name, n.Status)
	}
	return nil
}

func (s *eksService) updateNodegroupConfig(c *reqCtx, in *eks.UpdateNodegroupConfigInput) (*eks.UpdateNodegroupConfigOutput, error) {
	k, n, err := s.nodegroup(c, in.ClusterName, in.NodegroupName)
	if err != nil {
		return nil, err
	}
	id, err := s.repeated(c, k.Name, in.ClientRequestToken, in)
	if err != nil {
		return nil, err
	}
	if old := k.Updates[id]; old != nil {
		return &eks.UpdateNodegroupConfigOutput{Update: old.sdk()}, nil
	}
	if err := s.changeable(k, n); err != nil {
		return nil, err
	}
	next := *n
	if err := s.scale(k, &next, in.ScalingConfig); err != nil {
		return nil, err
	}
	if err := next.relabel(k, in.Labels); err != nil {
		return nil, err
	}
	if err := next.taint(k, in.Taints); err != nil {
		return nil, err
	}
	if err := next.setUpdateConfig(k, in.UpdateConfig); err != nil {
		return nil, err
	}
	if in.NodeRepairConfig != nil {
		next.Repair = deref(in.NodeRepairConfig.Enabled)
	}
	if in.ScalingConfig != nil {
		_, err := s.cloud.platform.asg.updateGroup(s.cloud.onBehalf(k.scope(), "autoscaling", "UpdateAutoScalingGroup"),
			&autoscaling.UpdateAutoScalingGroupInput{AutoScalingGroupName: new(n.Group), MinSize: new(next.Min), MaxSize: new(next.Max), DesiredCapacity: new(next.Desired)})
		if err != nil {
			return nil, invalidRequest(k.Name, "The Auto Scaling group of the node group could not be changed: %s", err)
		}
	}
	n.Status = "UPDATING"
	u := s.begin(c, k, EKSUpdate{Type: "ConfigUpdate", Nodegroup: n.Name, Params: configParams(in)}, map[string]any{"Min": next.Min, "Max": next.Max, "Desired": next.Desired,
		"Taints": next.Taints, "MaxUnavailable": next.MaxUnavailable, "MaxUnavailablePercent": next.MaxUnavailablePercent, "Repair": next.Repair}, configTime)
	n.Labels = next.Labels // merging JSON would keep what was removed
	s.remember(c, k.Name, in.ClientRequestToken, in, u.ID)
	return &eks.UpdateNodegroupConfigOutput{Update: u.sdk()}, nil
}

func configParams(in *eks.UpdateNodegroupConfigInput) []EKSParam {
	out := []EKSParam{}
	add := func(kind string, v any, err error) {
		if err == nil {
			out = append(out, EKSParam{kind, fmt.Sprint(v)})
		}
	}
	if s := in.ScalingConfig; s != nil {
		for kind, v := range map[string]*int32{"MinSize": s.MinSize, "MaxSize": s.MaxSize, "DesiredSize": s.DesiredSize} {
			if v != nil {
				add(kind, *v, nil)
			}
		}
	}
	if in.Labels != nil {
		text, err := encodeJSONCamel(&struct{ Labels map[string]string }{in.Labels.AddOrUpdateLabels})
		add("LabelsToAdd", string(text), err)
		add("LabelsToRemove", jsonList(in.Labels.RemoveLabels), nil)
	}
	if in.Taints != nil {
		text, err := encodeJSONCamel(&struct{ Taints []types.Taint }{in.Taints.AddOrUpdateTaints})
		add("TaintsToAdd", string(text), err)
	}
	return out
}

// updateNodegroupVersion replaces the nodes by ones of another version of Kubernetes, of the image or of the launch template.
func (s *eksService) updateNodegroupVersion(c *reqCtx, in *eks.UpdateNodegroupVersionInput) (*eks.UpdateNodegroupVersionOutput, error) {
	k, n, err := s.nodegroup(c, in.ClusterName, in.NodegroupName)
	if err != nil {
		return nil, err
	}
	id, err := s.repeated(c, k.Name, in.ClientRequestToken, in)
	if err != nil {
		return nil, err
	}
	if old := k.Updates[id]; old != nil {
		return &eks.UpdateNodegroupVersionOutput{Update: old.sdk()}, nil
	}
	if err := s.changeable(k, n); err != nil {
		return nil, err
	}
	next := *n
	if in.LaunchTemplate != nil {
		if n.TemplateID == "" {
			return nil, invalidRequest(k.Name, "You cannot specify a launch template for a node group that was made without one.")
		}
		if _, err := s.customTemplate(k, &next, in.LaunchTemplate); err != nil {
			return nil, err
		}
		if next.TemplateID != n.TemplateID {
			return nil, invalidParameter(k.Name, "You cannot specify another launch template than %s.", n.TemplateID)
		}
	}
	version := deref(in.Version)
	if version == "" && in.LaunchTemplate == nil {
		version = k.Version
	}
	if err := s.chooseVersion(k, &next, orText(version, n.Version), deref(in.ReleaseVersion)); err != nil {
		return nil, err
	}
	if err := s.rollOut(k, n, &next); err != nil {
		return nil, invalidRequest(k.Name, "%s", err)
	}
	n.Status = "UPDATING"
	u := s.begin(c, k, EKSUpdate{Type: "VersionUpdate", Nodegroup: n.Name, Params: []EKSParam{{"Version", next.Version}, {"ReleaseVersion", next.Release}, {"LaunchTemplateVersion", next.TemplateVersion}}},
		map[string]any{"Version": next.Version, "Release": next.Release, "TemplateVersion": next.TemplateVersion}, rolloutTick)
	s.remember(c, k.Name, in.ClientRequestToken, in, u.ID)
	return &eks.UpdateNodegroupVersionOutput{Update: u.sdk()}, nil
}

// rollOut gives the Auto Scaling group a new version of its launch template, and lets it replace its instances.
func (s *eksService) rollOut(k *EKSCluster, n, next *EKSNodegroup) error {
	data, err := s.nodeData(k, next)
	if err != nil {
		return err
	}
	t := s.cloud.ec2.in(k.scope()).Templates[n.Template]
	if t == nil {
		return fmt.Errorf("the launch template %s of the node group does not exist", n.Template)
	}
	c := s.cloud.onBehalf(k.scope(), "autoscaling", "UpdateAutoScalingGroup")
	v := t.add(c.request, "", data, c.second())
	spec := &asgtypes.LaunchTemplateSpecification{LaunchTemplateId: new(t.TemplateID), Version: new(strconv.Itoa(v.Number))}
	if _, err := s.cloud.platform.asg.updateGroup(c, &autoscaling.UpdateAutoScalingGroupInput{AutoScalingGroupName: new(n.Group), LaunchTemplate: spec}); err != nil {
		return err
	}
	_, err = s.cloud.platform.asg.startRefresh(s.cloud.onBehalf(k.scope(), "autoscaling", "StartInstanceRefresh"), &autoscaling.StartInstanceRefreshInput{
		AutoScalingGroupName: new(n.Group), Preferences: &asgtypes.RefreshPreferences{MinHealthyPercentage: awssdk.Int32(0), InstanceWarmup: awssdk.Int32(30)}})
	return err
}

// rolledOut says whether all nodes are of the new kind and ready; until then it looks again before long.
func (s *eksService) rolledOut(k *EKSCluster, n *EKSNodegroup, u *EKSUpdate) bool {
	g := s.cloud.platform.asg.state.in(k.scope()).Groups[n.Group]
	if g == nil || s.cloud.World.Now().Sub(u.Created) > rolloutLimit {
		s.failUpdate(k, u, "Failed", "NodeCreationFailure", "Couldn't proceed with upgrade process as new nodes are not joining node group "+n.Name)
		return false
	}
	s.meetNodes(k, n)
	done := n.ready() >= int(g.Desired)
	current := s.cloud.platform.asg.resolve(k.scope(), g)
	for _, i := range g.Instances {
		done = done && i.Version == current && i.State == "InService"
	}
	if !done {
		s.cloud.after(rolloutTick, "eks", "update", k.key(u.ID))
	}
	return done
}
