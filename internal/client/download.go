package client

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// Download sends one request and copies the answer, however long, to w, and
// returns how many bytes these were. A status of 400 and above is a *Problem, no
// answer at all an *Unreachable; an answer that broke off on its way is an error
// too, and w has a part of it then.
func (c *Client) Download(ctx context.Context, method, path string, query url.Values, body []byte, w io.Writer) (int64, error) {
	resp, err := c.send(ctx, method, path, query, body, http.Header{"Accept": {"*/*"}})
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 400 {
		b, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
		if err != nil {
			return 0, c.unreachable(ctx, err)
		}
		return 0, parseProblem(&Response{Status: resp.StatusCode, Header: resp.Header, Body: b})
	}
	n, err := io.Copy(w, resp.Body)
	if err != nil {
		return n, fmt.Errorf("the answer of %s broke off after %d bytes: %w", c.Server(), n, err)
	}
	return n, nil
}

// ExportAudit copies the audit log, as one JSON object a line or as CSV, to w.
func (c *Client) ExportAudit(ctx context.Context, query url.Values, w io.Writer) (int64, error) {
	return c.Download(ctx, http.MethodGet, "/audit-logs/export", query, nil, w)
}
