package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/zopday/provisioner/internal/access/oidc"
	"github.com/zopday/provisioner/internal/api"
	"github.com/zopday/provisioner/internal/audit"
	"github.com/zopday/provisioner/internal/cli"
	"github.com/zopday/provisioner/internal/client"
	"github.com/zopday/provisioner/internal/cloud/aws"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/observe"
	"github.com/zopday/provisioner/internal/provision"
	"github.com/zopday/provisioner/internal/server"
)

// backends are what the command line runs: it knows them by interface alone,
// and the server and the simulation know nothing of one another.
func backends() cli.Backends {
	return cli.Backends{
		CreateOrg: createOrg, ListOrgs: listOrgs, RecoverToken: recoverToken,
		Serve: serve, Simulate: simulate, VerifyAudit: verifyAudit, Migrate: migrate,
		Keeping: cli.Keeping{Status: secretsStatus, Rotate: rotateSecrets, Rekey: rekeySecrets}, Backup: server.Backup, Restore: restore,
	}
}

func serve(ctx context.Context, o cli.ServeOptions) (cli.Server, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.LogLevel)); err != nil {
		return nil, fmt.Errorf("log level %q: use debug, info, warn or error", o.LogLevel)
	}
	var err error
	b := cli.Build()
	c := server.Config{
		Listen: o.Listen, DB: o.DB, Migrate: o.Migrate, Workers: o.Workers, DeadAfter: o.DeadAfter, TimeScale: o.TimeScale, Token: o.Token,
		Edges: server.Edges{
			TLSCert: o.Edges.TLSCert, TLSKey: o.Edges.TLSKey, InsecureBind: o.Edges.InsecureBind,
			TrustedProxies: o.Edges.TrustedProxies, TrustUnix: o.Edges.TrustUnix,
			PerToken: o.Edges.PerToken, PerAddress: o.Edges.PerAddress, WebhookAllow: o.Edges.WebhookAllow,
		},
		SecretKey: o.SecretKey, TokenDir: o.TokenDir, AmbientOrgs: o.AmbientOrgs,
		ConfigService: o.ConfigService, Log: observe.NewLogger(o.Log, level, o.LogJSON),
		Version: api.Version{Version: b.Version, Commit: b.Commit, Date: b.Date},
	}
	if c.SignIn.PublicURL = o.PublicURL; o.OIDCConfig != "" {
		if c.SignIn.Issuers, err = oidc.Load(o.OIDCConfig, os.Getenv); err != nil {
			return nil, err
		}
	}
	if c.Gates, err = job.ParseGates(o.FeatureGates); err != nil {
		return nil, err
	}
	if c.Reach, err = job.ParseReach(o.Reach); err != nil {
		return nil, err
	}
	if c.ChartMirror = o.ChartMirror; o.Catalogue != "" {
		if c.Catalogue, err = os.ReadFile(o.Catalogue); err != nil {
			return nil, fmt.Errorf("catalogue: %w", err)
		}
	}
	for _, e := range o.Clouds {
		if err := useSimulated(&c, e); err != nil {
			return nil, err
		}
	}
	s, err := server.Start(ctx, c)
	if err != nil {
		return nil, err // never a nil server in an interface that is not nil
	}
	return s, nil
}

// useSimulated points a server to a simulated cloud, and to nothing else.
func useSimulated(c *server.Config, e cli.CloudEndpoint) error {
	env := map[string]string{}
	for _, v := range e.Env {
		env[v.Name] = v.Value
	}
	switch job.Provider(e.Provider) {
	case job.AWS:
		roots, err := os.ReadFile(env["ZOPDAY_AWS_RDS_CA_FILE"])
		if err != nil {
			return fmt.Errorf("certificate of the simulated datastores: %w", err)
		}
		c.AWS = &server.AWS{
			Endpoint: e.URL, AccessKey: env["AWS_ACCESS_KEY_ID"], SecretKey: env["AWS_SECRET_ACCESS_KEY"],
			Others: []aws.Account{{Name: "partner", AccessKey: simPartnerKey, SecretKey: simSecretKey}}, DatabaseRoots: roots,
		}
	case job.GCP:
		roots, err := os.ReadFile(env["ZOPDAY_GCP_CA_FILE"])
		if err != nil {
			return fmt.Errorf("certificate of the simulated clusters: %w", err)
		}
		c.GCP = &server.GCP{Endpoint: e.URL, Project: e.Account, Token: env["ZOPDAY_GCP_ACCESS_TOKEN"], Roots: roots}
	case job.Azure:
		ca, err := os.ReadFile(env["ZOPDAY_AZURE_CA_FILE"])
		if err != nil {
			return fmt.Errorf("certificate of the simulated Azure: %w", err)
		}
		c.Azure = &server.Azure{
			Endpoint: e.URL, CA: ca, Subscription: e.Account, Tenant: env["AZURE_TENANT_ID"],
			ClientID: env["AZURE_CLIENT_ID"], ClientSecret: env["AZURE_CLIENT_SECRET"],
		}
	}
	return nil
}

// verifyAudit walks the audit log of a database itself, so that it can be
// checked without trusting a server.
func verifyAudit(ctx context.Context, dsn string) ([]cli.AuditChain, error) {
	d, err := openExisting(ctx, dsn)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	ctx = db.System(ctx)
	orgs, err := audit.Orgs(ctx, d)
	if err != nil {
		return nil, err
	}
	chains := []cli.AuditChain{}
	for _, org := range orgs {
		check, err := provision.CheckAudit(ctx, d, org)
		if err != nil {
			return nil, err
		}
		chains = append(chains, cli.AuditChain{Org: org, AuditCheck: client.AuditCheck(*check)})
	}
	return chains, nil
}
