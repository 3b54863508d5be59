package aws

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/acm"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/elasticache"
	classicelb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/rds"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/servicequotas"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go/middleware"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// Options of access to AWS.
type Options struct {
	// Pace is how fast the cloud's clock runs; 0 and 1 are real time.
	Pace pipeline.Pace

	// Logger gets what is worth a person's attention; nil discards it.
	Logger *slog.Logger

	// Observe is told of every call once it has ended; class is "" if it
	// worked. nil: nobody is told.
	Observe func(service, op string, mutating bool, class pipeline.Class, d time.Duration)

	// LoadConfig finds region, credentials and endpoints for a cloud account;
	// nil is the SDK's own chain: environment, shared files, role of the machine.
	// Every account but "default" is then a profile of that name in the shared files.
	LoadConfig func(ctx context.Context, cloudAccountID, region string) (aws.Config, error)

	// Accounts knows the cloud accounts of organisations, whose credentials take
	// the place of those that LoadConfig finds. nil: LoadConfig alone says whose
	// credentials an account has.
	Accounts cloud.Accounts

	// Resolver looks up which name servers the internet has for a zone; nil asks
	// the system's resolver, and nobody when the endpoints are not AWS's own.
	Resolver Resolver

	// Reach is how the provisioner gets to the API servers of clusters: who else
	// than the network itself an endpoint lets in follows from it.
	Reach job.Reach

	// DatabaseRoots sign the certificates of RDS, PEM; nil: the file that
	// ZOPDAY_AWS_RDS_CA_FILE names, or else the bundle that AWS publishes.
	DatabaseRoots []byte
}

// A Resolver asks the public DNS; *net.Resolver is one.
type Resolver interface {
	LookupNS(ctx context.Context, name string) ([]*net.NS, error)
}

// Clouds opens AWS accounts, and keeps one set of clients for each organisation,
// account and region.
type Clouds struct {
	opts Options

	mu   sync.Mutex
	open map[place]*Provider
	lims map[place]*limits
}

type place struct{ org, account, region string }

// defaultAccount is the cloud account that the environment's own credentials belong to.
const defaultAccount = "default"

// lifetime is how long one set of clients is used. A client remembers how far
// its clock was off, and must not do so for ever (failure kind P13).
const lifetime = time.Hour

// New gives access to AWS.
func New(o Options) *Clouds {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Clouds{opts: o, open: map[place]*Provider{}, lims: map[place]*limits{}}
}

