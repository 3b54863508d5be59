package provision

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/ledger"
	"github.com/zopday/provisioner/internal/secrets"
	"github.com/zopday/provisioner/internal/webhook"
)

// mailroom is an office that has webhooks, with a receiver that follows the
// documentation: what is not signed rightly it does not take.
type mailroom struct {
	*office
	admin context.Context
	url   string

	mu      sync.Mutex
	answer  int
	secret  string
	bad     int
	got     []webhookMessage
	headers []http.Header
}

func newMailroom(t *testing.T, o *office) *mailroom {
	t.Helper()
	m := &mailroom{office: o, answer: 204}
	s := httptest.NewTLSServer(http.HandlerFunc(m.receive))
	t.Cleanup(s.Close)
	allow, err := webhook.ParseAllow([]string{"127.0.0.0/8"})
	if err != nil {
		t.Fatal(err)
	}
	keep, err := secrets.Open(o.ctx, o.Ledger.DB(), secrets.Source{File: filepath.Join(t.TempDir(), "key")})
	if err != nil {
		t.Fatal(err)
	}
	o.Webhooks = Webhooks{Secrets: keep, Sender: webhook.NewSender(webhook.Options{Allow: allow, UserAgent: "zopday/test", TLS: s.Client().Transport.(*http.Transport).TLSClientConfig.Clone()})}
	// The database writes the messages about jobs by its own clock.
	o.now = time.Now().Add(time.Minute)
	m.url = s.URL + "/hooks?token=of-the-receiver"
	m.admin = access.With(t.Context(), access.Of(officeOrg, "ana", access.Admin))
	return m
}

func (m *mailroom) receive(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	if err != nil || webhook.Verify(r.Header, body, m.secret, m.now) != nil {
		m.bad++
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	var got webhookMessage
	if json.Unmarshal(body, &got) != nil || got.ID != r.Header.Get(webhook.HeaderID) {
		m.bad++
	}
	m.got = append(m.got, got)
	m.headers = append(m.headers, r.Header.Clone())
	w.WriteHeader(m.answer)
}

func (m *mailroom) hook(t *testing.T, events ...string) *WebhookView {
	t.Helper()
	v, err := m.CreateWebhook(m.admin, WebhookRequest{Name: "chat", URL: m.url, Events: events})
	if err != nil {
		t.Fatal(err)
	}
	m.secret = v.Secret
	return v
}

// deliver sends what is due, until nothing is, and returns the types that arrived.
func (m *mailroom) deliver(t *testing.T) (types []string) {
	t.Helper()
	before := len(m.got)
	for range 20 {
		more, err := m.DeliverWebhooks(db.System(t.Context()), func(string) {})
		if err != nil {
			t.Fatal(err)
		}
		if !more {
			break
		}
	}
	for _, g := range m.got[before:] {
		types = append(types, g.Type)
	}
	return types
}

func (m *mailroom) deliveries(t *testing.T, id string) []job.Delivery {
	t.Helper()
	items, _, err := m.ListDeliveries(m.admin, id, "", 100, "")
	if err != nil {
		t.Fatal(err)
	}
	return items
}

func (m *mailroom) change(t *testing.T, id string, status job.Status, fail *job.Error) {
	t.Helper()
	_, err := m.Ledger.Change(m.admin, nil, officeOrg, id, func(j *job.Job, _ ledger.Standing) error {
		j.Status, j.Error = status, fail
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestWebhookMessages: what jobs come to arrives, signed, once each, with nothing of
// the job that is not for it.
func TestWebhookMessages(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, o *office) {
		m := newMailroom(t, o)
		v := m.hook(t, "job.failed", "job.completed", "job.running")
		j := o.finished(job.VM, "shop") // inserted as completed
		m.change(t, j.ID, job.Queued, nil)
		m.change(t, j.ID, job.Running, nil)
		m.change(t, j.ID, job.Running, nil)
		m.change(t, j.ID, job.Failed, &job.Error{Code: "quota-exceeded", Message: "canary-of-the-cloud"})
		got := m.deliver(t)
		slices.Sort(got) // they are on their way side by side
		if strings.Join(got, " ") != "job.completed job.failed job.running" {
			t.Errorf("arrived: %s", got)
		}
		if again := m.deliver(t); len(again) > 0 || m.bad > 0 {
			t.Errorf("once more: %q; %d were not genuine", again, m.bad)
		}
		last := ""
		for _, g := range m.got {
			if g.Type == "job.failed" {
				last = string(g.Data["job"])
			}
		}
		for _, has := range []string{j.ID, `"shop"`, `"failed"`, `"running"`, "quota-exceeded", "us-east-1"} {
			if !strings.Contains(last, has) {
				t.Errorf("the message does not say %s: %s", has, last)
			}
		}
		for _, d := range m.deliveries(t, v.ID) {
			if d.Status != job.DeliveryDone || d.Code != 204 || d.Attempts != 1 {
				t.Errorf("%+v", d)
			}
		}
		for _, secret := range []string{"canary", "t3.medium", "i-0000", "instanceType"} {
			if strings.Contains(last, secret) {
				t.Errorf("the message holds %s: %s", secret, last)
			}
		}
	})
}

// TestWebhookOutbox: a change that is rolled back leaves no message.
func TestWebhookOutbox(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, o *office) {
		m := newMailroom(t, o)
		v := m.hook(t)
		j := o.finished(job.VM, "shop")
		gone := errors.New("rolled back")
		err := o.Ledger.DB().InTx(m.admin, func(ctx context.Context, tx db.Q) error {
			if _, err := o.Ledger.Change(ctx, tx, officeOrg, j.ID, func(j *job.Job, _ ledger.Standing) error { j.Status = job.Queued; return nil }); err != nil {
				return err
			}
			return gone
		})
		if !errors.Is(err, gone) {
			t.Fatal(err)
		}
		if got := m.deliveries(t, v.ID); len(got) != 1 || got[0].Type != "job.completed" {
			t.Errorf("%+v", got)
		}
	})
}

