package aws

import (
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/elasticache"
	"github.com/aws/aws-sdk-go-v2/service/elasticache/types"
)

func (s *cacheService) userGroup(c *reqCtx, id *string) (*CacheUserGroup, error) {
	name := strings.ToLower(deref(id))
	g := s.in(c.scope()).UserGroups[name]
	if g == nil || !c.visible(deref(g.Group.ARN), g.Created, false, "cache-user-group", name, mapValues(cacheTags(g.Tags))) {
		return nil, fail(404, "UserGroupNotFound", "User Group %s not found.", name)
	}
	c.Touch(deref(g.Group.ARN))
	return g, nil
}

// checkMembers refuses a set of users that a group cannot have: a Redis OSS group needs one by the name default, names are
// unique, and a Valkey group takes only users who authenticate ("Role-Based Access Control (RBAC)").
func (s *cacheService) checkMembers(c *reqCtx, engine string, ids []string) error {
	names := map[string]bool{}
	for _, id := range ids {
		u := s.users(c)[id]
		switch {
		case u == nil:
			return fail(404, "UserNotFound", "User %s not found.", id)
		case deref(u.User.Status) == statusDeleting:
			return fail(404, "UserNotFound", "User %s is being deleted.", id)
		case names[*u.User.UserName]:
			return fail(400, "DuplicateUserName", "A user with the user name %s is already in the user group.", *u.User.UserName)
		case engine == "redis" && *u.User.Engine != "redis":
			return cacheInvalid("User %s has the engine %s and can't be in a user group of the engine redis.", id, *u.User.Engine)
		case engine == "valkey" && u.User.Authentication.Type == types.AuthenticationTypeNoPassword:
			return cacheInvalid("User %s has no password and can't be in a user group of the engine valkey.", id)
		}
		names[*u.User.UserName] = true
	}
	if engine == "redis" && !names["default"] {
		return fail(400, "DefaultUserRequired", "You must add a default user to the user group.")
	}
	if len(ids) > maxGroupUsers {
		return fail(400, "UserQuotaExceeded", "A user group can have up to %d users.", maxGroupUsers)
	}
	return nil
}

func (s *cacheService) createUserGroup(c *reqCtx, in *elasticache.CreateUserGroupInput) (*elasticache.CreateUserGroupOutput, error) {
	id, engine, sc := strings.ToLower(deref(in.UserGroupId)), strings.ToLower(deref(in.Engine)), s.in(c.scope())
	if err := checkCacheIdentifier("UserGroupId", id, 40); err != nil {
		return nil, err
	}
	switch {
	case cacheEngines[engine] == "":
		return nil, cacheInvalid("Invalid engine: %s. Valid engines: redis, valkey.", engine)
	case sc.UserGroups[id] != nil:
		return nil, fail(400, "UserGroupAlreadyExists", "User Group %s already exists.", id)
	case len(sc.UserGroups) >= maxCacheUserGroups:
		return nil, fail(400, "UserGroupQuotaExceeded", "The quota of %d user groups has been exceeded.", maxCacheUserGroups)
	}
	ids := lowered(in.UserIds)
	if err := s.checkMembers(c, engine, ids); err != nil {
		return nil, err
	}
	if err := checkCacheTags(in.Tags); err != nil {
		return nil, err
	}
	g := &CacheUserGroup{Created: c.now, Tags: slices.Clone(in.Tags), Group: types.UserGroup{UserGroupId: &id, Engine: &engine, Status: new(statusCreating), UserIds: ids, MinimumEngineVersion: new(minimumVersion(engine)),
		ReplicationGroups: []string{}, ServerlessCaches: []string{}, PendingChanges: &types.UserGroupPendingChanges{}, ARN: new(c.regionalARN("elasticache", "usergroup:"+id))}}
	sc.UserGroups[id] = g
	for _, u := range ids {
		s.join(sc, u, id)
	}
	c.Make(*g.Group.ARN)
	s.cloud.after(userTime, "elasticache", "user-group", c.scope().key()+"|"+id)
	out := elasticache.CreateUserGroupOutput(groupAnswer(g))
	return &out, nil
}

