package azure

import (
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resources/armresources/v4"
)

const groupType = "Microsoft.Resources/resourceGroups"

func (c *Cloud) addGroups() {
	c.addKind(&kind{
		typ: groupType, service: "resources", versions: resourcesVersions, tracked: true, noEtag: true,
		model: func() any { return &armresources.ResourceGroup{} }, patchModel: func() any { return &armresources.ResourceGroupPatchable{} },
		polling: func(op *Operation) (string, string) {
			p := "/subscriptions/" + subscriptionOf(op.Target) + "/operationresults/" + op.ID
			return p, p
		},
		deleted:      http.StatusOK,
		finishDelete: c.emptyGroup,
		put:          func(*request, *Resource, *Resource) (outcome, error) { return outcome{}, nil },
	})
	c.shelves["resources"].on["drain"] = c.drain
	const path = "/subscriptions/{subscription}/resourceGroups"
	for _, rt := range []struct {
		method, pattern, verb string
		serve                 func(*request) (answer, error)
	}{
		{"GET", path, "List", c.listGroups},
		{"PUT", path + "/{group}", "CreateOrUpdate", c.putGroup},
		{"PATCH", path + "/{group}", "Update", c.patchGroup},
		{"GET", path + "/{group}", "Get", c.getGroup},
		{"HEAD", path + "/{group}", "CheckExistence", c.getGroup},
		{"DELETE", path + "/{group}", "Delete", c.deleteGroup},
	} {
		c.handle(route{method: rt.method, pattern: rt.pattern, service: "resources", operation: "ResourceGroups_" + rt.verb, kind: groupType,
			versions: resourcesVersions, serve: rt.serve})
	}
}

// groupName is what names of groups look like ("Naming rules and restrictions for Azure resources").
var groupName = regexp.MustCompile(`^[-\w._()\p{L}\p{N}]{0,89}[-\w_()\p{L}\p{N}]$`)

func (c *Cloud) listGroups(r *request) (answer, error) {
	match, err := parseFilter(r.query.Get("$filter"))
	if err != nil {
		return answer{}, err
	}
	var all []any
	for _, res := range c.shelves["resources"].sorted() {
		if res.Type != groupType || !strings.EqualFold(subscriptionOf(res.ID), r.subscription) || !r.visible(res, true) {
			continue
		}
		if match(&indexEntry{ID: res.ID, Type: res.Type, Location: res.Location, Tags: res.Tags}) {
			all = append(all, c.render(r, res))
		}
	}
	return r.page(all, "$skiptoken")
}

// group finds the group of a request and notes it.
func (r *request) group() *Resource {
	id := groupID(r.subscription, r.vars["group"])
	r.Touch(r.cloud.spelled(id))
	return r.cloud.find(id)
}

func (c *Cloud) getGroup(r *request) (answer, error) {
	res := r.group()
	found := res != nil && r.visible(res, false)
	switch {
	case r.method == http.MethodHead && found:
		return answer{status: http.StatusNoContent, header: http.Header{}}, nil
	case found:
		return answer{status: http.StatusOK, header: http.Header{}, body: c.render(r, res)}, nil
	}
	return answer{}, groupNotFound(r.vars["group"])
}

func (c *Cloud) putGroup(r *request) (answer, error) {
	name := r.vars["group"]
	if !groupName.MatchString(name) {
		return answer{}, refuseARM(http.StatusBadRequest, "InvalidResourceGroup",
			"The provided resource group name '%s' has these invalid characters or ends with a period. The name can only be a letter, digit, '-', '.', '(', ')' or '_', up to 90 of them.", name)
	}
	old := r.group()
	if err := c.unlocked(r, groupID(r.subscription, name)); err != nil {
		return answer{}, err
	}
	body, err := r.input(armDialect, r.kind.model)
	if err != nil {
		return answer{}, err
	}
	now := &Resource{ID: groupID(r.subscription, name), Type: groupType, Name: name, Location: normalLocation(body.str("location")), Properties: doc{}, Top: doc{}}
	if by := body.str("managedBy"); by != "" {
		now.Top["managedBy"] = by
	}
	switch {
	case now.Location == "":
		return answer{}, refuseARM(http.StatusBadRequest, "LocationRequired", "The location property is required for this definition.")
	case !isLocation(now.Location):
		return answer{}, refuseARM(http.StatusBadRequest, "LocationNotAvailableForResourceGroup",
			"The provided location '%s' is not available for resource group. List of available regions is '%s'.", body.str("location"), strings.Join(locationNames(), ","))
	case old != nil && old.State == stateDeleting:
		return answer{}, refuseARM(http.StatusConflict, "ResourceGroupBeingDeleted",
			"The resource group '%s' is in deprovisioning state and cannot perform this operation.", name)
	case old != nil && old.Location != now.Location:
		return answer{}, refuseARM(http.StatusConflict, "InvalidResourceGroupLocation",
			"Invalid resource group location '%s'. The Resource group already exists in location '%s'.", now.Location, old.Location)
	case old == nil && c.countGroups(r.subscription) >= 980:
		return answer{}, refuseARM(http.StatusConflict, "ResourceGroupQuotaExceeded", "Subscription '%s' already has the maximum of 980 resource groups.", r.subscription)
	}
	if now.Tags, err = tagsOf(body.sub("tags")); err != nil {
		return answer{}, err
	}
	if old != nil {
		now.ID, now.Name, now.Created, now.Hold = old.ID, old.Name, old.Created, old.Hold
	}
	return c.store(r, r.kind, now, old)
}

