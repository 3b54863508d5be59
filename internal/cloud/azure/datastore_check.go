package azure

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v10"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// storeBegun reports whether the server or cache was made, or is being made, with
// what was resolved.
func (c *checker) storeBegun() bool {
	kind, key := flavourOf(c.store.Engine).server, "server"
	if c.store.Engine.Cache() {
		kind, key = kindCache, "cache"
	}
	rec, ok := c.r.Object(kind, key)
	return ok && (rec.State == job.ObjectCreated || rec.State == job.ObjectIntended)
}

// storeProviders are the resource providers of a datastore or cache job.
func (c *checker) storeProviders() []string {
	switch c.r.Job.ResourceType {
	case job.Datastore:
		return []string{flavourOf(c.store.Engine).provider(), vaultProvider}
	case job.Cache:
		return []string{"Microsoft.Cache"}
	}
	return nil
}

// storeTypes are the types that a datastore or cache job writes.
func (c *checker) storeTypes() []string {
	types := []string{typePrivateZone, typePrivateZone + "/virtualNetworkLinks"}
	if c.r.Job.Mode == job.ModeCreate {
		types = append(types, typeVNet, typeVNet+"/subnets", typeGroupRules)
	}
	if c.r.Job.ResourceType == job.Cache {
		return append(types, typeCache, typeCache+"/databases", typeEndpoint, typeEndpoint+"/privateDnsZoneGroups")
	}
	return append(types, typeVault, typeRole, flavourOf(c.store.Engine).typ)
}

// storeNames are the uses of names that a datastore or cache job derives, with
// their longest.
func (c *checker) storeNames() map[string]int {
	const tail = len("-3")
	switch c.r.Job.ResourceType {
	case job.Datastore:
		return map[string]int{"": longestZoneName, "kv": longestVault - tail, "keep": longestLock, "final": longestBackup}
	case job.Cache:
		return map[string]int{"": longestCache - tail, "keep": longestLock, "endpoint": longestName}
	}
	return nil
}

// free asks whether a global name is free, and gives up one that is not for the
// next (failure kinds B4, B7). One that can be seen where the job's own would be is
// the job's, or somebody else's, which is said (B5).
func (c *checker) free(ctx context.Context, check, path, typ string, name func() string) ([]cloud.Check, error) {
	for {
		x, err := read[struct{}](ctx, c.Provider, c.idIn(c.r, typ, name()))
		switch {
		case err == nil && x.Tags[job.MarkOwner] == c.r.Job.ID:
			return []cloud.Check{passes(check, "%s is the job's", name())}, nil
		case err == nil:
			return []cloud.Check{fails(check, "name", fmt.Sprintf("%s exists already and is somebody else's", x.ID), "Rename or remove it, or give the job another name.")}, nil
		case !pipeline.Is(err, pipeline.NotFound):
			return c.or(ctx, check, "name", err)
		}
		var answer struct {
			Free    *bool  `json:"nameAvailable"`
			Reason  string `json:"reason"`
			Message string `json:"message"`
		}
		got, err := c.request(ctx, http.MethodPost, path, map[string]string{"name": name(), "type": typ}, nil)
		if err == nil {
			err = got.into(&answer)
		}
		switch {
		case err != nil:
			return c.or(ctx, check, "name", err)
		case answer.Free == nil || *answer.Free:
			return []cloud.Check{passes(check, "%s is free", name())}, nil
		case !strings.EqualFold(answer.Reason, "AlreadyExists"):
			return []cloud.Check{fails(check, "name", fmt.Sprintf("the name %s is not taken: %s", name(), answer.Message), "Give the job another name.")}, nil
		case c.ic.Datastore.NameTries >= mostNameTries:
			return []cloud.Check{fails(check, "name", fmt.Sprintf("the name %s is in use or held, and so are those before it: %s", name(), answer.Message), "Give the job another name, or retry some days after what had it was deleted.")}, nil
		}
		c.ic.Datastore.NameTries++
	}
}

// vaultName asks whether the vault's name is free everywhere.
func (c *checker) vaultName(ctx context.Context) ([]cloud.Check, error) {
	if _, known := c.r.Object(kindVault, "vault"); known || c.r.Mode == pipeline.Verify {
		return nil, nil
	}
	name := func() string { return tried(c.r.Job, "kv", longestVault) }
	if !validVault.MatchString(name()) {
		return []cloud.Check{fails("vault name", "name", "the name "+name()+" is not one that Key Vault takes", "Give the job another name.")}, nil
	}
	return c.free(ctx, "vault name", managementPrefix+c.subscription+"/providers/"+vaultProvider+"/checkNameAvailability", typeVault, name)
}

// serverName asks whether the server's name is free everywhere.
func (c *checker) serverName(ctx context.Context, f flavour) ([]cloud.Check, error) {
	if _, known := c.r.Object(f.server, "server"); known {
		return nil, nil
	}
	name := func() string { return tried(c.r.Job, "", longestServer) }
	if !validServer.MatchString(name()) {
		return []cloud.Check{fails("server name", "name", "the name "+name()+" is not one that the service takes", "Give the job another name.")}, nil
	}
	// L7: a zone of the server's own name is refused only after the server's minute.
	if zone := datastoreZone(c.r.Job, f.engine); zone == name()+"."+f.suffix || !strings.HasSuffix(zone, "."+f.suffix) {
		return []cloud.Check{fails("server name", "name", fmt.Sprintf("the private zone %s and the server %s cannot go together", zone, name()), "Give the job another name.")}, nil
	}
	return c.free(ctx, "server name", managementPrefix+c.subscription+"/providers/"+f.provider()+"/locations/"+regionName(c.region)+"/checkNameAvailability", f.typ, name)
}

