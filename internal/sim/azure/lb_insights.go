package azure

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

const autoscaleType = "Microsoft.Insights/autoscaleSettings"

var metricVersions = []string{"2018-01-01", "2019-07-01", "2021-05-01", "2023-10-01", "2024-02-01"}

// addInsights registers the part of Azure Monitor that load balancers and scale sets need: metrics and autoscale settings.
func (c *Cloud) addInsights() {
	s := c.newShelf("insights")
	s.on["autoscale"] = c.autoscale
	c.addKind(&kind{typ: autoscaleType, service: "insights", versions: []string{"2015-04-01", "2021-05-01-preview", "2022-10-01"}, tracked: true, stateless: true, noEtag: true,
		put: c.putAutoscale, mergePatch: true})
	for _, scope := range roleScopes[2:] {
		c.handle(route{method: "GET", pattern: scope + "/providers/Microsoft.Insights/metrics", service: "insights", operation: "Metrics_List", versions: metricVersions, serve: c.metrics})
	}
}

// balancerMetrics are the metrics of a load balancer by name ("Standard load balancer diagnostics").
var balancerMetrics = map[string]string{"dipavailability": "Health Probe Status", "vipavailability": "Data Path Availability"}

// metrics answers the metrics of a datastore, or those of a load balancer: the share of probes that members have answered, one series a member.
func (c *Cloud) metrics(r *request) (answer, error) {
	target := strings.TrimSuffix(r.path, "/providers/"+strings.Join(strings.Split(r.path, "/")[len(strings.Split(r.path, "/"))-2:], "/"))
	lb := c.find(target)
	if lb == nil {
		id, _ := parseID(target)
		return answer{}, notFoundARM(id)
	}
	if metricsOf[key(lb.Type)] != nil {
		return c.listMetrics(r)
	}
	r.Touch(lb.ID)
	names := strings.Split(strings.ToLower(r.query.Get("metricnames")), ",")
	value := []any{}
	for _, name := range names {
		title := balancerMetrics[name]
		if lb.Type != loadBalancerType || title == "" {
			return answer{}, refuse(http.StatusBadRequest, "BadRequest", "Failed to find metric configuration for provider: %s, resource Type: %s, metric: %s, Valid metrics: DipAvailability,VipAvailability",
				kindNamespace(lb.Type), strings.SplitN(lb.Type, "/", 2)[1], name)
		}
		value = append(value, map[string]any{"id": lb.ID + "/providers/Microsoft.Insights/metrics/" + title, "type": "Microsoft.Insights/metrics",
			"name": map[string]any{"value": map[string]string{"dipavailability": "DipAvailability", "vipavailability": "VipAvailability"}[name], "localizedValue": title},
			"unit": "Count", "timeseries": c.availability(r, lb, name), "errorCode": "Success"})
	}
	now := c.World.Now()
	return plain(map[string]any{"cost": 0, "timespan": stamp(now.Add(-5*time.Minute)) + "/" + stamp(now), "interval": "PT1M", "namespace": loadBalancerType, "resourceregion": lb.Location, "value": value}), nil
}

func kindNamespace(typ string) string { ns, _, _ := strings.Cut(typ, "/"); return ns }

// availability is a metric now, split by member if the filter asks for that.
func (c *Cloud) availability(r *request, lb *Resource, name string) []any {
	at := stamp(c.World.Now().Truncate(time.Minute))
	point := func(v float64) []any { return []any{map[string]any{"timeStamp": at, "average": v}} }
	if name == "vipavailability" {
		return []any{map[string]any{"metadatavalues": []any{}, "data": point(100)}}
	}
	split := strings.Contains(strings.ToLower(r.query.Get("$filter")), "backendipaddress")
	series, sum, n := []any{}, 0.0, 0
	for _, rule := range lb.Properties.docs(lbRules) {
		probe := c.partOf(rule.ref("properties.probe"))
		if probe == nil {
			continue
		}
		for _, m := range c.poolMembers(rule.ref("properties.backendAddressPool")) {
			state, _ := c.probeState(probe, m.nic, m.cfg)
			if state == "" {
				continue
			}
			v := map[string]float64{"Up": 100, "Down": 0}[state]
			sum, n = sum+v, n+1
			series = append(series, map[string]any{"data": point(v), "metadatavalues": []any{
				map[string]any{"name": map[string]any{"value": "backendipaddress", "localizedValue": "backendipaddress"}, "value": m.cfg.str("properties.privateIPAddress")},
				map[string]any{"name": map[string]any{"value": "backendport", "localizedValue": "backendport"}, "value": strconv.Itoa(int(probe.num("port")))}}})
		}
	}
	if split || n == 0 {
		return series
	}
	return []any{map[string]any{"metadatavalues": []any{}, "data": point(sum / float64(n))}}
}

// putAutoscale keeps autoscale settings. Metrics of machines are not simulated, so that only the limits of the capacity act.
func (c *Cloud) putAutoscale(_ *request, now, old *Resource) (outcome, error) {
	p := now.Properties
	profiles := p.docs("profiles")
	if len(profiles) == 0 {
		return outcome{}, refuse(http.StatusBadRequest, "BadRequest", "The autoscale setting must have at least one profile.")
	}
	for _, profile := range profiles {
		low, high, def := number(profile.get("capacity.minimum")), number(profile.get("capacity.maximum")), number(profile.get("capacity.default"))
		if low > high || def < low || def > high {
			return outcome{}, refuse(http.StatusBadRequest, "BadRequest", "The capacity of profile '%s' is invalid: minimum %d, maximum %d, default %d.", profile.str("name"), low, high, def)
		}
		profile.def("rules", []any{})
	}
	if target := p.str("targetResourceUri"); target != "" && c.find(target) == nil {
		return outcome{}, refuse(http.StatusNotFound, "ResourceNotFound", "The target resource id '%s' was not found.", target)
	}
	p.def("enabled", true)
	p.def("name", now.Name)
	p.def("notifications", []any{})
	p.def("targetResourceLocation", now.Location)
	if p.flag("enabled") && (old == nil || !old.Properties.flag("enabled")) {
		c.after(time.Minute, "insights", "autoscale", now.ID)
	}
	return outcome{}, nil
}

// number reads a capacity, which the API takes as text or as a number.
func number(v any) int {
	switch n := v.(type) {
	case float64:
		return int(n)
	case string:
		i, err := strconv.Atoi(n)
		if err == nil {
			return i
		}
	}
	return -1
}

// autoscale keeps the capacity of a scale set between the limits of its setting.
func (c *Cloud) autoscale(id string) {
	setting := c.find(id)
	if setting == nil || !setting.Properties.flag("enabled") {
		return
	}
	c.after(time.Minute, "insights", "autoscale", id)
	set := c.find(setting.Properties.str("targetResourceUri"))
	if set == nil || set.Type != setType || set.Operation != "" || set.State == stateDeleting {
		return
	}
	profile := setting.Properties.docs("profiles")[0]
	want := min(max(capacityOf(set), number(profile.get("capacity.minimum"))), number(profile.get("capacity.maximum")))
	if want != capacityOf(set) {
		set.Top.sub("sku")["capacity"] = float64(want)
		c.scale(set)
	}
}
