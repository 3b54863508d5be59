package aws

import (
	"maps"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"

	"github.com/zopday/provisioner/internal/job"
)

// tagsFor are the tags of one of a job's objects: the user's labels, a name for
// the console, and our marks. They ride in the call that makes the object: one
// that is tagged afterwards cannot be found if the tagging is lost (failure
// kinds D7, R4).
func tagsFor(j *job.Job, key, name string) map[string]string {
	tags := map[string]string{}
	maps.Copy(tags, j.Labels)
	tags["Name"] = name
	tags[job.MarkOwner] = j.ID
	tags[job.MarkObject] = key
	tags[job.MarkOrg] = j.OrgID
	return tags
}

// tagList turns tags into a service's own type, sorted by key.
func tagList[T any](tags map[string]string, one func(k, v *string) T) []T {
	out := make([]T, 0, len(tags))
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		out = append(out, one(aws.String(k), aws.String(tags[k])))
	}
	return out
}

// ec2Specs is how EC2 takes tags in a create, for each type of resource that
// the call makes.
func ec2Specs(tags map[string]string, types ...ec2types.ResourceType) []ec2types.TagSpecification {
	var out []ec2types.TagSpecification
	for _, t := range types {
		out = append(out, ec2types.TagSpecification{ResourceType: t, Tags: ec2Tags(tags)})
	}
	return out
}

func ec2Tags(tags map[string]string) []ec2types.Tag {
	return tagList(tags, func(k, v *string) ec2types.Tag { return ec2types.Tag{Key: k, Value: v} })
}

func iamTags(tags map[string]string) []iamtypes.Tag {
	return tagList(tags, func(k, v *string) iamtypes.Tag { return iamtypes.Tag{Key: k, Value: v} })
}

// ec2Mark is what an EC2 object's tags say: whose it is, and what it is there.
func ec2Mark(tags []ec2types.Tag) (owner, object string) {
	for _, t := range tags {
		switch aws.ToString(t.Key) {
		case job.MarkOwner:
			owner = aws.ToString(t.Value)
		case job.MarkObject:
			object = aws.ToString(t.Value)
		}
	}
	return owner, object
}

// ownedBy is the EC2 filter for a job's mark.
func ownedBy(owner string) []ec2types.Filter {
	return []ec2types.Filter{filter("tag:"+job.MarkOwner, owner)}
}

func filter(name string, values ...string) ec2types.Filter {
	return ec2types.Filter{Name: aws.String(name), Values: values}
}
