package aws

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/aws-sdk-go-v2/service/sts/types"

	"github.com/zopday/provisioner/internal/sim"
)

// STSState is everything that the Security Token Service keeps: the temporary credentials that it gave out.
type STSState struct {
	Sessions map[string]*STSSession // by access key
}

// STSSession is one set of temporary credentials.
type STSSession struct {
	Account, ARN, UserID string
	// Role is the ARN of the role that was assumed; empty for other sessions.
	Role    string
	Expires time.Time
	// Secret signs its requests; EKS checks the signature of a token where it knows the secret.
	Secret string
	// Transitive are the keys of session tags that stay when another role is taken on from here, in lower case.
	Transitive []string
}

// stsService is the AWS Security Token Service.
type stsService struct {
	cloud *Cloud
	state *STSState
}

func newSTS(c *Cloud) *stsService {
	s := &stsService{cloud: c, state: &STSState{}}
	c.World.Register(s)
	c.hooks.identify = s.identify
	c.add(&api{
		service: "sts", protocol: queryProtocol, namespace: "https://sts.amazonaws.com/doc/2011-06-15/", version: "2011-06-15",
		// Taking on a role changes nothing in the account.
		reads: []string{"AssumeRole"},
		ops: overQuery(map[string]typedOp{
			"GetCallerIdentity": op(s.getCallerIdentity), "AssumeRole": op(s.assumeRole), "GetSessionToken": op(s.getSessionToken),
			"GetFederationToken": op(s.getFederationToken), "GetAccessKeyInfo": op(s.getAccessKeyInfo),
		}),
		encode: encodeQuery(queryXML),
	})
	return s
}

// Cloud implements sim.Service.
func (s *stsService) Cloud() string { return "aws" }

// Name implements sim.Service.
func (s *stsService) Name() string { return "sts" }

// State implements sim.Service.
func (s *stsService) State() any { return s.state }

// Reset implements sim.Service.
func (s *stsService) Reset() { s.state.Sessions = map[string]*STSSession{} }

// Event implements sim.Service; sessions end by the clock, without an event.
func (s *stsService) Event(string, string) {}

// Objects implements sim.Service; a session is no object of the account.
func (s *stsService) Objects() []sim.Object { return nil }

// SetState implements sim.Service.
func (s *stsService) SetState(id, _, _, _ string) error {
	return fmt.Errorf("%s: STS has no objects", id)
}

// Remove implements sim.Service. It revokes a session by its access key.
func (s *stsService) Remove(id string) error {
	if s.state.Sessions[id] == nil {
		return fmt.Errorf("%s: no such session", id)
	}
	delete(s.state.Sessions, id)
	return nil
}

func (s *stsService) identify(accessKey string) (Identity, bool) {
	ss := s.state.Sessions[accessKey]
	if ss == nil {
		return Identity{}, false
	}
	return Identity{Account: ss.Account, AccessKey: accessKey, ARN: ss.ARN, UserID: ss.UserID, Role: ss.Role, Expires: ss.Expires}, true
}

// secret is the secret of a temporary access key; those of long-lived ones are not known here.
func (s *stsService) secret(accessKey string) (string, bool) {
	ss := s.state.Sessions[accessKey]
	if ss == nil || ss.Secret == "" {
		return "", false
	}
	return ss.Secret, true
}

// caller is the identity behind a request.
func (c *reqCtx) caller() Identity {
	if c.Who.ARN != "" || c.cloud.hooks.identityOf == nil {
		return c.Who
	}
	who, _ := c.cloud.hooks.identityOf(c.account, c.Who.AccessKey)
	return who
}

func (s *stsService) getCallerIdentity(c *reqCtx, _ *sts.GetCallerIdentityInput) (*sts.GetCallerIdentityOutput, error) {
	who := c.caller()
	return &sts.GetCallerIdentityOutput{UserId: &who.UserID, Account: &who.Account, Arn: &who.ARN}, nil
}

var (
	stsARN      = regexp.MustCompile(`^arn:[^:]+:[^:]+:[^:]*:[^:]*:.+$`)
	sessionName = regexp.MustCompile(`^[\w+=,.@-]*$`)
)

func checkRoleARN(roleARN string) error {
	if len(roleARN) < 20 {
		return failValidation("1 validation error detected: Value '%s' at 'roleArn' failed to satisfy constraint: Member must have length greater than or equal to 20", roleARN)
	}
	if !stsARN.MatchString(roleARN) {
		return failValidation("%s is invalid", roleARN)
	}
	return nil
}

