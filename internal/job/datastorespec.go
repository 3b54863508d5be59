package job

import (
	"cmp"
	"slices"
	"time"
)

// DatastoreSpec is what a user asks for in a datastore job (engines mysql and
// postgres) or a cache job (engines redis and valkey). A preset stands behind
// every field that is left out; [Presets] says what it means.
type DatastoreSpec struct {
	Engine  Engine `json:"engine" enum:"postgres,mysql,redis,valkey" doc:"Datastores: postgres or mysql. Caches: redis (default), or valkey where the cloud has it (aws, gcp)"`
	Version string `json:"version,omitempty" doc:"Major, or major and minor, such as 17 or 8.4; the newest that the region offers in standard support by default"`
	Preset  string `json:"preset,omitempty" enum:"dev,standard,production" doc:"standard by default; GET /catalog/presets shows what each means"`

	Size         *Size  `json:"size,omitempty" doc:"Resolved to the cloud's smallest current class that has it; vcpus is left out for caches"`
	InstanceType string `json:"instanceType,omitempty" doc:"The cloud's own class, tier or SKU, instead of size: db.t4g.medium, db-custom-2-8192, Standard_D2ds_v5, cache.t4g.small"`
	StorageGiB   int    `json:"storageGiB,omitempty" doc:"Datastores: disk, 20 to 16384 GiB; it grows by itself up to storageMaxGiB where the cloud can"`
	StorageMax   int    `json:"storageMaxGiB,omitempty" doc:"Datastores: how far the disk may grow by itself; three times storageGiB by default"`
	Replicas     *int   `json:"replicas,omitempty" doc:"Caches: replicas besides the primary, 0 to 5"`

	HighAvailability    *bool  `json:"highAvailability,omitempty" doc:"A standby in another zone: Multi-AZ, regional or zone-redundant"`
	BackupRetentionDays int    `json:"backupRetentionDays,omitempty" doc:"Days for which automated backups are kept, and to any second of which a datastore can be restored: 7 to 35"`
	DeletionProtection  *bool  `json:"deletionProtection,omitempty" doc:"The cloud itself refuses deletion until it is lifted, which DELETE …?confirm=<name> does; on by default"`
	SkipFinalSnapshot   bool   `json:"skipFinalSnapshot,omitempty" doc:"Delete without a final snapshot: the data is gone with the datastore"`
	MaintenanceWindow   string `json:"maintenanceWindow,omitempty" doc:"When minor upgrades may happen, in UTC: sun:03:00 by default"`
	AdminUser           string `json:"adminUser,omitempty" doc:"Datastores: the administrator's name; zopadmin by default. Its password is kept in the cloud's secret store alone"`
	EntraAdmin          string `json:"entraAdmin,omitempty" doc:"Azure, postgres: object ID of the Entra group or user that administers it too; the provisioner's own principal by default"`

	Access     []AccessRule `json:"access,omitempty" doc:"Who may connect; nobody by default but the job's own private subnets (mode create)"`
	AccessKeys bool         `json:"accessKeys,omitempty" doc:"Azure caches: hand out access keys, for clients that cannot use Entra"`
	Principals []string     `json:"principals,omitempty" doc:"Azure caches: object IDs of the Entra identities that may use it"`

	Databases []DatabaseSpec `json:"databases,omitempty" doc:"Datastores: logical databases to make in it; more can be made later at /provisioning-jobs/{jobID}/databases"`

	MonitorOnly bool `json:"monitorOnly,omitempty" doc:"Mode adopt: recommend a size from the cloud's metrics of the last 14 days; nothing is ever applied"`

	Waive    []Waiver    `json:"waive,omitempty" doc:"Hardening controls that need not hold, by name"`
	Network  NetworkSpec `json:"network,omitzero" doc:"The network to make (mode create)"`
	Existing *Existing   `json:"existing,omitempty" doc:"What to build in (mode create_in_existing): network, and subnets in two zones or more"`
	Adopt    *Adopt      `json:"adopt,omitempty" doc:"What to adopt (mode adopt): the one ID in ids, a name, or an endpoint"`
}

// Engine is what kind of server a datastore or cache is.
type Engine string

// The engines.
const (
	Postgres Engine = "postgres"
	MySQL    Engine = "mysql"
	Redis    Engine = "redis"
	Valkey   Engine = "valkey"
)

