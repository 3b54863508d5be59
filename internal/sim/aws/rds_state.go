package aws

import (
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/rds/types"

	"github.com/zopday/provisioner/internal/sim"
)

// RDSState is everything that Relational Database Service keeps, by account and region.
type RDSState struct {
	Scopes map[string]*RDSScope
}

// RDSScope is RDS in one account and region. Everything is keyed by its identifier in small letters, which is how RDS
// stores it.
type RDSScope struct {
	Instances    map[string]*RDSInstance
	SubnetGroups map[string]*RDSSubnetGroup
	Parameters   map[string]*RDSParameterGroup
	Snapshots    map[string]*RDSSnapshot
	Backups      map[string]*RDSBackup // retained automated backups of deleted instances, by resource ID
	Lingering    map[string]string     // network interfaces of deleted instances, by ID
	Released     map[string]time.Time  // identifiers of deleted instances
}

// RDSInstance is a DB instance.
type RDSInstance struct {
	DB             types.DBInstance // as it is described
	Account        string
	Region         string
	Requested      time.Time
	MasterPassword string
	NewPassword    string // that will be it soon
	Host           string // the name that its certificate is for
	AskedPort      int32  // its endpoint has another one here: all servers are on one machine
	Interfaces     []string
	Final          string // snapshot that its deletion takes
	DropBackups    bool
	Held           bool // keeps the state that somebody gave it from outside
	Running        RDSRunning
}

// RDSRunning is what an instance's server works with, as opposed to what was asked for and waits for a reboot.
type RDSRunning struct {
	Group  string            // parameter group
	Values map[string]string // its static parameters as they were at the last start
}

// RDSSubnetGroup is a DB subnet group.
type RDSSubnetGroup struct {
	Group   types.DBSubnetGroup
	Tags    []types.Tag
	Created time.Time
}

// RDSParameterGroup is a DB parameter group. Default ones are made when somebody asks for them.
type RDSParameterGroup struct {
	Group   types.DBParameterGroup
	Values  map[string]string
	Tags    []types.Tag
	Created time.Time
	Default bool
}

// RDSSnapshot is a DB snapshot.
type RDSSnapshot struct {
	Snapshot types.DBSnapshot
	Shared   []string // account IDs, or all
	Held     bool
}

// RDSBackup is the automated backups of an instance that was deleted.
type RDSBackup struct {
	Backup types.DBInstanceAutomatedBackup
	Until  time.Time
}

// rdsService is Amazon Relational Database Service: PostgreSQL and MySQL instances.
type rdsService struct {
	cloud *Cloud
	state *RDSState
}

// Cloud implements sim.Service.
func (s *rdsService) Cloud() string { return "aws" }

// Name implements sim.Service.
func (s *rdsService) Name() string { return "rds" }

// State implements sim.Service.
func (s *rdsService) State() any { return s.state }

// Reset implements sim.Service.
func (s *rdsService) Reset() {
	s.state.Scopes = map[string]*RDSScope{}
	s.cloud.servers.sync()
}

// Restored implements sim.Restored: the servers of a world that was taken up again.
func (s *rdsService) Restored() { s.cloud.servers.sync() }

func (s *rdsService) in(sc scope) *RDSScope {
	in := s.state.Scopes[sc.key()]
	if in == nil {
		in = &RDSScope{Instances: map[string]*RDSInstance{}, SubnetGroups: map[string]*RDSSubnetGroup{}, Parameters: map[string]*RDSParameterGroup{},
			Snapshots: map[string]*RDSSnapshot{}, Backups: map[string]*RDSBackup{}, Lingering: map[string]string{},
			Released: map[string]time.Time{}}
		s.state.Scopes[sc.key()] = in
	}
	return in
}

func (i *RDSInstance) scope() scope { return scope{i.Account, i.Region} }

func (i *RDSInstance) id() string { return deref(i.DB.DBInstanceIdentifier) }

func (i *RDSInstance) arn() string { return deref(i.DB.DBInstanceArn) }

func (i *RDSInstance) status() string { return deref(i.DB.DBInstanceStatus) }

func (i *RDSInstance) setStatus(status string) { i.DB.DBInstanceStatus = &status }

func (i *RDSInstance) engine() string { return deref(i.DB.Engine) }

// key names the instance in events: by its resource ID, since another one may get its identifier.
func (i *RDSInstance) key() string { return i.scope().key() + "|" + deref(i.DB.DbiResourceId) }

// instances lists all instances, in a stable order.
func (s *rdsService) instances() []*RDSInstance {
	var out []*RDSInstance
	for _, where := range sortedKeys(s.state.Scopes) {
		sc := s.state.Scopes[where]
		for _, id := range sortedKeys(sc.Instances) {
			out = append(out, sc.Instances[id])
		}
	}
	return out
}

// byResource finds an instance by the key of an event.
func (s *rdsService) byResource(key string) *RDSInstance {
	in, id, _ := strings.Cut(key, "|")
	if sc := s.state.Scopes[in]; sc != nil {
		for _, i := range sc.Instances {
			if deref(i.DB.DbiResourceId) == id {
				return i
			}
		}
	}
	return nil
}

