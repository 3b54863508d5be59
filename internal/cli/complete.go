package cli

import (
	"context"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/zopday/provisioner/internal/client"
)

// A completer lists what an argument can be.
type completer func(ctx context.Context, c *client.Client) ([]string, error)

// completeAt completes arguments by their place. A server that does not answer at
// once is no help, and says nothing.
func (a *app) completeAt(places ...completer) func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= len(places) || a.settle(cmd) != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		c, err := a.connect()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), time.Second)
		defer cancel()
		out, err := places[len(args)](ctx, c)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

func (a *app) spaceNames(ctx context.Context, c *client.Client) ([]string, error) {
	_, spaces, _, err := c.ListSpaces(ctx, url.Values{"limit": {"200"}})
	var out []string
	for _, s := range spaces {
		out = append(out, clean(s.Name)+"\t"+clean(s.SpaceType+" "+s.Config["cluster"]), clean(s.ID)+"\t"+clean(s.Name))
	}
	return out, err
}

func (a *app) componentNames(ctx context.Context, c *client.Client) ([]string, error) {
	_, all, err := c.Components(ctx, nil)
	var out []string
	for _, x := range all {
		out = append(out, clean(x.Name)+"\t"+clean(x.Title))
	}
	return out, err
}
