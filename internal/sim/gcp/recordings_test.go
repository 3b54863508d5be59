package gcp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// The recordings in testdata were made against the real Google Cloud, as far as their provenance says. They are sent to the
// simulation in order, with the simulation's own identifiers put in; status, error and every field of every answer are
// compared, but for values that differ by nature: identifiers, times, fingerprints, addresses. Every difference has to be in
// known, with the reason; the test says how much was compared.

type exchange struct {
	N       int
	Request struct {
		Method, URL string
		Body        map[string]any
	}
	Response struct {
		Status int
		Body   any
	}
}

// known are the differences that are meant to be: file and field, with the reason.
var known = []struct{ file, field, why string }{
	// Recordings that are proven to be real (sql-*, redis-*, and those of cloud-custodian) have these; the others are aligned with a mock.
	{"*", "addresses/${addressID} networkTier: not recorded", "proven"}, {"*", `addresses/${addressID} status: not recorded, is "RESERVED"`, "proven"},
	{"servicenetworking-*", `addresses/${addressID} description: not recorded, is ""`, "proven"},
	{"*", "addresses/${addressID} network: https", "proven: a part of a link is completed"},
	{"*", "addresses/${addressID} labels: missing", "proven: labels at an insert are ignored"},
	{"*", "setLabels endTime", "proven"}, {"*", "setLabels operationType", "proven"}, {"*", "setLabels region", "proven"}, {"*", "setLabels targetId", "proven"},
	{"*", "setLabels targetLink", "proven"}, {"*", "setLabels user", "proven"},
	{"*", "subnetworks/${subnetworkID} state: missing", "proven: state is for proxy-only subnetworks"},
	{"*", "subnetworks/${subnetworkID} enableFlowLogs: not recorded", "proven"}, {"*", "subnetworks/${subnetworkID} allowSubnetCidrRoutesOverlap: not recorded", "proven"},
	{"*", "networks/${networkID} routingConfig: not recorded", "proven"},
	{"servicenetworking-*", "GET /v1/projects/example-project name", "proven"}, {"servicenetworking-*", "GET /v1/projects/example-project parent", "proven"},
	{"servicenetworking-*", "response.service: missing", "proven"},
	{"servicenetworking-connection", "removePeering", "proven: the operation has type and target"}, {"servicenetworking-connection", "23 GET", "as above"},
	{"compute-firewall", "logConfig: not recorded", "the recordings of cloud-custodian have it"}, {"compute-firewall", "sourceRanges: not recorded", "as above"},
	{"compute-firewall", "description: not recorded", "as above"}, {"compute-firewall", "network: https", "as above: a part of a link is completed"},
	{"compute-address-global", "networks/${networkID} subnetworks: not recorded", "cut from the recording: a network in auto mode has subnetworks"},
	{"compute-router-nat-full", "32 DELETE", "an address that a NAT gateway uses cannot be deleted; the recording's patch before it is empty and yet takes for granted that the gateway is gone"},
	{"compute-router-nat-full", "33 GET", "as above"}, {"compute-router-nat-full", "34 GET", "as above"}, {"compute-router-nat-full", "35 DELETE", "as above"},
	{"compute-router-nat-full", "40 DELETE", "as above"}, {"compute-router-nat-full", "41 GET", "as above"},
	{"dns-rrset", "changes status: pending, recorded done", "a change is pending at first (Changes, Cloud DNS)"},
	{"dns-rrset", "27 DELETE", "one placeholder for two addresses"}, {"dns-rrset", "28 GET", "as above"},
	{"servicenetworking-connection", "24 DELETE", "as above"}, {"servicenetworking-connection", "25 GET", "as above"},
	{"errors-compute-errors", "firewallPolicies", "firewall policies are not simulated"},
	{"errors-compute-errors", "addResourcePolicies error.status", "resource policies are not simulated"},
	{"errors-compute-errors", "iampartialpolicy-dep-project", "that project was being deleted; one that never existed is refused with 403"},
}

// differ are the fields whose values differ by nature.
var differ = regexp.MustCompile(`(^|\.)(id|name|selfLinkWithId|creationTimestamp|creationTime|createTime|insertTime|startTime|endTime|fingerprint|labelFingerprint|etag|address|` +
	`targetId|uniqueId|oauth2ClientId|gatewayAddress|internalIpv6Range|user|message|peerings\[\]\.network|stateDetails|privateKeyData|validAfterTime|nameServers\[\]|rrdatas\[\]|selfLink|progress)$`)

type player struct {
	*rig
	file        string
	names       map[string][]string // by placeholder: the names it stands for, the newest last
	made        map[string]int
	operation   string
	fields      int
	differences []string
}

var placeholder = regexp.MustCompile(`\$\{(\w+)\}`)

