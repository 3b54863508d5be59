package aws

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/rds"
	"github.com/aws/aws-sdk-go-v2/service/rds/types"
)

func (s *rdsService) createParameterGroup(c *reqCtx, in *rds.CreateDBParameterGroupInput) (*rds.CreateDBParameterGroupOutput, error) {
	name, family := strings.ToLower(deref(in.DBParameterGroupName)), deref(in.DBParameterGroupFamily)
	sc := s.in(c.scope())
	if err := checkIdentifier("DBParameterGroupName", name, 255); err != nil {
		return nil, err
	}
	switch {
	case deref(in.Description) == "":
		return nil, rdsInvalid("The parameter Description must be provided and must not be blank.")
	case dbFamilies[family].Engine == "":
		return nil, rdsInvalid("ParameterGroupFamily %s is not a valid parameter group family", family)
	case sc.Parameters[name] != nil:
		return nil, fail(400, "DBParameterGroupAlreadyExists", "Parameter group %s already exists", name)
	}
	if err := checkDBTags(in.Tags); err != nil {
		return nil, err
	}
	own := 0
	for _, g := range sc.Parameters {
		if !g.Default {
			own++
		}
	}
	if float64(own) >= s.cloud.quota(c.scope(), "rds", quotaDBParameters) {
		return nil, fail(400, "DBParameterGroupQuotaExceeded", "Cannot create more than %d parameter groups", int(s.cloud.quota(c.scope(), "rds", quotaDBParameters)))
	}
	g := s.newParameterGroup(c, name, family, *in.Description)
	g.Tags = in.Tags
	c.Make(*g.Group.DBParameterGroupArn)
	return &rds.CreateDBParameterGroupOutput{DBParameterGroup: new(g.Group)}, nil
}

func (s *rdsService) newParameterGroup(c *reqCtx, name, family, description string) *RDSParameterGroup {
	g := &RDSParameterGroup{Created: c.now, Values: map[string]string{}, Group: types.DBParameterGroup{DBParameterGroupName: &name, DBParameterGroupFamily: &family, Description: &description,
		DBParameterGroupArn: new(c.regionalARN("rds", "pg:"+name))}}
	s.in(c.scope()).Parameters[name] = g
	return g
}

// defaultGroup is the parameter group of RDS itself for a family.
func (s *rdsService) defaultGroup(c *reqCtx, family string) *RDSParameterGroup {
	name := "default." + family
	if g := s.in(c.scope()).Parameters[name]; g != nil {
		return g
	}
	g := s.newParameterGroup(c, name, family, "Default parameter group for "+family)
	g.Default = true
	return g
}

func (s *rdsService) parameterGroup(c *reqCtx, ref *string) (*RDSParameterGroup, error) {
	name := strings.ToLower(strings.TrimPrefix(deref(ref), c.regionalARN("rds", "pg:")))
	if family, ok := strings.CutPrefix(name, "default."); ok && dbFamilies[family].Engine != "" {
		return s.defaultGroup(c, family), nil
	}
	g := s.in(c.scope()).Parameters[name]
	if g == nil || !c.visible(*g.Group.DBParameterGroupArn, g.Created, false, "db-parameter-group", name, mapValues(rdsTags(g.Tags))) {
		return nil, fail(404, "DBParameterGroupNotFound", "DBParameterGroup not found: %s", name)
	}
	c.Touch(*g.Group.DBParameterGroupArn)
	return g, nil
}

// parameterGroupFor finds the group of an instance; it must be of the version's family.
func (s *rdsService) parameterGroupFor(c *reqCtx, name string, v dbVersion) (string, error) {
	if name == "" {
		return *s.defaultGroup(c, v.family()).Group.DBParameterGroupName, nil
	}
	g, err := s.parameterGroup(c, &name)
	if err != nil {
		return "", err
	}
	if family := *g.Group.DBParameterGroupFamily; family != v.family() {
		return "", rdsCombination("The Parameter Group %s with DBParameterGroupFamily %s cannot be used for this instance. Please use a Parameter Group with DBParameterGroupFamily %s", name, family, v.family())
	}
	return *g.Group.DBParameterGroupName, nil
}

