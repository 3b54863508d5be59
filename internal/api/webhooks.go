package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/provision"
)

const tagWebhooks = "Webhooks"

// WebhookID is the path parameter of everything about one webhook.
type WebhookID struct {
	ID string `path:"id" maxLength:"80" doc:"The webhook's ID"`
}

type webhookOut struct {
	Status   int
	Location string `header:"Location" doc:"Where the webhook is found"`
	Body     Data[*provision.WebhookView]
}

func webhookAnswer(status int, v *provision.WebhookView) *webhookOut {
	return &webhookOut{Status: status, Location: "/webhooks/" + v.ID, Body: Data[*provision.WebhookView]{Data: v}}
}

var (
	seeWebhooks    = []access.Policy{access.WebhookView}
	manageWebhooks = []access.Policy{access.WebhookManage}
)

func (s *server) webhookRoutes() {
	type listIn struct {
		Limit  int    `query:"limit" minimum:"1" maximum:"500" default:"100" doc:"Webhooks a page"`
		Cursor string `query:"cursor" maxLength:"80" doc:"nextCursor of the page before"`
	}
	type listOut struct{ Body List[*provision.WebhookView] }
	route(s, huma.Operation{
		OperationID: "list-webhooks", Method: http.MethodGet, Path: "/webhooks", Tags: []string{tagWebhooks},
		Summary: "List webhooks", Description: "The newest first. Whole addresses are for who may manage webhooks.", Errors: []int{422},
	}, seeWebhooks, func(ctx context.Context, in *listIn) (*listOut, error) {
		items, next, err := s.Service.ListWebhooks(ctx, in.Limit, in.Cursor)
		if err != nil {
			return nil, err
		}
		return &listOut{listOf(items, next)}, nil
	})
	route(s, huma.Operation{
		OperationID: "get-webhook", Method: http.MethodGet, Path: "/webhooks/{id}", Tags: []string{tagWebhooks},
		Summary: "Get a webhook", Description: "With how it is doing: since when nothing was delivered, why it was switched off.", Errors: []int{404},
	}, seeWebhooks, func(ctx context.Context, in *WebhookID) (*webhookOut, error) {
		v, err := s.Service.GetWebhook(ctx, in.ID)
		if err != nil {
			return nil, err
		}
		return webhookAnswer(http.StatusOK, v), nil
	})
	s.webhookChangeRoutes()
	s.deliveryRoutes()
}

func (s *server) webhookChangeRoutes() {
	type createIn struct {
		RawBody []byte `contentType:"application/json"`
	}
	route(s, huma.Operation{
		OperationID: "create-webhook", Method: http.MethodPost, Path: "/webhooks", Tags: []string{tagWebhooks}, DefaultStatus: http.StatusCreated,
		Summary:     "Have messages about jobs sent",
		Description: "Each change of a job's state is one message, signed as the Standard Webhooks specification says and sent at least once. The secret is shown this once.",
		Errors:      []int{409, 413, 415, 422},
	}, manageWebhooks, func(ctx context.Context, in *createIn) (*webhookOut, error) {
		var r provision.WebhookRequest
		if err := s.decode(ctx, access.WebhookManage, "", in.RawBody, &r); err != nil {
			return nil, err
		}
		v, err := s.Service.CreateWebhook(ctx, r)
		if err != nil {
			return nil, err
		}
		return webhookAnswer(http.StatusCreated, v), nil
	})
	bodyOf[provision.WebhookRequest](s, "/webhooks", http.MethodPost)

	type patchIn struct {
		WebhookID
		RawBody []byte `contentType:"application/json"`
	}
	route(s, huma.Operation{
		OperationID: "patch-webhook", Method: http.MethodPatch, Path: "/webhooks/{id}", Tags: []string{tagWebhooks},
		Summary: "Change a webhook, or switch it off and on", Description: "Messages that are on their way to one that is switched off end.", Errors: []int{404, 409, 413, 415, 422},
	}, manageWebhooks, func(ctx context.Context, in *patchIn) (*webhookOut, error) {
		var r provision.WebhookPatch
		if err := s.decode(ctx, access.WebhookManage, in.ID, in.RawBody, &r); err != nil {
			return nil, err
		}
		v, err := s.Service.PatchWebhook(ctx, in.ID, r)
		if err != nil {
			return nil, err
		}
		return webhookAnswer(http.StatusOK, v), nil
	})
	bodyOf[provision.WebhookPatch](s, "/webhooks/{id}", http.MethodPatch)

	route(s, huma.Operation{
		OperationID: "delete-webhook", Method: http.MethodDelete, Path: "/webhooks/{id}", Tags: []string{tagWebhooks}, DefaultStatus: http.StatusNoContent,
		Summary: "Delete a webhook", Description: "With its messages and its secret.", Errors: []int{404},
	}, manageWebhooks, func(ctx context.Context, in *WebhookID) (*struct{}, error) {
		return nil, s.Service.DeleteWebhook(ctx, in.ID)
	})
	route(s, huma.Operation{
		OperationID: "rotate-webhook-secret", Method: http.MethodPost, Path: "/webhooks/{id}/rotate-secret", Tags: []string{tagWebhooks},
		Summary: "Give a webhook another secret", Description: "It is shown this once. For 24 hours messages carry two signatures, by it and by the one before.", Errors: []int{404, 409},
	}, manageWebhooks, func(ctx context.Context, in *WebhookID) (*webhookOut, error) {
		v, err := s.Service.RotateWebhook(ctx, in.ID)
		if err != nil {
			return nil, err
		}
		return webhookAnswer(http.StatusOK, v), nil
	})
}

