package gcp

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/api/compute/v1"

	"github.com/zopday/provisioner/internal/pipeline"
)

// What the services answer, from recorded traffic and public issues, and what it
// means.
func TestClassifyAnswer(t *testing.T) {
	for _, c := range []struct {
		name   string
		status int
		method string
		path   string
		body   string
		class  pipeline.Class
		code   string
	}{
		{"object", 404, "GET", "/compute/v1/projects/p/global/networks/n",
			`{"error":{"code":404,"message":"The resource 'projects/p/global/networks/n' was not found","errors":[{"message":"The resource 'projects/p/global/networks/n' was not found","domain":"global","reason":"notFound"}]}}`, pipeline.NotFound, "notFound"},
		{"parent is no absence", 404, "GET", "/compute/v1/projects/p/zones/z/instances/i",
			`{"error":{"code":404,"message":"The resource 'projects/p/zones/z' was not found","errors":[{"reason":"notFound"}]}}`, pipeline.Invalid, "notFound"},
		{"what a create names", 404, "POST", "/compute/v1/projects/p/global/firewalls",
			`{"error":{"code":404,"message":"The resource 'projects/p/global/networks/n' was not found","errors":[{"reason":"notFound"}]}}`, pipeline.NotFound, "notFound"},
		{"proxy's 404 is no absence", 404, "GET", "/x/projects/p/global/networks/n", `<html>404</html>`, pipeline.Invalid, ""},
		{"zone", 404, "GET", "/dns/v1/projects/p/managedZones/z", `{"error":{"code":404,"message":"The 'parameters.managedZone' resource named 'z' does not exist.","status":"NOT_FOUND","errors":[{"reason":"notFound"}]}}`, pipeline.NotFound, "notFound"},
		{"OS Config", 404, "GET", "/v1/projects/p/x/y", `{"error":{"code":404,"message":"Requested entity was not found.","status":"NOT_FOUND"}}`, pipeline.NotFound, "NOT_FOUND"},
		{"unknown project", 403, "GET", "/v3/projects/q", `{"error":{"code":403,"message":"The caller does not have permission","status":"PERMISSION_DENIED"}}`, pipeline.Denied, "PERMISSION_DENIED"},
		{"taken", 409, "POST", "/x", `{"error":{"code":409,"message":"The resource 'x' already exists","errors":[{"reason":"alreadyExists"}]}}`, pipeline.Exists, "alreadyExists"},
		{"race", 409, "POST", "/v1/projects/p:setIamPolicy", `{"error":{"code":409,"message":"There were concurrent policy changes.","status":"ABORTED"}}`, pipeline.Busy, "ABORTED"},
		{"fingerprint", 412, "PATCH", "/x", `{"error":{"code":412,"message":"Invalid fingerprint.","errors":[{"reason":"conditionNotMet"}]}}`, pipeline.Busy, "conditionNotMet"},
		{"organisation policy has the same code", 412, "POST", "/x", `{"error":{"code":412,"message":"Constraint constraints/compute.vmExternalIpAccess violated for project p.","errors":[{"reason":"conditionNotMet"}]}}`, pipeline.Denied, "conditionNotMet"},
		{"in use", 400, "DELETE", "/x", `{"error":{"code":400,"message":"The network resource 'x' is already being used by 'y'","errors":[{"reason":"resourceInUseByAnotherResource"}]}}`, pipeline.Busy, "resourceInUseByAnotherResource"},
		{"not ready", 400, "POST", "/x", `{"error":{"code":400,"message":"The resource 'x' is not ready","errors":[{"reason":"resourceNotReady"}]}}`, pipeline.Busy, "resourceNotReady"},
		{"peering under way", 400, "POST", "/x", `{"error":{"code":400,"message":"There is a peering operation in progress on the local or peer network. Try again later.","errors":[{"reason":"badRequest"}]}}`, pipeline.Busy, "badRequest"},
		{"no such peering", 400, "POST", "/compute/v1/projects/p/global/networks/n/removePeering", `{"error":{"code":400,"message":"Invalid value for field 'name': 'x'. There is no peering 'x' in network 'n'.","errors":[{"reason":"invalid"}]}}`, pipeline.NotFound, "invalid"},
		{"services still use it", 400, "POST", "/x", `{"error":{"code":400,"message":"Failed to delete connection; Producer services (e.g. CloudSQL, Cloud Memstore, etc.) are still using this connection.","status":"FAILED_PRECONDITION"}}`, pipeline.Busy, "FAILED_PRECONDITION"},
		{"records left", 400, "DELETE", "/x", `{"error":{"code":400,"message":"The resource named 'z' cannot be deleted because it contains one or more 'resource records'.","errors":[{"reason":"containerNotEmpty"}]}}`, pipeline.Busy, "containerNotEmpty"},
		{"rate", 403, "GET", "/x", `{"error":{"code":403,"message":"Rate Limit Exceeded","errors":[{"domain":"usageLimits","reason":"rateLimitExceeded"}]}}`, pipeline.Throttled, "rateLimitExceeded"},
		{"rate of requests a minute", 429, "GET", "/x", `{"error":{"code":429,"message":"Quota exceeded for quota metric 'Read requests' and limit 'Read requests per minute' of service 'compute.googleapis.com'","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"RATE_LIMIT_EXCEEDED"}]}}`, pipeline.Throttled, "RATE_LIMIT_EXCEEDED"},
		{"quota", 403, "POST", "/x", `{"error":{"code":403,"message":"Quota 'NETWORKS' exceeded.  Limit: 5.0 globally.","errors":[{"domain":"usageLimits","reason":"quotaExceeded"}]}}`, pipeline.Quota, "quotaExceeded"},
		{"API off", 403, "GET", "/x", `{"error":{"code":403,"message":"Cloud DNS API has not been used in project 1 before or it is disabled.","errors":[{"domain":"usageLimits","reason":"accessNotConfigured"}],"status":"PERMISSION_DENIED","details":[{"reason":"SERVICE_DISABLED"}]}}`, pipeline.Busy, "SERVICE_DISABLED"},
		{"denied", 403, "GET", "/x", `{"error":{"code":403,"message":"Required 'compute.networks.get' permission for 'projects/p'","errors":[{"reason":"forbidden"}]}}`, pipeline.Denied, "forbidden"},
		{"no token", 401, "GET", "/x", `{"error":{"code":401,"message":"Request is missing required authentication credential.","errors":[{"reason":"required"}],"status":"UNAUTHENTICATED"}}`, pipeline.Expired, "required"},
		{"token endpoint", 400, "POST", "/token", `{"error":"invalid_grant","error_description":"Token has been expired or revoked."}`, pipeline.Expired, "invalid_grant"},
		{"fresh account", 400, "POST", "/x", `{"error":{"code":400,"message":"The resource 'projects/p/serviceAccounts/a' of type 'serviceAccount' was not found.","errors":[{"reason":"invalid"}]}}`, pipeline.NotFound, "invalid"},
		{"fresh network", 400, "POST", "/x", `{"error":{"code":400,"message":"Invalid value for field 'resource.network': 'n'. The referenced network resource cannot be found.","errors":[{"reason":"invalid"}]}}`, pipeline.NotFound, "invalid"},
		{"wrong", 400, "POST", "/x", `{"error":{"code":400,"message":"Invalid value for field 'resource.name': 'A'.","errors":[{"reason":"invalid"}]}}`, pipeline.Invalid, "invalid"},
		{"no reason", 400, "GET", "/x", `{"error":{"code":400,"message":"Invalid value for field 'priority': '9000'."}}`, pipeline.Invalid, ""},
		{"a list of errors", 403, "GET", "/x", `[{"error":{"code":403,"message":"no","status":"PERMISSION_DENIED"}}]`, pipeline.Denied, "PERMISSION_DENIED"},
		{"cloud falters", 503, "GET", "/x", `{"error":{"code":503,"message":"Backend Error","errors":[{"reason":"backendError"}]}}`, pipeline.Unavailable, "backendError"},
		{"page of a proxy", 403, "GET", "/x", `<html><body>Forbidden</body></html>`, pipeline.Unknown, ""},
		{"empty 500", 500, "GET", "/x", ``, pipeline.Unavailable, ""},
		{"unheard of", 400, "GET", "/x", `{"error":{"code":418,"message":"teapot","errors":[{"reason":"teapot"}]}}`, pipeline.Invalid, "teapot"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			req, err := http.NewRequest(c.method, "https://compute.googleapis.com"+c.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			op, _ := operation(serviceCompute, c.method, c.path)
			got := classifyAnswer(serviceCompute, op, req, &http.Response{StatusCode: c.status, Header: http.Header{"Retry-After": {"7"}}}, []byte(c.body))
			if got.Class != c.class || got.Code != c.code || !got.Sent || got.RetryAfter.Seconds() != 7 || got.Message == "" {
				t.Errorf("got %s, code %q: %v", got.Class, got.Code, got)
			}
		})
	}
}

