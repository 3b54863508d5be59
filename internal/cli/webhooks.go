package cli

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/zopday/provisioner/internal/client"
	"github.com/zopday/provisioner/internal/job"
)

func (a *app) webhooksCmd() *cobra.Command {
	return nounCmd("webhooks", "Have messages about jobs sent, signed, to a receiver of yours",
		a.webhooksList(), a.webhooksCreate(), a.webhooksSwitch("enable", "Switch a webhook on", true), a.webhooksSwitch("disable", "Switch a webhook off; messages on their way end", false),
		a.webhooksDelete(), a.webhooksRotate(), a.webhooksTest(), a.webhooksDeliveries(), a.webhooksRedeliver())
}

func (a *app) webhooksList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List webhooks, the newest first", Args: args(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			ctx, cancel := a.request(cmd.Context())
			defer cancel()
			resp, items, _, err := c.ListWebhooks(ctx, nil)
			if err != nil {
				return err
			}
			if len(items) == 0 && !a.machine() {
				a.say("No webhooks yet: zopday webhooks create makes one.")
				return nil
			}
			return a.print(resp, func(w io.Writer) {
				t := table{head: []string{"NAME", "TO", "MESSAGES", "STATE", "ID"}}
				for _, h := range items {
					t.add(h.Name, h.URL, eventsOf(h), stateOfWebhook(h), h.ID)
				}
				t.write(w, a.tableTerm())
			})
		},
	}
}

func eventsOf(h client.Webhook) string {
	if len(h.Events) == 0 {
		return "all"
	}
	return strings.Join(h.Events, ",")
}

func stateOfWebhook(h client.Webhook) string {
	switch {
	case h.DisabledFor != "":
		return "off: " + h.DisabledFor
	case !h.Enabled:
		return "off"
	case h.FailingFrom != nil:
		return "failing since " + h.FailingFrom.UTC().Format("2006-01-02 15:04Z")
	}
	return "on"
}

