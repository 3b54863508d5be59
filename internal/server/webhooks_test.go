package server

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/client"
	"github.com/zopday/provisioner/internal/webhook"
)

// TestWebhooks takes a message through the whole process: made over the API, written
// when a job is queued, delivered by the loop, signed.
func TestWebhooks(t *testing.T) {
	type message struct {
		header http.Header
		body   []byte
	}
	got := make(chan message, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // a cut body does not verify
		got <- message{r.Header.Clone(), body}
	}))
	defer receiver.Close()

	s := start(t, func(c *Config) { c.Workers, c.Edges.WebhookAllow = 0, []string{"127.0.0.0/8"} })
	c, err := client.New(client.Options{Server: s.URL(), Token: token})
	if err != nil {
		t.Fatal(err)
	}
	_, h, err := c.CreateWebhook(t.Context(), map[string]any{"name": "chat", "url": receiver.URL, "events": []string{"job.queued"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.CreateJob(t.Context(), []byte(`{"resourceType":"vm","provider":"aws","name":"shop","region":"us-east-1","submit":true}`), "k"); err != nil {
		t.Fatal(err)
	}
	select {
	case m := <-got:
		if err := webhook.Verify(m.header, m.body, h.Secret, time.Now()); err != nil {
			t.Error(err)
		}
		if !strings.Contains(string(m.body), `"type":"job.queued"`) || !strings.Contains(string(m.body), `"shop"`) {
			t.Errorf("%s", m.body)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("no message arrives")
	}
	for begun := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		_, items, _, err := c.ListDeliveries(t.Context(), h.ID, nil)
		if err == nil && len(items) == 1 && items[0].Status == "delivered" && items[0].Code == 200 {
			break
		}
		if time.Since(begun) > 10*time.Second {
			t.Fatalf("%+v %v", items, err)
		}
	}
	_, shown, err := c.GetWebhook(t.Context(), h.ID)
	if err != nil || shown.Secret != "" {
		t.Errorf("the secret is shown again, or: %v", err)
	}
	if _, err := Start(t.Context(), Config{Listen: "127.0.0.1:0", DB: t.TempDir() + "/a.db", Token: token, Edges: Edges{WebhookAllow: []string{"*"}}}); err == nil {
		t.Error("a list that allows nothing that there is starts")
	}
}
