package aws

import (
	"context"
	"encoding/base64"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

const (
	// tokenPrefix is what tells an API server whose token it is.
	tokenPrefix = "k8s-aws-v1." //nolint:gosec // what every such token begins with

	// clusterHeader is signed into the token, so that it is good for one cluster alone.
	clusterHeader = "x-k8s-aws-id"

	// tokenExpires is the age, in seconds, past which the signature itself is refused. The
	// API server takes a token for 15 minutes from its signing whatever stands there.
	tokenExpires = "60"
)

// KubeAccess is how the API server of a cluster is reached. Credentials are those of
// the account, as everywhere; what they may do in the cluster its access entries say.
func (p *Provider) KubeAccess(ctx context.Context, ref job.ClusterRef) (cloud.KubeAccess, error) {
	if err := p.here(ref); err != nil {
		return cloud.KubeAccess{}, err
	}
	c, err := p.readCluster(ctx, ref.Name)
	if err != nil {
		return cloud.KubeAccess{}, plain(err)
	}
	if aws.ToString(c.Endpoint) == "" || c.CertificateAuthority == nil {
		return cloud.KubeAccess{}, &pipeline.CloudError{Class: pipeline.Busy, Service: "EKS", Op: "DescribeCluster", Sent: true,
			Message: fmt.Sprintf("cluster %s is %s and has no endpoint", ref.Name, clusterIssues(c))}
	}
	ca, err := base64.StdEncoding.DecodeString(aws.ToString(c.CertificateAuthority.Data))
	if err != nil {
		return cloud.KubeAccess{}, &pipeline.CloudError{Class: pipeline.Unknown, Service: "EKS", Op: "DescribeCluster", Sent: true,
			Message: "the certificate authority of cluster " + ref.Name + " cannot be read", Err: err}
	}
	return cloud.KubeAccess{Server: aws.ToString(c.Endpoint), CA: ca, Token: func(ctx context.Context) (string, error) { return p.kubeToken(ctx, ref.Name) }}, nil
}

// kubeToken is a signed GetCallerIdentity of the regional STS, which the API server
// sends there to learn who it is ("Grant IAM users access to Kubernetes APIs"; the
// aws-iam-authenticator's README, "API Authorization from Outside a Cluster").
// Signing it asks nobody.
func (p *Provider) kubeToken(ctx context.Context, cluster string) (string, error) {
	signed, err := sts.NewPresignClient(p.sts).PresignGetCallerIdentity(ctx, &sts.GetCallerIdentityInput{}, func(o *sts.PresignOptions) {
		o.ClientOptions = append(o.ClientOptions, sts.WithAPIOptions(
			smithyhttp.SetHeaderValue(clusterHeader, cluster),
			smithyhttp.SetHeaderValue("X-Amz-Expires", tokenExpires),
		))
	})
	if err != nil {
		return "", plain(err)
	}
	return tokenPrefix + base64.RawURLEncoding.EncodeToString([]byte(signed.URL)), nil
}
