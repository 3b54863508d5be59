package gcp

import (
	"errors"
	"net/http"
	"strings"

	"github.com/zopday/provisioner/internal/pipeline"
)

// A rule says what an error means. The first rule that fits wins.
type rule struct {
	code   string // exact, or with * at the front or the end; case and underscores do not count
	op     string // the method's name, or with * in it; "" for every one
	saying string // part of the message, in lower case; "" for any
	class  pipeline.Class
}

// rules is the meaning of every reason, status and operation error that the
// services answer with, from "Troubleshooting API errors" (Compute Engine),
// "Errors" (API design guide), "Standard errors" (Cloud DNS) and public issues.
// The three spellings of one error (resourceNotReady, RESOURCE_NOT_READY) fit
// the same rule. Codes with two meanings are told apart by the message.
var rules = []rule{
	// An organisation policy refuses by the code of a lost race.
	{code: "*", saying: "constraint constraints/", class: pipeline.Denied},
	{code: "*", saying: "violates constraint", class: pipeline.Denied},

	// An API that was switched on moments ago is refused for minutes, and only
	// this reason may be waited for (failure kind D10). Whether it was ever
	// switched on is for stepValidate to say.
	{code: "accessNotConfigured", class: pipeline.Busy},
	{code: "serviceDisabled", class: pipeline.Busy},
	{code: "*", saying: "api has not been used in project", class: pipeline.Busy},

	// Nothing happened, come again later.
	{code: "rateLimitExceeded", class: pipeline.Throttled},
	{code: "userRateLimitExceeded", class: pipeline.Throttled},
	{code: "concurrentLimitExceeded", class: pipeline.Throttled},
	{code: "operationRateExceeded", class: pipeline.Throttled},
	{code: "resourceOperationRateExceeded", class: pipeline.Throttled},
	{code: "*", saying: "quota exceeded for quota metric", class: pipeline.Throttled}, // of requests a minute
	{code: "*", saying: "rate exceeded", class: pipeline.Throttled},

	// What was made moments ago is not known everywhere yet (D5, D8).
	{code: "*", saying: "cannot be found", class: pipeline.NotFound},
	{code: "*", op: "clusters.create", saying: "cloudkms.cryptokeyversions.usetoencrypt", class: pipeline.NotFound},
	{code: "*", op: "clusters.create", saying: "machine type", class: pipeline.Invalid},
	{code: "*", op: "nodePools.create", saying: "machine type", class: pipeline.Invalid},
	{code: "*", op: "clusters.create", saying: "does not exist", class: pipeline.NotFound},
	{code: "*", op: "nodePools.create", saying: "does not exist", class: pipeline.NotFound},
	{code: "*", saying: "of type 'serviceaccount' was not found", class: pipeline.NotFound},
	{code: "*", op: "*.setIamPolicy", saying: "does not exist", class: pipeline.NotFound},
	{code: "*", op: "networks.removePeering", saying: "there is no peering", class: pipeline.NotFound},
	{code: "*", saying: "is not ready", class: pipeline.Busy},
	{code: "*", saying: "is already being used by", class: pipeline.Busy},
	{code: "*", saying: "operation in progress", class: pipeline.Busy},
	{code: "*", saying: "are still using this connection", class: pipeline.Busy},

	// Cloud SQL ("Troubleshoot Cloud SQL"). A name that was in use until a moment
	// ago is refused in two ways.
	{code: "instanceDoesNotExist", class: pipeline.NotFound},
	{code: "instanceAlreadyExists", class: pipeline.Exists},
	{code: "invalidState", op: "instances.insert", class: pipeline.Exists},
	{code: "invalidState", class: pipeline.Busy},
	{code: "*", op: "databases.insert", saying: "already exists", class: pipeline.Exists},
	{code: "*", op: "databases.insert", saying: "database exists", class: pipeline.Exists},
	{code: "*", op: "users.insert", saying: "already exists", class: pipeline.Exists},
	{code: "*", op: "instances.insert", saying: "private services connection", class: pipeline.Busy},
	{code: "*", op: "instances.insert", saying: "network_not_peered", class: pipeline.Busy},
	{code: "networkNotPeered", class: pipeline.Busy},
	{code: "*", saying: "since instance is not running", class: pipeline.Busy},
	{code: "*", op: "instances.insert", saying: "free blocks in allocated ip ranges", class: pipeline.Quota},
	{code: "*", op: "instances.create", saying: "free blocks in allocated ip ranges", class: pipeline.Quota},
	{code: "maxInstancesExceeded", class: pipeline.Quota},

	{code: "resourceInUse*", class: pipeline.Busy},
	{code: "*ResourceInUse", class: pipeline.Busy},
	{code: "resourceNotReady", class: pipeline.Busy},
	{code: "containerNotEmpty", class: pipeline.Busy},
	{code: "conditionNotMet", class: pipeline.Busy}, // a fingerprint that is no longer true
	{code: "preconditionFailed", class: pipeline.Busy},
	{code: "failedPrecondition", class: pipeline.Busy},
	{code: "operationInProgress", class: pipeline.Busy},
	{code: "aborted", class: pipeline.Busy},
	{code: "conflict", class: pipeline.Busy},

	{code: "*PoolExhausted*", class: pipeline.Capacity},
	{code: "gceStockout", class: pipeline.Capacity},
	{code: "*stockout*", class: pipeline.Capacity},
	{code: "ipSpaceExhausted*", class: pipeline.Capacity},
	{code: "*", saying: "does not have enough resources available", class: pipeline.Capacity},

	{code: "quotaExceeded", class: pipeline.Quota},
	{code: "limitExceeded", class: pipeline.Quota},
	{code: "dailyLimitExceeded*", class: pipeline.Quota},
	{code: "*", saying: "' exceeded.  limit:", class: pipeline.Quota},
	{code: "*", saying: "' exceeded. limit:", class: pipeline.Quota},
	{code: "*", saying: "insufficient regional quota", class: pipeline.Quota},
	{code: "gceQuotaExceeded", class: pipeline.Quota},

	{code: "alreadyExists", class: pipeline.Exists},
	{code: "resourceAlreadyExists", class: pipeline.Exists},
	{code: "duplicate", class: pipeline.Exists},

	{code: "notFound", class: pipeline.NotFound},
	{code: "resourceNotFound", class: pipeline.NotFound},

	{code: "authError", class: pipeline.Expired},
	{code: "unauthenticated", class: pipeline.Expired},
	{code: "expired", class: pipeline.Expired},
	{code: "accessTokenExpired", class: pipeline.Expired},
	{code: "credentialsMissing", class: pipeline.Expired},
	{code: "invalidGrant", class: pipeline.Expired},
	{code: "invalidRapt", class: pipeline.Expired},
	{code: "unauthorizedClient", class: pipeline.Expired},

	{code: "forbidden", class: pipeline.Denied},
	{code: "notAuthorized", class: pipeline.Denied}, // Cloud SQL
	{code: "permissionDenied", class: pipeline.Denied},
	{code: "iamPermissionDenied", class: pipeline.Denied},
	{code: "insufficientPermissions", class: pipeline.Denied},
	{code: "accessTokenScopeInsufficient", class: pipeline.Denied},
	{code: "billing*", class: pipeline.Denied},
	{code: "*ProjectBillingNotFound", class: pipeline.Denied},
	{code: "consumerInvalid", class: pipeline.Denied},
	{code: "consumerSuspended", class: pipeline.Denied},
	{code: "userProjectDenied", class: pipeline.Denied},
	{code: "accountDisabled", class: pipeline.Denied},

	{code: "backendError", class: pipeline.Unavailable},
	{code: "internal*", class: pipeline.Unavailable},
	{code: "unavailable", class: pipeline.Unavailable},
	{code: "serviceUnavailable", class: pipeline.Unavailable},
	{code: "deadlineExceeded", class: pipeline.Unavailable},

	// Wrong and staying wrong. The list is short on purpose: a code that is not
	// known is tried again a few times.
	{code: "invalid*", class: pipeline.Invalid},
	{code: "badRequest", class: pipeline.Invalid},
	{code: "required", class: pipeline.Invalid},
	{code: "parseError", class: pipeline.Invalid},
	{code: "outOfRange", class: pipeline.Invalid},
	{code: "unimplemented", class: pipeline.Invalid},
	{code: "notImplemented", class: pipeline.Invalid},
	{code: "unsupported*", class: pipeline.Invalid},
	{code: "unknown*Field*", class: pipeline.Invalid},
	{code: "resourceExhausted", class: pipeline.Throttled},
}

