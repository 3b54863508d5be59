package azure

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

// tokenLife is how long a token is good, in real time: clients renew by the wall clock.
const tokenLife = time.Hour

// signingKey depends on the configuration alone, so that tokens outlive a restart of the simulation.
func signingKey(opt Options) []byte {
	h := sha256.New()
	for _, cl := range opt.Clients {
		h.Write([]byte(opt.Tenant + cl.ID + cl.Secret))
	}
	return h.Sum(nil)
}

// authority answers what a Microsoft identity platform endpoint answers; false if the path is none of its.
func (c *Cloud) authority(r *request) (operation string, serve func() (answer, error), ok bool) {
	segs := strings.Split(strings.ToLower(strings.Trim(r.path, "/")), "/")
	switch {
	case slices.Equal(segs, []string{"common", "discovery", "instance"}):
		return "InstanceDiscovery", func() (answer, error) { return c.instanceDiscovery(r) }, true
	case len(segs) == 4 && slices.Equal(segs[1:], []string{"v2.0", ".well-known", "openid-configuration"}):
		return "OpenIDConfiguration", func() (answer, error) { return c.openID(r, segs[0]) }, true
	case len(segs) == 4 && slices.Equal(segs[1:], []string{"oauth2", "v2.0", "token"}):
		if form, err := url.ParseQuery(string(r.body)); err == nil {
			r.Caller = form.Get("client_id")
		}
		return "Token", func() (answer, error) { return c.token(r, segs[0]) }, true
	case len(segs) == 2 && segs[0] == "metadata" && segs[1] == "endpoints":
		return "Endpoints", func() (answer, error) { return c.endpoints(r) }, true
	}
	return "", nil, false
}

func plain(body any) answer { return answer{status: http.StatusOK, header: http.Header{}, body: body} }

func (c *Cloud) instanceDiscovery(r *request) (answer, error) {
	host, tenant := r.host, c.opt.Tenant
	if u, err := url.Parse(r.query.Get("authorization_endpoint")); err == nil && u.Host != "" {
		host = u.Host
		tenant, _, _ = strings.Cut(strings.Trim(u.Path, "/"), "/")
	}
	return plain(map[string]any{
		"tenant_discovery_endpoint": "https://" + host + "/" + tenant + "/v2.0/.well-known/openid-configuration",
		"api-version":               "1.1",
		"metadata":                  []any{map[string]any{"preferred_network": host, "preferred_cache": host, "aliases": []string{host}}},
	}), nil
}

func (c *Cloud) openID(r *request, tenant string) (answer, error) {
	if !strings.EqualFold(tenant, c.opt.Tenant) {
		return answer{}, &loginError{http.StatusBadRequest, "invalid_tenant", 90002,
			fmt.Sprintf("Tenant '%s' not found. Check to make sure you have the correct tenant ID and are signing into the correct cloud.", tenant)}
	}
	base := r.base + "/" + tenant
	return plain(map[string]any{
		"token_endpoint": base + "/oauth2/v2.0/token", "authorization_endpoint": base + "/oauth2/v2.0/authorize", "jwks_uri": base + "/discovery/v2.0/keys",
		"device_authorization_endpoint": base + "/oauth2/v2.0/devicecode", "issuer": base + "/v2.0", "tenant_region_scope": nil, "cloud_instance_name": r.host,
		"token_endpoint_auth_methods_supported": []string{"client_secret_post", "private_key_jwt", "client_secret_basic"},
		"response_types_supported":              []string{"code", "id_token"}, "subject_types_supported": []string{"pairwise"},
		"id_token_signing_alg_values_supported": []string{"RS256"}, "scopes_supported": []string{"openid", "profile", "email", "offline_access"},
	}), nil
}

// endpoints is the metadata by which tools find the authority of a cloud.
func (c *Cloud) endpoints(r *request) (answer, error) {
	return plain([]any{map[string]any{"name": "simulated", "resourceManager": r.base, "authentication": map[string]any{
		"loginEndpoint": r.base, "audiences": []string{r.base}, "tenant": "common", "identityProvider": "AAD"}}}), nil
}

