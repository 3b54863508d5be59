package azure

import (
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/keyvault/armkeyvault"

	"github.com/zopday/provisioner/internal/sim"
)

// vaultService is Microsoft.KeyVault, as faults and books call it.
const vaultService = "keyvault"

const (
	vaultType        = "Microsoft.KeyVault/vaults"
	deletedVaultType = "Microsoft.KeyVault/deletedVaults"
)

var vaultVersions = []string{"2019-09-01", "2022-07-01", "2023-02-01", "2023-07-01", "2024-11-01"}

var vaultName = &nameRule{regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9]*(-[a-zA-Z0-9]+)*$`), "Vault name must be between 3-24 alphanumeric characters. The name must begin with a letter, end with a letter or digit, and not contain consecutive hyphens."}

// addVaults registers Microsoft.KeyVault.
func (c *Cloud) addVaults() {
	s := c.newShelf(vaultService)
	s.on["purge"] = c.purgeDue
	allow(armkeyvault.PossibleSKUNameValues())
	allow(armkeyvault.PossibleSKUFamilyValues())
	allow(armkeyvault.PossibleNetworkRuleActionValues())
	allow(armkeyvault.PossibleCreateModeValues())
	c.addKind(&kind{typ: vaultType, service: vaultService, title: "Vaults", versions: vaultVersions, tracked: true, noEtag: true, says: vaultDialect, name: vaultName,
		model: func() any { return &armkeyvault.VaultCreateOrUpdateParameters{} }, patchModel: func() any { return &armkeyvault.VaultPatchParameters{} }, mergePatch: true,
		put: c.putVault, removed: c.vaultRemoved, show: c.showVault})
	c.addKind(&kind{typ: deletedVaultType, service: vaultService, title: "DeletedVaults", versions: vaultVersions, noEtag: true, stateless: true, noCreate: true,
		show: func(_ *request, _ *Resource, body doc) {
			for _, name := range []string{"tags", "location", "was"} {
				delete(body, name)
			}
		},
		settled: func(op *Operation, res *Resource) {
			if op.Verb == "purge" {
				c.drop(res)
			}
		}})
	const base = "/subscriptions/{subscription}/providers/Microsoft.KeyVault"
	for _, rt := range []route{
		{method: "POST", pattern: base + "/checkNameAvailability", operation: "Vaults_CheckNameAvailability", read: true, serve: c.checkVaultName},
		{method: "GET", pattern: base + "/locations/{location}/deletedVaults/{name}", operation: "Vaults_GetDeleted", serve: c.getDeletedVault},
		{method: "POST", pattern: base + "/locations/{location}/deletedVaults/{name}/purge", operation: "Vaults_PurgeDeleted", serve: c.purgeVault},
	} {
		rt.service, rt.kind, rt.versions = vaultService, vaultType, vaultVersions
		c.handle(rt)
	}
}

// vaultDialect words what Microsoft.KeyVault refuses.
var vaultDialect = func() *dialect {
	d := *armDialect
	d.badName = func(r *request, rule *nameRule) *Error {
		return refuse(http.StatusBadRequest, "VaultNameNotValid", "The vault name '%s' is invalid. %s", r.id.name(), rule.text)
	}
	d.badBody = func(p bodyProblem) *Error { return refuse(http.StatusBadRequest, "BadRequest", "%s", p.text) }
	return &d
}()

// putVault makes a vault, or changes one ("Azure Key Vault soft-delete overview": deletion is always soft; a name is held until
// the vault is purged).
func (c *Cloud) putVault(r *request, now, old *Resource) (outcome, error) {
	p := now.Properties
	for _, name := range []string{"vaultUri", "hsmPoolResourceId", "privateEndpointConnections"} {
		delete(p, name)
	}
	mode := p.str("createMode")
	delete(p, "createMode")
	if old != nil {
		was := old.clone()
		inheritDoc(p, was.Properties)
		return outcome{}, c.checkVault(now, old)
	}
	if len(now.Name) < 3 || len(now.Name) > 24 {
		return outcome{}, refuse(http.StatusBadRequest, "VaultNameNotValid", "The vault name '%s' is invalid. %s", now.Name, vaultName.text)
	}
	deleted := c.deletedVault(r.subscription, now.Name)
	switch {
	case deleted != nil && mode == "recover" && strings.EqualFold(deleted.Properties.str("vaultId"), now.ID):
		was := deleted.Top.sub("was")
		now.Properties = was.clone()
		c.drop(deleted)
	case deleted != nil:
		return outcome{}, refuse(http.StatusConflict, "ConflictError",
			"A vault with the same name already exists in deleted state. You need to either recover or purge existing key vault. Follow this link https://go.microsoft.com/fwlink/?linkid=2149745 for more information on soft delete.")
	case mode == "recover":
		return outcome{}, refuse(http.StatusNotFound, "DeletedVaultNotFound", "The vault '%s' is not in a deleted state and cannot be recovered.", now.Name)
	case c.vaultNameTaken(r, now.Name):
		return outcome{}, refuse(http.StatusConflict, "VaultAlreadyExists", "The vault name '%s' is already in use. Vault names are globally unique so it is possible that the name is already taken. If you are sure that the vault name was not taken then it is possible that a vault with the same name was recently deleted but not purged after being placed in a recoverable state. If the vault is in a recoverable state then the vault will need to be purged before reusing the name. For more information about VaultAlreadyExists, soft delete and purging a vault follow this link https://go.microsoft.com/fwlink/?linkid=2147740.", now.Name)
	}
	p = now.Properties
	p.def("enableSoftDelete", true)
	p.def("softDeleteRetentionInDays", 90)
	p.def("enableRbacAuthorization", false)
	p.def("publicNetworkAccess", "Enabled")
	if err := c.checkVault(now, nil); err != nil {
		return outcome{}, err
	}
	p.def("accessPolicies", []any{})
	return outcome{status: http.StatusOK, state: "RegisteringDns", takes: c.pace(8*time.Second, 20*time.Second, now.ID)}, nil
}

func (c *Cloud) checkVault(now, old *Resource) error {
	p := now.Properties
	switch days := p.num("softDeleteRetentionInDays"); {
	case !strings.EqualFold(p.str("tenantId"), c.opt.Tenant):
		return refuse(http.StatusBadRequest, "BadRequest", "Invalid value for tenantId: '%s'. The vault's tenant must be that of its subscription.", p.str("tenantId"))
	case p.sub("sku") == nil:
		return refuse(http.StatusBadRequest, "BadRequest", "The property \"sku\" is missing.")
	case !p.flag("enableRbacAuthorization") && p["accessPolicies"] == nil:
		return refuse(http.StatusBadRequest, "BadRequest", "The parameter accessPolicies is not specified.")
	case p["enableSoftDelete"] == false:
		return refuse(http.StatusBadRequest, "BadRequest", "The property \"enableSoftDelete\" cannot be set to false. Soft delete cannot be turned off.")
	case p["enablePurgeProtection"] == false:
		return refuse(http.StatusBadRequest, "BadRequest", "The property \"enablePurgeProtection\" cannot be set to false. Enabling the purge protection for a vault is an irreversible action.")
	case days < 7 || days > 90:
		return refuse(http.StatusBadRequest, "BadRequest", "The property \"softDeleteRetentionInDays\" must be between 7 and 90.")
	case old != nil && days != old.Properties.num("softDeleteRetentionInDays"):
		return refuse(http.StatusBadRequest, "BadRequest", "The property \"softDeleteRetentionInDays\" has been set already and it can't be modified.")
	}
	return nil
}

func (c *Cloud) showVault(r *request, res *Resource, body doc) {
	body.sub("properties")["vaultUri"] = r.base + vaultPrefix + strings.ToLower(res.Name) + "/"
	if conns := c.connectionsTo(res.ID); len(conns) > 0 {
		body.sub("properties")["privateEndpointConnections"] = conns
	}
}

// vaultNameTaken: names are host names in the whole cloud; soft-deleted vaults hold theirs, in other subscriptions too.
func (c *Cloud) vaultNameTaken(r *request, name string) bool {
	for _, res := range c.shelves[vaultService].state.Resources {
		if strings.EqualFold(res.Name, name) {
			return true
		}
	}
	purged := map[string]time.Time{}
	c.extra(vaultService, "purged", &purged)
	_, was := purged[strings.ToLower(name)]
	return was && c.World.Take(r.Call, sim.FaultNameHeld, name) != nil
}

func (c *Cloud) deletedVault(subscription, name string) *Resource {
	for _, res := range c.shelves[vaultService].sorted() {
		if res.Type == deletedVaultType && strings.EqualFold(res.Name, name) && strings.EqualFold(subscriptionOf(res.ID), subscription) {
			return res
		}
	}
	return nil
}

// vaultRemoved keeps a deleted vault, with its secrets, until it is purged or its time is over.
func (c *Cloud) vaultRemoved(res *Resource) {
	now := c.World.Now()
	days := res.Properties.num("softDeleteRetentionInDays")
	until := now.Add(time.Duration(days) * 24 * time.Hour)
	id := "/subscriptions/" + subscriptionOf(res.ID) + "/providers/Microsoft.KeyVault/locations/" + res.Location + "/deletedVaults/" + res.Name
	props := doc{"vaultId": res.ID, "location": res.Location, "deletionDate": stamp(now), "scheduledPurgeDate": stamp(until), "tags": map[string]any(tagDoc(res.Tags))}
	if res.Properties.flag("enablePurgeProtection") {
		props["purgeProtectionEnabled"] = true
	}
	c.keep(&Resource{ID: id, Type: deletedVaultType, Name: res.Name, Location: res.Location, Tags: res.Tags, Created: now, Changed: now, Properties: props, Top: doc{"was": map[string]any(res.Properties.clone())}})
	c.after(until.Sub(now), vaultService, "purge", id+"|"+stamp(now))
}

// purgeDue ends the time for which a deleted vault is kept.
func (c *Cloud) purgeDue(at string) {
	id, since, _ := strings.Cut(at, "|")
	if res := c.find(id); res != nil && res.Properties.str("deletionDate") == since {
		c.dropSecrets(res.Properties.str("vaultId"))
		c.drop(res)
	}
}

func (c *Cloud) getDeletedVault(r *request) (answer, error) {
	res := c.deletedVault(r.subscription, r.vars["name"])
	if res == nil || res.Location != r.Region {
		return answer{}, refuse(http.StatusNotFound, "DeletedVaultNotFound", "The deleted vault '%s' does not exist at location '%s'.", r.vars["name"], r.vars["location"])
	}
	r.Touch(res.ID)
	return plain(c.render(r, res)), nil
}

// purgeVault ends a deleted vault for good, unless it is protected from that.
func (c *Cloud) purgeVault(r *request) (answer, error) {
	res := c.deletedVault(r.subscription, r.vars["name"])
	switch {
	case res == nil || res.Location != r.Region:
		return answer{}, refuse(http.StatusNotFound, "DeletedVaultNotFound", "The deleted vault '%s' does not exist at location '%s'.", r.vars["name"], r.vars["location"])
	case res.Properties.flag("purgeProtectionEnabled"):
		return answer{}, refuse(http.StatusMethodNotAllowed, "MethodNotAllowed", "Operation 'DeletedVaultPurge' is not allowed.")
	case res.busy():
		return answer{}, refuse(http.StatusConflict, "ConflictError", "The vault '%s' is being purged.", res.Name)
	}
	r.Make(res.ID)
	c.dropSecrets(res.Properties.str("vaultId"))
	purged := map[string]time.Time{}
	c.extra(vaultService, "purged", &purged)
	purged[strings.ToLower(res.Name)] = c.World.Now()
	c.keepExtra(vaultService, "purged", purged)
	h := c.begin(r, res, "purge", outcome{style: locationOnly, takes: c.pace(10*time.Second, 30*time.Second, "purge "+res.ID), retryAfter: 10})
	return answer{status: http.StatusAccepted, header: h}, nil
}

func (c *Cloud) checkVaultName(r *request) (answer, error) {
	body, err := r.input(vaultDialect, nil)
	if err != nil {
		return answer{}, err
	}
	name := body.str("name")
	out := map[string]any{"nameAvailable": true}
	switch {
	case !vaultName.pattern.MatchString(name) || len(name) < 3 || len(name) > 24:
		out = map[string]any{"nameAvailable": false, "reason": "AccountNameInvalid", "message": vaultName.text}
	case c.vaultNameTaken(r, name):
		out = map[string]any{"nameAvailable": false, "reason": "AlreadyExists", "message": "The vault name '" + name + "' is already in use. Vault names are globally unique so it is possible that the name is already taken."}
	}
	return plain(out), nil
}
