package sim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Control is the control API: it looks into a world and changes it from outside. docs/simulation.md describes it.
func (w *World) Control() http.Handler {
	mux := http.NewServeMux()
	routes := map[string]map[string]func(*http.Request) (any, error){
		"/_sim/requests": {"GET": w.controlRequests},
		"/_sim/objects":  {"GET": w.controlObjects, "POST": w.controlPlace},
		"/_sim/residue":  {"GET": w.controlResidue},
		"/_sim/snapshot": {"GET": func(*http.Request) (any, error) { return w.Snapshot(), nil }},
		"/_sim/faults":   {"GET": w.controlFaults, "POST": w.controlAddFaults, "DELETE": w.controlClearFaults},
		"/_sim/clock":    {"GET": w.controlClock, "POST": w.controlSetClock},
		"/_sim/quotas":   {"GET": w.controlQuotas, "POST": w.controlSetQuota},
		"/_sim/grants":   {"GET": w.controlGrants, "POST": w.controlSetGrants},
		"/_sim/metrics":  {"GET": w.controlMetrics, "POST": w.controlSetMetric},
		"/_sim/settings": {"GET": w.controlSettings, "POST": w.controlSetSettings},
		"/_sim/reset":    {"POST": func(*http.Request) (any, error) { w.Reset(); return map[string]bool{"reset": true}, nil }},
	}
	for path, methods := range routes {
		mux.HandleFunc(path, func(rw http.ResponseWriter, r *http.Request) {
			h, ok := methods[r.Method]
			if !ok {
				var allow []string
				for m := range methods {
					allow = append(allow, m)
				}
				slices.Sort(allow)
				rw.Header().Set("Allow", strings.Join(allow, ", "))
				writeControl(rw, http.StatusMethodNotAllowed, controlError(fmt.Sprintf("%s takes %s", path, strings.Join(allow, " or "))))
				return
			}
			r.Body = http.MaxBytesReader(rw, r.Body, 4<<20)
			answer, err := h(r)
			if err != nil {
				status := http.StatusBadRequest
				var nf notFoundError
				if errors.As(err, &nf) {
					status = http.StatusNotFound
				}
				writeControl(rw, status, controlError(err.Error()))
				return
			}
			writeControl(rw, http.StatusOK, answer)
		})
	}
	mux.HandleFunc("/", func(rw http.ResponseWriter, r *http.Request) {
		var paths []string
		for p := range routes {
			paths = append(paths, p)
		}
		slices.Sort(paths)
		writeControl(rw, http.StatusNotFound, controlError(fmt.Sprintf("no such path %s; there are %s", r.URL.Path, strings.Join(paths, ", "))))
	})
	return mux
}

type notFoundError struct{ error }

func controlError(text string) any { return map[string]string{"error": text} }

func writeControl(rw http.ResponseWriter, status int, body any) {
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(status)
	enc := json.NewEncoder(rw)
	enc.SetIndent("", "  ")
	// The client has gone away if this fails; there is nobody to tell.
	_ = enc.Encode(body)
}

// readControl decodes a JSON body; unknown fields are refused, so that a misspelt one does not pass unnoticed.
func readControl(r *http.Request, into any) error {
	dec := json.NewDecoder(r.Body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("body: a JSON object is needed")
		}
		return fmt.Errorf("body: %w", err)
	}
	if dec.More() {
		return fmt.Errorf("body: more than one JSON value")
	}
	return nil
}

// query reads query parameters and refuses those that a path does not know.
func query(r *http.Request, known ...string) (url.Values, error) {
	q := r.URL.Query()
	for k := range q {
		if !slices.Contains(known, k) {
			return nil, fmt.Errorf("%s: unknown query parameter, want one of %s", k, strings.Join(known, ", "))
		}
	}
	return q, nil
}

func intParam(q url.Values, name string) (int, error) {
	s := q.Get(name)
	if s == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%s: %q is no number", name, s)
	}
	return n, nil
}

