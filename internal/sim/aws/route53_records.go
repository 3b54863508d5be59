package aws

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"sort"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/route53"
	"github.com/aws/aws-sdk-go-v2/service/route53/types"

	"github.com/zopday/provisioner/internal/sim"
)

// recordOf reads a record of a request.
func recordOf(in *types.ResourceRecordSet) *DNSRecord {
	r := &DNSRecord{Name: normalName(deref(in.Name)), Type: string(in.Type), SetID: deref(in.SetIdentifier), TTL: in.TTL, Weight: in.Weight,
		Region: string(in.Region), Failover: string(in.Failover), HealthCheck: deref(in.HealthCheckId), MultiValue: in.MultiValueAnswer}
	for _, v := range in.ResourceRecords {
		r.Values = append(r.Values, deref(v.Value))
	}
	if g := in.GeoLocation; g != nil {
		r.Continent, r.Country, r.Sub = deref(g.ContinentCode), deref(g.CountryCode), deref(g.SubdivisionCode)
	}
	if t := in.AliasTarget; t != nil {
		r.Alias = &DNSAlias{Zone: deref(t.HostedZoneId), Name: normalName(deref(t.DNSName)), Evaluate: t.EvaluateTargetHealth}
	}
	return r
}

// named is how messages name a record.
func (r *DNSRecord) named() string {
	s := fmt.Sprintf("name='%s', type='%s'", shownName(r.Name), r.Type)
	if r.SetID != "" {
		s += fmt.Sprintf(", set-identifier='%s'", r.SetID)
	}
	return s
}

// same says whether a DELETE names exactly what is there: values in any order, alias names without regard to "dualstack."
func (r *DNSRecord) same(o *DNSRecord) bool {
	values := func(r *DNSRecord) []string { v := slices.Clone(r.Values); sort.Strings(v); return v }
	if (r.Alias == nil) != (o.Alias == nil) || (r.TTL == nil) != (o.TTL == nil) {
		return false
	}
	if r.Alias != nil && *r.Alias != *o.Alias || r.TTL != nil && *r.TTL != *o.TTL {
		return false
	}
	return slices.Equal(values(r), values(o)) && deref(r.Weight) == deref(o.Weight) && r.Region == o.Region && r.Failover == o.Failover &&
		r.Continent == o.Continent && r.Country == o.Country && r.HealthCheck == o.HealthCheck
}

var quoted = regexp.MustCompile(`^("([^"\\]|\\.){0,255}"\s*)+$`)

// checkRecord says what is wrong with a record, in the words of the service; empty means nothing.
func (s *r53Service) checkRecord(z *HostedZone, r *DNSRecord) string {
	name := shownName(r.Name)
	if r.Name != z.Name && !strings.HasSuffix(r.Name, "."+z.Name) {
		return fmt.Sprintf("RRSet with DNS name %s is not permitted in zone %s", name, z.Name)
	}
	if r.Type == "CNAME" && r.Name == z.Name {
		return fmt.Sprintf("RRSet of type CNAME with DNS name %s is not permitted at apex in zone %s", name, z.Name)
	}
	if r.Alias != nil {
		return s.checkAlias(z, r)
	}
	if r.TTL != nil && (*r.TTL < 0 || *r.TTL > 2147483647) {
		return fmt.Sprintf("Invalid TTL %d for %s", *r.TTL, name)
	}
	if r.Type == "CNAME" && len(r.Values) > 1 {
		return fmt.Sprintf("RRSet of type CNAME with DNS name %s contains more than one resource record", name)
	}
	for _, v := range r.Values {
		if problem := checkValue(r.Type, v); problem != "" {
			return fmt.Sprintf("Invalid Resource Record: 'FATAL problem: %s encountered with '%s''", problem, v)
		}
	}
	return ""
}

func checkValue(kind, v string) string {
	switch kind {
	case "A":
		if a, err := netip.ParseAddr(v); err != nil || !a.Is4() {
			return "ARRDATAIllegalIPv4Address (Value is not a valid IPv4 address)"
		}
	case "AAAA":
		if a, err := netip.ParseAddr(v); err != nil || !a.Is6() {
			return "AAAARRDATAIllegalIPv6Address (Value is not a valid IPv6 address)"
		}
	case "TXT", "SPF":
		if !strings.HasPrefix(v, `"`) {
			return "InvalidCharacterString (Value should be enclosed in quotation marks)"
		}
		if !quoted.MatchString(v) {
			return "CharacterStringTooLong (Value is too long)"
		}
	case "CNAME", "NS", "PTR":
		if v == "" || strings.ContainsAny(v, " /:") {
			return "UnsupportedCharacter (Value contains unsupported characters)"
		}
	}
	return ""
}

