package aws

import (
	"fmt"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

// SSMState is everything that Systems Manager keeps, by account and region.
type SSMState struct {
	Scopes map[string]*SSMScope
}

// SSMScope is Systems Manager in one account and region.
type SSMScope struct {
	Commands   map[string]*SSMCommand
	Order      []string // command IDs, oldest first
	Parameters map[string]*SSMParameter
}

// SSMParameter is a parameter of the customer's own.
type SSMParameter struct {
	Name, Type, Value, DataType, Description string
	Version                                  int64
	Modified                                 time.Time
	Tags                                     []Tag
}

// SSMCommand is one Run Command request.
type SSMCommand struct {
	ID, Document, Version, Comment string
	Parameters                     map[string][]string
	InstanceIDs                    []string
	Targets                        map[string][]string
	MaxConcurrency, MaxErrors      string
	Requested                      time.Time
	Timeout                        int32 // seconds until delivery is given up
	Cancelled                      bool
	Invocations                    map[string]*SSMInvocation
	// Order keeps the instances in the order in which they were asked for.
	Order []string
}

// SSMInvocation is a command on one instance.
type SSMInvocation struct {
	InstanceID, Status, Details string
	Started, Ended              time.Time
	Code                        int32
	Stdout, Stderr              string
	// Held keeps the state that somebody gave it from outside.
	Held bool
	// Patience is when the script would give up waiting for a system that is still starting up.
	Patience time.Time
	// Result is what the guest will have answered when it is done.
	ResultStatus, ResultDetails, ResultStdout, ResultStderr string
	ResultCode                                              int32
}

func (iv *SSMInvocation) final() bool {
	switch iv.Status {
	case "Pending", "InProgress", "Delayed", "Cancelling":
		return false
	}
	return true
}

func (st *SSMState) in(sc scope) *SSMScope {
	s := st.Scopes[sc.key()]
	if s == nil {
		s = &SSMScope{Commands: map[string]*SSMCommand{}, Parameters: map[string]*SSMParameter{}}
		st.Scopes[sc.key()] = s
	}
	return s
}

func parseScopeKey(key string) scope {
	account, region, _ := strings.Cut(key, "/")
	return scope{account, region}
}

// ssmService is AWS Systems Manager: parameters, managed instances and Run Command.
type ssmService struct {
	cloud *Cloud
	state *SSMState
}

func newSSM(c *Cloud) *ssmService {
	s := &ssmService{cloud: c, state: &SSMState{}}
	c.World.Register(s)
	c.add(&api{
		service: "ssm", sdkPrefix: "AmazonSSM", protocol: jsonProtocol, version: "2014-11-06",
		ops: overJSON(s.operations()), encode: encodeJSON, messageKey: ssmMessageKey,
	})
	return s
}

// ssmMessageKey names the member with the text of an error: those about parameters and those of the protocol have a small
// one, the rest a capital one, as the API model has it.
func ssmMessageKey(code string) string {
	if strings.HasPrefix(code, "Parameter") || strings.HasSuffix(code, "Exception") && !strings.HasPrefix(code, "AccessDenied") || code == "InvalidKeyId" {
		return "message"
	}
	return "Message"
}

// Cloud implements sim.Service.
func (s *ssmService) Cloud() string { return "aws" }

// Name implements sim.Service.
func (s *ssmService) Name() string { return "ssm" }

// State implements sim.Service.
func (s *ssmService) State() any { return s.state }

// Reset implements sim.Service.
func (s *ssmService) Reset() { s.state.Scopes = map[string]*SSMScope{} }

// Objects implements sim.Service. Commands are history, not objects that somebody has to remove.
func (s *ssmService) Objects() []sim.Object {
	var out []sim.Object
	for _, key := range sortedKeys(s.state.Scopes) {
		sc, in := s.state.Scopes[key], parseScopeKey(key)
		for _, name := range sortedKeys(sc.Parameters) {
			p := sc.Parameters[name]
			out = append(out, sim.Object{Account: in.Account, Region: in.Region, Kind: "parameter", ID: name, Name: name,
				ARN: parameterARN(in, name), Tags: tagMap(p.Tags), Data: p})
		}
		for _, id := range sc.Order {
			cmd := sc.Commands[id]
			status, _ := cmd.status()
			out = append(out, sim.Object{Account: in.Account, Region: in.Region, Kind: "command", ID: id, State: status,
				Parents: cmd.Order, Gone: true, Data: cmd})
		}
	}
	return out
}

// SetState implements sim.Service: every invocation of a command gets the state and keeps it.
func (s *ssmService) SetState(id, state, code, message string) error {
	for _, sc := range s.state.Scopes {
		cmd := sc.Commands[id]
		if cmd == nil {
			continue
		}
		if state == "" {
			state = "Failed"
		}
		for _, iv := range cmd.Invocations {
			now := s.cloud.World.Now()
			iv.Status, iv.Details, iv.Stderr, iv.Held = state, orText(code, state), message, true
			if iv.Started.IsZero() && state != "Pending" {
				iv.Started = now
			}
			if iv.final() {
				iv.Ended = now
			}
			if state == "Failed" {
				iv.Code = 1
			}
		}
		return nil
	}
	return fmt.Errorf("%s: no such command", id)
}

// Remove implements sim.Service.
func (s *ssmService) Remove(id string) error {
	for _, sc := range s.state.Scopes {
		if sc.Parameters[id] != nil {
			delete(sc.Parameters, id)
			return nil
		}
	}
	return fmt.Errorf("%s: no such parameter", id)
}

func orText(s, def string) string {
	if s == "" {
		return def
	}
	return s
}

// Event implements sim.Service: a command reaches an instance, ends there, or is given up.
func (s *ssmService) Event(kind, key string) {
	parts := strings.Split(key, "|")
	if len(parts) != 3 {
		return
	}
	sc := s.state.Scopes[parts[0]]
	if sc == nil || sc.Commands[parts[1]] == nil {
		return
	}
	cmd := sc.Commands[parts[1]]
	iv := cmd.Invocations[parts[2]]
	if iv == nil || iv.final() || iv.Held {
		return
	}
	switch kind {
	case "deliver":
		s.deliver(parseScopeKey(parts[0]), cmd, iv, key)
	case "again":
		s.carryOut(parseScopeKey(parts[0]), cmd, iv, key)
	case "finish":
		if m, ok := s.cloud.machine(parseScopeKey(parts[0]), iv.InstanceID); !ok || m.State != "running" {
			// Nobody is there any more to say how it went.
			iv.Status, iv.Details, iv.Ended = "TimedOut", "ExecutionTimedOut", s.cloud.World.Now()
			return
		}
		iv.Status, iv.Details, iv.Code = iv.ResultStatus, iv.ResultDetails, iv.ResultCode
		iv.Stdout, iv.Stderr, iv.Ended = iv.ResultStdout, iv.ResultStderr, s.cloud.World.Now()
	case "expire":
		if iv.Status == "Pending" || iv.Status == "Delayed" {
			iv.Status, iv.Details, iv.Ended = "TimedOut", "DeliveryTimedOut", s.cloud.World.Now()
		}
	}
}
