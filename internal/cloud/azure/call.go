package azure

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/pipeline"
)

type policyFunc func(*policy.Request) (*http.Response, error)

func (f policyFunc) Do(req *policy.Request) (*http.Response, error) { return f(req) }

// flight is what one call knows of its own attempts.
type flight struct {
	service, op string
	mutating    bool
	sent        bool // an attempt may have reached the cloud
	attempts    int
}

// ask asks the gate whether the call may go on; nil means that it may.
func (f *flight) ask(ctx context.Context) *pipeline.CloudError {
	err := pipeline.Allow(ctx, pipeline.Call{Service: f.service, Op: f.op, Mutating: f.mutating})
	if err == nil {
		return nil
	}
	return &pipeline.CloudError{Class: pipeline.Refused, Service: f.service, Op: f.op, Message: err.Error(), Sent: f.sent, Err: err}
}

const resourcesProvider = "Microsoft.Resources"

// action names a request as Azure's roles do ("Azure resource provider
// operations"): the provider, and the type with what is done to it.
func action(method, path string) (service, op string) {
	service = resourcesProvider
	segments := strings.Split(strings.Trim(path, "/"), "/")
	if i := slices.Index(segments, "secrets"); i >= 0 && !slices.Contains(segments, "providers") {
		// A vault itself is asked, not Resource Manager.
		service, segments = vaultProvider, append([]string{"", "vaults", ""}, segments[i:min(i+2, len(segments))]...)
	}
	for i := len(segments) - 2; i >= 0; i-- {
		if strings.EqualFold(segments[i], "providers") {
			service, segments = segments[i+1], append([]string{""}, segments[i+2:]...)
			break
		}
	}
	// What is left are pairs of type and name; a lone word at the end is a list
	// or, in a POST, an action.
	if len(segments) > 0 && segments[0] == "" {
		segments = segments[1:]
	} else if len(segments) > 2 {
		segments = segments[2:] // without the subscription
	}
	if method == http.MethodPost && len(segments) > 0 {
		return service, strings.Join(append(evens(segments[:len(segments)-1]), segments[len(segments)-1], "action"), "/")
	}
	verb := map[string]string{http.MethodGet: "read", http.MethodHead: "read", http.MethodDelete: "delete"}[method]
	if verb == "" {
		verb = "write"
	}
	return service, strings.Join(append(evens(segments), verb), "/")
}

func evens(segments []string) []string {
	var out []string
	for i := 0; i < len(segments); i += 2 {
		out = append(out, segments[i])
	}
	return out
}

// readByPost are the actions that change nothing: the health of a rule, where a
// cluster's API server answers, whether a name is free, the keys of a cache.
var readByPost = []string{
	"Microsoft.Network/loadBalancers/loadBalancingRules/health/action",
	"Microsoft.ContainerService/managedClusters/listClusterUserCredential/action",
	"Microsoft.DBforPostgreSQL/locations/checkNameAvailability/action",
	"Microsoft.DBforMySQL/locations/checkNameAvailability/action",
	"Microsoft.KeyVault/checkNameAvailability/action",
	"Microsoft.Cache/redisEnterprise/databases/listKeys/action",
}

// calls is what all calls of one account share.
type calls struct {
	opts    Options
	limits  *limits
	refused *atomic.Bool
	renew   func(ctx context.Context, began time.Time) // makes refused credentials anew
}

// call is the outermost layer: one span, one count, one classified error a call.
func (c *calls) call(req *policy.Request) (*http.Response, error) {
	raw := req.Raw()
	f := &flight{}
	f.service, f.op = action(raw.Method, raw.URL.Path)
	f.mutating = !reads(raw.Method, f.service, f.op)
	req.SetOperationValue(f)
	ctx, span := otel.Tracer("github.com/zopday/provisioner/internal/cloud/azure").Start(raw.Context(), f.service+"/"+f.op,
		trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(
			attribute.String("rpc.system", "azure-arm"), attribute.String("rpc.service", f.service),
			attribute.String("rpc.method", f.op), attribute.Bool("zopday.mutating", f.mutating)))
	defer span.End()

	start := time.Now()
	resp, ce := c.tries(req.WithContext(ctx), f)
	if f.mutating && f.sent {
		lookup.Changed(ctx)
	}
	var class pipeline.Class
	if ce != nil {
		class = ce.Class
		span.SetStatus(codes.Error, string(class))
		span.SetAttributes(attribute.String("zopday.class", string(class)), attribute.String("azure.error_code", ce.Code))
		if class == pipeline.Expired {
			c.refused.Store(true)
		}
	}
	span.SetAttributes(attribute.Int("zopday.attempts", f.attempts))
	if c.opts.Observe != nil {
		c.opts.Observe(f.service, f.op, f.mutating, class, time.Since(start))
	}
	if ce != nil {
		return nil, explain(ce)
	}
	return resp, nil
}

