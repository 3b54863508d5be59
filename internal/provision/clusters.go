package provision

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/kube"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/spaces/configv1"
)

// groupRE is what can be a resource group ("Naming rules and restrictions for
// Azure resources").
var groupRE = regexp.MustCompile(`^[A-Za-z0-9_().-]{0,89}[A-Za-z0-9_()-]$`)

// clusterAt is a job that stands for a cluster which no job of ours needs to have
// made: it opens the account that the cluster is in. at is the path of the
// cluster's fields; what is wrong besides is refused together with them.
func (s *Service) clusterAt(ctx context.Context, org, team string, p job.Provider, account string, ref job.ClusterRef, at string, fields ...job.FieldError) (*job.Job, error) {
	if !slices.Contains([]job.Provider{job.AWS, job.GCP, job.Azure}, p) {
		fields = append(fields, job.FieldError{Field: "provider", Message: fmt.Sprintf("%.40q is not a cloud that this version knows", string(p)), Fix: "use aws, gcp or azure"})
	}
	a, err := s.accountFor(ctx, org, team, account, p)
	var unfit *Refusal
	switch {
	case errors.As(err, &unfit):
		fields = append(fields, unfit.Fields...)
	case err != nil:
		return nil, err
	}
	for _, f := range []struct{ name, value string }{{"region", ref.Region}, {"cluster", ref.Name}} {
		if !refRE.MatchString(f.value) {
			fields = append(fields, job.FieldError{Field: at + f.name, Message: fmt.Sprintf("%.60q is not a name", f.value), Fix: "give the cloud's own name of it"})
		}
	}
	switch {
	case ref.ResourceGroup == "":
	case p != job.Azure:
		fields = append(fields, job.FieldError{Field: at + "resourceGroup", Message: "is only for azure", Fix: "leave it out"})
	case !groupRE.MatchString(ref.ResourceGroup):
		fields = append(fields, job.FieldError{Field: at + "resourceGroup", Message: fmt.Sprintf("%.60q is not a resource group", ref.ResourceGroup), Fix: "give its name, or leave it out"})
	}
	if len(fields) > 0 {
		return nil, invalid(fields...)
	}
	j := &job.Job{OrgID: org, Kind: job.Provisioning, ResourceType: job.Cluster, Mode: job.ModeAdopt, Provider: p, CloudAccountID: a.ID, Region: ref.Region, Name: ref.Name}
	j.Config.InfraConfig.Cluster.Name, j.Config.InfraConfig.ResourceGroup = ref.Name, ref.ResourceGroup
	return j, nil
}

// clusters is the part of a job's cloud that makes clusters.
func (s *Service) clusters(ctx context.Context, j *job.Job) (cloud.ClusterFamily, error) {
	set, err := s.set(ctx, j)
	if err != nil {
		return nil, err
	}
	family, ok := set.Cloud.(cloud.ClusterFamily)
	if !ok {
		return nil, refuse(WrongState, "Ask at another cloud.", "%s has no clusters here", j.Provider)
	}
	return family, nil
}

// kubeAccess is the way to the API server of a cluster; a cluster that is not
// there is refused.
func (s *Service) kubeAccess(ctx context.Context, j *job.Job) (cloud.KubeAccess, error) {
	family, err := s.clusters(ctx, j)
	if err != nil {
		return cloud.KubeAccess{}, err
	}
	reach, err := family.KubeAccess(pipeline.WithGate(ctx, pipeline.ReadOnly), j.ClusterRef())
	if pipeline.Is(err, pipeline.NotFound) {
		return reach, noCluster(j, err)
	}
	return reach, asked(err)
}

func noCluster(j *job.Job, cause error) error {
	return &Refusal{Kind: NotFound, Message: fmt.Sprintf("there is no cluster %s in %s", j.ClusterRef().Name, j.Region), Hint: "Check name, region and cloud account.", Cause: cause}
}

// spaceClient is a client of a space's cluster.
func (s *Service) spaceClient(ctx context.Context, p access.Principal, policy access.Policy, ref string) (kube.Interface, *configv1.Space, error) {
	got, err := s.overSpace(ctx, p, policy, ref)
	if err != nil {
		return nil, nil, err
	}
	if got.GetSpaceType() != job.SpaceKubernetes {
		return nil, got, refuse(WrongState, "Ask for a space of type kubernetes.", "the space %s is of type %s and has no namespaces", got.GetName(), got.GetSpaceType())
	}
	team, err := s.teamOfSpace(ctx, p.OrgID, got)
	if err != nil {
		return nil, got, err
	}
	if policy != access.SpaceView {
		if err := s.writable(ctx, p.OrgID, team, got); err != nil {
			return nil, got, err
		}
	}
	j, err := s.clusterAt(ctx, p.OrgID, team, job.Provider(got.GetProvider()), accountOf(got),
		job.ClusterRef{Region: got.GetRegion(), Name: got.GetConfig()["cluster"], ResourceGroup: got.GetConfig()["resourceGroup"]}, "config.")
	if err != nil {
		return nil, got, err
	}
	reach, err := s.kubeAccess(ctx, j)
	if err != nil {
		return nil, got, err
	}
	client, err := kube.Client(ctx, reach)
	return client, got, err
}

// Namespaces lists the namespaces of a space's cluster.
func (s *Service) Namespaces(ctx context.Context, ref string) ([]kube.Namespace, error) {
	p, err := s.viewer(ctx, access.SpaceView)
	if err != nil {
		return nil, err
	}
	client, _, err := s.spaceClient(pipeline.WithGate(ctx, pipeline.ReadOnly), p, access.SpaceView, ref)
	if err != nil {
		return nil, refusalOf(err)
	}
	all, err := kube.Namespaces(ctx, client)
	if err != nil {
		return nil, asked(err)
	}
	return all, nil
}

