package azure

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resources/armresources/v4"

	"github.com/zopday/provisioner/internal/sim"
)

// A rig is a simulated Azure behind TLS, and what real clients need to talk to it.
type rig struct {
	t     *testing.T
	world *sim.World
	cloud *Cloud
	url   string
	http  *http.Client
	ctx   context.Context
}

// newRig starts a simulation whose clock stands still.
func newRig(t *testing.T, change ...func(*sim.Options)) *rig {
	t.Helper()
	opt := sim.Options{Seed: 1, ConsistencyByID: -1, ConsistencyByList: -1, EmptyPages: -1}
	for _, f := range change {
		f(&opt)
	}
	w := sim.New(opt)
	c := New(w, Options{})
	w.Clock.Stop()
	cert, err := NewCertificate("login.microsoftonline.com")
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(c)
	srv.TLS = cert.Config
	srv.StartTLS()
	t.Cleanup(srv.Close)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(cert.CA)
	addr := strings.TrimPrefix(srv.URL, "https://")
	// Every host leads to the simulation, that of Microsoft's own authority too.
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}
	return &rig{t: t, world: w, cloud: c, url: srv.URL, ctx: t.Context(),
		http: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, DialContext: dial}}}
}

func (g *rig) clientOptions() policy.ClientOptions {
	return policy.ClientOptions{Transport: g.http, Retry: policy.RetryOptions{MaxRetries: -1},
		Cloud: cloud.Configuration{ActiveDirectoryAuthorityHost: g.url + "/", Services: map[cloud.ServiceName]cloud.ServiceConfiguration{
			cloud.ResourceManager: {Endpoint: g.url, Audience: "https://management.core.windows.net/"}}}}
}

func (g *rig) credential(id, secret string, noDiscovery bool) azcore.TokenCredential {
	g.t.Helper()
	cred, err := azidentity.NewClientSecretCredential(DefaultTenant, id, secret, &azidentity.ClientSecretCredentialOptions{
		ClientOptions: g.clientOptions(), DisableInstanceDiscovery: noDiscovery})
	if err != nil {
		g.t.Fatal(err)
	}
	return cred
}

// arm are the options and credential of the default client.
func (g *rig) arm() (azcore.TokenCredential, *arm.ClientOptions) {
	return g.credential(DefaultClientID, DefaultClientSecret, true), &arm.ClientOptions{ClientOptions: g.clientOptions(), DisableRPRegistration: true}
}

// wait polls an operation to its end, moving the simulated clock instead of sleeping.
func wait[T any](g *rig, p *runtime.Poller[T], err error) (T, error) {
	g.t.Helper()
	var zero T
	if err != nil {
		return zero, err
	}
	for range 200 {
		if p.Done() {
			return p.Result(g.ctx)
		}
		g.world.Step(5 * time.Second)
		if _, err := p.Poll(g.ctx); err != nil {
			return zero, err
		}
	}
	g.t.Fatal("the operation does not end")
	return zero, nil
}

// done is wait for operations that have to succeed.
func done[T any](g *rig, p *runtime.Poller[T], err error) T {
	g.t.Helper()
	v, err := wait(g, p, err)
	if err != nil {
		g.t.Fatal(err)
	}
	return v
}

// must is for calls that have to succeed.
func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// refused checks status and code of a refusal.
func refused(t *testing.T, err error, status int, code string) *azcore.ResponseError {
	t.Helper()
	var re *azcore.ResponseError
	if !errors.As(err, &re) {
		t.Fatalf("got %v, want a refusal with %d %s", err, status, code)
	}
	if re.StatusCode != status || re.ErrorCode != code {
		t.Fatalf("got %d %s, want %d %s: %v", re.StatusCode, re.ErrorCode, status, code, err)
	}
	return re
}

func (g *rig) groups() *armresources.ResourceGroupsClient {
	cred, opt := g.arm()
	return must(armresources.NewResourceGroupsClient(DefaultSubscription, cred, opt))(g.t)
}

func (g *rig) group(name string) {
	g.t.Helper()
	_, err := g.groups().CreateOrUpdate(g.ctx, name, armresources.ResourceGroup{Location: new("westus2")}, nil)
	if err != nil {
		g.t.Fatal(err)
	}
}

func TestSecretCredential(t *testing.T) {
	t.Parallel()
	for _, noDiscovery := range []bool{true, false} {
		g := newRig(t)
		scope := policy.TokenRequestOptions{Scopes: []string{"https://management.core.windows.net//.default"}}
		tok, err := g.credential(DefaultClientID, DefaultClientSecret, noDiscovery).GetToken(g.ctx, scope)
		if err != nil || tok.Token == "" {
			t.Fatalf("DisableInstanceDiscovery %v: %v", noDiscovery, err)
		}
		_, err = g.credential(DefaultClientID, "wrong", noDiscovery).GetToken(g.ctx, scope)
		if err == nil || !strings.Contains(err.Error(), "AADSTS7000215") || !strings.Contains(err.Error(), "invalid_client") {
			t.Errorf("a wrong secret: %v", err)
		}
		_, err = g.credential("11111111-1111-4111-8111-111111111111", DefaultClientSecret, noDiscovery).GetToken(g.ctx, scope)
		if err == nil || !strings.Contains(err.Error(), "AADSTS700016") {
			t.Errorf("an unknown client: %v", err)
		}
	}
}

func TestGroupLife(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	groups := g.groups()
	made := must(groups.CreateOrUpdate(g.ctx, "rg", armresources.ResourceGroup{Location: new("West US 2"), Tags: map[string]*string{"owner": new("job")}}, nil))(t)
	if *made.Location != "westus2" || *made.Properties.ProvisioningState != "Succeeded" {
		t.Errorf("made %+v", made.ResourceGroup)
	}
	if got := must(groups.CheckExistence(g.ctx, "RG", nil))(t); !got.Success {
		t.Error("the group is not there by another spelling")
	}
	_, err := groups.CreateOrUpdate(g.ctx, "rg", armresources.ResourceGroup{Location: new("eastus")}, nil)
	refused(t, err, 409, "InvalidResourceGroupLocation")
	_, err = groups.CreateOrUpdate(g.ctx, "rg2", armresources.ResourceGroup{Location: new("BadLocation")}, nil)
	refused(t, err, 400, "LocationNotAvailableForResourceGroup")
	p, err := groups.BeginDelete(g.ctx, "rg", nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := must(groups.Get(g.ctx, "rg", nil))(t); *got.Properties.ProvisioningState != "Deleting" {
		t.Errorf("state %s while it is deleted", *got.Properties.ProvisioningState)
	}
	_, err = groups.CreateOrUpdate(g.ctx, "rg", armresources.ResourceGroup{Location: new("westus2")}, nil)
	refused(t, err, 409, "ResourceGroupBeingDeleted")
	done(g, p, nil)
	_, err = groups.Get(g.ctx, "rg", nil)
	refused(t, err, 404, "ResourceGroupNotFound")
}
