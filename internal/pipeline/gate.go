package pipeline

import (
	"context"
	"errors"
)

// A Gate is asked before every call to a cloud, by the client that makes it.
// Its error refuses the call: it is never sent.
type Gate func(ctx context.Context, c Call) error

// A Call is one request about to be sent to a cloud.
type Call struct {
	Service  string
	Op       string
	Mutating bool
}

// The reasons for which a gate refuses.
var (
	ErrReadOnly  = errors.New("this job's client cannot change anything")
	ErrLeaseLost = errors.New("this worker no longer holds the job")
)

type gateKey struct{}

// WithGate puts a gate before every cloud call made with the context. Gates
// stack: all have to let a call pass.
func WithGate(ctx context.Context, g Gate) context.Context {
	if outer, ok := ctx.Value(gateKey{}).(Gate); ok {
		inner := g
		g = func(ctx context.Context, c Call) error {
			if err := outer(ctx, c); err != nil {
				return err
			}
			return inner(ctx, c)
		}
	}
	return context.WithValue(ctx, gateKey{}, g)
}

// Allow asks the context's gates. A context without a gate lets only reads
// pass, so that no mutating call can slip past the lease by mistake.
func Allow(ctx context.Context, c Call) error {
	g, ok := ctx.Value(gateKey{}).(Gate)
	if !ok {
		return ReadOnly(ctx, c)
	}
	return g(ctx, c)
}

// ReadOnly is the gate that lets nothing change.
func ReadOnly(_ context.Context, c Call) error {
	if c.Mutating {
		return ErrReadOnly
	}
	return nil
}
