//go:build !linux

package databases

import "syscall"

// diesWithUs: only Linux has this; elsewhere a process outlives one that was killed.
func diesWithUs(*syscall.SysProcAttr, syscall.Signal) {}
