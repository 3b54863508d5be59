package aws

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/eks/types"
	"sigs.k8s.io/yaml"
)

// EKSAddon is an add-on of a cluster.
type EKSAddon struct {
	Name, ARN, Version, Status string
	Created, Modified          time.Time
	Config                     string // configuration values, as they were given
	RoleARN                    string // for its service account, by the cluster's OpenID Connect provider
	Associations               []string
	Namespace                  string
	Tags                       map[string]string
	Issues                     []EKSIssue
	Held                       bool
	Since                      time.Time // of the present status
}

// How long the parts of an add-on's life take, as a rule.
const (
	addonTime   = 40 * time.Second
	addonTick   = 20 * time.Second
	addonGone   = 30 * time.Second
	addonDoubt  = 3 * time.Minute // until an add-on whose pods do not start is degraded
	addonUpdate = time.Minute
)

// addon finds an add-on and its cluster.
func (s *eksService) addon(c *reqCtx, cluster, name *string) (*EKSCluster, *EKSAddon, error) {
	k, err := s.cluster(c, cluster)
	if err != nil {
		return nil, nil, err
	}
	a := k.Addons[deref(name)]
	if a == nil || !c.visible(a.ARN, a.Created, false, "addon", a.Name, mapValues(a.Tags)) {
		return nil, nil, noResource(k.Name, "No addon: %s found in cluster: %s", deref(name), k.Name)
	}
	c.Touch(a.ARN)
	return k, a, nil
}

func (s *eksService) createAddon(c *reqCtx, in *eks.CreateAddonInput) (*eks.CreateAddonOutput, error) {
	k, err := s.cluster(c, in.ClusterName)
	if err != nil {
		return nil, err
	}
	name := deref(in.AddonName)
	kind, ok := addonKinds[name]
	if !ok {
		return nil, invalidParameter(k.Name, "Addon %s specified is not supported", name)
	}
	id, err := s.repeated(c, k.Name, in.ClientRequestToken, in)
	if err != nil {
		return nil, err
	}
	if old := k.Addons[name]; old != nil {
		if old.ARN != id {
			return nil, inUse(k.Name, "Addon already exists.")
		}
		return &eks.CreateAddonOutput{Addon: k.sdkAddon(old)}, nil
	}
	if !k.running() {
		return nil, invalidRequest(k.Name, "Cluster '%s' is not in ACTIVE status", k.Name)
	}
	if err := checkEKSTags(k.Name, in.Tags); err != nil {
		return nil, err
	}
	a := &EKSAddon{Name: name, ARN: c.regionalARN("eks", "addon/"+k.Name+"/"+name+"/"+c.w.UUID()), Status: "CREATING", Created: c.now, Modified: c.now, Since: c.now,
		Config: deref(in.ConfigurationValues), RoleARN: deref(in.ServiceAccountRoleArn), Associations: []string{}, Namespace: kind.namespace, Tags: copyTags(in.Tags), Issues: []EKSIssue{}}
	if in.NamespaceConfig != nil {
		a.Namespace = orDefault(in.NamespaceConfig.Namespace, a.Namespace)
	}
	if a.Version, err = kind.version(k, deref(in.AddonVersion)); err != nil {
		return nil, err
	}
	if err := s.checkAddon(c, k, a, in.PodIdentityAssociations); err != nil {
		return nil, err
	}
	k.Addons[name] = a
	for _, p := range in.PodIdentityAssociations {
		made := s.addPodIdentity(k, a.Namespace, deref(p.ServiceAccount), deref(p.RoleArn))
		made.Owner, made.Service = a.ARN, true
		a.Associations = append(a.Associations, made.ARN)
	}
	s.remember(c, k.Name, in.ClientRequestToken, in, a.ARN)
	c.Make(a.ARN)
	s.look(k, "addon", a.ARN, addonTime)
	return &eks.CreateAddonOutput{Addon: k.sdkAddon(a)}, nil
}

// checkAddon checks configuration, roles and associations of an add-on.
func (s *eksService) checkAddon(c *reqCtx, k *EKSCluster, a *EKSAddon, associations []types.AddonPodIdentityAssociations) error {
	if err := checkConfiguration(k, a); err != nil {
		return err
	}
	if a.RoleARN != "" && s.cloud.platform.iam.roleByARN(a.RoleARN) == nil {
		return invalidParameter(k.Name, "The role %s of the service account does not exist", a.RoleARN)
	}
	if a.RoleARN != "" && len(associations) > 0 {
		return invalidParameter(k.Name, "Only one of serviceAccountRoleArn and podIdentityAssociations can be given.")
	}
	for _, p := range associations {
		if !slices.Contains(addonKinds[a.Name].accounts, deref(p.ServiceAccount)) {
			return invalidParameter(k.Name, "The service account %s is not one of the addon %s", deref(p.ServiceAccount), a.Name)
		}
		if err := s.checkPodRole(c, k, deref(p.RoleArn)); err != nil {
			return err
		}
		if old := k.podIdentity(a.Namespace, deref(p.ServiceAccount)); old != nil && !slices.Contains(a.Associations, old.ARN) {
			return inUse(k.Name, "Association already exists: %s", old.ID)
		}
	}
	return nil
}

