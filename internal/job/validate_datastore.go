package job

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

var (
	engineVersionRE = regexp.MustCompile(`^[0-9]{1,2}(\.[0-9]{1,2}){0,2}$`)
	windowRE        = regexp.MustCompile(`^(mon|tue|wed|thu|fri|sat|sun):([01][0-9]|2[0-3]):[0-5][0-9]$`)
	adminUserRE     = regexp.MustCompile(`^[a-z][a-z0-9_]{0,15}$`)
	objectIDRE      = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	groupIDRE       = regexp.MustCompile(`^sg-[0-9a-f]{8,17}$`)
	dataControlRE   = regexp.MustCompile(`^(RDS|SQL|AZDB|EC|MS|AMR|NETA|NETG|NETZ)-[0-9]{2}$`)
)

// validateDatastore checks what of a datastore's or cache's spec needs no cloud.
func (j *Job) validateDatastore(s DatastoreSpec, inv *Invalid) {
	const at = "config.spec."
	j.validateEngine(s, inv)
	if j.Mode != ModeAdopt && s.Adopt != nil {
		inv.add(at+"adopt", "is only for mode adopt", "change the mode or leave it out")
	}
	if j.Mode != ModeAdopt && s.MonitorOnly {
		inv.add(at+"monitorOnly", "is only for mode adopt", "leave it out: recommendations are for datastores that others manage")
	}
	if j.Mode == ModeCreate && s.Existing != nil {
		inv.add(at+"existing", "is only for mode create_in_existing", "change the mode or leave it out")
	}
	switch j.Mode {
	case ModeAdopt:
		j.validateDatastoreAdopt(s, inv)
		return
	case ModeCreateInExisting:
		if s.Existing == nil || s.Existing.NetworkID == "" {
			inv.add(at+"existing.networkId", "is missing", "name the network to build in")
		}
		if (s.Existing == nil || len(s.Existing.SubnetIDs) == 0) && j.Provider != GCP {
			inv.add(at+"existing.subnetIds", "is missing", map[Provider]string{
				AWS:   "name private subnets in two zones or more",
				Azure: "name one subnet: delegated to the flexible servers or without a delegation and empty; for a cache, where its private endpoint goes",
			}[j.Provider])
		}
	default:
		j.validateNetwork(s.Network, inv)
		if !slices.Equal(s.Network.Subnets, []string{TierPrivate, TierDatabase}) {
			inv.add(at+"network.subnets", "the tiers of a datastore's network are private and database", "leave it out, or make the network by a job of its own and name it")
		}
	}
	j.validateSizing(s, inv)
	j.validateKeeping(s, inv)
	j.validateAccess(s, inv)
	j.validateLogical(s, inv)
	for i, w := range s.Waive {
		field := fmt.Sprintf("%swaive[%d].", at, i)
		if !dataControlRE.MatchString(w.Control) {
			inv.add(field+"control", fmt.Sprintf("%.40q is not a hardening control", w.Control), "use its name in the hardening report, such as RDS-10")
		}
		if strings.TrimSpace(w.Reason) == "" {
			inv.add(field+"reason", "is missing", "say why the control need not hold: it stands in the report")
		}
	}
}

func (j *Job) validateEngine(s DatastoreSpec, inv *Invalid) {
	const at = "config.spec."
	switch {
	case s.Engine == "" && j.Mode == ModeAdopt:
		return // read from what is adopted
	case j.ResourceType == Datastore && s.Engine != Postgres && s.Engine != MySQL:
		inv.add(at+"engine", fmt.Sprintf("%.40q is not an engine of a datastore", string(s.Engine)), "use postgres or mysql; redis and valkey are of resource type cache")
	case j.ResourceType == Cache && !s.Engine.Cache():
		inv.add(at+"engine", fmt.Sprintf("%.40q is not an engine of a cache", string(s.Engine)), "use redis or valkey; postgres and mysql are of resource type datastore")
	case s.Engine == Valkey && j.Provider == Azure:
		inv.add(at+"engine", "valkey is not offered at azure", "use redis, or another cloud")
	}
	if s.Version != "" && !engineVersionRE.MatchString(s.Version) {
		inv.add(at+"version", fmt.Sprintf("%.40q is not a version", s.Version), "use major, or major and minor, such as 17 or 8.4")
	}
	if major, _, _ := strings.Cut(s.Version, "."); s.Engine == Postgres && engineVersionRE.MatchString(s.Version) && (len(major) == 1 || major < "15") {
		inv.add(at+"version", "PostgreSQL "+s.Version+" lets everybody make tables in every database's schema public, and its support ends", "use 15 or newer")
	}
	if !slices.Contains([]string{PresetDev, PresetStandard, PresetProduction}, s.Preset) {
		inv.add(at+"preset", fmt.Sprintf("%.40q is not a preset", s.Preset), "use dev, standard or production")
	}
}

