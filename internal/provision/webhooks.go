package provision

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/audit"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/ledger"
	"github.com/zopday/provisioner/internal/secrets"
	"github.com/zopday/provisioner/internal/webhook"
)

// Webhooks are what messages to webhooks stand on.
type Webhooks struct {
	Secrets *secrets.Store  // nil: the secret store is closed, and there can be no webhooks
	Sender  *webhook.Sender // nil: nothing is sent, and only public addresses are taken
}

const (
	// maxWebhooks bounds an organisation's webhooks: each change of a job writes a
	// message to every one of them.
	maxWebhooks = 50
	// secretOverlap is for how long messages are signed with the secret before, too.
	secretOverlap = 24 * time.Hour
)

// A WebhookRequest makes a webhook.
type WebhookRequest struct {
	Name    string   `json:"name" doc:"1 to 63 of A-Z, a-z, 0-9, hyphen and underscore"`
	URL     string   `json:"url" doc:"Where messages are sent: https://, an address on the Internet"`
	Events  []string `json:"events,omitempty" doc:"The types of messages: job.queued, job.running, job.completed, job.failed, job.cancelled; all, if left out"`
	Enabled *bool    `json:"enabled,omitempty" doc:"true by default"`
}

// A WebhookPatch changes a webhook.
type WebhookPatch struct {
	Name    *string   `json:"name,omitempty"`
	URL     *string   `json:"url,omitempty"`
	Events  *[]string `json:"events,omitempty" doc:"An empty list is all"`
	Enabled *bool     `json:"enabled,omitempty" doc:"false: it gets no more messages, and those that are on their way end"`
}

// A WebhookView is a webhook as it is shown.
type WebhookView struct {
	job.Webhook
	Secret string `json:"secret,omitempty" doc:"What messages are signed with. It is shown this once"`
}

// view shows a webhook to a caller: its whole address to who may manage it alone.
func viewWebhook(p access.Principal, w job.Webhook) *WebhookView {
	if !p.Over(access.WebhookManage).All {
		w.URL = webhook.Host(w.URL)
	}
	return &WebhookView{Webhook: w}
}

func (s *Service) allowed() webhook.Allow {
	if s.Webhooks.Sender == nil {
		return webhook.Allow{}
	}
	return s.Webhooks.Sender.Allow()
}

// webhookFaults is everything that is wrong with a webhook.
func (s *Service) webhookFaults(name, url string, events []string) error {
	fields := checkName(name)
	if fault, fix := s.allowed().Check(url); fault != "" {
		fields = append(fields, job.FieldError{Field: "url", Message: fault, Fix: fix})
	}
	known := job.WebhookEvents()
	for i, e := range events {
		at := fmt.Sprintf("events[%d]", i)
		switch {
		case !slices.Contains(known, e):
			fields = append(fields, job.FieldError{Field: at, Message: fmt.Sprintf("%.40q is no type of message", e), Fix: "use " + strings.Join(known, ", ")})
		case slices.Contains(events[:i], e):
			fields = append(fields, job.FieldError{Field: at, Message: "is given twice", Fix: "give it once"})
		}
		if len(fields) >= maxFieldErrors {
			break
		}
	}
	if len(fields) > 0 {
		return invalid(fields...)
	}
	return nil
}

func secretStoreClosed() error {
	return refuse(WrongState, "Start every process with the key of its database (ZOPDAY_SECRET_KEY), then ask for it again.",
		"the secret store of this server is closed, and a webhook's secret has to be kept")
}

// The IDs under which the secrets of a webhook are kept.
func currentSecret(id string) string { return id + "/secret" }
func earlierSecret(id string) string { return id + "/before" }