// A NamespaceRequest makes a namespace.
type NamespaceRequest struct {
	Name   string            `json:"name" doc:"1 to 63 of a-z, 0-9 and hyphen"`
	Labels map[string]string `json:"labels,omitempty" doc:"Kubernetes labels; pod security labels at the level baseline are set besides, as warnings"`
}

// CreateNamespace makes a namespace in a space's cluster.
func (s *Service) CreateNamespace(ctx context.Context, ref string, r NamespaceRequest) (*kube.Namespace, error) {
	p, err := access.Require(ctx, access.SpaceManage)
	if err != nil {
		return nil, s.refused(ctx, access.SpaceManage, ref, err)
	}
	if !spaceNameRE.MatchString(r.Name) || strings.HasPrefix(r.Name, "kube-") {
		return nil, s.refused(ctx, access.SpaceManage, ref, invalid(job.FieldError{Field: "name", Message: fmt.Sprintf("%.60q is not a namespace that can be made", r.Name), Fix: "use 1 to 63 of a-z, 0-9 and hyphen, starting with a letter; kube- is the cluster's own"}))
	}
	open := pipeline.WithGate(ctx, func(context.Context, pipeline.Call) error { return nil })
	client, got, err := s.spaceClient(open, p, access.SpaceManage, ref)
	if err != nil {
		return nil, s.refused(ctx, access.SpaceManage, ref, err)
	}
	ns, err := kube.CreateNamespace(open, client, r.Name, r.Labels)
	switch {
	case pipeline.Is(err, pipeline.Exists):
		return nil, s.refused(ctx, access.SpaceManage, ref, &Refusal{Kind: NameTaken, Message: fmt.Sprintf("the namespace %s exists already", r.Name), Hint: "Choose another name, or use it as it is.", Cause: err})
	case pipeline.Is(err, pipeline.Invalid):
		return nil, s.refused(ctx, access.SpaceManage, ref, invalid(job.FieldError{Field: "labels", Message: err.Error(), Fix: "put right what the cluster names"}))
	case err != nil:
		return nil, s.refused(ctx, access.SpaceManage, ref, asked(err))
	}
	return &ns, s.noted(ctx, access.SpaceManage, "space", got.GetId(), map[string]any{"namespace": r.Name, "result": "created"})
}

// An AccessRequest lets somebody use a cluster.
type AccessRequest struct {
	Provider      job.Provider      `json:"provider" enum:"aws,gcp,azure"`
	Principal     string            `json:"principal,omitempty" doc:"Who is let in. AWS: ARN of an IAM role or user; GCP: user:, group: or serviceAccount: member; Azure: object ID. The provisioner's own identity by default"`
	Level         cloud.AccessLevel `json:"level,omitempty" enum:"admin,edit,view" doc:"admin by default"`
	ResourceGroup string            `json:"resourceGroup,omitempty" doc:"Azure: the cluster's resource group; looked for if left out"`
}

// ClusterAccess grants (or, with revoke, takes back) access to a cluster that
// exists, such as an adopted one that does not know the provisioner yet. Both may
// be repeated.
func (s *Service) ClusterAccess(ctx context.Context, account, region, name string, r AccessRequest, revoke bool) error {
	const policy = access.CloudAccountManage
	resource := account + "/" + region + "/" + name
	p, err := access.Require(ctx, policy)
	if err != nil {
		return s.refused(ctx, policy, resource, err)
	}
	r.Level = cmp.Or(r.Level, cloud.AccessAdmin)
	err = func() error {
		if !slices.Contains([]cloud.AccessLevel{cloud.AccessAdmin, cloud.AccessEdit, cloud.AccessView}, r.Level) {
			return invalid(job.FieldError{Field: "level", Message: fmt.Sprintf("%.40q is not a level", string(r.Level)), Fix: "use admin, edit or view"})
		}
		ref := job.ClusterRef{Region: region, Name: name, ResourceGroup: r.ResourceGroup}
		a, err := s.accountOver(ctx, p, policy, account)
		if err != nil {
			return err
		}
		j, err := s.clusterAt(ctx, p.OrgID, a.TeamID, r.Provider, a.ID, ref, "")
		if err != nil {
			return err
		}
		family, err := s.clusters(ctx, j)
		if err != nil {
			return err
		}
		open := pipeline.WithGate(ctx, func(context.Context, pipeline.Call) error { return nil })
		if revoke {
			err = family.RevokeAccess(open, ref, r.Principal)
		} else {
			err = family.GrantAccess(open, ref, cloud.AccessGrant{Principal: r.Principal, Level: r.Level})
		}
		var fatal *pipeline.FatalError
		switch {
		case errors.As(err, &fatal) && fatal.Problem.Code == "invalid" || pipeline.Is(err, pipeline.Invalid):
			return invalid(job.FieldError{Field: "principal", Message: err.Error(), Fix: "name somebody that the cloud knows"})
		case pipeline.Is(err, pipeline.NotFound):
			return noCluster(j, err)
		}
		return stopped(err)
	}()
	if err != nil {
		return s.refused(ctx, policy, resource, err)
	}
	result := "access granted"
	if revoke {
		result = "access revoked"
	}
	return s.noted(ctx, policy, "cluster", resource, map[string]any{"principal": r.Principal, "level": string(r.Level), "result": result})
}
