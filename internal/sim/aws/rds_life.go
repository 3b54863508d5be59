package aws

import (
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/rds/types"

	"github.com/zopday/provisioner/internal/sim"
)

// The statuses of an instance ("Viewing Amazon RDS DB instance status").
const (
	statusCreating  = "creating"
	statusBackingUp = "backing-up"
	statusAvailable = "available"
	statusModifying = "modifying"
	statusDeleting  = "deleting"
	statusStopping  = "stopping"
	statusStopped   = "stopped"
	statusStarting  = "starting"
	statusRebooting = "rebooting"
)

// How long the parts of an instance's life take, as a rule.
const (
	dbNetworkTime = 20 * time.Second
	dbBackupTime  = 70 * time.Second
	dbSecretTime  = 50 * time.Second
	dbModifyTime  = 90 * time.Second
	dbStopTime    = 3 * time.Minute
	dbStartTime   = 4 * time.Minute
	dbRebootTime  = time.Minute
	snapshotTime  = 2 * time.Minute
)

func (s *rdsService) createTime(i *RDSInstance) time.Duration {
	d := 4 * time.Minute
	if deref(i.DB.MultiAZ) {
		d = 8 * time.Minute
	}
	return d + time.Duration(s.cloud.World.Fraction("rds create", i.arn())*float64(2*time.Minute))
}

// beginCreation schedules what happens while an instance is being created.
func (s *rdsService) beginCreation(i *RDSInstance) {
	s.cloud.after(dbNetworkTime, "rds", "network", i.key())
	s.cloud.after(s.createTime(i), "rds", "made", i.key())
	if i.DB.MasterUserSecret != nil {
		s.cloud.after(dbSecretTime, "rds", "secret", i.key())
	}
}

// Event implements sim.Service.
func (s *rdsService) Event(kind, key string) {
	defer s.cloud.servers.sync()
	switch kind {
	case "snapshot":
		s.snapshotReady(key)
		return
	case "snapshot-gone":
		s.snapshotGone(key)
		return
	case "interface-gone":
		s.interfaceGone(key)
		return
	case "backup-expired":
		s.backupExpired(key)
		return
	}
	i := s.byResource(key)
	if i == nil {
		return
	}
	switch kind {
	case "network":
		s.putInterfaces(i)
	case "secret":
		s.secretActive(i)
	case "made":
		s.made(i)
	case "log":
		s.deliverLogs(i)
	case "backed-up":
		if i.status() == statusBackingUp && !i.Held {
			s.becomeAvailable(i)
		}
	case "changing":
		s.moved(i, statusAvailable, statusModifying)
	case "soon":
		s.applySoon(i)
	case "changed":
		if i.status() == statusModifying && !i.Held {
			s.applyPending(i)
			i.setStatus(statusAvailable)
		}
	case "stopped":
		s.moved(i, statusStopping, statusStopped)
	case "started":
		i.start(s)
		s.moved(i, statusStarting, statusAvailable)
	case "rebooted":
		i.start(s)
		s.moved(i, statusRebooting, statusAvailable)
	case "gone":
		if i.status() == statusDeleting {
			s.dropInstance(i)
		}
	}
}

// moved takes an instance from one status to the next, unless something else has happened to it.
func (s *rdsService) moved(i *RDSInstance, from, to string) {
	if i.status() == from && !i.Held {
		i.setStatus(to)
	}
}

// made ends the creation: the first backup is taken if backups are on.
func (s *rdsService) made(i *RDSInstance) {
	if i.status() != statusCreating || i.Held {
		return
	}
	s.putInterfaces(i)
	if len(i.Interfaces) == 0 {
		i.setStatus("incompatible-network") // the subnets have gone, or have no free address
		return
	}
	now := s.cloud.World.Now()
	i.DB.InstanceCreateTime = &now
	i.start(s)
	if deref(i.DB.BackupRetentionPeriod) == 0 {
		s.becomeAvailable(i)
		return
	}
	i.setStatus(statusBackingUp)
	s.cloud.after(dbBackupTime, "rds", "backed-up", i.key())
}

