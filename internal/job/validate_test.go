package job

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
)

func vmJob(spec string) *Job {
	return &Job{ID: NewID("job"), OrgID: "org_1", Kind: Provisioning, ResourceType: VM, Provider: AWS, Mode: ModeCreate,
		Name: "shop-prod", Region: "us-east-1", Config: Config{Spec: json.RawMessage(spec)}}
}

func TestValidateNamesFieldAndFix(t *testing.T) {
	tests := []struct {
		name, field string
		job         *Job
		change      func(*Job)
	}{
		{"bad name", "name", vmJob(`{}`), func(j *Job) { j.Name = "Shop" }},
		{"name ends in hyphen", "name", vmJob(`{}`), func(j *Job) { j.Name = "a-" }},
		{"name starts with digit", "name", vmJob(`{}`), func(j *Job) { j.Name = "1web" }},
		{"name of 64", "name", vmJob(`{}`), func(j *Job) { j.Name = strings.Repeat("a", 64) }},
		{"region misspelt", "region", vmJob(`{}`), func(j *Job) { j.Region = "us-esat-1" }},
		{"region with a letter missing", "region", vmJob(`{}`), func(j *Job) { j.Region = "eu-wst-1" }},
		{"region without its number", "region", vmJob(`{}`), func(j *Job) { j.Region = "us-east" }},
		{"zone for a region", "region", vmJob(`{}`), func(j *Job) { j.Region = "us-east-1a" }},
		{"no region", "region", vmJob(`{}`), func(j *Job) { j.Region = "" }},
		{"mode", "mode", vmJob(`{}`), func(j *Job) { j.Mode = "steal" }},
		{"unknown field", "config.spec.poool", vmJob(`{"poool":{}}`), nil},
		{"wrong type", "config.spec.pool.count", vmJob(`{"pool":{"count":"two"}}`), nil},
		{"not an object", "config.spec", vmJob(`[1]`), nil},
		{"count 0 is the default, 101 is too many", "config.spec.pool.count", vmJob(`{"pool":{"count":101}}`), nil},
		{"no VMs", "config.spec.pool.count", vmJob(`{"pool":{"count":0}}`), nil},
		{"no port", "config.spec.loadBalancer.healthCheck.port", vmJob(`{"loadBalancer":{"plainHTTP":true,"healthCheck":{"port":0}}}`), nil},
		{"negative count", "config.spec.pool.count", vmJob(`{"pool":{"count":-1}}`), nil},
		{"asg out of order", "config.spec.pool.desired", vmJob(`{"pool":{"mode":"asg","min":3,"desired":2,"max":4}}`), nil},
		{"asg with count", "config.spec.pool.count", vmJob(`{"pool":{"mode":"asg","count":2}}`), nil},
		{"size and type", "config.spec.pool.size", vmJob(`{"pool":{"size":{"vcpus":2,"memoryGiB":4},"instanceType":"t3.medium"}}`), nil},
		{"image", "config.spec.pool.image", vmJob(`{"pool":{"image":"windows"}}`), nil},
		{"disk", "config.spec.pool.diskGiB", vmJob(`{"pool":{"diskGiB":4}}`), nil},
		{"host bits", "config.spec.network.cidr", vmJob(`{"network":{"cidr":"10.0.0.1/16"}}`), nil},
		{"too large", "config.spec.network.cidr", vmJob(`{"network":{"cidr":"10.0.0.0/8"}}`), nil},
		{"/15", "config.spec.network.cidr", vmJob(`{"network":{"cidr":"10.0.0.0/15"}}`), nil},
		{"/25", "config.spec.network.cidr", vmJob(`{"network":{"cidr":"10.0.0.0/25"}}`), nil},
		{"/28", "config.spec.network.cidr", vmJob(`{"network":{"cidr":"10.0.0.0/28"}}`), nil},
		{"IPv6", "config.spec.network.cidr", vmJob(`{"network":{"cidr":"fd00::/56"}}`), nil},
		{"public range", "config.spec.network.cidr", vmJob(`{"network":{"cidr":"8.8.0.0/16"}}`), nil},
		{"docker's range", "config.spec.network.cidr", vmJob(`{"network":{"cidr":"172.17.0.0/16"}}`), nil},
		{"one zone", "config.spec.network.zones", vmJob(`{"network":{"zones":1}}`), nil},
		{"no NAT", "config.spec.network.nat", vmJob(`{"network":{"nat":"none"}}`), nil},
		{"HTTP unasked", "config.spec.loadBalancer.certificate", vmJob(`{"loadBalancer":{}}`), nil},
		{"port 22", "config.spec.loadBalancer.port", vmJob(`{"loadBalancer":{"plainHTTP":true,"port":22}}`), nil},
		{"health path", "config.spec.loadBalancer.healthCheck.path", vmJob(`{"loadBalancer":{"plainHTTP":true,"healthCheck":{"path":"healthz"}}}`), nil},
		{"DNS record", "config.spec.loadBalancer.dns.record", vmJob(`{"loadBalancer":{"plainHTTP":true,"dns":{"zone":"example.test","record":"a b"}}}`), nil},
		{"existing in create", "config.spec.existing", vmJob(`{"existing":{"networkId":"vpc-1"}}`), nil},
		{"existing without network", "config.spec.existing.networkId", vmJob(`{}`), func(j *Job) { j.Mode = ModeCreateInExisting }},
		{"adopt without target", "config.spec.adopt", vmJob(`{}`), func(j *Job) { j.Mode = ModeAdopt }},
		{"adopt in another region", "config.spec.adopt.ids[0]", vmJob(`{"adopt":{"ids":["arn:aws:ec2:us-west-2:111122223333:instance/i-1"]}}`), func(j *Job) { j.Mode = ModeAdopt }},
		{"label of ours", "labels.zopday:owner", vmJob(`{}`), func(j *Job) { j.Labels = map[string]string{"zopday:owner": "x"} }},
		{"label of the cloud", "labels.AWS:x", vmJob(`{}`), func(j *Job) { j.Labels = map[string]string{"AWS:x": "x"} }},
		{"labels that differ in case alone", "labels.team", vmJob(`{}`), func(j *Job) { j.Labels = map[string]string{"Team": "a", "team": "b"} }},
		{"label not printable", "labels.a", vmJob(`{}`), func(j *Job) { j.Labels = map[string]string{"a": "→"} }},
		{"another family", "resourceType", vmJob(`{}`), func(j *Job) { j.ResourceType = "queue" }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.change != nil {
				tt.change(tt.job)
			}
			err := tt.job.Validate()
			var inv *Invalid
			if !errors.As(err, &inv) {
				t.Fatalf("Validate = %v, want *Invalid", err)
			}
			for _, f := range inv.Fields {
				if f.Field == tt.field {
					if f.Message == "" || f.Fix == "" {
						t.Errorf("%+v does not say what is wrong and what to do", f)
					}
					return
				}
			}
			t.Errorf("fields %+v, want %s among them", inv.Fields, tt.field)
		})
	}
}

