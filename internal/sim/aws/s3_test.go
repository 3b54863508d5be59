package aws

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// dialled is an HTTP client that reaches one server under every name.
func dialled(url string) *http.Client {
	at := strings.TrimPrefix(url, "http://")
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, at)
	}}}
}

// bucketPolicy lets load balancers write their access logs.
func bucketPolicy(bucket, service string) *string {
	return new(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":"` + service + `"},"Action":"s3:PutObject","Resource":"arn:aws:s3:::` + bucket + `/AWSLogs/123456789012/*"},` +
		`{"Effect":"Deny","Principal":"*","Action":"s3:*","Resource":["arn:aws:s3:::` + bucket + `","arn:aws:s3:::` + bucket + `/*"],"Condition":{"Bool":{"aws:SecureTransport":"false"}}}]}`)
}

func TestBucketLifecycle(t *testing.T) {
	t.Parallel()
	r := newRig(t, immediate)
	ctx := r.ctx()
	for _, style := range []struct {
		name string
		path bool
	}{{"logs-by-path", true}, {"logs-by-host", false}} {
		cfg := r.cfg.Copy()
		cfg.HTTPClient = dialled(*r.cfg.BaseEndpoint) // whatever host name the client uses
		if !style.path {
			cfg.BaseEndpoint = new("http://s3.us-east-1.amazonaws.com")
		}
		c := s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = style.path })
		b := &style.name
		if _, err := c.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: b, CreateBucketConfiguration: &types.CreateBucketConfiguration{Tags: []types.Tag{{Key: new("a"), Value: new("b")}}}}); err != nil {
			t.Fatal(err)
		}
		tags := must(c.GetBucketTagging(ctx, &s3.GetBucketTaggingInput{Bucket: b}))(t)
		if len(tags.TagSet) != 1 || *tags.TagSet[0].Value != "b" {
			t.Errorf("tags %+v", tags.TagSet)
		}
		// A new bucket is closed and encrypted, and has neither policy nor lifecycle.
		block := must(c.GetPublicAccessBlock(ctx, &s3.GetPublicAccessBlockInput{Bucket: b}))(t).PublicAccessBlockConfiguration
		if !*block.BlockPublicAcls || !*block.RestrictPublicBuckets {
			t.Errorf("public access block %+v", block)
		}
		if e := must(c.GetBucketEncryption(ctx, &s3.GetBucketEncryptionInput{Bucket: b}))(t); e.ServerSideEncryptionConfiguration.Rules[0].ApplyServerSideEncryptionByDefault.SSEAlgorithm != types.ServerSideEncryptionAes256 {
			t.Errorf("encryption %+v", e)
		}
		_, err := c.GetBucketPolicy(ctx, &s3.GetBucketPolicyInput{Bucket: b})
		wantCode(t, err, "NoSuchBucketPolicy")
		_, err = c.GetBucketLifecycleConfiguration(ctx, &s3.GetBucketLifecycleConfigurationInput{Bucket: b})
		wantCode(t, err, "NoSuchLifecycleConfiguration")
		if _, err := c.PutBucketPolicy(ctx, &s3.PutBucketPolicyInput{Bucket: b, Policy: bucketPolicy(*b, "logdelivery.elasticloadbalancing.amazonaws.com")}); err != nil {
			t.Fatal(err)
		}
		if p := must(c.GetBucketPolicy(ctx, &s3.GetBucketPolicyInput{Bucket: b}))(t); *p.Policy != *bucketPolicy(*b, "logdelivery.elasticloadbalancing.amazonaws.com") {
			t.Errorf("policy %s", *p.Policy)
		}
		rule := types.LifecycleRule{ID: new("x"), Status: types.ExpirationStatusEnabled, Filter: &types.LifecycleRuleFilter{Prefix: new("")}, Expiration: &types.LifecycleExpiration{Days: awssdk.Int32(90)}}
		if _, err := c.PutBucketLifecycleConfiguration(ctx, &s3.PutBucketLifecycleConfigurationInput{Bucket: b, LifecycleConfiguration: &types.BucketLifecycleConfiguration{Rules: []types.LifecycleRule{rule}}}); err != nil {
			t.Fatal(err)
		}
		if l := must(c.GetBucketLifecycleConfiguration(ctx, &s3.GetBucketLifecycleConfigurationInput{Bucket: b}))(t); *l.Rules[0].Expiration.Days != 90 {
			t.Errorf("lifecycle %+v", l.Rules)
		}
		must(r.cloud.Invoke("s3", "PutObject", testAccount, "us-east-1", map[string]any{"Bucket": *b, "Key": "a/b", "Body": "x"}))(t)
		_, err = c.DeleteBucket(ctx, &s3.DeleteBucketInput{Bucket: b})
		wantCode(t, err, "BucketNotEmpty")
		list := must(c.ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: b}))(t)
		if len(list.Contents) != 1 || *list.Contents[0].Key != "a/b" {
			t.Errorf("objects %+v", list.Contents)
		}
		if _, err := c.DeleteObjects(ctx, &s3.DeleteObjectsInput{Bucket: b, Delete: &types.Delete{Objects: []types.ObjectIdentifier{{Key: new("a/b")}}}}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.DeleteBucket(ctx, &s3.DeleteBucketInput{Bucket: b}); err != nil {
			t.Fatal(err)
		}
		_, err = c.HeadBucket(ctx, &s3.HeadBucketInput{Bucket: b})
		wantCode(t, err, "NotFound")
	}
}

func TestBucketRefusals(t *testing.T) {
	t.Parallel()
	r := newRig(t, immediate)
	ctx := r.ctx()
	client := func(key, region string) *s3.Client {
		cfg := r.cfg.Copy()
		cfg.Region, cfg.Credentials = region, credentials.NewStaticCredentialsProvider(key, "secret", "")
		return s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = true })
	}
	home, west, other := client("AKIAIOSFODNN7EXAMPLE", "us-east-1"), client("AKIAIOSFODNN7EXAMPLE", "eu-west-1"), client("AKIAI44QH8DHBEXAMPLE", "us-east-1")
	in := func(region string) *types.CreateBucketConfiguration {
		return &types.CreateBucketConfiguration{LocationConstraint: types.BucketLocationConstraint(region)}
	}
	must(home.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: new("home")}))(t)
	must(west.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: new("west"), CreateBucketConfiguration: in("eu-west-1")}))(t)
	// Once more is no error at home, and one everywhere else.
	must(home.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: new("home")}))(t)
	for _, c := range []struct {
		code string
		call func() error
	}{
		{"BucketAlreadyOwnedByYou", func() error {
			return second(west.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: new("west"), CreateBucketConfiguration: in("eu-west-1")}))
		}},
		{"BucketAlreadyExists", func() error { return second(other.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: new("home")})) }},
		{"IllegalLocationConstraintException", func() error { return second(west.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: new("third")})) }},
		{"InvalidBucketName", func() error { return second(home.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: new("No_Name")})) }},
		{"AccessDenied", func() error {
			return second(other.GetBucketTagging(ctx, &s3.GetBucketTaggingInput{Bucket: new("home")}))
		}},
		{"AccessDenied", func() error {
			return second(home.GetBucketTagging(ctx, &s3.GetBucketTaggingInput{Bucket: new("home"), ExpectedBucketOwner: new("999999999999")}))
		}},
		{"PermanentRedirect", func() error {
			return second(home.GetBucketTagging(ctx, &s3.GetBucketTaggingInput{Bucket: new("west")}))
		}},
		{"NoSuchBucket", func() error {
			return second(home.GetBucketTagging(ctx, &s3.GetBucketTaggingInput{Bucket: new("nobody")}))
		}},
		{"NoSuchTagSet", func() error {
			return second(home.GetBucketTagging(ctx, &s3.GetBucketTaggingInput{Bucket: new("home")}))
		}},
		{"MalformedPolicy", func() error {
			return second(home.PutBucketPolicy(ctx, &s3.PutBucketPolicyInput{Bucket: new("home"), Policy: bucketPolicy("west", "x")}))
		}},
		{"AccessDenied", func() error { // public policies are blocked
			return second(home.PutBucketPolicy(ctx, &s3.PutBucketPolicyInput{Bucket: new("home"), Policy: new(`{"Statement":[{"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::home/*"}]}`)}))
		}},
	} {
		wantCode(t, c.call(), c.code)
	}
}

// Access logs are taken only if they can be written: into a bucket that is there,
// in the region, and that lets load balancing in; and they begin with a test file.
func TestAccessLogs(t *testing.T) {
	t.Parallel()
	l := newLab(t, atOnce)
	ctx := t.Context()
	n := l.build(ctx)
	far := *ok(l.client.CreateSubnet(ctx, &ec2.CreateSubnetInput{VpcId: &n.vpc, CidrBlock: new("10.0.2.0/24"), AvailabilityZone: new("us-east-1b")})).Subnet.SubnetId
	cfg := awssdk.Config{Region: "us-east-1", BaseEndpoint: awssdk.String(l.url), Credentials: credentials.NewStaticCredentialsProvider("AKIAIOSFODNN7EXAMPLE", "secret", ""), RetryMaxAttempts: 1}
	lb, buckets := elb.NewFromConfig(cfg), s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = true })
	made := ok(lb.CreateLoadBalancer(ctx, &elb.CreateLoadBalancerInput{Name: new("web"), Subnets: []string{n.public, far}, Scheme: elbtypes.LoadBalancerSchemeEnumInternetFacing})).LoadBalancers[0]
	on := func() error {
		return second(lb.ModifyLoadBalancerAttributes(ctx, &elb.ModifyLoadBalancerAttributesInput{LoadBalancerArn: made.LoadBalancerArn, Attributes: []elbtypes.LoadBalancerAttribute{
			{Key: new("access_logs.s3.enabled"), Value: new("true")}, {Key: new("access_logs.s3.bucket"), Value: new("web-logs")}}}))
	}
	wantCode(t, on(), "InvalidConfigurationRequest")
	ok(buckets.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: new("web-logs")}))
	wantCode(t, on(), "InvalidConfigurationRequest")
	ok(buckets.PutBucketPolicy(ctx, &s3.PutBucketPolicyInput{Bucket: new("web-logs"), Policy: bucketPolicy("web-logs", "delivery.logs.amazonaws.com")}))
	wantCode(t, on(), "InvalidConfigurationRequest") // who writes for network load balancers only
	ok(buckets.PutBucketPolicy(ctx, &s3.PutBucketPolicyInput{Bucket: new("web-logs"), Policy: bucketPolicy("web-logs", "logdelivery.elasticloadbalancing.amazonaws.com")}))
	if err := on(); err != nil {
		t.Fatal(err)
	}
	list := ok(buckets.ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: new("web-logs")}))
	if len(list.Contents) != 1 || *list.Contents[0].Key != "AWSLogs/123456789012/ELBAccessLogTestFile" {
		t.Errorf("the bucket holds %+v", list.Contents)
	}
}
