// Package azure implements the cloud interfaces with the Azure SDK for Go.
//
// Azure Resource Manager has one protocol for everything: a resource is known
// by an ID that is made of names, is made and changed by PUT, and says in
// provisioningState how far it is. So there is one client (arm.go), the SDK's
// own arm.Client with its credentials and pipeline, and the SDK's models say
// what each kind of resource looks like.
//
// Every call goes through one policy (call.go): it waits for its turn under the
// client's rate limit, asks the context's gate, is traced and counted, and its
// error comes back as a *pipeline.CloudError, classified by one table
// (errors.go). Calls that change something are repeated only after answers
// which prove that nothing happened; a lost answer is the pipeline's business.
//
// A PUT makes or overwrites, and a DELETE takes what lies inside along. So
// nothing is put before it was looked for, and what is there has to carry the
// job's mark (kinds.go); and nothing is deleted while something lies inside
// that the job did not make.
//
// Long operations are never waited for inside a call: the PUT or DELETE is
// sent, and later passes read how far the resource is. If it failed, the
// operation's error is read (operation.go).
package azure