// TestWebhookRetries: what is not taken is tried again for a day, under the same ID,
// and then given up; one that takes nothing for days is switched off.
func TestWebhookRetries(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, o *office) {
		m := newMailroom(t, o)
		v := m.hook(t)
		m.answer = 503
		began := m.now
		d, err := m.TestWebhook(m.admin, v.ID)
		if err != nil {
			t.Fatal(err)
		}
		for range 30 {
			m.deliver(t)
			got := m.deliveries(t, v.ID)[0]
			if got.NextAt == nil {
				break
			}
			if got.Status != job.DeliveryPending || got.Code != 503 || !strings.Contains(got.Error, "503") || !got.NextAt.After(m.now) {
				t.Fatalf("%+v", got)
			}
			m.now = *got.NextAt
		}
		got := m.deliveries(t, v.ID)[0]
		if got.Status != job.DeliveryFailed || got.Attempts != len(deliveryWaits)+1 || len(m.got) != got.Attempts {
			t.Errorf("%d arrived: %+v", len(m.got), got)
		}
		if took := m.now.Sub(began); took < 23*time.Hour || took > 28*time.Hour {
			t.Errorf("given up after %s", took)
		}
		for _, g := range m.got {
			if g.ID != d.ID {
				t.Errorf("attempts have the IDs %s and %s", d.ID, g.ID)
			}
		}
		// It is sent once more when somebody asks, and arrives.
		m.answer = 200
		if again, err := m.Redeliver(m.admin, v.ID, d.ID); err != nil || again.ID != d.ID {
			t.Fatalf("%+v %v", again, err)
		}
		m.now = m.now.Add(time.Second)
		if now := time.Now(); m.now.Before(now) {
			m.now = now.Add(time.Second)
		}
		m.deliver(t)
		w, err := m.GetWebhook(m.admin, v.ID)
		if got := m.deliveries(t, v.ID)[0]; err != nil || got.Status != job.DeliveryDone || w.FailingFrom != nil {
			t.Errorf("%+v %+v %v", got, w, err)
		}
	})
}

func TestWebhookSwitchedOff(t *testing.T) {
	for name, tc := range map[string]struct {
		answer int
		after  time.Duration
		says   string
	}{"days of failures": {500, offAfter + time.Hour, "500"}, "gone": {410, 0, "410"}} {
		t.Run(name, func(t *testing.T) {
			onBothDatabases(t, func(t *testing.T, o *office) {
				m := newMailroom(t, o)
				v := m.hook(t)
				m.answer = tc.answer
				for _, wait := range []time.Duration{0, tc.after} {
					m.now = m.now.Add(wait)
					if _, err := m.TestWebhook(m.admin, v.ID); err != nil {
						break // it is off already
					}
					m.deliver(t)
				}
				w, err := m.GetWebhook(m.admin, v.ID)
				if err != nil || w.Enabled || !strings.Contains(w.DisabledFor, tc.says) {
					t.Fatalf("%+v %v", w, err)
				}
				var r *Refusal
				if _, err := m.TestWebhook(m.admin, v.ID); !errors.As(err, &r) || r.Kind != WrongState {
					t.Errorf("a test of one that is off: %v", err)
				}
				n := len(m.deliveries(t, v.ID))
				o.finished(job.VM, "shop")
				if got := m.deliveries(t, v.ID); len(got) != n {
					t.Errorf("one that is off gets messages: %+v", got)
				}
				for _, d := range m.deliveries(t, v.ID) {
					if d.NextAt != nil {
						t.Errorf("a message is on its way still: %+v", d)
					}
				}
				if w, err = m.PatchWebhook(m.admin, v.ID, WebhookPatch{Enabled: new(true)}); err != nil || w.DisabledFor != "" || w.FailingFrom != nil {
					t.Errorf("%+v %v", w, err)
				}
			})
		})
	}
}

