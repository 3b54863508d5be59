package aws

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/aws/smithy-go/encoding/cbor"

	"github.com/zopday/provisioner/internal/sim"
)

// A protocol is one of the wire protocols of AWS.
type protocol int

const (
	ec2Protocol      protocol = iota // query with EC2's own list names and error envelope
	queryProtocol                    // query as IAM, STS, Auto Scaling and ELB speak it
	jsonProtocol                     // AWS JSON 1.1
	restXMLProtocol                  // REST-XML
	s3Protocol                       // REST-XML as S3 speaks it, with an error envelope of its own
	restJSONProtocol                 // REST-JSON
	cborProtocol                     // Smithy RPC v2 with CBOR
)

// An operation carries a request out, with the world locked.
type operation func(r *request) (any, error)

// An api is one service as the front end knows it.
type api struct {
	service   string // name in the SigV4 credential scope
	sdkPrefix string // of X-Amz-Target without the dot (JSON)
	protocol  protocol
	namespace string // XML namespace
	version   string
	ops       map[string]operation
	reads     []string // operations that change nothing although their name does not tell
	encode    func(out any) ([]byte, error)
	// route names the operation of a REST request.
	route func(r *http.Request) (op string, ok bool)
	// messageKey names the member with the text of an error (JSON); nil means "message".
	messageKey func(code string) string
	// throttle is how the service says that it is asked too often; zero means the protocol's way.
	throttle Error
	// other is another version of the service's API, which is served as well.
	other *api
	// around is called before and after every request, with the world unlocked.
	around func()
	// secrets are parameters whose values no fault and no book gets to see.
	secrets []string
	// hollow: an operation whose output has no members answers no body at all (JSON).
	hollow bool
}

// A request is one call of an operation.
type request struct {
	*sim.Call
	cloud *Cloud
	id    string
	Form  url.Values     // parameters of the query protocols
	Body  []byte         // body of JSON and REST-XML requests
	HTTP  *http.Request  // nil when the control API makes the call
	Input map[string]any // parameters given to the control API; nil otherwise
	Who   Identity
}

func (r *request) scope() scope { return scope{r.Account, r.Region} }

// httpReply is an answer with a status or headers of its own.
type httpReply struct {
	status int // 0 means 200
	header http.Header
	body   any // for encode; nil means no body
}

var readPrefixes = []string{"Describe", "Get", "List", "Lookup", "Search", "Simulate", "Test", "Preview", "Decode", "BatchGet"}

// mutating says whether an operation changes anything, by its name.
func (a *api) mutating(op string) bool {
	if slices.Contains(a.reads, op) {
		return false
	}
	for _, p := range readPrefixes {
		if strings.HasPrefix(op, p) {
			return false
		}
	}
	return true
}

// answer is a rendered answer.
type answer struct {
	status int
	code   string
	header http.Header
	body   []byte
}

func (a *api) contentType() string {
	switch a.protocol {
	case s3Protocol:
		return "application/xml"
	case jsonProtocol:
		return "application/x-amz-json-1.1"
	case restJSONProtocol:
		return "application/json"
	case cborProtocol:
		return "application/cbor"
	case ec2Protocol:
		return "text/xml;charset=UTF-8"
	}
	return "text/xml"
}

const xmlHeader = `<?xml version="1.0" encoding="UTF-8"?>` + "\n"

// render writes a successful answer.
func (a *api) render(r *request, out any) (answer, error) {
	ans := answer{status: http.StatusOK, header: http.Header{}}
	if rep, ok := out.(*httpReply); ok {
		if rep.status != 0 {
			ans.status = rep.status
		}
		if rep.header != nil {
			ans.header = rep.header
		}
		out = rep.body
	}
	var inner []byte
	if out != nil && a.encode != nil {
		b, err := a.encode(out)
		if err != nil {
			return answer{}, fmt.Errorf("encode %s: %w", r.Operation, err)
		}
		inner = b
	}
	var b bytes.Buffer
	switch a.protocol {
	case ec2Protocol:
		fmt.Fprintf(&b, `%s<%sResponse xmlns="%s"><requestId>%s</requestId>%s</%[2]sResponse>`, xmlHeader, r.Operation, a.namespace, r.id, inner)
	case queryProtocol:
		fmt.Fprintf(&b, `<%sResponse xmlns="%s">`, r.Operation, a.namespace)
		if out != nil {
			fmt.Fprintf(&b, `<%sResult>%s</%[1]sResult>`, r.Operation, inner)
		}
		fmt.Fprintf(&b, `<ResponseMetadata><RequestId>%s</RequestId></ResponseMetadata></%sResponse>`, r.id, r.Operation)
	case jsonProtocol, restJSONProtocol:
		if inner == nil && !a.hollow {
			inner = []byte("{}")
		}
		b.Write(inner)
	case cborProtocol:
		ans.header.Set("Smithy-Protocol", "rpc-v2-cbor")
		b.Write(inner)
	case restXMLProtocol, s3Protocol:
		if _, raw := out.(rawBody); raw {
			b.Write(inner)
		} else if len(inner) > 0 {
			b.WriteString(xmlHeader)
			b.Write(inner)
		}
	}
	ans.body = b.Bytes()
	return ans, nil
}

