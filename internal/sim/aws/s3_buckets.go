package aws

import (
	"encoding/json"
	"encoding/xml"
	"net"
	"net/http"
	"regexp"
	"strings"
)

type bucketEntry struct {
	Name         string
	CreationDate string
	BucketRegion string
}

func (s *s3Service) listBuckets(r *s3Request) (any, error) {
	type list struct {
		XMLName xml.Name      `xml:"ListAllMyBucketsResult"`
		Owner   string        `xml:"Owner>ID"`
		Buckets []bucketEntry `xml:"Buckets>Bucket"`
	}
	out := list{Owner: r.Account}
	prefix := r.Form.Get("prefix")
	for _, name := range sortedKeys(s.state.Buckets) {
		b := s.state.Buckets[name]
		if b.Account == r.Account && strings.HasPrefix(name, prefix) && (r.Form.Get("bucket-region") == "" || r.Form.Get("bucket-region") == b.Region) {
			out.Buckets = append(out.Buckets, bucketEntry{name, stamp(b.Created), b.Region})
		}
	}
	return out, nil
}

var bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)

type tagList struct {
	Tag []Tag `xml:"Tag"`
}

func (s *s3Service) createBucket(r *s3Request) (any, error) {
	var in struct {
		LocationConstraint string
		Tags               tagList
	}
	if err := r.in(&in); err != nil {
		return nil, err
	}
	// "General purpose bucket naming rules", Amazon S3 user guide.
	if !bucketName.MatchString(r.bucket) || strings.Contains(r.bucket, "..") || net.ParseIP(r.bucket) != nil || strings.HasPrefix(r.bucket, "xn--") || strings.HasSuffix(r.bucket, "-s3alias") {
		return nil, refuse("InvalidBucketName", "The specified bucket is not valid.")
	}
	want := orText(in.LocationConstraint, "us-east-1")
	if want == "EU" {
		want = "eu-west-1"
	}
	if r.HTTP != nil && (want != r.Region || in.LocationConstraint == "us-east-1") {
		if in.LocationConstraint == "" {
			return nil, refuse("IllegalLocationConstraintException", "The unspecified location constraint is incompatible for the region specific endpoint this request was sent to.")
		}
		return nil, refuse("InvalidLocationConstraint", "The specified location-constraint is not valid")
	}
	if b := s.state.Buckets[r.bucket]; b != nil {
		switch {
		case b.Account != r.Account:
			return nil, refuseStatus(409, "BucketAlreadyExists", "The requested bucket name is not available. The bucket namespace is shared by all users of the system. Please select a different name and try again.")
		case b.Region == "us-east-1" && r.Region == "us-east-1":
			// "for legacy compatibility, if you re-create an existing bucket that you already own in us-east-1, Amazon S3 returns 200 OK" (CreateBucket).
			return &httpReply{header: http.Header{"Location": {"/" + b.Name}}}, nil
		}
		return nil, refuseStatus(409, "BucketAlreadyOwnedByYou", "Your previous request to create the named bucket succeeded and you already own it.")
	}
	if countIn(s.state.Buckets, func(b *Bucket) bool { return b.Account == r.Account }) >= int(s.cloud.quota(scope{r.Account, "us-east-1"}, "s3", quotaBuckets)) {
		return nil, refuse("TooManyBuckets", "You have attempted to create more buckets than allowed")
	}
	if err := checkS3Tags(in.Tags.Tag); err != nil {
		return nil, err
	}
	// New buckets block public access, have no ACLs, and encrypt with SSE-S3 ("Default settings for new S3 buckets FAQ").
	s.state.Buckets[r.bucket] = &Bucket{Account: r.Account, Region: r.Region, Name: r.bucket, Created: s.cloud.World.Now(), Tags: append([]Tag{}, in.Tags.Tag...),
		Block: &PublicAccessBlock{true, true, true, true}, Encryption: "AES256", Objects: map[string]*S3Object{}}
	r.Make(r.bucket)
	return &httpReply{header: http.Header{"Location": {"/" + r.bucket}}}, nil
}

