package azure

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/containerservice/armcontainerservice/v9"

	"github.com/zopday/provisioner/internal/sim"
)

// clusterService is Microsoft.ContainerService, as faults and books call it.
const clusterService = "containerservice"

// The types of managed Kubernetes.
const (
	clusterType     = "Microsoft.ContainerService/managedClusters"
	poolType        = clusterType + "/agentPools"
	maintenanceType = clusterType + "/maintenanceConfigurations"
)

// clusterVersions are the api-versions that are accepted: that of the SDK in use and those of recorded traffic.
var clusterVersions = []string{"2017-08-31", "2020-09-01", "2021-05-01", "2022-04-01", "2023-02-01", "2023-10-01", "2024-05-01", "2024-09-01", "2025-02-01", "2025-05-01",
	"2025-09-02-preview", "2025-10-01", "2026-01-01", sdkClusterVersion}

// sdkClusterVersion is the api-version whose bodies are held against the SDK's types; older ones have members of their own.
const sdkClusterVersion = "2026-04-01"

// etagSince is the first api-version that shows etags ("Enhance concurrency control with entity tags (eTags) in AKS").
const etagSince = "2024-09-01"

var (
	clusterName = &nameRule{regexp.MustCompile(`^[a-zA-Z0-9]$|^[a-zA-Z0-9][-_a-zA-Z0-9]{0,61}[a-zA-Z0-9]$`), "The value of parameter resourceName is invalid. Please see https://aka.ms/aks-naming-rules for more details."}
	poolName    = &nameRule{regexp.MustCompile(`^[a-z][a-z0-9]{0,11}$`), "The value of parameter agentPoolProfile.name is invalid. Please see https://aka.ms/aks-naming-rules for more details."}
)

// addClusters registers Microsoft.ContainerService.
func (c *Cloud) addClusters() {
	s := c.newShelf(clusterService)
	s.on["cluster"], s.on["pool"] = c.clusterEvent, c.poolEvent
	s.fresh = c.servers.forget
	s.drive = c.driveCluster
	allowClusterEnums()
	c.World.DefineQuota(sim.Quota{Cloud: "azure", Service: clusterService, Code: "ManagedClusters", Name: "Managed clusters", Default: 100, Unit: "Count", Adjustable: true})
	modelled := func(version string) bool { return version == sdkClusterVersion }
	c.addKind(&kind{typ: clusterType, service: clusterService, versions: clusterVersions, tracked: true, ownEtag: true, etag: plainEtag, says: clusterDialect, name: clusterName,
		model: func() any { return &armcontainerservice.ManagedCluster{} }, patchModel: func() any { return &armcontainerservice.TagsObject{} }, modelled: modelled,
		put: c.putCluster, patch: c.patchCluster, remove: c.removeCluster, finishDelete: c.clusterGoes, removed: c.clusterRemoved, settled: c.clusterSettled,
		show: c.showCluster, guard: c.clusterIdle, polling: clusterPolling, stamped: true,
		actions: map[string]func(*request, *Resource) (answer, error){
			"listclusterusercredential": c.userCredential, "listclusteradmincredential": c.adminCredential, "stop": c.stopCluster, "start": c.startCluster,
			"abort": c.abortCluster, "runcommand": c.clusterCommand,
		},
		reads: []string{"listclusterusercredential", "listclusteradmincredential"}})
	c.addKind(&kind{typ: poolType, service: clusterService, versions: clusterVersions, ownEtag: true, etag: plainEtag, says: clusterDialect, name: poolName,
		model: func() any { return &armcontainerservice.AgentPool{} }, modelled: modelled,
		put: c.putPool, remove: c.removePool, removed: c.poolRemoved, settled: c.poolSettled, show: c.showAgentPool, guard: c.poolIdle, polling: clusterPolling, stamped: true,
		actions: map[string]func(*request, *Resource) (answer, error){"abort": c.abortPool}})
	c.addMaintenance()
	c.addClusterVersions()
}

