package provision

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/audit"
	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/kube"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/spaces/configv1"
	"github.com/zopday/provisioner/internal/steps"
)

// Spaces is the config service: the registry of what can be deployed to.
type Spaces interface {
	steps.Registrar
	Get(ctx context.Context, org, id string) (*configv1.Space, error) // nil: there is none
	List(ctx context.Context, org string, size int, token string) (page []*configv1.Space, next string, err error)
}

// A Space is a place to deploy to.
type Space struct {
	ID             string            `json:"id"`
	Name           string            `json:"name"`
	Provider       job.Provider      `json:"provider"`
	SpaceType      string            `json:"spaceType" enum:"kubernetes,vm"`
	CloudAccountID string            `json:"cloudAccountId"`
	Status         string            `json:"status" doc:"registered, or synced once the discovery service has been asked to look at it"`
	Config         map[string]string `json:"config" doc:"Where it is: region; cluster, for Kubernetes; resourceGroup, on Azure"`
	JobID          string            `json:"jobId,omitempty" doc:"The job that registered it"`
	ExecMode       string            `json:"execMode,omitempty" doc:"VM spaces: how a person gets a shell"`
	CreatedAt      time.Time         `json:"createdAt"`
}

func spaceView(s *configv1.Space) Space {
	v := Space{
		ID: s.GetId(), Name: s.GetName(), Provider: job.Provider(s.GetProvider()), SpaceType: s.GetSpaceType(), CloudAccountID: s.GetCloudAccountId(),
		Status: s.GetStatus(), Config: s.GetConfig(), JobID: s.GetJobId(), ExecMode: s.GetExecMode(), CreatedAt: time.UnixMicro(s.GetCreatedAt()).UTC(),
	}
	if v.Config == nil {
		v.Config = map[string]string{"region": s.GetRegion()}
	}
	return v
}

// spaceService puts an error of the config service into words.
func spaceService(err error) error {
	return &Refusal{Kind: CloudNotAvailable, Message: "the config service could not be asked: " + err.Error(), Hint: "Check that it runs and that this server reaches it, then ask again.", Cause: err}
}

// ListSpaces lists an organisation's spaces, the newest first.
func (s *Service) ListSpaces(ctx context.Context, limit int, cursor string) (items []Space, next string, err error) {
	p, err := s.viewer(ctx, access.SpaceView)
	if err != nil {
		return nil, "", err
	}
	items = []Space{}
	if s.Spaces == nil {
		return items, "", nil
	}
	page, next, err := s.Spaces.List(ctx, p.OrgID, limit, cursor)
	if err != nil {
		return nil, "", spaceService(err)
	}
	for _, sp := range page {
		items = append(items, spaceView(sp))
	}
	return items, next, nil
}

// GetSpace reads one space, by its ID or its name.
func (s *Service) GetSpace(ctx context.Context, ref string) (*Space, error) {
	p, err := s.viewer(ctx, access.SpaceView)
	if err != nil {
		return nil, err
	}
	got, err := s.space(ctx, p.OrgID, ref)
	if err != nil {
		return nil, err
	}
	v := spaceView(got)
	return &v, nil
}

// A SpaceRequest registers a cluster that exists as a space.
type SpaceRequest struct {
	Name           string       `json:"name" doc:"1 to 63 of a-z, 0-9 and hyphen"`
	Provider       job.Provider `json:"provider" enum:"aws,gcp,azure"`
	SpaceType      string       `json:"spaceType,omitempty" enum:"kubernetes" doc:"kubernetes (default). Spaces of VMs are registered by their jobs"`
	CloudAccountID string       `json:"cloudAccountId,omitempty" doc:"default, if left out"`
	Config         SpaceConfig  `json:"config"`
}

// SpaceConfig says where the cluster of a space is.
type SpaceConfig struct {
	Region        string `json:"region" doc:"The cloud's own name, such as us-east-1"`
	Cluster       string `json:"cluster" doc:"The cluster's name at the cloud"`
	ResourceGroup string `json:"resourceGroup,omitempty" doc:"Azure: the cluster's resource group; looked for if left out"`
}

