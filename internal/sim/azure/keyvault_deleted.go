package azure

import (
	"net/http"
	"strings"
	"time"
)

// deletedBundle is a secret that can be recovered for a while.
func (call *vaultCall) deletedBundle(s *vaultSecret) map[string]any {
	out := call.bundle(s.Name, s.Versions[len(s.Versions)-1], false)
	out["recoveryId"] = call.base + vaultPrefix + strings.ToLower(call.vault.Name) + "/deletedsecrets/" + s.Name
	out["deletedDate"] = s.Deleted.Unix()
	out["scheduledPurgeDate"] = s.Deleted.Add(time.Duration(call.vault.Properties.num("softDeleteRetentionInDays")) * 24 * time.Hour).Unix()
	return out
}

func (c *Cloud) deleteVaultSecret(call *vaultCall, name string) (answer, error) {
	all, s, err := c.liveSecret(call, name)
	if err != nil {
		return answer{}, err
	}
	s.Deleted = c.World.Now()
	c.keepSecrets(call.vault.ID, all)
	return plain(call.deletedBundle(s)), nil
}

func (c *Cloud) listVaultSecrets(call *vaultCall, _ string) (answer, error) {
	secrets := c.vaultSecrets(call.vault.ID)
	var all []any
	for _, name := range sortedKeys(secrets) {
		switch s := secrets[name]; {
		case s.Deleted.IsZero() && call.segs[0] == "secrets":
			b := call.bundle(s.Name, s.Versions[len(s.Versions)-1], false)
			b["id"] = call.secretID(s.Name, "")
			all = append(all, b)
		case !s.Deleted.IsZero() && call.segs[0] == "deletedsecrets":
			all = append(all, call.deletedBundle(s))
		}
	}
	return call.page(all, "$skiptoken")
}

func (c *Cloud) deletedSecret(call *vaultCall, name string) (map[string]*vaultSecret, *vaultSecret, error) {
	all := c.vaultSecrets(call.vault.ID)
	s := all[strings.ToLower(name)]
	if s == nil || s.Deleted.IsZero() {
		return all, nil, refuse(http.StatusNotFound, "SecretNotFound", "Deleted Secret not found: %s", name)
	}
	return all, s, nil
}

func (c *Cloud) getDeletedSecret(call *vaultCall, name string) (answer, error) {
	_, s, err := c.deletedSecret(call, name)
	if err != nil {
		return answer{}, err
	}
	return plain(call.deletedBundle(s)), nil
}

func (c *Cloud) purgeDeletedSecret(call *vaultCall, name string) (answer, error) {
	all, _, err := c.deletedSecret(call, name)
	if err != nil {
		return answer{}, err
	}
	if call.vault.Properties.flag("enablePurgeProtection") {
		return answer{}, refuse(http.StatusForbidden, "Forbidden", "Operation \"purge\" is not allowed because purge protection is enabled for this vault.")
	}
	delete(all, strings.ToLower(name))
	c.keepSecrets(call.vault.ID, all)
	return answer{status: http.StatusNoContent, header: http.Header{}}, nil
}

func (c *Cloud) recoverSecret(call *vaultCall, name string) (answer, error) {
	all, s, err := c.deletedSecret(call, name)
	if err != nil {
		return answer{}, err
	}
	s.Deleted = time.Time{}
	c.keepSecrets(call.vault.ID, all)
	return plain(call.bundle(s.Name, s.Versions[len(s.Versions)-1], false)), nil
}
