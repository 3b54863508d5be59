package gcp

// furnish makes what a fresh project has from the start: the default network with its firewall rules.
func (e *Compute) furnish(p Project) {
	if p.ID == "" || e.st.Furnished[p.ID] {
		return
	}
	e.st.Furnished[p.ID] = true
	before := e.st.Seq
	e.furnishNetwork(p)
	for _, res := range e.st.Resources {
		if res.Seq > before {
			res.First = unchanged(res.Doc)
		}
	}
}