// classOf is the meaning of an error with these codes, the most exact first; the
// code is the one that decided.
func classOf(op string, status int, message string, codes []string) (pipeline.Class, string) {
	first := ""
	if len(codes) > 0 {
		first = codes[0]
	}
	if status == http.StatusUnauthorized {
		return pipeline.Expired, first // whatever the reason: "required" means a token here
	}
	lower := strings.ToLower(message)
	for _, code := range codes {
		for _, r := range rules {
			if r.fits(op, code, lower) {
				return r.class, code
			}
		}
	}
	if len(codes) == 0 {
		for _, r := range rules {
			if r.code == "*" && r.fits(op, "", lower) {
				return r.class, ""
			}
		}
	}
	if status == http.StatusNotFound {
		return pipeline.NotFound, first // in the service's own words, unlike a web server's
	}
	return classOfStatus(status), first
}

func (r rule) fits(op, code, lowerMessage string) bool {
	return (r.op == "" || matches(r.op, op)) &&
		(r.saying == "" || strings.Contains(lowerMessage, r.saying)) &&
		(r.code == "*" || matches(folded(r.code), folded(code)))
}

// folded is a code without what its spellings differ in.
func folded(code string) string {
	return strings.NewReplacer("_", "", "-", "").Replace(strings.ToLower(code))
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

// classOfStatus is what an answer means by its status alone. A not-found that
// does not say of what proves nothing.
func classOfStatus(status int) pipeline.Class {
	switch {
	case status == http.StatusUnauthorized:
		return pipeline.Expired
	case status == http.StatusTooManyRequests:
		return pipeline.Throttled
	case status == http.StatusNotImplemented, status == http.StatusNotFound, status == http.StatusMethodNotAllowed, status == http.StatusBadRequest:
		return pipeline.Invalid
	case status == http.StatusConflict, status == http.StatusPreconditionFailed:
		return pipeline.Busy
	case status >= 500:
		return pipeline.Unavailable
	}
	return pipeline.Unknown
}

// lacksCall reports whether the endpoint does not have the call at all. It says
// nothing about the object that was asked for.
func lacksCall(err error) bool {
	var ce *pipeline.CloudError
	if !errors.As(err, &ce) {
		return false
	}
	text := strings.ToLower(ce.Message)
	if strings.HasPrefix(text, "the requested url ") && strings.Contains(text, "was not found on this server") {
		return true // a web server's words, not a service's
	}
	return ce.Class == pipeline.Invalid && (folded(ce.Code) == "unimplemented" || folded(ce.Code) == "notimplemented" ||
		ce.Code == "" && strings.HasPrefix(ce.Message, "HTTP status 404") || strings.HasPrefix(ce.Message, "HTTP status 501") ||
		strings.Contains(text, "not implemented"))
}

// switchedOff reports whether an API is refused as one that is not enabled, or
// not yet known to be.
func switchedOff(err error) bool {
	var ce *pipeline.CloudError
	if !errors.As(err, &ce) {
		return false
	}
	code := folded(ce.Code)
	return code == "accessnotconfigured" || code == "servicedisabled" || strings.Contains(strings.ToLower(ce.Message), "api has not been used in project")
}
