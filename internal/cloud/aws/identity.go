package aws

import (
	"context"
	"encoding/json"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// trustPolicy lets EC2 hand the role's credentials to an instance.
const trustPolicy = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":"ec2.amazonaws.com"},"Action":"sts:AssumeRole"}]}`

// ssmPolicy is the one policy of the role: what the Systems Manager agent needs.
func ssmPolicy(region string) string {
	return "arn:" + partition(region) + ":iam::aws:policy/AmazonSSMManagedInstanceCore"
}

// partition is the part of AWS that a region belongs to.
func partition(region string) string {
	switch {
	case strings.HasPrefix(region, "cn-"):
		return "aws-cn"
	case strings.HasPrefix(region, "us-gov-"):
		return "aws-us-gov"
	}
	return "aws"
}

// EnsureIdentity makes the role that the VMs run as, and the instance profile
// that carries it; for a cluster, what its parts run as, its key and its log group;
// for a cache, its group of users. RDS keeps the administrator's password itself.
// The step is done when IAM shows all of it.
func (p *Provider) EnsureIdentity(ctx context.Context, r *pipeline.Run) error {
	if r.Job.Mode == job.ModeAdopt {
		return nil
	}
	ctx = lookup.With(ctx, r)
	if isCluster(r.Job) {
		return p.ensureClusterIdentity(ctx, r)
	}
	if isDatastore(r.Job) {
		return p.ensureCacheIdentity(ctx, r)
	}
	role, profile := p.role(r), p.instanceProfile(r)
	// A profile can be made before its role; only the link needs both.
	ic := &r.Job.Config.InfraConfig
	if _, err := r.Ensure(ctx, role); err != nil {
		return err
	}
	if _, err := r.Ensure(ctx, profile); err != nil {
		return err
	}
	learn(r, &ic.RoleName, role.Name)
	learn(r, &ic.InstanceProfileName, profile.Name)
	if err := confirm(ctx, r, role, profile); err != nil {
		return err
	}
	if r.Mode == pipeline.Apply && ic.InstanceProfileARN == "" {
		got, err := p.readProfile(ctx, profile.Name)
		if err != nil {
			return pipeline.Unseen(plain(err), profile.String())
		}
		ic.InstanceProfileARN = aws.ToString(got.Arn)
	}
	return nil
}

// RemoveIdentity removes what EnsureIdentity made.
func (p *Provider) RemoveIdentity(ctx context.Context, r *pipeline.Run) error {
	if r.Job.Mode == job.ModeAdopt {
		return nil
	}
	ctx = lookup.With(ctx, r)
	if isCluster(r.Job) {
		return p.removeClusterIdentity(ctx, r)
	}
	if isDatastore(r.Job) {
		return p.removeCacheIdentity(ctx, r)
	}
	if err := r.Remove(ctx, p.instanceProfile(r)); err != nil {
		return err
	}
	return r.Remove(ctx, p.role(r))
}

func iamMark(tags []iamtypes.Tag) string {
	for _, t := range tags {
		if aws.ToString(t.Key) == job.MarkOwner {
			return aws.ToString(t.Value)
		}
	}
	return ""
}

// byName finds an object whose name is its identity: ours, or a namesake. One
// without tags right after a create whose answer was lost is not judged yet:
// IAM shows tags late (failure kind F7).
func byName(r *pipeline.Run, x pipeline.Resource) func(context.Context) ([]pipeline.Seen, error) {
	return func(ctx context.Context) ([]pipeline.Seen, error) {
		s, err := x.Get(ctx, x.Name)
		if pipeline.Is(err, pipeline.NotFound) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		rec, ok := r.Object(x.Kind, x.Key)
		if ok && rec.State == job.ObjectIntended && rec.IntentAt != nil && s.Owner == "" && r.Pace.Cloud(r.Now().Sub(*rec.IntentAt)) < r.Consistency {
			return nil, pipeline.Wait(3*time.Second, "the tags of %s to become visible", x)
		}
		return []pipeline.Seen{s}, nil
	}
}

func (p *Provider) readRole(ctx context.Context, name string) (iamtypes.Role, error) {
	return lookup.Once(ctx, kindRole+" "+name, func(ctx context.Context) (iamtypes.Role, error) {
		out, err := p.iam.GetRole(ctx, &iam.GetRoleInput{RoleName: aws.String(name)})
		if err != nil {
			return iamtypes.Role{}, err
		}
		if out.Role == nil {
			return iamtypes.Role{}, absent("IAM", "GetRole", "role "+name)
		}
		return *out.Role, nil
	})
}

func (p *Provider) role(r *pipeline.Run) pipeline.Resource {
	x := pipeline.Resource{Kind: kindRole, Key: "role", Name: name(r, "vm", 64)}
	x.Get = func(ctx context.Context, id string) (pipeline.Seen, error) {
		got, err := p.readRole(ctx, id)
		if err != nil {
			return pipeline.Seen{}, err
		}
		s := pipeline.Seen{ID: id, Owner: iamMark(got.Tags), Status: pipeline.Ready}
		if r.Down {
			return s, nil
		}
		s.Aspects, err = p.roleAspects(ctx, id, aws.ToString(got.AssumeRolePolicyDocument))
		return s, err
	}
	x.Find = byName(r, x)
	x.Create = func(ctx context.Context, _ string) (pipeline.Seen, error) {
		out, err := p.iam.CreateRole(ctx, &iam.CreateRoleInput{
			RoleName: aws.String(x.Name), AssumeRolePolicyDocument: aws.String(trustPolicy),
			Description: aws.String("VMs of provisioning job " + r.Job.ID), Tags: iamTags(tags(r, x.Key, x.Name)),
		})
		if err != nil || out.Role == nil {
			return pipeline.Seen{}, err
		}
		// A new role has no policies: there is nothing to read back yet.
		return pipeline.Seen{ID: x.Name, Status: pipeline.Ready, Aspects: []pipeline.Aspect{p.policyAspect(x.Name, policies{})}}, nil
	}
	x.Delete = p.deleteRole
	x.Blockers = p.roleBlockers
	return x
}

func (p *Provider) roleAspects(ctx context.Context, role, trust string) ([]pipeline.Aspect, error) {
	var have policies
	err := pipeline.All(ctx,
		func(ctx context.Context) (err error) { have.attached, err = p.attachedPolicies(ctx, role); return err },
		func(ctx context.Context) (err error) { have.inline, err = p.inlinePolicies(ctx, role); return err },
	)
	if err != nil {
		return nil, pipeline.Unseen(err, "the policies of role "+role)
	}
	return []pipeline.Aspect{
		{Name: "trust policy", Wanted: canonicalPolicy(trustPolicy), Seen: canonicalPolicy(trust), Set: func(ctx context.Context) error {
			_, err := p.iam.UpdateAssumeRolePolicy(ctx, &iam.UpdateAssumeRolePolicyInput{RoleName: aws.String(role), PolicyDocument: aws.String(trustPolicy)})
			return err
		}},
		p.policyAspect(role, have),
	}, nil
}

// canonicalPolicy is a policy document in one form, so that two that say the
// same compare equal. IAM answers with the document URL-encoded.
func canonicalPolicy(doc string) string {
	if plain, err := url.PathUnescape(doc); err == nil {
		doc = plain
	}
	var v any
	if json.Unmarshal([]byte(doc), &v) != nil {
		return doc
	}
	out, err := json.Marshal(single(v))
	if err != nil {
		return doc
	}
	return string(out)
}

// single takes lists of one element for the element, as IAM does, and leaves
// out statement IDs, which mean nothing.
func single(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = single(v[i])
		}
		if len(v) == 1 {
			return v[0]
		}
		return v
	case map[string]any:
		delete(v, "Sid")
		for k := range v {
			v[k] = single(v[k])
		}
		return v
	}
	return v
}

