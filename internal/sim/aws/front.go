package aws

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

// maxBody is more than any request of these services may be.
const maxBody = 1 << 20

// maxSkew is how far the time of a signature may be off ("Signature Version 4: elements of a request signature").
const maxSkew = 5 * time.Minute

// credentialScope is what a SigV4 signature says about a request.
type credentialScope struct {
	accessKey, region, service string
	signed                     time.Time
	lasts                      time.Duration // of a presigned URL
}

func parseScope(r *http.Request) (credentialScope, bool) {
	var cs credentialScope
	cred, date := "", r.Header.Get("X-Amz-Date")
	if rest, ok := strings.CutPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 "); ok {
		for part := range strings.SplitSeq(rest, ",") {
			if v, ok := strings.CutPrefix(strings.TrimSpace(part), "Credential="); ok {
				cred = v
			}
		}
	} else if v := r.URL.Query().Get("X-Amz-Credential"); v != "" {
		cred, date = v, r.URL.Query().Get("X-Amz-Date")
		if n, err := strconv.Atoi(r.URL.Query().Get("X-Amz-Expires")); err == nil {
			cs.lasts = time.Duration(n) * time.Second
		}
	}
	parts := strings.Split(cred, "/")
	if len(parts) < 5 {
		return cs, false
	}
	n := len(parts)
	cs.accessKey = strings.Join(parts[:n-4], "/")
	cs.region, cs.service = parts[n-3], parts[n-2]
	if t, err := time.Parse("20060102T150405Z", date); err == nil {
		cs.signed = t
	}
	return cs, true
}

// findAPI says which service a request is for: by its signature, else by its target or path.
func (c *Cloud) findAPI(r *http.Request, cs credentialScope, form url.Values) *api {
	if a := c.apis[cs.service]; a != nil {
		if a.other != nil && form.Get("Version") == a.other.version {
			return a.other
		}
		return a
	}
	if target, _, ok := strings.Cut(r.Header.Get("X-Amz-Target"), "."); ok {
		for _, a := range c.apis {
			if a.sdkPrefix == target {
				return a
			}
		}
	}
	action, version := form.Get("Action"), form.Get("Version")
	if action != "" {
		names := make([]string, 0, len(c.apis))
		for n := range c.apis {
			names = append(names, n)
		}
		sort.Strings(names)
		for _, n := range names {
			a := c.apis[n]
			if a.protocol > queryProtocol {
				continue
			}
			if _, ok := a.ops[action]; ok && (version == "" || a.version == "" || a.version == version) {
				return a
			}
		}
	}
	for _, a := range c.apis {
		if a.route != nil && a.protocol != s3Protocol { // any path may be a bucket
			if _, ok := a.route(r); ok {
				return a
			}
		}
	}
	return nil
}

func readBody(rw http.ResponseWriter, r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(rw, r.Body, maxBody))
	if err != nil || r.Header.Get("Content-Encoding") != "gzip" {
		return body, err
	}
	// SDKs compress large request bodies of some operations ("Request compression", AWS SDKs reference guide).
	zr, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(zr, maxBody))
}

// ServeHTTP answers a request of any service.
func (c *Cloud) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	body, err := readBody(rw, r)
	if err != nil {
		http.Error(rw, "request body too large or unreadable", http.StatusRequestEntityTooLarge)
		return
	}
	form := r.URL.Query()
	if strings.HasPrefix(r.Header.Get("Content-Type"), "application/x-www-form-urlencoded") {
		posted, err := url.ParseQuery(string(body))
		if err != nil {
			http.Error(rw, "malformed form", http.StatusBadRequest)
			return
		}
		maps.Copy(form, posted)
	}
	cs, signed := parseScope(r)
	a := c.findAPI(r, cs, form)
	if a == nil {
		// A service that is not simulated still goes into the books, so that nobody wonders where a call went.
		call := &sim.Call{Cloud: "aws", Service: cs.service, Operation: guessOperation(r, form), Caller: cs.accessKey, Region: cs.region, Mutating: true}
		unknown := &api{service: cs.service, protocol: queryProtocol}
		if r.Header.Get("X-Amz-Target") != "" {
			unknown.protocol = jsonProtocol
		}
		call.Mutating = unknown.mutating(call.Operation)
		c.serve(rw, r, unknown, &request{Call: call, cloud: c, Form: form, Body: body, HTTP: r}, unknown.unknownOperation(call.Operation, ""))
		return
	}
	req := &request{Call: &sim.Call{Cloud: "aws", Service: a.service, Caller: cs.accessKey, Region: cs.region}, cloud: c, Form: form, Body: body, HTTP: r}
	req.Operation = operationName(a, r, form)
	req.Mutating = a.mutating(req.Operation)
	req.Params = a.redacted(r, form, body)
	req.Call.Touch(namedIn(form)...)
	if a.around != nil {
		a.around()
		defer a.around()
	}
	c.serve(rw, r, a, req, c.authenticate(a, req, cs, signed))
}

