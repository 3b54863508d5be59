package gcp

import (
	"fmt"
	"regexp"
	"strings"
)

var (
	zoneName = regexp.MustCompile(`^[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?$`)
	dnsName  = regexp.MustCompile(`^(?:(?:\*|[a-z0-9_](?:[-a-z0-9_]{0,61}[a-z0-9_])?)\.)+$`)
)

func (d *dnsService) createZone(r *request) (any, error) {
	doc := clone(r.Body)
	name := str(doc, "name")
	path := "projects/" + r.Project.ID + "/managedZones/" + name
	switch {
	case name == "":
		return nil, refuse(400, "required", "The 'entity.managedZone.name' parameter is required but was missing.")
	case !zoneName.MatchString(name):
		return nil, dnsInvalid("entity.managedZone.name", name)
	case d.st.Zones[path] != nil:
		return nil, refuse(409, "alreadyExists", "The resource 'entity.managedZone' named '%s' already exists", name)
	}
	fqdn := strings.ToLower(str(doc, "dnsName"))
	if fqdn == "" {
		return nil, refuse(400, "required", "The 'entity.managedZone.dnsName' parameter is required but was missing.")
	}
	if !dnsName.MatchString(fqdn) || len(fqdn) > 254 {
		return nil, dnsInvalid("entity.managedZone.dnsName", str(doc, "dnsName"))
	}
	doc["dnsName"] = fqdn
	if err := checkLabels(doc); err != nil {
		return nil, dnsInvalid("entity.managedZone.labels", "")
	}
	setDefault(doc, "visibility", "public")
	if err := d.checkVisibility(r, doc, path); err != nil {
		return nil, err
	}
	d.st.Seq++
	now := d.cloud.World.Now()
	z := &dnsZone{Path: path, Project: r.Project.ID, Created: now, Seq: d.st.Seq, Doc: doc, Records: map[string]*dnsRecord{}, Operations: map[string]Doc{}}
	doc["kind"], doc["id"], doc["creationTime"] = "dns#managedZone", d.cloud.numericID(), now.UTC().Format("2006-01-02T15:04:05.000Z")
	doc["cloudLoggingConfig"] = withKind(sub(doc, "cloudLoggingConfig"), "dns#managedZoneCloudLoggingConfig")
	servers, err := d.nameServers(z)
	if err != nil {
		return nil, err
	}
	doc["nameServers"] = anys(servers)
	fillDNSSEC(doc)
	setDefault(doc, "description", "")
	z.put(d, Doc{"name": fqdn, "type": "NS", "ttl": float64(21600), "rrdatas": anys(servers)})
	z.put(d, Doc{"name": fqdn, "type": "SOA", "ttl": float64(21600), "rrdatas": []any{servers[0] + " cloud-dns-hostmaster.google.com. 1 21600 3600 259200 300"}})
	z.Changes = []*dnsChange{{ID: "0", Doc: Doc{"kind": "dns#change", "id": "0", "startTime": doc["creationTime"], "status": "done",
		"additions": []any{z.Records[recordKey(fqdn, "NS")].Doc, z.Records[recordKey(fqdn, "SOA")].Doc}}}}
	d.st.Zones[path] = z
	r.Make(path)
	return doc, nil
}

func withKind(d Doc, kind string) Doc {
	if d == nil {
		d = Doc{}
	}
	d["kind"] = kind
	return d
}

// nameServers are a zone's own. Zones of the same name, in whatever project, get different ones, so that a delegation leads to
// one of them; when all are taken the name is refused ("Name server limits", Cloud DNS).
func (d *dnsService) nameServers(z *dnsZone) ([]string, error) {
	if str(z.Doc, "visibility") == "private" {
		return []string{"ns-gcp-private.googledomains.com."}, nil
	}
	taken := map[string]bool{}
	for _, other := range d.st.Zones {
		if str(other.Doc, "visibility") == "public" && str(other.Doc, "dnsName") == str(z.Doc, "dnsName") {
			taken[texts(other.Doc, "nameServers")[0]] = true
		}
	}
	first := int(d.cloud.World.Fraction("name-servers", z.Path) * 5)
	for i := range 5 {
		letter := string("abcde"[(first+i)%5])
		var out []string
		for n := 1; n <= 4; n++ {
			out = append(out, fmt.Sprintf("ns-cloud-%s%d.googledomains.com.", letter, n))
		}
		if !taken[out[0]] {
			return out, nil
		}
	}
	return nil, refuse(400, "managedZoneDnsNameNotAvailable", "The ManagedZone dns name '%s' is not available to be created.", str(z.Doc, "dnsName"))
}

