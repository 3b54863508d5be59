package job

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A LogicalDatabase is a database inside a datastore that a job made, with an
// owner role of its own. It is a resource of the job, in a table of its own.
type LogicalDatabase struct {
	ID        string        `json:"id"`
	JobID     string        `json:"jobId"`
	Name      string        `json:"name"`
	OwnerRole string        `json:"ownerRole" doc:"The role that owns it: it can do everything inside this database, and nothing outside"`
	Status    LogicalStatus `json:"status" enum:"pending,creating,ready,failed,deleting,deleted"`
	Error     *Error        `json:"error,omitempty"`
	CreatedBy string        `json:"createdBy"`
	CreatedAt time.Time     `json:"createdAt"`
	UpdatedAt time.Time     `json:"updatedAt"`

	// Secret is which version of the owner's password counts; 0: none was made.
	Secret int `json:"-"`
	// Attempts counts the tries of what is under way.
	Attempts int `json:"-"`
	// Dropping: what is under way is its deletion.
	Dropping bool `json:"-"`
}

// A Connection says who may use what: a role of its own in a database (or a user
// of a cache), and the secret behind it.
type Connection struct {
	ID         string        `json:"id"`
	JobID      string        `json:"jobId"`
	DatabaseID string        `json:"databaseId,omitempty" doc:"The logical database; empty for a cache"`
	Service    string        `json:"service" doc:"Who uses it"`
	Access     AccessMode    `json:"access" enum:"read_write,read_only,owner"`
	SpaceID    string        `json:"spaceId,omitempty" doc:"The space in which a Kubernetes Secret is kept"`
	Namespace  string        `json:"namespace,omitempty"`
	SecretName string        `json:"secretName,omitempty" doc:"The Kubernetes Secret's name"`
	Variable   string        `json:"variable,omitempty" doc:"A key of the Secret that holds the whole URL, such as DATABASE_URL"`
	Role       string        `json:"role" doc:"The role or user that it connects as"`
	Shared     bool          `json:"shared,omitempty" doc:"The cloud has one credential for all users of this cache: every connection shares it"`
	Status     LogicalStatus `json:"status" enum:"pending,creating,ready,rotating,failed,deleting,deleted"`
	Error      *Error        `json:"error,omitempty"`
	RevealedAt *time.Time    `json:"revealedAt,omitempty" doc:"When its secret was shown; it is shown once, and again after a rotation"`
	RevealedBy string        `json:"revealedBy,omitempty"`
	RotatedAt  *time.Time    `json:"rotatedAt,omitempty"`
	CreatedBy  string        `json:"createdBy"`
	CreatedAt  time.Time     `json:"createdAt"`
	UpdatedAt  time.Time     `json:"updatedAt"`

	// Secret is which version of the password counts; Wanted the one that is to
	// count: a higher one while a rotation is under way.
	Secret   int `json:"-"`
	Wanted   int `json:"-"`
	Attempts int `json:"-"`
	// Begun: something of it may exist.
	Begun bool `json:"-"`
	// Dropping: what is under way is its deletion.
	Dropping bool `json:"-"`
}

// LogicalStatus is where a logical database or a connection stands.
type LogicalStatus string

// The states of logical databases and connections.
const (
	LogicalPending  LogicalStatus = "pending"  // asked for
	LogicalCreating LogicalStatus = "creating" // begun: something of it may exist
	LogicalReady    LogicalStatus = "ready"
	LogicalRotating LogicalStatus = "rotating" // a connection gets another password
	LogicalFailed   LogicalStatus = "failed"   // Error says why; the same request again tries again
	LogicalDeleting LogicalStatus = "deleting"
	LogicalDeleted  LogicalStatus = "deleted"
)

// AccessMode is how much a connection may do in its database.
type AccessMode string

// The access modes.
const (
	ReadWrite AccessMode = "read_write" // reads and changes data, makes no tables
	ReadOnly  AccessMode = "read_only"
	OwnerMode AccessMode = "owner" // makes and changes tables too: for migrations
)

// Due reports whether something is still to be carried out.
func (s LogicalStatus) Due() bool {
	return s == LogicalPending || s == LogicalCreating || s == LogicalRotating || s == LogicalDeleting
}

