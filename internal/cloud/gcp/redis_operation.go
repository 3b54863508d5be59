package gcp

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"google.golang.org/api/redis/v1"

	"github.com/zopday/provisioner/internal/cloud/lookup"
)

// longRunning reads an operation of Memorystore or of Network Connectivity.
func (p *Provider) longRunning(ctx context.Context, service, name string) (longRunning, error) {
	var out longRunning
	if service == serviceMemorystore {
		return out, p.data.memorystore.do(ctx, http.MethodGet, name, nil, nil, &out)
	}
	if service == serviceConnectivity {
		return p.connectivityOperation(ctx, name)
	}
	op, err := send(ctx, p.data.redis.Projects.Locations.Operations.Get(name))
	if err != nil {
		return out, err
	}
	return redisOperation(op), nil
}

// longRunningOn are the operations of a service in the region.
func (p *Provider) longRunningOn(ctx context.Context, service string) ([]longRunning, error) {
	return lookup.Once(ctx, service+" operations", func(ctx context.Context) ([]longRunning, error) {
		if service == serviceConnectivity {
			return nil, nil // what it makes is there in seconds: the consistency window decides
		}
		return lookup.Pages(ctx, func(ctx context.Context, token *string) ([]longRunning, *string, error) {
			if service == serviceMemorystore {
				var page struct {
					Operations    []longRunning `json:"operations"`
					NextPageToken string        `json:"nextPageToken"`
				}
				err := p.data.memorystore.do(ctx, http.MethodGet, p.clusterParent()+"/operations", url.Values{"pageToken": {text(token)}}, nil, &page)
				return page.Operations, &page.NextPageToken, err
			}
			out, err := send(ctx, p.data.redis.Projects.Locations.Operations.List(p.clusterParent()).PageToken(text(token)))
			if err != nil {
				return nil, nil, err
			}
			var all []longRunning
			for _, op := range out.Operations {
				all = append(all, redisOperation(op))
			}
			return all, &out.NextPageToken, nil
		})
	})
}

// redisOperation is an operation of the generated client in the common form.
func redisOperation(op *redis.Operation) longRunning {
	out := longRunning{Name: op.Name, Done: op.Done}
	if len(op.Metadata) > 0 && json.Unmarshal(op.Metadata, &out.Metadata) != nil {
		out.Metadata.Verb = "" // nothing is known of it but whether it is done
	}
	if op.Error != nil {
		out.Error = &struct {
			Code    int64  `json:"code"`
			Message string `json:"message"`
		}{op.Error.Code, op.Error.Message}
	}
	return out
}