func allowClusterEnums() {
	allow(armcontainerservice.PossibleAgentPoolModeValues())
	allow(armcontainerservice.PossibleAgentPoolTypeValues())
	allow(armcontainerservice.PossibleAgentPoolSSHAccessValues())
	allow(armcontainerservice.PossibleOSDiskTypeValues())
	allow(armcontainerservice.PossibleOSTypeValues())
	allow(armcontainerservice.PossibleOSSKUValues())
	allow(armcontainerservice.PossibleKubeletDiskTypeValues())
	allow(armcontainerservice.PossibleScaleDownModeValues())
	allow(armcontainerservice.PossibleScaleSetPriorityValues())
	allow(armcontainerservice.PossibleScaleSetEvictionPolicyValues())
	allow(armcontainerservice.PossibleLoadBalancerSKUValues())
	allow(armcontainerservice.PossibleNetworkDataplaneValues())
	allow(armcontainerservice.PossibleNetworkPluginValues())
	allow(armcontainerservice.PossibleNetworkPluginModeValues())
	allow(armcontainerservice.PossibleNetworkPolicyValues())
	allow(armcontainerservice.PossibleOutboundTypeValues())
	allow(armcontainerservice.PossibleUpgradeChannelValues())
	allow(armcontainerservice.PossibleNodeOSUpgradeChannelValues())
	allow(armcontainerservice.PossibleManagedClusterSKUNameValues())
	allow(armcontainerservice.PossibleManagedClusterSKUTierValues())
	allow(armcontainerservice.PossibleKubernetesSupportPlanValues())
	allow(armcontainerservice.PossibleNodeProvisioningModeValues())
	allow(armcontainerservice.PossiblePublicNetworkAccessValues())
	allow(armcontainerservice.PossibleResourceIdentityTypeValues())
	allow(armcontainerservice.PossibleWeekDayValues())
}

// plainEtag makes etags as Microsoft.ContainerService does: bare UUIDs.
func plainEtag(c *Cloud) string { return c.World.UUID() }

// clusterPolling is where operations of Microsoft.ContainerService are asked for.
func clusterPolling(op *Operation) (async, result string) {
	base := fmt.Sprintf("/subscriptions/%s/providers/Microsoft.ContainerService/locations/%s/", subscriptionOf(op.Target), op.Location)
	return base + "operations/" + op.ID, base + "operationresults/" + op.ID
}

// clusterDialect words refusals as Microsoft.ContainerService does: without `error` around them.
var clusterDialect = func() *dialect {
	d := *armDialect
	d.absent = func(r *request) *Error {
		if strings.EqualFold(r.id.typ(), poolType) {
			e := refuseCluster(http.StatusNotFound, "NotFound", "", "Could not find the agentpool: %s in subscription: %s, resourceGroup: %s, resourceName: %s.", r.id.name(), r.id.Subscription, r.id.Group, r.id.Names[0])
			return absentDetail(e, "GetAgentPool_NotFound", "Agent Pool not found")
		}
		e := refuseCluster(http.StatusNotFound, "NotFound", "", "Could not find the %s: %s in subscription: %s, resourceGroup: %s, resourceName: %s.", lastOf(r.id.typ()), r.id.name(), r.id.Subscription, r.id.Group, r.id.Names[0])
		return absentDetail(e, "NotFound", "Not found")
	}
	d.orphan = func(r *request, parent armID) *Error {
		if r.method == http.MethodPut {
			return refuseARM(http.StatusNotFound, "ParentResourceNotFound", "Failed to perform 'write' on resource(s) of type '%s', because the parent resource '%s' could not be found.", strings.Join(r.id.Types, "/"), parent)
		}
		return notFoundARM(parent)
	}
	d.mismatch = func(res *Resource, given string) *Error {
		return refuseCluster(http.StatusPreconditionFailed, "EtagMismatch", "", "Operation is not allowed: Etag provided in if-match header %s did not match etag of existing resource %s.", given, res.Etag)
	}
	d.taken = func(res *Resource) *Error {
		return refuseCluster(http.StatusPreconditionFailed, "EtagMismatch", "", "Operation is not allowed: if-none-match header is *, but the resource %s exists with etag %s.", res.Name, res.Etag)
	}
	d.badBody = func(p bodyProblem) *Error {
		if p.member != "" {
			return refuseCluster(http.StatusBadRequest, "UnmarshalError", p.path, `UnmarshalEntity encountered error: json: unknown field "%s".`, p.member)
		}
		return refuseCluster(http.StatusBadRequest, "InvalidParameter", p.path, "%s", p.text)
	}
	d.badName = func(_ *request, rule *nameRule) *Error {
		return refuseCluster(http.StatusBadRequest, "InvalidParameter", "", "%s", rule.text)
	}
	return &d
}()

