package aws

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	"github.com/aws/aws-sdk-go-v2/service/route53/types"

	"github.com/zopday/provisioner/internal/sim"
)

func newZone(t *testing.T, r *rig, c *route53.Client, name, ref string) *route53.CreateHostedZoneOutput {
	t.Helper()
	return must(c.CreateHostedZone(r.ctx(), &route53.CreateHostedZoneInput{Name: &name, CallerReference: &ref}))(t)
}

func address(action types.ChangeAction, name string, ttl int64, values ...string) types.Change {
	set := &types.ResourceRecordSet{Name: &name, Type: types.RRTypeA, TTL: &ttl}
	for _, v := range values {
		set.ResourceRecords = append(set.ResourceRecords, types.ResourceRecord{Value: awssdk.String(v)})
	}
	return types.Change{Action: action, ResourceRecordSet: set}
}

func TestHostedZoneLifecycle(t *testing.T) {
	r := newRig(t, immediate)
	c := route53.NewFromConfig(r.cfg)
	made := newZone(t, r, c, "Example.com", "ref-1")
	if *made.HostedZone.Name != "example.com." || *made.HostedZone.ResourceRecordSetCount != 2 || len(made.DelegationSet.NameServers) != 4 {
		t.Errorf("zone: %+v", made.HostedZone)
	}
	if !strings.HasPrefix(*made.HostedZone.Id, "/hostedzone/Z") || !strings.HasSuffix(*made.Location, strings.TrimPrefix(*made.HostedZone.Id, "/")) {
		t.Errorf("ID %s, location %s", *made.HostedZone.Id, *made.Location)
	}
	if made.ChangeInfo.Status != types.ChangeStatusPending {
		t.Errorf("status %s, want PENDING", made.ChangeInfo.Status)
	}
	r.w.Step(time.Minute)
	if got := must(c.GetChange(r.ctx(), &route53.GetChangeInput{Id: made.ChangeInfo.Id}))(t); got.ChangeInfo.Status != types.ChangeStatusInsync {
		t.Errorf("status %s after a minute, want INSYNC", got.ChangeInfo.Status)
	}
	_, err := c.CreateHostedZone(r.ctx(), &route53.CreateHostedZoneInput{Name: awssdk.String("example.com"), CallerReference: awssdk.String("ref-1")})
	wantCode(t, err, "HostedZoneAlreadyExists")

	bare := awssdk.String(strings.TrimPrefix(*made.HostedZone.Id, "/hostedzone/"))
	must(c.ChangeTagsForResource(r.ctx(), &route53.ChangeTagsForResourceInput{ResourceType: types.TagResourceTypeHostedzone, ResourceId: bare,
		AddTags: []types.Tag{{Key: awssdk.String("owner"), Value: awssdk.String("me")}}}))(t)
	tags := must(c.ListTagsForResource(r.ctx(), &route53.ListTagsForResourceInput{ResourceType: types.TagResourceTypeHostedzone, ResourceId: bare}))(t)
	if len(tags.ResourceTagSet.Tags) != 1 || *tags.ResourceTagSet.Tags[0].Value != "me" {
		t.Errorf("tags: %+v", tags.ResourceTagSet.Tags)
	}

	change := func(changes ...types.Change) error {
		_, err := c.ChangeResourceRecordSets(r.ctx(), &route53.ChangeResourceRecordSetsInput{HostedZoneId: made.HostedZone.Id, ChangeBatch: &types.ChangeBatch{Changes: changes}})
		return err
	}
	if err := change(address(types.ChangeActionCreate, "www.example.com", 60, "192.0.2.1", "192.0.2.2")); err != nil {
		t.Fatal(err)
	}
	_, err = c.DeleteHostedZone(r.ctx(), &route53.DeleteHostedZoneInput{Id: made.HostedZone.Id})
	wantCode(t, err, "HostedZoneNotEmpty")
	if err := change(address(types.ChangeActionDelete, "www.example.com.", 60, "192.0.2.2", "192.0.2.1")); err != nil {
		t.Fatal(err)
	}
	must(c.DeleteHostedZone(r.ctx(), &route53.DeleteHostedZoneInput{Id: made.HostedZone.Id}))(t)
	_, err = c.GetHostedZone(r.ctx(), &route53.GetHostedZoneInput{Id: made.HostedZone.Id})
	wantCode(t, err, "NoSuchHostedZone")
}

