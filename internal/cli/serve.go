package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/zopday/provisioner/internal/job"
)

// stopWithin is how long a server may take to come to a safe point.
const stopWithin = 25 * time.Second

func (a *app) serveCmd() *cobra.Command {
	o := ServeOptions{}
	var logFormat string
	cmd := &cobra.Command{
		Use: "serve", Short: "Run the provisioner: API, pages and workers", Args: args(0, 0, ""),
		Long: withExamples("Run the provisioner: API, pages and workers",
			"  zopday serve\n  zopday serve --listen 127.0.0.1:5087 --db postgres://zopday@db1,db2/zopday\n  zopday serve --bind 0.0.0.0:5087 --tls-cert tls.crt --tls-key tls.key") + `

Every flag can be given as ZOPDAY_<FLAG> in the environment too, such as
ZOPDAY_DB or ZOPDAY_WORKER_DEAD_AFTER. ZOPDAY_BOOTSTRAP_TOKEN sets the token; without
it one is made at the first start and shown once.

Access to the clouds is configured as for every SDK of theirs (docs/cli.md has the list):
  AWS           AWS_REGION, AWS_PROFILE, AWS_ENDPOINT_URL, …
  Google Cloud  application default credentials, GOOGLE_CLOUD_PROJECT, ZOPDAY_GCP_ENDPOINT
  Azure         the default chain of credentials, AZURE_SUBSCRIPTION_ID, AZURE_AUTHORITY_HOST,
                ZOPDAY_AZURE_RESOURCE_MANAGER_ENDPOINT, ZOPDAY_AZURE_CA_FILE

SIGTERM and SIGINT end it: steps come to a safe point, leases are handed back, and
another worker goes on.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.flagsFromEnv(cmd); err != nil {
				return err
			}
			switch logFormat {
			case "json":
				o.LogJSON = true
			case "text":
				o.LogJSON = false
			default:
				return usagef("--log-format %q is neither json nor text", logFormat)
			}
			o.Log, o.Token = a.stderr, a.getenv("ZOPDAY_BOOTSTRAP_TOKEN")
			return a.serve(cmd.Context(), o)
		},
	}
	serveFlags(cmd, &o)
	cmd.Flags().StringVar(&o.Listen, "listen", "127.0.0.1:5087", "`address` to listen on, port 0 is any free one; or unix: and a path. Beyond this machine it needs --tls-cert. --bind is the same")
	cmd.Flags().StringVar(&o.DB, "db", "zopday.db", "`path` of an SQLite file, or a postgres:// DSN; ZOPDAY_DB keeps a password out of the arguments")
	addSecretKey(cmd, &o.SecretKey)
	cmd.Flags().StringVar(&o.Migrate, "migrate", "auto", "auto brings the schema up to date where the role owns the tables; false leaves that to zopday migrate")
	completeFixed(cmd, "migrate", "auto", "false")
	cmd.Flags().Float64Var(&o.TimeScale, "time-scale", 1, "pace of simulated clouds, as zopday sim was told; leave it for real ones")
	cmd.Flags().StringVar(&logFormat, "log-format", "json", "json or text")
	cmd.Flags().StringVar(&o.ConfigService, "config-service", "", "`address` of an external config service (gRPC); the built-in one if left out")
	return cmd
}

// serveFlags are those of serve that sandbox has too.
func serveFlags(cmd *cobra.Command, o *ServeOptions) {
	cmd.Flags().DurationVar(&o.DeadAfter, "worker-dead-after", 10*time.Second, "silence after which a worker's jobs are taken over")
	cmd.Flags().IntVar(&o.Workers, "workers", 16, "jobs carried out side by side; 0 runs the API alone")
	cmd.Flags().StringVar(&o.LogLevel, "log-level", "info", "debug, info, warn or error")
	cmd.Flags().StringVar(&o.OIDCConfig, "oidc-config", "", "`file` with the OpenID Connect issuers that people and machines come from (YAML, docs/sign-in.md)")
	cmd.Flags().StringVar(&o.PublicURL, "public-url", "", "`address` at which browsers find this server, such as https://zopday.example.com; where it listens if that is this machine")
	cmd.Flags().StringVar(&o.FeatureGates, "feature-gates", "", "what is in preview and to be on, such as AzureVMSS=true")
	cmd.Flags().StringVar(&o.Reach, "reach", "", "`how` private API servers and datastores are reached in cloud accounts that do not say themselves: direct, tunnel, or public:RANGE,… with the ranges that this server's own connections come from")
	cmd.Flags().StringVar(&o.TokenDir, "token-dir", "", "`directory` below which token files of cloud accounts (workload identity) may be, those of further organisations below their IDs; none, if left out")
	cmd.Flags().StringSliceVar(&o.AmbientOrgs, "ambient-orgs", nil, "`organisations` beside the first whose jobs may work with this process's own cloud identity; * is all")
	cmd.Flags().StringVar(&o.Catalogue, "catalogue", "", "`file` with components of your own (YAML)")
	cmd.Flags().StringVar(&o.ChartMirror, "chart-mirror", "", "`address` that all charts are taken from instead of their own sources: https://… or oci://…")
	edgeFlags(cmd, &o.Edges)
	completeFixed(cmd, "log-level", logLevels...)
}

// flagsFromEnv gives flags that were not on the command line the value of
// their variable.
func (a *app) flagsFromEnv(cmd *cobra.Command) error {
	var bad error
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		name := "ZOPDAY_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		// ZOPDAY_SECRET_KEY holds a key, and its flag says where one is.
		if f.Changed || f.Name == "help" || f.Name == secretKeyFlag || a.getenv(name) == "" || bad != nil {
			return
		}
		if err := cmd.Flags().Set(f.Name, a.getenv(name)); err != nil {
			// The value is left out: it may be a DSN with a password.
			bad = usagef("the value of %s is not one that --%s takes", name, f.Name)
		}
	})
	return bad
}

func checkServe(o *ServeOptions) error {
	if err := checkSecretKey(o.SecretKey); err != nil {
		return err
	}
	switch {
	case o.Workers < 0 || o.Workers > 1000:
		return usagef("--workers is %d; use 0 to 1000", o.Workers)
	case !slices.Contains([]string{"", "auto", "false"}, o.Migrate):
		return usagef("--migrate %q is neither auto nor false", o.Migrate)
	case o.DeadAfter < time.Second:
		return usagef("--worker-dead-after is %s; use 1s or more", o.DeadAfter)
	case o.TimeScale <= 0:
		return usagef("--time-scale is %v; use a number above 0", o.TimeScale)
	case gateFault(o.FeatureGates) != nil:
		return usagef("--feature-gates: %v", gateFault(o.FeatureGates))
	case reachFault(o.Reach) != nil:
		return usagef("--reach: %v", reachFault(o.Reach))
	case !slices.Contains(logLevels, o.LogLevel):
		return &usageError{msg: fmt.Sprintf("--log-level %q is not known", o.LogLevel), hint: "use " + strings.Join(logLevels, ", ")}
	}
	return o.Edges.read()
}

func gateFault(list string) error {
	_, err := job.ParseGates(list)
	return err
}

func reachFault(text string) error {
	_, err := job.ParseReach(text)
	return err
}

var logLevels = []string{"debug", "info", "warn", "error"}

// A cannotStart is a server or a simulation that did not come up.
type cannotStart struct{ err error }

func (e *cannotStart) Error() string { return e.err.Error() }
func (e *cannotStart) Unwrap() error { return e.err }

func (e *cannotStart) layout(*app) failure {
	f := failure{what: clean(e.Error())}
	if errors.Is(e.err, syscall.EADDRINUSE) {
		f.rows = append(f.rows, row{"Do", "something listens there already; name another address, or port 0 for any free one"})
	}
	return f
}

// start starts a server.
func (a *app) start(ctx context.Context, o ServeOptions) (Server, error) {
	srv, err := a.back.Serve(ctx, o)
	if err != nil {
		return nil, &cannotStart{err}
	}
	return srv, nil
}

// simulate starts the simulated clouds.
func (a *app) simulate(ctx context.Context, o SimOptions) (Simulation, error) {
	s, err := a.back.Simulate(ctx, o)
	if err != nil {
		return nil, &cannotStart{err}
	}
	return s, nil
}

func (a *app) serve(ctx context.Context, o ServeOptions) error {
	if err := checkServe(&o); err != nil {
		return err
	}
	srv, err := a.start(ctx, o)
	if err != nil {
		return err
	}
	a.say("Listening on %s", srv.URL())
	if t := srv.FreshToken(); t != "" {
		a.showFreshToken(t)
	}
	return a.runUntilStopped(ctx, srv)
}

// showFreshToken shows a new token, once. It goes to the standard error, and
// not through the log, which is kept.
func (a *app) showFreshToken(token string) {
	fmt.Fprintf(a.stderr, "\nThe administrator's token. It is shown this once and cannot be had again:\n\n  %s\n\n"+
		"Keep it with: zopday login    or for this shell: export ZOPDAY_TOKEN=…\n\n", token)
}

func (a *app) runUntilStopped(ctx context.Context, srv Server) error {
	select {
	case <-ctx.Done():
		a.say("Stopping: steps come to a safe point, leases are handed back.")
	case <-srv.Done():
	}
	sctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
	defer cancel()
	err := srv.Close(sctx)
	if serr := srv.Err(); serr != nil {
		return serr
	}
	return err
}

func (a *app) simCmd() *cobra.Command {
	var o SimOptions
	var latency, caller string
	cmd := &cobra.Command{
		Use: "sim", Short: "Run the simulated clouds alone, with their control API", Args: args(0, 0, ""),
		Long: withExamples("Run the simulated clouds alone, each on its own port, with a control API beside them",
			"  zopday sim\n  zopday sim --latency 80ms/250ms --time-scale 60") + `

Everything is in memory and gone when it ends, unless --state names a directory. It answers the
SDKs of AWS, Google Cloud and Azure; what points them to it is printed at the start.
docs/simulation.md describes the control API.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.flagsFromEnv(cmd); err != nil {
				return err
			}
			var err error
			if o.ReadLatency, o.WriteLatency, err = parseLatency(latency); err != nil {
				return err
			}
			if o.TimeScale <= 0 {
				return usagef("--time-scale is %v; use a number above 0", o.TimeScale)
			}
			if o.Inside = caller == "inside"; !o.Inside && caller != "outside" {
				return usagef("--caller %q is neither inside nor outside", caller)
			}
			s, err := a.simulate(cmd.Context(), o)
			if err != nil {
				return err
			}
			a.showSimulation(s, o)
			<-cmd.Context().Done()
			sctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), 5*time.Second)
			defer cancel()
			return s.Close(sctx)
		},
	}
	simFlags(cmd, &o, &latency, 1)
	cmd.Flags().StringVar(&caller, "caller", "outside", "where who connects to clusters and datastores stands: `inside` their networks, or outside")
	cmd.Flags().StringVar(&o.State, "state", "", "`directory` to keep everything in, across restarts; in memory if left out")
	simAddresses(cmd, &o)
	return cmd
}

