package aws

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/zopday/provisioner/internal/sim"
)

// quotaBuckets is the number of general purpose buckets of an account ("Amazon S3 endpoints and quotas").
const quotaBuckets = "L-DC2B2D3D"

const s3Namespace = "http://s3.amazonaws.com/doc/2006-03-01/"

// newS3 makes Amazon S3, as far as a bucket that others write logs into needs it.
func newS3(c *Cloud) *s3Service {
	s := &s3Service{cloud: c, state: &S3State{}}
	c.World.DefineQuota(sim.Quota{Cloud: "aws", Service: "s3", Code: quotaBuckets, Name: "General purpose buckets", Default: 10000, Unit: "None", Adjustable: true, Global: true})
	c.World.Register(s)
	ops := map[string]operation{}
	for name, run := range s.operations() {
		ops[name] = func(r *request) (any, error) {
			at, err := s3Place(r)
			if err != nil {
				return nil, err
			}
			return run(&s3Request{request: r, bucket: at.bucket, key: at.key})
		}
	}
	c.add(&api{
		service: "s3", protocol: s3Protocol, namespace: s3Namespace, version: "2006-03-01", ops: ops, encode: encodeS3,
		route: func(r *http.Request) (string, bool) {
			op := s3Operation(r)
			return op, op != ""
		},
	})
	return s
}

func (s *s3Service) operations() map[string]func(*s3Request) (any, error) {
	return map[string]func(*s3Request) (any, error){
		"ListBuckets": s.listBuckets, "CreateBucket": s.createBucket, "HeadBucket": s.headBucket, "DeleteBucket": s.deleteBucket, "GetBucketLocation": s.getLocation,
		"PutBucketPolicy": s.putPolicy, "GetBucketPolicy": s.getPolicy, "DeleteBucketPolicy": s.deletePolicy,
		"PutPublicAccessBlock": s.putBlock, "GetPublicAccessBlock": s.getBlock, "DeletePublicAccessBlock": s.deleteBlock,
		"PutBucketEncryption": s.putEncryption, "GetBucketEncryption": s.getEncryption, "DeleteBucketEncryption": s.deleteEncryption,
		"PutBucketLifecycleConfiguration": s.putLifecycle, "GetBucketLifecycleConfiguration": s.getLifecycle, "DeleteBucketLifecycle": s.deleteLifecycle,
		"PutBucketTagging": s.putTags, "GetBucketTagging": s.getTags, "DeleteBucketTagging": s.deleteTags,
		"PutObject": s.putObject, "GetObject": s.getObject, "HeadObject": s.getObject, "DeleteObject": s.deleteObject, "DeleteObjects": s.deleteObjects,
		"ListObjectsV2": s.listObjects, "ListObjects": s.listObjects, "ListObjectVersions": s.listVersions,
	}
}

// s3Request is a request to S3 with the bucket and the key that it is about.
type s3Request struct {
	*request
	bucket, key string
}

// in reads the document of a request: XML on the wire, JSON from the control API.
func (r *s3Request) in(doc any) error {
	var err error
	switch {
	case len(r.Body) == 0:
		return nil
	case r.HTTP == nil:
		err = json.Unmarshal(r.Body, doc)
	default:
		err = xml.Unmarshal(r.Body, doc)
	}
	if err != nil {
		return refuse("MalformedXML", "The XML you provided was not well-formed or did not validate against our published schema")
	}
	return nil
}

type s3At struct{ bucket, key string }

// s3Place finds bucket and key: in the host name or, with an address of numbers or a bare localhost, in the path ("Virtual
// hosting of buckets", Amazon S3 user guide).
func s3Place(r *request) (s3At, error) {
	if r.HTTP == nil {
		var in struct{ Bucket, Key string }
		if err := json.Unmarshal(r.Body, &in); err != nil {
			return s3At{}, fmt.Errorf("params: %w", err)
		}
		return s3At{in.Bucket, in.Key}, nil
	}
	return s3Of(r.HTTP), nil
}

func s3Of(hr *http.Request) s3At {
	host := hr.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	path := strings.TrimPrefix(hr.URL.Path, "/")
	if net.ParseIP(host) == nil {
		for _, mark := range []string{".localhost", ".s3.", ".s3-"} {
			if bucket, _, ok := strings.Cut(host, mark); ok && bucket != "" {
				return s3At{bucket, path}
			}
		}
	}
	bucket, key, _ := strings.Cut(path, "/")
	return s3At{bucket, key}
}

