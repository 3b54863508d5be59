package aws

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/zopday/provisioner/internal/bootstrap"
	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

const kindLaunchTemplate = "ec2:launch-template"

// templateVersion is the version that VMs start from: the default one, so that
// a newer version which its owner makes the default takes effect in a scaling
// group without us.
const templateVersion = "$Default"

// EnsureLaunchTemplate makes the VMs' security group and the launch template.
func (p *Provider) EnsureLaunchTemplate(ctx context.Context, r *pipeline.Run) error {
	ctx = view(ctx, r)
	infra := &r.Job.Config.InfraConfig
	group, err := r.Ensure(ctx, p.vmGroup(r))
	learn(r, &infra.VMSecurityGroupID, group)
	if err != nil {
		return visible(r, "the VMs' security group", err)
	}
	x, err := p.launchTemplate(r)
	if err != nil {
		return err
	}
	id, err := r.Ensure(ctx, x)
	learn(r, &infra.LaunchTemplateID, id)
	learn(r, &infra.LaunchTemplateName, x.Name)
	if err != nil {
		return visible(r, "the launch template", err)
	}
	return nil
}

// RemoveLaunchTemplate removes the template, then the group.
func (p *Provider) RemoveLaunchTemplate(ctx context.Context, r *pipeline.Run) error {
	ctx = view(ctx, r)
	if err := r.Remove(ctx, p.launchTemplateResource(r, nil)); err != nil {
		return err
	}
	return r.Remove(ctx, p.vmGroup(r))
}

// learn records what a step made. A verify compares with what was recorded, and
// must not replace that by a placeholder.
func learn(r *pipeline.Run, field *string, value string) {
	if value != "" && r.Mode != pipeline.Verify {
		*field = value
	}
}

func (p *Provider) launchTemplate(r *pipeline.Run) (pipeline.Resource, error) {
	spec, err := r.Job.VMSpec()
	if err != nil {
		return pipeline.Resource{}, err
	}
	data, err := templateData(r.Job, spec)
	if err != nil {
		return pipeline.Resource{}, pipeline.Fatal("invalid-bootstrap", err.Error(), "Change the start-up script (PATCH the job), then retry.").On("config.spec.startupScript").From(err)
	}
	return p.launchTemplateResource(r, data), nil
}

// osOf is the bootstrap's name for the image's system.
func osOf(image, imageName string) string {
	for _, s := range []string{image, imageName} {
		if strings.Contains(s, "al2023") || strings.Contains(s, "amzn") {
			return bootstrap.OSAL2023
		}
	}
	return bootstrap.OSUbuntu
}

// templateData is everything that a VM is started with: an encrypted gp3 root
// on the image's own root device, instance metadata by session tokens alone
// with a hop limit of 1, the instance profile, the VMs' group, no public
// address, and the bootstrap.
func templateData(j *job.Job, spec job.VMSpec) (*ec2types.RequestLaunchTemplateData, error) {
	infra := j.Config.InfraConfig
	os := osOf(spec.Pool.Image, infra.ImageName)
	userData, _, err := bootstrap.UserData(bootstrap.Options{Cloud: bootstrap.CloudAWS, OS: os, Mode: spec.Bootstrap, Extra: spec.StartupScript})
	if err != nil {
		return nil, err
	}
	root := infra.RootDevice
	if root == "" {
		root = map[string]string{bootstrap.OSUbuntu: "/dev/sda1", bootstrap.OSAL2023: "/dev/xvda"}[os]
	}
	vm := ec2Tags(tagsFor(j, "vm", j.ResourceName("vm", 63)))
	data := &ec2types.RequestLaunchTemplateData{
		ImageId:      aws.String(infra.ImageID),
		InstanceType: ec2types.InstanceType(infra.InstanceType),
		UserData:     aws.String(base64.StdEncoding.EncodeToString(userData)),
		EbsOptimized: aws.Bool(ebsOptimized(infra.InstanceType)),
		BlockDeviceMappings: []ec2types.LaunchTemplateBlockDeviceMappingRequest{{
			DeviceName: aws.String(root),
			Ebs: &ec2types.LaunchTemplateEbsBlockDeviceRequest{
				VolumeType: ec2types.VolumeTypeGp3, VolumeSize: aws.Int32(int32(spec.Pool.DiskGiB)),
				Encrypted: aws.Bool(true), DeleteOnTermination: aws.Bool(true),
			},
		}},
		MetadataOptions: &ec2types.LaunchTemplateInstanceMetadataOptionsRequest{
			HttpEndpoint:            ec2types.LaunchTemplateInstanceMetadataEndpointStateEnabled,
			HttpTokens:              ec2types.LaunchTemplateHttpTokensStateRequired,
			HttpPutResponseHopLimit: aws.Int32(1),
		},
		// The group rides on the interface: EC2 takes groups either there or on
		// the instance, and only an interface can say "no public address".
		NetworkInterfaces: []ec2types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest{{
			DeviceIndex: aws.Int32(0), AssociatePublicIpAddress: aws.Bool(false), DeleteOnTermination: aws.Bool(true),
			Groups: []string{infra.VMSecurityGroupID},
		}},
		TagSpecifications: []ec2types.LaunchTemplateTagSpecificationRequest{
			{ResourceType: ec2types.ResourceTypeInstance, Tags: vm},
			{ResourceType: ec2types.ResourceTypeVolume, Tags: vm},
		},
	}
	if infra.InstanceProfileName != "" {
		data.IamInstanceProfile = &ec2types.LaunchTemplateIamInstanceProfileSpecificationRequest{Name: aws.String(infra.InstanceProfileName)}
	}
	return data, nil
}

