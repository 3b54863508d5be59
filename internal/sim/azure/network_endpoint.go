package azure

const privateEndpointType = "Microsoft.Network/privateEndpoints"

// endpointsTo are the private endpoints whose connection leads to a resource.
func (c *Cloud) endpointsTo(id string) []*Resource {
	var out []*Resource
	for _, res := range c.shelves["network"].sorted() {
		if res.Type != privateEndpointType {
			continue
		}
		for _, conn := range append(res.Properties.docs("privateLinkServiceConnections"), res.Properties.docs("manualPrivateLinkServiceConnections")...) {
			if key(conn.str("properties.privateLinkServiceId")) == key(id) {
				out = append(out, res)
			}
		}
	}
	return out
}

// endpointTo says whether a private endpoint that works leads to a resource.
func (c *Cloud) endpointTo(id string) bool {
	for _, res := range c.endpointsTo(id) {
		if res.State == stateSucceeded {
			return true
		}
	}
	return false
}

// connectionsTo are a resource's private endpoint connections, as it shows them.
func (c *Cloud) connectionsTo(id string) []any {
	out := []any{}
	for _, res := range c.endpointsTo(id) {
		out = append(out, map[string]any{"id": id + "/privateEndpointConnections/" + res.Name, "name": res.Name, "type": c.find(id).Type + "/privateEndpointConnections",
			"properties": map[string]any{"provisioningState": res.State, "privateEndpoint": map[string]any{"id": res.ID}, "groupIds": []any{},
				"privateLinkServiceConnectionState": map[string]any{"status": "Approved", "description": "Auto-Approved", "actionsRequired": "None"}}})
	}
	return out
}
