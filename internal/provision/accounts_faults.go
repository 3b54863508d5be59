package provision

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/zopday/provisioner/internal/accounts"
	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
)

// accountMethods are the ways to credentials that each cloud has.
var accountMethods = map[job.Provider][]cloud.Method{
	job.AWS:   {cloud.MethodAmbient, cloud.MethodAssumeRole, cloud.MethodStaticKeys},
	job.GCP:   {cloud.MethodAmbient, cloud.MethodServiceAccountKey, cloud.MethodWorkloadIdentity},
	job.Azure: {cloud.MethodAmbient, cloud.MethodServicePrincipal, cloud.MethodWorkloadIdentity},
}

// accountNeeds says of each cloud's methods which fields have to be given (first)
// and which may be.
var accountNeeds = map[string][2]string{
	"aws ambient":             {"", ""},
	"aws assume_role":         {"settings.roleArn", "settings.externalId"},
	"aws static_keys":         {"credentials.accessKeyId credentials.secretAccessKey", "credentials.sessionToken"},
	"gcp ambient":             {"", "settings.project"},
	"gcp service_account_key": {"credentials.key", "settings.project settings.serviceAccount"},
	"gcp workload_identity":   {"settings.project settings.audience settings.tokenFile", "settings.serviceAccount"},
	"azure ambient":           {"", "settings.subscription settings.tenant"},
	"azure service_principal": {"settings.subscription settings.tenant settings.clientId credentials.clientSecret", ""},
	"azure workload_identity": {"settings.subscription settings.tenant settings.clientId settings.tokenFile", ""},
}

// accountShapes are what the fields look like.
var accountShapes = map[string]struct {
	re  *regexp.Regexp
	fix string
}{
	"settings.roleArn":            {regexp.MustCompile(`^arn:aws[a-z-]*:iam::[0-9]{12}:role/[\w+=,.@/-]{1,512}$`), "give the role's ARN, such as arn:aws:iam::123456789012:role/zopday"},
	"settings.project":            {regexp.MustCompile(`^[a-z][a-z0-9-]{4,28}[a-z0-9]$`), "give the project's ID, not its name or number"},
	"settings.serviceAccount":     {regexp.MustCompile(`^[a-z0-9-]{1,63}@[a-z0-9.-]{1,190}$`), "give its e-mail, such as zopday@my-project.iam.gserviceaccount.com"},
	"settings.audience":           {regexp.MustCompile(`^(//iam\.googleapis\.com/)?projects/[0-9]+/locations/global/workloadIdentityPools/[a-z0-9-]+/providers/[a-z0-9-]+$`), "give the provider's resource name, such as //iam.googleapis.com/projects/123/locations/global/workloadIdentityPools/pool/providers/provider"},
	"settings.subscription":       {guidRE, "give the subscription's ID, a GUID"},
	"settings.tenant":             {guidRE, "give the directory's ID, a GUID"},
	"settings.clientId":           {guidRE, "give the application's ID, a GUID"},
	"settings.tokenFile":          {regexp.MustCompile(`^/[\w./ -]{1,400}$`), "give the file's whole path on the server"},
	"credentials.accessKeyId":     {regexp.MustCompile(`^[A-Z0-9]{16,128}$`), "give the access key's ID, such as AKIA…"},
	"credentials.secretAccessKey": {regexp.MustCompile(`^[!-~]{20,256}$`), "give the key's secret"},
	"credentials.sessionToken":    {regexp.MustCompile(`^[!-~]{16,}$`), "give the session's token"},
	"credentials.clientSecret":    {regexp.MustCompile(`^[!-~]{8,512}$`), "give the secret's value, not its ID"},
}

var guidRE = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

// accountFaults are what is wrong with an account. It fills in what follows from
// the rest. kept says that credentials are stored and stay.
func (s *Service) accountFaults(a *accounts.Account, reach string, secret cloud.Secret, kept ...bool) []job.FieldError {
	if s.Accounts == nil {
		return []job.FieldError{{Field: "body", Message: "this server keeps no cloud accounts", Fix: "ask one that does"}}
	}
	fields := checkName(a.Name)
	if a.Name == accounts.Default && s.Accounts.Ambient(a.OrgID) || strings.HasPrefix(a.Name, "ca_") {
		fields = append(fields, job.FieldError{Field: "name", Message: fmt.Sprintf("%q would be taken for another account", a.Name), Fix: "choose another name"})
	}
	if a.Level != accounts.ReadOnly && a.Level != accounts.ReadWrite {
		fields = append(fields, job.FieldError{Field: "permissionLevel", Message: fmt.Sprintf("%.40q is not a level", string(a.Level)), Fix: "use read_write, or read_only for an account that nothing is ever changed with"})
	}
	a.Reach = nil
	if reach != "" {
		r, err := job.ParseReach(reach)
		if err != nil {
			fields = append(fields, job.FieldError{Field: "reach", Message: err.Error(), Fix: "use direct, tunnel, or public with the ranges that the provisioner comes from, such as public:203.0.113.7/32"})
		}
		a.Reach = &r
	}
	methods := accountMethods[a.Provider]
	switch {
	case methods == nil:
		return append(fields, job.FieldError{Field: "provider", Message: fmt.Sprintf("%.40q is not a cloud", string(a.Provider)), Fix: "use aws, gcp or azure"})
	case !slices.Contains(methods, a.Method):
		return append(fields, job.FieldError{Field: "method", Message: fmt.Sprintf("%.40q is not one of %s", string(a.Method), a.Provider), Fix: fmt.Sprintf("use one of %s", join3(methods))})
	case a.Method == cloud.MethodAmbient && !s.Accounts.Ambient(a.OrgID):
		return append(fields, job.FieldError{Field: "method", Message: "ambient is the server's own identity, which your organisation may not use", Fix: fmt.Sprintf("use one of %s", join3(methods[1:]))})
	}
	return append(fields, s.credentialFaults(a, secret, len(kept) > 0 && kept[0])...)
}

