package azure

import (
	"net/http"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/monitor/armmonitor"
)

const diagnosticType = "Microsoft.Insights/diagnosticSettings"

var diagnosticVersions = []string{"2016-09-01", "2017-05-01-preview", "2021-05-01-preview"}

// maxDiagnostics is how many settings a resource can have ("Diagnostic settings in Azure Monitor").
const maxDiagnostics = 5

// logCategories are the categories of logs by resource type ("Supported Resource log categories for Azure Monitor"); types that are not here
// have no settings.
var logCategories = map[string][]string{
	strings.ToLower(clusterType): {"kube-apiserver", "kube-audit", "kube-audit-admin", "kube-controller-manager", "kube-scheduler", "cluster-autoscaler", "cloud-controller-manager", "guard",
		"csi-azuredisk-controller", "csi-azurefile-controller", "csi-snapshot-controller", "fleet-member-agent", "fleet-member-net-controller-manager", "fleet-mcs-controller-manager"},
	strings.ToLower(workspaceType):            {"Audit", "SummaryLogs", "Jobs"},
	strings.ToLower(vnetType):                 {"VMProtectionAlerts"},
	strings.ToLower(publicIPType):             {"DDoSProtectionNotifications", "DDoSMitigationFlowLogs", "DDoSMitigationReports"},
	strings.ToLower(loadBalancerType):         {"LoadBalancerHealthEvent"},
	"microsoft.network/networksecuritygroups": {"NetworkSecurityGroupEvent", "NetworkSecurityGroupRuleCounter"},
	"microsoft.network/natgateways":           {"NatGatewayFlowlogsV1"},
	strings.ToLower(postgresType):             {"PostgreSQLLogs", "PostgreSQLFlexSessions", "PostgreSQLFlexQueryStoreRuntime", "PostgreSQLFlexQueryStoreWaitStats", "PostgreSQLFlexTableStats", "PostgreSQLFlexDatabaseXacts"},
	strings.ToLower(mysqlType):                {"MySqlSlowLogs", "MySqlAuditLogs", "MySqlErrorLogs"},
	strings.ToLower(managedDatabaseType):      {"ConnectionEvents"},
	strings.ToLower(oldCacheType):             {"ConnectedClientList", "MSEntraAuthenticationAuditLog"},
	strings.ToLower(vaultType):                {"AuditEvent", "AzurePolicyEvaluationDetails"},
}

// auditCategories are those that the category group audit stands for.
var auditCategories = []string{"AuditEvent", "MySqlAuditLogs", "kube-audit", "kube-audit-admin", "guard", "Audit", "DDoSProtectionNotifications"}

// addDiagnostics registers diagnostic settings and the categories that they may name.
func (c *Cloud) addDiagnostics() {
	c.addKind(&kind{typ: diagnosticType, service: "insights", versions: diagnosticVersions, extension: true, stateless: true, noEtag: true, outlives: true,
		model: func() any { return &armmonitor.DiagnosticSettingsResource{} }, put: c.putDiagnostics, show: showDiagnostics, missing: c.missingDiagnostics,
		remove: func(*request, *Resource) (outcome, error) { return outcome{status: http.StatusOK}, nil }})
	for _, scope := range roleScopes[2:] {
		c.handle(
			route{method: "GET", pattern: scope + "/providers/" + diagnosticType, service: "insights", operation: "DiagnosticSettings_List", kind: diagnosticType,
				versions: diagnosticVersions, serve: c.listDiagnostics},
			route{method: "GET", pattern: scope + "/providers/Microsoft.Insights/diagnosticSettingsCategories", service: "insights", operation: "DiagnosticSettingsCategory_List",
				kind: diagnosticType, versions: diagnosticVersions, serve: c.listCategories})
	}
}

func (c *Cloud) missingDiagnostics(r *request) *Error {
	return refuse(http.StatusNotFound, "ResourceNotFound", "The diagnostic settings '%s' of resource '%s' could not be found.", r.id.name(), r.id.Scope)
}

