package azure

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/zopday/provisioner/internal/pipeline"
)

// A rule says what an error code means. The first rule that fits wins.
type rule struct {
	code   string // exact, or with * for anything
	saying string // part of the message, in lower case; "" for any
	class  pipeline.Class
}

// rules is the meaning of the error codes of Resource Manager and of the
// providers behind it, from "Resolve common Azure errors", "Troubleshoot common
// Azure Virtual Network errors" and answers of the services. A code of several
// meanings is told apart by its message; the details of an error count as much
// as the error, which often only says "bad request" or "a retryable error
// occurred" (failure kinds D11, H7).
var rules = []rule{
	// Nothing happened, come again later.
	{code: "TooManyRequests", class: pipeline.Throttled},
	{code: "*RequestsThrottled", class: pipeline.Throttled},
	{code: "*Throttled*", class: pipeline.Throttled},
	{code: "*", saying: "too many requests", class: pipeline.Throttled},

	// A fresh identity is not known everywhere at once (failure kinds D8, D11).
	{code: "PrincipalNotFound", class: pipeline.NotFound},
	{code: "ServicePrincipalNotFound", class: pipeline.NotFound},

	// Something is under way, or still uses it.
	{code: "ReferencedResourceNotProvisioned", class: pipeline.Busy},
	{code: "AnotherOperationInProgress", class: pipeline.Busy},
	{code: "RetryableError*", class: pipeline.Busy},
	{code: "ResourceGroupBeingDeleted", class: pipeline.Busy},
	{code: "*OperationInProgress", class: pipeline.Busy},
	{code: "*OperationNotAllowed*", saying: "marked for deletion", class: pipeline.Busy},
	{code: "ConflictingConcurrentWriteNotAllowed", class: pipeline.Busy},
	{code: "*Concurrent*", class: pipeline.Busy},
	{code: "CanceledAndSupersededDueToAnotherOperation", class: pipeline.Busy},
	{code: "OperationPreempted*", class: pipeline.Busy},
	{code: "NotLatestOperation", class: pipeline.Busy},
	{code: "ResourceNotReady", class: pipeline.Busy},
	{code: "OperationNotAllowed", saying: "in progress", class: pipeline.Busy},
	{code: "*Server*Busy*", class: pipeline.Busy}, // a flexible server takes one change at a time
	{code: "*ServerNotReady*", class: pipeline.Busy},
	{code: "ServerStateInvalid*", class: pipeline.Busy},
	{code: "EtagMismatch", class: pipeline.Busy},
	{code: "*InUse*", class: pipeline.Busy},
	{code: "*CannotBeDeleted*", class: pipeline.Busy},
	{code: "CannotDelete*", class: pipeline.Busy},
	{code: "*StillAttached*", class: pipeline.Busy},
	{code: "ResourceGroupDeletionBlocked", class: pipeline.Busy},

	{code: "*Quota*", class: pipeline.Quota},
	{code: "OperationNotAllowed", saying: "quota", class: pipeline.Quota},
	{code: "*LimitReached", class: pipeline.Quota},
	{code: "*LimitExceeded*", class: pipeline.Quota},
	{code: "*CountLimit*", class: pipeline.Quota},
	{code: "Max*Exceeded", class: pipeline.Quota},

	{code: "SkuNotAvailable", class: pipeline.Capacity},
	{code: "LocationIsOfferRestricted", class: pipeline.Capacity},
	{code: "ProvisionNotSupportedForRegion", class: pipeline.Capacity},
	{code: "*AllocationFailed", class: pipeline.Capacity},
	{code: "Overconstrained*Request", class: pipeline.Capacity},
	{code: "*CapacityNotAvailable*", class: pipeline.Capacity},
	{code: "SubnetIsFull", class: pipeline.Capacity},

	{code: "ReadOnlyDisabledSubscription", class: pipeline.Denied},
	{code: "RequestDisallowedBy*", class: pipeline.Denied},
	{code: "ScopeLocked", class: pipeline.Denied},
	{code: "MissingSubscriptionRegistration", class: pipeline.Denied},
	{code: "SubscriptionNotRegistered*", class: pipeline.Denied},
	{code: "*AuthorizationFailed", class: pipeline.Denied},
	{code: "LinkedAccessCheckFailed", class: pipeline.Denied},
	{code: "AuthorizationPermissionMismatch", class: pipeline.Denied},
	{code: "Forbidden", class: pipeline.Denied},

	{code: "ExpiredAuthenticationToken", class: pipeline.Expired},
	{code: "InvalidAuthenticationToken*", class: pipeline.Expired},
	{code: "AuthenticationFailed*", class: pipeline.Expired},
	{code: "Unauthorized", class: pipeline.Expired},

	// Wrong and staying wrong although it says "not found".
	{code: "SubscriptionNotFound", class: pipeline.Invalid},
	{code: "*ImageNotFound", class: pipeline.Invalid},
	{code: "NoRegisteredProviderFound", class: pipeline.Invalid},

	{code: "InvalidResourceReference", class: pipeline.NotFound}, // it may not be visible yet
	{code: "*NotFound", class: pipeline.NotFound},

	// A name that nothing visible has: it is global, or was given up a while ago
	// (failure kinds B4, B7).
	{code: "*NameNotAvailable*", class: pipeline.Exists},
	{code: "*NameUnavailable*", class: pipeline.Exists},
	{code: "ConflictError", saying: "being purged", class: pipeline.Busy},
	{code: "ConflictError", saying: "deleted", class: pipeline.Exists},
	{code: "*Exists", class: pipeline.Exists},
	{code: "*AlreadyExists*", class: pipeline.Exists},
	{code: "*AlreadyTaken", class: pipeline.Exists},
	{code: "InvalidResourceLocation", class: pipeline.Exists}, // a namesake in another location

	{code: "Internal*", class: pipeline.Unavailable},
	{code: "*InternalOperationError", class: pipeline.Unavailable},
	{code: "ServiceUnavailable", class: pipeline.Unavailable},
	{code: "Server*", class: pipeline.Unavailable},
	{code: "GatewayTimeout", class: pipeline.Unavailable},
	{code: "*TimedOut", class: pipeline.Unavailable},
	{code: "RequestTimeout", class: pipeline.Unavailable},

	// Wrong and staying wrong. The list is short on purpose: a code that is not
	// known, as Netcfg… often is, may clear when a parent has settled, and is
	// tried again a few times (failure kind H11).
	{code: "Invalid*", class: pipeline.Invalid},
	{code: "LocationNotAvailable*", class: pipeline.Invalid},
	{code: "Missing*", class: pipeline.Invalid},
	{code: "Malformed*", class: pipeline.Invalid},
	{code: "RequestContentInvalid", class: pipeline.Invalid},
	{code: "*NotSupported*", class: pipeline.Invalid},
	{code: "*Unsupported*", class: pipeline.Invalid},
	{code: "*NotAllowed", class: pipeline.Invalid},
	{code: "*NotPermitted", class: pipeline.Invalid},
	{code: "*Overlap*", class: pipeline.Invalid},
	{code: "ReservedResourceName", class: pipeline.Invalid},
	{code: "BadRequest", class: pipeline.Invalid},

	{code: "Conflict", class: pipeline.Busy},
}

