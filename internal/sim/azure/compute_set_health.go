package azure

import (
	"strconv"
	"strings"
	"time"
)

// watched says whether a set is told of its machines' health.
func (c *Cloud) watched(set *Resource) bool {
	return healthExtension(set) != nil || set.Properties.ref("virtualMachineProfile.networkProfile.healthProbe") != ""
}

// healthy says whether a machine answers as its set wants it to: to the health extension inside it, or to a probe.
func (c *Cloud) healthy(set, vm *Resource) bool {
	m := c.guests.of(vm.ID)
	if x := healthExtension(set); x != nil {
		port := int(x.num("settings.port"))
		if port == 0 {
			port, _ = strconv.Atoi(x.str("settings.port")) // zero, where nothing listens, if it is no number
		}
		return answersProbe(c.guests, m, x.str("settings.protocol"), port, x.str("settings.requestPath"))
	}
	probe := c.partOf(set.Properties.ref("virtualMachineProfile.networkProfile.healthProbe"))
	for _, nic := range c.nicsOf(vm) {
		for _, cfg := range nic.Properties.docs("ipConfigurations") {
			if state, _ := c.probeState(probe, nic, cfg); state != "Up" {
				return false
			}
		}
	}
	return m != nil
}

// answersProbe says whether a machine answers a probe as it should.
func answersProbe(g *guests, m *Guest, protocol string, port int, path string) bool {
	if path == "" {
		path = "/"
	}
	listening, code := g.answers(m, port, path)
	return listening && (strings.EqualFold(protocol, "Tcp") || code == 200)
}

// repairEvery is how often a set looks for machines to repair.
const repairEvery = time.Minute

// repair replaces machines that have been unhealthy for longer than the grace period ("Automatic instance repairs for Azure
// Virtual Machine Scale Sets").
func (c *Cloud) repair(set *Resource) {
	p := set.Properties
	if !p.flag("automaticRepairsPolicy.enabled") {
		return
	}
	c.after(repairEvery, computeService, "set", set.ID+"|repair|")
	if set.Operation != "" {
		return
	}
	kept, now, grace := c.keptOf(set), c.World.Now(), isoMinutes(p.str("automaticRepairsPolicy.gracePeriod"))
	replaced := false
	for _, vm := range c.membersOf(set) {
		m := c.guests.of(vm.ID)
		if vm.State != stateSucceeded || m == nil || m.Power != "running" || now.Sub(m.Since) < grace || c.healthy(set, vm) {
			delete(kept.Sick, key(vm.ID))
			continue
		}
		if kept.Sick[key(vm.ID)].IsZero() {
			kept.Sick[key(vm.ID)] = now
			continue
		}
		switch strings.ToLower(p.str("automaticRepairsPolicy.repairAction")) {
		case "restart":
			c.guests.boot(vm, m)
		case "reimage":
			c.bringUp(set, vm, kept, true)
		default:
			kept.Leaving[key(vm.ID)] = true
			c.drop(vm)
			replaced = true
		}
	}
	if replaced {
		c.scale(set)
	}
}

// isoMinutes reads a duration in the form PT30M; ten minutes if there is none.
func isoMinutes(s string) time.Duration {
	n, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(s, "PT"), "M"))
	if err != nil {
		return 10 * time.Minute
	}
	return time.Duration(n) * time.Minute
}
