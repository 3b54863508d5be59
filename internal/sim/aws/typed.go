package aws

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

// reqCtx is what a typed operation knows of the request that it serves.
type reqCtx struct {
	*request
	w       *sim.World
	call    *sim.Call
	now     time.Time
	account string
	region  string
}

// ctx makes the context of a typed operation.
func (r *request) ctx() *reqCtx {
	return &reqCtx{request: r, w: r.cloud.World, call: r.Call, now: r.cloud.World.Now(), account: r.Account, region: r.Region}
}

// typedOp is an operation written against SDK structs: it makes an empty input, and carries a filled one out.
type typedOp struct {
	input func() any
	run   func(c *reqCtx, in any) (any, error)
}

// op wraps a handler.
func op[I, O any](f func(*reqCtx, *I) (*O, error)) typedOp {
	// Operations whose output has no members answer no result at all.
	empty := reflect.TypeFor[O]().NumField() <= 2
	return typedOp{
		input: func() any { return new(I) },
		run: func(c *reqCtx, in any) (any, error) {
			out, err := f(c, in.(*I))
			if err != nil || empty {
				return nil, err
			}
			return out, nil
		},
	}
}

// overQuery makes operations of the query protocol from typed ones. Operations whose output has no members mostly answer
// no result element at all; those in hollow, and all if "*" is in it, answer an empty one, and the SDK insists on it.
func overQuery(ops map[string]typedOp, hollow ...string) map[string]operation {
	out := make(map[string]operation, len(ops))
	for name, o := range ops {
		always := slices.Contains(hollow, name) || slices.Contains(hollow, "*")
		out[name] = func(r *request) (any, error) {
			in := o.input()
			if err := decodeQuery(r.Form, in); err != nil {
				return nil, malformedInput(err)
			}
			answer, err := o.run(r.ctx(), in)
			if err == nil && answer == nil && always {
				answer = &struct{}{}
			}
			return answer, err
		}
	}
	return out
}

// overJSON makes operations of the JSON protocol from typed ones.
func overJSON(ops map[string]typedOp) map[string]operation {
	out := make(map[string]operation, len(ops))
	for name, o := range ops {
		out[name] = func(r *request) (any, error) {
			in := o.input()
			if err := decodeJSON(r.Body, in); err != nil {
				return nil, refuse("SerializationException", "%s", err)
			}
			return o.run(r.ctx(), in)
		}
	}
	return out
}

// malformedInput is how the query services refuse a parameter that is no number, Boolean or time.
func malformedInput(err error) error {
	var wrong *wireTypeError
	if errors.As(err, &wrong) {
		return refuse("MalformedInput", "Invalid value %q for parameter %s: expected %s", wrong.got, wrong.path, wrong.want)
	}
	return err
}

func encodeQuery(naming xmlNaming) func(any) ([]byte, error) {
	return func(out any) ([]byte, error) {
		var b strings.Builder
		encodeXMLFields(&b, out, naming)
		return []byte(b.String()), nil
	}
}

// visible says whether a read sees the object id, made at a time; text are the names and tag values by which a fault
// may hide it. What changes an object works on the authoritative copy and always sees it.
func (c *reqCtx) visible(id string, created time.Time, byList bool, text ...string) bool {
	if c.call.Mutating {
		return true
	}
	by := sim.ByID
	if byList {
		by = sim.ByList
	}
	return c.w.Visible(c.call, id, created, by, strings.Join(text, " "))
}

// second is now to the second, as IAM and others keep it.
func (c *reqCtx) second() time.Time { return c.now.Truncate(time.Second) }

// uniqueID makes an ID as IAM does: a prefix that tells the kind, and 17 characters ("IAM identifiers").
func (c *reqCtx) uniqueID(prefix string) string {
	return c.w.ID(prefix, 17, idLetters)
}

// regionalARN names a resource of this account in this region.
func (c *reqCtx) regionalARN(service, resource string) string {
	return arn(service, c.region, c.account, resource)
}

const idLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"

