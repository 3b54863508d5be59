package azure

// A permissionTable is what a resource provider has in roles, in the vendor's spelling ("Azure permissions" for compute, networking,
// databases, containers, identity, monitor, security, management and governance). named are the actions whose name is not that of the path.
type permissionTable struct {
	namespace string
	types     map[string]string // by type, what is done to it
	named     map[string]string
}

// all is what can be done to a plain resource.
const all = "read write delete"

var permissionTables = []permissionTable{
	{namespace: "Microsoft.Resources", types: map[string]string{
		"subscriptions": "read", "subscriptions/locations": "read", "subscriptions/providers": "read", "subscriptions/resources": "read", "tenants": "read",
		"subscriptions/resourceGroups": all, "subscriptions/resourceGroups/resources": "read", "subscriptions/operationresults": "read",
	}},
	{namespace: "Microsoft.Authorization", types: map[string]string{"locks": all, "permissions": "read", "roleAssignments": all, "roleDefinitions": all}},
	{namespace: "Microsoft.Features", types: map[string]string{"providers/features": "read register/action"}},
	{namespace: "Microsoft.ManagedIdentity", types: map[string]string{"userAssignedIdentities": all + " assign/action", "userAssignedIdentities/federatedIdentityCredentials": all}},
	{namespace: "Microsoft.Compute", types: map[string]string{
		"disks": all, "skus": "read", "locations/usages": "read", "locations/vmSizes": "read", "locations/runCommands": "read", "locations/operations": "read",
		"locations/diskOperations": "read", "locations/publishers": "read", "locations/publishers/artifacttypes/offers": "read",
		"locations/publishers/artifacttypes/offers/skus": "read", "locations/publishers/artifacttypes/offers/skus/versions": "read",
		"virtualMachines": all + " start/action powerOff/action deallocate/action restart/action redeploy/action reapply/action runCommand/action", "virtualMachines/instanceView": "read",
		"virtualMachines/extensions": all, "virtualMachines/runCommands": all,
		"virtualMachineScaleSets":              all + " delete/action start/action powerOff/action deallocate/action restart/action redeploy/action reimage/action manualUpgrade/action",
		"virtualMachineScaleSets/instanceView": "read", "virtualMachineScaleSets/skus": "read", "virtualMachineScaleSets/extensions": all, "virtualMachineScaleSets/networkInterfaces": "read",
		"virtualMachineScaleSets/virtualMachines":              all + " start/action powerOff/action deallocate/action restart/action redeploy/action reimage/action runCommand/action",
		"virtualMachineScaleSets/virtualMachines/instanceView": "read", "virtualMachineScaleSets/virtualMachines/networkInterfaces": "read", "virtualMachineScaleSets/virtualMachines/runCommands": all,
	}},
	{namespace: "Microsoft.Network", types: networkPermissions(), named: map[string]string{
		// Load balancers' NAT rules and frontends, and what lies in a subnet, are read and written by names of their own; links of services by the subnet's.
		"virtualNetworks/subnets/serviceAssociationLinks/read": "virtualNetworks/subnets/read", "virtualNetworks/subnets/serviceAssociationLinks/delete": "virtualNetworks/subnets/write",
	}},
	{namespace: "Microsoft.ContainerService", types: map[string]string{
		"managedClusters":                           all + " listClusterUserCredential/action listClusterAdminCredential/action start/action stop/action abort/action runCommand/action",
		"managedClusters/agentPools":                all + " abort/action",
		"managedClusters/maintenanceConfigurations": all, "managedClusters/upgradeProfiles": "read", "managedClusters/agentPools/upgradeProfiles": "read",
		"locations/kubernetesVersions": "read", "locations/operations": "read", "locations/operationresults": "read",
	}},
	{namespace: "Microsoft.DBforPostgreSQL", types: flexiblePermissions()},
	{namespace: "Microsoft.DBforMySQL", types: flexiblePermissions()},
	{namespace: "Microsoft.Cache", types: map[string]string{
		"redis": all + " listKeys/action", "redis/firewallRules": all, "redis/linkedServers": "read", "redis/patchSchedules": "read", "checknameavailability": "action",
		"redisEnterprise": all + " PrivateEndpointConnectionsApproval/action", "redisEnterprise/privateEndpointConnections": "read", "redisEnterprise/privateLinkResources": "read",
		"redisEnterprise/databases": all + " listKeys/action regenerateKey/action", "redisEnterprise/databases/accessPolicyAssignments": all,
		"locations/operationsStatus": "read", "locations/operationsStatus/operationResults": "read", "locations/operationresults": "read", "locations/asyncOperations": "read",
	}},
	{namespace: "Microsoft.KeyVault", types: map[string]string{
		"vaults": all, "deletedVaults": "read", "locations/deletedVaults": "read purge/action", "locations/operationResults": "read",
		"vaults/secrets": "getSecret/action setSecret/action readMetadata/action delete purge/action recover/action update/action", // on data
	}, named: map[string]string{"checkNameAvailability/action": "checkNameAvailability/read", "deletedVaults/delete": "locations/deletedVaults/purge/action"}},
	{namespace: "Microsoft.Insights", types: map[string]string{
		"metrics": "read", "metricDefinitions": "read", "diagnosticSettings": all, "diagnosticSettingsCategories": "read", "autoscaleSettings": all,
	}},
	{namespace: "Microsoft.OperationalInsights", types: map[string]string{"workspaces": all + " sharedKeys/action sharedKeys/read", "deletedWorkspaces": "read"}},
}

