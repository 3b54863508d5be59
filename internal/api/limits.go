package api

import (
	"container/list"
	"crypto/sha256"
	"math"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/zopday/provisioner/internal/access"
)

// Limits bound what one caller may ask. They are those of one process: several
// behind one address let through as many times as much.
type Limits struct {
	PerToken float64 // requests a second that one token may send for long; 0: no bound
	// PerAddress are those of one address, with a token or without. An address that
	// has sent wrong tokens is let through far less. 0: neither is bounded.
	PerAddress float64
	// StreamsPerToken are the event streams that one token may have open; 0: 100.
	StreamsPerToken int
	// TrustedProxies are the addresses whose X-Forwarded-For is believed. Without
	// one, the address is that of the connection.
	TrustedProxies []netip.Prefix
	TrustUnix      bool // and whoever connects to a Unix socket
}

const (
	// burstSeconds is for how long a caller who was quiet may ask all at once: a page
	// that opens asks for many things together.
	burstSeconds = 4
	// failureBurst and failuresPerSecond bound how often an address may come with a
	// token that is none: twenty times at once, then ten times a minute.
	failureBurst      = 20
	failuresPerSecond = 10.0 / 60
	// maxCallers bounds the callers that are remembered of each sort. The one that
	// was quiet for longest is forgotten, and begins anew.
	maxCallers = 1 << 16
	// streamsPerToken is the default of Limits.StreamsPerToken.
	streamsPerToken = 100
)

// limits are the bounds at work.
type limits struct {
	Limits
	now       func() time.Time
	tokens    *buckets // nil: no bound
	addresses *buckets // nil: no bound
	failures  *buckets // nil: no bound
	signIns   *buckets // sign-ins by browser that did not succeed, which keep no token out; nil: no bound
	known     *recent  // which tokens were good, of which address

	mu      sync.Mutex
	streams map[string]int
}

func newLimits(l Limits) *limits {
	if l.StreamsPerToken == 0 {
		l.StreamsPerToken = streamsPerToken
	}
	at := func(perSecond float64) *buckets {
		if perSecond <= 0 {
			return nil
		}
		return newBuckets(perSecond, max(1, int(math.Ceil(perSecond*burstSeconds))), maxCallers)
	}
	bound := &limits{Limits: l, now: time.Now, tokens: at(l.PerToken), addresses: at(l.PerAddress), known: newRecent(maxCallers), streams: map[string]int{}}
	if bound.addresses != nil {
		bound.failures = newBuckets(failuresPerSecond, failureBurst, maxCallers)
		bound.signIns = newBuckets(failuresPerSecond, failureBurst, maxCallers)
	}
	return bound
}

// arrives is asked before anything is known of who sends a request. It refuses an
// address that asks too much, and one that has come with too many wrong tokens: even
// a right one is not looked at then, unless it was seen from there before.
func (l *limits) arrives(h http.Header, r *http.Request, from string) (p *Problem, bound string) {
	if l.addresses != nil {
		left := l.addresses.take(from, l.now())
		left.show(h, "address")
		if left.wait > 0 {
			return tooMany("your address sends more requests than this server takes", left), "address"
		}
	}
	if token := r.Header.Get("Authorization"); token != "" && l.failures != nil {
		left := l.failures.look(from, l.now())
		if left.wait > 0 && !l.known.has(knownKey(from, token)) {
			return tooMany("your address has sent too many tokens that are not valid", left), "sign-in"
		}
	}
	return nil, ""
}

// guess is asked before a token is looked up that comes by another way than the
// header Authorization, such as a form: the bound on wrong tokens is one.
func (l *limits) guess(from, token string) (left allowance, through bool) {
	if l.failures == nil {
		return left, true
	}
	left = l.failures.look(from, l.now())
	return left, left.wait == 0 || l.known.has(knownKey(from, "Bearer "+token))
}

// answered learns from the status that a request got: a wrong token counts against
// its address.
func (l *limits) answered(r *http.Request, who *caller, status int) {
	token := r.Header.Get("Authorization")
	switch {
	case token == "" || l.failures == nil:
	case who.known:
		l.known.add(knownKey(who.from, token))
	case status == http.StatusUnauthorized:
		l.failed(who.from)
	}
}

// signInFailed counts an answer of a sign-in service that was not taken. Any site can
// send a browser here with one, so it counts against nothing but further ones.
func (l *limits) signInFailed(from string) {
	if l.signIns != nil {
		l.signIns.take(from, l.now())
	}
}

// failed counts a token that was none.
func (l *limits) failed(from string) {
	if l.failures != nil {
		l.failures.take(from, l.now())
	}
}

// principal is asked once a caller is known.
func (l *limits) principal(p access.Principal) (left allowance, limited bool) {
	if l.tokens == nil {
		return allowance{}, false
	}
	return l.tokens.take(callerOf(p), l.now()), true
}

func callerOf(p access.Principal) string { return p.OrgID + "\x00" + p.Actor }

