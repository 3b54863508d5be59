package cli

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/zopday/provisioner/internal/client"
)

// Set by the linker in a release: -X github.com/zopday/provisioner/internal/cli.version=v1.2.3
var version, commit, date string

// A BuildInfo names what is running.
type BuildInfo struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Date    string `json:"date,omitempty"`
	Go      string `json:"go"`
	OS      string `json:"os"`
}

// Build is what the linker said of this binary, or else what Go itself wrote
// into it.
func Build() BuildInfo {
	b := BuildInfo{Version: version, Commit: commit, Date: date, Go: runtime.Version(), OS: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if ok {
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision" && b.Commit == "":
				b.Commit = s.Value
			case s.Key == "vcs.time" && b.Date == "":
				b.Date = s.Value
			case s.Key == "vcs.modified" && s.Value == "true" && commit == "":
				b.Commit += "+changes"
			}
		}
		if b.Version == "" && strings.HasPrefix(info.Main.Version, "v") {
			b.Version = info.Main.Version
		}
	}
	if b.Version == "" {
		b.Version = "dev"
	}
	return b
}

// Version is the version's name alone.
func Version() string { return Build().Version }

func (a *app) versionCmd() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Show the version of this binary", Args: args(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			b := Build()
			resp, err := client.Wrap(b)
			if err != nil {
				return err
			}
			return a.print(resp, func(w io.Writer) {
				fmt.Fprintf(w, "zopday %s\n", b.Version)
				fields(w, "commit", b.Commit, "date", b.Date, "go", b.Go, "os", b.OS)
			})
		},
	}
}
