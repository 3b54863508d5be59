package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// callsLine is what a demo says of each stretch, such as create=109/39.
var callsLine = regexp.MustCompile(`(\w+)=(\d+)/(\d+)`)

// environments counts the calls of every job file of the examples, in all and
// mutating, so that a change which doubles them shows. It runs the binary, as a
// person does.
func environments(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "zopday-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	binary, err := build(ctx, dir)
	if err != nil {
		return err
	}
	files, err := filepath.Glob("examples/*.yaml")
	if err != nil {
		return err
	}
	for _, file := range files {
		if strings.HasSuffix(file, ".sandbox.yaml") {
			continue
		}
		out, err := exec.CommandContext(ctx, binary, "demo", "-f", file, "--time-scale", strconv.Itoa(pace)).CombinedOutput() //nolint:gosec // likewise
		if err != nil {
			return fmt.Errorf("%s: %w\n%s", file, err, out)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		lines := bufio.NewScanner(bytes.NewReader(out))
		for lines.Scan() {
			if !strings.HasPrefix(lines.Text(), "CALLS ") {
				continue
			}
			for _, m := range callsLine.FindAllStringSubmatch(lines.Text(), -1) {
				all, mutating := number(m[2]), number(m[3])
				report("calls_"+name+"_"+m[1], all, "calls")
				report("mutating_"+name+"_"+m[1], mutating, "calls")
			}
		}
	}
	return nil
}

func number(digits string) float64 {
	n, err := strconv.ParseFloat(digits, 64)
	if err != nil {
		panic(err) // the expression takes digits alone
	}
	return n
}
