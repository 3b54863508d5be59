package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/zopday/provisioner/internal/cloud"
	cloudaws "github.com/zopday/provisioner/internal/cloud/aws"
	cloudazure "github.com/zopday/provisioner/internal/cloud/azure"
	cloudgcp "github.com/zopday/provisioner/internal/cloud/gcp"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/sim"
	simaws "github.com/zopday/provisioner/internal/sim/aws"
	simazure "github.com/zopday/provisioner/internal/sim/azure"
	simgcp "github.com/zopday/provisioner/internal/sim/gcp"
)

// regions are where jobs run, by cloud.
var regions = map[job.Provider]string{job.AWS: region, job.GCP: "us-central1", job.Azure: "westeurope"}

// certificate is what every simulated Azure of the tests is served with.
var certificate = sync.OnceValues(func() (*simazure.Certificate, error) { return simazure.NewCertificate() })

// serveCloud puts a simulated cloud into a world and serves it.
func serveCloud(t testing.TB, at job.Provider, w *sim.World, k sim.Kubernetes, d sim.Databases) (url string) {
	t.Helper()
	var s *httptest.Server
	switch at {
	case job.AWS:
		s = httptest.NewServer(simaws.New(w, simaws.Options{Kubernetes: k, Databases: d}))
	case job.GCP:
		s = httptest.NewServer(simgcp.New(w, simgcp.Options{Kubernetes: k, Databases: d}))
	case job.Azure:
		cert, err := certificate()
		if err != nil {
			t.Fatal(err)
		}
		s = httptest.NewUnstartedServer(simazure.New(w, simazure.Options{Kubernetes: k, Databases: d}))
		s.TLS = cert.Config
		s.StartTLS()
	default:
		t.Fatalf("no cloud %q", at)
	}
	t.Cleanup(s.Close)
	return s.URL
}

// clouds is the cloud as a worker sees it that can die.
func (r *rig) clouds(w *worker) cloud.Opener {
	switch r.cloud {
	case job.GCP:
		return cloudgcp.New(cloudgcp.Options{Pace: pace, Reach: r.reach(), Roots: r.kube.CA(), LookupNS: nobodyDelegates, LoadConfig: func(ctx context.Context, account, region string) (cloudgcp.Config, error) {
			c, err := cloudgcp.Static(r.url, simgcp.DefaultProjects()[0].ID, "ya29.example")(ctx, account, region)
			c.Wire = w.wire(http.DefaultTransport)
			return c, err
		}})
	case job.Azure:
		return cloudazure.New(cloudazure.Options{Pace: pace, Reach: r.reach(), LoadConfig: r.azure(w)})
	}
	client := &http.Client{Timeout: 20 * time.Second, Transport: w.wire(http.DefaultTransport)}
	return cloudaws.New(cloudaws.Options{Pace: pace, Reach: r.reach(), DatabaseRoots: r.databases.CA(), LoadConfig: func(context.Context, string, string) (aws.Config, error) {
		return aws.Config{
			Region: region, BaseEndpoint: aws.String(r.url), HTTPClient: client,
			Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
				return credentials.NewStaticCredentialsProvider(r.keys.Load().(string), "secret", "").Value, nil
			}),
		}, nil
	}})
}

func (r *rig) azure(w *worker) func(context.Context, string, string) (cloudazure.Config, error) {
	return func(ctx context.Context, account, region string) (cloudazure.Config, error) {
		cert, err := certificate()
		if err != nil {
			return cloudazure.Config{}, err
		}
		load := cloudazure.Static(r.url, slices.Concat(cert.CA, r.databases.CA()), simazure.DefaultTenant, simazure.DefaultSubscription, simazure.DefaultClientID, simazure.DefaultClientSecret)
		c, err := load(ctx, account, region)
		if err != nil {
			return c, err
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(cert.CA)
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
		r.t.Cleanup(t.CloseIdleConnections)
		c.Transport = &http.Client{Timeout: 20 * time.Second, Transport: w.wire(t)}
		return c, nil
	}
}

// wire is how a worker's requests leave: not at all, once it is dead.
func (w *worker) wire(real http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		if w.dead.Load() {
			return nil, errors.New("dial tcp: connection refused")
		}
		return real.RoundTrip(req)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// nobodyDelegates is a DNS that knows none of the names of these tests.
func nobodyDelegates(context.Context, string) ([]string, error) {
	return nil, errors.New("no DNS here")
}
