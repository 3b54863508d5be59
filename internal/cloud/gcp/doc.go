// Package gcp implements the cloud interfaces with Google's own REST clients
// (google.golang.org/api).
//
// Every request goes through one http.RoundTripper (transport.go): it waits for
// its turn under the client's rate limit, asks the context's gate, is signed,
// traced and counted, and what comes back is either a whole JSON document or a
// *pipeline.CloudError, classified by one table (errors.go). Requests that
// change something are repeated there only after answers which prove that
// nothing happened; a lost answer is the pipeline's business.
//
// Compute Engine answers a change with an operation, which may still fail when
// it is carried out. Nobody waits for one inside a call: its name is remembered,
// and looking at the object looks at the operation first (operations.go).
//
// Everything that is made carries its marks in the call that makes it, as labels
// where the kind takes them then and as its description where it does not
// (marks.go), and is found again by them with one list a kind and pass (kinds.go).
//
// Cloud SQL and Memorystore (sql*.go, redis*.go, valkey*.go; what they share is in
// datastore*.go) answer with operations too, take no token and know what they made by
// its name. Nothing of an instance is ever changed but the deletion protection that a
// teardown lifts; SQL runs over the Data API, with the password that Cloud SQL itself
// reads from a regional secret.
//
// The ID of an object, in the ledger and in InfraConfig, is its relative resource
// name, such as projects/P/regions/R/subnetworks/S (links.go).
package gcp
