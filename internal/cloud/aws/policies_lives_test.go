package aws

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
)

// lives is what the policies are made of.
func lives() []life {
	return slices.Concat(vmLives(), networkLives(), clusterLives(), dataLives())
}

// newAccount takes away the service-linked roles that an account has once its
// services were used.
func (g vmRig) newAccount() {
	g.Helper()
	for _, o := range g.world.Objects(sim.ObjectFilter{Kind: "role", All: true}) {
		if strings.Contains(o.ID, ":"+ownAccount+":role/aws-service-role/") {
			if _, err := g.world.RemoveObject(o.ID); err != nil {
				g.Fatal(err)
			}
		}
	}
}

func vmLives() []life {
	return []life{
		{job.VM, "VMs with names of their own", false, func(t testing.TB) *lived {
			g := newVMs(t, sim.Options{}, fixedDNSSpec)
			g.zoned("example.test")
			g.newAccount()
			v := &lived{g: g}
			pool := func() job.PoolRef {
				var ids []string
				for _, vm := range g.infra().VMs {
					ids = append(ids, vm.InstanceID)
				}
				return job.PoolRef{Kind: job.PoolEC2Instances, Name: job.VMPoolName, Instances: ids}
			}
			return v.then(v.planned, v.phase(job.PhaseProvision, ""), v.drifted, v.observed, v.paused(pool),
				func() error { return g.vmDrift() }, v.respec(strings.Replace(fixedDNSSpec, `"count":2`, `"count":2,"diskGiB":40`, 1)), v.phase(job.PhaseProvision, ""), v.phase(job.PhaseTeardown, ""), v.scanned)
		}},
		{job.VM, "a scaling group", false, func(t testing.TB) *lived {
			g := newVMs(t, sim.Options{}, groupSpec)
			g.newAccount()
			v := &lived{g: g}
			with := strings.TrimSuffix(groupSpec, "}") + `,"loadBalancer":{"type":"tcp"}}`
			return v.then(v.phase(job.PhaseProvision, ""), v.respec(with), v.phase(job.PhaseUpdate, job.AttachLB), v.drifted, v.observed,
				v.paused(func() job.PoolRef {
					return job.PoolRef{Kind: job.PoolScalingGroup, Name: job.VMPoolName, ID: g.infra().ScalingGroupID}
				}),
				v.phase(job.PhaseUpdate, job.DetachLB), v.respec(`{"pool":{"mode":"asg","min":1,"desired":1,"max":3,"instanceType":"t3.medium"}}`), v.phase(job.PhaseProvision, ""), v.phase(job.PhaseTeardown, ""), v.scanned)
		}},
		{job.VM, "in a network that exists, with a certificate", false, func(t testing.TB) *lived {
			g := vmRig{freshRig(t, job.ModeCreateInExisting, existingPlaceholder)}
			n := g.theirs(anything(t.Context()))
			arn := g.certificate("shop.example.test")
			g.name(n, fmt.Sprintf(`{"type":"http","certificate":%q}`, arn), n.privateB, n.publicB, n.privateA, n.publicA)
			g.world.Clock.Stop()
			g.world.Step(5 * time.Minute)
			v := &lived{g: g}
			return v.then(v.planned, v.phase(job.PhaseProvision, ""), v.drifted, v.phase(job.PhaseTeardown, ""), v.account(job.VM, false))
		}},
		{job.VM, "adopted", true, func(t testing.TB) *lived {
			g := newVMs(t, sim.Options{}, fixedSpec)
			if err := g.try(false, g.check); err != nil {
				t.Fatal(err)
			}
			a := g.adopting(fmt.Sprintf(`{"adopt":{"ids":[%q]}}`, g.placed()))
			v := &lived{g: a}
			return v.then(v.planned, v.phase(job.PhaseProvision, ""), v.drifted, v.observed, v.phase(job.PhaseTeardown, ""), v.account(job.VM, true))
		}},
		{job.VM, "looked at", true, func(t testing.TB) *lived {
			g := newVMs(t, sim.Options{}, groupLBSpec)
			g.create()
			v := &lived{g: g}
			return v.then(v.planned, v.drifted, v.observed)
		}},
	}
}

// certificate is one that is issued.
func (g vmRig) certificate(domain string) string {
	g.Helper()
	g.place("acm", "RequestCertificate", map[string]any{"DomainName": domain, "ValidationMethod": "DNS"})
	all := g.world.Objects(sim.ObjectFilter{Kind: "certificate", All: true})
	if len(all) == 0 {
		g.Fatal("there is no certificate")
	}
	if _, err := g.world.SetObjectState(all[0].ID, "ISSUED", "", ""); err != nil {
		g.Fatal(err)
	}
	return all[0].ID
}

