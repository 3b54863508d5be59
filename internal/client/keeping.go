package client

import (
	"context"
	"io"
	"net/http"
)

// A SecretsStatus is how a server keeps its secrets.
type SecretsStatus struct {
	KEK      string         `json:"kek"`
	Key      string         `json:"key"`
	Keys     []string       `json:"keys"`
	Secrets  map[string]int `json:"secrets"`
	Rotating bool           `json:"rotating"`
}

// A Rotation is what a rotation of the secrets' key did.
type Rotation struct {
	Key       string `json:"key"`
	Rewritten int    `json:"rewritten"`
	Resumed   bool   `json:"resumed"`
}

// Secrets says how the server keeps its secrets.
func (c *Client) Secrets(ctx context.Context) (*Response, SecretsStatus, error) {
	return ask[SecretsStatus](ctx, c, http.MethodGet, "/secrets", nil)
}

// RotateSecrets has the server make a new key and write every secret anew.
func (c *Client) RotateSecrets(ctx context.Context) (*Response, Rotation, error) {
	return ask[Rotation](ctx, c, http.MethodPost, "/secrets/rotate", nil)
}

// Backup copies the server's database, an SQLite file, to w.
func (c *Client) Backup(ctx context.Context, w io.Writer) (int64, error) {
	return c.Download(ctx, http.MethodPost, "/backup", nil, nil, w)
}
