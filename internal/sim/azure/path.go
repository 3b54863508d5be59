package azure

import (
	"strings"
)

// An armID is a resource ID or the path of a collection, taken apart. Segments compare without case, and keep the one
// they were written in.
type armID struct {
	Subscription string
	Group        string
	// Scope is the resource that an extension resource (a lock, a role assignment) is attached to; empty for all others.
	Scope     string
	Namespace string
	Types     []string
	// Names is as long as Types for a resource, one shorter for a collection.
	Names []string
}

// parseID takes a path apart. It answers false for what is neither a resource nor a collection of a provider.
func parseID(path string) (armID, bool) {
	segs := strings.Split(strings.Trim(path, "/"), "/")
	last := -1
	for i, s := range segs {
		if strings.EqualFold(s, "providers") {
			last = i
		}
	}
	if last < 0 || len(segs) < last+3 {
		return armID{}, false
	}
	id := armID{Namespace: segs[last+1]}
	head := segs[:last]
	for i := 0; i+1 < len(head); i += 2 {
		switch {
		case i == 0 && strings.EqualFold(head[0], "subscriptions"):
			id.Subscription = head[1]
		case i == 2 && strings.EqualFold(head[2], "resourceGroups"):
			id.Group = head[3]
		}
	}
	if len(head) > 4 {
		id.Scope = "/" + strings.Join(head, "/")
	}
	for i, s := range segs[last+2:] {
		if i%2 == 0 {
			id.Types = append(id.Types, s)
		} else {
			id.Names = append(id.Names, s)
		}
	}
	return id, len(head)%2 == 0
}

// typ is the resource type: "Microsoft.Network/virtualNetworks/subnets".
func (id armID) typ() string { return id.Namespace + "/" + strings.Join(id.Types, "/") }

// item says whether the path names one resource.
func (id armID) item() bool { return len(id.Names) == len(id.Types) }

func (id armID) name() string { return id.Names[len(id.Names)-1] }

// prefix is the path up to "/providers".
func (id armID) prefix() string {
	switch {
	case id.Scope != "":
		return id.Scope
	case id.Group != "":
		return groupID(id.Subscription, id.Group)
	case id.Subscription != "":
		return "/subscriptions/" + id.Subscription
	}
	return ""
}

// String is the ID with the given provider spelling of its types.
func (id armID) String() string {
	var b strings.Builder
	b.WriteString(id.prefix() + "/providers/" + id.Namespace)
	for i, t := range id.Types {
		b.WriteString("/" + t)
		if i < len(id.Names) {
			b.WriteString("/" + id.Names[i])
		}
	}
	return b.String()
}

// parent is the resource that a nested one lies in.
func (id armID) parent() (armID, bool) {
	if len(id.Types) < 2 {
		return armID{}, false
	}
	p := id
	p.Types, p.Names = id.Types[:len(id.Types)-1], id.Names[:len(id.Types)-1]
	return p, true
}

func groupID(subscription, group string) string {
	return "/subscriptions/" + subscription + "/resourceGroups/" + group
}

// key is how an ID is looked up: ARM IDs compare without case.
func key(id string) string { return strings.ToLower(id) }

// lastOf is the last segment of an ID: the name of the resource.
func lastOf(id string) string { return id[strings.LastIndex(id, "/")+1:] }

// subscriptionOf and groupOf are the parts of an ID.
func subscriptionOf(id string) string { return segmentAfter(id, "subscriptions") }
func groupOf(id string) string        { return segmentAfter(id, "resourcegroups") }

func segmentAfter(id, word string) string {
	segs := strings.Split(strings.Trim(id, "/"), "/")
	for i := 0; i+1 < len(segs) && i < 4; i += 2 {
		if strings.EqualFold(segs[i], word) {
			return segs[i+1]
		}
	}
	return ""
}

// parentOf is the ID of the resource that an ID lies in: the enclosing resource, or the group.
func parentOf(id string) string {
	parsed, ok := parseID(id)
	if !ok {
		return ""
	}
	if p, nested := parsed.parent(); nested {
		return p.String()
	}
	return parsed.prefix()
}
