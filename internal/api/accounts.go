package api

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/accounts"
	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/provision"
)

const tagAccounts = "Cloud accounts"

// AccountID is the path parameter of everything about one cloud account.
type AccountID struct {
	ID string `path:"id" maxLength:"80" doc:"The account's ID or name"`
}

type accountOut struct {
	Status   int
	Location string `header:"Location" doc:"Where the account is found"`
	Body     Data[*accounts.Account]
}

func accountAnswer(status int, a *accounts.Account) *accountOut {
	return &accountOut{Status: status, Location: "/cloud-accounts/" + a.ID, Body: Data[*accounts.Account]{Data: a}}
}

// CloudPolicyView is the least that a family's jobs need at a cloud.
type CloudPolicyView struct {
	cloud.Policy
	Document json.RawMessage `json:"document" doc:"What is given to the cloud: an IAM policy, a custom role, a role definition"`
}

func (s *server) accountRoutes() {
	type listOut struct{ Body List[accounts.Account] }
	route(s, huma.Operation{
		OperationID: "list-cloud-accounts", Method: http.MethodGet, Path: "/cloud-accounts", Tags: []string{tagAccounts},
		Summary: "List cloud accounts", Description: "Those of the server's own configuration first, the others by name. No answer ever holds a credential.",
	}, []access.Policy{access.CloudAccountView}, func(ctx context.Context, _ *struct{}) (*listOut, error) {
		all, err := s.Service.ListAccounts(ctx)
		if err != nil {
			return nil, err
		}
		return &listOut{listOf(all, "")}, nil
	})
	route(s, huma.Operation{
		OperationID: "get-cloud-account", Method: http.MethodGet, Path: "/cloud-accounts/{id}", Tags: []string{tagAccounts},
		Summary: "Get a cloud account", Description: "With what its last verification found.", Errors: []int{404},
	}, []access.Policy{access.CloudAccountView}, func(ctx context.Context, in *AccountID) (*accountOut, error) {
		a, err := s.Service.GetAccount(ctx, in.ID)
		if err != nil {
			return nil, err
		}
		return accountAnswer(http.StatusOK, a), nil
	})
	s.accountChanges()
	s.accountVerification()
}

func (s *server) accountChanges() {
	manage := []access.Policy{access.CloudAccountManage}
	type createIn struct {
		RawBody []byte `contentType:"application/json"`
	}
	route(s, huma.Operation{
		OperationID: "create-cloud-account", Method: http.MethodPost, Path: "/cloud-accounts", Tags: []string{tagAccounts}, DefaultStatus: http.StatusCreated,
		Summary:     "Make a cloud account known",
		Description: "Nothing is asked of the cloud yet: verify it next. For assume_role the answer's settings.externalId is what the role's trust policy has to ask for.",
		Errors:      []int{409, 413, 415, 422},
	}, manage, func(ctx context.Context, in *createIn) (*accountOut, error) {
		var r provision.AccountRequest
		if err := s.decode(ctx, access.CloudAccountManage, "", in.RawBody, &r); err != nil {
			return nil, err
		}
		a, err := s.Service.CreateAccount(ctx, r)
		if err != nil {
			return nil, err
		}
		return accountAnswer(http.StatusCreated, a), nil
	})
	bodyOf[provision.AccountRequest](s, "/cloud-accounts", http.MethodPost)

	type patchIn struct {
		AccountID
		RawBody []byte `contentType:"application/json"`
	}
	route(s, huma.Operation{
		OperationID: "patch-cloud-account", Method: http.MethodPatch, Path: "/cloud-accounts/{id}", Tags: []string{tagAccounts},
		Summary: "Change a cloud account", Description: "Running jobs work with the new credentials from their next call. While jobs stand on the account, these have to belong to the same AWS account, project or subscription.",
		Errors: []int{404, 409, 413, 415, 422},
	}, manage, func(ctx context.Context, in *patchIn) (*accountOut, error) {
		var r provision.AccountPatch
		if err := s.decode(ctx, access.CloudAccountManage, in.ID, in.RawBody, &r); err != nil {
			return nil, err
		}
		a, err := s.Service.PatchAccount(ctx, in.ID, r)
		if err != nil {
			return nil, err
		}
		return accountAnswer(http.StatusOK, a), nil
	})
	bodyOf[provision.AccountPatch](s, "/cloud-accounts/{id}", http.MethodPatch)

	route(s, huma.Operation{
		OperationID: "delete-cloud-account", Method: http.MethodDelete, Path: "/cloud-accounts/{id}", Tags: []string{tagAccounts}, DefaultStatus: http.StatusNoContent,
		Summary: "Forget a cloud account and its credentials", Description: "Refused while jobs stand on it: what they made could not be removed without it.", Errors: []int{404, 409},
	}, manage, func(ctx context.Context, in *AccountID) (*struct{}, error) {
		return nil, s.Service.DeleteAccount(ctx, in.ID)
	})
}

func (s *server) accountVerification() {
	type verifyIn struct {
		AccountID
		RawBody []byte `contentType:"application/json"`
	}
	type verifyOut struct{ Body Data[*accounts.Findings] }
	route(s, huma.Operation{
		OperationID: "verify-cloud-account", Method: http.MethodPost, Path: "/cloud-accounts/{id}/verify", Tags: []string{tagAccounts},
		Summary:     "Ask the cloud about an account",
		Description: "Whose the credentials are, which regions they can use, and per family which permissions they lack. Answers 200 with ok false where something is not as it should be.",
		Errors:      []int{404, 413, 415, 422, 503},
	}, []access.Policy{access.CloudAccountManage}, func(ctx context.Context, in *verifyIn) (*verifyOut, error) {
		var r provision.VerifyRequest
		if len(in.RawBody) > 0 {
			if err := s.decode(ctx, access.CloudAccountManage, in.ID, in.RawBody, &r); err != nil {
				return nil, err
			}
		}
		v, err := s.Service.VerifyAccount(ctx, in.ID, r)
		if err != nil {
			return nil, err
		}
		return &verifyOut{Data[*accounts.Findings]{Data: v}}, nil
	})
	bodyOf[provision.VerifyRequest](s, "/cloud-accounts/{id}/verify", http.MethodPost)

	type policiesIn struct {
		Provider job.Provider     `query:"provider" required:"true" enum:"aws,gcp,azure"`
		Family   job.ResourceType `query:"family" enum:"cache,cluster,datastore,network,vm" doc:"One family alone; all of them, if left out"`
	}
	type policiesOut struct{ Body List[CloudPolicyView] }
	route(s, huma.Operation{
		OperationID: "list-cloud-policies", Method: http.MethodGet, Path: "/catalog/policies", Tags: []string{tagAccounts},
		Summary:     "The least that jobs need at a cloud",
		Description: "Per family, and for reading alone, as the cloud takes it: an IAM policy, a custom role, a role definition. checks are what is only asked beforehand: without them a job is made, and says what was not checked.",
		Errors:      []int{422},
	}, []access.Policy{access.CloudAccountView}, func(ctx context.Context, in *policiesIn) (*policiesOut, error) {
		all, err := s.Service.PoliciesOf(ctx, in.Provider, in.Family)
		if err != nil {
			return nil, err
		}
		views := make([]CloudPolicyView, len(all))
		for i, p := range all {
			views[i] = CloudPolicyView{Policy: p, Document: p.Document}
		}
		return &policiesOut{listOf(views, "")}, nil
	})
}
