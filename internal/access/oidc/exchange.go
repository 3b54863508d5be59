package oidc

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	rp "github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/zopday/provisioner/internal/access"
)

// callback is where an issuer sends a browser back to.
const callback = "/auth/callback"

const maxCode = 4 << 10

func (s *SignIn) oauth(i *issuer, m *metadata) *oauth2.Config {
	return &oauth2.Config{ClientID: i.ClientID, ClientSecret: string(i.Secret), Endpoint: m.Endpoint, RedirectURL: s.public + callback, Scopes: i.Scopes}
}

func s256(secret string) oauth2.AuthCodeOption {
	return oauth2.S256ChallengeOption(derive(secret, "verifier"))
}

func nonceOf(secret string) oauth2.AuthCodeOption { return rp.Nonce(derive(secret, "nonce")) }

var errorCodeRE = regexp.MustCompile(`^[a-z_]{1,60}$`)

// exchange turns the issuer's answer into what it says of the person. A Failure with
// status 403 is one that came after the issuer had vouched for somebody.
func (s *SignIn) exchange(ctx context.Context, i *issuer, secret string, answer url.Values) (claims, *Failure, error) {
	meta, err := i.known(ctx)
	if err != nil {
		return nil, nil, s.down(ctx, i, err)
	}
	// RFC 9207: an answer says whose it is, so that one issuer cannot pass off its
	// answer, or collect another one's code.
	if iss := answer.Get("iss"); iss != i.URL && (iss != "" || meta.namesSelf) {
		return nil, fail(http.StatusBadRequest, "the answer is not by the sign-in service that was asked", again, errors.New("iss is another, or missing")), nil
	}
	if code := answer.Get("error"); code != "" {
		if !errorCodeRE.MatchString(code) {
			code = "an error"
		}
		return nil, fail(http.StatusUnauthorized, "the sign-in service says "+code, again, nil), nil
	}
	code := answer.Get("code")
	if code == "" || len(code) > maxCode {
		return nil, fail(http.StatusBadRequest, "the sign-in service has sent no code", again, nil), nil
	}
	token, err := s.oauth(i, meta).Exchange(rp.ClientContext(ctx, i.client), code, oauth2.VerifierOption(derive(secret, "verifier")))
	var told *oauth2.RetrieveError
	switch {
	case errors.As(err, &told) && told.ErrorCode != "":
		// Its description and body may repeat what was sent.
		cause := errors.New("token endpoint: " + clip(told.ErrorCode, 60))
		if told.ErrorCode != "invalid_grant" { // such as invalid_client: it is of the configuration
			return nil, nil, s.down(ctx, i, cause)
		}
		return nil, fail(http.StatusBadRequest, "the sign-in service does not give a token for its code", again, cause), nil
	case err != nil:
		return nil, nil, s.down(ctx, i, errors.New("token endpoint: no token"))
	}
	raw, _ := token.Extra("id_token").(string)
	c, err := i.identity(ctx, meta, raw, token.AccessToken, derive(secret, "nonce"), s.now())
	if err != nil {
		var down *UnavailableError
		if errors.As(err, &down) || ctx.Err() != nil {
			return nil, nil, s.down(ctx, i, err)
		}
		return nil, fail(http.StatusForbidden, "what the sign-in service says of you is not valid", "Begin again at /auth/login. If it stays so, the server's log says what is wrong.", err), nil
	}
	return c, nil, nil
}

// identity verifies an ID token (OpenID Connect Core 1.0, section 3.1.3.7).
func (i *issuer) identity(ctx context.Context, m *metadata, raw, accessToken, nonce string, now time.Time) (claims, error) {
	if raw == "" {
		return nil, errors.New("there is no ID token; is openid among the scopes that the client may ask for?")
	}
	f, err := readFront(raw)
	if err != nil {
		return nil, err
	}
	if f.typ != "" && f.typ != "jwt" {
		return nil, errors.New("the ID token is of another type")
	}
	names := make([]string, len(m.algs))
	for n, a := range m.algs {
		names[n] = string(a)
	}
	v := rp.NewVerifier(i.URL, signatures{m}, &rp.Config{ClientID: i.ClientID, SupportedSigningAlgs: names, Now: func() time.Time { return now.Add(-skew) }})
	t, err := v.Verify(ctx, raw)
	if err != nil {
		return nil, err
	}
	var c claims
	if err := t.Claims(&c); err != nil {
		return nil, err
	}
	azp, err := c.text("azp")
	switch {
	case err != nil:
		return nil, err
	case !same(t.Nonce, nonce):
		return nil, errors.New("the nonce is that of another sign-in")
	case t.Issuer != i.URL:
		return nil, errors.New("iss is another issuer")
	case len(t.Audience) > 1 && azp == "", azp != "" && azp != i.ClientID:
		return nil, errors.New("azp is not this client")
	case t.AccessTokenHash != "" && t.VerifyAccessToken(accessToken) != nil:
		return nil, errors.New("at_hash is that of another access token")
	}
	return c, c.current(now, 0)
}

// signatures lets the verifier of ID tokens use the issuer's keys as those of
// machines are used: bounded, throttled and for algorithms of key pairs alone.
type signatures struct{ m *metadata }

func (s signatures) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	return s.m.keys.verify(ctx, token, s.m.algs)
}

var _ rp.KeySet = signatures{}

// person is who the claims speak of, or why they may not come in.
func (i *issuer) person(c claims) (access.User, *Failure) {
	const fix = "Ask whoever runs this server."
	u := access.User{OrgID: i.org, Issuer: i.URL, Name: c.name(i.NameClaim), Email: c.email()}
	var err error
	if u.Subject, err = c.subject(); err != nil {
		return u, fail(http.StatusForbidden, "what the sign-in service calls you cannot be used", fix, err)
	}
	var overage bool
	if u.Groups, overage, err = c.groups(i.GroupsClaim, i.GroupsPrefix); err != nil {
		return u, fail(http.StatusForbidden, "your groups cannot be used", fix, err)
	}
	if overage {
		return u, fail(http.StatusForbidden, "you are in too many groups for the sign-in service to send them", "Let it send those alone that are assigned to this application.", nil)
	}
	if len(i.AllowedDomains) > 0 {
		_, domain, _ := strings.Cut(u.Email, "@")
		switch {
		case u.Email == "":
			return u, fail(http.StatusForbidden, "the sign-in service has not verified your e-mail address", "Have it verified there, then begin again at /auth/login.", nil)
		case !slices.Contains(i.AllowedDomains, domain):
			return u, fail(http.StatusForbidden, "people with your e-mail address may not sign in here", fix, nil)
		}
	}
	return u, nil
}