func (j *Job) validateDatastoreAdopt(s DatastoreSpec, inv *Invalid) {
	const at = "config.spec."
	given := 0
	if a := s.Adopt; a != nil {
		for _, is := range []bool{len(a.IDs) > 0, a.Name != "", a.Endpoint != ""} {
			if is {
				given++
			}
		}
		if len(a.IDs) > 1 {
			inv.add(at+"adopt.ids", fmt.Sprintf("names %d", len(a.IDs)), "make a job for each datastore")
		}
		if host, _, _ := strings.Cut(a.Endpoint, ":"); a.Endpoint != "" && (host == "" || strings.ContainsAny(a.Endpoint, "/@? ")) {
			inv.add(at+"adopt.endpoint", "is not an endpoint", "use the host name, with or without the port; never a URL with credentials in it")
		}
	}
	if given != 1 {
		inv.add(at+"adopt", fmt.Sprintf("names the datastore in %d ways", given), "give one of ids (with one ID), name and endpoint")
	}
	if len(s.Databases) > 0 {
		inv.add(at+"databases", "nothing is made in a datastore that is adopted", "leave it out")
	}
	if len(s.Access) > 0 || s.Existing != nil || len(s.Waive) > 0 {
		inv.add(at+"adopt", "comes with settings of a datastore that is made", "give adopt, engine and monitorOnly alone: what is adopted is not changed")
	}
}

func (j *Job) validateSizing(s DatastoreSpec, inv *Invalid) {
	const at = "config.spec."
	if s.InstanceType != "" && s.Size != nil {
		inv.add(at+"instanceType", "comes with size", "give one of the two")
	}
	if len(s.InstanceType) > 64 || !printable(s.InstanceType) {
		inv.add(at+"instanceType", "is not a class", "use the cloud's own name, such as db.t4g.medium")
	}
	if z := s.Size; z != nil {
		if z.MemoryGiB < 1 || z.MemoryGiB > 4096 {
			inv.add(at+"size.memoryGiB", fmt.Sprintf("is %d", z.MemoryGiB), "use 1 to 4096")
		}
		if j.ResourceType == Datastore && (z.VCPUs < 1 || z.VCPUs > 128) {
			inv.add(at+"size.vcpus", fmt.Sprintf("is %d", z.VCPUs), "use 1 to 128")
		}
		if z.Arch != "" {
			inv.add(at+"size.arch", "managed datastores have no architecture of their own to choose", "leave it out, or name a class with instanceType")
		}
	}
	if j.ResourceType == Cache {
		if s.StorageGiB != 0 || s.StorageMax != 0 {
			inv.add(at+"storageGiB", "a cache has no disk to size", "leave it out, and give size.memoryGiB")
		}
		if n := value(s.Replicas); n < 0 || n > 5 {
			inv.add(at+"replicas", fmt.Sprintf("is %d", n), "use 0 to 5")
		}
		if s.Replicas != nil && *s.Replicas == 0 && s.HA() {
			inv.add(at+"replicas", "is 0, and highAvailability needs one to fail over to", "use 1 or more, or set highAvailability to false")
		}
		return
	}
	if s.Replicas != nil {
		inv.add(at+"replicas", "read replicas of datastores are not made: replica scaling stays with those who run them", "leave it out; highAvailability makes a standby")
	}
	if s.StorageGiB < 20 || s.StorageGiB > 16384 {
		inv.add(at+"storageGiB", fmt.Sprintf("is %d", s.StorageGiB), "use 20 to 16384")
	}
	if s.StorageMax < s.StorageGiB || s.StorageMax > 65536 {
		inv.add(at+"storageMaxGiB", fmt.Sprintf("is %d", s.StorageMax), "use storageGiB to 65536")
	}
}

