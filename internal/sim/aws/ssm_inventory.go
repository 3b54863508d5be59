package aws

import (
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/ssm/types"
)

const agentVersion = "3.3.3050.0"

func (s *ssmService) describeInstanceInformation(c *reqCtx, in *ssm.DescribeInstanceInformationInput) (*ssm.DescribeInstanceInformationOutput, error) {
	filters := map[string][]string{}
	for _, f := range in.Filters {
		filters[deref(f.Key)] = f.Values
	}
	for _, f := range in.InstanceInformationFilterList {
		filters[string(f.Key)] = f.ValueSet
	}
	for _, key := range sortedKeys(filters) {
		known := []string{"InstanceIds", "AgentVersion", "PingStatus", "PlatformTypes", "ActivationIds", "IamRole", "ResourceType", "AssociationStatus", "tag-key"}
		if !slices.Contains(known, key) && !strings.HasPrefix(key, "tag:") {
			return nil, fail(400, "InvalidFilterKey", "")
		}
		if key == "InstanceIds" && slices.ContainsFunc(filters[key], func(v string) bool { return !strings.HasPrefix(v, "i-") && !strings.HasPrefix(v, "mi-") }) {
			return nil, fail(400, "InvalidInstanceId", "")
		}
	}
	if n := deref(in.MaxResults); in.MaxResults != nil && n < 5 {
		return nil, invalidParam("1 validation error detected: Value '%d' at 'maxResults' failed to satisfy constraint: Member must have value greater than or equal to 5", n)
	}
	all := []types.InstanceInformation{}
	for _, m := range s.cloud.machines(c.scope()) {
		if m.Agent == "" || m.gone() || !c.visible(m.ID+"|agent", m.AgentSince, true, "agent", m.ID) {
			continue
		}
		info := m.information(c)
		keep := true
		for key, values := range filters {
			keep = keep && m.matchesInformation(key, values, info)
		}
		if keep {
			all = append(all, info)
		}
	}
	page, next, err := ssmPage(c, all, in.NextToken, in.MaxResults)
	return &ssm.DescribeInstanceInformationOutput{InstanceInformationList: page, NextToken: next}, err
}

func (m machine) information(c *reqCtx) types.InstanceInformation {
	lastPing := c.now
	if m.Agent != "Online" {
		lastPing = m.AgentSince
	}
	name, version := c.cloud.system(c.scope(), m)
	return types.InstanceInformation{
		InstanceId: &m.ID, PingStatus: types.PingStatus(m.Agent), LastPingDateTime: &lastPing, AgentVersion: new(agentVersion),
		IsLatestVersion: new(true), PlatformType: types.PlatformTypeLinux, PlatformName: &name, PlatformVersion: &version,
		ResourceType: types.ResourceTypeEc2Instance, IPAddress: &m.PrivateIP, ComputerName: &m.Hostname,
		SourceId: &m.ID, SourceType: types.SourceTypeAwsEc2Instance,
	}
}

func (m machine) matchesInformation(key string, values []string, info types.InstanceInformation) bool {
	switch key {
	case "InstanceIds":
		return slices.Contains(values, m.ID)
	case "PingStatus":
		return slices.Contains(values, string(info.PingStatus))
	case "PlatformTypes":
		return slices.Contains(values, string(info.PlatformType))
	case "AgentVersion":
		return slices.Contains(values, agentVersion)
	case "ResourceType":
		return slices.Contains(values, string(info.ResourceType)) || slices.Contains(values, "EC2Instance")
	}
	return m.targeted(key, values)
}

func (s *ssmService) describeSessions(_ *reqCtx, in *ssm.DescribeSessionsInput) (*ssm.DescribeSessionsOutput, error) {
	if in.State == "" {
		return nil, invalidParam("1 validation error detected: Value null at 'state' failed to satisfy constraint: Member must not be null")
	}
	// Interactive sessions need the data channel, which is not simulated, so there never is one.
	return &ssm.DescribeSessionsOutput{Sessions: []types.Session{}}, nil
}

func (s *ssmService) getConnectionStatus(c *reqCtx, in *ssm.GetConnectionStatusInput) (*ssm.GetConnectionStatusOutput, error) {
	out := &ssm.GetConnectionStatusOutput{Target: in.Target, Status: types.ConnectionStatusNotConnected}
	if m, ok := s.cloud.machine(c.scope(), deref(in.Target)); ok && m.agentOnline() {
		out.Status = types.ConnectionStatusConnected
	}
	return out, nil
}

// shellContent is the document that Run Command runs shell scripts with.
const shellContent = `{"schemaVersion":"1.2","description":"Run a shell script or specify the commands to run.","parameters":{"commands":{"type":"StringList","description":"(Required) Specify a shell script or a command to run.","minItems":1,"displayType":"textarea"},"workingDirectory":{"type":"String","default":"","maxChars":4096},"executionTimeout":{"type":"String","default":"3600","allowedPattern":"([1-9][0-9]{0,4})|(1[0-6][0-9]{4})|(17[0-1][0-9]{3})|(172[0-7][0-9]{2})|(172800)"}},"runtimeConfig":{"aws:runShellScript":{"properties":[{"id":"0.aws:runShellScript","runCommand":"{{ commands }}","workingDirectory":"{{ workingDirectory }}","timeoutSeconds":"{{ executionTimeout }}"}]}}}`

func (s *ssmService) getDocument(_ *reqCtx, in *ssm.GetDocumentInput) (*ssm.GetDocumentOutput, error) {
	if deref(in.Name) != shellDocument {
		return nil, fail(400, "InvalidDocument", "Document with name %s does not exist.", deref(in.Name))
	}
	return &ssm.GetDocumentOutput{
		Name: in.Name, DocumentVersion: new("1"), Status: types.DocumentStatusActive, Content: new(shellContent),
		DocumentType: types.DocumentTypeCommand, DocumentFormat: types.DocumentFormatJson, CreatedDate: &managedSince,
	}, nil
}

func (s *ssmService) listDocuments(c *reqCtx, in *ssm.ListDocumentsInput) (*ssm.ListDocumentsOutput, error) {
	all := []types.DocumentIdentifier{{
		Name: new(shellDocument), Owner: new("Amazon"), DocumentVersion: new("1"), DocumentType: types.DocumentTypeCommand,
		SchemaVersion: new("1.2"), DocumentFormat: types.DocumentFormatJson, Tags: []types.Tag{}, CreatedDate: &managedSince,
		PlatformTypes: []types.PlatformType{types.PlatformTypeLinux, types.PlatformTypeMacos},
	}}
	page, next, err := ssmPage(c, all, in.NextToken, in.MaxResults)
	return &ssm.ListDocumentsOutput{DocumentIdentifiers: page, NextToken: next}, err
}
