package aws

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
)

// Static is a LoadConfig for one endpoint with fixed credentials, such as a
// simulated AWS: neither the environment nor any file of the user is read, so
// that what is meant for a simulation can never reach the real cloud.
func Static(endpoint, accessKey, secretKey string) func(context.Context, string, string) (aws.Config, error) {
	return func(_ context.Context, _, region string) (aws.Config, error) {
		return aws.Config{
			Region:       region,
			BaseEndpoint: aws.String(endpoint),
			Credentials:  credentials.NewStaticCredentialsProvider(accessKey, secretKey, ""),
		}, nil
	}
}