func boolParam(q url.Values, name string) (*bool, error) {
	s := q.Get(name)
	if s == "" {
		return nil, nil
	}
	b, err := strconv.ParseBool(s)
	if err != nil {
		return nil, fmt.Errorf("%s: %q is neither true nor false", name, s)
	}
	return &b, nil
}

func (w *World) controlRequests(r *http.Request) (any, error) {
	q, err := query(r, "cloud", "service", "operation", "account", "caller", "region", "resource", "mutating", "status", "fault", "since", "limit")
	if err != nil {
		return nil, err
	}
	f := BookFilter{Cloud: q.Get("cloud"), Service: q.Get("service"), Operation: q.Get("operation"), Account: q.Get("account"),
		Caller: q.Get("caller"), Region: q.Get("region"), Resource: q.Get("resource"), Fault: q.Get("fault")}
	if f.Mutating, err = boolParam(q, "mutating"); err != nil {
		return nil, err
	}
	for name, dst := range map[string]*int{"status": &f.Status, "since": &f.Since, "limit": &f.Limit} {
		if *dst, err = intParam(q, name); err != nil {
			return nil, err
		}
	}
	entries := w.Books(f)
	counts := map[string]int{}
	mutating := 0
	for _, e := range entries {
		counts[e.Service+":"+e.Operation]++
		if e.Mutating {
			mutating++
		}
	}
	return map[string]any{"requests": entries, "total": len(entries), "mutating": mutating, "byOperation": counts}, nil
}

func (w *World) controlObjects(r *http.Request) (any, error) {
	q, err := query(r, "cloud", "service", "account", "region", "kind", "id", "owner", "all")
	if err != nil {
		return nil, err
	}
	all, err := boolParam(q, "all")
	if err != nil {
		return nil, err
	}
	f := ObjectFilter{Cloud: q.Get("cloud"), Service: q.Get("service"), Account: q.Get("account"), Region: q.Get("region"),
		Kind: q.Get("kind"), ID: q.Get("id"), Owner: q.Get("owner"), All: all != nil && *all}
	out := w.Objects(f)
	return map[string]any{"objects": out, "total": len(out)}, nil
}

func (w *World) controlResidue(r *http.Request) (any, error) {
	q, err := query(r, "owner")
	if err != nil {
		return nil, err
	}
	if q.Get("owner") == "" {
		return nil, fmt.Errorf("owner: needed; it is the value of the owner tag")
	}
	out := w.Residue(q.Get("owner"))
	return map[string]any{"objects": out, "total": len(out)}, nil
}

func (w *World) controlFaults(r *http.Request) (any, error) {
	if _, err := query(r); err != nil {
		return nil, err
	}
	return map[string]any{"faults": w.Faults()}, nil
}

func (w *World) controlAddFaults(r *http.Request) (any, error) {
	var f Fault
	if err := readControl(r, &f); err != nil {
		return nil, err
	}
	return w.AddFault(f)
}

func (w *World) controlClearFaults(r *http.Request) (any, error) {
	q, err := query(r, "id")
	if err != nil {
		return nil, err
	}
	n := w.ClearFaults(q.Get("id"))
	if n == 0 && q.Get("id") != "" {
		return nil, notFoundError{fmt.Errorf("id: no fault %q", q.Get("id"))}
	}
	return map[string]int{"cleared": n}, nil
}

func (w *World) controlClock(*http.Request) (any, error) {
	a := map[string]any{"now": w.Clock.Now(), "scale": w.Clock.Scale(), "stopped": w.Clock.Stopped()}
	if at, ok := w.NextEvent(); ok {
		a["nextEvent"] = at
	}
	return a, nil
}

