package aws

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/eks/types"
)

// updateTimes is how long updates of a cluster take, as a rule.
var updateTimes = map[string]time.Duration{
	"VersionUpdate": 8 * time.Minute, "EndpointAccessUpdate": 3 * time.Minute, "VpcConfigUpdate": 3 * time.Minute, "LoggingUpdate": 90 * time.Second,
	"AssociateEncryptionConfig": 6 * time.Minute, "AccessConfigUpdate": time.Minute, "UpgradePolicyUpdate": 20 * time.Second,
	"DeletionProtectionUpdate": 15 * time.Second, "ZonalShiftConfigUpdate": 30 * time.Second,
}

// startUpdate begins a change of a cluster. One at a time: another is refused, as is one of a cluster that is not active.
func (s *eksService) startUpdate(c *reqCtx, k *EKSCluster, u EKSUpdate, next any) (*EKSUpdate, error) {
	if running := k.updating("", ""); running != nil {
		return nil, inUse(k.Name, "Cannot %s because cluster %s currently has update %s in progress", u.Type, k.Name, running.ID)
	}
	if k.Status != "ACTIVE" {
		return nil, inUse(k.Name, "Cannot %s because cluster %s is in the status %s", u.Type, k.Name, k.Status)
	}
	k.Status = "UPDATING"
	return s.begin(c, k, u, next, updateTimes[u.Type]), nil
}

// begin notes an update that is under way; next is what it will set when it is done.
func (s *eksService) begin(c *reqCtx, k *EKSCluster, u EKSUpdate, next any, takes time.Duration) *EKSUpdate {
	text, err := json.Marshal(next)
	if err != nil {
		panic(err) // plain data of this package
	}
	u.ID, u.Status, u.Created, u.Seq, u.Errors, u.Next = c.w.UUID(), "InProgress", c.now, len(k.Updates)+1, []EKSIssue{}, string(text)
	k.Updates[u.ID] = &u
	c.Make(u.ID)
	s.cloud.after(takes, "eks", "update", k.key(u.ID))
	return &u
}

// finishUpdate ends an update as Successful.
func (s *eksService) finishUpdate(k *EKSCluster, u *EKSUpdate) {
	var target any = k
	switch n, a := k.Nodegroups[u.Nodegroup], k.Addons[u.Addon]; {
	case u.Nodegroup != "" && n == nil || u.Addon != "" && a == nil:
		u.Status = "Cancelled" // what it was about has been deleted
		return
	case n != nil:
		if u.Type == "VersionUpdate" && !s.rolledOut(k, n, u) {
			return
		}
		target = n
		n.Status, n.Modified = orText(map[bool]string{true: n.Status}[n.Held], "ACTIVE"), s.cloud.World.Now()
	case a != nil:
		target = a
		a.Modified = s.cloud.World.Now()
	default:
		if k.Status == "UPDATING" {
			k.Status = "ACTIVE"
		}
	}
	if err := json.Unmarshal([]byte(u.Next), target); err != nil {
		panic(err) // written by begin
	}
	u.Status = "Successful"
	s.kube.kick()
	switch {
	case u.Addon != "":
		s.tickAddon(k, k.Addons[u.Addon])
	case u.Nodegroup == "":
		s.deliverLogs(k)
	}
}

// failUpdate ends an update as Failed: what it would have changed stays as it was.
func (s *eksService) failUpdate(k *EKSCluster, u *EKSUpdate, status, code, message string) {
	u.Status = status
	u.Errors = append(u.Errors, EKSIssue{Code: orText(code, "Unknown"), Message: orText(message, "An internal error has occurred"), Resources: []string{k.Name}})
	switch n, a := k.Nodegroups[u.Nodegroup], k.Addons[u.Addon]; {
	case n != nil && n.Status == "UPDATING":
		n.Status = "ACTIVE"
	case a != nil && a.Status == "UPDATING":
		a.Status = "UPDATE_FAILED"
	case u.Nodegroup == "" && u.Addon == "" && k.Status == "UPDATING":
		k.Status = "ACTIVE"
	}
}