// renderError writes a refusal in the protocol's envelope.
func (a *api) renderError(id string, e *Error) answer {
	ans := answer{status: e.status(), code: e.Code, header: http.Header{}}
	kind := "Sender"
	if e.status() >= 500 {
		kind = "Receiver"
	}
	var b bytes.Buffer
	switch a.protocol {
	case ec2Protocol:
		fmt.Fprintf(&b, `%s<Response><Errors><Error><Code>%s</Code><Message>%s</Message></Error></Errors><RequestID>%s</RequestID></Response>`,
			xmlHeader, xmlText(e.Code), xmlText(e.Message), id)
	case queryProtocol, restXMLProtocol:
		if a.protocol == restXMLProtocol {
			b.WriteString(xmlHeader)
		}
		fmt.Fprintf(&b, `<ErrorResponse xmlns="%s"><Error><Type>%s</Type><Code>%s</Code><Message>%s</Message></Error><RequestId>%s</RequestId></ErrorResponse>`,
			a.namespace, kind, xmlText(e.Code), xmlText(e.Message), id)
	case s3Protocol:
		ans.header.Set("Content-Type", "application/xml")
		fmt.Fprintf(&b, `%s<Error><Code>%s</Code><Message>%s</Message><RequestId>%s</RequestId><HostId>%s</HostId></Error>`, xmlHeader, xmlText(e.Code), xmlText(e.Message), id, id)
	case cborProtocol:
		ans.header.Set("Smithy-Protocol", "rpc-v2-cbor")
		ans.header.Set("X-Amzn-Query-Error", e.Code+";"+kind)
		b.Write(cbor.Encode(cbor.Map{"__type": cbor.String("com.amazonaws.cloudwatch#" + e.Code), "message": cbor.String(e.Message)}))
	case jsonProtocol, restJSONProtocol:
		doc := map[string]any{"__type": e.Code}
		maps.Copy(doc, e.Members)
		// Some errors, such as Systems Manager's ParameterNotFound, carry no message at all.
		if e.Message != "" {
			key := "message"
			if a.messageKey != nil {
				key = a.messageKey(e.Code)
			}
			doc[key] = e.Message
		}
		_ = json.NewEncoder(&b).Encode(doc) // strings and lists of them always encode
		ans.header.Set("X-Amzn-Errortype", e.Code)
	}
	ans.body = b.Bytes()
	return ans
}

// throttled is the refusal of a service that is asked too often. EC2 answers RequestLimitExceeded with 503 ("Request
// throttling for the Amazon EC2 API"), the query services Throttling with 400, the JSON services ThrottlingException.
func (a *api) throttled() *Error {
	if a.throttle.Code != "" {
		e := a.throttle
		return &e
	}
	switch a.protocol {
	case ec2Protocol:
		return refuseStatus(503, "RequestLimitExceeded", "Request limit exceeded.")
	case jsonProtocol, restJSONProtocol:
		return refuse("ThrottlingException", "Rate exceeded")
	case s3Protocol:
		return refuseStatus(503, "SlowDown", "Please reduce your request rate.")
	}
	return refuse("Throttling", "Rate exceeded")
}

// Refusals that concern every operation; their codes differ by protocol ("Common errors" of each API reference).

