package aws

import (
	"github.com/zopday/provisioner/internal/sim"
	"strings"
	"testing"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

func TestS3(t *testing.T) {
	p := newRig(t, immediate)
	c := s3.NewFromConfig(p.cfg, func(o *s3.Options) { o.UsePathStyle = true })
	ctx := t.Context()
	name := awssdk.String("logs-of-nobody")
	if _, err := c.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: name, CreateBucketConfiguration: &types.CreateBucketConfiguration{Tags: []types.Tag{{Key: awssdk.String("a"), Value: awssdk.String("b")}}}}); err != nil {
		dumpBooks(t, p); t.Fatal(err)
	}
	tags, err := c.GetBucketTagging(ctx, &s3.GetBucketTaggingInput{Bucket: name})
	if err != nil || len(tags.TagSet) != 1 || *tags.TagSet[0].Value != "b" {
		dumpBooks(t, p); t.Fatal(tags, err)
	}
	_ = strings.TrimSpace
}
func dumpBooks(t *testing.T, r *rig) {
	for _, e := range r.w.Books(sim.BookFilter{}) {
		t.Log(e.Service, e.Operation, e.Status, e.Code)
	}
}