func (s *rdsService) describeParameterGroups(c *reqCtx, in *rds.DescribeDBParameterGroupsInput) (*rds.DescribeDBParameterGroupsOutput, error) {
	if in.DBParameterGroupName != nil {
		g, err := s.parameterGroup(c, in.DBParameterGroupName)
		if err != nil {
			return nil, err
		}
		return &rds.DescribeDBParameterGroupsOutput{DBParameterGroups: []types.DBParameterGroup{g.Group}}, nil
	}
	all := []types.DBParameterGroup{}
	sc := s.in(c.scope())
	for _, name := range sortedKeys(sc.Parameters) {
		if g := sc.Parameters[name]; c.visible(*g.Group.DBParameterGroupArn, g.Created, true, "db-parameter-group", name) {
			all = append(all, g.Group)
		}
	}
	page, next, err := rdsPage(c, all, in.Marker, in.MaxRecords)
	return &rds.DescribeDBParameterGroupsOutput{DBParameterGroups: page, Marker: next}, err
}

func (s *rdsService) deleteParameterGroup(c *reqCtx, in *rds.DeleteDBParameterGroupInput) (*rds.DeleteDBParameterGroupOutput, error) {
	g, err := s.parameterGroup(c, in.DBParameterGroupName)
	if err != nil {
		return nil, err
	}
	name := *g.Group.DBParameterGroupName
	if g.Default {
		return nil, fail(400, "InvalidDBParameterGroupState", "Default DBParameterGroup cannot be deleted: %s", name)
	}
	for _, i := range s.in(c.scope()).Instances {
		if i.parameterGroup() == name {
			return nil, fail(400, "InvalidDBParameterGroupState", "One or more database instances are still members of this parameter group %s, so the group cannot be deleted", name)
		}
	}
	delete(s.in(c.scope()).Parameters, name)
	return &rds.DeleteDBParameterGroupOutput{}, nil
}

func (s *rdsService) modifyParameterGroup(c *reqCtx, in *rds.ModifyDBParameterGroupInput) (*rds.ModifyDBParameterGroupOutput, error) {
	g, err := s.parameterGroup(c, in.DBParameterGroupName)
	if err != nil {
		return nil, err
	}
	name := *g.Group.DBParameterGroupName
	switch {
	case g.Default:
		return nil, rdsInvalid("Default parameter groups can't be modified: %s", name)
	case len(in.Parameters) == 0:
		return nil, rdsInvalid("The parameter Parameters must be provided and must not be blank.")
	case len(in.Parameters) > 20:
		return nil, rdsInvalid("A maximum of 20 parameters can be modified in a single request.")
	}
	values, reboot := maps.Clone(g.Values), false
	for _, p := range in.Parameters {
		known, ok := familyParameter(*g.Group.DBParameterGroupFamily, deref(p.ParameterName))
		switch {
		case !ok:
			return nil, rdsInvalid("Could not find parameter with name: %s", deref(p.ParameterName))
		case known.Fixed:
			return nil, rdsInvalid("The parameter %s cannot be modified.", known.Name)
		case known.Static && p.ApplyMethod == types.ApplyMethodImmediate:
			return nil, rdsCombination("cannot use immediate apply method for static parameter")
		case p.ApplyMethod != types.ApplyMethodImmediate && p.ApplyMethod != types.ApplyMethodPendingReboot:
			return nil, rdsInvalid("The parameter ApplyMethod must be provided and must not be blank.")
		case !known.allows(deref(p.ParameterValue)):
			return nil, rdsInvalid("Invalid parameter value: %s for: %s allowed values are: %s", deref(p.ParameterValue), known.Name, known.Allowed)
		}
		values[known.Name] = deref(p.ParameterValue)
		reboot = reboot || p.ApplyMethod == types.ApplyMethodPendingReboot
	}
	g.Values = values
	if reboot {
		s.pendingReboot(c, name)
	}
	return &rds.ModifyDBParameterGroupOutput{DBParameterGroupName: &name}, nil
}

