package gcp

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/api/container/v1"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// A clusterChecker asks what a cluster job's own steps depend on, beside its
// network, and leaves in InfraConfig.Cluster what it resolved.
type clusterChecker struct {
	*checker
	spec job.ClusterSpec
	info *job.ClusterInfo

	vcpus map[string]float64 // of each pool's machines
}

// forCluster checks a cluster job.
func (c *checker) forCluster(ctx context.Context) error {
	spec, err := c.r.Job.ClusterSpec()
	if err != nil {
		c.fails("request", "config.spec", err.Error(), "Put the request right.")
		return nil
	}
	k := &clusterChecker{checker: c, spec: spec, info: &c.ic.Cluster, vcpus: map[string]float64{}}
	if c.r.Job.Mode == job.ModeAdopt {
		return k.adopt(ctx)
	}
	c.labels()
	c.shortName()
	c.names("", "private", "router", "nat", "nat-address", "firewall-deny", secretsKeyKey)
	if err := c.place(ctx); err != nil {
		return err
	}
	k.endpoint()
	if err := c.side(ctx, k.version, k.pools); err != nil {
		return err
	}
	parts := []func(context.Context) error{k.access, k.limits}
	if c.r.Job.Mode == job.ModeCreate {
		parts = append(parts, k.plan, c.quotas)
	} else {
		parts = append(parts, k.named)
	}
	return c.side(ctx, parts...)
}

// settled reports whether what was resolved has been used: it stays then.
func (k *clusterChecker) settled() bool {
	_, begun := k.r.Object(kindCluster, clusterKey)
	return k.r.Mode == pipeline.Verify || begun && made(k.r, kindCluster, clusterKey)
}

// endpoint settles who gets to the control plane. At Google Cloud every reach gets
// there: inside by the internal address, and else by the DNS endpoint, where IAM
// lets in whoever has a role and no range is needed.
func (k *clusterChecker) endpoint() {
	const check = "endpoint"
	if k.r.Mode != pipeline.Verify {
		k.info.PublicCIDRs = k.spec.Endpoint.PublicCIDRs
		k.info.Public = len(k.info.PublicCIDRs) > 0
	}
	way := "the DNS endpoint, which asks IAM about every caller"
	if k.p.reach.Mode == job.ReachDirect {
		way = "the internal address, since the provisioner is inside"
	}
	if k.info.Public {
		k.ok(check, "by %s; the external address is open to %s alone", way, strings.Join(k.info.PublicCIDRs, ", "))
		return
	}
	k.ok(check, "by %s; there is no external address", way)
}

// standardSupport is until when minor versions are supported without extra cost,
// by the release schedule of GKE as of 2026-08-22. The API tells it of clusters
// that are there, and not before.
var standardSupport = map[string]string{"1.34": "2026-10-01", "1.35": "2027-04-11", "1.36": "2027-08-09"}

// version resolves the minor version by what the region offers now. Past its
// standard support is what the regular channel no longer has, or has beyond its
// day: that is billed extra, so it is taken only if it was asked for.
func (k *clusterChecker) version(ctx context.Context) error {
	const check, field = "Kubernetes version", "config.spec.version"
	if k.info.Version != "" && k.settled() {
		k.ok(check, "%s", k.info.Version)
		return nil
	}
	config, err := send(ctx, k.p.container.Projects.Locations.GetServerConfig(k.p.clusterParent()))
	if err != nil {
		k.info.Version = k.spec.Version
		return k.unchecked(ctx, check, field, err)
	}
	regular, extended := minorsOf(config, channelRegular), minorsOf(config, channelExtended)
	want := or(k.spec.Version, defaultOf(config))
	until := standardSupport[want]
	past := !slices.Contains(regular, want) || until != "" && until < k.r.Now().UTC().Format(time.DateOnly)
	switch {
	case want == "" || !slices.Contains(regular, want) && !slices.Contains(extended, want):
		k.fails(check, field, fmt.Sprintf("%s does not offer Kubernetes %s; the regular channel has %s", k.p.region, want, strings.Join(regular, ", ")), "Use one of these, or leave it out.")
		return nil
	case past && !k.spec.ExtendedSupport:
		k.fails(check, field, fmt.Sprintf("Kubernetes %s is past its standard support%s, and GKE bills extra for it", want, ended(until)),
			fmt.Sprintf("Use one of %s, or set extendedSupport to pay for it.", strings.Join(current(regular, k.r.Now()), ", ")))
		return nil
	case past && !slices.Contains(extended, want):
		k.fails(check, field, fmt.Sprintf("Kubernetes %s is past its standard support%s, and the extended channel does not have it", want, ended(until)), "Use a newer one.")
		return nil
	}
	k.info.Version, k.info.Extended, k.info.SupportUntil = want, past, until
	if past {
		k.warn(check, field, fmt.Sprintf("Kubernetes %s is past its standard support%s: GKE bills extra for each hour", want, ended(until)), "Upgrade it soon.")
		return nil
	}
	k.ok(check, "%s, in standard support%s", want, untilText(until))
	return nil
}