// Open gives access to the account that a job names, in the job's region.
func (c *Clouds) Open(ctx context.Context, j *job.Job) (cloud.Provider, error) {
	p, err := c.provider(ctx, j.OrgID, j.CloudAccountID, j.Region)
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

// provider is the account in the region, with clients that are not too old and
// were made of the account as it is now.
func (c *Clouds) provider(ctx context.Context, org, account, region string) (*Provider, error) {
	a, err := c.account(ctx, org, account)
	if err != nil {
		return nil, err
	}
	at := place{org, account, region}
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.open[at]; p != nil && p.account.Revision == a.Revision && time.Since(p.since) < lifetime {
		return p, nil
	}
	whose := shared(a, at)
	lim := c.lims[whose]
	if lim == nil {
		lim = newLimits(c.opts.Pace)
		c.lims[whose] = lim
	}
	p, err := c.make(ctx, a, region, lim)
	if err != nil {
		if asFatal(err) != nil {
			return nil, err
		}
		return nil, fmt.Errorf("AWS configuration for account %s in %s: %w", account, region, err)
	}
	c.open[at] = p
	return p, nil
}

// make makes the clients of an account in a region.
func (c *Clouds) make(ctx context.Context, a cloud.Account, region string, lim *limits) (*Provider, error) {
	cfg, err := c.ambient(ctx, ambientName(a), region)
	if err != nil {
		return nil, err
	}
	if cfg, err = c.as(a, cfg, lim); err != nil {
		return nil, err
	}
	p := &Provider{account: a}
	cfg.APIOptions = append([]func(*middleware.Stack) error{c.install(lim, p, renewal(cfg.Credentials))}, cfg.APIOptions...)
	p.init(cfg, c.opts, region)
	p.reachBy = c.reach(a)
	p.elsewhere = func(ctx context.Context, account, region string) (*Provider, error) {
		return c.provider(ctx, a.OrgID, account, region)
	}
	return p, nil
}

// ambient is the configuration of the process itself, without the package's
// middleware.
func (c *Clouds) ambient(ctx context.Context, account, region string) (aws.Config, error) {
	var cfg aws.Config
	var err error
	if c.opts.LoadConfig != nil {
		cfg, err = c.opts.LoadConfig(ctx, account, region)
	} else {
		from := []func(*config.LoadOptions) error{config.WithRegion(region), config.WithHTTPClient(httpClient())}
		if account != "" && account != defaultAccount {
			from = append(from, config.WithSharedConfigProfile(account))
		}
		cfg, err = config.LoadDefaultConfig(ctx, from...)
	}
	if err != nil {
		return aws.Config{}, err
	}
	cfg = cfg.Copy()
	cfg.Region = region
	if cfg.HTTPClient == nil {
		cfg.HTTPClient = httpClient()
	}
	pace := c.opts.Pace
	cfg.Retryer = func() aws.Retryer { return retryer{pace: pace} }
	cfg.RetryMaxAttempts = 0
	return cfg, nil
}

// httpClient has a bound on everything that can hang. A create that takes
// longer than this to be answered is looked up, not waited for.
func httpClient() aws.HTTPClient {
	return awshttp.NewBuildableClient().
		WithTimeout(90 * time.Second).
		WithDialerOptions(func(d *net.Dialer) { d.Timeout = 10 * time.Second }).
		WithTransportOptions(func(t *http.Transport) {
			t.TLSHandshakeTimeout = 10 * time.Second
			t.ResponseHeaderTimeout = 60 * time.Second
			t.IdleConnTimeout = 60 * time.Second
			t.MaxIdleConnsPerHost = 32
		})
}

// A Provider is one AWS account in one region.
type Provider struct {
	account cloud.Account
	region  string
	pace    pipeline.Pace
	log     *slog.Logger
	since   time.Time
	creds   aws.CredentialsProvider

	ec2    *ec2.Client
	iam    *iam.Client
	sts    *sts.Client
	ssm    *ssm.Client
	quotas *servicequotas.Client
	r53    *route53.Client
	acm    *acm.Client
	asg    *autoscaling.Client
	elb    *elb.Client
	logs   *cloudwatchlogs.Client
	s3     *s3.Client
	eks    *eks.Client
	kms    *kms.Client
	clb    *classicelb.Client // Classic Load Balancers, which a cluster's own controller makes

	rds     *rds.Client
	cache   *elasticache.Client
	secrets *secretsmanager.Client
	metrics *cloudwatch.Client

	resolver Resolver
	reachBy  job.Reach
	dbRoots  []byte

	// elsewhere opens another account or region, for the other side of a peering.
	elsewhere func(ctx context.Context, account, region string) (*Provider, error)

	mu         sync.Mutex
	callers    map[string]string // account by access key
	principals map[string]string // ARN of the role or user by access key
	given      map[string]string // what a user of a cache was last given, by its ID: a digest
}

// init makes the clients. It may be done once, before the provider is used.
func (p *Provider) init(cfg aws.Config, o Options, region string) {
	p.region, p.pace, p.log, p.since, p.creds = region, o.Pace, o.Logger, time.Now(), cfg.Credentials
	p.ec2, p.iam, p.sts, p.ssm = ec2.NewFromConfig(cfg), iam.NewFromConfig(cfg), sts.NewFromConfig(cfg), ssm.NewFromConfig(cfg)
	p.quotas, p.r53, p.acm = servicequotas.NewFromConfig(cfg), route53.NewFromConfig(cfg), acm.NewFromConfig(cfg)
	p.asg, p.elb, p.clb, p.logs = autoscaling.NewFromConfig(cfg), elb.NewFromConfig(cfg), classicelb.NewFromConfig(cfg), cloudwatchlogs.NewFromConfig(cfg)
	p.eks, p.kms = eks.NewFromConfig(cfg), kms.NewFromConfig(cfg)
	p.rds, p.cache, p.secrets, p.metrics = rds.NewFromConfig(cfg), elasticache.NewFromConfig(cfg), secretsmanager.NewFromConfig(cfg), cloudwatch.NewFromConfig(cfg)
	p.dbRoots, p.resolver = o.DatabaseRoots, o.Resolver
	p.callers, p.principals, p.given = map[string]string{}, map[string]string{}, map[string]string{}
	p.s3 = s3.NewFromConfig(cfg, func(o *s3.Options) {
		// A bucket's name as a host name resolves at AWS alone.
		o.UsePathStyle = p.foreignEndpoint() || o.BaseEndpoint != nil && !isAWS(*o.BaseEndpoint)
	})
	if p.resolver == nil && !p.foreignEndpoint() {
		p.resolver = net.DefaultResolver
	}
}

// Caller is the account that the credentials belong to. The cloud is asked
// again whenever the credentials have changed (failure kind F5).
func (p *Provider) Caller(ctx context.Context) (string, error) {
	key, err := p.keyInUse(ctx)
	if err != nil {
		return "", err
	}
	if account := p.accountOf(key); account != "" {
		return account, nil
	}
	out, err := p.sts.GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		return "", p.orRegion(plain(err))
	}
	account := aws.ToString(out.Account)
	if account == "" {
		return "", &pipeline.CloudError{Class: pipeline.Unknown, Service: "STS", Op: "GetCallerIdentity", Message: "the answer names no account", Sent: true}
	}
	// Credentials that were renewed on the way have been answered for with another key.
	if now, err := p.keyInUse(ctx); err != nil || now != key {
		return account, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.callers) // one key is in use at a time
	p.callers[key] = account
	return account, nil
}

