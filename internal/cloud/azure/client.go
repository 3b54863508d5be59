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

	// LoadConfig finds subscription, credentials and endpoints for a cloud
	// account; nil is FromEnvironment.
	LoadConfig func(ctx context.Context, cloudAccountID, region string) (Config, error)

	// LookupNS says which name servers a DNS domain is delegated to; nil asks
	// the resolver of the machine, of Azure's own zones alone.
	LookupNS func(ctx context.Context, domain string) ([]*net.NS, error)

	// Reach is how the provisioner gets to the API server of a cluster; the zero
	// value reaches none.
	Reach job.Reach
}

// Clouds opens Azure subscriptions, and keeps one client for each account and
// region.
type Clouds struct {
	opts Options

	mu   sync.Mutex
	open map[place]*Provider
	lims map[string]*limits // by account: the limits are the subscription's
}

type place struct{ account, region string }

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
	return &Clouds{opts: o, open: map[place]*Provider{}, lims: map[string]*limits{}}
}

// Open gives access to the account that a job names, in the job's region.
func (c *Clouds) Open(ctx context.Context, j *job.Job) (cloud.Provider, error) {
	p, err := c.provider(ctx, j.CloudAccountID, j.Region)
	if err != nil {
		return nil, err
	}
	return p, nil
}

var _ cloud.Opener = (*Clouds)(nil)

// provider is the account in the region, with a client that is not too old and
// whose credentials have not been refused.
func (c *Clouds) provider(ctx context.Context, account, region string) (*Provider, error) {
	at := place{account, region}
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.open[at]; p != nil && time.Since(p.since) < lifetime && !p.refused.Load() {
		return p, nil
	}
	lim := c.lims[account]
	if lim == nil {
		lim = newLimits(c.opts.Pace)
		c.lims[account] = lim
	}
	cfg, err := c.opts.LoadConfig(ctx, account, region)
	if err != nil {
		return nil, fmt.Errorf("configuration of Azure for account %s: %w", account, err)
	}
	p := &Provider{
		subscription: cfg.Subscription, region: region, pace: c.opts.Pace, log: c.opts.Logger,
		lookupNS: c.opts.LookupNS, since: time.Now(), reach: c.opts.Reach,
		credential: cfg.Credential, audience: cfg.Cloud.Services[azcloud.ResourceManager].Audience,
	}
	if p.lookupNS == nil {
		p.lookupNS = net.DefaultResolver.LookupNS
		if !cfg.own() {
			p.lookupNS = nobodyKnows
		}
	}
	calls := &calls{opts: c.opts, limits: lim, refused: &p.refused}
	vaults, ok := cfg.Cloud.Services[keyVault]
	if !ok {
		vaults = vaultsAt("", "")
	}
	p.roots, p.vaultsAt = cfg.Roots, vaults.Endpoint
	options := policy.ClientOptions{
		Cloud:            cfg.Cloud,
		Transport:        cfg.Transport,
		Retry:            policy.RetryOptions{MaxRetries: -1}, // call.go decides what may be repeated
		PerCallPolicies:  []policy.Policy{policyFunc(calls.call)},
		PerRetryPolicies: []policy.Policy{policyFunc(wire)},
	}
	p.vaults = runtime.NewPipeline("zopday", "v1.0.0", runtime.PipelineOptions{
		PerRetry: []policy.Policy{runtime.NewBearerTokenPolicy(cfg.Credential, []string{vaults.Audience + "/.default"}, nil)},
	}, &options)
	p.arm, err = arm.NewClient("zopday", "v1.0.0", cfg.Credential, &arm.ClientOptions{
		DisableRPRegistration: true, // a provider is registered by whoever owns the subscription
		ClientOptions:         options,
	})
	if err != nil {
		return nil, fmt.Errorf("client of Azure for account %s: %w", account, err)
	}
	c.open[at] = p
	return p, nil
}

// A Provider is one Azure subscription in one region.
type Provider struct {
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
