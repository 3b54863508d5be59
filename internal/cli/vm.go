package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/zopday/provisioner/internal/client"
	"github.com/zopday/provisioner/internal/job"
)

func (a *app) jobsVMOp() *cobra.Command {
	var f vmOpFlags
	cmd := &cobra.Command{
		Use: "vm-op JOB attach_lb|detach_lb", Short: "Attach or detach the load balancer of a finished VM job",
		Long: withExamples("Attach or detach the load balancer of a finished VM job; the VMs are not touched",
			"  zopday jobs vm-op shop-prod attach_lb --wait\n  zopday jobs vm-op shop-prod detach_lb --yes"),
		Args: args(2, 2, "a job and attach_lb or detach_lb"),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, part string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 1 {
				return []string{string(job.AttachLB), string(job.DetachLB)}, cobra.ShellCompDirectiveNoFileComp
			}
			return a.completeJobs(cmd, args, part)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			op := job.VMOp(args[1])
			if op != job.AttachLB && op != job.DetachLB {
				return &usageError{msg: fmt.Sprintf("%q is not an operation on VMs", args[1]), hint: "use attach_lb or detach_lb"}
			}
			return a.vmOp(cmd.Context(), args[0], op, f)
		},
	}
	f.bind(cmd, true)
	return cmd
}

func (a *app) vmCmd() *cobra.Command {
	one := func(use, short, example string, op job.VMOp) *cobra.Command {
		var f vmOpFlags
		cmd := &cobra.Command{
			Use: use + " JOB", Short: short, Long: withExamples(short+"; the VMs are not touched", example),
			Args: args(1, 1, "a job: its ID, the beginning of it, or its name"), ValidArgsFunction: a.completeJobs,
			RunE: func(cmd *cobra.Command, args []string) error { return a.vmOp(cmd.Context(), args[0], op, f) },
		}
		f.bind(cmd, op == job.AttachLB)
		return cmd
	}
	return nounCmd("vm", "Operate on the VMs of a finished job",
		one("attach-lb", "Attach a load balancer", "  zopday vm attach-lb shop-prod --wait\n  zopday vm attach-lb shop-prod --set type=tcp --set port=80", job.AttachLB),
		one("detach-lb", "Take the load balancer off", "  zopday vm detach-lb shop-prod --yes --wait", job.DetachLB))
}

type vmOpFlags struct {
	sets      []string
	files     []string
	wait, yes bool
}

func (f *vmOpFlags) bind(cmd *cobra.Command, attach bool) {
	waitFlag(cmd, &f.wait)
	cmd.Flags().BoolVar(&f.yes, "yes", false, "do not ask before a load balancer is taken off")
	if attach {
		cmd.Flags().StringArrayVar(&f.sets, "set", nil, "`key=value` of the load balancer, such as type=tcp; repeatable")
		cmd.Flags().StringArrayVarP(&f.files, "file", "f", nil, "`file` with the load balancer's fields; - for the standard input")
	}
}

func (a *app) vmOp(ctx context.Context, ref string, op job.VMOp, f vmOpFlags) error {
	c, err := a.connect()
	if err != nil {
		return err
	}
	rctx, cancel := a.request(ctx)
	_, j, err := a.resolve(rctx, c, ref)
	cancel()
	if err != nil {
		return err
	}
	patch := map[string]any{"vmOp": op}
	lb, err := a.loadBalancer(f)
	if err != nil {
		return err
	}
	if lb != nil {
		patch["config"] = map[string]any{"spec": map[string]any{"loadBalancer": lb}}
	}
	if op == job.DetachLB {
		host := cmp.Or(j.Config.InfraConfig.DNSRecord, j.Config.InfraConfig.LoadBalancerHost, "its address")
		err := a.confirm(ctx, consent{
			verb: "detach the load balancer of " + j.Name, level: 2, yes: f.yes,
			effect: []string{host + " stops answering", "the VMs run on and are not touched"},
		})
		if err != nil {
			return err
		}
	}
	return a.act(ctx, c, j, f.wait, func(ctx context.Context) (*client.Response, client.Job, error) {
		return c.PatchJob(ctx, j.ID, patch, "")
	})
}

// loadBalancer reads what an attach may bring; nil leaves the defaults.
func (a *app) loadBalancer(f vmOpFlags) (map[string]any, error) {
	return a.fields(f.files, f.sets, "loadBalancer.")
}

// fields reads one object from a file and from single keys, which may stand with
// a prefix; nil if neither is given.
func (a *app) fields(files, sets []string, prefix string) (map[string]any, error) {
	if len(files) == 0 && len(sets) == 0 {
		return nil, nil
	}
	d := document{body: map[string]any{}}
	if len(files) > 0 {
		docs, err := a.readDocuments(files, nil)
		if err != nil {
			return nil, err
		}
		if len(docs) != 1 {
			return nil, usagef("one document is wanted, and there are %d", len(docs))
		}
		d = docs[0]
	}
	for _, s := range sets {
		if prefix != "" {
			s = strings.TrimPrefix(s, prefix)
		}
		if err := d.assign(s, nil, false); err != nil {
			return nil, err
		}
	}
	return d.body, nil
}
