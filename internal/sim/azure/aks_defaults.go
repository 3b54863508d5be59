package azure

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// fillCluster adds what a cluster has though nobody said it: the provider's defaults, which are open rather than hardened.
func (c *Cloud) fillCluster(r *request, now *Resource) {
	p := now.Properties
	if now.Top.sub("sku") == nil {
		now.Top["sku"] = map[string]any{}
	}
	now.Top.sub("sku").def("name", "Base")
	now.Top.sub("sku").def("tier", "Free")
	p.def("resourceUID", c.World.Hex("", 24))
	p.def("powerState", map[string]any{"code": "Running"})
	p.def("enableRBAC", true)
	p.def("supportPlan", officialSupport)
	p.def("maxAgentPools", 100)
	p.def("servicePrincipalProfile", map[string]any{"clientId": "msi"})
	p.def("securityProfile", map[string]any{})
	p.def("workloadAutoScalerProfile", map[string]any{})
	p.def("metricsProfile", map[string]any{"costAnalysis": map[string]any{"enabled": false}})
	p.def("nodeProvisioningProfile", map[string]any{"mode": "Manual"})
	p.def("bootstrapProfile", map[string]any{"artifactSource": "Direct"})
	if r.version > "2023-09-01" {
		p.def("autoUpgradeProfile", map[string]any{})
		p.sub("autoUpgradeProfile").def("nodeOSUpgradeChannel", "NodeImage")
	}
	c.fillAddresses(now)
	fillNetwork(r, p)
	c.fillProfiles(now)
}

// fillAddresses gives a cluster its names: a public one unless it was switched off, and a private one if its API server is private.
func (c *Cloud) fillAddresses(now *Resource) {
	p := now.Properties
	private := p.flag("apiServerAccessProfile.enablePrivateCluster")
	prefix := p.str("dnsPrefix")
	if prefix == "" {
		prefix = p.str("fqdnSubdomain")
	}
	host := strings.ToLower(prefix) + "-" + c.World.ID("", 8, "abcdefghijklmnopqrstuvwxyz0123456789")
	if f := p.str("azurePortalFQDN"); f != "" {
		host, _, _ = strings.Cut(f, ".")
		host = strings.TrimSuffix(host, "-priv")
	}
	p["azurePortalFQDN"] = host + ".portal.hcp." + now.Location + ".azmk8s.io"
	public := host + ".hcp." + now.Location + ".azmk8s.io"
	if private {
		if p.sub("apiServerAccessProfile")["enablePrivateClusterPublicFQDN"] == nil {
			p.sub("apiServerAccessProfile")["enablePrivateClusterPublicFQDN"] = true
		}
		if !p.has("privateFQDN") {
			p["privateFQDN"] = fmt.Sprintf("%s.%s.privatelink.%s.azmk8s.io", host, c.World.UUID(), now.Location)
		}
		p["azurePortalFQDN"] = fmt.Sprintf("%s-priv.portal.hcp.%s.azmk8s.io", host, now.Location)
	}
	delete(p, "fqdn")
	if !private || p.flag("apiServerAccessProfile.enablePrivateClusterPublicFQDN") {
		p["fqdn"] = public
	}
}

// fillNetwork completes the network profile: without a word, Azure CNI in overlay mode behind a Standard load balancer.
func fillNetwork(r *request, p doc) {
	if p.sub("networkProfile") == nil {
		p["networkProfile"] = map[string]any{}
	}
	n := p.sub("networkProfile")
	if !n.has("networkPlugin") {
		n["networkPlugin"] = "kubenet" // until it was announced to be retired
		if r.version >= etagSince {
			n["networkPlugin"] = "azure"
			n.def("networkPluginMode", "overlay")
		}
	}
	overlay := strings.EqualFold(n.str("networkPluginMode"), "overlay")
	if n.str("networkPlugin") == "azure" {
		n.def("networkDataplane", "azure")
		if !overlay {
			p.def("windowsProfile", map[string]any{"adminUsername": "azureuser", "enableCSIProxy": true})
		}
	}
	if r.version >= etagSince {
		n.def("networkPolicy", "none")
	}
	n.def("loadBalancerSku", "standard")
	n.def("outboundType", "loadBalancer")
	n.def("serviceCidr", "10.0.0.0/16")
	n.def("serviceCidrs", []any{n.str("serviceCidr")})
	n.def("dnsServiceIP", tenthOf(n.str("serviceCidr")))
	if overlay || n.str("networkPlugin") == "kubenet" {
		n.def("podCidr", "10.244.0.0/16")
		n.def("podCidrs", []any{n.str("podCidr")})
	}
	n.def("ipFamilies", []any{"IPv4"})
	switch n.str("outboundType") {
	case "loadBalancer":
		if n.sub("loadBalancerProfile") == nil {
			n["loadBalancerProfile"] = map[string]any{}
		}
		lb := n.sub("loadBalancerProfile")
		if !lb.has("outboundIPs") && !lb.has("outboundIPPrefixes") {
			lb.def("managedOutboundIPs", map[string]any{"count": 1})
		}
		lb.def("backendPoolType", "nodeIPConfiguration")
	case "managedNATGateway":
		n.def("natGatewayProfile", map[string]any{"managedOutboundIPProfile": map[string]any{"count": 1}, "idleTimeoutInMinutes": 4})
	}
}

