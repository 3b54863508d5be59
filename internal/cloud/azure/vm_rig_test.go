package azure

func (g *rig) vmSteps() (up, down []step) { return nil, nil }
