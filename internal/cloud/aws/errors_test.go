package aws

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/zopday/provisioner/internal/pipeline"
)

func TestClassOf(t *testing.T) {
	for _, c := range []struct {
		op, code, message string
		status            int
		want              pipeline.Class
	}{
		{code: "InvalidVpcID.NotFound", status: 400, want: pipeline.NotFound},
		{code: "NatGatewayNotFound", status: 400, want: pipeline.NotFound},
		{code: "NoSuchEntity", status: 404, want: pipeline.NotFound},
		{code: "ParameterNotFound", status: 400, want: pipeline.NotFound},
		{code: "ResourceNotFoundException", status: 400, want: pipeline.NotFound},
		{code: "LoadBalancerNotFound", status: 400, want: pipeline.NotFound},
		{code: "InvalidInstanceId", message: "Instances not in a valid state", status: 400, want: pipeline.NotFound},
		{code: "InvalidInstanceID.Malformed", status: 400, want: pipeline.Invalid},
		// The service's own token for the next page: the list is read again.
		{op: "DescribeSubnets", code: "InvalidNextToken", message: "The token 'x' is invalid", status: 400, want: pipeline.Unknown},
		{op: "ListSecrets", code: "InvalidNextTokenException", status: 400, want: pipeline.Unknown},
		{op: "ListAliases", code: "InvalidMarkerException", status: 400, want: pipeline.Unknown},
		// The same code with two meanings (failure kind D5).
		{code: "InvalidParameterValue", message: "Value (x) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name", status: 400, want: pipeline.NotFound},
		{code: "InvalidParameterValue", message: "Invalid value 'x' for groupName", status: 400, want: pipeline.Invalid},
		{code: "ValidationError", message: "AutoScalingGroup name not found - null", status: 400, want: pipeline.NotFound},
		{code: "ValidationError", message: "Min cannot be above max", status: 400, want: pipeline.Invalid},
		{code: "InvalidChangeBatch", message: "[Tried to create resource record set [name='a.'] but it already exists]", status: 400, want: pipeline.Exists},
		{code: "InvalidChangeBatch", message: "[Tried to delete resource record set but it was not found]", status: 400, want: pipeline.NotFound},
		// E8: misleading after a NAT gateway went, and what it says anywhere else.
		{op: "ReleaseAddress", code: "AuthFailure", status: 403, want: pipeline.Busy},
		{op: "DescribeVpcs", code: "AuthFailure", status: 401, want: pipeline.Expired},
		{code: "DependencyViolation", status: 400, want: pipeline.Busy},
		{code: "ResourceInUse", status: 400, want: pipeline.Busy},
		{code: "InvalidNetworkInterface.InUse", status: 400, want: pipeline.Busy},
		{code: "DeleteConflict", status: 409, want: pipeline.Busy},
		{code: "IncorrectState", status: 400, want: pipeline.Busy},
		{code: "RequestLimitExceeded", status: 503, want: pipeline.Throttled},
		{code: "Throttling", message: "Rate exceeded", status: 400, want: pipeline.Throttled},
		{code: "ThrottlingException", status: 400, want: pipeline.Throttled},
		{code: "TooManyRequestsException", status: 400, want: pipeline.Throttled},
		{code: "PriorRequestNotComplete", status: 400, want: pipeline.Throttled},
		{code: "SlowDown", status: 503, want: pipeline.Throttled},
		{code: "VpcLimitExceeded", status: 400, want: pipeline.Quota},
		{code: "AddressLimitExceeded", status: 400, want: pipeline.Quota},
		{code: "VcpuLimitExceeded", status: 400, want: pipeline.Quota},
		{code: "LimitExceeded", status: 409, want: pipeline.Quota},
		{code: "TooManyLoadBalancers", status: 400, want: pipeline.Quota},
		{code: "InsufficientInstanceCapacity", status: 500, want: pipeline.Capacity},
		{code: "UnauthorizedOperation", status: 403, want: pipeline.Denied},
		{code: "AccessDenied", status: 403, want: pipeline.Denied},
		{code: "AccessDeniedException", status: 400, want: pipeline.Denied},
		{code: "OptInRequired", status: 401, want: pipeline.Denied},
		{code: "ExpiredToken", status: 403, want: pipeline.Expired},
		{code: "RequestExpired", status: 400, want: pipeline.Expired},
		{code: "InvalidClientTokenId", status: 403, want: pipeline.Expired},
		{code: "SignatureDoesNotMatch", status: 403, want: pipeline.Expired},
		{code: "IdempotentParameterMismatch", status: 400, want: pipeline.Mismatch},
		{code: "EntityAlreadyExists", status: 409, want: pipeline.Exists},
		{code: "InvalidGroup.Duplicate", status: 400, want: pipeline.Exists},
		{code: "InvalidPermission.Duplicate", status: 400, want: pipeline.Exists},
		{code: "RouteAlreadyExists", status: 400, want: pipeline.Exists},
		{code: "Resource.AlreadyAssociated", status: 400, want: pipeline.Exists},
		{code: "InvalidSubnet.Conflict", status: 400, want: pipeline.Exists},
		{code: "DuplicateLoadBalancerName", status: 400, want: pipeline.Exists},
		{code: "InternalError", status: 500, want: pipeline.Unavailable},
		{code: "ServiceUnavailable", status: 503, want: pipeline.Unavailable},
		{code: "SomethingNew", status: 502, want: pipeline.Unavailable},
		{code: "NotImplemented", status: 501, want: pipeline.Invalid},
		{code: "DryRunOperation", status: 412, want: pipeline.Invalid},
		{code: "MissingParameter", status: 400, want: pipeline.Invalid},
		// H11: a code that is not known is never taken as final.
		{code: "NetcfgSomethingOutside", status: 400, want: pipeline.Unknown},
	} {
		if got := classOf(c.op, c.code, c.message, c.status); got != c.want {
			t.Errorf("%s %s %q: %s, want %s", c.op, c.code, c.message, got, c.want)
		}
	}
}

