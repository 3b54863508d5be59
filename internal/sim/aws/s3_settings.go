package aws

import "encoding/xml"

// rawBody is a body that is no XML.
type rawBody string

func (s *s3Service) putBlock(r *s3Request) (any, error) {
	b, err := s.open(r)
	if err != nil {
		return nil, err
	}
	var in PublicAccessBlock
	if err := r.in(&in); err != nil {
		return nil, err
	}
	b.Block = &in
	return &httpReply{}, nil
}

func (s *s3Service) getBlock(r *s3Request) (any, error) {
	b, err := s.open(r)
	if err != nil {
		return nil, err
	}
	if b.Block == nil {
		return nil, refuseStatus(404, "NoSuchPublicAccessBlockConfiguration", "The public access block configuration was not found")
	}
	return struct {
		XMLName xml.Name `xml:"PublicAccessBlockConfiguration"`
		PublicAccessBlock
	}{PublicAccessBlock: *b.Block}, nil
}

func (s *s3Service) deleteBlock(r *s3Request) (any, error) {
	b, err := s.open(r)
	if err != nil {
		return nil, err
	}
	b.Block = nil
	return noContent(), nil
}

type encryptionRule struct {
	Algorithm string `xml:"ApplyServerSideEncryptionByDefault>SSEAlgorithm"`
	KeyID     string `xml:"ApplyServerSideEncryptionByDefault>KMSMasterKeyID,omitempty"`
	BucketKey bool   `xml:"BucketKeyEnabled"`
}

func (s *s3Service) putEncryption(r *s3Request) (any, error) {
	b, err := s.open(r)
	if err != nil {
		return nil, err
	}
	var in struct {
		Rule []encryptionRule `xml:"Rule"`
	}
	if err := r.in(&in); err != nil {
		return nil, err
	}
	if len(in.Rule) != 1 || in.Rule[0].Algorithm != "AES256" && in.Rule[0].Algorithm != "aws:kms" && in.Rule[0].Algorithm != "aws:kms:dsse" {
		return nil, refuse("MalformedXML", "The XML you provided was not well-formed or did not validate against our published schema")
	}
	b.Encryption, b.KmsKeyID = in.Rule[0].Algorithm, in.Rule[0].KeyID
	return &httpReply{}, nil
}

func (s *s3Service) getEncryption(r *s3Request) (any, error) {
	b, err := s.open(r)
	if err != nil {
		return nil, err
	}
	return struct {
		XMLName xml.Name         `xml:"ServerSideEncryptionConfiguration"`
		Rule    []encryptionRule `xml:"Rule"`
	}{Rule: []encryptionRule{{Algorithm: b.Encryption, KeyID: b.KmsKeyID}}}, nil
}

// deleteEncryption puts the default back: no bucket is without encryption.
func (s *s3Service) deleteEncryption(r *s3Request) (any, error) {
	b, err := s.open(r)
	if err != nil {
		return nil, err
	}
	b.Encryption, b.KmsKeyID = "AES256", ""
	return noContent(), nil
}

func (s *s3Service) putLifecycle(r *s3Request) (any, error) {
	b, err := s.open(r)
	if err != nil {
		return nil, err
	}
	var in struct {
		Rule []LifecycleRule `xml:"Rule"`
	}
	if err := r.in(&in); err != nil {
		return nil, err
	}
	if len(in.Rule) == 0 {
		return nil, refuse("MalformedXML", "The XML you provided was not well-formed or did not validate against our published schema")
	}
	for _, rule := range in.Rule {
		switch {
		case rule.Filter == nil && rule.Prefix == nil, rule.Status != "Enabled" && rule.Status != "Disabled":
			return nil, refuse("MalformedXML", "The XML you provided was not well-formed or did not validate against our published schema")
		case rule.Expiration == nil && rule.Abort == nil:
			return nil, refuse("InvalidRequest", "At least one action needs to be specified in a rule")
		case rule.Expiration != nil && rule.Expiration.Days <= 0:
			return nil, refuse("InvalidArgument", "'Days' for Expiration action must be a positive integer")
		}
	}
	b.Lifecycle = in.Rule
	return &httpReply{}, nil
}

func (s *s3Service) getLifecycle(r *s3Request) (any, error) {
	b, err := s.open(r)
	if err != nil {
		return nil, err
	}
	if len(b.Lifecycle) == 0 {
		return nil, refuseStatus(404, "NoSuchLifecycleConfiguration", "The lifecycle configuration does not exist")
	}
	return struct {
		XMLName xml.Name        `xml:"LifecycleConfiguration"`
		Rule    []LifecycleRule `xml:"Rule"`
	}{Rule: b.Lifecycle}, nil
}

func (s *s3Service) deleteLifecycle(r *s3Request) (any, error) {
	b, err := s.open(r)
	if err != nil {
		return nil, err
	}
	b.Lifecycle = nil
	return noContent(), nil
}

func (s *s3Service) putTags(r *s3Request) (any, error) {
	b, err := s.open(r)
	if err != nil {
		return nil, err
	}
	var in struct {
		TagSet tagList
	}
	if err := r.in(&in); err != nil {
		return nil, err
	}
	if err := checkS3Tags(in.TagSet.Tag); err != nil {
		return nil, err
	}
	b.Tags = append([]Tag{}, in.TagSet.Tag...)
	return noContent(), nil
}

func (s *s3Service) getTags(r *s3Request) (any, error) {
	b, err := s.open(r)
	if err != nil {
		return nil, err
	}
	if len(b.Tags) == 0 {
		return nil, refuseStatus(404, "NoSuchTagSet", "The TagSet does not exist")
	}
	return struct {
		XMLName xml.Name `xml:"Tagging"`
		TagSet  tagList
	}{TagSet: tagList{b.Tags}}, nil
}

func (s *s3Service) deleteTags(r *s3Request) (any, error) {
	b, err := s.open(r)
	if err != nil {
		return nil, err
	}
	b.Tags = nil
	return noContent(), nil
}
