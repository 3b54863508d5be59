package azure

import (
	"net/http"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/containerservice/armcontainerservice/v9"
)

// stopCluster switches off the machines of a cluster and its API server ("Stop and start an AKS cluster").
func (c *Cloud) stopCluster(r *request, cluster *Resource) (answer, error) {
	if cluster.Properties.str("powerState.code") == "Stopped" {
		return answer{}, refuseCluster(http.StatusBadRequest, "OperationNotAllowed", "", "Managed cluster %s is already in the stopped state.", cluster.Name)
	}
	return c.switchCluster(r, cluster, "stop", "Stopping", c.pace(90*time.Second, 150*time.Second, "stop "+cluster.ID))
}

// startCluster switches a stopped cluster on again.
func (c *Cloud) startCluster(r *request, cluster *Resource) (answer, error) {
	if cluster.Properties.str("powerState.code") != "Stopped" {
		return answer{}, refuseCluster(http.StatusBadRequest, "OperationNotAllowed", "", "Managed cluster %s is not in the stopped state.", cluster.Name)
	}
	return c.switchCluster(r, cluster, "start", "Starting", c.pace(150*time.Second, 240*time.Second, "start "+cluster.ID))
}

func (c *Cloud) switchCluster(r *request, cluster *Resource, verb, state string, takes time.Duration) (answer, error) {
	if err := c.clusterIdle(r, cluster.ID); err != nil {
		return answer{}, err
	}
	cluster.State = state
	for _, p := range c.poolsOf(cluster) {
		p.State = state
	}
	c.touch(cluster)
	r.Make(cluster.ID)
	h := c.begin(r, cluster, verb, outcome{takes: clusterLimit, style: asyncLocation})
	c.clusterAfter(5*time.Second, cluster, takes)
	return answer{status: http.StatusAccepted, header: h}, nil
}

// abortCluster ends what is at work on a cluster ("Abort an AKS long-running operation").
func (c *Cloud) abortCluster(r *request, cluster *Resource) (answer, error) {
	return c.abort(r, cluster)
}

func (c *Cloud) abortPool(r *request, pool *Resource) (answer, error) { return c.abort(r, pool) }

func (c *Cloud) abort(r *request, res *Resource) (answer, error) {
	op := c.shelves[clusterService].state.Operations[res.Operation]
	if op == nil {
		return answer{}, refuseCluster(http.StatusBadRequest, "OperationNotAllowed", "", "There is no ongoing operation on %s that could be aborted.", res.Name)
	}
	if op.Verb == "delete" {
		return answer{}, refuseCluster(http.StatusBadRequest, "OperationNotAllowed", "", "A delete operation cannot be aborted.")
	}
	// It was just found.
	_ = c.shelves[clusterService].SetState(res.ID, "Canceled", "OperationPreempted", "The operation was aborted by the user.")
	r.Make(res.ID)
	return answer{status: http.StatusAccepted, header: c.begin(r, res, "abort", outcome{style: asyncLocation})}, nil
}

// clusterCommand runs a command inside of the cluster, unless that is forbidden. There is no pod here that would run it, and the result
// says so.
func (c *Cloud) clusterCommand(r *request, cluster *Resource) (answer, error) {
	body, err := r.input(clusterDialect, func() any { return &armcontainerservice.RunCommandRequest{} })
	if err != nil {
		return answer{}, err
	}
	switch {
	case cluster.Properties.flag("apiServerAccessProfile.disableRunCommand"):
		return answer{}, refuseCluster(http.StatusBadRequest, "RunCommandDisabled", "", "Run command is disabled for the managed cluster %s.", cluster.Name)
	case cluster.State != stateSucceeded || cluster.Properties.str("powerState.code") != "Running":
		return answer{}, refuseCluster(http.StatusBadRequest, "OperationNotAllowed", "", "Run command is not allowed on a cluster that is not running.")
	case strings.TrimSpace(body.str("command")) == "":
		return answer{}, badParameter("command", "Required parameter command is missing (null).")
	}
	word := strings.Fields(body.str("command"))[0]
	now := c.World.Now()
	result := map[string]any{"id": c.World.Hex("", 32), "properties": map[string]any{"provisioningState": stateSucceeded, "exitCode": 127, "startedAt": stamp(now), "finishedAt": stamp(now.Add(6 * time.Second)),
		"logs": "sh: 1: " + word + ": not found (commands in clusters are not simulated)\n"}}
	out := outcome{style: locationOnly, result: result}
	return answer{status: http.StatusAccepted, header: c.begin(r, cluster, "runCommand", out)}, nil
}
