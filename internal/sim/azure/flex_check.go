package azure

import (
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/zopday/provisioner/internal/sim"
)

// newServer judges what only a new server is asked, and fills in what was left out.
func (c *Cloud) newServer(r *request, e *flexEngine, now *Resource, mode, password string) error {
	if c.nameTaken(r, e, now.Name, now.ID) {
		return refuse(http.StatusConflict, "ServerNameAlreadyExists", "Specified server name is already used.")
	}
	p := now.Properties
	p.def("network", map[string]any{})
	switch mode {
	case "", "Default", "Create":
		if err := e.checkAdmin(p.str("administratorLogin"), password, p.str("authConfig.passwordAuth") == "Disabled"); err != nil {
			return err
		}
	case "Update":
		return e.notFound("", now.Name)
	default:
		if err := c.copied(e, now, mode); err != nil {
			return err
		}
	}
	if p.str("version") == "" {
		return missingArgument("version")
	}
	if now.Top.str("sku.name") == "" {
		return missingArgument("sku.name")
	}
	if f := c.World.Take(r.Call, sim.FaultCapacity, now.Location+" "+now.Top.str("sku.name")); f != nil {
		refusal := refuse(http.StatusBadRequest, "LocationIsOfferRestricted", "The location is restricted from performing this operation.")
		overlay(refusal, f)
		return refusal
	}
	e.fill(c, now)
	return nil
}

// fill gives a new server what it has without being asked.
func (e *flexEngine) fill(c *Cloud, now *Resource) {
	p := now.Properties
	sub := func(name string) doc {
		p.def(name, map[string]any{})
		return p.sub(name)
	}
	zone := "1"
	if l, _ := findLocation(now.Location); l.zones > 0 {
		zone = []string{"1", "2", "3"}[int(c.World.Fraction("zone", now.ID)*3)]
	}
	p.def("availabilityZone", zone)
	backup := sub("backup")
	backup.def("backupRetentionDays", 7)
	backup.def("geoRedundantBackup", "Disabled")
	backup.def("earliestRestoreDate", c.World.Now().UTC().Format("2006-01-02T15:04:05.0000000+00:00"))
	sub("highAvailability").def("mode", "Disabled")
	window := sub("maintenanceWindow")
	window.def("customWindow", "Disabled")
	for _, name := range []string{"dayOfWeek", "startHour", "startMinute"} {
		window.def(name, 0)
	}
	public := "Enabled"
	if p.str("network.delegatedSubnetResourceId") != "" {
		public = "Disabled"
	}
	sub("network").def("publicNetworkAccess", public)
	storage := sub("storage")
	role := "Primary"
	if e == flexMySQL {
		role = "None"
		storage.def("storageSizeGB", 32)
		storage.def("iops", int(300+3*storage.num("storageSizeGB")))
		storage.def("autoGrow", "Enabled")
		storage.def("autoIoScaling", "Disabled")
		storage.def("storageSku", "Premium_LRS")
		storage.def("logOnDisk", "Disabled")
	} else {
		storage.def("storageSizeGB", 32)
		storage.def("autoGrow", "Disabled")
		storage.def("iops", pgDisk(int(storage.num("storageSizeGB"))).iops)
		storage.def("tier", pgDisk(int(storage.num("storageSizeGB"))).tier)
		storage.def("type", "")
		auth := sub("authConfig")
		auth.def("activeDirectoryAuth", "Disabled")
		auth.def("passwordAuth", "Enabled")
	}
	p.def("replicationRole", role)
	sub("dataEncryption").def("type", map[bool]string{true: "SystemManaged", false: "SystemAssigned"}[e == flexPostgres])
}

func missingArgument(name string) *Error {
	return refuse(http.StatusBadRequest, "MissingRequiredParameter", "The required parameter '%s' is missing.", name)
}

var (
	loginName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)
	// reservedLogins cannot be administrators ("Create an Azure Database for PostgreSQL/MySQL flexible server").
	reservedLogins = []string{"azure_superuser", "azure_pg_admin", "azuresu", "admin", "administrator", "root", "guest", "public", "sa"}
)

