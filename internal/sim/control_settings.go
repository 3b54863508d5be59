package sim

import (
	"fmt"
	"net/http"
	"time"
)

// settings are what of the options can be changed while the world runs, durations as texts such as "250ms".
type settings struct {
	ReadLatency       *string  `json:"readLatency"`
	WriteLatency      *string  `json:"writeLatency"`
	ConsistencyByID   *string  `json:"consistencyByID"`
	ConsistencyByList *string  `json:"consistencyByList"`
	PageSize          *int     `json:"pageSize"`
	EmptyPages        *float64 `json:"emptyPages"`
}

func (w *World) controlSettings(*http.Request) (any, error) {
	o := w.Options()
	o.EmptyPages = max(o.EmptyPages, 0)
	text := func(d time.Duration) *string { s := d.String(); return &s }
	return settings{text(o.ReadLatency), text(o.WriteLatency), text(w.consistency(ByID)), text(w.consistency(ByList)), &o.PageSize, &o.EmptyPages}, nil
}

func (w *World) controlSetSettings(r *http.Request) (any, error) {
	var in settings
	if err := readControl(r, &in); err != nil {
		return nil, err
	}
	o := w.Options()
	for _, d := range []struct {
		name string
		text *string
		into *time.Duration
		none time.Duration // what stands for zero
	}{
		{"readLatency", in.ReadLatency, &o.ReadLatency, 0}, {"writeLatency", in.WriteLatency, &o.WriteLatency, 0},
		{"consistencyByID", in.ConsistencyByID, &o.ConsistencyByID, -1}, {"consistencyByList", in.ConsistencyByList, &o.ConsistencyByList, -1},
	} {
		if d.text == nil {
			continue
		}
		v, err := time.ParseDuration(*d.text)
		if err != nil || v < 0 {
			return nil, fmt.Errorf("%s: %q is no duration, want a text such as \"250ms\"", d.name, *d.text)
		}
		if *d.into = v; v == 0 {
			*d.into = d.none
		}
	}
	if in.PageSize != nil {
		if o.PageSize = *in.PageSize; o.PageSize < 0 {
			return nil, fmt.Errorf("pageSize: must not be negative")
		}
	}
	if in.EmptyPages != nil {
		if o.EmptyPages = *in.EmptyPages; o.EmptyPages < 0 || o.EmptyPages > 1 {
			return nil, fmt.Errorf("emptyPages: must be from 0 to 1")
		}
		if o.EmptyPages == 0 {
			o.EmptyPages = -1
		}
	}
	w.SetOptions(func(opt *Options) { *opt = o })
	return w.controlSettings(r)
}

func (w *World) controlMetrics(*http.Request) (any, error) {
	w.Lock()
	defer w.Unlock()
	return map[string]any{"metrics": append([]Metric{}, w.metrics...)}, nil
}

func (w *World) controlSetMetric(r *http.Request) (any, error) {
	var m Metric
	if err := readControl(r, &m); err != nil {
		return nil, err
	}
	switch {
	case m.Cloud == "" || m.Resource == "" || m.Name == "":
		return nil, fmt.Errorf("cloud, resource, name: all three are needed")
	case m.Share < 0 || m.Share > 1:
		return nil, fmt.Errorf("share: must be from 0 to 1")
	}
	w.SetMetric(m)
	return m, nil
}

func (w *World) controlGrants(r *http.Request) (any, error) {
	q, err := query(r, "cloud")
	if err != nil {
		return nil, err
	}
	return w.Grants(q.Get("cloud")), nil
}

func (w *World) controlSetGrants(r *http.Request) (any, error) {
	var in struct {
		Cloud   string   `json:"cloud"`
		Caller  string   `json:"caller"`
		Actions []string `json:"actions"` // null: everything
	}
	if err := readControl(r, &in); err != nil {
		return nil, err
	}
	if in.Cloud == "" || in.Caller == "" {
		return nil, fmt.Errorf("cloud and caller: needed; the books (GET /_sim/requests) name callers")
	}
	w.SetGrants(in.Cloud, in.Caller, in.Actions)
	return in, nil
}