// s3Operation names the operation of a request.
func s3Operation(hr *http.Request) string {
	at, q := s3Of(hr), hr.URL.Query()
	switch {
	case at.bucket == "":
		return map[string]string{"GET": "ListBuckets"}[hr.Method]
	case at.key != "":
		return map[string]string{"PUT": "PutObject", "GET": "GetObject", "HEAD": "HeadObject", "DELETE": "DeleteObject"}[hr.Method]
	}
	for part, ops := range map[string]map[string]string{
		"location":          {"GET": "GetBucketLocation"},
		"policy":            {"PUT": "PutBucketPolicy", "GET": "GetBucketPolicy", "DELETE": "DeleteBucketPolicy"},
		"publicAccessBlock": {"PUT": "PutPublicAccessBlock", "GET": "GetPublicAccessBlock", "DELETE": "DeletePublicAccessBlock"},
		"encryption":        {"PUT": "PutBucketEncryption", "GET": "GetBucketEncryption", "DELETE": "DeleteBucketEncryption"},
		"lifecycle":         {"PUT": "PutBucketLifecycleConfiguration", "GET": "GetBucketLifecycleConfiguration", "DELETE": "DeleteBucketLifecycle"},
		"tagging":           {"PUT": "PutBucketTagging", "GET": "GetBucketTagging", "DELETE": "DeleteBucketTagging"},
		"versions":          {"GET": "ListObjectVersions"},
		"delete":            {"POST": "DeleteObjects"},
	} {
		if q.Has(part) {
			return ops[hr.Method]
		}
	}
	for _, part := range []string{"acl", "cors", "versioning", "logging", "notification", "replication", "website", "ownershipControls", "object-lock", "accelerate", "requestPayment", "uploads", "policyStatus"} {
		if q.Has(part) {
			return hr.Method + " ?" + part // not offered here
		}
	}
	if hr.Method == http.MethodGet && q.Get("list-type") != "2" {
		return "ListObjects"
	}
	return map[string]string{"PUT": "CreateBucket", "GET": "ListObjectsV2", "HEAD": "HeadBucket", "DELETE": "DeleteBucket"}[hr.Method]
}

// encodeS3 renders a document; a string is a body as it is.
func encodeS3(out any) ([]byte, error) {
	switch text := out.(type) {
	case string:
		return []byte(text), nil
	case rawBody:
		return []byte(text), nil
	}
	return xml.Marshal(out)
}

// noContent is how S3 says that something is gone.
func noContent() *httpReply { return &httpReply{status: http.StatusNoContent} }

func noBucket() *Error {
	return refuseStatus(404, "NoSuchBucket", "The specified bucket does not exist")
}

// open finds a bucket for its owner. Everybody else is refused, and its owner too in another region ("Redirection",
// Amazon S3 user guide).
func (s *s3Service) open(r *s3Request) (*Bucket, error) {
	b := s.state.Buckets[r.bucket]
	expected := ""
	if r.HTTP != nil {
		expected = r.HTTP.Header.Get("X-Amz-Expected-Bucket-Owner")
	}
	switch {
	case b == nil:
		return nil, noBucket()
	case b.Account != r.Account || expected != "" && expected != b.Account:
		return nil, refuseStatus(403, "AccessDenied", "Access Denied")
	case b.Region != r.Region && r.HTTP != nil:
		return nil, refuseStatus(301, "PermanentRedirect", "The bucket you are attempting to access must be addressed using the specified endpoint. Please send all future requests to this endpoint.")
	}
	r.Touch(b.Name)
	return b, nil
}

// mayPut says whether the bucket's policy lets somebody put an object there: a service by its name, or an account.
func (b *Bucket) mayPut(key string, principals ...string) bool {
	var doc struct {
		Statement []struct {
			Effect    string
			Principal json.RawMessage
			Action    stringList
			Resource  stringList
			Condition map[string]any
		}
	}
	if json.Unmarshal([]byte(b.Policy), &doc) != nil {
		return false
	}
	for _, st := range doc.Statement {
		var by map[string]stringList
		if json.Unmarshal(st.Principal, &by) != nil {
			continue // everybody: that opens nothing to a service
		}
		who := slices.Concat(by["Service"], by["AWS"])
		named := slices.ContainsFunc(principals, func(p string) bool { return slices.Contains(who, p) })
		action := slices.ContainsFunc(st.Action, func(a string) bool { return anyMatch([]string{a}, []string{"s3:PutObject"}) })
		resource := slices.ContainsFunc(st.Resource, func(p string) bool { return anyMatch([]string{p}, []string{"arn:aws:s3:::" + b.Name + "/" + key}) })
		if st.Effect == "Allow" && named && action && resource {
			return true
		}
	}
	return false
}
