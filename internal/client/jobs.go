package client

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/job"
)

// A Job is a job as the API answers it.
type Job struct {
	job.Job
	Steps   []Step  `json:"steps"`
	Verdict Verdict `json:"verdict"`
	Objects int     `json:"objects,omitempty"` // how many exist now
}

// A Step is one step of the job's present run.
type Step struct {
	job.StepState
	Title string `json:"title,omitempty"`
}

// A Verdict is what the server makes of a job's state, the same everywhere.
type Verdict struct {
	State    string `json:"state"` // such as waiting, ready or removal-stopped
	Word     string `json:"word"`
	Sentence string `json:"sentence"`
}

// CreateJob makes a job of a document. key is its idempotency key: when the
// answer is lost the request is sent again with it, and makes no second job.
func (c *Client) CreateJob(ctx context.Context, doc []byte, key string) (*Response, Job, error) {
	hdr := http.Header{"Idempotency-Key": {key}}
	var r *Response
	err := again(ctx, func() (err error) {
		r, err = c.Do(ctx, http.MethodPost, "/provisioning-jobs", nil, doc, hdr)
		return err
	})
	return c.asJob(r, err)
}

// GetJob reads a job.
func (c *Client) GetJob(ctx context.Context, id string) (*Response, Job, error) {
	return c.asJob(c.Do(ctx, http.MethodGet, jobPath(id), nil, nil, nil))
}

// ListJobs reads one page of jobs; the cursor of the next is "" at the end.
func (c *Client) ListJobs(ctx context.Context, query url.Values) (r *Response, jobs []Job, next string, err error) {
	r, err = c.Do(ctx, http.MethodGet, "/provisioning-jobs", query, nil, nil)
	if err != nil {
		return r, nil, "", err
	}
	next, err = listOf(r, &jobs)
	return r, jobs, next, err
}

// PatchJob changes a job; ifMatch may be "".
func (c *Client) PatchJob(ctx context.Context, id string, patch any, ifMatch string) (*Response, Job, error) {
	body, err := json.Marshal(patch)
	if err != nil {
		return nil, Job{}, err
	}
	hdr := http.Header{}
	if ifMatch != "" {
		hdr.Set("If-Match", ifMatch)
	}
	return c.asJob(c.Do(ctx, http.MethodPatch, jobPath(id), nil, body, hdr))
}

// DeleteJob cancels a job and has everything removed that it made. confirm is
// the job's name where the server wants it typed.
func (c *Client) DeleteJob(ctx context.Context, id, confirm string) (*Response, Job, error) {
	q := url.Values{}
	if confirm != "" {
		q.Set("confirm", confirm)
	}
	return c.asJob(c.Do(ctx, http.MethodDelete, jobPath(id), q, nil, nil))
}

// RetryJob lets a failed job go on.
func (c *Client) RetryJob(ctx context.Context, id string) (*Response, Job, error) {
	return c.asJob(c.Do(ctx, http.MethodPost, jobPath(id, "retry"), nil, nil, nil))
}

func (c *Client) asJob(r *Response, err error) (*Response, Job, error) {
	var j Job
	if err != nil {
		return r, j, err
	}
	return r, j, r.Data(&j)
}

// listOf decodes a list and answers the cursor of the next page.
func listOf(r *Response, into any) (next string, err error) {
	var envelope struct {
		Meta struct {
			NextCursor string `json:"nextCursor"`
		} `json:"meta"`
	}
	if err := json.Unmarshal(r.Body, &envelope); err != nil {
		return "", err
	}
	return envelope.Meta.NextCursor, r.Data(into)
}

// again sends a request once more when its answer was lost on the way. It
// does not when no connection could be made: then there is no server.
func again(ctx context.Context, send func() error) error {
	for i := 0; ; i++ {
		err := send()
		var gone *Unreachable
		if i == 2 || !errors.As(err, &gone) || ctx.Err() != nil || strings.Contains(err.Error(), "connection refused") {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(time.Duration(i+1) * 300 * time.Millisecond):
		}
	}
}
