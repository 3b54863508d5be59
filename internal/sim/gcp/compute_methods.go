package gcp

// allKinds are the kinds of objects; each concern has its own list.
func (e *Compute) allKinds() []*kind {
	var all []*kind
	for _, of := range []func() []*kind{e.networkKinds, e.vmKinds, e.lbKinds} {
		all = append(all, of()...)
	}
	return all
}

// addMethods adds the methods that belong to one kind alone.
func (e *Compute) addMethods(a *api) {
	for _, add := range []func(*api){e.placeMethods, e.networkMethods, e.vmMethods, e.lbMethods} {
		add(a)
	}
}
