package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"
	"go.etcd.io/etcd/server/v3/embed"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	cliflag "k8s.io/component-base/cli/flag"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	apiserveroptions "k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	manager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	manageroptions "k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	scheduleroptions "k8s.io/kubernetes/cmd/kube-scheduler/app/options"
)

// A plane is a control plane that runs in this process.
type plane struct {
	server string // https://127.0.0.1:port
	failed chan error

	pki   *pki
	bare  bool
	etcd  *embed.Etcd
	clean func() // removes the sockets
}

// sockets is the folder of etcd's sockets, which it has instead of ports: nobody else on the
// machine can speak to it. Unix refuses long names of sockets; then they are in a folder of their own.
func sockets(dir string) (string, func(), error) {
	const longest = 90
	if len(dir) <= longest {
		return dir, func() {}, nil
	}
	dir, err := os.MkdirTemp("", "kube-sandbox-")
	return dir, func() { _ = os.RemoveAll(dir) }, err
}

func socket(dir, name string) url.URL {
	return url.URL{Scheme: "unix", Path: filepath.Join(dir, name)}
}

// startPlane starts etcd and the API server, which lives as long as the context, and returns
// before that is ready.
func startPlane(ctx context.Context, dir string, p *pki, bare bool) (*plane, error) {
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
	pl := &plane{pki: p, bare: bare, failed: make(chan error, 4)}
	var (
		sock string
		err  error
	)
	if sock, pl.clean, err = sockets(dir); err != nil {
		return nil, err
	}
	if pl.etcd, err = startEtcd(dir, sock); err != nil {
		pl.clean()
		return nil, fmt.Errorf("etcd: %w", err)
	}
	client := socket(sock, "etcd.sock")
	if err := pl.startServer(ctx, client.String()); err != nil {
		pl.clean()
		return nil, fmt.Errorf("API server: %w", err)
	}
	return pl, nil
}

func startEtcd(dir, sockets string) (*embed.Etcd, error) {
	client, peer := socket(sockets, "etcd.sock"), socket(sockets, "peer.sock")
	c := embed.NewConfig()
	c.Dir = filepath.Join(dir, "etcd")
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	c.UnsafeNoFsync = true // what is lost when the machine fails is a sandbox
	c.LogLevel = "error"
	c.LogOutputs = []string{filepath.Join(dir, "etcd.log")}
	etcd, err := embed.StartEtcd(c)
	if err != nil {
		return nil, err
	}
	select {
	case <-etcd.Server.ReadyNotify():
		return etcd, nil
	case err := <-etcd.Err():
		return nil, err
	case <-time.After(startTimeout):
		etcd.Close()
		return nil, errors.New("not ready in time")
	}
}

// startServer runs the API server on a free port of loopback.
func (pl *plane) startServer(ctx context.Context, etcd string) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	o := apiserveroptions.NewServerRunOptions()
	o.SecureServing.Listener = listener
	o.SecureServing.BindPort = listener.Addr().(*net.TCPAddr).Port
	pl.server = "https://" + listener.Addr().String()

	p := pl.pki
	err = parse(o.Flags(),
		"--etcd-servers="+etcd,
		"--bind-address=127.0.0.1",
		"--endpoint-reconciler-type=none", // it refuses a loopback address
		"--tls-cert-file="+p.path("server.crt"),
		"--tls-private-key-file="+p.path("server.key"),
		"--client-ca-file="+p.path("ca.crt"),
		"--token-auth-file="+p.path("tokens.csv"),
		"--anonymous-auth=false",
		"--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file="+p.path("service-accounts.key"),
		"--service-account-signing-key-file="+p.path("service-accounts.key"),
		"--service-cluster-ip-range=10.96.0.0/16",
		"--allow-privileged=true",
		"--profiling=false",
		"--enable-priority-and-fairness=false",
	)
	if err != nil {
		return err
	}
	if err := o.GenericServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
		return err
	}
	completed, err := o.Complete(ctx)
	if err != nil {
		return err
	}
	if errs := completed.Validate(); len(errs) != 0 {
		return utilerrors.NewAggregate(errs)
	}
	if err := p.writeKubeconfig(pl.server); err != nil {
		return err
	}
	pl.watch(ctx, "API server", func() error { return apiserver.Run(ctx, completed) })
	return nil
}

