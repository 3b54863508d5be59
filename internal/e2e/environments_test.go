package e2e

import (
	"path"

	"github.com/zopday/provisioner/internal/job"
	simazure "github.com/zopday/provisioner/internal/sim/azure"
)

const (
	postgres = `{"engine":"postgres","preset":"production","databases":[{"name":"orders"}]}`
	mysql    = `{"engine":"mysql","databases":[{"name":"orders"}]}`
	redis    = `{"engine":"redis","preset":"production"}`
	valkey   = `{"engine":"valkey"}`

	wholeNetwork    = `{"network":{"cidr":"10.50.0.0/16","zones":3,"subnets":["public","private","database"]},"dnsZones":[{"name":"shop.internal"},{"name":"shop.example.com","visibility":"public"}]}`
	peeredNetwork   = `{"network":{"subnets":["private"],"nat":"none"},"peerings":[{"networkId":"hub"}]}`
	existingNetwork = `{"existing":{"networkId":"office"},"network":{"subnets":["public","private"]},"dnsZones":[{"name":"team.internal"}]}`
	wholeCluster    = `{"network":{"zones":3},"nodePools":[{"name":"workers","min":1,"desired":2,"max":4},{"name":"arm","size":{"vcpus":2,"memoryGiB":8,"arch":"arm64"},"spot":true,"min":1,"desired":1,"max":3,"taints":[{"key":"arm","effect":"NoSchedule"}]}],"components":[{"name":"cert-manager"},{"name":"external-secrets"},{"name":"kyverno"},{"name":"reloader"},{"name":"traefik"},{"name":"valkey"}]}`
	adoptedNetwork  = `{"adopt":{"name":"office"}}`
	vmsWithinGCP    = `{"pool":{"count":2},"existing":{"networkId":"office","subnetIds":["theirs"]},"loadBalancer":{"plainHTTP":true}}`
	vmsWithinAzure  = `{"pool":{"count":2},"existing":{"networkId":"office","subnetIds":["theirs"]},"loadBalancer":{"scheme":"internal","plainHTTP":true}}`
)

