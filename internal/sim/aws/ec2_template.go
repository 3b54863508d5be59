package aws

import (
	"regexp"
	"sort"
	"strconv"
	"time"
)

// templateVersion is one version of a launch template.
type templateVersion struct {
	TemplateID   string     `ec2:"launchTemplateId"`
	TemplateName string     `ec2:"launchTemplateName"`
	Number       int        `ec2:"versionNumber"`
	Description  string     `ec2:"versionDescription,omitempty"`
	CreateTime   time.Time  `ec2:"createTime"`
	CreatedBy    string     `ec2:"createdBy"`
	IsDefault    bool       `ec2:"defaultVersion"`
	Data         launchData `ec2:"launchTemplateData"`
}

// LaunchTemplate is a named set of launch parameters, in versions.
type LaunchTemplate struct {
	TemplateID   string    `ec2:"launchTemplateId"`
	TemplateName string    `ec2:"launchTemplateName"`
	CreateTime   time.Time `ec2:"createTime"`
	CreatedBy    string    `ec2:"createdBy"`
	Default      int       `ec2:"defaultVersionNumber"`
	Latest       int       `ec2:"latestVersionNumber"`
	Operator     operator  `ec2:"operator"`
	meta

	Versions []templateVersion
}

func (t *LaunchTemplate) ident() string { return t.TemplateID }
func (t *LaunchTemplate) kind() string  { return "launch-template" }
func (t *LaunchTemplate) placed() place {
	return place{"", nil, false}
}

func (t *LaunchTemplate) attr(name string) ([]string, bool) {
	switch name {
	case "launch-template-name":
		return []string{t.TemplateName}, true
	case "create-time":
		return []string{stamp(t.CreateTime)}, true
	}
	return nil, false
}

// version finds a version by number, "$Latest" or "$Default"; empty means the default one.
func (t *LaunchTemplate) version(v string) (*templateVersion, error) {
	n := t.Default
	switch v {
	case "", "$Default":
	case "$Latest":
		n = t.Latest
	default:
		var err error
		if n, err = strconv.Atoi(v); err != nil {
			return nil, refuse("InvalidLaunchTemplateVersion.Malformed", "Invalid launch template version: either '$Default', '$Latest', or a numeric version are allowed.")
		}
	}
	for i := range t.Versions {
		if t.Versions[i].Number == n {
			return &t.Versions[i], nil
		}
	}
	return nil, refuse("InvalidLaunchTemplateId.VersionNotFound", "Could not find the specified version %s for the launch template with ID %s.", v, t.TemplateID)
}

type createTemplateIn struct {
	LaunchTemplateName string
	VersionDescription string
	LaunchTemplateData *launchData
	ClientToken        string
	TagSpecification   []tagSpec
}

type templateOut struct {
	Template *LaunchTemplate `ec2:"launchTemplate"`
}

var templateName = regexp.MustCompile(`^[a-zA-Z0-9().\-/_]{3,128}$`)

func (r *request) principal() string {
	if r.Who.ARN != "" {
		return r.Who.ARN
	}
	return "arn:aws:iam::" + r.Account + ":root"
}

func (e *EC2) createTemplate(r *request, in createTemplateIn) (any, error) {
	sc := e.in(r.scope())
	if in.LaunchTemplateName == "" {
		return nil, missing("LaunchTemplateName")
	}
	if !templateName.MatchString(in.LaunchTemplateName) {
		return nil, refuse("InvalidLaunchTemplateName.MalformedException", "The launch template name must be between 3 and 128 characters, and may contain letters, numbers, and the following characters: - ( ) . / _.")
	}
	if in.LaunchTemplateData == nil {
		return nil, missing("LaunchTemplateData")
	}
	tags, err := tagsFor(in.TagSpecification, "launch-template")
	if err != nil {
		return nil, err
	}
	if err := in.LaunchTemplateData.check(); err != nil {
		return nil, err
	}
	id, again, err := e.token(r, in.ClientToken)
	if err != nil {
		return nil, err
	}
	if t := sc.Templates[id]; again && t != nil {
		r.Touch(id)
		return templateOut{t}, nil
	}
	if sc.templateNamed(in.LaunchTemplateName) != nil {
		return nil, refuse("InvalidLaunchTemplateName.AlreadyExistsException", "Launch template name already in use.")
	}
	t := &LaunchTemplate{TemplateID: "lt-" + e.cloud.hex17(""), TemplateName: in.LaunchTemplateName, CreatedBy: r.principal(), meta: e.fresh(tags)}
	t.CreateTime = t.Created.Truncate(time.Second)
	sc.Templates[t.TemplateID] = t
	t.add(r, in.VersionDescription, *in.LaunchTemplateData, t.CreateTime)
	t.Default = 1
	e.remember(r, in.ClientToken, t.TemplateID)
	r.Make(t.TemplateID)
	return templateOut{t}, nil
}

