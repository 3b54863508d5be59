package aws

import (
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/elasticache"
	"github.com/aws/aws-sdk-go-v2/service/elasticache/types"
)

// users are the users of an account, the one that is always there with them.
func (s *cacheService) users(c *reqCtx) map[string]*CacheUser {
	sc := s.in(c.scope())
	if sc.Users["default"] == nil {
		sc.Users["default"] = &CacheUser{Default: true, User: types.User{UserId: new("default"), UserName: new("default"), Status: new("active"), Engine: new("redis"), MinimumEngineVersion: new("6.0"),
			AccessString: new("on ~* +@all"), UserGroupIds: []string{}, Authentication: &types.Authentication{Type: types.AuthenticationTypeNoPassword}, ARN: new(c.regionalARN("elasticache", "user:default"))}}
	}
	return sc.Users
}

func (s *cacheService) user(c *reqCtx, id *string) (*CacheUser, error) {
	name := strings.ToLower(deref(id))
	u := s.users(c)[name]
	if u == nil || !c.visible(deref(u.User.ARN), u.Created, false, "cache-user", name, mapValues(cacheTags(u.Tags))) {
		return nil, fail(404, "UserNotFound", "User %s not found.", name)
	}
	c.Touch(deref(u.User.ARN))
	return u, nil
}

// authentication is what a request says of how a user proves who it is.
func authentication(noPassword *bool, passwords []string, mode *types.AuthenticationMode, engine, name, id string) (*types.Authentication, []string, error) {
	kind := types.InputAuthenticationType("")
	if mode != nil {
		if len(passwords) > 0 || noPassword != nil {
			return nil, nil, cacheCombination("AuthenticationMode can't be specified together with Passwords or NoPasswordRequired.")
		}
		kind, passwords = mode.Type, mode.Passwords
	}
	none := deref(noPassword) || kind == types.InputAuthenticationTypeNoPassword
	switch {
	case kind == types.InputAuthenticationTypeIam && (len(passwords) > 0 || name != id):
		return nil, nil, cacheCombination("For IAM authentication, the user ID and the user name must be the same, and no passwords are given.")
	case kind == types.InputAuthenticationTypeIam:
		return &types.Authentication{Type: types.AuthenticationTypeIam}, nil, nil
	case none && len(passwords) > 0:
		return nil, nil, cacheCombination("NoPasswordRequired can't be specified together with passwords.")
	case none && engine == "valkey":
		return nil, nil, cacheCombination("Users of the engine valkey need a password or IAM authentication.")
	case none:
		return &types.Authentication{Type: types.AuthenticationTypeNoPassword}, nil, nil
	case len(passwords) == 0:
		return nil, nil, cacheCombination("No password was provided. If you want to create/update the user without password, please use the NoPasswordRequired flag.")
	case len(passwords) > 2:
		return nil, nil, cacheInvalid("A user can have up to two passwords.")
	}
	for _, p := range passwords {
		if len(p) < 16 || len(p) > 128 || strings.IndexFunc(p, func(r rune) bool { return r < 33 || r > 126 }) >= 0 {
			return nil, nil, cacheInvalid("Passwords length must be between 16-128 characters.")
		}
	}
	return &types.Authentication{Type: types.AuthenticationTypePassword, PasswordCount: new(int32(len(passwords)))}, slices.Clone(passwords), nil
}

func (s *cacheService) createUser(c *reqCtx, in *elasticache.CreateUserInput) (*elasticache.CreateUserOutput, error) {
	id, engine, all := strings.ToLower(deref(in.UserId)), strings.ToLower(deref(in.Engine)), s.users(c)
	if err := checkCacheIdentifier("UserId", id, 40); err != nil {
		return nil, err
	}
	switch {
	case cacheEngines[engine] == "":
		return nil, cacheInvalid("Invalid engine: %s. Valid engines: redis, valkey.", engine)
	case deref(in.UserName) == "" || len(*in.UserName) > 40 || strings.ContainsAny(*in.UserName, " \t\n"):
		return nil, cacheInvalid("The parameter UserName must have between 1 and 40 characters, without spaces.")
	case all[id] != nil:
		return nil, fail(400, "UserAlreadyExists", "User %s already exists.", id)
	case len(all) >= maxCacheUsers:
		return nil, fail(400, "UserQuotaExceeded", "The quota of %d users has been exceeded.", maxCacheUsers)
	}
	if err := checkAccessString(deref(in.AccessString)); err != nil {
		return nil, err
	}
	auth, passwords, err := authentication(in.NoPasswordRequired, in.Passwords, in.AuthenticationMode, engine, *in.UserName, id)
	if err != nil {
		return nil, err
	}
	if err := checkCacheTags(in.Tags); err != nil {
		return nil, err
	}
	u := &CacheUser{Created: c.now, Passwords: passwords, Tags: slices.Clone(in.Tags), User: types.User{UserId: &id, UserName: in.UserName, Status: new("active"), Engine: &engine, MinimumEngineVersion: new(minimumVersion(engine)),
		AccessString: in.AccessString, UserGroupIds: []string{}, Authentication: auth, ARN: new(c.regionalARN("elasticache", "user:"+id))}}
	all[id] = u
	c.Make(*u.User.ARN)
	out := elasticache.CreateUserOutput(userAnswer(u))
	return &out, nil
}

