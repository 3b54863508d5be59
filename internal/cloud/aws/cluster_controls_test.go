package aws

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/sim"
)

// defaultOn are the rows that every cluster's report has, but for those that only
// the Kubernetes API can answer.
var defaultOn = []string{"EKS-01", "EKS-03", "EKS-04", "EKS-05", "EKS-06", "EKS-08", "EKS-09", "EKS-10", "EKS-11", "EKS-12", "EKS-13", "EKS-14", "EKS-15", "EKS-16", "EKS-17", "EKS-18",
	"EKS-19", "EKS-20", "EKS-21", "EKS-22", "EKS-23", "EKS-24", "EKS-28", "EKS-30", "EKS-31", "EKS-32", "EKS-37"}

func unmet(rows []job.Control) []string {
	var out []string
	for _, c := range rows {
		if !c.Met {
			out = append(out, c.ID)
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(out)))
}

// tamper changes what the simulation has of an object, and returns how to undo it.
func (g clusterRig) tamper(id string, change func(map[string]any)) (undo func()) {
	g.Helper()
	found := g.world.Objects(sim.ObjectFilter{ID: id, All: true})
	if len(found) != 1 {
		g.Fatalf("%s is there %d times", id, len(found))
	}
	was, err := json.Marshal(found[0].Data)
	if err != nil {
		g.Fatal(err)
	}
	var data map[string]any
	if err := json.Unmarshal(was, &data); err != nil {
		g.Fatal(err)
	}
	change(data)
	is, err := json.Marshal(data)
	if err != nil {
		g.Fatal(err)
	}
	if string(is) == string(was) {
		g.Fatalf("nothing of %s was changed: %s", id, was)
	}
	patch := func(text []byte) {
		if _, err := g.world.PatchObject(id, text); err != nil {
			g.Fatal(err)
		}
	}
	patch(is)
	return func() { patch(was) }
}

// to sets one field.
func to(field string, v any) func(map[string]any) { return func(m map[string]any) { m[field] = v } }

// inTemplate changes the data of every version of a launch template, wherever in it
// the field is.
func inTemplate(field string, v any) func(map[string]any) {
	var set func(any)
	set = func(x any) {
		switch x := x.(type) {
		case map[string]any:
			for k := range x {
				if k == field {
					x[k] = v
				} else {
					set(x[k])
				}
			}
		case []any:
			for _, y := range x {
				set(y)
			}
		}
	}
	return func(m map[string]any) { set(m["Versions"]) }
}

// id is the ID of one of the job's objects.
func (g clusterRig) id(kind, key string) string {
	g.Helper()
	o, ok := g.objects[kind+"/"+key]
	if !ok {
		g.Fatalf("there is no %s %s", kind, key)
	}
	return o.ID
}

// A flip turns one control over.
type flip struct {
	id   string
	flip func() (undo func())
	with []string // further rows that fall with it
}

func (g clusterRig) flips() []flip {
	g.Helper()
	cluster, pool, template := g.id(kindCluster, clusterKey), g.id(kindNodegroup, "pool-workers"), g.id(kindLaunchTemplate, "pool-arm")
	key := g.id(kindKey, keyKey)
	attach := func(role, policy string) func() func() {
		in := map[string]any{"RoleName": role, "PolicyArn": "arn:aws:iam::aws:policy/" + policy}
		return func() func() {
			g.place("iam", "AttachRolePolicy", in)
			g.world.Step(time.Minute) // until IAM shows it
			return func() { g.place("iam", "DetachRolePolicy", in); g.world.Step(time.Minute) }
		}
	}
	open := func(group string) func() func() {
		in := map[string]any{"GroupId": group, "IpPermissions": []any{map[string]any{"IpProtocol": "tcp", "FromPort": 443, "ToPort": 443, "IpRanges": []any{map[string]any{"CidrIp": anywhere}}}}}
		return func() func() {
			g.place("ec2", "AuthorizeSecurityGroupIngress", in)
			return func() { g.place("ec2", "RevokeSecurityGroupIngress", in) }
		}
	}
	change := func(id string, f func(map[string]any)) func() func() {
		return func() func() { return g.tamper(id, f) }
	}
	subnet := g.infra().PrivateSubnetIDs[0]
	return []flip{
		{"EKS-01", change(cluster, to("PublicCIDRs", []any{"203.0.113.0/24", anywhere})), nil},
		{"EKS-03", change(cluster, to("Private", false)), nil},
		{"EKS-04", change(cluster, to("Logging", []any{"api", "audit", "controllerManager", "scheduler"})), []string{"EKS-05"}},
		{"EKS-05", change(cluster, to("Logging", []any{"api", "audit", "authenticator", "controllerManager"})), nil},
		{"EKS-06", change(clusterLogName(g.info().Name), to("Retention", 0)), nil},
		{"EKS-08", change(cluster, to("KeyARN", "")), []string{"EKS-09"}},
		{"EKS-08", change(key, to("State", "Disabled")), nil},
		{"EKS-09", change(key, to("Rotation", 0)), nil},
		{"EKS-10", change(cluster, to("Version", "1.32")), []string{"EKS-12"}},
		{"EKS-11", change(cluster, to("SupportType", "EXTENDED")), nil},
		{"EKS-12", change(pool, to("Version", "1.33")), nil},
		{"EKS-13", change(cluster, to("Protected", false)), nil},
		{"EKS-14", change(cluster, to("AuthMode", "API_AND_CONFIG_MAP")), nil},
		{"EKS-15", g.letIn("arn:aws:iam::123456789012:role/maker"), nil},
		{"EKS-16", change(subnet, to("MapPublicIP", true)), []string{"NETA-03"}},
		{"EKS-17", change(template, inTemplate("Tokens", "optional")), nil},
		{"EKS-18", change(template, inTemplate("HopLimit", 2)), nil},
		{"EKS-19", change(template, inTemplate("Encrypted", false)), nil},
		{"EKS-20", change(template, inTemplate("PublicIP", true)), nil},
		{"EKS-21", change(pool, to("SSHKey", "laptop")), nil},
		{"EKS-23", attach(g.job.ResourceName("node", 64), "AmazonEKS_CNI_Policy"), nil},
		{"EKS-24", change(g.id(kindAddon, "addon-vpc-cni"), to("Config", `{"enableNetworkPolicy":"false"}`)), nil},
		{"EKS-28", change(pool, to("AMIType", "AL2_x86_64")), nil},
		{"EKS-30", open(g.info().SecurityGroupID), nil},
		{"EKS-31", change(cluster, to("Subnets", []any{subnet})), nil},
		{"EKS-32", change(g.infra().NetworkID, to("IsDefault", true)), []string{"NETA-09"}},
		{"EKS-37", change(cluster, to("Tags", map[string]any{"zopday:owner": "somebody"})), nil},
	}
}

