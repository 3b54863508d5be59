package azure

// addServices makes every service. Kinds ask for others only when a request is served, so that the order does not matter.
func (c *Cloud) addServices() {
	c.addDirectory()
	c.addResources()
	c.addLocks()
	c.addPermissions()
	c.addNetwork()
	c.addDNS()
	c.addPrivateDNS()
	c.addIdentity()
	c.addCompute()
	c.addBalancers()
	c.addClusters()
	c.addDiagnostics()
	c.addWorkspaces()
	c.addFlexibleServers()
	c.addCaches()
	c.addVaults()
	c.addMetrics()
}