// watch runs one component; that it ends before the plane does is a failure of the plane.
func (pl *plane) watch(ctx context.Context, name string, run func() error) {
	go func() {
		err := run()
		if ctx.Err() == nil {
			pl.failed <- fmt.Errorf("%s ended: %w", name, err)
		}
	}()
}

// awaitReady waits until the API server answers /readyz, then starts the rest, which lives as
// long as the second context.
func (pl *plane) awaitReady(ctx, alive context.Context, limit time.Duration) error {
	client, err := kubernetes.NewForConfig(pl.config())
	if err != nil {
		return err
	}
	timeout := time.After(limit)
	for tick := time.NewTicker(50 * time.Millisecond); ; {
		last := client.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
		if last == nil {
			tick.Stop()
			break
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-pl.failed:
			return err
		case <-timeout:
			return fmt.Errorf("API server: not ready in %s: %w", limit, last)
		case <-tick.C:
		}
	}
	if pl.bare {
		return nil
	}
	if err := pl.startManager(alive); err != nil {
		return fmt.Errorf("controller manager: %w", err)
	}
	if err := pl.startScheduler(alive); err != nil {
		return fmt.Errorf("scheduler: %w", err)
	}
	if err := startNamespaces(alive, pl.config(), client); err != nil {
		return fmt.Errorf("namespaces: %w", err)
	}
	return startKubelets(alive, client)
}

// config is the administrator's, without the limits that client-go sets itself.
func (pl *plane) config() *rest.Config {
	return &rest.Config{
		Host:            pl.server,
		BearerToken:     pl.pki.token,
		TLSClientConfig: rest.TLSClientConfig{CAData: pl.pki.caPEM},
		QPS:             -1,
	}
}

func (pl *plane) startManager(ctx context.Context) error {
	o, err := manageroptions.NewKubeControllerManagerOptions()
	if err != nil {
		return err
	}
	known, off, aliases := manager.KnownControllers(), manager.ControllersDisabledByDefault(), manager.ControllerAliases()
	err = parse(o.Flags(known, off, aliases),
		"--kubeconfig="+pl.pki.kubeconfig,
		"--secure-port=0",
		"--leader-elect=false",
		"--service-account-private-key-file="+pl.pki.path("service-accounts.key"),
		"--root-ca-file="+pl.pki.path("ca.crt"),
		// No volume is attached, no certificate signed: there is no machine. Namespaces see to themselves.
		"--controllers=*,-persistentvolume-attach-detach-controller,-certificatesigningrequest-signing-controller,-namespace-controller",
		"--kube-api-qps=500",
		"--kube-api-burst=1000",
		"--profiling=false",
	)
	if err != nil {
		return err
	}
	c, err := o.Config(ctx, known, off, aliases)
	if err != nil {
		return err
	}
	pl.watch(ctx, "controller manager", func() error { return manager.Run(ctx, c.Complete()) })
	return nil
}

func (pl *plane) startScheduler(ctx context.Context) error {
	o := scheduleroptions.NewOptions()
	err := parse(*o.Flags,
		"--kubeconfig="+pl.pki.kubeconfig,
		"--secure-port=0",
		"--leader-elect=false",
		"--kube-api-qps=500",
		"--kube-api-burst=1000",
		"--profiling=false",
	)
	if err != nil {
		return err
	}
	config, s, err := scheduler.Setup(ctx, o)
	if err != nil {
		return err
	}
	pl.watch(ctx, "scheduler", func() error { return scheduler.Run(ctx, config, s) })
	return nil
}

func parse(sets cliflag.NamedFlagSets, args ...string) error {
	all := pflag.NewFlagSet("kube-sandbox", pflag.ContinueOnError)
	for _, set := range sets.FlagSets {
		all.AddFlagSet(set)
	}
	return all.Parse(args)
}
