package azure

import (
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/keyvault/armkeyvault"
	"github.com/Azure/azure-sdk-for-go/sdk/security/keyvault/azsecrets"

	"github.com/zopday/provisioner/internal/sim"
)

func (g *rig) vaults() *armkeyvault.VaultsClient {
	cred, opt := g.arm()
	return must(armkeyvault.NewVaultsClient(DefaultSubscription, cred, opt))(g.t)
}

func vaultBody() armkeyvault.VaultCreateOrUpdateParameters {
	return armkeyvault.VaultCreateOrUpdateParameters{Location: new("westus2"), Tags: map[string]*string{"owner": new("job")}, Properties: &armkeyvault.VaultProperties{TenantID: new(DefaultTenant),
		SKU: &armkeyvault.SKU{Family: new(armkeyvault.SKUFamilyA), Name: new(armkeyvault.SKUNameStandard)}, EnableRbacAuthorization: new(true), SoftDeleteRetentionInDays: new(int32(7))}}
}

func (g *rig) vault(name string) armkeyvault.Vault {
	g.t.Helper()
	p, err := g.vaults().BeginCreateOrUpdate(g.ctx, "rg", name, vaultBody(), nil)
	return done(g, p, err).Vault
}

// secretsOfVault is the data plane's client.
func (g *rig) secretsOfVault(uri string) *azsecrets.Client {
	cred, opt := g.arm()
	return must(azsecrets.NewClient(uri, cred, &azsecrets.ClientOptions{ClientOptions: policy.ClientOptions{Transport: opt.Transport, Retry: opt.Retry, Cloud: opt.Cloud}, DisableChallengeResourceVerification: true}))(g.t)
}

func (g *rig) officer(vault string) {
	g.t.Helper()
	_, err := g.world.Invoke("azure", "", "PUT", DefaultSubscription, "", map[string]any{"id": vault + "/providers/Microsoft.Authorization/roleAssignments/9e000000-0000-4000-8000-000000000001", "body": map[string]any{
		"properties": map[string]any{"principalId": DefaultClients()[0].ObjectID, "principalType": "ServicePrincipal",
			"roleDefinitionId": "/subscriptions/" + DefaultSubscription + "/providers/Microsoft.Authorization/roleDefinitions/b86a8fe4-44ce-4948-aee5-eccb2c155cd7"}}})
	if err != nil {
		g.t.Fatal(err)
	}
}

func TestVaultSecrets(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.group("rg")
	v := g.vault("vault-1")
	secrets := g.secretsOfVault(*v.Properties.VaultURI)
	set := azsecrets.SetSecretParameters{Value: new("s3cret-value"), Tags: map[string]*string{"for": new("db")}}
	_, err := secrets.SetSecret(g.ctx, "admin", set, nil)
	if re := refused(t, err, 403, "Forbidden"); !strings.Contains(re.Error(), "ForbiddenByRbac") {
		t.Errorf("the refusal does not say that it is for a role: %v", re)
	}
	g.officer(*v.ID)
	made := must(secrets.SetSecret(g.ctx, "admin", set, nil))(t)
	got := must(secrets.GetSecret(g.ctx, "admin", "", nil))(t)
	if *got.Value != "s3cret-value" || *got.ID != *made.ID || *got.Tags["for"] != "db" || !strings.HasPrefix(string(*got.ID), *v.Properties.VaultURI+"secrets/admin/") {
		t.Errorf("got %+v", got.Secret)
	}
	must(secrets.SetSecret(g.ctx, "admin", azsecrets.SetSecretParameters{Value: new("second")}, nil))(t)
	version := string(*made.ID)[strings.LastIndex(string(*made.ID), "/")+1:]
	if old := must(secrets.GetSecret(g.ctx, "admin", version, nil))(t); *old.Value != "s3cret-value" {
		t.Errorf("the first version is %s", *old.Value)
	}
	if page := must(secrets.NewListSecretPropertiesVersionsPager("admin", nil).NextPage(g.ctx))(t); len(page.Value) != 2 {
		t.Errorf("%d versions", len(page.Value))
	}
	must(secrets.DeleteSecret(g.ctx, "admin", nil))(t)
	_, err = secrets.GetSecret(g.ctx, "admin", "", nil)
	refused(t, err, 404, "SecretNotFound")
	_, err = secrets.SetSecret(g.ctx, "admin", set, nil)
	refused(t, err, 409, "Conflict")
	must(secrets.PurgeDeletedSecret(g.ctx, "admin", nil))(t)
	must(secrets.SetSecret(g.ctx, "admin", set, nil))(t)
	for _, e := range g.world.Books(sim.BookFilter{}) {
		if strings.Contains(strings.Join(e.Resources, " ")+e.Operation, "s3cret") {
			t.Errorf("a secret is in the books: %+v", e)
		}
	}
	if n, err := g.world.AddFault(sim.Fault{Kind: sim.FaultError, Match: "s3cret-value"}); err != nil {
		t.Fatal(err)
	} else if must(secrets.SetSecret(g.ctx, "admin", set, nil))(t); n.Hits != 0 {
		t.Error("faults look into secrets")
	}
}

