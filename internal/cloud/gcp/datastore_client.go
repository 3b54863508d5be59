package gcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"

	"google.golang.org/api/monitoring/v3"
	"google.golang.org/api/networkconnectivity/v1"
	"google.golang.org/api/option"
	"google.golang.org/api/redis/v1"
	"google.golang.org/api/secretmanager/v1"
	"google.golang.org/api/sqladmin/v1"

	"github.com/zopday/provisioner/internal/pipeline"
)

// dataServices are the clients of what datastores and caches are made with.
type dataServices struct {
	sql          *sqladmin.Service
	redis        *redis.Service
	secrets      *secretmanager.Service
	monitoring   *monitoring.Service
	connectivity *networkconnectivity.Service
	memorystore  restClient
}

func newDataServices(ctx context.Context, region string, cfg Config, client func(string) *http.Client, options func(string) []option.ClientOption) (d dataServices, err error) {
	if d.sql, err = sqladmin.NewService(ctx, options(serviceSQL)...); err != nil {
		return d, err
	}
	if d.redis, err = redis.NewService(ctx, options(serviceRedis)...); err != nil {
		return d, err
	}
	secrets := options(serviceSecrets)
	if cfg.endpoint(serviceSecrets) == "" {
		// Regional secrets are served in their region alone ("Create a regional secret").
		secrets = append(secrets, option.WithEndpoint("https://secretmanager."+region+".rep.googleapis.com/"))
	}
	if d.secrets, err = secretmanager.NewService(ctx, secrets...); err != nil {
		return d, err
	}
	if d.monitoring, err = monitoring.NewService(ctx, options(serviceMonitoring)...); err != nil {
		return d, err
	}
	if d.connectivity, err = networkconnectivity.NewService(ctx, options(serviceConnectivity)...); err != nil {
		return d, err
	}
	d.memorystore = restClient{http: client(serviceMemorystore), base: or(cfg.endpoint(serviceMemorystore), "https://memorystore.googleapis.com/")}
	return d, nil
}

// A restClient calls a service for which google.golang.org/api has no client.
type restClient struct {
	http *http.Client
	base string
}

// do sends one request; in and out may be nil.
func (c restClient) do(ctx context.Context, method, path string, query url.Values, in, out any) error {
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(text)
	}
	at := c.base + "v1/" + path
	if len(query) > 0 {
		at += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, at, body)
	if err != nil {
		return err
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return plain(err)
	}
	defer func() { _ = resp.Body.Close() }() // the transport has read it as a whole
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil && !errors.Is(err, io.EOF) {
		return &pipeline.CloudError{Class: pipeline.Unavailable, Service: serviceMemorystore, Op: method + " " + base(path), Message: "the answer cannot be read: " + err.Error(), Sent: true, Err: err}
	}
	return nil
}
