package provision

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/audit"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/ledger"
	"github.com/zopday/provisioner/internal/secrets"
	"github.com/zopday/provisioner/internal/webhook"
)

// WebhookActor is who switches a webhook off that does not take its messages.
const WebhookActor = "system:webhooks"

const (
	// deliveryHold is for how long a process has messages for itself: more than two
	// rounds of attempts take.
	deliveryHold = time.Minute
	// deliveryBatch messages are taken at once, of one webhook deliveryEach at most,
	// and deliveryAtOnce are on their way.
	deliveryBatch, deliveryEach, deliveryAtOnce = 32, 4, 16
	// offAfter is for how long nothing may be delivered until a webhook is switched off.
	offAfter = 72 * time.Hour
	// deliveryKept is for how long messages that are over can be looked at.
	deliveryKept = 30 * 24 * time.Hour
)

// deliveryWaits are the times between attempts: eleven attempts within a day.
var deliveryWaits = []time.Duration{
	5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 4 * time.Hour, 6 * time.Hour, 10 * time.Hour,
}

// A webhookMessage is the body that a receiver gets.
type webhookMessage struct {
	ID           string                     `json:"id"`
	Type         string                     `json:"type"`
	Timestamp    time.Time                  `json:"timestamp"` // when it happened
	Organisation string                     `json:"organisation"`
	Data         map[string]json.RawMessage `json:"data"`
}

func messageBody(d *job.Delivery) ([]byte, error) {
	about := "job"
	if d.Type == job.WebhookTest {
		about = "webhook"
	}
	return json.Marshal(webhookMessage{ID: d.ID, Type: d.Type, Timestamp: d.CreatedAt.UTC(), Organisation: d.OrgID, Data: map[string]json.RawMessage{about: json.RawMessage(d.Body)}})
}

// DeliverWebhooks sends the messages that are due. Several processes may do so at
// once: a message is held by one of them. One that dies after it has sent a message,
// and before it has written so, has it sent again: receivers tell by webhook-id.
// more is true when there may be further ones. note is told of each attempt.
func (s *Service) DeliverWebhooks(ctx context.Context, note func(outcome string)) (more bool, err error) {
	if s.Webhooks.Sender == nil {
		return false, nil
	}
	now, err := s.Clock(ctx, s.Ledger.DB())
	if err != nil {
		return false, err
	}
	until := now.Add(deliveryHold).Truncate(time.Microsecond) // as the database keeps it
	due, err := s.Ledger.TakeDeliveries(ctx, now, until, deliveryBatch, deliveryEach)
	if err != nil {
		return false, err
	}
	var (
		mu   sync.Mutex
		errs []error
		work sync.WaitGroup
		slot = make(chan struct{}, deliveryAtOnce)
	)
	for i := range due {
		slot <- struct{}{}
		work.Go(func() {
			defer func() { <-slot }()
			outcome, err := s.deliver(ctx, &due[i], now, until)
			if outcome != "" {
				note(outcome)
			}
			if err != nil && ctx.Err() == nil {
				mu.Lock()
				errs = append(errs, fmt.Errorf("message %s: %w", due[i].ID, err))
				mu.Unlock()
			}
		})
	}
	work.Wait()
	return len(due) > 0, errors.Join(errs...)
}

// ForgetWebhookMessages removes messages that have been over for a month.
func (s *Service) ForgetWebhookMessages(ctx context.Context) error {
	now, err := s.Clock(ctx, s.Ledger.DB())
	if err != nil {
		return err
	}
	return s.Ledger.ForgetDeliveries(ctx, now.Add(-deliveryKept))
}

