package azure

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/mysql/armmysqlflexibleservers/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/postgresql/armpostgresqlflexibleservers/v5"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// SQLAccess makes logical databases over the control plane, and roles by SQL over
// TLS, as the administrator whose password the vault has.
func (p *Provider) SQLAccess(_ context.Context, j *job.Job) (cloud.SQLAccess, error) {
	info := j.Config.InfraConfig.Datastore
	switch {
	case !j.Owns():
		return cloud.SQLAccess{}, pipeline.Fatal("not-ours", "the datastore was adopted, and nothing is made in what others manage", "Make the database with its owner's tools.")
	case info.Host == "":
		return cloud.SQLAccess{}, pipeline.Fatal("not-ready", "the datastore has no endpoint yet", "Wait until the job has succeeded, then retry.")
	}
	if check := p.CheckReach(j); check.Status == cloud.CheckFails {
		return cloud.SQLAccess{}, pipeline.Fatal("out-of-reach", check.Message, check.Fix).On(check.Field)
	}
	f := flavourOf(info.Engine)
	roots, err := p.sqlRoots()
	if err != nil {
		return cloud.SQLAccess{}, err
	}
	name := info.Host
	if loopback(info.Host) {
		name = info.Name + "." + f.suffix
	}
	access := cloud.SQLAccess{
		Engine: info.Engine, Admin: info.AdminUser,
		Server: &cloud.SQLServer{
			Host: info.Host, Port: info.Port, TLS: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, ServerName: name},
			Password: func(ctx context.Context) (string, error) { return p.adminPassword(ctx, info.SecretID) },
		},
		CreateDatabase: func(ctx context.Context, name string) error { return p.createDatabase(ctx, f, info.ID, name) },
	}
	if !info.DeletionProtection {
		// A lock on the server keeps Resource Manager from deleting what is in it; SQL
		// goes past it ("Lock your Azure resources …": considerations).
		access.DropDatabase = func(ctx context.Context, name string) error { return p.dropDatabase(ctx, info.ID, name) }
	}
	return access, nil
}

// sqlRoots are whom the certificates of servers are trusted from: the system's roots,
// among which those of Azure are, and those of the configuration ("Transport Layer
// Security in Azure Database for PostgreSQL").
func (p *Provider) sqlRoots() (*x509.CertPool, error) {
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if len(p.roots) > 0 && !pool.AppendCertsFromPEM(p.roots) {
		return nil, pipeline.Fatal("bad-roots", "ZOPDAY_AZURE_CA_FILE holds no certificate", "Put the roots there in PEM, then retry.")
	}
	return pool, nil
}

func (p *Provider) createDatabase(ctx context.Context, f flavour, server, name string) error {
	at := server + "/databases/" + name
	var body any = armpostgresqlflexibleservers.Database{Properties: &armpostgresqlflexibleservers.DatabaseProperties{Charset: new("UTF8"), Collation: new("en_US.utf8")}}
	if f.engine == job.MySQL {
		body = armmysqlflexibleservers.Database{Properties: &armmysqlflexibleservers.DatabaseProperties{Charset: new("utf8mb4"), Collation: new("utf8mb4_0900_ai_ci")}}
	}
	var there meta
	switch err := p.get(ctx, at, &there); {
	case err == nil:
		return nil // an earlier try made it
	case !pipeline.Is(err, pipeline.NotFound):
		return err
	}
	_, op, err := put[struct{}](ctx, p, at, body, nil)
	if err != nil {
		return err
	}
	return p.finished(ctx, op, "database "+name)
}

func (p *Provider) dropDatabase(ctx context.Context, server, name string) error {
	op, err := p.remove(ctx, server+"/databases/"+name)
	if err != nil {
		return pipeline.Unless(err, pipeline.NotFound)
	}
	return p.finished(ctx, op, "database "+name)
}

// databasePatience is how long a change of a logical database may take in one pass;
// it takes some seconds.
const databasePatience = 2 * time.Minute

// finished waits for the end of an operation that takes seconds.
func (p *Provider) finished(ctx context.Context, op operation, what string) error {
	fails := func(class pipeline.Class, message string) error {
		return &pipeline.CloudError{Class: class, Service: resourcesProvider, Op: "operations/read", Message: what + ": " + message, Sent: true}
	}
	for end := time.Now().Add(p.pace.Real(databasePatience)); ; {
		running, why, err := p.outcome(ctx, op)
		switch {
		case err != nil:
			return err
		case why != "":
			return fails(pipeline.Unknown, why)
		case !running:
			return nil
		case time.Now().After(end):
			return fails(pipeline.Busy, "the operation has not ended yet")
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(max(p.pace.Real(settling), 50*time.Millisecond)):
		}
	}
}
