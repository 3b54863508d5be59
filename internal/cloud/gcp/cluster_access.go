package gcp

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	cloudresourcemanager "google.golang.org/api/cloudresourcemanager/v3"
	"google.golang.org/api/container/v1"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// clusterNamed is the ID of a cluster of the region that is named by its name, its
// path or its URL.
func (p *Provider) clusterNamed(ref job.ClusterRef) string {
	if strings.Contains(ref.Name, "/") {
		return rel(ref.Name)
	}
	return "projects/" + p.project + "/locations/" + or(ref.Region, p.region) + "/clusters/" + ref.Name
}

// KubeAccess is how the API server of a cluster is reached: by its DNS endpoint,
// which has a certificate of a public authority, or by an IP address, whose
// certificate the cluster's own authority signed.
func (p *Provider) KubeAccess(ctx context.Context, ref job.ClusterRef) (cloud.KubeAccess, error) {
	id := p.clusterNamed(ref)
	c, err := send(ctx, p.container.Projects.Locations.Clusters.Get(id))
	if err != nil {
		return cloud.KubeAccess{}, err
	}
	access := cloud.KubeAccess{Server: p.endpointOf(c), Token: p.accessToken}
	switch {
	case access.Server == "":
		return access, unreachable(c)
	case access.Server == "https://"+dnsEndpoint(c):
		access.Roots = p.roots
		return access, nil
	}
	if c.MasterAuth != nil {
		access.CA, err = base64.StdEncoding.DecodeString(c.MasterAuth.ClusterCaCertificate)
	}
	if err != nil || len(access.CA) == 0 {
		return access, fmt.Errorf("cluster %s shows no certificate of its authority that can be read", c.Name)
	}
	return access, nil
}

// accessToken is a token of the account's credentials: GKE takes it as it is.
func (p *Provider) accessToken(ctx context.Context) (string, error) {
	if p.config.Token == nil {
		return "", fmt.Errorf("no credentials are configured for project %s", p.project)
	}
	token, err := p.config.Token(ctx)
	if err != nil {
		return "", &pipeline.CloudError{Class: pipeline.Expired, Service: serviceContainer, Op: "token", Message: "the credentials give no token: " + err.Error(), Err: err}
	}
	return token, nil
}

// endpointOf is the URL at which this provisioner reaches a cluster: from inside
// by its internal address, from anywhere by its DNS endpoint if that is open to
// users, or else by an external address; "" if nothing leads there.
func (p *Provider) endpointOf(c *container.Cluster) string {
	var private, public string
	if e := c.ControlPlaneEndpointsConfig; e != nil && e.IpEndpointsConfig != nil && e.IpEndpointsConfig.Enabled {
		private = e.IpEndpointsConfig.PrivateEndpoint
		if e.IpEndpointsConfig.EnablePublicEndpoint {
			public = or(e.IpEndpointsConfig.PublicEndpoint, c.Endpoint)
		}
	}
	host := or(dnsEndpoint(c), public)
	if p.reach.Mode == job.ReachDirect {
		host = or(private, host)
	}
	if host == "" {
		return ""
	}
	return "https://" + host
}

// dnsEndpoint is a cluster's DNS name if users may come by it.
func dnsEndpoint(c *container.Cluster) string {
	if e := c.ControlPlaneEndpointsConfig; e != nil && e.DnsEndpointConfig != nil && e.DnsEndpointConfig.AllowExternalTraffic {
		return e.DnsEndpointConfig.Endpoint
	}
	return ""
}

func unreachable(c *container.Cluster) *pipeline.FatalError {
	return pipeline.Fatal("unreachable",
		fmt.Sprintf("the control plane of cluster %s is reached from inside its network alone, and this provisioner is not there", c.Name),
		fmt.Sprintf("Open its DNS endpoint, which asks IAM about everybody (gcloud container clusters update %s --location %s --enable-dns-access), or run the provisioner inside and start it with --reach direct.", c.Name, c.Location))
}

// accessRoles are the roles that let somebody use what is in a cluster ("GKE
// roles").
var accessRoles = map[cloud.AccessLevel]string{
	cloud.AccessAdmin: "roles/container.admin",
	cloud.AccessEdit:  "roles/container.developer",
	cloud.AccessView:  "roles/container.viewer",
}

