package azure

import (
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v10"
)

const (
	nsgType  = "Microsoft.Network/networkSecurityGroups"
	ruleType = nsgType + "/securityRules"
)

var nsgRules = nested{property: "securityRules", typ: ruleType}

func (c *Cloud) addSecurityGroups() {
	c.addKind(c.networkKind(&kind{
		typ: nsgType, model: func() any { return &armnetwork.SecurityGroup{} },
		put: c.putSecurityGroup, remove: c.removeSecurityGroup,
		settled: func(_ *Operation, res *Resource) { c.settleTree(res) },
		show: func(r *request, res *Resource, body doc) {
			c.showNested(r, res, body, nsgRules)
			p := body.sub("properties")
			p["defaultSecurityRules"] = defaultSecurityRules(res)
			if l := c.usersAt(res.ID, subnetType); len(l) > 0 {
				p["subnets"] = refList(l)
			}
			if l := c.interfacesAt(res.ID); len(l) > 0 {
				p["networkInterfaces"] = refList(l)
			}
		},
	}))
	c.addKind(c.networkKind(&kind{
		typ: ruleType, model: func() any { return &armnetwork.SecurityRule{} }, put: c.putRule,
		remove: func(_ *request, res *Resource) (outcome, error) {
			return c.leaving(res, 1, 2*time.Second, 5*time.Second)
		},
		settled: func(_ *Operation, res *Resource) { c.settleTree(res) },
	}))
}

// interfacesAt are the interfaces that refer to an ID, those of scale sets' instances included.
func (c *Cloud) interfacesAt(id string) []string {
	var out []string
	for _, u := range c.usesOf(id) {
		if lastOf(u.by.Type) == "networkInterfaces" && !slices.Contains(out, u.by.ID) {
			out = append(out, u.by.ID)
		}
	}
	return out
}

func (c *Cloud) putSecurityGroup(r *request, now, old *Resource) (outcome, error) {
	if err := c.withinQuota(now, old, "NetworkSecurityGroups", "NetworkSecurityGroupCountLimitReached", "Cannot create more than %d network security groups for this subscription in this region."); err != nil {
		return outcome{}, err
	}
	for _, p := range readOnly {
		delete(now.Properties, p)
	}
	c.identify(now, old)
	was := c.treeText(now.ID)
	c.keep(now)
	if err := c.putNested(r, now, nsgRules); err != nil {
		return outcome{}, err
	}
	if err := c.rulesAgree(now.ID); err != nil {
		return outcome{}, err
	}
	if unchanged(now, old) && was == c.treeText(now.ID) {
		c.settleTree(now)
		return nothingToDo, nil
	}
	return c.writing(now, 1, 2*time.Second, 6*time.Second)
}

func (c *Cloud) removeSecurityGroup(_ *request, res *Resource) (outcome, error) {
	if users := c.usersAt(res.ID); len(users) > 0 {
		return outcome{}, refuseNetwork(http.StatusBadRequest, "InUseNetworkSecurityGroupCannotBeDeleted",
			"Network security group %s cannot be deleted because it is in use by the following resources: %s. In order to delete the Network security group, remove the association with the resource(s). To learn how to do this, see aka.ms/deletensg.",
			res.ID, strings.Join(users, ", "))
	}
	return c.leaving(res, 1, 2*time.Second, 6*time.Second)
}

// required refuses a body without some of its properties.
func required(p doc, names ...string) error {
	for _, name := range names {
		if !p.has(name) {
			return refuse(http.StatusBadRequest, "InvalidRequestFormat", "Cannot parse the request.").
				with(refuse(0, "MissingJsonRequiredProperty", "Required property '%s' not found in JSON. Path 'properties'.", name))
		}
	}
	return nil
}

func (c *Cloud) putRule(r *request, now, old *Resource) (outcome, error) {
	p := now.Properties
	if err := required(p, "protocol", "access", "direction", "priority"); err != nil {
		return outcome{}, err
	}
	if n := p.num("priority"); n < 100 || n > 4096 {
		return outcome{}, refuseNetwork(http.StatusBadRequest, "SecurityRuleInvalidPriority", "Security rule has invalid Priority. Value provided: %v Allowed range 100-4096.", n)
	}
	for _, end := range []string{"source", "destination"} {
		if err := checkEnd(now, end); err != nil {
			return outcome{}, err
		}
	}
	nsg := c.find(parentOf(now.ID))
	limit, _ := c.World.QuotaValue("azure", "network", "SecurityRulesPerNetworkSecurityGroup", subscriptionOf(now.ID), nsg.Location)
	if old == nil && float64(len(c.children(nsg.ID, ruleType))) >= limit {
		return outcome{}, refuseNetwork(http.StatusBadRequest, "SecurityRuleCountLimitReached", "Cannot create more than %d security rules in network security group %s.", int(limit), nsg.ID)
	}
	for _, list := range []string{"sourcePortRanges", "destinationPortRanges", "sourceAddressPrefixes", "destinationAddressPrefixes"} {
		p.def(list, []any{})
	}
	if !r.nesting {
		c.keep(now)
		if err := c.rulesAgree(nsg.ID); err != nil {
			return outcome{}, err
		}
	}
	if unchanged(now, old) {
		return nothingToDo, nil
	}
	return c.writing(now, 1, 2*time.Second, 5*time.Second)
}