// checkConfiguration refuses configuration values that are neither JSON nor YAML, or have keys that the add-on's schema does
// not know.
func checkConfiguration(k *EKSCluster, a *EKSAddon) error {
	if a.Config == "" {
		return nil
	}
	var doc map[string]any
	raw, err := yaml.YAMLToJSON([]byte(a.Config))
	if err == nil {
		err = json.Unmarshal(raw, &doc)
	}
	if err != nil {
		return invalidParameter(k.Name, "ConfigurationValue provided in request is not supported: the text is neither a JSON nor a YAML object")
	}
	var unknown []string
	for _, key := range sortedKeys(doc) {
		if _, ok := addonKinds[a.Name].properties()[key]; !ok {
			unknown = append(unknown, fmt.Sprintf(`"$.%s: is not defined in the schema and the schema does not allow additional properties"`, key))
		}
	}
	if len(unknown) > 0 {
		return invalidParameter(k.Name, "ConfigurationValue provided in request is not supported: Json schema validation failed with error: [%s]", strings.Join(unknown, ", "))
	}
	return nil
}

func (k *EKSCluster) sdkAddon(a *EKSAddon) *types.Addon {
	out := &types.Addon{AddonName: new(a.Name), AddonArn: new(a.ARN), ClusterName: new(k.Name), Status: types.AddonStatus(a.Status), AddonVersion: new(a.Version),
		CreatedAt: new(a.Created), ModifiedAt: new(a.Modified), Health: &types.AddonHealth{Issues: []types.AddonIssue{}}, Tags: copyTags(a.Tags),
		NamespaceConfig: &types.AddonNamespaceConfigResponse{Namespace: new(a.Namespace)}}
	if a.Config != "" {
		out.ConfigurationValues = new(a.Config)
	}
	if a.RoleARN != "" {
		out.ServiceAccountRoleArn = new(a.RoleARN)
	}
	if len(a.Associations) > 0 {
		out.PodIdentityAssociations = slices.Clone(a.Associations)
	}
	for _, i := range a.Issues {
		out.Health.Issues = append(out.Health.Issues, types.AddonIssue{Code: types.AddonIssueCode(i.Code), Message: new(i.Message), ResourceIds: i.Resources})
	}
	return out
}

func (s *eksService) describeAddon(c *reqCtx, in *eks.DescribeAddonInput) (*eks.DescribeAddonOutput, error) {
	k, a, err := s.addon(c, in.ClusterName, in.AddonName)
	if err != nil {
		return nil, err
	}
	return &eks.DescribeAddonOutput{Addon: k.sdkAddon(a)}, nil
}

func (s *eksService) listAddons(c *reqCtx, in *eks.ListAddonsInput) (*eks.ListAddonsOutput, error) {
	k, err := s.cluster(c, in.ClusterName)
	if err != nil {
		return nil, err
	}
	names := []string{}
	for _, name := range sortedKeys(k.Addons) {
		if a := k.Addons[name]; c.visible(a.ARN, a.Created, true, "addon", name, mapValues(a.Tags)) {
			names = append(names, name)
		}
	}
	page, next, err := eksPage(c, names, in.NextToken, in.MaxResults)
	return &eks.ListAddonsOutput{Addons: page, NextToken: next}, err
}

func (s *eksService) updateAddon(c *reqCtx, in *eks.UpdateAddonInput) (*eks.UpdateAddonOutput, error) {
	k, a, err := s.addon(c, in.ClusterName, in.AddonName)
	if err != nil {
		return nil, err
	}
	id, err := s.repeated(c, k.Name, in.ClientRequestToken, in)
	if err != nil {
		return nil, err
	}
	if old := k.Updates[id]; old != nil {
		return &eks.UpdateAddonOutput{Update: old.sdk()}, nil
	}
	if running := k.updating("", a.Name); running != nil || a.Status == "CREATING" || a.Status == "DELETING" {
		return nil, inUse(k.Name, "Addon %s cannot be updated as it is currently in %s state", a.Name, a.Status)
	}
	next := *a
	if next.Version, err = addonKinds[a.Name].version(k, orDefault(in.AddonVersion, a.Version)); err != nil {
		return nil, err
	}
	next.Config, next.RoleARN = orDefault(in.ConfigurationValues, a.Config), orDefault(in.ServiceAccountRoleArn, a.RoleARN)
	if err := s.checkAddon(c, k, &next, in.PodIdentityAssociations); err != nil {
		return nil, err
	}
	if in.PodIdentityAssociations != nil {
		next.Associations = s.replaceAssociations(k, &next, in.PodIdentityAssociations)
	}
	a.Status, a.Since, a.Held = "UPDATING", c.now, false
	u := s.begin(c, k, EKSUpdate{Type: "AddonUpdate", Addon: a.Name, Params: []EKSParam{{"AddonVersion", next.Version}, {"ResolveConflicts", orText(string(in.ResolveConflicts), "NONE")},
		{"ConfigurationValues", next.Config}}}, map[string]any{"Version": next.Version, "Config": next.Config, "RoleARN": next.RoleARN, "Associations": next.Associations}, addonUpdate)
	s.remember(c, k.Name, in.ClientRequestToken, in, u.ID)
	return &eks.UpdateAddonOutput{Update: u.sdk()}, nil
}

