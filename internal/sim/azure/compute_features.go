package azure

import (
	"net/http"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

// hostEncryption is the feature that a subscription needs for disks that are encrypted on the host ("Enable end-to-end
// encryption using encryption at host").
const hostEncryption = "Microsoft.Compute/EncryptionAtHost"

var featureVersions = []string{"2015-12-01", "2021-07-01"}

// addFeatures registers Microsoft.Features, as far as Compute has any. Whether a fresh subscription has a feature is a quota of the
// service features: 1 means registered.
func (c *Cloud) addFeatures() {
	c.World.DefineQuota(sim.Quota{Cloud: "azure", Service: "features", Code: hostEncryption, Name: "Encryption at host", Default: 1, Unit: "Count", Adjustable: true})
	const path = "/subscriptions/{subscription}/providers/Microsoft.Features/providers/{namespace}/features/{feature}"
	c.handle(
		route{method: "GET", pattern: path, service: "features", operation: "Features_Get", versions: featureVersions, serve: c.getFeature},
		route{method: "POST", pattern: path + "/register", service: "features", operation: "Features_Register", versions: featureVersions, serve: c.registerFeature})
}

// feature is the state of encryption at host in a subscription.
func (c *Cloud) feature(subscription string) string {
	if s := c.guests.state.Features[key(subscription+"/"+hostEncryption)]; s != "" {
		return s
	}
	if v, ok := c.World.QuotaValue("azure", "features", hostEncryption, subscription, ""); ok && v > 0 {
		return "Registered"
	}
	return "NotRegistered"
}

func (c *Cloud) getFeature(r *request) (answer, error) {
	name := r.vars["namespace"] + "/" + r.vars["feature"]
	if !strings.EqualFold(name, hostEncryption) {
		return answer{}, refuse(http.StatusNotFound, "FeatureNotFound", "The feature '%s' could not be found.", r.vars["feature"])
	}
	return plain(map[string]any{"id": "/subscriptions/" + r.subscription + "/providers/Microsoft.Features/providers/Microsoft.Compute/features/EncryptionAtHost",
		"name": hostEncryption, "type": "Microsoft.Features/providers/features", "properties": map[string]any{"state": c.feature(r.subscription)}}), nil
}

// registerFeature asks for a feature; it takes some minutes.
func (c *Cloud) registerFeature(r *request) (answer, error) {
	if name := r.vars["namespace"] + "/" + r.vars["feature"]; strings.EqualFold(name, hostEncryption) && c.feature(r.subscription) != "Registered" {
		at := key(r.subscription + "/" + hostEncryption)
		c.guests.state.Features[at] = "Registering"
		c.after(3*time.Minute, computeService, "feature", at)
	}
	return c.getFeature(r)
}