// putDiagnostics makes the settings, or replaces them as a whole. They belong to the ID of a resource: those of one that was deleted come back
// when it is made again ("Diagnostic settings in Azure Monitor", the warning about deleted resources).
func (c *Cloud) putDiagnostics(r *request, now, _ *Resource) (outcome, error) {
	target := c.find(r.id.Scope)
	known, ok := logCategories[strings.ToLower(target.Type)]
	if !ok {
		return outcome{}, refuse(http.StatusBadRequest, "ResourceTypeNotSupported", "The resource type '%s' does not support diagnostic settings.", strings.ToLower(target.Type))
	}
	if e := c.checkSinks(now); e != nil {
		return outcome{}, e
	}
	wanted, e := checkCategories(now.Properties, known)
	if e != nil {
		return outcome{}, e
	}
	others := c.diagnosticsOf(target.ID)
	others = slices.DeleteFunc(others, func(o *Resource) bool { return strings.EqualFold(o.Name, now.Name) })
	if len(others) >= maxDiagnostics {
		return outcome{}, refuse(http.StatusBadRequest, "BadRequest", "The limit of %d diagnostic settings was reached. To create a new setting, delete an existing one.", maxDiagnostics)
	}
	for _, o := range others {
		used, _ := checkCategories(o.Properties, known) // it was checked when it was made
		for _, sink := range sinksOf(now) {
			for _, category := range wanted {
				if containsText(sinksOf(o), sink) && containsText(used, category) {
					return outcome{}, refuse(http.StatusConflict, "Conflict", "Data sink '%s' is already used in diagnostic setting '%s' for category '%s'. Data sinks can't be reused in different settings on the same category for the same resource.", sink, o.Name, category)
				}
			}
		}
	}
	return outcome{status: http.StatusOK}, nil
}

// sinkNames are the members of a setting that say where its data goes.
var sinkNames = []string{"workspaceId", "storageAccountId", "eventHubAuthorizationRuleId", "marketplacePartnerId", "serviceBusRuleId"}

func sinksOf(setting *Resource) []string {
	var out []string
	for _, name := range sinkNames {
		if id := setting.Properties.str(name); id != "" {
			out = append(out, id)
		}
	}
	return out
}

// checkSinks: a setting sends to one place at least, and the workspace has to be there.
func (c *Cloud) checkSinks(now *Resource) *Error {
	if len(sinksOf(now)) == 0 {
		return refuse(http.StatusBadRequest, "BadRequest", "At least one data sink needs to be specified.")
	}
	if id := now.Properties.str("workspaceId"); id != "" {
		if ws := c.find(id); ws == nil || ws.Type != workspaceType {
			return refuse(http.StatusBadRequest, "BadRequest", "Resource '%s' of diagnostic setting '%s' was not found.", id, now.Name)
		}
	}
	if t := now.Properties.str("logAnalyticsDestinationType"); t != "" && t != "Dedicated" && t != "AzureDiagnostics" {
		return refuse(http.StatusBadRequest, "BadRequest", "Invalid value for logAnalyticsDestinationType: '%s'. Allowed values are 'Dedicated' and 'AzureDiagnostics'.", t)
	}
	return nil
}

// checkCategories judges what a setting collects, and answers the categories that are on.
func checkCategories(p doc, known []string) (on []string, e *Error) {
	categories, groups := 0, 0
	for _, l := range p.docs("logs") {
		category, group := l.str("category"), l.str("categoryGroup")
		switch {
		case category != "" && group != "" || category == "" && group == "":
			return nil, refuse(http.StatusBadRequest, "BadRequest", "Either 'category' or 'categoryGroup' needs to be specified in 'logs'.")
		case category != "" && !containsText(known, category):
			return nil, refuse(http.StatusBadRequest, "BadRequest", "Category '%s' is not supported.", category)
		case group != "" && !strings.EqualFold(group, "allLogs") && !strings.EqualFold(group, "audit"):
			return nil, refuse(http.StatusBadRequest, "BadRequest", "Category group '%s' is not supported.", group)
		}
		if l.num("retentionPolicy.days") > 0 && l.flag("retentionPolicy.enabled") {
			return nil, refuse(http.StatusBadRequest, "BadRequest", "Diagnostic settings does not support retention for new diagnostic settings.")
		}
		if category != "" {
			categories++
		} else {
			groups++
		}
		if !l.flag("enabled") {
			continue
		}
		switch {
		case category != "":
			on = append(on, category)
		case strings.EqualFold(group, "allLogs"):
			on = append(on, known...)
		default:
			on = append(on, slices.DeleteFunc(slices.Clone(known), func(k string) bool { return !slices.Contains(auditCategories, k) })...)
		}
	}
	if categories > 0 && groups > 0 {
		return nil, refuse(http.StatusBadRequest, "BadRequest", "Diagnostic setting does not support mix of log category and log category group.")
	}
	for _, m := range p.docs("metrics") {
		if m.str("category") != "AllMetrics" {
			return nil, refuse(http.StatusBadRequest, "BadRequest", "Metric category '%s' is not supported.", m.str("category"))
		}
		if m.flag("enabled") {
			on = append(on, "AllMetrics")
		}
	}
	if len(on) == 0 {
		return nil, refuse(http.StatusBadRequest, "BadRequest", "At least one category needs to be enabled.")
	}
	return on, nil
}

