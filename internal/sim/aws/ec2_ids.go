package aws

import (
	"regexp"
	"strings"
)

// The refusals for objects that are not there: each kind words it in its own way ("Error codes for the Amazon EC2 API").

func noVpc(id string) *Error {
	return lost(id, "vpc-", "InvalidVpcID", "The vpc ID '%s' does not exist")
}
func noSubnet(id string) *Error {
	return lost(id, "subnet-", "InvalidSubnetID", "The subnet ID '%s' does not exist")
}
func noGateway(id string) *Error {
	return lost(id, "igw-", "InvalidInternetGatewayID", "The internetGateway ID '%s' does not exist")
}
func noNat(id string) *Error {
	return refuse("NatGatewayNotFound", "NatGateway %s was not found", id)
}
func noAllocation(id string) *Error {
	return lost(id, "eipalloc-", "InvalidAllocationID", "The allocation ID '%s' does not exist")
}
func noRouteTable(id string) *Error {
	return lost(id, "rtb-", "InvalidRouteTableID", "The routeTable ID '%s' does not exist")
}
func noGroup(id string) *Error {
	if !strings.HasPrefix(id, "sg-") {
		return refuse("InvalidGroupId.Malformed", "Invalid id: \"%s\" (expecting \"sg-...\")", id)
	}
	return refuse("InvalidGroup.NotFound", "The security group '%s' does not exist", id)
}
func noRule(id string) *Error {
	return refuse("InvalidSecurityGroupRuleId.NotFound", "The security group rule ID '%s' does not exist", id)
}
func noInterface(id string) *Error {
	return lost(id, "eni-", "InvalidNetworkInterfaceID", "The networkInterface ID '%s' does not exist")
}
func noInstance(id string) *Error {
	if !wellFormed(id, "i-") {
		return refuse("InvalidInstanceID.Malformed", "Invalid id: \"%s\"", id)
	}
	return refuse("InvalidInstanceID.NotFound", "The instance ID '%s' does not exist", id)
}
func noVolume(id string) *Error {
	return refuse("InvalidVolume.NotFound", "The volume '%s' does not exist.", id)
}
func noTemplate(id string) *Error {
	return refuse("InvalidLaunchTemplateId.NotFound", "The specified launch template, with template ID %s, does not exist.", id)
}
func noTemplateName(name string) *Error {
	return refuse("InvalidLaunchTemplateName.NotFoundException", "The specified launch template, with template name %s, does not exist.", name)
}
func noImage(id string) *Error {
	if !strings.HasPrefix(id, "ami-") {
		return refuse("InvalidAMIID.Malformed", "Invalid id: \"%s\" (expecting \"ami-...\")", id)
	}
	return refuse("InvalidAMIID.NotFound", "The image id '[%s]' does not exist", id)
}
func noKeyPair(name string) *Error {
	return refuse("InvalidKeyPair.NotFound", "The key pair '%s' does not exist", name)
}
func noACL(id string) *Error {
	return lost(id, "acl-", "InvalidNetworkAclID", "The networkAcl ID '%s' does not exist")
}
func noPeering(id string) *Error {
	return lost(id, "pcx-", "InvalidVpcPeeringConnectionID", "The vpcPeeringConnection ID '%s' does not exist")
}
func noFlowLog(id string) *Error {
	return refuse("InvalidFlowLogId.NotFound", "These flow log ids in the input list are not found: [[%s]]", id)
}
func noEndpoint(id string) *Error {
	return refuse("InvalidVpcEndpointId.NotFound", "The Vpc Endpoint Id '%s' does not exist", id)
}

var hexTail = regexp.MustCompile(`^([0-9a-f]{8}|[0-9a-f]{17})$`)

func wellFormed(id, prefix string) bool {
	tail, ok := strings.CutPrefix(id, prefix)
	return ok && hexTail.MatchString(tail)
}

// lost is a NotFound, or a Malformed when the ID cannot be one of the kind at all.
func lost(id, prefix, code, text string) *Error {
	if !strings.HasPrefix(id, prefix) {
		return refuse(strings.Replace(code, "ID", "Id", 1)+".Malformed", "Invalid id: \"%s\" (expecting \"%s...\")", id, prefix)
	}
	return refuse(code+".NotFound", text, id)
}

// notFoundByPrefix is for calls that take IDs of any kind.
func notFoundByPrefix(id string) *Error {
	prefix, _, _ := strings.Cut(id, "-")
	known := map[string]func(string) *Error{
		"vpc": noVpc, "subnet": noSubnet, "igw": noGateway, "nat": noNat, "eipalloc": noAllocation, "rtb": noRouteTable, "sg": noGroup,
		"sgr": noRule, "eni": noInterface, "i": noInstance, "vol": noVolume, "snap": noSnapshot, "lt": noTemplate, "ami": noImage, "acl": noACL,
		"pcx": noPeering, "vpce": noEndpoint, "fl": noFlowLog,
	}
	if f, ok := known[prefix]; ok {
		return f(id)
	}
	return refuse("InvalidID", "The ID '%s' is not valid", id)
}
