package aws

import (
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/elasticache/types"

	"github.com/zopday/provisioner/internal/sim"
)

// How long the parts of a replication group's life take, as a rule.
const (
	cacheModifyTime = 2 * time.Minute
	userTime        = 15 * time.Second
)

func (s *cacheService) createTime(g *CacheGroup) time.Duration {
	return 5*time.Minute + time.Duration(len(g.Members))*30*time.Second + time.Duration(s.cloud.World.Fraction("cache create", g.arn())*float64(2*time.Minute))
}

func (s *cacheService) groupEvent(kind string, g *CacheGroup) {
	switch kind {
	case "network":
		s.putInterfaces(g)
	case "made":
		if g.status() == statusCreating && !g.Held {
			s.putInterfaces(g)
			if slices.ContainsFunc(g.Members, func(m CacheMember) bool { return m.InterfaceID == "" }) {
				g.setStatus("create-failed") // a subnet is gone, or full
				return
			}
			s.becomeAvailable(g)
		}
	case "changed":
		if g.status() == statusModifying && !g.Held {
			s.applyChange(g)
			g.setStatus(statusAvailable)
		}
	case "gone":
		if g.status() == statusDeleting {
			s.drop(g)
		}
	}
}

// putInterfaces puts the nodes' network interfaces into their subnets.
func (s *cacheService) putInterfaces(g *CacheGroup) {
	for n := range g.Members {
		m := &g.Members[n]
		if m.InterfaceID != "" {
			continue
		}
		if id, err := s.cloud.managedInterface(g.scope(), m.SubnetID, g.Security, "amazon-elasticache", "ElastiCache "+m.ID, g.arn()); err == nil {
			m.InterfaceID = id
		}
	}
}

// becomeAvailable is the end of the creation, also of one that somebody cut short from outside.
func (s *cacheService) becomeAvailable(g *CacheGroup) {
	s.putInterfaces(g)
	g.Group.NodeGroups = []types.NodeGroup{{NodeGroupId: new("0001")}}
	for n, m := range g.Members {
		role := "replica"
		if n == 0 {
			role = "primary"
		}
		g.Group.NodeGroups[0].NodeGroupMembers = append(g.Group.NodeGroups[0].NodeGroupMembers, types.NodeGroupMember{CacheClusterId: new(m.ID), CacheNodeId: new("0001"), PreferredAvailabilityZone: new(m.AZ), CurrentRole: &role})
	}
	g.setStatus(statusAvailable)
	if deref(g.Group.SnapshotRetentionLimit) > 0 {
		g.Group.SnapshottingClusterId = new(g.Members[len(g.Members)-1].ID)
	}
	s.cloud.servers.sync()
}

// drop takes a replication group away. Its network interfaces stay for a while.
func (s *cacheService) drop(g *CacheGroup) {
	sc := s.in(g.scope())
	delete(sc.Groups, g.id())
	sc.Released[g.id()] = s.cloud.World.Now()
	for _, m := range g.Members {
		if m.InterfaceID != "" {
			sc.Lingering[m.InterfaceID] = g.id()
			s.cloud.after(s.cloud.lingering(m.InterfaceID), "elasticache", "interface-gone", g.scope().key()+"|"+m.InterfaceID)
		}
	}
	for _, u := range sc.UserGroups {
		u.Group.ReplicationGroups = slices.DeleteFunc(u.Group.ReplicationGroups, func(id string) bool { return id == g.id() })
	}
	s.cloud.servers.sync()
}

// serving says whether the servers of a group run.
func (g *CacheGroup) serving() bool {
	return len(g.Group.NodeGroups) > 0 && g.status() != statusDeleting && g.status() != "create-failed"
}

// wantedServers are the servers that should be there.
func (s *cacheService) wantedServers() []wantedDatabase {
	var out []wantedDatabase
	for _, g := range s.groups() {
		if !g.serving() {
			continue
		}
		w := wantedDatabase{server: sim.DatabaseServer{ID: g.arn() + "#" + g.UID, Engine: "redis", Names: []string{g.Host, strings.Replace(g.Host, "master.", "replica.", 1)},
			RequireTLS: deref(g.Group.TransitEncryptionEnabled) && g.Group.TransitEncryptionMode != types.TransitEncryptionModePreferred,
			Admin:      "default", Password: g.AuthToken}, users: map[string]sim.DatabaseUser{},
			admits: s.admits(g.key()), placed: g.place}
		w.server.OpenDefault = g.AuthToken == "" && len(g.Group.UserGroupIds) == 0
		for _, id := range g.Group.UserGroupIds {
			s.addUsers(g, id, &w)
		}
		out = append(out, w)
	}
	return out
}

// addUsers gives a server the users of a user group. The default user of the server is off unless the group's one is on.
func (s *cacheService) addUsers(g *CacheGroup, group string, w *wantedDatabase) {
	sc := s.in(g.scope())
	if sc.UserGroups[group] == nil {
		return
	}
	for _, id := range sc.UserGroups[group].Group.UserIds {
		u := sc.Users[id]
		if u == nil || deref(u.User.Status) == statusDeleting {
			continue
		}
		name, on := deref(u.User.UserName), slices.Contains(strings.Fields(deref(u.User.AccessString)), "on")
		if name == "default" && !on {
			continue
		}
		user := sim.DatabaseUser{Name: name, Roles: []string{deref(u.User.AccessString)}}
		if !on {
			user.Roles = append(user.Roles, "off") // "if neither is specified, the user is assigned off"
		}
		switch {
		case len(u.Passwords) > 0:
			user.Password = u.Passwords[0]
			for _, p := range u.Passwords[1:] {
				user.Roles = append(user.Roles, ">"+p)
			}
		case u.User.Authentication != nil && u.User.Authentication.Type == types.AuthenticationTypeNoPassword:
			user.Roles = append(user.Roles, "nopass")
		}
		w.users[name] = user
	}
}

// place notes where a group answers.
func (g *CacheGroup) place(at sim.DatabaseEndpoint) {
	if len(g.Group.NodeGroups) == 0 {
		return
	}
	n := &g.Group.NodeGroups[0]
	end := &types.Endpoint{Address: &at.Host, Port: new(int32(at.Port))}
	n.PrimaryEndpoint, n.ReaderEndpoint = end, end
	for i := range n.NodeGroupMembers {
		n.NodeGroupMembers[i].ReadEndpoint = end
	}
}

// admits: a cache never has a public address.
func (s *cacheService) admits(key string) func(sim.KubeCaller) bool {
	return func(from sim.KubeCaller) bool {
		s.cloud.World.Lock()
		defer s.cloud.World.Unlock()
		return from.Inside && s.byKey(key) != nil
	}
}
