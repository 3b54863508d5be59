package components

import (
	"cmp"

	"github.com/zopday/provisioner/internal/job"
)

// Filled is a component with the values that it takes from the cluster of a job,
// where the request does not set them. What is not known before the cluster is
// there is left out, but for its name: some charts render with one alone.
func (e *Engine) Filled(j *job.Job, spec job.ComponentSpec) (job.ComponentSpec, error) {
	f := factsOf(j)
	f.Name = cmp.Or(f.Name, j.Name)
	return e.catalogue.Fill(spec, f)
}
