package cli

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/zopday/provisioner/internal/client"
)

func (a *app) accountsCmd() *cobra.Command {
	cmd := nounCmd("accounts", "Manage the cloud accounts that jobs work in",
		a.accountsList(), a.accountsGet(), a.accountsAdd(), a.accountsChange(), a.accountsForget(), a.accountsVerify(), a.accountsPolicy())
	cmd.Aliases = []string{"cloud-accounts"}
	return cmd
}

func (a *app) accountsList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List cloud accounts", Args: args(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			ctx, cancel := a.request(cmd.Context())
			defer cancel()
			resp, all, err := c.ListAccounts(ctx)
			if err != nil {
				return err
			}
			if len(all) == 0 && !a.machine() {
				a.say("No cloud accounts that you see: zopday accounts add makes one known.")
				return nil
			}
			return a.print(resp, func(w io.Writer) { a.accountTable(w, all) })
		},
	}
}

func (a *app) accountTable(w io.Writer, all []client.CloudAccount) {
	t := table{head: []string{"NAME", "CLOUD", "METHOD", "LEVEL", "HOLDER", "VERIFIED", "ID"}}
	for _, s := range all {
		verified := "never"
		if s.Limited {
			verified = "not shown"
		} else if v := s.Verification; v != nil && v.OK {
			verified = "ok, " + age(v.At, a.now()) + " ago"
		} else if v != nil {
			verified = v.Code + ", " + age(v.At, a.now()) + " ago"
		}
		at := string(s.Provider)
		if at == "" {
			at = "all"
		}
		t.add(s.Name, at, s.Method, s.Level, s.Holder, verified, s.ID)
	}
	t.write(w, a.tableTerm())
}

func (a *app) accountsGet() *cobra.Command {
	return &cobra.Command{
		Use: "get ACCOUNT", Short: "Show one cloud account", Args: args(1, 1, "an account: its ID or its name"), ValidArgsFunction: a.completeAt(a.accountNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			ctx, cancel := a.request(cmd.Context())
			defer cancel()
			resp, s, err := c.GetAccount(ctx, args[0])
			if err != nil {
				return err
			}
			return a.print(resp, func(w io.Writer) { a.accountFields(w, s) })
		},
	}
}

func (a *app) accountFields(w io.Writer, s client.CloudAccount) {
	if s.Limited {
		fields(w, "Name", s.Name, "ID", s.ID, "Cloud", string(s.Provider), "Team", s.TeamID, "Level", s.Level, "Shown", "what it takes to use it for jobs; you may not see more of it")
		return
	}
	reach := "the server's own setting"
	if s.Reach != nil {
		reach = strings.TrimSpace(string(s.Reach.Mode) + " " + strings.Join(s.Reach.EgressCIDRs, ", "))
	}
	fields(w, "Name", s.Name, "ID", s.ID, "Cloud", string(s.Provider), "Team", s.TeamID, "Method", s.Method, "Level", s.Level, "Reach", reach, "Holder", s.Holder,
		"Role", s.Settings["roleArn"], "External ID", s.Settings["externalId"], "Project", s.Settings["project"], "Service account", s.Settings["serviceAccount"],
		"Subscription", s.Settings["subscription"], "Tenant", s.Settings["tenant"], "Client ID", s.Settings["clientId"], "Token file", s.Settings["tokenFile"])
	if s.Verification != nil {
		a.verificationFields(w, *s.Verification)
	}
}

func (a *app) verificationFields(w io.Writer, v client.AccountVerification) {
	result := "ok"
	if !v.OK {
		result = v.Code + ": " + v.Message
	}
	pairs := []string{"Verified", age(v.At, a.now()) + " ago", "Result", result, "Hint", asCommands.Replace(v.Hint)}
	if v.Identity != nil {
		pairs = append(pairs, "Principal", v.Identity.Principal, "Belongs to", strings.TrimSpace(v.Identity.Holder+" "+v.Identity.Name), "Regions", strings.Join(v.Identity.Regions, ", "))
	}
	for _, p := range v.Permissions {
		state := "nothing is missing"
		switch {
		case p.Unknown != "":
			state = "not known: " + p.Unknown
		case len(p.Missing) > 0:
			state = "missing: " + strings.Join(p.Missing, ", ")
		}
		if len(p.Checks) > 0 {
			state += "; not checked without: " + strings.Join(p.Checks, ", ")
		}
		pairs = append(pairs, "For "+p.Family, state)
	}
	fields(w, pairs...)
}