// notEBSOptimized are the families for which EC2 refuses the flag for some or
// all sizes ("Amazon EBS-optimized instance types"); on all others it is on.
var notEBSOptimized = []string{"t1", "t2", "m1", "m2", "m3", "c1", "c3", "cc2", "cr1", "hs1", "r3", "i2", "g2"}

func ebsOptimized(instanceType string) bool {
	family, _, _ := strings.Cut(instanceType, ".")
	return !slices.Contains(notEBSOptimized, family)
}

func (p *Provider) templatePage(ctx context.Context, f []ec2types.Filter, ids []string, token *string) ([]ec2types.LaunchTemplate, *string, error) {
	out, err := p.ec2.DescribeLaunchTemplates(ctx, &ec2.DescribeLaunchTemplatesInput{Filters: f, LaunchTemplateIds: ids, NextToken: token})
	if err != nil {
		return nil, nil, err
	}
	return out.LaunchTemplates, out.NextToken, nil
}

func (p *Provider) launchTemplates() lookup.Kind[ec2types.LaunchTemplate] {
	return ec2Kind(kindLaunchTemplate, p.templatePage,
		func(x ec2types.LaunchTemplate) *string { return x.LaunchTemplateId },
		func(x ec2types.LaunchTemplate) []ec2types.Tag { return x.Tags })
}

// launchTemplateResource is the launch template of the job's VMs.
func (p *Provider) launchTemplateResource(r *pipeline.Run, data *ec2types.RequestLaunchTemplateData) pipeline.Resource {
	return p.launchTemplateOf(r, "vm", name(r, "vm", 125), data)
}

// launchTemplateOf is a launch template; data is only needed to make it and to
// compare it.
func (p *Provider) launchTemplateOf(r *pipeline.Run, key, templateName string, data *ec2types.RequestLaunchTemplateData) pipeline.Resource {
	x := object[ec2types.LaunchTemplate]{
		kind: p.launchTemplates(), key: key, name: templateName,
		see: func(ctx context.Context, t ec2types.LaunchTemplate) (pipeline.Seen, error) {
			if r.Down || data == nil {
				return pipeline.Seen{Status: pipeline.Ready}, nil
			}
			aspects, err := p.templateAspects(ctx, r.Mode, aws.ToString(t.LaunchTemplateId), data)
			return pipeline.Seen{Status: pipeline.Ready, Aspects: aspects}, err
		},
	}.resource()
	marks := tags(r, key, templateName)
	x.Args = struct {
		Name string
		Tags map[string]string
		Data *ec2types.RequestLaunchTemplateData
	}{templateName, marks, data}
	x.Tokened = true
	x.Create = func(ctx context.Context, token string) (pipeline.Seen, error) {
		out, err := p.ec2.CreateLaunchTemplate(ctx, &ec2.CreateLaunchTemplateInput{
			LaunchTemplateName: aws.String(templateName), ClientToken: aws.String(token), LaunchTemplateData: data, VersionDescription: aws.String(describe(data)),
			TagSpecifications: ec2Specs(marks, ec2types.ResourceTypeLaunchTemplate),
		})
		if pipeline.Is(err, pipeline.Exists) {
			return pipeline.Seen{}, p.templateTaken(ctx, r, templateName, err)
		}
		if err != nil {
			return pipeline.Seen{}, err
		}
		if out.LaunchTemplate == nil {
			return pipeline.Seen{}, nil
		}
		return pipeline.Seen{ID: aws.ToString(out.LaunchTemplate.LaunchTemplateId), Owner: r.Job.ID, Status: pipeline.Ready}, nil
	}
	x.Delete = func(ctx context.Context, id string) error {
		_, err := p.ec2.DeleteLaunchTemplate(ctx, &ec2.DeleteLaunchTemplateInput{LaunchTemplateId: aws.String(id)})
		return err
	}
	return tidy(x)
}