// manageWebhooks runs a change by who may manage webhooks of the whole organisation.
func (s *Service) manageWebhooks(ctx context.Context, id, action string, fn func(ctx context.Context, tx db.Q, p access.Principal) (map[string]any, error)) error {
	return s.mutate(ctx, access.WebhookManage, id, func(ctx context.Context, tx db.Q, p access.Principal) (audit.Entry, error) {
		if err := overAll(p, access.WebhookManage, "the whole organisation"); err != nil {
			return audit.Entry{}, err
		}
		detail, err := fn(ctx, tx, p)
		switch {
		case errors.Is(err, ledger.ErrNotFound):
			err = missing("webhook", "/webhooks")
		case errors.Is(err, ledger.ErrWebhookName):
			err = nameInUse("another webhook of your organisation has the name")
		}
		return audit.Entry{Action: action, ResourceType: "webhook", ResourceID: id, Detail: detail}, err
	})
}

// CreateWebhook makes a webhook and its secret, which is shown this once.
func (s *Service) CreateWebhook(ctx context.Context, r WebhookRequest) (*WebhookView, error) {
	if err := s.webhookFaults(r.Name, r.URL, r.Events); err != nil {
		return nil, s.refused(ctx, access.WebhookManage, "", err)
	}
	w := job.Webhook{ID: job.NewID("whk"), Name: r.Name, URL: r.URL, Events: r.Events, Enabled: r.Enabled == nil || *r.Enabled}
	if w.Events == nil {
		w.Events = []string{}
	}
	secret := webhook.NewSecret()
	err := s.manageWebhooks(ctx, w.ID, "webhook:create", func(ctx context.Context, tx db.Q, p access.Principal) (map[string]any, error) {
		if s.Webhooks.Secrets == nil {
			return nil, secretStoreClosed()
		}
		w.OrgID, w.CreatedBy = p.OrgID, p.Actor
		if n, err := s.Ledger.CountWebhooks(ctx, tx, p.OrgID); err != nil || n >= maxWebhooks {
			if err == nil {
				err = refuse(WrongState, "Delete one that is not needed any more.", "your organisation has %d webhooks, and that is as many as it may have", n)
			}
			return nil, err
		}
		if err := s.Ledger.AddWebhook(ctx, tx, &w); err != nil {
			return nil, err
		}
		return map[string]any{"name": w.Name, "to": webhook.Host(w.URL), "events": w.Events}, s.Webhooks.Secrets.Put(ctx, tx, p.OrgID, currentSecret(w.ID), []byte(secret))
	})
	if err != nil {
		return nil, err
	}
	return &WebhookView{Webhook: w, Secret: secret}, nil
}

// webhookViewer is a caller who may see the organisation's webhooks.
func (s *Service) webhookViewer(ctx context.Context) (access.Principal, error) {
	p, err := s.viewer(ctx, access.WebhookView)
	if err == nil {
		if err = overAll(p, access.WebhookView, "the whole organisation"); err != nil {
			err = s.refused(ctx, access.WebhookView, "", err)
		}
	}
	return p, err
}

// ListWebhooks lists an organisation's webhooks, the newest first.
func (s *Service) ListWebhooks(ctx context.Context, limit int, cursor string) (items []*WebhookView, next string, err error) {
	p, err := s.webhookViewer(ctx)
	if err != nil {
		return nil, "", err
	}
	if err := cursorOK(cursor); err != nil {
		return nil, "", err
	}
	rows, err := s.Ledger.Webhooks(ctx, p.OrgID, cursor, limit+1)
	if err != nil {
		return nil, "", err
	}
	rows, next = nextPage(rows, limit, func(w job.Webhook) string { return w.ID })
	for _, w := range rows {
		items = append(items, viewWebhook(p, w))
	}
	return items, next, nil
}

// GetWebhook reads one webhook.
func (s *Service) GetWebhook(ctx context.Context, id string) (*WebhookView, error) {
	p, err := s.webhookViewer(ctx)
	if err != nil {
		return nil, err
	}
	w, err := s.webhookOf(ctx, p.OrgID, id)
	if err != nil {
		return nil, err
	}
	return viewWebhook(p, *w), nil
}

