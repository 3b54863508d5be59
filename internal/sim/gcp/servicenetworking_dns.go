package gcp

import (
	"slices"
	"strings"
	"time"
)

// A peered DNS domain lets Google's services resolve names of a network's private zones.

const peeredTakes = 8 * time.Second

// peeredMethods adds the methods of peered DNS domains.
func (s *serviceNetworking) peeredMethods(ops map[string]operation) {
	const domains = "services.projects.global.networks.peeredDnsDomains."
	ops[domains+"create"], ops[domains+"list"], ops[domains+"delete"] = s.createPeeredDomain, s.listPeeredDomains, s.deletePeeredDomain
}

// connectionOf finds the connection of the network in a path services/x/projects/n/global/networks/w.
func (s *serviceNetworking) connectionOf(r *request, path string) (string, *connection, error) {
	i := strings.Index(path, "projects/")
	network, err := s.network(r, strings.TrimSuffix(path[max(i, 0):], "/"))
	if err != nil {
		return "", nil, err
	}
	c := s.st.Connections[network]
	if c == nil || !s.alive(c) {
		return "", nil, &Error{HTTP: 400, Reason: "failedPrecondition", Status: "FAILED_PRECONDITION", Message: "The network has no private connection."}
	}
	return network, c, nil
}

func (s *serviceNetworking) createPeeredDomain(r *request) (any, error) {
	network, c, err := s.connectionOf(r, r.Path["parent"])
	if err != nil {
		return nil, err
	}
	name, suffix := str(r.Body, "name"), str(r.Body, "dnsSuffix")
	switch {
	case !zoneName.MatchString(name):
		return nil, badArgument("Invalid name: '%s'.", name)
	case !dnsName.MatchString(suffix):
		return nil, badArgument("Invalid DNS suffix: '%s'. It must end with a dot.", suffix)
	case slices.ContainsFunc(c.Domains, func(d Doc) bool { return str(d, "name") == name }):
		return nil, &Error{HTTP: 409, Reason: "alreadyExists", Message: "The peered DNS domain '" + name + "' already exists."}
	}
	return s.start(r, network, "add-domain", Doc{"name": name, "dnsSuffix": suffix}, peeredTakes), nil
}

func (s *serviceNetworking) listPeeredDomains(r *request) (any, error) {
	_, c, err := s.connectionOf(r, r.Path["parent"])
	if err != nil {
		return nil, err
	}
	if len(c.Domains) == 0 {
		return Doc{}, nil
	}
	return Doc{"peeredDnsDomains": c.Domains}, nil
}

func (s *serviceNetworking) deletePeeredDomain(r *request) (any, error) {
	parent, name, _ := strings.Cut(r.Path["name"], "/peeredDnsDomains/")
	network, c, err := s.connectionOf(r, parent)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(c.Domains, func(d Doc) bool { return str(d, "name") == name }) {
		return nil, refuse(404, "notFound", "The peered DNS domain '%s' was not found.", name)
	}
	return s.start(r, network, "remove-domain", Doc{"name": name}, peeredTakes), nil
}

// carryOutDomain ends the operation of a peered DNS domain.
func (s *serviceNetworking) carryOutDomain(op *longOperation, c *connection) {
	if c == nil {
		op.fail(rpcFailedPrecondition, "The network has no private connection.")
		return
	}
	c.Domains = slices.DeleteFunc(c.Domains, func(d Doc) bool { return str(d, "name") == str(op.Args, "name") })
	if op.Kind == "remove-domain" {
		op.finish("google.protobuf.Empty", nil)
		return
	}
	domain := Doc{"name": op.Args["name"], "dnsSuffix": op.Args["dnsSuffix"]}
	c.Domains = append(c.Domains, domain)
	op.finish("google.cloud.servicenetworking.v1.PeeredDnsDomain", domain)
}
