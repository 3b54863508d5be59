package azure

import (
	"encoding/json"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

// nobody is where nothing listens: a machine without servers shows it as the endpoint.
var nobody = sim.DatabaseEndpoint{Host: "127.0.0.1", Port: 1}

// databaseServers keeps the real servers behind flexible servers and caches as those are. It is used with the world locked.
type databaseServers struct {
	cloud *Cloud
	open  map[string]*openServer // by lower-case resource ID
	// lag is how old the view of what is in a server may be.
	lag time.Duration
}

// An openServer is what was last said of a server.
type openServer struct {
	service, id string
	said        sim.DatabaseServer
	at          sim.DatabaseEndpoint
	stopped     bool
	changed     time.Time // by the control plane, in real time
}

func newDatabaseServers(c *Cloud) *databaseServers {
	return &databaseServers{cloud: c, open: map[string]*openServer{}, lag: 1500 * time.Millisecond}
}

// changed notes that the control plane has changed what is in a server.
func (s *databaseServers) changed(id string) {
	if o := s.open[key(id)]; o != nil {
		o.changed = time.Now()
	}
}

// caughtUp says whether the view of what is in a server is younger than the last change of the control plane.
func (s *databaseServers) caughtUp(id string) bool {
	o := s.open[key(id)]
	return o != nil && time.Since(o.changed) >= s.lag
}

// resume opens the servers of a service whose saved state was taken up.
func (s *databaseServers) resume(service string) {
	for _, res := range s.cloud.shelves[service].sorted() {
		s.cloud.refreshDatastore(res)
	}
}

// forget closes the servers of a service whose resources are gone.
func (s *databaseServers) forget(service string) {
	for at, o := range s.open {
		if o.service == service {
			s.close(at)
		}
	}
}

func (s *databaseServers) close(id string) {
	if o := s.open[key(id)]; o != nil {
		s.cloud.opt.Databases.Close(o.id)
		delete(s.open, key(id))
	}
}

// set opens a server, or changes one that is open; stopped ends its process.
func (s *databaseServers) set(service string, d sim.DatabaseServer, stopped bool) {
	dbs := s.cloud.opt.Databases
	if dbs == nil {
		return
	}
	o := s.open[key(d.ID)]
	fresh := o == nil
	if fresh {
		o = &openServer{service: service, id: d.ID}
		s.open[key(d.ID)] = o
	}
	if fresh || !sameServer(o.said, d) {
		o.said, o.at = d, dbs.Open(d)
	}
	switch {
	case stopped && !o.stopped:
		dbs.Stop(o.id)
	case !stopped && o.stopped:
		dbs.Start(o.id)
	}
	o.stopped = stopped
}

func sameServer(a, b sim.DatabaseServer) bool {
	return a.Engine == b.Engine && a.RequireTLS == b.RequireTLS && a.Admin == b.Admin && a.Password == b.Password && a.OpenDefault == b.OpenDefault && slices.Equal(a.Names, b.Names)
}

// endpoint is where a resource's server answers.
func (s *databaseServers) endpoint(id string) sim.DatabaseEndpoint {
	if o := s.open[key(id)]; o != nil {
		return o.at
	}
	return nobody
}

// hostPort is an endpoint as an API shows it that has no member for the port.
func hostPort(e sim.DatabaseEndpoint, standard int) string {
	if e.Port == standard {
		return e.Host
	}
	return net.JoinHostPort(e.Host, strconv.Itoa(e.Port))
}

// refreshDatastore makes the server behind a resource what the resource is.
func (c *Cloud) refreshDatastore(res *Resource) {
	switch {
	case flexOf(res.Type) != nil && flexOf(res.Type).typ == res.Type:
		c.refreshServer(res)
	case res.Type == managedDatabaseType:
		c.refreshManagedRedis(res)
	case res.Type == oldCacheType:
		c.refreshOldCache(res)
	}
}

// The secrets of a service are kept beside its resources, so that nobody finds them in what is shown of those.
const secretStore = "secrets"

func (c *Cloud) secrets(service string) map[string]string {
	out := map[string]string{}
	c.extra(service, secretStore, &out)
	return out
}

// extra reads what keepExtra has kept; into stays as it is if that is nothing.
func (c *Cloud) extra(service, name string, into any) {
	if raw := c.shelves[service].state.Extra[name]; raw != nil {
		if err := json.Unmarshal(raw, into); err != nil {
			panic(err) // it was written by keepExtra
		}
	}
}

// secret is the one that belongs to an ID, or "".
func (c *Cloud) secret(service, id string) string { return c.secrets(service)[key(id)] }

// setSecret keeps a secret, or forgets it if it is "".
func (c *Cloud) setSecret(service, id, value string) {
	all := c.secrets(service)
	all[key(id)] = value
	if value == "" {
		delete(all, key(id))
	}
	c.keepExtra(service, secretStore, all)
}

// keepExtra keeps something of a service that is no resource.
func (c *Cloud) keepExtra(service, name string, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // plain data
	}
	s := c.shelves[service]
	if s.state.Extra == nil {
		s.state.Extra = map[string]json.RawMessage{}
	}
	s.state.Extra[name] = b
}

var (
	passwordMember = regexp.MustCompile(`"administratorLoginPassword"\s*:\s*"(?:[^"\\]|\\.)*"`)
	valueMember    = regexp.MustCompile(`"value"\s*:\s*"(?:[^"\\]|\\.)*"`)
)

// withoutSecrets is a request body without the secrets in it: faults look into it, and people into faults.
func withoutSecrets(path string, body []byte) string {
	text := passwordMember.ReplaceAllString(string(body), `"administratorLoginPassword":"***"`)
	if strings.HasPrefix(strings.ToLower(path), vaultPrefix) || strings.Contains(strings.ToLower(path), "/secrets/") {
		text = valueMember.ReplaceAllString(text, `"value":"***"`)
	}
	return text
}

// admittedBy says whether ranges of addresses let a caller in; each is a pair of first and last.
func admittedBy(ranges [][2]string, from netip.Addr) bool {
	return slices.ContainsFunc(ranges, func(r [2]string) bool {
		first, err1 := netip.ParseAddr(r[0])
		last, err2 := netip.ParseAddr(r[1])
		return err1 == nil && err2 == nil && first.Compare(from) <= 0 && from.Compare(last) <= 0
	})
}
