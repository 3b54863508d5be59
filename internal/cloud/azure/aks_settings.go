package azure

import (
	"cmp"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	aks "github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/containerservice/armcontainerservice/v9"
)

// A setting is one thing that a cluster has by default here, most of it for
// hardening: what is seen of it in words, and how it is set. The same table makes
// the cluster, sees it drift and puts it right.
type setting struct {
	name  string
	fixed bool // by the create: it cannot be changed on a live cluster
	seen  func(aks.ManagedCluster) string
	set   func(*aks.ManagedCluster)
}

// settings are those of a cluster of a design.
func (d design) settings() []setting {
	return append(append(d.networkSettings(), d.endpointSettings()...), append(identitySettings(), d.upkeepSettings()...)...)
}

// part gives what a pointer of a cluster points to, made if it is not there.
func part[T any](at **T) *T {
	if *at == nil {
		*at = new(T)
	}
	return *at
}

func profile(c *aks.ManagedCluster) *aks.ManagedClusterProperties { return part(&c.Properties) }

// endpointSettings say who reaches the API server. A private one has a name in
// public DNS, with its private address: so it is found from peered networks and
// over a VPN too, which a private zone of its own would have to be linked to
// ("Create a private AKS cluster").
func (d design) endpointSettings() []setting {
	out := []setting{{"API server", true, endpointOf, func(c *aks.ManagedCluster) {
		a := part(&profile(c).APIServerAccessProfile)
		a.EnablePrivateCluster = new(!d.info.Public)
		if !d.info.Public {
			a.PrivateDNSZone, a.EnablePrivateClusterPublicFQDN = new("none"), new(true)
		}
	}}, {"run command", false, runCommandOf, func(c *aks.ManagedCluster) {
		part(&profile(c).APIServerAccessProfile).DisableRunCommand = new(true)
	}}}
	if d.info.Public {
		out = append(out, setting{"authorised ranges", false, rangesOf, func(c *aks.ManagedCluster) {
			part(&profile(c).APIServerAccessProfile).AuthorizedIPRanges = to.SliceOfPtrs(d.ranges...)
		}})
	}
	return out
}

func endpointOf(c aks.ManagedCluster) string {
	if value(value(value(c.Properties).APIServerAccessProfile).EnablePrivateCluster) {
		return "private"
	}
	return "public"
}

func rangesOf(c aks.ManagedCluster) string {
	return cmp.Or(sorted(values(value(value(c.Properties).APIServerAccessProfile).AuthorizedIPRanges)), "anybody")
}

func runCommandOf(c aks.ManagedCluster) string {
	if value(value(value(c.Properties).APIServerAccessProfile).DisableRunCommand) {
		return "off"
	}
	return "on"
}

// identitySettings say who may do what in the cluster, and as whom it acts.
func identitySettings() []setting {
	return []setting{
		{"local accounts", false, localAccountsOf, func(c *aks.ManagedCluster) { profile(c).DisableLocalAccounts = new(true) }},
		{"Kubernetes RBAC", true, rbacOf, func(c *aks.ManagedCluster) { profile(c).EnableRBAC = new(true) }},
		{"Entra ID", false, entraOf, func(c *aks.ManagedCluster) {
			a := part(&profile(c).AADProfile)
			a.Managed, a.EnableAzureRBAC = new(true), new(true)
		}},
		{"OIDC issuer", false, issuerOf, func(c *aks.ManagedCluster) { part(&profile(c).OidcIssuerProfile).Enabled = new(true) }},
		{"workload identity", false, workloadIdentityOf, func(c *aks.ManagedCluster) {
			part(&part(&profile(c).SecurityProfile).WorkloadIdentity).Enabled = new(true)
		}},
	}
}

func localAccountsOf(c aks.ManagedCluster) string {
	if value(value(c.Properties).DisableLocalAccounts) {
		return "off"
	}
	return "on"
}

func rbacOf(c aks.ManagedCluster) string { return onOff(value(value(c.Properties).EnableRBAC)) }

