package aws

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/pipeline"
)

// An imageSource says where the newest image of a system is found: by a public
// parameter of its maker, and without that by its maker's account and name.
type imageSource struct {
	parameter func(arch string) string
	owners    []string
	names     func(arch string) []string // patterns, the best first
}

// imageSources are from "Finding Ubuntu images on AWS" and "Reference the
// latest AMIs using Systems Manager public parameters".
var imageSources = map[string]imageSource{
	"ubuntu-24.04": {
		parameter: func(arch string) string {
			return "/aws/service/canonical/ubuntu/server/24.04/stable/current/" + arch + "/hvm/ebs-gp3/ami-id"
		},
		// Canonical in the commercial regions, GovCloud and China.
		owners: []string{"099720109477", "513442679011", "837727238323"},
		names: func(arch string) []string {
			return []string{"ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-" + arch + "-server-*"}
		},
	},
	"al2023": {
		parameter: func(arch string) string {
			return "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-" + awsArch(arch)
		},
		owners: []string{"amazon"},
		names: func(arch string) []string {
			return []string{"al2023-ami-2023.*-kernel-*-" + awsArch(arch)}
		},
	},
}

// awsArch is EC2's word for an architecture.
func awsArch(arch string) string {
	if arch == "arm64" {
		return "arm64"
	}
	return "x86_64"
}

// image resolves the image and records its root device.
func (c *checker) image(ctx context.Context) ([]cloud.Check, error) {
	const check, field = "image", "config.spec.pool.image"
	if c.r.Mode == pipeline.Verify || c.ic.ImageID != "" && c.made(kindLaunchTemplate, "vm") {
		return []cloud.Check{passes(check, "%s (%s)", c.ic.ImageID, c.ic.ImageName)}, nil
	}
	arch := cmp.Or(c.arch, "amd64")
	img, note, err := c.findImage(ctx, c.spec.Pool.Image, arch)
	switch {
	case pipeline.Is(err, pipeline.NotFound, pipeline.Invalid):
		return []cloud.Check{fails(check, field, fmt.Sprintf("image %s for %s is not there in %s: %v", c.spec.Pool.Image, arch, c.region, plain(err)), "Name an image ID of this region, such as ami-0123456789abcdef0.")}, nil
	case pipeline.Is(err, pipeline.Denied):
		return []cloud.Check{fails(check, field, fmt.Sprintf("image %s cannot be looked up: %v", c.spec.Pool.Image, plain(err)), "Allow ssm:GetParameter and ec2:DescribeImages, or name an image ID.")}, nil
	case err != nil: // no answer, or none that can be read: the engine asks again
		return nil, err
	}
	id := deref(img.ImageId)
	if img.State != "" && img.State != ec2types.ImageStateAvailable {
		return []cloud.Check{fails(check, field, fmt.Sprintf("image %s is %s", id, img.State), "Name an image that is available.")}, nil
	}
	if got := string(img.Architecture); got != "" && c.arch != "" && got != awsArch(c.arch) {
		return []cloud.Check{fails(check, field, fmt.Sprintf("image %s is for %s, and instance type %s is %s", id, got, c.ic.InstanceType, awsArch(c.arch)), "Name an image and an instance type of one architecture.")}, nil
	}
	c.ic.ImageID, c.ic.ImageName, c.ic.RootDevice = id, deref(img.Name), deref(img.RootDeviceName)
	if note != "" {
		return []cloud.Check{warns(check, field, note, "")}, nil
	}
	return []cloud.Check{passes(check, "%s (%s)", id, cmp.Or(c.ic.ImageName, "without a name"))}, nil
}

// findImage looks the image up; note is said when it is not quite what was
// asked for.
func (c *checker) findImage(ctx context.Context, image, arch string) (img ec2types.Image, note string, err error) {
	source, named := imageSources[image]
	if !named {
		img, err = c.imageByID(ctx, image)
		return img, "", err
	}
	out, err := c.ssm.GetParameter(ctx, &ssm.GetParameterInput{Name: aws.String(source.parameter(arch))})
	if err == nil && out.Parameter != nil && deref(out.Parameter.Value) != "" {
		if img, err = c.imageByID(ctx, deref(out.Parameter.Value)); err == nil {
			return img, "", nil
		}
	}
	if err != nil && stops(ctx, err) {
		return img, "", err
	}
	for _, pattern := range source.names(arch) {
		img, err = c.newestImage(ctx, source.owners, pattern, arch)
		if !pipeline.Is(err, pipeline.NotFound) {
			return img, "", err
		}
	}
	if !c.foreignEndpoint() {
		return img, "", err
	}
	// An emulator's catalogue is small and old: what is of the same maker will do
	// there, or what is there at all, since it starts no machine from it.
	prefix, _, _ := strings.Cut(source.names(arch)[0], "-")
	img, ferr := c.newestImage(ctx, source.owners, prefix+"*", arch)
	if ferr != nil && !stops(ctx, ferr) {
		img, ferr = c.newestImage(ctx, nil, "*", arch)
	}
	if ferr != nil {
		return img, "", err
	}
	return img, fmt.Sprintf("this endpoint has no %s for %s; %s (%s) is taken instead", image, arch, deref(img.ImageId), deref(img.Name)), nil
}

func (p *Provider) imageByID(ctx context.Context, id string) (ec2types.Image, error) {
	out, err := p.ec2.DescribeImages(ctx, &ec2.DescribeImagesInput{ImageIds: []string{id}, IncludeDeprecated: aws.Bool(true)})
	if err != nil {
		return ec2types.Image{}, err
	}
	if len(out.Images) == 0 {
		return ec2types.Image{}, absent("EC2", "DescribeImages", "image "+id)
	}
	return out.Images[0], nil
}

// newestImage is the newest available image of a maker whose name fits.
func (p *Provider) newestImage(ctx context.Context, owners []string, pattern, arch string) (ec2types.Image, error) {
	all, err := lookup.Pages(ctx, func(ctx context.Context, token *string) ([]ec2types.Image, *string, error) {
		out, err := p.ec2.DescribeImages(ctx, &ec2.DescribeImagesInput{
			Owners: owners, NextToken: token,
			Filters: []ec2types.Filter{filter("name", pattern), filter("architecture", awsArch(arch)), filter("state", "available")},
		})
		if err != nil {
			return nil, nil, err
		}
		return out.Images, out.NextToken, nil
	})
	if err != nil {
		return ec2types.Image{}, err
	}
	// An endpoint that does not heed the filters answers with everything.
	all = slices.DeleteFunc(all, func(i ec2types.Image) bool {
		return i.Name != nil && !matches(pattern, *i.Name) || i.Architecture != "" && string(i.Architecture) != awsArch(arch)
	})
	if len(all) == 0 {
		return ec2types.Image{}, absent("EC2", "DescribeImages", "an image named "+pattern)
	}
	return slices.MaxFunc(all, func(a, b ec2types.Image) int {
		return cmp.Or(cmp.Compare(deref(a.CreationDate), deref(b.CreationDate)), cmp.Compare(deref(a.Name), deref(b.Name)))
	}), nil
}
