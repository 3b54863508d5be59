package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/zopday/provisioner/internal/job"
)

// A Webhook is where messages about jobs are sent.
type Webhook struct {
	job.Webhook
	Secret string `json:"secret,omitempty"` // shown once: when it is made, and when it is rotated
}

func webhookPath(id string) string { return "/webhooks/" + escape(id) }

// ListWebhooks reads one page of webhooks; the cursor of the next is "" at the end.
func (c *Client) ListWebhooks(ctx context.Context, query url.Values) (r *Response, items []Webhook, next string, err error) {
	return page[Webhook](ctx, c, "/webhooks", query)
}

// GetWebhook reads a webhook.
func (c *Client) GetWebhook(ctx context.Context, id string) (*Response, Webhook, error) {
	return ask[Webhook](ctx, c, http.MethodGet, webhookPath(id), nil)
}

// CreateWebhook makes a webhook; the answer has its secret.
func (c *Client) CreateWebhook(ctx context.Context, request any) (*Response, Webhook, error) {
	body, err := json.Marshal(request)
	if err != nil {
		return nil, Webhook{}, err
	}
	return ask[Webhook](ctx, c, http.MethodPost, "/webhooks", body)
}

// PatchWebhook changes a webhook.
func (c *Client) PatchWebhook(ctx context.Context, id string, change any) (*Response, Webhook, error) {
	body, err := json.Marshal(change)
	if err != nil {
		return nil, Webhook{}, err
	}
	return ask[Webhook](ctx, c, http.MethodPatch, webhookPath(id), body)
}

// DeleteWebhook removes a webhook.
func (c *Client) DeleteWebhook(ctx context.Context, id string) (*Response, error) {
	return c.Do(ctx, http.MethodDelete, webhookPath(id), nil, nil, nil)
}

// RotateWebhook gives a webhook another secret; the answer has it.
func (c *Client) RotateWebhook(ctx context.Context, id string) (*Response, Webhook, error) {
	return ask[Webhook](ctx, c, http.MethodPost, webhookPath(id)+"/rotate-secret", nil)
}

// TestWebhook sends a webhook a message of the type webhook.test.
func (c *Client) TestWebhook(ctx context.Context, id string) (*Response, job.Delivery, error) {
	return ask[job.Delivery](ctx, c, http.MethodPost, webhookPath(id)+"/test", nil)
}

// ListDeliveries reads one page of a webhook's messages.
func (c *Client) ListDeliveries(ctx context.Context, id string, query url.Values) (r *Response, items []job.Delivery, next string, err error) {
	return page[job.Delivery](ctx, c, webhookPath(id)+"/deliveries", query)
}

// Redeliver sends a message that is over once more.
func (c *Client) Redeliver(ctx context.Context, id, message string) (*Response, job.Delivery, error) {
	return ask[job.Delivery](ctx, c, http.MethodPost, webhookPath(id)+"/deliveries/"+escape(message)+"/redeliver", nil)
}