func networkPermissions() map[string]string {
	out := map[string]string{
		"virtualNetworks": all + " peer/action join/action joinLoadBalancer/action", "virtualNetworks/checkIpAddressAvailability": "read",
		"virtualNetworks/subnets": all + " join/action", "virtualNetworks/virtualNetworkPeerings": all,
		"networkSecurityGroups": all + " join/action", "networkSecurityGroups/securityRules": all, "routeTables": all + " join/action", "routeTables/routes": all,
		"publicIPAddresses": all + " join/action", "publicIPPrefixes": all + " join/action", "natGateways": all + " join/action", "networkInterfaces": all + " join/action",
		"loadBalancers": all, "loadBalancers/backendAddressPools": all + " join/action", "loadBalancers/frontendIPConfigurations": "read", "loadBalancers/inboundNatRules": all + " join/action",
		"loadBalancers/loadBalancingRules": "read health/action", "loadBalancers/outboundRules": "read", "loadBalancers/probes": "read join/action",
		"privateEndpoints": all, "privateEndpoints/privateDnsZoneGroups": all, "networkWatchers": all,
		"locations/usages": "read", "locations/checkDnsNameAvailability": "read", "locations/operations": "read", "locations/operationResults": "read",
		"dnszones": all, "dnszones/all": "read", "dnszones/recordsets": "read",
		"privateDnsZones": all + " join/action", "privateDnsZones/ALL": "read", "privateDnsZones/recordsets": "read", "privateDnsZones/virtualNetworkLinks": all,
		"privateDnsOperationStatuses": "read", "privateDnsOperationResults": "read", "dnsOperationStatuses": "read", "dnsOperationResults": "read",
	}
	for _, typ := range []string{"A", "AAAA", "CAA", "CNAME", "DS", "MX", "NAPTR", "NS", "PTR", "SOA", "SRV", "TLSA", "TXT"} {
		out["dnszones/"+typ] = all
	}
	for _, typ := range []string{"A", "AAAA", "CNAME", "MX", "PTR", "SOA", "SRV", "TXT"} {
		out["privateDnsZones/"+typ] = all
	}
	return out
}

// flexiblePermissions are those of flexible servers, which both engines name alike.
func flexiblePermissions() map[string]string {
	return map[string]string{
		"flexibleServers":           all + " start/action stop/action restart/action failover/action updateConfigurations/action",
		"flexibleServers/databases": all, "flexibleServers/firewallRules": all, "flexibleServers/administrators": all, "flexibleServers/configurations": all,
		"flexibleServers/backups": all, "flexibleServers/backupsV2": all, "flexibleServers/replicas": "read",
		"locations/resourceType/usages": "read", "locations/azureAsyncOperation": "read", "locations/operationResults": "read", "locations/capabilities": "read", "locations/capabilitySets": "read",
		"locations/checkVirtualNetworkSubnetUsage": "action", "locations/checkNameAvailability": "action", "checkNameAvailability": "action",
		"getPrivateDnsZoneSuffix": "action read",
	}
}

// A joinAction is what the caller needs on what a body refers to, besides the action on the resource itself: refers is the type of the
// reference, member where it stands, target the type of the resource that is written, "" for any ("join/action", in "Azure permissions
// for Networking").
type joinAction struct{ refers, member, target, action string }

const (
	backendPoolType = loadBalancerType + "/backendAddressPools"
	assignAction    = identityType + "/assign/action"
)

var linkedActions = []joinAction{
	{subnetType, "subnet", "", subnetType + "/join/action"},
	{subnetType, "vnetSubnetID", "", subnetType + "/join/action"},
	{subnetType, "podSubnetID", "", subnetType + "/join/action"},
	{subnetType, "delegatedSubnetResourceId", "", subnetType + "/join/action"},
	{nsgType, "networkSecurityGroup", "", nsgType + "/join/action"},
	{publicIPType, "publicIPAddress", "", publicIPType + "/join/action"},
	{publicIPType, "publicIpAddresses", natType, publicIPType + "/join/action"},
	{publicIPType, "publicIPs", clusterType, publicIPType + "/join/action"},
	{natType, "natGateway", "", natType + "/join/action"},
	{routeTableType, "routeTable", "", routeTableType + "/join/action"},
	{backendPoolType, "loadBalancerBackendAddressPools", "", backendPoolType + "/join/action"},
	{loadBalancerType + "/inboundNatRules", "loadBalancerInboundNatRules", "", loadBalancerType + "/inboundNatRules/join/action"},
	{loadBalancerType + "/probes", "healthProbe", setType, loadBalancerType + "/probes/join/action"},
	{nicType, "networkInterfaces", vmType, nicType + "/join/action"},
	{vnetType, "remoteVirtualNetwork", peeringType, vnetType + "/peer/action"},
	{vnetType, "virtualNetwork", zoneLinkType, vnetType + "/join/action"},
	{vnetType, "virtualNetwork", backendPoolType, vnetType + "/joinLoadBalancer/action"},
	{vnetType, "virtualNetwork", loadBalancerType, vnetType + "/joinLoadBalancer/action"},
	{privateZoneType, "privateDnsZoneArmResourceId", "", privateZoneType + "/join/action"},
	{privateZoneType, "privateDnsZoneResourceId", "", privateZoneType + "/join/action"},
	{privateZoneType, "privateDnsZoneId", "", privateZoneType + "/join/action"},
	{privateZoneType, "privateDNSZone", "", privateZoneType + "/join/action"},
	{identityType, "userAssignedIdentities", "", assignAction},
	{identityType, "resourceId", clusterType, assignAction},
	{identityType, "identityResourceId", "", assignAction},
	{managedRedisType, "privateLinkServiceId", privateEndpointType, managedRedisType + "/PrivateEndpointConnectionsApproval/action"},
	{workspaceType, "workspaceId", diagnosticType, workspaceType + "/sharedKeys/action"},
	{workspaceType, "logAnalyticsWorkspaceResourceID", clusterType, workspaceType + "/sharedKeys/read"},
}
