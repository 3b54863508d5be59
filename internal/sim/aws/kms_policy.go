package aws

import (
	"encoding/json"
	"regexp"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/kms/types"
)

// defaultKeyPolicy is the policy of a key that was made by the API without one ("Default key policy").
func defaultKeyPolicy(account string) string {
	return `{
  "Version" : "2012-10-17",
  "Id" : "key-default-1",
  "Statement" : [ {
    "Sid" : "Enable IAM User Permissions",
    "Effect" : "Allow",
    "Principal" : {
      "AWS" : "arn:aws:iam::` + account + `:root"
    },
    "Action" : "kms:*",
    "Resource" : "*"
  } ]
}`
}

// checkPolicy refuses what is no key policy, one that names a principal of the account who does not exist, and one that
// would lock its author out ("Key policies in AWS KMS").
func (s *kmsService) checkPolicy(c *reqCtx, doc string, bypass bool) error {
	malformed := func(why string) error { return refuse("MalformedPolicyDocumentException", "%s", why) }
	if len(doc) > 32768 {
		return refuse("LimitExceededException", "The policy exceeds the maximum size of 32 KB.")
	}
	p, err := parsePolicy(doc)
	if err != nil {
		return malformed("The new key policy is malformed.")
	}
	open := false
	for _, st := range p.Statement {
		if len(st.Principal) == 0 || len(st.Action) == 0 || len(st.Resource) == 0 {
			return malformed("Policy statement must contain principal, action and resource.")
		}
		who, err := principals(st.Principal)
		if err != nil {
			return malformed("The new key policy is malformed.")
		}
		for _, arn := range who["AWS"] {
			if !s.principalExists(c, arn) {
				return malformed("Policy contains a statement with one or more invalid principals.")
			}
		}
		if st.Effect == "Allow" && mayPutPolicy(st.Action) && s.includesCaller(c, who) {
			open = true
		}
	}
	if !open && !bypass {
		return malformed("The new key policy will not allow you to update the key policy in the future.")
	}
	return nil
}

// principals reads the principal of a statement; "*" is everybody.
func principals(raw json.RawMessage) (map[string]stringList, error) {
	var any string
	if json.Unmarshal(raw, &any) == nil {
		return map[string]stringList{"AWS": {any}}, nil
	}
	var by map[string]stringList
	err := json.Unmarshal(raw, &by)
	return by, err
}

func mayPutPolicy(actions []string) bool {
	for _, a := range actions {
		if a == "*" || a == "kms:*" || a == "kms:Put*" || a == "kms:PutKeyPolicy" {
			return true
		}
	}
	return false
}

// principalExists says whether KMS knows a principal by now: roles and users of this account must be there, and for a
// while after they were made they are not ("MalformedPolicyDocumentException ... wait and try again", CreateKey).
func (s *kmsService) principalExists(c *reqCtx, arn string) bool {
	rest, own := strings.CutPrefix(arn, c.iamARN(""))
	if !own {
		return true
	}
	iam := s.cloud.platform.iam
	if name, ok := strings.CutPrefix(rest, "role/"); ok {
		r := iam.state.account(c.account).Roles[strings.ToLower(name[strings.LastIndex(name, "/")+1:])]
		return r != nil && r.ARN == arn && (r.Service != "" || c.now.Sub(r.Created) >= iam.propagation(r.ARN))
	}
	if name, ok := strings.CutPrefix(rest, "user/"); ok {
		u := iam.state.account(c.account).Users[strings.ToLower(name[strings.LastIndex(name, "/")+1:])]
		return u != nil && u.ARN == arn || arn == c.caller().ARN
	}
	return true
}

// includesCaller says whether principals include the caller or the account as a whole.
func (s *kmsService) includesCaller(c *reqCtx, who map[string]stringList) bool {
	caller := c.caller().ARN
	role := roleOfSession(caller, s.cloud.platform.iam)
	for _, arn := range who["AWS"] {
		if arn == "*" || arn == c.account || arn == c.iamARN("root") || arn == caller || role != "" && arn == role {
			return true
		}
	}
	return false
}