// Cache reports whether the engine belongs to the cache family.
func (e Engine) Cache() bool { return e == Redis || e == Valkey }

// Title is the engine's name as its makers write it.
func (e Engine) Title() string {
	return map[Engine]string{Postgres: "PostgreSQL", MySQL: "MySQL", Redis: "Redis", Valkey: "Valkey"}[e]
}

// Port is where the engine's servers listen everywhere but on Azure Managed
// Redis, which uses 10000.
func (e Engine) Port() int {
	return map[Engine]int{Postgres: 5432, MySQL: 3306, Redis: 6379, Valkey: 6379}[e]
}

// An AccessRule names who may connect to a datastore. Exactly one field is set.
type AccessRule struct {
	CIDR            string `json:"cidr,omitempty" doc:"IPv4 range inside the network or one that is routed to it; never 0.0.0.0/0"`
	SecurityGroupID string `json:"securityGroupId,omitempty" doc:"AWS: whoever is in this security group"`
	Description     string `json:"description,omitempty" doc:"Why, in ASCII; up to 200 characters"`
}

// DatabaseSpec asks for a logical database.
type DatabaseSpec struct {
	Name string `json:"name" doc:"1 to 48 of a-z, 0-9 and underscore, starting with a letter; not one that the engine keeps for itself"`
}

// The presets.
const (
	PresetDev        = "dev"
	PresetStandard   = "standard"
	PresetProduction = "production"

	// DefaultAdmin is the administrator's name: none of those that attackers and
	// engines know (RDS.25).
	DefaultAdmin = "zopadmin"
	// DefaultWindow is the stock night window.
	DefaultWindow = "sun:03:00"
)

// A Preset is what a preset's name stands for.
type Preset struct {
	Name                string `json:"name"`
	VCPUs               int    `json:"vcpus,omitempty" doc:"Datastores"`
	MemoryGiB           int    `json:"memoryGiB"`
	StorageGiB          int    `json:"storageGiB,omitempty" doc:"Datastores"`
	Replicas            int    `json:"replicas" doc:"Caches"`
	HighAvailability    bool   `json:"highAvailability"`
	BackupRetentionDays int    `json:"backupRetentionDays"`
	What                string `json:"what" doc:"What it is for"`
	Always              string `json:"always" doc:"What every preset has"`
}

const cachePresets = "Private, encrypted, TLS required, clients that authenticate, minor upgrades in the window; backups, a final snapshot and deletion protection where the cloud has them for caches."

const allPresets = "Private, encrypted, TLS required, automated backups with point-in-time recovery, deletion protection, a final snapshot, minor upgrades in the window, logs exported."

// Presets are the presets of a family, the smallest first.
func Presets(t ResourceType) []Preset {
	if t == Cache {
		return []Preset{
			{Name: PresetDev, Always: cachePresets, MemoryGiB: 1, BackupRetentionDays: 7, What: "For one developer: no replica, so a failed node is an empty cache."},
			{Name: PresetStandard, Always: cachePresets, MemoryGiB: 3, Replicas: 1, BackupRetentionDays: 7, What: "For small services: one replica to fail over to."},
			{Name: PresetProduction, Always: cachePresets, MemoryGiB: 6, Replicas: 2, HighAvailability: true, BackupRetentionDays: 14, What: "For what must stay up: replicas in other zones, automatic failover."},
		}
	}
	return []Preset{
		{Name: PresetDev, Always: allPresets, VCPUs: 2, MemoryGiB: 4, StorageGiB: 20, BackupRetentionDays: 7, What: "For one developer: the smallest burstable class, no standby."},
		{Name: PresetStandard, Always: allPresets, VCPUs: 2, MemoryGiB: 8, StorageGiB: 50, BackupRetentionDays: 7, What: "For small services: no standby."},
		{Name: PresetProduction, Always: allPresets, VCPUs: 4, MemoryGiB: 16, StorageGiB: 100, HighAvailability: true, BackupRetentionDays: 14, What: "For what must stay up: a standby in another zone."},
	}
}

// DatastoreSpec decodes the spec of a datastore or cache job, with its preset's
// values and the defaults filled in. A field that the schema does not have is an
// *Invalid that names it.
func (j *Job) DatastoreSpec() (DatastoreSpec, error) {
	var s DatastoreSpec
	if err := strictly(j.Config.Spec, &s); err != nil {
		return s, err
	}
	return s.WithDefaults(j.Provider, j.ResourceType), nil
}

