package azure

// A builtInRole is a role that every directory has ("Azure built-in roles").
type builtInRole struct {
	GUID, Name, Description string
	Actions, NotActions     []string
	DataActions             []string
	NotDataActions          []string
}

// builtInRoles is a choice of the built-in roles: those that somebody who runs machines, clusters and networks assigns.
var builtInRoles = []builtInRole{
	{GUID: "8e3af657-a8ff-443c-a75c-2fe8c4bcb635", Name: "Owner", Description: "Grants full access to manage all resources, including the ability to assign roles in Azure RBAC.", Actions: []string{"*"}},
	{GUID: "b24988ac-6180-42a0-ab88-20f7382dd24c", Name: "Contributor", Description: "Lets you manage everything except access to resources.", Actions: []string{"*"},
		NotActions: []string{"Microsoft.Authorization/*/Delete", "Microsoft.Authorization/*/Write", "Microsoft.Authorization/elevateAccess/Action"}},
	{GUID: "acdd72a7-3385-48ef-bd42-f606fba81ae7", Name: "Reader", Description: "View all resources, but does not allow you to make any changes.", Actions: []string{"*/read"}},
	{GUID: "18d7d88d-d35e-4fb5-a5c3-7773c20a72d9", Name: "User Access Administrator", Description: "Lets you manage user access to Azure resources.", Actions: []string{"*/read", "Microsoft.Authorization/*"}},
	{GUID: "4d97b98b-1d4f-4787-a291-c67834d212e7", Name: "Network Contributor", Description: "Lets you manage networks, but not access to them.", Actions: []string{"Microsoft.Network/*", "Microsoft.Resources/subscriptions/resourceGroups/read"}},
	{GUID: "9980e02c-c2be-4d73-94e8-173b1dc7cf3c", Name: "Virtual Machine Contributor", Description: "Lets you manage virtual machines, but not access to them, and not the virtual network or storage account they're connected to.",
		Actions: []string{"Microsoft.Compute/virtualMachines/*", "Microsoft.Compute/virtualMachineScaleSets/*", "Microsoft.Network/networkInterfaces/*"}},
	{GUID: "f1a07417-d97a-45cb-824c-7a7467783830", Name: "Managed Identity Operator", Description: "Read and Assign User Assigned Identity", Actions: []string{"Microsoft.ManagedIdentity/userAssignedIdentities/*/read", "Microsoft.ManagedIdentity/userAssignedIdentities/*/assign/action"}},
	{GUID: "e40ec5ca-96e0-45a2-b4ff-59039f2c2b59", Name: "Managed Identity Contributor", Description: "Create, Read, Update, and Delete User Assigned Identity", Actions: []string{"Microsoft.ManagedIdentity/userAssignedIdentities/*"}},
	{GUID: "7f951dda-4ed3-4680-a7ca-43fe172d538d", Name: "AcrPull", Description: "acr pull", Actions: []string{"Microsoft.ContainerRegistry/registries/pull/read"}},
	{GUID: "3913510d-42f4-4e42-8a64-420c390055eb", Name: "Monitoring Metrics Publisher", Description: "Enables publishing metrics against Azure resources", Actions: []string{"Microsoft.Insights/Register/Action"}, DataActions: []string{"Microsoft.Insights/Metrics/Write"}},
	{GUID: "43d0d8ad-25c7-4714-9337-8ba259a9fe05", Name: "Monitoring Reader", Description: "Can read all monitoring data.", Actions: []string{"*/read"}},
	{GUID: "4633458b-17de-408a-b874-0445c86b69e6", Name: "Key Vault Secrets User", Description: "Read secret contents.", DataActions: []string{"Microsoft.KeyVault/vaults/secrets/getSecret/action"}},
	{GUID: "b86a8fe4-44ce-4948-aee5-eccb2c155cd7", Name: "Key Vault Secrets Officer", Description: "Perform any action on the secrets of a key vault, except manage permissions.", Actions: []string{"Microsoft.KeyVault/checkNameAvailability/read", "Microsoft.KeyVault/deletedVaults/read", "Microsoft.KeyVault/locations/*/read", "Microsoft.KeyVault/vaults/*/read"},
		DataActions: []string{"Microsoft.KeyVault/vaults/secrets/*"}},
	{GUID: "00482a5a-887f-4fb3-b363-3b7fe8e74483", Name: "Key Vault Administrator", Description: "Perform all data plane operations on a key vault and all objects in it, including certificates, keys, and secrets.", Actions: []string{"Microsoft.KeyVault/checkNameAvailability/read", "Microsoft.KeyVault/deletedVaults/read", "Microsoft.KeyVault/locations/*/read", "Microsoft.KeyVault/vaults/*/read"},
		DataActions: []string{"Microsoft.KeyVault/vaults/*"}},
	{GUID: "ba92f5b4-2d11-453d-a403-e96b0029c9fe", Name: "Storage Blob Data Contributor", Description: "Allows for read, write and delete access to Azure Storage blob containers and data", DataActions: []string{"Microsoft.Storage/storageAccounts/blobServices/containers/blobs/*"}},
	{GUID: "2a2b9908-6ea1-4ae2-8e65-a410df84e7d1", Name: "Storage Blob Data Reader", Description: "Allows for read access to Azure Storage blob containers and data", DataActions: []string{"Microsoft.Storage/storageAccounts/blobServices/containers/blobs/read"}},
	{GUID: "befefa01-2a29-4197-83a8-272ff33ce314", Name: "DNS Zone Contributor", Description: "Lets you manage DNS zones and record sets in Azure DNS, but does not let you control who has access to them.", Actions: []string{"Microsoft.Network/dnsZones/*"}},
	{GUID: "b12aa53e-6015-4669-85d0-8515ebb3ae7f", Name: "Private DNS Zone Contributor", Description: "Lets you manage private DNS zone resources, but not the virtual networks they are linked to.", Actions: []string{"Microsoft.Network/privateDnsZones/*"}},
	{GUID: "b1ff04bb-8a4e-4dc4-8eb5-8693973ce19b", Name: "Azure Kubernetes Service RBAC Cluster Admin", Description: "Lets you manage all resources in the cluster.", DataActions: []string{"Microsoft.ContainerService/managedClusters/*"}},
	{GUID: "a7ffa36f-339b-4b5c-8bdf-e2c188b2c0eb", Name: "Azure Kubernetes Service RBAC Writer", Description: "Allows read/write access to most objects in a namespace.",
		DataActions: []string{"Microsoft.ContainerService/managedClusters/apps/deployments/*", "Microsoft.ContainerService/managedClusters/pods/*", "Microsoft.ContainerService/managedClusters/services/*",
			"Microsoft.ContainerService/managedClusters/configmaps/*", "Microsoft.ContainerService/managedClusters/secrets/*", "Microsoft.ContainerService/managedClusters/namespaces/read"}},
	{GUID: "7f6c6a51-bcf8-42ba-9220-52d62157d7db", Name: "Azure Kubernetes Service RBAC Reader", Description: "Allows read-only access to see most objects in a namespace. It does not allow viewing roles or role bindings, nor secrets.",
		DataActions: []string{"Microsoft.ContainerService/managedClusters/apps/deployments/read", "Microsoft.ContainerService/managedClusters/pods/read", "Microsoft.ContainerService/managedClusters/services/read",
			"Microsoft.ContainerService/managedClusters/configmaps/read", "Microsoft.ContainerService/managedClusters/namespaces/read"}},
	{GUID: "3498e952-d568-435e-9b2c-8d77e338d7f7", Name: "Azure Kubernetes Service RBAC Admin", Description: "Lets you manage all resources under cluster/namespace, except update or delete resource quotas and namespaces.",
		DataActions: []string{"Microsoft.ContainerService/managedClusters/*"}, NotDataActions: []string{"Microsoft.ContainerService/managedClusters/resourcequotas/write", "Microsoft.ContainerService/managedClusters/resourcequotas/delete",
			"Microsoft.ContainerService/managedClusters/namespaces/write", "Microsoft.ContainerService/managedClusters/namespaces/delete"}},
	{GUID: "a7ffa36f-339b-4b5c-8bdf-e2c188b2c0eb", Name: "Azure Kubernetes Service RBAC Writer", Description: "Allows read/write access to most objects in a namespace.",
		DataActions: []string{"Microsoft.ContainerService/managedClusters/apps/*", "Microsoft.ContainerService/managedClusters/batch/*", "Microsoft.ContainerService/managedClusters/configmaps/*", "Microsoft.ContainerService/managedClusters/pods/*",
			"Microsoft.ContainerService/managedClusters/secrets/*", "Microsoft.ContainerService/managedClusters/services/*", "Microsoft.ContainerService/managedClusters/namespaces/read"}},
	{GUID: "7f6c6a51-bcf8-42ba-9220-52d62157d7db", Name: "Azure Kubernetes Service RBAC Reader", Description: "Allows read-only access to see most objects in a namespace.",
		DataActions: []string{"Microsoft.ContainerService/managedClusters/apps/deployments/read", "Microsoft.ContainerService/managedClusters/configmaps/read", "Microsoft.ContainerService/managedClusters/pods/read",
			"Microsoft.ContainerService/managedClusters/services/read", "Microsoft.ContainerService/managedClusters/namespaces/read"}},
	{GUID: "0ab0b1a8-8aac-4efd-b8c2-3ee1fb270be8", Name: "Azure Kubernetes Service Cluster Admin Role", Description: "List cluster admin credential action.", Actions: []string{"Microsoft.ContainerService/managedClusters/listClusterAdminCredential/action", "Microsoft.ContainerService/managedClusters/read"}},
	{GUID: "4abbcc35-e782-43d8-92c5-2d3f1bd2253f", Name: "Azure Kubernetes Service Cluster User Role", Description: "List cluster user credential action.", Actions: []string{"Microsoft.ContainerService/managedClusters/listClusterUserCredential/action"}},
}
