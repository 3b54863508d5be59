package gcp

import (
	"context"
	"maps"

	"google.golang.org/api/compute/v1"

	"github.com/zopday/provisioner/internal/pipeline"
)

// labelsAspect compares the labels that a job wants on an object; others are
// left alone. Kinds that take none when they are made are given them right after.
func (p *Provider) labelsAspect(r *pipeline.Run, id string, want, have map[string]string, set func(ctx context.Context, all map[string]string) (*compute.Operation, error)) pipeline.Aspect {
	all, shown := map[string]string{}, map[string]string{}
	maps.Copy(all, have)
	maps.Copy(all, want)
	for k := range want {
		if v, ok := have[k]; ok {
			shown[k] = v
		}
	}
	return pipeline.Aspect{Name: "labels", Wanted: labelsText(want), Seen: labelsText(shown),
		Set: p.set(r, id, func(ctx context.Context) (*compute.Operation, error) { return set(ctx, all) })}
}
