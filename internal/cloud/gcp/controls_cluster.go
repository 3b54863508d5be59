package gcp

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/api/compute/v1"
	"google.golang.org/api/container/v1"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// clusterControls reads the hardening controls of a cluster back: every row that
// is on by default and that the cloud, not the Kubernetes API, can answer. What
// could not be read is told as unchecked.
func (p *Provider) clusterControls(ctx context.Context, r *pipeline.Run) ([]job.Control, error) {
	spec, err := r.Job.ClusterSpec()
	if err != nil {
		return nil, err
	}
	ranges, err := p.rangeNames(ctx, r)
	if err != nil {
		return nil, err
	}
	parts := []struct {
		ids  []string
		read func(*clusterReport, context.Context) error
	}{
		{clusterRows(), (*clusterReport).cluster}, {[]string{"GKE-09"}, (*clusterReport).account}, {[]string{"GKE-16"}, (*clusterReport).flowLogs},
		{[]string{"GKE-36", "GKE-37"}, (*clusterReport).network},
	}
	reports := make([]clusterReport, len(parts))
	var reads []func(context.Context) error
	for i, part := range parts {
		reports[i] = clusterReport{controls: controls{p: p, r: r, infra: &r.Job.Config.InfraConfig}, want: p.clusterWant(r, spec, ranges)}
		reads = append(reads, func(ctx context.Context) error {
			err := part.read(&reports[i], ctx)
			switch {
			case pipeline.Is(err, pipeline.Invalid, pipeline.Denied, pipeline.NotFound):
				for _, id := range part.ids {
					reports[i].rows = append(reports[i].rows, job.Control{ID: id, Name: rowName(id), Wanted: "read back", Seen: "not read: " + err.Error(), Unchecked: true})
				}
			case err != nil:
				return fmt.Errorf("read back the cluster: %w", err)
			}
			return nil
		})
	}
	err = pipeline.All(ctx, reads...)
	var rows []job.Control
	for _, c := range reports {
		rows = append(rows, c.rows...)
	}
	return rows, err
}

// clusterReport is one part of the report on a cluster.
type clusterReport struct {
	controls
	want *container.Cluster
}

// otherRows are the rows of a cluster that are no plain settings, with their names
// and the rules that ask for them.
var otherRows = map[string][2]string{
	"GKE-05": {"attribute-based access", "GCP-0062, CKV_GCP_7, CIS GKE 5.8.3"},
	"GKE-09": {"roles of the nodes' account", "GCP-0007, CIS GKE 5.1.3"},
	"GKE-16": {"flow logs of the nodes' subnet", "GCP-0029, GCP-0076, CKV_GCP_26, CIS GKE 5.6.1"},
	"GKE-34": {"initial node pool", "CKV_GCP_123"},
	"GKE-35": {"labels", "GCP-0051, CKV_GCP_21"},
	"GKE-36": {"network is neither the default one nor a legacy one", "GCP-0010, CKV2_GCP_2, CKV2_GCP_18, CIS GCP 3.1, CIS GCP 3.2"},
	"GKE-37": {"rules that open node ports to the internet", "GCP-0027, CKV_GCP_2, CKV_GCP_3, CIS GKE 5.6.6"},
	"GKE-45": {"delete guard", "the provisioner's own lock"},
	"GKE-48": {"maintenance window", "GKE: maintenance windows"},
}

// clusterRows are the rows that the cluster itself answers.
func clusterRows() []string {
	ids := []string{"GKE-05", "GKE-34", "GKE-35", "GKE-45", "GKE-48"}
	for _, s := range clusterSettings {
		ids = append(ids, s.id)
	}
	for _, s := range poolSettings {
		ids = append(ids, s.id)
	}
	slices.Sort(ids)
	return slices.DeleteFunc(slices.Compact(ids), func(id string) bool { return id == "" })
}

func rowName(id string) string {
	for _, s := range clusterSettings {
		if s.id == id {
			return s.name
		}
	}
	for _, s := range poolSettings {
		if s.id == id {
			return s.name
		}
	}
	return otherRows[id][0]
}

// row adds one of otherRows.
func (c *clusterReport) row(id, wanted, seen string, met bool) {
	c.add(id, otherRows[id][0], wanted, seen, met, otherRows[id][1])
}

// cluster reads back the cluster and its node pools, those of others too.
func (c *clusterReport) cluster(ctx context.Context) error {
	got, err := c.p.readCluster(ctx, c.p.clusterID(c.r))
	if err != nil {
		return err
	}
	for _, s := range clusterSettings {
		if s.id == "" {
			continue
		}
		wanted, seen := s.text(c.want), s.text(got)
		met := seen == wanted || s.fine != nil && s.fine(seen)
		if s.id == "GKE-03" || s.id == "GKE-28" { // told with the pools'
			continue
		}
		if s.id == "GKE-13" && got.DatabaseEncryption != nil && strings.HasSuffix(got.DatabaseEncryption.CurrentState, "_ERROR") {
			met, seen = false, seen+" ("+got.DatabaseEncryption.CurrentState+")"
		}
		c.add(s.id, s.name, wanted, seen, met, s.source)
	}
	c.row("GKE-05", "off", abacText(got), abacText(got) == "off")
	c.row("GKE-48", maintenanceText(c.want), maintenanceText(got), maintenanceText(got) != "")
	c.row("GKE-35", "some", strconv.Itoa(len(got.ResourceLabels)), len(got.ResourceLabels) > 0)
	guard := got.ResourceLabels[labelGuard]
	c.row("GKE-45", "on", cmp.Or(guard, "off"), guard != "")
	initial := poolOf(got, "default-pool") != nil
	c.row("GKE-34", "none", map[bool]string{true: "default-pool", false: "none"}[initial], !initial)
	c.pools(got)
	return nil
}

