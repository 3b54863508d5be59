package cloud

import (
	"context"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// ClusterFamily is what cluster jobs ask of a cloud, beside Checker, Network,
// Identity and Auditor, which branch on the job's resource type.
//
// Identity makes, for a cluster, what the control plane and the nodes run as,
// the key that encrypts the cluster's secrets, and where its logs go.
type ClusterFamily interface {
	// EnsureCluster makes the cluster, its add-ons, its node pools and who may
	// administer it, as hardened as hardening asks by default, and fills
	// InfraConfig.Cluster. Done when the control plane is active and every pool
	// has its nodes, as the cloud sees it.
	EnsureCluster(ctx context.Context, r *pipeline.Run) error

	// RemoveCluster removes the pools (those that somebody added to a cluster of
	// ours too), the add-ons and the cluster, failed or not; then what its
	// controllers made outside of it and left behind: load balancers, disks,
	// firewall rules, security groups, network interfaces, found by the cluster's
	// own marks. A cluster that is already gone does not end the sweep.
	RemoveCluster(ctx context.Context, r *pipeline.Run) error

	// AdoptCluster reads the cluster that an adopt job points at into
	// InfraConfig.Cluster, with risk notes. It only reads.
	AdoptCluster(ctx context.Context, r *pipeline.Run) error

	// KubeAccess is how the API server of a cluster is reached. It reads the
	// cluster; the error has class NotFound if there is none.
	KubeAccess(ctx context.Context, ref job.ClusterRef) (KubeAccess, error)

	// GrantAccess lets a principal administer, edit or view what is in a cluster;
	// RevokeAccess takes that back. Both may be repeated.
	GrantAccess(ctx context.Context, ref job.ClusterRef, g AccessGrant) error
	RevokeAccess(ctx context.Context, ref job.ClusterRef, principal string) error
}

// A RemovalGuard is a cloud where something can stand in the way of a teardown
// that has to be known before its first deletion: Azure's locks, which half a
// teardown runs into (failure kind E19); the protection and the read replicas that
// somebody else has given a datastore.
type RemovalGuard interface {
	// Removable names what is in the way; it only reads.
	Removable(ctx context.Context, r *pipeline.Run) error
}

// KubeAccess is how an API server is reached.
type KubeAccess struct {
	Server string // https URL
	CA     []byte // PEM; nil: the system's roots
	// Roots are trusted besides the system's when CA is nil, PEM: the simulation's.
	Roots []byte
	// Token mints a credential of the cloud's own kind. It is asked before every
	// request, so that none goes stale in the middle of a step; an implementation
	// may keep one for a part of its life. It is never stored.
	Token func(ctx context.Context) (string, error)
}

// An AccessGrant lets somebody use a cluster.
type AccessGrant struct {
	// Principal is the cloud's name of who is let in; empty is the provisioner itself.
	Principal string
	Level     AccessLevel
}

// AccessLevel is how much somebody may do in a cluster.
type AccessLevel string

// The levels.
const (
	AccessAdmin AccessLevel = "admin"
	AccessEdit  AccessLevel = "edit"
	AccessView  AccessLevel = "view"
)
