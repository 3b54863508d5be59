package aws

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/zopday/provisioner/internal/pipeline"
)

// A rule says what an error code means. The first rule that fits wins.
type rule struct {
	code   string // exact, or with * at the front or the end
	op     string // "" for every operation
	saying string // part of the message, in lower case; "" for any
	class  pipeline.Class
}

// rules is the meaning of every error code that the services answer with, from
// "Error codes for the Amazon EC2 API" and the services' own lists of common
// errors. Codes with two meanings are told apart by operation or message.
var rules = []rule{
	// The endpoint does not have the call: an emulator, or a region without the
	// service. It will not have it later either.
	{code: "NotImplemented*", class: pipeline.Invalid},
	{code: "UnknownOperation*", class: pipeline.Invalid},
	{code: "*", saying: "not implemented", class: pipeline.Invalid},
	{code: "*", saying: "not yet implemented", class: pipeline.Invalid},
	{code: "*", saying: "not yet been implemented", class: pipeline.Invalid},
	{code: "*", saying: "not yet been emulated", class: pipeline.Invalid},

	// Auto Scaling and EKS about a launch template, each with a code of its own.
	{code: "*", saying: "you are not authorized to", class: pipeline.Denied},
	{code: "DependencyAccessDenied*", class: pipeline.Denied}, // Service Quotas, which may not ask the service

	// A token that the service itself gave for the next page, and no longer takes: the
	// list is read again from its beginning.
	{code: "InvalidNextToken*", class: pipeline.Unknown},
	{code: "InvalidPaginationToken*", class: pipeline.Unknown},
	{code: "InvalidMarker*", class: pipeline.Unknown},
	{code: "ExpiredNextToken*", class: pipeline.Unknown},

	// Nothing happened, come again later.
	{code: "RequestLimitExceeded", class: pipeline.Throttled},
	{code: "BandwidthLimitExceeded", class: pipeline.Throttled},
	{code: "Throttling*", class: pipeline.Throttled},
	{code: "*ThrottledException", class: pipeline.Throttled},
	{code: "RequestThrottled*", class: pipeline.Throttled},
	{code: "TooManyRequests*", class: pipeline.Throttled},
	{code: "PriorRequestNotComplete", class: pipeline.Throttled},
	{code: "SlowDown", class: pipeline.Throttled},
	{code: "*", saying: "rate exceeded", class: pipeline.Throttled},

	// An address is "not yours" for a while after the NAT gateway that held it
	// was deleted, and a role or profile is "invalid" until IAM has spread it.
	{code: "AuthFailure", op: "ReleaseAddress", class: pipeline.Busy},
	{code: "AuthFailure", op: "DisassociateAddress", class: pipeline.Busy},
	{code: "InvalidParameterValue", saying: "invalid iam instance profile", class: pipeline.NotFound},
	{code: "ValidationError", saying: "invalid iam instance profile", class: pipeline.NotFound},
	{code: "ValidationError", saying: "invalid iaminstanceprofile", class: pipeline.NotFound},
	{code: "InvalidParameter", saying: "unable to assume given iam role", class: pipeline.NotFound},
	{code: "InvalidConfigurationRequest", saying: "access denied for bucket", class: pipeline.NotFound}, // the bucket's policy has not spread yet
	{code: "ValidationError", saying: "not found", class: pipeline.NotFound},
	{code: "ValidationError", saying: "does not exist", class: pipeline.NotFound},
	{code: "InvalidChangeBatch", saying: "already exists", class: pipeline.Exists},
	{code: "InvalidChangeBatch", saying: "not found", class: pipeline.NotFound},
	{code: "InvalidInstanceId", class: pipeline.NotFound},                    // Systems Manager: the agent has not registered
	{code: "InvalidTarget", op: "RegisterTargets", class: pipeline.NotFound}, // "does not exist", or load balancing does not see it yet
	// EKS gives one code two meanings, and calls a change that has to wait invalid.
	// A role is no good to it until IAM has spread it and its policies.
	{code: "ResourceInUseException", saying: "already exists", class: pipeline.Exists},
	{code: "ResourceInUseException", op: "CreateAccessEntry", class: pipeline.Exists},
	{code: "InvalidParameterException", saying: "could not be assumed", class: pipeline.NotFound},
	{code: "InvalidParameterException", saying: "doesn't have the amazon eks managed policies", class: pipeline.NotFound},
	{code: "InvalidRequestException", saying: "in progress", class: pipeline.Busy},
	{code: "InvalidRequestException", saying: "currently", class: pipeline.Busy},
	{code: "InvalidRequestException", saying: "is not active", class: pipeline.Busy},
	{code: "ResourcePropagationDelayException", class: pipeline.Busy},
	{code: "ServerException", class: pipeline.Unavailable},

	// RDS and ElastiCache: what is under way is not invalid, and quotas have two
	// words in their names. A source with replicas, and a protected instance, are
	// told apart by looking.
	{code: "InvalidDB*State*", class: pipeline.Busy},
	{code: "DBInstanceNotReady*", class: pipeline.Busy},
	{code: "InvalidReplicationGroupState*", class: pipeline.Busy},
	{code: "InvalidCacheClusterState*", class: pipeline.Busy},
	{code: "InvalidUserState*", class: pipeline.Busy},
	{code: "InvalidUserGroupState*", class: pipeline.Busy},
	{code: "InvalidSnapshotState*", class: pipeline.Busy},
	{code: "InsufficientAvailableIPsInSubnet*", class: pipeline.Capacity},
	{code: "ProvisionedIopsNotAvailableInAZ*", class: pipeline.Capacity},
	{code: "StorageTypeNotAvailable*", class: pipeline.Capacity},
	{code: "*Quota*Exceeded*", class: pipeline.Quota},
	{code: "QuotaExceeded.*", class: pipeline.Quota},
	{code: "APICallRateForCustomerExceeded", class: pipeline.Throttled},
	{code: "StorageTypeNotSupported*", class: pipeline.Invalid},
	{code: "NetworkTypeNotSupported*", class: pipeline.Invalid},
	{code: "DBSubnetGroupDoesNotCoverEnoughAZs", class: pipeline.Invalid},
	{code: "DefaultUserRequired*", class: pipeline.Invalid},
	{code: "DefaultUserAssociated*", class: pipeline.Busy},
	{code: "*NotFoundFault", class: pipeline.NotFound},
	{code: "*AlreadyExistsFault", class: pipeline.Exists},

	{code: "KMSInvalidState*", saying: "pending deletion", class: pipeline.NotFound},
	{code: "KMSInternalException", class: pipeline.Unavailable},
	{code: "DependencyTimeoutException", class: pipeline.Unavailable},

	{code: "Gateway.NotAttached", class: pipeline.NotFound},
	{code: "InvocationDoesNotExist", class: pipeline.NotFound},

	{code: "Idempotent*Mismatch*", class: pipeline.Mismatch},
	{code: "IdempotentParameterMismatch*", class: pipeline.Mismatch},

	{code: "*.NotFound", class: pipeline.NotFound},
	{code: "*NotFound", class: pipeline.NotFound},
	{code: "*NotFoundException", class: pipeline.NotFound},
	{code: "NoSuch*", class: pipeline.NotFound},

	{code: "*AlreadyExists", class: pipeline.Exists},
	{code: "*AlreadyExistsException", class: pipeline.Exists},
	{code: "*.Duplicate", class: pipeline.Exists},
	{code: "Duplicate*", class: pipeline.Exists},
	{code: "InvalidSubnet.Conflict", class: pipeline.Exists},
	{code: "Resource.AlreadyAssociated", class: pipeline.Exists},
	{code: "Resource.AlreadyAssigned", class: pipeline.Exists},
	{code: "*AlreadyAttached", class: pipeline.Exists},
	{code: "BucketAlreadyOwnedByYou", class: pipeline.Exists},
	{code: "ConflictingDomainExists", class: pipeline.Exists},
	{code: "RouteAlreadyExists", class: pipeline.Exists},

	{code: "DependencyViolation", class: pipeline.Busy},
	{code: "*InUse", class: pipeline.Busy},
	{code: "*InUseException", class: pipeline.Busy},
	{code: "DeleteConflict*", class: pipeline.Busy},
	{code: "IncorrectState*", class: pipeline.Busy},
	{code: "IncorrectInstanceState", class: pipeline.Busy},
	{code: "ScalingActivityInProgress*", class: pipeline.Busy},
	{code: "ResourceContention*", class: pipeline.Busy},
	{code: "ConcurrentModification*", class: pipeline.Busy},
	{code: "EntityTemporarilyUnmodifiable*", class: pipeline.Busy},
	{code: "Resource*NotReady*", class: pipeline.Busy},
	{code: "HostedZoneNotEmpty", class: pipeline.Busy},
	{code: "BucketNotEmpty", class: pipeline.Busy},
	{code: "OperationAborted*", class: pipeline.Busy}, // S3 and CloudWatch Logs: another change of the same object is under way
	{code: "InvalidStateTransition", class: pipeline.Busy},
	{code: "InvalidAddress.Locked", class: pipeline.Busy},

	{code: "Insufficient*Capacity*", class: pipeline.Capacity},
	{code: "InsufficientFreeAddressesInSubnet", class: pipeline.Capacity},

	{code: "*LimitExceeded", class: pipeline.Quota},
	{code: "*LimitExceededException", class: pipeline.Quota},
	{code: "*QuotaExceeded*", class: pipeline.Quota},
	{code: "MaxSpotInstanceCountExceeded", class: pipeline.Quota},
	{code: "TooMany*", class: pipeline.Quota},

	{code: "UnauthorizedOperation", class: pipeline.Denied},
	{code: "AccessDenied*", class: pipeline.Denied},
	{code: "Unauthorized*", class: pipeline.Denied},
	{code: "NotAuthorized*", class: pipeline.Denied},
	{code: "OptInRequired", class: pipeline.Denied},
	{code: "PendingVerification", class: pipeline.Denied},
	{code: "OperationNotPermitted*", class: pipeline.Denied},
	{code: "Blocked", class: pipeline.Denied},
	{code: "Forbidden", class: pipeline.Denied}, // a HEAD of S3 has no body, and its status is all there is

	{code: "ExpiredToken*", class: pipeline.Expired},
	{code: "RequestExpired", class: pipeline.Expired},
	{code: "InvalidClientTokenId", class: pipeline.Expired},
	{code: "UnrecognizedClient*", class: pipeline.Expired},
	{code: "SignatureDoesNotMatch", class: pipeline.Expired},
	{code: "InvalidSignature*", class: pipeline.Expired},
	{code: "IncompleteSignature*", class: pipeline.Expired},
	{code: "MissingAuthenticationToken*", class: pipeline.Expired},
	{code: "InvalidAccessKeyId", class: pipeline.Expired},
	{code: "InvalidToken", class: pipeline.Expired},
	{code: "TokenRefreshRequired", class: pipeline.Expired},
	{code: "RequestTimeTooSkewed", class: pipeline.Expired},
	{code: "AuthFailure", class: pipeline.Expired},

	{code: "DryRunOperation", class: pipeline.Invalid}, // it would have worked, and nothing was done

	{code: "InternalError", class: pipeline.Unavailable},
	{code: "Internal*", class: pipeline.Unavailable},
	{code: "ServiceUnavailable*", class: pipeline.Unavailable},
	{code: "Unavailable", class: pipeline.Unavailable},
	{code: "RequestTimeout*", class: pipeline.Unavailable},

	// Wrong and staying wrong. The list is short on purpose: a code that is not
	// known is tried again a few times.
	{code: "Invalid*", class: pipeline.Invalid},
	{code: "Malformed*", class: pipeline.Invalid},
	{code: "Missing*", class: pipeline.Invalid},
	{code: "Validation*", class: pipeline.Invalid},
	{code: "Unsupported*", class: pipeline.Invalid},
	{code: "UnknownParameter", class: pipeline.Invalid},
	{code: "IllegalLocationConstraint*", class: pipeline.Invalid},
	{code: "PermanentRedirect", class: pipeline.Invalid},
	{code: "MethodNotAllowed", class: pipeline.Invalid},
	{code: "*.Malformed", class: pipeline.Invalid},
}

