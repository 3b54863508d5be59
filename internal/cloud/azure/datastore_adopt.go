package azure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/redis/armredis/v3"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// A found is a datastore or cache that an adopt job points at, with what can be
// said of it.
type found struct {
	id, location string
	info         job.DatastoreInfo
	notes        []string
}

// AdoptDatastore reads the datastore or cache that an adopt job points at, and notes
// what does not meet the defaults. It only reads.
func (p *Provider) AdoptDatastore(ctx context.Context, r *pipeline.Run) error {
	ctx = view(ctx, r)
	x, err := p.adoptedStore(ctx, r)
	if err != nil {
		return err
	}
	ic := &r.Job.Config.InfraConfig
	ic.ResourceGroup = segment(x.id, "resourceGroups")
	recommended := ic.Datastore.Recommendations
	ic.Datastore = x.info
	ic.Datastore.RiskNotes, ic.Datastore.Recommendations = x.notes, recommended
	return nil
}

// adoptedStoreName names what an adopt job points at.
func (c *checker) adoptedStoreName(ctx context.Context) (string, error) {
	x, err := c.adoptedStore(ctx, c.r)
	return fmt.Sprintf("%s in %s", lastName(x.id), segment(x.id, "resourceGroups")), err
}

// adoptedStore finds what an adopt job names: by its ID, or among all of the
// subscription's by its name or its address.
func (p *Provider) adoptedStore(ctx context.Context, r *pipeline.Run) (found, error) {
	spec, err := r.Job.DatastoreSpec()
	if err != nil {
		return found{}, err
	}
	field := "config.spec.adopt"
	if spec.Adopt == nil {
		return found{}, pipeline.Fatal("nothing-to-adopt", "the request does not say what to adopt", "Name a datastore in adopt, then retry.").On(field)
	}
	called := cmp.Or(spec.Adopt.Name, spec.Adopt.Endpoint)
	var id string
	if len(spec.Adopt.IDs) > 0 {
		id, called = spec.Adopt.IDs[0], spec.Adopt.IDs[0]
	} else if id, err = p.storeCalled(ctx, r.Job.ResourceType, spec); err != nil {
		return found{}, notAdopted(err, called, field)
	}
	x, err := p.readStore(ctx, id)
	if err != nil {
		return found{}, notAdopted(err, called, field)
	}
	engine := x.info.Engine
	switch {
	case spec.Engine != "" && spec.Engine != engine && r.Job.ResourceType == job.Datastore:
		return found{}, pipeline.Fatal("other-engine", fmt.Sprintf("%s runs %s, and the request says %s", called, engine.Title(), spec.Engine.Title()), "Leave engine out, or name another datastore.").On("config.spec.engine")
	case engine.Cache() != (r.Job.ResourceType == job.Cache):
		return found{}, pipeline.Fatal("other-engine", fmt.Sprintf("%s runs %s, which is no %s", called, engine.Title(), r.Job.ResourceType), "Use the resource type that it is of.").On("resourceType")
	case regionName(x.location) != regionName(p.region):
		return found{}, pipeline.Fatal("other-region", fmt.Sprintf("%s is in %s, and the job in %s", called, x.location, p.region), "Use its region.").On("region")
	}
	return x, nil
}

func notAdopted(err error, called, field string) error {
	var fatal *pipeline.FatalError
	switch {
	case errors.As(err, &fatal) && fatal.Problem.Field == "":
		return fatal.On(field)
	case pipeline.Is(err, pipeline.NotFound):
		return pipeline.Fatal("not-found", fmt.Sprintf("there is no %s that these credentials can see: %v", called, err), "Name one that exists, by its resource ID, name or host name, then retry.").On(field).From(err)
	}
	return err
}

// A storeEntry is as much of a datastore as telling which one is meant takes.
type storeEntry struct {
	meta
	Address struct {
		Server string `json:"fullyQualifiedDomainName"`
		Cache  string `json:"hostName"`
	}
}

