package aws

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/elasticache/types"

	"github.com/zopday/provisioner/internal/sim"
)

// CacheState is everything that ElastiCache keeps, by account and region.
type CacheState struct {
	Scopes map[string]*CacheScope
}

// CacheScope is ElastiCache in one account and region. Everything is keyed by its identifier, in small letters.
type CacheScope struct {
	Groups       map[string]*CacheGroup
	SubnetGroups map[string]*CacheSubnetGroup
	Parameters   map[string]*CacheParameterGroup
	Users        map[string]*CacheUser
	UserGroups   map[string]*CacheUserGroup
	Snapshots    map[string]*CacheSnapshot
	Lingering    map[string]string    // network interfaces of deleted nodes, by ID
	Released     map[string]time.Time // identifiers of deleted replication groups
}

// CacheGroup is a replication group: a primary and its replicas.
type CacheGroup struct {
	Group           types.ReplicationGroup // as it is described
	Account, Region string
	UID             string // another group may get its name
	Created         time.Time
	Version         string
	Parameters      string
	SubnetGroup     string
	VpcID           string
	Security        []string
	Members         []CacheMember
	Window          string // for maintenance
	Port            int32  // its endpoint has another one here: all servers are on one machine
	Host            string
	AuthToken       string
	Tags            []types.Tag
	Held            bool
	Next            CacheChange
}

// CacheMember is a node of a replication group.
type CacheMember struct{ ID, AZ, SubnetID, InterfaceID string }

// CacheChange is what a modification in progress will have changed.
type CacheChange struct {
	NodeType, Version, AuthToken  string
	Failover, MultiAZ             *bool
	AddUserGroups, DropUserGroups []string
}

// CacheSubnetGroup is a cache subnet group.
type CacheSubnetGroup struct {
	Group   types.CacheSubnetGroup
	Tags    []types.Tag
	Created time.Time
}

// CacheParameterGroup is a cache parameter group; those of ElastiCache itself are made when somebody asks for them.
type CacheParameterGroup struct {
	Group   types.CacheParameterGroup
	Values  map[string]string
	Tags    []types.Tag
	Created time.Time
	Default bool
}

// CacheUser is a user of role-based access control. Its passwords are beside what is described.
type CacheUser struct {
	User      types.User
	Passwords []string
	Tags      []types.Tag
	Created   time.Time
	NextPass  []string
	Default   bool
}

// CacheUserGroup is a user group.
type CacheUserGroup struct {
	Group   types.UserGroup
	Tags    []types.Tag
	Created time.Time
}

// CacheSnapshot is a snapshot of a replication group.
type CacheSnapshot struct {
	Snapshot types.Snapshot
	Tags     []types.Tag
	Created  time.Time
	Held     bool
}

// cacheService is Amazon ElastiCache: replication groups of Redis OSS and Valkey, cluster mode disabled.
type cacheService struct {
	cloud *Cloud
	state *CacheState
}

// Cloud implements sim.Service.
func (s *cacheService) Cloud() string { return "aws" }

// Name implements sim.Service.
func (s *cacheService) Name() string { return "elasticache" }

// State implements sim.Service.
func (s *cacheService) State() any { return s.state }

// Reset implements sim.Service.
func (s *cacheService) Reset() {
	s.state.Scopes = map[string]*CacheScope{}
	s.cloud.servers.sync()
}

// Restored implements sim.Restored: the servers of a world that was taken up again.
func (s *cacheService) Restored() { s.cloud.servers.sync() }

func (s *cacheService) in(at scope) *CacheScope {
	in := s.state.Scopes[at.key()]
	if in == nil {
		in = &CacheScope{Groups: map[string]*CacheGroup{}, SubnetGroups: map[string]*CacheSubnetGroup{}, Parameters: map[string]*CacheParameterGroup{}, Users: map[string]*CacheUser{},
			UserGroups: map[string]*CacheUserGroup{}, Snapshots: map[string]*CacheSnapshot{}, Lingering: map[string]string{}, Released: map[string]time.Time{}}
		s.state.Scopes[at.key()] = in
	}
	return in
}

