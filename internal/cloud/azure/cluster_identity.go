package azure

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/authorization/armauthorization/v2"
	aks "github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/containerservice/armcontainerservice/v9"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/msi/armmsi"
	"github.com/google/uuid"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// The built-in roles that a cluster job assigns ("Azure built-in roles").
const (
	roleNetwork  = "4d97b98b-1d4f-4787-a291-c67834d212e7" // Network Contributor
	roleIdentity = "f1a07417-d97a-45cb-824c-7a7467783830" // Managed Identity Operator
	roleAdmin    = "b1ff04bb-8a4e-4dc4-8eb5-8693973ce19b" // Azure Kubernetes Service RBAC Cluster Admin
	roleWriter   = "a7ffa36f-339b-4b5c-8bdf-e2c188b2c0eb" // Azure Kubernetes Service RBAC Writer
	roleReader   = "7f6c6a51-bcf8-42ba-9220-52d62157d7db" // Azure Kubernetes Service RBAC Reader
	rolePull     = "7f951dda-4ed3-4680-a7ca-43fe172d538d" // AcrPull
)

// What a cluster acts as: the control plane joins load balancers and nodes to the
// subnets, and gives the nodes their identity, which has no role at all ("Use a
// managed identity in AKS").
const (
	controlPlane = "control-plane"
	kubelet      = "kubelet"
)

// ensureClusterIdentity makes both identities, the control plane's roles, and the
// workspace of the audit log.
func (p *Provider) ensureClusterIdentity(ctx context.Context, r *pipeline.Run) error {
	own, nodes, logs := p.identityNamed(r, controlPlane), p.identityNamed(r, kubelet), p.workspace(r)
	var parts []func(context.Context) error
	for _, x := range []pipeline.Resource{own.resource(), nodes.resource(), logs.resource()} {
		parts = append(parts, func(ctx context.Context) error {
			_, err := r.Ensure(ctx, x)
			return err
		})
	}
	if err := pipeline.All(ctx, parts...); err != nil {
		return err
	}
	info := &r.Job.Config.InfraConfig.Cluster
	learn(r, &info.RoleID, own.id)
	learn(r, &info.NodeRoleID, nodes.id)
	learn(r, &info.LogGroup, logs.id)
	principal := ""
	if r.Mode != pipeline.Plan {
		x, err := read[armmsi.Identity](ctx, p, own.id)
		if err != nil {
			return pipeline.Unseen(err, "the identity of the control plane")
		}
		if principal = value(value(x.is.Properties).PrincipalID); principal == "" {
			return pipeline.Wait(settling, "the identity of the control plane to have a principal")
		}
	}
	parts = nil
	for _, g := range p.controlPlaneRoles(r) {
		g.principal = principal
		parts = append(parts, func(ctx context.Context) error {
			_, err := r.Ensure(ctx, p.role(r, g).resource())
			return err
		})
	}
	return pipeline.All(ctx, parts...)
}

// removeClusterIdentity takes the roles away, and then what has them.
func (p *Provider) removeClusterIdentity(ctx context.Context, r *pipeline.Run) error {
	var parts []func(context.Context) error
	for _, g := range p.controlPlaneRoles(r) {
		parts = append(parts, func(ctx context.Context) error { return r.Remove(ctx, p.role(r, g).resource()) })
	}
	if err := pipeline.All(ctx, parts...); err != nil {
		return err
	}
	return pipeline.All(ctx,
		func(ctx context.Context) error { return r.Remove(ctx, p.identityNamed(r, controlPlane).resource()) },
		func(ctx context.Context) error { return r.Remove(ctx, p.identityNamed(r, kubelet).resource()) },
		func(ctx context.Context) error { return r.Remove(ctx, p.workspace(r).resource()) })
}

// kubeletProfile is the nodes' identity as a cluster's create takes it.
func (p *Provider) kubeletProfile(ctx context.Context, r *pipeline.Run) (aks.UserAssignedIdentity, error) {
	id := p.identityNamed(r, kubelet).id
	if r.Mode != pipeline.Apply || r.Down {
		return aks.UserAssignedIdentity{ResourceID: &id}, nil
	}
	x, err := read[armmsi.Identity](ctx, p, id)
	if err != nil {
		return aks.UserAssignedIdentity{}, pipeline.Unseen(err, "the identity of the nodes")
	}
	f := value(x.is.Properties)
	return aks.UserAssignedIdentity{ResourceID: &id, ClientID: f.ClientID, ObjectID: f.PrincipalID}, nil
}

// A roleGrant is a role for a principal at a scope.
type roleGrant struct {
	key, scope, role, principal string
	kind                        armauthorization.PrincipalType // "": the directory is asked
}

// controlPlaneRoles are what the control plane may do.
func (p *Provider) controlPlaneRoles(r *pipeline.Run) []roleGrant {
	out := []roleGrant{{key: "assign-kubelet", scope: p.identityNamed(r, kubelet).id, role: roleIdentity, kind: armauthorization.PrincipalTypeServicePrincipal}}
	for i, subnet := range r.Job.Config.InfraConfig.PrivateSubnetIDs {
		out = append(out, roleGrant{key: fmt.Sprintf("subnet-%d", i+1), scope: subnet, role: roleNetwork, kind: armauthorization.PrincipalTypeServicePrincipal})
	}
	return out
}

// roleDefinition is a built-in role's ID.
func (p *Provider) roleDefinition(guid string) string {
	return managementPrefix + p.subscription + "/providers/Microsoft.Authorization/roleDefinitions/" + guid
}

// role is one role assignment. Its name is a GUID, the same for the job's object
// whenever it is asked for; the marks stand in its description.
func (p *Provider) role(r *pipeline.Run, g roleGrant) object[armauthorization.RoleAssignment] {
	name := uuid.NewSHA1(uuid.NameSpaceURL, []byte(r.Job.ID+"/"+g.key)).String()
	id := g.scope + "/providers/" + typeRole + "/" + name
	return object[armauthorization.RoleAssignment]{
		p: p, r: r, kind: kindRole, key: g.key, id: id,
		body: func() any { return p.assignment(g, r.Job.MarkText(g.key)) },
		owner: func(_ context.Context, x resource[armauthorization.RoleAssignment]) (string, error) {
			return cmp.Or(job.ParseMarks(value(value(x.is.Properties).Description))[job.MarkOwner], pipeline.Unmarked), nil
		},
		state: func(resource[armauthorization.RoleAssignment]) (pipeline.Status, string) { return pipeline.Ready, "" },
		see: func(_ context.Context, x resource[armauthorization.RoleAssignment]) ([]pipeline.Aspect, error) {
			f := value(x.is.Properties)
			again := func(ctx context.Context) error {
				// Neither can be changed: it is made again once it is gone.
				if _, err := p.remove(ctx, id); err != nil {
					return err
				}
				return changed(r, "role assignment "+g.key)
			}
			return []pipeline.Aspect{
				{Name: "principal", Wanted: strings.ToLower(g.principal), Seen: strings.ToLower(value(f.PrincipalID)), Set: again},
				{Name: "role", Wanted: g.role, Seen: strings.ToLower(lastName(value(f.RoleDefinitionID))), Set: again},
			}, nil
		},
	}
}

func (p *Provider) assignment(g roleGrant, description string) armauthorization.RoleAssignmentCreateParameters {
	f := &armauthorization.RoleAssignmentProperties{PrincipalID: &g.principal, RoleDefinitionID: new(p.roleDefinition(g.role)), Description: &description}
	if g.kind != "" {
		f.PrincipalType = &g.kind
	}
	return armauthorization.RoleAssignmentCreateParameters{Properties: f}
}
