package webhook

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// TestSignature holds Sign against the example of the Standard Webhooks
// specification's own libraries.
func TestSignature(t *testing.T) {
	t.Parallel()
	got, err := Sign("msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`), "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil || got != "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" {
		t.Errorf("%s %v", got, err)
	}
}

func TestSecrets(t *testing.T) {
	t.Parallel()
	if a, b := NewSecret(), NewSecret(); a == b || !strings.HasPrefix(a, "whsec_") {
		t.Error("secrets repeat, or are not to be told as such")
	}
	if _, err := keyOf(NewSecret()); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"", "whsec_", "whsec_!!!", NewSecret()[6:], "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 23)), "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 65))} {
		if _, err := keyOf(bad); err == nil {
			t.Errorf("%q is taken", bad)
		} else if bad != "" && strings.Contains(err.Error(), bad) && len(bad) > 10 {
			t.Errorf("the error repeats the secret: %v", err)
		}
	}
}

// TestReceivers: a receiver that does what the documentation says refuses what was
// replayed, altered or made up.
func TestReceivers(t *testing.T) {
	t.Parallel()
	secret, before, other := NewSecret(), NewSecret(), NewSecret()
	body := []byte(`{"id":"msg_1","type":"job.completed"}`)
	now := time.Unix(1_800_000_000, 0)
	header := func(id string, at time.Time, secrets ...string) http.Header {
		s, err := Sign(id, at, body, secrets...)
		if err != nil {
			t.Fatal(err)
		}
		h := http.Header{}
		h.Set(HeaderID, id)
		h.Set(HeaderTimestamp, fmt.Sprint(at.Unix()))
		h.Set(HeaderSignature, s)
		return h
	}
	with := func(h http.Header, name, value string) http.Header {
		h.Set(name, value)
		return h
	}
	good := func() http.Header { return header("msg_1", now, secret) }
	for name, tc := range map[string]struct {
		h    http.Header
		body []byte
		at   time.Time
		ok   bool
	}{
		"as it was sent":                 {good(), body, now, true},
		"four minutes late":              {good(), body, now.Add(4 * time.Minute), true},
		"a clock that is ahead":          {good(), body, now.Add(-4 * time.Minute), true},
		"during a rotation":              {header("msg_1", now, secret, before), body, now, true},
		"during a rotation, the old one": {header("msg_1", now, other, secret), body, now, true},
		"replayed after six minutes":     {good(), body, now.Add(6 * time.Minute), false},
		"from the future":                {good(), body, now.Add(-6 * time.Minute), false},
		"replayed with a new time":       {with(good(), HeaderTimestamp, fmt.Sprint(now.Add(6*time.Minute).Unix())), body, now.Add(6 * time.Minute), false},
		"another body":                   {good(), []byte(`{"id":"msg_1","type":"job.failed"}`), now, false},
		"a blank more":                   {good(), append([]byte{' '}, body...), now, false},
		"another ID":                     {with(good(), HeaderID, "msg_2"), body, now, false},
		"no ID":                          {with(good(), HeaderID, ""), body, now, false},
		"another secret":                 {header("msg_1", now, other), body, now, false},
		"no signature":                   {with(good(), HeaderSignature, ""), body, now, false},
		"a signature of another version": {with(good(), HeaderSignature, strings.Replace(good().Get(HeaderSignature), "v1,", "v1a,", 1)), body, now, false},
		"a cut signature":                {with(good(), HeaderSignature, good().Get(HeaderSignature)[:20]), body, now, false},
		"a time that is none":            {with(good(), HeaderTimestamp, "now"), body, now, false},
		"a time beyond all numbers":      {with(good(), HeaderTimestamp, "99999999999999999999"), body, now, false},
		"a dot moved":                    {with(with(good(), HeaderID, "msg_1."+fmt.Sprint(now.Unix())), HeaderTimestamp, ""), body, now, false},
	} {
		if err := Verify(tc.h, tc.body, secret, tc.at); (err == nil) != tc.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPublicAddresses(t *testing.T) {
	t.Parallel()
	for _, a := range []string{"8.8.8.8", "1.1.1.1", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "2a00:1450:4001::1", "64:ff9b::8.8.8.8", "::ffff:8.8.8.8"} {
		if !public(netip.MustParseAddr(a)) {
			t.Errorf("%s is not public", a)
		}
	}
	for _, a := range []string{
		"127.0.0.1", "127.9.9.9", "0.0.0.0", "0.1.2.3", "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1", "169.254.169.254", "169.254.170.2", "100.64.0.1",
		"100.100.100.200", "192.0.0.192", "192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "192.88.99.1", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255", "168.63.129.16",
		"::", "::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "::ffff:0:127.0.0.1", "fe80::1", "fe80::1%eth0", "fec0::1", "fc00::1", "fd00:ec2::254", "fd20:ce::254", "ff02::1",
		"64:ff9b::127.0.0.1", "64:ff9b::10.0.0.1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "2002:7f00:1::", "2002:a9fe:a9fe::", "2001::1", "2001:db8::1", "2001:10::1", "100::1", "3fff::1", "5f00::1", "4000::1",
	} {
		if public(netip.MustParseAddr(a)) {
			t.Errorf("%s is public", a)
		}
	}
	if public(netip.Addr{}) {
		t.Error("no address is public")
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	named, err := ParseAllow([]string{"10.1.0.0/16", "Hooks.Internal", "192.168.7.7", "fd00::/8"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		url         string
		plain, also bool // may be kept; may be kept where the list above is allowed
	}{
		{"https://example.com/hooks", true, true},
		{"https://example.com:8443/a?b=c", true, true},
		{"HTTPS://EXAMPLE.com", true, true},
		{"https://8.8.8.8/", true, true},
		{"https://[2606:4700::1111]/", true, true},
		{"https://localhost/", true, true}, // its address decides, when it is sent to
		{"http://example.com/", false, true},
		{"http://hooks.internal/a", false, true},
		{"https://10.1.2.3/", false, true},
		{"https://10.2.2.3/", false, false},
		{"https://[::ffff:10.1.2.3]/", false, true},
		{"https://[fd12::1]/", false, true},
		{"https://192.168.7.7/", false, true},
		{"https://127.0.0.1/", false, false},
		{"https://[::1]/", false, false},
		{"https://[fe80::1%25eth0]/", false, false},
		{"https://169.254.169.254/latest/meta-data", false, false},
		{"", false, false}, {"example.com", false, false}, {"/hooks", false, false}, {"https://", false, false}, {"https:///a", false, false}, {"https:example.com", false, false},
		{"ftp://example.com/", false, false}, {"file:///etc/passwd", false, false}, {"gopher://example.com/", false, false}, {"javascript:alert(1)", false, false},
		{"https://user:pass@example.com/", false, false}, {"https://user@example.com/", false, false},
		{"https://example.com/#a", false, false}, {"https://example.com:0/", false, false}, {"https://example.com:99999/", false, false}, {"https://example.com:port/", false, false},
		{"https://exa mple.com/", false, false}, {"https://example.com/\r\nX: y", false, false}, {"https://exämple.com/", false, false}, {"https://example.com/\x00", false, false},
		{"https://example.com/" + strings.Repeat("a", 2048), false, false},
	} {
		for _, a := range []struct {
			allow Allow
			want  bool
		}{{Allow{}, tc.plain}, {named, tc.also}} {
			fault, fix := a.allow.Check(tc.url)
			if (fault == "") != a.want || fault != "" && fix == "" {
				t.Errorf("%.60q with %+v: %q, %q", tc.url, a.allow, fault, fix)
			}
		}
	}
	for _, bad := range []string{"", "http://a", "a b", "10.0.0.0/99", "a/b", "*"} {
		if _, err := ParseAllow([]string{bad}); err == nil {
			t.Errorf("%q is allowed", bad)
		}
	}
}

func TestHost(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"https://hooks.example.com/services/T0/B0/secret": "https://hooks.example.com/…",
		"https://example.com/?token=secret":               "https://example.com/…",
		"https://example.com/":                            "https://example.com/",
		"\x00":                                            "…",
	} {
		if got := Host(raw); got != want {
			t.Errorf("%q: %q", raw, got)
		}
	}
}

// receiver is a server on this machine, which nothing is sent to unless it is allowed.
func receiver(t *testing.T, answer http.HandlerFunc) (s *httptest.Server, hits *int) {
	t.Helper()
	n := 0
	s = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { n++; answer(w, r) }))
	t.Cleanup(s.Close)
	return s, &n
}

func senderFor(s *httptest.Server, allow ...string) *Sender {
	a, err := ParseAllow(allow)
	if err != nil {
		panic(err)
	}
	return NewSender(Options{Allow: a, UserAgent: "zopday/test", TLS: s.Client().Transport.(*http.Transport).TLSClientConfig.Clone()})
}

func TestSend(t *testing.T) {
	secret := NewSecret()
	const canary = "what-the-receiver-says"
	for name, tc := range map[string]struct {
		answer http.HandlerFunc
		status int
		says   string // "" is delivered
	}{
		"taken": {func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil || Verify(r.Header, body, secret, time.Now()) != nil || r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" || r.Header.Get("User-Agent") != "zopday/test" {
				w.WriteHeader(http.StatusBadRequest)
			}
		}, 200, ""},
		"accepted": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) }, 202, ""},
		"refused":  {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, canary, http.StatusForbidden) }, 403, "403"},
		"gone":     {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) }, 410, "410"},
		"a redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere-"+canary, http.StatusTemporaryRedirect)
		}, 307, "not followed"},
		"an endless answer": {func(w http.ResponseWriter, _ *http.Request) {
			for range 10_000 {
				if _, err := io.WriteString(w, strings.Repeat(canary, 100)); err != nil {
					return
				}
			}
		}, 200, ""},
		"endless headers": {func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("a", 1<<20)) }, 0, "no answer"},
		"broken off":      {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 0, "receiver"},
	} {
		t.Run(name, func(t *testing.T) {
			s, hits := receiver(t, tc.answer)
			status, err := senderFor(s, "127.0.0.0/8").Send(t.Context(), Message{ID: "msg_1", URL: s.URL + "/path-secret", Body: []byte(`{}`), Secrets: []string{secret}}, time.Now())
			if status != tc.status || (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%d %v", status, err)
			}
			if *hits != 1 {
				t.Errorf("the receiver was asked %d times", *hits)
			}
			if err != nil && (strings.Contains(err.Error(), canary) || strings.Contains(err.Error(), "path-secret") || strings.Contains(err.Error(), "127.0.0.1")) {
				t.Errorf("the error says too much: %v", err)
			}
		})
	}
}