func (u *EKSUpdate) sdk() *types.Update {
	out := &types.Update{Id: new(u.ID), Status: types.UpdateStatus(u.Status), Type: types.UpdateType(u.Type), CreatedAt: new(u.Created), Params: []types.UpdateParam{}, Errors: []types.ErrorDetail{}}
	for _, p := range u.Params {
		out.Params = append(out.Params, types.UpdateParam{Type: types.UpdateParamType(p.Type), Value: new(p.Value)})
	}
	for _, e := range u.Errors {
		out.Errors = append(out.Errors, types.ErrorDetail{ErrorCode: types.ErrorCode(e.Code), ErrorMessage: new(e.Message), ResourceIds: e.Resources})
	}
	return out
}

// updateClusterConfig changes one kind of settings at a time.
func (s *eksService) updateClusterConfig(c *reqCtx, in *eks.UpdateClusterConfigInput) (*eks.UpdateClusterConfigOutput, error) {
	k, err := s.cluster(c, in.Name)
	if err != nil {
		return nil, err
	}
	id, err := s.repeated(c, k.Name, in.ClientRequestToken, in)
	if err != nil {
		return nil, err
	}
	if old := k.Updates[id]; old != nil {
		return &eks.UpdateClusterConfigOutput{Update: old.sdk()}, nil
	}
	var kinds []func(*EKSCluster) (EKSUpdate, any, error)
	add := func(given bool, f func(*EKSCluster) (EKSUpdate, any, error)) {
		if given {
			kinds = append(kinds, f)
		}
	}
	add(in.ResourcesVpcConfig != nil, func(k *EKSCluster) (EKSUpdate, any, error) { return s.vpcUpdate(c, k, in.ResourcesVpcConfig) })
	add(in.Logging != nil, func(k *EKSCluster) (EKSUpdate, any, error) { return loggingUpdate(k, in.Logging) })
	add(in.AccessConfig != nil, func(k *EKSCluster) (EKSUpdate, any, error) {
		return modeUpdate(k, string(in.AccessConfig.AuthenticationMode))
	})
	add(in.UpgradePolicy != nil, func(k *EKSCluster) (EKSUpdate, any, error) {
		return s.policyUpdate(k, string(in.UpgradePolicy.SupportType))
	})
	add(in.DeletionProtection != nil, func(*EKSCluster) (EKSUpdate, any, error) {
		return EKSUpdate{Type: "DeletionProtectionUpdate", Params: []EKSParam{{"DeletionProtection", fmt.Sprint(*in.DeletionProtection)}}}, map[string]any{"Protected": *in.DeletionProtection}, nil
	})
	add(in.ZonalShiftConfig != nil, func(*EKSCluster) (EKSUpdate, any, error) {
		on := deref(in.ZonalShiftConfig.Enabled)
		return EKSUpdate{Type: "ZonalShiftConfigUpdate", Params: []EKSParam{{"ZonalShiftConfig", fmt.Sprintf(`{"enabled":%t}`, on)}}}, map[string]any{"ZonalShift": on}, nil
	})
	switch len(kinds) {
	case 0:
		return nil, invalidParameter(k.Name, "No changes needed for the cluster configuration provided")
	case 1:
	default:
		return nil, invalidParameter(k.Name, "Only one type of update can be allowed.")
	}
	u, next, err := kinds[0](k)
	if err != nil {
		return nil, err
	}
	begun, err := s.startUpdate(c, k, u, next)
	if err != nil {
		return nil, err
	}
	s.remember(c, k.Name, in.ClientRequestToken, in, begun.ID)
	return &eks.UpdateClusterConfigOutput{Update: begun.sdk()}, nil
}

