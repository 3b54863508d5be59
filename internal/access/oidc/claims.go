package oidc

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
)

const (
	skew       = time.Minute // by how much the clocks of an issuer and ours may differ
	maxSubject = 255         // OpenID Connect Core 1.0, section 2
	maxGroups  = 500
	maxGroup   = 256
)

// claims are what a verified token says.
type claims map[string]json.RawMessage

func readClaims(payload []byte) (claims, error) {
	var c claims
	if err := json.Unmarshal(payload, &c); err != nil || c == nil {
		return nil, errors.New("the claims are not a JSON object")
	}
	return c, nil
}

func (c claims) text(name string) (string, error) {
	var s string
	err := text(c, name, &s)
	return s, err
}

// when is a moment; ok is false if the claim is missing.
func (c claims) when(name string) (at time.Time, ok bool, err error) {
	raw, ok := c[name]
	if !ok {
		return at, false, nil
	}
	var n *float64
	if err := json.Unmarshal(raw, &n); err != nil || n == nil || *n < 0 || *n > 1e11 {
		return at, false, fmt.Errorf("%s is not a time in seconds since 1970", name)
	}
	return time.UnixMilli(int64(*n * 1000)), true, nil
}

// audience is who the token is for.
func (c claims) audience() ([]string, error) {
	var one string
	if json.Unmarshal(c["aud"], &one) == nil && one != "" {
		return []string{one}, nil
	}
	var many []string
	if json.Unmarshal(c["aud"], &many) != nil || len(many) == 0 {
		return nil, errors.New("aud names nobody")
	}
	return many, nil
}

// subject is the issuer's name for who the token is about, as it can stand in an
// audit log: printable, without blanks, at most 255 characters.
func (c claims) subject() (string, error) {
	s, err := c.text("sub")
	if err != nil {
		return "", err
	}
	if s == "" || len(s) > maxSubject || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("sub is empty, longer than %d characters, or has some that are not printable ASCII", maxSubject)
	}
	return s, nil
}

// groups reads the claim of groups: a list, or one name. The claim's name may be a
// path with dots, such as realm_access.roles, where no claim has the whole as its
// name. overage says that the issuer left them out, since there are too many.
func (c claims) groups(claim, prefix string) (groups []string, overage bool, err error) {
	raw, ok := c[claim]
	for m := c; !ok; {
		first, rest, more := strings.Cut(claim, ".")
		if !more || json.Unmarshal(m[first], &m) != nil {
			break
		}
		claim = rest
		raw, ok = m[claim]
	}
	if !ok {
		var elsewhere map[string]json.RawMessage
		_ = json.Unmarshal(c["_claim_names"], &elsewhere) // no object: nothing is elsewhere
		_, overage = elsewhere[claim]
		return nil, overage, nil
	}
	var one string
	if json.Unmarshal(raw, &one) == nil {
		groups = []string{one}
	} else if json.Unmarshal(raw, &groups) != nil {
		return nil, false, fmt.Errorf("%s is neither a list of names nor one name", claim)
	}
	if len(groups) > maxGroups {
		return nil, false, fmt.Errorf("%s has %d groups, more than %d; let the issuer send fewer", claim, len(groups), maxGroups)
	}
	for i, g := range groups {
		if g == "" || len(g) > maxGroup || strings.ContainsFunc(g, func(r rune) bool { return !unicode.IsPrint(r) }) {
			return nil, false, fmt.Errorf("%s has a group whose name is empty, longer than %d bytes or not printable", claim, maxGroup)
		}
		groups[i] = prefix + g
	}
	slices.Sort(groups)
	return slices.Compact(groups), false, nil
}

var emailRE = regexp.MustCompile(`^[a-z0-9.!#$%&'*+/=?^_{|}~-]{1,64}@[a-z0-9](?:[a-z0-9.-]{0,188}[a-z0-9])?$`)

// email is the address that the issuer says it has verified, in lower case; "" if
// there is none, or one in letters that could be mistaken for others.
func (c claims) email() string {
	s, err := c.text("email")
	var verified any
	_ = json.Unmarshal(c["email_verified"], &verified) // missing or strange: not verified
	if err != nil || verified != true && verified != "true" {
		return ""
	}
	if s = strings.ToLower(s); !emailRE.MatchString(s) {
		return ""
	}
	return s
}

// name is what a person calls themselves, for show alone: it decides nothing, so it
// may be anybody's.
func (c claims) name(claim string) string {
	s, err := c.text(claim)
	if err != nil {
		return ""
	}
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, s)
	return clip(strings.TrimSpace(s), 100)
}

// current checks the times of a token. maxAge bounds how long it is valid in all;
// 0 does not.
func (c claims) current(now time.Time, maxAge time.Duration) error {
	exp, ok, err := c.when("exp")
	if err != nil {
		return err
	}
	iat, issued, err := c.when("iat")
	if err != nil {
		return err
	}
	nbf, _, err := c.when("nbf")
	switch {
	case err != nil:
		return err
	case !ok || !issued:
		return errors.New("exp or iat is missing")
	case !now.Before(exp.Add(skew)):
		return errors.New("it has expired")
	case now.Add(skew).Before(nbf):
		return errors.New("it is not yet valid")
	case now.Add(skew).Before(iat):
		return errors.New("it was issued in the future")
	case maxAge > 0 && exp.Sub(iat) > maxAge:
		return fmt.Errorf("it is valid for longer than %s", maxAge)
	}
	return nil
}
