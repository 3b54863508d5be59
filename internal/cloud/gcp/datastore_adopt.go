package gcp

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/api/redis/v1"
	"google.golang.org/api/sqladmin/v1"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// adoptedStore is what an adopt job points at, as it was found.
type adoptedStore struct {
	info    job.DatastoreInfo
	owner   string // whose mark it bears
	region  string
	network string
	notes   []string
}

// adoptedKind is the kind of what was found, as drift names it.
func adoptedKind(e job.Engine) string {
	switch e {
	case job.Redis:
		return kindRedis
	case job.Valkey:
		return kindValkey
	}
	return kindSQL
}

// wanted is how an adopt job names its datastore.
func wanted(j *job.Job) (job.DatastoreSpec, string, error) {
	spec, err := j.DatastoreSpec()
	if err != nil {
		return spec, "", err
	}
	a := spec.Adopt
	switch {
	case a == nil:
	case len(a.IDs) == 1:
		return spec, a.IDs[0], nil
	case a.Name != "":
		return spec, a.Name, nil
	case a.Endpoint != "":
		return spec, a.Endpoint, nil
	}
	return spec, "", pipeline.Fatal("invalid", "the job does not say what to adopt", "Give its ID, name or endpoint in spec.adopt.").On("config.spec.adopt")
}

// named reports whether a word of a person means something with these names and
// addresses: its ID or self link, its name, its connection name, or an endpoint
// with or without its port.
func (a adoptedStore) named(word, connection string) bool {
	host := word
	if h, _, err := net.SplitHostPort(word); err == nil {
		host = h
	}
	same := []string{a.info.Name, a.info.ID, base(a.info.ID), connection}
	return slices.Contains(same, word) || strings.Contains(word, "/") && rel(word) == a.info.ID ||
		host != "" && slices.Contains([]string{a.info.Host, a.info.ReaderHost, a.info.ServerName}, host) && (host == word || strings.HasSuffix(word, ":"+strconv.Itoa(a.info.Port)))
}

// findAdopted looks for the datastore on every page of what the project has. The
// spec's engine, if it names one, says where to look; a job of the other family
// looks only among its own.
func (p *Provider) findAdopted(ctx context.Context, j *job.Job, word string) ([]adoptedStore, error) {
	var out []adoptedStore
	if j.ResourceType == job.Datastore {
		all, err := p.sqlInstances(ctx, "")
		if err != nil {
			return nil, err
		}
		for _, x := range all {
			a := p.adoptedInstance(x)
			if a.named(word, x.ConnectionName) {
				out = append(out, a)
			}
		}
		return out, nil
	}
	all, err := p.caches(ctx)
	if err != nil && !lacksCall(err) && !switchedOff(err) {
		return nil, err
	}
	for _, x := range all {
		if a := p.adoptedRedis(x); a.named(word, "") {
			out = append(out, a)
		}
	}
	more, err := p.valkeys(ctx)
	if err != nil && !lacksCall(err) && !switchedOff(err) {
		return nil, err
	}
	for _, x := range more {
		if a := p.adoptedValkey(x); a.named(word, "") {
			out = append(out, a)
		}
	}
	return out, nil
}

// AdoptDatastore reads the datastore or cache that the job points at, and notes what
// of it does not meet the defaults. Nothing of it is changed, now or later.
func (p *Provider) AdoptDatastore(ctx context.Context, r *pipeline.Run) error {
	if r.Mode == pipeline.Plan {
		return nil
	}
	ctx = view(ctx, r)
	spec, word, err := wanted(r.Job)
	if err != nil {
		return err
	}
	a, err := p.theAdopted(ctx, r.Job, spec, word)
	if f, ok := err.(*pipeline.FatalError); ok && r.Mode == pipeline.Verify && f.Problem.Code == "not-found" { //nolint:errorlint // made just now
		r.AddDrift(pipeline.Drift{Kind: adoptedKind(spec.Engine), Key: "adopted", ID: word, Attr: "exists", Wanted: "yes", Seen: "no"})
		return nil
	}
	if err != nil {
		return err
	}
	infra := &r.Job.Config.InfraConfig
	if r.Mode == pipeline.Verify {
		adoptedDrift(r, infra.Datastore, a.info)
		return nil
	}
	a.info.RiskNotes = a.notes
	a.info.Recommendations = infra.Datastore.Recommendations
	infra.Datastore, infra.Zones = a.info, a.info.Zones
	infra.NetworkID, infra.NetworkName = a.network, ""
	if a.network != "" {
		infra.NetworkName = base(a.network)
	}
	return r.Save(ctx)
}

