package aws

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

const (
	kindBucket    = "s3:bucket"
	logBucketKey  = "access-logs"
	logExpiryDays = 90

	// logDelivery is who writes the access logs of application load balancers
	// ("Enable access logs for your Application Load Balancer").
	logDelivery = "logdelivery.elasticloadbalancing.amazonaws.com"
)

// logged reports whether a load balancer has access logs: a network load
// balancer logs only what it ends TLS for, and ours pass TCP through.
func logged(lb job.LoadBalancer) bool { return lb.Type == job.LBHTTP }

// ensureLogBucket makes the bucket for a load balancer that writes access logs.
func (p *Provider) ensureLogBucket(ctx context.Context, r *pipeline.Run, lb job.LoadBalancer) error {
	if !logged(lb) {
		return nil
	}
	x, err := p.logBucket(ctx, r)
	if err != nil {
		return err
	}
	_, err = p.ensureExtra(ctx, r, x)
	return err
}

// removeLogBucket removes the bucket, once nothing writes into it any more.
func (p *Provider) removeLogBucket(ctx context.Context, r *pipeline.Run, lb job.LoadBalancer) error {
	if _, known := r.Object(kindBucket, logBucketKey); !known && !logged(lb) {
		return nil
	}
	x, err := p.logBucket(ctx, r)
	if err != nil {
		return err
	}
	return p.removeExtra(ctx, r, x)
}

func logBucketName(r *pipeline.Run) string { return name(r, "logs", 63) }

// logBucket is where the load balancer writes its access logs (control LBA-09).
// It goes with what is in it: the job made the bucket, and had the logs written.
func (p *Provider) logBucket(ctx context.Context, r *pipeline.Run) (pipeline.Resource, error) {
	b := bucket{Provider: p, name: logBucketName(r)}
	if r.Mode != pipeline.Plan {
		var err error
		if b.account, err = p.Caller(ctx); err != nil {
			return pipeline.Resource{}, err
		}
	}
	x := pipeline.Resource{Kind: kindBucket, Key: logBucketKey, Name: b.name}
	x.Get = func(ctx context.Context, id string) (pipeline.Seen, error) {
		marks, err := b.tags(ctx)
		if err != nil {
			return pipeline.Seen{}, err
		}
		s := pipeline.Seen{ID: id, Owner: marks[job.MarkOwner], Status: pipeline.Ready}
		if rec, ok := r.Object(kindBucket, logBucketKey); len(marks) == 0 && ok && rec.State != job.ObjectRemoved {
			s.Owner = r.Job.ID // the name holds a hash of the job, and not every endpoint takes tags in the create
		}
		if r.Down {
			return s, nil
		}
		s.Aspects, err = b.aspects(ctx, r, marks)
		return s, err
	}
	find := byName(r, x)
	x.Find = func(ctx context.Context) ([]pipeline.Seen, error) {
		found, err := find(ctx)
		if _, known := r.Object(kindBucket, logBucketKey); pipeline.Is(err, pipeline.Denied) && (!r.Down || !known) {
			return nil, nil // perhaps another account's: the create tells
		}
		return found, err
	}
	x.Create = func(ctx context.Context, _ string) (pipeline.Seen, error) {
		err := b.create(ctx, tags(r, x.Key, x.Name))
		if codeOf(err) == "BucketAlreadyExists" {
			err = nameTaken(kindBucket, b.name, "a bucket of another account: the names are shared by all of AWS").From(err)
		}
		return pipeline.Seen{ID: b.name, Status: pipeline.Pending}, err
	}
	x.Delete = func(ctx context.Context, _ string) error { return b.remove(ctx) }
	return tidy(x), nil
}

// A bucket is one bucket of the account; every call says whose it has to be.
type bucket struct {
	*Provider
	name, account string
}

func (b bucket) owner() *string { return aws.String(b.account) }

