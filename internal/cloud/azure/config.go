package azure

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	azcloud "github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/zopday/provisioner/internal/pipeline"
)

// A Config says which subscription is meant, how to reach it and as whom.
type Config struct {
	Subscription string // its ID, a GUID
	Credential   azcore.TokenCredential
	Cloud        azcloud.Configuration
	Transport    policy.Transporter
	Roots        []byte // trusted besides the system's roots, also by connections to databases; PEM
}

// keyVault is the name of Key Vault among a cloud's services. Its endpoint is what
// the addresses of vaults end in, or begin with: Azure gives each a host of its own
// ("Azure Key Vault basic concepts": DNS suffixes), an emulator a path.
const keyVault azcloud.ServiceName = "keyVault"

// The public cloud's vaults, and whom their tokens are for.
const (
	publicVaults        = "vault.azure.net"
	publicVaultAudience = "https://vault.azure.net"
)

// publicAudience is whom the tokens of the public cloud are for.
const publicAudience = "https://management.azure.com"

var guid = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

// FromEnvironment is the configuration of the process: the credentials of
// azidentity's default chain, and
//
//	AZURE_SUBSCRIPTION_ID                   the subscription, unless the cloud account names one or its ID is one
//	AZURE_AUTHORITY_HOST                    another authority than the public cloud's
//	ZOPDAY_AZURE_RESOURCE_MANAGER_ENDPOINT  another Resource Manager
//	ZOPDAY_AZURE_RESOURCE_MANAGER_AUDIENCE  whom its tokens are for
//	ZOPDAY_AZURE_KEY_VAULT_ENDPOINT         another suffix of vaults than vault.azure.net, or the URL below which they are
//	ZOPDAY_AZURE_KEY_VAULT_AUDIENCE         whom their tokens are for
//	ZOPDAY_AZURE_CA_FILE                    further root certificates, PEM
func FromEnvironment(_ context.Context, cloudAccountID, _ string) (Config, error) {
	subscription := os.Getenv("AZURE_SUBSCRIPTION_ID") // an account may name its own instead
	if guid.MatchString(cloudAccountID) {
		subscription = cloudAccountID
	}
	var roots []byte
	if file := os.Getenv("ZOPDAY_AZURE_CA_FILE"); file != "" {
		var err error
		if roots, err = os.ReadFile(file); err != nil { //nolint:gosec // the administrator's own setting
			return Config{}, fmt.Errorf("ZOPDAY_AZURE_CA_FILE: %w", err)
		}
	}
	transport, err := newTransport(roots)
	if err != nil {
		return Config{}, fmt.Errorf("ZOPDAY_AZURE_CA_FILE: %w", err)
	}
	c := cloudAt(os.Getenv("ZOPDAY_AZURE_RESOURCE_MANAGER_ENDPOINT"), os.Getenv("ZOPDAY_AZURE_RESOURCE_MANAGER_AUDIENCE"), os.Getenv("AZURE_AUTHORITY_HOST"))
	c.Services[keyVault] = vaultsAt(os.Getenv("ZOPDAY_AZURE_KEY_VAULT_ENDPOINT"), os.Getenv("ZOPDAY_AZURE_KEY_VAULT_AUDIENCE"))
	credential, err := azidentity.NewDefaultAzureCredential(&azidentity.DefaultAzureCredentialOptions{
		ClientOptions:              policy.ClientOptions{Cloud: c, Transport: transport},
		AdditionallyAllowedTenants: []string{"*"}, // an account may name another directory than the process's own
		DisableInstanceDiscovery:   c.ActiveDirectoryAuthorityHost != azcloud.AzurePublic.ActiveDirectoryAuthorityHost,
	})
	if err != nil {
		return Config{}, &pipeline.CloudError{Class: pipeline.Expired, Service: resourcesProvider, Op: "subscriptions/read", Message: innermost(err), Err: err}
	}
	return Config{Subscription: subscription, Credential: credential, Cloud: c, Transport: transport, Roots: roots}, nil
}

