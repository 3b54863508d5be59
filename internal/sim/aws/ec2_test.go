package aws

import (
	"context"
	"errors"
	"net/http/httptest"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"
	"github.com/google/go-cmp/cmp"

	"github.com/zopday/provisioner/internal/sim"
	"github.com/zopday/provisioner/internal/sim/guest"
)

// lab is a simulated AWS behind a real HTTP server with a stopped clock, and a real EC2 client.
type lab struct {
	*testing.T
	world  *sim.World
	cloud  *Cloud
	url    string
	client *ec2.Client
}

// atOnce switches eventual consistency off, for tests that are about something else.
var atOnce = sim.Options{ConsistencyByID: -1, ConsistencyByList: -1, Seed: 7, EmptyPages: -1}

func newLab(t *testing.T, opt sim.Options) *lab {
	t.Helper()
	w := sim.New(opt)
	w.Clock.Stop()
	c := New(w, Options{})
	srv := httptest.NewServer(c)
	t.Cleanup(srv.Close)
	l := &lab{T: t, world: w, cloud: c, url: srv.URL}
	l.client = l.as("AKIAIOSFODNN7EXAMPLE", "us-east-1")
	return l
}

func (l *lab) as(key, region string) *ec2.Client {
	return ec2.NewFromConfig(awssdk.Config{Region: region, BaseEndpoint: awssdk.String(l.url),
		Credentials: credentials.NewStaticCredentialsProvider(key, "secret", ""), RetryMaxAttempts: 1})
}

func (l *lab) step(d time.Duration) { l.world.Step(d) }

// ok unwraps a call that must succeed.
func ok[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// code is the error code of a refused call.
func code(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) {
		return api.ErrorCode()
	}
	if err != nil {
		return "not an API error: " + err.Error()
	}
	return ""
}

func tagSpecs(kind types.ResourceType, kv ...string) []types.TagSpecification {
	s := types.TagSpecification{ResourceType: kind}
	for i := 0; i+1 < len(kv); i += 2 {
		s.Tags = append(s.Tags, types.Tag{Key: &kv[i], Value: &kv[i+1]})
	}
	return []types.TagSpecification{s}
}

func TestVpcAndSubnet(t *testing.T) {
	ctx := context.Background()
	l := newLab(t, atOnce)
	before := l.world.Snapshot()
	v := ok(l.client.CreateVpc(ctx, &ec2.CreateVpcInput{CidrBlock: awssdk.String("10.0.0.0/16"),
		TagSpecifications: tagSpecs(types.ResourceTypeVpc, "Name", "one", "owner", "job-1")})).Vpc
	if v.State != types.VpcStatePending {
		t.Errorf("state %s, want pending", v.State)
	}
	l.step(2 * time.Second)
	got := ok(l.client.DescribeVpcs(ctx, &ec2.DescribeVpcsInput{VpcIds: []string{*v.VpcId}})).Vpcs[0]
	if got.State != types.VpcStateAvailable || *got.Tags[0].Value != "one" {
		t.Errorf("vpc %+v", got)
	}
	s := ok(l.client.CreateSubnet(ctx, &ec2.CreateSubnetInput{VpcId: v.VpcId, CidrBlock: awssdk.String("10.0.1.0/24"), AvailabilityZone: awssdk.String("us-east-1b")})).Subnet
	if *s.AvailableIpAddressCount != 251 {
		t.Errorf("free addresses %d, want 251", *s.AvailableIpAddressCount)
	}
	if n := len(l.world.Residue("job-1")); n != 2 {
		t.Errorf("residue %d, want VPC and subnet", n)
	}
	_, err := l.client.DeleteVpc(ctx, &ec2.DeleteVpcInput{VpcId: v.VpcId})
	if code(err) != "DependencyViolation" {
		t.Errorf("deleting a VPC with a subnet: %v", err)
	}
	ok(l.client.DeleteSubnet(ctx, &ec2.DeleteSubnetInput{SubnetId: s.SubnetId}))
	ok(l.client.DeleteVpc(ctx, &ec2.DeleteVpcInput{VpcId: v.VpcId}))
	if d := cmp.Diff(before, l.world.Snapshot()); d != "" {
		t.Errorf("account differs (-before +after):\n%s", d)
	}
}

func (l *lab) env() guest.Env { return guest.Env{Now: l.world.Clock.Now(), Egress: true} }