// letIn makes a role an administrator of the cluster behind the job's back, as EKS
// does with a cluster's maker unless that is declined.
func (g clusterRig) letIn(principal string) func() func() {
	cluster := g.info().Name
	return func() func() {
		g.place("iam", "CreateRole", map[string]any{"RoleName": principal[strings.LastIndexByte(principal, '/')+1:], "AssumeRolePolicyDocument": trustPolicy})
		g.world.Step(time.Minute) // until IAM shows it
		g.place("eks", "CreateAccessEntry", map[string]any{"clusterName": cluster, "principalArn": principal})
		g.place("eks", "AssociateAccessPolicy", map[string]any{"clusterName": cluster, "principalArn": principal,
			"policyArn": "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy", "accessScope": map[string]any{"type": "cluster"}})
		g.world.Step(time.Minute)
		return func() {
			g.place("eks", "DeleteAccessEntry", map[string]any{"clusterName": cluster, "principalArn": principal})
			g.world.Step(time.Minute)
		}
	}
}

// A report is complete and all of it holds; and each control that somebody turns over
// at AWS makes its row fall, and no other but those that follow from it.
func TestClusterControls(t *testing.T) {
	t.Parallel()
	g := newCluster(t, sim.Options{}, job.ModeCreate, mixedSpec)
	g.create()
	rows := g.report()
	have := map[string]job.Control{}
	for _, c := range rows {
		have[c.ID] = c
		if !c.Met || c.Unchecked || c.Wanted == "" || c.Seen == "" || c.Source == "" || c.Name == "" {
			t.Errorf("%+v", c)
		}
	}
	for _, id := range append([]string{"NETA-01", "NETA-02", "NETA-03", "NETA-07", "NETA-09", "NETA-10", "NETA-13", "NETA-15"}, defaultOn...) {
		if have[id].ID == "" {
			t.Errorf("there is no row %s", id)
		}
	}
	for i, c := range g.flips() {
		undo := c.flip()
		want := slices.Sorted(slices.Values(append([]string{c.id}, c.with...)))
		if got := unmet(g.report()); !slices.Equal(got, want) {
			t.Errorf("%d: flipped %s, and %v do not hold, want %v", i, c.id, got, want)
		}
		undo()
	}
	t.Run("EKS-22", func(t *testing.T) {
		undo := g.tamper(g.id(kindAddon, "addon-eks-pod-identity-agent"), to("Status", "DEGRADED"))
		defer undo()
		if got := unmet(g.report()); len(got) > 0 {
			t.Errorf("with the provider, %v do not hold", got)
		}
		if _, err := g.world.RemoveObject(g.id(kindOIDC, oidcKey)); err != nil {
			t.Fatal(err)
		}
		if got := unmet(g.report()); fmt.Sprint(got) != "[EKS-22]" {
			t.Errorf("without agent and provider, %v do not hold", got)
		}
	})
}

// What may not be read is told as that, and is neither met nor a fault.
func TestClusterControlsUnread(t *testing.T) {
	t.Parallel()
	g := newCluster(t, sim.Options{}, job.ModeCreate, clusterSpec)
	g.create()
	g.fault(sim.Fault{Kind: sim.FaultError, Service: "kms", Operation: "GetKeyRotationStatus", Code: "AccessDeniedException", Status: 400, Count: 100})
	for _, c := range g.report() {
		if c.Unchecked != (c.ID == "EKS-09") || c.Met == c.Unchecked {
			t.Errorf("%+v", c)
		}
	}
	g.hit()
}

// A provisioner that stands inside of the network keeps the API server there.
func TestPrivateClusterControls(t *testing.T) {
	t.Parallel()
	g := newCluster(t, sim.Options{}, job.ModeCreate, clusterSpec)
	g.p = at(t, g.url, Options{Pace: quick, Reach: job.Reach{Mode: job.ReachDirect}})
	g.create()
	if g.info().Public || len(g.info().PublicCIDRs) > 0 {
		t.Errorf("the cluster is %+v", g.info())
	}
	at := slices.IndexFunc(g.report(), func(c job.Control) bool { return c.ID == "EKS-02" && c.Met })
	if at < 0 {
		t.Error("there is no row EKS-02")
	}
	g.tamper(g.id(kindCluster, clusterKey), func(m map[string]any) { m["Public"], m["PublicCIDRs"] = true, []any{"198.51.100.0/24"} })
	if got := unmet(g.report()); fmt.Sprint(got) != "[EKS-02]" {
		t.Errorf("%v do not hold", got)
	}
}
