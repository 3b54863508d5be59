package azure

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/mysql/armmysqlflexibleservers/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/postgresql/armpostgresqlflexibleservers/v5"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// A parameter is one server parameter that hardening asks for.
type parameter struct {
	control, name string
	wanted        string                    // in words
	source        string                    // the public rules that ask for it
	met           func(value string) bool   // whether a value will do
	set           func(now string) string   // what is put in place of one that will not
	versions      func(version string) bool // nil: every version
}

func is(want string) func(string) bool {
	return func(v string) bool { return strings.EqualFold(v, want) }
}

func always(v string) func(string) string { return func(string) string { return v } }

// lists reports whether a comma-separated value has all of some words.
func lists(words ...string) func(string) bool {
	return func(v string) bool {
		have := split(v)
		return !slices.ContainsFunc(words, func(w string) bool {
			return !slices.ContainsFunc(have, func(h string) bool { return strings.EqualFold(h, w) })
		})
	}
}

// withWords adds what a comma-separated value lacks.
func withWords(words ...string) func(string) string {
	return func(v string) string {
		out := slices.DeleteFunc(split(v), func(w string) bool { return strings.EqualFold(w, "none") })
		for _, w := range words {
			if !lists(w)(strings.Join(out, ",")) {
				out = append(out, w)
			}
		}
		return strings.Join(out, ",")
	}
}

func split(v string) []string {
	var out []string
	for w := range strings.SplitSeq(v, ",") {
		if w = strings.TrimSpace(w); w != "" {
			out = append(out, w)
		}
	}
	return out
}

func between(least, most int) func(string) bool {
	return func(v string) bool {
		n, err := strconv.Atoi(v)
		return err == nil && n >= least && n <= most
	}
}

// logged takes what PostgreSQL 18 made of a switch too: a list of what is logged.
func logged(v string) bool { return v != "" && !strings.EqualFold(v, "off") }

// onlyTLS is a list of TLS 1.2 and later alone.
func onlyTLS(v string) bool {
	have := split(v)
	return len(have) > 0 && !slices.ContainsFunc(have, func(w string) bool { return !strings.EqualFold(w, "TLSv1.2") && !strings.EqualFold(w, "TLSv1.3") })
}

func upTo(major int) func(string) bool {
	return func(version string) bool {
		n, err := strconv.Atoi(version)
		return err == nil && n <= major
	}
}

// The parameters of hardening, each with its row.
var (
	postgresParameters = []parameter{
		{control: "AZDB-06", name: "require_secure_transport", wanted: "on", source: "AZU-0020, CIS Azure 5.2.1", met: is("on"), set: always("on")},
		{control: "AZDB-08", name: "ssl_min_protocol_version", wanted: "TLSv1.2 or later", source: "AZU-0026, Azure.PostgreSQL.MinTLS", met: onlyTLS, set: always("TLSv1.2")},
		{control: "AZDB-17", name: "log_checkpoints", wanted: "on", source: "CKV_AZURE_30, CIS Azure 5.2.2", met: is("on"), set: always("on")},
		{control: "AZDB-18", name: "log_connections", wanted: "on", source: "CKV_AZURE_31, CIS Azure 5.2.6", met: logged, set: always("on")},
		{control: "AZDB-19", name: "log_disconnections", wanted: "on", source: "CIS Azure 5.2.7", met: is("on"), set: always("on")},
		{control: "AZDB-20", name: "connection_throttle.enable", wanted: "on", source: "CKV_AZURE_32, CIS Azure 5.2.3", met: is("on"), set: always("on"), versions: upTo(15)},
		{control: "AZDB-21", name: "logfiles.retention_days", wanted: "4 to 7", source: "CKV_AZURE_146, CIS Azure 5.2.4", met: between(4, 7), set: always("7")},
		{control: "AZDB-22", name: "shared_preload_libraries", wanted: "pgaudit among them", source: "Azure Policy: PgAudit", met: lists("pgaudit"), set: withWords("pgaudit")},
		{control: "AZDB-22", name: "pgaudit.log", wanted: "ddl and role among it", source: "Azure Policy: PgAudit", met: audits, set: withWords("ddl", "role")},
	}
	mysqlParameters = []parameter{
		{control: "AZDB-07", name: "require_secure_transport", wanted: "ON", source: "CKV_AZURE_28, CIS Azure 5.3.1", met: is("on"), set: always("ON")},
		{control: "AZDB-09", name: "tls_version", wanted: "TLSv1.2 and TLSv1.3 alone", source: "CKV_AZURE_54, CIS Azure 5.3.2", met: onlyTLS, set: always("TLSv1.2,TLSv1.3")},
		{control: "AZDB-23", name: "audit_log_enabled", wanted: "ON", source: "CIS Azure 5.3.3", met: is("on"), set: always("ON")},
		{control: "AZDB-24", name: "audit_log_events", wanted: "CONNECTION among them", source: "CIS Azure 5.3.4", met: lists("CONNECTION"), set: withWords("CONNECTION")},
		{control: "AZDB-30", name: "local_infile", wanted: "OFF", source: "mirrors GCP-0026", met: is("off"), set: always("OFF")},
	}
)

