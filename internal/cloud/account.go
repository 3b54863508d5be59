package cloud

import (
	"context"
	"errors"
	"log/slog"

	"github.com/zopday/provisioner/internal/job"
)

// A Method says how the credentials of a cloud account are come by.
type Method string

// The methods. Each belongs to one cloud, but for MethodAmbient.
const (
	// MethodAmbient is what the process itself runs as: AWS's default chain,
	// application default credentials, azidentity's default chain.
	MethodAmbient Method = "ambient"

	MethodAssumeRole Method = "assume_role" // AWS: a role, assumed by the process's own identity with an external ID
	MethodStaticKeys Method = "static_keys" // AWS: an access key

	MethodServiceAccountKey Method = "service_account_key" // GCP: a service account's JSON key
	MethodServicePrincipal  Method = "service_principal"   // Azure: an application's client secret

	// MethodWorkloadIdentity is a token of another issuer, read from a file each
	// time, that the cloud exchanges: GCP (workload identity federation) and
	// Azure (federated credentials).
	MethodWorkloadIdentity Method = "workload_identity"
)

// An Account is a cloud account as a job names it, with what its clients need.
type Account struct {
	ID       string // ca_…, or "default": the process's own identity
	OrgID    string
	Name     string
	Provider job.Provider
	Method   Method

	// ReadOnly accounts get clients that cannot send a mutating call.
	ReadOnly bool

	// Reach is how the provisioner gets to private endpoints in this account;
	// "" is the server's own setting. Egress is what the provisioner's calls
	// come from, as CIDRs, where Reach is public; empty: the server's own.
	Reach  job.Reach
	Egress []string

	// Holder is the AWS account, the GCP project or the Azure subscription that
	// the credentials were verified to belong to; "" before the first time. A
	// credential that belongs to another one is refused (failure kind F5).
	Holder string

	Settings Settings
	Secret   Secret

	// Revision grows with every change of the account: clients that were made
	// of an earlier one are not used any more.
	Revision int64
}

// Settings are what of an account's credentials is no secret.
type Settings struct {
	RoleARN    string `json:"roleArn,omitempty" doc:"assume_role: the role to assume, as an ARN"`
	ExternalID string `json:"externalId,omitempty" doc:"assume_role: what the role's trust policy has to ask for; made by the provisioner, so that nobody can name another's"`

	Project        string `json:"project,omitempty" doc:"GCP: the project's ID"`
	ServiceAccount string `json:"serviceAccount,omitempty" doc:"GCP: the service account that is acted as, by its e-mail"`
	Audience       string `json:"audience,omitempty" doc:"workload_identity at GCP: the provider's full resource name"`

	Subscription string `json:"subscription,omitempty" doc:"Azure: the subscription's ID"`
	Tenant       string `json:"tenant,omitempty" doc:"Azure: the directory's ID"`
	ClientID     string `json:"clientId,omitempty" doc:"Azure: the application's ID"`

	TokenFile string `json:"tokenFile,omitempty" doc:"workload_identity: the file that holds the other issuer's token, on the server; below the directory that the server allows"`
}

// A Secret is what of an account's credentials must not be seen. It prints as
// nothing, whatever it is printed by.
type Secret struct {
	AccessKeyID     string `json:"accessKeyId,omitempty"` // static_keys
	SecretAccessKey string `json:"secretAccessKey,omitempty"`
	SessionToken    string `json:"sessionToken,omitempty"`
	Key             string `json:"key,omitempty"`          // service_account_key: the JSON document
	ClientSecret    string `json:"clientSecret,omitempty"` // service_principal
}

// String hides the secret from every way of printing a value.
func (Secret) String() string { return "(hidden)" }

// GoString hides it from %#v.
func (Secret) GoString() string { return "(hidden)" }

// LogValue hides it from the log.
func (Secret) LogValue() slog.Value { return slog.StringValue("(hidden)") }

// ErrNoAccount is an account that does not exist, or not in this organisation.
var ErrNoAccount = errors.New("there is no such cloud account")

// Accounts finds the account that a job names. The error is ErrNoAccount if there
// is none.
type Accounts interface {
	Account(ctx context.Context, org, id string, at job.Provider) (Account, error)
}

// A CallerIdentity is who an account's credentials are, as the cloud says.
type CallerIdentity struct {
	Principal string   `json:"principal" doc:"Who the credentials are: an ARN, a service account, an application"`
	Holder    string   `json:"holder" doc:"The AWS account, GCP project or Azure subscription"`
	Name      string   `json:"name,omitempty" doc:"What the cloud calls it"`
	Regions   []string `json:"regions,omitempty" doc:"The regions that can be used, sorted"`
}

// A PermissionReport says what a family's jobs would lack.
type PermissionReport struct {
	Family  job.ResourceType `json:"family"`
	Missing []string         `json:"missing,omitempty" doc:"Without one of these no job of the family can be carried out"`
	Checks  []string         `json:"checks,omitempty" doc:"Without these a job is made, and something is not checked before it"`
	Unknown string           `json:"unknown,omitempty" doc:"Why the cloud could not be asked; missing says nothing then"`
}

// Limited is a Provider that knows whether its account is read-only. Its own
// clients then send nothing that changes; whoever goes by its credentials to what
// is behind it, an API server or a database, asks first.
type Limited interface {
	ReadOnly() bool
}

// An AccountChecker says whose credentials an account has, and what they are
// good for. Every Provider is one.
type AccountChecker interface {
	// CallerIdentity asks the cloud who the caller is. The error is classified.
	CallerIdentity(ctx context.Context) (CallerIdentity, error)

	// Permissions asks the cloud which of the family's actions the caller lacks;
	// readOnly asks for those of an adopt job alone.
	Permissions(ctx context.Context, family job.ResourceType, readOnly bool) (PermissionReport, error)
}

// A Policy is the least that a family's jobs need at a cloud.
type Policy struct {
	Family   job.ResourceType `json:"family"`
	ReadOnly bool             `json:"readOnly"` // for adopt, plan and verify alone
	Required []string         `json:"required"` // the cloud's own names of actions, sorted; without one of them no job is carried out
	Checks   []string         `json:"checks"`   // what is asked beforehand and is "not checked" without them
	Document []byte           `json:"-"`        // what is given to the cloud: an IAM policy, a custom role, a role definition; JSON
}