func ended(until string) string {
	if until == "" {
		return ""
	}
	return ", which ended on " + until
}

func untilText(until string) string {
	if until == "" {
		return ""
	}
	return " until " + until
}

// current are the versions whose standard support goes on.
func current(minors []string, now time.Time) []string {
	return slices.DeleteFunc(slices.Clone(minors), func(m string) bool {
		until := standardSupport[m]
		return until != "" && until < now.UTC().Format(time.DateOnly)
	})
}

func channelConfig(config *container.ServerConfig, name string) *container.ReleaseChannelConfig {
	for _, c := range config.Channels {
		if c.Channel == name {
			return c
		}
	}
	return &container.ReleaseChannelConfig{}
}

// minorsOf are the minor versions of a channel, the oldest first.
func minorsOf(config *container.ServerConfig, channel string) []string {
	var out []string
	for _, v := range channelConfig(config, channel).ValidVersions {
		out = append(out, minorOf(v))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func defaultOf(config *container.ServerConfig) string {
	return minorOf(channelConfig(config, channelRegular).DefaultVersion)
}

// access asks whether the services are on and the credentials allowed what the
// steps do.
func (k *clusterChecker) access(ctx context.Context) error {
	apis := []string{"container.googleapis.com", "compute.googleapis.com", "cloudkms.googleapis.com", "iam.googleapis.com", "cloudresourcemanager.googleapis.com"}
	want := []string{
		"container.clusters.create", "container.clusters.delete", "container.clusters.get", "container.clusters.list", "container.clusters.update",
		"container.operations.get", "container.operations.list",
		"iam.serviceAccounts.create", "iam.serviceAccounts.delete", "iam.serviceAccounts.get", "iam.serviceAccounts.actAs",
		"resourcemanager.projects.getIamPolicy", "resourcemanager.projects.setIamPolicy",
		"cloudkms.keyRings.create", "cloudkms.keyRings.get", "cloudkms.cryptoKeys.create", "cloudkms.cryptoKeys.get", "cloudkms.cryptoKeys.update",
		"cloudkms.cryptoKeys.getIamPolicy", "cloudkms.cryptoKeys.setIamPolicy", "cloudkms.cryptoKeyVersions.list", "cloudkms.cryptoKeyVersions.destroy",
		"compute.firewalls.list", "compute.firewalls.delete", "compute.instances.list", "compute.subnetworks.get", "compute.subnetworks.use",
	}
	if k.p.reach.Mode != job.ReachDirect {
		want = append(want, "container.clusters.connect") // by the DNS endpoint
	}
	parts := []func(context.Context) error{
		func(ctx context.Context) error { return k.enabled(ctx, apis) },
		func(ctx context.Context) error { return k.permitted(ctx, "permissions for the cluster", want) },
	}
	if k.r.Job.Mode == job.ModeCreate {
		parts = append(parts, k.permissions)
	}
	return k.side(ctx, parts...)
}

// adopt checks that the cluster that the job points at is there.
func (k *clusterChecker) adopt(ctx context.Context) error {
	const check, field = "adopted cluster", "config.spec.adopt"
	ref, err := adoptedCluster(k.r.Job)
	if err != nil {
		k.fails(check, field, err.Error(), "Name the cluster.")
		return nil
	}
	id := k.p.clusterNamed(ref)
	if elsewhere := k.p.elsewhere(id); elsewhere != "" {
		k.fails(check, field, elsewhere, "Make the job in the cluster's region and project.")
		return nil
	}
	c, err := k.p.readCluster(ctx, id)
	switch {
	case pipeline.Is(err, pipeline.NotFound):
		k.fails(check, field, fmt.Sprintf("there is no cluster %s", id), "Name a cluster of this project and region; gcloud container clusters list shows all.")
	case pipeline.Is(err, pipeline.Denied):
		k.fails(check, field, err.Error(), "Allow these credentials to read it: roles/container.clusterViewer.")
	case err != nil:
		return err
	case k.p.endpointOf(c) == "":
		k.warn(check, field, unreachable(c).Problem.Message, unreachable(c).Problem.Hint)
	default:
		k.ok(check, "%s, Kubernetes %s", id, c.CurrentMasterVersion)
	}
	return nil
}
