package aws

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
)

// at opens a provider whose every service is at one address.
func at(t testing.TB, url string, o Options) *Provider {
	t.Helper()
	o.LoadConfig = func(context.Context, string, string) (aws.Config, error) {
		return aws.Config{BaseEndpoint: aws.String(url), Credentials: credentials.NewStaticCredentialsProvider("AKIAIOSFODNN7EXAMPLE", "secret", "")}, nil
	}
	p, err := New(o).provider(context.Background(), "org_1", "default", "us-east-1")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func anything(ctx context.Context) context.Context {
	return pipeline.WithGate(ctx, func(context.Context, pipeline.Call) error { return nil })
}

// scripted answers each request with the next handler, and the last one after that.
func scripted(t testing.TB, handlers ...http.HandlerFunc) (url string, calls *atomic.Int32) {
	calls = new(atomic.Int32)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		i := min(int(calls.Add(1))-1, len(handlers)-1)
		handlers[i](w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL, calls
}

func answer(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/xml")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func ec2Error(status int, code string) http.HandlerFunc {
	return answer(status, "<Response><Errors><Error><Code>"+code+"</Code><Message>why</Message></Error></Errors><RequestID>req-1</RequestID></Response>")
}

// hangUp reads the request and answers nothing.
func hangUp(w http.ResponseWriter, _ *http.Request) {
	c, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		_ = c.Close()
	}
}

const vpcMade = `<CreateVpcResponse><requestId>r</requestId><vpc><vpcId>vpc-1</vpcId><state>pending</state></vpc></CreateVpcResponse>`
const vpcList = `<DescribeVpcsResponse><requestId>r</requestId><vpcSet><item><vpcId>vpc-1</vpcId></item></vpcSet></DescribeVpcsResponse>`

func TestCreateIsRepeatedOnlyWhenNothingHappened(t *testing.T) {
	for _, c := range []struct {
		name   string
		first  http.HandlerFunc
		calls  int32
		class  pipeline.Class
		broken bool
	}{
		{"throttled", ec2Error(503, "RequestLimitExceeded"), 2, "", false},
		{"slow down", answer(503, "<Error><Code>SlowDown</Code></Error>"), 1, pipeline.Unavailable, true},
		{"failed", ec2Error(500, "InternalError"), 1, pipeline.Unavailable, true},
		{"no answer", hangUp, 1, pipeline.Unavailable, true},
		{"empty answer", answer(200, ""), 1, pipeline.Unavailable, true},
		{"a web page", answer(200, "<!DOCTYPE html><html><body>welcome</body></html>"), 1, pipeline.Unavailable, true},
		{"half an answer", answer(200, "<CreateVpcResponse><vpc><vpcId>vpc-1"), 1, pipeline.Unavailable, true},
		{"denied with a web page", answer(403, "<html><body>Forbidden</body></html>"), 1, pipeline.Unknown, true},
		{"refused", ec2Error(400, "VpcLimitExceeded"), 1, pipeline.Quota, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			url, calls := scripted(t, c.first, answer(200, vpcMade))
			out, err := at(t, url, Options{Pace: 1000}).ec2.CreateVpc(anything(t.Context()), &ec2.CreateVpcInput{CidrBlock: aws.String("10.0.0.0/16")})
			if c.broken {
				var ce *pipeline.CloudError
				if !errors.As(err, &ce) || ce.Class != c.class || !ce.Sent {
					t.Fatalf("got %v (%+v), want class %s", err, ce, c.class)
				}
			} else if err != nil || aws.ToString(out.Vpc.VpcId) != "vpc-1" {
				t.Fatalf("got %v, %v", out, err)
			}
			if calls.Load() != c.calls {
				t.Errorf("%d requests, want %d", calls.Load(), c.calls)
			}
		})
	}
}

// A read that fails is repeated, and is never taken for an empty list (H5, F8).
func TestReadIsRepeated(t *testing.T) {
	for name, first := range map[string]http.HandlerFunc{
		"failed": ec2Error(500, "InternalError"), "throttled": ec2Error(503, "Throttling"), "no answer": hangUp,
		"empty answer": answer(200, ""), "a web page": answer(200, "<html></html>"), "half an answer": answer(200, "<DescribeVpcsResponse><vpcSet><item>"),
	} {
		t.Run(name, func(t *testing.T) {
			url, calls := scripted(t, first, first, answer(200, vpcList))
			out, err := at(t, url, Options{Pace: 1000}).ec2.DescribeVpcs(t.Context(), &ec2.DescribeVpcsInput{})
			if err != nil || len(out.Vpcs) != 1 || calls.Load() != 3 {
				t.Fatalf("got %v, %v after %d requests", out, err, calls.Load())
			}
		})
	}
	t.Run("for ever", func(t *testing.T) {
		url, calls := scripted(t, answer(200, ""))
		_, err := at(t, url, Options{Pace: 1000}).ec2.DescribeVpcs(t.Context(), &ec2.DescribeVpcsInput{})
		if !pipeline.Is(err, pipeline.Unavailable) || calls.Load() != maxAttempts {
			t.Fatalf("got %v after %d requests", err, calls.Load())
		}
	})
}

