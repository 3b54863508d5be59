package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/zopday/provisioner/internal/job"
)

// A Revealed is the secret behind a connection.
type Revealed struct {
	Connection  job.Connection    `json:"connection"`
	Credentials map[string]string `json:"credentials"`
}

// Databases lists the logical databases of a datastore.
func (c *Client) Databases(ctx context.Context, id string) (r *Response, all []job.LogicalDatabase, err error) {
	r, all, _, err = page[job.LogicalDatabase](ctx, c, jobPath(id, "databases"), nil)
	return r, all, err
}

// Database reads one logical database.
func (c *Client) Database(ctx context.Context, id, database string) (*Response, job.LogicalDatabase, error) {
	return ask[job.LogicalDatabase](ctx, c, http.MethodGet, jobPath(id, "databases", database), nil)
}

// CreateDatabase asks for a logical database.
func (c *Client) CreateDatabase(ctx context.Context, id, name string) (*Response, job.LogicalDatabase, error) {
	body, err := json.Marshal(map[string]string{"name": name})
	if err != nil {
		return nil, job.LogicalDatabase{}, err
	}
	return ask[job.LogicalDatabase](ctx, c, http.MethodPost, jobPath(id, "databases"), body)
}

// DeleteDatabase asks for the end of a logical database.
func (c *Client) DeleteDatabase(ctx context.Context, id, database, confirm string) (*Response, job.LogicalDatabase, error) {
	var d job.LogicalDatabase
	r, err := c.Do(ctx, http.MethodDelete, jobPath(id, "databases", database), url.Values{"confirm": {confirm}}, nil, nil)
	if err == nil {
		err = r.Data(&d)
	}
	return r, d, err
}

// Connections lists the connections of a job.
func (c *Client) Connections(ctx context.Context, id string) (r *Response, all []job.Connection, err error) {
	r, all, _, err = page[job.Connection](ctx, c, jobPath(id, "connections"), nil)
	return r, all, err
}

// Connection reads one connection.
func (c *Client) Connection(ctx context.Context, id, connection string) (*Response, job.Connection, error) {
	return ask[job.Connection](ctx, c, http.MethodGet, jobPath(id, "connections", connection), nil)
}

// CreateConnection asks for a connection.
func (c *Client) CreateConnection(ctx context.Context, id string, request map[string]string) (*Response, job.Connection, error) {
	body, err := json.Marshal(request)
	if err != nil {
		return nil, job.Connection{}, err
	}
	return ask[job.Connection](ctx, c, http.MethodPost, jobPath(id, "connections"), body)
}

// DeleteConnection asks for the end of a connection.
func (c *Client) DeleteConnection(ctx context.Context, id, connection string) (*Response, job.Connection, error) {
	return ask[job.Connection](ctx, c, http.MethodDelete, jobPath(id, "connections", connection), nil)
}

// RotateConnection asks for another password of a connection.
func (c *Client) RotateConnection(ctx context.Context, id, connection string) (*Response, job.Connection, error) {
	return ask[job.Connection](ctx, c, http.MethodPost, jobPath(id, "connections", connection, "rotate"), nil)
}

// Reveal shows the secret behind a connection, once.
func (c *Client) Reveal(ctx context.Context, id, connection string) (*Response, Revealed, error) {
	return ask[Revealed](ctx, c, http.MethodPost, jobPath(id, "connections", connection, "reveal"), nil)
}

// Presets shows what the presets of a family mean.
func (c *Client) Presets(ctx context.Context, t job.ResourceType) (r *Response, all []job.Preset, err error) {
	r, all, _, err = page[job.Preset](ctx, c, "/catalog/presets", url.Values{"resourceType": {string(t)}})
	return r, all, err
}

// Recommendations says which size a datastore should have.
func (c *Client) Recommendations(ctx context.Context, id string) (r *Response, all []job.Recommendation, err error) {
	r, all, _, err = page[job.Recommendation](ctx, c, jobPath(id, "recommendations"), nil)
	return r, all, err
}
