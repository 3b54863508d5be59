package job

import "time"

// A Webhook is where an organisation has messages about its jobs sent.
type Webhook struct {
	ID          string     `json:"id"`
	OrgID       string     `json:"-"`
	Name        string     `json:"name"`
	URL         string     `json:"url" doc:"Whole for who may manage webhooks; others see its host"`
	Events      []string   `json:"events" doc:"The types of messages that it gets; empty: all"`
	Enabled     bool       `json:"enabled"`
	DisabledFor string     `json:"disabledFor,omitempty" doc:"Why it was switched off, if no person did"`
	FailingFrom *time.Time `json:"failingFrom,omitempty" doc:"Since when no message has been delivered"`
	BeforeUntil *time.Time `json:"beforeUntil,omitempty" doc:"Until when messages carry a signature by the secret before, too"`
	Revision    int64      `json:"-"` // counts its secrets
	CreatedBy   string     `json:"createdBy"`
	CreatedAt   time.Time  `json:"createdAt"`
	UpdatedAt   time.Time  `json:"updatedAt"`
}

// WebhookEvents are the types of messages: a job has come into the state.
func WebhookEvents() []string {
	return []string{"job.queued", "job.running", "job.completed", "job.failed", "job.cancelled"}
}

// WebhookTest is the type of a message that a person asks for, to see that it arrives.
const WebhookTest = "webhook.test"

// A DeliveryStatus says how far a message has come.
type DeliveryStatus string

// The states of a message.
const (
	DeliveryPending DeliveryStatus = "pending"
	DeliveryDone    DeliveryStatus = "delivered"
	DeliveryFailed  DeliveryStatus = "failed"
)

// A Delivery is one message to one webhook, and what became of it. Its ID is the
// header webhook-id at every attempt.
type Delivery struct {
	ID        string         `json:"id" doc:"The header webhook-id, the same at every attempt"`
	OrgID     string         `json:"-"`
	WebhookID string         `json:"webhookId"`
	Type      string         `json:"type"`
	Body      string         `json:"-"` // what it says of its job, JSON
	Status    DeliveryStatus `json:"status" enum:"pending,delivered,failed"`
	Attempts  int            `json:"attempts"`
	NextAt    *time.Time     `json:"nextAt,omitempty" doc:"When it is tried next"`
	Code      int            `json:"code,omitempty" doc:"The HTTP status of the last answer"`
	Error     string         `json:"error,omitempty" doc:"Why the last attempt failed"`
	CreatedAt time.Time      `json:"createdAt"`
	UpdatedAt time.Time      `json:"updatedAt"`
}
