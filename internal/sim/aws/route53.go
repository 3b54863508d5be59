package aws

import (
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/route53"
	"github.com/aws/aws-sdk-go-v2/service/route53/types"

	"github.com/zopday/provisioner/internal/sim"
)

// The limits of Route 53, as Service Quotas lists them ("Quotas", Route 53 developer guide).
const (
	quotaZones   = "L-4EA4796A"
	quotaRecords = "L-E209CC9F"
)

const r53Namespace = "https://route53.amazonaws.com/doc/2013-04-01/"

func newRoute53(c *Cloud) *r53Service {
	s := &r53Service{cloud: c, state: &R53State{}}
	c.World.DefineQuota(sim.Quota{Cloud: "aws", Service: "route53", Code: quotaZones, Name: "Hosted zones", Default: 500, Unit: "None", Adjustable: true, Global: true})
	c.World.DefineQuota(sim.Quota{Cloud: "aws", Service: "route53", Code: quotaRecords, Name: "Records per hosted zone", Default: 10000, Unit: "None", Adjustable: true, Global: true})
	c.World.Register(s)
	c.add(&api{
		service: "route53", protocol: restXMLProtocol, namespace: r53Namespace, version: "2013-04-01",
		route: func(r *http.Request) (string, bool) {
			op, _, ok := r53Route(r)
			return op, ok
		},
		ops:    overREST(s.operations()),
		encode: func(out any) ([]byte, error) { return out.([]byte), nil },
		// "Throttling" with status 400 is what Route 53 answers beyond five requests a second ("Quotas").
		throttle: Error{Code: "Throttling", Message: "Rate exceeded", Status: 400},
	})
	return s
}

// operations is the API of Route 53.
func (s *r53Service) operations() map[string]typedOp {
	return map[string]typedOp{
		"CreateHostedZone": op(s.createHostedZone), "GetHostedZone": op(s.getHostedZone), "ListHostedZones": op(s.listHostedZones),
		"ListHostedZonesByName": op(s.listHostedZonesByName), "ListHostedZonesByVPC": op(s.listHostedZonesByVPC),
		"GetHostedZoneCount": op(s.getHostedZoneCount), "DeleteHostedZone": op(s.deleteHostedZone), "UpdateHostedZoneComment": op(s.updateComment),
		"ChangeResourceRecordSets": op(s.changeRecords), "ListResourceRecordSets": op(s.listRecords), "GetChange": op(s.getChange),
		"ChangeTagsForResource": op(s.changeTags), "ListTagsForResource": op(s.listTags), "ListTagsForResources": op(s.listTagsMany),
		"AssociateVPCWithHostedZone": op(s.associateVPC), "DisassociateVPCFromHostedZone": op(s.disassociateVPC),
		"ListQueryLoggingConfigs": op(s.listQueryLoggingConfigs),
	}
}

// r53Route names the operation of a request and the members that its path and query carry.
func r53Route(r *http.Request) (operation string, params map[string]string, ok bool) {
	rest, ok := strings.CutPrefix(r.URL.Path, "/2013-04-01/")
	if !ok {
		return "", nil, false
	}
	params = map[string]string{}
	take := func(names map[string]string) {
		for query, member := range names {
			if v := r.URL.Query(); v.Has(query) {
				params[member] = v.Get(query)
			}
		}
	}
	parts := strings.Split(strings.Trim(rest, "/"), "/")
	key := r.Method + " " + parts[0]
	switch len(parts) {
	case 1:
		take(map[string]string{"marker": "Marker", "maxitems": "MaxItems", "dnsname": "DNSName", "hostedzoneid": "HostedZoneId", "vpcid": "VPCId",
			"vpcregion": "VPCRegion", "nexttoken": "NextToken", "delegationsetid": "DelegationSetId", "hostedzonetype": "HostedZoneType"})
		operation = map[string]string{"POST hostedzone": "CreateHostedZone", "GET hostedzone": "ListHostedZones", "GET hostedzonesbyname": "ListHostedZonesByName",
			"GET hostedzonesbyvpc": "ListHostedZonesByVPC", "GET hostedzonecount": "GetHostedZoneCount", "GET queryloggingconfig": "ListQueryLoggingConfigs"}[key]
	case 2:
		params["Id"] = parts[1]
		operation = map[string]string{"GET hostedzone": "GetHostedZone", "DELETE hostedzone": "DeleteHostedZone", "POST hostedzone": "UpdateHostedZoneComment",
			"GET change": "GetChange", "POST tags": "ListTagsForResources"}[key]
		if parts[0] == "tags" {
			params["ResourceType"] = parts[1]
		}
	case 3:
		if parts[0] == "tags" {
			params["ResourceType"], params["ResourceId"] = parts[1], parts[2]
			operation = map[string]string{"GET tags": "ListTagsForResource", "POST tags": "ChangeTagsForResource"}[key]
			break
		}
		params["HostedZoneId"] = parts[1]
		take(map[string]string{"name": "StartRecordName", "type": "StartRecordType", "identifier": "StartRecordIdentifier", "maxitems": "MaxItems"})
		operation = map[string]string{"POST rrset": "ChangeResourceRecordSets", "GET rrset": "ListResourceRecordSets", "POST associatevpc": "AssociateVPCWithHostedZone",
			"POST disassociatevpc": "DisassociateVPCFromHostedZone"}[r.Method+" "+parts[2]]
	}
	return operation, params, operation != ""
}

