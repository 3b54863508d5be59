package azure

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/authorization/armauthorization/v2"
	aks "github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/containerservice/armcontainerservice/v9"
	"github.com/google/uuid"
	"sigs.k8s.io/yaml"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// clusterScope is whom a token for the API server of any AKS cluster is for: the
// one application that all of them are in every directory ("kubelogin
// authentication in AKS").
const clusterScope = "6dae42f8-4368-4678-94ff-3960e28e3630/.default"

// authority is how the directory is called in errors.
const authority = "Microsoft Entra ID"

// token is a token of the account's credentials. The credentials keep it for most
// of its life.
func (p *Provider) token(ctx context.Context, scope string) (string, error) {
	t, err := p.credential.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{scope}})
	if err == nil {
		return t.Token, nil
	}
	ce := &pipeline.CloudError{Class: pipeline.Expired, Service: authority, Op: "token", Message: unauthenticated(err), Err: err}
	switch {
	case errors.Is(err, context.Canceled), isTimeout(err), isTransport(err):
		ce.Class = pipeline.Unavailable
	default:
		p.refused.Store(true)
	}
	return "", ce
}

// A principal is who somebody is in the directory.
type principal struct {
	id     string
	kind   armauthorization.PrincipalType
	tenant string
	name   string // as the directory calls it, as far as the token says
}

// whoami is the caller, as its own token has it.
func (p *Provider) whoami(ctx context.Context) (principal, error) {
	t, err := p.token(ctx, p.audience+"/.default")
	if err != nil {
		return principal{}, err
	}
	var claims struct {
		ObjectID string `json:"oid"`
		Kind     string `json:"idtyp"`
		Scopes   string `json:"scp"` // there are some in the token of a person alone
		Tenant   string `json:"tid"`
		App      string `json:"app_displayname"`
		User     string `json:"upn"`
		AppID    string `json:"appid"`
	}
	parts := strings.Split(t, ".")
	unread := pipeline.Fatal("unknown-caller", "the token of these credentials does not say who they are, so the provisioner cannot be let into the cluster",
		"Use the credentials of a service principal, a managed identity or a user, then retry.")
	if len(parts) != 3 {
		return principal{}, unread
	}
	text, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(parts[1], "="))
	if err != nil || json.Unmarshal(text, &claims) != nil || claims.ObjectID == "" {
		return principal{}, unread
	}
	out := principal{
		id: strings.ToLower(claims.ObjectID), kind: armauthorization.PrincipalTypeServicePrincipal,
		tenant: claims.Tenant, name: cmp.Or(claims.User, claims.App, claims.AppID, claims.ObjectID),
	}
	if claims.Scopes != "" || claims.Kind == "user" {
		out.kind = armauthorization.PrincipalTypeUser
	}
	return out, nil
}

// accessRoles are who administers the job's cluster: the provisioner, and whom the
// spec names.
func (p *Provider) accessRoles(ctx context.Context, r *pipeline.Run, spec job.ClusterSpec) ([]roleGrant, error) {
	me := principal{kind: armauthorization.PrincipalTypeServicePrincipal}
	if r.Mode != pipeline.Plan && !r.Down {
		var err error
		if me, err = p.whoami(ctx); err != nil {
			return nil, err
		}
	}
	out := []roleGrant{{key: "access-provisioner", scope: p.clusterID(r), role: roleAdmin, principal: me.id, kind: me.kind}}
	for _, id := range spec.Admins {
		if id = strings.ToLower(id); id != me.id {
			out = append(out, roleGrant{key: "access-" + id, scope: p.clusterID(r), role: roleAdmin, principal: id, kind: armauthorization.PrincipalTypeGroup})
		}
	}
	return out, nil
}

// clusterNamed is the ID of a cluster by its name: in the group that is given, or
// else wherever in the subscription and the region there is one of that name.
func (p *Provider) clusterNamed(ctx context.Context, called, group string) (string, error) {
	switch {
	case strings.HasPrefix(called, managementPrefix):
		return called, nil
	case group != "":
		return p.groupID(group) + "/providers/" + typeCluster + "/" + called, nil
	}
	all, err := list[meta](ctx, p, managementPrefix+p.subscription+"/providers/"+typeCluster)
	if err != nil {
		return "", err
	}
	var ids []string
	for _, c := range all {
		if same(c.Name, called) && regionName(c.Location) == regionName(p.region) {
			ids = append(ids, c.ID)
		}
	}
	switch len(ids) {
	case 0:
		return "", absent("Microsoft.ContainerService", "managedClusters/read", "cluster "+called+" in "+p.region)
	case 1:
		return ids[0], nil
	}
	return "", pipeline.Fatal("ambiguous", fmt.Sprintf("there are %d clusters named %s in %s: %s", len(ids), called, p.region, strings.Join(ids, ", ")),
		"Name one by its resource ID, then retry.")
}

// A kubeconfig is as much of one as its API server and its CA need.
type kubeconfig struct {
	Clusters []struct {
		Cluster struct {
			Server string `json:"server"`
			CA     []byte `json:"certificate-authority-data"`
		} `json:"cluster"`
	} `json:"clusters"`
	Users []struct {
		User struct {
			Token string `json:"token"`
		} `json:"user"`
	} `json:"users"`
}

