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
	url string // "" if there is none, or none that tells an error
}

func operationOf(resp *http.Response) operation {
	return operation{url: resp.Header.Get("Azure-AsyncOperation")}
}

// remember keeps an operation for later passes of this run: its error is nowhere
// else to be had. A worker that takes the job over does not know it, and says
// where a person finds the reason.
func (o operation) remember(r *pipeline.Run, id string) {
	if o.url != "" {
		r.Remember("operation "+id, o)
	}
}

// failure is why the last operation on a resource failed, in the cloud's own
// words; "" if that is not known, or if it did not fail.
func (p *Provider) failure(ctx context.Context, r *pipeline.Run, id string) (string, error) {
	o, ok := r.Recall("operation " + id).(operation)
	if !ok {
		return "", nil
	}
	var status struct {
		Status string `json:"status"`
		Error  fault  `json:"error"`
	}
	err := p.get(ctx, o.url, &status)
	if err != nil {
		// An operation is forgotten after a while; the resource itself has answered.
		return "", unless(err, pipeline.NotFound, pipeline.Invalid, pipeline.Denied, pipeline.Unknown)
	}
	if status.Status != "Failed" && status.Status != "Canceled" {
		return "", nil
	}
	text := status.Error.text()
	if code := status.Error.telling(); code != "" {
		text = code + ": " + text
	}
	return cmp.Or(text, "the operation ended "+status.Status), nil
}

// unless drops an error of one of the classes: what was asked for is so already.
func unless(err error, classes ...pipeline.Class) error {
	if pipeline.Is(err, classes...) {
		return nil
	}
	return err
}