// templateTaken says whose the template is that has the wanted name.
func (p *Provider) templateTaken(ctx context.Context, r *pipeline.Run, templateName string, exists error) error {
	found, err := ec2Page[ec2types.LaunchTemplate](p.templatePage).all(ctx, filter("launch-template-name", templateName))
	if err != nil {
		return exists
	}
	for _, t := range found {
		owner, _ := ec2Mark(t.Tags)
		if err := tagsLate(r, kindLaunchTemplate, templateName, owner); err != nil {
			return err
		}
		if owner != r.Job.ID {
			return nameTaken(kindLaunchTemplate, templateName, aws.ToString(t.LaunchTemplateId)).From(exists)
		}
	}
	return exists
}

// describe is a version's description: a digest of what was asked for. By it a
// later pass knows whether the spec has changed since, without relying on how
// the cloud repeats every field.
func describe(data *ec2types.RequestLaunchTemplateData) string {
	text, err := json.Marshal(data)
	if err != nil {
		panic("launch template data is no JSON: " + err.Error()) // a programming error: it is plain data
	}
	sum := sha256.Sum256(text)
	return "sha256 " + hex.EncodeToString(sum[:16])
}

// templateAspects compares the default version with what is wanted: field by
// field in a verify, by its digest otherwise. Versions never change: one that
// differs is put right by a new one.
func (p *Provider) templateAspects(ctx context.Context, mode pipeline.Mode, id string, want *ec2types.RequestLaunchTemplateData) ([]pipeline.Aspect, error) {
	v, err := p.defaultVersion(ctx, id)
	if err != nil {
		return nil, err
	}
	seen := aws.ToString(v.VersionDescription)
	if mode == pipeline.Verify {
		aspects := compareTemplate(want, v.LaunchTemplateData)
		// Versions never change. Of one that this job has made, what the answer
		// does not carry is not known; of any other it was not asked for.
		if seen == describe(want) || seen == "" && aws.ToInt64(v.VersionNumber) == 1 {
			aspects = slices.DeleteFunc(aspects, func(a pipeline.Aspect) bool { return !carries(v.LaunchTemplateData, a.Name) })
		}
		return aspects, nil
	}
	if seen == "" {
		return nil, nil // somebody's own version, or a cloud that keeps no descriptions
	}
	return []pipeline.Aspect{{Name: "default version", Wanted: describe(want), Seen: seen, Set: func(ctx context.Context) error { return p.newVersion(ctx, id, want) }}}, nil
}

// defaultVersion is what a VM started now would get.
func (p *Provider) defaultVersion(ctx context.Context, id string) (ec2types.LaunchTemplateVersion, error) {
	return lookup.Once(ctx, kindLaunchTemplate+" default of "+id, func(ctx context.Context) (ec2types.LaunchTemplateVersion, error) {
		out, err := p.ec2.DescribeLaunchTemplateVersions(ctx, &ec2.DescribeLaunchTemplateVersionsInput{LaunchTemplateId: aws.String(id), Versions: []string{templateVersion}})
		if err != nil {
			return ec2types.LaunchTemplateVersion{}, err
		}
		if len(out.LaunchTemplateVersions) == 0 || out.LaunchTemplateVersions[0].LaunchTemplateData == nil {
			return ec2types.LaunchTemplateVersion{}, absent("EC2", "DescribeLaunchTemplateVersions", "the default version of launch template "+id)
		}
		return out.LaunchTemplateVersions[0], nil
	})
}

