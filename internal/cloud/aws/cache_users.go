package aws

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/elasticache"
	ectypes "github.com/aws/aws-sdk-go-v2/service/elasticache/types"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// locked is what the default user may do: it is off and may do nothing. A cache whose
// user group had an open default user would let everybody in without a password
// (controls EC-03, EC-04; "Role-Based Access Control (RBAC)").
const locked = "off ~* -@all"

// accessString is what a connection's user may do: read_only reads, the others do all
// but what administers the server or endangers it ("Specifying permissions using an
// access string"). A cache has no owner: its data belongs to nobody. INFO, which client
// libraries ask whether a server is ready, counts as dangerous and is not.
func accessString(mode job.AccessMode) string {
	if mode == job.ReadOnly {
		return "on ~* -@all +@read +@connection +@transaction -@dangerous +info"
	}
	return "on ~* +@all -@admin -@dangerous +info"
}

// cacheUserID is the ID of a user of a job's cache: IDs are unique in an account and
// region, user names in their group alone. It ends as all names of the job do, so that a
// scan knows which users to ask for their tags.
func cacheUserID(j *job.Job, user string) string {
	if user == "default" {
		return j.ResourceName("default", longestCache)
	}
	return (&job.Job{ID: j.ID, Name: user}).ResourceName("", longestCache)
}

func cacheGroupName(j *job.Job) string { return j.ResourceName("users", longestCache) }

// ensureCacheIdentity makes a cache's group of users, with nobody in it who gets in.
// RDS makes and keeps the administrator's password by itself.
func (p *Provider) ensureCacheIdentity(ctx context.Context, r *pipeline.Run) error {
	if !isCache(r.Job) {
		return nil
	}
	b, err := p.newDataBuild(r)
	if err != nil {
		return err
	}
	if _, err := r.Ensure(ctx, b.defaultUser()); err != nil {
		return err
	}
	x := b.userGroup()
	_, err = r.Ensure(ctx, x)
	learn(r, &b.info.UserGroup, x.Name)
	return visible(r, "the default user", err)
}

// removeCacheIdentity removes the group, then the default user and whoever else the
// job has let in: users outlive their group.
func (p *Provider) removeCacheIdentity(ctx context.Context, r *pipeline.Run) error {
	if !isCache(r.Job) || r.Mode != pipeline.Apply {
		return nil
	}
	b, err := p.newDataBuild(r)
	if err != nil {
		return err
	}
	if err := r.Remove(ctx, b.userGroup()); err != nil {
		return err
	}
	if err := r.Remove(ctx, b.defaultUser()); err != nil {
		return err
	}
	return b.sweepUsers(ctx)
}

func (p *Provider) readCacheUser(ctx context.Context, id string) (ectypes.User, error) {
	return lookup.Once(ctx, kindCacheUser+" "+id, func(ctx context.Context) (ectypes.User, error) {
		out, err := p.cache.DescribeUsers(ctx, &elasticache.DescribeUsersInput{UserId: aws.String(id)})
		if err != nil {
			return ectypes.User{}, err
		}
		if len(out.Users) == 0 {
			return ectypes.User{}, absent("ElastiCache", "DescribeUsers", "user "+id)
		}
		return out.Users[0], nil
	})
}

func (p *Provider) readUserGroup(ctx context.Context, id string) (ectypes.UserGroup, error) {
	return lookup.Once(ctx, kindCacheUserGroup+" "+id, func(ctx context.Context) (ectypes.UserGroup, error) {
		out, err := p.cache.DescribeUserGroups(ctx, &elasticache.DescribeUserGroupsInput{UserGroupId: aws.String(id)})
		if err != nil {
			return ectypes.UserGroup{}, err
		}
		if len(out.UserGroups) == 0 {
			return ectypes.UserGroup{}, absent("ElastiCache", "DescribeUserGroups", "user group "+id)
		}
		return out.UserGroups[0], nil
	})
}

// settledAs is the status of a user or group by ElastiCache's word for it.
func settledAs(status string) pipeline.Status {
	if status == "active" {
		return pipeline.Ready
	}
	return pipeline.Pending
}

