package azure

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	azcloud "github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// account is the cloud account that a job names. Without a store of accounts
// there is one alone: what the process itself runs as.
func (c *Clouds) account(ctx context.Context, org, id string) (cloud.Account, error) {
	if c.opts.Accounts == nil {
		return cloud.Account{ID: id, OrgID: org, Name: id, Provider: job.Azure, Method: cloud.MethodAmbient}, nil
	}
	a, err := c.opts.Accounts.Account(ctx, org, id, job.Azure)
	switch {
	case errors.Is(err, cloud.ErrNoAccount):
		return a, pipeline.Fatal("no-cloud-account", fmt.Sprintf("there is no cloud account %q at Azure in this organisation", id),
			"Name a cloud account that it has, or have one made, then retry.").On("cloudAccountId").From(err)
	case err != nil:
		return a, fmt.Errorf("cloud account %s: %w", id, err)
	case a.Provider != job.Azure:
		return a, pipeline.Fatal("no-cloud-account", fmt.Sprintf("cloud account %q is one of %s, and the job is at Azure", cmp.Or(a.Name, a.ID), a.Provider),
			"Name a cloud account at Azure, then retry.").On("cloudAccountId")
	}
	return a, nil
}

// configuration is how an account is reached and as whom: where the clouds are is
// the process's own setting, the account says the rest.
func (c *Clouds) configuration(ctx context.Context, a cloud.Account, region string) (Config, error) {
	cfg, err := c.opts.LoadConfig(ctx, a.ID, region)
	if err != nil {
		return cfg, fmt.Errorf("configuration of Azure for account %s: %w", called(a), err)
	}
	cfg.Subscription = cmp.Or(a.Settings.Subscription, cfg.Subscription)
	credential, err := cfg.credential(a)
	if err != nil {
		return cfg, unusable(a, firstLine(err), err)
	}
	cfg.Credential = credential
	switch {
	case cfg.Subscription == "" && a.Method == cloud.MethodAmbient:
		return cfg, unusable(a, "no Azure subscription is configured: set AZURE_SUBSCRIPTION_ID, or name one in the account", nil)
	case !guid.MatchString(cfg.Subscription):
		return cfg, unusable(a, fmt.Sprintf("%q is not the ID of an Azure subscription", cfg.Subscription), nil)
	}
	return cfg, nil
}

// unusable is an account that cannot be used as it is: the job waits until
// somebody has put it right.
func unusable(a cloud.Account, why string, err error) error {
	return &pipeline.CloudError{Class: pipeline.Expired, Service: resourcesProvider, Op: "subscriptions/read", Message: "cloud account " + called(a) + ": " + why, Err: err}
}

// called is how an account is called in messages.
func called(a cloud.Account) string { return cmp.Or(a.Name, a.ID) }

// credential is whose tokens an account's calls carry ("Azure Identity client
// module for Go").
func (c Config) credential(a cloud.Account) (azcore.TokenCredential, error) {
	s := a.Settings
	client := policy.ClientOptions{Cloud: c.Cloud, Transport: c.Transport}
	// Only the public cloud's directory of authorities is asked for others.
	unknown := c.Cloud.ActiveDirectoryAuthorityHost != azcloud.AzurePublic.ActiveDirectoryAuthorityHost
	switch a.Method {
	case cloud.MethodAmbient, "":
		if s.Tenant == "" {
			return c.Credential, nil
		}
		return inTenant{c.Credential, s.Tenant}, nil
	case cloud.MethodServicePrincipal:
		if a.Secret.ClientSecret == "" {
			return nil, errors.New("it has no client secret")
		}
		return azidentity.NewClientSecretCredential(s.Tenant, s.ClientID, a.Secret.ClientSecret, &azidentity.ClientSecretCredentialOptions{ClientOptions: client, DisableInstanceDiscovery: unknown})
	case cloud.MethodWorkloadIdentity:
		if s.TokenFile == "" {
			return nil, errors.New("it names no file with a token")
		}
		return azidentity.NewClientAssertionCredential(s.Tenant, s.ClientID, assertionIn(s.TokenFile), &azidentity.ClientAssertionCredentialOptions{ClientOptions: client, DisableInstanceDiscovery: unknown})
	}
	return nil, fmt.Errorf("Azure has no credentials of method %s", a.Method) //nolint:staticcheck // the cloud's name
}

// inTenant are credentials that are used in a directory other than their own.
type inTenant struct {
	azcore.TokenCredential
	tenant string
}

// GetToken asks the directory for a token.
func (t inTenant) GetToken(ctx context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	o.TenantID = t.tenant
	return t.TokenCredential.GetToken(ctx, o)
}

// longestAssertion is the most that is read of a token file.
const longestAssertion = 64 << 10

// assertionIn reads another issuer's token whenever it is needed: whoever issues
// it puts a fresh one there long before the old one ends.
func assertionIn(file string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) {
		f, err := os.Open(file)
		if err != nil {
			return "", fmt.Errorf("the token file of the credential cannot be read: %w", err)
		}
		defer f.Close()
		text, err := io.ReadAll(io.LimitReader(f, longestAssertion+1))
		switch text = bytes.TrimSpace(text); {
		case err != nil:
			return "", fmt.Errorf("the token file of the credential cannot be read: %w", err)
		case len(text) == 0:
			return "", fmt.Errorf("the token file %s of the credential is empty", file)
		case len(text) > longestAssertion:
			return "", fmt.Errorf("the token file %s of the credential is longer than %d bytes: it holds no token", file, longestAssertion)
		}
		return string(text), nil
	}
}

// reachOf is how the provisioner gets to what is private in an account: the
// account's own word before the server's.
func (c *Clouds) reachOf(a cloud.Account) job.Reach {
	r := c.opts.Reach
	if a.Reach.Mode != "" {
		r = a.Reach
	}
	if len(a.Egress) > 0 {
		r.EgressCIDRs = a.Egress
	}
	return r
}

// unauthenticated is why the directory gave no token, in its own words: the code
// says what is wrong ("Microsoft Entra authentication and authorization error
// codes").
func unauthenticated(err error) string {
	var auth *azidentity.AuthenticationFailedError
	if !errors.As(err, &auth) || auth.RawResponse == nil {
		return firstLine(err)
	}
	body, _ := runtime.Payload(auth.RawResponse)
	var doc struct {
		Description string `json:"error_description"`
	}
	if json.Unmarshal(body, &doc) != nil || doc.Description == "" {
		return firstLine(err)
	}
	why, _, _ := strings.Cut(doc.Description, " Trace ID:")
	return firstLine(err) + " " + firstLine(errors.New(why))
}

// ReadOnly reports whether nothing may be changed with the account.
func (p *Provider) ReadOnly() bool { return p.account.ReadOnly }
