package aws

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/eks/types"
)

// EKSPodIdentity gives the pods of a service account a role.
type EKSPodIdentity struct {
	ID, ARN, Namespace, Account string // the account is a service account
	Role, Target, Owner         string
	NoSessionTags               bool
	Created, Modified           time.Time
	Tags                        map[string]string
	Service                     bool // it belongs to an add-on
}

// podIdentity is the association of a service account, if it has one.
func (k *EKSCluster) podIdentity(namespace, account string) *EKSPodIdentity {
	for _, p := range k.Associations {
		if p.Namespace == namespace && p.Account == account {
			return p
		}
	}
	return nil
}

func (s *eksService) addPodIdentity(k *EKSCluster, namespace, account, role string) *EKSPodIdentity {
	now := s.cloud.World.Now()
	p := &EKSPodIdentity{ID: s.cloud.World.ID("a-", 17, "abcdefghijklmnopqrstuvwxyz0123456789"), Namespace: namespace, Account: account, Role: role, Created: now, Modified: now, Tags: map[string]string{}}
	p.ARN = arn("eks", k.Region, k.Account, "podidentityassociation/"+k.Name+"/"+p.ID)
	k.Associations[p.ID] = p
	return p
}

// checkPodRole refuses a role that pods could not be given: it must be there, and trust EKS to hand it out ("Create IAM role
// with trust policy required by EKS Pod Identity").
func (s *eksService) checkPodRole(c *reqCtx, k *EKSCluster, roleARN string) error {
	iam := s.cloud.platform.iam
	r := iam.roleByARN(roleARN)
	if r == nil || c.now.Sub(r.Created) < iam.propagation(r.ARN) {
		return invalidParameter(k.Name, "Role provided in the request does not exist.")
	}
	if !r.trusts("pods.eks.amazonaws.com", c.account) || !r.allows("sts:AssumeRole") || !r.allows("sts:TagSession") {
		return invalidParameter(k.Name, "Trust relationship policy of the role %s does not allow pods.eks.amazonaws.com sts:AssumeRole and sts:TagSession.", roleARN)
	}
	return nil
}

func (s *eksService) createPodIdentity(c *reqCtx, in *eks.CreatePodIdentityAssociationInput) (*eks.CreatePodIdentityAssociationOutput, error) {
	k, err := s.cluster(c, in.ClusterName)
	if err != nil {
		return nil, err
	}
	id, err := s.repeated(c, k.Name, in.ClientRequestToken, in)
	if err != nil {
		return nil, err
	}
	if old := k.Associations[id]; old != nil {
		return &eks.CreatePodIdentityAssociationOutput{Association: k.sdkPodIdentity(old)}, nil
	}
	if !k.running() {
		return nil, invalidRequest(k.Name, "Cluster '%s' is not in ACTIVE status", k.Name)
	}
	if deref(in.Namespace) == "" || deref(in.ServiceAccount) == "" {
		return nil, invalidParameter(k.Name, "The namespace and serviceAccount can not be empty.")
	}
	if err := checkEKSTags(k.Name, in.Tags); err != nil {
		return nil, err
	}
	if err := s.checkPodRole(c, k, deref(in.RoleArn)); err != nil {
		return nil, err
	}
	if old := k.podIdentity(*in.Namespace, *in.ServiceAccount); old != nil {
		return nil, inUse(k.Name, "Association already exists: %s", old.ID)
	}
	p := s.addPodIdentity(k, *in.Namespace, *in.ServiceAccount, *in.RoleArn)
	p.Tags, p.Target, p.NoSessionTags = copyTags(in.Tags), deref(in.TargetRoleArn), deref(in.DisableSessionTags)
	s.remember(c, k.Name, in.ClientRequestToken, in, p.ID)
	c.Make(p.ARN)
	return &eks.CreatePodIdentityAssociationOutput{Association: k.sdkPodIdentity(p)}, nil
}

func (k *EKSCluster) sdkPodIdentity(p *EKSPodIdentity) *types.PodIdentityAssociation {
	out := &types.PodIdentityAssociation{AssociationArn: new(p.ARN), AssociationId: new(p.ID), ClusterName: new(k.Name), Namespace: new(p.Namespace), ServiceAccount: new(p.Account),
		RoleArn: new(p.Role), CreatedAt: new(p.Created), ModifiedAt: new(p.Modified), Tags: copyTags(p.Tags), DisableSessionTags: new(p.NoSessionTags)}
	if p.Owner != "" {
		out.OwnerArn = new(p.Owner)
	}
	if p.Target != "" {
		out.TargetRoleArn = new(p.Target)
	}
	return out
}

func (s *eksService) association(c *reqCtx, cluster, id *string) (*EKSCluster, *EKSPodIdentity, error) {
	k, err := s.cluster(c, cluster)
	if err != nil {
		return nil, nil, err
	}
	p := k.Associations[deref(id)]
	if p == nil || !c.visible(p.ARN, p.Created, false, "pod-identity-association", p.Account, mapValues(p.Tags)) {
		return nil, nil, noResource(k.Name, "The association could not be found: %s", deref(id))
	}
	c.Touch(p.ARN)
	return k, p, nil
}

func (s *eksService) describePodIdentity(c *reqCtx, in *eks.DescribePodIdentityAssociationInput) (*eks.DescribePodIdentityAssociationOutput, error) {
	k, p, err := s.association(c, in.ClusterName, in.AssociationId)
	if err != nil {
		return nil, err
	}
	return &eks.DescribePodIdentityAssociationOutput{Association: k.sdkPodIdentity(p)}, nil
}