// vpcUpdate changes who reaches the API server, or the subnets and security groups of the control plane.
func (s *eksService) vpcUpdate(c *reqCtx, k *EKSCluster, in *types.VpcConfigRequest) (EKSUpdate, any, error) {
	next := *k
	if len(in.SubnetIds) > 0 || in.SecurityGroupIds != nil {
		next.Subnets, next.Groups = nil, nil
		want := &types.VpcConfigRequest{SubnetIds: in.SubnetIds, SecurityGroupIds: in.SecurityGroupIds}
		if len(want.SubnetIds) == 0 {
			want.SubnetIds = k.Subnets
		}
		if want.SecurityGroupIds == nil {
			want.SecurityGroupIds = k.Groups
		}
		if err := s.placeCluster(c, &next, want); err != nil {
			return EKSUpdate{}, nil, err
		}
		return EKSUpdate{Type: "VpcConfigUpdate", Params: []EKSParam{{"Subnets", jsonList(next.Subnets)}, {"SecurityGroups", jsonList(next.Groups)}}},
			map[string]any{"Subnets": next.Subnets, "Groups": next.Groups}, nil
	}
	want := *in
	if want.EndpointPublicAccess == nil {
		want.EndpointPublicAccess = new(k.Public)
	}
	if want.EndpointPrivateAccess == nil {
		want.EndpointPrivateAccess = new(k.Private)
	}
	if want.PublicAccessCidrs == nil && *want.EndpointPublicAccess {
		if !slices.Equal(k.PublicCIDRs, []string{"0.0.0.0/0"}) {
			want.PublicAccessCidrs = k.PublicCIDRs
		}
	}
	if err := next.setAccess(&want, s.cidrLimit(c)); err != nil {
		return EKSUpdate{}, nil, err
	}
	if next.Public == k.Public && next.Private == k.Private && slices.Equal(next.PublicCIDRs, k.PublicCIDRs) {
		return EKSUpdate{}, nil, invalidParameter(k.Name, "Cluster is already at the desired configuration with endpointPrivateAccess: %t , endpointPublicAccess: %t, and Public Endpoint Restrictions: [%s]",
			k.Private, k.Public, strings.Join(k.PublicCIDRs, ", "))
	}
	return EKSUpdate{Type: "EndpointAccessUpdate", Params: []EKSParam{{"EndpointPublicAccess", fmt.Sprint(next.Public)}, {"EndpointPrivateAccess", fmt.Sprint(next.Private)},
			{"PublicAccessCidrs", jsonList(next.PublicCIDRs)}}},
		map[string]any{"Public": next.Public, "Private": next.Private, "PublicCIDRs": next.PublicCIDRs}, nil
}

func jsonList(list []string) string {
	b, err := json.Marshal(append([]string{}, list...))
	if err != nil {
		panic(err) // strings always encode
	}
	return string(b)
}

func loggingUpdate(k *EKSCluster, in *types.Logging) (EKSUpdate, any, error) {
	next, err := k.logging(in)
	if err != nil {
		return EKSUpdate{}, nil, err
	}
	if slices.Equal(next, k.Logging) {
		return EKSUpdate{}, nil, invalidParameter(k.Name, "No changes needed for the logging config provided")
	}
	text, err := encodeJSONCamel(in)
	return EKSUpdate{Type: "LoggingUpdate", Params: []EKSParam{{"ClusterLogging", string(text)}}}, map[string]any{"Logging": next}, err
}

// modeUpdate changes the authentication mode, in one direction only: to access entries ("Change authentication mode to use
// access entries").
func modeUpdate(k *EKSCluster, mode string) (EKSUpdate, any, error) {
	steps := []string{"CONFIG_MAP", "API_AND_CONFIG_MAP", "API"}
	from, to := slices.Index(steps, k.AuthMode), slices.Index(steps, mode)
	if to < 0 || to != from+1 {
		return EKSUpdate{}, nil, invalidRequest(k.Name, "Unsupported authentication mode update from %s to %s", k.AuthMode, mode)
	}
	return EKSUpdate{Type: "AccessConfigUpdate", Params: []EKSParam{{"AuthenticationMode", fmt.Sprintf("%q", mode)}}}, map[string]any{"AuthMode": mode}, nil
}

func (s *eksService) policyUpdate(k *EKSCluster, support string) (EKSUpdate, any, error) {
	if support != "STANDARD" && support != "EXTENDED" {
		return EKSUpdate{}, nil, invalidParameter(k.Name, "The support type %s is invalid. Valid values: STANDARD, EXTENDED", support)
	}
	if support == k.SupportType {
		return EKSUpdate{}, nil, invalidParameter(k.Name, "No changes needed for the upgrade policy provided")
	}
	if v, ok := findVersion(k.Version); ok && support == "STANDARD" && v.status(s.cloud.World.Now()) != "STANDARD_SUPPORT" {
		return EKSUpdate{}, nil, invalidRequest(k.Name, "The support type of a cluster whose version %s is in extended support cannot be changed to STANDARD.", k.Version)
	}
	return EKSUpdate{Type: "UpgradePolicyUpdate", Params: []EKSParam{{"UpgradePolicy", fmt.Sprintf(`{"supportType":%q}`, support)}}}, map[string]any{"SupportType": support}, nil
}