// r53Items names the items of Route 53's lists after the list.
var r53XML = xmlNaming{time: "2006-01-02T15:04:05.000Z", item: func(list string) string {
	switch list {
	case "HostedZoneSummaries":
		return "HostedZoneSummary"
	case "RemoveTagKeys":
		return "Key"
	}
	return strings.TrimSuffix(list, "s")
}}

// overREST makes operations of Route 53's protocol from typed ones.
func overREST(ops map[string]typedOp) map[string]operation {
	out := make(map[string]operation, len(ops))
	for name, o := range ops {
		out[name] = func(r *request) (any, error) {
			in := o.input()
			if err := r.fillREST(in); err != nil {
				return nil, err
			}
			answer, err := o.run(r.ctx(), in)
			if err != nil {
				return nil, err
			}
			if r.HTTP == nil {
				return answer, nil // the control API takes the struct as it is
			}
			return restReply(name, answer), nil
		}
	}
	return out
}

// fillREST fills an input from path, query and body.
func (r *request) fillREST(in any) error {
	if r.HTTP == nil {
		if err := decodeJSON(r.Body, in); err != nil {
			return refuse("InvalidInput", "%s", err)
		}
		return nil
	}
	if len(r.Body) > 0 {
		root, err := parseXML(r.Body)
		if err != nil {
			return refuse("MalformedInput", "The request body is not well-formed XML.")
		}
		if err := decodeXML(root, in); err != nil {
			return refuse("InvalidInput", "Invalid XML ; %s", err)
		}
	}
	_, params, _ := r53Route(r.HTTP)
	if err := setNamed(in, params); err != nil {
		return refuse("InvalidInput", "%s", err)
	}
	return nil
}

// restReply renders an answer. What an operation created is answered with 201 and its address.
func restReply(operation string, answer any) *httpReply {
	rep := &httpReply{header: http.Header{}}
	if made, ok := answer.(*route53.CreateHostedZoneOutput); ok {
		rep.status = http.StatusCreated
		rep.header.Set("Location", *made.Location)
		made.Location = nil // it goes into the header only
	}
	var b strings.Builder
	b.WriteString("<" + operation + `Response xmlns="` + r53Namespace + `">`)
	if answer != nil {
		encodeXMLFields(&b, answer, r53XML)
	}
	b.WriteString("</" + operation + "Response>")
	rep.body = []byte(b.String())
	return rep
}

// change notes a change that takes a while to reach all name servers ("Changes generally propagate to all Route 53 name
// servers within 60 seconds", ChangeResourceRecordSets).
func (s *r53Service) change(c *reqCtx, comment string) *types.ChangeInfo {
	ch := &R53Change{ID: c.w.ID("C", 20, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"), Comment: comment, Submitted: c.now}
	ch.InSync = c.now.Add(15*time.Second + time.Duration(c.w.Fraction("insync", ch.ID)*float64(30*time.Second)))
	changes := s.state.account(c.account).Changes
	for id, old := range changes {
		// Nobody asks for a change of yesterday.
		if c.now.Sub(old.Submitted) > 24*time.Hour && !old.Held {
			delete(changes, id)
		}
	}
	changes[ch.ID] = ch
	c.Make(ch.ID)
	return s.sdkChange(ch)
}

func (s *r53Service) sdkChange(ch *R53Change) *types.ChangeInfo {
	out := &types.ChangeInfo{Id: new("/change/" + ch.ID), Status: types.ChangeStatus(s.status(ch)), SubmittedAt: &ch.Submitted}
	if ch.Comment != "" {
		out.Comment = &ch.Comment
	}
	return out
}