func (c *Cloud) countGroups(subscription string) int {
	n := 0
	for _, res := range c.shelves["resources"].state.Resources {
		if res.Type == groupType && strings.EqualFold(subscriptionOf(res.ID), subscription) {
			n++
		}
	}
	return n
}

func (c *Cloud) patchGroup(r *request) (answer, error) {
	res := r.group()
	if res == nil {
		return answer{}, groupNotFound(r.vars["group"])
	}
	if err := c.unlocked(r, res.ID); err != nil {
		return answer{}, err
	}
	body, err := r.input(armDialect, r.kind.patchModel)
	if err != nil {
		return answer{}, err
	}
	if body.has("tags") {
		if res.Tags, err = tagsOf(body.sub("tags")); err != nil {
			return answer{}, err
		}
	}
	c.touch(res)
	r.Make(res.ID)
	return plain(c.render(r, res)), nil
}

// groupTakes is how long the delete of a group lasts at least, in simulated time.
const groupTakes = 20 * time.Second

// deleteGroup begins the delete of everything in a group, if no lock stands against it anywhere inside.
func (c *Cloud) deleteGroup(r *request) (answer, error) {
	res := r.group()
	if res == nil {
		return answer{}, groupNotFound(r.vars["group"])
	}
	for _, in := range append(c.inside(res.ID), res) {
		if in.Type == lockType {
			in = c.find(scopeOf(in.ID))
		}
		if in == nil {
			continue
		}
		if err := c.unlocked(r, in.ID); err != nil {
			return answer{}, err
		}
	}
	out := outcome{status: http.StatusAccepted, takes: groupTakes + seconds(res.Hold), style: locationOnly, retryAfter: 15, empty: true}
	if op := c.shelves["resources"].state.Operations[res.Operation]; op != nil && op.Verb == "delete" {
		// Deleting again joins the delete that is under way.
		h := http.Header{}
		r.announce(h, op)
		return answer{status: http.StatusAccepted, header: h}, nil
	}
	res.State = stateDeleting
	r.Make(res.ID)
	// What nothing holds goes half-way through.
	c.after(out.takes/2, "resources", "drain", res.ID)
	return answer{status: http.StatusAccepted, header: c.begin(r, res, "delete", out)}, nil
}

// drain deletes what is in a group that is being deleted and is used by nothing at the moment.
func (c *Cloud) drain(id string) {
	group := c.find(id)
	if group == nil || group.State != stateDeleting {
		return
	}
	for _, in := range c.inside(group.ID) {
		if len(c.usesOf(in.ID)) == 0 && len(c.inside(in.ID)) == 0 && in.Hold == 0 {
			c.drop(in)
		}
	}
}

// emptyGroup deletes what is in a group, and keeps the group if something in it is still used from outside, as ARM does:
// the operation fails then, and the group goes on.
func (c *Cloud) emptyGroup(op *Operation, group *Resource) bool {
	for _, in := range c.inside(group.ID) {
		for _, u := range c.usesOf(in.ID) {
			if strings.HasPrefix(key(u.by.ID), key(group.ID)+"/") || !blocks(u) {
				continue
			}
			group.State = stateSucceeded
			op.Status = statusFailed
			op.Error = refuseARM(http.StatusConflict, "ResourceGroupDeletionBlocked",
				"Deletion of resource group '%s' failed as resources with identifiers '%s' could not be deleted. The provisioning state of the resource group will be rolled back.",
				group.Name, strings.TrimPrefix(in.ID, group.ID+"/providers/")).
				with(refuse(http.StatusBadRequest, "InUse", "%s is used by %s.", in.ID, u.at))
			return false
		}
	}
	return true
}

// blocks says whether a use keeps what it refers to from being deleted: a peering does not.
func blocks(u use) bool {
	return !strings.HasSuffix(u.path, "remoteVirtualNetwork") && !strings.HasSuffix(u.path, "virtualNetwork")
}
