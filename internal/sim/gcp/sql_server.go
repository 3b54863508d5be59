package gcp

import (
	"context"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

// nobody answers here: the endpoint of a datastore that has no server.
const nobodyAnswers = "127.0.0.1:1"

// serverID is the identity of an instance's server among all.
func (in *sqlInstance) serverID() string { return sqlRoot + in.Path + "#" + strconv.Itoa(in.Serial) }

// Restored opens the servers of the instances of a state that was taken up again.
func (s *cloudSQL) Restored() {
	s.open = map[string]bool{}
	for _, in := range s.inOrder("") {
		if in.Address != "" {
			s.serve(in)
		}
	}
}

// serve makes the server behind an instance fit it.
func (s *cloudSQL) serve(in *sqlInstance) {
	db := s.cloud.opt.Databases
	switch state := in.state(); {
	case state == sqlFailed && !s.open[in.serverID()]:
		return
	case db == nil:
		in.Address = nobodyAnswers
	case state == sqlStopped || state == sqlFailed:
		if !in.Stopped {
			in.Stopped = true
			db.Stop(in.serverID())
		}
	default:
		s.openServer(in)
	}
	s.showAddresses(in)
}

func (s *cloudSQL) openServer(in *sqlInstance) {
	db, id := s.cloud.opt.Databases, in.serverID()
	if in.Root == "" {
		in.Root = s.cloud.World.Hex("", 32) // nobody knows it until it is set
	}
	engine, role := "postgres", "cloudsqlsuperuser"
	if !in.postgres() {
		engine = "mysql"
	}
	path, serial := in.Path, in.Serial
	at := db.Open(sim.DatabaseServer{ID: id, Engine: engine, Admin: in.admin(), Password: in.Root, AdminRole: role, Names: in.serverNames(),
		RequireTLS: slices.Contains([]string{"ENCRYPTED_ONLY", "TRUSTED_CLIENT_CERTIFICATE_REQUIRED"}, str(in.ip(), "sslMode")),
		Admits:     func(from sim.KubeCaller) bool { return s.admits(path, serial, from) }})
	in.Address = net.JoinHostPort(at.Host, strconv.Itoa(at.Port))
	if in.Stopped {
		in.Stopped = false
		db.Start(id)
	}
	if s.open[id] {
		return
	}
	s.open[id] = true
	for _, d := range in.Databases {
		if name := str(d.Doc, "name"); !slices.Contains(builtInDatabases, name) {
			db.CreateDatabase(id, name)
		}
	}
	for _, u := range in.Users {
		s.setUser(in, u)
	}
}

func (in *sqlInstance) serverNames() []string {
	names := []string{in.project() + ":" + in.name()}
	if n := str(in.Doc, "dnsName"); n != "" {
		names = append(names, strings.TrimSuffix(n, "."))
	}
	return names
}

// showAddresses puts the server's address into the document. Where a real instance has an address alone, this one has a port with it.
func (s *cloudSQL) showAddresses(in *sqlInstance) {
	var out []any
	if truth(in.ip(), "ipv4Enabled") {
		out = append(out, Doc{"type": "PRIMARY", "ipAddress": in.Address})
		if in.postgres() {
			out = append(out, Doc{"type": "OUTGOING", "ipAddress": in.Address})
		}
	}
	if str(in.ip(), "privateNetwork") != "" {
		out = append(out, Doc{"type": "PRIVATE", "ipAddress": in.Address})
	}
	in.Doc["ipAddresses"] = out
}

func (s *cloudSQL) closeServer(in *sqlInstance) {
	if db := s.cloud.opt.Databases; db != nil {
		db.Close(in.serverID())
	}
	delete(s.open, in.serverID())
}

// serverReady says whether the server behind an instance answers. One that never will is as good as ready: its endpoint refuses.
func (s *cloudSQL) serverReady(in *sqlInstance) bool {
	if s.cloud.opt.Databases == nil {
		return true
	}
	ready, err := s.cloud.opt.Databases.Ready(in.serverID())
	return ready || err != nil
}

// query runs a statement on the server behind an instance.
func (s *cloudSQL) query(in *sqlInstance, database, user, password, statement string) (columns []string, rows [][]string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return s.cloud.opt.Databases.Query(ctx, in.serverID(), database, user, password, statement)
}

// answers says whether statements can be run on the server behind an instance. One that is not ready yet will be in a moment, and
// queries wait for it.
func (s *cloudSQL) answers(in *sqlInstance) bool {
	if s.cloud.opt.Databases == nil {
		return false
	}
	_, err := s.cloud.opt.Databases.Ready(in.serverID())
	return err == nil
}
