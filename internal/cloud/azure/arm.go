package azure

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/pipeline"
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
	"Microsoft.Insights/diag":     "2021-05-01-preview",
	"Microsoft.ContainerService/": "2026-04-01",
	"Microsoft.OperationalInsig":  "2025-07-01",
	"Microsoft.Insights/met":      "2018-01-01",
	"Microsoft.KeyVault/":         "2024-11-01",
	"Microsoft.DBforPostgreSQL/":  "2025-08-01",
	"Microsoft.DBforMySQL/":       "2024-12-30",
	"Microsoft.Cache/redis":       "2024-11-01", // the older product, which is only read
	"Microsoft.Cache/redisEnt":    "2025-07-01", // Managed Redis
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

// A reply is an answer that was read to its end.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// into reads a reply's body into a value.
func (r reply) into(v any) error {
	if err := json.Unmarshal(r.body, v); err != nil {
		return &pipeline.CloudError{Class: pipeline.Unavailable, Service: resourcesProvider, Op: "read", Message: "the answer cannot be read: " + err.Error(), Sent: true, Err: err}
	}
	return nil
}

// request is one call: path is an ID or a path below Resource Manager's root,
// with a query or without, or a whole URL that Resource Manager gave.
func (p *Provider) request(ctx context.Context, method, path string, body any, header http.Header) (reply, error) {
	target := path
	if !strings.Contains(path, "://") {
		target = p.arm.Endpoint() + path
	}
	u, err := url.Parse(target)
	if err != nil {
		return reply{}, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if !strings.HasPrefix(u.String(), p.arm.Endpoint()+"/") {
		// A link of an answer: the token goes to Resource Manager and to nobody else.
		return reply{}, fmt.Errorf("%s %s: not an address of %s", method, path, p.arm.Endpoint())
	}
	if q := u.Query(); q.Get("api-version") == "" {
		q.Set("api-version", apiVersion(u.Path))
		u.RawQuery = strings.ReplaceAll(q.Encode(), "+", "%20")
	}
	req, err := runtime.NewRequest(ctx, method, u.String())
	if err != nil {
		return reply{}, err
	}
	req.Raw().Header.Set("Accept", "application/json")
	maps.Copy(req.Raw().Header, header)
	if body != nil {
		if err := runtime.MarshalAsJSON(req, body); err != nil {
			return reply{}, fmt.Errorf("%s %s: %w", method, path, err)
		}
	}
	resp, err := p.arm.Pipeline().Do(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	text, err := runtime.Payload(resp)
	return reply{status: resp.StatusCode, header: resp.Header, body: text}, err
}

// get reads one thing; the error has class NotFound if there is none.
func (p *Provider) get(ctx context.Context, path string, v any) error {
	r, err := p.request(ctx, http.MethodGet, path, nil, nil)
	if err != nil {
		return err
	}
	return r.into(v)
}

// put makes or overwrites a resource, and answers what the cloud says of it
// then. The caller has looked before.
func put[T any](ctx context.Context, p *Provider, id string, body any, header http.Header) (resource[T], operation, error) {
	return send[T](ctx, p, http.MethodPut, id, body, header)
}

func send[T any](ctx context.Context, p *Provider, method, id string, body any, header http.Header) (resource[T], operation, error) {
	var out resource[T]
	r, err := p.request(ctx, method, id, body, header)
	if err != nil || len(bytes.TrimSpace(r.body)) == 0 {
		return out, operationOf(method, r), err
	}
	return out, operationOf(method, r), r.into(&out)
}

// remove sends a DELETE; the resource goes away some time later.
func (p *Provider) remove(ctx context.Context, id string) (operation, error) {
	r, err := p.request(ctx, http.MethodDelete, id, nil, nil)
	return operationOf(http.MethodDelete, r), err
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
