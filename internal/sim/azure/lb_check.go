package azure

import (
	"net/http"
	"strings"
)

// checkParts judges what the sub-resources of a load balancer say of one another.
func (c *Cloud) checkParts(lb *Resource) error {
	p := lb.Properties
	inside := map[string]bool{}
	for _, list := range lbLists {
		for _, d := range p.docs(list) {
			inside[key(d.str("id"))] = true
		}
	}
	for _, list := range []string{lbRules, lbNATRules, lbNATPools, lbOutboundRules} {
		for _, d := range p.docs(list) {
			for _, ref := range partRefs(d) {
				if ref != "" && !inside[key(ref)] {
					return badReference(ref, d.str("id"))
				}
			}
			if list != lbOutboundRules && d.ref("properties.frontendIPConfiguration") == "" {
				return refuseNetwork(http.StatusBadRequest, "FrontendIPConfigurationMissing", "Resource %s must reference a frontend IP configuration.", d.str("id"))
			}
		}
	}
	for _, d := range p.docs(lbProbes) {
		if err := checkProbe(d); err != nil {
			return err
		}
	}
	if err := checkRules(p); err != nil {
		return err
	}
	return checkSNAT(p)
}

// partRefs lists what a rule refers to in its load balancer.
func partRefs(d doc) []string {
	refs := []string{d.ref("properties.frontendIPConfiguration"), d.ref("properties.backendAddressPool"), d.ref("properties.probe")}
	for _, list := range []string{"properties.backendAddressPools", "properties.frontendIPConfigurations"} {
		for _, r := range d.docs(list) {
			refs = append(refs, r.str("id"))
		}
	}
	return refs
}

func checkProbe(d doc) error {
	p := d.sub("properties")
	switch {
	case p.str("protocol") == "":
		return refuseNetwork(http.StatusBadRequest, "ProbeProtocolMissing", "Probe %s has no protocol.", d.str("id"))
	case p.num("port") < 1 || p.num("port") > 65535:
		return refuseNetwork(http.StatusBadRequest, "InvalidProbePort", "The port %v of probe %s is not in the range 1 to 65535.", p.num("port"), d.str("id"))
	case p.num("intervalInSeconds") < 5:
		return refuseNetwork(http.StatusBadRequest, "InvalidProbeInterval", "The interval of %v seconds of probe %s is too short. The minimum is 5 seconds.", p.num("intervalInSeconds"), d.str("id"))
	case !strings.EqualFold(p.str("protocol"), "Tcp") && p.str("requestPath") == "":
		return refuseNetwork(http.StatusBadRequest, "ProbeRequestPathMissing", "Probe %s with protocol %s must have a request path.", d.str("id"), p.str("protocol"))
	case strings.EqualFold(p.str("protocol"), "Tcp") && p.str("requestPath") != "":
		return refuseNetwork(http.StatusBadRequest, "ProbeRequestPathNotAllowed", "Probe %s with protocol Tcp cannot have a request path.", d.str("id"))
	}
	return nil
}

// checkRules: two rules must not take the same traffic, nor send theirs to the same port of the same pool.
func checkRules(p doc) error {
	front, back := map[string]string{}, map[string]string{}
	for _, d := range p.docs(lbRules) {
		r := d.sub("properties")
		if n := r.num("idleTimeoutInMinutes"); n < 4 || n > 100 {
			return refuseNetwork(http.StatusBadRequest, "InvalidIdleTimeout", "Idle timeout %v minutes of rule %s is not valid. It must be between 4 and 100.", n, d.str("id"))
		}
		proto := strings.ToLower(r.str("protocol"))
		at := strings.Join([]string{key(r.ref("frontendIPConfiguration")), proto, numText(r.num("frontendPort"))}, "|")
		if other := front[at]; other != "" {
			return refuseNetwork(http.StatusBadRequest, "RulesUseSameFrontendPortProtocolAndVIP", "Load balancing rules %s and %s use the same frontend port %s, protocol %s and frontend IP configuration %s.", other, d.str("id"), numText(r.num("frontendPort")), r.str("protocol"), r.ref("frontendIPConfiguration"))
		}
		front[at] = d.str("id")
		if r.ref("backendAddressPool") == "" || r.flag("enableFloatingIP") {
			continue
		}
		to := strings.Join([]string{key(r.ref("backendAddressPool")), proto, numText(r.num("backendPort"))}, "|")
		if other := back[to]; other != "" {
			return refuseNetwork(http.StatusBadRequest, "RulesUseSameBackendPortProtocolAndPool", "Load balancing rules %s and %s with floating IP disabled use the same protocol %s and backend port %s, and must not be used with the same backend address pool %s.", other, d.str("id"), r.str("protocol"), numText(r.num("backendPort")), r.ref("backendAddressPool"))
		}
		back[to] = d.str("id")
	}
	return nil
}

// checkSNAT: a frontend of an outbound rule may serve only rules that leave translation to it.
func checkSNAT(p doc) error {
	for _, out := range p.docs(lbOutboundRules) {
		for _, f := range out.docs("properties.frontendIPConfigurations") {
			for _, d := range p.docs(lbRules) {
				if strings.EqualFold(d.ref("properties.frontendIPConfiguration"), f.str("id")) && !d.flag("properties.disableOutboundSnat") {
					return refuseNetwork(http.StatusBadRequest, "LoadBalancingRuleMustDisableSNATSinceSameFrontendIPConfigurationIsReferencedByOutboundRule", "Load balancing rule %s must disable SNAT since same frontend ipconfiguration referenced by outbound rule %s is used by load balancing rule.", d.str("id"), out.str("id"))
				}
			}
		}
	}
	return nil
}