// refuseCluster is a refusal of Microsoft.ContainerService. The target may be empty.
func refuseCluster(status int, code, target, format string, args ...any) *Error {
	e := refuse(status, code, format, args...)
	e.Bare, e.Target, e.Extra = true, target, map[string]any{"details": nil, "subcode": ""}
	return e
}

func absentDetail(e *Error, subcode, text string) *Error {
	e.Extra = map[string]any{"subcode": subcode}
	return e.with(refuse(0, "Unspecified", "rpc error: code = NotFound desc = %s", text))
}

// badParameter refuses the value of a parameter.
func badParameter(target, format string, args ...any) *Error {
	return refuseCluster(http.StatusBadRequest, "InvalidParameter", target, format, args...)
}

// frozenProperty refuses to change what is fixed when it is made.
func frozenProperty(path string) *Error {
	return refuseCluster(http.StatusBadRequest, "PropertyChangeNotAllowed", path, "Changing property '%s' is not allowed.", path)
}

// clusterOf is the cluster that a pool lies in.
func (c *Cloud) clusterOf(pool *Resource) *Resource { return c.find(parentOf(pool.ID)) }

// poolsOf lists the pools of a cluster in the order of their making.
func (c *Cloud) poolsOf(cluster *Resource) []*Resource { return c.children(cluster.ID, poolType) }

// nodeGroup is the ID of the group in which a cluster keeps its machines.
func nodeGroup(cluster *Resource) string {
	return groupID(subscriptionOf(cluster.ID), cluster.Properties.str("nodeResourceGroup"))
}

// clusterIdle refuses to write a cluster while something is at work on it or on one of its pools; a delete preempts that
// ("Troubleshoot the OperationNotAllowed error code").
func (c *Cloud) clusterIdle(r *request, id string) error {
	cluster := c.find(id)
	if cluster == nil {
		return nil
	}
	if op := c.shelves[clusterService].state.Operations[cluster.Operation]; op != nil {
		if r.method == http.MethodDelete {
			return nil
		}
		return inProgress(op, cluster)
	}
	for _, p := range c.poolsOf(cluster) {
		if p.busy() && r.method != http.MethodDelete {
			return poolInProgress(p)
		}
	}
	return nil
}

// poolIdle refuses to write a pool while something is at work on it or on its cluster.
func (c *Cloud) poolIdle(r *request, id string) error {
	s := c.shelves[clusterService]
	if cluster := c.find(parentOf(id)); cluster != nil {
		if op := s.state.Operations[cluster.Operation]; op != nil {
			return inProgress(op, cluster)
		}
	}
	pool := c.find(id)
	if pool != nil && pool.busy() && !(r.method == http.MethodDelete && pool.State != stateDeleting) {
		return poolInProgress(pool)
	}
	return nil
}

func inProgress(op *Operation, cluster *Resource) *Error {
	verb := map[string]string{stateCreating: "create", stateDeleting: "delete", "Stopping": "stop", "Starting": "start"}[cluster.State]
	if verb == "" {
		verb = "update"
	}
	return refuseCluster(http.StatusConflict, "OperationNotAllowed", "", "Operation is not allowed because there's an in progress %s managed cluster operation (operation ID: %s) on the managed cluster started on UTC %s. Please wait for it to finish before starting a new operation. You can also use 'az aks operation-abort' to abort the ongoing operation. See https://aka.ms/aks-pending-operation for more details",
		verb, op.ID, op.Started.UTC().Format("2006-01-02T15:04:05Z"))
}

func poolInProgress(pool *Resource) *Error {
	return refuseCluster(http.StatusConflict, "OperationNotAllowed", "", "Operation is not allowed: Another agentpool operation (%s - %s) is in progress, please wait for it to finish before starting a new operation. See https://aka.ms/aks-pending-operation for more details", pool.Name, pool.State)
}
