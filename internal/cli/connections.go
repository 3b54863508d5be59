package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/zopday/provisioner/internal/client"
	"github.com/zopday/provisioner/internal/job"
)

func (a *app) connectionsCmd() *cobra.Command {
	return nounCmd("connections", "Let services use a datastore or cache",
		a.connectionsList(), a.connectionsCreate(), a.connectionsRotate(), a.connectionsReveal(), a.connectionsDelete())
}

func (a *app) connectionsList() *cobra.Command {
	return a.jobCmd("list", "List who may use a datastore or cache", "  zopday connections list shop-db",
		func(ctx context.Context, c *client.Client, j client.Job, _ *client.Response) error {
			rctx, cancel := a.request(ctx)
			defer cancel()
			resp, all, err := c.Connections(rctx, j.ID)
			if err != nil {
				return err
			}
			err = a.print(resp, func(w io.Writer) { a.connectionTable(w, all) })
			if err == nil && len(all) == 0 && !a.machine() {
				a.say("No connections.%s", ifTaken(j, " zopday connections create %s SERVICE makes one."))
			}
			return err
		})
}

func (a *app) connectionTable(w io.Writer, all []job.Connection) {
	if len(all) == 0 {
		return
	}
	now := a.now()
	t := table{head: []string{"SERVICE", "ACCESS", "ROLE", "DATABASE", "SECRET", "STATUS", "REVEALED", "AGE", "ID", "WHY"}}
	for _, c := range all {
		secret := ""
		if c.SpaceID != "" {
			secret = c.Namespace + "/" + c.SecretName
		}
		revealed := "no"
		if c.RevealedAt != nil {
			revealed = "by " + c.RevealedBy
		}
		t.add(c.Service, string(c.Access), c.Role, c.DatabaseID, secret, string(c.Status), revealed, age(c.CreatedAt, now), c.ID, why(c.Error))
	}
	t.write(w, a.tableTerm())
}

func (a *app) connectionsCreate() *cobra.Command {
	var f struct {
		database, access, space, namespace, secret, variable string
		wait                                                 bool
	}
	cmd := a.jobAnd("create JOB SERVICE", "a service", "Let a service use a datastore or cache",
		"  zopday connections create shop-db checkout --database orders --wait\n  zopday connections create shop-db checkout --database orders --space platform --namespace shop --variable DATABASE_URL",
		func(ctx context.Context, c *client.Client, j client.Job, service string) error {
			request := map[string]string{"service": service}
			for k, v := range map[string]string{"databaseId": f.database, "access": f.access, "spaceId": f.space, "namespace": f.namespace, "secretName": f.secret, "variable": f.variable} {
				if v != "" {
					request[k] = v
				}
			}
			rctx, cancel := a.slowRequest(ctx)
			defer cancel()
			resp, made, err := c.CreateConnection(rctx, j.ID, request)
			if err != nil {
				return err
			}
			return a.connectionDone(ctx, c, j, resp, made, f.wait)
		})
	waitFlag(cmd, &f.wait)
	fl := cmd.Flags()
	fl.StringVar(&f.database, "database", "", "the logical `database`, by its name or ID")
	fl.StringVar(&f.access, "access", "", "read_write (default), read_only or owner")
	fl.StringVar(&f.space, "space", "", "a `space` in which a Secret is kept")
	fl.StringVar(&f.namespace, "namespace", "", "`namespace` of the Secret; default if left out")
	fl.StringVar(&f.secret, "kept-as", "", "`name` of the Kubernetes Secret; made of service and database if left out")
	fl.StringVar(&f.variable, "variable", "", "a `key` of the Secret that holds the whole URL, such as DATABASE_URL")
	completeFixed(cmd, "access", "read_write", "read_only", "owner")
	return cmd
}

// connectionDone waits for a connection, if that is wanted, and shows it.
func (a *app) connectionDone(ctx context.Context, c *client.Client, j client.Job, resp *client.Response, made job.Connection, wait bool) error {
	if wait {
		var err error
		resp, made, err = settle(ctx, a, func(ctx context.Context) (*client.Response, job.Connection, job.LogicalStatus, error) {
			resp, got, err := c.Connection(ctx, j.ID, made.ID)
			return resp, got, got.Status, err
		})
		if err == nil && made.Status == job.LogicalFailed {
			err = &unmade{what: "connection of " + made.Service, problem: made.Error}
		}
		if err != nil {
			return err
		}
	}
	return a.print(resp, func(w io.Writer) { a.connectionTable(w, []job.Connection{made}) })
}

func (a *app) connectionsRotate() *cobra.Command {
	var wait bool
	cmd := a.jobAnd("rotate JOB CONNECTION", "a connection", "Give a connection another password", "  zopday connections rotate shop-db checkout --wait",
		func(ctx context.Context, c *client.Client, j client.Job, connection string) error {
			rctx, cancel := a.slowRequest(ctx)
			defer cancel()
			resp, made, err := c.RotateConnection(rctx, j.ID, connection)
			if err != nil {
				return err
			}
			return a.connectionDone(ctx, c, j, resp, made, wait)
		})
	waitFlag(cmd, &wait)
	return cmd
}

func (a *app) connectionsReveal() *cobra.Command {
	return a.jobAnd("reveal JOB CONNECTION", "a connection", "Show the secret behind a connection, once", "  zopday connections reveal shop-db checkout",
		func(ctx context.Context, c *client.Client, j client.Job, connection string) error {
			rctx, cancel := a.request(ctx)
			defer cancel()
			resp, v, err := c.Reveal(rctx, j.ID, connection)
			if err != nil {
				return err
			}
			err = a.print(resp, func(w io.Writer) {
				for _, k := range slices.Sorted(maps.Keys(v.Credentials)) {
					fmt.Fprintf(w, "%s=%s\n", k, v.Credentials[k])
				}
			})
			if err == nil && !a.machine() {
				a.say("It is not shown again; zopday connections rotate makes a new one.")
			}
			return err
		})
}

func (a *app) connectionsDelete() *cobra.Command {
	var yes, wait bool
	cmd := a.jobAnd("delete JOB CONNECTION", "a connection", "End a connection: its role is dropped, its secret removed", "  zopday connections delete shop-db checkout --yes",
		func(ctx context.Context, c *client.Client, j client.Job, connection string) error {
			rctx, cancel := a.request(ctx)
			_, got, err := c.Connection(rctx, j.ID, connection)
			cancel()
			if err != nil {
				return err
			}
			effect := []string{"the role " + got.Role + " is dropped, so " + got.Service + " can no longer use it"}
			if got.SpaceID != "" {
				effect = append(effect, "the Secret "+got.Namespace+"/"+got.SecretName+" is removed from its space")
			}
			if err := a.confirm(ctx, consent{verb: "end the connection of " + got.Service + " to " + j.Name, level: 2, yes: yes, effect: effect}); err != nil {
				return err
			}
			rctx, cancel = a.request(ctx)
			defer cancel()
			resp, got, err := c.DeleteConnection(rctx, j.ID, got.ID)
			if err != nil {
				return err
			}
			if wait {
				return gone(ctx, a, "connection of "+got.Service, func(ctx context.Context) (job.LogicalStatus, *job.Error, error) {
					_, c, err := c.Connection(ctx, j.ID, got.ID)
					return c.Status, c.Error, err
				})
			}
			return a.print(resp, func(w io.Writer) { a.connectionTable(w, []job.Connection{got}) })
		})
	waitFlag(cmd, &wait)
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}