// becomeAvailable is the end of the creation, also of one that somebody cut short from outside.
func (s *rdsService) becomeAvailable(i *RDSInstance) {
	now := s.cloud.World.Now()
	if i.DB.InstanceCreateTime == nil {
		i.DB.InstanceCreateTime = &now
		i.start(s)
	}
	s.putInterfaces(i)
	s.secretActive(i)
	i.setStatus(statusAvailable)
	i.DB.PendingModifiedValues = &types.PendingModifiedValues{}
	if dates := deref(i.DB.CACertificateIdentifier); i.DB.CertificateDetails == nil {
		i.DB.CertificateDetails = &types.CertificateDetails{CAIdentifier: &dates, ValidTill: new(now.AddDate(1, 0, 0).Truncate(time.Second))}
	}
	if deref(i.DB.BackupRetentionPeriod) > 0 && i.DB.LatestRestorableTime == nil {
		i.DB.LatestRestorableTime = new(now.Truncate(time.Second))
		s.automatedSnapshot(i)
	}
	s.deliverLogs(i)
	s.cloud.servers.sync()
}

// start is what a start of the server does: static parameters take effect.
func (i *RDSInstance) start(s *rdsService) {
	i.Running = RDSRunning{Group: i.parameterGroup(), Values: s.staticValues(i)}
	for n := range i.DB.DBParameterGroups {
		i.DB.DBParameterGroups[n].ParameterApplyStatus = new("in-sync")
	}
}

func (i *RDSInstance) parameterGroup() string {
	if len(i.DB.DBParameterGroups) == 0 {
		return ""
	}
	return deref(i.DB.DBParameterGroups[0].DBParameterGroupName)
}

// putInterfaces puts the instance's network interfaces into its subnets: one in the zone of the primary, one in that of the
// standby.
func (s *rdsService) putInterfaces(i *RDSInstance) {
	if len(i.Interfaces) > 0 || i.DB.DBSubnetGroup == nil {
		return
	}
	var groups []string
	for _, g := range i.DB.VpcSecurityGroups {
		groups = append(groups, deref(g.VpcSecurityGroupId))
	}
	want := 1
	if deref(i.DB.MultiAZ) {
		want = 2
	}
	used := map[string]bool{}
	for _, n := range i.DB.DBSubnetGroup.Subnets {
		zone := deref(n.SubnetAvailabilityZone.Name)
		if len(i.Interfaces) == want || used[zone] || want == 1 && zone != deref(i.DB.AvailabilityZone) {
			continue
		}
		id, err := s.cloud.managedInterface(i.scope(), deref(n.SubnetIdentifier), groups, "amazon-rds", "RDSNetworkInterface", i.arn())
		if err != nil {
			continue // another subnet of the group may have room
		}
		used[zone] = true
		i.Interfaces = append(i.Interfaces, id)
		if deref(i.DB.AvailabilityZone) == "" {
			i.DB.AvailabilityZone = &zone
		} else if zone != *i.DB.AvailabilityZone {
			i.DB.SecondaryAvailabilityZone = &zone
		}
	}
}

// logGroup is where a log goes ("Publishing database logs to Amazon CloudWatch Logs"). RDS makes the group, and leaves it
// behind when the instance is deleted.
func (i *RDSInstance) logGroup(kind string) string { return "/aws/rds/instance/" + i.id() + "/" + kind }

func (s *rdsService) deliverLogs(i *RDSInstance) {
	for _, kind := range i.DB.EnabledCloudwatchLogsExports {
		if kind == "upgrade" || kind == "iam-db-auth-error" {
			continue // made when there is something to log
		}
		s.cloud.platform.log.ensure(i.scope(), i.logGroup(kind))
	}
}

// logGroupDeleted: an instance that is still there, even on its way out, has more to log, and its group is back before long.
func (s *rdsService) logGroupDeleted(in scope, name string) {
	for _, i := range s.in(in).Instances {
		for _, kind := range i.DB.EnabledCloudwatchLogsExports {
			if i.logGroup(kind) == name && i.status() != statusCreating && i.status() != statusStopped {
				s.cloud.after(lateLogs, "rds", "log", i.key())
			}
		}
	}
}

