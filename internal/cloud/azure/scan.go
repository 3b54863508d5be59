package azure

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/authorization/armauthorization/v2"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// kindOfType is how the ledger calls the resource types that a job makes.
var kindOfType = map[string]string{
	strings.ToLower(typeVNet):                                 kindVNet,
	strings.ToLower(typeGroupRules):                           kindNSG,
	strings.ToLower(typePublicIP):                             kindPublicIP,
	strings.ToLower(typeNAT):                                  kindNAT,
	strings.ToLower(typeDNSZone):                              kindDNSZone,
	strings.ToLower(typePrivateZone):                          kindPrivateZone,
	strings.ToLower(typePrivateZone + "/virtualNetworkLinks"): kindZoneLink,
	strings.ToLower(typeIdentity):                             kindIdentity,
	strings.ToLower(typeCluster):                              kindCluster,
	strings.ToLower(typeWorkspace):                            kindWorkspace,
	strings.ToLower(typeVault):                                kindVault,
	strings.ToLower(typePostgres):                             flexPostgres.server,
	strings.ToLower(typeMySQL):                                flexMySQL.server,
	strings.ToLower(typeCache):                                kindCache,
	strings.ToLower(typeEndpoint):                             kindEndpoint,
}

// Scan lists everything in the subscription that carries a job's owner mark,
// what is on its way out left away. It goes by the cloud's own lists, and by
// nothing that the ledger says. The list of resources lags behind by minutes, so
// what is on it is looked at by itself. Children without tags, such as subnets,
// go with what holds them; those in somebody else's network are found by the
// names that the job derives.
func (p *Provider) Scan(ctx context.Context, owner string) ([]cloud.Leftover, error) {
	ctx = lookup.For(ctx, owner)
	filter := url.QueryEscape(fmt.Sprintf("tagName eq '%s' and tagValue eq '%s'", job.MarkOwner, owner))
	filter = strings.ReplaceAll(filter, "+", "%20")
	all, err := list[listed](ctx, p, managementPrefix+p.subscription+"/resources?$filter="+filter)
	if err != nil {
		return nil, err
	}
	groups, err := list[listed](ctx, p, managementPrefix+p.subscription+"/resourcegroups?$filter="+filter)
	if err != nil {
		return nil, err
	}
	var out []cloud.Leftover
	for _, x := range append(all, groups...) {
		there, err := p.stays(ctx, x.ID, owner)
		if err != nil {
			return nil, err
		}
		if !there {
			continue
		}
		kind := kindOfType[strings.ToLower(x.Type)]
		switch {
		case kind == "" && strings.EqualFold(x.Type, "Microsoft.Resources/resourceGroups"):
			kind = kindGroup
		case kind == "":
			kind = x.Type
		}
		out = append(out, cloud.Leftover{Kind: kind, ID: x.ID, Name: x.Name})
	}
	for _, part := range []func(context.Context, string) ([]cloud.Leftover, error){p.scanNetworks, p.scanRoles} {
		more, err := part(ctx, owner)
		if err != nil {
			return nil, err
		}
		out = append(out, more...)
	}
	return out, nil
}

// scanRoles finds role assignments that say the owner's marks in their description:
// they are on no list of resources, and outlive those to whom they were given.
func (p *Provider) scanRoles(ctx context.Context, owner string) ([]cloud.Leftover, error) {
	all, err := list[resource[armauthorization.RoleAssignment]](ctx, p, managementPrefix+p.subscription+"/providers/"+typeRole)
	if err != nil {
		if pipeline.Is(err, pipeline.Denied) { // who may not read them has made none
			p.unread("role assignments that a job may have left", err)
			return nil, nil
		}
		return nil, err
	}
	var out []cloud.Leftover
	for _, a := range all {
		if job.ParseMarks(value(value(a.is.Properties).Description))[job.MarkOwner] == owner {
			out = append(out, cloud.Leftover{Kind: kindRole, ID: a.ID, Name: a.Name})
		}
	}
	return out, nil
}

// stays reports whether a resource is there, is the owner's and is not about to go.
func (p *Provider) stays(ctx context.Context, id, owner string) (bool, error) {
	x, err := read[struct{}](ctx, p, id)
	switch {
	case pipeline.Is(err, pipeline.NotFound):
		return false, nil
	case pipeline.Is(err, pipeline.Denied, pipeline.Invalid):
		return true, nil // it is listed, and that is all these credentials may know
	case err != nil:
		return false, err
	}
	return x.Tags[job.MarkOwner] == owner && x.Properties.ProvisioningState != "Deleting", nil
}

// scanNetworks finds subnets and peerings with names of the job in networks that
// are not its own.
func (p *Provider) scanNetworks(ctx context.Context, owner string) ([]cloud.Leftover, error) {
	all, err := p.allVNets(ctx)
	if err != nil {
		return nil, err
	}
	suffix := suffixOf(owner)
	var out []cloud.Leftover
	for _, v := range all {
		if v.Tags[job.MarkOwner] == owner || v.is.Properties == nil {
			continue
		}
		for _, s := range v.is.Properties.Subnets {
			if strings.HasSuffix(value(s.Name), suffix) && string(value(value(s.Properties).ProvisioningState)) != "Deleting" {
				out = append(out, cloud.Leftover{Kind: kindSubnet, ID: value(s.ID), Name: value(s.Name)})
			}
		}
		for _, c := range v.is.Properties.VirtualNetworkPeerings {
			if strings.HasSuffix(value(c.Name), suffix) && string(value(value(c.Properties).ProvisioningState)) != "Deleting" {
				out = append(out, cloud.Leftover{Kind: kindPeering, ID: value(c.ID), Name: value(c.Name)})
			}
		}
	}
	return out, nil
}

// suffixOf is the end of every name that a job derives.
func suffixOf(owner string) string {
	name := (&job.Job{ID: owner, Name: "x"}).ResourceName("", longestName)
	return name[strings.LastIndexByte(name, '-'):]
}
