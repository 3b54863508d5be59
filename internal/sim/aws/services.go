package aws

// addServices makes every service. A service sets its hooks in its constructor and asks for those of others only when a
// request is served, so that the order does not matter.
func (c *Cloud) addServices() {
	c.ec2 = newEC2(c)
	c.addPlatform()
}
