package aws

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/secretsmanager/types"

	"github.com/zopday/provisioner/internal/sim"
)

// SecretsState is what Secrets Manager keeps, by account and region. The values stand beside the secrets, so that whoever
// looks at an object does not see them.
type SecretsState struct {
	Secrets map[string]map[string]*Secret                   // by name
	Values  map[string]map[string]map[string]*SecretVersion // by ARN, then by version ID
}

// Secret is a secret without its values.
type Secret struct {
	Account, Region, Name, ARN, Description, KmsKeyID string
	Owner                                             string // the service that manages it, such as rds
	Created, Changed, Accessed, Rotated               time.Time
	Deleted, Gone                                     time.Time // deleted: when that was asked for; gone: when it is final
	Rotation                                          *types.RotationRulesType
	Lambda                                            string
	Policy                                            string
	Tags                                              []Tag
	Token, TokenHash                                  string // of the request that made it
}

// SecretVersion is a value of a secret.
type SecretVersion struct {
	ID       string
	Stages   []string
	Created  time.Time
	Accessed time.Time
	Seq      int
	Text     *string
	Binary   []byte
}

// The staging labels of Secrets Manager itself ("Secret version").
const (
	stageCurrent  = "AWSCURRENT"
	stagePrevious = "AWSPREVIOUS"
	stagePending  = "AWSPENDING"
)

// secretsService is AWS Secrets Manager.
type secretsService struct {
	cloud *Cloud
	state *SecretsState
}

// Cloud implements sim.Service.
func (s *secretsService) Cloud() string { return "aws" }

// Name implements sim.Service.
func (s *secretsService) Name() string { return "secretsmanager" }

// State implements sim.Service.
func (s *secretsService) State() any { return s.state }

// Reset implements sim.Service.
func (s *secretsService) Reset() {
	s.state.Secrets, s.state.Values = map[string]map[string]*Secret{}, map[string]map[string]map[string]*SecretVersion{}
}

func (s *secretsService) in(at scope) map[string]*Secret {
	if s.state.Secrets[at.key()] == nil {
		s.state.Secrets[at.key()] = map[string]*Secret{}
	}
	return s.state.Secrets[at.key()]
}

// values are the versions of a secret, by ID.
func (s *secretsService) values(x *Secret) map[string]*SecretVersion {
	where := scope{x.Account, x.Region}.key()
	if s.state.Values[where] == nil {
		s.state.Values[where] = map[string]map[string]*SecretVersion{}
	}
	if s.state.Values[where][x.ARN] == nil {
		s.state.Values[where][x.ARN] = map[string]*SecretVersion{}
	}
	return s.state.Values[where][x.ARN]
}

// versions lists the versions of a secret that have a label, oldest first.
func (s *secretsService) versions(x *Secret) []*SecretVersion {
	var out []*SecretVersion
	for _, v := range s.values(x) {
		out = append(out, v)
	}
	slices.SortFunc(out, func(a, b *SecretVersion) int { return a.Seq - b.Seq })
	return out
}

// staged is the version with a label.
func (s *secretsService) staged(x *Secret, stage string) *SecretVersion {
	for _, v := range s.values(x) {
		if slices.Contains(v.Stages, stage) {
			return v
		}
	}
	return nil
}

// Objects implements sim.Service. A secret that waits for its deletion is still there: its name is held.
func (s *secretsService) Objects() []sim.Object {
	var out []sim.Object
	for _, where := range sortedKeys(s.state.Secrets) {
		at := parseScopeKey(where)
		for _, name := range sortedKeys(s.state.Secrets[where]) {
			x := s.state.Secrets[where][name]
			state := "active"
			if !x.Deleted.IsZero() {
				state = "scheduled for deletion"
			}
			out = append(out, sim.Object{Account: at.Account, Region: at.Region, Kind: "secret", ID: x.ARN, ARN: x.ARN, Name: name, State: state, Tags: tagMap(x.Tags),
				Default: x.Owner != "", Gone: !x.Deleted.IsZero(), Data: x})
		}
	}
	return out
}

// SetState implements sim.Service.
func (s *secretsService) SetState(id, _, _, _ string) error {
	return fmt.Errorf("%s: secrets have no states", id)
}

// Remove implements sim.Service.
func (s *secretsService) Remove(id string) error {
	for _, all := range s.state.Secrets {
		for _, x := range all {
			if x.ARN == id {
				s.drop(x)
				return nil
			}
		}
	}
	return fmt.Errorf("%s: no such secret", id)
}

func (s *secretsService) drop(x *Secret) {
	where := scope{x.Account, x.Region}.key()
	delete(s.state.Secrets[where], x.Name)
	delete(s.state.Values[where], x.ARN)
}