// simAddresses are where the simulated clouds listen.
func simAddresses(cmd *cobra.Command, o *SimOptions) {
	const bare = "; a bare number is a port, 0 any free one"
	cmd.Flags().StringVar(&o.Control, "control", "127.0.0.1:5090", "`address` of the simulation's control API"+bare)
	cmd.Flags().StringVar(&o.AWS, "aws", "127.0.0.1:5091", "`address` of the simulated AWS"+bare)
	cmd.Flags().StringVar(&o.GCP, "gcp", "127.0.0.1:5092", "`address` of the simulated Google Cloud"+bare)
	cmd.Flags().StringVar(&o.Azure, "azure", "127.0.0.1:5093", "`address` of the simulated Azure, which speaks TLS"+bare)
	cmd.Flags().StringVar(&o.Charts, "charts", "127.0.0.1:5094", "`address` of the stand-in charts"+bare)
}

func simFlags(cmd *cobra.Command, o *SimOptions, latency *string, scale float64) {
	cmd.Flags().StringVar(latency, "latency", "0", "time that every answer takes, or reads/writes such as 80ms/250ms")
	cmd.Flags().Float64Var(&o.TimeScale, "time-scale", scale, "simulated seconds in a real one")
	cmd.Flags().BoolVar(&o.Kube, "kube", false, "give simulated clusters a real Kubernetes API server each (make kube builds it)")
	cmd.Flags().Uint64Var(&o.Seed, "seed", 1, "the same seed and the same requests give the same IDs and delays")
}

