package aws

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
)

// checksOf is what the check of a job says, by its status.
func (g dataRig) checksOf(status cloud.CheckStatus) []cloud.Check {
	g.Helper()
	all, err := g.p.Check(g.Context(), g.run(pipeline.Apply))
	if err != nil {
		g.Fatalf("check: %v", err)
	}
	return slices.DeleteFunc(all, func(c cloud.Check) bool { return c.Status != status })
}

// What no region offers, or what cannot stand where it is wanted, is refused before
// anything is made, with what could be had instead.
func TestDatastoreChecks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ spec, field, says, fix string }{
		"a minor version that is gone":       {`{"engine":"postgres","version":"17.1"}`, "config.spec.version", "17.1 is not offered", "17."},
		"a major version nobody has":         {`{"engine":"postgres","version":"42"}`, "config.spec.version", "42 is not offered", "18."},
		"a version in extended support":      {`{"engine":"mysql","version":"8.0"}`, "config.spec.version", "standard support of MySQL 8.0", "8.4"},
		"a class nobody has":                 {`{"engine":"postgres","instanceType":"db.x99.huge"}`, "config.spec.instanceType", "does not offer db.x99.huge", "instanceType"},
		"a size nobody has":                  {`{"engine":"postgres","size":{"vcpus":128,"memoryGiB":4000}}`, "config.spec.size", "128 vCPUs", "another size"},
		"a group of another network":         {`{"engine":"postgres","access":[{"securityGroupId":"sg-0123456789abcdef0"}]}`, "config.spec.access[0].securityGroupId", "sg-0123456789abcdef0", ""},
		"a network that is too small for it": {`{"engine":"postgres","network":{"cidr":"10.0.0.0/24","zones":3}}`, "config.spec.network.cidr", "too small", "/22"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newData(t, sim.Options{}, job.ModeCreate, c.spec)
			since := g.mark()
			bad := g.checksOf(cloud.CheckFails)
			if _, changes := g.calls(since); len(changes) > 0 {
				t.Errorf("a check changed %v", changes)
			}
			if !slices.ContainsFunc(bad, func(x cloud.Check) bool {
				return x.Field == c.field && strings.Contains(x.Message, c.says) && strings.Contains(x.Fix, c.fix)
			}) {
				t.Errorf("the checks that fail are %+v", bad)
			}
		})
	}
}

// A version is what is asked for or a minor one of it, and the newest in standard
// support without a word.
func TestDatastoreVersions(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]string{
		`{"engine":"postgres"}`:                `18.`,
		`{"engine":"postgres","version":"16"}`: `16.`,
		`{"engine":"mysql"}`:                   `8.4.`,
		`{"engine":"mysql","version":"8"}`:     `8.4.`,
	} {
		g := newData(t, sim.Options{}, job.ModeCreate, spec)
		if bad := g.checksOf(cloud.CheckFails); len(bad) > 0 {
			t.Errorf("%s: %+v", spec, bad)
		}
		if got := g.data().Version; !strings.HasPrefix(got, want) {
			t.Errorf("%s resolves to %q", spec, got)
		}
	}
}

// A read that is denied makes a check that was not made, and the job goes on.
func TestDatastoreChecksDenied(t *testing.T) {
	t.Parallel()
	g := newData(t, sim.Options{}, job.ModeCreate, `{"engine":"postgres","version":"17.6","instanceType":"db.t4g.medium"}`)
	for _, op := range []string{"DescribeDBEngineVersions", "DescribeOrderableDBInstanceOptions", "DescribeAccountAttributes"} {
		g.fault(sim.Fault{Kind: sim.FaultError, Service: "rds", Operation: op, Code: "AccessDenied", Status: 403, Count: 1000})
	}
	if bad := g.checksOf(cloud.CheckFails); len(bad) > 0 {
		t.Errorf("%+v", bad)
	}
	if dark := g.checksOf(cloud.CheckUnchecked); len(dark) < 3 {
		t.Errorf("not checked: %+v", dark)
	}
	if d := g.data(); d.Version != "17.6" || d.Class != "db.t4g.medium" {
		t.Errorf("%+v", d)
	}
}

// Protection that this job did not set, and replicas of others, stop a teardown before
// its first deletion; protection that it did set is lifted in so many words.
func TestDatastoreBlockers(t *testing.T) {
	t.Parallel()
	g := newData(t, sim.Options{}, job.ModeCreate, `{"engine":"postgres","deletionProtection":false,"waive":[{"control":"RDS-07","reason":"a test"}]}`)
	g.create()
	undo := g.tamper(g.id(kindDBInstance, datastoreKey), to("DeletionProtection", true))
	g.another()
	since := g.mark()
	err := g.try(true, g.dataGone()...)
	if _, changes := g.calls(since); fatalCode(err) != "blocked" || !strings.Contains(err.Error(), "did not protect it") || len(changes) > 0 {
		t.Errorf("the verdict is %v, after %v", err, changes)
	}
	undo()
	g.place("rds", "CreateDBInstanceReadReplica", map[string]any{"DBInstanceIdentifier": "reports", "SourceDBInstanceIdentifier": g.data().Name})
	g.world.Step(20 * time.Minute)
	since = g.mark()
	g.another()
	err = g.try(true, g.dataGone()...)
	if _, changes := g.calls(since); fatalCode(err) != "blocked" || !strings.Contains(err.Error(), "reports") || len(changes) > 0 {
		t.Errorf("the verdict is %v, after %v", err, changes)
	}
	g.place("rds", "DeleteDBInstance", map[string]any{"DBInstanceIdentifier": "reports", "SkipFinalSnapshot": true})
	g.world.Step(20 * time.Minute)
	g.teardown()
	g.onlySnapshot()
}

