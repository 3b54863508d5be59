package provision

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/accounts"
	"github.com/zopday/provisioner/internal/audit"
	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
)

// An AccountRequest makes a cloud account.
type AccountRequest struct {
	Name        string             `json:"name" doc:"1 to 63 of A-Z, a-z, 0-9, hyphen and underscore"`
	Team        string             `json:"team,omitempty" doc:"Jobs of this team alone may use it, by the team's name or ID; all of the organisation's, if left out"`
	Provider    job.Provider       `json:"provider" enum:"aws,gcp,azure"`
	Method      cloud.Method       `json:"method" enum:"ambient,assume_role,static_keys,service_account_key,service_principal,workload_identity" doc:"How its credentials are come by. aws: ambient, assume_role, static_keys; gcp: ambient, service_account_key, workload_identity; azure: ambient, service_principal, workload_identity"`
	Level       accounts.Level     `json:"permissionLevel" enum:"read_only,read_write" doc:"read_only: its clients cannot send a call that changes anything, so that jobs of mode adopt alone can use it"`
	Reach       string             `json:"reach,omitempty" doc:"How the provisioner gets to private endpoints there: direct, tunnel, or public with the ranges that it comes from, such as public:203.0.113.7/32; the server's own setting, if left out"`
	Settings    cloud.Settings     `json:"settings,omitempty" doc:"What of its credentials is no secret"`
	Credentials AccountCredentials `json:"credentials,omitempty" doc:"What is secret. It is kept encrypted and never shown again"`
}

// AccountCredentials are what of an account is secret.
type AccountCredentials struct {
	AccessKeyID     string `json:"accessKeyId,omitempty" doc:"static_keys"`
	SecretAccessKey string `json:"secretAccessKey,omitempty" doc:"static_keys"`
	SessionToken    string `json:"sessionToken,omitempty" doc:"static_keys: of temporary keys"`
	Key             string `json:"key,omitempty" doc:"service_account_key: the JSON document, as a string"`
	ClientSecret    string `json:"clientSecret,omitempty" doc:"service_principal"`
}

func (c AccountCredentials) secret() cloud.Secret {
	return cloud.Secret{AccessKeyID: c.AccessKeyID, SecretAccessKey: c.SecretAccessKey, SessionToken: c.SessionToken, Key: c.Key, ClientSecret: c.ClientSecret}
}

// An AccountPatch changes a cloud account. Its cloud, method and team stay.
type AccountPatch struct {
	Name        *string             `json:"name,omitempty"`
	Level       *accounts.Level     `json:"permissionLevel,omitempty" enum:"read_only,read_write"`
	Reach       *string             `json:"reach,omitempty" doc:"direct, tunnel, public:… or empty for the server's own setting"`
	Settings    *cloud.Settings     `json:"settings,omitempty" doc:"Replaces all of them; the external ID stays"`
	Credentials *AccountCredentials `json:"credentials,omitempty" doc:"Replaces what is stored"`
}

// ListAccounts lists the cloud accounts that the caller may see, by name. Of those
// that the caller may only have jobs made in, it tells what Brief does.
func (s *Service) ListAccounts(ctx context.Context) ([]accounts.Account, error) {
	p, err := s.viewer(ctx, access.CloudAccountView)
	if err != nil {
		return nil, err
	}
	if s.Accounts == nil {
		return []accounts.Account{}, nil
	}
	all, err := s.Accounts.List(ctx, p.OrgID)
	if err != nil {
		return nil, err
	}
	may := p.Over(access.CloudAccountView)
	out := []accounts.Account{}
	for _, a := range all {
		switch {
		case may.Covers(a.TeamID, a.ID):
			out = append(out, a)
		case mayUse(p, &a):
			out = append(out, a.Brief())
		}
	}
	return out, nil
}

// GetAccount reads one cloud account, by its ID or its name; Brief of one that the
// caller may only have jobs made in.
func (s *Service) GetAccount(ctx context.Context, ref string) (*accounts.Account, error) {
	p, err := s.viewer(ctx, access.CloudAccountView)
	if err != nil {
		return nil, err
	}
	a, err := s.accountOver(ctx, p, access.CloudAccountView, ref)
	var denied *access.DeniedError
	if a != nil && errors.As(err, &denied) && mayUse(p, a) {
		brief := a.Brief()
		return &brief, nil
	}
	return a, refusalOf(err)
}