// defaultUser is the user by whose name clients come in that give none: it is off.
func (b *dataBuild) defaultUser() pipeline.Resource {
	x := pipeline.Resource{Kind: kindCacheUser, Key: defaultUserKey, Name: cacheUserID(b.r.Job, "default"), Slow: true}
	x.Get = func(ctx context.Context, _ string) (pipeline.Seen, error) {
		u, err := b.readCacheUser(ctx, x.Name)
		if err != nil {
			return pipeline.Seen{}, err
		}
		s := pipeline.Seen{ID: aws.ToString(u.ARN), Status: settledAs(aws.ToString(u.Status)), Reason: aws.ToString(u.Status)}
		if s.Owner, err = b.cacheMark(ctx, s.ID); err == nil && b.r.Mode == pipeline.Verify {
			s.Aspects = []pipeline.Aspect{{Name: "access", Wanted: "none", Seen: powerOf(u)}}
		}
		return s, err
	}
	x.Find = eksNamed(b.r, x)
	x.Create = func(ctx context.Context, _ string) (pipeline.Seen, error) {
		in := &elasticache.CreateUserInput{
			UserId: aws.String(x.Name), UserName: aws.String("default"), Engine: aws.String(string(b.spec.Engine)), AccessString: aws.String(locked),
			NoPasswordRequired: aws.Bool(true), Tags: cacheTags(tags(b.r, x.Key, x.Name)),
		}
		if b.spec.Engine == job.Valkey {
			// Users of Valkey have a password, also one who is off: nobody keeps this one.
			in.NoPasswordRequired, in.Passwords = nil, []string{job.NewPassword()}
		}
		out, err := b.cache.CreateUser(ctx, in)
		if err != nil {
			return pipeline.Seen{}, err
		}
		return pipeline.Seen{ID: aws.ToString(out.ARN), Owner: b.r.Job.ID, Status: settledAs(aws.ToString(out.Status)), Reason: aws.ToString(out.Status)}, nil
	}
	x.Delete = func(ctx context.Context, _ string) error {
		_, err := b.cache.DeleteUser(ctx, &elasticache.DeleteUserInput{UserId: aws.String(x.Name)})
		return err
	}
	return tidy(x)
}

// powerOf is what a user may do, in words that compare equal: "none" for one that is
// off or has no commands.
func powerOf(u ectypes.User) string {
	text := aws.ToString(u.AccessString)
	words := strings.Fields(text)
	allowed := slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(w, "+") })
	if slices.Contains(words, "off") || !slices.Contains(words, "on") || !allowed {
		return "none"
	}
	return text
}

// userGroup is who may use the cache.
func (b *dataBuild) userGroup() pipeline.Resource {
	first := cacheUserID(b.r.Job, "default")
	x := pipeline.Resource{Kind: kindCacheUserGroup, Key: userGroupKey, Name: cacheGroupName(b.r.Job), Slow: true}
	x.Get = func(ctx context.Context, _ string) (pipeline.Seen, error) {
		g, err := b.readUserGroup(ctx, x.Name)
		if err != nil {
			return pipeline.Seen{}, err
		}
		s := pipeline.Seen{ID: aws.ToString(g.ARN), Status: settledAs(aws.ToString(g.Status)), Reason: aws.ToString(g.Status)}
		if s.Owner, err = b.cacheMark(ctx, s.ID); err == nil && b.r.Mode == pipeline.Verify {
			s.Aspects = []pipeline.Aspect{{Name: "default user", Wanted: "the job's", Seen: map[bool]string{true: "the job's", false: "another, or none"}[slices.Contains(g.UserIds, first)]}}
		}
		return s, err
	}
	x.Find = eksNamed(b.r, x)
	x.Create = func(ctx context.Context, _ string) (pipeline.Seen, error) {
		out, err := b.cache.CreateUserGroup(ctx, &elasticache.CreateUserGroupInput{
			UserGroupId: aws.String(x.Name), Engine: aws.String(string(b.spec.Engine)), UserIds: []string{first}, Tags: cacheTags(tags(b.r, x.Key, x.Name)),
		})
		if err != nil {
			return pipeline.Seen{}, err
		}
		return pipeline.Seen{ID: aws.ToString(out.ARN), Owner: b.r.Job.ID, Status: settledAs(aws.ToString(out.Status)), Reason: aws.ToString(out.Status)}, nil
	}
	x.Delete = func(ctx context.Context, _ string) error {
		_, err := b.cache.DeleteUserGroup(ctx, &elasticache.DeleteUserGroupInput{UserGroupId: aws.String(x.Name)})
		return err
	}
	return tidy(x)
}