func (s *eksService) listPodIdentities(c *reqCtx, in *eks.ListPodIdentityAssociationsInput) (*eks.ListPodIdentityAssociationsOutput, error) {
	k, err := s.cluster(c, in.ClusterName)
	if err != nil {
		return nil, err
	}
	all := []types.PodIdentityAssociationSummary{}
	for _, id := range sortedKeys(k.Associations) {
		p := k.Associations[id]
		if in.Namespace != nil && *in.Namespace != p.Namespace || in.ServiceAccount != nil && *in.ServiceAccount != p.Account ||
			!c.visible(p.ARN, p.Created, true, "pod-identity-association", p.Account, mapValues(p.Tags)) {
			continue
		}
		e := types.PodIdentityAssociationSummary{AssociationArn: new(p.ARN), AssociationId: new(p.ID), ClusterName: new(k.Name), Namespace: new(p.Namespace), ServiceAccount: new(p.Account)}
		if p.Owner != "" {
			e.OwnerArn = new(p.Owner)
		}
		all = append(all, e)
	}
	page, next, err := eksPage(c, all, in.NextToken, in.MaxResults)
	return &eks.ListPodIdentityAssociationsOutput{Associations: page, NextToken: next}, err
}

func (s *eksService) updatePodIdentity(c *reqCtx, in *eks.UpdatePodIdentityAssociationInput) (*eks.UpdatePodIdentityAssociationOutput, error) {
	k, p, err := s.association(c, in.ClusterName, in.AssociationId)
	if err != nil {
		return nil, err
	}
	if err := p.unowned(k); err != nil {
		return nil, err
	}
	if in.RoleArn != nil {
		if err := s.checkPodRole(c, k, *in.RoleArn); err != nil {
			return nil, err
		}
		p.Role = *in.RoleArn
	}
	p.Target, p.NoSessionTags, p.Modified = orDefault(in.TargetRoleArn, p.Target), orDefault(in.DisableSessionTags, p.NoSessionTags), c.now
	return &eks.UpdatePodIdentityAssociationOutput{Association: k.sdkPodIdentity(p)}, nil
}

// unowned refuses a change of an association that belongs to an add-on.
func (p *EKSPodIdentity) unowned(k *EKSCluster) error {
	if p.Owner == "" {
		return nil
	}
	return invalidRequest(k.Name, "The association %s is owned by %s and can only be changed through it", p.ID, p.Owner)
}

func (s *eksService) deletePodIdentity(c *reqCtx, in *eks.DeletePodIdentityAssociationInput) (*eks.DeletePodIdentityAssociationOutput, error) {
	k, p, err := s.association(c, in.ClusterName, in.AssociationId)
	if err != nil {
		return nil, err
	}
	if err := p.unowned(k); err != nil {
		return nil, err
	}
	delete(k.Associations, p.ID)
	return &eks.DeletePodIdentityAssociationOutput{Association: k.sdkPodIdentity(p)}, nil
}

// tagsOf finds the tags of a resource by its ARN.
func (s *eksService) tagsOf(c *reqCtx, ref *string) (map[string]string, error) {
	if !strings.HasPrefix(deref(ref), c.regionalARN("eks", "")) {
		return nil, eksRefusal(400, "BadRequestException", "", "Invalid Resource Arn: %s", deref(ref))
	}
	c.Touch(*ref)
	for _, k := range s.in(c.scope()).Clusters {
		if k.ARN == *ref {
			return k.Tags, nil
		}
		for _, n := range k.Nodegroups {
			if n.ARN == *ref {
				return n.Tags, nil
			}
		}
		for _, a := range k.Addons {
			if a.ARN == *ref {
				return a.Tags, nil
			}
		}
		for _, e := range k.Entries {
			if e.ARN == *ref {
				return e.Tags, nil
			}
		}
		for _, p := range k.Associations {
			if p.ARN == *ref {
				return p.Tags, nil
			}
		}
	}
	return nil, eksRefusal(404, "NotFoundException", "", "No resource found for ARN: %s", *ref)
}

func (s *eksService) tagResource(c *reqCtx, in *eks.TagResourceInput) (*eks.TagResourceOutput, error) {
	tags, err := s.tagsOf(c, in.ResourceArn)
	if err != nil {
		return nil, err
	}
	merged := maps.Clone(tags)
	maps.Copy(merged, in.Tags)
	if err := checkEKSTags("", in.Tags); err != nil || len(merged) > 50 {
		return nil, eksRefusal(400, "BadRequestException", "", "The tags are invalid, or more than 50")
	}
	maps.Copy(tags, in.Tags)
	return &eks.TagResourceOutput{}, nil
}

func (s *eksService) untagResource(c *reqCtx, in *eks.UntagResourceInput) (*eks.UntagResourceOutput, error) {
	tags, err := s.tagsOf(c, in.ResourceArn)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(tags, func(key, _ string) bool { return slices.Contains(in.TagKeys, key) })
	return &eks.UntagResourceOutput{}, nil
}

func (s *eksService) listTags(c *reqCtx, in *eks.ListTagsForResourceInput) (*eks.ListTagsForResourceOutput, error) {
	tags, err := s.tagsOf(c, in.ResourceArn)
	if err != nil {
		return nil, err
	}
	return &eks.ListTagsForResourceOutput{Tags: copyTags(tags)}, nil
}
