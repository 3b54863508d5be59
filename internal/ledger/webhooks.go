package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
)

// ErrWebhookName is a second webhook of one name.
var ErrWebhookName = errors.New("another webhook has the name")

const webhookColumns = `id, org_id, name, url, events, enabled, disabled_for, failing_from, before_until, revision, created_by, created_at, updated_at`

func scanWebhook(row scanner) (job.Webhook, error) {
	var (
		w                job.Webhook
		events           string
		failing, before  *int64
		created, updated int64
	)
	if err := row.Scan(&w.ID, &w.OrgID, &w.Name, &w.URL, &events, &w.Enabled, &w.DisabledFor, &failing, &before, &w.Revision, &w.CreatedBy, &created, &updated); err != nil {
		return w, err
	}
	w.FailingFrom, w.BeforeUntil, w.CreatedAt, w.UpdatedAt = timePtr(failing), timePtr(before), fromMicros(created), fromMicros(updated)
	if err := json.Unmarshal([]byte(events), &w.Events); err != nil {
		return w, fmt.Errorf("webhook %s: events: %w", w.ID, err)
	}
	return w, nil
}

func eventsText(events []string) string {
	if len(events) == 0 {
		return "[]"
	}
	b, _ := json.Marshal(events) // strings can always be written
	return string(b)
}

// AddWebhook writes a new webhook; ErrWebhookName leaves the transaction usable.
func (l *Ledger) AddWebhook(ctx context.Context, q db.Q, w *job.Webhook) error {
	var created int64
	err := writable(q).QueryRow(ctx, `INSERT INTO webhooks (id, org_id, name, url, events, enabled, created_by, created_at, updated_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, `+l.now+`, `+l.now+`) ON CONFLICT DO NOTHING RETURNING created_at`,
		w.ID, w.OrgID, w.Name, w.URL, eventsText(w.Events), w.Enabled, w.CreatedBy).Scan(&created)
	if errors.Is(err, db.ErrNoRows) {
		return ErrWebhookName
	}
	if err != nil {
		return fmt.Errorf("webhook %s: %w", w.ID, err)
	}
	w.Revision, w.CreatedAt, w.UpdatedAt = 1, fromMicros(created), fromMicros(created)
	return nil
}

// Webhook reads one webhook.
func (l *Ledger) Webhook(ctx context.Context, q db.Q, org, id string) (*job.Webhook, error) {
	return l.webhook(ctx, q, org, id, "")
}

