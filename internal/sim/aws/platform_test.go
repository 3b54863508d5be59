package aws

import (
	"context"
	"errors"
	"net/http/httptest"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/smithy-go"

	"github.com/zopday/provisioner/internal/sim"
)

const testAccount = "123456789012"

// rig is a simulated AWS behind a real HTTP server, with a stopped clock, for real SDK clients.
type rig struct {
	t     *testing.T
	w     *sim.World
	cloud *Cloud
	cfg   awssdk.Config
}

// immediate is a world without eventual consistency, for tests that are about something else.
var immediate = sim.Options{ConsistencyByID: -1, ConsistencyByList: -1, EmptyPages: -1}

func newRig(t *testing.T, opt sim.Options) *rig {
	t.Helper()
	return newRigWith(t, opt, Options{})
}

func newRigWith(t *testing.T, opt sim.Options, own Options) *rig {
	t.Helper()
	w := sim.New(opt)
	w.Clock.Stop()
	cloud := New(w, own)
	srv := httptest.NewServer(cloud)
	t.Cleanup(srv.Close)
	return &rig{t: t, w: w, cloud: cloud, cfg: awssdk.Config{
		Region: "us-east-1", BaseEndpoint: awssdk.String(srv.URL),
		Credentials:      credentials.NewStaticCredentialsProvider("AKIAIOSFODNN7EXAMPLE", "secret", ""),
		RetryMaxAttempts: 1,
	}}
}

func (r *rig) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	r.t.Cleanup(cancel)
	return ctx
}

// wantCode checks that an error is a refusal with the code.
func wantCode(t *testing.T, err error, code string) {
	t.Helper()
	var api smithy.APIError
	if !errors.As(err, &api) {
		t.Fatalf("error %v, want the code %s", err, code)
	}
	if api.ErrorCode() != code {
		t.Fatalf("error code %s (%s), want %s", api.ErrorCode(), api.ErrorMessage(), code)
	}
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