// WithDefaults fills in what the user left out. An adopted datastore has no
// defaults: it is as it is.
func (s DatastoreSpec) WithDefaults(p Provider, t ResourceType) DatastoreSpec {
	if t == Cache {
		s.Engine = cmp.Or(s.Engine, Redis)
	}
	s.Preset = cmp.Or(s.Preset, PresetStandard)
	s.Network = s.datastoreNetwork(p)
	s.MaintenanceWindow = cmp.Or(s.MaintenanceWindow, DefaultWindow)
	on := true
	if s.DeletionProtection == nil {
		s.DeletionProtection = &on
	}
	preset := Presets(t)[0]
	for _, x := range Presets(t) {
		if x.Name == s.Preset {
			preset = x
		}
	}
	if s.InstanceType == "" && s.Size == nil {
		s.Size = &Size{VCPUs: preset.VCPUs, MemoryGiB: preset.MemoryGiB}
	}
	if s.HighAvailability == nil {
		ha := preset.HighAvailability
		s.HighAvailability = &ha
	}
	s.BackupRetentionDays = cmp.Or(s.BackupRetentionDays, preset.BackupRetentionDays)
	if t == Cache {
		if s.Replicas == nil {
			n := preset.Replicas
			s.Replicas = &n
		}
		return s
	}
	s.AdminUser = cmp.Or(s.AdminUser, DefaultAdmin)
	s.StorageGiB = cmp.Or(s.StorageGiB, preset.StorageGiB)
	s.StorageMax = cmp.Or(s.StorageMax, 3*s.StorageGiB)
	return s
}

// datastoreNetwork is the network that a datastore job makes: private subnets for
// those who use it, database subnets without a way out for the datastore itself,
// and no NAT, which nothing in it needs.
func (s DatastoreSpec) datastoreNetwork(p Provider) NetworkSpec {
	n := s.Network
	n.NAT = cmp.Or(n.NAT, NATNone)
	n = n.withDefaults(p)
	n.CIDR = cmp.Or(n.CIDR, "10.40.0.0/16")
	if len(n.Subnets) == 0 {
		n.Subnets = []string{TierPrivate, TierDatabase}
	}
	if p == GCP && n.PrivateServices == nil && s.Engine != Valkey {
		n.PrivateServices = &PrivateServices{}
	}
	return n
}

// HA reports whether a standby in another zone is asked for.
func (s DatastoreSpec) HA() bool { return s.HighAvailability != nil && *s.HighAvailability }

// Protected reports whether deletion protection is asked for.
func (s DatastoreSpec) Protected() bool { return s.DeletionProtection == nil || *s.DeletionProtection }

// ReplicaCount is how many replicas a cache has besides its primary; high
// availability needs one at least.
func (s DatastoreSpec) ReplicaCount() int {
	n := value(s.Replicas)
	if s.HA() {
		n = max(n, 1)
	}
	return n
}

