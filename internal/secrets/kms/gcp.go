package kms

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"

	"github.com/tink-crypto/tink-go/v2/tink"
	"google.golang.org/api/cloudkms/v1"
)

// gcpKey is a key of Google Cloud KMS.
type gcpKey struct {
	keys *cloudkms.ProjectsLocationsKeyRingsCryptoKeysService
	name string
}

var gcpName = regexp.MustCompile(`^projects/[^/]+/locations/[^/]+/keyRings/[^/]+/cryptoKeys/[^/]+$`)

func (o Options) openGCP(ctx context.Context, name string) (tink.AEADWithContext, error) {
	if !gcpName.MatchString(name) {
		return nil, badName(gcpScheme, "projects/P/locations/L/keyRings/R/cryptoKeys/K")
	}
	s, err := cloudkms.NewService(ctx, o.GCP...)
	if err != nil {
		return nil, fmt.Errorf("client of Google Cloud KMS: %w", err)
	}
	return &gcpKey{s.Projects.Locations.KeyRings.CryptoKeys, name}, nil
}

func (k *gcpKey) EncryptWithContext(ctx context.Context, plaintext, associated []byte) ([]byte, error) {
	out, err := k.keys.Encrypt(k.name, &cloudkms.EncryptRequest{
		Plaintext: base64.StdEncoding.EncodeToString(plaintext), AdditionalAuthenticatedData: base64.StdEncoding.EncodeToString(associated),
	}).Context(ctx).Do()
	if err != nil {
		return nil, err
	}
	sealed, err := base64.StdEncoding.DecodeString(out.Ciphertext)
	if err != nil || len(sealed) == 0 {
		return nil, errors.New("Google Cloud KMS answered without a ciphertext") //nolint:staticcheck // a name
	}
	return sealed, nil
}

func (k *gcpKey) DecryptWithContext(ctx context.Context, ciphertext, associated []byte) ([]byte, error) {
	out, err := k.keys.Decrypt(k.name, &cloudkms.DecryptRequest{
		Ciphertext: base64.StdEncoding.EncodeToString(ciphertext), AdditionalAuthenticatedData: base64.StdEncoding.EncodeToString(associated),
	}).Context(ctx).Do()
	if err != nil {
		return nil, err
	}
	return base64.StdEncoding.DecodeString(out.Plaintext)
}
