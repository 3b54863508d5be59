package azure

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v10"
)

// An opening is an inbound rule that lets in more than it should, with the
// hardening control that asks for it.
type opening struct{ control, rule, text string }

// openRules are the rules of a security group that let the internet in where
// that is a risk, in the group's own rules; the platform's do not.
func openRules(x armnetwork.SecurityGroup) []opening {
	var out []opening
	if x.Properties == nil {
		return nil
	}
	for _, rule := range x.Properties.SecurityRules {
		f := value(rule.Properties)
		if value(f.Access) != armnetwork.SecurityRuleAccessAllow || value(f.Direction) != armnetwork.SecurityRuleDirectionInbound {
			continue
		}
		name := value(rule.Name)
		text := fmt.Sprintf("%s (%s)", name, ruleText(rule.Properties))
		sources := both(f.SourceAddressPrefix, f.SourceAddressPrefixes)
		if slices.Contains(sources, "*") {
			out = append(out, opening{"NETZ-07", name, text})
		}
		if !slices.ContainsFunc(sources, anywhere) {
			continue
		}
		ports := both(f.DestinationPortRange, f.DestinationPortRanges)
		for _, c := range []struct {
			port    int
			control string
		}{{22, "NETZ-03"}, {3389, "NETZ-04"}} {
			if admits(ports, c.port) && admitsTCP(f) {
				out = append(out, opening{c.control, name, text})
			}
		}
		if p := value(f.Protocol); p == armnetwork.SecurityRuleProtocolUDP || p == armnetwork.SecurityRuleProtocolAsterisk {
			out = append(out, opening{"NETZ-05", name, text})
		}
		if (admits(ports, 80) || admits(ports, 443)) && admitsTCP(f) {
			out = append(out, opening{"NETZ-06", name, text})
		}
	}
	return out
}

// anywhere reports whether a source takes in the internet.
func anywhere(source string) bool {
	return source == "*" || source == "0.0.0.0/0" || source == "::/0" || strings.EqualFold(source, "Internet") || strings.EqualFold(source, "Any")
}

func admitsTCP(f armnetwork.SecurityRulePropertiesFormat) bool {
	p := value(f.Protocol)
	return p == armnetwork.SecurityRuleProtocolTCP || p == armnetwork.SecurityRuleProtocolAsterisk
}

// admits reports whether a list of ports and ranges of ports holds one.
func admits(ranges []string, port int) bool {
	for _, s := range ranges {
		first, last, isRange := strings.Cut(s, "-")
		if !isRange {
			last = first
		}
		lo, err1 := strconv.Atoi(first)
		hi, err2 := strconv.Atoi(last)
		if s == "*" || err1 == nil && err2 == nil && lo <= port && port <= hi {
			return true
		}
	}
	return false
}