func respond(status int, err error) error {
	return &smithyhttp.ResponseError{Response: &smithyhttp.Response{Response: &http.Response{StatusCode: status, Header: http.Header{"Retry-After": {"7"}}}}, Err: err}
}

func TestClassify(t *testing.T) {
	reset := &net.OpError{Op: "read", Err: syscall.ECONNRESET}
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	for _, c := range []struct {
		name  string
		sent  bool
		err   error
		class pipeline.Class
		after bool // Sent as it comes out
	}{
		{"an API error", true, respond(400, &smithy.GenericAPIError{Code: "VpcLimitExceeded", Message: "no"}), pipeline.Quota, true},
		{"a 503 without a body", true, respond(503, &smithy.DeserializationError{Err: errors.New("EOF")}), pipeline.Unavailable, true},
		{"a 403 with a web page", true, respond(403, &smithy.DeserializationError{Err: errors.New("expected element type <Response>")}), pipeline.Unknown, true},
		{"a 200 that cannot be read", true, respond(200, errEmpty), pipeline.Unavailable, true},
		{"a reset connection", true, &smithyhttp.RequestSendError{Err: reset}, pipeline.Unavailable, true},
		{"a refused connection", true, &smithyhttp.RequestSendError{Err: refused}, pipeline.Unavailable, false},
		{"an unknown host", true, &smithyhttp.RequestSendError{Err: &net.DNSError{Err: "no such host", IsNotFound: true}}, pipeline.Unavailable, false},
		{"a deadline", true, fmt.Errorf("request: %w", context.DeadlineExceeded), pipeline.Unavailable, true},
		{"a cancelled call", true, fmt.Errorf("request: %w", context.Canceled), pipeline.Unavailable, true},
		{"no credentials", false, errors.New("get identity: get credentials: failed to refresh cached credentials"), pipeline.Expired, false},
		{"a parameter left out", false, errors.New("1 validation error(s) found"), pipeline.Invalid, false},
	} {
		ce := classify("EC2", "CreateVpc", c.sent, c.err)
		if ce.Class != c.class || ce.Sent != c.after {
			t.Errorf("%s: class %s, sent %v; want %s, %v", c.name, ce.Class, ce.Sent, c.class, c.after)
		}
		if ce.Error() == "" || ce.Message == "" && ce.Code == "" {
			t.Errorf("%s: no reason is given", c.name)
		}
		again := classify("EC2", "CreateVpc", true, fmt.Errorf("wrapped: %w", ce))
		if again != ce {
			t.Errorf("%s: classified twice", c.name)
		}
	}
	if ce := classify("EC2", "X", true, respond(429, errors.New("x"))); ce.RetryAfter != 7*time.Second || ce.Class != pipeline.Throttled {
		t.Errorf("got %v after %v", ce.Class, ce.RetryAfter)
	}
}

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		pattern, s string
		want       bool
	}{
		{"Internal*", "InternalError", true}, {"*InUse", "ResourceInUse", true}, {"*InUse", "InUseBy", false},
		{"Idempotent*Mismatch*", "IdempotentParameterMismatchException", true}, {"*", "", true}, {"AuthFailure", "AuthFailures", false},
	} {
		if matches(c.pattern, c.s) != c.want {
			t.Errorf("matches(%q, %q) = %v", c.pattern, c.s, !c.want)
		}
	}
}