func TestRecordings(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/recordings/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal("no recordings", err)
	}
	exchanges, fields := 0, 0
	unused := map[int]bool{}
	for i := range known {
		unused[i] = true
	}
	for _, file := range files {
		var doc struct{ Exchanges []exchange }
		b, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(b, &doc)
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		p := &player{rig: newRig(t), file: strings.TrimSuffix(filepath.Base(file), ".json"), names: map[string][]string{}, made: map[string]int{}}
		p.begin(doc.Exchanges)
		for _, e := range doc.Exchanges {
			p.play(e)
			exchanges++
		}
		fields += p.fields
		for _, d := range p.differences {
			expected := false
			for i, k := range known {
				if ok, _ := filepath.Match(k.file, p.file); ok && strings.Contains(d, k.field) {
					expected = true
					delete(unused, i)
				}
			}
			if !expected {
				t.Errorf("%s %s", p.file, d)
			}
		}
		t.Logf("%s: %d exchanges, %d fields, %d differences", p.file, len(doc.Exchanges), p.fields, len(p.differences))
	}
	for i := range unused {
		t.Errorf("a known difference that is none any more: %s %s", known[i].file, known[i].field)
	}
	t.Logf("%d exchanges of %d files, %d fields compared, %d kinds of known differences", exchanges, len(files), fields, len(known))
}

// begin finds out what the recording takes to be there: a network that it reads before it made one is the default network.
func (p *player) begin(all []exchange) {
	for _, e := range all {
		if e.Request.Method == http.MethodPost && strings.HasSuffix(path(e.Request.URL), "/global/networks") {
			return
		}
		if strings.HasSuffix(path(e.Request.URL), "/global/networks/${networkID}") {
			if e.Request.Method == http.MethodGet && e.Response.Status == 200 {
				p.names["networkID"] = []string{"default"}
			}
			return
		}
	}
}

func path(url string) string {
	url = strings.TrimPrefix(url, "https://")
	_, rest, _ := strings.Cut(url, "/")
	rest, _, _ = strings.Cut("/"+rest, "?")
	return rest
}

// current is what a placeholder stands for. The recordings use one placeholder for all objects of a kind: a read that found
// nothing and an insert are about a new one, a deletion makes the one before current again.
func (p *player) current(name string, fresh bool) string {
	if name == "operationID" {
		return p.operation
	}
	stack := p.names[name]
	if len(stack) == 0 || (fresh && p.made[name] >= len(stack)) {
		stack = append(stack, fmt.Sprintf("%s-%d", strings.ToLower(strings.TrimSuffix(name, "ID")), len(stack)+1))
		p.names[name] = stack
	}
	return stack[len(stack)-1]
}

func (p *player) fill(s string, fresh bool) string {
	return placeholder.ReplaceAllStringFunc(s, func(m string) string { return p.current(m[2:len(m)-1], fresh) })
}

func (p *player) fillBody(v any, own string, fresh bool) any {
	switch x := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, item := range x {
			out[k] = p.fillBody(item, own, fresh && k == "name")
		}
		return out
	case []any:
		out := make([]any, 0, len(x))
		for _, item := range x {
			if m, ok := item.(map[string]any); ok && m["__trimmed_items__"] != nil {
				continue
			}
			out = append(out, p.fillBody(item, own, false))
		}
		return out
	case string:
		return p.fill(x, fresh)
	}
	return v
}

func (p *player) play(e exchange) {
	at := path(e.Request.URL)
	last := lastPlaceholder(at)
	insert := e.Request.Method == http.MethodPost && e.Response.Status == 200 && strings.Contains(fmt.Sprint(e.Request.Body["name"]), "${")
	fresh := insert || e.Response.Status == 404
	p.world.Step(time.Minute) // most polls of operations under way are left out of the recordings
	url := p.fillURL(e.Request.URL, last, fresh)
	body := p.fillBody(e.Request.Body, last, insert)
	p.lock(url, body)
	status, got := p.send(e.Request.Method, url, body)
	where := fmt.Sprintf("%d %s %s", e.N, e.Request.Method, at)
	if status != e.Response.Status {
		p.differences = append(p.differences, fmt.Sprintf("%s: status %d, recorded %d: %v", where, status, e.Response.Status, got))
		return
	}
	p.note(e, at, body, got, insert)
	p.compare(where+" ", "", p.fillBody(e.Response.Body, "", false), got)
}

func lastPlaceholder(at string) string {
	all := placeholder.FindAllStringSubmatch(at, -1)
	if len(all) == 0 {
		return ""
	}
	return all[len(all)-1][1]
}

// fillURL fills a URL in; only the last placeholder can be about something new.
func (p *player) fillURL(url, last string, fresh bool) string {
	i := strings.LastIndex(url, "${"+last+"}")
	if last == "" || i < 0 {
		return p.fill(url, false)
	}
	return p.fill(url[:i], false) + p.fill(url[i:], fresh)
}

