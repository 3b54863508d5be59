package azure

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/keyvault/armkeyvault"
	"github.com/Azure/azure-sdk-for-go/sdk/security/keyvault/azsecrets"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// adminSecret is the name of the secret with the administrator's password.
const adminSecret = "admin-password"

// vaultAPI is the version by which vaults themselves are asked (azsecrets).
const vaultAPI = "7.6"

// recoveryDays is how long a deleted vault could be recovered: the least there is.
// Nothing stands in the way of purging it, so that its name is free again.
const recoveryDays = 7

// vault is the Key Vault with the administrator's password. Who may do what in it
// goes by roles ("Provide access to Key Vault keys, certificates, and secrets with
// Azure role-based access control").
func (p *Provider) vault(r *pipeline.Run, tenant string) object[armkeyvault.Vault] {
	id := p.vaultID(r)
	return object[armkeyvault.Vault]{
		p: p, r: r, kind: kindVault, key: "vault", id: id,
		body: func() any {
			return armkeyvault.VaultCreateOrUpdateParameters{
				Location: &p.region, Tags: tagsFor(r.Job, "vault"),
				Properties: &armkeyvault.VaultProperties{
					TenantID: &tenant, SKU: &armkeyvault.SKU{Family: new(armkeyvault.SKUFamilyA), Name: new(armkeyvault.SKUNameStandard)},
					AccessPolicies: []*armkeyvault.AccessPolicyEntry{}, EnableRbacAuthorization: new(true), EnableSoftDelete: new(true), SoftDeleteRetentionInDays: new(int32(recoveryDays)),
				},
			}
		},
		see: func(_ context.Context, x resource[armkeyvault.Vault]) ([]pipeline.Aspect, error) {
			return watched(r, pipeline.Aspect{Name: "access by roles", Wanted: "yes", Seen: yesNo(value(value(x.is.Properties).EnableRbacAuthorization))}), nil
		},
	}
}

// mostNameTries is how many further names are tried when one is held.
const mostNameTries = 3

// ensureNamed makes an object whose name is global. One that is held although
// nothing visible has it is given up for the next (failure kinds B4, B7).
func (p *Provider) ensureNamed(ctx context.Context, r *pipeline.Run, x func() pipeline.Resource) (string, error) {
	info := &r.Job.Config.InfraConfig.Datastore
	for {
		it := x()
		id, err := r.Ensure(ctx, it)
		if !pipeline.Is(err, pipeline.Exists) {
			return id, err
		}
		if info.NameTries >= mostNameTries {
			return "", pipeline.Fatal("name-held", fmt.Sprintf("the name %s is held although nothing of that name can be seen, and so were the %d before it: %v", it.Name, mostNameTries, err),
				"It may be in another subscription or tenant, or be held for some days after a deletion. Give the job another name, or retry later.").From(err)
		}
		info.NameTries++
		if err := r.Event(ctx, "note", "the name %s is held although nothing visible has it (%v); the next one is tried", it.Name, err); err != nil {
			return "", err
		}
		if err := r.Save(ctx); err != nil {
			return "", err
		}
	}
}

// ensureVault makes the vault, lets the provisioner in, and puts a password there
// before any server has it.
func (p *Provider) ensureVault(ctx context.Context, r *pipeline.Run) error {
	me := principal{}
	if r.Mode != pipeline.Plan {
		var err error
		if me, err = p.whoami(ctx); err != nil {
			return err
		}
	}
	id, err := p.ensureNamed(ctx, r, func() pipeline.Resource { return p.vault(r, me.tenant).resource() })
	if err != nil {
		return err
	}
	if r.Mode == pipeline.Plan {
		id = p.vaultID(r)
	}
	info := &r.Job.Config.InfraConfig.Datastore
	learn(r, &info.VaultID, id)
	if _, err := r.Ensure(ctx, p.role(r, p.vaultGrant(id, me)).resource()); err != nil {
		return err
	}
	secret, err := r.Ensure(ctx, p.secret(r, id))
	if pipeline.Is(err, pipeline.Denied) {
		return r.AwaitKnown("the provisioner's role at vault "+lastName(id), err)
	}
	if err != nil {
		return err
	}
	learn(r, &info.SecretID, secret)
	return nil
}

func (p *Provider) vaultGrant(vault string, me principal) roleGrant {
	return roleGrant{key: "vault-secrets", scope: vault, role: roleSecretsOfficer, principal: me.id, kind: me.kind}
}