func (p *Provider) newVersion(ctx context.Context, id string, data *ec2types.RequestLaunchTemplateData) error {
	out, err := p.ec2.CreateLaunchTemplateVersion(ctx, &ec2.CreateLaunchTemplateVersionInput{
		LaunchTemplateId: aws.String(id), LaunchTemplateData: data, VersionDescription: aws.String(describe(data)),
	})
	if err != nil {
		return err
	}
	if out.LaunchTemplateVersion == nil || out.LaunchTemplateVersion.VersionNumber == nil {
		return &pipeline.CloudError{Class: pipeline.Unknown, Service: "EC2", Op: "CreateLaunchTemplateVersion", Message: "the answer names no version", Sent: true}
	}
	_, err = p.ec2.ModifyLaunchTemplate(ctx, &ec2.ModifyLaunchTemplateInput{
		LaunchTemplateId: aws.String(id), DefaultVersion: aws.String(fmt.Sprint(*out.LaunchTemplateVersion.VersionNumber)),
	})
	return err
}

// compareTemplate is what can drift in a template, in words.
func compareTemplate(want *ec2types.RequestLaunchTemplateData, have *ec2types.ResponseLaunchTemplateData) []pipeline.Aspect {
	var out []pipeline.Aspect
	add := func(name, wanted, seen string) {
		out = append(out, pipeline.Aspect{Name: name, Wanted: wanted, Seen: seen})
	}
	add("image", aws.ToString(want.ImageId), aws.ToString(have.ImageId))
	add("instance type", string(want.InstanceType), string(have.InstanceType))
	add("user data", digest(want.UserData), digest(have.UserData))
	add("EBS-optimized", fmt.Sprint(aws.ToBool(want.EbsOptimized)), fmt.Sprint(aws.ToBool(have.EbsOptimized)))
	wp, hp := "", ""
	if want.IamInstanceProfile != nil {
		wp = aws.ToString(want.IamInstanceProfile.Name)
	}
	if have.IamInstanceProfile != nil {
		hp = aws.ToString(have.IamInstanceProfile.Name)
	}
	add("instance profile", wp, hp)

	w := want.MetadataOptions
	seen := "tokens optional"
	if h := have.MetadataOptions; h != nil {
		seen = metadataText(string(h.HttpTokens), aws.ToInt32(h.HttpPutResponseHopLimit))
	}
	add("instance metadata", metadataText(string(w.HttpTokens), aws.ToInt32(w.HttpPutResponseHopLimit)), seen)

	disks := map[string]string{}
	for _, b := range have.BlockDeviceMappings {
		if e := b.Ebs; e != nil {
			disks[aws.ToString(b.DeviceName)] = diskText(e.VolumeType, e.VolumeSize, e.Encrypted, e.DeleteOnTermination)
		}
	}
	for _, b := range want.BlockDeviceMappings {
		e := b.Ebs
		add("root disk", diskText(e.VolumeType, e.VolumeSize, e.Encrypted, e.DeleteOnTermination), disks[aws.ToString(b.DeviceName)])
	}

	groups, public := slices.Clone(have.SecurityGroupIds), "as the subnet says"
	for _, n := range have.NetworkInterfaces {
		groups = append(groups, n.Groups...)
		if n.AssociatePublicIpAddress != nil {
			public = yesNo(*n.AssociatePublicIpAddress)
		}
	}
	if len(groups) > 0 || len(have.NetworkInterfaces) == 0 { // else they are not reported
		add("security groups", strings.Join(want.NetworkInterfaces[0].Groups, ", "), or(strings.Join(groups, ", "), "the VPC's default"))
	}
	add("public address", "no", public)
	return out
}

// carries reports whether a template's answer says anything of an aspect.
func carries(have *ec2types.ResponseLaunchTemplateData, aspect string) bool {
	switch aspect {
	case "image":
		return have.ImageId != nil
	case "instance type":
		return have.InstanceType != ""
	case "user data":
		return have.UserData != nil
	case "EBS-optimized":
		return have.EbsOptimized != nil
	case "instance profile":
		return have.IamInstanceProfile != nil
	case "instance metadata":
		return have.MetadataOptions != nil
	case "root disk":
		return len(have.BlockDeviceMappings) > 0
	case "security groups", "public address":
		return len(have.NetworkInterfaces) > 0
	}
	return true
}
