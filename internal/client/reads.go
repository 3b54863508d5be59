package client

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/zopday/provisioner/internal/job"
)

// Objects is the inventory of a job: what it made, is making, and has removed.
func (c *Client) Objects(ctx context.Context, id string) ([]job.Object, error) {
	_, r, err := c.Receipt(ctx, id)
	return r.Objects, err
}

// eventPage is how many events are asked for at once.
const eventPage = 500

// Events are a job's events after the one numbered since, all of them.
func (c *Client) Events(ctx context.Context, id string, since int64) (*Response, []job.Event, error) {
	var pages []*Response
	var all []job.Event
	for {
		q := url.Values{"limit": {strconv.Itoa(eventPage)}}
		if since > 0 {
			q.Set("after", strconv.FormatInt(since, 10))
		}
		r, err := c.Do(ctx, http.MethodGet, jobPath(id, "events"), q, nil, nil)
		if err != nil {
			return r, nil, err
		}
		var page []job.Event
		if err := r.Data(&page); err != nil {
			return r, nil, err
		}
		pages, all = append(pages, r), append(all, page...)
		if len(page) < eventPage {
			break
		}
		since = page[len(page)-1].Seq
	}
	r, err := Join(pages)
	return r, all, err
}

// An AuditEntry is one line of the audit log.
type AuditEntry struct {
	ID           string         `json:"id"`
	Seq          int64          `json:"seq"`
	Time         time.Time      `json:"time"`
	Actor        string         `json:"actor"`
	Action       string         `json:"action"`
	ResourceType string         `json:"resourceType"`
	ResourceID   string         `json:"resourceId"`
	Outcome      string         `json:"outcome"`
	RequestID    string         `json:"requestId"`
	Detail       map[string]any `json:"detail"`
	Hash         string         `json:"hash"`
}

// Audit reads one page of the audit log, newest first.
func (c *Client) Audit(ctx context.Context, query url.Values) (r *Response, entries []AuditEntry, next string, err error) {
	r, err = c.Do(ctx, http.MethodGet, "/audit-logs", query, nil, nil)
	if err != nil {
		return r, nil, "", err
	}
	next, err = listOf(r, &entries)
	return r, entries, next, err
}

// Join makes one answer of the pages of a list, so that a whole list is
// printed like one page of it.
func Join(pages []*Response) (*Response, error) {
	if len(pages) == 1 {
		return pages[0], nil
	}
	all := []json.RawMessage{}
	for _, p := range pages {
		var items []json.RawMessage
		if err := p.Data(&items); err != nil {
			return nil, err
		}
		all = append(all, items...)
	}
	return wrap(all, map[string]any{"nextCursor": nil})
}

// Wrap makes an answer of something that did not come from the server as one,
// in the shape of those that did.
func Wrap(data any) (*Response, error) { return wrap(data, nil) }

func wrap(data any, meta map[string]any) (*Response, error) {
	doc := map[string]any{"data": data}
	if meta != nil {
		doc["meta"] = meta
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(doc); err != nil {
		return nil, err
	}
	return &Response{Status: http.StatusOK, Header: http.Header{}, Body: b.Bytes()}, nil
}
