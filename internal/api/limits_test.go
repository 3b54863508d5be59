package api

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// ticking is a clock that a test moves.
type ticking struct{ t time.Time }

func (c *ticking) now() time.Time { return c.t }

// limited is a rig with bounds, whose clock stands still.
func limited(t *testing.T, l Limits) (*rig, *ticking) {
	t.Helper()
	r := newRigOn(t, filepath.Join(t.TempDir(), "ledger.db"))
	clock := &ticking{time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)}
	r.api.limits = newLimits(l)
	r.api.limits.now = clock.now
	return r, clock
}

func TestRateOfAToken(t *testing.T) {
	t.Parallel()
	r, clock := limited(t, Limits{PerToken: 2})
	for i := range 8 {
		a := r.do(viewerToken, "GET", "/provisioning-jobs", "")
		if a.status != 200 || a.header.Get("RateLimit") != fmt.Sprintf(`"token";r=%d;t=%d`, 7-i, (i+2)/2) || a.header.Get("RateLimit-Policy") != `"token";q=8;w=4` {
			t.Fatalf("request %d: %d, %v", i, a.status, a.header)
		}
	}
	// The one over it is refused before anything is done, and says for how long.
	a := r.do(viewerToken, "DELETE", "/provisioning-jobs/x", "")
	if p := a.problem(t); a.status != 429 || p.Code != "too-many-requests" || a.header.Get("Retry-After") != "1" {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
	var n int
	if err := r.db.QueryRow(t.Context(), `SELECT count(*) FROM audit_log`).Scan(&n); err != nil || n != 0 {
		t.Errorf("a request over the bound wrote %d entries into the audit log: %v", n, err)
	}
	// Others are not bounded with it, and nobody without a token is.
	if a := r.do(adminToken, "GET", "/provisioning-jobs", ""); a.status != 200 {
		t.Errorf("another token: %d", a.status)
	}
	if a := r.do("", "GET", "/healthz", ""); a.status != 200 || a.header.Get("RateLimit") != "" {
		t.Errorf("no token: %d %v", a.status, a.header)
	}
	clock.t = clock.t.Add(time.Second)
	for i, want := range []int{200, 200, 429} {
		if a := r.do(viewerToken, "GET", "/provisioning-jobs", ""); a.status != want {
			t.Errorf("request %d after a second: %d, want %d", i, a.status, want)
		}
	}
	if !strings.Contains(string(r.do("", "GET", "/metrics", "").body), `zopday_rate_limited_requests_total{bound="token"} 2`) {
		t.Error("the metrics do not count what was refused")
	}
}

func TestRateOfAnAddress(t *testing.T) {
	t.Parallel()
	r, clock := limited(t, Limits{PerAddress: 1, TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	via := func(token, forwarded string) int {
		return r.do(token, "GET", "/docs", "", "X-Forwarded-For", forwarded).status
	}
	for i, want := range []int{200, 200, 200, 200, 429} {
		// The token, the path and what the caller says of itself make no difference.
		if got := via([]string{"", viewerToken, adminToken}[i%3], fmt.Sprintf("10.0.0.%d, 192.0.2.1", i)); got != want {
			t.Errorf("request %d: %d, want %d", i, got, want)
		}
	}
	if got := via("", "192.0.2.2"); got != 200 {
		t.Errorf("another address: %d", got)
	}
	if a := r.do("", "GET", "/nowhere", "", "X-Forwarded-For", "192.0.2.1"); a.status != 429 || a.problem(t).Code != "too-many-requests" {
		t.Errorf("a path that there is not: %d", a.status)
	}
	clock.t = clock.t.Add(2 * time.Second)
	if got := via("", "192.0.2.1"); got != 200 {
		t.Errorf("after two seconds: %d", got)
	}
}

// TestGuessing: after some wrong tokens an address is not even told whether the next
// one is right. A caller who was there before goes on, and so do other addresses.
func TestGuessing(t *testing.T) {
	t.Parallel()
	r, clock := limited(t, Limits{PerAddress: 1000, TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	as := func(token, from string) answer {
		return r.do(token, "GET", "/provisioning-jobs", "", "X-Forwarded-For", from)
	}
	if a := as(viewerToken, "192.0.2.1"); a.status != 200 {
		t.Fatalf("%d", a.status)
	}
	for i := range failureBurst {
		if a := as(fmt.Sprintf("zop_guess-number-%d", i), "192.0.2.1"); a.status != 401 {
			t.Fatalf("guess %d: %d", i, a.status)
		}
	}
	for name, tc := range map[string]struct {
		token, from string
		want        int
	}{
		"another guess":                   {"zop_guess", "192.0.2.1", 429},
		"a right one, never seen there":   {adminToken, "192.0.2.1", 429},
		"one that was seen there":         {viewerToken, "192.0.2.1", 200},
		"a right one from elsewhere":      {adminToken, "192.0.2.2", 200},
		"a guess from elsewhere":          {"zop_guess", "192.0.2.2", 401},
		"nothing that could be a token":   {"", "192.0.2.1", 401},
		"a caller who says to be another": {adminToken, "192.0.2.9, 192.0.2.1", 429},
	} {
		a := as(tc.token, tc.from)
		if a.status != tc.want {
			t.Errorf("%s: %d, want %d", name, a.status, tc.want)
		}
		if tc.want == 429 && a.header.Get("Retry-After") != "6" {
			t.Errorf("%s: Retry-After %q", name, a.header.Get("Retry-After"))
		}
	}
	clock.t = clock.t.Add(6 * time.Second)
	if a := as("zop_guess", "192.0.2.1"); a.status != 401 {
		t.Errorf("after six seconds: %d", a.status)
	}
	if a := as("zop_guess", "192.0.2.1"); a.status != 429 {
		t.Errorf("and once more: %d", a.status)
	}
}

// TestMillionAddresses: who is remembered is bounded, and so is the memory.
func TestMillionAddresses(t *testing.T) {
	l := newLimits(Limits{PerAddress: 1})
	now := time.Now()
	l.now = func() time.Time { return now }
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	for i := range 1_000_000 {
		from := netip.AddrFrom4([4]byte{byte(i >> 24), byte(i >> 16), byte(i >> 8), byte(i)}).String()
		if l.addresses.take(from, now).wait > 0 {
			t.Fatalf("address %d is refused at its first request", i)
		}
		l.failed(from)
		l.known.add(knownKey(from, "x"))
	}
	for name, n := range map[string]int{"addresses": len(l.addresses.of.at), "failures": len(l.failures.of.at), "tokens": len(l.known.seen.at)} {
		if n != maxCallers {
			t.Errorf("%d %s are remembered, want %d", n, name, maxCallers)
		}
	}
	if grown := int64(heap()) - int64(before); grown > 100<<20 {
		t.Errorf("the heap grew by %d MiB", grown>>20)
	}
	runtime.KeepAlive(l)
	// The last one is still remembered.
	last := netip.AddrFrom4([4]byte{0, 15, 66, 63}).String()
	for range 3 {
		l.addresses.take(last, now)
	}
	if l.addresses.take(last, now).wait == 0 {
		t.Error("the last address was forgotten")
	}
}

func TestClientAddress(t *testing.T) {
	t.Parallel()
	trusted := newLimits(Limits{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8:1::/48")}, TrustUnix: true})
	nobody := newLimits(Limits{})
	for _, tc := range []struct {
		l         *limits
		peer      string
		forwarded []string
		want      string
	}{
		{nobody, "192.0.2.1:5", nil, "192.0.2.1"},
		{nobody, "192.0.2.1:5", []string{"198.51.100.1"}, "192.0.2.1"},
		{nobody, "127.0.0.1:5", []string{"198.51.100.1"}, "127.0.0.1"},
		{nobody, "@", []string{"198.51.100.1"}, "unix"},
		{nobody, "[2001:db8::1:2:3]:5", nil, "2001:db8::/64"},
		{nobody, "[fe80::1%eth0]:5", nil, "fe80::/64"},
		{nobody, "[::ffff:192.0.2.1]:5", nil, "192.0.2.1"},
		{trusted, "192.0.2.1:5", []string{"198.51.100.1"}, "192.0.2.1"}, // not a proxy
		{trusted, "10.0.0.1:5", nil, "10.0.0.1"},
		{trusted, "10.0.0.1:5", []string{"198.51.100.1"}, "198.51.100.1"},
		{trusted, "10.0.0.1:5", []string{"1.1.1.1, 198.51.100.1"}, "198.51.100.1"},           // the left one is the caller's own word
		{trusted, "10.0.0.1:5", []string{"1.1.1.1, 198.51.100.1, 10.9.9.9"}, "198.51.100.1"}, // two proxies
		{trusted, "10.0.0.1:5", []string{"1.1.1.1", "198.51.100.1", "10.9.9.9"}, "198.51.100.1"},
		{trusted, "10.0.0.1:5", []string{"1.1.1.1", "10.9.9.9, 198.51.100.1"}, "198.51.100.1"},
		{trusted, "10.0.0.1:5", []string{"198.51.100.1:7777"}, "198.51.100.1"},
		{trusted, "10.0.0.1:5", []string{"[2001:db8::7]:7777"}, "2001:db8::/64"},
		{trusted, "10.0.0.1:5", []string{"2001:db8:1::9"}, "2001:db8:1::/64"},  // proxies alone
		{trusted, "10.0.0.1:5", []string{"198.51.100.1, unknown"}, "10.0.0.1"}, // what is left of it is nobody's word
		{trusted, "10.0.0.1:5", []string{"198.51.100.1, 10.1.1.1 x"}, "10.0.0.1"},
		{trusted, "10.0.0.1:5", []string{""}, "10.0.0.1"},
		{trusted, "10.0.0.1:5", []string{",,,"}, "10.0.0.1"},
		{trusted, "10.0.0.1:5", []string{strings.Repeat("198.51.100.1,", 1000) + strings.TrimSuffix(strings.Repeat("10.0.0.2,", 100), ",")}, "10.0.0.2"},
		{trusted, "@", []string{"198.51.100.1"}, "198.51.100.1"},
		{trusted, "@", nil, "unix"},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = tc.peer
		r.Header["X-Forwarded-For"] = tc.forwarded
		if got := tc.l.client(r); got != tc.want {
			t.Errorf("%s with %.80q: %s, want %s", tc.peer, tc.forwarded, got, tc.want)
		}
	}
}

func TestSecureRequests(t *testing.T) {
	t.Parallel()
	l := newLimits(Limits{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
	for _, tc := range []struct {
		peer, proto string
		tls         bool
		want        bool
	}{
		{"192.0.2.1:1", "", false, false}, {"192.0.2.1:1", "https", false, false}, {"192.0.2.1:1", "", true, true},
		{"10.0.0.1:1", "https", false, true}, {"10.0.0.1:1", "http", false, false}, {"10.0.0.1:1", "", false, false},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = tc.peer
		r.Header.Set("X-Forwarded-Proto", tc.proto)
		if tc.tls {
			r.TLS = &tls.ConnectionState{}
		}
		if got := l.secure(r); got != tc.want {
			t.Errorf("%+v: %v", tc, got)
		}
	}
}

// TestStreamsOfAToken: one token cannot take all event streams.
func TestStreamsOfAToken(t *testing.T) {
	t.Parallel()
	r, _ := limited(t, Limits{StreamsPerToken: 2})
	v := r.create(vmJob("shop"))
	open := func(token string) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.server.URL+"/provisioning-jobs/"+v.ID+"/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := r.server.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		return resp
	}
	first, second := open(viewerToken), open(viewerToken)
	third := open(viewerToken)
	if first.StatusCode != http.StatusOK || second.StatusCode != http.StatusOK || third.StatusCode != http.StatusTooManyRequests || third.Header.Get("Retry-After") == "" {
		t.Errorf("%d %d %d", first.StatusCode, second.StatusCode, third.StatusCode)
	}
	if resp := open(adminToken); resp.StatusCode != http.StatusOK {
		t.Errorf("another token: %d", resp.StatusCode)
	}
	_ = first.Body.Close()
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if resp := open(viewerToken); resp.StatusCode == http.StatusOK {
			break
		}
		if time.Since(begun) > 5*time.Second {
			t.Fatal("a stream that ended gives no place back")
		}
	}
}

// TestSizes: what is too much is refused by its size, with the bound in the message
// and before the database is asked.
func TestSizes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	million := "status=draft" + strings.Repeat("&status=draft", 1_000_000)
	many := make([]string, 0, 2*120)
	for i := range 120 {
		many = append(many, "X-Field-"+strconv.Itoa(i), "a")
	}
	for _, tc := range []struct {
		name, query string
		header      []string
		status      int
		code, says  string
	}{
		{"a hundred values", strings.TrimPrefix(strings.Repeat("&label=a=b", 100), "&"), nil, 200, "", ""},
		{"one more", strings.TrimPrefix(strings.Repeat("&label=a=b", 101), "&"), nil, 414, "query-too-long", "100 values"},
		{"a million", million, nil, 414, "query-too-long", "100 values"},
		{"one endless value", "name=" + strings.Repeat("a", 1<<20), nil, 414, "query-too-long", "8192 bytes"},
		{"many header fields", "", many, 431, "too-many-headers", "100"},
	} {
		req := httptest.NewRequest(http.MethodGet, "/provisioning-jobs?"+tc.query, nil)
		req.Header.Set("Authorization", "Bearer "+viewerToken)
		for i := 0; i < len(tc.header); i += 2 {
			req.Header.Set(tc.header[i], tc.header[i+1])
		}
		rec := httptest.NewRecorder()
		if tc.status != 200 {
			// Whoever is asked for the caller has come too far.
			h := New(Deps{Service: r.service, Access: angry{"asked"}})
			h.ServeHTTP(rec, req)
		} else {
			r.api.outer(r.api.mux).ServeHTTP(rec, req)
		}
		a := answer{rec.Code, rec.Header(), rec.Body.Bytes()}
		if a.status != tc.status {
			t.Errorf("%s: %d %.300s", tc.name, a.status, a.body)
			continue
		}
		if tc.status == 200 {
			continue
		}
		if p := a.problem(t); p.Code != tc.code || !strings.Contains(p.Hint, tc.says) {
			t.Errorf("%s: %s", tc.name, a.body)
		}
	}
}
