package gcp

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/api/cloudkms/v1"

	"github.com/zopday/provisioner/internal/sim"
)

func TestKeys(t *testing.T) {
	t.Parallel()
	g := newGKE(t)
	keys, versions := g.kms.CryptoKeys, g.kms.CryptoKeys.CryptoKeyVersions
	ring := gkeLocation + "/keyRings/shop"
	_, err := g.kms.Get(ring).Do()
	if e := refusedAny(t, "ring", err, 404); e.Message != "KeyRing "+ring+" not found." || !strings.Contains(e.Body, `"NOT_FOUND"`) || len(e.Errors) != 0 {
		t.Error(e.Body)
	}
	if r, err := g.kms.Create(gkeLocation, &cloudkms.KeyRing{}).KeyRingId("shop").Do(); err != nil || r.Name != ring {
		t.Fatalf("ring: %+v, %v", r, err)
	}
	_, err = g.kms.Create(gkeLocation, &cloudkms.KeyRing{}).KeyRingId("shop").Do()
	refusedAny(t, "a second ring of the name", err, 409)
	_, err = g.kms.Create(gkeLocation, &cloudkms.KeyRing{}).KeyRingId("sh.op").Do()
	refusedAny(t, "a ring's name", err, 400)
	_, err = g.kms.Create("projects/"+testProject+"/locations/mars", &cloudkms.KeyRing{}).KeyRingId("shop").Do()
	refusedAny(t, "a place", err, 400)
	now := g.world.Clock.Now()
	for name, bad := range map[string]*cloudkms.CryptoKey{
		"no purpose":                {},
		"rotation without a start":  {Purpose: "ENCRYPT_DECRYPT", RotationPeriod: "7776000s"},
		"rotation too soon":         {Purpose: "ENCRYPT_DECRYPT", RotationPeriod: "3600s", NextRotationTime: now.Add(time.Hour).Format(time.RFC3339)},
		"a rotation in the past":    {Purpose: "ENCRYPT_DECRYPT", RotationPeriod: "7776000s", NextRotationTime: now.Add(-time.Hour).Format(time.RFC3339)},
		"a signature without a way": {Purpose: "ASYMMETRIC_SIGN"},
		"a label":                   {Purpose: "ENCRYPT_DECRYPT", Labels: map[string]string{"Job": "x"}},
		"destruction at once":       {Purpose: "ENCRYPT_DECRYPT", DestroyScheduledDuration: "60s"},
	} {
		_, err := keys.Create(ring, bad).CryptoKeyId("bad").Do()
		refusedAny(t, name, err, 400)
	}
	k, err := keys.Create(ring, &cloudkms.CryptoKey{Purpose: "ENCRYPT_DECRYPT", RotationPeriod: "7776000s", NextRotationTime: now.Add(7776000 * time.Second).Format(time.RFC3339),
		Labels: map[string]string{"job": "job_1"}}).CryptoKeyId("secrets").Do()
	if err != nil || k.Primary.State != "ENABLED" || k.Primary.Algorithm != "GOOGLE_SYMMETRIC_ENCRYPTION" || k.DestroyScheduledDuration != "2592000s" {
		t.Fatalf("key: %+v, %v", k, err)
	}
	if k, err = keys.Patch(k.Name, &cloudkms.CryptoKey{Labels: map[string]string{"job": "job_1", "b": "c"}}).UpdateMask("labels").Do(); err != nil || k.Labels["b"] != "c" || k.RotationPeriod != "7776000s" {
		t.Fatalf("patch: %+v, %v", k, err)
	}
	_, err = keys.Patch(k.Name, &cloudkms.CryptoKey{Purpose: "MAC"}).UpdateMask("purpose").Do()
	refusedAny(t, "another purpose", err, 400)
	list, err := keys.List(ring).Do()
	if err != nil || list.TotalSize != 1 || list.CryptoKeys[0].Name != k.Name {
		t.Errorf("list: %+v, %v", list, err)
	}
	second, err := versions.Create(k.Name, &cloudkms.CryptoKeyVersion{}).Do()
	if err != nil || !strings.HasSuffix(second.Name, "/cryptoKeyVersions/2") {
		t.Fatalf("second version: %+v, %v", second, err)
	}
	if k, err = keys.UpdatePrimaryVersion(k.Name, &cloudkms.UpdateCryptoKeyPrimaryVersionRequest{CryptoKeyVersionId: "2"}).Do(); err != nil || k.Primary.Name != second.Name {
		t.Errorf("primary: %+v, %v", k, err)
	}
	for _, v := range []string{"1", "2"} {
		gone, err := versions.Destroy(k.Name+"/cryptoKeyVersions/"+v, &cloudkms.DestroyCryptoKeyVersionRequest{}).Do()
		if err != nil || gone.State != "DESTROY_SCHEDULED" || gone.DestroyTime == "" {
			t.Fatalf("destroy: %+v, %v", gone, err)
		}
	}
	_, err = versions.Destroy(second.Name, &cloudkms.DestroyCryptoKeyVersionRequest{}).Do()
	refusedAny(t, "a second destruction", err, 400)
	if left := g.world.Residue("job_1"); len(left) != 0 {
		t.Errorf("residue of a key that goes: %+v", left)
	}
	if back, err := versions.Restore(second.Name, &cloudkms.RestoreCryptoKeyVersionRequest{}).Do(); err != nil || back.State != "DISABLED" {
		t.Fatalf("restore: %+v, %v", back, err)
	}
	if left := g.world.Residue("job_1"); len(left) != 1 || left[0].Kind != "crypto-key" {
		t.Errorf("residue of a key: %+v", left)
	}
	g.world.Step(31 * 24 * time.Hour)
	first, err := versions.Get(k.Name + "/cryptoKeyVersions/1").Do()
	if err != nil || first.State != "DESTROYED" {
		t.Errorf("a month later: %+v, %v", first, err)
	}
	_, err = keys.Create(ring, &cloudkms.CryptoKey{Purpose: "ENCRYPT_DECRYPT"}).CryptoKeyId("secrets").Do()
	refusedAny(t, "the name again", err, 409)
}

func TestKeyPolicies(t *testing.T) {
	t.Parallel()
	g := newGKE(t, func(o *sim.Options) { o.ConsistencyByList = time.Minute })
	name := g.key(gkeRegion, "secrets", false)
	policy, err := g.kms.CryptoKeys.GetIamPolicy(name).Do()
	if err != nil || policy.Etag == "" || len(policy.Bindings) != 0 {
		t.Fatalf("policy: %+v, %v", policy, err)
	}
	const robot = "serviceAccount:service-123456789012@container-engine-robot.iam.gserviceaccount.com"
	policy.Bindings = []*cloudkms.Binding{{Role: "roles/cloudkms.cryptoKeyEncrypterDecrypter", Members: []string{robot}}}
	set := func() error {
		_, err := g.kms.CryptoKeys.SetIamPolicy(name, &cloudkms.SetIamPolicyRequest{Policy: policy}).Do()
		return err
	}
	if err := set(); err != nil {
		t.Fatal(err)
	}
	if e := refusedAny(t, "an old etag", set(), 409); !strings.Contains(e.Body, "ABORTED") {
		t.Error(e.Body)
	}
	may := func() bool {
		g.world.Lock()
		defer g.world.Unlock()
		return g.cloud.kms.mayEncrypt(name, robot)
	}
	if may() {
		t.Error("a grant has effect at once")
	}
	g.world.Step(2 * time.Minute)
	if !may() {
		t.Error("a grant never has effect")
	}
}
