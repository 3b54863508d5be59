package azure

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zopday/provisioner/internal/pipeline"
)

func answer(status int, body string, header map[string]string) *http.Response {
	h := http.Header{}
	for k, v := range header {
		h.Set(k, v)
	}
	return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(bytes.NewReader([]byte(body)))}
}

func wrapped(code, message string) string {
	return `{"error":{"code":"` + code + `","message":"` + message + `"}}`
}

func TestClassify(t *testing.T) {
	for _, c := range []struct {
		name, body string
		status     int
		request    map[string]string
		want       pipeline.Class
		code       string
	}{
		{name: "gone", body: wrapped("ResourceNotFound", "The Resource was not found."), status: 404, want: pipeline.NotFound},
		{name: "group gone", body: wrapped("ResourceGroupNotFound", ""), status: 404, want: pipeline.NotFound},
		{name: "parent gone", body: wrapped("ParentResourceNotFound", ""), status: 404, want: pipeline.NotFound},
		{name: "DNS leaves the wrapper out", body: `{"code":"NotFound","message":"The resource record was not found."}`, status: 404, want: pipeline.NotFound},
		{name: "reference to what is not there yet", body: wrapped("InvalidResourceReference", ""), status: 400, want: pipeline.NotFound},
		{name: "fresh principal", body: wrapped("PrincipalNotFound", "does not exist in the directory"), status: 400, want: pipeline.NotFound},
		{name: "fresh principal inside", body: `{"error":{"code":"InternalServerError","message":"x","details":[{"code":"ServicePrincipalNotFound","message":"y"}]}}`, status: 500, want: pipeline.NotFound},
		{name: "no such subscription", body: wrapped("SubscriptionNotFound", ""), status: 404, want: pipeline.Invalid},
		{name: "no such image", body: wrapped("PlatformImageNotFound", ""), status: 404, want: pipeline.Invalid},

		{name: "another operation", body: wrapped("AnotherOperationInProgress", ""), status: 409, want: pipeline.Busy},
		{name: "reference not ready", body: `{"error":{"code":"RetryableError","message":"A retryable error occurred.","details":[{"code":"ReferencedResourceNotProvisioned","message":"x"}]}}`,
			status: 429, want: pipeline.Busy, code: "ReferencedResourceNotProvisioned"},
		{name: "reference not ready, 400", body: wrapped("ReferencedResourceNotProvisioned", ""), status: 400, want: pipeline.Busy},
		{name: "group on its way out", body: wrapped("ResourceGroupBeingDeleted", ""), status: 409, want: pipeline.Busy},
		{name: "subnet in use", body: wrapped("InUseSubnetCannotBeDeleted", ""), status: 400, want: pipeline.Busy},
		{name: "group in use", body: wrapped("InUseNetworkSecurityGroupCannotBeDeleted", ""), status: 400, want: pipeline.Busy},
		{name: "address in use", body: wrapped("PublicIPAddressCannotBeDeleted", ""), status: 400, want: pipeline.Busy},
		{name: "zone with links", body: wrapped("CannotDeleteResource", ""), status: 409, want: pipeline.Busy},
		{name: "plain conflict", body: wrapped("Conflict", ""), status: 409, want: pipeline.Busy},
		{name: "changed meanwhile", body: `{"code":"PreconditionFailed","message":"etag mismatch"}`, status: 412, request: map[string]string{"If-Match": "x"}, want: pipeline.Busy},
		{name: "there already", body: `{"code":"PreconditionFailed","message":"exists"}`, status: 412, request: map[string]string{"If-None-Match": "*"}, want: pipeline.Exists},
		{name: "namesake elsewhere", body: wrapped("InvalidResourceLocation", "already exists in location 'westus'"), status: 409, want: pipeline.Exists},
		{name: "role assigned", body: wrapped("RoleAssignmentExists", ""), status: 409, want: pipeline.Exists},

		{name: "throttled", body: wrapped("TooManyRequests", ""), status: 429, want: pipeline.Throttled},
		{name: "throttled compute", body: wrapped("OperationNotAllowed", "The server rejected the request because too many requests have been received for this subscription."), status: 429, want: pipeline.Throttled},
		{name: "throttled subscription", body: wrapped("SubscriptionRequestsThrottled", ""), status: 429, want: pipeline.Throttled},
		{name: "throttled without a word", body: "", status: 429, want: pipeline.Throttled},

		{name: "quota of cores", body: wrapped("OperationNotAllowed", "Operation could not be completed as it results in exceeding approved Total Regional Cores quota."), status: 409, want: pipeline.Quota},
		{name: "quota", body: wrapped("QuotaExceeded", ""), status: 409, want: pipeline.Quota},
		{name: "addresses", body: wrapped("PublicIPCountLimitReached", ""), status: 400, want: pipeline.Quota},
		{name: "no capacity", body: wrapped("AllocationFailed", ""), status: 409, want: pipeline.Capacity},
		{name: "no capacity in a zone", body: wrapped("ZonalAllocationFailed", ""), status: 409, want: pipeline.Capacity},
		{name: "no capacity for so much", body: wrapped("OverconstrainedZonalAllocationRequest", ""), status: 409, want: pipeline.Capacity},
		{name: "size not offered", body: wrapped("SkuNotAvailable", ""), status: 409, want: pipeline.Capacity},

		{name: "may not", body: wrapped("AuthorizationFailed", "The client does not have authorization"), status: 403, want: pipeline.Denied},
		{name: "may not use that", body: wrapped("LinkedAuthorizationFailed", ""), status: 403, want: pipeline.Denied},
		{name: "locked", body: wrapped("ScopeLocked", ""), status: 409, want: pipeline.Denied},
		{name: "policy", body: wrapped("RequestDisallowedByPolicy", ""), status: 403, want: pipeline.Denied},
		{name: "provider not registered", body: wrapped("MissingSubscriptionRegistration", ""), status: 409, want: pipeline.Denied},
		{name: "token expired", body: wrapped("ExpiredAuthenticationToken", ""), status: 401, want: pipeline.Expired},
		{name: "token of another tenant", body: wrapped("InvalidAuthenticationTokenTenant", ""), status: 401, want: pipeline.Expired},
		{name: "unauthorized without a word", body: "", status: 401, want: pipeline.Expired},

		{name: "internal", body: wrapped("InternalServerError", ""), status: 500, want: pipeline.Unavailable},
		{name: "something new, and the cloud's fault", body: wrapped("SomethingNew", ""), status: 502, want: pipeline.Unavailable},
		{name: "gateway", body: "<html>bad gateway</html>", status: 502, want: pipeline.Unavailable},
		{name: "proxy", body: "<html>blocked</html>", status: 403, want: pipeline.Unknown},
		{name: "nothing", body: "", status: 400, want: pipeline.Unknown},
		// May clear when the parent has settled (failure kind H11).
		{name: "outside of the network", body: wrapped("NetcfgSubnetRangeOutsideVnet", ""), status: 400, want: pipeline.Unknown},
		{name: "wrong", body: wrapped("InvalidParameter", ""), status: 400, want: pipeline.Invalid},
		{name: "overlap", body: wrapped("VnetAddressSpacesOverlap", ""), status: 400, want: pipeline.Invalid},
		{name: "not allowed", body: wrapped("OperationNotAllowed", "Changing that is not allowed."), status: 409, want: pipeline.Invalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			req, err := http.NewRequest(http.MethodPut, "https://management.azure.com/x", nil)
			if err != nil {
				t.Fatal(err)
			}
			for k, v := range c.request {
				req.Header.Set(k, v)
			}
			ce := classify(&flight{service: "Microsoft.Network", op: "virtualNetworks/write", sent: true}, req, answer(c.status, c.body, nil), nil)
			if ce.Class != c.want {
				t.Errorf("class %s, want %s (%v)", ce.Class, c.want, ce)
			}
			if c.code != "" && ce.Code != c.code {
				t.Errorf("code %s, want %s", ce.Code, c.code)
			}
			if !ce.Sent || ce.Error() == "" {
				t.Errorf("sent %v, text %q", ce.Sent, ce.Error())
			}
		})
	}
}