func (b bucket) create(ctx context.Context, marks map[string]string) error {
	cfg := &s3types.CreateBucketConfiguration{Tags: s3Tags(marks)}
	if b.region != "us-east-1" { // which is no location constraint
		cfg.LocationConstraint = s3types.BucketLocationConstraint(b.region)
	}
	_, err := b.s3.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: aws.String(b.name), CreateBucketConfiguration: cfg})
	return err
}

func s3Tags(marks map[string]string) []s3types.Tag {
	return tagList(marks, func(k, v *string) s3types.Tag { return s3types.Tag{Key: k, Value: v} })
}

// tags reads a bucket's tags; no tags are no error, no bucket is.
func (b bucket) tags(ctx context.Context) (map[string]string, error) {
	return lookup.Once(ctx, "tags of bucket "+b.name, func(ctx context.Context) (map[string]string, error) {
		out, err := b.s3.GetBucketTagging(ctx, &s3.GetBucketTaggingInput{Bucket: aws.String(b.name), ExpectedBucketOwner: b.owner()})
		marks := map[string]string{}
		if codeOf(err) == "NoSuchTagSet" {
			return marks, nil
		}
		if err != nil {
			return nil, err
		}
		for _, t := range out.TagSet {
			marks[aws.ToString(t.Key)] = aws.ToString(t.Value)
		}
		return marks, nil
	})
}

// codeOf is the cloud's own code of an error.
func codeOf(err error) string {
	var ce *pipeline.CloudError
	if errors.As(err, &ce) {
		return ce.Code
	}
	return ""
}

// aspects reads what makes the bucket fit for logs. A new bucket has most of it.
func (b bucket) aspects(ctx context.Context, r *pipeline.Run, marks map[string]string) ([]pipeline.Aspect, error) {
	var block, encryption, policy, expiry pipeline.Aspect
	err := pipeline.All(ctx,
		func(ctx context.Context) (err error) { block, err = b.blockAspect(ctx); return err },
		func(ctx context.Context) (err error) {
			if r.Mode != pipeline.Verify { // no bucket can be without: S3 encrypts all of them
				encryption, err = b.encryptionAspect(ctx)
			}
			return err
		},
		func(ctx context.Context) (err error) { policy, err = b.policyAspect(ctx); return err },
		func(ctx context.Context) (err error) { expiry, err = b.expiryAspect(ctx); return err },
	)
	owned := pipeline.Aspect{Name: "owner mark", Wanted: r.Job.ID, Seen: or(marks[job.MarkOwner], "none"), Lane: "tags", Set: func(ctx context.Context) error {
		_, err := b.s3.PutBucketTagging(ctx, &s3.PutBucketTaggingInput{Bucket: aws.String(b.name), ExpectedBucketOwner: b.owner(), Tagging: &s3types.Tagging{TagSet: s3Tags(tags(r, logBucketKey, b.name))}})
		return err
	}}
	return []pipeline.Aspect{owned, block, encryption, policy, expiry}, err
}

// read is a read of one setting, once a pass; absent are the codes that say that
// the setting is not there.
func (b bucket) read(ctx context.Context, what string, absent string, one func(context.Context) (string, error)) (string, error) {
	return lookup.Once(ctx, what+" of bucket "+b.name, func(ctx context.Context) (string, error) {
		s, err := one(ctx)
		if err != nil && codeOf(err) == absent {
			return "none", nil
		}
		return s, err
	})
}