// fillProfiles completes the smaller profiles.
func (c *Cloud) fillProfiles(now *Resource) {
	p := now.Properties
	if p.sub("storageProfile") == nil {
		p["storageProfile"] = map[string]any{}
	}
	for _, driver := range []string{"diskCSIDriver", "fileCSIDriver", "snapshotController"} {
		p.sub("storageProfile").def(driver, map[string]any{"enabled": true})
	}
	p.def("oidcIssuerProfile", map[string]any{"enabled": false})
	if oidc := p.sub("oidcIssuerProfile"); oidc.flag("enabled") {
		oidc.def("issuerURL", fmt.Sprintf("https://%s.oic.prod-aks.azure.com/%s/%s/", now.Location, c.opt.Tenant, c.World.UUID()))
	}
	if aad := p.sub("aadProfile"); aad != nil {
		aad.def("tenantID", c.opt.Tenant)
		aad.def("enableAzureRBAC", false)
	}
	if cleaner := p.sub("securityProfile.imageCleaner"); cleaner.flag("enabled") {
		cleaner.def("intervalHours", 168)
	}
	if kv := p.sub("addonProfiles.azureKeyvaultSecretsProvider"); kv.flag("enabled") {
		if kv.sub("config") == nil {
			kv["config"] = map[string]any{}
		}
		kv.sub("config").def("enableSecretRotation", "false")
		kv.sub("config").def("rotationPollInterval", "2m")
	}
}

// addons are the add-ons that there are; false: retired, so that they can be switched off only ("Add-ons available in AKS").
var addons = map[string]bool{"azurepolicy": true, "azurekeyvaultsecretsprovider": true, "omsagent": true, "ingressapplicationgateway": true, "aciconnectorlinux": true,
	"accsgxdeviceplugin": true, "gitops": true, "openservicemesh": false, "httpapplicationrouting": false, "kubedashboard": false}

// checkCluster judges the profiles of a cluster that need no look at its pools.
func (c *Cloud) checkCluster(now, old *Resource) *Error {
	p := now.Properties
	if old != nil {
		for _, path := range []string{"dnsPrefix", "nodeResourceGroup", "fqdnSubdomain", "linuxProfile.adminUsername", "apiServerAccessProfile.privateDNSZone", "networkProfile.networkPlugin",
			"networkProfile.serviceCidr", "networkProfile.dnsServiceIP", "networkProfile.loadBalancerSku", "diskEncryptionSetID"} {
			if was := old.Properties.str(path); was != "" && !strings.EqualFold(was, p.str(path)) {
				return frozenProperty("properties." + path)
			}
		}
		if old.Properties.flag("oidcIssuerProfile.enabled") && !p.flag("oidcIssuerProfile.enabled") {
			return refuseCluster(http.StatusBadRequest, "OIDCIssuerFeatureCannotBeDisabled", "oidcIssuerProfile.enabled", "The OIDC issuer feature cannot be disabled once it is enabled.")
		}
		if old.Properties.flag("apiServerAccessProfile.enablePrivateCluster") != p.flag("apiServerAccessProfile.enablePrivateCluster") && !p.flag("apiServerAccessProfile.enableVnetIntegration") {
			return frozenProperty("properties.apiServerAccessProfile.enablePrivateCluster")
		}
	}
	for _, check := range []func(now *Resource) *Error{c.checkIdentities, checkAccess, checkAuthentication, checkSupport, checkSecurityProfile, checkAddons} {
		if e := check(now); e != nil {
			return e
		}
	}
	return nil
}

