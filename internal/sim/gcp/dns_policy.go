package gcp

import (
	"sort"
	"time"
)

// A dnsPolicy says how a network's machines resolve names.
type dnsPolicy struct {
	Path, Project string
	Created       time.Time
	Doc           Doc
}

// policyMethods adds the methods of server policies.
func (d *dnsService) policyMethods(ops map[string]operation) {
	ops["policies.create"], ops["policies.get"], ops["policies.list"], ops["policies.delete"] = d.createPolicy, d.getPolicy, d.listPolicies, d.deletePolicy
	ops["policies.patch"], ops["policies.update"] = d.changePolicy(false), d.changePolicy(true)
}

func (d *dnsService) policy(r *request) (*dnsPolicy, error) {
	path := "projects/" + r.Project.ID + "/policies/" + r.Path["policy"]
	p := d.st.Policies[path]
	if p == nil {
		return nil, refuse(404, "notFound", "policy \"%s\" not found", path)
	}
	r.Touch(path)
	return p, nil
}

func (d *dnsService) createPolicy(r *request) (any, error) {
	name := str(r.Body, "name")
	path := "projects/" + r.Project.ID + "/policies/" + name
	switch {
	case !zoneName.MatchString(name):
		return nil, dnsInvalid("entity.policy.name", name)
	case d.st.Policies[path] != nil:
		return nil, refuse(409, "alreadyExists", "The resource 'entity.policy' named '%s' already exists", name)
	}
	doc := clone(r.Body)
	doc["id"] = d.cloud.numericID()
	if err := d.fillPolicy(r, doc, path); err != nil {
		return nil, err
	}
	d.st.Policies[path] = &dnsPolicy{Path: path, Project: r.Project.ID, Created: d.cloud.World.Now(), Doc: doc}
	r.Make(path)
	return doc, nil
}

// fillPolicy names the kinds of a policy's parts and checks its networks: each may have one policy ("DNS server policies").
func (d *dnsService) fillPolicy(r *request, doc Doc, self string) error {
	doc["kind"] = "dns#policy"
	if len(list(doc, "networks")) == 0 {
		delete(doc, "networks")
	}
	for _, n := range docs(doc, "networks") {
		n["kind"] = "dns#policyNetwork"
		path := d.cloud.pathOfLink(r.Project.ID, str(n, "networkUrl"))
		if path == "" || d.cloud.compute.at(path) == nil {
			return dnsInvalid("entity.policy.networks[0].networkUrl", str(n, "networkUrl"))
		}
		for _, key := range keysOf(d.st.Policies) {
			for _, on := range docs(d.st.Policies[key].Doc, "networks") {
				if key != self && d.cloud.pathOfLink(d.st.Policies[key].Project, str(on, "networkUrl")) == path {
					return refuse(400, "badRequest", "Network '%s' already has the policy '%s'.", path, lastPart(key))
				}
			}
		}
	}
	if alternative := sub(doc, "alternativeNameServerConfig"); alternative != nil {
		alternative["kind"] = "dns#policyAlternativeNameServerConfig"
		for _, server := range docs(alternative, "targetNameServers") {
			server["kind"] = "dns#policyTargetNameServer"
		}
	}
	return nil
}

func (d *dnsService) getPolicy(r *request) (any, error) {
	p, err := d.policy(r)
	if err != nil {
		return nil, err
	}
	return p.Doc, nil
}

func (d *dnsService) listPolicies(r *request) (any, error) {
	var items []Doc
	for _, path := range keysOf(d.st.Policies) {
		if p := d.st.Policies[path]; p.Project == r.Project.ID {
			items = append(items, p.Doc)
		}
	}
	sort.SliceStable(items, func(i, j int) bool { return str(items[i], "name") < str(items[j], "name") })
	return r.dnsPage(items, "policies", "dns#policiesListResponse")
}

// changePolicy is patch or update (whole): a patch keeps what it does not name, and a list that is given empty is one, too.
func (d *dnsService) changePolicy(whole bool) operation {
	return func(r *request) (any, error) {
		p, err := d.policy(r)
		if err != nil {
			return nil, err
		}
		doc := Doc{}
		if !whole {
			doc = clone(p.Doc)
			if given := list(r.Body, "networks"); given != nil && len(given) == 0 {
				delete(doc, "alternativeNameServerConfig") // it is for networks, and goes with the last
			}
		}
		merge(doc, r.Body)
		doc["id"], doc["name"] = p.Doc["id"], p.Doc["name"]
		if err := d.fillPolicy(r, doc, p.Path); err != nil {
			return nil, err
		}
		p.Doc = doc
		return Doc{"policy": doc}, nil
	}
}

// deletePolicy refuses a policy that networks still have.
func (d *dnsService) deletePolicy(r *request) (any, error) {
	p, err := d.policy(r)
	if err != nil {
		return nil, err
	}
	if len(list(p.Doc, "networks")) > 0 {
		return nil, refuse(400, "resourceInUse", "The policy named '%s' cannot be deleted because it is used by one or more networks.", str(p.Doc, "name"))
	}
	delete(d.st.Policies, p.Path)
	return Doc{}, nil
}