// parseLatency reads "80ms" or "80ms/250ms".
func parseLatency(s string) (read, write time.Duration, err error) {
	one := func(s string) (time.Duration, error) {
		if n, err := strconv.Atoi(s); err == nil {
			return time.Duration(n) * time.Millisecond, nil
		}
		return time.ParseDuration(s)
	}
	r, w, two := strings.Cut(s, "/")
	if read, err = one(r); err == nil {
		write = read
		if two {
			write, err = one(w)
		}
	}
	if err != nil || read < 0 || write < 0 {
		return 0, 0, usagef("--latency %q is not a duration such as 80ms, or two such as 80ms/250ms for reads and writes", s)
	}
	return read, write, nil
}

// showSimulation prints where the simulated clouds are and how to use them.
func (a *app) showSimulation(s Simulation, o SimOptions) {
	_ = a.write([]byte(addresses(s, o.Kube))) // the addresses are the result; a closed pipe does not end the simulation
	var use strings.Builder
	for _, c := range s.Clouds() {
		use.WriteString("  export")
		for _, v := range c.Env {
			use.WriteString(" " + v.Name + "=" + v.Value)
		}
		use.WriteString("\n")
	}
	a.say("\nUse it:\n%s  zopday serve --time-scale %s --reach %s --chart-mirror %s\n\nCtrl-C ends it.", use.String(), strconv.FormatFloat(o.TimeScale, 'g', -1, 64), s.Reach(), s.ChartMirror())
}

