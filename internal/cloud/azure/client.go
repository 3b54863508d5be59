package azure

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	azcloud "github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// Options of access to Azure.
type Options struct {
	// Pace is how fast the cloud's clock runs; 0 and 1 are real time.
	Pace pipeline.Pace

	// Logger gets what is worth a person's attention; nil discards it.
	Logger *slog.Logger

	// Observe is told of every call once it has ended; class is "" if it
	// worked. nil: nobody is told.
	Observe func(service, op string, mutating bool, class pipeline.Class, d time.Duration)

	// LoadConfig is the process's own configuration: where Azure is, and the
	// credentials and subscription of accounts that have none of their own; nil is
	// FromEnvironment.
	LoadConfig func(ctx context.Context, cloudAccountID, region string) (Config, error)

	// LookupNS says which name servers a DNS domain is delegated to; nil asks
	// the resolver of the machine, of Azure's own zones alone.
	LookupNS func(ctx context.Context, domain string) ([]*net.NS, error)

	// Accounts finds the account that a job names; nil: all are the process's own.
	Accounts cloud.Accounts

	// Reach is how the provisioner gets to the API server of a cluster, unless the
	// account says otherwise; the zero value reaches none.
	Reach job.Reach
}

// Clouds opens Azure subscriptions, and keeps one client for each organisation,
// account and region.
type Clouds struct {
	opts Options

	mu   sync.Mutex
	open map[place]*Provider
	lims map[place]*limits // of an account, in no region: the limits are the subscription's
}

type place struct{ org, account, region string }

// lifetime is how long one client is used: what it remembers of credentials
// and of whose they are must not outlive their change for long.
const lifetime = time.Hour