var environments = []environment{
	{cloud: job.AWS, family: job.Network, mode: job.ModeCreate, spec: wholeNetwork, attr: "public address on launch",
		tamper: func(r *rig) {
			r.call("ec2", "ModifySubnetAttribute", map[string]any{"SubnetId": r.object("ec2:subnet", "private-a"), "MapPublicIpOnLaunch": map[string]any{"Value": true}})
		}},
	{cloud: job.AWS, family: job.Network, mode: job.ModeCreate, what: "peering", spec: peeredNetwork, place: vpcNamed("hub")},
	{cloud: job.AWS, family: job.Network, mode: job.ModeCreateInExisting, spec: existingNetwork, place: vpcNamed("office")},
	{cloud: job.AWS, family: job.Network, mode: job.ModeAdopt, spec: adoptedNetwork, place: vpcNamed("office")},

	{cloud: job.GCP, family: job.Network, mode: job.ModeCreate, spec: wholeNetwork},
	{cloud: job.GCP, family: job.Network, mode: job.ModeCreate, what: "peering", spec: peeredNetwork, place: gcpNetwork("hub")},
	{cloud: job.GCP, family: job.Network, mode: job.ModeCreateInExisting, spec: existingNetwork, place: gcpNetwork("office")},
	{cloud: job.GCP, family: job.Network, mode: job.ModeAdopt, spec: adoptedNetwork, place: gcpNetwork("office")},
	{cloud: job.GCP, family: job.VM, mode: job.ModeCreate, what: "fixed", spec: fixedLB, attr: "disabled",
		tamper: func(r *rig) {
			r.call("compute", "firewalls.patch", map[string]any{"firewall": path.Base(r.object("compute:firewall", "vm-closed")), "disabled": true})
		}},
	{cloud: job.GCP, family: job.VM, mode: job.ModeCreate, what: "mig", spec: asgLB, attr: "size",
		tamper: func(r *rig) {
			r.call("compute", "regionAutoscalers.patch", map[string]any{"region": regions[job.GCP], "autoscaler": path.Base(r.object("compute:autoscaler", "autoscaler")),
				"autoscalingPolicy": map[string]any{"maxNumReplicas": 9}})
		}},
	{cloud: job.GCP, family: job.VM, mode: job.ModeCreateInExisting, what: "fixed", spec: vmsWithinGCP, place: func(r *rig) {
		gcpNetwork("office")(r)
		r.call("compute", "routers.insert", map[string]any{"region": regions[job.GCP], "name": "way-out", "network": "global/networks/office", "nats": []any{
			map[string]any{"name": "nat", "natIpAllocateOption": "AUTO_ONLY", "sourceSubnetworkIpRangesToNat": "ALL_SUBNETWORKS_ALL_IP_RANGES"},
		}})
	}},

	{cloud: job.Azure, family: job.Network, mode: job.ModeCreate, spec: wholeNetwork, attr: "other rules",
		tamper: func(r *rig) {
			r.call("network", "PUT", map[string]any{"id": r.object("network:nsg", "nsg-private") + "/securityRules/open", "body": map[string]any{"properties": map[string]any{
				"priority": 300, "access": "Allow", "direction": "Inbound", "protocol": "Tcp", "sourceAddressPrefix": "Internet", "sourcePortRange": "*",
				"destinationAddressPrefix": "*", "destinationPortRange": "22"}}})
		}},
	{cloud: job.Azure, family: job.Network, mode: job.ModeCreate, what: "peering", spec: peeredNetwork, place: vnet("hub")},
	{cloud: job.Azure, family: job.Network, mode: job.ModeCreateInExisting, spec: existingNetwork, place: vnet("office")},
	{cloud: job.Azure, family: job.Network, mode: job.ModeAdopt, spec: adoptedNetwork, place: vnet("office")},
	{cloud: job.Azure, family: job.VM, mode: job.ModeCreate, what: "flexible", spec: fixedLB},
	{cloud: job.Azure, family: job.VM, mode: job.ModeCreate, what: "uniform", spec: asgLB},
	{cloud: job.Azure, family: job.VM, mode: job.ModeCreateInExisting, what: "flexible", spec: vmsWithinAzure, place: func(r *rig) {
		vnet("office")(r)
		group := "/subscriptions/" + simazure.DefaultSubscription + "/resourceGroups/office-rg/providers/Microsoft.Network/"
		in := func(properties map[string]any) map[string]any {
			return map[string]any{"location": regions[job.Azure], "sku": map[string]any{"name": "Standard"}, "properties": properties}
		}
		ref := func(id string) map[string]any { return map[string]any{"id": group + id} }
		r.call("network", "PUT", map[string]any{"id": group + "publicIPAddresses/out", "body": in(map[string]any{"publicIPAllocationMethod": "Static"})})
		r.call("network", "PUT", map[string]any{"id": group + "natGateways/out", "body": in(map[string]any{"publicIpAddresses": []any{ref("publicIPAddresses/out")}})})
		r.call("network", "PUT", map[string]any{"id": group + "networkSecurityGroups/theirs", "body": map[string]any{"location": regions[job.Azure]}})
		r.call("network", "PUT", map[string]any{"id": group + "virtualNetworks/office/subnets/theirs", "body": map[string]any{"properties": map[string]any{
			"addressPrefix": "10.60.0.0/20", "natGateway": ref("natGateways/out"), "networkSecurityGroup": ref("networkSecurityGroups/theirs"),
		}}})
	}},

	{cloud: job.AWS, family: job.Cluster, mode: job.ModeCreate, spec: wholeCluster, attr: "EKS-05",
		tamper: func(r *rig) {
			r.call("eks", "UpdateClusterConfig", map[string]any{"name": path.Base(r.object("eks:cluster", "cluster")), "logging": map[string]any{"clusterLogging": []any{
				map[string]any{"types": []any{"api", "scheduler"}, "enabled": false}}}})
		}},
	{cloud: job.GCP, family: job.Cluster, mode: job.ModeCreate, spec: wholeCluster, attr: "GKE-15",
		tamper: func(r *rig) {
			r.call("container", "projects.locations.clusters.update", map[string]any{"name": r.object("container:cluster", "cluster"),
				"update": map[string]any{"desiredIntraNodeVisibilityConfig": map[string]any{"enabled": false}}})
		}},
	{cloud: job.Azure, family: job.Cluster, mode: job.ModeCreate, spec: wholeCluster},

	{cloud: job.AWS, family: job.Datastore, mode: job.ModeCreate, what: "postgres", spec: postgres, place: (*rig).standInside},
	{cloud: job.AWS, family: job.Datastore, mode: job.ModeCreate, what: "mysql", spec: mysql, place: (*rig).standInside},
	{cloud: job.AWS, family: job.Cache, mode: job.ModeCreate, what: "redis", spec: redis, place: (*rig).standInside},
	{cloud: job.AWS, family: job.Cache, mode: job.ModeCreate, what: "valkey", spec: valkey, place: (*rig).standInside},
	{cloud: job.GCP, family: job.Datastore, mode: job.ModeCreate, what: "postgres", spec: postgres, place: (*rig).standInside},
	{cloud: job.GCP, family: job.Datastore, mode: job.ModeCreate, what: "mysql", spec: mysql, place: (*rig).standInside},
	{cloud: job.GCP, family: job.Cache, mode: job.ModeCreate, what: "redis", spec: redis, place: (*rig).standInside},
	{cloud: job.GCP, family: job.Cache, mode: job.ModeCreate, what: "valkey", spec: valkey, place: (*rig).standInside},
	{cloud: job.Azure, family: job.Datastore, mode: job.ModeCreate, what: "postgres", spec: postgres, place: (*rig).standInside},
	{cloud: job.Azure, family: job.Datastore, mode: job.ModeCreate, what: "mysql", spec: mysql, place: (*rig).standInside},
	{cloud: job.Azure, family: job.Cache, mode: job.ModeCreate, what: "redis", spec: redis, place: (*rig).standInside},
}

