package gcp

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// Controls reads the hardening controls of a job's objects back from the cloud.
// A control that does not apply to the job has no row, and neither has one that
// the cloud or the caller's permissions do not let be read: a note says so, and
// nothing is taken for not met that was not seen.
func (p *Provider) Controls(ctx context.Context, r *pipeline.Run) ([]job.Control, error) {
	if r.Mode == pipeline.Plan {
		return nil, nil
	}
	ctx = view(ctx, r)
	spec, err := r.Job.Network()
	if err != nil {
		return nil, err
	}
	parts := []struct {
		about string
		read  func(*controls, context.Context) error
	}{
		{"the network", (*controls).network}, {"the subnets", (*controls).subnets}, {"the firewall rules", (*controls).firewalls},
		{"the NAT", (*controls).nat}, {"the peerings", (*controls).peerings}, {"the DNS zones", (*controls).zones},
	}
	reports := make([]controls, len(parts))
	var reads []func(context.Context) error
	for i, part := range parts {
		reports[i] = controls{p: p, r: r, spec: spec, infra: &r.Job.Config.InfraConfig}
		reads = append(reads, func(ctx context.Context) error {
			err := part.read(&reports[i], ctx)
			switch {
			case pipeline.Is(err, pipeline.Invalid, pipeline.Denied, pipeline.NotFound):
				r.Note("the controls of %s were not read: %v", part.about, err)
			case err != nil:
				return fmt.Errorf("read back %s: %w", part.about, err)
			}
			return nil
		})
	}
	var rows []job.Control
	own := map[job.ResourceType]func(context.Context, *pipeline.Run) ([]job.Control, error){job.VM: p.vmControls, job.Cluster: p.clusterControls,
		job.Datastore: p.datastoreControls, job.Cache: p.datastoreControls}[r.Job.ResourceType]
	if own != nil {
		reads = append(reads, func(ctx context.Context) (err error) {
			rows, err = own(ctx, r)
			return err
		})
	}
	if err := pipeline.All(ctx, reads...); err != nil {
		return nil, err
	}
	for _, c := range reports {
		rows = append(rows, c.rows...)
	}
	slices.SortStableFunc(rows, func(a, b job.Control) int { return strings.Compare(a.ID, b.ID) })
	return rows, nil
}

// controls is one part of the report as it is put together.
type controls struct {
	p     *Provider
	r     *pipeline.Run
	spec  job.NetworkSpec
	infra *job.InfraConfig
	rows  []job.Control
}

// same adds a control that is met if what is seen is what is wanted.
func (c *controls) same(id, name, wanted, seen, source string) {
	c.add(id, name, wanted, seen, seen == wanted, source)
}

func (c *controls) add(id, name, wanted, seen string, met bool, source string) {
	c.rows = append(c.rows, job.Control{ID: id, Name: name, Wanted: wanted, Seen: cmp.Or(seen, "nothing"), Met: met, Source: source})
}

// agreed is what all say, or every different word.
func agreed(words []string) string {
	return strings.Join(slices.Compact(slices.Sorted(slices.Values(words))), ", ")
}
