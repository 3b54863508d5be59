// Package provision holds the use cases behind the REST API, the web interface
// and the command line: create, list, change, retry and delete a job, and ask
// what it would do, what it did and why it is where it is.
//
// Every entry checks the caller's policy first, sees only the caller's
// organisation, and writes the audit log in the transaction of the change; a
// refused change is written there too. Nothing here calls a cloud inside of a
// transaction, and nothing changes one at all: that is the reconciler's part.
package provision