// checkAuthentication: what the directory's integration needs ("AKS-managed Microsoft Entra integration").
func checkAuthentication(now *Resource) *Error {
	p := now.Properties
	aad := p.sub("aadProfile")
	rbac, given := p["enableRBAC"].(bool)
	switch {
	case p.flag("disableLocalAccounts") && !aad.flag("managed"):
		return badParameter("disableLocalAccounts", "DisableLocalAccounts can be set only on a cluster with AKS-managed Microsoft Entra integration.")
	case aad.flag("managed") && given && !rbac:
		return badParameter("aadProfile", "AKS-managed Microsoft Entra integration needs Kubernetes RBAC to be enabled.")
	case aad != nil && !aad.flag("managed"):
		return badParameter("aadProfile.managed", "The legacy Microsoft Entra integration is retired; aadProfile.managed must be true.")
	case aad.has("tenantID") && aad.str("tenantID") != "" && !guidPattern.MatchString(aad.str("tenantID")):
		return badParameter("aadProfile.tenantID", "The value of parameter aadProfile.tenantID is invalid. It must be a GUID.")
	}
	for _, g := range aad.strs("adminGroupObjectIDs") {
		if !guidPattern.MatchString(g) {
			return badParameter("aadProfile.adminGroupObjectIDs", "The value %s of parameter aadProfile.adminGroupObjectIDs is invalid. It must be a GUID.", g)
		}
	}
	return nil
}

func checkSupport(now *Resource) *Error {
	if now.Properties.str("supportPlan") == longTermSupport && !strings.EqualFold(now.Top.str("sku.tier"), "Premium") {
		return refuseCluster(http.StatusBadRequest, "InvalidSupportPlan", "supportPlan", "Support plan AKSLongTermSupport needs a cluster of the Premium tier.")
	}
	return nil
}

func checkSecurityProfile(now *Resource) *Error {
	p := now.Properties
	sec := p.sub("securityProfile")
	if sec.flag("workloadIdentity.enabled") && !p.flag("oidcIssuerProfile.enabled") {
		return badParameter("securityProfile.workloadIdentity", "Workload identity needs the OIDC issuer to be enabled.")
	}
	if n := sec.num("imageCleaner.intervalHours"); sec.has("imageCleaner.intervalHours") && (n < 24 || n > 2160) {
		return badParameter("securityProfile.imageCleaner.intervalHours", "The value of parameter securityProfile.imageCleaner.intervalHours is invalid. It must be between 24 and 2160.")
	}
	if sec.flag("defender.securityMonitoring.enabled") && sec.str("defender.logAnalyticsWorkspaceResourceId") == "" {
		return badParameter("securityProfile.defender.logAnalyticsWorkspaceResourceId", "Required parameter securityProfile.defender.logAnalyticsWorkspaceResourceId is missing (null).")
	}
	return nil
}

func checkAddons(now *Resource) *Error {
	all := now.Properties.sub("addonProfiles")
	for _, name := range sortedKeys(all) {
		offered, known := addons[strings.ToLower(name)]
		if !known {
			return badParameter("addonProfiles", "Addon '%s' is not recognized.", name)
		}
		if !offered && all.sub(name).flag("enabled") {
			return refuseCluster(http.StatusBadRequest, "AddonNotSupported", "addonProfiles."+name, "Addon '%s' is retired and cannot be enabled.", name)
		}
	}
	return nil
}

// checkIdentities judges the cluster's own identity and that of its kubelets ("Use a managed identity in AKS").
func (c *Cloud) checkIdentities(now *Resource) *Error {
	kubelet := now.Properties.str("identityProfile.kubeletidentity.resourceId")
	if kubelet == "" || strings.EqualFold(groupOf(kubelet), now.Properties.str("nodeResourceGroup")) {
		return nil
	}
	users := now.Top.sub("identity.userAssignedIdentities")
	if len(users) == 0 {
		return badParameter("identityProfile.kubeletidentity", "A custom kubelet identity needs a user-assigned identity of the cluster.")
	}
	id := c.find(kubelet)
	if id == nil || id.Type != identityType {
		return refuseCluster(http.StatusBadRequest, "KubeletIdentityNotFound", "identityProfile.kubeletidentity", "The kubelet identity %s was not found.", kubelet)
	}
	for _, ref := range sortedKeys(users) {
		const action = "Microsoft.ManagedIdentity/userAssignedIdentities/assign/action"
		user, _ := asDoc(users[ref])
		if !c.permitted(user.str("principalId"), id.ID, action, false) {
			return refuseCluster(http.StatusBadRequest, "CustomKubeletIdentityMissingPermissionError", "", "The cluster user assigned identity must be given permission to assign kubelet identity %s. Check access result not allowed for action %s.", kubelet, action)
		}
	}
	return nil
}

// clusterPrincipals are the object IDs under which a cluster acts.
func clusterPrincipals(cluster *Resource) []string {
	var out []string
	if id := cluster.Top.str("identity.principalId"); id != "" {
		out = append(out, id)
	}
	users := cluster.Top.sub("identity.userAssignedIdentities")
	for _, ref := range sortedKeys(users) {
		user, _ := asDoc(users[ref]) // the key has dots
		out = append(out, user.str("principalId"))
	}
	return slices.Compact(out)
}
