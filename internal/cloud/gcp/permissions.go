package gcp

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// permission is the one that a refusal names in its details ("ErrorInfo", API
// design guide); "" if it names none.
func (a answer) permission() string {
	for _, d := range a.Details {
		var m struct {
			Permission string `json:"permission"`
		}
		if len(d.Metadata) > 0 && json.Unmarshal(d.Metadata, &m) == nil && m.Permission != "" {
			return m.Permission
		}
	}
	return ""
}

// permissionRE finds the permission that a refusal names, such as
// compute.networks.create.
var permissionRE = regexp.MustCompile(`[Pp]ermission ['"]?([A-Za-z]+(?:\.[A-Za-z]+){2})\b|['"]([A-Za-z]+(?:\.[A-Za-z]+){2})['"] permission`)

// permissionIn is the permission that a message names; "" if it names none.
func permissionIn(message string) string {
	m := permissionRE.FindStringSubmatch(message)
	if m == nil {
		return ""
	}
	return m[1] + m[2]
}

// silent are what services say that do not name what is missing.
var silent = []string{"Forbidden", "The client is not authorized to make this request.", "The caller does not have permission"}

// named is a refusal that says which permission is missing: the one in its
// details, or else those that the method needs by its own page.
func (a answer) named(service, op string) string {
	if permissionIn(a.Message) != "" {
		return a.Message
	}
	if p := a.permission(); p != "" {
		return fmt.Sprintf("%s (permission %s is missing)", strings.TrimSuffix(a.Message, "."), p)
	}
	for _, s := range silent {
		if a.Message == s {
			return fmt.Sprintf("%s (it needs permission %s)", strings.TrimSuffix(s, "."), strings.Join(neededFor(service, op), " and "))
		}
	}
	return a.Message
}

// needed are the permissions of methods that need more than one of their own name,
// at services whose refusals do not say which.
var needed = map[string][]string{
	"dns changes.create":            {"dns.changes.create", "dns.resourceRecordSets.create", "dns.resourceRecordSets.delete"},
	"dns managedZones.create":       {"dns.managedZones.create", "for a private zone dns.networks.bindPrivateDNSZone"},
	"sqladmin instances.executeSql": {"cloudsql.instances.executeSql", "secretmanager.versions.access"},
	"sqladmin instances.patch":      {"cloudsql.instances.get", "cloudsql.instances.update"},
	"sqladmin databases.patch":      {"cloudsql.databases.update"},
	"sqladmin operations.get":       {"cloudsql.instances.get"},
	"sqladmin operations.list":      {"cloudsql.instances.get"},
	"sqladmin backups.list":         {"cloudsql.backupRuns.list"},
	"sqladmin backups.get":          {"cloudsql.backupRuns.get"},
	"sqladmin backups.delete":       {"cloudsql.backupRuns.delete"},
	"sqladmin connectSettings.get":  {"cloudsql.instances.get"},
	"dns rrsets.list":               {"dns.resourceRecordSets.list"},
}

// iamNames are the services whose permissions have another name than themselves.
var iamNames = map[string]string{serviceSQL: "cloudsql", serviceCRM: "resourcemanager"}

// neededFor are the permissions that a method needs: by its own name, but for what
// IAM calls otherwise.
func neededFor(service, op string) []string {
	if n, ok := needed[service+" "+op]; ok {
		return n
	}
	collection, verb, _ := strings.Cut(op, ".")
	switch verb {
	case "insert":
		verb = "create"
	case "patch":
		verb = "update"
	}
	return []string{or(iamNames[service], service) + "." + collection + "." + verb}
}
