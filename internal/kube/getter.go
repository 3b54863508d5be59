package kube

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/zopday/provisioner/internal/cloud"
)

// A Getter is what Helm wants to be given of a cluster: no file, no environment
// and no kubeconfig takes part.
type Getter struct {
	config    *rest.Config
	discovery discovery.CachedDiscoveryInterface
	namespace string
}

// NewGetter is a Getter of a cluster for the life of ctx, with a default namespace.
func NewGetter(ctx context.Context, access cloud.KubeAccess, namespace string) (*Getter, error) {
	cfg, err := RESTConfig(ctx, access)
	if err != nil {
		return nil, err
	}
	d, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, err
	}
	return &Getter{config: cfg, discovery: memory.NewMemCacheClient(d), namespace: namespace}, nil
}

// ToRESTConfig is the client's configuration.
func (g *Getter) ToRESTConfig() (*rest.Config, error) { return rest.CopyConfig(g.config), nil }

// ToDiscoveryClient is a discovery client that remembers, until it is invalidated.
func (g *Getter) ToDiscoveryClient() (discovery.CachedDiscoveryInterface, error) {
	return g.discovery, nil
}

// ToRESTMapper maps kinds to resources by what the cluster serves.
func (g *Getter) ToRESTMapper() (meta.RESTMapper, error) {
	m := restmapper.NewDeferredDiscoveryRESTMapper(g.discovery)
	return restmapper.NewShortcutExpander(m, g.discovery, nil), nil
}

// ToRawKubeConfigLoader answers for the namespace alone.
func (g *Getter) ToRawKubeConfigLoader() clientcmd.ClientConfig {
	cfg := clientcmdapi.NewConfig()
	cfg.Contexts["cluster"] = &clientcmdapi.Context{Cluster: "cluster", AuthInfo: "provisioner", Namespace: g.namespace}
	cfg.Clusters["cluster"] = &clientcmdapi.Cluster{Server: g.config.Host}
	cfg.AuthInfos["provisioner"] = &clientcmdapi.AuthInfo{}
	cfg.CurrentContext = "cluster"
	return clientcmd.NewDefaultClientConfig(*cfg, &clientcmd.ConfigOverrides{Context: clientcmdapi.Context{Namespace: g.namespace}})
}