func (s *kmsService) getPolicy(c *reqCtx, in *kms.GetKeyPolicyInput) (*kms.GetKeyPolicyOutput, error) {
	k, err := s.find(c, in.KeyId, false)
	if err != nil {
		return nil, err
	}
	if name := orDefault(in.PolicyName, "default"); name != "default" {
		return nil, refuse("NotFoundException", "No such policy exists: %s", name)
	}
	return &kms.GetKeyPolicyOutput{Policy: new(k.Policy), PolicyName: new("default")}, nil
}

func (s *kmsService) putPolicy(c *reqCtx, in *kms.PutKeyPolicyInput) (*kms.PutKeyPolicyOutput, error) {
	k, err := s.usable(c, in.KeyId, true)
	if err != nil {
		return nil, err
	}
	if err := s.checkPolicy(c, deref(in.Policy), in.BypassPolicyLockoutSafetyCheck); err != nil {
		return nil, err
	}
	k.Policy = *in.Policy
	return &kms.PutKeyPolicyOutput{}, nil
}

func (s *kmsService) listPolicies(c *reqCtx, in *kms.ListKeyPoliciesInput) (*kms.ListKeyPoliciesOutput, error) {
	if _, err := s.find(c, in.KeyId, false); err != nil {
		return nil, err
	}
	return &kms.ListKeyPoliciesOutput{PolicyNames: []string{"default"}}, nil
}

var aliasPattern = regexp.MustCompile(`^alias/[a-zA-Z0-9/_-]{1,250}$`)

// checkAliasName refuses what a customer's alias may not be called.
func checkAliasName(name string) error {
	switch {
	case !strings.HasPrefix(name, "alias/"):
		return refuse("ValidationException", `Alias must start with the prefix "alias/". Please see https://docs.aws.amazon.com/kms/latest/developerguide/kms-alias.html`)
	case strings.HasPrefix(name, "alias/aws/"):
		return refuse("NotAuthorizedException", "")
	case !aliasPattern.MatchString(name):
		return refuse("ValidationException", `1 validation error detected: Value '%s' at 'aliasName' failed to satisfy constraint: Member must satisfy regular expression pattern: ^[a-zA-Z0-9:/_-]+$`, name)
	}
	return nil
}

func (s *kmsService) createAlias(c *reqCtx, in *kms.CreateAliasInput) (*kms.CreateAliasOutput, error) {
	name := deref(in.AliasName)
	if err := checkAliasName(name); err != nil {
		return nil, err
	}
	k, err := s.usable(c, in.TargetKeyId, true)
	if err != nil {
		return nil, err
	}
	aliases := s.aliases(c.scope())
	if aliases[name] != nil {
		return nil, refuse("AlreadyExistsException", "An alias with the name %s already exists", c.regionalARN("kms", name))
	}
	a := &KMSAlias{Name: name, ARN: c.regionalARN("kms", name), KeyID: k.ID, Created: c.now, Updated: c.now}
	aliases[name] = a
	c.Make(a.ARN)
	return &kms.CreateAliasOutput{}, nil
}

func (s *kmsService) updateAlias(c *reqCtx, in *kms.UpdateAliasInput) (*kms.UpdateAliasOutput, error) {
	a := s.aliases(c.scope())[deref(in.AliasName)]
	if a == nil {
		return nil, refuse("NotFoundException", "Alias %s is not found.", c.regionalARN("kms", deref(in.AliasName)))
	}
	k, err := s.usable(c, in.TargetKeyId, true)
	if err != nil {
		return nil, err
	}
	a.KeyID, a.Updated = k.ID, c.now
	return &kms.UpdateAliasOutput{}, nil
}

func (s *kmsService) deleteAlias(c *reqCtx, in *kms.DeleteAliasInput) (*kms.DeleteAliasOutput, error) {
	name := deref(in.AliasName)
	if err := checkAliasName(name); err != nil {
		return nil, err
	}
	a := s.aliases(c.scope())[name]
	if a == nil {
		return nil, refuse("NotFoundException", "Alias %s is not found.", c.regionalARN("kms", name))
	}
	c.Touch(a.ARN)
	delete(s.aliases(c.scope()), name)
	return &kms.DeleteAliasOutput{}, nil
}

