package gcp

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/api/redis/v1"

	"github.com/zopday/provisioner/internal/sim"
	"github.com/zopday/provisioner/internal/sim/databases"
)

// TestRealRedis: an instance's endpoint leads to a real Redis server, which wants TLS and the AUTH string.
func TestRealRedis(t *testing.T) {
	t.Parallel()
	servers, err := databases.New(databases.Options{Caller: sim.KubeCaller{Inside: true}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(servers.Shutdown)
	g := &redisRig{rig: newRigWith(t, Options{Databases: servers})}
	g.ProjectsLocationsService = client(g.rig, redis.NewService).Projects.Locations
	op, err := g.Instances.Create(redisParent, cache(g.peered("shop", 24))).InstanceId("sessions").Do()
	for deadline := time.Now().Add(time.Minute); err == nil && !op.Done && time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		g.world.Step(10 * time.Second)
		op, err = g.Operations.Get(op.Name).Do()
	}
	if err != nil || !op.Done || op.Error != nil {
		t.Fatalf("operation: %+v, %v", op, err)
	}
	const name = redisParent + "/instances/sessions"
	in, err := g.Instances.Get(name).Do()
	if err != nil {
		t.Fatal(err)
	}
	auth, err := g.Instances.GetAuthString(name).Do()
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(in.ServerCaCerts[0].Cert)) {
		t.Fatalf("serverCaCerts: %+v", in.ServerCaCerts)
	}
	address := net.JoinHostPort(in.Host, fmt.Sprint(in.Port))
	ask := func(commands ...string) string {
		t.Helper()
		c, err := tls.DialWithDialer(&net.Dialer{Timeout: 10 * time.Second}, "tcp", address, &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte(strings.Join(commands, "\r\n") + "\r\n")); err != nil {
			t.Fatal(err)
		}
		r, out := bufio.NewReader(c), ""
		for range commands {
			line, err := r.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			out += strings.TrimSpace(line) + " "
		}
		return out
	}
	if got := ask("AUTH "+auth.AuthString, "SET a b", "PING"); got != "+OK +OK +PONG " {
		t.Errorf("with the AUTH string: %s", got)
	}
	if got := ask("PING"); !strings.HasPrefix(got, "-NOAUTH") {
		t.Errorf("without the AUTH string: %s", got)
	}
	if got := ask("AUTH nonsense"); !strings.HasPrefix(got, "-WRONGPASS") {
		t.Errorf("with a wrong AUTH string: %s", got)
	}
	servers.SetCaller(sim.KubeCaller{})
	if c, err := tls.DialWithDialer(&net.Dialer{Timeout: 5 * time.Second}, "tcp", address, &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}); err == nil {
		c.Close()
		t.Error("a caller from outside was let in")
	}
}