// SyncDatabases is the operation that brings a datastore's logical databases and
// connections into line with their tables.
const SyncDatabases VMOp = "databases"

var (
	databaseNameRE = regexp.MustCompile(`^[a-z][a-z0-9_]{0,47}$`)
	serviceNameRE  = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,46}[a-z0-9])?$`)
	variableRE     = regexp.MustCompile(`^[A-Z_][A-Z0-9_]{0,63}$`)
	namespaceRE    = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
)

// DatabaseNameFault says what is wrong with the name of a logical database; ""
// if nothing is.
func DatabaseNameFault(e Engine, name string) (message, fix string) {
	switch {
	case !databaseNameRE.MatchString(name):
		return "is not a database name", "use 1 to 48 of a-z, 0-9 and underscore, starting with a letter"
	case LooksLikeID(name):
		return "looks like an ID, and would be taken for the thing that has it", "choose another name"
	case slices.Contains(SystemDatabases(e), name), keptName(name):
		return "is a name that " + e.Title() + " or a cloud keeps for itself", "choose another name"
	case slices.Contains(reservedWords, name):
		return "is a reserved word of SQL", "choose another name: it would have to be quoted everywhere"
	}
	return "", ""
}

// keptName reports whether a name begins as those do that engines and clouds keep for
// databases and roles of their own.
func keptName(name string) bool {
	for _, p := range []string{"pg_", "mysql", "mariadb", "rds", "cloudsql", "azure"} {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}

// reservedWords are those of both engines that somebody may call a database.
var reservedWords = []string{"all", "and", "any", "as", "by", "case", "check", "column", "create", "database", "default", "delete", "desc", "distinct", "drop", "else", "end", "false", "for", "from", "grant", "group", "having", "in", "insert", "into", "join", "key", "limit", "not", "null", "on", "or", "order", "primary", "public", "references", "select", "table", "then", "to", "true", "union", "unique", "update", "user", "using", "when", "where", "with"}

// RoleName derives the name of a role from what it is for and the ID of the row
// that it belongs to, in at most 32 characters, which MySQL allows; PostgreSQL
// allows 63. Two rows never share one.
func RoleName(use, id string) string {
	const room = 32 - 1 - 8
	s := strings.ReplaceAll(slug(use), "-", "_")
	s = strings.Trim(s[:min(len(s), room)], "_")
	if s == "" || !isLetter(s[0]) || keptName(s+"_") {
		s = strings.Trim("z_"+s[:min(len(s), room-2)], "_")
	}
	return s + "_" + shortHash(id, 8)
}

// SecretID is where the password of a logical database's owner, or of a
// connection, is kept: every version has a place of its own, so that a role
// always has the password of exactly one row.
func SecretID(id string, version int) string {
	return id + "/v" + strconv.Itoa(version)
}

// ConnectionFaults says what is wrong with what a connection asks for, as far as
// that needs nothing else to be looked at.
func ConnectionFaults(c *Connection) []FieldError {
	var inv Invalid
	if !serviceNameRE.MatchString(c.Service) {
		inv.add("service", "is not a service's name", "use 1 to 48 of a-z, 0-9 and hyphen, starting with a letter and not ending with a hyphen")
	}
	if !slices.Contains([]AccessMode{ReadWrite, ReadOnly, OwnerMode}, c.Access) {
		inv.add("access", "is not an access mode", "use read_write, read_only or owner")
	}
	if c.Namespace != "" && (!namespaceRE.MatchString(c.Namespace) || strings.HasPrefix(c.Namespace, "kube-")) {
		inv.add("namespace", "is not a namespace for services", "use 1 to 63 of a-z, 0-9 and hyphen, not starting with kube-")
	}
	if c.SecretName != "" && !namespaceRE.MatchString(c.SecretName) {
		inv.add("secretName", "is not a Secret's name", "use 1 to 63 of a-z, 0-9 and hyphen, not starting or ending with a hyphen")
	}
	if c.Variable != "" && !variableRE.MatchString(c.Variable) {
		inv.add("variable", "is not a variable's name", "use A-Z, 0-9 and underscore, such as DATABASE_URL")
	}
	return inv.Fields
}