// accountFlags are what an account is made of.
type accountFlags struct {
	name, team, provider, method, level, reach                                      string
	role, project, serviceAccount, audience, subscription, tenant, clientID, tokens string
	accessKey, secretFile, keyFile                                                  string
}

func (f *accountFlags) on(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.level, "level", "", "read_write, or read_only for one that nothing is ever changed with")
	fl.StringVar(&f.reach, "reach", "", "`how` private endpoints are reached: direct, tunnel, or public:RANGE,…")
	fl.StringVar(&f.role, "role", "", "AWS, assume_role: the role's `ARN`")
	fl.StringVar(&f.project, "project", "", "Google Cloud: the project's `ID`")
	fl.StringVar(&f.serviceAccount, "service-account", "", "Google Cloud: the service account's `e-mail`")
	fl.StringVar(&f.audience, "audience", "", "Google Cloud, workload_identity: the provider's resource `name`")
	fl.StringVar(&f.subscription, "subscription", "", "Azure: the subscription's `ID`")
	fl.StringVar(&f.tenant, "tenant", "", "Azure: the directory's `ID`")
	fl.StringVar(&f.clientID, "client-id", "", "Azure: the application's `ID`")
	fl.StringVar(&f.tokens, "token-file", "", "workload_identity: the `file`, on the server, with the other issuer's token")
	fl.StringVar(&f.accessKey, "access-key-id", "", "AWS, static_keys: the access key's `ID`")
	fl.StringVar(&f.secretFile, "secret-file", "", "`file` with the secret access key or the client secret; - is standard input")
	fl.StringVar(&f.keyFile, "key-file", "", "Google Cloud, service_account_key: the `file` that Google Cloud made; - is standard input")
	completeFixed(cmd, "level", "read_only", "read_write")
}

// settings are the settings that were given.
func (f *accountFlags) settings() map[string]string {
	out := map[string]string{}
	for name, v := range map[string]string{
		"roleArn": f.role, "project": f.project, "serviceAccount": f.serviceAccount, "audience": f.audience, "subscription": f.subscription,
		"tenant": f.tenant, "clientId": f.clientID, "tokenFile": f.tokens,
	} {
		if v != "" {
			out[name] = v
		}
	}
	return out
}

// credentials reads what is secret from files: an argument would be seen by every
// process of the machine.
func (f *accountFlags) credentials(a *app) (map[string]string, error) {
	out := map[string]string{}
	if f.accessKey != "" {
		out["accessKeyId"] = f.accessKey
	}
	for field, file := range map[string]string{"secret": f.secretFile, "key": f.keyFile} {
		if file == "" {
			continue
		}
		text, err := a.secretFrom(file)
		if err != nil {
			return nil, err
		}
		if field == "secret" {
			field = "clientSecret"
			if f.accessKey != "" {
				field = "secretAccessKey"
			}
		}
		out[field] = text
	}
	return out, nil
}

// secretFrom reads a secret from a file, or from standard input.
func (a *app) secretFrom(file string) (string, error) {
	var text []byte
	var err error
	if file == "-" {
		text, err = io.ReadAll(io.LimitReader(a.in, 64<<10))
	} else {
		text, err = os.ReadFile(file)
	}
	if err != nil {
		return "", usagef("the secret cannot be read: %v", err)
	}
	return strings.TrimSpace(string(text)), nil
}

