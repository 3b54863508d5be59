package azure

import (
	"crypto/hmac"
	"encoding/hex"
	"net/netip"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

// clusterAudience is the application for which API servers take tokens: the Azure Kubernetes Service AAD Server, the same in every
// directory ("Use kubelogin to authenticate users").
const clusterAudience = "6dae42f8-4368-4678-94ff-3960e28e3630"

// clusterLevels are what the roles for data in clusters come to, the highest first: whoever may do the action belongs to the group. The real
// authorizer asks Azure for every request ("Use Azure role-based access control for Kubernetes Authorization"); here the groups are bound to
// the roles of Kubernetes that come nearest.
var clusterLevels = []struct{ action, group, role string }{
	{"namespaces/write", "system:masters", ""},
	{"rbac.authorization.k8s.io/rolebindings/write", "azure:rbac-admin", "admin"},
	{"apps/deployments/write", "azure:rbac-writer", "edit"},
	{"pods/read", "azure:rbac-reader", "view"},
}

// letsIn says whether a connection gets to the API server of a cluster.
func (c *Cloud) letsIn(id string, from sim.KubeCaller) bool {
	c.World.Lock()
	defer c.World.Unlock()
	cluster := c.find(id)
	if cluster == nil || cluster.Properties.str("powerState.code") == "Stopped" || cluster.State == stateDeleting {
		return false
	}
	access := cluster.Properties.sub("apiServerAccessProfile")
	ranges := access.strs("authorizedIPRanges")
	switch {
	case from.Inside: // the cluster's own way out is authorised by itself
		return true
	case access.flag("enablePrivateCluster"):
		return false
	case len(ranges) == 0:
		return true
	}
	return slices.ContainsFunc(ranges, func(text string) bool {
		p, err := netip.ParsePrefix(text)
		return err == nil && text != noRange && p.Contains(from.IP)
	})
}

// identifyAt says who the bearer of a token is at the API server of a cluster.
func (c *Cloud) identifyAt(id, token string) (sim.KubeUser, bool) {
	c.World.Lock()
	defer c.World.Unlock()
	cluster := c.find(id)
	if cluster == nil {
		return sim.KubeUser{}, false
	}
	p := cluster.Properties
	if hmac.Equal([]byte(token), []byte(c.staticToken(cluster))) {
		// A local account stands outside of the directory.
		return sim.KubeUser{Name: "masterclient", Groups: []string{"system:masters"}}, !p.flag("disableLocalAccounts")
	}
	claims, ok := c.claimsOf(token)
	if !ok || c.expired(claims) || claims.Audience != clusterAudience || !p.flag("aadProfile.managed") {
		return sim.KubeUser{}, false
	}
	who, known := c.client(claims.AppID)
	if !known {
		return sim.KubeUser{}, false
	}
	user := sim.KubeUser{Name: who.ObjectID, Groups: slices.Clone(who.Groups)}
	if slices.ContainsFunc(p.strs("aadProfile.adminGroupObjectIDs"), func(g string) bool { return containsText(who.Groups, g) }) {
		user.Groups = append(user.Groups, "system:masters")
		return user, true
	}
	for _, level := range clusterLevels {
		if p.flag("aadProfile.enableAzureRBAC") && c.permitted(who.ObjectID, cluster.ID, clusterType+"/"+level.action, true) {
			user.Groups = append(user.Groups, level.group)
			break
		}
	}
	return user, true
}

// staticToken is the token of a cluster's local administrator.
func (c *Cloud) staticToken(cluster *Resource) string {
	return hex.EncodeToString(c.mac("local account of " + key(cluster.ID) + " " + cluster.Properties.str("resourceUID")))
}

// permitted says whether a principal has been given an action at a scope, by a role assignment there or above; data says whether it is
// an action on data, which the roles for managing do not give ("Azure role definitions"). A fresh assignment takes a while to act
// ("Troubleshoot Azure RBAC": role assignment changes are not being detected).
func (c *Cloud) permitted(principal, scope, action string, data bool) bool {
	for _, a := range c.shelves[authorizationService].sorted() {
		at := key(scopeOf(a.ID))
		if a.Type != assignmentType || !strings.EqualFold(a.Properties.str("principalId"), principal) || key(scope) != at && !strings.HasPrefix(key(scope), at+"/") {
			continue
		}
		if c.World.Options().ConsistencyByList >= 0 && c.World.Now().Sub(a.Created) < c.pace(3*time.Second, 15*time.Second, a.ID) {
			continue
		}
		if c.roleGives(lastOf(a.Properties.str("roleDefinitionId")), action, data) {
			return true
		}
	}
	return false
}

// roleGives says whether a role gives an action.
func (c *Cloud) roleGives(guid, action string, data bool) bool {
	for _, b := range builtInRoles {
		if !strings.EqualFold(b.GUID, guid) {
			continue
		}
		if data {
			return covers(b.DataActions, action) && !covers(b.NotDataActions, action)
		}
		return covers(b.Actions, action) && !covers(b.NotActions, action)
	}
	for _, res := range c.shelves[authorizationService].sorted() {
		if res.Type != definitionType || !strings.EqualFold(res.Name, guid) {
			continue
		}
		gives, not := "actions", "notActions"
		if data {
			gives, not = "dataActions", "notDataActions"
		}
		for _, perm := range res.Properties.docs("permissions") {
			if covers(perm.strs(gives), action) && !covers(perm.strs(not), action) {
				return true
			}
		}
	}
	return false
}

// covers says whether one of the patterns of a role covers an action; a star stands for any number of segments, none among them: the role
// Managed Identity Operator has userAssignedIdentities/*/assign/action, and gives userAssignedIdentities/assign/action.
func covers(patterns []string, action string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		flat := func(s string) string { return strings.ReplaceAll(strings.ToLower(s), "/", ".") }
		for _, form := range []string{p, strings.ReplaceAll(p, "/*/", "/")} {
			if ok, err := path.Match(flat(form), flat(action)); err == nil && ok {
				return true
			}
		}
		return false
	})
}