// token is the client credentials grant ("Microsoft identity platform and the OAuth 2.0 client credentials flow").
func (c *Cloud) token(r *request, tenant string) (answer, error) {
	form, err := url.ParseQuery(string(r.body))
	if err != nil || form.Get("grant_type") != "client_credentials" {
		return answer{}, &loginError{http.StatusBadRequest, "unsupported_grant_type", 70003, "The app requested an unsupported grant type '" + form.Get("grant_type") + "'."}
	}
	if !strings.EqualFold(tenant, c.opt.Tenant) {
		return answer{}, &loginError{http.StatusBadRequest, "invalid_request", 90002,
			fmt.Sprintf("Tenant '%s' not found. Check to make sure you have the correct tenant ID and are signing into the correct cloud.", tenant)}
	}
	id := form.Get("client_id")
	who, known := c.client(id)
	if !known {
		return answer{}, &loginError{http.StatusBadRequest, "unauthorized_client", 700016,
			fmt.Sprintf("Application with identifier '%s' was not found in the directory '%s'. This can happen if the application has not been installed by the administrator of the tenant or consented to by any user in the tenant.", id, tenant)}
	}
	assertion, secret := form.Get("client_assertion"), form.Get("client_secret")
	switch {
	case assertion != "":
		if e := who.asserted(assertion); e != nil {
			return answer{}, e
		}
	case secret == "":
		return answer{}, &loginError{http.StatusUnauthorized, "invalid_client", 7000218, "The request body must contain the following parameter: 'client_assertion' or 'client_secret'."}
	case secret != who.Secret:
		return answer{}, &loginError{http.StatusUnauthorized, "invalid_client", 7000215,
			fmt.Sprintf("Invalid client secret provided. Ensure the secret being sent in the request is the client secret value, not the client secret ID, for a secret added to app '%s'.", id)}
	}
	if form.Get("scope") == "" {
		return answer{}, &loginError{http.StatusBadRequest, "invalid_request", 900144, "The request body must contain the following parameter: 'scope'."}
	}
	life := int(tokenLife.Seconds())
	return plain(map[string]any{"token_type": "Bearer", "expires_in": life, "ext_expires_in": life, "access_token": c.signFor(r.base, audienceOf(r.base, form.Get("scope")), who)}), nil
}

// audienceOf is whom a token of a scope is for: API servers of managed clusters, vaults, or Resource Manager.
func audienceOf(base, scope string) string {
	for s := range strings.FieldsSeq(scope) {
		if resource, ok := strings.CutSuffix(s, "/.default"); ok && strings.EqualFold(strings.TrimPrefix(resource, "api://"), clusterAudience) {
			return clusterAudience
		}
		if strings.HasPrefix(s, vaultAudience) {
			return vaultAudience
		}
	}
	return base
}

// sign makes a token for Resource Manager.
func (c *Cloud) sign(base string, cl Client) string { return c.signFor(base, base, cl) }

// signFor makes a token: a JWT that only the simulation reads.
func (c *Cloud) signFor(base, audience string, cl Client) string {
	now := time.Now()
	header, _ := json.Marshal(map[string]any{"typ": "JWT", "alg": "HS256"})
	says := map[string]any{"aud": audience, "iss": base + "/" + c.opt.Tenant + "/", "iat": now.Unix(), "nbf": now.Unix(),
		"exp": now.Add(tokenLife).Unix(), "appid": cl.ID, "oid": cl.ObjectID, "tid": c.opt.Tenant, "sub": cl.ObjectID}
	if cl.TokenLife > 0 {
		says["simulatedEnd"] = c.World.Clock.Now().Add(cl.TokenLife)
	}
	claims, _ := json.Marshal(says)
	text := b64(header) + "." + b64(claims)
	return text + "." + b64(c.mac(text))
}