func guessOperation(r *http.Request, form url.Values) string {
	if _, op, ok := strings.Cut(r.Header.Get("X-Amz-Target"), "."); ok {
		return op
	}
	if op := form.Get("Action"); op != "" {
		return op
	}
	return r.Method + " " + r.URL.Path
}

func operationName(a *api, r *http.Request, form url.Values) string {
	if a.route != nil {
		if op, ok := a.route(r); ok {
			return op
		}
	}
	return guessOperation(r, form)
}

// namedIn picks the identifiers out of a query request: what it is about, as far as parameters tell.
func namedIn(form url.Values) []string {
	var ids []string
	for k, v := range form {
		last := k
		if i := strings.LastIndex(strings.TrimRight(k, ".0123456789"), "."); i >= 0 {
			last = k[i+1:]
		}
		last = strings.TrimRight(last, ".0123456789")
		if len(v) > 0 && len(v[0]) < 256 && (strings.HasSuffix(last, "Id") || strings.HasSuffix(last, "Arn") || strings.HasSuffix(last, "Name")) &&
			!strings.HasPrefix(k, "Filter") && !strings.HasPrefix(k, "Tag") {
			ids = append(ids, v[0])
		}
	}
	sort.Strings(ids)
	return ids
}

// paramText is the request as text, for faults to look for their match in.
func paramText(r *http.Request, form url.Values, body []byte) string {
	if len(form) == 0 {
		return r.Method + " " + r.URL.Path + " " + string(body)
	}
	keys := make([]string, 0, len(form))
	for k := range form {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	var b strings.Builder
	for _, k := range keys {
		fmt.Fprintf(&b, "%s=%s\n", k, strings.Join(form[k], ","))
	}
	if len(body) > 0 && r.Header.Get("X-Amz-Target") != "" {
		b.Write(body)
	}
	return b.String()
}

// authenticate says who calls, or why the call is refused before it is looked at.
func (c *Cloud) authenticate(a *api, r *request, cs credentialScope, signed bool) *Error {
	if !signed {
		return a.unsigned()
	}
	who, ok := c.identify(cs.accessKey)
	if !ok {
		return a.unknownKey()
	}
	r.Who, r.Account = who, who.Account
	if who.Role != "" {
		r.Caller = who.Role // the keys change whenever they are renewed
	}
	if now := time.Now().UTC(); cs.signed.IsZero() || cs.signed.Before(now.Add(-max(maxSkew, cs.lasts))) || cs.signed.After(now.Add(maxSkew)) {
		return a.skewed(cs.signed, now)
	}
	if !who.Expires.IsZero() && !c.World.Clock.Now().Before(who.Expires) {
		return a.expiredKey()
	}
	if _, ok := a.ops[r.Operation]; !ok {
		return a.unknownOperation(r.Operation, r.Form.Get("Version"))
	}
	if _, ok := regions[r.Region]; !ok {
		return a.unknownKey()
	}
	return nil
}

func (c *Cloud) identify(accessKey string) (Identity, bool) {
	if account, ok := c.opt.Keys[accessKey]; ok {
		return Identity{Account: account, AccessKey: accessKey}, true
	}
	if c.hooks.identify != nil {
		c.World.Lock()
		who, ok := c.hooks.identify(accessKey)
		c.World.Unlock()
		if ok {
			return who, true
		}
	}
	if c.opt.AnyKey != "" {
		return Identity{Account: c.opt.AnyKey, AccessKey: accessKey}, true
	}
	return Identity{}, false
}

// serve takes a decoded request through the world. early is a refusal that comes before everything but the books.
func (c *Cloud) serve(rw http.ResponseWriter, hr *http.Request, a *api, r *request, early *Error) {
	r.id = newRequestID()
	var ans answer
	exec := func() sim.Reply {
		ans = c.execute(a, r, early)
		return sim.Reply{Status: ans.status, Code: ans.code}
	}
	refuseIt := func(f *sim.Fault) sim.Reply {
		ans = a.faulty(r.id, f)
		return sim.Reply{Status: ans.status, Code: ans.code}
	}
	if c.World.Serve(hr.Context(), r.Call, exec, refuseIt) {
		panic(http.ErrAbortHandler)
	}
	breathe()
	h := rw.Header()
	maps.Copy(h, ans.header)
	if h.Get("Content-Type") == "" {
		h.Set("Content-Type", a.contentType())
	}
	h.Set("X-Amzn-Requestid", r.id)
	h.Set("Content-Length", strconv.Itoa(len(ans.body)))
	rw.WriteHeader(ans.status)
	// The caller has gone away if this fails; there is nobody to tell.
	_, _ = rw.Write(ans.body)
}

func (c *Cloud) execute(a *api, r *request, early *Error) answer {
	if early != nil {
		return a.renderError(r.id, early)
	}
	r.Actions = a.actions(r)
	if missing := c.World.Denied(r.Call); missing != "" {
		return a.renderError(r.id, a.denied(r, missing))
	}
	if a.protocol == ec2Protocol && r.Form.Get("DryRun") == "true" {
		return a.renderError(r.id, refuseStatus(412, "DryRunOperation", "Request would have succeeded, but DryRun flag is set."))
	}
	out, err := a.ops[r.Operation](r)
	if err == nil {
		var ans answer
		if ans, err = a.render(r, out); err == nil {
			a.link(r)
			return ans
		}
	}
	var e *Error
	if !errors.As(err, &e) {
		slog.Error("simulated AWS", "service", a.service, "operation", r.Operation, "error", err)
		e = refuseStatus(500, "InternalError", "An internal error has occurred")
	}
	return a.renderError(r.id, e)
}

// faulty renders a fault of kind error, throttle or raw.
func (a *api) faulty(id string, f *sim.Fault) answer {
	var ans answer
	switch f.Kind {
	case sim.FaultRaw:
		ans = answer{status: f.Status, code: f.Code, header: http.Header{}, body: []byte(f.Body)}
		if ans.status == 0 {
			ans.status = http.StatusOK
		}
	case sim.FaultThrottle:
		e := a.throttled()
		overlay(e, f)
		ans = a.renderError(id, e)
	default:
		e := refuseStatus(500, "InternalError", "An internal error has occurred")
		if a.protocol != ec2Protocol {
			e.Code = "InternalFailure"
		}
		if f.Code != "" {
			e.Status = 400
		}
		overlay(e, f)
		ans = a.renderError(id, e)
	}
	if f.ContentType != "" {
		ans.header.Set("Content-Type", f.ContentType)
	}
	if f.RetryAfter != "" {
		ans.header.Set("Retry-After", f.RetryAfter)
	}
	return ans
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

// Invoke carries out an operation for the control API: no signature, no books, no faults.
func (c *Cloud) Invoke(service, op, account, region string, params map[string]any) (any, error) {
	a := c.apis[service]
	if a == nil {
		return nil, fmt.Errorf("service: no simulated service %q", service)
	}
	run, ok := a.ops[op]
	if !ok {
		return nil, fmt.Errorf("operation: %s has no operation %q", service, op)
	}
	if account == "" {
		account = c.mainAccount()
	}
	if region == "" {
		region = "us-east-1"
	}
	if _, ok := regions[region]; !ok {
		return nil, fmt.Errorf("region: no region %q", region)
	}
	r := &request{Call: &sim.Call{Cloud: "aws", Service: service, Operation: op, Account: account, Region: region, Mutating: a.mutating(op)},
		cloud: c, Form: url.Values{}, Input: params, Who: Identity{Account: account}, id: newRequestID()}
	if err := r.setInput(a, params); err != nil {
		return nil, err
	}
	out, err := run(r)
	if err != nil || a.protocol != ec2Protocol {
		return out, err
	}
	doc, err := documentEC2(reflect.ValueOf(out))
	return json.RawMessage(doc), err
}

// breathe lets a moment pass before an answer goes out. The AWS SDK closes a request's body as soon as the answer is there,
// and its body then answers WriteTo with io.EOF; if net/http is still looking for surplus bytes at that moment, it takes
// the EOF for a failure and drops the connection under the answer. Across a real network nobody meets that.
func breathe() { time.Sleep(250 * time.Microsecond) }