// TestNothingPrivate: no address but one on the Internet is connected to, whatever the
// name looked like when it was kept, unless the server allows it.
func TestNothingPrivate(t *testing.T) {
	s, hits := receiver(t, func(http.ResponseWriter, *http.Request) {})
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	send := func(sender *Sender, url string) error {
		_, err := sender.Send(t.Context(), Message{ID: "msg_1", URL: url, Body: []byte(`{}`), Secrets: []string{NewSecret()}}, time.Now())
		return err
	}
	// localhost is a name like one that was changed to point inside after it was kept.
	for _, host := range []string{"localhost", "127.0.0.1", "[::ffff:127.0.0.1]", "0.0.0.0", "localhost.", "127.1", "0x7f000001", "2130706433"} {
		if err := send(senderFor(s), "https://"+host+":"+port+"/"); err == nil {
			t.Errorf("%s was sent to", host)
		}
	}
	if *hits != 0 {
		t.Fatalf("the receiver was asked %d times", *hits)
	}
	if err := send(senderFor(s), "https://localhost:"+port+"/"); !errors.Is(err, errAddress) {
		t.Errorf("it is not said why: %v", err)
	}
	if err := send(senderFor(s, "10.0.0.0/8", "other.internal"), "https://localhost:"+port+"/"); !errors.Is(err, errAddress) {
		t.Errorf("another range allows it: %v", err)
	}
	if *hits != 0 {
		t.Fatalf("the receiver was asked %d times", *hits)
	}
	for _, allow := range []string{"127.0.0.0/8", "127.0.0.1"} {
		if err := send(senderFor(s, allow), "https://127.0.0.1:"+port+"/"); err != nil {
			t.Errorf("%s: %v", allow, err)
		}
	}

	// Plain HTTP goes to what is allowed alone.
	plain := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { *hits++ }))
	defer plain.Close()
	_, port, _ = net.SplitHostPort(plain.Listener.Addr().String())
	was := *hits
	if err := send(senderFor(s, "10.0.0.0/8"), "http://localhost:"+port+"/"); err == nil || *hits != was {
		t.Errorf("plain HTTP beyond the allowed ranges: %v", err)
	}
	for _, allow := range []string{"localhost", "127.0.0.0/8"} {
		if err := send(senderFor(s, allow, "::1"), "http://localhost:"+port+"/"); err != nil {
			t.Errorf("%s: %v", allow, err)
		}
	}
	sender := senderFor(s)
	if err := sender.permit("93.184.216.34:80", true); !errors.Is(err, errPlain) {
		t.Errorf("plain HTTP to the Internet: %v", err)
	}
	if err := sender.permit("93.184.216.34:443", false); err != nil {
		t.Error(err)
	}
}

