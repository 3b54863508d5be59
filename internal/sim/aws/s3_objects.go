package aws

import (
	"crypto/md5" //nolint:gosec // what S3 calls an ETag
	"encoding/base64"
	"encoding/hex"
	"encoding/xml"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

// put puts an object into a bucket.
func (s *s3Service) put(b *Bucket, key, body string) {
	b.Objects[key] = &S3Object{Key: key, Body: body, Changed: s.cloud.World.Now()}
}

func (o *S3Object) etag() string {
	sum := md5.Sum([]byte(o.Body)) //nolint:gosec // as above
	return `"` + hex.EncodeToString(sum[:]) + `"`
}

func (s *s3Service) putObject(r *s3Request) (any, error) {
	b, err := s.open(r)
	if err != nil {
		return nil, err
	}
	body := string(r.Body)
	if r.HTTP == nil {
		var in struct{ Body string }
		if err := r.in(&in); err != nil {
			return nil, err
		}
		body = in.Body
	}
	s.put(b, r.key, body)
	return &httpReply{header: http.Header{"ETag": {b.Objects[r.key].etag()}}}, nil
}

// getObject serves HEAD too: the body of that is dropped by the server.
func (s *s3Service) getObject(r *s3Request) (any, error) {
	b, err := s.open(r)
	if err != nil {
		return nil, err
	}
	o := b.Objects[r.key]
	if o == nil {
		return nil, refuseStatus(404, "NoSuchKey", "The specified key does not exist.")
	}
	return &httpReply{header: http.Header{"ETag": {o.etag()}, "Content-Type": {"binary/octet-stream"}, "Last-Modified": {o.Changed.UTC().Format(http.TimeFormat)}}, body: rawBody(o.Body)}, nil
}

// deleteObject answers the same whether there was one or not.
func (s *s3Service) deleteObject(r *s3Request) (any, error) {
	b, err := s.open(r)
	if err != nil {
		return nil, err
	}
	delete(b.Objects, r.key)
	return noContent(), nil
}

type deletedKey struct{ Key string }

func (s *s3Service) deleteObjects(r *s3Request) (any, error) {
	b, err := s.open(r)
	if err != nil {
		return nil, err
	}
	var in struct {
		Object []deletedKey `xml:"Object"`
		Quiet  bool
	}
	if err := r.in(&in); err != nil {
		return nil, err
	}
	if len(in.Object) == 0 || len(in.Object) > 1000 {
		return nil, refuse("MalformedXML", "The XML you provided was not well-formed or did not validate against our published schema")
	}
	type result struct {
		XMLName xml.Name     `xml:"DeleteResult"`
		Deleted []deletedKey `xml:"Deleted"`
	}
	var out result
	for _, o := range in.Object {
		delete(b.Objects, o.Key)
		if !in.Quiet {
			out.Deleted = append(out.Deleted, o)
		}
	}
	return out, nil
}

type objectEntry struct {
	Key          string
	LastModified string
	ETag         string
	Size         int
	StorageClass string
	VersionID    string `xml:"VersionId,omitempty"`
	IsLatest     *bool
}

// page cuts a page of a bucket's objects, after a key.
func (s *s3Service) page(r *s3Request, b *Bucket, after string, version string) (page []objectEntry, more bool) {
	limit := 1000
	if n, err := strconv.Atoi(r.Form.Get("max-keys")); err == nil && n > 0 {
		limit = min(limit, n)
	}
	if size := s.cloud.World.Options().PageSize; size > 0 {
		limit = min(limit, size)
	}
	for _, key := range sortedKeys(b.Objects) {
		if key <= after && after != "" || !strings.HasPrefix(key, r.Form.Get("prefix")) {
			continue
		}
		if len(page) == limit {
			return page, true
		}
		o := b.Objects[key]
		e := objectEntry{Key: key, LastModified: o.Changed.UTC().Format(time.RFC3339), ETag: o.etag(), Size: len(o.Body), StorageClass: "STANDARD", VersionID: version}
		if version != "" {
			e.IsLatest = new(true)
		}
		page = append(page, e)
	}
	return page, false
}

func (s *s3Service) listObjects(r *s3Request) (any, error) {
	b, err := s.open(r)
	if err != nil {
		return nil, err
	}
	after := r.Form.Get("start-after")
	if token := r.Form.Get("continuation-token"); token != "" {
		raw, err := base64.URLEncoding.DecodeString(token)
		if err != nil {
			return nil, refuse("InvalidArgument", "The continuation token provided is incorrect")
		}
		after = string(raw)
	}
	if marker := r.Form.Get("marker"); marker != "" {
		after = marker
	}
	type list struct {
		XMLName     xml.Name `xml:"ListBucketResult"`
		Name        string
		Prefix      string
		KeyCount    int
		MaxKeys     int
		IsTruncated bool
		Next        string        `xml:"NextContinuationToken,omitempty"`
		NextMarker  string        `xml:"NextMarker,omitempty"`
		Contents    []objectEntry `xml:"Contents"`
	}
	if s.cloud.World.Take(r.Call, sim.FaultPage, "") != nil {
		return list{Name: b.Name, MaxKeys: 1000, IsTruncated: true, Next: base64.URLEncoding.EncodeToString([]byte(after))}, nil
	}
	page, more := s.page(r, b, after, "")
	out := list{Name: b.Name, Prefix: r.Form.Get("prefix"), KeyCount: len(page), MaxKeys: 1000, IsTruncated: more, Contents: page}
	if more {
		out.Next, out.NextMarker = base64.URLEncoding.EncodeToString([]byte(page[len(page)-1].Key)), page[len(page)-1].Key
	}
	return out, nil
}

// listVersions lists the one version, null, that an object of a bucket without versions has.
func (s *s3Service) listVersions(r *s3Request) (any, error) {
	b, err := s.open(r)
	if err != nil {
		return nil, err
	}
	page, more := s.page(r, b, r.Form.Get("key-marker"), "null")
	type list struct {
		XMLName       xml.Name `xml:"ListVersionsResult"`
		Name          string
		MaxKeys       int
		IsTruncated   bool
		NextKeyMarker string        `xml:"NextKeyMarker,omitempty"`
		Version       []objectEntry `xml:"Version"`
	}
	out := list{Name: b.Name, MaxKeys: 1000, IsTruncated: more, Version: page}
	if more {
		out.NextKeyMarker = page[len(page)-1].Key
	}
	return out, nil
}
