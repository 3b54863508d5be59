// Package databases gives simulated datastores and caches servers that are real: it implements
// [sim.Databases] with PostgreSQL, MariaDB and Redis processes of this machine, one for each
// datastore.
//
// Before each server stands a front with a port of its own, which does what a cloud's network
// does: it asks the cloud whether the caller gets through from where it stands, passes the bytes
// on, and closes without a word what is not let in. TLS goes through to the server, which has a
// certificate of the instance's own authority, so that clients verify as they do at a cloud.
//
// The administrator is what clouds make of one: it may make roles and databases, and is no
// superuser. What the clouds' control planes do goes in as a user of the package's own, over a
// Unix socket.
//
// Where the machine lacks a server's binary, the endpoint closes every connection, and Ready and
// Down say so.
package databases
