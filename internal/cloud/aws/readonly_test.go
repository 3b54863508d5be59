package aws

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/smithy-go/middleware"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
	"github.com/zopday/provisioner/internal/steps"
)

var readOnlyAccount = cloud.Account{Name: "audit", Method: cloud.MethodAmbient, ReadOnly: true}

// sdkClients are the provider's clients of AWS, by the name of their field.
func sdkClients(p *Provider) map[string]reflect.Value {
	out := map[string]reflect.Value{}
	v := reflect.ValueOf(p).Elem()
	for i := range v.NumField() {
		if f := v.Type().Field(i); iamPrefix[f.Name] != "" {
			out[f.Name] = reflect.NewAt(f.Type, v.Field(i).Addr().UnsafePointer()).Elem()
		}
	}
	return out
}

// fill gives every field of an input a value, so that it can be sent.
func fill(v reflect.Value, depth int) {
	switch v.Kind() {
	case reflect.Pointer:
		if depth < 3 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(v.Elem(), depth)
		}
	case reflect.String:
		v.SetString("example")
		if strings.HasSuffix(v.Type().String(), "ChecksumAlgorithm") {
			v.SetString("SHA256")
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() && v.Type().Field(i).Name != "ResultMetadata" {
				fill(v.Field(i), depth+1)
			}
		}
	}
}

// operation calls one operation of a client with a filled input; false if the
// method is none.
func operation(ctx context.Context, client reflect.Value, m reflect.Method) (error, bool) {
	f := m.Func.Type()
	if f.NumIn() != 4 || !f.IsVariadic() || f.NumOut() != 2 || !strings.HasSuffix(f.In(2).String(), m.Name+"Input") {
		return nil, false
	}
	in := reflect.New(f.In(2).Elem())
	fill(in.Elem(), 0)
	out := client.MethodByName(m.Name).Call([]reflect.Value{reflect.ValueOf(ctx), in})
	err, _ := reflect.TypeAssert[error](out[1])
	return err, true
}

// unvalidated takes off what the SDK checks of an input by itself, so that every
// operation gets as far as the wire.
func unvalidated(s *middleware.Stack) error {
	_, err := s.Initialize.Remove("OperationInputValidation")
	if err != nil && !strings.Contains(err.Error(), "not found") {
		return err
	}
	return nil
}

// No operation of any client that is not known to be a read leaves a read-only
// account, whatever the job's gates let pass.
func TestReadOnlyAccountSendsNoChange(t *testing.T) {
	t.Parallel()
	g := newRig(t, sim.Options{}, job.ModeCreate, fixedSpec)
	clouds := New(Options{Pace: 1e6, Accounts: registry{"org_1/ca_1": readOnlyAccount}, LoadConfig: func(context.Context, string, string) (aws.Config, error) {
		return aws.Config{BaseEndpoint: aws.String(g.url), Credentials: credentials.NewStaticCredentialsProvider("AKIAIOSFODNN7EXAMPLE", "secret", ""),
			APIOptions: []func(*middleware.Stack) error{unvalidated}}, nil
	}})
	p, err := openAs(t, clouds, "org_1", "ca_1")
	if err != nil {
		t.Fatal(err)
	}
	used := calls(t)
	refused, unsent, ctx := 0, 0, anything(t.Context())
	for name, client := range sdkClients(p) {
		for i := range client.NumMethod() {
			m := client.Type().Method(i)
			action := iamPrefix[name] + ":" + m.Name
			if isRead(serviceOf[name], m.Name) {
				continue
			}
			err, ok := operation(ctx, client, m)
			if !ok {
				continue
			}
			var f *pipeline.FatalError
			switch {
			case errors.As(err, &f) && f.Problem.Code == "read-only-account" && strings.Contains(f.Problem.Message, "audit (ca_1)") && strings.Contains(f.Problem.Message, m.Name):
				refused++
			case err != nil && !used[or(called[action], action)]:
				unsent++ // the SDK could not write the request; the product has no such call
			default:
				t.Errorf("%s.%s: %v", name, m.Name, err)
			}
		}
	}
	for _, e := range g.world.Books(sim.BookFilter{}) {
		t.Errorf("%s %s arrived", e.Service, e.Operation)
	}
	if t.Logf("%d operations refused, %d could not be written", refused, unsent); refused < 1500 || unsent > refused/20 {
		t.Error("too few operations were tried")
	}
}

