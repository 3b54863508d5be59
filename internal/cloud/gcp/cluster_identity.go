package gcp

import (
	"context"

	"github.com/zopday/provisioner/internal/pipeline"
)

// The roles of the nodes' account: what GKE needs of a node, and to pull images
// from the project's registries ("Use least privilege service accounts").
const (
	nodeRole     = "roles/container.defaultNodeServiceAccount"
	registryRole = "roles/artifactregistry.reader"
)

// nodeGrants are the roles of the nodes' account.
func (p *Provider) nodeGrants(r *pipeline.Run) []projectGrant {
	member := "serviceAccount:" + p.accountEmail(r)
	return []projectGrant{
		{key: "nodes", role: nodeRole, member: member},
		{key: "nodes-registry", role: registryRole, member: member},
	}
}

// ensureClusterIdentity makes the account that the nodes run as, with its roles,
// and the key that encrypts the cluster's secrets, which GKE's own account may
// use. The control plane runs as an account of Google's.
func (p *Provider) ensureClusterIdentity(ctx context.Context, r *pipeline.Run) error {
	info := &r.Job.Config.InfraConfig.Cluster
	key := p.secretsKey(r)
	err := pipeline.All(ctx,
		func(ctx context.Context) error {
			_, err := p.ensure(ctx, r, p.serviceAccount(r))
			return err
		},
		func(ctx context.Context) error {
			if err := p.ensureKeyRing(ctx, r); err != nil {
				return err
			}
			_, err := r.Ensure(ctx, key.resource())
			return explained(err)
		})
	if err != nil {
		return err
	}
	learn(r, &info.NodeRoleID, p.accountEmail(r))
	learn(r, &info.KMSKeyID, key.id)
	// One after another: each rewrites the project's policy.
	for _, g := range p.nodeGrants(r) {
		if _, err := p.ensure(ctx, r, p.binding(r, g)); err != nil {
			return visible(r, "the roles of the nodes' account", err)
		}
	}
	agent, err := p.keyAgent(ctx, r)
	if err != nil {
		return err
	}
	if _, err := r.Ensure(ctx, key.grant(agent)); err != nil {
		return visible(r, "the account of Kubernetes Engine, "+agent, explained(err))
	}
	return r.Save(ctx)
}

// removeClusterIdentity takes the roles from the account and deletes it, and
// schedules the key's destruction.
func (p *Provider) removeClusterIdentity(ctx context.Context, r *pipeline.Run) error {
	key := p.secretsKey(r)
	return pipeline.All(ctx,
		func(ctx context.Context) error {
			for _, g := range p.nodeGrants(r) {
				if err := r.Remove(ctx, p.binding(r, g)); err != nil {
					return err
				}
			}
			return r.Remove(ctx, p.serviceAccount(r))
		},
		func(ctx context.Context) error {
			agent, err := p.keyAgent(ctx, r)
			if err != nil {
				return err
			}
			if err := r.Remove(ctx, key.grant(agent)); err != nil {
				return err
			}
			return r.Remove(ctx, key.resource())
		})
}

// keyAgent is the member of policies that GKE's own account in the project is
// ("Encrypt secrets at the application layer").
func (p *Provider) keyAgent(ctx context.Context, r *pipeline.Run) (string, error) {
	if r.Mode == pipeline.Plan {
		return "serviceAccount of Kubernetes Engine", nil
	}
	number, err := p.projectNumber(ctx, p.project)
	if err != nil {
		return "", err
	}
	return "serviceAccount:service-" + number + "@container-engine-robot.iam.gserviceaccount.com", nil
}
