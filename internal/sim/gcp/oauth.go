package gcp

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

// tokenPath is where key files of service accounts point their token_uri to.
const tokenPath = "/token"

// tokenLife is how long an access token holds ("Using OAuth 2.0 for Server to Server Applications"), by the world's clock. The
// assertions that it is given for are checked by the real one, since clients write them by their own.
const tokenLife = time.Hour

const jwtGrant = "urn:ietf:params:oauth:grant-type:jwt-bearer"

// oauth is the token endpoint.
type oauth struct {
	cloud *Cloud
	st    oauthState
}

type oauthState struct {
	Tokens    map[string]*accessToken      // by the hash of the token
	Providers map[string]*WorkloadProvider // by full name
}

type accessToken struct {
	Email   string
	Project string
	Expires time.Time // of the world
}

func newOAuth(c *Cloud) {
	o := &oauth{cloud: c}
	c.World.Register(o)
	c.hooks.token = o.caller
	c.tokens = o
}

func (o *oauth) Cloud() string { return cloudName }
func (o *oauth) Name() string  { return "oauth2" }
func (o *oauth) State() any    { return &o.st }
func (o *oauth) Reset() {
	o.st = oauthState{Tokens: map[string]*accessToken{}, Providers: map[string]*WorkloadProvider{}}
}
func (o *oauth) Event(string, string)              {}
func (o *oauth) Objects() []sim.Object             { return nil }
func (o *oauth) SetState(id, _, _, _ string) error { return fmt.Errorf("%s has no states", id) }
func (o *oauth) Remove(id string) error            { return fmt.Errorf("no object %s", id) }
func (o *oauth) forget(now time.Time) {
	o.sweep(func(t *accessToken) bool { return now.After(t.Expires) })
}
func (o *oauth) sweep(gone func(*accessToken) bool) {
	for k, t := range o.st.Tokens {
		if gone(t) {
			delete(o.st.Tokens, k)
		}
	}
}

// caller is who holds a token, unless it has expired or its account is gone or disabled.
func (o *oauth) caller(token string) (Caller, bool) {
	t := o.st.Tokens[hashed(token)]
	if t == nil || o.cloud.World.Now().After(t.Expires) {
		return Caller{}, false
	}
	if find := o.cloud.hooks.serviceAccount; find != nil && !strings.HasPrefix(t.Email, principal) {
		if sa, ok := find(t.Email); !ok || sa.Disabled {
			return Caller{}, false
		}
	}
	return Caller{Email: t.Email}, true
}

