package gcp

import (
	"fmt"
	"strings"

	"github.com/zopday/provisioner/internal/sim/gcp/schema"
)

// addServices makes every service. A service sets its hooks in its constructor and asks for those of others only when a
// request is served, so that the order does not matter.
func (c *Cloud) addServices() {
	c.compute = newCompute(c)
	newOAuth(c)
	newOSConfig(c)
	newDNS(c)
	c.iam = newIAM(c)
	newResourceManager(c)
	c.peering = newServiceNetworking(c)
	newServiceUsage(c)
	c.kms = newCloudKMS(c)
	c.container = newContainer(c)
	c.sql = newCloudSQL(c)
	c.secrets = newSecretManager(c)
	c.redis = newMemorystoreRedis(c)
	c.policies = newConnectionPolicies(c)
	newMemorystoreValkey(c)
	newCloudMonitoring(c)
}

// add makes an API known; key is its name and version as in package schema.
func (c *Cloud) add(key string, a *api) {
	a.schema = schema.APIs()[key]
	if a.schema == nil {
		panic(fmt.Sprintf("no schemas of %s; add it to schema/served.txt and run go generate", key))
	}
	if a.host == "" {
		a.host = a.service + ".googleapis.com"
	}
	for id := range a.ops {
		if a.schema.Methods[id] == nil {
			panic(fmt.Sprintf("%s has no method %s; add it to schema/served.txt and run go generate", key, id))
		}
	}
	for _, m := range a.schema.Methods {
		a.ownPrefix = a.ownPrefix || strings.HasPrefix(a.schema.Base+m.Path, "/"+a.service+"/")
	}
	c.apis[key] = a
}

// titles are the names of APIs as refusals call them.
var titles = map[string]string{
	"compute.googleapis.com":              "Compute Engine API",
	"dns.googleapis.com":                  "Cloud DNS API",
	"iam.googleapis.com":                  "Identity and Access Management (IAM) API",
	"cloudresourcemanager.googleapis.com": "Cloud Resource Manager API",
	"servicenetworking.googleapis.com":    "Service Networking API",
	"serviceusage.googleapis.com":         "Service Usage API",
	"container.googleapis.com":            "Kubernetes Engine API",
	"sqladmin.googleapis.com":             "Cloud SQL Admin API",
	"redis.googleapis.com":                "Google Cloud Memorystore for Redis API",
	"memorystore.googleapis.com":          "Memorystore API",
	"networkconnectivity.googleapis.com":  "Network Connectivity API",
	"osconfig.googleapis.com":             "OS Config API",
	"oslogin.googleapis.com":              "Cloud OS Login API",
	"iap.googleapis.com":                  "Cloud Identity-Aware Proxy API",
	"secretmanager.googleapis.com":        "Secret Manager API",
	"cloudkms.googleapis.com":             "Cloud Key Management Service (KMS) API",
	"logging.googleapis.com":              "Cloud Logging API",
	"monitoring.googleapis.com":           "Cloud Monitoring API",
}

func serviceTitle(host string) string {
	if t := titles[host]; t != "" {
		return t
	}
	return host
}
