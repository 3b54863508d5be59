package azure

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/zopday/provisioner/internal/sim"
)

// Invoke carries out an operation for the control API: no token, no books, no faults. The operation is a method (PUT, GET,
// PATCH, DELETE, POST) or ends in one of ARM's verbs (VirtualNetworks_CreateOrUpdate); params has the ID under "id", the body
// under "body" and, if it is not the newest, the api-version under "apiVersion". What it begins is done at once.
func (c *Cloud) Invoke(service, op, account, _ string, params map[string]any) (any, error) {
	method := op
	for suffix, m := range map[string]string{"_CreateOrUpdate": "PUT", "_Get": "GET", "_List": "GET", "_ListAll": "GET", "_Update": "PATCH", "_Delete": "DELETE"} {
		if strings.HasSuffix(op, suffix) {
			method = m
		}
	}
	p := doc(params)
	path := p.str("id")
	if path == "" {
		return nil, fmt.Errorf("params: id is needed: the ARM ID or path that the operation is about")
	}
	if service == directoryService {
		return c.invokeDirectory(method, path, p.sub("body"))
	}
	if account == "" {
		account = c.subscriptions()[0]
	}
	path = strings.ReplaceAll(path, "{subscriptionId}", account)
	body, err := json.Marshal(p.sub("body"))
	if err != nil {
		return nil, fmt.Errorf("params: body: %w", err)
	}
	u, err := url.Parse("https://localhost" + path)
	if err != nil {
		return nil, fmt.Errorf("params: id: %w", err)
	}
	r := c.newRequest(&http.Request{Method: strings.ToUpper(method), URL: u, Host: u.Host, Header: http.Header{}}, body)
	r.version, r.placed = p.str("apiVersion"), true
	for _, cl := range c.clients() {
		if c.owns(cl, r.subscription) {
			r.who = cl
		}
	}
	return c.invoke(service, r)
}

func (c *Cloud) invoke(service string, r *request) (any, error) {
	serveIt := c.resolveLocked(r)
	if serveIt == nil {
		return nil, c.unknown(r)
	}
	if service != "" && r.Service != service {
		return nil, fmt.Errorf("service: %s belongs to %s", r.path, r.Service)
	}
	if r.version == "" && r.kind != nil {
		r.version = r.kind.versions[len(r.kind.versions)-1]
	}
	ans, err := serveIt()
	if err != nil {
		return nil, err
	}
	for _, id := range r.Made {
		res := c.find(id)
		if res == nil || res.Operation == "" {
			continue
		}
		c.finish(c.shelves[c.kindOf(res.Type).service], res.Operation)
		if res = c.find(id); res != nil {
			ans.body = c.render(r, res)
		}
	}
	return ans.body, nil
}

// faulty renders a fault of kind error, throttle or raw.
func (c *Cloud) faulty(r *request, f *sim.Fault, isLogin bool) answer {
	var ans answer
	switch {
	case f.Kind == sim.FaultRaw:
		ans = answer{status: f.Status, code: f.Code, header: http.Header{}, raw: []byte(f.Body)}
		if ans.status == 0 {
			ans.status = http.StatusOK
		}
	case isLogin:
		e := &loginError{http.StatusServiceUnavailable, "temporarily_unavailable", 90033, "A transient error has occurred. Please try again."}
		e.overlay(f)
		ans = e.answer(r)
	case f.Kind == sim.FaultThrottle:
		ans = c.throttled(r, f).answer()
	default:
		e := refuse(http.StatusInternalServerError, "InternalServerError", "An error occurred.")
		if f.Code != "" {
			e.Status = http.StatusBadRequest
		}
		overlay(e, f)
		if r.kind != nil && r.kind.bareErrors {
			e.Bare = true
		}
		ans = e.answer()
	}
	if f.ContentType != "" {
		ans.header.Set("Content-Type", f.ContentType)
	}
	if f.RetryAfter != "" {
		ans.header.Set("Retry-After", f.RetryAfter)
	}
	return ans
}

// throttled is ARM's refusal of too many requests ("Understand how Azure Resource Manager throttles requests").
func (c *Cloud) throttled(r *request, f *sim.Fault) *Error {
	what, title := "read", "Reads"
	switch {
	case r.method == http.MethodDelete:
		what, title = "delete", "Deletes"
	case r.Mutating:
		what, title = "write", "Writes"
	}
	wait := f.RetryAfter
	if wait == "" {
		wait = "17"
	}
	e := refuseARM(http.StatusTooManyRequests, "SubscriptionRequestsThrottled",
		"Number of '%s' requests for subscription '%s' actor '%s' exceeded. Please try again after '%s' seconds after additional tokens are available. Refer to https://aka.ms/arm-throttling for additional information.",
		what, r.subscription, r.who.ObjectID, wait)
	overlay(e, f)
	return e.header("Retry-After", wait).header("X-Ms-Ratelimit-Remaining-Subscription-"+title, "0")
}

func overlay(e *Error, f *sim.Fault) {
	if f.Code != "" {
		e.Code = f.Code
	}
	if f.Message != "" {
		e.Message = f.Message
	}
	if f.Status != 0 {
		e.Status = f.Status
	}
}