func (a *api) unknownOperation(op, version string) *Error {
	switch a.protocol {
	case jsonProtocol:
		return refuse("UnknownOperationException", "")
	case restXMLProtocol, restJSONProtocol, cborProtocol:
		return refuseStatus(404, "UnknownOperationException", "No such operation: %s", op)
	case s3Protocol:
		return refuseStatus(501, "NotImplemented", "A header you provided implies functionality that is not implemented")
	case ec2Protocol:
		return refuse("InvalidAction", "The action %s is not valid for this web service.", op)
	}
	return refuse("InvalidAction", "Could not find operation %s for version %s", op, version)
}

func (a *api) unknownKey() *Error {
	switch a.protocol {
	case ec2Protocol:
		return refuseStatus(401, "AuthFailure", "AWS was not able to validate the provided access credentials")
	case jsonProtocol:
		return refuse("UnrecognizedClientException", "The security token included in the request is invalid.")
	case restJSONProtocol:
		return refuseStatus(403, "UnrecognizedClientException", "The security token included in the request is invalid.")
	case s3Protocol:
		return refuseStatus(403, "InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist in our records.")
	}
	return refuseStatus(403, "InvalidClientTokenId", "The security token included in the request is invalid.")
}

func (a *api) unsigned() *Error {
	switch a.protocol {
	case ec2Protocol:
		return refuseStatus(401, "AuthFailure", "AWS was not able to validate the provided access credentials")
	case jsonProtocol:
		return refuse("MissingAuthenticationTokenException", "Missing Authentication Token")
	case restJSONProtocol:
		return refuseStatus(403, "MissingAuthenticationTokenException", "Missing Authentication Token")
	case s3Protocol:
		return refuseStatus(403, "AccessDenied", "Access Denied")
	}
	return refuseStatus(403, "MissingAuthenticationToken", "Request is missing Authentication Token")
}

func (a *api) expiredKey() *Error {
	switch a.protocol {
	case ec2Protocol:
		return refuse("RequestExpired", "Request has expired.")
	case jsonProtocol:
		return refuse("ExpiredTokenException", "The security token included in the request is expired")
	case restJSONProtocol:
		return refuseStatus(403, "ExpiredTokenException", "The security token included in the request is expired")
	case s3Protocol:
		return refuse("ExpiredToken", "The provided token has expired.")
	}
	return refuseStatus(403, "ExpiredToken", "The security token included in the request is expired")
}

func (a *api) skewed(signed, now time.Time) *Error {
	const amzDate = "20060102T150405Z"
	msg := fmt.Sprintf("Signature expired: %s is now earlier than %s (%s - 5 min.)", signed.Format(amzDate), now.Add(-5*time.Minute).Format(amzDate), now.Format(amzDate))
	if signed.After(now) {
		msg = fmt.Sprintf("Signature not yet current: %s is still later than %s (%s + 5 min.)", signed.Format(amzDate), now.Add(5*time.Minute).Format(amzDate), now.Format(amzDate))
	}
	switch a.protocol {
	case ec2Protocol:
		if signed.After(now) {
			return refuseStatus(401, "AuthFailure", "AWS was not able to validate the provided access credentials")
		}
		return refuse("RequestExpired", "Request has expired.")
	case jsonProtocol:
		return refuse("InvalidSignatureException", "%s", msg)
	case restJSONProtocol:
		return refuseStatus(403, "InvalidSignatureException", "%s", msg)
	case s3Protocol:
		return refuseStatus(403, "RequestTimeTooSkewed", "The difference between the request time and the current time is too large.")
	}
	return refuseStatus(403, "SignatureDoesNotMatch", "%s", msg)
}

// flatten turns parameters given as JSON into the form of a query request.
func flatten(prefix string, v any, list string, form url.Values) {
	switch x := v.(type) {
	case map[string]any:
		keys := make([]string, 0, len(x))
		for k := range x {
			keys = append(keys, k)
		}
		sort.Strings(keys)
		for _, k := range keys {
			p := k
			if prefix != "" {
				p = prefix + "." + k
			}
			flatten(p, x[k], list, form)
		}
	case []any:
		for i, item := range x {
			flatten(fmt.Sprintf("%s%s.%d", prefix, list, i+1), item, list, form)
		}
	case nil:
	case float64:
		form.Set(prefix, strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%f", x), "0"), "."))
	default:
		form.Set(prefix, fmt.Sprint(x))
	}
}