func TestSendInTime(t *testing.T) {
	s, _ := receiver(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only then the server sees that the caller has gone
		<-r.Context().Done()
	})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := senderFor(s, "127.0.0.0/8").Send(ctx, Message{ID: "msg_1", URL: s.URL, Body: []byte(`{}`), Secrets: []string{NewSecret()}}, time.Now())
	if err == nil || !strings.Contains(err.Error(), "too long") {
		t.Errorf("%v", err)
	}
	if sender := senderFor(s); sender.client.Timeout == 0 || sender.client.Timeout > time.Minute {
		t.Error("an attempt is not bounded")
	}
}

func FuzzCheck(f *testing.F) {
	for _, s := range []string{"https://example.com/", "http://[::1]:80/", "https://a@b/", "https://127.0.0.1", "https://[fe80::1%25x]/", "//", "https://\x00", "https://0x7f.1/"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		fault, fix := Allow{}.Check(raw)
		if (fault == "") != (fix == "") {
			t.Errorf("%q: a fault %q with the fix %q", raw, fault, fix)
		}
		if fault != "" {
			return
		}
		req, err := http.NewRequest(http.MethodPost, raw, nil)
		if err != nil {
			t.Fatalf("%q may be kept, and is no address: %v", raw, err)
		}
		if req.URL.Scheme != "https" || req.URL.User != nil {
			t.Errorf("%q may be kept", raw)
		}
		if ip, err := netip.ParseAddr(req.URL.Hostname()); err == nil && !public(ip) {
			t.Errorf("%q may be kept", raw)
		}
		_ = Host(raw)
	})
}

func FuzzVerify(f *testing.F) {
	secret := NewSecret()
	f.Add("msg_1", "1614265330", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", []byte("{}"))
	f.Add("", "-1", "v1, v1,AAAA v2,x", []byte{})
	f.Fuzz(func(t *testing.T, id, at, signature string, body []byte) {
		h := http.Header{"Webhook-Id": {id}, "Webhook-Timestamp": {at}, "Webhook-Signature": {signature}}
		if Verify(h, body, secret, time.Unix(1614265330, 0)) == nil {
			t.Errorf("%q %q %q is taken for genuine", id, at, signature)
		}
	})
}
