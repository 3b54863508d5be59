package aws

import (
	"context"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/zopday/provisioner/internal/pipeline"
)

// renewal gets new credentials the next time that some are needed; nil for those
// that never change, or are asked for each time.
func renewal(c aws.CredentialsProvider) func() {
	if cache, ok := c.(*aws.CredentialsCache); ok {
		return cache.Invalidate
	}
	return nil
}

// renewed has credentials renewed that the cloud says have expired, and reports
// whether the call may be repeated with the new ones: a read, once. A change comes
// up as it is: the engine waits for credentials, and looks before it repeats.
func (f *flight) renewed(ce *pipeline.CloudError, renew func()) bool {
	if ce.Class != pipeline.Expired || renew == nil || !ce.Sent {
		return false
	}
	renew()
	if f.mutating || f.again {
		return false
	}
	f.again = true
	return true
}

// holder lets no change leave that is signed with the credentials of another AWS
// account than the one that the cloud account was verified to be (failure kind F5).
// It goes by the key in the signature itself, so that credentials which are swapped
// between two steps, or between a check and a call, are found.
func (p *Provider) holder(ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler) (middleware.DeserializeOutput, middleware.Metadata, error) {
	f := flightOf(ctx)
	if f == nil || !f.mutating {
		return next.HandleDeserialize(ctx, in)
	}
	account, err := p.signedBy(ctx, in.Request)
	if err == nil && account != p.account.Holder {
		err = pipeline.Fatal("wrong-account", fmt.Sprintf("the credentials of cloud account %s now belong to AWS account %s, and it was verified to be %s; %s %s was not sent", accountName(p.account), account, p.account.Holder, f.service, f.op),
			"Restore the credentials of AWS account "+p.account.Holder+", or verify the cloud account again if the change is meant, then retry.").On("cloudAccountId")
	}
	if err == nil {
		return next.HandleDeserialize(ctx, in)
	}
	f.sent = false
	if asFatal(err) != nil {
		err = &pipeline.CloudError{Class: pipeline.Refused, Service: f.service, Op: f.op, Message: err.Error(), Err: err}
	}
	return middleware.DeserializeOutput{}, middleware.Metadata{}, err
}

// signedBy is the AWS account whose key a request is signed with.
func (p *Provider) signedBy(ctx context.Context, request any) (string, error) {
	r, ok := request.(*smithyhttp.Request)
	if !ok {
		return "", &pipeline.CloudError{Class: pipeline.Unknown, Service: "STS", Op: "GetCallerIdentity", Message: "the request cannot be read"}
	}
	_, rest, _ := strings.Cut(r.Header.Get("Authorization"), "Credential=")
	key, _, _ := strings.Cut(rest, "/")
	if account := p.accountOf(key); account != "" {
		return account, nil
	}
	if _, err := p.Caller(ctx); err != nil { // learns the account of the key in use
		return "", err
	}
	if account := p.accountOf(key); account != "" {
		return account, nil
	}
	return "", &pipeline.CloudError{Class: pipeline.Expired, Service: "STS", Op: "GetCallerIdentity", Message: "the credentials have changed while a call was made with them"}
}

func (p *Provider) accountOf(key string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.callers[key]
}
