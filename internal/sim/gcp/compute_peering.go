package gcp

import (
	"fmt"
	"slices"
	"time"
)

// actPeering is what adding, changing or removing a peering does when its operation is done.
const actPeering = "peering"

var peeringBusy = "There is a peering operation in progress on the local or peer network. Try again later."

// changingPeers finds the network of a request about peerings: one change at a time on it and on its peers ("VPC Network
// Peering: limits").
func (e *Compute) changingPeers(r *request) (*Resource, error) {
	res, err := e.find(r, e.kinds["networks"])
	if err != nil {
		return nil, err
	}
	if e.peeringUnderWay(res.Path) {
		return nil, refuse(400, "badRequest", "%s", peeringBusy)
	}
	if res.Busy != "" {
		return nil, notReady(res.Path)
	}
	return res, nil
}

func (e *Compute) peeringUnderWay(network string) bool {
	for _, op := range e.st.Operations {
		if op.Status != opDone && op.Action == actPeering && (op.Target == network || op.Args["peer"] == network) {
			return true
		}
	}
	return false
}

// addPeering adds one side of a peering. Both networks' owners have to add theirs before it is active.
func (e *Compute) addPeering(r *request) (any, error) {
	res, err := e.changingPeers(r)
	if err != nil {
		return nil, err
	}
	p := sub(r.Body, "networkPeering")
	if p == nil {
		p = Doc{"name": r.Body["name"], "network": r.Body["peerNetwork"], "exchangeSubnetRoutes": truth(r.Body, "autoCreateRoutes")}
	}
	p = clone(p)
	setDefault(p, "name", str(r.Body, "name"))
	if !tagPattern.MatchString(str(p, "name")) {
		return nil, invalidField("name", str(p, "name"), "Must be a match of regex '(?:[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?)'")
	}
	if !truth(p, "exchangeSubnetRoutes") {
		return nil, invalidField("networkPeering.exchangeSubnetRoutes", false, "Subnet routes must be exchanged.")
	}
	peer := e.cloud.pathOfLink(r.Project.ID, str(p, "network"))
	switch peer {
	case "":
		return nil, invalidField("networkPeering.network", str(p, "network"), "The URL is malformed.")
	case res.Path:
		return nil, invalidField("networkPeering.network", str(p, "network"), "A network cannot be peered with itself.")
	}
	for _, old := range docs(res.Doc, "peerings") {
		if str(old, "name") == str(p, "name") {
			return nil, refuse(409, "alreadyExists", "The peering '%s' already exists in network '%s'", str(p, "name"), res.Path)
		}
		if e.cloud.pathOfLink(r.Project.ID, str(old, "network")) == peer {
			return nil, refuse(409, "alreadyExists", "There is already a peering '%s' between network '%s' and network '%s'", str(old, "name"), res.Path, peer)
		}
	}
	if other := e.st.Resources[peer]; other == nil && e.local(peer) {
		return nil, e.kinds["networks"].notFound(peer)
	}
	if e.peeringUnderWay(peer) {
		return nil, refuse(400, "badRequest", "%s", peeringBusy)
	}
	fillPeering(p, peer)
	return e.startPeering(r, res, "addPeering", peer, p), nil
}

// local says whether a path is in a project of this simulation; the networks behind Google's services are not.
func (e *Compute) local(path string) bool {
	_, ok := e.cloud.project(segmentAfter(path, "projects"))
	return ok
}

func fillPeering(p Doc, peer string) {
	p["network"] = selfLink(peer)
	p["exchangeSubnetRoutes"], p["autoCreateRoutes"] = true, true
	for _, f := range []string{"exportCustomRoutes", "importCustomRoutes", "importSubnetRoutesWithPublicIp"} {
		setDefault(p, f, false)
	}
	setDefault(p, "exportSubnetRoutesWithPublicIp", true)
	setDefault(p, "stackType", "IPV4_ONLY")
}

func (e *Compute) startPeering(r *request, res *Resource, opType, peer string, p Doc) Doc {
	return e.start(r, change{Type: opType, Target: res, Takes: 15 * time.Second, Action: actPeering, Doc: p, Args: map[string]string{"peer": peer}})
}

func (e *Compute) updatePeering(r *request) (any, error) {
	res, err := e.changingPeers(r)
	if err != nil {
		return nil, err
	}
	wanted := sub(r.Body, "networkPeering")
	old := peeringOf(res, str(wanted, "name"))
	if old == nil {
		return nil, refuse(400, "invalid", "Invalid value for field 'networkPeering.name': '%s'. There is no peering '%[1]s' in network '%s'.", str(wanted, "name"), res.Path)
	}
	p := clone(old)
	for _, f := range []string{"exportCustomRoutes", "importCustomRoutes", "exportSubnetRoutesWithPublicIp", "importSubnetRoutesWithPublicIp", "stackType", "updateStrategy"} {
		if v, said := wanted[f]; said {
			p[f] = v
		}
	}
	return e.startPeering(r, res, "updatePeering", e.cloud.pathOfLink(r.Project.ID, str(p, "network")), p), nil
}

