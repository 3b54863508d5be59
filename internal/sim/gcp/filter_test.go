package gcp

import "testing"

func TestFilters(t *testing.T) {
	t.Parallel()
	doc := Doc{"name": "shop-a", "priority": 1000.0, "disabled": false, "labels": Doc{"owner": "job_1", "env": "prod"},
		"network": apiRoot + "projects/p/global/networks/shop", "allowed": []any{Doc{"IPProtocol": "tcp"}}}
	for text, want := range map[string]bool{
		"":                                    true,
		"name = shop-a":                       true,
		"name=shop-a":                         true,
		"name != shop-a":                      false,
		`name = "shop-b"`:                     false,
		"name = shop-*":                       true,
		"name eq shop-.*":                     true,
		"name eq shop":                        false, // the expression has to match as a whole
		"name ne 'shop-b'":                    true,
		"name:shop":                           true,
		"labels.owner = job_1":                true,
		"labels.owner:*":                      true,
		"labels.team:*":                       false,
		"labels.owner = job_2 OR name:shop":   true,
		"labels.owner = job_1 labels.env = x": false,
		"(name = x) OR (labels.env = prod)":   true,
		"(labels.env = prod) AND NOT name:b":  true,
		"NOT (labels.env = prod)":             false,
		"network = " + apiRoot + "projects/p/global/networks/shop":   true,
		"network eq .*/networks/shop":                                true,
		`(network = "` + apiRoot + `projects/p/global/networks/s2")`: false,
		"priority > 999":           true,
		"priority < 99":            false,
		"priority >= 1000":         true,
		"disabled = false":         true,
		"allowed.IPProtocol = tcp": true,
	} {
		f, err := parseFilter(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if f(doc) != want {
			t.Errorf("%s: %v, want %v", text, !want, want)
		}
	}
	for _, bad := range []string{"name", "name =", "= x", "(name = x", "name = x)", "name eq (", "name = x AND"} {
		if _, err := parseFilter(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}
