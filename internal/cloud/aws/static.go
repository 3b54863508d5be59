package aws

import (
	"context"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
)

// Static is a LoadConfig for one endpoint with fixed credentials, such as a
// simulated AWS: neither the environment nor any file of the user is read, so
// that what is meant for a simulation can never reach the real cloud. Every cloud
// account has these credentials, or, if others are given, those of its own.
func Static(endpoint, accessKey, secretKey string, others ...Account) func(context.Context, string, string) (aws.Config, error) {
	return func(_ context.Context, account, region string) (aws.Config, error) {
		key, secret := accessKey, secretKey
		if i := slices.IndexFunc(others, func(o Account) bool { return o.Name == account }); i >= 0 {
			key, secret = others[i].AccessKey, others[i].SecretKey
		} else if len(others) > 0 && account != "" && account != defaultAccount {
			return aws.Config{}, fmt.Errorf("there are no credentials for cloud account %q", account)
		}
		return aws.Config{
			Region:       region,
			BaseEndpoint: aws.String(endpoint),
			Credentials:  credentials.NewStaticCredentialsProvider(key, secret, ""),
		}, nil
	}
}

// An Account is one more cloud account at a Static endpoint.
type Account struct {
	Name                 string // as jobs name it in cloudAccountId
	AccessKey, SecretKey string
}