// dataSubnetChecks check the subnet that a datastore or cache job names: what it is
// delegated to, its size, and who else is in it. Nothing of it is changed.
func (c *checker) dataSubnetChecks(x vnetResource) ([]cloud.Check, error) {
	const check, field = "existing network", "config.spec.existing.subnetIds"
	e, err := c.r.Job.Existing()
	if err != nil {
		return nil, err
	}
	subnets, missing := namedSubnets(x, e.SubnetIDs)
	if len(missing) > 0 || len(subnets) == 0 {
		return []cloud.Check{fails(check, field, "VNet "+x.Name+" has no subnet "+strings.Join(missing, ", "), "Name a subnet that exists, by name or resource ID.")}, nil
	}
	s := subnets[0]
	var out []cloud.Check
	if len(subnets) > 1 {
		out = append(out, warns(check, field, "a subnet spans all zones here, so only the first of those named is used: "+value(s.Name), "Name one."))
	}
	if c.r.Job.ResourceType == job.Cache {
		out = append(out, c.endpointSubnet(*s)...)
	} else {
		out = append(out, c.delegatedSubnet(x, *s)...)
	}
	if value(s.Properties).NetworkSecurityGroup == nil {
		out = append(out, warns(check, field, fmt.Sprintf("subnet %s has no network security group, so that the whole network, and whatever is routed to it, gets to the datastore's port", value(s.Name)), "Give it a group."))
	}
	if len(c.store.Access) > 0 {
		out = append(out, warns(check, "config.spec.access", fmt.Sprintf("subnet %s is not this job's, so who may connect is up to its own security group, and access is not put into it", value(s.Name)), "Have its owner let these ranges in, and leave access out."))
	}
	if !slices.ContainsFunc(out, func(k cloud.Check) bool { return k.Status == cloud.CheckFails }) {
		out = append(out, passes(check, "subnet %s of %s", value(s.Name), x.Name))
	}
	return out, nil
}

// delegatedSubnet checks a subnet for a flexible server.
func (c *checker) delegatedSubnet(x vnetResource, s armnetwork.Subnet) []cloud.Check {
	const check, field = "existing network", "config.spec.existing.subnetIds"
	flavour, f, name := flavourOf(c.store.Engine), value(s.Properties), value(s.Name)
	var out []cloud.Check
	if to := delegatedTo(f); !same(to, flavour.typ) {
		what := "is not delegated"
		if to != "" {
			what = "is delegated to " + to
		}
		out = append(out, fails(check, field, fmt.Sprintf("subnet %s %s, and %s takes only one that is delegated to %s", name, what, c.store.Engine.Title(), flavour.typ),
			fmt.Sprintf("Have it delegated (az network vnet subnet update --resource-group %s --vnet-name %s --name %s --delegations %s), or name another.", segment(x.ID, "resourceGroups"), x.Name, name, flavour.typ)))
	}
	if n := len(f.IPConfigurations) + len(f.PrivateEndpoints); n > 0 {
		out = append(out, fails(check, field, fmt.Sprintf("subnet %s holds %d other things, and a delegated subnet takes servers alone", name, n), "Name a subnet of its own for datastores."))
	}
	return append(out, roomIn(name, f, flavour.smallest)...)
}

// endpointSubnet checks a subnet for a private endpoint.
func (c *checker) endpointSubnet(s armnetwork.Subnet) []cloud.Check {
	const check, field = "existing network", "config.spec.existing.subnetIds"
	f, name := value(s.Properties), value(s.Name)
	var out []cloud.Check
	if to := delegatedTo(f); to != "" {
		out = append(out, fails(check, field, fmt.Sprintf("subnet %s is delegated to %s and takes no private endpoint", name, to), "Name a subnet without a delegation."))
	}
	if f.NetworkSecurityGroup != nil && !groupCounts(f) {
		out = append(out, warns(check, field, fmt.Sprintf("the security group of subnet %s does not count for private endpoints there", name), "Have its owner set privateEndpointNetworkPolicies to NetworkSecurityGroupEnabled."))
	}
	return append(out, roomIn(name, f, 29)...)
}

// roomIn checks a subnet's size: an address a node and those that the platform keeps.
func roomIn(name string, f armnetwork.SubnetPropertiesFormat, smallest int) []cloud.Check {
	for _, text := range both(f.AddressPrefix, f.AddressPrefixes) {
		if p, err := netip.ParsePrefix(text); err == nil && p.Addr().Is4() && p.Bits() > smallest {
			return []cloud.Check{fails("existing network", "config.spec.existing.subnetIds", fmt.Sprintf("subnet %s has %s, and the smallest that is taken is a /%d", name, text, smallest), "Name a larger subnet.")}
		}
	}
	return nil
}
