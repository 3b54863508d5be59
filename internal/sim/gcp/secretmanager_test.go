package gcp

import (
	"encoding/base64"
	"strings"
	"testing"

	"google.golang.org/api/secretmanager/v1"

	"github.com/zopday/provisioner/internal/sim"
)

const secretParent = "projects/" + testProject + "/locations/europe-west1"

// TestSecrets: global and regional secrets, their etags and refusals.
func TestSecrets(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	s := client(g, secretmanager.NewService)
	const parent = secretParent
	regional := s.Projects.Locations.Secrets
	made, err := regional.Create(parent, &secretmanager.Secret{Labels: map[string]string{"zopday-job": "j1"}}).SecretId("admin").Do()
	if err != nil || made.Name != "projects/123456789012/locations/europe-west1/secrets/admin" || made.Etag == "" {
		t.Fatalf("secret: %+v, %v", made, err)
	}
	_, err = regional.Create(parent, &secretmanager.Secret{}).SecretId("admin").Do()
	refused(t, err, 409, "")
	_, err = regional.Create(parent, &secretmanager.Secret{Replication: &secretmanager.Replication{Automatic: &secretmanager.Automatic{}}}).SecretId("other").Do()
	refused(t, err, 400, "")
	_, err = s.Projects.Secrets.Create("projects/"+testProject, &secretmanager.Secret{}).SecretId("other").Do()
	refused(t, err, 400, "")
	if _, err := s.Projects.Secrets.Create("projects/"+testProject, &secretmanager.Secret{Replication: &secretmanager.Replication{Automatic: &secretmanager.Automatic{}}}).SecretId("admin").Do(); err != nil {
		t.Error(err)
	}
	versionsOf(t, regional)
	list, err := regional.List(parent).Filter("labels.zopday-job:j1").Do()
	if err != nil || len(list.Secrets) != 1 || list.TotalSize != 1 {
		t.Errorf("secrets: %+v, %v", list, err)
	}
	_, err = regional.Delete(parent + "/secrets/admin").Etag(made.Etag).Do()
	refused(t, err, 400, "") // the versions have changed it
	now, err := regional.Patch(parent+"/secrets/admin", &secretmanager.Secret{Labels: map[string]string{"a": "b"}}).UpdateMask("labels").Do()
	if err != nil || now.Labels["a"] != "b" {
		t.Fatalf("patch: %+v, %v", now, err)
	}
	if _, err := regional.Delete(parent + "/secrets/admin").Etag(now.Etag).Do(); err != nil {
		t.Error(err)
	}
	_, err = regional.Get(parent + "/secrets/admin").Do()
	refused(t, err, 404, "")
}

// versionsOf tries the versions of the secret admin.
func versionsOf(t *testing.T, regional *secretmanager.ProjectsLocationsSecretsService) {
	t.Helper()
	const parent = secretParent
	_, err := regional.Versions.Access(parent + "/secrets/admin/versions/latest").Do()
	refused(t, err, 404, "")
	for _, data := range []string{"one", "two"} {
		if _, err := regional.AddVersion(parent+"/secrets/admin", &secretmanager.AddSecretVersionRequest{Payload: &secretmanager.SecretPayload{Data: base64.StdEncoding.EncodeToString([]byte(data))}}).Do(); err != nil {
			t.Fatal(err)
		}
	}
	_, err = regional.AddVersion(parent+"/secrets/admin", &secretmanager.AddSecretVersionRequest{Payload: &secretmanager.SecretPayload{Data: "eA==", DataCrc32c: 7}}).Do()
	refused(t, err, 400, "")
	_, err = regional.AddVersion(parent+"/secrets/admin", &secretmanager.AddSecretVersionRequest{Payload: &secretmanager.SecretPayload{Data: base64.StdEncoding.EncodeToString(make([]byte, 65<<10))}}).Do()
	refused(t, err, 400, "")
	read := func(version string) (string, error) {
		out, err := regional.Versions.Access(parent + "/secrets/admin/versions/" + version).Do()
		if err != nil {
			return "", err
		}
		b, err := base64.StdEncoding.DecodeString(out.Payload.Data)
		return string(b), err
	}
	for version, want := range map[string]string{"1": "one", "latest": "two"} {
		if got, err := read(version); got != want {
			t.Errorf("version %s: %q, %v", version, got, err)
		}
	}
	if _, err := regional.Versions.Disable(parent+"/secrets/admin/versions/2", &secretmanager.DisableSecretVersionRequest{}).Do(); err != nil {
		t.Error(err)
	}
	if _, err := read("latest"); err == nil || !strings.Contains(err.Error(), "is in DISABLED state") {
		t.Errorf("a disabled version: %v", err)
	}
	if _, err := regional.Versions.Destroy(parent+"/secrets/admin/versions/1", &secretmanager.DestroySecretVersionRequest{}).Do(); err != nil {
		t.Error(err)
	}
	if _, err := read("1"); err == nil || !strings.Contains(err.Error(), "is in DESTROYED state") {
		t.Errorf("a destroyed version: %v", err)
	}
}

// TestSecretsFaults: a secret whose reply was lost is there, and one that was swallowed is not.
func TestSecretsFaults(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	s := client(g, secretmanager.NewService).Projects.Locations.Secrets
	const parent = "projects/" + testProject + "/locations/europe-west1"
	for kind, there := range map[sim.FaultKind]bool{sim.FaultLostReply: true, sim.FaultSwallow: false} {
		f, err := g.world.AddFault(sim.Fault{Kind: kind, Service: "secretmanager", Operation: "*.create"})
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Create(parent, &secretmanager.Secret{}).SecretId(strings.ReplaceAll(string(kind), "_", "-")).Do()
		if lost := err != nil; lost != there {
			t.Errorf("%s: %v", kind, err)
		}
		if _, err := s.Get(parent + "/secrets/" + strings.ReplaceAll(string(kind), "_", "-")).Do(); (err == nil) != there {
			t.Errorf("%s: %v", kind, err)
		}
		g.world.ClearFaults(f.ID)
	}
}
