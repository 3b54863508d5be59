// Package access says who a request comes from and what that principal may do.
// Nothing is allowed by default: a principal without a role that grants a policy
// is refused, and so is a context without a principal.
package access

import (
	"context"
	"fmt"
)

// DefaultOrg is the organisation that an installation starts with.
const DefaultOrg = "default"

// A Principal is who a request comes from.
type Principal struct {
	OrgID string   // everything it sees or makes belongs to this organisation
	Actor string   // as the audit log writes it, such as "token:bootstrap"
	Roles []string // names of roles
}

type principalKey struct{}

// With puts a principal into the context of its request.
func With(ctx context.Context, p Principal) context.Context {
	return context.WithValue(ctx, principalKey{}, p)
}

// From is the principal of a context; false if the request has none.
func From(ctx context.Context) (Principal, bool) {
	p, ok := ctx.Value(principalKey{}).(Principal)
	return p, ok && p.OrgID != "" && p.Actor != ""
}

// Require returns the context's principal if one of its roles grants the
// policy. The error is [ErrUnauthenticated] or a *[DeniedError].
func Require(ctx context.Context, policy Policy) (Principal, error) {
	p, ok := From(ctx)
	if !ok {
		return Principal{}, ErrUnauthenticated
	}
	if !Granted(policy, p.Roles...) {
		return p, &DeniedError{Policy: policy, Actor: p.Actor}
	}
	return p, nil
}

// A DeniedError is a principal that lacks a policy.
type DeniedError struct {
	Policy Policy
	Actor  string
}

func (e *DeniedError) Error() string {
	return fmt.Sprintf("%s may not do this: it needs the policy %s", e.Actor, e.Policy)
}