// secret is the administrator's password: its place, never what it is. One that is
// there is never written again.
func (p *Provider) secret(r *pipeline.Run, vault string) pipeline.Resource {
	x := pipeline.Resource{Kind: kindSecret, Key: adminSecret, Name: adminSecret, Args: vault, Tokened: true}
	x.Get = func(ctx context.Context, id string) (pipeline.Seen, error) {
		var page struct {
			Value []azsecrets.SecretProperties `json:"value"`
		}
		if err := p.askVault(ctx, http.MethodGet, id+"/versions", nil, &page); err != nil {
			return pipeline.Seen{}, err
		}
		if len(page.Value) == 0 {
			return pipeline.Seen{}, absent(vaultProvider, "vaults/secrets/read", "secret "+adminSecret)
		}
		owner := value(page.Value[0].Tags[job.MarkOwner])
		if owner == "" {
			owner = pipeline.Unmarked
		}
		return pipeline.Seen{ID: id, Owner: owner}, nil
	}
	x.Find = func(ctx context.Context) ([]pipeline.Seen, error) {
		id, err := p.secretURL(ctx, vault)
		if err != nil {
			return nil, pipeline.Unseen(err, "vault "+lastName(vault))
		}
		s, err := x.Get(ctx, id)
		if err != nil {
			return nil, err
		}
		return []pipeline.Seen{s}, nil
	}
	x.Create = func(ctx context.Context, _ string) (pipeline.Seen, error) {
		found, err := x.Find(ctx)
		if err == nil && len(found) > 0 {
			return found[0], nil // an earlier create did take place, or a person rotated it
		}
		if pipeline.Unless(err, pipeline.NotFound) != nil {
			return pipeline.Seen{}, err
		}
		id, err := p.secretURL(ctx, vault)
		if err != nil {
			return pipeline.Seen{}, err
		}
		password := job.NewPassword()
		body := azsecrets.SetSecretParameters{Value: &password, ContentType: new("password of the administrator"), Tags: tagsFor(r.Job, adminSecret)}
		return pipeline.Seen{ID: id, Owner: r.Job.ID}, p.askVault(ctx, http.MethodPut, id, body, nil)
	}
	return x
}

// secretURL is where the secret is: below the address that the cloud gives the
// vault, if that is one of a Key Vault's. A token goes nowhere else.
func (p *Provider) secretURL(ctx context.Context, vault string) (string, error) {
	x, err := read[armkeyvault.Vault](ctx, p, vault)
	if err != nil {
		return "", err
	}
	at := strings.TrimSuffix(value(value(x.is.Properties).VaultURI), "/")
	if at == "" {
		return "", pipeline.Wait(settling, "vault %s to have an address", x.Name)
	}
	return at + "/secrets/" + adminSecret, nil
}

// ofVaults reports whether an address is that of a vault: a host below the suffix,
// or a path below the URL that is configured.
func (p *Provider) ofVaults(address string) bool {
	if strings.Contains(p.vaultsAt, "://") {
		return strings.HasPrefix(address, p.vaultsAt+"/")
	}
	u, err := url.Parse(address)
	return err == nil && u.Scheme == "https" && strings.HasSuffix(u.Hostname(), "."+p.vaultsAt)
}

// askVault asks a vault itself.
func (p *Provider) askVault(ctx context.Context, method, address string, body, answer any) error {
	if !p.ofVaults(address) {
		return pipeline.Fatal("not-a-vault", fmt.Sprintf("%s is not an address of a Key Vault of this cloud (%s), so no token was sent there", address, p.vaultsAt),
			"Set ZOPDAY_AZURE_KEY_VAULT_ENDPOINT to what the vaults of this cloud end in, then retry.")
	}
	req, err := runtime.NewRequest(ctx, method, address+"?api-version="+vaultAPI)
	if err != nil {
		return err
	}
	req.Raw().Header.Set("Accept", "application/json")
	if body != nil {
		if err := runtime.MarshalAsJSON(req, body); err != nil {
			return fmt.Errorf("%s of a secret: %w", method, err)
		}
	}
	resp, err := p.vaults.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := runtime.Payload(resp)
	if err != nil || answer == nil {
		return err
	}
	return reply{status: resp.StatusCode, header: resp.Header, body: text}.into(answer)
}

