package aws

import (
	"fmt"
	"regexp"
	"slices"
	"sort"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/route53"
	"github.com/aws/aws-sdk-go-v2/service/route53/types"
)

func (s *r53Service) zone(c *reqCtx, id *string) (*HostedZone, error) {
	bare := strings.TrimPrefix(deref(id), "/hostedzone/")
	z := s.state.account(c.account).Zones[bare]
	if z == nil || !c.visible(z.ID, z.Created, false, "hosted-zone", z.Name, tagValues(z.Tags)) {
		return nil, fail(404, "NoSuchHostedZone", "No hosted zone found with ID: %s", bare)
	}
	c.Touch(z.ID)
	return z, nil
}

var domainPattern = regexp.MustCompile(`^([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)+$`)

func (s *r53Service) createHostedZone(c *reqCtx, in *route53.CreateHostedZoneInput) (*route53.CreateHostedZoneOutput, error) {
	name, ref := normalName(deref(in.Name)), deref(in.CallerReference)
	switch {
	case ref == "" || len(ref) > 128:
		return nil, fail(400, "InvalidInput", "1 validation error detected: Value '%s' at 'callerReference' failed to satisfy constraint: Member must have length between 1 and 128", ref)
	case in.Name == nil || len(name) > 255 || !domainPattern.MatchString(name):
		return nil, fail(400, "InvalidDomainName", "%s is not a valid domain name.", deref(in.Name))
	}
	a := s.state.account(c.account)
	if a.References[ref] != "" {
		return nil, fail(409, "HostedZoneAlreadyExists", "A hosted zone has already been created with the specified caller reference.")
	}
	if float64(len(a.Zones)) >= s.cloud.quota(scope{c.account, "us-east-1"}, "route53", quotaZones) {
		return nil, fail(400, "TooManyHostedZones", "Limits Exceeded: %d hosted zones", len(a.Zones))
	}
	z := &HostedZone{Name: name, Reference: ref, Created: c.now, Tags: []Tag{}}
	if cfg := in.HostedZoneConfig; cfg != nil {
		z.Comment, z.Private = deref(cfg.Comment), cfg.PrivateZone
	}
	if in.VPC != nil {
		z.Private = true
		v := R53VPC{deref(in.VPC.VPCId), orText(string(in.VPC.VPCRegion), c.region)}
		if err := s.checkVPC(c, a, z, v); err != nil {
			return nil, err
		}
		z.VPCs = []R53VPC{v}
	}
	if z.Private && len(z.VPCs) == 0 {
		return nil, fail(400, "InvalidInput", "When you're creating a private hosted zone (when you specify true for PrivateZone), you must also specify values for VPCId and VPCRegion.")
	}
	z.ID = c.w.ID("Z0", 19, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
	z.NameServers = nameServers(c, z)
	s.addApex(z)
	a.Zones[z.ID], a.References[ref] = z, z.ID
	c.Make(z.ID)
	out := &route53.CreateHostedZoneOutput{HostedZone: new(z.sdk()), ChangeInfo: s.change(c, ""), Location: new("https://route53.amazonaws.com/2013-04-01/hostedzone/" + z.ID)}
	if z.Private {
		out.VPC = &types.VPC{VPCId: &z.VPCs[0].ID, VPCRegion: types.VPCRegion(z.VPCs[0].Region)}
	} else {
		out.DelegationSet = &types.DelegationSet{NameServers: z.NameServers}
	}
	return out, nil
}

// nameServers picks the four name servers of a zone. All private zones have the same.
func nameServers(c *reqCtx, z *HostedZone) []string {
	out := make([]string, 4)
	for i, tld := range []string{"co.uk", "com", "org", "net"} {
		n, base := 0, []int{1536, 0, 1024, 512}[i]
		if !z.Private {
			n = int(c.w.Fraction("ns", z.ID, tld) * 512)
		}
		out[i] = fmt.Sprintf("ns-%d.awsdns-%02d.%s", base+n, n/8, tld)
	}
	return out
}

// addApex adds the records that every zone has.
func (s *r53Service) addApex(z *HostedZone) {
	ns := &DNSRecord{Name: z.Name, Type: "NS", TTL: new(int64(172800))}
	for _, n := range z.NameServers {
		ns.Values = append(ns.Values, n+".")
	}
	z.Records = []*DNSRecord{ns, {Name: z.Name, Type: "SOA", TTL: new(int64(900)), Values: []string{z.NameServers[0] + ". awsdns-hostmaster.amazon.com. 1 7200 900 1209600 86400"}}}
}

// vpcOf reads the VPC of a request.
func vpcOf(in *types.VPC) R53VPC {
	if in == nil {
		return R53VPC{}
	}
	return R53VPC{deref(in.VPCId), string(in.VPCRegion)}
}

// checkVPC refuses a VPC that is not there, or that has a zone of that name already.
func (s *r53Service) checkVPC(c *reqCtx, a *R53Account, z *HostedZone, v R53VPC) error {
	if !s.cloud.vpcExists(scope{c.account, v.Region}, v.ID) {
		return fail(400, "InvalidVPCId", "The VPC ID is invalid.")
	}
	for _, other := range a.Zones {
		if other != z && other.Name == z.Name && slices.Contains(other.VPCs, v) {
			return fail(400, "ConflictingDomainExists", "The VPC %s in region %s has already been associated with the hosted zone %s with the same domain name.", v.ID, v.Region, other.ID)
		}
	}
	return nil
}

func (s *r53Service) getHostedZone(c *reqCtx, in *route53.GetHostedZoneInput) (*route53.GetHostedZoneOutput, error) {
	z, err := s.zone(c, in.Id)
	if err != nil {
		return nil, err
	}
	out := &route53.GetHostedZoneOutput{HostedZone: new(z.sdk())}
	if !z.Private {
		out.DelegationSet = &types.DelegationSet{NameServers: z.NameServers}
		return out, nil
	}
	for _, v := range z.VPCs {
		out.VPCs = append(out.VPCs, types.VPC{VPCId: new(v.ID), VPCRegion: types.VPCRegion(v.Region)})
	}
	return out, nil
}

func (s *r53Service) getHostedZoneCount(c *reqCtx, _ *route53.GetHostedZoneCountInput) (*route53.GetHostedZoneCountOutput, error) {
	return &route53.GetHostedZoneCountOutput{HostedZoneCount: new(int64(len(s.state.account(c.account).Zones)))}, nil
}

// zonePage cuts a page of zones by the ID with which it starts, which is how Route 53 marks pages.
func (s *r53Service) zonePage(c *reqCtx, all []*HostedZone, start int, maxItems *int32) (page []types.HostedZone, next *HostedZone, limit int32, err error) {
	limit = orDefault(maxItems, 100)
	if limit < 1 {
		return nil, nil, 0, fail(400, "InvalidInput", "maxitems must be a positive number")
	}
	// A marker is the ID of a zone and cannot tell that the page before was empty, so that empty pages by chance are left
	// to the other services; the fault page makes them here too.
	token := encodeToken(start) + emptyMark
	cut, more, err := pageOf(c, all, &token, int(min(limit, 100)))
	if err != nil {
		return nil, nil, 0, fail(400, "InvalidInput", "invalid marker")
	}
	page = []types.HostedZone{}
	for _, z := range cut {
		page = append(page, z.sdk())
	}
	if more != nil {
		if n, err := decodeToken(*more); err == nil && n < len(all) {
			next = all[n]
		}
	}
	return page, next, limit, nil
}

func (s *r53Service) listHostedZones(c *reqCtx, in *route53.ListHostedZonesInput) (*route53.ListHostedZonesOutput, error) {
	a, start := s.state.account(c.account), 0
	var all []*HostedZone
	for _, id := range sortedKeys(a.Zones) {
		z := a.Zones[id]
		if in.HostedZoneType == types.HostedZoneTypePrivateHostedZone && !z.Private || !c.visible(z.ID, z.Created, true, "hosted-zone", z.Name, tagValues(z.Tags)) {
			continue
		}
		if in.Marker != nil && z.ID < *in.Marker {
			start = len(all) + 1
		}
		all = append(all, z)
	}
	page, next, limit, err := s.zonePage(c, all, start, in.MaxItems)
	if err != nil {
		return nil, err
	}
	out := &route53.ListHostedZonesOutput{HostedZones: page, MaxItems: &limit, Marker: in.Marker, IsTruncated: next != nil}
	if next != nil {
		out.NextMarker = &next.ID
	}
	return out, nil
}

func (s *r53Service) listHostedZonesByName(c *reqCtx, in *route53.ListHostedZonesByNameInput) (*route53.ListHostedZonesByNameOutput, error) {
	a := s.state.account(c.account)
	if in.HostedZoneId != nil && in.DNSName == nil {
		return nil, fail(400, "InvalidInput", "The parameter hostedzoneid can only be used together with dnsname.")
	}
	var all []*HostedZone
	for _, z := range a.Zones {
		if c.visible(z.ID, z.Created, true, "hosted-zone", z.Name, tagValues(z.Tags)) {
			all = append(all, z)
		}
	}
	sort.Slice(all, func(i, j int) bool {
		if x, y := reverseName(all[i].Name), reverseName(all[j].Name); x != y {
			return x < y
		}
		return all[i].ID < all[j].ID
	})
	start := 0
	if in.DNSName != nil {
		from := reverseName(normalName(*in.DNSName))
		for start < len(all) {
			name := reverseName(all[start].Name)
			if name > from || name == from && all[start].ID >= strings.TrimPrefix(deref(in.HostedZoneId), "/hostedzone/") {
				break
			}
			start++
		}
	}
	page, next, limit, err := s.zonePage(c, all, start, in.MaxItems)
	if err != nil {
		return nil, err
	}
	out := &route53.ListHostedZonesByNameOutput{HostedZones: page, MaxItems: &limit, DNSName: in.DNSName, HostedZoneId: in.HostedZoneId, IsTruncated: next != nil}
	if next != nil {
		out.NextDNSName, out.NextHostedZoneId = new(shownName(next.Name)), &next.ID
	}
	return out, nil
}

func (s *r53Service) listHostedZonesByVPC(c *reqCtx, in *route53.ListHostedZonesByVPCInput) (*route53.ListHostedZonesByVPCOutput, error) {
	v := R53VPC{deref(in.VPCId), string(in.VPCRegion)}
	if !s.cloud.vpcExists(scope{c.account, v.Region}, v.ID) {
		return nil, fail(400, "InvalidVPCId", "The VPC ID is invalid.")
	}
	a, all := s.state.account(c.account), []types.HostedZoneSummary{}
	for _, id := range sortedKeys(a.Zones) {
		if z := a.Zones[id]; slices.Contains(z.VPCs, v) && c.visible(z.ID, z.Created, true, "hosted-zone", z.Name, tagValues(z.Tags)) {
			all = append(all, types.HostedZoneSummary{HostedZoneId: &z.ID, Name: new(shownName(z.Name)), Owner: &types.HostedZoneOwner{OwningAccount: new(c.account)}})
		}
	}
	limit := orDefault(in.MaxItems, 100)
	page, next, err := pageOf(c, all, in.NextToken, int(limit))
	if err != nil {
		return nil, fail(400, "InvalidPaginationToken", "The value that you specified to get the second or subsequent page of results is invalid.")
	}
	return &route53.ListHostedZonesByVPCOutput{HostedZoneSummaries: page, MaxItems: &limit, NextToken: next}, nil
}

func (s *r53Service) deleteHostedZone(c *reqCtx, in *route53.DeleteHostedZoneInput) (*route53.DeleteHostedZoneOutput, error) {
	z, err := s.zone(c, in.Id)
	if err != nil {
		return nil, err
	}
	for _, r := range z.Records {
		if r.Name != z.Name || r.Type != "NS" && r.Type != "SOA" {
			return nil, fail(400, "HostedZoneNotEmpty", "The specified hosted zone contains non-required resource record sets  and so cannot be deleted.")
		}
	}
	a := s.state.account(c.account)
	delete(a.Zones, z.ID)
	return &route53.DeleteHostedZoneOutput{ChangeInfo: s.change(c, "")}, nil
}

func (s *r53Service) updateComment(c *reqCtx, in *route53.UpdateHostedZoneCommentInput) (*route53.UpdateHostedZoneCommentOutput, error) {
	z, err := s.zone(c, in.Id)
	if err != nil {
		return nil, err
	}
	z.Comment = deref(in.Comment)
	return &route53.UpdateHostedZoneCommentOutput{HostedZone: new(z.sdk())}, nil
}

func (s *r53Service) associateVPC(c *reqCtx, in *route53.AssociateVPCWithHostedZoneInput) (*route53.AssociateVPCWithHostedZoneOutput, error) {
	z, err := s.zone(c, in.HostedZoneId)
	if err != nil {
		return nil, err
	}
	if !z.Private {
		return nil, fail(400, "PublicZoneVPCAssociation", "You're trying to associate a VPC with a public hosted zone. Amazon Route 53 doesn't support associating a VPC with a public hosted zone.")
	}
	v := vpcOf(in.VPC)
	if err := s.checkVPC(c, s.state.account(c.account), z, v); err != nil {
		return nil, err
	}
	if slices.Contains(z.VPCs, v) {
		return nil, fail(400, "ConflictingDomainExists", "The VPC %s in region %s has already been associated with the hosted zone %s with the same domain name.", v.ID, v.Region, z.ID)
	}
	z.VPCs = append(z.VPCs, v)
	return &route53.AssociateVPCWithHostedZoneOutput{ChangeInfo: s.change(c, deref(in.Comment))}, nil
}

func (s *r53Service) disassociateVPC(c *reqCtx, in *route53.DisassociateVPCFromHostedZoneInput) (*route53.DisassociateVPCFromHostedZoneOutput, error) {
	z, err := s.zone(c, in.HostedZoneId)
	if err != nil {
		return nil, err
	}
	i := slices.Index(z.VPCs, vpcOf(in.VPC))
	if i < 0 {
		return nil, fail(404, "VPCAssociationNotFound", "The specified VPC and hosted zone are not currently associated.")
	}
	if len(z.VPCs) == 1 {
		return nil, fail(400, "LastVPCAssociation", "The VPC that you're trying to disassociate from the private hosted zone is the last VPC that is associated with the hosted zone.")
	}
	z.VPCs = slices.Delete(z.VPCs, i, i+1)
	return &route53.DisassociateVPCFromHostedZoneOutput{ChangeInfo: s.change(c, deref(in.Comment))}, nil
}

func (s *r53Service) getChange(c *reqCtx, in *route53.GetChangeInput) (*route53.GetChangeOutput, error) {
	id := strings.TrimPrefix(deref(in.Id), "/change/")
	ch := s.state.account(c.account).Changes[id]
	if ch == nil {
		return nil, fail(404, "NoSuchChange", "Could not find resource with ID: %s", id)
	}
	return &route53.GetChangeOutput{ChangeInfo: s.sdkChange(ch)}, nil
}

func (s *r53Service) listQueryLoggingConfigs(*reqCtx, *route53.ListQueryLoggingConfigsInput) (*route53.ListQueryLoggingConfigsOutput, error) {
	return &route53.ListQueryLoggingConfigsOutput{QueryLoggingConfigs: []types.QueryLoggingConfig{}}, nil
}

// tagged finds the zone whose tags a request is about.
func (s *r53Service) tagged(c *reqCtx, kind types.TagResourceType, id string) (*HostedZone, error) {
	switch kind {
	case types.TagResourceTypeHostedzone:
		return s.zone(c, &id)
	case types.TagResourceTypeHealthcheck:
		return nil, fail(404, "NoSuchHealthCheck", "No health check exists with the specified ID: %s", id)
	}
	return nil, fail(400, "InvalidInput", "1 validation error detected: Value '%s' at 'resourceType' failed to satisfy constraint: Member must satisfy enum value set: [healthcheck, hostedzone]", kind)
}

func (z *HostedZone) tagSet() types.ResourceTagSet {
	set := types.ResourceTagSet{ResourceType: types.TagResourceTypeHostedzone, ResourceId: &z.ID, Tags: []types.Tag{}}
	for _, t := range z.Tags {
		set.Tags = append(set.Tags, types.Tag{Key: new(t.Key), Value: new(t.Value)})
	}
	return set
}

func (s *r53Service) changeTags(c *reqCtx, in *route53.ChangeTagsForResourceInput) (*route53.ChangeTagsForResourceOutput, error) {
	z, err := s.tagged(c, in.ResourceType, deref(in.ResourceId))
	if err != nil {
		return nil, err
	}
	// "A complex type that contains a list of the tags that you want to add", 10 at a time and 50 in all.
	if len(in.AddTags) > 10 || len(in.RemoveTagKeys) > 10 {
		return nil, fail(400, "InvalidInput", "1 validation error detected: Value at 'addTags' failed to satisfy constraint: Member must have length less than or equal to 10")
	}
	tags := dropTags(z.Tags, in.RemoveTagKeys)
	for _, t := range in.AddTags {
		if strings.HasPrefix(strings.ToLower(deref(t.Key)), "aws:") || deref(t.Key) == "" || len(deref(t.Key)) > 128 || len(deref(t.Value)) > 256 {
			return nil, fail(400, "InvalidInput", "Tag key '%s' is not valid.", deref(t.Key))
		}
		tags = setTag(tags, *t.Key, deref(t.Value))
	}
	if len(tags) > 50 {
		return nil, fail(400, "InvalidInput", "The number of tags exceeds the limit of 50 for a resource.")
	}
	z.Tags = tags
	return &route53.ChangeTagsForResourceOutput{}, nil
}

func (s *r53Service) listTags(c *reqCtx, in *route53.ListTagsForResourceInput) (*route53.ListTagsForResourceOutput, error) {
	z, err := s.tagged(c, in.ResourceType, deref(in.ResourceId))
	if err != nil {
		return nil, err
	}
	return &route53.ListTagsForResourceOutput{ResourceTagSet: new(z.tagSet())}, nil
}

func (s *r53Service) listTagsMany(c *reqCtx, in *route53.ListTagsForResourcesInput) (*route53.ListTagsForResourcesOutput, error) {
	if len(in.ResourceIds) > 10 {
		return nil, fail(400, "InvalidInput", "1 validation error detected: Value at 'resourceIds' failed to satisfy constraint: Member must have length less than or equal to 10")
	}
	out := &route53.ListTagsForResourcesOutput{ResourceTagSets: []types.ResourceTagSet{}}
	for _, id := range in.ResourceIds {
		z, err := s.tagged(c, in.ResourceType, id)
		if err != nil {
			return nil, err
		}
		out.ResourceTagSets = append(out.ResourceTagSets, z.tagSet())
	}
	return out, nil
}