// serviceOf is what the SDK calls the service behind each client of a Provider.
var serviceOf = map[string]string{
	"ec2": "EC2", "iam": "IAM", "sts": "STS", "ssm": "SSM", "quotas": "Service Quotas", "r53": "Route 53", "acm": "ACM", "asg": "Auto Scaling",
	"elb": "Elastic Load Balancing v2", "clb": "Elastic Load Balancing", "logs": "CloudWatch Logs", "s3": "S3", "eks": "EKS", "kms": "KMS",
	"rds": "RDS", "cache": "ElastiCache", "secrets": "Secrets Manager", "metrics": "CloudWatch",
}

// audited gives the rig clients of a read-only account.
func (g *rig) audited() {
	g.Helper()
	var err error
	if g.p, err = openAs(g, g.accountsOf(registry{"org_1/default": readOnlyAccount}), "org_1", "default"); err != nil {
		g.Fatal(err)
	}
}

// looks is what a read-only account is for: plan and verify of a job, with no gate
// but its own.
func (g vmRig) looks() {
	g.Helper()
	g.audited()
	g.another()
	set, ctx := steps.Set{Cloud: g.p, Spaces: anySpace{}}, anything(g.Context())
	objects := []job.Object{}
	for _, o := range g.objects {
		objects = append(objects, o)
	}
	since := g.mark()
	if drift, err := set.Drift(ctx, g.job, objects, quick); err != nil || len(drift) > 0 {
		g.Errorf("verify: %v, %v", drift, err)
	}
	other := *g.job
	other.ID, other.Name, other.Config.InfraConfig = job.NewID("job"), "another", job.InfraConfig{}
	plan, err := set.Plan(ctx, &other, quick)
	if err != nil {
		g.Errorf("plan: %v", err)
		return
	}
	for _, c := range plan.Checks {
		if c.Status == cloud.CheckUnchecked {
			g.Errorf("plan: %s is not checked: %s", c.Name, c.Message)
		}
	}
	if _, changes := g.calls(since); len(changes) > 0 {
		g.Errorf("a read-only account sent %v", changes)
	}
}

// Adopt, plan and verify of every family work with a read-only account.
func TestReadOnlyAccountLooks(t *testing.T) {
	t.Parallel()
	t.Run("vm", func(t *testing.T) {
		t.Parallel()
		g := newVMs(t, sim.Options{}, groupLBSpec)
		g.create()
		g.looks()
	})
	t.Run("network", func(t *testing.T) {
		t.Parallel()
		g := newNet(t, sim.Options{}, job.ModeCreate, plainNet)
		g.create()
		g.looks()
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		g := newCluster(t, sim.Options{}, job.ModeCreate, clusterSpec)
		g.create()
		g.audited()
		if drift := g.verify(); len(drift) > 0 {
			t.Errorf("verify: %v", drift)
		}
		if bad := notMet(g.report()); len(bad) > 0 {
			t.Errorf("controls: %v", bad)
		}
	})
	for name, spec := range map[string]string{"datastore": postgresSpec, "cache": redisSpec} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newData(t, sim.Options{}, job.ModeCreate, spec)
			g.create()
			g.audited()
			if drift := g.verify(); len(drift) > 0 {
				t.Errorf("verify: %v", drift)
			}
			a := g.adopting(`{"adopt":{"name":"` + g.data().Name + `"}}`)
			if err := a.adopt(); err != nil {
				t.Errorf("adopt: %v", err)
			}
		})
	}
}

// A job that changes something fails at its first change, by name.
func TestReadOnlyAccountMakesNothing(t *testing.T) {
	t.Parallel()
	g := newVMs(t, sim.Options{}, fixedSpec)
	g.audited()
	start := time.Now()
	_, err := g.play(job.PhaseProvision, "")
	if f := asFatal(err); f == nil || f.Problem.Code != "read-only-account" || !strings.Contains(f.Problem.Hint, "read_write") || f.Problem.Field != "cloudAccountId" {
		t.Errorf("after %s: %v", time.Since(start), err)
	}
	if _, changes := g.calls(0); len(changes) > 0 {
		t.Errorf("it sent %v", changes)
	}
}