func minimumVersion(engine string) string {
	if engine == "valkey" {
		return "7.2"
	}
	return "6.0"
}

// userAnswer is a user as the operations answer it: with its members side by side.
func userAnswer(u *CacheUser) elasticache.DeleteUserOutput {
	x := u.User
	return elasticache.DeleteUserOutput{ARN: x.ARN, AccessString: x.AccessString, Authentication: x.Authentication, Engine: x.Engine, MinimumEngineVersion: x.MinimumEngineVersion, Status: x.Status,
		UserGroupIds: x.UserGroupIds, UserId: x.UserId, UserName: x.UserName}
}

func (s *cacheService) describeUsers(c *reqCtx, in *elasticache.DescribeUsersInput) (*elasticache.DescribeUsersOutput, error) {
	if deref(in.UserId) != "" {
		u, err := s.user(c, in.UserId)
		if err != nil {
			return nil, err
		}
		return &elasticache.DescribeUsersOutput{Users: []types.User{u.User}}, nil
	}
	all := []types.User{}
	for _, id := range sortedKeys(s.users(c)) {
		u := s.users(c)[id]
		if (in.Engine == nil || strings.EqualFold(*in.Engine, deref(u.User.Engine))) && c.visible(deref(u.User.ARN), u.Created, true, "cache-user", id, mapValues(cacheTags(u.Tags))) {
			all = append(all, u.User)
		}
	}
	page, next, err := cachePage(c, all, in.Marker, in.MaxRecords)
	return &elasticache.DescribeUsersOutput{Users: page, Marker: next}, err
}

func (s *cacheService) modifyUser(c *reqCtx, in *elasticache.ModifyUserInput) (*elasticache.ModifyUserOutput, error) {
	u, err := s.user(c, in.UserId)
	if err != nil {
		return nil, err
	}
	switch {
	case u.Default:
		return nil, cacheInvalid("The default user can't be modified.")
	case deref(u.User.Status) != "active":
		return nil, fail(400, "InvalidUserState", "User %s has status %s. Only active users can be modified.", *u.User.UserId, *u.User.Status)
	case in.AccessString != nil && in.AppendAccessString != nil:
		return nil, cacheCombination("AccessString and AppendAccessString can't be specified together.")
	}
	access := *u.User.AccessString
	if in.AccessString != nil {
		access = *in.AccessString
	}
	if in.AppendAccessString != nil {
		access += " " + *in.AppendAccessString
	}
	if err := checkAccessString(access); err != nil {
		return nil, err
	}
	if in.NoPasswordRequired != nil || len(in.Passwords) > 0 || in.AuthenticationMode != nil {
		auth, passwords, err := authentication(in.NoPasswordRequired, in.Passwords, in.AuthenticationMode, *u.User.Engine, *u.User.UserName, *u.User.UserId)
		if err != nil {
			return nil, err
		}
		u.User.Authentication, u.NextPass = auth, append([]string{}, passwords...)
	}
	u.User.AccessString, u.User.Status = &access, new("modifying")
	c.Make(*u.User.ARN)
	s.cloud.after(userTime, "elasticache", "user", c.scope().key()+"|"+*u.User.UserId)
	out := elasticache.ModifyUserOutput(userAnswer(u))
	return &out, nil
}

// deleteUser: the user is taken out of its groups and so out of their replication groups (DeleteUser).
func (s *cacheService) deleteUser(c *reqCtx, in *elasticache.DeleteUserInput) (*elasticache.DeleteUserOutput, error) {
	u, err := s.user(c, in.UserId)
	if err != nil {
		return nil, err
	}
	switch {
	case u.Default:
		return nil, cacheInvalid("The default user can't be deleted.")
	case deref(u.User.Status) != "active":
		return nil, fail(400, "InvalidUserState", "User %s has status %s. Only active users can be deleted.", *u.User.UserId, *u.User.Status)
	case *u.User.UserName == "default" && len(u.User.UserGroupIds) > 0:
		return nil, fail(400, "DefaultUserAssociatedToUserGroup", "The default user %s is associated to user groups %v and can't be deleted.", *u.User.UserId, u.User.UserGroupIds)
	}
	for _, id := range u.User.UserGroupIds {
		if g := s.in(c.scope()).UserGroups[id]; g != nil {
			s.beginGroupChange(c, g, nil, []string{*u.User.UserId})
		}
	}
	u.User.Status = new(statusDeleting)
	c.Touch(*u.User.ARN)
	s.cloud.after(userTime, "elasticache", "user", c.scope().key()+"|"+*u.User.UserId)
	return new(userAnswer(u)), nil
}

// userSettled ends a change of a user, or its deletion.
func (s *cacheService) userSettled(sc *CacheScope, id string) {
	u := sc.Users[id]
	if u == nil {
		return
	}
	switch deref(u.User.Status) {
	case "modifying":
		u.User.Status = new("active")
		if u.NextPass != nil {
			u.Passwords, u.NextPass = u.NextPass, nil
		}
	case statusDeleting:
		delete(sc.Users, id)
	}
}
