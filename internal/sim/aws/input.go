package aws

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"time"
)

// setInput gives a request the parameters that the control API was given, in the form of the protocol.
func (r *request) setInput(a *api, params map[string]any) error {
	switch a.protocol {
	case ec2Protocol:
		flatten("", params, "", r.Form)
	case queryProtocol:
		flatten("", params, ".member", r.Form)
	default:
		b, err := json.Marshal(params)
		if err != nil {
			return fmt.Errorf("params: %w", err)
		}
		r.Body = b
	}
	return nil
}

// newRequestID makes a request ID. It is drawn from outside of the seed: refused requests must not change what comes
// after them.
func newRequestID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// stamp renders a time as the XML protocols do, with milliseconds.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }
