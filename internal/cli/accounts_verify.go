package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/zopday/provisioner/internal/client"
)

// verifyAccount asks the cloud, and ends badly if something is not as it should be.
func (a *app) verifyAccount(ctx context.Context, c *client.Client, ref string, ask map[string]any) error {
	doc, err := json.Marshal(ask)
	if err != nil {
		return err
	}
	rctx, cancel := a.slowRequest(ctx)
	defer cancel()
	resp, v, err := c.VerifyAccount(rctx, ref, doc)
	if err != nil {
		return err
	}
	if err := a.print(resp, func(w io.Writer) { a.verificationFields(w, v) }); err != nil {
		return err
	}
	if !v.OK {
		return &accountUnfit{name: ref, found: v}
	}
	return nil
}

// verifyKept verifies an account that has just been made or changed. It stays as it
// is whatever comes of that, and whoever reads of a failure is told so.
func (a *app) verifyKept(ctx context.Context, c *client.Client, s client.CloudAccount) error {
	err := a.verifyAccount(ctx, c, s.Name, map[string]any{})
	var unfit *accountUnfit
	switch {
	case errors.As(err, &unfit):
		unfit.kept = &s
		if s.Method == assumeRole && !a.machine() {
			showTrust(a.stderr, s)
			fmt.Fprintln(a.stderr)
		}
	case err != nil && !a.machine():
		a.warn("The cloud account %s is kept, and is not verified: %s does that.", clean(s.Name), a.again("accounts", "verify", clean(s.Name)))
	}
	return err
}

// An accountUnfit is a cloud account that is not as it should be.
type accountUnfit struct {
	name  string
	found client.AccountVerification
	kept  *client.CloudAccount // it has just been made or changed
}

func (e *accountUnfit) Error() string {
	return fmt.Sprintf("the cloud account %s is not as it should be: %s", clean(e.name), clean(cmp.Or(e.found.Message, e.found.Code)))
}

func (e *accountUnfit) problemMembers() map[string]any {
	m := map[string]any{"code": e.found.Code}
	if e.found.Hint != "" {
		m["hint"] = e.found.Hint
	}
	if e.kept != nil {
		m["accountId"] = e.kept.ID
	}
	return m
}

func (e *accountUnfit) layout(a *app) failure {
	f := failure{what: e.Error(), code: clean(e.found.Code)}
	name := clean(e.name)
	if e.kept != nil {
		f.rows = append(f.rows, row{"Kept", "the account " + name + " (" + clean(e.kept.ID) + ") is there all the same; " + a.again("accounts", "change", name) + " gives it other credentials"})
	}
	if e.found.Hint != "" {
		f.rows = append(f.rows, row{"Do", asCommands.Replace(clean(e.found.Hint))})
	}
	f.rows = append(f.rows, row{"Then", a.again("accounts", "verify", name)})
	return f
}

const assumeRole = "assume_role"

// showTrust is the trust policy that a role has to have so that an account can
// assume it ("AWS: Access to AWS accounts owned by third parties").
func showTrust(w io.Writer, s client.CloudAccount) {
	if s.Method != assumeRole {
		return
	}
	fmt.Fprintf(w, `
The role's trust policy has to let the server's own identity in, with this external ID. Put that identity's ARN
in the place of the one below; zopday accounts verify default --provider aws shows it as Principal.

{
  "Version": "2012-10-17",
  "Statement": [
    {
      "Effect": "Allow",
      "Principal": {"AWS": "arn:aws:iam::SERVER-ACCOUNT:role/SERVER-ROLE"},
      "Action": "sts:AssumeRole",
      "Condition": {"StringEquals": {"sts:ExternalId": %q}}
    }
  ]
}
`, clean(s.Settings["externalId"]))
}

// The clouds, and the families that have permissions of their own there.
var (
	clouds          = []string{"aws", "gcp", "azure"}
	accountFamilies = []string{"cache", "cluster", "datastore", "network", "vm"}
)

