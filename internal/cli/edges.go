package cli

import (
	"net/netip"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// EdgeOptions are how a server meets the network.
type EdgeOptions struct {
	TLSCert, TLSKey string         // PEM files; both or none
	InsecureBind    bool           // listen beyond this machine without TLS
	TrustedProxies  []netip.Prefix // whose X-Forwarded-For is believed
	TrustUnix       bool           // and that of whoever connects to a Unix socket

	PerToken   float64 // requests a second that one token may send for long; 0: no bound
	PerAddress float64 // likewise of one address

	WebhookAllow []string // ranges and hosts that webhooks may be at besides the Internet

	proxies []string // as they were written
}

// edgeFlags are the flags of how a server meets the network. --bind is another name
// of --listen.
func edgeFlags(cmd *cobra.Command, o *EdgeOptions) {
	cmd.Flags().StringVar(&o.TLSCert, "tls-cert", "", "`file` with the certificate chain to serve with (PEM); read again when it changes")
	cmd.Flags().StringVar(&o.TLSKey, "tls-key", "", "`file` with its key (PEM), which others on the machine must not be able to read")
	cmd.Flags().BoolVar(&o.InsecureBind, "insecure-bind", false, "listen beyond this machine without TLS: whoever is on the way reads the tokens")
	cmd.Flags().StringSliceVar(&o.proxies, "trusted-proxy", nil, "`range` of addresses of a proxy whose X-Forwarded-For is believed, or unix; may be repeated")
	cmd.Flags().Float64Var(&o.PerToken, "rate-limit", 100, "requests a `second` that one token may send for long, four times as many at once; 0 is no bound")
	cmd.Flags().Float64Var(&o.PerAddress, "rate-limit-address", 200, "requests a `second` that one address may send for long, likewise; far less after wrong tokens")
	cmd.Flags().StringSliceVar(&o.WebhookAllow, "webhook-allow", nil, "`range` of addresses, or host, that webhooks may be at although it is not on the Internet, also without TLS; may be repeated")
	cmd.Flags().SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "bind" {
			name = "listen"
		}
		return pflag.NormalizedName(name)
	})
}

// read checks the options, and reads those that are lists.
func (o *EdgeOptions) read() error {
	if (o.TLSCert == "") != (o.TLSKey == "") {
		return usagef("--tls-cert and --tls-key go together; name both files, or neither")
	}
	for flag, v := range map[string]float64{"rate-limit": o.PerToken, "rate-limit-address": o.PerAddress} {
		if !(v >= 0 && v <= 1e6) { // also what is no number
			return usagef("--%s is %v; use 0 to 1000000 requests a second", flag, v)
		}
	}
	o.TrustedProxies, o.TrustUnix = nil, false
	for _, text := range o.proxies {
		text = strings.TrimSpace(text)
		p, err := netip.ParsePrefix(text)
		if a, aerr := netip.ParseAddr(text); err != nil && aerr == nil {
			p, err = netip.PrefixFrom(a, a.BitLen()), nil
		}
		switch {
		case text == "unix":
			o.TrustUnix = true
		case err != nil || p.Bits() == 0:
			return usagef("--trusted-proxy %q is not a range of addresses such as 10.0.0.0/8, one address, or unix", text)
		default:
			o.TrustedProxies = append(o.TrustedProxies, p.Masked())
		}
	}
	return nil
}