// keyInUse is the access key of the credentials as they are now.
func (p *Provider) keyInUse(ctx context.Context) (string, error) {
	if p.creds == nil {
		return "", &pipeline.CloudError{Class: pipeline.Expired, Service: "STS", Op: "GetCallerIdentity", Message: "no AWS credentials are configured"}
	}
	c, err := p.creds.Retrieve(ctx)
	if err != nil {
		return "", classify("STS", "GetCallerIdentity", false, fmt.Errorf("get credentials: %w", err))
	}
	return c.AccessKeyID, nil
}

// orRegion adds to the refusal of a key what AWS means by it as well: in a region
// that does not exist, or is not enabled for the account, no key is known
// ("InvalidClientTokenId").
func (p *Provider) orRegion(err error) error {
	var ce *pipeline.CloudError
	if !errors.As(err, &ce) || ce.Code != "InvalidClientTokenId" {
		return err
	}
	c := *ce
	c.Message += "; AWS says the same where a region does not exist or is not enabled for the account: check that " + p.region + " is right and enabled"
	return &c
}

// tidy makes an object's errors read well: what the SDK wraps around an error
// that has been classified is taken off.
func tidy(x pipeline.Resource) pipeline.Resource {
	get, find, create, del, blockers := x.Get, x.Find, x.Create, x.Delete, x.Blockers
	x.Get = func(ctx context.Context, id string) (pipeline.Seen, error) {
		s, err := get(ctx, id)
		return tidySeen(s), plain(err)
	}
	if find != nil {
		x.Find = func(ctx context.Context) ([]pipeline.Seen, error) {
			all, err := find(ctx)
			for i, s := range all {
				all[i] = tidySeen(s)
			}
			return all, plain(err)
		}
	}
	if create != nil {
		x.Create = func(ctx context.Context, token string) (pipeline.Seen, error) {
			s, err := create(ctx, token)
			return tidySeen(s), plain(err)
		}
	}
	if del != nil {
		x.Delete = func(ctx context.Context, id string) error { return plain(del(ctx, id)) }
	}
	if blockers != nil {
		x.Blockers = func(ctx context.Context, id string) (string, error) {
			s, err := blockers(ctx, id)
			return s, plain(err)
		}
	}
	return x
}

func tidySeen(s pipeline.Seen) pipeline.Seen {
	for i := range s.Aspects {
		if set := s.Aspects[i].Set; set != nil {
			s.Aspects[i].Set = func(ctx context.Context) error { return plain(set(ctx)) }
		}
	}
	return s
}