// checkAlias refuses an alias whose target cannot be.
func (s *r53Service) checkAlias(z *HostedZone, r *DNSRecord) string {
	target := fmt.Sprintf("Tried to create an alias that targets %s, type %s in zone %s, ", r.Alias.Name, r.Type, r.Alias.Zone)
	if r.Alias.Zone == z.ID {
		if !strings.HasSuffix(r.Alias.Name, z.Name) {
			return target + "but the alias target name does not lie within the target zone"
		}
		if !slices.ContainsFunc(z.Records, func(o *DNSRecord) bool { return o.Name == r.Alias.Name && o.Type == r.Type }) {
			return target + "but that target was not found"
		}
		return ""
	}
	for region, ids := range elbZones {
		if slices.Contains(ids[:], r.Alias.Zone) && !strings.HasSuffix(r.Alias.Name, "."+region+".elb.amazonaws.com.") && !strings.HasSuffix(r.Alias.Name, ".elb."+region+".amazonaws.com.") {
			return target + "but the alias target name does not lie within the target zone"
		}
	}
	return ""
}

// plainOrAlias refuses a change that is neither an alias nor a plain record.
func plainOrAlias(ch types.Change, r *DNSRecord) error {
	if ch.Action != types.ChangeActionCreate && ch.Action != types.ChangeActionDelete && ch.Action != types.ChangeActionUpsert {
		return fail(400, "InvalidInput", "Invalid request: the action '%s' is not one of CREATE, DELETE, UPSERT", ch.Action)
	}
	setID := "null"
	if r.SetID != "" {
		setID = r.SetID
	}
	plain := r.TTL != nil && len(r.Values) > 0
	if (r.Alias == nil) == !plain || r.Alias != nil && (r.TTL != nil || len(r.Values) > 0) {
		found := "none"
		if r.Alias != nil {
			found = "more than one"
		}
		return fail(400, "InvalidInput", "Invalid request: Expected exactly one of [AliasTarget, all of [TTL, and ResourceRecords], or TrafficPolicyInstanceId], but found %s in Change with [Action=%s, Name=%s, Type=%s, SetIdentifier=%s]",
			found, ch.Action, r.Name, r.Type, setID)
	}
	if r.SetID == "" && (r.Weight != nil || r.Region != "" || r.Failover != "" || r.Continent != "" || r.Country != "") {
		return fail(400, "InvalidInput", "Invalid request: Missing field 'SetIdentifier' in Change with [Action=%s, Name=%s, Type=%s, SetIdentifier=null]", ch.Action, r.Name, r.Type)
	}
	return nil
}

// changeRecords carries out a batch, all of it or nothing.
func (s *r53Service) changeRecords(c *reqCtx, in *route53.ChangeResourceRecordSetsInput) (*route53.ChangeResourceRecordSetsOutput, error) {
	z, err := s.zone(c, in.HostedZoneId)
	if err != nil {
		return nil, err
	}
	if in.ChangeBatch == nil || len(in.ChangeBatch.Changes) == 0 {
		return nil, fail(400, "MalformedXML", "1 validation error detected: Value null at 'changeBatch' failed to satisfy constraint: Member must not be null")
	}
	next := slices.Clone(z.Records)
	var problems []string
	seen := map[string]types.ChangeAction{}
	for _, ch := range in.ChangeBatch.Changes {
		if ch.ResourceRecordSet == nil {
			return nil, fail(400, "InvalidInput", "Invalid request: Missing field 'ResourceRecordSet' in Change")
		}
		r := recordOf(ch.ResourceRecordSet)
		if err := plainOrAlias(ch, r); err != nil {
			return nil, err
		}
		c.Touch(recordID(z, r))
		if before, twice := seen[r.key()]; twice && (before == ch.Action || before != types.ChangeActionDelete) {
			problems = append(problems, fmt.Sprintf("The request contains an invalid set of changes for a resource record set '%s %s'", r.Type, shownName(r.Name)))
			continue
		}
		seen[r.key()] = ch.Action
		var problem string
		if next, problem = s.apply(z, next, ch.Action, r); problem != "" {
			problems = append(problems, problem)
		}
	}
	if len(problems) == 0 {
		if problem := complete(z, next); problem != "" {
			problems = append(problems, problem)
		}
	}
	if len(problems) > 0 {
		return nil, fail(400, "InvalidChangeBatch", "[%s]", strings.Join(problems, ", "))
	}
	if limit := s.cloud.quota(scope{c.account, "us-east-1"}, "route53", quotaRecords); float64(len(next)) > limit {
		return nil, fail(400, "InvalidChangeBatch", "[Number of records limit of %d exceeded.]", int(limit))
	}
	z.Records = next
	return &route53.ChangeResourceRecordSetsOutput{ChangeInfo: s.change(c, deref(in.ChangeBatch.Comment))}, nil
}