func TestClassifyTransport(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		sent bool
		want pipeline.Class
		left bool // what is said of whether it left
	}{
		{"refused connection", &net.OpError{Op: "dial", Err: errors.New("connection refused")}, true, pipeline.Unavailable, false},
		{"no such host", &net.DNSError{Err: "no such host", Name: "management.azure.com"}, true, pipeline.Unavailable, false},
		{"reset", &net.OpError{Op: "read", Err: errors.New("connection reset by peer")}, true, pipeline.Unavailable, true},
		{"cut", io.ErrUnexpectedEOF, true, pipeline.Unavailable, true},
		{"time", context.DeadlineExceeded, true, pipeline.Unavailable, true},
		{"empty", errEmpty, true, pipeline.Unavailable, true},
		{"web page", errMarkup, true, pipeline.Unavailable, true},
		{"no credential", errors.New("DefaultAzureCredential: failed to acquire a token"), false, pipeline.Expired, false},
		{"plain HTTP", errors.New("authenticated requests are not permitted for non TLS protected (https) endpoints"), false, pipeline.Invalid, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			req, err := http.NewRequest(http.MethodPut, "https://management.azure.com/x", nil)
			if err != nil {
				t.Fatal(err)
			}
			ce := classify(&flight{sent: c.sent}, req, nil, c.err)
			if ce.Class != c.want || ce.Sent != c.left {
				t.Errorf("class %s sent %v, want %s %v: %v", ce.Class, ce.Sent, c.want, c.left, ce)
			}
		})
	}
}

