package aws

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// An authority is what a service asks of its callers' policies, operation by operation ("Actions, resources, and
// condition keys" of the service, Service Authorization Reference). Most operations need the action of their own name.
type authority struct {
	// prefix is the service's in the names of actions.
	prefix string
	// same are the operations whose action has their name.
	same string
	// other are operations whose action has another name; "" is none at all.
	other map[string]string
	// more are the further actions of operations.
	more map[string][]need
	// linked are the operations that make the service-linked role of a service in an account that has none.
	linked map[string]string
}

// A need is a further action of an operation, if the request is one that needs it; nil: every request does.
type need struct {
	action string
	when   func(r *request) bool
}

// also is a need of every request, or of those that have one of the parameters.
func also(action string, params ...string) need {
	if len(params) == 0 {
		return need{action: action}
	}
	return need{action, func(r *request) bool { return slices.ContainsFunc(params, r.has) }}
}

// has says whether a request has a parameter: of the form, or a member of the JSON or XML body.
func (r *request) has(name string) bool {
	for k, v := range r.Form {
		if k == name && len(v) > 0 && v[0] != "" && v[0] != "false" || strings.HasPrefix(k, name+".") {
			return true
		}
	}
	if len(r.Body) == 0 {
		return false
	}
	if r.Body[0] == '<' {
		return strings.Contains(string(r.Body), "<"+name+">")
	}
	var members map[string]any
	if json.Unmarshal(r.Body, &members) != nil {
		return false
	}
	for k, v := range members {
		if strings.EqualFold(k, name) {
			return !empty(v)
		}
	}
	return false
}

func empty(v any) bool {
	switch x := v.(type) {
	case nil:
		return true
	case string:
		return x == ""
	case bool:
		return !x
	case []any:
		return len(x) == 0
	case map[string]any:
		return len(x) == 0
	}
	return false
}

// authority is the service's, by its name in signatures.
func (a *api) authority() *authority { return authorities[a.service] }

// action is the operation's own action, "" if it needs none; false if nobody has said which.
func (y *authority) action(op string) (string, bool) {
	if name, ok := y.other[op]; ok {
		return name, true
	}
	if slices.Contains(strings.Fields(y.same), op) {
		return y.prefix + ":" + op, true
	}
	return "", false
}

// actions are what the caller of a request needs to be allowed, the operation's own action first. The world is locked.
func (a *api) actions(r *request) []string {
	y := a.authority()
	if y == nil {
		return nil
	}
	var out []string
	if own, _ := y.action(r.Operation); own != "" {
		out = append(out, own)
	}
	for _, n := range y.more[r.Operation] {
		if !slices.Contains(out, n.action) && (n.when == nil || n.when(r)) {
			out = append(out, n.action)
		}
	}
	if service := y.linked[r.Operation]; service != "" && !r.cloud.linked(r.Account, service) {
		out = append(out, "iam:CreateServiceLinkedRole")
	}
	return out
}

// linked says whether an account has the service-linked role of a service.
func (c *Cloud) linked(account, service string) bool {
	return c.platform.iam.state.account(account).Roles[strings.ToLower(serviceRoles[service].name)] != nil
}

// link makes the service-linked role that an operation has called for.
func (a *api) link(r *request) {
	y := a.authority()
	if y == nil || y.linked[r.Operation] == "" {
		return
	}
	if service := y.linked[r.Operation]; !r.cloud.linked(r.Account, service) {
		c := r.ctx()
		r.cloud.platform.iam.addServiceRole(c.account, service, "", c.second(), c.uniqueID("AROA"))
	}
}

// denied is the refusal of a caller whose policies do not allow an action ("Troubleshoot access denied error messages",
// IAM user guide).
func (a *api) denied(r *request, action string) *Error {
	who := r.ctx().caller().ARN
	service, _, _ := strings.Cut(action, ":")
	region := r.Region
	if service == "iam" || service == "s3" || service == "route53" {
		region = ""
	}
	text := fmt.Sprintf("User: %s is not authorized to perform: %s on resource: %s because no identity-based policy allows the %s action", who, action, arn(service, region, r.Account, "*"), action)
	if e := a.deniedLaunch(r, action); e != nil {
		return e
	}
	switch a.protocol {
	case ec2Protocol:
		return refuseStatus(403, "UnauthorizedOperation", "You are not authorized to perform this operation. %s. Encoded authorization failure message: %s", text, r.cloud.World.Hex("", 64))
	case jsonProtocol:
		if a.service == "servicequotas" && service != "servicequotas" {
			return refuse("DependencyAccessDeniedException", "%s", text)
		}
		return refuse("AccessDeniedException", "%s", text)
	case restJSONProtocol:
		return refuseStatus(403, "AccessDeniedException", "%s", text)
	}
	return refuseStatus(403, "AccessDenied", "%s", text)
}

// deniedLaunch is how Auto Scaling and EKS say that their caller may not launch what a launch template holds: they name
// no action ("Control Amazon EC2 launch template usage in Auto Scaling groups"; CreateNodegroup's InvalidRequestException).
func (a *api) deniedLaunch(r *request, action string) *Error {
	switch {
	case a.service == "autoscaling" && slices.Contains([]string{"ec2:RunInstances", "ec2:CreateTags", "iam:PassRole"}, action):
		return refuseStatus(403, "AccessDenied", "You are not authorized to use launch template: %s", r.Form.Get("LaunchTemplate.LaunchTemplateId")+r.Form.Get("LaunchTemplate.LaunchTemplateName"))
	case a.service == "eks" && (action == "ec2:RunInstances" || action == "ec2:CreateTags"):
		return refuse("InvalidRequestException", "You are not authorized to launch instances with this launch template. Encoded authorization failure message: %s", r.cloud.World.Hex("", 64))
	}
	return nil
}

// template is the launch template that a request names in the parameter LaunchTemplate, or nil.
func (r *request) template() *launchData {
	id, name, version := r.Form.Get("LaunchTemplate.LaunchTemplateId"), r.Form.Get("LaunchTemplate.LaunchTemplateName"), r.Form.Get("LaunchTemplate.Version")
	if len(r.Form) == 0 {
		var body struct {
			LaunchTemplate struct{ ID, Name, Version string }
		}
		if json.Unmarshal(r.Body, &body) != nil {
			return nil
		}
		id, name, version = body.LaunchTemplate.ID, body.LaunchTemplate.Name, body.LaunchTemplate.Version
	}
	if id == "" && name == "" {
		return nil
	}
	t, err := r.cloud.ec2.in(r.scope()).template(templateRef{id, name})
	if err != nil {
		return nil
	}
	v, err := t.version(version)
	if err != nil {
		return nil
	}
	return &v.Data
}

// launching are the actions that whoever has a launch template used needs for what is in it.
func launching(own bool) []need {
	with := func(f func(d *launchData) bool) func(*request) bool {
		return func(r *request) bool { d := r.template(); return d != nil && f(d) }
	}
	needs := []need{
		{"ec2:CreateTags", with(func(d *launchData) bool { return len(d.Tags) > 0 })},
		{"iam:PassRole", with(func(d *launchData) bool { return d.Profile != nil })},
	}
	if own {
		return needs
	}
	return append([]need{{"ec2:RunInstances", with(func(*launchData) bool { return true })}}, needs...)
}
