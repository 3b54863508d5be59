package gcp

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"google.golang.org/api/networkconnectivity/v1"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

const (
	kindConnectionPolicy = "networkconnectivity:service-connection-policy"
	keyPolicy            = "cache-policy"

	// valkeyClass is the service class of Memorystore for Valkey.
	valkeyClass = "gcp-memorystore"
)

// connectionPolicies are the policies of the region: who may make endpoints of which
// service in which network.
func (p *Provider) connectionPolicies(ctx context.Context) ([]*networkconnectivity.ServiceConnectionPolicy, error) {
	return lookup.Pages(ctx, func(ctx context.Context, token *string) ([]*networkconnectivity.ServiceConnectionPolicy, *string, error) {
		out, err := send(ctx, p.data.connectivity.Projects.Locations.ServiceConnectionPolicies.List(p.clusterParent()).PageToken(text(token)))
		if err != nil {
			return nil, nil, err
		}
		return out.ServiceConnectionPolicies, &out.NextPageToken, nil
	})
}

// connectionPolicy lets Memorystore make its endpoints in the job's database subnet
// ("Service connection policies").
func (p *Provider) connectionPolicy(r *pipeline.Run, network string, subnets []string) pipeline.Resource {
	id := p.clusterParent() + "/serviceConnectionPolicies/" + name(r, keyPolicy)
	api := p.data.connectivity.Projects.Locations.ServiceConnectionPolicies
	operation := func(op *networkconnectivity.GoogleLongrunningOperation, err error) (string, error) {
		if err != nil {
			return "", err
		}
		return op.Name, nil
	}
	return managedObject{
		kind: kindConnectionPolicy, key: keyPolicy, id: id, name: base(id), service: serviceConnectivity,
		read: func(ctx context.Context) (pipeline.Seen, error) {
			got, err := send(ctx, api.Get(id))
			if err != nil {
				return pipeline.Seen{}, err
			}
			owner, _ := labelMark(got.Labels)
			return pipeline.Seen{ID: id, Owner: cmp.Or(owner, pipeline.Unmarked)}, nil
		},
		create: func(ctx context.Context) (string, error) {
			return operation(send(ctx, api.Create(p.clusterParent(), &networkconnectivity.ServiceConnectionPolicy{
				Network: rel(network), ServiceClass: valkeyClass, Labels: labelsFor(r.Job, keyPolicy),
				PscConfig: &networkconnectivity.PscConfig{Subnetworks: subnets},
			}).ServiceConnectionPolicyId(base(id))))
		},
		remove: func(ctx context.Context) (string, error) { return operation(send(ctx, api.Delete(id))) },
		blockers: func(context.Context, string) (string, error) {
			return "endpoints of Memorystore in this network still use it; they go with their instances, a while later", nil
		},
	}.resource(p, r)
}

// ensureValkeyPolicy makes the policy in a network of the job; in one of somebody
// else's the policy that stepValidate found is used.
func (p *Provider) ensureValkeyPolicy(ctx context.Context, r *pipeline.Run) error {
	if r.Job.Mode != job.ModeCreate {
		return nil
	}
	infra := &r.Job.Config.InfraConfig
	_, err := p.ensure(ctx, r, p.connectionPolicy(r, infra.NetworkID, infra.DatabaseSubnetIDs))
	return err
}

func (p *Provider) removeValkeyPolicy(ctx context.Context, r *pipeline.Run) error {
	if r.Job.Mode != job.ModeCreate {
		return nil
	}
	return r.Remove(ctx, p.connectionPolicy(r, "", nil))
}

// valkeyPolicy is the check of the named network's own policy.
func (k *datastoreChecker) valkeyPolicy(ctx context.Context, network string, subnets []string) error {
	const check, field = "service connection policy", "config.spec.existing.networkId"
	all, err := k.p.connectionPolicies(ctx)
	if err != nil {
		return k.unchecked(ctx, check, field, err)
	}
	for _, x := range all {
		if rel(x.Network) == network && x.ServiceClass == valkeyClass {
			k.ok(check, "%s", base(x.Name))
			return nil
		}
	}
	subnet := "SUBNET"
	if len(subnets) > 0 {
		subnet = base(subnets[0])
	}
	k.fails(check, field, fmt.Sprintf("network %s has no service connection policy for Memorystore in %s, by which Valkey is reached", base(network), k.p.region),
		fmt.Sprintf("Run gcloud network-connectivity service-connection-policies create %[1]s-memorystore --network=%[1]s --project=%[2]s --region=%[3]s --service-class=%[4]s --subnets=%[5]s.",
			base(network), projectOf(network), k.p.region, valkeyClass, subnet))
	return nil
}

