package aws

import (
	"strings"
	"time"
)

// KeyPair is an SSH key. The simulation can only be given public halves.
type KeyPair struct {
	Name        string    `ec2:"keyName"`
	ID          string    `ec2:"keyPairId"`
	Fingerprint string    `ec2:"keyFingerprint"`
	Type        string    `ec2:"keyType"`
	CreateTime  time.Time `ec2:"createTime"`
	meta
}

func (k *KeyPair) ident() string { return k.ID }
func (k *KeyPair) kind() string  { return "key-pair" }
func (k *KeyPair) placed() place {
	return place{"", nil, false}
}

func (k *KeyPair) attr(name string) ([]string, bool) {
	v := map[string]string{"key-name": k.Name, "key-pair-id": k.ID, "fingerprint": k.Fingerprint}
	s, ok := v[name]
	return []string{s}, ok
}

type importKeyIn struct {
	KeyName           string
	PublicKeyMaterial []byte
	TagSpecification  []tagSpec
}

func (e *EC2) importKey(r *request, in importKeyIn) (any, error) {
	tags, err := tagsFor(in.TagSpecification, "key-pair")
	if err != nil {
		return nil, err
	}
	sc := e.in(r.scope())
	if in.KeyName == "" {
		return nil, missing("KeyName")
	}
	if len(in.PublicKeyMaterial) == 0 {
		return nil, missing("PublicKeyMaterial")
	}
	if sc.keyPair(in.KeyName) != nil {
		return nil, refuse("InvalidKeyPair.Duplicate", "The keypair already exists")
	}
	kind := "rsa"
	if strings.Contains(string(in.PublicKeyMaterial), "ed25519") {
		kind = "ed25519"
	}
	h := e.cloud.World.Hex("", 32)
	var parts []string
	for i := 0; i < 32; i += 2 {
		parts = append(parts, h[i:i+2])
	}
	k := &KeyPair{Name: in.KeyName, ID: e.cloud.hex17("key-"), Fingerprint: strings.Join(parts, ":"), Type: kind, meta: e.fresh(tags)}
	k.CreateTime = k.Created
	sc.KeyPairs[k.ID] = k
	r.Make(k.ID)
	return struct {
		Fingerprint string `ec2:"keyFingerprint"`
		Name        string `ec2:"keyName"`
		ID          string `ec2:"keyPairId"`
		Tags        []Tag  `ec2:"tagSet"`
	}{k.Fingerprint, k.Name, k.ID, k.Tags}, nil
}

func (sc *ec2Scope) keyPair(name string) *KeyPair {
	for _, k := range sc.KeyPairs {
		if k.Name == name {
			return k
		}
	}
	return nil
}

type describeKeysIn struct {
	KeyName   []string
	KeyPairID []string `q:"KeyPairId"`
	Filter    []Filter
}

func (e *EC2) describeKeys(r *request, in describeKeysIn) (any, error) {
	sc := e.in(r.scope())
	for _, name := range in.KeyName {
		k := sc.keyPair(name)
		if k == nil {
			return nil, noKeyPair(name)
		}
		in.KeyPairID = append(in.KeyPairID, k.ID)
	}
	found, err := find(e, r, sc.KeyPairs, in.KeyPairID, in.Filter, noKeyPair)
	return struct {
		Keys []*KeyPair `ec2:"keySet"`
	}{found}, err
}

type keyIn struct {
	KeyName   string
	KeyPairID string `q:"KeyPairId"`
}

func (e *EC2) deleteKey(r *request, in keyIn) (any, error) {
	sc := e.in(r.scope())
	k := sc.KeyPairs[in.KeyPairID]
	if k == nil {
		k = sc.keyPair(in.KeyName)
	}
	out := struct {
		Return bool   `ec2:"return"`
		ID     string `ec2:"keyPairId,omitempty"`
	}{Return: true}
	// Deleting a key pair that is not there is no error ("DeleteKeyPair", Amazon EC2 API reference).
	if k != nil {
		out.ID = k.ID
		delete(sc.KeyPairs, k.ID)
	}
	return out, nil
}