// allCacheUsers are all users of the account in the region.
func (p *Provider) allCacheUsers(ctx context.Context) ([]ectypes.User, error) {
	return lookup.Once(ctx, "all "+kindCacheUser, func(ctx context.Context) ([]ectypes.User, error) {
		return lookup.Pages(ctx, func(ctx context.Context, token *string) ([]ectypes.User, *string, error) {
			out, err := p.cache.DescribeUsers(ctx, &elasticache.DescribeUsersInput{Marker: token})
			if err != nil {
				return nil, nil, err
			}
			return out.Users, out.Marker, nil
		})
	})
}

// markedUsers are the users that carry an owner's mark, those on their way out too.
func (p *Provider) markedUsers(ctx context.Context, owner string) ([]ectypes.User, error) {
	all, err := p.allCacheUsers(ctx)
	if err != nil {
		return nil, err
	}
	var out []ectypes.User
	for _, u := range all {
		if !strings.HasSuffix(aws.ToString(u.UserId), nameSuffix(owner)) {
			continue
		}
		who, err := p.cacheMark(ctx, aws.ToString(u.ARN))
		if err := pipeline.Unless(plain(err), pipeline.NotFound); err != nil {
			return nil, err
		}
		if who == owner {
			out = append(out, u)
		}
	}
	return out, nil
}

// sweepUsers removes every user with the job's mark that a connection has left.
func (b *dataBuild) sweepUsers(ctx context.Context) error {
	users, err := b.markedUsers(ctx, b.r.Job.ID)
	if err != nil {
		return plain(err)
	}
	for _, u := range users {
		if aws.ToString(u.Status) == "deleting" {
			continue
		}
		_, err := b.cache.DeleteUser(ctx, &elasticache.DeleteUserInput{UserId: u.UserId})
		if err := pipeline.Unless(plain(err), pipeline.NotFound, pipeline.Busy); err != nil {
			return err
		}
	}
	if len(users) > 0 {
		return pipeline.Wait(5*time.Second, "%d users of the cache to be deleted", len(users))
	}
	return nil
}

// EnsureCacheUser makes a user of the cache and lets it into the group, or gives it
// another password. A password is given with every call: whether it is the one that the
// user has already cannot be asked.
func (p *Provider) EnsureCacheUser(ctx context.Context, j *job.Job, user, password string, mode job.AccessMode) (cloud.CacheCredential, error) {
	none := cloud.CacheCredential{}
	ctx = lookup.For(ctx, j.ID)
	id, group := cacheUserID(j, user), cacheGroupName(j)
	u, err := p.readCacheUser(ctx, id)
	switch {
	case pipeline.Is(err, pipeline.NotFound):
		key := "user-" + user
		_, err = p.cache.CreateUser(ctx, &elasticache.CreateUserInput{
			UserId: aws.String(id), UserName: aws.String(user), Engine: aws.String(string(j.Config.InfraConfig.Datastore.Engine)), AccessString: aws.String(accessString(mode)),
			Passwords: []string{password}, Tags: cacheTags(tagsFor(j, key, id)),
		})
		if err == nil {
			p.noteGiven(id, givenMark(j, id, password, mode))
		} else if userThere(err) {
			// An earlier create, whose reply was lost or which does not show yet. Whose it is,
			// and its password, is seen to when it shows.
			err = pipeline.Wait(2*time.Second, "user %s of the cache to become visible", id)
		}
	case err != nil:
	default:
		if err = p.ownUser(ctx, j, u); err == nil {
			err = p.givePassword(ctx, j, u, password, mode)
		}
	}
	if err != nil {
		return none, plain(err)
	}
	if err := p.inGroup(ctx, group, id); err != nil {
		return none, err
	}
	return cloud.CacheCredential{User: user, Password: password}, nil
}

// userThere reports whether a create was refused because its ID is taken: the name of
// the user alone (DuplicateUserName) is another matter.
func userThere(err error) bool {
	var there *ectypes.UserAlreadyExistsFault
	var ce *pipeline.CloudError
	return errors.As(err, &there) || errors.As(err, &ce) && strings.HasPrefix(ce.Code, "UserAlreadyExists")
}