func (w *World) controlSetClock(r *http.Request) (any, error) {
	var in struct {
		Step    any      `json:"step"` // seconds, or a duration such as "90s"
		Scale   *float64 `json:"scale"`
		Stopped *bool    `json:"stopped"`
	}
	if err := readControl(r, &in); err != nil {
		return nil, err
	}
	var step time.Duration
	switch v := in.Step.(type) {
	case nil:
	case float64:
		step = time.Duration(v * float64(time.Second))
	case string:
		d, err := time.ParseDuration(v)
		if err != nil {
			return nil, fmt.Errorf("step: %q is no duration, want seconds or a text such as \"90s\"", v)
		}
		step = d
	default:
		return nil, fmt.Errorf("step: want seconds or a text such as \"90s\"")
	}
	if step < 0 {
		return nil, fmt.Errorf("step: time does not run backwards")
	}
	if in.Scale != nil && *in.Scale <= 0 {
		return nil, fmt.Errorf("scale: must be greater than 0; to freeze the clock send \"stopped\": true")
	}
	if in.Scale != nil {
		w.Clock.SetScale(*in.Scale)
	}
	if in.Stopped != nil {
		if *in.Stopped {
			w.Clock.Stop()
		} else {
			w.Clock.Start()
		}
	}
	w.Step(step)
	return w.controlClock(r)
}

// Step moves the clock and carries out what becomes due.
func (w *World) Step(d time.Duration) {
	w.Clock.Step(d)
	w.Lock()
	w.Unlock() //nolint:staticcheck // Lock itself carries the events out
}

func (w *World) controlQuotas(r *http.Request) (any, error) {
	q, err := query(r, "cloud", "account", "region")
	if err != nil {
		return nil, err
	}
	w.Lock()
	defer w.Unlock()
	out := w.Quotas(q.Get("cloud"), q.Get("account"), q.Get("region"))
	if out == nil {
		out = []Quota{}
	}
	return map[string]any{"quotas": out}, nil
}

func (w *World) controlSetQuota(r *http.Request) (any, error) {
	var in struct {
		Cloud   string   `json:"cloud"`
		Service string   `json:"service"`
		Code    string   `json:"code"`
		Account string   `json:"account"`
		Region  string   `json:"region"`
		Value   *float64 `json:"value"`
	}
	if err := readControl(r, &in); err != nil {
		return nil, err
	}
	if in.Value == nil {
		return nil, fmt.Errorf("value: needed")
	}
	if !w.SetQuota(in.Cloud, in.Service, in.Code, in.Account, in.Region, *in.Value) {
		return nil, notFoundError{fmt.Errorf("code: no quota %s of service %q in cloud %q; GET /_sim/quotas lists them", in.Code, in.Service, in.Cloud)}
	}
	return in, nil
}

func (w *World) controlPlace(r *http.Request) (any, error) {
	var in struct {
		Action    string          `json:"action"`
		Cloud     string          `json:"cloud"`
		Service   string          `json:"service"`
		Operation string          `json:"operation"`
		Account   string          `json:"account"`
		Region    string          `json:"region"`
		Params    map[string]any  `json:"params"`
		ID        string          `json:"id"`
		State     string          `json:"state"`
		Code      string          `json:"code"`
		Message   string          `json:"message"`
		Set       json.RawMessage `json:"set"`
	}
	if err := readControl(r, &in); err != nil {
		return nil, err
	}
	needID := func() error {
		if in.ID == "" {
			return fmt.Errorf("id: needed for the action %s", in.Action)
		}
		return nil
	}
	switch in.Action {
	case "call", "create", "":
		if in.Cloud == "" || in.Service == "" || in.Operation == "" {
			return nil, fmt.Errorf("operation: the action call needs cloud, service and operation, and params as the API names them")
		}
		return w.Invoke(in.Cloud, in.Service, in.Operation, in.Account, in.Region, in.Params)
	case "delete":
		if err := needID(); err != nil {
			return nil, err
		}
		return w.RemoveObject(in.ID)
	case "state":
		if err := needID(); err != nil {
			return nil, err
		}
		return w.SetObjectState(in.ID, in.State, in.Code, in.Message)
	case "set":
		if err := needID(); err != nil {
			return nil, err
		}
		if len(in.Set) == 0 {
			return nil, fmt.Errorf("set: needed; an object with the fields to change, as GET /_sim/objects shows them in data")
		}
		return w.PatchObject(in.ID, in.Set)
	}
	return nil, fmt.Errorf("action: unknown action %q, want call, delete, state or set", in.Action)
}
