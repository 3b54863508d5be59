package charts

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"
	"sigs.k8s.io/yaml"
)

// Helm reads every stand-in, its own values meet its own schema, and it renders
// to objects.
func TestStandInsRender(t *testing.T) {
	hooks, balancers := 0, 0
	for _, c := range StandIns() {
		ch, err := loader.LoadArchive(bytes.NewReader(c.Archive()))
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		if ch.Name() != c.Name || ch.Metadata.Version != c.Version || !strings.Contains(ch.Metadata.Description, "stand-in") {
			t.Errorf("%s: %+v", c.Name, ch.Metadata)
		}
		values, err := util.ToRenderValues(ch, nil, common.ReleaseOptions{Name: "r", Namespace: "n", IsInstall: true}, nil)
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		files, err := engine.Render(ch, values)
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		delete(files, c.Name+"/templates/NOTES.txt")
		hs, objects, err := releaseutil.SortManifests(files, nil, releaseutil.InstallOrder)
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		hooks += len(hs)
		kinds := map[string]int{}
		for _, o := range objects {
			kinds[o.Head.Kind]++
			if strings.Contains(o.Content, "type: LoadBalancer") {
				balancers++
			}
		}
		if kinds["Service"] != 1 || kinds["ServiceAccount"] != 1 || kinds["Deployment"]+kinds["DaemonSet"]+kinds["StatefulSet"] != 1 {
			t.Errorf("%s: %v", c.Name, kinds)
		}
		for _, crd := range ch.CRDObjects() {
			var doc map[string]any
			if err := yaml.UnmarshalStrict(crd.File.Data, &doc); err != nil {
				t.Errorf("%s: %s: %v", c.Name, crd.Filename, err)
			}
		}
	}
	if hooks < 5 || balancers != 1 {
		t.Errorf("%d hooks, %d load balancers", hooks, balancers)
	}
}

func TestServer(t *testing.T) {
	s := New(StandIns()...)
	s.Add(Chart{Name: "plus", Version: "1.0.0+build"})
	srv := httptest.NewServer(s)
	defer srv.Close()
	get := func(path string) (int, string, http.Header) {
		resp, err := http.Get(srv.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body), resp.Header
	}
	status, index, _ := get("/some/where/index.yaml")
	var list struct {
		Entries map[string][]struct{ Version, Digest string }
	}
	if err := json.Unmarshal([]byte(index), &list); status != 200 || err != nil || len(list.Entries) != len(table)+1 {
		t.Errorf("index: %d, %v, %d entries", status, err, len(list.Entries))
	}
	status, archive, _ := get("/some/where/keda-2.20.2.tgz")
	if status != 200 || strings.TrimPrefix(digest([]byte(archive)), "sha256:") != list.Entries["keda"][0].Digest {
		t.Errorf("archive: %d", status)
	}
	status, manifest, head := get("/v2/any/path/keda/manifests/2.20.2")
	var m struct {
		Layers []struct{ MediaType, Digest string }
	}
	if err := json.Unmarshal([]byte(manifest), &m); status != 200 || err != nil || len(m.Layers) != 1 || head.Get("Docker-Content-Digest") != digest([]byte(manifest)) {
		t.Fatalf("manifest: %d %v %s", status, err, manifest)
	}
	if status, body, _ := get("/v2/any/path/keda/blobs/" + m.Layers[0].Digest); status != 200 || body != archive {
		t.Errorf("blob: %d", status)
	}
	if status, body, _ := get("/v2/plus/tags/list"); status != 200 || !strings.Contains(body, `"1.0.0_build"`) {
		t.Errorf("tags: %d %s", status, body)
	}
	if status, _, _ := get("/v2/plus/manifests/1.0.0_build"); status != 200 {
		t.Errorf("a version with a plus sign: %d", status)
	}
	for _, path := range []string{
		"/keda-9.9.9.tgz", "/v2/keda/manifests/9.9.9", "/v2/keda/blobs/sha256:00", "/v2/nothing/tags/list", "/v2/keda/what/x", "/v2/keda",
	} {
		if status, _, _ := get(path); status != http.StatusNotFound {
			t.Errorf("%s: %d", path, status)
		}
	}
	if status, _, _ := get("/v2/"); status != 200 {
		t.Errorf("ping: %d", status)
	}
	resp, err := http.Post(srv.URL+"/v2/keda/blobs/uploads/", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("upload: %d", resp.StatusCode)
	}
}

// The same chart is the same bytes, or its digest would change with every start.
func TestArchiveIsReproducible(t *testing.T) {
	for _, c := range StandIns() {
		if !bytes.Equal(c.Archive(), c.Archive()) {
			t.Errorf("%s differs", c.Name)
		}
	}
}
