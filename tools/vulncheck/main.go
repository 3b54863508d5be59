// Command vulncheck runs govulncheck against a vulnerability database in a directory and tells
// apart what this project can mend from what its users' Go toolchain must: a vulnerability in a
// module that the code calls into is an error, one in the standard library a warning that names
// the release that has the fix.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/vuln/scan"
)

// message is the part of govulncheck's JSON stream that matters here.
type message struct {
	OSV *struct {
		ID      string `json:"id"`
		Summary string `json:"summary"`
	} `json:"osv"`
	Finding *struct {
		OSV          string `json:"osv"`
		FixedVersion string `json:"fixed_version"`
		Trace        []struct {
			Module   string `json:"module"`
			Version  string `json:"version"`
			Package  string `json:"package"`
			Function string `json:"function"`
		} `json:"trace"`
	} `json:"finding"`
}

type finding struct {
	id, where, fixed string
	standard         bool
}

func main() {
	db := flag.String("db", "", "directory of the database, as indexdb writes it")
	flag.Parse()
	code, err := run(context.Background(), *db, flag.Args(), os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "vulncheck:", err)
		os.Exit(2)
	}
	os.Exit(code)
}

func run(ctx context.Context, db string, patterns []string, out io.Writer) (int, error) {
	abs, err := filepath.Abs(db)
	if err != nil {
		return 0, err
	}
	cmd := scan.Command(ctx, append([]string{"-db", "file://" + abs, "-format", "json"}, patterns...)...)
	r, w := io.Pipe()
	cmd.Stdout, cmd.Stderr = w, os.Stderr
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	ended := make(chan error, 1)
	go func() {
		err := cmd.Wait()
		ended <- err
		_ = w.CloseWithError(err) // a pipe's close reports nothing
	}()
	findings, summaries, err := read(r)
	if err := errors.Join(<-ended, err); err != nil {
		return 0, err
	}
	code := 0
	for _, f := range findings {
		kind := "warning (Go release)"
		if !f.standard {
			kind, code = "error", 1
		}
		fix := "no fix yet"
		if f.fixed != "" {
			fix = "fixed in " + f.fixed
		}
		fmt.Fprintf(out, "%s: %s in %s, %s: %s\n", kind, f.id, f.where, fix, summaries[f.id])
	}
	if code == 0 {
		fmt.Fprintln(out, "no called vulnerability in a module")
	}
	return code, nil
}

// read returns each vulnerability that the code calls into, once for each module, in order.
func read(r io.Reader) ([]finding, map[string]string, error) {
	var findings []finding
	summaries := map[string]string{}
	for dec := json.NewDecoder(r); ; {
		var m message
		err := dec.Decode(&m)
		if errors.Is(err, io.EOF) {
			slices.SortFunc(findings, func(a, b finding) int {
				if a.id < b.id {
					return -1
				}
				return 1
			})
			return findings, summaries, nil
		}
		if err != nil {
			return nil, nil, err
		}
		if m.OSV != nil {
			summaries[m.OSV.ID] = m.OSV.Summary
		}
		// A trace without a function means that the code is required or imported, not called.
		if m.Finding == nil || len(m.Finding.Trace) == 0 || m.Finding.Trace[0].Function == "" {
			continue
		}
		at := m.Finding.Trace[0]
		f := finding{
			id: m.Finding.OSV, where: at.Module + "@" + at.Version, fixed: m.Finding.FixedVersion,
			standard: at.Module == "stdlib",
		}
		if !slices.Contains(findings, f) {
			findings = append(findings, f)
		}
	}
}