// An operation that failed means what the same refusal would mean.
func TestOperationError(t *testing.T) {
	for _, c := range []struct {
		name, body string
		class      pipeline.Class
		says       string
	}{
		{"capacity", `{"status":"DONE","operationType":"insert","targetLink":"https://www.googleapis.com/compute/v1/projects/p/zones/z/instances/i","httpErrorStatusCode":503,
			"error":{"errors":[{"code":"ZONE_RESOURCE_POOL_EXHAUSTED","message":"The zone 'projects/p/zones/z' does not have enough resources available to fulfill the request."}]}}`, pipeline.Capacity, "compute instances.insert: The zone"},
		{"capacity with details", `{"status":"DONE","operationType":"insert","targetLink":"projects/p/zones/z/instances/i","error":{"errors":[{"code":"ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS","message":"no"}]}}`, pipeline.Capacity, "instances.insert"},
		{"quota", `{"status":"DONE","operationType":"insert","targetLink":"projects/p/zones/z/instances/i","error":{"errors":[{"code":"QUOTA_EXCEEDED","message":"Quota 'CPUS' exceeded. Limit: 8.0 in region r."}]}}`, pipeline.Quota, "CPUS"},
		{"in use", `{"status":"DONE","operationType":"delete","targetLink":"projects/p/global/networks/n","httpErrorStatusCode":400,"error":{"errors":[{"code":"RESOURCE_IN_USE_BY_ANOTHER_RESOURCE","message":"The network resource 'n' is already being used by 'f'"}]}}`, pipeline.Busy, "networks.delete"},
		{"not ready", `{"status":"DONE","operationType":"insert","targetLink":"projects/p/regions/r/subnetworks/s","error":{"errors":[{"code":"RESOURCE_NOT_READY","message":"x"}]}}`, pipeline.Busy, "subnetworks.insert"},
		{"two reasons", `{"status":"DONE","operationType":"insert","targetLink":"projects/p/zones/z/instances/i","error":{"errors":[{"code":"UNSUPPORTED_OPERATION","message":"one"},{"code":"X","message":"two"}]}}`, pipeline.Invalid, "one; two"},
		{"under way", `{"status":"RUNNING","operationType":"insert","targetLink":"projects/p/global/networks/n"}`, "", ""},
		{"fine", `{"status":"DONE","operationType":"insert","targetLink":"projects/p/global/networks/n"}`, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var op compute.Operation
			if err := json.Unmarshal([]byte(c.body), &op); err != nil {
				t.Fatal(err)
			}
			err := operationError(&op)
			var ce *pipeline.CloudError
			switch {
			case c.class == "" && err != nil:
				t.Errorf("got %v", err)
			case c.class != "" && (!errors.As(err, &ce) || ce.Class != c.class || !strings.Contains(err.Error(), c.says)):
				t.Errorf("got %v (%s)", err, pipeline.ClassOf(err))
			}
		})
	}
}