func (s *eksService) updateClusterVersion(c *reqCtx, in *eks.UpdateClusterVersionInput) (*eks.UpdateClusterVersionOutput, error) {
	k, err := s.cluster(c, in.Name)
	if err != nil {
		return nil, err
	}
	id, err := s.repeated(c, k.Name, in.ClientRequestToken, in)
	if err != nil {
		return nil, err
	}
	if old := k.Updates[id]; old != nil {
		return &eks.UpdateClusterVersionOutput{Update: old.sdk()}, nil
	}
	v, err := s.upgradable(k, deref(in.Version))
	if err != nil {
		return nil, err
	}
	u, err := s.startUpdate(c, k, EKSUpdate{Type: "VersionUpdate", Params: []EKSParam{{"Version", v.Version}, {"PlatformVersion", v.platform()}}},
		map[string]any{"Version": v.Version, "Platform": v.platform()})
	if err != nil {
		return nil, err
	}
	s.remember(c, k.Name, in.ClientRequestToken, in, u.ID)
	return &eks.UpdateClusterVersionOutput{Update: u.sdk()}, nil
}

// associateEncryption encrypts the secrets of a cluster that has no key of its own yet. There is no way back.
func (s *eksService) associateEncryption(c *reqCtx, in *eks.AssociateEncryptionConfigInput) (*eks.AssociateEncryptionConfigOutput, error) {
	k, err := s.cluster(c, in.ClusterName)
	if err != nil {
		return nil, err
	}
	id, err := s.repeated(c, k.Name, in.ClientRequestToken, in)
	if err != nil {
		return nil, err
	}
	if old := k.Updates[id]; old != nil {
		return &eks.AssociateEncryptionConfigOutput{Update: old.sdk()}, nil
	}
	if k.KeyARN != "" {
		return nil, invalidRequest(k.Name, "Encryption config is already associated with the cluster %s", k.Name)
	}
	key, err := s.encryptionKey(c, k, in.EncryptionConfig)
	if err != nil {
		return nil, err
	}
	if key == "" {
		return nil, invalidParameter(k.Name, "encryptionConfig can not be empty.")
	}
	u, err := s.startUpdate(c, k, EKSUpdate{Type: "AssociateEncryptionConfig",
		Params: []EKSParam{{"EncryptionConfig", fmt.Sprintf(`[{"resources":["secrets"],"provider":{"keyArn":%q}}]`, key)}}}, map[string]any{"KeyARN": key})
	if err != nil {
		return nil, err
	}
	s.remember(c, k.Name, in.ClientRequestToken, in, u.ID)
	return &eks.AssociateEncryptionConfigOutput{Update: u.sdk()}, nil
}

func (s *eksService) describeUpdate(c *reqCtx, in *eks.DescribeUpdateInput) (*eks.DescribeUpdateOutput, error) {
	k, err := s.cluster(c, in.Name)
	if err != nil {
		return nil, err
	}
	u := k.Updates[deref(in.UpdateId)]
	if u == nil || u.Nodegroup != deref(in.NodegroupName) || u.Addon != deref(in.AddonName) {
		return nil, noResource(k.Name, "No update found for ID: %s", deref(in.UpdateId))
	}
	return &eks.DescribeUpdateOutput{Update: u.sdk()}, nil
}

func (s *eksService) listUpdates(c *reqCtx, in *eks.ListUpdatesInput) (*eks.ListUpdatesOutput, error) {
	k, err := s.cluster(c, in.Name)
	if err != nil {
		return nil, err
	}
	found := []*EKSUpdate{}
	for _, u := range k.Updates {
		if u.Nodegroup == deref(in.NodegroupName) && u.Addon == deref(in.AddonName) {
			found = append(found, u)
		}
	}
	slices.SortFunc(found, func(a, b *EKSUpdate) int { return a.Seq - b.Seq })
	ids := []string{}
	for _, u := range found {
		ids = append(ids, u.ID)
	}
	page, next, err := eksPage(c, ids, in.NextToken, in.MaxResults)
	return &eks.ListUpdatesOutput{UpdateIds: page, NextToken: next}, err
}