func (t *LaunchTemplate) add(r *request, description string, data launchData, at time.Time) *templateVersion {
	t.Latest++
	t.Versions = append(t.Versions, templateVersion{TemplateID: t.TemplateID, TemplateName: t.TemplateName, Number: t.Latest, Description: description,
		CreateTime: at, CreatedBy: r.principal(), Data: data})
	return &t.Versions[len(t.Versions)-1]
}

func (sc *ec2Scope) templateNamed(name string) *LaunchTemplate {
	for _, t := range sc.Templates {
		if t.TemplateName == name {
			return t
		}
	}
	return nil
}

type templateRef struct {
	LaunchTemplateID   string `q:"LaunchTemplateId"`
	LaunchTemplateName string
}

func (sc *ec2Scope) template(ref templateRef) (*LaunchTemplate, error) {
	switch {
	case ref.LaunchTemplateID != "" && ref.LaunchTemplateName != "":
		return nil, refuse("InvalidParameterCombination", "You may specify either the launch template ID or the launch template name, but not both.")
	case ref.LaunchTemplateID != "":
		if t := sc.Templates[ref.LaunchTemplateID]; t != nil {
			return t, nil
		}
		return nil, noTemplate(ref.LaunchTemplateID)
	case ref.LaunchTemplateName != "":
		if t := sc.templateNamed(ref.LaunchTemplateName); t != nil {
			return t, nil
		}
		return nil, noTemplateName(ref.LaunchTemplateName)
	}
	return nil, missing("launchTemplateId or launchTemplateName")
}

type createVersionIn struct {
	templateRef
	SourceVersion      string
	VersionDescription string
	LaunchTemplateData *launchData
	ClientToken        string
}

func (e *EC2) createTemplateVersion(r *request, in createVersionIn) (any, error) {
	t, err := e.in(r.scope()).template(in.templateRef)
	if err != nil {
		return nil, err
	}
	if in.LaunchTemplateData == nil {
		return nil, missing("LaunchTemplateData")
	}
	if err := in.LaunchTemplateData.check(); err != nil {
		return nil, err
	}
	type answer struct {
		Version templateVersion `ec2:"launchTemplateVersion"`
	}
	id, again, err := e.token(r, in.ClientToken)
	if err != nil {
		return nil, err
	}
	if again {
		v, err := t.version(id)
		if err != nil {
			return nil, err
		}
		return answer{t.shown(*v)}, nil
	}
	data := *in.LaunchTemplateData
	if in.SourceVersion != "" {
		src, err := t.version(in.SourceVersion)
		if err != nil {
			return nil, err
		}
		data = data.over(src.Data)
	}
	v := t.add(r, in.VersionDescription, data, e.cloud.World.Now().Truncate(time.Second))
	e.remember(r, in.ClientToken, strconv.Itoa(v.Number))
	r.Touch(t.TemplateID)
	return answer{t.shown(*v)}, nil
}

func (t *LaunchTemplate) shown(v templateVersion) templateVersion {
	v.IsDefault = v.Number == t.Default
	return v
}

type describeTemplatesIn struct {
	TemplateID   []string `q:"LaunchTemplateId"`
	TemplateName []string `q:"LaunchTemplateName"`
	page
}

func (e *EC2) describeTemplates(r *request, in describeTemplatesIn) (any, error) {
	sc := e.in(r.scope())
	for _, name := range in.TemplateName {
		t := sc.templateNamed(name)
		if t == nil {
			return nil, refuse("InvalidLaunchTemplateName.NotFoundException", "At least one of the launch templates specified in the request does not exist.")
		}
		in.TemplateID = append(in.TemplateID, t.TemplateID)
	}
	found, err := find(e, r, sc.Templates, in.TemplateID, in.Filter, noTemplate)
	if err != nil {
		return nil, err
	}
	items, next, err := paginate(e.cloud, r, found, in.page, 1, 200)
	return struct {
		Templates []*LaunchTemplate `ec2:"launchTemplates"`
		Next      string            `ec2:"nextToken,omitempty"`
	}{items, next}, err
}

