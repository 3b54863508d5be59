package components

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/zopday/provisioner/internal/pipeline"
)

// The media types of the layer that is the chart: Helm's own, and the one from
// when OCI support was an experiment.
const (
	chartLayer    = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
	oldChartLayer = "application/tar+gzip"
)

// fetchOCI gets a chart from a registry. Digests are verified on the way.
func (e *Engine) fetchOCI(ctx context.Context, repository, name, version string) ([]byte, error) {
	address := repository + "/" + name
	repo, err := remote.NewRepository(strings.TrimPrefix(address, "oci://"))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", address, err)
	}
	repo.PlainHTTP = e.plain
	repo.Client = &auth.Client{
		Client: e.http, Cache: auth.NewCache(),
		Credential: func(_ context.Context, host string) (auth.Credential, error) {
			user, password := e.login(host)
			return auth.Credential{Username: user, Password: password}, nil
		},
	}
	// Helm tags a version with an underscore for the plus sign, which tags cannot hold.
	desc, manifest, err := readManifest(ctx, repo, strings.ReplaceAll(version, "+", "_"))
	if err != nil {
		return nil, ociError(ctx, repository, address, name, version, err)
	}
	layer, err := chartIn(manifest)
	if err != nil {
		return nil, fmt.Errorf("%s@%s: %w", address, desc.Digest, err)
	}
	if layer.Size > mostArchive {
		return nil, pipeline.Fatal("chart-too-large", fmt.Sprintf("%s %s is larger than %d MiB", address, version, mostArchive>>20), "Check the chart's source in the catalogue.")
	}
	b, err := content.FetchAll(ctx, repo, *layer)
	if err != nil {
		return nil, ociError(ctx, repository, address, name, version, err)
	}
	return b, nil
}

func readManifest(ctx context.Context, repo *remote.Repository, tag string) (ocispec.Descriptor, []byte, error) {
	desc, rc, err := repo.Manifests().FetchReference(ctx, tag)
	if err != nil {
		return desc, nil, err
	}
	defer rc.Close()
	b, err := content.ReadAll(rc, desc)
	return desc, b, err
}

func chartIn(manifest []byte) (*ocispec.Descriptor, error) {
	var m ocispec.Manifest
	if err := json.Unmarshal(manifest, &m); err != nil {
		return nil, err
	}
	for i, l := range m.Layers {
		if l.MediaType == chartLayer || l.MediaType == oldChartLayer {
			return &m.Layers[i], nil
		}
	}
	return nil, errors.New("is no chart: it has no layer of a chart's media type")
}

// ociError gives a registry's error its meaning.
func ociError(ctx context.Context, repository, address, name, version string, err error) error {
	missing := noSuchVersion(repository, name, version, "")
	var answer *errcode.ErrorResponse
	switch {
	case errors.Is(err, errdef.ErrNotFound):
		return missing
	case errors.As(err, &answer):
		return answered(address, answer.StatusCode, missing)
	case errors.Is(err, auth.ErrBasicCredentialNotFound):
		return answered(address, http.StatusUnauthorized, missing)
	}
	return unreachable(ctx, address, err)
}