// deleteRole takes the policies off first: IAM refuses otherwise.
func (p *Provider) deleteRole(ctx context.Context, id string) error {
	attached, err := p.attachedPolicies(ctx, id)
	if err != nil {
		return err
	}
	if err := p.detachPolicies(ctx, id, attached); err != nil {
		return err
	}
	inline, err := p.inlinePolicies(ctx, id)
	if err != nil {
		return err
	}
	if err := p.deleteInline(ctx, id, inline); err != nil {
		return err
	}
	_, err = p.iam.DeleteRole(ctx, &iam.DeleteRoleInput{RoleName: aws.String(id)})
	return err
}

// roleBlockers names instance profiles of others that hold the role.
func (p *Provider) roleBlockers(ctx context.Context, id string) (string, error) {
	names, err := lookup.Pages(ctx, func(ctx context.Context, token *string) ([]string, *string, error) {
		out, err := p.iam.ListInstanceProfilesForRole(ctx, &iam.ListInstanceProfilesForRoleInput{RoleName: aws.String(id), Marker: token})
		if err != nil {
			return nil, nil, err
		}
		var names []string
		for _, ip := range out.InstanceProfiles {
			names = append(names, aws.ToString(ip.InstanceProfileName))
		}
		return names, out.Marker, nil
	})
	if err != nil || len(names) == 0 {
		return "", pipeline.Unless(err, pipeline.NotFound)
	}
	return "it is in instance profile " + strings.Join(names, ", ") + ", which this job did not make; take it out there, then retry", nil
}