func checkS3Tags(tags []Tag) error {
	seen := map[string]bool{}
	for _, t := range tags {
		switch {
		case t.Key == "" || len(t.Key) > 128 || len(t.Value) > 256:
			return refuse("InvalidTag", "The TagKey or TagValue you have provided is invalid")
		case strings.HasPrefix(strings.ToLower(t.Key), "aws:"):
			return refuse("InvalidTag", "System tags cannot be added/updated by requester")
		case seen[t.Key]:
			return refuse("InvalidTag", "Cannot provide multiple Tags with the same key")
		}
		seen[t.Key] = true
	}
	if len(tags) > 50 {
		return refuse("BadRequest", "Bucket tag count cannot be greater than 50")
	}
	return nil
}

func (s *s3Service) headBucket(r *s3Request) (any, error) {
	b, err := s.open(r)
	if err != nil {
		return nil, err
	}
	return &httpReply{header: http.Header{"X-Amz-Bucket-Region": {b.Region}}}, nil
}

func (s *s3Service) getLocation(r *s3Request) (any, error) {
	b, err := s.open(r)
	if err != nil {
		return nil, err
	}
	if b.Region == "us-east-1" {
		return `<LocationConstraint xmlns="` + s3Namespace + `"/>`, nil
	}
	return `<LocationConstraint xmlns="` + s3Namespace + `">` + b.Region + `</LocationConstraint>`, nil
}

func (s *s3Service) deleteBucket(r *s3Request) (any, error) {
	b, err := s.open(r)
	if err != nil {
		return nil, err
	}
	if len(b.Objects) > 0 {
		return nil, refuseStatus(409, "BucketNotEmpty", "The bucket you tried to delete is not empty")
	}
	delete(s.state.Buckets, b.Name)
	return noContent(), nil
}

func (s *s3Service) putPolicy(r *s3Request) (any, error) {
	b, err := s.open(r)
	if err != nil {
		return nil, err
	}
	doc := string(r.Body)
	if r.HTTP == nil {
		var in struct{ Policy string }
		if err := r.in(&in); err != nil {
			return nil, err
		}
		doc = in.Policy
	}
	if err := b.checkPolicy(doc); err != nil {
		return nil, err
	}
	b.Policy = doc
	return noContent(), nil
}

// checkPolicy refuses a policy that is none, that is about another bucket, or that opens the bucket to everybody although
// that is blocked.
func (b *Bucket) checkPolicy(doc string) error {
	var p struct {
		Statement []struct {
			Effect    string
			Principal json.RawMessage
			Resource  stringList
			Condition map[string]any
		}
	}
	if err := json.Unmarshal([]byte(doc), &p); err != nil {
		return refuse("MalformedPolicy", "This policy contains invalid Json")
	}
	for _, st := range p.Statement {
		if len(st.Principal) == 0 {
			return refuse("MalformedPolicy", "Missing required field Principal")
		}
		for _, resource := range st.Resource {
			if rest, ok := strings.CutPrefix(resource, "arn:aws:s3:::"+b.Name); !ok || rest != "" && !strings.HasPrefix(rest, "/") {
				return refuse("MalformedPolicy", "Policy has invalid resource")
			}
		}
		open := strings.Contains(string(st.Principal), `"*"`) && st.Effect == "Allow" && len(st.Condition) == 0
		if open && b.Block != nil && b.Block.BlockPublicPolicy {
			return refuseStatus(403, "AccessDenied", "User is not authorized to perform: s3:PutBucketPolicy on resource: \"arn:aws:s3:::%s\" because public policies are blocked by the BlockPublicPolicy block public access setting.", b.Name)
		}
	}
	return nil
}

func (s *s3Service) getPolicy(r *s3Request) (any, error) {
	b, err := s.open(r)
	if err != nil {
		return nil, err
	}
	if b.Policy == "" {
		return nil, refuseStatus(404, "NoSuchBucketPolicy", "The bucket policy does not exist")
	}
	// The policy is the body as it is, without an XML header.
	return &httpReply{header: http.Header{"Content-Type": {"application/json"}}, body: rawBody(b.Policy)}, nil
}

func (s *s3Service) deletePolicy(r *s3Request) (any, error) {
	b, err := s.open(r)
	if err != nil {
		return nil, err
	}
	b.Policy = ""
	return noContent(), nil
}