// removePeering takes one side away; the other becomes inactive.
func (e *Compute) removePeering(r *request) (any, error) {
	res, err := e.changingPeers(r)
	if err != nil {
		return nil, err
	}
	old := peeringOf(res, str(r.Body, "name"))
	if old == nil {
		return nil, refuse(400, "invalid", "Invalid value for field 'name': '%s'. There is no peering '%[1]s' in network '%s'.", str(r.Body, "name"), res.Path)
	}
	return e.startPeering(r, res, "removePeering", e.cloud.pathOfLink(r.Project.ID, str(old, "network")), Doc{"name": old["name"]}), nil
}

func peeringOf(res *Resource, name string) Doc {
	for _, p := range docs(res.Doc, "peerings") {
		if str(p, "name") == name {
			return p
		}
	}
	return nil
}

// peered carries out a change of peerings.
func (e *Compute) peered(op *Operation, res *Resource) error {
	if op.Type == "addPeering" {
		if err := e.checkPeerOverlap(res, op.Args["peer"]); err != nil {
			return err
		}
	}
	e.setPeering(res, str(op.Doc, "name"), op.Doc, op.Type == "removePeering")
	return nil
}

// setPeering puts a peering in the place of the one of its name, or removes it.
func (e *Compute) setPeering(res *Resource, name string, p Doc, remove bool) {
	kept := []any{}
	for _, old := range docs(res.Doc, "peerings") {
		if str(old, "name") != name {
			kept = append(kept, old)
		}
	}
	if !remove {
		kept = append(kept, p)
	}
	if res.Doc["peerings"] = kept; len(kept) == 0 {
		delete(res.Doc, "peerings")
	}
}

// checkPeerOverlap refuses to join networks whose ranges overlap, once both sides want it.
func (e *Compute) checkPeerOverlap(res *Resource, peer string) error {
	other := e.st.Resources[peer]
	if other == nil || !e.wants(other, res.Path) {
		return nil
	}
	for _, a := range e.rangesIn(res.Path) {
		for _, b := range e.rangesIn(peer) {
			if a.prefix.Overlaps(b.prefix) {
				return refuse(400, "invalid", "An IP range in the peer network (%s) overlaps with an IP range in the local network (%s) allocated by resource (%s).", b.prefix, a.prefix, a.path)
			}
		}
	}
	return nil
}

// wants says whether a network has a peering towards another.
func (e *Compute) wants(res *Resource, peer string) bool {
	return slices.ContainsFunc(docs(res.Doc, "peerings"), func(p Doc) bool { return e.cloud.pathOfLink(res.project(), str(p, "network")) == peer })
}

// active says whether a peering works: both sides have it. Google's own networks always do.
func (e *Compute) active(res *Resource, p Doc) bool {
	peer := e.cloud.pathOfLink(res.project(), str(p, "network"))
	if !e.local(peer) {
		return true
	}
	other := e.st.Resources[peer]
	return other != nil && e.wants(other, res.Path)
}

// activePeers are the paths of the networks that a network is joined with.
func (e *Compute) activePeers(res *Resource) []string {
	var out []string
	for _, p := range docs(res.Doc, "peerings") {
		if e.active(res, p) {
			out = append(out, e.cloud.pathOfLink(res.project(), str(p, "network")))
		}
	}
	return out
}

func (e *Compute) showPeering(res *Resource, p Doc) {
	if state := str(p, "state"); state != "" { // set from outside
		return
	}
	if e.active(res, p) {
		p["state"], p["stateDetails"] = "ACTIVE", fmt.Sprintf("[%s]: Connected.", computeTime(res.Created))
		return
	}
	p["state"], p["stateDetails"] = "INACTIVE", fmt.Sprintf("[%s]: Waiting for peer network to connect.", computeTime(res.Created))
}

// listPeeringRoutes lists the subnet routes that a peering brings in or gives away.
func (e *Compute) listPeeringRoutes(r *request) (any, error) {
	res, err := e.find(r, e.kinds["networks"])
	if err != nil {
		return nil, err
	}
	p := peeringOf(res, r.Query.Get("peeringName"))
	if p == nil {
		return nil, invalidField("peeringName", r.Query.Get("peeringName"), "There is no such peering in the network.")
	}
	from := e.cloud.pathOfLink(res.project(), str(p, "network"))
	if r.Query.Get("direction") == "OUTGOING" {
		from = res.Path
	}
	var items []Doc
	if e.active(res, p) {
		for _, u := range e.rangesIn(from) {
			if s := e.st.Resources[u.path]; s.Collection == "subnetworks" {
				items = append(items, Doc{"destRange": u.prefix.String(), "type": "SUBNET_PEERING_ROUTE", "nextHopRegion": selfLink("projects/" + s.project() + "/regions/" + s.region()),
					"priority": float64(0), "imported": true})
			}
		}
	}
	page, next, err := pageOf(r, items, "maxResults", 500)
	if err != nil {
		return nil, err
	}
	d := Doc{"kind": "compute#exchangedPeeringRoutesList", "id": res.Path + "/listPeeringRoutes", "selfLink": selfLink(res.Path + "/listPeeringRoutes")}
	if len(page) > 0 {
		d["items"] = page
	}
	if next != "" {
		d["nextPageToken"] = next
	}
	return d, nil
}