// entraWithRoles is a cluster in which the directory says who somebody is, and
// Azure's roles what they may do.
const entraWithRoles = "managed, with Azure RBAC"

func entraOf(c aks.ManagedCluster) string {
	a := value(value(c.Properties).AADProfile)
	switch {
	case !value(a.Managed):
		return "not used"
	case !value(a.EnableAzureRBAC):
		return "managed, without Azure RBAC"
	}
	return entraWithRoles
}

func issuerOf(c aks.ManagedCluster) string {
	return onOff(value(value(value(c.Properties).OidcIssuerProfile).Enabled))
}

func workloadIdentityOf(c aks.ManagedCluster) string {
	return onOff(value(value(value(value(c.Properties).SecurityProfile).WorkloadIdentity).Enabled))
}

// networkSettings are fixed for the life of a cluster.
func (d design) networkSettings() []setting {
	return []setting{{"network", true, networkOf, func(c *aks.ManagedCluster) {
		n := part(&profile(c).NetworkProfile)
		n.NetworkPlugin, n.NetworkPluginMode = new(aks.NetworkPluginAzure), new(aks.NetworkPluginModeOverlay)
		n.NetworkDataplane, n.NetworkPolicy = new(aks.NetworkDataplaneCilium), new(aks.NetworkPolicyCilium)
		n.LoadBalancerSKU = new(aks.LoadBalancerSKUStandard)
	}}, {"ranges", true, podRangesOf, func(c *aks.ManagedCluster) {
		n := part(&profile(c).NetworkProfile)
		n.PodCidr, n.ServiceCidr, n.DNSServiceIP = &d.info.PodCIDR, &d.info.ServiceCIDR, new(dnsService(d.info.ServiceCIDR))
	}}, {"outbound type", true, outboundTypeOf, func(c *aks.ManagedCluster) {
		part(&profile(c).NetworkProfile).OutboundType = &d.outbound
	}}}
}

func networkOf(c aks.ManagedCluster) string {
	n := value(value(c.Properties).NetworkProfile)
	return strings.ToLower(strings.Join([]string{
		string(value(n.NetworkPlugin)), string(value(n.NetworkPluginMode)), "dataplane " + string(value(n.NetworkDataplane)),
		"policy " + string(value(n.NetworkPolicy)), "load balancer " + string(value(n.LoadBalancerSKU)),
	}, ", "))
}

func podRangesOf(c aks.ManagedCluster) string {
	n := value(value(c.Properties).NetworkProfile)
	return "pods " + value(n.PodCidr) + ", services " + value(n.ServiceCidr)
}

func outboundTypeOf(c aks.ManagedCluster) string {
	return string(value(value(value(c.Properties).NetworkProfile).OutboundType))
}

// tier is Standard, which promises that the API server is up; long-term support
// takes Premium ("Free, Standard and Premium pricing tiers for AKS").
func (d design) tier() (aks.ManagedClusterSKUTier, aks.KubernetesSupportPlan) {
	if d.info.Extended {
		return aks.ManagedClusterSKUTierPremium, aks.KubernetesSupportPlanAKSLongTermSupport
	}
	return aks.ManagedClusterSKUTierStandard, aks.KubernetesSupportPlanKubernetesOfficial
}

// The add-ons that every cluster has.
const (
	addonPolicy  = "azurepolicy"
	addonSecrets = "azureKeyvaultSecretsProvider"
	addonRouting = "httpApplicationRouting"
	rotationKey  = "enableSecretRotation"
)