// RegisterSpace makes a cluster that exists known as a space; the cluster is
// read, and not changed. The same cluster again gives the same space.
func (s *Service) RegisterSpace(ctx context.Context, r SpaceRequest) (*Space, error) {
	p, err := access.Require(ctx, access.SpaceManage)
	if err != nil {
		return nil, s.refused(ctx, access.SpaceManage, "", err)
	}
	r.CloudAccountID, r.SpaceType = cmp.Or(r.CloudAccountID, "default"), cmp.Or(r.SpaceType, job.SpaceKubernetes)
	j, err := s.clusterAt(p.OrgID, r.Provider, r.CloudAccountID, job.ClusterRef{Region: r.Config.Region, Name: r.Config.Cluster, ResourceGroup: r.Config.ResourceGroup}, "config.")
	if err == nil {
		err = r.check()
	}
	if err == nil {
		_, _, err = s.family(ctx, j)
	}
	if err != nil {
		return nil, s.refused(ctx, access.SpaceManage, r.Name, err)
	}
	digest := sha256.Sum256([]byte(strings.Join([]string{string(r.Provider), r.CloudAccountID, r.Config.Region, r.Config.ResourceGroup, r.Config.Cluster}, "/")))
	config := map[string]string{"region": r.Config.Region, "cluster": r.Config.Cluster}
	if r.Config.ResourceGroup != "" {
		config["resourceGroup"] = r.Config.ResourceGroup
	}
	id, err := s.Spaces.Register(ctx, &configv1.Space{
		OrgId: p.OrgID, Name: r.Name, SubjectType: "cluster", SubjectId: "ext_" + hex.EncodeToString(digest[:12]), Provider: string(r.Provider), Region: r.Config.Region,
		SpaceType: r.SpaceType, CloudAccountId: r.CloudAccountID, Config: config,
	})
	if err != nil {
		return nil, s.refused(ctx, access.SpaceManage, r.Name, spaceService(err))
	}
	if err := s.noted(ctx, access.SpaceManage, "space", id, map[string]any{"name": r.Name, "cluster": r.Config.Cluster, "region": r.Config.Region, "result": "registered"}); err != nil {
		return nil, err
	}
	return s.GetSpace(ctx, id)
}

func (r SpaceRequest) check() error {
	var fields []job.FieldError
	if !spaceNameRE.MatchString(r.Name) {
		fields = append(fields, job.FieldError{Field: "name", Message: fmt.Sprintf("%.60q is not a name", r.Name), Fix: "use 1 to 63 of a-z, 0-9 and hyphen, starting with a letter"})
	}
	if r.SpaceType != job.SpaceKubernetes {
		fields = append(fields, job.FieldError{Field: "spaceType", Message: fmt.Sprintf("%.40q cannot be registered here", r.SpaceType), Fix: "use kubernetes; spaces of VMs are registered by their jobs"})
	}
	if len(fields) > 0 {
		return invalid(fields...)
	}
	return nil
}

// DeleteSpace forgets a space: the pointer alone, nothing of what is behind it.
func (s *Service) DeleteSpace(ctx context.Context, ref string) error {
	p, err := access.Require(ctx, access.SpaceManage)
	if err != nil {
		return s.refused(ctx, access.SpaceManage, ref, err)
	}
	got, err := s.space(ctx, p.OrgID, ref)
	if err != nil {
		return s.refused(ctx, access.SpaceManage, ref, err)
	}
	on, err := s.componentJobs(ctx, p.OrgID, got.GetId())
	if err != nil {
		return err
	}
	if len(on) > 0 {
		names := make([]string, len(on))
		for i, j := range on {
			names[i] = j.Name
		}
		return s.refused(ctx, access.SpaceManage, ref, refuse(WrongState, "Delete these jobs first: they uninstall what they installed.", "the space has components: %s", strings.Join(names, ", ")))
	}
	if err := s.Spaces.Deregister(ctx, p.OrgID, got.GetId()); err != nil {
		return s.refused(ctx, access.SpaceManage, ref, spaceService(err))
	}
	return s.noted(ctx, access.SpaceManage, "space", got.GetId(), map[string]any{"name": got.GetName(), "result": "forgotten"})
}

// noted writes an allowed change into the audit log that was carried out elsewhere.
func (s *Service) noted(ctx context.Context, policy access.Policy, resourceType, id string, detail map[string]any) error {
	p, err := access.Require(ctx, policy)
	if err != nil {
		return refusalOf(err)
	}
	return s.Ledger.DB().InTx(ctx, func(ctx context.Context, tx db.Q) error {
		return audit.Append(ctx, tx, s.entry(ctx, p, audit.Entry{ResourceType: resourceType, ResourceID: id, Detail: detail}, policy, audit.Allowed))
	})
}

