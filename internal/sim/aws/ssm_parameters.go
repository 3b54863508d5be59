package aws

import (
	"maps"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/ssm/types"
)

// ubuntuReleases maps what stands for a release in the names of Canonical's public parameters to the image's name
// ("Find Ubuntu images on AWS", Ubuntu on AWS documentation): the number and the code name both work, and releases before
// 24.04 are published with gp2 root volumes only.
var ubuntuReleases = map[string]struct{ number, volume string }{
	"26.04": {"26.04", "ebs-gp3"}, "resolute": {"26.04", "ebs-gp3"},
	"24.04": {"24.04", "ebs-gp3"}, "noble": {"24.04", "ebs-gp3"},
	"22.04": {"22.04", "ebs-gp2"}, "jammy": {"22.04", "ebs-gp2"},
}

// publicParameters are the AMI parameters that AWS and Canonical publish, as they hold in a region.
func (s *ssmService) publicParameters(sc scope) map[string]*SSMParameter {
	out := map[string]*SSMParameter{}
	put := func(name, dataType string, img image) {
		out[name] = &SSMParameter{Name: name, Type: "String", Value: img.ID, DataType: dataType, Version: 42, Modified: img.Created}
	}
	for release, u := range ubuntuReleases {
		for _, arch := range []string{"amd64", "arm64"} {
			if img, ok := s.cloud.newestImage(sc, "ubuntu", u.number, arch); ok {
				put("/aws/service/canonical/ubuntu/server/"+release+"/stable/current/"+arch+"/hvm/"+u.volume+"/ami-id", "aws:ec2:image", img)
			}
		}
	}
	for _, arch := range []string{"x86_64", "arm64"} {
		if img, ok := s.cloud.newestImage(sc, "al2023", "2023", arch); ok {
			for _, kernel := range []string{"default", "6.1", "6.12"} {
				put("/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-"+kernel+"-"+arch, "text", img)
			}
		}
	}
	return out
}

func parameterARN(sc scope, name string) string {
	account := sc.Account
	if strings.HasPrefix(name, "/aws/service/") {
		account = ""
	}
	return arn("ssm", sc.Region, account, "parameter/"+strings.TrimPrefix(name, "/"))
}

// parameter finds a parameter by name, by name:version or by ARN.
func (s *ssmService) parameter(c *reqCtx, ref string) (*SSMParameter, error) {
	name, selector := ref, ""
	if rest, ok := strings.CutPrefix(ref, "arn:"); ok {
		parts := strings.SplitN(rest, ":", 5)
		if len(parts) < 5 {
			return nil, fail(400, "ParameterNotFound", "")
		}
		name = strings.TrimPrefix(parts[4], "parameter")
	}
	if i := strings.LastIndex(name, ":"); i >= 0 {
		name, selector = name[:i], name[i:]
	}
	p := s.state.in(c.scope()).Parameters[name]
	if p == nil {
		p = s.state.in(c.scope()).Parameters[strings.TrimPrefix(name, "/")]
	}
	if p == nil {
		p = s.publicParameters(c.scope())[name]
	}
	// The real service says nothing more than the code.
	if p == nil || !c.visible(p.Name, p.Modified, false, "parameter") {
		return nil, fail(400, "ParameterNotFound", "")
	}
	if selector != "" && selector != ":"+strconv.FormatInt(p.Version, 10) {
		return nil, fail(400, "ParameterVersionNotFound", "Systems Manager could not find version %s of %s. Verify the version and try again.", selector[1:], name)
	}
	return p, nil
}

func (p *SSMParameter) sdk(sc scope) types.Parameter {
	return types.Parameter{
		Name: &p.Name, Type: types.ParameterType(p.Type), Value: &p.Value, Version: p.Version, LastModifiedDate: &p.Modified,
		ARN: new(parameterARN(sc, p.Name)), DataType: &p.DataType,
	}
}

func (s *ssmService) getParameter(c *reqCtx, in *ssm.GetParameterInput) (*ssm.GetParameterOutput, error) {
	if in.Name == nil {
		return nil, invalidParam("1 validation error detected: Value null at 'name' failed to satisfy constraint: Member must not be null")
	}
	p, err := s.parameter(c, *in.Name)
	if err != nil {
		return nil, err
	}
	out := p.sdk(c.scope())
	return &ssm.GetParameterOutput{Parameter: &out}, nil
}

func (s *ssmService) getParameters(c *reqCtx, in *ssm.GetParametersInput) (*ssm.GetParametersOutput, error) {
	if n := len(in.Names); n < 1 || n > 10 {
		return nil, invalidParam("1 validation error detected: Value at 'names' failed to satisfy constraint: Member must have length less than or equal to 10")
	}
	out := &ssm.GetParametersOutput{Parameters: []types.Parameter{}, InvalidParameters: []string{}}
	for _, name := range in.Names {
		if p, err := s.parameter(c, name); err == nil {
			out.Parameters = append(out.Parameters, p.sdk(c.scope()))
		} else {
			out.InvalidParameters = append(out.InvalidParameters, name)
		}
	}
	return out, nil
}

