// Command zopday is the ZopDay provisioner: server, command line, and a
// simulated cloud to try both on.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/zopday/provisioner/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process at once
	code := cli.Main(ctx, os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}, os.Getenv, backends())
	stop()
	os.Exit(code)
}
