package server

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/accounts"
	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/cloud/aws"
	"github.com/zopday/provisioner/internal/cloud/azure"
	"github.com/zopday/provisioner/internal/cloud/gcp"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/observe"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/secrets"
)

// openAccounts keeps the cloud accounts of organisations. The first organisation
// is the operator's own, and may work with the process's own identity.
func openAccounts(c Config, d *db.DB, keep *secrets.Store) *accounts.Store {
	o := accounts.Options{Ambient: func(org string) bool {
		return org == access.DefaultOrg || slices.Contains(c.AmbientOrgs, org) || slices.Contains(c.AmbientOrgs, "*")
	}}
	if keep != nil {
		o.Secrets = keep
	}
	if c.AWS != nil {
		for _, other := range c.AWS.Others {
			o.Configured = append(o.Configured, cloud.Account{ID: other.Name, Name: other.Name, Provider: job.AWS, Method: cloud.MethodAmbient})
		}
	}
	return accounts.New(d, o)
}

// openClouds gives access to all clouds.
func openClouds(c Config, pace pipeline.Pace, accounts cloud.Accounts, o observer) byProvider {
	return byProvider{job.AWS: openAWS(c, pace, accounts, o), job.GCP: openGCP(c, pace, accounts, o), job.Azure: openAzure(c, pace, accounts, o)}
}

// cloudPolicies are the least that jobs need at a cloud.
func cloudPolicies(at job.Provider) []cloud.Policy {
	switch at {
	case job.AWS:
		return aws.Policies()
	case job.GCP:
		return gcp.Policies()
	case job.Azure:
		return azure.Policies()
	}
	return nil
}

// An observer is told of every call to a cloud.
type observer = func(service, op string, mutating bool, class pipeline.Class, took time.Duration)

func observed(m *observe.Metrics) observer {
	return func(service, op string, _ bool, class pipeline.Class, took time.Duration) {
		m.CloudCall(service, op, cmp.Or(string(class), "ok"), took)
	}
}

func openAWS(c Config, pace pipeline.Pace, accounts cloud.Accounts, o observer) cloud.Opener {
	opts := aws.Options{Accounts: accounts, Pace: pace, Logger: c.Log, Observe: o, Reach: c.Reach}
	if c.AWS != nil {
		opts.LoadConfig = aws.Static(c.AWS.Endpoint, c.AWS.AccessKey, c.AWS.SecretKey, c.AWS.Others...)
		opts.DatabaseRoots = c.AWS.DatabaseRoots
	}
	return aws.New(opts)
}

func openGCP(c Config, pace pipeline.Pace, accounts cloud.Accounts, o observer) cloud.Opener {
	opts := gcp.Options{Accounts: accounts, Pace: pace, Logger: c.Log, Observe: o, Reach: c.Reach}
	if c.GCP != nil {
		opts.Roots = c.GCP.Roots
		opts.LoadConfig = gcp.Static(c.GCP.Endpoint, c.GCP.Project, c.GCP.Token)
	}
	return gcp.New(opts)
}

func openAzure(c Config, pace pipeline.Pace, accounts cloud.Accounts, o observer) cloud.Opener {
	opts := azure.Options{Accounts: accounts, Pace: pace, Logger: c.Log, Observe: o, Reach: c.Reach}
	if a := c.Azure; a != nil {
		opts.LoadConfig = azure.Static(a.Endpoint, a.CA, a.Tenant, a.Subscription, a.ClientID, a.ClientSecret)
	}
	return azure.New(opts)
}

// byProvider opens each job's account at the job's own cloud.
type byProvider map[job.Provider]cloud.Opener

func (b byProvider) Open(ctx context.Context, j *job.Job) (cloud.Provider, error) {
	o, ok := b[j.Provider]
	if !ok {
		return nil, pipeline.Fatal("no-such-cloud", fmt.Sprintf("this server has no access to the cloud %q", j.Provider), "Make the job at a cloud that it has.")
	}
	return o.Open(ctx, j)
}
