package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/zopday/provisioner/internal/job"
)

// A Space is a place to deploy to.
type Space struct {
	ID             string            `json:"id"`
	Name           string            `json:"name"`
	Provider       job.Provider      `json:"provider"`
	SpaceType      string            `json:"spaceType"`
	CloudAccountID string            `json:"cloudAccountId"`
	Status         string            `json:"status"`
	Config         map[string]string `json:"config"`
	JobID          string            `json:"jobId,omitempty"`
	CreatedAt      time.Time         `json:"createdAt"`
}

// A Namespace is a namespace of a space's cluster.
type Namespace struct {
	Name        string    `json:"name"`
	Status      string    `json:"status"`
	PodSecurity string    `json:"podSecurity,omitempty"`
	CreatedAt   time.Time `json:"createdAt"`
}

// A Chart is where a Helm chart is found.
type Chart struct {
	Repository string `json:"repository"` // oci://… or https://…
	Name       string `json:"name"`
}

// A Component is one entry of the catalogue.
type Component struct {
	Name        string         `json:"name"`
	Title       string         `json:"title"`
	Description string         `json:"description,omitempty"`
	Category    string         `json:"category"`
	Chart       Chart          `json:"chart"`
	Version     string         `json:"version"`
	AppVersion  string         `json:"appVersion,omitempty"`
	License     string         `json:"license"`
	Source      string         `json:"source"`
	KubeVersion string         `json:"kubeVersion,omitempty"`
	Namespace   string         `json:"namespace"`
	DependsOn   []string       `json:"dependsOn,omitempty"`
	Providers   []job.Provider `json:"providers,omitempty"`
	Needs       []string       `json:"needs,omitempty"`
	AdoptOnly   bool           `json:"adoptOnly,omitempty"`
	Reason      string         `json:"reason,omitempty"`
}

// A Change is what an upgrade does to one object of a cluster.
type Change struct {
	Action    string `json:"action"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Diff      string `json:"diff,omitempty"`
}

// ListSpaces reads one page of spaces; the cursor of the next is "" at the end.
func (c *Client) ListSpaces(ctx context.Context, query url.Values) (r *Response, spaces []Space, next string, err error) {
	return page[Space](ctx, c, "/spaces", query)
}

// GetSpace reads a space.
func (c *Client) GetSpace(ctx context.Context, id string) (*Response, Space, error) {
	return ask[Space](ctx, c, http.MethodGet, "/spaces/"+escape(id), nil)
}

// RegisterSpace makes a cluster that exists known as a space.
func (c *Client) RegisterSpace(ctx context.Context, doc []byte) (*Response, Space, error) {
	return ask[Space](ctx, c, http.MethodPost, "/spaces", doc)
}

// ForgetSpace forgets a space, the pointer alone.
func (c *Client) ForgetSpace(ctx context.Context, id string) (*Response, error) {
	return c.Do(ctx, http.MethodDelete, "/spaces/"+escape(id), nil, nil, nil)
}

// Namespaces lists the namespaces of a space's cluster.
func (c *Client) Namespaces(ctx context.Context, id string) (r *Response, all []Namespace, err error) {
	r, all, _, err = page[Namespace](ctx, c, "/spaces/"+escape(id)+"/namespaces", nil)
	return r, all, err
}

// CreateNamespace makes a namespace in a space's cluster.
func (c *Client) CreateNamespace(ctx context.Context, id, name string) (*Response, Namespace, error) {
	body, err := json.Marshal(map[string]string{"name": name})
	if err != nil {
		return nil, Namespace{}, err
	}
	return ask[Namespace](ctx, c, http.MethodPost, "/spaces/"+escape(id)+"/namespaces", body)
}

// Components lists the catalogue.
func (c *Client) Components(ctx context.Context, query url.Values) (r *Response, all []Component, err error) {
	r, all, _, err = page[Component](ctx, c, "/catalog/components", query)
	return r, all, err
}

// GetComponent reads one component; the response has the schema of its values too.
func (c *Client) GetComponent(ctx context.Context, name string) (*Response, Component, error) {
	return ask[Component](ctx, c, http.MethodGet, "/catalog/components/"+escape(name), nil)
}

// InstallComponent makes a job that installs a component onto a space.
func (c *Client) InstallComponent(ctx context.Context, request any, key string) (*Response, Job, error) {
	body, err := json.Marshal(request)
	if err != nil {
		return nil, Job{}, err
	}
	var r *Response
	err = again(ctx, func() (err error) {
		r, err = c.Do(ctx, http.MethodPost, "/provisioning-jobs/install-component", nil, body, http.Header{"Idempotency-Key": {key}})
		return err
	})
	return c.asJob(r, err)
}

// DiffComponent is what an upgrade would change; patch is that of the upgrade.
func (c *Client) DiffComponent(ctx context.Context, id string, patch any) (r *Response, changes []Change, err error) {
	body, err := json.Marshal(patch)
	if err != nil {
		return nil, nil, err
	}
	if r, err = c.Do(ctx, http.MethodPost, jobPath(id, "diff"), nil, body, nil); err != nil {
		return r, nil, err
	}
	_, err = listOf(r, &changes)
	return r, changes, err
}

func page[T any](ctx context.Context, c *Client, path string, query url.Values) (r *Response, items []T, next string, err error) {
	if r, err = c.Do(ctx, http.MethodGet, path, query, nil, nil); err != nil {
		return r, nil, "", err
	}
	next, err = listOf(r, &items)
	return r, items, next, err
}