// byARN finds a secret of any account.
func (s *secretsService) byARN(id string) *Secret {
	for _, all := range s.state.Secrets {
		for _, x := range all {
			if x.ARN == id {
				return x
			}
		}
	}
	return nil
}

// Event implements sim.Service.
func (s *secretsService) Event(kind, key string) {
	x := s.byARN(key)
	if x == nil {
		return
	}
	switch kind {
	case "gone":
		if !x.Gone.IsZero() && !s.cloud.World.Now().Before(x.Gone) {
			s.drop(x)
		}
	case "rotate":
		s.finishRotation(x)
	}
}

// putVersion adds a version with labels, which other versions lose. A version without labels is deprecated, and goes.
func (s *secretsService) putVersion(x *Secret, v *SecretVersion) {
	all := s.values(x)
	for _, o := range all {
		v.Seq = max(v.Seq, o.Seq+1)
	}
	all[v.ID] = v
	for _, stage := range slices.Clone(v.Stages) {
		s.moveStage(x, stage, v)
	}
	x.Changed = s.cloud.World.Now()
}

// moveStage gives a label to a version. The version that was current becomes the previous one.
func (s *secretsService) moveStage(x *Secret, stage string, to *SecretVersion) {
	for _, v := range s.values(x) {
		if v == to || !slices.Contains(v.Stages, stage) {
			continue
		}
		v.Stages = slices.DeleteFunc(v.Stages, func(t string) bool { return t == stage })
		if stage == stageCurrent {
			s.moveStage(x, stagePrevious, v)
		}
	}
	if to != nil && !slices.Contains(to.Stages, stage) {
		to.Stages = append(to.Stages, stage)
		slices.Sort(to.Stages)
	}
	for id, v := range s.values(x) {
		if len(v.Stages) == 0 {
			delete(s.values(x), id)
		}
	}
}

// The secrets that another service manages ("Secrets managed by other AWS services").

// passwordLetters are those of passwords that RDS draws: none that an engine refuses.
const passwordLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&()*+-.:;<=>?[]^_{|}~"

// manage makes a secret of a service.
func (s *secretsService) manage(at scope, owner, name, description, keyID string, tags []Tag, value map[string]string) *Secret {
	w := s.cloud.World
	now := w.Now()
	x := &Secret{Account: at.Account, Region: at.Region, Name: name, Description: description, KmsKeyID: keyID, Owner: owner, Created: now, Changed: now, Rotated: now, Tags: tags,
		ARN: arn("secretsmanager", at.Region, at.Account, "secret:"+name+"-"+w.ID("", 6, secretLetters)), Rotation: &types.RotationRulesType{AutomaticallyAfterDays: new(int64(7))}}
	s.in(at)[name] = x
	s.putVersion(x, &SecretVersion{ID: w.UUID(), Stages: []string{stageCurrent}, Created: now, Text: jsonText(value)})
	return x
}

func jsonText(value map[string]string) *string {
	b, err := json.Marshal(value)
	if err != nil {
		panic(err) // texts
	}
	return new(string(b))
}

const secretLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

// finishRotation gives a managed secret a new password, and its owner the same one.
func (s *secretsService) finishRotation(x *Secret) {
	pending := s.staged(x, stagePending)
	if pending == nil || pending.Text == nil || x.Owner != "rds" {
		return
	}
	var value map[string]string
	if json.Unmarshal([]byte(*pending.Text), &value) != nil {
		return
	}
	s.cloud.platform.rds.rotated(x.ARN, value["password"])
	s.moveStage(x, stageCurrent, pending)
	s.moveStage(x, stagePending, nil)
	x.Rotated = s.cloud.World.Now()
	x.Changed = x.Rotated
}

// secretMatches says whether one of a filter's values is a prefix of what it looks at; ! turns it round ("Filters", ListSecrets).
func secretMatches(f types.Filter, x *Secret) bool {
	var has []string
	switch f.Key {
	case types.FilterNameStringTypeName:
		has = []string{x.Name}
	case types.FilterNameStringTypeDescription:
		has = strings.Fields(x.Description)
	case types.FilterNameStringTypeTagKey:
		has = sortedKeys(tagMap(x.Tags))
	case types.FilterNameStringTypeTagValue:
		has = strings.Fields(tagValues(x.Tags))
	case types.FilterNameStringTypeOwningService:
		has = []string{x.Owner}
	default:
		has = append([]string{x.Name, x.Description, x.Owner}, strings.Fields(tagValues(x.Tags))...)
	}
	for _, want := range f.Values {
		want, not := strings.CutPrefix(want, "!")
		hit := slices.ContainsFunc(has, func(h string) bool { return strings.HasPrefix(h, want) })
		if hit != not {
			return true
		}
	}
	return false
}