func TestChangeBatchRefusals(t *testing.T) {
	r := newRig(t, immediate)
	c := route53.NewFromConfig(r.cfg)
	zone := newZone(t, r, c, "example.com", "ref").HostedZone.Id
	change := func(changes ...types.Change) error {
		_, err := c.ChangeResourceRecordSets(r.ctx(), &route53.ChangeResourceRecordSetsInput{HostedZoneId: zone, ChangeBatch: &types.ChangeBatch{Changes: changes}})
		return err
	}
	if err := change(address(types.ChangeActionCreate, "a.example.com", 60, "192.0.2.1")); err != nil {
		t.Fatal(err)
	}
	alias := func(name, target, targetZone string, ttl *int64) types.Change {
		return types.Change{Action: types.ChangeActionCreate, ResourceRecordSet: &types.ResourceRecordSet{Name: &name, Type: types.RRTypeA, TTL: ttl,
			AliasTarget: &types.AliasTarget{DNSName: &target, HostedZoneId: &targetZone}}}
	}
	cname := types.Change{Action: types.ChangeActionCreate, ResourceRecordSet: &types.ResourceRecordSet{Name: awssdk.String("example.com"), Type: types.RRTypeCname,
		TTL: awssdk.Int64(60), ResourceRecords: []types.ResourceRecord{{Value: awssdk.String("x.example.net")}}}}
	for _, tc := range []struct {
		name, code, text string
		changes          []types.Change
	}{
		{"create what exists", "InvalidChangeBatch", "Tried to create resource record set [name='a.example.com.', type='A'] but it already exists",
			[]types.Change{address(types.ChangeActionCreate, "a.example.com", 60, "192.0.2.1")}},
		{"delete what is not there", "InvalidChangeBatch", "Tried to delete resource record set [name='b.example.com.', type='A'] but it was not found",
			[]types.Change{address(types.ChangeActionDelete, "b.example.com", 60, "192.0.2.1")}},
		{"delete with another TTL", "InvalidChangeBatch", "but the values provided do not match the current values",
			[]types.Change{address(types.ChangeActionDelete, "a.example.com", 61, "192.0.2.1")}},
		{"another zone's name", "InvalidChangeBatch", "RRSet with DNS name a.example.net. is not permitted in zone example.com.",
			[]types.Change{address(types.ChangeActionCreate, "a.example.net", 60, "192.0.2.1")}},
		{"no address", "InvalidChangeBatch", "Value is not a valid IPv4 address", []types.Change{address(types.ChangeActionUpsert, "c.example.com", 60, "nonsense")}},
		{"CNAME at the apex", "InvalidChangeBatch", "is not permitted at apex in zone example.com.", []types.Change{cname}},
		{"the same twice", "InvalidChangeBatch", "invalid set of changes for a resource record set 'A d.example.com.'",
			[]types.Change{address(types.ChangeActionCreate, "d.example.com", 60, "192.0.2.1"), address(types.ChangeActionCreate, "d.example.com", 60, "192.0.2.1")}},
		{"alias with a TTL", "InvalidInput", "Expected exactly one of [AliasTarget", []types.Change{alias("e.example.com", "x.us-east-1.elb.amazonaws.com", "Z35SXDOTRQ7X7K", awssdk.Int64(60))}},
		{"alias into the wrong zone", "InvalidChangeBatch", "the alias target name does not lie within the target zone",
			[]types.Change{alias("e.example.com", "x.eu-west-1.elb.amazonaws.com", "Z35SXDOTRQ7X7K", nil)}},
		{"neither alias nor values", "InvalidInput", "but found none", []types.Change{address(types.ChangeActionCreate, "f.example.com", 60)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			// Every batch starts with a change that is good: none of it may happen.
			err := change(append([]types.Change{address(types.ChangeActionCreate, "good.example.com", 60, "192.0.2.9")}, tc.changes...)...)
			wantCode(t, err, tc.code)
			text := err.Error()
			var batch *types.InvalidChangeBatch
			if errors.As(err, &batch) {
				text += strings.Join(batch.Messages, " ")
			}
			if !strings.Contains(text, tc.text) {
				t.Errorf("%s, want %q in it", text, tc.text)
			}
			list := must(c.ListResourceRecordSets(r.ctx(), &route53.ListResourceRecordSetsInput{HostedZoneId: zone}))(t)
			if len(list.ResourceRecordSets) != 3 {
				t.Errorf("%d records after a refused batch, want 3", len(list.ResourceRecordSets))
			}
		})
	}
	if err := change(alias("lb.example.com", "x.us-east-1.elb.amazonaws.com", "Z35SXDOTRQ7X7K", nil)); err != nil {
		t.Error(err)
	}
	// A record is replaced by deleting and creating it in one batch.
	if err := change(address(types.ChangeActionDelete, "a.example.com", 60, "192.0.2.1"), address(types.ChangeActionCreate, "a.example.com", 300, "192.0.2.5")); err != nil {
		t.Error(err)
	}
}

