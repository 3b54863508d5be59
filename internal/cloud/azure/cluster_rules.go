package azure

import (
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v10"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// webRule lets the web in to where a cluster's load balancers deliver. It opens
// nothing by itself: nodes have no public addresses, and the group that AKS puts on
// their interfaces admits a port only for a Service that asks for it.
const webRule = "allow-web-to-services"

// clusterRules are those of a cluster's node subnet before the rule against remote
// administration, which is meant for nodes: pods are not encapsulated, and may
// listen on any port ("Azure CNI Overlay networking": network security groups).
func clusterRules(r *pipeline.Run, s job.SubnetPlan) []groupRule {
	if r.Job.ResourceType != job.Cluster || s.Tier != job.TierPrivate {
		return nil
	}
	out := []groupRule{{
		name: webRule, priority: 3000, protocol: armnetwork.SecurityRuleProtocolTCP, source: "Internet", ports: []string{"80", "443"},
		description: "Services of type LoadBalancer: what is not asked for is refused at the nodes' interfaces",
	}}
	pods := r.Job.Config.InfraConfig.Cluster.PodCIDR
	if pods == "" {
		return out
	}
	return append(out, groupRule{
		name: "allow-pods-to-pods", priority: 3100, protocol: armnetwork.SecurityRuleProtocolAsterisk, source: pods, destination: pods, ports: []string{"*"},
		description: "Pods reach pods on every port: network policies decide",
	}, groupRule{
		name: "allow-nodes-to-pods", priority: 3110, protocol: armnetwork.SecurityRuleProtocolAsterisk, source: s.CIDR, destination: pods, ports: []string{"*"},
		description: "Nodes reach pods on every port: traffic of Services, and probes",
	})
}
