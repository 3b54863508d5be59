package gcp

import (
	"strings"
)

// rel is the relative resource name that a link stands for, whatever it is
// written with: full URLs of any host and version, partial URLs, and names that
// are relative already. A router, for one, gives back what it was told ("Resource
// names", Compute Engine API).
func rel(link string) string {
	if i := strings.Index(link, "projects/"); i >= 0 {
		return link[i:]
	}
	return link
}

// base is the last element of a link: an object's own name.
func base(link string) string { return link[strings.LastIndexByte(link, '/')+1:] }

// part is the element of a link that follows another, such as the region of a
// subnet; "" if the link has none.
func part(link, after string) string {
	elements := strings.Split(rel(link), "/")
	for i, e := range elements[:len(elements)-1] {
		if e == after {
			return elements[i+1]
		}
	}
	return ""
}

func projectOf(link string) string { return part(link, "projects") }
func regionOf(link string) string  { return part(link, "regions") }
func zoneOf(link string) string    { return part(link, "zones") }

// global is the link of a global object of the project.
func (p *Provider) global(collection, name string) string {
	return "projects/" + p.project + "/global/" + collection + "/" + name
}

// regional is the link of an object of the job's region.
func (p *Provider) regional(collection, name string) string {
	return "projects/" + p.project + "/regions/" + p.region + "/" + collection + "/" + name
}

// zonal is the link of an object of a zone.
func (p *Provider) zonal(zone, collection, name string) string {
	return "projects/" + p.project + "/zones/" + zone + "/" + collection + "/" + name
}