type describeVersionsIn struct {
	templateRef
	Version    []string `q:"LaunchTemplateVersion|Versions"`
	MinVersion string
	MaxVersion string
	page
}

func (e *EC2) describeTemplateVersions(r *request, in describeVersionsIn) (any, error) {
	sc := e.in(r.scope())
	var out []templateVersion
	if in.LaunchTemplateID == "" && in.LaunchTemplateName == "" {
		// Without a template: the latest or default versions of all templates.
		for _, t := range inOrder(sc.Templates) {
			for _, v := range in.Version {
				if tv, err := t.version(v); err == nil {
					out = append(out, t.shown(*tv))
				}
			}
		}
	} else {
		t, err := sc.template(in.templateRef)
		if err != nil {
			return nil, err
		}
		for _, v := range in.Version {
			tv, err := t.version(v)
			if err != nil {
				return nil, err
			}
			out = append(out, t.shown(*tv))
		}
		if len(in.Version) == 0 {
			low, _ := strconv.Atoi(in.MinVersion)
			high, _ := strconv.Atoi(in.MaxVersion)
			for _, v := range t.Versions {
				if v.Number >= low && (high == 0 || v.Number <= high) {
					out = append(out, t.shown(v))
				}
			}
			sort.SliceStable(out, func(i, j int) bool { return out[i].Number > out[j].Number })
		}
	}
	items, next, err := paginate(e.cloud, r, out, in.page, 1, 200)
	return struct {
		Versions []templateVersion `ec2:"launchTemplateVersionSet"`
		Next     string            `ec2:"nextToken,omitempty"`
	}{items, next}, err
}

func (e *EC2) deleteTemplate(r *request, in templateRef) (any, error) {
	sc := e.in(r.scope())
	t, err := sc.template(in)
	if err != nil {
		return nil, err
	}
	delete(sc.Templates, t.TemplateID)
	r.Touch(t.TemplateID)
	return templateOut{t}, nil
}

type modifyTemplateIn struct {
	templateRef
	DefaultVersion string `q:"SetDefaultVersion"`
}

func (e *EC2) modifyTemplate(r *request, in modifyTemplateIn) (any, error) {
	t, err := e.in(r.scope()).template(in.templateRef)
	if err != nil {
		return nil, err
	}
	v, err := t.version(in.DefaultVersion)
	if err != nil {
		return nil, err
	}
	t.Default = v.Number
	return templateOut{t}, nil
}

type deleteVersionsIn struct {
	templateRef
	Version []string `q:"LaunchTemplateVersion|Versions"`
}

type deletedVersion struct {
	TemplateID   string `ec2:"launchTemplateId"`
	TemplateName string `ec2:"launchTemplateName"`
	Number       int    `ec2:"versionNumber"`
	Error        *struct {
		Code    string `ec2:"code"`
		Message string `ec2:"message"`
	} `ec2:"responseError"`
}

func (e *EC2) deleteTemplateVersions(r *request, in deleteVersionsIn) (any, error) {
	t, err := e.in(r.scope()).template(in.templateRef)
	if err != nil {
		return nil, err
	}
	var good, bad []deletedVersion
	for _, text := range in.Version {
		n, err := strconv.Atoi(text)
		if err != nil {
			return nil, refuse("InvalidParameterValue", "Value (%s) for parameter LaunchTemplateVersion is invalid.", text)
		}
		d := deletedVersion{TemplateID: t.TemplateID, TemplateName: t.TemplateName, Number: n}
		kept := t.Versions[:0:0]
		for _, v := range t.Versions {
			if v.Number != n || n == t.Default {
				kept = append(kept, v)
			}
		}
		if len(kept) < len(t.Versions) {
			t.Versions = kept
			good = append(good, d)
			continue
		}
		d.Error = &struct {
			Code    string `ec2:"code"`
			Message string `ec2:"message"`
		}{"launchTemplateVersionDoesNotExist", "Could not delete version " + text + " of " + t.TemplateID}
		if n == t.Default {
			d.Error.Code = "unexpectedError"
		}
		bad = append(bad, d)
	}
	return struct {
		Good []deletedVersion `ec2:"successfullyDeletedLaunchTemplateVersionSet"`
		Bad  []deletedVersion `ec2:"unsuccessfullyDeletedLaunchTemplateVersionSet"`
	}{good, bad}, nil
}
