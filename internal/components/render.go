package components

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/engine"
	release "helm.sh/helm/v4/pkg/release/v1"
	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"
	"k8s.io/client-go/rest"

	"github.com/zopday/provisioner/internal/kube"
)

// loadChart reads a chart. It is read anew for every operation, because Helm
// writes into the charts it works with.
func loadChart(archive []byte) (*chart.Chart, error) {
	ch, err := loader.LoadArchive(bytes.NewReader(archive))
	if err != nil {
		return nil, fmt.Errorf("the archive is no chart: %w", err)
	}
	if err := ch.Validate(); err != nil {
		return nil, fmt.Errorf("the archive is no valid chart: %w", err)
	}
	if ch.Metadata.Type == "library" {
		return nil, fmt.Errorf("%s is a library of templates and installs nothing", ch.Name())
	}
	for _, d := range ch.Metadata.Dependencies {
		found := false
		for _, have := range ch.Dependencies() {
			found = found || have.Name() == d.Name
		}
		if !found {
			return nil, fmt.Errorf("the archive lacks the chart %s that %s is made of", d.Name, ch.Name())
		}
	}
	return ch, nil
}

// A rendering is what a chart becomes with its values.
type rendering struct {
	values   common.Values // all of them, the chart's own included
	hooks    []*release.Hook
	manifest string
	notes    string
}

// coalesce brings a chart's parts in line with the values, and the values
// together with the chart's own.
func coalesce(ch *chart.Chart, values map[string]any, opts common.ReleaseOptions, caps *common.Capabilities) (common.Values, error) {
	if err := chartutil.ProcessDependencies(ch, values); err != nil {
		return nil, err
	}
	return util.ToRenderValuesWithSchemaValidation(ch, values, opts, caps, true)
}

// render renders a chart. cfg reaches the cluster for templates that look things
// up; nil: they find nothing.
func render(ctx context.Context, ch *chart.Chart, top common.Values, cfg *rest.Config) (*rendering, error) {
	var e engine.Engine
	if cfg != nil {
		e = engine.New(cfg)
	}
	files, err := e.RenderWithContext(ctx, ch, top)
	if err != nil {
		return nil, err
	}
	out := &rendering{values: top}
	for name, text := range files {
		if strings.HasSuffix(name, "NOTES.txt") {
			if name == ch.Name()+"/templates/NOTES.txt" {
				out.notes = text
			}
			delete(files, name)
		}
	}
	hooks, manifests, err := releaseutil.SortManifests(files, nil, releaseutil.InstallOrder)
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	for _, m := range manifests {
		fmt.Fprintf(&b, "---\n# Source: %s\n%s\n", m.Name, m.Content)
	}
	out.hooks, out.manifest = hooks, b.String()
	return out, nil
}

// probable are kinds that charts ask for before they use them. A cluster is only
// asked when something is done to it; until then they are taken to be there, so
// that a chart is not refused for what another component brings.
var probable = []string{
	"monitoring.coreos.com/v1", "monitoring.coreos.com/v1/ServiceMonitor", "monitoring.coreos.com/v1/PodMonitor", "monitoring.coreos.com/v1/PrometheusRule",
	"cert-manager.io/v1", "cert-manager.io/v1/Certificate", "cert-manager.io/v1/Issuer",
	"gateway.networking.k8s.io/v1", "gateway.networking.k8s.io/v1/Gateway", "gateway.networking.k8s.io/v1/HTTPRoute",
}

var defaultCapabilities = sync.OnceValue(func() *common.Capabilities {
	caps := common.DefaultCapabilities.Copy()
	caps.APIVersions = append(caps.APIVersions, probable...)
	return caps
})

// offline is what a cluster of a version is taken to be able to do.
func offline(kubeVersion string) (*common.Capabilities, error) {
	caps := defaultCapabilities().Copy()
	if kubeVersion == "" {
		return caps, nil
	}
	v, err := parseKubeVersion(kubeVersion)
	if err != nil {
		return nil, err
	}
	caps.KubeVersion = common.KubeVersion{Version: "v" + v.String(), Major: fmt.Sprint(v.Major()), Minor: fmt.Sprint(v.Minor())}
	return caps, nil
}

// capabilities are what a cluster can do. Its version is the plain one: what
// clouds add to it looks like a pre-release, which ranges leave out.
func (c *cluster) capabilities() (*common.Capabilities, error) {
	version, err := c.disco.ServerVersion()
	if err != nil {
		return nil, kube.Classify("get version", err)
	}
	apis, err := action.GetVersionSet(c.disco)
	if err != nil {
		return nil, kube.Classify("list kinds", err)
	}
	caps := common.DefaultCapabilities.Copy()
	caps.APIVersions = apis
	caps.KubeVersion = common.KubeVersion{Version: version.GitVersion, Major: version.Major, Minor: version.Minor}
	if v, err := parseKubeVersion(version.GitVersion); err == nil {
		caps.KubeVersion.Version = "v" + v.String()
	}
	return caps, nil
}

// errKubeRange is a chart that does not take the cluster's version.
var errKubeRange = errors.New("the chart does not take this version of Kubernetes")

func checkKubeRange(ch *chart.Chart, caps *common.Capabilities) error {
	if ch.Metadata.KubeVersion != "" && !chartutil.IsCompatibleRange(ch.Metadata.KubeVersion, caps.KubeVersion.String()) {
		return fmt.Errorf("%w: it wants %s", errKubeRange, ch.Metadata.KubeVersion)
	}
	return nil
}
