package aws

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/pipeline"
)

// addonNamespace is where all of them run.
const addonNamespace = "kube-system"

// An addon is one that every cluster gets.
type addon struct {
	name    string
	onNodes bool   // its pods need a node to run on, so that it is ready after the pools only
	config  string // JSON by the add-on's own schema

	// What it calls AWS with, if it does: a role with one policy, for one service account.
	use, policy, account string
}

// addons are the add-ons of every cluster ("Available Amazon EKS add-ons from AWS").
// Their versions are EKS's defaults for the cluster's.
var addons = []addon{
	{name: "vpc-cni", use: "cni", policy: "AmazonEKS_CNI_Policy", account: "aws-node", config: `{"enableNetworkPolicy":"true"}`},
	{name: "kube-proxy"},
	{name: "eks-pod-identity-agent"},
	{name: "coredns", onNodes: true},
	{name: "aws-ebs-csi-driver", onNodes: true, use: "ebs", policy: "service-role/AmazonEBSCSIDriverPolicy", account: "ebs-csi-controller-sa"},
}

func (p *Provider) readAddon(ctx context.Context, cluster, name string) (ekstypes.Addon, error) {
	return lookup.Once(ctx, kindAddon+" "+cluster+"/"+name, func(ctx context.Context) (ekstypes.Addon, error) {
		out, err := p.eks.DescribeAddon(ctx, &eks.DescribeAddonInput{ClusterName: aws.String(cluster), AddonName: aws.String(name)})
		if err != nil {
			return ekstypes.Addon{}, err
		}
		if out.Addon == nil {
			return ekstypes.Addon{}, absent("EKS", "DescribeAddon", "add-on "+name)
		}
		return *out.Addon, nil
	})
}

// addon is one add-on of the cluster, with its role by Pod Identity where it calls AWS.
func (p *Provider) addon(r *pipeline.Run, a addon) pipeline.Resource {
	cluster := clusterNameOf(r.Job)
	in := &eks.CreateAddonInput{
		ClusterName: aws.String(cluster), AddonName: aws.String(a.name), ResolveConflicts: ekstypes.ResolveConflictsOverwrite,
		PodIdentityAssociations: p.identityOf(r, a), Tags: tags(r, addonPref+a.name, a.name),
	}
	if a.config != "" {
		in.ConfigurationValues = aws.String(a.config)
	}
	x := pipeline.Resource{Kind: kindAddon, Key: addonPref + a.name, Name: a.name, Args: in, Tokened: true, Slow: true, Patience: 20 * time.Minute}
	x.Get = func(ctx context.Context, _ string) (pipeline.Seen, error) {
		got, err := p.readAddon(ctx, cluster, a.name)
		if err != nil {
			return pipeline.Seen{}, err
		}
		return p.seeAddon(ctx, r, a, got)
	}
	x.Find = eksNamed(r, x)
	x.Create = func(ctx context.Context, token string) (pipeline.Seen, error) {
		req := *in
		req.ClientRequestToken = aws.String(token)
		out, err := p.eks.CreateAddon(ctx, &req)
		if err != nil || out.Addon == nil {
			return pipeline.Seen{}, err
		}
		return pipeline.Seen{ID: aws.ToString(out.Addon.AddonArn), Owner: r.Job.ID, Status: pipeline.Pending, Reason: string(out.Addon.Status)}, nil
	}
	x.Delete = func(ctx context.Context, _ string) error {
		_, err := p.eks.DeleteAddon(ctx, &eks.DeleteAddonInput{ClusterName: aws.String(cluster), AddonName: aws.String(a.name)})
		return err
	}
	return tidy(x)
}

// identityOf is the role of an add-on's service account.
func (p *Provider) identityOf(r *pipeline.Run, a addon) []ekstypes.AddonPodIdentityAssociations {
	if a.policy == "" {
		return nil
	}
	return []ekstypes.AddonPodIdentityAssociations{{RoleArn: aws.String(p.addonRole(r, a)), ServiceAccount: aws.String(a.account)}}
}