// diagnosticsOf lists the settings of a resource.
func (c *Cloud) diagnosticsOf(id string) []*Resource {
	var out []*Resource
	for _, res := range c.shelves["insights"].sorted() {
		if res.Type == diagnosticType && strings.EqualFold(scopeOf(res.ID), id) {
			out = append(out, res)
		}
	}
	return out
}

// attachedTo is the resource that a path with a provider's collection behind it is about.
func (c *Cloud) attachedTo(r *request) (*Resource, error) {
	scope := scopeOf(r.path)
	r.Touch(c.spelled(scope))
	res := c.find(scope)
	if res == nil {
		id, _ := parseID(scope)
		return nil, notFoundARM(id)
	}
	return res, nil
}

func (c *Cloud) listDiagnostics(r *request) (answer, error) {
	target, err := c.attachedTo(r)
	if err != nil {
		return answer{}, err
	}
	all := []any{}
	for _, res := range c.diagnosticsOf(target.ID) {
		if r.visible(res, true) {
			all = append(all, c.render(r, res))
		}
	}
	return plain(map[string]any{"value": all}), nil // always one page
}

func (c *Cloud) listCategories(r *request) (answer, error) {
	target, err := c.attachedTo(r)
	if err != nil {
		return answer{}, err
	}
	all := []any{}
	add := func(name, typ string) {
		one := map[string]any{"categoryType": typ}
		if typ == "Logs" {
			one["categoryGroups"] = []any{"allLogs"}
			if slices.Contains(auditCategories, name) {
				one["categoryGroups"] = []any{"audit", "allLogs"}
			}
		}
		all = append(all, map[string]any{"id": strings.ToLower(target.ID) + "/providers/microsoft.insights/diagnosticSettingsCategories/" + name, "type": "microsoft.insights/diagnosticSettingsCategories",
			"name": name, "properties": one})
	}
	for _, name := range logCategories[strings.ToLower(target.Type)] {
		add(name, "Logs")
	}
	if len(all) > 0 {
		add("AllMetrics", "Metrics")
	}
	return plain(map[string]any{"value": all}), nil
}

// showDiagnostics writes a setting as the provider does: the ID in lower case, and every destination, there or not.
func showDiagnostics(_ *request, res *Resource, body doc) {
	scope := scopeOf(res.ID)
	body["id"] = strings.ToLower(scope) + "/providers/microsoft.insights/diagnosticSettings/" + res.Name
	body["kind"], body["location"] = nil, nil
	p := body.sub("properties")
	for _, name := range append([]string{"eventHubName", "logAnalyticsDestinationType"}, sinkNames...) {
		if _, ok := p[name]; !ok {
			p[name] = nil
		}
	}
	for _, list := range []string{"logs", "metrics"} {
		p.def(list, []any{})
		for _, l := range p.docs(list) {
			l.def("enabled", false)
			l.def("retentionPolicy", map[string]any{"enabled": false, "days": 0})
			if list == "logs" {
				for _, name := range []string{"category", "categoryGroup"} {
					if _, ok := l[name]; !ok {
						l[name] = nil
					}
				}
			}
		}
	}
}
