package azure

import (
	"testing"

	"github.com/zopday/provisioner/internal/pipeline"
)

// A token for vaults goes to vaults alone: to hosts below the suffix, or below the URL
// that is configured.
func TestAddressesOfVaults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		at, address string
		is          bool
	}{
		{publicVaults, "https://shop-kv.vault.azure.net/secrets/x", true},
		{publicVaults, "http://shop-kv.vault.azure.net/secrets/x", false},
		{publicVaults, "https://vault.azure.net/secrets/x", false},
		{publicVaults, "https://evilvault.azure.net/secrets/x", false},
		{publicVaults, "https://shop-kv.vault.azure.net.example.com/secrets/x", false},
		{publicVaults, "https://example.com/shop-kv.vault.azure.net/secrets/x", false},
		{"https://127.0.0.1:5093", "https://127.0.0.1:5093/keyvault/shop-kv/secrets/x", true},
		{"https://127.0.0.1:5093", "https://127.0.0.1:50931/keyvault/shop-kv/secrets/x", false},
	} {
		if got := (&Provider{vaultsAt: c.at}).ofVaults(c.address); got != c.is {
			t.Errorf("at %s, %s is a vault's: %v", c.at, c.address, got)
		}
	}
	if err := (&Provider{vaultsAt: publicVaults}).askVault(t.Context(), "GET", "https://example.com/secrets/x", nil, nil); fatal(err) == nil {
		t.Errorf("a token was sent elsewhere: %v", err)
	}
}

// What is asked of a vault, and what only looks although it is a POST, has its own name.
func TestActionsOfDatastores(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		method, path, service, op string
		mutating                  bool
	}{
		{"PUT", "/secrets/admin-password", vaultProvider, "vaults/secrets/write", true},
		{"GET", "/keyvault/shop-kv/secrets/admin-password/versions", vaultProvider, "vaults/secrets/read", false},
		{"POST", "/subscriptions/s/providers/Microsoft.KeyVault/checkNameAvailability", vaultProvider, "checkNameAvailability/action", false},
		{"POST", "/subscriptions/s/providers/Microsoft.DBforMySQL/locations/eastus/checkNameAvailability", "Microsoft.DBforMySQL", "locations/checkNameAvailability/action", false},
		{"POST", "/subscriptions/s/resourceGroups/g/providers/Microsoft.Cache/redisEnterprise/c/databases/default/listKeys", "Microsoft.Cache", "redisEnterprise/databases/listKeys/action", false},
		{"POST", "/subscriptions/s/resourceGroups/g/providers/Microsoft.DBforPostgreSQL/flexibleServers/x/restart", "Microsoft.DBforPostgreSQL", "flexibleServers/restart/action", true},
		{"POST", "/subscriptions/s/providers/Microsoft.KeyVault/locations/eastus/deletedVaults/x/purge", vaultProvider, "locations/deletedVaults/purge/action", true},
	} {
		service, op := action(c.method, c.path)
		if service != c.service || op != c.op || reads(c.method, service, op) == c.mutating {
			t.Errorf("%s %s is %s/%s, read only %v", c.method, c.path, service, op, reads(c.method, service, op))
		}
	}
}

// The codes of these services mean what the steps take them for.
func TestErrorsOfDatastores(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		code, message string
		want          pipeline.Class
	}{
		{"ServerIsBusy", "Cannot complete operation while server 'x' is busy processing another operation.", pipeline.Busy},
		{"ProvisioningServerBusy", "Server x is busy with other operations. Please try later", pipeline.Busy},
		{"ServerNameAlreadyExists", "Specified server name is already used.", pipeline.Exists},
		{"NameNotAvailable", "The name is not available.", pipeline.Exists},
		{"VaultAlreadyExists", "The vault name 'x' is already in use.", pipeline.Exists},
		{"ConflictError", "A vault with the same name already exists in deleted state.", pipeline.Exists},
		{"ConflictError", "The vault 'x' is being purged.", pipeline.Busy},
		{"Forbidden", "Caller is not authorized to perform action on resource.", pipeline.Denied},
		{"SecretNotFound", "A secret with (name/id) x was not found in this key vault.", pipeline.NotFound},
		{"DeletedVaultNotFound", "The deleted vault 'x' does not exist.", pipeline.NotFound},
		{"LocationIsOfferRestricted", "Subscriptions are restricted from provisioning in location 'x'.", pipeline.Capacity},
		{"HighAvailabilityNotSupportedForBurstable", "", pipeline.Invalid},
		{"PrivateDnsZoneNameNotValid", "", pipeline.Unknown},
	} {
		if got := (fault{Code: c.code, Message: c.message}).class(); got != c.want {
			t.Errorf("%s (%s) is %s, want %s", c.code, c.message, got, c.want)
		}
	}
}
