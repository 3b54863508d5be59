package azure

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/mysql/armmysqlflexibleservers/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/postgresql/armpostgresqlflexibleservers/v5"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// serverPatience is how long a server may take to come up: with a standby it is made
// twice, one after the other.
const serverPatience = time.Hour

// A flexible is what both flexible servers say of themselves in the same words.
type flexible struct {
	SKU struct {
		Name string `json:"name"`
		Tier string `json:"tier"`
	} `json:"sku"`
	Properties struct {
		AdministratorLogin string `json:"administratorLogin"`
		Version            string `json:"version"`
		State              string `json:"state"`
		FQDN               string `json:"fullyQualifiedDomainName"`
		AvailabilityZone   string `json:"availabilityZone"`
		ReplicationRole    string `json:"replicationRole"`
		Backup             struct {
			Days int    `json:"backupRetentionDays"`
			Geo  string `json:"geoRedundantBackup"`
		} `json:"backup"`
		HighAvailability struct {
			Mode    string `json:"mode"`
			State   string `json:"state"`
			Standby string `json:"standbyAvailabilityZone"`
		} `json:"highAvailability"`
		MaintenanceWindow struct {
			Custom string `json:"customWindow"`
			Day    int    `json:"dayOfWeek"`
			Hour   int    `json:"startHour"`
			Minute int    `json:"startMinute"`
		} `json:"maintenanceWindow"`
		Network struct {
			Public string `json:"publicNetworkAccess"`
			Subnet string `json:"delegatedSubnetResourceId"`
		} `json:"network"`
		Storage struct {
			GiB      int    `json:"storageSizeGB"`
			AutoGrow string `json:"autoGrow"`
		} `json:"storage"`
		AuthConfig struct {
			Entra string `json:"activeDirectoryAuth"`
		} `json:"authConfig"`
		PrivateEndpoints []struct {
			Properties struct {
				State struct {
					Status string `json:"status"`
				} `json:"privateLinkServiceConnectionState"`
			} `json:"properties"`
		} `json:"privateEndpointConnections"`
	} `json:"properties"`
}

// A serverDesign is what a server is made with.
type serverDesign struct {
	flavour
	spec     job.DatastoreSpec
	info     job.DatastoreInfo
	subnet   string
	zone     string // ID of the private zone
	password string // read when one is made, and kept no longer than that
	tenant   string
}

// tierOfClass is the tier of a class by its name: the API wants both, and a name has
// one tier alone ("Compute options in Azure Database for PostgreSQL").
func (f flavour) tierOfClass(class string) string {
	switch name := strings.TrimPrefix(class, "Standard_"); {
	case strings.HasPrefix(name, "B"):
		return "Burstable"
	case strings.HasPrefix(name, "E"), strings.HasPrefix(name, "M"):
		return "MemoryOptimized"
	}
	return "GeneralPurpose"
}

// window is the spec's window as the service counts: Sunday is the first day.
func window(spec job.DatastoreSpec) (day, hour, minute int) {
	parts := strings.Split(spec.MaintenanceWindow, ":")
	if len(parts) != 3 {
		return 0, 3, 0
	}
	day = max(slices.Index([]string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}, parts[0]), 0)
	hour, _ = strconv.Atoi(parts[1])   // the spec was validated
	minute, _ = strconv.Atoi(parts[2]) // likewise
	return day, hour, minute
}

func windowWords(day, hour, minute int) string {
	return fmt.Sprintf("day %d at %02d:%02d", day, hour, minute)
}

func (d serverDesign) window() string {
	day, hour, minute := window(d.spec)
	return windowWords(day, hour, minute)
}

func windowSeen(x flexible) string {
	w := x.Properties.MaintenanceWindow
	if !strings.EqualFold(w.Custom, "Enabled") {
		return "the service's own"
	}
	return windowWords(w.Day, w.Hour, w.Minute)
}

// haMode is the standby that is asked for.
func (d serverDesign) haMode() string {
	if d.info.HighAvailability {
		return "ZoneRedundant"
	}
	return "Disabled"
}

// zones are those of the server and of its standby; "" lets the service choose.
func (d serverDesign) zones() (primary, standby string) {
	z := d.info.Zones
	if !d.info.HighAvailability || len(z) < 2 {
		return "", ""
	}
	return z[0], z[1]
}

