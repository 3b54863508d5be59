package api

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// raw sends bytes as they are and reads what comes back: the statuses of all answers,
// and the body of the first. The connection is closed by the server, or the test fails.
func (r *rig) raw(t *testing.T, text string) (statuses []int, first *http.Response, body string) {
	t.Helper()
	conn, err := net.Dial("tcp", r.server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	go func() { _, _ = io.WriteString(conn, text) }() // the server may hang up in between
	in := bufio.NewReader(conn)
	for {
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			return statuses, first, body
		}
		b, _ := io.ReadAll(resp.Body)
		if first == nil {
			first, body = resp, string(b)
		}
		statuses = append(statuses, resp.StatusCode)
		if resp.Close {
			return statuses, first, body
		}
	}
}

// TestWire sends what no client of HTTP sends, byte by byte.
func TestWire(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.create(vmJob("shop"))
	auth := "Authorization: Bearer " + viewerToken + "\r\n"
	const host, end = "Host: localhost\r\n", "Connection: close\r\n\r\n"
	smuggled := "DELETE /provisioning-jobs/" + v.ID + " HTTP/1.1\r\n" + host + "Authorization: Bearer " + adminToken + "\r\n\r\n"
	for _, tc := range []struct {
		name, text string
		want       int // of the first answer; 0: the connection is closed without one
	}{
		{"two tokens", "GET /provisioning-jobs HTTP/1.1\r\n" + host + auth + "Authorization: Bearer " + adminToken + "\r\n" + end, 400},
		{"two tokens, the wrong one first", "GET /provisioning-jobs HTTP/1.1\r\n" + host + "authorization: Bearer x\r\n" + auth + end, 400},
		{"two types", "POST /provisioning-jobs HTTP/1.1\r\n" + host + auth + "Content-Type: application/json\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n" + end + "{}", 400},
		{"two idempotency keys", "POST /provisioning-jobs HTTP/1.1\r\n" + host + auth + "Idempotency-Key: a\r\nIdempotency-Key: b\r\nContent-Type: application/json\r\nContent-Length: 2\r\n" + end + "{}", 400},
		{"two hosts", "GET /healthz HTTP/1.1\r\n" + host + "Host: evil.example\r\n" + end, 400},
		{"no host", "GET /healthz HTTP/1.1\r\n" + end, 400},
		{"a host that is none", "GET /healthz HTTP/1.1\r\nHost: a b\r\n" + end, 400},
		{"two lengths", "POST /provisioning-jobs HTTP/1.1\r\n" + host + auth + "Content-Length: 0\r\nContent-Length: 200\r\n\r\n" + smuggled, 400},
		{"a list of lengths", "POST /provisioning-jobs HTTP/1.1\r\n" + host + auth + "Content-Length: 0, 200\r\n\r\n" + smuggled, 400},
		{"a signed length", "POST /provisioning-jobs HTTP/1.1\r\n" + host + auth + "Content-Length: +0\r\n\r\n" + smuggled, 400},
		{"an unknown coding", "POST /provisioning-jobs HTTP/1.1\r\n" + host + auth + "Transfer-Encoding: gzip, chunked\r\n\r\n" + smuggled, 501},
		{"a coding with a blank", "POST /provisioning-jobs HTTP/1.1\r\n" + host + auth + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + smuggled, 400},
		{"a coding twice", "POST /provisioning-jobs HTTP/1.1\r\n" + host + auth + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n" + smuggled, 501},
		{"a chunk of no size", "POST /provisioning-jobs HTTP/1.1\r\n" + host + auth + "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n", 400},
		{"a folded header", "GET /provisioning-jobs HTTP/1.1\r\n" + host + "X-A: b\r\n Authorization: Bearer " + adminToken + "\r\n" + end, 401},
		{"a NUL in a header", "GET /provisioning-jobs HTTP/1.1\r\n" + host + "X-A: b\x00c\r\n" + end, 400},
		{"a header without a name", "GET /provisioning-jobs HTTP/1.1\r\n" + host + ": b\r\n" + end, 400},
		{"a NUL in the path", "GET /provisioning-jobs/a\x00b HTTP/1.1\r\n" + host + auth + end, 400},
		{"a control character in the path", "GET /provisioning-jobs/a\x01b HTTP/1.1\r\n" + host + auth + end, 400},
		{"an encoded NUL", "GET /provisioning-jobs/a%00b HTTP/1.1\r\n" + host + auth + end, 404},
		{"an encoded line", "GET /provisioning-jobs/a%0d%0aX-Evil:%20b HTTP/1.1\r\n" + host + auth + end, 404},
		{"an encoded slash", "GET /provisioning-jobs%2f" + v.ID + " HTTP/1.1\r\n" + host + auth + end, 404},
		{"a slash in an ID", "GET /provisioning-jobs/" + v.ID + "%2fevents HTTP/1.1\r\n" + host + auth + end, 404},
		{"a broken escape", "GET /provisioning-jobs/%zz HTTP/1.1\r\n" + host + auth + end, 400},
		{"an absolute address", "GET http://evil.example/provisioning-jobs/" + v.ID + " HTTP/1.1\r\n" + host + auth + end, 200},
		{"the numbers by an absolute address", "GET http://evil.example/metrics HTTP/1.1\r\n" + host + end, 401},
		{"HTTP/1.0", "GET /provisioning-jobs HTTP/1.0\r\n" + auth + "\r\n", 200},
		{"HTTP/0.9", "GET /healthz\r\n\r\n", 400},
		{"HTTP/3", "GET /healthz HTTP/3.0\r\n" + host + end, 505},
		{"CONNECT", "CONNECT 169.254.169.254:80 HTTP/1.1\r\nHost: 169.254.169.254:80\r\n" + end, 404},
		{"CONNECT to a path", "CONNECT /provisioning-jobs HTTP/1.1\r\n" + host + end, 405},
		{"TRACE", "TRACE /provisioning-jobs HTTP/1.1\r\n" + host + auth + end, 405},
		{"OPTIONS", "OPTIONS * HTTP/1.1\r\n" + host + end, 200},
		{"no HTTP at all", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400},
		{"endless headers", "GET /healthz HTTP/1.1\r\n" + host + strings.Repeat("X-A: "+strings.Repeat("a", 1000)+"\r\n", 200) + end, 431},
		{"a hundred headers and more", "GET /healthz HTTP/1.1\r\n" + host + strings.Repeat("X-A: b\r\n", 150) + end, 431},
		{"a query of a million", "GET /provisioning-jobs?status=" + strings.Repeat("&status=a", 1_000_000) + " HTTP/1.1\r\n" + host + end, 431},
		{"ten megabytes announced", "POST /provisioning-jobs HTTP/1.1\r\n" + host + auth + "Content-Type: application/json\r\nContent-Length: 10485760\r\n\r\n{", 413},
		{"ten megabytes in chunks", "POST /provisioning-jobs HTTP/1.1\r\n" + host + auth + "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n" +
			strings.Repeat("10000\r\n"+strings.Repeat(" ", 0x10000)+"\r\n", 160) + "0\r\n\r\n", 413},
	} {
		t.Run(tc.name, func(t *testing.T) {
			began := time.Now()
			statuses, first, body := r.raw(t, tc.text)
			if len(statuses) == 0 || statuses[0] != tc.want {
				t.Fatalf("%v, want %d: %.200s", statuses, tc.want, body)
			}
			if tc.want != 200 && len(statuses) > 1 {
				t.Errorf("what came after was answered too: %v", statuses)
			}
			if first.Header.Get("X-Evil") != "" || first.Header.Get("Server") != "" || strings.Contains(body, adminToken) {
				t.Errorf("%v %s", first.Header, body)
			}
			if took := time.Since(began); took > 15*time.Second {
				t.Errorf("it took %s", took)
			}
		})
	}
	if got := r.do(adminToken, "GET", "/provisioning-jobs/"+v.ID, "").job(t); got.Version != v.Version {
		t.Error("a smuggled request changed the job")
	}
}

// TestMethodIsWhatItSays: headers and queries that name another method are not heard.
func TestMethodIsWhatItSays(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.create(vmJob("shop"))
	for _, h := range []string{"X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"} {
		if a := r.do(adminToken, "GET", "/provisioning-jobs/"+v.ID, "", h, "DELETE"); a.status != 200 {
			t.Errorf("%s: %d", h, a.status)
		}
	}
	if a := r.do(adminToken, "GET", "/provisioning-jobs/"+v.ID+"?_method=DELETE", ""); a.status != 422 {
		t.Errorf("_method: %d", a.status)
	}
	for _, h := range []string{"Host", "X-Forwarded-Host", "X-Original-Url", "X-Rewrite-Url"} {
		a := r.do(adminToken, "GET", "/provisioning-jobs/"+v.ID, "", h, "evil.example")
		if a.status != 200 || strings.Contains(string(a.body), "evil") || strings.Contains(fmt.Sprint(a.header), "evil") {
			t.Errorf("%s is heard: %d %v", h, a.status, a.header)
		}
	}
	if got := r.do(adminToken, "GET", "/provisioning-jobs/"+v.ID, "").job(t); got.Version != v.Version {
		t.Error("the job was changed")
	}
}

// TestSlowCallers: headers and bodies that drip are cut off, and a stream of events
// that is open for longer than a request may take to arrive is not.
func TestSlowCallers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.create(vmJob("shop"))
	s := Server("", r.api.outer(r.api.mux))
	s.ReadHeaderTimeout, s.ReadTimeout = 300*time.Millisecond, 600*time.Millisecond
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = s.Serve(l) }() // it ends with the test
	t.Cleanup(func() { _ = s.Close() })
	for name, head := range map[string]string{
		"headers": "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-A: ",
		"a body":  "POST /provisioning-jobs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + adminToken + "\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n",
	} {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		began := time.Now()
		if _, err := io.WriteString(conn, head); err != nil {
			t.Fatal(err)
		}
		go func() {
			for range 200 {
				if _, err := io.WriteString(conn, "a"); err != nil {
					return
				}
				time.Sleep(50 * time.Millisecond)
			}
		}()
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		_, _ = io.Copy(io.Discard, conn) // until the server hangs up
		if took := time.Since(began); took > 8*time.Second {
			t.Errorf("slow %s are listened to for %s", name, took)
		}
	}

	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+l.Addr().String()+"/provisioning-jobs/"+v.ID+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+viewerToken)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	ended := make(chan struct{})
	go func() { defer close(ended); _, _ = io.Copy(io.Discard, resp.Body) }()
	select {
	case <-ended:
		t.Error("a stream ended with the time that a request may take to arrive")
	case <-time.After(2 * time.Second):
	}
}