// GrantAccess gives a principal a role of the project that holds for the one
// cluster alone. A principal has one level: an earlier one is taken back. The
// provisioner itself is let in by its own roles, and is only checked.
func (p *Provider) GrantAccess(ctx context.Context, ref job.ClusterRef, g cloud.AccessGrant) error {
	id := p.clusterNamed(ref)
	role, ok := accessRoles[g.Level]
	if !ok {
		return pipeline.Fatal("invalid", fmt.Sprintf("%q is not a level of access", g.Level), "Use admin, edit or view.").On("level")
	}
	if _, err := send(ctx, p.container.Projects.Locations.Clusters.Get(id)); err != nil {
		return err
	}
	if g.Principal == "" {
		return p.ownAccess(ctx, g.Level)
	}
	if err := namesSomebody(g.Principal); err != nil {
		return err
	}
	return explained(p.changePolicy(ctx, func(policy *cloudresourcemanager.Policy) bool {
		changed := false
		for level := range accessRoles {
			if level != g.Level {
				changed = revoke(policy, projectGrant{role: accessRoles[level], member: g.Principal, cluster: id}) || changed
			}
		}
		return grant(policy, projectGrant{role: role, member: g.Principal, cluster: id}) || changed
	}))
}

// RevokeAccess takes back what GrantAccess gave for a cluster, which need not be
// there any more. What lets the principal in by other ways stays.
func (p *Provider) RevokeAccess(ctx context.Context, ref job.ClusterRef, principal string) error {
	id := p.clusterNamed(ref)
	if principal == "" {
		return pipeline.Fatal("invalid", "the provisioner gets into clusters by the roles of its own account in project "+p.project+": there is no access of one cluster to take back",
			"Name the principal, or take those roles from the account at Google Cloud.").On("principal")
	}
	return explained(p.changePolicy(ctx, func(policy *cloudresourcemanager.Policy) bool {
		changed := false
		for _, role := range accessRoles {
			changed = revoke(policy, projectGrant{role: role, member: principal, cluster: id}) || changed
		}
		return changed
	}))
}

// revokeAll takes back everybody's access to a cluster that is gone: a namesake
// would be open to them.
func (p *Provider) revokeAll(ctx context.Context, r *pipeline.Run, id string) error {
	condition := onlyCluster(id)
	of := func(b *cloudresourcemanager.Binding) bool {
		return b.Condition != nil && b.Condition.Expression == condition
	}
	policy, err := lookup.Once(ctx, "policy of the project", p.readPolicy)
	if err != nil {
		return pipeline.Unless(err, pipeline.Denied)
	}
	var members []string
	for _, b := range policy.Bindings {
		if of(b) {
			members = append(members, b.Members...)
		}
	}
	if len(members) == 0 {
		return nil
	}
	if err := p.changePolicy(ctx, func(policy *cloudresourcemanager.Policy) bool {
		had := len(policy.Bindings)
		policy.Bindings = slices.DeleteFunc(policy.Bindings, of)
		return len(policy.Bindings) < had
	}); err != nil {
		return explained(err)
	}
	return r.Event(ctx, "access.revoked", "access to cluster %s was taken back from %s", base(id), agreed(members))
}

// namesSomebody refuses what is no member of a policy, and everybody.
func namesSomebody(principal string) error {
	kind, name, ok := strings.Cut(principal, ":")
	known := []string{"user", "group", "serviceAccount", "domain", "principal", "principalSet"}
	if !ok || name == "" || !slices.Contains(known, kind) {
		return pipeline.Fatal("invalid", fmt.Sprintf("%.80q does not name anybody at Google Cloud", principal),
			"Use one such as user:ann@example.com, group:platform@example.com or serviceAccount:ci@project.iam.gserviceaccount.com.").On("principal")
	}
	return nil
}

// ownAccess proves that the provisioner's own roles let it do what a level stands for.
func (p *Provider) ownAccess(ctx context.Context, level cloud.AccessLevel) error {
	want := []string{"container.pods.get", "container.pods.list"}
	if level != cloud.AccessView {
		want = append(want, "container.deployments.create", "container.secrets.create")
	}
	if level == cloud.AccessAdmin {
		want = append(want, "container.clusterRoles.bind", "container.customResourceDefinitions.create")
	}
	out, err := send(ctx, p.crm.Projects.TestIamPermissions("projects/"+p.project, &cloudresourcemanager.TestIamPermissionsRequest{Permissions: want}))
	if err != nil {
		return err
	}
	missing := slices.DeleteFunc(want, func(w string) bool { return slices.Contains(out.Permissions, w) })
	if len(missing) > 0 {
		return pipeline.Fatal("permission-denied", fmt.Sprintf("the credentials of this cloud account lack, in project %s: %s", p.project, strings.Join(missing, ", ")),
			"Grant them "+accessRoles[level]+", then retry.")
	}
	return nil
}