// apply carries out one change on a copy of a zone's records, or says why it cannot be.
func (s *r53Service) apply(z *HostedZone, records []*DNSRecord, action types.ChangeAction, r *DNSRecord) ([]*DNSRecord, string) {
	at, found := slices.BinarySearchFunc(records, r, func(a, b *DNSRecord) int { return strings.Compare(a.key(), b.key()) })
	if action == types.ChangeActionDelete {
		switch {
		case !found:
			return records, fmt.Sprintf("Tried to delete resource record set [%s] but it was not found", r.named())
		case !records[at].same(r):
			return records, fmt.Sprintf("Tried to delete resource record set [%s] but the values provided do not match the current values", r.named())
		}
		return slices.Delete(records, at, at+1), ""
	}
	if found && action == types.ChangeActionCreate {
		return records, fmt.Sprintf("Tried to create resource record set [%s] but it already exists", r.named())
	}
	if problem := s.checkRecord(z, r); problem != "" {
		return records, problem
	}
	if found {
		out := slices.Clone(records)
		out[at] = r
		return out, ""
	}
	for _, o := range records {
		if o.Name != r.Name {
			continue
		}
		if (o.Type == "CNAME") != (r.Type == "CNAME") {
			return records, fmt.Sprintf("RRSet of type %s with DNS name %s is not permitted because a conflicting RRSet of type %s with the same DNS name already exists in zone %s",
				r.Type, shownName(r.Name), o.Type, z.Name)
		}
		if o.Type == r.Type && (o.SetID == "") != (r.SetID == "") {
			return records, fmt.Sprintf("RRSet with DNS name %s, type %s, SetIdentifier %s cannot be created because a non multi-value answer rrset exists with the same name and type.",
				shownName(r.Name), r.Type, orText(r.SetID, "null"))
		}
	}
	return slices.Insert(slices.Clone(records), at, r), ""
}

// complete says what a zone must not lose.
func complete(z *HostedZone, records []*DNSRecord) string {
	for _, kind := range []string{"SOA", "NS"} {
		if !slices.ContainsFunc(records, func(r *DNSRecord) bool { return r.Name == z.Name && r.Type == kind }) {
			if kind == "SOA" {
				return "A HostedZone must contain exactly one SOA record."
			}
			return "A HostedZone must contain at least one NS record for the zone itself."
		}
	}
	return ""
}

func (s *r53Service) listRecords(c *reqCtx, in *route53.ListResourceRecordSetsInput) (*route53.ListResourceRecordSetsOutput, error) {
	z, err := s.zone(c, in.HostedZoneId)
	if err != nil {
		return nil, err
	}
	limit := orDefault(in.MaxItems, 300)
	switch {
	case limit < 1:
		return nil, fail(400, "InvalidInput", "maxitems must be a positive number")
	case in.StartRecordType != "" && in.StartRecordName == nil:
		return nil, fail(400, "InvalidInput", "The request specified a record type but no record name.")
	case in.StartRecordIdentifier != nil && in.StartRecordType == "":
		return nil, fail(400, "InvalidInput", "The request specified a set identifier but no record type.")
	}
	start := 0
	if in.StartRecordName != nil {
		from := DNSRecord{Name: normalName(*in.StartRecordName), Type: string(in.StartRecordType), SetID: deref(in.StartRecordIdentifier)}
		start, _ = slices.BinarySearchFunc(z.Records, &from, func(a, b *DNSRecord) int { return strings.Compare(a.key(), b.key()) })
	}
	page, next := s.recordPage(c, z, start, int(min(limit, 300)))
	out := &route53.ListResourceRecordSetsOutput{ResourceRecordSets: []types.ResourceRecordSet{}, MaxItems: &limit, IsTruncated: next != nil}
	for _, r := range page {
		out.ResourceRecordSets = append(out.ResourceRecordSets, r.sdk())
	}
	if next != nil {
		// The page ends with the name of the record with which the next one begins, not with a token.
		out.NextRecordName, out.NextRecordType = new(shownName(next.Name)), types.RRType(next.Type)
		if next.SetID != "" {
			out.NextRecordIdentifier = &next.SetID
		}
	}
	return out, nil
}

// recordPage cuts a page of a zone's records, and answers the record after it.
func (s *r53Service) recordPage(c *reqCtx, z *HostedZone, start, limit int) (page []*DNSRecord, next *DNSRecord) {
	if size := c.w.Options().PageSize; size > 0 && size < limit {
		limit = size
	}
	rest := z.Records[start:]
	if f := c.w.Take(c.call, sim.FaultPage, z.Name); f != nil && len(rest) > 0 {
		if f.Mode == "repeat" {
			return rest[:min(limit, len(rest))], rest[0]
		}
		return nil, rest[0]
	}
	if limit >= len(rest) {
		return rest, nil
	}
	return rest[:limit], rest[limit]
}
