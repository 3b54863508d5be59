package kube

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// BinaryVariable names the environment variable with the path of the control plane's binary.
const BinaryVariable = "ZOPDAY_KUBE_BINARY"

const binaryName = "kube-sandbox"

// ErrNoBinary says that the control plane was not built.
var ErrNoBinary = errors.New("the Kubernetes control plane of the simulated clusters is not built; `make kube` builds it, " +
	"which takes minutes the first time; or set " + BinaryVariable + " to the path of its binary")

// Binary says where the control plane's binary is: where BinaryVariable says, beside this
// program, or where `make kube` leaves it in the source tree around the working directory, or
// around this program. It is ErrNoBinary if there is none of the present sources.
func Binary() (string, error) {
	if path := os.Getenv(BinaryVariable); path != "" {
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("%s: %w", BinaryVariable, err)
		}
		return path, nil
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	around := []string{dir}
	if self, err := os.Executable(); err == nil {
		if path := filepath.Join(filepath.Dir(self), binaryName); executable(path) {
			return path, nil
		}
		around = append(around, filepath.Dir(self))
	}
	for _, dir := range around {
		if path, err := built(dir); err != nil || path != "" {
			return path, err
		}
	}
	return "", ErrNoBinary
}

// built is the binary of the source tree around a directory; empty if there is none.
func built(dir string) (string, error) {
	for {
		hash, err := sourceHash(filepath.Join(dir, "tools", "kube"))
		if err != nil {
			return "", err
		}
		if path := filepath.Join(dir, ".cache", "kube", hash, binaryName); hash != "" && executable(path) {
			return path, nil
		}
		up := filepath.Dir(dir)
		if hash != "" || up == dir {
			return "", nil
		}
		dir = up
	}
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// sourceHash is what scripts/kube calls the folder of the binary; empty if dir has no sources.
func sourceHash(dir string) (string, error) {
	sources, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(sources) == 0 {
		return "", err
	}
	slices.Sort(sources)
	h := sha256.New()
	for _, path := range append([]string{filepath.Join(dir, "go.mod"), filepath.Join(dir, "go.sum")}, sources...) {
		b, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		h.Write(b)
	}
	return hex.EncodeToString(h.Sum(nil))[:16], nil
}
