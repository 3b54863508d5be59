package kms

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/arn"
	"github.com/aws/aws-sdk-go-v2/config"
	awskms "github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/tink-crypto/tink-go/v2/tink"
)

// awsKey is a symmetric key of AWS KMS.
type awsKey struct {
	client *awskms.Client
	arn    string
}

func (o Options) openAWS(ctx context.Context, name string) (tink.AEADWithContext, error) {
	a, err := arn.Parse(name)
	if err != nil || a.Service != "kms" || a.Region == "" {
		return nil, badName(awsScheme, "arn:aws:kms:REGION:ACCOUNT:key/ID")
	}
	cfg, err := config.LoadDefaultConfig(ctx, config.WithRegion(a.Region))
	if err != nil {
		return nil, fmt.Errorf("configuration of AWS: %w", err)
	}
	var more []func(*awskms.Options)
	if o.AWS != nil {
		more = append(more, o.AWS)
	}
	return &awsKey{awskms.NewFromConfig(cfg, more...), name}, nil
}

// boundTo is the encryption context: AWS KMS authenticates it, and writes it into
// CloudTrail (KMS Developer Guide: Encryption context).
func boundTo(associated []byte) map[string]string {
	return map[string]string{"zopday": hex.EncodeToString(associated)}
}

func (k *awsKey) EncryptWithContext(ctx context.Context, plaintext, associated []byte) ([]byte, error) {
	out, err := k.client.Encrypt(ctx, &awskms.EncryptInput{KeyId: aws.String(k.arn), Plaintext: plaintext, EncryptionContext: boundTo(associated)})
	if err != nil {
		return nil, err
	}
	if len(out.CiphertextBlob) == 0 {
		return nil, errors.New("AWS KMS answered without a ciphertext")
	}
	return out.CiphertextBlob, nil
}

func (k *awsKey) DecryptWithContext(ctx context.Context, ciphertext, associated []byte) ([]byte, error) {
	// The key is named, so that a ciphertext of another key of the account is refused.
	out, err := k.client.Decrypt(ctx, &awskms.DecryptInput{KeyId: aws.String(k.arn), CiphertextBlob: ciphertext, EncryptionContext: boundTo(associated)})
	if err != nil {
		return nil, err
	}
	return out.Plaintext, nil
}