// KubeAccess is how the API server of a cluster is reached: the address and CA
// that the cloud hands out, and a token of the directory. A cluster that does not
// use the directory hands out a token of its own.
func (p *Provider) KubeAccess(ctx context.Context, ref job.ClusterRef) (cloud.KubeAccess, error) {
	id, err := p.clusterNamed(ctx, ref.Name, ref.ResourceGroup)
	if err != nil {
		return cloud.KubeAccess{}, err
	}
	x, err := read[aks.ManagedCluster](ctx, p, id)
	if err != nil {
		return cloud.KubeAccess{}, err
	}
	path := id + "/listClusterUserCredential"
	if a := value(value(x.is.Properties).APIServerAccessProfile); value(a.EnablePrivateCluster) && value(a.EnablePrivateClusterPublicFQDN) {
		path += "?server-fqdn=public" // the name that is found from everywhere, with the private address
	}
	answer, err := p.request(ctx, http.MethodPost, path, nil, nil)
	if err != nil {
		return cloud.KubeAccess{}, err
	}
	var creds aks.CredentialResults
	if err := answer.into(&creds); err != nil {
		return cloud.KubeAccess{}, err
	}
	var config kubeconfig
	for _, c := range creds.Kubeconfigs {
		if yaml.Unmarshal(value(c).Value, &config) == nil && len(config.Clusters) > 0 {
			break
		}
	}
	if len(config.Clusters) == 0 || config.Clusters[0].Cluster.Server == "" {
		return cloud.KubeAccess{}, &pipeline.CloudError{Class: pipeline.Unavailable, Service: "Microsoft.ContainerService", Op: "managedClusters/listClusterUserCredential/action",
			Message: "the answer names no API server", Sent: true}
	}
	out := cloud.KubeAccess{Server: config.Clusters[0].Cluster.Server, CA: config.Clusters[0].Cluster.CA}
	out.Token = func(ctx context.Context) (string, error) { return p.token(ctx, clusterScope) }
	if aad := value(x.is.Properties).AADProfile; aad == nil && len(config.Users) > 0 && config.Users[0].User.Token != "" {
		static := config.Users[0].User.Token
		out.Token = func(context.Context) (string, error) { return static, nil }
	}
	return out, nil
}

// levelRoles are the roles of the levels of access, all of them in all namespaces
// ("Use Azure RBAC for Kubernetes authorization").
var levelRoles = map[cloud.AccessLevel]string{cloud.AccessAdmin: roleAdmin, cloud.AccessEdit: roleWriter, cloud.AccessView: roleReader}

// granted is the ID of the assignment that lets a principal into a cluster at a
// level: the same whenever it is asked for.
func granted(cluster, principal string, level cloud.AccessLevel) string {
	name := uuid.NewSHA1(uuid.NameSpaceURL, []byte(strings.ToLower(cluster+"/"+principal+"/"+string(level)))).String()
	return cluster + "/providers/" + typeRole + "/" + name
}

// GrantAccess lets somebody of the directory into a cluster, by a role on it.
// Another level that was granted so is taken back.
func (p *Provider) GrantAccess(ctx context.Context, ref job.ClusterRef, g cloud.AccessGrant) error {
	role, ok := levelRoles[g.Level]
	if !ok {
		return pipeline.Fatal("invalid", fmt.Sprintf("%q is not a level of access", g.Level), "Use admin, edit or view.")
	}
	id, x, err := p.clusterWithRoles(ctx, ref)
	if err != nil {
		return err
	}
	who := principal{id: g.Principal} // a person, a group or an application: the directory knows
	if who.id == "" {
		if who, err = p.whoami(ctx); err != nil {
			return err
		}
	}
	at := granted(id, who.id, g.Level)
	if _, err := read[struct{}](ctx, p, at); pipeline.Is(err, pipeline.NotFound) {
		a := p.assignment(roleGrant{role: role, principal: who.id, kind: who.kind}, "Granted through ZopDay on cluster "+x.Name)
		// Somebody may have given the same role under another name.
		if _, _, err := put[struct{}](ctx, p, at, a, nil); pipeline.Unless(err, pipeline.Exists) != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	return p.revoke(ctx, id, who.id, g.Level)
}

// RevokeAccess takes back what GrantAccess gave; what somebody else gave stays.
func (p *Provider) RevokeAccess(ctx context.Context, ref job.ClusterRef, who string) error {
	id, err := p.clusterNamed(ctx, ref.Name, ref.ResourceGroup)
	if err != nil {
		return err
	}
	if who == "" {
		me, err := p.whoami(ctx)
		if err != nil {
			return err
		}
		who = me.id
	}
	return p.revoke(ctx, id, who, "")
}

// revoke takes back every level but one.
func (p *Provider) revoke(ctx context.Context, cluster, who string, but cloud.AccessLevel) error {
	for _, level := range []cloud.AccessLevel{cloud.AccessAdmin, cloud.AccessEdit, cloud.AccessView} {
		if level == but {
			continue
		}
		if _, err := p.remove(ctx, granted(cluster, who, level)); pipeline.Unless(err, pipeline.NotFound) != nil {
			return err
		}
	}
	return nil
}

// clusterWithRoles reads a cluster in which roles of the cloud count.
func (p *Provider) clusterWithRoles(ctx context.Context, ref job.ClusterRef) (string, resource[aks.ManagedCluster], error) {
	id, err := p.clusterNamed(ctx, ref.Name, ref.ResourceGroup)
	if err != nil {
		return "", resource[aks.ManagedCluster]{}, err
	}
	x, err := read[aks.ManagedCluster](ctx, p, id)
	if err != nil {
		return id, x, err
	}
	if entraOf(x.is) != entraWithRoles {
		return id, x, pipeline.Fatal("no-azure-rbac", fmt.Sprintf("cluster %s does not go by Azure's roles (Entra ID: %s), so access cannot be given through them", x.Name, entraOf(x.is)),
			"Turn Azure RBAC on for it (az aks update --enable-aad --enable-azure-rbac), or give access inside of the cluster.")
	}
	return id, x, nil
}
