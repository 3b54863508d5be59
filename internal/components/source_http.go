package components

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"

	"github.com/Masterminds/semver/v3"
	"sigs.k8s.io/yaml"

	"github.com/zopday/provisioner/internal/pipeline"
)

// The largest files that are taken, in bytes. The index of a repository with
// many versions of many charts has tens of MB.
const (
	mostIndex   = 64 << 20
	mostArchive = 32 << 20
)

// parsing lets one index be read at a time: they are large.
var parsing sync.Mutex

// fetchHTTP gets a chart from a repository: from a mirror by its plain name, else
// by the address in the index.
func (e *Engine) fetchHTTP(ctx context.Context, repository, name, version string) ([]byte, error) {
	missing := errors.New("missing")
	if e.mirror != "" {
		b, err := e.download(ctx, fmt.Sprintf("%s/%s-%s.tgz", repository, url.PathEscape(name), url.PathEscape(version)), mostArchive, missing)
		if !errors.Is(err, missing) {
			return b, err
		}
	}
	index, err := e.download(ctx, repository+"/index.yaml", mostIndex, missing)
	if errors.Is(err, missing) {
		return nil, noSuchVersion(repository, name, version, "")
	}
	if err != nil {
		return nil, err
	}
	found, newest, err := findInIndex(index, name, version)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s/index.yaml: %w", repository, err)
	case found == nil:
		return nil, noSuchVersion(repository, name, version, newest)
	}
	address, err := resolveURL(repository, found.URLs[0])
	if err != nil {
		return nil, err
	}
	b, err := e.download(ctx, address, mostArchive, missing)
	if errors.Is(err, missing) {
		return nil, noSuchVersion(repository, name, version, newest)
	}
	if err != nil {
		return nil, err
	}
	if _, decodes := hex.DecodeString(found.Digest); decodes == nil && len(found.Digest) == 64 && newArchive(b).digest != "sha256:"+found.Digest {
		return nil, &pipeline.CloudError{
			Class: pipeline.Unavailable, Service: chartService, Op: "get " + address, Sent: true,
			Message: "the archive does not have the digest that the repository's index says",
		}
	}
	return b, nil
}

// An indexEntry is one version of a chart in a repository's index.
type indexEntry struct {
	Version string   `json:"version"`
	URLs    []string `json:"urls"`
	Digest  string   `json:"digest"`
}

func findInIndex(index []byte, name, version string) (found *indexEntry, newest string, err error) {
	entries, err := versionsIn(index, name)
	if err != nil {
		return nil, "", err
	}
	want, err := semver.NewVersion(version)
	if err != nil {
		return nil, "", err
	}
	var top *semver.Version
	for _, entry := range entries {
		v, err := semver.NewVersion(entry.Version)
		if err != nil {
			continue // indexes hold versions from before there were rules
		}
		if top == nil && v.Prerelease() == "" || top != nil && v.GreaterThan(top) && v.Prerelease() == "" {
			top, newest = v, entry.Version
		}
		if v.Equal(want) && len(entry.URLs) > 0 {
			found = &entry
		}
	}
	return found, newest, nil
}

// versionsIn lists the versions of a chart in an index.
func versionsIn(index []byte, name string) ([]indexEntry, error) {
	parsing.Lock()
	defer parsing.Unlock()
	var doc struct {
		Entries map[string][]indexEntry `json:"entries"`
	}
	if cut := cutEntry(index, name); cut != nil && yaml.Unmarshal(cut, &doc) == nil {
		return doc.Entries[name], nil
	}
	doc.Entries = nil
	err := yaml.Unmarshal(index, &doc)
	return doc.Entries[name], err
}

// resolveURL is an address of an index, which may be relative to it.
func resolveURL(repository, address string) (string, error) {
	base, err := url.Parse(repository + "/")
	if err != nil {
		return "", err
	}
	u, err := base.Parse(address)
	if err != nil {
		return "", fmt.Errorf("%s: the index holds an address that is none: %w", repository, err)
	}
	return u.String(), nil
}

// download reads an address; the login of the source's host goes to that host alone.
func (e *Engine) download(ctx context.Context, address string, most int64, missing error) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, err
	}
	if user, password := e.login(req.URL.Host); user != "" {
		req.SetBasicAuth(user, password)
	}
	resp, err := e.http.Do(req)
	if err != nil {
		return nil, unreachable(ctx, address, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, answered(address, resp.StatusCode, missing)
	}
	var b bytes.Buffer
	n, err := io.Copy(&b, io.LimitReader(resp.Body, most+1))
	if err != nil {
		return nil, unreachable(ctx, address, err)
	}
	if n > most {
		return nil, pipeline.Fatal("chart-too-large", fmt.Sprintf("%s is larger than %d MiB", address, most>>20), "Check the chart's source in the catalogue.")
	}
	return b.Bytes(), nil
}
