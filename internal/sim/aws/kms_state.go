package aws

import (
	"encoding/base64"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

// KMSState is what the Key Management Service keeps, by account and region.
type KMSState struct {
	Keys    map[string]map[string]*KMSKey   // by key ID
	Aliases map[string]map[string]*KMSAlias // by name, alias/…
}

// KMSKey is a customer managed key for symmetric encryption.
type KMSKey struct {
	ID, ARN, State, Description, Policy, Material string
	Created                                       time.Time
	MultiRegion                                   bool
	Deletion                                      time.Time // of a key that waits for it
	Window                                        int32     // days of that wait
	Rotation                                      int32     // days between rotations; 0: none
	RotationSince                                 time.Time
	Tags                                          []Tag
	Grants                                        []*KMSGrant
}

// KMSGrant lets a principal use a key.
type KMSGrant struct {
	ID, Name, Grantee, Retiring, Issuer string
	Operations                          []string
	Created                             time.Time
}

func (g *KMSGrant) token() string { return base64.StdEncoding.EncodeToString([]byte("grant:" + g.ID)) }

// KMSAlias is a name for a key.
type KMSAlias struct {
	Name, ARN, KeyID string
	Created, Updated time.Time
}

// The states of a key ("Key states of AWS KMS keys").
const (
	keyEnabled         = "Enabled"
	keyDisabled        = "Disabled"
	keyPendingDeletion = "PendingDeletion"
)

// kmsService is the AWS Key Management Service.
type kmsService struct {
	cloud *Cloud
	state *KMSState
}

// Cloud implements sim.Service.
func (s *kmsService) Cloud() string { return "aws" }

// Name implements sim.Service.
func (s *kmsService) Name() string { return "kms" }

// State implements sim.Service.
func (s *kmsService) State() any { return s.state }

// Reset implements sim.Service.
func (s *kmsService) Reset() {
	s.state.Keys, s.state.Aliases = map[string]map[string]*KMSKey{}, map[string]map[string]*KMSAlias{}
}

func (s *kmsService) keys(in scope) map[string]*KMSKey {
	if s.state.Keys[in.key()] == nil {
		s.state.Keys[in.key()] = map[string]*KMSKey{}
	}
	return s.state.Keys[in.key()]
}

func (s *kmsService) aliases(in scope) map[string]*KMSAlias {
	if s.state.Aliases[in.key()] == nil {
		s.state.Aliases[in.key()] = map[string]*KMSAlias{}
	}
	return s.state.Aliases[in.key()]
}

// Event implements sim.Service: the waiting period of a key is over. Its aliases go with it.
func (s *kmsService) Event(kind, key string) {
	where, id, _ := strings.Cut(key, "|")
	in := parseScopeKey(where)
	k := s.keys(in)[id]
	if kind != "delete" || k == nil || k.State != keyPendingDeletion || s.cloud.World.Now().Before(k.Deletion) {
		return
	}
	s.drop(in, id)
}

func (s *kmsService) drop(in scope, id string) {
	delete(s.keys(in), id)
	for name, a := range s.aliases(in) {
		if a.KeyID == id {
			delete(s.aliases(in), name)
		}
	}
}

// Objects implements sim.Service. A key that waits for its deletion is still listed, and is no residue: it cannot be
// removed any faster, and is not billed ("Deleting AWS KMS keys", AWS KMS developer guide).
func (s *kmsService) Objects() []sim.Object {
	var out []sim.Object
	for _, where := range sortedKeys(s.state.Keys) {
		in := parseScopeKey(where)
		for _, id := range sortedKeys(s.state.Keys[where]) {
			k := s.state.Keys[where][id]
			out = append(out, sim.Object{Account: in.Account, Region: in.Region, Kind: "key", ID: k.ARN, ARN: k.ARN, State: k.State, Tags: tagMap(k.Tags),
				Description: k.Description, Gone: k.State == keyPendingDeletion, Data: k})
		}
	}
	for _, where := range sortedKeys(s.state.Aliases) {
		in := parseScopeKey(where)
		for _, name := range sortedKeys(s.state.Aliases[where]) {
			a := s.state.Aliases[where][name]
			out = append(out, sim.Object{Account: in.Account, Region: in.Region, Kind: "alias", ID: a.ARN, ARN: a.ARN, Name: a.Name,
				Parents: []string{arn("kms", in.Region, in.Account, "key/"+a.KeyID)}, Data: a})
		}
	}
	return out
}

// SetState implements sim.Service. Without a state a key becomes unavailable.
func (s *kmsService) SetState(id, state, _, _ string) error {
	for _, keys := range s.state.Keys {
		for _, k := range keys {
			if k.ARN == id {
				k.State = orText(state, "Unavailable")
				return nil
			}
		}
	}
	return fmt.Errorf("%s: no such key", id)
}

// Remove implements sim.Service.
func (s *kmsService) Remove(id string) error {
	for where, keys := range s.state.Keys {
		for _, k := range keys {
			if k.ARN == id {
				s.drop(parseScopeKey(where), k.ID)
				return nil
			}
		}
	}
	for _, aliases := range s.state.Aliases {
		for name, a := range aliases {
			if a.ARN == id {
				delete(aliases, name)
				return nil
			}
		}
	}
	return fmt.Errorf("%s: no such key or alias", id)
}

var keyID = regexp.MustCompile(`^(mrk-)?[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$`)

// find looks a key up by ID or ARN and, where an operation takes them, by alias name or ARN.
func (s *kmsService) find(c *reqCtx, id *string, byAlias bool) (*KMSKey, error) {
	text := deref(id)
	if text == "" {
		return nil, refuse("ValidationException", "1 validation error detected: Value null at 'keyId' failed to satisfy constraint: Member must not be null")
	}
	name := text
	if strings.HasPrefix(text, "arn:") {
		rest, ok := strings.CutPrefix(text, c.regionalARN("kms", ""))
		if !ok {
			parts := strings.SplitN(text, ":", 6)
			if len(parts) == 6 && parts[2] == "kms" && parts[3] != c.region {
				return nil, refuse("NotFoundException", "Invalid arn %s", parts[3])
			}
			return nil, refuse("NotFoundException", "Invalid arn %s", text)
		}
		name = strings.TrimPrefix(rest, "key/")
	}
	if strings.HasPrefix(name, "alias/") {
		if !byAlias {
			return nil, refuse("InvalidArnException", "Invalid keyId %s", text)
		}
		a := s.aliases(c.scope())[name]
		if a == nil || !c.visible(a.ARN, a.Created, false, "alias", a.Name) {
			return nil, refuse("NotFoundException", "Alias %s is not found.", c.regionalARN("kms", name))
		}
		name = a.KeyID
	} else if !keyID.MatchString(name) {
		return nil, refuse("NotFoundException", "Invalid keyId '%s'", text)
	}
	k := s.keys(c.scope())[name]
	if k == nil || !c.visible(k.ARN, k.Created, false, "key", tagValues(k.Tags)) {
		return nil, refuse("NotFoundException", "Key '%s' does not exist", c.regionalARN("kms", "key/"+name))
	}
	c.Touch(k.ARN)
	return k, nil
}

// lookup finds a key for another service: by ARN, or by the ARN of an alias.
func (s *kmsService) lookup(in scope, keyARN string) *KMSKey {
	id, ok := strings.CutPrefix(keyARN, arn("kms", in.Region, in.Account, "key/"))
	if !ok {
		a := s.aliases(in)[strings.TrimPrefix(keyARN, arn("kms", in.Region, in.Account, ""))]
		if a == nil {
			return nil
		}
		id = a.KeyID
	}
	return s.keys(in)[id]
}