func (s *server) deliveryRoutes() {
	type listIn struct {
		WebhookID
		Status string `query:"status" enum:"pending,delivered,failed"`
		Limit  int    `query:"limit" minimum:"1" maximum:"500" default:"100" doc:"Messages a page"`
		Cursor string `query:"cursor" maxLength:"80" doc:"nextCursor of the page before"`
	}
	type listOut struct{ Body List[job.Delivery] }
	type out struct {
		Status int
		Body   Data[*job.Delivery]
	}
	route(s, huma.Operation{
		OperationID: "list-webhook-deliveries", Method: http.MethodGet, Path: "/webhooks/{id}/deliveries", Tags: []string{tagWebhooks},
		Summary: "List the messages of a webhook", Description: "The newest first, for 30 days: how often each was tried, the status of the last answer, when it is tried next.", Errors: []int{404, 422},
	}, seeWebhooks, func(ctx context.Context, in *listIn) (*listOut, error) {
		items, next, err := s.Service.ListDeliveries(ctx, in.ID, job.DeliveryStatus(in.Status), in.Limit, in.Cursor)
		if err != nil {
			return nil, err
		}
		return &listOut{listOf(items, next)}, nil
	})
	route(s, huma.Operation{
		OperationID: "test-webhook", Method: http.MethodPost, Path: "/webhooks/{id}/test", Tags: []string{tagWebhooks}, DefaultStatus: http.StatusAccepted,
		Summary: "Send a webhook a message of the type webhook.test", Description: "It is sent within a second; its delivery says what became of it.", Errors: []int{404, 409},
	}, manageWebhooks, func(ctx context.Context, in *WebhookID) (*out, error) {
		d, err := s.Service.TestWebhook(ctx, in.ID)
		if err != nil {
			return nil, err
		}
		return &out{http.StatusAccepted, Data[*job.Delivery]{Data: d}}, nil
	})
	type oneIn struct {
		WebhookID
		Message string `path:"message" maxLength:"80" doc:"The message's ID"`
	}
	route(s, huma.Operation{
		OperationID: "redeliver-webhook-message", Method: http.MethodPost, Path: "/webhooks/{id}/deliveries/{message}/redeliver", Tags: []string{tagWebhooks}, DefaultStatus: http.StatusAccepted,
		Summary: "Send a message once more", Description: "Under the same webhook-id; one that is on its way still is not found.", Errors: []int{404, 409},
	}, manageWebhooks, func(ctx context.Context, in *oneIn) (*out, error) {
		d, err := s.Service.Redeliver(ctx, in.ID, in.Message)
		if err != nil {
			return nil, err
		}
		return &out{http.StatusAccepted, Data[*job.Delivery]{Data: d}}, nil
	})
}