// vmDrift is what people change of VMs and around them by hand.
func (g vmRig) vmDrift() error {
	g.place("ec2", "AuthorizeSecurityGroupIngress", map[string]any{"GroupId": g.infra().LoadBalancerSecurityGroupID,
		"IpPermissions": []any{map[string]any{"IpProtocol": "tcp", "FromPort": 8443, "ToPort": 8443, "IpRanges": []any{map[string]any{"CidrIp": "203.0.113.0/24"}}}}})
	g.place("elasticloadbalancing", "ModifyTargetGroup", map[string]any{"TargetGroupArn": g.infra().TargetGroupID, "HealthCheckPath": "/"})
	g.place("elasticloadbalancing", "ModifyListener", map[string]any{"ListenerArn": g.infra().ListenerIDs[0], "Port": 8080})
	return g.netDrift()
}

// netDrift is what people change of a network by hand.
func (g vmRig) netDrift() error {
	for _, o := range g.objects {
		switch o.Kind {
		case kindRole:
			if o.Key != flowRoleKey && g.job.ResourceType != job.VM {
				continue
			}
			g.place("iam", "UpdateAssumeRolePolicy", map[string]any{"RoleName": o.ID, "PolicyDocument": `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":"lambda.amazonaws.com"},"Action":"sts:AssumeRole"}]}`})
		case kindNetworkACL:
			g.place("ec2", "CreateNetworkAclEntry", map[string]any{"NetworkAclId": o.ID, "RuleNumber": 7, "Protocol": "-1", "RuleAction": "allow", "Egress": false, "CidrBlock": "192.0.2.0/24"})
			g.place("ec2", "ReplaceNetworkAclEntry", map[string]any{"NetworkAclId": o.ID, "RuleNumber": 100, "Protocol": "-1", "RuleAction": "allow", "Egress": true, "CidrBlock": "192.0.2.0/24"})
		case kindRouteTable:
			if strings.HasPrefix(o.Key, "routes-private") && g.idOf(kindInternetGateway) != "" && g.idOf(kindNATGateway) != "" {
				g.place("ec2", "ReplaceRoute", map[string]any{"RouteTableId": o.ID, "DestinationCidrBlock": anywhere, "GatewayId": g.idOf(kindInternetGateway)})
			}
		case kindSubnet:
			g.place("ec2", "ModifySubnetAttribute", map[string]any{"SubnetId": o.ID, "MapPublicIpOnLaunch": map[string]any{"Value": !strings.Contains(o.Key, "public")}})
		case kindBucket:
			g.place("s3", "DeletePublicAccessBlock", map[string]any{"Bucket": o.ID})
			g.place("s3", "DeleteBucketLifecycle", map[string]any{"Bucket": o.ID})
		case kindOIDC:
			g.place("iam", "RemoveClientIDFromOpenIDConnectProvider", map[string]any{"OpenIDConnectProviderArn": o.ID, "ClientID": oidcAudience})
		case kindEndpoint:
			if strings.HasSuffix(o.Key, "-s3") {
				g.place("ec2", "ModifyVpcEndpoint", map[string]any{"VpcEndpointId": o.ID, "ResetPolicy": true})
			}
		case kindLogGroup:
			g.place("logs", "DeleteRetentionPolicy", map[string]any{"logGroupName": o.ID})
		}
	}
	return nil
}

// idOf is the ID of the job's one object of a kind.
func (g vmRig) idOf(kind string) string {
	for _, o := range g.objects {
		if o.Kind == kind && o.State == job.ObjectCreated {
			return o.ID
		}
	}
	return ""
}

// respec changes what a job asks for.
func (v *lived) respec(spec string) func() error {
	return func() error {
		v.g.job.Config.Spec = []byte(spec)
		return nil
	}
}

// observed refreshes what a finished job shows.
func (v *lived) observed() error {
	ctx := pipeline.WithGate(v.g.Context(), pipeline.ReadOnly)
	if err := v.g.p.RefreshVMs(ctx, v.g.job); err != nil {
		return err
	}
	if v.g.infra().TargetGroupID == "" {
		return nil
	}
	_, err := v.g.p.TargetHealth(ctx, v.g.job)
	return err
}

// paused empties a pool and fills it again.
func (v *lived) paused(ref func() job.PoolRef) func() error {
	return func() error {
		var before job.PoolState
		if err := v.sized(ref, func(have job.PoolState) job.PoolState {
			before = have
			return have.Stopped(ref().Kind, job.ActionPause)
		})(); err != nil {
			return err
		}
		return v.sized(ref, func(job.PoolState) job.PoolState { return before })()
	}
}

