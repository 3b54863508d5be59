package azure

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/zopday/provisioner/internal/sim"
	"github.com/zopday/provisioner/internal/sim/databases"
)

// ping authenticates at a Redis server with a key and answers what it says to that, and to a PING.
func ping(t *testing.T, servers *databases.Databases, port int, name, key string) string {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(servers.CA())
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: pool, ServerName: name, MinVersion: tls.VersionTLS12}}
	conn, err := dialer.DialContext(t.Context(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := fmt.Fprintf(conn, "AUTH %s\r\nPING\r\n", key); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(conn)
	var answers []string
	for range 2 {
		answers = append(answers, strings.TrimSpace(must(in.ReadString('\n'))(t)))
	}
	return strings.Join(answers, " ")
}

// TestRealManagedRedis: the access key opens the server, and none does when access keys are off.
func TestRealManagedRedis(t *testing.T) {
	t.Parallel()
	servers := must(databases.New(databases.Options{Caller: sim.KubeCaller{Inside: true}}))(t)
	t.Cleanup(servers.Shutdown)
	g := newRig(t)
	g.cloud.opt.Databases = servers
	g.group("rg")
	p := g.raw()
	const v = "?api-version=2025-07-01"
	cluster, db := cachePath+"redisEnterprise/cache1", cachePath+"redisEnterprise/cache1/databases/default"
	body := managedBody("Balanced_B0")
	body.sub("properties")["publicNetworkAccess"] = "Enabled"
	p.code("PUT", cluster+v, body)
	p.settle(cluster+v, "Succeeded")
	p.code("PUT", db+v, doc{"properties": map[string]any{"accessKeysAuthentication": "Enabled"}})
	made := p.settle(db+v, "Succeeded")
	ready(t, servers, db)
	_, _, keys := p.code("POST", db+"/listKeys"+v, doc{})
	port := int(made.num("properties.port"))
	if got := ping(t, servers, port, "cache1.westus2.redis.azure.net", keys.str("primaryKey")); got != "+OK +PONG" {
		t.Errorf("with the key: %s", got)
	}
	if got := ping(t, servers, port, "cache1.westus2.redis.azure.net", "wrong"); !strings.HasPrefix(got, "-WRONGPASS") {
		t.Errorf("with another: %s", got)
	}
	p.code("PATCH", db+v, doc{"properties": map[string]any{"accessKeysAuthentication": "Disabled"}})
	p.settle(db+v, "Succeeded")
	ready(t, servers, db)
	if got := ping(t, servers, port, "cache1.westus2.redis.azure.net", keys.str("primaryKey")); strings.Contains(got, "PONG") {
		t.Errorf("with the key when keys are off: %s", got)
	}
}