// An instance that comes up failed is kept with its reason until a person has read it;
// a retry replaces it, and of one that never worked there is no snapshot.
func TestDatastoreThatFails(t *testing.T) {
	t.Parallel()
	g := newData(t, sim.Options{}, job.ModeCreate, postgresSpec)
	g.all(false, g.dataSteps()[:4]...)
	failed := false
	for range 400 {
		err := g.p.EnsureDatastore(anything(g.Context()), g.run(pipeline.Apply))
		d := pipeline.Judge(err, 0)
		if d.Action == pipeline.Stop {
			if fatalCode(err) != "object-failed" || !strings.Contains(err.Error(), "incompatible-network") {
				t.Fatalf("the verdict is %v", err)
			}
			failed = true
			break
		}
		if d.Action == pipeline.Advance {
			break
		}
		if id := madeID(g.run(pipeline.Apply), kindDBInstance, datastoreKey); id != "" && !failed {
			if _, err := g.world.SetObjectState(id, "incompatible-network", "", ""); err != nil {
				t.Fatal(err)
			}
		}
		g.world.Step(d.After)
	}
	if !failed {
		t.Fatal("it did not fail")
	}
	g.teardown()
	if len(g.kept()) > 0 {
		t.Errorf("kept %v", g.kept())
	}
	g.onlyKept()
}

// An instance that has worked and fails later is never replaced: there is data in it.
func TestDatastoreWithDataIsKept(t *testing.T) {
	t.Parallel()
	g := newData(t, sim.Options{}, job.ModeCreate, `{"engine":"postgres","skipFinalSnapshot":true}`)
	g.create()
	id := g.id(kindDBInstance, datastoreKey)
	if _, err := g.world.SetObjectState(id, "incompatible-parameters", "", ""); err != nil {
		t.Fatal(err)
	}
	g.world.Step(2 * time.Hour)
	since := g.mark()
	for range 3 { // a retry after a retry
		g.another()
		if err := g.try(false, g.dataSteps()...); fatalCode(err) != "timed-out" || !strings.Contains(err.Error(), "incompatible-parameters") {
			t.Fatalf("the verdict is %v", err)
		}
	}
	if _, changes := g.calls(since); sum(changes) > 0 {
		t.Errorf("it changed %v", changes)
	}
}

// A name that the cloud holds, though nothing of it is there, is given up for another
// one three times; then the job says so. A visible namesake is somebody else's.
func TestDatastoreNames(t *testing.T) {
	t.Parallel()
	g := newData(t, sim.Options{}, job.ModeCreate, postgresSpec)
	g.fault(sim.Fault{Kind: sim.FaultError, Service: "rds", Operation: "CreateDBInstance", Code: "DBInstanceAlreadyExists", Status: 400, Count: 2})
	g.create()
	if d := g.data(); d.NameTries != 2 || !strings.HasSuffix(d.Name, "-2") {
		t.Errorf("the datastore is %+v", d)
	}
	g.teardown()
	g.onlySnapshot()

	g = newData(t, sim.Options{}, job.ModeCreate, postgresSpec)
	g.fault(sim.Fault{Kind: sim.FaultError, Service: "rds", Operation: "CreateDBInstance", Code: "DBInstanceAlreadyExists", Status: 400, Count: 1000})
	if err := g.try(false, g.dataSteps()...); fatalCode(err) != "name-held" {
		t.Errorf("the verdict is %v", err)
	}
	g.world.ClearFaults("")
	g.teardown()
	g.onlyKept()

	g = newData(t, sim.Options{}, job.ModeCreate, postgresSpec)
	g.place("rds", "CreateDBInstance", map[string]any{"DBInstanceIdentifier": datastoreName(g.job, 0), "Engine": "postgres", "DBInstanceClass": "db.t4g.medium",
		"AllocatedStorage": 20, "MasterUsername": "keeper", "MasterUserPassword": "a-long-password"})
	g.world.Step(20 * time.Minute)
	if err := g.try(false, g.dataSteps()...); fatalCode(err) != "name-taken" {
		t.Errorf("the verdict is %v", err)
	}
	since := g.mark()
	g.teardown()
	if _, changes := g.calls(since); changes["DeleteDBInstance"] > 0 || changes["ModifyDBInstance"] > 0 {
		t.Errorf("the namesake was touched: %v", changes)
	}
}

