package oidc

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/access"
)

// What the front of a token lets through is what it says it is.
func FuzzFront(f *testing.F) {
	f.Add("eyJhbGciOiJFUzI1NiIsInR5cCI6IkpXVCIsImtpZCI6ImsifQ.eyJpc3MiOiJodHRwczovL2EifQ.c2ln")
	f.Add("eyJhbGciOiJub25lIn0.e30.")
	f.Add("..")
	f.Add("eyJhbGciOiJIUzI1NiIsImFsZyI6IkVTMjU2In0.e30.AA")
	f.Fuzz(func(t *testing.T, token string) {
		got, err := readFront(token)
		if err != nil {
			return
		}
		if len(token) > maxToken || strings.Count(token, ".") != 2 || strings.ContainsAny(token, " \t\r\n=") || strings.HasPrefix(string(got.alg), "HS") || !strings.Contains("RS256 RS384 RS512 PS256 PS384 PS512 ES256 ES384 ES512 EdDSA", string(got.alg)) || got.alg == "" || len(got.kid) > maxKeyID {
			t.Errorf("%q: %+v", token, got)
		}
	})
}

// Claims of any shape end in an error, or in a machine with a good name.
func FuzzClaims(f *testing.F) {
	f.Add([]byte(`{"iss":"https://a","sub":"s","aud":["x"],"exp":1,"iat":0,"groups":["g"]}`))
	f.Add([]byte(`{"iss":"https://a","sub":"s","aud":"x","exp":1e300,"iat":-1,"groups":{"g":1}}`))
	f.Add([]byte(`{"a":{"b":["c"]},"email":"A@B.c","email_verified":"true","name":"\u202e"}`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		c, err := readClaims(payload)
		if err != nil {
			return
		}
		i := &issuer{Issuer: Issuer{URL: "https://a", Name: "n", Audiences: []string{"x"}, GroupsClaim: "a.b", NameClaim: "name"}}
		now := time.Unix(0, 0)
		if m, err := i.machineOf(c, now); err == nil && (m.subject == "" || len(m.subject) > maxSubject || strings.ContainsAny(m.subject, " \n\x00") || !now.Before(m.expires.Add(skew))) {
			t.Errorf("%s: %+v", payload, m)
		}
		if u, failure := i.person(c); failure == nil && (u.Email != strings.ToLower(u.Email) || strings.ContainsAny(u.Email+u.Subject, " \n\x00") || strings.ContainsAny(u.Name, "\n\u202e\x00") || len(u.Groups) > maxGroups) {
			t.Errorf("%s: %+v", payload, u)
		}
	})
}

// Wherever next points to, a browser that follows it stays on this server.
func FuzzNext(f *testing.F) {
	for _, s := range []string{"/", "//evil", `/\evil`, "/%2f%2fevil", "/%255cevil", "javascript:x", "/a?b=//c", "/\t/x", "/.//x", "/..//x"} {
		f.Add(s)
	}
	base, err := url.Parse("https://zopday.example.com/auth/callback")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, next string) {
		got := LocalPath(next)
		u, err := base.Parse(got)
		if err != nil || u.Host != base.Host || u.Scheme != "https" || u.User != nil || !strings.HasPrefix(got, "/") || strings.HasPrefix(got, "//") || strings.ContainsAny(got, "\\\r\n\t\x00 ") || strings.HasPrefix(u.Path, "//") {
			t.Errorf("%q goes to %q (%v, %v)", next, got, u, err)
		}
		if LocalPath(got) != got {
			t.Errorf("%q goes to %q, and that to %q", next, got, LocalPath(got))
		}
	})
}

// A cookie is one that was made here, or nothing.
func FuzzCookie(f *testing.F) {
	f.Add(access.NewCookie())
	f.Add(strings.Repeat("A", 43))
	f.Add("AAAA\x00")
	f.Fuzz(func(t *testing.T, s string) {
		if access.GoodCookie(s) && (len(s) != 43 || strings.ContainsAny(s, "+/=\n\x00 ")) {
			t.Errorf("%q is taken", s)
		}
	})
}

// Any file of issuers ends in an error with a fix, or in issuers that are whole.
func FuzzParse(f *testing.F) {
	f.Add([]byte(whole))
	f.Add([]byte("issuers: [{issuer: 'https://a', clientId: x}]"))
	f.Add([]byte("issuers: &a [*a]"))
	f.Add([]byte("issuers:\n- <<: {issuer: x}\n"))
	f.Fuzz(func(t *testing.T, file []byte) {
		c, err := Parse("f", file, func(string) string { return "s" })
		if err != nil {
			return
		}
		for _, i := range c.Issuers {
			if safeURL(i.URL) != nil || i.Name == "" || i.ClientID == "" && len(i.Audiences) == 0 {
				t.Errorf("%q: %+v", file, i)
			}
		}
	})
}
