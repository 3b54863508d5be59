package components

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"

	rcommon "helm.sh/helm/v4/pkg/release/common"
	release "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/storage/driver"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/zopday/provisioner/internal/kube"
	"github.com/zopday/provisioner/internal/pipeline"
)

// The marks of a release: labels of the Secrets in which Helm stores it. A
// label's key takes no colon, so the owner mark is spelt otherwise than elsewhere.
const (
	labelOwner     = "zopday-owner"
	labelComponent = "zopday-component"
)

var secretsResource = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}

// A record is what a cluster has stored of a release.
type record struct {
	last      *release.Release // its newest revision
	owner     string           // the owner mark, or pipeline.Unmarked
	component string           // its name in the catalogue, if it is one of ours
	revisions []revision       // oldest first
}

type revision struct {
	number int
	status rcommon.Status
}

// good is the newest revision before the last one that was once in place; 0: none.
func (r *record) good() int {
	best := 0
	for _, v := range r.revisions {
		if v.status == rcommon.StatusDeployed && v.number != r.last.Version {
			return v.number // the one that is in place
		}
		if v.status == rcommon.StatusSuperseded && v.number != r.last.Version {
			best = v.number
		}
	}
	return best
}

// deployed are the revisions that are called deployed; there should be one.
func (r *record) deployed() []int {
	var out []int
	for _, v := range r.revisions {
		if v.status == rcommon.StatusDeployed {
			out = append(out, v.number)
		}
	}
	return out
}

// errVanished is a revision that was listed a moment ago.
var errVanished = errors.New("it is gone")

func secretName(name string, revision int) string {
	return fmt.Sprintf("sh.helm.release.v1.%s.v%d", name, revision)
}

// history lists what is stored of a release, without its contents.
func (c *cluster) history(ctx context.Context, at Place) ([]metav1.PartialObjectMetadata, error) {
	list, err := c.meta.Resource(secretsResource).Namespace(at.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "owner=helm,name=" + at.Release})
	if err != nil {
		return nil, kube.Classify("list the revisions of the release "+at.ID(), err)
	}
	all := slices.DeleteFunc(list.Items, func(m metav1.PartialObjectMetadata) bool { return number(m) == 0 })
	slices.SortFunc(all, func(a, b metav1.PartialObjectMetadata) int { return number(a) - number(b) })
	return all, nil
}

func number(m metav1.PartialObjectMetadata) int {
	n, err := strconv.Atoi(m.Labels["version"])
	if err != nil {
		return 0
	}
	return n
}

// record reads a release; nil if there is none.
func (c *cluster) record(ctx context.Context, at Place) (*record, error) {
	all, err := c.history(ctx, at)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	newest := all[len(all)-1]
	out := &record{owner: newest.Labels[labelOwner], component: newest.Labels[labelComponent]}
	if out.owner == "" {
		out.owner = pipeline.Unmarked
	}
	for _, m := range all {
		out.revisions = append(out.revisions, revision{number: number(m), status: rcommon.Status(m.Labels["status"])})
	}
	out.last, err = c.revision(ctx, at, number(newest))
	return out, err
}

// revision reads one revision of a release that is listed.
func (c *cluster) revision(ctx context.Context, at Place, n int) (*release.Release, error) {
	secret, err := c.core.Secrets(at.Namespace).Get(ctx, secretName(at.Release, n), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		// Listed and not there: the storage is in trouble, or it was removed just now (failure N5).
		return nil, &pipeline.CloudError{
			Class: pipeline.Unavailable, Service: kube.Service, Op: "get the release " + at.ID(), Sent: true,
			Message: fmt.Sprintf("revision %d is listed and cannot be read", n), Err: errVanished,
		}
	case err != nil:
		return nil, kube.Classify("get the release "+at.ID(), err)
	}
	r, err := decode(secret.Data["release"])
	if err != nil {
		return nil, pipeline.Fatal("release-unreadable", fmt.Sprintf("revision %d of the release %s cannot be read: %v", n, at.ID(), err),
			"Remove the Secret "+secretName(at.Release, n)+" if it is spoilt, then retry.")
	}
	r.Labels = maps.Clone(secret.Labels)
	maps.DeleteFunc(r.Labels, func(k, _ string) bool { return slices.Contains(driver.GetSystemLabels(), k) })
	return r, nil
}

// mostDecoded bounds how large a release gets when it is unpacked, in bytes.
const mostDecoded = 256 << 20

// decode reads a release as Helm stores it: JSON, compressed, in base64.
func decode(stored []byte) (*release.Release, error) {
	raw := make([]byte, base64.StdEncoding.DecodedLen(len(stored)))
	n, err := base64.StdEncoding.Decode(raw, stored)
	if err != nil {
		return nil, err
	}
	raw = raw[:n]
	if bytes.HasPrefix(raw, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(bytes.NewReader(raw))
		if err != nil {
			return nil, err
		}
		if raw, err = io.ReadAll(io.LimitReader(z, mostDecoded)); err != nil {
			return nil, err
		}
	}
	var r release.Release
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, err
	}
	if r.Info == nil || r.Chart == nil || r.Chart.Metadata == nil {
		return nil, fmt.Errorf("it holds no release")
	}
	return &r, nil
}
