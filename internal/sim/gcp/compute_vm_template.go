package gcp

import (
	"fmt"
	"strings"
	"time"
)

func (e *Compute) templateKind() *kind {
	return &kind{collection: "instanceTemplates", noun: "instance_template", schema: "InstanceTemplate",
		resources: map[string]string{"": "instanceTemplates", "regions": "regionInstanceTemplates"},
		takes:     map[string]time.Duration{"insert": setTakes, "delete": setTakes},
		// A template names what its instances will use, and uses nothing itself.
		loose:   []string{"properties", "sourceInstance"},
		uses:    func(*Resource) []string { return nil },
		prepare: e.prepareTemplate,
		tags:    func(res *Resource) map[string]string { return labelsOf(sub(res.Doc, "properties")) },
		quota: func(res *Resource) map[string]float64 {
			if res.region() != "" {
				return nil
			}
			return map[string]float64{"INSTANCE_TEMPLATES": 1}
		},
	}
}

// insertTemplate names its operation as no other insert does.
func (e *Compute) insertTemplate(r *request) (any, error) {
	out, err := e.insert(e.kinds["instanceTemplates"])(r)
	if err != nil || len(r.Made) == 0 {
		return out, err
	}
	op := e.st.Operations[r.Made[len(r.Made)-1]]
	op.Type = "compute.instanceTemplates.insert"
	return op.shown(), nil
}

// prepareTemplate checks a template's properties, as far as they can be wrong whatever the zone ("Method:
// instanceTemplates.insert"), and fills them up.
func (e *Compute) prepareTemplate(r *request, _ string, doc Doc) error {
	const at = "resource.properties"
	p := sub(doc, "properties")
	if p == nil {
		return refuse(400, "required", "Required field '%s' not specified", at)
	}
	if name := str(p, "machineType"); strings.Contains(name, "/") || machineTypes[name].name == "" {
		return invalidField(at+".machineType", name, "Must be a simple resource name of the format 'n1-standard-1' that exists.")
	}
	if err := e.templateDisks(r.Project.ID, at, p); err != nil {
		return err
	}
	if err := e.templateInterfaces(r.Project.ID, at, p); err != nil {
		return err
	}
	for _, check := range []func(Doc) error{checkLabels, checkMetadata, checkTags} {
		if err := check(p); err != nil {
			return err
		}
	}
	if err := e.prepareAccounts(r.Project.ID, p); err != nil {
		return err
	}
	m := subOf(p, "metadata")
	m["kind"], m["fingerprint"] = "compute#metadata", fingerprint(m["items"])
	fillScheduling(subOf(p, "scheduling"))
	return nil
}

func (e *Compute) templateDisks(project, at string, p Doc) error {
	disks := docs(p, "disks")
	if len(disks) == 0 {
		return invalidField(at+".disks", "", "No disks are specified.")
	}
	for n, d := range disks {
		field := fmt.Sprintf("%s.disks[%d]", at, n)
		params := sub(d, "initializeParams")
		if params == nil && str(d, "source") == "" {
			return invalidField(field, "", "Disk must have a source or initializeParams.")
		}
		if t := str(params, "diskType"); t != "" {
			if _, known := diskTypes[t]; !known {
				return invalidField(field+".initializeParams.diskType", t, "Must be a simple resource name of a disk type.")
			}
		}
		if link := str(params, "sourceImage"); link != "" {
			if _, err := e.image(project, field+".initializeParams.sourceImage", link); err != nil {
				return err
			}
		} else if truth(d, "boot") && str(d, "source") == "" {
			return invalidField(field+".initializeParams.sourceImage", "", "Boot disk must have a source image.")
		}
		if err := checkLabels(params); err != nil {
			return err
		}
		name := "persistent-disk-" + fmt.Sprint(n)
		if truth(d, "boot") {
			name = "boot"
		}
		for k, v := range map[string]any{"kind": "compute#attachedDisk", "index": float64(n), "deviceName": name, "type": "PERSISTENT", "mode": "READ_WRITE"} {
			setDefault(d, k, v)
		}
	}
	if !truth(disks[0], "boot") {
		return invalidField(at+".disks[0].boot", "false", "Boot disk must be the first disk attached to the instance.")
	}
	return nil
}

func (e *Compute) templateInterfaces(project, at string, p Doc) error {
	interfaces := docs(p, "networkInterfaces")
	if len(interfaces) == 0 {
		return invalidField(at+".networkInterfaces", "", "At least one network interface is required.")
	}
	for n, i := range interfaces {
		field := fmt.Sprintf("%s.networkInterfaces[%d]", at, n)
		if link := str(i, "subnetwork"); link != "" {
			subnet, err := e.link(project, field+".subnetwork", link, "subnetworks")
			if err != nil {
				return err
			}
			i["subnetwork"], i["network"] = selfLink(subnet.Path), selfLink(e.cloud.pathOfLink(project, str(subnet.Doc, "network")))
		} else {
			setDefault(i, "network", "global/networks/default")
			network, err := e.link(project, field+".network", str(i, "network"), "networks")
			if err != nil {
				return err
			}
			if !truth(network.Doc, "autoCreateSubnetworks") {
				return invalidField(field, "{  \"network\": \""+str(i, "network")+"\"}", "Subnetwork should be specified for custom subnetmode network")
			}
			i["network"] = selfLink(network.Path)
		}
		i["kind"], i["name"] = "compute#networkInterface", fmt.Sprintf("nic%d", n)
		if err := prepareAccess(field, i); err != nil {
			return err
		}
	}
	return nil
}

// template finds a template by its link, global or of the region in which it is used.
func (e *Compute) template(project, field, link, region string) (*Resource, error) {
	res, err := e.link(project, field, link, "instanceTemplates")
	if err == nil && res.region() != "" && res.region() != region {
		return nil, invalidField(field, link, "The instance template must be global or in the region '"+region+"'.")
	}
	return res, err
}

// fromTemplate is the document of an instance made from a template; what the caller says besides goes before the template.
func (e *Compute) fromTemplate(project, zone, link string, own Doc) (Doc, error) {
	t, err := e.template(project, "sourceInstanceTemplate", link, regionOf(zone))
	if err != nil {
		return nil, err
	}
	doc := clone(sub(t.Doc, "properties"))
	for k, v := range own {
		if m, ok := v.(map[string]any); ok && len(m) == 0 {
			continue
		}
		if s, ok := v.(string); ok && s == "" {
			continue
		}
		doc[k] = v
	}
	return doc, nil
}
