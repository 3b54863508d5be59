package azure

import (
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/dns/armdns"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/privatedns/armprivatedns"
)

func TestPublicZone(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.group("rg")
	cred, opt := g.arm()
	f := must(armdns.NewClientFactory(DefaultSubscription, cred, opt))(t)
	zones, records := f.NewZonesClient(), f.NewRecordSetsClient()
	_, err := zones.Get(g.ctx, "rg", "example.test", nil)
	refused(t, err, 404, "NotFound")
	zone := must(zones.CreateOrUpdate(g.ctx, "rg", "Example.test", armdns.Zone{Location: new("global")}, nil))(t)
	if len(zone.Properties.NameServers) != 4 || *zone.Properties.NumberOfRecordSets != 2 {
		t.Errorf("made %s", text(zone.Zone))
	}
	_, err = zones.CreateOrUpdate(g.ctx, "rg", "example.test", armdns.Zone{Location: new("global")}, &armdns.ZonesClientCreateOrUpdateOptions{IfNoneMatch: new("*")})
	refused(t, err, 412, "PreconditionFailed")
	a := armdns.RecordSet{Properties: &armdns.RecordSetProperties{TTL: new(int64(60)), ARecords: []*armdns.ARecord{{IPv4Address: new("192.0.2.1")}}}}
	made := must(records.CreateOrUpdate(g.ctx, "rg", "example.test", "WWW", armdns.RecordTypeA, a, &armdns.RecordSetsClientCreateOrUpdateOptions{IfNoneMatch: new("*")}))(t)
	if *made.Properties.Fqdn != "www.Example.test." || *made.Name != "www" {
		t.Errorf("made %s", text(made.RecordSet))
	}
	_, err = records.CreateOrUpdate(g.ctx, "rg", "example.test", "www", armdns.RecordTypeA, a, &armdns.RecordSetsClientCreateOrUpdateOptions{IfNoneMatch: new("*")})
	refused(t, err, 412, "PreconditionFailed")
	_, err = records.CreateOrUpdate(g.ctx, "rg", "example.test", "www", armdns.RecordTypeA, a, &armdns.RecordSetsClientCreateOrUpdateOptions{IfMatch: new("other")})
	refused(t, err, 412, "PreconditionFailed")
	_, err = records.CreateOrUpdate(g.ctx, "rg", "example.test", "www", armdns.RecordTypeCNAME,
		armdns.RecordSet{Properties: &armdns.RecordSetProperties{TTL: new(int64(60)), CnameRecord: &armdns.CnameRecord{Cname: new("x.test")}}}, nil)
	refused(t, err, 400, "BadRequest")
	_, err = records.Delete(g.ctx, "rg", "example.test", "@", armdns.RecordTypeSOA, nil)
	refused(t, err, 400, "BadRequest")
	n := 0
	for pager := records.NewListByDNSZonePager("rg", "example.test", nil); pager.More(); {
		n += len(must(pager.NextPage(g.ctx))(t).Value)
	}
	if n != 3 {
		t.Errorf("%d record sets", n)
	}
	p, err := zones.BeginDelete(g.ctx, "rg", "example.test", nil)
	done(g, p, err)
	_, err = zones.Get(g.ctx, "rg", "example.test", nil)
	refused(t, err, 404, "NotFound")
}

func TestPrivateZone(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.group("rg")
	net := g.vnet("net", "10.0.0.0/16")
	cred, opt := g.arm()
	f := must(armprivatedns.NewClientFactory(DefaultSubscription, cred, opt))(t)
	make := func(zone string) {
		p, err := f.NewPrivateZonesClient().BeginCreateOrUpdate(g.ctx, "rg", zone, armprivatedns.PrivateZone{Location: new("global")}, nil)
		if got := done(g, p, err); *got.Properties.ProvisioningState != "Succeeded" {
			t.Errorf("zone %s", text(got.PrivateZone))
		}
	}
	link := func(zone string, register bool) error {
		p, err := f.NewVirtualNetworkLinksClient().BeginCreateOrUpdate(g.ctx, "rg", zone, "link", armprivatedns.VirtualNetworkLink{Location: new("global"),
			Properties: &armprivatedns.VirtualNetworkLinkProperties{RegistrationEnabled: &register, VirtualNetwork: &armprivatedns.SubResource{ID: net.ID}}}, nil)
		got, err := wait(g, p, err)
		if err == nil && *got.Properties.VirtualNetworkLinkState != "Completed" {
			t.Errorf("link %s", text(got.VirtualNetworkLink))
		}
		return err
	}
	make("one.test")
	make("two.test")
	if err := link("one.test", true); err != nil {
		t.Fatal(err)
	}
	refused(t, link("two.test", true), 409, "Conflict")
	if err := link("two.test", false); err != nil {
		t.Fatal(err)
	}
	_, err := f.NewPrivateZonesClient().BeginDelete(g.ctx, "rg", "one.test", nil)
	if re := refused(t, err, 409, "CannotDeleteResource"); !strings.Contains(re.Error(), "virtualNetworkLinks/link") {
		t.Errorf("the link is not named: %v", re)
	}
	d, err := f.NewVirtualNetworkLinksClient().BeginDelete(g.ctx, "rg", "one.test", "link", nil)
	done(g, d, err)
	z, err := f.NewPrivateZonesClient().BeginDelete(g.ctx, "rg", "one.test", nil)
	done(g, z, err)
}
