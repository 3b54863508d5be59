package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/zopday/provisioner/internal/client"
)

// verifyAccount asks the cloud, and ends badly if something is not as it should be.
func (a *app) verifyAccount(ctx context.Context, c *client.Client, ref string, ask map[string]any) error {
	doc, err := json.Marshal(ask)
	if err != nil {
		return err
	}
	if ask == nil {
		doc = []byte("{}")
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
		return fmt.Errorf("the account %s is not as it should be: %s", clean(ref), clean(v.Code))
	}
	return nil
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
	completeFixed(cmd, "provider", "aws", "gcp", "azure")
	return cmd
}

func (a *app) accountsPolicy() *cobra.Command {
	var readOnly bool
	cmd := &cobra.Command{
		Use: "policy CLOUD FAMILY", Short: "Print the least that a family's jobs need, as the cloud takes it", Args: args(2, 2, "a cloud (aws, gcp or azure) and a family (cache, cluster, datastore, network or vm)"),
		Long: withExamples("Print the least that a family's jobs need, as the cloud takes it: an IAM policy, a custom role or a role definition",
			"  zopday accounts policy aws vm > policy.json\n  zopday accounts policy gcp cluster --read-only"),
		RunE: func(cmd *cobra.Command, args []string) error {
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
				return a.print(resp, func(w io.Writer) { fmt.Fprintf(w, "%s\n", p.Document) })
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