// Quotas, capacity and busy answers are taken for what they are.
func TestDatastoreRefusals(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]string{"InstanceQuotaExceeded": "quota-exceeded", "StorageTypeNotSupported": "refused-by-cloud", "DBSubnetGroupDoesNotCoverEnoughAZs": "refused-by-cloud"} {
		g := newData(t, sim.Options{}, job.ModeCreate, postgresSpec)
		g.fault(sim.Fault{Kind: sim.FaultError, Service: "rds", Operation: "CreateDBInstance", Code: code, Message: "no", Status: 400, Count: 1000})
		err := g.try(false, g.dataSteps()...)
		if d := pipeline.Judge(err, 0); d.Action != pipeline.Stop || d.Problem.Code != want {
			t.Errorf("%s: %+v (%v)", code, d, err)
		}
		g.world.ClearFaults("")
		g.teardown()
		g.onlyKept()
	}
	g := newData(t, sim.Options{}, job.ModeCreate, postgresSpec)
	g.fault(sim.Fault{Kind: sim.FaultError, Service: "rds", Operation: "CreateDBInstance", Code: "InsufficientDBInstanceCapacity", Status: 400, Count: 3})
	g.fault(sim.Fault{Kind: sim.FaultError, Service: "rds", Operation: "DeleteDBInstance", Code: "InvalidDBInstanceState", Status: 400, Count: 3})
	g.create()
	g.teardown()
	g.hit()
	g.onlySnapshot()
}

// made does something at the cloud as somebody else, and returns the first ID with a
// prefix in the answer.
func (g dataRig) made(service, op string, params map[string]any, prefix string) string {
	g.Helper()
	out, err := g.world.Invoke("aws", service, op, ownAccount, "us-east-1", params)
	if err != nil {
		g.Fatalf("%s: %v", op, err)
	}
	text, err := json.Marshal(out)
	if err != nil {
		g.Fatal(err)
	}
	return regexp.MustCompile(prefix + "[0-9a-f]{8,17}").FindString(string(text))
}

// existingNet makes a network of somebody's, with private subnets in the zones.
func (g dataRig) existingNet(zones ...string) (vpc string, subnets []string) {
	g.Helper()
	vpc = g.made("ec2", "CreateVpc", map[string]any{"CidrBlock": "10.9.0.0/16"}, "vpc-")
	for i, z := range zones {
		subnets = append(subnets, g.made("ec2", "CreateSubnet", map[string]any{"VpcId": vpc, "CidrBlock": fmt.Sprintf("10.9.%d.0/24", i), "AvailabilityZone": z}, "subnet-"))
	}
	g.world.Step(time.Minute)
	return vpc, subnets
}

// In a network of others a datastore stands in the subnets that are named, in two zones
// or more, and nothing of that network is changed.
func TestDatastoreInExistingNetwork(t *testing.T) {
	t.Parallel()
	g := newData(t, sim.Options{}, job.ModeCreateInExisting, `{"engine":"postgres","existing":{"networkId":"vpc-0","subnetIds":["subnet-0"]}}`)
	vpc, subnets := g.existingNet("us-east-1a", "us-east-1b", "us-east-1a")
	name := func(ids ...string) {
		g.job.Config.Spec = json.RawMessage(fmt.Sprintf(`{"engine":"postgres","access":[{"cidr":"10.9.0.0/16","description":"the network"}],"existing":{"networkId":%q,"subnetIds":["%s"]}}`, vpc, strings.Join(ids, `","`)))
	}
	name(subnets[0], subnets[2])
	if bad := g.checksOf(cloud.CheckFails); len(bad) != 1 || bad[0].Field != "config.spec.existing.subnetIds" || !strings.Contains(bad[0].Message, "two zones") {
		t.Errorf("one zone: %+v", bad)
	}
	name(subnets[:2]...)
	before := g.world.Snapshot()
	g.create()
	for _, bad := range notMet(g.report()) {
		t.Error(bad)
	}
	if d := g.data(); d.Host == "" || g.infra().NetworkID != vpc {
		t.Errorf("%+v", d)
	}
	g.teardown()
	g.onlySnapshot()
	if _, err := g.world.RemoveObject(g.kept()[kindDBSnapshot].ID); err != nil {
		t.Fatal(err)
	}
	g.equal(before)
}

// A check that is throttled is asked again: nothing is made of a guess at the version
// (failure kind H1).
func TestDatastoreChecksAreAskedAgain(t *testing.T) {
	t.Parallel()
	for _, op := range []string{"DescribeDBEngineVersions", "DescribeOrderableDBInstanceOptions"} {
		g := newData(t, sim.Options{}, job.ModeCreate, postgresSpec)
		g.fault(sim.Fault{Kind: sim.FaultThrottle, Service: "rds", Operation: op, Count: -1})
		r := g.run(pipeline.Apply)
		if _, err := g.p.Check(anything(g.Context()), r); !pipeline.Is(err, pipeline.Throttled, pipeline.Unavailable) {
			t.Errorf("%s throttled: the verdict is %v", op, err)
		}
	}
}