// connectivityOperation reads an operation of Network Connectivity in the common form.
func (p *Provider) connectivityOperation(ctx context.Context, name string) (longRunning, error) {
	var out longRunning
	op, err := send(ctx, p.data.connectivity.Projects.Locations.Operations.Get(name))
	if err != nil {
		return out, err
	}
	text, err := json.Marshal(op)
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	return out, err
}

// A valkeySetting is a property of an instance of Memorystore for Valkey.
type valkeySetting struct {
	id, name, source string
	asked            bool
	text             func(*valkeyInstance) string
}

var valkeySettings = []valkeySetting{
	{id: "MS-03", name: "TLS", source: "CKV_GCP_97 in spirit", text: func(x *valkeyInstance) string { return x.TransitEncryptionMode }},
	{id: "MS-06", name: "reached by endpoints in a network alone", source: "Memorystore: networking", text: func(x *valkeyInstance) string {
		for _, e := range x.Endpoints {
			for _, c := range e.Connections {
				if c.Auto != nil && c.Auto.Network != "" {
					return "private endpoints in " + base(c.Auto.Network)
				}
			}
		}
		return "none"
	}},
	{id: "MS-08", name: "replica", source: "ElastiCache.3 in spirit", asked: true, text: func(x *valkeyInstance) string { return yesNo(x.ReplicaCount > 0) }},
	{id: "MS-11", name: "maintenance window", source: "Memorystore: maintenance policy", text: func(x *valkeyInstance) string {
		if x.Maintenance == nil || len(x.Maintenance.Windows) == 0 {
			return "none"
		}
		w := x.Maintenance.Windows[0]
		return fmt.Sprintf("%s at %d:00 UTC", w.Day, w.Start.Hours)
	}},
	{id: "MS-12", name: "deletion protection", source: "CIS GCP 6.9 in spirit", text: func(x *valkeyInstance) string { return onOff(x.DeletionProtection) }},
	{id: "MS-13", name: "engine version", source: "ElastiCache.2 in spirit", text: func(x *valkeyInstance) string { return x.EngineVersion }},
	{name: "node type", text: func(x *valkeyInstance) string { return x.NodeType }},
	{name: "replicas", text: func(x *valkeyInstance) string { return strconv.Itoa(x.ReplicaCount) }},
}

// valkeyControls is the report on an instance. Without IAM the network is the only
// gate: that is told, and is no fault, since clients have to fetch tokens for it.
func (p *Provider) valkeyControls(ctx context.Context, r *pipeline.Run, spec job.DatastoreSpec) ([]job.Control, error) {
	x, err := p.readValkey(ctx, p.cacheID(r))
	unable := pipeline.Is(err, pipeline.Invalid, pipeline.Denied, pipeline.NotFound)
	if err != nil && !unable {
		return nil, fmt.Errorf("read back the cache: %w", err)
	}
	c := controls{p: p, r: r, infra: &r.Job.Config.InfraConfig}
	want := p.valkeyWant(r, spec)
	want.DeletionProtection = true
	for _, s := range valkeySettings {
		switch {
		case s.id == "" || s.asked && !spec.HA():
		case unable:
			c.rows = append(c.rows, unread(s.id, s.name, err))
		default:
			c.same(s.id, s.name, s.text(want), s.text(x), s.source)
		}
	}
	if !unable {
		on := x.AuthorizationMode == "IAM_AUTH"
		c.add("MS-04", "IAM authentication", "IAM_AUTH, where clients can fetch tokens", or(x.AuthorizationMode, "AUTH_DISABLED")+": the network decides who connects", on, "CKV_GCP_95 in spirit")
		c.rows[len(c.rows)-1].Unchecked = !on
	}
	return c.rows, nil
}
