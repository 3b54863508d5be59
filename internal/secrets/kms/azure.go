package kms

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/security/keyvault/azkeys"
	"github.com/tink-crypto/tink-go/v2/aead/subtle"
	"github.com/tink-crypto/tink-go/v2/tink"
)

// azureKey is an RSA key of Azure Key Vault. Such a key takes about 200 bytes and no
// associated data, so it wraps a key of AES-256-GCM, which encrypts the rest.
type azureKey struct {
	client *azkeys.Client
	name   string
}

// azureSealed is a ciphertext of ours: the vault's key may get new versions, and an
// older one opens what it wrapped.
type azureSealed struct {
	Version string `json:"version"`
	Wrapped []byte `json:"wrapped"`
	Sealed  []byte `json:"sealed"`
}

var azureName = regexp.MustCompile(`^([A-Za-z0-9.-]+)/([A-Za-z0-9-]+)$`)

func (o Options) openAzure(_ context.Context, name string) (tink.AEADWithContext, error) {
	m := azureName.FindStringSubmatch(name)
	if m == nil {
		return nil, badName(azureScheme, "VAULT/KEY")
	}
	host := m[1]
	if !strings.Contains(host, ".") {
		host += ".vault.azure.net"
	}
	credential := o.AzureCredential
	if credential == nil {
		var err error
		if credential, err = azidentity.NewDefaultAzureCredential(nil); err != nil {
			return nil, fmt.Errorf("credentials of Azure: %w", err)
		}
	}
	client, err := azkeys.NewClient("https://"+host, credential, o.Azure)
	if err != nil {
		return nil, fmt.Errorf("client of Azure Key Vault: %w", err)
	}
	return &azureKey{client, m[2]}, nil
}

func (k *azureKey) EncryptWithContext(ctx context.Context, plaintext, associated []byte) ([]byte, error) {
	dek := make([]byte, 32)
	rand.Read(dek)
	defer clear(dek)
	out, err := k.client.WrapKey(ctx, k.name, "", azkeys.KeyOperationParameters{Algorithm: to.Ptr(azkeys.EncryptionAlgorithmRSAOAEP256), Value: dek}, nil)
	if err != nil {
		return nil, err
	}
	if out.KID == nil || out.KID.Version() == "" || len(out.Result) == 0 {
		return nil, errors.New("the vault answered without a wrapped key or its version")
	}
	data, err := subtle.NewAESGCM(dek)
	if err != nil {
		return nil, err
	}
	sealed, err := data.Encrypt(plaintext, associated)
	if err != nil {
		return nil, err
	}
	return json.Marshal(azureSealed{out.KID.Version(), out.Result, sealed})
}

func (k *azureKey) DecryptWithContext(ctx context.Context, ciphertext, associated []byte) ([]byte, error) {
	var s azureSealed
	if err := json.Unmarshal(ciphertext, &s); err != nil || !azureVersion.MatchString(s.Version) {
		return nil, errors.New("it is not what a key of a vault has encrypted")
	}
	out, err := k.client.UnwrapKey(ctx, k.name, s.Version, azkeys.KeyOperationParameters{Algorithm: to.Ptr(azkeys.EncryptionAlgorithmRSAOAEP256), Value: s.Wrapped}, nil)
	if err != nil {
		return nil, err
	}
	defer clear(out.Result)
	data, err := subtle.NewAESGCM(out.Result)
	if err != nil {
		return nil, err
	}
	return data.Decrypt(s.Sealed, associated)
}

var azureVersion = regexp.MustCompile(`^[0-9A-Za-z]{1,64}$`)