// clusterAt is a job that stands for a cluster which no job of ours needs to have
// made: it opens the account that the cluster is in.
func (s *Service) clusterAt(org string, p job.Provider, account string, ref job.ClusterRef, at string) (*job.Job, error) {
	var fields []job.FieldError
	if !slices.Contains([]job.Provider{job.AWS, job.GCP, job.Azure}, p) {
		fields = append(fields, job.FieldError{Field: "provider", Message: fmt.Sprintf("%.40q is not a cloud that this version knows", string(p)), Fix: "use aws, gcp or azure"})
	}
	if !slices.Contains(s.Accounts, account) {
		fields = append(fields, job.FieldError{Field: "cloudAccountId", Message: fmt.Sprintf("%.60q is not a cloud account here", account), Fix: "use " + s.Accounts[0]})
	}
	for _, f := range []struct{ name, value string }{{"region", ref.Region}, {"cluster", ref.Name}} {
		if !refRE.MatchString(f.value) {
			fields = append(fields, job.FieldError{Field: at + f.name, Message: fmt.Sprintf("%.60q is not a name", f.value), Fix: "give the cloud's own name of it"})
		}
	}
	if len(fields) > 0 {
		return nil, invalid(fields...)
	}
	j := &job.Job{OrgID: org, Kind: job.Provisioning, ResourceType: job.Cluster, Mode: job.ModeAdopt, Provider: p, CloudAccountID: account, Region: ref.Region, Name: ref.Name}
	j.Config.InfraConfig.Cluster.Name, j.Config.InfraConfig.ResourceGroup = ref.Name, ref.ResourceGroup
	return j, nil
}

// family is the cloud of a cluster and the way to its API server; a cluster that
// is not there is refused.
func (s *Service) family(ctx context.Context, j *job.Job) (cloud.ClusterFamily, cloud.KubeAccess, error) {
	set, err := s.set(ctx, j)
	if err != nil {
		return nil, cloud.KubeAccess{}, err
	}
	family, ok := set.Cloud.(cloud.ClusterFamily)
	if !ok {
		return nil, cloud.KubeAccess{}, refuse(WrongState, "Ask at another cloud.", "%s has no clusters here", j.Provider)
	}
	reach, err := family.KubeAccess(pipeline.WithGate(ctx, pipeline.ReadOnly), j.ClusterRef())
	if pipeline.Is(err, pipeline.NotFound) {
		return nil, reach, &Refusal{Kind: NotFound, Message: fmt.Sprintf("there is no cluster %s in %s", j.ClusterRef().Name, j.Region), Hint: "Check name, region and cloud account.", Cause: err}
	}
	return family, reach, asked(err)
}

// spaceClient is a client of a space's cluster.
func (s *Service) spaceClient(ctx context.Context, org, ref string) (kube.Interface, *configv1.Space, error) {
	got, err := s.space(ctx, org, ref)
	if err != nil {
		return nil, nil, err
	}
	if got.GetSpaceType() != job.SpaceKubernetes {
		return nil, got, refuse(WrongState, "Ask for a space of type kubernetes.", "the space %s is of type %s and has no namespaces", got.GetName(), got.GetSpaceType())
	}
	j, err := s.clusterAt(org, job.Provider(got.GetProvider()), cmp.Or(got.GetCloudAccountId(), "default"),
		job.ClusterRef{Region: got.GetRegion(), Name: got.GetConfig()["cluster"], ResourceGroup: got.GetConfig()["resourceGroup"]}, "config.")
	if err != nil {
		return nil, got, err
	}
	_, reach, err := s.family(ctx, j)
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
	client, _, err := s.spaceClient(pipeline.WithGate(ctx, pipeline.ReadOnly), p.OrgID, ref)
	if err != nil {
		return nil, err
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
	client, got, err := s.spaceClient(open, p.OrgID, ref)
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
		j, err := s.clusterAt(p.OrgID, r.Provider, account, ref, "")
		if err != nil {
			return err
		}
		family, _, err := s.family(ctx, j)
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
		if errors.As(err, &fatal) && fatal.Problem.Code == "invalid" || pipeline.Is(err, pipeline.Invalid) {
			return invalid(job.FieldError{Field: "principal", Message: err.Error(), Fix: "name somebody that the cloud knows"})
		}
		return asked(err)
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
