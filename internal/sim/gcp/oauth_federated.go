package gcp

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

// A WorkloadProvider is an issuer whose tokens are exchanged for Google's ("Workload Identity Federation").
type WorkloadProvider struct {
	// Name is //iam.googleapis.com/projects/NUMBER/locations/global/workloadIdentityPools/POOL/providers/PROVIDER.
	Name   string
	Issuer string // the iss of the tokens; their aud is Name
}

// AddWorkloadProvider makes a provider known. Its tokens are not verified: any signature is as good as another.
func (c *Cloud) AddWorkloadProvider(p WorkloadProvider) error {
	if !providerName.MatchString(p.Name) || p.Issuer == "" {
		return fmt.Errorf("%q is not the full name of a provider, or it has no issuer", p.Name)
	}
	c.World.Lock()
	defer c.World.Unlock()
	if c.tokens.st.Providers == nil {
		c.tokens.st.Providers = map[string]*WorkloadProvider{} // a state that was kept before there were any
	}
	c.tokens.st.Providers[p.Name] = &p
	return nil
}

var providerName = regexp.MustCompile(`^//iam\.googleapis\.com/(projects/[0-9]+/locations/global/workloadIdentityPools/[a-z0-9-]+)/providers/[a-z0-9-]+$`)

const (
	stsPath         = "/v1/token"
	stsGrant        = "urn:ietf:params:oauth:grant-type:token-exchange"
	accessTokenVerb = ":generateAccessToken"

	// principal begins the name of a federated caller in policies and in the books.
	principal = "principal://iam.googleapis.com/"
)

// serveSTS exchanges another issuer's token ("Method: token", Security Token Service API).
func (c *Cloud) serveSTS(rw http.ResponseWriter, hr *http.Request, body []byte) {
	call := &sim.Call{Cloud: cloudName, Service: "sts", Operation: "token"}
	c.serveOAuth(rw, hr, call, func() (Doc, *oauthError) {
		form, err := url.ParseQuery(string(body))
		if err != nil || hr.Method != http.MethodPost {
			return nil, &oauthError{"invalid_request", "Bad Request"}
		}
		token, refused := c.tokens.federate(call, form)
		if refused != nil {
			return nil, refused
		}
		return Doc{ //nolint:gosec // names of kinds of tokens
			"access_token": token, "issued_token_type": "urn:ietf:params:oauth:token-type:access_token", "token_type": "Bearer", "expires_in": int(tokenLife.Seconds()) - 1,
		}, nil
	})
}

func (o *oauth) federate(call *sim.Call, form url.Values) (string, *oauthError) {
	audience := form.Get("audience")
	provider := o.st.Providers[audience]
	switch {
	case form.Get("grant_type") != stsGrant:
		return "", &oauthError{"unsupported_grant_type", "Unsupported grant_type: " + form.Get("grant_type")}
	case form.Get("subject_token_type") != "urn:ietf:params:oauth:token-type:jwt", form.Get("requested_token_type") != "urn:ietf:params:oauth:token-type:access_token":
		return "", &oauthError{"invalid_request", "Invalid token type."}
	case provider == nil:
		return "", &oauthError{"invalid_target", "The target service indicated by the \"audience\" parameters is invalid. This might either be because the pool or provider is disabled or deleted or because it doesn't exist."}
	}
	claim, ok := subjectClaim(form.Get("subject_token"))
	switch {
	case !ok:
		return "", &oauthError{"invalid_request", "Unable to parse the ID Token."}
	case claim.Issuer != provider.Issuer:
		return "", &oauthError{"invalid_grant", "The issuer in ID Token " + claim.Issuer + " does not match the expected ones."}
	case !slices.Contains(claim.audiences(), audience) && !slices.Contains(claim.audiences(), "https:"+audience):
		return "", &oauthError{"invalid_grant", "The audience in ID Token " + fmt.Sprint(claim.audiences()) + " does not match the expected audience."}
	case float64(time.Now().Unix()) > claim.Expires:
		return "", &oauthError{"invalid_grant", "ID Token issued at " + fmt.Sprint(int(claim.Issued)) + " is stale to sign-in."}
	}
	pool := providerName.FindStringSubmatch(audience)[1]
	call.Caller = principal + pool + "/subject/" + claim.Subject
	return o.issue(call.Caller, "", tokenLife), nil
}

type subject struct {
	Issuer   string  `json:"iss"`
	Subject  string  `json:"sub"`
	Audience any     `json:"aud"`
	Issued   float64 `json:"iat"`
	Expires  float64 `json:"exp"`
}

func (s subject) audiences() []string {
	if one, ok := s.Audience.(string); ok {
		return []string{one}
	}
	many, _ := s.Audience.([]any)
	return texts(Doc{"aud": many}, "aud")
}

