package aws

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// rootsFile names a file with the roots of RDS's certificates, where they are not to be
// fetched from AWS.
const rootsFile = "ZOPDAY_AWS_RDS_CA_FILE"

const (
	reachFault   = "the datastore is private, and this server has no way to it: RDS has no control plane for databases and roles"
	reachChoices = "Start the server with --reach direct if it runs inside of the network or has a way into it (VPN, peering), and name its range in access; or make the databases yourself with the administrator's secret"
)

// CheckReach says whether the provisioner gets to the datastore: RDS takes statements
// over a connection alone, and the connection has to come from inside.
func (p *Provider) CheckReach(j *job.Job) cloud.Check {
	const check, field = "reach of the datastore", "config.spec.databases"
	if p.reachBy.Mode == job.ReachDirect {
		return passes(check, "direct")
	}
	return fails(check, field, reachFault+" (reach "+or(string(p.reachBy.Mode), string(job.ReachPublic))+")", reachChoices+".")
}

// SQLAccess is a connection to the instance over TLS, as its administrator. The
// password is read from Secrets Manager for each connection: RDS rotates it.
func (p *Provider) SQLAccess(ctx context.Context, j *job.Job) (cloud.SQLAccess, error) {
	if c := p.CheckReach(j); c.Status != cloud.CheckOK {
		return cloud.SQLAccess{}, pipeline.Fatal("no-reach", c.Message, c.Fix).On(c.Field)
	}
	info := j.Config.InfraConfig.Datastore
	if info.Name == "" || !j.Owns() || isCache(j) {
		return cloud.SQLAccess{}, pipeline.Fatal("no-datastore", "the job has no datastore of its own to make databases in", "Wait until the job has succeeded.")
	}
	i, err := p.readInstance(lookup.For(ctx, j.ID), info.Name)
	if err != nil {
		return cloud.SQLAccess{}, plain(err)
	}
	if i.Endpoint == nil {
		return cloud.SQLAccess{}, pipeline.Wait(10*time.Second, "%s to have an endpoint (%s)", info.Name, aws.ToString(i.DBInstanceStatus))
	}
	if i.MasterUserSecret == nil {
		return cloud.SQLAccess{}, pipeline.Fatal("no-admin-secret", "RDS no longer keeps the administrator's password of "+info.Name+" in Secrets Manager: somebody has set one by hand",
			"Let RDS manage it again: aws rds modify-db-instance --db-instance-identifier "+info.Name+" --manage-master-user-password --apply-immediately.")
	}
	roots, err := p.databaseRoots(ctx)
	if err != nil {
		return cloud.SQLAccess{}, err
	}
	host := aws.ToString(i.Endpoint.Address)
	secret := aws.ToString(i.MasterUserSecret.SecretArn)
	return cloud.SQLAccess{
		Engine: info.Engine, Admin: aws.ToString(i.MasterUsername),
		Server: &cloud.SQLServer{
			Host: host, Port: int(aws.ToInt32(i.Endpoint.Port)),
			TLS:      &tls.Config{RootCAs: roots, ServerName: host, MinVersion: tls.VersionTLS12},
			Password: func(ctx context.Context) (string, error) { return p.adminPassword(ctx, secret) },
		},
	}, nil
}

// adminPassword reads the secret that RDS manages ("Password management with Amazon RDS
// and AWS Secrets Manager"). Nothing of it stands in an error.
func (p *Provider) adminPassword(ctx context.Context, secret string) (string, error) {
	out, err := p.secrets.GetSecretValue(ctx, &secretsmanager.GetSecretValueInput{SecretId: aws.String(secret)})
	if err != nil {
		return "", plain(err)
	}
	var held struct {
		Password string `json:"password"`
	}
	if err := json.Unmarshal([]byte(aws.ToString(out.SecretString)), &held); err != nil || held.Password == "" {
		return "", &pipeline.CloudError{Class: pipeline.Unknown, Service: "Secrets Manager", Op: "GetSecretValue", Message: "the secret " + secret + " does not hold a password as RDS writes it", Sent: true}
	}
	return held.Password, nil
}

// fetchTimeout is how long AWS's bundle of certificates, a small file, may take.
const fetchTimeout = 10 * time.Second

// fetchedRoots keeps what was fetched: the bundle is the same for all of a partition.
var fetchedRoots = rootStore{}

// A rootStore fetches each bundle once, for all who ask meanwhile. A fetch that failed
// is forgotten: the next caller tries again.
type rootStore struct {
	mu    sync.Mutex // never held during a fetch
	tries map[string]*rootTry
}

type rootTry struct {
	done chan struct{} // closed when pool and err are set
	pool *x509.CertPool
	err  error
}

// get is the bundle at a URL. A caller who gives up takes nothing from the others.
func (s *rootStore) get(ctx context.Context, url string) (*x509.CertPool, error) {
	s.mu.Lock()
	t := s.tries[url]
	if t == nil {
		t = &rootTry{done: make(chan struct{})}
		if s.tries == nil {
			s.tries = map[string]*rootTry{}
		}
		s.tries[url] = t
		go s.fetch(context.WithoutCancel(ctx), url, t)
	}
	s.mu.Unlock()
	select {
	case <-t.done:
		return t.pool, t.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *rootStore) fetch(ctx context.Context, url string, t *rootTry) {
	defer close(t.done)
	text, err := fetch(ctx, url)
	if err != nil {
		t.err = &pipeline.CloudError{Class: pipeline.Unavailable, Service: "RDS", Op: "fetch " + url, Message: err.Error() + "; a server without a way there is given the file by " + rootsFile, Err: err}
	} else {
		t.pool, t.err = poolOfPEM(text, url)
	}
	if t.err != nil {
		s.mu.Lock()
		delete(s.tries, url)
		s.mu.Unlock()
	}
}

// bundleURL is where AWS publishes the certificates that sign those of RDS ("Using
// SSL/TLS to encrypt a connection to a DB instance or cluster").
func bundleURL(region string) string {
	switch partition(region) {
	case "aws-us-gov":
		return "https://truststore.pki.us-gov-west-1.rds.amazonaws.com/global/global-bundle.pem"
	case "aws-cn":
		return "https://rds-truststore.s3.cn-north-1.amazonaws.com.cn/global/global-bundle.pem"
	}
	return "https://truststore.pki.rds.amazonaws.com/global/global-bundle.pem"
}

// databaseRoots are the roots that sign the instances' certificates: those that were
// given, those in the file that is named, or those that AWS publishes.
func (p *Provider) databaseRoots(ctx context.Context) (*x509.CertPool, error) {
	if len(p.dbRoots) > 0 {
		return poolOfPEM(p.dbRoots, "the roots that the server was given")
	}
	if file := os.Getenv(rootsFile); file != "" {
		text, err := os.ReadFile(file) //nolint:gosec // the operator names the file
		if err != nil {
			return nil, pipeline.Fatal("no-database-roots", fmt.Sprintf("%s names a file that cannot be read: %v", rootsFile, err), "Name a PEM file, or unset the variable to use what AWS publishes.")
		}
		return poolOfPEM(text, file)
	}
	return fetchedRoots.get(ctx, bundleURL(p.region))
}

func poolOfPEM(text []byte, from string) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, pipeline.Fatal("no-database-roots", "there is no certificate in "+from, "Give a PEM file with the roots that sign the certificates of RDS.")
	}
	return pool, nil
}

// fetch reads a small file over HTTPS, with the system's roots.
func fetch(ctx context.Context, url string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", url, strings.TrimSpace(resp.Status))
	}
	return io.ReadAll(io.LimitReader(resp.Body, 4<<20))
}