// deliver makes one attempt and writes what became of it.
func (s *Service) deliver(ctx context.Context, d *job.Delivery, now, held time.Time) (outcome string, err error) {
	ctx = db.WithOrg(ctx, d.OrgID)
	w, err := s.Ledger.Webhook(ctx, s.Ledger.DB(), d.OrgID, d.WebhookID)
	if errors.Is(err, ledger.ErrNotFound) {
		return "", nil // it was deleted, and its messages with it
	}
	if err != nil {
		return "", err
	}
	body, err := messageBody(d)
	if err != nil {
		return "", err
	}
	keys, err := s.signingSecrets(ctx, w, now)
	var failed error
	switch {
	case errors.Is(err, secrets.ErrNotFound):
		failed = errors.New("its secret is gone; give it another one with rotate-secret")
	case err != nil:
		return "", err // the hold ends by itself
	default:
		d.Code, failed = s.Webhooks.Sender.Send(ctx, webhook.Message{ID: d.ID, URL: w.URL, Body: body, Secrets: keys}, s.Now())
	}
	if ctx.Err() != nil {
		return "", nil //nolint:nilerr // the process ends: whoever takes it next sends it again
	}
	d.Attempts++
	d.Status, d.Error, d.NextAt, outcome = job.DeliveryDone, "", nil, "delivered"
	if failed != nil {
		d.Error = failed.Error()
		d.Status, outcome = job.DeliveryFailed, "failed"
		if d.Attempts <= len(deliveryWaits) && d.Code != http.StatusGone {
			wait := deliveryWaits[d.Attempts-1]
			next := now.Add(wait + time.Duration(rand.Int64N(int64(wait)/10+1))) // it spreads load, and guards nothing
			d.Status, d.NextAt, outcome = job.DeliveryPending, &next, "retried"
		}
	}
	return outcome, s.endAttempt(ctx, w, d, failed != nil, now, held)
}

// signingSecrets are what a message is signed with now.
func (s *Service) signingSecrets(ctx context.Context, w *job.Webhook, now time.Time) ([]string, error) {
	if s.Webhooks.Secrets == nil {
		return nil, errors.New("the secret store of this process is closed")
	}
	ids := []string{currentSecret(w.ID)}
	if w.BeforeUntil != nil && now.Before(*w.BeforeUntil) {
		ids = append(ids, earlierSecret(w.ID))
	}
	var out []string
	for _, id := range ids {
		secret, err := s.Webhooks.Secrets.Get(ctx, s.Ledger.DB(), w.OrgID, id)
		if err != nil {
			return nil, err
		}
		out = append(out, string(secret))
	}
	return out, nil
}

// endAttempt writes what became of an attempt, and what it says of its webhook: one
// that has taken nothing for days, or says that it is gone, is switched off.
func (s *Service) endAttempt(ctx context.Context, w *job.Webhook, d *job.Delivery, failed bool, now, held time.Time) error {
	ctx = access.With(ctx, access.System(d.OrgID, WebhookActor))
	return s.Ledger.DB().InTx(ctx, func(ctx context.Context, tx db.Q) error {
		off := ""
		// The webhook's row is locked before the message's, as everywhere.
		if failed != (w.FailingFrom != nil) || failed && (now.Sub(*w.FailingFrom) >= offAfter || d.Code == http.StatusGone) {
			_, err := s.Ledger.ChangeWebhook(ctx, tx, d.OrgID, w.ID, func(w *job.Webhook) error {
				off = judgeWebhook(w, d, failed, now)
				return nil
			})
			if err != nil {
				return err
			}
		}
		if _, err := s.Ledger.EndAttempt(ctx, tx, d, held); err != nil || off == "" {
			return err
		}
		p, _ := access.From(ctx)
		return audit.Append(ctx, tx, s.entry(ctx, p, audit.Entry{Action: "webhook:disable", ResourceType: "webhook", ResourceID: w.ID, Detail: map[string]any{"reason": off}}, access.WebhookManage, audit.Allowed))
	})
}

// judgeWebhook notes how an attempt went with its webhook, and says why it is
// switched off for that; "" if it is not.
func judgeWebhook(w *job.Webhook, d *job.Delivery, failed bool, now time.Time) (off string) {
	if !failed {
		w.FailingFrom = nil
		return ""
	}
	if w.FailingFrom == nil {
		w.FailingFrom = &now
	}
	switch {
	case !w.Enabled:
		return ""
	case d.Code == http.StatusGone:
		off = "the receiver answered 410: it is gone"
	case now.Sub(*w.FailingFrom) >= offAfter:
		off = fmt.Sprintf("nothing could be delivered since %s; the last time: %s", w.FailingFrom.UTC().Format(time.RFC3339), d.Error)
	default:
		return ""
	}
	w.Enabled, w.DisabledFor = false, off
	return off
}