// checkAdmin judges the administrator's name and password: 8 to 128 characters of three kinds out of four, without the name in it.
func (e *flexEngine) checkAdmin(login, password string, noPassword bool) error {
	if noPassword && login == "" && password == "" {
		return nil // Entra alone
	}
	longest := 63
	if e == flexMySQL {
		longest = 32
	}
	switch {
	case login == "":
		return missingArgument("administratorLogin")
	case password == "":
		return missingArgument("administratorLoginPassword")
	case len(login) > longest || !loginName.MatchString(login):
		return badValue("administratorLogin", "It may have 1 to %d letters, digits and underscores, and does not begin with a digit.", longest)
	case slices.Contains(reservedLogins, strings.ToLower(login)), strings.HasPrefix(strings.ToLower(login), "pg_"):
		return refuse(http.StatusBadRequest, "InvalidParameterValue", "Invalid value given for parameter administratorLogin. The name '%s' is reserved. Specify a valid parameter value.", login)
	}
	return checkServerPassword(login, password)
}

func checkServerPassword(login, password string) error {
	kinds := 0
	for _, set := range []string{"abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789"} {
		if strings.ContainsAny(password, set) {
			kinds++
		}
	}
	if strings.ContainsFunc(password, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", r)
	}) {
		kinds++
	}
	if len(password) < 8 || len(password) > 128 || kinds < 3 || login != "" && strings.Contains(strings.ToLower(password), strings.ToLower(login)) {
		return refuse(http.StatusBadRequest, "PasswordNotComplex", "Password validation failed. The password does not meet policy requirements because it is not complex enough.")
	}
	return nil
}

// changedServer takes over what a PUT or PATCH leaves out, and refuses what cannot change.
func (c *Cloud) changedServer(e *flexEngine, now, old *Resource, password string) error {
	was := old.clone()
	for _, name := range []string{"backup", "highAvailability", "maintenanceWindow", "network", "storage", "authConfig", "dataEncryption"} {
		if now.Properties.has(name) {
			inheritDoc(now.Properties.sub(name), was.Properties.sub(name))
		}
	}
	inheritDoc(now.Properties, was.Properties)
	inheritDoc(now.Top, was.Top)
	if old.State == serverStopped {
		return refuse(http.StatusConflict, "ServerIsNotReady", "The operation can only be performed on Started servers. Server Name = %s, Current Server State = %s", old.Name, old.State)
	}
	for _, name := range []string{"administratorLogin", "availabilityZone", "network.delegatedSubnetResourceId", "backup.geoRedundantBackup"} {
		if before := was.Properties.str(name); before != "" && !strings.EqualFold(before, now.Properties.str(name)) {
			return refuse(http.StatusBadRequest, "PropertyCannotBeUpdated", "Property '%s' of server '%s' cannot be updated after it was made.", name, old.Name)
		}
	}
	if now.Properties.num("storage.storageSizeGB") < was.Properties.num("storage.storageSizeGB") {
		return refuse(http.StatusBadRequest, "StorageSizeCannotBeDecreased", "Storage of server '%s' cannot be scaled down from %d GB to %d GB.", old.Name,
			int(was.Properties.num("storage.storageSizeGB")), int(now.Properties.num("storage.storageSizeGB")))
	}
	if before, after := e.rank(was.Properties.str("version")), e.rank(now.Properties.str("version")); after < before {
		return badValue("version", "A server cannot go back from version %s to %s.", was.Properties.str("version"), now.Properties.str("version"))
	}
	if password != "" {
		return checkServerPassword(now.Properties.str("administratorLogin"), password)
	}
	return nil
}

// checkServer judges what holds for new servers and changed ones.
func (c *Cloud) checkServer(e *flexEngine, now, old *Resource) error {
	p := now.Properties
	if v := p.str("version"); e.rank(v) < 0 {
		return badValue("version", "Version '%s' is not supported in %s. Supported are %s.", v, now.Location, strings.Join(e.versionNames(), ", "))
	}
	sku, ok := e.sku(now.Top.str("sku.name"))
	if !ok {
		return refuse(http.StatusBadRequest, "InvalidParameterValue", "Invalid value given for parameter sku.name. The sku '%s' is not offered for %s in %s. Specify a valid parameter value.", now.Top.str("sku.name"), e.title, now.Location)
	}
	if tier := now.Top.str("sku.tier"); !strings.EqualFold(tier, sku.tier) {
		return badValue("sku.tier", "The sku '%s' is of the tier %s, not of '%s'.", sku.name, sku.tier, tier)
	}
	if days := p.num("backup.backupRetentionDays"); days < e.leastRetention() || days > 35 {
		return badValue("backupRetentionDays", "It must be from %d to 35.", int(e.leastRetention()))
	}
	if err := e.checkStorage(int(p.num("storage.storageSizeGB"))); err != nil {
		return err
	}
	if w := p.sub("maintenanceWindow"); w.num("dayOfWeek") < 0 || w.num("dayOfWeek") > 6 || w.num("startHour") < 0 || w.num("startHour") > 23 || w.num("startMinute") < 0 || w.num("startMinute") > 59 {
		return badValue("maintenanceWindow", "dayOfWeek is from 0 to 6, startHour from 0 to 23, startMinute from 0 to 59.")
	}
	capitalise(p.sub("maintenanceWindow"), "customWindow")
	if e == flexPostgres && old == nil && strings.EqualFold(p.str("authConfig.activeDirectoryAuth"), "Enabled") && p.str("authConfig.tenantId") == "" {
		return missingArgument("authConfig.tenantId")
	}
	if p.str("authConfig.passwordAuth") == "Disabled" && p.str("authConfig.activeDirectoryAuth") == "Disabled" {
		return badValue("authConfig", "One way to authenticate must be enabled.")
	}
	return e.checkHA(p, sku, now.Location)
}

