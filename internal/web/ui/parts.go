package ui

import (
	"fmt"
	"strings"
	"time"

	"github.com/a-h/templ"
)

// htmxConfig: nothing is built from text at run time, forms answer 4xx with
// themselves, and what a reader opened stays open when a page is merged.
const htmxConfig = `{"morphIgnore":["data-htmx-powered","open"],"defaultSwap":"outerMorph","includeIndicatorCSS":false,"history":false}`

func windowTitle(f Frame) string {
	t := f.Title + " · ZopDay"
	if f.Error {
		t = "Error: " + t
	}
	return t
}

// A Tone is what a badge or a notice means beside its word and its icon.
type Tone string

// The tones.
const (
	Good    Tone = "good"
	Busy    Tone = "busy"
	Bad     Tone = "bad"
	Warning Tone = "warning"
	Plain   Tone = "plain"
)

// A Field is one field of a form.
type Field struct {
	Name, Label, Hint string
	Kind              string // text (default), password, number, email, url, search, date, textarea, select, checkbox
	Value             string
	Options           []Option // select
	Error             string
	Required          bool
	Auto              string // autocomplete; "off" if left out
	Placeholder       string
	Rows              int  // textarea
	Mono              bool // shown as code
	Checked           bool // checkbox
	Attrs             templ.Attributes
}

// An Option is a choice of a select or of radio buttons.
type Option struct {
	Value, Text, Hint string
	Disabled          bool
}

// ID is the field's element, to which an error summary links.
func (f Field) ID() string { return FieldID(f.Name) }

// FieldID is the element of a field, by its name.
func FieldID(name string) string {
	return "f-" + strings.NewReplacer(".", "-", "[", "-", "]", "").Replace(name)
}

func (f Field) described() string {
	var ids []string
	if f.Hint != "" {
		ids = append(ids, f.ID()+"-hint")
	}
	if f.Error != "" {
		ids = append(ids, f.ID()+"-error")
	}
	return strings.Join(ids, " ")
}

func (f Field) auto() string {
	if f.Auto == "" {
		return "off"
	}
	return f.Auto
}

// Ago is how long ago a time was, as a person says it.
func Ago(t, now time.Time) string {
	d := now.Sub(t)
	if d < 0 {
		return "in " + Length(-d)
	}
	if d < time.Second {
		return "just now"
	}
	return Length(d) + " ago"
}

// Length is a length of time as a person says it.
func Length(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}