func (r rule) fits(code, message string) bool {
	return (r.saying == "" || strings.Contains(message, r.saying)) && matches(r.code, code)
}

// matches compares with a pattern in which * stands for anything.
func matches(pattern, s string) bool {
	head, tail, star := strings.Cut(pattern, "*")
	if !star {
		return s == pattern
	}
	if !strings.HasPrefix(s, head) {
		return false
	}
	for s = s[len(head):]; ; s = s[1:] {
		if matches(tail, s) {
			return true
		}
		if s == "" {
			return false
		}
	}
}

// A fault is an error as Resource Manager writes it, in an answer or as the end
// of an operation ("Common API details: error response").
type fault struct {
	Code    string  `json:"code"`
	Message string  `json:"message"`
	Details []fault `json:"details"`
}

// all is the error and everything it holds.
func (f fault) all() []fault {
	out := []fault{f}
	for _, d := range f.Details {
		out = append(out, d.all()...)
	}
	return out
}

// text is the messages of the error and of what it holds, each once.
func (f fault) text() string {
	var parts []string
	for _, d := range f.all() {
		if d.Message != "" && !strings.Contains(strings.Join(parts, " "), d.Message) {
			parts = append(parts, d.Message)
		}
	}
	return strings.Join(parts, " ")
}

// class is the meaning of the error; Unknown if no part of it is in the table.
func (f fault) class() pipeline.Class {
	all := f.all()
	for _, r := range rules {
		for _, d := range all {
			if d.Code != "" && r.fits(d.Code, strings.ToLower(d.Message)) {
				return r.class
			}
		}
	}
	return pipeline.Unknown
}

