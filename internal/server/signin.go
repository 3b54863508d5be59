package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/access/oidc"
	"github.com/zopday/provisioner/internal/db"
)

// SignIn is who may come in besides the tokens of the installation.
type SignIn struct {
	Issuers   *oidc.Config // nil: nobody
	PublicURL string       // where browsers find the server; "": where it listens, if that is this machine
}

// sweepTick is how often the sessions that are over are removed. They count for
// nothing before that too.
const sweepTick = 10 * time.Minute

// openSignIn prepares sign-in. It asks no issuer.
func (s *Server) openSignIn(ctx context.Context, c Config, d *db.DB) error {
	if c.SignIn.Issuers == nil {
		return nil
	}
	public := c.SignIn.PublicURL
	if public == "" {
		tcp, ok := s.listener.Addr().(*net.TCPAddr)
		if !ok || !tcp.IP.IsLoopback() {
			return errors.New("--oidc-config needs --public-url, the address at which browsers find this server, such as https://zopday.example.com")
		}
		public = s.url
	}
	var err error
	s.signIn, err = oidc.New(ctx, oidc.Options{Config: *c.SignIn.Issuers, PublicURL: public, DB: d, Log: c.Log})
	return err
}

// peopleSignIn reports whether there is an issuer that people sign in with.
func (s *Server) peopleSignIn() bool { return s.signIn != nil && len(s.signIn.Choices()) > 0 }

// callers tells who a token belongs to: one of ours, or a JSON Web Token. The
// server's end waits until the last uses of tokens are written down.
func (s *Server) callers(d *db.DB, log *slog.Logger) *access.Tokens {
	t := access.NewTokens(d, log)
	// Before the database is closed, which was opened earlier; each is bounded by itself.
	s.closeAll = append(s.closeAll, func() error { t.Wait(); return nil })
	if s.signIn != nil {
		t.JWT = s.signIn.Authenticate
	}
	return t
}

// sweep removes the sessions that are over until the context ends.
func (s *Server) sweep(ctx context.Context, every time.Duration) {
	if s.signIn == nil {
		return
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if _, err := s.signIn.Sweep(ctx); err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "sessions that are over could not be removed", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