func TestValidateAccepts(t *testing.T) {
	specs := []string{
		``, `{}`,
		`{"pool":{"mode":"fixed","count":2,"size":{"vcpus":2,"memoryGiB":4,"arch":"arm64"},"image":"al2023","diskGiB":30}}`,
		`{"pool":{"mode":"asg","min":0,"desired":0,"max":1}}`,
		`{"pool":{"mode":"asg"}}`,
		`{"network":{"cidr":"192.168.0.0/24","zones":3,"nat":"per_zone"}}`,
		`{"bootstrap":"bare_metal","loadBalancer":{"type":"tcp","scheme":"internal","port":5432}}`,
		`{"loadBalancer":{"certificate":"arn:aws:acm:us-east-1:1:certificate/x","dns":{"zone":"example.test","record":"@"}}}`,
	}
	for _, spec := range specs {
		j := vmJob(spec)
		j.Labels = map[string]string{"team": "shop", "aws_team": "a", "awsx": "b", "Env": "Prod"}
		if err := j.Validate(); err != nil {
			t.Errorf("%s: %v", spec, err)
		}
	}
}

func TestAllMistakesAtOnce(t *testing.T) {
	j := vmJob(`{"pool":{"count":1000,"diskGiB":1},"network":{"cidr":"10.0.0.1/8","zones":9}}`)
	j.Name = "!"
	var inv *Invalid
	if !errors.As(j.Validate(), &inv) || len(inv.Fields) < 5 {
		t.Fatalf("got %v", fmt.Sprint(inv))
	}
}

func TestRegionsThatAreTaken(t *testing.T) {
	for _, region := range []string{"us-east-1", "us-gov-west-1", "ap-southeast-7", "cn-northwest-1", "mx-central-1", "eusc-de-east-1", "nz-north-1", "ap-west-1"} {
		j := vmJob(`{}`)
		j.Region = region
		if err := j.Validate(); err != nil {
			t.Errorf("%s: %v", region, err)
		}
	}
}

func TestPoolsAreNamedByTheirPlaceInTheSpec(t *testing.T) {
	for _, p := range []Provider{AWS, GCP, Azure} {
		j := vmJob(`{"nodePools":[{"name":"web"},{"name":"batch","taints":[{"key":"batch","effect":"Nope"}]}]}`)
		j.ResourceType, j.Provider, j.Region = Cluster, p, map[Provider]string{AWS: "us-east-1", GCP: "us-central1", Azure: "westus2"}[p]
		var inv *Invalid
		if err := j.Validate(); !errors.As(err, &inv) || len(inv.Fields) != 1 || inv.Fields[0].Field != "config.spec.nodePools[1].taints[0].effect" {
			t.Errorf("%s: Validate = %v, want the effect of nodePools[1] alone", p, err)
		}
	}
}