// UnmarshalJSON reads the addresses, which each product calls by a word of its own.
func (s *storeEntry) UnmarshalJSON(b []byte) error {
	var x resource[struct {
		Properties struct {
			Server string `json:"fullyQualifiedDomainName"`
			Cache  string `json:"hostName"`
		} `json:"properties"`
	}]
	err := x.UnmarshalJSON(b)
	s.meta, s.Address.Server, s.Address.Cache = x.meta, x.is.Properties.Server, x.is.Properties.Cache
	return err
}

// storeCalled finds a datastore by its name or its address, on every page of every
// product's list.
func (p *Provider) storeCalled(ctx context.Context, t job.ResourceType, spec job.DatastoreSpec) (string, error) {
	types := []string{typePostgres, typeMySQL}
	switch {
	case t == job.Cache:
		types = []string{typeCache, typeOldCache}
	case spec.Engine != "":
		// The other engine is looked through too: a mistaken engine is told by name.
		types = []string{flavourOf(spec.Engine).typ, typePostgres, typeMySQL}
	}
	host, port := hostPort(spec.Adopt.Endpoint, 0)
	var ids []string
	looked := map[string]bool{}
	for _, typ := range types {
		if looked[typ] {
			continue
		}
		looked[typ] = true
		all, err := list[storeEntry](ctx, p, managementPrefix+p.subscription+"/providers/"+typ)
		if err := pipeline.Unless(err, pipeline.Invalid, pipeline.NotFound); err != nil {
			return "", err
		}
		for _, x := range all {
			at, on := hostPort(cmp.Or(x.Address.Server, x.Address.Cache), 0)
			byAddress := host != "" && same(strings.TrimSuffix(host, "."), at) && (port == 0 || on == 0 || port == on)
			if byAddress || spec.Adopt.Name != "" && same(x.Name, spec.Adopt.Name) && regionName(x.Location) == regionName(p.region) {
				ids = append(ids, x.ID)
			}
		}
	}
	called := cmp.Or(spec.Adopt.Name, spec.Adopt.Endpoint)
	switch len(ids) {
	case 0:
		return "", absent(resourcesProvider, "resources/read", called+" in subscription "+p.subscription)
	case 1:
		return ids[0], nil
	}
	return "", pipeline.Fatal("ambiguous", fmt.Sprintf("%s fits %d: %s", called, len(ids), strings.Join(ids, ", ")), "Name one by its resource ID, then retry.")
}

// readStore reads one of any product.
func (p *Provider) readStore(ctx context.Context, id string) (found, error) {
	isOf := func(typ string) bool {
		return strings.Contains(strings.ToLower(id), "/providers/"+strings.ToLower(typ)+"/")
	}
	switch {
	case isOf(typePostgres):
		return p.readServer(ctx, flexPostgres, id)
	case isOf(typeMySQL):
		return p.readServer(ctx, flexMySQL, id)
	case isOf(typeCache):
		return p.readManagedRedis(ctx, id)
	case isOf(typeOldCache):
		return p.readOldCache(ctx, id)
	}
	return found{}, pipeline.Fatal("unknown-kind", id+" is no flexible server and no cache", "Name one of "+strings.Join([]string{typePostgres, typeMySQL, typeCache, typeOldCache}, ", ")+".")
}

