package gcp

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// meant are the differences from the recordings of instances and load balancers that are meant to be: file and a pattern for the
// difference, with the reason.
var meant = []struct{ file, pattern, why string }{
	{"*", `/images/family/debian-11 `, "the recordings cut public images down; version and so on are newer here"},
	{"*", `zones/us-central1-a availableCpuPlatforms`, "another list of processors"},
	{"*", `GET \S+/instances/\$\{instanceID\} `, "the recordings' instances are echoes of what was sent (partial links, disks with initializeParams, no addresses); " +
		"the flights of 2019 to 2023 have instances as they are here"},
	{"*", `networks/\$\{networkID\} routingConfig: not recorded`, "the recordings that are proven to be real have it"},
	{"*", `subnetworks/\$\{subnetworkID\} (state: missing|(enableFlowLogs|allowSubnetCidrRoutesOverlap): not recorded)`, "as above"},
	{"*", `recorded https://compute.googleapis.com/compute/v1/`, "links of templates and targets are echoes with the client's host; the flights have www.googleapis.com"},
	{"*", `recorded projects/example-project/`, "partial links are echoed in the recordings; the flights have full links"},
	{"*", `urlMaps\S* (status: RUNNING, recorded DONE|(operationType|targetId|targetLink|user): not recorded)`, "an operation of a mock, done at once"},
	{"*", `targetHttpProxies\S* (status: RUNNING, recorded DONE|(operationType|targetId|targetLink|user): not recorded)`, "an operation of a mock, done at once"},
	{"*", `disks/\$\{diskID\}/(setLabels|resize) (status: RUNNING, recorded DONE|(operationType|targetId|targetLink|user|zone|endTime): not recorded)`, "an operation of a mock"},
	{"instance-basic", `addresses/\$\{addressID\}/setLabels (operationType|targetId|targetLink|user|region|endTime): not recorded`, "an operation of a mock"},
	{"instance-basic", `addresses/\$\{addressID\} (subnetwork: not recorded|labels: missing)`, "a mock's: an internal address shows its subnetwork, and an insert sets no labels"},
	{"*", `(urlMaps|targetHttpProxies)/\S+ (fingerprint|status): not recorded`, "a mock's object has no fingerprint and no status; the real ones of urlmap-global have both"},
	{"*", `backendServices/\S+ (port|portName|protocol|enableCDN): not recorded`, "missing in some recordings of the same insert, there in others and in the flights"},
	{"backendservice-global", `backends\[\].maxUtilization|iap.oauth2ClientSecret`, "a mock's: the default of UTILIZATION is shown, a secret never"},
	{"backendservice-global", `httpHealthChecks/\S+ proxyHeader: missing`, "not a field of the schema"},
	{"backendservice-global", `recorded https://www.googleapis.com/compute/v1/projects/example-project/global/healthChecks|operations/\S+ targetLink`, "the recording calls legacy checks both ways"},
	{"*", `disks/\$\{diskID\} (sizeGb|enableConfidentialCompute|architecture|guestOsFeatures|licenses|licenseCodes|sourceImage|sourceImageId): `, "a mock's disk: real ones have a size"},
	{"instance-template", `images/\$\{imageID\} sourceDiskId`, "the recording's placeholder for a number"},
	{"*", `instanceTemplates/\S+ properties.disks\[\].(index|deviceName): `, "a mock's: disks are numbered"},
	{"*", `instanceGroupManagers/\S+ (currentActions|distributionPolicy|fingerprint|instanceGroup|instanceTemplate|listManagedInstancesResults|versions|` +
		`updatePolicy.\w+|status.\w+): (not recorded|false, recorded true)`, "a mock's group: stable at once, without what groups show"},
	{"autoscaler", `autoscalers/\S+ recommendedSize: not recorded`, "shown by real ones that are active"},
	{"forwardingrule-*", `forwardingRules/\S+ (selfLinkWithId: not recorded|IPAddress: )`, "the flights of 2026 have the former; the latter was amended"},
	{"instancegroup-real", `listInstances items\[\].instance|instances/instance-2, recorded`, "one placeholder for two instances"},
	{"urlmap-global", `not simulated|backendBuckets|storagebucket|operations/\S+ targetLink|usedBy: missing`, "Cloud Storage and backend buckets are not simulated; several operations have one placeholder"},
	{"urlmap-regional-real", `perTryTimeout.nanos|tests\[\].description|operations/\S+ targetLink`, "zero values are not filled in; several operations have one placeholder"},
	{"instance-basic", `targetLink: `, "one placeholder for two objects"},
	{"targethttpsproxy-global-real", `sslCertificates/\S+ expireTime`, "another certificate"},
}

