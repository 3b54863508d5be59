package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/job"
)

// A StreamHandler is told what happens on an event stream.
type StreamHandler struct {
	// Event gets every event of the job once, in order.
	Event func(job.Event)
	// Lost and Back say that the line dropped and that it stands again; the
	// stream goes on from the last event seen. They may be nil.
	Lost func(error)
	Back func()
}

// retryAfter is how long a dropped stream waits before it is opened again;
// the server may ask for another time by a retry field.
const retryAfter = time.Second

// silence is how long a stream may be quiet before it counts as dropped: the
// server sends a comment every 15 s.
const silence = 45 * time.Second

// Stream follows a job's events after the event numbered since, and opens the
// stream again whenever the line drops. It returns nil when the server ends
// the stream because the job has come to rest, the context's error when that
// ends, or a *Problem when the server refuses.
func (c *Client) Stream(ctx context.Context, id string, since int64, h StreamHandler) error {
	wait, down := retryAfter, false
	for {
		ended, err := c.streamOnce(ctx, id, &since, &wait, h, func() {
			if down && h.Back != nil {
				h.Back()
			}
			down = false
		})
		var p *Problem
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &p) && p.Status < 500 && p.Status != http.StatusTooManyRequests:
			return err
		case ended:
			return nil
		}
		if !down && h.Lost != nil {
			h.Lost(err)
		}
		down = true
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

// streamOnce reads one connection. ended says that the server closed it with
// an "end" event, so that nothing more will come.
func (c *Client) streamOnce(ctx context.Context, id string, since *int64, wait *time.Duration, h StreamHandler, opened func()) (ended bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	hdr := http.Header{"Accept": {"text/event-stream"}}
	if *since > 0 {
		hdr.Set("Last-Event-ID", strconv.FormatInt(*since, 10))
	}
	// A connection that is set up but never answers is dropped like a silent one.
	quiet := time.AfterFunc(silence, cancel)
	defer quiet.Stop()
	resp, err := c.send(ctx, http.MethodGet, jobPath(id, "events"), nil, nil, hdr)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 400 {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
		return false, parseProblem(&Response{Status: resp.StatusCode, Header: resp.Header, Body: b})
	}
	opened()
	var m message
	in := bufio.NewReaderSize(resp.Body, 64<<10)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return false, err
		}
		quiet.Reset(silence)
		line = strings.TrimRight(line, "\r\n")
		if line != "" {
			m.add(line)
			continue
		}
		if m.retry > 0 {
			*wait = m.retry
		}
		if m.event == "end" {
			return true, nil
		}
		if ev, ok := m.decode(); ok && ev.Seq > *since {
			*since = ev.Seq
			h.Event(ev)
		}
		m = message{}
	}
}

// A message is one server-sent event as it is being read.
type message struct {
	id, event string
	data      []string
	retry     time.Duration
}

func (m *message) add(line string) {
	name, value, _ := strings.Cut(line, ":")
	value = strings.TrimPrefix(value, " ")
	switch name {
	case "id":
		m.id = value
	case "event":
		m.event = value
	case "data":
		m.data = append(m.data, value)
	case "retry":
		if n, err := strconv.Atoi(value); err == nil && n >= 0 {
			m.retry = time.Duration(n) * time.Millisecond
		}
	}
}

func (m *message) decode() (job.Event, bool) {
	var ev job.Event
	if len(m.data) == 0 || json.Unmarshal([]byte(strings.Join(m.data, "\n")), &ev) != nil {
		return ev, false
	}
	if ev.Seq == 0 {
		n, err := strconv.ParseInt(m.id, 10, 64)
		if err != nil {
			return ev, false
		}
		ev.Seq = n
	}
	if ev.Type == "" {
		ev.Type = m.event
	}
	return ev, ev.Type != ""
}

func jobPath(id string, more ...string) string {
	return strings.Join(append([]string{"/provisioning-jobs", escape(id)}, more...), "/")
}

// escape keeps what a person typed as an ID inside one path segment.
func escape(id string) string {
	var b strings.Builder
	for i := range len(id) {
		ch := id[i]
		if ch >= 'a' && ch <= 'z' || ch >= 'A' && ch <= 'Z' || ch >= '0' && ch <= '9' || ch == '_' || ch == '-' {
			b.WriteByte(ch)
		} else {
			fmt.Fprintf(&b, "%%%02X", ch)
		}
	}
	return b.String()
}
