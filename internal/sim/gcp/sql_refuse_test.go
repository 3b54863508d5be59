package gcp

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/api/compute/v1"
	"google.golang.org/api/secretmanager/v1"
	"google.golang.org/api/servicenetworking/v1"
	"google.golang.org/api/sqladmin/v1"

	"github.com/zopday/provisioner/internal/sim"
)

func TestSQLRefusals(t *testing.T) {
	t.Parallel()
	g := newSQL(t)
	network := g.peered("shop", 20)
	g.fine(g.compute().Networks.Insert(testProject, &compute.Network{Name: "lonely", ForceSendFields: []string{"AutoCreateSubnetworks"}}).Do())
	for _, c := range []struct {
		want   string
		change func(in *sqladmin.DatabaseInstance)
	}{
		{"Invalid Tier (db-custom-2-7680) for (ENTERPRISE_PLUS) Edition. Use a predefined Tier", func(in *sqladmin.DatabaseInstance) { in.Settings.Edition = "" }},
		{"Invalid Tier (db-perf-optimized-N-2) for (ENTERPRISE) Edition", func(in *sqladmin.DatabaseInstance) { in.Settings.Tier = "db-perf-optimized-N-2" }},
		{"the number of CPUs", func(in *sqladmin.DatabaseInstance) { in.Settings.Tier = "db-custom-3-7680" }},
		{"memory must be a multiple of 256 MiB", func(in *sqladmin.DatabaseInstance) { in.Settings.Tier = "db-custom-2-1024" }},
		{"Missing parameter: tier", func(in *sqladmin.DatabaseInstance) { in.Settings.Tier = "" }},
		{"Database version POSTGRES_19 is not supported", func(in *sqladmin.DatabaseInstance) { in.DatabaseVersion = "POSTGRES_19" }},
		{"instance name (Shop)", func(in *sqladmin.DatabaseInstance) { in.Name = "Shop" }},
		{"Invalid region", func(in *sqladmin.DatabaseInstance) { in.Region = "mars-north1" }},
		{"Disk size must be between", func(in *sqladmin.DatabaseInstance) { in.Settings.DataDiskSizeGb = 5 }},
		{"between 1 and 7", func(in *sqladmin.DatabaseInstance) { in.Settings.BackupConfiguration.TransactionLogRetentionDays = 14 }},
		{"Binary log can only be enabled for MySQL", func(in *sqladmin.DatabaseInstance) { in.Settings.BackupConfiguration.BinaryLogEnabled = true }},
		{"Point in time recovery must be disabled", func(in *sqladmin.DatabaseInstance) { in.Settings.BackupConfiguration.Enabled = false }},
		{"conflicts", func(in *sqladmin.DatabaseInstance) { in.Settings.IpConfiguration.RequireSsl = true }},
		{"At least one of Public IP, Private IP or PSC", func(in *sqladmin.DatabaseInstance) { in.Settings.IpConfiguration.PrivateNetwork = "" }},
		{"NETWORK_NOT_PEERED", func(in *sqladmin.DatabaseInstance) {
			in.Settings.IpConfiguration.PrivateNetwork = strings.Replace(network, "shop", "lonely", 1)
		}},
		{"does not exist", func(in *sqladmin.DatabaseInstance) {
			in.Settings.IpConfiguration.PrivateNetwork = strings.Replace(network, "shop", "nowhere", 1)
		}},
		{"is not part of the private connection", func(in *sqladmin.DatabaseInstance) { in.Settings.IpConfiguration.AllocatedIpRange = "other" }},
		{"Invalid flag name", func(in *sqladmin.DatabaseInstance) { in.Settings.DatabaseFlags[0].Name = "local_infile" }},
		{"Invalid flag value", func(in *sqladmin.DatabaseInstance) { in.Settings.DatabaseFlags[0].Value = "everything" }},
		{"Invalid label", func(in *sqladmin.DatabaseInstance) { in.Settings.UserLabels["Job"] = "x" }},
		{"maintenance window hour", func(in *sqladmin.DatabaseInstance) {
			in.Settings.MaintenanceWindow = &sqladmin.MaintenanceWindow{Day: 1, Hour: 30}
		}},
		{"Invalid zone", func(in *sqladmin.DatabaseInstance) {
			in.Settings.LocationPreference = &sqladmin.LocationPreference{Zone: "us-central1-a"}
		}},
	} {
		in := postgresInstance(network)
		if strings.HasPrefix(c.want, "Point in time") {
			in.Settings.BackupConfiguration.ForceSendFields = []string{"Enabled"}
		}
		c.change(in)
		_, err := g.Instances.Insert(testProject, in).Do()
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "Invalid request: ") {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
	if !g.world.SetQuota("gcp", "sqladmin", "instances", testProject, "", 0) {
		t.Fatal("no such quota")
	}
	_, err := g.Instances.Insert(testProject, postgresInstance(network)).Do()
	refused(t, err, 403, "quotaExceeded")
}

func TestSQLFailedCreate(t *testing.T) {
	t.Parallel()
	g := newSQL(t)
	network := g.peered("shop", 24) // room for the instances of one region
	g.well(g.Instances.Insert(testProject, postgresInstance(network)).Do())
	second := postgresInstance(network)
	second.Name, second.Region = "shop-2", "us-central1"
	op := g.ends(g.Instances.Insert(testProject, second).Do())
	if op.Error == nil || op.Error.Errors[0].Code != "INTERNAL_ERROR" || !strings.Contains(op.Error.Errors[0].Message, "Couldn't find free blocks in allocated IP ranges") {
		t.Fatalf("an instance without room: %+v", op)
	}
	if in, err := g.Instances.Get(testProject, "shop-2").Do(); err != nil || in.State != "FAILED" {
		t.Errorf("the instance that failed: %+v, %v", in, err)
	}
	_, err := g.Instances.Patch(testProject, "shop-2", &sqladmin.DatabaseInstance{Settings: &sqladmin.Settings{Tier: "db-custom-4-15360"}}).Do()
	refused(t, err, 409, "invalidState")
	g.well(g.Instances.Patch(testProject, "shop-2", &sqladmin.DatabaseInstance{Settings: &sqladmin.Settings{ForceSendFields: []string{"DeletionProtectionEnabled"}}}).Do())
	g.well(g.Instances.Delete(testProject, "shop-2").Do())
	if _, err := g.world.AddFault(sim.Fault{Kind: sim.FaultOpFailed, Cloud: "gcp", Service: "sqladmin", Operation: "instances.delete"}); err != nil {
		t.Fatal(err)
	}
	g.well(g.Instances.Patch(testProject, "shop-db", &sqladmin.DatabaseInstance{Settings: &sqladmin.Settings{ForceSendFields: []string{"DeletionProtectionEnabled"}}}).Do())
	if op := g.ends(g.Instances.Delete(testProject, "shop-db").Do()); op.Error == nil {
		t.Error("a deletion that was to fail did not")
	}
	if in, err := g.Instances.Get(testProject, "shop-db").Do(); err != nil || in.State != "RUNNABLE" {
		t.Errorf("an instance whose deletion failed: %+v, %v", in, err)
	}
}

// TestSQLNameHeld: names are free at once, and held for a week by a fault, in both forms.
func TestSQLNameHeld(t *testing.T) {
	t.Parallel()
	g := newSQL(t)
	network := g.peered("shop", 20)
	in := postgresInstance(network)
	in.Settings.DeletionProtectionEnabled = false
	g.well(g.Instances.Insert(testProject, in).Do())
	g.well(g.Instances.Delete(testProject, "shop-db").Do())
	for _, code := range []string{"", "invalidState"} {
		f, err := g.world.AddFault(sim.Fault{Kind: sim.FaultNameHeld, Cloud: "gcp", Service: "sqladmin", Code: code, Count: -1})
		if err != nil {
			t.Fatal(err)
		}
		_, err = g.Instances.Insert(testProject, in).Do()
		refused(t, err, 409, orText(code, "instanceAlreadyExists"))
		g.world.ClearFaults(f.ID)
	}
	if _, err := g.world.AddFault(sim.Fault{Kind: sim.FaultNameHeld, Cloud: "gcp", Count: -1}); err != nil {
		t.Fatal(err)
	}
	g.world.Step(8 * 24 * time.Hour)
	g.well(g.Instances.Insert(testProject, in).Do())
}

func TestSQLReplicaAndConnection(t *testing.T) {
	t.Parallel()
	g := newSQL(t)
	network := g.peered("shop", 20)
	in := postgresInstance(network)
	in.Settings.DeletionProtectionEnabled = false
	g.well(g.Instances.Insert(testProject, in).Do())
	g.well(g.Instances.Insert(testProject, &sqladmin.DatabaseInstance{Name: "shop-replica", MasterInstanceName: "shop-db", Region: "europe-west1", Settings: &sqladmin.Settings{}}).Do())
	if p, err := g.Instances.Get(testProject, "shop-db").Do(); err != nil || len(p.ReplicaNames) != 1 || p.ReplicaNames[0] != "shop-replica" {
		t.Errorf("primary: %+v, %v", p, err)
	}
	_, err := g.Instances.Delete(testProject, "shop-db").Do()
	refused(t, err, 400, "invalid")
	g.well(g.Instances.Delete(testProject, "shop-replica").Do())
	g.well(g.Instances.Delete(testProject, "shop-db").Do())
	sn := client(g.rig, servicenetworking.NewService)
	remove := func() *servicenetworking.Operation {
		op, err := sn.Services.Connections.DeleteConnection("services/servicenetworking.googleapis.com/connections/servicenetworking-googleapis-com",
			&servicenetworking.DeleteConnectionRequest{ConsumerNetwork: g.byNumber(network)}).Do()
		if err != nil {
			t.Fatal(err)
		}
		return g.connected(sn, op)
	}
	if op := remove(); op.Error == nil || op.Error.Code != 9 {
		t.Errorf("deletion of a connection in use: %+v", op)
	}
	g.world.Step(30 * time.Minute)
	if op := remove(); op.Error != nil {
		t.Errorf("deletion of a connection that is free: %+v", op.Error)
	}
}

// TestSQLDataAPI runs statements as users whose passwords are in Secret Manager.
func TestSQLDataAPI(t *testing.T) {
	t.Parallel()
	g := newSQL(t)
	g.well(g.Instances.Insert(testProject, postgresInstance(g.peered("shop", 20))).Do())
	secrets := client(g.rig, secretmanager.NewService).Projects.Locations.Secrets
	keep := func(region, id, password string) string {
		parent := "projects/" + testProject + "/locations/" + region
		if _, err := secrets.Create(parent, &secretmanager.Secret{Labels: map[string]string{"zopday-job": "j1"}}).SecretId(id).Do(); err != nil {
			t.Fatal(err)
		}
		v, err := secrets.AddVersion(parent+"/secrets/"+id, &secretmanager.AddSecretVersionRequest{Payload: &secretmanager.SecretPayload{Data: password}}).Do()
		if err != nil {
			t.Fatal(err)
		}
		return v.Name
	}
	near, far := keep("europe-west1", "root", "czNjcmV0LXJvb3Q="), keep("us-central1", "root", "eA==")
	run := func(p *sqladmin.ExecuteSqlPayload) (*sqladmin.SqlInstancesExecuteSqlResponse, error) {
		p.Database = "postgres"
		return g.Instances.ExecuteSql(testProject, "shop-db", p).Do()
	}
	g.db.answer = func(user, password, statement string) ([][]string, error) {
		if user != "postgres" || password != "s3cret-root" {
			t.Errorf("statement %q as %s with %q", statement, user, password)
		}
		return [][]string{{"1"}}, nil
	}
	out, err := run(&sqladmin.ExecuteSqlPayload{User: "postgres", PasswordSecretVersion: near, SqlStatement: "ALTER USER app PASSWORD 'hidden-one'"})
	if err != nil || len(out.Results) != 1 || out.Results[0].Rows[0].Values[0].Value != "1" || out.Results[0].Columns[0].Name != "a" {
		t.Errorf("statement: %+v, %v", out, err)
	}
	for want, p := range map[string]*sqladmin.ExecuteSqlPayload{
		"in the instance's region":      {User: "postgres", PasswordSecretVersion: far, SqlStatement: "SELECT 1"},
		"must be a regional one":        {User: "postgres", PasswordSecretVersion: "projects/" + testProject + "/secrets/root/versions/1", SqlStatement: "SELECT 1"},
		"not found":                     {User: "postgres", PasswordSecretVersion: strings.Replace(near, "/root/", "/other/", 1), SqlStatement: "SELECT 1"},
		"is not an IAM user":            {AutoIamAuthn: true, SqlStatement: "SELECT 1"},
		"Missing parameter: user":       {SqlStatement: "SELECT 1"},
		"Missing parameter: sqlStateme": {User: "postgres", PasswordSecretVersion: near},
	} {
		if _, err := run(p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	g.well(g.Users.Insert(testProject, "shop-db", &sqladmin.User{Name: "user@example.com", Type: "CLOUD_IAM_USER"}).Do())
	g.db.answer = func(user, _, _ string) ([][]string, error) { return [][]string{{user}}, nil }
	if out, err := run(&sqladmin.ExecuteSqlPayload{AutoIamAuthn: true, SqlStatement: "SELECT current_user"}); err != nil || out.Results[0].Rows[0].Values[0].Value != "user@example.com" {
		t.Errorf("statement as the caller: %+v, %v", out, err)
	}
	g.well(g.Instances.Patch(testProject, "shop-db", &sqladmin.DatabaseInstance{Settings: &sqladmin.Settings{DataApiAccess: "DISALLOW_DATA_API"}}).Do())
	_, err = run(&sqladmin.ExecuteSqlPayload{User: "postgres", PasswordSecretVersion: near, SqlStatement: "SELECT 1"})
	refused(t, err, 400, "failedPrecondition")
}

// TestNoSecretsInParams: what is secret in a request is in no text that faults are matched with.
func TestNoSecretsInParams(t *testing.T) {
	t.Parallel()
	for body, path := range map[string]string{
		`{"name":"a","rootPassword":"s3\"XYZ","x":1}`:                     "/v1/projects/p/instances",
		`{"payload": {"data" : "s3XYZ"}}`:                                 "/v1/projects/p/secrets/s:addVersion",
		`{"sqlStatement":"ALTER USER a WITH PASSWORD 's3XYZ';SELECT 1"}`:  "/v1/projects/p/instances/i/executeSql",
		`{"sqlStatement":"CREATE USER a IDENTIFIED BY 's3''XYZ'"}`:        "/v1/projects/p/instances/i/executeSql",
		`{"sqlStatement":"ALTER USER a WITH PASSWORD \u0027s3XYZ\u0027"}`: "/v1/projects/p/instances/i/executeSql",
	} {
		if !json.Valid([]byte(body)) {
			t.Fatal(body)
		}
		r, err := http.NewRequest(http.MethodPost, "http://sim"+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if text := paramText(r, []byte(body)); strings.Contains(text, "XYZ") || !strings.Contains(text, "***") {
			t.Errorf("%s: %s", body, text)
		}
	}
}