func audits(v string) bool { return lists("all")(v) || lists("ddl", "role")(v) }

// parameters are those of one engine and version.
func parameters(e job.Engine, version string) []parameter {
	all := postgresParameters
	if e == job.MySQL {
		all = mysqlParameters
	}
	return slices.DeleteFunc(slices.Clone(all), func(x parameter) bool { return x.versions != nil && !x.versions(version) })
}

// A configuration is a parameter as either server shows it.
type configuration struct {
	Name       string `json:"name"`
	Properties struct {
		Value   string `json:"value"`
		Current string `json:"currentValue"`
		Pending any    `json:"isConfigPendingRestart"` // a boolean, or MySQL's "True"
	} `json:"properties"`
}

func (s configuration) pending() bool {
	switch v := s.Properties.Pending.(type) {
	case bool:
		return v
	case string:
		return strings.EqualFold(v, "True")
	}
	return false
}

func (p *Provider) settings(ctx context.Context, server string) (map[string]configuration, error) {
	all, err := list[configuration](ctx, p, server+"/configurations")
	out := map[string]configuration{}
	for _, s := range all {
		out[strings.ToLower(s.Name)] = s
	}
	return out, err
}

// configure sets what the create call does not take, once, before the server is
// handed over: parameters, then a restart for those that need one, and at MySQL the
// window, which its create ignores.
func (p *Provider) configure(ctx context.Context, r *pipeline.Run, d serverDesign, id string) error {
	if err := p.settled(ctx, r, id); err != nil {
		return err
	}
	now, err := p.settings(ctx, id)
	if err != nil {
		return err
	}
	var todo []parameter
	for _, x := range parameters(d.engine, d.info.Version) {
		if s, there := now[x.name]; !there || !x.met(s.Properties.Value) {
			todo = append(todo, x)
		}
	}
	if len(todo) > 0 {
		return p.setParameters(ctx, r, d, id, todo, now)
	}
	for _, x := range parameters(d.engine, d.info.Version) {
		if now[x.name].pending() {
			op, err := p.post(ctx, id+"/restart")
			if err != nil {
				return err
			}
			op.remember(r, id)
			return changed(r, "server "+lastName(id)+", which restarts for "+x.name)
		}
	}
	return p.setWindow(ctx, r, d, id)
}

// settled waits until the server's last change has ended: it takes one at a time,
// and refuses others by an operation that fails (ProvisioningServerBusy).
func (p *Provider) settled(ctx context.Context, r *pipeline.Run, id string) error {
	x, err := read[flexible](ctx, p, id)
	if err != nil {
		return pipeline.Unseen(err, "the server")
	}
	if state := x.is.Properties.State; state != "Ready" {
		return pipeline.Wait(settling*2, "the server to settle (%s)", state)
	}
	running, why, err := p.outcome(ctx, lastOperation(r, id))
	switch {
	case err != nil:
		return err
	case running:
		return pipeline.Wait(settling, "a change of the server to end")
	case why != "":
		r.Note("a change of the server failed and is sent again: %s", why)
	}
	return nil
}