// adminPassword reads the administrator's password. It is asked for whenever it is
// needed, and kept nowhere.
func (p *Provider) adminPassword(ctx context.Context, secret string) (string, error) {
	if secret == "" {
		return "", pipeline.Fatal("no-secret", "it is not recorded where the administrator's password is", "Retry the job: its step that makes the vault records it.")
	}
	var s azsecrets.Secret
	if err := p.askVault(ctx, http.MethodGet, secret, nil, &s); err != nil {
		return "", err
	}
	if value(s.Value) == "" {
		return "", absent(vaultProvider, "vaults/secrets/read", "the value of "+secret)
	}
	return *s.Value, nil
}

// removeVault takes the vault away with the secret in it, and purges it, so that
// the password is gone for good and the name free.
func (p *Provider) removeVault(ctx context.Context, r *pipeline.Run) error {
	id := p.vaultID(r)
	// Both hang on the vault: the role would outlive it, the secret goes with it.
	if err := r.Remove(ctx, p.role(r, p.vaultGrant(id, principal{})).resource()); err != nil {
		return err
	}
	if err := r.Remove(ctx, p.vault(r, "").resource()); err != nil {
		return err
	}
	if err := r.Forget(ctx, kindSecret, adminSecret, "went with its vault"); err != nil {
		return err
	}
	rec, known := r.Object(kindVault, "vault")
	if !known || rec.State != job.ObjectRemoved || rec.ID == "" || r.Mode == pipeline.Plan {
		return nil // there never was one
	}
	return p.purgeVault(ctx, r, rec)
}

// purgePatience is how long a purge may take before it is asked for again.
const purgePatience = 5 * time.Minute

// purgeVault removes what is kept of a deleted vault ("Azure Key Vault recovery
// management with soft delete"). Who may not purge waits for the days to pass.
func (p *Provider) purgeVault(ctx context.Context, r *pipeline.Run, vault job.Object) error {
	const asked = "purge of the vault"
	name := lastName(vault.ID)
	id := managementPrefix + p.subscription + "/providers/" + vaultProvider + "/locations/" + regionName(p.region) + "/deletedVaults/" + name
	get := func(ctx context.Context, id string) (pipeline.Seen, error) {
		var x armkeyvault.DeletedVault
		if err := p.get(ctx, id, &x); err != nil {
			return pipeline.Seen{}, err
		}
		owner := value(value(x.Properties).Tags[job.MarkOwner])
		if owner == "" {
			owner = pipeline.Unmarked
		}
		s := pipeline.Seen{ID: id, Owner: owner, Reason: "soft-deleted"}
		if r.Recall(asked) != nil && r.WaitedFor(asked) < purgePatience {
			s.Status, s.Reason = pipeline.Pending, "being purged"
		}
		return s, nil
	}
	if _, known := r.Object(kindDeletedVault, "vault"); !known {
		_, err := get(ctx, id)
		fresh := vault.RemovedAt != nil && r.Pace.Cloud(r.Now().Sub(*vault.RemovedAt)) < r.Consistency
		if pipeline.Is(err, pipeline.NotFound) && fresh {
			return pipeline.Wait(settling, "the deleted vault %s to show, so that it can be purged", name)
		}
	}
	err := r.Remove(ctx, pipeline.Resource{
		Kind: kindDeletedVault, Key: "vault", Name: name, Slow: true, Get: get,
		Find: func(ctx context.Context) ([]pipeline.Seen, error) {
			s, err := get(ctx, id)
			if err != nil {
				return nil, err
			}
			return []pipeline.Seen{s}, nil
		},
		Delete: func(ctx context.Context, id string) error {
			_, err := p.request(ctx, http.MethodPost, id+"/purge", nil, nil)
			if err = pipeline.Unless(err, pipeline.Busy); err == nil { // busy: it is being purged
				r.Remember(asked, true)
				r.WaitedFor(asked)
			}
			return err
		},
	})
	if pipeline.Is(err, pipeline.Denied) {
		if ferr := r.Forget(ctx, kindDeletedVault, "vault", fmt.Sprintf("is purged by the cloud itself after %d days", recoveryDays)); ferr != nil {
			return ferr
		}
		return r.Event(ctx, "note", "vault %s is deleted and may not be purged by these credentials: its name is held for %d days, and then it is gone (%v)", name, recoveryDays, err)
	}
	return err
}
