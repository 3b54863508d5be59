package azure

import (
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// The states of an asynchronous operation ("Track asynchronous Azure operations").
const (
	statusInProgress = "InProgress"
	statusSucceeded  = "Succeeded"
	statusFailed     = "Failed"
)

// An Operation is asynchronous work on a resource.
type Operation struct {
	ID     string `json:"id"`
	Verb   string `json:"verb"` // put, delete, or the action's name
	Target string `json:"target"`
	// Type is the kind of the target: it says what the polling URLs look like.
	Type    string    `json:"type"`
	Name    string    `json:"name"` // as the provider calls it: PutSubnetOperation
	Status  string    `json:"status"`
	Error   *Error    `json:"error,omitempty"`
	Started time.Time `json:"started"`
	Ends    time.Time `json:"ends"`
	// Version is the api-version of the request that began it.
	Version    string `json:"version"`
	Location   string `json:"location"`
	RetryAfter int    `json:"retryAfter,omitempty"`
	Style      style  `json:"style"`
	// Properties is what the status document carries when the operation has succeeded; Result is what its Location answers.
	Properties any `json:"properties,omitempty"`
	Result     any `json:"result,omitempty"`
}

// A style says by which headers the caller is told where to ask for the end of an operation.
type style int

const (
	noHeader      style = iota // the caller asks for the resource itself
	asyncHeader                // Azure-AsyncOperation: a status document
	locationOnly               // Location: 202 until done, then the result
	asyncLocation              // both
)

// An outcome says how a write is answered and how long its work takes.
type outcome struct {
	status int
	// takes is how long the work lasts; zero: it is done already.
	takes time.Duration
	style style
	// retryAfter is the Retry-After of the answer, in seconds; zero: none.
	retryAfter int
	// state is the provisioningState meanwhile; empty leaves Succeeded.
	state string
	// idle: nothing changes but perhaps tags, so that the etag stays.
	idle bool
	// empty: the answer has no body.
	empty bool
	// body is the body, if it is not the resource.
	body any
	// properties and result end up in the operation's status document and at its Location.
	properties, result any
	header             http.Header
}

// begin starts the operation of an outcome and answers the headers that tell of it. An outcome without a style and
// without work has none.
func (c *Cloud) begin(r *request, res *Resource, verb string, out outcome) http.Header {
	h := http.Header{}
	maps.Copy(h, out.header)
	if out.style == noHeader && out.takes == 0 {
		return h
	}
	k := c.kindOf(res.Type)
	now := c.World.Now()
	op := &Operation{ID: c.World.UUID(), Verb: verb, Target: res.ID, Type: res.Type, Name: operationTitle(verb, k), Status: statusInProgress,
		Started: now, Ends: now.Add(out.takes), Version: r.version, Location: res.Location, RetryAfter: out.retryAfter, Style: out.style,
		Properties: out.properties, Result: out.result}
	if op.Location == "" {
		op.Location = c.locationOf(res)
	}
	s := c.shelves[k.service]
	s.state.Operations[op.ID] = op
	if out.takes > 0 {
		res.Operation = op.ID
		c.World.After(out.takes, "azure", k.service, "operation", op.ID)
	} else {
		op.Status = statusSucceeded
	}
	// Results can be asked for during a day.
	c.World.After(out.takes+24*time.Hour, "azure", k.service, "forget", op.ID)
	r.announce(h, op)
	return h
}

// operationTitle is how Microsoft.Network calls an operation in its texts: PutSubnetOperation.
func operationTitle(verb string, k *kind) string {
	noun := strings.TrimSuffix(k.title, "s")
	if strings.HasSuffix(k.title, "Addresses") {
		noun = strings.TrimSuffix(k.title, "es")
	}
	return strings.ToUpper(verb[:1]) + verb[1:] + strings.ReplaceAll(noun, "IP", "Ip") + "Operation"
}

// locationOf is where a nested resource is: its location is that of the resource it lies in.
func (c *Cloud) locationOf(res *Resource) string {
	for id := res.ID; id != ""; id = parentOf(id) {
		if r := c.find(id); r != nil && r.Location != "" {
			return r.Location
		}
		if _, ok := parseID(id); !ok {
			break
		}
	}
	return ""
}

// announce sets the headers by which an operation is followed.
func (r *request) announce(h http.Header, op *Operation) {
	k := r.cloud.kindOf(op.Type)
	async, result := k.pollPaths(op)
	if op.Style == asyncHeader || op.Style == asyncLocation {
		h.Set("Azure-AsyncOperation", r.base+versioned(async, op.Version))
	}
	if op.Style == locationOnly || op.Style == asyncLocation {
		h.Set("Location", r.base+versioned(result, op.Version))
	}
	if op.RetryAfter > 0 {
		h.Set("Retry-After", r.cloud.realSeconds(op.RetryAfter))
	}
}

// realSeconds is a number of simulated seconds in those of the caller's clock, one at least.
func (c *Cloud) realSeconds(n int) string {
	if c.World.Clock.Stopped() {
		return strconv.Itoa(n)
	}
	return strconv.Itoa(max(1, int(math.Ceil(float64(n)/c.World.Clock.Scale()))))
}

// versioned adds the api-version to a path that may have a query already.
func versioned(path, version string) string {
	sep := "?"
	if strings.Contains(path, "?") {
		sep = "&"
	}
	return path + sep + "api-version=" + url.QueryEscape(version)
}

// pollPaths are the paths of an operation's status document and of its result.
func (k *kind) pollPaths(op *Operation) (async, result string) {
	if k.polling != nil {
		return k.polling(op)
	}
	base := fmt.Sprintf("/subscriptions/%s/providers/%s/locations/%s/", subscriptionOf(op.Target), k.namespace(), op.Location)
	return base + "operations/" + op.ID, base + "operationResults/" + op.ID
}

// finish carries out the end of an operation.
func (c *Cloud) finish(s *shelf, id string) {
	op := s.state.Operations[id]
	if op == nil || op.Status != statusInProgress {
		return
	}
	op.Status = statusSucceeded
	res := s.state.Resources[key(op.Target)]
	if res == nil || res.Operation != id {
		return
	}
	k := c.kindOf(res.Type)
	res.Operation = ""
	if op.Verb == "delete" {
		if k.finishDelete != nil && !k.finishDelete(op, res) {
			return
		}
		c.drop(res)
		return
	}
	if res.State != "" {
		res.State = stateSucceeded
	}
	c.touch(res)
	if k.settled != nil {
		k.settled(op, res)
	}
}

// isPoll says whether a request asks for an operation, and whether for its result instead of its status.
func (c *Cloud) isPoll(r *request) (op *Operation, s *shelf, result, ok bool) {
	segs := strings.Split(strings.Trim(r.path, "/"), "/")
	if len(segs) < 4 {
		return nil, nil, false, false
	}
	word, id := strings.ToLower(segs[len(segs)-2]), segs[len(segs)-1]
	if !strings.Contains(word, "operation") {
		return nil, nil, false, false
	}
	// Microsoft.Compute has one path for both and says monitor=true.
	result = strings.Contains(word, "result") || r.query.Get("monitor") == "true"
	for _, name := range c.shelfNames() {
		if op := c.shelves[name].state.Operations[id]; op != nil {
			return op, c.shelves[name], result, true
		}
	}
	return nil, nil, result, true
}

// poll answers a question for an operation's status or result.
func (c *Cloud) poll(r *request, op *Operation, result bool) (answer, error) {
	if op == nil {
		return answer{}, refuse(http.StatusNotFound, "OperationNotFound", "The operation with id '%s' was not found.", lastOf(r.path))
	}
	r.Touch(op.Target)
	h := http.Header{}
	if result {
		return c.pollResult(r, op, h)
	}
	body := map[string]any{"status": op.Status}
	k := c.kindOf(op.Type)
	if k.stamped {
		body["name"], body["startTime"] = op.ID, stamp(op.Started)
		if op.Status != statusInProgress {
			body["endTime"] = stamp(op.Ends)
		}
	}
	if k.pollBody != nil {
		k.pollBody(r, op, h, body)
	}
	if n := k.pollAfter(op); n > 0 && k.retryAlways {
		h.Set("Retry-After", c.realSeconds(n))
	}
	switch op.Status {
	case statusInProgress:
		if k.poll202 {
			r.announce(h, op)
			return answer{status: http.StatusAccepted, header: h, body: body}, nil
		}
		if n := k.pollAfter(op); n > 0 {
			h.Set("Retry-After", c.realSeconds(n))
		}
	case statusSucceeded:
		if op.Properties != nil {
			body["properties"] = op.Properties
		}
		// An operation that another one has taken over from ends well, and says so all the same.
		if op.Error != nil {
			body["error"] = op.Error.inner()
		}
	default:
		if op.Error != nil {
			body["error"] = op.Error.inner()
		}
	}
	return answer{status: http.StatusOK, header: h, body: body}, nil
}

func (c *Cloud) pollResult(r *request, op *Operation, h http.Header) (answer, error) {
	switch op.Status {
	case statusInProgress:
		o := *op
		o.Style, o.RetryAfter = locationOnly, c.kindOf(op.Type).pollAfter(op)
		if op.Style == asyncLocation {
			o.Style = asyncLocation
		}
		r.announce(h, &o)
		return answer{status: http.StatusAccepted, header: h}, nil
	case statusSucceeded:
		if op.Result != nil {
			return answer{status: http.StatusOK, header: h, body: op.Result}, nil
		}
		k := c.kindOf(op.Type)
		if op.Verb == "delete" {
			return answer{status: k.deletedStatus(), header: h}, nil
		}
		if res := c.find(op.Target); res != nil && op.Verb == "put" {
			return answer{status: http.StatusOK, header: h, body: c.render(r, res)}, nil
		}
		return answer{status: http.StatusOK, header: h}, nil
	}
	if op.Error != nil {
		return answer{}, op.Error
	}
	return answer{}, refuse(http.StatusInternalServerError, "InternalServerError", "An error occurred.")
}

// stamp renders a time as ARM does.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.0000000Z") }