func (p *Provider) seeAddon(ctx context.Context, r *pipeline.Run, a addon, got ekstypes.Addon) (pipeline.Seen, error) {
	s := pipeline.Seen{ID: aws.ToString(got.AddonArn), Owner: eksMark(got.Tags), Status: pipeline.Pending, Reason: addonIssues(got)}
	switch got.Status {
	case ekstypes.AddonStatusActive, ekstypes.AddonStatusUpdateFailed: // what the failed update was to change is seen below
		s.Status = pipeline.Ready
	case ekstypes.AddonStatusCreateFailed, ekstypes.AddonStatusDeleteFailed:
		s.Status = pipeline.Broken
	}
	if s.Status != pipeline.Ready || r.Down {
		return s, nil
	}
	u := updates{Provider: p, r: r, cluster: aws.ToString(got.ClusterName), addon: a.name}
	set := u.change("settings", func(ctx context.Context) (*ekstypes.Update, error) {
		in := &eks.UpdateAddonInput{
			ClusterName: got.ClusterName, AddonName: got.AddonName, ResolveConflicts: ekstypes.ResolveConflictsOverwrite, PodIdentityAssociations: p.identityOf(r, a),
		}
		if a.config != "" {
			in.ConfigurationValues = aws.String(a.config)
		}
		out, err := p.eks.UpdateAddon(ctx, in)
		if err != nil {
			return nil, err
		}
		return out.Update, nil
	})
	s.Aspects = []pipeline.Aspect{{Name: "configuration", Wanted: a.configText(a.config), Seen: a.configText(aws.ToString(got.ConfigurationValues)), Set: set}}
	if a.policy == "" {
		return s, nil
	}
	role, err := p.roleOfAddon(ctx, got)
	s.Aspects = append(s.Aspects, pipeline.Aspect{Name: "role", Wanted: p.addonRole(r, a), Seen: role, Set: set})
	return s, err
}

// configText is what is seen of the settings that are wanted; others are whoever's
// set them.
func (a addon) configText(text string) string {
	if a.config == "" {
		return "as it comes"
	}
	var want, have map[string]any
	if err := json.Unmarshal([]byte(a.config), &want); err != nil {
		panic(err) // a programming error: it is a constant
	}
	if text != "" && json.Unmarshal([]byte(text), &have) != nil {
		return "not readable"
	}
	seen := map[string]string{}
	for k := range want {
		if v, ok := have[k]; ok {
			b, err := json.Marshal(v)
			if err != nil {
				return "not readable"
			}
			seen[k] = strings.Trim(string(b), `"`)
		}
	}
	return sortedPairs(seen)
}

// roleOfAddon is the role that the add-on's pods get by Pod Identity.
func (p *Provider) roleOfAddon(ctx context.Context, got ekstypes.Addon) (string, error) {
	var roles []string
	for _, arn := range got.PodIdentityAssociations {
		at, err := p.podAssociation(ctx, aws.ToString(got.ClusterName), arn[strings.LastIndexByte(arn, '/')+1:])
		if pipeline.Is(err, pipeline.NotFound) {
			continue
		}
		if err != nil {
			return "", err
		}
		roles = append(roles, aws.ToString(at.RoleArn))
	}
	return or(sortedList(roles), "none"), nil
}

// podAssociation is one Pod Identity association by its ID.
func (p *Provider) podAssociation(ctx context.Context, cluster, id string) (ekstypes.PodIdentityAssociation, error) {
	return lookup.Once(ctx, "association "+cluster+"/"+id, func(ctx context.Context) (ekstypes.PodIdentityAssociation, error) {
		out, err := p.eks.DescribePodIdentityAssociation(ctx, &eks.DescribePodIdentityAssociationInput{ClusterName: aws.String(cluster), AssociationId: aws.String(id)})
		if err != nil {
			return ekstypes.PodIdentityAssociation{}, err
		}
		if out.Association == nil {
			return ekstypes.PodIdentityAssociation{}, absent("EKS", "DescribePodIdentityAssociation", "association "+id)
		}
		return *out.Association, nil
	})
}

// addonIssues is an add-on's state with the reasons for it.
func addonIssues(got ekstypes.Addon) string {
	var all []string
	if got.Health != nil {
		for _, i := range got.Health.Issues {
			all = append(all, string(i.Code)+": "+aws.ToString(i.Message))
		}
	}
	return issueText(string(got.Status), all...)
}
