package azure

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// Controls reads the hardening controls of the job's objects back from the
// cloud. What cannot be read is noted and left out.
func (p *Provider) Controls(ctx context.Context, r *pipeline.Run) ([]job.Control, error) {
	ctx = view(ctx, r)
	infra := &r.Job.Config.InfraConfig
	parts := []func(*controls, context.Context) error{(*controls).subnets, (*controls).groups, (*controls).vnet, (*controls).peerings, (*controls).addresses}
	if r.Job.ResourceType == job.VM {
		parts = append(parts, (*controls).vms, (*controls).scaleSet, (*controls).balancer, (*controls).customData)
	}
	if r.Job.ResourceType == job.Cluster {
		parts = append(parts, (*controls).cluster)
	}
	switch r.Job.ResourceType {
	case job.Datastore:
		parts = append(parts, (*controls).datastore)
	case job.Cache:
		parts = append(parts, (*controls).cache)
	}
	var rows []job.Control
	for _, part := range parts {
		c := &controls{p: p, r: r, infra: infra}
		err := part(c, ctx)
		switch {
		case pipeline.Is(err, pipeline.Denied, pipeline.NotFound, pipeline.Invalid):
			r.Note("a control was not read: %v", err)
		case err != nil:
			return nil, err
		}
		rows = append(rows, c.rows...)
	}
	slices.SortStableFunc(rows, func(a, b job.Control) int { return strings.Compare(a.ID, b.ID) })
	return rows, nil
}

// controls is one part of the report as it is put together.
type controls struct {
	p     *Provider
	r     *pipeline.Run
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

// agreed is the one value of a list, or all that differ; "none" of an empty one.
func agreed(values []string) string {
	values = slices.Compact(slices.Sorted(slices.Values(values)))
	return cmp.Or(strings.Join(values, ", "), "none")
}