// CreateAccount makes a cloud account. Nothing is asked of the cloud: VerifyAccount is.
func (s *Service) CreateAccount(ctx context.Context, r AccountRequest) (*accounts.Account, error) {
	const policy = access.CloudAccountManage
	p, err := access.Require(ctx, policy)
	if err != nil {
		return nil, s.refused(ctx, policy, "", err)
	}
	team, err := s.teamFor(ctx, p, policy, r.Team)
	if err != nil {
		return nil, s.refused(ctx, policy, r.Name, err)
	}
	if r.Method == cloud.MethodAmbient {
		// It is the server's own identity, which is nobody's to give to a team alone.
		if err := overAll(p, policy, "the server's own cloud identity"); err != nil {
			return nil, s.refused(ctx, policy, r.Name, err)
		}
	}
	a := &accounts.Account{
		ID: job.NewID("ca"), OrgID: p.OrgID, TeamID: team, Name: r.Name, Provider: r.Provider, Method: r.Method, Level: r.Level, Settings: r.Settings, CreatedBy: p.Actor, Revision: 1,
	}
	fields := s.accountFaults(a, r.Reach, r.Credentials.secret())
	if a.Settings.ExternalID != "" {
		fields = append(fields, ownExternalID)
	}
	if len(fields) > 0 {
		return nil, s.refused(ctx, policy, r.Name, invalid(fields...))
	}
	if a.Method == cloud.MethodAssumeRole {
		a.Settings.ExternalID = "zopday-" + strings.ToLower(rand.Text())
	}
	err = s.mutate(ctx, policy, a.ID, func(ctx context.Context, tx db.Q, _ access.Principal) (audit.Entry, error) {
		err := accountRefusal(s.Accounts.Insert(ctx, tx, a, r.Credentials.secret()))
		return audit.Entry{Action: "cloud-account:create", ResourceID: a.ID, Detail: accountDetail(a)}, err
	})
	if err != nil {
		return nil, err
	}
	return s.GetAccount(ctx, a.ID)
}

func accountDetail(a *accounts.Account) map[string]any {
	return withoutEmpty(map[string]any{"name": a.Name, "provider": string(a.Provider), "method": string(a.Method), "permissionLevel": string(a.Level), "team": a.TeamID})
}

// withoutEmpty leaves out of an audit entry's detail what says nothing.
func withoutEmpty(detail map[string]any) map[string]any {
	maps.DeleteFunc(detail, func(_ string, v any) bool { return v == "" })
	return detail
}

// accountRefusal puts the errors of the store into words.
func accountRefusal(err error) error {
	switch {
	case errors.Is(err, accounts.ErrNameTaken):
		return nameInUse("another cloud account has the name")
	case errors.Is(err, accounts.ErrChanged):
		return refuse(WrongState, "GET it, and send the change again.", "the cloud account was changed at the same moment")
	case errors.Is(err, accounts.ErrNoSecrets):
		return refuse(WrongState, "Start the server with a key (ZOPDAY_SECRET_KEY or --secret-key), or use a method without a secret.", "the secret store is closed, so credentials cannot be kept")
	}
	return err
}

// changeAccount runs a change of one account that is kept in the database.
func (s *Service) changeAccount(ctx context.Context, ref, action string, fn func(ctx context.Context, tx db.Q, a *accounts.Account) (map[string]any, error)) error {
	const policy = access.CloudAccountManage
	p, err := access.Require(ctx, policy)
	if err != nil {
		return s.refused(ctx, policy, ref, err)
	}
	found, err := s.accountOver(ctx, p, policy, ref)
	if err == nil && found.Configured {
		err = refuse(WrongState, "Change the server's configuration, or make an account of your own: POST /cloud-accounts.", "the cloud account %s comes with the server's own configuration", found.Name)
	}
	if err != nil {
		return s.refused(ctx, policy, ref, err)
	}
	return s.mutate(ctx, policy, found.ID, func(ctx context.Context, tx db.Q, p access.Principal) (audit.Entry, error) {
		a, err := s.Accounts.Lock(ctx, tx, p.OrgID, found.ID)
		if errors.Is(err, cloud.ErrNoAccount) {
			return audit.Entry{}, missing("cloud account", "/cloud-accounts")
		}
		if err != nil {
			return audit.Entry{}, err
		}
		detail, err := fn(ctx, tx, a)
		return audit.Entry{Action: action, ResourceID: a.ID, Detail: detail}, accountRefusal(err)
	})
}

