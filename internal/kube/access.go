// Package kube talks to the API servers of clusters: it turns how a cluster is
// reached into clients, and does what the provisioner itself wants of every
// cluster: nodes that are ready, encrypted storage by default, pod security
// labels, and before a teardown the removal of what the cluster made outside of
// itself.
//
// Every call asks the gates of the job's context, as the calls to a cloud do.
package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/pipeline"
)

// Service is how the API server is called in errors.
const Service = "Kubernetes"

// RESTConfig is a client's configuration for a cluster. A token is minted for
// every request that needs one, so that none goes stale in the middle of a
// step. The gates of ctx stand before every call, whatever context a library
// makes it with; ctx also bounds the life of the calls.
func RESTConfig(ctx context.Context, access cloud.KubeAccess) (*rest.Config, error) {
	server, err := url.Parse(access.Server)
	if err != nil || server.Scheme != "https" || server.Host == "" {
		return nil, fmt.Errorf("the API server's address %.100q is no https URL", access.Server)
	}
	transport, err := transports.get(access)
	if err != nil {
		return nil, err
	}
	return &rest.Config{
		Host:      access.Server,
		Transport: &guarded{job: ctx, next: transport, server: server.Host, token: access.Token},
		// One job makes few calls at a time, but a chart has many objects.
		QPS: 50, Burst: 100,
		UserAgent: "zopday-provisioner",
		// What an API server warns of, such as pod security, is not this process's output.
		WarningHandler: rest.NoWarnings{},
	}, nil
}

// guarded asks the job's gates and puts a fresh token on every request, which goes
// to the API server alone: the token is one of the cloud account's, and what
// answers behind the server (a kubelet, an aggregated API) could redirect the
// client to a place of its own.
type guarded struct {
	job    context.Context
	next   *http.Transport
	server string // host and port
	token  func(context.Context) (string, error)
}

func (g *guarded) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme != "https" || req.URL.Host != g.server {
		return nil, &pipeline.CloudError{Class: pipeline.Unavailable, Service: Service, Op: req.Method, Message: "the API server redirects to " + req.URL.Host + ", where nothing is sent"}
	}
	if err := g.job.Err(); err != nil && req.Method != http.MethodGet {
		return nil, err // nothing new is begun once the job is being cancelled
	}
	mutating := req.Method != http.MethodGet && req.Method != http.MethodHead && req.Method != http.MethodOptions
	if err := pipeline.Allow(g.job, pipeline.Call{Service: Service, Op: req.Method + " " + req.URL.Path, Mutating: mutating}); err != nil {
		return nil, &pipeline.CloudError{Class: pipeline.Refused, Service: Service, Op: req.Method + " " + req.URL.Path, Message: err.Error(), Err: err}
	}
	token, err := g.token(req.Context())
	if err != nil {
		return nil, err
	}
	out := req.Clone(req.Context())
	out.Header.Set("Authorization", "Bearer "+token)
	return g.next.RoundTrip(out)
}

// Interface is the typed client of a cluster.
type Interface = kubernetes.Interface

// Version is the version of a cluster's API server, such as v1.36.2.
func Version(c Interface) (string, error) {
	// Not ServerVersion, whose errors lose what the API server says in its status.
	res := c.Discovery().RESTClient().Get().AbsPath("/version").Do(context.Background())
	if err := res.Error(); err != nil {
		return "", Classify("get version", err)
	}
	body, err := res.Raw()
	if err != nil {
		return "", Classify("get version", err)
	}
	var v version.Info
	if err := json.Unmarshal(body, &v); err != nil {
		return "", Classify("get version", err)
	}
	return v.GitVersion, nil
}

// Client is the typed client of a cluster, for the life of ctx.
func Client(ctx context.Context, access cloud.KubeAccess) (Interface, error) {
	cfg, err := RESTConfig(ctx, access)
	if err != nil {
		return nil, err
	}
	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("client of %s: %w", access.Server, err)
	}
	return c, nil
}

// Classify gives an error of an API server its meaning. op is what was being
// done, such as "list nodes".
func Classify(op string, err error) error {
	if err == nil {
		return nil
	}
	var ce *pipeline.CloudError
	var wait *pipeline.WaitError
	var fatal *pipeline.FatalError
	if errors.As(err, &ce) || errors.As(err, &wait) || errors.As(err, &fatal) {
		return err // its own gate's, or a cloud's that mints tokens
	}
	out := &pipeline.CloudError{Class: pipeline.Unavailable, Service: Service, Op: op, Message: err.Error(), Sent: true, Err: err}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		out.Sent = !neverSent(err)
		return out
	}
	out.Code, out.Message = string(status.Status().Reason), status.Status().Message
	if s, ok := apierrors.SuggestsClientDelay(err); ok {
		out.RetryAfter = time.Duration(s) * time.Second
	}
	switch {
	case apierrors.IsNotFound(err):
		out.Class = pipeline.NotFound
	case apierrors.IsAlreadyExists(err):
		out.Class = pipeline.Exists
	case apierrors.IsConflict(err):
		out.Class = pipeline.Busy
	case apierrors.IsTooManyRequests(err):
		out.Class = pipeline.Throttled
	case apierrors.IsForbidden(err):
		out.Class = pipeline.Denied
	case apierrors.IsUnauthorized(err):
		out.Class = pipeline.Expired
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsMethodNotSupported(err), apierrors.IsRequestEntityTooLargeError(err):
		out.Class = pipeline.Invalid
	}
	return out
}

// neverSent reports whether a request cannot have reached the server.
func neverSent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}