// server is the server itself.
func (p *Provider) server(r *pipeline.Run, d serverDesign) pipeline.Resource {
	o := object[flexible]{
		p: p, r: r, kind: d.server, key: "server", id: p.serverID(r, d.flavour),
		body: func() any {
			if d.engine == job.MySQL {
				return p.mysqlBody(r.Job, d)
			}
			return p.postgresBody(r.Job, d)
		},
		see: func(_ context.Context, x resource[flexible]) ([]pipeline.Aspect, error) {
			return serverAspects(r, d, x), nil
		},
		state: func(x resource[flexible]) (pipeline.Status, string) {
			return serverState(r, x.is.Properties.State)
		},
	}
	x := o.resource()
	x.Patience, x.Precious = serverPatience, true
	send := x.Create
	x.Create = func(ctx context.Context, token string) (pipeline.Seen, error) {
		var err error
		if d.password, err = p.adminPassword(ctx, d.info.SecretID); pipeline.Is(err, pipeline.Denied) {
			return pipeline.Seen{}, r.AwaitKnown("the provisioner's role at the vault", err)
		}
		if err != nil {
			return pipeline.Seen{}, err
		}
		return send(ctx, token)
	}
	read := x.Get
	x.Get = func(ctx context.Context, id string) (pipeline.Seen, error) {
		s, err := read(ctx, id)
		if !pipeline.Is(err, pipeline.NotFound) || r.Down {
			return s, err
		}
		return p.underWay(ctx, r, id, err)
	}
	return x
}

// underWay is what is known of a server that was accepted and is not shown: only
// its operation says whether it is still to come, or why it never will.
func (p *Provider) underWay(ctx context.Context, r *pipeline.Run, id string, notThere error) (pipeline.Seen, error) {
	last := lastOperation(r, id)
	if last.url == "" || last.removal {
		return pipeline.Seen{}, notThere
	}
	running, why, err := p.outcome(ctx, last)
	switch {
	case err != nil:
		return pipeline.Seen{}, err
	case running:
		return pipeline.Seen{ID: id, Owner: r.Job.ID, Status: pipeline.Pending, Reason: "Provisioning"}, nil
	case why != "":
		return pipeline.Seen{ID: id, Owner: r.Job.ID, Status: pipeline.Gone, Reason: why}, nil
	}
	return pipeline.Seen{}, notThere
}

// serverState is the meaning of a server's state. One that was up holds data: it
// never counts as broken, which would have it replaced.
func serverState(r *pipeline.Run, state string) (pipeline.Status, string) {
	switch state {
	case "Ready":
		return pipeline.Ready, state
	case "Dropping":
		return pipeline.Pending, state
	}
	if served(r.Job) || r.Down {
		return pipeline.Ready, state
	}
	switch state {
	case "Disabled", "Inaccessible", "Failed":
		return pipeline.Broken, state
	}
	return pipeline.Pending, cmp.Or(state, "Provisioning")
}

func (p *Provider) postgresBody(j *job.Job, d serverDesign) any {
	day, hour, minute := window(d.spec)
	primary, standby := d.zones()
	version := armpostgresqlflexibleservers.PostgresMajorVersion(d.info.Version)
	grow, mode := armpostgresqlflexibleservers.StorageAutoGrowEnabled, armpostgresqlflexibleservers.HighAvailabilityMode(d.haMode())
	ha := &armpostgresqlflexibleservers.HighAvailability{Mode: &mode}
	f := &armpostgresqlflexibleservers.ServerProperties{
		AdministratorLogin: &d.spec.AdminUser, AdministratorLoginPassword: &d.password, Version: &version,
		CreateMode: new(armpostgresqlflexibleservers.CreateModeCreate),
		AuthConfig: &armpostgresqlflexibleservers.AuthConfig{
			ActiveDirectoryAuth: new(armpostgresqlflexibleservers.MicrosoftEntraAuthEnabled), PasswordAuth: new(armpostgresqlflexibleservers.PasswordBasedAuthEnabled), TenantID: &d.tenant,
		},
		Backup:            &armpostgresqlflexibleservers.Backup{BackupRetentionDays: new(int32(d.spec.BackupRetentionDays)), GeoRedundantBackup: new(armpostgresqlflexibleservers.GeographicallyRedundantBackupDisabled)},
		HighAvailability:  ha,
		MaintenanceWindow: &armpostgresqlflexibleservers.MaintenanceWindow{CustomWindow: new("Enabled"), DayOfWeek: new(int32(day)), StartHour: new(int32(hour)), StartMinute: new(int32(minute))},
		Network: &armpostgresqlflexibleservers.Network{
			DelegatedSubnetResourceID: &d.subnet, PrivateDNSZoneArmResourceID: &d.zone, PublicNetworkAccess: new(armpostgresqlflexibleservers.ServerPublicNetworkAccessStateDisabled),
		},
		Storage: &armpostgresqlflexibleservers.Storage{StorageSizeGB: new(int32(d.info.StorageGiB)), AutoGrow: &grow},
	}
	if primary != "" {
		f.AvailabilityZone, ha.StandbyAvailabilityZone = &primary, &standby
	}
	return armpostgresqlflexibleservers.Server{
		Location: &p.region, Tags: tagsFor(j, "server"), Properties: f,
		SKU: &armpostgresqlflexibleservers.SKU{Name: &d.info.Class, Tier: new(armpostgresqlflexibleservers.SKUTier(d.tierOfClass(d.info.Class)))},
	}
}