func (r rule) fits(op, code, message string) bool {
	return (r.op == "" || r.op == op) &&
		(r.saying == "" || strings.Contains(message, r.saying)) &&
		matches(r.code, code)
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

// classOf is the meaning of an error code; Unknown if it is not in the table.
func classOf(op, code, message string, status int) pipeline.Class {
	if status == http.StatusNotImplemented {
		return pipeline.Invalid // whatever the code is, such as InternalFailure
	}
	lower := strings.ToLower(message)
	for _, r := range rules {
		if r.fits(op, code, lower) {
			return r.class
		}
	}
	return classOfStatus(status)
}

func classOfStatus(status int) pipeline.Class {
	switch {
	case status == http.StatusTooManyRequests:
		return pipeline.Throttled
	case slices.Contains(noSuchCall, status):
		return pipeline.Invalid
	case status >= 500:
		return pipeline.Unavailable
	}
	return pipeline.Unknown
}

// noSuchCall are the statuses of an endpoint that does not have the call, where
// no error code tells more: the services themselves answer with a code.
var noSuchCall = []int{http.StatusNotImplemented, http.StatusNotFound, http.StatusMethodNotAllowed}

// lacksCall reports whether the endpoint does not have the call at all. It
// says nothing about the object that was asked for.
func lacksCall(err error) bool {
	var ce *pipeline.CloudError
	if !errors.As(err, &ce) || ce.Class != pipeline.Invalid {
		return false
	}
	status := statusOf(ce.Err)
	if ce.Code == "" {
		return slices.Contains(noSuchCall, status)
	}
	text := strings.ToLower(ce.Message)
	return status == http.StatusNotImplemented || ce.Code == "InvalidAction" ||
		matches("NotImplemented*", ce.Code) || matches("UnknownOperation*", ce.Code) ||
		matches("Unsupported*", ce.Code) && strings.Contains(ce.Message, ce.Op) ||
		strings.Contains(text, "not implemented") || strings.Contains(text, "not yet")
}

// statusOf is the HTTP status of an answer that was an error; 0 if there was
// none.
func statusOf(err error) int {
	var re *smithyhttp.ResponseError
	if errors.As(err, &re) && re.Response != nil && re.Response.Response != nil {
		return re.Response.StatusCode
	}
	return 0
}

// classify turns any error of a call into the one error that the rest of the
// program knows. sent says whether a request may have reached the cloud.
func classify(service, op string, sent bool, err error) *pipeline.CloudError {
	var done *pipeline.CloudError
	if errors.As(err, &done) {
		if done.Sent && (done.Service != service || done.Op != op) {
			inner := *done // what was asked on the way, such as for credentials: this call itself may not have left
			inner.Sent = sent
			return &inner
		}
		return done
	}
	ce := &pipeline.CloudError{Service: service, Op: op, Sent: sent, Err: err, Class: pipeline.Unknown}
	status := 0
	var re *smithyhttp.ResponseError
	if errors.As(err, &re) && re.Response != nil && re.Response.Response != nil {
		status = re.Response.StatusCode
		ce.RetryAfter = retryAfter(re.Response.Header)
		ce.RequestID = re.Response.Header.Get("X-Amzn-Requestid")
	}
	var withID *awshttp.ResponseError
	if errors.As(err, &withID) && withID.RequestID != "" {
		ce.RequestID = withID.RequestID
	}
	var api smithy.APIError
	switch {
	case errors.As(err, &api) && api.ErrorCode() != "" && api.ErrorCode() != "UnknownError":
		ce.Code, ce.Message = api.ErrorCode(), api.ErrorMessage()
		ce.Class = classOf(op, ce.Code, ce.Message, status)
		explainDenied(ce)
	case status != 0 && (status < 200 || status > 299):
		ce.Class = classOfStatus(status)
		ce.Message = "HTTP status " + strconv.Itoa(status) + " without an error that can be read"
	case status != 0 || isUnreadable(err):
		ce.Class = pipeline.Unavailable
		ce.Message = "the answer cannot be read: " + innermost(err)
	case errors.Is(err, context.Canceled):
		ce.Class = pipeline.Unavailable
		ce.Message = "the call was cancelled"
	case isTimeout(err):
		ce.Class = pipeline.Unavailable
		ce.Message = "no answer in time"
	case isTransport(err):
		ce.Class = pipeline.Unavailable
		ce.Message = innermost(err)
		if neverLeft(err) {
			ce.Sent = false
		}
	case !sent:
		// Neither refused nor answered: the SDK found no credentials, or the
		// request itself is wrong.
		ce.Class = pipeline.Invalid
		if strings.Contains(err.Error(), "credential") || strings.Contains(err.Error(), "get identity") {
			ce.Class = pipeline.Expired
		}
		ce.Message = innermost(err)
	default:
		ce.Message = innermost(err)
	}
	return ce
}

// retryAfter is what the cloud asked for, in either of the headers it uses.
func retryAfter(h http.Header) time.Duration {
	if ms, err := strconv.ParseInt(h.Get("X-Amz-Retry-After"), 10, 64); err == nil && ms > 0 {
		return time.Duration(ms) * time.Millisecond
	}
	if s, err := strconv.ParseInt(h.Get("Retry-After"), 10, 64); err == nil && s > 0 {
		return time.Duration(s) * time.Second
	}
	return 0
}

// errEmpty is an answer that says neither yes nor no.
var errEmpty = errors.New("the answer is empty")

// errMarkup is a web page where an answer should be, such as a proxy sends.
var errMarkup = errors.New("the answer is a web page")

func isUnreadable(err error) bool {
	var de *smithy.DeserializationError
	return errors.As(err, &de) || errors.Is(err, errEmpty) || errors.Is(err, errMarkup)
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &ne) && ne.Timeout()
}

func isTransport(err error) bool {
	var se *smithyhttp.RequestSendError
	var ne net.Error
	return errors.As(err, &se) || errors.As(err, &ne)
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
			return err.Error()
		}
		err = next
	}
}

// plain takes the SDK's own wrapping off an error that has been classified, so
// that a person reads the service's words once.
func plain(err error) error {
	var op *smithy.OperationError
	var ce *pipeline.CloudError
	var fatal *pipeline.FatalError
	if errors.As(err, &fatal) {
		return err // it has its own words already, and the service's as its cause
	}
	if errors.As(err, &op) && errors.As(op.Err, &ce) {
		return ce
	}
	return err
}

// asFatal is the verdict in an error that stops a job; nil for any other error.
func asFatal(err error) *pipeline.FatalError {
	var f *pipeline.FatalError
	errors.As(err, &f)
	return f
}

// absent is the error for an object that a read by ID did not return.
func absent(service, op, what string) error {
	return &pipeline.CloudError{Class: pipeline.NotFound, Service: service, Op: op, Message: what + " is not there", Sent: true}
}
