package oidc

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/zopday/provisioner/internal/access"
)

const (
	machineMaxAge = 24 * time.Hour // from iat to exp
	verifiedFor   = time.Minute    // how long a signature is not checked again
	maxVerified   = 4096
)

// A machine is who a verified token is about.
type machine struct {
	issuer  string // its URL
	subject string
	groups  []string
	expires time.Time
	until   time.Time // when the signature is to be checked again
}

// Authenticate is the principal behind a JSON Web Token, or ErrUnauthenticated; the
// reason is in the log at debug, and never in the answer. What the principal may do
// is looked up each time. If the issuer cannot be asked for its keys, the error is
// an [UnavailableError].
func (s *SignIn) Authenticate(ctx context.Context, token string) (access.Principal, error) {
	m, err := s.machine(ctx, token)
	if err != nil {
		var down *UnavailableError
		if errors.As(err, &down) || ctx.Err() != nil {
			return access.Principal{}, err
		}
		s.log.DebugContext(ctx, "token of a machine refused", "reason", err.Error())
		return access.Principal{}, access.ErrUnauthenticated
	}
	i := s.byURL[m.issuer]
	// The issuer's name is part of it: another issuer may have the same subject.
	name := "machine:" + i.Name + "/" + m.subject
	subjects := []access.Subject{{Kind: access.SubjectUser, ID: name}}
	for _, g := range m.groups {
		subjects = append(subjects, access.Subject{Kind: access.SubjectGroup, ID: g})
	}
	return s.principal(ctx, i, name, m.groups, subjects)
}

func (s *SignIn) machine(ctx context.Context, token string) (machine, error) {
	if len(token) > maxToken {
		return machine{}, fmt.Errorf("the token has %d bytes, more than %d", len(token), maxToken)
	}
	key := sha256.Sum256([]byte(token))
	if m, ok := s.verified.get(key, s.now()); ok {
		return m, nil
	}
	m, err := s.verify(ctx, token)
	if err == nil {
		s.verified.put(key, m)
	}
	return m, err
}

// verify believes a token only once everything about it has been checked.
func (s *SignIn) verify(ctx context.Context, token string) (machine, error) {
	f, err := readFront(token)
	if err != nil {
		return machine{}, err
	}
	i := s.byURL[f.issuer]
	if i == nil || len(i.Audiences) == 0 {
		return machine{}, errors.New("the token is not by an issuer whose tokens are taken for machines")
	}
	// RFC 9068 gives access tokens a type of their own; most issuers say JWT, or
	// nothing. Any other is for something else, such as a log-out or a proof.
	if !slices.Contains([]string{"", "jwt", "at+jwt"}, f.typ) {
		return machine{}, fmt.Errorf("the token's type is %q", clip(f.typ, 40))
	}
	meta, err := i.known(ctx)
	if err != nil {
		return machine{}, err
	}
	payload, err := meta.keys.verify(ctx, token, meta.algs)
	if err != nil {
		return machine{}, err
	}
	c, err := readClaims(payload)
	if err != nil {
		return machine{}, err
	}
	return i.machineOf(c, s.now())
}

func (i *issuer) machineOf(c claims, now time.Time) (machine, error) {
	m := machine{issuer: i.URL}
	if iss, err := c.text("iss"); err != nil || iss != i.URL {
		return m, errors.New("iss is another issuer")
	}
	aud, err := c.audience()
	if err != nil {
		return m, err
	}
	if !slices.ContainsFunc(aud, func(a string) bool { return slices.Contains(i.Audiences, a) }) {
		return m, errors.New("aud names none of the audiences that are configured")
	}
	// What a person's sign-in ends with is no access token, even where an issuer
	// puts the same audience into both; and a token that is bound to a key of its
	// holder (RFC 7800) proves nothing without that key.
	for _, name := range []string{"nonce", "at_hash", "c_hash", "cnf", "events"} {
		if _, there := c[name]; there {
			return m, fmt.Errorf("it has the claim %s, so it is no bearer token of a machine", name)
		}
	}
	if err := c.current(now, machineMaxAge); err != nil {
		return m, err
	}
	if m.subject, err = c.subject(); err != nil {
		return m, err
	}
	if m.groups, _, err = c.groups(i.GroupsClaim, i.GroupsPrefix); err != nil {
		return m, err
	}
	m.expires, _, _ = c.when("exp") // current has read it
	m.until = now.Add(verifiedFor)
	return m, nil
}

// cache holds whose tokens have just been verified, by their hashes.
type cache struct {
	mu   sync.Mutex
	held map[[sha256.Size]byte]machine
}

func (c *cache) get(key [sha256.Size]byte, now time.Time) (machine, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, ok := c.held[key]
	if ok && now.Before(m.until) && now.Before(m.expires) {
		return m, true
	}
	delete(c.held, key)
	return machine{}, false
}

func (c *cache) put(key [sha256.Size]byte, m machine) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held == nil || len(c.held) >= maxVerified {
		c.held = make(map[[sha256.Size]byte]machine) // to verify again costs little
	}
	c.held[key] = m
}