// DatastoreInfo is what the steps know of a datastore or cache. Version, Class and
// the names are resolved by stepValidate, before anything is made. No field ever
// holds a secret: SecretID says where one is.
type DatastoreInfo struct {
	Engine  Engine `json:"engine,omitempty"`
	Name    string `json:"name,omitempty"` // its identifier at the cloud
	ID      string `json:"id,omitempty"`   // ARN, self link or resource ID
	Version string `json:"version,omitempty"`
	Class   string `json:"class,omitempty"` // instance class, tier, SKU or node type
	// NameTries is raised when the cloud holds a name after a deletion: it is part
	// of the next name (failures B1, B2, B7).
	NameTries int `json:"nameTries,omitempty"`

	Host       string `json:"host,omitempty"`       // endpoint of the primary, without the port
	ReaderHost string `json:"readerHost,omitempty"` // endpoint of replicas, if there is one
	Port       int    `json:"port,omitempty"`
	// ServerName is what the server's certificate is for, where that is not Host.
	ServerName string `json:"serverName,omitempty"`
	// CACert signs the server's certificate where the cloud has one a datastore
	// (Cloud SQL, Memorystore), PEM; elsewhere the cloud's bundle does.
	CACert string `json:"caCert,omitempty"`

	StorageGiB          int      `json:"storageGiB,omitempty"`
	MemoryGiB           float64  `json:"memoryGiB,omitempty"`
	VCPUs               int      `json:"vcpus,omitempty"`
	Replicas            int      `json:"replicas,omitempty"`
	Zones               []string `json:"zones,omitempty"`
	HighAvailability    bool     `json:"highAvailability,omitempty"`
	Public              bool     `json:"public,omitempty"`
	Encrypted           bool     `json:"encrypted,omitempty"`
	TLSRequired         bool     `json:"tlsRequired,omitempty"`
	BackupRetentionDays int      `json:"backupRetentionDays,omitempty"`
	DeletionProtection  bool     `json:"deletionProtection,omitempty"`

	AdminUser string `json:"adminUser,omitempty"`
	SecretID  string `json:"secretId,omitempty"` // where the administrator's password is: ARN, secret version name or URL

	SubnetGroup     string `json:"subnetGroup,omitempty"`     // AWS: subnet group; Azure: ID of the delegated subnet
	ParameterGroup  string `json:"parameterGroup,omitempty"`  // AWS
	SecurityGroupID string `json:"securityGroupId,omitempty"` // AWS, Azure (NSG): who may connect
	PrivateZoneID   string `json:"privateZoneId,omitempty"`   // Azure
	UserGroup       string `json:"userGroup,omitempty"`       // AWS caches
	VaultID         string `json:"vaultId,omitempty"`         // Azure: the Key Vault with the administrator's password

	// FinalSnapshot is what a teardown will call the final snapshot: chosen when
	// the datastore is made (failures O1, O2). "" if none is to be taken.
	FinalSnapshot string `json:"finalSnapshot,omitempty"`
	// SnapshotAskedAt is when a teardown last committed that it asks for the final
	// snapshot under that name, which was free then (AWS).
	SnapshotAskedAt *time.Time `json:"snapshotAskedAt,omitempty"`

	// Asked are the logical databases of the spec that rows were made of: one of them
	// that is deleted later is not made again.
	Asked []string `json:"asked,omitempty"`

	RiskNotes       []string         `json:"riskNotes,omitempty"` // adopted: what does not meet the defaults
	Recommendations []Recommendation `json:"recommendations,omitempty"`
}

// A Recommendation is advice about a datastore's size, which is never applied.
type Recommendation struct {
	What    string `json:"what"`    // such as "class", "storage"
	Advice  string `json:"advice"`  // "keep", "larger", "smaller"
	From    string `json:"from"`    // what it is
	To      string `json:"to"`      // what it should be; From, when advice is keep
	Reason  string `json:"reason"`  // the numbers that lead there
	Command string `json:"command"` // the cloud's own command; "" when advice is keep

	Metrics []MetricSummary `json:"metrics,omitempty"`
}

// A MetricSummary is one metric over the days that were looked at.
type MetricSummary struct {
	Name    string  `json:"name"` // cpu, memory, connections, storage
	Unit    string  `json:"unit"` // percent, GiB, count
	Days    int     `json:"days"`
	Samples int     `json:"samples"`
	Average float64 `json:"average"`
	P95     float64 `json:"p95"`
	Max     float64 `json:"max"`
}

// A DatastoreRef names a datastore at a cloud.
type DatastoreRef struct {
	Region        string `json:"region"`
	Name          string `json:"name"`
	ResourceGroup string `json:"resourceGroup,omitempty"` // Azure
	Engine        Engine `json:"engine"`
}

// SystemDatabases are the databases that an engine, or a cloud, keeps for itself:
// none is made, taken or dropped.
func SystemDatabases(e Engine) []string {
	if e == MySQL {
		return []string{"mysql", "information_schema", "performance_schema", "sys", "innodb", "tmp"}
	}
	return []string{"postgres", "template0", "template1", "rdsadmin", "cloudsqladmin", "azure_maintenance", "azure_sys"}
}

// ReservedUsers are the names that no administrator of an engine may have at a
// cloud (failures C16, C17).
func ReservedUsers(p Provider, e Engine) []string {
	names := []string{"rdsadmin", "rdsrepladmin", "rds_superuser", "cloudsqladmin", "cloudsqlsuperuser", "cloudsqlreplica", "azure_superuser", "azure_pg_admin", "azuresu", "administrator", "root", "guest", "public", "sa", "postgres", "admin"}
	if e == MySQL {
		names = slices.DeleteFunc(names, func(n string) bool { return n == "postgres" || n == "admin" && p != Azure })
		names = append(names, "mysql", "mysql.sys", "mysql.session", "mysql.infoschema")
	}
	return names
}
