package aws

import (
	"fmt"
	"reflect"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

// databaseBridge keeps the servers behind datastores and caches as these are. It compares what should be there with what
// it has asked for, so that neither a swallowed request nor a restart of the simulation leaves them apart. It is guarded by
// the world's lock.
type databaseBridge struct {
	cloud   *Cloud
	sources []func() []wantedDatabase // the services that have servers
	open    map[string]*openDatabase
}

// openDatabase is a server as it was asked for last.
type openDatabase struct {
	wanted wantedDatabase
	at     sim.DatabaseEndpoint
}

// wantedDatabase is a server that should be there.
type wantedDatabase struct {
	server  sim.DatabaseServer // without its functions
	stopped bool
	users   map[string]sim.DatabaseUser
	admits  func(sim.KubeCaller) bool
	placed  func(sim.DatabaseEndpoint) // notes where it answers
}

func (w wantedDatabase) same(o wantedDatabase) bool {
	a, b := w.server, o.server
	a.Admits, b.Admits = nil, nil
	return reflect.DeepEqual(a, b)
}

// lockedSync is sync for a caller that does not hold the world's lock.
func (b *databaseBridge) lockedSync() {
	b.cloud.World.Lock()
	defer b.cloud.World.Unlock()
	b.sync()
}

// sync brings the servers in line with the datastores and caches. The world must be locked.
func (b *databaseBridge) sync() {
	if b.open == nil {
		b.open = map[string]*openDatabase{}
	}
	want := map[string]bool{}
	for _, source := range b.sources {
		for _, w := range source() {
			want[w.server.ID] = true
			w.placed(b.adjust(w))
		}
	}
	for id := range b.open {
		if !want[id] {
			if db := b.cloud.opt.Databases; db != nil {
				db.Close(id)
			}
			delete(b.open, id)
		}
	}
}

// adjust opens one server, changes it, stops or starts it.
func (b *databaseBridge) adjust(w wantedDatabase) sim.DatabaseEndpoint {
	id, db := w.server.ID, b.cloud.opt.Databases
	if db == nil {
		return b.nowhere(id)
	}
	o := b.open[id]
	if o == nil || !o.wanted.same(w) {
		server := w.server
		server.Admits = w.admits
		at := db.Open(server)
		if o == nil {
			o = &openDatabase{}
			b.open[id] = o
		}
		o.at, o.wanted.server = at, w.server
	}
	if o.wanted.stopped != w.stopped {
		if w.stopped {
			db.Stop(id)
		} else {
			db.Start(id)
		}
		o.wanted.stopped = w.stopped
	}
	for _, name := range sortedKeys(w.users) {
		if u := w.users[name]; !reflect.DeepEqual(o.wanted.users[name], u) {
			db.SetUser(id, u)
		}
	}
	for _, name := range sortedKeys(o.wanted.users) {
		if _, ok := w.users[name]; !ok {
			db.DropUser(id, name)
		}
	}
	o.wanted.users = w.users
	return o.at
}

// nowhere is an address on loopback that nobody answers: its port is one of those that only the system may open.
func (b *databaseBridge) nowhere(id string) sim.DatabaseEndpoint {
	return sim.DatabaseEndpoint{Host: "127.0.0.1", Port: 200 + int(b.cloud.World.Fraction("nowhere", id)*800)}
}

// managedInterface puts a network interface of a service into a subnet: the customer sees it, cannot delete it, and cannot
// delete the subnet or the security groups before it is gone ("Requester-managed network interfaces").
func (c *Cloud) managedInterface(in scope, subnet string, groups []string, requester, description, holder string) (string, error) {
	sc := c.ec2.in(in)
	sub := sc.Subnets[subnet]
	if sub == nil {
		return "", noSubnet(subnet)
	}
	refs, err := sc.groupRefs(sub.VpcID, groups)
	if err != nil {
		return "", err
	}
	n, err := c.ec2.newInterface(sc, sub, refs, description, "interface")
	if err != nil {
		return "", err
	}
	n.Status, n.RequesterManaged, n.RequesterID, n.Holder, n.Default = "in-use", true, requester, holder, true
	n.Attachment = &attachment{ID: c.hex17("eni-attach-"), InstanceOwnerID: requester, DeviceIndex: 1, Status: "attached", AttachTime: n.Created}
	return n.InterfaceID, nil
}

// lingering is how long the network interfaces of a deleted datastore stay: longer than what they belonged to, by a minute or
// so (https://github.com/hashicorp/terraform-provider-aws/issues/1671 has many such waits).
func (c *Cloud) lingering(id string) time.Duration {
	return 30*time.Second + time.Duration(c.World.Fraction("linger", id)*float64(time.Minute))
}

// groupsAdmit says whether security groups let an address on the internet in.
func (c *Cloud) groupsAdmit(in scope, groups []string, from sim.KubeCaller, port int) bool {
	return from.IP.IsValid() && c.ec2.in(in).admits(groups, false, nil, []string{from.IP.String()}, port)
}

// tokenLetters are those of names that AWS draws for endpoints.
const tokenLetters = "abcdefghijklmnopqrstuvwxyz0123456789"

// accountHash is the part of endpoints' names that is the same for an account in a region.
func (c *Cloud) accountHash(in scope, salt string, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = tokenLetters[int(c.World.Fraction("endpoint", salt, in.key(), fmt.Sprint(i))*float64(len(tokenLetters)))]
	}
	return "c" + string(b[1:])
}