func rdsTags(tags []types.Tag) map[string]string {
	m := make(map[string]string, len(tags))
	for _, t := range tags {
		m[deref(t.Key)] = deref(t.Value)
	}
	return m
}

// Objects implements sim.Service.
func (s *rdsService) Objects() []sim.Object {
	var out []sim.Object
	for _, where := range sortedKeys(s.state.Scopes) {
		sc, at := s.state.Scopes[where], parseScopeKey(where)
		add := func(o sim.Object) {
			o.Account, o.Region, o.ID = at.Account, at.Region, o.ARN
			out = append(out, o)
		}
		for _, id := range sortedKeys(sc.Instances) {
			i := sc.Instances[id]
			add(sim.Object{Kind: "db-instance", ARN: i.arn(), Name: id, State: i.status(), Tags: rdsTags(i.DB.TagList), Parents: i.parents(), Data: &i.DB})
		}
		for _, id := range sortedKeys(sc.SubnetGroups) {
			g := sc.SubnetGroups[id]
			parents := []string{deref(g.Group.VpcId)}
			for _, n := range g.Group.Subnets {
				parents = append(parents, deref(n.SubnetIdentifier))
			}
			add(sim.Object{Kind: "db-subnet-group", ARN: deref(g.Group.DBSubnetGroupArn), Name: id, State: deref(g.Group.SubnetGroupStatus), Tags: rdsTags(g.Tags), Parents: parents, Data: g})
		}
		for _, id := range sortedKeys(sc.Parameters) {
			g := sc.Parameters[id]
			add(sim.Object{Kind: "db-parameter-group", ARN: deref(g.Group.DBParameterGroupArn), Name: id, Tags: rdsTags(g.Tags), Default: g.Default, Pristine: g.Default, Data: g})
		}
		for _, id := range sortedKeys(sc.Snapshots) {
			n := sc.Snapshots[id]
			add(sim.Object{Kind: "db-snapshot", ARN: deref(n.Snapshot.DBSnapshotArn), Name: id, State: deref(n.Snapshot.Status), Tags: rdsTags(n.Snapshot.TagList), Data: n})
		}
		for _, id := range sortedKeys(sc.Backups) {
			b := sc.Backups[id]
			add(sim.Object{Kind: "db-automated-backup", ARN: deref(b.Backup.DBInstanceAutomatedBackupsArn), Name: deref(b.Backup.DBInstanceIdentifier), State: deref(b.Backup.Status),
				Tags: rdsTags(b.Backup.TagList), Data: b})
		}
	}
	return out
}

func (i *RDSInstance) parents() []string {
	if i.DB.DBSubnetGroup == nil {
		return nil
	}
	return []string{deref(i.DB.DBSubnetGroup.VpcId), deref(i.DB.DBSubnetGroup.DBSubnetGroupArn)}
}

// SetState implements sim.Service: a status of an instance, which then keeps it ("available" lets it go on), or of a
// snapshot. An instance fails as failed ("Viewing Amazon RDS DB instance status").
func (s *rdsService) SetState(id, state, code, message string) error {
	for _, i := range s.instances() {
		if i.arn() != id {
			continue
		}
		if state == statusAvailable {
			i.Held = false
			s.becomeAvailable(i)
			return nil
		}
		i.Held = true
		i.setStatus(orText(state, "failed"))
		if code != "" || message != "" {
			i.DB.StatusInfos = []types.DBInstanceStatusInfo{{StatusType: new("instance"), Normal: new(false), Status: new(i.status()), Message: new(strings.TrimSpace(code + " " + message))}}
		}
		s.cloud.servers.sync()
		return nil
	}
	for _, sc := range s.state.Scopes {
		for _, n := range sc.Snapshots {
			if deref(n.Snapshot.DBSnapshotArn) == id {
				n.Held, n.Snapshot.Status = true, new(orText(state, "failed"))
				return nil
			}
		}
	}
	return fmt.Errorf("%s: no such DB instance or snapshot", id)
}

// Remove implements sim.Service.
func (s *rdsService) Remove(id string) error {
	for _, i := range s.instances() {
		if i.arn() == id {
			i.DropBackups = true
			s.dropInstance(i)
			return nil
		}
	}
	for _, sc := range s.state.Scopes {
		for name, g := range sc.SubnetGroups {
			if deref(g.Group.DBSubnetGroupArn) == id {
				delete(sc.SubnetGroups, name)
				return nil
			}
		}
		for name, g := range sc.Parameters {
			if deref(g.Group.DBParameterGroupArn) == id {
				delete(sc.Parameters, name)
				return nil
			}
		}
		for name, n := range sc.Snapshots {
			if deref(n.Snapshot.DBSnapshotArn) == id {
				delete(sc.Snapshots, name)
				return nil
			}
		}
		for name, b := range sc.Backups {
			if deref(b.Backup.DBInstanceAutomatedBackupsArn) == id {
				delete(sc.Backups, name)
				return nil
			}
		}
	}
	return fmt.Errorf("%s: no such DB instance, group, snapshot or backup", id)
}