// Static is a LoadConfig for one endpoint with fixed credentials, such as a
// simulated Azure that is its own authority: neither the environment nor any
// file of the user is read, so that what is meant for a simulation can never
// reach the real cloud. caPEM is the endpoint's root certificate.
func Static(endpoint string, caPEM []byte, tenant, subscription, clientID, clientSecret string) func(context.Context, string, string) (Config, error) {
	return func(context.Context, string, string) (Config, error) {
		transport, err := newTransport(caPEM)
		if err != nil {
			return Config{}, err
		}
		c := cloudAt(endpoint, "", endpoint)
		c.Services[keyVault] = vaultsAt(endpoint, "")
		credential, err := azidentity.NewClientSecretCredential(tenant, clientID, clientSecret, &azidentity.ClientSecretCredentialOptions{
			ClientOptions: policy.ClientOptions{Cloud: c, Transport: transport}, DisableInstanceDiscovery: true,
		})
		if err != nil {
			return Config{}, err
		}
		return Config{Subscription: subscription, Credential: credential, Cloud: c, Transport: transport, Roots: caPEM}, nil
	}
}

// vaultsAt is Key Vault, the public cloud's unless something else is given.
func vaultsAt(endpoint, audience string) azcloud.ServiceConfiguration {
	return azcloud.ServiceConfiguration{
		Endpoint: strings.TrimSuffix(cmp.Or(endpoint, publicVaults), "/"), Audience: strings.TrimSuffix(cmp.Or(audience, publicVaultAudience), "/"),
	}
}

// cloudAt is the public cloud with what is given put in place.
func cloudAt(endpoint, audience, authority string) azcloud.Configuration {
	manager := azcloud.ServiceConfiguration{
		Endpoint: strings.TrimSuffix(cmp.Or(endpoint, azcloud.AzurePublic.Services[azcloud.ResourceManager].Endpoint), "/"),
		Audience: strings.TrimSuffix(cmp.Or(audience, publicAudience), "/"),
	}
	return azcloud.Configuration{
		ActiveDirectoryAuthorityHost: cmp.Or(authority, azcloud.AzurePublic.ActiveDirectoryAuthorityHost),
		Services:                     map[azcloud.ServiceName]azcloud.ServiceConfiguration{azcloud.ResourceManager: manager},
	}
}

// own reports whether the Resource Manager is one of Azure's, of any of its clouds.
func (c Config) own() bool {
	at := c.Cloud.Services[azcloud.ResourceManager].Endpoint
	for _, cloud := range []azcloud.Configuration{azcloud.AzurePublic, azcloud.AzureGovernment, azcloud.AzureChina} {
		if at == cloud.Services[azcloud.ResourceManager].Endpoint {
			return true
		}
	}
	return false
}

// nobodyKnows is what the internet's DNS says of the zones of another cloud.
func nobodyKnows(context.Context, string) ([]*net.NS, error) {
	return nil, errors.New("the Resource Manager is not Azure's own, so the internet knows nothing of its zones")
}

// newTransport has a bound on everything that can hang. A create that takes
// longer than this to be answered is looked up, not waited for.
func newTransport(roots []byte) (policy.Transporter, error) {
	secure := &tls.Config{MinVersion: tls.VersionTLS12}
	if len(roots) > 0 {
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		if !pool.AppendCertsFromPEM(roots) {
			return nil, fmt.Errorf("no certificate in PEM")
		}
		secure.RootCAs = pool
	}
	return &http.Client{
		Timeout: 90 * time.Second,
		Transport: &http.Transport{
			Proxy:                 http.ProxyFromEnvironment,
			DialContext:           (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
			TLSClientConfig:       secure,
			TLSHandshakeTimeout:   10 * time.Second,
			ResponseHeaderTimeout: 60 * time.Second,
			IdleConnTimeout:       60 * time.Second,
			MaxIdleConnsPerHost:   32,
			ForceAttemptHTTP2:     true,
		},
	}, nil
}