func join3(methods []cloud.Method) string {
	words := make([]string, len(methods))
	for i, m := range methods {
		words[i] = string(m)
	}
	return strings.Join(words, ", ")
}

// credentialFaults checks settings and credentials by the method's table. A value
// that may be a secret is never repeated.
func (s *Service) credentialFaults(a *accounts.Account, secret cloud.Secret, kept bool) []job.FieldError {
	var fields []job.FieldError
	needs := accountNeeds[string(a.Provider)+" "+string(a.Method)]
	required, optional := strings.Fields(needs[0]), strings.Fields(needs[1])
	given := map[string]string{
		"settings.roleArn": a.Settings.RoleARN, "settings.externalId": a.Settings.ExternalID, "settings.project": a.Settings.Project, "settings.serviceAccount": a.Settings.ServiceAccount,
		"settings.audience": a.Settings.Audience, "settings.subscription": a.Settings.Subscription, "settings.tenant": a.Settings.Tenant, "settings.clientId": a.Settings.ClientID,
		"settings.tokenFile": a.Settings.TokenFile, "credentials.accessKeyId": secret.AccessKeyID, "credentials.secretAccessKey": secret.SecretAccessKey,
		"credentials.sessionToken": secret.SessionToken, "credentials.key": secret.Key, "credentials.clientSecret": secret.ClientSecret,
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		value, shape := given[name], accountShapes[name]
		switch {
		case value == "" && slices.Contains(required, name) && !(kept && strings.HasPrefix(name, "credentials.")):
			fields = append(fields, job.FieldError{Field: name, Message: fmt.Sprintf("is missing, and %s needs it", a.Method), Fix: fixOf(shape.fix, "give it")})
		case value == "":
		case !slices.Contains(required, name) && !slices.Contains(optional, name):
			fields = append(fields, job.FieldError{Field: name, Message: fmt.Sprintf("is not for %s at %s", a.Method, a.Provider), Fix: "leave it out"})
		case shape.re != nil && !shape.re.MatchString(value):
			fields = append(fields, job.FieldError{Field: name, Message: "does not look like one", Fix: shape.fix})
		}
	}
	if a.Settings.TokenFile != "" {
		fields = append(fields, s.tokenFileFaults(a.OrgID, a.Settings.TokenFile)...)
	}
	if secret.Key != "" && a.Method == cloud.MethodServiceAccountKey {
		fields = append(fields, keyFaults(a, secret.Key)...)
	}
	return fields
}

func fixOf(fix, otherwise string) string {
	if fix == "" {
		return otherwise
	}
	return fix
}

// tokenFileFaults holds a token file below the directory that the server allows:
// the file's content goes to a cloud, and must not be any file of the server's. Each
// organisation has a directory of its own there, named by its ID: what a token lets
// in is whoever holds it, so one organisation must not use another's. Who may work
// with the process's own identity may use every one.
func (s *Service) tokenFileFaults(org, path string) []job.FieldError {
	const field = "settings.tokenFile"
	if s.TokenDir == "" {
		return []job.FieldError{{Field: field, Message: "this server allows no token files", Fix: "ask whoever runs it to start it with --token-dir"}}
	}
	clean := filepath.Clean(path)
	if real, err := filepath.EvalSymlinks(clean); err == nil {
		clean = real
	}
	dir := s.TokenDir
	if !s.Accounts.Ambient(org) {
		dir = filepath.Join(dir, org)
	}
	allowed := dir
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	if rel, err := filepath.Rel(dir, clean); err != nil || rel == "." || rel == ".." || strings.HasPrefix(rel, "../") {
		return []job.FieldError{{Field: field, Message: "is outside of the directory that this server allows", Fix: "put the file below " + allowed}}
	}
	return nil
}

// keyFaults checks a service account's key and takes from it what it says of
// project and account. Nothing of the key itself is repeated.
func keyFaults(a *accounts.Account, key string) []job.FieldError {
	const field = "credentials.key"
	var doc struct {
		Type       string `json:"type"`
		Project    string `json:"project_id"`
		Email      string `json:"client_email"`
		PrivateKey string `json:"private_key"`
	}
	if len(key) > 16<<10 || json.Unmarshal([]byte(key), &doc) != nil {
		return []job.FieldError{{Field: field, Message: "is not a JSON document of a key", Fix: "give the file that Google Cloud made, as one string"}}
	}
	if doc.Type != "service_account" || doc.Email == "" || doc.PrivateKey == "" {
		return []job.FieldError{{Field: field, Message: "is not the key of a service account", Fix: "give a document of type service_account"}}
	}
	if a.Settings.Project == "" {
		a.Settings.Project = doc.Project
	}
	switch {
	case a.Settings.ServiceAccount == "":
		a.Settings.ServiceAccount = doc.Email
	case a.Settings.ServiceAccount != doc.Email:
		return []job.FieldError{{Field: "settings.serviceAccount", Message: "is another one than the key's", Fix: "leave it out"}}
	}
	return nil
}
