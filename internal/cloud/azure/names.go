package azure

import (
	"maps"
	"strings"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// The resource types that a job makes, with their longest names ("Naming rules
// and restrictions for Azure resources").
const (
	typeVNet         = "Microsoft.Network/virtualNetworks"
	typeGroupRules   = "Microsoft.Network/networkSecurityGroups"
	typePublicIP     = "Microsoft.Network/publicIPAddresses"
	typeNAT          = "Microsoft.Network/natGateways"
	typeBalancer     = "Microsoft.Network/loadBalancers"
	typeDNSZone      = "Microsoft.Network/dnsZones"
	typePrivateZone  = "Microsoft.Network/privateDnsZones"
	typeScaleSet     = "Microsoft.Compute/virtualMachineScaleSets"
	typeVM           = "Microsoft.Compute/virtualMachines"
	typeDisk         = "Microsoft.Compute/disks"
	typeIdentity     = "Microsoft.ManagedIdentity/userAssignedIdentities"
	longestGroup     = 90
	longestVNet      = 64
	longestName      = 80 // of everything else in Microsoft.Network
	longestScaleSet  = 64
	longestIdentity  = 128
	longestComputer  = 58 // prefix of host names in a scale set of Linux machines
	mostTags         = 50
	mostTagsOfZone   = 15 // DNS zones ("Use tags to organize your Azure resources")
	longestTagValue  = 256
	managementPrefix = "/subscriptions/"
)

func (p *Provider) groupID(name string) string {
	return managementPrefix + p.subscription + "/resourceGroups/" + name
}

// groupOf is the name of the job's resource group: the one it names, or its own.
func groupOf(j *job.Job) string {
	if group := j.Config.InfraConfig.ResourceGroup; group != "" {
		return group
	}
	if e, err := j.Existing(); err == nil && e != nil && e.ResourceGroup != "" {
		return e.ResourceGroup
	}
	return j.ResourceName("", longestGroup)
}

// ownsGroup reports whether the job makes its resource group itself.
func ownsGroup(j *job.Job) bool {
	e, err := j.Existing()
	return err == nil && (e == nil || e.ResourceGroup == "")
}

// idIn is the ID of something in the job's resource group.
func (p *Provider) idIn(r *pipeline.Run, typ, name string) string {
	return p.groupID(groupOf(r.Job)) + "/providers/" + typ + "/" + name
}

// lastName is the name at the end of an ID.
func lastName(id string) string { return id[strings.LastIndexByte(id, '/')+1:] }

// parentOf is the ID of what holds a child resource.
func parentOf(id string) string {
	for range 2 {
		id = id[:max(strings.LastIndexByte(id, '/'), 0)]
	}
	return id
}

// same compares IDs: Azure gives them back in any case.
func same(a, b string) bool { return strings.EqualFold(a, b) }

// segment is the value behind a name in an ID, such as that of resourceGroups;
// "" if there is none.
func segment(id, name string) string {
	parts := strings.Split(id, "/")
	for i := 1; i+1 < len(parts); i += 2 {
		if strings.EqualFold(parts[i], name) {
			return parts[i+1]
		}
	}
	return ""
}

// tagsFor are the tags of one of a job's objects: the user's labels and our
// marks. They ride in the call that makes the object (failure kind D7).
func tagsFor(j *job.Job, key string) map[string]*string {
	tags := map[string]*string{}
	all := maps.Clone(j.Labels)
	if all == nil {
		all = map[string]string{}
	}
	all[job.MarkOwner], all[job.MarkObject], all[job.MarkOrg] = j.ID, key, j.OrgID
	for k, v := range all {
		tags[k] = &v
	}
	return tags
}