// ownUser refuses a user of that ID that is somebody else's.
func (p *Provider) ownUser(ctx context.Context, j *job.Job, u ectypes.User) error {
	owner, err := p.cacheMark(ctx, aws.ToString(u.ARN))
	if err != nil || owner == j.ID {
		return err
	}
	return nameTaken(kindCacheUser, aws.ToString(u.UserId), aws.ToString(u.ARN))
}

// givePassword sets password and access of a user, once: while the change is under way
// the next try waits for it.
func (p *Provider) givePassword(ctx context.Context, j *job.Job, u ectypes.User, password string, mode job.AccessMode) error {
	id := aws.ToString(u.UserId)
	if s := aws.ToString(u.Status); s != "active" {
		return pipeline.Wait(5*time.Second, "user %s of the cache to take changes (%s)", id, s)
	}
	// What was set a moment ago, by this process, is not set again: the wait for the
	// group would never end.
	mark := givenMark(j, id, password, mode)
	p.mu.Lock()
	done := p.given[id] == mark
	p.mu.Unlock()
	if done {
		return nil
	}
	_, err := p.cache.ModifyUser(ctx, &elasticache.ModifyUserInput{UserId: aws.String(id), AccessString: aws.String(accessString(mode)), Passwords: []string{password}})
	if err == nil {
		p.noteGiven(id, mark)
		lookup.Changed(ctx)
	}
	return err
}

// givenMark tells one password and access of a user from another, and nothing of them.
func givenMark(j *job.Job, id, password string, mode job.AccessMode) string {
	return job.Token(j.ID, id, password, string(mode))
}

func (p *Provider) noteGiven(id, mark string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.given[id] = mark
}

// inGroup lets a user into the group, and is done when ElastiCache has carried it out.
func (p *Provider) inGroup(ctx context.Context, group, id string) error {
	lookup.Changed(ctx)
	u, err := p.readCacheUser(ctx, id)
	if err != nil {
		return pipeline.Unseen(plain(err), "user "+id+" of the cache")
	}
	if s := aws.ToString(u.Status); s != "active" {
		return pipeline.Wait(5*time.Second, "user %s of the cache to become active (%s)", id, s)
	}
	g, err := p.readUserGroup(ctx, group)
	if err != nil {
		return plain(err)
	}
	if s := aws.ToString(g.Status); s != "active" {
		return pipeline.Wait(5*time.Second, "user group %s to become active (%s)", group, s)
	}
	if slices.Contains(g.UserIds, id) {
		return nil
	}
	if _, err := p.cache.ModifyUserGroup(ctx, &elasticache.ModifyUserGroupInput{UserGroupId: aws.String(group), UserIdsToAdd: []string{id}}); err != nil {
		return plain(err)
	}
	return pipeline.Wait(5*time.Second, "user group %s to let %s in", group, id)
}

// RemoveCacheUser takes a user out of the group and deletes it.
func (p *Provider) RemoveCacheUser(ctx context.Context, j *job.Job, user string) error {
	ctx = lookup.For(ctx, j.ID)
	id, group := cacheUserID(j, user), cacheGroupName(j)
	u, err := p.readCacheUser(ctx, id)
	if err != nil {
		return pipeline.Unless(plain(err), pipeline.NotFound)
	}
	if aws.ToString(u.Status) == "deleting" {
		return pipeline.Wait(5*time.Second, "user %s of the cache to be deleted", id)
	}
	if err := p.ownUser(ctx, j, u); err != nil {
		return plain(err)
	}
	g, err := p.readUserGroup(ctx, group)
	if err := pipeline.Unless(plain(err), pipeline.NotFound); err != nil {
		return err
	}
	if err == nil && slices.Contains(g.UserIds, id) {
		if s := aws.ToString(g.Status); s != "active" {
			return pipeline.Wait(5*time.Second, "user group %s to become active (%s)", group, s)
		}
		if _, err := p.cache.ModifyUserGroup(ctx, &elasticache.ModifyUserGroupInput{UserGroupId: aws.String(group), UserIdsToRemove: []string{id}}); err != nil {
			return plain(err)
		}
		return pipeline.Wait(5*time.Second, "user group %s to let %s go", group, id)
	}
	if _, err := p.cache.DeleteUser(ctx, &elasticache.DeleteUserInput{UserId: aws.String(id)}); err != nil {
		return pipeline.Unless(plain(err), pipeline.NotFound)
	}
	return pipeline.Wait(5*time.Second, "user %s of the cache to be deleted", id)
}
