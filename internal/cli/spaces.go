package cli

import (
	"encoding/json"
	"io"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/zopday/provisioner/internal/client"
)

func (a *app) spacesCmd() *cobra.Command {
	return nounCmd("spaces", "See where things can be deployed to",
		a.spacesList(), a.spacesGet(), a.spacesRegister(), a.spacesForget(), a.spacesNamespaces(), a.spacesCreateNamespace())
}

func (a *app) spacesList() *cobra.Command {
	var limit int
	var cursor string
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List spaces, the newest first", Args: args(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			q := url.Values{}
			if cmd.Flags().Changed("limit") {
				q.Set("limit", strconv.Itoa(limit))
			}
			if cursor != "" {
				q.Set("cursor", cursor)
			}
			ctx, cancel := a.request(cmd.Context())
			defer cancel()
			resp, spaces, next, err := c.ListSpaces(ctx, q)
			if err != nil {
				return err
			}
			err = a.print(resp, func(w io.Writer) { a.spaceTable(w, spaces) })
			switch {
			case err != nil || a.machine():
			case len(spaces) == 0:
				a.say("No spaces yet. A finished VM or cluster job registers one; zopday spaces register makes a cluster known that exists.")
			case next != "":
				a.say("There are more: --cursor %s", next)
			}
			return err
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 100, "spaces a page, 1 to 500")
	cmd.Flags().StringVar(&cursor, "cursor", "", "where the next page begins")
	return cmd
}

func (a *app) spaceTable(w io.Writer, spaces []client.Space) {
	if len(spaces) == 0 {
		return
	}
	now := a.now()
	t := table{head: []string{"NAME", "TYPE", "CLOUD", "REGION", "CLUSTER", "STATUS", "AGE", "ID", "JOB"}}
	for _, s := range spaces {
		t.add(s.Name, s.SpaceType, string(s.Provider), s.Config["region"], s.Config["cluster"], s.Status, age(s.CreatedAt, now), s.ID, s.JobID)
	}
	t.write(w, a.tableTerm())
}

func (a *app) spacesRegister() *cobra.Command {
	var f struct{ name, provider, region, cluster, group, account string }
	cmd := &cobra.Command{
		Use: "register", Short: "Make a cluster that exists known as a space; the cluster is only read", Args: args(0, 0, ""),
		Long: withExamples("Make a cluster that exists known as a space; the cluster is only read",
			"  zopday spaces register --name platform --provider aws --region us-east-1 --cluster platform"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			config := map[string]string{"region": f.region, "cluster": f.cluster}
			if f.group != "" {
				config["resourceGroup"] = f.group
			}
			body := map[string]any{"name": f.name, "provider": f.provider, "config": config}
			if f.account != "" {
				body["cloudAccountId"] = f.account
			}
			doc, err := json.Marshal(body)
			if err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			ctx, cancel := a.slowRequest(cmd.Context())
			defer cancel()
			resp, s, err := c.RegisterSpace(ctx, doc)
			if err != nil {
				return err
			}
			return a.print(resp, func(w io.Writer) { a.spaceTable(w, []client.Space{s}) })
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.name, "name", "", "the space's `name`")
	fl.StringVar(&f.provider, "provider", "", "aws, gcp or azure")
	fl.StringVar(&f.region, "region", "", "the cluster's `region`")
	fl.StringVar(&f.cluster, "cluster", "", "the cluster's `name` at the cloud")
	fl.StringVar(&f.group, "resource-group", "", "Azure: the cluster's resource `group`; looked for if left out")
	fl.StringVar(&f.account, "cloud-account", "", "the cloud `account`; default if left out")
	completeFixed(cmd, "provider", "aws", "gcp", "azure")
	return cmd
}

func (a *app) spacesGet() *cobra.Command {
	return &cobra.Command{
		Use: "get SPACE", Short: "Show one space", Args: args(1, 1, "a space: its ID or its name"), ValidArgsFunction: a.completeAt(a.spaceNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			ctx, cancel := a.request(cmd.Context())
			defer cancel()
			resp, s, err := c.GetSpace(ctx, args[0])
			if err != nil {
				return err
			}
			return a.print(resp, func(w io.Writer) {
				fields(w, "Name", s.Name, "ID", s.ID, "Type", s.SpaceType, "Cloud", string(s.Provider), "Account", s.CloudAccountID, "Region", s.Config["region"],
					"Cluster", s.Config["cluster"], "Resource group", s.Config["resourceGroup"], "Status", s.Status, "Job", s.JobID, "Age", age(s.CreatedAt, a.now()))
			})
		},
	}
}

func (a *app) spacesForget() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "forget SPACE", Short: "Forget a space: the pointer alone, nothing behind it", Args: args(1, 1, "a space: its ID or its name"),
		ValidArgsFunction: a.completeAt(a.spaceNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			rctx, cancel := a.request(cmd.Context())
			_, s, err := c.GetSpace(rctx, args[0])
			cancel()
			if err != nil {
				return err
			}
			behind := "nothing of what is behind it is touched"
			if cluster := s.Config["cluster"]; cluster != "" {
				behind = "the cluster " + cluster + " in " + s.Config["region"] + " runs on untouched"
			}
			if err := a.confirm(cmd.Context(), consent{verb: "forget the space " + s.Name + " (" + s.ID + ")", level: 2, yes: yes, effect: []string{behind}}); err != nil {
				return err
			}
			ctx, cancel := a.request(cmd.Context())
			defer cancel()
			if _, err := c.ForgetSpace(ctx, s.ID); err != nil {
				return err
			}
			a.say("The space %s is forgotten.", clean(s.Name))
			return nil
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

func (a *app) spacesNamespaces() *cobra.Command {
	return &cobra.Command{
		Use: "namespaces SPACE", Short: "List the namespaces of a space's cluster", Args: args(1, 1, "a space: its ID or its name"),
		ValidArgsFunction: a.completeAt(a.spaceNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			ctx, cancel := a.slowRequest(cmd.Context())
			defer cancel()
			resp, all, err := c.Namespaces(ctx, args[0])
			if err != nil {
				return err
			}
			return a.print(resp, func(w io.Writer) { a.namespaceTable(w, all) })
		},
	}
}

func (a *app) namespaceTable(w io.Writer, all []client.Namespace) {
	now := a.now()
	t := table{head: []string{"NAME", "STATUS", "POD SECURITY", "AGE"}}
	for _, n := range all {
		t.add(n.Name, n.Status, n.PodSecurity, age(n.CreatedAt, now))
	}
	t.write(w, a.tableTerm())
}

func (a *app) spacesCreateNamespace() *cobra.Command {
	return &cobra.Command{
		Use: "create-namespace SPACE NAME", Short: "Make a namespace in a space's cluster", Args: args(2, 2, "a space and a name"),
		ValidArgsFunction: a.completeAt(a.spaceNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			ctx, cancel := a.slowRequest(cmd.Context())
			defer cancel()
			resp, n, err := c.CreateNamespace(ctx, args[0], args[1])
			if err != nil {
				return err
			}
			return a.print(resp, func(w io.Writer) { a.namespaceTable(w, []client.Namespace{n}) })
		},
	}
}