// A wait that the cloud asks for and that is too long to hold a worker is handed up.
func TestLongWaitIsHandedUp(t *testing.T) {
	url, calls := scripted(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "60")
		ec2Error(503, "Throttling")(w, r)
	})
	_, err := at(t, url, Options{Pace: 1000}).ec2.DescribeVpcs(t.Context(), &ec2.DescribeVpcsInput{})
	var ce *pipeline.CloudError
	if !errors.As(err, &ce) || ce.Class != pipeline.Throttled || ce.RetryAfter != time.Minute || calls.Load() != 1 {
		t.Fatalf("got %v after %d requests", err, calls.Load())
	}
}

func TestRefusedConnectionWasNeverSent(t *testing.T) {
	s := httptest.NewServer(nil)
	s.Close()
	_, err := at(t, s.URL, Options{Pace: 1000}).ec2.CreateVpc(anything(t.Context()), &ec2.CreateVpcInput{})
	var ce *pipeline.CloudError
	if !errors.As(err, &ce) || ce.Class != pipeline.Unavailable || ce.Sent {
		t.Fatalf("got %v (%+v)", err, ce)
	}
}

// The gate is asked before every attempt: a lease that is lost between two of
// them stops the second (P10).
func TestGate(t *testing.T) {
	url, calls := scripted(t, ec2Error(503, "RequestLimitExceeded"), answer(200, vpcMade))
	p := at(t, url, Options{Pace: 1000})

	_, err := p.ec2.CreateVpc(t.Context(), &ec2.CreateVpcInput{})
	var ce *pipeline.CloudError
	if !errors.As(err, &ce) || ce.Class != pipeline.Refused || ce.Sent || !errors.Is(err, pipeline.ErrReadOnly) {
		t.Fatalf("without a gate: %v (%+v)", err, ce)
	}
	if calls.Load() != 0 {
		t.Fatal("a call that was refused left all the same")
	}
	var asked []pipeline.Call
	ctx := pipeline.WithGate(t.Context(), func(_ context.Context, c pipeline.Call) error {
		if asked = append(asked, c); len(asked) > 2 { // twice an attempt
			return pipeline.ErrLeaseLost
		}
		return nil
	})
	_, err = p.ec2.CreateVpc(ctx, &ec2.CreateVpcInput{})
	if !pipeline.Is(err, pipeline.Refused) || !errors.Is(err, pipeline.ErrLeaseLost) || calls.Load() != 1 || len(asked) != 3 {
		t.Fatalf("got %v after %d requests and %d questions", err, calls.Load(), len(asked))
	}
	if asked[0] != (pipeline.Call{Service: "EC2", Op: "CreateVpc", Mutating: true}) {
		t.Errorf("the gate was asked about %+v", asked[0])
	}
}

// The lease may be lost while credentials are fetched: nothing leaves then.
func TestGateIsAskedAfterSigning(t *testing.T) {
	url, calls := scripted(t, answer(200, vpcMade))
	var lost atomic.Bool
	clouds := New(Options{Pace: 1000, LoadConfig: func(context.Context, string, string) (aws.Config, error) {
		return aws.Config{BaseEndpoint: aws.String(url), Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			lost.Store(true)
			return aws.Credentials{AccessKeyID: "AKIAIOSFODNN7EXAMPLE", SecretAccessKey: "x"}, nil
		})}, nil
	}})
	p, err := clouds.provider(t.Context(), "org_1", "default", "us-east-1")
	if err != nil {
		t.Fatal(err)
	}
	ctx := pipeline.WithGate(t.Context(), func(context.Context, pipeline.Call) error {
		if lost.Load() {
			return pipeline.ErrLeaseLost
		}
		return nil
	})
	_, err = p.ec2.CreateVpc(ctx, &ec2.CreateVpcInput{})
	var ce *pipeline.CloudError
	if !errors.As(err, &ce) || ce.Class != pipeline.Refused || ce.Sent || !errors.Is(err, pipeline.ErrLeaseLost) {
		t.Errorf("got %v (%+v), want a refusal that was never sent", err, ce)
	}
	if !lost.Load() || calls.Load() != 0 {
		t.Errorf("%d requests left after the lease was lost", calls.Load())
	}
}

func TestIsMutating(t *testing.T) {
	for _, op := range []string{"DescribeVpcs", "GetParameter", "GetCallerIdentity", "ListHostedZones", "AssumeRole", "GetCommandInvocation", "SimulatePrincipalPolicy"} {
		if isMutating("EC2", op) {
			t.Errorf("%s counts as a change", op)
		}
	}
	for _, op := range []string{"CreateVpc", "SendCommand", "RunInstances", "ChangeResourceRecordSets", "AttachRolePolicy", "RegisterTargets", "SetDesiredCapacity", "ModifyVpcAttribute", "StartSession"} {
		if !isMutating("EC2", op) {
			t.Errorf("%s counts as a read", op)
		}
	}
	if isMutating("SSO OIDC", "CreateToken") {
		t.Error("signing in counts as a change")
	}
}

