package azure

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"
)

// vaultPrefix is the path under which vaults answer here: a host name of their own would need a resolver.
const vaultPrefix = "/keyvault/"

// vaultAudience is whom tokens for vaults are for.
const vaultAudience = "https://vault.azure.net"

// vaultAPIs are the versions of the data plane.
var vaultAPIs = []string{"7.0", "7.1", "7.2", "7.3", "7.4", "7.5", "7.6", "2025-07-01"}

var secretName = regexp.MustCompile(`^[0-9a-zA-Z-]{1,127}$`)

// A vaultSecret is a secret with all its versions, the newest last.
type vaultSecret struct {
	Name     string          `json:"name"`
	Versions []secretVersion `json:"versions"`
	Deleted  time.Time       `json:"deleted,omitzero"`
}

type secretVersion struct {
	ID         string    `json:"id"`
	Value      string    `json:"value"`
	Content    string    `json:"contentType,omitempty"`
	Tags       doc       `json:"tags,omitempty"`
	Attributes doc       `json:"attributes"`
	Created    time.Time `json:"created"`
	Updated    time.Time `json:"updated"`
}

func (c *Cloud) vaultSecrets(vault string) map[string]*vaultSecret {
	out := map[string]*vaultSecret{}
	c.extra(vaultService, "secrets "+key(vault), &out)
	return out
}

func (c *Cloud) keepSecrets(vault string, all map[string]*vaultSecret) {
	c.keepExtra(vaultService, "secrets "+key(vault), all)
}

func (c *Cloud) dropSecrets(vault string) {
	delete(c.shelves[vaultService].state.Extra, "secrets "+key(vault))
}

// A vaultCall is a request to a vault's data plane.
type vaultCall struct {
	*request
	vault *Resource
	segs  []string // after the vault's name
}

// vaultData says what a request asks of a vault; false if it is to none.
func (c *Cloud) vaultData(r *request) (func() (answer, error), bool) {
	rest, ok := strings.CutPrefix(r.path, strings.TrimSuffix(vaultPrefix, "/")+"/")
	if !ok {
		return nil, false
	}
	segs := strings.Split(rest, "/")
	r.Service, r.Operation = vaultService, secretOperation(r.method, segs[1:])
	return func() (answer, error) {
		call := &vaultCall{request: r, segs: segs[1:]}
		for _, res := range c.shelves[vaultService].sorted() {
			if res.Type == vaultType && strings.EqualFold(res.Name, segs[0]) {
				call.vault = res
			}
		}
		if call.vault == nil {
			return answer{}, refuse(http.StatusNotFound, "ResourceNotFound", "There is no vault '%s': its name does not resolve.", segs[0])
		}
		r.Account, r.Region = subscriptionOf(call.vault.ID), call.vault.Location
		r.Touch(call.vault.ID)
		if !slices.Contains(vaultAPIs, r.version) {
			return answer{}, refuse(http.StatusBadRequest, "BadParameter", "The specified version (%s) is not recognized. Consider using the latest supported version (7.6).", r.version)
		}
		return c.serveSecret(call)
	}, true
}

// secretOperation is what the books call a request.
func secretOperation(method string, segs []string) string {
	verb := map[string]string{"PUT": "SetSecret", "DELETE": "DeleteSecret", "PATCH": "UpdateSecret", "POST": "RecoverDeletedSecret", "GET": "GetSecret"}[method]
	deleted := len(segs) > 0 && segs[0] == "deletedsecrets"
	switch {
	case method == http.MethodGet && len(segs) == 1:
		verb = "GetSecrets"
	case method == http.MethodGet && len(segs) == 3 && segs[2] == "versions":
		verb = "GetSecretVersions"
	case deleted && method == http.MethodDelete:
		return "PurgeDeletedSecret"
	}
	if deleted && method == http.MethodGet {
		return strings.Replace(verb, "Get", "GetDeleted", 1)
	}
	return verb
}

// challenge asks for a token for vaults ("Authentication, requests and responses").
func (c *Cloud) challenge(r *request) *Error {
	return refuse(http.StatusUnauthorized, "Unauthorized", "AKV10000: Request is missing a Bearer or PoP token.").header("WWW-Authenticate",
		fmt.Sprintf(`Bearer authorization="%s/%s", resource="%s"`, r.base, c.opt.Tenant, vaultAudience))
}

// authenticateVault says who calls a vault.
func (c *Cloud) authenticateVault(r *request) *Error {
	token, ok := strings.CutPrefix(r.http.Get("Authorization"), "Bearer ")
	claims, valid := c.claimsOf(token)
	who, known := c.client(claims.AppID)
	if !ok || !valid || !known || c.expired(claims) || claims.Audience != vaultAudience {
		return c.challenge(r)
	}
	r.who, r.Caller = who, claims.AppID
	return nil
}

