package db

import (
	"fmt"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// boundUnanswered bounds how long data that was sent may stay unacknowledged:
// while there is some, the kernel sends no keepalive probes (tcp(7), TCP_USER_TIMEOUT).
func boundUnanswered(network, _ string, raw syscall.RawConn) error {
	if !strings.HasPrefix(network, "tcp") {
		return nil // a socket in the file system has no other side to lose
	}
	var set error
	err := raw.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(unansweredFor.Milliseconds()))
	})
	if err == nil {
		err = set
	}
	if err != nil {
		return fmt.Errorf("TCP_USER_TIMEOUT: %w", err)
	}
	return nil
}