func (b bucket) blockAspect(ctx context.Context) (pipeline.Aspect, error) {
	seen, err := b.read(ctx, "public access block", "NoSuchPublicAccessBlockConfiguration", func(ctx context.Context) (string, error) {
		out, err := b.s3.GetPublicAccessBlock(ctx, &s3.GetPublicAccessBlockInput{Bucket: aws.String(b.name), ExpectedBucketOwner: b.owner()})
		if err != nil || out.PublicAccessBlockConfiguration == nil {
			return "none", err
		}
		c := out.PublicAccessBlockConfiguration
		if aws.ToBool(c.BlockPublicAcls) && aws.ToBool(c.IgnorePublicAcls) && aws.ToBool(c.BlockPublicPolicy) && aws.ToBool(c.RestrictPublicBuckets) {
			return "all", nil
		}
		return "some", nil
	})
	return pipeline.Aspect{Name: "public access blocked", Wanted: "all", Seen: seen, Lane: "access", Set: func(ctx context.Context) error {
		_, err := b.s3.PutPublicAccessBlock(ctx, &s3.PutPublicAccessBlockInput{Bucket: aws.String(b.name), ExpectedBucketOwner: b.owner(),
			PublicAccessBlockConfiguration: &s3types.PublicAccessBlockConfiguration{
				BlockPublicAcls: aws.Bool(true), IgnorePublicAcls: aws.Bool(true), BlockPublicPolicy: aws.Bool(true), RestrictPublicBuckets: aws.Bool(true),
			}})
		return err
	}}, err
}

// encryptionAspect: load balancers write with S3's own keys and no others.
func (b bucket) encryptionAspect(ctx context.Context) (pipeline.Aspect, error) {
	seen, err := b.read(ctx, "encryption", "ServerSideEncryptionConfigurationNotFoundError", func(ctx context.Context) (string, error) {
		out, err := b.s3.GetBucketEncryption(ctx, &s3.GetBucketEncryptionInput{Bucket: aws.String(b.name), ExpectedBucketOwner: b.owner()})
		if err != nil || out.ServerSideEncryptionConfiguration == nil {
			return "none", err
		}
		for _, rule := range out.ServerSideEncryptionConfiguration.Rules {
			if d := rule.ApplyServerSideEncryptionByDefault; d != nil {
				return string(d.SSEAlgorithm), nil
			}
		}
		return "none", nil
	})
	return pipeline.Aspect{Name: "encryption", Wanted: string(s3types.ServerSideEncryptionAes256), Seen: seen, Lane: "encryption", Set: func(ctx context.Context) error {
		_, err := b.s3.PutBucketEncryption(ctx, &s3.PutBucketEncryptionInput{Bucket: aws.String(b.name), ExpectedBucketOwner: b.owner(),
			ServerSideEncryptionConfiguration: &s3types.ServerSideEncryptionConfiguration{Rules: []s3types.ServerSideEncryptionRule{{
				ApplyServerSideEncryptionByDefault: &s3types.ServerSideEncryptionByDefault{SSEAlgorithm: s3types.ServerSideEncryptionAes256},
			}}}})
		return err
	}}, err
}

// policy lets the load balancers of this account write, over TLS only.
func (b bucket) policy() string {
	arn := "arn:" + partition(b.region) + ":s3:::" + b.name
	doc, err := json.Marshal(map[string]any{"Version": "2012-10-17", "Statement": []any{
		map[string]any{"Sid": "AccessLogs", "Effect": "Allow", "Principal": map[string]string{"Service": logDelivery}, "Action": "s3:PutObject", "Resource": arn + "/AWSLogs/" + b.account + "/*"},
		map[string]any{"Sid": "OverTLS", "Effect": "Deny", "Principal": "*", "Action": "s3:*", "Resource": []string{arn, arn + "/*"}, "Condition": map[string]any{"Bool": map[string]string{"aws:SecureTransport": "false"}}},
	}})
	if err != nil {
		panic(err) // strings always encode
	}
	return string(doc)
}