// PatchAccount changes a cloud account. Its clients are made anew at once. While
// jobs stand on it, its credentials have to belong to the same holder.
func (s *Service) PatchAccount(ctx context.Context, ref string, r AccountPatch) (*accounts.Account, error) {
	var id string
	err := s.changeAccount(ctx, ref, "cloud-account:update", func(ctx context.Context, tx db.Q, a *accounts.Account) (map[string]any, error) {
		if r == (AccountPatch{}) {
			return nil, invalid(job.FieldError{Field: "body", Message: "changes nothing", Fix: "give the fields to change"})
		}
		id = a.ID
		external := a.Settings.ExternalID
		detail := map[string]any{"changed": r.apply(a)}
		var secret *cloud.Secret
		given := cloud.Secret{}
		if r.Credentials != nil {
			given = r.Credentials.secret()
			secret = &given
		}
		reach := ""
		if a.Reach != nil {
			reach = reachText(*a.Reach)
		}
		if r.Reach != nil {
			reach = *r.Reach
		}
		fields := s.accountFaults(a, reach, given, a.HasCredentials && secret == nil)
		if a.Settings.ExternalID != external {
			fields = append(fields, ownExternalID)
		}
		if len(fields) > 0 {
			return nil, invalid(fields...)
		}
		if r.Credentials != nil || r.Settings != nil {
			users, err := s.Accounts.Users(ctx, tx, a, 1)
			if err != nil {
				return nil, err
			}
			if len(users) == 0 {
				a.Holder = "" // whose they are is asked anew
			}
		}
		return detail, s.Accounts.Update(ctx, tx, a, secret)
	})
	if err != nil {
		return nil, err
	}
	return s.GetAccount(ctx, id)
}

// ownExternalID: whoever could choose it could name another organisation's.
var ownExternalID = job.FieldError{Field: "settings.externalId", Message: "is made by the provisioner", Fix: "leave it out"}

// apply changes what a patch changes, but for reach, and says what that is.
func (r AccountPatch) apply(a *accounts.Account) (changed []string) {
	if r.Name != nil {
		a.Name = *r.Name
		changed = append(changed, "name")
	}
	if r.Level != nil {
		a.Level = *r.Level
		changed = append(changed, "permissionLevel")
	}
	if r.Reach != nil {
		changed = append(changed, "reach")
	}
	if r.Settings != nil {
		external := a.Settings.ExternalID
		a.Settings = *r.Settings
		if a.Settings.ExternalID == "" {
			a.Settings.ExternalID = external
		}
		changed = append(changed, "settings")
	}
	if r.Credentials != nil {
		changed = append(changed, "credentials")
	}
	return changed
}

func reachText(r job.Reach) string {
	if len(r.EgressCIDRs) == 0 {
		return string(r.Mode)
	}
	return string(r.Mode) + ":" + strings.Join(r.EgressCIDRs, ",")
}

// DeleteAccount forgets a cloud account and its credentials. One that jobs or spaces
// stand on is refused: they could not be torn down, or be reached.
func (s *Service) DeleteAccount(ctx context.Context, ref string) error {
	return s.changeAccount(ctx, ref, "cloud-account:delete", func(ctx context.Context, tx db.Q, a *accounts.Account) (map[string]any, error) {
		users, err := s.Accounts.Users(ctx, tx, a, 11)
		if err != nil {
			return nil, err
		}
		if n := len(users); n > 0 {
			more := ""
			if n > 10 {
				users, more = users[:10], " and more"
			}
			return nil, refuse(WrongState, "Tear these jobs down first, and forget these spaces (DELETE /spaces/{id}): what is behind them could not be removed or reached without the account.", "the cloud account %s is in use by %s%s", a.Name, strings.Join(users, ", "), more)
		}
		return accountDetail(a), s.Accounts.Delete(ctx, tx, a)
	})
}

// PoliciesOf are the least that jobs need at a cloud, for one family or all.
func (s *Service) PoliciesOf(ctx context.Context, at job.Provider, family job.ResourceType) ([]cloud.Policy, error) {
	if _, err := s.viewer(ctx, access.CloudAccountView); err != nil {
		return nil, err
	}
	if s.CloudPolicies == nil {
		return []cloud.Policy{}, nil
	}
	all := slices.DeleteFunc(slices.Clone(s.CloudPolicies(at)), func(p cloud.Policy) bool { return family != "" && p.Family != family })
	if len(all) == 0 {
		return nil, invalid(job.FieldError{Field: "family", Message: fmt.Sprintf("%.40q has no policy at %s", string(family), at), Fix: "use cluster, datastore, cache, network or vm"})
	}
	return all, nil
}