func (c *Cloud) mac(text string) []byte {
	m := hmac.New(sha256.New, c.signing)
	m.Write([]byte(text))
	return m.Sum(nil)
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// authenticate says who calls, by the bearer token.
func (c *Cloud) authenticate(r *request) *Error {
	deny := func(code, format string, args ...any) *Error {
		return refuseARM(http.StatusUnauthorized, code, format, args...).header("WWW-Authenticate",
			fmt.Sprintf(`Bearer authorization_uri="%s/%s", error="invalid_token", error_description="%s"`, r.base, c.opt.Tenant, fmt.Sprintf(format, args...)))
	}
	token, ok := strings.CutPrefix(r.http.Get("Authorization"), "Bearer ")
	if !ok {
		return deny("AuthenticationFailed", "Authentication failed. The 'Authorization' header is missing.")
	}
	claims, ok := c.claimsOf(token)
	if !ok {
		return deny("InvalidAuthenticationToken", "The access token is invalid.")
	}
	r.Caller = claims.AppID
	if c.expired(claims) {
		return deny("ExpiredAuthenticationToken", "The access token expiry UTC time '%s' is earlier than current UTC time '%s'.",
			time.Unix(claims.Exp, 0).UTC().Format("1/2/2006 3:04:05 PM"), time.Now().UTC().Format("1/2/2006 3:04:05 PM"))
	}
	if claims.Audience == clusterAudience || claims.Audience == vaultAudience {
		return deny("InvalidAuthenticationTokenAudience", "The access token has been obtained for wrong audience or resource '%s'. It should exactly match with one of the allowed audiences '%s/'.", claims.Audience, r.base)
	}
	who, known := c.client(claims.AppID)
	if !known {
		return deny("InvalidAuthenticationToken", "The access token is invalid.")
	}
	r.who = who
	return nil
}

// tokenClaims is what a token says.
type tokenClaims struct {
	Exp      int64  `json:"exp"`
	AppID    string `json:"appid"`
	Audience string `json:"aud"`
	// End is when it ends in simulated time, if that is what its client goes by.
	End time.Time `json:"simulatedEnd,omitzero"`
}

func (c *Cloud) expired(t tokenClaims) bool {
	return time.Now().Unix() >= t.Exp || !t.End.IsZero() && !c.World.Clock.Now().Before(t.End)
}

// claimsOf reads a token that the authority has signed.
func (c *Cloud) claimsOf(token string) (tokenClaims, bool) {
	text, sig, ok := cutLast(token, ".")
	given, err := base64.RawURLEncoding.DecodeString(sig)
	if !ok || err != nil || !hmac.Equal(given, c.mac(text)) {
		return tokenClaims{}, false
	}
	_, payload, _ := strings.Cut(text, ".")
	raw, err := base64.RawURLEncoding.DecodeString(payload)
	var claims tokenClaims
	if err != nil || json.Unmarshal(raw, &claims) != nil {
		return tokenClaims{}, false
	}
	return claims, true
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// authorize says whether the caller may act in the subscription of the request.
func (c *Cloud) authorize(r *request) *Error {
	sub := r.subscription
	if sub == "" {
		return nil
	}
	if !slices.ContainsFunc(c.subscriptions(), func(s string) bool { return strings.EqualFold(s, sub) }) {
		return refuseARM(http.StatusNotFound, "SubscriptionNotFound", "The subscription '%s' could not be found.", sub)
	}
	if !c.owns(r.who, sub) {
		return c.unauthorized(r, actionOf(r.method, r.path))
	}
	return nil
}

func (c *Cloud) owns(who Client, subscription string) bool {
	return slices.ContainsFunc(who.Subscriptions, func(s string) bool { return strings.EqualFold(s, subscription) })
}

// A loginError is a refusal of the authority.
type loginError struct {
	status int
	kind   string
	code   int
	text   string
}

func (e *loginError) Error() string { return fmt.Sprintf("AADSTS%d: %s", e.code, e.text) }

func (e *loginError) answer(r *request) answer {
	now := time.Now().UTC().Format("2006-01-02 15:04:05Z")
	return answer{status: e.status, code: fmt.Sprintf("AADSTS%d", e.code), header: http.Header{}, body: map[string]any{
		"error": e.kind, "error_codes": []int{e.code}, "timestamp": now, "trace_id": r.correlation, "correlation_id": r.correlation,
		"error_description": fmt.Sprintf("%s Trace ID: %s Correlation ID: %s Timestamp: %s", e.Error(), r.correlation, r.correlation, now),
		"error_uri":         r.base + fmt.Sprintf("/error?code=%d", e.code)}}
}

// overlay gives the refusal what a fault says of it.
func (e *loginError) overlay(f *sim.Fault) {
	if f.Message != "" {
		e.text = f.Message
	}
	if f.Status != 0 {
		e.status = f.Status
	}
	if f.Code != "" {
		e.kind = f.Code
	}
}

// newRequestID makes a request ID. It is drawn from outside of the seed: refused requests must not change what comes
// after them.
func newRequestID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