// theAdopted is the one datastore that is meant, or why there is none to adopt.
func (p *Provider) theAdopted(ctx context.Context, j *job.Job, spec job.DatastoreSpec, word string) (adoptedStore, error) {
	const field = "config.spec.adopt"
	all, err := p.findAdopted(ctx, j, word)
	if err != nil {
		return adoptedStore{}, explained(err)
	}
	if spec.Adopt.Name != "" && len(all) > 1 { // two services may have a name each
		all = slices.DeleteFunc(all, func(a adoptedStore) bool { return a.info.Engine != spec.Engine })
	}
	switch {
	case len(all) == 0:
		return adoptedStore{}, pipeline.Fatal("not-found", fmt.Sprintf("there is no %s %s in project %s", j.ResourceType, word, p.project),
			"Name one by its ID, name or endpoint; gcloud sql instances list, gcloud redis instances list and gcloud memorystore instances list show all.").On(field)
	case len(all) > 1:
		return adoptedStore{}, pipeline.Fatal("ambiguous", fmt.Sprintf("%s means %d things: %s and %s", word, len(all), all[0].info.ID, all[1].info.ID), "Give the ID of one.").On(field)
	}
	a := all[0]
	asked := j.Config.Spec
	switch {
	case a.info.Engine == "":
		return a, pipeline.Fatal("engine-not-supported", fmt.Sprintf("%s runs %s, which is not adopted here", a.info.Name, a.info.Version), "Adopt MySQL, PostgreSQL, Redis or Valkey.").On(field)
	case spec.Engine != "" && a.info.Engine != spec.Engine && strings.Contains(string(asked), `"engine"`):
		return a, pipeline.Fatal("engine-differs", fmt.Sprintf("%s runs %s, and the job says %s", a.info.Name, a.info.Engine.Title(), spec.Engine.Title()),
			"Put engine right, or leave it out.").On("config.spec.engine")
	case a.region != p.region:
		return a, pipeline.Fatal("wrong-region", fmt.Sprintf("%s is in %s, and the job is in %s", a.info.Name, a.region, p.region), "Make the job in its region.").On("region")
	case a.owner != "" && a.owner != j.ID:
		return a, pipeline.Fatal("owned", fmt.Sprintf("%s belongs to job %s", a.info.Name, a.owner), "Use that job, or delete it first.").On(field)
	}
	return a, nil
}

// adoptedInstance is an instance of Cloud SQL with what of it is a risk.
func (p *Provider) adoptedInstance(x *sqladmin.DatabaseInstance) adoptedStore {
	a := adoptedStore{region: x.Region, network: rel(ipConfig(x).PrivateNetwork)}
	p.learnInstance(&a.info, x)
	a.owner, _ = labelMark(settings(x).UserLabels)
	if s := sqlSeen(x); s.Status != pipeline.Ready {
		a.notes = append(a.notes, "it is "+s.Reason)
	}
	want := &sqladmin.DatabaseInstance{DatabaseVersion: x.DatabaseVersion, Settings: &sqladmin.Settings{
		AvailabilityType: "REGIONAL", DeletionProtectionEnabled: true, DatabaseFlags: sqlFlags(a.info.Engine),
		IpConfiguration:     &sqladmin.IpConfiguration{PrivateNetwork: "a network", SslMode: "ENCRYPTED_ONLY"},
		BackupConfiguration: &sqladmin.BackupConfiguration{Enabled: true, PointInTimeRecoveryEnabled: true},
		FinalBackupConfig:   &sqladmin.FinalBackupConfig{Enabled: true},
	}}
	for _, s := range settingsFor(a.info.Engine) {
		wanted, seen := s.text(want), s.text(x)
		if s.id == "" || seen == wanted || s.fine != nil && s.fine(wanted, seen) {
			continue
		}
		a.notes = append(a.notes, fmt.Sprintf("%s: %s is %s, and the default is %s", s.id, s.name, seen, wanted))
	}
	if until := supportedUntil(a.info.Engine, a.info.Version); until != "" && until < time.Now().UTC().Format(time.DateOnly) {
		a.notes = append(a.notes, fmt.Sprintf("SQL-29: the standard support of %s %s ended on %s", a.info.Engine.Title(), a.info.Version, until))
	}
	return a
}