func checkSessionName(name string) error {
	switch {
	case len(name) < 2:
		return failValidation("1 validation error detected: Value '%s' at 'roleSessionName' failed to satisfy constraint: Member must have length greater than or equal to 2", name)
	case len(name) > 64:
		return failValidation("1 validation error detected: Value '%s' at 'roleSessionName' failed to satisfy constraint: Member must have length less than or equal to 64", name)
	case !sessionName.MatchString(name):
		return failValidation(`1 validation error detected: Value '%s' at 'roleSessionName' failed to satisfy constraint: Member must satisfy regular expression pattern: [\w+=,.@-]*`, name)
	}
	return nil
}

func (s *stsService) assumeRole(c *reqCtx, in *sts.AssumeRoleInput) (*sts.AssumeRoleOutput, error) {
	if in.RoleArn == nil {
		return nil, failMissing("roleArn")
	}
	if in.RoleSessionName == nil {
		return nil, failMissing("roleSessionName")
	}
	if err := checkSessionName(*in.RoleSessionName); err != nil {
		return nil, err
	}
	if err := checkRoleARN(*in.RoleArn); err != nil {
		return nil, err
	}
	seconds := orDefault(in.DurationSeconds, 3600)
	if seconds < 900 {
		return nil, failValidation("1 validation error detected: Value '%d' at 'durationSeconds' failed to satisfy constraint: Member must have value greater than or equal to 900", seconds)
	}
	who := c.caller()
	denied := fail(403, "AccessDenied", "User: %s is not authorized to perform: sts:AssumeRole on resource: %s", who.ARN, *in.RoleArn)
	account, role := s.cloud.platform.iam.assumable(*in.RoleArn)
	if role == nil || !role.trustsCaller(who, in) {
		return nil, denied
	}
	if seconds > role.MaxSession {
		return nil, failValidation("The requested DurationSeconds exceeds the MaxSessionDuration set for this role.")
	}
	// Chained sessions last an hour at most ("Role chaining", IAM user guide).
	if strings.Contains(who.ARN, ":assumed-role/") && seconds > 3600 {
		return nil, failValidation("The requested DurationSeconds exceeds the 1 hour session limit for roles assumed by role chaining")
	}
	transitive, err := s.sessionTags(c, role, in)
	if err != nil {
		return nil, err
	}
	user := types.AssumedRoleUser{
		AssumedRoleId: new(role.ID + ":" + *in.RoleSessionName),
		Arn:           new(arn("sts", "", account, "assumed-role/"+role.Name+"/"+*in.RoleSessionName)),
	}
	cred := s.session(c, &STSSession{Account: account, ARN: *user.Arn, UserID: *user.AssumedRoleId, Role: role.ARN, Expires: c.second().Add(time.Duration(seconds) * time.Second), Transitive: transitive})
	return &sts.AssumeRoleOutput{Credentials: cred, AssumedRoleUser: &user}, nil
}

// sessionTags checks the session tags of a request and answers the transitive ones, those of the calling session included
// ("Pass session tags in AWS STS", IAM user guide).
func (s *stsService) sessionTags(c *reqCtx, role *IAMRole, in *sts.AssumeRoleInput) ([]string, error) {
	var transitive []string
	if ss := s.state.Sessions[c.Who.AccessKey]; ss != nil {
		transitive = slices.Clone(ss.Transitive)
	}
	if len(in.Tags) > 50 {
		return nil, failValidation("1 validation error detected: Value at 'tags' failed to satisfy constraint: Member must have length less than or equal to 50")
	}
	var keys []string
	for _, t := range in.Tags {
		key := strings.ToLower(deref(t.Key))
		switch {
		case slices.Contains(keys, key):
			return nil, fail(400, "InvalidParameterValue", "Duplicate tag keys found. Please note that Tag keys are case insensitive.")
		case slices.Contains(transitive, key):
			return nil, fail(400, "InvalidParameterValue", "One of the specified transitive tag keys can't be set because it conflicts with a transitive tag key from the calling session.")
		}
		keys = append(keys, key)
	}
	if len(keys) > 0 && !role.allows("sts:TagSession") {
		return nil, fail(403, "AccessDenied", "User: %s is not authorized to perform: sts:TagSession on resource: %s", c.caller().ARN, role.ARN)
	}
	for _, k := range in.TransitiveTagKeys {
		if !slices.Contains(keys, strings.ToLower(k)) {
			return nil, fail(400, "InvalidParameterValue", "The specified transitive tag key must be included in the requested tags.")
		}
		transitive = append(transitive, strings.ToLower(k))
	}
	return transitive, nil
}

// allows says whether the trust policy speaks of an action.
func (r *IAMRole) allows(action string) bool {
	p, err := parsePolicy(r.Trust)
	if err != nil {
		return false
	}
	for _, st := range p.Statement {
		for _, a := range st.Action {
			if st.Effect == "Allow" && (a == action || a == "sts:*" || a == "*") {
				return true
			}
		}
	}
	return false
}

