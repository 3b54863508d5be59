package databases

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

// A front is the endpoint of a datastore.
type front struct {
	server   *server
	listener net.Listener
	port     int

	mu     sync.Mutex
	conns  map[net.Conn]bool // of clients
	closed bool
}

// startWait is how long a connection waits for a server that starts.
const startWait = 15 * time.Second

// portFile keeps the port in the folder of a datastore.
const portFile = "port"

func newFront(s *server) (*front, error) {
	f := &front{server: s, conns: map[net.Conn]bool{}}
	address := "127.0.0.1:0"
	if was, err := os.ReadFile(filepath.Join(s.dir, portFile)); err == nil && s.kept {
		address = "127.0.0.1:" + strings.TrimSpace(string(was))
	}
	var err error
	if f.listener, err = new(net.ListenConfig).Listen(s.ctx, "tcp", address); err != nil && s.kept {
		// Somebody else has the port by now.
		f.listener, err = new(net.ListenConfig).Listen(s.ctx, "tcp", "127.0.0.1:0")
	}
	if err != nil {
		return nil, err
	}
	f.port = f.listener.Addr().(*net.TCPAddr).Port
	go f.serve()
	return f, nil
}

func (f *front) endpoint() sim.DatabaseEndpoint {
	return sim.DatabaseEndpoint{Host: "127.0.0.1", Port: f.port}
}

func (f *front) serve() {
	for {
		conn, err := f.listener.Accept()
		if err != nil {
			return // closed
		}
		go f.pass(conn)
	}
}

func (f *front) admits() bool {
	admits := f.server.current().Admits
	return admits == nil || admits(f.server.all.from())
}

// pass joins a client's connection to one to the server, if it is let in.
func (f *front) pass(client net.Conn) {
	defer client.Close()
	if !f.follow(client) {
		return
	}
	defer f.forget(client)
	if !f.admits() {
		return
	}
	ctx, cancel := context.WithTimeout(f.server.ctx, startWait)
	defer cancel()
	if f.server.await(ctx, false) != nil {
		return
	}
	e, first := f.server.engine, make([]byte, 0, 1)
	if !e.speaksFirst() {
		first = first[:1]
		if _, err := io.ReadFull(client, first); err != nil {
			return
		}
	}
	var byteOne byte
	if len(first) > 0 {
		byteOne = first[0]
	}
	network, address := e.address(f.server.current().RequireTLS, byteOne)
	upstream, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return
	}
	defer upstream.Close()
	if _, err := upstream.Write(first); err != nil {
		return
	}
	done := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{upstream, client}, {client, upstream}} {
		go func() {
			_, _ = io.Copy(way[0], way[1]) // it ends when either side does
			done <- struct{}{}
		}()
	}
	<-done
}

func (f *front) follow(conn net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return false
	}
	f.conns[conn] = true
	return true
}

func (f *front) forget(conn net.Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.conns, conn)
}

// recheck closes the connections of those that are no longer let in.
func (f *front) recheck() {
	if !f.admits() {
		f.cut()
	}
}

// cut closes every connection.
func (f *front) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for conn := range f.conns {
		_ = conn.Close()
	}
}

// close refuses new connections and ends those there are.
func (f *front) close() {
	_ = f.listener.Close()
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.cut()
}