// adoptedRedis is an instance of Memorystore for Redis with what of it is a risk.
func (p *Provider) adoptedRedis(x *redis.Instance) adoptedStore {
	a := adoptedStore{region: part(x.Name, "locations"), network: rel(x.AuthorizedNetwork)}
	learnRedis(&a.info, x)
	a.owner, _ = labelMark(x.Labels)
	want := &redis.Instance{
		AuthEnabled: true, TransitEncryptionMode: "SERVER_AUTHENTICATION", ConnectMode: "PRIVATE_SERVICE_ACCESS", AuthorizedNetwork: "a network", Tier: tierStandard,
		PersistenceConfig: &redis.PersistenceConfig{PersistenceMode: "RDB"}, RedisVersion: redisVersionName(redisVersions[len(redisVersions)-1]),
	}
	for _, s := range redisSettings {
		wanted, seen := s.text(want), s.text(x)
		if s.id == "" || seen == wanted || s.id == "MS-11" && seen != "none" {
			continue
		}
		if s.id == "MS-11" {
			wanted = "a weekly one"
		}
		a.notes = append(a.notes, fmt.Sprintf("%s: %s is %s, and the default is %s", s.id, s.name, seen, wanted))
	}
	return a
}

// adoptedValkey is an instance of Memorystore for Valkey with what of it is a risk.
func (p *Provider) adoptedValkey(x *valkeyInstance) adoptedStore {
	a := adoptedStore{region: part(x.Name, "locations")}
	learnValkey(&a.info, x)
	a.owner, _ = labelMark(x.Labels)
	for _, e := range x.Endpoints {
		for _, c := range e.Connections {
			if c.Auto != nil {
				a.network = rel(c.Auto.Network)
			}
		}
	}
	note := func(fault bool, text string) {
		if fault {
			a.notes = append(a.notes, text)
		}
	}
	note(!a.info.TLSRequired, "MS-03: TLS is off")
	note(x.AuthorizationMode != "IAM_AUTH", "MS-04: IAM authentication is off: the network decides who connects")
	note(x.ReplicaCount == 0, "MS-08: there is no replica")
	note(x.Maintenance == nil, "MS-11: there is no maintenance window")
	note(!x.DeletionProtection, "MS-12: deletion protection is off")
	return a
}

// adoptedDrift tells what has changed of an adopted datastore since it was read.
func adoptedDrift(r *pipeline.Run, was, is job.DatastoreInfo) {
	for _, c := range []struct{ attr, was, is string }{
		{"version", was.Version, is.Version}, {"class", was.Class, is.Class}, {"host", was.Host, is.Host},
		{"on the internet", yesNo(was.Public), yesNo(is.Public)}, {"TLS required", yesNo(was.TLSRequired), yesNo(is.TLSRequired)},
		{"standby", yesNo(was.HighAvailability), yesNo(is.HighAvailability)}, {"deletion protection", yesNo(was.DeletionProtection), yesNo(is.DeletionProtection)},
		{"days of backups", strconv.Itoa(was.BackupRetentionDays), strconv.Itoa(is.BackupRetentionDays)},
		{"memory", fmt.Sprintf("%g GiB", was.MemoryGiB), fmt.Sprintf("%g GiB", is.MemoryGiB)},
	} {
		if c.was != c.is {
			r.AddDrift(pipeline.Drift{Kind: adoptedKind(was.Engine), Key: "adopted", ID: was.ID, Attr: c.attr, Wanted: c.was, Seen: c.is})
		}
	}
}

// adopt checks that what the job points at is there and may be adopted.
func (k *datastoreChecker) adopt(ctx context.Context) error {
	const check, field = "adopted datastore", "config.spec.adopt"
	spec, word, err := wanted(k.r.Job)
	if err != nil {
		k.fails(check, field, err.Error(), "Name it by its ID, name or endpoint.")
		return nil
	}
	a, err := k.p.theAdopted(ctx, k.r.Job, spec, word)
	if f, ok := err.(*pipeline.FatalError); ok { //nolint:errorlint // made just now
		k.fails(check, or(f.Problem.Field, field), f.Problem.Message, f.Problem.Hint)
		return nil
	}
	if err != nil {
		return k.unchecked(ctx, check, field, err)
	}
	k.ok(check, "%s, %s %s, %s", a.info.Name, a.info.Engine.Title(), a.info.Version, a.info.Class)
	return nil
}