// setParameters sends what is to change: of MySQL all at once, of PostgreSQL one
// after another.
func (p *Provider) setParameters(ctx context.Context, r *pipeline.Run, d serverDesign, id string, todo []parameter, now map[string]configuration) error {
	if d.engine == job.MySQL {
		var batch armmysqlflexibleservers.ConfigurationListForBatchUpdate
		var names []string
		for _, x := range todo {
			names = append(names, x.name)
			batch.Value = append(batch.Value, &armmysqlflexibleservers.ConfigurationForBatchUpdate{Name: &x.name, Properties: &armmysqlflexibleservers.ConfigurationForBatchUpdateProperties{
				Value: new(x.set(now[x.name].Properties.Value)), Source: new("user-override"),
			}})
		}
		answer, err := p.request(ctx, http.MethodPost, id+"/updateConfigurations", batch, nil)
		if err != nil {
			return err
		}
		operationOf(http.MethodPost, answer).remember(r, id)
		return changed(r, "parameters "+strings.Join(names, ", "))
	}
	x := todo[0]
	body := armpostgresqlflexibleservers.ConfigurationForUpdate{Properties: &armpostgresqlflexibleservers.ConfigurationProperties{
		Value: new(x.set(now[x.name].Properties.Value)), Source: new("user-override"),
	}}
	_, op, err := put[struct{}](ctx, p, id+"/configurations/"+x.name, body, nil)
	if err != nil {
		return err
	}
	op.remember(r, id)
	return changed(r, "parameter "+x.name)
}

// setWindow puts MySQL's maintenance window in place ("Known issue: cannot be set
// during server creation" says the API's model).
func (p *Provider) setWindow(ctx context.Context, r *pipeline.Run, d serverDesign, id string) error {
	if d.engine != job.MySQL {
		return nil
	}
	x, err := read[flexible](ctx, p, id)
	if err != nil {
		return pipeline.Unseen(err, "the server")
	}
	if windowSeen(x.is) == d.window() {
		return nil
	}
	day, hour, minute := window(d.spec)
	body := armmysqlflexibleservers.ServerForUpdate{Properties: &armmysqlflexibleservers.ServerPropertiesForUpdate{MaintenanceWindow: &armmysqlflexibleservers.MaintenanceWindow{
		CustomWindow: new("Enabled"), DayOfWeek: new(int32(day)), StartHour: new(int32(hour)), StartMinute: new(int32(minute)),
	}}}
	_, op, err := send[struct{}](ctx, p, http.MethodPatch, id, body, nil)
	if err != nil {
		return err
	}
	op.remember(r, id)
	return changed(r, "maintenance window of "+x.Name)
}

// parameterDrift shows what is not as it was set, and puts nothing back.
func (p *Provider) parameterDrift(ctx context.Context, r *pipeline.Run, d serverDesign, id string) error {
	now, err := p.settings(ctx, id)
	if err != nil {
		return pipeline.Unless(err, pipeline.NotFound) // the server's own drift says that it is gone
	}
	for _, x := range parameters(d.engine, d.info.Version) {
		if s, there := now[x.name]; !there || !x.met(s.Properties.Value) {
			r.AddDrift(pipeline.Drift{Kind: d.server, Key: "server", ID: id, Attr: "parameter " + x.name, Wanted: x.wanted, Seen: s.Properties.Value})
		}
	}
	return nil
}

// post sends an action that takes nothing.
func (p *Provider) post(ctx context.Context, path string) (operation, error) {
	answer, err := p.request(ctx, http.MethodPost, path, nil, nil)
	return operationOf(http.MethodPost, answer), err
}