// oneOf refuses what is none of the words that something takes.
func oneOf(what, got string, words []string) error {
	if slices.Contains(words, got) {
		return nil
	}
	return &usageError{msg: fmt.Sprintf("%s: %.40q is not known", what, clean(got)), hint: "use " + strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]}
}

func (a *app) accountsVerify() *cobra.Command {
	var provider, region string
	var families []string
	cmd := &cobra.Command{
		Use: "verify ACCOUNT", Short: "Ask the cloud whose the credentials are and what they lack", Args: args(1, 1, "an account: its ID or its name"),
		ValidArgsFunction: a.completeAt(a.accountNames),
		Long: withExamples("Ask the cloud whose the credentials are and what they lack",
			"  zopday accounts verify prod\n  zopday accounts verify default --provider aws --family vm,network"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] == "default" && provider == "" {
				return &usageError{msg: "default is the server's own identity, which is at every cloud; say which to ask", hint: a.again("accounts", "verify", "default", "--provider aws") + " (or gcp, azure)"}
			}
			if provider != "" {
				if err := oneOf("--provider", provider, clouds); err != nil {
					return err
				}
			}
			for _, f := range families {
				if err := oneOf("--family", f, accountFamilies); err != nil {
					return err
				}
			}
			ask := map[string]any{}
			for name, v := range map[string]string{"provider": provider, "region": region} {
				if v != "" {
					ask[name] = v
				}
			}
			if len(families) > 0 {
				ask["families"] = families
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			return a.verifyAccount(cmd.Context(), c, args[0], ask)
		},
	}
	cmd.Flags().StringVar(&provider, "provider", "", "which cloud, for an account that is at several: aws, gcp or azure")
	cmd.Flags().StringVar(&region, "region", "", "`where` to ask")
	cmd.Flags().StringSliceVar(&families, "family", nil, "whose permissions to look for: cache, cluster, datastore, network, vm; all of them, if left out")
	completeFixed(cmd, "provider", clouds...)
	completeFixed(cmd, "family", accountFamilies...)
	return cmd
}

func (a *app) accountsPolicy() *cobra.Command {
	var readOnly bool
	cmd := &cobra.Command{
		Use: "policy CLOUD FAMILY", Short: "Print the least that a family's jobs need, as the cloud takes it", Args: args(2, 2, "a cloud (aws, gcp or azure) and a family (cache, cluster, datastore, network or vm)"),
		Long: withExamples("Print the least that a family's jobs need, as the cloud takes it: an IAM policy, a custom role or a role definition",
			"  zopday accounts policy aws vm > policy.json\n  zopday accounts policy gcp cluster --read-only"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := oneOf("CLOUD", args[0], clouds); err != nil {
				return err
			}
			if err := oneOf("FAMILY", args[1], accountFamilies); err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			ctx, cancel := a.request(cmd.Context())
			defer cancel()
			resp, all, err := c.CloudPolicies(ctx, url.Values{"provider": {args[0]}, "family": {args[1]}})
			if err != nil {
				return err
			}
			for _, p := range all {
				if p.ReadOnly != readOnly {
					continue
				}
				var doc bytes.Buffer
				if err := json.Indent(&doc, p.Document, "", "  "); err != nil {
					return fmt.Errorf("the server's policy is no JSON: %w", err)
				}
				return a.print(resp, func(w io.Writer) { fmt.Fprintln(w, doc.String()) })
			}
			return fmt.Errorf("%s has no such policy for %s", clean(args[0]), clean(args[1]))
		},
	}
	cmd.Flags().BoolVar(&readOnly, "read-only", false, "what reading alone needs: adopt, plan and verify")
	return cmd
}

func (a *app) accountNames(ctx context.Context, c *client.Client) ([]string, error) {
	_, all, err := c.ListAccounts(ctx)
	var out []string
	for _, s := range all {
		out = append(out, s.Name)
	}
	return out, err
}
