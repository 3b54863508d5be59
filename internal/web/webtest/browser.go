package webtest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// A Browser is one tab. At the end of its test it fails the test if a page said
// something on the console, or asked another host for something.
type Browser struct {
	t    testing.TB
	ctx  context.Context
	site *Site

	mu       sync.Mutex
	problems []string
	allowed  []string // parts of console messages that are meant
}

// one Chromium serves a package's tests; each test has a context of its own in it.
var chromium = sync.OnceValues(func() (context.Context, error) {
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.DisableGPU, chromedp.Flag("disable-dev-shm-usage", true),
		chromedp.WindowSize(1280, 900), chromedp.Flag("lang", "en"))
	for _, name := range []string{"/usr/bin/chromium", "/usr/bin/chromium-browser"} {
		if _, err := os.Stat(name); err == nil {
			opts = append(opts, chromedp.ExecPath(name))
			break
		}
	}
	ctx, _ := chromedp.NewExecAllocator(context.Background(), opts...) // it ends with the process, see Main
	ctx, _ = chromedp.NewContext(ctx)                                  // likewise
	return ctx, chromedp.Do(ctx)
})

// Open opens a tab that is signed in with a token; "" is signed in as nobody.
func Open(t testing.TB, token string) *Browser {
	t.Helper()
	parent, err := chromium()
	if err != nil {
		t.Fatalf("chromium: %v", err)
	}
	ctx, cancel := chromedp.NewContext(parent, chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	ctx, stop := context.WithTimeout(ctx, 3*time.Minute)
	t.Cleanup(stop)
	b := &Browser{t: t, ctx: ctx, site: The(t)}
	home, err := url.Parse(b.site.URL)
	if err != nil {
		t.Fatal(err)
	}
	err = chromedp.Listen(ctx, func(ev any) {
		switch ev := ev.(type) {
		case *runtime.EventConsoleAPICalled:
			if ev.Type == "error" || ev.Type == "warning" {
				var words []string
				for _, a := range ev.Args {
					words = append(words, string(a.Value)+a.Description)
				}
				b.problem("console: " + strings.Join(words, " "))
			}
		case *runtime.EventExceptionThrown:
			text := ev.ExceptionDetails.Text
			if e := ev.ExceptionDetails.Exception; e != nil {
				text += " " + e.Description
			}
			b.problem("exception: " + text)
		case *log.EventEntryAdded:
			if ev.Entry.Level == log.EntryLevelError {
				b.problem("log: " + ev.Entry.Text + " " + ev.Entry.URL)
			}
		case *network.EventRequestWillBeSent:
			u, err := url.Parse(ev.Request.URL)
			if err != nil || u.Host != home.Host && u.Scheme != "data" && u.Scheme != "blob" {
				b.problem("asked another host: " + ev.Request.URL)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, on := range []func() error{
		func() error { _, err := chromedp.Call(ctx, network.Enable, network.EnableParams{}); return err },
		func() error { _, err := chromedp.Call(ctx, log.Enable, cdp.Empty{}); return err },
		func() error { _, err := chromedp.Call(ctx, runtime.Enable, cdp.Empty{}); return err },
	} {
		if err := on(); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(b.check)
	if token != "" {
		b.SignIn(token)
	}
	return b
}

func (b *Browser) problem(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.problems = append(b.problems, text)
}

// Expect lets console messages with a text in them pass, such as the 422 that a form
// is meant to be answered with.
func (b *Browser) Expect(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.allowed = append(b.allowed, text)
}

func (b *Browser) check() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.problems {
		meant := false
		for _, a := range b.allowed {
			meant = meant || strings.Contains(p, a)
		}
		if !meant {
			b.t.Errorf("browser: %s", p)
		}
	}
}

// Context is the tab's, for chromedp.Run.
func (b *Browser) Context() context.Context { return b.ctx }

// Run runs actions of chromedp, and fails the test with what is on the page if one fails.
func (b *Browser) Run(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 60*time.Second)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.failed(err)
	}
}

// failed ends the test with what is on the page.
func (b *Browser) failed(err error) {
	b.t.Helper()
	at, _ := chromedp.Run(b.ctx, chromedp.Location()) // best effort, for the message
	text, _ := chromedp.Run(b.ctx, chromedp.Evaluate[string](`document.body ? document.body.innerText.slice(0, 3000) : ""`))
	b.t.Fatalf("%v\nat %s:\n%s\nserver:\n%s", err, at, text, b.site.Log())
}

// Eval runs a script in the tab and returns what it gives.
func Eval[T any](b *Browser, script string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 60*time.Second)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](script, func(p *runtime.EvaluateParams) { p.AwaitPromise = new(true) }))
	if err != nil {
		b.failed(fmt.Errorf("%s: %w", script[:min(len(script), 200)], err))
	}
	return v
}

// Click clicks the first element that a CSS selector finds, when it is visible.
func (b *Browser) Click(selector string) {
	b.t.Helper()
	b.Run(chromedp.Click(chromedp.CSS(selector)))
}

// Type puts a text into a field, in the place of what is there.
func (b *Browser) Type(selector, text string) {
	b.t.Helper()
	b.Run(chromedp.Focus(chromedp.CSS(selector)))
	Eval[bool](b, fmt.Sprintf("(e => { e.value = ''; return true })(document.querySelector(%q))", selector))
	b.Run(chromedp.SendKeys(chromedp.CSS(selector), text))
}

