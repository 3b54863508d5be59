package cli

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

func TestEdgeOptions(t *testing.T) {
	for _, tc := range []struct {
		o    EdgeOptions
		want string // the proxies, or "refused"
	}{
		{EdgeOptions{}, "[] false"},
		{EdgeOptions{proxies: []string{"10.0.0.0/8", " 192.0.2.7 ", "2001:db8::/32"}}, "[10.0.0.0/8 192.0.2.7/32 2001:db8::/32] false"},
		{EdgeOptions{proxies: []string{"10.1.2.3/8", "unix"}}, "[10.0.0.0/8] true"},
		{EdgeOptions{proxies: []string{"0.0.0.0/0"}}, "refused"},
		{EdgeOptions{proxies: []string{"::/0"}}, "refused"},
		{EdgeOptions{proxies: []string{"proxy.example.com"}}, "refused"},
		{EdgeOptions{proxies: []string{""}}, "refused"},
		{EdgeOptions{TLSCert: "a"}, "refused"},
		{EdgeOptions{TLSKey: "a"}, "refused"},
		{EdgeOptions{TLSCert: "a", TLSKey: "b"}, "[] false"},
		{EdgeOptions{PerToken: -1}, "refused"},
		{EdgeOptions{PerAddress: math.NaN()}, "refused"},
		{EdgeOptions{PerAddress: math.Inf(1)}, "refused"},
	} {
		got := "refused"
		if err := tc.o.read(); err == nil {
			got = fmt.Sprint(tc.o.TrustedProxies, tc.o.TrustUnix)
		}
		if got != tc.want {
			t.Errorf("%+v: %s, want %s", tc.o, got, tc.want)
		}
	}
}

// TestBindIsInTheHelp: the other name of --listen is told.
func TestBindIsInTheHelp(t *testing.T) {
	if got := run(t, nil).do("serve", "--help"); !strings.Contains(got.out, "--bind is the same") {
		t.Errorf("exit code %d: %s", got.code, got.out)
	}
}
