package aws

import (
	"fmt"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

// S3State is every bucket: their names are unique among all accounts and regions.
type S3State struct {
	Buckets map[string]*Bucket
}

// Bucket is a general purpose bucket.
type Bucket struct {
	Account, Region, Name string
	Created               time.Time
	Tags                  []Tag
	Policy                string
	Block                 *PublicAccessBlock // nil: taken off
	Encryption            string             // AES256 or aws:kms
	KmsKeyID              string
	Lifecycle             []LifecycleRule
	Objects               map[string]*S3Object
}

// PublicAccessBlock says what the policy and the ACLs of a bucket cannot open.
type PublicAccessBlock struct {
	BlockPublicAcls       bool `xml:"BlockPublicAcls"`
	IgnorePublicAcls      bool `xml:"IgnorePublicAcls"`
	BlockPublicPolicy     bool `xml:"BlockPublicPolicy"`
	RestrictPublicBuckets bool `xml:"RestrictPublicBuckets"`
}

// LifecycleRule is one rule of a bucket's lifecycle.
type LifecycleRule struct {
	ID         string               `xml:"ID,omitempty"`
	Status     string               `xml:"Status"`
	Prefix     *string              `xml:"Prefix"`
	Filter     *LifecycleFilter     `xml:"Filter"`
	Expiration *LifecycleExpiration `xml:"Expiration"`
	Abort      *LifecycleAbort      `xml:"AbortIncompleteMultipartUpload"`
}

// LifecycleFilter says which objects a rule is about.
type LifecycleFilter struct {
	Prefix *string `xml:"Prefix"`
}

// LifecycleExpiration says after how many days they go.
type LifecycleExpiration struct {
	Days int `xml:"Days,omitempty"`
}

// LifecycleAbort says after how many days an upload that did not end goes.
type LifecycleAbort struct {
	DaysAfterInitiation int `xml:"DaysAfterInitiation"`
}

// S3Object is an object in a bucket.
type S3Object struct {
	Key     string
	Body    string
	Changed time.Time
}

// s3Service is Amazon S3.
type s3Service struct {
	cloud *Cloud
	state *S3State
}

// Cloud implements sim.Service.
func (s *s3Service) Cloud() string { return "aws" }

// Name implements sim.Service.
func (s *s3Service) Name() string { return "s3" }

// State implements sim.Service.
func (s *s3Service) State() any { return s.state }

// Reset implements sim.Service.
func (s *s3Service) Reset() { s.state.Buckets = map[string]*Bucket{} }

// Event implements sim.Service.
func (s *s3Service) Event(string, string) {}

// Objects implements sim.Service. What is in a bucket goes with it, and yet is in the way of its deletion.
func (s *s3Service) Objects() []sim.Object {
	var out []sim.Object
	for _, name := range sortedKeys(s.state.Buckets) {
		b := s.state.Buckets[name]
		out = append(out, sim.Object{Account: b.Account, Region: b.Region, Kind: "bucket", ID: name, ARN: "arn:aws:s3:::" + name, Name: name, Tags: tagMap(b.Tags), Data: b})
		for _, key := range sortedKeys(b.Objects) {
			out = append(out, sim.Object{Account: b.Account, Region: b.Region, Kind: "object", ID: name + "/" + key, Name: key, Parents: []string{name}, Data: b.Objects[key]})
		}
	}
	return out
}

// SetState implements sim.Service.
func (s *s3Service) SetState(id, _, _, _ string) error {
	return fmt.Errorf("%s: buckets and objects have no states", id)
}

// Remove implements sim.Service.
func (s *s3Service) Remove(id string) error {
	name, key, object := strings.Cut(id, "/")
	b := s.state.Buckets[name]
	switch {
	case b == nil:
		return fmt.Errorf("%s: no such bucket", name)
	case !object:
		delete(s.state.Buckets, name)
	default:
		delete(b.Objects, key)
	}
	return nil
}
