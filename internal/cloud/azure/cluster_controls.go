package azure

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/authorization/armauthorization/v2"
	aks "github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/containerservice/armcontainerservice/v9"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/monitor/armmonitor"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v10"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// clusterRows are the rows that every cluster's report has here.
var clusterRows = []string{
	"AKS-01", "AKS-03", "AKS-04", "AKS-05", "AKS-06", "AKS-07", "AKS-08", "AKS-09", "AKS-10", "AKS-11", "AKS-12", "AKS-13", "AKS-14", "AKS-15", "AKS-18", "AKS-20", "AKS-23", "AKS-24", "AKS-25",
	"AKS-26", "AKS-27", "AKS-28", "AKS-29", "AKS-30", "AKS-31", "AKS-33", "AKS-34", "AKS-35", "AKS-36", "AKS-37", "AKS-38", "AKS-39", "AKS-40", "AKS-41", "AKS-42", "AKS-46",
}

// cluster reads the hardening controls of the job's cluster back.
func (c *controls) cluster(ctx context.Context) error {
	if c.r.Job.Mode == job.ModeAdopt {
		return nil // an adoption notes what is risky, and asks for nothing
	}
	x, err := read[aks.ManagedCluster](ctx, c.p, c.p.clusterID(c.r))
	if pipeline.Is(err, pipeline.Denied, pipeline.NotFound) {
		for _, id := range clusterRows {
			c.unread(id, "hardening of the cluster", err)
		}
		return nil
	}
	if err != nil {
		return err
	}
	rows, err := c.p.clusterControls(ctx, c.r, x)
	c.rows = append(c.rows, rows...)
	return err
}

// clusterControls are the rows of one cluster, whoever made it: what the cloud says
// of it, beside what is wanted of every cluster.
func (p *Provider) clusterControls(ctx context.Context, r *pipeline.Run, x resource[aks.ManagedCluster]) ([]job.Control, error) {
	c := &controls{p: p, r: r, infra: &r.Job.Config.InfraConfig}
	pools, err := list[resource[aks.AgentPool]](ctx, p, x.ID+"/agentPools")
	if err != nil {
		return nil, err
	}
	c.apiServer(x.is)
	c.clusterIdentity(x.is)
	c.clusterNetwork(x.is)
	c.clusterUpkeep(x)
	if err := c.nodePools(ctx, x, pools); err != nil {
		return nil, err
	}
	for _, part := range []struct {
		id, name string
		read     func(context.Context, resource[aks.ManagedCluster], []resource[aks.AgentPool]) error
	}{
		{"AKS-20", "audit log sent to a workspace", c.auditLog}, {"AKS-28", "maintenance windows", c.maintenance}, {"AKS-29", "Kubernetes version", c.supported},
		{"AKS-41", "security groups of the nodes' subnets", c.nodeGroups}, {"AKS-42", "roles of the nodes' identity", c.kubeletRoles},
	} {
		err := part.read(ctx, x, pools)
		switch {
		case pipeline.Is(err, pipeline.Denied, pipeline.NotFound, pipeline.Invalid):
			c.unread(part.id, part.name, err)
		case err != nil:
			return nil, err
		}
	}
	return c.rows, nil
}

// unread adds a control that could not be read.
func (c *controls) unread(id, name string, err error) {
	c.rows = append(c.rows, job.Control{ID: id, Name: name, Wanted: "to be read back", Seen: "not read: " + err.Error(), Unchecked: true})
}

// apiServer is who reaches the API server.
func (c *controls) apiServer(x aks.ManagedCluster) {
	const source = "CKV_AZURE_6, CIS AKS 5.4.1"
	open := slices.ContainsFunc(values(value(value(x.Properties).APIServerAccessProfile).AuthorizedIPRanges), func(s string) bool {
		p, err := netip.ParsePrefix(s)
		return err == nil && p.Bits() == 0
	})
	seen := "private"
	if endpointOf(x) != "private" {
		seen = rangesOf(x)
	}
	c.add("AKS-01", "who reaches the API server", "nobody from outside, or named ranges", seen, seen == "private" || seen != "anybody" && !open, source)
	if c.r.Job.Mode != job.ModeAdopt && !c.infra.Cluster.Public {
		c.same("AKS-02", "API server", "private", endpointOf(x), "CKV_AZURE_115, CIS AKS 5.4.2")
	}
	c.same("AKS-03", "run command", "off", runCommandOf(x), "Azure Policy: disable Command Invoke")
}