// TestWebhookRotation: during the overlap both secrets verify, afterwards the new one
// alone; the database never holds either in the clear.
func TestWebhookRotation(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, o *office) {
		m := newMailroom(t, o)
		v := m.hook(t)
		again, err := m.RotateWebhook(m.admin, v.ID)
		if err != nil || again.Secret == v.Secret || again.Secret == "" {
			t.Fatalf("%v", err)
		}
		for _, tc := range []struct {
			secret string
			after  time.Duration
			bad    int
		}{{v.Secret, 0, 0}, {again.Secret, time.Hour, 0}, {again.Secret, secretOverlap, 0}, {v.Secret, 0, 1}} {
			m.secret, m.now, m.bad = tc.secret, m.now.Add(tc.after), 0
			if _, err := m.TestWebhook(m.admin, v.ID); err != nil {
				t.Fatal(err)
			}
			m.deliver(t)
			if m.bad != tc.bad {
				t.Errorf("after %s: %d messages were not genuine, want %d", tc.after, m.bad, tc.bad)
			}
		}
		shown, err := m.GetWebhook(m.admin, v.ID)
		if err != nil || shown.Secret != "" {
			t.Error("the secret is shown again")
		}
	})
}

// TestWebhooksAreOneOrganisations: nobody sees another's, and who may not manage them
// does not see where they go.
func TestWebhooksAreOneOrganisations(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, o *office) {
		m := newMailroom(t, o)
		v := m.hook(t)
		other := access.With(t.Context(), access.Of("org_other", "otto", access.Admin))
		viewer := access.With(t.Context(), access.Of(officeOrg, "vera", access.Viewer))
		team := access.With(t.Context(), access.Principal{OrgID: officeOrg, Actor: "tia", Grants: []access.Grant{{Role: access.Admin, Scope: access.Scope{Kind: access.TeamScope, ID: "team_1"}, Policies: access.BuiltIn(access.Admin)}}})
		calls := map[string]func(ctx context.Context) error{
			"get": func(ctx context.Context) error { _, err := m.GetWebhook(ctx, v.ID); return err },
			"patch": func(ctx context.Context) error {
				_, err := m.PatchWebhook(ctx, v.ID, WebhookPatch{Enabled: new(false)})
				return err
			},
			"delete":     func(ctx context.Context) error { return m.DeleteWebhook(ctx, v.ID) },
			"rotate":     func(ctx context.Context) error { _, err := m.RotateWebhook(ctx, v.ID); return err },
			"test":       func(ctx context.Context) error { _, err := m.TestWebhook(ctx, v.ID); return err },
			"deliveries": func(ctx context.Context) error { _, _, err := m.ListDeliveries(ctx, v.ID, "", 10, ""); return err },
			"redeliver":  func(ctx context.Context) error { _, err := m.Redeliver(ctx, v.ID, "msg_1"); return err },
		}
		for name, call := range calls {
			var r *Refusal
			if err := call(other); !errors.As(err, &r) || r.Kind != NotFound {
				t.Errorf("%s by another organisation: %v", name, err)
			}
			if err := call(team); !errors.As(err, &r) || r.Kind != Forbidden {
				t.Errorf("%s by a team's admin: %v", name, err)
			}
			looks := name == "get" || name == "deliveries"
			if err := call(viewer); looks != (err == nil) || err != nil && (!errors.As(err, &r) || r.Kind != Forbidden) {
				t.Errorf("%s by a viewer: %v", name, err)
			}
		}
		shown, err := m.GetWebhook(viewer, v.ID)
		if err != nil || strings.Contains(shown.URL, "token") || strings.Contains(shown.URL, "hooks") {
			t.Errorf("a viewer sees %q: %v", shown.URL, err)
		}
		if items, _, err := m.ListWebhooks(other, 10, ""); err != nil || len(items) != 0 {
			t.Errorf("another organisation lists %d: %v", len(items), err)
		}
		if err := m.DeleteWebhook(m.admin, v.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := m.GetWebhook(m.admin, v.ID); err == nil {
			t.Error("it is there still")
		}
	})
}

func TestWebhookRefusals(t *testing.T) {
	o := newOffice(t, filepath.Join(t.TempDir(), "ledger.db"))
	m := newMailroom(t, o)
	m.hook(t)
	for name, r := range map[string]WebhookRequest{
		"no name":          {URL: m.url},
		"a taken name":     {Name: "chat", URL: m.url},
		"no address":       {Name: "a"},
		"a private one":    {Name: "a", URL: "https://10.0.0.1/"},
		"metadata":         {Name: "a", URL: "https://169.254.169.254/"},
		"an unknown event": {Name: "a", URL: m.url, Events: []string{"job.exploded"}},
		"an event twice":   {Name: "a", URL: m.url, Events: []string{"job.failed", "job.failed"}},
		"a million events": {Name: "a", URL: m.url, Events: make([]string, 1_000_000)},
	} {
		var refused *Refusal
		if _, err := m.CreateWebhook(m.admin, r); !errors.As(err, &refused) || len(refused.Fields) == 0 || len(refused.Fields) > maxFieldErrors+1 {
			t.Errorf("%s: %v", name, err)
		}
	}
	o.Webhooks.Secrets = nil
	var refused *Refusal
	if _, err := m.CreateWebhook(m.admin, WebhookRequest{Name: "a", URL: m.url}); !errors.As(err, &refused) || refused.Kind != WrongState {
		t.Errorf("without a secret store: %v", err)
	}
}
