package gcp

import (
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

// A Project is one that exists in the simulated GCP.
type Project struct {
	ID     string
	Number string // decimal digits
	Name   string // shown to people; empty means the ID
}

// A Caller is who a bearer token stands for.
type Caller struct {
	Email string
	// Projects are the IDs of those that the caller may use; empty means all.
	Projects []string
}

// may says whether the caller may use a project.
func (c Caller) may(project string) bool {
	return len(c.Projects) == 0 || slices.Contains(c.Projects, project)
}

// Options set up the simulated GCP.
type Options struct {
	// Projects are those that exist; empty means DefaultProjects.
	Projects []Project
	// Tokens maps bearer tokens to callers; empty means DefaultTokens. The tokens that the token endpoint gives out hold
	// besides.
	Tokens map[string]Caller
	// Services are the APIs that are enabled in a fresh project, by host name; nil means all that are simulated.
	Services []string
	// Kubernetes gives clusters their API servers; nil: their endpoints are names that nothing answers at.
	Kubernetes sim.Kubernetes
	// Databases gives instances of Cloud SQL and Memorystore their servers; nil: nothing answers at their addresses.
	Databases sim.Databases
}

// DefaultProjects are those of a world without configuration.
func DefaultProjects() []Project {
	return []Project{{ID: "example-project", Number: "123456789012"}, {ID: "other-project", Number: "111122223333"}}
}

// DefaultTokens are the bearer tokens of a world without configuration.
func DefaultTokens() map[string]Caller {
	return map[string]Caller{
		"ya29.example": {Email: "user@example.com"},
		"ya29.other":   {Email: "other@example.com", Projects: []string{"other-project"}},
	}
}

// AdminAccount is the account ID of a service account that every project has from the start: a caller with a key file
// can be it.
const AdminAccount = "admin"

// Cloud is the simulated GCP. It is an http.Handler for all services.
type Cloud struct {
	World *sim.World
	opt   Options
	apis  map[string]*api // by name and version, as schema.APIs
	hooks hooks

	compute   *Compute
	tokens    *oauth
	iam       *iamService
	kms       *cloudKMS
	container *container
	peering   *serviceNetworking
	sql       *cloudSQL
	secrets   *secretManager
	policies  *connectionPolicies
	redis     *memorystoreRedis

	// policyMember refuses a member of a policy that does not exist (IAM).
	policyMember func(member string) *Error
}

// hooks are what services ask of one another. A service sets its own in its constructor; a nil hook means that the
// service is not there.
type hooks struct {
	// serviceAccount finds a service account by e-mail, as the rest of GCP sees it now: false while it is fresh (IAM).
	serviceAccount func(email string) (ServiceAccount, bool)
	// accountGone is told when a service account has been deleted.
	accountGone []func(a ServiceAccount)
	// token finds the caller of a token that the token endpoint has given out (OAuth2).
	token func(token string) (Caller, bool)
	// enabled says whether an API is enabled in a project (Service Usage).
	enabled func(project, host string) bool
	// producers name what of Google's services uses a private connection of a network: Cloud SQL instances and the like. The
	// service itself appends to it; network is a path as projects/p/global/networks/n.
	producers []func(network string) []string
	// producerBlocks are the parts of a network's allocated ranges that they are in.
	producerBlocks []func(network string) []string
	// monitored are the objects of a project that Cloud Monitoring has time series of.
	monitored []func(project string) []monitoredObject
	// rangeUsers names the private connection that uses an allocated range of a network, if one does (Service Networking).
	rangeUsers func(network, rangeName string) string
	// roles are those that a member has in a project (Resource Manager).
	roles func(project, member string) []string
	// subnetRangeUser names what uses a secondary range of a subnetwork (GKE).
	subnetRangeUser func(subnet, rangeName string) string
	// instanceChanged are told of every change of an instance of Compute Engine, by its path.
	instanceChanged []func(path string)
}

// A ServiceAccount is what other services need to know of IAM's.
type ServiceAccount struct {
	Project, Email, UniqueID string
	Disabled                 bool
}

// New adds a simulated GCP to a world.
func New(w *sim.World, opt Options) *Cloud {
	if len(opt.Projects) == 0 {
		opt.Projects = DefaultProjects()
	}
	if len(opt.Tokens) == 0 {
		opt.Tokens = DefaultTokens()
	}
	c := &Cloud{World: w, opt: opt, apis: map[string]*api{}}
	c.addServices()
	w.RegisterFront(cloudName, c)
	return c
}

const cloudName = "gcp"

// project finds a project by ID or number.
func (c *Cloud) project(idOrNumber string) (Project, bool) {
	for _, p := range c.opt.Projects {
		if p.ID == idOrNumber || p.Number == idOrNumber {
			return p, true
		}
	}
	return Project{}, false
}

// number is a project's number.
func (c *Cloud) number(projectID string) string {
	p, _ := c.project(projectID)
	return p.Number
}

func (c *Cloud) projectIDs() []string {
	var ids []string
	for _, p := range c.opt.Projects {
		ids = append(ids, p.ID)
	}
	sort.Strings(ids)
	return ids
}

// rolesOf are the roles that a member of policies has in a project.
func (c *Cloud) rolesOf(project, member string) []string {
	if c.hooks.roles == nil {
		return nil
	}
	return c.hooks.roles(project, member)
}

// quota is the limit that holds for a project in a region; it panics on a metric that nobody declared, which is a mistake in
// the caller.
func (c *Cloud) quota(service, metric, project, region string) float64 {
	v, ok := c.World.QuotaValue(cloudName, service, metric, project, region)
	if !ok {
		panic(fmt.Sprintf("quota %s of %s is not declared", metric, service))
	}
	return v
}

// after schedules an event of a service.
func (c *Cloud) after(d time.Duration, service, kind, key string) {
	c.World.After(d, cloudName, service, kind, key)
}

// numericID makes an identifier as Google does: 18 or 19 digits.
func (c *Cloud) numericID() string {
	return c.World.ID("", 1, "123456789") + c.World.ID("", 18, "0123456789")
}

// pacific is the zone in which Compute Engine writes its times.
var pacific = time.FixedZone("", -8*60*60)

// computeTime writes a time as Compute Engine does.
func computeTime(t time.Time) string { return t.In(pacific).Format("2006-01-02T15:04:05.000-07:00") }

// zuluTime writes a time as the other services do.
func zuluTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z") }