// capitalise spells Enabled and Disabled as answers have them.
func capitalise(d doc, name string) {
	if s := d.str(name); s != "" {
		d[name] = strings.ToUpper(s[:1]) + strings.ToLower(s[1:])
	}
}

// leastRetention: backups are kept for a week at least by PostgreSQL, for a day by MySQL ("Backup and restore").
func (e *flexEngine) leastRetention() float64 {
	if e == flexPostgres {
		return 7
	}
	return 1
}

// checkStorage: PostgreSQL's disks have sizes of their own, MySQL's any from 20 GB to 16 TB.
func (e *flexEngine) checkStorage(gb int) error {
	if e == flexPostgres {
		if pgDisk(gb).gb != gb {
			return badValue("storageSizeGB", "The size %d is none of 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384 and 32767.", gb)
		}
		return nil
	}
	if gb < 20 || gb > 16384 {
		return badValue("storageSizeGB", "It must be from 20 to 16384.")
	}
	return nil
}

// checkHA: a standby needs a tier above Burstable, and one in another zone a region that has zones ("High availability").
func (e *flexEngine) checkHA(p doc, sku flexSKU, location string) error {
	ha := p.sub("highAvailability")
	mode := ha.str("mode")
	if mode == "" || mode == "Disabled" {
		delete(ha, "standbyAvailabilityZone")
		return nil
	}
	l, _ := findLocation(location)
	switch {
	case sku.tier == "Burstable":
		return refuse(http.StatusBadRequest, "HighAvailabilityNotSupportedForBurstable", "High availability is not supported for the Burstable tier. Choose General Purpose or Memory Optimized.")
	case mode == "ZoneRedundant" && l.zones == 0:
		return refuse(http.StatusBadRequest, "ZoneRedundantHANotSupportedInRegion", "Zone-redundant high availability is not supported in %s.", location)
	case mode == "ZoneRedundant" && ha.str("standbyAvailabilityZone") == p.str("availabilityZone") && ha.str("standbyAvailabilityZone") != "":
		return badValue("standbyAvailabilityZone", "It must be another zone than that of the primary.")
	}
	if ha.str("standbyAvailabilityZone") == "" {
		ha["standbyAvailabilityZone"] = p.str("availabilityZone")
		if mode == "ZoneRedundant" {
			ha["standbyAvailabilityZone"] = map[string]string{"1": "2", "2": "3", "3": "1"}[p.str("availabilityZone")]
		}
	}
	if strings.EqualFold(p.str("storage.autoGrow"), "Disabled") && e == flexMySQL {
		return badValue("storage.autoGrow", "High availability needs autoGrow enabled.")
	}
	return nil
}

// serverQuota refuses more vCores than a subscription has in a region.
func (c *Cloud) serverQuota(r *request, e *flexEngine, now *Resource) error {
	limit, _ := c.World.QuotaValue("azure", e.service, "vCores", r.subscription, now.Location)
	sku, _ := e.sku(now.Top.str("sku.name"))
	used := c.vCores(e, r.subscription, now.Location)
	if float64(used+sku.vCores) > limit {
		return refuse(http.StatusBadRequest, "QuotaExceeded", "The requested number of vCores exceeds the quota of the subscription in %s: %d are used of %d, %d more were requested.", now.Location, used, int(limit), sku.vCores)
	}
	return nil
}

func (c *Cloud) vCores(e *flexEngine, subscription, location string) int {
	used := 0
	for _, res := range c.shelves[e.service].state.Resources {
		if res.Type == e.typ && strings.EqualFold(subscriptionOf(res.ID), subscription) && res.Location == location {
			sku, _ := e.sku(res.Top.str("sku.name"))
			used += sku.vCores
		}
	}
	return used
}