// amends put into recordings what their makers' normalisation took out: file, old text, new text.
var amends = []struct{ file, old, new string }{
	{"*", "${networkID}Service", "defaultService"}, // "default" stands for the network everywhere
	{"instance-basic", `"networkIP":"projects/example-project/regions/us-west1/addresses/${addressID}"`, `"networkIP":"projects/example-project/regions/us-west1/addresses/address-1"`},
	{"instance-basic", `"boot":true,"source":"projects/example-project/zones/us-west1-a/disks/${diskID}"`, `"boot":true,"source":"projects/example-project/zones/us-west1-a/disks/disk-1"`},
	{"forwardingrule-global-tcp-real", `"IPAddress":"8.8.8.8"`, `"IPAddress":"global/addresses/computeaddress-u1"`},
	{"instancegroup-real", `"instances":[{"instance":"https://www.googleapis.com/compute/v1/projects/example-project/zones/us-central1-a/instances/${instanceID}"},`,
		`"instances":[{"instance":"https://www.googleapis.com/compute/v1/projects/example-project/zones/us-central1-a/instances/instance-1"},`},
	// The network and the templates' group were there before the recording began.
	{"mig-regional", `"baseInstanceName":"app","name"`, `"baseInstanceName":"app","instanceTemplate":"global/instanceTemplates/${instanceTemplateID}","name"`},
}

// amended reads a recording.
func amended(t *testing.T, file string) []exchange {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text, name := string(b), strings.TrimSuffix(filepath.Base(file), ".json")
	for _, a := range amends {
		if ok, _ := filepath.Match(a.file, name); ok {
			text = strings.ReplaceAll(text, a.old, a.new)
		}
	}
	if strings.Contains(text, "TRIMMED-PEM") {
		certificate, key := pemPair(t)
		text = strings.ReplaceAll(text, `"privateKey":"TRIMMED-PEM\n"`, `"privateKey":`+quoted(t, key))
		text = strings.ReplaceAll(text, `"TRIMMED-PEM\n"`, quoted(t, certificate))
	}
	var doc struct{ Exchanges []exchange }
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return doc.Exchanges
}

func quoted(t *testing.T, s string) string {
	t.Helper()
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// pemPair is a certificate with its key.
func pemPair(t *testing.T) (certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "shop"}, NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: raw}))
}

var (
	collectionIn = regexp.MustCompile(`/(\w+)/\$\{(\w+)\}`)
	literalName  = regexp.MustCompile(`/([a-z0-9-]+)['"] (was )?not found`)
)

// prime tells the player the names that a recording leaves in one place and replaces by placeholders in another.
func (p *player) prime(e exchange) {
	at := path(e.Request.URL)
	m := collectionIn.FindStringSubmatch(at)
	if m != nil && e.Response.Status == 404 {
		b, err := json.Marshal(e.Response.Body)
		if err != nil {
			p.t.Fatal(err)
		}
		if name := literalName.FindSubmatch(b); name != nil {
			p.names[m[2]] = append(p.names[m[2]], string(name[1]))
		}
	}
	if name, _ := e.Request.Body["name"].(string); e.Request.Method == http.MethodPost && e.Response.Status == 200 && !strings.Contains(name, "${") && name != "" {
		for ph, stack := range p.names {
			if len(stack) > 0 && stack[len(stack)-1] == name {
				p.made[ph] = len(stack)
			}
		}
	}
}

// TestMachineRecordings plays the recordings of instances, groups and load balancers, as TestRecordings does those of networks.
func TestMachineRecordings(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/balancers/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal("no recordings", err)
	}
	exchanges, fields, differences := 0, 0, 0
	unused := map[int]bool{}
	for i := range meant {
		unused[i] = true
	}
	for _, file := range files {
		p := &player{rig: newRig(t), file: strings.TrimSuffix(filepath.Base(file), ".json"), names: map[string][]string{}, made: map[string]int{}}
		all := amended(t, file)
		p.begin(all)
		for _, e := range all {
			p.prime(e)
			p.play(e)
			exchanges++
		}
		fields += p.fields
		differences += len(p.differences)
		for _, d := range p.differences {
			expected := false
			for i, k := range meant {
				if ok, _ := filepath.Match(k.file, p.file); ok && regexp.MustCompile(k.pattern).MatchString(d) {
					expected = true
					delete(unused, i)
				}
			}
			if !expected {
				t.Errorf("%s %s", p.file, d)
			}
		}
		t.Logf("%s: %d exchanges, %d fields, %d differences", p.file, len(all), p.fields, len(p.differences))
	}
	for i := range unused {
		t.Errorf("a known difference that is none any more: %s %s", meant[i].file, meant[i].pattern)
	}
	t.Logf("%d exchanges of %d files, %d fields compared, %d differences of %d known kinds", exchanges, len(files), fields, differences, len(meant))
}
