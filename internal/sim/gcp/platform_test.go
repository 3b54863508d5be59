package gcp

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	crm1 "google.golang.org/api/cloudresourcemanager/v1"
	crm3 "google.golang.org/api/cloudresourcemanager/v3"
	"google.golang.org/api/compute/v1"
	"google.golang.org/api/dns/v1"
	"google.golang.org/api/iam/v1"
	"google.golang.org/api/option"

	"github.com/zopday/provisioner/internal/sim"
)

func client[T any](g *rig, open func(context.Context, ...option.ClientOption) (*T, error)) *T {
	g.t.Helper()
	c, err := open(context.Background(), g.options("/")...)
	if err != nil {
		g.t.Fatal(err)
	}
	return c
}

func TestDNS(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	s := client(g, dns.NewService)
	zone, err := s.ManagedZones.Create(testProject, &dns.ManagedZone{Name: "shop", DnsName: "shop.example.", Description: "for job_1"}).Do()
	if err != nil || len(zone.NameServers) != 4 || zone.Kind != "dns#managedZone" || zone.Visibility != "public" {
		t.Fatalf("zone: %+v, %v", zone, err)
	}
	_, err = s.ManagedZones.Create(testProject, &dns.ManagedZone{Name: "shop", DnsName: "other.example."}).Do()
	refused(t, err, 409, "alreadyExists")
	_, err = s.ManagedZones.Create(testProject, &dns.ManagedZone{Name: "dot", DnsName: "shop.example"}).Do()
	refused(t, err, 400, "invalid")
	twin, err := s.ManagedZones.Create(testProject, &dns.ManagedZone{Name: "twin", DnsName: "shop.example."}).Do()
	if err != nil || twin.NameServers[0] == zone.NameServers[0] {
		t.Fatalf("a second zone of the name has the same name servers: %+v, %v", twin, err)
	}
	a := &dns.ResourceRecordSet{Name: "www.shop.example.", Type: "A", Ttl: 300, Rrdatas: []string{"203.0.113.9"}}
	ch, err := s.Changes.Create(testProject, "shop", &dns.Change{Additions: []*dns.ResourceRecordSet{a}}).Do()
	if err != nil || ch.Status != "pending" || ch.Id != "1" {
		t.Fatalf("change: %+v, %v", ch, err)
	}
	g.world.Step(10 * time.Second)
	if ch, err = s.Changes.Get(testProject, "shop", ch.Id).Do(); err != nil || ch.Status != "done" {
		t.Fatalf("change later: %+v, %v", ch, err)
	}
	_, err = s.Changes.Create(testProject, "shop", &dns.Change{Additions: []*dns.ResourceRecordSet{a}}).Do()
	refused(t, err, 409, "alreadyExists")
	stale := *a
	stale.Rrdatas = []string{"203.0.113.10"}
	_, err = s.Changes.Create(testProject, "shop", &dns.Change{Deletions: []*dns.ResourceRecordSet{&stale}}).Do()
	refused(t, err, 412, "conditionNotMet")
	for name, bad := range map[string]*dns.ResourceRecordSet{
		"outside of the zone":    {Name: "www.else.example.", Type: "A", Ttl: 300, Rrdatas: []string{"203.0.113.9"}},
		"no address":             {Name: "x.shop.example.", Type: "A", Ttl: 300, Rrdatas: []string{"here"}},
		"a CNAME beside others":  {Name: "www.shop.example.", Type: "CNAME", Ttl: 300, Rrdatas: []string{"x.example."}},
		"an unknown record type": {Name: "x.shop.example.", Type: "WWW", Ttl: 300, Rrdatas: []string{"x"}},
	} {
		if _, err := s.ResourceRecordSets.Create(testProject, "shop", bad).Do(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	list, err := s.ResourceRecordSets.List(testProject, "shop").Do()
	if err != nil || len(list.Rrsets) != 3 || list.Rrsets[0].Type != "NS" || list.Rrsets[1].Type != "SOA" {
		t.Fatalf("records: %+v, %v", list, err)
	}
	_, err = s.Changes.Create(testProject, "shop", &dns.Change{Deletions: list.Rrsets[:1]}).Do()
	refused(t, err, 400, "invalidZoneApex")
	err = s.ManagedZones.Delete(testProject, "shop").Do()
	e := refused(t, err, 400, "containerNotEmpty")
	if !strings.Contains(e.Message, "'shop' cannot be deleted because it contains one or more 'resource records'") {
		t.Error(e.Message)
	}
	if _, err := s.ResourceRecordSets.Patch(testProject, "shop", a.Name, "A", &dns.ResourceRecordSet{Ttl: 60}).Do(); err != nil {
		t.Fatal(err)
	}
	if rec, err := s.ResourceRecordSets.Get(testProject, "shop", a.Name, "A").Do(); err != nil || rec.Ttl != 60 || rec.Rrdatas[0] != "203.0.113.9" {
		t.Fatalf("record: %+v, %v", rec, err)
	}
	if left := g.world.Residue("job_1"); len(left) != 2 {
		t.Errorf("residue: %+v", left)
	}
	if _, err := s.ResourceRecordSets.Delete(testProject, "shop", a.Name, "A").Do(); err != nil {
		t.Fatal(err)
	}
	if err := s.ManagedZones.Delete(testProject, "shop").Do(); err != nil {
		t.Fatal(err)
	}
	_, err = s.ManagedZones.Get(testProject, "shop").Do()
	refused(t, err, 404, "notFound")
}

func TestPrivateZones(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	s := client(g, dns.NewService)
	network := apiRoot + g.network("shop")
	in := &dns.ManagedZone{Name: "inside", DnsName: "shop.internal.", Visibility: "private",
		PrivateVisibilityConfig: &dns.ManagedZonePrivateVisibilityConfig{Networks: []*dns.ManagedZonePrivateVisibilityConfigNetwork{{NetworkUrl: network}}}}
	zone, err := s.ManagedZones.Create(testProject, in).Do()
	if err != nil || zone.PrivateVisibilityConfig.Networks[0].NetworkUrl != network {
		t.Fatalf("zone: %+v, %v", zone, err)
	}
	again := *in
	again.Name = "again"
	_, err = s.ManagedZones.Create(testProject, &again).Do()
	refused(t, err, 409, "alreadyExists")
	op, err := s.ManagedZones.Patch(testProject, "inside", &dns.ManagedZone{Description: "new"}).Do()
	if err != nil || op.Kind != "dns#operation" || op.Status != "done" || op.ZoneContext.NewValue.Description != "new" {
		t.Fatalf("patch: %+v, %v", op, err)
	}
	_, err = s.ManagedZones.Patch(testProject, "inside", &dns.ManagedZone{DnsName: "other."}).Do()
	refused(t, err, 400, "immutableField")
}

func TestServiceAccountsAndPolicies(t *testing.T) {
	t.Parallel()
	g := newRig(t, func(o *sim.Options) { o.ConsistencyByID, o.ConsistencyByList = 2*time.Second, 20*time.Second })
	s, p1, p3 := client(g, iam.NewService), client(g, crm1.NewService), client(g, crm3.NewService)
	create := func(id string) (*iam.ServiceAccount, error) {
		return s.Projects.ServiceAccounts.Create("projects/"+testProject, &iam.CreateServiceAccountRequest{AccountId: id, ServiceAccount: &iam.ServiceAccount{Description: "of job_1"}}).Do()
	}
	for _, bad := range []string{"short", strings.Repeat("a", 31), "Upper-case"} {
		_, err := create(bad)
		refused(t, err, 400, "badRequest")
	}
	sa, err := create("shop-vm")
	if err != nil || sa.Email != "shop-vm@example-project.iam.gserviceaccount.com" || sa.UniqueId == "" {
		t.Fatalf("account: %+v, %v", sa, err)
	}
	_, err = create("shop-vm")
	refused(t, err, 409, "alreadyExists")
	_, err = s.Projects.ServiceAccounts.Get(sa.Name).Do()
	refused(t, err, 404, "notFound")

	policy, err := p3.Projects.GetIamPolicy("projects/"+testProject, &crm3.GetIamPolicyRequest{}).Do()
	if err != nil || policy.Etag == "" {
		t.Fatalf("policy: %+v, %v", policy, err)
	}
	member := "serviceAccount:" + sa.Email
	bind := func(etag string) error {
		bindings := append(slices.Clone(policy.Bindings), &crm3.Binding{Role: "roles/logging.logWriter", Members: []string{member}})
		_, err := p3.Projects.SetIamPolicy("projects/"+testProject, &crm3.SetIamPolicyRequest{Policy: &crm3.Policy{Bindings: bindings, Etag: etag}}).Do()
		return err
	}
	e := refused(t, bind(policy.Etag), 400, "")
	if e.Message != "Service account "+sa.Email+" does not exist." {
		t.Error(e.Message)
	}
	g.world.Step(time.Minute)
	if err := bind(policy.Etag); err != nil {
		t.Fatal(err)
	}
	if e := refused(t, bind(policy.Etag), 409, ""); !strings.Contains(e.Body, "ABORTED") {
		t.Error(e.Body)
	}
	seen, err := p1.Projects.GetIamPolicy(testProject, &crm1.GetIamPolicyRequest{}).Do()
	if err != nil || !slices.ContainsFunc(seen.Bindings, func(b *crm1.Binding) bool { return slices.Contains(b.Members, member) }) {
		t.Fatalf("policy by version 1: %+v, %v", seen, err)
	}

	patched, err := s.Projects.ServiceAccounts.Patch(sa.Name, &iam.PatchServiceAccountRequest{ServiceAccount: &iam.ServiceAccount{DisplayName: "Shop"}, UpdateMask: "display_name"}).Do()
	if err != nil || patched.Email != "" || patched.UniqueId != "" || patched.DisplayName != "Shop" {
		t.Fatalf("patch answers %+v, %v", patched, err)
	}
	if len(g.world.Residue("job_1")) != 2 {
		t.Errorf("residue: %+v", g.world.Residue("job_1"))
	}
	if _, err := s.Projects.ServiceAccounts.Delete(sa.Name).Do(); err != nil {
		t.Fatal(err)
	}
	if seen, err = p1.Projects.GetIamPolicy(testProject, &crm1.GetIamPolicyRequest{}).Do(); err != nil ||
		!slices.ContainsFunc(seen.Bindings, func(b *crm1.Binding) bool { return slices.Contains(b.Members, "deleted:"+member+"?uid="+sa.UniqueId) }) {
		t.Fatalf("policy after the deletion: %+v, %v", seen, err)
	}
	if left := g.world.Residue("job_1"); len(left) != 1 || left[0].Kind != "iam-binding" {
		t.Errorf("what the account left behind: %+v", left)
	}
	back, err := s.Projects.ServiceAccounts.Undelete("projects/-/serviceAccounts/"+sa.UniqueId, &iam.UndeleteServiceAccountRequest{}).Do()
	if err != nil || back.RestoredAccount.Email != sa.Email {
		t.Fatalf("undelete: %+v, %v", back, err)
	}
}

func TestKeysOfServiceAccounts(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	s := client(g, iam.NewService)
	const account = "projects/example-project/serviceAccounts/admin@example-project.iam.gserviceaccount.com"
	key, err := s.Projects.ServiceAccounts.Keys.Create(account, &iam.CreateServiceAccountKeyRequest{}).Do()
	if err != nil {
		t.Fatal(err)
	}
	file, err := base64.StdEncoding.DecodeString(key.PrivateKeyData)
	if err != nil {
		t.Fatal(err)
	}
	c, err := compute.NewService(context.Background(), option.WithEndpoint(g.url+"/compute/v1/"), option.WithAuthCredentialsJSON(option.ServiceAccount, file))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Networks.List(testProject).Do(); err != nil {
		t.Errorf("with the key: %v", err)
	}
	if again, err := s.Projects.ServiceAccounts.Keys.Get(key.Name).Do(); err != nil || again.PrivateKeyData != "" {
		t.Errorf("the private key is shown again: %+v, %v", again, err)
	}
	if _, err := s.Projects.ServiceAccounts.Keys.Delete(key.Name).Do(); err != nil {
		t.Fatal(err)
	}
	_, err = s.Projects.ServiceAccounts.Keys.Get(key.Name).Do()
	refused(t, err, 404, "notFound")
	if left := g.world.Snapshot(); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

func TestServerPolicies(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	s := client(g, dns.NewService)
	in := &dns.Policy{Name: "resolvers", Networks: []*dns.PolicyNetwork{{NetworkUrl: apiRoot + g.network("shop")}}}
	if _, err := s.Policies.Create(testProject, in).Do(); err != nil {
		t.Fatal(err)
	}
	again := *in
	again.Name = "again"
	_, err := s.Policies.Create(testProject, &again).Do()
	refused(t, err, 400, "badRequest")
	refused(t, s.Policies.Delete(testProject, "resolvers").Do(), 400, "resourceInUse")
	if _, err := s.Policies.Patch(testProject, "resolvers", &dns.Policy{ForceSendFields: []string{"Networks"}}).Do(); err != nil {
		t.Fatal(err)
	}
	if err := s.Policies.Delete(testProject, "resolvers").Do(); err != nil {
		t.Fatal(err)
	}
}

func TestCustomRoles(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	s := client(g, iam.NewService)
	parent := "projects/" + testProject
	in := &iam.CreateRoleRequest{RoleId: "shop.vm", Role: &iam.Role{Title: "Shop", IncludedPermissions: []string{"compute.instances.get"}, Stage: "GA"}}
	role, err := s.Projects.Roles.Create(parent, in).Do()
	if err != nil || role.Name != parent+"/roles/shop.vm" {
		t.Fatalf("role: %+v, %v", role, err)
	}
	_, err = s.Projects.Roles.Create(parent, in).Do()
	refused(t, err, 409, "alreadyExists")
	if _, err := s.Projects.Roles.Delete(role.Name).Do(); err != nil {
		t.Fatal(err)
	}
	_, err = s.Projects.Roles.Create(parent, in).Do()
	refused(t, err, 400, "failedPrecondition")
	if role, err = s.Projects.Roles.Undelete(role.Name, &iam.UndeleteRoleRequest{}).Do(); err != nil || role.Deleted {
		t.Fatalf("undelete: %+v, %v", role, err)
	}
}

func TestKeyFile(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	file := func(email string) []byte {
		b, err := json.Marshal(map[string]string{"type": "service_account", "project_id": testProject, "client_email": email, "token_uri": g.url + "/token",
			"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	open := func(email string) *compute.Service {
		s, err := compute.NewService(context.Background(), option.WithEndpoint(g.url+"/compute/v1/"), option.WithAuthCredentialsJSON(option.ServiceAccount, file(email)))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	op, err := open("admin@example-project.iam.gserviceaccount.com").Networks.Insert(testProject, &compute.Network{Name: "shop", ForceSendFields: []string{"AutoCreateSubnetworks"}}).Do()
	if err != nil || op.User != "admin@example-project.iam.gserviceaccount.com" {
		t.Fatalf("with a key file: %+v, %v", op, err)
	}
	if _, err := open("nobody@example-project.iam.gserviceaccount.com").Networks.List(testProject).Do(); err == nil || !strings.Contains(err.Error(), "invalid_grant") {
		t.Errorf("an account that does not exist: %v", err)
	}
	r, err := http.NewRequest(http.MethodPost, g.url+"/token", strings.NewReader("grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion=a.b.c"))
	if err != nil {
		t.Fatal(err)
	}
	if status, body := do(t, r); status != 400 || !strings.Contains(body, "invalid_grant") {
		t.Errorf("a malformed assertion: %d %s", status, body)
	}
}
