package gcp

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

const (
	testPool     = "//iam.googleapis.com/projects/123456789012/locations/global/workloadIdentityPools/ci/providers/builds"
	federatedOne = "principal://iam.googleapis.com/projects/123456789012/locations/global/workloadIdentityPools/ci/subject/runner"
)

func (g *rig) post(path, token, contentType, body string) (int, map[string]any) {
	g.t.Helper()
	r, err := http.NewRequest(http.MethodPost, g.url+path, strings.NewReader(body))
	if err != nil {
		g.t.Fatal(err)
	}
	r.Header.Set("Content-Type", contentType)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	status, text := do(g.t, r)
	var out map[string]any
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		g.t.Fatalf("%s: %d %s", path, status, text)
	}
	return status, out
}

func unsigned(t *testing.T, claims map[string]any) string {
	t.Helper()
	b, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	return "eyJhbGciOiJSUzI1NiJ9." + base64.RawURLEncoding.EncodeToString(b) + ".c2ln"
}

// Another issuer's token is taken if everything in it is as the provider wants it, and what it is exchanged for acts as those service
// accounts alone whose policies say so.
func TestFederation(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	if err := g.cloud.AddWorkloadProvider(WorkloadProvider{Name: testPool, Issuer: "https://issuer.example"}); err != nil {
		t.Fatal(err)
	}
	if g.cloud.AddWorkloadProvider(WorkloadProvider{Name: "pool", Issuer: "x"}) == nil {
		t.Error("a provider without its full name is taken")
	}
	exchange := func(change map[string]any, audience string) (int, map[string]any) {
		claims := map[string]any{"iss": "https://issuer.example", "sub": "runner", "aud": testPool, "iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix()}
		maps.Copy(claims, change)
		return g.post(stsPath, "", "application/x-www-form-urlencoded", url.Values{"grant_type": {stsGrant}, "audience": {audience}, "scope": {"https://www.googleapis.com/auth/cloud-platform"},
			"requested_token_type": {"urn:ietf:params:oauth:token-type:access_token"}, "subject_token_type": {"urn:ietf:params:oauth:token-type:jwt"}, "subject_token": {unsigned(t, claims)}}.Encode())
	}
	for code, c := range map[string]struct {
		change   map[string]any
		audience string
	}{
		"invalid_target":     {nil, strings.Replace(testPool, "builds", "other", 1)},
		"invalid_request":    {map[string]any{"sub": ""}, testPool},
		"invalid_grant iss":  {map[string]any{"iss": "https://evil.example"}, testPool},
		"invalid_grant aud":  {map[string]any{"aud": "somebody"}, testPool},
		"invalid_grant late": {map[string]any{"exp": time.Now().Add(-time.Minute).Unix()}, testPool},
	} {
		want, _, _ := strings.Cut(code, " ")
		if status, out := exchange(c.change, c.audience); status != 400 || out["error"] != want {
			t.Errorf("%s: %d %v", code, status, out)
		}
	}
	status, out := exchange(map[string]any{"aud": []any{"other", testPool}}, testPool)
	token, _ := out["access_token"].(string)
	if status != 200 || token == "" || out["expires_in"] != float64(3599) {
		t.Fatalf("exchange: %d %v", status, out)
	}
	const account = "admin@example-project.iam.gserviceaccount.com"
	act := func(token string) (int, map[string]any) {
		return g.post("/v1/projects/-/serviceAccounts/"+account+accessTokenVerb, token, "application/json", `{"scope":["https://www.googleapis.com/auth/cloud-platform"],"lifetime":"600s"}`)
	}
	if status, _ = act(token); status != 403 {
		t.Errorf("acting without a role: %d", status)
	}
	if _, err := g.cloud.Invoke("iam", "projects.serviceAccounts.setIamPolicy", testProject, "", map[string]any{"resource": "projects/" + testProject + "/serviceAccounts/" + account,
		"policy": map[string]any{"bindings": []any{map[string]any{"role": "roles/iam.workloadIdentityUser", "members": []any{federatedOne}}}}}); err != nil {
		t.Fatal(err)
	}
	status, out = act(token)
	short, _ := out["accessToken"].(string)
	if status != 200 || short == "" {
		t.Fatalf("acting with a role: %d %v", status, out)
	}
	if status, out = g.post(tokenInfoPath, short, "application/json", ""); status != 200 || out["email"] != account {
		t.Errorf("whose it is: %d %v", status, out)
	}
	g.world.SetGrants("gcp", federatedOne, []string{})
	if status, _ = act(token); status != 403 {
		t.Errorf("acting without the permission: %d", status)
	}
	g.world.SetGrants("gcp", federatedOne, nil)
	g.world.Step(11 * time.Minute) // of ten
	if status, _ = g.post(tokenInfoPath, short, "application/json", ""); status != 400 {
		t.Errorf("a token that is over: %d", status)
	}
	g.world.Step(time.Hour)
	if status, _ = act(token); status != 401 {
		t.Errorf("acting with a token that is over: %d", status)
	}
}