func networkLives() []life {
	of := func(name, spec string, drift bool) life {
		return life{job.Network, name, false, func(t testing.TB) *lived {
			g := newNet(t, sim.Options{}, job.ModeCreate, spec)
			g.newAccount()
			v := &lived{g: g}
			v.then(v.planned, v.phase(job.PhaseProvision, ""), v.drifted)
			if drift {
				v.then(g.netDrift, v.phase(job.PhaseProvision, ""))
			}
			return v.then(v.phase(job.PhaseTeardown, ""), v.scanned, v.account(job.Network, false))
		}}
	}
	return []life{
		of("a hub", hubSpec, true), of("closed", closedSpec, false),
		{job.Network, "peered with another account", false, func(t testing.TB) *lived {
			g := newNet(t, sim.Options{}, job.ModeCreate, plainNet)
			vpc := g.peerNet(partnerAccount, "us-east-1", "10.90.0.0/16", "data")
			g.ask(`{"networkId":%q,"cloudAccountId":"partner"}`, vpc)
			v := &lived{g: g}
			return v.then(v.phase(job.PhaseProvision, ""), v.drifted, v.phase(job.PhaseTeardown, ""), v.scanned)
		}},
		{job.Network, "in a network that exists", false, func(t testing.TB) *lived {
			g := newNet(t, sim.Options{}, job.ModeCreateInExisting, fmt.Sprintf(inExisting, "vpc-1"))
			n := g.theirs(anything(t.Context()))
			g.peerNet(ownAccount, "us-east-1", "10.200.0.0/16", "data")
			for _, a := range []string{"EnableDnsSupport", "EnableDnsHostnames"} {
				g.invoke("ec2", "ModifyVpcAttribute", map[string]any{"VpcId": n.vpc, a: map[string]any{"Value": true}})
			}
			g.job.Config.Spec = fmt.Appendf(nil, inExisting, n.vpc)
			g.world.Step(5 * time.Minute)
			v := &lived{g: g}
			return v.then(v.phase(job.PhaseProvision, ""), v.drifted, v.phase(job.PhaseTeardown, ""), v.scanned)
		}},
		{job.Network, "adopted", true, func(t testing.TB) *lived {
			g := newNet(t, sim.Options{}, job.ModeCreate, hubSpec)
			g.create()
			v := &lived{g: g}
			mine := *g.job
			return v.then(v.planned, v.drifted, func() error {
				other := &rig{TB: t, world: g.world, cloud: g.cloud, url: g.url, p: g.p, objects: map[string]job.Object{}, memory: pipeline.NewMemory()}
				other.job = &job.Job{ID: job.NewID("job"), OrgID: "org_1", Kind: job.Provisioning, ResourceType: job.Network, Provider: job.AWS, Mode: job.ModeAdopt,
					Name: "legacy", CloudAccountID: "default", Region: "us-east-1", Config: job.Config{Spec: fmt.Appendf(nil, `{"adopt":{"ids":[%q]}}`, mine.Config.InfraConfig.NetworkID)}}
				v.g = vmRig{other}
				return other.job.Validate()
			}, v.phase(job.PhaseProvision, ""), v.drifted, v.phase(job.PhaseTeardown, ""), v.account(job.Network, true))
		}},
	}
}

func clusterLives() []life {
	grow := strings.Replace(mixedSpec, `"desired":3`, `"desired":3,"diskGiB":60,"labels":{"tier":"web"}`, 1)
	return []life{
		{job.Cluster, "made, used and taken down", false, func(t testing.TB) *lived {
			g := newCluster(t, sim.Options{}, job.ModeCreate, mixedSpec)
			g.newAccount()
			v := &lived{g: g.vmRig}
			up := []step{v.checked, g.p.EnsureNetwork, g.p.EnsureIdentity, g.p.EnsureCluster}
			ref := func() job.ClusterRef { return g.job.ClusterRef() }
			pool := func() job.PoolRef {
				c := ref()
				return job.PoolRef{Kind: job.PoolEKSNodes, Name: "workers", ID: g.info().NodePools[0].ID, Cluster: &c}
			}
			return v.then(v.planned, v.through(false, up...), v.controls, v.seen(up[1:]...), func() error { return v.lets(ref()) }, v.paused(pool),
				func() error { return g.clusterDrift() }, v.respec(grow), v.through(false, up...), func() error { return v.leftBy(g) }, v.through(true, g.p.Removable), v.through(true, g.gone()...), v.scanned)
		}},
		{job.Cluster, "in a network that exists", false, func(t testing.TB) *lived {
			g := newCluster(t, sim.Options{}, job.ModeCreateInExisting, `{"existing":{"networkId":"vpc-1","subnetIds":["subnet-1"]}}`)
			n := g.theirs(anything(t.Context()))
			g.named(n)
			g.job.Config.Spec = fmt.Appendf(nil, `{"existing":{"networkId":%q,"subnetIds":[%q,%q]},"nodePools":[{"name":"workers","min":1,"desired":1,"max":2}]}`, n.vpc, n.privateA, n.privateB)
			g.world.Step(5 * time.Minute)
			v := &lived{g: g.vmRig}
			return v.then(v.planned, v.through(false, v.checked, g.p.EnsureNetwork, g.p.EnsureIdentity, g.p.EnsureCluster), v.controls, v.through(true, g.gone()...), v.account(job.Cluster, false))
		}},
		{job.Cluster, "adopted", true, func(t testing.TB) *lived {
			g := newCluster(t, sim.Options{}, job.ModeAdopt, `{"adopt":{"name":"legacy"}}`)
			g.legacy(anything(t.Context()))
			v := &lived{g: g.vmRig}
			return v.then(v.planned, v.through(false, v.checked, g.p.AdoptCluster), v.seen(g.p.AdoptCluster), v.through(true, g.gone()...), v.account(job.Cluster, true))
		}},
		{job.Cluster, "looked at", true, func(t testing.TB) *lived {
			g := newCluster(t, sim.Options{}, job.ModeCreate, clusterSpec)
			g.create()
			v := &lived{g: g.vmRig}
			return v.then(v.planned, v.controls, v.seen(g.p.EnsureNetwork, g.p.EnsureIdentity, g.p.EnsureCluster))
		}},
	}
}

