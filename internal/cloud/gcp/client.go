package gcp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/api/cloudkms/v1"
	cloudresourcemanager "google.golang.org/api/cloudresourcemanager/v3"
	"google.golang.org/api/compute/v1"
	"google.golang.org/api/container/v1"
	"google.golang.org/api/dns/v1"
	"google.golang.org/api/iam/v1"
	"google.golang.org/api/option"
	"google.golang.org/api/servicenetworking/v1"
	"google.golang.org/api/serviceusage/v1"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// Options of access to Google Cloud.
type Options struct {
	// Pace is how fast the cloud's clock runs; 0 and 1 are real time.
	Pace pipeline.Pace

	// Logger gets what is worth a person's attention; nil discards it.
	Logger *slog.Logger

	// Observe is told of every call once it has ended; class is "" if it
	// worked. nil: nobody is told.
	Observe func(service, op string, mutating bool, class pipeline.Class, d time.Duration)

	// LoadConfig finds project, credentials and endpoints for a cloud account;
	// nil is FromEnvironment.
	LoadConfig func(ctx context.Context, cloudAccountID, region string) (Config, error)

	// Accounts finds the cloud accounts that jobs name; nil: every one is the
	// configuration of LoadConfig. LoadConfig stays what the process itself runs
	// as, and where the endpoints are.
	Accounts cloud.Accounts

	// Reach is how the provisioner gets to the API servers of clusters; the zero
	// value is over the internet. An account's own goes before it.
	Reach job.Reach

	// Roots are trusted besides the system's for the DNS endpoints of clusters,
	// PEM: those of a simulation.
	Roots []byte

	// LookupNS asks the internet's DNS for the name servers of a zone; nil is
	// the machine's own resolver, which is asked of Google's own zones alone.
	LookupNS func(ctx context.Context, zone string) ([]string, error)
}

// Clouds opens Google Cloud projects, and keeps one set of clients for each
// cloud account and region.
type Clouds struct {
	opts Options

	mu   sync.Mutex
	open map[place]*Provider
	lims map[holder]*limits

	users userChanges
}

type (
	place  struct{ org, account, region string }
	holder struct{ org, account string }
)

// lifetime is how long one set of clients is used, so that credentials and
// endpoints which were changed outside are taken up.
const lifetime = time.Hour

// New gives access to Google Cloud.
func New(o Options) *Clouds {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.LoadConfig == nil {
		o.LoadConfig = FromEnvironment
	}
	return &Clouds{opts: o, open: map[place]*Provider{}, lims: map[holder]*limits{}}
}

// Open gives access to the project of the cloud account that a job names, in
// the job's region.
func (c *Clouds) Open(ctx context.Context, j *job.Job) (cloud.Provider, error) {
	a, err := c.account(ctx, j.OrgID, j.CloudAccountID)
	if err != nil {
		return nil, err
	}
	p, err := c.provider(ctx, a, j.Region)
	if err != nil {
		return nil, err
	}
	return p, nil
}

var (
	_ cloud.Opener          = (*Clouds)(nil)
	_ cloud.NetworkFamily   = (*Provider)(nil)
	_ cloud.ClusterFamily   = (*Provider)(nil)
	_ cloud.RemovalGuard    = (*Provider)(nil)
	_ cloud.DatastoreFamily = (*Provider)(nil)
	_ cloud.CacheUsers      = (*Provider)(nil)
)

// provider is the project of a cloud account in a region, with clients that are
// not too old. What says where and as whom is asked every time: another project
// is another provider (failure kind F5), and so are an account that was changed
// and credentials that were refused.
func (c *Clouds) provider(ctx context.Context, a cloud.Account, region string) (*Provider, error) {
	at := place{a.OrgID, a.ID, region}
	c.mu.Lock()
	defer c.mu.Unlock()
	ambient, err := c.opts.LoadConfig(ctx, a.ID, region)
	if err != nil {
		return nil, fmt.Errorf("configuration of Google Cloud for account %s: %w", a.ID, err)
	}
	if p := c.open[at]; p != nil && time.Since(p.since) < lifetime && !p.refused.Load() && p.ambient.sameAs(ambient) && p.account.Revision == a.Revision && p.account.Holder == a.Holder {
		return p, nil
	}
	cfg, err := accountConfig(ambient, a, c.opts.Pace)
	if err != nil {
		return nil, err
	}
	who := holder{a.OrgID, a.ID}
	lim := c.lims[who]
	if lim == nil {
		lim = newLimits(c.opts.Pace)
		c.lims[who] = lim
	}
	a.Secret = cloud.Secret{} // what is made of it is in cfg
	p, err := newProvider(cfg, c.opts, lim, a, region)
	if err != nil {
		return nil, fmt.Errorf("clients of Google Cloud for account %s: %w", a.ID, err)
	}
	p.ambient, p.users = ambient, &c.users
	c.open[at] = p
	return p, nil
}

// A Provider is one Google Cloud project in one region.
type Provider struct {
	project  string
	region   string
	pace     pipeline.Pace
	log      *slog.Logger
	since    time.Time
	refused  *atomic.Bool // the credentials were
	config   Config       // as the account has it
	ambient  Config       // as the process has it
	account  cloud.Account
	reach    job.Reach
	roots    []byte // PEM
	lookupNS func(ctx context.Context, zone string) ([]string, error)

	compute   *compute.Service
	dns       *dns.Service
	iam       *iam.Service
	crm       *cloudresourcemanager.Service
	services  *serviceusage.Service
	peering   *servicenetworking.APIService
	container *container.Service
	kms       *cloudkms.Service
	data      dataServices

	mu      sync.Mutex
	caller  string            // the project that answered
	numbers map[string]string // of projects, by ID
	users   *userChanges
}

