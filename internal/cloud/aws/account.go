package aws

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go/middleware"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// sessionLength is how long the credentials of an assumed role last: an hour is
// the most that any role allows before its owner changes it, and that a role
// assumed by a role may have (IAM User Guide, "Methods to assume a role").
const sessionLength = time.Hour

// renewBefore is how long before their end the credentials of an assumed role
// are renewed, so that none expires on its way to the cloud.
const renewBefore = 5 * time.Minute

// account is the cloud account that an organisation's job names.
func (c *Clouds) account(ctx context.Context, org, id string) (cloud.Account, error) {
	if c.opts.Accounts == nil {
		return cloud.Account{ID: id, OrgID: org, Name: id, Provider: job.AWS, Method: cloud.MethodAmbient}, nil
	}
	a, err := c.opts.Accounts.Account(ctx, org, id, job.AWS)
	switch {
	case errors.Is(err, cloud.ErrNoAccount):
		return a, pipeline.Fatal("no-such-account", fmt.Sprintf("there is no AWS cloud account %s in this organisation", cmp.Or(id, defaultAccount)),
			"Make the cloud account, or name one that exists in cloudAccountId, then retry.").On("cloudAccountId").From(err)
	case err != nil:
		return a, fmt.Errorf("cloud account %s: %w", id, err)
	}
	return a, nil
}

// shared is the place whose rate limits an account counts against: the process's
// own identity is the same AWS account for every organisation.
func shared(a cloud.Account, at place) place {
	if a.Method == cloud.MethodAmbient {
		at.org, at.account = "", ambientName(a)
	}
	return at
}

// ambientName is what the process's own configuration calls an account: what is
// in the table of accounts has no other name there than the process itself.
func ambientName(a cloud.Account) string {
	if a.Method != cloud.MethodAmbient || strings.HasPrefix(a.ID, "ca_") {
		return defaultAccount
	}
	return a.ID
}

// as puts the credentials of an account in the place of the process's own.
func (c *Clouds) as(a cloud.Account, cfg aws.Config, limits *limits) (aws.Config, error) {
	switch a.Method {
	case cloud.MethodAmbient:
		return cfg, nil
	case cloud.MethodStaticKeys:
		if a.Secret.AccessKeyID == "" || a.Secret.SecretAccessKey == "" {
			return cfg, unusable(a, "it has no access key", "Give it an access key and its secret, then retry.")
		}
		cfg.Credentials = credentials.NewStaticCredentialsProvider(a.Secret.AccessKeyID, a.Secret.SecretAccessKey, a.Secret.SessionToken)
		return cfg, nil
	case cloud.MethodAssumeRole:
		if a.Settings.RoleARN == "" || a.Settings.ExternalID == "" {
			return cfg, unusable(a, "it lacks the role or the external ID", "Give it a role, whose trust policy asks for the account's external ID, then retry.")
		}
		cfg.Credentials = c.assumed(a, cfg, limits)
		return cfg, nil
	}
	return cfg, unusable(a, fmt.Sprintf("AWS has no credentials of the kind %q", a.Method), "Use ambient, assume_role or static_keys.")
}

func unusable(a cloud.Account, why, fix string) error {
	return pipeline.Fatal("account-unusable", fmt.Sprintf("the cloud account %s cannot be used: %s", accountName(a), why), fix)
}

// accountName is an account for a person.
func accountName(a cloud.Account) string {
	if a.Name == "" || a.Name == a.ID {
		return cmp.Or(a.ID, defaultAccount)
	}
	return a.Name + " (" + a.ID + ")"
}

// assumed are the credentials of a role that the process's own identity assumes.
// They are kept, and renewed before they end.
func (c *Clouds) assumed(a cloud.Account, cfg aws.Config, limits *limits) aws.CredentialsProvider {
	own := cfg.Copy()
	own.APIOptions = append([]func(*middleware.Stack) error{c.install(limits, nil, renewal(own.Credentials))}, own.APIOptions...)
	role := stscreds.NewAssumeRoleProvider(sts.NewFromConfig(own), a.Settings.RoleARN, func(o *stscreds.AssumeRoleOptions) {
		o.ExternalID = aws.String(a.Settings.ExternalID)
		o.RoleSessionName = sessionName(a)
		o.Duration = sessionLength
	})
	explained := aws.CredentialsProviderFunc(func(ctx context.Context) (aws.Credentials, error) {
		got, err := role.Retrieve(ctx)
		return got, notAssumed(a, err)
	})
	return aws.NewCredentialsCache(explained, func(o *aws.CredentialsCacheOptions) { o.ExpiryWindow = renewBefore })
}

// notAssumed says what a refusal of sts:AssumeRole means: who refuses is the
// role's trust policy or the caller's own policy, and AWS does not say which.
func notAssumed(a cloud.Account, err error) error {
	var ce *pipeline.CloudError
	if !errors.As(err, &ce) || ce.Class != pipeline.Denied {
		return err
	}
	explained := *ce
	explained.Message += fmt.Sprintf("; the trust policy of %s has to let the provisioner in with the external ID of cloud account %s, and the provisioner's own policy has to allow sts:AssumeRole on it", a.Settings.RoleARN, accountName(a))
	return &explained
}

// sessionName is how CloudTrail shows what the provisioner did as a role: for
// whom. It takes 2 to 64 letters, digits and _+=,.@- (AWS STS API Reference,
// "AssumeRole").
func sessionName(a cloud.Account) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_+=,.@-", r) {
			return r
		}
		return '-'
	}, a.OrgID+"."+a.ID)
	return name[:min(len(name), 64)]
}

// reach is how the provisioner gets to what is private in an account.
func (c *Clouds) reach(a cloud.Account) job.Reach {
	r := c.opts.Reach
	if a.Reach.Mode != "" {
		r = a.Reach
	}
	if len(a.Egress) > 0 {
		r.EgressCIDRs = a.Egress
	}
	return r
}

// ReadOnly reports whether nothing may be changed with the account.
func (p *Provider) ReadOnly() bool { return p.account.ReadOnly }
