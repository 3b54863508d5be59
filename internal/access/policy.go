package access

import (
	"slices"
	"strings"
)

// A Policy is one thing that a role may do, written resource:action.
type Policy string

// The policies.
const (
	JobView   Policy = "provisioning-job:view"
	JobCreate Policy = "provisioning-job:create"
	JobUpdate Policy = "provisioning-job:update"
	JobRetry  Policy = "provisioning-job:retry"
	JobDelete Policy = "provisioning-job:delete"

	VMOperate Policy = "vm:operate" // attach or detach a load balancer, remediation

	DatabaseView     Policy = "database:view"
	DatabaseCreate   Policy = "database:create"
	DatabaseDelete   Policy = "database:delete"
	ConnectionView   Policy = "connection:view"
	ConnectionCreate Policy = "connection:create"
	ConnectionDelete Policy = "connection:delete"
	ConnectionReveal Policy = "connection:reveal" // the secret behind a connection

	ComponentView      Policy = "component:view"
	ComponentInstall   Policy = "component:install"
	ComponentUninstall Policy = "component:uninstall"

	SpaceView          Policy = "space:view"
	SpaceManage        Policy = "space:manage"
	CloudAccountView   Policy = "cloud-account:view"
	CloudAccountManage Policy = "cloud-account:manage"
	RoleManage         Policy = "role:manage"
	TokenManage        Policy = "token:manage"
	AuditView          Policy = "audit-log:view"
	WebhookView        Policy = "webhook:view"
	WebhookManage      Policy = "webhook:manage"

	// Public marks an endpoint that needs no principal. No role grants it, so
	// it can never be required by mistake and pass.
	Public Policy = "public"

	// Authenticated marks an endpoint that everybody may ask who is known, whatever
	// they hold, and that answers by what they hold. No role grants it either.
	Authenticated Policy = "authenticated"
)

// The roles that are built in.
const (
	Admin  = "Admin"
	Editor = "Editor"
	Viewer = "Viewer"
)

// grants is the policy table: which built-in role has which policy. A policy
// that is not in it is granted to nobody.
var grants = map[Policy][]string{
	JobView:   {Admin, Editor, Viewer},
	JobCreate: {Admin, Editor},
	JobUpdate: {Admin, Editor},
	JobRetry:  {Admin, Editor},
	JobDelete: {Admin, Editor},
	VMOperate: {Admin, Editor},

	DatabaseView:     {Admin, Editor, Viewer},
	ConnectionView:   {Admin, Editor, Viewer},
	DatabaseCreate:   {Admin, Editor},
	DatabaseDelete:   {Admin, Editor},
	ConnectionCreate: {Admin, Editor},
	ConnectionDelete: {Admin, Editor},
	ConnectionReveal: {Admin, Editor},

	ComponentView:      {Admin, Editor, Viewer},
	ComponentInstall:   {Admin, Editor},
	ComponentUninstall: {Admin, Editor},

	SpaceView:          {Admin, Editor, Viewer},
	SpaceManage:        {Admin, Editor},
	CloudAccountView:   {Admin, Editor, Viewer},
	CloudAccountManage: {Admin},
	RoleManage:         {Admin},
	TokenManage:        {Admin},
	AuditView:          {Admin, Editor, Viewer},
	WebhookView:        {Admin, Editor, Viewer},
	WebhookManage:      {Admin},
}

// descriptions say what each policy allows.
var descriptions = map[Policy]string{
	JobView:       "See jobs, their plans, events, receipts and schedules",
	JobCreate:     "Make jobs",
	JobUpdate:     "Change, submit and update jobs",
	JobRetry:      "Retry failed jobs",
	JobDelete:     "Cancel jobs and tear down what they made",
	WebhookView:   "See webhooks and what was delivered",
	WebhookManage: "Make, change, test and delete webhooks",

	VMOperate: "Attach and detach load balancers, pause and resume pools, keep schedules",

	DatabaseView:     "See logical databases",
	DatabaseCreate:   "Make logical databases",
	DatabaseDelete:   "Delete logical databases",
	ConnectionView:   "See connections, without their secrets",
	ConnectionCreate: "Make connections and rotate their passwords",
	ConnectionDelete: "Delete connections",
	ConnectionReveal: "Read the secret behind a connection",

	ComponentView:      "See the catalogue and what is installed",
	ComponentInstall:   "Install, upgrade and roll back components",
	ComponentUninstall: "Uninstall components",

	SpaceView:          "See spaces and their namespaces",
	SpaceManage:        "Register and forget spaces, make namespaces",
	CloudAccountView:   "See cloud accounts, without their secrets",
	CloudAccountManage: "Make, change, verify and delete cloud accounts",
	RoleManage:         "Manage roles, assignments and teams",
	TokenManage:        "Make, rotate and revoke API tokens",
	AuditView:          "Read, verify and export the audit log",
}

// Describe says in words what a policy allows; "" for what is no policy.
func Describe(p Policy) string { return descriptions[p] }

// Policies lists every policy, sorted.
func Policies() []Policy {
	out := make([]Policy, 0, len(grants))
	for p := range grants {
		out = append(out, p)
	}
	slices.Sort(out)
	return out
}

// BuiltIn are the policies of a built-in role, sorted; none for any other name.
func BuiltIn(role string) []Policy {
	var out []Policy
	for _, p := range Policies() {
		if slices.Contains(grants[p], role) {
			out = append(out, p)
		}
	}
	return out
}

// RolesWith names the built-in roles that have a policy, for the message that
// says who can help.
func RolesWith(p Policy) []string { return slices.Clone(grants[p]) }

// Expand turns a grant as a person writes it into policies: x:write stands for
// x:create, x:update and x:delete, and x:read for x:view. It returns what of
// these exists; nothing for a name that is no policy.
func Expand(name string) []Policy {
	resource, action, _ := strings.Cut(name, ":")
	actions := []string{action}
	switch action {
	case "write":
		actions = []string{"create", "update", "delete"}
	case "read":
		actions = []string{"view"}
	}
	var out []Policy
	for _, a := range actions {
		p := Policy(resource + ":" + a)
		if _, known := grants[p]; known {
			out = append(out, p)
		}
	}
	return out
}