// telling is the code that says most: that of a detail, if the error itself only
// says that there are details.
func (f fault) telling() string {
	if len(f.Details) > 0 && f.Details[0].Code != "" && (f.Code == "" || matches("RetryableError*", f.Code) || f.Code == "BadRequest") {
		return f.Details[0].Code
	}
	return f.Code
}

// readFault reads an error from a body: with or without the "error" around it
// (DNS and some others leave it out); false if there is none.
func readFault(body []byte) (fault, bool) {
	var doc struct {
		fault
		Error json.RawMessage `json:"error"`
	}
	if json.Unmarshal(body, &doc) != nil {
		return fault{}, false
	}
	var inner fault
	if json.Unmarshal(doc.Error, &inner) == nil && (inner.Code != "" || inner.Message != "") {
		return inner, true
	}
	return doc.fault, doc.Code != ""
}

func classOfStatus(status int) pipeline.Class {
	switch {
	case status == http.StatusTooManyRequests:
		return pipeline.Throttled
	case status == http.StatusUnauthorized:
		return pipeline.Expired
	case status == http.StatusNotImplemented, status == http.StatusMethodNotAllowed:
		return pipeline.Invalid
	case status >= 500, status == http.StatusRequestTimeout:
		return pipeline.Unavailable
	}
	return pipeline.Unknown
}

// classify turns any end of a call into the one error that the rest of the
// program knows.
func classify(f *flight, req *http.Request, resp *http.Response, err error) *pipeline.CloudError {
	var done *pipeline.CloudError
	if errors.As(err, &done) {
		return done
	}
	ce := &pipeline.CloudError{Service: f.service, Op: f.op, Sent: f.sent, Err: err, Class: pipeline.Unavailable}
	if resp != nil {
		ce.RetryAfter = retryAfter(resp.Header)
		ce.RequestID = cmp.Or(resp.Header.Get("X-Ms-Correlation-Request-Id"), resp.Header.Get("X-Ms-Request-Id"))
	}
	var auth *azidentity.AuthenticationFailedError
	switch {
	case err == nil:
		answered(ce, req, resp)
	case errors.Is(err, errEmpty), errors.Is(err, errMarkup):
		ce.Message = "the answer cannot be read: " + err.Error()
	case errors.Is(err, context.Canceled):
		ce.Message = "the call was cancelled"
	case isTimeout(err):
		ce.Message = "no answer in time"
	case errors.As(err, &auth) && auth.RawResponse != nil && auth.RawResponse.StatusCode >= 500:
		ce.Message = "the authority failed: " + firstLine(err)
	case errors.As(err, &auth) && !isTransport(err):
		ce.Class, ce.Message = pipeline.Expired, unauthenticated(err)
	case !f.sent && !isTransport(err):
		// No token was given, or the request itself is wrong.
		ce.Class, ce.Message = pipeline.Invalid, unauthenticated(err)
		if text := strings.ToLower(err.Error()); auth != nil || strings.Contains(text, "credential") || strings.Contains(text, "token") {
			ce.Class = pipeline.Expired
		}
	default:
		ce.Message = innermost(err)
		if neverLeft(err) {
			ce.Sent = false
		}
	}
	return ce
}

