package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// An emulation is an emulator at work.
type emulation struct {
	emulator
	target string

	mu    sync.Mutex
	calls map[string]int // by service:Operation
}

var scope = regexp.MustCompile(`Credential=[^/]+/\d+/[^/]+/([^/]+)/`)

// what names a request's service and operation.
func what(r *http.Request, body []byte) (service, op string, form url.Values) {
	if m := scope.FindStringSubmatch(r.Header.Get("Authorization")); m != nil {
		service = m[1]
	}
	switch target := r.Header.Get("X-Amz-Target"); {
	case target != "":
		op = target[strings.LastIndexByte(target, '.')+1:]
	case strings.Contains(r.Header.Get("Content-Type"), "form-urlencoded"):
		if form, _ = url.ParseQuery(string(body)); form != nil {
			op = form.Get("Action")
		}
	case strings.Contains(r.URL.Path, "/change/"):
		op = "GetChange"
	}
	return service, op, form
}

func (e *emulation) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has gone
	}
	service, op, form := what(r, body)
	key := service + ":" + op
	e.mu.Lock()
	e.calls[key]++
	first := e.calls[key] == 1
	e.mu.Unlock()
	if slices.Contains(e.lacks, key) || slices.Contains(e.lacks, service+":*") {
		e.refuse(w, service, op)
		return
	}
	if answer := e.answers[key]; answer != nil {
		answer(e, w, body)
		return
	}
	if form != nil && e.heeds != nil {
		e.heeds(op, form)
		body = []byte(form.Encode())
	}
	if key == e.cut && first {
		e.forward(httptest.NewRecorder(), r, op, body)
		panic(http.ErrAbortHandler)
	}
	e.forward(w, r, op, body)
}

// forward asks the simulated AWS and takes out of its answer what this
// emulator's would not carry.
func (e *emulation) forward(w http.ResponseWriter, r *http.Request, op string, body []byte) {
	req, err := http.NewRequestWithContext(r.Context(), r.Method, e.target+r.URL.RequestURI(), bytes.NewReader(body))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	req.Header = r.Header.Clone()
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return // as if the connection were cut
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return
	}
	for _, name := range e.drops[op] {
		text = regexp.MustCompile(`(?s)<`+name+`>.*?</`+name+`>|<`+name+`\s*/>`).ReplaceAll(text, nil)
	}
	h := w.Header()
	maps.Copy(h, resp.Header)
	h.Del("Content-Length")
	h.Del("X-Amz-Crc32")
	w.WriteHeader(resp.StatusCode)
	_, _ = w.Write(text)
}

// emulate puts an emulator between the rig's workers and the simulated AWS.
func (r *rig) emulate(e emulator) *emulation {
	em := &emulation{emulator: e, target: r.url, calls: map[string]int{}}
	server := httptest.NewServer(em)
	r.t.Cleanup(server.Close)
	r.url = server.URL
	return em
}

// The ways in which emulators say that they do not have a call.
func refuseHTML(w http.ResponseWriter, _, _ string) {
	w.Header().Set("Content-Type", "text/html")
	w.WriteHeader(http.StatusInternalServerError)
	_, _ = io.WriteString(w, "<!doctype html>\n<html lang=en>\n<title>500 Internal Server Error</title>\n<h1>Internal Server Error</h1>")
}

func refuseEmpty(w http.ResponseWriter, _, _ string) { w.WriteHeader(http.StatusNotFound) }

func refuseCode(status int, code, text string) func(http.ResponseWriter, string, string) {
	return func(w http.ResponseWriter, service, op string) {
		message := strings.ReplaceAll(strings.ReplaceAll(text, "SERVICE", service), "ACTION", op)
		switch service {
		case "ssm", "acm", "servicequotas":
			w.Header().Set("Content-Type", "application/x-amz-json-1.1")
			w.WriteHeader(status)
			_ = json.NewEncoder(w).Encode(map[string]string{"__type": code, "message": message})
		case "ec2":
			w.Header().Set("Content-Type", "text/xml")
			w.WriteHeader(status)
			_, _ = fmt.Fprintf(w, "<Response><Errors><Error><Code>%s</Code><Message>%s</Message></Error></Errors><RequestID>0</RequestID></Response>", code, message)
		default:
			w.Header().Set("Content-Type", "text/xml")
			w.WriteHeader(status)
			_, _ = fmt.Fprintf(w, "<ErrorResponse><Error><Type>Sender</Type><Code>%s</Code><Message>%s</Message></Error><RequestId>0</RequestId></ErrorResponse>", code, message)
		}
	}
}

// noTokens takes the idempotency tokens away.
func noTokens(_ string, form url.Values) { form.Del("ClientToken") }

// noFilters takes the filters of all lists away, but for those of images and
// offers, which are too long to be read.
func noFilters(op string, form url.Values) {
	noTokens(op, form)
	if !strings.HasPrefix(op, "Describe") || op == "DescribeImages" || op == "DescribeInstanceTypeOfferings" {
		return
	}
	for k := range form {
		if strings.HasPrefix(k, "Filter.") || strings.HasPrefix(k, "Filters.") {
			form.Del(k)
		}
	}
}

// launchesHeedLittle starts VMs without what protects them, and shows none that
// has ended.
func launchesHeedLittle(op string, form url.Values) {
	noTokens(op, form)
	switch op {
	case "RunInstances", "CreateLaunchTemplate", "CreateLaunchTemplateVersion":
		for k := range form {
			if strings.Contains(k, "MetadataOptions.") || strings.HasSuffix(k, "EbsOptimized") {
				form.Del(k)
			}
		}
	case "DescribeInstances":
		n := 1
		for form.Has(fmt.Sprintf("Filter.%d.Name", n)) {
			n++
		}
		form.Set(fmt.Sprintf("Filter.%d.Name", n), "instance-state-name")
		for i, state := range []string{"pending", "running", "stopping", "stopped"} {
			form.Set(fmt.Sprintf("Filter.%d.Value.%d", n, i+1), state)
		}
	}
}

// Run Command as a success without a machine: at once, and with empty output.
func commandSent(_ *emulation, w http.ResponseWriter, body []byte) {
	var in struct{ InstanceIds []string }
	_ = json.Unmarshal(body, &in)
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	_ = json.NewEncoder(w).Encode(map[string]any{"Command": map[string]any{"CommandId": "11111111-2222-3333-4444-555555555555", "Status": "Success", "InstanceIds": in.InstanceIds}})
}

func commandDone(_ *emulation, w http.ResponseWriter, body []byte) {
	var in struct{ CommandId, InstanceId string }
	_ = json.Unmarshal(body, &in)
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	_ = json.NewEncoder(w).Encode(map[string]any{"CommandId": in.CommandId, "InstanceId": in.InstanceId, "Status": "Success", "StatusDetails": "Success", "ResponseCode": 0, "StandardOutputContent": ""})
}