func (a *app) accountsAdd() *cobra.Command {
	var f accountFlags
	var noVerify bool
	cmd := &cobra.Command{
		Use: "add", Short: "Make a cloud account known, and verify it", Args: args(0, 0, ""),
		Long: withExamples("Make a cloud account known, and verify it",
			"  zopday accounts add --name prod --provider aws --method assume_role --role arn:aws:iam::123456789012:role/zopday --level read_write --no-verify\n"+
				"  zopday accounts add --name prod --provider gcp --method service_account_key --key-file key.json --level read_write\n"+
				"  zopday accounts add --name prod --provider azure --method service_principal --subscription … --tenant … --client-id … --secret-file secret --level read_only"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			body := map[string]any{"name": f.name, "provider": f.provider, "method": f.method, "permissionLevel": f.level, "settings": f.settings()}
			for name, v := range map[string]string{"team": f.team, "reach": f.reach} {
				if v != "" {
					body[name] = v
				}
			}
			secret, err := f.credentials(a)
			if err != nil {
				return err
			}
			body["credentials"] = secret
			return a.addAccount(cmd.Context(), body, !noVerify)
		},
	}
	f.on(cmd)
	fl := cmd.Flags()
	fl.StringVar(&f.name, "name", "", "the account's `name`")
	fl.StringVar(&f.team, "team", "", "the only `team` that may use it")
	fl.StringVar(&f.provider, "provider", "", "aws, gcp or azure")
	fl.StringVar(&f.method, "method", "ambient", "how its credentials are come by: ambient, assume_role, static_keys, service_account_key, service_principal or workload_identity")
	fl.BoolVar(&noVerify, "no-verify", false, "do not ask the cloud about it yet, such as before the role trusts the external ID")
	completeFixed(cmd, "provider", "aws", "gcp", "azure")
	completeFixed(cmd, "method", "ambient", "assume_role", "static_keys", "service_account_key", "service_principal", "workload_identity")
	return cmd
}

func (a *app) addAccount(ctx context.Context, body map[string]any, verify bool) error {
	doc, err := json.Marshal(body)
	if err != nil {
		return err
	}
	c, err := a.connect()
	if err != nil {
		return err
	}
	rctx, cancel := a.request(ctx)
	resp, made, err := c.CreateAccount(rctx, doc)
	cancel()
	if err != nil {
		return err
	}
	if verify {
		return a.verifyKept(ctx, c, made)
	}
	return a.print(resp, func(w io.Writer) {
		a.accountFields(w, made)
		showTrust(w, made)
	})
}

func (a *app) accountsChange() *cobra.Command {
	var f accountFlags
	var noVerify bool
	cmd := &cobra.Command{
		Use: "change ACCOUNT", Short: "Change a cloud account, or give it other credentials, and verify it", Args: args(1, 1, "an account: its ID or its name"),
		ValidArgsFunction: a.completeAt(a.accountNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			secret, err := f.credentials(a)
			if err != nil {
				return err
			}
			body := map[string]any{}
			for name, v := range map[string]string{"name": f.name, "permissionLevel": f.level} {
				if v != "" {
					body[name] = v
				}
			}
			if cmd.Flags().Changed("reach") {
				body["reach"] = f.reach
			}
			if s := f.settings(); len(s) > 0 {
				body["settings"] = s
			}
			if len(secret) > 0 {
				body["credentials"] = secret
			}
			doc, err := json.Marshal(body)
			if err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			ctx, cancel := a.request(cmd.Context())
			resp, s, err := c.PatchAccount(ctx, args[0], doc)
			cancel()
			if err != nil {
				return err
			}
			if !noVerify {
				return a.verifyKept(cmd.Context(), c, s)
			}
			return a.print(resp, func(w io.Writer) { a.accountFields(w, s) })
		},
	}
	f.on(cmd)
	cmd.Flags().BoolVar(&noVerify, "no-verify", false, "do not ask the cloud about it yet")
	cmd.Flags().StringVar(&f.name, "name", "", "another `name`")
	return cmd
}

func (a *app) accountsForget() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "forget ACCOUNT", Short: "Forget a cloud account and its credentials; nothing at the cloud is touched", Args: args(1, 1, "an account: its ID or its name"),
		ValidArgsFunction: a.completeAt(a.accountNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			rctx, cancel := a.request(cmd.Context())
			_, s, err := c.GetAccount(rctx, args[0])
			cancel()
			if err != nil {
				return err
			}
			if err := a.confirm(cmd.Context(), consent{verb: "forget the cloud account " + s.Name + " (" + s.ID + ")", level: 2, yes: yes, effect: []string{"its stored credentials are gone; nothing at the cloud is touched"}}); err != nil {
				return err
			}
			ctx, cancel := a.request(cmd.Context())
			defer cancel()
			if _, err := c.DeleteAccount(ctx, s.ID); err != nil {
				return err
			}
			a.say("The cloud account %s is forgotten.", clean(s.Name))
			return nil
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}