func (s *kmsService) listAliases(c *reqCtx, in *kms.ListAliasesInput) (*kms.ListAliasesOutput, error) {
	of := ""
	if in.KeyId != nil {
		k, err := s.find(c, in.KeyId, false)
		if err != nil {
			return nil, err
		}
		of = k.ID
	}
	aliases, all := s.aliases(c.scope()), []types.AliasListEntry{}
	for _, name := range sortedKeys(aliases) {
		a := aliases[name]
		if of != "" && a.KeyID != of || !c.visible(a.ARN, a.Created, true, "alias", a.Name) {
			continue
		}
		all = append(all, types.AliasListEntry{AliasName: new(a.Name), AliasArn: new(a.ARN), TargetKeyId: new(a.KeyID), CreationDate: new(a.Created), LastUpdatedDate: new(a.Updated)})
	}
	page, next, err := kmsPage(c, all, in.Marker, in.Limit, 50, 100)
	return &kms.ListAliasesOutput{Aliases: page, NextMarker: next, Truncated: next != nil}, err
}

// checkKMSTags merges added tags into those there are, after the rules of KMS ("Tags in AWS KMS").
func checkKMSTags(have []Tag, added []types.Tag) ([]Tag, error) {
	out, seen := append([]Tag{}, have...), map[string]bool{}
	for i, t := range added {
		key, value := deref(t.TagKey), deref(t.TagValue)
		switch {
		case key == "":
			return nil, refuse("ValidationException", "1 validation error detected: Value '' at 'tags.%d.member.tagKey' failed to satisfy constraint: Member must have length greater than or equal to 1", i+1)
		case len([]rune(key)) > 128:
			return nil, refuse("ValidationException", "1 validation error detected: Value '%s' at 'tags.%d.member.tagKey' failed to satisfy constraint: Member must have length less than or equal to 128", key, i+1)
		case len([]rune(value)) > 256:
			return nil, refuse("ValidationException", "1 validation error detected: Value '%s' at 'tags.%d.member.tagValue' failed to satisfy constraint: Member must have length less than or equal to 256", value, i+1)
		case strings.HasPrefix(strings.ToLower(key), "aws:"):
			return nil, refuse("TagException", "Tags beginning with aws: are reserved")
		case seen[key]:
			return nil, refuse("TagException", "Duplicate tag keys")
		}
		seen[key] = true
		out = setTag(out, key, value)
	}
	if len(out) > 50 {
		return nil, refuse("TagException", "Too many tags")
	}
	return out, nil
}

func (s *kmsService) tag(c *reqCtx, in *kms.TagResourceInput) (*kms.TagResourceOutput, error) {
	k, err := s.usable(c, in.KeyId, true)
	if err != nil {
		return nil, err
	}
	tags, err := checkKMSTags(k.Tags, in.Tags)
	if err != nil {
		return nil, err
	}
	k.Tags = tags
	return &kms.TagResourceOutput{}, nil
}

func (s *kmsService) untag(c *reqCtx, in *kms.UntagResourceInput) (*kms.UntagResourceOutput, error) {
	k, err := s.usable(c, in.KeyId, true)
	if err != nil {
		return nil, err
	}
	k.Tags = dropTags(k.Tags, in.TagKeys)
	return &kms.UntagResourceOutput{}, nil
}

func (s *kmsService) listTags(c *reqCtx, in *kms.ListResourceTagsInput) (*kms.ListResourceTagsOutput, error) {
	k, err := s.find(c, in.KeyId, false)
	if err != nil {
		return nil, err
	}
	all := []types.Tag{}
	for _, t := range k.Tags {
		all = append(all, types.Tag{TagKey: new(t.Key), TagValue: new(t.Value)})
	}
	page, next, err := kmsPage(c, all, in.Marker, in.Limit, 50, 50)
	return &kms.ListResourceTagsOutput{Tags: page, NextMarker: next, Truncated: next != nil}, err
}