// pendingReboot marks the instances of a group, those that have started at least once.
func (s *rdsService) pendingReboot(c *reqCtx, group string) {
	for _, i := range s.in(c.scope()).Instances {
		if i.parameterGroup() == group && i.DB.InstanceCreateTime != nil {
			i.DB.DBParameterGroups[0].ParameterApplyStatus = new("pending-reboot")
		}
	}
}

// allows says whether a value is among those that a parameter takes.
func (p dbParameter) allows(value string) bool {
	if p.Allowed == "" || strings.HasPrefix(value, "{") || strings.Contains(value, "{DBInstance") {
		return true
	}
	options := strings.Split(p.Allowed, ",")
	if slices.Contains(options, value) {
		return true
	}
	if p.Type == "list" {
		for part := range strings.SplitSeq(value, ",") {
			if !slices.Contains(options, strings.TrimSpace(part)) {
				return false
			}
		}
		return true
	}
	at := strings.LastIndex(p.Allowed, "-")
	if at <= 0 {
		return false
	}
	low, err := strconv.ParseFloat(p.Allowed[:at], 64)
	high, err2 := strconv.ParseFloat(p.Allowed[at+1:], 64)
	n, err3 := strconv.ParseFloat(value, 64)
	return err == nil && err2 == nil && err3 == nil && n >= low && n <= high
}

// value is a parameter of a group as it stands.
func (g *RDSParameterGroup) value(name string) string {
	if v, ok := g.Values[name]; ok {
		return v
	}
	p, _ := familyParameter(*g.Group.DBParameterGroupFamily, name)
	return p.Default
}

func (s *rdsService) describeParameters(c *reqCtx, in *rds.DescribeDBParametersInput) (*rds.DescribeDBParametersOutput, error) {
	g, err := s.parameterGroup(c, in.DBParameterGroupName)
	if err != nil {
		return nil, err
	}
	all := []types.Parameter{}
	for _, p := range familyParameters(*g.Group.DBParameterGroupFamily) {
		out := types.Parameter{ParameterName: &p.Name, Description: new("The parameter " + p.Name + "."), DataType: &p.Type, ApplyType: new("dynamic"), IsModifiable: new(!p.Fixed),
			ApplyMethod: types.ApplyMethodPendingReboot, Source: new("engine-default")}
		if p.Static {
			out.ApplyType = new("static")
		}
		if p.Allowed != "" {
			out.AllowedValues = &p.Allowed
		}
		if p.Default != "" {
			out.ParameterValue, out.Source = &p.Default, new("system")
		}
		if v, ok := g.Values[p.Name]; ok {
			out.ParameterValue, out.Source = &v, new("user")
		}
		if (in.Source == nil || *in.Source == *out.Source) && filtered(in.Filters, map[string]string{"parameter-name": p.Name}) {
			all = append(all, out)
		}
	}
	page, next, err := rdsPage(c, all, in.Marker, in.MaxRecords)
	return &rds.DescribeDBParametersOutput{Parameters: page, Marker: next}, err
}

// staticValues are the static parameters of an instance's group, which it takes up when it starts.
func (s *rdsService) staticValues(i *RDSInstance) map[string]string {
	out := map[string]string{}
	if g := s.in(i.scope()).Parameters[i.parameterGroup()]; g != nil {
		for name, v := range g.Values {
			if p, ok := familyParameter(*g.Group.DBParameterGroupFamily, name); ok && p.Static {
				out[name] = v
			}
		}
	}
	return out
}

// requiresTLS is what the parameters that an instance runs with say; both are dynamic.
func (s *rdsService) requiresTLS(i *RDSInstance) bool {
	name := "rds.force_ssl"
	if i.engine() == "mysql" {
		name = "require_secure_transport"
	}
	g := s.in(i.scope()).Parameters[orText(i.Running.Group, i.parameterGroup())]
	return g != nil && slices.Contains([]string{"1", "on", "ON", "true"}, g.value(name))
}