// clusterIdentity is who may do what, and as whom the cluster acts.
func (c *controls) clusterIdentity(x aks.ManagedCluster) {
	f := value(x.Properties)
	entra := value(f.AADProfile)
	c.same("AKS-04", "Kubernetes RBAC", "on", rbacOf(x), "CKV_AZURE_5")
	c.same("AKS-05", "Entra ID managed by AKS", "yes", yesNo(value(entra.Managed)), "CIS AKS 5.5.1")
	c.same("AKS-06", "Azure RBAC for Kubernetes", "yes", yesNo(value(entra.EnableAzureRBAC)), "CIS AKS 5.5.2")
	c.same("AKS-07", "local accounts", "off", localAccountsOf(x), "CKV_AZURE_141, Azure.AKS.LocalAccounts")
	kind := string(value(value(x.Identity).Type))
	client := value(value(f.ServicePrincipalProfile).ClientID)
	secretless := (kind == "UserAssigned" || kind == "SystemAssigned") && (client == "" || client == "msi")
	if !secretless && client != "" && client != "msi" {
		kind = "service principal " + client
	}
	c.add("AKS-08", "what the control plane runs as", "a managed identity", cmp.Or(kind, "none"), secretless, "Azure.AKS.ManagedIdentity")
	seen := "issuer " + issuerOf(x) + ", workload identity " + workloadIdentityOf(x) + ", pod identity " + onOff(value(value(f.PodIdentityProfile).Enabled))
	c.same("AKS-09", "workload identity", "issuer on, workload identity on, pod identity off", seen, "CIS AKS 5.2.1")
}

// clusterNetwork is how pods and nodes are connected.
func (c *controls) clusterNetwork(x aks.ManagedCluster) {
	n := value(value(x.Properties).NetworkProfile)
	policy := fmt.Sprintf("policy %s, dataplane %s", cmp.Or(string(value(n.NetworkPolicy)), "none"), cmp.Or(string(value(n.NetworkDataplane)), "none"))
	c.same("AKS-10", "network policy", "policy cilium, dataplane cilium", policy, "CKV_AZURE_7, CIS AKS 5.4.4")
	plugin := strings.TrimSpace(string(value(n.NetworkPlugin)) + " " + string(value(n.NetworkPluginMode)))
	c.same("AKS-11", "network plugin", "azure overlay", plugin, "CKV2_AZURE_29, CIS AKS 4.4.1")
	c.same("AKS-12", "load balancer", "standard", strings.ToLower(string(value(n.LoadBalancerSKU))), "Azure.AKS.StandardLB")
}

