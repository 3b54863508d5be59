package azure

import (
	"cmp"
	"context"
	"net/http"

	"github.com/zopday/provisioner/internal/pipeline"
)

// An operation is what a PUT or DELETE has set going. Most say so in a header;
// what is done at once names none ("Track asynchronous Azure operations").
type operation struct {
	url     string // "" if there is none, or none that tells an error
	removal bool
}

func operationOf(method string, r reply) operation {
	return operation{url: r.header.Get("Azure-AsyncOperation"), removal: method == http.MethodDelete}
}

// remember keeps an operation for later passes of this run: its error is nowhere
// else to be had. A worker that takes the job over does not know it, and says
// where a person finds the reason.
func (o operation) remember(r *pipeline.Run, id string) {
	if o.url != "" {
		r.Remember("operation "+id, o)
	}
}

// lastOperation is the last operation of this run on a resource.
func lastOperation(r *pipeline.Run, id string) operation {
	o, _ := r.Recall("operation " + id).(operation)
	return o
}

// outcome is how an operation stands: still running, or failed for a reason in
// the cloud's own words.
func (p *Provider) outcome(ctx context.Context, o operation) (running bool, why string, err error) {
	if o.url == "" {
		return false, "", nil
	}
	var status struct {
		Status string `json:"status"`
		Error  fault  `json:"error"`
	}
	if err := p.get(ctx, o.url, &status); err != nil {
		if pipeline.Is(err, pipeline.Denied) {
			p.unread("why operations failed", err)
		}
		// An operation is forgotten after a while; the resource itself has answered.
		return false, "", pipeline.Unless(err, pipeline.NotFound, pipeline.Invalid, pipeline.Denied, pipeline.Unknown)
	}
	switch status.Status {
	case "Succeeded":
		return false, "", nil
	case "Failed", "Canceled":
		text := status.Error.text()
		if code := status.Error.telling(); code != "" {
			text = code + ": " + text
		}
		return false, cmp.Or(text, "the operation ended "+status.Status), nil
	}
	return true, "", nil
}
