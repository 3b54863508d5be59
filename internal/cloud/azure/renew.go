package azure

import (
	"context"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// renewable are credentials that can be had anew. The libraries below renew a token
// before the end that it says it has; one that is refused earlier, since it was
// revoked or the clocks differ, stays in their cache, and goes only with them
// (failure kind I1).
type renewable struct {
	again func(context.Context) (azcore.TokenCredential, error)

	mu   sync.Mutex
	now  azcore.TokenCredential
	made time.Time
}

// GetToken is a token of the credentials as they are now.
func (r *renewable) GetToken(ctx context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	r.mu.Lock()
	now := r.now
	r.mu.Unlock()
	return now.GetToken(ctx, o)
}

// renew makes the credentials anew, unless that was done since a call began whose
// token was refused. If they cannot be made the old ones stay.
func (r *renewable) renew(ctx context.Context, began time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.made.After(began) {
		return
	}
	if fresh, err := r.again(ctx); err == nil {
		r.now, r.made = fresh, time.Now()
	}
}