// leftBy has the cluster's controllers make what they leave behind, with credentials
// of their own.
func (v *lived) leftBy(g clusterRig) error {
	own := g.p
	g.p = New(Options{Pace: quick, LoadConfig: Static(g.url, controllersKey, "secret")}).mustOpen(g)
	g.leave(g.info().Name, g.infra().NetworkID, g.infra().PrivateSubnetIDs)
	g.p = own
	g.world.Step(10 * time.Minute)
	return nil
}

func (c *Clouds) mustOpen(g clusterRig) *Provider {
	g.Helper()
	p, err := openAs(g, c, "org_1", "default")
	if err != nil {
		g.Fatal(err)
	}
	return p
}

// lets lets somebody into a cluster and out again, and the provisioner itself.
func (v *lived) lets(ref job.ClusterRef) error {
	ctx := anything(v.g.Context())
	access, err := v.g.p.KubeAccess(ctx, ref)
	if err != nil {
		return err
	}
	if _, err := access.Token(ctx); err != nil {
		return err
	}
	for _, g := range []cloud.AccessGrant{{Principal: "arn:aws:iam::123456789012:role/platform", Level: cloud.AccessView}, {Level: cloud.AccessAdmin}} {
		err := v.until(false, func(ctx context.Context, _ *pipeline.Run) error { return v.g.p.GrantAccess(ctx, ref, g) })
		if err != nil {
			return err
		}
	}
	return v.until(false, func(ctx context.Context, _ *pipeline.Run) error {
		return v.g.p.RevokeAccess(ctx, ref, "arn:aws:iam::123456789012:role/platform")
	})
}

// clusterDrift is what people change of a cluster by hand.
func (g clusterRig) clusterDrift() error {
	g.place("kms", "DisableKeyRotation", map[string]any{"KeyId": g.id(kindKey, keyKey)})
	g.place("eks", "UpdateClusterConfig", map[string]any{"name": g.info().Name, "resourcesVpcConfig": map[string]any{"endpointPublicAccess": true, "publicAccessCidrs": []any{"198.51.100.0/24"}}})
	g.world.Step(15 * time.Minute)
	g.place("eks", "UpdateAddon", map[string]any{"clusterName": g.info().Name, "addonName": "vpc-cni", "configurationValues": "{}"})
	g.world.Step(15 * time.Minute)
	// The engine's patience with an object begins when it was made; these were long ago.
	now := g.world.Clock.Now()
	for key, o := range g.objects {
		if o.CreatedAt != nil {
			o.CreatedAt = &now
			g.objects[key] = o
		}
	}
	return g.netDrift()
}

// byFamily are the lives of a family, those of read-only accounts or the others.
// What a read-only account does, another one does too.
func byFamily(family job.ResourceType, readOnly bool) []life {
	return slices.DeleteFunc(lives(), func(l life) bool { return l.family != family || readOnly && !l.readOnly })
}

// usedBy is which lives use an action.
func usedBy(outcomes map[string]ending) map[string][]string {
	out := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(outcomes)) {
		for _, a := range outcomes[name].used {
			if !slices.Contains(out[a], name) {
				out[a] = append(out[a], name)
			}
		}
	}
	return out
}