func (p *Provider) readProfile(ctx context.Context, name string) (iamtypes.InstanceProfile, error) {
	return lookup.Once(ctx, kindInstanceProfile+" "+name, func(ctx context.Context) (iamtypes.InstanceProfile, error) {
		out, err := p.iam.GetInstanceProfile(ctx, &iam.GetInstanceProfileInput{InstanceProfileName: aws.String(name)})
		if err != nil {
			return iamtypes.InstanceProfile{}, err
		}
		if out.InstanceProfile == nil {
			return iamtypes.InstanceProfile{}, absent("IAM", "GetInstanceProfile", "instance profile "+name)
		}
		return *out.InstanceProfile, nil
	})
}

func (p *Provider) instanceProfile(r *pipeline.Run) pipeline.Resource {
	role := name(r, "vm", 64)
	x := pipeline.Resource{Kind: kindInstanceProfile, Key: "instance-profile", Name: role}
	see := func(got iamtypes.InstanceProfile) pipeline.Seen {
		var roles []string
		for _, in := range got.Roles {
			roles = append(roles, aws.ToString(in.RoleName))
		}
		return pipeline.Seen{
			ID: aws.ToString(got.InstanceProfileName), Owner: iamMark(got.Tags), Status: pipeline.Ready,
			Aspects: []pipeline.Aspect{p.profileRole(x.Name, role, roles)},
		}
	}
	x.Get = func(ctx context.Context, id string) (pipeline.Seen, error) {
		got, err := p.readProfile(ctx, id)
		if err != nil {
			return pipeline.Seen{}, err
		}
		return see(got), nil
	}
	x.Find = byName(r, x)
	x.Create = func(ctx context.Context, _ string) (pipeline.Seen, error) {
		out, err := p.iam.CreateInstanceProfile(ctx, &iam.CreateInstanceProfileInput{
			InstanceProfileName: aws.String(x.Name), Tags: iamTags(tags(r, x.Key, x.Name)),
		})
		if err != nil || out.InstanceProfile == nil {
			return pipeline.Seen{}, err
		}
		return see(*out.InstanceProfile), nil
	}
	x.Delete = func(ctx context.Context, id string) error {
		got, err := p.readProfile(ctx, id)
		if err != nil {
			return err
		}
		for _, in := range got.Roles {
			_, err := p.iam.RemoveRoleFromInstanceProfile(ctx, &iam.RemoveRoleFromInstanceProfileInput{InstanceProfileName: aws.String(id), RoleName: in.RoleName})
			if err := pipeline.Unless(err, pipeline.NotFound); err != nil {
				return err
			}
		}
		_, err = p.iam.DeleteInstanceProfile(ctx, &iam.DeleteInstanceProfileInput{InstanceProfileName: aws.String(id)})
		return err
	}
	return x
}

// profileRole wants the role in the profile, which holds one at most.
func (p *Provider) profileRole(profile, role string, in []string) pipeline.Aspect {
	return pipeline.Aspect{Name: "role", Wanted: role, Seen: strings.Join(in, ", "), Set: func(ctx context.Context) error {
		for _, other := range in {
			_, err := p.iam.RemoveRoleFromInstanceProfile(ctx, &iam.RemoveRoleFromInstanceProfileInput{InstanceProfileName: aws.String(profile), RoleName: aws.String(other)})
			if err := pipeline.Unless(err, pipeline.NotFound); err != nil {
				return err
			}
		}
		_, err := p.iam.AddRoleToInstanceProfile(ctx, &iam.AddRoleToInstanceProfileInput{InstanceProfileName: aws.String(profile), RoleName: aws.String(role)})
		if !pipeline.Is(err, pipeline.Quota) {
			return err
		}
		// It holds a role already: after a lost answer, that is ours.
		got, gerr := p.readProfile(ctx, profile)
		if gerr == nil && len(got.Roles) == 1 && aws.ToString(got.Roles[0].RoleName) == role {
			return nil
		}
		return err
	}}
}