// checkVisibility checks the networks that a private zone is seen from.
func (d *dnsService) checkVisibility(r *request, doc Doc, self string) error {
	config := sub(doc, "privateVisibilityConfig")
	if config != nil && len(list(config, "networks")) == 0 {
		delete(config, "networks")
	}
	networks := docs(config, "networks")
	if str(doc, "visibility") != "private" {
		if len(networks) > 0 {
			return dnsInvalid("entity.managedZone.privateVisibilityConfig", "")
		}
		return nil
	}
	for i, n := range networks {
		at := fmt.Sprintf("entity.managedZone.privateVisibilityConfig.networks[%d].networkUrl", i)
		path := d.cloud.pathOfLink(r.Project.ID, str(n, "networkUrl"))
		if path == "" || d.cloud.compute.at(path) == nil {
			return dnsInvalid(at, str(n, "networkUrl"))
		}
		for _, other := range d.inOrder() {
			if other.Path == self || str(other.Doc, "dnsName") != str(doc, "dnsName") {
				continue
			}
			for _, on := range docs(sub(other.Doc, "privateVisibilityConfig"), "networks") {
				if d.cloud.pathOfLink(other.Project, str(on, "networkUrl")) == path {
					return refuse(409, "alreadyExists", "The network '%s' already has a managed zone '%s' with the DNS name '%s'", path, str(other.Doc, "name"), str(doc, "dnsName"))
				}
			}
		}
	}
	if peer := sub(sub(doc, "peeringConfig"), "targetNetwork"); peer != nil && d.cloud.pathOfLink(r.Project.ID, str(peer, "networkUrl")) == "" {
		return dnsInvalid("entity.managedZone.peeringConfig.targetNetwork.networkUrl", str(peer, "networkUrl"))
	}
	return nil
}

// fillDNSSEC completes the DNSSEC settings of a zone that has some.
func fillDNSSEC(doc Doc) {
	config := sub(doc, "dnssecConfig")
	if config == nil {
		return
	}
	config["kind"] = "dns#managedZoneDnsSecConfig"
	setDefault(config, "state", "off")
	setDefault(config, "nonExistence", "nsec3")
	setDefault(config, "defaultKeySpecs", []any{
		Doc{"keyType": "keySigning", "algorithm": "rsasha256", "keyLength": float64(2048), "kind": "dns#dnsKeySpec"},
		Doc{"keyType": "zoneSigning", "algorithm": "rsasha256", "keyLength": float64(1024), "kind": "dns#dnsKeySpec"}})
}

// changeZone is patch or update (whole). Name and DNS name are fixed, and the key specifications while DNSSEC is on.
func (d *dnsService) changeZone(whole bool) operation {
	return func(r *request) (any, error) {
		z, err := d.zone(r)
		if err != nil {
			return nil, err
		}
		for _, f := range []string{"name", "dnsName", "visibility"} {
			if v := str(r.Body, f); v != "" && v != str(z.Doc, f) {
				return nil, immutable("entity.managedZone." + f)
			}
		}
		old := clone(z.Doc)
		doc := clone(z.Doc)
		if whole {
			for _, f := range []string{"description", "labels", "privateVisibilityConfig", "forwardingConfig", "peeringConfig"} {
				delete(doc, f)
			}
		}
		if keys := list(sub(r.Body, "dnssecConfig"), "defaultKeySpecs"); keys != nil && str(sub(old, "dnssecConfig"), "state") == "on" &&
			fingerprint(keys) != fingerprint(list(sub(old, "dnssecConfig"), "defaultKeySpecs")) {
			return nil, immutable("entity.managedZone.dnssecConfig.defaultKeySpecs")
		}
		merge(doc, r.Body)
		setDefault(doc, "description", "")
		fillDNSSEC(doc)
		doc["cloudLoggingConfig"] = withKind(sub(doc, "cloudLoggingConfig"), "dns#managedZoneCloudLoggingConfig")
		if err := checkLabels(doc); err != nil {
			return nil, dnsInvalid("entity.managedZone.labels", "")
		}
		if err := d.checkVisibility(r, doc, z.Path); err != nil {
			return nil, err
		}
		z.Doc = doc
		op := Doc{"kind": "dns#operation", "id": d.cloud.World.UUID(), "startTime": zuluTime(d.cloud.World.Now()), "status": "done", "type": "UPDATE", "user": r.Who.Email,
			"zoneContext": Doc{"oldValue": old, "newValue": clone(doc)}}
		z.Operations[str(op, "id")] = op
		return op, nil
	}
}

func immutable(field string) *Error {
	return refuse(400, "immutableField", "The field '%s' cannot be modified.", field)
}