func (l *Ledger) webhook(ctx context.Context, q db.Q, org, id, lock string) (*job.Webhook, error) {
	w, err := scanWebhook(q.QueryRow(ctx, `SELECT `+webhookColumns+` FROM webhooks WHERE org_id = $1 AND id = $2`+lock, org, id))
	if errors.Is(err, db.ErrNoRows) {
		return nil, fmt.Errorf("webhook %s: %w", id, ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("webhook %s: %w", id, err)
	}
	return &w, nil
}

// Webhooks lists an organisation's webhooks, the newest first. after is the ID of the
// last one of the page before.
func (l *Ledger) Webhooks(ctx context.Context, org, after string, limit int) ([]job.Webhook, error) {
	c := conditions{}
	c.add("org_id = ?", org)
	if after != "" {
		c.add("id < ?", after) // IDs begin with their time
	}
	c.args = append(c.args, int64(limit))
	return gather(ctx, l.d, scanWebhook, fmt.Sprintf(`SELECT `+webhookColumns+` FROM webhooks WHERE %s ORDER BY id DESC LIMIT $%d`, &c, len(c.args)), c.args...)
}

// CountWebhooks is how many webhooks an organisation has.
func (l *Ledger) CountWebhooks(ctx context.Context, q db.Q, org string) (n int64, err error) {
	if err := q.QueryRow(ctx, `SELECT count(*) FROM webhooks WHERE org_id = $1`, org).Scan(&n); err != nil {
		return 0, fmt.Errorf("webhooks: %w", err)
	}
	return n, nil
}

// ChangeWebhook locks a webhook, lets fn edit it, and writes it back. One that is
// switched off gets no more messages, and those that are on their way end.
func (l *Ledger) ChangeWebhook(ctx context.Context, q db.Q, org, id string, fn func(*job.Webhook) error) (*job.Webhook, error) {
	w, err := l.webhook(ctx, q, org, id, db.ForUpdate(q.Dialect()))
	if err != nil {
		return nil, err
	}
	was := *w
	if err := fn(w); err != nil {
		return nil, err
	}
	if w.Name != was.Name {
		var other string
		err := q.QueryRow(ctx, `SELECT id FROM webhooks WHERE org_id = $1 AND name = $2`, org, w.Name).Scan(&other)
		if err == nil {
			return nil, ErrWebhookName
		}
		if !errors.Is(err, db.ErrNoRows) {
			return nil, fmt.Errorf("webhook %s: %w", id, err)
		}
	}
	var updated int64
	err = writable(q).QueryRow(ctx, `UPDATE webhooks SET name = $3, url = $4, events = $5, enabled = $6, disabled_for = $7, failing_from = $8, before_until = $9, revision = $10, updated_at = `+l.now+`
		WHERE org_id = $1 AND id = $2 RETURNING updated_at`,
		org, id, w.Name, w.URL, eventsText(w.Events), w.Enabled, w.DisabledFor, micros(w.FailingFrom), micros(w.BeforeUntil), w.Revision).Scan(&updated)
	if db.Unique(err) {
		return nil, ErrWebhookName
	}
	if err == nil && was.Enabled && !w.Enabled {
		_, err = writable(q).Exec(ctx, `UPDATE webhook_deliveries SET status = 'failed', next_at = NULL, held_until = NULL, error = 'the webhook was switched off', updated_at = `+l.now+`
			WHERE org_id = $1 AND webhook_id = $2 AND next_at IS NOT NULL`, org, id)
	}
	if err != nil {
		return nil, fmt.Errorf("webhook %s: %w", id, err)
	}
	w.UpdatedAt = fromMicros(updated)
	return w, nil
}

// DeleteWebhook removes a webhook with all of its messages; one that is not there is
// no error. The webhook is locked before its messages, as in [Ledger.ChangeWebhook].
func (l *Ledger) DeleteWebhook(ctx context.Context, q db.Q, org, id string) error {
	if _, err := l.webhook(ctx, q, org, id, db.ForUpdate(q.Dialect())); err != nil {
		if errors.Is(err, ErrNotFound) {
			return nil
		}
		return err
	}
	if _, err := q.Exec(ctx, `DELETE FROM webhook_deliveries WHERE org_id = $1 AND webhook_id = $2`, org, id); err != nil {
		return fmt.Errorf("webhook %s: %w", id, err)
	}
	if _, err := q.Exec(ctx, `DELETE FROM webhooks WHERE org_id = $1 AND id = $2`, org, id); err != nil {
		return fmt.Errorf("webhook %s: %w", id, err)
	}
	return nil
}

const deliveryColumns = `id, org_id, webhook_id, type, body, status, attempts, next_at, code, error, created_at, updated_at`

func scanDelivery(row scanner) (job.Delivery, error) {
	var (
		d                                job.Delivery
		status                           string
		attempts, code, created, updated int64
		next                             *int64
	)
	err := row.Scan(&d.ID, &d.OrgID, &d.WebhookID, &d.Type, &d.Body, &status, &attempts, &next, &code, &d.Error, &created, &updated)
	d.Status, d.Attempts, d.NextAt, d.Code = job.DeliveryStatus(status), int(attempts), timePtr(next), int(code)
	d.CreatedAt, d.UpdatedAt = fromMicros(created), fromMicros(updated)
	return d, err
}

// Deliveries lists the messages of a webhook, the newest first.
func (l *Ledger) Deliveries(ctx context.Context, org, webhook string, status job.DeliveryStatus, after string, limit int) ([]job.Delivery, error) {
	c := conditions{}
	c.add("org_id = ?", org)
	c.add("webhook_id = ?", webhook)
	if status != "" {
		c.add("status = ?", string(status))
	}
	if after != "" {
		c.add("id < ?", after) // IDs begin with their time
	}
	c.args = append(c.args, int64(limit))
	return gather(ctx, l.d, scanDelivery, fmt.Sprintf(`SELECT `+deliveryColumns+` FROM webhook_deliveries WHERE %s ORDER BY id DESC LIMIT $%d`, &c, len(c.args)), c.args...)
}

// AddDelivery writes a message that is due at once. Those about jobs are written by
// the database itself, where a job changes its state.
func (l *Ledger) AddDelivery(ctx context.Context, q db.Q, org, webhook, typ, body string, at time.Time, random string) (*job.Delivery, error) {
	d, err := scanDelivery(writable(q).QueryRow(ctx, `INSERT INTO webhook_deliveries (id, org_id, webhook_id, type, body, status, next_at, created_at, updated_at)
		VALUES ($1, $2, $3, $4, $5, 'pending', $6, $6, $6) RETURNING `+deliveryColumns,
		fmt.Sprintf("msg_%014x%s", at.UnixMicro(), random), org, webhook, typ, body, at.UnixMicro()))
	if err != nil {
		return nil, fmt.Errorf("message of webhook %s: %w", webhook, err)
	}
	return &d, nil
}

// Redeliver makes a message that is over due again, as new; false: there is none such.
func (l *Ledger) Redeliver(ctx context.Context, q db.Q, org, webhook, id string) (*job.Delivery, bool, error) {
	d, err := scanDelivery(writable(q).QueryRow(ctx, `UPDATE webhook_deliveries SET status = 'pending', attempts = 0, next_at = `+l.now+`, held_until = NULL, error = '', code = 0, updated_at = `+l.now+`
		WHERE org_id = $1 AND webhook_id = $2 AND id = $3 AND next_at IS NULL RETURNING `+deliveryColumns, org, webhook, id))
	if errors.Is(err, db.ErrNoRows) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("message %s: %w", id, err)
	}
	return &d, true, nil
}

