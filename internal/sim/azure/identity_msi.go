package azure

import (
	"net/http"
	"strings"
	"time"
)

// The services of identity, as faults and books call them.
const (
	identityService      = "managedidentity"
	authorizationService = "authorization"
)

const (
	identityType   = "Microsoft.ManagedIdentity/userAssignedIdentities"
	federationType = identityType + "/federatedIdentityCredentials"
)

var identityVersions = []string{"2018-11-30", "2022-01-31-preview", "2023-01-31", "2023-07-31-preview", "2024-11-30"}

// addIdentity registers managed identities and role-based access control.
func (c *Cloud) addIdentity() {
	c.newShelf(identityService)
	c.addKind(&kind{typ: identityType, service: identityService, versions: identityVersions, tracked: true, stateless: true, noEtag: true,
		put: c.putIdentity, show: showIdentity})
	c.addKind(&kind{typ: federationType, service: identityService, versions: identityVersions[1:], stateless: true, noEtag: true,
		put: c.putFederation, show: showIdentity, missing: missingFederation, says: federationDialect})
	c.addRoles()
}

// federationDialect words a missing identity as private DNS does a missing zone.
var federationDialect = func() *dialect {
	d := *armDialect
	d.orphan = privateDialect.orphan
	return &d
}()

// putIdentity makes a user-assigned identity, at once.
func (c *Cloud) putIdentity(_ *request, now, old *Resource) (outcome, error) {
	isolation := now.Properties.get("isolationScope")
	if old != nil {
		now.Properties = old.Properties
	} else {
		now.Properties = doc{"tenantId": c.opt.Tenant, "principalId": c.World.UUID(), "clientId": c.World.UUID()}
	}
	if isolation != nil {
		now.Properties["isolationScope"] = isolation
	}
	return madeAt(now, old), nil
}

// madeAt answers a PUT at once; what is new is told where it is.
func madeAt(now, old *Resource) outcome {
	if old != nil {
		return outcome{status: http.StatusOK}
	}
	return outcome{status: http.StatusCreated, header: http.Header{"Location": {lowerGroup(now.ID)}}}
}

func madeStatus(old *Resource) int {
	if old == nil {
		return http.StatusCreated
	}
	return http.StatusOK
}

// lowerGroup spells an ID as Microsoft.ManagedIdentity does.
func lowerGroup(id string) string {
	return strings.Replace(id, "/resourceGroups/", "/resourcegroups/", 1)
}

func showIdentity(_ *request, res *Resource, body doc) {
	body["id"] = lowerGroup(res.ID)
	if res.Type == identityType && len(res.Tags) == 0 {
		body["tags"] = map[string]any{}
	}
}

func (c *Cloud) putFederation(_ *request, now, old *Resource) (outcome, error) {
	for _, name := range []string{"issuer", "subject", "audiences"} {
		if !now.Properties.has(name) {
			return outcome{}, refuse(http.StatusBadRequest, "BadRequest", "The '%s' property of a federated identity credential is required.", name)
		}
	}
	parent := parentOf(now.ID)
	others := c.children(parent, federationType)
	for _, o := range others {
		if o.Name != now.Name && o.Properties.str("issuer") == now.Properties.str("issuer") && o.Properties.str("subject") == now.Properties.str("subject") {
			return outcome{}, refuse(http.StatusConflict, "Conflict", "Issuer and subject combination already exists for this Managed Identity.")
		}
	}
	if old == nil && len(others) >= 20 {
		return outcome{}, refuse(http.StatusBadRequest, "BadRequest", "Too many Federated Identity Credentials: a Managed Identity can have 20 of them.")
	}
	return madeAt(now, old), nil
}

func missingFederation(r *request) *Error {
	return refuse(http.StatusNotFound, "NotFound", "Resource '%s' was not found.", lowerGroup(r.id.String()))
}

// A principal is somebody in the directory to whom a role can be assigned.
type principal struct {
	ID, Kind string
	Created  time.Time
	Name     string
}

// principalOf looks somebody up in the directory by object ID: a service principal of the configuration, a managed
// identity, or the identity of a resource.
func (c *Cloud) principalOf(id string) (principal, bool) {
	for _, cl := range c.clients() {
		if strings.EqualFold(cl.ObjectID, id) {
			return principal{ID: id, Kind: "ServicePrincipal", Name: cl.Name}, true
		}
	}
	found, ok := principal{}, false
	c.each(func(res *Resource) {
		own := res.Type == identityType && strings.EqualFold(res.Properties.str("principalId"), id)
		if own || strings.EqualFold(res.Top.str("identity.principalId"), id) {
			found, ok = principal{ID: id, Kind: "ServicePrincipal", Created: res.Created, Name: res.Name}, true
		}
	})
	return found, ok
}

// replicated says whether the directory that role assignments ask already knows somebody: it follows some seconds behind
// ("Troubleshoot Azure RBAC", the error PrincipalNotFound). Faults of kind hidden that match the object ID, the identity's
// name or "principal" lengthen that.
func (c *Cloud) replicated(r *request, p principal) bool {
	if p.Created.IsZero() {
		return true
	}
	if c.World.Options().ConsistencyByList >= 0 && c.World.Now().Sub(p.Created) < c.pace(12*time.Second, 35*time.Second, p.ID) {
		return false
	}
	return c.World.Visible(r.Call, p.ID, p.Created, lookupByList, "principal "+p.Name)
}

// assigned says whether an identity is known here, and completes the identity that a resource is to have: every
// user-assigned one is shown with its principal, a system-assigned one gets a principal of its own.
func (c *Cloud) assigned(now, old *Resource) *Error {
	id := now.Top.sub("identity")
	if id == nil {
		return nil
	}
	kinds := strings.ToLower(id.str("type"))
	if strings.Contains(kinds, "systemassigned") {
		id["tenantId"] = c.opt.Tenant
		id["principalId"] = c.World.UUID()
		if old != nil && old.Top.str("identity.principalId") != "" {
			id["principalId"] = old.Top.str("identity.principalId")
		}
	}
	users := id.sub("userAssignedIdentities")
	if strings.Contains(kinds, "userassigned") && len(users) == 0 {
		return refuse(http.StatusBadRequest, "InvalidIdentityValues", "Invalid value for the identities '' for resource '%s'. The 'UserAssignedIdentities' property keys should only be empty json objects, null or the resource exisiting property.", now.ID)
	}
	for _, ref := range sortedKeys(users) {
		res := c.find(ref)
		if res == nil || res.Type != identityType {
			return refuse(http.StatusBadRequest, "FailedIdentityOperation", "Identity operation for resource '%s' failed with error 'Failed to perform resource identity operation. Status: 'BadRequest'. Response: '{\"error\":{\"code\":\"BadRequest\",\"message\":\"Resource '%s' was not found.\"}}'.'.", now.ID, ref)
		}
		users[ref] = map[string]any{"principalId": res.Properties.str("principalId"), "clientId": res.Properties.str("clientId")}
	}
	now.Top["identity"] = map[string]any(id)
	return nil
}
