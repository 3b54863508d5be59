package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/zopday/provisioner/internal/client"
)

// outputs are what -o takes.
var outputs = []string{"table", "wide", "json", "yaml", "jsonl", "name"}

// wide reports whether more columns are wanted.
func (a *app) wide() bool { return a.cfg.Output.Value == "wide" }

// tableTerm is the terminal that tables are fitted to: with -o wide they are not.
func (a *app) tableTerm() terminal {
	t := a.outTerm
	t.tty = t.tty && !a.wide()
	return t
}

// machine reports whether the output is for programs.
func (a *app) machine() bool {
	switch a.cfg.Output.Value {
	case "json", "yaml", "jsonl":
		return true
	}
	return false
}

// print writes a result: the API's body for programs, the IDs for -o name,
// and what human writes otherwise.
func (a *app) print(resp *client.Response, human func(w io.Writer)) error {
	switch a.cfg.Output.Value {
	case "json":
		var b bytes.Buffer
		if err := json.Indent(&b, bytes.TrimSpace(resp.Body), "", "  "); err != nil {
			return fmt.Errorf("the server's answer is no JSON: %w", err)
		}
		b.WriteByte('\n')
		return a.write(b.Bytes())
	case "yaml":
		b, err := yaml.JSONToYAML(resp.Body)
		if err != nil {
			return fmt.Errorf("the server's answer is no JSON: %w", err)
		}
		return a.write(b)
	case "jsonl":
		items, err := dataItems(resp)
		if err != nil {
			return err
		}
		for _, it := range items {
			var b bytes.Buffer
			if err := json.Compact(&b, it); err != nil {
				return fmt.Errorf("the server's answer is no JSON: %w", err)
			}
			b.WriteByte('\n')
			if err := a.write(b.Bytes()); err != nil {
				return err
			}
		}
		return nil
	case "name":
		items, err := dataItems(resp)
		if err != nil {
			return err
		}
		for _, it := range items {
			var named struct{ ID, Name string }
			if err := json.Unmarshal(it, &named); err != nil {
				continue
			}
			if named.ID == "" {
				named.ID = named.Name
			}
			if named.ID != "" {
				if err := a.write([]byte(clean(named.ID) + "\n")); err != nil {
					return err
				}
			}
		}
		return nil
	}
	var b bytes.Buffer
	human(&b)
	return a.write([]byte(a.outTerm.text(b.String())))
}

// write sends a result to the standard output. A reader that has gone away
// (head, say) is the end of the command, not a failure to talk about.
func (a *app) write(b []byte) error {
	if _, err := a.stdout.Write(b); err != nil {
		return quietExit(exitUnexpected)
	}
	return nil
}

// dataItems are the parts of a body's data: the elements of a list, or the
// one document.
func dataItems(resp *client.Response) ([]json.RawMessage, error) {
	var data json.RawMessage
	if err := resp.Data(&data); err != nil {
		return nil, err
	}
	var list []json.RawMessage
	if json.Unmarshal(data, &list) == nil {
		return list, nil
	}
	return []json.RawMessage{data}, nil
}

// A table is rows under headings, in columns as wide as they need to be.
type table struct {
	head []string
	rows [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// narrowest is how far a column gives way on a terminal.
const narrowest = 18

// fit makes columns narrower until a row fits, the widest first. The last one
// takes what is left.
func fit(widths []int, cols int) {
	last := len(widths) - 1
	for {
		total, widest := min(widths[last], narrowest), 0
		for i, w := range widths[:last] {
			total += w + 2
			if w > widths[widest] {
				widest = i
			}
		}
		if total <= cols || widths[widest] <= narrowest || widest == last {
			return
		}
		widths[widest]--
	}
}

// write prints the table. On a terminal wide columns give way, so that rows do
// not break.
func (t *table) write(w io.Writer, term terminal) {
	all := t.rows
	if t.head != nil {
		all = append([][]string{t.head}, all...)
	}
	var widths []int
	for _, r := range all {
		for i, c := range r {
			if i >= len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], width(c))
		}
	}
	cols, _ := term.size()
	if term.tty && len(widths) > 0 {
		fit(widths, cols)
	}
	for i, r := range all {
		var b strings.Builder
		used := 0
		for j, c := range r {
			c = clean(c)
			if j == len(r)-1 {
				if term.tty && used+width(c) > cols {
					c = term.cut(c, max(cols-used, 8))
				}
				b.WriteString(c)
				continue
			}
			b.WriteString(pad(term.cut(c, widths[j]), widths[j]) + "  ")
			used += widths[j] + 2
		}
		line := strings.TrimRight(b.String(), " ")
		if i == 0 && t.head != nil {
			line = term.paint(bold, line)
		}
		fmt.Fprintln(w, line)
	}
}

// fields prints names and values in two columns.
func fields(w io.Writer, pairs ...string) {
	wide := 0
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			wide = max(wide, width(pairs[i]))
		}
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			fmt.Fprintf(w, "%s  %s\n", pad(pairs[i], wide), clean(pairs[i+1]))
		}
	}
}
