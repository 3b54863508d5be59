package aws

import (
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
)

// elbAccounts are the accounts that write the access logs of application load balancers in the older regions ("Enable access
// logs for your Application Load Balancer", user guide for application load balancers).
var elbAccounts = map[string]string{
	"us-east-1": "127311923021", "us-east-2": "033677994240", "us-west-1": "027434742980", "us-west-2": "797873946194", "ca-central-1": "985666609251",
	"eu-west-1": "156460612806", "eu-west-2": "652711504416", "eu-west-3": "009996457667", "eu-central-1": "054676820928", "eu-north-1": "897822967062",
	"ap-south-1": "718504428378", "ap-southeast-1": "114774131450", "ap-southeast-2": "783225319266", "ap-northeast-1": "582318560864",
	"ap-northeast-2": "600734575887", "ap-northeast-3": "383597477331", "sa-east-1": "507241528517",
}

// logWriters are who writes the access logs of a type of load balancer in a region, as bucket policies name them.
func logWriters(kind, region string) []string {
	if kind == "network" {
		return []string{"delivery.logs.amazonaws.com"}
	}
	return []string{"logdelivery.elasticloadbalancing.amazonaws.com", "arn:aws:iam::" + elbAccounts[region] + ":root", elbAccounts[region]}
}

// checkLogs looks, when access logs are switched on, whether they can be written where they shall go, and writes the test
// file with which every such bucket begins.
func (s *elbService) checkLogs(c *reqCtx, b *LoadBalancer, change []types.LoadBalancerAttribute) error {
	after := map[string]string{}
	for _, key := range []string{"access_logs.s3.enabled", "access_logs.s3.bucket", "access_logs.s3.prefix"} {
		after[key] = attributeValue(b.attributes(), b.Attributes, key)
	}
	touched := false
	for _, a := range change {
		if _, ok := after[deref(a.Key)]; ok {
			after[*a.Key], touched = deref(a.Value), true
		}
	}
	if !touched || after["access_logs.s3.enabled"] != "true" {
		return nil
	}
	name := after["access_logs.s3.bucket"]
	if name == "" {
		return failValidation("The value of 'access_logs.s3.bucket' must be set when access logs are enabled")
	}
	bucket := s.cloud.platform.s3.state.Buckets[name]
	switch {
	case bucket == nil:
		return fail(400, "InvalidConfigurationRequest", "S3 bucket %s does not exist", name)
	case bucket.Region != c.region:
		return fail(400, "InvalidConfigurationRequest", "The S3 bucket %s must be in the same region as the load balancer", name)
	}
	prefix := after["access_logs.s3.prefix"]
	if prefix != "" {
		prefix = strings.TrimSuffix(prefix, "/") + "/"
	}
	key := prefix + "AWSLogs/" + c.account + "/ELBAccessLogTestFile"
	// "The only server-side encryption option that's supported is Amazon S3-managed keys (SSE-S3)."
	if !bucket.mayPut(key, logWriters(b.Type, c.region)...) || b.Type == "application" && bucket.Encryption != "AES256" {
		return fail(400, "InvalidConfigurationRequest", "Access Denied for bucket: %s. Please check S3bucket permission", name)
	}
	s.cloud.platform.s3.put(bucket, key, "Enable AccessLog for ELB: "+b.ARN+" at "+stamp(c.now))
	return nil
}