// session gives out temporary credentials.
func (s *stsService) session(c *reqCtx, ss *STSSession) *types.Credentials {
	const base64url = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	for id, old := range s.state.Sessions {
		// For a day more they are refused as expired; after that, as unknown.
		if c.now.Sub(old.Expires) > 24*time.Hour {
			delete(s.state.Sessions, id)
		}
	}
	key := c.w.ID("ASIA", 16, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567")
	s.state.Sessions[key] = ss
	ss.Secret = c.w.ID("", 40, base64url)
	return &types.Credentials{
		AccessKeyId: &key, SecretAccessKey: new(ss.Secret),
		SessionToken: new(c.w.ID("IQoJb3JpZ2luX2Vj", 200, base64url)), Expiration: &ss.Expires,
	}
}

// assumable finds a role that has been there long enough to be assumed.
func (s *iamService) assumable(roleARN string) (account string, role *IAMRole) {
	parts := strings.SplitN(roleARN, ":", 6)
	name := parts[5][strings.LastIndex(parts[5], "/")+1:]
	a := s.state.Accounts[parts[4]]
	if a == nil {
		return "", nil
	}
	r := a.Roles[strings.ToLower(name)]
	if r == nil || r.ARN != roleARN || s.w.Now().Sub(r.Created) < s.propagation(r.ARN) {
		return "", nil
	}
	return parts[4], r
}

// trustsCaller says whether the trust policy lets a caller in: by its own ARN, by the role behind its session, or by
// its account, if the statement's conditions hold for the request.
func (r *IAMRole) trustsCaller(who Identity, in *sts.AssumeRoleInput) bool {
	keys := map[string]string{"aws:principalarn": who.ARN, "aws:principalaccount": who.Account, "sts:rolesessionname": deref(in.RoleSessionName)}
	if in.ExternalId != nil {
		keys["sts:externalid"] = *in.ExternalId
	}
	if who.Role != "" {
		keys["aws:principalarn"] = who.Role
		return r.trustsUnder("", who.ARN, who.Account, keys) || r.trustsUnder("", who.Role, who.Account, keys)
	}
	return r.trustsUnder("", who.ARN, who.Account, keys)
}

func (s *stsService) getSessionToken(c *reqCtx, in *sts.GetSessionTokenInput) (*sts.GetSessionTokenOutput, error) {
	who := c.caller()
	if strings.Contains(who.ARN, ":assumed-role/") {
		return nil, fail(403, "AccessDenied", "Cannot call GetSessionToken with session credentials")
	}
	seconds := orDefault(in.DurationSeconds, 43200)
	if seconds < 900 || seconds > 129600 {
		return nil, failValidation("1 validation error detected: Value '%d' at 'durationSeconds' failed to satisfy constraint: Member must have value between 900 and 129600", seconds)
	}
	cred := s.session(c, &STSSession{Account: who.Account, ARN: who.ARN, UserID: who.UserID, Expires: c.second().Add(time.Duration(seconds) * time.Second)})
	return &sts.GetSessionTokenOutput{Credentials: cred}, nil
}

func (s *stsService) getFederationToken(c *reqCtx, in *sts.GetFederationTokenInput) (*sts.GetFederationTokenOutput, error) {
	name := deref(in.Name)
	if len(name) < 2 || len(name) > 32 || !sessionName.MatchString(name) {
		return nil, failValidation(`1 validation error detected: Value '%s' at 'name' failed to satisfy constraint: Member must satisfy regular expression pattern: [\w+=,.@-]*`, name)
	}
	seconds := orDefault(in.DurationSeconds, 43200)
	user := types.FederatedUser{FederatedUserId: new(c.account + ":" + name), Arn: new(arn("sts", "", c.account, "federated-user/"+name))}
	cred := s.session(c, &STSSession{Account: c.account, ARN: *user.Arn, UserID: *user.FederatedUserId, Expires: c.second().Add(time.Duration(seconds) * time.Second)})
	//nolint:staticcheck // deprecated in the model, but the service still answers it
	return &sts.GetFederationTokenOutput{Credentials: cred, FederatedUser: &user, PackedPolicySize: new(int32(0))}, nil
}

func (s *stsService) getAccessKeyInfo(_ *reqCtx, in *sts.GetAccessKeyInfoInput) (*sts.GetAccessKeyInfoOutput, error) {
	key := deref(in.AccessKeyId)
	if account, ok := s.cloud.opt.Keys[key]; ok {
		return &sts.GetAccessKeyInfoOutput{Account: &account}, nil
	}
	if ss := s.state.Sessions[key]; ss != nil {
		return &sts.GetAccessKeyInfoOutput{Account: &ss.Account}, nil
	}
	return nil, failValidation("The access key %s is not valid.", key)
}
