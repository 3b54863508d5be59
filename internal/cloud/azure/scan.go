package azure

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
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
	strings.ToLower(typeVM):                                   kindVM,
	strings.ToLower(typeScaleSet):                             kindScaleSet,
	strings.ToLower(typeAutoscale):                            kindAutoscale,
	strings.ToLower(typeBalancer):                             kindBalancer,
}

// Scan lists everything in the subscription that carries a job's owner mark,
// what is on its way out left away. It goes by the cloud's own lists, and by
// nothing that the ledger says. The list of resources lags behind by minutes, so
// what is on it is looked at by itself. Children without tags, such as subnets,
// go with what holds them; those in somebody else's network are found by the
// names that the job derives. A list that the credentials may not read is told for
// each kind that is on it.
func (p *Provider) Scan(ctx context.Context, owner string) ([]cloud.Leftover, []job.Unlisted, error) {
	ctx = lookup.For(ctx, owner)
	filter := url.QueryEscape(fmt.Sprintf("tagName eq '%s' and tagValue eq '%s'", job.MarkOwner, owner))
	filter = strings.ReplaceAll(filter, "+", "%20")
	s := &scan{}
	all, err := list[listed](ctx, p, managementPrefix+p.subscription+"/resources?$filter="+filter)
	if err = s.readable(err, slices.Collect(maps.Values(kindOfType))...); err != nil {
		return nil, nil, err
	}
	groups, err := list[listed](ctx, p, managementPrefix+p.subscription+"/resourcegroups?$filter="+filter)
	if err = s.readable(err, kindGroup); err != nil {
		return nil, nil, err
	}
	for _, x := range append(all, groups...) {
		there, err := p.stays(ctx, x.ID, owner)
		if err != nil {
			return nil, nil, err
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
		s.found(kind, x.ID, x.Name)
	}
	for _, part := range []func(context.Context, *scan, string) error{p.scanNetworks, p.scanRoles} {
		if err := part(ctx, s, owner); err != nil {
			return nil, nil, err
		}
	}
	return s.left, job.SortUnlisted(s.unlisted), nil
}

// A scan is one look over all lists.
type scan struct {
	left     []cloud.Leftover
	unlisted []job.Unlisted
}

func (s *scan) found(kind, id, name string) {
	s.left = append(s.left, cloud.Leftover{Kind: kind, ID: id, Name: name})
}

// readable is nil for a list that the credentials may not read, whose kinds are then
// told as not listed. Any other error fails the scan: what could not be looked at
// is not proved gone.
func (s *scan) readable(err error, kinds ...string) error {
	var ce *pipeline.CloudError
	if !pipeline.Is(err, pipeline.Denied) || !errors.As(err, &ce) {
		return err
	}
	for _, k := range kinds {
		s.unlisted = append(s.unlisted, job.Unlisted{Kind: k, Permission: missingAction(ce), Why: ce.Error()})
	}
	return nil
}

// scanRoles finds role assignments that say the owner's marks in their description:
// they are on no list of resources, and outlive those to whom they were given.
func (p *Provider) scanRoles(ctx context.Context, s *scan, owner string) error {
	all, err := list[resource[armauthorization.RoleAssignment]](ctx, p, managementPrefix+p.subscription+"/providers/"+typeRole)
	if err != nil {
		return s.readable(err, kindRole)
	}
	for _, a := range all {
		if job.ParseMarks(value(value(a.is.Properties).Description))[job.MarkOwner] == owner {
			s.found(kindRole, a.ID, a.Name)
		}
	}
	return nil
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
func (p *Provider) scanNetworks(ctx context.Context, s *scan, owner string) error {
	all, err := p.allVNets(ctx)
	if err != nil {
		return s.readable(err, kindSubnet, kindPeering)
	}
	suffix := suffixOf(owner)
	for _, v := range all {
		if v.Tags[job.MarkOwner] == owner || v.is.Properties == nil {
			continue
		}
		for _, n := range v.is.Properties.Subnets {
			if strings.HasSuffix(value(n.Name), suffix) && string(value(value(n.Properties).ProvisioningState)) != "Deleting" {
				s.found(kindSubnet, value(n.ID), value(n.Name))
			}
		}
		for _, c := range v.is.Properties.VirtualNetworkPeerings {
			if strings.HasSuffix(value(c.Name), suffix) && string(value(value(c.Properties).ProvisioningState)) != "Deleting" {
				s.found(kindPeering, value(c.ID), value(c.Name))
			}
		}
	}
	return nil
}

// suffixOf is the end of every name that a job derives.
func suffixOf(owner string) string {
	name := (&job.Job{ID: owner, Name: "x"}).ResourceName("", longestName)
	return name[strings.LastIndexByte(name, '-'):]
}