func lowered(ids []string) []string {
	out := []string{}
	for _, id := range ids {
		if id = strings.ToLower(id); !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out
}

func (s *cacheService) join(sc *CacheScope, user, group string) {
	if u := sc.Users[user]; u != nil && !slices.Contains(u.User.UserGroupIds, group) {
		u.User.UserGroupIds = append(u.User.UserGroupIds, group)
	}
}

func (s *cacheService) leave(sc *CacheScope, user, group string) {
	if u := sc.Users[user]; u != nil {
		u.User.UserGroupIds = slices.DeleteFunc(u.User.UserGroupIds, func(id string) bool { return id == group })
	}
}

// groupAnswer is a user group as the operations answer it: with its members side by side.
func groupAnswer(g *CacheUserGroup) elasticache.DeleteUserGroupOutput {
	x := g.Group
	return elasticache.DeleteUserGroupOutput{ARN: x.ARN, Engine: x.Engine, MinimumEngineVersion: x.MinimumEngineVersion, PendingChanges: x.PendingChanges, ReplicationGroups: x.ReplicationGroups,
		ServerlessCaches: x.ServerlessCaches, Status: x.Status, UserGroupId: x.UserGroupId, UserIds: slices.Clone(x.UserIds)}
}

func (s *cacheService) describeUserGroups(c *reqCtx, in *elasticache.DescribeUserGroupsInput) (*elasticache.DescribeUserGroupsOutput, error) {
	if deref(in.UserGroupId) != "" {
		g, err := s.userGroup(c, in.UserGroupId)
		if err != nil {
			return nil, err
		}
		return &elasticache.DescribeUserGroupsOutput{UserGroups: []types.UserGroup{g.Group}}, nil
	}
	all, sc := []types.UserGroup{}, s.in(c.scope())
	for _, id := range sortedKeys(sc.UserGroups) {
		if g := sc.UserGroups[id]; c.visible(deref(g.Group.ARN), g.Created, true, "cache-user-group", id, mapValues(cacheTags(g.Tags))) {
			all = append(all, g.Group)
		}
	}
	page, next, err := cachePage(c, all, in.Marker, in.MaxRecords)
	return &elasticache.DescribeUserGroupsOutput{UserGroups: page, Marker: next}, err
}

func (s *cacheService) modifyUserGroup(c *reqCtx, in *elasticache.ModifyUserGroupInput) (*elasticache.ModifyUserGroupOutput, error) {
	g, err := s.userGroup(c, in.UserGroupId)
	if err != nil {
		return nil, err
	}
	add, drop := lowered(in.UserIdsToAdd), lowered(in.UserIdsToRemove)
	switch {
	case deref(g.Group.Status) != "active":
		return nil, fail(400, "InvalidUserGroupState", "User group %s has status %s. Only active user groups can be modified.", *g.Group.UserGroupId, *g.Group.Status)
	case len(add)+len(drop) == 0:
		return nil, cacheCombination("At least one of UserIdsToAdd and UserIdsToRemove must be specified.")
	}
	next := slices.DeleteFunc(slices.Clone(g.Group.UserIds), func(id string) bool { return slices.Contains(drop, id) })
	for _, id := range drop {
		if !slices.Contains(g.Group.UserIds, id) {
			return nil, cacheInvalid("User %s is not a member of user group %s.", id, *g.Group.UserGroupId)
		}
	}
	for _, id := range add {
		if slices.Contains(g.Group.UserIds, id) {
			return nil, cacheInvalid("%s is already a member of %s.", id, *g.Group.UserGroupId)
		}
		next = append(next, id)
	}
	if err := s.checkMembers(c, *g.Group.Engine, next); err != nil {
		return nil, err
	}
	s.beginGroupChange(c, g, add, drop)
	c.Make(*g.Group.ARN)
	out := elasticache.ModifyUserGroupOutput(groupAnswer(g))
	return &out, nil
}

// beginGroupChange: the answer shows the members as they were, and what is about to change
// (https://github.com/hashicorp/terraform-provider-aws/issues/28688).
func (s *cacheService) beginGroupChange(c *reqCtx, g *CacheUserGroup, add, drop []string) {
	p := g.Group.PendingChanges
	if p == nil {
		p = &types.UserGroupPendingChanges{}
	}
	g.Group.PendingChanges = &types.UserGroupPendingChanges{UserIdsToAdd: append(slices.Clone(p.UserIdsToAdd), add...), UserIdsToRemove: append(slices.Clone(p.UserIdsToRemove), drop...)}
	g.Group.Status = new("modifying")
	s.cloud.after(userTime, "elasticache", "user-group", c.scope().key()+"|"+*g.Group.UserGroupId)
}

// userGroupSettled ends the creation, a change or the deletion of a user group.
func (s *cacheService) userGroupSettled(sc *CacheScope, id string) {
	g := sc.UserGroups[id]
	if g == nil {
		return
	}
	if deref(g.Group.Status) == statusDeleting {
		for _, u := range g.Group.UserIds {
			s.leave(sc, u, id)
		}
		delete(sc.UserGroups, id)
		return
	}
	g.Group.Status = new("active")
	if p := g.Group.PendingChanges; p != nil {
		g.Group.UserIds = slices.DeleteFunc(g.Group.UserIds, func(u string) bool { return slices.Contains(p.UserIdsToRemove, u) })
		for _, u := range p.UserIdsToRemove {
			s.leave(sc, u, id)
		}
		for _, u := range p.UserIdsToAdd {
			g.Group.UserIds = append(g.Group.UserIds, u)
			s.join(sc, u, id)
		}
	}
	g.Group.PendingChanges = &types.UserGroupPendingChanges{}
}

func (s *cacheService) deleteUserGroup(c *reqCtx, in *elasticache.DeleteUserGroupInput) (*elasticache.DeleteUserGroupOutput, error) {
	g, err := s.userGroup(c, in.UserGroupId)
	if err != nil {
		return nil, err
	}
	switch id := *g.Group.UserGroupId; {
	case deref(g.Group.Status) != "active":
		return nil, fail(400, "InvalidUserGroupState", "User group %s has status %s. Only active user groups can be deleted.", id, *g.Group.Status)
	case len(g.Group.ReplicationGroups) > 0:
		return nil, fail(400, "InvalidUserGroupState", "User group %s is associated with replication groups %v. Disassociate it before it can be deleted.", id, g.Group.ReplicationGroups)
	}
	g.Group.Status = new(statusDeleting)
	s.cloud.after(userTime, "elasticache", "user-group", c.scope().key()+"|"+*g.Group.UserGroupId)
	return new(groupAnswer(g)), nil
}

// usable refuses a user group that a replication group cannot have.
func (s *cacheService) usable(c *reqCtx, id, engine string) error {
	g, err := s.userGroup(c, &id)
	if err != nil {
		return err
	}
	switch {
	case deref(g.Group.Status) != "active":
		return fail(400, "InvalidUserGroupState", "User group %s has status %s. Only active user groups can be associated.", id, *g.Group.Status)
	case engine == "redis" && *g.Group.Engine != "redis":
		return cacheCombination("User group %s has the engine %s and can't be used with the engine redis.", id, *g.Group.Engine)
	}
	return nil
}

// attach notes that a replication group has a user group.
func (s *cacheService) attach(at scope, group, replication string) {
	if g := s.in(at).UserGroups[strings.ToLower(group)]; g != nil && !slices.Contains(g.Group.ReplicationGroups, replication) {
		g.Group.ReplicationGroups = append(g.Group.ReplicationGroups, replication)
	}
}

func (s *cacheService) detach(at scope, group, replication string) {
	if g := s.in(at).UserGroups[strings.ToLower(group)]; g != nil {
		g.Group.ReplicationGroups = slices.DeleteFunc(g.Group.ReplicationGroups, func(id string) bool { return id == replication })
	}
}
