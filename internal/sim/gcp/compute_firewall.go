package gcp

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

func (e *Compute) firewallKind() *kind {
	return &kind{
		collection: "firewalls", noun: "firewall", schema: "Firewall", resources: map[string]string{"": "firewalls"},
		takes: map[string]time.Duration{"insert": 8 * time.Second, "delete": 8 * time.Second},
		prepare: func(r *request, _ string, doc Doc) error {
			if str(doc, "network") == "" {
				doc["network"] = selfLink("projects/" + r.Project.ID + "/global/networks/default")
			}
			net, err := e.link(r.Project.ID, "resource.network", str(doc, "network"), "networks")
			if err != nil {
				return err
			}
			doc["network"] = selfLink(net.Path)
			setDefault(doc, "description", "")
			setDefault(doc, "logConfig", Doc{"enable": false})
			setDefault(doc, "priority", float64(1000))
			setDefault(doc, "direction", "INGRESS")
			setDefault(doc, "disabled", false)
			if err := checkFirewall(doc); err != nil {
				return err
			}
			fillFirewall(doc)
			return nil
		},
		parents: func(res *Resource) []string { return []string{e.networkOf(res)} },
		quota:   func(*Resource) map[string]float64 { return map[string]float64{"FIREWALLS": 1} },
	}
}

// fillFirewall makes a rule that names no sources or destinations one for everybody.
func fillFirewall(doc Doc) {
	if str(doc, "direction") == "EGRESS" {
		if len(list(doc, "destinationRanges")) == 0 {
			doc["destinationRanges"] = []any{"0.0.0.0/0"}
		}
	} else if len(list(doc, "sourceRanges"))+len(list(doc, "sourceTags"))+len(list(doc, "sourceServiceAccounts")) == 0 {
		doc["sourceRanges"] = []any{"0.0.0.0/0"}
	}
}

// changeFirewall is patch or update. A patch leaves alone what it does not name; an update replaces the rule.
func (e *Compute) changeFirewall(opType string) operation {
	return func(r *request) (any, error) {
		res, err := e.change(r, e.kinds["firewalls"])
		if err != nil {
			return nil, err
		}
		doc := clone(res.Doc)
		if opType == "update" {
			for _, f := range []string{"allowed", "denied", "sourceRanges", "destinationRanges", "sourceTags", "targetTags", "sourceServiceAccounts",
				"targetServiceAccounts", "description", "logConfig"} {
				delete(doc, f)
			}
			doc["disabled"], doc["priority"] = false, float64(1000)
		}
		for _, fixed := range []string{"network", "direction"} {
			given := str(r.Body, fixed)
			same := given == str(doc, fixed) || (fixed == "network" && e.cloud.pathOfLink(r.Project.ID, given) == e.networkOf(res))
			if given != "" && !same {
				return nil, invalidField("resource."+fixed, given, "The "+fixed+" of a firewall rule cannot be changed.")
			}
		}
		merge(doc, r.Body)
		if err := checkFirewall(doc); err != nil {
			return nil, err
		}
		fillFirewall(doc)
		doc["network"] = selfLink(e.networkOf(res))
		return e.start(r, change{Type: opType, Target: res, Action: actReplace, Doc: doc}), nil
	}
}

var (
	tagPattern  = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`)
	withPorts   = []string{"tcp", "udp", "sctp", "6", "17", "132"}
	protocols   = []string{"tcp", "udp", "icmp", "esp", "ah", "ipip", "sctp", "all"}
	portPattern = regexp.MustCompile(`^(\d{1,5})(?:-(\d{1,5}))?$`)
)

// checkFirewall refuses a rule that is none ("Firewall rule components", VPC).
func checkFirewall(doc Doc) error {
	allowed, denied := docs(doc, "allowed"), docs(doc, "denied")
	if (len(allowed) == 0) == (len(denied) == 0) {
		return invalidField("resource.allowed", "", "Exactly one of 'allowed' and 'denied' must be specified.")
	}
	if p := num(doc, "priority"); p < 0 || p > 65535 {
		return invalidField("resource.priority", p, "Must be between 0 and 65535.")
	}
	egress := str(doc, "direction") == "EGRESS"
	for _, f := range []string{"sourceRanges", "sourceTags", "sourceServiceAccounts"} {
		if egress && len(list(doc, f)) > 0 && f != "sourceRanges" {
			return invalidField("resource."+f, "", "Source tags and service accounts cannot be specified for an EGRESS rule.")
		}
	}
	accounts := len(list(doc, "sourceServiceAccounts"))+len(list(doc, "targetServiceAccounts")) > 0
	if accounts && len(list(doc, "sourceTags"))+len(list(doc, "targetTags")) > 0 {
		return invalidField("resource.targetTags", "", "Tags and service accounts cannot be used in the same rule.")
	}
	for _, f := range []string{"sourceRanges", "destinationRanges"} {
		if err := checkFirewallRanges("resource."+f, texts(doc, f)); err != nil {
			return err
		}
	}
	for _, f := range []string{"sourceTags", "targetTags"} {
		for i, tag := range texts(doc, f) {
			if !tagPattern.MatchString(tag) {
				return invalidField(fmt.Sprintf("resource.%s[%d]", f, i), tag, "Must be a match of regex '(?:[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?)'")
			}
		}
	}
	for i, rule := range slices.Concat(allowed, denied) {
		if err := checkProtocol(fmt.Sprintf("resource.allowed[%d]", i), rule); err != nil {
			return err
		}
	}
	return nil
}

// maxRanges is how many ranges a rule may have ("Quotas and limits", VPC).
const maxRanges = 5000

func checkFirewallRanges(field string, ranges []string) error {
	if len(ranges) > maxRanges {
		return invalidField(field, "", fmt.Sprintf("A rule may have at most %d ranges.", maxRanges))
	}
	for i, text := range ranges {
		at := fmt.Sprintf("%s[%d]", field, i)
		if !strings.Contains(text, "/") {
			if _, err := netip.ParseAddr(text); err == nil {
				continue // a single address
			}
		}
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return invalidField(at, text, "Must be a valid IP address or CIDR range.")
		}
		if p.Masked() != p {
			return invalidField(at, text, "The CIDR range has bits set beyond its prefix length. Did you mean "+p.Masked().String()+"?")
		}
	}
	return nil
}

func checkProtocol(field string, rule Doc) error {
	proto := strings.ToLower(str(rule, "IPProtocol"))
	if proto == "" {
		return refuse(400, "required", "Required field '%s.IPProtocol' not specified", field)
	}
	if n, err := strconv.Atoi(proto); (err != nil && !slices.Contains(protocols, proto)) || (err == nil && (n < 0 || n > 255)) {
		return invalidField(field+".IPProtocol", str(rule, "IPProtocol"), "Must be a valid IP protocol name or number.")
	}
	ports := texts(rule, "ports")
	if len(ports) > 0 && !slices.Contains(withPorts, proto) {
		return invalidField(field+".ports", ports[0], "Ports may only be specified for TCP, UDP and SCTP.")
	}
	for i, p := range ports {
		m := portPattern.FindStringSubmatch(p)
		if m == nil || tooHigh(m[1]) || tooHigh(m[2]) || (m[2] != "" && atoi(m[1]) > atoi(m[2])) {
			return invalidField(fmt.Sprintf("%s.ports[%d]", field, i), p, "Must be a port or a port range.")
		}
	}
	return nil
}

func atoi(s string) int { n, _ := strconv.Atoi(s); return n }

func tooHigh(port string) bool { return atoi(port) > 65535 }
