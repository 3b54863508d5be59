package server

import (
	"context"
	"log/slog"
	"time"

	"github.com/zopday/provisioner/internal/observe"
	"github.com/zopday/provisioner/internal/provision"
	"github.com/zopday/provisioner/internal/webhook"
)

const (
	// deliveryTick is how often a process looks for messages that are due.
	deliveryTick = time.Second
	// forgetTick is how often it removes those that are old.
	forgetTick = time.Hour
)

// openWebhooks is what messages to webhooks stand on. What --webhook-allow says wrong
// stops the start.
func (s *Server) openWebhooks(c Config) (provision.Webhooks, error) {
	allow, err := webhook.ParseAllow(c.Edges.WebhookAllow)
	if err != nil {
		return provision.Webhooks{}, err
	}
	return provision.Webhooks{Secrets: s.secrets, Sender: webhook.NewSender(webhook.Options{Allow: allow, UserAgent: "zopday/" + c.Version.Version})}, nil
}

// deliver sends the messages of webhooks until the context ends. Every process does
// so, also one without workers.
func deliver(ctx context.Context, s *provision.Service, m *observe.Metrics, log *slog.Logger) {
	tick := time.NewTicker(deliveryTick)
	defer tick.Stop()
	forgot := time.Time{}
	for {
		more, err := s.DeliverWebhooks(ctx, m.WebhookAttempt)
		if err == nil && time.Since(forgot) > forgetTick {
			forgot = time.Now()
			err = s.ForgetWebhookMessages(ctx)
		}
		if err != nil && ctx.Err() == nil {
			log.WarnContext(ctx, "webhooks", "error", err)
		}
		if more && err == nil && ctx.Err() == nil {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
