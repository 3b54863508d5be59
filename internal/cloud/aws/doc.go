// Package aws implements the cloud interfaces with the AWS SDK for Go v2.
//
// Every call goes through one middleware stack (middleware.go): it waits for
// its turn under the client's rate limit, asks the context's gate, is traced
// and counted, and its error comes back as a *pipeline.CloudError, classified
// by one table (errors.go). Calls that change something are repeated by the
// SDK only after answers which prove that nothing happened; a lost answer is
// the pipeline's business.
//
// Everything that is made is tagged in the call that makes it (tags.go), and
// found again by those tags with one list a kind and pass (kinds.go).
package aws
