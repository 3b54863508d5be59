package azure

import (
	"net"
	"regexp"
	"strconv"
	"strings"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// The kinds of object of datastore and cache jobs.
const (
	kindVault        = "keyvault:vault"
	kindDeletedVault = "keyvault:deleted-vault"
	kindSecret       = "keyvault:secret"
	kindLock         = "authorization:lock"
	kindEntraAdmin   = "postgresql:administrator"
	kindCache        = "redis:cluster"
	kindCacheDB      = "redis:database"
	kindCachePolicy  = "redis:access-policy-assignment"
	kindEndpoint     = "network:private-endpoint"
	kindZoneGroup    = "network:private-dns-zone-group"
)

// Their types, with the longest names ("Naming rules and restrictions for Azure
// resources").
const (
	vaultProvider   = "Microsoft.KeyVault"
	typeVault       = vaultProvider + "/vaults"
	typeLock        = "Microsoft.Authorization/locks"
	typePostgres    = "Microsoft.DBforPostgreSQL/flexibleServers"
	typeMySQL       = "Microsoft.DBforMySQL/flexibleServers"
	typeCache       = "Microsoft.Cache/redisEnterprise"
	typeOldCache    = "Microsoft.Cache/redis"
	typeEndpoint    = "Microsoft.Network/privateEndpoints"
	longestVault    = 24
	longestServer   = 63
	longestCache    = 60
	longestLock     = 80
	longestBackup   = 60
	longestZoneName = 40 // our label before the suffix

	// roleSecretsOfficer is the built-in role Key Vault Secrets Officer.
	roleSecretsOfficer = "b86a8fe4-44ce-4948-aee5-eccb2c155cd7" //nolint:gosec // the ID of a role
)

// A flavour is what differs between the two flexible servers.
type flavour struct {
	engine   job.Engine
	typ      string
	server   string // kind of the server
	backup   string // kind of a backup
	suffix   string // of the names of its servers
	smallest int    // prefix length of the smallest delegated subnet
	az       string // the command's word
}

// The two flexible servers ("Networking overview for Azure Database for PostgreSQL
// flexible server with private access", "Private access in Azure Database for MySQL").
var (
	flexPostgres = flavour{engine: job.Postgres, typ: typePostgres, server: "postgresql:server", backup: "postgresql:backup", suffix: "postgres.database.azure.com", smallest: 28, az: "postgres"}
	flexMySQL    = flavour{engine: job.MySQL, typ: typeMySQL, server: "mysql:server", backup: "mysql:backup", suffix: "mysql.database.azure.com", smallest: 29, az: "mysql"}
)

// flavourOf is the flexible server of an engine.
func flavourOf(e job.Engine) flavour {
	if e == job.MySQL {
		return flexMySQL
	}
	return flexPostgres
}

// provider is the resource provider.
func (f flavour) provider() string { return f.typ[:strings.IndexByte(f.typ, '/')] }

// cacheZone is the private zone of Managed Redis ("Azure Private Endpoint private
// DNS zone values"), and cachePort where it listens.
const (
	cacheZone = "privatelink.redis.azure.net"
	cachePort = 10000
)

// tried is a name with how often its like was found to be held: B4 and B7 of the
// failures, names that nothing visible has and that are taken all the same.
func tried(j *job.Job, use string, most int) string {
	n := j.Config.InfraConfig.Datastore.NameTries
	if n == 0 {
		return j.ResourceName(use, most)
	}
	tail := "-" + strconv.Itoa(n)
	return j.ResourceName(use, most-len(tail)) + tail
}

// madeOr is the ID of an object that the job has made, or the one that it would
// have: a name that is held is given up, and one that was made stays.
func madeOr(r *pipeline.Run, kind, key, id string) string {
	if rec, ok := r.Object(kind, key); ok && rec.ID != "" && (r.Down || rec.State == job.ObjectCreated) {
		return rec.ID
	}
	return id
}

func (p *Provider) serverID(r *pipeline.Run, f flavour) string {
	return madeOr(r, f.server, "server", p.idIn(r, f.typ, tried(r.Job, "", longestServer)))
}

func (p *Provider) vaultID(r *pipeline.Run) string {
	return madeOr(r, kindVault, "vault", p.idIn(r, typeVault, tried(r.Job, "kv", longestVault)))
}

func (p *Provider) cacheID(r *pipeline.Run) string {
	return madeOr(r, kindCache, "cache", p.idIn(r, typeCache, tried(r.Job, "", longestCache)))
}

// datastoreZone is the private zone of a job's datastore. That of flexible servers
// ends in the service's suffix and is never the name of a server itself (L7).
func datastoreZone(j *job.Job, e job.Engine) string {
	if e.Cache() {
		return cacheZone
	}
	return j.ResourceName("", longestZoneName) + ".private." + flavourOf(e).suffix
}

// datastorePort is where clients connect.
func datastorePort(e job.Engine) int {
	if e.Cache() {
		return cachePort
	}
	return e.Port()
}

// hostPort splits a port off an address, if it has one.
func hostPort(address string, port int) (string, int) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return address, port
	}
	if n, err := strconv.Atoi(text); err == nil {
		return host, n
	}
	return host, port
}

// loopback reports whether a host is this machine.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// The names that the services take.
var (
	validVault  = regexp.MustCompile(`^[a-z](-?[a-z0-9])+$`)
	validServer = regexp.MustCompile(`^[a-z0-9](-?[a-z0-9])+$`)
)