// The services by their own names, as they appear in errors, metrics and rate limits.
const (
	serviceCompute    = "compute"
	serviceDNS        = "dns"
	serviceIAM        = "iam"
	serviceCRM        = "cloudresourcemanager"
	serviceUsage      = "serviceusage"
	serviceNetworking = "servicenetworking"
	serviceContainer  = "container"
	serviceKMS        = "cloudkms"

	serviceSQL          = "sqladmin"
	serviceRedis        = "redis"
	serviceMemorystore  = "memorystore"
	serviceSecrets      = "secretmanager"
	serviceMonitoring   = "monitoring"
	serviceConnectivity = "networkconnectivity"
)

func newProvider(cfg Config, o Options, lim *limits, a cloud.Account, region string) (*Provider, error) {
	p := &Provider{
		project: cfg.Project, region: region, pace: o.Pace, log: o.Logger, since: time.Now(), refused: &atomic.Bool{},
		config: cfg, account: a, reach: reachBy(o.Reach, a), roots: o.Roots, lookupNS: o.LookupNS, numbers: map[string]string{}, users: &userChanges{},
	}
	if p.lookupNS == nil {
		p.lookupNS = lookupNS
		if cfg.endpoint(serviceDNS) != "" {
			p.lookupNS = nobodyKnows
		}
	}
	if p.roots == nil {
		p.roots = cfg.Roots
	}
	wire := cfg.Wire
	if wire == nil {
		wire = wireTransport()
	}
	client := func(service string) *http.Client {
		return &http.Client{Transport: &transport{service: service, limits: lim, pace: o.Pace, observe: o.Observe, config: cfg, refused: p.refused, wire: guarded(service, a, cfg.Project, wire)}}
	}
	options := func(service string) []option.ClientOption {
		opts := []option.ClientOption{option.WithHTTPClient(client(service))}
		if at := cfg.endpoint(service); at != "" {
			opts = append(opts, option.WithEndpoint(at))
		}
		return opts
	}
	ctx := context.Background() // the clients outlive the call that opens them; each request brings its own
	var err error
	if p.compute, err = compute.NewService(ctx, options(serviceCompute)...); err != nil {
		return nil, err
	}
	if p.dns, err = dns.NewService(ctx, options(serviceDNS)...); err != nil {
		return nil, err
	}
	if p.iam, err = iam.NewService(ctx, options(serviceIAM)...); err != nil {
		return nil, err
	}
	if p.crm, err = cloudresourcemanager.NewService(ctx, options(serviceCRM)...); err != nil {
		return nil, err
	}
	if p.services, err = serviceusage.NewService(ctx, options(serviceUsage)...); err != nil {
		return nil, err
	}
	if p.peering, err = servicenetworking.NewService(ctx, options(serviceNetworking)...); err != nil {
		return nil, err
	}
	if p.container, err = container.NewService(ctx, options(serviceContainer)...); err != nil {
		return nil, err
	}
	if p.kms, err = cloudkms.NewService(ctx, options(serviceKMS)...); err != nil {
		return nil, err
	}
	p.data, err = newDataServices(ctx, region, cfg, client, options)
	return p, err
}

// wireTransport has a bound on everything that can hang.
func wireTransport() http.RoundTripper {
	t := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: 60 * time.Second,
		IdleConnTimeout:       60 * time.Second,
		MaxIdleConnsPerHost:   32,
		ForceAttemptHTTP2:     true,
	}
	return t
}

// nobodyKnows is what the internet's DNS says of the zones of another endpoint.
func nobodyKnows(context.Context, string) ([]string, error) {
	return nil, errors.New("the endpoint is not Google Cloud's own, so the internet knows nothing of its zones")
}

func lookupNS(ctx context.Context, zone string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	found, err := net.DefaultResolver.LookupNS(ctx, zone)
	var names []string
	for _, ns := range found {
		names = append(names, ns.Host)
	}
	return names, err
}

// Caller is the ID of the project that the credentials are used in. A project
// says so itself: one that is not there, or that these credentials may not see,
// is an error.
func (p *Provider) Caller(ctx context.Context) (string, error) {
	p.mu.Lock()
	known := p.caller
	p.mu.Unlock()
	if known != "" {
		return known, nil
	}
	if p.project == "" {
		return "", &pipeline.CloudError{Class: pipeline.Expired, Service: serviceCompute, Op: "projects.get",
			Message: "no project is configured: set GOOGLE_CLOUD_PROJECT"}
	}
	out, err := send(ctx, p.compute.Projects.Get(p.project).Fields("name"))
	if err != nil {
		return "", p.neverEnabled(ctx, err)
	}
	if out.Name == "" {
		return "", &pipeline.CloudError{Class: pipeline.Unknown, Service: serviceCompute, Op: "projects.get", Message: "the answer names no project", Sent: true}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.caller = out.Name
	return out.Name, nil
}

// neverEnabled tells an API that was not switched on from one that was a moment
// ago: both refuse alike for a while (failure kind D10).
func (p *Provider) neverEnabled(ctx context.Context, err error) error {
	if !switchedOff(err) {
		return err
	}
	const api = "compute.googleapis.com"
	s, serr := send(ctx, p.services.Services.Get("projects/"+p.project+"/services/"+api))
	if serr != nil || s.State != "DISABLED" {
		return err
	}
	return pipeline.Fatal("api-disabled", fmt.Sprintf("the Compute Engine API is not enabled in project %s", p.project),
		fmt.Sprintf("Run gcloud services enable %s --project=%s, then retry.", api, p.project)).From(err)
}
