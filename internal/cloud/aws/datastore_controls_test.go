package aws

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/sim"
)

// admit opens a port of a security group to a range, and shut takes that back.
func (g clusterRig) admit(group, block string, port int) func() func() {
	in := map[string]any{"GroupId": group, "IpPermissions": []any{map[string]any{"IpProtocol": "tcp", "FromPort": port, "ToPort": port, "IpRanges": []any{map[string]any{"CidrIp": block, "Description": "everybody"}}}}}
	return func() func() {
		g.place("ec2", "AuthorizeSecurityGroupIngress", in)
		return func() { g.place("ec2", "RevokeSecurityGroupIngress", in) }
	}
}

// wayOut gives the datastore's subnets a route to the internet.
func (g dataRig) wayOut() func() func() {
	return func() func() {
		gateway := g.invoke("ec2", "CreateInternetGateway", map[string]any{})
		g.place("ec2", "AttachInternetGateway", map[string]any{"InternetGatewayId": gateway, "VpcId": g.infra().NetworkID})
		table := g.id(kindRouteTable, "routes-database")
		g.place("ec2", "CreateRoute", map[string]any{"RouteTableId": table, "DestinationCidrBlock": anywhere, "GatewayId": gateway})
		g.world.Step(time.Minute)
		return func() {
			g.place("ec2", "DeleteRoute", map[string]any{"RouteTableId": table, "DestinationCidrBlock": anywhere})
			g.place("ec2", "DetachInternetGateway", map[string]any{"InternetGatewayId": gateway, "VpcId": g.infra().NetworkID})
			g.place("ec2", "DeleteInternetGateway", map[string]any{"InternetGatewayId": gateway})
			g.world.Step(time.Minute)
		}
	}
}

func (g dataRig) rdsFlips(mysql bool) []flip {
	g.Helper()
	instance, params := g.id(kindDBInstance, datastoreKey), g.id(kindDBParameterGroup, parameterGroupKey)
	change := func(id string, f func(map[string]any)) func() func() {
		return func() func() { return g.tamper(id, f) }
	}
	set := func(name, value string) func() func() {
		return change(params, func(m map[string]any) { m["Values"].(map[string]any)[name] = value })
	}
	out := []flip{
		{"RDS-01", change(instance, to("PubliclyAccessible", true)), nil},
		{"RDS-02", g.wayOut(), []string{"NETA-10"}},
		{"RDS-03", g.admit(g.data().SecurityGroupID, anywhere, g.data().Engine.Port()), []string{"NETA-05"}},
		{"RDS-04", change(instance, to("StorageEncrypted", false)), []string{"RDS-09"}},
		{"RDS-06", change(instance, to("BackupRetentionPeriod", 3)), nil},
		{"RDS-07", change(instance, to("DeletionProtection", false)), nil},
		{"RDS-08", change(instance, to("CopyTagsToSnapshot", false)), nil},
		{"RDS-11", change(instance, to("IAMDatabaseAuthenticationEnabled", false)), nil},
		{"RDS-12", change(instance, to("AutoMinorVersionUpgrade", false)), nil},
		{"RDS-14", change(instance, to("EngineLifecycleSupport", "open-source-rds-extended-support")), nil},
		{"RDS-17", change(instance, to("CACertificateIdentifier", "rds-ca-2019")), nil},
		{"RDS-22", change(instance, to("PerformanceInsightsEnabled", false)), nil},
		{"RDS-25", change(instance, to("MasterUsername", "root")), nil},
		{"RDS-26", change(instance, to("MasterUserSecret", nil)), nil},
	}
	if mysql {
		return append(out,
			flip{"RDS-16", set("require_secure_transport", "0"), nil},
			flip{"RDS-19", change(instance, to("EnabledCloudwatchLogsExports", []any{"error"})), nil},
			flip{"RDS-31", set("local_infile", "1"), nil})
	}
	return append(out,
		flip{"RDS-10", change(instance, to("MultiAZ", false)), nil},
		flip{"RDS-15", set("rds.force_ssl", "0"), nil},
		flip{"RDS-18", change(instance, to("EnabledCloudwatchLogsExports", []any{"upgrade"})), nil},
		flip{"RDS-21", set("log_statement", "none"), nil},
		flip{"RDS-13", change(instance, to("EngineVersion", "13.1")), []string{"RDS-30"}})
}

// Each control that somebody turns over at RDS makes its row fall, and no other but
// those that follow from it; a retry of the job does not put it back.
func TestDatastoreControls(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]string{"postgres": productionSpec, "mysql": `{"engine":"mysql","size":{"vcpus":2,"memoryGiB":8}}`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newData(t, sim.Options{}, job.ModeCreate, spec)
			g.create()
			for _, c := range g.report() {
				if !c.Met || c.Unchecked || c.Wanted == "" || c.Seen == "" || c.Source == "" || c.Name == "" {
					t.Errorf("%+v", c)
				}
			}
			for i, c := range g.rdsFlips(name == "mysql") {
				undo := c.flip()
				want := slices.Sorted(slices.Values(append([]string{c.id}, c.with...)))
				if got := unmet(g.report()); !slices.Equal(got, want) {
					t.Errorf("%d: flipped %s, and %v do not hold, want %v", i, c.id, got, want)
				}
				if c.id != "RDS-02" && c.id != "RDS-03" { // what is not the network's is never put back
					since := g.mark()
					g.another()
					g.create()
					if _, changes := g.calls(since); sum(changes) > 0 {
						t.Errorf("%s: a run of the job changed %v", c.id, changes)
					}
				}
				undo()
			}
		})
	}
}

// A final snapshot that is not to be taken is a control that does not hold, and so is a
// snapshot that everybody may restore.
func TestSnapshotControl(t *testing.T) {
	t.Parallel()
	g := newData(t, sim.Options{}, job.ModeCreate, `{"engine":"postgres","skipFinalSnapshot":true}`)
	g.create()
	if got := unmet(g.report()); fmt.Sprint(got) != "[RDS-09]" {
		t.Errorf("%v do not hold", got)
	}
	g.teardown()
	if len(g.kept()) > 0 {
		t.Errorf("kept %v", g.kept())
	}
	g.onlyKept()
	g = newData(t, sim.Options{}, job.ModeCreate, postgresSpec)
	g.create()
	g.place("rds", "CreateDBSnapshot", map[string]any{"DBInstanceIdentifier": g.data().Name, "DBSnapshotIdentifier": "by-hand"})
	g.world.Step(10 * time.Minute)
	if got := unmet(g.report()); len(got) > 0 {
		t.Errorf("with a snapshot of somebody's, %v do not hold", got)
	}
	g.tamper("arn:aws:rds:us-east-1:123456789012:snapshot:by-hand", to("Shared", []any{"all"}))
	if got := unmet(g.report()); fmt.Sprint(got) != "[RDS-09]" {
		t.Errorf("with a public snapshot, %v do not hold", got)
	}
}

// What may not be read is told as that, and is neither met nor a fault.
func TestDatastoreControlsUnread(t *testing.T) {
	t.Parallel()
	g := newData(t, sim.Options{}, job.ModeCreate, postgresSpec)
	g.create()
	g.fault(sim.Fault{Kind: sim.FaultError, Service: "rds", Operation: "DescribeDBParameters", Code: "AccessDenied", Status: 403, Count: 100})
	for _, c := range g.report() {
		if dark := c.ID == "RDS-15" || c.ID == "RDS-21"; c.Unchecked != dark || c.Met == c.Unchecked {
			t.Errorf("%+v", c)
		}
	}
	g.hit()
}