func (p *Provider) readServer(ctx context.Context, f flavour, id string) (found, error) {
	x, err := read[flexible](ctx, p, id)
	if err != nil {
		return found{}, err
	}
	out := found{id: x.ID, location: x.Location, info: serverInfo(f, x)}
	info := &out.info
	if o, err := p.offers(ctx, f); err == nil {
		if c, ok := o.class(info.Class); ok {
			info.VCPUs, info.MemoryGiB = c.vcpus, c.memoryGiB
		}
	} else if stops(ctx, err) {
		return out, err
	} else {
		out.notes = append(out.notes, "what its class has was not checked: "+err.Error())
	}
	settings, err := p.settings(ctx, id)
	if stopped := pipeline.Unless(err, pipeline.Denied, pipeline.NotFound, pipeline.Invalid); stopped != nil {
		return out, stopped
	}
	if len(settings) > 0 {
		info.TLSRequired = strings.EqualFold(settings["require_secure_transport"].Properties.Value, "on")
		if !info.TLSRequired {
			out.notes = append(out.notes, "TLS is not required (require_secure_transport)")
		}
	}
	out.notes = append(out.notes, p.networkNotes(ctx, id, info)...)
	if info.BackupRetentionDays < 7 {
		out.notes = append(out.notes, fmt.Sprintf("backups are kept for %d days", info.BackupRetentionDays))
	}
	if !info.HighAvailability {
		out.notes = append(out.notes, "there is no standby")
	}
	if in, until := supported(f.engine, info.Version, p.today()); !in {
		out.notes = append(out.notes, fmt.Sprintf("%s %s is out of standard support%s", f.engine.Title(), info.Version, since(until)))
	}
	if state := x.is.Properties.State; state != "Ready" {
		out.notes = append(out.notes, "the server is "+state)
	}
	return out, p.lockNote(ctx, &out)
}

func since(until string) string {
	if until == "" {
		return ""
	}
	return " since " + until
}

// A firewallRule lets a range of the internet in.
type firewallRule struct {
	Name       string `json:"name"`
	Properties struct {
		From string `json:"startIpAddress"`
		To   string `json:"endIpAddress"`
	} `json:"properties"`
}

// networkNotes say who gets to a server.
func (p *Provider) networkNotes(ctx context.Context, id string, info *job.DatastoreInfo) []string {
	if !info.Public {
		return nil
	}
	notes := []string{"it can be reached from the internet (publicNetworkAccess)"}
	rules, err := list[firewallRule](ctx, p, id+"/firewallRules")
	if err != nil {
		return append(notes, "its firewall rules could not be read: "+err.Error())
	}
	for _, x := range rules {
		switch f := x.Properties; {
		case f.From == "0.0.0.0" && f.To == "0.0.0.0":
			notes = append(notes, "firewall rule "+x.Name+" lets in every tenant of Azure")
		case wide(f.From, f.To):
			notes = append(notes, fmt.Sprintf("firewall rule %s lets in the internet, %s to %s", x.Name, f.From, f.To))
		}
	}
	return notes
}

// lockNote reads whether anything keeps a datastore from being deleted.
func (p *Provider) lockNote(ctx context.Context, x *found) error {
	locked, err := p.lockedAgainstDeletion(ctx, x.id)
	if err != nil {
		x.notes = append(x.notes, "locks were not checked: "+err.Error())
		return pipeline.Unless(err, pipeline.Denied, pipeline.NotFound, pipeline.Invalid)
	}
	x.info.DeletionProtection = locked
	if !locked {
		x.notes = append(x.notes, "no lock keeps it from being deleted")
	}
	return nil
}

// lockedAgainstDeletion reports whether a lock on a resource, or on what holds it,
// refuses its deletion.
func (p *Provider) lockedAgainstDeletion(ctx context.Context, id string) (bool, error) {
	all, err := p.locks(ctx)
	if err != nil {
		return false, err
	}
	for _, l := range all {
		scope := beforeFold(l.ID, locksPath)
		if same(scope, id) || len(id) > len(scope) && same(id[:len(scope)], scope) && id[len(scope)] == '/' {
			return true, nil
		}
	}
	return false, nil
}

func (p *Provider) readManagedRedis(ctx context.Context, id string) (found, error) {
	x, err := read[managedRedis](ctx, p, id)
	if err != nil {
		return found{}, err
	}
	db, err := read[redisDatabase](ctx, p, databaseOf(id))
	if err := pipeline.Unless(err, pipeline.NotFound); err != nil {
		return found{}, err
	}
	out := found{id: x.ID, location: x.Location, info: cacheInfo(x, db)}
	d := db.is.Properties
	for _, n := range []struct {
		bad  bool
		note string
	}{
		{db.ID == "", "it has no database"},
		{out.info.Public, "it can be reached from the internet (publicNetworkAccess)"},
		{db.ID != "" && !out.info.TLSRequired, "TLS is not required (clientProtocol)"},
		{x.is.Properties.MinimumTLS != "1.2" && x.is.Properties.MinimumTLS != "1.3", "it takes TLS older than 1.2"},
		{d.AccessKeys == "Enabled", "access keys are on"},
		{!out.info.HighAvailability, "there is no replica"},
		{strings.HasPrefix(x.is.SKU.Name, "Enterprise"), "its SKU is one of the Enterprise tiers, which are off on 2027-03-31"},
	} {
		if n.bad {
			out.notes = append(out.notes, n.note)
		}
	}
	return out, p.lockNote(ctx, &out)
}