// openStream takes one of a caller's event streams; the function gives it back.
func (l *limits) openStream(p access.Principal) (done func(), ok bool) {
	who := callerOf(p)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.streams[who] >= l.StreamsPerToken {
		return nil, false
	}
	l.streams[who]++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.streams[who]--; l.streams[who] <= 0 {
			delete(l.streams, who)
		}
	}, true
}

func tooMany(what string, left allowance) *Problem {
	p := newProblem(tooManyRequests, what, "Wait for as many seconds as Retry-After says, then go on more slowly.")
	p.header = http.Header{"Retry-After": {strconv.Itoa(left.seconds(left.wait))}}
	return p
}

// An allowance is what a caller may still ask.
type allowance struct {
	quota  int           // requests at once, after a quiet time
	window time.Duration // in which an empty bucket fills
	left   int
	full   time.Duration // until all of the quota is there again
	wait   time.Duration // until one more is let through; 0: this one is
}

// seconds rounds up, so that who waits for as long is let through.
func (a allowance) seconds(d time.Duration) int { return int(math.Ceil(d.Seconds())) }

// show writes the header fields of the draft "RateLimit header fields for HTTP"
// (draft-ietf-httpapi-ratelimit-headers-11): RateLimit-Policy with quota and window,
// RateLimit with what is left and the seconds until the quota is whole.
func (a allowance) show(h http.Header, policy string) {
	h.Add("RateLimit-Policy", `"`+policy+`";q=`+strconv.Itoa(a.quota)+";w="+strconv.Itoa(a.seconds(a.window)))
	h.Add("RateLimit", `"`+policy+`";r=`+strconv.Itoa(a.left)+";t="+strconv.Itoa(a.seconds(a.full)))
}

// buckets are token buckets by caller, of which the most recently used are kept.
type buckets struct {
	perSecond rate.Limit
	burst     int
	mu        sync.Mutex
	of        *kept[string, *rate.Limiter]
}

func newBuckets(perSecond float64, burst, most int) *buckets {
	return &buckets{perSecond: rate.Limit(perSecond), burst: burst, of: newKept[string, *rate.Limiter](most)}
}

func (b *buckets) bucket(who string) *rate.Limiter {
	b.mu.Lock()
	defer b.mu.Unlock()
	l, ok := b.of.get(who)
	if !ok {
		l = rate.NewLimiter(b.perSecond, b.burst)
		b.of.put(who, l)
	}
	return l
}

// take takes one from a caller's bucket, if there is one in it.
func (b *buckets) take(who string, now time.Time) allowance {
	l := b.bucket(who)
	return b.allowance(l, now, l.AllowN(now, 1))
}

// look says what a caller may ask, and takes nothing.
func (b *buckets) look(who string, now time.Time) allowance {
	b.mu.Lock()
	l, ok := b.of.get(who)
	b.mu.Unlock()
	if !ok {
		return allowance{quota: b.burst, left: b.burst}
	}
	return b.allowance(l, now, l.TokensAt(now) >= 1)
}

func (b *buckets) allowance(l *rate.Limiter, now time.Time, through bool) allowance {
	in := l.TokensAt(now)
	fill := func(n float64) time.Duration {
		return time.Duration(max(0, n) / float64(b.perSecond) * float64(time.Second))
	}
	a := allowance{quota: b.burst, window: fill(float64(b.burst)), left: max(0, int(in)), full: fill(float64(b.burst) - in)}
	if !through {
		a.wait = max(time.Millisecond, fill(1-in))
	}
	return a
}

// recent remembers what was seen, without keeping what it was.
type recent struct {
	mu   sync.Mutex
	seen *kept[[sha256.Size]byte, struct{}]
}

func newRecent(most int) *recent { return &recent{seen: newKept[[sha256.Size]byte, struct{}](most)} }

func knownKey(from, token string) [sha256.Size]byte {
	return sha256.Sum256([]byte(from + "\x00" + token))
}

func (r *recent) add(key [sha256.Size]byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen.put(key, struct{}{})
}

func (r *recent) has(key [sha256.Size]byte) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.seen.get(key)
	return ok
}

// kept is a map of bounded size: what was not used for longest goes first.
type kept[K comparable, V any] struct {
	most  int
	at    map[K]*list.Element
	order *list.List // the most recently used in front
}

type keptEntry[K comparable, V any] struct {
	key   K
	value V
}

func newKept[K comparable, V any](most int) *kept[K, V] {
	return &kept[K, V]{most: most, at: map[K]*list.Element{}, order: list.New()}
}

func (k *kept[K, V]) get(key K) (v V, ok bool) {
	e, ok := k.at[key]
	if !ok {
		return v, false
	}
	k.order.MoveToFront(e)
	return e.Value.(*keptEntry[K, V]).value, true
}

func (k *kept[K, V]) put(key K, v V) {
	if e, ok := k.at[key]; ok {
		e.Value.(*keptEntry[K, V]).value = v
		k.order.MoveToFront(e)
		return
	}
	for len(k.at) >= k.most {
		last := k.order.Back()
		delete(k.at, last.Value.(*keptEntry[K, V]).key)
		k.order.Remove(last)
	}
	k.at[key] = k.order.PushFront(&keptEntry[K, V]{key, v})
}
