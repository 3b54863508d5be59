package azure

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/operationalinsights/armoperationalinsights/v2"
)

// workspaceService is Microsoft.OperationalInsights, as faults and books call it.
const (
	workspaceService = "operationalinsights"
	workspaceType    = "Microsoft.OperationalInsights/workspaces"
)

var workspaceVersions = []string{"2020-08-01", "2020-10-01", "2021-06-01", "2022-10-01", "2023-09-01", "2025-02-01", "2025-07-01"}

// softDeleted is how long a deleted workspace can be recovered, and how long its name is taken ("Delete and recover Azure Log Analytics
// workspace").
const softDeleted = 14 * 24 * time.Hour

// A deletedWorkspace is one that can be recovered.
type deletedWorkspace struct {
	Resource *Resource `json:"resource"`
	Deleted  time.Time `json:"deleted"`
}

var workspaceName = &nameRule{regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]{2,61}[A-Za-z0-9]$`),
	"The workspace name must be between 4 and 63 characters. The workspace name must only contain letters, numbers and hyphens, and must not begin or end with a hyphen."}

// addWorkspaces registers Log Analytics workspaces.
func (c *Cloud) addWorkspaces() {
	s := c.newShelf(workspaceService)
	s.on["purge"] = c.purgeWorkspace
	allow(armoperationalinsights.PossibleWorkspaceSKUNameEnumValues())
	allow(armoperationalinsights.PossiblePublicNetworkAccessTypeValues())
	says := *armDialect
	says.badName = func(r *request, rule *nameRule) *Error {
		return refuse(http.StatusBadRequest, "InvalidResourceName", "'%s' is invalid. %s", r.id.name(), rule.text)
	}
	c.addKind(&kind{typ: workspaceType, service: workspaceService, versions: workspaceVersions, tracked: true, name: workspaceName, says: &says,
		etag:  func(c *Cloud) string { return `"` + c.World.UUID() + `"` },
		model: func() any { return &armoperationalinsights.Workspace{} }, patchModel: func() any { return &armoperationalinsights.WorkspacePatch{} },
		put: c.putWorkspace, mergePatch: true, remove: c.removeWorkspace, removed: c.workspaceRemoved,
		actions: map[string]func(*request, *Resource) (answer, error){"sharedkeys": c.sharedKeys}, reads: []string{"sharedkeys"}})
	const path = "/providers/Microsoft.OperationalInsights/deletedWorkspaces"
	for _, scope := range roleScopes[:2] {
		c.handle(route{method: "GET", pattern: scope + path, service: workspaceService, operation: "DeletedWorkspaces_List", kind: workspaceType, versions: workspaceVersions, serve: c.listDeleted})
	}
}

// putWorkspace makes a workspace, changes one, or recovers one that was deleted less than two weeks ago.
func (c *Cloud) putWorkspace(_ *request, now, old *Resource) (outcome, error) {
	p := now.Properties
	for _, name := range []string{"customerId", "createdDate", "modifiedDate", "privateLinkScopedResources"} {
		delete(p, name)
	}
	if old == nil {
		back, e := c.recoverable(now)
		if e != nil {
			return outcome{}, e
		}
		if back != nil {
			old = back.Resource
			c.forgetDeleted(old)
		}
	}
	stamped := stamp(c.World.Now())
	p["customerId"], p["createdDate"], p["modifiedDate"] = c.World.UUID(), stamped, stamped
	if old != nil {
		inheritDoc(p, old.Properties.clone())
		p["customerId"], p["createdDate"] = old.Properties["customerId"], old.Properties["createdDate"]
	}
	if p.sub("sku") == nil {
		p["sku"] = map[string]any{}
	}
	p.sub("sku").def("name", "pergb2018")
	p.sub("sku").def("lastSkuUpdate", stamped)
	if sku := strings.ToLower(p.str("sku.name")); sku == "free" || sku == "standard" || sku == "premium" || sku == "pernode" {
		return outcome{}, refuse(http.StatusBadRequest, "BadRequest", "The pricing tier '%s' is not available to this subscription. Pricing tier must be PerGB2018 or CapacityReservation.", p.str("sku.name"))
	}
	p.def("retentionInDays", 30.0)
	if n := p.num("retentionInDays"); n < 30 || n > 730 {
		return outcome{}, refuse(http.StatusBadRequest, "InvalidParameter", "'RetentionInDays' property doesn't match the SKU limits: it must be between 30 and 730.")
	}
	p.def("workspaceCapping", map[string]any{"dailyQuotaGb": -1.0, "quotaNextResetTime": stamped, "dataIngestionStatus": "RespectQuota"})
	p.def("publicNetworkAccessForIngestion", "Enabled")
	p.def("publicNetworkAccessForQuery", "Enabled")
	if p.sub("features") == nil {
		p["features"] = map[string]any{}
	}
	p.sub("features").def("legacy", 0)
	p.sub("features").def("searchVersion", 1)
	p.sub("features").def("enableLogAccessUsingOnlyResourcePermissions", true)
	if old == nil {
		// The caller asks for the resource itself until it is there.
		return outcome{state: stateCreating, takes: c.pace(8*time.Second, 25*time.Second, now.ID)}, nil
	}
	return outcome{}, nil
}

// removeWorkspace deletes a workspace, for good only if that is asked for.
func (c *Cloud) removeWorkspace(r *request, ws *Resource) (outcome, error) {
	if f := r.query.Get("force"); f == "true" {
		ws.Properties[forGood] = true
	}
	return outcome{status: http.StatusAccepted, state: stateDeleting, takes: c.pace(5*time.Second, 15*time.Second, "delete "+ws.ID), style: asyncLocation, retryAfter: 5, empty: true}, nil
}

// forGood marks a workspace that is on its way out and cannot be recovered.
const forGood = "purge"

func deletedKey(id string) string { return "deleted " + key(id) }

// workspaceRemoved keeps a deleted workspace for two weeks.
func (c *Cloud) workspaceRemoved(ws *Resource) {
	if ws.Properties.flag(forGood) {
		return
	}
	b, err := json.Marshal(deletedWorkspace{Resource: ws, Deleted: c.World.Now()})
	if err != nil {
		panic(err) // plain data
	}
	kept := &c.shelves[workspaceService].state.Extra
	if *kept == nil { // a world that was taken up again with nothing in it
		*kept = map[string]json.RawMessage{}
	}
	(*kept)[deletedKey(ws.ID)] = b
	c.after(softDeleted, workspaceService, "purge", ws.ID)
}

func (c *Cloud) forgetDeleted(ws *Resource) {
	delete(c.shelves[workspaceService].state.Extra, deletedKey(ws.ID))
}

// purgeWorkspace ends the two weeks of a deleted workspace; one that was recovered and deleted again has a later end.
func (c *Cloud) purgeWorkspace(id string) {
	if d, ok := c.deletedAt(deletedKey(id)); ok && c.World.Now().Sub(d.Deleted) >= softDeleted {
		c.forgetDeleted(d.Resource)
	}
}

func (c *Cloud) deletedAt(at string) (deletedWorkspace, bool) {
	var d deletedWorkspace
	raw, ok := c.shelves[workspaceService].state.Extra[at]
	if !ok {
		return d, false
	}
	if err := json.Unmarshal(raw, &d); err != nil {
		panic(err) // written by workspaceRemoved
	}
	return d, true
}

// recoverable is the deleted workspace that a new one would be: the same name, group and location. Anywhere else the name is taken.
func (c *Cloud) recoverable(now *Resource) (*deletedWorkspace, *Error) {
	for _, at := range sortedKeys(c.shelves[workspaceService].state.Extra) {
		d, _ := c.deletedAt(at)
		was := d.Resource
		if !strings.EqualFold(was.Name, now.Name) || !strings.EqualFold(subscriptionOf(was.ID), subscriptionOf(now.ID)) {
			continue
		}
		if strings.EqualFold(was.ID, now.ID) && was.Location == now.Location {
			return &d, nil
		}
		e := refuse(http.StatusConflict, "Conflict", "The workspace name '%s' is not unique", now.Name)
		e.Target = "name"
		return nil, e
	}
	return nil, nil
}

// sharedKeys hands out the keys with which agents send data.
func (c *Cloud) sharedKeys(_ *request, ws *Resource) (answer, error) {
	one := func(n int) string {
		return b64(c.mac(fmt.Sprintf("workspace %s key %d", ws.Properties.str("customerId"), n)))
	}
	return plain(map[string]any{"primarySharedKey": one(1), "secondarySharedKey": one(2)}), nil
}

func (c *Cloud) listDeleted(r *request) (answer, error) {
	prefix := "/subscriptions/" + r.subscription
	if g := r.vars["group"]; g != "" {
		prefix = groupID(r.subscription, g)
	}
	all := []any{}
	for _, at := range sortedKeys(c.shelves[workspaceService].state.Extra) {
		if d, _ := c.deletedAt(at); strings.HasPrefix(key(d.Resource.ID), key(prefix)+"/") {
			all = append(all, c.render(r, d.Resource))
		}
	}
	return plain(map[string]any{"value": all}), nil
}
