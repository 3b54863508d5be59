package ui

import (
	"github.com/a-h/templ"

	"github.com/zopday/provisioner/internal/access"
)

// A Frame is what stands around a page.
type Frame struct {
	Title  string // of the window and the page's heading
	Active string // the entry of the navigation that the page belongs to
	Crumbs []Link // the way here
	// Head stands in the place of the plain heading, such as one with a badge and actions.
	Head templ.Component
	// Error: the title begins with the word, so that a screen reader says it first.
	Error bool
	Wide  bool // the page uses the whole width
}

// A Link is a place to go.
type Link struct{ Text, Href string }

// A NavItem is an entry of the navigation.
type NavItem struct {
	Text, Href, Icon string
	Policies         []access.Policy // one of which a caller needs to see it; none: everybody
}

// nav is the navigation. Entries that a caller may not use are absent.
var nav = []struct {
	Title string
	Items []NavItem
}{
	{"", []NavItem{
		{"Home", Root + "/", "house", nil},
	}},
}

// seen are the entries of a group that a caller sees.
func seen(p *Page, items []NavItem) []NavItem {
	var out []NavItem
	for _, i := range items {
		may := len(i.Policies) == 0
		for _, policy := range i.Policies {
			may = may || p.Can(policy)
		}
		if may {
			out = append(out, i)
		}
	}
	return out
}
