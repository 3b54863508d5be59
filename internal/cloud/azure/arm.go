package azure

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"

	"github.com/zopday/provisioner/internal/cloud/lookup"
)

// apiVersions are those that the SDK's models of each provider are made from, by
// the front of the resource type. The longest front that fits counts.
var apiVersions = map[string]string{
	"":                            "2025-04-01", // Resource Manager itself: groups, providers, lists of resources
	"Microsoft.Resources/sub":     "2022-12-01", // the subscription itself
	"Microsoft.Resources/loc":     "2022-12-01", // its regions
	"Microsoft.Network/":          "2025-07-01",
	"Microsoft.Network/dnsZones":  "2018-05-01",
	"Microsoft.Network/privateDn": "2024-06-01",
	"Microsoft.Compute/":          "2026-04-01",
	"Microsoft.Compute/disks":     "2026-03-02",
	"Microsoft.Compute/skus":      "2021-07-01",
	"Microsoft.ManagedIdentity/":  "2024-11-30",
	"Microsoft.Authorization/":    "2022-04-01",
	"Microsoft.Authorization/loc": "2020-05-01", // locks
	"Microsoft.Insights/":         "2022-10-01",
}

var fronts = slices.SortedFunc(maps.Keys(apiVersions), func(a, b string) int { return len(b) - len(a) })

// apiVersion is the version by which a path is asked for.
func apiVersion(path string) string {
	service, op := action(http.MethodGet, path)
	typ := service + "/" + op
	for _, front := range fronts {
		if len(typ) >= len(front) && strings.EqualFold(typ[:len(front)], front) {
			return apiVersions[front]
		}
	}
	return apiVersions[""]
}

// request is one call: path is an ID or a path below Resource Manager's root,
// with a query or without, or a whole URL that Resource Manager gave.
func (p *Provider) request(ctx context.Context, method, path string, body any, header http.Header) (*http.Response, error) {
	target := path
	if !strings.Contains(path, "://") {
		target = p.arm.Endpoint() + path
	}
	u, err := url.Parse(target)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if q := u.Query(); q.Get("api-version") == "" {
		q.Set("api-version", apiVersion(u.Path))
		u.RawQuery = strings.ReplaceAll(q.Encode(), "+", "%20")
	}
	req, err := runtime.NewRequest(ctx, method, u.String())
	if err != nil {
		return nil, err
	}
	req.Raw().Header.Set("Accept", "application/json")
	for name, values := range header {
		req.Raw().Header[name] = values
	}
	if body != nil {
		if err := runtime.MarshalAsJSON(req, body); err != nil {
			return nil, fmt.Errorf("%s %s: %w", method, path, err)
		}
	}
	return p.arm.Pipeline().Do(req)
}

// get reads one thing; the error has class NotFound if there is none.
func (p *Provider) get(ctx context.Context, path string, into any) error {
	resp, err := p.request(ctx, http.MethodGet, path, nil, nil)
	if err != nil {
		return err
	}
	return runtime.UnmarshalAsJSON(resp, into)
}

// put makes or overwrites a resource, and answers what the cloud says of it
// then. The caller has looked before.
func put[T any](ctx context.Context, p *Provider, id string, body any, header http.Header) (resource[T], operation, error) {
	return send[T](ctx, p, http.MethodPut, id, body, header)
}

func send[T any](ctx context.Context, p *Provider, method, id string, body any, header http.Header) (resource[T], operation, error) {
	var out resource[T]
	resp, err := p.request(ctx, method, id, body, header)
	if err != nil {
		return out, operation{}, err
	}
	op := operationOf(resp)
	answer, err := runtime.Payload(resp)
	if err != nil || len(strings.TrimSpace(string(answer))) == 0 {
		return out, op, err
	}
	if err := json.Unmarshal(answer, &out); err != nil {
		return out, op, fmt.Errorf("%s: the answer cannot be read: %w", id, err)
	}
	return out, op, nil
}

// remove sends a DELETE; the resource goes away some time later.
func (p *Provider) remove(ctx context.Context, id string) (operation, error) {
	resp, err := p.request(ctx, http.MethodDelete, id, nil, nil)
	if err != nil {
		return operation{}, err
	}
	return operationOf(resp), nil
}

// list is every page of a list.
func list[T any](ctx context.Context, p *Provider, path string) ([]T, error) {
	return lookup.Pages(ctx, func(ctx context.Context, next *string) ([]T, *string, error) {
		at := path
		if next != nil {
			at = *next
		}
		var page struct {
			Value    []T     `json:"value"`
			NextLink *string `json:"nextLink"`
		}
		if err := p.get(ctx, at, &page); err != nil {
			return nil, nil, err
		}
		return page.Value, page.NextLink, nil
	})
}

// A resource is one thing at Resource Manager: what all have, and what the
// SDK's model of its kind has.
type resource[T any] struct {
	meta
	is T
}

// meta is what all resources have.
type meta struct {
	ID         string            `json:"id"`
	Name       string            `json:"name"`
	Type       string            `json:"type"`
	Location   string            `json:"location"`
	Tags       map[string]string `json:"tags"`
	Zones      []string          `json:"zones"`
	Etag       string            `json:"etag"`
	Properties struct {
		ProvisioningState string `json:"provisioningState"`
	} `json:"properties"`
}

// UnmarshalJSON reads both views of the same document.
func (r *resource[T]) UnmarshalJSON(b []byte) error {
	if err := json.Unmarshal(b, &r.meta); err != nil {
		return err
	}
	return json.Unmarshal(b, &r.is)
}

var _ policy.Policy = policyFunc(nil)
