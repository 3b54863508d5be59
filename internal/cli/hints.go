package cli

import (
	"regexp"
	"strings"
)

// asCommands puts the commands in the place of the requests that the API's hints
// speak of; a hint without a command for it stays as it came.
var asCommands commandHints

type commandHints struct{}

// Replace is a hint as the command line says it.
func (commandHints) Replace(hint string) string {
	for _, h := range namedHints {
		hint = h.request.ReplaceAllString(hint, h.command)
	}
	return plainHints.Replace(hint)
}

// namedHints are those with the name of something in their middle.
var namedHints = []struct {
	request *regexp.Regexp
	command string
}{
	{regexp.MustCompile(`GET /webhooks/(\S+)/deliveries lists`), "zopday webhooks deliveries $1 shows"},
	{regexp.MustCompile(`Give the account permissionLevel read_write \(PATCH /cloud-accounts/([^\s)]+)\)`), "Give the account permissionLevel read_write (zopday accounts change $1 --level read_write)"},
	{regexp.MustCompile(`Change that one with PATCH, or delete it: GET /schedules\?jobId=(\S+)`), "Delete that one first with zopday schedules delete SCHEDULE: zopday schedules list shows it"},
	{regexp.MustCompile(`Change that one with PATCH /schedules/(\S+), or delete it`), "Delete that one first with zopday schedules delete $1"},
	{regexp.MustCompile(`use POST and DELETE /provisioning-jobs/(\S+)/databases`), "use zopday databases create and delete for $1"},
}

var plainHints = strings.NewReplacer(
	"GET …/plan lists", "zopday jobs plan JOB lists",
	"Repeat the request with ?confirm=", "Repeat the command with --confirm ",
	"repeat the request with ?confirm=", "repeat the command with --confirm ",
	"GET /provisioning-jobs lists", "zopday jobs list shows",
	"GET /spaces lists", "zopday spaces list shows",
	"GET …/databases lists", "zopday databases list JOB shows",
	"name one of GET …/databases", "name one of zopday databases list JOB with --database",
	"GET …/connections lists", "zopday connections list JOB shows",
	": POST …/connections", ": zopday connections create JOB SERVICE",
	"GET /schedules lists", "zopday schedules list shows",
	"add ?confirm=", "add --confirm ",
	"from GET /spaces", "from zopday spaces list",
	": GET /spaces", ": zopday spaces list",
	": POST /spaces", ": zopday spaces register",
	"GET /catalog/components lists", "zopday components list shows",
	"from GET /catalog/components", "from zopday components list",
	"GET /catalog/components has", "zopday components get NAME -o json has",
	`Send it with {"componentOp":"upgrade"}`, "Send it with zopday components upgrade JOB",
	`or go back with {"componentOp":"rollback"}`, "or go back with zopday components rollback JOB",
	"Change it with PATCH config.spec.component", "Change it with zopday jobs update JOB --set component.version=VERSION",
	"change version or values with PATCH config.spec.component", "change version or values with zopday jobs update JOB --set component.version=VERSION",
	`submit it with PATCH {"status":"queued"}`, "submit it with zopday jobs submit JOB",
	"GET the job to see", "zopday jobs get JOB, to see",
	"Retry it with POST …/retry", "Retry it with zopday jobs retry JOB",
	"tear it down with DELETE", "tear it down with zopday jobs delete JOB",
	"cancel it with DELETE", "cancel it with zopday jobs cancel JOB",
	"(PATCH the job)", "(zopday jobs update JOB)",
	"GET /catalog/policies has", "zopday accounts policy CLOUD FAMILY has",
	"GET /cloud-accounts lists those that there are; POST makes one", "zopday accounts list shows those that there are; zopday accounts add makes one",
	"GET /cloud-accounts lists", "zopday accounts list shows",
	"make an account of your own: POST /cloud-accounts", "make an account of your own: zopday accounts add",
	"GET it, and send the change again", "Look at it again, and send the change again",
	"GET /teams lists", "zopday teams list shows",
	"GET /tokens lists", "zopday tokens list shows",
	"(GET /tokens)", "(zopday tokens list)",
	"Make a new one with POST /tokens", "Make a new one with zopday tokens create",
	"GET /roles lists", "zopday roles list shows",
	"Make a role of your own with POST /roles", "Make a role of your own with zopday roles create",
	"GET /policies lists", "zopday roles policies shows",
	"GET /assignments lists", "zopday assignments list shows",
	"GET /webhooks lists", "zopday webhooks list shows",
	`Switch it on with PATCH {"enabled":true} first`, "Switch it on with zopday webhooks enable WEBHOOK first",
	"DELETE cancels, POST …/retry retries", "zopday jobs cancel JOB cancels, zopday jobs retry JOB retries",
	"DELETE uninstalls", "zopday jobs delete JOB uninstalls",
	"change its health check with PATCH config.spec.loadBalancer.healthCheck", "change its health check with zopday jobs update JOB --set loadBalancer.healthCheck.path=PATH",
	"POST /provisioning-jobs/install-component", "zopday components install SPACE COMPONENT",
	"(DELETE /spaces/{id})", "(zopday spaces forget SPACE)",
	`Submit it with PATCH {"status":"queued"}`, "Submit it with zopday jobs submit JOB",
	"(POST …/rotate)", "(zopday connections rotate)",
	"GET the job, look at what changed", "Look with zopday jobs get JOB at what changed",
)
