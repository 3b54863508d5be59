package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/zopday/provisioner/internal/job"
)

// A CloudAccount is one whose credentials jobs work with. It never holds a secret.
type CloudAccount struct {
	ID             string               `json:"id"`
	Name           string               `json:"name"`
	TeamID         string               `json:"teamId"`
	Provider       job.Provider         `json:"provider"`
	Method         string               `json:"method"`
	Level          string               `json:"permissionLevel"`
	Reach          *job.Reach           `json:"reach"`
	Settings       map[string]string    `json:"settings"`
	Holder         string               `json:"holder"`
	VerifiedAt     *time.Time           `json:"verifiedAt"`
	Verification   *AccountVerification `json:"verification"`
	CreatedAt      *time.Time           `json:"createdAt"`
	HasCredentials bool                 `json:"hasCredentials"`
	Configured     bool                 `json:"configured"`
	Limited        bool                 `json:"limited"` // the caller may use it for jobs and not see more of it
}

// An AccountVerification is what a cloud said of an account's credentials.
type AccountVerification struct {
	At       time.Time `json:"at"`
	OK       bool      `json:"ok"`
	Identity *struct {
		Principal string   `json:"principal"`
		Holder    string   `json:"holder"`
		Name      string   `json:"name"`
		Regions   []string `json:"regions"`
	} `json:"identity"`
	Permissions []struct {
		Family  string   `json:"family"`
		Missing []string `json:"missing"`
		Checks  []string `json:"checks"`
		Unknown string   `json:"unknown"`
	} `json:"permissions"`
	Code    string `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint"`
}

// A CloudPolicy is the least that a family's jobs need at a cloud.
type CloudPolicy struct {
	Family   string          `json:"family"`
	ReadOnly bool            `json:"readOnly"`
	Required []string        `json:"required"`
	Checks   []string        `json:"checks"`
	Document json.RawMessage `json:"document"`
}

// ListAccounts reads the cloud accounts.
func (c *Client) ListAccounts(ctx context.Context) (*Response, []CloudAccount, error) {
	r, items, _, err := page[CloudAccount](ctx, c, "/cloud-accounts", nil)
	return r, items, err
}

// GetAccount reads one cloud account, by its ID or its name.
func (c *Client) GetAccount(ctx context.Context, ref string) (*Response, CloudAccount, error) {
	return ask[CloudAccount](ctx, c, http.MethodGet, "/cloud-accounts/"+escape(ref), nil)
}

// CreateAccount makes a cloud account known.
func (c *Client) CreateAccount(ctx context.Context, body []byte) (*Response, CloudAccount, error) {
	return ask[CloudAccount](ctx, c, http.MethodPost, "/cloud-accounts", body)
}

// PatchAccount changes a cloud account.
func (c *Client) PatchAccount(ctx context.Context, ref string, body []byte) (*Response, CloudAccount, error) {
	return ask[CloudAccount](ctx, c, http.MethodPatch, "/cloud-accounts/"+escape(ref), body)
}

// DeleteAccount forgets a cloud account.
func (c *Client) DeleteAccount(ctx context.Context, ref string) (*Response, error) {
	return c.Do(ctx, http.MethodDelete, "/cloud-accounts/"+escape(ref), nil, nil, nil)
}

// VerifyAccount asks the cloud about an account.
func (c *Client) VerifyAccount(ctx context.Context, ref string, body []byte) (*Response, AccountVerification, error) {
	return ask[AccountVerification](ctx, c, http.MethodPost, "/cloud-accounts/"+escape(ref)+"/verify", body)
}

// CloudPolicies reads the least that jobs need at a cloud.
func (c *Client) CloudPolicies(ctx context.Context, query url.Values) (*Response, []CloudPolicy, error) {
	r, items, _, err := page[CloudPolicy](ctx, c, "/catalog/policies", query)
	return r, items, err
}