// vpcNamed places somebody's VPC with that name.
func vpcNamed(name string) func(*rig) {
	return func(r *rig) {
		r.call("ec2", "CreateVpc", map[string]any{"CidrBlock": "10.60.0.0/16", "TagSpecifications": []any{
			map[string]any{"ResourceType": "vpc", "Tags": []any{map[string]any{"Key": "Name", "Value": name}}},
		}})
	}
}

// gcpNetwork places somebody's network with a subnet.
func gcpNetwork(name string) func(*rig) {
	return func(r *rig) {
		r.call("compute", "networks.insert", map[string]any{"name": name, "autoCreateSubnetworks": false})
		r.call("compute", "subnetworks.insert", map[string]any{"region": regions[job.GCP], "name": "theirs", "network": "global/networks/" + name, "ipCidrRange": "10.60.0.0/20"})
	}
}

// vnet places somebody's virtual network with a subnet, in a group of its own.
func vnet(name string) func(*rig) {
	return func(r *rig) {
		group := "/subscriptions/{subscriptionId}/resourceGroups/" + name + "-rg"
		r.call("resources", "PUT", map[string]any{"id": group, "body": map[string]any{"location": regions[job.Azure]}})
		r.call("network", "PUT", map[string]any{"id": group + "/providers/Microsoft.Network/virtualNetworks/" + name, "body": map[string]any{
			"location": regions[job.Azure], "properties": map[string]any{
				"addressSpace": map[string]any{"addressPrefixes": []any{"10.60.0.0/16"}},
				"subnets":      []any{map[string]any{"name": "theirs", "properties": map[string]any{"addressPrefix": "10.60.0.0/20"}}},
			},
		}})
	}
}