func (s *Service) webhookOf(ctx context.Context, org, id string) (*job.Webhook, error) {
	if !refRE.MatchString(id) {
		return nil, missing("webhook", "/webhooks")
	}
	w, err := s.Ledger.Webhook(ctx, s.Ledger.DB(), org, id)
	if errors.Is(err, ledger.ErrNotFound) {
		return nil, missing("webhook", "/webhooks")
	}
	return w, err
}

// PatchWebhook changes a webhook. Switching one on again forgets why it was off.
func (s *Service) PatchWebhook(ctx context.Context, id string, r WebhookPatch) (*WebhookView, error) {
	if !refRE.MatchString(id) {
		return nil, s.refused(ctx, access.WebhookManage, id, missing("webhook", "/webhooks"))
	}
	var w *job.Webhook
	err := s.manageWebhooks(ctx, id, "webhook:update", func(ctx context.Context, tx db.Q, p access.Principal) (detail map[string]any, err error) {
		if r == (WebhookPatch{}) {
			return nil, invalid(job.FieldError{Field: "body", Message: "changes nothing", Fix: "give the fields to change"})
		}
		w, err = s.Ledger.ChangeWebhook(ctx, tx, p.OrgID, id, func(w *job.Webhook) error {
			detail = r.apply(w)
			return s.webhookFaults(w.Name, w.URL, w.Events)
		})
		return detail, err
	})
	if err != nil {
		return nil, err
	}
	return &WebhookView{Webhook: *w}, nil
}

// apply changes a webhook and says what was changed.
func (r WebhookPatch) apply(w *job.Webhook) map[string]any {
	detail := map[string]any{}
	if r.Name != nil {
		w.Name, detail["name"] = *r.Name, *r.Name
	}
	if r.URL != nil {
		w.URL, detail["to"] = *r.URL, webhook.Host(*r.URL)
	}
	if r.Events != nil {
		w.Events, detail["events"] = append([]string{}, *r.Events...), *r.Events
	}
	if r.Enabled != nil {
		if *r.Enabled && !w.Enabled {
			w.DisabledFor, w.FailingFrom = "", nil
		}
		w.Enabled, detail["enabled"] = *r.Enabled, *r.Enabled
	}
	return detail
}

// DeleteWebhook removes a webhook, its messages and its secret.
func (s *Service) DeleteWebhook(ctx context.Context, id string) error {
	if !refRE.MatchString(id) {
		return s.refused(ctx, access.WebhookManage, id, missing("webhook", "/webhooks"))
	}
	return s.manageWebhooks(ctx, id, "webhook:delete", func(ctx context.Context, tx db.Q, p access.Principal) (map[string]any, error) {
		w, err := s.Ledger.Webhook(ctx, tx, p.OrgID, id)
		if err != nil {
			return nil, err
		}
		for _, secret := range []string{currentSecret(id), earlierSecret(id)} {
			if err := secrets.Remove(ctx, tx, p.OrgID, secret); err != nil {
				return nil, err
			}
		}
		return map[string]any{"name": w.Name}, s.Ledger.DeleteWebhook(ctx, tx, p.OrgID, id)
	})
}

// RotateWebhook gives a webhook another secret, which is shown this once. For a day
// messages are signed with the one before, too.
func (s *Service) RotateWebhook(ctx context.Context, id string) (*WebhookView, error) {
	if !refRE.MatchString(id) {
		return nil, s.refused(ctx, access.WebhookManage, id, missing("webhook", "/webhooks"))
	}
	var w *job.Webhook
	secret := webhook.NewSecret()
	err := s.manageWebhooks(ctx, id, "webhook:rotate", func(ctx context.Context, tx db.Q, p access.Principal) (_ map[string]any, err error) {
		keep := s.Webhooks.Secrets
		if keep == nil {
			return nil, secretStoreClosed()
		}
		now, err := s.Clock(ctx, tx)
		if err != nil {
			return nil, err
		}
		until := now.Add(secretOverlap)
		w, err = s.Ledger.ChangeWebhook(ctx, tx, p.OrgID, id, func(w *job.Webhook) error {
			w.Revision++
			w.BeforeUntil = &until
			return nil
		})
		if err != nil {
			return nil, err
		}
		before, err := keep.Get(ctx, tx, p.OrgID, currentSecret(id))
		if err == nil {
			err = keep.Put(ctx, tx, p.OrgID, earlierSecret(id), before)
		}
		if err == nil {
			err = keep.Put(ctx, tx, p.OrgID, currentSecret(id), []byte(secret))
		}
		return map[string]any{"beforeUntil": until}, err
	})
	if err != nil {
		return nil, err
	}
	return &WebhookView{Webhook: *w, Secret: secret}, nil
}

