package aws

import "sort"

// addServices makes every service. A service sets its hooks in its constructor and asks for those of others only when a
// request is served, so that the order does not matter.
func (c *Cloud) addServices() {
	c.ec2 = newEC2(c)
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