func (a *app) webhooksCreate() *cobra.Command {
	var name, to string
	var events []string
	cmd := &cobra.Command{
		Use: "create", Short: "Have messages about jobs sent; the secret is shown once", Args: args(0, 0, ""),
		Long: withExamples("Have messages about jobs sent; the secret is shown once", "  zopday webhooks create --name chat --url https://example.com/hooks/zopday --event job.completed,job.failed"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			ctx, cancel := a.request(cmd.Context())
			defer cancel()
			resp, h, err := c.CreateWebhook(ctx, map[string]any{"name": name, "url": to, "events": append([]string{}, events...)})
			if err != nil {
				return err
			}
			return a.print(resp, func(w io.Writer) { showWebhookSecret(w, h) })
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "what it is called")
	cmd.Flags().StringVar(&to, "url", "", "`address` that messages are sent to, https://…")
	cmd.Flags().StringSliceVar(&events, "event", nil, "`type` of messages, such as job.failed; may be repeated; all if left out")
	completeFixed(cmd, "event", job.WebhookEvents()...)
	return cmd
}

func showWebhookSecret(w io.Writer, h client.Webhook) {
	fmt.Fprintf(w, "%s  %s\n%s\nThe secret is shown this once. docs/webhooks.md says how a receiver checks signatures with it.\n", h.Name, h.ID, h.Secret)
}

func (a *app) webhooksSwitch(use, short string, on bool) *cobra.Command {
	return a.webhookCmd(use, short, func(cmd *cobra.Command, c *client.Client, id string) error {
		ctx, cancel := a.request(cmd.Context())
		defer cancel()
		resp, h, err := c.PatchWebhook(ctx, id, map[string]any{"enabled": on})
		if err != nil {
			return err
		}
		return a.print(resp, func(w io.Writer) { fmt.Fprintf(w, "%s is %s\n", h.Name, stateOfWebhook(h)) })
	})
}

// webhookNames are the webhooks to choose from.
func (a *app) webhookNames(ctx context.Context, c *client.Client) ([]string, error) {
	_, all, _, err := c.ListWebhooks(ctx, few)
	var out []string
	for _, h := range all {
		out = append(out, clean(h.Name)+"\t"+clean(h.URL))
	}
	return out, err
}

// webhookID is the ID of a webhook that is given by its ID or its name. What is
// neither is left to the server to say.
func (a *app) webhookID(ctx context.Context, c *client.Client, ref string) (string, error) {
	if job.LooksLikeID(ref) {
		return ref, nil
	}
	q := url.Values{"limit": few["limit"]}
	for {
		rctx, cancel := a.request(ctx)
		_, all, next, err := c.ListWebhooks(rctx, q)
		cancel()
		if err != nil {
			return "", err
		}
		for _, h := range all {
			if h.Name == ref {
				return h.ID, nil
			}
		}
		if next == "" {
			return ref, nil
		}
		q.Set("cursor", next)
	}
}

// webhookCmd is a command about one webhook.
func (a *app) webhookCmd(use, short string, run func(cmd *cobra.Command, c *client.Client, id string) error) *cobra.Command {
	return &cobra.Command{
		Use: use + " WEBHOOK", Short: short, Args: args(1, 1, "a webhook: its ID or its name"), ValidArgsFunction: a.completeAt(a.webhookNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			id, err := a.webhookID(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			return run(cmd, c, id)
		},
	}
}

func (a *app) webhooksDelete() *cobra.Command {
	return a.webhookCmd("delete", "Delete a webhook, its messages and its secret", func(cmd *cobra.Command, c *client.Client, id string) error {
		ctx, cancel := a.request(cmd.Context())
		defer cancel()
		if _, err := c.DeleteWebhook(ctx, id); err != nil {
			return err
		}
		a.say("Deleted.")
		return nil
	})
}

func (a *app) webhooksRotate() *cobra.Command {
	return a.webhookCmd("rotate", "Give a webhook another secret; the one before signs too for 24 hours", func(cmd *cobra.Command, c *client.Client, id string) error {
		ctx, cancel := a.request(cmd.Context())
		defer cancel()
		resp, h, err := c.RotateWebhook(ctx, id)
		if err != nil {
			return err
		}
		return a.print(resp, func(w io.Writer) { showWebhookSecret(w, h) })
	})
}

func (a *app) webhooksTest() *cobra.Command {
	return a.webhookCmd("test", "Send a webhook a message, to see that it arrives", func(cmd *cobra.Command, c *client.Client, id string) error {
		ctx, cancel := a.request(cmd.Context())
		defer cancel()
		resp, d, err := c.TestWebhook(ctx, id)
		if err != nil {
			return err
		}
		return a.print(resp, func(w io.Writer) {
			fmt.Fprintf(w, "%s is on its way; zopday webhooks deliveries %s says what becomes of it\n", d.ID, id)
		})
	})
}

func (a *app) webhooksDeliveries() *cobra.Command {
	var limit int
	cmd := a.webhookCmd("deliveries", "List the messages of a webhook, the newest first", func(cmd *cobra.Command, c *client.Client, id string) error {
		ctx, cancel := a.request(cmd.Context())
		defer cancel()
		resp, items, _, err := c.ListDeliveries(ctx, id, url.Values{"limit": {strconv.Itoa(limit)}})
		if err != nil {
			return err
		}
		if len(items) == 0 && !a.machine() {
			a.say("No messages yet: zopday webhooks test sends one.")
			return nil
		}
		return a.print(resp, func(w io.Writer) {
			now := a.now()
			t := table{head: []string{"MESSAGE", "TYPE", "STATUS", "TRIES", "ANSWER", "AGE", "WHY"}}
			for _, d := range items {
				answer := ""
				if d.Code > 0 {
					answer = strconv.Itoa(d.Code)
				}
				t.add(d.ID, d.Type, string(d.Status), strconv.Itoa(d.Attempts), answer, age(d.CreatedAt, now), d.Error)
			}
			t.write(w, a.tableTerm())
		})
	})
	cmd.Flags().IntVar(&limit, "limit", 100, "messages, 1 to 500")
	return cmd
}

func (a *app) webhooksRedeliver() *cobra.Command {
	return &cobra.Command{
		Use: "redeliver WEBHOOK MESSAGE", Short: "Send a message that is over once more", Args: args(2, 2, "a webhook, by its ID or its name, and the message's ID"),
		ValidArgsFunction: a.completeAt(a.webhookNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			id, err := a.webhookID(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			ctx, cancel := a.request(cmd.Context())
			defer cancel()
			resp, d, err := c.Redeliver(ctx, id, args[1])
			if err != nil {
				return err
			}
			return a.print(resp, func(w io.Writer) { fmt.Fprintf(w, "%s is on its way again\n", d.ID) })
		},
	}
}