// replaceAssociations makes the associations of an add-on just these.
func (s *eksService) replaceAssociations(k *EKSCluster, a *EKSAddon, want []types.AddonPodIdentityAssociations) []string {
	out := []string{}
	for _, p := range want {
		old := k.podIdentity(a.Namespace, deref(p.ServiceAccount))
		if old == nil {
			old = s.addPodIdentity(k, a.Namespace, deref(p.ServiceAccount), deref(p.RoleArn))
			old.Owner, old.Service = a.ARN, true
		}
		old.Role = deref(p.RoleArn)
		out = append(out, old.ARN)
	}
	for id, p := range k.Associations {
		if p.Owner == a.ARN && !slices.Contains(out, p.ARN) {
			delete(k.Associations, id)
		}
	}
	return out
}

// deleteAddon takes an add-on away; with preserve its software stays in the cluster, no longer managed.
func (s *eksService) deleteAddon(c *reqCtx, in *eks.DeleteAddonInput) (*eks.DeleteAddonOutput, error) {
	k, a, err := s.addon(c, in.ClusterName, in.AddonName)
	if err != nil {
		return nil, err
	}
	if a.Status != "DELETING" {
		a.Status, a.Since, a.Modified, a.Held = "DELETING", c.now, c.now, false
		c.Make(a.ARN)
		s.look(k, "addon", a.ARN, addonGone)
	}
	return &eks.DeleteAddonOutput{Addon: k.sdkAddon(a)}, nil
}

// tickAddon lets an add-on take one look at itself: it is active once its pods run.
func (s *eksService) tickAddon(k *EKSCluster, a *EKSAddon) {
	now := s.cloud.World.Now()
	if a.Status == "DELETING" {
		if now.Sub(a.Since) < addonGone {
			s.look(k, "addon", a.ARN, addonTick)
			return
		}
		for id, p := range k.Associations {
			if p.Owner == a.ARN {
				delete(k.Associations, id)
			}
		}
		delete(k.Addons, a.Name)
		delete(s.in(k.scope()).Looks, a.ARN)
		return
	}
	if !a.Held && k.updating("", a.Name) == nil {
		status, issues := "ACTIVE", s.addonIssues(k, a)
		switch {
		case len(issues) == 0:
		case now.Sub(a.Since) < addonDoubt && (a.Status == "CREATING" || a.Status == "UPDATING"):
			status, issues = a.Status, []EKSIssue{}
		default:
			status = "DEGRADED"
		}
		if status != a.Status {
			a.Since = now
		}
		a.Status, a.Issues = status, issues
	}
	next := addonTick
	if a.Status == "ACTIVE" {
		next = time.Minute
	}
	s.look(k, "addon", a.ARN, next)
}

// addonIssues are why an add-on's pods do not run: a Deployment has no node to run on, or a controller has not the
// permissions without which it does not start.
func (s *eksService) addonIssues(k *EKSCluster, a *EKSAddon) []EKSIssue {
	kind, nodes := addonKinds[a.Name], 0
	for _, n := range k.Nodegroups {
		nodes += n.ready()
	}
	lacks := kind.action != "" && !s.addonPermits(k, a, kind.action) && !s.nodesPermit(k, kind.action)
	if kind.deployment && nodes == 0 || kind.needsRole && lacks {
		return []EKSIssue{{Code: "InsufficientNumberOfReplicas", Message: "The add-on is unhealthy because it doesn't have the desired number of replicas.", Resources: []string{}}}
	}
	return []EKSIssue{}
}

// nodesPermit says whether the nodes' own role allows an action, which pods fall back to where the metadata service lets
// them.
func (s *eksService) nodesPermit(k *EKSCluster, action string) bool {
	for _, n := range k.Nodegroups {
		if s.cloud.platform.iam.permits(k.Account, n.RoleARN, action) {
			return true
		}
	}
	return false
}

// addonPermits says whether an add-on's own role allows an action: by Pod Identity, whose agent must be there, or by the
// cluster's OpenID Connect provider, which must be there too and be trusted by the role.
func (s *eksService) addonPermits(k *EKSCluster, a *EKSAddon, action string) bool {
	iam := s.cloud.platform.iam
	if a.RoleARN != "" {
		provider := arn("iam", "", k.Account, "oidc-provider/"+strings.TrimPrefix(k.issuer(), "https://"))
		r := iam.roleByARN(a.RoleARN)
		return r != nil && iam.state.account(k.Account).providers()[provider] != nil && r.trustsFederated(provider) && iam.permits(k.Account, a.RoleARN, action)
	}
	if agent := k.Addons["eks-pod-identity-agent"]; agent == nil || agent.Status == "CREATE_FAILED" {
		return false
	}
	for _, account := range addonKinds[a.Name].accounts {
		if p := k.podIdentity(a.Namespace, account); p != nil && iam.permits(k.Account, p.Role, action) {
			return true
		}
	}
	return false
}
