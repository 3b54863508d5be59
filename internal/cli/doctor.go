package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/zopday/provisioner/internal/client"
)

// A finding is the outcome of one check of doctor.
type finding struct {
	Check   string `json:"check"`
	Status  string `json:"status"` // ok, warning, fails, not checked
	Message string `json:"message"`
	Fix     string `json:"fix,omitempty"`
}

// clockSkew is how far two clocks may be apart before requests to clouds and
// the reading of times suffer.
const clockSkew = 30 * time.Second

func (a *app) doctorCmd() *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "Check server, version, clock, token and cloud accounts", Args: args(0, 0, ""),
		Long: withExamples("Check what the command line needs: server, version, clock, token and cloud accounts", "  zopday doctor\n  zopday doctor --server https://zopday.example.com -o json"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			found, err := a.diagnose(cmd.Context())
			resp, werr := client.Wrap(found)
			if werr != nil {
				return werr
			}
			if perr := a.print(resp, func(w io.Writer) { a.showFindings(w, found) }); perr != nil {
				return perr
			}
			if err != nil {
				return quietExit(exitCode(err))
			}
			return nil
		},
	}
}

func (a *app) showFindings(w io.Writer, found []finding) {
	t := table{}
	signs := map[string]glyph{"ok": glyphDone, "fails": glyphFailed, "warning": {"!", "!"}, "not checked": glyphPending}
	for _, f := range found {
		msg := f.Message
		if f.Fix != "" {
			msg += "; " + f.Fix
		}
		t.add(a.outTerm.glyph(signs[f.Status])+" "+f.Status, f.Check, msg)
	}
	t.write(w, terminal{size: a.outTerm.size, colour: a.outTerm.colour})
}

// diagnose runs the checks; the error is that of the first that fails, and
// decides the exit code.
func (a *app) diagnose(ctx context.Context) ([]finding, error) {
	var found []finding
	add := func(check, status, msg, fix string) {
		found = append(found, finding{check, status, msg, fix})
	}
	unasked := func(why string, checks ...string) {
		for _, c := range checks {
			add(c, "not checked", why, "")
		}
	}
	add("configuration", "ok", "server "+a.cfg.Server.Value+" from "+a.cfg.Server.Origin, "")
	if a.cfg.tokenErr != nil {
		add("token", "fails", a.cfg.tokenErr.Error(), "")
		unasked("there is no usable token", "server", "clock", "version", "cloud accounts")
		return found, a.cfg.tokenErr
	}
	c, err := a.connect()
	if err != nil {
		add("server", "fails", err.Error(), "")
		unasked("there is no server", "clock", "version", "token", "cloud accounts")
		return found, err
	}
	rctx, cancel := a.request(ctx)
	defer cancel()
	sent := a.now()
	resp, err := c.Do(rctx, http.MethodGet, "/readyz", nil, nil, nil)
	took := a.now().Sub(sent)
	var prob *client.Problem
	switch {
	case errors.As(err, &prob):
		add("server", "fails", "it answers, and is not ready: "+prob.Error(), "look at its log")
	case err != nil:
		add("server", "fails", err.Error(), "start one with zopday serve or zopday sandbox, or name another with --server")
		unasked("there is no server", "clock", "version", "token", "cloud accounts")
		return found, err
	default:
		add("server", "ok", fmt.Sprintf("ready, answered in %s", took.Round(time.Millisecond)), "")
	}
	if resp != nil {
		found = append(found, checkClock(resp.Header.Get("Date"), sent, a.now()))
	}
	tokenFinding, terr := a.checkToken(rctx, c)
	found = append(found, a.checkVersion(rctx, c), tokenFinding, a.checkAccounts(rctx, c))
	return found, errors.Join(err, terr)
}

func checkClock(date string, sent, got time.Time) finding {
	at, err := http.ParseTime(date)
	if err != nil {
		return finding{Check: "clock", Status: "not checked", Message: "the server does not tell its time"}
	}
	mid := sent.Add(got.Sub(sent) / 2)
	skew := mid.Sub(at.Add(500 * time.Millisecond)) // the header has whole seconds
	if skew.Abs() > clockSkew {
		return finding{"clock", "warning", fmt.Sprintf("this machine and the server are %s apart", skew.Abs().Round(time.Second)), "synchronise both with a time server"}
	}
	return finding{Check: "clock", Status: "ok", Message: "this machine and the server agree within a few seconds"}
}

func (a *app) checkVersion(ctx context.Context, c *client.Client) finding {
	theirs, err := c.Version(ctx)
	ours := Version()
	switch {
	case err != nil:
		return finding{"version", "warning", "the server does not tell its version", "check that the address is that of a ZopDay provisioner"}
	case theirs != ours:
		return finding{"version", "warning", fmt.Sprintf("this is %s, the server is %s", ours, theirs), "use the same version on both sides"}
	}
	return finding{Check: "version", Status: "ok", Message: ours + " on both sides"}
}

func (a *app) checkToken(ctx context.Context, c *client.Client) (finding, error) {
	_, _, _, err := c.ListJobs(ctx, url.Values{"limit": {"1"}})
	switch {
	case err == nil:
		return finding{Check: "token", Status: "ok", Message: "accepted; it is from " + a.cfg.Token.Origin}, nil
	case a.cfg.Token.Value == "":
		return finding{"token", "fails", "there is none", "zopday login, ZOPDAY_TOKEN or --token-file"}, err
	}
	return finding{"token", "fails", err.Error(), "it is from " + a.cfg.Token.Origin}, err
}

func (a *app) checkAccounts(ctx context.Context, c *client.Client) finding {
	const check = "cloud accounts"
	resp, err := c.Do(ctx, http.MethodGet, "/cloud-accounts", nil, nil, nil)
	if err != nil {
		return finding{Check: check, Status: "not checked", Message: "this server does not list them; zopday jobs create -f FILE --dry-run asks the cloud"}
	}
	var accounts []struct{ ID, Provider string }
	if err := resp.Data(&accounts); err != nil {
		return finding{check, "warning", err.Error(), ""}
	}
	return finding{Check: check, Status: "ok", Message: plurals(len(accounts), "account", "accounts")}
}
