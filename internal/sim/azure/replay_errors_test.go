package azure

import (
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// placeFor brings about the circumstances of a recorded refusal.
func (p *replayer) placeFor(e exchange) {
	id, _ := parseID(strings.ReplaceAll(hostPart.ReplaceAllString(strings.Split(e.Request.URL, "?")[0], ""), recordedSubscription, DefaultSubscription))
	if e.Code == "ResourceGroupNotFound" || id.Group == "" {
		return
	}
	p.put(groupID(id.Subscription, id.Group), map[string]any{"location": "westus2"})
	parent, nested := id.parent()
	switch e.Code {
	case "NotFound":
		if nested {
			p.put(parent.String(), map[string]any{"location": "westus2"})
		}
	case "PreconditionFailed":
		zone := id
		if nested {
			zone = parent
		}
		p.put(zone.String(), map[string]any{"location": "global"})
		if nested {
			p.put(id.String(), recordBody(lastOf(id.typ())))
		}
	case "AnotherOperationInProgress":
		p.network(parent.String(), "10.0.0.0/8")
		p.begin(parent.String()+"/subnets/other", map[string]any{"properties": map[string]any{"addressPrefix": "10.9.0.0/24"}})
	case "PrivateIPAddressNotInAnySubnet":
		p.network(parent.String(), "192.168.0.0/16")
	case "CannotDeleteResource":
		p.put(id.String(), map[string]any{"location": "global"})
		net := id.prefix() + "/providers/" + vnetType + "/net"
		p.network(net, "10.0.0.0/16")
		p.put(id.String()+"/virtualNetworkLinks/"+id.name()+"-link", map[string]any{"location": "global", "properties": map[string]any{"virtualNetwork": map[string]any{"id": net}}})
	case "InUseSubnetCannotBeDeleted":
		p.network(id.String(), "10.0.0.0/16")
		p.put(id.String()+"/subnets/asotest-subnet-jedaoz", map[string]any{"properties": map[string]any{"addressPrefix": "10.0.0.0/24"}})
		p.nic(id, id.String()+"/subnets/asotest-subnet-jedaoz", "")
	case "PublicIPAddressCannotBeDeleted":
		net := id.prefix() + "/providers/" + vnetType + "/net"
		p.network(net, "10.0.0.0/16")
		p.put(net+"/subnets/s", map[string]any{"properties": map[string]any{"addressPrefix": "10.0.0.0/24"}})
		p.put(id.String(), standardIP)
		p.nic(id, net+"/subnets/s", id.String())
	case "RetryableError":
		p.retryable(id, parent)
	}
}

var standardIP = map[string]any{"location": "westus2", "sku": map[string]any{"name": "Standard"}, "properties": map[string]any{"publicIPAllocationMethod": "Static"}}

// retryable: an address that is not ready yet, or a peering that is being written.
func (p *replayer) retryable(id, parent armID) {
	if id.typ() == natType {
		p.begin(id.prefix()+"/providers/"+publicIPType+"/asotest-publicip-eizxpf", standardIP)
		return
	}
	p.network(parent.String(), "10.0.0.0/16")
	other := id.prefix() + "/providers/" + vnetType + "/other"
	p.network(other, "10.1.0.0/16")
	p.begin(parent.String()+"/virtualNetworkPeerings/p", map[string]any{"properties": map[string]any{"remoteVirtualNetwork": map[string]any{"id": other}}})
}

func (p *replayer) put(id string, body map[string]any) {
	p.g.t.Helper()
	if _, err := p.g.world.Invoke("azure", "", "PUT", DefaultSubscription, "", map[string]any{"id": id, "body": body}); err != nil {
		p.g.t.Fatalf("cannot place %s: %v", id, err)
	}
}

// begin is put by a request, so that the operation stays under way.
func (p *replayer) begin(id string, body map[string]any) {
	p.g.t.Helper()
	if got := p.send("PUT", p.g.url+id+"?api-version=2020-11-01", body, nil); got.Status != 201 {
		p.g.t.Fatalf("cannot begin %s: %s", id, text(got.Body))
	}
}

func (p *replayer) network(id, prefix string) {
	p.put(id, map[string]any{"location": "westus2", "properties": map[string]any{"addressSpace": map[string]any{"addressPrefixes": []any{prefix}}}})
}

func (p *replayer) nic(id armID, subnet, publicIP string) {
	cfg := map[string]any{"subnet": map[string]any{"id": subnet}}
	if publicIP != "" {
		cfg["publicIPAddress"] = map[string]any{"id": publicIP}
	}
	p.put(id.prefix()+"/providers/"+nicType+"/nic", map[string]any{"location": "westus2", "properties": map[string]any{
		"ipConfigurations": []any{map[string]any{"name": "ip", "properties": cfg}}}})
}

func recordBody(typ string) map[string]any {
	records := map[string]any{"A": []any{map[string]any{"ipv4Address": "192.0.2.1"}}, "AAAA": []any{map[string]any{"ipv6Address": "2001:db8::1"}},
		"CNAME": map[string]any{"cname": "x.example.com"}}
	return map[string]any{"properties": map[string]any{"TTL": 60, recordProperty[typ].public: records[typ]}}
}

// conditional are the headers that led to a recorded 412, and a body where the tape has none.
func conditional(e exchange) (doc, map[string]string) {
	if e.Code != "PreconditionFailed" {
		return e.Request.Body, nil
	}
	header := map[string]string{"If-Match": "outdated"}
	if b, _ := asDoc(e.Response.Body); strings.Contains(b.str("message"), "exists already") {
		header = map[string]string{"If-None-Match": "*"}
	}
	if e.Request.Method != http.MethodPut {
		return nil, header
	}
	if strings.Count(e.Type, "/") == 1 {
		return doc{"location": "global"}, header
	}
	return recordBody(lastOf(e.Type)), header
}

// knownRefusals are worded differently, each for a reason.
var knownRefusals = map[string]string{
	"List of available regions": "the regions that there are today",
	"primary-nic-cfg' under":    "the tape is of 2019; ARM has added a link to this text since",
	"asotest-subnet-ghzjwo":     "with its group gone, a subnet's delete is refused with ResourceNotFound on six tapes and with ResourceGroupNotFound on this one",
}

var anyPath = regexp.MustCompile(`/subscriptions/[^ ,']*[^ ,'.]`)

// TestReplayErrors brings about every recorded refusal and compares status, envelope and wording.
func TestReplayErrors(t *testing.T) {
	t.Parallel()
	compared := 0
	unused := maps.Clone(knownRefusals)
	for _, file := range []string{"network-errors", "resourcegroups-errors"} {
		for i, e := range loadTape(t, "testdata/recordings/errors/"+file+".json").Exchanges {
			e.N = i + 1
			p := newReplayer(t, tape{Service: "errors", Scenario: file})
			p.placeFor(e)
			body, header := conditional(e)
			got := p.send(e.Request.Method, p.url(e.Request.URL), body, header)
			// Who uses what, and how operations are numbered, was placed here.
			e.Response.Body = maskPaths(t, e.Response.Body)
			got.Body = maskPaths(t, got.Body)
			p.compare(e, got)
			for _, d := range p.diffs {
				i := slices.IndexFunc(sortedKeys(knownRefusals), func(k string) bool { return strings.Contains(d, k) })
				if i < 0 {
					t.Error(d)
					continue
				}
				delete(unused, sortedKeys(knownRefusals)[i])
			}
			compared++
		}
	}
	for k := range unused {
		t.Errorf("the known difference %q does not show any more", k)
	}
	t.Logf("%d refusals compared, %d known differences", compared, len(knownRefusals))
}

func maskPaths(t *testing.T, body any) any {
	if body == nil {
		return nil
	}
	var mask func(v any) any
	mask = func(v any) any {
		switch m := v.(type) {
		case map[string]any:
			out := map[string]any{}
			for k, e := range m {
				out[k] = mask(e)
			}
			return out
		case []any:
			out := make([]any, len(m))
			for i, e := range m {
				out[i] = mask(e)
			}
			return out
		case string:
			return anyPath.ReplaceAllString(m, "*")
		case float64, bool, nil:
			return v
		}
		t.Fatalf("no JSON: %T", v)
		return nil
	}
	return mask(body)
}
