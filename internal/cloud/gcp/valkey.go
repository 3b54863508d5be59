package gcp

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// valkeyServer is Memorystore for Valkey.
func valkeyServer() server {
	return server{
		object: func(p *Provider, r *pipeline.Run, spec job.DatastoreSpec) pipeline.Resource {
			return p.valkey(r, p.valkeyWant(r, spec))
		},
		handle: func(p *Provider, r *pipeline.Run) pipeline.Resource { return p.valkey(r, nil) },
		finish: (*Provider).finishValkey, guard: (*Provider).guardValkey, cleanup: (*Provider).cleanupCache, controls: (*Provider).valkeyControls,
	}
}

// valkey is the job's instance. want is nil for a removal.
func (p *Provider) valkey(r *pipeline.Run, want *valkeyInstance) pipeline.Resource {
	id := p.cacheID(r)
	return managedObject{
		kind: kindValkey, key: datastoreKey, id: id, name: base(id), args: want, patience: cachePatience, service: serviceMemorystore,
		read: func(ctx context.Context) (pipeline.Seen, error) {
			got, err := p.readValkey(ctx, id)
			if err != nil {
				return pipeline.Seen{}, err
			}
			owner, _ := labelMark(got.Labels)
			s := pipeline.Seen{ID: id, Owner: cmp.Or(owner, pipeline.Unmarked), Reason: got.State}
			if got.State != "ACTIVE" && got.State != "UPDATING" { // CREATING, DELETING
				s.Status = pipeline.Pending
			}
			if want != nil && r.Mode == pipeline.Verify {
				for _, x := range valkeySettings {
					s.Aspects = append(s.Aspects, pipeline.Aspect{Name: x.name, Wanted: x.text(want), Seen: x.text(got)})
				}
			}
			return s, nil
		},
		create: func(ctx context.Context) (string, error) {
			return p.changeValkey(ctx, http.MethodPost, p.clusterParent()+"/instances", url.Values{"instanceId": {base(id)}}, want)
		},
		remove: func(ctx context.Context) (string, error) {
			return p.changeValkey(ctx, http.MethodDelete, id, nil, nil)
		},
		blockers: func(context.Context, string) (string, error) { return "", nil },
	}.resource(p, r)
}

// valkeyWant is the instance as the create says it: one shard, which every client
// can use, reached by endpoints in the job's network alone.
func (p *Provider) valkeyWant(r *pipeline.Run, spec job.DatastoreSpec) *valkeyInstance {
	infra := &r.Job.Config.InfraConfig
	d := infra.Datastore
	day, hour := window(spec.MaintenanceWindow)
	w := valkeyWindow{Day: weekday(day)}
	w.Start.Hours = hour
	x := &valkeyInstance{
		Labels: labelsFor(r.Job, datastoreKey), Mode: "CLUSTER_DISABLED", ShardCount: 1, ReplicaCount: spec.ReplicaCount(), NodeType: d.Class,
		EngineVersion: databaseVersion(job.Valkey, d.Version), AuthorizationMode: "AUTH_DISABLED", TransitEncryptionMode: "SERVER_AUTHENTICATION",
		DeletionProtection: spec.Protected(), Persistence: &valkeyPersistence{Mode: "RDB", RDB: &valkeyRDB{Period: "TWENTY_FOUR_HOURS"}},
		Zones: &valkeyZones{Mode: "MULTI_ZONE"}, Maintenance: &valkeyMaintenance{Windows: []valkeyWindow{w}},
		Endpoints: []valkeyEndpoint{{Connections: []valkeyConnection{{Auto: &valkeyPSC{Network: rel(infra.NetworkID), ProjectID: p.project}}}}},
	}
	if spec.ReplicaCount() == 0 && len(infra.Zones) > 0 {
		x.Zones = &valkeyZones{Mode: "SINGLE_ZONE", Zone: infra.Zones[0]}
	}
	return x
}

// finishValkey records what the instance is.
func (p *Provider) finishValkey(ctx context.Context, r *pipeline.Run, _ job.DatastoreSpec) error {
	if r.Mode != pipeline.Apply {
		return nil
	}
	id := p.cacheID(r)
	x, err := p.readValkey(ctx, id)
	if err != nil {
		return err
	}
	d := &r.Job.Config.InfraConfig.Datastore
	learnValkey(d, x)
	if d.CACert, err = p.valkeyCA(ctx, id); pipeline.Unless(err, pipeline.Denied, pipeline.Invalid, pipeline.NotFound) != nil {
		return err
	}
	r.Note("Memorystore for Valkey is deleted without a final backup: what is in it is gone with it")
	return r.Save(ctx)
}

// learnValkey records what an instance is.
func learnValkey(d *job.DatastoreInfo, x *valkeyInstance) {
	d.Engine, d.Version = job.Valkey, strings.ReplaceAll(strings.TrimPrefix(x.EngineVersion, "VALKEY_"), "_", ".")
	d.Name, d.ID, d.Class = base(x.Name), rel(x.Name), x.NodeType
	d.Host, d.ReaderHost = "", ""
	for _, e := range x.Endpoints {
		for _, c := range e.Connections {
			switch {
			case c.Auto == nil:
			case strings.HasSuffix(c.Auto.Type, "READER"):
				d.ReaderHost = c.Auto.IPAddress
			case d.Host == "":
				d.Host, d.Port = c.Auto.IPAddress, c.Auto.Port
			}
		}
	}
	if d.Port == 0 {
		d.Port = job.Valkey.Port()
	}
	d.MemoryGiB = valkeyMemory(x.NodeType)
	if x.NodeConfig != nil && x.NodeConfig.SizeGB > 0 {
		d.MemoryGiB = x.NodeConfig.SizeGB
	}
	d.MemoryGiB *= float64(max(x.ShardCount, 1))
	d.Replicas, d.HighAvailability = x.ReplicaCount, x.ReplicaCount > 0
	d.Encrypted, d.TLSRequired = true, x.TransitEncryptionMode == "SERVER_AUTHENTICATION"
	d.DeletionProtection, d.FinalSnapshot = x.DeletionProtection, ""
}