// Choose selects an option of a select element, by its value.
func (b *Browser) Choose(selector, value string) {
	b.t.Helper()
	ok := Eval[bool](b, fmt.Sprintf("(e => { e.value = %q; e.dispatchEvent(new Event('input', {bubbles: true})); e.dispatchEvent(new Event('change', {bubbles: true})); return e.value === %q })(document.querySelector(%q))", value, value, selector))
	if !ok {
		b.t.Fatalf("%s has no option %q", selector, value)
	}
}

// Keys presses keys, as somebody does who has no mouse; package kb names those without a letter.
func (b *Browser) Keys(keys string) {
	b.t.Helper()
	b.Run(chromedp.KeyEvent(keys))
}

// Focused is the element that has the focus, as its tag, its ID and its text.
func (b *Browser) Focused() string {
	b.t.Helper()
	return Eval[string](b, "(e => e.tagName.toLowerCase() + '#' + e.id + ' ' + (e.innerText || e.value || '').trim().slice(0, 80))(document.activeElement)")
}

// Send submits the form that a selector finds, by its first submit button, and waits
// for the page that answers.
func (b *Browser) Send(form string) {
	b.t.Helper()
	if _, err := chromedp.RunResponse(b.ctx, chromedp.Click(chromedp.CSS(form+" button[type='submit']"))); err != nil {
		b.failed(err)
	}
	b.Run(chromedp.WaitReady(chromedp.CSS("main")))
}

// Go opens a page, such as "/zopday/jobs".
func (b *Browser) Go(path string) {
	b.t.Helper()
	b.Run(chromedp.Navigate(b.site.URL+path), chromedp.WaitReady(chromedp.CSS("main")))
}

// SignIn signs in with a token, through the form.
func (b *Browser) SignIn(token string) {
	b.t.Helper()
	b.Go("/zopday/sign-in")
	b.Type("#f-token", token)
	b.Send("main form")
	b.Run(chromedp.WaitReady(chromedp.CSS("nav#nav")))
}

// Text is the text of the first element that a selector finds.
func (b *Browser) Text(selector string) string {
	b.t.Helper()
	return strings.TrimSpace(Eval[string](b, fmt.Sprintf("document.querySelector(%q)?.innerText ?? ''", selector)))
}

// Has reports whether a selector finds something now.
func (b *Browser) Has(selector string) bool {
	b.t.Helper()
	return Eval[int](b, fmt.Sprintf("document.querySelectorAll(%q).length", selector)) > 0
}

// Await waits until the text of an element has a word in it.
func (b *Browser) Await(selector, word string, within time.Duration) {
	b.t.Helper()
	var s string
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if s = b.Text(selector); strings.Contains(s, word) {
			return
		}
	}
	b.t.Fatalf("%s says %q, and not %q after %s", selector, s, word, within)
}

// Path is where the tab is, without the host.
func (b *Browser) Path() string {
	b.t.Helper()
	return strings.TrimPrefix(Eval[string](b, "location.href"), b.site.URL)
}

// Narrow makes the window as wide as a small telephone, and fails if the page is wider.
func (b *Browser) Narrow() {
	b.t.Helper()
	if _, err := chromedp.Call(b.ctx, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: 320, Height: 640, DeviceScaleFactor: 1, Mobile: true}); err != nil {
		b.failed(err)
	}
	b.Run(chromedp.Sleep(100 * time.Millisecond))
	if over := Eval[int](b, "document.documentElement.scrollWidth - window.innerWidth"); over > 0 {
		b.t.Errorf("%s is %d px wider than a window of 320", b.Path(), over)
	}
	if _, err := chromedp.Call(b.ctx, emulation.ClearDeviceMetricsOverride, cdp.Empty{}); err != nil {
		b.failed(err)
	}
}

// Shot keeps a picture of the page in artifacts/.
func (b *Browser) Shot(name string) {
	b.t.Helper()
	root, err := Root()
	if err != nil {
		b.t.Fatal(err)
	}
	png, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(90))
	if err != nil {
		b.failed(err)
	}
	dir := filepath.Join(root, "artifacts")
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // pictures for everybody
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".jpg"), png, 0o644); err != nil { //nolint:gosec // likewise
		b.t.Fatal(err)
	}
}

// A violation is a rule of axe that a page breaks.
type violation struct {
	ID, Impact, Help string
	Nodes            []struct{ HTML, FailureSummary string }
}

// Axe runs the accessibility checker over the page in both themes; any violation fails the test.
func (b *Browser) Axe() {
	b.t.Helper()
	root, err := Root()
	if err != nil {
		b.t.Fatal(err)
	}
	found, err := filepath.Glob(filepath.Join(root, ".cache", "axe", "*.min.js"))
	if err != nil || len(found) == 0 {
		b.t.Fatalf("the accessibility checker is not there: run scripts/assets axe (%v)", err)
	}
	script, err := os.ReadFile(found[len(found)-1])
	if err != nil {
		b.t.Fatal(err)
	}
	for _, theme := range []string{"light", "dark"} {
		media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}}}
		if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, media); err != nil {
			b.failed(err)
		}
		Eval[int](b, string(script)+";0")
		text := Eval[string](b, `axe.run(document, {resultTypes: ["violations"]}).then(r => JSON.stringify(r.violations))`)
		var all []violation
		if err := json.Unmarshal([]byte(text), &all); err != nil {
			b.t.Fatalf("axe: %v", err)
		}
		for _, v := range all {
			for _, n := range v.Nodes {
				b.t.Errorf("axe, %s, %s: %s (%s): %s\n%s", theme, b.Path(), v.ID, v.Impact, n.HTML, n.FailureSummary)
			}
		}
	}
	if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{}); err != nil {
		b.failed(err)
	}
}