// pools reads every node pool back: a row says what all of them say, or which one
// differs.
func (c *clusterReport) pools(got *container.Cluster) {
	want := c.want.NodePools[0]
	for _, s := range poolSettings {
		if s.id == "" {
			continue
		}
		wanted, met := s.text(want), true
		var words []string
		if i := slices.IndexFunc(clusterSettings, func(x setting) bool { return x.id == s.id }); i >= 0 {
			if seen := clusterSettings[i].text(got); seen != wanted {
				met, words = false, append(words, "cluster: "+seen)
			}
		}
		for _, n := range got.NodePools {
			if n.Config == nil {
				n.Config = &container.NodeConfig{}
			}
			seen := s.text(n)
			if s.id == "GKE-08" && !defaultAccount(seen) {
				continue // an account of its own, whichever
			}
			if seen != wanted {
				met, words = false, append(words, n.Name+": "+cmp.Or(seen, "not set"))
			}
		}
		c.add(s.id, s.name, wanted, cmp.Or(strings.Join(words, "; "), wanted), met, s.source)
	}
}

// defaultAccount reports whether an account is Compute Engine's default one, which
// may change everything in the project.
func defaultAccount(email string) bool {
	return email == "" || email == "default" || strings.HasSuffix(email, "-compute@developer.gserviceaccount.com")
}

// account reads back what the nodes' account may do in the project.
func (c *clusterReport) account(ctx context.Context) error {
	policy, err := lookup.Once(ctx, "policy of the project", c.p.readPolicy)
	if err != nil {
		return err
	}
	var roles []string
	for _, b := range policy.Bindings {
		if slices.ContainsFunc(b.Members, isMember("serviceAccount:"+c.infra.Cluster.NodeRoleID)) {
			roles = append(roles, b.Role)
		}
	}
	wanted := sorted([]string{nodeRole, registryRole})
	c.row("GKE-09", wanted, agreed(roles), agreed(roles) == wanted)
	return nil
}

// flowLogs reads back how the nodes' subnet logs. Who asks for none, or has none in
// a network of their own, waives the control by name.
func (c *clusterReport) flowLogs(ctx context.Context) error {
	if len(c.infra.PrivateSubnetIDs) == 0 {
		return nil
	}
	x, err := c.p.subnets().lookup().Get(ctx, c.infra.PrivateSubnetIDs[0])
	if err != nil {
		return err
	}
	seen := flowLogText(x.LogConfig)
	c.row("GKE-16", "on", seen, seen != "off")
	return nil
}

// network reads back where the cluster is, and that nobody opened its nodes.
func (c *clusterReport) network(ctx context.Context) error {
	x, err := c.p.networks().lookup().Get(ctx, c.infra.NetworkID)
	if err != nil {
		return err
	}
	mode := subnetMode(x)
	c.row("GKE-36", "a network of its own", x.Name+", "+mode, x.Name != "default" && mode != "legacy")
	all, err := c.p.firewalls().all(ctx, "")
	if err != nil {
		return err
	}
	var open []string
	for _, f := range all {
		if rel(f.Network) == c.infra.NetworkID && openPorts(f) != "" && opensNodePorts(f) {
			open = append(open, f.Name)
		}
	}
	c.row("GKE-37", "none", cmp.Or(agreed(open), "none"), len(open) == 0)
	return nil
}

// The ports on which every node answers for Services ("NodePort Services").
const firstNodePort, lastNodePort = 30000, 32767

// opensNodePorts reports whether a rule lets something in to node ports. A rule of
// a Service's load balancer names the ports of the Service, which the load balancer
// keeps as they are.
func opensNodePorts(f *compute.Firewall) bool {
	for _, a := range f.Allowed {
		for _, port := range []int{firstNodePort, (firstNodePort + lastNodePort) / 2, lastNodePort} {
			if opensPort(a, port) {
				return true
			}
		}
		for _, ports := range a.Ports {
			if n, err := strconv.Atoi(ports); err == nil && n >= firstNodePort && n <= lastNodePort && a.IPProtocol != "udp" {
				return true
			}
		}
	}
	return false
}

// madeByCluster reports whether Kubernetes Engine made a rule for the nodes of the
// job's cluster, or a controller of it for a Service's load balancer, whose front
// is open because the Service says so.
func (c *controls) madeByCluster(f *compute.Firewall) bool {
	if c.r.Job.ResourceType != job.Cluster {
		return false
	}
	cluster := remains{p: c.p, r: c.r, cluster: base(c.p.clusterID(c.r))}
	return strings.HasPrefix(f.Name, cluster.prefix()) || cluster.marked(f) && strings.Contains(f.Description, serviceMark)
}