// guardValkey lifts the protection that this job has set; somebody else's is named.
func (p *Provider) guardValkey(ctx context.Context, r *pipeline.Run, spec job.DatastoreSpec) error {
	id := p.cacheID(r)
	if err := p.pending(ctx, r, id+"#protection"); err != nil {
		return inTurn(r, id, err)
	}
	x, err := p.readValkey(ctx, id)
	if err != nil {
		return pipeline.Unless(err, pipeline.NotFound)
	}
	if owner, _ := labelMark(x.Labels); owner != r.Job.ID || x.State == "DELETING" || !x.DeletionProtection {
		return nil
	}
	if !spec.Protected() {
		return protected("Memorystore instance "+base(id), "run gcloud memorystore instances update "+base(id)+" --location="+p.region+" --no-deletion-protection-enabled")
	}
	if x.State == "CREATING" {
		return pipeline.Wait(15*time.Second, "instance %s to come up, so that it can be deleted", base(id))
	}
	op, err := p.changeValkey(ctx, http.MethodPatch, id, url.Values{"updateMask": {"deletionProtectionEnabled"}}, map[string]bool{"deletionProtectionEnabled": false})
	if err != nil {
		return inTurn(r, id, err)
	}
	awaitManaged(r, id+"#protection", serviceMemorystore, op, "patch")
	if err := r.Event(ctx, "protection.lifted", "the deletion protection of Memorystore instance %s, which this job had set, is lifted", base(id)); err != nil {
		return err
	}
	return pipeline.Wait(2*time.Second, "the deletion protection of %s to be lifted", base(id))
}

// valkeyNodes are the node types with the memory of each that can be written, the
// smallest first; the service has no list of them ("Instance and node
// specification"). The nano shares its core and has no service level.
var valkeyNodes = []struct {
	name   string
	memory float64
}{{"SHARED_CORE_NANO", 1.12}, {"STANDARD_SMALL", 5.2}, {"HIGHMEM_MEDIUM", 10.4}, {"HIGHMEM_XLARGE", 46.4}}

func valkeyMemory(node string) float64 {
	for _, n := range valkeyNodes {
		if n.name == node {
			return n.memory
		}
	}
	return 0
}

// valkeyVersions are the versions of Memorystore for Valkey, the oldest first; the
// service has no list of them ("Supported versions").
var valkeyVersions = []string{"7.2", "8.0", "9.0"}

// valkeyVersion settles the version, and asks whether the region has the service.
func (k *datastoreChecker) valkeyVersion(ctx context.Context) error {
	const check, field = "engine version", "config.spec.version"
	if k.settled() {
		k.ok(check, "Valkey %s", k.info.Version)
		return nil
	}
	want := pickVersion(valkeyVersions, or(k.spec.Version, valkeyVersions[len(valkeyVersions)-1]))
	if !slices.Contains(valkeyVersions, want) {
		k.fails(check, field, fmt.Sprintf("Memorystore does not offer Valkey %s; it has %s", want, nearest(valkeyVersions, want)), "Use one of these, or leave it out.")
		return nil
	}
	k.info.Version = want
	err := k.p.data.memorystore.do(ctx, http.MethodGet, k.p.clusterParent(), nil, nil, nil)
	switch {
	case pipeline.Is(err, pipeline.NotFound):
		k.fails(check, "region", fmt.Sprintf("Memorystore for Valkey is not offered in %s", k.p.region), "Use another region.")
		return nil
	case err != nil:
		return k.unchecked(ctx, check, field, err)
	}
	k.ok(check, "Valkey %s", want)
	return nil
}

// valkeySize settles the node type.
func (k *datastoreChecker) valkeySize() {
	const check = "class"
	if k.settled() {
		k.ok(check, "%s", k.info.Class)
		return
	}
	want := k.spec.InstanceType
	for _, n := range valkeyNodes {
		if want == "" && n.memory >= float64(k.spec.Size.MemoryGiB) {
			want = n.name
		}
	}
	if valkeyMemory(want) == 0 {
		var names []string
		for _, n := range valkeyNodes {
			names = append(names, n.name+" ("+strconv.FormatFloat(n.memory, 'g', -1, 64)+" GiB)")
		}
		k.fails(check, "config.spec.size", "no node type of Memorystore for Valkey has that in one shard; there are "+strings.Join(names, ", "), "Ask for one of these.")
		return
	}
	k.info.Class, k.info.MemoryGiB, k.info.Replicas = want, valkeyMemory(want), k.spec.ReplicaCount()
	k.ok(check, "%s, %g GiB that can be written, replicas: %d", want, k.info.MemoryGiB, k.info.Replicas)
}