func (g *CacheGroup) scope() scope { return scope{g.Account, g.Region} }

func (g *CacheGroup) id() string { return deref(g.Group.ReplicationGroupId) }

func (g *CacheGroup) arn() string { return deref(g.Group.ARN) }

func (g *CacheGroup) status() string { return deref(g.Group.Status) }

func (g *CacheGroup) setStatus(status string) {
	g.Group.Status = &status
	for i := range g.Group.NodeGroups {
		g.Group.NodeGroups[i].Status = &status
	}
}

func (g *CacheGroup) engine() string { return deref(g.Group.Engine) }

func (g *CacheGroup) key() string { return g.scope().key() + "|" + g.UID }

// groups lists all replication groups, in a stable order.
func (s *cacheService) groups() []*CacheGroup {
	var out []*CacheGroup
	for _, where := range sortedKeys(s.state.Scopes) {
		for _, id := range sortedKeys(s.state.Scopes[where].Groups) {
			out = append(out, s.state.Scopes[where].Groups[id])
		}
	}
	return out
}

func (s *cacheService) byKey(key string) *CacheGroup {
	for _, g := range s.groups() {
		if g.key() == key {
			return g
		}
	}
	return nil
}

func cacheTags(tags []types.Tag) map[string]string {
	m := make(map[string]string, len(tags))
	for _, t := range tags {
		m[deref(t.Key)] = deref(t.Value)
	}
	return m
}

// Objects implements sim.Service.
func (s *cacheService) Objects() []sim.Object {
	var out []sim.Object
	for _, where := range sortedKeys(s.state.Scopes) {
		sc, at := s.state.Scopes[where], parseScopeKey(where)
		add := func(o sim.Object) {
			o.Account, o.Region, o.ID = at.Account, at.Region, o.ARN
			out = append(out, o)
		}
		for _, id := range sortedKeys(sc.Groups) {
			g := sc.Groups[id]
			add(sim.Object{Kind: "replication-group", ARN: g.arn(), Name: id, State: g.status(), Tags: cacheTags(g.Tags), Parents: []string{g.VpcID}, Data: &g.Group})
		}
		for _, id := range sortedKeys(sc.SubnetGroups) {
			g := sc.SubnetGroups[id]
			parents := []string{deref(g.Group.VpcId)}
			for _, n := range g.Group.Subnets {
				parents = append(parents, deref(n.SubnetIdentifier))
			}
			add(sim.Object{Kind: "cache-subnet-group", ARN: deref(g.Group.ARN), Name: id, Tags: cacheTags(g.Tags), Parents: parents, Data: g})
		}
		for _, id := range sortedKeys(sc.Parameters) {
			g := sc.Parameters[id]
			add(sim.Object{Kind: "cache-parameter-group", ARN: deref(g.Group.ARN), Name: id, Tags: cacheTags(g.Tags), Default: g.Default, Pristine: g.Default, Data: g})
		}
		for _, id := range sortedKeys(sc.Users) {
			u := sc.Users[id]
			add(sim.Object{Kind: "cache-user", ARN: deref(u.User.ARN), Name: id, State: deref(u.User.Status), Tags: cacheTags(u.Tags), Default: u.Default, Pristine: u.Default, Data: &u.User})
		}
		for _, id := range sortedKeys(sc.UserGroups) {
			g := sc.UserGroups[id]
			add(sim.Object{Kind: "cache-user-group", ARN: deref(g.Group.ARN), Name: id, State: deref(g.Group.Status), Tags: cacheTags(g.Tags), Data: g})
		}
		for _, id := range sortedKeys(sc.Snapshots) {
			n := sc.Snapshots[id]
			add(sim.Object{Kind: "cache-snapshot", ARN: deref(n.Snapshot.ARN), Name: id, State: deref(n.Snapshot.SnapshotStatus), Tags: cacheTags(n.Tags), Data: n})
		}
	}
	return out
}