// The method that a request calls, and whether it changes something, by its path.
func TestOperationOfARequest(t *testing.T) {
	for _, c := range []struct {
		service, method, path, want string
		mutating                    bool
	}{
		{serviceCompute, "GET", "/compute/v1/projects/p", "projects.get", false},
		{serviceCompute, "GET", "/compute/v1/projects/p/global/networks", "networks.list", false},
		{serviceCompute, "GET", "/compute/v1/projects/p/global/networks/n", "networks.get", false},
		{serviceCompute, "POST", "/compute/v1/projects/p/global/networks", "networks.insert", true},
		{serviceCompute, "POST", "/compute/v1/projects/p/global/networks/n/addPeering", "networks.addPeering", true},
		{serviceCompute, "PATCH", "/compute/v1/projects/p/regions/r/subnetworks/s", "subnetworks.patch", true},
		{serviceCompute, "DELETE", "/compute/v1/projects/p/zones/z/instances/i", "instances.delete", true},
		{serviceCompute, "GET", "/compute/v1/projects/p/aggregated/subnetworks", "subnetworks.aggregatedList", false},
		{serviceCompute, "GET", "/compute/v1/projects/p/regions/r/operations/o", "operations.get", false},
		{serviceCompute, "GET", "/compute/v1/projects/p/regions/r", "regions.get", false},
		{serviceCompute, "GET", "/compute/v1/projects/p/zones", "zones.list", false},
		{serviceCompute, "GET", "/compute/v1/projects/p/zones/z/instances/i/getGuestAttributes", "instances.getGuestAttributes", false},
		{serviceCompute, "POST", "/compute/v1/projects/p/regions/r/instanceGroupManagers/m/listManagedInstances", "instanceGroupManagers.listManagedInstances", false},
		{serviceCompute, "POST", "/compute/v1/projects/p/global/backendServices/b/getHealth", "backendServices.getHealth", false},
		{serviceCompute, "POST", "/compute/v1/projects/p/zones/z/instances/i/setMetadata", "instances.setMetadata", true},
		{serviceCompute, "POST", "/compute/v1/projects/p/targetHttpProxies/t/setUrlMap", "targetHttpProxies.setUrlMap", true},
		{serviceDNS, "POST", "/dns/v1/projects/p/managedZones", "managedZones.create", true},
		{serviceDNS, "GET", "/dns/v1/projects/p/managedZones/z/rrsets", "rrsets.list", false},
		{serviceDNS, "POST", "/dns/v1/projects/p/managedZones/z/changes", "changes.create", true},
		{serviceIAM, "POST", "/v1/projects/p/serviceAccounts", "serviceAccounts.create", true},
		{serviceIAM, "GET", "/v1/projects/p/serviceAccounts/a@p.iam.gserviceaccount.com", "serviceAccounts.get", false},
		{serviceCRM, "POST", "/v3/projects/p:getIamPolicy", "projects.getIamPolicy", false},
		{serviceCRM, "POST", "/v3/projects/p:setIamPolicy", "projects.setIamPolicy", true},
		{serviceCRM, "POST", "/v3/projects/p:testIamPermissions", "projects.testIamPermissions", false},
		{serviceUsage, "GET", "/v1/projects/p/services:batchGet", "services.batchGet", false},
		{serviceUsage, "POST", "/v1/projects/p/services/compute.googleapis.com:enable", "services.enable", true},
		{serviceNetworking, "PATCH", "/v1/services/servicenetworking.googleapis.com/connections/-", "connections.patch", true},
		{serviceNetworking, "POST", "/v1/services/servicenetworking.googleapis.com/connections/c", "connections.deleteConnection", true},
		{serviceNetworking, "GET", "/v1/operations/o", "operations.get", false},
	} {
		if got, mutating := operation(c.service, c.method, c.path); got != c.want || mutating != c.mutating {
			t.Errorf("%s %s: got %s, mutating %v", c.method, c.path, got, mutating)
		}
	}
}