// addresses are where the simulation answers, a line each.
func addresses(s Simulation, kube bool) string {
	var b strings.Builder
	for _, c := range s.Clouds() {
		fmt.Fprintf(&b, "%-13s %s  (simulated, %s)\n", c.Title, c.URL, c.Account)
	}
	fmt.Fprintf(&b, "%-13s %s  (stand-ins)\n", "Charts", s.ChartMirror())
	fmt.Fprintf(&b, "%-13s %s\n", "Control", s.ControlURL())
	kubernetes := "none: cluster jobs come as far as their components; make kube, then --kube, gives each cluster an API server"
	if kube {
		kubernetes = "a real API server for each simulated cluster"
	}
	fmt.Fprintf(&b, "%-13s %s\n", "Kubernetes", kubernetes)
	return b.String()
}

func (a *app) sandboxCmd() *cobra.Command {
	var so SimOptions
	var o ServeOptions
	var latency, db string
	cmd := &cobra.Command{
		Use: "sandbox", Short: "Run the provisioner and the simulated clouds together on this machine", Args: args(0, 0, ""),
		Long: withExamples("Run the provisioner and the simulated clouds together on this machine; nothing leaves it, and no cloud account is needed",
			"  zopday sandbox\n  zopday sandbox --latency 80ms/250ms --time-scale 20"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.flagsFromEnv(cmd); err != nil {
				return err
			}
			var err error
			if so.ReadLatency, so.WriteLatency, err = parseLatency(latency); err != nil {
				return err
			}
			if o.DB = db; db == "" {
				dir, err := os.MkdirTemp("", "zopday-sandbox-")
				if err != nil {
					return fmt.Errorf("sandbox: %w", err)
				}
				defer os.RemoveAll(dir)
				o.DB = filepath.Join(dir, "zopday.db")
			}
			o.Log, o.Token, o.TimeScale = a.stderr, a.getenv("ZOPDAY_BOOTSTRAP_TOKEN"), so.TimeScale
			so.Inside = o.Reach == "direct"
			return a.sandbox(cmd.Context(), so, o)
		},
	}
	simFlags(cmd, &so, &latency, 30)
	serveFlags(cmd, &o)
	if err := cmd.Flags().Set("log-level", "warn"); err != nil {
		panic(err) // a programming error
	}
	cmd.Flags().Lookup("log-level").Changed = false
	cmd.Flags().Lookup("log-level").DefValue = "warn"
	cmd.Flags().StringVar(&o.Listen, "listen", "127.0.0.1:5087", "`address` of the provisioner; port 0 is any free one")
	simAddresses(cmd, &so)
	cmd.Flags().StringVar(&db, "db", "", "`path` of an SQLite file to keep, or a postgres:// DSN; thrown away if left out")
	return cmd
}

func (a *app) sandbox(ctx context.Context, so SimOptions, o ServeOptions) error {
	if err := checkServe(&o); err != nil {
		return err
	}
	s, err := a.simulate(ctx, so)
	if err != nil {
		return err
	}
	defer s.Close(context.WithoutCancel(ctx))
	o.Clouds, o.Reach, o.ChartMirror = s.Clouds(), cmp.Or(o.Reach, s.Reach()), cmp.Or(o.ChartMirror, s.ChartMirror())
	srv, err := a.start(ctx, o)
	if err != nil {
		return err
	}
	token := cmp.Or(srv.FreshToken(), o.Token)
	_ = a.write([]byte(fmt.Sprintf("%-13s %s\n%s", "Server", srv.URL(), addresses(s, so.Kube))))
	show := "the one given before"
	if srv.FreshToken() != "" {
		show = token
	}
	fmt.Fprintf(a.stderr, "%-13s %s\n", "Token", show)
	a.say("\nIn another terminal:\n  export ZOPDAY_SERVER=%s ZOPDAY_TOKEN=%s\n  zopday jobs create -f examples/vm-aws-fixed.yaml --wait\n  zopday jobs delete docker-host --wait\n\nCtrl-C ends it, and everything in it is gone.",
		srv.URL(), show)
	return a.runUntilStopped(ctx, srv)
}