// tries sends a call until it is answered, or may not be repeated.
func (c *calls) tries(req *policy.Request, f *flight) (*http.Response, *pipeline.CloudError) {
	ctx := req.Raw().Context()
	began, renewed := time.Now(), false
	for attempt := 1; ; attempt++ {
		resp, ce := c.attempt(ctx, req, f)
		if ce == nil {
			return resp, nil
		}
		if ce.Class == pipeline.Expired && f.sent && !renewed {
			// A read is asked again at once with a fresh token; what changes something
			// comes up, and the job waits for credentials (failure kinds I1, I2).
			renewed = true
			c.renew(ctx, began)
			if !f.mutating {
				continue
			}
		}
		wait := backoff(attempt, ce)
		if attempt == maxAttempts || wait > maxBackoff || !repeatable(ce, f.mutating) {
			return nil, ce
		}
		select {
		case <-ctx.Done():
			return nil, ce
		case <-time.After(c.opts.Pace.Real(wait)):
		}
	}
}

// attempt is one try: rate limit, gate, request, meaning of the answer.
func (c *calls) attempt(ctx context.Context, req *policy.Request, f *flight) (*http.Response, *pipeline.CloudError) {
	if err := c.limits.wait(ctx, f.mutating); err != nil {
		return nil, &pipeline.CloudError{Class: pipeline.Throttled, Service: f.service, Op: f.op, Message: "no turn under the client's own rate limit: " + err.Error(), Sent: f.sent, Err: err}
	}
	if refused := f.ask(ctx); refused != nil {
		return nil, refused
	}
	f.attempts++
	before := f.sent
	resp, err := req.Next()
	if err == nil {
		err = readable(resp, req.Raw().Method)
	}
	if err == nil && resp.StatusCode < 400 {
		return resp, nil
	}
	ce := classify(f, req.Raw(), resp, err)
	if !ce.Sent && !before {
		f.sent = false // the connection was never made, and no earlier attempt left either
	}
	return nil, ce
}

// repeatable reports whether the same call may be sent again. A read may always
// be repeated when the cloud faltered; a change only if the answer proves that
// nothing happened.
func repeatable(ce *pipeline.CloudError, mutating bool) bool {
	if errors.Is(ce.Err, context.Canceled) {
		return false
	}
	switch ce.Class {
	case pipeline.Throttled:
		return true
	case pipeline.Unavailable:
		return !mutating || !ce.Sent
	}
	return false
}

// wire is the innermost layer: from here on the request may reach the cloud. The
// gate is asked once more: a token may have been fetched since the first time,
// and a slow authority, or a process that was stopped meanwhile, may have
// outlived the lease.
func wire(req *policy.Request) (*http.Response, error) {
	var f *flight
	if !req.OperationValue(&f) {
		return nil, errors.New("the call did not pass the client's policy")
	}
	if refused := f.ask(req.Raw().Context()); refused != nil {
		return nil, refused
	}
	f.sent = true
	return req.Next()
}

// errEmpty is an answer that says neither yes nor no.
var errEmpty = errors.New("the answer is empty")

// errMarkup is a web page where an answer should be, such as a proxy sends.
var errMarkup = errors.New("the answer is a web page")

// readable refuses answers of which an empty list or object would be made:
// nothing at all to a read, and the web page of something in between (failure
// kinds F8, H5).
func readable(resp *http.Response, method string) error {
	if resp.StatusCode >= 400 {
		return nil // classify reads it
	}
	body, err := runtime.Payload(resp)
	if err != nil {
		return err
	}
	body = bytes.TrimSpace(body)
	switch {
	case len(body) == 0 && method == http.MethodGet && resp.StatusCode == http.StatusOK:
		return errEmpty
	case bytes.HasPrefix(body, []byte("<")):
		return errMarkup
	}
	return nil
}