// SetState implements sim.Service: a status of a replication group (create-failed is how its creation fails), a snapshot, a
// user or a user group, which then keeps it until it is asked for something else.
func (s *cacheService) SetState(id, state, _, _ string) error {
	for _, g := range s.groups() {
		if g.arn() != id {
			continue
		}
		if g.Held = state != statusAvailable; g.Held {
			g.setStatus(orText(state, "create-failed"))
		} else {
			s.becomeAvailable(g)
		}
		s.cloud.servers.sync()
		return nil
	}
	for _, sc := range s.state.Scopes {
		for _, n := range sc.Snapshots {
			if deref(n.Snapshot.ARN) == id {
				n.Held, n.Snapshot.SnapshotStatus = true, new(orText(state, "failed"))
				return nil
			}
		}
		for _, u := range sc.Users {
			if deref(u.User.ARN) == id {
				u.User.Status = new(orText(state, "modifying"))
				return nil
			}
		}
		for _, g := range sc.UserGroups {
			if deref(g.Group.ARN) == id {
				g.Group.Status = new(orText(state, "modifying"))
				return nil
			}
		}
	}
	return fmt.Errorf("%s: no such replication group, snapshot, user or user group", id)
}

// Remove implements sim.Service.
func (s *cacheService) Remove(id string) error {
	for _, g := range s.groups() {
		if g.arn() == id {
			s.drop(g)
			return nil
		}
	}
	for _, sc := range s.state.Scopes {
		done := removeByARN(sc.SubnetGroups, id, func(g *CacheSubnetGroup) *string { return g.Group.ARN }) ||
			removeByARN(sc.Parameters, id, func(g *CacheParameterGroup) *string { return g.Group.ARN }) ||
			removeByARN(sc.Users, id, func(u *CacheUser) *string { return u.User.ARN }) ||
			removeByARN(sc.UserGroups, id, func(g *CacheUserGroup) *string { return g.Group.ARN }) ||
			removeByARN(sc.Snapshots, id, func(n *CacheSnapshot) *string { return n.Snapshot.ARN })
		if done {
			s.cloud.servers.sync()
			return nil
		}
	}
	return fmt.Errorf("%s: no such replication group, group, user or snapshot", id)
}

func removeByARN[T any](all map[string]T, id string, arnOf func(T) *string) bool {
	for name, x := range all {
		if deref(arnOf(x)) == id {
			delete(all, name)
			return true
		}
	}
	return false
}

// Event implements sim.Service.
func (s *cacheService) Event(kind, key string) {
	defer s.cloud.servers.sync()
	in, id, _ := strings.Cut(key, "|")
	sc := s.state.Scopes[in]
	if sc == nil {
		return
	}
	switch kind {
	case "network", "made", "changed", "gone":
		if g := s.byKey(key); g != nil {
			s.groupEvent(kind, g)
		}
	case "snapshot":
		if n := sc.Snapshots[id]; n != nil {
			s.finishSnapshot(n)
		}
	case "snapshot-gone":
		if n := sc.Snapshots[id]; n != nil && deref(n.Snapshot.SnapshotStatus) == statusDeleting {
			delete(sc.Snapshots, id)
		}
	case "interface-gone":
		if sc.Lingering[id] != "" {
			delete(sc.Lingering, id)
			s.cloud.ec2.dropInterface(s.cloud.ec2.in(parseScopeKey(in)), id)
		}
	case "user":
		s.userSettled(sc, id)
	case "user-group":
		s.userGroupSettled(sc, id)
	}
}

// hasUserGroup says whether a replication group has a user group.
func (g *CacheGroup) hasUserGroup(id string) bool { return slices.Contains(g.Group.UserGroupIds, id) }
