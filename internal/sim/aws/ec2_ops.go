package aws

// operations is the table of everything that EC2 can do here.
func (e *EC2) operations() map[string]operation {
	return map[string]operation{
		"DescribeRegions":               typed(e.describeRegions),
		"DescribeAvailabilityZones":     typed(e.describeZones),
		"DescribeInstanceTypes":         typed(e.describeTypes),
		"DescribeInstanceTypeOfferings": typed(e.describeOfferings),
		"DescribeImages":                typed(e.describeImages),

		"CreateTags":   typed(e.createTags),
		"DeleteTags":   typed(e.deleteTags),
		"DescribeTags": typed(e.describeTags),

		"CreateVpc":                typed(e.createVpc),
		"DescribeVpcs":             typed(e.describeVpcs),
		"DeleteVpc":                typed(e.deleteVpc),
		"ModifyVpcAttribute":       typed(e.modifyVpcAttribute),
		"DescribeVpcAttribute":     typed(e.describeVpcAttribute),
		"AssociateVpcCidrBlock":    typed(e.associateVpcCidr),
		"DisassociateVpcCidrBlock": typed(e.disassociateVpcCidr),

		"CreateSubnet":          typed(e.createSubnet),
		"DescribeSubnets":       typed(e.describeSubnets),
		"DeleteSubnet":          typed(e.deleteSubnet),
		"ModifySubnetAttribute": typed(e.modifySubnet),

		"CreateInternetGateway":    typed(e.createGateway),
		"DescribeInternetGateways": typed(e.describeGateways),
		"DeleteInternetGateway":    typed(e.deleteGateway),
		"AttachInternetGateway":    typed(e.attachGateway),
		"DetachInternetGateway":    typed(e.detachGateway),

		"CreateNatGateway":    typed(e.createNat),
		"DescribeNatGateways": typed(e.describeNats),
		"DeleteNatGateway":    typed(e.deleteNat),

		"AllocateAddress":     typed(e.allocateAddress),
		"DescribeAddresses":   typed(e.describeAddresses),
		"ReleaseAddress":      typed(e.releaseAddress),
		"AssociateAddress":    typed(e.associateAddress),
		"DisassociateAddress": typed(e.disassociateAddress),

		"CreateRouteTable":             typed(e.createRouteTable),
		"DescribeRouteTables":          typed(e.describeRouteTables),
		"DeleteRouteTable":             typed(e.deleteRouteTable),
		"CreateRoute":                  typed(e.createRoute),
		"ReplaceRoute":                 typed(e.replaceRoute),
		"DeleteRoute":                  typed(e.deleteRoute),
		"AssociateRouteTable":          typed(e.associateRouteTable),
		"DisassociateRouteTable":       typed(e.disassociateRouteTable),
		"ReplaceRouteTableAssociation": typed(e.replaceRouteTableAssociation),

		"CreateSecurityGroup":           typed(e.createGroup),
		"DescribeSecurityGroups":        typed(e.describeGroups),
		"DeleteSecurityGroup":           typed(e.deleteGroup),
		"AuthorizeSecurityGroupIngress": typed(e.authorize(false)),
		"AuthorizeSecurityGroupEgress":  typed(e.authorize(true)),
		"RevokeSecurityGroupIngress":    typed(e.revoke(false)),
		"RevokeSecurityGroupEgress":     typed(e.revoke(true)),
		"DescribeSecurityGroupRules":    typed(e.describeRules),
		"ModifySecurityGroupRules":      typed(e.modifyRules),

		"CreateNetworkInterface":          typed(e.createInterface),
		"DescribeNetworkInterfaces":       typed(e.describeInterfaces),
		"DeleteNetworkInterface":          typed(e.deleteInterface),
		"DetachNetworkInterface":          typed(e.detachInterface),
		"ModifyNetworkInterfaceAttribute": typed(e.modifyInterface),
		"DescribeNetworkAcls":             typed(e.describeAcls),

		"CreateLaunchTemplate":           typed(e.createTemplate),
		"CreateLaunchTemplateVersion":    typed(e.createTemplateVersion),
		"DescribeLaunchTemplates":        typed(e.describeTemplates),
		"DescribeLaunchTemplateVersions": typed(e.describeTemplateVersions),
		"ModifyLaunchTemplate":           typed(e.modifyTemplate),
		"DeleteLaunchTemplate":           typed(e.deleteTemplate),
		"DeleteLaunchTemplateVersions":   typed(e.deleteTemplateVersions),

		"RunInstances":                           typed(e.runInstances),
		"DescribeInstances":                      typed(e.describeInstances),
		"DescribeInstanceStatus":                 typed(e.describeStatus),
		"TerminateInstances":                     typed(e.terminateInstances),
		"StopInstances":                          typed(e.stopInstances),
		"StartInstances":                         typed(e.startInstances),
		"RebootInstances":                        typed(e.rebootInstances),
		"DescribeInstanceAttribute":              typed(e.describeAttribute),
		"ModifyInstanceAttribute":                typed(e.modifyAttribute),
		"ModifyInstanceMetadataOptions":          typed(e.modifyMetadata),
		"AssociateIamInstanceProfile":            typed(e.associateProfile),
		"ReplaceIamInstanceProfileAssociation":   typed(e.replaceProfile),
		"DisassociateIamInstanceProfile":         typed(e.disassociateProfile),
		"DescribeIamInstanceProfileAssociations": typed(e.describeProfiles),

		"DescribeVolumes": typed(e.describeVolumes),
		"CreateVolume":    typed(e.createVolume),
		"DeleteVolume":    typed(e.deleteVolume),

		"CreateVpcPeeringConnection":    typed(e.createPeering),
		"AcceptVpcPeeringConnection":    typed(e.acceptPeering),
		"DeleteVpcPeeringConnection":    typed(e.deletePeering),
		"DescribeVpcPeeringConnections": typed(e.describePeerings),

		"CreateVpcEndpoint":    typed(e.createEndpoint),
		"ModifyVpcEndpoint":    typed(e.modifyEndpoint),
		"DeleteVpcEndpoints":   typed(e.deleteEndpoints),
		"DescribeVpcEndpoints": typed(e.describeEndpoints),

		"ImportKeyPair":    typed(e.importKey),
		"DescribeKeyPairs": typed(e.describeKeys),
		"DeleteKeyPair":    typed(e.deleteKey),
	}
}