func subjectClaim(token string) (s subject, ok bool) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 || parts[2] == "" {
		return s, false
	}
	b, err := base64.RawURLEncoding.DecodeString(parts[1])
	return s, err == nil && json.Unmarshal(b, &s) == nil && s.Subject != ""
}

// impersonators are the roles that let somebody act as a service account.
var impersonators = []string{"roles/iam.workloadIdentityUser", "roles/iam.serviceAccountTokenCreator", "roles/owner"}

// serveAccessToken gives a token of a service account to who may act as it ("Method: projects.serviceAccounts.generateAccessToken", IAM
// Service Account Credentials API). Who comes from another issuer needs a role in the account's own policy; everybody else is treated
// as everywhere in this simulation.
func (c *Cloud) serveAccessToken(rw http.ResponseWriter, hr *http.Request, body []byte) {
	a := &api{service: "iamcredentials", host: "iamcredentials.googleapis.com"}
	call := &sim.Call{Cloud: cloudName, Service: a.service, Operation: "projects.serviceAccounts.generateAccessToken", Actions: []string{"iam.serviceAccounts.getAccessToken"}}
	r := &request{Call: call, cloud: c, api: a, HTTP: hr, Query: hr.URL.Query()}
	early := c.authenticate(r)
	if early == nil && c.World.Denied(call) != "" {
		early = mayNotImpersonate()
	}
	email := strings.TrimSuffix(hr.URL.Path[strings.LastIndexByte(hr.URL.Path, '/')+1:], accessTokenVerb)
	var ans answer
	exec := func() sim.Reply {
		if early != nil {
			ans = a.refusal(early)
		} else if doc, e := c.tokens.impersonate(r, email, body); e != nil {
			ans = a.refusal(e)
		} else {
			b, _ := json.Marshal(doc) // texts
			ans = answer{status: http.StatusOK, header: http.Header{}, body: b}
		}
		return sim.Reply{Status: ans.status, Code: ans.code}
	}
	refuseIt := func(f *sim.Fault) sim.Reply {
		ans = a.faulty(f)
		return sim.Reply{Status: ans.status, Code: ans.code}
	}
	if c.World.Serve(hr.Context(), call, exec, refuseIt) {
		panic(http.ErrAbortHandler)
	}
	maps.Copy(rw.Header(), ans.header)
	rw.Header().Set("Content-Type", "application/json; charset=UTF-8")
	rw.WriteHeader(ans.status)
	// The caller has gone away if this fails; there is nobody to tell.
	_, _ = rw.Write(ans.body)
}

func mayNotImpersonate() *Error {
	const p = "iam.serviceAccounts.getAccessToken"
	return &Error{HTTP: 403, Reason: "forbidden", Status: "PERMISSION_DENIED", Message: "Permission '" + p + "' denied on resource (or it may not exist).",
		Details: []any{Doc{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "IAM_PERMISSION_DENIED", "domain": "iam.googleapis.com", "metadata": Doc{"permission": p}}}}
}

func (o *oauth) impersonate(r *request, email string, body []byte) (Doc, *Error) {
	var in struct {
		Scope    []string `json:"scope"`
		Lifetime string   `json:"lifetime"`
	}
	life := tokenLife
	if err := json.Unmarshal(body, &in); err != nil || len(in.Scope) == 0 {
		return nil, refuse(400, "badRequest", "Request contains an invalid argument.")
	}
	if in.Lifetime != "" {
		d, err := time.ParseDuration(in.Lifetime)
		if err != nil || d <= 0 || d > tokenLife {
			return nil, refuse(400, "badRequest", "The lifetime of the token is not valid: %s", in.Lifetime)
		}
		life = d
	}
	project := o.projectOf(email)
	a := o.cloud.iam.live(email)
	if project == "" || a == nil || strings.HasPrefix(r.Caller, principal) && !a.Policy.grants(r.Caller, impersonators) {
		return nil, mayNotImpersonate()
	}
	r.Account = project
	r.Touch(a.path())
	return Doc{"accessToken": o.issue(email, project, life), "expireTime": time.Now().UTC().Add(life).Format(time.RFC3339)}, nil
}

// grants says whether a policy gives a member, or the pool that it is in, one of some roles.
func (p *policy) grants(member string, roles []string) bool {
	if p == nil {
		return false
	}
	pool, _, _ := strings.Cut(strings.TrimPrefix(member, principal), "/subject/")
	all := "principalSet://iam.googleapis.com/" + pool + "/*"
	return slices.ContainsFunc(docs(p.Doc, "bindings"), func(b Doc) bool {
		members := texts(b, "members")
		return slices.Contains(roles, str(b, "role")) && (slices.Contains(members, member) || slices.Contains(members, all))
	})
}
