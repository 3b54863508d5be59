package db

import (
	"net"
	"time"
)

// A server that vanishes without a word, such as a primary whose machine lost
// its network, answers nothing and closes nothing: a statement that waits for it
// would wait for as long as the kernel sends again, a quarter of an hour. An idle
// connection is found dead by its probes, one with data on its way by
// unansweredFor.
const (
	probeAfter    = 5 * time.Second // of silence
	probeEvery    = 2 * time.Second
	probes        = 3
	unansweredFor = 10 * time.Second
)

// dialer makes connections that notice when the other side is gone.
func dialer(timeout time.Duration) *net.Dialer {
	return &net.Dialer{
		Timeout:         timeout,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: probeAfter, Interval: probeEvery, Count: probes},
		Control:         boundUnanswered,
	}
}