// forbidden refuses what the caller may not do in a vault.
func (c *Cloud) forbidden(call *vaultCall, action string) error {
	deny := func(inner, text string) *Error {
		e := refuse(http.StatusForbidden, "Forbidden", "%s\r\nVault: %s;location=%s\r\n", text, call.vault.Name, call.vault.Location)
		e.Extra = map[string]any{"innererror": map[string]any{"code": inner}}
		return e
	}
	p := call.vault.Properties
	if strings.EqualFold(p.str("publicNetworkAccess"), "Disabled") {
		return deny("ForbiddenByConnection", "Public network access is disabled and request is not from a trusted service nor via an approved private link.")
	}
	if p.str("networkAcls.defaultAction") == "Deny" && len(p.docs("networkAcls.ipRules")) == 0 {
		return deny("ForbiddenByFirewall", "Client address is not authorized and caller is not a trusted service.")
	}
	if p.flag("enableRbacAuthorization") {
		full := "Microsoft.KeyVault/vaults/secrets/" + action
		if !c.permitted(call.who.ObjectID, call.vault.ID, full, true) && !c.limitedTo(call.who, full) {
			return deny("ForbiddenByRbac", fmt.Sprintf("Caller is not authorized to perform action on resource.\r\nIf role assignments, deny assignments or role definitions were changed recently, please observe propagation time.\r\nCaller: appid=%s;oid=%s\r\nAction: '%s'\r\nResource: '%s'\r\nAssignment: (not found)\r\nDecisionReason: 'DeniedWithNoValidRBAC'", call.who.ID, call.who.ObjectID, full, call.vault.ID))
		}
		return nil
	}
	want := map[string]string{"getSecret/action": "get", "setSecret/action": "set", "readMetadata/action": "list", "delete": "delete", "purge/action": "purge", "recover/action": "recover", "update/action": "set"}[action]
	for _, policy := range p.docs("accessPolicies") {
		if strings.EqualFold(policy.str("objectId"), call.who.ObjectID) {
			for _, have := range policy.strs("permissions.secrets") {
				if strings.EqualFold(have, want) || strings.EqualFold(have, "all") && want != "purge" {
					return nil
				}
			}
		}
	}
	return deny("AccessDenied", fmt.Sprintf("The user, group or application 'appid=%s;oid=%s' does not have secrets %s permission on key vault '%s;location=%s'.", call.who.ID, call.who.ObjectID, want, call.vault.Name, call.vault.Location))
}

func missingSecret(name, version string) *Error {
	if version != "" {
		name += "/" + version
	}
	return refuse(http.StatusNotFound, "SecretNotFound", "A secret with (name/id) %s was not found in this key vault. If you recently deleted this secret you may be able to recover it using the correct recovery command.", name)
}

// serveSecret carries out a request to the secrets of a vault.
func (c *Cloud) serveSecret(call *vaultCall) (answer, error) {
	actions := map[string]string{"SetSecret": "setSecret/action", "GetSecret": "getSecret/action", "GetSecrets": "readMetadata/action", "GetSecretVersions": "readMetadata/action", "DeleteSecret": "delete",
		"UpdateSecret": "update/action", "GetDeletedSecret": "readMetadata/action", "GetDeletedSecrets": "readMetadata/action", "PurgeDeletedSecret": "purge/action", "RecoverDeletedSecret": "recover/action"}
	handlers := map[string]func(*vaultCall, string) (answer, error){"SetSecret": c.setVaultSecret, "GetSecret": c.getVaultSecret, "GetSecretVersions": c.listSecretVersions, "DeleteSecret": c.deleteVaultSecret,
		"UpdateSecret": c.updateVaultSecret, "GetSecrets": c.listVaultSecrets, "GetDeletedSecrets": c.listVaultSecrets, "GetDeletedSecret": c.getDeletedSecret, "PurgeDeletedSecret": c.purgeDeletedSecret, "RecoverDeletedSecret": c.recoverSecret}
	serve := handlers[call.Operation]
	if serve == nil || len(call.segs) == 0 || call.segs[0] != "secrets" && call.segs[0] != "deletedsecrets" {
		return answer{}, refuse(http.StatusNotFound, "ResourceNotFound", "The resource %s was not found.", call.path)
	}
	call.Actions = []string{vaultType + "/secrets/" + actions[call.Operation]}
	if err := c.forbidden(call, actions[call.Operation]); err != nil {
		return answer{}, err
	}
	name := ""
	if len(call.segs) > 1 {
		name = call.segs[1]
		if !secretName.MatchString(name) {
			return answer{}, refuse(http.StatusBadRequest, "BadParameter", "The request URI contains an invalid name: %s", name)
		}
		call.Touch(call.vault.ID + "/secrets/" + name)
	}
	return serve(call, name)
}

// attributes are those of a version, as answers have them.
func (v secretVersion) attributes(vault *Resource) map[string]any {
	level := "Recoverable+Purgeable"
	if vault.Properties.flag("enablePurgeProtection") {
		level = "Recoverable"
	}
	out := map[string]any{"enabled": true, "created": v.Created.Unix(), "updated": v.Updated.Unix(), "recoveryLevel": level, "recoverableDays": int(vault.Properties.num("softDeleteRetentionInDays"))}
	for _, name := range []string{"enabled", "exp", "nbf"} {
		if v.Attributes[name] != nil {
			out[name] = v.Attributes[name]
		}
	}
	return out
}