// validateKeeping checks what keeps the data: backups, window, administrator.
func (j *Job) validateKeeping(s DatastoreSpec, inv *Invalid) {
	const at = "config.spec."
	if s.BackupRetentionDays < 1 || s.BackupRetentionDays > 35 {
		inv.add(at+"backupRetentionDays", fmt.Sprintf("is %d", s.BackupRetentionDays), "use 7 to 35; fewer than 7 needs a waiver of the control")
	}
	if !windowRE.MatchString(s.MaintenanceWindow) {
		inv.add(at+"maintenanceWindow", fmt.Sprintf("%.40q is not a window", s.MaintenanceWindow), "use a day and a time of UTC, such as sun:03:00")
	}
	if j.ResourceType == Cache {
		if s.AdminUser != "" {
			inv.add(at+"adminUser", "a cache has no administrator", "leave it out")
		}
	} else {
		j.validateAdminUser(s, inv)
	}
	azure := []struct {
		field string
		given bool
		only  ResourceType
	}{{"entraAdmin", s.EntraAdmin != "", Datastore}, {"accessKeys", s.AccessKeys, Cache}, {"principals", len(s.Principals) > 0, Cache}}
	for _, f := range azure {
		if f.given && (j.Provider != Azure || j.ResourceType != f.only) {
			inv.add(at+f.field, fmt.Sprintf("is for a %s at azure", f.only), "leave it out")
		}
	}
	if s.EntraAdmin != "" && !objectIDRE.MatchString(s.EntraAdmin) {
		inv.add(at+"entraAdmin", fmt.Sprintf("%.60q is not an object ID", s.EntraAdmin), "use the object ID of an Entra user, group or service principal")
	}
	for i, p := range s.Principals {
		if !objectIDRE.MatchString(p) {
			inv.add(fmt.Sprintf("%sprincipals[%d]", at, i), fmt.Sprintf("%.60q is not an object ID", p), "use the object ID of an Entra user, group, managed identity or service principal")
		}
	}
}

func (j *Job) validateAdminUser(s DatastoreSpec, inv *Invalid) {
	const field = "config.spec.adminUser"
	switch {
	case !adminUserRE.MatchString(s.AdminUser):
		inv.add(field, fmt.Sprintf("%.40q is not an administrator's name", s.AdminUser), "use 1 to 16 of a-z, 0-9 and underscore, starting with a letter")
	case slices.Contains(ReservedUsers(j.Provider, s.Engine), s.AdminUser), strings.HasPrefix(s.AdminUser, "pg_"):
		inv.add(field, fmt.Sprintf("%q is kept by %s or the cloud, or is the first that attackers try", s.AdminUser, s.Engine.Title()), "choose another, or leave it out for "+DefaultAdmin)
	}
}

func (j *Job) validateAccess(s DatastoreSpec, inv *Invalid) {
	for i, a := range s.Access {
		at := fmt.Sprintf("config.spec.access[%d]", i)
		switch {
		case (a.CIDR == "") == (a.SecurityGroupID == ""):
			inv.add(at, "names no source, or two", "give one of cidr and securityGroupId")
		case a.SecurityGroupID != "" && j.Provider != AWS:
			inv.add(at+".securityGroupId", "is for aws", "give a cidr")
		case a.SecurityGroupID != "" && !groupIDRE.MatchString(a.SecurityGroupID):
			inv.add(at+".securityGroupId", fmt.Sprintf("%.60q is not a security group's ID", a.SecurityGroupID), "use one such as sg-0123456789abcdef0")
		case a.CIDR != "":
			p, err := netip.ParsePrefix(a.CIDR)
			switch {
			case err != nil || p.Masked() != p || !p.Addr().Is4():
				inv.add(at+".cidr", fmt.Sprintf("%.60q is not an IPv4 range", a.CIDR), "write it as 10.40.0.0/16, with no host bits set")
			case p.Bits() < 8 || !p.Addr().IsPrivate() && !sharedSpace.Contains(p.Addr()):
				inv.add(at+".cidr", a.CIDR+" is a range of the internet, and the datastore is private", "name a range inside the network or one that is routed to it")
			}
		}
		if len(a.Description) > 200 || !printable(a.Description) {
			inv.add(at+".description", "has characters that not every cloud takes, or more than 200", "use letters, digits, spaces and _ . : / = + - @")
		}
	}
	if len(s.Access) > 50 {
		inv.add("config.spec.access", fmt.Sprintf("has %d rules", len(s.Access)), "use 50 at most; name wider ranges or groups")
	}
}

// sharedSpace is the address space that carriers and clouds share (RFC 6598).
var sharedSpace = netip.MustParsePrefix("100.64.0.0/10")

func (j *Job) validateLogical(s DatastoreSpec, inv *Invalid) {
	if len(s.Databases) > 0 && j.ResourceType == Cache {
		inv.add("config.spec.databases", "a cache has no logical databases", "leave it out")
		return
	}
	seen := map[string]bool{}
	for i, d := range s.Databases {
		field := fmt.Sprintf("config.spec.databases[%d].name", i)
		if message, fix := DatabaseNameFault(s.Engine, d.Name); message != "" {
			inv.add(field, fmt.Sprintf("%.60q %s", d.Name, message), fix)
		} else if seen[d.Name] {
			inv.add(field, fmt.Sprintf("%q stands there twice", d.Name), "leave one of them out")
		}
		seen[d.Name] = true
	}
	if len(s.Databases) > 50 {
		inv.add("config.spec.databases", fmt.Sprintf("has %d", len(s.Databases)), "use 50 at most here, and make the others later")
	}
}
