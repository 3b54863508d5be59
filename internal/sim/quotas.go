package sim

import (
	"sort"
	"strings"
)

// A Quota is a limit of a service, as its quota API lists it.
type Quota struct {
	Cloud      string  `json:"cloud"`
	Service    string  `json:"service"`
	Code       string  `json:"code"`
	Name       string  `json:"name"`
	Value      float64 `json:"value"`
	Default    float64 `json:"default"`
	Unit       string  `json:"unit,omitempty"`
	Adjustable bool    `json:"adjustable"`
	Global     bool    `json:"global,omitempty"`
}

type quotaBook struct {
	defined   map[string]Quota
	overrides map[string]float64
}

func (b *quotaBook) reset() {
	b.defined, b.overrides = map[string]Quota{}, map[string]float64{}
}

func quotaKey(parts ...string) string { return strings.Join(parts, "/") }

// DefineQuota adds a limit to the catalogue; Default is what holds until SetQuota says otherwise.
func (w *World) DefineQuota(q Quota) {
	q.Value = q.Default
	w.quotas.defined[quotaKey(q.Cloud, q.Service, q.Code)] = q
}

// QuotaValue is the limit that holds for an account in a region. An unknown code answers false.
func (w *World) QuotaValue(cloud, service, code, account, region string) (float64, bool) {
	q, ok := w.quotas.defined[quotaKey(cloud, service, code)]
	if !ok {
		return 0, false
	}
	return w.quotas.value(q, account, region), true
}

func (b *quotaBook) value(q Quota, account, region string) float64 {
	base := quotaKey(q.Cloud, q.Service, q.Code)
	for _, k := range []string{quotaKey(base, account, region), quotaKey(base, account, ""), quotaKey(base, "", region), quotaKey(base, "", "")} {
		if v, ok := b.overrides[k]; ok {
			return v
		}
	}
	return q.Default
}

// setQuota overrides a limit; empty account or region mean all. It answers false for an unknown code.
func (w *World) setQuota(cloud, service, code, account, region string, value float64) bool {
	q, ok := w.quotas.defined[quotaKey(cloud, service, code)]
	if !ok {
		return false
	}
	w.quotas.overrides[quotaKey(q.Cloud, q.Service, q.Code, account, region)] = value
	return true
}

// SetQuota overrides a limit; empty account or region mean all. It answers false for an unknown code.
func (w *World) SetQuota(cloud, service, code, account, region string, value float64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.setQuota(cloud, service, code, account, region, value)
}

// Quotas lists the limits of a cloud as they hold for an account in a region. The world must be locked.
func (w *World) Quotas(cloud, account, region string) []Quota {
	var out []Quota
	for _, q := range w.quotas.defined {
		if cloud == "" || q.Cloud == cloud {
			q.Value = w.quotas.value(q, account, region)
			out = append(out, q)
		}
	}
	sort.Slice(out, func(i, j int) bool {
		return quotaKey(out[i].Cloud, out[i].Service, out[i].Code) < quotaKey(out[j].Cloud, out[j].Service, out[j].Code)
	})
	return out
}