// TestWebhook sends a webhook a message of the type webhook.test.
func (s *Service) TestWebhook(ctx context.Context, id string) (*job.Delivery, error) {
	if !refRE.MatchString(id) {
		return nil, s.refused(ctx, access.WebhookManage, id, missing("webhook", "/webhooks"))
	}
	var d *job.Delivery
	err := s.manageWebhooks(ctx, id, "webhook:test", func(ctx context.Context, tx db.Q, p access.Principal) (map[string]any, error) {
		w, err := s.Ledger.Webhook(ctx, tx, p.OrgID, id)
		if err != nil {
			return nil, err
		}
		if !w.Enabled {
			return nil, webhookOff()
		}
		now, err := s.Clock(ctx, tx)
		if err != nil {
			return nil, err
		}
		body, err := json.Marshal(map[string]string{"id": w.ID, "name": w.Name})
		if err != nil {
			return nil, err
		}
		random := make([]byte, 8)
		rand.Read(random)
		d, err = s.Ledger.AddDelivery(ctx, tx, p.OrgID, id, job.WebhookTest, string(body), now, hex.EncodeToString(random))
		if err != nil {
			return nil, err
		}
		return map[string]any{"message": d.ID}, nil
	})
	return d, err
}

func webhookOff() error {
	return refuse(WrongState, `Switch it on with PATCH {"enabled":true} first.`, "the webhook is switched off")
}

// ListDeliveries lists the messages of a webhook, the newest first.
func (s *Service) ListDeliveries(ctx context.Context, id string, status job.DeliveryStatus, limit int, cursor string) (items []job.Delivery, next string, err error) {
	p, err := s.webhookViewer(ctx)
	if err != nil {
		return nil, "", err
	}
	if _, err := s.webhookOf(ctx, p.OrgID, id); err != nil {
		return nil, "", err
	}
	if err := cursorOK(cursor); err != nil {
		return nil, "", err
	}
	items, err = s.Ledger.Deliveries(ctx, p.OrgID, id, status, cursor, limit+1)
	if err != nil {
		return nil, "", err
	}
	items, next = nextPage(items, limit, func(d job.Delivery) string { return d.ID })
	return items, next, nil
}

// Redeliver sends a message that is over once more, under the same webhook-id.
func (s *Service) Redeliver(ctx context.Context, id, message string) (*job.Delivery, error) {
	if !refRE.MatchString(id) || !refRE.MatchString(message) {
		return nil, s.refused(ctx, access.WebhookManage, id, missing("message", "/webhooks/{id}/deliveries"))
	}
	var d *job.Delivery
	err := s.manageWebhooks(ctx, id, "webhook:redeliver", func(ctx context.Context, tx db.Q, p access.Principal) (map[string]any, error) {
		w, err := s.Ledger.Webhook(ctx, tx, p.OrgID, id)
		if err != nil {
			return nil, err
		}
		if !w.Enabled {
			return nil, webhookOff()
		}
		again, ok, err := s.Ledger.Redeliver(ctx, tx, p.OrgID, id, message)
		if err == nil && !ok {
			err = refuse(NotFound, "GET /webhooks/"+id+"/deliveries lists what there is.", "the webhook has no such message, or it is on its way still")
		}
		d = again
		return map[string]any{"message": message}, err
	})
	return d, err
}