func TestLinks(t *testing.T) {
	const id = "projects/p/regions/r/subnetworks/s"
	for _, link := range []string{
		id, "https://www.googleapis.com/compute/v1/" + id, "https://compute.googleapis.com/compute/v1/" + id, "http://127.0.0.1:5092/compute/v1/" + id, "//compute.googleapis.com/" + id,
	} {
		if rel(link) != id || base(link) != "s" || projectOf(link) != "p" || regionOf(link) != "r" || zoneOf(link) != "" {
			t.Errorf("%s: %s", link, rel(link))
		}
	}
}

func TestLabels(t *testing.T) {
	long := strings.Repeat("x", 200)
	got := userLabels(map[string]string{"Env": "Prod", "team": "shop_1", "1st": "a b", "note": long, "zopday-owner": "me", "other": strings.Repeat("x", 199) + "y"})
	for k, v := range map[string]string{"env": "prod", "team": "shop_1", "l-1st": "a-b", "user-zopday-owner": "me"} {
		if got[k] != v {
			t.Errorf("%s is %q, want %q", k, got[k], v)
		}
	}
	if len(got["note"]) != 63 || got["note"] == got["other"] {
		t.Errorf("%q and %q", got["note"], got["other"])
	}
}

// Who may not is told what to do about it.
func TestExplained(t *testing.T) {
	for message, want := range map[string]string{
		"Required 'compute.networks.create' permission for 'projects/p'":                      "a role with compute.networks.create",
		"Permission 'dns.managedZones.create' denied on resource (or it may not exist).":      "a role with dns.managedZones.create",
		"Constraint constraints/compute.restrictVpcPeering violated for project p.":           "the organisation's policies",
		"This API method requires billing to be enabled. Please enable billing on project #1": "billing account",
		"The caller does not have permission":                                                 "a role that allows compute networks.insert",
	} {
		denied := &pipeline.CloudError{Class: pipeline.Denied, Service: serviceCompute, Op: "networks.insert", Message: message, Sent: true}
		err := explained(denied)
		if f := fatal(err); f == nil || f.Problem.Code != "permission-denied" || !strings.Contains(f.Problem.Hint, want) || !pipeline.Is(err, pipeline.Denied) {
			t.Errorf("%s: %v", message, err)
		}
	}
	busy := &pipeline.CloudError{Class: pipeline.Busy}
	if _, same := explained(busy).(*pipeline.CloudError); !same || explained(nil) != nil { //nolint:errorlint // the very error
		t.Error("what is no refusal was changed")
	}
}