// upkeepSettings keep the cluster up to date and clean.
func (d design) upkeepSettings() []setting {
	tier, plan := d.tier()
	return []setting{
		{"tier", false, tierOf, func(c *aks.ManagedCluster) {
			c.SKU = &aks.ManagedClusterSKU{Name: new(aks.ManagedClusterSKUNameBase), Tier: &tier}
			profile(c).SupportPlan = &plan
		}},
		{"upgrade channel", false, upgradesOf, func(c *aks.ManagedCluster) {
			part(&profile(c).AutoUpgradeProfile).UpgradeChannel = new(aks.UpgradeChannelPatch)
		}},
		{"node OS channel", false, nodeUpgradesOf, func(c *aks.ManagedCluster) {
			part(&profile(c).AutoUpgradeProfile).NodeOSUpgradeChannel = new(aks.NodeOSUpgradeChannelNodeImage)
		}},
		{"image cleaner", false, cleanerOf, func(c *aks.ManagedCluster) {
			cleaner := part(&part(&profile(c).SecurityProfile).ImageCleaner)
			cleaner.Enabled, cleaner.IntervalHours = new(true), new(cmp.Or(value(cleaner.IntervalHours), 168))
		}},
		{"policy add-on", false, policyOf, func(c *aks.ManagedCluster) { addon(c, addonPolicy).Enabled = new(true) }},
		{"Key Vault secrets provider", false, secretsOf, func(c *aks.ManagedCluster) {
			a := addon(c, addonSecrets)
			a.Enabled = new(true)
			if a.Config == nil {
				a.Config = map[string]*string{}
			}
			a.Config[rotationKey] = new("true")
		}},
		{"storage drivers", false, driversOf, func(c *aks.ManagedCluster) {
			s := part(&profile(c).StorageProfile)
			part(&s.DiskCSIDriver).Enabled, part(&s.FileCSIDriver).Enabled, part(&s.SnapshotController).Enabled = new(true), new(true), new(true)
		}},
	}
}

// addon is the profile of an add-on, made if it is not there.
func addon(c *aks.ManagedCluster, name string) *aks.ManagedClusterAddonProfile {
	p := profile(c)
	if p.AddonProfiles == nil {
		p.AddonProfiles = map[string]*aks.ManagedClusterAddonProfile{}
	}
	for have, a := range p.AddonProfiles {
		if same(have, name) && a != nil {
			return a
		}
	}
	p.AddonProfiles[name] = &aks.ManagedClusterAddonProfile{}
	return p.AddonProfiles[name]
}

// addonOf is an add-on as it is seen: AKS writes their names in any case.
func addonOf(c aks.ManagedCluster, name string) aks.ManagedClusterAddonProfile {
	for have, a := range value(c.Properties).AddonProfiles {
		if same(have, name) {
			return value(a)
		}
	}
	return aks.ManagedClusterAddonProfile{}
}

func tierOf(c aks.ManagedCluster) string { return string(value(value(c.SKU).Tier)) }

func upgradesOf(c aks.ManagedCluster) string {
	return cmp.Or(string(value(value(value(c.Properties).AutoUpgradeProfile).UpgradeChannel)), "none")
}

func nodeUpgradesOf(c aks.ManagedCluster) string {
	return cmp.Or(string(value(value(value(c.Properties).AutoUpgradeProfile).NodeOSUpgradeChannel)), "None")
}

func cleanerOf(c aks.ManagedCluster) string {
	return onOff(value(value(value(value(c.Properties).SecurityProfile).ImageCleaner).Enabled))
}

func policyOf(c aks.ManagedCluster) string { return onOff(value(addonOf(c, addonPolicy).Enabled)) }

func secretsOf(c aks.ManagedCluster) string {
	a := addonOf(c, addonSecrets)
	if !value(a.Enabled) {
		return "off"
	}
	if !strings.EqualFold(value(a.Config[rotationKey]), "true") {
		return "on, without rotation"
	}
	return "on, with rotation"
}

func driversOf(c aks.ManagedCluster) string {
	s := value(value(c.Properties).StorageProfile)
	return "disk " + onOff(value(value(s.DiskCSIDriver).Enabled)) + ", file " + onOff(value(value(s.FileCSIDriver).Enabled)) + ", snapshots " + onOff(value(value(s.SnapshotController).Enabled))
}
