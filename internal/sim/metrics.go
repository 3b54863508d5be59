package sim

import (
	"math"
	"time"
)

// A Metric is how one measured thing of one object behaves. A cloud's monitoring
// API samples it at whatever times it is asked for.
type Metric struct {
	Cloud    string  `json:"cloud"`
	Resource string  `json:"resource"` // the object's ID or name
	Name     string  `json:"name"`     // the cloud's own, such as CPUUtilization
	Base     float64 `json:"base"`     // most of the time
	Peak     float64 `json:"peak"`     // for Share of each day
	Share    float64 `json:"share"`    // 0 to 1; 0.1 if it is 0
}

// At is the metric's value at a time: the peak for the first part of each UTC day,
// and the base for the rest, each with a ripple of two in a hundred.
func (m Metric) At(t time.Time) float64 {
	share := m.Share
	if share == 0 {
		share = 0.1
	}
	v := m.Base
	if float64(t.Unix()%86400)/86400 < share {
		v = m.Peak
	}
	return v * (1 + 0.02*math.Sin(float64(t.Unix())/977))
}

// SetMetric says how a metric behaves from now on, and always did. The world must
// not be locked.
func (w *World) SetMetric(m Metric) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, have := range w.metrics {
		if have.Cloud == m.Cloud && have.Resource == m.Resource && have.Name == m.Name {
			w.metrics[i] = m
			return
		}
	}
	w.metrics = append(w.metrics, m)
}

// Metric is what SetMetric said; ok is false if nothing was. The world must be
// locked, as it is in operations.
func (w *World) Metric(cloud, resource, name string) (m Metric, ok bool) {
	for _, m := range w.metrics {
		if m.Cloud == cloud && m.Resource == resource && m.Name == name {
			return m, true
		}
	}
	return Metric{}, false
}
