package provision

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/audit"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/ledger"
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
	return &Refusal{Kind: CloudNotAvailable, Message: "the config service could not be asked: " + err.Error(), Hint: "Check that it runs and that this server reaches it (zopday serve --config-service), then ask again.", Cause: err}
}

// registry is the config service, if this server has one.
func (s *Service) registry() (Spaces, error) {
	if s.Spaces == nil {
		return nil, &Refusal{Kind: CloudNotAvailable, Message: "this server has no config service", Hint: "Ask one that has."}
	}
	return s.Spaces, nil
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
	switch {
	case pipeline.Is(err, pipeline.Invalid) && cursor != "":
		return nil, "", refusalOf(ledger.ErrBadCursor)
	case err != nil:
		return nil, "", spaceService(err)
	}
	if page, err = s.seenSpaces(ctx, p, access.SpaceView, page...); err != nil {
		return nil, "", err
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
	got, err := s.overSpace(ctx, p, access.SpaceView, ref)
	if err != nil {
		return nil, refusalOf(err)
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
// read, and not changed. The same cluster again gives the same space: by the name
// that is given now, or as its job registered it.
func (s *Service) RegisterSpace(ctx context.Context, r SpaceRequest) (v *Space, created bool, err error) {
	p, err := access.Require(ctx, access.SpaceManage)
	if err != nil {
		return nil, false, s.refused(ctx, access.SpaceManage, "", err)
	}
	// What no job made belongs to no team.
	if err := overAll(p, access.SpaceManage, "the organisation's spaces"); err != nil {
		return nil, false, s.refused(ctx, access.SpaceManage, r.Name, err)
	}
	r.CloudAccountID, r.SpaceType = cmp.Or(r.CloudAccountID, "default"), cmp.Or(r.SpaceType, job.SpaceKubernetes)
	id, created, err := s.register(ctx, p.OrgID, r)
	if err != nil {
		return nil, false, s.refused(ctx, access.SpaceManage, r.Name, err)
	}
	if err := s.noted(ctx, access.SpaceManage, "space", id, map[string]any{
		"name": r.Name, "cluster": r.Config.Cluster, "provider": string(r.Provider), "region": r.Config.Region, "result": "registered", "created": created,
	}); err != nil {
		return nil, false, err
	}
	got, err := s.space(ctx, p, id)
	if err != nil {
		return nil, false, err
	}
	view := spaceView(got)
	return &view, created, nil
}

// register registers a cluster, unless it is known.
func (s *Service) register(ctx context.Context, org string, r SpaceRequest) (id string, created bool, err error) {
	registry, err := s.registry()
	if err != nil {
		return "", false, err
	}
	j, err := s.clusterAt(ctx, org, "", r.Provider, r.CloudAccountID, r.ref(), "config.", r.faults()...)
	if err != nil {
		return "", false, err
	}
	r.CloudAccountID = j.CloudAccountID
	if _, err = s.kubeAccess(ctx, j); err != nil {
		return "", false, err
	}
	known, err := s.knownSpace(ctx, org, r)
	if err != nil {
		return "", false, err
	}
	if known != nil && known.GetJobId() != "" {
		return known.GetId(), false, nil // its job's own, which keeps it
	}
	config := map[string]string{"region": r.Config.Region, "cluster": r.Config.Cluster}
	if group := cmp.Or(r.Config.ResourceGroup, known.GetConfig()["resourceGroup"]); group != "" {
		config["resourceGroup"] = group
	}
	id, err = registry.Register(ctx, &configv1.Space{
		OrgId: org, Name: r.Name, SubjectType: "cluster", SubjectId: cmp.Or(known.GetSubjectId(), r.subject()), Provider: string(r.Provider), Region: r.Config.Region,
		SpaceType: r.SpaceType, CloudAccountId: r.CloudAccountID, Config: config,
	})
	if err != nil {
		return "", false, spaceService(err)
	}
	return id, known == nil, nil
}

// subject names the cluster itself: the same for whoever registers it.
func (r SpaceRequest) subject() string {
	sum := sha256.Sum256([]byte(strings.Join([]string{string(r.Provider), r.CloudAccountID, r.Config.Region, r.Config.ResourceGroup, r.Config.Cluster}, "/")))
	return "ext_" + hex.EncodeToString(sum[:12])
}

func (r SpaceRequest) ref() job.ClusterRef {
	return job.ClusterRef{Region: r.Config.Region, Name: r.Config.Cluster, ResourceGroup: r.Config.ResourceGroup}
}

// knownSpace finds the space that a cluster has already; nil if it has none. A
// name that another space has is refused: components are installed by it.
func (s *Service) knownSpace(ctx context.Context, org string, r SpaceRequest) (known *configv1.Space, err error) {
	var namesake *configv1.Space
	err = s.eachSpace(ctx, org, func(sp *configv1.Space) bool {
		same := sp.GetSpaceType() == job.SpaceKubernetes && sp.GetProvider() == string(r.Provider) && accountOf(sp) == r.CloudAccountID && sp.GetRegion() == r.Config.Region &&
			sp.GetConfig()["cluster"] == r.Config.Cluster && sameGroup(sp.GetConfig()["resourceGroup"], r.Config.ResourceGroup)
		switch {
		case same && (known == nil || sp.GetJobId() != ""):
			known = sp
		case !same && sp.GetSpaceType() == job.SpaceKubernetes && sp.GetName() == r.Name:
			namesake = sp
		}
		return true
	})
	if err == nil && namesake != nil && (known == nil || known.GetJobId() == "") {
		text := fmt.Sprintf("the space %s, of the cluster %s in %s, has the name", namesake.GetId(), namesake.GetConfig()["cluster"], namesake.GetRegion())
		err = &Refusal{Kind: NameTaken, Message: text, Hint: "Choose another name.", Fields: []job.FieldError{{Field: "name", Message: text, Fix: "choose another name"}}}
	}
	return known, err
}

// eachSpace goes through an organisation's spaces, the newest first, until f says
// that it has seen enough.
func (s *Service) eachSpace(ctx context.Context, org string, f func(*configv1.Space) bool) error {
	registry, err := s.registry()
	if err != nil {
		return err
	}
	for token := ""; ; {
		page, next, err := registry.List(ctx, org, 500, token)
		if err != nil {
			return spaceService(err)
		}
		for _, sp := range page {
			if !f(sp) {
				return nil
			}
		}
		if token = next; next == "" {
			return nil
		}
	}
}

// space reads one space of an organisation, by its ID or its name. Of spaces of
// one name, those of one of the types count, if there are any.
func (s *Service) space(ctx context.Context, p access.Principal, ref string, types ...string) (*configv1.Space, error) {
	got, err := s.spaceAnywhere(ctx, p, ref, types...)
	if err != nil {
		return nil, err
	}
	seen, err := s.seenSpaces(ctx, p, access.SpaceView, got)
	if err == nil && len(seen) == 0 {
		err = errNoSpace()
	}
	return got, err
}

func errNoSpace() error {
	return &Refusal{Kind: NotFound, Message: "there is no such space in your organisation", Hint: "GET /spaces lists what there is."}
}

// spaceAnywhere is space, of all that the organisation has; of several of one
// name, those that the caller may see.
func (s *Service) spaceAnywhere(ctx context.Context, p access.Principal, ref string, types ...string) (*configv1.Space, error) {
	none := errNoSpace()
	if !refRE.MatchString(ref) {
		return nil, none
	}
	registry, err := s.registry()
	if err != nil {
		return nil, err
	}
	got, err := registry.Get(ctx, p.OrgID, ref)
	switch {
	case err != nil:
		return nil, spaceService(err)
	case got != nil:
		return got, nil
	}
	var named, wanted []*configv1.Space
	err = s.eachSpace(ctx, p.OrgID, func(sp *configv1.Space) bool {
		if sp.GetName() == ref {
			named = append(named, sp)
		}
		return true
	})
	if err == nil {
		named, err = s.seenSpaces(ctx, p, access.SpaceView, named...)
	}
	for _, sp := range named {
		if slices.Contains(types, sp.GetSpaceType()) {
			wanted = append(wanted, sp)
		}
	}
	if len(wanted) > 0 {
		named = wanted
	}
	switch {
	case err != nil:
		return nil, err
	case len(named) == 0:
		return nil, none
	case len(named) > 1:
		texts := make([]string, len(named))
		for i, sp := range named {
			texts[i] = fmt.Sprintf("%s (%s in %s)", sp.GetId(), sp.GetSpaceType(), sp.GetRegion())
		}
		return nil, &Refusal{Kind: Ambiguous, Message: "several spaces are called " + ref + ": " + strings.Join(texts, ", "), Hint: "Use the ID."}
	}
	return named[0], nil
}

// faults are what is wrong with a request, its cluster aside.
func (r SpaceRequest) faults() []job.FieldError {
	var fields []job.FieldError
	if !spaceNameRE.MatchString(r.Name) {
		fields = append(fields, job.FieldError{Field: "name", Message: fmt.Sprintf("%.60q is not a name", r.Name), Fix: "use 1 to 63 of a-z, 0-9 and hyphen, starting with a letter"})
	}
	if r.SpaceType != job.SpaceKubernetes {
		fields = append(fields, job.FieldError{Field: "spaceType", Message: fmt.Sprintf("%.40q cannot be registered here", r.SpaceType), Fix: "use kubernetes; spaces of VMs are registered by their jobs"})
	}
	return fields
}

// DeleteSpace forgets a space: the pointer alone, nothing of what is behind it.
func (s *Service) DeleteSpace(ctx context.Context, ref string) error {
	p, err := access.Require(ctx, access.SpaceManage)
	if err != nil {
		return s.refused(ctx, access.SpaceManage, ref, err)
	}
	got, err := s.overSpace(ctx, p, access.SpaceManage, ref)
	if err != nil {
		return s.refused(ctx, access.SpaceManage, ref, err)
	}
	on, err := s.componentJobs(ctx, p.OrgID, func(j *job.Job) bool { return j.Config.InfraConfig.SpaceID == got.GetId() })
	if err != nil {
		return err
	}
	if len(on) > 0 {
		return s.refused(ctx, access.SpaceManage, ref, refuse(WrongState, "Delete these jobs first: they uninstall what they installed.", "the space has components: %s", jobNames(on)))
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