// lock puts the simulation's own fingerprints and etags into a request.
func (p *player) lock(url string, body any) {
	doc, ok := body.(map[string]any)
	if !ok {
		return
	}
	for _, f := range []string{"fingerprint", "labelFingerprint"} {
		if _, has := doc[f]; has {
			base, query, _ := strings.Cut(url, "?")
			_, now := p.send(http.MethodGet, strings.TrimSuffix(strings.TrimSuffix(base, "/setLabels"), ":setResourceLabels")+"?"+query, nil)
			if m, ok := now.(map[string]any); ok {
				doc[f] = m[f]
			}
		}
	}
}

func (p *player) send(method, url string, body any) (int, any) {
	p.t.Helper()
	at := "/" + strings.SplitN(strings.TrimPrefix(url, "https://"), "/", 2)[1]
	var payload []byte
	if m, ok := body.(map[string]any); ok && m != nil && method != http.MethodGet && method != http.MethodDelete {
		b, err := json.Marshal(m)
		if err != nil {
			p.t.Fatal(err)
		}
		payload = b
	}
	r, err := http.NewRequest(method, p.url+at, bytes.NewReader(payload))
	if err != nil {
		p.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+p.token)
	status, text := do(p.t, r)
	var got any
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		p.t.Fatalf("%s %s: %v: %s", method, url, err, text)
	}
	return status, got
}

// note remembers the names that the simulation gave.
func (p *player) note(e exchange, at string, _, got any, insert bool) {
	m, ok := got.(map[string]any)
	if !ok {
		return
	}
	if insert {
		if name := placeholder.FindStringSubmatch(fmt.Sprint(e.Request.Body["name"])); name != nil {
			p.made[name[1]] = len(p.names[name[1]])
		}
	}
	name, _ := m["name"].(string)
	if m["kind"] == "compute#operation" {
		p.operation = name
	}
	if id, ok := strings.CutPrefix(name, "operations/"); ok {
		p.operation = id
	}
	if _, key, ok := strings.Cut(name, "/keys/"); ok {
		p.names["serviceAccountKeyID"] = []string{key}
	}
	if m["kind"] == "dns#change" {
		p.names["changeId"] = []string{fmt.Sprint(m["id"])}
	}
	if last := lastPlaceholder(at); e.Request.Method == http.MethodDelete && e.Response.Status == 200 && len(p.names[last]) > 1 {
		p.names[last] = p.names[last][:len(p.names[last])-1]
		p.made[last] = len(p.names[last])
		p.world.Step(time.Minute)
	}
}

// compare lists what of a recorded answer the simulation has otherwise.
func (p *player) compare(where, field string, want, got any) {
	p.fields++
	report := func(format string, args ...any) {
		p.differences = append(p.differences, where+strings.TrimPrefix(field, ".")+": "+fmt.Sprintf(format, args...))
	}
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			report("%T, recorded an object", got)
			return
		}
		keys := map[string]bool{}
		for k := range w {
			keys[k] = true
		}
		for k := range g {
			keys[k] = true
		}
		for _, k := range keysOf(keys) {
			_, in := w[k]
			v, have := g[k]
			switch {
			case !have && k == "startTime" && g["status"] == opPending:
			case !have:
				p.differences = append(p.differences, where+strings.TrimPrefix(field+"."+k, ".")+": missing")
			case !in:
				p.differences = append(p.differences, where+strings.TrimPrefix(field+"."+k, ".")+": not recorded, is "+short(v))
			default:
				p.compare(where, field+"."+k, w[k], v)
			}
		}
	case []any:
		g, ok := got.([]any)
		if !ok {
			report("%T, recorded a list", got)
			return
		}
		if strings.HasSuffix(field, ".subnetworks") && len(g) > 2 {
			return // of a network in auto mode: the recorded list is cut, and other regions have come up since
		}
		for i := range min(len(w), len(g)) {
			p.compare(where, field+"[]", w[i], g[i])
		}
	default:
		if s, ok := want.(string); ok {
			want = strings.Replace(s, "/compute/beta/", "/compute/v1/", 1) // links are written for the version that the caller used
		}
		if fmt.Sprintf("%T", want) != fmt.Sprintf("%T", got) {
			report("%T, recorded %T", got, want)
		} else if want == opRunning && got == opPending {
			return // a matter of moments
		} else if !differ.MatchString(field) && fmt.Sprint(want) != fmt.Sprint(got) {
			report("%v, recorded %v", got, want)
		}
	}
}

func short(v any) string {
	b, err := json.Marshal(v)
	if err != nil || len(b) > 60 {
		return "something"
	}
	return string(b)
}
