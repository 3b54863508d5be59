package api

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/zopday/provisioner/internal/provision"
)

// FuzzClient: whatever stands in a forwarding header, the caller counts under an
// address that a trusted proxy wrote, or its own.
func FuzzClient(f *testing.F) {
	for _, s := range []string{"192.0.2.1", "a, 192.0.2.1, 10.0.0.1", "[2001:db8::1]:80", ",,", "10.0.0.1:99999", "::ffff:10.0.0.1%x", "unknown"} {
		f.Add("10.0.0.1:1", s)
		f.Add("@", s)
	}
	l := newLimits(Limits{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
	f.Fuzz(func(t *testing.T, peer, forwarded string) {
		r := &http.Request{RemoteAddr: peer, Header: http.Header{"X-Forwarded-For": {forwarded}}}
		got := l.client(r)
		if got == "unix" {
			return
		}
		if _, err := netip.ParseAddr(got); err != nil {
			if p, err := netip.ParsePrefix(got); err != nil || p.Bits() != 64 {
				t.Errorf("%q with %q counts as %q", peer, forwarded, got)
			}
		}
		r.Header = http.Header{}
		if at, ok := parseHop(peer); ok && !l.trusts(at) && l.client(r) != got {
			t.Errorf("%q is believed of %q", forwarded, peer)
		}
	})
}

func FuzzIfMatch(f *testing.F) {
	for _, s := range []string{"", "*", `"1"`, `W/"1"`, `"`, `""`, `"-1"`, `"99999999999999999999"`, `"1", "2"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		m := IfMatch{s}.match()
		if v := strings.TrimSpace(s); (m == nil) != (v == "" || v == "*") {
			t.Errorf("%q matches anything: %v", s, m == nil)
		}
	})
}

// FuzzListQuery: a query of the list is one that the database can be asked, or is
// refused as the caller's mistake.
func FuzzListQuery(f *testing.F) {
	for _, s := range []string{"label=a=b", "label==", "label=a=b&label=a=c", "name=%00", "name=%ff", "subjectType=vm_pool&subjectId=x", "label=a%00=b", "cursor=x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		q, err := url.ParseQuery(raw)
		if err != nil {
			return
		}
		in := listIn{Name: q.Get("name"), SubjectType: q.Get("subjectType"), SubjectID: q.Get("subjectId"), Label: q["label"], Cursor: q.Get("cursor"), Sort: q.Get("sort")}
		out, err := in.query()
		if err != nil {
			return
		}
		for k, v := range out.Labels {
			if k == "" || !utf8.ValidString(k+v) || strings.ContainsRune(k+v, 0) {
				t.Errorf("%q asks for the label %q with %q", raw, k, v)
			}
		}
		if strings.ContainsRune(out.Name+out.Cursor, 0) {
			t.Errorf("%q asks for %q", raw, out.Name)
		}
	})
}

// FuzzRequests sends a request with anything in what the server reads of it. None
// fails on the server's side, and each refusal is a problem document.
func FuzzRequests(f *testing.F) {
	h := New(Deps{Service: provision.New(provision.Config{}), Access: people{}})
	f.Add("GET", "/provisioning-jobs/x/events?after=1", "Bearer x", "1", `"1"`, "key", []byte("{}"))
	f.Add("POST", "/webhooks", "", "-1", "*", "\x00", []byte(`{"url":"https://x"}`))
	f.Add("TRACE", "/%2e%2e/%00", "Basic x", "99999999999999999999", "W/", strings.Repeat("k", 300), []byte{0xff})
	f.Fuzz(func(t *testing.T, method, target, auth, last, match, key string, body []byte) {
		u, err := url.ParseRequestURI(target)
		if err != nil || method == "" || !strings.HasPrefix(u.Path, "/") || len(method) > 20 {
			return
		}
		r := httptest.NewRequest(http.MethodGet, "/", strings.NewReader(string(body)))
		r.Method, r.URL, r.RequestURI = method, u, target
		for name, v := range map[string]string{"Authorization": auth, "Last-Event-Id": last, "If-Match": match, "Idempotency-Key": key, "Content-Type": "application/json", "X-Forwarded-For": key, "Traceparent": match, "X-Request-Id": last} {
			r.Header.Set(name, v)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code == http.StatusInternalServerError {
			t.Errorf("%s %q: %d %s", method, target, w.Code, w.Body)
		}
		if w.Code >= 400 && w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s %q: %d as %q", method, target, w.Code, w.Header().Get("Content-Type"))
		}
	})
}