func (b bucket) policyAspect(ctx context.Context) (pipeline.Aspect, error) {
	seen, err := b.read(ctx, "policy", "NoSuchBucketPolicy", func(ctx context.Context) (string, error) {
		out, err := b.s3.GetBucketPolicy(ctx, &s3.GetBucketPolicyInput{Bucket: aws.String(b.name), ExpectedBucketOwner: b.owner()})
		if err != nil {
			return "", err
		}
		return canonicalPolicy(aws.ToString(out.Policy)), nil
	})
	// In the lane of the block: S3 takes one change of either at a time.
	return pipeline.Aspect{Name: "policy", Wanted: canonicalPolicy(b.policy()), Seen: seen, Lane: "access", Set: func(ctx context.Context) error {
		_, err := b.s3.PutBucketPolicy(ctx, &s3.PutBucketPolicyInput{Bucket: aws.String(b.name), ExpectedBucketOwner: b.owner(), Policy: aws.String(b.policy())})
		return err
	}}, err
}

func (b bucket) expiryAspect(ctx context.Context) (pipeline.Aspect, error) {
	want := fmt.Sprintf("after %d days", logExpiryDays)
	seen, err := b.read(ctx, "lifecycle", "NoSuchLifecycleConfiguration", func(ctx context.Context) (string, error) {
		out, err := b.s3.GetBucketLifecycleConfiguration(ctx, &s3.GetBucketLifecycleConfigurationInput{Bucket: aws.String(b.name), ExpectedBucketOwner: b.owner()})
		if err != nil {
			return "", err
		}
		var rules []string
		for _, rule := range out.Rules {
			if rule.Status == s3types.ExpirationStatusEnabled && rule.Expiration != nil {
				rules = append(rules, fmt.Sprintf("after %d days", aws.ToInt32(rule.Expiration.Days)))
			}
		}
		return or(strings.Join(rules, ", "), "none"), nil
	})
	return pipeline.Aspect{Name: "expiry", Wanted: want, Seen: seen, Lane: "lifecycle", Set: func(ctx context.Context) error {
		_, err := b.s3.PutBucketLifecycleConfiguration(ctx, &s3.PutBucketLifecycleConfigurationInput{Bucket: aws.String(b.name), ExpectedBucketOwner: b.owner(),
			LifecycleConfiguration: &s3types.BucketLifecycleConfiguration{Rules: []s3types.LifecycleRule{{
				ID: aws.String("expire"), Status: s3types.ExpirationStatusEnabled, Filter: &s3types.LifecycleRuleFilter{Prefix: aws.String("")},
				Expiration:                     &s3types.LifecycleExpiration{Days: aws.Int32(logExpiryDays)},
				AbortIncompleteMultipartUpload: &s3types.AbortIncompleteMultipartUpload{DaysAfterInitiation: aws.Int32(7)},
			}}}})
		return err
	}}, err
}

// remove empties the bucket and deletes it. A log that comes in between makes
// the deletion fail, and it is done again.
func (b bucket) remove(ctx context.Context) error {
	for range 1000 { // a thousand objects at a time
		out, err := b.s3.ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: aws.String(b.name), ExpectedBucketOwner: b.owner()})
		if err != nil {
			return err
		}
		if len(out.Contents) == 0 {
			break
		}
		var ids []s3types.ObjectIdentifier
		for _, o := range out.Contents {
			ids = append(ids, s3types.ObjectIdentifier{Key: o.Key})
		}
		deleted, err := b.s3.DeleteObjects(ctx, &s3.DeleteObjectsInput{Bucket: aws.String(b.name), ExpectedBucketOwner: b.owner(), Delete: &s3types.Delete{Objects: ids, Quiet: aws.Bool(true)}})
		if err != nil {
			return err
		}
		for _, e := range deleted.Errors {
			code, message := aws.ToString(e.Code), aws.ToString(e.Message)
			return &pipeline.CloudError{Class: classOf("DeleteObjects", code, message, 400), Service: "S3", Op: "DeleteObjects", Code: code, Message: aws.ToString(e.Key) + ": " + message, Sent: true}
		}
	}
	_, err := b.s3.DeleteBucket(ctx, &s3.DeleteBucketInput{Bucket: aws.String(b.name), ExpectedBucketOwner: b.owner()})
	return err
}