func (p *Provider) mysqlBody(j *job.Job, d serverDesign) any {
	primary, standby := d.zones()
	mode, version := armmysqlflexibleservers.HighAvailabilityMode(d.haMode()), armmysqlflexibleservers.ServerVersion(mysqlVersion(d.info.Version))
	ha := &armmysqlflexibleservers.HighAvailability{Mode: &mode}
	f := &armmysqlflexibleservers.ServerProperties{
		AdministratorLogin: &d.spec.AdminUser, AdministratorLoginPassword: &d.password, Version: &version, CreateMode: new(armmysqlflexibleservers.CreateModeDefault),
		Backup:           &armmysqlflexibleservers.Backup{BackupRetentionDays: new(int32(d.spec.BackupRetentionDays)), GeoRedundantBackup: new(armmysqlflexibleservers.EnableStatusEnumDisabled)},
		HighAvailability: ha,
		Network: &armmysqlflexibleservers.Network{
			DelegatedSubnetResourceID: &d.subnet, PrivateDNSZoneResourceID: &d.zone, PublicNetworkAccess: new(armmysqlflexibleservers.EnableStatusEnumDisabled),
		},
		Storage: &armmysqlflexibleservers.Storage{StorageSizeGB: new(int32(d.info.StorageGiB)), AutoGrow: new(armmysqlflexibleservers.EnableStatusEnumEnabled)},
	}
	if primary != "" {
		f.AvailabilityZone, ha.StandbyAvailabilityZone = &primary, &standby
	}
	return armmysqlflexibleservers.Server{
		Location: &p.region, Tags: tagsFor(j, "server"), Properties: f,
		SKU: &armmysqlflexibleservers.MySQLServerSKU{Name: &d.info.Class, Tier: new(armmysqlflexibleservers.ServerSKUTier(d.tierOfClass(d.info.Class)))},
	}
}

// mysqlVersion is a version as the API names it: 8.0.21 stands for every 8.0 ("Azure
// Database for MySQL version support policy").
func mysqlVersion(version string) string {
	if version == "8.0" {
		return "8.0.21"
	}
	return version
}

// serverAspects are what a verify shows of a server: it holds data, and whoever
// changed it had a reason, so that nothing is put back.
func serverAspects(r *pipeline.Run, d serverDesign, x resource[flexible]) []pipeline.Aspect {
	f := x.is.Properties
	return watched(r,
		pipeline.Aspect{Name: "state", Wanted: "Ready", Seen: f.State},
		pipeline.Aspect{Name: "version", Wanted: d.info.Version, Seen: shortVersion(d.engine, f.Version)},
		pipeline.Aspect{Name: "class", Wanted: d.info.Class, Seen: x.is.SKU.Name},
		pipeline.Aspect{Name: "public access", Wanted: "Disabled", Seen: f.Network.Public},
		pipeline.Aspect{Name: "subnet", Wanted: strings.ToLower(d.subnet), Seen: strings.ToLower(f.Network.Subnet)},
		pipeline.Aspect{Name: "high availability", Wanted: d.haMode(), Seen: cmp.Or(f.HighAvailability.Mode, "Disabled")},
		pipeline.Aspect{Name: "backup retention in days", Wanted: strconv.Itoa(d.spec.BackupRetentionDays), Seen: strconv.Itoa(f.Backup.Days)},
		pipeline.Aspect{Name: "growth of storage", Wanted: "Enabled", Seen: f.Storage.AutoGrow},
		pipeline.Aspect{Name: "maintenance window", Wanted: d.window(), Seen: windowSeen(x.is)},
	)
}

// shortVersion is the version that a person names: of PostgreSQL the major one, of
// MySQL the release line.
func shortVersion(e job.Engine, version string) string {
	if e == job.Postgres {
		major, _, _ := strings.Cut(version, ".")
		return major
	}
	return minorOf(version)
}