func TestVaultLife(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.group("rg")
	vaults := g.vaults()
	v := g.vault("vault-1")
	g.officer(*v.ID)
	must(g.secretsOfVault(*v.Properties.VaultURI).SetSecret(g.ctx, "a", azsecrets.SetSecretParameters{Value: new("x")}, nil))(t)
	// A token for Resource Manager opens no vault, and the other way round.
	if got := g.raw().send("GET", *v.Properties.VaultURI+"secrets/a?api-version=7.6", nil, nil); got.Status != 401 {
		t.Errorf("a token for Resource Manager: %d", got.Status)
	}
	must(vaults.Delete(g.ctx, "rg", "vault-1", nil))(t)
	_, err := vaults.Get(g.ctx, "rg", "vault-1", nil)
	refused(t, err, 404, "ResourceNotFound")
	deleted := must(vaults.GetDeleted(g.ctx, "vault-1", "westus2", nil))(t)
	if *deleted.Properties.VaultID != *v.ID || *deleted.Properties.Tags["owner"] != "job" {
		t.Errorf("deleted %+v", deleted.Properties)
	}
	if page := must(vaults.NewListDeletedPager(nil).NextPage(g.ctx))(t); len(page.Value) != 1 {
		t.Errorf("%d deleted vaults", len(page.Value))
	}
	_, err = vaults.BeginCreateOrUpdate(g.ctx, "rg", "vault-1", vaultBody(), nil)
	refused(t, err, 409, "ConflictError")
	if free := must(vaults.CheckNameAvailability(g.ctx, armkeyvault.VaultCheckNameAvailabilityParameters{Name: new("vault-1"), Type: new("Microsoft.KeyVault/vaults")}, nil))(t); *free.NameAvailable {
		t.Error("the name of a deleted vault is free")
	}
	// Recovered, it has its secrets.
	again := vaultBody()
	again.Properties.CreateMode = new(armkeyvault.CreateModeRecover)
	p, err := vaults.BeginCreateOrUpdate(g.ctx, "rg", "vault-1", again, nil)
	done(g, p, err)
	g.officer(*v.ID)
	if got := must(g.secretsOfVault(*v.Properties.VaultURI).GetSecret(g.ctx, "a", "", nil))(t); *got.Value != "x" {
		t.Errorf("recovered %s", *got.Value)
	}
	must(vaults.Delete(g.ctx, "rg", "vault-1", nil))(t)
	d, err := vaults.BeginPurgeDeleted(g.ctx, "vault-1", "westus2", nil)
	done(g, d, err)
	_, err = vaults.GetDeleted(g.ctx, "vault-1", "westus2", nil)
	refused(t, err, 404, "DeletedVaultNotFound")
	g.fault(sim.Fault{Kind: sim.FaultNameHeld, Service: vaultService})
	_, err = vaults.BeginCreateOrUpdate(g.ctx, "rg", "vault-1", vaultBody(), nil)
	refused(t, err, 409, "VaultAlreadyExists")
	g.vault("vault-1")
	// One that nobody purges goes by itself.
	must(vaults.Delete(g.ctx, "rg", "vault-1", nil))(t)
	g.world.Step(8 * 24 * time.Hour)
	_, err = vaults.GetDeleted(g.ctx, "vault-1", "westus2", nil)
	refused(t, err, 404, "DeletedVaultNotFound")
}

func TestVaultRefusals(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.group("rg")
	for name, change := range map[string]func(*armkeyvault.VaultProperties){
		"tenant":    func(p *armkeyvault.VaultProperties) { p.TenantID = new("11111111-1111-4111-8111-111111111111") },
		"softoff":   func(p *armkeyvault.VaultProperties) { p.EnableSoftDelete = new(false) },
		"purgeoff":  func(p *armkeyvault.VaultProperties) { p.EnablePurgeProtection = new(false) },
		"retention": func(p *armkeyvault.VaultProperties) { p.SoftDeleteRetentionInDays = new(int32(3)) },
		"policies":  func(p *armkeyvault.VaultProperties) { p.EnableRbacAuthorization = new(false) },
	} {
		body := vaultBody()
		change(body.Properties)
		_, err := g.vaults().BeginCreateOrUpdate(g.ctx, "rg", name, body, nil)
		refused(t, err, 400, "BadRequest")
	}
	for _, name := range []string{"1vault", "a-", "two--hyphens", "abcdefghijklmnopqrstuvwxy"} {
		_, err := g.vaults().BeginCreateOrUpdate(g.ctx, "rg", name, vaultBody(), nil)
		refused(t, err, 400, "VaultNameNotValid")
	}
	// A protected vault cannot be purged.
	body := vaultBody()
	body.Properties.EnablePurgeProtection = new(true)
	p, err := g.vaults().BeginCreateOrUpdate(g.ctx, "rg", "guarded", body, nil)
	done(g, p, err)
	must(g.vaults().Delete(g.ctx, "rg", "guarded", nil))(t)
	_, err = g.vaults().BeginPurgeDeleted(g.ctx, "guarded", "westus2", nil)
	refused(t, err, 405, "MethodNotAllowed")
}