var validPrefix = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9-]{0,52}[a-zA-Z0-9])?$`)

// clusterUpkeep is what keeps the cluster up to date and clean.
func (c *controls) clusterUpkeep(x resource[aks.ManagedCluster]) {
	is := x.is
	c.same("AKS-18", "Azure Policy add-on", "on", policyOf(is), "CKV_AZURE_116")
	secrets := addonOf(is, addonSecrets)
	c.same("AKS-23", "Key Vault secrets provider", "on", onOff(value(secrets.Enabled)), "CIS AKS 4.5.2")
	c.same("AKS-24", "rotation of Key Vault secrets", "on", onOff(secretsOf(is) == "on, with rotation"), "CKV_AZURE_172")
	c.same("AKS-25", "HTTP application routing", "off", onOff(value(addonOf(is, addonRouting).Enabled)), "CKV_AZURE_246")
	channel := upgradesOf(is)
	c.add("AKS-26", "upgrade channel", "patch", channel, slices.Contains([]string{"patch", "stable", "rapid"}, channel), "CKV_AZURE_171")
	node := nodeUpgradesOf(is)
	c.add("AKS-27", "node OS upgrade channel", "NodeImage", node, node == "NodeImage" || node == "SecurityPatch", "Azure.AKS.NodeAutoUpgrade")
	tier := tierOf(is)
	c.add("AKS-37", "tier", "Standard", tier, tier == "Standard" || tier == "Premium", "CKV_AZURE_170, Azure.AKS.UptimeSLA")
	c.same("AKS-38", "image cleaner", "on", cleanerOf(is), "Azure Policy: Image Cleaner")
	c.same("AKS-40", "storage drivers", "disk on, file on, snapshots on", driversOf(is), "Azure Policy: CSI")
	prefix := value(value(is.Properties).DNSPrefix)
	seen := fmt.Sprintf("%d tags, DNS prefix %s", len(x.Tags), cmp.Or(prefix, "none"))
	c.add("AKS-46", "tags and names", "tags, and a valid name and DNS prefix", seen, len(x.Tags) > 0 && len(x.Name) <= longestCluster && validPrefix.MatchString(prefix), "Azure.Resource.UseTags, Azure.AKS.Name, Azure.AKS.DNSPrefix")
}

// auditLog reads where the API server's audit log goes.
func (c *controls) auditLog(ctx context.Context, x resource[aks.ManagedCluster], _ []resource[aks.AgentPool]) error {
	all, err := list[resource[armmonitor.DiagnosticSettingsResource]](ctx, c.p, x.ID+"/providers/"+typeDiagnostic)
	if err != nil {
		return err
	}
	best := ""
	for _, s := range all {
		f := value(s.is.Properties)
		if value(f.WorkspaceID) == "" {
			continue
		}
		var sent []string
		for _, category := range audited {
			if sends(f, category) || category == "kube-audit-admin" && sends(f, "kube-audit") {
				sent = append(sent, category)
			}
		}
		if text := sorted(sent); len(text) > len(best) {
			best = text
		}
	}
	c.same("AKS-20", "audit log sent to a workspace", sorted(audited), best, "Azure.AKS.AuditLogs, CIS AKS 2.1.1")
	return nil
}

// maintenance reads when the cluster upgrades.
func (c *controls) maintenance(ctx context.Context, x resource[aks.ManagedCluster], _ []resource[aks.AgentPool]) error {
	all, err := list[resource[aks.MaintenanceConfiguration]](ctx, c.p, x.ID+"/maintenanceConfigurations")
	if err != nil {
		return err
	}
	var missing []string
	for _, w := range windows {
		if !slices.ContainsFunc(all, func(m resource[aks.MaintenanceConfiguration]) bool {
			return same(m.Name, w.name) && value(m.is.Properties).MaintenanceWindow != nil
		}) {
			missing = append(missing, w.name)
		}
	}
	c.same("AKS-28", "schedules without a maintenance window", "none", agreed(missing), "Azure.AKS.MaintenanceWindow")
	return nil
}

// supported asks the cloud whether the version is still supported, and compares
// the pools' with it.
func (c *controls) supported(ctx context.Context, x resource[aks.ManagedCluster], pools []resource[aks.AgentPool]) error {
	all, err := c.p.versions(ctx)
	if err != nil {
		return err
	}
	f := value(x.is.Properties)
	version := cmp.Or(value(f.CurrentKubernetesVersion), value(f.KubernetesVersion))
	plan := cmp.Or(value(f.SupportPlan), aks.KubernetesSupportPlanKubernetesOfficial)
	i := slices.IndexFunc(all, func(v aks.KubernetesVersion) bool { return value(v.Version) == minorOf(version) })
	in := i >= 0 && supports(all[i], plan)
	c.add("AKS-29", "Kubernetes version", "one that is supported", version+", supported: "+yesNo(in), in, "Azure.AKS.Version")
	var other []string
	for _, n := range pools {
		g := value(n.is.Properties)
		if v := cmp.Or(value(g.CurrentOrchestratorVersion), value(g.OrchestratorVersion)); v != version {
			other = append(other, n.Name+" "+v)
		}
	}
	c.same("AKS-29", "pools of another version than the control plane's", "none", agreed(other), "Azure.AKS.PoolVersion")
	return nil
}

// byServices are the rules that Kubernetes itself makes in the group of the nodes'
// interfaces, for Services of type LoadBalancer.
var byServices = regexp.MustCompile(`^(k8s-azure-lb_.*|a[0-9a-f]{31}-.*)$`)

// nodeGroups reads the security groups of the nodes' subnets, and that nobody has
// made rules in the group that AKS manages.
func (c *controls) nodeGroups(ctx context.Context, x resource[aks.ManagedCluster], pools []resource[aks.AgentPool]) error {
	var bareOnes, custom []string
	seen := map[string]bool{}
	for _, n := range pools {
		id := value(value(n.is.Properties).VnetSubnetID)
		if id == "" || seen[strings.ToLower(id)] {
			continue
		}
		seen[strings.ToLower(id)] = true
		s, err := read[armnetwork.Subnet](ctx, c.p, id)
		if err != nil {
			return err
		}
		if value(s.is.Properties).NetworkSecurityGroup == nil {
			bareOnes = append(bareOnes, s.Name)
		}
	}
	c.same("AKS-41", "nodes' subnets without a network security group", "none", agreed(bareOnes), "CKV2_AZURE_31, Azure.VNET.UseNSGs")
	managed, err := list[resource[armnetwork.SecurityGroup]](ctx, c.p, c.p.groupID(value(value(x.is.Properties).NodeResourceGroup))+"/providers/"+typeGroupRules)
	if err != nil {
		return err
	}
	for _, g := range managed {
		for _, rule := range value(g.is.Properties).SecurityRules {
			if name := value(rule.Name); !byServices.MatchString(name) {
				custom = append(custom, g.Name+": "+name)
			}
		}
	}
	c.same("AKS-41", "rules of others in the security group that AKS manages", "none", agreed(custom), "Azure.NSG.AKSRules")
	return nil
}

// kubeletRoles reads what the nodes' identity may do: pull images at most.
func (c *controls) kubeletRoles(ctx context.Context, x resource[aks.ManagedCluster], _ []resource[aks.AgentPool]) error {
	who := value(value(value(x.is.Properties).IdentityProfile[kubeletIdentity]).ObjectID)
	if who == "" {
		return absent("Microsoft.ContainerService", "managedClusters/read", "the identity of the nodes")
	}
	all, err := list[resource[armauthorization.RoleAssignment]](ctx, c.p, managementPrefix+c.p.subscription+"/providers/"+typeRole+"?$filter=principalId%20eq%20%27"+who+"%27")
	if err != nil {
		return err
	}
	var more []string
	for _, a := range all {
		f := value(a.is.Properties)
		if !strings.EqualFold(lastName(value(f.RoleDefinitionID)), rolePull) {
			more = append(more, lastName(value(f.RoleDefinitionID))+" on "+value(f.Scope))
		}
	}
	c.same("AKS-42", "roles of the nodes' identity beyond pulling images", "none", agreed(more), "CIS AKS 5.1.3")
	return nil
}
