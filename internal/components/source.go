package components

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// chartService is how chart sources are called in errors.
const chartService = "Charts"

// fetch gets a version of a component's chart, and verifies its digest if the
// catalogue pins one.
func (e *Engine) fetch(ctx context.Context, entry Entry, version string) (*archive, error) {
	chart := entry.Chart
	repository := chart.Repository
	if e.mirror != "" {
		repository = e.mirror
	}
	a, err := e.charts.get(repository+" "+chart.Name+" "+version, func() (*archive, error) {
		var b []byte
		var err error
		if strings.HasPrefix(repository, "oci://") {
			b, err = e.fetchOCI(ctx, repository, chart.Name, version)
		} else {
			b, err = e.fetchHTTP(ctx, repository, chart.Name, version)
		}
		if err != nil {
			return nil, err
		}
		return newArchive(b), nil
	})
	if err != nil {
		return nil, err
	}
	if chart.Digest != "" && version == entry.Version && a.digest != chart.Digest {
		return nil, pipeline.Fatal("chart-altered",
			fmt.Sprintf("the chart %s %s from %s has digest %s, and the catalogue pins %s", chart.Name, version, repository, a.digest, chart.Digest),
			"Find out who changed it. If the new one is right, pin its digest in the catalogue, then retry.")
	}
	return a, nil
}

// unreachable is a chart source that cannot be asked now; it is tried again.
func unreachable(ctx context.Context, address string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	// The address that http.Client puts into its error is the same again.
	var ue *url.Error
	if errors.As(err, &ue) {
		err = ue.Err
	}
	var op *net.OpError
	return &pipeline.CloudError{
		Class: pipeline.Unavailable, Service: chartService, Op: "get " + address, Sent: !errors.As(err, &op) || op.Op != "dial",
		Message: fmt.Sprintf("the chart source cannot be reached (%v); where it never can, point the catalogue at a mirror", err),
		Err:     err,
	}
}

// answered gives an answer other than 200 its meaning. missing is what a 404 means.
func answered(address string, status int, missing error) error {
	switch status {
	case http.StatusNotFound:
		return missing
	case http.StatusUnauthorized, http.StatusForbidden:
		return pipeline.Fatal("chart-source-denied", fmt.Sprintf("the chart source %s answers %d %s", address, status, http.StatusText(status)),
			"Give the provisioner a login for it, or point the catalogue at a mirror, then retry.")
	case http.StatusTooManyRequests:
		return &pipeline.CloudError{Class: pipeline.Throttled, Service: chartService, Op: "get " + address, Code: "429", Message: "too many requests", Sent: true}
	}
	return &pipeline.CloudError{
		Class: pipeline.Unavailable, Service: chartService, Op: "get " + address, Code: fmt.Sprint(status), Message: http.StatusText(status), Sent: true,
	}
}

// noSuchVersion says that a source does not have a version of a chart, and what
// it has instead.
func noSuchVersion(repository, name, version, newest string) error {
	fix := "leave the version out to get the pinned one"
	if newest != "" {
		fix = fmt.Sprintf("its newest is %s; %s", newest, fix)
	}
	return &job.Invalid{Fields: []job.FieldError{{
		Field: "version", Message: fmt.Sprintf("%s has no version %.60q of the chart %s", repository, version, name), Fix: fix,
	}}}
}
