package azure

import (
	"net/http"
	"slices"
	"time"
)

// nested says how a list in a resource's body stands for resources of their own below it.
type nested struct {
	property, typ string
	// keep: a body without the list leaves what is there.
	keep bool
}

// putNested makes the resources that a list in the body describes, and removes those that it no longer names. The list
// itself does not stay in the properties.
func (c *Cloud) putNested(r *request, now *Resource, n nested) error {
	given, ok := now.Properties[n.property]
	delete(now.Properties, n.property)
	if !ok || given == nil {
		if n.keep {
			return nil
		}
		given = []any{}
	}
	k := c.kindOf(n.typ)
	var wanted []string
	for i, item := range (doc{"list": given}).docs("list") {
		name := item.str("name")
		if name == "" || !k.name.pattern.MatchString(name) {
			return refuseNetwork(http.StatusBadRequest, "InvalidResourceName", "Resource name %s is invalid. %s (properties.%s[%d].name)", name, k.name.text, n.property, i)
		}
		id := now.ID + "/" + lastOf(n.typ) + "/" + name
		if slices.Contains(wanted, key(id)) {
			return refuseNetwork(http.StatusBadRequest, "DuplicateResourceName", "Resource %s has two child resources with the same name (%s).", now.ID, name)
		}
		wanted = append(wanted, key(id))
	}
	for _, old := range c.children(now.ID, n.typ) {
		if slices.Contains(wanted, key(old.ID)) {
			continue
		}
		if k.remove != nil {
			if _, err := k.remove(r, old); err != nil {
				return err
			}
		}
		c.drop(old)
	}
	r.nesting = true
	defer func() { r.nesting = false }()
	for i, item := range (doc{"list": given}).docs("list") {
		if err := c.putOneNested(r, now, k, wanted[i], item, i); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cloud) putOneNested(r *request, parent *Resource, k *kind, id string, item doc, position int) error {
	old := c.find(id)
	child := &Resource{ID: parent.ID + "/" + lastOf(k.typ) + "/" + item.str("name"), Type: k.typ, Name: item.str("name"), Properties: item.sub("properties").clone(),
		Top: doc{}, State: stateUpdating, Etag: k.newEtag(c), Created: c.World.Now().Add(time.Duration(position)), Changed: c.World.Now()} // listed in the order of the body
	if old != nil {
		child.ID, child.Name, child.Created = old.ID, old.Name, old.Created
	}
	delete(child.Properties, "provisioningState")
	// What only answers carry comes back in bodies that were read before; it changes nothing.
	for _, p := range readOnly {
		delete(child.Properties, p)
	}
	if _, err := k.put(r, child, old); err != nil {
		return err
	}
	c.keep(child)
	r.Touch(child.ID)
	return nil
}

// readOnly are properties that are computed when a resource is shown.
var readOnly = []string{"ipConfigurations", "ipConfigurationProfiles", "serviceAssociationLinks", "resourceNavigationLinks", "purpose", "privateEndpoints", "subnets",
	"networkInterfaces", "defaultSecurityRules", "flowLogs", "peeringState", "peeringSyncLevel", "remoteAddressSpace", "resourceGuid"}

// showNested puts the resources below one into its body.
func (c *Cloud) showNested(r *request, res *Resource, body doc, n nested) {
	list := []any{}
	for _, child := range c.children(res.ID, n.typ) {
		list = append(list, c.render(r, child))
	}
	body.sub("properties")[n.property] = list
}