// TakeDeliveries takes messages of all organisations that are due for this process
// alone until a time: at most n, and of one webhook at most each, so that one that
// answers slowly does not hold up the others.
func (l *Ledger) TakeDeliveries(ctx context.Context, now, until time.Time, n, each int) ([]job.Delivery, error) {
	// A row that another process took meanwhile is looked at again by PostgreSQL, and
	// does not fit any more.
	return gather(ctx, writable(l.d), scanDelivery, `UPDATE webhook_deliveries SET held_until = $2 WHERE id IN (
			SELECT id FROM (SELECT d.id, d.next_at, row_number() OVER (PARTITION BY d.org_id, d.webhook_id ORDER BY d.next_at, d.id) AS place
				FROM webhook_deliveries AS d WHERE d.next_at <= $1 AND (d.held_until IS NULL OR d.held_until <= $1)) AS due
			WHERE place <= $4 ORDER BY next_at, id LIMIT $3)
		AND next_at <= $1 AND (held_until IS NULL OR held_until <= $1) RETURNING `+deliveryColumns, now.UnixMicro(), until.UnixMicro(), int64(n), int64(each))
}

// EndAttempt writes what became of an attempt, if the message is still held until
// then; next is nil when it is over.
func (l *Ledger) EndAttempt(ctx context.Context, q db.Q, d *job.Delivery, held time.Time) (kept bool, err error) {
	var id string
	err = writable(q).QueryRow(ctx, `UPDATE webhook_deliveries SET status = $3, attempts = $4, next_at = $5, code = $6, error = $7, held_until = NULL, updated_at = `+l.now+`
		WHERE id = $1 AND held_until = $2 AND next_at IS NOT NULL RETURNING id`,
		d.ID, held.UnixMicro(), string(d.Status), int64(d.Attempts), micros(d.NextAt), int64(d.Code), d.Error).Scan(&id)
	if errors.Is(err, db.ErrNoRows) {
		return false, nil // it was switched off, or taken over
	}
	if err != nil {
		return false, fmt.Errorf("message %s: %w", d.ID, err)
	}
	return true, nil
}

// ForgetDeliveries removes messages that are over and older than a time.
func (l *Ledger) ForgetDeliveries(ctx context.Context, before time.Time) error {
	if _, err := writable(l.d).Exec(ctx, `DELETE FROM webhook_deliveries WHERE next_at IS NULL AND created_at < $1`, before.UnixMicro()); err != nil {
		return fmt.Errorf("old messages of webhooks: %w", err)
	}
	return nil
}