func TestObserve(t *testing.T) {
	type seen struct {
		service, op string
		mutating    bool
		class       pipeline.Class
	}
	var mu sync.Mutex
	var got []seen
	url, _ := scripted(t, answer(200, vpcList), ec2Error(400, "VpcLimitExceeded"))
	p := at(t, url, Options{Pace: 1000, Observe: func(service, op string, mutating bool, class pipeline.Class, _ time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, seen{service, op, mutating, class})
	}})
	_, _ = p.ec2.DescribeVpcs(t.Context(), &ec2.DescribeVpcsInput{})
	_, err := p.ec2.CreateVpc(anything(t.Context()), &ec2.CreateVpcInput{})
	want := []seen{{"EC2", "DescribeVpcs", false, ""}, {"EC2", "CreateVpc", true, pipeline.Quota}}
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("got %+v", got)
	}
	if text := plain(err).Error(); text != "EC2 CreateVpc: why (VpcLimitExceeded)" {
		t.Errorf("a person reads %q", text)
	}
	var ce *pipeline.CloudError
	if errors.As(err, &ce); ce.RequestID != "req-1" {
		t.Errorf("request ID %q", ce.RequestID)
	}
}

// One client, many goroutines, a third of the answers 5xx: nothing runs dry (H2).
func TestManyCallsWithFailures(t *testing.T) {
	var n atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if n.Add(1)%3 == 0 {
			ec2Error(500, "InternalError")(w, r)
			return
		}
		answer(200, vpcList)(w, r)
	}))
	defer s.Close()
	p := at(t, s.URL, Options{Pace: 10000})
	var wg sync.WaitGroup
	var failed atomic.Int32
	for range 200 {
		wg.Go(func() {
			if _, err := p.ec2.DescribeVpcs(t.Context(), &ec2.DescribeVpcsInput{}); err != nil {
				failed.Add(1)
			}
		})
	}
	wg.Wait()
	// Five tries in a row hit a failure once in 243 calls at worst.
	if f := failed.Load(); f > 5 {
		t.Errorf("%d of 200 calls failed", f)
	}
}

// The caller is asked again when the credentials change (F5).
func TestCaller(t *testing.T) {
	var key, account atomic.Value
	key.Store("AKIAONE")
	account.Store("111111111111")
	var calls atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		answer(200, "<GetCallerIdentityResponse><GetCallerIdentityResult><Account>"+account.Load().(string)+"</Account></GetCallerIdentityResult></GetCallerIdentityResponse>")(w, nil)
	}))
	defer s.Close()
	clouds := New(Options{LoadConfig: func(context.Context, string, string) (aws.Config, error) {
		return aws.Config{BaseEndpoint: aws.String(s.URL), Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: key.Load().(string), SecretAccessKey: "x"}, nil
		})}, nil
	}})
	p, err := clouds.provider(t.Context(), "org_1", "default", "us-east-1")
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if got, err := p.Caller(t.Context()); err != nil || got != "111111111111" {
			t.Fatalf("got %s, %v", got, err)
		}
	}
	if calls.Load() != 1 {
		t.Errorf("asked %d times", calls.Load())
	}
	key.Store("AKIATWO")
	account.Store("222222222222")
	if got, err := p.Caller(t.Context()); err != nil || got != "222222222222" {
		t.Fatalf("got %s, %v", got, err)
	}
}

// Credentials that are renewed while it is asked whose they are: what is answered
// for the new ones is not taken for the old ones' own, neither the account nor the
// role.
func TestCredentialsThatChangeWhileAskedFor(t *testing.T) {
	g := newRig(t, sim.Options{}, job.ModeCreate, fixedSpec)
	for name, ask := range map[string]func(*Provider) (string, error){
		"the account":   func(p *Provider) (string, error) { return p.Caller(t.Context()) },
		"the principal": func(p *Provider) (string, error) { return p.principal(t.Context()) },
	} {
		var given, swapAt atomic.Int32
		swapAt.Store(1)
		p, err := openAs(t, New(Options{Pace: quick, LoadConfig: func(context.Context, string, string) (aws.Config, error) {
			return aws.Config{BaseEndpoint: aws.String(g.url), Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
				if at := swapAt.Load(); at > 0 && given.Add(1) > at {
					return aws.Credentials{AccessKeyID: partnerKey, SecretAccessKey: "secret"}, nil
				}
				return aws.Credentials{AccessKeyID: ownKey, SecretAccessKey: "secret"}, nil
			})}, nil
		}}), "org_1", "default")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ask(p); err != nil || !strings.Contains(got, partnerAccount) {
			t.Errorf("%s while the credentials change: %s, %v", name, got, err)
		}
		swapAt.Store(0) // the first ones are back
		if got, err := ask(p); err != nil || !strings.Contains(got, ownAccount) {
			t.Errorf("%s of the first credentials: %s, %v", name, got, err)
		}
	}
}
