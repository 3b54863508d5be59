package api

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// What browsers see of the server goes by the address that the operator names, not by
// what a request says of itself.
func TestPublicURLOfPages(t *testing.T) {
	t.Parallel()
	s := build(Deps{PublicURL: "https://zopday.example.com"})
	for origin, ok := range map[string]bool{"https://zopday.example.com": true, "https://evil.example": false, "http://zopday.example.com": false, "null": false, "": false} {
		r := httptest.NewRequest(http.MethodPost, "http://evil.example/zopday/sign-out", nil)
		if origin != "" {
			r.Header.Set("Origin", origin)
		}
		if err := s.sameOrigin(r); (err == nil) != ok {
			t.Errorf("a form of %q: %v", origin, err)
		}
		if name := s.cookieName(r, pageCookie); name != "__Host-"+pageCookie {
			t.Errorf("behind a proxy that speaks TLS the cookie is %s", name)
		}
	}
}