func hashed(token string) string {
	sum := sha256.Sum256([]byte(token))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// assertion is what a service account says of itself in a signed JSON web token.
type assertion struct {
	Issuer   string  `json:"iss"`
	Subject  string  `json:"sub"`
	Scope    string  `json:"scope"`
	Audience string  `json:"aud"`
	Issued   float64 `json:"iat"`
	Expires  float64 `json:"exp"`
}

// oauthError is a refusal of the token endpoint, as RFC 6749 has it.
type oauthError struct{ code, text string }

// serveToken exchanges a service account's assertion for an access token. The signature is not verified: any key is as good as
// another; but a key that is named has to be one of the account's.
func (c *Cloud) serveToken(rw http.ResponseWriter, hr *http.Request, body []byte) {
	call := &sim.Call{Cloud: cloudName, Service: "oauth2", Operation: "token"}
	c.serveOAuth(rw, hr, call, func() (Doc, *oauthError) {
		form, err := url.ParseQuery(string(body))
		if err != nil || hr.Method != http.MethodPost {
			return nil, &oauthError{"invalid_request", "Bad Request"}
		}
		token, refused := c.tokens.exchange(call, form)
		if refused != nil {
			return nil, refused
		}
		return Doc{"access_token": token, "expires_in": int(tokenLife.Seconds()) - 1, "token_type": "Bearer"}, nil
	})
}

const tokenInfoPath = "/tokeninfo"

// serveTokenInfo says whose a token is. Of a federated one it says nothing.
func (c *Cloud) serveTokenInfo(rw http.ResponseWriter, hr *http.Request) {
	call := &sim.Call{Cloud: cloudName, Service: "oauth2", Operation: "tokeninfo"}
	r := &request{Call: call, cloud: c, api: &api{}, HTTP: hr, Query: hr.URL.Query()}
	early := c.authenticate(r)
	c.serveOAuth(rw, hr, call, func() (Doc, *oauthError) {
		if early != nil || strings.HasPrefix(r.Caller, principal) {
			return nil, &oauthError{"invalid_token", "Invalid Value"}
		}
		return Doc{"email": r.Caller, "email_verified": "true", "scope": "https://www.googleapis.com/auth/cloud-platform", "expires_in": "3000", "access_type": "online"}, nil
	})
}

// serveOAuth takes a request for a token through the world.
func (c *Cloud) serveOAuth(rw http.ResponseWriter, hr *http.Request, call *sim.Call, give func() (Doc, *oauthError)) {
	var ans answer
	reply := func(status int, code string, doc Doc) sim.Reply {
		b, _ := json.Marshal(doc) // texts and numbers
		ans = answer{status: status, code: code, header: http.Header{}, body: b}
		return sim.Reply{Status: status, Code: code}
	}
	exec := func() sim.Reply {
		doc, refused := give()
		if refused != nil {
			return reply(400, refused.code, Doc{"error": refused.code, "error_description": refused.text})
		}
		return reply(200, "", doc)
	}
	refuseIt := func(f *sim.Fault) sim.Reply {
		if f.Kind == sim.FaultRaw {
			ans = (&api{}).faulty(f)
			return sim.Reply{Status: ans.status, Code: ans.code}
		}
		status, code := f.Status, f.Code
		if status == 0 {
			status = 503
		}
		if code == "" {
			code = "internal_failure"
		}
		return reply(status, code, Doc{"error": code, "error_description": f.Message})
	}
	if c.World.Serve(hr.Context(), call, exec, refuseIt) {
		panic(http.ErrAbortHandler)
	}
	if maps.Copy(rw.Header(), ans.header); rw.Header().Get("Content-Type") == "" {
		rw.Header().Set("Content-Type", "application/json; charset=utf-8")
	}
	rw.WriteHeader(ans.status)
	// The caller has gone away if this fails; there is nobody to tell.
	_, _ = rw.Write(ans.body)
}

func (o *oauth) exchange(call *sim.Call, form url.Values) (string, *oauthError) {
	if form.Get("grant_type") != jwtGrant {
		return "", &oauthError{"unsupported_grant_type", "Invalid grant_type: " + form.Get("grant_type")}
	}
	claim, key, ok := parseAssertion(form.Get("assertion"))
	if !ok {
		return "", &oauthError{"invalid_grant", "Invalid JWT: Failed to parse."}
	}
	call.Caller = claim.Issuer
	now := time.Now()
	switch {
	case claim.Scope == "" && claim.Audience == "":
		return "", &oauthError{"invalid_scope", "Invalid OAuth scope or ID token audience provided."}
	case float64(now.Unix()) > claim.Expires, claim.Expires-claim.Issued > tokenLife.Seconds()+1, claim.Issued > float64(now.Add(5*time.Minute).Unix()):
		return "", &oauthError{"invalid_grant", "Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable timeframe. " +
			"Check your iat and exp values in the JWT claim."}
	}
	project := o.projectOf(claim.Issuer)
	if project == "" {
		return "", &oauthError{"invalid_grant", "Invalid grant: account not found"}
	}
	if a := o.cloud.iam.live(claim.Issuer); key != "" && a != nil && a.Keys[key] == nil {
		return "", &oauthError{"invalid_grant", "Invalid JWT Signature."}
	}
	call.Account = project
	return o.issue(claim.Issuer, project, tokenLife), nil
}

// issue gives out a token.
func (o *oauth) issue(email, project string, life time.Duration) string {
	now := o.cloud.World.Now()
	o.forget(now)
	token := "ya29.c." + o.cloud.World.ID("", 60, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")
	o.st.Tokens[hashed(token)] = &accessToken{Email: email, Project: project, Expires: now.Add(life)}
	return token
}

// projectOf is the project of a service account that exists.
func (o *oauth) projectOf(email string) string {
	if find := o.cloud.hooks.serviceAccount; find != nil {
		sa, ok := find(email)
		if !ok || sa.Disabled {
			return ""
		}
		return sa.Project
	}
	domain := email[strings.Index(email, "@")+1:]
	if i := slices.IndexFunc(o.cloud.opt.Projects, func(p Project) bool { return domain == p.ID+".iam.gserviceaccount.com" }); i >= 0 {
		return o.cloud.opt.Projects[i].ID
	}
	return ""
}

// parseAssertion reads a signed JSON web token, and names the key that it says it was signed with.
func parseAssertion(token string) (claim assertion, key string, ok bool) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 || parts[2] == "" {
		return claim, "", false
	}
	var head struct{ Alg, Typ, Kid string }
	for i, into := range []any{&head, &claim} {
		b, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(parts[i], "="))
		if err != nil || json.Unmarshal(b, into) != nil {
			return claim, "", false
		}
	}
	return claim, head.Kid, head.Alg == "RS256" && claim.Issuer != "" && claim.Audience != ""
}
