package aws

import (
	"testing"

	"github.com/zopday/provisioner/internal/job"
)

// Without a loader the SDK's own chain counts: credentials and endpoints of the
// environment, for all services and for one.
func TestAmbientConfiguration(t *testing.T) {
	url, calls := scripted(t, answer(200, "<GetCallerIdentityResponse><GetCallerIdentityResult><Account>123456789012</Account></GetCallerIdentityResult></GetCallerIdentityResponse>"))
	for _, name := range []string{"AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"} {
		t.Setenv(name, t.TempDir()+"/none")
	}
	t.Setenv("AWS_PROFILE", "")
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("AWS_ENDPOINT_URL_STS", url)
	one, err := New(Options{}).Open(t.Context(), &job.Job{CloudAccountID: "default", Region: "eu-west-1"})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := one.Caller(t.Context()); err != nil || got != "123456789012" || calls.Load() != 1 {
		t.Errorf("got %s, %v after %d calls", got, err, calls.Load())
	}
	if one.(*Provider).foreignEndpoint() {
		t.Error("EC2 is at AWS, and is taken for an emulator's")
	}
	t.Setenv("AWS_ENDPOINT_URL", url)
	all, err := New(Options{}).Open(t.Context(), &job.Job{CloudAccountID: "default", Region: "eu-west-1"})
	if err != nil {
		t.Fatal(err)
	}
	if !all.(*Provider).foreignEndpoint() {
		t.Error("EC2 is at an address of the environment's choice, and is taken for AWS")
	}
}

// One set of clients serves all jobs of an account and region.
func TestClientsAreShared(t *testing.T) {
	c := New(Options{LoadConfig: Static("http://127.0.0.1:1", "AKIAIOSFODNN7EXAMPLE", "secret")})
	open := func(account, region string) any {
		p, err := c.Open(t.Context(), &job.Job{CloudAccountID: account, Region: region})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	first := open("default", "us-east-1")
	if open("default", "us-east-1") != first || open("default", "us-west-2") == first || open("other", "us-east-1") == first {
		t.Error("clients are not kept by account and region")
	}
	// Not for ever (P13).
	first.(*Provider).since = first.(*Provider).since.Add(-2 * lifetime)
	if open("default", "us-east-1") == first {
		t.Error("old clients are not replaced")
	}
}