func TestRecordPages(t *testing.T) {
	r := newRig(t, immediate)
	c := route53.NewFromConfig(r.cfg)
	zone := newZone(t, r, c, "example.com", "ref").HostedZone.Id
	var changes []types.Change
	for i := range 5 {
		changes = append(changes, address(types.ChangeActionCreate, fmt.Sprintf("h%d.example.com", i), 60, "192.0.2.1"))
	}
	changes = append(changes, address(types.ChangeActionCreate, "*.example.com", 60, "192.0.2.1"))
	must(c.ChangeResourceRecordSets(r.ctx(), &route53.ChangeResourceRecordSetsInput{HostedZoneId: zone, ChangeBatch: &types.ChangeBatch{Changes: changes}}))(t)
	var names []string
	in := &route53.ListResourceRecordSetsInput{HostedZoneId: zone, MaxItems: awssdk.Int32(3)}
	for range 10 {
		out := must(c.ListResourceRecordSets(r.ctx(), in))(t)
		for _, set := range out.ResourceRecordSets {
			names = append(names, *set.Name+"/"+string(set.Type))
		}
		if !out.IsTruncated {
			break
		}
		in.StartRecordName, in.StartRecordType, in.StartRecordIdentifier = out.NextRecordName, out.NextRecordType, out.NextRecordIdentifier
	}
	want := []string{"example.com./NS", "example.com./SOA", `\052.example.com./A`, "h0.example.com./A", "h1.example.com./A", "h2.example.com./A", "h3.example.com./A", "h4.example.com./A"}
	if strings.Join(names, " ") != strings.Join(want, " ") {
		t.Errorf("records %v\nwant %v", names, want)
	}
	one := must(c.ListResourceRecordSets(r.ctx(), &route53.ListResourceRecordSetsInput{HostedZoneId: zone, StartRecordName: awssdk.String("h3.example.com"), StartRecordType: types.RRTypeA, MaxItems: awssdk.Int32(1)}))(t)
	if *one.ResourceRecordSets[0].Name != "h3.example.com." || *one.NextRecordName != "h4.example.com." {
		t.Errorf("one record: %+v", one)
	}
	if _, err := r.w.AddFault(sim.Fault{Service: "route53", Operation: "ListResourceRecordSets", Kind: sim.FaultPage, Mode: "empty"}); err != nil {
		t.Fatal(err)
	}
	empty := must(c.ListResourceRecordSets(r.ctx(), &route53.ListResourceRecordSetsInput{HostedZoneId: zone}))(t)
	if len(empty.ResourceRecordSets) != 0 || !empty.IsTruncated {
		t.Errorf("asked for an empty page, got %+v", empty)
	}
}

func TestZonesByName(t *testing.T) {
	r := newRig(t, immediate)
	c := route53.NewFromConfig(r.cfg)
	for i, name := range []string{"int.x.io", "x.io", "example.com", "x.io"} {
		newZone(t, r, c, name, fmt.Sprint("ref-", i))
	}
	out := must(c.ListHostedZonesByName(r.ctx(), &route53.ListHostedZonesByNameInput{DNSName: awssdk.String("x.io")}))(t)
	var names []string
	for _, z := range out.HostedZones {
		names = append(names, *z.Name)
	}
	if got := strings.Join(names, " "); got != "x.io. x.io. int.x.io." || *out.DNSName != "x.io" {
		t.Errorf("zones %s, DNSName %s", got, *out.DNSName)
	}
	n := 0
	p := route53.NewListHostedZonesPaginator(c, &route53.ListHostedZonesInput{MaxItems: awssdk.Int32(3)})
	for p.HasMorePages() {
		n += len(must(p.NextPage(r.ctx()))(t).HostedZones)
	}
	if n != 4 {
		t.Errorf("%d zones on all pages, want 4", n)
	}
}
