// Command kube-sandbox runs a Kubernetes control plane in one process: etcd, the API server, the
// controller manager, the scheduler, and what stands for the kubelets of its nodes. It listens on
// loopback alone. When the API server is ready it prints one line of JSON that says where; it
// ends on SIGTERM, or when its standard input closes, and so never outlives who started it.
//
// Nothing is executed: a pod that is bound to a node is said to run.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"time"

	"k8s.io/klog/v2"
)

// ready is the line that says that the API server answers.
type ready struct {
	Server     string `json:"server"`     // https://127.0.0.1:port
	CA         string `json:"ca"`         // PEM
	Kubeconfig string `json:"kubeconfig"` // the path of a file of mode 0600
	Token      string `json:"token"`      // of a member of system:masters
}

// startTimeout bounds how long a start may take on a machine that is busy building something.
const startTimeout = 3 * time.Minute

func main() {
	dir := flag.String("dir", "", "keep the data in `folder`, and go on with what is there; without it a temporary one")
	remove := flag.Bool("remove", false, "remove the folder at the end, as a temporary one is")
	bare := flag.Bool("bare", false, "etcd and the API server alone: no controllers, no scheduler, no kubelets")
	flag.Parse()
	if err := run(*dir, *remove || *dir == "", *bare); err != nil {
		fmt.Fprintln(os.Stderr, "kube-sandbox:", err)
		os.Exit(1)
	}
}

func run(dir string, remove, bare bool) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()

	if dir == "" {
		temp, err := os.MkdirTemp("", "kube-sandbox-")
		if err != nil {
			return err
		}
		dir = temp
	}
	if remove {
		defer func() { _ = os.RemoveAll(dir) }()
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	closeLog, err := logTo(filepath.Join(dir, "log"))
	if err != nil {
		return err
	}
	defer closeLog()
	// Several of these run on one machine, mostly idle: memory is dearer than time.
	debug.SetGCPercent(50)

	p, err := makePKI(dir)
	if err != nil {
		return err
	}
	alive, end := context.WithCancel(context.WithoutCancel(ctx))
	plane, err := startPlane(alive, dir, p, bare)
	if err != nil {
		end()
		return err
	}
	// etcd is not closed: it waits for clients that are of this process, and a start finds what it
	// has handed to the system however it ended.
	defer func() {
		end()
		plane.clean()
	}()
	if err := plane.awaitReady(ctx, alive, startTimeout); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	if err := announce(os.Stdout, ready{Server: plane.server, CA: string(p.caPEM), Kubeconfig: p.kubeconfig, Token: p.token}); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-plane.failed:
		return err
	}
}

func announce(w io.Writer, r ready) error {
	out := bufio.NewWriter(w)
	if err := json.NewEncoder(out).Encode(r); err != nil {
		return err
	}
	return out.Flush()
}

// logTo sends what every component logs to a file, so that standard error has our own words alone.
func logTo(path string) (closeLog func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	for name, value := range map[string]string{
		"logtostderr": "false", "alsologtostderr": "false", "stderrthreshold": "FATAL", "one_output": "true",
	} {
		if err := flags.Set(name, value); err != nil {
			return nil, err
		}
	}
	klog.SetOutput(f)
	log.SetOutput(f)
	return func() {
		klog.Flush()
		_ = f.Close()
	}, nil
}