// rulesAgree refuses two rules with the same priority and direction.
func (c *Cloud) rulesAgree(nsg string) error {
	seen := map[string]string{}
	for _, rule := range c.children(nsg, ruleType) {
		k := strings.ToLower(rule.Properties.str("direction")) + strconv.Itoa(int(rule.Properties.num("priority")))
		if other, taken := seen[k]; taken {
			return refuseNetwork(http.StatusBadRequest, "SecurityRuleConflict",
				"Security rule %s conflicts with rule %s. Rules cannot have the same Priority and Direction. To learn more, see aka.ms/nsgrules.", other, rule.Name)
		}
		seen[k] = rule.Name
	}
	return nil
}

// checkEnd checks the ports and addresses of one end of a rule.
func checkEnd(rule *Resource, end string) error {
	p := rule.Properties
	ports := p.strs(end + "PortRanges")
	if one := p.str(end + "PortRange"); one != "" {
		ports = append(ports, one)
	}
	if len(ports) == 0 {
		return refuseNetwork(http.StatusBadRequest, "SecurityRuleParameterMissing", "Security rule %s must have a value for %sPortRange or %sPortRanges.", rule.Name, end, end)
	}
	for _, port := range ports {
		if !validPorts(port) {
			return refuseNetwork(http.StatusBadRequest, "SecurityRuleInvalidPortRange",
				"Security rule has invalid Port range. Value provided: %s. Value should be an integer OR integer range with '-' delimiter. Valid range 0-65535.", port)
		}
	}
	addresses := p.strs(end + "AddressPrefixes")
	if one := p.str(end + "AddressPrefix"); one != "" {
		addresses = append(addresses, one)
	}
	if len(addresses) == 0 && !p.has(end+"ApplicationSecurityGroups") {
		return refuseNetwork(http.StatusBadRequest, "SecurityRuleParameterMissing", "Security rule %s must have a value for %sAddressPrefix or %sAddressPrefixes.", rule.Name, end, end)
	}
	for _, a := range addresses {
		if !validAddress(a) {
			return refuseNetwork(http.StatusBadRequest, "SecurityRuleInvalidAddressPrefix",
				"Security rule %s has invalid Address prefix. Value provided: %s.", rule.Name, a)
		}
	}
	return nil
}

func validPorts(s string) bool {
	if s == "*" {
		return true
	}
	from, to, ranged := strings.Cut(s, "-")
	a, err := strconv.Atoi(from)
	b := a
	if err == nil && ranged {
		b, err = strconv.Atoi(to)
	}
	return err == nil && a >= 0 && a <= b && b <= 65535
}

// validAddress takes a prefix, an address, * or a service tag.
func validAddress(s string) bool {
	if s == "" {
		return false
	}
	if strings.ContainsAny(s, "/:") {
		_, err := netip.ParsePrefix(s)
		if err != nil {
			_, err = netip.ParseAddr(s)
		}
		return err == nil
	}
	if s[0] >= '0' && s[0] <= '9' {
		_, err := netip.ParseAddr(s)
		return err == nil
	}
	return true
}

// defaultSecurityRules are those that every group has ("Network security groups", default security rules).
func defaultSecurityRules(nsg *Resource) []any {
	var out []any
	for _, d := range []struct {
		name, description, from, to, access, direction string
		priority                                       int
	}{
		{"AllowVnetInBound", "Allow inbound traffic from all VMs in VNET", "VirtualNetwork", "VirtualNetwork", "Allow", "Inbound", 65000},
		{"AllowAzureLoadBalancerInBound", "Allow inbound traffic from azure load balancer", "AzureLoadBalancer", "*", "Allow", "Inbound", 65001},
		{"DenyAllInBound", "Deny all inbound traffic", "*", "*", "Deny", "Inbound", 65500},
		{"AllowVnetOutBound", "Allow outbound traffic from all VMs to all VMs in VNET", "VirtualNetwork", "VirtualNetwork", "Allow", "Outbound", 65000},
		{"AllowInternetOutBound", "Allow outbound traffic from all VMs to Internet", "*", "Internet", "Allow", "Outbound", 65001},
		{"DenyAllOutBound", "Deny all outbound traffic", "*", "*", "Deny", "Outbound", 65500},
	} {
		out = append(out, map[string]any{"name": d.name, "id": nsg.ID + "/defaultSecurityRules/" + d.name, "etag": nsg.Etag, "type": nsgType + "/defaultSecurityRules",
			"properties": map[string]any{"provisioningState": nsg.State, "description": d.description, "protocol": "*", "sourcePortRange": "*", "destinationPortRange": "*",
				"sourceAddressPrefix": d.from, "destinationAddressPrefix": d.to, "access": d.access, "priority": d.priority, "direction": d.direction,
				"sourcePortRanges": []any{}, "destinationPortRanges": []any{}, "sourceAddressPrefixes": []any{}, "destinationAddressPrefixes": []any{}}})
	}
	return out
}
