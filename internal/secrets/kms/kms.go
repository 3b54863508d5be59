// Package kms encrypts and decrypts with keys that do not leave a cloud's key
// management service: AWS KMS, Google Cloud KMS and Azure Key Vault, each through its
// vendor's client and with the process's own identity at that cloud. What is
// encrypted is the keyset of the installation's secrets, at the first start, at each
// rotation, and opened at each start.
package kms

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/security/keyvault/azkeys"
	awskms "github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/tink-crypto/tink-go/v2/tink"
	"google.golang.org/api/option"
)

// The schemes of the URIs.
const (
	awsScheme   = "aws-kms://"
	gcpScheme   = "gcp-kms://"
	azureScheme = "azure-kv://"
)

// Options change how the services are reached; the zero value reaches them as every
// program at their clouds does.
type Options struct {
	AWS             func(*awskms.Options)
	GCP             []option.ClientOption
	Azure           *azkeys.ClientOptions
	AzureCredential azcore.TokenCredential // nil: the default chain of the SDK
}

// Open is the key that a URI names:
//
//   - aws-kms://arn:aws:kms:REGION:ACCOUNT:key/ID, a symmetric key, by its ARN or an alias's;
//   - gcp-kms://projects/P/locations/L/keyRings/R/cryptoKeys/K, a key of purpose ENCRYPT_DECRYPT;
//   - azure-kv://VAULT/KEY, an RSA key, where VAULT is the vault's name or its host.
//
// Nothing is sent before the key is used.
func Open(ctx context.Context, uri string) (tink.AEADWithContext, error) {
	return Options{}.Open(ctx, uri)
}

// Open is the same by these options.
func (o Options) Open(ctx context.Context, uri string) (tink.AEADWithContext, error) {
	for scheme, open := range map[string]func(context.Context, string) (tink.AEADWithContext, error){
		awsScheme: o.openAWS, gcpScheme: o.openGCP, azureScheme: o.openAzure,
	} {
		if name, ok := strings.CutPrefix(uri, scheme); ok {
			return open(ctx, name)
		}
	}
	return nil, errors.New("the URI names no key; use aws-kms://arn:…, gcp-kms://projects/… or azure-kv://vault/key")
}

// badName is a URI whose scheme is known and whose rest is not.
func badName(scheme, want string) error {
	return fmt.Errorf("the URI is not of the form %s%s", scheme, want)
}
