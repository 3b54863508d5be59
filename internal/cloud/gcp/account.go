package gcp

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// account is the cloud account that a job names. A server without accounts knows
// every one as its own identity.
func (c *Clouds) account(ctx context.Context, org, id string) (cloud.Account, error) {
	if c.opts.Accounts == nil {
		return cloud.Account{ID: id, OrgID: org, Name: id, Provider: job.GCP, Method: cloud.MethodAmbient}, nil
	}
	a, err := c.opts.Accounts.Account(ctx, org, id, job.GCP)
	switch {
	case errors.Is(err, cloud.ErrNoAccount):
		return a, pipeline.Fatal("no-such-account", fmt.Sprintf("there is no cloud account %s at Google Cloud in this organisation", id),
			"Name one that there is, or make it again; then retry.").On("cloudAccountId").From(err)
	case err != nil:
		return a, fmt.Errorf("cloud account %s: %w", id, err)
	}
	return a, nil
}

// accountConfig is the ambient configuration with an account's own project and
// credentials in it. Where the endpoints are stays as the operator has it.
func accountConfig(cfg Config, a cloud.Account, pace pipeline.Pace) (Config, error) {
	if a.Method != cloud.MethodAmbient {
		// Nothing of the process's own identity is left.
		cfg.Project, cfg.QuotaProject, cfg.Token, cfg.Renew = "", "", nil, nil
	}
	if a.Settings.Project != "" {
		cfg.Project = a.Settings.Project
	}
	var own *minter
	email := ""
	switch a.Method {
	case cloud.MethodAmbient:
		if a.Settings.ServiceAccount != "" {
			own = &minter{mint: borrowed(cfg.Token), forgotten: cfg.Renew}
		}
	case cloud.MethodServiceAccountKey:
		key, err := readKey(a.Secret.Key, cfg)
		if err != nil {
			return cfg, unusable(a, err)
		}
		cfg.Project, email = or(cfg.Project, key.Project), key.Email
		cfg.Principal = key.Email
		own = &minter{mint: key.mint(cfg)}
	case cloud.MethodWorkloadIdentity:
		w := federated{audience: a.Settings.Audience, file: a.Settings.TokenFile}
		if err := w.complete(); err != nil {
			return cfg, unusable(a, err)
		}
		own = &minter{mint: w.mint(cfg)}
		pool, _, _ := strings.Cut(strings.TrimPrefix(w.audience, "//"), "/providers/")
		cfg.Principal = "principalSet://" + pool + "/*"
	default:
		return cfg, unusable(a, fmt.Errorf("%q is not a way to get credentials at Google Cloud", a.Method))
	}
	if cfg.Project == "" && a.Method != cloud.MethodAmbient {
		return cfg, unusable(a, errors.New("it names no project"))
	}
	if own == nil {
		return cfg, nil
	}
	if act := a.Settings.ServiceAccount; act != "" && act != email {
		if !serviceAccountRE.MatchString(act) {
			return cfg, unusable(a, fmt.Errorf("%.80q is not the e-mail address of a service account", act))
		}
		own = &minter{mint: impersonated(cfg, act, own.held(pace)), forgotten: own.forget}
		cfg.Principal = act
	}
	s := own.held(pace)
	cfg.Token, cfg.Renew = s.token, s.forget
	return cfg, nil
}

// unusable is an account of which no client can be made.
func unusable(a cloud.Account, err error) error {
	return pipeline.Fatal("bad-account", fmt.Sprintf("cloud account %s cannot be used: %v", a.ID, err), "Put the account's credentials right, then retry.").
		On("cloudAccountId").From(err)
}

// reachBy is how the provisioner gets to what is private in an account: the
// account's own way goes before the server's.
func reachBy(server job.Reach, a cloud.Account) job.Reach {
	r := server
	if a.Reach.Mode != "" {
		r = a.Reach
		if len(r.EgressCIDRs) == 0 {
			r.EgressCIDRs = server.EgressCIDRs
		}
	}
	if len(a.Egress) > 0 {
		r.EgressCIDRs = a.Egress
	}
	return r
}

// ReadOnly reports whether nothing may be changed with the account.
func (p *Provider) ReadOnly() bool { return p.account.ReadOnly }