func (call *vaultCall) secretID(name, version string) string {
	id := call.base + vaultPrefix + strings.ToLower(call.vault.Name) + "/secrets/" + name
	if version != "" {
		id += "/" + version
	}
	return id
}

// bundle is a version with its value, or without it in lists.
func (call *vaultCall) bundle(name string, v secretVersion, withValue bool) map[string]any {
	out := map[string]any{"id": call.secretID(name, v.ID), "attributes": v.attributes(call.vault)}
	if withValue {
		out["value"] = v.Value
	}
	if v.Content != "" {
		out["contentType"] = v.Content
	}
	if len(v.Tags) > 0 {
		out["tags"] = v.Tags
	}
	return out
}

func (c *Cloud) setVaultSecret(call *vaultCall, name string) (answer, error) {
	body, err := call.input(vaultDialect, nil)
	if err != nil {
		return answer{}, refuse(http.StatusBadRequest, "BadParameter", "Property  has invalid value")
	}
	value, ok := body["value"].(string)
	if !ok || len(value) > 25*1024 {
		return answer{}, refuse(http.StatusBadRequest, "BadParameter", "The parameter value is missing, or longer than 25k.")
	}
	all := c.vaultSecrets(call.vault.ID)
	s := all[strings.ToLower(name)]
	if s != nil && !s.Deleted.IsZero() {
		e := refuse(http.StatusConflict, "Conflict", "Secret %s is currently in a deleted but recoverable state, and its name cannot be reused; in this state, the secret can only be recovered or purged.", name)
		e.Extra = map[string]any{"innererror": map[string]any{"code": "ObjectIsDeletedButRecoverable"}}
		return answer{}, e
	}
	if s == nil {
		s = &vaultSecret{Name: name}
		all[strings.ToLower(name)] = s
	}
	now := c.World.Now()
	v := secretVersion{ID: c.World.Hex("", 32), Value: value, Content: body.str("contentType"), Tags: body.sub("tags"), Attributes: body.sub("attributes"), Created: now, Updated: now}
	s.Versions = append(s.Versions, v)
	c.keepSecrets(call.vault.ID, all)
	return plain(call.bundle(s.Name, v, true)), nil
}

func (c *Cloud) liveSecret(call *vaultCall, name string) (map[string]*vaultSecret, *vaultSecret, error) {
	all := c.vaultSecrets(call.vault.ID)
	s := all[strings.ToLower(name)]
	if s == nil || !s.Deleted.IsZero() {
		return all, nil, missingSecret(name, "")
	}
	return all, s, nil
}

// at finds the version that a request names, or the newest.
func (s *vaultSecret) at(call *vaultCall) (int, error) {
	if len(call.segs) < 3 || call.segs[2] == "" {
		return len(s.Versions) - 1, nil
	}
	i := slices.IndexFunc(s.Versions, func(v secretVersion) bool { return v.ID == call.segs[2] })
	if i < 0 {
		return 0, missingSecret(s.Name, call.segs[2])
	}
	return i, nil
}

func (c *Cloud) getVaultSecret(call *vaultCall, name string) (answer, error) {
	_, s, err := c.liveSecret(call, name)
	if err != nil {
		return answer{}, err
	}
	i, err := s.at(call)
	if err != nil {
		return answer{}, err
	}
	if s.Versions[i].Attributes["enabled"] == false {
		e := refuse(http.StatusForbidden, "Forbidden", "Operation get is not allowed on a disabled secret.")
		e.Extra = map[string]any{"innererror": map[string]any{"code": "SecretDisabled"}}
		return answer{}, e
	}
	return plain(call.bundle(s.Name, s.Versions[i], true)), nil
}

func (c *Cloud) updateVaultSecret(call *vaultCall, name string) (answer, error) {
	all, s, err := c.liveSecret(call, name)
	if err != nil {
		return answer{}, err
	}
	body, err := call.input(vaultDialect, nil)
	if err != nil {
		return answer{}, err
	}
	i, err := s.at(call)
	if err != nil {
		return answer{}, err
	}
	v := &s.Versions[i]
	v.Attributes = merge(v.Attributes.clone(), body.sub("attributes"))
	if body.sub("tags") != nil {
		v.Tags = body.sub("tags")
	}
	if body.has("contentType") {
		v.Content = body.str("contentType")
	}
	v.Updated = c.World.Now()
	c.keepSecrets(call.vault.ID, all)
	return plain(call.bundle(s.Name, *v, false)), nil
}

func (c *Cloud) listSecretVersions(call *vaultCall, name string) (answer, error) {
	var all []any
	if _, s, err := c.liveSecret(call, name); err == nil {
		for _, v := range s.Versions {
			all = append(all, call.bundle(s.Name, v, false))
		}
	}
	return call.page(all, "$skiptoken")
}
