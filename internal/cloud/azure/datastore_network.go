package azure

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v10"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// forData reports whether a subnet is where a job's datastore or cache sits.
func forData(j *job.Job, tier string) bool {
	return tier == job.TierDatabase && (j.ResourceType == job.Datastore || j.ResourceType == job.Cache)
}

// delegation is the service that a subnet of the job is given to; "" for none.
func delegation(j *job.Job, tier string) string {
	if !forData(j, tier) || j.ResourceType != job.Datastore {
		return ""
	}
	spec, err := j.DatastoreSpec()
	if err != nil {
		return ""
	}
	return flavourOf(spec.Engine).typ
}

// fillDataSubnet gives the subnet to the service, or lets the security group count
// for the private endpoints in it too ("Manage network policies for private
// endpoints").
func fillDataSubnet(j *job.Job, tier string, f *armnetwork.SubnetPropertiesFormat) {
	if !forData(j, tier) {
		return
	}
	if service := delegation(j, tier); service != "" {
		if delegatedTo(*f) != service {
			f.Delegations = []*armnetwork.Delegation{{Name: new("datastore"), Properties: &armnetwork.ServiceDelegationPropertiesFormat{ServiceName: &service}}}
		}
		return
	}
	f.PrivateEndpointNetworkPolicies = new(armnetwork.VirtualNetworkPrivateEndpointNetworkPoliciesNetworkSecurityGroupEnabled)
}

// delegatedTo is the service that a subnet is delegated to.
func delegatedTo(f armnetwork.SubnetPropertiesFormat) string {
	var names []string
	for _, d := range f.Delegations {
		names = append(names, value(value(value(d).Properties).ServiceName))
	}
	return strings.Join(names, ", ")
}

// groupCounts reports whether a subnet's security group counts for private endpoints.
func groupCounts(f armnetwork.SubnetPropertiesFormat) bool {
	p := value(f.PrivateEndpointNetworkPolicies)
	return p == armnetwork.VirtualNetworkPrivateEndpointNetworkPoliciesNetworkSecurityGroupEnabled || p == armnetwork.VirtualNetworkPrivateEndpointNetworkPoliciesEnabled
}

// datastoreRules are those of the subnet in which the datastore sits: the private
// subnets, whom access names, and its own nodes; nobody else of the network, which
// the platform's rules would let in.
func datastoreRules(r *pipeline.Run, s job.SubnetPlan) []groupRule {
	if !forData(r.Job, s.Tier) {
		return nil
	}
	spec, err := r.Job.DatastoreSpec()
	if err != nil {
		return nil // the job was validated; a spec that is none is refused by Check
	}
	port := fmt.Sprint(datastorePort(spec.Engine))
	in := func(name string, priority int32, source, description string) groupRule {
		return groupRule{name: name, priority: priority, protocol: armnetwork.SecurityRuleProtocolTCP, source: source, ports: []string{port}, description: description}
	}
	out := []groupRule{in("allow-nodes", 1000, s.CIDR, "The nodes of the datastore reach each other")}
	if plan := r.Job.Config.InfraConfig.NetworkPlan; plan != nil {
		for i, private := range plan.Tier(job.TierPrivate) {
			out = append(out, in(fmt.Sprintf("allow-private-%d", i+1), int32(1100+i), private.CIDR, "Clients in the job's own private subnet"))
		}
	}
	for i, a := range spec.Access {
		out = append(out, in(fmt.Sprintf("allow-access-%d", i+1), int32(1200+i), a.CIDR, cmp.Or(a.Description, "Named in access")))
	}
	deny := in("deny-other-clients", 3900, "*", "Nobody else connects")
	deny.deny = true
	out = append(out, deny)
	if spec.Engine == job.Postgres {
		// The server archives its log there ("Networking overview …": virtual network concepts).
		out = append(out, groupRule{name: "allow-storage", priority: 1000, outbound: true, protocol: armnetwork.SecurityRuleProtocolTCP, source: "*", destination: "Storage", ports: []string{"443"},
			description: "The server archives its write-ahead log to storage"})
	}
	return out
}

// dataSubnet is the subnet in which the job's datastore sits.
func dataSubnet(j *job.Job) string {
	ic := &j.Config.InfraConfig
	ids := ic.DatabaseSubnetIDs
	if j.Mode == job.ModeCreateInExisting {
		ids = ic.PrivateSubnetIDs
	}
	if len(ids) == 0 {
		return ""
	}
	return ids[0]
}
