package gcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"strings"
	"sync"

	"cloud.google.com/go/auth"
	"cloud.google.com/go/auth/credentials"
)

// Config is where and as whom the clients speak.
type Config struct {
	// Project is the ID of the project that jobs work in.
	Project string

	// Token gives an OAuth access token; nil sends none.
	Token func(ctx context.Context) (string, error)

	// Renew is told of a token that was refused, so that Token makes a new one;
	// nil: there is never another one.
	Renew func(refused string)

	// Principal is who the tokens are for, where that is known; "" is asked for.
	Principal string

	// QuotaProject is whose quota requests count against; "" is up to the
	// credentials.
	QuotaProject string

	// Endpoint is the root of all services where they are not at Google, such
	// as http://127.0.0.1:5092; "" is each service's own.
	Endpoint string

	// Endpoints is the root of single services, by their name such as
	// "compute"; they go before Endpoint.
	Endpoints map[string]string

	// Roots are trusted besides the system's for the DNS endpoints of clusters,
	// PEM, where Options.Roots names none.
	Roots []byte

	// Wire sends requests; nil is a transport with bounds on everything.
	Wire http.RoundTripper
}

// sameAs reports whether two configurations speak of the same place.
func (c Config) sameAs(o Config) bool {
	return c.Project == o.Project && c.QuotaProject == o.QuotaProject && c.Endpoint == o.Endpoint && maps.Equal(c.Endpoints, o.Endpoints) && bytes.Equal(c.Roots, o.Roots)
}

// endpoint is the base of a service's URLs as its client takes it; "" is the
// client's own. Compute Engine's has its version in it, which a root may leave out.
func (c Config) endpoint(service string) string {
	at := c.Endpoints[service]
	if at == "" {
		at = c.Endpoint
	}
	if at == "" {
		return ""
	}
	at = strings.TrimSuffix(at, "/") + "/"
	if service == serviceCompute && !strings.HasSuffix(at, "/compute/v1/") {
		at += "compute/v1/"
	}
	if service == serviceMemorystore && c.Endpoints[service] == "" {
		at += "memorystore/" // its paths are those of Memorystore for Redis
	}
	return at
}

// Static is a LoadConfig for one endpoint with a fixed token, such as a simulated
// Google Cloud: neither the environment nor any file of the user is read, so
// that what is meant for a simulation can never reach the real cloud.
func Static(endpoint, project, token string) func(context.Context, string, string) (Config, error) {
	return func(context.Context, string, string) (Config, error) {
		return Config{
			Project: project, Endpoint: endpoint,
			Token: func(context.Context) (string, error) { return token, nil },
		}, nil
	}
}

const cloudPlatform = "https://www.googleapis.com/auth/cloud-platform"

// endpointVariables are the services whose root can be set by themselves, in
// ZOPDAY_GCP_ENDPOINT_ and the name.
var endpointVariables = []string{serviceCompute, serviceDNS, serviceIAM, serviceCRM, serviceUsage, serviceNetworking, serviceContainer, serviceKMS, "osconfig",
	serviceSQL, serviceRedis, serviceMemorystore, serviceSecrets, serviceMonitoring, serviceConnectivity,
	serviceTokens, serviceSTS, serviceIAMCredentials}

// FromEnvironment is the configuration as the environment has it: application
// default credentials, or ZOPDAY_GCP_ACCESS_TOKEN for emulators that take any
// token; the project from GOOGLE_CLOUD_PROJECT, CLOUDSDK_CORE_PROJECT or the
// credentials; the endpoints from ZOPDAY_GCP_ENDPOINT and
// ZOPDAY_GCP_ENDPOINT_COMPUTE, _DNS and so on; ZOPDAY_GCP_CA_FILE holds further
// roots for the DNS endpoints of clusters.
func FromEnvironment(ctx context.Context, _, _ string) (Config, error) {
	cfg := Config{
		Project:      firstSet("GOOGLE_CLOUD_PROJECT", "CLOUDSDK_CORE_PROJECT"),
		QuotaProject: os.Getenv("GOOGLE_CLOUD_QUOTA_PROJECT"),
		Endpoint:     os.Getenv("ZOPDAY_GCP_ENDPOINT"),
		Endpoints:    map[string]string{},
	}
	for _, service := range endpointVariables {
		if at := os.Getenv("ZOPDAY_GCP_ENDPOINT_" + strings.ToUpper(service)); at != "" {
			cfg.Endpoints[service] = at
		}
	}
	if file := os.Getenv("ZOPDAY_GCP_CA_FILE"); file != "" {
		roots, err := os.ReadFile(file) //nolint:gosec // the operator names the file
		if err != nil {
			return Config{}, fmt.Errorf("ZOPDAY_GCP_CA_FILE: %w", err)
		}
		cfg.Roots = roots
	}
	if token := os.Getenv("ZOPDAY_GCP_ACCESS_TOKEN"); token != "" {
		cfg.Token = func(context.Context) (string, error) { return token, nil }
		return cfg, nil
	}
	found := &detected{}
	creds, err := found.credentials()
	if err != nil {
		// Not an error of the configuration: the job says so when it calls, and
		// goes on once there are some.
		cfg.Token = func(context.Context) (string, error) {
			return "", fmt.Errorf("no application default credentials: %w", err)
		}
		return cfg, nil //nolint:nilerr // see above
	}
	cfg.Token, cfg.Renew = found.token, found.forget
	if cfg.Project == "" {
		if cfg.Project, err = creds.ProjectID(ctx); err != nil {
			return Config{}, fmt.Errorf("project of the credentials: %w", err)
		}
	}
	if cfg.QuotaProject == "" {
		if cfg.QuotaProject, err = creds.QuotaProjectID(ctx); err != nil {
			return Config{}, fmt.Errorf("quota project of the credentials: %w", err)
		}
	}
	return cfg, nil
}

// detected are application default credentials, looked for again once a token of
// theirs was refused.
type detected struct {
	mu    sync.Mutex
	creds *auth.Credentials
	last  string
}

func (d *detected) credentials() (*auth.Credentials, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.creds != nil {
		return d.creds, nil
	}
	creds, err := credentials.DetectDefault(&credentials.DetectOptions{Scopes: []string{cloudPlatform}})
	if err == nil {
		d.creds = creds
	}
	return creds, err
}

func (d *detected) token(ctx context.Context) (string, error) {
	creds, err := d.credentials()
	if err != nil {
		return "", fmt.Errorf("no application default credentials: %w", err)
	}
	t, err := creds.Token(ctx)
	if err != nil {
		return "", err
	}
	if t.Value == "" {
		return "", errors.New("the credentials give an empty token")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last = t.Value
	return t.Value, nil
}

// forget drops the credentials if they gave that token, and not a newer one.
func (d *detected) forget(refused string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.last == refused {
		d.creds = nil
	}
}

func firstSet(names ...string) string {
	for _, n := range names {
		if v := os.Getenv(n); v != "" {
			return v
		}
	}
	return ""
}