func TestExplain(t *testing.T) {
	for _, c := range []struct{ code, want, hint string }{
		{"ScopeLocked", "locked", "never touched"},
		{"RequestDisallowedByPolicy", "refused-by-policy", "policy"},
		{"MissingSubscriptionRegistration", "provider-not-registered", "az provider register --namespace Microsoft.Network"},
		{"AuthorizationFailed", "permission-denied", "Microsoft.Network/natGateways/write"},
		{"SkuNotAvailable", "no-capacity", "another size"},
	} {
		ce := &pipeline.CloudError{Code: c.code, Service: "Microsoft.Network", Op: "natGateways/write", Sent: true, Class: fault{Code: c.code}.class()}
		err := explain(ce)
		var f *pipeline.FatalError
		if !errors.As(err, &f) || f.Problem.Code != c.want || !bytes.Contains([]byte(f.Problem.Hint), []byte(c.hint)) {
			t.Errorf("%s: %+v", c.code, err)
		}
		if pipeline.ClassOf(err) != ce.Class {
			t.Errorf("%s lost its class", c.code)
		}
	}
}

func TestAction(t *testing.T) {
	const sub = "/subscriptions/5c0b1f4e-0000-4000-8000-0000000000a1"
	for _, c := range []struct{ method, path, want, version string }{
		{"PUT", sub + "/resourceGroups/g", "Microsoft.Resources/resourceGroups/write", "2025-04-01"},
		{"GET", sub, "Microsoft.Resources/subscriptions/read", "2022-12-01"},
		{"GET", sub + "/locations", "Microsoft.Resources/locations/read", "2022-12-01"},
		{"GET", sub + "/resources", "Microsoft.Resources/resources/read", "2025-04-01"},
		{"GET", sub + "/resourceGroups/g/resources", "Microsoft.Resources/resourceGroups/resources/read", "2025-04-01"},
		{"PUT", sub + "/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v/subnets/s", "Microsoft.Network/virtualNetworks/subnets/write", "2025-07-01"},
		{"DELETE", sub + "/resourceGroups/g/providers/Microsoft.Network/dnsZones/z", "Microsoft.Network/dnsZones/delete", "2018-05-01"},
		{"GET", sub + "/resourceGroups/g/providers/Microsoft.Network/privateDnsZones/z/virtualNetworkLinks/l", "Microsoft.Network/privateDnsZones/virtualNetworkLinks/read", "2024-06-01"},
		{"GET", sub + "/providers/Microsoft.Network/locations/eastus/usages", "Microsoft.Network/locations/usages/read", "2025-07-01"},
		{"GET", sub + "/providers/Microsoft.Authorization/locks", "Microsoft.Authorization/locks/read", "2020-05-01"},
		{"GET", sub + "/providers/Microsoft.Compute/skus", "Microsoft.Compute/skus/read", "2021-07-01"},
		{"GET", sub + "/resourceGroups/g/providers/Microsoft.Compute/disks/d", "Microsoft.Compute/disks/read", "2026-03-02"},
		{"POST", sub + "/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/v/runCommand", "Microsoft.Compute/virtualMachines/runCommand/action", "2026-04-01"},
		{"GET", sub + "/resourceGroups/g/providers/Microsoft.Insights/autoscaleSettings/a", "Microsoft.Insights/autoscaleSettings/read", "2022-10-01"},
	} {
		service, op := action(c.method, c.path)
		if d := cmp.Diff(c.want, service+"/"+op); d != "" {
			t.Error(d)
		}
		if got := apiVersion(c.path); got != c.version {
			t.Errorf("%s: version %s, want %s", c.path, got, c.version)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	for _, c := range []struct {
		name, value string
		want        time.Duration
	}{
		{"Retry-After", "17", 17 * time.Second},
		{"X-Ms-Retry-After-Ms", "250", 250 * time.Millisecond},
		{"Retry-After", "Mon, 30 Nov 2020 12:00:00 GMT", 0},
		{"Retry-After", "soon", 0},
		{"Other", "5", 0},
	} {
		h := http.Header{}
		h.Set(c.name, c.value)
		if got := retryAfter(h); got != c.want {
			t.Errorf("%s: %s is %v, want %v", c.name, c.value, got, c.want)
		}
	}
}

// What refuses to go because something refers to it is there, although the code
// says that a reference leads nowhere.
func TestReferredToIsNotGone(t *testing.T) {
	for method, want := range map[string]pipeline.Class{http.MethodDelete: pipeline.Busy, http.MethodPut: pipeline.NotFound} {
		req, err := http.NewRequestWithContext(t.Context(), method, "https://management.azure.com/x", nil)
		if err != nil {
			t.Fatal(err)
		}
		ce := classify(&flight{sent: true}, req, answer(http.StatusBadRequest, wrapped("InvalidResourceReference", "Resource p referenced by resource v was not found."), nil), nil)
		if ce.Class != want {
			t.Errorf("%s: %s, want %s", method, ce.Class, want)
		}
	}
}
