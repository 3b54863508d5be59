package charts

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A Chart is a chart to be served. Files are its files besides Chart.yaml, by
// their path in it, such as templates/deployment.yaml.
type Chart struct {
	Name        string
	Version     string
	AppVersion  string
	Description string
	KubeVersion string // a range; empty: any
	Files       map[string]string
}

// meta is the chart's Chart.yaml.
func (c Chart) meta() string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: v2\nname: %s\nversion: %s\ntype: application\ndescription: %q\n", c.Name, c.Version, c.Description)
	if c.AppVersion != "" {
		fmt.Fprintf(&b, "appVersion: %q\n", c.AppVersion)
	}
	if c.KubeVersion != "" {
		fmt.Fprintf(&b, "kubeVersion: %q\n", c.KubeVersion)
	}
	return b.String()
}

// Archive is the chart as the .tgz that Helm reads, the same bytes every time.
func (c Chart) Archive() []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	t := tar.NewWriter(z)
	files := maps.Clone(c.Files)
	if files == nil {
		files = map[string]string{}
	}
	files["Chart.yaml"] = c.meta()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		body := files[name]
		// Writes to a buffer do not fail, and the header holds nothing that tar refuses.
		_ = t.WriteHeader(&tar.Header{Name: c.Name + "/" + name, Mode: 0o644, Size: int64(len(body)), Typeflag: tar.TypeReg})
		_, _ = t.Write([]byte(body))
	}
	_ = t.Close()
	_ = z.Close()
	return out.Bytes()
}

// digest is the sha256: digest of some bytes.
func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}
