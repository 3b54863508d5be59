package cli

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"github.com/zopday/provisioner/internal/client"
)

// Backends are what the commands that run something need and this package
// does not know: the server and the simulated clouds. The binary puts them in.
type Backends struct {
	// Serve starts the provisioner.
	Serve func(ctx context.Context, o ServeOptions) (Server, error)
	// Simulate starts the simulated clouds.
	Simulate func(ctx context.Context, o SimOptions) (Simulation, error)
	// Migrate brings the schema of a database up to date, and gives a service role
	// of PostgreSQL its rights; "" gives them to those that were named before alone.
	Migrate func(ctx context.Context, dsn, serviceRole string) (Migration, error)
	// CreateOrg makes an organisation in a database, with an admin token; ListOrgs
	// lists them; RecoverToken makes an admin token for one that has lost its own.
	CreateOrg    func(ctx context.Context, dsn, name string) (o Org, secret string, err error)
	ListOrgs     func(ctx context.Context, dsn string) ([]Org, error)
	RecoverToken func(ctx context.Context, dsn, org string) (name, secret string, err error)
	// VerifyAudit walks the audit log of a database, that of each of its
	// organisations, without any server.
	VerifyAudit func(ctx context.Context, dsn string) ([]AuditChain, error)
	// Keeping works on the secrets of a database; Backup copies an SQLite file, and
	// Restore puts such a copy in a database's place.
	Keeping Keeping
	Backup  func(ctx context.Context, dsn, out string) error
	Restore func(ctx context.Context, o RestoreOptions) (Restored, error)
}

// ServeOptions are how a server is to run.
type ServeOptions struct {
	Listen        string
	Edges         EdgeOptions
	DB            string        // path of an SQLite file, or a postgres:// DSN
	SecretKey     string        // key file, or URI of a key in a KMS; "" is where it always was
	Migrate       string        // auto or false
	DeadAfter     time.Duration // silence after which a worker's jobs are taken over
	Workers       int           // jobs carried out side by side; 0: none, the API alone
	TimeScale     float64       // simulated clouds: how many of their seconds pass in a real one
	LogLevel      string
	LogJSON       bool
	Log           io.Writer
	Token         string          // the bootstrap token; "" keeps or makes one
	ConfigService string          // address of an external config service; "" is the built-in one
	OIDCConfig    string          // file with the issuers that are trusted; "" for none
	PublicURL     string          // where browsers find the server; "" is where it listens, on this machine
	FeatureGates  string          // such as AzureVMSS=true
	Reach         string          // how the API servers of clusters are reached, such as public:203.0.113.7/32
	TokenDir      string          // where token files of cloud accounts may be
	AmbientOrgs   []string        // organisations that may use this process's own cloud identity
	Catalogue     string          // file with components of one's own; "" for none
	ChartMirror   string          // where all charts are taken from instead; "" for their own sources
	Clouds        []CloudEndpoint // simulated clouds to use instead of what the environment says
}

// A CloudEndpoint is a simulated cloud.
type CloudEndpoint struct {
	Provider string // aws, gcp or azure
	Title    string // for a person
	URL      string
	Account  string // account, project or subscription

	// Env is what points an SDK, and zopday serve, to it.
	Env []EnvVar
}

// An EnvVar is a variable of the environment.
type EnvVar struct{ Name, Value string }

// A Server is a provisioner that runs.
type Server interface {
	URL() string
	// FreshToken is the bootstrap token if it has just been made; it cannot be
	// had again.
	FreshToken() string
	// Done is closed when the server has ended by itself; Err says why.
	Done() <-chan struct{}
	Err() error
	// Close ends it: steps come to a safe point, leases are handed back.
	Close(ctx context.Context) error
}

// SimOptions are how the simulated clouds are to run.
type SimOptions struct {
	Control, AWS, GCP, Azure  string // addresses to listen on
	Charts                    string // likewise: stand-ins of the catalogue's charts
	Kube                      bool   // simulated clusters have a real Kubernetes API server
	ReadLatency, WriteLatency time.Duration
	TimeScale                 float64
	Seed                      uint64
	State                     string // directory to keep everything in; "" is in memory
	Inside                    bool   // who connects to clusters and datastores stands in their networks
}

// A Simulation is the simulated clouds, running.
type Simulation interface {
	ControlURL() string
	// Clouds are the simulated clouds, in the order in which they are shown.
	Clouds() []CloudEndpoint
	// ChartMirror is where stand-ins of the catalogue's charts are served.
	ChartMirror() string
	// Reach is how a server beside it reaches the API servers of its clusters.
	Reach() string
	// Call carries out an operation of a cloud outside of the books, as
	// somebody else would: how things get there beforehand. An account that is ""
	// is the cloud's own.
	Call(cloud, service, operation, account, region string, params map[string]any) (json.RawMessage, error)
	// Step moves the simulated clock.
	Step(d time.Duration)
	// Mark is the place in the books; Since counts the requests after one.
	Mark() int
	Since(mark int) Traffic
	// Snapshot is everything that exists, as text by its name.
	Snapshot() map[string]string
	// Residue lists what carries an owner's mark, or lies inside of that.
	Residue(owner string) []string
	Close(ctx context.Context) error
}

// Traffic is what a simulated cloud was asked.
type Traffic struct {
	Reads    int
	Mutating []string // service:operation of each
}

// An AuditChain is what a walk through the audit log of one organisation found.
type AuditChain struct {
	Org string `json:"orgId"`
	client.AuditCheck
}