// dropInstance takes an instance away. Its network interfaces stay for a while, its log groups for ever.
func (s *rdsService) dropInstance(i *RDSInstance) {
	sc := s.in(i.scope())
	delete(sc.Instances, i.id())
	sc.Released[i.id()] = s.cloud.World.Now()
	for _, n := range i.Interfaces {
		sc.Lingering[n] = i.id()
		s.cloud.after(s.cloud.lingering(n), "rds", "interface-gone", i.scope().key()+"|"+n)
	}
	s.forgetReplica(i)
	s.dropSecret(i)
	if !i.DropBackups && deref(i.DB.BackupRetentionPeriod) > 0 && i.DB.InstanceCreateTime != nil && i.DB.ReadReplicaSourceDBInstanceIdentifier == nil {
		s.retainBackups(i)
	}
	for name, n := range sc.Snapshots {
		if deref(n.Snapshot.SnapshotType) == "automated" && deref(n.Snapshot.DbiResourceId) == deref(i.DB.DbiResourceId) && i.DropBackups {
			delete(sc.Snapshots, name)
		}
	}
	s.cloud.servers.sync()
}

func (s *rdsService) interfaceGone(key string) {
	in, id, _ := strings.Cut(key, "|")
	sc := s.state.Scopes[in]
	if sc == nil || sc.Lingering[id] == "" {
		return
	}
	delete(sc.Lingering, id)
	s.cloud.ec2.dropInterface(s.cloud.ec2.in(parseScopeKey(in)), id)
}

// serving says whether an instance's server runs, and whether it is there but stopped.
func (i *RDSInstance) serving() (there, stopped bool) {
	switch i.status() {
	case statusCreating, statusDeleting, "failed", "incompatible-network", "incompatible-restore", "incompatible-parameters", "inaccessible-encryption-credentials":
		return false, false
	case statusStopped, statusStarting, statusStopping:
		return true, i.status() != statusStopping
	}
	return true, false
}

// wantedServers are the servers that should be there.
func (s *rdsService) wantedServers() []wantedDatabase {
	var out []wantedDatabase
	for _, i := range s.instances() {
		there, stopped := i.serving()
		if !there {
			continue
		}
		out = append(out, wantedDatabase{stopped: stopped, server: sim.DatabaseServer{ID: i.serverID(), Engine: i.engine(), Names: []string{i.Host}, RequireTLS: s.requiresTLS(i),
			Admin: deref(i.DB.MasterUsername), Password: i.MasterPassword, AdminRole: "rds_superuser"},
			admits: s.admits(i.key()), placed: func(at sim.DatabaseEndpoint) {
				i.DB.Endpoint = &types.Endpoint{Address: &at.Host, Port: new(int32(at.Port)), HostedZoneId: new(rdsHostedZone)}
			}})
	}
	return out
}

// rdsHostedZone is that of instances' names in us-east-1.
const rdsHostedZone = "Z2R2ITUGPM61AM"

// serverID names the server of an instance: another one by the same name gets another server.
func (i *RDSInstance) serverID() string { return i.arn() + "#" + deref(i.DB.DbiResourceId) }

// admits says who gets through to an instance: those inside its network, and with a public address those that its security
// groups let in.
func (s *rdsService) admits(key string) func(sim.KubeCaller) bool {
	return func(from sim.KubeCaller) bool {
		w := s.cloud.World
		w.Lock()
		defer w.Unlock()
		i := s.byResource(key)
		if i == nil {
			return false
		}
		var groups []string
		for _, g := range i.DB.VpcSecurityGroups {
			groups = append(groups, deref(g.VpcSecurityGroupId))
		}
		return from.Inside || deref(i.DB.PubliclyAccessible) && s.cloud.groupsAdmit(i.scope(), groups, from, int(i.AskedPort))
	}
}