// New gives access to Azure.
func New(o Options) *Clouds {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.LoadConfig == nil {
		o.LoadConfig = FromEnvironment
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

var _ cloud.Opener = (*Clouds)(nil)

// provider is an organisation's account in the region, with a client that is of
// the account as it is now, not too old, and whose credentials have not been refused.
func (c *Clouds) provider(ctx context.Context, org, id, region string) (*Provider, error) {
	a, err := c.account(ctx, org, id)
	if err != nil {
		return nil, err
	}
	at := place{org, id, region}
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.open[at]; p != nil && p.account.Revision == a.Revision && p.account.Holder == a.Holder && time.Since(p.since) < lifetime && !p.refused.Load() {
		return p, nil
	}
	delete(c.open, at) // what was made of an earlier account is of no use to anybody
	of := place{org: org, account: id}
	lim := c.lims[of]
	if lim == nil {
		lim = newLimits(c.opts.Pace)
		c.lims[of] = lim
	}
	cfg, err := c.configuration(ctx, a, region)
	if err != nil {
		return nil, err
	}
	cfg.Credential = &renewable{now: cfg.Credential, made: time.Now(), again: func(ctx context.Context) (azcore.TokenCredential, error) {
		fresh, err := c.configuration(ctx, a, region)
		return fresh.Credential, err
	}}
	p, err := c.connect(a, cfg, region, lim)
	if err != nil {
		return nil, fmt.Errorf("client of Azure for account %s: %w", called(a), err)
	}
	c.open[at] = p
	return p, nil
}

// connect makes the clients of an account.
func (c *Clouds) connect(a cloud.Account, cfg Config, region string, lim *limits) (*Provider, error) {
	a.Secret = cloud.Secret{} // the credentials have it
	renew := func(context.Context, time.Time) {}
	if r, ok := cfg.Credential.(*renewable); ok {
		renew = r.renew
	}
	p := &Provider{
		clouds: c, account: a, subscription: cfg.Subscription, region: region, pace: c.opts.Pace, log: c.opts.Logger,
		lookupNS: c.opts.LookupNS, since: time.Now(), reach: c.reachOf(a),
		credential: cfg.Credential, audience: cfg.Cloud.Services[azcloud.ResourceManager].Audience,
	}
	if p.lookupNS == nil {
		p.lookupNS = net.DefaultResolver.LookupNS
		if !cfg.own() {
			p.lookupNS = nobodyKnows
		}
	}
	calls := &calls{opts: c.opts, limits: lim, refused: &p.refused, renew: renew}
	vaults, ok := cfg.Cloud.Services[keyVault]
	if !ok {
		vaults = vaultsAt("", "")
	}
	p.roots, p.vaultsAt = cfg.Roots, vaults.Endpoint
	options := policy.ClientOptions{
		Cloud:            cfg.Cloud,
		Transport:        guarded(cfg.Transport, a, cfg.Subscription),
		Retry:            policy.RetryOptions{MaxRetries: -1}, // call.go decides what may be repeated
		PerCallPolicies:  []policy.Policy{policyFunc(calls.call)},
		PerRetryPolicies: []policy.Policy{policyFunc(wire)},
	}
	p.vaults = runtime.NewPipeline("zopday", "v1.0.0", runtime.PipelineOptions{
		PerRetry: []policy.Policy{runtime.NewBearerTokenPolicy(cfg.Credential, []string{vaults.Audience + "/.default"}, nil)},
	}, &options)
	var err error
	p.arm, err = arm.NewClient("zopday", "v1.0.0", cfg.Credential, &arm.ClientOptions{
		DisableRPRegistration: true, // a provider is registered by whoever owns the subscription
		ClientOptions:         options,
	})
	return p, err
}

// A Provider is one Azure subscription in one region.
type Provider struct {
	clouds       *Clouds
	account      cloud.Account // without its secret
	subscription string
	region       string
	pace         pipeline.Pace
	log          *slog.Logger
	lookupNS     func(ctx context.Context, domain string) ([]*net.NS, error)
	since        time.Time
	reach        job.Reach
	credential   azcore.TokenCredential
	audience     string      // whom tokens for Resource Manager are for
	refused      atomic.Bool // the cloud refused the credentials: the next Open begins afresh

	arm      *arm.Client
	vaults   runtime.Pipeline // calls to the vaults themselves
	vaultsAt string           // what the addresses of vaults end in, or the URL below which they are
	roots    []byte           // trusted besides the system's, PEM

	mu     sync.Mutex
	caller string // the subscription, once the cloud has confirmed it

	said sync.Map // what was logged once
}

// unread tells whoever runs the server, once, that something is never looked at,
// since these credentials may not read it.
func (p *Provider) unread(what string, err error) {
	if _, told := p.said.LoadOrStore(what, true); !told {
		p.log.Warn("not checked: "+what, "account", called(p.account), "error", err)
	}
}

// unlessDenied is nil for a read that these credentials may not make, and notes what
// is not checked for want of it.
func unlessDenied(r *pipeline.Run, what string, err error) error {
	if pipeline.Is(err, pipeline.Denied) {
		r.Note("%s not checked: %v", what, err)
		return nil
	}
	return err
}

// Caller is the subscription that the credentials can see. The cloud is asked
// once for each set of clients.
func (p *Provider) Caller(ctx context.Context) (string, error) {
	p.mu.Lock()
	known := p.caller
	p.mu.Unlock()
	if known != "" {
		return known, nil
	}
	sub, err := p.readSubscription(ctx)
	if err != nil {
		return "", err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.caller = sub.SubscriptionID
	return p.caller, nil
}

// subscription is what the cloud says of a subscription ("Subscriptions - Get").
type subscription struct {
	SubscriptionID string `json:"subscriptionId"`
	DisplayName    string `json:"displayName"`
	State          string `json:"state"`
}

func (p *Provider) readSubscription(ctx context.Context) (subscription, error) {
	var s subscription
	if err := p.get(ctx, "/subscriptions/"+p.subscription, &s); err != nil {
		return s, err
	}
	switch {
	case s.SubscriptionID == "":
		return s, &pipeline.CloudError{Class: pipeline.Unknown, Service: resourcesProvider, Op: "subscriptions/read", Message: "the answer names no subscription", Sent: true}
	case s.State != "" && s.State != "Enabled" && s.State != "Warned" && s.State != "PastDue":
		return s, pipeline.Fatal("subscription-disabled", fmt.Sprintf("Azure subscription %s (%s) is %s, so nothing can be made in it", s.SubscriptionID, s.DisplayName, s.State),
			"Have it enabled again, then retry.")
	}
	return s, nil
}
