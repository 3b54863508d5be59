package azure

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"sigs.k8s.io/yaml"
)

// kubeconfig is a client configuration as AKS hands it out.
func (c *Cloud) kubeconfig(cluster *Resource, user string, credential map[string]any) ([]byte, error) {
	server, ca := "https://"+c.serverName(cluster)+":443", placeholderCA()
	if e, ok := c.servers.endpoint(cluster.ID); ok {
		server, ca = "https://"+e.Address, e.CA
	}
	name, context := cluster.Name, cluster.Name
	if strings.HasPrefix(user, "clusterAdmin") {
		context += "-admin"
	}
	return yaml.Marshal(map[string]any{"apiVersion": "v1", "kind": "Config", "preferences": map[string]any{}, "current-context": context,
		"clusters": []any{map[string]any{"name": name, "cluster": map[string]any{"server": server, "certificate-authority-data": base64.StdEncoding.EncodeToString(ca)}}},
		"contexts": []any{map[string]any{"name": context, "context": map[string]any{"cluster": name, "user": user}}},
		"users":    []any{map[string]any{"name": user, "user": credential}}})
}

// serverName is the name of a cluster's API server: the private one of a private cluster, unless its public name is asked for.
func (c *Cloud) serverName(cluster *Resource) string {
	if name := cluster.Properties.str("privateFQDN"); name != "" {
		return name
	}
	return cluster.Properties.str("fqdn")
}

// placeholderCA is the CA of API servers that there are not.
var placeholderCA = sync.OnceValue(func() []byte {
	_, pem, _, err := newCA()
	if err != nil {
		panic(err) // the system has no randomness
	}
	return pem
})

// execCredential has kubelogin fetch a token of the directory ("Use kubelogin to authenticate users in AKS").
func (c *Cloud) execCredential() map[string]any {
	return map[string]any{"exec": map[string]any{"apiVersion": "client.authentication.k8s.io/v1beta1", "command": "kubelogin", "interactiveMode": "IfAvailable", "provideClusterInfo": false,
		"installHint": "kubelogin is not installed which is required to connect to AAD enabled cluster. To learn more, please go to https://aka.ms/aks/kubelogin",
		"args":        []any{"get-token", "--environment", "AzurePublicCloud", "--server-id", clusterAudience, "--client-id", "80faf920-1908-4b52-b5ef-a8e7bedfc67a", "--tenant-id", c.opt.Tenant, "--login", "devicecode"}}}
}

func noStatic() *Error {
	return refuseCluster(http.StatusBadRequest, "BadRequest", "", "Getting static credential is not allowed because this cluster is set to disable local accounts.")
}

// userCredential hands out the configuration of a cluster's users: of the directory's, if the cluster is integrated with it.
func (c *Cloud) userCredential(r *request, cluster *Resource) (answer, error) {
	user := fmt.Sprintf("clusterUser_%s_%s", groupOf(cluster.ID), cluster.Name)
	credential := map[string]any{"token": c.staticToken(cluster)}
	switch {
	case cluster.Properties.flag("aadProfile.managed"):
		credential = c.execCredential()
		if f := r.query.Get("format"); f != "" && f != "exec" && f != "azure" {
			return answer{}, badParameter("format", "The value %s of parameter format is invalid.", f)
		}
	case cluster.Properties.flag("disableLocalAccounts"):
		return answer{}, noStatic()
	}
	return c.credentials(cluster, "clusterUser", user, credential)
}

// adminCredential hands out the configuration of a cluster's local administrator, if local accounts are not disabled.
func (c *Cloud) adminCredential(_ *request, cluster *Resource) (answer, error) {
	if cluster.Properties.flag("disableLocalAccounts") {
		return answer{}, noStatic()
	}
	user := fmt.Sprintf("clusterAdmin_%s_%s", groupOf(cluster.ID), cluster.Name)
	return c.credentials(cluster, "clusterAdmin", user, map[string]any{"token": c.staticToken(cluster)})
}

func (c *Cloud) credentials(cluster *Resource, name, user string, credential map[string]any) (answer, error) {
	config, err := c.kubeconfig(cluster, user, credential)
	if err != nil {
		return answer{}, fmt.Errorf("kubeconfig of %s: %w", cluster.ID, err)
	}
	return plain(map[string]any{"kubeconfigs": []any{map[string]any{"name": name, "value": base64.StdEncoding.EncodeToString(config)}}}), nil
}
