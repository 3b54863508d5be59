package aws

import (
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

// Options set up the simulated AWS.
type Options struct {
	// Keys maps access keys to accounts. Empty means the two accounts of DefaultKeys.
	Keys map[string]string
	// AnyKey, if not empty, is the account of every access key that is not in Keys.
	AnyKey string
	// BootTime is how long an instance takes from running to the end of its cloud-init; zero means 40 s.
	BootTime time.Duration
	// Kubernetes gives clusters an API server that is real; nil: their endpoints lead nowhere.
	Kubernetes sim.Kubernetes
	// Databases gives datastores and caches servers that are real; nil: their endpoints answer nobody.
	Databases sim.Databases
	// LeakedInterfaces is how many network interfaces the deletion of a node group leaves behind in its subnets, as the CNI
	// plugin does when its node goes away under it (https://github.com/terraform-aws-modules/terraform-aws-eks/issues/2004).
	LeakedInterfaces int
}

// DefaultKeys are the access keys of a world without configuration: two accounts. Any secret is accepted, since
// signatures are not verified, only their time and scope.
func DefaultKeys() map[string]string {
	return map[string]string{
		"AKIAIOSFODNN7EXAMPLE": "123456789012",
		"AKIAI44QH8DHBEXAMPLE": "111122223333",
		"test":                 "123456789012",
	}
}

// Cloud is the simulated AWS. It is an http.Handler for all services.
type Cloud struct {
	World *sim.World
	opt   Options
	apis  map[string]*api
	hooks hooks

	ec2      *EC2
	platform *platform

	servers   databaseBridge
	rehearsed map[string]time.Duration // see rehearse
}

// hooks are what services ask of one another. A service sets its own in its constructor; a nil hook means that the
// service is not there.
type hooks struct {
	// instanceProfile finds an instance profile by name or ARN, as the rest of AWS sees it now: false while it is fresh
	// (IAM).
	instanceProfile func(account, nameOrARN string) (InstanceProfile, bool)
	// identify finds the holder of a temporary access key (STS).
	identify func(accessKey string) (Identity, bool)
	// identityOf fills in ARN and user ID of a long-lived access key (IAM).
	identityOf func(account, accessKey string) (Identity, bool)
	// instanceGone is told when an instance has left running, for whatever reason (Auto Scaling, ELB).
	instanceGone []func(s scope, instanceID string)
	// logGroupDeleted is told when a log group was deleted by request (EKS, RDS: who still has something to log makes it again).
	logGroupDeleted []func(s scope, name string)
}

// An InstanceProfile is what EC2 needs to know of IAM's.
type InstanceProfile struct {
	ARN, ID, Name string
	// RoleARN is the role in it, if any.
	RoleARN string
	// Policies are the ARNs of the managed policies attached to the role.
	Policies []string
}

// An Identity is a caller.
type Identity struct {
	Account   string
	AccessKey string
	ARN       string
	UserID    string
	Role      string    // the ARN of the role that was assumed, if one was
	Expires   time.Time // zero: never
}

// A scope is an account in a region: most state of AWS is kept per scope.
type scope struct{ Account, Region string }

func (s scope) key() string { return s.Account + "/" + s.Region }

// regions are those that need no opt-in, with the prefix of their zone IDs, their long name and their zones.
var regions = map[string]struct {
	zonePrefix, longName string
	zones                string
}{
	"us-east-1":      {"use1", "US East (N. Virginia)", "abcdef"},
	"us-east-2":      {"use2", "US East (Ohio)", "abc"},
	"us-west-1":      {"usw1", "US West (N. California)", "ac"},
	"us-west-2":      {"usw2", "US West (Oregon)", "abcd"},
	"ca-central-1":   {"cac1", "Canada (Central)", "abd"},
	"eu-west-1":      {"euw1", "Europe (Ireland)", "abc"},
	"eu-west-2":      {"euw2", "Europe (London)", "abc"},
	"eu-west-3":      {"euw3", "Europe (Paris)", "abc"},
	"eu-central-1":   {"euc1", "Europe (Frankfurt)", "abc"},
	"eu-north-1":     {"eun1", "Europe (Stockholm)", "abc"},
	"ap-south-1":     {"aps1", "Asia Pacific (Mumbai)", "abc"},
	"ap-southeast-1": {"apse1", "Asia Pacific (Singapore)", "abc"},
	"ap-southeast-2": {"apse2", "Asia Pacific (Sydney)", "abc"},
	"ap-northeast-1": {"apne1", "Asia Pacific (Tokyo)", "acd"},
	"ap-northeast-2": {"apne2", "Asia Pacific (Seoul)", "abcd"},
	"ap-northeast-3": {"apne3", "Asia Pacific (Osaka)", "abc"},
	"sa-east-1":      {"sae1", "South America (Sao Paulo)", "abc"},
}

func regionNames() []string {
	names := make([]string, 0, len(regions))
	for n := range regions {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}

// New adds a simulated AWS to a world.
func New(w *sim.World, opt Options) *Cloud {
	if len(opt.Keys) == 0 {
		opt.Keys = DefaultKeys()
	}
	if opt.BootTime == 0 {
		opt.BootTime = 40 * time.Second
	}
	c := &Cloud{World: w, opt: opt, apis: map[string]*api{}}
	c.servers.cloud = c
	c.addServices()
	w.RegisterFront("aws", c)
	return c
}

func (c *Cloud) add(a *api) { c.apis[a.service] = a }

// accounts lists the configured accounts.
func (c *Cloud) accounts() []string {
	seen := map[string]bool{}
	for _, a := range c.opt.Keys {
		seen[a] = true
	}
	if c.opt.AnyKey != "" {
		seen[c.opt.AnyKey] = true
	}
	var out []string
	for a := range seen {
		out = append(out, a)
	}
	sort.Strings(out)
	return out
}

// quota is the limit that holds in a scope; it panics on a code that nobody declared, which is a mistake in the caller.
func (c *Cloud) quota(s scope, service, code string) float64 {
	v, ok := c.World.QuotaValue("aws", service, code, s.Account, s.Region)
	if !ok {
		panic(fmt.Sprintf("quota %s of %s is not declared", code, service))
	}
	return v
}

// after schedules an event of a service.
func (c *Cloud) after(d time.Duration, service, kind, key string) {
	c.World.After(d, "aws", service, kind, key)
}

// hex17 makes an identifier as EC2 and others do since 2016: a prefix and 17 hexadecimal digits, the first of them 0.
func (c *Cloud) hex17(prefix string) string { return c.World.Hex(prefix+"0", 16) }

func arn(service, region, account, resource string) string {
	return strings.Join([]string{"arn", "aws", service, region, account, resource}, ":")
}