// iamARN names an IAM entity of this account; IAM belongs to no region.
func (c *reqCtx) iamARN(resource string) string { return arn("iam", "", c.account, resource) }

// fail is a refusal with an HTTP status and an error code.
func fail(status int, code, format string, args ...any) error {
	return refuseStatus(status, code, format, args...)
}

// isCode says whether an error is a refusal with the code.
func isCode(err error, code string) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == code
}

// failValidation is the refusal of a parameter, as most query services put it.
func failValidation(format string, args ...any) error {
	return fail(400, "ValidationError", format, args...)
}

// failMissing is the refusal of a request without a required member.
func failMissing(member string) error {
	return failValidation("1 validation error detected: Value null at '%s' failed to satisfy constraint: Member must not be null", member)
}

// deref is the value behind p, or the zero value.
func deref[T any](p *T) T {
	var zero T
	return orDefault(p, zero)
}

func orDefault[T any](p *T, def T) T {
	if p == nil {
		return def
	}
	return *p
}

var errBadToken = errors.New("not a token of this list")

// pageOf cuts one page of at most limit items from all. The token is the position where the next page starts. Faults
// of kind page and the world's options make pages small, empty or endlessly the same, as clients have met in the wild.
func pageOf[T any](c *reqCtx, all []T, token *string, limit int) (page []T, next *string, err error) {
	start := 0
	if token != nil && *token != "" {
		if start, err = decodeToken(*token); err != nil || start < 0 {
			return nil, nil, errBadToken
		}
		start = min(start, len(all)) // the list may have become shorter since, by which no token becomes invalid
	}
	if size := c.w.Options().PageSize; size > 0 && (limit <= 0 || limit > size) {
		limit = size
	}
	if f := c.w.Take(c.call, sim.FaultPage, ""); f != nil {
		switch f.Mode {
		case "repeat":
			end := min(len(all), start+max(limit, 1))
			return all[start:end], new(encodeToken(start)), nil
		default:
			return all[:0], new(encodeToken(start)), nil
		}
	}
	end := len(all)
	if limit > 0 && start+limit < end {
		end = start + limit
	}
	if p := c.w.Options().EmptyPages; p > 0 && end < len(all) && c.w.Fraction("page", c.call.Operation, strconv.Itoa(start), strconv.Itoa(len(all))) < p {
		if !strings.HasSuffix(deref(token), emptyMark) {
			return all[:0], new(encodeToken(start) + emptyMark), nil
		}
	}
	if end < len(all) {
		next = new(encodeToken(end))
	}
	return all[start:end], next, nil
}

// emptyMark ends the token of a page that was empty, so that the next one is not.
const emptyMark = "AAA="

const tokenPrefix = "AQICAHh"

func encodeToken(pos int) string { return tokenPrefix + fmt.Sprintf("%08x", pos) }

func decodeToken(token string) (int, error) {
	rest, ok := strings.CutPrefix(strings.TrimSuffix(token, emptyMark), tokenPrefix)
	if !ok {
		return 0, errBadToken
	}
	n, err := strconv.ParseInt(rest, 16, 32)
	return int(n), err
}

// dropTags removes the tags with the given keys.
func dropTags(tags []Tag, keys []string) []Tag {
	out := []Tag{}
	for _, t := range tags {
		gone := false
		for _, k := range keys {
			gone = gone || t.Key == k
		}
		if !gone {
			out = append(out, t)
		}
	}
	return out
}

// setTag adds a tag or changes its value.
func setTag(tags []Tag, key, value string) []Tag {
	for i := range tags {
		if tags[i].Key == key {
			tags[i].Value = value
			return tags
		}
	}
	return append(tags, Tag{Key: key, Value: value})
}

func tagMap(tags []Tag) map[string]string {
	m := make(map[string]string, len(tags))
	for _, t := range tags {
		m[t.Key] = t.Value
	}
	return m
}

func tagValues(tags []Tag) string {
	var b strings.Builder
	for _, t := range tags {
		b.WriteString(t.Value)
		b.WriteByte(' ')
	}
	return b.String()
}