func (s *ssmService) getParametersByPath(c *reqCtx, in *ssm.GetParametersByPathInput) (*ssm.GetParametersByPathOutput, error) {
	path := strings.TrimSuffix(deref(in.Path), "/") + "/"
	if !strings.HasPrefix(path, "/") {
		return nil, invalidParam("The parameter doesn't meet the parameter name requirements. The parameter name must begin with a forward slash \"/\".")
	}
	found := map[string]*SSMParameter{}
	maps.Copy(found, s.state.in(c.scope()).Parameters)
	if strings.HasPrefix(path, "/aws/") {
		found = s.publicParameters(c.scope())
	}
	all := []types.Parameter{}
	for _, name := range sortedKeys(found) {
		rest, ok := strings.CutPrefix(name, path)
		if !ok || !deref(in.Recursive) && strings.Contains(rest, "/") || !c.visible(name, found[name].Modified, true, "parameter") {
			continue
		}
		all = append(all, found[name].sdk(c.scope()))
	}
	limit := in.MaxResults
	if limit == nil {
		limit = new(int32(10))
	}
	if *limit > 10 {
		return nil, invalidParam("1 validation error detected: Value '%d' at 'maxResults' failed to satisfy constraint: Member must have value less than or equal to 10", *limit)
	}
	page, next, err := ssmPage(c, all, in.NextToken, limit)
	return &ssm.GetParametersByPathOutput{Parameters: page, NextToken: next}, err
}

var parameterName = regexp.MustCompile(`^[a-zA-Z0-9_.\-/]+$`)

func (s *ssmService) putParameter(c *reqCtx, in *ssm.PutParameterInput) (*ssm.PutParameterOutput, error) {
	name, sc := deref(in.Name), s.state.in(c.scope())
	switch low := strings.ToLower(strings.TrimPrefix(name, "/")); {
	case strings.HasPrefix(low, "aws"):
		return nil, fail(400, "AccessDeniedException", "No access to reserved parameter name: %s.", name)
	case strings.HasPrefix(low, "ssm"):
		return nil, invalidParam("Parameter name: can't be prefixed with \"ssm\" (case-insensitive). If formed as a path, it can consist of sub-paths divided by slash symbol; each sub-path can be formed as a mix of letters, numbers and the following 3 symbols .-_")
	case !parameterName.MatchString(name):
		return nil, invalidParam("Invalid request: Parameter name: can't be prefixed with \"aws\" or \"ssm\" (case-insensitive). Only a mix of letters, numbers and the following 3 symbols .-_ are allowed.")
	}
	old := sc.Parameters[name]
	if old != nil && !deref(in.Overwrite) {
		return nil, fail(400, "ParameterAlreadyExists", "The parameter already exists. To overwrite this value, set the overwrite option in the request to true.")
	}
	if len(deref(in.Value)) > 4096 {
		return nil, invalidParam("Standard tier parameters support a maximum parameter value of 4096 characters. To create a larger parameter value, upgrade the parameter to use the advanced-parameter tier.")
	}
	p := &SSMParameter{Name: name, Type: orText(string(in.Type), "String"), Value: deref(in.Value), DataType: orDefault(in.DataType, "text"), Version: 1, Modified: c.now, Description: deref(in.Description)}
	if old != nil {
		p.Version, p.Tags = old.Version+1, old.Tags
		if in.Type == "" {
			p.Type = old.Type
		}
	}
	for _, t := range in.Tags {
		p.Tags = setTag(p.Tags, deref(t.Key), deref(t.Value))
	}
	sc.Parameters[name] = p
	c.Make(name)
	return &ssm.PutParameterOutput{Version: p.Version, Tier: types.ParameterTierStandard}, nil
}

func (s *ssmService) deleteParameter(c *reqCtx, in *ssm.DeleteParameterInput) (*ssm.DeleteParameterOutput, error) {
	sc := s.state.in(c.scope())
	if sc.Parameters[deref(in.Name)] == nil {
		return nil, fail(400, "ParameterNotFound", "")
	}
	delete(sc.Parameters, *in.Name)
	return &ssm.DeleteParameterOutput{}, nil
}

func (s *ssmService) deleteParameters(c *reqCtx, in *ssm.DeleteParametersInput) (*ssm.DeleteParametersOutput, error) {
	out, sc := &ssm.DeleteParametersOutput{DeletedParameters: []string{}, InvalidParameters: []string{}}, s.state.in(c.scope())
	for _, name := range in.Names {
		if sc.Parameters[name] == nil {
			out.InvalidParameters = append(out.InvalidParameters, name)
			continue
		}
		delete(sc.Parameters, name)
		out.DeletedParameters = append(out.DeletedParameters, name)
	}
	return out, nil
}

func (s *ssmService) describeParameters(c *reqCtx, in *ssm.DescribeParametersInput) (*ssm.DescribeParametersOutput, error) {
	all, who := []types.ParameterMetadata{}, c.caller().ARN
	sc := s.state.in(c.scope())
	for _, name := range sortedKeys(sc.Parameters) {
		p := sc.Parameters[name]
		if c.visible(name, p.Modified, true, "parameter") {
			all = append(all, types.ParameterMetadata{
				Name: &p.Name, Type: types.ParameterType(p.Type), LastModifiedDate: &p.Modified, LastModifiedUser: &who, Version: p.Version,
				Tier: types.ParameterTierStandard, Policies: []types.ParameterInlinePolicy{}, DataType: &p.DataType, ARN: new(parameterARN(c.scope(), name)),
			})
		}
	}
	page, next, err := ssmPage(c, all, in.NextToken, in.MaxResults)
	return &ssm.DescribeParametersOutput{Parameters: page, NextToken: next}, err
}

// image is an AMI, as far as the public parameters need it.
type image struct {
	ID, Name string
	Created  time.Time
}