// readOldCache reads Azure Cache for Redis, the product before Managed Redis.
func (p *Provider) readOldCache(ctx context.Context, id string) (found, error) {
	x, err := read[armredis.ResourceInfo](ctx, p, id)
	if err != nil {
		return found{}, err
	}
	f := value(x.is.Properties)
	sku := value(f.SKU)
	out := found{id: x.ID, location: x.Location, info: job.DatastoreInfo{
		Engine: job.Redis, Name: x.Name, ID: x.ID, Version: value(f.RedisVersion), Class: fmt.Sprintf("%s %s%d", value(sku.Name), value(sku.Family), value(sku.Capacity)),
		Zones: x.Zones, Public: value(f.PublicNetworkAccess) != armredis.PublicNetworkAccessDisabled && value(f.SubnetID) == "", Encrypted: true,
		TLSRequired: !value(f.EnableNonSSLPort), Host: value(f.HostName), Port: int(value(f.SSLPort)), SubnetGroup: value(f.SubnetID),
		MemoryGiB: oldMemory(sku), HighAvailability: value(sku.Name) != armredis.SKUNameBasic,
	}}
	if out.info.HighAvailability {
		out.info.Replicas = max(int(value(f.ReplicasPerPrimary)), 1)
	}
	out.notes = []string{"Azure Cache for Redis is off on 2028-09-30: move to Managed Redis"}
	for _, n := range []struct {
		bad  bool
		note string
	}{
		{out.info.Public, "it can be reached from the internet (publicNetworkAccess)"},
		{!out.info.TLSRequired, "the port without TLS is open (enableNonSslPort)"},
		{value(f.MinimumTLSVersion) != armredis.TLSVersionOne2, "it takes TLS older than 1.2"},
		{!value(f.DisableAccessKeyAuthentication), "access keys are on"},
		{!out.info.HighAvailability, "there is no replica"},
	} {
		if n.bad {
			out.notes = append(out.notes, n.note)
		}
	}
	rules, ruleErr := list[firewallRuleOfCache](ctx, p, id+"/firewallRules")
	if err := pipeline.Unless(ruleErr, pipeline.Denied, pipeline.NotFound, pipeline.Invalid); err != nil {
		return out, err
	} else if pipeline.Is(ruleErr, pipeline.Denied) {
		out.notes = append(out.notes, "firewall rules were not checked: "+ruleErr.Error())
	}
	for _, w := range rules {
		if wide(w.Properties.From, w.Properties.To) {
			out.notes = append(out.notes, fmt.Sprintf("firewall rule %s lets in the internet, %s to %s", lastName(w.Name), w.Properties.From, w.Properties.To))
		}
	}
	return out, p.lockNote(ctx, &out)
}

// A firewallRuleOfCache is one of Azure Cache for Redis.
type firewallRuleOfCache struct {
	Name       string `json:"name"`
	Properties struct {
		From string `json:"startIP"`
		To   string `json:"endIP"`
	} `json:"properties"`
}

// oldMemory is the memory of an Azure Cache for Redis ("Azure Cache for Redis
// pricing": C0 to C6 and P1 to P5), in GiB.
func oldMemory(sku armredis.SKU) float64 {
	n := int(value(sku.Capacity))
	sizes := []float64{0.25, 1, 2.5, 6, 13, 26, 53}
	if value(sku.Family) == armredis.SKUFamilyP {
		sizes = []float64{0, 6, 13, 26, 53, 120}
	}
	if n < 0 || n >= len(sizes) {
		return 0
	}
	return sizes[n]
}