// answered reads an answer that is an error.
func answered(ce *pipeline.CloudError, req *http.Request, resp *http.Response) {
	body, _ := runtime.Payload(resp)
	ft, ok := readFault(body)
	if !ok {
		ce.Class = classOfStatus(resp.StatusCode)
		ce.Message = "HTTP status " + strconv.Itoa(resp.StatusCode) + " without an error that can be read"
		return
	}
	ce.Code, ce.Message, ce.Class = ft.telling(), ft.text(), ft.class()
	switch {
	case resp.StatusCode == http.StatusPreconditionFailed:
		ce.Class = pipeline.Busy // somebody else has changed it meanwhile
		if req.Header.Get("If-None-Match") != "" {
			ce.Class = pipeline.Exists
		}
	case req.Method == http.MethodDelete && ce.Class == pipeline.NotFound && resp.StatusCode != http.StatusNotFound:
		// Something refers to what is to go, as an interface that is just being made
		// does to a pool: it is there, whatever the code says.
		ce.Class = pipeline.Busy
	case ce.Class == pipeline.Unknown, ce.Class == pipeline.Invalid && resp.StatusCode >= 500:
		if c := classOfStatus(resp.StatusCode); c != pipeline.Unknown {
			ce.Class = c
		}
	}
}

// codeNoSubscription is how a job stops whose subscription, or a peer's, cannot be seen.
const codeNoSubscription = "no-subscription"

// explain makes an error that a person has to act on say what to do: the class
// alone would give the wrong advice.
func explain(ce *pipeline.CloudError) error {
	fatal := func(code, hint string) error {
		return pipeline.Fatal(code, ce.Error(), hint).From(ce)
	}
	switch ce.Code {
	case codeReadOnly:
		return fatal(codeReadOnly, "Use a cloud account with permissionLevel read_write, or change this one's, then retry.")
	case codeHolder:
		return fatal(codeHolder, "Restore the credentials, or verify the account again, then retry.")
	case "ScopeLocked":
		return fatal("locked", "Remove the lock that the message names, or have its owner do so, then retry; a lock that this job did not set is never touched.")
	case "RequestDisallowedByPolicy", "RequestDisallowedByAzure":
		return fatal("refused-by-policy", "Change the request to what the policy allows, or have the policy's owner exempt it, then retry.")
	case "MissingSubscriptionRegistration", "SubscriptionNotRegistered", "SubscriptionNotRegisteredForFeature":
		return fatal("provider-not-registered", fmt.Sprintf("Register it (az provider register --namespace %s), wait until it says Registered, then retry.", ce.Service))
	case "LocationIsOfferRestricted", "ProvisionNotSupportedForRegion":
		return fatal("no-capacity", "The cloud makes no such servers for this subscription in the region. Have the restriction lifted (portal: new support request, service limits), or use another region, then retry.")
	case "SkuNotAvailable":
		return fatal("no-capacity", "The cloud does not offer this size to the subscription here. Ask for another size, instanceType or region, then retry.")
	case "SubscriptionNotFound":
		return fatal(codeNoSubscription, "Check AZURE_SUBSCRIPTION_ID and that the credentials may see that subscription, then retry.")
	}
	if ce.Class == pipeline.Denied {
		return fatal("permission-denied", fmt.Sprintf("Give the credentials of this cloud account a role with %s there, then retry.", missingAction(ce)))
	}
	return ce
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &ne) && ne.Timeout()
}

func isTransport(err error) bool {
	var ne net.Error
	return errors.As(err, &ne)
}

// neverLeft reports whether the connection was never made, so that nothing
// can have happened.
func neverLeft(err error) bool {
	var oe *net.OpError
	var dns *net.DNSError
	return errors.As(err, &dns) || errors.As(err, &oe) && oe.Op == "dial"
}

// innermost is the text at the root of an error, without the SDK's wrapping.
func innermost(err error) string {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return firstLine(err)
		}
		err = next
	}
}

// firstLine leaves out the dump of request and answer that the identity client
// puts below its message.
func firstLine(err error) string {
	line, _, _ := strings.Cut(strings.TrimSpace(err.Error()), "\n")
	return line
}

// absent is the error for something that an answer does not hold.
func absent(service, op, what string) error {
	return &pipeline.CloudError{Class: pipeline.NotFound, Service: service, Op: op, Message: what + " is not there", Sent: true}
}
